//! The downstream agent for Rancher Fleet: the binary and Fleet's half.
//!
//! The only crate that knows `fleet.cattle.io`. What a chart or a release is lives below it.

#![allow(rustdoc::private_intra_doc_links, reason = "whoever reads about a program has its source")]

pub mod api;
pub mod bundle;
pub mod cli;
pub mod config;
pub mod controllers;
pub mod error;
pub mod events;
pub mod identity;
pub mod leader;
pub mod ledger;
pub mod memory;
pub mod metrics;
pub mod records;
pub mod register;
pub mod requests;
pub mod run;
pub mod schemas;
pub mod secrecy;
pub mod server;
pub mod session;
pub mod summary;
pub mod telemetry;
pub mod values;
pub mod watching;
