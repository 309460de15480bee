//! Why a text is no glob.

/// Why a text is no glob; prints in the words of the Go library where it has some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A class is not closed.
    #[error("unexpected end of input")]
    UnexpectedEnd,
    /// More follows the range of a class, as in `[a-z0]`.
    #[error("expected close range character")]
    ExpectedClose,
    /// A class is empty.
    #[error("could not parse range")]
    EmptyClass,
    /// The ends of a range are in the wrong order.
    #[error("hi character '{high}' should be greater than lo '{low}'")]
    ReversedRange {
        /// The first character of the range.
        low: char,
        /// The last character of the range.
        high: char,
    },
    /// The pattern contains U+FFFD, which the Go library takes for a read error.
    #[error("could not read rune")]
    Unreadable,
    /// Larger or deeper than this library is willing to compile.
    #[error("pattern too large")]
    TooLarge,
}
