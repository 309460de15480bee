//! Who owns which fields, and what a write makes of an object.
//!
//! Mirrors `structured-merge-diff/merge/update.go` and `apimachinery/pkg/util/managedfields`.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::fields::{self, Fields};
use super::kinds::Kind;
use super::request::{Answer, Request};
use super::schema::{SERVERS, Schema};

/// One entry of `managedFields`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Managed {
    manager: String,
    operation: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subresource: String,
    api_version: String,
    time: String,
    fields_type: &'static str,
    #[serde(rename = "fieldsV1")]
    fields: Fields,
}

const FIELDS_TYPE: &str = "FieldsV1";

/// Who writes, in which way.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) manager: String,
    pub(crate) operation: &'static str,
    pub(crate) subresource: String,
    pub(crate) api_version: String,
    pub(crate) time: String,
    pub(crate) group: String,
    pub(crate) kind: String,
}

impl Writer {
    fn schema(&self) -> Schema<'_> {
        Schema::of(&self.group, &self.kind)
    }

    fn is(&self, managed: &Managed) -> bool {
        managed.manager == self.manager
            && managed.operation == self.operation
            && managed.subresource == self.subresource
    }
}

impl Managed {
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub(crate) fn new(writer: &Writer, fields: Fields) -> Self {
        Self {
            manager: writer.manager.clone(),
            operation: writer.operation.to_owned(),
            subresource: writer.subresource.clone(),
            api_version: writer.api_version.clone(),
            time: writer.time.clone(),
            fields_type: FIELDS_TYPE,
            fields,
        }
    }
}

/// Takes a field of the top away from everybody who owns nothing below it.
pub(crate) fn disown(managed: &mut Vec<Managed>, field: &str) {
    let key = format!("f:{field}");
    for one in managed.iter_mut() {
        if one
            .fields
            .children
            .get(&key)
            .is_some_and(|own| own.children.is_empty())
        {
            one.fields.children.remove(&key);
        }
    }
    managed.retain(|one| !one.is_empty());
}

/// As `metadata.managedFields` has them.
pub(crate) fn printed(managed: &[Managed]) -> Value {
    serde_json::to_value(managed).unwrap_or_default()
}

/// Reads `metadata.managedFields`; one empty entry takes them all away.
pub(crate) fn read(written: &Value) -> Vec<Managed> {
    let entries = written.as_array().map_or(&[][..], Vec::as_slice);
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let managed = entries.iter().map(|entry| Managed {
        manager: text(entry, "manager"),
        operation: text(entry, "operation"),
        subresource: text(entry, "subresource"),
        api_version: text(entry, "apiVersion"),
        time: text(entry, "time"),
        fields_type: FIELDS_TYPE,
        fields: Fields::from_json(&entry["fieldsV1"]),
    });
    managed.filter(|one| !one.operation.is_empty()).collect()
}

/// Whether the same managers own the same fields, whenever they wrote them.
pub(crate) fn same(before: &[Managed], after: &[Managed]) -> bool {
    before.len() == after.len()
        && before.iter().zip(after).all(|(a, b)| {
            a.manager == b.manager && a.operation == b.operation && a.fields == b.fields
        })
}

/// The object without what no manager owns.
fn owned(value: &Value) -> Value {
    let mut value = value.clone();
    strip(&mut value);
    value
}

/// Takes away what no manager owns: identity, and what the server alone writes.
pub(crate) fn strip(value: &mut Value) {
    let Some(map) = value.as_object_mut() else {
        return;
    };
    map.remove("apiVersion");
    map.remove("kind");
    if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in SERVERS {
            metadata.remove(field);
        }
        if metadata.is_empty() {
            map.remove("metadata");
        }
    }
}

/// The fields an apply of `wanted` owns.
pub(crate) fn applied_fields(writer: &Writer, wanted: &Value) -> Fields {
    fields_of(writer, &without_nulls(wanted))
}

fn fields_of(writer: &Writer, wanted: &Value) -> Fields {
    match wanted.as_object().is_none_or(Map::is_empty) {
        true => Fields::default(),
        false => fields::of(wanted, writer.schema()),
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(k, v)| (k.clone(), without_nulls(v))).collect())
        }
        value => value.clone(),
    }
}

/// Lays an apply over the live object; the fields that others own if it may not.
pub(crate) fn applied(
    managed: &mut Vec<Managed>,
    live: &Value,
    wanted: &Value,
    writer: &Writer,
    force: bool,
) -> Result<Value, Vec<(String, String)>> {
    let schema = writer.schema();
    let wanted = without_nulls(wanted);
    let now = fields_of(writer, &wanted);
    let before = owned(live);
    let merged = fields::merge(&before, &wanted, schema);
    let (changed, _) = fields::compare(&before, &merged, schema);
    let mut conflicts = Vec::new();
    for other in managed.iter().filter(|other| !writer.is(other)) {
        let common = other.fields.common(&changed);
        let name = match (other.operation.as_str(), other.subresource.as_str()) {
            ("Apply", _) => format!("\"{}\"", other.manager),
            (_, "") => format!("\"{}\" using {}", other.manager, other.api_version),
            (_, subresource) => format!(
                "\"{}\" with subresource \"{subresource}\" using {}",
                other.manager, other.api_version
            ),
        };
        let paths = common.paths().into_iter();
        conflicts.extend(paths.map(|path| (name.clone(), path)));
    }
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    let old = managed
        .iter()
        .find(|one| writer.is(one))
        .map(|one| one.fields.clone())
        .unwrap_or_default();
    for other in managed.iter_mut().filter(|other| !writer.is(other)) {
        other.fields = other.fields.minus(&changed);
    }
    managed.retain(|one| !one.fields.is_empty() || writer.is(one));
    let mut kept = now.clone();
    for other in managed.iter().filter(|other| !writer.is(other)) {
        kept.union(&other.fields);
    }
    let gone = old.minus(&now);
    let mut result = merged;
    fields::prune(&mut result, &gone, Some(&kept), schema);
    match managed.iter_mut().find(|one| writer.is(one)) {
        Some(one) if one.fields == now => {}
        Some(one) => {
            one.fields = now;
            one.time.clone_from(&writer.time);
        }
        None => managed.push(Managed::new(writer, now)),
    }
    managed.retain(|one| !one.fields.is_empty());
    Ok(with_identity(result, live))
}

/// What was left out of the merge is put back.
fn with_identity(mut value: Value, live: &Value) -> Value {
    if !value.is_object() {
        value = json!({});
    }
    value["apiVersion"] = live["apiVersion"].clone();
    value["kind"] = live["kind"].clone();
    for (field, said) in live["metadata"].as_object().into_iter().flatten() {
        let is_merged = matches!(
            field.as_str(),
            "labels" | "annotations" | "finalizers" | "ownerReferences"
        );
        if !is_merged {
            value["metadata"][field] = said.clone();
        }
    }
    value
}

/// Notes who owns what after a write that is no apply.
pub(crate) fn updated(managed: &mut Vec<Managed>, before: &Value, after: &Value, writer: &Writer) {
    let schema = writer.schema();
    let is_new = before.is_null();
    let (changed, removed) = match is_new {
        true => (applied_fields(writer, after), Fields::default()),
        false => fields::compare(before, after, schema),
    };
    if changed.is_empty() && removed.is_empty() {
        return;
    }
    for other in managed.iter_mut().filter(|other| !writer.is(other)) {
        other.fields = other.fields.minus(&changed).minus(&removed);
    }
    match managed.iter_mut().find(|one| writer.is(one)) {
        Some(one) => {
            one.fields = one.fields.minus(&removed);
            one.fields.union(&changed);
            one.time.clone_from(&writer.time);
        }
        None => managed.push(Managed::new(writer, changed)),
    }
    managed.retain(|one| !one.fields.is_empty());
}

/// What is stored of a write: identity stays, and so does the half of the object that it is not for.
pub(crate) fn settled(subresource: &str, kind: &Kind, before: &Value, after: Value) -> Value {
    let mut after = after;
    if subresource == "status" {
        let mut kept = before.clone();
        match after.get("status") {
            Some(status) => kept["status"] = status.clone(),
            None => {
                if let Some(map) = kept.as_object_mut() {
                    map.remove("status");
                }
            }
        }
        return kept;
    }
    if kind.has_status {
        match before.get("status") {
            Some(status) => after["status"] = status.clone(),
            None => {
                if let Some(map) = after.as_object_mut() {
                    map.remove("status");
                }
            }
        }
    }
    after["apiVersion"] = before["apiVersion"].clone();
    after["kind"] = before["kind"].clone();
    if !after["metadata"].is_object() {
        after["metadata"] = json!({});
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ] {
        match before["metadata"].get(field) {
            Some(said) => after["metadata"][field] = said.clone(),
            None => {
                if let Some(metadata) = after["metadata"].as_object_mut() {
                    metadata.remove(field);
                }
            }
        }
    }
    if let Some(metadata) = after["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        super::object::drop_empty(metadata);
    }
    if kind.kind == "Namespace" && after.get("spec").is_none() {
        after["spec"] = before["spec"].clone();
    }
    after
}

/// Whether anything but metadata and status differs.
pub(crate) fn spec_changed(before: &Value, after: &Value) -> bool {
    fn rest(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
        let fields = value.as_object().into_iter().flatten();
        fields.filter(|(key, _)| !["metadata", "status"].contains(&key.as_str()))
    }
    !rest(before).eq(rest(after))
}

/// What validation says of an object. The one rule of the simulation's charts: an object with a field `refuse` is invalid.
pub(crate) fn invalid(kind: &Kind, body: &Value, request: &Request) -> Option<Answer> {
    let name = body.pointer("/metadata/name").and_then(Value::as_str);
    let field = body
        .pointer("/spec/refuse")
        .or_else(|| body.pointer("/data/refuse"))?;
    if field.is_null() || request.who.actor == super::Actor::System {
        return None;
    }
    let message = format!(
        "{} \"{}\" is invalid: spec.refuse: Invalid value: the chart asks to be refused",
        kind.kind,
        name.unwrap_or_default()
    );
    let details = json!({"name": name, "kind": kind.kind, "group": kind.group, "causes": [
        {"reason": "FieldValueInvalid", "message": "Invalid value: the chart asks to be refused",
         "field": "spec.refuse"}]});
    Some(Answer::failure(422, "Invalid", &message, &details))
}

/// A finalizer that is put on what is being deleted.
pub(crate) fn finalized(kind: &Kind, before: &Value, after: &Value, name: &str) -> Option<Answer> {
    before.pointer("/metadata/deletionTimestamp")?;
    let of = |object: &Value| -> Vec<String> {
        let finalizers = object["metadata"]["finalizers"].as_array();
        let finalizers = finalizers.into_iter().flatten();
        finalizers
            .filter_map(|one| one.as_str().map(str::to_owned))
            .collect()
    };
    let mut added = of(after);
    added.retain(|one| !of(before).contains(one));
    if added.is_empty() {
        return None;
    }
    let quoted: Vec<String> = added.iter().map(|one| format!("{one:?}")).collect();
    let said = format!(
        "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        quoted.join(", ")
    );
    Some(unprocessable(
        kind,
        name,
        "metadata.finalizers",
        "FieldValueForbidden",
        &said,
    ))
}

/// A change of what may not change.
pub(crate) fn immutable(kind: &Kind, before: &Value, after: &Value, name: &str) -> Option<Answer> {
    let field = match kind.kind.as_str() {
        "Deployment" | "StatefulSet" => "/spec/selector",
        "Job" => "/spec/template",
        "CustomResourceDefinition" => "/spec/scope",
        "Secret" => "/type",
        "PersistentVolumeClaim" => "/spec/storageClassName",
        _ => return None,
    };
    let (old, new) = (before.pointer(field)?, after.pointer(field));
    if Some(old) == new {
        return None;
    }
    let path = field[1..].replace('/', ".");
    let new = new.cloned().unwrap_or_default();
    let said = format!("Invalid value: {new}: field is immutable");
    Some(unprocessable(kind, name, &path, "FieldValueInvalid", &said))
}

/// What validation says of one field.
fn unprocessable(kind: &Kind, name: &str, path: &str, reason: &str, said: &str) -> Answer {
    let group = match kind.group.as_str() {
        "" => String::new(),
        group => format!(".{group}"),
    };
    let message = format!("{}{group} \"{name}\" is invalid: {path}: {said}", kind.kind);
    let details = json!({"name": name, "kind": kind.kind, "group": kind.group, "causes": [
        {"reason": reason, "message": said, "field": path}]});
    Answer::failure(422, "Invalid", &message, &details)
}
