//! `managedFields`: which manager owns which fields, and making another Helm client's ours.
//!
//! A Helm client is known by what it wrote: the annotation that names the release. A person who gives an object to a release by hand writes that, too:
//! whatever else he wrote with it, and no manifest has, stays his. Mirrors `csaupgrade` of client-go, which knows the old manager's
//! name instead.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The name under which all fields are owned: the Go agent's, so that one can follow the other.
pub const FIELD_MANAGER: &str = "fleetagent";
/// The name of helm, whichever version.
const HELM: &str = "helm";
/// What the names begin with by which people write who use kubectl.
const KUBECTL: &str = "kubectl";

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

/// The new `managedFields` where these entries become ours; `None` if there is none of them. Of entries that are neither helm's nor of our name only what
/// `manifest` has becomes ours: anybody may have written the rest. Where that is the last chart's, with a kind, and no person with kubectl wrote the
/// entry, all but foreign metadata does.
pub fn taken_over(
    live: &Value,
    is_taken: impl Fn(&Value) -> bool,
    manifest: &Value,
) -> Option<Value> {
    let (taken, mut kept): (Vec<Value>, Vec<Value>) =
        entries(live).iter().cloned().partition(is_taken);
    let mut first = taken.first()?.clone();
    let mut fields = Map::new();
    for mut entry in taken {
        let Some(all) = entry.get("fieldsV1").and_then(Value::as_object) else {
            continue;
        };
        if entry["manager"] == FIELD_MANAGER || entry["manager"] == HELM {
            unite(&mut fields, all);
            continue;
        }
        let is_persons = entry["manager"]
            .as_str()
            .is_some_and(|by| by.starts_with(KUBECTL));
        // Of what no chart had nothing can be left of an older one.
        let is_in_chart = manifest.get("kind").is_some();
        let (ours, theirs) = match is_in_chart && !is_persons {
            true => split_metadata(all, manifest),
            false => split(all, manifest),
        };
        unite(&mut fields, &ours);
        if !theirs.is_empty() {
            entry["fieldsV1"] = Value::Object(theirs);
            kept.push(entry);
        }
    }
    for ours in kept.iter().filter(|entry| is_our_apply(entry)) {
        if let Some(more) = ours.get("fieldsV1").and_then(Value::as_object) {
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

/// A FieldsV1 set as what `manifest` has of it and the rest. An element of a list is the manifest's with all of its defaults.
fn split(
    fields: &Map<String, Value>,
    manifest: &Value,
) -> (Map<String, Value>, Map<String, Value>) {
    /// Says that somebody has the map or element itself.
    const SELF: &str = ".";
    let (mut ours, mut theirs) = (Map::new(), Map::new());
    for (field, inner) in fields.iter().filter(|(field, _)| *field != SELF) {
        let (mine, rest) = match (named(manifest, field), inner.as_object()) {
            (None, _) => (None, Some(inner.clone())),
            (Some(Named::Field(value)), Some(below))
                if !below.is_empty() && (value.is_object() || value.is_array()) =>
            {
                let (mine, rest) = split(below, value);
                let some = |half: Map<_, _>| (!half.is_empty()).then_some(Value::Object(half));
                (some(mine), some(rest))
            }
            (Some(_), _) => (Some(inner.clone()), None),
        };
        ours.extend(mine.map(|mine| (field.clone(), mine)));
        theirs.extend(rest.map(|rest| (field.clone(), rest)));
    }
    if let Some(itself) = fields.get(SELF) {
        if !theirs.is_empty() {
            theirs.insert(SELF.to_owned(), itself.clone());
        }
        if !ours.is_empty() || theirs.is_empty() {
            ours.insert(SELF.to_owned(), itself.clone());
        }
    }
    (ours, theirs)
}

/// The same where only metadata beyond the manifest's is the rest: programs that use helm's library write under names of their own, and what an older
/// chart had besides is to go with the next one.
fn split_metadata(
    fields: &Map<String, Value>,
    manifest: &Value,
) -> (Map<String, Value>, Map<String, Value>) {
    const METADATA: &str = "f:metadata";
    let (mut mine, mut theirs) = split(fields, manifest);
    let mut ours = fields.clone();
    theirs.retain(|field, _| field == METADATA);
    if !theirs.is_empty() {
        ours.remove(METADATA);
        ours.extend(mine.remove_entry(METADATA));
    }
    (ours, theirs)
}

/// What a FieldsV1 key names in a manifest.
enum Named<'m> {
    Field(&'m Value),
    Element,
}

fn named<'m>(manifest: &'m Value, field: &str) -> Option<Named<'m>> {
    let (sort, name) = field.split_once(':')?;
    if sort == "f" {
        let value = manifest.get(name).filter(|value| !value.is_null());
        return value.map(Named::Field);
    }
    let items = manifest.as_array()?;
    let name = || serde_json::from_str::<Value>(name).ok();
    let is_there = match sort {
        // A key of a list may have a default, as a port's protocol has.
        "k" => {
            let key = name()?;
            let fits = |item: &Value| {
                let mut parts = key.as_object().into_iter().flatten();
                parts.all(|(part, value)| item.get(part).is_none_or(|found| found == value))
            };
            items.iter().any(fits)
        }
        "v" => items.contains(&name()?),
        _ => true,
    };
    is_there.then_some(Named::Element)
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
        let entries = taken_over(&live, is_helm_clients, &Value::Null).unwrap();
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
        assert_eq!(taken_over(&ours, is_helm_clients, &Value::Null), None);
    }

    /// Who gives an object to a release by hand writes the mark, and whatever he likes beside it.
    #[test]
    fn what_a_person_wrote_beside_the_mark_stays_his() {
        let mark = || json!({".": {}, "f:meta.helm.sh/release-name": {}});
        let with = |mut map: Value, field: &str| {
            map[field] = json!({});
            map
        };
        let port = |port: u16| format!("k:{{\"port\":{port},\"protocol\":\"TCP\"}}");
        let whole = || json!({".": {}, "f:port": {}, "f:protocol": {}});
        let live = json!({"metadata": {"managedFields": [
            {"manager": "kubectl-create", "operation": "Update", "fieldsV1": {
                "f:metadata": {
                    "f:annotations": with(mark(), "f:helm.sh/resource-policy"),
                    "f:labels": {".": {}, "f:team": {}},
                    "f:finalizers": {".": {}, "v:\"a\"": {}, "v:\"b\"": {}}},
                "f:spec": {"f:type": {}, "f:selector": {}, "f:ports": {port(80): whole(), port(81): whole()}}}},
        ]}});
        let manifest = json!({
            "metadata": {"annotations": {"meta.helm.sh/release-name": "web"}, "finalizers": ["a"]},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
        assert_eq!(
            taken_over(&live, is_helm_clients, &manifest).unwrap(),
            json!([
                {"manager": "kubectl-create", "operation": "Update", "fieldsV1": {
                    "f:metadata": {
                        "f:annotations": {".": {}, "f:helm.sh/resource-policy": {}},
                        "f:labels": {".": {}, "f:team": {}},
                        "f:finalizers": {".": {}, "v:\"b\"": {}}},
                    "f:spec": {"f:type": {}, "f:ports": {port(81): whole()}}}},
                {"manager": "fleetagent", "operation": "Apply", "fieldsV1": {
                    "f:metadata": {"f:annotations": mark(), "f:finalizers": {".": {}, "v:\"a\"": {}}},
                    "f:spec": {"f:selector": {}, "f:ports": {port(80): whole()}}}},
            ])
        );
        let manifest = json!({"metadata": {"annotations": {
            "meta.helm.sh/release-name": "web", "helm.sh/resource-policy": "keep"}}});
        let only_marks = json!({"metadata": {"managedFields": [
            {"manager": "kubectl-annotate", "operation": "Update", "fieldsV1": {
                "f:metadata": {"f:annotations": with(mark(), "f:helm.sh/resource-policy")}}}]}});
        assert_eq!(
            taken_over(&only_marks, is_helm_clients, &manifest).unwrap(),
            json!([{"manager": "fleetagent", "operation": "Apply", "fieldsV1": {
                "f:metadata": {"f:annotations": with(mark(), "f:helm.sh/resource-policy")}}}])
        );
    }

    /// Programs that use helm's library write under names of their own.
    #[test]
    fn all_that_another_helm_client_wrote_is_taken_over_but_for_foreign_metadata() {
        let annotations = || json!({"f:meta.helm.sh/release-name": {}, "f:checksum": {}});
        let theirs = || json!({"f:annotations": {"f:helm.sh/resource-policy": {}}});
        let mut all = annotations();
        all["f:helm.sh/resource-policy"] = json!({});
        let live = json!({"metadata": {"managedFields": [
            {"manager": "helm-controller", "operation": "Update", "fieldsV1": {
                "f:metadata": {"f:annotations": all},
                "f:data": {"f:a": {}, "f:former": {}}}}]}});
        let marks = json!({"metadata": {"annotations": {"meta.helm.sh/release-name": "web"}}});
        let taken = taken_over(&live, is_helm_clients, &marks).unwrap();
        let taken = &taken[1]["fieldsV1"];
        let mark = json!({"f:meta.helm.sh/release-name": {}});
        assert_eq!(*taken, json!({"f:metadata": {"f:annotations": mark}}));
        let manifest = json!({"kind": "Secret", "stringData": {"a": "b"}, "metadata": {"annotations": {
            "meta.helm.sh/release-name": "web", "checksum": "1"}}});
        assert_eq!(
            taken_over(&live, is_helm_clients, &manifest).unwrap(),
            json!([
                {"manager": "helm-controller", "operation": "Update",
                 "fieldsV1": {"f:metadata": theirs()}},
                {"manager": "fleetagent", "operation": "Apply", "fieldsV1": {
                    "f:metadata": {"f:annotations": annotations()},
                    "f:data": {"f:a": {}, "f:former": {}}}},
            ])
        );
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
            taken_over(&live, is_our_update, &Value::Null).unwrap(),
            json!([
                status,
                {"manager": "fleetagent", "operation": "Apply",
                 "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}}},
            ])
        );
    }
}
