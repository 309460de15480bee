//! Since when nobody can read objects of a kind in a version, as the webhook that converts them fails.

use std::collections::HashMap;
use std::time::Duration;

use objects::Resource;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long each try to read them must have failed, and how often, before the webhook counts as gone for good.
const GONE_AFTER: Duration = Duration::from_secs(5 * 60);
const GONE_TRIES: u32 = 3;

/// What was tried so long ago says nothing of now.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// Kinds whose objects could not be read when they were last tried; in each version alone, as one that is stored needs no webhook. By the clock of this
/// process, which no record and no jump of the time of day can set: after a restart it takes as long again.
#[derive(Debug, Default)]
pub(super) struct Unconverted(Mutex<HashMap<Resource, Failing>>);

#[derive(Debug)]
struct Failing {
    since: Instant,
    last: Instant,
    tries: u32,
}

impl Unconverted {
    /// Takes note of a try to read objects of a kind: whether its webhook failed for any.
    pub(super) fn note(&self, kind: &Resource, has_failed: bool) {
        let (mut all, now) = (self.0.lock(), Instant::now());
        all.retain(|_, failing| failing.last.elapsed() < FORGOTTEN_AFTER);
        if !has_failed {
            all.remove(kind);
            return;
        }
        let failing = all.entry(kind.clone()).or_insert(Failing {
            since: now,
            last: now,
            tries: 0,
        });
        failing.last = now;
        failing.tries += 1;
    }

    /// Whether the webhook that converts a kind counts as gone for good.
    pub(super) fn is_lasting(&self, kind: &Resource) -> bool {
        let all = self.0.lock();
        all.get(kind).is_some_and(|failing| {
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
        let kind = |name: &str, version: &str| Resource {
            group: "x.io".to_owned(),
            version: version.to_owned(),
            kind: name.to_owned(),
            plural: name.to_lowercase() + "s",
            namespaced: true,
        };
        let (cars, boats) = (kind("Car", "v2"), kind("Boat", "v1"));
        let lasts_after = async |pauses: &[Duration]| {
            tries.note(&cars, true);
            for pause in pauses {
                tokio::time::advance(*pause).await;
                tries.note(&cars, true);
                tries.note(&kind("Car", "v1"), false);
            }
            tries.is_lasting(&cars)
        };
        assert!(!lasts_after(&[minute, minute, minute]).await);
        assert!(lasts_after(&[2 * minute]).await);
        tries.note(&cars, false);
        // Two tries say little, however far apart.
        assert!(!lasts_after(&[30 * minute]).await);
        tokio::time::advance(FORGOTTEN_AFTER).await;
        assert!(!lasts_after(&[minute, minute]).await);
        assert!(!tries.is_lasting(&boats));
        tokio::time::advance(FORGOTTEN_AFTER).await;
        tries.note(&boats, false);
        assert!(tries.0.lock().is_empty());
    }
}
