//! Executing templates: a set of parsed templates, the state of a render, and the walk over the trees.
//!
//! Statements are walked with an explicit stack, so `{{template}}` may nest as deep as Go allows; expressions and
//! `include` use the native stack and are bounded by [`Limits`](crate::Limits).

mod cache;
mod call;
mod eval;
mod machine;
mod operand;
mod set;
mod state;

pub use cache::TemplateCache;
pub use operand::Operand;
pub use set::{MissingKey, TemplateSet};
pub use state::State;
pub(crate) use state::TplError;
