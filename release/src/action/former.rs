//! What former revisions have in namespaces and definitions that are about to go. No operation deletes it any more, but some of it may be there to stay, and
//! what contains that stays with it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use objects::{Object, ObjectKey};

use super::error::DeployError;
use super::previous::outlined;
use super::records::{read_if_possible, stored_objects, stored_of_hooks};
use super::retained::contains;
use crate::kube::{ApiError, Cluster};
use crate::model::{Release, Status};
use crate::state::ownership::Operation;
use crate::storage::{Provenance, Storage, StoredRevision};

/// What former revisions have, each object once and without its body.
#[derive(Debug, Default)]
pub(super) struct Former {
    known: BTreeMap<ObjectKey, Known>,
    /// The revisions of which nobody knows all that they have.
    unread: BTreeSet<i64>,
}

#[derive(Debug)]
struct Known {
    object: Object,
    operation: Operation,
    /// The newest that has it.
    revision: i64,
}

impl Former {
    /// Adds what a revision has, as what its record calls it.
    pub(super) fn add(&mut self, revision: i64, record: &Release, objects: Vec<Object>) {
        let operation = left_by(record);
        for object in outlined(objects) {
            let known = self.known.entry(object.key()).or_insert(Known {
                object,
                operation,
                revision,
            });
            known.revision = known.revision.max(revision);
            // Of several revisions that have it the one counts that was deployed.
            if operation == Operation::Drop {
                known.operation = operation;
            }
        }
    }

    /// Notes a revision of which nobody knows all that it has.
    fn add_unread(&mut self, revision: i64) {
        self.unread.insert(revision);
    }

    pub(super) fn is_incomplete(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Whether the record of a revision says what no later one does of what may stay, but for what is decided about anyway.
    pub(super) fn needs(&self, revision: i64, is_decided: impl Fn(&ObjectKey) -> bool) -> bool {
        let mut known = self.known.iter();
        let needs_it = |(key, known): (&ObjectKey, &Known)| {
            known.revision == revision && (key.name.is_empty() || !is_decided(key))
        };
        self.unread.contains(&revision) || known.any(needs_it)
    }

    /// What else there is than what the operation decides about anyway. What the API server has named has no name that could be among that.
    pub(super) fn beside(&self, decided: &HashSet<ObjectKey>) -> Vec<(Object, Operation)> {
        let known = self.known.iter();
        let beside = known.filter(|(key, _)| key.name.is_empty() || !decided.contains(*key));
        let beside = beside.map(|(_, known)| (known.object.clone(), known.operation));
        beside.collect()
    }
}

/// How a later version left what a revision had: one that was deployed had it all, and an attempt that failed only what it created. The record says which
/// it was; its label anybody may have written.
fn left_by(record: &Release) -> Operation {
    match record.status() {
        Status::Deployed | Status::Superseded => Operation::Drop,
        _ => Operation::Undo,
    }
}

/// What of `objects` goes with one of `containers`.
pub(super) fn inside<'o>(
    objects: Vec<Object>,
    containers: impl Iterator<Item = &'o Object> + Clone,
) -> Vec<Object> {
    let mut objects = objects;
    objects.retain(|object| containers.clone().any(|one| contains(one, object)));
    objects
}

/// What revisions below the last `good` one that were written here, or their hooks, have in `containers`.
///
/// # Errors
/// The API server cannot be asked. Nobody waits for a record that cannot be read, nor for a kind that is not served and only a former version had.
pub(super) async fn former_objects(
    cluster: &Cluster,
    storage: &Storage,
    history: &[StoredRevision],
    (name, good): (&str, i64),
    containers: &[&Object],
) -> Result<Former, DeployError> {
    let mut former = Former::default();
    for head in history.iter().filter(|head| head.revision < good) {
        let is_noted = match head.provenance {
            Provenance::Noted => true,
            // Of a former owner of the release, perhaps.
            Provenance::Reused => false,
            _ => continue,
        };
        let revision = head.revision;
        let record = read_if_possible(storage, name, revision).await?;
        let record = record.filter(|record| storage.recognises(name, revision, record));
        let Some(record) = record else {
            if is_noted {
                former.add_unread(revision);
            }
            continue;
        };
        for objects in [
            stored_objects(cluster, Some(&record)).await,
            stored_of_hooks(cluster, Some(&record)).await,
        ] {
            match objects {
                Err(DeployError::Discovery(ApiError::NotServed(_))) => former.add_unread(revision),
                objects => {
                    let objects = inside(objects?, containers.iter().copied());
                    former.add(revision, &record, objects);
                }
            }
        }
    }
    Ok(former)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::kube::fixture;

    fn object(name: &str) -> Object {
        fixture::config_map("data", name)
    }

    fn record(status: Status) -> Release {
        let mut record = Release::default();
        record.set_status(status, "");
        record
    }

    /// What an attempt took over and no deployed version had is not the release's.
    #[rstest]
    #[case::of_an_attempt(&[Status::Failed], Operation::Undo)]
    #[case::of_one_cut_off(&[Status::PendingUpgrade], Operation::Undo)]
    #[case::of_a_version(&[Status::Superseded], Operation::Drop)]
    #[case::of_the_version_that_runs(&[Status::Deployed], Operation::Drop)]
    #[case::of_an_attempt_and_a_version_after_it(&[Status::Failed, Status::Superseded], Operation::Drop)]
    #[case::of_a_version_and_an_attempt_after_it(&[Status::Superseded, Status::Failed], Operation::Drop)]
    fn only_what_a_version_had_that_was_deployed_counts_as_dropped(
        #[case] statuses: &[Status],
        #[case] expected: Operation,
    ) {
        let mut former = Former::default();
        for (status, revision) in statuses.iter().zip(1..) {
            former.add(revision, &record(status.clone()), vec![object("a")]);
        }
        let left = former.beside(&HashSet::new());
        assert_eq!(left, [(object("a"), expected)]);
        // What the operation decides about is no more than that.
        assert!(former.beside(&[object("a").key()].into()).is_empty());
    }

    /// A deploy that fails may not take away what the next try decides by.
    #[test]
    fn the_last_record_of_what_may_stay_is_needed() {
        let mut former = Former::default();
        let version = record(Status::Superseded);
        for (revision, names) in [(1, &["a", "b"][..]), (3, &["b"]), (2, &["b"])] {
            let objects = names.iter().map(|name| object(name));
            former.add(revision, &version, objects.collect());
        }
        former.add_unread(4);
        let needed = |is_decided: fn(&ObjectKey) -> bool| {
            let needed = (1..=5).filter(|revision| former.needs(*revision, is_decided));
            needed.collect::<Vec<_>>()
        };
        assert_eq!(needed(|_| false), [1, 3, 4]);
        // The last good one has it too.
        assert_eq!(needed(|key| key.name == "b"), [1, 4]);
        assert!(former.is_incomplete());
    }
}
