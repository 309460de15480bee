//! Texts that may leave the process: of conditions, Events and errors that end there.
//!
//! Only a [`PublicText`] is published. Words of the program are one, names and numbers that stand among them
//! ([`public!`](crate::public!)), and what `redact::SensitiveData` has gone through. A `String` or an error is not.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::ops::Deref;

use chart::Warning;
pub use logging::{Name, Part, Public};
use signatures::Verified;

use crate::error;
use redact::limits::MAX_TEXT_BYTES;

pub mod redact;

/// A text that may leave the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicText(Cow<'static, str>);

/// [`format!`] of what may leave the process: each argument is [`Public`], and stands behind the text.
#[macro_export]
macro_rules! public {
    ($format:literal $(, $part:expr)* $(,)?) => {
        // Through `concat!`, so that no variable is taken in by its name.
        $crate::public::PublicText::of_parts(
            format_args!(concat!($format) $(, $crate::public::Part(&$part))*),
        )
    };
}

impl PublicText {
    /// For [`public!`](crate::public!) alone.
    pub fn of_parts(parts: fmt::Arguments<'_>) -> Self {
        Self(Cow::Owned(parts.to_string()))
    }

    /// An error and its causes that quote nothing secret, as what they are about has nothing: objects of the agent's own, names, addresses. What an API
    /// server says is as long as it likes.
    pub fn nothing_secret_in(failed: &(dyn Error + 'static)) -> Self {
        Self(Cow::Owned(cut(error::chain(failed), MAX_TEXT_BYTES)))
    }

    /// The signers of a chart, as the signature policy names them.
    pub fn of_signer(verified: &Verified) -> Self {
        Self(Cow::Owned(verified.to_string()))
    }

    /// A chart's warning. The values that some are about are not shown, nor an annotation that a template may have made.
    pub fn of_warning(warning: &Warning) -> Self {
        match warning {
            Warning::UnknownHook { .. } => "a document names an unknown hook event".into(),
            other => Self(Cow::Owned(other.to_string())),
        }
    }

    /// What the operator of the site wrote for everybody to read.
    pub fn of_operator(text: &str) -> Self {
        Self(Cow::Owned(text.to_owned()))
    }

    /// For [`redact`] alone, which is below this module for that.
    fn of_redacted(text: String) -> Self {
        Self(Cow::Owned(text))
    }

    /// Several, with `between` them.
    pub fn join(texts: impl IntoIterator<Item = Self>, between: &'static str) -> Self {
        let texts: Vec<_> = texts.into_iter().map(|text| text.0).collect();
        Self(Cow::Owned(texts.join(between)))
    }

    /// At most so many bytes of it, and where it was cut.
    #[must_use]
    pub fn cut(self, max: usize) -> Self {
        match self.0.len() > max {
            true => Self(Cow::Owned(cut(self.0.into_owned(), max))),
            false => self,
        }
    }
}

impl From<&'static str> for PublicText {
    fn from(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl Deref for PublicText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PublicText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq<&str> for PublicText {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl Public for PublicText {
    fn fmt_public(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// The text, no longer than so many bytes.
pub fn cut(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        let mut end = max_bytes.saturating_sub(3);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use logging::MASK;

    #[test]
    fn names_are_shown_and_any_other_text_is_masked() {
        let reported = |name: &str| public!("release {} of {}", Name(name), 3_usize).to_string();
        assert_eq!(reported("ns/web-1"), "release ns/web-1 of 3");
        assert_eq!(
            reported("https://a.b/c?d=%20"),
            "release https://a.b/c?d=%20 of 3"
        );
        let not_names = [
            "invalid value: \"hunter2\"",
            "two\nlines",
            "a b",
            &"x".repeat(2_000),
        ];
        for text in not_names {
            assert_eq!(reported(text), format!("release {MASK} of 3"));
        }
    }

    #[test]
    fn messages_and_drift_patches_use_the_same_mask() {
        assert_eq!(MASK, objects::drift::MASK);
    }

    #[test]
    fn warnings_of_charts_are_reported_without_values() {
        let (key, value) = ("web.password".to_owned(), "hunter2".to_owned());
        let events = "hunter2".to_owned();
        for warning in [
            Warning::CannotOverwriteTable {
                key: key.clone(),
                value: value.clone(),
            },
            Warning::IgnoredNonTable { key, value },
            Warning::UnknownHook { events },
        ] {
            let reported = PublicText::of_warning(&warning);
            assert!(!reported.contains("hunter2"), "{reported}");
        }
    }

    #[test]
    fn an_error_is_no_longer_than_any_other_text() {
        let failed = std::io::Error::other("x".repeat(MAX_TEXT_BYTES + 1));
        let text = PublicText::nothing_secret_in(&failed);
        assert!(text.len() <= MAX_TEXT_BYTES && text.ends_with("..."));
    }

    #[test]
    fn a_cut_text_says_that_it_is_cut() {
        let text = PublicText::from("words of the program");
        assert_eq!(text.clone().cut(100), "words of the program");
        assert!(text.cut(10).len() <= 10);
    }
}
