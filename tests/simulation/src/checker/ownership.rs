//! Whose an object is: what may be deleted, taken over and written, and as which account.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use super::attempts::has;
use super::{
    Checker, FORGED_STATUS, GRACE, LATEST_NEWS, ON_ITS_WAY, Origin, ReleaseKey, release_of,
};
use crate::apiserver::{Id, Write, without_additions};
use crate::desired::{ACCOUNTS, BUNDLES, Desired, bundle_name};
use crate::records::{HIGHEST, decoded};

/// Helm deletes whatever has the name of a hook with this policy before it creates the hook.
fn is_replaced_hook(object: &Value) -> bool {
    let is_job = object["kind"] == "Job";
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    let is_named = name.is_some_and(|name| name.starts_with(['p', 'r']));
    is_job && is_named
}

/// What is noted of an object that was there before its release.
pub(super) fn adoption(object: &Value) -> Option<&str> {
    const NOTE: &str = "/metadata/annotations/fleetagent.cattle.io~1adopted";
    object.pointer(NOTE)?.as_str()
}

/// Whether a write notes that an object was there before: who takes one over does that first.
pub(super) fn is_note(write: &Write) -> bool {
    let note = |object: &'_ Option<Arc<Value>>| {
        let noted = object.as_deref().and_then(adoption);
        noted.map(str::to_owned)
    };
    note(&write.before) != note(&write.after)
}

/// Whether a write leaves an object as it was, but for who manages which of its fields, and what a webhook adds.
pub(super) fn is_bookkeeping(write: &Write) -> bool {
    let plain = |object: &Option<Arc<Value>>| {
        let mut object = without_additions(object.as_deref()?);
        let metadata = object.get_mut("metadata")?.as_object_mut()?;
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
        Some(object)
    };
    write.before.is_some() && plain(&write.before) == plain(&write.after)
}

impl Checker {
    pub(super) fn deleted(&mut self, write: &Write, before: &Value) {
        let uid = Self::uid(before);
        let origin = self.origins.get(&uid).cloned();
        let owner = Self::owner(before);
        if Self::record(&write.id).is_some() {
            return;
        }
        if is_replaced_hook(before) {
            return;
        }
        let is_ours = origin
            .as_ref()
            .is_some_and(|origin| origin.actor.deploys_bundles());
        if !is_ours && !self.may_delete(write, origin.as_ref(), owner.as_ref()) {
            let text = format!("{} was there before the agent, which deletes it", write.id);
            self.violate("deletes what others made", text);
            return;
        }
        if !is_ours && self.was_kept(&write.id, before) {
            let text = format!("{} is noted as kept, and goes", write.id);
            self.violate("deletes what it adopted", text);
            return;
        }
        if Self::is_hook(before) {
            return;
        }
        if let Some(owner) = &owner {
            self.after_delete_hooks(write, owner);
        }
        if let Some(owner) = &owner
            && write.who.agent().is_some()
            && self.is_helms(owner, &write.id)
        {
            let text = format!("{} of {owner:?}, which helm has deployed last", write.id);
            self.violate("deletes what helm has", text);
        }
        if let Some(owner) = &owner {
            self.grace(write, origin.as_ref(), owner);
        }
        let Some(owner) = owner else {
            if let Some(bundle) = self.wants_copy(&write.id, before) {
                let text = format!("{}, a copy that {} needs", write.id, bundle_name(bundle));
                self.violate("deletes a needed copy", text);
            }
            return;
        };
        for bundle in self.wanting(&owner) {
            let desired = &self.desired_state.now[&bundle];
            if !desired.ids().any(|id| id == write.id) {
                continue;
            }
            let is_undo = self.is_undo(&owner, origin.as_ref());
            if is_undo || desired.force || self.is_late(bundle, &owner, &write.id) {
                continue;
            }
            if self.lost.contains(&bundle) && self.has_only_attempts(bundle, &owner) {
                continue;
            }
            let rule = match self.lost.contains(&bundle) {
                true => "deletes what upstream lost",
                false => "deletes what is wanted",
            };
            let text = format!("{} of {}", write.id, bundle_name(bundle));
            self.violate(rule, text);
        }
    }

    /// As docs/removal.md has it: what attempts of a bundle made in a release that another one has, and has always had, goes with that.
    fn has_only_attempts(&self, bundle: usize, release: &ReleaseKey) -> bool {
        let was_deployed = &self.ever_deployed_by_agent;
        !was_deployed.contains(&(release.clone(), bundle))
            && self.deployed_for.get(release) != Some(&bundle)
            && self.holder(release).is_some_and(|holder| holder != bundle)
    }

    /// Whether an object goes in the course of a deploy that began before this was wanted: that of another bundle, which wanted the release a
    /// moment ago and may take it, or of this one as it was a moment ago, without the object. Or in the course of the removal of what another bundle
    /// had, which began before this one wanted the release.
    fn is_late(&self, bundle: usize, release: &ReleaseKey, id: &Id) -> bool {
        let status = self.newest_status(release).unwrap_or_default();
        let Some(deployed) = self.written_bundle(release) else {
            return false;
        };
        if status == "uninstalling" && deployed != bundle {
            let changes = self.recent_changes(bundle);
            let wanted: Vec<_> = self.recent(bundle).collect();
            let mut others = wanted.iter().filter(|one| release_of(one) != *release);
            return wanted.len() <= changes || others.next().is_some();
        }
        if status == "failed" {
            // What attempts that failed brought goes before a deploy notes that it begins, whosever it is.
            return (0..BUNDLES).any(|one| self.began_without(one, bundle, release, id));
        }
        status.starts_with("pending") && self.began_without(deployed, bundle, release, id)
    }

    /// How it stands with a release, by its newest record that no tenant wrote, or by a removal that has begun below it.
    fn newest_status(&self, release: &ReleaseKey) -> Option<&str> {
        let own = self.written_status(release);
        if own == Some("uninstalling") {
            return own;
        }
        let mut records = self.records.get(release)?.iter().rev();
        let (revision, status) = records.find(|(_, status)| *status != FORGED_STATUS)?;
        let written = self.written.get(release);
        match written.is_some_and(|(written, _)| written == revision) {
            true => own,
            false => Some(status),
        }
    }

    /// Whether a deploy of a release, for one bundle, may have begun before another one, or it itself, wanted the object there.
    fn began_without(&self, one: usize, bundle: usize, release: &ReleaseKey, id: &Id) -> bool {
        let mut recent = self.recent(one);
        if one != bundle {
            let left = self.left.get(&(one, release.clone()));
            let is_holder = self.holder(release) == Some(one);
            return left.is_some_and(|at| self.is_upstream_news(*at))
                && recent.any(|desired| {
                    release_of(desired) == *release && (is_holder || desired.take_ownership)
                });
        }
        recent.any(|desired| desired.ids().all(|wanted| wanted != *id))
    }

    /// What is wanted of a bundle, the last first, and was when a deploy that goes on now may have begun.
    pub(super) fn recent(&self, bundle: usize) -> impl Iterator<Item = &Desired> {
        let ever = self.desired_state.ever.get(&bundle);
        let mut ever: Vec<&Desired> = ever.into_iter().flatten().rev().collect();
        ever.dedup();
        ever.into_iter().take(self.recent_changes(bundle) + 1)
    }

    /// A release stays for a while after its bundle is gone from upstream, which may be a mistake.
    fn grace(&mut self, write: &Write, origin: Option<&Origin>, release: &ReleaseKey) {
        let is_removal = self.newest_status(release) == Some("uninstalling");
        // That of another bundle, which wanted it and never had it, says nothing of the one that has. Nor does that of one which went before, for its grace,
        // and left it to the one that has it now.
        let had = self.written_bundle(release);
        let holder = self.holder(release);
        let mut unwanted = self.unwanted.iter();
        // What is held was missed for its grace before that: that its bundle was back, and deleted then, no agent can know that does not reach upstream.
        let gone = unwanted.find(|(bundle, (unwanted, _))| {
            unwanted == release
                && is_removal
                && had.is_none_or(|had| had == **bundle)
                && holder.is_none_or(|holder| holder == **bundle)
                && !self.let_through.contains(bundle)
        });
        let Some((_, (_, gone))) = gone else {
            return;
        };
        // A deploy that began before its bundle went is ended, and undone where it fails.
        if self.is_undo(release, origin) {
            return;
        }
        let after = gone.elapsed();
        if after < GRACE && self.deployed_by_agent(release) > 0 {
            let text = format!(
                "{} goes {after:?} after upstream deleted its bundle",
                write.id
            );
            self.violate("removal without grace", text);
        }
    }

    /// Whether what somebody else made may go: taken over with `takeOwnership`, or with a release that the agent deployed or upgrades.
    fn may_delete(
        &self,
        write: &Write,
        origin: Option<&Origin>,
        owner: Option<&ReleaseKey>,
    ) -> bool {
        let Some(owner) = owner else { return false };
        let wanting = self.wanting_at(&write.id, owner);
        // A deploy that began while it was not wanted drops it all the same. So does a removal, where upstream lost a bundle that never had the release.
        let is_removed = self.newest_status(owner) == Some("uninstalling");
        let is_free = |bundle: usize| {
            let is_lost = self.lost.contains(&bundle) && self.has_only_attempts(bundle, owner);
            is_removed && is_lost || self.is_late(bundle, owner, &write.id)
        };
        let mut wanting = wanting.filter(|(bundle, _)| !is_free(*bundle)).peekable();
        if wanting.peek().is_some() {
            // With force it is made anew.
            return wanting.any(|(_, desired)| desired.force);
        }
        let is_taken = origin.is_some_and(|origin| origin.taken);
        // As docs/security.md has it: a record above the highest number is not believed, and what it has is the attempts' that have it too.
        let helms = self.helms.get(owner);
        let is_disbelieved = helms.is_some_and(|(revision, _)| *revision > HIGHEST);
        is_taken
            || is_disbelieved
            || self.is_upgrading(owner)
            || self.deployed_by_agent(owner) > 0
            || self.was_attempted_anew(owner, &write.id)
    }

    /// Whether the newest attempt at a release that somebody labelled as removed has an object. As Helm has it, what that was there of the release by then
    /// goes with the next version.
    fn was_attempted_anew(&self, release: &ReleaseKey, id: &Id) -> bool {
        let attempt = || decoded(&self.written.get(release)?.1);
        self.forgotten.contains(release) && attempt().is_some_and(|attempt| has(&attempt, id))
    }

    /// Whether an object was nobody's when a release came to have it, and is to stay when the release goes. With force it is made anew.
    fn was_kept(&self, id: &Id, object: &Value) -> bool {
        let owner = Self::owner(object);
        let bundles =
            owner.map(|(namespace, name)| self.desired_state.of_release(&namespace, &name));
        let mut ever = bundles
            .iter()
            .flatten()
            .flat_map(|bundle| &self.desired_state.ever[bundle]);
        adoption(object) == Some("kept")
            && !ever.any(|desired| desired.force && desired.ids().any(|wanted| wanted == *id))
    }

    /// The bundles that want a release with an object at this place, and what is wanted of them.
    fn wanting_at(&self, id: &Id, owner: &ReleaseKey) -> impl Iterator<Item = (usize, &Desired)> {
        let wanting = self.wanting(owner).into_iter();
        wanting
            .map(|bundle| (bundle, &self.desired_state.now[&bundle]))
            .filter(move |(_, desired)| desired.ids().any(|wanted| wanted == *id))
    }

    /// A bundle that needs a copy at this place. One that upstream has lost is known by its claim alone, if it ever came to one.
    fn wants_copy(&self, id: &Id, copy: &Value) -> Option<usize> {
        let number: u8 = id.name.strip_prefix("pull")?.parse().ok()?;
        let needs = |desired: &Desired| {
            desired.copies.contains(&number) && desired.release_namespace() == id.namespace
        };
        let mut now = self.desired_state.now.iter();
        // So is one that may not have heard yet that it needs the copy.
        let is_late = |bundle: &usize| self.recent_changes(*bundle) > 0;
        let is_unknown = |bundle: &usize| {
            (self.lost.contains(bundle) || is_late(bundle))
                && !self.claimed.contains(&(Self::uid(copy), *bundle))
        };
        let is_free = |bundle: &usize| {
            self.allowed.contains(bundle) || self.is_returning(*bundle) || is_unknown(bundle)
        };
        now.find(|(bundle, desired)| needs(desired) && !is_free(bundle))
            .map(|(bundle, _)| *bundle)
    }

    pub(super) fn overwritten(&mut self, write: &Write, before: &Value, after: &Value) {
        let uid = Self::uid(before);
        let origin = self.origins.get(&uid).cloned();
        let (old, new) = (Self::owner(before), Self::owner(after));
        let taking = new.as_ref().filter(|new| old.as_ref() != Some(new));
        if let Some(new) = taking {
            let (namespace, name) = new;
            let claimants = self.desired_state.of_release(namespace, name);
            let may = claimants.iter().any(|bundle| {
                let desired_state = &self.desired_state.ever[bundle];
                // What the agent may not have heard of yet is not what it acts on.
                let unheard = self.recent_changes(*bundle).max(1);
                desired_state
                    .iter()
                    .rev()
                    .take(1 + unheard)
                    .any(|desired| desired.take_ownership)
            });
            if may && let Some(origin) = self.origins.get_mut(&uid) {
                origin.taken = true;
            }
            let is_foreign = origin
                .as_ref()
                .is_some_and(|origin| !origin.actor.deploys_bundles());
            // What a person strips of a release's marks is the release's all the same; what he makes in its place is not.
            let was_marked = self.marked.contains(&(uid.clone(), new.clone()));
            let was_made = was_marked || self.made.contains(&(write.id.clone(), new.clone()));
            // As under the Go agent an upgrade may, and notes that it was there before. So does a correction, or a way back, where somebody made anew
            // what the release had.
            let is_noted = adoption(after) == Some("kept") && (was_made || self.is_upgrading(new));
            if old.is_none() && is_foreign && !may && !was_marked && !is_noted {
                let text = format!("{} was nobody's and becomes {new:?}'s", write.id);
                self.violate("adopts what others made", text);
            }
            if let (Some(old), true) = (&old, may) {
                self.lost_at
                    .insert((uid.clone(), old.clone()), Instant::now());
            }
            // As docs/security.md has it: an upgrade writes once more what is taken from it while it is under way, or before it could hear of it.
            let lost = self.lost_at.get(&(uid.clone(), new.clone()));
            let upgrade = self.attempts.get(new).filter(|_| self.is_upgrading(new));
            let is_late = lost
                .zip(upgrade)
                .is_some_and(|(lost, upgrade)| self.passed(*lost, upgrade.begun) < LATEST_NEWS);
            // And what somebody deleted, if another bundle makes it anew in that very moment.
            let is_new = origin.as_ref().is_some_and(|origin| {
                origin.actor.deploys_bundles() && origin.written.elapsed() < ON_ITS_WAY
            });
            let is_late = is_late || was_made && is_new && self.is_upgrading(new);
            if let (Some(old), false, false) = (&old, may, is_late) {
                let text = format!("{} of {old:?} becomes {new:?}'s", write.id);
                self.violate("takes what another release has", text);
            }
        }
        let keys = [&old, &new].map(|owner| owner.clone().map(|owner| (uid.clone(), owner)));
        let [lost, given] = keys;
        // One that another release took is this one's again once a person has stripped it of all marks.
        if given.is_none() {
            lost.map(|lost| self.marked.remove(&lost));
        }
        // Also where a helm client gave it the marks: whoever goes on with its release has it by them.
        self.marked.extend(given);
        let is_foreign = origin.is_some_and(|origin| !origin.actor.deploys_bundles());
        if is_foreign
            && write.id.plural == "secrets"
            && new.is_none()
            && write.id.name.starts_with("pull")
        {
            let text = format!("{} was there before the agent copied over it", write.id);
            self.violate("overwrites with a copy", text);
        }
    }

    /// Whoever writes objects of a release has the account that the bundle names. What is given back to the release that it was taken from
    /// is written by who took it.
    pub(super) fn account(&mut self, write: &Write, owner: &ReleaseKey) {
        // Whether it may is judged when the marks change.
        if is_note(write) || is_bookkeeping(write) {
            return;
        }
        let bundles_of =
            |(namespace, name): &ReleaseKey| self.desired_state.of_release(namespace, name);
        let bundles = bundles_of(owner);
        let former = write.before.as_deref().and_then(Self::owner);
        let former = former.as_ref().map(bundles_of).unwrap_or_default();
        let allowed: BTreeSet<&str> = bundles
            .iter()
            .chain(&former)
            .flat_map(|bundle| &self.desired_state.ever[bundle])
            .map(|desired| match ACCOUNTS[desired.account] {
                "" if self.has_fallback => "fleet-default",
                account => account,
            })
            .collect();
        let account = write.who.account.as_str();
        if !bundles.is_empty() && !allowed.contains(account) {
            let text = format!(
                "{} of {owner:?} is written as {account:?}: {:?} becomes {:?}",
                write.id, write.before, write.after
            );
            self.violate("wrong account", text);
        }
    }
}
