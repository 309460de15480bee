//! The ledger: which bundle, account and namespace each release belongs to, our own record of identity.
//!
//! A release record lies where a tenant may write, so it proves nothing. The ledger is one
//! ConfigMap in the system namespace, written at each deploy that changes it and believed when a
//! release is removed. What it does not know is never removed. It also remembers which upstream
//! its bundles came from, so that another upstream, or an older state of the same one, proves
//! nothing about them.

mod containers;
mod continuity;
mod entry;
mod key;
mod losses;
mod notes;
mod permission;
mod postponed;
mod proof;
pub mod records;
mod state;
mod stored;
mod unconfirmed_writes;
mod upstream;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt as _};
use tokio::sync::{Mutex, watch as tokio_watch};

use crate::client::identity::AgentClient;
use crate::client::listed::Metadata;
use crate::public::PublicText;
use crate::report::metrics::Entries;
use state::LedgerState;
use stored::{Written, entries};
use upstream::Asked;

pub use containers::{Containers, PlannedContainers};
pub use continuity::is_own;
pub use entry::{Claim, DeploymentDigest, Hold, LedgerEntry};
pub use key::ReleaseKey;
pub use losses::Losses;
pub use notes::Notes;
pub use postponed::{Pauses, Postponed, Tried, Wait};
pub use proof::{OwnedRecords, Proof, named_bundle};
pub use upstream::{
    ContinuityBreak, Heartbeat, Listed, Remembered, Renewal, UpstreamState, heartbeat_manager,
};

/// Name of the ConfigMap.
pub const LEDGER_NAME: &str = "fleet-agent-ledger";

/// Where the ledger keeps its [`UpstreamState`], as JSON.
const UPSTREAM_ANNOTATION: &str = "fleet.cattle.io/upstream";

/// Annotation with the attempts that are [`Postponed`], by bundle, as JSON.
const POSTPONED_ANNOTATION: &str = "fleet.cattle.io/undone";

/// The ledger, read once and written through.
///
/// # Guarantees
/// Reads never ask the API server: they answer with what is written and what is about to be. A write that returned `Ok` is in the
/// ConfigMap. One that failed is remembered and goes out with the next; so does what was asked for while another write was on its
/// way. An entry that the ConfigMap holds and nobody can read is left where it is. Nothing is written over what somebody else wrote, or over
/// what a backup brought back: nothing at all is, then, and [`Ledger::until_replaced`] ends.
///
/// # Cancellation
/// A method that is dropped while it writes may have written or not; what it asked for is pending and goes out with the next write.
pub struct Ledger {
    maps: Api<ConfigMap>,
    /// For the watch, to which its content is nothing.
    metadata: Api<Metadata<ConfigMap>>,
    state: parking_lot::Mutex<LedgerState>,
    /// Whether upstream has said what it remembers of the last heartbeat, since that was last to be asked.
    asked: tokio_watch::Sender<Asked>,
    /// Held while writing: changes that come meanwhile go out together with the next write.
    writing: Mutex<Written>,
    /// Whether what the ConfigMap holds is not what was read here and written since.
    replaced: tokio_watch::Sender<bool>,
}

impl Ledger {
    /// Reads the ledger; none yet is an empty one.
    ///
    /// # Errors
    /// It cannot be read. An entry that does not parse is left out, with a log line.
    pub async fn load(agent: &AgentClient, namespace: &str) -> kube::Result<Self> {
        let maps = Api::<ConfigMap>::namespaced(agent.client(), namespace);
        let map = crate::error::found(maps.get(LEDGER_NAME).await)?.unwrap_or_default();
        let upstream = stored::upstream(map.annotations());
        let postponed = map
            .annotations()
            .get(POSTPONED_ANNOTATION)
            .and_then(|text| serde_json::from_str(text).ok());
        let written = Written {
            version: map.resource_version().unwrap_or_default(),
            ..Written::default()
        };
        let is_permitted = stored::is_permitted(map.annotations());
        let entries = entries(map);
        let void = entries.iter().filter(|(_, entry)| entry.is_void());
        let mut state = LedgerState {
            pending: void.map(|(key, _)| (key.clone(), None)).collect(),
            entries,
            written: upstream.clone(),
            upstream,
            postponed: postponed.unwrap_or_default(),
            ..LedgerState::default()
        };
        if is_permitted {
            // Before upstream is listed: what that shows to be lost was not let go.
            let found = state.entries.clone();
            state.release_held(&found);
        }
        Ok(Self {
            maps,
            metadata: Api::namespaced(agent.client(), namespace),
            state: parking_lot::Mutex::new(state),
            asked: tokio_watch::Sender::new(Asked {
                doubts: 1,
                answered: 0,
                told: 0,
            }),
            writing: Mutex::new(written),
            replaced: tokio_watch::Sender::new(false),
        })
    }

    /// Records whose a release is, which is proven. Writes only what changed; records that come while another is
    /// being written go out in one write.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn own(
        &self,
        key: ReleaseKey,
        entry: LedgerEntry,
        _proof: &Proof,
    ) -> kube::Result<()> {
        let owned = LedgerEntry {
            is_attempt: false,
            ..entry
        };
        let asked = self.ask_owned(&key, owned)?;
        self.flush_asked(asked.then_some(key)).await
    }

    async fn set(&self, key: ReleaseKey, entry: LedgerEntry) -> kube::Result<()> {
        let asked = set_release(&mut self.state.lock(), &key, entry)?;
        self.flush_asked(asked.then_some(key)).await
    }

    /// Records a revision that a bundle is about to write over a release that is another's. `claimant` says how it stands with the bundle.
    async fn claim(
        &self,
        key: ReleaseKey,
        entry: LedgerEntry,
        claimant: &LedgerEntry,
    ) -> kube::Result<()> {
        let claims = set_claims(&mut self.state.lock(), &key.namespace, claimant)?;
        let asked = set_release(&mut self.state.lock(), &key, entry)?;
        self.flush_asked(asked.then_some(key).or(claims)).await
    }

    /// Records that a bundle is about to make something in a namespace beside releases of its own, which is to go with it: copies of upstream
    /// resources. `claimant` says how it stands with the bundle.
    ///
    /// # Errors
    /// It has no room or cannot be written: what depends on it should not be made then.
    pub async fn note_claims(&self, namespace: &str, claimant: &LedgerEntry) -> kube::Result<()> {
        let asked = set_claims(&mut self.state.lock(), namespace, claimant)?;
        self.flush_asked(asked).await
    }

    /// Whether a bundle had a release in the namespace with this deployment of its spec when another bundle took it, whatever became of its records
    /// since. Not of a bundle whose claims cannot be noted.
    pub fn had_deployed(&self, bundle: &str, namespace: &str, deployment_id: &str) -> bool {
        let claims = self.get(&ReleaseKey::claims_of(bundle, namespace));
        let lost = claims.filter(|claims| claims.bundle == bundle);
        let known = lost.and_then(|claims| claims.deployment);
        known.is_some_and(|known| known == DeploymentDigest::of(deployment_id))
    }

    /// Asks for a release that is proven to be a bundle's. One that had it before may have left something, and does not take it
    /// back with the deployment that it had it with. Whether anything is to be written.
    fn ask_owned(&self, key: &ReleaseKey, entry: LedgerEntry) -> kube::Result<bool> {
        let mut state = self.state.lock();
        let former = state.get(key).filter(|known| known.bundle != entry.bundle);
        let former = former.cloned();
        let asked = set_release(&mut state, key, entry)?;
        let Some(mut former) = former else {
            return Ok(asked);
        };
        let left = ReleaseKey::claims_of(&former.bundle, &key.namespace);
        let claims = state.get(&left);
        former.keep_resources |= claims.is_some_and(|claims| claims.keep_resources);
        let noted = set_claims(&mut state, &key.namespace, &former);
        let noted = noted.and_then(|_| {
            let known = state.get(&left).cloned();
            let Some(claims) = known.filter(|claims| claims.bundle == former.bundle) else {
                return Ok(false);
            };
            let deployment = former.deployment.clone().filter(|_| !former.is_attempt);
            let claims = LedgerEntry {
                deployment,
                ..claims
            };
            set_entry(&mut state, &left, claims)
        });
        if let Err(failed) = noted {
            // The release's new owner does not need it.
            let (bundle, error) = (&former.bundle, PublicText::nothing_secret_in(&failed));
            logging::warn!(bundle, error, "what it left is not remembered");
        }
        Ok(asked)
    }

    /// The releases of others in a namespace over which a bundle wrote, with the account that it wrote with, by key.
    pub fn claimed_by(&self, bundle: &str, namespace: &str) -> Vec<(ReleaseKey, String)> {
        self.state.lock().claimed_by(bundle, namespace)
    }

    /// Believes a revision that somebody else wrote, and with it that the release is the bundle's; written with the next write, or by
    /// [`Self::settle`].
    ///
    /// # Errors
    /// It has no room: nobody knows whose the release is, until the next deploy says so where it notes its first revision.
    pub fn adopt(&self, key: ReleaseKey, entry: LedgerEntry, _proof: &Proof) -> kube::Result<()> {
        let owned = LedgerEntry {
            is_attempt: false,
            ..entry
        };
        self.ask_owned(&key, owned).map(drop)
    }

    /// Records what is there of a bundle beside a release that is not proven to be its own.
    ///
    /// # Errors
    /// It has no room or cannot be written: what depends on it, such as a copy that goes with the bundle, should not be made then.
    pub async fn attempt(&self, key: ReleaseKey, entry: LedgerEntry) -> kube::Result<()> {
        let attempt = LedgerEntry {
            is_attempt: true,
            ..entry
        };
        self.set(key, attempt).await
    }

    /// Records what changed of a release whose owner is known; whose it is stays.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn confirm(&self, key: ReleaseKey, entry: LedgerEntry) -> kube::Result<()> {
        let Some(known) = self.get(&key) else {
            return Ok(());
        };
        let confirmed = LedgerEntry {
            bundle: known.bundle,
            is_attempt: known.is_attempt,
            ..entry
        };
        self.set(key, confirmed).await
    }

    /// Gives a release that is proven to be the bundle's of `from` to one that waited for it, as the entry is by now. `is_attempt`: nothing
    /// of it was ever deployed, and that somebody gets it proves no more.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn hand_over(
        &self,
        key: &ReleaseKey,
        from: &str,
        to: &str,
        is_attempt: bool,
        _proof: &Proof,
    ) -> kube::Result<()> {
        {
            let mut state = self.state.lock();
            state.note(key, |entry| match entry.bundle.as_str() == from {
                true => LedgerEntry {
                    is_attempt,
                    ..entry.handed_to(to)
                },
                false => entry,
            });
            state.postpones_no_more(to);
        }
        self.settle(key).await
    }

    /// Forgets a release that is not the bundle's of `from`, but for what is left to a bundle that tried to take it, as the entry is by now: to the
    /// one that `to` names for that entry.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn give_up(
        &self,
        key: &ReleaseKey,
        from: &str,
        to: impl FnOnce(&LedgerEntry) -> Option<String>,
    ) -> kube::Result<()> {
        {
            let mut state = self.state.lock();
            let known = state.get(key).filter(|entry| entry.bundle == from);
            let Some(known) = known else {
                return Ok(());
            };
            let to = to(known);
            let left = to.as_deref().and_then(|to| known.left_to(to));
            state.pending.insert(key.clone(), left);
            if let Some(to) = to {
                state.postpones_no_more(&to);
            }
        }
        self.flush(Some(key)).await
    }

    /// Forgets a release that is not the bundle's of `from`, and remembers its attempts there for a bundle that wants the release next, which has
    /// nothing of it either. `theirs` are the revisions of somebody else's that lie there.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn leave_attempts(
        &self,
        key: &ReleaseKey,
        from: &str,
        to: &str,
        theirs: &[i64],
    ) -> kube::Result<()> {
        {
            let mut state = self.state.lock();
            state.note(key, |entry| match entry.bundle.as_str() == from {
                true => entry.tried_by(to).noting_theirs(theirs),
                false => entry,
            });
            state.postpones_no_more(to);
        }
        self.settle(key).await
    }

    /// Takes note of what the objects of a bundle's release are in, as they were seen to be: an older agent noted none of that. What a deploy noted stays.
    ///
    /// # Errors
    /// It has no room or cannot be written.
    pub async fn seen_in(
        &self,
        key: &ReleaseKey,
        bundle: &str,
        containers: &Containers,
    ) -> kube::Result<()> {
        let asked = {
            let mut state = self.state.lock();
            let known = state.get(key).filter(|known| known.bundle == bundle);
            let Some(known) = known.cloned() else {
                return Ok(());
            };
            let entry = known.clone().also_in(containers);
            entry != known && set_entry(&mut state, key, entry)?
        };
        self.flush_asked(asked.then(|| key.clone())).await
    }

    /// Forgets revisions of a bundle's release that were announced and never written.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn forget_unwritten(
        &self,
        key: &ReleaseKey,
        bundle: &str,
        revisions: &[i64],
    ) -> kube::Result<()> {
        let forget = |entry: LedgerEntry| match entry.bundle == bundle {
            true => entry.without_unwritten(revisions),
            false => entry,
        };
        self.state.lock().note(key, forget);
        self.settle(key).await
    }

    /// Writes the entry that was asked for, if one was.
    async fn flush_asked(&self, key: Option<ReleaseKey>) -> kube::Result<()> {
        match key {
            Some(key) => self.flush(Some(&key)).await,
            None => Ok(()),
        }
    }

    /// Writes what is pending of a release.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn settle(&self, key: &ReleaseKey) -> kube::Result<()> {
        let is_pending = self.state.lock().is_pending(key);
        match is_pending {
            true => self.flush(Some(key)).await,
            false => Ok(()),
        }
    }

    /// Writes what is pending of the releases of a bundle.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn settle_all(&self, bundle: &str) -> kube::Result<()> {
        let pending = || {
            let state = self.state.lock();
            let mut releases = state.of_bundle(bundle).into_iter().map(|(key, _)| key);
            releases.find(|key| state.is_pending(key))
        };
        // A write that was under way may lack what another one of them became since.
        while let Some(key) = pending() {
            self.flush(Some(&key)).await?;
        }
        Ok(())
    }

    /// Forgets a release that was removed.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn forget(&self, key: &ReleaseKey) -> kube::Result<()> {
        {
            let mut state = self.state.lock();
            if state.get(key).is_none() {
                return Ok(());
            }
            state.pending.insert(key.clone(), None);
        }
        self.flush(Some(key)).await
    }

    /// Forgets the claims of a bundle, of which those at these releases were `withdrawn`, unless there are more by now, or the bundle has no
    /// longer the release `current` that it had instead.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn forget_claims(
        &self,
        key: &ReleaseKey,
        bundle: &str,
        withdrawn: &[ReleaseKey],
        current: Option<&ReleaseKey>,
    ) -> kube::Result<()> {
        {
            let mut state = self.state.lock();
            let claimed = state.claimed_by(bundle, &key.namespace);
            let is_all = claimed.iter().all(|(one, _)| withdrawn.contains(one));
            let has = |key: &ReleaseKey| state.get(key).is_some_and(|one| one.bundle == bundle);
            if !is_all || !current.is_none_or(has) || state.get(key).is_none() {
                return Ok(());
            }
            state.pending.insert(key.clone(), None);
            state.forget_taken_from(bundle, &key.namespace);
        }
        self.flush(Some(key)).await
    }

    /// Takes note of a bundle that is there, in the store if not upstream: nothing of it is removed or held back, and its objects are kept
    /// if `keep_resources` says so; whether it no longer does, only the next deploy settles. That it is not lost any more only
    /// [`Self::check_continuity`] can tell.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn seen(&self, bundle: &str, keep_resources: bool) -> kube::Result<()> {
        self.change(bundle, |entry| entry.seen(keep_resources))
            .await
    }

    /// Takes note that the removals of these bundles are held back.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn hold(&self, bundles: &BTreeSet<String>) -> kube::Result<()> {
        let last = {
            let mut state = self.state.lock();
            let hold = |entry: LedgerEntry| LedgerEntry {
                hold: entry.hold.or(Some(Hold::Held)),
                ..entry
            };
            let changed = bundles
                .iter()
                .filter_map(|bundle| state.change(bundle, hold));
            changed.last()
        };
        self.flush_asked(last).await
    }

    /// Takes note that the removal of a bundle's releases was proven and begins.
    ///
    /// # Errors
    /// It cannot be written; then nothing should be removed yet.
    pub async fn begin_removal(&self, bundle: &str) -> kube::Result<()> {
        self.change(bundle, |entry| LedgerEntry {
            is_removing: true,
            ..entry
        })
        .await
    }

    /// Whether it is no longer proven that a release of this bundle is to go, whose removal had begun: the bundle was there again, or is lost by now
    /// and nobody has released that.
    /// Not of one that is another bundle's, or nobody's, by now.
    pub fn is_unproven(&self, key: &ReleaseKey, bundle: &str) -> bool {
        let state = self.state.lock();
        let Some(known) = state.get(key).filter(|known| known.bundle == bundle) else {
            return false;
        };
        let is_lost = || {
            let releases = state.of_bundle(bundle);
            let is_released = |entry: &LedgerEntry| entry.hold == Some(Hold::Released);
            releases.iter().any(|(_, entry)| entry.lost.is_some())
                && !releases.iter().any(|(_, entry)| is_released(entry))
        };
        !known.is_removing || is_lost()
    }

    /// Takes back that a removal begins: its proof is over.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn take_removal_back(&self, bundle: &str) -> kube::Result<()> {
        self.change(bundle, |entry| LedgerEntry {
            is_removing: false,
            ..entry
        })
        .await
    }

    /// Takes note of the release that a bundle wants by the facts of now, `names` being namespace and name as it writes them: since when they
    /// give it another one than each that it has. `now` in seconds since 1970.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn wants(
        &self,
        bundle: &str,
        desired: &ReleaseKey,
        names: Option<&str>,
        now: i64,
    ) -> kube::Result<()> {
        let changed = self.state.lock().wants(bundle, desired, names, now);
        self.flush_asked(changed).await
    }

    async fn change(
        &self,
        bundle: &str,
        change: impl Fn(LedgerEntry) -> LedgerEntry,
    ) -> kube::Result<()> {
        let changed = self.state.lock().change(bundle, change);
        self.flush_asked(changed).await
    }

    /// The attempts of a bundle that are not tried again at once.
    pub fn postponed(&self, bundle: &str) -> Postponed {
        let state = self.state.lock();
        state.postponed.get(bundle).cloned().unwrap_or_default()
    }

    /// Takes note of what is not tried again at once. `now` in seconds since 1970.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn postpone(&self, bundle: &str, postponed: Postponed, now: i64) -> kube::Result<()> {
        {
            let mut state = self.state.lock();
            let known = state.postponed.get(bundle).cloned().unwrap_or_default();
            if known == postponed {
                return Ok(());
            }
            postponed::note(&mut state.postponed, bundle, postponed, now);
            state.is_postponed_pending = true;
        }
        self.flush(None).await
    }

    /// A bundle's postponed deploy may succeed now, and waits no longer: with the next write.
    pub fn postpones_no_more(&self, bundle: &str) {
        self.state.lock().postpones_no_more(bundle);
    }

    /// Whether the agent ever had a BundleDeployment of its own.
    pub fn had_own(&self) -> bool {
        self.state.lock().had_own()
    }

    /// The entry of a release.
    pub fn get(&self, key: &ReleaseKey) -> Option<LedgerEntry> {
        self.state.lock().get(key).cloned()
    }

    /// The releases of a bundle, by key.
    pub fn of_bundle(&self, bundle: &str) -> Vec<(ReleaseKey, LedgerEntry)> {
        self.state.lock().of_bundle(bundle)
    }

    /// The releases that have something in a namespace, or objects of a definition's kind, and their entries, by key. What bundles made beside releases of
    /// their own is none.
    pub fn releases_in(&self, container: &str) -> Vec<(ReleaseKey, LedgerEntry)> {
        let state = self.state.lock();
        let there = state
            .iter()
            .filter(|(key, entry)| entry.is_in(key, container));
        let mut there: Vec<_> = there
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect();
        there.sort_by(|(one, _), (other, _)| one.cmp(other));
        there
    }

    /// Every release and its entry, by key.
    pub fn all(&self) -> Vec<(ReleaseKey, LedgerEntry)> {
        self.state.lock().all()
    }

    /// How many releases there are of this kind.
    pub fn count(&self, is_counted: impl Fn(&LedgerEntry) -> bool) -> usize {
        let state = self.state.lock();
        let counted = state
            .iter()
            .filter(|(key, entry)| !key.is_claims() && is_counted(entry));
        counted.count()
    }

    /// Whether anything is known of a bundle: a release, or what it made beside those.
    pub fn knows(&self, bundle: &str) -> bool {
        self.state
            .lock()
            .iter()
            .any(|(_, entry)| entry.bundle == bundle)
    }

    /// The bundles that have releases of this kind.
    pub fn bundles(&self, is_meant: impl Fn(&LedgerEntry) -> bool) -> BTreeSet<String> {
        let state = self.state.lock();
        let meant = state.iter().filter(|(_, entry)| is_meant(entry));
        meant.map(|(_, entry)| entry.bundle.clone()).collect()
    }

    /// A bundle that had a release before `owner` took it and may want it again: it is not there by `is_there`, and has deployed no other one instead. Not where
    /// that it is gone is proven by `is_proven`, or a person released its removal.
    pub fn missing_owner(
        &self,
        key: &ReleaseKey,
        owner: &str,
        is_there: impl Fn(&str) -> bool,
        is_proven: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let state = self.state.lock();
        let may_return = |bundle: &str, entry: &LedgerEntry| {
            // That its removal began once proves nothing of now: it may have been back.
            entry.hold != Some(Hold::Released) && (entry.lost.is_some() || !is_proven(bundle))
        };
        let has_left = |bundle: &str| {
            let claims = ReleaseKey::claims_of(bundle, &key.namespace);
            let mut releases = state.of_bundle(bundle).into_iter();
            // A name that is too long for claims has none.
            releases.any(|(one, entry)| {
                (one == claims || !claims.is_label()) && may_return(bundle, &entry)
            })
        };
        let former = state.get(key)?.taken_from.iter();
        let mut missing = former.filter(|one| *one != owner && !is_there(one) && has_left(one));
        missing.next().cloned()
    }

    /// The releases that were taken from a bundle, with those that have them.
    pub fn taken_from(&self, bundle: &str) -> Vec<(ReleaseKey, String)> {
        let state = self.state.lock();
        let taken = state
            .iter()
            .filter(|(_, entry)| entry.taken_from.contains(bundle));
        taken
            .map(|(key, entry)| (key.clone(), entry.bundle.clone()))
            .collect()
    }

    /// Whether a bundle's removal is held back, or would be.
    pub fn is_held_back(&self, bundle: &str) -> bool {
        let releases = self.of_bundle(bundle);
        let is_held = |entry: &LedgerEntry| entry.lost.is_some() || entry.hold == Some(Hold::Held);
        releases.iter().any(|(_, entry)| is_held(entry))
    }

    /// Whether a bundle is lost until upstream lists it.
    pub fn is_lost(&self, bundle: &str) -> bool {
        let is_lost = |entry: &LedgerEntry| entry.bundle == bundle && entry.lost.is_some();
        self.state.lock().iter().any(|(_, entry)| is_lost(entry))
    }

    /// Waits until the ConfigMap turns out to hold what nobody wrote here: another agent did, which leads by now, or the cluster was restored
    /// from a backup. It has to be read anew.
    ///
    /// # Cancellation
    /// Safe.
    pub async fn until_replaced(&self) {
        let mut replaced = self.replaced.subscribe();
        // The channel cannot close: its sender lives as long as the ledger.
        let _ = replaced.wait_for(|is_replaced| *is_replaced).await;
    }

    /// Releases, those of them that are not written as they are known, and attempts that wait.
    pub fn entries(&self) -> Entries {
        let state = self.state.lock();
        vec![
            (
                "releases",
                state.iter().filter(|(key, _)| !key.is_claims()).count(),
            ),
            ("unwritten_releases", state.pending.len()),
            ("postponed_attempts", state.postponed.len()),
        ]
    }
}

/// Asks for the entry of a release to be written. Whether anything is to be written.
fn set_release(
    state: &mut LedgerState,
    key: &ReleaseKey,
    entry: LedgerEntry,
) -> kube::Result<bool> {
    if !key.is_storable() || key.is_claims() {
        let problem = format!("{key} cannot be a release");
        return Err(kube::Error::Service(problem.into()));
    }
    set_entry(state, key, entry)
}

/// Asks for the entry of a bundle's claims to be written. Its key, where anything is to be written.
fn set_claims(
    state: &mut LedgerState,
    namespace: &str,
    claimant: &LedgerEntry,
) -> kube::Result<Option<ReleaseKey>> {
    let key = ReleaseKey::claims_of(&claimant.bundle, namespace);
    if !key.is_label() {
        // An agent that knows nothing of claims could not look for such a release. What it makes there stays.
        return Ok(None);
    }
    let known = state.get(&key);
    let entry = match known.filter(|known| known.bundle == claimant.bundle) {
        Some(known) => LedgerEntry {
            account: claimant.account.clone(),
            // What the spec last seen says: of claims none is deployed.
            keep_resources: claimant.keep_resources,
            lost: known.lost.or(claimant.lost),
            hold: known.hold.or(claimant.hold),
            ..known.clone()
        },
        None => claimant.for_claims(),
    };
    Ok(set_entry(state, &key, entry)?.then_some(key))
}

fn set_entry(state: &mut LedgerState, key: &ReleaseKey, entry: LedgerEntry) -> kube::Result<bool> {
    let entry = state.marked(entry);
    let entry = match state.has_room(key, &entry) {
        true => entry,
        false => entry.shortened(),
    };
    state.make_room(key, &entry);
    if !state.has_room(key, &entry) {
        let problem = format!("the ledger has no room for {key}: keep fewer revisions");
        return Err(kube::Error::Service(problem.into()));
    }
    Ok(state.set(key, entry))
}

#[cfg(test)]
mod fixtures;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Method, Request};
    use kube::client::Body;
    use serde_json::{Map, Value, json};

    use super::fixtures::{entry, key};
    use super::*;
    use crate::client::scripted;
    use crate::error;

    /// What a release's objects are in is of use where something is deleted; that a release can be deployed comes first.
    #[test]
    fn a_full_ledger_makes_room_by_what_objects_of_others_are_in() {
        let names: Vec<String> = (0..20).map(|n| format!("{n:0>60}")).collect();
        let wide = |bundle: &str| LedgerEntry {
            containers: serde_json::from_value(json!(names)).unwrap(),
            ..entry(bundle)
        };
        let mut state = LedgerState::default();
        for n in 0..740 {
            let key = ReleaseKey {
                name: format!("r{n}"),
                ..key("apps")
            };
            // Far from full each has room, and the whole ledger would be measured for each.
            match n < 670 {
                true => _ = state.set(&key, wide("b")),
                false => _ = set_entry(&mut state, &key, wide("b")).expect("it has room"),
            }
        }
        let all = state.all();
        assert_eq!(all.len(), 740);
        let shortened = |(_, entry): &&(ReleaseKey, LedgerEntry)| entry.containers.has("any");
        let before = all.iter().filter(shortened).count();
        // As many as the others need.
        assert!((40..120).contains(&before), "{before}");
        let too_large = entry(&"b".repeat(1 << 20));
        set_entry(&mut state, &key("huge"), too_large).unwrap_err();
        assert_eq!(state.all().iter().filter(shortened).count(), before);
    }

    /// A copy that depends on its bundle's entry learns that there is none.
    #[tokio::test]
    async fn an_entry_that_a_full_ledger_refuses_is_an_error() {
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&writes);
        let clients = scripted::clients(move |request: Request<Body>| {
            if request.method() != Method::GET {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            let entry = LedgerEntry {
                bundle: "b".repeat(6_200),
                ..LedgerEntry::default()
            };
            let entry = serde_json::to_string(&entry).unwrap();
            let data = (0..150).map(|n| (format!("apps_r{n}"), Value::from(entry.clone())));
            let map = json!({"metadata": {}, "data": data.collect::<Map<_, _>>()});
            async { (200, map) }
        });
        let agent = scripted::identities(&clients).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        let refused = ledger
            .attempt(key("more"), LedgerEntry::default())
            .await
            .unwrap_err();
        let refused = error::chain(&refused).to_string();
        assert!(refused.contains("no room for apps/more"), "{refused}");
        assert!(ledger.get(&key("more")).is_none());
        assert_eq!(writes.load(Ordering::Relaxed), 0);
        // An entry that exists already can be written still.
        ledger
            .attempt(key("r0"), LedgerEntry::default())
            .await
            .unwrap();
        assert_eq!(writes.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_bundle_that_loses_its_release_to_another_stays_in_the_ledger() {
        let clients = scripted::clients(|_| async { (200, json!({"metadata": {}})) });
        let agent = scripted::identities(&clients).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        let web = key("web");
        let of = |bundle: &str| entry(bundle).noting(1, "one".into());
        let records = crate::ledger::OwnedRecords::Whole;
        let proof = Proof::of_records(&records).unwrap();
        ledger.own(web.clone(), of("a"), &proof).await.unwrap();
        let claims = ReleaseKey::claims_of("a", "apps");
        assert!(ledger.get(&claims).is_none());
        let taken = of("a").noting_claim("b", "", 2, "two".into()).taken_by("b");
        ledger.own(web.clone(), taken, &proof).await.unwrap();
        assert!(ledger.get(&claims).unwrap().is_attempt && ledger.knows("a"));
        // The claims are no release, and none is entered under their name.
        assert_eq!(ledger.count(|_| true), 1);
        assert!(ledger.attempt(claims.clone(), of("c")).await.is_err());
        // The claims are forgotten once all of them were withdrawn, while the bundle has another release instead.
        let forget = async |withdrawn: &[ReleaseKey], current| {
            let forgotten = ledger.forget_claims(&claims, "a", withdrawn, current);
            forgotten.await.unwrap();
            ledger.get(&claims).is_none()
        };
        assert!(!forget(&[], None).await);
        assert!(!forget(std::slice::from_ref(&web), Some(&web)).await);
        assert!(forget(std::slice::from_ref(&web), None).await);
    }

    /// Nobody knows whether it wants the release when it is back. What it only tried to have it never had.
    #[tokio::test]
    async fn a_missing_bundle_may_want_what_another_one_took_from_it() {
        let clients = scripted::clients(|_| async { (200, json!({"metadata": {}})) });
        let agent = scripted::identities(&clients).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        let (web, records) = (key("web"), crate::ledger::OwnedRecords::Whole);
        let proof = Proof::of_records(&records).unwrap();
        let of = |bundle: &str| entry(bundle).noting(1, "one".into());
        ledger.own(web.clone(), of("a"), &proof).await.unwrap();
        let taken = of("a").noting_claim("b", "", 2, "two".into()).taken_by("b");
        ledger
            .own(web.clone(), taken.clone(), &proof)
            .await
            .unwrap();
        let missing =
            |is_there, is_proven| ledger.missing_owner(&web, "b", |_| is_there, |_| is_proven);
        let a = Some("a".to_owned());
        assert_eq!(missing(false, false), a);
        assert_eq!((missing(true, false), missing(false, true)), (None, None));
        let other = ledger.missing_owner(&key("other"), "b", |_| false, |_| false);
        assert_eq!(other, None);
        // Its removal has begun, and was held back: both may be of before. It is let go.
        ledger.begin_removal("a").await.unwrap();
        ledger.hold(&["a".to_owned()].into()).await.unwrap();
        assert_eq!(
            (missing(false, false), missing(false, true)),
            (a.clone(), None)
        );
        let found = ledger.state.lock().all().into_iter().collect();
        ledger.state.lock().release_held(&found);
        assert_eq!(missing(false, false), None);
        // It has another release instead.
        ledger.seen("a", false).await.unwrap();
        assert_eq!(missing(false, false), a);
        let claims = ReleaseKey::claims_of("a", "apps");
        let withdrawn = std::slice::from_ref(&web);
        let forgotten = ledger.forget_claims(&claims, "a", withdrawn, None);
        forgotten.await.unwrap();
        assert_eq!(missing(false, false), None);
        assert!(ledger.get(&web).unwrap().taken_from.is_empty());
        // Given back it is its own again, and nothing of it is another's.
        assert!(taken.clone().taken_by("a").taken_from.contains("b"));
        assert!(taken.clone().handed_to("a").taken_from.is_empty());
        let attempt = LedgerEntry {
            is_attempt: true,
            ..of("a")
        };
        assert!(attempt.taken_by("b").taken_from.is_empty());
    }

    /// Few records are kept: what shows that a bundle had the release outlives those that it wrote.
    #[tokio::test]
    async fn the_deployment_of_a_lost_release_is_known_after_its_records_are_pruned() {
        let clients = scripted::clients(|_| async { (200, json!({"metadata": {}})) });
        let agent = scripted::identities(&clients).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        let of = |bundle: &str| LedgerEntry {
            deployment: Some(DeploymentDigest::of(&format!("s-1:{bundle}"))),
            ..entry(bundle).noting(1, "one".into())
        };
        let (web, records) = (key("web"), crate::ledger::OwnedRecords::Whole);
        let proof = Proof::of_records(&records).unwrap();
        ledger.own(web.clone(), of("a"), &proof).await.unwrap();
        let taken = of("a").noting_claim("b", "", 2, "two".into()).taken_by("b");
        ledger.own(web.clone(), taken, &proof).await.unwrap();
        let pruned = ledger.get(&web).unwrap().without(1);
        assert!(pruned.claims.is_empty());
        ledger.confirm(web, pruned).await.unwrap();
        let tries_again = of("a").for_claims();
        ledger.note_claims("apps", &tries_again).await.unwrap();
        assert!(ledger.had_deployed("a", "apps", "s-1:a"));
        assert!(!ledger.had_deployed("a", "apps", "s-2:a"));
        assert!(!ledger.had_deployed("a", "other", "s-1:a"));
        assert!(!ledger.had_deployed("b", "apps", "s-1:b"), "it has it");
        // Once another one begins, wherever that is deployed, it takes the release as any other.
        let begins = |deployment: &str| {
            let deployment = DeploymentDigest::of(deployment);
            let mut state = ledger.state.lock();
            state.begins("a", &key("other"), &deployment, false);
            drop(state);
            ledger.had_deployed("a", "apps", "s-1:a")
        };
        assert!(begins("s-1:a") && !begins("s-2:a") && !begins("s-1:a"));
        // The deployment is forgotten with the bundle.
        let claims = ReleaseKey::claims_of("a", "apps");
        ledger.forget(&claims).await.unwrap();
        assert!(!ledger.had_deployed("a", "apps", "s-1:a"));
        // Of a mere attempt the bundle had nothing deployed.
        let attempt = key("attempt");
        ledger.attempt(attempt.clone(), of("a")).await.unwrap();
        let taken = of("a").taken_by("b");
        ledger.own(attempt, taken, &proof).await.unwrap();
        assert!(ledger.get(&claims).is_some());
        assert!(!ledger.had_deployed("a", "apps", "s-1:a"));
    }
}
