//! Objects that are wanted, and such that are there, for tests.

use std::sync::Arc;

use objects::{Object, Resource};
use serde_json::{Value, json};

pub(super) fn resource(kind: &str) -> Arc<Resource> {
    Arc::new(Resource {
        group: String::new(),
        version: "v1".into(),
        kind: kind.into(),
        plural: format!("{}s", kind.to_lowercase()),
        namespaced: true,
    })
}

pub(super) fn desired(kind: &str, name: &str) -> Object {
    Object {
        resource: resource(kind),
        namespace: Some("ns".into()),
        name: name.into(),
        body: json!({"data": {"x": "1"}}),
    }
}

pub(super) fn live(kind: &str, name: &str, data: Value) -> (Arc<Resource>, Value) {
    let metadata = json!({"namespace": "ns", "name": name, "resourceVersion": "5",
                          "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": []});
    (resource(kind), json!({"metadata": metadata, "data": data}))
}
