//! Leader election on a Lease, by client-go's algorithm.
//!
//! The Go agent holds the same Lease, so both must judge alike during a migration: a holder is
//! respected for the duration *it* wrote, counted from when *we* saw its last change, and every
//! write carries the resourceVersion it was decided on. Mirrors
//! `client-go/tools/leaderelection/leaderelection.go`; unlike the Go agent the Lease is given back
//! on a clean exit, losing it is followed by a new campaign instead of the end of the process, and a Lease
//! is ours where this process wrote it, whatever name it has: two that were given one name (`hostNetwork`) respect each other.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use release::Host;
use tokio::time::Instant;

use crate::client::health::Health;
use crate::config::{AGENT_NAME, Election, Identity};
use crate::public::{Name, PublicText};

/// Until a Lease that somebody else wrote is read again.
const AFTER_CONFLICT: Duration = Duration::from_secs(1);

/// How long giving it back may take: a kubelet waits thirty seconds for everything.
const RELEASE: Duration = Duration::from_secs(5);

/// A candidate for the agent's Lease.
///
/// # Expected flow
/// [`Candidate::campaign`] until the Lease is ours, then [`Candidate::lead`] beside the work, which ends as soon as `lead` returns.
/// [`Candidate::release`] once all work has stopped. After a loss, campaign again.
///
/// # Guarantees
/// A Lease that somebody else holds and renews is never written, whatever name it has, and every write names the version that it was decided on. `lead` returns
/// before others may take the Lease, as long as the lease duration is longer than the renew deadline.
///
/// # Assumptions
/// Time is measured by the monotonic clock: the times that others write into the Lease decide nothing.
pub struct Candidate {
    leases: Api<Lease>,
    host: Host,
    /// The candidate's name on the Lease.
    name: String,
    /// Whether a Lease with this name is that of an earlier process in the same pod.
    resumes: bool,
    election: Election,
    health: Health,
    observed: Option<Observed>,
    /// What this process has written, as the server has it, and what it wrote last, whether that was answered or not.
    written: [Option<LeaseSpec>; 2],
    /// When the Lease was last begun to be read and written.
    asked: Instant,
}

/// The Lease as last seen, and when it last changed in our eyes.
struct Observed {
    lease: Lease,
    since: Instant,
}

/// The next step with the Lease.
#[derive(Debug, PartialEq)]
enum Claim {
    /// Nobody holds it in a valid way, or we do: write this.
    Write(Box<LeaseSpec>),
    /// Someone else holds it.
    Respect,
}

impl Candidate {
    /// A candidate for the Lease `fleet-agent` in the system namespace.
    pub fn new(
        client: Client,
        host: Host,
        namespace: &str,
        identity: &Identity,
        election: Election,
        health: Health,
    ) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            host,
            name: identity.name.clone(),
            resumes: identity.is_pods,
            election,
            health,
            observed: None,
            written: [None, None],
            asked: Instant::now(),
        }
    }

    /// Returns once the Lease is ours. Failures are logged and tried again.
    ///
    /// # Cancellation
    /// Safe at any point; a Lease taken at that moment runs out by itself.
    pub async fn campaign(&mut self) {
        let mut reported = None;
        loop {
            let deadline = self.election.renew_deadline;
            self.asked = Instant::now();
            let claimed = tokio::time::timeout(deadline, self.try_claim()).await;
            self.health.campaigned(!matches!(claimed, Ok(Ok(_))));
            match claimed {
                Ok(Ok(true)) => return,
                Ok(Ok(false)) => {
                    let holder = self.holder().to_owned();
                    if reported.as_ref() != Some(&holder) {
                        logging::info!(
                            holder = Name(&holder),
                            "waiting for the lease, another agent leads"
                        );
                        reported = Some(holder);
                    }
                }
                Ok(Err(error)) => {
                    logging::warn!(
                        error = PublicText::nothing_secret_in(&error),
                        "cannot read or write the lease"
                    );
                }
                Err(_) => logging::warn!("the lease cannot be read: no answer"),
            }
            tokio::time::sleep(self.pause()).await;
        }
    }

    /// Until a Lease that is not ours is read again: a crashed holder is waited for until its time is over, and no longer.
    fn pause(&self) -> Duration {
        let jitter = 1.0 + 0.2 * rand::random::<f64>();
        let pause = self.election.retry_period.mul_f64(jitter);
        let left = self
            .observed
            .as_ref()
            .map(|observed| left(observed.lease.spec.as_ref(), observed.since.elapsed()));
        match left {
            Some(left) if !left.is_zero() => pause.min(left),
            _ => pause,
        }
    }

    /// Renews the Lease; returns when it is lost, or could not be renewed before the deadline.
    ///
    /// # Cancellation
    /// Safe at any point; follow with [`Candidate::release`] once all work has stopped.
    pub async fn lead(&mut self) {
        // Others count from the write, which may be long before its answer.
        let mut deadline = self.asked + self.election.renew_deadline;
        let mut next = self.asked + self.election.retry_period;
        loop {
            tokio::time::sleep_until(next.min(deadline)).await;
            self.asked = Instant::now();
            next = self.asked + self.election.retry_period;
            match tokio::time::timeout_at(deadline, self.try_claim()).await {
                Ok(Ok(true)) => deadline = self.asked + self.election.renew_deadline,
                // Somebody wrote it between reading and writing, a label perhaps.
                Ok(Ok(false))
                    if self
                        .observed
                        .as_ref()
                        .is_some_and(|seen| self.is_ours(&seen.lease)) =>
                {
                    next = Instant::now() + AFTER_CONFLICT;
                }
                Ok(Ok(false)) => return,
                Ok(Err(error)) => {
                    logging::warn!(
                        error = PublicText::nothing_secret_in(&error),
                        "cannot renew the lease"
                    );
                    if Instant::now() >= deadline {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Gives the Lease back so that a successor need not wait. Only if it is still ours.
    pub async fn release(&mut self) {
        let Some(Observed { lease, .. }) = &self.observed else {
            return;
        };
        let released = self.release_from(lease.clone());
        match tokio::time::timeout(RELEASE, released).await {
            Ok(Ok(())) => {}
            _ => logging::warn!("could not release the lease, it will run out"),
        }
    }

    /// The renewal that the end of the work has cut off may have been carried out, so that what was seen last is not what is there.
    async fn release_from(&self, mut seen: Lease) -> kube::Result<()> {
        while self.is_ours(&seen) {
            let now = Some(MicroTime(self.host.now()));
            let transitions = seen.spec.as_ref().and_then(|spec| spec.lease_transitions);
            seen.spec = Some(LeaseSpec {
                holder_identity: Some(String::new()),
                lease_duration_seconds: Some(1),
                acquire_time: now.clone(),
                renew_time: now,
                lease_transitions: transitions,
                ..Default::default()
            });
            let parameters = PostParams::default();
            let replaced = self.leases.replace(AGENT_NAME, &parameters, &seen);
            match replaced.await {
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    seen = self.leases.get(AGENT_NAME).await?;
                }
                other => return other.map(drop),
            }
        }
        Ok(())
    }

    fn holder(&self) -> &str {
        self.observed
            .as_ref()
            .map_or("", |observed| holder_of(&observed.lease))
    }

    /// Whether this very process wrote the Lease as it is. Who else has its name is another one: pods on the host's network have one host name,
    /// and process 1 each.
    fn is_ours(&self, lease: &Lease) -> bool {
        let mark = |spec: &LeaseSpec| {
            let renewed = spec.renew_time.as_ref().map(|at| at.0.as_microsecond());
            (spec.holder_identity.clone(), renewed)
        };
        let found = lease.spec.as_ref().map(mark);
        let mut written = self.written.iter().flatten();
        written.any(|spec| found == Some(mark(spec)))
    }

    async fn try_claim(&mut self) -> kube::Result<bool> {
        let Some(lease) = crate::error::found(self.leases.get(AGENT_NAME).await)? else {
            return self.create().await;
        };
        if self
            .observed
            .as_ref()
            .is_none_or(|observed| observed.lease.spec != lease.spec)
        {
            self.observed = Some(Observed {
                lease: lease.clone(),
                since: Instant::now(),
            });
        }
        let age = self
            .observed
            .as_ref()
            .map_or(Duration::ZERO, |seen| seen.since.elapsed());
        let is_mine = self.is_ours(&lease);
        if is_mine {
            // A write without an answer was carried out, and the next one may be left without one too.
            self.written[0].clone_from(&lease.spec);
        }
        let is_ours = is_mine || (self.resumes && holder_of(&lease) == self.name);
        match claim(
            lease.spec.as_ref(),
            age,
            (&self.name, is_ours),
            &self.election,
            self.host.now(),
        ) {
            Claim::Respect => Ok(false),
            Claim::Write(spec) => {
                self.written[1] = Some(*spec);
                let desired = Lease {
                    spec: self.written[1].clone(),
                    ..lease
                };
                self.wrote(
                    self.leases
                        .replace(AGENT_NAME, &PostParams::default(), &desired)
                        .await,
                )
            }
        }
    }

    async fn create(&mut self) -> kube::Result<bool> {
        let spec = match claim(
            None,
            Duration::ZERO,
            (&self.name, false),
            &self.election,
            self.host.now(),
        ) {
            Claim::Write(spec) => *spec,
            Claim::Respect => return Ok(false),
        };
        self.written[1] = Some(spec.clone());
        let metadata = ObjectMeta {
            name: Some(AGENT_NAME.to_owned()),
            ..Default::default()
        };
        let lease = Lease {
            metadata,
            spec: Some(spec),
        };
        self.wrote(self.leases.create(&PostParams::default(), &lease).await)
    }

    /// A conflict means another candidate was quicker: not an error.
    fn wrote(&mut self, result: kube::Result<Lease>) -> kube::Result<bool> {
        match result {
            Ok(lease) => {
                self.resumes = false;
                self.written[0].clone_from(&lease.spec);
                self.observed = Some(Observed {
                    lease,
                    since: Instant::now(),
                });
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn holder_of(lease: &Lease) -> &str {
    lease
        .spec
        .as_ref()
        .and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default()
}

/// How long the Lease still counts, which has not changed in our eyes for `age`.
fn left(found: Option<&LeaseSpec>, age: Duration) -> Duration {
    let promised = found
        .and_then(|spec| spec.lease_duration_seconds)
        .unwrap_or_default();
    Duration::from_secs(u64::try_from(promised).unwrap_or_default()).saturating_sub(age)
}

/// Decides about the Lease as last read; `age` is how long it has not changed in our eyes, `ours` our name and whether it is ours.
fn claim(
    found: Option<&LeaseSpec>,
    age: Duration,
    (name, is_ours): (&str, bool),
    election: &Election,
    now: Timestamp,
) -> Claim {
    let holder = found
        .and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default();
    let valid = !left(found, age).is_zero();
    if !holder.is_empty() && !is_ours && valid {
        return Claim::Respect;
    }
    let transitions = found
        .and_then(|spec| spec.lease_transitions)
        .unwrap_or_default();
    let (acquired, transitions) = match found.and_then(|spec| spec.acquire_time.clone()) {
        Some(acquired) if is_ours => (acquired, transitions),
        _ if found.is_none() => (MicroTime(now), 0),
        _ => (MicroTime(now), transitions.saturating_add(1)),
    };
    Claim::Write(Box::new(LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(
            i32::try_from(election.lease_duration.as_secs())
                .unwrap_or(i32::MAX)
                .max(1),
        ),
        acquire_time: Some(acquired),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions),
        ..Default::default()
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::Request;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;
    use crate::client::health::Side;
    use crate::client::requests::{Clients, LastContact};
    use crate::client::scripted;

    const ELECTION: Election = Election {
        lease_duration: Duration::from_secs(30),
        renew_deadline: Duration::from_secs(25),
        retry_period: Duration::from_secs(10),
    };

    /// How long a candidate leads whose renewals are answered so: after how long, with which code.
    async fn leads(answers: &'static [(u64, u16)]) -> Duration {
        let asked = Arc::new(AtomicUsize::new(0));
        let clients = scripted::clients(move |request| {
            let asked = asked.clone();
            async move {
                let lease = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": AGENT_NAME, "namespace": "system", "resourceVersion": "1"},
                    "spec": {"holderIdentity": "me", "leaseDurationSeconds": 30},
                });
                if request.method() == http::Method::GET {
                    return (200, lease);
                }
                let at = asked.fetch_add(1, Ordering::Relaxed);
                // Requests without a scripted answer hang.
                let (seconds, code) = answers.get(at).copied().unwrap_or((1_000, 200));
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                match code {
                    200 => (200, lease),
                    code => (
                        code,
                        json!({"kind": "Status", "status": "Failure", "code": code, "reason": "Conflict", "message": "x"}),
                    ),
                }
            }
        });
        let client = clients.client(scripted::config(), &LastContact::default());
        let client = client.unwrap();
        let me = Identity {
            name: "me".to_owned(),
            is_pods: true,
        };
        let health = Health::new(UNREADY_AFTER);
        let mut candidate =
            Candidate::new(client, Host::default(), "system", &me, ELECTION, health);
        candidate.campaign().await;
        let began = Instant::now();
        candidate.lead().await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn leadership_ends_before_the_lease_can_be_taken() {
        let seconds = |led: Duration| led.as_secs();
        // Written at 0, 10 s before anything else is asked: over at 25.
        assert_eq!(seconds(leads(&[(0, 200)]).await), 25);
        // Written at 10 and answered at 30; others may take it at 40.
        assert_eq!(seconds(leads(&[(0, 200), (14, 200)]).await), 35);
        // The first write was answered late itself.
        assert_eq!(seconds(leads(&[(20, 200)]).await), 5);
        // Refused at 10 and at 20; the third time would be too late.
        assert_eq!(seconds(leads(&[(0, 200), (0, 403), (0, 403)]).await), 25);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_somebody_labels_is_not_lost() {
        let led = leads(&[(0, 200), (0, 409), (0, 200)]).await;
        assert_eq!(led.as_secs(), 36);
    }

    fn held_by(holder: &str, seconds: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(seconds),
            acquire_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            lease_transitions: Some(4),
            ..Default::default()
        }
    }

    fn decide(found: Option<&LeaseSpec>, age_seconds: u64) -> Option<LeaseSpec> {
        let now = Timestamp::from_second(1000).unwrap();
        let holder = found.and_then(|spec| spec.holder_identity.as_deref());
        match claim(
            found,
            Duration::from_secs(age_seconds),
            ("me", holder == Some("me")),
            &ELECTION,
            now,
        ) {
            Claim::Write(spec) => Some(*spec),
            Claim::Respect => None,
        }
    }

    #[test]
    fn a_missing_lease_is_created() {
        let spec = decide(None, 0).unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("me"));
        assert_eq!(
            (spec.lease_transitions, spec.lease_duration_seconds),
            (Some(0), Some(30))
        );
    }

    #[test]
    fn a_lease_of_another_holder_is_respected_for_the_duration_it_names() {
        assert_eq!(decide(Some(&held_by("go", 60)), 59), None);
        let taken = decide(Some(&held_by("go", 60)), 60).unwrap();
        assert_eq!(taken.lease_transitions, Some(5));
        assert_eq!(taken.acquire_time, taken.renew_time);
    }

    #[test]
    fn a_released_lease_is_free_at_once() {
        assert!(decide(Some(&held_by("", 1)), 0).is_some());
    }

    /// A Lease, and how often it was written.
    type Stored = Arc<Mutex<(u32, Value)>>;

    /// A server that keeps one Lease, and carries out a write in the number of `unanswered` without an answer.
    fn server(unanswered: u32) -> (Stored, Clients) {
        let failure = |code: u16, reason: &str| json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason});
        let there = Stored::default();
        let stored = Arc::clone(&there);
        let clients = scripted::clients(move |request: Request<Body>| {
            let stored = Arc::clone(&stored);
            async move {
                let is_read = request.method() == http::Method::GET;
                let body = request.into_body().collect_bytes().await.unwrap();
                let (mut writes, mut lease) = stored.lock().clone();
                if is_read {
                    return match lease.is_null() {
                        true => (404, failure(404, "NotFound")),
                        false => (200, lease),
                    };
                }
                let mut sent: Value = serde_json::from_slice(&body).unwrap();
                let version = |of: &Value| of["metadata"]["resourceVersion"].clone();
                if version(&sent) != version(&lease) {
                    return (409, failure(409, "Conflict"));
                }
                writes += 1;
                sent["metadata"]["resourceVersion"] = writes.to_string().into();
                lease.clone_from(&sent);
                *stored.lock() = (writes, lease);
                if writes == unanswered {
                    std::future::pending::<()>().await;
                }
                (200, sent)
            }
        });
        (there, clients)
    }

    const UNREADY_AFTER: Duration = Duration::from_secs(300);

    fn candidate(clients: &Clients, name: &str, is_pods: bool) -> Candidate {
        campaigning(clients, name, is_pods, Health::new(UNREADY_AFTER))
    }

    fn campaigning(clients: &Clients, name: &str, is_pods: bool, health: Health) -> Candidate {
        let client = clients.client(scripted::config(), health.last_contact(Side::Local));
        let identity = Identity {
            name: name.to_owned(),
            is_pods,
        };
        Candidate::new(
            client.unwrap(),
            Host::default(),
            "system",
            &identity,
            ELECTION,
            health,
        )
    }

    /// etcd without space, or no right to write: reads go on.
    #[tokio::test(start_paused = true)]
    async fn an_agent_that_can_only_read_the_lease_becomes_unready() {
        let (there, clients) = server(u32::MAX);
        candidate(&clients, "other", false).campaign().await;
        let stored = Arc::clone(&there);
        let clients = scripted::clients(move |request: Request<Body>| {
            let lease = stored.lock().1.clone();
            let full = json!({"kind": "Status", "status": "Failure", "code": 500});
            let answer = match request.method() == http::Method::GET {
                true => (200, lease),
                false => (500, full),
            };
            std::future::ready(answer)
        });
        let health = Health::new(UNREADY_AFTER);
        let mut candidate = campaigning(&clients, "me", false, health.clone());
        let renewed = async {
            // The other one leads, as each change of its Lease says.
            for n in 0..60 {
                there.lock().1["spec"]["leaseTransitions"] = n.into();
                tokio::time::sleep(Duration::from_secs(10)).await;
                assert_eq!(health.obstacle(), None);
            }
            // The leader is gone, and its Lease runs out.
            tokio::time::sleep(ELECTION.lease_duration + UNREADY_AFTER / 2).await;
            assert_eq!(health.obstacle(), None);
            tokio::time::sleep(UNREADY_AFTER).await;
            health.obstacle()
        };
        let obstacle = tokio::select! {
            () = candidate.campaign() => panic!("nobody lets it lead"),
            obstacle = renewed => obstacle,
        };
        assert_eq!(obstacle, Some("the lease cannot be read or written"));
    }

    /// The server has carried out a renewal whose answer nobody waited for.
    #[tokio::test(start_paused = true)]
    async fn a_lease_is_given_back_though_its_renewal_was_cut_off() {
        let (there, clients) = server(2);
        let mut candidate = candidate(&clients, "me", false);
        candidate.campaign().await;
        let renewed = tokio::time::timeout(Duration::from_secs(1), candidate.try_claim());
        assert!(renewed.await.is_err());
        candidate.release().await;
        let (writes, lease) = there.lock().clone();
        assert_eq!((writes, &lease["spec"]["holderIdentity"]), (3, &json!("")));
    }

    /// Pods of one node on the host's network: one host name, and process 1 each.
    #[tokio::test(start_paused = true)]
    async fn of_two_agents_with_one_identity_only_one_leads() {
        let (there, clients) = server(u32::MAX);
        let [mut first, mut second] = [(); 2].map(|()| candidate(&clients, "node-1", false));
        first.campaign().await;
        let both = async {
            tokio::select! {
                () = first.lead() => "the first lost it",
                () = second.campaign() => "the second leads as well",
            }
        };
        let long = Duration::from_secs(60 * 60);
        assert_eq!(tokio::time::timeout(long, both).await.ok(), None);
        // A clean end hands it over.
        first.release().await;
        second.campaign().await;
        assert_eq!(there.lock().1["spec"]["holderIdentity"], "node-1");
        // What the second has, the first does not give back.
        let writes = there.lock().0;
        first.release().await;
        assert_eq!(there.lock().0, writes);
    }

    /// A pod has one agent: what its name holds is that of one that ended without a word. Where two were given the name, the later one leads alone.
    #[tokio::test(start_paused = true)]
    async fn a_pod_resumes_the_lease_of_its_name_at_once_and_only_one_agent_leads() {
        let (_there, clients) = server(u32::MAX);
        let [mut first, mut second] = [(); 2].map(|()| candidate(&clients, "pod", true));
        first.campaign().await;
        let began = Instant::now();
        second.campaign().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        first.lead().await;
        assert!(began.elapsed() <= ELECTION.retry_period);
        let both = async {
            tokio::select! {
                () = second.lead() => "the second lost it",
                () = first.campaign() => "the first leads as well",
            }
        };
        let long = Duration::from_secs(60 * 60);
        assert_eq!(tokio::time::timeout(long, both).await.ok(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_of_a_killed_leader_is_taken_after_its_full_duration() {
        let (_there, clients) = server(u32::MAX);
        candidate(&clients, "node-1", false).campaign().await;
        let began = Instant::now();
        candidate(&clients, "node-1", false).campaign().await;
        assert_eq!(began.elapsed().as_secs(), ELECTION.lease_duration.as_secs());
    }

    #[test]
    fn renewing_keeps_acquire_time_and_transitions() {
        let spec = decide(Some(&held_by("me", 30)), 5).unwrap();
        assert_eq!(spec.acquire_time, Some(MicroTime(Timestamp::UNIX_EPOCH)));
        assert_eq!(spec.lease_transitions, Some(4));
        assert_ne!(spec.renew_time, spec.acquire_time);
    }
}
