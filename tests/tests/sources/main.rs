//! Charts fetched from real registries and from repositories, as deploys fetch them.

mod matrix;
mod signatures;
