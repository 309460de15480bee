//! Executing templates.

mod operand;
mod state;

pub use operand::Operand;
pub use state::State;
