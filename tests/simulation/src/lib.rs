//! The agent in whole clusters that live in memory: random histories under virtual time, every failure a seed.
//!
//! All the agent reaches the world through is replaced: its API servers by [`apiserver`], the network to them by [`network`] (which loses,
//! delays and refuses requests and kills the agent between any two), repositories, the clock. Time is tokio's paused clock, which
//! moves when nobody has anything to do; everything that is random comes from the name of the thread a history runs in
//! (`entropy.c`), so a seed is a history. What actors do is drawn beforehand ([`plan`]), so that a failing history can be made small
//! ([`shrink`]); what must hold is in [`checker`] and, once everything has come to rest, in [`history`].

pub mod apiserver;
pub mod checker;
pub mod controllers;
pub mod desired;
pub mod history;
pub mod known;
pub mod logs;
pub mod network;
pub mod plan;
pub mod random;
pub mod records;
pub mod script;
pub mod shrink;
pub mod world;
