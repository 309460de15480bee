//! Checking the owners of objects before anything is written.

use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use objects::Object;

use super::client::Cluster;
use super::ownership::{Owner, OwnershipError, OwnershipRule};
use super::transport::PARALLEL;

/// Looks at those of `objects` that are there already; none may be somebody else's. Nothing is
/// changed.
///
/// # Errors
/// The first object, in manifest order, that is not ours to take.
pub(crate) async fn check_all(
    cluster: &Cluster,
    owner: &Owner,
    claim: OwnershipRule,
    objects: &[&Object],
) -> Result<(), OwnershipError> {
    let looks: Vec<_> = objects
        .iter()
        .filter(|object| !object.name.is_empty())
        .map(|object| check_one(cluster, owner, claim, object).boxed())
        .collect();
    stream::iter(looks)
        .buffered(PARALLEL)
        .try_collect::<()>()
        .await
}

async fn check_one(
    cluster: &Cluster,
    owner: &Owner,
    claim: OwnershipRule,
    object: &Object,
) -> Result<(), OwnershipError> {
    match cluster.get_metadata(object).await {
        Ok(None) => Ok(()),
        Ok(Some(live)) => owner.check(claim, object, &live),
        Err(source) => Err(OwnershipError::Unknown {
            object: object.describe_for_people(),
            source,
        }),
    }
}
