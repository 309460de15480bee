//! Putting drifted objects right: applying those objects of the current revision again.
//!
//! Upstream rolls the whole release back to its own revision, which runs hooks, makes a new
//! revision each time and leaves custom resources as they are. Here only what drifted is applied,
//! by the fields we own; the release stays as it is. A correction that does not help is repeated
//! ever more rarely.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject};
use kube::core::GroupVersionKind;
use objects::conflict::FieldConflict;
use objects::manifest::{build, build_stored, documents};
use objects::{BuildError, Object};
use release::kube::{ApplyOptions, Cluster, Owner};
use release::model::Release;
use release::storage::Storage;
use tokio::time::Instant;

use crate::api::ModifiedStatus;
use crate::client::identity::DeploymentClient;
use crate::error;

/// First pause after a correction that did not help, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

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

/// Applies the desired objects that are missing or changed. Gives back the fields that other managers held.
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
    drifted: &[ModifiedStatus],
    force: bool,
) -> Result<Vec<FieldConflict>, release::kube::ApplyError> {
    let is_drifted = |object: &Object| {
        drifted.iter().any(|entry| {
            !entry.extra
                && entry.kind == object.resource.kind
                && entry.api_version == object.resource.api_version()
                && entry.name == object.name
                && entry.namespace == object.namespace.as_deref().unwrap_or_default()
        })
    };
    let objects: Vec<_> = desired
        .iter()
        .filter(|object| is_drifted(object))
        .cloned()
        .collect();
    let owner = Owner::new(&release.name, &release.namespace);
    let options = ApplyOptions {
        force,
        ..Default::default()
    };
    release::kube::reapply(cluster, &owner, objects, options)
        .await
        .map(|applied| applied.conflicts)
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

/// Corrections of one bundle that have not helped so far.
#[derive(Debug, Default)]
pub struct Attempts {
    found: Vec<ModifiedStatus>,
    count: u32,
    again_at: Option<Instant>,
}

impl Attempts {
    /// `None` when to correct now; else how long to leave it. What is found for the first time is
    /// corrected at once.
    pub fn due(&mut self, found: &[ModifiedStatus]) -> Option<Duration> {
        let now = Instant::now();
        if self.found != found {
            *self = Self {
                found: found.to_vec(),
                ..Self::default()
            };
        } else if let Some(again_at) = self.again_at.filter(|at| *at > now) {
            return Some(again_at - now);
        }
        let (min, max) = PAUSE;
        self.again_at = Some(
            now + min
                .saturating_mul(2_u32.saturating_pow(self.count))
                .min(max),
        );
        self.count = self.count.saturating_add(1);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_correction_that_does_not_help_becomes_rare() {
        let drifted = [ModifiedStatus {
            name: "a".into(),
            ..Default::default()
        }];
        let mut attempts = Attempts::default();
        assert_eq!(attempts.due(&drifted), None);
        assert_eq!(attempts.due(&drifted), Some(Duration::from_secs(5)));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(attempts.due(&drifted), None);
        assert_eq!(attempts.due(&drifted), Some(Duration::from_secs(10)));
        assert_eq!(attempts.due(&[]), None);
    }
}
