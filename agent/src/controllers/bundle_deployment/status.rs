//! What a BundleDeployment's status says, computed from what was found.
//!
//! Mirrors `internal/cmd/agent/deployer/monitor`. The patch sent upstream is made from status
//! alone: neither spec, values nor anything read from a Secret can get into it.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use objects::ObjectKey;
use objects::conflict::FieldConflict;
use release::kube::Owner;
use serde_json::{Map, Value};

use crate::api::{
    BundleDeployment, BundleDeploymentResource, BundleDeploymentStatus, Condition, ModifiedStatus,
    NonReadyStatus, ResourceCounts,
};
use crate::public;
use crate::public::PublicText;
use crate::public::redact::{RedactedDetail, SensitiveData};

/// Condition types in the order of a first success.
pub const INSTALLED: &str = "Installed";
pub const DEPLOYED: &str = "Deployed";
pub const READY: &str = "Ready";
pub const MONITORED: &str = "Monitored";
/// Fields that other managers held when we last wrote; there only if there were any. Ours alone:
/// the controller takes texts from the others, for bundles that are not Ready.
pub const FIELD_CONFLICTS: &str = "FieldConflicts";

/// Objects that were corrected in vain and how long they are left; there only if there are any. Ours alone too.
pub const CORRECTIONS_POSTPONED: &str = "CorrectionsPostponed";

/// Longest list of details in a status.
const MAX_DETAILS: usize = 10;

/// The most that the list of objects may take, in bytes: an API server refuses what is above 1.5 MiB with the spec, and the former status would stay.
const MAX_RESOURCES_BYTES: usize = 768 << 10;

/// The only reason upstream knows for a condition that is False.
const REASON_ERROR: &str = "Error";

/// Everything found about a release's objects, in upstream's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Live, owned and wanted objects.
    pub resources: Vec<BundleDeploymentResource>,
    /// Objects that are not ready.
    pub non_ready: Vec<NonReadyStatus>,
    /// Objects that are missing, extra or changed.
    pub modified: Vec<ModifiedStatus>,
    /// Of those that exist but are not ours, which release has them, and since when.
    pub taken: Vec<(ObjectKey, Owner, String)>,
    /// Wanted objects that nobody has.
    pub absent: Vec<ObjectKey>,
}

/// An observation as a status tells it: of the first objects what is wrong, without what is secret.
#[derive(Debug, Default)]
pub struct RedactedObservation {
    pub all: Observation,
    /// Whether there is nothing secret that it could tell.
    pub is_plain: bool,
    non_ready: Vec<RedactedDetail<NonReadyStatus>>,
    modified: Vec<RedactedDetail<ModifiedStatus>>,
}

impl Observation {
    /// What is told of it. Takes long with many secrets.
    pub fn redact(mut self, secrets: &SensitiveData) -> RedactedObservation {
        self.non_ready.sort_by(|a, b| a.uid.cmp(&b.uid));
        self.modified.sort_by_cached_key(|entry| {
            let ModifiedStatus {
                api_version,
                kind,
                namespace,
                name,
                ..
            } = entry;
            format!("{api_version}/{kind}/{namespace}/{name}")
        });
        let non_ready = self.non_ready.iter().take(MAX_DETAILS).cloned();
        let modified = self.modified.iter().take(MAX_DETAILS).cloned();
        RedactedObservation {
            non_ready: non_ready.map(|one| secrets.redact_not_ready(one)).collect(),
            modified: modified.map(|one| secrets.redact_modified(one)).collect(),
            is_plain: secrets.is_empty(),
            all: self,
        }
    }

    /// Whether all is in order, so that there is nothing to tell.
    pub fn is_in_order(&self) -> bool {
        self.non_ready.is_empty() && self.modified.is_empty()
    }
}

impl BundleDeploymentStatus {
    /// Sets a condition to True, or to False with a message. The time moves only with the text.
    pub fn set_condition(&mut self, type_: &str, outcome: Result<(), &PublicText>, now: Timestamp) {
        let index = self
            .conditions
            .iter()
            .position(|c| c.type_ == type_)
            .unwrap_or_else(|| {
                self.conditions.push(Condition {
                    type_: type_.to_owned(),
                    status: "Unknown".into(),
                    ..Condition::default()
                });
                self.conditions.len() - 1
            });
        let condition = &mut self.conditions[index];
        let (status, reason, message) = match outcome {
            Ok(()) => ("True", "", ""),
            Err(message) => ("False", REASON_ERROR, &**message),
        };
        if condition.status != status || condition.message != message {
            condition.last_update_time = format!("{now:.0}");
        }
        condition.status = status.into();
        condition.reason = reason.into();
        condition.message = message.into();
    }

    /// Sets the condition that names what was taken from other managers or left to them.
    pub fn set_conflicts(&mut self, conflicts: &[FieldConflict], now: Timestamp) {
        let lines = conflicts.iter().map(ToString::to_string).collect();
        self.set_lines(FIELD_CONFLICTS, lines, 0, now);
    }

    /// Sets the condition that names what was corrected in vain, and until when it is left.
    pub fn set_postponed_corrections(&mut self, lines: Vec<String>, now: Timestamp) {
        self.set_lines(CORRECTIONS_POSTPONED, lines, 0, now);
    }

    /// Sets a condition that is there only where there is something to report. There are `unlisted` more than ten, or as many as there are lines.
    pub(super) fn set_lines(
        &mut self,
        type_: &str,
        mut lines: Vec<String>,
        unlisted: usize,
        now: Timestamp,
    ) {
        let more = lines.len().saturating_sub(MAX_DETAILS);
        lines.truncate(MAX_DETAILS);
        if more.max(unlisted) > 0 {
            lines.push(format!("and {} more", more.max(unlisted)));
        }
        let message = lines.join("; ");
        let known = self.conditions.iter().find(|c| c.type_ == type_);
        let last_update_time = match known {
            Some(known) if known.message == message => known.last_update_time.clone(),
            _ => format!("{now:.0}"),
        };
        self.conditions.retain(|c| c.type_ != type_);
        if !message.is_empty() {
            self.conditions.push(Condition {
                type_: type_.to_owned(),
                status: "True".to_owned(),
                last_update_time,
                message,
                ..Condition::default()
            });
        }
    }

    /// A condition's status word, empty when it was never set.
    pub fn condition(&self, type_: &str) -> &str {
        let found = self
            .conditions
            .iter()
            .find(|condition| condition.type_ == type_);
        found.map_or("", |condition| condition.status.as_str())
    }

    /// Takes over what monitoring found, and sets Ready accordingly: the first reason why it is not.
    pub fn observe(&mut self, found: RedactedObservation, sync_generation: i64, now: Timestamp) {
        let RedactedObservation {
            all,
            non_ready,
            modified,
            is_plain: _,
        } = found;
        self.resource_counts = count(&all.resources, &all.non_ready, &all.modified);
        let resources = all.resources.len();
        self.resources = fitting(all.resources);
        self.ready = all.non_ready.is_empty();
        self.non_modified = all.modified.is_empty();
        self.incomplete_state = all.non_ready.len() > MAX_DETAILS
            || all.modified.len() > MAX_DETAILS
            || self.resources.len() < resources;
        let not_ready = non_ready.first().map(RedactedDetail::text);
        let message = not_ready.or_else(|| modified.first().map(RedactedDetail::text));
        self.non_ready_status = non_ready
            .into_iter()
            .map(RedactedDetail::into_inner)
            .collect();
        self.modified_status = modified
            .into_iter()
            .map(RedactedDetail::into_inner)
            .collect();
        self.sync_generation = Some(sync_generation);
        self.set_condition(READY, message.as_ref().map_or(Ok(()), Err), now);
    }

    /// Reports that another bundle has what was deployed.
    pub fn lost(&mut self, message: &PublicText, now: Timestamp) {
        self.resources.clear();
        self.non_ready_status.clear();
        self.modified_status.clear();
        self.resource_counts = ResourceCounts::default();
        self.incomplete_state = false;
        self.not_installed(message, now);
    }

    /// Reports a deployment that could not be made ready, in the words upstream shows for it.
    pub fn not_installed(&mut self, message: &PublicText, now: Timestamp) {
        self.ready = false;
        self.non_modified = true;
        self.set_condition(READY, Err(&public!("not ready: {}", *message)), now);
        let installed = public!("not installed: {}", *message);
        self.set_condition(INSTALLED, Err(&installed), now);
    }
}

/// How many more there are than a condition tells, if this is the end of its message.
pub(super) fn unlisted(line: &str) -> Option<usize> {
    line.strip_prefix("and ")?
        .strip_suffix(" more")?
        .parse()
        .ok()
}

type Key<'a> = (&'a str, &'a str, &'a str, &'a str);

fn count(
    resources: &[BundleDeploymentResource],
    non_ready: &[NonReadyStatus],
    modified: &[ModifiedStatus],
) -> ResourceCounts {
    let live: BTreeSet<Key<'_>> = resources
        .iter()
        .map(|r| {
            (
                r.kind.as_str(),
                r.api_version.as_str(),
                r.namespace.as_str(),
                r.name.as_str(),
            )
        })
        .collect();
    let mut rest = live.clone();
    let mut counts = ResourceCounts::default();
    let mut desired = live.len();
    for m in modified {
        let key: Key<'_> = (&m.kind, &m.api_version, &m.namespace, &m.name);
        match (m.missing, m.extra) {
            (true, _) => counts.missing += 1,
            (false, true) => counts.orphaned += 1,
            (false, false) => counts.modified += 1,
        }
        if m.missing && !live.contains(&key) {
            desired += 1;
        }
        rest.remove(&key);
    }
    for n in non_ready {
        let key: Key<'_> = (&n.kind, &n.api_version, &n.namespace, &n.name);
        // Absent: it was counted as modified.
        counts.not_ready += i64::from(rest.remove(&key));
    }
    counts.ready = as_count(rest.len());
    counts.desired_ready = as_count(desired);
    counts
}

fn as_count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// State of a bundle as `dependsOn` sees it; upstream's `GetDeploymentState`, first match wins.
pub fn state(bundle: &BundleDeployment) -> &'static str {
    let (spec, status) = (&bundle.spec, &bundle.status);
    if status.applied_deployment_id != spec.deployment_id {
        if status.condition(DEPLOYED) == "False" {
            "ErrApplied"
        } else {
            "WaitApplied"
        }
    } else if !status.ready {
        "NotReady"
    } else if spec.deployment_id != spec.staged_deployment_id {
        "OutOfSync"
    } else if !status.non_modified {
        "Modified"
    } else {
        "Ready"
    }
}

/// The merge patch that takes upstream from one status to another; `None` when there is nothing
/// to say.
pub fn patch(old: &BundleDeploymentStatus, new: &BundleDeploymentStatus) -> Option<Value> {
    let tree = |status: &BundleDeploymentStatus| {
        let mut tree = serde_json::to_value(status).unwrap_or_default();
        if let Value::Object(fields) = &mut tree {
            // The controller's.
            fields.remove("display");
        }
        tree
    };
    let difference = merge_diff(&tree(old), &tree(new))?;
    Some(Value::Object(Map::from_iter([(
        "status".to_owned(),
        difference,
    )])))
}

/// The first of the objects that fit into a status.
fn fitting(mut resources: Vec<BundleDeploymentResource>) -> Vec<BundleDeploymentResource> {
    /// Names of fields, quotes and the time.
    const AROUND: usize = 110;
    let mut left = MAX_RESOURCES_BYTES;
    let size = |of: &BundleDeploymentResource| {
        let texts = [&of.kind, &of.api_version, &of.namespace, &of.name];
        AROUND + texts.iter().map(|text| text.len()).sum::<usize>()
    };
    let fits = resources.iter().take_while(|resource| {
        let rest = left.checked_sub(size(resource));
        left = rest.unwrap_or_default();
        rest.is_some()
    });
    let fits = fits.count();
    resources.truncate(fits);
    resources
}

/// RFC 7396: what to merge into `old` to get `new`; `None` when they are equal.
fn merge_diff(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return Some(new.clone());
    };
    let mut difference = Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(before) => {
                difference.extend(merge_diff(before, value).map(|value| (key.clone(), value)));
            }
            None => {
                difference.insert(key.clone(), value.clone());
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        difference.insert(key.clone(), Value::Null);
    }
    Some(Value::Object(difference))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public::redact::MAX_DETAIL_BYTES;
    use rstest::rstest;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn redacted(found: Observation) -> RedactedObservation {
        found.redact(&SensitiveData::default())
    }

    fn resource(name: &str) -> BundleDeploymentResource {
        BundleDeploymentResource {
            kind: "ConfigMap".into(),
            api_version: "v1".into(),
            namespace: "ns".into(),
            name: name.into(),
            created_at: None,
        }
    }

    fn modified(name: &str) -> ModifiedStatus {
        ModifiedStatus {
            kind: "ConfigMap".into(),
            api_version: "v1".into(),
            namespace: "ns".into(),
            name: name.into(),
            ..Default::default()
        }
    }

    fn non_ready(name: &str, uid: &str) -> NonReadyStatus {
        NonReadyStatus {
            uid: uid.into(),
            kind: "ConfigMap".into(),
            api_version: "v1".into(),
            namespace: "ns".into(),
            name: name.into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_text_changes() {
        let mut status = BundleDeploymentStatus::default();
        status.set_condition(READY, Err(&"a".into()), at(1));
        status.set_condition(READY, Err(&"a".into()), at(2));
        assert_eq!(
            status.conditions[0].last_update_time,
            "1970-01-01T00:00:01Z"
        );
        status.set_condition(READY, Err(&"b".into()), at(3));
        assert_eq!(
            status.conditions[0].last_update_time,
            "1970-01-01T00:00:03Z"
        );
        status.set_condition(READY, Ok(()), at(4));
        let condition = &status.conditions[0];
        assert_eq!(
            (condition.reason.as_str(), condition.message.as_str()),
            ("", "")
        );
        assert_eq!(status.conditions.len(), 1);
    }

    #[test]
    fn counts_add_missing_objects_and_count_each_object_once() {
        let found = Observation {
            resources: vec![resource("a"), resource("b"), resource("c")],
            non_ready: vec![non_ready("a", "2"), non_ready("b", "1")],
            modified: vec![
                modified("a"),
                ModifiedStatus {
                    missing: true,
                    ..modified("gone")
                },
                ModifiedStatus {
                    extra: true,
                    ..modified("old")
                },
            ],
            ..Default::default()
        };
        let mut status = BundleDeploymentStatus::default();
        status.observe(redacted(found), 0, at(0));
        assert_eq!(
            status.resource_counts,
            ResourceCounts {
                desired_ready: 4,
                ready: 1,
                modified: 1,
                missing: 1,
                orphaned: 1,
                not_ready: 1,
                ..Default::default()
            }
        );
        assert_eq!(status.non_ready_status[0].name, "b");
        assert!(!status.ready && !status.non_modified && !status.incomplete_state);
    }

    #[test]
    fn long_lists_are_cut_and_counted_in_full() {
        let many = (0..12).map(|n| ModifiedStatus {
            missing: true,
            ..modified(&n.to_string())
        });
        let found = Observation {
            modified: many.collect(),
            ..Default::default()
        };
        let mut status = BundleDeploymentStatus::default();
        status.observe(redacted(found), 3, at(0));
        assert_eq!(
            (status.modified_status.len(), status.resource_counts.missing),
            (10, 12)
        );
        assert!(status.incomplete_state);
        assert_eq!(status.sync_generation, Some(3));
        status.observe(redacted(Observation::default()), 3, at(0));
        assert!(!status.incomplete_state && status.ready);
    }

    #[test]
    fn a_status_fits_into_the_api_servers_limit() {
        let keys: Map<_, _> = (0..9_000)
            .map(|at| (format!("key-{at}"), Value::from("x".repeat(100))))
            .collect();
        let patch = serde_json::json!({"data": keys, "kind": "x"}).to_string();
        let name = |at: usize| format!("{at}-{}", "n".repeat(240));
        let found = Observation {
            resources: (0..20_000).map(|at| resource(&name(at))).collect(),
            non_ready: (0..10)
                .map(|at| NonReadyStatus {
                    summary: crate::api::Summary {
                        message: vec!["m".repeat(1 << 20), "and".to_owned()],
                        ..Default::default()
                    },
                    ..non_ready(&name(at), &name(at))
                })
                .collect(),
            modified: (0..10)
                .map(|at| ModifiedStatus {
                    patch: patch.clone(),
                    ..modified(&name(at))
                })
                .collect(),
            ..Default::default()
        };
        let mut status = BundleDeploymentStatus::default();
        status.observe(redacted(found), 0, at(0));
        let size = serde_json::to_vec(&status).unwrap().len();
        assert!((900 << 10) > size && size > 700 << 10, "{size}");
        assert!(status.incomplete_state && status.resources.len() > 1_000);
        assert_eq!(status.resource_counts.desired_ready, 20_000);
        assert_eq!(
            status.modified_status[0].patch,
            r#"{"data":{"...":"9000 fields"},"kind":"..."}"#
        );
        let messages = &status.non_ready_status[0].summary.message;
        assert_eq!(messages[0].len(), MAX_DETAIL_BYTES);
    }

    #[test]
    fn ready_reports_the_first_reason() {
        let mut status = BundleDeploymentStatus::default();
        let found = Observation {
            modified: vec![ModifiedStatus {
                missing: true,
                ..modified("gone")
            }],
            ..Default::default()
        };
        status.observe(redacted(found), 0, at(0));
        assert_eq!(status.conditions[0].message, "configmap.v1 ns/gone missing");
    }

    #[rstest]
    #[case::nothing_applied("new", "old", "", true, true, "WaitApplied")]
    #[case::failed("new", "old", "False", true, true, "ErrApplied")]
    #[case::not_ready("id", "id", "False", false, true, "NotReady")]
    #[case::modified("id", "id", "True", true, false, "Modified")]
    #[case::ready("id", "id", "True", true, true, "Ready")]
    fn states(
        #[case] desired: &str,
        #[case] applied: &str,
        #[case] deployed: &str,
        #[case] ready: bool,
        #[case] non_modified: bool,
        #[case] expected: &str,
    ) {
        let mut bundle = BundleDeployment::default();
        bundle.spec.deployment_id = desired.into();
        bundle.spec.staged_deployment_id = desired.into();
        bundle.status.applied_deployment_id = applied.into();
        bundle.status.ready = ready;
        bundle.status.non_modified = non_modified;
        if !deployed.is_empty() {
            let why = PublicText::from("x");
            let outcome = (deployed == "True").then_some(()).ok_or(&why);
            bundle.status.set_condition(DEPLOYED, outcome, at(0));
        }
        assert_eq!(state(&bundle), expected);
        if expected == "Ready" {
            bundle.spec.staged_deployment_id = "next".into();
            assert_eq!(state(&bundle), "OutOfSync");
        }
    }

    #[test]
    fn patches_hold_only_what_changed_and_never_display() {
        let mut old = BundleDeploymentStatus {
            release: "a/b:1".into(),
            ..Default::default()
        };
        old.display.state = "Ready".into();
        let mut new = old.clone();
        assert_eq!(patch(&old, &new), None);
        new.display.state.clear();
        assert_eq!(patch(&old, &new), None);
        new.release.clear();
        new.ready = true;
        new.sync_generation = Some(0);
        new.resource_counts.ready = 2;
        assert_eq!(
            patch(&old, &new),
            Some(json!({"status": {
                "release": null, "ready": true, "syncGeneration": 0, "resourceCounts": {"ready": 2},
            }}))
        );
    }
}
