//! An API server in memory: what the agent relies on, and nothing else.
//!
//! Objects by group, kind, namespace and name with versions, uids and generations; lists, watches and bookmarks; optimistic
//! locking; server-side apply with the ownership of fields, dry runs and the other patches; finalizers, deletion, namespaces that
//! terminate; definitions; the status subresource; rights by account. What is not modelled is answered with 501, and fails the
//! history. That it answers as the real one does is shown by replaying recorded requests (`tests/fidelity.rs`).

mod apply;
mod fields;
mod kinds;
mod modelled;
mod object;
mod patch;
mod read;
mod request;
mod route;
mod scale;
mod schema;
mod select;
mod watch;
mod webhook;
mod write;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Notify;

pub(crate) use kinds::CLEANUP;
use kinds::{Discovery, Kind};
pub use object::Id;
use object::Stored;
pub(crate) use object::is_leaving;
pub use request::{Actor, Answer, Request, Who};
use watch::{Change, Listener};
pub(crate) use watch::{Next, Watch};
pub use webhook::{Habit, Webhook, without_additions};

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

    /// A webhook keeps a write waiting for so long from now on.
    fn held_up(&mut self, held: Duration);

    /// An agent is told which BundleDeployments there are, or that one has changed.
    fn told(&mut self);
}

/// An object that a webhook refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub plural: String,
    pub namespace: String,
    pub name: String,
}

/// How many objects of a kind a namespace may have. As the real one it is asked of what is created, and of nothing that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    pub group: String,
    pub plural: String,
    pub namespace: String,
    pub hard: usize,
}

pub(crate) struct State {
    side: &'static str,
    kinds: Vec<Arc<Kind>>,
    custom: Vec<Arc<Kind>>,
    /// From which version on each of them is served, by group and plural.
    served_since: BTreeMap<(String, String), u64>,
    discovery: Discovery,
    objects: BTreeMap<Id, Arc<Stored>>,
    version: u64,
    /// Never reset, so that a restored cluster gives no uid twice.
    uids: u64,
    log: VecDeque<Change>,
    /// Versions up to this one are not told any more to a watch that begins.
    forgotten: u64,
    /// The same for watches in progress, by group and plural: each kind has a cache of its own.
    unsent: BTreeMap<(String, String), u64>,
    listeners: Vec<Listener>,
    /// Grows with each break after which all watches end.
    epoch: u64,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    audit: Option<Arc<Mutex<dyn Audit>>>,
    /// Accounts without any right, by name; a right in one namespace is `account/namespace`.
    pub(crate) denied: BTreeSet<String>,
    pub(crate) refusals: Vec<Refusal>,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) webhooks: Vec<Webhook>,
    /// Tokens that open it; empty where none is asked for.
    pub(crate) tokens: BTreeSet<String>,
    /// How many bundles a page of their list has at most, whatever was asked for; all that were asked for where nothing is said.
    pub(crate) page: Option<usize>,
    pub(crate) not_modelled: Vec<String>,
}

/// A server; clones share it.
#[derive(Clone)]
pub struct Server {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

/// A server's objects at one moment.
#[derive(Clone)]
pub struct Backup {
    objects: BTreeMap<Id, Arc<Stored>>,
    version: u64,
}

impl Backup {
    /// The server's version at that moment.
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// By how much versions grow with a restore that does not take them back.
const BUMP: u64 = 1_000_000_000;

type Handled = Result<Answer, Answer>;

impl State {
    /// Notes what an answer says not to be modelled.
    fn tell(&mut self, request: &Request, answer: &Answer) {
        if answer.code == 501 {
            let what = format!("{}: {}", request.describe(), answer.value()["message"]);
            self.not_modelled.push(what);
        }
    }
}

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
            served_since: BTreeMap::new(),
            discovery: Discovery::default(),
            objects: BTreeMap::new(),
            version: 1000,
            uids: 0,
            log: VecDeque::new(),
            forgotten: 1000,
            unsent: BTreeMap::new(),
            listeners: Vec::new(),
            epoch: 0,
            clock,
            audit: None,
            denied: BTreeSet::new(),
            refusals: Vec::new(),
            quotas: Vec::new(),
            webhooks: Vec::new(),
            tokens: BTreeSet::new(),
            page: None,
            not_modelled: Vec::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            changed: Arc::new(Notify::new()),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells every write to somebody.
    pub fn audited_by(&self, audit: Arc<Mutex<dyn Audit>>) {
        self.lock().audit = Some(audit);
    }

    /// An agent is told which BundleDeployments there are, or that one has changed.
    pub fn told(&self) {
        if let Some(audit) = &self.lock().audit {
            audit.lock().unwrap_or_else(PoisonError::into_inner).told();
        }
    }

    /// Answers a request that is no watch.
    pub fn ask(&self, request: &Request) -> Answer {
        let (answer, is_changed) = {
            let mut state = self.lock();
            let version = state.version;
            let answer = state.handle(request).unwrap_or_else(|refused| refused);
            state.tell(request, &answer);
            (answer, state.version != version)
        };
        if is_changed {
            self.changed.notify_waiters();
        }
        answer
    }

    /// A request of one of the simulation's own actors.
    pub fn act(&self, actor: Actor, method: &str, uri: &str, body: Value) -> Answer {
        let mut request = Request::new(Who::is(actor), method, uri, body);
        request.user_agent = match actor {
            Actor::Helm => "Helm",
            Actor::Upstream => "fleetcontroller",
            Actor::Go => "fleetagent",
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

    /// Makes an object what a recording says it is, with its identity, version and `managedFields`.
    ///
    /// # Errors
    /// What is missing: its kind is not served, or it has no name.
    pub fn put(&self, object: &Value) -> Result<(), String> {
        self.lock().put(object)
    }

    /// Makes an object, or all of a collection, as if it had never been.
    ///
    /// # Errors
    /// When the path leads nowhere.
    pub fn forget(&self, path: &str) -> Result<(), String> {
        self.lock().forget(path)
    }

    /// Takes a right from an account (`account/namespace`), or gives it back.
    pub fn deny(&self, right: &str, is_denied: bool) {
        let mut state = self.lock();
        if is_denied {
            state.denied.insert(right.to_owned());
        } else {
            state.denied.remove(right);
        }
    }

    /// All objects that are at such places.
    pub fn all(&self, fits: impl Fn(&Id) -> bool) -> Vec<(Id, Arc<Value>)> {
        self.find(|id, _| fits(id))
    }

    /// All objects that are such, at such places.
    pub fn find(&self, fits: impl Fn(&Id, &Value) -> bool) -> Vec<(Id, Arc<Value>)> {
        let state = self.lock();
        let objects = state.objects.iter();
        let found = objects.filter(|(id, stored)| fits(id, &stored.value));
        found
            .map(|(id, stored)| (id.clone(), Arc::clone(&stored.value)))
            .collect()
    }

    /// What was written after a version, and what has to be looked at all the same; and the version that is.
    pub(crate) fn written_after(
        &self,
        version: u64,
        fits: impl Fn(&Id, &Value) -> bool,
    ) -> (Vec<(Id, Arc<Value>)>, u64) {
        let state = self.lock();
        let objects = state.objects.iter();
        let found =
            objects.filter(|(id, stored)| stored.version > version || fits(id, &stored.value));
        let found = found.map(|(id, stored)| (id.clone(), Arc::clone(&stored.value)));
        (found.collect(), state.version)
    }

    /// What is there now.
    pub fn backup(&self) -> Backup {
        let state = self.lock();
        Backup {
            objects: state.objects.clone(),
            version: state.version,
        }
    }

    /// Becomes what it was, and all watches end: versions go back too, or go on above all that there were, as etcd's restore can have it.
    pub fn restore(&self, backup: &Backup, goes_back: bool) {
        let mut state = self.lock();
        state.objects = backup.objects.clone();
        state.version = match goes_back {
            true => backup.version,
            false => state.version.max(backup.version) + BUMP,
        };
        state.log.clear();
        state.forgotten = state.version;
        state.served_since.clear();
        state.define();
        state.break_watches();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Forgets changes that watches have not been told, and ends these.
    pub fn compact(&self) {
        self.lock().compact();
    }

    /// Ends all watches without a word.
    pub fn break_watches(&self) {
        self.lock().break_watches();
    }

    /// Returns when something has changed.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }
}
