//! Whether the two clusters answer: what readiness says, and which of them should be asked for a sign of life.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::requests::LastContact;

/// A cluster the agent cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where BundleDeployments come from.
    Upstream,
    /// Where they are deployed to.
    Local,
}

/// Whether both clusters answer; cheap to clone, all clones share.
#[derive(Clone, Debug)]
pub struct Health {
    /// Since when each has not; `None` while all is well.
    trouble_since: Arc<Mutex<[Option<Instant>; 2]>>,
    last_contact: [LastContact; 2],
    unready_after: Duration,
}

impl Health {
    /// Healthy until trouble lasts for `unready_after`.
    pub fn new(unready_after: Duration) -> Self {
        Self {
            trouble_since: Arc::default(),
            last_contact: <[LastContact; 2]>::default(),
            unready_after,
        }
    }

    /// What the clients of this cluster are to be made with.
    pub fn last_contact(&self, side: Side) -> &LastContact {
        &self.last_contact[side as usize]
    }

    /// Whether this cluster has been silent for so long that it should be asked for a sign of life. A watch is told something
    /// about once a minute even where nothing happens.
    pub fn is_silent(&self, side: Side) -> bool {
        self.last_contact(side).last().elapsed() >= self.unready_after / 3
    }

    /// This cluster answered just now.
    pub fn contact(&self, side: Side) {
        self.lock()[side as usize] = None;
    }

    /// This cluster did not answer, or not as it should: since it was last heard.
    pub fn trouble(&self, side: Side) {
        let last = self.last_contact(side).last();
        self.lock()[side as usize].get_or_insert(last);
    }

    /// Whether this cluster is not known to answer.
    pub fn is_troubled(&self, side: Side) -> bool {
        self.lock()[side as usize].is_some()
    }

    /// Whether the agent can do its work.
    pub fn is_ready(&self) -> bool {
        self.obstacle().is_none()
    }

    /// What has kept the agent from its work for too long.
    pub fn obstacle(&self) -> Option<&'static str> {
        let since = *self.lock();
        let is_long = |since: Option<Instant>| {
            since.is_some_and(|since| since.elapsed() >= self.unready_after)
        };
        match since.map(is_long) {
            [true, _] => Some("upstream does not answer"),
            [false, true] => Some("the local cluster does not answer"),
            [false, false] => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, [Option<Instant>; 2]> {
        self.trouble_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
