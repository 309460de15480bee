//! Kills the agent in the middle of installs, upgrades, rollbacks and removals, and checks the releases afterwards.
//!
//! A *life* is one chart that is installed, upgraded, upgraded to something broken that `atomic` rolls back, and removed. In each
//! of these stages the real agent is killed, between two requests of which one is a change (see [`gate`]) or after a random time,
//! sometimes again while it recovers; then it is started and everything must come right by itself. What counts is read from the
//! API server and its audit log.

pub mod charts;
pub mod gate;
pub mod records;

mod campaign;
mod life;
mod tally;

pub use campaign::{Campaign, run};
pub use life::Stage;
pub use tally::{Finding, Tally};
