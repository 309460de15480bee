//! Random templates, values and texts, and what must hold for all of them.
//!
//! [`grammar`] turns [`Choices`] into templates that cover the language and the functions, with values to run them on;
//! [`targets`] holds what is fuzzed. The same targets run under libFuzzer (`libfuzzer/`, `make fuzz`) and, on the kept
//! cases and a bounded number of generated ones, in the tests. The differential run against Go uses the same grammar.

mod choices;
pub mod differential;
pub mod grammar;
pub mod targets;

pub use choices::{Choices, seeded};
