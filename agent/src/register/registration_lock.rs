//! The lock of registrations: upstream is asked for a credential by one at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::credential::Credential;

/// For how long Fleet's controller keeps the Secret that answers a registration.
const ANSWER_KEPT: Duration = Duration::from_secs(40 * 60);

/// Held while one registers: one at a time. Fleet's controller deletes the older ClusterRegistrations of a cluster, and what it granted them, when it grants
/// another one: two under way at once, or one that is abandoned, may take away the credential that is kept.
/// Cheap to clone, all clones share.
#[derive(Clone, Default)]
pub struct RegistrationLock(Arc<Mutex<RegistrationState>>);

/// State of the registration under way, for the holder of the lock.
#[derive(Default)]
pub(super) struct RegistrationState {
    sent: Option<Sent>,
    due: Option<Due>,
}

/// When a registration that was refused or came to nothing may be followed by another one. What another server would say to one is not known.
struct Due {
    server: String,
    at: Instant,
    /// Requests in a row that it did not accept.
    failures: u32,
}

/// A ClusterRegistration that upstream has, or may have: the answer to the request may be lost. Who was dropped meanwhile leaves it to the next.
#[derive(Clone)]
pub(super) struct Sent {
    /// Of the bootstrap Secret that it was sent with.
    pub(super) digest: String,
    pub(super) client_id: String,
    pub(super) client_random: String,
    /// Name of the ClusterRegistration: sent once more it is the same one.
    pub(super) name: String,
    /// Whether upstream said that it has it.
    pub(super) is_accepted: bool,
    /// When upstream said that it made it, or else when it was first sent.
    pub(super) since: Instant,
    /// How long the Secret that answers it is waited for.
    pub(super) until: Instant,
    /// The credential that upstream granted, which is good however long upstream keeps the Secret.
    pub(super) granted: Option<Credential>,
}

impl Sent {
    /// Upstream does not say what has become of it: it is waited for as long as its answer may be there.
    pub(super) fn waits_longer(&mut self) {
        self.until = self.until.max(self.since + ANSWER_KEPT);
    }
}

impl RegistrationLock {
    /// The lock, once nobody has it; nothing after `longest`.
    ///
    /// # Cancellation
    /// Safe: the lock goes to the next.
    pub(super) async fn next(
        &self,
        longest: Duration,
    ) -> Option<MutexGuard<'_, RegistrationState>> {
        tokio::time::timeout(longest, self.0.lock()).await.ok()
    }

    /// Whether a registration is, or was left, under way.
    pub(super) fn is_under_way(&self) -> bool {
        let is_waited_for = |registration: MutexGuard<'_, RegistrationState>| {
            let sent = registration.sent.as_ref();
            sent.is_some_and(|sent| Instant::now() < sent.until)
        };
        self.0.try_lock().map_or(true, is_waited_for)
    }
}

impl RegistrationState {
    /// The request sent with the same Secret that may still be answered.
    pub(super) fn sent(&self, digest: &str, client_id: &str) -> Option<Sent> {
        let is_same = |sent: &&Sent| sent.digest == digest && sent.client_id == client_id;
        let sent = self.sent.as_ref().filter(is_same);
        let may_be_answered = |sent: &&Sent| sent.granted.is_some() || Instant::now() < sent.until;
        sent.filter(may_be_answered).cloned()
    }

    fn due(&self, server: &str) -> Option<&Due> {
        self.due.as_ref().filter(|due| due.server == server)
    }

    /// How long nothing is to be sent to a server.
    pub(super) fn pause(&self, server: &str) -> Duration {
        let now = Instant::now();
        let due = self.due(server);
        due.map_or(Duration::ZERO, |due| due.at.saturating_duration_since(now))
    }

    /// How many requests in a row a server did not accept.
    pub(super) fn failures(&self, server: &str) -> u32 {
        self.due(server).map_or(0, |due| due.failures)
    }

    /// Notes the request that upstream may have from now on; `None` where it refused the only one.
    pub(super) fn sends(&mut self, sent: Option<Sent>) {
        self.sent = sent;
    }

    /// Upstream says that it has it.
    pub(super) fn arrives(&mut self, sent: &Sent) {
        self.due = None;
        self.sent = Some(sent.clone());
    }

    /// A server did not say so: nobody sends it anything before that pause.
    pub(super) fn waits(&mut self, server: &str, pause: Duration) {
        let failures = self.failures(server).saturating_add(1);
        self.due = Some(Due {
            server: server.to_owned(),
            at: Instant::now() + pause,
            failures,
        });
    }

    /// Notes that the request was answered, and the credential stored.
    pub(super) fn succeeds(&mut self) {
        *self = Self::default();
    }

    /// Nobody waits for what was sent any more.
    pub(super) fn abandons(&mut self) {
        self.sent = None;
    }

    /// What a server had came to nothing: no other one follows before that pause.
    pub(super) fn fails(&mut self, server: &str, pause: Duration) {
        self.sent = None;
        self.due = Some(Due {
            server: server.to_owned(),
            at: Instant::now() + pause,
            failures: 0,
        });
    }
}
