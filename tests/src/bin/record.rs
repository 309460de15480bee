//! `record AUDIT_LOG…`: prints what API servers were asked and answered, for `tests/fixtures/recordings`. `make record` runs it.
#![expect(clippy::print_stdout, reason = "the recording is for a file")]

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    for path in std::env::args().skip(1) {
        let log = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        print!("{}", testbed::recording::of_audit_log(&log)?);
    }
    Ok(())
}
