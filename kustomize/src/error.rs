//! Why a kustomization was not built. The texts are kustomize's, each layer before its cause, as users know them.

use golib::budget::TooLarge;
use golib::yaml::node;

/// Why a kustomization was not built, in kustomize's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    message: String,
    /// The build ended because it would take more than it may; nothing else is tried then.
    is_limit: bool,
    /// A field that was to hold a scalar holds a collection.
    is_wrong_kind: bool,
}

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure in its own words, of which there may be 64 KiB: some are quoted in others, and each time their quotes double.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: shortened(message.into()),
            is_limit: false,
            is_wrong_kind: false,
        }
    }

    pub(crate) fn limit(message: impl Into<String>) -> Self {
        Self {
            is_limit: true,
            ..Self::new(message)
        }
    }

    pub(crate) fn wrong_kind(message: impl Into<String>) -> Self {
        Self {
            is_wrong_kind: true,
            ..Self::new(message)
        }
    }

    /// This error behind a prefix and a colon (`errors.WrapPrefixf`).
    #[must_use]
    pub(crate) fn context(mut self, prefix: impl AsRef<str>) -> Self {
        self.message = shortened(format!("{}: {}", prefix.as_ref(), self.message));
        self
    }

    /// This error in other words.
    #[must_use]
    pub(crate) fn reworded(self, message: impl Into<String>) -> Self {
        Self {
            message: shortened(message.into()),
            ..self
        }
    }

    /// Whether the build was stopped by a limit of ours.
    pub fn is_limit(&self) -> bool {
        self.is_limit
    }

    pub(crate) fn is_wrong_kind(&self) -> bool {
        self.is_wrong_kind
    }

    pub(crate) fn contains(&self, text: &str) -> bool {
        self.message.contains(text)
    }
}

/// With what does not fit cut out of its middle: what is wrong stands at the end, where at the beginning.
fn shortened(text: String) -> String {
    const MAX: usize = 64 << 10;
    if text.len() <= MAX {
        return text;
    }
    let (head, tail) = (
        text.floor_char_boundary(MAX / 2),
        text.ceil_char_boundary(text.len() - MAX / 2),
    );
    format!("{} … {}", &text[..head], &text[tail..])
}

impl From<String> for Error {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<node::Error> for Error {
    fn from(error: node::Error) -> Self {
        match &error {
            node::Error::TooLarge(_) => Self::limit(error.to_string()),
            _ => Self::new(error.to_string()),
        }
    }
}

impl From<golib::yaml::Error> for Error {
    fn from(error: golib::yaml::Error) -> Self {
        match &error {
            golib::yaml::Error::TooLarge(_) => Self::limit(error.to_string()),
            _ => Self::new(error.to_string()),
        }
    }
}

impl From<golib::json::Error> for Error {
    fn from(error: golib::json::Error) -> Self {
        match &error {
            golib::json::Error::TooLarge(_) => Self::limit(error.to_string()),
            _ => Self::new(error.to_string()),
        }
    }
}

impl From<TooLarge> for Error {
    fn from(error: TooLarge) -> Self {
        Self::limit(error.to_string())
    }
}

/// [`Error::context`] on a result.
pub(crate) trait Context<T> {
    fn context(self, prefix: impl AsRef<str>) -> Result<T>;
    fn with_context(self, prefix: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, prefix: impl AsRef<str>) -> Result<T> {
        self.map_err(|error| error.into().context(prefix))
    }

    fn with_context(self, prefix: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.into().context(prefix()))
    }
}
