//! Server-side apply of a manifest: order, conflicts, retries.
//!
//! Definitions go first and are waited for when the same manifest uses them; then one kind after
//! the other in manifest order, the objects of a kind in parallel. A failed object does not stop the
//! others, so that one report names everything that is wrong; an unreachable server does.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use serde_json::Value;
use tokio::time::sleep;

use super::client::Cluster;
use super::create::{CreateError, Created, create_new};
use super::error::ApiError;
use super::migrate;
use super::ownership::{Owner, OwnershipError};
use super::wait::{WaitError, is_established, wait_until_gone, wait_until_ready};
use objects::conflict::{Contested, FieldConflict, Outcome, concerns_replicas, leave_out, scales};
use objects::managed_fields::FIELD_MANAGER;
use objects::readiness::wait::Mode;
use objects::{Object, ObjectKey};

/// How many objects of one kind are sent at a time.
pub(super) const PARALLEL: usize = 8;

/// How long a definition may take to be served.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an object that is being deleted may take to go before it is written again.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a write that met another one is tried.
const TRIES: u32 = 5;

/// How a manifest is applied.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApplyOptions {
    /// Replace an object whose change the API server calls invalid, which drops what others wrote
    /// into it, and recreate one whose immutable field changes.
    pub force: bool,
    /// Another client wrote these objects before us: take over the fields it owns, so that what the
    /// chart no longer has goes away.
    pub migrate: bool,
    /// There was a revision or an attempt before: Helm then says of an object that it could not be
    /// *created*.
    pub is_update: bool,
    /// It merged on its own side, so that what the chart no longer has goes away even where somebody
    /// else edited it; only with `migrate`.
    pub merged: bool,
}

/// Objects whose owner was not checked: each is created, or found to carry our marks, before it is
/// written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unverified<'a> {
    /// The release that is installed.
    pub(crate) owner: &'a Owner,
    /// Which objects.
    pub(crate) objects: &'a HashSet<ObjectKey>,
}

/// What applying did.
#[derive(Debug, Default)]
pub struct Applied {
    /// The objects as they are now, without `managedFields`, in the order they were written.
    pub live: Vec<Value>,
    /// Fields other managers held.
    pub conflicts: Vec<FieldConflict>,
    /// Objects that are known to be new, with their uid.
    pub(crate) created: Vec<(Object, String)>,
}

/// One object could not be written. The texts are Helm's.
#[derive(Debug, thiserror::Error)]
pub enum ObjectFailure {
    /// The API server refused it.
    #[error("server-side apply failed for object {object}")]
    Apply {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// Why.
        source: ApiError,
    },
    /// The API server refused it, and an earlier revision or attempt did not leave it either.
    #[error("failed to create resource: server-side apply failed for object {object}")]
    Create {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// Why.
        source: ApiError,
    },
    /// Others wrote it each time we tried.
    #[error("conflict occurred while applying object {object}")]
    Conflict {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// Why.
        source: ApiError,
    },
    /// Field ownership of another client could not be taken over.
    #[error("failed to upgrade managed fields for object {object}")]
    Migrate {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// Why.
        source: ApiError,
    },
    /// It should have been recreated, and its predecessor could not be deleted.
    #[error("failed to replace object {object}")]
    Recreate {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// Why.
        source: ApiError,
    },
    /// It is being deleted and does not go.
    #[error("object {object} is being deleted")]
    Terminating {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// What it waits for.
        source: WaitError,
    },
    /// It is somebody else's.
    #[error(transparent)]
    NotOurs(OwnershipError),
    /// It defines kinds, and is not served.
    #[error("the kinds of {object} are not served")]
    NotEstablished {
        /// `namespace/name group/version, Kind=kind`.
        object: String,
        /// What it says of itself.
        source: WaitError,
    },
}

impl ObjectFailure {
    /// Whether trying again can help without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Apply { source, .. }
            | Self::Create { source, .. }
            | Self::Conflict { source, .. }
            | Self::Migrate { source, .. }
            | Self::Recreate { source, .. } => source.is_retryable(),
            Self::Terminating { .. } => true,
            Self::NotOurs(source) => source.is_retryable(),
            Self::NotEstablished { source, .. } => source.is_retryable(),
        }
    }

    /// The API server's reason, for metrics and conditions.
    pub fn reason(&self) -> &str {
        match self {
            Self::Apply { source, .. }
            | Self::Create { source, .. }
            | Self::Conflict { source, .. }
            | Self::Migrate { source, .. }
            | Self::Recreate { source, .. } => source.reason(),
            Self::Terminating { .. } => "Terminating",
            Self::NotOurs(_) => "NotOwned",
            Self::NotEstablished { .. } => "NotEstablished",
        }
    }

    /// Whether the kind itself may be gone since it was discovered.
    fn is_unserved(&self) -> bool {
        match self {
            Self::Apply { source, .. } | Self::Create { source, .. } => source.is_unserved(),
            _ => false,
        }
    }

    /// Whether nothing more is to be written.
    fn ends_all(&self) -> bool {
        matches!(self, Self::NotOurs(_)) || self.reason() == "Unreachable"
    }
}

/// Some objects could not be written; the others were.
#[derive(Debug)]
pub struct ApplyError {
    /// What failed, in manifest order; never empty.
    pub failures: Vec<ObjectFailure>,
    /// What was written nevertheless.
    pub applied: Applied,
}

impl std::fmt::Display for ApplyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, failure) in self.failures.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&crate::error_chain(failure))?;
        }
        Ok(())
    }
}

impl std::error::Error for ApplyError {}

impl ApplyError {
    /// Splits off that an object is somebody else's, and what was created before that was found.
    pub(crate) fn not_ours(mut self) -> Result<(OwnershipError, Vec<(Object, String)>), Self> {
        let is_foreign = |failure: &ObjectFailure| matches!(failure, ObjectFailure::NotOurs(_));
        match self.failures.iter().position(is_foreign) {
            Some(at) => match self.failures.swap_remove(at) {
                ObjectFailure::NotOurs(foreign) => Ok((foreign, self.applied.created)),
                failure => {
                    self.failures.push(failure);
                    Err(self)
                }
            },
            None => Err(self),
        }
    }

    /// Whether trying again can help without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        self.failures.iter().all(ObjectFailure::is_retryable)
    }

    /// The API server's reason for the first failure.
    pub fn reason(&self) -> &str {
        self.failures
            .first()
            .map_or("Unknown", ObjectFailure::reason)
    }
}

/// Writes all objects of a manifest.
///
/// `previous` are the objects of the revision before, to tell what the chart changed. An `unverified`
/// object that turns out to be somebody else's ends everything.
///
/// # Errors
/// Some objects were refused; the rest was written.
///
/// # Cancellation
/// Objects written so far stay. Applying the same objects again is safe.
pub(crate) async fn apply_all(
    cluster: &Cluster,
    objects: &[Object],
    previous: &BTreeMap<ObjectKey, Object>,
    options: ApplyOptions,
    unverified: Option<Unverified<'_>>,
) -> Result<Applied, ApplyError> {
    let applier = Applier {
        cluster,
        previous,
        options,
        unverified,
        own_kinds: used_definitions(objects),
    };
    let (definitions, others): (Vec<_>, Vec<_>) =
        objects.iter().partition(|object| object.is_crd());
    let mut done = Progress::default();
    done.add(applier.write(&definitions).await);
    if !definitions.is_empty() {
        cluster.forget_discovery();
        if !done.is_over() && !applier.own_kinds.is_empty() {
            done.failures
                .extend(applier.establish(&definitions, &done.applied.live).await);
        }
    }
    for kind in others.chunk_by(|a, b| a.resource.kind == b.resource.kind) {
        if done.is_over() {
            break;
        }
        done.add(applier.write(kind).await);
    }
    if done.failures.iter().any(ObjectFailure::is_unserved) {
        // The next attempt shall tell which kind is not there any more.
        cluster.forget_discovery();
    }
    match done.failures.is_empty() {
        true => Ok(done.applied),
        false => Err(ApplyError {
            failures: done.failures,
            applied: done.applied,
        }),
    }
}

/// Group and kind of what `objects` use and define themselves.
fn used_definitions(objects: &[Object]) -> HashSet<(String, String)> {
    let defined: HashSet<(String, String)> = objects
        .iter()
        .filter(|object| object.is_crd())
        .filter_map(|crd| {
            let text = |pointer: &str| crd.body.pointer(pointer)?.as_str().map(str::to_owned);
            Some((text("/spec/group")?, text("/spec/names/kind")?))
        })
        .collect();
    let used = |object: &Object| (object.resource.group.clone(), object.resource.kind.clone());
    objects
        .iter()
        .map(used)
        .filter(|kind| defined.contains(kind))
        .collect()
}

#[derive(Default)]
struct Progress {
    applied: Applied,
    failures: Vec<ObjectFailure>,
}

/// One object that was written.
struct WrittenObject {
    live: Value,
    conflicts: Vec<FieldConflict>,
    created: Option<Object>,
}

type Written = Result<WrittenObject, ObjectFailure>;

impl WrittenObject {
    fn over(live: Value, conflicts: Vec<FieldConflict>) -> Self {
        Self {
            live,
            conflicts,
            created: None,
        }
    }
}

impl Progress {
    fn add(&mut self, written: Vec<Written>) {
        for one in written {
            match one {
                Ok(WrittenObject {
                    mut live,
                    conflicts,
                    created,
                }) => {
                    slim(&mut live);
                    let uid = live.pointer("/metadata/uid").and_then(Value::as_str);
                    let created = created.zip(uid.map(str::to_owned));
                    self.applied.created.extend(created);
                    self.applied.live.push(live);
                    self.applied.conflicts.extend(conflicts);
                }
                Err(failure) => self.failures.push(failure),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.failures.iter().any(ObjectFailure::ends_all)
    }
}

/// What writing an object depends on.
pub(super) struct Applier<'a> {
    cluster: &'a Cluster,
    previous: &'a BTreeMap<ObjectKey, Object>,
    options: ApplyOptions,
    unverified: Option<Unverified<'a>>,
    own_kinds: HashSet<(String, String)>,
}

impl<'a> Applier<'a> {
    /// For objects that are ours already, one by one.
    pub(super) fn again(cluster: &'a Cluster, previous: &'a BTreeMap<ObjectKey, Object>) -> Self {
        Self {
            cluster,
            previous,
            options: ApplyOptions::default(),
            unverified: None,
            own_kinds: HashSet::new(),
        }
    }

    async fn write(&self, objects: &[&Object]) -> Vec<Written> {
        let writes: Vec<_> = objects
            .iter()
            .map(|object| self.write_one(object).boxed())
            .collect();
        stream::iter(writes).buffered(PARALLEL).collect().await
    }

    /// Waits for those definitions that do not say yet that they are served.
    async fn establish(&self, definitions: &[&Object], live: &[Value]) -> Vec<ObjectFailure> {
        let is_served = |object: &&&Object| {
            live.iter().any(|live| {
                live.pointer("/metadata/name").and_then(Value::as_str) == Some(&object.name)
                    && is_established(live)
            })
        };
        let mut failures = Vec::new();
        for object in definitions.iter().filter(|object| !is_served(object)) {
            let waited =
                wait_until_ready(self.cluster, &[*object], Mode::Wait, ESTABLISH_TIMEOUT).await;
            failures.extend(waited.err().map(|source| ObjectFailure::NotEstablished {
                object: object.describe(),
                source,
            }));
        }
        failures
    }

    async fn write_one(&self, object: &Object) -> Written {
        let object_name = || object.describe();
        if object.name.is_empty() {
            let created = self.cluster.create(object).await;
            let failed = |source| ObjectFailure::Apply {
                object: object_name(),
                source,
            };
            return Ok(WrittenObject::over(created.map_err(failed)?, Vec::new()));
        }
        // None if it is there already, and ours.
        if let Some(owner) = self.must_verify(object)
            && let Some(created) = self.create(owner, object).await?
        {
            return Ok(created);
        }
        let mut wrote = match self.options.migrate {
            true => self.migrate(object).await?,
            false => self.write_settled(object).await?,
        };
        if wrote.live.pointer("/metadata/deletionTimestamp").is_none() {
            return Ok(wrote);
        }
        // It was accepted and will vanish all the same: write it again once it is gone.
        wait_until_gone(self.cluster, object, TERMINATION_TIMEOUT)
            .await
            .map_err(|source| ObjectFailure::Terminating {
                object: object_name(),
                source,
            })?;
        let conflicts = std::mem::take(&mut wrote.conflicts);
        wrote = self.write_settled(object).await?;
        wrote.conflicts.extend(conflicts);
        Ok(wrote)
    }

    /// Writes an object of another Helm client: what that owned is ours from now on, and nothing of
    /// the manifest before stays behind.
    async fn migrate(&self, object: &Object) -> Written {
        let failed = |source| ObjectFailure::Migrate {
            object: object.describe(),
            source,
        };
        let managers = migrate::take_over_managers(self.cluster, object)
            .await
            .map_err(failed)?;
        let mut wrote = self.write_settled(object).await?;
        if !managers.is_empty() {
            wrote.conflicts.insert(
                0,
                FieldConflict {
                    object: object.key(),
                    field: String::new(),
                    managers,
                    outcome: Outcome::Taken,
                },
            );
        }
        let previous = self.previous.get(&object.key());
        let previous = previous.filter(|_| self.options.merged);
        let left = previous.and_then(|old| migrate::left_over(&old.body, object, &wrote.live));
        if let Some(patch) = left {
            wrote.live = self
                .cluster
                .merge_patch(object, &patch)
                .await
                .map_err(failed)?;
        }
        Ok(wrote)
    }

    /// The owner, if it is not known whether the object is theirs.
    fn must_verify(&self, object: &Object) -> Option<&Owner> {
        let unverified = self.unverified?;
        let is_unverified = unverified.objects.contains(&object.key());
        is_unverified.then_some(unverified.owner)
    }

    /// Creates the object; none if it is there already and ours.
    async fn create(
        &self,
        owner: &Owner,
        object: &Object,
    ) -> Result<Option<WrittenObject>, ObjectFailure> {
        let refused = |source| ObjectFailure::Apply {
            object: object.describe(),
            source,
        };
        let mut tries = 1;
        loop {
            match create_new(self.cluster, owner, object).await {
                Ok(Created::New(live)) => {
                    let created = Some(object.clone());
                    return Ok(Some(WrittenObject {
                        created,
                        ..WrittenObject::over(live, Vec::new())
                    }));
                }
                Ok(Created::Ours) => return Ok(None),
                Ok(Created::Busy(_)) if tries < TRIES => {}
                Ok(Created::Busy(error)) | Err(CreateError::Refused(error)) => {
                    return Err(refused(error));
                }
                Err(CreateError::Foreign(error)) => return Err(ObjectFailure::NotOurs(error)),
            }
            sleep(Duration::from_millis(50) * tries).await;
            tries += 1;
        }
    }

    /// Applies without force; what others hold is settled and the rest forced.
    async fn write_settled(&self, object: &Object) -> Written {
        let refused = |source: ApiError| {
            let object = object.describe();
            match source.is_conflict() {
                true => ObjectFailure::Conflict { object, source },
                false => ObjectFailure::Apply { object, source },
            }
        };
        match self.send(object, &object.body, false).await {
            Ok(live) => Ok(WrittenObject::over(live, Vec::new())),
            Err(error) if !contested_paths(&error).is_empty() => {
                let (conflicts, body) = self.settle(object, &error).await.map_err(refused)?;
                let live = self.send(object, &body, true).await.map_err(refused)?;
                Ok(WrittenObject::over(live, conflicts))
            }
            Err(error) if self.options.force && error.is_invalid() => {
                let forced = self.force(object, error).await?;
                Ok(WrittenObject::over(forced, Vec::new()))
            }
            Err(error) => Err(self.named(object, refused(error)).await),
        }
    }

    /// Says of an object that is not there that it could not be created.
    async fn named(&self, object: &Object, failure: ObjectFailure) -> ObjectFailure {
        match failure {
            ObjectFailure::Apply {
                object: name,
                source,
            } if self.options.is_update && self.is_missing(object).await => ObjectFailure::Create {
                object: name,
                source,
            },
            failure => failure,
        }
    }

    async fn is_missing(&self, object: &Object) -> bool {
        matches!(self.cluster.get_metadata(object).await, Ok(None))
    }

    /// Sends one apply, again where that is known to help.
    async fn send(&self, object: &Object, body: &Value, force: bool) -> Result<Value, ApiError> {
        let key = (object.resource.group.clone(), object.resource.kind.clone());
        let is_new_kind = self.own_kinds.contains(&key);
        let mut tries = 1;
        loop {
            match self.cluster.apply(object, body, force).await {
                // A ResourceQuota that several creations charge at once, or a concurrent write.
                Err(error)
                    if error.is_conflict()
                        && contested_paths(&error).is_empty()
                        && tries < TRIES => {}
                // A definition is established a moment before its kind is served.
                Err(error) if error.is_not_found() && is_new_kind && tries < 2 * TRIES => {}
                other => return other,
            }
            sleep(Duration::from_millis(50) * tries).await;
            tries += 1;
        }
    }

    /// Decides about the fields that others hold; gives what is to be written by force then.
    pub(super) async fn settle(
        &self,
        object: &Object,
        error: &ApiError,
    ) -> Result<(Vec<FieldConflict>, Value), ApiError> {
        let paths = contested_paths(error);
        let live = self.cluster.get(object).await?.unwrap_or_default();
        let is_autoscaled = concerns_replicas(paths.iter().copied())
            && self.is_autoscaled(object).await.unwrap_or_default();
        let previous = self.previous.get(&object.key()).map(|old| &old.body);
        let contested = Contested {
            desired: object,
            previous,
            live: &live,
            is_autoscaled,
        };
        let conflicts = contested.settle(paths);
        let mut body = object.body.clone();
        for left in conflicts.iter().filter(|one| one.outcome == Outcome::Left) {
            leave_out(&mut body, &left.field);
        }
        Ok((conflicts, body))
    }

    async fn is_autoscaled(&self, object: &Object) -> Result<bool, ApiError> {
        let discovery = self.cluster.discovery().await?;
        let Some(kind) = discovery.resource("autoscaling", "v2", "HorizontalPodAutoscaler") else {
            return Ok(false);
        };
        let list = self
            .cluster
            .list(&kind, object.namespace.as_deref())
            .await?;
        let autoscalers = list.get("items").and_then(Value::as_array);
        Ok(autoscalers
            .into_iter()
            .flatten()
            .any(|autoscaler| scales(autoscaler, object)))
    }

    /// Makes an object what is desired although the API server calls merging invalid.
    async fn force(&self, object: &Object, refusal: ApiError) -> Result<Value, ObjectFailure> {
        if is_immutable(&refusal) {
            return self.recreate(object).await;
        }
        let failed = |source| ObjectFailure::Recreate {
            object: object.describe(),
            source,
        };
        let found = self.cluster.get_metadata(object).await.map_err(failed)?;
        let Some(version) = found.as_ref().and_then(|live| {
            let version = live.pointer("/metadata/resourceVersion")?;
            version.as_str()
        }) else {
            let failure = ObjectFailure::Apply {
                object: object.describe(),
                source: refusal,
            };
            return Err(self.named(object, failure).await);
        };
        match self.cluster.replace(object, version).await {
            Ok(_) => {}
            Err(error) if is_immutable(&error) => return self.recreate(object).await,
            Err(error) => return Err(failed(error)),
        }
        // What was written whole is owned as if it had been applied.
        migrate::take_over_managers(self.cluster, object)
            .await
            .map_err(failed)?;
        self.send(object, &object.body, true).await.map_err(failed)
    }

    async fn recreate(&self, object: &Object) -> Result<Value, ObjectFailure> {
        let failed = |source| ObjectFailure::Recreate {
            object: object.describe(),
            source,
        };
        let live = self.cluster.get_metadata(object).await.map_err(failed)?;
        if let Some(live) = live {
            let uid = live.pointer("/metadata/uid").and_then(Value::as_str);
            match self.cluster.delete(object, uid, "Background").await {
                Err(error) if !error.is_not_found() => return Err(failed(error)),
                _ => {}
            }
            wait_until_gone(self.cluster, object, TERMINATION_TIMEOUT)
                .await
                .map_err(|source| ObjectFailure::Terminating {
                    object: object.describe(),
                    source,
                })?;
        }
        self.send(object, &object.body, false)
            .await
            .map_err(|source| ObjectFailure::Apply {
                object: object.describe(),
                source,
            })
    }
}

/// The fields the API server says others own.
pub(super) fn contested_paths(error: &ApiError) -> Vec<&str> {
    let contested = error
        .causes()
        .iter()
        .filter(|cause| cause.reason == "FieldManagerConflict");
    contested.map(|cause| cause.field.as_str()).collect()
}

/// Whether the API server refused because something may not change. It has no reason of its own for
/// that, only words that are the same since Kubernetes 1.0.
fn is_immutable(error: &ApiError) -> bool {
    const WORDS: [&str; 4] = [
        "field is immutable",
        "may not be changed",
        "may not change once set",
        "updates to statefulset spec for fields other than",
    ];
    error.is_invalid()
        && error
            .causes()
            .iter()
            .any(|cause| WORDS.iter().any(|word| cause.message.contains(word)))
}

fn slim(live: &mut Value) {
    if let Some(metadata) = live.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// Whether a record's writer is another client than ours.
pub(crate) fn is_foreign_writer(written_by: Option<&str>) -> bool {
    written_by.is_some_and(|manager| manager != FIELD_MANAGER)
}

/// Applies objects of a release again, its marks included: what drifted is put right by the fields
/// we own. The record of the release is not touched.
///
/// # Errors
/// What could not be written; the rest was.
///
/// # Cancellation
/// Safe: each object is written whole or not at all.
pub async fn reapply(
    cluster: &Cluster,
    owner: &Owner,
    mut objects: Vec<Object>,
    options: ApplyOptions,
) -> Result<Applied, ApplyError> {
    let as_recorded = |object: &Object| (object.key(), object.clone());
    let previous = objects.iter().map(as_recorded).collect();
    for object in &mut objects {
        owner.mark(&mut object.body);
    }
    apply_all(cluster, &objects, &previous, options, None).await
}
