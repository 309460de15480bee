//! The records of a release that is removed: by which of them it goes, as what each is taken away, and their own end.

use crate::action::error::UninstallError;
use crate::action::known_records::KnownRecords;
use crate::action::records::was_good;
use crate::action::spec::UninstallSpec;
use crate::action::unquoted::error_unquoted;
use crate::model::Status;
use crate::state::ownership::Operation;
use crate::storage::{Deletable, Provenance, Storage, StorageError, StoredRelease, StoredRevision};

/// The records of a release. Whose the release is, the caller has proven.
pub(super) struct Records {
    pub(super) name: String,
    pub(super) history: Vec<StoredRevision>,
    /// Whether the release was never deployed.
    pub(super) is_attempt: bool,
}

/// What a removal goes by.
pub(super) struct Loaded<'a> {
    /// The newest record that was written here; without any, the newest that can be read.
    pub(super) head: &'a StoredRevision,
    /// The content of that record.
    pub(super) release: StoredRelease,
    /// The operation by which the objects are deleted.
    pub(super) operation: Operation,
    pub(super) is_proven: bool,
    /// Other revisions whose objects may be in the cluster, and what taking those away is: of another claimant's
    /// attempt only what it created goes. They are read one by one, as anybody may have written them.
    pub(super) others: Vec<(&'a StoredRevision, Operation)>,
    /// Revisions that were written here, and whose labels say that what they had is gone, or a later one's. Anybody may have written that, and what they asked
    /// to keep is there: a namespace stays with what stays of theirs. Deleted is nothing of it.
    pub(super) gone: Vec<&'a StoredRevision>,
    /// Whether one of the records cannot be read, or is not what was written, so that nobody knows what else the release has.
    pub(super) is_incomplete: bool,
}

impl Records {
    /// Reads the records. Those that cannot be read are left out; if none can, the newest one's damage is reported.
    pub(super) async fn load(&self, storage: &Storage) -> Result<Loaded<'_>, StorageError> {
        let mut subject: Option<(&StoredRevision, StoredRelease, bool)> = None;
        let (mut others, mut gone) = (Vec::new(), Vec::new());
        let mut unreadable = None;
        let mut is_incomplete = false;
        // Another writer's revision above our last good one dropped objects of it, and a correction may have brought them back.
        let mut is_good_found = false;
        for head in self.history.iter().rev() {
            let is_found = subject.as_ref().is_some_and(|(.., is_proven)| *is_proven);
            let is_gone = match head.status {
                Status::Superseded => is_good_found,
                Status::Uninstalled => true,
                _ => false,
            };
            if is_found && is_gone {
                gone.extend(Some(head).filter(|head| head.provenance == Provenance::Noted));
                continue;
            }
            let revision = head.revision;
            match storage.get_listed(&self.name, head).await {
                Ok(release) => {
                    let is_proven = storage.proves(&self.name, revision, &release);
                    let was_written_here = head.provenance == Provenance::Noted;
                    is_incomplete |=
                        was_written_here && !storage.recognises(&self.name, revision, &release);
                    is_good_found |= is_proven && was_good(&release);
                    match &subject {
                        Some(_) if is_found && head.status == Status::Superseded && !is_proven => {}
                        Some((former, ..)) if is_proven && !is_found => {
                            others.push(*former);
                            subject = Some((head, release, is_proven));
                        }
                        Some(_) => others.push(head),
                        None => subject = Some((head, release, is_proven)),
                    }
                }
                Err(StorageError::NotFound) => {
                    unreadable = Some(revision);
                    is_incomplete = true;
                }
                Err(error @ StorageError::Decode { .. }) => {
                    let (name, error) = (&self.name, error_unquoted(&error));
                    logging::warn!(name, revision, error, "unreadable record");
                    unreadable = Some(revision);
                    is_incomplete = true;
                }
                Err(error) => return Err(error),
            }
        }
        let Some((head, release, is_proven)) = subject else {
            // Every record is damaged: what they held cannot be known.
            let damaged = storage
                .get(&self.name, unreadable.unwrap_or_default())
                .await;
            return Err(damaged.err().unwrap_or(StorageError::NotFound));
        };
        let others = others
            .into_iter()
            .map(|other| (other, self.operation(other)));
        Ok(Loaded {
            head,
            release,
            operation: self.operation(head),
            is_proven,
            others: others.collect(),
            gone,
            is_incomplete,
        })
    }

    /// Whether these are all records that exist by now, among those that count.
    pub(super) async fn are_all(
        &self,
        storage: &Storage,
        spec: &UninstallSpec,
    ) -> Result<bool, StorageError> {
        let mut now = storage.history(&self.name).await?;
        now.retain(|head| spec.up_to.is_none_or(|newest| head.revision <= newest));
        let known = KnownRecords::of(&self.history);
        Ok(known.first_unknown(&now).is_none())
    }

    /// The operation by which a revision's objects are deleted: of one that was never deployed, as far as its record tells, whoever wrote it, goes
    /// only what it created. What it was before its removal began is written down, as the removal changes all that it could be told from.
    fn operation(&self, of: &StoredRevision) -> Operation {
        let was_deployed = matches!(
            of.before_removal,
            Some(Status::Deployed | Status::Superseded)
        );
        match was_deployed && !self.is_attempt && of.provenance != Provenance::Reused {
            true => Operation::Remove,
            false => Operation::Undo,
        }
    }

    /// Deletes all records. That of which the removal is recorded, `subject`, goes last, and what others wrote first: what is there tells at
    /// each moment that the release can be removed, and as what.
    pub(super) async fn purge(
        &self,
        storage: &Storage,
        subject: Option<i64>,
    ) -> Result<(), UninstallError> {
        let mut heads: Vec<&StoredRevision> = self.history.iter().collect();
        heads.sort_by_key(|head| {
            let is_ours = matches!(head.provenance, Provenance::Untracked | Provenance::Noted);
            (Some(head.revision) == subject, is_ours, head.revision)
        });
        for head in heads {
            let deleted = storage.delete(&self.name, &Deletable::removed(head)).await;
            deleted.map_err(UninstallError::Purge)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::model::BEFORE_REMOVAL_LABEL;

    const REMOVE: Operation = Operation::Remove;
    const UNDO: Operation = Operation::Undo;

    #[rstest]
    #[case::deployed("deployed", None, REMOVE)]
    #[case::of_a_former_version("superseded", None, REMOVE)]
    #[case::failed("failed", None, UNDO)]
    #[case::cut_off("pending-upgrade", None, UNDO)]
    #[case::going_on("uninstalling", Some("deployed"), REMOVE)]
    #[case::of_an_attempt_going_on("uninstalling", Some("failed"), UNDO)]
    #[case::begun_by_helm("uninstalling", None, UNDO)]
    #[case::that_gave_way("uninstalled", Some("superseded"), REMOVE)]
    #[case::by_description_alone("failed", Some("deployed"), UNDO)]
    fn only_what_was_deployed_is_removed(
        #[case] status: &str,
        #[case] before: Option<&str>,
        #[case] expected: Operation,
    ) {
        let mut labels = crate::storage::system_labels("web", 2, &Status::from(status)).to_vec();
        labels.extend(before.map(|word| (BEFORE_REMOVAL_LABEL.to_owned(), word.to_owned())));
        let head = StoredRevision::from_labels(&labels.into_iter().collect()).unwrap();
        let of = |head: &StoredRevision, is_attempt| {
            let history = vec![head.clone()];
            let name = "web".to_owned();
            let records = Records {
                name,
                history,
                is_attempt,
            };
            records.operation(head)
        };
        assert_eq!(of(&head, false), expected);
        assert_eq!(of(&head, true), UNDO);
        let spent = StoredRevision {
            provenance: Provenance::Reused,
            ..head
        };
        assert_eq!(of(&spent, false), UNDO);
        assert_eq!(of(&spent.believed(), false), UNDO);
    }
}
