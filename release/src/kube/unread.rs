//! Since when nobody can read objects of a release: the webhook that converts them fails, its account may not, or their kind is not served.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use objects::Resource;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::ownership::Owner;

/// How long each try to read them must have failed, and how often, before nobody waits for that any more.
const GONE_AFTER: Duration = Duration::from_secs(5 * 60);
const GONE_TRIES: u32 = 3;

/// What was tried so long ago says nothing of now: several of the longest pauses between two tries.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(20 * 60);

/// Kinds of which a release's objects could not be read when they were last tried; in each version alone, as one that is stored needs no webhook. By the
/// clock of this process, which no record and no jump of the time of day can set: after a restart it takes as long again. For each release alone, as what
/// another one has found may be of another hour, or account. With `K = ()` there is one clock for each release, whatever of it
/// cannot be read.
#[derive(Debug)]
pub(super) struct Unread<K = Resource>(Mutex<HashMap<(Owner, K), Failing>>);

impl<K> Default for Unread<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    last: Instant,
    tries: u32,
}

impl<K: Clone + Eq + Hash> Unread<K> {
    /// Takes note of a try to read a release's objects of a kind: whether that failed for any.
    pub(super) fn note(&self, owner: &Owner, kind: &K, has_failed: bool) {
        let (mut all, now) = (self.0.lock(), Instant::now());
        let key = (owner.clone(), kind.clone());
        all.retain(|_, failing| failing.last.elapsed() < FORGOTTEN_AFTER);
        if !has_failed {
            all.remove(&key);
            return;
        }
        let failing = all.entry(key).or_insert(Failing {
            since: now,
            last: now,
            tries: 0,
        });
        failing.last = now;
        failing.tries += 1;
    }

    /// Forgets what was noted of a release.
    pub(super) fn forget(&self, owner: &Owner) {
        self.0.lock().retain(|(of, _), _| of != owner);
    }

    /// Whether nobody waits any more until a release's objects of a kind can be read.
    pub(super) fn is_lasting(&self, owner: &Owner, kind: &K) -> bool {
        let all = self.0.lock();
        all.get(&(owner.clone(), kind.clone()))
            .is_some_and(|failing| {
                failing.tries >= GONE_TRIES && failing.since.elapsed() >= GONE_AFTER
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_once_each_try_of_a_release_has_failed_for_five_minutes() {
        let (tries, minute) = (Unread::<Resource>::default(), Duration::from_secs(60));
        let kind = |name: &str, version: &str| Resource {
            group: "x.io".to_owned(),
            version: version.to_owned(),
            kind: name.to_owned(),
            plural: name.to_lowercase() + "s",
            namespaced: true,
        };
        let (web, api) = (Owner::new("web", "apps"), Owner::new("api", "apps"));
        let (cars, boats) = (kind("Car", "v2"), kind("Boat", "v1"));
        let lasts_after = async |pauses: &[Duration]| {
            tries.note(&web, &cars, true);
            for pause in pauses {
                tokio::time::advance(*pause).await;
                tries.note(&web, &cars, true);
                // Neither says anything of it.
                tries.note(&web, &kind("Car", "v1"), false);
                tries.note(&api, &cars, false);
            }
            tries.is_lasting(&web, &cars)
        };
        assert!(!lasts_after(&[minute, minute, minute]).await);
        assert!(lasts_after(&[2 * minute]).await);
        // Its own first failure says as little as any.
        tries.note(&api, &cars, true);
        assert!(!tries.is_lasting(&api, &cars));
        tries.note(&web, &cars, false);
        // Two tries say little, however far apart.
        assert!(!lasts_after(&[15 * minute]).await);
        tokio::time::advance(FORGOTTEN_AFTER).await;
        assert!(!lasts_after(&[minute, minute]).await);
        assert!(!tries.is_lasting(&web, &boats));
        tokio::time::advance(FORGOTTEN_AFTER).await;
        tries.note(&web, &boats, false);
        assert!(tries.0.lock().is_empty());
    }
}
