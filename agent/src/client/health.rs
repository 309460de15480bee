//! Whether the two clusters answer: what readiness says, and which of them should be asked for a sign of life.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::requests::LastContact;
use super::watch::Backoff;
use crate::error;

/// A cluster the agent cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where BundleDeployments come from.
    Upstream,
    /// The cluster that bundles are deployed to.
    Local,
}

/// What the process is there for at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
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
    role: Role,
    /// Of each cluster; `None` while all is well.
    failures: [Option<Failure>; 2],
    /// Since when upstream is to be compared with what it was before; whatever else it answers is no answer to that.
    compares_since: Option<Instant>,
    /// Since when upstream's BundleDeployments are to be listed, all of them, which smaller questions say nothing of.
    lists_since: Option<Instant>,
    /// Since when the lease could not be read or written; whose it is, is no failure.
    lease_fails_since: Option<Instant>,
    /// Of each cluster.
    questions: [Questions; 2],
}

/// What a cluster in trouble is asked again and again, all of it together.
#[derive(Debug, Default)]
struct Questions {
    backoff: Backoff,
    /// The last failure of any request.
    failed_at: Option<Instant>,
    /// When the next question is due, unless there is a sign of life before.
    next: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Failure {
    since: Instant,
    /// Whether requests went unanswered; a server that refuses them answers.
    is_cut_off: bool,
}

/// Whether the agent can do its work; cheap to clone, all clones share.
#[derive(Clone, Debug)]
pub struct Health {
    state: Arc<Mutex<State>>,
    last_contact: [LastContact; 2],
    unready_after: Duration,
}

impl Health {
    /// A standby, healthy until a failure lasts for `unready_after`.
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

    /// The role has changed. What upstream did to a former leader does not count for a standby.
    pub fn set_role(&self, role: Role) {
        let mut state = self.state.lock();
        state.role = role;
        state.lists_since = None;
        if role == Role::Standby {
            state.failures = [None; 2];
            state.questions = Default::default();
            state.compares_since = None;
        }
    }

    /// This cluster answered just now.
    pub fn contact(&self, side: Side) {
        let mut state = self.state.lock();
        state.failures[side as usize] = None;
        state.questions[side as usize] = Questions::default();
    }

    /// Whether a cluster that did not answer a question may be asked again: after a pause, which grows and counts for all questions to it, and at
    /// once after a sign of life. A watch that comes back is one; an answer with a 5xx is none.
    pub fn may_ask(&self, side: Side) -> bool {
        let last = self.last_contact(side).last();
        let questions = &self.state.lock().questions[side as usize];
        questions.failed_at.is_none_or(|failed| last > failed)
            || questions.next.is_none_or(|next| next <= Instant::now())
    }

    /// A question to this cluster failed.
    pub fn unanswered(&self, side: Side) {
        let questions = &mut self.state.lock().questions[side as usize];
        let now = Instant::now();
        questions.failed_at = Some(now);
        questions.next = questions.backoff.next().map(|pause| now + pause);
    }

    /// This cluster did not answer, or not as it should. Counts from its last answer.
    pub fn trouble(&self, side: Side) {
        self.note(side, true);
    }

    /// This cluster answers, and refuses what the agent cannot do without. Readiness counts that; no watch is to begin anew for it.
    pub fn refused(&self, side: Side) {
        self.note(side, false);
    }

    /// Upstream is to be compared with what it was before, which every removal waits for.
    pub fn compares(&self) {
        self.state
            .lock()
            .compares_since
            .get_or_insert_with(Instant::now);
    }

    /// The comparison of upstream has ended.
    pub fn compared(&self) {
        self.state.lock().compares_since = None;
    }

    /// Whether the lease could be asked for, whoever has it.
    pub fn campaigned(&self, has_failed: bool) {
        let since = &mut self.state.lock().lease_fails_since;
        match has_failed {
            true => {
                since.get_or_insert_with(Instant::now);
            }
            false => *since = None,
        }
    }

    /// A list of all BundleDeployments begins, or is tried again: before it ends nothing is removed, and before the first one nothing is deployed.
    pub fn lists(&self) {
        self.state
            .lock()
            .lists_since
            .get_or_insert_with(Instant::now);
    }

    /// The list of all BundleDeployments has ended.
    pub fn listed(&self) {
        self.state.lock().lists_since = None;
    }

    /// A request failed that the agent can do without: an answer with a 4xx is contact and no failure, whatever it says, but for a credential
    /// that is refused: that is looked into within seconds.
    pub fn failed(&self, side: Side, failed: &kube::Error) {
        match error::is_answered(failed) {
            true if error::has_code(failed, 401) => self.refused(side),
            true => {}
            false => self.trouble(side),
        }
    }

    fn note(&self, side: Side, is_cut_off: bool) {
        let since = self.last_contact(side).last();
        let mut state = self.state.lock();
        if let Some(failed_at) = &mut state.questions[side as usize].failed_at {
            *failed_at = Instant::now();
        }
        let failure = state.failures[side as usize].get_or_insert(Failure { since, is_cut_off });
        failure.is_cut_off |= is_cut_off;
    }

    /// Whether this cluster is not known to answer as it should.
    pub fn is_troubled(&self, side: Side) -> bool {
        self.state.lock().failures[side as usize].is_some()
    }

    /// Whether requests to this cluster went unanswered since it was last in order.
    pub fn is_cut_off(&self, side: Side) -> bool {
        self.state.lock().failures[side as usize].is_some_and(|failure| failure.is_cut_off)
    }

    /// The failure that keeps the agent from its work, or has for too long.
    pub fn obstacle(&self) -> Option<&'static str> {
        const LOCAL: &str = "the local cluster does not answer";
        let (role, failures, compares_since, lists_since, lease_fails_since) = {
            let state = self.state.lock();
            let State {
                compares_since,
                lists_since,
                lease_fails_since,
                ..
            } = *state;
            (
                state.role,
                state.failures,
                compares_since,
                lists_since,
                lease_fails_since,
            )
        };
        let is_long = |since: Instant| since.elapsed() >= self.unready_after;
        let [upstream, local] = failures.map(|one| one.is_some_and(|one| is_long(one.since)));
        match role {
            // A standby asks for the lease every few seconds.
            Role::Standby if is_long(self.last_contact(Side::Local).last()) => Some(LOCAL),
            // Perhaps nobody has it: there may be no space for writes, or no right to.
            Role::Standby if lease_fails_since.is_some_and(is_long) => {
                Some("the lease cannot be read or written")
            }
            Role::Standby => None,
            Role::Register => Some("not registered yet"),
            Role::Deploy if upstream => Some("upstream does not answer"),
            Role::Deploy if local => Some(LOCAL),
            Role::Deploy if lists_since.is_some_and(is_long) => {
                Some("upstream's bundledeployments cannot be listed as a whole")
            }
            Role::Deploy if compares_since.is_some_and(is_long) => {
                Some("upstream cannot be compared with what it was before: nothing is removed")
            }
            Role::Deploy => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Health {
        /// Whether the agent can do its work.
        fn is_ready(&self) -> bool {
            self.obstacle().is_none()
        }
    }

    /// Lists and watches that are answered well say nothing of it.
    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_cannot_be_compared_is_reported_though_it_answers_otherwise() {
        let health = Health::new(Duration::from_secs(300));
        health.set_role(Role::Deploy);
        health.compares();
        tokio::time::advance(Duration::from_secs(299)).await;
        assert!(health.is_ready());
        tokio::time::advance(Duration::from_secs(1)).await;
        health.contact(Side::Upstream);
        health.last_contact(Side::Upstream).now();
        health.compares();
        assert!(!health.is_ready());
        health.compared();
        assert!(health.is_ready());
    }

    /// One page of many may fail for good, while a list of one object is answered.
    #[tokio::test(start_paused = true)]
    async fn bundles_that_cannot_be_listed_as_a_whole_are_reported_though_upstream_answers() {
        let health = Health::new(Duration::from_secs(300));
        health.set_role(Role::Deploy);
        for _ in 0..30 {
            health.lists();
            assert!(health.is_ready());
            health.contact(Side::Upstream);
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        assert!(!health.is_ready());
        health.listed();
        assert!(health.is_ready());
        // Another session begins with a list of its own.
        health.lists();
        tokio::time::advance(Duration::from_secs(300)).await;
        health.set_role(Role::Register);
        health.set_role(Role::Deploy);
        assert!(health.is_ready());
    }

    /// A standby is healthy without upstream: the lease is in the local cluster.
    #[tokio::test(start_paused = true)]
    async fn a_standby_is_ready_while_the_local_cluster_answers() {
        let health = Health::new(Duration::from_secs(300));
        let is_ready = |role| {
            health.set_role(role);
            health.is_ready()
        };
        assert!(is_ready(Role::Standby) && !is_ready(Role::Register) && is_ready(Role::Deploy));
        health.trouble(Side::Upstream);
        tokio::time::advance(Duration::from_secs(299)).await;
        assert!(is_ready(Role::Deploy));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!is_ready(Role::Deploy));
        assert!(!is_ready(Role::Standby));
        health.last_contact(Side::Local).now();
        assert!(is_ready(Role::Standby) && is_ready(Role::Deploy));
    }

    fn answer(code: u16) -> kube::Error {
        kube::Error::Api(
            kube::core::Status::failure("x", "y")
                .with_code(code)
                .boxed(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_in_trouble_is_asked_ever_more_rarely_and_at_once_when_it_is_back() {
        let health = Health::new(Duration::from_secs(300));
        let (mut asked, begun) = (0, Instant::now());
        while begun.elapsed() < Duration::from_secs(3600) {
            tokio::time::advance(Duration::from_secs(5)).await;
            // Two ask, as the checks and the comparison do.
            for _ in 0..2 {
                if health.may_ask(Side::Upstream) {
                    health.trouble(Side::Upstream);
                    health.unanswered(Side::Upstream);
                    asked += 1;
                }
            }
            assert!(health.may_ask(Side::Local));
        }
        assert!((60..=100).contains(&asked), "{asked}");
        // By now a pause takes half a minute at least.
        health.unanswered(Side::Upstream);
        tokio::time::advance(Duration::from_secs(5)).await;
        health.last_contact(Side::Upstream).now();
        assert!(health.may_ask(Side::Upstream));
        tokio::time::advance(Duration::from_secs(1)).await;
        // A request failed after the sign of life.
        health.trouble(Side::Upstream);
        assert!(!health.may_ask(Side::Upstream));
        health.contact(Side::Upstream);
        assert!(health.may_ask(Side::Upstream));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_with_a_4xx_is_contact() {
        let health = Health::new(Duration::from_secs(300));
        health.failed(Side::Upstream, &answer(403));
        assert!(!health.is_troubled(Side::Upstream));
        health.refused(Side::Upstream);
        assert!(health.is_troubled(Side::Upstream) && !health.is_cut_off(Side::Upstream));
        health.failed(Side::Upstream, &answer(503));
        assert!(health.is_cut_off(Side::Upstream));
        health.contact(Side::Upstream);
        assert!(!health.is_troubled(Side::Upstream));
    }
}
