//! Steps of a first install alone: checking the name, creating the namespace, installing `crds/`.

use std::time::Duration;

use chart::Chart;
use objects::manifest::{build, defined_kinds, documents};
use objects::{Object, Resource};

use super::error::{CrdError, DeployError};
use super::spec::DeploySpec;
use crate::kube::{Cluster, Owner, unnote, wait_until_ready};
use crate::model::Release;
use crate::storage::{RecordUid, Storage, StorageError};
use objects::readiness::wait::Mode;

/// How long the definitions of `crds/` may take to be served.
const CRD_TIMEOUT: Duration = Duration::from_secs(60);

/// Helm's rule for release names.
///
/// # Errors
/// [`DeployError::Name`]: it breaks the rule.
pub fn check_name(name: &str) -> Result<(), DeployError> {
    chart::validate_release_name(name).map_err(|problem| DeployError::Name {
        name: name.to_owned(),
        problem,
    })
}

/// The kinds that the chart's `crds/` bring.
pub(super) fn crd_kinds(chart: &Chart) -> Vec<Resource> {
    // One file after the other: what all of them say takes many times what their text does.
    let defined = |crd: &chart::Crd| {
        let documents = documents(&String::from_utf8_lossy(&crd.file.data)).ok()?;
        Some(defined_kinds(&documents))
    };
    let crds = chart.crds();
    crds.iter().filter_map(defined).flatten().collect()
}

/// Stores a new record, creating the namespace if it is missing and that was asked for. Gives the object that it is, and says
/// whether the namespace is new. One that is among `objects` is the release's own from the first moment on, so
/// that whoever goes on after a crash may write it.
pub(super) async fn create_record(
    cluster: &Cluster,
    storage: &Storage,
    spec: &DeploySpec,
    release: &Release,
    objects: &[Object],
) -> Result<(RecordUid, bool), DeployError> {
    let mut is_new = false;
    let owner = Owner::new(&spec.name, &spec.namespace);
    let is_own = |object: &Object| object.is_namespace() && object.name == spec.namespace;
    let owner = Some(&owner).filter(|_| objects.iter().any(is_own));
    let record = match storage.create(release).await {
        Err(StorageError::NoNamespace { namespace }) if spec.options.create_namespace => {
            let created = cluster.create_namespace(&namespace, owner).await;
            is_new = created.map_err(|source| {
                storage.withdraw_digest(release);
                DeployError::Namespace { namespace, source }
            })?;
            storage.create(release).await?
        }
        Err(StorageError::Exists) => storage.repair(release).await?,
        other => {
            if matches!(other, Err(StorageError::NoNamespace { .. })) {
                storage.withdraw_digest(release);
            }
            other?
        }
    };
    cluster.remember_namespace(&spec.namespace);
    Ok((record, is_new))
}

/// Creates the definitions of `crds/` that are not there yet and waits until all are served, those too
/// that an attempt made which was cut off. Existing ones are never changed; definitions are not part
/// of the release.
pub(super) async fn create_crds(cluster: &Cluster, release: &Release) -> Result<(), DeployError> {
    let Some(chart) = &release.chart else {
        return Ok(());
    };
    let crds = chart.crds();
    if crds.is_empty() {
        return Ok(());
    }
    let mut present = Vec::new();
    let mut is_any_new = false;
    for crd in crds {
        let failed = |source| DeployError::Crd {
            path: crd.file.name.clone(),
            source,
        };
        let text = String::from_utf8_lossy(&crd.file.data);
        if text.is_empty() {
            return Err(failed(CrdError::Empty("file data is empty")));
        }
        let discovery = cluster.discovery().await.map_err(DeployError::Discovery)?;
        let objects = documents(&text)
            .and_then(|documents| build(documents, &release.namespace, &discovery, &[]))
            .map_err(|source| failed(CrdError::Build(source)))?;
        if objects.is_empty() {
            return Err(failed(CrdError::Empty("resources are empty")));
        }
        for mut object in objects {
            unnote(&mut object.body);
            match cluster.create(&object).await {
                Ok(_) => is_any_new = true,
                Err(error) if error.is_already_exists() => {}
                Err(error) => return Err(failed(CrdError::Api(error))),
            }
            present.push((crd.file.name.clone(), object.without_body()));
        }
    }
    for (path, object) in present.iter().filter(|(_, object)| object.is_crd()) {
        wait_until_ready(cluster, &[object], Mode::Wait, CRD_TIMEOUT)
            .await
            .map_err(|source| DeployError::Crd {
                path: path.clone(),
                source: CrdError::Wait(source),
            })?;
    }
    if is_any_new {
        cluster.forget_discovery();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_helms_rule() {
        for name in ["a", "a-b", "a.b-c.d0", "0"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "A", "-a", "a-", "a..b", "a_b", &"a".repeat(54)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
