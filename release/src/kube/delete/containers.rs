//! Namespaces and definitions, which take along what is in them: what stays of that, and which other releases are in them.

use std::collections::HashMap;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use objects::{Object, Resource};
use serde_json::Value;
use tokio::time::sleep;

use super::outcome::{DeleteError, Removal};
use super::proof::{Spared, prove, read_to_delete};
use crate::kube::client::Cluster;
use crate::kube::error::ApiError;
use crate::kube::ownership::{Owner, is_kept};
use crate::kube::transport::PARALLEL;
use crate::kube::tries::{MAX_TRIES, pause};
use crate::others::{Container, ContainerUsage, OtherReleases, WhyLeft};
use crate::state::ownership::Operation;

/// Whether a namespace or definition that may be deleted has releases in it that are about to go.
///
/// # Errors
/// The object cannot be read.
pub(crate) async fn is_deferred(
    cluster: &Cluster,
    owner: &Owner,
    other_releases: &OtherReleases,
    container: &Object,
    operation: Operation,
) -> Result<bool, DeleteError> {
    if usage(container, other_releases) != ContainerUsage::Draining {
        return Ok(false);
    }
    let proof = prove(
        cluster,
        owner,
        Spared::default(),
        (container, operation),
        None,
    )
    .await;
    let proof = proof.map_err(|error| DeleteError::unseen(container, error))?;
    Ok(proof.is_ok())
}

/// What an object is in a container that is about to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// One that the operation is about to delete.
    Of(Operation),
    /// The same, of which only somebody else's record tells.
    OfForeign(Operation),
    /// One that a record asks to keep.
    Kept,
    /// The same, where only somebody else's record does.
    KeptOfForeign,
    /// One that a hook has made, which the operation leaves alone.
    OfHook,
    /// One that somebody else's attempt at the release has, which the operation leaves alone.
    OfOthers,
    /// One that a former revision has, and that was dropped or left since, as the operation says: it may be anybody's by now.
    OfFormer(Operation),
}

/// What is in containers that are about to go: what of it stays, so that they have to. That is what the operation leaves where it is: what asks to be
/// kept, was there before the release or is not the release's. All is read before anything is deleted.
pub(crate) async fn read_contents<'o>(
    cluster: &Cluster,
    owner: &Owner,
    spared: Spared<'_>,
    objects: &[(&'o Object, Content)],
) -> Contents<'o> {
    let reads: Vec<_> = objects
        .iter()
        .map(|(object, content)| fate(cluster, owner, spared, object, *content).boxed())
        .collect();
    let read: Vec<_> = stream::iter(reads).buffered(PARALLEL).collect().await;
    note_unread(cluster, owner, objects, &read);
    let mut found = Contents::default();
    for ((object, content), read) in objects.iter().zip(read) {
        match read {
            Ok(Fate::Stays | Fate::StaysUnread) => found.stays.push(*object),
            Ok(Fate::Goes | Fate::Absent) => {}
            Err(source) => found.unseen.push(Unseen {
                object,
                is_lasting: is_unreadable(*content, &source)
                    && cluster.unread().is_lasting(owner, &object.resource),
                failure: DeleteError::unseen(object, source),
            }),
        }
    }
    found
}

/// What becomes of an object in a container.
enum Fate {
    Absent,
    Goes,
    /// What contains it stays with it.
    Stays,
    /// The same, without its having been read.
    StaysUnread,
}

impl Fate {
    /// Of an object that was read.
    fn of(stays: bool) -> Self {
        if stays { Self::Stays } else { Self::Goes }
    }
}

/// Whether nobody can read an object, for a reason that may last: what a hook made, or others have, the account may have no right to read, and what somebody
/// has invented the API server may refuse to be asked for.
fn is_unreadable(content: Content, error: &ApiError) -> bool {
    let is_beside = matches!(
        content,
        Content::OfHook
            | Content::OfOthers
            | Content::OfFormer(_)
            | Content::OfForeign(_)
            | Content::KeptOfForeign
    );
    error.is_unconverted() || is_beside && error.is_lasting_refusal()
}

/// Reads an object in a container that is about to go.
async fn fate(
    cluster: &Cluster,
    owner: &Owner,
    spared: Spared<'_>,
    object: &Object,
    content: Content,
) -> Result<Fate, ApiError> {
    let operation = match content {
        Content::Of(operation) | Content::OfForeign(operation) => operation,
        // The API server has named it, so that nobody can ask for it.
        Content::Kept | Content::KeptOfForeign if object.name.is_empty() => {
            return Ok(Fate::StaysUnread);
        }
        Content::OfHook | Content::OfOthers | Content::OfFormer(_) if object.name.is_empty() => {
            return Ok(match is_kept(&object.body) {
                true => Fate::StaysUnread,
                false => Fate::Absent,
            });
        }
        // It stays where the release's own of that place would, or where it is not the release's. What an attempt took over is none of it.
        Content::OfOthers => Operation::Undo,
        Content::OfFormer(operation) => operation,
        Content::Kept | Content::KeptOfForeign | Content::OfHook => {
            let live = read_to_stay(cluster, object).await?;
            let is_asked = matches!(content, Content::Kept | Content::KeptOfForeign);
            let stays = |live: &Value| is_asked || is_kept(live);
            return Ok(live.map_or(Fate::Absent, |live| Fate::of(stays(&live))));
        }
    };
    let is_of_former = matches!(content, Content::OfFormer(_));
    if is_of_former {
        // Whosever it is.
        let live = read_to_stay(cluster, object).await?;
        if live.is_some_and(|live| is_kept(&live)) {
            return Ok(Fate::Stays);
        }
    }
    let proof = prove(cluster, owner, spared, (object, operation), None).await?;
    Ok(match proof {
        Ok(_) => Fate::Goes,
        Err(Removal::Absent) => Fate::Absent,
        Err(Removal::Kept) => Fate::Stays,
        // What was there before the release stays, and whatever else is there goes with its container, as what no record has does.
        Err(removal) if is_of_former => {
            Fate::of(removal == Removal::Adopted && !is_made_with_namespace(object))
        }
        Err(_) => Fate::of(!is_made_with_namespace(object)),
    })
}

/// Reads an object that no operation deletes; nothing where it is not there, or on its way out.
async fn read_to_stay(cluster: &Cluster, object: &Object) -> Result<Option<Value>, ApiError> {
    let found = read_to_delete(cluster, object).await?;
    let is_leaving = |live: &Value| live.pointer("/metadata/deletionTimestamp").is_some();
    let live = found.map(|(live, _)| live);
    Ok(live.filter(|live| !is_leaving(live)))
}

/// Takes note of an object that only records of others name, or of a container that stays, and that cannot be read or deleted: whether nobody waits for that
/// any more, as it has been so for minutes.
pub(crate) fn is_given_up(
    cluster: &Cluster,
    owner: &Owner,
    object: &Object,
    failure: &DeleteError,
) -> bool {
    if !failure.source.is_lasting_refusal() && !failure.source.is_unconverted() {
        return false;
    }
    cluster.undeleted().note(owner, &object.resource, true);
    cluster.undeleted().is_lasting(owner, &object.resource)
}

/// Takes note of a try to remove a release, and of whether kinds that former revisions alone have are not served. Whether the removal waits for them: no
/// longer once that was so in each try of the last minutes, whichever kinds they were, as several that fail in turn would make it wait for ever.
pub(crate) fn waits_for_served(cluster: &Cluster, owner: &Owner, has_unserved: bool) -> bool {
    cluster.unserved().note(owner, &(), has_unserved);
    has_unserved && !cluster.unserved().is_lasting(owner, &())
}

/// Forgets since when that has been so: the release is deployed, and its next removal is another one.
pub(crate) fn forget_unserved(cluster: &Cluster, owner: &Owner) {
    cluster.unserved().forget(owner);
}

/// Forgets what a removal waited for, or gave up: it is over, and the next one is another.
pub(crate) fn forget_removal(cluster: &Cluster, owner: &Owner) {
    for noted in [cluster.unread(), cluster.undeleted()] {
        noted.forget(owner);
    }
    cluster.unserved().forget(owner);
}

/// A namespace or definition that an operation would delete, and leaves for what is in it.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) object: Object,
    pub(crate) operation: Operation,
    /// Whether that is only because something in it cannot be read.
    pub(crate) is_unread: bool,
}

/// Leaves those of `held` that other releases use by now to them, and tells of those that are left unread. All are tried.
///
/// # Errors
/// Some could not be read or changed, which may be otherwise with the next try.
pub(crate) async fn leave_held(
    cluster: &Cluster,
    owner: &Owner,
    other_releases: &OtherReleases,
    spared: Spared<'_>,
    held: &[Held],
) -> Result<(), Vec<DeleteError>> {
    let mut failures = Vec::new();
    for one in held {
        if usage(&one.object, other_releases) == ContainerUsage::InUse {
            let reached = (&one.object, one.operation);
            let left = leave(cluster, owner, other_releases, spared, reached).await;
            failures.extend(left.err());
        } else if one.is_unread {
            // Of what is gone, or another's, there is nothing to tell.
            let reached = (&one.object, one.operation);
            match prove(cluster, owner, spared, reached, None).await {
                Ok(Ok(_)) => other_releases.left(&one.object, WhyLeft::Unread),
                Ok(Err(_)) => {}
                Err(error) => failures.push(DeleteError::unseen(&one.object, error)),
            }
        }
        // It stays in any case.
        let given_up = failures.pop_if(|failure| {
            *failure.key() == one.object.key() && is_given_up(cluster, owner, &one.object, failure)
        });
        if given_up.is_some() {
            let (release, object) = (&owner.name, one.object.describe());
            logging::warn!(release, object, "may not be read or changed, left as it is");
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures),
    }
}

/// Leaves a namespace or definition to the releases that use it: it is no more of this one then, and whose chart has it next may have it.
///
/// # Errors
/// It cannot be read or changed, which may be otherwise with the next try.
pub(super) async fn leave(
    cluster: &Cluster,
    owner: &Owner,
    other_releases: &OtherReleases,
    spared: Spared<'_>,
    (object, operation): (&Object, Operation),
) -> Result<Removal, DeleteError> {
    let mut tries = 1;
    loop {
        let proof = prove(cluster, owner, spared, (object, operation), None).await;
        let proof = match proof.map_err(|error| DeleteError::unseen(object, error))? {
            Ok(proof) => proof,
            Err(stays) => return Ok(stays),
        };
        match cluster.leave(object, &proof).await {
            Ok(()) => break,
            Err(error) if error.is_not_found() => return Ok(Removal::Absent),
            Err(error) if (error.is_conflict() || error.is_unserved()) && tries < MAX_TRIES => {
                sleep(pause(tries)).await;
                tries += 1;
            }
            Err(error) if error.is_retryable() || error.is_unserved() => {
                return Err(DeleteError::new(object, error));
            }
            // An account or a webhook says no. It stays in any case. Whose chart has it next has to say `takeOwnership`.
            Err(_) => {
                let (release, object) = (&owner.name, object.describe());
                logging::warn!(release, object, "may not be changed, left with its marks");
                break;
            }
        }
    }
    other_releases.left(object, WhyLeft::Others);
    Ok(Removal::InUse)
}

/// Takes note of the kinds whose objects were read, or of which nobody can read some. What is not there was not read either.
fn note_unread(
    cluster: &Cluster,
    owner: &Owner,
    objects: &[(&Object, Content)],
    read: &[Result<Fate, ApiError>],
) {
    let mut tried: HashMap<&Resource, bool> = HashMap::new();
    for ((object, content), read) in objects.iter().zip(read) {
        let has_failed = match read {
            Ok(Fate::Goes | Fate::Stays) => false,
            Err(error) if is_unreadable(*content, error) => true,
            // Any other failure says nothing of that.
            Ok(Fate::Absent | Fate::StaysUnread) | Err(_) => continue,
        };
        *tried.entry(&object.resource).or_default() |= has_failed;
    }
    for (kind, has_failed) in tried {
        cluster.unread().note(owner, kind, has_failed);
    }
}

/// What is in containers that are about to go.
#[derive(Default)]
pub(crate) struct Contents<'o> {
    /// It stays where it is, so that its containers have to.
    pub(crate) stays: Vec<&'o Object>,
    pub(crate) unseen: Vec<Unseen<'o>>,
}

/// Something in a container that cannot be read.
pub(crate) struct Unseen<'o> {
    pub(crate) object: &'o Object,
    /// Whether that has been so for so long that nobody waits for it any more.
    pub(crate) is_lasting: bool,
    pub(crate) failure: DeleteError,
}

/// Whether Kubernetes makes the object with its namespace: that it was there before the release says nothing.
pub(crate) fn is_made_with_namespace(object: &Object) -> bool {
    let kind = (
        object.resource.group.as_str(),
        object.resource.kind.as_str(),
    );
    let made = [
        (("", "ServiceAccount"), "default"),
        (("", "ConfigMap"), "kube-root-ca.crt"),
    ];
    made.contains(&(kind, object.name.as_str()))
}

/// Other releases in an object that is about to be deleted.
pub(super) fn usage(object: &Object, other_releases: &OtherReleases) -> ContainerUsage {
    match Container::of(object) {
        Some(container) => other_releases.of(container),
        None => ContainerUsage::Unused,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn only_deleting_a_namespace_or_definition_asks_for_other_releases_in_it() {
        let object = |group: &str, kind: &str, name: &str| Object {
            resource: Arc::new(Resource {
                group: group.to_owned(),
                version: "v1".to_owned(),
                kind: kind.to_owned(),
                plural: kind.to_lowercase() + "s",
                namespaced: kind == "ConfigMap",
            }),
            namespace: None,
            name: name.to_owned(),
            body: Value::Null,
        };
        let other_releases = OtherReleases::new(|container| match container {
            Container::Namespace("team") | Container::Definition("cars.x.io") => {
                ContainerUsage::InUse
            }
            Container::Namespace("old") | Container::Definition("boats.x.io") => {
                ContainerUsage::Draining
            }
            _ => ContainerUsage::Unused,
        });
        let namespace = |name| object("", "Namespace", name);
        let definition = |name| object("apiextensions.k8s.io", "CustomResourceDefinition", name);
        let of = |object: &Object| usage(object, &other_releases);
        assert_eq!(of(&namespace("team")), ContainerUsage::InUse);
        assert_eq!(of(&namespace("old")), ContainerUsage::Draining);
        assert_eq!(of(&namespace("other")), ContainerUsage::Unused);
        assert_eq!(of(&definition("cars.x.io")), ContainerUsage::InUse);
        assert_eq!(of(&definition("boats.x.io")), ContainerUsage::Draining);
        assert_eq!(of(&definition("planes.x.io")), ContainerUsage::Unused);
        assert_eq!(of(&object("", "ConfigMap", "team")), ContainerUsage::Unused);
        assert_eq!(
            usage(&namespace("team"), &OtherReleases::default()),
            ContainerUsage::Unused
        );
    }
}
