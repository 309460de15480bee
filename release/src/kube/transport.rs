//! A request as plain method, media types and path, and its answer as a JSON tree.
//!
//! Any kind can be sent this way, byte for byte as Go would print it. What is sent again is the
//! client's own business.

use std::time::Duration;

use golib::budget::Budget;
use golib::json;
use http::Request;
use objects::{Object, Resource};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

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
    pub(super) fn page(accept: &'a str) -> Self {
        Self {
            most: Some(MAX_PAGE),
            ..Self::get(accept)
        }
    }

    pub(super) fn write(method: &'a str) -> Self {
        Self {
            method,
            ..Self::get(ACCEPT_JSON)
        }
    }

    /// A write whose answer's payload nobody needs.
    pub(super) fn record(method: &'a str) -> Self {
        Self {
            method,
            ..Self::get(ACCEPT_METADATA)
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
    decode(&send_for_text(connection, verb, path, body).await?)
}

/// Sends a request, for an answer that is not read as a tree.
pub(super) async fn send_for_text(
    connection: &Connection,
    verb: Verb<'_>,
    path: String,
    body: Option<String>,
) -> Result<String, ApiError> {
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
    match tokio::time::timeout(REQUEST_TIMEOUT, connection.request_text(request)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(ApiError::Timeout(REQUEST_TIMEOUT)),
    }
}

/// Reads JSON however deep it is, up to [`MAX_DEPTH`](golib::budget::MAX_DEPTH) levels: serde stops at 128, and an object that an API server takes may
/// have more, its `managedFields` as well.
pub(super) fn decode(text: &str) -> Result<Value, ApiError> {
    json::decode_within(text.as_bytes(), &mut Budget::new(usize::MAX)).map_err(ApiError::Unreadable)
}

/// An object of a watch, read as any other.
#[derive(Clone, Debug)]
pub(crate) struct Watched(pub(crate) Value);

impl<'de> Deserialize<'de> for Watched {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let mut budget = Budget::new(usize::MAX);
        let value = json::decode_within(text.get().as_bytes(), &mut budget);
        value.map(Self).map_err(serde::de::Error::custom)
    }
}

/// A list as it comes, with its items read as `T`.
#[derive(Deserialize)]
pub(super) struct ListOutline<T> {
    #[serde(default)]
    metadata: Position,
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
struct Position {
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl<T> ListOutline<T> {
    /// The list's items, and where the next page begins, if there is one.
    pub(super) fn parts(self) -> (Vec<T>, String) {
        let next = self.metadata.next.unwrap_or_default();
        (self.items.unwrap_or_default(), next)
    }
}

/// Lets go of who wrote which field: often more than the object itself.
pub(super) fn forget_managers(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// What a read of an object of a kind found: nothing only where the API server says of this very name that there is nothing.
///
/// # Errors
/// The kind has no such address ([`ApiError::NotServed`]), which says nothing of its objects: API servers of two versions answer in turn, one starts,
/// or an `APIService` was taken away. Or the request failed.
pub(super) fn found(
    resource: &Resource,
    answer: Result<Value, ApiError>,
) -> Result<Option<Value>, ApiError> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_unserved() => Err(ApiError::NotServed(resource.group_kind())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a read found before a write: an unserved kind counts as "not found", as its CRD may be new. The write only creates then, so it cannot overwrite.
pub(super) fn found_to_write(
    found: Result<Option<Value>, ApiError>,
) -> Result<Option<Value>, ApiError> {
    match found {
        Err(ApiError::NotServed(_)) => Ok(None),
        found => found,
    }
}

/// The address of an object in another version of its kind.
pub(super) fn path_as(object: &Object, resource: &Resource) -> String {
    path(
        resource,
        object.namespace.as_deref(),
        Some(&object.name),
        "",
    )
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
    fn an_event_of_an_object_that_is_too_deep_is_an_error() {
        let event = |levels: usize| {
            let nested = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
            let text = format!(r#"{{"type":"ADDED","object":{nested}}}"#);
            serde_json::from_str::<kube::core::WatchEvent<Watched>>(&text)
        };
        assert!(event(900).is_ok() && event(1_100).is_err());
    }

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
