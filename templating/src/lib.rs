//! Go's `text/template`, with Sprig and Helm's functions, indistinguishable from the originals.
//!
//! Templates are parsed once against a table of [`Functions`] and executed any number of times with a [`Value`] as dot.
//! The crate reads no files, clock or environment: all of that comes from the caller's [`Host`]. It mirrors Go 1.26's
//! `text/template` and `fmt`, Sprig 3.3.0 and the function map of Helm 4's engine.
//!
#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod dialect;
pub mod error;
pub mod exec;
pub mod fmt;
pub mod funcs;
pub mod host;
mod memory;
mod parse;
mod state;
pub mod value;

pub use dialect::Dialect;
pub use error::{Error, ErrorKind};
pub use exec::{MissingKey, Renderer, TemplateCache, TemplateSet};
pub use funcs::Functions;
pub use host::{Host, Limits, SystemHost};
pub use parse::Reads;
pub use state::State;
pub use value::{Kind, List, Map, Method, Object, Operand, Str, Type, Value};
