//! The `fleetagent` binary.
fn main() {}
