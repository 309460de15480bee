//! The one-line verdict on a live object that Fleet shows in `status.nonReadyStatus`.
//!
//! Mirrors Fleet's `internal/cmd/agent/deployer/summary` (its own branch of wrangler's), step by
//! step: conditions by table, then phase, removal, kstatus. Its relationship collectors are left
//! out: nothing of them is serialised.

mod tables;

use std::collections::{HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use objects::fields;
use objects::readiness::{Readiness, Status, kstatus};
use serde_json::Value;

pub use tables::{ErrorMapping, MappingError};

use crate::api::{NonReadyStatus, Summary};
use crate::public::redact::MAX_TEXT_BYTES;

/// So much of a message is kept, in bytes: more than is shown, so that a cut is seen.
const MOST_READ: usize = 2 * MAX_TEXT_BYTES;

/// Summarises a live object. The state is as the object has it, while the status shows it in small letters: secrets are not found in these.
///
/// `mapping` says which conditions are errors for which kind; `now` bounds how long a new Rancher
/// object may be initialising and a removed one may linger.
pub fn summarize(object: &Value, mapping: &ErrorMapping, now: Timestamp) -> Summary {
    let conditions = conditions(object);
    let mut summary = Summary::default();
    status_summary(object, &mut summary);
    errors(object, &conditions, mapping, &mut summary);
    transitioning(&conditions, &mut summary);
    active(object, &mut summary);
    phase(object, &mut summary);
    initializing(object, &conditions, now, &mut summary);
    removing(object, &conditions, now, &mut summary);
    let readiness = kstatus::compute(object, now).ok();
    if let Some(readiness) = &readiness {
        standard(object, readiness, &mut summary);
    }
    load_balancer(object, &mut summary);
    if let Some(readiness) = readiness {
        match readiness.status {
            Status::InProgress | Status::Terminating => summary.transitioning = true,
            Status::Failed => summary.error = true,
            Status::Current | Status::NotFound | Status::Unknown => {}
        }
        summary
            .message
            .push(without_repeats(readiness.message.split("; ")).join("; "));
    }
    if summary.state.is_empty() {
        summary.state = "active".to_owned();
    }
    let whole = summary.message.iter().map(|message| message.trim());
    let trimmed = whole
        .map(|message| &message[..message.floor_char_boundary(MOST_READ)])
        .filter(|message| !message.is_empty());
    summary.message = without_repeats(trimmed)
        .into_iter()
        .map(str::to_owned)
        .collect();
    summary
}

/// The entry of `status.nonReadyStatus` for a live object; `None` where it is ready. Its state is put into small letters once it is shown.
pub fn non_ready(object: &Value, mapping: &ErrorMapping, now: Timestamp) -> Option<NonReadyStatus> {
    let summary = summarize(object, mapping, now);
    let field = |path: &[&str]| fields::str_or(object, path, "").to_owned();
    (!summary.is_ready()).then(|| NonReadyStatus {
        uid: field(&["metadata", "uid"]),
        kind: field(&["kind"]),
        api_version: field(&["apiVersion"]),
        namespace: field(&["metadata", "namespace"]),
        name: field(&["metadata", "name"]),
        summary,
    })
}

/// A field of a condition, and what it says.
type FieldAndValue<'a> = (&'a str, &'a str);

/// Conditions that do not count (`spec.options.ignore.conditions`): what they say, by that of it which the fewest say. There may be thousands of
/// them, each with fields of its own, and of an object's: each of these is compared with those alone that have something in common with it.
#[derive(Default)]
pub struct IgnoredConditions<'a> {
    rules: HashMap<FieldAndValue<'a>, Vec<Vec<FieldAndValue<'a>>>>,
    /// A rule without conditions ignores all.
    has_all: bool,
}

impl<'a, P> FromIterator<P> for IgnoredConditions<'a>
where
    P: IntoIterator<Item = (&'a String, &'a String)>,
{
    fn from_iter<I: IntoIterator<Item = P>>(all: I) -> Self {
        let all = all.into_iter().map(|pairs| {
            let pairs = pairs.into_iter().map(|(k, v)| (&**k, &**v));
            pairs.collect::<Vec<_>>()
        });
        let all: HashSet<_> = all.collect();
        let mut counts: HashMap<_, usize> = HashMap::new();
        for pair in all.iter().flatten() {
            *counts.entry(*pair).or_default() += 1;
        }
        let mut ignored = Self::default();
        for pairs in all {
            match pairs.iter().min_by_key(|pair| counts.get(*pair)) {
                Some(rarest) => ignored.rules.entry(*rarest).or_default().push(pairs),
                None => ignored.has_all = true,
            }
        }
        ignored
    }
}

impl IgnoredConditions<'_> {
    /// Whether no condition is ignored.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && !self.has_all
    }

    /// Whether the condition says all that one of them does.
    fn has(&self, condition: &Value) -> bool {
        let says = |(name, text): &(&str, &str)| {
            condition.get(name).and_then(Value::as_str) == Some(*text)
        };
        let fields = condition.as_object().into_iter().flatten();
        let mut texts = fields.filter_map(|(name, text)| Some((&**name, text.as_str()?)));
        self.has_all
            || texts.any(|pair| {
                let rules = self.rules.get(&pair).into_iter().flatten();
                rules.into_iter().any(|rule| rule.iter().all(says))
            })
    }
}

/// Takes the conditions out of `object` that match every key and value of one of `ignored`.
///
/// An object whose status does not hold a list of maps is left as it is.
pub fn exclude_ignored_conditions(object: &mut Value, ignored: &IgnoredConditions<'_>) {
    let conditions = match fields::nested_list(object, &["status", "conditions"]) {
        Ok(conditions) => conditions.cloned().unwrap_or_default(),
        Err(_) => return,
    };
    if !conditions.iter().all(Value::is_object) {
        return;
    }
    let kept = conditions.into_iter().filter(|one| !ignored.has(one));
    let kept: Vec<Value> = kept.collect();
    let Some(object) = object.as_object_mut() else {
        return;
    };
    let status = object
        .entry("status")
        .or_insert_with(|| Value::Object(Default::default()));
    if let Some(status) = status.as_object_mut() {
        status.insert("conditions".to_owned(), Value::Array(kept));
    }
}

/// A condition of the object, each field as trimmed text.
struct Condition {
    condition_type: String,
    status: String,
    reason: String,
    message: String,
}

fn conditions(object: &Value) -> Vec<Condition> {
    let from = |status: Option<&Value>| -> Vec<Condition> {
        let list = status
            .and_then(|s| s.get("conditions"))
            .and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .map(|entry| Condition {
                condition_type: text(entry, &["type"]),
                status: text(entry, &["status"]),
                reason: text(entry, &["reason"]),
                message: text(entry, &["message"]),
            })
            .collect()
    };
    let mut conditions = from(object.get("status"));
    // Rancher keeps conditions of foreign kinds in an annotation.
    let annotated = text(object, &["metadata", "annotations", "cattle.io/status"]);
    if let Ok(status) = golib::json::decode(annotated.as_bytes()) {
        // Of numbers in a text Go makes floats, and prints them as such.
        conditions.extend(from(Some(&golib::json::floats(status))));
    }
    conditions
}

/// The value at `path` as Fleet's `data.Object.String` prints it: the first element of a list,
/// trimmed; empty where absent.
fn text(object: &Value, path: &[&str]) -> String {
    to_text(path.iter().try_fold(object, |value, key| value.get(key)))
}

fn to_text(value: Option<&Value>) -> String {
    let value = match value {
        Some(Value::Array(list)) => list.first(),
        other => other,
    };
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.trim().to_owned(),
        Some(value) => golib::json::go_text(value).trim().to_owned(),
    }
}

fn to_bool(value: &Value) -> bool {
    // Twice: a list in a list still counts by its first element.
    let value = match value {
        Value::Array(list) => list.first(),
        value => Some(value),
    };
    let text = to_lower(&to_text(value));
    matches!(text.as_str(), "true" | "t" | "yes" | "y")
}

/// Go's `strings.ToLower`.
fn to_lower(text: &str) -> String {
    text.chars().map(golib::unicode::to_lower).collect()
}

fn without_repeats<'a>(parts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    parts.filter(|part| seen.insert(*part)).collect()
}

fn status_summary(object: &Value, summary: &mut Summary) {
    let table = |name: &str| {
        let table = object.get("status")?.get(name)?.as_object()?;
        (!table.is_empty()).then_some(table)
    };
    let Some(display) = table("display").or_else(|| table("summary")) else {
        return;
    };
    if let Some(state) = display.get("state") {
        summary.state = to_text(Some(state));
    }
    if let Some(transitioning) = display.get("transitioning") {
        summary.transitioning = to_bool(transitioning);
    }
    if let Some(error) = display.get("error") {
        summary.error = to_bool(error);
    }
    if let Some(message) = display.get("message") {
        summary.message.push(to_text(Some(message)));
    }
}

fn errors(object: &Value, conditions: &[Condition], mapping: &ErrorMapping, summary: &mut Summary) {
    let api_version = object
        .get("apiVersion")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let kind = object
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let rules = mapping.for_kind(api_version, kind);
    for condition in conditions {
        let is_error = condition.reason == "Error"
            || rules
                .get(&condition.condition_type)
                .is_some_and(|statuses| statuses.contains(&condition.status));
        if is_error {
            summary.error = true;
            summary.message.push(condition.message.clone());
            if summary.state.is_empty() || summary.state == "active" {
                summary.state = "error".to_owned();
            }
        }
    }
}

fn transitioning(conditions: &[Condition], summary: &mut Summary) {
    for condition in conditions {
        let Some(state) = tables::state_when_not_true(&condition.condition_type) else {
            continue;
        };
        if condition.status == "False" {
            summary.error = true;
        } else if condition.status == "Unknown" && summary.state.is_empty() {
            summary.transitioning = true;
        } else {
            continue;
        }
        summary.state = state.to_owned();
        summary.message.push(condition.message.clone());
    }
    for condition in conditions {
        if !summary.state.is_empty() {
            break;
        }
        if condition.condition_type == "Reconciling" && condition.status == "True" {
            summary.transitioning = true;
            summary.state = "reconciling".to_owned();
            summary.message.push(condition.message.clone());
        }
    }
    let mut not_ready = None;
    for condition in conditions {
        if !summary.state.is_empty() {
            break;
        }
        if condition.condition_type == "Ready" && condition.status == "False" {
            not_ready = Some(&condition.message);
            continue;
        }
        let state = match condition.condition_type.as_str() {
            "Completed" => "activating",
            "Ready" => "unavailable",
            "Available" => "updating",
            "BootstrapReady" | "InfrastructureReady" | "NodeHealthy" => &condition.reason,
            _ => continue,
        };
        match condition.status.as_str() {
            "False" => summary.transitioning = true,
            "Unknown" => summary.error = true,
            _ => continue,
        }
        summary.state = state.to_owned();
        summary.message.push(condition.message.clone());
    }
    if let (true, Some(message)) = (summary.state.is_empty(), not_ready) {
        summary.transitioning = true;
        summary.state = "unavailable".to_owned();
        summary.message.push(message.clone());
    }
}

fn active(object: &Value, summary: &mut Summary) {
    if !summary.state.is_empty() {
        return;
    }
    match text(object, &["spec", "active"]).as_str() {
        "true" => summary.state = "active".to_owned(),
        "false" => summary.state = "inactive".to_owned(),
        _ => {}
    }
}

fn phase(object: &Value, summary: &mut Summary) {
    let phase = text(object, &["status", "phase"]);
    match phase.as_str() {
        "Succeeded" | "Bound" => {
            summary.state = to_lower(&phase);
            summary.transitioning = false;
        }
        "" => {}
        _ if summary.state.is_empty() => summary.state = phase,
        _ => {}
    }
}

fn initializing(object: &Value, conditions: &[Condition], now: Timestamp, summary: &mut Summary) {
    let has_conditions = object
        .get("status")
        .is_some_and(|s| s.get("conditions").is_some());
    if summary.state.is_empty()
        && has_conditions
        && conditions.is_empty()
        && text(object, &["apiVersion"]).contains("cattle.io")
        && age(&text(object, &["metadata", "created"]), now)
            .is_some_and(|age| age < SignedDuration::from_secs(5))
    {
        summary.state = "initializing".to_owned();
        summary.transitioning = true;
    }
}

fn removing(object: &Value, conditions: &[Condition], now: Timestamp, summary: &mut Summary) {
    let removed = text(object, &["metadata", "removed"]);
    if removed.is_empty() {
        return;
    }
    summary.state = "removing".to_owned();
    summary.transitioning = true;
    for condition in conditions {
        let is_open = matches!(condition.status.as_str(), "Unknown" | "False");
        if condition.condition_type == "Removed" && is_open && !condition.message.is_empty() {
            summary.message.push(condition.message.clone());
        }
    }
    let first_finalizer = |table: &str| match object.get(table)?.get("finalizers")? {
        Value::Array(list) => list.first().map(|name| to_text(Some(name))),
        Value::String(name) => Some(name.clone()),
        _ => None,
    };
    let Some(finalizer) = first_finalizer("metadata").or_else(|| first_finalizer("spec")) else {
        return;
    };
    let owner = match finalizer.split_once("controller.cattle.io/") {
        Some((_, owner)) => owner.trim(),
        None => finalizer.trim(),
    };
    let owner = if owner == "foregroundDeletion" {
        "object cleanup"
    } else {
        owner
    };
    summary.message.push(format!("waiting on {owner}"));
    if age(&removed, now).is_some_and(|age| age > SignedDuration::from_mins(5)) {
        summary.error = true;
    }
}

/// Time since an RFC 3339 instant, cut to whole seconds as upstream does; `None` for other text.
fn age(instant: &str, now: Timestamp) -> Option<SignedDuration> {
    let instant: Timestamp = instant.parse().ok()?;
    Some(now.duration_since(Timestamp::from_second(instant.as_second()).ok()?))
}

fn standard(object: &Value, readiness: &Readiness, summary: &mut Summary) {
    // Objects of Rancher's own API have a path for a type; kstatus' rules are not for them.
    if !summary.state.is_empty() || text(object, &["type"]).starts_with('/') {
        return;
    }
    let state = match readiness.status {
        Status::InProgress => "in-progress",
        Status::Failed => "failed",
        Status::Current => "active",
        Status::Terminating => "removing",
        Status::NotFound | Status::Unknown => return,
    };
    summary.transitioning |= matches!(readiness.status, Status::InProgress | Status::Terminating);
    summary.error |= readiness.status == Status::Failed;
    summary.state = state.to_owned();
    summary.message.push(readiness.message.clone());
}

fn load_balancer(object: &Value, summary: &mut Summary) {
    let is_load_balancer = text(object, &["kind"]) == "Service"
        && ["serviceKind", "type"]
            .iter()
            .any(|f| text(object, &["spec", f]) == "LoadBalancer");
    if !is_load_balancer || !matches!(summary.state.as_str(), "" | "active") {
        return;
    }
    let ingress = fields::nested_list(object, &["status", "loadBalancer", "ingress"]);
    if ingress.ok().flatten().is_none_or(Vec::is_empty) {
        summary.state = "pending".to_owned();
        summary.transitioning = true;
        summary
            .message
            .push("Load balancer is being provisioned".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use serde_json::json;

    /// Compared with each other, these would take minutes.
    #[test]
    fn repeated_parts_of_a_message_are_removed_in_one_pass() {
        let parts: Vec<_> = (0..300_000).map(|n| n.to_string()).collect();
        let twice = [&*parts, &*parts].concat().join("; ");
        let stalled = json!({ "type": "Stalled", "status": "True", "message": twice });
        let object = json!({ "kind": "Any", "apiVersion": "example.com/v1", "status": { "conditions": [stalled] } });
        let summary = summarize(&object, &ErrorMapping::default(), Timestamp::UNIX_EPOCH);
        let kept = &parts.join("; ")[..MOST_READ];
        assert_eq!(summary.message.last().map(String::as_str), Some(kept));
    }

    #[test]
    fn a_condition_is_ignored_where_it_matches_all_fields_of_a_rule() {
        let rule = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let pairs = pairs.iter();
            pairs.map(|(k, v)| ((*k).into(), (*v).into())).collect()
        };
        let mut rules = vec![
            rule(&[("type", "Ready")]),
            rule(&[("type", "Stalled"), ("reason", "Busy")]),
        ];
        rules.extend((0..20_000).map(|n| rule(&[("type", &n.to_string())])));
        // Each has fields of its own: asked one by one for each condition, these would take minutes.
        rules.extend((0..20_000).map(|n| rule(&[("type", "Other"), (&n.to_string(), "x")])));
        let condition = |kind: &str, reason: &str| json!({ "type": kind, "reason": reason });
        let mut conditions = vec![
            condition("Ready", "Any"),
            condition("Stalled", "Busy"),
            condition("Stalled", "Other"),
            json!({ "type": 7 }),
        ];
        conditions.extend((0..20_000).map(|n| condition(&n.to_string(), "")));
        let mut object = json!({ "status": { "conditions": conditions } });
        exclude_ignored_conditions(&mut object, &rules.iter().collect());
        let kept = json!([condition("Stalled", "Other"), { "type": 7 }]);
        assert_eq!(object["status"]["conditions"], kept);
        // A rule that says nothing is about all of them.
        exclude_ignored_conditions(&mut object, &[&rule(&[])].into_iter().collect());
        assert_eq!(object["status"]["conditions"], json!([]));
    }

    /// As Fleet's own package says at 3b2c622c.
    #[test]
    fn a_status_annotation_is_printed_as_go_prints_it() {
        let status = r#"{"conditions":[{"type":"Active","status":"False","message":10000000}]}"#;
        let object = json!({
            "kind": "Any", "apiVersion": "example.com/v1",
            "metadata": { "annotations": { "cattle.io/status": status } },
            "status": { "display": { "error": [[true]] } },
        });
        let summary = summarize(&object, &ErrorMapping::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(summary.message.first().map(String::as_str), Some("1e+07"));
        let object = json!({ "status": { "display": { "error": [["yes"]], "state": "\u{130}" } } });
        let summary = summarize(&object, &ErrorMapping::default(), Timestamp::UNIX_EPOCH);
        assert!(summary.error && to_lower(&summary.state) == "i");
    }
}
