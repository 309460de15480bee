//! The downstream agent for Rancher Fleet: the binary and Fleet's half.
//!
//! The only crate that knows `fleet.cattle.io`. What a chart or a release is lives below it.

#![allow(rustdoc::private_intra_doc_links, reason = "whoever reads about a program has its source")]

pub mod api;
pub mod bundle;
pub mod cli;
pub mod client;
pub mod config;
pub mod controllers;
pub mod error;
pub mod ledger;
pub mod process;
pub mod public;
pub mod register;
pub mod report;
pub mod schemas;
pub mod summary;
pub mod values;
