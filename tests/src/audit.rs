//! What an API server was asked, by whom: the measure of what the agent costs and the proof of what it did not do.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

/// One request, as the audit log has it at its end (a watch: at its beginning).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The user, `system:serviceaccount:NS:NAME` for accounts; the impersonated one where there is one.
    pub user: String,
    /// Kubernetes' verb: get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// The plural, with `/status` and the like; empty for paths that are no resource.
    pub resource: String,
    /// Empty for what is not namespaced.
    pub namespace: String,
    /// Empty for lists.
    pub name: String,
    /// The path with its query.
    pub uri: String,
    /// The status code it was answered with.
    pub code: u16,
}

/// The audit log of one API server.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
}

/// A place in the log: what came before is left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mark(u64);

impl AuditLog {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Everything since `mark` as it stands in the log.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn text(&self, mark: Mark) -> Result<String> {
        use std::io::{Read, Seek, SeekFrom};
        let mut file =
            std::fs::File::open(&self.path).with_context(|| format!("opening {:?}", self.path))?;
        file.seek(SeekFrom::Start(mark.0))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(text)
    }

    /// The end of the log as it is now.
    pub fn mark(&self) -> Mark {
        Mark(std::fs::metadata(&self.path).map_or(0, |m| m.len()))
    }

    /// Every request since `mark`, oldest first.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn since(&self, mark: Mark) -> Result<Vec<Request>> {
        let text = self.text(mark)?;
        // The last line may still be in the writing; it is one for the next look.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        Ok(complete.lines().filter_map(request).collect())
    }

    /// The requests of one user since `mark`.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn by_user(&self, user: &str, mark: Mark) -> Result<Vec<Request>> {
        let mut requests = self.since(mark)?;
        requests.retain(|r| r.user == user);
        Ok(requests)
    }
}

/// How many requests of each kind (`verb resource`), the most frequent first.
pub fn tally(requests: &[Request]) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for request in requests {
        let what = if request.resource.is_empty() {
            &request.uri
        } else {
            &request.resource
        };
        *counts
            .entry(format!("{} {what}", request.verb))
            .or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

fn request(line: &str) -> Option<Request> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Event {
        stage: String,
        verb: String,
        #[serde(rename = "requestURI")]
        uri: String,
        user: User,
        impersonated_user: Option<User>,
        object_ref: Option<ObjectRef>,
        response_status: Option<Status>,
    }
    #[derive(Deserialize)]
    struct User {
        username: String,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct ObjectRef {
        resource: String,
        subresource: String,
        namespace: String,
        name: String,
    }
    #[derive(Deserialize)]
    struct Status {
        code: u16,
    }
    let event: Event = serde_json::from_str(line).ok()?;
    let wanted = if event.verb == "watch" {
        "ResponseStarted"
    } else {
        "ResponseComplete"
    };
    if event.stage != wanted {
        return None;
    }
    let object = event.object_ref.unwrap_or_default();
    let resource = match object.subresource.as_str() {
        "" => object.resource,
        subresource => format!("{}/{subresource}", object.resource),
    };
    Some(Request {
        user: event.impersonated_user.unwrap_or(event.user).username,
        verb: event.verb,
        resource,
        namespace: object.namespace,
        name: object.name,
        uri: event.uri,
        code: event.response_status.map_or(0, |s| s.code),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = r#"{"stage":"ResponseComplete","verb":"patch","requestURI":"/apis/x","user":{"username":"agent-1"},
        "objectRef":{"resource":"bundledeployments","subresource":"status","namespace":"ns","name":"a"},"responseStatus":{"code":200}}"#;

    #[test]
    fn a_request_is_read_once() {
        let line = PATCH.replace('\n', "");
        let read = request(&line).expect("a complete request");
        assert_eq!(
            (read.resource.as_str(), read.code),
            ("bundledeployments/status", 200)
        );
        assert_eq!(
            request(&line.replace("ResponseComplete", "ResponseStarted")),
            None
        );
        assert_eq!(request("{\"stage\":"), None);
    }
}
