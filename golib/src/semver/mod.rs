//! Versions and version constraints as Helm understands them.
//!
//! Mirrors Masterminds/semver 3.5.0: lenient and strict versions, the constraint grammar with its
//! wildcards, partial versions and hyphen ranges, and the texts of every message. Choosing a
//! version from an index or a tag list is left to callers.

mod constraint;
mod version;

pub use constraint::Constraint;
pub use version::Version;

/// Longest version text accepted, in bytes.
pub const MAX_VERSION_BYTES: usize = 256;
/// Longest constraint text accepted, in bytes.
pub const MAX_CONSTRAINT_BYTES: usize = 512;
/// Most `||` groups in one constraint.
pub const MAX_CONSTRAINT_GROUPS: usize = 32;

/// Why a text is no version or no constraint; prints in the words of the Go library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text has not the shape of a version.
    #[error("invalid semantic version")]
    Invalid,
    /// A strict version was asked of an empty text.
    #[error("version string empty")]
    Empty,
    /// Longer than [`MAX_VERSION_BYTES`].
    #[error("version string is too long (max {MAX_VERSION_BYTES} bytes)")]
    TooLong,
    /// A strict version has something other than digits between its dots.
    #[error("invalid characters in version")]
    InvalidCharacters,
    /// A number is written with leading zeros where that is not allowed.
    #[error("version segment starts with 0")]
    LeadingZero,
    /// The build metadata has an empty or illegal part.
    #[error("invalid metadata string")]
    InvalidMetadata,
    /// The pre-release has an empty or illegal part.
    #[error("invalid prerelease string")]
    InvalidPrerelease,
    /// A number of a lenient version does not fit 64 bits.
    #[error(
        "error parsing version segment: strconv.ParseUint: parsing \"{0}\": value out of range"
    )]
    SegmentRange(String),
    /// A number of a strict version does not fit 64 bits.
    #[error("strconv.ParseUint: parsing \"{0}\": value out of range")]
    NumberRange(String),
    /// A number of a strict version is missing.
    #[error("strconv.ParseUint: parsing \"\": invalid syntax")]
    NumberMissing,
    /// Longer than [`MAX_CONSTRAINT_BYTES`].
    #[error("constraint string is too long (max {MAX_CONSTRAINT_BYTES} bytes)")]
    ConstraintTooLong,
    /// More than [`MAX_CONSTRAINT_GROUPS`] alternatives.
    #[error("too many constraint groups (max {MAX_CONSTRAINT_GROUPS})")]
    TooManyGroups,
    /// One alternative of a constraint does not follow the grammar; it is named, quoted as Go quotes.
    #[error("improper constraint: {0}")]
    ImproperConstraint(String),
    /// A constraint follows the grammar but the version in it cannot be parsed.
    #[error("constraint parser error")]
    ConstraintVersion,
}
