//! What becomes of a release that its bundle has no use for: the bundle that waits for it gets it, or it is removed, as far as it was the bundle's.

use std::time::Duration;

use super::error::{Awaited, RemovalError};
use super::uninstall::{Found, Removal, WhyLeft};
use super::verdict::Verdict;
use super::{Collector, NEIGHBOURS_RETRY};
use crate::controllers::bundle_deployment::claims::{self, NextOwner};
use crate::controllers::queue::ReconcileKind;
use crate::ledger::{LedgerEntry, ReleaseKey};
use crate::public;
use crate::public::{Name, PublicText};
use crate::report::events::Reason;

impl Collector {
    /// Removes the releases a bundle left behind when its namespace or release name changed. One that a bundle may want whose `${ }` are not
    /// filled in yet stays until the next call. One whose names were written as they are now stays for good, unless another bundle asks for it
    /// for a while: other facts filled them in, which may be missing or wrong by mistake. While upstream is not heard, or where the bundle
    /// wants another one than `current` by now, all of them stay. `is_new`: that the bundle has `current` is, so that what stays is told.
    /// When to come back for that.
    ///
    /// # Errors
    /// A release could not be removed.
    pub async fn remove_former(
        &self,
        bundle: &str,
        current: &ReleaseKey,
        is_new: bool,
    ) -> Result<Option<Duration>, RemovalError> {
        let mut releases = self.ledger.of_bundle(bundle);
        // What a former release runs may need the copies until it is gone.
        releases.sort_by_key(|(key, _)| key.is_claims());
        let is_current =
            |(key, entry): &&(ReleaseKey, LedgerEntry)| key == current && !entry.is_attempt;
        let Some((_, entry)) = releases.iter().find(is_current) else {
            // It has no other one.
            return Ok(None);
        };
        let names = entry.names.clone();
        let is_former = |(key, _): &(ReleaseKey, LedgerEntry)| key != current;
        let (mut come_back, mut failed): (Option<Duration>, _) = (None, None);
        for (key, entry) in releases.into_iter().filter(is_former) {
            if key.is_claims() && failed.is_some() {
                continue;
            }
            let is_renamed = entry.names.is_some() && entry.names == names;
            let next_owner = self.next_owner(bundle, &key);
            let removal = match is_renamed {
                true => {
                    if is_new {
                        self.report_former(bundle, &key, current);
                    }
                    let left = self.grace_left(&entry);
                    match next_owner {
                        NextOwner::Bundle(_) if left.is_zero() => Removal::Renamed(current),
                        NextOwner::Bundle(_) => {
                            come_back = Some(come_back.map_or(left, |sooner| sooner.min(left)));
                            continue;
                        }
                        NextOwner::Unknown(_) | NextOwner::Nobody => continue,
                    }
                }
                false if matches!(next_owner, NextOwner::Unknown(_)) => continue,
                false => Removal::Superseded(current),
            };
            // Asked again after the answer, which took a while.
            let is_certain = self.still_wants(bundle, current)
                && self.lister.has_as_told(bundle).await
                && self.still_wants(bundle, current);
            if !is_certain {
                // It may be wanted again, or by a bundle that is yet to be told of.
                let sooner = come_back.unwrap_or(NEIGHBOURS_RETRY);
                come_back = Some(sooner.min(NEIGHBOURS_RETRY));
                continue;
            }
            match self.dispose(&key, &entry, removal).await {
                Err(RemovalError::Awaits(awaited)) => {
                    self.report_awaited(bundle, &key, &awaited);
                    let sooner = come_back.unwrap_or(NEIGHBOURS_RETRY);
                    come_back = Some(sooner.min(NEIGHBOURS_RETRY));
                }
                // It keeps none of the others.
                Err(problem) => problem.keep_first(&mut failed, &key),
                Ok(()) => {}
            }
        }
        failed.map_or(Ok(come_back), Err)
    }

    /// Whether `current` is what a bundle wants by now, as far as upstream is heard. The spec that gave it this release may be old: the deploy took its
    /// time, or began while the watch was broken.
    fn still_wants(&self, bundle: &str, current: &ReleaseKey) -> bool {
        let known = self.store.get(bundle);
        let desired = known.and_then(|known| self.store.desired(&known));
        self.follows_upstream() && desired.as_ref() == Some(current)
    }

    /// Disposes of what a bundle had, as far as it does not wait for others: whether that is all, or the bundle came back meanwhile, which keeps what
    /// its removal has not come to.
    ///
    /// # Errors
    /// A release could not be removed; all that does not need it is.
    pub(super) async fn dispose_all(
        &self,
        mut releases: Vec<(ReleaseKey, LedgerEntry)>,
    ) -> Result<Verdict, RemovalError> {
        // What runs may need the copies until it is gone.
        releases.sort_by_key(|(key, _)| key.is_claims());
        let mut failed = None;
        loop {
            let before = releases.len();
            let mut waiting = Vec::new();
            for (key, entry) in releases {
                if self.store.is_listed(&entry.bundle) {
                    return Ok(Verdict::Alive);
                }
                if key.is_claims() && (failed.is_some() || !waiting.is_empty()) {
                    waiting.push((key, entry));
                    continue;
                }
                match self.dispose(&key, &entry, Removal::OfBundle).await {
                    Err(RemovalError::Awaits(awaited)) => {
                        self.report_awaited(&entry.bundle, &key, &awaited);
                        waiting.push((key, entry));
                    }
                    Err(problem) => problem.keep_first(&mut failed, &key),
                    Ok(()) => {}
                }
            }
            // Of those that are gone some may have been waited for.
            let verdict = match waiting.len() {
                0 => Verdict::Remove,
                left if left == before => Verdict::Neighbours,
                _ => {
                    releases = waiting;
                    continue;
                }
            };
            return failed.map_or(Ok(verdict), Err);
        }
    }

    /// A bundle has no use for one of its releases any more: a bundle that waits for it gets it, or it is removed, as far as it is the bundle's.
    async fn dispose(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        removal: Removal<'_>,
    ) -> Result<(), RemovalError> {
        if key.is_claims() {
            let left = self.uninstaller.withdraw_claims(key, entry, removal);
            for (release, why) in left.await? {
                self.report_left(&entry.bundle, &release, why);
            }
        } else {
            let _release_lock = self.uninstaller.lock(key, &entry.bundle)?;
            // Another bundle may have deployed it since.
            let known = self.ledger.get(key);
            if let Some(entry) = known.filter(|known| known.bundle == entry.bundle) {
                self.give_or_remove(key, &entry, removal).await?;
            }
        }
        for waiting in self.neighbourhood.is_over(key) {
            self.queue.wake(&waiting, ReconcileKind::Full);
        }
        Ok(())
    }

    async fn give_or_remove(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        removal: Removal<'_>,
    ) -> Result<(), RemovalError> {
        let release = match self.uninstaller.find(key, entry).await? {
            Found::Owned(release) => release,
            Found::Gone => {
                self.uninstaller.forget(key).await?;
                if let NextOwner::Bundle(next_owner) = self.next_owner(&entry.bundle, key) {
                    self.ledger.postpones_no_more(&next_owner);
                    self.queue.wake(&next_owner, ReconcileKind::Full);
                }
                return Ok(());
            }
            Found::Foreign => {
                let text = public!(
                    "release {} is not this bundle's any more: left as it is",
                    *key
                );
                return self.give_up(key, entry, removal, text).await;
            }
            Found::Parts(attempts) => {
                let next_owner = self.next_owner(&entry.bundle, key);
                // As below.
                if removal.leaves() && !matches!(next_owner, NextOwner::Bundle(_)) {
                    return Ok(());
                }
                if let (NextOwner::Bundle(next_owner), false) = (next_owner, attempts.keeps) {
                    let uninstaller = &self.uninstaller;
                    let left =
                        uninstaller.leave_attempts(key, entry, &attempts, removal, &next_owner);
                    left.await?;
                    self.queue.wake(&next_owner, ReconcileKind::Full);
                    return Ok(());
                }
                let returned = self.uninstaller.return_release(key, &attempts);
                returned.await?;
                let text = public!(
                    "release {} was never this bundle's: left as it is, without the revisions that failed",
                    *key
                );
                return self.give_up(key, entry, removal, text).await;
            }
        };
        let next_owner = match self.next_owner(&entry.bundle, key) {
            NextOwner::Bundle(next_owner) => next_owner,
            // The bundle that waited for it does not any more.
            NextOwner::Unknown(_) | NextOwner::Nobody if removal.leaves() => return Ok(()),
            NextOwner::Unknown(_) | NextOwner::Nobody => {
                let done = self.uninstaller.uninstall(key, entry, &release, removal);
                return done.await;
            }
        };
        if release.keeps {
            let left = self
                .uninstaller
                .leave_objects(key, entry, &release, &next_owner);
            left.await?;
            self.queue.wake(&next_owner, ReconcileKind::Full);
            return Ok(());
        }
        logging::info!(
            bundle = next_owner,
            release = key.name,
            namespace = key.namespace,
            "takes over a release"
        );
        let copies = self.uninstaller.leave_copies(key, entry, &release, removal);
        copies.await?;
        // Its next deploy is an upgrade.
        let (from, is_attempt) = (&entry.bundle, release.is_attempt);
        let written = self
            .ledger
            .hand_over(key, from, &next_owner, is_attempt, &release.proof);
        written.await.map_err(RemovalError::Ledger)?;
        self.queue.wake(&next_owner, ReconcileKind::Full);
        Ok(())
    }

    async fn give_up(
        &self,
        key: &ReleaseKey,
        entry: &LedgerEntry,
        removal: Removal<'_>,
        text: PublicText,
    ) -> Result<(), RemovalError> {
        let next_owner = match self.next_owner(&entry.bundle, key) {
            NextOwner::Bundle(next_owner) => Some(next_owner),
            NextOwner::Unknown(_) | NextOwner::Nobody => None,
        };
        let left_to = next_owner.as_deref();
        self.uninstaller
            .give_up(key, entry, removal, left_to)
            .await?;
        logging::warn!(bundle = entry.bundle, "{}", text);
        self.events
            .emit(Reason::ReleaseNotProven, &entry.bundle, text);
        if let Some(waiting) = next_owner {
            self.queue.wake(&waiting, ReconcileKind::Full);
        }
        Ok(())
    }

    /// A bundle asks for a release that another one has. That one gives it up where it only has it since facts may be missing, and has
    /// another one meanwhile.
    pub fn is_desired(&self, key: &ReleaseKey, owner: &str) {
        let releases = self.ledger.of_bundle(owner);
        let is_left = |(one, entry): &(_, LedgerEntry)| one == key && entry.left_since.is_some();
        let is_had =
            |(_, entry): &(_, LedgerEntry)| !entry.is_attempt && entry.left_since.is_none();
        if releases.iter().any(is_left) && releases.iter().any(is_had) {
            self.queue.wake(owner, ReconcileKind::Full);
        }
    }

    /// What a bundle's `${ }` say is known: releases that nobody wants may have waited for that.
    pub fn is_filled(&self, bundle: &str, desired: &ReleaseKey) {
        if !self.store.filled(bundle, desired) {
            return;
        }
        let releases = self.ledger.all().into_iter();
        for (key, entry) in releases.filter(|(key, _)| !key.is_claims()) {
            let owner = self.store.get(&entry.bundle);
            let desired = owner.and_then(|owner| self.store.desired(&owner));
            if entry.bundle != bundle && desired.as_ref() != Some(&key) {
                self.queue.wake(&entry.bundle, ReconcileKind::Full);
            }
        }
    }

    /// Takes note of the release that a bundle wants by the facts of now, `names` being namespace and name as it writes them: since when they
    /// give it another one than it has.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn wants(
        &self,
        bundle: &str,
        desired: &ReleaseKey,
        names: Option<&str>,
    ) -> kube::Result<()> {
        let now = self.uninstaller.identities.agent().now().as_second();
        self.ledger.wants(bundle, desired, names, now).await
    }

    /// How long a release is yet to be left to its bundle, which facts gave another one, whoever waits for it: they may be what they were again.
    /// Nothing is where they gave it none.
    pub fn grace_left(&self, entry: &LedgerEntry) -> Duration {
        let now = self.uninstaller.identities.agent().now().as_second();
        let passed = entry
            .left_since
            .map_or(0, |since| now.saturating_sub(since));
        let passed = u64::try_from(passed).unwrap_or_default();
        self.rename_grace
            .saturating_sub(Duration::from_secs(passed))
    }

    /// Tells of what a bundle's attempts brought into a release of another's, and that it stays.
    fn report_left(&self, bundle: &str, release: &ReleaseKey, why: WhyLeft) {
        let text = match why {
            WhyLeft::UnknownRecords => public!(
                "what this bundle's attempts brought into release {} is left as it is: not all records of the release are those that were \
                 written",
                *release
            ),
            WhyLeft::NoRecords => public!(
                "the records of this bundle's attempts at release {} are gone: whatever is still there of what they brought is left as it is",
                *release
            ),
        };
        logging::warn!(bundle, "{}", text);
        self.events.emit(Reason::ReleaseNotProven, bundle, text);
    }

    pub(super) fn next_owner(&self, owner: &str, key: &ReleaseKey) -> NextOwner {
        if key.is_claims() {
            return NextOwner::Nobody;
        }
        claims::next_owner(owner, key, &self.store.claimants())
    }

    pub(super) fn is_claimed(&self, owner: &str, key: &ReleaseKey) -> bool {
        matches!(self.next_owner(owner, key), NextOwner::Unknown(_))
    }

    /// Tells of a release that stays.
    fn report_former(&self, bundle: &str, former: &ReleaseKey, current: &ReleaseKey) {
        let text = public!(
            "release {} is not removed: that the bundle's release is {} now comes of cluster facts alone. It goes with the \
             bundle, or when the bundle asks for another name",
            *former,
            *current
        );
        logging::warn!(bundle, "{}", text);
        self.events.emit(Reason::RemovalHeld, bundle, text);
    }

    /// Tells that a removal waits for others that do not end soon: they may wait for something themselves.
    fn report_awaited(&self, bundle: &str, key: &ReleaseKey, awaited: &Awaited) {
        let is_again = match awaited.namespaces.is_empty() {
            true => self.neighbourhood.waits(key, Vec::new()),
            false => awaited.is_again,
        };
        if !is_again {
            return;
        }
        let text = match awaited.namespaces.as_slice() {
            [] => public!(
                "another bundle or a helm client is at release {}: what this bundle has of it is removed once that is over",
                awaited.release
            ),
            namespaces => public!(
                "release {} is removed once the releases in namespace {} are, which are to go too",
                awaited.release,
                Name(&namespaces.join(", "))
            ),
        };
        self.events.emit(Reason::RemovalHeld, bundle, text);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::super::fixtures::collector;
    use super::*;
    use crate::api::BundleDeployment;
    use crate::client::health::Side;
    use crate::controllers::store::Store;
    use crate::ledger::{Notes, OwnedRecords, Proof};

    /// The bundle as it wants its release in a namespace.
    fn web(namespace: &str) -> BundleDeployment {
        serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {"options": {"defaultNamespace": namespace}},
        }))
        .unwrap()
    }

    fn key(namespace: &str) -> ReleaseKey {
        ReleaseKey {
            namespace: namespace.to_owned(),
            name: "web".to_owned(),
        }
    }

    /// A bundle moved to another namespace. It may be back by the time that it is deployed there.
    #[tokio::test(start_paused = true)]
    async fn a_former_release_stays_until_it_is_known_that_its_bundle_wants_the_other_one() {
        let store = Arc::<Store>::default();
        let entry = LedgerEntry {
            bundle: "web".to_owned(),
            revisions: Some(Notes::default()),
            ..LedgerEntry::default()
        };
        let (collector, ledger) = collector(&store, &[("web", entry.clone())], |_| 200).await;
        let (former, current) = (key("apps"), key("data"));
        let proof = Proof::of_records(&OwnedRecords::Whole).unwrap();
        let owned = ledger.own(current.clone(), entry, &proof);
        owned.await.unwrap();
        let remove = async || {
            let removed = collector.remove_former("web", &current, true).await;
            (removed.unwrap(), ledger.get(&former).is_none())
        };
        let stays = (Some(NEIGHBOURS_RETRY), false);
        store.applied(web("data"));
        collector.health.trouble(Side::Upstream);
        assert_eq!(remove().await, stays);
        collector.health.contact(Side::Upstream);
        store.applied(web("apps"));
        assert_eq!(remove().await, stays);
        // The watch is dead, and has not told of a newer spec.
        let mut told = web("data");
        told.metadata.generation = Some(2);
        store.applied(told);
        assert_eq!(remove().await, stays);
        store.applied(web("data"));
        assert_eq!(remove().await, (None, true));
    }
}
