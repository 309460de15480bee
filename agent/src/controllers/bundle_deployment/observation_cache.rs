//! The last observations of bundles that are coming up, so that the next reconcile reads only what changed since, and a status that waits a moment
//! for them to be ready. An observation older than a minute is dropped: the cache is for bundles that change.

use golib::budget::weigh;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use objects::{Object, ObjectKey};
use release::kube::Owner;
use tokio::time::Instant;

use super::status::{Observation, RedactedObservation};
use crate::api::{BundleDeployment, BundleDeploymentResource, BundleDeploymentStatus};
use crate::report::metrics::Entries;

/// How much the remembered objects of all bundles may weigh, in bytes; further bundles are read in full.
const MAX_WEIGHT: usize = 8 << 20;

/// How long an observation is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Objects that are as the release wants them, and ready.
pub type InSync = HashMap<ObjectKey, BundleDeploymentResource>;

/// Bundles that are coming up; shared by reference.
#[derive(Default)]
pub struct ObservationCache {
    bundles: Mutex<HashMap<String, Arc<CachedObservation>>>,
    /// Statuses that were not sent upstream yet, and of which spec.
    held: Mutex<HashMap<String, (Version, BundleDeploymentStatus)>>,
}

/// UID and generation: which spec it is about.
type Version = (Option<String>, Option<i64>);

/// The last observation of a bundle.
pub struct CachedObservation {
    version: Version,
    /// The release as the status names it.
    release: String,
    pub owner: Owner,
    pub desired: Arc<Vec<Object>>,
    pub in_sync: InSync,
    /// Whether nothing in the release is secret.
    pub is_plain: bool,
    /// Weight of `desired`.
    weight: usize,
    observed: Instant,
}

impl ObservationCache {
    /// The last observation of the bundle, if its spec and its release are still the same.
    pub fn of(&self, bundle: &BundleDeployment, release: &str) -> Option<Arc<CachedObservation>> {
        self.forget_resting();
        let bundles = self.bundles.lock();
        let cached = bundles.get(bundle.name())?;
        let is_same = cached.version == version(bundle) && cached.release == release;
        is_same.then(|| Arc::clone(cached))
    }

    /// Remembers what was found, if there is room.
    pub fn keep(
        &self,
        bundle: &BundleDeployment,
        release: &str,
        owner: Owner,
        desired: Arc<Vec<Object>>,
        found: &RedactedObservation,
    ) {
        self.forget_resting();
        let mut bundles = self.bundles.lock();
        bundles.remove(bundle.name());
        let held: usize = bundles.values().map(|cached| cached.weight).sum();
        let weight = desired.iter().map(|object| weigh(&object.body)).sum();
        if held.saturating_add(weight) > MAX_WEIGHT {
            return;
        }
        let cached = CachedObservation {
            version: version(bundle),
            release: release.to_owned(),
            owner,
            desired,
            in_sync: in_sync(&found.all),
            is_plain: found.is_plain,
            weight,
            observed: Instant::now(),
        };
        bundles.insert(bundle.name().to_owned(), Arc::new(cached));
    }

    /// Keeps a status that is not sent yet. Losing it costs a reconcile that finds everything done.
    pub fn hold(&self, bundle: &BundleDeployment, status: BundleDeploymentStatus) {
        let mut held = self.held.lock();
        held.insert(bundle.name().to_owned(), (version(bundle), status));
    }

    /// Gives back the status that was not sent yet, if it is still about the same spec.
    pub fn take_held(&self, bundle: &BundleDeployment) -> Option<BundleDeploymentStatus> {
        let mut held = self.held.lock();
        let (of, status) = held.remove(bundle.name())?;
        (of == version(bundle)).then_some(status)
    }

    /// Bundles that were observed, and statuses that were not sent yet.
    pub fn entries(&self) -> Entries {
        let bundles = self.bundles.lock();
        let held = self.held.lock();
        vec![
            ("observations", bundles.len()),
            ("held_statuses", held.len()),
        ]
    }

    /// Forgets what was not observed for a while.
    pub fn forget_resting(&self) {
        let mut bundles = self.bundles.lock();
        bundles.retain(|_, cached| cached.observed.elapsed() < REMEMBERED);
    }

    /// Forgets a bundle.
    pub fn forget(&self, name: &str) {
        self.held.lock().remove(name);
        self.bundles.lock().remove(name);
    }
}

/// The objects of an observation that are in sync.
pub(super) fn in_sync(found: &Observation) -> InSync {
    let key = ObjectKey::new;
    let resources = found.resources.iter();
    let mut in_sync: InSync = resources
        .map(|one| {
            let key = key(&one.api_version, &one.kind, &one.namespace, &one.name);
            (key, one.clone())
        })
        .collect();
    for one in &found.non_ready {
        in_sync.remove(&key(&one.api_version, &one.kind, &one.namespace, &one.name));
    }
    for one in &found.modified {
        in_sync.remove(&key(&one.api_version, &one.kind, &one.namespace, &one.name));
    }
    in_sync
}

/// `in_sync` without the objects that changed; `None` if an object that is not `desired` did.
pub(super) fn unchanged(
    in_sync: &InSync,
    desired: &[Object],
    changed: &[ObjectKey],
) -> Option<InSync> {
    let keys: BTreeSet<_> = desired.iter().map(Object::key).collect();
    if changed.iter().any(|key| !keys.contains(key)) {
        return None;
    }
    let unchanged = in_sync.iter().filter(|(key, _)| !changed.contains(key));
    Some(
        unchanged
            .map(|(key, one)| (key.clone(), one.clone()))
            .collect(),
    )
}

fn version(bundle: &BundleDeployment) -> Version {
    let metadata = &bundle.metadata;
    (metadata.uid.clone(), metadata.generation)
}
