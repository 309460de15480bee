//! Records of a release, and a cluster that has it, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::BoxError;

use crate::kube::Cluster;
use crate::model::{Hook, HookEvent, Release, Status};
use crate::storage::{Driver, Found, RecordUid, StorageError, StoredRelease, StoredRevision};

/// The records of release "web", by revision.
#[derive(Debug, Default)]
pub(super) struct InMemory(Mutex<BTreeMap<i64, Release>>);

fn uid_of(revision: i64) -> RecordUid {
    RecordUid::new(revision.to_string())
}

fn revision_of(key: &str) -> i64 {
    let revision = key.rsplit_once('v').map(|(_, revision)| revision);
    revision.unwrap().parse().unwrap()
}

impl Driver for InMemory {
    fn history<'a>(
        &'a self,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRevision>, StorageError>> {
        let head = |(revision, release): (&i64, &Release)| {
            let labels = crate::storage::system_labels("web", *revision, &release.status());
            let labels = labels.into_iter().chain(release.labels.clone());
            let head = StoredRevision::from_labels(&labels.collect()).unwrap();
            let uid = uid_of(*revision);
            StoredRevision { uid, ..head }
        };
        let history = self.0.lock().iter().map(head).collect();
        async { Ok(history) }.boxed()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Found, StorageError>> {
        let revision = revision_of(key);
        let found = self.0.lock().get(&revision).cloned();
        let found = found.map(|release| Found {
            uid: uid_of(revision),
            release: Ok(release),
        });
        async { found.ok_or(StorageError::NotFound) }.boxed()
    }

    fn create<'a>(
        &'a self,
        release: &'a Release,
    ) -> BoxFuture<'a, Result<RecordUid, StorageError>> {
        self.0.lock().insert(release.revision, release.clone());
        async { Ok(uid_of(release.revision)) }.boxed()
    }

    fn update<'a>(&'a self, stored: &'a StoredRelease) -> BoxFuture<'a, Result<(), StorageError>> {
        self.0.lock().insert(stored.revision, (**stored).clone());
        async { Ok(()) }.boxed()
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        _: &'a RecordUid,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        self.0.lock().remove(&revision_of(key));
        async { Ok(()) }.boxed()
    }
}

pub(super) fn config_map(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
    })
}

/// A cluster that has ConfigMap `a` of release "web", and takes what is written, `as_written` then. What of it was deleted.
pub(super) fn cluster(
    as_written: impl Fn() + Clone + Send + Sync + 'static,
) -> (Cluster, Arc<Mutex<Vec<String>>>) {
    let deleted = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&deleted);
    let written = Arc::<Mutex<Option<Value>>>::default();
    let serve = tower::service_fn(move |request: Request<Body>| {
        let (noted, written) = (Arc::clone(&noted), Arc::clone(&written));
        let as_written = as_written.clone();
        async move {
            let (parts, body) = request.into_parts();
            let path = parts.uri.path();
            let name = path.rsplit('/').next().unwrap_or_default();
            let body = body.collect_bytes().await?;
            let sent = serde_json::from_slice(&body).unwrap_or_default();
            let served = json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {}, "versions": [
                {"version": "v1", "resources": [{"resource": "configmaps", "scope": "Namespaced",
                    "responseKind": {"kind": "ConfigMap"}}]}]}]});
            let marks = json!({"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"});
            let live = |mut object: Value| {
                object["metadata"]["uid"] = json!("u");
                object["metadata"]["resourceVersion"] = json!("7");
                object["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
                let by = objects::managed_fields::FIELD_MANAGER;
                object["metadata"]["managedFields"] =
                    json!([{"manager": by, "operation": "Apply"}]);
                object
            };
            let found = match (&parts.method, name) {
                (_, "api") => Some(served),
                (_, "apis" | "version") => Some(json!({})),
                (&Method::DELETE, name) => {
                    noted.lock().push(name.to_owned());
                    Some(json!({}))
                }
                (&Method::GET, "a") => Some(live(config_map("a", &marks))),
                (&Method::GET, _) => written.lock().clone(),
                (_, _) => {
                    let object = live(sent);
                    as_written();
                    *written.lock() = Some(object.clone());
                    Some(object)
                }
            };
            let code = if found.is_some() { 200 } else { 404 };
            let missing = json!({"kind": "Status", "status": "Failure", "code": 404,
                "reason": "NotFound", "details": {"name": name}});
            let answer = found.unwrap_or(missing).to_string().into_bytes();
            Ok::<_, BoxError>(Response::builder().status(code).body(Body::from(answer))?)
        }
    });
    (Cluster::new(kube::Client::new(serve, "shop")), deleted)
}

/// Release "web" by a revision, with a hook before its removal where that `has_hook`.
pub(super) fn web(revision: i64, has_hook: bool) -> Release {
    let manifest = |object: &Value| format!("---\n{object}\n");
    let hook = config_map("goodbye", &json!({"helm.sh/hook": "pre-delete"}));
    let hook = Hook {
        name: "goodbye".to_owned(),
        kind: "ConfigMap".to_owned(),
        manifest: manifest(&hook),
        events: vec![HookEvent::PreDelete.as_str().to_owned()],
        ..Hook::default()
    };
    let mut release = Release {
        name: "web".to_owned(),
        namespace: "shop".to_owned(),
        revision,
        manifest: manifest(&config_map("a", &json!({}))),
        hooks: has_hook.then_some(hook).into_iter().collect(),
        ..Release::default()
    };
    release.set_status(Status::Deployed, "Install complete");
    release
}
