//! Writing one object of a manifest or a hook: whose it is when it is written, what is done about fields of others, and what came of it.
//!
//! An object that may be somebody else's is written as it was judged ([`super::claim`]), and judged again where it has changed. What the API
//! server calls invalid, with `force`, is the business of [`super::replace`].

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use objects::conflict::{
    ApplyConflict, FieldConflict, Outcome, concerns_replicas, leave_out, scales,
};
use objects::{Object, ObjectKey};
use serde_json::Value;
use tokio::time::sleep;

use super::claim::{Claim, HookClaim, HookVerdict};
use super::client::Cluster;
use super::error::ApiError;
use super::listed::{Listed, MAX_OBJECT};
use super::migrate;
use super::object_failure::ObjectFailure;
use super::ownership::{Created, HookState, Observed, OwnershipError, adoption};
use super::replace::Replacement;
use super::sender::{Body, Sender};
use super::transport::found_to_write;
use super::tries::{MAX_TRIES, pause};
use super::version::Version;
use crate::state::ownership::{Adoption, Operation, Verdict};

/// How a manifest is applied.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApplyOptions {
    /// Replace an object whose change the API server calls invalid, which drops what others wrote
    /// into it, and recreate one whose immutable field changes.
    pub force: bool,
    /// Another client wrote these objects before us: take over the fields it owns, so that what the
    /// chart no longer has goes away.
    pub migrate: bool,
    /// There was a revision or an attempt before: Helm then says of an object that it could not be
    /// *created*.
    pub is_update: bool,
    /// The previous revision's writer merged on its own side, so that fields the chart no longer has go away even where somebody else edited them;
    /// only with `migrate`.
    pub merged: bool,
    /// Whether the answers to the writes are wanted, all at once.
    pub keeps_answers: bool,
}

/// One object that was written.
pub(super) struct WrittenObject {
    pub(super) live: Value,
    pub(super) conflicts: Vec<FieldConflict>,
    /// The object without its body, and its uid, if it is known to be new, or a hook's.
    pub(super) created: Option<(Object, Created)>,
    /// The object, if it was there before, and is wanted with `takeOwnership`; and its uid, if that is known.
    pub(super) kept: Option<(Object, Option<Created>)>,
}

/// Result of writing one object; `None` if it was left to its owner.
pub(super) type Written = Result<Option<WrittenObject>, ObjectFailure>;

/// Result of one request for an object.
type Sent = Result<WrittenObject, ObjectFailure>;

impl WrittenObject {
    fn new(object: &Object, live: Value) -> Self {
        let created = Created::from_answer(&live);
        Self {
            created: created.map(|new| (object.without_body(), new)),
            ..Self::over(live, Vec::new())
        }
    }

    fn over(live: Value, conflicts: Vec<FieldConflict>) -> Self {
        Self {
            live,
            conflicts,
            created: None,
            kept: None,
        }
    }
}

/// Inputs of writing an object.
pub(super) struct ObjectWriter<'a> {
    pub(super) sender: Sender<'a>,
    pub(super) previous: &'a BTreeMap<ObjectKey, Object>,
    pub(super) options: ApplyOptions,
    /// The release's claim; `None` for hooks.
    pub(super) claim: Option<Claim<'a>>,
    /// The run's claim; `None` for objects of the manifest.
    pub(super) hooks: Option<HookClaim<'a>>,
    /// Whether an object was there that may be somebody else's.
    pub(super) found: AtomicBool,
}

impl<'a> ObjectWriter<'a> {
    /// For objects that are ours already, one by one.
    pub(super) fn again(cluster: &'a Cluster, previous: &'a BTreeMap<ObjectKey, Object>) -> Self {
        let sender = Sender {
            cluster,
            own_kinds: HashSet::new(),
            is_update: false,
        };
        Self {
            sender,
            previous,
            options: ApplyOptions::default(),
            claim: None,
            hooks: None,
            found: AtomicBool::new(false),
        }
    }

    pub(super) async fn write(&self, object: &Object) -> Written {
        if object.name.is_empty() {
            let created = self.sender.cluster.create(object).await;
            let created =
                created.map_err(|source| ObjectFailure::Apply(object.describe(), source))?;
            return Ok(Some(WrittenObject::over(created, Vec::new())));
        }
        let mut wrote = match self.open(object) {
            Some((claim, found)) => match self.write_judged(claim, object, found).await? {
                Some(wrote) if wrote.created.is_none() => wrote,
                new_or_left => return Ok(new_or_left),
            },
            None => match (self.write_unjudged(object).await, self.claim) {
                // It met an object that is to be noted as adopted or left, or its replacement met somebody else's change.
                (Err(failure @ ObjectFailure::Conflict(..)), Some(claim)) => {
                    let found = self.read_metadata(object).await?;
                    let is_adopted =
                        matches!(claim.verdict(object, found.as_ref()), Verdict::Adopt(_));
                    if !is_adopted && !self.options.force {
                        return Err(failure);
                    }
                    match self.write_judged(claim, object, found).await? {
                        Some(wrote) if wrote.created.is_none() => wrote,
                        new_or_left => return Ok(new_or_left),
                    }
                }
                (written, _) => written?,
            },
        };
        if wrote.live.pointer("/metadata/deletionTimestamp").is_some() {
            // The write was accepted and will vanish all the same: written again once the object is gone, unless somebody else is faster.
            self.sender.until_gone(object).await?;
            let conflicts = std::mem::take(&mut wrote.conflicts);
            let again = match self.claim {
                Some(claim) => self.write_judged(claim, object, None).await?,
                None => Some(self.write_unjudged(object).await?),
            };
            let Some(again) = again else { return Ok(None) };
            wrote = again;
            wrote.conflicts.extend(conflicts);
        }
        if self.claim.is_some() && adoption(&wrote.live) == Some(Adoption::Left) {
            self.note_handed_over(object, &wrote.live).await?;
        }
        let is_taken = self
            .claim
            .is_some_and(|claim| claim.operation == Operation::TakeOwnership);
        // Content of others in a namespace or definition is not taken over with it.
        let holds_others = object.is_namespace() || object.is_crd();
        if is_taken && !holds_others && adoption(&wrote.live) == Some(Adoption::Kept) {
            wrote.kept = Some((object.without_body(), Created::from_answer(&wrote.live)));
        }
        Ok(Some(wrote))
    }

    /// Notes on what was left, and has marks now, that it was there before: it counts as handed over as soon as it has marks, but somebody may take them off.
    async fn note_handed_over(&self, object: &Object, live: &Value) -> Result<(), ObjectFailure> {
        let (version, note) = (Version::of(live), Adoption::HandedOver);
        match self
            .sender
            .cluster
            .note_adoption(object, &version, note)
            .await
        {
            Ok(_) => Ok(()),
            // The object's next writer notes it.
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(()),
            Err(source) => Err(ObjectFailure::refused(object, source)),
        }
    }

    /// The object found under this name, if it is not known to be ours.
    fn open(&self, object: &Object) -> Option<(Claim<'a>, Option<Value>)> {
        let claim = self.claim?;
        let found = claim.open.get(&object.key())?;
        Some((claim, found.clone()))
    }

    /// Writes an object that may be somebody else's: as it was judged, and only while it is as it was then.
    async fn write_judged(
        &self,
        claim: Claim<'_>,
        object: &Object,
        mut found: Option<Value>,
    ) -> Written {
        let mut tries = 0;
        loop {
            tries += 1;
            if found.is_some() {
                self.found.store(true, Ordering::Relaxed);
            }
            let live = match claim.verdict(object, found.as_ref()) {
                Verdict::Create => match self.sender.create(object).await? {
                    Ok(live) => return Ok(Some(WrittenObject::new(object, live))),
                    Err(live) => {
                        found = Some(live);
                        continue;
                    }
                },
                // Somebody makes it anew and deletes it, each time.
                Verdict::Wait if tries >= MAX_TRIES => return Err(Sender::leaving(object)),
                Verdict::Wait => {
                    self.sender.until_gone(object).await?;
                    found = None;
                    continue;
                }
                Verdict::Write => found.unwrap_or_default(),
                Verdict::Adopt(adoption) => {
                    let live = found.unwrap_or_default();
                    let version = Version::of(&live);
                    let noted = self
                        .sender
                        .cluster
                        .note_adoption(object, &version, adoption);
                    match noted.await {
                        Ok(noted) => noted,
                        Err(error) if error.is_conflict() && tries < MAX_TRIES => {
                            sleep(pause(tries)).await;
                            found = self.read_metadata(object).await?;
                            continue;
                        }
                        Err(error) if error.is_not_found() && tries < MAX_TRIES => {
                            found = None;
                            continue;
                        }
                        Err(source) => {
                            return Err(ObjectFailure::Apply(object.describe(), source));
                        }
                    }
                }
                Verdict::Leave => {
                    let (release, object) = (&claim.owner.name, object.describe());
                    logging::info!(release, object, "another release has it by now, left");
                    return Ok(None);
                }
                Verdict::Refuse | Verdict::Delete => {
                    let live = found.unwrap_or_default();
                    let refusal = claim.owner.refusal(object, &live);
                    return Err(ObjectFailure::NotOwned(refusal));
                }
            };
            let judged = claim.owner.observe(&live);
            let written = match self.options.migrate {
                true => self.migrate(object, Some(&judged)).await,
                false => self.write_settled(object, Some(&judged)).await,
            };
            match written {
                // Somebody wrote it: whose it is has to be seen again.
                Err(ObjectFailure::Conflict(..)) if tries < MAX_TRIES => {
                    sleep(pause(tries)).await;
                    found = self.read_metadata(object).await?;
                }
                written => return written.map(Some),
            }
        }
    }

    async fn write_unjudged(&self, object: &Object) -> Sent {
        match self.hooks {
            Some(claim) => self.write_hook(claim, object).await,
            None if self.options.migrate => self.migrate(object, None).await,
            None => self.write_settled(object, None).await,
        }
    }

    /// Creates a hook. Another object with its name was made since the name was read: it is left.
    async fn write_hook(&self, claim: HookClaim<'_>, object: &Object) -> Sent {
        let mut tries = 0;
        loop {
            tries += 1;
            let live = match self.sender.create(object).await {
                Ok(Ok(live)) => return Ok(WrittenObject::new(object, live)),
                Ok(Err(live)) => live,
                Err(failure) => self.created_unseen(claim, object, failure).await?,
            };
            let mut wrote = match claim.verdict(object, &live) {
                HookVerdict::Refuse => {
                    let object = object.describe_for_people();
                    return Err(ObjectFailure::NoHookOfOurs { object });
                }
                HookVerdict::Await => WrittenObject::over(begun(live), Vec::new()),
                HookVerdict::Write => {
                    let judged = claim.run.owner().observe(&live);
                    match self.write_settled(object, Some(&judged)).await {
                        // Somebody wrote it: whose it is has to be seen again.
                        Err(ObjectFailure::Conflict(..)) if tries < MAX_TRIES => {
                            sleep(pause(tries)).await;
                            continue;
                        }
                        written => written?,
                    }
                }
            };
            let instance = Created::from_answer(&wrote.live);
            wrote.created = instance.map(|instance| (object.without_body(), instance));
            return Ok(wrote);
        }
    }

    /// What a creation made that nobody answered: what it created says for which run, so that it is not created once more by the next try.
    async fn created_unseen(
        &self,
        claim: HookClaim<'_>,
        object: &Object,
        failure: ObjectFailure,
    ) -> Result<Value, ObjectFailure> {
        let is_outcome_unknown = match &failure {
            ObjectFailure::Apply(_, source) | ObjectFailure::Create(_, source) => {
                source.is_outcome_unknown()
            }
            _ => false,
        };
        if !is_outcome_unknown {
            return Err(failure);
        }
        match self.sender.cluster.get_metadata(object).await {
            Ok(Some(live)) if claim.run.state(&live) == HookState::This => Ok(live),
            _ => Err(failure),
        }
    }

    async fn read_metadata(&self, object: &Object) -> Result<Option<Value>, ObjectFailure> {
        let found = self.sender.cluster.get_metadata(object).await;
        found_to_write(found).map_err(|source| {
            ObjectFailure::NotOwned(OwnershipError::Unknown {
                object: object.describe_for_people(),
                source,
            })
        })
    }

    /// Writes an object of another Helm client: what that owned is ours from now on, and nothing of
    /// the manifest before stays behind. Only as it was judged, if it was.
    async fn migrate(&self, object: &Object, judged: Option<&Observed>) -> Sent {
        let failed = |source: ApiError| match source.is_conflict() && judged.is_some() {
            true => ObjectFailure::conflict(object, source),
            false => ObjectFailure::Migrate(object.describe(), source),
        };
        let version = judged.map(Observed::version);
        let previous = self.previous.get(&object.key());
        let owner = self.claim.map(|claim| claim.owner);
        let manifest = migrate::written_by(owner, previous);
        let cluster = self.sender.cluster;
        let taken = migrate::take_over_managers(cluster, object, version, &manifest).await;
        drop(manifest);
        let (managers, version) = taken.map_err(failed)?;
        let judged = judged.zip(version).map(|(one, now)| one.in_version(now));
        let mut wrote = self.write_settled(object, judged.as_ref()).await?;
        if !managers.is_empty() {
            wrote.conflicts.insert(
                0,
                FieldConflict {
                    object: object.key(),
                    field: String::new(),
                    managers,
                    outcome: Outcome::Taken,
                },
            );
        }
        let previous = previous.filter(|_| self.options.merged);
        if let Some(previous) = previous {
            wrote.live = self.remove_left_over(object, previous, wrote.live).await?;
        }
        Ok(wrote)
    }

    /// Removes from the object that was written what the last manifest has left of it, and from no other one of its name: looked at again where
    /// somebody has written it since.
    async fn remove_left_over(
        &self,
        object: &Object,
        previous: &Object,
        mut live: Value,
    ) -> Result<Value, ObjectFailure> {
        let failed = |source| ObjectFailure::Migrate(object.describe(), source);
        let written = Version::of(&live);
        let mut tries = 1;
        loop {
            let Some(patch) = migrate::left_over(&previous.body, object, &live) else {
                return Ok(live);
            };
            let version = Version::of(&live);
            let patched = self.sender.cluster.merge_patch(object, &version, patch);
            let error = match patched.await {
                Ok(live) => return Ok(live),
                Err(error) if error.is_conflict() && tries < MAX_TRIES => error,
                Err(error) => return Err(failed(error)),
            };
            sleep(pause(tries)).await;
            tries += 1;
            let found = self.sender.cluster.get(object).await.map_err(failed)?;
            match found.filter(|found| Version::of(found).is_same_object(&written)) {
                Some(found) => live = found,
                None => return Err(ObjectFailure::conflict(object, error)),
            }
            self.check_still_ours(object, &live, error)?;
        }
    }

    /// Applies without force; what others hold is settled and the rest forced. Only as it was judged, if it was: an object that is written all
    /// the time is written over the version in which it was read last, if nothing has changed about whose it is.
    async fn write_settled(&self, object: &Object, judged: Option<&Observed>) -> Sent {
        let refused = |source| ObjectFailure::refused(object, source);
        let mut tries = 1;
        loop {
            let mut conflicts = Vec::new();
            let mut has_conflict = false;
            let first = Body::over(&object.body, judged.map(Observed::version));
            let mut error = match self.sender.send(object, first, false).await {
                Ok(live) => return Ok(WrittenObject::over(live, conflicts)),
                Err(error) => error,
            };
            if !error.conflicting_fields().is_empty() {
                has_conflict = true;
                // Where they cannot be listed now the deploy goes on: what may be an autoscaler's is left.
                let is_autoscaled = self.is_autoscaled(object, &error).await;
                let is_autoscaled = is_autoscaled.unwrap_or_default();
                // An object deleted meanwhile is created by the next try.
                if let Some(live) = self.sender.cluster.get(object).await.map_err(refused)? {
                    if judged.is_none() {
                        error = self.check_still_ours(object, &live, error)?;
                    }
                    let body;
                    (conflicts, body) =
                        self.resolve_conflicts(object, &error, &live, is_autoscaled);
                    let is_alike = |judged: &&Observed| match self.claim {
                        Some(claim) => claim.owner.observe(&live).is_alike(judged),
                        None => false,
                    };
                    // Only an object that was read is forced: where it would be judged otherwise by now, the version that was judged is named, which
                    // the API server refuses.
                    let observed = Version::of(&live);
                    let changed = judged.filter(|judged| !is_alike(judged));
                    let over = changed.map_or(&observed, Observed::version);
                    let settled = Body::over(&body, Some(over));
                    drop(body);
                    error = match self.sender.send(object, settled, true).await {
                        Ok(live) => return Ok(WrittenObject::over(live, conflicts)),
                        Err(error) => error,
                    };
                }
            }
            if self.options.force && error.is_invalid() {
                let replacement = Replacement {
                    sender: &self.sender,
                    claim: self.claim,
                    previous: self.previous,
                };
                let forced = replacement.run(object, error).await?;
                // The object was replaced whole, with the fields of all managers.
                for conflict in &mut conflicts {
                    conflict.outcome = Outcome::Taken;
                }
                return Ok(WrittenObject::over(forced, conflicts));
            }
            // Somebody wrote it: what he has in it, and whose it is, has to be seen again.
            let is_changed = error.is_conflict() && has_conflict && judged.is_none();
            if !is_changed || tries == MAX_TRIES {
                return Err(self.sender.named(object, refused(error)).await);
            }
            sleep(pause(tries)).await;
            tries += 1;
        }
    }

    /// Refuses what the last revision had and another release has by now: Helm checks the objects an upgrade adds, and takes this one. What is to be
    /// noted as adopted first, as somebody made it anew, is a conflict. Gives the refusal of the write back where it is the release's still.
    fn check_still_ours(
        &self,
        object: &Object,
        live: &Value,
        refusal: ApiError,
    ) -> Result<ApiError, ObjectFailure> {
        let Some(claim) = self.claim else {
            return Ok(refusal);
        };
        match claim.verdict(object, Some(live)) {
            Verdict::Refuse => Err(ObjectFailure::NotOwned(claim.owner.refusal(object, live))),
            Verdict::Adopt(_) => Err(ObjectFailure::conflict(object, refusal)),
            _ => Ok(refusal),
        }
    }

    /// Decides about the fields that others hold; gives what is to be written by force then.
    pub(super) fn resolve_conflicts(
        &self,
        object: &Object,
        error: &ApiError,
        live: &Value,
        is_autoscaled: Option<bool>,
    ) -> (Vec<FieldConflict>, Value) {
        let previous = self.previous.get(&object.key()).map(|old| &old.body);
        let conflict = ApplyConflict {
            desired: object,
            previous,
            live,
            is_autoscaled,
        };
        let conflicts = conflict.resolve(error.conflicting_fields());
        let mut body = object.body.clone();
        for left in conflicts.iter().filter(|one| one.outcome == Outcome::Left) {
            leave_out(&mut body, &left.field);
        }
        (conflicts, body)
    }

    /// Whether an autoscaler sets the replicas that others hold, none where the account may not know; asked before the object is read, which is
    /// written right after that.
    ///
    /// # Errors
    /// They cannot be listed now.
    pub(super) async fn is_autoscaled(
        &self,
        object: &Object,
        error: &ApiError,
    ) -> Result<Option<bool>, ApiError> {
        match concerns_replicas(error.conflicting_fields().into_iter()) {
            true => self.has_autoscaler(object).await,
            false => Ok(Some(false)),
        }
    }

    async fn has_autoscaler(&self, object: &Object) -> Result<Option<bool>, ApiError> {
        let discovery = self.sender.cluster.discovery().await?;
        let Some(kind) = discovery.resource("autoscaling", "v2", "HorizontalPodAutoscaler") else {
            return Ok(None);
        };
        let (mut is_found, mut is_unreadable) = (false, false);
        let look = |autoscaler: Listed<'_>| match autoscaler.read(MAX_OBJECT) {
            Ok(autoscaler) => is_found |= scales(&autoscaler, object),
            Err(_) => is_unreadable = true,
        };
        let (cluster, namespace) = (self.sender.cluster, object.namespace.as_deref());
        match cluster.list_each(&kind, namespace, "", look).await {
            // The account lacks the right, for one, as long as nobody gives it. A list that has expired is another matter.
            Err(error) if error.is_lasting() && error.code() != Some(410) => return Ok(None),
            listed => listed?,
        }
        Ok((is_found || !is_unreadable).then_some(is_found))
    }
}

/// A run that was found, without the version it has: what it came to may be in that already, so that whoever watches it begins with it.
fn begun(mut live: Value) -> Value {
    if let Some(Value::Object(metadata)) = live.get_mut("metadata") {
        metadata.remove("resourceVersion");
    }
    live
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use http::{Request, Response};
    use kube::client::Body;
    use objects::managed_fields::FIELD_MANAGER;
    use parking_lot::Mutex;
    use serde_json::json;
    use tower::BoxError;

    use super::super::fixture::object;
    use super::super::ownership::{ADOPTED_ANNOTATION, Owner};
    use super::*;

    /// The object goes between the refusal, which tells of fields of others, and the look at it: whatever is made under its name then is not
    /// written over by force.
    #[tokio::test]
    async fn an_object_deleted_before_it_was_observed_is_not_forced() {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let reported = Arc::clone(&seen);
        let serve = tower::service_fn(move |request: Request<Body>| {
            let uri = request.uri().to_string();
            let is_first = !reported.lock().iter().any(|uri| uri.contains("force="));
            reported.lock().push(uri.clone());
            let (code, answer) = match (uri.contains("force="), is_first) {
                (true, true) => {
                    let cause = json!({"reason": "FieldManagerConflict", "field": ".data.a", "message": "conflict"});
                    let details = json!({"causes": [cause]});
                    (
                        409,
                        json!({"kind": "Status", "code": 409, "reason": "Conflict", "details": details}),
                    )
                }
                (true, false) => (
                    201,
                    json!({"metadata": {"name": "a", "resourceVersion": "7"}}),
                ),
                _ => (
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
        let previous = BTreeMap::new();
        let writer = ObjectWriter::again(&cluster, &previous);
        let object = object("", "ConfigMap", json!({"metadata": {"name": "a"}}));
        writer.write(&object).await.unwrap();
        let seen = seen.lock();
        assert!(
            !seen.iter().any(|uri| uri.contains("force=true")),
            "{seen:?}"
        );
    }

    /// What the last manifest has left is removed from the object that was written, also where its controller writes it at once, and from no other one.
    #[tokio::test(start_paused = true)]
    async fn what_is_left_over_is_removed_from_the_object_that_was_written() {
        for is_replaced in [false, true] {
            let now = Arc::new(Mutex::new((1, false)));
            let patches: Arc<Mutex<Vec<Value>>> = Arc::default();
            let noted = Arc::clone(&patches);
            let cluster = super::super::fixture::server(move |method, _, sent| {
                let (version, was_asked) = &mut *now.lock();
                let is_removal = sent.pointer("/data/old") == Some(&Value::Null);
                let of = sent["metadata"]["resourceVersion"].as_str();
                let is_now = of == Some(&*version.to_string());
                if method == "PATCH" {
                    noted.lock().push(sent.clone());
                    if is_removal && !is_now {
                        let status = json!({"kind": "Status", "code": 409, "reason": "Conflict"});
                        return Some((409, status));
                    }
                }
                let uid = match is_replaced && *was_asked {
                    true => "v",
                    false => "u",
                };
                let live = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"old": "1"},
                    "metadata": {"name": "a", "uid": uid, "resourceVersion": version.to_string()}});
                if method == "PATCH" && !is_removal {
                    // Somebody writes the object, or makes it anew, before the next request.
                    *version += 1;
                    *was_asked = true;
                }
                Some((200, live))
            });
            let body = |data| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
            let old = object("", "ConfigMap", body(json!({"old": "1"})));
            let previous = BTreeMap::from([(old.key(), old)]);
            let writer = ObjectWriter {
                options: ApplyOptions {
                    migrate: true,
                    merged: true,
                    ..ApplyOptions::default()
                },
                ..ObjectWriter::again(&cluster, &previous)
            };
            let wrote = writer
                .write(&object("", "ConfigMap", body(json!({}))))
                .await;
            assert_eq!(wrote.is_err(), is_replaced);
            let patches = patches.lock();
            let removals: Vec<_> = patches
                .iter()
                .filter(|sent| sent.pointer("/data/old").is_some())
                .collect();
            assert_eq!(
                removals.len(),
                if is_replaced { 1 } else { 2 },
                "{patches:?}"
            );
            for removal in removals {
                assert_eq!(removal["metadata"]["uid"], "u", "{removal}");
            }
        }
    }

    /// A namespace that was left is written by somebody else while the release that has it next writes it: it says that it was left until it has marks.
    #[tokio::test]
    async fn a_left_namespace_stays_noted_as_left_until_it_has_marks() {
        let live = |version: &str, note: &str, owner: Option<&Owner>| {
            let mut live = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version,
                "managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply"}]}});
            if let Some(owner) = owner {
                owner.mark(&mut live);
            }
            live["metadata"]["annotations"][ADOPTED_ANNOTATION] = note.into();
            live
        };
        let owner = Owner::new("web", "shop");
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let reported = Arc::clone(&seen);
        let server_owner = owner.clone();
        let serve = tower::service_fn(move |request: Request<Body>| {
            let uri = request.uri().to_string();
            let is_apply = uri.contains("force=");
            let is_first = !reported.lock().iter().any(|uri| uri.contains("force="));
            let is_read = request.method() == "GET";
            reported.lock().push(uri.clone());
            let (code, answer) = match (is_apply, is_first) {
                (true, true) => (
                    409,
                    json!({"kind": "Status", "code": 409, "reason": "Conflict"}),
                ),
                (true, false) => (200, live("8", "left", Some(&server_owner))),
                (false, _) if is_read => (200, live("7", "left", None)),
                (false, _) => (200, live("9", "handed-over", Some(&server_owner))),
            };
            let answer = Response::builder()
                .status(code)
                .body(Body::from(answer.to_string().into_bytes()));
            std::future::ready(Ok::<_, BoxError>(answer.expect("it is valid")))
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let namespace = object("", "Namespace", json!({"metadata": {"name": "a"}}));
        let open = HashMap::from([(namespace.key(), Some(live("6", "left", None)))]);
        let claim = Claim {
            owner: &owner,
            operation: Operation::Install,
            open: &open,
            recorded: &HashSet::new(),
        };
        let previous = BTreeMap::new();
        let writer = ObjectWriter {
            claim: Some(claim),
            ..ObjectWriter::again(&cluster, &previous)
        };
        writer.write(&namespace).await.unwrap();
        let asked = seen
            .lock()
            .iter()
            .map(|uri| uri.contains("force="))
            .collect::<Vec<_>>();
        assert_eq!(
            asked,
            [true, false, true, false],
            "refused, looked at, applied, noted"
        );
    }

    /// Others write an object all the time, and hold a field of it: it is written over the version in which it was looked at last.
    #[tokio::test]
    async fn an_object_that_others_keep_writing_is_written_over_the_version_observed_last() {
        let live = |version: u32| {
            let mut live = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version.to_string()}});
            Owner::new("web", "shop").mark(&mut live);
            live
        };
        let now = Arc::new(Mutex::new(1));
        let serve = tower::service_fn(move |request: Request<Body>| {
            let now = Arc::clone(&now);
            async move {
                let uri = request.uri().to_string();
                let body = request.into_body().collect_bytes().await?;
                let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
                let mut now = now.lock();
                let is_now = sent["metadata"]["resourceVersion"] == now.to_string();
                let refused = |reason: &str, code: u16, causes: Value| {
                    let details = json!({"name": "a", "causes": causes});
                    let status = json!({"kind": "Status", "code": code, "reason": reason, "details": details});
                    (code, status)
                };
                let conflict = json!([{"reason": "FieldManagerConflict", "field": ".spec.replicas", "message": ""}]);
                // Each request leads to another version of the object.
                *now += 1;
                let (code, answer) = match (uri.contains("force=false"), uri.contains("force=true"))
                {
                    (true, _) => refused("Conflict", 409, conflict),
                    (_, true) if !is_now => refused("Conflict", 409, json!([])),
                    _ if uri.contains("/deployments/a") => (200, live(*now)),
                    _ => refused("NotFound", 404, json!([])),
                };
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, BoxError>(Response::builder().status(code).body(answer)?)
            }
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let (owner, previous) = (Owner::new("web", "shop"), BTreeMap::new());
        let body = json!({"metadata": {"name": "a"}, "spec": {"replicas": 1}});
        let object = object("apps", "Deployment", body);
        let open = HashMap::from([(object.key(), Some(live(1)))]);
        let recorded = HashSet::from([object.key()]);
        let claim = Claim {
            owner: &owner,
            operation: Operation::Upgrade,
            open: &open,
            recorded: &recorded,
        };
        let writer = ObjectWriter {
            claim: Some(claim),
            ..ObjectWriter::again(&cluster, &previous)
        };
        let wrote = writer.write(&object).await.unwrap();
        assert_eq!(wrote.unwrap().conflicts.len(), 1);
    }
}
