//! Go strings: bytes, usually UTF-8, shared and never changed. Cutting a string at a byte (as Sprig's `trunc` does) may
//! leave half a character behind, so a Rust `str` would not do.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use crate::memory::Held;

/// An immutable Go string. Cloning shares the bytes; short ones are copied, which costs no memory of their own.
///
/// ```
/// use templating::Str;
///
/// let cut = Str::from(&"é".as_bytes()[..1]);
/// assert_eq!(cut.as_str(), None);
/// assert_eq!(cut.to_str_lossy(), "\u{fffd}");
/// ```
#[derive(Clone)]
pub struct Str(Repr);

/// Bytes that fit beside a length and a tag in the room that a pointer with a length takes in a [`Value`](super::Value).
const SHORT: usize = 22;

#[derive(Clone)]
enum Repr {
    Short {
        length: u8,
        bytes: [u8; SHORT],
    },
    Long(Arc<[u8]>),
    /// Bytes that somebody else keeps, such as a chart's files.
    Kept(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

/// Shorter texts count with the list or map that has them.
const COUNTED: usize = 256;

/// Bytes that count as long as anything holds them.
struct Counted {
    bytes: Arc<[u8]>,
    _held: Mutex<Held>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Str {
    /// This text counted among the memory of a render: a list of a few elements may hold megabytes of text.
    pub(crate) fn counted(self) -> Self {
        match self.0 {
            Repr::Long(bytes) if bytes.len() >= COUNTED => {
                let _held = Mutex::new(Held::new(bytes.len() as u64));
                Self::kept(Counted { bytes, _held })
            }
            repr => Self(repr),
        }
    }

    /// A string of bytes that `keeper` holds, without a copy of them. The bytes must always be the same.
    ///
    /// ```
    /// use templating::Str;
    ///
    /// let file = bytes::Bytes::from(vec![b'x'; 1 << 20]);
    /// let text = Str::kept(file.clone());
    /// assert_eq!(text.as_bytes().as_ptr(), file.as_ptr());
    /// ```
    pub fn kept(keeper: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Repr::Kept(Arc::new(keeper)))
    }

    fn short(bytes: &[u8]) -> Option<Self> {
        let mut short = [0; SHORT];
        short.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let length = bytes.len() as u8;
        Some(Self(Repr::Short {
            length,
            bytes: short,
        }))
    }

    /// The bytes, which need not be valid UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Short { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Repr::Long(bytes) => bytes,
            Repr::Kept(keeper) => (**keeper).as_ref(),
        }
    }

    /// The text with every invalid byte replaced by U+FFFD.
    pub fn to_str_lossy(&self) -> Cow<'_, str> {
        golib::utf8::to_str(self)
    }

    /// The text, unless it is not UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self).ok()
    }
}

impl Default for Str {
    fn default() -> Self {
        Self(Repr::Short {
            length: 0,
            bytes: [0; SHORT],
        })
    }
}

impl Deref for Str {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Borrow<[u8]> for Str {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl AsRef<[u8]> for Str {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Str {
    fn from(bytes: &[u8]) -> Self {
        Self::short(bytes).unwrap_or_else(|| Self(Repr::Long(bytes.into())))
    }
}

impl From<Vec<u8>> for Str {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Self {
        Self::from(text.as_bytes())
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Self::from(text.as_bytes())
    }
}

impl PartialEq for Str {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Str {}

impl PartialOrd for Str {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Str {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Str {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        **self == *other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        **self == *other.as_bytes()
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_str_lossy())
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_str_lossy(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    #[test]
    fn all_kinds_are_the_same_string() {
        for length in [0, 1, SHORT, SHORT + 1, 1000] {
            let bytes = vec![b'x'; length];
            let (made, kept) = (Str::from(&*bytes), Str::kept(bytes.clone()));
            assert_eq!(made, kept);
            assert_eq!(made.cmp(&kept), Ordering::Equal);
            assert_eq!(made.clone().len(), length);
            assert_eq!(*made, *bytes);
        }
    }

    #[test]
    fn a_short_string_makes_no_value_larger() {
        assert_eq!(size_of::<Value>(), 24);
    }
}
