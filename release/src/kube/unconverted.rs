//! Since when nobody can read objects of a definition, as the webhook that converts them fails.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long each try to read them must have failed, and how often, before the webhook counts as gone for good.
const GONE_AFTER: Duration = Duration::from_secs(5 * 60);
const GONE_TRIES: u32 = 3;

/// What was tried so long ago says nothing of now.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// Definitions, by name, whose objects could not be read when they were last tried. By the clock of this process, which no record and no jump of the time
/// of day can set: after a restart it takes as long again.
#[derive(Debug, Default)]
pub(super) struct Unconverted(Mutex<BTreeMap<String, Failing>>);

#[derive(Debug)]
struct Failing {
    since: Instant,
    last: Instant,
    tries: u32,
}

impl Unconverted {
    /// Takes note of a try to read objects of a definition: whether its webhook failed for any.
    pub(super) fn note(&self, definition: &str, has_failed: bool) {
        let (mut all, now) = (self.0.lock(), Instant::now());
        all.retain(|_, failing| failing.last.elapsed() < FORGOTTEN_AFTER);
        if !has_failed {
            all.remove(definition);
            return;
        }
        let failing = all.entry(definition.to_owned()).or_insert(Failing {
            since: now,
            last: now,
            tries: 0,
        });
        failing.last = now;
        failing.tries += 1;
    }

    /// Whether the webhook of a definition counts as gone for good.
    pub(super) fn is_lasting(&self, definition: &str) -> bool {
        let all = self.0.lock();
        all.get(definition).is_some_and(|failing| {
            failing.tries >= GONE_TRIES && failing.since.elapsed() >= GONE_AFTER
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_webhook_is_gone_once_each_try_has_failed_for_five_minutes() {
        let (tries, minute) = (Unconverted::default(), Duration::from_secs(60));
        let lasts_after = async |pauses: &[Duration]| {
            tries.note("cars.x.io", true);
            for pause in pauses {
                tokio::time::advance(*pause).await;
                tries.note("cars.x.io", true);
            }
            tries.is_lasting("cars.x.io")
        };
        assert!(!lasts_after(&[minute, minute, minute]).await);
        assert!(lasts_after(&[2 * minute]).await);
        tries.note("cars.x.io", false);
        // Two tries say little, however far apart.
        assert!(!lasts_after(&[30 * minute]).await);
        tokio::time::advance(FORGOTTEN_AFTER).await;
        assert!(!lasts_after(&[minute, minute]).await);
        assert!(!tries.is_lasting("boats.x.io"));
        tokio::time::advance(FORGOTTEN_AFTER).await;
        tries.note("boats.x.io", false);
        assert!(tries.0.lock().is_empty());
    }
}
