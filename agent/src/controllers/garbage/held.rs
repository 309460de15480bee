//! Which removals are held back: written down, so that what a person lets go later is what was held by then.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::ledger::Ledger;

/// Marks what is held back.
pub(super) struct Held {
    ledger: Arc<Ledger>,
    waiting: Mutex<BTreeSet<String>>,
    /// Held while marking: bundles that come meanwhile are marked together after it.
    marking: tokio::sync::Mutex<()>,
    /// When bundles were last held for being too many at once.
    last_wave: Mutex<Option<Instant>>,
    /// How long after that others count as gone with them.
    wave: Duration,
}

impl Held {
    pub(super) fn new(ledger: &Arc<Ledger>, wave: Duration) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            waiting: Mutex::default(),
            marking: tokio::sync::Mutex::default(),
            last_wave: Mutex::default(),
            wave,
        }
    }

    /// Too many bundles are gone at once: those that go next may have gone with them.
    pub(super) fn note_wave(&self) {
        *self.last_wave() = Some(Instant::now());
    }

    /// Whether what goes now goes with those that are held.
    pub(super) fn is_in_wave(&self) -> bool {
        let last = *self.last_wave();
        last.is_some_and(|last| last.elapsed() < self.wave)
    }

    fn last_wave(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.last_wave
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks bundles as held. A permission that was given before is not for them: it is taken in first. Gives the bundles that it is for.
    ///
    /// # Errors
    /// The ledger cannot be read or written; they are not marked.
    pub(super) async fn hold(&self, bundles: BTreeSet<String>) -> kube::Result<BTreeSet<String>> {
        self.waiting().extend(bundles.iter().cloned());
        let _marking = self.marking.lock().await;
        let batch = {
            let mut waiting = self.waiting();
            if waiting.is_disjoint(&bundles) {
                // They went with the batch before.
                return Ok(BTreeSet::new());
            }
            std::mem::take(&mut *waiting)
        };
        let marked = async {
            let released = self.ledger.take_permission().await?;
            self.ledger.hold(&batch).await?;
            Ok(released)
        };
        let result = marked.await;
        if result.is_err() {
            self.waiting().extend(batch);
        }
        result
    }

    /// How many bundles are about to be marked.
    pub(super) fn len(&self) -> usize {
        self.waiting().len()
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
