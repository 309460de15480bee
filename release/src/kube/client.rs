//! The cluster handle: an identity, what all identities share, and what is asked of the API server.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use golib::json::encode;
use http::Request;
use kube::core::WatchEvent;
use objects::managed_fields::FIELD_MANAGER;
use objects::manifest::has_unknown_kinds;
use objects::merge::Patch;
use objects::{Discovery, Object, ObjectKey, Resource};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::discovery::CachedDiscovery;
use super::error::ApiError;
use super::listed::{Listed, MAX_OBJECT, Page};
use super::lock::{Lock, Locks};
use super::ownership::{Created, Deletable, Owner, OwnershipError, adoption_note};
use super::record_lists::{BatchedLists, RecordMetadata, RecordPage};
use super::transport::{
    ACCEPT_JSON, ACCEPT_METADATA, ACCEPT_METADATA_LIST, Connection, Verb, Watched, escape, found,
    object_path, path, path_as, send, send_for_text,
};
use super::unread::Unread;
use super::version::Version;
use crate::host::Host;
use crate::state::ownership::Adoption;

const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// Field manager of the annotation that says an object was there before its release.
const ADOPTION_MANAGER: &str = "fleetagent-adoption";

/// Objects per page of a list. Of larger ones fewer are asked for at a time.
const PAGE: u32 = 500;
/// Definitions a page: each may be a mebibyte.
const DEFINITIONS_PAGE: u32 = 5;
/// Limit on namespaces that are remembered to exist; beyond that they are read anew.
const MOST_NAMESPACES: usize = 1_000;

/// A cluster as one identity sees it. Cloning is cheap and shares discovery.
///
/// Everything goes through the client it was made with; [`Cluster::impersonating`] gives a handle for
/// another identity that shares only what the cluster serves and whose turn it is.
#[derive(Clone)]
pub struct Cluster {
    connection: Connection,
    discovery: Arc<CachedDiscovery>,
    namespaces: Arc<Mutex<HashSet<String>>>,
    record_lists: Arc<BatchedLists>,
    /// By namespace and name.
    releases: Arc<Locks<(String, String)>>,
    hooks: Arc<Locks<ObjectKey>>,
    unread: Arc<Unread>,
    undeleted: Arc<Unread>,
    unserved: Arc<Unread<()>>,
    host: Host,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    /// The cluster that `client` talks to, as the identity it has. Nothing is asked yet.
    pub fn new(client: kube::Client) -> Self {
        let discovery = Arc::new(CachedDiscovery::new(client.clone()));
        Self {
            connection: client,
            discovery,
            namespaces: Arc::default(),
            record_lists: Arc::default(),
            releases: Arc::default(),
            hooks: Arc::default(),
            unread: Arc::default(),
            undeleted: Arc::default(),
            unserved: Arc::default(),
            host: Host::default(),
        }
    }

    /// The same cluster, used from another host than the system.
    #[must_use]
    pub fn from_host(self, host: Host) -> Self {
        Self { host, ..self }
    }

    /// The process this handle is used in.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The same cluster as another identity. Discovery still uses the first
    /// one's client: an impersonated account often may not read discovery.
    #[must_use]
    pub fn impersonating(&self, client: kube::Client) -> Self {
        Self {
            connection: client,
            record_lists: Arc::default(),
            ..self.clone()
        }
    }

    /// The definitions whose objects nobody can read, whatever their identity.
    pub(super) fn unread(&self) -> &Unread {
        &self.unread
    }

    /// The same of objects that only records of others name, and that nobody can delete.
    pub(super) fn undeleted(&self) -> &Unread {
        &self.undeleted
    }

    /// The releases some of whose former revisions have kinds that are not served.
    pub(super) fn unserved(&self) -> &Unread<()> {
        &self.unserved
    }

    /// Waits until nobody else in this process acts on a release, whatever their identity.
    pub(crate) async fn lock_release(&self, namespace: &str, name: &str) -> Lock {
        let key = (namespace.to_owned(), name.to_owned());
        self.releases.lock(&key).await
    }

    /// Begins an action on a release where none is under way in this process.
    pub(crate) fn try_lock_release(&self, namespace: &str, name: &str) -> Option<Lock> {
        self.releases
            .try_lock(&(namespace.to_owned(), name.to_owned()))
    }

    /// Waits until nobody else in this process runs a hook that has one of these objects, of whichever release.
    pub(crate) async fn lock_hook(&self, objects: &[Object]) -> Vec<Lock> {
        let named = objects.iter().filter(|object| !object.name.is_empty());
        let keys = named.map(Object::key).collect();
        self.hooks.lock_all(&keys).await
    }

    /// Whether `namespace` was seen to exist. It may be gone again; this only orders requests.
    pub(crate) fn knows_namespace(&self, namespace: &str) -> bool {
        self.namespaces.lock().contains(namespace)
    }

    /// Remembers that `namespace` exists.
    pub(crate) fn remember_namespace(&self, namespace: &str) {
        let mut known = self.namespaces.lock();
        if known.len() >= MOST_NAMESPACES {
            known.clear();
        }
        known.insert(namespace.to_owned());
    }

    /// What the cluster serves; at most five minutes old.
    ///
    /// # Errors
    /// The API server was never reached.
    pub async fn discovery(&self) -> Result<Arc<Discovery>, ApiError> {
        self.discovery.get().await
    }

    /// What the cluster serves; at most a few seconds old.
    ///
    /// # Errors
    /// The API server cannot be reached.
    pub async fn fresh_discovery(&self) -> Result<Arc<Discovery>, ApiError> {
        self.discovery.fresh().await
    }

    /// What the cluster serves, asked anew if `documents` hold a kind that neither it nor `defined`
    /// knows.
    ///
    /// # Errors
    /// The API server cannot be reached.
    pub async fn discovery_of(
        &self,
        documents: &[Value],
        defined: &[Resource],
    ) -> Result<Arc<Discovery>, ApiError> {
        let discovery = self.discovery().await?;
        match has_unknown_kinds(documents, &discovery, defined) {
            true => self.fresh_discovery().await,
            false => Ok(discovery),
        }
    }

    pub(super) fn known_kinds(&self) -> &CachedDiscovery {
        &self.discovery
    }

    /// Forgets what the cluster serves, for callers that see CustomResourceDefinitions change.
    pub fn forget_discovery(&self) {
        self.discovery.forget();
    }
}

/// Requests.
impl Cluster {
    async fn send(
        &self,
        verb: Verb<'_>,
        path: String,
        body: Option<String>,
    ) -> Result<Value, ApiError> {
        send(&self.connection, verb, path, body).await
    }

    /// One object, none if it does not exist.
    ///
    /// # Errors
    /// The API server refused, or there was no answer; [`ApiError::NotServed`] where its kind has no such address, so that nobody knows.
    pub async fn get(&self, object: &Object) -> Result<Option<Value>, ApiError> {
        let path = object_path(object, "");
        let answer = self.send(Verb::get(ACCEPT_JSON), path, None).await;
        found(&object.resource, answer)
    }

    /// One object's metadata, none if it does not exist.
    pub(crate) async fn get_metadata(&self, object: &Object) -> Result<Option<Value>, ApiError> {
        self.get_metadata_as(object, &object.resource).await
    }

    /// The same in another version of its kind.
    pub(super) async fn get_metadata_as(
        &self,
        object: &Object,
        resource: &Resource,
    ) -> Result<Option<Value>, ApiError> {
        let path = path_as(object, resource);
        let answer = self.send(Verb::get(ACCEPT_METADATA), path, None).await;
        found(resource, answer)
    }

    /// An object by kind, namespace and name, none if it does not exist.
    pub(crate) async fn get_named(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        let path = path(resource, namespace, Some(name), "");
        let answer = self.send(Verb::get(ACCEPT_JSON), path, None).await;
        found(resource, answer)
    }

    /// All objects of a kind, of one namespace or of all.
    pub(crate) async fn list(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
    ) -> Result<Value, ApiError> {
        self.send(
            Verb::get(ACCEPT_JSON),
            path(resource, namespace, None, ""),
            None,
        )
        .await
    }

    /// Hands over all objects of a kind with a label, of one namespace or of all, one after the other; no more of one is in memory than is read of it.
    ///
    /// # Errors
    /// The API server refused a page, or there was no answer; the pages before were handed over.
    pub async fn list_each(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        selector: &str,
        mut take: impl FnMut(Listed<'_>),
    ) -> Result<(), ApiError> {
        let limit = match resource.is_definition() {
            true => DEFINITIONS_PAGE,
            false => PAGE,
        };
        let query = format!("?labelSelector={}", escape(selector));
        let path = path(resource, namespace, None, &query);
        let read = |text: String| {
            let page = Page::read(&text)?;
            page.items.into_iter().for_each(&mut take);
            Ok(page.next)
        };
        self.list_texts(ACCEPT_JSON, &path, limit, read).await
    }

    /// Hands over a list as it comes, page by page, smaller ones where a page is too large. `read` says where the next one begins.
    async fn list_texts(
        &self,
        accept: &str,
        list: &str,
        mut limit: u32,
        mut read: impl FnMut(String) -> Result<String, ApiError>,
    ) -> Result<(), ApiError> {
        let mut next = String::new();
        loop {
            let mut path = format!("{list}&limit={limit}");
            if !next.is_empty() {
                path = format!("{path}&continue={}", escape(&next));
            }
            next = match send_for_text(&self.connection, Verb::page(accept), path, None).await {
                Err(error) if error.is_too_large() && limit > 1 => {
                    limit = (limit / 4).max(1);
                    continue;
                }
                page => read(page?)?,
            };
            if next.is_empty() {
                return Ok(());
            }
        }
    }

    /// Hands over the pods of a namespace with these labels, one after the other, each naming its kind. None to an identity that may not list them, and
    /// none of [`MAX_OBJECT`].
    pub(crate) async fn each_pod(
        &self,
        namespace: Option<&str>,
        selector: &str,
        mut take: impl FnMut(&Value),
    ) -> Result<(), ApiError> {
        let resource = Resource {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            plural: "pods".to_owned(),
            namespaced: true,
        };
        let take = |listed: Listed<'_>| {
            if let Ok(mut pod) = listed.read(MAX_OBJECT) {
                // Lists leave out what is the same for all.
                if let Some(pod) = pod.as_object_mut() {
                    pod.insert("apiVersion".to_owned(), "v1".into());
                    pod.insert("kind".to_owned(), "Pod".into());
                }
                take(&pod);
            }
        };
        match self.list_each(&resource, namespace, selector, take).await {
            Err(error) if error.is_forbidden() => Ok(()),
            listed => listed,
        }
    }

    /// Watches one object after `version`, for so long at most; with an empty version, its current state comes first.
    pub(crate) async fn watch(
        &self,
        object: &Object,
        version: &str,
        limit: Duration,
    ) -> Result<impl Stream<Item = kube::Result<WatchEvent<Watched>>> + use<>, ApiError> {
        let query = format!(
            "?watch=true&allowWatchBookmarks=true&timeoutSeconds={}&fieldSelector=metadata.name%3D{}&resourceVersion={}",
            limit.as_secs(),
            escape(&object.name),
            escape(version)
        );
        let namespace = object.namespace.as_deref();
        let request = Request::get(path(&object.resource, namespace, None, &query))
            .header(http::header::ACCEPT, ACCEPT_JSON)
            .body(Vec::new())
            .map_err(ApiError::Request)?;
        Ok(self.connection.request_events(request).await?)
    }

    /// Sends the full object as server-side apply with strict field validation. The answer is the
    /// live object.
    pub(crate) async fn apply(
        &self,
        object: &Object,
        body: String,
        force: bool,
    ) -> Result<Value, ApiError> {
        let options = format!("&fieldValidation=Strict&force={force}");
        self.patch(object, APPLY_PATCH, &options, body).await
    }

    /// The dry run of [`Cluster::apply`]; unknown fields do not matter.
    pub(crate) async fn try_apply(
        &self,
        object: &Object,
        body: String,
        force: bool,
    ) -> Result<Value, ApiError> {
        let options = format!("&dryRun=All&force={force}");
        self.patch(object, APPLY_PATCH, &options, body).await
    }

    async fn patch(
        &self,
        object: &Object,
        content: &str,
        options: &str,
        body: String,
    ) -> Result<Value, ApiError> {
        let query = format!("?fieldManager={FIELD_MANAGER}{options}");
        let verb = Verb {
            content,
            ..Verb::write("PATCH")
        };
        self.send(verb, object_path(object, &query), Some(body))
            .await
    }

    /// Creates an object with strict field validation.
    pub(crate) async fn create(&self, object: &Object) -> Result<Value, ApiError> {
        self.post(object, "", &object.body).await
    }

    /// The dry run of [`Cluster::create`], of `body` in place of the object's own.
    pub(super) async fn try_create(
        &self,
        object: &Object,
        body: &Value,
    ) -> Result<Value, ApiError> {
        self.post(object, "&dryRun=All", body).await
    }

    async fn post(&self, object: &Object, options: &str, body: &Value) -> Result<Value, ApiError> {
        let query = format!("?fieldManager={FIELD_MANAGER}&fieldValidation=Strict{options}");
        let path = path(&object.resource, object.namespace.as_deref(), None, &query);
        self.send(Verb::write("POST"), path, Some(encode(body)))
            .await
    }

    /// Asks whether this identity may do something with a resource, by its `resourceAttributes`.
    pub(super) async fn review_access(&self, attributes: &Value) -> Result<Value, ApiError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned();
        self.send(Verb::write("POST"), path, Some(encode(&review)))
            .await
    }

    /// Writes the object whole, if it still has this version.
    pub(super) async fn replace(
        &self,
        object: &Object,
        version: &Version,
    ) -> Result<Value, ApiError> {
        let query = format!("?fieldManager={FIELD_MANAGER}&fieldValidation=Strict");
        let mut body = object.body.clone();
        version.demand(&mut body);
        let body = encode(&body);
        self.send(Verb::write("PUT"), object_path(object, &query), Some(body))
            .await
    }

    /// Sends a JSON patch.
    pub(crate) async fn json_patch(
        &self,
        object: &Object,
        patch: &Value,
    ) -> Result<Value, ApiError> {
        self.patch(object, "application/json-patch+json", "", encode(patch))
            .await
    }

    /// Sends a patch made by a merge, for this version of the object. The answer is the live object.
    pub(super) async fn merge_patch(
        &self,
        object: &Object,
        version: &Version,
        patch: Patch,
    ) -> Result<Value, ApiError> {
        let (content, mut patch) = match patch {
            Patch::Strategic(patch) => ("application/strategic-merge-patch+json", patch),
            Patch::Merge(patch) => ("application/merge-patch+json", patch),
        };
        version.demand(&mut patch);
        self.patch(object, content, "", encode(&patch)).await
    }

    /// Deletes an object that was read, in the background, and only while it is as it was then; by a dry run it only asks whether that is refused.
    pub(super) async fn delete(
        &self,
        object: &Object,
        proof: &Deletable,
        is_dry_run: bool,
    ) -> Result<(), ApiError> {
        let mut options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "preconditions": proof.preconditions(),
        });
        if is_dry_run {
            options["dryRun"] = json!(["All"]);
        }
        self.send(
            Verb::write("DELETE"),
            path_as(object, proof.resource(object)),
            Some(encode(&options)),
        )
        .await
        .map(drop)
    }

    /// Notes on this version of an object that it was there before its release. The answer is its metadata.
    pub(super) async fn note_adoption(
        &self,
        object: &Object,
        version: &Version,
        adoption: Adoption,
    ) -> Result<Value, ApiError> {
        let mut note = adoption_note(adoption);
        version.demand(&mut note);
        self.annotate(object, note).await
    }

    /// Changes an object's metadata, as the manager of what is noted on objects. The answer is its metadata.
    async fn annotate(&self, object: &Object, patch: Value) -> Result<Value, ApiError> {
        let verb = Verb {
            content: "application/merge-patch+json",
            ..Verb::record("PATCH")
        };
        let path = object_path(object, &format!("?fieldManager={ADOPTION_MANAGER}"));
        self.send(verb, path, Some(encode(&patch))).await
    }

    /// Takes a release's marks off an object that was read, and notes that it was left: whose chart has it next may have it.
    pub(super) async fn leave(&self, object: &Object, proof: &Deletable) -> Result<(), ApiError> {
        self.annotate(object, proof.leaving()).await.map(drop)
    }

    /// Notes on an object that was there before its release that it goes with it, as `takeOwnership` says; whatever else somebody writes into
    /// it, the note is the same. That it is gone by now, as a Job that removes itself, or another one than this `instance`, is no failure.
    pub(crate) async fn own(
        &self,
        object: &Object,
        instance: Option<&Created>,
    ) -> Result<(), ApiError> {
        let mut note = adoption_note(Adoption::Owned);
        if let Some(instance) = instance {
            instance.demand(&mut note);
        }
        match self.annotate(object, note).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            // A patch with another uid is invalid, not a conflict.
            Err(error) if error.is_conflict() || error.is_invalid() => {
                let found = self.get_metadata(object).await?;
                let is_it = |live: &Value| instance.is_none_or(|instance| instance.is(live));
                match found.as_ref().is_some_and(is_it) {
                    true => Err(error),
                    false => Ok(()),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Notes on an object, as it was found, that it was there before its release; gives it as it is then. One that
    /// somebody else changes meanwhile is left to be judged again when it is written.
    pub(crate) async fn note(
        &self,
        object: &Object,
        found: Value,
        adoption: Adoption,
    ) -> Result<Value, OwnershipError> {
        let version = Version::of(&found);
        match self.note_adoption(object, &version, adoption).await {
            Ok(noted) => Ok(noted),
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(found),
            Err(source) => Err(OwnershipError::Unknown {
                object: object.describe_for_people(),
                source,
            }),
        }
    }

    /// Creates a namespace labelled as Helm labels it, with the marks of the release that has it in its
    /// manifest, if one does. Says whether it was created; one that exists already is fine and stays
    /// untouched.
    pub(crate) async fn create_namespace(
        &self,
        name: &str,
        owner: Option<&Owner>,
    ) -> Result<bool, ApiError> {
        let mut body = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"name": name}},
        });
        if let Some(owner) = owner {
            owner.mark(&mut body);
        }
        let path = format!("/api/v1/namespaces?fieldManager={FIELD_MANAGER}");
        match self
            .send(Verb::write("POST"), path, Some(encode(&body)))
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.is_already_exists() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The metadata of the records of a release. Releases of one namespace that ask at the same time
    /// are answered together.
    pub(crate) async fn list_records(
        &self,
        namespace: &str,
        release: &str,
    ) -> Result<Vec<RecordMetadata>, ApiError> {
        let list = |names| self.list_records_of(namespace, names);
        self.record_lists.list(namespace, release, list).await
    }

    async fn list_records_of(
        &self,
        namespace: &str,
        releases: BTreeSet<String>,
    ) -> Result<Vec<RecordMetadata>, ApiError> {
        let names: Vec<String> = releases.iter().map(|name| escape(name)).collect();
        let all = format!(
            "/api/v1/namespaces/{}/secrets?labelSelector=name%20in%20%28{}%29%2Cowner%3Dhelm",
            escape(namespace),
            names.join("%2C")
        );
        let mut records = Vec::new();
        let read = |text: String| {
            let page = RecordPage::read(&text)?;
            records.extend(page.records);
            Ok(page.next)
        };
        let listed = self.list_texts(ACCEPT_METADATA_LIST, &all, PAGE, read);
        listed.await.map(|()| records)
    }

    /// Reads, creates, replaces or deletes one Secret by name, for storage.
    pub(crate) async fn record(
        &self,
        method: RecordRequest<'_>,
        namespace: &str,
    ) -> Result<Value, ApiError> {
        let root = format!("/api/v1/namespaces/{}/secrets", escape(namespace));
        let manager = format!("?fieldManager={FIELD_MANAGER}");
        let at = |name: &str| format!("{root}/{}", escape(name));
        let (verb, path, body) = match method {
            RecordRequest::Get(name) => (Verb::get(ACCEPT_JSON), at(name), None),
            RecordRequest::Create(body) => {
                let path = format!("{root}{manager}");
                (Verb::record("POST"), path, Some(encode(body)))
            }
            RecordRequest::Replace(name, body) => {
                (Verb::record("PUT"), at(name) + &manager, Some(encode(body)))
            }
            RecordRequest::Delete(name, uid) => {
                let options = json!({
                    "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid},
                });
                (Verb::record("DELETE"), at(name), Some(encode(&options)))
            }
        };
        self.send(verb, path, body).await
    }
}

/// A request of the release storage for one object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RecordRequest<'a> {
    Get(&'a str),
    Create(&'a Value),
    Replace(&'a str, &'a Value),
    Delete(&'a str, &'a str),
}

#[cfg(test)]
mod tests {
    use http::{Method, Response};
    use kube::client::Body;
    use rstest::rstest;
    use tower::BoxError;

    use super::super::fixture;
    use super::*;

    /// What a deploy took over may go by itself before it is noted as its own.
    #[rstest]
    #[case::there(200, Some("u"), true)]
    #[case::gone(404, None, true)]
    #[case::gone_since(409, None, true)]
    #[case::another_one_since(409, Some("v"), true)]
    #[case::another_one(422, Some("v"), true)]
    #[case::another_one_that_is_gone(422, None, true)]
    #[case::invalid(422, Some("u"), false)]
    #[case::somebody_is_at_it(409, Some("u"), false)]
    #[case::refused(403, Some("u"), false)]
    #[tokio::test]
    async fn noting_a_takeover_is_done_once_the_object_is_gone(
        #[case] code: u16,
        #[case] found: Option<&'static str>,
        #[case] is_done: bool,
    ) {
        let serve = tower::service_fn(move |request: Request<Body>| async move {
            let live = |uid| json!({"metadata": {"name": "a", "namespace": "shop", "uid": uid}});
            let reason = match code {
                404 => "NotFound",
                409 => "Conflict",
                422 => "Invalid",
                _ => "Forbidden",
            };
            let refusal = |code, reason| json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "details": {"name": "a"}});
            let (code, answer) = match (request.method() == Method::PATCH, found) {
                (true, _) => {
                    let sent = request.into_body().collect_bytes().await?;
                    let sent: Value = serde_json::from_slice(&sent)?;
                    assert_eq!(sent["metadata"]["uid"], "u", "{sent}");
                    match code {
                        200 => (200, live("u")),
                        code => (code, refusal(code, reason)),
                    }
                }
                (false, Some(uid)) => (200, live(uid)),
                (false, None) => (404, refusal(404, "NotFound")),
            };
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, BoxError>(Response::builder().status(code).body(answer)?)
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let instance = Created::from_answer(&json!({"metadata": {"uid": "u"}}));
        let object = fixture::object("batch", "Job", Value::Null);
        let owned = cluster.own(&object, instance.as_ref()).await;
        assert_eq!(owned.is_ok(), is_done, "{owned:?}");
    }
}
