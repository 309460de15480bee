//! What is known of bundles that are coming up: what the last look found, so that the next one reads
//! only what changed since, and a status that waits a moment for better news. What has not been
//! looked at for a minute is forgotten: memory is for bundles in motion.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use objects::Object;
use release::kube::Owner;
use serde_json::Value;
use tokio::time::Instant;

use super::observe::InSync;
use crate::api::{BundleDeployment, BundleDeploymentStatus};

/// How much the remembered objects of all bundles may weigh, in bytes; further bundles are read in full.
const MAX_WEIGHT: usize = 4 << 20;

/// How long a bundle is remembered after a look.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Bundles that are coming up; shared by reference.
#[derive(Default)]
pub struct ObservationCache {
    bundles: Mutex<HashMap<String, Arc<CachedObservation>>>,
    /// Statuses that were not sent upstream yet, with the version of what was wanted.
    held: Mutex<HashMap<String, (Version, BundleDeploymentStatus)>>,
}

/// UID and generation: what was wanted.
type Version = (Option<String>, Option<i64>);

/// A bundle as it was found.
pub struct CachedObservation {
    version: Version,
    /// As the status names it.
    release: String,
    pub owner: Owner,
    pub desired: Arc<Vec<Object>>,
    pub in_sync: InSync,
    /// Of `desired`.
    weight: usize,
    looked: Instant,
}

impl ObservationCache {
    /// What is known of the bundle, if it is still the same that is wanted and deployed.
    pub fn of(&self, bundle: &BundleDeployment, release: &str) -> Option<Arc<CachedObservation>> {
        self.forget_resting();
        let bundles = self.bundles.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = bundles.get(bundle.name())?;
        let is_same = memory.version == version(bundle) && memory.release == release;
        is_same.then(|| Arc::clone(memory))
    }

    /// Remembers a bundle, if there is room.
    pub fn keep(
        &self,
        bundle: &BundleDeployment,
        release: &str,
        owner: Owner,
        desired: Arc<Vec<Object>>,
        in_sync: InSync,
    ) {
        self.forget_resting();
        let mut bundles = self.bundles.lock().unwrap_or_else(PoisonError::into_inner);
        bundles.remove(bundle.name());
        let held: usize = bundles.values().map(|memory| memory.weight).sum();
        let weight = desired.iter().map(|object| weight(&object.body)).sum();
        if held.saturating_add(weight) > MAX_WEIGHT {
            return;
        }
        let memory = CachedObservation {
            version: version(bundle),
            release: release.to_owned(),
            owner,
            desired,
            in_sync,
            weight,
            looked: Instant::now(),
        };
        bundles.insert(bundle.name().to_owned(), Arc::new(memory));
    }

    /// Keeps a status that is not sent yet. Losing it costs a pass that finds everything done.
    pub fn hold(&self, bundle: &BundleDeployment, status: BundleDeploymentStatus) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.insert(bundle.name().to_owned(), (version(bundle), status));
    }

    /// Gives back the status that was not sent yet, if it is still about what is wanted.
    pub fn take_held(&self, bundle: &BundleDeployment) -> Option<BundleDeploymentStatus> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, status) = held.remove(bundle.name())?;
        (of == version(bundle)).then_some(status)
    }

    /// Forgets what was not looked at for a while.
    pub fn forget_resting(&self) {
        let mut bundles = self.bundles.lock().unwrap_or_else(PoisonError::into_inner);
        bundles.retain(|_, memory| memory.looked.elapsed() < REMEMBERED);
    }

    /// Forgets a bundle.
    pub fn forget(&self, name: &str) {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
        self.bundles
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}

/// Roughly what a value takes in memory, in bytes. As deep as the API server lets an object be.
fn weight(value: &Value) -> usize {
    let inside: usize = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| key.len() + size_of::<String>() + weight(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + inside
}

fn version(bundle: &BundleDeployment) -> Version {
    let metadata = &bundle.metadata;
    (metadata.uid.clone(), metadata.generation)
}
