//! Comparing a release's live objects with what it wants: which are missing, extra, changed or not ready.
//!
//! One LIST per kind and namespace by the set's hash, as the bundle's account. Right after a first
//! install the answers to its writes do, and of a bundle that is becoming ready only what changed
//! is read again. What it wants is made of its record. Mirrors `internal/cmd/agent/deployer/monitor` and `desiredset`; how two objects
//! differ and when one is ready is the objects crate's.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, Preconditions};
use objects::drift::{self, Operation, Prediction, Rule, Rules, RulesError};
use objects::fields::text;
use objects::manifest::{Unserved, build_deployed, documents};
use objects::{BuildError, GroupKind, Object, ObjectKey, Resource};
use release::kube::{ApiError, Cluster, DryRun, Owner};
use release::model::Release;
use serde_json::Value;
use tokio::task::JoinError;

use super::dry_run_budget::DryRunBudget;
use super::observation_cache::InSync;
use super::ownership;
use super::status::Observation;
use crate::api::{
    BundleDeployment, BundleDeploymentOptions, BundleDeploymentResource, LABEL_OBJECT_SET_HASH,
    LABEL_OBJECT_SET_PRUNE, ModifiedStatus, NonReadyStatus,
};
use crate::controllers::drift_watch::Seen;
use crate::public::PublicText;
use crate::summary::{self, ErrorMapping, IgnoredConditions};

/// Monitoring failed: the Monitored condition.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    #[error("failed to list {kind}")]
    List { kind: String, source: ApiError },
    #[error("{} is nested too deep to be compared", shown(.0))]
    TooDeep(ObjectKey),
    #[error("failed to compare {}", shown(.0))]
    Predict(ObjectKey, #[source] ApiError),
    #[error("failed to get {}", shown(.0))]
    Get(ObjectKey, #[source] ApiError),
}

fn shown(object: &ObjectKey) -> String {
    let (kind, namespace, name) = (&object.kind, &object.namespace, &object.name);
    format!("{kind} {namespace}/{name}")
}

/// A release cannot be turned into objects.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    #[error(transparent)]
    Discovery(#[from] release::kube::ApiError),
    #[error("failed to discover client for the release's objects")]
    Build(#[from] BuildError),
}

/// The objects a release wants, and apart from them those whose definitions somebody has deleted, and all objects with them.
///
/// # Errors
/// The cluster cannot be asked what it serves, or does not serve a kind of which there may be objects, or that is Kubernetes' own: Kubernetes
/// itself takes these away, and the bundle stays what it was, as Fleet has it.
pub async fn objects(
    cluster: &Cluster,
    release: &Release,
) -> Result<(Vec<Object>, Vec<Unserved>), ObjectsError> {
    let documents = documents(&release.manifest)?;
    let discovery = cluster.discovery_of(&documents, &[]).await?;
    let (mut objects, mut unserved) = build_deployed(documents, &release.namespace, &discovery)?;
    if !unserved.is_empty() {
        let kinds: BTreeSet<_> = unserved.iter().map(Unserved::group_kind).collect();
        let gone = match kinds.iter().any(GroupKind::is_kubernetes_own) {
            true => None,
            false => Some(cluster.prove_gone(&kinds).await),
        };
        match gone {
            Some(Ok(())) => {}
            None | Some(Err(ApiError::NotServed(_))) => {
                return Err(BuildError::no_matches(unserved).into());
            }
            Some(Err(failed)) => return Err(failed.into()),
        }
    }
    // Of a kind that nothing is known of any more: most have namespaces.
    let namespaces = unserved.iter_mut().map(|object| &mut object.namespace);
    for namespace in namespaces.filter(|namespace| namespace.is_empty()) {
        namespace.clone_from(&release.namespace);
    }
    // The API server names these: each apply makes another one, and nobody can tell which is meant.
    objects.retain(|object| !object.name.is_empty());
    unserved.retain(|object| !object.name.is_empty());
    // What is never written is no drift.
    objects
        .iter_mut()
        .for_each(|object| release::kube::unnote(&mut object.body));
    Ok((objects, unserved))
}

/// What tells a left over object from one that has copied our label: it was in the revision before, in whichever namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KindAndName {
    pub kind: String,
    pub name: String,
}

impl KindAndName {
    pub fn of(key: &ObjectKey) -> Self {
        Self {
            kind: key.kind.clone(),
            name: key.name.clone(),
        }
    }
}

/// The live objects of a set.
#[derive(Debug, Default)]
pub struct Live {
    objects: HashMap<ObjectKey, Value>,
    /// Wanted objects that do not carry our hash but are there: the release that has one, and since when.
    foreign: BTreeMap<ObjectKey, Option<(Owner, String)>>,
    /// Of these the objects that the account may not read.
    unreadable: BTreeSet<ObjectKey>,
    /// Objects that were found in order before and have not changed since.
    in_sync: InSync,
    /// Definitions that visibly are what is wanted; without their schemas.
    covered: BTreeSet<ObjectKey>,
    /// Kinds that the cluster has stopped to serve, so that there is no object of them.
    gone: BTreeSet<GroupKind>,
    /// What the objects take, in bytes, about: whoever may write one makes it as large as he likes.
    bytes: u64,
}

/// Wanted objects by kind, kinds in order of first appearance, objects by namespace and name.
fn by_kind(desired: &[Object]) -> Vec<(Arc<Resource>, Vec<&Object>)> {
    let mut kinds: Vec<(Arc<Resource>, Vec<&Object>)> = Vec::new();
    for object in desired {
        match kinds
            .iter_mut()
            .find(|(resource, _)| *resource == object.resource)
        {
            Some((_, objects)) => objects.push(object),
            None => kinds.push((Arc::clone(&object.resource), vec![object])),
        }
    }
    for (_, objects) in &mut kinds {
        objects.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    }
    kinds
}

/// The kinds of a manifest, for watching.
pub fn kinds(desired: &[Object]) -> Vec<ApiResource> {
    by_kind(desired)
        .into_iter()
        .map(|(resource, _)| api_resource(&resource))
        .collect()
}

fn api_resource(resource: &Resource) -> ApiResource {
    ApiResource {
        group: resource.group.clone(),
        version: resource.version.clone(),
        api_version: resource.api_version(),
        kind: resource.kind.clone(),
        plural: resource.plural.clone(),
    }
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
        for (resource, objects) in by_kind(desired) {
            let namespaces: BTreeSet<_> = objects.iter().map(|o| o.namespace.as_deref()).collect();
            for namespace in namespaces {
                let mut unreadable = Vec::new();
                let take = |items, deep: Vec<Value>| {
                    unreadable.extend(deep.into_iter().map(|item| whole(&resource, item)));
                    match resource.is_definition() {
                        true => live.add_definitions(&resource, items, &objects),
                        false => live.add(&resource, items),
                    }
                    held(live.bytes);
                };
                let listed = cluster.list_pages(&resource, namespace, &selector, take);
                match listed.await {
                    Ok(()) => live.add_unreadable(unreadable, &objects)?,
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

    fn add(&mut self, resource: &Resource, items: Vec<Value>) {
        for item in items {
            self.keep(whole(resource, item));
        }
    }

    fn keep(&mut self, item: Value) {
        self.bytes += golib::budget::weigh(&item) as u64;
        self.objects.insert(ObjectKey::of(&item), item);
    }

    /// Takes in what is known of objects that are nested too deep to be read: of what is not wanted that is enough.
    fn add_unreadable(
        &mut self,
        items: Vec<Value>,
        desired: &[&Object],
    ) -> Result<(), ObserveError> {
        if items.is_empty() {
            return Ok(());
        }
        let desired: HashSet<_> = desired.iter().map(|object| object.key()).collect();
        for item in items {
            let key = ObjectKey::of(&item);
            if desired.contains(&key) {
                return Err(ObserveError::TooDeep(key));
            }
            self.objects.insert(key, item);
        }
        Ok(())
    }

    /// Takes in definitions: of one that visibly is what is wanted nothing but what it says of itself, as its schemas may be a mebibyte.
    fn add_definitions(&mut self, resource: &Resource, items: Vec<Value>, desired: &[&Object]) {
        let desired = desired.iter().map(|object| (&*object.name, object));
        let desired: HashMap<_, _> = desired.rev().collect();
        for item in items {
            let mut item = whole(resource, item);
            let desired = desired.get(text(&item, "/metadata/name"));
            let covered = desired.filter(|object| drift::covers(&item, &object.body));
            if let (Some(object), Value::Object(fields)) = (covered, &mut item) {
                fields.remove("spec");
                self.covered.insert(object.key());
            }
            self.keep(item);
        }
    }

    /// The objects of the set that are not wanted.
    pub fn others_than(&self, desired: &[Object]) -> BTreeSet<KindAndName> {
        let desired: BTreeSet<_> = desired.iter().map(Object::key).collect();
        let others = self.objects.keys().filter(|key| !desired.contains(key));
        others.map(KindAndName::of).collect()
    }

    /// Entries about live objects that no other release has marked, each with what must still be so when the object is deleted.
    pub fn deletable<'e>(
        &self,
        owner: &Owner,
        entries: impl Iterator<Item = &'e ModifiedStatus>,
    ) -> Vec<(ModifiedStatus, Preconditions)> {
        let deletable = |entry: &ModifiedStatus| {
            let live = self.objects.get(&entry.key())?;
            if Owner::of(live).is_some_and(|marked| marked != *owner) {
                return None;
            }
            let found = |pointer: &str| Some(text(live, pointer).to_owned());
            let conditions = Preconditions {
                uid: found("/metadata/uid"),
                resource_version: found("/metadata/resourceVersion"),
            };
            Some((entry.clone(), conditions))
        };
        entries.filter_map(deletable).collect()
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

    /// How the objects that are both wanted and live differ, as merge patches.
    ///
    /// A pair whose live half visibly covers the wanted one costs nothing; for the others the API
    /// server predicts, by a dry run, what applying would leave. What was written since it was read is
    /// taken in as it is by then. Where the API server gives no verdict for now, the one of `former` stays.
    ///
    /// # Cancellation
    /// Safe: nothing is written.
    pub async fn differences(
        &mut self,
        cluster: &Cluster,
        owner: &Owner,
        desired: &[Object],
        rules: &Rules,
        former: &[ModifiedStatus],
    ) -> Differences {
        let mut differences = Differences::default();
        let mut budget = DryRunBudget::default();
        for object in desired {
            let key = object.key();
            let Some(live) = self.objects.get(&key) else {
                continue;
            };
            if self.covered.contains(&key) || drift::covers(live, &object.body) {
                continue;
            }
            if budget.is_exhausted() {
                differences.keep(key, former);
                continue;
            }
            let dry_run = release::kube::dry_run(cluster, owner, object, live);
            let prediction = match budget.wait(dry_run).await {
                Ok(DryRun::Applied { predicted, newer }) => {
                    self.renew(object, newer);
                    Prediction::Server(predicted)
                }
                Ok(DryRun::Gone) => {
                    self.objects.remove(&key);
                    continue;
                }
                Err(refused) if refused.is_lasting() => {
                    logging::debug!(error = release::error_unquoted(&refused), "no prediction");
                    Prediction::Estimate
                }
                Err(failed) => {
                    let problem = || ObserveError::Predict(key.clone(), failed);
                    differences.problem.get_or_insert_with(problem);
                    differences.keep(key, former);
                    continue;
                }
            };
            let mut desired = object.body.clone();
            owner.mark(&mut desired);
            if let Some(patch) = self.difference(&key, &desired, &prediction, rules) {
                differences.patches.insert(key, patch);
            }
        }
        differences
    }

    /// Takes in an object as it was found later than the others.
    fn renew(&mut self, object: &Object, newer: Option<Value>) {
        let Some(newer) = newer else { return };
        let key = object.key();
        let former = self.objects.remove(&key);
        if former.is_some_and(|former| hash_of(&former) == hash_of(&newer)) {
            self.add(&object.resource, vec![newer]);
        } else {
            self.foreign.insert(key, ownership::holder(&newer));
        }
    }

    fn difference(
        &self,
        key: &ObjectKey,
        desired: &Value,
        prediction: &Prediction,
        rules: &Rules,
    ) -> Option<String> {
        let live = self.objects.get(key)?;
        let found = drift::modification(live, desired, prediction, rules);
        let Some(Value::Object(mut patch)) = found else {
            return None;
        };
        let others = self.objects.values();
        if let Err(malformed) = drift::hold_replicas(&mut patch, live, others) {
            logging::warn!(
                error = PublicText::nothing_secret_in(&malformed),
                "an autoscaler cannot be judged"
            );
        }
        (!patch.is_empty()).then(|| golib::json::encode(&Value::Object(patch)))
    }

    /// Compares with what is wanted; `unserved` is of kinds that are gone. `former` is of the revision before: only what was
    /// in it can be left over.
    pub fn compare(
        &self,
        desired: &[Object],
        unserved: &[Unserved],
        former: &BTreeSet<KindAndName>,
        differences: &Differences,
        view: &View<'_>,
    ) -> Observation {
        let mut found = Observation {
            is_partial: differences.problem.is_some(),
            ..Observation::default()
        };
        let mut desired_keys = BTreeSet::new();
        for (resource, objects) in by_kind(desired) {
            for object in objects {
                let key = object.key();
                let entry = ModifiedStatus {
                    kind: resource.kind.clone(),
                    api_version: resource.api_version(),
                    namespace: key.namespace.clone(),
                    name: key.name.clone(),
                    ..Default::default()
                };
                match self.objects.get(&key) {
                    Some(live) => {
                        let marked = Owner::of(live).filter(|marked| marked != view.owner);
                        if let Some(marked) = marked {
                            found.unowned.push((key.clone(), Some(marked)));
                            let holder = ownership::holder(live);
                            let taken = holder.map(|(owner, since)| (key.clone(), owner, since));
                            found.taken.extend(taken);
                        }
                        found.resources.push(BundleDeploymentResource {
                            kind: entry.kind.clone(),
                            api_version: entry.api_version.clone(),
                            namespace: entry.namespace.clone(),
                            name: entry.name.clone(),
                            created_at: live
                                .pointer("/metadata/creationTimestamp")
                                .and_then(|time| serde_json::from_value(time.clone()).ok()),
                        });
                        let patch = differences.patches.get(&key).cloned();
                        found
                            .modified
                            .extend(patch.map(|patch| ModifiedStatus { patch, ..entry }));
                        found.non_ready.extend(view.not_ready(live));
                    }
                    None if self.in_sync.contains_key(&key) => {
                        found.resources.extend(self.in_sync.get(&key).cloned());
                    }
                    None => {
                        let holder = self.foreign.get(&key);
                        let exist = holder.is_some();
                        if !self.unreadable.contains(&key) {
                            let owner = holder.cloned().flatten().map(|(owner, _)| owner);
                            found.unowned.push((key.clone(), owner));
                        }
                        if !view.rules.ignores_missing(&entry.api_version, &key) {
                            let taken = holder.cloned().flatten();
                            let taken = taken.map(|(owner, since)| (key.clone(), owner, since));
                            found.taken.extend(taken);
                            found.modified.push(ModifiedStatus {
                                missing: true,
                                exist,
                                ..entry
                            });
                        }
                    }
                }
                desired_keys.insert(key);
            }
        }
        for object in unserved {
            let entry = ModifiedStatus {
                kind: object.kind.clone(),
                api_version: object.api_version.clone(),
                namespace: object.namespace.clone(),
                name: object.name.clone(),
                missing: true,
                ..Default::default()
            };
            let key = entry.key();
            let global = ObjectKey {
                namespace: String::new(),
                ..key.clone()
            };
            let ignores = |key| view.rules.ignores_missing(&entry.api_version, key);
            if !ignores(&key) && !ignores(&global) {
                found.modified.push(entry);
            }
        }
        let mut extras: BTreeMap<&ObjectKey, &Value> = BTreeMap::new();
        extras.extend(
            self.objects
                .iter()
                .filter(|(key, _)| !desired_keys.contains(*key)),
        );
        for (key, object) in extras {
            let prune = object
                .get("metadata")
                .and_then(|metadata| metadata.get("labels")?.get(LABEL_OBJECT_SET_PRUNE))
                .and_then(Value::as_str);
            if prune != Some("false") && former.contains(&KindAndName::of(key)) {
                found.modified.push(ModifiedStatus {
                    kind: key.kind.clone(),
                    api_version: text(object, "/apiVersion").to_owned(),
                    namespace: key.namespace.clone(),
                    name: key.name.clone(),
                    extra: true,
                    ..Default::default()
                });
            }
        }
        log_left_out(&view.rules.exhausted());
        found
    }
}

/// How objects differ.
#[derive(Debug, Default)]
pub struct Differences {
    /// Merge patches as JSON text; Secrets' values are masked. What else is secret is left out of those that are told.
    patches: HashMap<ObjectKey, String>,
    /// Objects without a verdict of now, and why the first of them has none.
    pub unjudged: BTreeSet<ObjectKey>,
    pub problem: Option<ObserveError>,
}

impl Differences {
    /// Notes that nothing new is known of an object.
    fn keep(&mut self, key: ObjectKey, former: &[ModifiedStatus]) {
        let mut former = former.iter().filter(|entry| !entry.missing && !entry.extra);
        if let Some(entry) = former.find(|entry| entry.key() == key) {
            self.patches.insert(key.clone(), entry.patch.clone());
        }
        self.unjudged.insert(key);
    }
}

/// What a comparison takes into account beside the objects.
pub struct View<'a> {
    /// `diff.comparePatches`.
    pub rules: &'a Rules,
    /// The release.
    pub owner: &'a Owner,
    /// Which conditions mean an error.
    pub mapping: &'a ErrorMapping,
    /// `ignore.conditions`.
    pub ignored_conditions: IgnoredConditions<'a>,
    pub now: Timestamp,
}

impl View<'_> {
    fn not_ready(&self, live: &Value) -> Option<NonReadyStatus> {
        if self.ignored_conditions.is_empty() {
            return summary::non_ready(live, self.mapping, self.now);
        }
        let mut live = live.clone();
        summary::exclude_ignored_conditions(&mut live, &self.ignored_conditions);
        summary::non_ready(&live, self.mapping, self.now)
    }
}

/// The rules of a bundle. What cannot be used is logged and left out. Many patterns take long to compile: other bundles do not wait for it.
///
/// # Errors
/// The work panicked.
pub async fn rules(cluster: &Cluster, bundle: &Arc<BundleDeployment>) -> Result<Rules, JoinError> {
    let diff = bundle.spec.options.diff.as_ref();
    if diff.is_none_or(|diff| diff.compare_patches.is_empty()) {
        return Ok(Rules::default());
    }
    let bundle = Arc::clone(bundle);
    let compile = move || compiled(&bundle.spec.options);
    cluster.host().work(compile).await
}

fn compiled(options: &BundleDeploymentOptions) -> Rules {
    let patches = options.diff.iter().flat_map(|diff| &diff.compare_patches);
    let rules: Vec<Rule> = patches
        .map(|patch| Rule {
            api_version: patch.api_version.clone(),
            kind: patch.kind.clone(),
            namespace: patch.namespace.clone(),
            name: patch.name.clone(),
            json_pointers: patch.json_pointers.clone(),
            operations: patch
                .operations
                .iter()
                .map(|operation| Operation {
                    op: operation.op.clone(),
                    path: operation.path.clone(),
                    value: operation.value.clone(),
                })
                .collect(),
        })
        .collect();
    let (rules, problems) = Rules::compile(&rules);
    log_left_out(&problems);
    rules
}

fn log_left_out(problems: &[RulesError]) {
    if let Some(first) = problems.first() {
        let (count, error) = (problems.len(), PublicText::nothing_secret_in(first));
        logging::warn!(count, error, "compare patches are left out");
    }
}

fn hash_of(object: &Value) -> &str {
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
    use super::super::observation_cache::{in_sync, unchanged};
    use super::super::rendering::Compared;
    use super::*;
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn resource(kind: &str) -> Arc<Resource> {
        Arc::new(Resource {
            group: String::new(),
            version: "v1".into(),
            kind: kind.into(),
            plural: format!("{}s", kind.to_lowercase()),
            namespaced: true,
        })
    }

    fn desired(kind: &str, name: &str) -> Object {
        Object {
            resource: resource(kind),
            namespace: Some("ns".into()),
            name: name.into(),
            body: json!({"data": {"x": "1"}}),
        }
    }

    fn live(kind: &str, name: &str, data: Value) -> (Arc<Resource>, Value) {
        let metadata = json!({"namespace": "ns", "name": name, "resourceVersion": "5",
                              "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": []});
        (resource(kind), json!({"metadata": metadata, "data": data}))
    }

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

    #[test]
    fn findings_come_in_upstreams_order() {
        let mut found = Live::default();
        for (resource, object) in [
            live("Service", "svc", json!({"x": "1"})),
            live("ConfigMap", "edited", json!({"x": "2"})),
            live("ConfigMap", "copied-label", json!({})),
            live("ConfigMap", "left-over", json!({})),
        ] {
            found.add(&resource, vec![object]);
        }
        let manifest = [
            desired("Service", "svc"),
            desired("ConfigMap", "gone"),
            desired("ConfigMap", "edited"),
            desired("ConfigMap", "ignored"),
            desired("ConfigMap", "taken"),
            desired("ConfigMap", "stripped"),
            desired("ConfigMap", "unreadable"),
        ];
        if let Some(service) = found.objects.get_mut(&manifest[0].key()) {
            Owner::new("helms", "ns").mark(service);
        }
        found.foreign.insert(manifest[6].key(), None);
        found.unreadable.insert(manifest[6].key());
        found.foreign.insert(manifest[5].key(), None);
        let holder = (Owner::new("other", "ns"), "2026-01-01T00:00:00Z".to_owned());
        found
            .foreign
            .insert(manifest[4].key(), Some(holder.clone()));
        let patch = (manifest[2].key(), "{}".to_owned());
        let (rules, _) = Rules::compile(&[Rule {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: "ns".into(),
            name: "ignored".into(),
            json_pointers: Vec::new(),
            operations: vec![Operation {
                op: "ignore".into(),
                path: String::new(),
                value: String::new(),
            }],
        }]);
        let view = View {
            rules: &rules,
            owner: &Owner::new("web", "ns"),
            mapping: &ErrorMapping::default(),
            ignored_conditions: IgnoredConditions::default(),
            now: Timestamp::UNIX_EPOCH,
        };
        let former = BTreeSet::from([KindAndName::of(&desired("ConfigMap", "left-over").key())]);
        let unserved = Unserved {
            name: "lost".into(),
            namespace: String::new(),
            kind: "Widget".into(),
            api_version: "example.com/v1".into(),
        };
        let observed = found.compare(
            &manifest,
            &[unserved],
            &former,
            &Differences {
                patches: HashMap::from([patch]),
                ..Differences::default()
            },
            &view,
        );
        let resources: Vec<_> = observed.resources.iter().map(|r| &*r.name).collect();
        assert_eq!(resources, ["svc", "edited"]);
        let modified: Vec<_> = observed.modified.iter().map(ToString::to_string).collect();
        assert_eq!(
            modified,
            [
                "configmap.v1 ns/edited modified {}",
                "configmap.v1 ns/gone missing",
                "configmap.v1 ns/stripped is not owned by us",
                "configmap.v1 ns/taken is not owned by us",
                "configmap.v1 ns/unreadable is not owned by us",
                "widget.example.com lost missing",
                "configmap.v1 ns/left-over extra",
            ]
        );
        let (owner, since) = holder;
        let helms = (manifest[0].key(), Owner::new("helms", "ns"), since.clone());
        assert_eq!(observed.taken, [helms, (manifest[4].key(), owner, since)]);
        let unowned = [
            (0, Some(Owner::new("helms", "ns"))),
            (1, None),
            (3, None),
            (5, None),
            (4, Some(Owner::new("other", "ns"))),
        ];
        let unowned = unowned.map(|(index, owner): (usize, _)| (manifest[index].key(), owner));
        assert_eq!(observed.unowned, unowned);
        assert_eq!(found.seen().len(), 4);
        assert!(
            found
                .objects
                .values()
                .all(|o| o["metadata"].get("managedFields").is_none())
        );
    }

    #[test]
    fn objects_in_sync_are_read_again_only_when_they_change() {
        let manifest = [desired("ConfigMap", "a"), desired("ConfigMap", "b")];
        let mut first = Live::default();
        for name in ["a", "b"] {
            let (resource, object) = live("ConfigMap", name, json!({"x": "1"}));
            first.add(&resource, vec![object]);
        }
        let (rules, _) = Rules::compile(&[]);
        let view = View {
            rules: &rules,
            owner: &Owner::new("web", "ns"),
            mapping: &ErrorMapping::default(),
            ignored_conditions: IgnoredConditions::default(),
            now: Timestamp::UNIX_EPOCH,
        };
        let found = first.compare(
            &manifest,
            &[],
            &BTreeSet::new(),
            &Differences::default(),
            &view,
        );
        let known = in_sync(&found);
        assert_eq!(known.len(), 2);
        let changed = |name: &str| ObjectKey::new("v1", "ConfigMap", "ns", name);
        let rest = unchanged(&known, &manifest, &[changed("b")]).unwrap();
        assert_eq!(rest.len(), 1);
        assert!(unchanged(&known, &manifest, &[changed("other")]).is_none());
        // The other one is read again, and both are in the result.
        let mut second = Live {
            in_sync: rest,
            ..Live::default()
        };
        let (resource, object) = live("ConfigMap", "b", json!({"x": "1"}));
        second.add(&resource, vec![object]);
        let again = second.compare(
            &manifest,
            &[],
            &BTreeSet::new(),
            &Differences::default(),
            &view,
        );
        assert_eq!(again, found);
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
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
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
                assert_eq!(looks.load(Ordering::Relaxed), 1);
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
}
