//! What the ledger knows of one release: whose it is, which revisions were written here, and how it stands with its removal. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use release::storage::KnownDigest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::containers::Containers;
use super::key::ReleaseKey;
use super::notes::{Note, Notes};
use super::upstream::ContinuityBreak;

/// Whether the release's removal is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Hold {
    /// The removal is held back.
    Held,
    /// A person released the removal while it was held.
    Released,
}

/// A release's entry in the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    /// Name of the BundleDeployment.
    pub bundle: String,
    /// Account it was deployed with; empty for the agent's own.
    #[serde(default)]
    pub account: String,
    /// Whether its objects outlive the BundleDeployment: as the spec last seen or the one last
    /// deployed says.
    #[serde(default)]
    pub keep_resources: bool,
    /// Namespace and name as the bundle writes them, if the release's own came of filling in their `${ }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<String>,
    /// The release is not proven to be the bundle's yet: it began to deploy, and its own are only the revisions whose digests are
    /// here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_attempt: bool,
    /// Set when upstream was not what it was while this bundle was missing: its absence proves
    /// nothing until it was listed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<ContinuityBreak>,
    /// Whether its removal is, or was, held back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// Since when its bundle has or wants another release, as other facts filled in its names, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_since: Option<i64>,
    /// The removal of the release was proven and has begun, and its bundle was not there again since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_removing: bool,
    /// What each revision was written with, as a digest; none for a release whose records are older
    /// than this. The newest one ever noted stays, also when its record is gone, and of attempts the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revisions: Option<Notes>,
    /// Digest of the deployment ID that was begun or found deployed last; not known where an older agent wrote the entry. The digest of none where a
    /// deploy of another release of the bundle was begun since, which may have taken over its objects. In a claim: the deployment with which its
    /// bundle had a release in the namespace when another bundle took that, until another one is begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentDigest>,
    /// Revisions of other bundles, by bundle: their attempts, or those from before this bundle took the release.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, Claim>,
    /// The bundles that had the release before, each until a deploy of the next one took it: as long as one of them is missing without proof, it may
    /// want it again. An older agent notes none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taken_from: BTreeSet<String>,
    /// What its objects are in besides the release's own namespace, since a deploy that began here, or one was seen: those of its last good revision, and of
    /// what was tried since then. An older agent notes none.
    #[serde(default, rename = "in", skip_serializing_if = "Containers::is_empty")]
    pub containers: Containers,
}

/// A digest of a deployment ID, which has about a hundred characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeploymentDigest(String);

impl DeploymentDigest {
    /// Characters of it: those of one bundle have to be told apart.
    const LEN: usize = 16;

    pub fn of(id: &str) -> Self {
        let mut digest = golib::hex::encode(&Sha256::digest(id));
        digest.truncate(Self::LEN);
        Self(digest)
    }

    /// The value that stands for no deployment: no digest reads so.
    fn none() -> Self {
        Self("none".to_owned())
    }
}

/// What a bundle wrote of a release that is another's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Account it was written with; empty for the agent's own.
    #[serde(default)]
    pub account: String,
    /// With these digests.
    pub revisions: Notes,
}

impl LedgerEntry {
    /// Whether the entry names a bundle of which no revision was ever written or believed: an older agent entered that for a deploy
    /// that failed.
    pub(super) fn is_void(&self) -> bool {
        !self.is_attempt && !self.has_revisions()
    }

    /// The digest of a revision that was written for the bundle, or believed once.
    pub fn digest(&self, revision: i64) -> Option<&str> {
        self.revisions.as_ref()?.digest(revision)
    }

    /// Whether a record is one that another bundle wrote.
    pub fn is_claim(&self, revision: i64, digest: &str) -> bool {
        let mut claims = self.claims.values();
        claims.any(|claim| claim.revisions.digest(revision) == Some(digest))
    }

    /// Whether a revision may be one that was deployed for a bundle which the release is not known to be of.
    pub fn may_be_of(&self, bundle: &str, revision: i64) -> bool {
        self.may_believe(revision) || self.has_claim(bundle, revision)
    }

    /// Whether a bundle that the release is not known to be of wrote a revision of it, above all that the one which has it ever wrote.
    pub fn has_claim(&self, bundle: &str, revision: i64) -> bool {
        let claim = self.claims.get(bundle);
        claim.is_some_and(|claim| claim.revisions.digest(revision).is_some())
            && self.revisions.as_ref().and_then(Notes::newest) < Some(revision)
    }

    /// The first revision above `revision` that was written for another bundle than `bundle`, whoever has the release by now.
    pub fn first_of_others(&self, bundle: &str, revision: i64) -> Option<i64> {
        let owner = (self.bundle.as_str(), self.revisions.as_ref());
        let claims = self.claims.iter();
        let claims = claims.map(|(name, claim)| (name.as_str(), Some(&claim.revisions)));
        let others = std::iter::once(owner)
            .chain(claims)
            .filter(|(name, _)| *name != bundle);
        let firsts = others.filter_map(|(_, notes)| notes?.first_above(revision));
        firsts.min()
    }

    /// The revisions that `bundle` wrote, as far as their records are not known to be gone.
    pub fn written_by(&self, bundle: &str) -> Vec<i64> {
        let notes = self.notes_of(bundle);
        let digests = notes.into_iter().flat_map(Notes::digests);
        digests.map(|(revision, _)| revision).collect()
    }

    /// Whether `bundle` wrote any revision whose record is not known to be gone.
    pub fn wrote(&self, bundle: &str) -> bool {
        self.notes_of(bundle).is_some_and(Notes::has_digests)
    }

    /// The digests of all that others than `bundle` wrote of the release. `None` where not everything that lies there is known to be written
    /// for a bundle.
    pub fn written_by_others(&self, bundle: &str) -> Option<Vec<(i64, String)>> {
        if self.bundle == bundle {
            // By now it is its own: what a former owner wrote may be noted as the bundle's.
            return None;
        }
        let owner = (self.bundle.as_str(), self.revisions.as_ref()?);
        let claims = self.claims.iter();
        let claims = claims.map(|(name, claim)| (name.as_str(), &claim.revisions));
        let all = std::iter::once(owner).chain(claims);
        let mut theirs = all.clone().flat_map(|(_, notes)| notes.theirs());
        if theirs.next().is_some() {
            return None;
        }
        let others = all.filter(|(name, _)| *name != bundle);
        let digests = others.flat_map(|(_, notes)| notes.digests());
        let digests = digests.map(|(revision, digest)| (revision, digest.to_owned()));
        Some(digests.collect())
    }

    /// The entry for the bundle's claims in a namespace, where this one says how it stands with the bundle: its account, and whether it is lost,
    /// held or being removed.
    #[must_use]
    pub(super) fn for_claims(&self) -> Self {
        Self {
            names: None,
            is_attempt: true,
            left_since: None,
            revisions: Some(Notes::default()),
            deployment: None,
            claims: BTreeMap::new(),
            taken_from: BTreeSet::new(),
            containers: Containers::default(),
            ..self.clone()
        }
    }

    /// This entry with more that objects of the release are in, or will be.
    #[must_use]
    pub(super) fn also_in(mut self, containers: &Containers) -> Self {
        self.containers.extend(containers);
        self
    }

    /// Whether the release has something in a namespace, or of a definition's kind: its records, or objects that it has, or may have by a deploy that began.
    pub fn is_in(&self, key: &ReleaseKey, container: &str) -> bool {
        !key.is_claims() && (key.namespace == container || self.containers.has(container))
    }

    /// This entry where it has no room with all that the release's objects are in: they count as in every container.
    #[must_use]
    pub(super) fn shortened(self) -> Self {
        Self {
            containers: self.containers.shortened(),
            ..self
        }
    }

    /// Whether all known revisions were left to this bundle by others, and it wrote none itself.
    pub fn is_left(&self) -> bool {
        self.is_attempt && !self.has_revisions() && !self.claims.is_empty()
    }

    /// Whether a revision was ever written here, or believed; nothing is known of that for a release whose records are older than digests.
    pub fn has_revisions(&self) -> bool {
        let is_some = |revisions: &Notes| !revisions.is_empty();
        self.revisions.as_ref().is_none_or(is_some)
    }

    /// The newest revision that was ever written for the bundle, where it is proven that the release is its own; else 0.
    pub fn newest_owned(&self) -> i64 {
        let newest = self.newest_written();
        newest.filter(|_| !self.is_attempt).unwrap_or_default()
    }

    /// The newest revision that was ever written for the bundle. `None` if none is known.
    pub fn newest_written(&self) -> Option<i64> {
        self.revisions.as_ref().and_then(Notes::newest)
    }

    /// The revisions above another one that deploys of the bundle's wrote, or were about to, as far as their records are not known to be gone.
    pub fn tried_above(&self, revision: i64) -> impl Iterator<Item = i64> {
        let tried = self.revisions.iter().flat_map(Notes::tried);
        tried.filter(move |tried| *tried > revision)
    }

    /// Whether [`Self::tried_above`] has any revision.
    pub fn has_tried_above(&self, revision: i64) -> bool {
        self.tried_above(revision).next().is_some()
    }

    /// Whether other bundles wrote revisions above another one, whose records are not known to be gone: attempts to take the release, where it is not
    /// theirs.
    pub fn is_claimed_above(&self, revision: i64) -> bool {
        let claims = self.claims.values();
        let mut written = claims.flat_map(|claim| claim.revisions.digests());
        written.any(|(written, _)| written > revision)
    }

    /// This entry once the bundle has begun to deploy another release, which may have taken over objects of this one: they go with that one until this
    /// one is deployed anew.
    #[must_use]
    pub fn left_behind(self) -> Self {
        Self {
            deployment: Some(DeploymentDigest::none()),
            ..self
        }
    }

    /// Whether the bundle has begun to deploy another release since it deployed this one.
    pub fn is_left_behind(&self) -> bool {
        self.deployment == Some(DeploymentDigest::none())
    }

    /// Whether another deployment of the bundle's spec than this one was begun or found deployed last.
    pub fn is_of_another(&self, deployment_id: &str) -> bool {
        let is_another = |known: &DeploymentDigest| *known != DeploymentDigest::of(deployment_id);
        self.deployment.as_ref().is_some_and(is_another)
    }

    /// Whether the release is a bundle's, and this deployment of its spec the one that was begun or found deployed last. Not where another bundle had the
    /// release since, or where an older agent wrote the entry.
    pub fn has_deployed(&self, bundle: &str, deployment_id: &str) -> bool {
        let known = self.deployment.as_ref();
        let is_it = |known: &DeploymentDigest| *known == DeploymentDigest::of(deployment_id);
        self.bundle == bundle && !self.is_attempt && known.is_some_and(is_it)
    }

    /// The newest revision that ever had a digest here, whoever wrote it.
    pub fn newest(&self) -> Option<i64> {
        self.notes().filter_map(Notes::newest).max()
    }

    /// The revisions that were seen to be somebody else's, whichever bundle's attempts they lay below, as far as their records were not deleted here.
    pub(super) fn theirs(&self) -> impl Iterator<Item = i64> {
        self.notes().flat_map(Notes::theirs)
    }

    /// Notes of all bundles.
    fn notes(&self) -> impl Iterator<Item = &Notes> {
        let claims = self.claims.values().map(|claim| &claim.revisions);
        self.revisions.iter().chain(claims)
    }

    /// Digest the record of `revision` must have for `bundle`, which has the release or claims it. Where it has it, an unknown record up to our newest
    /// revision replaces one of ours; records found at adoption, or below the first attempt at another's release, are another writer's. To a bundle
    /// that only claims the release, every unknown record is.
    pub fn known_digest(&self, bundle: &str, revision: i64) -> KnownDigest {
        let is_own = bundle == self.bundle;
        let own = self.notes_of(bundle);
        if let Some(digest) = own.and_then(|own| own.digest(revision)) {
            return KnownDigest::Digest(digest.to_owned());
        }
        let others = self.claims.iter().filter(|(name, _)| *name != bundle);
        let mut claimed = others.filter_map(|(_, claim)| claim.revisions.digest(revision));
        if let Some(digest) = claimed.next() {
            return KnownDigest::Claim(digest.to_owned());
        }
        if !is_own {
            return KnownDigest::Unknown;
        }
        let Some(own) = own else {
            return KnownDigest::Untracked;
        };
        let is_below = || own.first().is_none_or(|first| first > revision);
        let was_there = own.is_theirs(revision) || self.is_attempt && is_below();
        match self.newest() >= Some(revision) && !was_there {
            true => KnownDigest::Gone,
            false => KnownDigest::Unknown,
        }
    }

    /// Whether a revision that somebody else wrote may be believed, if it is proven otherwise.
    pub fn may_believe(&self, revision: i64) -> bool {
        self.newest() < Some(revision)
    }

    /// This entry once its bundle is there again: neither the proof of a removal that has begun nor a permission to remove what it left is for when it
    /// goes again.
    #[must_use]
    pub(super) fn unproven(self) -> Self {
        Self {
            is_removing: false,
            hold: self.hold.map(|_| Hold::Held),
            ..self
        }
    }

    /// This entry once its bundle is in the store: what it was lost by stays, for the store may be older than that.
    #[must_use]
    pub(super) fn seen(self, keep_resources: bool) -> Self {
        Self {
            keep_resources: self.keep_resources || keep_resources,
            is_removing: false,
            hold: None,
            ..self
        }
    }

    /// This entry with the digest of one more revision.
    #[must_use]
    pub fn noting(mut self, revision: i64, digest: String) -> Self {
        let revisions = self.revisions.get_or_insert_default();
        revisions.note(revision, digest);
        self
    }

    /// This entry with the digest of one more revision, which records a failed correction.
    #[must_use]
    pub fn noting_failed_correction(mut self, revision: i64, digest: String) -> Self {
        let revisions = self.revisions.get_or_insert_default();
        revisions.note_failed_correction(revision, digest);
        self
    }

    /// This entry with revisions that lie there and that nobody noted: they are somebody else's, whatever is noted above them.
    #[must_use]
    pub fn noting_theirs(mut self, revisions: &[i64]) -> Self {
        let bundle = self.bundle.clone();
        for revision in revisions {
            if self.known_digest(&bundle, *revision) == KnownDigest::Unknown
                && let Some(own) = &mut self.revisions
            {
                own.note_theirs(*revision);
            }
        }
        self
    }

    /// This entry with the digest of one more revision of a bundle that claims the release.
    #[must_use]
    pub fn noting_claim(
        mut self,
        bundle: &str,
        account: &str,
        revision: i64,
        digest: String,
    ) -> Self {
        let claim = self.claims.entry(bundle.to_owned()).or_default();
        account.clone_into(&mut claim.account);
        claim.revisions.note(revision, digest);
        self
    }

    /// This entry without the digest of a revision whose record is gone.
    #[must_use]
    pub fn without(mut self, revision: i64) -> Self {
        let newest = self.newest();
        if let Some(revisions) = &mut self.revisions {
            revisions.forget(revision, self.is_attempt);
        }
        self.claims.retain(|_, claim| {
            claim.revisions.forget(revision, true);
            claim.revisions.has_digests()
        });
        // A claim that is over leaves nothing but that its number was given.
        match newest.filter(|newest| self.newest() < Some(*newest)) {
            Some(newest) => {
                self.revisions.get_or_insert_default().note_gone(newest);
                self
            }
            None => self,
        }
    }

    /// This entry as `bundle`'s, which waited until the one that has it was gone. What was written before stays known.
    #[must_use]
    pub fn handed_to(mut self, bundle: &str) -> Self {
        if let Some(claim) = self.claims.remove(bundle) {
            let revisions = self.revisions.get_or_insert_default();
            revisions.take_in(claim.revisions);
        }
        self.taken_from.remove(bundle);
        Self {
            bundle: bundle.to_owned(),
            names: None,
            left_since: None,
            deployment: None,
            is_removing: false,
            hold: None,
            lost: None,
            ..self
        }
    }

    /// This entry as `bundle`'s, whose own deploy took the release. What it had from another bundle is that one's. One that never wrote there
    /// has no account yet: until its deploy says which, the former one's stays, as none would be the agent's own.
    #[must_use]
    pub fn taken_by(mut self, bundle: &str) -> Self {
        if self.bundle == bundle {
            return self;
        }
        let claim = self.claims.remove(bundle).unwrap_or_else(|| Claim {
            account: self.account.clone(),
            revisions: Notes::default(),
        });
        let former = Claim {
            account: std::mem::replace(&mut self.account, claim.account),
            revisions: self.revisions.replace(claim.revisions).unwrap_or_default(),
        };
        if former.revisions.has_digests() {
            self.claims.insert(self.bundle.clone(), former);
        }
        if !self.is_attempt {
            self.taken_from.insert(self.bundle.clone());
        }
        self.handed_to(bundle)
    }

    /// This entry as that of a bundle which wants a release of somebody else's, as the one before did: attempts of others are claims. What lay
    /// below those is somebody else's to this bundle too.
    #[must_use]
    pub(super) fn tried_by(self, bundle: &str) -> Self {
        let theirs: Vec<_> = self.theirs().collect();
        let mut tried = self.taken_by(bundle);
        let own = tried.revisions.get_or_insert_default();
        for revision in theirs {
            own.note_theirs(revision);
        }
        Self {
            is_attempt: true,
            keep_resources: false,
            ..tried
        }
    }

    /// The entry for a bundle that claims a release, once its former owner is known not to have it: attempts only.
    #[must_use]
    pub fn left_to(&self, bundle: &str) -> Option<Self> {
        let claim = self.claims.get(bundle)?;
        let mut revisions = claim.revisions.clone();
        let others = self.claims.iter().filter(|(name, _)| *name != bundle);
        let others = others.map(|(_, claim)| &claim.revisions);
        for others in self.revisions.iter().chain(others) {
            revisions.take_in_as_theirs(others);
        }
        Some(Self {
            bundle: bundle.to_owned(),
            account: claim.account.clone(),
            is_attempt: true,
            revisions: Some(revisions),
            containers: self.containers.clone(),
            ..Self::default()
        })
    }

    fn notes_of(&self, bundle: &str) -> Option<&Notes> {
        match bundle == self.bundle {
            true => self.revisions.as_ref(),
            false => self.claims.get(bundle).map(|claim| &claim.revisions),
        }
    }

    /// The digest that a bundle noted of a revision.
    pub(super) fn digest_of(&self, bundle: &str, revision: i64) -> Option<&str> {
        self.notes_of(bundle)?.digest(revision)
    }

    /// What a bundle noted of a revision.
    pub(super) fn note_of(&self, bundle: &str, revision: i64) -> Option<&Note> {
        self.notes_of(bundle)?.note_of(revision)
    }

    /// This entry with what a bundle noted of a revision before it was about to write it, which then was not written.
    #[must_use]
    pub fn restoring(mut self, bundle: &str, revision: i64, before: Option<Note>) -> Self {
        let notes = match bundle == self.bundle {
            true => self.revisions.as_mut(),
            false => self
                .claims
                .get_mut(bundle)
                .map(|claim| &mut claim.revisions),
        };
        if let Some(notes) = notes {
            notes.restore(revision, before);
        }
        self.claims.retain(|_, claim| !claim.revisions.is_empty());
        self
    }

    /// This entry once these revisions of its bundle's turned out to be announced and never written: that their numbers were given stays known.
    #[must_use]
    pub(super) fn without_unwritten(mut self, revisions: &[i64]) -> Self {
        if let Some(own) = &mut self.revisions {
            for revision in revisions {
                own.forget(*revision, self.is_attempt);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::entry;
    use super::super::notes::MAX_REVISIONS;
    use super::*;

    #[test]
    fn the_ledger_knows_the_deployment_of_the_bundle_that_owns_a_release() {
        let begun = LedgerEntry {
            deployment: Some(DeploymentDigest::of("s-2:b")),
            ..entry("a").noting(1, "one".into())
        };
        assert!(begun.is_of_another("s-1:a") && !begun.is_of_another("s-2:b"));
        assert!(!entry("a").is_of_another("s-1:a"), "nobody noted any");
        assert!(begun.has_deployed("a", "s-2:b") && !begun.has_deployed("a", "s-1:a"));
        assert!(!entry("a").has_deployed("a", "s-1:a"), "nobody noted any");
        let attempt = LedgerEntry {
            is_attempt: true,
            ..begun.clone()
        };
        assert!(!attempt.has_deployed("a", "s-2:b"));
        let written = serde_json::to_string(&begun).unwrap();
        assert!(written.len() < 200, "{written}");
        assert_eq!(
            serde_json::from_str::<LedgerEntry>(&written).unwrap(),
            begun
        );
        assert_eq!(begun.clone().taken_by("a"), begun);
        for others in [begun.clone().taken_by("b"), begun.clone().handed_to("b")] {
            assert_eq!(others.deployment, None);
            assert!(!others.has_deployed("b", "s-2:b") && !others.has_deployed("a", "s-2:b"));
        }
        assert_eq!(begun.for_claims().deployment, None);
    }

    /// Nothing else says what would go with a namespace or definition of another bundle's chart.
    #[test]
    fn the_ledger_knows_what_the_objects_of_a_release_are_in() {
        let containers = |names: &[&str]| -> Containers {
            serde_json::from_value(serde_json::json!(names)).unwrap()
        };
        let text = r#"{"bundle":"a"}"#;
        let older: LedgerEntry = serde_json::from_str(text).unwrap();
        assert!(older.containers.is_empty() && !older.containers.has("team"));
        // Most releases are in none, and cost no byte more.
        let written = |entry: &LedgerEntry| serde_json::to_string(entry).unwrap();
        assert!(!written(&older).contains(r#""in""#));
        let inside = older.also_in(&containers(&["team"]));
        let inside = inside.also_in(&containers(&["cars.x.io"]));
        assert!(inside.containers.has("team") && inside.containers.has("cars.x.io"));
        let text = written(&inside);
        assert!(text.contains(r#""in":["cars.x.io","team"]"#), "{text}");
        assert_eq!(serde_json::from_str::<LedgerEntry>(&text).unwrap(), inside);
        // Whoever has the release next has the objects.
        let claimed = inside.noting_claim("b", "", 2, "two".into());
        for next in [
            claimed.clone().handed_to("b"),
            claimed.clone().taken_by("b"),
            claimed.left_to("b").unwrap(),
        ] {
            assert!(next.containers.has("team"), "{next:?}");
        }
        assert!(claimed.for_claims().containers.is_empty());
        assert!(claimed.shortened().containers.has("any"));
    }

    /// The entry decides, whatever an older status says.
    #[test]
    fn a_release_left_behind_counts_as_not_deployed() {
        let deployed = LedgerEntry {
            deployment: Some(DeploymentDigest::of("s-1:a")),
            ..entry("a").noting(1, "one".into())
        };
        assert!(!deployed.is_left_behind());
        let left = deployed.left_behind();
        assert!(left.is_left_behind() && left.is_of_another("s-1:a"));
        assert!(!left.has_deployed("a", "s-1:a"));
        let text = serde_json::to_string(&left).unwrap();
        assert_eq!(serde_json::from_str::<LedgerEntry>(&text).unwrap(), left);
    }

    #[test]
    fn digests_of_others_are_known_unless_a_record_is_foreign() {
        let claimed = entry("a").noting(1, "one".into());
        let claimed = claimed.noting_claim("b", "", 2, "two".into());
        let claimed = claimed.noting_claim("c", "", 3, "three".into());
        let others = |entry: &LedgerEntry| {
            let others = entry.written_by_others("b")?;
            let mut revisions: Vec<_> = others.into_iter().map(|(revision, _)| revision).collect();
            revisions.sort_unstable();
            Some(revisions)
        };
        assert_eq!(others(&claimed), Some(vec![1, 3]));
        // A former owner's revisions count; pruned ones do not.
        assert_eq!(others(&claimed.clone().taken_by("c")), Some(vec![1, 3]));
        assert_eq!(others(&claimed.clone().without(1)), Some(vec![3]));
        assert_eq!(others(&claimed.clone().handed_to("b")), None);
        assert_eq!(others(&claimed.noting_theirs(&[4])), None);
        // An entry without digests.
        assert_eq!(others(&entry("a")), None);
    }

    #[test]
    fn claims_have_no_revisions_and_are_kept_and_lost_like_the_bundle() {
        let known = LedgerEntry {
            lost: Some(ContinuityBreak::Restored),
            keep_resources: true,
            ..entry("b")
                .noting(1, "one".into())
                .noting_claim("c", "", 2, "two".into())
        };
        let entry = known.for_claims();
        assert!(entry.is_attempt && !entry.has_revisions() && entry.claims.is_empty());
        assert!(entry.keep_resources && !entry.is_void());
        assert_eq!((entry.bundle.as_str(), entry.lost), ("b", known.lost));
    }

    /// A helm release, and an attempt at it of a bundle that is gone.
    #[test]
    fn attempts_that_are_left_to_another_bundle_are_taken_back_and_not_believed() {
        let attempt = LedgerEntry {
            is_attempt: true,
            keep_resources: true,
            ..entry("a").noting(3, "three".into())
        };
        let left = attempt.tried_by("b");
        assert!(left.is_attempt && !left.keep_resources && left.bundle == "b");
        assert!(left.is_left());
        let claim = KnownDigest::Claim("three".into());
        assert_eq!(left.known_digest("b", 3), claim);
        assert_eq!(left.known_digest("b", 2), KnownDigest::Unknown);
        assert!(!left.may_believe(3) && left.written_by("b").is_empty());
        assert_eq!(left.written_by("a"), [3]);
        let tried = left.noting_theirs(&[2]).noting(4, "four".into());
        assert_eq!(tried.written_by("b"), [4]);
        let deployed = LedgerEntry {
            is_attempt: false,
            ..tried
        };
        assert_eq!(deployed.known_digest("b", 2), KnownDigest::Unknown);
    }

    /// Attempts that are left to another bundle are removed with the rights of who made them, until that one's own deploy begins.
    #[test]
    fn attempts_left_to_another_bundle_keep_their_account_and_the_foreign_revisions() {
        let attempt = LedgerEntry {
            account: "tenant".into(),
            is_attempt: true,
            ..entry("a").noting(2, "two".into())
        };
        let attempt = attempt.noting_theirs(&[1]);
        let left = attempt.clone().tried_by("b");
        assert_eq!(left.account, "tenant");
        assert!(
            left.theirs().any(|one| one == 1) && left.known_digest("b", 1) == KnownDigest::Unknown
        );
        assert_eq!(left.written_by_others("c"), None);
        // And so on, also once the records of the first one's attempts are gone.
        let next = left.without(2).tried_by("c");
        assert!(next.theirs().any(|one| one == 1) && next.account == "tenant");
        // An attempt has an account.
        let tried = attempt.noting_claim("b", "other", 3, "three".into());
        let left = tried.tried_by("b");
        assert!(left.account == "other" && left.theirs().any(|one| one == 1));
        assert_eq!(left.written_by("b"), [3]);
    }

    #[test]
    fn revisions_below_an_attempt_are_foreign() {
        let attempt = LedgerEntry {
            is_attempt: true,
            ..entry("a")
                .noting(3, "three".into())
                .noting(5, "five".into())
        };
        let spent = KnownDigest::Gone;
        let check = |entry: &LedgerEntry| {
            assert_eq!(entry.known_digest("a", 2), KnownDigest::Unknown);
            assert_eq!(entry.known_digest("a", 4), spent);
            assert!(!entry.may_believe(2));
        };
        check(&attempt);
        // The first attempt stays noted, whatever goes.
        check(&attempt.clone().without(3).without(5));
        let last = 5 + i64::try_from(MAX_REVISIONS).unwrap();
        let many = (6..=last).fold(attempt.clone(), |entry, at| entry.noting(at, "x".into()));
        check(&many);
        let owned = LedgerEntry {
            is_attempt: false,
            ..attempt
        };
        assert_eq!(owned.known_digest("a", 2), spent);
    }

    /// A helm release, an attempt at it that failed, helm's upgrade of it, the next attempt.
    #[test]
    fn a_foreign_revision_between_two_of_ours_stays_foreign() {
        let attempt = LedgerEntry {
            is_attempt: true,
            ..entry("a").noting_theirs(&[1]).noting(2, "two".into())
        };
        let owned = LedgerEntry {
            is_attempt: false,
            ..attempt.clone()
        };
        for entry in [attempt, owned] {
            let entry = entry.noting_theirs(&[1, 3]).noting(4, "four".into());
            for (revision, expected) in [(3, KnownDigest::Unknown), (5, KnownDigest::Unknown)] {
                assert_eq!(entry.known_digest("a", revision), expected, "{revision}");
            }
            // The revision is remembered as foreign, and never believed.
            assert!(!entry.may_believe(3));
            let text = serde_json::to_string(&entry).unwrap();
            let read: LedgerEntry = serde_json::from_str(&text).unwrap();
            assert_eq!(read, entry);
            // The foreign record goes: another one in its place is not the one that was seen.
            assert_eq!(entry.without(3).known_digest("a", 3), KnownDigest::Gone);
        }
        // No revision that was written here becomes somebody else's.
        let noted = entry("a").noting(2, "two".into()).noting(3, "three".into());
        let pruned = noted.without(2).noting_theirs(&[2, 3]);
        assert_eq!(pruned.known_digest("a", 2), KnownDigest::Gone);
        assert_eq!(pruned.digest(3), Some("three"));
    }

    #[test]
    fn the_last_good_revision_is_remembered_whatever_fails_after_it() {
        let failed = |entry: LedgerEntry, at: i64| entry.noting(at, format!("failed {at}"));
        // A release that was deployed often, and no record of which is kept.
        let mut entry = (1..200).fold(entry("a"), |entry, at| failed(entry, at).without(at - 1));
        entry = entry.noting(200, "good".into());
        entry = (201..=200 + i64::from(release::MAX_HISTORY)).fold(entry, failed);
        assert_eq!(entry.digest(200), Some("good"));
    }

    /// No record was written: the number belongs to the client that writes it first.
    #[test]
    fn a_revision_number_another_client_wrote_first_is_released() {
        let owned = entry("a").noting(1, "one".into());
        let lost = owned.clone().noting(2, "two".into());
        assert_eq!(lost.restoring("a", 2, None), owned);
        let claimed = owned.clone().noting_claim("b", "", 2, "two".into());
        assert_eq!(claimed.restoring("b", 2, None), owned);
    }

    #[test]
    fn a_claimants_revisions_are_not_the_owners() {
        let claimed =
            entry("a")
                .noting(1, "one".into())
                .noting_claim("b", "tenant", 2, "two".into());
        let digest = |text: &str| KnownDigest::Digest(text.into());
        let claim = |text: &str| KnownDigest::Claim(text.into());
        let known = |entry: &LedgerEntry, bundle: &str| {
            [1, 2, 3].map(|revision| entry.known_digest(bundle, revision))
        };
        let unknown = KnownDigest::Unknown;
        let owners = [digest("one"), claim("two"), unknown.clone()];
        assert_eq!(known(&claimed, "a"), owners);
        let claimants = [unknown.clone(), digest("two"), unknown.clone()];
        assert_eq!(known(&claimed, "b"), claimants);
        let thirds = [unknown.clone(), claim("two"), unknown.clone()];
        assert_eq!(known(&claimed, "c"), thirds);
        assert_eq!((claimed.digest(2), claimed.may_believe(2)), (None, false));
        assert!(claimed.is_claim(2, "two") && !claimed.is_claim(1, "one"));

        let taken = claimed.clone().taken_by("b");
        assert_eq!((taken.bundle.as_str(), taken.digest(2)), ("b", Some("two")));
        let takers = [claim("one"), digest("two"), unknown.clone()];
        assert_eq!(known(&taken, "b"), takers);
        let handed = claimed.clone().handed_to("b");
        let next_owners = [digest("one"), digest("two"), unknown.clone()];
        assert_eq!(known(&handed, "b"), next_owners);
        assert!(handed.claims.is_empty());

        let left = claimed.left_to("b").unwrap();
        assert_eq!((left.is_attempt, left.account.as_str()), (true, "tenant"));
        assert_eq!(
            known(&left, "b"),
            [unknown.clone(), digest("two"), unknown.clone()]
        );
        assert_eq!(claimed.left_to("c"), None);
        // A revision of the former owner between two attempts does not belong to the attempts.
        let between = claimed.clone().noting(3, "three".into());
        let between = between.noting_claim("b", "tenant", 4, "four".into());
        let left = between.left_to("b").unwrap();
        assert_eq!(left.known_digest("b", 3), unknown);

        // The claimant's record goes; that there was one is remembered.
        let gone = claimed.without(2);
        assert!(gone.claims.is_empty() && !gone.may_believe(2));
    }

    #[test]
    fn a_claimant_does_not_replace_the_digest_of_a_revision_written_first() {
        let before = entry("a").noting(1, "one".into()).noting(2, "two".into());
        let claimed = before.clone().noting_claim("b", "", 2, "other".into());
        let restored = claimed.restoring("b", 2, None);
        assert_eq!(restored.digest(2), Some("two"));
        assert!(!restored.is_claim(2, "other"));
    }

    /// The former note of a revision is restored where the revision was not written: that its record is gone, so that nobody's is
    /// believed in its place, and that it was no deploy.
    #[test]
    fn the_former_note_of_a_revision_is_restored_where_it_is_not_written() {
        let restored = |before: LedgerEntry| {
            let known = before.note_of("a", 4).cloned();
            let announced = before.clone().noting(4, "other".into());
            assert_eq!(announced.restoring("a", 4, known), before);
        };
        let before = entry("a").noting(3, "three".into());
        restored(before.clone());
        restored(before.clone().noting(4, "four".into()));
        restored(before.clone().noting(4, "four".into()).without(4));
        restored(before.clone().noting_failed_correction(4, "four".into()));
        restored(before.clone().noting_theirs(&[4]));
        assert!(!before.noting(4, "four".into()).without(4).may_believe(4));
    }

    /// A deploy was killed after it had announced its revision.
    #[test]
    fn a_revision_that_was_never_written_was_no_deploy() {
        let announced = entry("a").noting(3, "three".into());
        let announced = announced.noting(4, "four".into());
        assert_eq!(announced.tried_above(3).collect::<Vec<_>>(), [4]);
        let settled = announced.without_unwritten(&[4]);
        assert!(!settled.has_tried_above(3) && !settled.may_believe(4));
        assert_eq!(settled.written_by("a"), [3]);
    }

    /// `keepFailHistory` leaves a failed revision above the one that the status names, with the same content; so does a deploy that is tried again and fails.
    #[test]
    fn a_correction_that_failed_was_no_deploy() {
        let traced = entry("a").noting(3, "same".into());
        let traced = traced.noting_failed_correction(4, "same".into());
        let text = serde_json::to_string(&traced).unwrap();
        let read: LedgerEntry = serde_json::from_str(&text).unwrap();
        assert_eq!(read, traced);
        assert!(!traced.has_tried_above(3) && traced.has_tried_above(2));
        let same = KnownDigest::Digest("same".into());
        assert_eq!(traced.known_digest("a", 4), same);
        assert!(!traced.may_believe(4));
        assert!(traced.clone().noting(5, "same".into()).has_tried_above(3));
        assert!(traced.noting(4, "same".into()).has_tried_above(3));
    }
}
