//! Removals that are held back: which are, written down, so that what a person lets go later is what was held by then; when they are checked
//! again, what is reported of them, and which are not to be held any more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Collector;
use super::error::RemovalError;
use super::report::REPORT_NAME;
use super::upstream_list::UpstreamList;
use super::verdict::{HoldReason, Verdict};
use crate::api::RELEASE_HOLD_ANNOTATION;
use crate::controllers::claims::NextOwner;
use crate::controllers::queue::ReconcileKind;
use crate::ledger::{Hold, LEDGER_NAME, Ledger, LedgerEntry, ReleaseKey};
use crate::public;
use crate::public::{Name, PublicText};
use crate::report::events::Reason;

/// How long it is not reported that the watch has not delivered all bundles.
const LONG_UNTOLD: Duration = Duration::from_secs(3 * 60);

/// How long it is not reported that other bundles vanish.
const LONG_VANISHING: Duration = Duration::from_secs(60);

/// The longest pause between two checks of a removal that waits for that; the end of a list wakes it.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Bundles whose held removal is to be marked.
#[derive(Default)]
struct Waiting {
    next: BTreeSet<String>,
    /// Bundles being marked, or whose marking failed.
    batch: BTreeSet<String>,
}

/// Marks what is held back.
pub(super) struct Held {
    ledger: Arc<Ledger>,
    waiting: Mutex<Waiting>,
    /// Held while marking: bundles that come meanwhile are marked together after it.
    marking: tokio::sync::Mutex<()>,
    /// When bundles were last held for being too many at once.
    last_wave: Mutex<Option<Instant>>,
    /// How long after that others count as gone with them.
    wave: Duration,
}

impl Held {
    pub(super) fn new(ledger: &Arc<Ledger>, wave: Duration) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            waiting: Mutex::default(),
            marking: tokio::sync::Mutex::default(),
            last_wave: Mutex::default(),
            wave,
        }
    }

    /// Too many bundles are gone at once: those that go next may have gone with them.
    pub(super) fn note_wave(&self) {
        *self.last_wave.lock() = Some(Instant::now());
    }

    /// Whether a removal that comes now belongs to the wave of removals being held back.
    pub(super) fn is_in_wave(&self) -> bool {
        let last = *self.last_wave.lock();
        last.is_some_and(|last| last.elapsed() < self.wave)
    }

    /// Marks bundles as held. A permission that was given before is not for them: it is taken in first.
    ///
    /// # Errors
    /// The ledger cannot be read or written; they are not marked.
    pub(super) async fn hold(&self, bundles: BTreeSet<String>) -> kube::Result<()> {
        self.waiting.lock().next.extend(bundles.iter().cloned());
        let _marking = self.marking.lock().await;
        {
            let mut waiting = self.waiting.lock();
            let next = std::mem::take(&mut waiting.next);
            waiting.batch.extend(next);
            if waiting.batch.is_disjoint(&bundles) {
                // Marked with the batch before.
                return Ok(());
            }
        }
        self.ledger.take_permission().await?;
        // Some of the bundles may be back by now.
        let batch = self.waiting.lock().batch.clone();
        self.ledger.hold(&batch).await?;
        self.waiting.lock().batch.clear();
        Ok(())
    }

    /// Bundles are to be held once the ledger can be written.
    pub(super) fn is_to_hold(&self, bundles: BTreeSet<String>) {
        self.waiting.lock().next.extend(bundles);
    }

    /// How many bundles are about to be marked.
    pub(super) fn len(&self) -> usize {
        let waiting = self.waiting.lock();
        waiting.next.union(&waiting.batch).count()
    }

    /// Whether a bundle is to be held, and that is not known to be written yet.
    pub(super) fn is_waiting(&self, bundle: &str) -> bool {
        let waiting = self.waiting.lock();
        waiting.next.contains(bundle) || waiting.batch.contains(bundle)
    }

    /// The bundle is there, or nothing of it is.
    pub(super) fn forget(&self, bundle: &str) {
        let mut waiting = self.waiting.lock();
        waiting.next.remove(bundle);
        waiting.batch.remove(bundle);
    }
}

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
                    // Why may be another reason by now, which is reported.
                    Verdict::Held(reason) => {
                        let reported = self.report.reason(bundle);
                        reported.is_some_and(|reported| reported != reason)
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
        let mut bundles = BTreeSet::from([bundle.to_owned()]);
        self.store.forget_proofs(&bundles);
        if releases.iter().any(|(_, entry)| entry.hold.is_none()) {
            if reason == HoldReason::TooMany {
                self.held.note_wave();
                bundles = self.gone_together(bundle, list);
                self.store.forget_proofs(&bundles);
            }
            let held = self.held.hold(bundles).await;
            for released in self.ledger.take_let_go() {
                self.queue.wake(&released, ReconcileKind::Full);
            }
            held.map_err(RemovalError::Ledger)?;
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
        self.report_held(bundle, reason, releases, text);
        Ok(())
    }

    /// Notes why the releases of a bundle stay; the log and an Event report it where that is news.
    fn report_held(
        &self,
        bundle: &str,
        reason: HoldReason,
        releases: Vec<(ReleaseKey, LedgerEntry)>,
        text: PublicText,
    ) {
        let keys = releases.into_iter().map(|(key, _)| key).collect();
        if self.report.hold(bundle, reason, keys) {
            logging::warn!(bundle, "{}", text);
            self.events.emit(Reason::RemovalHeld, bundle, text);
        }
    }

    /// When a removal is checked again that waits until the watch has delivered all bundles, one of which may want the release: ever more rarely.
    /// A wait of minutes is reported.
    pub(super) fn wait_for_claimants(
        &self,
        bundle: &str,
        missing_since: Instant,
        releases: Vec<(ReleaseKey, LedgerEntry)>,
    ) -> Verdict {
        let missed = missing_since.elapsed();
        let mut holds = releases.iter().map(|(_, entry)| entry.hold);
        // A removal held otherwise is reported as that.
        let is_long = missed >= LONG_UNTOLD && !holds.any(|hold| hold == Some(Hold::Held));
        if is_long {
            let text = public!("not removed yet: {}", HoldReason::Unreported.text());
            self.report_held(bundle, HoldReason::Unreported, releases, text);
        }
        Verdict::Wait((missed / 2).clamp(self.removal_grace, LONGEST_WAIT.max(self.removal_grace)))
    }

    /// Reports a removal that waits until fewer bundles vanish, where that takes long: they may do so for ever, as some do that come back each time.
    pub(super) fn report_vanishing(
        &self,
        bundle: &str,
        missing_since: Instant,
        releases: Vec<(ReleaseKey, LedgerEntry)>,
    ) {
        if missing_since.elapsed() < LONG_VANISHING {
            return;
        }
        let text = public!(
            "not removed yet: {}, {} the last of them",
            HoldReason::Vanishing.text(),
            Name(&self.store.vanished().join(", "))
        );
        self.report_held(bundle, HoldReason::Vanishing, releases, text);
    }

    /// Reports that the releases of a bundle are not removed before it shows whether another one wants them.
    pub(super) fn report_claimed(&self, bundle: &str, releases: Vec<(ReleaseKey, LedgerEntry)>) {
        let claimant = releases
            .iter()
            .find_map(|(key, _)| match self.next_owner(bundle, key) {
                NextOwner::Unknown(claimant) => Some(public!(
                    "not removed: bundle {} may want release {}, which shows once the ${{ }} of its names are filled in",
                    Name(&claimant),
                    *key
                )),
                NextOwner::Missing(claimant) => Some(public!(
                    "not removed: bundle {} may want release {}, which it had before: it is missing, and not known to be deleted",
                    Name(&claimant),
                    *key
                )),
                NextOwner::Bundle(_) | NextOwner::Nobody => None,
            });
        let Some(text) = claimant else {
            return;
        };
        self.report_held(bundle, HoldReason::MayBeWanted, releases, text);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::scripted;

    /// Each request takes its time. Of three that went together one alone would be few enough to be removed meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_hold_counts_while_it_is_written_unless_its_bundle_comes_back() {
        let slow = Duration::from_secs(10);
        let clients = scripted::clients(move |_| async move {
            tokio::time::sleep(slow).await;
            let data = json!({"apps_a": r#"{"bundle":"a"}"#, "apps_b": r#"{"bundle":"b"}"#});
            (
                200,
                json!({"metadata": {"resourceVersion": "1"}, "data": data}),
            )
        });
        let agent = scripted::identities(&clients).agent();
        let ledger = Arc::new(Ledger::load(&agent, "system").await.unwrap());
        let held = Held::new(&ledger, Duration::ZERO);
        let coming_back = async {
            tokio::time::sleep(slow / 2).await;
            let waiting = ["a", "b"].map(|bundle| held.is_waiting(bundle));
            held.forget("a");
            waiting
        };
        let bundles = ["a", "b"].map(str::to_owned);
        let (marked, waiting) = tokio::join!(held.hold(bundles.into()), coming_back);
        marked.unwrap();
        assert_eq!((waiting, held.len()), ([true; 2], 0));
        let holds = ["a", "b"].map(|bundle| ledger.of_bundle(bundle)[0].1.hold);
        assert_eq!(holds, [None, Some(Hold::Held)]);
    }
}
