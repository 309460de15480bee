//! Log lines that cannot quote a secret.
//!
//! The macros are `tracing`'s, in a form that takes less: every value in a line is [`Public`]. Texts that came from elsewhere are not, errors above all, as
//! an API server, a webhook, a chart or a parser may have put anything into them. So a crate that logs depends on this one and not on `tracing`, and
//! makes texts public by types of its own, in one place.
//!
//! ```
//! let release = String::from("web");
//! logging::info!(release, revision = 3_i64, "deployed");
//! logging::debug!("{} of {} are there", 2_usize, 3_usize);
//! ```
//!
//! A text is none, unless its field is one of names (`bundle`, `release`, `namespace`, `name`, `kind`, `object`), where what is no name is masked; and nothing is taken in by the name of a variable:
//!
//! ```compile_fail,E0277
//! let error = String::from("invalid value: \"hunter2\"");
//! logging::warn!(error, "cannot write");
//! ```
//!
//! ```compile_fail,E0277
//! let error = std::io::Error::other("invalid value: \"hunter2\"");
//! logging::warn!("cannot write: {}", error);
//! ```
//!
//! ```compile_fail
//! let secret = String::from("hunter2");
//! logging::warn!("cannot write {secret}");
//! ```

#![warn(missing_docs)]

use std::fmt;
use std::io;
use std::time::Duration;

/// The most verbose level that is logged.
pub use tracing::Level;

/// What stands in the place of something that may be secret.
pub const MASK: &str = "**REDACTED**";

/// The longest name, in bytes: addresses are names too.
const LONGEST_NAME: usize = 1024;

/// What may leave the process: a type that implements it says why.
pub trait Public {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the formatter.
    fn fmt_public(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// Prints what is [`Public`].
pub struct Part<'p, T: ?Sized>(pub &'p T);

impl<T: Public + ?Sized> fmt::Display for Part<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_public(f)
    }
}

/// A name, a version, an address or a digest. What is none, as it has blanks, quotes or no end, is masked.
///
/// ```
/// # use logging::{Name, Part};
/// assert_eq!(Part(&Name("ns/web-1")).to_string(), "ns/web-1");
/// assert_eq!(Part(&Name("invalid value: \"hunter2\"")).to_string(), logging::MASK);
/// ```
pub struct Name<'n>(pub &'n str);

impl Public for Name<'_> {
    fn fmt_public(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_part = |c: char| !c.is_whitespace() && !c.is_control() && !"\"'`".contains(c);
        let is_name = self.0.len() <= LONGEST_NAME && self.0.chars().all(is_part);
        f.write_str(if is_name { self.0 } else { MASK })
    }
}

macro_rules! printed {
    ($($type:ty),*) => {
        $(impl Public for $type {
            fn fmt_public(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        })*
    };
}

printed!(&'static str, bool, u16, u32, u64, i32, i64, usize);

impl Public for Duration {
    fn fmt_public(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// To the second.
impl Public for jiff::Timestamp {
    fn fmt_public(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:.0}")
    }
}

/// An error of the operating system: its kind alone, as libraries wrap theirs in it.
impl Public for io::ErrorKind {
    fn fmt_public(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[doc(hidden)]
pub mod macros {
    use std::fmt;
    pub use tracing;

    use super::{Name, Part};

    /// The value of a field that holds a name, or a few, as `Deployment shop/web`.
    pub struct Names<'n>(&'n str);

    impl<'n> Names<'n> {
        pub fn of(names: &'n (impl AsRef<str> + ?Sized)) -> Self {
            Self(names.as_ref())
        }
    }

    impl fmt::Display for Names<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            if self.0.split(' ').count() > 3 {
                return f.write_str(super::MASK);
            }
            for (at, name) in self.0.split(' ').enumerate() {
                let blank = if at == 0 { "" } else { " " };
                write!(f, "{blank}{}", Part(&Name(name)))?;
            }
            Ok(())
        }
    }

    /// What stands in a field: names by the field they are in, all else by its type.
    #[macro_export]
    macro_rules! __field {
        ($field:ident) => {
            $crate::__field!($field, $field)
        };
        (bundle, $value:expr) => {
            $crate::macros::Names::of(&$value)
        };
        (release, $value:expr) => {
            $crate::macros::Names::of(&$value)
        };
        (namespace, $value:expr) => {
            $crate::macros::Names::of(&$value)
        };
        (name, $value:expr) => {
            $crate::macros::Names::of(&$value)
        };
        (kind, $value:expr) => {
            $crate::macros::Names::of(&$value)
        };
        (object, $value:expr) => {
            $crate::macros::Names::of(&$value)
        };
        ($other:ident, $value:expr) => {
            $crate::Part(&$value)
        };
    }

    #[macro_export]
    macro_rules! __event {
        ($level:ident, [$($field:ident $(= $value:expr)?,)*] $message:literal $(, $part:expr)* $(,)?) => {
            $crate::macros::tracing::event!(
                $crate::macros::tracing::Level::$level,
                $($field = $crate::macros::tracing::field::display($crate::__field!($field $(, $value)?)),)*
                // Through `concat!`, so that no variable is taken in by its name.
                concat!($message) $(, $crate::Part(&$part))*
            )
        };
    }
}

/// Logs an error.
#[macro_export]
macro_rules! error {
    ($($field:ident $(= $value:expr)?,)* $message:literal $($part:tt)*) => {
        $crate::__event!(ERROR, [$($field $(= $value)?,)*] $message $($part)*)
    };
}

/// Logs a warning.
#[macro_export]
macro_rules! warn {
    ($($field:ident $(= $value:expr)?,)* $message:literal $($part:tt)*) => {
        $crate::__event!(WARN, [$($field $(= $value)?,)*] $message $($part)*)
    };
}

/// Logs what an operator wants to know.
#[macro_export]
macro_rules! info {
    ($($field:ident $(= $value:expr)?,)* $message:literal $($part:tt)*) => {
        $crate::__event!(INFO, [$($field $(= $value)?,)*] $message $($part)*)
    };
}

/// Logs what is looked for where something goes wrong.
#[macro_export]
macro_rules! debug {
    ($($field:ident $(= $value:expr)?,)* $message:literal $($part:tt)*) => {
        $crate::__event!(DEBUG, [$($field $(= $value)?,)*] $message $($part)*)
    };
}

/// Logs each small thing.
#[macro_export]
macro_rules! trace {
    ($($field:ident $(= $value:expr)?,)* $message:literal $($part:tt)*) => {
        $crate::__event!(TRACE, [$($field $(= $value)?,)*] $message $($part)*)
    };
}

#[cfg(test)]
mod tests {
    use super::macros::Names;
    use super::*;

    #[test]
    fn names_stand_among_words_and_anything_else_is_masked() {
        let long = "x".repeat(2_000);
        for (text, reported) in [
            ("ns/web-1", "ns/web-1"),
            ("https://a.b/c?d=%20", "https://a.b/c?d=%20"),
            ("invalid value: \"hunter2\"", MASK),
            ("two\nlines", MASK),
            ("a b", MASK),
            (&long, MASK),
        ] {
            assert_eq!(Part(&Name(text)).to_string(), reported);
        }
    }

    #[test]
    fn an_object_is_named_and_a_sentence_is_masked() {
        for (text, reported) in [
            ("Deployment shop/web", "Deployment shop/web"),
            ("the API server quotes hunter2", MASK),
            ("web \"hunter2\"", "web **REDACTED**"),
        ] {
            assert_eq!(Names::of(text).to_string(), reported);
        }
    }
}
