//! What the agent has begun with each release, and which bundle it was for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use release::model::Release;
use serde_json::Value;
use tokio::time::Instant;

use super::{Checker, FORGED_STATUS, Origin, ReleaseKey, Takeover, named_bundle, release_of};
use crate::apiserver::{Id, Write};
use crate::records::decoded;

/// A deploy of the agent that has not succeeded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// The bundle that its record names; none where that was before a restore.
    pub(super) bundle: Option<usize>,
    /// The number of the release's good revisions when it began.
    pub(super) good: u64,
    /// Whether there was no good revision when it began.
    pub(super) is_first: bool,
    /// Whether it may have begun as one that is undone where it fails.
    pub(super) is_atomic: bool,
    /// The life of the agent that began it, or went on with it; none where that was before a restore.
    pub(super) life: Option<u32>,
    pub(super) begun: Instant,
}

/// Whether a release has an object of that name.
pub(super) fn has(release: &Release, id: &Id) -> bool {
    let name = format!("name: {}", id.name);
    release.manifest.lines().any(|line| line.trim() == name)
}

/// Whether a record that is written over has the same objects, hooks and values before and after.
pub(super) fn is_same_version(write: &Write) -> bool {
    let version = |record: &Option<Arc<Value>>| {
        let release = decoded(record.as_deref()?)?;
        let hooks: Vec<String> = release
            .hooks
            .iter()
            .map(|hook| hook.manifest.clone())
            .collect();
        Some((release.manifest.clone(), hooks, release.config.clone()))
    };
    version(&write.before) == version(&write.after)
}

impl Checker {
    /// Keeps the newest record that the agent wrote. One that only says that it was followed is none.
    pub(super) fn keep_written(
        &mut self,
        release: &ReleaseKey,
        revision: i64,
        record: &Arc<Value>,
    ) {
        let records = self.records.get(release);
        let is_older = self.written.get(release).is_some_and(|(newest, _)| {
            revision < *newest && records.is_some_and(|records| records.contains_key(newest))
        });
        if !is_older {
            let written = (revision, Arc::clone(record));
            self.written.insert(release.clone(), written);
        }
    }

    /// The bundle that the newest record of the agent names.
    pub(super) fn written_bundle(&self, release: &ReleaseKey) -> Option<usize> {
        let (_, record) = self.written.get(release)?;
        named_bundle(record)
    }

    /// An attempt begins with a pending record and is over once it has succeeded.
    pub(super) fn keep_attempt(&mut self, release: &ReleaseKey, write: &Write) {
        let status = |object: &Option<Arc<Value>>| {
            let status = object.as_deref()?.pointer("/metadata/labels/status")?;
            status.as_str().map(str::to_owned)
        };
        let (before, after) = (status(&write.before), status(&write.after));
        let named = write.after.as_deref().and_then(named_bundle);
        let may_be_atomic = named.is_some_and(|bundle| {
            let mut recent = self.recent(bundle);
            recent.any(|desired| desired.atomic && release_of(desired) == *release)
        });
        let life = write.who.agent();
        match after.as_deref() {
            Some("pending-install" | "pending-upgrade") if before == after => {
                let goes_on = is_same_version(write);
                if let Some(attempt) = self.attempts.get_mut(release) {
                    // A hook of it begins or ends, or the same life takes it up again; else it goes on as what is wanted now.
                    let is_same = attempt.life == life && goes_on;
                    attempt.is_atomic = may_be_atomic || is_same && attempt.is_atomic;
                    attempt.life = life;
                    if !is_same {
                        attempt.begun = Instant::now();
                    }
                }
            }
            _ if before == after => {}
            Some("pending-install" | "pending-upgrade") => {
                let good = self.deployed.get(release).copied().unwrap_or(0);
                let mut statuses = self
                    .records
                    .get(release)
                    .into_iter()
                    .flat_map(BTreeMap::values);
                let deployed = self.deployed_for.get(release).copied();
                let tried = self.attempts.get(release);
                let former = deployed.or_else(|| tried.and_then(|attempt| attempt.bundle));
                let is_given = self.given.contains(release);
                if former.is_some()
                    && (is_given || former != named)
                    && statuses.any(|status| status == FORGED_STATUS)
                {
                    let taken = Takeover {
                        // What another bundle has only tried is below it, too.
                        good: match deployed {
                            Some(_) => self.good_as_corrected(release),
                            None => good + 1,
                        },
                        written: BTreeSet::new(),
                    };
                    self.taken_above_forged.insert(release.clone(), taken);
                }
                let attempt = Attempt {
                    bundle: named,
                    good,
                    is_atomic: may_be_atomic,
                    life,
                    is_first: !self.has_deployed(release),
                    begun: Instant::now(),
                };
                self.attempts.insert(release.clone(), attempt);
            }
            Some("deployed") => {
                self.attempts.remove(release);
                self.given.remove(release);
                if let Some(bundle) = named {
                    self.deployed_for.insert(release.clone(), bundle);
                    let has = (release.clone(), bundle);
                    self.made_again.retain(|_, made_for| *made_for != has);
                }
            }
            _ => {}
        }
    }

    /// The number of a release's good revisions, for what came of them: where nothing was attempted since, what is newer than the last one was
    /// corrected to that.
    pub(super) fn good_as_corrected(&self, release: &ReleaseKey) -> u64 {
        let good = self.deployed.get(release).copied().unwrap_or(0);
        good + u64::from(!self.attempts.contains_key(release))
    }

    /// As docs/security.md has it: what a bundle had deployed before it lost the release, and made again in an attempt, stays.
    pub(super) fn make_again(&mut self, uid: String, release: ReleaseKey) {
        let Some(bundle) = self.written_bundle(&release) else {
            return;
        };
        let last = self.deployed_for.get(&release);
        let made_for = (release, bundle);
        if last.is_some_and(|last| *last != bundle) && self.ever_deployed_for.contains(&made_for) {
            self.made_again.insert(uid, made_for);
        }
    }

    /// Whether an object goes with the attempt that created it: where that was asked for, and where an install, the first or one after all
    /// records are gone, meets what is another's. What others deploy in the meantime makes no success of it.
    pub(super) fn is_undo(&self, release: &ReleaseKey, object: Option<&Origin>) -> bool {
        let born = object.map_or(0, |origin| origin.born);
        let attempt = self.attempts.get(release);
        attempt.is_some_and(|attempt| {
            let is_install = attempt.is_first || !self.has_deployed(release);
            let is_of_attempt =
                born >= attempt.good || object.is_some_and(|one| self.is_above_helms(release, one));
            is_of_attempt && (attempt.is_atomic || is_install)
        })
    }

    /// Whether an undo goes back to what a helm client deployed, which has not what an attempt before that had made.
    fn is_above_helms(&self, release: &ReleaseKey, object: &Origin) -> bool {
        let (Some((helms, record)), Some(records)) =
            (self.helms.get(release), self.records.get(release))
        else {
            return false;
        };
        let mut good = records.iter().filter(|(_, one)| Self::is_deployed(one));
        good.next_back().is_some_and(|(last, _)| last == helms)
            && decoded(record).is_some_and(|release| !has(&release, &object.id))
    }
}
