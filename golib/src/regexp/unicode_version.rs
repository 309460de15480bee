//! The version of Unicode that Go knows.

/// Put into a class of characters it leaves those that Unicode 15.0 knows: Go 1.26 has no later one.
pub(super) const KNOWN: &str = r"&&\p{age=15.0}";
