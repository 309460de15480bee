//! Withdrawing attempts at a release that is somebody else's: what only they brought goes, and their records do.
//!
//! Whoever has the release may have been there before them, so all that its other records have stays, and everything does where those are
//! not what was written.

use std::collections::HashSet;

use chart::manifest::{UNINSTALL_ORDER, sort_by_kind};
use futures_util::FutureExt as _;
use objects::manifest::build_stored_names;
use objects::{Object, ObjectKey};
use serde_json::Value;

use super::error::UninstallError;
use crate::kube::{Cluster, Owner, delete_all, stored_policy};
use crate::model::Status;
use crate::neighbours::Neighbours;
use crate::state::ownership::Operation;
use crate::storage::{Deletable, KnownDigest, Storage, StorageError, StoredRevision, digest};

/// Takes back what the attempts of the one who shares `storage`'s digests brought into somebody else's release, and deletes their records.
/// `false` if all is left: the release has records that nobody vouches for, or lacks some.
///
/// Objects are deleted in the background and not waited for, as those of an attempt that is undone: what was there before stays.
///
/// # Errors
/// [`UninstallError::Locked`] while the release is acted on here, which may take as long as a hook does; else as [`super::uninstall`]. Calling
/// again goes on.
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
    let Some(_lock) = cluster.lock_release(namespace, name).now_or_never() else {
        return Err(UninstallError::Locked);
    };
    let history = storage.history(name).await.map_err(load)?;
    let own = |revision| match storage.known_digest(name, revision) {
        KnownDigest::Digest(digest) => Some(digest),
        _ => None,
    };
    let Withdrawal { attempts, others } = match plan(&history, own, storage.written_by_others(name))
    {
        Plan::Nothing => return Ok(true),
        Plan::Leave => return Ok(false),
        Plan::Withdraw(withdrawal) => withdrawal,
    };
    let discovery = cluster.fresh_discovery().await;
    let discovery = discovery.map_err(UninstallError::Discovery)?;
    // One record at a time: anybody may have put another in its place. `None` where that is so, or what it has cannot be told.
    let objects = async |(revision, written): &Digest| {
        let record = match storage.get_unverified(name, *revision).await {
            Ok(record) if digest(&record) == *written => record,
            Ok(_) | Err(StorageError::NotFound | StorageError::Decode { .. }) => return Ok(None),
            Err(failed) => return Err(load(failed)),
        };
        let Ok(built) = build_stored_names(&record.manifest, namespace, &discovery) else {
            return Ok(None);
        };
        let left = cluster.all_that_is_left(built).await;
        left.map(Some).map_err(UninstallError::Discovery)
    };
    let mut known: HashSet<ObjectKey> = HashSet::new();
    for record in &others {
        let Some(objects) = objects(record).await? else {
            return Ok(false);
        };
        known.extend(objects.iter().map(Object::key));
    }
    let mut obsolete = Vec::new();
    for record in &attempts {
        let Some(objects) = objects(record).await? else {
            return Ok(false);
        };
        for mut object in objects {
            if stored_policy(&object.body).is_none() && known.insert(object.key()) {
                object.body = Value::Null;
                obsolete.push((object, Operation::Undo));
            }
        }
    }
    sort_by_kind(&mut obsolete, UNINSTALL_ORDER, |(object, _)| {
        object.resource.kind.as_str()
    });
    // No undo takes a namespace.
    let (owner, nobody) = (Owner::new(name, namespace), Neighbours::default());
    let deleted = delete_all(cluster, &owner, &nobody, obsolete).await;
    deleted.map_err(|failures| UninstallError::Delete {
        name: name.to_owned(),
        failures,
    })?;
    for (revision, _) in attempts {
        let record = Deletable::recognised(revision);
        let deleted = storage.delete(name, &record).await;
        deleted.map_err(UninstallError::Purge)?;
    }
    Ok(true)
}

/// A revision, and the digest that its record was written with.
type Digest = (i64, String);

/// What is to be done, by what is known of the records without reading them.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// No attempt is there.
    Nothing,
    /// Nobody knows what else the release has.
    Leave,
    Withdraw(Withdrawal),
}

/// The records of a release, as they were written.
#[derive(Debug, PartialEq, Eq)]
struct Withdrawal {
    /// Those of the claimant's attempts.
    attempts: Vec<Digest>,
    /// All others.
    others: Vec<Digest>,
}

/// Which records are attempts of the claimant, whose digests `own` has. All others must be known to be written by somebody: `vouched` has
/// them, each of which must be there.
fn plan(
    history: &[StoredRevision],
    own: impl Fn(i64) -> Option<String>,
    vouched: Option<Vec<Digest>>,
) -> Plan {
    let is_there = |revision: i64| history.iter().any(|head| head.revision == revision);
    let (mut attempts, mut finished) = (Vec::new(), Vec::new());
    let mut is_all_known = true;
    for StoredRevision {
        revision, status, ..
    } in history
    {
        let is_vouched = |all: &Vec<Digest>| all.iter().any(|(vouched, _)| vouched == revision);
        match own(*revision) {
            Some(digest) if is_unfinished(status) => attempts.push((*revision, digest)),
            Some(digest) => finished.push((*revision, digest)),
            None => is_all_known &= vouched.as_ref().is_some_and(is_vouched),
        }
    }
    let Some(mut others) = vouched else {
        return match attempts.is_empty() {
            true => Plan::Nothing,
            false => Plan::Leave,
        };
    };
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
    fn an_attempt_is_withdrawn_where_all_other_records_are_known(
        #[case] there: &[i64],
        #[case] vouched: &[i64],
        #[case] expected: bool,
    ) {
        let there = there.iter();
        let head = |revision: &i64| StoredRevision::new(*revision, Status::Deployed);
        let attempt = StoredRevision::new(ATTEMPT, Status::Failed);
        let history: Vec<_> = there.map(head).chain([attempt]).collect();
        let vouched = written(vouched);
        let withdrawal = Plan::Withdraw(Withdrawal {
            attempts: vec![(ATTEMPT, "attempt".to_owned())],
            others: vouched.clone(),
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
    fn what_was_deployed_once_is_no_attempt(#[case] status: Status, #[case] expected: bool) {
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
