//! Withdrawing attempts at a release that is somebody else's: what only they brought goes, and their records do.
//!
//! Whoever has the release may have been there before them, so all that its other records have stays, and everything does where those are
//! not what was written.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use chart::manifest::{UNINSTALL_ORDER, sort_by_kind};
use objects::manifest::build_stored_names;
use objects::{Object, ObjectKey};
use serde_json::Value;

use super::error::UninstallError;
use super::records::first_attempt;
use crate::kube::{Cluster, Owner, Spared, TakeBackError, resource_policy, take_back};
use crate::model::Status;
use crate::storage::{
    Deletable, KnownDigest, Storage, StorageError, StoredRevision, deployed, digest, last,
};

/// Takes back what the attempts of the one who shares `storage`'s digests brought into somebody else's release, and deletes their records.
/// `false` if all is left: the release has records that nobody is known to have written, or lacks some.
///
/// While anything goes, the newest record is one of these attempts that says it is pending, where there is one: a helm client begins nothing
/// then.
///
/// Objects are deleted in the background and not waited for, as those of an attempt that is undone: what was there before stays.
///
/// # Errors
/// [`UninstallError::Locked`] while the release is acted on, here or by a helm client, which may take as long as a hook does; else as
/// [`super::uninstall`]. Calling again goes on.
///
/// # Cancellation
/// A record goes after what only it has; calling again goes on.
pub async fn withdraw(
    cluster: &Cluster,
    storage: &Storage,
    namespace: &str,
    name: &str,
) -> Result<bool, UninstallError> {
    let load = |source| UninstallError::Load {
        name: name.to_owned(),
        source,
    };
    let Some(_lock) = cluster.try_lock_release(namespace, name) else {
        return Err(UninstallError::Locked);
    };
    let history = storage.history(name).await.map_err(load)?;
    let own = |revision| match storage.known_digest(name, revision) {
        KnownDigest::Digest(digest) => Some(digest),
        _ => None,
    };
    // Nobody goes on with an attempt that is left, whoever cut it off, and a helm client would wait for it.
    let leave = async || -> Result<bool, UninstallError> {
        let newest = last(&history).filter(|head| head.status.is_pending());
        let written = newest.and_then(|head| Some((head.revision, own(head.revision)?)));
        if let Some(written) = written {
            match set_status(storage, name, &written, Status::Failed).await {
                // The record is not the one that was written: its writer ends it.
                Ok(())
                | Err(
                    UninstallError::Locked
                    | UninstallError::Load {
                        source: StorageError::NotFound | StorageError::Decode { .. },
                        ..
                    },
                ) => {}
                failed => failed?,
            }
        }
        Ok(false)
    };
    let planned = |history: &[StoredRevision]| plan(history, own, storage.written_by_others(name));
    let found = planned(&history);
    let missing = storage.forget_missing(name, &history);
    let withdrawal = match found {
        // Only the attempt's record would say which objects it created.
        Plan::Nothing => return Ok(missing.is_empty()),
        Plan::Leave => return leave().await,
        Plan::Withdraw(withdrawal) => withdrawal,
    };
    let Withdrawal { attempts, others } = &withdrawal;
    let discovery = cluster.fresh_discovery().await;
    let discovery = discovery.map_err(UninstallError::Discovery)?;
    // One record at a time: anybody may have put another in its place. `None` where that is so, or what it has cannot be told.
    let read = async |(revision, written): &Digest| {
        let record = match storage.get_unverified(name, *revision).await {
            Ok(record) if digest(&record) == *written => record,
            Ok(_) | Err(StorageError::NotFound | StorageError::Decode { .. }) => return Ok(None),
            Err(failed) => return Err(load(failed)),
        };
        let Ok(built) = build_stored_names(&record.manifest, namespace, &discovery) else {
            return Ok(None);
        };
        let left = cluster.all_that_is_left(built).await;
        let left = left.map_err(UninstallError::Discovery)?;
        Ok(Some((record.id(), left)))
    };
    let mut known: HashSet<ObjectKey> = HashSet::new();
    for record in others {
        let Some((_, objects)) = read(record).await? else {
            return leave().await;
        };
        known.extend(objects.iter().map(Object::key));
    }
    let (mut obsolete, mut withdrawn) = (Vec::new(), Vec::new());
    let mut kept = HashSet::new();
    for record in attempts {
        let Some((record, objects)) = read(record).await? else {
            return leave().await;
        };
        withdrawn.push(record);
        for mut object in objects {
            if resource_policy(&object.body).is_some() {
                kept.insert(object.key());
            }
            if known.insert(object.key()) {
                object.body = Value::Null;
                obsolete.push(object);
            }
        }
    }
    // What one attempt asked to be kept stays, whatever another says.
    obsolete.retain(|object| !kept.contains(&object.key()));
    sort_by_kind(&mut obsolete, UNINSTALL_ORDER, |object| {
        object.resource.kind.as_str()
    });
    let newest = attempts.last();
    let newest = newest.filter(|(newest, _)| history.iter().all(|head| head.revision <= *newest));
    let says = async |status: Status| match newest {
        Some(newest) => set_status(storage, name, newest, status).await,
        None => Ok(()),
    };
    // What cannot be read is tried again without a word in the record.
    let has_begun = AtomicBool::new(false);
    // A record that came since these were read may name objects that they do not.
    let check = || async {
        if !has_begun.swap(true, Ordering::Relaxed) {
            says(Status::PendingRollback).await?;
        }
        let again = storage.history(name).await.map_err(load)?;
        match planned(&again) == Plan::Withdraw(withdrawal.clone()) {
            true => Ok(()),
            false => Err(UninstallError::Locked),
        }
    };
    let owner = Owner::new(name, namespace);
    let obsolete: Vec<_> = obsolete.iter().map(|object| (object, None)).collect();
    if let Err(failed) = take_back(
        cluster,
        &owner,
        Spared::before(first_attempt(&history)),
        &obsolete,
        check,
    )
    .await
    {
        // The deletion may fail for long, and no helm client has to wait for it.
        if has_begun.into_inner() || last(&history).is_some_and(|head| head.status.is_pending()) {
            says(Status::Failed).await?;
        }
        return Err(match failed {
            TakeBackError::Stopped(stopped) => stopped,
            TakeBackError::Delete(failures) => {
                let name = name.to_owned();
                UninstallError::Delete { name, failures }
            }
        });
    }
    // The newest one last.
    for record in withdrawn {
        let record = Deletable::recognised(record);
        let deleted = storage.delete(name, &record).await;
        deleted.map_err(UninstallError::Purge)?;
    }
    Ok(true)
}

/// Writes down how it stands with an attempt, if its record is still what was written.
async fn set_status(
    storage: &Storage,
    name: &str,
    (revision, written): &Digest,
    status: Status,
) -> Result<(), UninstallError> {
    let record = storage.get_unverified(name, *revision).await;
    let mut record = record.map_err(|source| UninstallError::Load {
        name: name.to_owned(),
        source,
    })?;
    if digest(&record) != *written {
        return Err(UninstallError::Locked);
    }
    if let Some(info) = &mut record.info {
        info.status = status;
    }
    let updated = storage.update(&record).await;
    updated.map_err(UninstallError::Purge)
}

/// A revision, and the digest that its record was written with.
type Digest = (i64, String);

/// The decision, made from the records' metadata alone.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// No attempt is there.
    Nothing,
    /// Nobody knows what else the release has.
    Leave,
    Withdraw(Withdrawal),
}

/// The records of a release, as they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Withdrawal {
    /// Records of the claimant's attempts.
    attempts: Vec<Digest>,
    /// All other records.
    others: Vec<Digest>,
}

/// Decides which records are attempts of the claimant, whose digests `own` has. All others must be known to be written by somebody: `vouched` has
/// them, each of which must be there. Those below one of them that is deployed need not: what they had is that one's, or it dropped it.
fn plan(
    history: &[StoredRevision],
    own: impl Fn(i64) -> Option<String>,
    vouched: Option<Vec<Digest>>,
) -> Plan {
    // A revision in the claimant's own digests was written by it; other digests for that number do not count.
    let vouched = vouched.map(|mut vouched| {
        vouched.retain(|(revision, _)| own(*revision).is_none());
        vouched
    });
    let is_vouched = |revision: i64| {
        let mut vouched = vouched.iter().flatten();
        vouched.any(|(vouched, _)| *vouched == revision)
    };
    let (mut attempts, mut finished) = (Vec::new(), Vec::new());
    let mut is_all_known = true;
    for StoredRevision {
        revision, status, ..
    } in history
    {
        match own(*revision) {
            Some(digest) if is_unfinished(status) => attempts.push((*revision, digest)),
            Some(digest) => finished.push((*revision, digest)),
            None => is_all_known &= is_vouched(*revision),
        }
    }
    let deployed = deployed(history).map(|head| head.revision);
    let deployed = deployed.filter(|deployed| is_vouched(*deployed));
    let Some(mut others) = vouched else {
        return match attempts.is_empty() {
            true => Plan::Nothing,
            false => Plan::Leave,
        };
    };
    let is_there = |revision: i64| history.iter().any(|head| head.revision == revision);
    others.retain(|(revision, _)| Some(*revision) >= deployed || is_there(*revision));
    is_all_known &= others.iter().all(|(revision, _)| is_there(*revision));
    others.extend(finished);
    match (attempts.is_empty(), is_all_known) {
        (true, _) => Plan::Nothing,
        (false, true) => Plan::Withdraw(Withdrawal { attempts, others }),
        (false, false) => Plan::Leave,
    }
}

/// Whether an attempt never got to its end.
fn is_unfinished(status: &Status) -> bool {
    matches!(status, Status::Failed | Status::Unknown) || status.is_pending()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ATTEMPT: i64 = 3;

    fn written(revisions: &[i64]) -> Vec<Digest> {
        let digest = |revision: &i64| (*revision, format!("of {revision}"));
        revisions.iter().map(digest).collect()
    }

    fn own(revision: i64) -> Option<String> {
        (revision == ATTEMPT).then(|| "attempt".to_owned())
    }

    /// By what is vouched for of the others: nothing of a record is read for it, as there may be any number of them and of any size.
    #[rstest]
    #[case::the_owners(&[1], &[1], true)]
    #[case::of_another_claimant_too(&[1, 2], &[1, 2], true)]
    #[case::nothing_else(&[], &[], true)]
    #[case::a_helm_clients(&[1, 2], &[1], false)]
    #[case::under_another_number(&[2], &[1], false)]
    #[case::deleted(&[], &[1], false)]
    #[case::one_of_them_deleted(&[1], &[1, 2], false)]
    #[case::pruned_below_what_is_deployed(&[2], &[1, 2], true)]
    #[case::announced_under_the_number_of_the_attempt(&[1], &[1, ATTEMPT], true)]
    fn an_attempt_is_withdrawn_where_all_other_records_are_known(
        #[case] there: &[i64],
        #[case] vouched: &[i64],
        #[case] expected: bool,
    ) {
        let head = |revision: &i64| StoredRevision::new(*revision, Status::Deployed);
        let attempt = StoredRevision::new(ATTEMPT, Status::Failed);
        let history: Vec<_> = there.iter().map(head).chain([attempt]).collect();
        let vouched = written(vouched);
        let withdrawal = Plan::Withdraw(Withdrawal {
            attempts: vec![(ATTEMPT, "attempt".to_owned())],
            others: written(there),
        });
        let expected = match expected {
            true => withdrawal,
            false => Plan::Leave,
        };
        assert_eq!(plan(&history, own, Some(vouched.clone())), expected);
        assert_eq!(plan(&history, |_| None, Some(vouched)), Plan::Nothing);
        assert_eq!(plan(&history, own, None), Plan::Leave);
    }

    #[rstest]
    #[case::failed(Status::Failed, true)]
    #[case::cut_off(Status::PendingUpgrade, true)]
    #[case::deployed(Status::Deployed, false)]
    #[case::had_before_it_was_lost(Status::Superseded, false)]
    #[case::removed(Status::Uninstalled, false)]
    fn a_revision_that_was_deployed_once_is_no_attempt(
        #[case] status: Status,
        #[case] expected: bool,
    ) {
        let failed = StoredRevision::new(4, Status::Failed);
        let history = [StoredRevision::new(ATTEMPT, status), failed];
        let found = plan(&history, |_| Some("own".to_owned()), Some(Vec::new()));
        let Plan::Withdraw(Withdrawal { attempts, others }) = found else {
            panic!("{found:?}");
        };
        assert_eq!(
            (attempts.len(), others.len()),
            if expected { (2, 0) } else { (1, 1) }
        );
    }
}
