//! Disposes of a release that its bundle has no use for: the bundle that waits for it gets it, or it is removed, as far as it was the bundle's.

use std::time::Duration;

use release::Confirmation;
use tokio::time::Instant;

use super::error::{BlockedRemoval, RemovalError};
use super::uninstall::{Found, Removal, RetainReason};
use super::upstream_list::UpstreamList;
use super::verdict::Verdict;
use super::{Collector, MISSING_REPORTED, MISSING_RETRY, NAMESPACES_RETRY};
use crate::api::ANNOTATION_INSTALL_ONCE;
use crate::client::health::Side;
use crate::controllers::claims::{self, NextOwner};
use crate::controllers::queue::ReconcileKind;
use crate::error;
use crate::ledger::{Hold, LedgerEntry, ReleaseKey};
use crate::public;
use crate::public::{Name, PublicText};
use crate::report::events::Reason;

impl Collector {
    /// Removes the releases a bundle left behind when its namespace or release name changed. One that a bundle may want whose `${ }` are not
    /// filled in yet stays until the next call. One whose names were written as they are now stays for good, unless another bundle asks for it
    /// for a while: other facts filled them in, which may be missing or wrong by mistake. While upstream is not heard, or where the bundle
    /// wants another one than `current` by now, all of them stay. `is_new`: that the bundle has `current` is, so that releases that stay are
    /// reported. When to come back for that.
    ///
    /// # Errors
    /// A release could not be removed, or upstream refuses to say whether it may be.
    pub async fn remove_former(
        &self,
        bundle: &str,
        current: &ReleaseKey,
        is_new: bool,
    ) -> Result<Option<Duration>, RemovalError> {
        let mut releases = self.ledger.of_bundle(bundle);
        // A former release's pods may need the copies until it is gone.
        releases.sort_by_key(|(key, _)| key.is_claims());
        let is_current =
            |(key, entry): &&(ReleaseKey, LedgerEntry)| key == current && !entry.is_attempt;
        let Some((_, entry)) = releases.iter().find(is_current) else {
            // No current release.
            return Ok(None);
        };
        if entry.is_left_behind() {
            // An install-once bundle is not deployed anew: a later release may have its objects.
            let known = self.store.get(bundle);
            let once =
                known.is_some_and(|known| known.switch(ANNOTATION_INSTALL_ONCE) == Some("true"));
            let is_later = |key: &&ReleaseKey| *key != current && !key.is_claims() && once;
            for later in releases.iter().map(|(key, _)| key).filter(is_later) {
                self.report_kept(bundle, later, current);
            }
            return Ok(None);
        }
        let names = entry.names.clone();
        let is_former = |(key, _): &(ReleaseKey, LedgerEntry)| key != current;
        let (mut come_back, mut failed): (Option<Duration>, _) = (None, None);
        let mut asked: Option<(Instant, bool)> = None;
        for (key, entry) in releases.into_iter().filter(is_former) {
            if key.is_claims() && failed.is_some() {
                continue;
            }
            let is_renamed = entry.names.is_some() && entry.names == names;
            let next_owner = self.next_owner(bundle, &key);
            if !is_renamed && let NextOwner::Missing(missing) = &next_owner {
                let (missed, (soonest, latest)) = (self.missed_for(missing), MISSING_RETRY);
                if missed >= MISSING_REPORTED {
                    self.report_missing(bundle, &key, missing);
                }
                let pause = missed.clamp(soonest, latest);
                come_back = Some(come_back.map_or(pause, |sooner| sooner.min(pause)));
                continue;
            }
            let removal = match is_renamed {
                true => {
                    if is_new {
                        self.report_former(bundle, &key, current);
                    }
                    let left = self.grace_left(&entry);
                    match &next_owner {
                        NextOwner::Bundle(_) if left.is_zero() => Removal::Renamed(current),
                        NextOwner::Bundle(_) => {
                            come_back = Some(come_back.map_or(left, |sooner| sooner.min(left)));
                            continue;
                        }
                        NextOwner::Unknown(_) | NextOwner::Missing(_) | NextOwner::Nobody => {
                            continue;
                        }
                    }
                }
                false if matches!(next_owner, NextOwner::Unknown(_)) => continue,
                false => Removal::Superseded(current),
            };
            if let Some(blocked) = self.blocked(bundle, &key, &next_owner) {
                self.report_blocked(bundle, &key, &blocked);
                let sooner = come_back.unwrap_or(NAMESPACES_RETRY);
                come_back = Some(sooner.min(NAMESPACES_RETRY));
                continue;
            }
            let is_known = |(at, _): &(Instant, bool)| at.elapsed() < NAMESPACES_RETRY;
            let (at, is_confirmed) = match asked.filter(is_known) {
                Some(asked) => asked,
                None => match self.is_confirmed(bundle, current).await {
                    Ok(is_confirmed) => (Instant::now(), is_confirmed),
                    Err(problem) => {
                        problem.keep_first(&mut failed, &key);
                        break;
                    }
                },
            };
            asked = Some((at, is_confirmed));
            // The answer took a while, and so may the removal before this one.
            if !is_confirmed || !self.still_wants(bundle, current) {
                // The release may be wanted again by its bundle, or by one that is not reported yet.
                let sooner = come_back.unwrap_or(NAMESPACES_RETRY);
                come_back = Some(sooner.min(NAMESPACES_RETRY));
                continue;
            }
            match self.dispose(&key, &entry, removal).await {
                Err(RemovalError::Blocked(blocked)) => {
                    self.report_blocked(bundle, &key, &blocked);
                    let sooner = come_back.unwrap_or(NAMESPACES_RETRY);
                    come_back = Some(sooner.min(NAMESPACES_RETRY));
                }
                Err(RemovalError::Unconfirmed(key)) => {
                    let ReleaseKey { namespace, name } = &key;
                    logging::info!(
                        bundle,
                        namespace,
                        release = name,
                        "not removed: it may be wanted again"
                    );
                    let sooner = come_back.unwrap_or(NAMESPACES_RETRY);
                    come_back = Some(sooner.min(NAMESPACES_RETRY));
                }
                // The bundle's new spec is known: it is reconciled next.
                Err(RemovalError::Aborted(key)) => self.report_aborted(bundle, &key),
                // The others still go.
                Err(problem) => problem.keep_first(&mut failed, &key),
                Ok(()) => {}
            }
        }
        failed.map_or(Ok(come_back), Err)
    }

    /// The other releases that the removal of a former release still waits for, as it did before: upstream need not be asked for that with each try.
    fn blocked(&self, bundle: &str, key: &ReleaseKey, next: &NextOwner) -> Option<BlockedRemoval> {
        if key.is_claims() {
            return None;
        }
        // Asked, not tried: a deploy that began in that instant would be refused.
        if self.uninstaller.locks.is_locked_by_other(key, bundle) {
            return Some(BlockedRemoval::until_idle(key));
        }
        // A next owner gets it, whoever is in its namespaces.
        let namespaces = match next {
            NextOwner::Nobody => self.shared_namespaces.pending_namespaces(key, bundle),
            NextOwner::Bundle(_) | NextOwner::Unknown(_) | NextOwner::Missing(_) => Vec::new(),
        };
        (!namespaces.is_empty()).then(|| BlockedRemoval {
            release: key.clone(),
            namespaces,
            is_again: true,
        })
    }

    /// Whether `current` is what a bundle wants by now, as far as upstream is heard. The spec that gave it this release may be old: the deploy took its
    /// time, or began while the watch was broken.
    fn still_wants(&self, bundle: &str, current: &ReleaseKey) -> bool {
        let known = self.store.get(bundle);
        let desired = known.and_then(|known| self.store.desired(&known));
        self.follows_upstream() && desired.as_ref() == Some(current)
    }

    /// Whether `current` is what a bundle wants as upstream itself says, too. Not where upstream does not answer.
    ///
    /// # Errors
    /// Upstream refuses to say, or what it says cannot be written.
    async fn is_confirmed(&self, bundle: &str, current: &ReleaseKey) -> Result<bool, RemovalError> {
        if !self.still_wants(bundle, current) {
            return Ok(false);
        }
        let failed = match self.confirm(bundle, current).await {
            Err(failed) => failed,
            confirmed => return confirmed,
        };
        let upstreams = failed.of_upstream();
        if let Some(failed) = upstreams {
            self.health.failed(Side::Upstream, failed);
        }
        match upstreams.is_none_or(error::is_answered) {
            true => Err(failed),
            false => Ok(false),
        }
    }

    /// Whether a release may go still, once its hooks have run, which take their time: whether another bundle wants it by now, whether its own is still gone,
    /// or still wants the one that it has instead, of which upstream is asked again. Not where that is unknown; the obstacle is reported with
    /// the next try.
    async fn is_unwanted_still(
        &self,
        bundle: &str,
        key: &ReleaseKey,
        removal: Removal<'_>,
    ) -> bool {
        let is_confirmed = match removal.current() {
            Some(current) => {
                self.is_confirmed(bundle, current).await.unwrap_or(false)
                    && self.still_wants(bundle, current)
            }
            None => self.is_gone_still(bundle).await,
        };
        if !is_confirmed {
            return false;
        }
        // A bundle with unfilled `${ }` may want it.
        self.next_owner(bundle, key) == NextOwner::Nobody
    }

    /// Whether a bundle is to be removed still by what upstream lists, and upstream has none that the store does not know of.
    async fn is_gone_still(&self, bundle: &str) -> bool {
        let list = self.lister.list(Instant::now()).await;
        // Read after the list, which may have declared it lost.
        let releases = self.ledger.of_bundle(bundle);
        let may_go = |list: &UpstreamList| {
            self.judge(bundle, list, &releases) == Verdict::Remove
                || releases
                    .iter()
                    .any(|(_, entry)| entry.hold == Some(Hold::Released))
        };
        list.is_ok_and(|list| {
            !list.listed.contains(bundle) && may_go(&list) && !self.may_miss_claimants(&list)
        })
    }

    /// The watch may be dead without a word: asks upstream which release a bundle wants, and whether any other bundle is another one by now, which may
    /// want what this one leaves.
    async fn confirm(&self, bundle: &str, current: &ReleaseKey) -> Result<bool, RemovalError> {
        let list = self.lister.list(Instant::now()).await?;
        if self.may_miss_claimants(&list) {
            return Ok(false);
        }
        let desired = self.lister.desired(bundle).await?;
        Ok(desired.as_ref() == Some(current))
    }

    /// Disposes of what a bundle had, as far as it does not wait for others: whether that is all, or the bundle came back meanwhile, which keeps what
    /// its removal has not come to. Where it is gone again by then, or lost, the removal waits to be proven anew.
    ///
    /// # Errors
    /// A release could not be removed; the others are, unless they need it or nothing proves any more that they are to go.
    pub(super) async fn dispose_all(
        &self,
        mut releases: Vec<(ReleaseKey, LedgerEntry)>,
    ) -> Result<Verdict, RemovalError> {
        // Pods may need the copies until they are gone.
        releases.sort_by_key(|(key, _)| key.is_claims());
        let mut failed = None;
        loop {
            let before = releases.len();
            let mut waiting = Vec::new();
            for (key, entry) in releases {
                if self.store.is_listed(&entry.bundle) {
                    return Ok(Verdict::Alive);
                }
                if self.ledger.is_unproven(&key, &entry.bundle) {
                    return failed.map_or(Ok(Verdict::Wait(self.removal_grace)), Err);
                }
                if key.is_claims() && (failed.is_some() || !waiting.is_empty()) {
                    waiting.push((key, entry));
                    continue;
                }
                match self.dispose(&key, &entry, Removal::OfBundle).await {
                    Err(RemovalError::Blocked(blocked)) => {
                        self.report_blocked(&entry.bundle, &key, &blocked);
                        waiting.push((key, entry));
                    }
                    // Another bundle gets it with the next try, or may want it, which is reported then.
                    Err(RemovalError::Unconfirmed(_)) => waiting.push((key, entry)),
                    Err(RemovalError::Aborted(key)) => {
                        self.report_aborted(&entry.bundle, &key);
                        return match self.store.is_listed(&entry.bundle) {
                            true => Ok(Verdict::Alive),
                            false => failed.map_or(Ok(Verdict::Wait(self.removal_grace)), Err),
                        };
                    }
                    Err(problem) => problem.keep_first(&mut failed, &key),
                    Ok(()) => {}
                }
            }
            // Some of the removed ones may have been waited for.
            let verdict = match waiting.len() {
                0 => Verdict::Remove,
                left if left == before => Verdict::NamespacesDeferred,
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
                self.report_retained(&entry.bundle, &release, why);
            }
        } else {
            let _release_lock = self.uninstaller.lock(key, &entry.bundle)?;
            // Another bundle may have deployed it since.
            let known = self.ledger.get(key);
            if let Some(entry) = known.filter(|known| known.bundle == entry.bundle) {
                self.give_or_remove(key, &entry, removal).await?;
            }
        }
        for waiting in self.shared_namespaces.is_over(key, entry) {
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
        let found = self.uninstaller.find(key, entry).await?;
        // Asked again by what deletes.
        let may_stay = self.uninstaller.may_stay(key, entry);
        if may_stay() {
            return Err(RemovalError::Aborted(key.clone()));
        }
        let release = match found {
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
            NextOwner::Unknown(_) | NextOwner::Missing(_) | NextOwner::Nobody
                if removal.leaves() =>
            {
                return Ok(());
            }
            NextOwner::Unknown(_) | NextOwner::Missing(_) => {
                return Err(RemovalError::Unconfirmed(key.clone()));
            }
            NextOwner::Nobody => {
                let is_confirmed =
                    || Box::pin(self.is_unwanted_still(&entry.bundle, key, removal)) as _;
                let confirmation = Confirmation::new(&is_confirmed);
                let uninstaller = &self.uninstaller;
                let done = uninstaller.uninstall(key, entry, &release, removal, confirmation);
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
        if may_stay() {
            return Err(RemovalError::Aborted(key.clone()));
        }
        // The new owner's next deploy is an upgrade.
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
            NextOwner::Unknown(_) | NextOwner::Missing(_) | NextOwner::Nobody => None,
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

    /// Reports objects that a bundle's attempts brought into a release of another's, and that they stay.
    fn report_retained(&self, bundle: &str, release: &ReleaseKey, why: RetainReason) {
        let text = match why {
            RetainReason::UnknownRecords => public!(
                "what this bundle's attempts brought into release {} is left as it is: not all records of the release are those that were \
                 written",
                *release
            ),
            RetainReason::NoRecords => public!(
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
        let missing = || self.store.missing_owner(&self.ledger, owner, key);
        claims::next_known_owner(owner, key, &self.store.claimants(), missing)
    }

    pub(super) fn is_claimed(&self, owner: &str, key: &ReleaseKey) -> bool {
        let next_owner = self.next_owner(owner, key);
        matches!(next_owner, NextOwner::Unknown(_) | NextOwner::Missing(_))
    }

    /// The bundle that had a release before, for which it stays, as that is missing.
    pub(super) fn missing_owner(&self, owner: &str, key: &ReleaseKey) -> Option<String> {
        match self.next_owner(owner, key) {
            NextOwner::Missing(missing) => Some(missing),
            NextOwner::Bundle(_) | NextOwner::Unknown(_) | NextOwner::Nobody => None,
        }
    }

    /// How long a bundle has been missing, as far as that is known.
    pub(super) fn missed_for(&self, bundle: &str) -> Duration {
        match self.store.known_missing_since(bundle) {
            Some(since) => since.elapsed(),
            // It cannot be read, which may last.
            None if self.store.is_listed(bundle) => MISSING_REPORTED,
            // Upstream lists it, and the watch has yet to tell of it.
            None => NAMESPACES_RETRY,
        }
    }

    /// Reports a release that stays for a bundle that had it before and is missing.
    fn report_missing(&self, bundle: &str, former: &ReleaseKey, missing: &str) {
        let text = public!(
            "release {} is not removed: bundle {}, which had it before, is missing, and may want it when it is back",
            *former,
            Name(missing)
        );
        logging::warn!(bundle, "{}", text);
        self.events.emit(Reason::RemovalHeld, bundle, text);
    }

    /// Reports a release that stays.
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

    /// Reports a release that stays as it may have objects that another one had, which is not deployed anew.
    fn report_kept(&self, bundle: &str, later: &ReleaseKey, current: &ReleaseKey) {
        let text = public!(
            "release {} is not removed: it may have objects of release {}, which is this bundle's now, and as the bundle is installed once that is \
             not deployed anew. It goes with the bundle",
            *later,
            *current
        );
        logging::debug!(bundle, "{}", text);
        self.events.emit(Reason::RemovalHeld, bundle, text);
    }

    /// Reports a removal that had begun, hooks of it perhaps, and ends before its first object goes.
    fn report_aborted(&self, bundle: &str, key: &ReleaseKey) {
        if key.is_claims() {
            // Of what it made beside its releases nobody knows by that name.
            return;
        }
        let text = match self.store.is_listed(bundle) {
            true => public!(
                "release {} is not removed: its bundle may want it again",
                *key
            ),
            false => public!(
                "release {} is not removed yet: that its bundle is gone has to be proven again",
                *key
            ),
        };
        logging::info!(bundle, "{}", text);
        self.events.emit(Reason::RemovalReleased, bundle, text);
    }

    /// Reports that a removal waits for others that do not end soon: they may wait for something themselves.
    fn report_blocked(&self, bundle: &str, key: &ReleaseKey, blocked: &BlockedRemoval) {
        let is_again = match blocked.namespaces.is_empty() {
            true => self.shared_namespaces.waits(key, Vec::new()),
            false => blocked.is_again,
        };
        if !is_again {
            return;
        }
        let text = match blocked.namespaces.as_slice() {
            [] => public!(
                "another bundle or a helm client is at release {}: what this bundle has of it is removed once that is over",
                blocked.release
            ),
            namespaces => public!(
                "release {} is removed once the releases that have something in {} are, which are to go too",
                blocked.release,
                Name(&namespaces.join(","))
            ),
        };
        self.events.emit(Reason::RemovalHeld, bundle, text);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use std::sync::atomic::{AtomicU16, Ordering};

    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::super::fixtures::{Upstreams, collector_beside, own};
    use super::*;
    use crate::controllers::store::Store;
    use crate::ledger::{Ledger, Notes, OwnedRecords, Proof};

    /// The bundle as it wants its release in a namespace.
    fn web(namespace: &str) -> Value {
        json!({
            "metadata": {"name": "web", "generation": 1},
            "spec": {"options": {"defaultNamespace": namespace}},
        })
    }

    /// Another one, in a namespace of its own.
    fn other(metadata: &Value) -> Value {
        let mut other = web("elsewhere");
        other["metadata"] = metadata.clone();
        other
    }

    fn key(name: &str) -> ReleaseKey {
        ReleaseKey {
            namespace: "apps".to_owned(),
            name: name.to_owned(),
        }
    }

    /// The release that bundle "web" has now.
    fn current() -> ReleaseKey {
        ReleaseKey {
            namespace: "data".to_owned(),
            ..key("web")
        }
    }

    fn entry() -> LedgerEntry {
        LedgerEntry {
            bundle: "web".to_owned(),
            revisions: Some(Notes::default()),
            ..LedgerEntry::default()
        }
    }

    /// A bundle that had releases in namespace "apps" and is deployed in namespace "data".
    struct Moved {
        collector: Collector,
        ledger: Arc<Ledger>,
        store: Arc<Store>,
        upstreams: Upstreams,
        /// How upstream answers who asks for a bundle by its name.
        code: Arc<AtomicU16>,
        /// The BundleDeployments that upstream was asked for.
        requests: Arc<Mutex<Vec<String>>>,
    }

    impl Moved {
        async fn from(former: &[&str]) -> Self {
            let (store, upstreams) = (Arc::<Store>::default(), own());
            let (code, requests) = (Arc::new(AtomicU16::new(200)), Arc::default());
            let (answer, asked) = (Arc::clone(&code), Arc::<Mutex<Vec<_>>>::clone(&requests));
            let serve = move |path: &str| {
                if path.contains("/bundledeployments") {
                    asked.lock().push(path.to_owned());
                }
                match path.contains("/bundledeployments/") {
                    true => answer.load(Ordering::Relaxed),
                    false => 200,
                }
            };
            let entries: Vec<_> = former.iter().map(|name| (*name, entry())).collect();
            let (collector, ledger) = collector_beside(&upstreams, &store, &entries, serve).await;
            let proof = Proof::of_records(&OwnedRecords::Whole).unwrap();
            let owned = ledger.own(current(), entry(), &proof);
            owned.await.unwrap();
            collector.lister.compare().await.unwrap();
            requests.lock().clear();
            let moved = Self {
                collector,
                ledger,
                store,
                upstreams,
                code,
                requests,
            };
            moved.upstream_has(&web("data"));
            moved.deliver(&web("data"));
            moved
        }

        fn upstream_has(&self, bundle: &Value) {
            let mut upstreams = self.upstreams.lock();
            upstreams.retain(|one| one["metadata"]["name"] != bundle["metadata"]["name"]);
            upstreams.push(bundle.clone());
        }

        fn deliver(&self, bundle: &Value) {
            let bundle = serde_json::from_value(bundle.clone()).unwrap();
            self.store.applied(bundle);
        }

        /// When to come back, and which former releases are left.
        async fn remove(&self) -> Result<(Option<Duration>, Vec<String>), RemovalError> {
            // No list of before is as good as another one.
            tokio::time::advance(Duration::from_secs(2)).await;
            let current = current();
            let removed = self.collector.remove_former("web", &current, true).await;
            let left = self.ledger.of_bundle("web").into_iter();
            let left = left.filter(|(key, _)| *key != current);
            Ok((removed?, left.map(|(key, _)| key.name).collect()))
        }

        fn waiting_events(&self) -> usize {
            let entries = self.collector.events.entries();
            let waiting = entries.iter().find(|(name, _)| *name == "waiting_events");
            waiting.map_or(0, |(_, count)| *count)
        }

        async fn stays(&self) -> bool {
            let stays = (Some(NAMESPACES_RETRY), vec!["web".to_owned()]);
            self.remove().await.unwrap() == stays
        }
    }

    /// A bundle moved to another namespace. It may be back by the time that it is deployed there.
    #[tokio::test(start_paused = true)]
    async fn a_former_release_stays_until_upstream_confirms_that_its_bundle_moved() {
        let moved = Moved::from(&["web"]).await;
        moved.collector.health.trouble(Side::Upstream);
        assert!(moved.stays().await);
        moved.collector.health.contact(Side::Upstream);
        moved.deliver(&web("apps"));
        assert!(moved.stays().await);
        // The watch delivered the bundle before it broke off, and upstream answers all else.
        moved.deliver(&web("data"));
        moved.store.breaks_off();
        assert!(moved.stays().await);
        assert!(moved.requests.lock().is_empty());
        // The watch is dead, and has not told of a newer spec.
        moved.deliver(&web("data"));
        let mut newer = web("data");
        newer["metadata"]["generation"] = json!(2);
        moved.upstream_has(&newer);
        assert!(moved.stays().await);
        moved.deliver(&newer);
        assert_eq!(moved.remove().await.unwrap(), (None, Vec::new()));
    }

    /// Upstream was restored from a backup, and changed once more: its versions are what they were. The bundle's release may be named by an
    /// annotation, too.
    #[tokio::test(start_paused = true)]
    async fn a_former_release_stays_while_its_bundle_still_wants_it_upstream() {
        let moved = Moved::from(&["web"]).await;
        moved.upstream_has(&web("apps"));
        assert!(moved.stays().await);
        let mut named = web("data");
        named["metadata"]["annotations"] = json!({"fleet.cattle.io/release-name": "api"});
        moved.upstream_has(&named);
        assert!(moved.stays().await);
        moved.upstream_has(&web("data"));
        assert_eq!(moved.remove().await.unwrap(), (None, Vec::new()));
    }

    /// Another bundle may want that release by now: a dead watch does not tell of it.
    #[tokio::test(start_paused = true)]
    async fn a_former_release_stays_while_the_watch_lags_behind_on_another_bundle() {
        let is = [
            json!({"name": "other", "generation": 1}),
            json!({"name": "other", "generation": 2}),
            json!({"name": "other", "generation": 2, "annotations": {"a": "b"}}),
        ];
        let moved = Moved::from(&["web"]).await;
        for metadata in &is {
            moved.upstream_has(&other(metadata));
            assert!(moved.stays().await, "{metadata}");
            moved.deliver(&other(metadata));
        }
        assert_eq!(moved.remove().await.unwrap(), (None, Vec::new()));
    }

    /// The agent was killed once it had deployed the other one, and upstream took that back before it was told: what the other one got of this one's
    /// objects is its own until this one is deployed anew.
    #[tokio::test(start_paused = true)]
    async fn a_former_release_stays_while_the_desired_one_has_yet_to_be_deployed_again() {
        let moved = Moved::from(&["web"]).await;
        let proof = Proof::of_records(&OwnedRecords::Whole).unwrap();
        let own = async |entry| moved.ledger.own(current(), entry, &proof).await.unwrap();
        own(entry().left_behind()).await;
        assert_eq!(
            moved.remove().await.unwrap(),
            (None, vec!["web".to_owned()])
        );
        own(entry()).await;
        assert_eq!(moved.remove().await.unwrap(), (None, Vec::new()));
    }

    /// The later release is not deployed anew, so that this never ends, and nothing else says why.
    #[tokio::test(start_paused = true)]
    async fn an_install_once_bundle_keeps_its_later_release_and_an_event_reports_it() {
        for (is_once, events) in [(false, 0), (true, 1)] {
            let moved = Moved::from(&["web"]).await;
            let proof = Proof::of_records(&OwnedRecords::Whole).unwrap();
            let behind = moved.ledger.own(current(), entry().left_behind(), &proof);
            behind.await.unwrap();
            if is_once {
                let mut once = web("data");
                once["metadata"]["annotations"] = json!({ANNOTATION_INSTALL_ONCE: "true"});
                moved.deliver(&once);
            }
            for _ in 0..2 {
                let left = moved.remove().await.unwrap();
                assert_eq!(left, (None, vec!["web".to_owned()]));
            }
            assert_eq!(moved.waiting_events(), events);
        }
    }

    /// The right to read bundles may be gone for good.
    #[tokio::test(start_paused = true)]
    async fn a_removal_fails_with_an_error_where_upstream_forbids_reading_its_bundle() {
        let moved = Moved::from(&["web"]).await;
        moved.code.store(403, Ordering::Relaxed);
        let refused = moved.remove().await.unwrap_err();
        assert!(matches!(refused, RemovalError::Ask(_)), "{refused:?}");
        assert!(moved.ledger.get(&key("web")).is_some());
        assert!(!moved.collector.health.is_troubled(Side::Upstream));
        // An upstream that does not answer is reported otherwise.
        moved.code.store(500, Ordering::Relaxed);
        assert!(moved.stays().await);
        assert!(moved.collector.health.is_troubled(Side::Upstream));
    }

    /// The hooks took an hour, and much may have changed that no event has told.
    #[tokio::test(start_paused = true)]
    async fn upstream_is_asked_again_about_a_former_release_after_its_hooks_have_run() {
        let moved = Moved::from(&["web"]).await;
        let (former, current) = (key("web"), current());
        let removal = Removal::Superseded(&current);
        let goes = async || {
            tokio::time::advance(Duration::from_secs(2)).await;
            let collector = &moved.collector;
            collector.is_unwanted_still("web", &former, removal).await
        };
        assert!(goes().await);
        // The watch broke off; upstream has another spec, or refuses to say.
        moved.collector.health.trouble(Side::Upstream);
        assert!(!goes().await);
        moved.collector.health.contact(Side::Upstream);
        moved.upstream_has(&web("apps"));
        assert!(!goes().await);
        moved.upstream_has(&web("data"));
        moved.code.store(403, Ordering::Relaxed);
        assert!(!goes().await);
        moved.code.store(200, Ordering::Relaxed);
        assert!(goes().await);
        let goes_with = async |bundle: &str| {
            tokio::time::advance(Duration::from_secs(2)).await;
            let (collector, removal) = (&moved.collector, Removal::OfBundle);
            collector.is_unwanted_still(bundle, &former, removal).await
        };
        assert!(goes_with("gone").await);
        // The bundle is back, and no event told of it.
        assert!(!goes_with("web").await);
        // Another bundle wants it: upstream has it, and then it is told of.
        let mut waiting = web("apps");
        waiting["metadata"]["name"] = json!("other");
        waiting["spec"]["options"]["helm"] = json!({"releaseName": "web"});
        moved.upstream_has(&waiting);
        assert!(!goes().await);
        assert!(!goes_with("gone").await);
        moved.deliver(&waiting);
        assert!(!goes().await);
        assert!(!goes_with("gone").await);
        waiting["spec"]["options"]["helm"] = json!({"releaseName": "another"});
        moved.upstream_has(&waiting);
        moved.deliver(&waiting);
        assert!(goes_with("gone").await);
        // Whether the next one does is yet to be filled in.
        waiting["metadata"]["name"] = json!("unfilled");
        waiting["spec"]["options"]["helm"] = json!({"releaseName": "${ .ClusterName }"});
        moved.upstream_has(&waiting);
        moved.deliver(&waiting);
        assert!(!goes_with("gone").await);
    }

    /// Each try listed all bundles of the cluster, every 20 s for as long as the others took.
    #[tokio::test(start_paused = true)]
    async fn a_former_release_that_waits_for_others_lists_upstream_once_they_are_done() {
        let moved = Moved::from(&["web"]).await;
        let collector = &moved.collector;
        // A bundle that is gone, and has a release in the namespace that is to go.
        let in_team = ReleaseKey {
            namespace: "team".to_owned(),
            ..key("api")
        };
        let gone = LedgerEntry {
            bundle: "gone".to_owned(),
            ..entry()
        };
        moved.ledger.attempt(in_team.clone(), gone).await.unwrap();
        collector
            .shared_namespaces
            .waits(&key("web"), vec!["team".to_owned()]);
        // Each reconcile of the bundle, which has no use for it, says that it is there.
        collector.shared_namespaces.is_back("web");
        assert!(moved.stays().await && moved.stays().await);
        moved.ledger.forget(&in_team).await.unwrap();
        // Another bundle is at the release.
        let lock = collector.uninstaller.lock(&key("web"), "other").unwrap();
        assert!(moved.stays().await && moved.stays().await);
        assert!(moved.requests.lock().is_empty());
        drop(lock);
        assert_eq!(moved.remove().await.unwrap(), (None, Vec::new()));
        assert!(!moved.requests.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn upstream_is_listed_once_for_all_former_releases_of_a_bundle() {
        let moved = Moved::from(&["old", "older", "web"]).await;
        assert_eq!(moved.remove().await.unwrap(), (None, Vec::new()));
        let requests = moved.requests.lock().clone();
        let is_list = |path: &&String| path.ends_with("/bundledeployments");
        assert_eq!(requests.iter().filter(is_list).count(), 1, "{requests:?}");
        assert_eq!(requests.len(), 2, "{requests:?}");
    }
}
