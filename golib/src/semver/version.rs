//! One version: parsing, printing, order.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use super::{Error, MAX_VERSION_BYTES};

/// A semantic version, with the text it was read from.
///
/// Equality, order and hash ignore the build metadata and the original text, as precedence does
/// in semver 2: `v1.2` equals `1.2.0+build`. The default is Go's zero value, 0.0.0 read from nothing.
#[derive(Debug, Clone, Default)]
pub struct Version {
    major: u64,
    minor: u64,
    patch: u64,
    prerelease: String,
    metadata: String,
    original: String,
}

impl Version {
    /// Reads a version leniently: an optional `v`, one to three numbers (missing ones are 0,
    /// leading zeros are fine), an optional pre-release and build metadata.
    ///
    /// ```
    /// use golib::semver::Version;
    ///
    /// let version = Version::parse("v1.2-rc.1+build")?;
    /// assert_eq!(version.to_string(), "1.2.0-rc.1+build");
    /// assert_eq!(version.original(), "v1.2-rc.1+build");
    /// assert!(version < Version::parse("1.2")?);
    /// # Ok::<(), golib::semver::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the text has another shape, is too long, or a number or part is out of bounds.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, Error> {
        let bytes = text.as_ref();
        if bytes.len() > MAX_VERSION_BYTES {
            return Err(Error::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Error::Invalid)?;
        let shape = Shape::read(text).ok_or(Error::Invalid)?;
        let number = |digits: &str| match digits {
            "" => Ok(0),
            digits => digits
                .parse()
                .map_err(|_| Error::SegmentRange(digits.to_owned())),
        };
        let version = Self {
            major: number(shape.numbers[0])?,
            minor: number(shape.numbers[1])?,
            patch: number(shape.numbers[2])?,
            prerelease: shape.prerelease.to_owned(),
            metadata: shape.metadata.to_owned(),
            original: text.to_owned(),
        };
        if !version.prerelease.is_empty() {
            validate_prerelease(&version.prerelease)?;
        }
        if !version.metadata.is_empty() {
            validate_metadata(&version.metadata)?;
        }
        Ok(version)
    }

    /// Reads a version that must be written out in full: `1.2.3`, no `v`, no leading zeros.
    ///
    /// ```
    /// use golib::semver::{Error, Version};
    ///
    /// assert!(Version::parse_strict("1.2.3").is_ok());
    /// assert_eq!(Version::parse_strict("1.02.3"), Err(Error::LeadingZero));
    /// ```
    ///
    /// # Errors
    /// When the text is anything else.
    pub fn parse_strict(text: impl AsRef<[u8]>) -> Result<Self, Error> {
        let bytes = text.as_ref();
        if bytes.is_empty() {
            return Err(Error::Empty);
        }
        if bytes.len() > MAX_VERSION_BYTES {
            return Err(Error::TooLong);
        }
        let lossy = String::from_utf8_lossy(bytes);
        let text = lossy.as_ref();
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(Error::Invalid);
        };
        let (rest, metadata) = match rest.split_once('+') {
            Some((rest, metadata)) => {
                validate_metadata(metadata)?;
                (rest, metadata)
            }
            None => (rest, ""),
        };
        let (patch, prerelease) = match rest.split_once('-') {
            Some((patch, prerelease)) => {
                validate_prerelease(prerelease)?;
                (patch, prerelease)
            }
            None => (rest, ""),
        };
        for part in [major, minor, patch] {
            if !is_numeric(part) {
                return Err(Error::InvalidCharacters);
            }
            if part.len() > 1 && part.starts_with('0') {
                return Err(Error::LeadingZero);
            }
        }
        let number = |digits: &str| match digits {
            "" => Err(Error::NumberMissing),
            digits => digits
                .parse()
                .map_err(|_| Error::NumberRange(digits.to_owned())),
        };
        Ok(Self {
            major: number(major)?,
            minor: number(minor)?,
            patch: number(patch)?,
            prerelease: prerelease.to_owned(),
            metadata: metadata.to_owned(),
            original: text.to_owned(),
        })
    }

    /// The first number.
    pub fn major(&self) -> u64 {
        self.major
    }

    /// The second number.
    pub fn minor(&self) -> u64 {
        self.minor
    }

    /// The third number.
    pub fn patch(&self) -> u64 {
        self.patch
    }

    /// The pre-release without its dash; empty for a release.
    pub fn prerelease(&self) -> &str {
        &self.prerelease
    }

    /// The build metadata without its plus sign; empty if there is none.
    pub fn metadata(&self) -> &str {
        &self.metadata
    }

    /// The text this version was read from; [`Display`](fmt::Display) prints the normalised form.
    pub fn original(&self) -> &str {
        &self.original
    }

    /// The version without its pre-release and metadata, as Go's `IncPatch` and its siblings
    /// build theirs: the original keeps a leading `v`.
    fn with_numbers(&self, major: u64, minor: u64, patch: u64) -> Self {
        self.renamed(Self {
            major,
            minor,
            patch,
            prerelease: String::new(),
            metadata: String::new(),
            original: String::new(),
        })
    }

    fn renamed(&self, mut next: Self) -> Self {
        let prefix = if self.original.starts_with('v') {
            "v"
        } else {
            ""
        };
        next.original = format!("{prefix}{next}");
        next
    }

    /// The next patch version: a pre-release becomes its release, anything else counts up.
    /// `None` where the number would overflow.
    pub fn inc_patch(&self) -> Option<Self> {
        let patch = if self.prerelease.is_empty() {
            self.patch.checked_add(1)?
        } else {
            self.patch
        };
        Some(self.with_numbers(self.major, self.minor, patch))
    }

    /// The next minor version; `None` where the number would overflow.
    pub fn inc_minor(&self) -> Option<Self> {
        Some(self.with_numbers(self.major, self.minor.checked_add(1)?, 0))
    }

    /// The next major version; `None` where the number would overflow.
    pub fn inc_major(&self) -> Option<Self> {
        Some(self.with_numbers(self.major.checked_add(1)?, 0, 0))
    }

    /// The same version with another pre-release (empty: none).
    ///
    /// # Errors
    /// When the text is no pre-release.
    pub fn with_prerelease(&self, prerelease: &str) -> Result<Self, Error> {
        if !prerelease.is_empty() {
            validate_prerelease(prerelease)?;
        }
        let prerelease = prerelease.to_owned();
        Ok(self.renamed(Self {
            prerelease,
            ..self.clone()
        }))
    }

    /// The same version with other build metadata (empty: none).
    ///
    /// # Errors
    /// When the text is no metadata.
    pub fn with_metadata(&self, metadata: &str) -> Result<Self, Error> {
        if !metadata.is_empty() {
            validate_metadata(metadata)?;
        }
        let metadata = metadata.to_owned();
        Ok(self.renamed(Self {
            metadata,
            ..self.clone()
        }))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.prerelease.is_empty() {
            write!(f, "-{}", self.prerelease)?;
        }
        if !self.metadata.is_empty() {
            write!(f, "+{}", self.metadata)?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |v: &Self| (v.major, v.minor, v.patch);
        numbers(self).cmp(&numbers(other)).then_with(|| {
            match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => compare_prerelease(&self.prerelease, &other.prerelease),
            }
        })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl Hash for Version {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.major, self.minor, self.patch, &self.prerelease).hash(state);
    }
}

/// Pre-releases part by part; a missing part comes first.
pub(super) fn compare_prerelease(a: &str, b: &str) -> Ordering {
    let mut left = a.split('.');
    let mut right = b.split('.');
    loop {
        let (x, y) = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (x, y) => (x.unwrap_or(""), y.unwrap_or("")),
        };
        match compare_part(x, y) {
            Ordering::Equal => {}
            other => return other,
        }
    }
}

/// Numbers before words. A number beyond 64 bits counts as a word, as in the Go library.
fn compare_part(a: &str, b: &str) -> Ordering {
    if a == b || a.is_empty() || b.is_empty() {
        return a.len().cmp(&b.len());
    }
    match (a.parse::<u64>(), b.parse::<u64>()) {
        // Parts that differ as text are never equal to Go, so neither is Equal here.
        (Ok(x), Ok(y)) => x.cmp(&y).then(Ordering::Less),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

/// The pieces of a text that looks like a version, before any of them is judged.
struct Shape<'a> {
    numbers: [&'a str; 3],
    prerelease: &'a str,
    metadata: &'a str,
}

impl<'a> Shape<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, metadata) = match text.split_once('+') {
            Some((text, metadata)) => (text, dotted(metadata)?),
            None => (text, ""),
        };
        let (text, prerelease) = match text.split_once('-') {
            Some((text, prerelease)) => (text, dotted(prerelease)?),
            None => (text, ""),
        };
        let mut numbers = [""; 3];
        for (index, part) in text.split('.').enumerate() {
            if part.is_empty() || !is_numeric(part) {
                return None;
            }
            *numbers.get_mut(index)? = part;
        }
        Some(Self {
            numbers,
            prerelease,
            metadata,
        })
    }
}

/// Dot-separated parts, each of at least one letter, digit or dash.
fn dotted(text: &str) -> Option<&str> {
    text.split('.')
        .all(|part| !part.is_empty() && is_identifier(part))
        .then_some(text)
}

fn is_numeric(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

fn is_identifier(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn validate_prerelease(text: &str) -> Result<(), Error> {
    for part in text.split('.') {
        if part.is_empty() {
            return Err(Error::InvalidPrerelease);
        }
        if is_numeric(part) {
            if part.len() > 1 && part.starts_with('0') {
                return Err(Error::LeadingZero);
            }
        } else if !is_identifier(part) {
            return Err(Error::InvalidPrerelease);
        }
    }
    Ok(())
}

fn validate_metadata(text: &str) -> Result<(), Error> {
    let valid = text
        .split('.')
        .all(|part| !part.is_empty() && is_identifier(part));
    if valid {
        Ok(())
    } else {
        Err(Error::InvalidMetadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lenient_versions_fill_in_zeros_and_keep_their_text() {
        let version = Version::parse("v01.2-rc.1+b7").expect("a version");
        assert_eq!(version.to_string(), "1.2.0-rc.1+b7");
        assert_eq!(version.original(), "v01.2-rc.1+b7");
        for bad in [
            "", "V1.2.3", " 1.2.3", "1.2.3.4", "1.2.3-", "1.2.3+", "1..2", "latest",
        ] {
            assert_eq!(Version::parse(bad).expect_err(bad), Error::Invalid);
        }
        assert_eq!(
            Version::parse("1.2.3-01").expect_err("leading zero"),
            Error::LeadingZero
        );
        assert_eq!(
            Version::parse([b'1', 0xff]).expect_err("bytes"),
            Error::Invalid
        );
    }

    #[test]
    fn order_follows_semver_two() {
        let texts = [
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.1",
            "1.1",
        ];
        let versions: Vec<_> = texts
            .iter()
            .map(|t| Version::parse(t).expect("valid"))
            .collect();
        assert!(versions.is_sorted_by(|a, b| a < b));
        assert_eq!(
            Version::parse("1.2+a").expect("valid"),
            Version::parse("v1.2.0").expect("valid")
        );
    }
}
