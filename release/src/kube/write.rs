//! Writing one object: server-side apply, conflicts, force, retries.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use objects::conflict::{Contested, FieldConflict, Outcome, concerns_replicas, leave_out, scales};
use objects::fields::items;
use objects::{Object, ObjectKey};
use serde_json::Value;
use tokio::time::sleep;

use super::check::{CreateError, Created, create_new};
use super::client::Cluster;
use super::error::ApiError;
use super::migrate;
use super::ownership::{Owner, OwnershipError};
use super::wait::{WaitError, wait_until_gone};

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
    pub(super) fn is_unserved(&self) -> bool {
        match self {
            Self::Apply { source, .. } | Self::Create { source, .. } => source.is_unserved(),
            _ => false,
        }
    }

    /// Whether nothing more is to be written.
    pub(super) fn ends_all(&self) -> bool {
        matches!(self, Self::NotOurs(_)) || self.reason() == "Unreachable"
    }
}

/// One object that was written.
pub(super) struct WrittenObject {
    pub(super) live: Value,
    pub(super) conflicts: Vec<FieldConflict>,
    /// The object, if it is known to be new.
    pub(super) created: Option<Object>,
}

pub(super) type Written = Result<WrittenObject, ObjectFailure>;

impl WrittenObject {
    fn over(live: Value, conflicts: Vec<FieldConflict>) -> Self {
        Self {
            live,
            conflicts,
            created: None,
        }
    }
}

/// What writing an object depends on.
pub(super) struct ObjectWriter<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) previous: &'a BTreeMap<ObjectKey, Object>,
    pub(super) options: ApplyOptions,
    pub(super) unverified: Option<Unverified<'a>>,
    /// Group and kind of what the same manifest defines and uses.
    pub(super) own_kinds: HashSet<(String, String)>,
}

impl<'a> ObjectWriter<'a> {
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

    pub(super) async fn write(&self, object: &Object) -> Written {
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
            Err(error) if !error.contested_fields().is_empty() => {
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
                        && error.contested_fields().is_empty()
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
        let paths = error.contested_fields();
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
        let mut autoscalers = items(&list, "items").iter();
        Ok(autoscalers.any(|autoscaler| scales(autoscaler, object)))
    }

    /// Makes an object what is desired although the API server calls merging invalid.
    async fn force(&self, object: &Object, refusal: ApiError) -> Result<Value, ObjectFailure> {
        if refusal.is_immutable() {
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
            Err(error) if error.is_immutable() => return self.recreate(object).await,
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
            match self.cluster.delete(object, uid).await {
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
