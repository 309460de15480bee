//! What upstream is asked for a credential: one registration at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

/// Whose turn it is to register. Fleet's controller deletes the older ClusterRegistrations of a cluster, and what it granted them, when it grants
/// another one: two under way at once, or one that is abandoned, may take away the credential that is kept.
/// Cheap to clone, all clones share.
#[derive(Clone, Default)]
pub struct Turns(Arc<Mutex<Turn>>);

/// What there is to know for who has it.
#[derive(Default)]
pub(super) struct Turn {
    sent: Option<Sent>,
    /// When a registration that came to nothing may be followed by another one.
    due: Option<Instant>,
}

/// A ClusterRegistration that upstream has accepted. Who was dropped while it waited leaves it to the next.
#[derive(Clone)]
pub(super) struct Sent {
    /// Of the bootstrap Secret that it was sent with.
    pub(super) origin: String,
    pub(super) client_id: String,
    /// The Secret that answers it.
    pub(super) answer: String,
    /// How long that is waited for.
    pub(super) until: Instant,
}

impl Turns {
    /// The turn, once nobody has it; nothing after `longest`.
    ///
    /// # Cancellation
    /// Safe: the turn goes to the next.
    pub(super) async fn next(&self, longest: Duration) -> Option<MutexGuard<'_, Turn>> {
        tokio::time::timeout(longest, self.0.lock()).await.ok()
    }

    /// Whether a registration is, or was left, under way.
    pub(super) fn is_under_way(&self) -> bool {
        let is_waited_for = |turn: MutexGuard<'_, Turn>| {
            let sent = turn.sent.as_ref();
            sent.is_some_and(|sent| Instant::now() < sent.until)
        };
        self.0.try_lock().map_or(true, is_waited_for)
    }
}

impl Turn {
    /// What was sent with the same Secret and may still be answered.
    pub(super) fn sent(&self, origin: &str, client_id: &str) -> Option<Sent> {
        let is_same = |sent: &&Sent| sent.origin == origin && sent.client_id == client_id;
        let sent = self.sent.as_ref().filter(is_same);
        sent.filter(|sent| Instant::now() < sent.until).cloned()
    }

    pub(super) async fn until_due(&self) {
        if let Some(due) = self.due {
            tokio::time::sleep_until(due).await;
        }
    }

    pub(super) fn sends(&mut self, sent: Sent) {
        self.sent = Some(sent);
    }

    /// What was sent is answered, and the answer stored.
    pub(super) fn succeeds(&mut self) {
        *self = Self::default();
    }

    /// Nobody waits for what was sent any more.
    pub(super) fn abandons(&mut self) {
        self.sent = None;
    }

    /// What was sent came to nothing: no other one follows before that pause.
    pub(super) fn fails(&mut self, pause: Duration) {
        (self.sent, self.due) = (None, Some(Instant::now() + pause));
    }
}
