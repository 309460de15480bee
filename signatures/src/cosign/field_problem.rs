//! Keys and identities that cannot be used.

/// A field of a policy, and what is wrong with it.
pub(crate) type FieldProblem = (&'static str, String);
