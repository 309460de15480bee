//! The release lock: within one process, one action on a release after the other.
//!
//! Between processes the pending record is the lock. Within one it would refuse an action where
//! waiting is right: one bundle removes a release that another one is about to deploy.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// Namespace and name of a release.
type Key = (String, String);

/// The locks of the releases that are being acted on.
#[derive(Debug, Default)]
pub(super) struct ReleaseLocks {
    releases: Mutex<HashMap<Key, Weak<tokio::sync::Mutex<()>>>>,
}

/// Holds the lock of a release until it is dropped.
#[derive(Debug)]
pub(crate) struct ReleaseLock {
    _guard: OwnedMutexGuard<()>,
}

impl ReleaseLocks {
    /// Waits for the lock of a release.
    pub(super) async fn lock(&self, namespace: &str, name: &str) -> ReleaseLock {
        let lock = self.of(namespace, name);
        ReleaseLock {
            _guard: lock.lock_owned().await,
        }
    }

    /// The lock of a release, where nobody holds it.
    pub(super) fn try_lock(&self, namespace: &str, name: &str) -> Option<ReleaseLock> {
        let locked = self.of(namespace, name).try_lock_owned();
        locked.ok().map(|_guard| ReleaseLock { _guard })
    }

    fn of(&self, namespace: &str, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut releases = self.releases.lock();
        releases.retain(|_, lock| lock.strong_count() > 0);
        let key = (namespace.to_owned(), name.to_owned());
        let known = releases.get(&key).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let lock = Arc::default();
            releases.insert(key, Arc::downgrade(&lock));
            lock
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_release_is_locked_alone() {
        let locks = ReleaseLocks::default();
        let first = locks.lock("n", "a").await;
        assert!(locks.lock("n", "b").now_or_never().is_some());
        assert!(locks.try_lock("n", "b").is_some());
        assert!(locks.try_lock("n", "a").is_none());
        let mut second = Box::pin(locks.lock("n", "a"));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        assert!(second.now_or_never().is_some());
        assert!(locks.lock("n", "c").now_or_never().is_some());
        assert_eq!(locks.releases.lock().len(), 1, "nothing piles up");
    }
}
