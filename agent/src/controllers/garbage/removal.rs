//! Whether the releases of a bundle that is gone may be removed, by all that is known of it, and what comes of that.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::error::RemovalError;
use super::upstream_list::UpstreamList;
use super::verdict::{HoldReason, RemovalFacts, Verdict, judge};
use super::{Collector, MISSING_REPORTED, MISSING_RETRY};
use crate::client::health::Side;
use crate::ledger::{Hold, LedgerEntry, ReleaseKey, is_own};
use crate::report::events::Reason;

impl Collector {
    /// Removes the releases of a bundle that is gone, if that is proven and it has been missed for the grace time.
    ///
    /// # Errors
    /// Upstream could not be asked, the ledger cannot be written, or a release could not be removed.
    ///
    /// # Cancellation
    /// Safe: a removal that was cut off is continued by the next one.
    pub async fn remove(&self, bundle: &str) -> Result<Verdict, RemovalError> {
        // Where it was back, a removal that had begun is over, for the process after this one, too.
        self.settle(bundle).await?;
        if self.store.is_listed(bundle) {
            return Ok(Verdict::Alive);
        }
        if let Some(left) = self.removal_grace_left(bundle) {
            return Ok(Verdict::Wait(left));
        }
        // An older list proves nothing.
        let missing_since = self.store.missing_since(bundle);
        let known = self.ledger.of_bundle(bundle);
        if known.is_empty() {
            self.forget(bundle);
            return Ok(Verdict::Alive);
        }
        if self.store.is_listing() {
            // The list that is under way wakes it, and a list of names alone would say nothing of who wants the release.
            return Ok(self.wait_for_claimants(bundle, missing_since, known));
        }
        let is_followed = self.follows_upstream();
        if is_followed && let Some(left) = self.settles_in(bundle, &known) {
            self.report_vanishing(bundle, missing_since, known);
            return Ok(Verdict::Wait(left));
        }
        // A removal that was begun is proven: its failures cost upstream no list each time.
        let is_begun = known.iter().any(|(_, entry)| entry.is_removing);
        let is_compared = match is_begun && is_followed {
            true => self.lister.compare().await,
            false => Ok(false),
        };
        let list = match is_compared {
            Ok(true) if self.is_borne_out(bundle).await => Ok(self.delivered()),
            Ok(_) => self.lister.list(missing_since).await,
            Err(failed) => Err(failed),
        };
        if let Some(list) = self.lister.take_unnoted() {
            // This list proves only that many bundles are missing at once: some may be back before another can be noted.
            let releases = self.ledger.of_bundle(bundle);
            if self.judge(bundle, &list, &releases) == Verdict::Held(HoldReason::TooMany) {
                let together = self.gone_together(bundle, &list);
                self.store.forget_proofs(&together);
                self.held.is_to_hold(together);
            }
        }
        let list = list?;
        // Read after the list, which may have declared it lost.
        let releases = self.ledger.of_bundle(bundle);
        let mut verdict = self.judge(bundle, &list, &releases);
        let is_released = |(_, entry): &(_, LedgerEntry)| entry.hold == Some(Hold::Released);
        if matches!(verdict, Verdict::Held(_)) && releases.iter().any(is_released) {
            verdict = Verdict::Remove;
        }
        if self.store.is_listed(bundle) {
            verdict = Verdict::Alive;
        }
        // It may have been back in the meantime, and is missed anew then.
        let missed_anew = || {
            let is_there = self.store.is_listed(bundle) || list.listed.contains(bundle);
            let is_anew = match self.store.known_missing_since(bundle) {
                Some(since) => since != missing_since,
                // Another list had it, and this one was made after it had gone again.
                None => !is_there,
            };
            is_anew.then(|| self.removal_grace_left(bundle).unwrap_or_default())
        };
        if let Some(left) = missed_anew() {
            return Ok(Verdict::Wait(left));
        }
        if verdict == Verdict::Remove && self.may_miss_claimants(&list) {
            return Ok(self.wait_for_claimants(bundle, missing_since, releases));
        }
        if verdict == Verdict::Remove
            && releases.iter().any(|(key, _)| self.is_claimed(bundle, key))
        {
            verdict = Verdict::Claimed;
        }
        match verdict {
            Verdict::Alive => self.store.forget_deletion(bundle),
            Verdict::Wait(_) if list.own_is_listed => {
                self.report_vanishing(bundle, missing_since, releases);
            }
            Verdict::Wait(_) | Verdict::NamespacesDeferred => {}
            Verdict::Claimed => {
                self.note_proven(bundle, missing_since);
                let missing = releases
                    .iter()
                    .find_map(|(key, _)| self.missing_owner(bundle, key));
                let Some(missing) = missing else {
                    self.report_claimed(bundle, releases);
                    return Ok(verdict);
                };
                let missed = self.missed_for(&missing);
                if missed >= MISSING_REPORTED {
                    self.report_claimed(bundle, releases);
                }
                return Ok(Verdict::Wait(
                    missed.clamp(MISSING_RETRY.0, MISSING_RETRY.1),
                ));
            }
            Verdict::Held(reason) => self.hold(bundle, reason, &list, releases).await?,
            Verdict::Remove => {
                let missed = (bundle, missing_since);
                if let Some(left) = self.begin(missed, &releases, missed_anew).await? {
                    return Ok(Verdict::Wait(left));
                }
                if self.report.reason(bundle).is_some_and(HoldReason::passes) {
                    self.report.let_go(bundle);
                }
                let done = self.dispose_all(releases).await?;
                if done != Verdict::Remove {
                    return Ok(done);
                }
                if self.ledger.knows(bundle) {
                    // Another bundle took a release of it meanwhile: what this one made there goes next.
                    return Ok(Verdict::NamespacesDeferred);
                }
                self.forget(bundle);
                self.events
                    .emit(Reason::Removed, bundle, "the bundledeployment was deleted");
            }
        }
        Ok(verdict)
    }

    /// Notes that a removal is proven and begins: the proof does not survive a restart; that it was given does. How long the bundle is to be missed yet where
    /// it was back meanwhile.
    async fn begin(
        &self,
        (bundle, missing_since): (&str, Instant),
        releases: &[(ReleaseKey, LedgerEntry)],
        missed_anew: impl Fn() -> Option<Duration>,
    ) -> Result<Option<Duration>, RemovalError> {
        if !releases.iter().any(|(_, entry)| entry.is_removing) {
            self.shared_namespaces.removal_begins(releases);
        }
        let begun = self.ledger.begin_removal(bundle).await;
        // Also where the write failed, which may have been carried out.
        if let Some(left) = missed_anew() {
            let taken_back = self.ledger.take_removal_back(bundle).await;
            taken_back.map_err(RemovalError::Ledger)?;
            return Ok(Some(left));
        }
        begun.map_err(RemovalError::Ledger)?;
        self.note_proven(bundle, missing_since);
        Ok(None)
    }

    /// Writes what is pending of a bundle's releases: that a proof, or a permission, is over.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub async fn settle(&self, bundle: &str) -> Result<(), RemovalError> {
        let settled = self.ledger.settle_all(bundle).await;
        settled.map_err(RemovalError::Ledger)
    }

    /// What is left of the grace time of a bundle that is not there.
    fn removal_grace_left(&self, bundle: &str) -> Option<Duration> {
        let missed = self.store.missing_since(bundle).elapsed();
        let left = self.removal_grace.checked_sub(missed)?;
        (!left.is_zero()).then_some(left)
    }

    /// Whether the store has what upstream has, by an open watch.
    pub(super) fn follows_upstream(&self) -> bool {
        let is_unreliable =
            self.health.is_troubled(Side::Upstream) || self.health.is_silent(Side::Upstream);
        !is_unreliable
            && !self.store.is_broken_off()
            && !self.store.is_listing()
            && !self.store.names().is_empty()
    }

    /// The BundleDeployments that the watch of upstream has delivered.
    fn delivered(&self) -> Arc<UpstreamList> {
        let (bundles, listed) = (self.store.all(), self.store.names());
        let own_name = self.lister.known_own(&listed);
        let mut alive = bundles
            .iter()
            .filter(|bundle| bundle.metadata.deletion_timestamp.is_none());
        Arc::new(UpstreamList {
            has_live_bundles: alive.clone().next().is_some(),
            own_is_listed: alive.any(|bundle| is_own(bundle.name(), own_name)),
            listed,
            identities: Vec::new(),
        })
    }

    /// Whether the last list, too, lacks the bundle, and the watch has delivered what else it has. A watch that goes on from a version of before
    /// upstream was restored is told of nothing that came back with that, and is open.
    async fn is_borne_out(&self, bundle: &str) -> bool {
        let last = self.lister.last().await;
        last.is_some_and(|list| !list.listed.contains(bundle) && !self.may_miss_claimants(&list))
    }

    /// How long a removal waits, by the watch, until fewer bundles vanish. No list could say that it need not: what takes the others may
    /// take the agent's own after it, too.
    fn settles_in(&self, bundle: &str, releases: &[(ReleaseKey, LedgerEntry)]) -> Option<Duration> {
        let delivered = self.delivered();
        match self.judge(bundle, &delivered, releases) {
            Verdict::Wait(left) if delivered.own_is_listed => Some(left),
            _ => None,
        }
    }

    /// Whether upstream has bundles that the store has not heard of yet, or not again, or not as they are: one of them may want a release that others
    /// give up.
    pub(super) fn may_miss_claimants(&self, list: &UpstreamList) -> bool {
        let mut identities = list.identities.iter();
        self.store.is_listing()
            || !list.listed.is_subset(&self.store.names())
            || !identities.all(|(name, identity)| self.store.is_delivered(name, identity))
    }

    pub(super) fn judge(
        &self,
        bundle: &str,
        list: &UpstreamList,
        releases: &[(ReleaseKey, LedgerEntry)],
    ) -> Verdict {
        judge(bundle, self.facts(bundle, list, releases))
    }

    fn facts<'l>(
        &self,
        bundle: &str,
        list: &'l UpstreamList,
        releases: &[(ReleaseKey, LedgerEntry)],
    ) -> RemovalFacts<'l> {
        // A held release counts for itself and for releases removed along with it, not against later ones.
        let is_held = releases.iter().any(|(_, entry)| entry.hold.is_some());
        let counts_held = is_held || self.held.is_in_wave();
        let is_counted = |entry: &LedgerEntry| counts_held || entry.hold.is_none();
        let is_orphan =
            |entry: &LedgerEntry| is_counted(entry) && !list.listed.contains(&entry.bundle);
        RemovalFacts {
            listed: &list.listed,
            own_is_listed: list.own_is_listed,
            settles_in: self.store.settles_in(self.removal_settle, &list.listed),
            has_live_bundles: list.has_live_bundles,
            had_own: self.ledger.had_own(),
            seen_deleted: self.store.deleted_since(bundle),
            is_begun: releases.iter().any(|(_, entry)| entry.is_removing),
            lost: releases.iter().find_map(|(_, entry)| entry.lost),
            was_held: is_held || self.held.is_waiting(bundle),
            orphans: self.ledger.count(is_orphan),
            releases: self.ledger.count(is_counted),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use rstest::rstest;

    use super::super::fixtures::{bundle, collector, collector_beside, own};
    use super::*;
    use crate::controllers::store::Store;
    use crate::ledger::Ledger;

    /// Removes bundle "web", as [`collector`] has it.
    async fn remove(
        store: &Arc<Store>,
        entries: &[(&str, LedgerEntry)],
        code: impl Fn(&str) -> u16 + Clone + Send + Sync + 'static,
    ) -> (Verdict, Arc<Ledger>) {
        let (collector, ledger) = collector(store, entries, code).await;
        let verdict = collector.remove("web").await.unwrap();
        (verdict, ledger)
    }

    /// As the watch tells of a bundle that comes back and goes again.
    fn is_back_and_gone(store: &Store, ledger: &Ledger, name: &str) {
        ledger.came_back(name);
        store.applied(bundle(name));
        store.deleted(name);
    }

    /// Removes bundle "web", which has two releases, and comes back while the records of the second one are read. Whether it is gone again then, and how
    /// these are answered, is given. What came of that, and the releases that are left.
    async fn removed_while_back(
        goes_again: bool,
        code: u16,
    ) -> (Result<Verdict, RemovalError>, Vec<String>) {
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let entries = ["one", "two"].map(|name| (name, entry.clone()));
        let (store, known) = (Arc::<Store>::default(), Arc::new(OnceLock::new()));
        let (seen, told) = (Arc::clone(&store), Arc::clone(&known));
        let read = Arc::new(AtomicUsize::new(0));
        let answer = move |path: &str| {
            let ledger: Option<&Arc<Ledger>> = told.get();
            let Some(ledger) = ledger.filter(|_| path.ends_with("/secrets")) else {
                return 200;
            };
            if read.fetch_add(1, Ordering::Relaxed) == 0 {
                return code;
            }
            is_back_and_gone(&seen, ledger, "web");
            if !goes_again {
                seen.applied(bundle("web"));
            }
            200
        };
        let (mut collector, ledger) = collector(&store, &entries, answer).await;
        assert!(known.set(Arc::clone(&ledger)).is_ok());
        store.deleted("web");
        tokio::time::advance(Duration::from_secs(4)).await;
        collector.removal_grace = Duration::from_secs(3);
        let removed = collector.remove("web").await;
        let left = ledger.of_bundle("web").into_iter();
        (removed, left.map(|(key, _)| key.name).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn a_bundle_that_comes_back_keeps_the_releases_not_removed_yet() {
        let (removed, left) = removed_while_back(false, 200).await;
        assert_eq!(removed.unwrap(), Verdict::Alive);
        assert_eq!(left, ["two"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bundle_that_was_back_keeps_the_releases_not_removed_yet() {
        let (removed, left) = removed_while_back(true, 200).await;
        assert_eq!(removed.unwrap(), Verdict::Wait(Duration::from_secs(3)));
        assert_eq!(left, ["two"]);
        // What failed before is told.
        let (removed, left) = removed_while_back(true, 403).await;
        assert!(removed.is_err(), "{removed:?}");
        assert_eq!(left, ["one", "two"]);
    }

    /// It is gone again before anybody has looked at it, or anything was written.
    #[tokio::test(start_paused = true)]
    async fn a_removal_that_has_begun_is_proven_anew_once_its_bundle_was_back() {
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            is_removing: true,
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let (store, lists) = (Arc::<Store>::default(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&lists);
        let code = move |path: &str| {
            let is_list = path.ends_with("/bundledeployments");
            counted.fetch_add(usize::from(is_list), Ordering::Relaxed);
            200
        };
        let (mut collector, ledger) = collector(&store, &[("one", entry)], code).await;
        collector.removal_grace = Duration::from_secs(3);
        collector.lister.compare().await.unwrap();
        store.deleted("web");
        tokio::time::advance(Duration::from_secs(4)).await;
        is_back_and_gone(&store, &ledger, "web");
        assert_eq!(ledger.entries()[1], ("unwritten_releases", 1));
        let verdict = collector.remove("web").await.unwrap();
        assert_eq!(verdict, Verdict::Wait(Duration::from_secs(3)));
        // The next process knows it, too.
        assert_eq!(ledger.entries()[1], ("unwritten_releases", 0));
        assert!(!ledger.of_bundle("web")[0].1.is_removing);
        tokio::time::advance(Duration::from_secs(4)).await;
        lists.store(0, Ordering::Relaxed);
        assert_eq!(collector.remove("web").await.unwrap(), Verdict::Remove);
        assert_eq!(lists.load(Ordering::Relaxed), 1);
    }

    /// Another bundle takes one of its releases while the first one is removed: what it made there is not forgotten.
    #[tokio::test(start_paused = true)]
    async fn a_removal_is_not_over_while_the_ledger_knows_the_bundle() {
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let (store, known) = (Arc::<Store>::default(), Arc::new(OnceLock::new()));
        let (seen, late) = (Arc::clone(&known), entry.clone());
        let code = move |path: &str| {
            let known: Option<&Arc<Ledger>> = seen.get();
            if let Some(ledger) = known.filter(|_| path.ends_with("/secrets")) {
                let (ledger, late) = (Arc::clone(ledger), late.clone());
                tokio::spawn(async move { ledger.note_claims("apps", &late).await });
            }
            200
        };
        let (collector, ledger) = collector(&store, &[("one", entry)], code).await;
        assert!(known.set(Arc::clone(&ledger)).is_ok());
        let verdict = collector.remove("web").await.unwrap();
        assert_eq!(verdict, Verdict::NamespacesDeferred);
        assert!(ledger.knows("web"));
    }

    /// Two bundles have exchanged their releases, and are deleted together: neither removal waits for ever for the other one's, also where both were held back
    /// before that was proven.
    #[rstest]
    #[tokio::test(start_paused = true)]
    async fn bundles_that_took_each_others_releases_are_both_removed(
        #[values(None, Some(Hold::Held))] hold: Option<Hold>,
    ) {
        let entry = |bundle: &str, from: &str| LedgerEntry {
            bundle: bundle.to_owned(),
            hold,
            revisions: Some(crate::ledger::Notes::default()),
            taken_from: [from.to_owned()].into(),
            ..LedgerEntry::default()
        };
        let entries = [("one", entry("web", "api")), ("two", entry("api", "web"))];
        let store = Arc::<Store>::default();
        let (collector, ledger) = collector(&store, &entries, |_| 200).await;
        for bundle in ["web", "api"] {
            ledger
                .note_claims("apps", &entry(bundle, ""))
                .await
                .unwrap();
            store.deleted(bundle);
        }
        let removed = async |bundle| collector.remove(bundle).await.unwrap();
        // It is not told from one that is lost yet.
        assert_eq!(removed("web").await, Verdict::Wait(MISSING_RETRY.0));
        assert!(ledger.knows("web"));
        assert_eq!(removed("api").await, Verdict::Remove);
        assert_eq!(removed("web").await, Verdict::Remove);
        assert!(!ledger.knows("web") && !ledger.knows("api"));
    }

    /// The bundle that had the release before is lost: nobody knows whether it wants that when it is back.
    #[tokio::test(start_paused = true)]
    async fn what_was_taken_from_a_bundle_that_is_held_back_stays() {
        let taken = LedgerEntry {
            bundle: "web".to_owned(),
            revisions: Some(crate::ledger::Notes::default()),
            taken_from: ["api".to_owned()].into(),
            ..LedgerEntry::default()
        };
        let store = Arc::<Store>::default();
        let (collector, ledger) = collector(&store, &[("one", taken)], |_| 200).await;
        let api = LedgerEntry {
            bundle: "api".to_owned(),
            hold: Some(Hold::Held),
            ..LedgerEntry::default()
        };
        ledger.note_claims("apps", &api).await.unwrap();
        store.deleted("api");
        store.deleted("web");
        for pause in [2, 60, 120, 240, 300] {
            let verdict = collector.remove("web").await.unwrap();
            assert_eq!(verdict, Verdict::Wait(Duration::from_secs(pause)));
            let is_reported = collector.report.reason("web").is_some();
            assert_eq!(is_reported, pause >= 60);
            tokio::time::advance(Duration::from_secs(pause.max(60))).await;
        }
        // It is back, and wants another one.
        ledger.seen("api", false).await.unwrap();
        store.applied(bundle("api"));
        assert_eq!(collector.remove("web").await.unwrap(), Verdict::Remove);
        assert!(!ledger.knows("web"));
    }

    /// Its bundle comes back while upstream is listed, or while the ledger is written, which may fail, and is deleted anew: as the watch tells, or between
    /// a list for another bundle and the one for this.
    #[tokio::test(start_paused = true)]
    async fn a_bundle_that_was_back_during_the_proof_is_missed_for_its_grace_anew() {
        let written = "/configmaps/fleet-agent-ledger";
        let list = "/bundledeployments";
        for (during, answer, is_told) in [
            (list, 200, true),
            (list, 200, false),
            (written, 200, true),
            (written, 500, true),
        ] {
            let store = Arc::<Store>::default();
            let entry = LedgerEntry {
                bundle: "web".to_owned(),
                revisions: Some(crate::ledger::Notes::default()),
                ..LedgerEntry::default()
            };
            let (seen, is_checked) = (Arc::clone(&store), Arc::new(AtomicBool::new(false)));
            let is_proven = Arc::clone(&is_checked);
            let code = move |path: &str| {
                if path.ends_with(during) && is_proven.swap(false, Ordering::Relaxed) {
                    match is_told {
                        true => {
                            seen.applied(bundle("web"));
                            seen.deleted("web");
                        }
                        false => {
                            seen.still_there(&["web".to_owned()].into(), Instant::now());
                        }
                    }
                    return answer;
                }
                200
            };
            let (mut collector, ledger) = collector(&store, &[("one", entry)], code).await;
            // What a first list has to write is none of it.
            collector.lister.compare().await.unwrap();
            collector.removal_grace = Duration::from_secs(3);
            store.deleted("web");
            tokio::time::advance(Duration::from_secs(4)).await;
            is_checked.store(true, Ordering::Relaxed);
            let verdict = collector.remove("web").await.unwrap();
            assert_eq!(verdict, Verdict::Wait(Duration::from_secs(3)), "{during}");
            let releases = ledger.of_bundle("web");
            assert!(releases.iter().all(|(_, entry)| !entry.is_removing));
            assert_eq!(releases.len(), 1, "{during}");
            // And however long ago that is once it is known.
            is_checked.store(true, Ordering::Relaxed);
            tokio::time::advance(Duration::from_secs(3)).await;
            collector.removal_grace = Duration::ZERO;
            let verdict = collector.remove("web").await.unwrap();
            assert_eq!(verdict, Verdict::Wait(Duration::ZERO), "{during}");
            assert_eq!(collector.remove("web").await.unwrap(), Verdict::Remove);
        }
    }

    /// The bundle that waits for the release may be one that upstream lists and the watch has yet to deliver.
    #[tokio::test(start_paused = true)]
    async fn a_removal_waits_until_the_watch_has_reported_all_listed_bundles() {
        let store = Arc::<Store>::default();
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let (collector, ledger) = collector(&store, &[("one", entry)], |_| 200).await;
        let removed = async || collector.remove("web").await.unwrap();
        store.deleted("fleet-agent-edge");
        assert!(matches!(removed().await, Verdict::Wait(_)));
        store.relist();
        store.applied(bundle("fleet-agent-edge"));
        assert!(matches!(removed().await, Verdict::Wait(_)));
        assert!(ledger.knows("web"));
        store.relisted();
        assert_eq!(removed().await, Verdict::Remove);
    }

    /// The watch lists again and again, and lists of names alone go well; or one of these has a bundle that the watch never tells of.
    #[tokio::test(start_paused = true)]
    async fn a_removal_that_waits_for_the_watch_lists_upstream_with_back_off_and_is_reported() {
        for is_listing in [true, false] {
            let store = Arc::<Store>::default();
            let entry = LedgerEntry {
                bundle: "web".to_owned(),
                ..LedgerEntry::default()
            };
            let lists = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&lists);
            let code = move |path: &str| {
                let is_list = path.ends_with("/bundledeployments");
                counted.fetch_add(usize::from(is_list), Ordering::Relaxed);
                200
            };
            let (collector, _) = collector(&store, &[("one", entry)], code).await;
            collector.lister.compare().await.unwrap();
            match is_listing {
                true => store.relist(),
                false => store.deleted("fleet-agent-edge"),
            }
            lists.store(0, Ordering::Relaxed);
            let begun = Instant::now();
            let (mut checks, mut reported_after) = (0, None);
            while begun.elapsed() < Duration::from_secs(600) {
                let verdict = collector.remove("web").await.unwrap();
                let Verdict::Wait(pause) = verdict else {
                    panic!("{verdict:?}");
                };
                if collector.report.reason("web") == Some(HoldReason::Unreported) {
                    reported_after.get_or_insert(begun.elapsed());
                }
                checks += 1;
                tokio::time::advance(pause.max(Duration::from_secs(3))).await;
            }
            assert!(checks < 25, "{checks}");
            let lists = lists.load(Ordering::Relaxed);
            assert!(lists <= if is_listing { 0 } else { checks }, "{lists}");
            let reported_after = reported_after.unwrap();
            assert!(
                (180..=300).contains(&reported_after.as_secs()),
                "{reported_after:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_that_cannot_be_removed_does_not_block_the_others() {
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let entries = ["one", "two"].map(|name| (name, entry.clone()));
        let (store, asked) = (Arc::<Store>::default(), Arc::new(AtomicBool::new(false)));
        // The records of the first one alone.
        let code = move |path: &str| match path.ends_with("/secrets") {
            true if !asked.swap(true, Ordering::Relaxed) => 403,
            _ => 200,
        };
        let (collector, ledger) = collector(&store, &entries, code).await;
        let removed = collector.remove("web").await;
        assert!(removed.is_err(), "{removed:?}");
        let left = ledger.of_bundle("web").into_iter();
        let left: Vec<_> = left.map(|(key, _)| key.name).collect();
        assert_eq!(left, ["one"]);
    }

    /// Of a hundred clusters with such a removal each would list all its bundles every minute.
    #[tokio::test(start_paused = true)]
    async fn a_removal_that_was_begun_and_fails_lists_upstream_no_more() {
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            is_removing: true,
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let (store, lists) = (Arc::<Store>::default(), Arc::new(AtomicUsize::new(0)));
        store.applied(bundle("other"));
        let counted = Arc::clone(&lists);
        let code = move |path: &str| {
            let is_list = path.ends_with("/bundledeployments");
            counted.fetch_add(usize::from(is_list), Ordering::Relaxed);
            match path.ends_with("/secrets") {
                true => 403,
                false => 200,
            }
        };
        let (collector, _) = collector(&store, &[("one", entry)], code).await;
        collector.lister.compare().await.unwrap();
        lists.store(0, Ordering::Relaxed);
        for _ in 0..5 {
            let removed = collector.remove("web").await;
            assert!(removed.is_err(), "{removed:?}");
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        assert_eq!(lists.load(Ordering::Relaxed), 0);
        // Where the watch may be broken, upstream is asked.
        collector.health.trouble(Side::Upstream);
        assert!(collector.remove("web").await.is_err());
        assert_eq!(lists.load(Ordering::Relaxed), 1);
        // The bundle is back.
        collector.health.contact(Side::Upstream);
        store.applied(bundle("web"));
        let verdict = collector.remove("web").await;
        assert_eq!(verdict.unwrap(), Verdict::Alive);
    }

    /// Upstream was restored, and the watch goes on from a version of before that: it is told of other bundles, and not of the one that came back.
    #[tokio::test(start_paused = true)]
    async fn a_removal_that_was_begun_ends_where_upstream_lists_its_bundle_again() {
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            is_removing: true,
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let (store, upstreams) = (Arc::<Store>::default(), own());
        let (collector, ledger) =
            collector_beside(&upstreams, &store, &[("one", entry)], |_| 200).await;
        collector.lister.compare().await.unwrap();
        store.deleted("web");
        tokio::time::advance(Duration::from_secs(60)).await;
        upstreams
            .lock()
            .push(serde_json::json!({"metadata": {"name": "web"}}));
        collector.lister.doubt();
        store.breaks_off();
        store.applied(bundle("fleet-agent-edge"));
        // The comparison that finds it, and one after which nothing is in doubt.
        for _ in 0..2 {
            let verdict = collector.remove("web").await.unwrap();
            assert_eq!(verdict, Verdict::Alive);
            // Whether or not the watch tells of it: it may go again unseen.
            assert!(!ledger.of_bundle("web")[0].1.is_removing);
            tokio::time::advance(Duration::from_secs(3)).await;
        }
    }

    /// Three bundles are gone at once, and more would go before it is known what that means.
    #[tokio::test(start_paused = true)]
    async fn removals_that_wait_until_fewer_bundles_vanish_list_upstream_once() {
        let names = ["web", "api", "db"];
        let entries = names.map(|name| {
            let entry = LedgerEntry {
                bundle: name.to_owned(),
                revisions: Some(crate::ledger::Notes::default()),
                ..LedgerEntry::default()
            };
            (name, entry)
        });
        let (store, lists) = (Arc::<Store>::default(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&lists);
        let code = move |path: &str| {
            let is_list = path.ends_with("/bundledeployments");
            counted.fetch_add(usize::from(is_list), Ordering::Relaxed);
            200
        };
        let (collector, _) = collector(&store, &entries, code).await;
        collector.lister.compare().await.unwrap();
        lists.store(0, Ordering::Relaxed);
        for name in names {
            store.deleted(name);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let removed = async |name| collector.remove(name).await.unwrap();
        for _ in 0..4 {
            for name in names {
                assert!(matches!(removed(name).await, Verdict::Wait(_)), "{name}");
            }
            tokio::time::advance(Duration::from_secs(6)).await;
        }
        assert_eq!(lists.load(Ordering::Relaxed), 0);
        tokio::time::advance(Duration::from_secs(6)).await;
        for name in names {
            assert_eq!(removed(name).await, Verdict::Remove, "{name}");
        }
        assert_eq!(lists.load(Ordering::Relaxed), 1);
    }

    /// Three bundles are deleted and made anew again and again, and what somebody deletes meanwhile is not told from what they vanish with.
    #[tokio::test(start_paused = true)]
    async fn a_removal_that_waits_while_bundles_keep_vanishing_is_reported() {
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let store = Arc::<Store>::default();
        let (collector, ledger) = collector(&store, &[("one", entry)], |_| 200).await;
        store.deleted("web");
        let (missing_since, mut reported_after) = (Instant::now(), None);
        while missing_since.elapsed() < Duration::from_secs(600) {
            for name in ["a", "b", "c"] {
                store.applied(bundle(name));
                tokio::time::advance(Duration::from_secs(3)).await;
                store.deleted(name);
            }
            // As far as it goes by lists, too.
            match reported_after {
                Some(_) => collector.health.trouble(Side::Upstream),
                None => collector.health.contact(Side::Upstream),
            }
            let verdict = collector.remove("web").await.unwrap();
            assert!(matches!(verdict, Verdict::Wait(_)), "{verdict:?}");
            if collector.report.reason("web") == Some(HoldReason::Vanishing) {
                reported_after.get_or_insert(missing_since.elapsed());
            }
        }
        let reported_after = reported_after.unwrap();
        assert!(
            (60..70).contains(&reported_after.as_secs()),
            "{reported_after:?}"
        );
        assert_eq!(store.vanished(), ["a", "b", "c"]);
        // Once they rest it goes.
        tokio::time::advance(Duration::from_secs(30)).await;
        let verdict = collector.remove("web").await;
        assert_eq!(verdict.unwrap(), Verdict::Remove);
        assert!(!ledger.knows("web") && collector.report.reason("web").is_none());
    }

    /// Another bundle left its attempts at a helm release to this one, and its account is gone by now.
    #[tokio::test(start_paused = true)]
    async fn records_another_bundle_left_do_not_block_a_removal() {
        let attempt = LedgerEntry {
            bundle: "gone".to_owned(),
            account: "gone".to_owned(),
            is_attempt: true,
            revisions: Some(crate::ledger::Notes::default()),
            ..LedgerEntry::default()
        };
        let left = attempt.noting(2, "two".to_owned()).taken_by("web");
        assert!(left.is_left());
        let tried = left.clone().noting(3, "three".to_owned());
        let store = Arc::<Store>::default();
        for (entry, refused) in [
            // The bundle wrote nothing itself.
            (left, "/secrets"),
            (tried, "/secrets/sh.helm.release.v1.one.v2"),
        ] {
            let entries = [("one", entry)];
            let removed = remove(&store, &entries, move |path| {
                match path.ends_with(refused) {
                    true => 403,
                    false => 200,
                }
            });
            let (verdict, ledger) = removed.await;
            assert_eq!(verdict, Verdict::Remove, "{refused}");
            assert!(ledger.of_bundle("web").is_empty(), "{refused}");
        }
    }
}
