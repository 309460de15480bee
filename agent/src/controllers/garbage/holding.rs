//! Removals that are held back: that they are, what is told of it, and which are not to be any more.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::Collector;
use super::error::RemovalError;
use super::report::REPORT_NAME;
use super::upstream_list::UpstreamList;
use super::verdict::{HoldReason, Verdict};
use crate::api::RELEASE_HOLD_ANNOTATION;
use crate::controllers::bundle_deployment::claims::NextOwner;
use crate::controllers::queue::ReconcileKind;
use crate::ledger::{Hold, LEDGER_NAME, LedgerEntry, ReleaseKey};
use crate::public;
use crate::public::{Name, PublicText};
use crate::report::events::Reason;

/// How long it is nothing to tell of that the watch has not told of all bundles.
const LONG_UNTOLD: Duration = Duration::from_secs(3 * 60);

/// How long it is nothing to tell of that other bundles vanish.
const LONG_VANISHING: Duration = Duration::from_secs(60);

/// The longest pause between two looks at a removal that waits for that; the end of a list wakes it.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

impl Collector {
    /// Bundles that are held back and were not seen since.
    pub(super) fn held_bundles(&self) -> BTreeSet<String> {
        let mut held = self.ledger.bundles(|entry| entry.hold == Some(Hold::Held));
        held.retain(|bundle| !self.store.is_listed(bundle));
        held
    }

    /// Checks everything that is held back, with one question to each side. Which bundles are not to be held any more.
    pub(super) async fn check_held(&self, mut held: BTreeSet<String>) -> BTreeSet<String> {
        if let Err(failed) = self.ledger.take_permission().await {
            let error = PublicText::nothing_secret_in(&failed);
            logging::warn!(error, "cannot look whether held removals are let through");
        }
        let mut woken = self.ledger.take_let_go();
        match self.lister.list(Instant::now()).await {
            Ok(list) => held.retain(|bundle| {
                let releases = self.ledger.of_bundle(bundle);
                match self.judge(bundle, &list, &releases) {
                    // Why may be another reason by now, which is told.
                    Verdict::Held(reason) => {
                        let told = self.report.reason(bundle);
                        told.is_some_and(|told| told != reason)
                    }
                    _ => true,
                }
            }),
            Err(failed) => {
                logging::debug!(
                    error = PublicText::nothing_secret_in(&failed),
                    "cannot look at held removals"
                );
                held.clear();
            }
        }
        woken.append(&mut held);
        woken
    }

    /// A bundle, and those that a list lacks as well and that are not held yet.
    pub(super) fn gone_together(&self, bundle: &str, list: &UpstreamList) -> BTreeSet<String> {
        let mut all = self.ledger.bundles(|entry| entry.hold.is_none());
        all.retain(|one| !list.listed.contains(one));
        all.insert(bundle.to_owned());
        all
    }

    /// Keeps the releases of a bundle. Of too many at once, all are held together: what of them would be left were few enough by itself.
    pub(super) async fn hold(
        &self,
        bundle: &str,
        reason: HoldReason,
        list: &UpstreamList,
        releases: Vec<(ReleaseKey, LedgerEntry)>,
    ) -> Result<(), RemovalError> {
        if releases.iter().any(|(_, entry)| entry.hold.is_none()) {
            let mut bundles = BTreeSet::from([bundle.to_owned()]);
            if reason == HoldReason::TooMany {
                self.held.note_wave();
                bundles = self.gone_together(bundle, list);
            }
            let held = self.held.hold(bundles).await;
            for released in self.ledger.take_let_go() {
                self.queue.wake(&released, ReconcileKind::Full);
            }
            held.map_err(RemovalError::Ledger)?;
        }
        let keys = releases.into_iter().map(|(key, _)| key).collect();
        if !self.report.hold(bundle, reason, keys) {
            return Ok(());
        }
        let namespace = self.system_namespace();
        let text = public!(
            "not removed: {}. Read key held of configmap {}/{} first: annotating configmap {}/{} with {}=true lets go all that it lists, not this \
             bundle alone",
            reason.text(),
            Name(namespace),
            REPORT_NAME,
            Name(namespace),
            LEDGER_NAME,
            RELEASE_HOLD_ANNOTATION
        );
        logging::warn!(bundle, "{}", text);
        self.events.emit(Reason::RemovalHeld, bundle, text);
        Ok(())
    }

    /// When a removal is looked at again that waits until the watch has told of all bundles, one of which may want the release: ever more rarely.
    /// What lasts for minutes is told.
    pub(super) fn wait_for_claimants(
        &self,
        bundle: &str,
        missing_since: Instant,
        releases: Vec<(ReleaseKey, LedgerEntry)>,
    ) -> Verdict {
        let missed = missing_since.elapsed();
        let mut holds = releases.iter().map(|(_, entry)| entry.hold);
        // What is held for another reason is, whatever the watch tells.
        let is_long = missed >= LONG_UNTOLD && !holds.any(|hold| hold == Some(Hold::Held));
        let keys = releases.into_iter().map(|(key, _)| key).collect();
        if is_long && self.report.hold(bundle, HoldReason::Untold, keys) {
            let text = public!("not removed yet: {}", HoldReason::Untold.text());
            logging::warn!(bundle, "{}", text);
            self.events.emit(Reason::RemovalHeld, bundle, text);
        }
        Verdict::Wait((missed / 2).clamp(self.removal_grace, LONGEST_WAIT.max(self.removal_grace)))
    }

    /// Tells of a removal that waits until fewer bundles vanish, where that takes long: they may do so for ever, as some do that come back each time.
    pub(super) fn report_vanishing(
        &self,
        bundle: &str,
        missing_since: Instant,
        releases: Vec<(ReleaseKey, LedgerEntry)>,
    ) {
        if missing_since.elapsed() < LONG_VANISHING {
            return;
        }
        let keys = releases.into_iter().map(|(key, _)| key).collect();
        if self.report.hold(bundle, HoldReason::Vanishing, keys) {
            let text = public!(
                "not removed yet: {}, {} the last of them",
                HoldReason::Vanishing.text(),
                Name(&self.store.vanished().join(", "))
            );
            logging::warn!(bundle, "{}", text);
            self.events.emit(Reason::RemovalHeld, bundle, text);
        }
    }

    /// Tells that the releases of a bundle are not removed before another one's `${ }` are filled in.
    pub(super) fn report_claimed(&self, bundle: &str, releases: Vec<(ReleaseKey, LedgerEntry)>) {
        let claimant = releases
            .iter()
            .find_map(|(key, _)| match self.next_owner(bundle, key) {
                NextOwner::Unknown(claimant) => Some((claimant, key.clone())),
                NextOwner::Bundle(_) | NextOwner::Nobody => None,
            });
        let Some((claimant, key)) = claimant else {
            return;
        };
        let keys = releases.into_iter().map(|(key, _)| key).collect();
        if self.report.hold(bundle, HoldReason::MayBeWanted, keys) {
            let text = public!(
                "not removed: bundle {} may want release {}, which shows once the ${{ }} of its names are filled in",
                Name(&claimant),
                key
            );
            logging::warn!(bundle, "{}", text);
            self.events.emit(Reason::RemovalHeld, bundle, text);
        }
    }
}
