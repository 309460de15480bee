//! The agent in whole clusters that live in memory: random histories under virtual time, every failure a seed.
//!
//! All the agent reaches the world through is replaced: its API servers by [`apiserver`], the network to them by [`wire`] (which loses,
//! delays and refuses requests and kills the agent between any two), repositories, the clock. Time is tokio's paused clock, which
//! moves when nobody has anything to do; everything that is random comes from the name of the thread a history runs in
//! (`entropy.c`), so a seed is a history. What actors do is drawn beforehand ([`plan`]), so that a failing history can be made small
//! ([`shrink`]); what must hold is in [`book`] and, once everything has come to rest, in [`history`].

pub mod apiserver;
pub mod book;
pub mod controllers;
pub mod dice;
pub mod history;
pub mod known;
pub mod logs;
pub mod plan;
pub mod shrink;
pub mod wire;
pub mod wish;
pub mod world;
