//! Records of earlier revisions, as far as they can be read, and which of them were written here, whatever else they say.
//!
//! Records lie where others may write: one above ours may say that the release was uninstalled, or has nothing, and the label of one of ours
//! may be another. The digest of a record is known, its status is not. So of a release that was deployed here the
//! objects show whether it runs.

use jiff::Timestamp;
use objects::manifest::{StoredObjects, build_stored, build_stored_names};
use objects::{Discovery, Object};
use serde_json::Value;

use super::error::DeployError;
use super::spec::Writer;
use super::unquoted::error_unquoted;
use crate::kube::{Cluster, Owner, find_all};
use crate::model::{Hook, Release, Status};
use crate::state::{Plan, decide, good_below};
use crate::storage::{Provenance, Storage, StorageError, StoredRelease, StoredRevision};

/// Reads one revision; none if it is gone, cannot be decoded, or is not what was written.
pub(super) async fn read_if_possible(
    storage: &Storage,
    name: &str,
    revision: i64,
) -> Result<Option<StoredRelease>, StorageError> {
    match storage.get(name, revision).await {
        Ok(release) => Ok(Some(release)),
        Err(StorageError::NotFound) => Ok(None),
        Err(error @ (StorageError::Decode { .. } | StorageError::Unproven { .. })) => {
            logging::warn!(
                name,
                revision,
                error = error_unquoted(&error),
                "unreadable record"
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The objects of a stored revision, as far as the cluster lists their kinds.
pub(super) fn listed_objects(release: &Release, discovery: &Discovery) -> StoredObjects {
    let built = build_stored(&release.manifest, &release.namespace, discovery);
    built.unwrap_or_else(|error| {
        // The revision was applied once, so its manifest is damaged; its objects can only be left alone.
        let error = error_unquoted(&error);
        logging::warn!(
            release = release.name,
            revision = release.revision,
            error,
            "unreadable manifest"
        );
        StoredObjects::default()
    })
}

/// The objects of a stored revision; none where there is no such. A kind that is gone for good has none.
///
/// # Errors
/// A kind is not served at this moment, so that nobody knows what there is of it.
pub(super) async fn stored_objects(
    cluster: &Cluster,
    release: Option<&Release>,
) -> Result<Vec<Object>, DeployError> {
    let Some(release) = release else {
        return Ok(Vec::new());
    };
    let listed = |discovery: &Discovery| listed_objects(release, discovery);
    cluster
        .stored_objects(listed)
        .await
        .map_err(DeployError::Discovery)
}

/// What the hooks of a stored revision make, as far as the cluster lists their kinds: names, and what Helm's annotations say.
pub(super) fn listed_of_hooks(release: &Release, discovery: &Discovery) -> StoredObjects {
    // Of what only tests make, which nobody here runs, an account may have no right to read anything: that is asked for only if it is to be kept.
    let is_test = |event: &String| event.starts_with("test");
    let is_only_test = |hook: &Hook| !hook.events.is_empty() && hook.events.iter().all(is_test);
    let asks = |hook: &Hook| hook.manifest.contains("helm.sh/resource-policy");
    let run = |hook: &&Hook| !is_only_test(hook) || asks(hook);
    let mut all = StoredObjects::default();
    for hook in release.hooks.iter().filter(run) {
        match build_stored_names(&hook.manifest, &release.namespace, discovery) {
            Ok(built) => all.extend(built),
            Err(error) => {
                let (release, revision) = (&release.name, release.revision);
                let error = error_unquoted(&error);
                logging::warn!(release, revision, error, "unreadable hook");
            }
        }
    }
    all
}

/// What the hooks of a stored revision make; nothing where there is no such. A kind that is gone for good has none.
///
/// # Errors
/// As [`stored_objects`].
pub(super) async fn stored_of_hooks(
    cluster: &Cluster,
    release: Option<&Release>,
) -> Result<Vec<Object>, DeployError> {
    let Some(release) = release.filter(|release| !release.hooks.is_empty()) else {
        return Ok(Vec::new());
    };
    let listed = |discovery: &Discovery| listed_of_hooks(release, discovery);
    let stored = cluster.stored_objects(listed).await;
    stored.map_err(DeployError::Discovery)
}

/// Whether the newest record was written by an agent for this caller's bundles; takes that into the history.
pub(super) async fn is_agents(
    storage: &Storage,
    name: &str,
    writer: &Writer,
    history: &mut [StoredRevision],
) -> bool {
    let Some(newest) = history.iter_mut().max_by_key(|head| head.revision) else {
        return false;
    };
    let record = storage.get_unverified(name, newest.revision).await;
    let is_agents = record.is_ok_and(|record| writer.wrote(&record));
    if is_agents {
        newest.provenance = Provenance::OtherAgent;
    }
    is_agents
}

/// The last revision below another one that was written here and was good, as its record says, whatever its label does.
pub(super) async fn last_good(
    storage: &Storage,
    history: &[StoredRevision],
    name: &str,
    below: i64,
) -> Result<Option<StoredRelease>, StorageError> {
    let own = history
        .iter()
        .filter(|head| head.provenance == Provenance::Noted && head.revision < below);
    let mut own: Vec<i64> = own.map(|head| head.revision).collect();
    own.sort_unstable();
    for revision in own.into_iter().rev() {
        let release = read_if_possible(storage, name, revision).await?;
        let release = release.filter(|release| storage.proves(name, revision, release));
        // Where nothing ever was deployed here, helm has upgraded from an attempt that failed, and says that of it.
        let is_attempt =
            |one: &Release| one.status() == Status::Superseded && !storage.was_deployed(name);
        if release
            .as_deref()
            .is_some_and(|one| was_good(one) && !is_attempt(one))
        {
            return Ok(release);
        }
    }
    Ok(None)
}

/// Whether a revision was deployed once, and superseded or removed since.
pub(super) fn was_good(release: &Release) -> bool {
    let before = match release.status() {
        Status::Uninstalling => release.status_before_removal(),
        status => Some(status),
    };
    let is_good = |status: &Status| {
        matches!(
            status,
            Status::Deployed | Status::Superseded | Status::Uninstalled | Status::Uninstalling
        )
    };
    before.as_ref().is_none_or(is_good)
}

/// How many objects are read in one go.
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
        if !is_good || head.provenance != Provenance::Noted {
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

/// Turns the plan to install over a release that was deployed here into an upgrade, if the release's objects are there. Where it was removed
/// indeed, nothing is there but what outlives a removal, or what an attempt after that has created. So of somebody else's release whose removal has
/// begun and gave way: what it had goes as with any takeover.
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
    let good = match storage.was_deployed(name) {
        _ if !is_install => None,
        true => {
            let good = last_good(storage, history, name, i64::MAX).await?;
            good.map(|good| (good.revision, good))
        }
        false => half_removed(storage, history, name).await?,
    };
    let Some((last, good)) = good else {
        return Ok(plan);
    };
    let attempts = history
        .iter()
        .filter(|head| head.provenance == Provenance::Noted && head.revision > last);
    let began = attempts.filter_map(|head| head.created_at).min();
    let objects = stored_objects(cluster, Some(&good)).await?;
    let owner = Owner::new(name, namespace);
    for page in objects.chunks(PAGE) {
        let page: Vec<&Object> = page.iter().collect();
        let operation = "update";
        let found = find_all(cluster, &page).await;
        let found = found.map_err(|source| DeployError::Ownership { operation, source })?;
        let is_running = |live: &Value| {
            owner.observe(live).outlives_no_removal() && !was_created_since(live, began)
        };
        if found.iter().any(|(_, live)| is_running(live)) {
            return Ok(plan.over(good.revision));
        }
    }
    Ok(plan)
}

/// The last good revision of a release of somebody else's whose removal an agent has begun, with the one that says so: that one, or where it had failed
/// before, the newest one that was good below it. Attempts above it took nothing of it.
async fn half_removed(
    storage: &Storage,
    history: &[StoredRevision],
    name: &str,
) -> Result<Option<(i64, StoredRelease)>, StorageError> {
    let Some((last, good)) = good_before_removal(history) else {
        return Ok(None);
    };
    for revision in good {
        let release = read_if_possible(storage, name, revision).await?;
        // Only a label may call an attempt good, of the agent's own too: nothing of this release ever was deployed here.
        let is_attempt = |release: &StoredRelease| {
            release.status() == Status::Superseded && storage.recognises(name, revision, release)
        };
        let is_good = |release: &StoredRelease| was_good(release) && !is_attempt(release);
        if let Some(release) = release.filter(is_good) {
            return Ok(Some((last, release)));
        }
    }
    Ok(None)
}

/// The revision that says that the removal of somebody else's release has begun, and those that may be the last good one before that, the newest first.
fn good_before_removal(history: &[StoredRevision]) -> Option<(i64, Vec<i64>)> {
    let is_attempt =
        |head: &&StoredRevision| head.status.is_pending() || head.status == Status::Failed;
    let others = history.iter().filter(|head| !is_attempt(head));
    let last = others.max_by_key(|head| head.revision)?;
    let is_begun = last.status == Status::Uninstalling && last.provenance == Provenance::Foreign;
    let good = match last.before_removal.as_ref().filter(|_| is_begun)? {
        Status::Deployed | Status::Superseded => vec![last.revision],
        _ => good_below(history, last.revision),
    };
    Some((last.revision, good))
}

/// When the first attempt at a release began, as long as its record is there.
pub(super) fn first_attempt(history: &[StoredRevision]) -> Option<Timestamp> {
    let first = history.iter().find(|head| head.revision == 1)?;
    first.created_at.filter(|_| first.is_own())
}

/// Whether an object is not older than an attempt, whose record comes first.
pub(super) fn was_created_since(live: &Value, began: Option<Timestamp>) -> bool {
    let created = live.pointer("/metadata/creationTimestamp");
    let created: Option<Timestamp> = created.and_then(|at| at.as_str()?.parse().ok());
    began.is_some_and(|began| created.is_none_or(|created| created >= began))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Another bundle takes the release, and would leave for good what the removal had not come to.
    #[rstest]
    #[case::of_a_good_one("deployed uninstalling:superseded", &[2])]
    #[case::of_a_failed_upgrade("superseded deployed uninstalling:failed", &[2, 1])]
    #[case::of_an_upgrade_cut_off("deployed uninstalling:pending-upgrade", &[1])]
    #[case::of_a_first_attempt("uninstalling:failed", &[])]
    #[case::below_an_attempt_of_helms("uninstalling:deployed failed", &[1])]
    #[case::below_a_good_one("uninstalling:deployed deployed", &[])]
    #[case::of_one_installed_after_a_removal("deployed uninstalled uninstalling:failed", &[])]
    #[case::by_a_helm_client("deployed uninstalling", &[])]
    #[case::not_begun("deployed failed", &[])]
    fn a_release_half_removed_has_what_was_good_before(
        #[case] words: &str,
        #[case] expected: &[i64],
    ) {
        let history: Vec<StoredRevision> = words
            .split(' ')
            .zip(1..)
            .map(|(word, revision)| {
                let (status, before) = word.split_once(':').unwrap_or((word, ""));
                StoredRevision {
                    before_removal: (!before.is_empty()).then(|| Status::from(before)),
                    provenance: Provenance::Foreign,
                    ..StoredRevision::new(revision, Status::from(status))
                }
            })
            .collect();
        let good = |history: &[StoredRevision]| {
            good_before_removal(history).map_or(Vec::new(), |(_, good)| good)
        };
        assert_eq!(good(&history), expected, "{words}");
        let attempt = StoredRevision {
            provenance: Provenance::Noted,
            ..StoredRevision::new(9, Status::Failed)
        };
        let with_attempt = [history, vec![attempt]].concat();
        assert_eq!(good(&with_attempt), expected, "{words}, and an attempt");
    }
}
