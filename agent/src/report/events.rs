//! Events in the system namespace: what the agent did, found and could not do, for `kubectl get
//! events`. Every one is a figure of `/metrics` too.
//!
//! Upstream's rights let no Events be written there, so they are about the BundleDeployment's name
//! in the agent's own namespace. Emitting does not wait for the API server: events are collected for a
//! moment, the same text is not repeated for ten minutes, and many bundles with the same reason
//! share one Event. The text is the condition's too: it holds no values and no Secret's
//! data.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::api::{GROUP, VERSION};
use crate::client::identity::AgentClient;
use crate::config::AGENT_NAME;
use crate::public::{PublicText, cut};
use crate::report::metrics::{Entries, Metrics};

/// Warnings are collected this long.
const COLLECTED: Duration = Duration::from_secs(3);
/// How long Events of type Normal are collected: a rollout is one Event, not one for each bundle.
const NORMAL_COLLECTED: Duration = Duration::from_secs(30);
/// How soon the same text about the same bundle is written again.
const REPEATED_AFTER: Duration = Duration::from_secs(10 * 60);
/// More bundles than this with the same reason share an Event.
const MAX_SINGLE: usize = 3;
/// Events written in one go; more are dropped and counted.
const MAX_WRITTEN: usize = 20;
/// Events that wait to be written, and those of the last ten minutes that are known; more are dropped, and forgotten.
const MAX_WAITING: usize = 1_000;
const MAX_KNOWN: usize = 2_000;
/// Longest text the API server takes.
const MAX_TEXT_BYTES: usize = 1024;

/// Declares [`Reason`]: a line each with what happened and its name, which the Event has as its reason.
macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $reason:ident,)+) => {
        /// What happened: the Event's reason and the metric's label.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $($(#[doc = $doc])+ $reason,)+
        }

        impl Reason {
            /// All reasons.
            const ALL: &[Self] = &[$(Self::$reason,)+];

            /// As the Event has it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => stringify!($reason),)+
                }
            }
        }
    };
}

reasons! {
    /// A bundle was deployed.
    Deployed,
    /// The releases of a deleted bundle were removed.
    Removed,
    /// Live objects are not as deployed.
    DriftFound,
    /// They are again.
    DriftCorrected,
    /// A field another manager owned was written.
    FieldTaken,
    /// A field another manager owns was left to it.
    FieldLeft,
    /// A removal is held back.
    RemovalHeld,
    /// A removal that was held back is not needed or not held any more.
    RemovalReleased,
    /// A namespace or definition that was to be deleted was left to other releases.
    LeftToOthers,
    /// A namespace or definition that was to be deleted was left, as nobody can read what is in it.
    LeftUnread,
    /// A release record that the ledger does not know.
    UnknownRelease,
    /// A release record is not the one that was written.
    RecordChanged,
    /// Another bundle has the release.
    ReleaseTaken,
    /// A deploy succeeded over a release of somebody else's, which is the bundle's by that.
    ReleaseTakenOver,
    /// What the ledger has for a bundle that is gone is not its release: it is left.
    ReleaseNotProven,
    /// The agent has registered, or connects with another credential.
    Registered,
    /// Upstream refuses the credential, or another one does not work.
    CredentialRefused,
    /// Upstream is not in the state it was left in.
    UpstreamRestored,
    /// The chart's source does not answer: what it gave before was deployed.
    SourceUnreachable,
    /// A source has an older chart than the one that is deployed, or was.
    OlderChart,
    /// The chart or the bundle's content cannot be had.
    SourceFailed,
    /// A chart is vouched for as the signature policy asks.
    SignatureVerified,
    /// A chart is not, or the policy cannot be read.
    SignatureRefused,
    /// The values are missing or invalid.
    ValuesFailed,
    /// The chart does not render.
    RenderFailed,
    /// The cluster does not serve a kind of object.
    KindMissing,
    /// The cluster refuses an object, or does not answer.
    ApplyFailed,
    /// A hook failed.
    HookFailed,
    /// The bundle's account may not do that.
    Forbidden,
    /// The bundle's account does not exist.
    AccountMissing,
    /// Objects did not become ready in time.
    NotReadyInTime,
    /// Upstream has not delivered something that belongs to the bundle.
    WaitingForUpstream,
    /// Bundles it depends on are not ready.
    DependencyNotReady,
    /// The target namespace is missing or not allowed.
    NamespaceRefused,
    /// The live objects cannot be read.
    MonitorFailed,
    /// Drift could not be corrected.
    CorrectionFailed,
    /// A release could not be removed.
    RemovalFailed,
}

impl Reason {
    pub fn is_warning(self) -> bool {
        !matches!(
            self,
            Self::Deployed
                | Self::Removed
                | Self::DriftCorrected
                | Self::SignatureVerified
                | Self::FieldTaken
                | Self::FieldLeft
                | Self::RemovalReleased
                | Self::Registered
        )
    }
}

/// An event that is to be written; the bundle is empty for one about the agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct PendingEvent {
    reason: Reason,
    bundle: String,
    text: String,
}

#[derive(Debug, Default)]
struct EventBuffer {
    waiting: BTreeSet<PendingEvent>,
    /// Since when an event that is no warning waits.
    normal_since: Option<Instant>,
    written: HashMap<PendingEvent, Instant>,
    /// For want of room, since the last were written.
    dropped: usize,
}

impl EventBuffer {
    /// Takes an event in, unless the same was written a moment ago.
    fn take(&mut self, event: PendingEvent, now: Instant) {
        self.written
            .retain(|_, at| now.duration_since(*at) < REPEATED_AFTER);
        // Each deploy has its Event, also with the text of the last one.
        if event.reason == Reason::Deployed || !self.written.contains_key(&event) {
            if self.waiting.len() >= MAX_WAITING {
                self.dropped += 1;
                return;
            }
            if !event.reason.is_warning() {
                self.normal_since.get_or_insert(now);
            }
            self.waiting.insert(event);
        }
    }

    /// The events to write now: at most [`MAX_WRITTEN`] Events and how many more there would be.
    fn drain(&mut self, now: Instant) -> (Vec<PendingEvent>, usize) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let is_due = |since: &Instant| now.duration_since(*since) >= NORMAL_COLLECTED;
        if self.normal_since.as_ref().is_some_and(is_due) {
            self.normal_since = None;
        } else {
            let is_normal = |event: &PendingEvent| !event.reason.is_warning();
            self.waiting = waiting
                .iter()
                .filter(|event| is_normal(event))
                .cloned()
                .collect();
            waiting.retain(|event| !is_normal(event));
        }
        if self.written.len() + waiting.len() > MAX_KNOWN {
            self.written.clear();
        }
        let mut by_reason: BTreeMap<Reason, Vec<PendingEvent>> = BTreeMap::new();
        for event in waiting {
            by_reason.entry(event.reason).or_default().push(event);
        }
        let (mut events, mut dropped) = (Vec::new(), std::mem::take(&mut self.dropped));
        for (reason, alike) in by_reason {
            let room = MAX_WRITTEN - events.len();
            let is_single = alike.len() <= MAX_SINGLE;
            let kept = match is_single {
                true => alike.len().min(room),
                false => alike.len() * room.min(1),
            };
            // A dropped Event is written the next time that it happens.
            self.written
                .extend(alike[..kept].iter().map(|event| (event.clone(), now)));
            if is_single {
                dropped += alike.len() - kept;
                events.extend(alike.into_iter().take(kept));
                continue;
            }
            if kept == 0 {
                dropped += 1;
                continue;
            }
            let lines: Vec<_> = alike
                .iter()
                .map(|one| format!("{}: {}", one.bundle, one.text))
                .collect();
            events.push(PendingEvent {
                reason,
                bundle: String::new(),
                text: format!("{} bundles. {}", alike.len(), lines.join("; ")),
            });
        }
        (events, dropped)
    }
}

/// Emits Events; shared by reference.
pub struct Events {
    events: Api<Event>,
    agent: AgentClient,
    namespace: String,
    host: String,
    metrics: Metrics,
    buffer: Mutex<EventBuffer>,
    waiting: Notify,
}

impl Events {
    /// Events in `namespace`, whose source is `host`.
    pub fn new(agent: &AgentClient, namespace: &str, host: &str, metrics: Metrics) -> Self {
        for reason in Reason::ALL {
            metrics.may_emit(reason.as_str());
        }
        Self {
            events: Api::namespaced(agent.client(), namespace),
            agent: agent.clone(),
            namespace: namespace.to_owned(),
            host: host.to_owned(),
            metrics,
            buffer: Mutex::default(),
            waiting: Notify::new(),
        }
    }

    /// Emits an Event about a bundle.
    pub fn emit(&self, reason: Reason, bundle: &str, text: impl Into<PublicText>) {
        self.metrics.emitted(reason.as_str());
        let event = PendingEvent {
            reason,
            bundle: bundle.to_owned(),
            text: text.into().cut(MAX_TEXT_BYTES).to_string(),
        };
        self.buffer.lock().take(event, Instant::now());
        self.waiting.notify_one();
    }

    /// Emits an Event about the agent.
    pub fn emit_for_agent(&self, reason: Reason, text: impl Into<PublicText>) {
        self.emit(reason, "", text);
    }

    /// Writes what was emitted. Never returns. An Event that cannot be written is dropped.
    ///
    /// # Cancellation
    /// Safe at any point; what was not written yet is lost.
    pub async fn run(&self) {
        loop {
            if self.buffer.lock().waiting.is_empty() {
                self.waiting.notified().await;
            }
            tokio::time::sleep(COLLECTED).await;
            let (events, dropped) = self.buffer.lock().drain(Instant::now());
            if dropped > 0 {
                logging::info!(dropped, "too many events at once");
            }
            for event in events {
                let event = self.event(event, self.agent.now());
                if let Err(failed) = self.events.create(&PostParams::default(), &event).await {
                    logging::debug!(
                        error = PublicText::nothing_secret_in(&failed),
                        "cannot write an event"
                    );
                }
            }
        }
    }

    fn event(&self, event: PendingEvent, now: Timestamp) -> Event {
        let involved_object = match event.bundle.as_str() {
            "" => ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Secret".into()),
                name: Some(AGENT_NAME.into()),
                namespace: Some(self.namespace.clone()),
                ..Default::default()
            },
            bundle => ObjectReference {
                api_version: Some(format!("{GROUP}/{VERSION}")),
                kind: Some("BundleDeployment".into()),
                name: Some(bundle.to_owned()),
                namespace: Some(self.namespace.clone()),
                ..Default::default()
            },
        };
        let now = Some(Time(now));
        Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{AGENT_NAME}.")),
                namespace: Some(self.namespace.clone()),
                ..Default::default()
            },
            involved_object,
            reason: Some(event.reason.as_str().into()),
            message: Some(cut(event.text, MAX_TEXT_BYTES)),
            type_: Some(
                if event.reason.is_warning() {
                    "Warning"
                } else {
                    "Normal"
                }
                .into(),
            ),
            source: Some(EventSource {
                component: Some(AGENT_NAME.into()),
                host: Some(self.host.clone()),
            }),
            first_timestamp: now.clone(),
            last_timestamp: now,
            count: Some(1),
            ..Default::default()
        }
    }

    /// Events that wait, and those that are not written again for a while.
    pub fn entries(&self) -> Entries {
        let buffer = self.buffer.lock();
        vec![
            ("waiting_events", buffer.waiting.len()),
            ("written_events", buffer.written.len()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(reason: Reason, bundle: &str, text: &str) -> PendingEvent {
        PendingEvent {
            reason,
            bundle: bundle.into(),
            text: text.into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_failure_is_written_once_in_ten_minutes() {
        let mut buffer = EventBuffer::default();
        let failed = event(Reason::ApplyFailed, "web", "no");
        buffer.take(failed.clone(), Instant::now());
        assert_eq!(buffer.drain(Instant::now()), (vec![failed.clone()], 0));
        buffer.take(failed.clone(), Instant::now());
        assert!(buffer.drain(Instant::now()).0.is_empty());
        tokio::time::advance(REPEATED_AFTER).await;
        buffer.take(failed.clone(), Instant::now());
        assert_eq!(buffer.drain(Instant::now()).0, [failed]);
    }

    #[tokio::test(start_paused = true)]
    async fn many_bundles_with_the_same_reason_share_an_event() {
        let mut buffer = EventBuffer::default();
        for n in 0..50 {
            let name = format!("web-{n:02}");
            buffer.take(event(Reason::Deployed, &name, "revision 1"), Instant::now());
        }
        let held = event(Reason::RemovalHeld, "old", "why");
        buffer.take(held.clone(), Instant::now());
        assert_eq!(buffer.drain(Instant::now()), (vec![held], 0));
        tokio::time::advance(NORMAL_COLLECTED).await;
        let (events, dropped) = buffer.drain(Instant::now());
        assert_eq!((events.len(), dropped), (1, 0));
        assert!(
            events[0]
                .text
                .starts_with("50 bundles. web-00: revision 1; web-01"),
            "{}",
            events[0].text
        );
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_and_known_events_are_bounded() {
        let mut buffer = EventBuffer::default();
        let mut dropped = 0;
        for n in 0..5 * MAX_WAITING {
            let text = format!("failure {n}");
            buffer.take(event(Reason::ApplyFailed, "web", &text), Instant::now());
            if n % (2 * MAX_WAITING) == 0 {
                dropped += buffer.drain(Instant::now()).1;
            }
            assert!(buffer.waiting.len() <= MAX_WAITING && buffer.written.len() <= MAX_KNOWN);
        }
        dropped += buffer.drain(Instant::now()).1;
        assert!(dropped >= MAX_WAITING, "{dropped}");
    }

    /// An Event that was dropped was never emitted, so its next occurrence is.
    #[tokio::test(start_paused = true)]
    async fn a_dropped_event_is_emitted_at_its_next_occurrence() {
        let mut buffer = EventBuffer::default();
        let mut kept = std::collections::BTreeSet::new();
        let reasons = [
            Reason::DriftFound,
            Reason::RemovalHeld,
            Reason::UnknownRelease,
            Reason::RecordChanged,
            Reason::ReleaseTaken,
            Reason::ReleaseNotProven,
            Reason::UpstreamRestored,
            Reason::SourceUnreachable,
            Reason::OlderChart,
            Reason::SourceFailed,
        ];
        let all = |n: usize| event(reasons[n / 3], "web", &format!("failure {n}"));
        let (mut written, mut lost) = (0, 0);
        for _ in 0..2 {
            (0..30).for_each(|n| buffer.take(all(n), Instant::now()));
            let (events, dropped) = buffer.drain(Instant::now());
            assert!(events.len() <= MAX_WRITTEN);
            written += events.len();
            lost += dropped;
            kept.extend(events);
        }
        assert_eq!((written, lost, kept.len()), (30, 10, 30));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = cut("ü".repeat(MAX_TEXT_BYTES), MAX_TEXT_BYTES);
        assert!(text.len() <= MAX_TEXT_BYTES && text.ends_with("ü..."));
    }
}
