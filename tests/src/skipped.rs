//! What a test does not check because something is not there: said where people and CI see it.

use std::io::Write as _;

/// Says that something was not tested.
///
/// On standard error itself: what a test prints by `eprintln!` is kept back by its harness where the test passes, and this one does.
pub fn tell(what: &str) {
    writeln!(std::io::stderr(), "SKIPPED: {what}").ok();
}
