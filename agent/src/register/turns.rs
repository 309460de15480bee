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
    /// When a registration that was refused or came to nothing may be followed by another one.
    due: Option<Instant>,
    /// Requests in a row that upstream did not accept.
    failures: u32,
}

/// A ClusterRegistration that upstream has, or may have: the answer to the request may be lost. Who was dropped meanwhile leaves it to the next.
#[derive(Clone)]
pub(super) struct Sent {
    /// Of the bootstrap Secret that it was sent with.
    pub(super) origin: String,
    pub(super) client_id: String,
    pub(super) client_random: String,
    /// What it is called: sent once more it is the same one.
    pub(super) name: String,
    /// Whether upstream said that it has it.
    pub(super) is_accepted: bool,
    /// How long the Secret that answers it is waited for: counted from when upstream said that it made it, or else from when it was first sent.
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

    /// How long nothing is to be sent.
    pub(super) fn pause(&self) -> Duration {
        let now = Instant::now();
        self.due
            .map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }

    /// How many requests in a row were not accepted.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// What upstream may have from now on; nothing where it refused what alone was sent.
    pub(super) fn sends(&mut self, sent: Option<Sent>) {
        self.sent = sent;
    }

    /// Upstream says that it has it.
    pub(super) fn arrives(&mut self, sent: &Sent) {
        (self.due, self.failures) = (None, 0);
        self.sent = Some(Sent {
            is_accepted: true,
            ..sent.clone()
        });
    }

    /// Upstream did not say so: nobody sends anything before that pause.
    pub(super) fn waits(&mut self, pause: Duration) {
        self.due = Some(Instant::now() + pause);
        self.failures = self.failures.saturating_add(1);
    }

    /// What was sent is answered, and the answer stored.
    pub(super) fn succeeds(&mut self) {
        *self = Self::default();
    }

    /// Nobody waits for what was sent any more.
    pub(super) fn abandons(&mut self) {
        self.sent = None;
    }

    /// What upstream had came to nothing: no other one follows before that pause.
    pub(super) fn fails(&mut self, pause: Duration) {
        (self.sent, self.due) = (None, Some(Instant::now() + pause));
    }
}
