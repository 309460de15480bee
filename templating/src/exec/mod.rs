//! Executing templates: a set of parsed templates, a render of some of them, and the walk over the trees.
//!
//! Statements are walked with an explicit stack, so `{{template}}` may nest as deep as Go allows; expressions and
//! `include` use the native stack and are bounded by [`Limits`](crate::Limits).

mod cache;
mod call;
mod eval;
mod machine;
mod renderer;
mod set;

pub use cache::TemplateCache;
pub use renderer::Renderer;
pub use set::{MissingKey, TemplateSet};
