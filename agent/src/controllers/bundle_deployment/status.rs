//! What a BundleDeployment's status says, computed from what was found.
//!
//! Mirrors `internal/cmd/agent/deployer/monitor`. What is sent upstream of it is in [`status_patch`](crate::controllers::status_patch).

use std::borrow::Cow;
use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use objects::ObjectKey;
use objects::conflict::{FieldConflict, Outcome};
use objects::drift::MASK;
use release::kube::Owner;

use crate::api::{
    BundleDeploymentResource, BundleDeploymentSpec, BundleDeploymentStatus, Condition,
    ModifiedStatus, NonReadyStatus, ResourceCounts,
};
use crate::controllers::conditions::{CORRECTIONS_POSTPONED, FIELD_CONFLICTS, INSTALLED, READY};
use crate::public;
use crate::public::redact::{RedactedDetail, SensitiveData};
use crate::public::{Name, PublicText, cut};

/// The longest message of a condition: a chart's `fail` may have megabytes to say, and a status that is too large is not taken at all.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 << 10;

/// Longest list of details in a status.
const MAX_DETAILS: usize = 10;

/// The longest line of a message that has several.
const MAX_LINE_BYTES: usize = MAX_MESSAGE_BYTES / MAX_DETAILS - 100;

/// The most that the list of objects may take, in bytes: an API server refuses what is above 1.5 MiB with the spec, and the former status would stay.
const MAX_RESOURCES_BYTES: usize = 768 << 10;

/// The most that an object may take as an API server stores it, in bytes: etcd takes 1.5 MiB, with metadata that others write too.
const MAX_OBJECT_BYTES: usize = (1 << 20) + (384 << 10);

/// What a status takes at least, of an object that has no room for it.
const LEAN_BYTES: usize = 16 << 10;

/// The only reason upstream knows for a condition that is False.
const REASON_ERROR: &str = "Error";

/// The observed state of a release's objects, in upstream's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Live, owned and wanted objects.
    pub resources: Vec<BundleDeploymentResource>,
    /// Objects that are not ready.
    pub non_ready: Vec<NonReadyStatus>,
    /// Objects that are missing, extra or changed.
    pub modified: Vec<ModifiedStatus>,
    /// Objects that exist but are not ours, with the release that has them, and since when.
    pub taken: Vec<(ObjectKey, Owner, String)>,
    /// Wanted objects that may not be the release's, whatever `diff` ignores, and the release whose marks they carry: they are not there, do not carry
    /// the bundle's label, or carry another release's marks. Not those that the account may not read.
    pub unowned: Vec<(ObjectKey, Option<Owner>)>,
    /// Whether the current difference of some objects is unknown.
    pub is_partial: bool,
}

/// An observation as a status shows it: the problems of the first objects, without secrets.
#[derive(Debug, Default)]
pub struct RedactedObservation {
    pub all: Observation,
    /// Whether the observation holds nothing secret.
    pub is_plain: bool,
    non_ready: Vec<RedactedDetail<NonReadyStatus>>,
    modified: Vec<RedactedDetail<ModifiedStatus>>,
}

impl Observation {
    /// The observation as the status may show it. Takes long with many secrets.
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

    /// Whether all objects are in order, so that there is nothing to report.
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
        self.set_lines(FIELD_CONFLICTS, conflict_lines(conflicts), 0, now);
    }

    /// The same of `objects` alone, which were written once more: what the condition says of others stays.
    pub fn renew_conflicts(
        &mut self,
        objects: &[ObjectKey],
        conflicts: &[FieldConflict],
        now: Timestamp,
    ) {
        let told = self.conditions.iter().find(|c| c.type_ == FIELD_CONFLICTS);
        let told = told.iter().flat_map(|told| told.message.split("; "));
        let mut lines: Vec<_> = told.map(str::to_owned).collect();
        let unlisted = lines.pop_if(|last| unlisted(last).is_some());
        let unlisted = unlisted.and_then(|last| self::unlisted(&last));
        let new = conflict_lines(conflicts);
        let objects: Vec<_> = objects.iter().map(object_text).collect();
        lines.retain(|line| {
            new.contains(line) || !objects.iter().any(|object| is_about(line, object))
        });
        let added: Vec<_> = new
            .into_iter()
            .filter(|line| !lines.contains(line))
            .collect();
        lines.extend(added);
        let more = lines.len().saturating_sub(MAX_DETAILS);
        let unlisted = unlisted.map_or(0, |unlisted| unlisted.saturating_add(more));
        self.set_lines(FIELD_CONFLICTS, lines, unlisted, now);
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
        for line in &mut lines {
            *line = cut(std::mem::take(line), MAX_LINE_BYTES);
        }
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

impl BundleDeploymentStatus {
    /// As much of it as an API server takes beside this spec.
    pub fn fitting(&self, spec: &BundleDeploymentSpec) -> Cow<'_, Self> {
        let own = weight(self);
        if own <= LEAN_BYTES {
            return Cow::Borrowed(self);
        }
        let most = MAX_OBJECT_BYTES
            .saturating_sub(weight(spec))
            .max(LEAN_BYTES);
        match own <= most {
            true => Cow::Borrowed(self),
            false => Cow::Owned(self.within(most)),
        }
    }

    /// The least that says how it stands.
    pub fn lean(&self) -> Self {
        self.within(LEAN_BYTES)
    }

    /// Without objects, patches and messages until it takes no more, in this order.
    fn within(&self, most: usize) -> Self {
        const SHORT: usize = 512;
        let mut status = self.clone();
        let mut over = weight(&status).saturating_sub(most);
        while over > 0
            && let Some(last) = status.resources.pop()
        {
            // And the comma before it.
            over = over.saturating_sub(weight(&last) + 1);
            status.incomplete_state = true;
        }
        if over > 0 {
            status.incomplete_state = true;
            for one in &mut status.modified_status {
                over = over.saturating_sub(one.patch.len());
                one.patch.clear();
            }
        }
        if weight(&status) > most {
            for one in &mut status.non_ready_status {
                one.summary.message.clear();
                one.summary.state = cut(std::mem::take(&mut one.summary.state), SHORT);
            }
            for one in &mut status.conditions {
                one.message = cut(std::mem::take(&mut one.message), SHORT);
            }
            status.incomplete_state = true;
        }
        status
    }
}

/// Size of a value as Go stores it, where some characters take six bytes.
fn weight(of: &impl serde::Serialize) -> usize {
    let tree = serde_json::to_value(of).unwrap_or_default();
    golib::json::encode(&tree).len()
}

/// A path in the API server's notation, `.list[key="a"].field`, without an element of a set: that is a value.
fn field_path(path: &str) -> PublicText {
    if path.contains(r#"\""#) {
        return MASK.into();
    }
    let mut is_element = false;
    let parts = path.split('"').enumerate().map(|(at, part)| {
        let is_masked = at % 2 == 1 && is_element;
        is_element = part.ends_with("[=");
        match is_masked {
            true => MASK.into(),
            false => public!("{}", Name(part)),
        }
    });
    PublicText::join(parts.collect::<Vec<_>>(), "\"")
}

/// An object, as the sentences about its fields name it.
fn object_text(object: &ObjectKey) -> PublicText {
    let ObjectKey {
        kind,
        namespace,
        name,
        ..
    } = object;
    match namespace.as_str() {
        "" => public!("{} {}", Name(kind), Name(name)),
        namespace => public!("{} {}/{}", Name(kind), Name(namespace), Name(name)),
    }
}

/// The sentences about conflicts, as a condition has them.
fn conflict_lines(conflicts: &[FieldConflict]) -> Vec<String> {
    let lines = conflicts.iter().map(|one| conflict_text(one).to_string());
    lines.map(|line| cut(line, MAX_LINE_BYTES)).collect()
}

/// Whether a sentence about a conflict is about this object.
fn is_about(line: &str, object: &str) -> bool {
    ["from", "to"]
        .iter()
        .any(|to| line.contains(&format!(" {object} {to} ")))
}

/// How a conflict over a field ended, as a condition and an Event report it.
pub(super) fn conflict_text(conflict: &FieldConflict) -> PublicText {
    let object = object_text(&conflict.object);
    let what = match conflict.field.as_str() {
        "" => object,
        field => public!("{} of {}", field_path(field), object),
    };
    let managers = conflict.managers.iter();
    let managers = managers.map(|manager| public!("{}", Name(manager)));
    let managers = match conflict.managers.is_empty() {
        true => "another manager".into(),
        false => PublicText::join(managers, ", "),
    };
    match conflict.outcome {
        Outcome::Taken => public!("took {} from {}", what, managers),
        Outcome::Left => public!("left {} to {}", what, managers),
    }
}

/// How many more there are than a condition names, if this is the end of its message.
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
        .map(|r| (&*r.kind, &*r.api_version, &*r.namespace, &*r.name))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public::redact::MAX_DETAIL_BYTES;
    use serde_json::{Map, Value};

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
    fn a_status_fits_beside_its_spec_as_go_stores_it() {
        let name = |at: usize| format!("{at}-{}", "n".repeat(240));
        let found = Observation {
            resources: (0..4_000).map(|at| resource(&name(at))).collect(),
            non_ready: (0..10)
                .map(|at| NonReadyStatus {
                    summary: crate::api::Summary {
                        message: vec!["<".repeat(1 << 20)],
                        ..Default::default()
                    },
                    ..non_ready(&name(at), &name(at))
                })
                .collect(),
            ..Default::default()
        };
        let mut status = BundleDeploymentStatus::default();
        status.observe(redacted(found), 0, at(0));
        let mut spec = BundleDeploymentSpec::default();
        assert!(weight(&status) > MAX_OBJECT_BYTES);
        for (id, some_resources) in [(0, true), (700 << 10, false), (3 << 20, false)] {
            spec.deployment_id = "i".repeat(id);
            let fitting = status.fitting(&spec);
            let room = MAX_OBJECT_BYTES
                .saturating_sub(weight(&spec))
                .max(LEAN_BYTES);
            assert!(weight(&*fitting) <= room, "{id}: {}", weight(&*fitting));
            assert_eq!(!fitting.resources.is_empty(), some_resources, "{id}");
            assert!(fitting.incomplete_state && fitting.resource_counts.desired_ready == 4_000);
            assert_eq!(fitting.non_ready_status.len(), 10);
        }
        let small = BundleDeploymentStatus::default();
        assert!(matches!(small.fitting(&spec), Cow::Borrowed(_)));
    }

    #[test]
    fn a_field_conflict_is_reported_without_values_and_cut() {
        let conflict = |field: &str| FieldConflict {
            object: ObjectKey {
                group: String::new(),
                kind: "ConfigMap".into(),
                namespace: "ns".into(),
                name: "web".into(),
            },
            field: field.to_owned(),
            managers: vec!["kubectl".to_owned()],
            outcome: Outcome::Taken,
        };
        let sentence = |field: &str| conflict_text(&conflict(field)).to_string();
        let of = "of ConfigMap ns/web from kubectl";
        for (field, shown) in [
            (r#".a.b[name="web"].image"#, r#".a.b[name="web"].image"#),
            (r#".list[="canary"]"#, r#".list[="xxxxx"]"#),
            (r#".list[="ca\"nary"]"#, "xxxxx"),
            (r#".list[="a canary"].b"#, r#".list[="xxxxx"].b"#),
        ] {
            assert_eq!(
                sentence(field),
                format!("took {} {of}", shown.replace("xxxxx", MASK))
            );
        }
        let mut status = BundleDeploymentStatus::default();
        status.set_conflicts(&[conflict("")], at(0));
        assert_eq!(
            status.conditions[0].message,
            "took ConfigMap ns/web from kubectl"
        );
        status.set_lines(FIELD_CONFLICTS, vec!["f".repeat(1 << 20); 30], 0, at(0));
        let message = &status.conditions[0].message;
        assert!(message.len() <= MAX_MESSAGE_BYTES && message.ends_with("and 20 more"));
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
}
