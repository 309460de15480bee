//! Limits on published texts and on secrets.

/// So much of an error is told at most, in bytes: more than a condition takes. What comes after it is cut before it is redacted.
pub const MAX_TEXT_BYTES: usize = 32 << 10;

/// Shorter texts are no secrets but words, and redacting them would spoil every message.
pub const SHORTEST: usize = 6;
