//! Whose turn it is to act on a release: within one process, one action after the other.
//!
//! Between processes the pending record is the lock; within one it would refuse where waiting is
//! right, as when one bundle lets go of a release that another one takes up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

/// Namespace and name of a release.
type Key = (String, String);

/// The releases that are being acted on.
#[derive(Debug, Default)]
pub(super) struct Turns {
    releases: Mutex<HashMap<Key, Weak<tokio::sync::Mutex<()>>>>,
}

/// Until it is dropped nobody else acts on the release.
#[derive(Debug)]
pub(crate) struct Turn {
    _guard: OwnedMutexGuard<()>,
}

impl Turns {
    /// Waits for its turn.
    pub(super) async fn take(&self, namespace: &str, name: &str) -> Turn {
        let turn = {
            let mut releases = self.releases.lock().unwrap_or_else(PoisonError::into_inner);
            releases.retain(|_, turn| turn.strong_count() > 0);
            let key = (namespace.to_owned(), name.to_owned());
            let known = releases.get(&key).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let turn = Arc::default();
                releases.insert(key, Arc::downgrade(&turn));
                turn
            })
        };
        Turn {
            _guard: turn.lock_owned().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_release_at_a_time() {
        let turns = Turns::default();
        let first = turns.take("n", "a").await;
        assert!(turns.take("n", "b").now_or_never().is_some());
        let mut second = Box::pin(turns.take("n", "a"));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        assert!(second.now_or_never().is_some());
        assert!(turns.take("n", "c").now_or_never().is_some());
        assert_eq!(turns.releases.lock().unwrap().len(), 1, "nothing piles up");
    }
}
