//! Decides who keeps a field that two managers want, from the API server's answer alone.
//!
//! Helm stops at the first foreign field owner, for ever. Here the chart's wish wins, except for
//! fields that a controller holds on purpose: CA bundles injected into webhooks, conversions and API
//! services, the rules of an aggregated ClusterRole, and the replicas of an autoscaled workload
//! that the chart did not change. The caller learns which fields were taken from or left to whom.

use serde_json::{Map, Value};

use crate::fields::text;
use crate::managed_fields::{FIELD_MANAGER, entries};
use crate::object::{Object, ObjectKey};

/// The decision about a conflicting field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The chart's value was written over the other manager's.
    Taken,
    /// The other manager keeps the field; the chart's value was left out.
    Left,
}

/// A field that another manager held when we applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldConflict {
    pub object: ObjectKey,
    /// Path of the field in the API server's notation, `.spec.replicas`; empty for all the fields
    /// of an object that another Helm client had written.
    pub field: String,
    /// The managers that held it, empty if they let go meanwhile.
    pub managers: Vec<String>,
    /// Whose value the field has now.
    pub outcome: Outcome,
}

/// One entry of the live object's `managedFields` that owns a conflicting field.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    manager: String,
    subresource: String,
}

/// Facts about an object whose apply met conflicts.
pub struct ApplyConflict<'a> {
    /// The object to apply.
    pub desired: &'a Object,
    /// The same object in the revision before, if it was there.
    pub previous: Option<&'a Value>,
    /// The object as it is, with `managedFields`.
    pub live: &'a Value,
    /// Whether an autoscaler names it as its target; none where that is unknown.
    pub is_autoscaled: Option<bool>,
}

impl ApplyConflict<'_> {
    /// Decides about each field path that the API server complained of.
    pub fn resolve<'p>(&self, paths: impl IntoIterator<Item = &'p str>) -> Vec<FieldConflict> {
        let mut resolved: Vec<FieldConflict> = Vec::new();
        for path in paths {
            if resolved.iter().any(|known| known.field == path) {
                continue; // The server names a field once for each of its managers.
            }
            let holders = holders(self.live, path);
            let outcome = if self.is_left(path, &holders) {
                Outcome::Left
            } else {
                Outcome::Taken
            };
            resolved.push(FieldConflict {
                object: self.desired.key(),
                field: path.to_owned(),
                managers: holders.into_iter().map(|holder| holder.manager).collect(),
                outcome,
            });
        }
        resolved
    }

    fn is_left(&self, path: &str, holders: &[Holder]) -> bool {
        let body = &self.desired.body;
        match (
            self.desired.resource.group.as_str(),
            self.desired.resource.kind.as_str(),
        ) {
            ("admissionregistration.k8s.io", _)
            | ("apiregistration.k8s.io", "APIService")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
                if path.ends_with(".caBundle") =>
            {
                true
            }
            ("rbac.authorization.k8s.io", "ClusterRole") => {
                path.starts_with(".rules") && body.get("aggregationRule").is_some()
            }
            _ if path == ".spec.replicas" => {
                let replicas = |object: &Value| object.pointer("/spec/replicas").cloned();
                let is_changed = self
                    .previous
                    .is_some_and(|old| replicas(old) != replicas(body));
                let may_be_autoscaler = |holder: &Holder| match self.is_autoscaled {
                    Some(_) => holder.is_autoscaler(),
                    None => holder.may_be_autoscaler(),
                };
                !is_changed
                    && (self.is_autoscaled == Some(true) || holders.iter().any(may_be_autoscaler))
            }
            _ => false,
        }
    }
}

impl Holder {
    /// The horizontal pod autoscaler writes through `scale` as part of the controller manager.
    fn is_autoscaler(&self) -> bool {
        self.may_be_autoscaler() && self.manager == "kube-controller-manager"
    }

    /// Distributions have the controller manager in a program of another name, and there are other autoscalers: all write through `scale`.
    fn may_be_autoscaler(&self) -> bool {
        self.subresource == "scale"
    }
}

/// Whether the API server's complaint about replicas is worth asking for autoscalers.
pub fn concerns_replicas<'p>(mut paths: impl Iterator<Item = &'p str>) -> bool {
    paths.any(|path| path == ".spec.replicas")
}

/// Whether `autoscaler` has `object` for its target.
pub fn scales(autoscaler: &Value, object: &Object) -> bool {
    let text = |pointer: &str| autoscaler.pointer(pointer).and_then(Value::as_str);
    let group = text("/spec/scaleTargetRef/apiVersion")
        .and_then(|version| version.split_once('/'))
        .map_or("", |(group, _)| group);
    text("/spec/scaleTargetRef/kind") == Some(&object.resource.kind)
        && text("/spec/scaleTargetRef/name") == Some(&object.name)
        && group == object.resource.group
}

/// The managers of `live` that own the field at `path`.
fn holders(live: &Value, path: &str) -> Vec<Holder> {
    let owns = |entry: &&Value| {
        entry
            .get("fieldsV1")
            .and_then(Value::as_object)
            .is_some_and(|set| contains(set, path))
    };
    entries(live)
        .iter()
        .filter(owns)
        .map(|entry| Holder {
            manager: text(entry, "/manager").to_owned(),
            subresource: text(entry, "/subresource").to_owned(),
        })
        .filter(|holder| holder.manager != FIELD_MANAGER)
        .collect()
}

/// Whether a FieldsV1 set owns `path`. A path does not say where a dotted map key ends, so every
/// reading that the set allows is tried.
fn contains(set: &Map<String, Value>, path: &str) -> bool {
    if path.is_empty() {
        return true;
    }
    set.iter().any(|(key, inner)| {
        let Some(rest) = strip_element(path, key) else {
            return false;
        };
        rest.is_empty() || inner.as_object().is_some_and(|inner| contains(inner, rest))
    })
}

/// The rest of `path` behind the element that a FieldsV1 key (`f:…`, `k:…`, `v:…`, `i:…`) names.
fn strip_element<'p>(path: &'p str, key: &str) -> Option<&'p str> {
    let (sort, name) = key.split_once(':')?;
    if sort == "f" {
        let rest = path.strip_prefix('.')?.strip_prefix(name)?;
        return matches!(rest.as_bytes().first(), None | Some(b'.' | b'[')).then_some(rest);
    }
    let (element, rest) = bracketed(path)?;
    let fits = match sort {
        "i" => element == name,
        "v" => element.strip_prefix('=') == Some(name),
        "k" => {
            let desired: Value = serde_json::from_str(name).ok()?;
            Value::Object(list_key(element)?) == desired
        }
        _ => false,
    };
    fits.then_some(rest)
}

/// Splits `[name="a"].b` into `name="a"` and `.b`; brackets in quotes do not count.
fn bracketed(path: &str) -> Option<(&str, &str)> {
    let inner = path.strip_prefix('[')?;
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b']' if !quoted => return Some((&inner[..at], &inner[at + 1..])),
            _ => {}
        }
    }
    None
}

/// Reads `name="a",port=80`, the keys of an element of an associative list.
fn list_key(element: &str) -> Option<Map<String, Value>> {
    let mut keys = Map::new();
    let mut rest = element;
    while !rest.is_empty() {
        let (name, tail) = rest.split_once('=')?;
        let mut values = serde_json::Deserializer::from_str(tail).into_iter::<Value>();
        let value = values.next()?.ok()?;
        rest = &tail[values.byte_offset()..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
        keys.insert(name.to_owned(), value);
    }
    Some(keys)
}

/// Takes the field at `path` out of `body`, so that applying it leaves the field to its owner.
pub fn leave_out(body: &mut Value, path: &str) {
    match body {
        Value::Object(map) => {
            let Some(rest) = path.strip_prefix('.') else {
                return;
            };
            let fits = |key: &&String| {
                rest.strip_prefix(key.as_str())
                    .is_some_and(|tail| matches!(tail.as_bytes().first(), None | Some(b'.' | b'[')))
            };
            // The longest key is the right reading of a dotted name.
            let Some(key) = map.keys().filter(fits).max_by_key(|key| key.len()).cloned() else {
                return;
            };
            let tail = &rest[key.len()..];
            if tail.is_empty() {
                map.remove(&key);
            } else if let Some(inner) = map.get_mut(&key) {
                leave_out(inner, tail);
            }
        }
        Value::Array(items) => {
            let Some((element, tail)) = bracketed(path) else {
                return;
            };
            let at = match list_key(element) {
                Some(keys) => items.iter().position(|item| {
                    keys.iter()
                        .all(|(name, value)| item.get(name) == Some(value))
                }),
                None => element.parse().ok(),
            };
            if let Some(item) = at
                .and_then(|at| items.get_mut(at))
                .filter(|_| !tail.is_empty())
            {
                leave_out(item, tail);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::discovery::Resource;

    fn object(group: &str, kind: &str, body: Value) -> Object {
        let resource = Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: String::new(),
            namespaced: true,
        };
        Object {
            resource: Arc::new(resource),
            namespace: Some("n".to_owned()),
            name: "a".to_owned(),
            body,
        }
    }

    fn held(manager: &str, subresource: &str, fields: Value) -> Value {
        json!({"metadata": {"managedFields": [
            {"manager": manager, "subresource": subresource, "fieldsV1": fields}]}})
    }

    fn webhook() -> Object {
        object(
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration",
            json!({"webhooks": [{"name": "a.b/c", "clientConfig": {"caBundle": ""}}]}),
        )
    }

    fn role(body: Value) -> Object {
        object("rbac.authorization.k8s.io", "ClusterRole", body)
    }

    fn deployment(replicas: u8) -> Object {
        object(
            "apps",
            "Deployment",
            json!({"spec": {"replicas": replicas}}),
        )
    }

    const IMAGE: &str = r#".spec.template.spec.containers[name="a"].image"#;
    const CA: &str = r#".webhooks[name="a.b/c"].clientConfig.caBundle"#;

    #[rstest]
    #[case::edited_image(deployment(1), Some(1), "kubectl-edit", "", IMAGE, Outcome::Taken)]
    #[case::injected_ca(webhook(), None, "cainjector", "", CA, Outcome::Left)]
    #[case::aggregated_rules(role(json!({"aggregationRule": {}, "rules": []})), None, "clusterrole-aggregation-controller", "", ".rules", Outcome::Left)]
    #[case::plain_rules(role(json!({"rules": []})), None, "kubectl-edit", "", ".rules", Outcome::Taken)]
    fn conflicting_fields_are_taken_or_left(
        #[case] desired: Object,
        #[case] before: Option<u8>,
        #[case] manager: &str,
        #[case] subresource: &str,
        #[case] path: &str,
        #[case] outcome: Outcome,
    ) {
        let previous = before.map(|replicas| deployment(replicas).body);
        let live = held(
            manager,
            subresource,
            json!({
                "f:rules": {},
                "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers":
                    {"k:{\"name\":\"a\"}": {"f:image": {}}}}}},
                "f:webhooks": {"k:{\"name\":\"a.b/c\"}": {"f:clientConfig": {"f:caBundle": {}}}},
            }),
        );
        let conflict = ApplyConflict {
            desired: &desired,
            previous: previous.as_ref(),
            live: &live,
            is_autoscaled: Some(false),
        };
        let resolved = conflict.resolve([path, path]);
        assert_eq!(resolved.len(), 1);
        assert_eq!(resolved[0].outcome, outcome);
        assert_eq!(resolved[0].managers, [manager]);
    }

    const CONTROLLER: (&str, &str) = ("kube-controller-manager", "scale");
    const K3S: (&str, &str) = ("k3s", "scale");
    const KUBECTL_SCALE: (&str, &str) = ("kubectl", "scale");
    const KUBECTL_EDIT: (&str, &str) = ("kubectl-edit", "");

    #[rstest]
    #[case::named(Some(true), 1, KUBECTL_EDIT, Outcome::Left)]
    #[case::chart_changed(Some(true), 2, K3S, Outcome::Taken)]
    #[case::written_by_the_controller(Some(false), 1, CONTROLLER, Outcome::Left)]
    #[case::chart_changed_what_the_controller_wrote(Some(false), 2, CONTROLLER, Outcome::Taken)]
    #[case::scaled_by_hand(Some(false), 1, KUBECTL_SCALE, Outcome::Taken)]
    #[case::nobody_knows(None, 1, K3S, Outcome::Left)]
    #[case::nobody_knows_who_scaled(None, 1, KUBECTL_SCALE, Outcome::Left)]
    #[case::no_autoscaler_edits(None, 1, KUBECTL_EDIT, Outcome::Taken)]
    #[case::nobody_knows_and_chart_changed(None, 2, K3S, Outcome::Taken)]
    fn replicas_that_an_autoscaler_may_have_set_are_left(
        #[case] is_autoscaled: Option<bool>,
        #[case] replicas: u8,
        #[case] (manager, subresource): (&str, &str),
        #[case] outcome: Outcome,
    ) {
        let conflict = ApplyConflict {
            desired: &deployment(replicas),
            previous: Some(&deployment(1).body),
            live: &held(manager, subresource, json!({"f:spec": {"f:replicas": {}}})),
            is_autoscaled,
        };
        let resolved = conflict.resolve([".spec.replicas"]);
        assert_eq!(resolved[0].outcome, outcome);
    }

    #[test]
    fn left_fields_are_taken_out_of_what_we_send() {
        let mut body = webhook().body;
        leave_out(&mut body, CA);
        assert_eq!(
            body,
            json!({"webhooks": [{"name": "a.b/c", "clientConfig": {}}]})
        );
        let mut body = json!({"metadata": {"labels": {"a.b/c": "1", "a": "2"}}, "rules": []});
        leave_out(&mut body, ".metadata.labels.a.b/c");
        leave_out(&mut body, ".rules");
        assert_eq!(body, json!({"metadata": {"labels": {"a": "2"}}}));
    }

    #[test]
    fn elements_are_read_with_their_quotes() {
        assert_eq!(
            bracketed(r#"[a="]\"]",b=1].c"#),
            Some((r#"a="]\"]",b=1"#, ".c"))
        );
        let keys = list_key(r#"containerPort=80,protocol="TCP""#).unwrap();
        assert_eq!(
            Value::Object(keys),
            json!({"containerPort": 80, "protocol": "TCP"})
        );
        let set = json!({"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}}}});
        assert!(contains(
            set.as_object().unwrap(),
            r#".ports[containerPort=80,protocol="TCP"]"#
        ));
    }
}
