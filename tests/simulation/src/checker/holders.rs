//! Which bundle has a release, as the agent's ledger says, and who may take it from that one.

use serde_json::Value;

use super::{Checker, ReleaseKey, named_bundle, release_of};
use crate::apiserver::Write;
use crate::desired::{BUNDLES, bundle_name};

/// Whether a ledger has an entry of a bundle in a namespace.
pub(super) fn names(ledger: &Value, bundle: usize, namespace: &str) -> bool {
    let entries = ledger["data"].as_object().into_iter().flatten();
    let mut entries = entries.filter(|(key, _)| {
        let place = key.split_once('_');
        place.is_some_and(|(place, _)| place == namespace)
    });
    entries.any(|(_, text)| {
        let entry = serde_json::from_str::<Value>(text.as_str().unwrap_or_default());
        entry.is_ok_and(|entry| entry["bundle"] == bundle_name(bundle))
    })
}

/// What a ledger has of a release.
pub(super) fn entry_of(ledger: &Value, (namespace, name): &ReleaseKey) -> Option<Value> {
    let text = ledger["data"][format!("{namespace}_{name}")].as_str()?;
    serde_json::from_str(text).ok()
}

impl Checker {
    /// The bundle that the ledger has a release for.
    pub(super) fn holder(&self, release: &ReleaseKey) -> Option<usize> {
        let entry = entry_of(self.ledger.as_deref()?, release)?;
        (0..BUNDLES).find(|bundle| entry["bundle"] == bundle_name(*bundle))
    }

    /// Whether one of two bundles wanted a release, and no other, as long as it was wanted, and upstream never lost it.
    fn always_wants(&self, bundle: usize, release: &ReleaseKey) -> bool {
        let ever = self.desired_state.ever.get(&bundle).into_iter().flatten();
        let mut others = ever.filter(|desired| release_of(desired) != *release);
        self.desired_state.now.contains_key(&bundle)
            && others.next().is_none()
            && !self.left.contains_key(&(bundle, release.clone()))
            && !self.were_lost.contains(&bundle)
    }

    /// A revision is written for the bundle that the ledger has the release for, or for one that may take it: with `takeOwnership`, or where it
    /// had the release before. Of two that want it from the first to the last everybody knows the same.
    pub(super) fn takes(&mut self, write: &Write) {
        let (Some((release, revision)), None, Some(record)) =
            (Self::record(&write.id), &write.before, &write.after)
        else {
            return;
        };
        let (Some(bundle), Some(holder)) = (named_bundle(record), self.holder(&release)) else {
            return;
        };
        let mut wanting = self.desired_state.of_release(&release.0, &release.1);
        wanting.retain(|one| ![bundle, holder].contains(one));
        let mut ever = self.desired_state.ever.get(&bundle).into_iter().flatten();
        if bundle == holder
            || self.is_restored
            || !wanting.is_empty()
            || ![bundle, holder]
                .iter()
                .all(|one| self.always_wants(*one, &release))
            || ever.any(|desired| desired.take_ownership)
            || self.ever_deployed_for.contains(&(release.clone(), bundle))
        {
            return;
        }
        let text = format!(
            "revision {revision} of {release:?} is written for {}, and {} has it",
            bundle_name(bundle),
            bundle_name(holder)
        );
        self.violate("takes another's release", text);
    }
}
