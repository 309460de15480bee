//! Helm's command line over [`chart`]: its flags, its files and its words.
//!
//! What `helm template` is made of without Helm: where a chart comes from ([`chart_flags`], configured
//! repositories, stored logins), the values flags ([`value_flags`]), pflag's way with flags ([`pflag`]), the command
//! itself ([`template`]) with `--dry-run=server` and `--dependency-update`. Nothing here knows of Fleet. Commands print, and
//! answer with an exit code; errors are texts, as helm words them, because nobody but a person reads them.
//!
//! Mirrors `pkg/cmd`, `pkg/cli`, `pkg/downloader` and the locating half of `pkg/action` of Helm 4.

mod access;
mod address;
pub mod chart_flags;
mod client;
mod console;
mod csv;
mod dependencies;
mod fetch_errors;
pub mod files;
pub mod helm_home;
mod logins;
pub mod pflag;
mod repositories;
pub mod template;
pub mod value_flags;
mod verify;
