//! How fast a download has to come that takes memory from others: a server that goes on for ever, a byte at a time, is not waited for.
//!
//! Generous: at this pace nothing above 640 KiB comes within the five minutes that a download has.

use std::time::Duration;

/// The least that comes of a download in so much time of waiting for it.
pub(super) const LEAST_BYTES: u64 = 64 << 10;
pub(super) const WITHIN: Duration = Duration::from_secs(30);

/// What has come since the last time that it was enough, and how long that was waited for. Waits for other things do not count.
#[derive(Debug, Default)]
pub(super) struct Pace {
    bytes: u64,
    waited: Duration,
}

impl Pace {
    /// Whether the server is to be given up, after so many bytes more that were waited for so long.
    pub(super) fn is_too_slow(&mut self, bytes: u64, waited: Duration) -> bool {
        self.bytes += bytes;
        self.waited += waited;
        if self.bytes >= LEAST_BYTES {
            *self = Self::default();
        }
        self.waited >= WITHIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_is_given_up_and_a_slow_link_is_not() {
        let second = Duration::from_secs(1);
        let mut trickle = Pace::default();
        let given_up = (1..1_000).find(|_| trickle.is_too_slow(1, second));
        assert_eq!(given_up, Some(30));
        let mut slow = Pace::default();
        assert!((1..1_000).all(|_| !slow.is_too_slow(2_300, second)));
        // A pause within the limit, and then all of it at once.
        let mut pauses = Pace::default();
        assert!((1..1_000).all(|_| !pauses.is_too_slow(LEAST_BYTES, 29 * second)));
    }
}
