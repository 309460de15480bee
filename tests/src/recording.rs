//! What an API server was asked and answered in one test, from its audit log, as the simulated API server can be asked the same
//! (`tests/simulation/tests/fidelity.rs`).
//!
//! A recording is one JSON object a line. `{"object": {…}}` is what somebody else (a controller) left of an object, `{"gone": PATH}` that
//! it went; any other line is a request with its answer, and an answer that is an object is also what there is from then on. Names
//! that differ from run to run (uids, versions, times, the test's own suffixes and ports) are replaced by such as do not, and what
//! costs room and is looked into by no server (the payload of a release record, a certificate) is cut.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// Plurals whose objects controllers write and a recording follows; others are followed if the agent asks for them.
const FOLLOWED: [&str; 12] = [
    "namespaces",
    "configmaps",
    "secrets",
    "serviceaccounts",
    "services",
    "deployments",
    "jobs",
    "customresourcedefinitions",
    "horizontalpodautoscalers",
    "bundledeployments",
    "clusters",
    "contents",
];

/// The recording of an audit log at level `RequestResponse`: one line a request or change, sorted as they took place.
///
/// # Errors
/// When a line of the log is no event.
pub fn of_audit_log(log: &str) -> Result<String> {
    let mut events: Vec<Event> = Vec::new();
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).context("a line of the audit log")?;
        events.extend(Event::read(&event));
    }
    order(&mut events);
    let namespaces = asked_by_agents(&events);
    let mut names = Names::default();
    let mut lines = Vec::new();
    let mut answers = BTreeMap::new();
    for event in &events {
        let is_near = namespaces.contains(&event.namespace) || event.is_by_agent();
        if let Some(mut line) = is_near.then(|| event.line()).flatten() {
            shorten(&mut line);
            names.replace(&mut line);
            // The same answer again shows nothing.
            let is_new = event.is_write()
                || answers.insert(event.uri.clone(), line.clone()) != Some(line.clone());
            if is_new {
                lines.push(line.to_string());
            }
        }
    }
    Ok(lines.join("\n") + "\n")
}

/// Namespaces that agents ask about; the empty one is the whole cluster's.
fn asked_by_agents(events: &[Event]) -> BTreeSet<String> {
    let by_agents = events.iter().filter(|event| event.is_by_agent());
    let mut namespaces: BTreeSet<String> = by_agents.map(|event| event.namespace.clone()).collect();
    namespaces.remove("");
    namespaces
}

struct Event {
    user: String,
    account: String,
    agent: String,
    verb: String,
    uri: String,
    plural: String,
    subresource: String,
    namespace: String,
    name: String,
    code: u64,
    body: Value,
    answer: Value,
    received: String,
    ended: String,
    /// The version of the store that the answer tells, if it tells one.
    version: Option<u64>,
}

impl Event {
    fn read(event: &Value) -> Option<Self> {
        let text = |pointer: &str| {
            let found = event.pointer(pointer).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let verb = text("/verb");
        let plural = text("/objectRef/resource");
        if text("/stage") != "ResponseComplete" || verb == "watch" || plural.is_empty() {
            return None;
        }
        let answer = event.get("responseObject").cloned().unwrap_or_default();
        let version = answer.pointer("/metadata/resourceVersion");
        let version = version.and_then(Value::as_str);
        let mut namespace = text("/objectRef/namespace");
        let name = match text("/objectRef/name").as_str() {
            "" => answer
                .pointer("/metadata/name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            name => name.to_owned(),
        };
        if plural == "namespaces" {
            namespace.clone_from(&name);
        }
        Some(Self {
            user: text("/user/username"),
            account: text("/impersonatedUser/username"),
            agent: text("/userAgent"),
            uri: text("/requestURI"),
            subresource: text("/objectRef/subresource"),
            code: event.pointer("/responseStatus/code")?.as_u64()?,
            body: event.get("requestObject").cloned().unwrap_or_default(),
            received: text("/requestReceivedTimestamp"),
            ended: text("/stageTimestamp"),
            version: version.and_then(|version| version.parse().ok()),
            verb,
            plural,
            namespace,
            name,
            answer,
        })
    }

    fn is_by_agent(&self) -> bool {
        self.agent.starts_with("fleetagent/")
    }

    fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list") && !self.uri.contains("dryRun=All")
    }

    fn is_of(&self, other: &Self) -> bool {
        (&self.plural, &self.namespace, &self.name)
            == (&other.plural, &other.namespace, &other.name)
    }

    fn path(&self) -> String {
        let path = self.uri.split('?').next().unwrap_or_default();
        match path.strip_suffix(&format!("/{}", self.subresource)) {
            Some(path) if !self.subresource.is_empty() => path.to_owned(),
            _ => path.to_owned(),
        }
    }

    /// As the recording has it; nothing if it has no place there.
    fn line(&self) -> Option<Value> {
        // People and tests look again and again; their other requests are for kinds that are followed.
        let is_followed = FOLLOWED.contains(&self.plural.as_str()) && self.subresource.is_empty();
        let is_by_people = matches!(self.user.as_str(), "admin" | "helm");
        let is_asked = self.is_by_agent() || is_by_people && self.is_write() && is_followed;
        if is_asked && self.verb != "deletecollection" && self.code != 429 && self.code < 500 {
            return Some(self.request());
        }
        if !self.is_write() || self.code >= 300 || !FOLLOWED.contains(&self.plural.as_str()) {
            return None;
        }
        let is_object = self.answer.pointer("/metadata/uid").is_some();
        match (self.verb.as_str(), is_object) {
            ("deletecollection", _) => Some(json!({ "gone": self.path() })),
            (_, true) if !is_leaving(&self.answer) => Some(json!({ "object": self.answer })),
            ("delete", _) | (_, true) => Some(json!({ "gone": self.path() })),
            _ => None,
        }
    }

    fn request(&self) -> Value {
        let method = match self.verb.as_str() {
            "create" => "POST",
            "update" => "PUT",
            "patch" => "PATCH",
            "delete" => "DELETE",
            _ => "GET",
        };
        let mut line =
            json!({ "by": self.agent, "method": method, "uri": self.uri, "code": self.code });
        if let Some(account) = self
            .account
            .rsplit(':')
            .next()
            .filter(|account| !account.is_empty())
        {
            line["as"] = account.into();
        }
        if !self.body.is_null() {
            line["body"] = self.body.clone();
        }
        line["answer"] = self.answer.clone();
        line
    }
}

/// Whether this is the last that there is of an object.
fn is_leaving(object: &Value) -> bool {
    let holds = |pointer: &str| {
        let finalizers = object.pointer(pointer).and_then(Value::as_array);
        finalizers.is_some_and(|finalizers| !finalizers.is_empty())
    };
    object.pointer("/metadata/deletionTimestamp").is_some()
        && !holds("/metadata/finalizers")
        && !holds("/spec/finalizers")
}

/// Sorts events as the store saw them, and takes away what overlaps with a write of the same object: nobody knows what came first.
fn order(events: &mut Vec<Event>) {
    events.sort_by(|a, b| a.ended.cmp(&b.ended));
    let mut newest = 0;
    let mut versions: BTreeMap<(String, String, String), u64> = BTreeMap::new();
    let keys: Vec<u64> = events
        .iter()
        .map(|event| {
            let is_list = event.verb == "list";
            let Some(version) = event.version.filter(|_| is_list || event.is_write()) else {
                return newest;
            };
            let object = (
                event.plural.clone(),
                event.namespace.clone(),
                event.name.clone(),
            );
            let last = versions.insert(object, version);
            // A write that leaves the version, as the end of an object does, tells no time.
            if !is_list && last.is_some_and(|last| version <= last) {
                return newest;
            }
            newest = newest.max(version);
            version
        })
        .collect();
    let unsure: BTreeSet<usize> = (0..events.len())
        .filter(|at| {
            let event = &events[*at];
            let has_own_version = event.is_write() && event.version.is_some();
            let near = at.saturating_sub(60)..(at + 60).min(events.len());
            !has_own_version
                && near.filter(|other| other != at).any(|other| {
                    let other = &events[other];
                    let is_near = event.is_of(other)
                        || (event.verb == "list" && event.plural == other.plural);
                    other.is_write()
                        && is_near
                        && other.received < event.ended
                        && event.received < other.ended
                })
        })
        .collect();
    let mut numbered: Vec<(u64, usize, Event)> = std::mem::take(events)
        .into_iter()
        .enumerate()
        .map(|(at, event)| (keys[at], at, event))
        .filter(|(_, at, event)| !unsure.contains(at) || event.is_write() && event.code < 300)
        .collect();
    numbered.sort_by_key(|(version, at, _)| (*version, *at));
    *events = numbered.into_iter().map(|(_, _, event)| event).collect();
}

/// Cuts what costs room.
fn shorten(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match (key.as_str(), value) {
                    ("managedFields", managed) => *managed = owners(managed),
                    (
                        "release" | "ca.crt" | "caBundle" | "content" | "kubeconfig" | "token",
                        Value::String(text),
                    ) if text.len() > 16 => *text = "c2hvcnQ=".to_owned(),
                    ("openAPIV3Schema", schema) => {
                        *schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
                    }
                    ("stringData", Value::Object(plain)) => {
                        for value in plain
                            .values_mut()
                            .filter(|value| value.to_string().len() > 80)
                        {
                            *value = "short".into();
                        }
                    }
                    (_, value) => shorten(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        _ => {}
    }
}

/// `managedFields` without times.
fn owners(managed: &Value) -> Value {
    let entries = managed.as_array().into_iter().flatten();
    let without = entries.map(|entry| {
        let fields = entry.as_object().into_iter().flatten();
        let kept = fields.filter(|(key, _)| !matches!(key.as_str(), "time" | "fieldsType"));
        Value::Object(
            kept.map(|(key, value)| (key.clone(), value.clone()))
                .collect::<Map<_, _>>(),
        )
    });
    without.collect()
}

/// Names of one run and what stands for them.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    fn replace(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                let is_secret = map.get("kind").is_some_and(|kind| kind == "Secret");
                for (key, value) in map.iter_mut() {
                    match (key.as_str(), &mut *value) {
                        ("data", Value::Object(data)) if is_secret => {
                            data.values_mut().for_each(|value| self.encoded(value));
                        }
                        ("creationTimestamp" | "deletionTimestamp", Value::String(time)) => {
                            "2026-01-01T00:00:00Z".clone_into(time);
                        }
                        (_, value) => self.replace(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace(item)),
            Value::String(text) => *text = self.text(text),
            _ => {}
        }
    }

    /// The same inside of base64.
    fn encoded(&mut self, value: &mut Value) {
        let decoded = value.as_str().and_then(|text| STANDARD.decode(text).ok());
        if let Some(text) = decoded.and_then(|bytes| String::from_utf8(bytes).ok()) {
            *value = STANDARD.encode(self.text(&text)).into();
        }
    }

    /// Words that look random are numbered: `-1a2b3c4d`, a uid, a version, a port.
    fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            // An escaped character of an address.
            if rest.starts_with('%') && rest.is_char_boundary(3.min(rest.len())) {
                let (escaped, after) = rest.split_at(3.min(rest.len()));
                out.push_str(escaped);
                rest = after;
                continue;
            }
            let end = rest
                .find(|c: char| !c.is_ascii_alphanumeric())
                .unwrap_or(rest.len());
            let word = &rest[..end];
            match kind(word) {
                Some(kind) => {
                    let number = self.0.len();
                    let width = word.len().saturating_sub(1);
                    let name = self.0.entry(word.to_owned()).or_insert_with(|| match kind {
                        Kind::Hexadecimal => format!("a{number:0width$}"),
                        Kind::Number => format!("{}", 10_000 + number),
                    });
                    out.push_str(name);
                }
                None => out.push_str(word),
            }
            let next = rest[end..]
                .chars()
                .next()
                .map_or(end, |c| end + c.len_utf8());
            let next = if rest[end..].starts_with('%') {
                end
            } else {
                next
            };
            out.push_str(&rest[end..next]);
            rest = &rest[next..];
        }
        out
    }
}

enum Kind {
    Hexadecimal,
    Number,
}

fn kind(word: &str) -> Option<Kind> {
    let is_hexadecimal = word
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
    match word.len() {
        5 if word.bytes().all(|byte| byte.is_ascii_digit()) => Some(Kind::Number),
        8.. if is_hexadecimal && has_digit => Some(Kind::Hexadecimal),
        _ => None,
    }
}
