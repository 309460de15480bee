//! A request as plain method, media types and path, and its answer as a JSON tree.
//!
//! Any kind can be sent this way, byte for byte as Go would print it. What is sent again is the
//! client's own business.

use std::time::Duration;

use http::Request;
use objects::{Object, Resource};
use serde_json::Value;

use super::error::{AnswerLimit, ApiError};

/// How many requests of one step are under way at a time.
pub(super) const PARALLEL: usize = 8;

/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) const ACCEPT_JSON: &str = "application/json";
pub(super) const ACCEPT_METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
pub(super) const ACCEPT_METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// A client, and nothing else.
pub(super) type Connection = kube::Client;

/// Method and media types of a request.
pub(super) struct Verb<'a> {
    pub(super) method: &'a str,
    pub(super) accept: &'a str,
    pub(super) content: &'a str,
    /// The most that its answer may take, in bytes, where a smaller one can be asked for.
    pub(super) most: Option<u64>,
}

/// The most that a page of a list may take, in bytes: larger ones are asked for again with fewer objects.
const MAX_PAGE: u64 = 16 << 20;

impl<'a> Verb<'a> {
    pub(super) fn get(accept: &'a str) -> Self {
        Self {
            method: "GET",
            accept,
            content: ACCEPT_JSON,
            most: None,
        }
    }

    /// A page of a list.
    pub(super) fn page() -> Self {
        Self {
            most: Some(MAX_PAGE),
            ..Self::get(ACCEPT_JSON)
        }
    }

    pub(super) fn write(method: &'a str) -> Self {
        Self {
            method,
            accept: ACCEPT_JSON,
            content: ACCEPT_JSON,
            most: None,
        }
    }

    /// A write whose answer's payload nobody needs.
    pub(super) fn record(method: &'a str) -> Self {
        Self {
            method,
            accept: ACCEPT_METADATA,
            content: ACCEPT_JSON,
            most: None,
        }
    }
}

/// Sends one request; its body is JSON, so that nobody holds a tree of it until the answer is there.
pub(super) async fn send(
    connection: &Connection,
    verb: Verb<'_>,
    path: String,
    body: Option<String>,
) -> Result<Value, ApiError> {
    let body = body.map(String::into_bytes).unwrap_or_default();
    let mut request = Request::builder()
        .method(verb.method)
        .uri(path)
        .header(http::header::ACCEPT, verb.accept)
        .header(http::header::CONTENT_TYPE, verb.content)
        .body(body)
        .map_err(ApiError::Request)?;
    if let Some(most) = verb.most {
        request.extensions_mut().insert(AnswerLimit(most));
    }
    answer(connection, request).await
}

/// A GET that answers with JSON.
pub(super) async fn get_json(
    connection: &Connection,
    path: &str,
    accept: &str,
) -> Result<Value, ApiError> {
    let request = Request::get(path)
        .header(http::header::ACCEPT, accept)
        .body(Vec::new())
        .map_err(ApiError::Request)?;
    answer(connection, request).await
}

async fn answer(connection: &Connection, request: Request<Vec<u8>>) -> Result<Value, ApiError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, connection.request(request)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(ApiError::Timeout(REQUEST_TIMEOUT)),
    }
}

/// Lets go of who wrote which field: often more than the object itself.
pub(super) fn forget_managers(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

pub(super) fn found(answer: Result<Value, ApiError>) -> Result<Option<Value>, ApiError> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn object_path(object: &Object, query: &str) -> String {
    path(
        &object.resource,
        object.namespace.as_deref(),
        Some(&object.name),
        query,
    )
}

pub(super) fn path(
    resource: &Resource,
    namespace: Option<&str>,
    name: Option<&str>,
    query: &str,
) -> String {
    let mut path = match resource.group.as_str() {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    if let Some(namespace) = namespace.filter(|_| resource.namespaced) {
        path.push_str("/namespaces/");
        path.push_str(&escape(namespace));
    }
    path.push('/');
    path.push_str(&resource.plural);
    if let Some(name) = name {
        path.push('/');
        path.push_str(&escape(name));
    }
    path + query
}

/// Escapes what may not stand in one segment of a path.
pub(super) fn escape(segment: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':') {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a String cannot fail");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_segment() {
        assert_eq!(escape("../a?b#c%"), "..%2Fa%3Fb%23c%25");
        assert_eq!(escape("system:node"), "system:node");
    }

    #[test]
    fn paths_follow_group_and_scope() {
        let mut resource = Resource {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "Namespace".to_owned(),
            plural: "namespaces".to_owned(),
            namespaced: false,
        };
        assert_eq!(
            path(&resource, Some("n"), Some("a"), ""),
            "/api/v1/namespaces/a"
        );
        resource.group = "apps".to_owned();
        resource.namespaced = true;
        resource.plural = "deployments".to_owned();
        assert_eq!(
            path(&resource, Some("n"), None, "?x=1"),
            "/apis/apps/v1/namespaces/n/deployments?x=1"
        );
    }
}
