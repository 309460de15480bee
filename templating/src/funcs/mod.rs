//! The functions a template can call and the one table that holds them.
//!
//! A Rust closure becomes a template function by its argument types, which also give the Go signature that errors talk
//! about: `functions.add("trunc", |n: i64, s: Str| …)` is Go's `func(int, string)`. See [`Argument`] for the types, and
//! [`Rest`] for variadic functions. A closure that needs the clock, randomness or limits takes a [`State`](crate::State) first.

mod argument;
mod builtins;
#[cfg(feature = "certificates")]
mod certificate;
mod crypto;
mod date;
mod decimal;
mod defaults;
mod dict;
mod encoding;
mod flow;
mod functions;
mod list;
mod merge;
mod moment;
mod network;
mod numeric;
mod path;
mod pretty;
mod reflect;
mod regex;
mod semver;
mod sprig;
mod strings;
mod text;
mod url;
mod words;

pub(crate) use argument::next_argument;
pub use argument::{Argument, Int64, IntoResult, Rest, Signature, Typed};
pub use flow::without_no_value;
pub(crate) use flow::{add_flow, add_flow_lint};
pub(crate) use functions::{Body, Callee};
pub use functions::{Function, Functions};
pub(crate) use moment::{DURATION, duration};
pub(crate) use sprig::{add_helm, add_sprig};
