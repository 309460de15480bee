//! An object for unit tests.

use std::sync::Arc;

use objects::{Object, Resource};
use serde_json::Value;

/// An object `a` of this kind, in a namespace.
pub(super) fn object(group: &str, kind: &str, body: Value) -> Object {
    Object {
        resource: Arc::new(Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: kind.to_lowercase() + "s",
            namespaced: true,
        }),
        namespace: Some("shop".to_owned()),
        name: "a".to_owned(),
        body,
    }
}
