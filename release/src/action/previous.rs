//! Earlier revisions: reading, superseding and pruning their records, and the objects they put into the
//! cluster, those of the last good one and those of later ones that failed.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use objects::manifest::documents;
use objects::{Object, ObjectKey};
use serde_json::{Value, json};

use super::error::DeployError;
use super::former::{Former, former_objects};
use super::known_records::KnownRecords;
use super::records::{first_attempt, last_good, read_if_possible, stored_objects, stored_of_hooks};
use super::retained::{Obsolete, Retained, is_container};
use super::unquoted::error_unquoted;
use crate::kube::{Cluster, Owner, Spared, is_kept, take_back};
use crate::model::{HOLDS_CONTAINERS_LABEL, Release, Status};
use crate::state::Action;
use crate::state::ownership::Operation;
use crate::storage::{Deletable, Provenance, Storage, StorageError, StoredRelease, StoredRevision};

/// How many objects of attempts of others are looked at, what their hooks make included.
pub(super) const MAX_OF_OTHERS: usize = 10_000;

/// What somebody else has deployed, and counts as gone only as a later label says so. No attempt before it takes that away.
#[derive(Debug, Default)]
struct PassedOver {
    objects: HashSet<ObjectKey>,
    /// Whether it cannot be read: any object may be its.
    is_unread: bool,
}

impl PassedOver {
    fn may_have(&self, key: &ObjectKey) -> bool {
        self.is_unread || self.objects.contains(key)
    }
}

/// Objects of revisions, each with the revision and without its body, for deletion only.
#[derive(Debug, Default)]
pub(super) struct Outlines {
    objects: Vec<(i64, Object)>,
    /// Those that one of the revisions asks to keep: what asks that is in the body.
    kept: HashSet<ObjectKey>,
    /// What their hooks make, where that was asked for.
    of_hooks: Vec<Object>,
    /// What revisions that were not written here have.
    of_others: Vec<Object>,
    /// Whether one of the revisions cannot be read.
    is_incomplete: bool,
    /// Whether revisions of others have more than is looked at: any object may be one that they ask to keep.
    is_too_much: bool,
    /// What others have deployed.
    passed_over: PassedOver,
    /// Which objects of others were looked at, and which that their hooks make.
    names_of_others: [HashSet<ObjectKey>; 2],
}

impl Outlines {
    /// Of somebody else's attempt nothing is deleted. What it asks to keep stays, and what it or its hooks have may stay in what else would go. Nothing of
    /// one that `is_passed_over` is taken away with an attempt. Anybody may have written it, so that there is a limit.
    fn add_of_others(&mut self, objects: Vec<Object>, of_hooks: Vec<Object>, is_passed_over: bool) {
        let asked: Vec<ObjectKey> = asking_to_be_kept(&objects).collect();
        let all = objects.iter().filter(|_| is_passed_over).map(Object::key);
        let passed_over: Vec<ObjectKey> = all.collect();
        // Attempts of one chart have the same objects.
        let [known, known_of_hooks] = &self.names_of_others;
        let objects = unknown(objects, known);
        let of_hooks = unknown(of_hooks, known_of_hooks);
        let count = known.len() + known_of_hooks.len() + objects.len() + of_hooks.len();
        if count > MAX_OF_OTHERS {
            (self.is_incomplete, self.is_too_much) = (true, true);
            return;
        }
        self.kept.extend(asked);
        self.passed_over.objects.extend(passed_over);
        let [known, known_of_hooks] = &mut self.names_of_others;
        known.extend(objects.iter().map(Object::key));
        known_of_hooks.extend(of_hooks.iter().map(Object::key));
        self.of_others.extend(objects);
        self.of_hooks.extend(of_hooks);
    }

    fn add(&mut self, revision: i64, objects: Vec<Object>) {
        self.kept.extend(asking_to_be_kept(&objects));
        let names = objects.into_iter().map(|object| Object {
            body: Value::Null,
            ..object
        });
        self.objects.extend(names.map(|object| (revision, object)));
    }
}

/// Objects without what they contain. Of one that the API server has named only its body tells whether it is to be kept, and nobody can ask for any other.
pub(super) fn outlined(objects: Vec<Object>) -> impl Iterator<Item = Object> {
    let kept = json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}});
    objects.into_iter().filter_map(move |object| {
        let body = match object.name.is_empty() {
            true if !is_kept(&object.body) => return None,
            true => kept.clone(),
            false => Value::Null,
        };
        Some(Object { body, ..object })
    })
}

/// Those that are not known yet, each once and without its body.
fn unknown(objects: Vec<Object>, known: &HashSet<ObjectKey>) -> Vec<Object> {
    let mut new = HashSet::new();
    let objects = outlined(objects);
    objects
        .filter(|object| !known.contains(&object.key()) && new.insert(object.key()))
        .collect()
}

/// What stored objects ask to keep.
fn asking_to_be_kept<'o>(
    objects: impl IntoIterator<Item = &'o Object>,
) -> impl Iterator<Item = ObjectKey> {
    let kept = objects.into_iter().filter(|object| is_kept(&object.body));
    kept.map(Object::key)
}

/// The objects that earlier revisions put into the cluster.
#[derive(Debug, Default)]
pub(super) struct PreviousObjects {
    /// Objects of the last good revision, as its manifest has them.
    pub(super) good: BTreeMap<ObjectKey, Object>,
    /// Their order in that manifest.
    order: Vec<ObjectKey>,
    /// Objects of later revisions that failed, with the revision and without their bodies, for deletion only.
    others: Vec<(i64, Object)>,
    /// Where somebody else wrote the last good revision: those of attempts of ours below it, since the last good one of ours. Nobody knows what
    /// they created of that, so it goes once the next revision has all of its own, as what the former ones had does, and not before.
    below: Vec<(i64, Object)>,
    /// What of all these a revision asks to keep. Only a revision that succeeds ends that by not asking any more, whatever is said by the object itself.
    kept: HashSet<ObjectKey>,
    /// Where somebody else wrote the last good revision: the last one before it that was written here, and what it has, without bodies.
    /// What he says that the release has hides none of it.
    hidden: Option<(i64, Vec<Object>)>,
    /// What hooks of all these make, where a namespace or definition is dropped: that might take it along.
    of_hooks: Vec<Object>,
    /// What later revisions have that were not written here.
    of_others: Vec<Object>,
    /// What former revisions have, or their hooks make, in namespaces and definitions that are dropped.
    of_former: Former,
    /// Whether one of the revisions cannot be read, so that nobody knows what else there is in a namespace.
    is_incomplete: bool,
    /// Whether somebody else's have more than is looked at, so that nothing is dropped.
    is_too_much: bool,
    /// What somebody else has deployed, which no undo takes away.
    passed_over: PassedOver,
    /// Whether the last good revision was written here, and deployed, so that what it has is the release's.
    is_proven: bool,
    /// Whether the last good revision is the deployed one: of an older one, others may have by now what a later revision dropped.
    is_deployed: bool,
    /// The operation by which an object of the last good revision is dropped.
    drop: Option<Operation>,
    /// When the first attempt at the release began: no attempt created an older object.
    pub(super) since: Option<Timestamp>,
}

impl PreviousObjects {
    /// The objects of the last good revision, in its order, and, for deletion only, `others` of later revisions of a `history`.
    pub(super) fn new(history: &[StoredRevision], good: Vec<Object>, others: Outlines) -> Self {
        let mut kept = others.kept;
        kept.extend(asking_to_be_kept(&good));
        let mut previous = Self {
            others: others.objects,
            kept,
            of_hooks: others.of_hooks,
            of_others: others.of_others,
            is_incomplete: others.is_incomplete,
            is_too_much: others.is_too_much,
            passed_over: others.passed_over,
            since: first_attempt(history),
            ..Self::default()
        };
        for object in good {
            previous.order.push(object.key());
            previous.good.insert(object.key(), object);
        }
        previous
    }

    /// Marks the last good revision as an attempt that is undone.
    pub(super) fn undone(mut self) -> Self {
        self.drop = Some(Operation::Undo);
        self
    }

    /// Lets go of what objects say, once nothing is written over them any more.
    pub(super) fn forget_bodies(&mut self) {
        self.good
            .values_mut()
            .for_each(|object| object.body = Value::Null);
    }

    /// Whether the last good revision was written here.
    pub(super) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Whether the last good revision proves that this object is the release's, so that its owner needs no check.
    pub(super) fn proves(&self, object: &Object) -> bool {
        self.is_proven && self.is_deployed && self.good.contains_key(&object.key())
    }

    /// Whether `revision` is one of ours that somebody else's hides, which stays until the next one is deployed.
    pub(super) fn is_hidden(&self, revision: i64) -> bool {
        let hidden = self.hidden.iter().map(|(revision, _)| *revision);
        let below = self.below.iter().map(|(revision, _)| *revision);
        hidden.chain(below).any(|hidden| hidden == revision)
    }

    /// Whether only the record of `revision`, which is below the last good one, says what may have to stay of what goes: a try that fails leaves it to
    /// the next one.
    pub(super) fn needs(&self, revision: i64) -> bool {
        self.of_former
            .needs(revision, |key| self.good.contains_key(key))
    }

    fn hidden(&self) -> impl Iterator<Item = &Object> {
        self.hidden.iter().flat_map(|(_, objects)| objects)
    }

    /// All objects that a revision has which was written here. What somebody else's has was there before: an undo of what is written over it leaves it, also
    /// once nothing shows any more who had it first.
    pub(super) fn recorded(&self) -> HashSet<ObjectKey> {
        let good = self.good.keys().filter(|_| self.is_proven).cloned();
        let others = self.others.iter().map(|(_, object)| object);
        let others = others.chain(self.hidden()).map(Object::key);
        good.chain(others).collect()
    }

    /// Objects of earlier revisions that are not desired any more, each once.
    pub(super) fn obsolete(&self, desired: &[Object]) -> Obsolete {
        let mut seen: HashSet<ObjectKey> = desired.iter().map(Object::key).collect();
        let others = self.others.iter().chain(&self.below);
        let others = others.map(|(_, object)| (object, Operation::Undo));
        let drop = self.drop.unwrap_or(Operation::Drop);
        let good = self.order.iter().filter_map(|key| self.good.get(key));
        let all = good.chain(self.hidden()).map(|object| (object, drop));
        let mut obsolete = Obsolete {
            of_hooks: self.of_hooks.clone(),
            is_incomplete: self.is_incomplete,
            ..Obsolete::default()
        };
        for (object, operation) in all.chain(others) {
            let key = object.key();
            let is_undo = operation == Operation::Undo;
            let is_kept = self.asks_to_keep(&key) || is_undo && self.passed_over.may_have(&key);
            match (seen.insert(key), is_kept) {
                (false, _) => {}
                (true, true) => obsolete.kept.push(object.clone()),
                (true, false) => obsolete.objects.push((object.clone(), operation)),
            }
        }
        obsolete.of_former = self.of_former.beside(&seen);
        let is_beside = |one: &&Object| one.name.is_empty() || !seen.contains(&one.key());
        let of_others = self.of_others.iter().filter(is_beside);
        obsolete.of_others = of_others.cloned().collect();
        obsolete
    }

    /// Objects that only the record of a failed `revision` knows: neither the last good one nor `desired`
    /// has them, and none asks to keep them. They are deleted before that record is.
    pub(super) fn orphans(&self, revision: i64, desired: &[Object]) -> Vec<(Object, Operation)> {
        let desired: HashSet<ObjectKey> = desired.iter().map(Object::key).collect();
        let stays = |key: &ObjectKey| {
            desired.contains(key) || self.asks_to_keep(key) || self.passed_over.may_have(key)
        };
        self.only_of(revision)
            .filter(|object| !stays(&object.key()))
            .map(|object| (object.clone(), Operation::Undo))
            .collect()
    }

    /// Whether a revision asks to keep an object, or may: never is one deleted for not having been seen.
    fn asks_to_keep(&self, key: &ObjectKey) -> bool {
        self.is_too_much || self.kept.contains(key)
    }

    /// Whether the record of a failed `revision` has what is `desired` and the last good one has not: until the next
    /// record is there nothing else says that the release has it.
    pub(super) fn is_only_record(&self, revision: i64, desired: &[Object]) -> bool {
        let desired: HashSet<ObjectKey> = desired.iter().map(Object::key).collect();
        self.only_of(revision)
            .any(|object| desired.contains(&object.key()))
    }

    /// Objects of a failed `revision` that the last good one has not.
    fn only_of(&self, revision: i64) -> impl Iterator<Item = &Object> {
        let mut good: HashSet<ObjectKey> = self.good.keys().cloned().collect();
        good.extend(self.hidden().map(Object::key));
        let others = self.others.iter().filter(move |(of, _)| *of == revision);
        others
            .map(|(_, object)| object)
            .filter(move |object| !good.contains(&object.key()))
    }
}

/// Prunes the history of a release.
pub(super) struct Pruning<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) storage: &'a Storage,
    pub(super) owner: &'a Owner,
    /// The records that are known of: whoever writes another one may have any of the objects.
    pub(super) known: KnownRecords,
    pub(super) retained: Retained<'a>,
    pub(super) previous: &'a PreviousObjects,
    pub(super) desired: &'a [Object],
}

impl Pruning<'_> {
    /// Deletes the objects that only the record of `revision` knows.
    ///
    /// # Errors
    /// Some cannot be deleted, or somebody has gone on with the release since its history was read.
    pub(super) async fn delete_orphans(&self, revision: i64) -> Result<(), DeployError> {
        let orphans = self.previous.orphans(revision, self.desired);
        let (orphans, _) = self.retained.split(orphans);
        let orphans: Vec<_> = orphans.iter().map(|(object, _)| (object, None)).collect();
        // Rendering takes its time.
        let check = || self.known.check(self.storage, &self.owner.name);
        take_back(
            self.cluster,
            self.owner,
            Spared::before(self.previous.since),
            &orphans,
            check,
        )
        .await?;
        Ok(())
    }

    /// Whether the record of `revision` must stay until the next one is there.
    pub(super) fn is_only_record(&self, revision: i64) -> bool {
        self.previous.is_only_record(revision, self.desired)
    }

    /// Deletes a record, and before it what only that knows.
    pub(super) async fn prune(&self, record: &Deletable) -> Result<(), DeployError> {
        self.delete_orphans(record.revision()).await?;
        let deleted = self.storage.delete(&self.owner.name, record).await;
        deleted.map_err(DeployError::Storage)
    }
}

/// The objects that may be in the cluster: those of `from`, the last good revision, and those that later
/// revisions may have created, which failed. Where somebody else wrote the good one, those of ours below it too. What was `read` before is not read
/// again. What hooks make is asked for only where a namespace or definition is not `desired` any more.
pub(super) async fn previous_objects(
    cluster: &Cluster,
    storage: &Storage,
    history: &[StoredRevision],
    (name, desired): (&str, &[Object]),
    action: Action,
    from: Option<&Release>,
    read: Option<&Release>,
) -> Result<PreviousObjects, DeployError> {
    let good = action.from().unwrap_or_default();
    let is_proven = from.is_some_and(|from| storage.proves(name, from.revision, from));
    let later: Vec<&StoredRevision> = history
        .iter()
        .filter(|head| head.revision > good && head.revision != action.revision())
        .collect();
    if good == 0 && later.is_empty() {
        return Ok(PreviousObjects::default());
    }
    let former = stored_objects(cluster, from).await?;
    // Also where nobody can read it, and no other one takes its place.
    let is_others = good > 0 && !is_proven;
    let hidden = match is_others {
        true => last_good(storage, history, name, good).await?,
        false => None,
    };
    let of_hidden = stored_objects(cluster, hidden.as_deref()).await?;
    let is_dropped = |object: &Object| {
        let stays = || desired.iter().any(|one| one.key() == object.key());
        is_container(object) && !stays()
    };
    let dropped = former.iter().chain(&of_hidden);
    let dropped = dropped.filter(|one| is_dropped(one)).map(|one| Object {
        resource: Arc::clone(&one.resource),
        namespace: one.namespace.clone(),
        name: one.name.clone(),
        body: Value::Null,
    });
    let dropped: Vec<Object> = dropped.collect();
    let with_hooks = !dropped.is_empty();
    let later = Unfinished {
        good,
        revisions: &later,
        with_hooks,
        read,
    };
    let others = unfinished_objects(cluster, storage, name, later).await?;
    let mut previous = PreviousObjects::new(history, former, others);
    for release in [from, hidden.as_deref()].into_iter().filter(|_| with_hooks) {
        let of_hooks = stored_of_hooks(cluster, release).await?;
        previous.of_hooks.extend(of_hooks);
    }
    if with_hooks {
        let dropped: Vec<&Object> = dropped.iter().collect();
        let former = former_objects(cluster, storage, history, (name, good), &dropped).await?;
        previous.is_incomplete |= former.is_incomplete();
        previous.of_former = former;
    }
    previous.is_proven = is_proven;
    // So where a removal was cut off that left some, whose other records are gone with what they asked to keep.
    let holds_containers = |from: &Release| from.labels.contains_key(HOLDS_CONTAINERS_LABEL);
    previous.is_incomplete |= good > 0 && from.is_none_or(holds_containers);
    let head = history.iter().find(|head| head.revision == good);
    let is_deployed = |from: &Release| from.status() == Status::Deployed;
    previous.is_deployed =
        from.is_some_and(is_deployed) && head.is_some_and(|head| head.status == Status::Deployed);
    if is_others {
        let since = hidden.as_ref().map_or(0, |hidden| hidden.revision);
        let below = history
            .iter()
            .filter(|head| head.revision > since && head.revision < good);
        let mut outlines = objects_below(cluster, storage, name, below).await?;
        previous.is_incomplete |= outlines.is_incomplete;
        previous.below = outlines.objects.split_off(0);
        if let Some(hidden) = hidden {
            outlines.add(hidden.revision, of_hidden);
            let names = outlines.objects.into_iter().map(|(_, object)| object);
            previous.hidden = Some((hidden.revision, names.collect()));
        }
        previous.kept.extend(outlines.kept);
    }
    Ok(previous)
}

/// Revisions whose objects may still be in the cluster.
pub(super) struct Unfinished<'a> {
    /// The last good one; 0 for none.
    pub(super) good: i64,
    /// All later than that.
    pub(super) revisions: &'a [&'a StoredRevision],
    /// Whether what their hooks make is asked for.
    pub(super) with_hooks: bool,
    /// What was read before, which is not read again.
    pub(super) read: Option<&'a Release>,
}

/// The objects, without their bodies, of those of the revisions that were written here. Records are read one by one: anybody may have written them.
///
/// # Errors
/// Records cannot be read, or a kind of theirs is not served at this moment.
pub(super) async fn unfinished_objects(
    cluster: &Cluster,
    storage: &Storage,
    name: &str,
    Unfinished {
        good,
        revisions,
        with_hooks,
        read,
    }: Unfinished<'_>,
) -> Result<Outlines, DeployError> {
    let mut unfinished = Outlines::default();
    for head in revisions {
        let (revision, status) = (head.revision, &head.status);
        // No revision can have superseded one newer than the last good one: somebody has written that over how an attempt ended.
        let is_invented = good > 0 && *status == Status::Superseded;
        // So may a label say of one that was written here that its objects are gone, with which a namespace would go.
        let is_gone = *status == Status::Uninstalled;
        let is_asked = is_gone && with_hooks && head.provenance == Provenance::Noted;
        if is_over(status) && !is_invented && !is_asked {
            continue;
        }
        let release = match read.filter(|read| read.revision == revision) {
            Some(read) => Some(Cow::Borrowed(read)),
            None => read_if_possible(storage, name, revision)
                .await?
                .map(|stored| Cow::Owned(stored.into_release())),
        };
        let is_passed_over = is_passed_over(revisions, head);
        let Some(release) = release.as_deref() else {
            unfinished.is_incomplete = true;
            unfinished.passed_over.is_unread |= is_passed_over;
            continue;
        };
        let is_own = storage.recognises(name, revision, release) && !is_gone;
        let of_hooks = async || match with_hooks {
            true => stored_of_hooks(cluster, Some(release)).await,
            false => Ok(Vec::new()),
        };
        if is_own {
            let objects = stored_objects(cluster, Some(release)).await?;
            unfinished.add(revision, objects);
            unfinished.of_hooks.extend(of_hooks().await?);
            continue;
        }
        // Objects of somebody else's attempt, or those a forged record names, are not deleted here.
        let is_asked = with_hooks || is_passed_over;
        let is_readable = !is_asked || documents(&release.manifest).is_ok();
        let objects = stored_objects(cluster, Some(release)).await;
        match (objects, of_hooks().await) {
            (Ok(objects), Ok(of_hooks)) if is_readable => {
                unfinished.add_of_others(objects, of_hooks, is_passed_over);
            }
            _ => {
                unfinished.is_incomplete = true;
                unfinished.passed_over.is_unread |= is_passed_over;
            }
        }
    }
    Ok(unfinished)
}

/// Whether a revision is the deployed one, and counts as gone only as a later one's label says that the release was removed, or begins to be: who removes
/// one here notes what it was before. What the deployed one has is not for an attempt before it to take away.
fn is_passed_over(revisions: &[&StoredRevision], head: &StoredRevision) -> bool {
    let says_removed = |one: &&StoredRevision| {
        let is_begun = one.status == Status::Uninstalling && one.before_removal.is_none();
        one.revision > head.revision && (one.status == Status::Uninstalled || is_begun)
    };
    head.status == Status::Deployed && revisions.iter().any(says_removed)
}

/// The objects, without their bodies, of attempts among `revisions` that were written here, by whichever of those that share the digests,
/// and lie below one that somebody else wrote. How they ended their records say: he may have written their labels.
async fn objects_below<'h>(
    cluster: &Cluster,
    storage: &Storage,
    name: &str,
    revisions: impl Iterator<Item = &'h StoredRevision>,
) -> Result<Outlines, DeployError> {
    let mut below = Outlines::default();
    let are_noted =
        |head: &&StoredRevision| matches!(head.provenance, Provenance::Noted | Provenance::Reused);
    for head in revisions.filter(are_noted) {
        let revision = head.revision;
        let record = read_if_possible(storage, name, revision).await?;
        below.is_incomplete |= record.is_none();
        let record = record.filter(|record| {
            storage.recognises(name, revision, record) && !is_over(&record.status())
        });
        let objects = stored_objects(cluster, record.as_deref()).await?;
        below.add(revision, objects);
    }
    Ok(below)
}

/// Whether what a revision had is gone, or a later one's.
fn is_over(status: &Status) -> bool {
    matches!(status, Status::Superseded | Status::Uninstalled)
}

/// Closes every other record: a deployed one is superseded now, one that was cut off has failed, and
/// a removal that gave way is over. A failure is only logged: the next deployment comes here again,
/// and readers take the newest deployed one. What of them was `read` before is not read again.
pub(super) async fn supersede(
    storage: &Storage,
    history: &[StoredRevision],
    newest: &Release,
    mut read: BTreeMap<i64, StoredRelease>,
) {
    let others = history
        .iter()
        .filter(|head| head.revision != newest.revision);
    for (head, closed) in others.filter_map(|head| Some((head, closed(&head.status)?))) {
        let is_it = |old: &StoredRelease| *old.uid() == head.uid;
        let old = match read.remove(&head.revision).filter(is_it) {
            Some(old) => Ok(old),
            None => storage.get_listed(&newest.name, head).await,
        };
        let result = match old {
            Ok(mut old) => {
                if let Some(info) = &mut old.info {
                    info.status = closed;
                }
                storage.update(&old).await
            }
            Err(error) => Err(error),
        };
        match result {
            // Pruned, by us or by somebody else.
            Ok(()) | Err(StorageError::NotFound) => {}
            Err(error) => {
                let error = error_unquoted(&error);
                logging::warn!(
                    release = newest.name,
                    revision = head.revision,
                    error,
                    "cannot close the record of an earlier revision"
                );
            }
        }
    }
}

/// Deletes records of somebody else's that are too many now that `deployed` is. A failure is only logged: the next deployment comes here again.
pub(super) async fn prune_outdated(
    storage: &Storage,
    deployed: &Release,
    outdated: &[StoredRevision],
) {
    let name = &deployed.name;
    let outdated = outdated.iter();
    for record in outdated.filter_map(|head| Deletable::outdated(head, deployed)) {
        if let Err(failed) = storage.delete(name, &record).await {
            let error = error_unquoted(&failed);
            let revision = record.revision();
            logging::warn!(name, revision, error, "cannot prune a record");
        }
    }
}

/// What a record says of itself once a later revision is deployed; none if it says so already.
fn closed(status: &Status) -> Option<Status> {
    match status {
        Status::Deployed => Some(Status::Superseded),
        Status::Uninstalling => Some(Status::Uninstalled),
        status if status.is_pending() => Some(Status::Failed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::kube::fixture;

    fn object(name: &str) -> Object {
        fixture::config_map("apps", name)
    }

    #[test]
    fn the_only_record_of_a_desired_object_stays_until_the_next_is_stored() {
        let good = vec![object("good")];
        let mut others = Outlines::default();
        for (revision, name) in [(2, "good"), (3, "wanted"), (4, "dropped")] {
            others.add(revision, vec![object(name)]);
        }
        let previous = PreviousObjects::new(&[], good, others);
        let desired = [object("good"), object("wanted")];
        let orphans = |revision| previous.orphans(revision, &desired).len();
        assert_eq!([2, 3, 4].map(orphans), [0, 0, 1]);
        let is_only_record = |revision| previous.is_only_record(revision, &desired);
        assert_eq!([2, 3, 4].map(is_only_record), [false, true, false]);
    }

    /// By what the last good revision says, and what a later one that failed does.
    #[rstest]
    #[case::asks(Some("keep"), None, true)]
    #[case::in_other_letters(Some(" Keep"), None, true)]
    #[case::taken_off_by_an_attempt_that_failed(Some("keep"), Some(None), true)]
    #[case::added_by_an_attempt_that_failed(None, Some(Some("keep")), true)]
    #[case::taken_off_by_a_version_that_succeeded(None, None, false)]
    #[case::nobody_asks(None, Some(None), false)]
    fn what_a_revision_asks_to_keep_outlives_a_version_without_it(
        #[case] good: Option<&str>,
        #[case] failed: Option<Option<&str>>,
        #[case] is_kept: bool,
    ) {
        let claim = |policy: Option<&str>| {
            let annotations = policy.map(|policy| json!({"helm.sh/resource-policy": policy}));
            let body = json!({"metadata": {"annotations": annotations}});
            Object {
                body,
                ..object("data")
            }
        };
        let mut others = Outlines::default();
        if let Some(policy) = failed {
            others.add(2, vec![claim(policy)]);
        }
        let mut previous = PreviousObjects::new(&[], vec![claim(good)], others);
        previous.forget_bodies();
        let Obsolete { objects, kept, .. } = previous.obsolete(&[]);
        assert_eq!(
            (objects.len(), kept.len()),
            if is_kept { (0, 1) } else { (1, 0) }
        );
        assert!(previous.obsolete(&[object("data")]).kept.is_empty());
        // One that no good revision has.
        let mut others = Outlines::default();
        others.add(2, vec![claim(good.or(failed.flatten()))]);
        let previous = PreviousObjects::new(&[], Vec::new(), others);
        assert_eq!(previous.orphans(2, &[]).is_empty(), is_kept);
    }

    /// A helm client upgraded from an attempt, and somebody labels the next one as removed.
    #[rstest]
    #[case::it_is_said_to_be_removed(Status::Uninstalled, None, true)]
    #[case::its_removal_is_said_to_have_begun(Status::Uninstalling, None, true)]
    #[case::its_removal_has_begun(Status::Uninstalling, Some(Status::Failed), false)]
    #[case::it_failed(Status::Failed, Some(Status::Failed), false)]
    fn an_attempt_takes_nothing_away_that_somebody_else_has_deployed(
        #[case] newest: Status,
        #[case] before_removal: Option<Status>,
        #[case] stays: bool,
    ) {
        let failed = StoredRevision::new(1, Status::Failed);
        let of_helm = StoredRevision::new(2, Status::Deployed);
        let newest = StoredRevision {
            before_removal,
            ..StoredRevision::new(3, newest)
        };
        let revisions = [&failed, &of_helm, &newest];
        let is_passed_over = is_passed_over(&revisions, &of_helm);
        assert_eq!(is_passed_over, stays);
        for is_unread in [false, true] {
            let mut outlines = Outlines::default();
            outlines.add(1, vec![object("a")]);
            match is_unread {
                true => outlines.passed_over.is_unread = is_passed_over,
                false => outlines.add_of_others(vec![object("a")], Vec::new(), is_passed_over),
            }
            // What the last good one has goes by that.
            let previous = PreviousObjects::new(&[], vec![object("good")], outlines);
            assert_eq!(previous.orphans(1, &[]).is_empty(), stays);
            let Obsolete { objects, kept, .. } = previous.obsolete(&[]);
            let goes = objects.iter().map(|(object, _)| object.name.as_str());
            let goes: Vec<_> = goes.collect();
            let expected: &[_] = if stays { &["good"] } else { &["good", "a"] };
            assert_eq!(goes, expected);
            assert_eq!(kept.len(), usize::from(stays));
        }
    }

    /// Records of a release lie where others may write any number of them.
    #[test]
    fn what_others_have_is_remembered_by_name_and_up_to_a_limit() {
        let mut outlines = Outlines::default();
        let asking = Object {
            body: json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}}),
            ..object("a")
        };
        let unnamed = Object {
            body: json!({"metadata": {"generateName": "a-"}, "data": {"a": "b"}}),
            ..object("")
        };
        let unnamed_but_kept = Object {
            name: String::new(),
            ..asking.clone()
        };
        // As often as there are attempts of one chart.
        for _ in 0..2 {
            let objects = vec![asking.clone(), unnamed.clone(), unnamed_but_kept.clone()];
            outlines.add_of_others(objects, Vec::new(), false);
        }
        let bodies: Vec<_> = outlines.of_others.iter().map(|one| &one.body).collect();
        let kept = json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}});
        assert_eq!(bodies, [&Value::Null, &kept]);
        assert!(outlines.kept.contains(&object("a").key()) && !outlines.is_incomplete);
        // What the hooks of others make counts too.
        let others = || (0..MAX_OF_OTHERS).map(|number| object(&format!("b{number}")));
        outlines.add_of_others(Vec::new(), others().collect(), false);
        assert_eq!((outlines.of_others.len(), outlines.of_hooks.len()), (2, 0));
        assert!(outlines.is_incomplete && outlines.objects.is_empty());
        // What else they ask to keep nobody has read.
        let previous = PreviousObjects::new(&[], vec![object("c")], outlines);
        let Obsolete { objects, kept, .. } = previous.obsolete(&[]);
        assert_eq!((objects.len(), kept.len()), (0, 1));
    }
}
