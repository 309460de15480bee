//! Taking over the fields that another Helm client owns.
//!
//! A release written by Helm's command line, by Helm 3 or by a merge on the client's side has its
//! fields under other managers. Server-side apply alone would share them, and a field that the
//! chart drops would stay for ever. So, once, their entries in `managedFields` become ours. The
//! client is known by what it wrote: the annotation that names the release. A merge on the client's
//! side would also remove what the chart drops where somebody else had edited it meanwhile, which
//! applying alone does not: what is left of it afterwards is removed ([`left_over`]).
//!
//! Mirrors `csaupgrade` of client-go, which knows the old manager's name instead.

use objects::Object;
use objects::managed_fields::{is_scaled, other_helm_managers, taken_over};
use objects::merge::{self, Patch};
use serde_json::{Value, json};

use super::client::Cluster;
use super::error::ApiError;
use super::ownership::Version;

/// Makes the entries of other Helm clients ours, only in `version` if one is given; gives their names and the version after that. A missing
/// object is fine.
pub(super) async fn take_over_managers(
    cluster: &Cluster,
    object: &Object,
    version: Option<&Version>,
) -> Result<(Vec<String>, Option<Version>), ApiError> {
    const TRIES: u32 = 5;
    let unchanged = (Vec::new(), version.cloned());
    let mut tries = 1;
    loop {
        let Some(live) = cluster.get(object).await? else {
            return Ok(unchanged);
        };
        let Some(entries) = taken_over(&live) else {
            return Ok(unchanged);
        };
        let over = version.cloned().unwrap_or_else(|| Version::of(&live));
        let patch = json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            {"op": "replace", "path": "/metadata/resourceVersion",
             "value": over.as_str()},
        ]);
        match cluster.json_patch(object, &patch).await {
            Err(error) if error.is_conflict() && version.is_none() && tries < TRIES => tries += 1,
            Err(error) if error.is_not_found() => return Ok(unchanged),
            other => {
                let now = other?;
                let after = version.map(|_| Version::of(&now));
                return Ok((other_helm_managers(&live), after));
            }
        }
    }
}

/// What removes from `live` that the last manifest had and this one has not; none if it is gone.
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
