//! To whom an object belongs: the three marks Helm puts on everything it writes, and the note that it was
//! there before. Pure; [`observe_all`] asks the cluster.
//!
//! What may be done to an object is decided by [`state::ownership`](crate::state::ownership). An [`Observed`] at it is the
//! only thing that makes a [`Deletable`], and nothing else can be deleted.
//!
//! [`observe_all`]: super::check::observe_all
//!
//! Mirrors `pkg/action/validate.go`.

use std::sync::Arc;

use chart::manifest::HOOK_ANNOTATION;
use jiff::Timestamp;
use objects::managed_fields::{FIELD_MANAGER, entries};
use objects::{Object, Resource};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::error::ApiError;
use super::version::Version;
use crate::record::{RecordId, RecordUid};
use crate::state::ownership::{Adoption, ObjectState, Operation, Verdict, judge};

const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
const MANAGED_BY_HELM: &str = "Helm";
const RELEASE_NAME_ANNOTATION: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE_ANNOTATION: &str = "meta.helm.sh/release-namespace";
pub(super) const RESOURCE_POLICY_ANNOTATION: &str = "helm.sh/resource-policy";
/// Says of an object that it was there before its release, in a word of [`Adoption`]. A field manager of its own
/// has it, so that it outlives every write of the release, ours or another Helm client's.
pub(super) const ADOPTED_ANNOTATION: &str = "fleetagent.cattle.io/adopted";
/// Says of a hook's object which run wrote it, in the words of a [`RunMark`]. It is on the object alone, in no record.
const RUN_ANNOTATION: &str = "fleetagent.cattle.io/hook-of";

/// All labels and annotations that say whose an object is, and what may be done to it.
pub(super) const MARKS: [&str; 7] = [
    MANAGED_BY_LABEL,
    RELEASE_NAME_ANNOTATION,
    RELEASE_NAMESPACE_ANNOTATION,
    RESOURCE_POLICY_ANNOTATION,
    ADOPTED_ANNOTATION,
    RUN_ANNOTATION,
    HOOK_ANNOTATION,
];

/// A release, as the owner of objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Name of the release.
    pub name: String,
    /// Namespace of the release.
    pub namespace: String,
}

/// An object that is there already belongs to somebody else. The texts are Helm's.
#[derive(Debug, thiserror::Error)]
pub enum OwnershipError {
    /// The object does not carry this release's marks.
    #[error(
        "{object} exists and cannot be imported into the current release: invalid ownership \
         metadata; {}", .problems.join("; ")
    )]
    Foreign {
        object: String,
        /// The marks that are missing or different.
        problems: Vec<String>,
    },
    /// The object could not be read.
    #[error("could not get information about the resource {object}")]
    Unknown { object: String, source: ApiError },
}

/// An object as found under its name, with its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed {
    marks: Marks,
    is_kept: bool,
    is_leaving: bool,
    adoption: Option<Adoption>,
    /// Creation time, in whole seconds.
    created: Option<Timestamp>,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marks {
    Ours,
    Foreign,
    Stripped,
    None,
}

/// An object that was read and found to be one that the release may delete: this one in this version, and
/// no other. Only [`Observed::deletable`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deletable {
    version: Version,
    /// The version of its kind in which it was read, if not the one that was asked for.
    read_as: Option<Arc<Resource>>,
}

impl Deletable {
    /// The same of an object that was read in another version of its kind.
    #[must_use]
    pub(super) fn read_as(self, resource: Option<Arc<Resource>>) -> Self {
        Self {
            read_as: resource,
            ..self
        }
    }

    /// The version of its kind in which an object can be reached.
    pub(super) fn resource<'o>(&'o self, object: &'o Object) -> &'o Resource {
        self.read_as.as_ref().unwrap_or(&object.resource)
    }

    /// What the API server is asked to make sure of.
    pub(super) fn preconditions(&self) -> Value {
        self.version.preconditions().into()
    }

    /// The patch that takes the release's marks off this object in this version, and notes that it was left.
    pub(super) fn leaving(&self) -> Value {
        let mut metadata = self.preconditions();
        metadata["labels"] = json!({MANAGED_BY_LABEL: null});
        metadata["annotations"] = json!({
            RELEASE_NAME_ANNOTATION: null,
            RELEASE_NAMESPACE_ANNOTATION: null,
            ADOPTED_ANNOTATION: Adoption::Left.as_str(),
        });
        json!({ "metadata": metadata })
    }
}

/// The uid of an object that an attempt is known to have created: the API server did so on the condition that
/// there was none. Of a hook also that of one which says that its run created it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Created {
    uid: String,
}

impl Created {
    /// From the answer to a creation that named a version which nothing has.
    pub(super) fn from_answer(live: &Value) -> Option<Self> {
        let uid = text(live, "/metadata/uid");
        (!uid.is_empty()).then(|| Self {
            uid: uid.to_owned(),
        })
    }

    /// Has `body` written over that object, or not at all.
    pub(super) fn demand(&self, body: &mut Value) {
        body["metadata"]["uid"] = self.uid.clone().into();
    }

    /// Whether `live` is that object still, and not another one of its name.
    pub(super) fn is(&self, live: &Value) -> bool {
        text(live, "/metadata/uid") == self.uid
    }
}

/// A run of a release's hooks: at one event of one revision, as one record has it. Hooks carry no marks of a release, so what a run writes says that
/// it is of it. The number of a revision is given again once its records are gone, and anybody can guess it: the uid of the record is neither.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunMark {
    owner: Owner,
    run: String,
}

/// State of an object with the name of a hook, seen from a run of that hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HookState {
    /// No hook, or marked as another release's.
    NoHook,
    /// A hook of another release, or of nobody knows whom.
    Foreign,
    /// A hook that the Go agent, helm or an older one of our agents wrote, which do not say for which release.
    Unsigned,
    /// Written by another run of this release's hooks.
    Former,
    /// Written by this run.
    This,
}

impl RunMark {
    /// The run at `event` of what `record` is the record of.
    pub(crate) fn new(owner: Owner, record: &RecordId, event: &str) -> Self {
        let (release, uid) = (Self::release(&owner), record.uid.as_str());
        let run = format!("{release}{} {event} {uid}", record.revision);
        Self { owner, run }
    }

    /// What the marks of all runs of a release begin with. No name of Kubernetes has a blank.
    fn release(owner: &Owner) -> String {
        format!("{}/{} ", owner.namespace, owner.name)
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The release for which `live` says that it was written, and the record that says so too.
    pub(crate) fn record(live: &Value) -> Option<(Owner, RecordId)> {
        let run = mark(live, "annotations", RUN_ANNOTATION).filter(|_| is_written_by_us(live))?;
        let mut words = run.split(' ');
        let (namespace, name) = words.next()?.split_once('/')?;
        // Anybody who writes by our manager's name may have put anything there, and it is quoted.
        let owner = Some(Owner::new(name, namespace)).filter(Owner::is_named)?;
        let revision = words.next()?.parse().ok()?;
        let uid = RecordUid::new(words.nth(1)?);
        Some((owner, RecordId { revision, uid }))
    }

    /// Name for a `generateName` object of a hook, by the position of the hook and its own in that: new for each run, stable within one, so a restart
    /// finds it. It looks like the API server's.
    pub(crate) fn name(&self, prefix: &str, (hook, object): (usize, usize)) -> String {
        /// The letters of the API server's generated names, which make no words.
        const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        const SUFFIX: usize = 5;
        const LONGEST: usize = 63;
        let prefix = prefix.get(..LONGEST - SUFFIX).unwrap_or(prefix);
        let hash = Sha256::digest(format!("{} {hook} {object}", self.run));
        let letter = |byte: &u8| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]);
        let suffix = hash.iter().take(SUFFIX).map(letter);
        prefix.chars().chain(suffix).collect()
    }

    /// Says of an object that this run writes it, over whatever the chart wrote.
    pub(super) fn sign(&self, body: &mut Value) {
        if let Some(body) = body.as_object_mut() {
            let annotations = table(table(body, "metadata"), "annotations");
            annotations.insert(RUN_ANNOTATION.to_owned(), self.run.clone().into());
        }
    }

    /// Which run wrote `live`. Annotations can be copied to another object; the field manager cannot.
    pub(crate) fn state(&self, live: &Value) -> HookState {
        if self.owner.hook(live).is_none() {
            return HookState::NoHook;
        }
        match mark(live, "annotations", RUN_ANNOTATION) {
            Some(_) if !is_written_by_us(live) => HookState::Foreign,
            Some(run) if run == self.run => HookState::This,
            Some(run) if run.starts_with(&Self::release(&self.owner)) => HookState::Former,
            Some(_) => HookState::Foreign,
            None if is_written_by_a_client(live) => HookState::Unsigned,
            None => HookState::Foreign,
        }
    }
}

impl Observed {
    pub(super) fn version(&self) -> &Version {
        &self.version
    }

    /// This object in another version.
    pub(super) fn in_version(&self, version: Version) -> Self {
        Self {
            version,
            ..self.clone()
        }
    }

    /// Whether `other` is the same object and would be judged alike, whatever else was written into it.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        self.version.is_same_object(&other.version)
            && self.in_version(other.version.clone()) == *other
    }

    /// Whether the object is still the one that was created.
    pub(super) fn is_instance(&self, created: &Created) -> bool {
        self.version.is_of(&created.uid)
    }

    /// What the object is for an operation. `is_recorded` says whether a stored revision of the release has it.
    pub(crate) fn state(&self, operation: Operation, is_recorded: bool) -> ObjectState {
        if self.is_leaving {
            return ObjectState::Leaving;
        }
        match self.marks {
            Marks::Foreign => return ObjectState::Foreign,
            Marks::Stripped | Marks::None if self.adoption == Some(Adoption::Left) => {
                return ObjectState::Left;
            }
            // Somebody took the marks off what we wrote, and what we wrote is recorded.
            Marks::Stripped if is_recorded && !operation.deletes() => {}
            Marks::Stripped => return ObjectState::Stripped,
            Marks::None => return ObjectState::Unmarked,
            Marks::Ours => {}
        }
        // A write need not ask whether the object wishes to be kept.
        if self.is_kept && operation.deletes() {
            return ObjectState::KeepPolicy;
        }
        match self.adoption {
            Some(Adoption::Kept) => ObjectState::AdoptedKept,
            Some(Adoption::Owned) => ObjectState::AdoptedOwned,
            // Somebody put the marks back.
            Some(Adoption::HandedOver | Adoption::Left) => ObjectState::HandedOver,
            None if is_recorded => ObjectState::Ours,
            None => ObjectState::Marked,
        }
    }

    /// The proof that an operation may delete the object; else what it is. What is older than the first attempt at the release, which began at `since`,
    /// was there before it, though a record has it and no note says so: the attempt may have ended before it had read the object.
    pub(crate) fn deletable(
        &self,
        operation: Operation,
        since: Option<Timestamp>,
    ) -> Result<Deletable, ObjectState> {
        let is_older = since
            .zip(self.created)
            .is_some_and(|(since, created)| created < since);
        // An object to delete comes from a record.
        let state = self.state(operation, !is_older);
        match judge(operation, state) {
            Verdict::Delete => Ok(self.instance()),
            _ => Err(state),
        }
    }

    /// Whether removing the release would have deleted this object: then the release is not removed.
    pub(crate) fn outlives_no_removal(&self) -> bool {
        self.deletable(Operation::Remove, None).is_ok()
    }

    fn instance(&self) -> Deletable {
        Deletable {
            version: self.version.clone(),
            read_as: None,
        }
    }
}

impl Owner {
    /// The release `name` of `namespace`.
    pub fn new(name: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
        }
    }

    /// The reasons why `live` is not this release's, in Helm's words; empty if it is.
    pub fn problems(&self, live: &Value) -> Vec<String> {
        let marks = [
            ("label", "labels", MANAGED_BY_LABEL, MANAGED_BY_HELM),
            (
                "annotation",
                "annotations",
                RELEASE_NAME_ANNOTATION,
                self.name.as_str(),
            ),
            (
                "annotation",
                "annotations",
                RELEASE_NAMESPACE_ANNOTATION,
                self.namespace.as_str(),
            ),
        ];
        marks
            .into_iter()
            .filter_map(|(sort, field, key, desired)| match mark(live, field, key) {
                Some(found) if found == desired => None,
                Some(found) => Some(format!(
                    "{sort} validation error: key {key:?} must equal {desired:?}: current value is \
                     {found:?}"
                )),
                None => Some(format!(
                    "{sort} validation error: missing key {key:?}: must be set to {desired:?}"
                )),
            })
            .collect()
    }

    /// Whether `live` carries all of this release's marks.
    pub fn owns(&self, live: &Value) -> bool {
        self.problems(live).is_empty()
    }

    /// The release whose marks `live` carries, if any.
    pub fn of(live: &Value) -> Option<Self> {
        Some(Self {
            name: mark(live, "annotations", RELEASE_NAME_ANNOTATION)?.to_owned(),
            namespace: mark(live, "annotations", RELEASE_NAMESPACE_ANNOTATION)?.to_owned(),
        })
    }

    /// Whether a release can be called that: anybody may write what he likes into the marks of an object.
    fn is_named(&self) -> bool {
        is_name(&self.name) && is_name(&self.namespace)
    }

    /// Puts this release's marks on an object, over whatever the chart wrote. What was there before is noted by who met it alone.
    pub fn mark(&self, body: &mut Value) {
        let Some(body) = body.as_object_mut() else {
            return;
        };
        let metadata = table(body, "metadata");
        table(metadata, "labels").insert(MANAGED_BY_LABEL.to_owned(), MANAGED_BY_HELM.into());
        let annotations = table(metadata, "annotations");
        annotations.remove(ADOPTED_ANNOTATION);
        annotations.insert(RELEASE_NAME_ANNOTATION.to_owned(), self.name.clone().into());
        annotations.insert(
            RELEASE_NAMESPACE_ANNOTATION.to_owned(),
            self.namespace.clone().into(),
        );
    }

    /// What `live`, an object or its metadata, is to this release.
    pub(crate) fn observe(&self, live: &Value) -> Observed {
        let marks = match Self::of(live) {
            Some(owner) if owner != *self => Marks::Foreign,
            _ if self.owns(live) => Marks::Ours,
            _ if is_written_by_us(live) => Marks::Stripped,
            _ => Marks::None,
        };
        Observed {
            marks,
            is_kept: is_kept(live),
            is_leaving: live.pointer("/metadata/deletionTimestamp").is_some(),
            adoption: adoption(live),
            created: text(live, "/metadata/creationTimestamp").parse().ok(),
            version: Version::of(live),
        }
    }

    /// The proof that a hook's object may be deleted: hooks carry no marks, but say that they are hooks, and no
    /// other release has marked them. None if it is something else.
    pub(crate) fn hook(&self, live: &Value) -> Option<Deletable> {
        let annotations = live.pointer("/metadata/annotations");
        let is_hook = annotations.is_some_and(|all| all.get(HOOK_ANNOTATION).is_some());
        let is_foreign = Self::of(live).is_some_and(|marked| marked != *self);
        let is_ours = !is_foreign && (is_hook || self.owns(live)) && adoption(live).is_none();
        is_ours.then(|| self.observe(live).instance())
    }

    /// Why an object is not this release's to write.
    pub(crate) fn refusal(&self, object: &Object, live: &Value) -> OwnershipError {
        OwnershipError::Foreign {
            object: object.describe_for_people(),
            problems: self.problems(live),
        }
    }
}

/// Takes away what a chart wrote in the place of the note on objects that were there before: it is not for charts to say.
pub fn unnote(body: &mut Value) {
    if let Some(Value::Object(annotations)) = body.pointer_mut("/metadata/annotations") {
        annotations.remove(ADOPTED_ANNOTATION);
    }
}

/// The patch that notes an adoption on an object.
pub(super) fn adoption_note(adoption: Adoption) -> Value {
    json!({"metadata": {"annotations": {ADOPTED_ANNOTATION: adoption.as_str()}}})
}

/// Whether an object is noted as having been there before its release.
pub(crate) fn is_noted(live: &Value) -> bool {
    adoption(live).is_some()
}

/// The note on an object that was there before its release.
pub(super) fn adoption(live: &Value) -> Option<Adoption> {
    mark(live, "annotations", ADOPTED_ANNOTATION).map(Adoption::read)
}

/// Whether our field manager has applied the object.
pub(super) fn is_written_by_us(live: &Value) -> bool {
    let is_ours =
        |entry: &Value| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply";
    entries(live).iter().any(is_ours)
}

/// Whether an agent or helm wrote the object, in whichever way: the Go agent has our name.
fn is_written_by_a_client(live: &Value) -> bool {
    let is_one = |entry: &Value| entry["manager"] == FIELD_MANAGER || entry["manager"] == "helm";
    entries(live).iter().any(is_one)
}

fn text<'v>(live: &'v Value, pointer: &str) -> &'v str {
    live.pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The table under `name`; whatever else stands there is replaced, as nothing else is valid.
fn table<'v>(map: &'v mut Map<String, Value>, name: &str) -> &'v mut Map<String, Value> {
    let entry = map.entry(name).or_insert(Value::Null);
    if !entry.is_object() {
        *entry = Value::Object(Map::new());
    }
    entry.as_object_mut().expect("it was made an object above")
}

fn mark<'v>(live: &'v Value, field: &str, key: &str) -> Option<&'v str> {
    live.get("metadata")?.get(field)?.get(key)?.as_str()
}

/// What an object asks for where its release lets go of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResourcePolicy {
    /// To be kept.
    Keep,
    /// Something that Helm does not know; a removal leaves it all the same.
    Other,
}

/// The resource policy of an object, a live one or a manifest's. Both are read as Helm reads a manifest's, trimmed and in any case: of a live one it
/// goes by the exact word.
pub(crate) fn resource_policy(object: &Value) -> Option<ResourcePolicy> {
    let policy = mark(object, "annotations", RESOURCE_POLICY_ANNOTATION)?;
    Some(match policy.trim().to_lowercase().as_str() {
        "keep" => ResourcePolicy::Keep,
        _ => ResourcePolicy::Other,
    })
}

/// Whether an object, a live one or a manifest's, asks to be kept where its release lets go of it.
pub fn is_kept(object: &Value) -> bool {
    resource_policy(object) == Some(ResourcePolicy::Keep)
}

/// Whether a text is one that Kubernetes takes for a name.
fn is_name(text: &str) -> bool {
    const LONGEST: usize = 253;
    let may_stand =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    text.len() <= LONGEST && text.bytes().all(may_stand)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner::new("web", "shop")
    }

    #[test]
    fn marks_are_put_over_the_charts() {
        let mut body =
            json!({"metadata": {"labels": {MANAGED_BY_LABEL: "me"}, "annotations": null}});
        owner().mark(&mut body);
        assert!(owner().owns(&body));
        assert_eq!(Owner::of(&body), Some(owner()));
    }

    #[test]
    fn an_object_with_marks_of_another_release_is_foreign_whatever_is_recorded() {
        let mut live = json!({"metadata": {"uid": "1"}});
        Owner::new("other", "shop").mark(&mut live);
        for operation in Operation::ALL {
            for is_recorded in [true, false] {
                let state = owner().observe(&live).state(operation, is_recorded);
                assert_eq!(state, ObjectState::Foreign, "{operation:?} {is_recorded}");
            }
        }
    }

    #[test]
    fn an_object_that_asks_to_be_kept_is_kept_however_that_is_spelled() {
        for (policy, goes) in [
            ("keep", false),
            (" Keep", false),
            ("KEEP\n", false),
            ("delete", true),
        ] {
            let mut live = json!({"metadata": {"uid": "1",
                "annotations": {RESOURCE_POLICY_ANNOTATION: policy}}});
            owner().mark(&mut live);
            for operation in Operation::ALL.into_iter().filter(|one| one.deletes()) {
                let object = owner().observe(&live);
                assert_eq!(
                    object.deletable(operation, None).is_ok(),
                    goes,
                    "{policy:?} {operation:?}"
                );
            }
        }
    }

    #[test]
    fn an_undo_leaves_what_is_older_than_the_first_attempt() {
        let at = "2026-01-01T00:00:07Z";
        let mut live = json!({"metadata": {"uid": "1", "creationTimestamp": at}});
        owner().mark(&mut live);
        let goes = |operation, since: Option<&str>| {
            let since = since.map(|since| since.parse().expect(since));
            let object = owner().observe(&live);
            object.deletable(operation, since).is_ok()
        };
        assert!(goes(Operation::Undo, None), "its record is gone");
        assert!(goes(Operation::Undo, Some(at)));
        assert!(!goes(Operation::Undo, Some("2026-01-01T00:00:08Z")));
        assert!(goes(Operation::Drop, Some("2026-01-01T00:00:08Z")));
        assert!(goes(Operation::Remove, Some("2026-01-01T00:00:08Z")));
    }

    /// The run that wrote a hook is read from what our field manager applied, and from nothing else.
    #[test]
    fn a_hook_belongs_to_the_run_it_names_only_if_we_wrote_it() {
        let record = |revision, uid: &str| RecordId {
            revision,
            uid: RecordUid::new(uid),
        };
        let run = RunMark::new(owner(), &record(3, "u"), "pre-upgrade");
        let hook = |of: Option<&RunMark>, operation: &str, manager: &str| {
            let mut live = json!({"metadata": {
                "annotations": {HOOK_ANNOTATION: "pre-upgrade"},
                "managedFields": [{"manager": manager, "operation": operation}],
            }});
            if let Some(run) = of {
                run.sign(&mut live);
            }
            live
        };
        let of_record = |name: &str, record: &RecordId, event: &str| {
            let other = RunMark::new(Owner::new(name, "shop"), record, event);
            run.state(&hook(Some(&other), "Apply", FIELD_MANAGER))
        };
        let of = |name: &str, revision, event: &str| of_record(name, &record(revision, "u"), event);
        // The number was given again, or somebody has guessed it.
        for another in ["v", ""] {
            let state = of_record("web", &record(3, another), "pre-upgrade");
            assert_eq!(state, HookState::Former, "{another}");
        }
        assert_eq!(of("web", 3, "pre-upgrade"), HookState::This);
        assert_eq!(of("web", 2, "pre-upgrade"), HookState::Former);
        assert_eq!(of("web", 3, "post-upgrade"), HookState::Former);
        assert_eq!(of("web2", 3, "pre-upgrade"), HookState::Foreign);
        assert_eq!(of("we", 3, "pre-upgrade"), HookState::Foreign);
        let copied = hook(Some(&run), "Update", "kubectl-create");
        assert_eq!(run.state(&copied), HookState::Foreign);
        let state = |operation, manager| run.state(&hook(None, operation, manager));
        assert_eq!(state("Apply", FIELD_MANAGER), HookState::Unsigned);
        assert_eq!(state("Update", FIELD_MANAGER), HookState::Unsigned);
        assert_eq!(state("Update", "kubectl-create"), HookState::Foreign);
        let mut object = hook(None, "Apply", FIELD_MANAGER);
        Owner::new("other", "shop").mark(&mut object);
        assert_eq!(run.state(&object), HookState::NoHook);
        assert_eq!(run.state(&json!({"metadata": {}})), HookState::NoHook);
    }

    #[test]
    fn a_foreign_object_is_reported_in_helms_words() {
        let live = json!({"metadata": {"annotations": {RELEASE_NAME_ANNOTATION: "other"}}});
        assert_eq!(
            owner().problems(&live).join("; "),
            "label validation error: missing key \"app.kubernetes.io/managed-by\": must be set to \
             \"Helm\"; annotation validation error: key \"meta.helm.sh/release-name\" must equal \
             \"web\": current value is \"other\"; annotation validation error: missing key \
             \"meta.helm.sh/release-namespace\": must be set to \"shop\""
        );
    }
}
