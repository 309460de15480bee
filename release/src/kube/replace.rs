//! Making an object what is desired where the API server calls the change invalid, because `force` asks for that.
//!
//! It is written whole, which drops what others wrote into it, but for what says whether and when it may go: a wish to be kept, finalizers and owners.
//! Where a field of it cannot change it is deleted and created anew, if nothing is
//! lost by that but the object ([`super::losses`]) and nothing refuses the new one ([`super::successor`]). Either is done only to an object that
//! was read; one that may be somebody else's by then is left.

use std::collections::BTreeMap;

use objects::{Object, ObjectKey};
use serde_json::Value;
use tokio::time::sleep;

use super::claim::Claim;
use super::error::ApiError;
use super::losses::{contents, deletes_claims, is_custom};
use super::migrate;
use super::object_failure::{Deletion, ObjectFailure};
use super::ownership::{ADOPTED_ANNOTATION, RESOURCE_POLICY_ANNOTATION, adoption, is_kept};
use super::sender::{Body, Sender};
use super::successor::check_successor;
use super::tries::{MAX_TRIES, pause};
use super::version::Version;
use crate::state::ownership::{Adoption, ObjectState, Operation, Verdict};

/// Inputs of replacing an object.
pub(super) struct Replacement<'a> {
    pub(super) sender: &'a Sender<'a>,
    /// The release's claim; `None` for an object of no release.
    pub(super) claim: Option<Claim<'a>>,
    /// The objects of the revision before.
    pub(super) previous: &'a BTreeMap<ObjectKey, Object>,
}

impl Replacement<'_> {
    /// Makes an object what is desired although the API server calls merging invalid.
    pub(super) async fn run(
        &self,
        object: &Object,
        refusal: ApiError,
    ) -> Result<Value, ObjectFailure> {
        if refusal.is_immutable() {
            return self.recreate(object, refusal).await;
        }
        let failed = |source| ObjectFailure::Recreate(object.describe(), source);
        let found = self
            .sender
            .cluster
            .get_metadata(object)
            .await
            .map_err(failed)?;
        let Some(live) = found else {
            let failure = ObjectFailure::Apply(object.describe(), refusal);
            return Err(self.sender.named(object, failure).await);
        };
        self.check_writable(object, &live, refusal)?;
        // Concurrent readers must still find the adoption note.
        let mut whole = object.clone();
        if let Some(note) = adoption(&live) {
            whole.body["metadata"]["annotations"][ADOPTED_ANNOTATION] = note.as_str().into();
        }
        carry_over(&mut whole.body, &live);
        let mut live = match self
            .sender
            .cluster
            .replace(&whole, &Version::of(&live))
            .await
        {
            Ok(replaced) => replaced,
            Err(error) if error.is_immutable() => return self.recreate(object, error).await,
            Err(error) if error.is_conflict() => {
                return Err(ObjectFailure::conflict(object, error));
            }
            Err(error) => return Err(failed(error)),
        };
        let mut tries = 1;
        loop {
            let error = match self.apply_replaced(object, &live).await {
                Ok(applied) => return Ok(applied),
                Err(error) => error,
            };
            if !error.is_conflict() && !error.is_not_found() {
                return Err(failed(error));
            }
            if tries == MAX_TRIES {
                return Err(ObjectFailure::conflict(object, error));
            }
            // Somebody wrote it.
            sleep(pause(tries)).await;
            tries += 1;
            let Some(found) = self.sender.cluster.get(object).await.map_err(failed)? else {
                return Err(ObjectFailure::conflict(object, error));
            };
            self.check_writable(object, &found, error)?;
            live = found;
        }
    }

    /// Makes a replaced object owned as if it had been applied.
    async fn apply_replaced(&self, object: &Object, live: &Value) -> Result<Value, ApiError> {
        let owner = self.claim.map(|claim| claim.owner);
        let manifest = migrate::written_by(owner, self.previous.get(&object.key()));
        let cluster = self.sender.cluster;
        let version = migrate::own_replaced(cluster, object, live, &manifest).await?;
        let body = Body::over(&object.body, Some(&version));
        self.sender.send(object, body, true).await
    }

    /// Refuses what may not be written as it was found. What is to be noted or left first is a conflict: it goes the way of what may be
    /// somebody else's.
    fn check_writable(
        &self,
        object: &Object,
        live: &Value,
        refusal: ApiError,
    ) -> Result<(), ObjectFailure> {
        let Some(claim) = self.claim else {
            return Ok(());
        };
        match claim.verdict(object, Some(live)) {
            Verdict::Write => Ok(()),
            Verdict::Refuse => Err(ObjectFailure::NotOwned(claim.owner.refusal(object, live))),
            _ => Err(ObjectFailure::conflict(object, refusal)),
        }
    }

    /// Deletes the object and creates it anew, where that loses nothing but the object, and the new one would be created.
    async fn recreate(&self, object: &Object, refusal: ApiError) -> Result<Value, ObjectFailure> {
        let failed = |source| ObjectFailure::Recreate(object.describe(), source);
        let irreplaceable = |lost, source| ObjectFailure::Irreplaceable {
            object: object.describe(),
            lost,
            source,
        };
        if let Some(lost) = contents(object) {
            return Err(irreplaceable(lost, refusal));
        }
        if is_custom(object) {
            // "Field is immutable" is what rules and webhooks of custom resources say as well.
            const LOST: &str =
                "recreating a custom resource may delete what its controller keeps for it";
            return Err(irreplaceable(LOST, refusal));
        }
        const KEPT: &str = "it asks to be kept (helm.sh/resource-policy)";
        if is_kept(&object.body) {
            return Err(irreplaceable(KEPT, refusal));
        }
        let Some(claim) = self.claim else {
            return Err(failed(refusal));
        };
        let mut note = None;
        let mut deletion = Deletion::Before;
        let mut tries = 1;
        while let Some(live) = self.sender.cluster.get(object).await.map_err(failed)? {
            note = adoption(&live);
            if deletes_claims(&live) {
                const LOST: &str =
                    "its volume claims would go with it (persistentVolumeClaimRetentionPolicy)";
                return Err(irreplaceable(LOST, refusal));
            }
            if note.is_some() && !self.previous.contains_key(&object.key()) {
                // An attempt that fails could not give it back.
                return Err(irreplaceable("it was there before this version", refusal));
            }
            let proof = match claim
                .owner
                .observe(&live)
                .deletable(Operation::Recreate, None)
            {
                Ok(proof) => proof,
                Err(ObjectState::KeepPolicy) => return Err(irreplaceable(KEPT, refusal)),
                Err(ObjectState::AdoptedKept) => {
                    let lost = "it was there before the release";
                    return Err(irreplaceable(lost, refusal));
                }
                Err(ObjectState::Leaving) => break,
                Err(_) => {
                    let refusal = claim.owner.refusal(object, &live);
                    return Err(ObjectFailure::NotOwned(refusal));
                }
            };
            check_successor(self.sender.cluster, object, &live)
                .await
                .map_err(|source| match source.is_outcome_unknown() {
                    true => failed(source),
                    false => ObjectFailure::NoSuccessor(object.describe(), source),
                })?;
            match self.sender.cluster.delete(object, &proof, false).await {
                Ok(()) => {
                    deletion = Deletion::ToRecreate;
                    break;
                }
                Err(error) if error.is_not_found() => break,
                Err(error) if error.is_conflict() && tries < MAX_TRIES => {
                    sleep(pause(tries)).await;
                    tries += 1;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        self.sender.until_gone(object).await?;
        let live = match self.create_successor(object, deletion).await? {
            Ok(created) => created,
            // Somebody else was faster.
            Err(live) => {
                let refusal = claim.owner.refusal(object, &live);
                return Err(ObjectFailure::NotOwned(refusal));
            }
        };
        // The new object stands where another was before.
        if let Some(note) = note {
            self.note_created(object, &live, note)
                .await
                .map_err(failed)?;
        }
        Ok(live)
    }

    /// Creates the object in the place of the one that was deleted; what is there instead, if something is.
    async fn create_successor(
        &self,
        object: &Object,
        deletion: Deletion,
    ) -> Result<Result<Value, Value>, ObjectFailure> {
        let mut tries = 1;
        loop {
            let (name, source) = match self.sender.create(object).await {
                Err(ObjectFailure::Apply(name, source) | ObjectFailure::Create(name, source)) => {
                    (name, source)
                }
                created => return created,
            };
            // The quota's controller counts the deletion a moment later.
            if !source.is_quota_exceeded() || tries == MAX_TRIES {
                return Err(ObjectFailure::Lost {
                    object: name,
                    deletion,
                    source,
                });
            }
            sleep(pause(tries)).await;
            tries += 1;
        }
    }

    /// Notes on the object that was created that one was there before, whatever its controller has written into it by now. Where that is another one
    /// already, or none, there is nothing to be noted.
    async fn note_created(
        &self,
        object: &Object,
        created: &Value,
        note: Adoption,
    ) -> Result<(), ApiError> {
        let created = Version::of(created);
        let mut version = created.clone();
        let mut tries = 1;
        loop {
            let noted = self.sender.cluster.note_adoption(object, &version, note);
            match noted.await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_not_found() => return Ok(()),
                // A patch with another uid is invalid, not a conflict.
                Err(error) if (error.is_conflict() || error.is_invalid()) && tries < MAX_TRIES => {
                    let found = self.sender.cluster.get_metadata(object).await?;
                    let now = found.as_ref().map(Version::of);
                    match now.filter(|now| now.is_same_object(&created)) {
                        Some(now) if error.is_conflict() => version = now,
                        Some(_) => return Err(error),
                        None => return Ok(()),
                    }
                }
                Err(error) => return Err(error),
            }
            sleep(pause(tries)).await;
            tries += 1;
        }
    }
}

/// Puts into an object that is written whole what the live one has of when it may go: unlike anything else that others wrote, without it the object
/// may be lost. What is not written over stays with the manager that has it, so that the apply after that leaves it.
fn carry_over(whole: &mut Value, live: &Value) {
    let metadata = &mut whole["metadata"];
    let (policy, live) = (RESOURCE_POLICY_ANNOTATION, &live["metadata"]);
    if let Some(kept) = live["annotations"].get(policy)
        && metadata["annotations"][policy].is_null()
    {
        metadata["annotations"][policy] = kept.clone();
    }
    let is_same = |field: &str, one: &Value, other: &Value| match field {
        "ownerReferences" => one["uid"] == other["uid"],
        _ => one == other,
    };
    for field in ["finalizers", "ownerReferences"] {
        let theirs = live[field].as_array().map_or(&[][..], Vec::as_slice);
        if theirs.is_empty() {
            continue;
        }
        if metadata[field].is_null() {
            metadata[field] = Value::Array(Vec::new());
        }
        let Some(all) = metadata[field].as_array_mut() else {
            continue;
        };
        for one in theirs {
            if !all.iter().any(|known| is_same(field, known, one)) {
                all.push(one.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::sync::Arc;

    use http::Method;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::super::client::Cluster;
    use super::super::fixture;
    use super::super::ownership::Owner;
    use super::super::write::{ApplyOptions, ObjectWriter, Written};
    use super::*;

    /// Writes the Secret `a` of a release that has it.
    async fn write_by_force(cluster: &Cluster, owner: &Owner) -> Written {
        let body = json!({"metadata": {"name": "a"}});
        let object = fixture::object("", "Secret", body);
        let previous = BTreeMap::from([(object.key(), object.clone())]);
        let recorded = HashSet::from([object.key()]);
        let claim = Claim {
            owner,
            operation: Operation::Upgrade,
            open: &HashMap::new(),
            recorded: &recorded,
        };
        let writer = ObjectWriter {
            claim: Some(claim),
            options: ApplyOptions {
                force: true,
                ..ApplyOptions::default()
            },
            ..ObjectWriter::again(cluster, &previous)
        };
        writer.write(&object).await
    }

    #[test]
    fn what_is_replaced_keeps_what_says_when_it_may_go() {
        let owner = |uid: &str, name: &str| json!({"uid": uid, "name": name});
        let live = json!({"metadata": {"annotations": {RESOURCE_POLICY_ANNOTATION: "keep", "note": "x"},
            "finalizers": ["a", "b"], "ownerReferences": [owner("1", "one"), owner("2", "two")]}});
        let replaced = |mut whole: Value, live: &Value| {
            carry_over(&mut whole, live);
            whole
        };
        let theirs = replaced(json!({"metadata": {"name": "a"}}), &live);
        let metadata = json!({"name": "a", "annotations": {RESOURCE_POLICY_ANNOTATION: "keep"},
            "finalizers": ["a", "b"], "ownerReferences": [owner("1", "one"), owner("2", "two")]});
        assert_eq!(theirs["metadata"], metadata);
        let chart = json!({"metadata": {"annotations": {RESOURCE_POLICY_ANNOTATION: "delete"},
            "finalizers": ["c", "a"], "ownerReferences": [owner("2", "renamed")]}});
        let both = json!({"annotations": {RESOURCE_POLICY_ANNOTATION: "delete"},
            "finalizers": ["c", "a", "b"], "ownerReferences": [owner("2", "renamed"), owner("1", "one")]});
        assert_eq!(replaced(chart.clone(), &live)["metadata"], both);
        let bare = json!({"metadata": {"name": "a"}});
        assert_eq!(replaced(bare.clone(), &bare), bare);
        assert_eq!(replaced(chart.clone(), &bare), chart);
    }

    /// Who deletes the object.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Deleter {
        We,
        /// Somebody, before it is looked at; it is on its way out then.
        OthersBefore,
        /// Somebody, after it was looked at.
        OthersMeanwhile,
    }

    /// An API server with a Secret of this release that cannot change. It answers the dry run with a status, and refuses creations with these, one after
    /// the other; what it did is noted.
    fn immutable_secret(
        owner: &Owner,
        is_allowed_by_name: bool,
        of_dry_run: Value,
        refusals: Vec<Value>,
    ) -> (Cluster, Arc<Mutex<Vec<&'static str>>>) {
        deleted_secret(Deleter::We, owner, is_allowed_by_name, of_dry_run, refusals)
    }

    /// As [`immutable_secret`], where somebody else may delete it.
    fn deleted_secret(
        deleter: Deleter,
        owner: &Owner,
        is_allowed_by_name: bool,
        of_dry_run: Value,
        refusals: Vec<Value>,
    ) -> (Cluster, Arc<Mutex<Vec<&'static str>>>) {
        let steps: Arc<Mutex<Vec<&str>>> = Arc::default();
        let noted = Arc::clone(&steps);
        let mut live = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}});
        owner.mark(&mut live);
        let state = Mutex::new((true, refusals.into_iter()));
        let cluster = fixture::server(move |method, path, _| {
            let (is_there, refusals) = &mut *state.lock();
            let answer = |status: Value| {
                let code = status["code"].as_u64().and_then(|it| it.try_into().ok());
                code.map(|code| (code, status))
            };
            match *method {
                Method::POST if path.ends_with("/selfsubjectaccessreviews") => {
                    Some((201, json!({"status": {"allowed": is_allowed_by_name}})))
                }
                Method::POST => answer(of_dry_run.clone()),
                Method::DELETE => {
                    *is_there = false;
                    if deleter == Deleter::OthersMeanwhile {
                        return Some(fixture::missing("a"));
                    }
                    noted.lock().push("deleted");
                    Some((200, json!({})))
                }
                Method::GET if *is_there && deleter == Deleter::OthersBefore => {
                    *is_there = false;
                    let mut leaving = live.clone();
                    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                    Some((200, leaving))
                }
                Method::PATCH if *is_there => {
                    let cause =
                        json!({"reason": "FieldValueInvalid", "message": "field is immutable"});
                    let mut status = status(422, "Invalid", "field is immutable");
                    status["details"] = json!({"name": "a", "causes": [cause]});
                    answer(status)
                }
                Method::PATCH => {
                    if let Some(refusal) = refusals.next() {
                        noted.lock().push("refused");
                        return answer(refusal);
                    }
                    noted.lock().push("created");
                    *is_there = true;
                    Some((201, live.clone()))
                }
                _ if *is_there => Some((200, live.clone())),
                _ => Some(fixture::missing("a")),
            }
        });
        (cluster, steps)
    }

    fn status(code: u16, reason: &str, message: &str) -> Value {
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message})
    }

    fn quota(from: &str) -> Value {
        let text = "secrets \"a\" is forbidden: exceeded quota: few, requested: secrets=1, used: secrets=1, limited: secrets=1";
        status(403, "Forbidden", &format!("{from}{text}"))
    }

    /// What runs is deleted only where the API server does not refuse what would take its place.
    #[tokio::test(start_paused = true)]
    async fn an_object_whose_successor_would_be_refused_is_not_deleted() {
        let forbidden = |kind: &str| {
            let message = "secrets is forbidden: User \"ann\" cannot create resource \"secrets\"";
            let mut status = status(403, "Forbidden", message);
            status["details"] = json!({"kind": kind});
            status
        };
        let webhook = "admission webhook \"no.example.com\"";
        let denied = format!("{webhook} denied the request");
        let without_dry_run = format!("{webhook} does not support dry run");
        let away = "failed calling webhook \"no.example.com\": connection refused";
        let of_webhook = |mut status: Value| {
            status["message"] = denied.as_str().into();
            status
        };
        let named = (true, forbidden("secrets"));
        for (situation, (is_allowed_by_name, answer), is_deleted) in [
            (
                "there is one",
                (false, status(409, "AlreadyExists", "exists")),
                true,
            ),
            (
                "it has gone",
                (false, json!({"code": 201, "metadata": {}})),
                true,
            ),
            ("a quota is full", (false, quota("")), true),
            (
                "a webhook has a quota",
                (false, quota(&format!("{denied}: "))),
                false,
            ),
            (
                "no dry run",
                (false, status(400, "BadRequest", &without_dry_run)),
                true,
            ),
            (
                "a bad request",
                (false, status(400, "BadRequest", "no such field")),
                false,
            ),
            (
                "a webhook's words",
                (
                    false,
                    status(400, "", &format!("{denied}: it does not support dry run")),
                ),
                false,
            ),
            ("no right to create", (false, forbidden("secrets")), false),
            ("a right to create this name", named, true),
            ("somebody else's refusal", (true, forbidden("")), false),
            (
                "a webhook without a name",
                (true, of_webhook(forbidden("secrets"))),
                false,
            ),
            (
                "a webhook's own reason",
                (true, of_webhook(status(409, "AlreadyExists", "exists"))),
                false,
            ),
            (
                "a webhook refuses",
                (true, status(403, "Forbidden", &denied)),
                false,
            ),
            (
                "it is invalid",
                (true, status(422, "Invalid", "not valid")),
                false,
            ),
            (
                "a webhook is away",
                (false, status(500, "InternalError", away)),
                false,
            ),
            (
                "somebody writes it",
                (false, status(409, "Conflict", "modified")),
                false,
            ),
            (
                "too many requests",
                (false, status(429, "TooManyRequests", "later")),
                false,
            ),
            (
                "no verdict",
                (false, status(504, "Timeout", "later")),
                false,
            ),
        ] {
            let owner = Owner::new("web", "shop");
            let message = answer["message"].as_str().unwrap_or_default().to_owned();
            let (cluster, steps) = immutable_secret(&owner, is_allowed_by_name, answer, Vec::new());
            let wrote = write_by_force(&cluster, &owner).await;
            let expected: &[&str] = match is_deleted {
                true => &["deleted", "created"],
                false => &[],
            };
            assert_eq!(*steps.lock(), expected, "{situation}");
            let Err(failed) = wrote else {
                assert!(is_deleted, "{situation}");
                continue;
            };
            let text = crate::error_chain(&failed);
            assert!(
                text.contains("shop/a /v1, Kind=Secret") && text.contains(&message),
                "{situation}: {text}"
            );
            let is_certain = situation != "no verdict";
            assert_eq!(
                text.contains("its successor would be refused"),
                is_certain,
                "{text}"
            );
        }
    }

    /// A dry run may be told something else than the creation: then what is gone is told, and created by the next attempt.
    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_refused_after_its_predecessor_was_deleted_is_told_as_lost() {
        let owner = Owner::new("web", "shop");
        let taken = status(409, "AlreadyExists", "exists");
        let refusals = vec![status(403, "Forbidden", "not today")];
        let (cluster, steps) = immutable_secret(&owner, false, taken, refusals);
        let failed = write_by_force(&cluster, &owner).await.err();
        let text = failed.map(|failed| crate::error_chain(&failed));
        assert_eq!(
            text.as_deref(),
            Some(
                "object shop/a /v1, Kind=Secret was deleted, as a field of it cannot change, and could not be created anew: not today"
            )
        );
        let wrote = write_by_force(&cluster, &owner).await;
        assert!(wrote.is_ok(), "{:?}", wrote.err());
        assert_eq!(*steps.lock(), ["deleted", "refused", "created"]);
    }

    /// Whoever is told that an object is lost is told who deleted it, and whether it may be there all the same.
    #[tokio::test(start_paused = true)]
    async fn an_object_is_told_as_lost_only_for_what_is_known() {
        for (deleter, code, reason, message) in [
            (
                Deleter::We,
                504,
                "Timeout",
                "was deleted, as a field of it cannot change, and nobody said whether it was created anew: not today",
            ),
            (
                Deleter::OthersBefore,
                403,
                "Forbidden",
                "was deleted already, and could not be created anew: not today",
            ),
            (
                Deleter::OthersMeanwhile,
                403,
                "Forbidden",
                "was deleted already, and could not be created anew: not today",
            ),
            (
                Deleter::OthersMeanwhile,
                504,
                "Timeout",
                "was deleted already, and nobody said whether it was created anew: not today",
            ),
        ] {
            let owner = Owner::new("web", "shop");
            let taken = status(409, "AlreadyExists", "exists");
            let refusals = vec![status(code, reason, "not today"); MAX_TRIES as usize];
            let (cluster, steps) = deleted_secret(deleter, &owner, false, taken, refusals);
            let failed = write_by_force(&cluster, &owner).await.err();
            let text = failed.map(|failed| crate::error_chain(&failed));
            let expected = format!("object shop/a /v1, Kind=Secret {message}");
            assert_eq!(text, Some(expected), "{deleter:?}");
            let is_ours = steps.lock().contains(&"deleted");
            assert_eq!(is_ours, deleter == Deleter::We, "{deleter:?}");
        }
    }

    /// A quota goes on counting what was deleted for a moment.
    #[tokio::test(start_paused = true)]
    async fn an_object_is_created_once_the_quota_has_counted_what_was_deleted() {
        let owner = Owner::new("web", "shop");
        let (cluster, steps) = immutable_secret(&owner, false, quota(""), vec![quota(""); 3]);
        let wrote = write_by_force(&cluster, &owner).await;
        assert!(wrote.is_ok(), "{:?}", wrote.err());
        let expected = ["deleted", "refused", "refused", "refused", "created"];
        assert_eq!(*steps.lock(), expected);
    }

    /// An object that cannot change is made anew, with the note that one was there before; its controller writes it at once, or somebody makes another
    /// one in its place.
    #[tokio::test(start_paused = true)]
    async fn the_note_on_a_recreated_object_is_put_on_no_other_one() {
        for is_replaced in [false, true] {
            let owner = Owner::new("web", "shop");
            let notes: Arc<Mutex<Vec<Value>>> = Arc::default();
            let (noted, server_owner) = (Arc::clone(&notes), owner.clone());
            // The object's uid and version.
            let state = Mutex::new((Some("old"), 7));
            let cluster = fixture::server(move |method, _, sent| {
                let mut state = state.lock();
                let live = |uid: &str, version: i32| {
                    let mut live = json!({"metadata": {"name": "a", "uid": uid, "resourceVersion": version.to_string()}});
                    server_owner.mark(&mut live);
                    if uid == "old" {
                        live["metadata"]["annotations"][ADOPTED_ANNOTATION] = json!("handed-over");
                    }
                    live
                };
                let refused = |code, reason: &str, message: &str| {
                    let details = json!({"name": "a", "causes": [{"reason": "FieldValueInvalid", "message": message}]});
                    Some((
                        code,
                        json!({"kind": "Status", "code": code, "reason": reason, "details": details}),
                    ))
                };
                let is_note = sent
                    .pointer("/metadata/annotations/fleetagent.cattle.io~1adopted")
                    .is_some();
                match (method, *state) {
                    (&Method::DELETE, _) => {
                        *state = (None, 8);
                        Some((200, json!({})))
                    }
                    (&Method::GET, (None, _)) => Some(fixture::missing("a")),
                    (&Method::GET, (Some(uid), version)) => Some((200, live(uid, version))),
                    (&Method::POST, _) => refused(409, "AlreadyExists", ""),
                    (_, (Some("old"), _)) => refused(422, "Invalid", "field is immutable"),
                    (_, (None, _)) => {
                        let created = live("new", 9);
                        *state = (Some(if is_replaced { "another" } else { "new" }), 10);
                        Some((201, created))
                    }
                    (_, (Some(uid), version)) if is_note => {
                        noted.lock().push(sent.clone());
                        let of = &sent["metadata"];
                        let is_now = of["resourceVersion"].as_str() == Some(&*version.to_string());
                        match of["uid"] == uid && is_now {
                            true => Some((200, live(uid, version + 1))),
                            false => refused(409, "Conflict", ""),
                        }
                    }
                    (_, (Some(uid), version)) => Some((200, live(uid, version))),
                }
            });
            let wrote = write_by_force(&cluster, &owner).await;
            assert!(wrote.is_ok(), "{:?}", wrote.err());
            let notes = notes.lock();
            assert_eq!(notes.len(), if is_replaced { 1 } else { 2 }, "{notes:?}");
            for note in notes.iter() {
                assert_eq!(note["metadata"]["uid"], "new", "{note}");
            }
        }
    }
}
