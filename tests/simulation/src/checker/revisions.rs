//! The history of each release: who wrote which revision, whether it was good, and what the ledger says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use super::attempts::has;
use super::holders::{entry_of, names};
use super::{Checker, FORGED_STATUS, Origin, ReleaseKey, Takeover, named_bundle, release_of};
use crate::apiserver::{Actor, Id, Write};
use crate::desired::bundle_name;
use crate::records::decoded;

/// The status of a forged record that whoever deployed a later revision has closed.
const CLOSED_FORGERY: &str = "forged, superseded";

/// A record that a tenant wrote in the place of the Go agent's last one.
#[derive(Clone, Debug)]
pub(super) struct InPlace {
    pub(super) revision: i64,
    record: Arc<Value>,
    /// What the agent has deployed above it: while one of these is there, nothing goes by the record any more.
    pub(super) later: BTreeSet<i64>,
}

impl Checker {
    /// Takes note of whether the agent has begun to remove a good revision, which an undo goes back to all the same.
    fn keep_half_removed(&mut self, release: &ReleaseKey, revision: i64, write: &Write) {
        const BEFORE: &str = "/metadata/labels/fleetagent.cattle.io~1status-before-removal";
        const STATUS: &str = "/metadata/labels/status";
        let said = |path: &str| {
            let said = write.after.as_deref().and_then(|after| after.pointer(path));
            said.and_then(Value::as_str).unwrap_or_default()
        };
        // A tenant who says that it is good makes it no other.
        if write.who.actor == Actor::Tenant && Self::is_deployed(said(STATUS)) {
            return;
        }
        let is_half_removed = said(STATUS) == "uninstalling" && said(BEFORE) == "deployed";
        let revision = (release.clone(), revision);
        match write.who.agent().is_some() && is_half_removed {
            true => self.half_removed.insert(revision),
            false => self.half_removed.remove(&revision),
        };
    }

    /// Whether a good revision is there whose removal has begun.
    fn has_good_half_removed(&self, release: &ReleaseKey) -> bool {
        let mut half_removed = self.half_removed.iter();
        half_removed.any(|(of, _)| of == release)
    }

    /// Whether a write changes nothing of a forged record but its status: that a later revision is deployed makes it no good one. What stands in the place of
    /// the Go agent's last one may be believed, and counts as any other.
    fn closes_forgery(&self, release: &ReleaseKey, revision: i64, write: &Write) -> bool {
        let records = self.records.get(release);
        let status = records.and_then(|records| records.get(&revision));
        let is_forged =
            status.is_some_and(|status| [FORGED_STATUS, CLOSED_FORGERY].contains(&status.as_str()));
        let in_place = self.in_place.get(release).zip(write.before.as_ref());
        let may_be_believed = in_place
            .is_some_and(|(in_place, before)| Self::uid(&in_place.record) == Self::uid(before));
        is_forged && !may_be_believed && super::attempts::is_same_version(write)
    }

    pub(super) fn keep_records(&mut self, write: &Write) {
        let Some((release, revision)) = Self::record(&write.id) else {
            return;
        };
        self.keep_half_removed(&release, revision, write);
        let had_deployed = self.has_deployed(&release);
        let by_agent = write.who.agent().is_some();
        let known = self.records.get(&release);
        let known = known.and_then(|records| records.get(&revision)).cloned();
        let known_before = known.clone();
        let status = write.after.as_ref().map(|after| {
            let status = after.pointer("/metadata/labels/status");
            let status = status.and_then(Value::as_str).unwrap_or_default();
            match write.who.actor {
                // That a revision was good is not so because a tenant says it, but one that was is again.
                Actor::Tenant if Self::is_deployed(status) => match known {
                    Some(_) if self.were_good.contains(&(release.clone(), revision)) => {
                        status.to_owned()
                    }
                    known => known.unwrap_or_else(|| FORGED_STATUS.to_owned()),
                },
                _ if status == "superseded" && self.closes_forgery(&release, revision, write) => {
                    CLOSED_FORGERY.to_owned()
                }
                _ => status.to_owned(),
            }
        });
        if !write.who.actor.deploys_bundles() && known_before.is_some() && status.is_some() {
            self.relabelled.insert(release.clone(), Instant::now());
        }
        let was_good = known_before.is_some_and(|known| Self::is_deployed(&known));
        match (write.who.actor, &write.after) {
            (Actor::Tenant, Some(_)) if was_good => {
                self.were_good.insert((release.clone(), revision));
            }
            (Actor::Tenant, Some(_)) => {}
            _ => drop(self.were_good.remove(&(release.clone(), revision))),
        }
        if let Some(after) = &write.after {
            match write.who.actor {
                Actor::Go if write.before.is_none() => {
                    self.not_entered.insert(release.clone(), revision);
                    self.written_by_go.clear();
                }
                Actor::Tenant if self.not_entered.get(&release) == Some(&revision) => {
                    let in_place = InPlace {
                        revision,
                        record: Arc::clone(after),
                        later: BTreeSet::new(),
                    };
                    self.in_place.insert(release.clone(), in_place);
                }
                Actor::Tenant if write.before.is_none() && self.is_entered(&release, revision) => {
                    self.under_announced.insert((release.clone(), revision));
                }
                _ => drop(self.under_announced.remove(&(release.clone(), revision))),
            }
        }
        if let (true, Some(after)) = (by_agent, &write.after) {
            self.keep_written(&release, revision, after);
            self.cut_off.remove(&release);
        }
        if let (Actor::Tenant, Some(_)) = (write.who.actor, &write.after) {
            self.tampered.insert(release.clone());
        }
        if let (Actor::Helm, Some("deployed"), Some(after)) =
            (write.who.actor, status.as_deref(), &write.after)
        {
            let written = (revision, Arc::clone(after));
            self.helms.insert(release.clone(), written);
            self.helms_at.insert(release.clone(), Instant::now());
            self.pass_over(&release, after);
        }
        let was_go = match (write.who.actor, &write.after) {
            (Actor::Go, Some(_)) => !self.recorded_by_go.insert((release.clone(), revision)),
            _ => self.recorded_by_go.remove(&(release.clone(), revision)),
        };
        if write.who.actor == Actor::Go && status.as_deref() == Some("deployed") {
            self.leave_attempts(&release);
        }
        let mut is_over = false;
        let good = self.good_as_corrected(&release);
        let records = self.records.entry(release.clone()).or_default();
        match status {
            Some(status) => {
                if status == "uninstalled" && !write.who.actor.deploys_bundles() {
                    // As docs/security.md has it: what the release had is left then.
                    self.forgotten.insert(release.clone());
                }
                // As docs/security.md has it: what a tenant labels as over is begun anew, with its hooks.
                let label = write.after.as_ref();
                let label = label.and_then(|after| after.pointer("/metadata/labels/status"));
                let label = label.and_then(Value::as_str).unwrap_or_default();
                if ![label, &status]
                    .iter()
                    .all(|one| one.starts_with("pending"))
                {
                    is_over = true;
                }
                // As docs/security.md has it: what was corrected below a helm client's revision the Go agent knows nothing of, nor does another bundle.
                let helms = self.helms.get(&release).map(|(helms, _)| *helms);
                let below = records.range(..revision).next_back();
                let is_over_helms = below.is_some_and(|(below, _)| Some(*below) == helms);
                let bundle = write.after.as_deref().and_then(named_bundle);
                let had = self.deployed_for.get(&release).copied();
                let is_taken = by_agent && had.is_some() && bundle.is_some() && bundle != had;
                if is_over_helms && (write.who.actor == Actor::Go || is_taken) {
                    self.forgotten.insert(release.clone());
                }
                // As docs/security.md has it: the Go agent goes by the newest record that says it is deployed, also by a forged one.
                let mut older = records.range(..revision).map(|(_, one)| one.as_str());
                let former = older.rfind(|one| ["deployed", FORGED_STATUS].contains(one));
                if write.who.actor == Actor::Go
                    && status == "deployed"
                    && former == Some(FORGED_STATUS)
                {
                    let taken = Takeover {
                        good,
                        written: std::mem::take(&mut self.written_by_go),
                    };
                    self.taken_above_forged.insert(release.clone(), taken);
                }
                if Self::is_deployed(&status)
                    && records.insert(revision, status.clone()).as_ref() != Some(&status)
                {
                    *self.deployed.entry(release.clone()).or_default() += 1;
                } else {
                    records.insert(revision, status);
                }
                if write.before.is_none() && by_agent {
                    *self.revisions.entry(release.clone()).or_default() += 1;
                    self.withdrawn.remove(&release);
                }
            }
            None => {
                if !write.who.actor.deploys_bundles() {
                    self.forgotten.insert(release.clone());
                    self.robbed.insert(release.clone(), Instant::now());
                }
                if let Some(status) = records.remove(&revision)
                    && by_agent
                    && status.starts_with("pending")
                    && let Some(count) = self.revisions.get_mut(&release)
                {
                    // Withdrawn, as if it had never been.
                    *count = count.saturating_sub(1);
                }
                let is_there = |(revision, _): &(i64, _)| records.contains_key(revision);
                if by_agent && !was_good && self.helms.get(&release).is_some_and(is_there) {
                    self.withdrawn.insert(release.clone());
                }
                // A revision of this number would be another one.
                is_over = true;
            }
        }
        if by_agent
            && !was_good
            && let (Some(before), None) = (&write.before, &write.after)
        {
            self.prune_attempt(&release, before);
        }
        if is_over {
            self.end_hooks(&release, revision);
        }
        if by_agent {
            self.keep_attempt(&release, write);
        }
        let wanting = self.wanting(&release);
        // What goes was another bundle's, which has the release no more: of this one there never was a good revision, or the other one had the
        // release after it.
        let was_anothers = || {
            let before = write.before.as_deref();
            // A helm client names no bundle, and has not made it its own by that.
            let named = before.and_then(named_bundle);
            let named = named.or_else(|| self.written_bundle(&release));
            let last = self.deployed_for.get(&release).copied();
            // An undo of its goes back to what the one before it deployed, which that record names.
            let holder = self.holder(&release);
            let mut bundles = [named, last, holder].into_iter().flatten();
            bundles.any(|bundle| !wanting.contains(&bundle))
        };
        // What a tenant says of the one that is good does not make it another, and what he writes in the place of the Go agent's last one is believed.
        let believed = self.in_place.get(&release).map(|one| one.revision);
        let mut kept = self.records.get(&release).into_iter().flatten();
        let keeps_good = kept.any(|(kept, _)| {
            self.were_good.contains(&(release.clone(), *kept)) || Some(*kept) == believed
        });
        // Whoever deletes the good one after the agent has read the history leaves it none; or one of the Go agent's, whose records are as good as forged ones.
        let is_robbed = self.is_robbed(&release) || was_go && self.forgotten.contains(&release);
        // As docs/security.md has it: what others write under a number that the ledger knew is not believed.
        let is_others = |uid: &String| {
            let origin = self.origins.get(uid);
            origin.is_some_and(|origin| !origin.actor.deploys_bundles())
        };
        let deleted = write.before.as_deref().filter(|_| write.after.is_none());
        let is_disbelieved = deleted.map(Self::uid).as_ref().is_some_and(is_others)
            && self.is_entered(&release, revision);
        if by_agent
            && !wanting.is_empty()
            && had_deployed
            && !keeps_good
            && !self.has_good_half_removed(&release)
            && !is_robbed
            && !is_disbelieved
            && !self.has_deployed(&release)
            && !was_anothers()
        {
            let text = format!("{} leaves {release:?} without a good revision", write.id);
            self.violate("no good revision", text);
        }
        if by_agent && write.after.is_none() {
            let origin = write
                .before
                .as_ref()
                .and_then(|b| self.origins.get(&Self::uid(b)));
            let lacks_owner =
                |before: &Arc<Value>| before.pointer("/metadata/labels/owner").is_none();
            let is_bare = write.before.as_ref().is_some_and(lacks_owner);
            if let Some(origin) = origin
                && !origin.actor.deploys_bundles()
                && self.deployed_by_agent(&release) == 0
                // As docs/security.md has it: it counts as the agent's own, damaged. One without labels no list had shown.
                && !self.under_announced.contains(&(release.clone(), revision))
                && !(is_bare && self.is_entered(&release, revision))
                && !self.was_gone_back_to(&release)
                // Nothing tells what names a bundle of this agent's from what the Go agent deployed for it.
                && write.before.as_deref().and_then(named_bundle).is_none()
            {
                let text = format!(
                    "{} was written by {:?}, of a release that the agent never deployed",
                    write.id, origin.actor
                );
                self.violate("history of others purged", text);
            }
        }
        let records = self.records.get(&release);
        if records.is_none_or(BTreeMap::is_empty) {
            // What has this name next is another release.
            self.deployed_for.remove(&release);
            self.in_place.remove(&release);
        }
    }

    /// What the ledger says of revisions, and of bundles.
    pub(super) fn keep_entered(&mut self, ledger: &Arc<Value>) {
        self.ledger = Some(Arc::clone(ledger));
        let is_given = |(release, bundle): &(&ReleaseKey, &usize)| {
            let entry = entry_of(ledger, release);
            let owner = entry.as_ref().and_then(|entry| entry.get("bundle"));
            owner.is_some_and(|owner| *owner != bundle_name(**bundle))
        };
        let given = self.deployed_for.iter().filter(is_given);
        self.given.extend(given.map(|(release, _)| release.clone()));
        self.give_up();
        let claimed = &self.claimed;
        self.unnoticed.retain(|uid, namespace| {
            let mut needing = claimed.iter().filter(|(copy, _)| copy == uid);
            !needing.any(|(_, bundle)| names(ledger, *bundle, namespace))
        });
        let not_entered = std::mem::take(&mut self.not_entered);
        let not_entered = not_entered.into_iter();
        self.not_entered = not_entered
            .filter(|(release, revision)| !self.is_entered(release, *revision))
            .collect();
    }

    /// As docs/security.md has it: what attempts that failed had brought stays where the Go agent deploys the next version without it.
    fn leave_attempts(&mut self, release: &ReleaseKey) {
        let good = self.deployed.get(release).copied().unwrap_or(0);
        let is_of_attempt = |uid: &String, origin: &Origin| {
            let is_its = origin.release.as_ref() == Some(release) && origin.born >= good;
            is_its && !self.written_by_go.contains(uid)
        };
        let objects = self.origins.iter();
        let left = objects.filter(|(uid, origin)| is_of_attempt(uid, origin));
        let left: Vec<_> = left.map(|(uid, _)| uid.clone()).collect();
        self.given_up.extend(left);
    }

    /// As docs/security.md has it: what only a revision had that a tenant labelled otherwise stays where a helm client passes it over, and so does what lies below
    /// a forged one.
    fn pass_over(&mut self, release: &ReleaseKey, record: &Value) {
        if !self.tampered.contains(release) {
            return;
        }
        let Some(helms) = decoded(record) else {
            return;
        };
        let objects = self.origins.iter();
        let left = objects.filter(|(_, origin)| {
            origin.release.as_ref() == Some(release) && !has(&helms, &origin.id)
        });
        let left: Vec<_> = left.map(|(uid, _)| uid.clone()).collect();
        self.given_up.extend(left);
    }

    /// As docs/removal.md has it: what a bundle brought into another one's release stays where the attempt's record is gone, as one that is over the limit of the
    /// history is while the bundle still wants the release, or has only just left it.
    fn prune_attempt(&mut self, release: &ReleaseKey, record: &Value) {
        let Some(bundle) = named_bundle(record) else {
            return;
        };
        let mut now = self.desired_state.now.get(&bundle).into_iter();
        let left = self.left.get(&(bundle, release.clone()));
        let is_wanted = now.any(|desired| release_of(desired) == *release)
            || left.is_some_and(|left| self.is_upstream_news(*left));
        let last = self.deployed_for.get(release);
        let Some(attempt) = decoded(record) else {
            return;
        };
        if !is_wanted || last.is_none_or(|last| *last == bundle) {
            return;
        }
        let objects = self.origins.iter();
        let left = objects.filter(|(_, origin)| {
            origin.release.as_ref() == Some(release) && has(&attempt, &origin.id)
        });
        let left: Vec<_> = left.map(|(uid, _)| uid.clone()).collect();
        self.given_up.extend(left);
    }

    /// As docs/removal.md has it: of attempts at a release of somebody else's the records go with their bundle, and nothing else. The ledger knows nothing of
    /// the release then; what was made there before the agent last deployed it, if ever, is of no such attempt.
    fn give_up(&mut self) {
        let ledger = self.ledger.as_deref();
        let withdrawn = self.withdrawn.iter().cloned();
        let (known, forgotten): (BTreeSet<_>, BTreeSet<_>) = withdrawn
            .partition(|release| ledger.is_some_and(|ledger| entry_of(ledger, release).is_some()));
        self.withdrawn = known;
        let is_helms = |release: &&ReleaseKey| {
            let helms = self.helms.get(*release);
            let records = self.records.get(*release);
            helms
                .zip(records)
                .is_some_and(|((revision, _), records)| records.contains_key(revision))
        };
        let forgotten: BTreeSet<_> = forgotten.iter().filter(is_helms).collect();
        let is_of_attempt = |origin: &Origin| {
            let release = origin.release.as_ref();
            let release = release.filter(|release| forgotten.contains(release));
            release.is_some_and(|release| {
                let deployed = self.last_deployed.get(release);
                deployed.is_none_or(|deployed| *deployed < origin.written)
            })
        };
        let objects = self.origins.iter();
        let left = objects.filter(|(_, origin)| is_of_attempt(origin));
        let left: Vec<_> = left.map(|(uid, _)| uid.clone()).collect();
        self.given_up.extend(left);
    }

    /// Whether the ledger has a note of a revision.
    pub(super) fn is_entered(&self, release: &ReleaseKey, revision: i64) -> bool {
        let ledger = self.ledger.as_deref();
        let entry = ledger.and_then(|ledger| entry_of(ledger, release));
        let notes = entry.as_ref().and_then(|entry| entry.get("revisions"));
        notes.is_some_and(|notes| notes.get(revision.to_string()).is_some())
    }

    /// Whether a helm client went back to what a bundle wants, and the agent has taken that for the bundle's.
    fn was_gone_back_to(&self, release: &ReleaseKey) -> bool {
        let mut revisions = self.gone_back_to.iter();
        revisions.any(|(of, revision)| of == release && self.is_entered(of, *revision))
    }

    /// Whether an object is that of a record which the agent may believe, as docs/security.md has it: a tenant wrote it in the place of one of the Go
    /// agent's before our agent took over, and it is the last good one.
    pub(super) fn is_believed(&self, id: &Id, object: &Value) -> bool {
        let Some(owner) = Self::owner(object) else {
            return false;
        };
        let (Some(in_place), Some(records)) = (self.in_place.get(&owner), self.records.get(&owner))
        else {
            return false;
        };
        let is_good = |revision: &i64| {
            records
                .get(revision)
                .is_some_and(|one| Self::is_deployed(one))
        };
        records.contains_key(&in_place.revision)
            && !in_place.later.iter().any(is_good)
            && decoded(&in_place.record).is_some_and(|release| {
                let mut documents = release.manifest.split("---\n");
                documents.any(|text| {
                    let document: Value = golib::yaml::decode(text.as_bytes()).unwrap_or_default();
                    document["kind"] == object["kind"] && document["metadata"]["name"] == id.name
                })
            })
    }
}
