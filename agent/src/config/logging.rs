//! What to log and how.

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoder {
    /// One JSON object per line.
    Json,
    /// Text.
    Console,
}

/// What to log and how.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    pub level: ::logging::Level,
    pub encoder: Encoder,
}
