//! What was written here of a release, whatever else its records say.
//!
//! Records lie where others may write: one above ours may say that the release was uninstalled, or has nothing, and the label of one of ours
//! may be another. The digest of a record is known, its status is not. So of a release that was deployed here the
//! objects tell whether it runs.

use jiff::Timestamp;
use objects::Object;
use serde_json::Value;

use super::error::DeployError;
use super::records::{last_good, read_if_possible, stored_objects, was_good};
use crate::kube::{Cluster, Owner, observe_all};
use crate::model::Status;
use crate::state::{Plan, decide};
use crate::storage::{Origin, Storage, StorageError, StoredRelease, StoredRevision};

/// How many objects are looked at in one go.
pub(super) const PAGE: usize = 50;

/// Decides from the stored history. A revision that only its label calls deployed, or superseded, is none to build on: that may have been written over how
/// an attempt ended, as by somebody who wants to get a release going again. What its record says is taken into the history. Gives the record that the plan
/// builds on as well, where it was read; `known` is one that was read before.
///
/// # Errors
/// The record cannot be read.
pub(super) async fn plan(
    storage: &Storage,
    name: &str,
    known: Option<&StoredRelease>,
    history: &mut [StoredRevision],
    now: Timestamp,
) -> Result<(Plan, Option<StoredRelease>), StorageError> {
    loop {
        let plan = decide(history, now);
        let from = plan.action.from();
        let mut heads = history.iter_mut();
        let Some(head) = heads.find(|head| Some(head.revision) == from) else {
            return Ok((plan, None));
        };
        let is_head =
            |known: &&StoredRelease| (known.revision, known.uid()) == (head.revision, &head.uid);
        let known = known.filter(is_head).cloned();
        let is_good = matches!(head.status, Status::Deployed | Status::Superseded);
        if !is_good || head.origin != Origin::Noted {
            return Ok((plan, known));
        }
        let record = match known {
            Some(known) => Some(known),
            None => read_if_possible(storage, name, head.revision).await?,
        };
        match record {
            Some(record) if is_mislabelled(storage, name, head.revision, &record) => {
                head.status = record.status();
            }
            record => return Ok((plan, record)),
        }
    }
}

/// Whether only its label can call a revision good: its record was written here, and says how its attempt ended.
pub(super) fn is_mislabelled(
    storage: &Storage,
    name: &str,
    revision: i64,
    record: &StoredRelease,
) -> bool {
    storage.recognises(name, revision, record) && !was_good(record)
}

/// What is left of the plan to install over a release that was deployed here: an upgrade, if what it had is there. Where it was removed
/// indeed, nothing is there but what outlives a removal, or what an attempt after that has created.
///
/// # Errors
/// Records or objects cannot be read.
pub(super) async fn confirm_install(
    cluster: &Cluster,
    storage: &Storage,
    name: &str,
    namespace: &str,
    history: &[StoredRevision],
    plan: Plan,
) -> Result<Plan, DeployError> {
    let is_install = plan.action.revision() > 0 && plan.action.is_install();
    if !is_install || !storage.was_deployed(name) {
        return Ok(plan);
    }
    let Some(good) = last_good(storage, history, name, i64::MAX).await? else {
        return Ok(plan);
    };
    let attempts = history
        .iter()
        .filter(|head| head.origin == Origin::Noted && head.revision > good.revision);
    let began = attempts.filter_map(|head| head.created_at).min();
    let objects = stored_objects(cluster, &good).await?;
    let owner = Owner::new(name, namespace);
    for page in objects.chunks(PAGE) {
        let page: Vec<&Object> = page.iter().collect();
        let operation = "update";
        let observed = observe_all(cluster, &page).await;
        let observed = observed.map_err(|source| DeployError::Ownership { operation, source })?;
        let is_running = |live: &Value| {
            owner.observe(live).outlives_no_removal() && !was_created_since(live, began)
        };
        if observed
            .iter()
            .filter_map(|(_, live)| live.as_ref())
            .any(is_running)
        {
            return Ok(plan.over(good.revision));
        }
    }
    Ok(plan)
}

/// Whether an object is not older than an attempt, whose record comes first.
pub(super) fn was_created_since(live: &Value, began: Option<Timestamp>) -> bool {
    let created = live.pointer("/metadata/creationTimestamp");
    let created: Option<Timestamp> = created.and_then(|at| at.as_str()?.parse().ok());
    began.is_some_and(|began| created.is_none_or(|created| created >= began))
}
