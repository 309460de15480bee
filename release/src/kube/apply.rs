//! Server-side apply of a manifest, in order.
//!
//! Definitions go first and are waited for when the same manifest uses them; then one kind after
//! the other in manifest order, the objects of a kind in parallel. A failed object does not stop the
//! others, so that one report names everything that is wrong; an unreachable server does.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use objects::conflict::FieldConflict;
use objects::readiness::wait::Mode;
use objects::{Object, ObjectKey};
use serde_json::Value;

use super::check::observe_all;
use super::claim::{Claim, HookClaim};
use super::client::Cluster;
use super::error::ApiError;
use super::object_failure::ObjectFailure;
use super::ownership::{Created, Owner, OwnershipError};
use super::sender::Sender;
use super::transport::{PARALLEL, forget_managers};
use super::version::{Version, WrittenObjects};
use super::wait::{forget_body, is_established, wait_until_ready};
use super::write::{ApplyOptions, ObjectWriter, Written, WrittenObject};
use crate::state::ownership::{Operation, Verdict};

/// How long a definition may take to be served.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(60);

/// Result of applying objects.
#[derive(Debug, Default)]
pub struct Applied {
    /// The objects as they are now, without `managedFields`, in the order they were written; none unless they were asked for.
    pub live: Vec<Value>,
    /// Fields other managers held.
    pub conflicts: Vec<FieldConflict>,
    /// Objects that are known to be new, and all of a hook, without what they say.
    pub(crate) created: Vec<(Object, Created)>,
    /// Objects that were there before, and are the release's own once it is deployed.
    pub(crate) kept: Vec<(Object, Option<Created>)>,
    /// Whether an object was there that might have been somebody else's.
    pub(crate) found: bool,
    /// Which objects they are, by whatever name.
    pub(crate) written: WrittenObjects,
}

/// Some objects could not be written; the others were.
#[derive(Debug)]
pub struct ApplyError {
    /// The failed objects, in manifest order; never empty.
    pub failures: Vec<ObjectFailure>,
    /// The objects that were written nevertheless.
    pub applied: Applied,
}

/// An object that is somebody else's, and what came of those beside it.
pub(crate) struct ForeignObject {
    pub(crate) source: OwnershipError,
    pub(crate) created: Vec<(Object, Created)>,
    /// Whether another object may be there though nobody answered that it is.
    pub(crate) is_outcome_unknown: bool,
}

impl std::fmt::Display for ApplyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, failure) in self.failures.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&crate::error::error_chain(failure))?;
        }
        Ok(())
    }
}

impl std::error::Error for ApplyError {}

impl ApplyError {
    /// One object was refused.
    pub(crate) fn of(object: &Object, source: ApiError) -> Self {
        Self {
            failures: vec![ObjectFailure::Apply(object.describe(), source)],
            applied: Applied::default(),
        }
    }

    /// The error for an object whose owner cannot be determined; nothing was written.
    pub(crate) fn unknown(source: OwnershipError) -> Self {
        Self {
            failures: vec![ObjectFailure::NotOwned(source)],
            applied: Applied::default(),
        }
    }

    /// Splits off that an object is somebody else's, and what was created before that was found.
    pub(crate) fn foreign_object(mut self) -> Result<ForeignObject, Self> {
        let is_foreign = |failure: &ObjectFailure| matches!(failure, ObjectFailure::NotOwned(_));
        match self.failures.iter().position(is_foreign) {
            Some(at) => match self.failures.swap_remove(at) {
                ObjectFailure::NotOwned(source) => Ok(ForeignObject {
                    source,
                    // Whether one of the objects written beside it may be there without an answer.
                    is_outcome_unknown: self.is_outcome_unknown(),
                    created: self.applied.created,
                }),
                failure => {
                    self.failures.push(failure);
                    Err(self)
                }
            },
            None => Err(self),
        }
    }

    /// Whether an object may be there though nobody answered that it is.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        let causes = self.failures.iter().filter_map(std::error::Error::source);
        let mut answers = causes.filter_map(|cause| cause.downcast_ref::<ApiError>());
        answers.any(ApiError::is_outcome_unknown)
    }

    /// The API server's reason for the first failure.
    pub fn reason(&self) -> &'static str {
        self.failures
            .first()
            .map_or("Unknown", ObjectFailure::reason)
    }
}

/// Writes all objects of a manifest.
///
/// `previous` are the objects of the revision before, to tell what the chart changed. An object that `claim` leaves
/// open and that turns out to be somebody else's ends everything. The body of an object is dropped once it was written, but for
/// what is asked of it when it is waited for.
///
/// # Errors
/// Some objects were refused; the rest was written.
///
/// # Cancellation
/// Objects written so far stay. Applying the same objects again is safe.
pub(crate) async fn apply_all(
    cluster: &Cluster,
    objects: &mut [Object],
    previous: &BTreeMap<ObjectKey, Object>,
    options: ApplyOptions,
    claim: Option<Claim<'_>>,
) -> Result<Applied, ApplyError> {
    let writer = ObjectWriter {
        sender: Sender {
            cluster,
            own_kinds: used_definitions(objects),
            is_update: options.is_update,
        },
        previous,
        options,
        claim,
        hooks: None,
        found: AtomicBool::new(false),
    };
    write_manifest(writer, objects).await
}

/// Writes the objects of one hook, each only where nothing has its name or where it is the hook's own, and says on each which run wrote it.
/// Gives the answers, and which objects those are.
///
/// # Errors
/// See [`apply_all`]; something else that has the name of one is [`ObjectFailure::NoHookOfOurs`].
///
/// # Cancellation
/// See [`apply_all`].
pub(crate) async fn apply_hook(
    cluster: &Cluster,
    objects: &mut [Object],
    claim: HookClaim<'_>,
) -> Result<Applied, ApplyError> {
    for object in objects.iter_mut() {
        claim.run.sign(&mut object.body);
    }
    let previous = BTreeMap::new();
    let writer = ObjectWriter {
        // A hook's body decides how its end is waited for.
        options: ApplyOptions {
            keeps_answers: true,
            ..ApplyOptions::default()
        },
        hooks: Some(claim),
        sender: Sender {
            cluster,
            own_kinds: used_definitions(objects),
            is_update: false,
        },
        ..ObjectWriter::again(cluster, &previous)
    };
    write_manifest(writer, objects).await
}

async fn write_manifest(
    writer: ObjectWriter<'_>,
    objects: &mut [Object],
) -> Result<Applied, ApplyError> {
    let cluster = writer.sender.cluster;
    let (mut definitions, mut others): (Vec<_>, Vec<_>) =
        objects.iter_mut().partition(|object| object.is_crd());
    let mut done = Progress::default();
    done.add(write_all(&writer, &mut definitions).await);
    if !definitions.is_empty() {
        cluster.forget_discovery();
        if !done.is_over() && !writer.sender.own_kinds.is_empty() {
            definitions.retain(|object| !done.served.contains(&object.name));
            done.failures.extend(establish(cluster, &definitions).await);
        }
    }
    for kind in others.chunk_by_mut(|a, b| a.resource.kind == b.resource.kind) {
        if done.is_over() {
            break;
        }
        done.add(write_all(&writer, kind).await);
    }
    if done.failures.iter().any(ObjectFailure::is_unserved) {
        // The next attempt shall report which kind is not there any more.
        cluster.forget_discovery();
    }
    done.applied.found = writer.found.into_inner();
    match done.failures.is_empty() {
        true => Ok(done.applied),
        false => Err(ApplyError {
            failures: done.failures,
            applied: done.applied,
        }),
    }
}

async fn write_all(writer: &ObjectWriter<'_>, objects: &mut [&mut Object]) -> Vec<WriteOutcome> {
    let writes: Vec<_> = objects
        .iter_mut()
        .map(|object| write_one(writer, object).boxed())
        .collect();
    stream::iter(writes).buffered(PARALLEL).collect().await
}

async fn write_one(writer: &ObjectWriter<'_>, object: &mut Object) -> WriteOutcome {
    let mut written = writer.write(object).await;
    let (mut served, mut version) = (None, None);
    if let Ok(Some(WrittenObject { live, .. })) = &mut written {
        version = Some(Version::of(live));
        served = (object.is_crd() && is_established(live)).then(|| object.name.clone());
        match writer.options.keeps_answers {
            true => forget_managers(live),
            false => *live = Value::Null,
        }
    }
    forget_body(object);
    WriteOutcome {
        written,
        served,
        version,
    }
}

/// Result of writing one object.
struct WriteOutcome {
    written: Written,
    /// The definition that is served already.
    served: Option<String>,
    /// The object that was written.
    version: Option<Version>,
}

/// Waits for definitions to be served.
async fn establish(cluster: &Cluster, definitions: &[&mut Object]) -> Vec<ObjectFailure> {
    let mut failures = Vec::new();
    for object in definitions {
        let waited = wait_until_ready(cluster, &[&**object], Mode::Wait, ESTABLISH_TIMEOUT).await;
        let failed = |source| ObjectFailure::NotEstablished(object.describe(), source);
        failures.extend(waited.err().map(failed));
    }
    failures
}

/// Group and kind of what `objects` use and define themselves.
fn used_definitions(objects: &[Object]) -> HashSet<(String, String)> {
    let defined: HashSet<(String, String)> = objects
        .iter()
        .filter(|object| object.is_crd())
        .filter_map(|crd| {
            let text = |pointer: &str| crd.body.pointer(pointer)?.as_str().map(str::to_owned);
            Some((text("/spec/group")?, text("/spec/names/kind")?))
        })
        .collect();
    let used = |object: &Object| (object.resource.group.clone(), object.resource.kind.clone());
    objects
        .iter()
        .map(used)
        .filter(|kind| defined.contains(kind))
        .collect()
}

#[derive(Default)]
struct Progress {
    applied: Applied,
    failures: Vec<ObjectFailure>,
    /// Names of definitions that are served.
    served: HashSet<String>,
}

impl Progress {
    fn add(&mut self, outcomes: Vec<WriteOutcome>) {
        for WriteOutcome {
            written,
            served,
            version,
        } in outcomes
        {
            self.served.extend(served);
            if let Some(version) = version {
                self.applied.written.add(version);
            }
            match written {
                Ok(None) => {}
                Ok(Some(WrittenObject {
                    live,
                    conflicts,
                    created,
                    kept,
                })) => {
                    self.applied.kept.extend(kept);
                    self.applied.created.extend(created);
                    self.applied.conflicts.extend(conflicts);
                    if !live.is_null() {
                        self.applied.live.push(live);
                    }
                }
                Err(failure) => self.failures.push(failure),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.failures.iter().any(ObjectFailure::ends_all)
    }
}

/// Applies objects of a release again, its marks included: what drifted is put right by the fields
/// we own. The record of the release is not touched. Each object is read first: what another release has marked
/// by now is left alone, which is an error.
///
/// # Errors
/// What could not be written; the rest was.
///
/// # Cancellation
/// Safe: each object is written whole or not at all.
pub async fn reapply(
    cluster: &Cluster,
    owner: &Owner,
    mut objects: Vec<Object>,
    options: ApplyOptions,
) -> Result<Applied, ApplyError> {
    let as_recorded = |object: &Object| (object.key(), object.clone());
    let previous: BTreeMap<ObjectKey, Object> = objects.iter().map(as_recorded).collect();
    for object in &mut objects {
        owner.mark(&mut object.body);
        // The object is written with the version found here.
        if let Some(Value::Object(metadata)) = object.body.get_mut("metadata") {
            metadata.remove("resourceVersion");
        }
    }
    let all: Vec<&Object> = objects.iter().collect();
    let observed = observe_all(cluster, &all)
        .await
        .map_err(ApplyError::unknown)?;
    let found = observed
        .into_iter()
        .map(|(object, found)| (object.key(), found));
    let open: HashMap<ObjectKey, Option<Value>> = found.collect();
    let recorded: HashSet<ObjectKey> = open.keys().cloned().collect();
    let claim = Claim {
        owner,
        operation: Operation::Correct,
        open: &open,
        recorded: &recorded,
    };
    let (mut ours, theirs): (Vec<_>, Vec<_>) = objects.into_iter().partition(|object| {
        let found = open.get(&object.key()).and_then(Option::as_ref);
        claim.verdict(object, found) != Verdict::Refuse
    });
    // An object of another owner keeps none of the others from being corrected.
    let refused = theirs.iter().filter_map(|object| {
        let live = open.get(&object.key())?.as_ref()?;
        Some(ObjectFailure::NotOwned(owner.refusal(object, live)))
    });
    let refused: Vec<ObjectFailure> = refused.collect();
    match apply_all(cluster, &mut ours, &previous, options, Some(claim)).await {
        Ok(applied) if refused.is_empty() => Ok(applied),
        Ok(applied) => Err(ApplyError {
            failures: refused,
            applied,
        }),
        Err(mut error) => {
            error.failures.extend(refused);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{Request, Response};
    use kube::client::Body;
    use objects::Resource;
    use parking_lot::Mutex;
    use rstest::rstest;
    use serde_json::json;
    use tower::BoxError;

    use super::super::delete::{Removal, Removed, Spared, delete_all};
    use super::super::fixture::{object, server};
    use super::*;
    use crate::kube::RunMark;
    use crate::others::OtherReleases;
    use crate::record::{RecordId, RecordUid};

    fn record(revision: i64) -> RecordId {
        let uid = RecordUid::new("u");
        RecordId { revision, uid }
    }

    /// As OpenShift serves a RoleBinding: a version that writes it in the other group has no longer what the one before it calls it.
    #[tokio::test]
    async fn an_object_that_was_written_in_another_group_is_not_deleted() {
        let owner = Owner::new("web", "shop");
        let mut live = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}});
        owner.mark(&mut live);
        let deleted = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&deleted);
        let cluster = server(move |method, path, _| {
            *counted.lock() += u32::from(*method == http::Method::DELETE);
            let mut live = live.clone();
            if !path.ends_with("/rolebindings/a") {
                live["metadata"]["uid"] = json!("v");
            }
            Some((200, live))
        });
        let body = || json!({"metadata": {"name": "a"}});
        let mut desired = [object("rbac.authorization.k8s.io", "RoleBinding", body())];
        let (previous, options) = (BTreeMap::new(), ApplyOptions::default());
        let applied = apply_all(&cluster, &mut desired, &previous, options, None).await;
        let written = applied.unwrap().written;
        let spared = Spared {
            written: Some(&written),
            ..Spared::default()
        };
        let former = ["RoleBinding", "Role"];
        let former = former.map(|kind| object("authorization.openshift.io", kind, Value::Null));
        let objects = former.map(|object| (object, Operation::Drop)).into();
        let check = || std::future::ready(Ok::<_, &str>(()));
        let none = OtherReleases::default();
        let mut removed = Removed::default();
        let into = &mut removed;
        let done = delete_all(&cluster, &owner, &none, spared, objects, check, into).await;
        done.unwrap();
        let fates = removed.objects.into_iter().map(|(_, fate)| fate);
        assert_eq!(
            fates.collect::<Vec<_>>(),
            [Removal::Written, Removal::Deleted]
        );
        assert_eq!(*deleted.lock(), 1);
    }

    /// A hook names a version that nothing has, so that what is there already is looked at before it is written over; a definition too.
    #[rstest]
    #[case("scheduling.k8s.io", "PriorityClass", "priorityclasses", "high")]
    #[case(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "cars.x.io"
    )]
    #[tokio::test]
    async fn a_hook_is_created_and_written_over_nothing(
        #[case] group: &str,
        #[case] kind: &str,
        #[case] plural: &str,
        #[case] name: &str,
    ) {
        let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
        let reported = Arc::clone(&seen);
        let serve = tower::service_fn(move |request: Request<Body>| {
            let reported = Arc::clone(&reported);
            async move {
                let body = request.into_body().collect_bytes().await?;
                reported.lock().push(serde_json::from_slice(&body)?);
                let answer = json!({"metadata": {"name": "x", "uid": "u", "resourceVersion": "7"}});
                Ok::<_, BoxError>(Response::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let object = Object {
            resource: Arc::new(Resource {
                group: group.to_owned(),
                version: "v1".to_owned(),
                kind: kind.to_owned(),
                plural: plural.to_owned(),
                namespaced: false,
            }),
            namespace: None,
            name: name.to_owned(),
            body: json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": name}}),
        };
        let run = RunMark::new(Owner::new("web", "shop"), &record(3), "pre-install");
        let claim = HookClaim {
            run: &run,
            makes_way: false,
            is_resumed: false,
        };
        let applied = apply_hook(&cluster, &mut [object], claim).await.unwrap();
        assert_eq!(applied.created.len(), 1);
        let seen = seen.lock();
        let metadata = &seen[0]["metadata"];
        assert_eq!(metadata["resourceVersion"], "1");
        let annotation = &metadata["annotations"]["fleetagent.cattle.io/hook-of"];
        assert_eq!(annotation, "shop/web 3 pre-install u");
    }

    /// The connection broke after the API server had carried it out: what is there says for which run.
    #[tokio::test]
    async fn a_hook_whose_creation_was_not_answered_is_its_run() {
        let run = RunMark::new(Owner::new("web", "shop"), &record(3), "pre-install");
        let other = RunMark::new(Owner::new("other", "shop"), &record(3), "pre-install");
        for (of, is_found) in [(&run, true), (&other, false)] {
            let mut live = json!({"metadata": {
                "name": "a", "uid": "u", "resourceVersion": "7",
                "annotations": {"helm.sh/hook": "pre-install"},
                "managedFields": [{"manager": "fleetagent", "operation": "Apply"}],
            }});
            of.sign(&mut live);
            let serve = tower::service_fn(move |request: Request<Body>| {
                let answer = match request.method().as_str() {
                    "GET" => Ok(Response::new(Body::from(live.to_string().into_bytes()))),
                    _ => Err(BoxError::from("connection reset by peer")),
                };
                std::future::ready(answer)
            });
            let cluster = Cluster::new(kube::Client::new(serve, "n"));
            let object = Object {
                resource: Arc::new(Resource {
                    group: "batch".to_owned(),
                    version: "v1".to_owned(),
                    kind: "Job".to_owned(),
                    plural: "jobs".to_owned(),
                    namespaced: true,
                }),
                namespace: Some("shop".to_owned()),
                name: "a".to_owned(),
                body: json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}}),
            };
            let claim = HookClaim {
                run: &run,
                makes_way: true,
                is_resumed: false,
            };
            let applied = apply_hook(&cluster, &mut [object], claim).await;
            let found = applied.map(|applied| applied.created.len());
            assert_eq!(found.ok(), is_found.then_some(1));
        }
    }

    /// Two of them that fight for a name: each deletes what the other made, and this one comes too late each time.
    #[tokio::test]
    async fn an_object_that_is_made_anew_and_deleted_each_time_is_given_up() {
        let requests = Arc::new(Mutex::new(0));
        let is_there = Arc::new(Mutex::new(false));
        let serve = tower::service_fn(move |request: Request<Body>| {
            let mut requests = requests.lock();
            *requests += 1;
            let mut is_there = is_there.lock();
            let (code, answer) = match (request.method().as_str(), *is_there) {
                // Ends a loop of writes that begins anew each time.
                _ if *requests > 1000 => (400, json!({"kind": "Status", "code": 400})),
                ("PATCH", _) => {
                    *is_there = true;
                    let status = json!({"kind": "Status", "code": 409, "reason": "Conflict"});
                    (409, status)
                }
                (_, true) => {
                    *is_there = false;
                    let metadata = json!({"name": "a", "uid": "u", "resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:00:00Z"});
                    (200, json!({ "metadata": metadata }))
                }
                (_, false) => (
                    404,
                    json!({"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": "a"}}),
                ),
            };
            let answer = Response::builder()
                .status(code)
                .body(Body::from(answer.to_string().into_bytes()));
            std::future::ready(Ok::<_, BoxError>(answer.expect("it is valid")))
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let owner = Owner::new("web", "shop");
        let mut objects = [object("", "ConfigMap", json!({"metadata": {"name": "a"}}))];
        let claim = Claim {
            owner: &owner,
            operation: Operation::Upgrade,
            open: &HashMap::from([(objects[0].key(), None)]),
            recorded: &HashSet::new(),
        };
        let (previous, options) = (BTreeMap::new(), ApplyOptions::default());
        let failed = apply_all(&cluster, &mut objects, &previous, options, Some(claim)).await;
        let failures = failed.unwrap_err().failures;
        assert!(
            matches!(failures[..], [ObjectFailure::Terminating(..)]),
            "{failures:?}"
        );
    }

    #[test]
    fn an_unanswered_write_keeps_its_outcome_unknown_beside_a_foreign_object() {
        let foreign = || {
            ObjectFailure::NotOwned(OwnershipError::Foreign {
                object: "b".to_owned(),
                problems: Vec::new(),
            })
        };
        let unanswered = || {
            let reset = kube::Error::Service("connection reset by peer".into());
            ObjectFailure::Apply("a".to_owned(), ApiError::Unreachable(reset))
        };
        let is_outcome_unknown = |failures| {
            let applied = Applied::default();
            let foreign = ApplyError { failures, applied }.foreign_object();
            foreign.ok().map(|foreign| foreign.is_outcome_unknown)
        };
        assert_eq!(
            is_outcome_unknown(vec![unanswered(), foreign()]),
            Some(true)
        );
        assert_eq!(is_outcome_unknown(vec![foreign()]), Some(false));
        assert_eq!(is_outcome_unknown(vec![unanswered()]), None);
    }

    #[test]
    fn an_object_that_cannot_be_read_fails_with_the_api_servers_reason() {
        let status = kube::core::Status::failure("no", "Forbidden").with_code(403);
        let unseen = ApplyError::unknown(OwnershipError::Unknown {
            object: "a".to_owned(),
            source: ApiError::Refused(status.boxed()),
        });
        assert_eq!(unseen.reason(), "Forbidden");
    }
}
