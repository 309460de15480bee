//! An API server in memory: what the agent relies on, and nothing else.
//!
//! Objects by group, kind, namespace and name with versions, uids and generations; lists, watches and bookmarks; optimistic
//! locking; server-side apply with the ownership of fields, dry runs and the other patches; finalizers, deletion, namespaces that
//! terminate; definitions; the status subresource; rights by account. What is not modelled is answered with 501, and fails the
//! history. That it answers as the real one does is shown by replaying recorded requests (`tests/fidelity`).

mod apply;
mod fields;
mod kinds;
mod patch;
mod request;
mod schema;
mod select;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use apply::Managed;
pub(crate) use kinds::Kind;
pub use request::{Actor, Answer, Request, Who};
use select::Selector;

/// How many changes a watch may lag behind.
const LOG: usize = 400;

/// An object's place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    pub group: String,
    pub plural: String,
    /// Empty for what lives in none.
    pub namespace: String,
    pub name: String,
}

impl Id {
    /// A place by its parts.
    pub fn new(group: &str, plural: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: group.to_owned(),
            plural: plural.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn place(&self) -> Self {
        Self {
            name: String::new(),
            ..self.clone()
        }
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (plural, namespace, name) = (&self.plural, &self.namespace, &self.name);
        write!(f, "{plural} {namespace}/{name}")
    }
}

#[derive(Clone, Debug)]
struct Stored {
    /// The object without `managedFields`.
    value: Arc<Value>,
    managed: Vec<Managed>,
    /// The whole object and its metadata, as they are sent.
    text: Bytes,
    metadata: Bytes,
    version: u64,
}

/// A change that a watch tells.
#[derive(Clone, Debug)]
struct Change {
    version: u64,
    id: Id,
    /// `ADDED`, `MODIFIED`, `DELETED`.
    sort: &'static str,
    /// As it is after the change, or was last.
    stored: Stored,
    /// As it was before, for selectors that it no longer fits.
    before: Option<Arc<Value>>,
}

/// A write that took place.
#[derive(Clone, Debug)]
pub struct Write {
    /// `local` or `upstream`.
    pub side: &'static str,
    pub who: Who,
    pub verb: &'static str,
    pub id: Id,
    pub before: Option<Arc<Value>>,
    pub after: Option<Arc<Value>>,
}

/// Hears of everything a server does.
pub trait Audit: Send {
    /// Something was written.
    fn wrote(&mut self, write: &Write);
}

/// What admission refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub plural: String,
    pub namespace: String,
    pub name: String,
    pub message: String,
}

pub(crate) struct State {
    side: &'static str,
    kinds: Vec<Kind>,
    custom: Vec<Kind>,
    objects: BTreeMap<Id, Stored>,
    version: u64,
    /// Never reset, so that a restored cluster gives no uid twice.
    uids: u64,
    log: VecDeque<Change>,
    /// Versions up to this one are not told any more.
    forgotten: u64,
    /// Grows with each break after which all watches end.
    epoch: u64,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    audit: Option<Arc<Mutex<dyn Audit>>>,
    /// Accounts without any right, by name; a right in one namespace is `account/namespace`.
    pub(crate) denied: BTreeSet<String>,
    pub(crate) refusals: Vec<Refusal>,
    /// Tokens that open it; empty where none is asked for.
    pub(crate) tokens: BTreeSet<String>,
    pub(crate) not_modelled: Vec<String>,
    /// What was asked and answered, if it is to be kept.
    talk: Option<Vec<(Request, Answer)>>,
}

/// A server; clones share it.
#[derive(Clone)]
pub struct Server {
    state: Arc<Mutex<State>>,
    news: Arc<Notify>,
}

/// A server's objects at one moment.
#[derive(Clone)]
pub struct Backup {
    objects: BTreeMap<Id, Stored>,
    version: u64,
}

/// A watch in progress.
pub(crate) struct Watch {
    kind: Kind,
    place: Id,
    selector: Selector,
    wants_metadata: bool,
    bookmarks: bool,
    since: u64,
    epoch: u64,
    /// When it was last told a version.
    told: u64,
    /// What is told before all else.
    present: Vec<u8>,
}

type Handled = Result<Answer, Answer>;

impl Server {
    /// A server that serves downstream's kinds, and Fleet's too if it is `upstream`.
    pub fn new(
        side: &'static str,
        is_upstream: bool,
        clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> Self {
        let state = State {
            side,
            kinds: match is_upstream {
                true => kinds::upstream(),
                false => kinds::downstream(),
            },
            custom: Vec::new(),
            objects: BTreeMap::new(),
            version: 1000,
            uids: 0,
            log: VecDeque::new(),
            forgotten: 1000,
            epoch: 0,
            clock,
            audit: None,
            denied: BTreeSet::new(),
            refusals: Vec::new(),
            tokens: BTreeSet::new(),
            not_modelled: Vec::new(),
            talk: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            news: Arc::new(Notify::new()),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps everything that is asked from now on.
    pub fn listen(&self) {
        self.lock().talk = Some(Vec::new());
    }

    /// What was asked since, and answered.
    pub fn talk(&self) -> Vec<(Request, Answer)> {
        self.lock().talk.take().unwrap_or_default()
    }

    /// Tells every write to somebody.
    pub fn audited_by(&self, audit: Arc<Mutex<dyn Audit>>) {
        self.lock().audit = Some(audit);
    }

    /// Answers a request that is no watch.
    pub fn ask(&self, request: &Request) -> Answer {
        let (answer, is_changed) = {
            let mut state = self.lock();
            let version = state.version;
            let answer = state.handle(request).unwrap_or_else(|refused| refused);
            if answer.code == 501 {
                let what = format!("{}: {}", request.describe(), answer.value()["message"]);
                state.not_modelled.push(what);
            }
            if let Some(talk) = &mut state.talk {
                talk.push((request.clone(), answer.clone()));
            }
            (answer, state.version != version)
        };
        if is_changed {
            self.news.notify_waiters();
        }
        answer
    }

    /// A request of one of the simulation's own actors.
    pub fn act(&self, actor: Actor, method: &str, uri: &str, body: Value) -> Answer {
        let mut request = Request::new(Who::is(actor), method, uri, body);
        request.user_agent = match actor {
            Actor::Helm => "helm",
            Actor::Upstream => "fleetcontroller",
            Actor::Fighter => "fighter",
            Actor::System => "kube-controller-manager",
            _ => "kubectl",
        }
        .to_owned();
        if method == "PATCH" {
            request.content_type = "application/merge-patch+json".to_owned();
        }
        self.ask(&request)
    }

    /// An object as it is now, without `managedFields`.
    pub fn get(&self, id: &Id) -> Option<Arc<Value>> {
        let state = self.lock();
        state
            .objects
            .get(id)
            .map(|stored| Arc::clone(&stored.value))
    }

    /// All objects that are at such places.
    pub fn all(&self, fits: impl Fn(&Id) -> bool) -> Vec<(Id, Arc<Value>)> {
        let state = self.lock();
        let found = state.objects.iter().filter(|(id, _)| fits(id));
        found
            .map(|(id, stored)| (id.clone(), Arc::clone(&stored.value)))
            .collect()
    }

    /// What is there now.
    pub fn backup(&self) -> Backup {
        let state = self.lock();
        Backup {
            objects: state.objects.clone(),
            version: state.version,
        }
    }

    /// Becomes what it was: versions go back too, and all watches end.
    pub fn restore(&self, backup: &Backup) {
        let mut state = self.lock();
        state.objects = backup.objects.clone();
        state.version = backup.version;
        state.log.clear();
        state.forgotten = backup.version;
        state.epoch += 1;
        drop(state);
        self.news.notify_waiters();
    }

    /// Forgets changes that watches have not been told, and ends these.
    pub fn compact(&self) {
        let mut state = self.lock();
        state.log.clear();
        state.forgotten = state.version;
        drop(state);
        self.news.notify_waiters();
    }

    /// Ends all watches without a word.
    pub fn break_watches(&self) {
        self.lock().epoch += 1;
        self.news.notify_waiters();
    }

    /// Begins a watch.
    pub(crate) fn watch(&self, request: &Request) -> Result<Watch, Answer> {
        let state = self.lock();
        state.authenticate(request)?;
        let route = state.route(request)?;
        state.allow(request, &route)?;
        let since = request.parameter("resourceVersion").parse().unwrap_or(0);
        if since != 0 && since < state.forgotten {
            return Err(gone(since, state.forgotten));
        }
        let mut watch = Watch {
            selector: Selector::of(request)?,
            wants_metadata: request.wants_metadata(),
            bookmarks: request.parameter("allowWatchBookmarks") == "true",
            since,
            epoch: state.epoch,
            told: since,
            present: Vec::new(),
            place: route.id.place(),
            kind: route.kind,
        };
        if since == 0 {
            // What is there comes first.
            let present = state
                .objects
                .iter()
                .filter(|(id, stored)| watch.fits(id, &stored.value))
                .flat_map(|(_, stored)| watch.event("ADDED", stored));
            watch.present = present.collect();
            watch.since = state.version;
        }
        Ok(watch)
    }

    /// The next part of a watch; none when there is nothing to tell yet.
    pub(crate) fn next(&self, watch: &mut Watch) -> Next {
        let state = self.lock();
        if state.epoch != watch.epoch {
            return Next::Broken;
        }
        if watch.since < state.forgotten {
            let failure = gone(watch.since, state.forgotten).value();
            let event = json!({"type": "ERROR", "object": failure});
            return Next::Last(line(&event));
        }
        let from = state
            .log
            .partition_point(|change| change.version <= watch.since);
        let mut text = std::mem::take(&mut watch.present);
        for change in state.log.iter().skip(from) {
            watch.since = change.version;
            if !watch.is_at(&change.id) {
                continue;
            }
            let is_in = change.sort != "DELETED" && watch.selector.fits(&change.stored.value);
            let before = match change.sort {
                "DELETED" => Some(&change.stored.value),
                _ => change.before.as_ref(),
            };
            let was_in = before.is_some_and(|before| watch.selector.fits(before));
            let sort = match (was_in, is_in) {
                (false, false) => continue,
                (false, true) => "ADDED",
                (true, true) => "MODIFIED",
                (true, false) => "DELETED",
            };
            text.extend(watch.event(sort, &change.stored));
            watch.told = change.version;
        }
        watch.since = state.version;
        if !text.is_empty() {
            return Next::Part(text.into());
        }
        Next::Nothing
    }

    /// The news that there is nothing new.
    pub(crate) fn bookmark(&self, watch: &mut Watch) -> Option<Bytes> {
        if !watch.bookmarks || watch.told == watch.since {
            return None;
        }
        watch.told = watch.since;
        let event = json!({"type": "BOOKMARK", "object": {
            "kind": watch.kind.kind, "apiVersion": watch.kind.api_version(),
            "metadata": {"resourceVersion": watch.since.to_string(), "creationTimestamp": null},
        }});
        Some(line(&event))
    }

    /// Returns when something has changed.
    pub(crate) fn news(&self) -> tokio::sync::futures::Notified<'_> {
        self.news.notified()
    }
}

/// What a watch has to tell.
pub(crate) enum Next {
    Part(Bytes),
    /// The last words of a watch.
    Last(Bytes),
    Broken,
    Nothing,
}

impl Watch {
    fn event(&self, sort: &str, stored: &Stored) -> Vec<u8> {
        let object = match self.wants_metadata {
            true => &stored.metadata,
            false => &stored.text,
        };
        let head = format!("{{\"type\":\"{sort}\",\"object\":");
        [head.as_bytes(), object, b"}\n"].concat()
    }

    fn is_at(&self, id: &Id) -> bool {
        id.group == self.place.group
            && id.plural == self.place.plural
            && (self.place.namespace.is_empty() || self.place.namespace == id.namespace)
    }

    fn fits(&self, id: &Id, value: &Value) -> bool {
        self.is_at(id) && self.selector.fits(value)
    }
}

fn line(event: &Value) -> Bytes {
    (event.to_string() + "\n").into()
}

fn gone(since: u64, oldest: u64) -> Answer {
    let message = format!("too old resource version: {since} ({oldest})");
    Answer::failure(410, "Expired", &message, &Value::Null)
}

/// Where a request leads.
#[derive(Clone, Debug)]
struct Route {
    kind: Kind,
    id: Id,
    /// `status` or nothing.
    subresource: String,
}

impl State {
    fn served(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().chain(&self.custom)
    }

    fn handle(&mut self, request: &Request) -> Handled {
        self.authenticate(request)?;
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["version"] => {
                return Ok(Answer::json(&json!({
                    "major": "1", "minor": "33", "gitVersion": "v1.33.0", "platform": "linux/amd64",
                })));
            }
            ["api"] | ["apis"] => {
                let served: Vec<Kind> = self.served().cloned().collect();
                return Ok(Answer::json(&kinds::discovery(&served, path == ["api"])));
            }
            _ => {}
        }
        let route = self.route(request)?;
        self.allow(request, &route)?;
        match (request.method.as_str(), route.id.name.is_empty()) {
            ("GET", false) => self.read(request, &route),
            ("GET", true) => self.list(request, &route),
            ("POST", true) => self.create(request, &route, request.body.clone()),
            ("PUT", false) => self.replace(request, &route),
            ("PATCH", false) => self.patch(request, &route),
            ("DELETE", false) => self.delete(request, &route),
            (method, _) => Err(Answer::not_modelled(&format!("{method} on {}", route.id))),
        }
    }

    fn authenticate(&self, request: &Request) -> Result<(), Answer> {
        let is_agent = request.who.agent().is_some();
        if !is_agent || self.tokens.is_empty() || self.tokens.contains(&request.token) {
            return Ok(());
        }
        Err(Answer::failure(
            401,
            "Unauthorized",
            "Unauthorized",
            &Value::Null,
        ))
    }

    fn route(&self, request: &Request) -> Result<Route, Answer> {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        let (group, version, rest) = match path.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(Answer::not_modelled(&format!("/{}", path.join("/")))),
        };
        let (namespace, plural, rest) = match rest {
            ["namespaces"] => ("", "namespaces", &rest[1..]),
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => {
                ("", "namespaces", &rest[1..])
            }
            ["namespaces", namespace, plural, rest @ ..] => (*namespace, *plural, rest),
            [plural, rest @ ..] => ("", *plural, rest),
            [] => return Err(Answer::not_modelled("discovery group by group")),
        };
        let found = self
            .served()
            .find(|kind| kind.group == group && kind.version == version && kind.plural == plural);
        let Some(kind) = found.cloned() else {
            return Err(Answer::failure(
                404,
                "NotFound",
                "the server could not find the requested resource",
                &json!({}),
            ));
        };
        let (name, subresource) = match rest {
            [] => ("", ""),
            [name] => (*name, ""),
            [name, "status"] if kind.has_status => (*name, "status"),
            _ => return Err(Answer::not_modelled(&format!("/{}", path.join("/")))),
        };
        Ok(Route {
            id: Id::new(group, plural, namespace, name),
            subresource: subresource.to_owned(),
            kind,
        })
    }

    fn allow(&self, request: &Request, route: &Route) -> Result<(), Answer> {
        let Some(_) = request.who.agent() else {
            return Ok(());
        };
        let account = request.who.account.as_str();
        let namespace = &route.id.namespace;
        let rights = [
            account.to_owned(),
            format!("{account}/{namespace}"),
            format!("{account}/*/{}", route.id.plural),
        ];
        if !rights.iter().any(|right| self.denied.contains(right)) {
            return Ok(());
        }
        let verb = match (request.method.as_str(), route.id.name.is_empty()) {
            ("GET", false) => "get",
            ("GET", true) if request.is_watch() => "watch",
            ("GET", true) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            _ => "delete",
        };
        let user = match account {
            "" => "system:serviceaccount:cattle-fleet-system:fleet-agent".to_owned(),
            account => format!("system:serviceaccount:cattle-fleet-system:{account}"),
        };
        let (resource, group) = (&route.id.plural, &route.id.group);
        let place = match namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        let name = match route.id.name.as_str() {
            "" => String::new(),
            name => format!(" \"{name}\""),
        };
        let message = format!(
            "{}{name} is forbidden: User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}",
            route.kind.qualified()
        );
        let details = json!({"kind": resource, "name": route.id.name, "group": group});
        Err(Answer::failure(403, "Forbidden", &message, &details))
    }

    fn missing(route: &Route) -> Answer {
        let mut details = json!({"name": route.id.name, "kind": route.id.plural});
        if !route.id.group.is_empty() {
            details["group"] = route.id.group.clone().into();
        }
        let message = format!("{} \"{}\" not found", route.kind.qualified(), route.id.name);
        Answer::failure(404, "NotFound", &message, &details)
    }

    fn refused(route: &Route, code: u16, reason: &str, why: &str) -> Answer {
        let mut details = json!({"name": route.id.name, "kind": route.id.plural});
        if !route.id.group.is_empty() {
            details["group"] = route.id.group.clone().into();
        }
        let subject = format!("{} \"{}\"", route.kind.qualified(), route.id.name);
        let message = match reason {
            "AlreadyExists" => format!("{subject} already exists"),
            "Conflict" => format!("Operation cannot be fulfilled on {subject}: {why}"),
            "Forbidden" => format!("{subject} is forbidden: {why}"),
            _ => why.to_owned(),
        };
        Answer::failure(code, reason, &message, &details)
    }

    fn sent(&self, request: &Request, stored: &Stored) -> Answer {
        Answer::ok(match request.wants_metadata() {
            true => stored.metadata.clone(),
            false => stored.text.clone(),
        })
    }

    fn read(&self, request: &Request, route: &Route) -> Handled {
        match self.objects.get(&route.id) {
            Some(stored) => Ok(self.sent(request, stored)),
            None => Err(Self::missing(route)),
        }
    }

    fn list(&self, request: &Request, route: &Route) -> Handled {
        if request.is_watch() {
            return Err(Answer::not_modelled("a watch asked for as a list"));
        }
        let selector = Selector::of(request)?;
        let place = route.id.place();
        let is_at = |id: &Id| {
            id.group == place.group
                && id.plural == place.plural
                && (place.namespace.is_empty() || place.namespace == id.namespace)
        };
        // A page goes on after the name that the one before ended with.
        let after = request.parameter("continue");
        let limit: usize = request.parameter("limit").parse().unwrap_or(0);
        let mut found = self
            .objects
            .iter()
            .filter(|(id, stored)| is_at(id) && selector.fits(&stored.value))
            .filter(|(id, _)| {
                after.is_empty() || *after < *format!("{}/{}", id.namespace, id.name)
            });
        let mut items: Vec<&[u8]> = Vec::new();
        let mut last = String::new();
        let mut token = String::new();
        for (id, stored) in found.by_ref() {
            if limit != 0 && items.len() == limit {
                token.clone_from(&last);
                break;
            }
            last = format!("{}/{}", id.namespace, id.name);
            items.push(match request.wants_metadata() {
                true => &stored.metadata,
                false => &stored.text,
            });
        }
        let (kind, api_version) = match request.wants_metadata() {
            true => (
                "PartialObjectMetadata".to_owned(),
                "meta.k8s.io/v1".to_owned(),
            ),
            false => (route.kind.kind.clone(), route.kind.api_version()),
        };
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if !token.is_empty() {
            metadata["continue"] = token.into();
        }
        let mut text =
            format!("{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[")
                .into_bytes();
        text.extend_from_slice(&items.join(&b","[..]));
        text.extend_from_slice(b"]}");
        Ok(Answer::ok(text.into()))
    }

    fn create(&mut self, request: &Request, route: &Route, mut body: Value) -> Handled {
        let mut route = route.clone();
        let metadata = table(&mut body, "metadata");
        if route.id.name.is_empty() {
            let name = metadata.get("name").and_then(Value::as_str);
            let prefix = metadata.get("generateName").and_then(Value::as_str);
            route.id.name = match (name, prefix) {
                (Some(name), _) => name.to_owned(),
                (None, Some(prefix)) => format!("{prefix}{:05x}", self.uids + 0x1_0000),
                (None, None) => {
                    let why = "name or generateName is required";
                    return Err(Self::refused(&route, 422, "Invalid", why));
                }
            };
        }
        if self.objects.contains_key(&route.id) {
            return Err(Self::refused(&route, 409, "AlreadyExists", ""));
        }
        self.admit(request, &route, &body)?;
        let mut managed = Vec::new();
        let value = self.newborn(&route, body);
        apply::updated(
            &mut managed,
            &Value::Null,
            &value,
            &self.writer(request, &route, "Update"),
        );
        self.store(request, "create", &route, value, managed)
            .map(|answer| Answer {
                code: 201,
                ..answer
            })
    }

    /// A new object: what clients may not say of one is taken away, and what the server says is added.
    fn newborn(&mut self, route: &Route, mut body: Value) -> Value {
        self.uids += 1;
        let uid = format!("00000000-0000-4000-8000-{:012x}", self.uids);
        let now = format!("{:.0}", (self.clock)());
        if route.kind.has_status
            && let Some(map) = body.as_object_mut()
        {
            map.remove("status");
        }
        body["apiVersion"] = route.kind.api_version().into();
        body["kind"] = route.kind.kind.clone().into();
        let metadata = table(&mut body, "metadata");
        for field in [
            "managedFields",
            "resourceVersion",
            "selfLink",
            "deletionTimestamp",
        ] {
            metadata.remove(field);
        }
        metadata.insert("name".to_owned(), route.id.name.clone().into());
        if route.kind.namespaced {
            metadata.insert("namespace".to_owned(), route.id.namespace.clone().into());
        }
        metadata.insert("uid".to_owned(), uid.into());
        metadata.insert("creationTimestamp".to_owned(), now.into());
        metadata.remove("generation");
        if route.kind.has_status && route.kind.kind != "Namespace" {
            metadata.insert("generation".to_owned(), 1.into());
        }
        drop_empty(metadata);
        match route.kind.kind.as_str() {
            "Namespace" => {
                let labels = table_in(metadata, "labels");
                labels.insert(
                    "kubernetes.io/metadata.name".to_owned(),
                    route.id.name.clone().into(),
                );
                body["status"] = json!({"phase": "Active"});
                body["spec"] = json!({"finalizers": ["kubernetes"]});
            }
            "Secret" => {
                string_data(&mut body);
                if body.get("type").is_none() {
                    body["type"] = "Opaque".into();
                }
            }
            _ => {}
        }
        body
    }

    /// What keeps an object from being written.
    fn admit(&self, request: &Request, route: &Route, body: &Value) -> Result<(), Answer> {
        let id = &route.id;
        if route.kind.namespaced && !self.objects.contains_key(id) {
            let namespace = Id::new("", "namespaces", "", &id.namespace);
            let Some(found) = self.objects.get(&namespace) else {
                let message = format!("namespaces \"{}\" not found", id.namespace);
                let details = json!({"name": id.namespace, "kind": "namespaces"});
                return Err(Answer::failure(404, "NotFound", &message, &details));
            };
            if found.value.pointer("/metadata/deletionTimestamp").is_some() {
                let why = format!(
                    "unable to create new content in namespace {} because it is being terminated",
                    id.namespace
                );
                return Err(Self::refused(route, 403, "Forbidden", &why));
            }
        }
        if request.who.actor != Actor::System {
            let refusal = self.refusals.iter().find(|refusal| {
                refusal.plural == id.plural
                    && refusal.namespace == id.namespace
                    && (refusal.name.is_empty() || refusal.name == id.name)
            });
            if let Some(refusal) = refusal {
                return Err(Self::refused(route, 403, "Forbidden", &refusal.message));
            }
        }
        if let Some(problem) = apply::invalid(&route.kind, body, request) {
            return Err(problem);
        }
        Ok(())
    }

    fn writer(&self, request: &Request, route: &Route, operation: &'static str) -> apply::Writer {
        apply::Writer {
            manager: request.manager(),
            operation,
            subresource: route.subresource.clone(),
            api_version: route.kind.api_version(),
            time: format!("{:.0}", (self.clock)()),
            group: route.kind.group.clone(),
            kind: route.kind.kind.clone(),
        }
    }

    fn replace(&mut self, request: &Request, route: &Route) -> Handled {
        let Some(stored) = self.objects.get(&route.id) else {
            return Err(Self::missing(route));
        };
        let (before, managed) = (Arc::clone(&stored.value), stored.managed.clone());
        self.update(
            request,
            "update",
            route,
            &before,
            request.body.clone(),
            managed,
        )
    }

    /// Writes what an update, or a patch other than an apply, makes of an object.
    fn update(
        &mut self,
        request: &Request,
        verb: &'static str,
        route: &Route,
        before: &Value,
        mut after: Value,
        mut managed: Vec<Managed>,
    ) -> Handled {
        let version = after.pointer("/metadata/resourceVersion");
        if let Some(version) = version.and_then(Value::as_str)
            && !version.is_empty()
            && before
                .pointer("/metadata/resourceVersion")
                .and_then(Value::as_str)
                != Some(version)
        {
            return Err(Self::refused(route, 409, "Conflict", STALE));
        }
        if let Some(uid) = after.pointer("/metadata/uid").and_then(Value::as_str)
            && before.pointer("/metadata/uid").and_then(Value::as_str) != Some(uid)
        {
            return Err(Self::refused(
                route,
                409,
                "Conflict",
                "Precondition failed: UID in precondition",
            ));
        }
        self.admit(request, route, &after)?;
        if route.kind.kind == "Secret" {
            string_data(&mut after);
            if after.get("type").is_none() && before.get("type").is_some() {
                after["type"] = before["type"].clone();
            }
        }
        let after = apply::settled(route.subresource.as_str(), &route.kind, before, after);
        if let Some(problem) = apply::immutable(&route.kind, before, &after, &route.id.name) {
            return Err(problem);
        }
        apply::updated(
            &mut managed,
            before,
            &after,
            &self.writer(request, route, "Update"),
        );
        self.store(request, verb, route, after, managed)
    }

    fn patch(&mut self, request: &Request, route: &Route) -> Handled {
        let stored = self.objects.get(&route.id).cloned();
        if request.content_type.starts_with("application/apply-patch") {
            return self.apply(request, route, stored);
        }
        let Some(stored) = stored else {
            return Err(Self::missing(route));
        };
        let mut after = stored.value.as_ref().clone();
        // A patch may name managed fields, which are no part of what is stored.
        after["metadata"]["managedFields"] = apply::printed(&stored.managed);
        let mut managed = stored.managed.clone();
        match request.content_type.as_str() {
            "application/merge-patch+json" => patch::merge(&mut after, &request.body),
            "application/json-patch+json" => patch::json(&mut after, &request.body)?,
            "application/strategic-merge-patch+json" => {
                patch::strategic(&mut after, &request.body)?;
            }
            other => return Err(Answer::not_modelled(other)),
        }
        let written = table(&mut after, "metadata").remove("managedFields");
        if let Some(written) = written
            && written != apply::printed(&stored.managed)
        {
            managed = apply::read(&written);
        }
        let before = Arc::clone(&stored.value);
        self.update(request, "patch", route, &before, after, managed)
    }

    fn apply(&mut self, request: &Request, route: &Route, stored: Option<Stored>) -> Handled {
        let mut wanted = request.body.clone();
        let named = wanted.pointer("/metadata/resourceVersion").cloned();
        apply::strip(&mut wanted);
        let writer = self.writer(request, route, "Apply");
        let Some(stored) = stored else {
            if !route.subresource.is_empty() {
                return Err(Self::missing(route));
            }
            self.admit(request, route, &wanted)?;
            let fields = apply::applied_fields(&writer, &wanted);
            let value = self.newborn(route, wanted);
            let managed = vec![Managed::new(&writer, fields)];
            let answer = self.store(request, "create", route, value, managed)?;
            return Ok(Answer {
                code: 201,
                ..answer
            });
        };
        if let Some(named) = named.as_ref().and_then(Value::as_str)
            && stored.version.to_string() != named
        {
            return Err(Self::refused(route, 409, "Conflict", STALE));
        }
        self.admit(request, route, &wanted)?;
        let mut managed = stored.managed.clone();
        let force = request.parameter("force") == "true";
        let merged = apply::applied(&mut managed, &stored.value, &wanted, &writer, force)
            .map_err(|conflicts| conflict(&conflicts))?;
        let after = apply::settled(
            route.subresource.as_str(),
            &route.kind,
            &stored.value,
            merged,
        );
        if let Some(problem) = apply::immutable(&route.kind, &stored.value, &after, &route.id.name)
        {
            return Err(problem);
        }
        self.store(request, "apply", route, after, managed)
    }

    fn delete(&mut self, request: &Request, route: &Route) -> Handled {
        let Some(stored) = self.objects.get(&route.id).cloned() else {
            return Err(Self::missing(route));
        };
        let text = |pointer: &str| request.body.pointer(pointer).and_then(Value::as_str);
        let of = |field: &str| stored.value["metadata"][field].as_str().unwrap_or_default();
        for (pointer, field, name) in [
            ("/preconditions/uid", "uid", "UID"),
            (
                "/preconditions/resourceVersion",
                "resourceVersion",
                "ResourceVersion",
            ),
        ] {
            if let Some(wanted) = text(pointer)
                && wanted != of(field)
            {
                let why = format!(
                    "Precondition failed: {name} in precondition: {wanted}, {name} in object meta: {}",
                    of(field)
                );
                return Err(Self::refused(route, 409, "Conflict", &why));
            }
        }
        if request.is_dry_run() {
            return Ok(self.sent(request, &stored));
        }
        let mut value = stored.value.as_ref().clone();
        let is_namespace = route.kind.kind == "Namespace";
        let foreground = text("/propagationPolicy") == Some("Foreground");
        let has_finalizers = value
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|finalizers| !finalizers.is_empty());
        if is_namespace || foreground || has_finalizers {
            if value.pointer("/metadata/deletionTimestamp").is_some() {
                return Ok(self.sent(request, &stored));
            }
            let now = format!("{:.0}", (self.clock)());
            let metadata = table(&mut value, "metadata");
            metadata.insert("deletionTimestamp".to_owned(), now.into());
            metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
            if foreground {
                let finalizers = metadata
                    .entry("finalizers")
                    .or_insert_with(|| json!([]))
                    .as_array_mut();
                if let Some(finalizers) = finalizers {
                    finalizers.push("foregroundDeletion".into());
                }
            }
            if is_namespace {
                value["status"]["phase"] = "Terminating".into();
            }
            return self.store(request, "delete", route, value, stored.managed);
        }
        self.remove(request, route, &stored);
        let details = json!({
            "name": route.id.name, "kind": route.id.plural, "uid": of("uid"),
            "group": route.id.group,
        });
        Ok(Answer::json(&json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": details,
        })))
    }

    fn remove(&mut self, request: &Request, route: &Route, stored: &Stored) {
        self.objects.remove(&route.id);
        self.version += 1;
        let mut last = stored.value.as_ref().clone();
        last["metadata"]["resourceVersion"] = self.version.to_string().into();
        let last = pack(Arc::new(last), stored.managed.clone(), self.version);
        let id = route.id.clone();
        self.tell(Change {
            version: self.version,
            id,
            sort: "DELETED",
            stored: last,
            before: Some(Arc::clone(&stored.value)),
        });
        if route.kind.kind == "CustomResourceDefinition" {
            self.undefine(request, &stored.value);
        }
        self.audited(request, "delete", route, Some(&stored.value), None);
    }

    /// The objects of a kind go with its definition.
    fn undefine(&mut self, request: &Request, definition: &Value) {
        let kinds = Kind::of_definition(definition);
        let is_of = |id: &Id| {
            kinds
                .iter()
                .any(|kind| kind.group == id.group && kind.plural == id.plural)
        };
        let orphans: Vec<Id> = self
            .objects
            .keys()
            .filter(|id| is_of(id))
            .cloned()
            .collect();
        for id in orphans {
            let kind = kinds.iter().find(|kind| kind.plural == id.plural);
            let stored = self.objects.get(&id).cloned();
            if let (Some(kind), Some(stored)) = (kind.cloned(), stored) {
                let route = Route {
                    kind,
                    id,
                    subresource: String::new(),
                };
                self.remove(request, &route, &stored);
            }
        }
        self.define();
    }

    /// Reads which kinds the definitions bring.
    fn define(&mut self) {
        let definitions = self
            .objects
            .iter()
            .filter(|(id, _)| id.plural == "customresourcedefinitions");
        let established = definitions.filter(|(_, stored)| {
            let conditions = stored.value.pointer("/status/conditions");
            conditions.is_some_and(|conditions| conditions.to_string().contains("Established"))
        });
        self.custom = established
            .flat_map(|(_, stored)| Kind::of_definition(&stored.value))
            .collect();
    }

    /// Stores an object if it changed, and answers with it.
    fn store(
        &mut self,
        request: &Request,
        verb: &'static str,
        route: &Route,
        mut value: Value,
        managed: Vec<Managed>,
    ) -> Handled {
        let before = self.objects.get(&route.id).cloned();
        if let Some(before) = &before
            && same(&before.value, &value)
            && apply::same(&before.managed, &managed)
        {
            return Ok(self.sent(request, before));
        }
        if let (Some(before), true) = (&before, route.kind.has_status) {
            let is_changed = apply::spec_changed(&before.value, &value);
            let generation = before.value.pointer("/metadata/generation");
            if let Some(generation) = generation.and_then(Value::as_i64) {
                let generation = generation + i64::from(is_changed);
                value["metadata"]["generation"] = generation.into();
            }
        }
        if request.is_dry_run() {
            let version = before.as_ref().map_or(0, |before| before.version);
            if version != 0 {
                value["metadata"]["resourceVersion"] = version.to_string().into();
            }
            return Ok(self.sent(request, &pack(Arc::new(value), managed, version)));
        }
        self.version += 1;
        value["metadata"]["resourceVersion"] = self.version.to_string().into();
        let stored = pack(Arc::new(value), managed, self.version);
        let is_leaving = stored
            .value
            .pointer("/metadata/deletionTimestamp")
            .is_some();
        let is_held = stored
            .value
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|finalizers| !finalizers.is_empty())
            || stored
                .value
                .pointer("/spec/finalizers")
                .and_then(Value::as_array)
                .is_some_and(|finalizers| !finalizers.is_empty());
        if is_leaving && !is_held {
            let answer = self.sent(request, &stored);
            self.remove(request, route, &stored);
            return Ok(answer);
        }
        self.objects.insert(route.id.clone(), stored.clone());
        let old = before.map(|before| before.value);
        self.tell(Change {
            version: self.version,
            id: route.id.clone(),
            sort: if old.is_some() { "MODIFIED" } else { "ADDED" },
            stored: stored.clone(),
            before: old.clone(),
        });
        if route.kind.kind == "CustomResourceDefinition" {
            self.define();
        }
        self.audited(request, verb, route, old.as_ref(), Some(&stored.value));
        Ok(self.sent(request, &stored))
    }

    fn tell(&mut self, change: Change) {
        if self.log.len() == LOG
            && let Some(oldest) = self.log.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.version);
        }
        self.log.push_back(change);
    }

    fn audited(
        &self,
        request: &Request,
        verb: &'static str,
        route: &Route,
        before: Option<&Arc<Value>>,
        after: Option<&Arc<Value>>,
    ) {
        let Some(audit) = &self.audit else { return };
        let write = Write {
            side: self.side,
            who: request.who.clone(),
            verb,
            id: route.id.clone(),
            before: before.cloned(),
            after: after.cloned(),
        };
        let mut audit = audit.lock().unwrap_or_else(PoisonError::into_inner);
        audit.wrote(&write);
    }
}

const STALE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Other managers own what an apply would change.
fn conflict(conflicts: &[(String, String)]) -> Answer {
    let said: Vec<String> = conflicts
        .iter()
        .map(|(manager, field)| format!("conflict with {manager}: {field}"))
        .collect();
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|(manager, field)| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {manager}"),
                "field": field,
            })
        })
        .collect();
    let plural = if conflicts.len() == 1 { "" } else { "s" };
    let message = match said.as_slice() {
        [one] => format!("Apply failed with 1 conflict: {one}"),
        all => format!(
            "Apply failed with {} conflict{plural}: {}",
            all.len(),
            all.join("\n")
        ),
    };
    Answer::failure(409, "Conflict", &message, &json!({"causes": causes}))
}

/// Whether two states differ in nothing but their version and generation.
fn same(before: &Value, after: &Value) -> bool {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else {
        return before == after;
    };
    let is_own = |key: &str| matches!(key, "resourceVersion" | "generation");
    before.len() == after.len()
        && before.iter().all(|(key, value)| match key.as_str() {
            "metadata" => {
                let (Some(old), Some(new)) =
                    (value.as_object(), after.get(key).and_then(Value::as_object))
                else {
                    return false;
                };
                let kept = |map: &Map<String, Value>| map.keys().filter(|key| !is_own(key)).count();
                kept(old) == kept(new)
                    && old
                        .iter()
                        .filter(|(key, _)| !is_own(key))
                        .all(|(key, value)| new.get(key) == Some(value))
            }
            _ => after.get(key) == Some(value),
        })
}

/// An object with the texts it is sent as.
fn pack(value: Arc<Value>, managed: Vec<Managed>, version: u64) -> Stored {
    let mut metadata = value["metadata"].clone();
    if !managed.is_empty() {
        metadata["managedFields"] = apply::printed(&managed);
    }
    let metadata = metadata.to_string();
    let mut text = format!("{{\"metadata\":{metadata}");
    for (key, value) in value.as_object().into_iter().flatten() {
        if key != "metadata" {
            text += &format!(",{}:{value}", Value::from(key.as_str()));
        }
    }
    text.push('}');
    let partial = format!(
        "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{metadata}}}"
    );
    Stored {
        value,
        managed,
        text: text.into(),
        metadata: partial.into(),
        version,
    }
}

fn table<'v>(value: &'v mut Value, name: &str) -> &'v mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    table_in(value.as_object_mut().expect("it was made an object"), name)
}

fn table_in<'v>(map: &'v mut Map<String, Value>, name: &str) -> &'v mut Map<String, Value> {
    let entry = map.entry(name).or_insert(Value::Null);
    if !entry.is_object() {
        *entry = json!({});
    }
    entry.as_object_mut().expect("it was made an object")
}

/// Labels and annotations that are empty are not stored.
fn drop_empty(metadata: &mut Map<String, Value>) {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    metadata.retain(|_, value| !is_empty(value));
}

/// What is written as `stringData` is stored as `data`.
fn string_data(secret: &mut Value) {
    use base64::Engine as _;
    let Some(map) = secret.as_object_mut() else {
        return;
    };
    let Some(Value::Object(plain)) = map.remove("stringData") else {
        return;
    };
    let data = table_in(map, "data");
    for (key, value) in plain {
        let text = value.as_str().unwrap_or_default();
        data.insert(
            key,
            base64::engine::general_purpose::STANDARD
                .encode(text)
                .into(),
        );
    }
}
