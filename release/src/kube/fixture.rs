//! Objects, and an API server, for unit tests.

use std::sync::Arc;

use http::{Method, Request, Response};
use kube::client::Body;
use objects::{Object, Resource};
use serde_json::{Value, json};
use tower::BoxError;

use super::client::Cluster;

/// An object `a` of this kind, in a namespace.
pub(crate) fn object(group: &str, kind: &str, body: Value) -> Object {
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

/// A ConfigMap of that name, without its content.
pub(crate) fn config_map(namespace: &str, name: &str) -> Object {
    Object {
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
        ..object("", "ConfigMap", Value::Null)
    }
}

/// An API server that answers each request by its method, path and body; what it has no answer for is served nowhere.
pub(crate) fn server(
    answer: impl Fn(&Method, &str, &Value) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> Cluster {
    let answer = Arc::new(answer);
    let serve = tower::service_fn(move |request: Request<Body>| {
        let answer = Arc::clone(&answer);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let sent = serde_json::from_slice(&body).unwrap_or_default();
            let (code, text) = match answer(&parts.method, parts.uri.path(), &sent) {
                Some((code, answer)) => (code, answer.to_string()),
                None => (404, "404 page not found\n".to_owned()),
            };
            let answer = Response::builder().status(code);
            Ok::<_, BoxError>(answer.body(Body::from(text.into_bytes()))?)
        }
    });
    Cluster::new(kube::Client::new(serve, "shop"))
}

/// The answer of an API server to a request for an object that is not there.
pub(crate) fn missing(name: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
        "details": {"name": name}});
    (404, status)
}

/// The aggregated discovery of a group that has these kinds, in version `v1`.
pub(crate) fn discovery(group: &str, kinds: &[(&str, bool)]) -> Value {
    let resources = kinds.iter().map(|(kind, namespaced)| {
        let scope = if *namespaced { "Namespaced" } else { "Cluster" };
        json!({"resource": kind.to_lowercase() + "s", "scope": scope, "responseKind": {"kind": kind}})
    });
    let versions = json!([{"version": "v1", "resources": resources.collect::<Vec<_>>()}]);
    json!({"metadata": {"name": group}, "versions": versions})
}

/// An aggregated discovery document of groups.
pub(crate) fn discovered(groups: &[Value]) -> (u16, Value) {
    (
        200,
        json!({"kind": "APIGroupDiscoveryList", "items": groups}),
    )
}
