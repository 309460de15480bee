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

/// What the process is there for at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duty {
    /// Another one holds the lease: nothing to do but to be there.
    #[default]
    Standby,
    /// To register.
    Register,
    /// To deploy.
    Deploy,
}

#[derive(Debug, Default)]
struct State {
    duty: Duty,
    /// Since when each cluster has not answered; `None` while all is well.
    trouble_since: [Option<Instant>; 2],
}

/// Whether the agent can do its duty; cheap to clone, all clones share.
#[derive(Clone, Debug)]
pub struct Health {
    state: Arc<Mutex<State>>,
    last_contact: [LastContact; 2],
    unready_after: Duration,
}

impl Health {
    /// A standby, healthy until trouble lasts for `unready_after`.
    pub fn new(unready_after: Duration) -> Self {
        Self {
            state: Arc::default(),
            last_contact: <[LastContact; 2]>::default(),
            unready_after,
        }
    }

    /// What the clients of this cluster are to be made with.
    pub fn last_contact(&self, side: Side) -> &LastContact {
        &self.last_contact[side as usize]
    }

    /// Whether this cluster has been silent for so long that it should be asked for a sign of life. An open watch
    /// gets a bookmark about once a minute even where nothing changes.
    pub fn is_silent(&self, side: Side) -> bool {
        self.last_contact(side).last().elapsed() >= self.unready_after / 3
    }

    /// The duty has changed. What upstream did to a former leader is no trouble to a standby.
    pub fn turn_to(&self, duty: Duty) {
        let mut state = self.lock();
        state.duty = duty;
        if duty == Duty::Standby {
            state.trouble_since = [None; 2];
        }
    }

    /// This cluster answered just now.
    pub fn contact(&self, side: Side) {
        self.lock().trouble_since[side as usize] = None;
    }

    /// This cluster did not answer, or not as it should. Counts from its last answer.
    pub fn trouble(&self, side: Side) {
        let last = self.last_contact(side).last();
        self.lock().trouble_since[side as usize].get_or_insert(last);
    }

    /// Whether this cluster is not known to answer.
    pub fn is_troubled(&self, side: Side) -> bool {
        self.lock().trouble_since[side as usize].is_some()
    }

    /// Whether the agent can do its work.
    pub fn is_ready(&self) -> bool {
        self.obstacle().is_none()
    }

    /// What keeps the agent from its duty, or has for too long.
    pub fn obstacle(&self) -> Option<&'static str> {
        const LOCAL: &str = "the local cluster does not answer";
        let State {
            duty,
            trouble_since,
        } = *self.lock();
        let is_long = |since: Instant| since.elapsed() >= self.unready_after;
        let [upstream, local] = trouble_since.map(|since| since.is_some_and(is_long));
        match duty {
            // It asks for the lease every few seconds.
            Duty::Standby if is_long(self.last_contact(Side::Local).last()) => Some(LOCAL),
            Duty::Standby => None,
            Duty::Register => Some("not registered yet"),
            Duty::Deploy if upstream => Some("upstream does not answer"),
            Duty::Deploy if local => Some(LOCAL),
            Duty::Deploy => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No word from upstream is none of a standby's business; the lease is in the local cluster.
    #[tokio::test(start_paused = true)]
    async fn a_standby_is_ready_while_the_local_cluster_answers() {
        let health = Health::new(Duration::from_secs(300));
        let is_ready = |duty| {
            health.turn_to(duty);
            health.is_ready()
        };
        assert!(is_ready(Duty::Standby) && !is_ready(Duty::Register) && is_ready(Duty::Deploy));
        health.trouble(Side::Upstream);
        tokio::time::advance(Duration::from_secs(299)).await;
        assert!(is_ready(Duty::Deploy));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!is_ready(Duty::Deploy));
        assert!(!is_ready(Duty::Standby));
        health.last_contact(Side::Local).now();
        assert!(is_ready(Duty::Standby) && is_ready(Duty::Deploy));
    }
}
