//! How often an object that is written all the time is looked at, and the pauses in between.

use std::time::Duration;

/// How often an object that is written all the time is read before it is deleted or written, and the pauses between tries: some ten
/// seconds in all.
pub(super) const MAX_TRIES: u32 = 20;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// The pause after so many tries.
pub(super) fn pause(tries: u32) -> Duration {
    let grown = FIRST_PAUSE * 2_u32.saturating_pow(tries.min(10) - 1);
    grown.min(LONGEST_PAUSE)
}
