//! Taking over the fields that another Helm client owns.
//!
//! A release written by Helm's command line, by Helm 3 or by a merge on the client's side has its
//! fields under other managers. Server-side apply alone would share them, and a field that the
//! chart drops would stay for ever. So, once, their entries in `managedFields` become ours. The
//! client is known by what it wrote: the annotation that names the release. A merge on the client's
//! side would also remove what the chart drops where somebody else had edited it meanwhile, which
//! applying alone does not: what is left of it afterwards is removed ([`left_over`]).
//!
//! Mirrors `csaupgrade` of client-go, which knows the old manager's name instead.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::client::{Cluster, FIELD_MANAGER};
use super::error::ApiError;
use super::object::Object;
use objects::merge::{self, Patch};

/// Makes the entries of other Helm clients ours; gives their names. A missing object is fine.
pub(super) async fn take_over(cluster: &Cluster, object: &Object) -> Result<Vec<String>, ApiError> {
    const TRIES: u32 = 5;
    let mut tries = 1;
    loop {
        let Some(live) = cluster.get(object).await? else {
            return Ok(Vec::new());
        };
        let Some(entries) = merged(&live) else {
            return Ok(Vec::new());
        };
        let patch = json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            {"op": "replace", "path": "/metadata/resourceVersion",
             "value": live.pointer("/metadata/resourceVersion")},
        ]);
        match cluster.json_patch(object, &patch).await {
            Err(error) if error.is_conflict() && tries < TRIES => tries += 1,
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            other => return other.map(|_| former(&live)),
        }
    }
}

/// What removes from `live` that the last manifest had and this one has not; none if it is gone.
pub(super) fn left_over(previous: &Value, object: &Object, live: &Value) -> Option<Patch> {
    match merge::removal(previous, &object.body, live) {
        // A chart that drops replicas hands them to whoever scales.
        Ok(Some(patch)) if is_scaled(live) => patch.without(&["spec", "replicas"]),
        Ok(patch) => patch,
        Err(error) => {
            let object = object.describe();
            tracing::warn!(object, %error, "cannot tell what the last manifest left behind");
            None
        }
    }
}

/// Whether somebody scales the object.
fn is_scaled(live: &Value) -> bool {
    let entries = live
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    entries.into_iter().flatten().any(|entry| {
        entry["subresource"] == "scale" && entry.pointer("/fieldsV1/f:spec/f:replicas").is_some()
    })
}

/// The managers whose entries are taken over, without our own name.
fn former(live: &Value) -> Vec<String> {
    let entries = live
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    let entries = entries.into_iter().flatten();
    let names = entries
        .filter(|entry| is_taken_over(entry))
        .filter_map(|entry| entry["manager"].as_str());
    let others: BTreeSet<&str> = names.filter(|name| *name != FIELD_MANAGER).collect();
    others.into_iter().map(str::to_owned).collect()
}

/// The new `managedFields`; `None` if no other Helm client wrote the object.
fn merged(live: &Value) -> Option<Value> {
    let entries = live.pointer("/metadata/managedFields")?.as_array()?;
    let (foreign, mut kept): (Vec<Value>, Vec<Value>) =
        entries.iter().cloned().partition(is_taken_over);
    let mut first = foreign.first()?.clone();
    let mut fields = Map::new();
    let is_ours = |entry: &Value| {
        entry["manager"] == FIELD_MANAGER
            && entry["operation"] == "Apply"
            && entry.get("subresource").is_none()
    };
    for entry in foreign
        .iter()
        .chain(kept.iter().filter(|entry| is_ours(entry)))
    {
        if let Some(more) = entry.get("fieldsV1").and_then(Value::as_object) {
            unite(&mut fields, more);
        }
    }
    kept.retain(|entry| !is_ours(entry));
    first["manager"] = FIELD_MANAGER.into();
    first["operation"] = "Apply".into();
    first["fieldsV1"] = Value::Object(fields);
    kept.push(first);
    Some(Value::Array(kept))
}

/// Whether a Helm client other than our applies wrote this entry.
fn is_taken_over(entry: &Value) -> bool {
    const MARK: &str = "/fieldsV1/f:metadata/f:annotations/f:meta.helm.sh~1release-name";
    let is_our_apply = entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply";
    !is_our_apply && entry.get("subresource").is_none() && entry.pointer(MARK).is_some()
}

fn unite(into: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (field, inner) in more {
        let entry = into
            .entry(field.clone())
            .or_insert_with(|| Value::Object(Map::new()));
        if let (Some(entry), Some(inner)) = (entry.as_object_mut(), inner.as_object()) {
            unite(entry, inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_helm_clients_become_us_and_people_do_not() {
        let mark = json!({"f:annotations": {"f:meta.helm.sh/release-name": {}}});
        let live = json!({"metadata": {"managedFields": [
            {"manager": "helm", "operation": "Update", "apiVersion": "v1",
             "fieldsV1": {"f:metadata": mark, "f:data": {"f:a": {}}}},
            {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:data": {"f:b": {}}}},
            {"manager": "fleetagent", "operation": "Apply", "fieldsV1": {"f:data": {"f:c": {}}}},
        ]}});
        assert_eq!(former(&live), ["helm"]);
        let entries = merged(&live).unwrap();
        assert_eq!(
            entries,
            json!([
                {"manager": "kubectl-edit", "operation": "Update",
                 "fieldsV1": {"f:data": {"f:b": {}}}},
                {"manager": "fleetagent", "operation": "Apply", "apiVersion": "v1",
                 "fieldsV1": {"f:metadata": mark, "f:data": {"f:a": {}, "f:c": {}}}},
            ])
        );
        let ours = json!({"metadata": {"managedFields": entries}});
        assert_eq!(merged(&ours), None);
    }
}
