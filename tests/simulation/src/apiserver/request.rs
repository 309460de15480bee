//! A request taken apart, and an answer.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};

/// Who asks: the part of the simulation that acts, and the account it acts with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    pub actor: Actor,
    /// Name of the impersonated account; empty for one's own rights.
    pub account: String,
}

/// A part of the simulation that acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// A life of the agent: each start is another one.
    Agent(u32),
    /// The Go agent.
    Go,
    /// Fleet's controller and whoever works on the upstream cluster.
    Upstream,
    /// Somebody with kubectl.
    Person,
    /// Somebody with helm.
    Helm,
    /// Somebody who may write Secrets in the namespace of a release.
    Tenant,
    /// A controller or webhook that undoes what others do.
    Fighter,
    /// The cluster's own controllers.
    System,
}

impl Actor {
    /// Whether it deploys bundles: a life of the agent, or the Go agent.
    pub fn deploys_bundles(self) -> bool {
        matches!(self, Self::Agent(_) | Self::Go)
    }
}

impl Who {
    /// A part of the simulation with its own rights.
    pub fn is(actor: Actor) -> Self {
        Self {
            actor,
            account: String::new(),
        }
    }

    /// The life of the agent that asks, if it is one.
    pub fn agent(&self) -> Option<u32> {
        match self.actor {
            Actor::Agent(life) => Some(life),
            _ => None,
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    pub who: Who,
    pub method: String,
    /// As it came, with its query.
    pub uri: String,
    pub path: Vec<String>,
    pub query: BTreeMap<String, String>,
    pub accept: String,
    pub content_type: String,
    pub user_agent: String,
    /// What opens an upstream cluster.
    pub token: String,
    /// What it impersonates besides an account of the agent's namespace: header and value.
    pub impersonates: Vec<String>,
    pub body: Value,
}

impl Request {
    /// Takes a path with its query apart.
    pub fn new(who: Who, method: &str, uri: &str, body: Value) -> Self {
        let whole = uri;
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let path = path.split('/').filter(|part| !part.is_empty());
        let query = url::form_urlencoded::parse(query.as_bytes()).into_owned();
        Self {
            who,
            method: method.to_owned(),
            uri: whole.to_owned(),
            path: path.map(unescape).collect(),
            query: query.collect(),
            accept: String::new(),
            content_type: "application/json".to_owned(),
            user_agent: String::new(),
            token: String::new(),
            impersonates: Vec::new(),
            body,
        }
    }

    /// A parameter; empty if it is missing.
    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    pub(crate) fn is_watch(&self) -> bool {
        matches!(self.parameter("watch"), "true" | "1")
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        // A deletion says it in its options.
        self.parameter("dryRun") == "All" || self.body["dryRun"][0] == "All"
    }

    /// Whether metadata alone is asked for.
    pub(crate) fn wants_metadata(&self) -> bool {
        self.accept.contains("as=PartialObjectMetadata")
    }

    /// Whether it may change anything.
    pub fn is_write(&self) -> bool {
        self.method != "GET" && !self.is_dry_run()
    }

    /// The field manager it names, or the one its program has.
    pub(crate) fn manager(&self) -> String {
        match self.parameter("fieldManager") {
            "" => {
                let program = self.user_agent.split('/').next().unwrap_or_default();
                match program {
                    "" => "unknown".to_owned(),
                    program => program.to_owned(),
                }
            }
            manager => manager.to_owned(),
        }
    }

    /// As it is printed in a history.
    pub fn describe(&self) -> String {
        let mut text = format!("{} /{}", self.method, self.path.join("/"));
        if self.query.is_empty() && self.who.account.is_empty() {
            return text;
        }
        for name in ["dryRun", "force", "labelSelector", "fieldSelector", "watch"] {
            if !self.parameter(name).is_empty() {
                text += &format!(" {name}={}", self.parameter(name));
            }
        }
        if !self.who.account.is_empty() {
            text += &format!(" as {}", self.who.account);
        }
        text
    }
}

fn unescape(part: &str) -> String {
    if !part.contains('%') {
        return part.to_owned();
    }
    // A plus is a plus in a path.
    let part = part.replace('+', "%2B");
    url::form_urlencoded::parse(part.as_bytes())
        .map(|(key, _)| key.into_owned())
        .collect()
}

/// What a request is answered with.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub code: u16,
    pub text: Bytes,
}

impl Answer {
    pub(crate) fn ok(text: Bytes) -> Self {
        Self { code: 200, text }
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self::ok(body.to_string().into())
    }

    /// A failure in the form of a `Status`.
    pub(crate) fn failure(code: u16, reason: &str, message: &str, details: &Value) -> Self {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        });
        if !details.is_null() {
            body["details"] = details.clone();
        }
        let text = body.to_string().into();
        Self { code, text }
    }

    /// What is answered where nothing is served: no `Status`, as the request never comes to who knows of kinds.
    pub(crate) fn unserved() -> Self {
        Self {
            code: 404,
            text: Bytes::from_static(b"404 page not found\n"),
        }
    }

    /// Whether it is a success.
    pub fn is_ok(&self) -> bool {
        self.code < 300
    }

    /// The answer, read.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.text).unwrap_or_default()
    }

    /// What is not modelled ends the history.
    pub(crate) fn not_modelled(what: &str) -> Self {
        let message = format!("the simulation does not model {what}");
        Self::failure(501, "NotModelled", &message, &Value::Null)
    }
}
