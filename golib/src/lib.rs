#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod base32;
pub mod base64;
pub mod budget;
pub mod duration;
pub mod folder;
pub mod glob;
pub mod hex;
pub mod json;
pub mod netip;
pub mod path;
pub mod regexp;
pub mod semver;
pub mod sort;
pub mod strconv;
pub mod time;
pub mod toml;
pub mod unicode;
pub mod url;
pub mod utf8;
pub mod validation;
pub mod yaml;
