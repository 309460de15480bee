//! Which hook ran for which revision of which release.

use serde_json::Value;

use release::model::{HookExecution, Release};

use super::{Checker, ReleaseKey, is_bookkeeping, is_note};
use crate::apiserver::{Actor, Id, Write, is_leaving, without_additions};
use crate::records::decoded;

/// A job that the agent created as a hook.
#[derive(Clone, Debug)]
pub(super) struct Run {
    id: Id,
    release: ReleaseKey,
    revision: i64,
    /// The uid of the record that it was created for.
    record: String,
    /// Whether the attempt that created it is over.
    is_over: bool,
    pub(super) has_succeeded: bool,
}

/// The release, the revision and the record that a job says it was created for.
fn signed(job: &Value) -> Option<(ReleaseKey, i64, &str)> {
    const RUN: &str = "/metadata/annotations/fleetagent.cattle.io~1hook-of";
    let mut words = job.pointer(RUN)?.as_str()?.split(' ');
    let (namespace, name) = words.next()?.split_once('/')?;
    let revision = words.next()?.parse().ok()?;
    let release = (namespace.to_owned(), name.to_owned());
    Some((release, revision, words.next_back()?))
}

/// Whether a job has ended, and not well.
fn has_failed(job: &Value) -> bool {
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array);
    let is_failure = |condition: &Value| condition["type"] == "Failed";
    conditions.is_some_and(|conditions| conditions.iter().any(is_failure))
}

/// Whether a record with this status is that of a deploy under way, which runs hooks before its objects and after them.
fn is_deploy(status: &str) -> bool {
    matches!(status, "pending-install" | "pending-upgrade")
}

/// A hook whose name begins so and of which a record does not say that it succeeded.
fn due(release: &Release, letters: &[char]) -> Option<String> {
    let mut hooks = release.hooks.iter();
    let hook = hooks.find(|hook| {
        hook.name.starts_with(letters) && hook.last_run.phase != HookExecution::SUCCEEDED
    })?;
    Some(hook.name.clone())
}

fn has_hook(release: &Release, name: &str) -> bool {
    release.hooks.iter().any(|hook| hook.name == name)
}

fn is_hook_at(release: &Release, name: &str, phase: &str) -> bool {
    let mut hooks = release.hooks.iter();
    hooks.any(|hook| hook.kind == "Job" && hook.name == name && hook.last_run.phase == phase)
}

impl Checker {
    pub(super) fn hook(&mut self, write: &Write) {
        if write.id.plural != "jobs" {
            return;
        }
        let object = write.after.as_ref().or(write.before.as_ref());
        let Some(object) = object else { return };
        let uid = Self::uid(object);
        let by_agent = matches!(write.who.actor, Actor::Agent(_));
        let content = object["spec"].to_string();
        match (&write.before, &write.after) {
            (None, Some(after)) if by_agent => {
                let Some((release, revision, record)) = signed(after) else {
                    return;
                };
                let id = write.id.clone();
                let record = record.to_owned();
                let ran = (
                    id.clone(),
                    release.clone(),
                    revision,
                    record.clone(),
                    content,
                );
                if self.hooks.contains(&ran) {
                    let text = format!(
                        "{id} succeeded in revision {revision} of {release:?} and is run again in it"
                    );
                    self.violate("hook runs twice", text);
                }
                let run = Run {
                    id,
                    release,
                    revision,
                    record,
                    is_over: false,
                    has_succeeded: false,
                };
                self.runs.insert(uid, run);
            }
            // A job of the same name that somebody else created is no run of the hook, and one of an attempt that is over none of the next.
            (_, Some(after))
                if write.who.actor == Actor::System && after.to_string().contains("Complete") =>
            {
                if let Some(run) = self.runs.get_mut(&uid) {
                    run.has_succeeded = true;
                    if !run.is_over {
                        let run = run.clone();
                        let ran = (run.id, run.release, run.revision, run.record, content);
                        self.hooks.insert(ran);
                    }
                }
            }
            // It waits for a finalizer: what is judged of its end is judged now, as whoever takes that off knows nothing of hooks.
            (Some(before), Some(after)) if by_agent && is_leaving(after) && !is_leaving(before) => {
                self.goes(write, before);
            }
            (Some(before), None) => {
                let is_outlived = self.remembers(write, |outlived, _| outlived == uid);
                if by_agent {
                    self.goes(write, before);
                }
                // Nobody can tell any more that it succeeded; nor where several releases have a hook of this name, and it makes way for one of
                // them.
                if !by_agent || is_outlived || self.running(&write.id).is_none() {
                    self.hooks.retain(|(id, ..)| *id != write.id);
                }
            }
            _ => {}
        }
    }

    /// The agent deletes a job. One that has failed is run anew, whatever the record says of it.
    fn goes(&mut self, write: &Write, job: &Value) {
        let uid = Self::uid(job);
        let counts = !has_failed(job) && !self.remembers(write, |outlived, _| outlived == uid);
        let awaited = counts.then(|| self.awaited(&uid));
        if let Some((release, revision)) = awaited.flatten() {
            let text = format!(
                "{} goes, which revision {revision} of {release:?} waits for",
                write.id
            );
            self.violate("deletes a running hook", text);
        }
    }

    /// An attempt at a revision is over: what comes now is another one.
    pub(super) fn end_hooks(&mut self, release: &ReleaseKey, revision: i64) {
        self.hooks
            .retain(|(_, of, known, ..)| of != release || *known != revision);
        for run in self.runs.values_mut() {
            run.is_over |= run.release == *release && run.revision == revision;
        }
    }

    /// A hook of which a record says that it succeeded was created for that revision of that release, and has succeeded.
    pub(super) fn has_run(&mut self, write: &Write) {
        let (Some((release, revision)), Some(before), Some(after)) =
            (Self::record(&write.id), &write.before, &write.after)
        else {
            return;
        };
        let Some(new) = decoded(after).filter(|new| !new.hooks.is_empty()) else {
            return;
        };
        let status = |record: &Value| {
            let status = record.pointer("/metadata/labels/status");
            status
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let was_under_way = is_deploy(&status(before));
        if was_under_way
            && status(after) == "deployed"
            && let Some(hook) = due(&new, &['p', 'q'])
        {
            let text = format!(
                "revision {revision} of {release:?} is deployed, and its hook {hook} has not succeeded"
            );
            self.violate("deployed before its hook", text);
        }
        let old = decoded(before);
        let has_succeeded =
            |release: &Release, name: &str| is_hook_at(release, name, HookExecution::SUCCEEDED);
        for hook in &new.hooks {
            let was_so = old
                .as_ref()
                .is_some_and(|old| has_succeeded(old, &hook.name));
            if was_so || !has_succeeded(&new, &hook.name) {
                continue;
            }
            let id = Id::new("batch", "jobs", &release.0, &hook.name);
            let is_it = |run: &Run| {
                run.id == id
                    && run.release == release
                    && run.revision == revision
                    && run.record == Self::uid(after)
                    && run.has_succeeded
            };
            let mut runs = self.runs.values();
            if !runs.any(is_it) && !self.remembers(write, |_, run| is_it(run)) {
                let text = format!(
                    "{id} did not run for revision {revision} of {release:?}, which says that it succeeded"
                );
                self.violate("hook did not run", text);
            }
        }
    }

    /// Whether whoever writes knows such a hook, by uid, as one that has succeeded, of before the local cluster was restored: as docs/security.md has it, the
    /// life of the agent that lived on goes by that with the write that was under way. What it does once it has written the ledger counts.
    fn remembers(&self, write: &Write, is_it: impl Fn(&str, &Run) -> bool) -> bool {
        let life = write.who.agent();
        let lives_on = self.is_restored && life.is_some() && life == self.lived_on;
        let mut outlived = self.outlived.iter();
        lives_on && outlived.any(|(uid, run)| is_it(uid, run))
    }

    /// The release and the revision that wait for this job, which makes way for no other by its policy.
    fn awaited(&self, uid: &str) -> Option<(ReleaseKey, i64)> {
        let run = self.runs.get(uid)?;
        let (revision, record) = self.written.get(&run.release)?;
        let release = decoded(record)?;
        let is_awaited = run.id.name.starts_with('q')
            && *revision == run.revision
            && release.status().is_pending()
            && is_hook_at(&release, &run.id.name, HookExecution::RUNNING);
        is_awaited.then(|| (run.release.clone(), run.revision))
    }

    /// The release with this hook that is being written in its namespace, and the revision; none where several are.
    fn running(&self, id: &Id) -> Option<(ReleaseKey, i64)> {
        let releases = self
            .records
            .iter()
            .filter(|((namespace, _), _)| *namespace == id.namespace);
        let mut pending = releases.filter_map(|(key, records)| {
            let (revision, status) = records.last_key_value()?;
            let (of, record) = self.written.get(key)?;
            let has = || decoded(record).is_some_and(|release| has_hook(&release, &id.name));
            (status.starts_with("pending") && of == revision && has())
                .then(|| (key.clone(), *revision))
        });
        let first = pending.next()?;
        pending.next().is_none().then_some(first)
    }

    /// Objects are written once the hooks that precede them have succeeded, as the record says, which [`Self::has_run`] holds against what ran.
    pub(super) fn after_hooks(&mut self, write: &Write, owner: &ReleaseKey) {
        let after = write.after.as_deref();
        let Some(after) = after.filter(|after| !Self::is_hook(after)) else {
            return;
        };
        let plain = without_additions(after);
        let content = format!("{} {}", plain["data"], plain["spec"]);
        let former = self.contents.insert(write.id.clone(), content.clone());
        // What a correction puts back is the former revision's, and nothing of the one that waits.
        if is_note(write) || is_bookkeeping(write) || former == Some(content) {
            return;
        }
        let Some((revision, hook)) = self.due(owner, 'p', is_deploy) else {
            return;
        };
        let text = format!(
            "{} is written for revision {revision} of {owner:?}, whose hook {hook} has not succeeded",
            write.id
        );
        self.violate("object before its hook", text);
    }

    /// Objects of a release that is removed go once the hooks that precede that have succeeded. Those of a record that nobody here wrote are not run, nor those
    /// of what was removed before, as it or a record above it says. Who wants the release again takes away what it has no more without a removal.
    pub(super) fn after_delete_hooks(&mut self, write: &Write, owner: &ReleaseKey) {
        let written = self.written.get(owner);
        let Some((revision, record)) = written.filter(|_| write.who.agent().is_some()) else {
            return;
        };
        let origin = self.origins.get(&Self::uid(record));
        let before = record.pointer("/metadata/labels/fleetagent.cattle.io~1status-before-removal");
        let records = self.records.get(owner);
        let records = records.into_iter();
        let mut above = records.flat_map(|all| all.range(revision + 1..));
        if origin.is_none_or(|origin| !matches!(origin.actor, Actor::Agent(_)))
            || before.is_some_and(|before| before == "uninstalled")
            || above.any(|(_, status)| status == "uninstalled")
            || self.claimants(owner) > 0
        {
            return;
        }
        let Some((revision, hook)) = self.due(owner, 'r', |status| status == "uninstalling") else {
            return;
        };
        let text = format!(
            "{} goes with revision {revision} of {owner:?}, whose hook {hook} has not succeeded",
            write.id
        );
        self.violate("removal before its hook", text);
    }

    /// A hook whose name begins so and of which the newest record that the agent wrote of a release, in such a state, does not say that it succeeded.
    fn due(
        &self,
        release: &ReleaseKey,
        letter: char,
        is_state: impl Fn(&str) -> bool,
    ) -> Option<(i64, String)> {
        let (revision, record) = self.written.get(release)?;
        let status = self.records.get(release)?.get(revision)?;
        let written = decoded(record).filter(|_| is_state(status))?;
        Some((*revision, due(&written, &[letter])?))
    }
}
