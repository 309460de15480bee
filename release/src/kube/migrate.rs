//! Taking over the fields that another Helm client owns.
//!
//! A release written by Helm's command line, by Helm 3 or by a merge on the client's side has its
//! fields under other managers. Server-side apply alone would share them, and a field that the
//! chart drops would stay for ever. So, once, their entries in `managedFields` become ours. The
//! client is known by what it wrote: the annotation that names the release. Who wrote that by hand keeps what he wrote beside it. A merge on the client's
//! side would also remove what the chart drops where somebody else had edited it meanwhile, which
//! applying alone does not: what is left of it afterwards is removed ([`left_over`]).
//!
//! Mirrors `csaupgrade` of client-go, which knows the old manager's name instead.

use objects::Object;
use objects::managed_fields::{
    is_helm_clients, is_our_update, is_scaled, other_helm_managers, taken_over,
};
use objects::merge::{self, Patch};
use serde_json::{Value, json};

use super::client::Cluster;
use super::error::ApiError;
use super::ownership::Owner;
use super::transport::found_to_write;
use super::version::Version;

/// What a release is known to have written into an object: what its last manifest says of it, and the marks, which are in none.
pub(super) fn written_by(owner: Option<&Owner>, previous: Option<&Object>) -> Value {
    let mut manifest = previous.map_or_else(|| json!({}), |previous| previous.body.clone());
    if let Some(owner) = owner {
        owner.mark(&mut manifest);
    }
    manifest
}

/// Makes the entries of other Helm clients ours, as far as the last `manifest` goes where somebody else may have written them, and only in
/// `version` if one is given; gives their names and the version after that. A missing object is fine.
pub(super) async fn take_over_managers(
    cluster: &Cluster,
    object: &Object,
    version: Option<&Version>,
    manifest: &Value,
) -> Result<(Vec<String>, Option<Version>), ApiError> {
    const TRIES: u32 = 5;
    let unchanged = (Vec::new(), version.cloned());
    let mut tries = 1;
    loop {
        let Some(live) = found_to_write(cluster.get(object).await)? else {
            return Ok(unchanged);
        };
        let Some(entries) = taken_over(&live, is_helm_clients, manifest) else {
            return Ok(unchanged);
        };
        let read = Version::of(&live);
        match write_entries(cluster, object, entries, version.unwrap_or(&read)).await {
            Err(error) if error.is_conflict() && version.is_none() && tries < TRIES => tries += 1,
            Err(error) if error.is_not_found() => return Ok(unchanged),
            written => {
                let after = written?;
                return Ok((other_helm_managers(&live), version.and(Some(after))));
            }
        }
    }
}

/// Makes ours what we have written whole, and what other Helm clients wrote, as [`take_over_managers`] does; gives the version after that.
pub(super) async fn own_replaced(
    cluster: &Cluster,
    object: &Object,
    live: &Value,
    manifest: &Value,
) -> Result<Version, ApiError> {
    let read = Version::of(live);
    let is_ours = |entry: &Value| is_our_update(entry) || is_helm_clients(entry);
    match taken_over(live, is_ours, manifest) {
        Some(entries) => write_entries(cluster, object, entries, &read).await,
        None => Ok(read),
    }
}

async fn write_entries(
    cluster: &Cluster,
    object: &Object,
    entries: Value,
    version: &Version,
) -> Result<Version, ApiError> {
    let patch = json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version.resource_version()},
    ]);
    let now = cluster.json_patch(object, &patch).await?;
    Ok(Version::of(&now))
}

/// The patch that removes from `live` the fields the last manifest had and this one has not; `None` if they are gone.
pub(super) fn left_over(previous: &Value, object: &Object, live: &Value) -> Option<Patch> {
    match merge::removal(previous, &object.body, live) {
        // A chart that drops replicas hands them to whoever scales.
        Ok(Some(patch)) if is_scaled(live) => patch.without(&["spec", "replicas"]),
        Ok(patch) => patch,
        Err(_) => {
            let object = object.describe();
            logging::warn!(object, "cannot tell what the last manifest left behind");
            None
        }
    }
}
