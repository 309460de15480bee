//! What the scanner hands to the parser. Scalars are pieces of the text wherever nothing in them was escaped or folded.

use std::borrow::Cow;

/// A place in the text. Lines and columns count from zero, in characters.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Mark {
    pub(super) index: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind<'a> {
    StreamStart,
    StreamEnd,
    VersionDirective {
        major: u8,
        minor: u8,
    },
    TagDirective {
        handle: String,
        prefix: String,
    },
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(Cow<'a, str>),
    Anchor(Cow<'a, str>),
    Tag {
        handle: String,
        suffix: String,
    },
    Scalar {
        value: Cow<'a, str>,
        style: ScalarStyle,
    },
}

/// How a scalar is written in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScalarStyle {
    /// Without quotes: what it is depends on its text.
    #[default]
    Plain,
    /// `'…'`
    SingleQuoted,
    /// `"…"`
    DoubleQuoted,
    /// `|`
    Literal,
    /// `>`
    Folded,
}

#[derive(Debug, Clone)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) start: Mark,
}
