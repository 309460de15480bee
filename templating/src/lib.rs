#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod dialect;
pub mod error;
mod exec;
pub mod fmt;
pub mod funcs;
mod host;
mod memory;
mod parse;
mod state;
pub mod value;

pub use dialect::Dialect;
pub use error::{Error, ErrorKind};
pub use exec::{MissingKey, Renderer, TemplateCache, TemplateSet};
pub use funcs::Functions;
pub use host::{Host, Limits, SystemHost, resolve_name};
pub use parse::Reads;
pub use state::State;
pub use value::{Kind, List, Map, Method, Object, Operand, Str, Type, Value};
