//! Putting drifted objects right: applying those objects of the current revision again.
//!
//! Upstream rolls the whole release back to its own revision, which runs hooks, makes a new
//! revision each time and leaves custom resources as they are. Here only what drifted is applied,
//! by the fields we own; the release stays as it is. A correction that does not help, or not for long, is
//! repeated ever more rarely. What another release has by now is left to it.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject};
use kube::core::GroupVersionKind;
use objects::conflict::FieldConflict;
use objects::fields::text;
use objects::manifest::{build, build_stored, documents};
use objects::{BuildError, Object, ObjectKey};
use release::kube::{Applied, ApplyError, ApplyOptions, Cluster, ObjectFailure, Owner};
use release::model::Release;
use release::storage::Storage;
use tokio::time::Instant;

use crate::api::ModifiedStatus;
use crate::client::identity::DeploymentClient;
use crate::error;

/// First pause after a correction that did not help, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// How long an object is in order before it counts as corrected, after the pause that it would have had.
const AT_REST: Duration = Duration::from_secs(60);

/// How often objects that are written meanwhile are looked at.
const TRIES: u32 = 3;

/// A release cannot be turned into objects.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    #[error(transparent)]
    Discovery(#[from] release::kube::ApiError),
    #[error("failed to discover client for the release's objects")]
    Build(#[from] BuildError),
}

/// The objects a release wants.
///
/// # Errors
/// The cluster cannot be asked what it serves, or does not serve a kind.
pub async fn objects(cluster: &Cluster, release: &Release) -> Result<Vec<Object>, ObjectsError> {
    let documents = documents(&release.manifest)?;
    let discovery = cluster.discovery_of(&documents, &[]).await?;
    Ok(build(documents, &release.namespace, &discovery, &[])?)
}

/// The objects of an earlier revision that can still be there.
///
/// # Errors
/// The cluster cannot be asked what it serves, or the record is no YAML.
pub async fn stored_objects(
    cluster: &Cluster,
    release: &Release,
) -> Result<Vec<Object>, ObjectsError> {
    let discovery = cluster.discovery().await?;
    Ok(build_stored(
        &release.manifest,
        &release.namespace,
        &discovery,
    )?)
}

/// What drifted and applying it again can put right: not what is left over, and nothing that another release has.
pub fn correctable(drifted: &[ModifiedStatus], taken: &BTreeSet<ObjectKey>) -> Vec<ObjectKey> {
    let keys = drifted.iter().filter(|entry| !entry.extra).map(key);
    keys.filter(|key| !taken.contains(key)).collect()
}

fn key(entry: &ModifiedStatus) -> ObjectKey {
    ObjectKey::new(
        &entry.api_version,
        &entry.kind,
        &entry.namespace,
        &entry.name,
    )
}

/// Applies those desired objects again that are `due`. Gives back the fields that other managers held.
///
/// One that carries another release's marks by now is left alone: each is looked at, and written only as it was then.
///
/// # Errors
/// The API server refuses one.
///
/// # Cancellation
/// Safe: the next reconcile finds what is still wrong.
pub async fn apply(
    cluster: &Cluster,
    release: &Release,
    desired: &[Object],
    due: &[ObjectKey],
    force: bool,
) -> Result<Vec<FieldConflict>, ApplyError> {
    let owner = Owner::new(&release.name, &release.namespace);
    let options = ApplyOptions {
        force,
        ..Default::default()
    };
    let mut tries = 1;
    loop {
        let mut objects = Vec::new();
        for object in desired.iter().filter(|object| due.contains(&object.key())) {
            objects.extend(unless_taken(cluster, &owner, object).await?);
        }
        let applied = release::kube::reapply(cluster, &owner, objects, options).await;
        match applied {
            Ok(applied) => return Ok(applied.conflicts),
            Err(failed) if tries < TRIES && failed.failures.iter().all(is_outdated) => tries += 1,
            Err(failed) => return Err(failed),
        }
    }
}

/// An object that is to be written as it is found now, or made; none if it is another release's.
async fn unless_taken(
    cluster: &Cluster,
    owner: &Owner,
    object: &Object,
) -> Result<Option<Object>, ApplyError> {
    let found = cluster.get(object).await.map_err(|source| ApplyError {
        failures: vec![ObjectFailure::Apply {
            object: object.describe(),
            source,
        }],
        applied: Applied::default(),
    })?;
    let version = match &found {
        Some(live) if Owner::of(live).is_some_and(|other| other != *owner) => return Ok(None),
        Some(live) => text(live, "/metadata/resourceVersion"),
        // No object has this one: it is made, and not written over.
        None => "1",
    };
    let mut object = object.clone();
    object.body["metadata"]["resourceVersion"] = version.into();
    Ok(Some(object))
}

/// Whether somebody wrote the object since it was looked at.
fn is_outdated(failure: &ObjectFailure) -> bool {
    matches!(failure, ObjectFailure::Conflict { .. })
}

/// Leaves a trace of a correction that failed in the release's history (`keepFailHistory`): one
/// failed revision, however often the same failure repeats. A record that cannot be written is only
/// logged.
pub async fn record_failure(
    storage: &Storage,
    release: &Release,
    problem: &str,
    max_history: i64,
    now: Timestamp,
) {
    let recorded =
        release::action::record_failed_rollback(storage, release, problem, max_history, now).await;
    if let Err(failed) = recorded {
        tracing::warn!(
            release = release.name,
            error = error::chain(&failed),
            "cannot record a failed correction"
        );
    }
}

/// Deletes an object a status names.
///
/// # Errors
/// The API server refuses; that it is gone is none.
pub async fn delete(
    impersonated: &DeploymentClient,
    entry: &ModifiedStatus,
    parameters: &DeleteParams,
) -> Result<(), String> {
    let (group, version) = entry
        .api_version
        .split_once('/')
        .unwrap_or(("", &entry.api_version));
    let discovery = impersonated
        .cluster()
        .discovery()
        .await
        .map_err(|e| error::chain(&e))?;
    let Some(resource) = discovery.resource(group, version, &entry.kind) else {
        return Ok(());
    };
    let kind = GroupVersionKind::gvk(group, version, &entry.kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, &resource.plural);
    let api = match entry.namespace.as_str() {
        "" => Api::<DynamicObject>::all_with(impersonated.client(), &resource),
        namespace => Api::namespaced_with(impersonated.client(), namespace, &resource),
    };
    match api.delete(&entry.name, parameters).await {
        Err(failed) if !error::has_code(&failed, 404) => Err(error::text(&failed)),
        _ => Ok(()),
    }
}

/// Corrections of one bundle that have not helped so far, or not for long: somebody may write the objects back a moment later.
#[derive(Debug, Default)]
pub struct Attempts {
    objects: HashMap<ObjectKey, Attempt>,
    /// Why the last one failed.
    problem: Option<String>,
}

#[derive(Debug)]
struct Attempt {
    count: u32,
    again_at: Instant,
    /// When it was last found drifted.
    found_at: Instant,
}

/// Which objects to correct.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// These, now.
    pub now: Vec<ObjectKey>,
    /// The next of the others after so long.
    pub again: Option<Duration>,
    /// Why the last correction failed, while nothing is due.
    pub problem: Option<String>,
}

impl Attempts {
    /// Which of the objects that are found drifted to correct now. What is found for the first time is corrected at once.
    pub fn due(&mut self, found: &[ObjectKey]) -> Due {
        self.forget_resting();
        let now = Instant::now();
        let (min, max) = PAUSE;
        let mut due = Due::default();
        for key in found {
            let attempt = self.objects.entry(key.clone()).or_insert(Attempt {
                count: 0,
                again_at: now,
                found_at: now,
            });
            attempt.found_at = now;
            if attempt.again_at > now {
                let pause = attempt.again_at - now;
                due.again = Some(due.again.map_or(pause, |other| other.min(pause)));
                continue;
            }
            let factor = 2_u32.saturating_pow(attempt.count);
            attempt.again_at = now + min.saturating_mul(factor).min(max);
            attempt.count = attempt.count.saturating_add(1);
            due.now.push(key.clone());
        }
        match due.now.is_empty() && !found.is_empty() {
            true => due.problem.clone_from(&self.problem),
            false => self.problem = None,
        }
        due
    }

    /// The correction that was due failed.
    pub fn failed(&mut self, problem: &str) {
        self.problem = Some(problem.to_owned());
    }

    /// Forgets what has been in order for a while. Whether nothing is left.
    pub fn forget_resting(&mut self) -> bool {
        let now = Instant::now();
        self.objects
            .retain(|_, attempt| now < attempt.found_at.max(attempt.again_at) + AT_REST);
        self.objects.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> ObjectKey {
        ObjectKey::new("v1", "ConfigMap", "ns", name)
    }

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn at_once(names: &[&str]) -> Due {
        Due {
            now: names.iter().map(|name| object(name)).collect(),
            ..Due::default()
        }
    }

    fn after(pause: Duration) -> Due {
        Due {
            again: Some(pause),
            ..Due::default()
        }
    }

    #[test]
    fn what_is_left_over_and_what_another_release_has_is_not_corrected() {
        let entry = |name: &str, extra| ModifiedStatus {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: "ns".into(),
            name: name.into(),
            extra,
            ..Default::default()
        };
        let drifted = [entry("a", false), entry("kept", true), entry("lost", false)];
        let taken = BTreeSet::from([object("lost")]);
        assert_eq!(correctable(&drifted, &taken), [object("a")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_correction_that_does_not_help_becomes_rare() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.due(&[object("a")]), at_once(&["a"]));
        assert_eq!(attempts.due(&[object("a")]), after(second(5)));
        tokio::time::advance(second(5)).await;
        assert_eq!(attempts.due(&[object("a")]), at_once(&["a"]));
        attempts.failed("refused");
        let waits = Due {
            problem: Some("refused".into()),
            ..after(second(10))
        };
        assert_eq!(attempts.due(&[object("a")]), waits);
        assert_eq!(attempts.due(&[]), Due::default());
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_who_reverts_each_correction_is_not_fought() {
        let mut attempts = Attempts::default();
        let mut corrections = 0;
        // Ten minutes in which every correction holds for a second.
        for _ in 0..600 {
            let found = attempts.due(&[object("a")]);
            corrections += found.now.len();
            tokio::time::advance(second(1)).await;
            assert_eq!(attempts.due(&[]).now, []);
        }
        assert_eq!(corrections, 7);
        // Another object is another matter, and so is this one when it has been left in peace.
        let both = attempts.due(&[object("a"), object("b")]);
        assert_eq!(both.now, [object("b")]);
        tokio::time::advance(second(361)).await;
        assert_eq!(attempts.due(&[object("a")]), at_once(&["a"]));
    }
}
