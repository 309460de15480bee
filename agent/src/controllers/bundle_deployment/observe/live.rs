//! The live objects of a release: reading them, and which there are.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use golib::json;
use objects::drift;
use objects::fields::text;
use objects::manifest::Unserved;
use objects::{GroupKind, Object, ObjectKey, Resource};
use release::kube::{ApiError, Cluster, Listed, MAX_OBJECT, Owner};
use release::storage::StorageError;
use serde_json::Value;

use super::desired::{FormerObjects, Kept, KindAndName, by_kind};
use crate::api::{LABEL_OBJECT_SET_HASH, LABEL_OBJECT_SET_PRUNE, ModifiedStatus};
use crate::controllers::bundle_deployment::observation_cache::InSync;
use crate::controllers::bundle_deployment::ownership;
use crate::controllers::drift_watch::Seen;

/// Monitoring failed: the Monitored condition.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    #[error("failed to list {kind}")]
    List { kind: String, source: ApiError },
    #[error("{} is nested too deep to be compared", shown(.0))]
    TooDeep(ObjectKey),
    #[error("{} is too large to be compared", shown(.0))]
    TooLarge(ObjectKey),
    #[error(
        "{0} objects that carry the label of this bundle were not looked at: there are too many"
    )]
    TooManyExtras(usize),
    #[error("failed to read which objects the revision before had")]
    Former(#[source] StorageError),
    #[error("failed to ask which kinds the revision before had")]
    Kinds(#[source] ApiError),
    #[error("failed to compare {}", shown(.0))]
    Predict(ObjectKey, #[source] ApiError),
    #[error("failed to get {}", shown(.0))]
    Get(ObjectKey, #[source] ApiError),
}

/// Labels that are read of objects that are not wanted, beside the marks of a release.
const EXTRAS_LABELS: [&str; 2] = [LABEL_OBJECT_SET_HASH, LABEL_OBJECT_SET_PRUNE];

/// The most that the outlines of objects take that are not wanted, in bytes: some thousand objects, which anybody labels who may create any.
const MAX_EXTRAS: u64 = 4 << 20;

/// What an entry of a map takes beside what it holds, in bytes, about.
const ENTRY: u64 = 200;

fn shown(object: &ObjectKey) -> String {
    let (kind, namespace, name) = (&object.kind, &object.namespace, &object.name);
    format!("{kind} {namespace}/{name}")
}

/// The live objects of a set.
#[derive(Debug, Default)]
pub struct Live {
    pub(super) objects: HashMap<ObjectKey, Value>,
    /// Wanted objects that do not carry our hash but are there: the release that has one, and since when.
    pub(super) foreign: BTreeMap<ObjectKey, Option<(Owner, String)>>,
    /// Of these the objects that the account may not read.
    pub(super) unreadable: BTreeSet<ObjectKey>,
    /// Objects that were found in order before and have not changed since.
    pub(super) in_sync: InSync,
    /// Definitions that visibly are what is wanted; without their schemas.
    pub(super) covered: BTreeSet<ObjectKey>,
    /// Kinds that the cluster has stopped to serve, so that there is no object of them.
    gone: BTreeSet<GroupKind>,
    /// What the objects take, in bytes, about: whoever may write one makes it as large as he likes.
    bytes: u64,
    /// What those of them take that are not wanted, and how many had no room beside those.
    extras_bytes: u64,
    left_out: usize,
}

/// An object as it was read, with what items of a list do not carry, and without who wrote which field.
fn whole(resource: &Resource, mut item: Value) -> Value {
    if let Some(Value::Object(metadata)) = item.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    if let Value::Object(fields) = &mut item {
        fields
            .entry("apiVersion")
            .or_insert_with(|| resource.api_version().into());
        fields
            .entry("kind")
            .or_insert_with(|| resource.kind.clone().into());
    }
    item
}

impl Live {
    /// Reads the live objects of the set with this hash. `held` is told what they take, in bytes, as they come.
    ///
    /// # Errors
    /// A kind cannot be listed, or a wanted object that is not listed cannot be read. Where the account may not list, its wanted objects are read
    /// one by one, and extras go unnoticed; what it may not read either counts as there.
    pub async fn read(
        cluster: &Cluster,
        hash: &str,
        desired: &[Object],
        mut held: impl FnMut(u64) + Send,
    ) -> Result<Self, ObserveError> {
        let mut live = Self::default();
        let selector = format!("{LABEL_OBJECT_SET_HASH}={hash}");
        let wanted: HashSet<_> = desired.iter().map(Object::key).collect();
        for (resource, objects) in by_kind(desired) {
            let namespaces: BTreeSet<_> = objects.iter().map(|o| o.namespace.as_deref()).collect();
            for namespace in namespaces {
                let mut taken = Ok(());
                let take = |item: Listed<'_>| {
                    let key = ObjectKey {
                        group: resource.group.clone(),
                        kind: resource.kind.clone(),
                        namespace: item.namespace().to_owned(),
                        name: item.name().to_owned(),
                    };
                    match wanted.contains(&key) {
                        false => live.keep_extra(&resource, &item),
                        true => match item.read(MAX_OBJECT) {
                            Ok(item) if resource.is_definition() => {
                                live.add_definition(&resource, item, &objects);
                            }
                            Ok(item) => live.add(&resource, vec![item]),
                            Err(json::Error::TooLarge(_)) => {
                                taken = Err(ObserveError::TooLarge(key));
                            }
                            Err(_) => taken = Err(ObserveError::TooDeep(key)),
                        },
                    }
                    held(live.bytes);
                };
                let listed = cluster.list_each(&resource, namespace, &selector, take);
                match listed.await {
                    Ok(()) => taken?,
                    Err(error) if error.is_forbidden() => {
                        let here = objects
                            .iter()
                            .filter(|o| o.namespace.as_deref() == namespace);
                        for object in here {
                            let found = match get(cluster, object).await {
                                Ok(Some(found)) => found,
                                Ok(None) => continue,
                                // The kind seems to be served no more.
                                Err(ObserveError::Get(_, ApiError::NotServed(kind))) => {
                                    live.gone.insert(kind);
                                    continue;
                                }
                                Err(failed) => return Err(failed),
                            };
                            if hash_of(&found) == hash {
                                live.add(&resource, vec![found]);
                                held(live.bytes);
                            }
                        }
                    }
                    // The kind seems to be served no more.
                    Err(error) if error.is_unserved() => {
                        live.gone.insert(resource.group_kind());
                    }
                    Err(error) if error.is_not_found() => {}
                    Err(source) => {
                        let kind = resource.kind.clone();
                        return Err(ObserveError::List { kind, source });
                    }
                }
            }
        }
        live.prove_gone(cluster).await?;
        let is_unlisted =
            |object: &&Object| !live.objects.contains_key(&object.key()) && !live.is_gone(object);
        let unlisted: Vec<_> = desired.iter().filter(is_unlisted).collect();
        for object in unlisted {
            let holder = match get(cluster, object).await {
                Ok(None) => continue,
                Ok(Some(found)) => ownership::holder(&found),
                // Not for this account to see: that does not mean that it is gone.
                Err(ObserveError::Get(_, source)) if source.is_forbidden() => {
                    live.unreadable.insert(object.key());
                    None
                }
                // Whoever does not answer is not asked once for each object.
                Err(failed) => return Err(failed),
            };
            live.foreign.insert(object.key(), holder);
        }
        Ok(live)
    }

    /// Shows that there is no object of the kinds that are not served any more. Kubernetes' own are not taken away by a person.
    async fn prove_gone(&mut self, cluster: &Cluster) -> Result<(), ObserveError> {
        let Some(first) = self.gone.first() else {
            return Ok(());
        };
        let own = self.gone.iter().find(|kind| kind.is_kubernetes_own());
        let proven = match own {
            Some(kind) => Err(ApiError::NotServed(kind.clone())),
            None => cluster.prove_gone(&self.gone).await,
        };
        let kind = own.unwrap_or(first).to_string();
        proven.map_err(|source| ObserveError::List { kind, source })?;
        // Another namespace was listed before the kind went.
        let gone = &self.gone;
        self.objects
            .retain(|key, _| !gone.contains(&key.group_kind()));
        Ok(())
    }

    fn is_gone(&self, object: &Object) -> bool {
        self.gone.contains(&object.resource.group_kind())
    }

    /// Takes what is of kinds that are not served any more out of what is wanted.
    pub fn take_unserved(&self, desired: &mut Vec<Object>) -> Vec<Unserved> {
        let gone = desired.extract_if(.., |object| self.is_gone(object));
        gone.map(|object| Unserved {
            api_version: object.resource.api_version(),
            kind: object.resource.kind.clone(),
            namespace: object.namespace.unwrap_or_default(),
            name: object.name,
        })
        .collect()
    }

    /// What a first install just wrote; none if it did not write everything that is wanted.
    pub fn written(hash: &str, desired: &[Object], applied: Vec<Value>) -> Option<Self> {
        let mut live = Self::default();
        let mut answers: HashMap<_, VecDeque<Value>> = HashMap::new();
        for found in applied {
            let version = text(&found, "/apiVersion").to_owned();
            let key = (ObjectKey::of(&found), version);
            answers.entry(key).or_default().push_back(found);
        }
        for object in desired {
            let key = (object.key(), object.resource.api_version());
            let found = answers.get_mut(&key)?.pop_front()?;
            if hash_of(&found) != hash {
                return None;
            }
            live.add(&object.resource, vec![found]);
        }
        Some(live)
    }

    /// Reads those wanted objects of a set that are not among `in_sync`. None if one is missing, or
    /// cannot be read: then all must be read.
    pub async fn reread(
        cluster: &Cluster,
        hash: &str,
        desired: &[Object],
        in_sync: InSync,
    ) -> Option<Self> {
        let mut live = Self {
            in_sync,
            ..Self::default()
        };
        for object in desired {
            if live.in_sync.contains_key(&object.key()) {
                continue;
            }
            let found = cluster.get(object).await.ok()??;
            if hash_of(&found) != hash {
                return None;
            }
            live.add(&object.resource, vec![found]);
        }
        Some(live)
    }

    pub(super) fn add(&mut self, resource: &Resource, items: Vec<Value>) {
        for item in items {
            self.keep(whole(resource, item));
        }
    }

    fn keep(&mut self, item: Value) {
        self.bytes += golib::budget::weigh(&item) as u64;
        self.objects.insert(ObjectKey::of(&item), item);
    }

    /// Takes in what says which object it is and whose, of one that is not wanted; of an autoscaler also what it scales. Anybody may have made it.
    fn keep_extra(&mut self, resource: &Resource, item: &Listed<'_>) {
        let outline = item.outline(&EXTRAS_LABELS, drift::is_autoscaler(resource));
        let outline = whole(resource, outline);
        let bytes = golib::budget::weigh(&outline) as u64 + ENTRY;
        if self.extras_bytes + bytes > MAX_EXTRAS {
            self.left_out += 1;
            return;
        }
        self.extras_bytes += bytes;
        self.keep(outline);
    }

    /// Whether objects were left out that may be of the set: what is told of those that are not wanted is not all then.
    pub fn left_out(&self) -> Option<ObserveError> {
        (self.left_out > 0).then_some(ObserveError::TooManyExtras(self.left_out))
    }

    /// Takes in a definition: of one that visibly is what is wanted nothing but what it says of itself, as its schemas may be a mebibyte.
    fn add_definition(&mut self, resource: &Resource, item: Value, desired: &[&Object]) {
        let mut item = whole(resource, item);
        let name = text(&item, "/metadata/name");
        let desired = desired.iter().find(|object| object.name == name);
        let covered = desired.filter(|object| drift::covers(&item, &object.body));
        if let (Some(object), Value::Object(fields)) = (covered, &mut item) {
            fields.remove("spec");
            self.covered.insert(object.key());
        }
        self.keep(item);
    }

    /// The objects of the set that are not wanted.
    pub fn others_than(&self, desired: &[Object]) -> BTreeSet<KindAndName> {
        let desired: BTreeSet<_> = desired.iter().map(Object::key).collect();
        let others = self.objects.keys().filter(|key| !desired.contains(key));
        others.map(KindAndName::of).collect()
    }

    /// The objects that these `extras` are about, but for those that the revision before asks to keep: as they were read, with no more than their
    /// metadata, which says whose they are.
    pub fn left_over<'e>(
        &self,
        desired: &[Object],
        former: &FormerObjects,
        extras: impl Iterator<Item = &'e ModifiedStatus>,
    ) -> Vec<Object> {
        let left_over = |entry: &ModifiedStatus| {
            let key = entry.key();
            if former.get(&KindAndName::of(&key)) != Some(&Kept::No) {
                return None;
            }
            let metadata = self.objects.get(&key)?.get("metadata")?;
            let alike = |object: &&Object| object.resource.group_kind() == key.group_kind();
            // Only kinds of wanted objects are listed.
            let resource = &desired.iter().find(alike)?.resource;
            Some(Object {
                resource: Arc::clone(resource),
                namespace: Some(key.namespace).filter(|namespace| !namespace.is_empty()),
                name: key.name,
                body: serde_json::json!({ "metadata": metadata }),
            })
        };
        extras.filter_map(left_over).collect()
    }

    /// Wanted objects that are there and not ours.
    pub fn foreign(&self) -> BTreeSet<ObjectKey> {
        self.foreign.keys().cloned().collect()
    }

    /// The versions that were read, so that the watch can tell later changes from those.
    pub fn seen(&self) -> Seen {
        let version = |object| text(object, "/metadata/resourceVersion").to_owned();
        let objects = self.objects.iter();
        objects
            .map(|(key, object)| (key.clone(), version(object)))
            .collect()
    }
}

pub(super) fn hash_of(object: &Value) -> &str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get("labels")?.get(LABEL_OBJECT_SET_HASH)?.as_str())
        .unwrap_or_default()
}

async fn get(cluster: &Cluster, object: &Object) -> Result<Option<Value>, ObserveError> {
    let found = cluster.get(object).await;
    found.map_err(|source| ObserveError::Get(object.key(), source))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::client::Body;
    use rstest::rstest;
    use serde_json::json;

    use super::super::fixtures::{desired, live, resource};
    use super::*;
    use crate::controllers::bundle_deployment::rendering::Compared;

    /// Somebody filled up what is wanted empty.
    #[test]
    fn memory_for_live_objects_is_counted_by_their_real_size() {
        let mut live = Live::default();
        let full = |name: &str| json!({"metadata": {"namespace": "ns", "name": name}, "data": {"a": "x".repeat(1 << 20)}});
        live.add(&resource("ConfigMap"), vec![full("a"), full("b")]);
        assert!((2 << 20..3 << 20).contains(&live.bytes), "{}", live.bytes);
        let wanted = Compared {
            known: 100,
            live: 10,
        };
        assert_eq!((wanted.bytes(3), wanted.bytes(1_000)), (110, 1_100));
    }

    /// Whoever may create objects beside a bundle's own labels some as its own: of these no more is kept than whose they are.
    #[tokio::test]
    async fn objects_that_are_not_wanted_are_kept_as_outlines() {
        const PAGES: usize = 3;
        let serve = tower::service_fn(|request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let page = (1..PAGES).find(|page| query.contains(&format!("continue={page}")));
            let page = page.unwrap_or_default();
            let next = match page + 1 {
                PAGES => String::new(),
                next => next.to_string(),
            };
            let data: serde_json::Map<_, _> =
                (0..20_000).map(|n| (n.to_string(), "".into())).collect();
            let labels = json!({LABEL_OBJECT_SET_HASH: "h", LABEL_OBJECT_SET_PRUNE: "false"});
            let annotations =
                json!({"meta.helm.sh/release-name": "web", "other": "x".repeat(100_000)});
            let object = |name: String| {
                let metadata = json!({"namespace": "ns", "name": name, "uid": "u", "resourceVersion": "7",
                                      "labels": labels, "annotations": annotations});
                json!({"metadata": metadata, "data": data})
            };
            let mut items: Vec<_> = (0..5).map(|n| object(format!("{page}-{n}"))).collect();
            if page == 1 {
                items.push(object("wanted".to_owned()));
            }
            let answer = json!({"metadata": {"continue": next}, "items": items});
            let answer = Body::from(answer.to_string().into_bytes());
            let answer = http::Response::builder().body(answer);
            std::future::ready(answer.map_err(tower::BoxError::from))
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let manifest = [desired("ConfigMap", "wanted")];
        let mut most = 0;
        let read = Live::read(&cluster, "h", &manifest, |bytes| most = bytes.max(most));
        let live = read.await.unwrap();
        assert_eq!(live.objects.len(), PAGES * 5 + 1);
        let wanted = &live.objects[&manifest[0].key()];
        assert_eq!(
            wanted["data"].as_object().map(|data| data.len()),
            Some(20_000)
        );
        let whole = golib::budget::weigh(wanted) as u64;
        assert!(
            most < whole + (100 << 10),
            "{most} with {whole} that is wanted"
        );
        let extra = &live.objects[&ObjectKey::new("v1", "ConfigMap", "ns", "2-4")];
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "namespace": "ns", "name": "2-4", "uid": "u", "resourceVersion": "7",
            "labels": {LABEL_OBJECT_SET_HASH: "h", LABEL_OBJECT_SET_PRUNE: "false"},
            "annotations": {"meta.helm.sh/release-name": "web"},
        }});
        assert_eq!(*extra, expected);
    }

    /// However many there are, and of those that are left out it is said how many; what is wanted has its place all the same.
    #[tokio::test]
    async fn objects_that_are_not_wanted_have_room_for_some_thousands() {
        const OBJECTS: usize = 20_000;
        let serve = tower::service_fn(|_: http::Request<Body>| {
            let labels = json!({LABEL_OBJECT_SET_HASH: "h"});
            let metadata = |name| json!({"namespace": "ns", "name": name, "labels": labels});
            let items = (0..OBJECTS).map(|n| json!({ "metadata": metadata(n.to_string()) }));
            let wanted = json!({ "metadata": metadata("wanted".to_owned()) });
            let items: Vec<_> = items.chain([wanted]).collect();
            let answer = json!({"metadata": {}, "items": items});
            let answer = Body::from(answer.to_string().into_bytes());
            let answer = http::Response::builder().body(answer);
            std::future::ready(answer.map_err(tower::BoxError::from))
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let manifest = [desired("ConfigMap", "wanted")];
        let live = Live::read(&cluster, "h", &manifest, |_| ()).await.unwrap();
        assert!(live.objects.contains_key(&manifest[0].key()));
        assert!(
            (1_000..OBJECTS).contains(&live.objects.len()),
            "{}",
            live.objects.len()
        );
        assert!(live.bytes < 5 << 20, "{}", live.bytes);
        let left_out = OBJECTS + 1 - live.objects.len();
        let told = live.left_out().map(|left_out| left_out.to_string());
        assert!(told.is_some_and(|told| told.starts_with(&format!("{left_out} objects"))));
    }

    /// Somebody filled up what is wanted as densely as it goes.
    #[tokio::test]
    async fn a_wanted_object_that_takes_too_much_is_not_compared() {
        let serve = tower::service_fn(|_: http::Request<Body>| {
            let dense = vec![json!({"a": 1}); 100_000];
            let metadata = json!({"namespace": "ns", "name": "wanted"});
            let items = [json!({"metadata": metadata, "spec": dense})];
            let answer = json!({"metadata": {}, "items": items});
            let answer = Body::from(answer.to_string().into_bytes());
            let answer = http::Response::builder().body(answer);
            std::future::ready(answer.map_err(tower::BoxError::from))
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let manifest = [desired("ConfigMap", "wanted")];
        let read = Live::read(&cluster, "h", &manifest, |_| ()).await;
        assert!(matches!(read, Err(ObserveError::TooLarge(_))));
    }

    /// A wanted object that no list has: only that it may not be looked at is no sign of its absence. An API server that does not answer tells nothing,
    /// and is not asked once for each.
    #[rstest]
    #[case::gone(404, Some(0))]
    #[case::forbidden(403, Some(3))]
    #[case::overloaded(503, None)]
    #[case::too_many(429, None)]
    #[tokio::test]
    async fn an_object_that_could_not_be_read_does_not_count_as_there(
        #[case] code: u16,
        #[case] expected: Option<usize>,
    ) {
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reads);
        let serve = tower::service_fn(move |request: http::Request<Body>| {
            let is_list = request.uri().path().ends_with("/configmaps");
            let (code, answer) = match is_list {
                true => (200, json!({"metadata": {}, "items": []})),
                false => {
                    counted.fetch_add(1, Ordering::Relaxed);
                    (
                        code,
                        json!({"kind": "Status", "status": "Failure", "code": code, "reason": "", "details": {"name": "a"}}),
                    )
                }
            };
            async move {
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, tower::BoxError>(http::Response::builder().status(code).body(answer)?)
            }
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let manifest = ["a", "b", "c"].map(|name| desired("ConfigMap", name));
        let read = Live::read(&cluster, "h", &manifest, |_| ()).await;
        let there = read.map(|live| live.foreign().len());
        match (there, expected) {
            (Ok(there), Some(expected)) => assert_eq!(there, expected),
            (Err(ObserveError::Get { .. }), None) => {
                assert_eq!(reads.load(Ordering::Relaxed), 1);
            }
            (other, _) => panic!("{other:?}"),
        }
    }

    #[test]
    fn live_objects_are_known_from_the_complete_answers_to_an_install() {
        let manifest = [desired("ConfigMap", "a"), desired("ConfigMap", "b")];
        let answer = |name: &str| {
            let (_, mut object) = live("ConfigMap", name, json!({"x": "1"}));
            object["apiVersion"] = "v1".into();
            object["kind"] = "ConfigMap".into();
            object["metadata"]["labels"] = json!({LABEL_OBJECT_SET_HASH: "h"});
            object
        };
        let all = vec![answer("b"), answer("a")];
        assert_eq!(
            Live::written("h", &manifest, all.clone())
                .unwrap()
                .objects
                .len(),
            2
        );
        assert!(Live::written("h", &manifest, vec![answer("a")]).is_none());
        assert!(Live::written("other", &manifest, all).is_none());
    }

    /// What the upgrade left because the record asks for it is not deleted by the look after it.
    #[test]
    fn what_the_record_asks_to_keep_is_not_left_over() {
        let mut found = Live::default();
        for name in ["dropped", "kept", "copied-label"] {
            let (resource, object) = live("ConfigMap", name, json!({"x": "1"}));
            found.add(&resource, vec![object]);
        }
        let entry = |name: &str| ModifiedStatus {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: "ns".into(),
            name: name.into(),
            extra: true,
            ..Default::default()
        };
        let named = |name| KindAndName::of(&desired("ConfigMap", name).key());
        let former = FormerObjects::from(
            [("dropped", Kept::No), ("kept", Kept::Yes)].map(|(name, kept)| (named(name), kept)),
        );
        let extras = ["dropped", "kept", "copied-label"].map(entry);
        let wanted = [desired("ConfigMap", "web")];
        let left_over = found.left_over(&wanted, &former, extras.iter());
        let names: Vec<_> = left_over.iter().map(|object| &*object.name).collect();
        assert_eq!(names, ["dropped"]);
        let body = &left_over[0].body;
        assert_eq!(
            (text(body, "/metadata/resourceVersion"), body.get("data")),
            ("5", None)
        );
    }
}
