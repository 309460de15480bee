//! What a reconcile comes to: conditions, Events, log lines and when to come back. No I/O.
//!
//! A step returns what happened: its result, or a [`Halt`]. What that means is decided here alone, and nothing else can write to
//! the status of a reconcile. The texts of conditions are upstream's.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use objects::ObjectKey;
use objects::conflict::{FieldConflict, Outcome};

use super::halt::{Effect, Halt, StatusChange, Waiting};
use super::ownership::{OwnershipConflict, OwnershipConflicts, Part};
use super::plan;
use super::status::{self, MAX_MESSAGE_BYTES, RedactedObservation};
use crate::api::{BundleDeployment, BundleDeploymentStatus, Condition, TRY_AGAIN};
use crate::config::Timing;
use crate::controllers::claims::ReleaseId;
use crate::controllers::conditions::{DEPLOYED, INSTALLED, MONITORED, READY};
use crate::controllers::garbage::{NAMESPACES_RETRY, Verdict};
use crate::controllers::queue::{ReconcileKind, Requeue};
use crate::ledger::ReleaseKey;
use crate::public;
use crate::public::{Name, PublicText};
use crate::report::events::Reason;

/// Whether the ledger has what another agent deployed for a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseImport {
    /// There is nothing to enter, or it has it.
    Complete,
    /// The release cannot be entered yet, or the entry not be written, and no event tells when it can.
    Pending,
}

impl ReleaseImport {
    /// When to come back to a bundle of which nothing else is to be done.
    pub fn requeue(self) -> Requeue {
        match self {
            Self::Complete => Requeue::IDLE,
            Self::Pending => Requeue::RETRY,
        }
    }
}

/// How often it is looked whether a bundle that may want a release has its `${ }` filled in; when it has, its owner is woken.
const CLAIMED_RETRY: Duration = Duration::from_secs(20);

/// What comes of removing the releases of a bundle that is gone: it has no status any more.
#[derive(Debug)]
pub struct RemovalReport {
    /// The Event to be written.
    pub event: Option<(Reason, PublicText)>,
    /// When to come back, unless somebody wakes the bundle.
    pub requeue: Requeue,
}

impl RemovalReport {
    /// Nothing is removed while the site holds changes.
    pub fn held_by_site(bundle: &str, hold: &PublicText) -> Self {
        logging::info!(bundle, hold = *hold, "not removing a release");
        let text = public!("not removed while the site holds deploys: {}", *hold);
        Self {
            event: Some((Reason::RemovalHeld, text)),
            requeue: Requeue::IDLE,
        }
    }

    /// What the garbage collection decided, and did.
    pub fn decided(verdict: Verdict) -> Self {
        let requeue = match verdict {
            // All held releases are checked together.
            Verdict::Alive | Verdict::Remove | Verdict::Held(_) => Requeue::IDLE,
            Verdict::Wait(pause) => Requeue::after(pause),
            Verdict::Claimed => Requeue::after(CLAIMED_RETRY),
            Verdict::NamespacesDeferred => Requeue::after(NAMESPACES_RETRY),
        };
        Self {
            event: None,
            requeue,
        }
    }

    /// It could not be decided, or the removal failed on the way.
    pub fn failed(bundle: &str, error: PublicText) -> Self {
        logging::error!(bundle, error, "failed to clean up missing bundledeployment");
        Self {
            event: Some((Reason::RemovalFailed, error)),
            requeue: Requeue::RETRY,
        }
    }
}

/// Why a release's record is not continued.
#[derive(Clone, Copy, Debug)]
pub enum RedeployReason {
    /// The release's record is not the one that was written.
    Changed,
    /// The release's record is damaged, or larger than what is read.
    Unreadable,
    /// The status says that the revision was deployed, and its record does not: this cluster was restored from a backup, or somebody removed the
    /// release and kept its history.
    Unfinished,
    /// Another client superseded the revision, or it belongs to another bundle.
    SupersededOrForeign,
}

/// The result of one reconcile, collected while it goes on: the new status, Events, and when to requeue.
#[derive(Debug)]
pub struct Report {
    bundle: String,
    deployment_id: String,
    timing: Timing,
    now: Timestamp,
    /// Whether drift was known before.
    had_drift: bool,
    status: BundleDeploymentStatus,
    /// The conditions before the reconcile: one that ends as it began keeps its update time, whatever it said in between.
    before: Vec<Condition>,
    ownership: OwnershipConflicts,
    events: Vec<(Reason, PublicText)>,
    /// The requeue that all steps asked for.
    requeue: Requeue,
    /// Reconciles that are due in a while, whatever comes of this reconcile.
    wakes: Vec<(ReconcileKind, Duration)>,
    /// Whether this reconcile changed what is deployed.
    is_new: bool,
    /// Whether what the spec wants is deployed since this reconcile, whatever there was to do for it.
    counts_as_deployed: bool,
    /// Whether the reconcile monitored live objects.
    has_monitored: bool,
}

impl Report {
    /// An empty report that starts from `status`.
    pub fn new(
        bundle: &BundleDeployment,
        status: BundleDeploymentStatus,
        timing: Timing,
        now: Timestamp,
    ) -> Self {
        Self {
            bundle: bundle.name().to_owned(),
            deployment_id: bundle.spec.deployment_id.clone(),
            timing,
            now,
            had_drift: !bundle.status.non_modified,
            ownership: OwnershipConflicts::read(bundle.name(), &status),
            before: status.conditions.clone(),
            status,
            events: Vec::new(),
            requeue: Requeue::IDLE,
            wakes: Vec::new(),
            is_new: false,
            counts_as_deployed: false,
            has_monitored: false,
        }
    }

    /// The status as it is to be written.
    pub fn status(&self) -> &BundleDeploymentStatus {
        &self.status
    }

    /// The time of this reconcile.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// How to come back, as it stands.
    pub fn requeue(&self) -> Requeue {
        self.requeue
    }

    /// The Events to be written, and how to come back.
    pub fn finish(self) -> (Vec<(Reason, PublicText)>, Requeue) {
        let requeue = match self.has_monitored {
            true => self.requeue,
            false => self.requeue.without_monitor(),
        };
        (self.events, requeue)
    }

    /// When the bundle is reconciled besides, and how.
    pub fn take_wakes(&mut self) -> Vec<(ReconcileKind, Duration)> {
        std::mem::take(&mut self.wakes)
    }

    /// Something happened that an Event and the log report.
    pub fn event(&mut self, reason: Reason, text: PublicText) {
        match reason.is_warning() {
            true => logging::warn!(bundle = self.bundle, "{}", text),
            false => logging::info!(bundle = self.bundle, "{}", text),
        }
        self.events.push((reason, text));
    }

    /// Something could not be done, which an Event and the log report.
    pub fn failed(&mut self, reason: Reason, what: &'static str, message: &PublicText) {
        logging::warn!(bundle = self.bundle, error = *message, "{}", what);
        self.events
            .push((reason, public!("{}: {}", what, *message)));
    }

    /// The bundle is reconciled in a while, since what may change then is no event of its own.
    pub fn wake_after(&mut self, kind: ReconcileKind, pause: Duration) {
        self.wakes.push((kind, pause));
    }

    /// Whether nothing happened but a deploy whose objects are not ready yet.
    pub fn is_coming_up(&self, bundle: &BundleDeployment) -> bool {
        self.is_new
            && self.requeue == Requeue::IDLE
            && !self.status.ready
            && self.status.non_modified
            && self.status.condition(MONITORED) == "True"
            && plan::should_monitor(bundle, &self.status)
    }

    /// A step got no further. `is_late`: upstream has had the time to deliver what is waited for.
    pub fn halt(&mut self, halt: &Halt, is_late: bool) {
        let Effect {
            status,
            event,
            what,
            requeue,
        } = halt.effect(&self.timing, is_late);
        // After redaction, which half a secret would escape.
        let message = &halt.message.clone().cut(MAX_MESSAGE_BYTES);
        match status {
            StatusChange::None => {}
            StatusChange::Condition(type_) => self.set(type_, Err(message)),
            StatusChange::NotBegun(otherwise) => {
                let is_due = self.status.applied_deployment_id != self.deployment_id;
                let not_begun = is_due.then_some(DEPLOYED);
                if let Some(type_) = not_begun.or(otherwise) {
                    self.set(type_, Err(message));
                }
            }
            StatusChange::NotInstalled => self.status.not_installed(message, self.now),
            StatusChange::DeployedButNotInstalled => {
                self.status.not_installed(message, self.now);
                self.status.release.clear();
                // In the status alone: what failed is tried again, a takeover too.
                self.status.applied_deployment_id = self.deployment_id.clone();
                self.set(DEPLOYED, Ok(()));
            }
            StatusChange::Lost => {
                self.status.lost(message, self.now);
                self.set(DEPLOYED, Err(message));
                self.ownership_conflicts(Part::Objects, Vec::new());
                self.ownership_conflicts(Part::Ours, Vec::new());
            }
        }
        self.keep_times();
        match (event, what) {
            (None, _) => {}
            (Some(reason), "") => self.event(reason, message.clone()),
            (Some(reason), what) => self.failed(reason, what, message),
        }
        self.come_back(requeue);
    }

    /// All downstream resources are copied.
    pub fn resources_copied(&mut self, generation: i64) {
        self.status.downstream_resources_generation = generation;
    }

    /// There would be something to deploy, but the site holds changes.
    pub fn deploy_held(&mut self, hold: &PublicText) {
        self.set(DEPLOYED, Err(hold));
    }

    /// Postpones deploys until `until`.
    pub fn waits(&mut self, waiting: Waiting, until: Timestamp, pause: Duration) {
        let again = tried_again(until);
        let mut messages = self.status.conditions.iter().map(|one| &one.message);
        if !messages.any(|message| message.contains(&*again)) {
            // Something else went wrong since, and is well again.
            let text = public!("{}; {}", waiting.message(), again);
            self.set(DEPLOYED, Err(&text));
        }
        self.come_back(Requeue::postponed(pause));
    }

    /// Whether what the spec wants is deployed since this reconcile. A deploy that failed is not, though the status may name its ID.
    pub fn counts_as_deployed(&self) -> bool {
        self.counts_as_deployed
    }

    /// Counts the release as deployed at the current deployment ID: it was deployed, or is installed once and stays.
    pub fn count_as_deployed(&mut self) {
        self.status.applied_deployment_id = self.deployment_id.clone();
        self.counts_as_deployed = true;
    }

    /// There is nothing to deploy: what was reported as failed before is fine now.
    pub fn confirmed(&mut self) {
        self.set(INSTALLED, Ok(()));
        self.set(DEPLOYED, Ok(()));
    }

    /// The deployment is in the cluster. `changed`: it was not so before. `conflicts` are fields of others that it wrote or left to them,
    /// and `chart` is the description of its chart.
    pub fn deployed(
        &mut self,
        release: &ReleaseId,
        changed: bool,
        conflicts: &[FieldConflict],
        chart: &PublicText,
    ) {
        self.events.extend(conflicts.iter().map(conflict_event));
        let text = public!("{}{}", revision(release), *chart);
        logging::info!(bundle = self.bundle, "deployed {}", text);
        self.events.push((Reason::Deployed, text));
        self.status.release = release.to_string();
        self.count_as_deployed();
        self.confirmed();
        self.is_new = changed;
        if changed {
            self.log_conflicts(conflicts);
            self.status.set_conflicts(conflicts, self.now);
        }
    }

    fn log_conflicts(&self, conflicts: &[FieldConflict]) {
        for conflict in conflicts {
            logging::info!(bundle = self.bundle, "{}", conflict_event(conflict).1);
        }
    }

    /// The release's record is not continued.
    pub fn redeploys(&mut self, release: &ReleaseId, why: RedeployReason) {
        let of = match why {
            RedeployReason::Changed | RedeployReason::Unreadable | RedeployReason::Unfinished => {
                "the record of "
            }
            RedeployReason::SupersededOrForeign => "",
        };
        let why = match why {
            RedeployReason::Changed => "is not the one that was written",
            RedeployReason::Unreadable => "cannot be read",
            RedeployReason::Unfinished => "does not say that it was deployed to its end",
            RedeployReason::SupersededOrForeign => "is not the last one, or not this bundle's",
        };
        let text = public!("{}{} {}: deploying anew", of, revision(release), why);
        self.event(Reason::RecordChanged, text);
    }

    /// A deploy succeeded over a release that was somebody else's.
    pub fn taken_over(&mut self, release: &ReleaseKey) {
        let text = public!(
            "release {} was there before, and not this bundle's: it is by now, and goes with it",
            *release
        );
        self.event(Reason::ReleaseTakenOver, text);
    }

    /// Live objects were compared with the release.
    pub fn observed(&mut self, found: RedactedObservation, force_sync_generation: i64) {
        let modified = &found.all.modified;
        if !modified.is_empty() && !self.had_drift {
            let drifted = modified.iter();
            let text = names(drifted.map(|one| (&one.kind, &one.namespace, &one.name)));
            logging::info!(bundle = self.bundle, "found drift: {}", text);
            self.events.push((Reason::DriftFound, text));
        }
        let is_partial = found.all.is_partial;
        self.status.observe(found, force_sync_generation, self.now);
        // Otherwise unknown secrets would be published.
        if !is_partial {
            self.set(MONITORED, Ok(()));
        }
        self.has_monitored = true;
    }

    /// The record of the release is gone: a full reconcile adopts the live objects.
    pub fn record_vanished(&mut self) {
        self.come_back(Requeue::full_after(Duration::ZERO));
    }

    /// An object this bundle overwrites went with the bundle it was taken from. A deploy that failed is tried again in its own time.
    pub fn overwritten_missing(&mut self) {
        self.come_back(Requeue::full_after(self.timing.overwrite_retry));
    }

    /// A correction that failed is left for a while.
    pub fn correction_postponed(&mut self, problem: &PublicText) {
        self.set(READY, Err(problem));
    }

    /// Reports objects that were corrected in vain, and until when they are left alone.
    pub fn postponed_corrections(&mut self, lines: Vec<String>) {
        self.status.set_postponed_corrections(lines, self.now);
    }

    /// Drifted objects were applied again. What the deploy told of fields of other objects stays until the next one.
    pub fn corrected(&mut self, objects: &[ObjectKey], conflicts: &[FieldConflict]) {
        logging::info!(
            bundle = self.bundle,
            objects = objects.len(),
            "corrected drift"
        );
        let names = names(
            objects
                .iter()
                .map(|one| (&one.kind, &one.namespace, &one.name)),
        );
        self.events.push((Reason::DriftCorrected, names));
        self.log_conflicts(conflicts);
        self.status.renew_conflicts(objects, conflicts, self.now);
    }

    /// Objects others have and this bundle wants, or vice versa, as one step found them.
    pub fn ownership_conflicts(&mut self, part: Part, found: Vec<OwnershipConflict>) {
        self.ownership.set(part, found);
        self.status
            .set_ownership_conflicts(&self.ownership, self.now);
    }

    /// The earliest of all wishes counts.
    fn come_back(&mut self, wish: Requeue) {
        self.requeue = self.requeue.and(wish);
    }

    fn set(&mut self, type_: &str, outcome: Result<(), &PublicText>) {
        self.status.set_condition(type_, outcome, self.now);
        self.keep_times();
    }

    /// A step that takes back what one before it said is no news to upstream.
    fn keep_times(&mut self) {
        for one in &mut self.status.conditions {
            let says_the_same = |before: &&Condition| {
                before.type_ == one.type_
                    && before.status == one.status
                    && before.message == one.message
            };
            if let Some(before) = self.before.iter().find(says_the_same) {
                one.last_update_time.clone_from(&before.last_update_time);
            }
        }
    }
}

/// How a conflict over a field ended, as an Event reports it.
fn conflict_event(conflict: &FieldConflict) -> (Reason, PublicText) {
    let reason = match conflict.outcome {
        Outcome::Taken => Reason::FieldTaken,
        Outcome::Left => Reason::FieldLeft,
    };
    (reason, status::conflict_text(conflict))
}

/// When what waits is tried again, and what makes that sooner.
pub(super) fn tried_again(until: Timestamp) -> PublicText {
    public!(
        "tried again at {}, or at once when the bundle or its label {} changes",
        until,
        TRY_AGAIN
    )
}

/// A revision as Events name it.
fn revision(release: &ReleaseId) -> PublicText {
    let ReleaseId { release, revision } = release;
    public!(
        "release {}/{} revision {}",
        Name(&release.namespace),
        Name(&release.name),
        *revision
    )
}

/// Objects by their names alone: what differs in them may be secret.
fn names<'n>(objects: impl Iterator<Item = (&'n String, &'n String, &'n String)>) -> PublicText {
    let names = objects.map(|(kind, namespace, name)| {
        public!("{} {}/{}", Name(kind), Name(namespace), Name(name))
    });
    PublicText::join(names, ", ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::api::ModifiedStatus;
    use crate::controllers::bundle_deployment::halt::Cause;
    use crate::controllers::bundle_deployment::status::Observation;
    use crate::public::redact::SensitiveData;
    use rstest::rstest;
    use serde_json::json;

    const NAMESPACE_RETRY: Requeue = Requeue::after(Duration::from_secs(2 * 60));

    /// Of a bundle that was deployed and ready, and now wants another deployment.
    pub(in super::super) fn report() -> Report {
        let bundle: BundleDeployment = serde_json::from_value(json!({
            "metadata": {"name": "b"},
            "spec": {"deploymentID": "new"},
            "status": {
                "appliedDeploymentID": "old", "release": "ns/b:1", "ready": true, "nonModified": true,
            },
        }))
        .unwrap();
        let status = bundle.status.clone();
        Report::new(&bundle, status, Timing::default(), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn field_conflicts_are_reported_and_requested_requeues_are_taken_once() {
        let conflict = |outcome| FieldConflict {
            object: ObjectKey {
                kind: "Service".into(),
                namespace: "ns".into(),
                name: "web".into(),
                group: String::new(),
            },
            field: ".spec.type".into(),
            managers: vec!["kubectl".into(), "them".into()],
            outcome,
        };
        let mut report = report();
        let conflicts = [conflict(Outcome::Taken), conflict(Outcome::Left)];
        report.deployed(&id(), true, &conflicts, &"".into());
        report.wake_after(ReconcileKind::Drift, Duration::from_secs(1));
        let wakes = [(ReconcileKind::Drift, Duration::from_secs(1))];
        assert_eq!(report.take_wakes(), wakes);
        assert_eq!(report.take_wakes(), []);
        let events = report.finish().0;
        let texts: Vec<String> = events.iter().map(|(_, text)| text.to_string()).collect();
        assert_eq!(
            texts,
            [
                "took .spec.type of Service ns/web from kubectl, them",
                "left .spec.type of Service ns/web to kubectl, them",
                "release ns/b revision 2",
            ]
        );
    }

    /// What a deploy took or left is told until the next one, whatever is corrected meanwhile; of what is corrected, what is so since.
    #[test]
    fn a_correction_leaves_what_was_told_of_other_objects() {
        let object = |name: &str| ObjectKey::new("v1", "Service", "ns", name);
        let conflict = |name: &str, field: &str| FieldConflict {
            object: object(name),
            field: field.into(),
            managers: vec!["kubectl".into()],
            outcome: Outcome::Taken,
        };
        let mut report = report();
        let deployed = [conflict("web", ".spec.a"), conflict("other", ".spec.a")];
        report.deployed(&id(), true, &deployed, &"".into());
        let told = |report: &Report| {
            let told = conditions(report).into_iter();
            let told =
                told.filter_map(|one| Some(one.strip_prefix("FieldConflicts=True ")?.to_owned()));
            told.collect::<Vec<_>>().concat()
        };
        let [web, other] =
            ["web", "other"].map(|name| format!("took .spec.a of Service ns/{name} from kubectl"));
        assert_eq!(told(&report), format!("{web}; {other}"));
        report.corrected(&[object("third")], &[]);
        assert_eq!(told(&report), format!("{web}; {other}"));
        report.corrected(&[object("web")], &[conflict("web", ".spec.a")]);
        assert_eq!(told(&report), format!("{web}; {other}"));
        report.corrected(&[object("web")], &[conflict("web", ".spec.b")]);
        let new = web.replace(".spec.a", ".spec.b");
        assert_eq!(told(&report), format!("{other}; {new}"));
        report.corrected(&[object("web"), object("other")], &[]);
        assert_eq!(told(&report), "");
        // Beyond ten they are counted.
        let many: Vec<_> = (0..12)
            .map(|n| conflict(&format!("s{n}"), ".spec.a"))
            .collect();
        report.deployed(&id(), true, &many, &"".into());
        report.corrected(&[object("web")], &[conflict("web", ".spec.a")]);
        assert!(told(&report).ends_with("; and 3 more"), "{}", told(&report));
        report.corrected(&[object("s0"), object("s1")], &[]);
        assert!(told(&report).ends_with("; and 3 more"), "{}", told(&report));
    }

    /// The conditions with their messages, `True` without.
    pub(in super::super) fn conditions(report: &Report) -> Vec<String> {
        let conditions = report.status().conditions.iter();
        conditions
            .map(|one| format!("{}={} {}", one.type_, one.status, one.message))
            .map(|text| text.trim_end().to_owned())
            .collect()
    }

    #[rstest]
    #[case(Cause::ReadRelease, &["Monitored=False m"])]
    #[case(Cause::Ledger, &[])]
    #[case(Cause::ReadHeldRelease, &[])]
    fn an_unreadable_release_or_ledger_is_no_failed_deploy_where_none_is_due(
        #[case] cause: Cause,
        #[case] expected: &[&str],
    ) {
        let mut report = report();
        report.status.applied_deployment_id = "new".to_owned();
        report.halt(&Halt::new(cause, "m"), false);
        assert_eq!(conditions(&report), expected);
    }

    fn id() -> ReleaseId {
        ReleaseId::parse("ns/b:2").unwrap()
    }

    fn modified(name: &str) -> RedactedObservation {
        let found = Observation {
            modified: vec![ModifiedStatus {
                kind: "ConfigMap".into(),
                api_version: "v1".into(),
                namespace: "ns".into(),
                name: name.into(),
                patch: r#"{"data":{"password":"x"}}"#.into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        found.redact(&SensitiveData::default())
    }

    #[test]
    fn a_deploy_names_its_release_and_waits_for_it_to_be_ready() {
        let mut report = report();
        report.deployed(&id(), true, &[], &", chart web 1.0.0 (sha256:a)".into());
        assert_eq!(report.status().release, "ns/b:2");
        assert_eq!(report.status().applied_deployment_id, "new");
        assert_eq!(conditions(&report), ["Installed=True", "Deployed=True"]);
        let mut bundle = BundleDeployment::default();
        bundle.spec.deployment_id = "new".into();
        assert!(!report.is_coming_up(&bundle));
        let not_ready = Observation {
            non_ready: vec![crate::api::NonReadyStatus::default()],
            ..Default::default()
        };
        report.observed(not_ready.redact(&SensitiveData::default()), 0);
        assert!(report.is_coming_up(&bundle));
        report.halt(&Halt::new(Cause::Ledger, "m"), false);
        assert!(!report.is_coming_up(&bundle));
        let events = report.finish().0;
        let text = PublicText::from("release ns/b revision 2, chart web 1.0.0 (sha256:a)");
        assert_eq!(events[0], (Reason::Deployed, text));
    }

    #[test]
    fn a_failure_is_no_longer_reported_once_nothing_is_to_be_deployed() {
        let mut report = report();
        report.halt(&Halt::new(Cause::NamespaceLabels, "m"), false);
        report.confirmed();
        assert_eq!(conditions(&report), ["Deployed=True", "Installed=True"]);
        assert_eq!(report.status().applied_deployment_id, "old");
        report.count_as_deployed();
        assert_eq!(report.status().applied_deployment_id, "new");
    }

    /// An unchanged condition sends no status upstream.
    #[test]
    fn a_condition_that_ends_a_reconcile_unchanged_keeps_its_update_time() {
        let bundle: BundleDeployment = serde_json::from_value(json!({
            "metadata": {"name": "b"}, "spec": {"deploymentID": "id"},
            "status": {"appliedDeploymentID": "id", "release": "ns/b:1"},
        }))
        .unwrap();
        let at = |status: BundleDeploymentStatus, second: i64| {
            let now = Timestamp::from_second(second).unwrap();
            let mut report = Report::new(&bundle, status, Timing::default(), now);
            report.confirmed();
            report.halt(&Halt::new(Cause::NamespaceForbidden, "m"), false);
            report.status
        };
        let first = at(bundle.status.clone(), 1);
        let again = at(first.clone(), 1_000);
        assert_eq!(first, again);
        // A condition that says something else, and then its first text again, was updated twice.
        let now = Timestamp::from_second(2_000).unwrap();
        let mut report = Report::new(&bundle, again.clone(), Timing::default(), now);
        report.confirmed();
        let well = at(report.status, 3_000);
        assert_ne!(again, well);
    }

    #[test]
    fn a_deploy_that_the_site_holds_is_reported_and_is_no_failure() {
        let mut report = report();
        report.deploy_held(&"no changes in December".into());
        assert_eq!(
            conditions(&report),
            ["Deployed=False no changes in December"]
        );
        assert_eq!(
            report.finish(),
            (Vec::new(), Requeue::IDLE.without_monitor())
        );
    }

    #[test]
    fn drift_is_one_event_by_name_alone_until_it_is_gone() {
        let mut first = report();
        first.observed(modified("a"), 0);
        let text = PublicText::from("ConfigMap ns/a");
        assert_eq!(first.finish().0, [(Reason::DriftFound, text.clone())]);
        let mut again = report();
        again.had_drift = true;
        again.observed(modified("a"), 0);
        assert_eq!(again.status().condition(MONITORED), "True");
        again.corrected(&[ObjectKey::new("v1", "ConfigMap", "ns", "a")], &[]);
        let reported = vec![(Reason::DriftCorrected, text)];
        assert_eq!(again.finish(), (reported, Requeue::IDLE));
    }

    #[test]
    fn a_repeated_partial_observation_does_not_update_the_monitored_condition() {
        let away = Halt::new(Cause::Monitor, "a webhook is away");
        let mut report = report();
        for now in [0, 60] {
            report.now = Timestamp::from_second(now).unwrap();
            let found = Observation {
                is_partial: true,
                ..Observation::default()
            };
            report.observed(found.redact(&SensitiveData::default()), 0);
            report.halt(&away, false);
        }
        let monitored = report.status().conditions.iter();
        let monitored: Vec<_> = monitored.filter(|one| one.type_ == MONITORED).collect();
        assert_eq!(monitored[0].status, "False");
        assert_eq!(monitored[0].last_update_time, "1970-01-01T00:00:00Z");
        assert!(report.finish().1.has_failed());
    }

    #[test]
    fn after_an_undo_status_says_when_the_same_is_tried_again() {
        let until = Timestamp::from_second(1_700_000_000).unwrap();
        let pause = Duration::from_secs(120);
        let text = "tried again at 2023-11-14T22:13:20Z, or at once when the bundle or its label fleet.cattle.io/try-again changes";
        let mut first = report();
        let failed = Halt::new(
            Cause::Deploy(Reason::HookFailed, Some(Waiting::Undone)),
            "no such image",
        );
        let failed = failed.followed_by(&tried_again(until)).postponed(pause);
        first.halt(&failed, false);
        let said = [format!("Deployed=False no such image; {text}")];
        assert_eq!(conditions(&first), said);
        assert_eq!(first.requeue(), Requeue::postponed(pause));
        // The failure of the undone deploy stays in the status, and another error that came between does not.
        first.waits(Waiting::Undone, until, pause);
        assert_eq!(conditions(&first), said);
        first.halt(&Halt::new(Cause::Name, "m"), false);
        first.waits(Waiting::Undone, until, pause);
        let plain = format!("Deployed=False {}; {text}", Waiting::Undone.message());
        assert_eq!(conditions(&first), [plain]);
    }

    #[test]
    fn a_message_without_end_is_cut() {
        let mut report = report();
        report.halt(
            &Halt::new(Cause::FillIn, PublicText::of_operator(&"x".repeat(1 << 20))),
            false,
        );
        assert_eq!(
            conditions(&report)[0].len(),
            "Deployed=False ".len() + MAX_MESSAGE_BYTES
        );
    }

    #[test]
    fn a_long_message_is_cut_before_its_retry_time() {
        let until = Timestamp::from_second(1_000).unwrap();
        let again = tried_again(until);
        let mut report = report();
        let halt = Halt::new(Cause::FillIn, PublicText::of_operator(&"x".repeat(1 << 20)))
            .followed_by(&again);
        report.halt(&halt, false);
        let said = conditions(&report);
        assert!(said[0].ends_with(&*again), "{}", said[0].len());
        report.waits(Waiting::Undone, until, Duration::from_secs(1));
        assert_eq!(conditions(&report), said);
    }

    #[test]
    fn requeues_of_all_steps_are_combined() {
        let mut report = report();
        report.halt(&Halt::new(Cause::Ledger, "m"), false);
        report.halt(&Halt::new(Cause::NamespaceForbidden, "m"), false);
        assert_eq!(report.requeue(), Requeue::RETRY.and(NAMESPACE_RETRY));
        report.overwritten_missing();
        let again = Requeue::full_after(Duration::from_secs(5));
        let all = Requeue::RETRY.and(NAMESPACE_RETRY).and(again);
        assert_eq!(report.requeue(), all);
        report.redeploys(&id(), RedeployReason::Changed);
        assert_eq!(report.requeue(), all);
    }
}
