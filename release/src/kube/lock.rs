//! Locks within one process: one action on a release after the other, and one run of a hook.
//!
//! Between processes the pending record is the lock of a release. Within one it would refuse an action where
//! waiting is right: one bundle removes a release that another one is about to deploy.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// The locks of what is being acted on.
#[derive(Debug)]
pub(super) struct Locks<K> {
    held: Mutex<HashMap<K, Weak<tokio::sync::Mutex<()>>>>,
}

impl<K> Default for Locks<K> {
    fn default() -> Self {
        Self {
            held: Mutex::default(),
        }
    }
}

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    guard: OwnedMutexGuard<()>,
}

impl Lock {
    /// Whether somebody waits for it.
    pub(crate) fn has_waiters(&self) -> bool {
        Arc::strong_count(OwnedMutexGuard::mutex(&self.guard)) > 1
    }
}

impl<K: Clone + Eq + Hash> Locks<K> {
    /// Waits for a lock.
    pub(super) async fn lock(&self, key: &K) -> Lock {
        let lock = self.of(key);
        Lock {
            guard: lock.lock_owned().await,
        }
    }

    /// Waits for several. None is held while another one is waited for: whoever names an object of somebody else's beside a busy one of his own keeps
    /// nobody from it by that, and no two wait for each other.
    pub(super) async fn lock_all(&self, keys: &BTreeSet<K>) -> Vec<Lock> {
        let mut awaited: Option<(&K, Lock)> = None;
        loop {
            let others = keys
                .iter()
                .filter(|key| awaited.as_ref().is_none_or(|(known, _)| known != key));
            let (mut locks, mut busy) = (Vec::new(), None);
            for key in others {
                let Some(lock) = self.try_lock(key) else {
                    busy = Some(key);
                    break;
                };
                locks.push(lock);
            }
            let Some(key) = busy else {
                locks.extend(awaited.map(|(_, lock)| lock));
                return locks;
            };
            drop((locks, awaited.take()));
            awaited = Some((key, self.lock(key).await));
        }
    }

    /// A lock that nobody holds.
    pub(super) fn try_lock(&self, key: &K) -> Option<Lock> {
        let locked = self.of(key).try_lock_owned();
        locked.ok().map(|guard| Lock { guard })
    }

    fn of(&self, key: &K) -> Arc<tokio::sync::Mutex<()>> {
        let mut held = self.held.lock();
        held.retain(|_, lock| lock.strong_count() > 0);
        let known = held.get(key).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let lock = Arc::default();
            held.insert(key.clone(), Arc::downgrade(&lock));
            lock
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_lock_holds_up_only_its_own_key() {
        let locks = Locks::default();
        let first = locks.lock(&"a").await;
        assert!(locks.lock(&"b").now_or_never().is_some());
        assert!(locks.try_lock(&"b").is_some());
        assert!(locks.try_lock(&"a").is_none());
        assert!(!first.has_waiters());
        let mut second = Box::pin(locks.lock(&"a"));
        assert!((&mut second).now_or_never().is_none());
        assert!(first.has_waiters());
        drop(first);
        assert!(second.now_or_never().is_some());
        assert!(locks.lock(&"c").now_or_never().is_some());
        assert_eq!(locks.held.lock().len(), 1, "nothing piles up");
    }

    /// A tenant may name what is another one's beside what he keeps busy himself.
    #[tokio::test]
    async fn waiting_for_one_of_several_locks_holds_none_of_the_others() {
        let locks = Locks::default();
        let held = locks.lock(&"b").await;
        let all = BTreeSet::from(["a", "b", "c"]);
        let mut waiting = Box::pin(locks.lock_all(&all));
        assert!((&mut waiting).now_or_never().is_none());
        let others = ["a", "c"].map(|key| locks.try_lock(&key).unwrap());
        drop(held);
        assert!(
            (&mut waiting).now_or_never().is_none(),
            "the others are held"
        );
        assert!(locks.try_lock(&"b").is_some());
        drop(others);
        assert_eq!(waiting.now_or_never().map(|all| all.len()), Some(3));
        assert!(
            locks
                .held
                .lock()
                .values()
                .all(|lock| lock.strong_count() == 0)
        );
    }
}
