//! `managedFields`: which manager owns which fields, and making another Helm client's ours.
//!
//! A Helm client is known by what it wrote: the annotation that names the release. Mirrors
//! `csaupgrade` of client-go, which knows the old manager's name instead.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The name under which all fields are owned: the Go agent's, so that one can follow the other.
pub const FIELD_MANAGER: &str = "fleetagent";

/// The entries of an object's `managedFields`; empty where it has none.
pub fn entries(live: &Value) -> &[Value] {
    live.pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The fields that our last apply had.
pub fn applied(live: &Value) -> Option<&Map<String, Value>> {
    let ours = entries(live).iter().find(|entry| is_our_apply(entry));
    ours?.get("fieldsV1")?.as_object()
}

fn is_our_apply(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER
        && entry["operation"] == "Apply"
        && entry.get("subresource").is_none()
}

/// Whether somebody scales the object.
pub fn is_scaled(live: &Value) -> bool {
    entries(live).iter().any(|entry| {
        entry["subresource"] == "scale" && entry.pointer("/fieldsV1/f:spec/f:replicas").is_some()
    })
}

/// The managers of what other Helm clients wrote, without our own name.
pub fn other_helm_managers(live: &Value) -> Vec<String> {
    let names = entries(live)
        .iter()
        .filter(|entry| is_helm_clients(entry))
        .filter_map(|entry| entry["manager"].as_str());
    let others: BTreeSet<&str> = names.filter(|name| *name != FIELD_MANAGER).collect();
    others.into_iter().map(str::to_owned).collect()
}

/// The new `managedFields` where these entries become ours; `None` if there is none of them.
pub fn taken_over(live: &Value, is_taken: impl Fn(&Value) -> bool) -> Option<Value> {
    let (taken, mut kept): (Vec<Value>, Vec<Value>) =
        entries(live).iter().cloned().partition(is_taken);
    let mut first = taken.first()?.clone();
    let mut fields = Map::new();
    for entry in taken
        .iter()
        .chain(kept.iter().filter(|entry| is_our_apply(entry)))
    {
        if let Some(more) = entry.get("fieldsV1").and_then(Value::as_object) {
            unite(&mut fields, more);
        }
    }
    kept.retain(|entry| !is_our_apply(entry));
    first["manager"] = FIELD_MANAGER.into();
    first["operation"] = "Apply".into();
    first["fieldsV1"] = Value::Object(fields);
    kept.push(first);
    Some(Value::Array(kept))
}

/// Whether a Helm client other than our applies wrote this entry.
pub fn is_helm_clients(entry: &Value) -> bool {
    const MARK: &str = "/fieldsV1/f:metadata/f:annotations/f:meta.helm.sh~1release-name";
    let is_our_apply = entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply";
    !is_our_apply && entry.get("subresource").is_none() && entry.pointer(MARK).is_some()
}

/// Whether this entry is what we changed of an object by writing it whole (PUT), and not by an apply. Where the object was ours its marks did not
/// change, so that they are not in the entry and [`is_helm_clients`] does not know it.
pub fn is_our_update(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER
        && entry["operation"] == "Update"
        && entry.get("subresource").is_none()
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
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_of_helm_clients_are_taken_over_and_those_of_people_are_not() {
        let mark = json!({"f:annotations": {"f:meta.helm.sh/release-name": {}}});
        let live = json!({"metadata": {"managedFields": [
            {"manager": "helm", "operation": "Update", "apiVersion": "v1",
             "fieldsV1": {"f:metadata": mark, "f:data": {"f:a": {}}}},
            {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:data": {"f:b": {}}}},
            {"manager": "fleetagent", "operation": "Apply", "fieldsV1": {"f:data": {"f:c": {}}}},
        ]}});
        assert_eq!(other_helm_managers(&live), ["helm"]);
        let entries = taken_over(&live, is_helm_clients).unwrap();
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
        assert_eq!(taken_over(&ours, is_helm_clients), None);
    }

    #[test]
    fn all_fields_of_our_own_updates_become_ours() {
        let status = json!({"manager": "fleetagent", "operation": "Update", "subresource": "status",
            "fieldsV1": {"f:status": {}}});
        let live = json!({"metadata": {"managedFields": [
            {"manager": "fleetagent", "operation": "Update", "fieldsV1": {"f:data": {"f:a": {}}}},
            {"manager": "fleetagent", "operation": "Apply", "fieldsV1": {"f:data": {"f:b": {}}}},
            status,
        ]}});
        assert_eq!(
            taken_over(&live, is_our_update).unwrap(),
            json!([
                status,
                {"manager": "fleetagent", "operation": "Apply",
                 "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}}},
            ])
        );
    }
}
