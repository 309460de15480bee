//! What of a request the server here would pass over without a word, though the real one goes by it.

use serde_json::Value;

use super::request::{Actor, Request};

/// What a list, a read or a watch may say.
const READING: [&str; 8] = [
    "watch",
    "allowWatchBookmarks",
    "timeoutSeconds",
    "resourceVersion",
    "limit",
    "continue",
    "labelSelector",
    "fieldSelector",
];
/// What a write may say. Which fields a kind has is not modelled: `fieldValidation` finds nothing to complain about.
const WRITING: [&str; 3] = ["fieldManager", "dryRun", "fieldValidation"];
/// What the options of a deletion may hold.
const DELETING: [&str; 5] = [
    "kind",
    "apiVersion",
    "preconditions",
    "propagationPolicy",
    "dryRun",
];

impl Request {
    /// What of it is not modelled, if anything.
    pub(super) fn not_modelled(&self) -> Option<String> {
        if let Some(more) = self.impersonates.first() {
            return Some(format!("impersonation with {more}"));
        }
        let is_form = |known: &str| self.accept.contains(known);
        if is_form("as=") && !is_form("PartialObjectMetadata") && !is_form("APIGroupDiscoveryList")
        {
            return Some(format!("the form {}", self.accept));
        }
        let query = self.query.iter();
        let mut unknown = query.filter(|(name, value)| !self.knows(name, value));
        if let Some((name, value)) = unknown.next() {
            return Some(format!("{name}={value} of a {}", self.method));
        }
        if self.content_type.starts_with("application/apply-patch")
            && self.method == "PATCH"
            && self.parameter("fieldManager").is_empty()
        {
            return Some("an apply without fieldManager".to_owned());
        }
        (self.method == "DELETE").then(|| self.unknown_option())?
    }

    fn knows(&self, name: &str, value: &str) -> bool {
        let is_apply = self.content_type.starts_with("application/apply-patch");
        match (self.method.as_str(), name) {
            // What is there now is as new as anything; of a watch it is where that begins.
            ("GET", "resourceVersion") => self.is_watch() || value == "0",
            ("GET", _) => READING.contains(&name),
            ("PATCH", "force") => is_apply && matches!(value, "true" | "false"),
            ("POST" | "PUT" | "PATCH", "dryRun") => value == "All",
            ("POST" | "PUT" | "PATCH", _) => WRITING.contains(&name),
            _ => false,
        }
    }

    /// What the options of a deletion say that is not modelled. Without a policy a Job's pods are orphaned, as those of no other kind are; the
    /// simulation's own actors mean `kubectl`, which says one.
    fn unknown_option(&self) -> Option<String> {
        let options = self.body.as_object();
        let mut unknown = options
            .into_iter()
            .flatten()
            .filter(|(name, value)| !value.is_null() && !DELETING.contains(&name.as_str()));
        if let Some((name, value)) = unknown.next() {
            return Some(format!("a deletion with {name}: {value}"));
        }
        let policy = self.body.get("propagationPolicy").and_then(Value::as_str);
        let is_of_jobs = self.path.iter().any(|part| part == "jobs");
        match policy {
            Some("Background" | "Foreground") => None,
            None if is_of_jobs && matches!(self.who.actor, Actor::Agent(_)) => {
                Some("a Job's deletion without a propagationPolicy".to_owned())
            }
            None => None,
            Some(other) => Some(format!("propagationPolicy {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use serde_json::json;

    use super::super::{Server, Who};
    use super::*;

    /// The message of a refusal, where it says that something is not modelled.
    fn refused(server: &Server, request: &Request) -> Option<String> {
        let answer = server.ask(request);
        (answer.code == 501).then(|| answer.value()["message"].to_string())
    }

    fn request(method: &str, uri: &str, body: Value) -> Request {
        Request::new(Who::is(Actor::Agent(1)), method, uri, body)
    }

    #[test]
    fn request_parameters_that_are_not_modelled_are_refused() {
        let server = Server::new("local", false, Arc::new(|| Timestamp::UNIX_EPOCH));
        let maps = "/api/v1/namespaces/default/configmaps";
        let cases = [
            ("GET", "?resourceVersionMatch=Exact", Value::Null),
            ("GET", "?resourceVersion=7", Value::Null),
            ("GET", "?labelSelector=a%20b", Value::Null),
            ("GET", "?labelSelector=a%3E1", Value::Null),
            ("GET", "?labelSelector=a%2C%2Cb", Value::Null),
            ("GET", "?fieldSelector=type%3DOpaque", Value::Null),
            ("POST", "?dryRun=Server", json!({"metadata": {"name": "a"}})),
            ("POST", "?pretty=true", json!({"metadata": {"name": "a"}})),
            ("PATCH", "/a?force=true", json!({})),
            ("DELETE", "/a?propagationPolicy=Background", Value::Null),
            ("DELETE", "/a", json!({"propagationPolicy": "Orphan"})),
            ("DELETE", "/a", json!({"gracePeriodSeconds": 0})),
        ];
        let count = cases.len();
        for (method, rest, body) in cases {
            let request = request(method, &format!("{maps}{rest}"), body);
            assert!(refused(&server, &request).is_some(), "{method} {rest}");
        }
        let job = "/apis/batch/v1/namespaces/default/jobs/a";
        assert!(refused(&server, &request("DELETE", job, Value::Null)).is_some());
        let mut grouped = request("GET", maps, Value::Null);
        assert_eq!(refused(&server, &grouped), None);
        grouped.impersonates = vec!["impersonate-group: system:masters".to_owned()];
        assert!(refused(&server, &grouped).is_some());
        assert_eq!(server.lock().not_modelled.len(), count + 2);
    }

    #[test]
    fn a_watch_with_parameters_that_are_not_modelled_is_refused() {
        let server = Server::new("local", false, Arc::new(|| Timestamp::UNIX_EPOCH));
        let uri = "/api/v1/configmaps?watch=true&sendInitialEvents=true";
        assert!(server.watch(&request("GET", uri, Value::Null)).is_err());
        assert_eq!(server.lock().not_modelled.len(), 1);
    }
}
