//! Runs recorded vectors.
fn main() {}
