//! The parts of Go's libraries that charts can see, written in Rust: data formats, number text, patterns, versions and
//! times. Pure and synchronous; nothing here reads files, the network, the clock or the environment.
//!
//! Data without template semantics travels as [`serde_json::Value`], whose maps are sorted by bytes as Go sorts the keys
//! of the maps it encodes. What Go would print is printed by this crate ([`json`], [`yaml`], [`toml`], [`strconv`]), never
//! by a serde serializer: Go's float format, escapes and key order differ from all of them.

#![warn(missing_docs)]

pub mod base32;
pub mod base64;
pub mod budget;
pub mod duration;
pub mod glob;
pub mod json;
pub mod path;
pub mod regexp;
pub mod semver;
pub mod strconv;
pub mod time;
pub mod toml;
pub mod unicode;
pub mod utf8;
pub mod yaml;
