//! Taking over the fields that another Helm client owns.
//!
//! A release written by Helm's command line, by Helm 3 or by a merge on the client's side has its
//! fields under other managers. Server-side apply alone would share them, and a field that the
//! chart drops would stay for ever. So, once, their entries in `managedFields` become ours. The
//! client is known by what it wrote: the annotation that names the release.
//!
//! Mirrors `csaupgrade` of client-go, which knows the old manager's name instead.

use serde_json::{Map, Value, json};

use super::client::{Cluster, FIELD_MANAGER};
use super::error::ApiError;
use super::object::Object;

/// Makes the entries of other Helm clients ours. A missing object is fine.
pub(super) async fn take_over(cluster: &Cluster, object: &Object) -> Result<(), ApiError> {
    const TRIES: u32 = 5;
    let mut tries = 1;
    loop {
        let Some(live) = cluster.get(object).await? else {
            return Ok(());
        };
        let Some(entries) = merged(&live) else {
            return Ok(());
        };
        let patch = json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            {"op": "replace", "path": "/metadata/resourceVersion",
             "value": live.pointer("/metadata/resourceVersion")},
        ]);
        match cluster.json_patch(object, &patch).await {
            Err(error) if error.is_conflict() && tries < TRIES => tries += 1,
            Err(error) if error.is_not_found() => return Ok(()),
            other => return other.map(drop),
        }
    }
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
