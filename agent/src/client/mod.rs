//! Clients of the two clusters: how requests are made and bounded, with whose rights, how watches
//! go on, and whether the clusters answer.

mod account_records;
pub mod health;
pub mod identity;
pub mod listed;
pub mod read_sources;
mod refusals;
pub mod requests;
pub mod retries;
#[cfg(test)]
pub(crate) mod scripted;
pub mod watch;
