//! Containers that are retained although the manifest dropped them, or the release goes: the namespaces of objects that are desired or kept, the
//! definitions of their kinds, and the release's own namespace. Those that other releases are in are known when they are deleted.
//!
//! An object is kept where a record or itself asks for that (`helm.sh/resource-policy`), or where it was there before the release. What contains it
//! would take it along, so all objects of a deletion are decided about before the first goes.
//!
//! Deleting one deletes everything in it. A chart that stops writing it (it was moved to `crds/`, or
//! another release writes it now) does not ask for that. Helm deletes it, and with it what the same
//! upgrade has just written, and the release's own records.

use std::collections::HashSet;

use chart::Chart;
use objects::{GroupKind, Object, ObjectKey, Resource};

use super::install::crd_kinds;
use crate::kube::{
    Cluster, Content, Contents, DeleteError, Held, Owner, Spared, Unseen, read_contents,
};
use crate::state::ownership::Operation;

/// What a release has no longer, without bodies.
#[derive(Debug, Clone, Default)]
pub(super) struct Obsolete {
    /// To be deleted, and as what.
    pub(super) objects: Vec<(Object, Operation)>,
    /// Left: a record asks for that, something is in it, or nobody can read it.
    pub(super) kept: Vec<Object>,
    /// Those of the kept that are left for what is in them, and would go else.
    pub(super) held: Vec<Held>,
    /// What hooks of theirs have made, which no operation deletes.
    pub(super) of_hooks: Vec<Object>,
    /// What attempts of others have, which no operation deletes either.
    pub(super) of_others: Vec<Object>,
    /// What former revisions have, or say that it is gone, and what their hooks make, each with how it was left: some of it may be there to stay.
    pub(super) of_former: Vec<(Object, Operation)>,
    /// Of which of the objects only records of others tell: anybody may have written those, and what they name holds up no other deletion.
    pub(super) foreign: HashSet<ObjectKey>,
    /// Whether a record cannot be read, so that there may be more that stays.
    pub(super) is_incomplete: bool,
    /// A kind that only former revisions have and that is not served, but may be in a moment: nothing is deleted before that, or for minutes.
    pub(super) waits_for: Option<GroupKind>,
    /// What was seen to stay in something that goes else.
    pub(super) stays: HashSet<ObjectKey>,
}

impl Obsolete {
    /// What failed of an object that only records of others name.
    pub(super) fn foreign(&self, failure: &DeleteError) -> Option<&Object> {
        let key = self.foreign.get(failure.key())?;
        let mut objects = self.objects.iter().map(|(object, _)| object);
        objects.find(|object| object.key() == *key)
    }

    /// Leaves an object where it is, with whatever contains it.
    pub(super) fn leave(&mut self, key: &ObjectKey) {
        let left = self.objects.extract_if(.., |(one, _)| one.key() == *key);
        self.kept.extend(left.map(|(object, _)| object));
        self.stays.insert(key.clone());
    }

    /// Leaves out what is not due.
    fn retain(&mut self, is_due: impl Fn(&Object) -> bool) {
        self.objects.retain(|(object, _)| is_due(object));
        self.kept.retain(&is_due);
        self.held.retain(|held| is_due(&held.object));
    }
}

/// Whether deleting an object deletes others.
pub(super) fn is_container(object: &Object) -> bool {
    object.is_namespace() || object.is_crd()
}

/// Whether deleting `container` also deletes `object`.
pub(super) fn contains(container: &Object, object: &Object) -> bool {
    match container.is_namespace() {
        true => object.namespace.as_deref() == Some(&container.name),
        false => container.is_crd() && container.name == object.resource.definition_name(),
    }
}

/// Decides which objects contain desired or kept ones, and must not be deleted.
pub(super) struct Retained<'a> {
    /// The release's namespace, as long as the release is there.
    namespace: Option<&'a str>,
    desired: &'a [Object],
    /// Kinds that the chart's `crds/` define.
    defined: Vec<Resource>,
    /// What its hooks make.
    of_hooks: &'a [Object],
    /// Whether all was read a moment ago, and what goes since may be what it takes to read the rest.
    is_again: bool,
}

impl<'a> Retained<'a> {
    pub(super) fn new(namespace: &'a str, desired: &'a [Object], chart: Option<&Chart>) -> Self {
        Self {
            namespace: Some(namespace),
            desired,
            defined: chart.map(crd_kinds).unwrap_or_default(),
            of_hooks: &[],
            is_again: false,
        }
    }

    /// The same with what the hooks of the desired release make.
    #[must_use]
    pub(super) fn beside_hooks(self, of_hooks: &'a [Object]) -> Self {
        Self { of_hooks, ..self }
    }

    /// For a removal: nothing is desired any more.
    pub(super) fn of_removal() -> Self {
        Self {
            namespace: None,
            desired: &[],
            defined: Vec::new(),
            of_hooks: &[],
            is_again: false,
        }
    }

    /// For deciding once more about all that is left, right before what contains others goes. What cannot be read any more, as the webhook that converts it or the
    /// account's rights have gone meanwhile, is what it was: it goes, unless it was seen to stay since.
    #[must_use]
    pub(super) fn again(self) -> Self {
        Self {
            is_again: true,
            ..self
        }
    }

    /// Decides what of `obsolete` goes, as far as it is due, before any of it does: containers of desired objects stay, and those of objects that stay
    /// themselves. For that the objects in containers which are due are read, and no others.
    ///
    /// # Errors
    /// Objects in a container that is due which cannot be read: they may ask to be kept. Where the webhook that converts them is gone for good they
    /// stay unread, and what contains them.
    pub(super) async fn decide(
        &self,
        cluster: &Cluster,
        owner: &Owner,
        spared: Spared<'_>,
        obsolete: Obsolete,
        is_due: impl Fn(&Object) -> bool,
    ) -> Result<Obsolete, Vec<DeleteError>> {
        let (objects, held) = self.split(obsolete.objects);
        let containers = objects.iter();
        let containers = containers.filter(|(one, _)| is_container(one) && is_due(one));
        let containers: Vec<_> = containers.collect();
        // An undo leaves containers, whatever is in them; what it deletes of that has to be read all the same.
        let is_inside = |(object, content): &(&Object, Content)| {
            containers.iter().any(|(container, operation)| {
                let is_own = matches!(content, Content::Of(_) | Content::OfForeign(_));
                let is_asked = *operation != Operation::Undo || is_own;
                is_asked && contains(container, object)
            })
        };
        let own = objects.iter();
        let own = own.map(
            |(object, operation)| match obsolete.foreign.contains(&object.key()) {
                true => (object, Content::OfForeign(*operation)),
                false => (object, Content::Of(*operation)),
            },
        );
        let asked_for = obsolete.kept.iter();
        let asked_for = asked_for.map(|object| match obsolete.foreign.contains(&object.key()) {
            true => (object, Content::KeptOfForeign),
            false => (object, Content::Kept),
        });
        let of_hooks = obsolete.of_hooks.iter();
        let of_hooks = of_hooks.map(|object| (object, Content::OfHook));
        let of_others = obsolete.of_others.iter();
        let of_others = of_others.map(|object| (object, Content::OfOthers));
        let of_former = obsolete.of_former.iter();
        let of_former =
            of_former.map(|(object, operation)| (object, Content::OfFormer(*operation)));
        let all = own.chain(asked_for).chain(of_hooks).chain(of_others);
        let all = all.chain(of_former);
        let inside: Vec<_> = all.filter(is_inside).collect();
        let Contents { mut stays, unseen } = read_contents(cluster, owner, spared, &inside).await;
        let as_before = |one: &Unseen<'_>| self.is_again && one.failure.is_unreadable();
        let (as_before, unseen): (Vec<_>, Vec<_>) = unseen.into_iter().partition(as_before);
        let stayed = |one: &&Object| obsolete.stays.contains(&one.key());
        stays.extend(as_before.into_iter().map(|one| one.object).filter(stayed));
        let (unread, unseen): (Vec<_>, Vec<_>) = unseen.into_iter().partition(|one| one.is_lasting);
        if !unseen.is_empty() {
            return Err(unseen.into_iter().map(|one| one.failure).collect());
        }
        let unread: Vec<&Object> = unread.into_iter().map(|one| one.object).collect();
        let has = |all: &[&Object], container| all.iter().any(|one| contains(container, one));
        let (mut goes, mut left, mut for_contents) = (Vec::new(), Vec::new(), Vec::new());
        for (object, operation) in &objects {
            let is_unread = !has(&stays, object);
            let may_hold_more = obsolete.is_incomplete && is_container(object);
            let is_held = *operation != Operation::Undo
                && (!is_unread || may_hold_more || has(&unread, object));
            match object {
                _ if is_held => for_contents.push(Held {
                    object: object.clone(),
                    operation: *operation,
                    is_unread,
                }),
                _ if unread.contains(&object) => left.push(object.clone()),
                _ => goes.push((object.clone(), *operation)),
            }
        }
        let stays = stays.iter().map(|object| object.key()).collect();
        let mut decided = Obsolete {
            objects: goes,
            kept: obsolete.kept,
            held: for_contents,
            stays,
            of_hooks: obsolete.of_hooks,
            of_others: obsolete.of_others,
            of_former: obsolete.of_former,
            foreign: obsolete.foreign,
            is_incomplete: obsolete.is_incomplete,
            waits_for: obsolete.waits_for,
        };
        let left = held.into_iter().chain(left);
        let for_contents = decided.held.iter().map(|held| held.object.clone());
        decided.kept.extend(left.chain(for_contents));
        decided.retain(is_due);
        Ok(decided)
    }

    /// Splits obsolete objects into those to delete and those to retain.
    pub(super) fn split(
        &self,
        objects: Vec<(Object, Operation)>,
    ) -> (Vec<(Object, Operation)>, Vec<Object>) {
        let (obsolete, retained): (Vec<_>, Vec<_>) = objects
            .into_iter()
            .partition(|(object, _)| !self.is_needed(object));
        let retained = retained.into_iter().map(|(object, _)| object);
        (obsolete, retained.collect())
    }

    fn is_needed(&self, object: &Object) -> bool {
        if object.is_namespace() {
            return self.namespace == Some(&object.name) || self.has_desired(object);
        }
        let is_defined = |kind: &Resource| object.name == kind.definition_name();
        object.is_crd() && (self.has_desired(object) || self.defined.iter().any(is_defined))
    }

    fn has_desired(&self, container: &Object) -> bool {
        let mut all = self.desired.iter().chain(self.of_hooks);
        all.any(|one| contains(container, one))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::kube::fixture;

    fn object(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Object {
        let resource = Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: kind.to_lowercase() + "s",
            namespaced: namespace.is_some(),
        };
        Object {
            resource: Arc::new(resource),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            body: Value::Null,
        }
    }

    const CRD: (&str, &str) = ("apiextensions.k8s.io", "CustomResourceDefinition");

    #[rstest]
    #[case::the_releases_namespace(("", "Namespace"), "apps", true)]
    #[case::a_namespace_that_is_used(("", "Namespace"), "other", true)]
    #[case::an_empty_namespace(("", "Namespace"), "empty", false)]
    #[case::a_kind_of_that_name(("example.com", "Namespace"), "apps", false)]
    #[case::a_definition_that_is_used(CRD, "cars.example.com", true)]
    #[case::of_another_group(CRD, "cars.example.org", false)]
    #[case::of_another_kind(CRD, "boats.example.com", false)]
    #[case::anything_else(("", "ConfigMap"), "apps", false)]
    fn containers_of_desired_objects_are_retained(
        #[case] (group, kind): (&str, &str),
        #[case] name: &str,
        #[case] expected: bool,
    ) {
        let desired = [
            object("", "ConfigMap", Some("other"), "a"),
            object("example.com", "Car", Some("apps"), "beetle"),
        ];
        let retained = Retained::new("apps", &desired, None);
        assert_eq!(
            retained.is_needed(&object(group, kind, None, name)),
            expected
        );
    }

    /// What says that an object stays though its release lets go of it.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Reason {
        Live,
        Adopted,
        /// It had the release's marks before.
        HandedOver,
        Stored,
        /// Somebody has deleted what a record asks to keep.
        StoredAndGone,
        /// The same on its way out.
        StoredAndLeaving,
        /// Another release's by now, or nobody's.
        NotOwned,
        Nothing,
    }

    /// By what is in a container that goes with it: it stays with what stays.
    #[rstest]
    #[case::asks_to_be_kept(Reason::Live, true)]
    #[case::was_there_before(Reason::Adopted, true)]
    #[case::it_was_handed_over(Reason::HandedOver, false)]
    #[case::a_record_asks_to_keep_it(Reason::Stored, true)]
    #[case::it_is_not_there(Reason::StoredAndGone, false)]
    #[case::it_is_not_the_releases(Reason::NotOwned, true)]
    #[case::it_is_on_its_way_out(Reason::StoredAndLeaving, false)]
    #[case::it_goes(Reason::Nothing, false)]
    #[tokio::test]
    async fn a_container_of_what_stays_is_left(
        #[case] reason: Reason,
        #[case] stays: bool,
        #[values(Operation::Drop, Operation::Remove)] operation: Operation,
        #[values(true, false)] is_definition: bool,
    ) {
        let owner = Owner::new("web", "apps");
        let mut live = json!({"metadata": {"uid": "u", "resourceVersion": "7"}});
        owner.mark(&mut live);
        match reason {
            Reason::Live => {
                live["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
            }
            Reason::Adopted => {
                live["metadata"]["annotations"]["fleetagent.cattle.io/adopted"] = json!("kept");
            }
            Reason::HandedOver => {
                live["metadata"]["annotations"]["fleetagent.cattle.io/adopted"] =
                    json!("handed-over");
            }
            Reason::NotOwned => live["metadata"]["annotations"] = json!({}),
            Reason::StoredAndLeaving => {
                live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            Reason::Stored | Reason::StoredAndGone | Reason::Nothing => {}
        }
        let cluster = fixture::server(move |_, _, _| match reason {
            Reason::StoredAndGone => Some(fixture::missing("data")),
            _ => Some((200, live.clone())),
        });
        let (container, content) = match is_definition {
            true => (
                object(
                    "apiextensions.k8s.io",
                    "CustomResourceDefinition",
                    None,
                    "cars.x.io",
                ),
                object("x.io", "Car", Some("apps"), "beetle"),
            ),
            false => (
                object("", "Namespace", None, "data"),
                object("", "PersistentVolumeClaim", Some("data"), "disk"),
            ),
        };
        // Nothing of these is in the container.
        let other = object("", "ConfigMap", Some("apps"), "a");
        let mut obsolete = Obsolete {
            objects: vec![(container.clone(), operation), (other.clone(), operation)],
            ..Obsolete::default()
        };
        match reason {
            Reason::Stored | Reason::StoredAndGone | Reason::StoredAndLeaving => {
                obsolete.kept.push(content.clone());
            }
            _ => obsolete.objects.push((content.clone(), operation)),
        }
        let retained = match operation {
            Operation::Remove => Retained::of_removal(),
            _ => Retained::new("apps", &[], None),
        };
        let decided = retained
            .decide(&cluster, &owner, Spared::default(), obsolete, |_| true)
            .await;
        let Obsolete { objects, kept, .. } = decided.unwrap();
        let goes = |object: &Object| objects.iter().any(|(one, _)| one == object);
        assert_eq!(
            (goes(&container), kept.contains(&container)),
            (!stays, stays)
        );
        assert!(goes(&other));
        let is_stored = matches!(
            reason,
            Reason::Stored | Reason::StoredAndGone | Reason::StoredAndLeaving
        );
        assert_eq!(kept.contains(&content), is_stored);
    }

    /// What the API server was to name nobody can ask for: by what it says of itself.
    #[rstest]
    #[case::a_name_that_its_run_gave(Role::OfAHook, Some("keep"), true)]
    #[case::nothing_asks_for_that(Role::OfAHook, None, false)]
    #[case::a_record_asks_to_keep_it(Role::ARecordAsksToKeepIt, Some("keep"), true)]
    #[case::the_release_has_no_such(Role::OfTheManifest, None, false)]
    #[tokio::test]
    async fn what_has_a_generated_name_goes_only_if_nothing_keeps_it(
        #[case] role: Role,
        #[case] policy: Option<&str>,
        #[case] stays: bool,
    ) {
        let cluster = fixture::server(|_, _, _| None);
        let mut content = object("", "Secret", Some("data"), "");
        content.body = json!({"metadata": {"generateName": "root-"}});
        if let Some(policy) = policy {
            content.body["metadata"]["annotations"] = json!({"helm.sh/resource-policy": policy});
        }
        let namespace = object("", "Namespace", None, "data");
        let mut obsolete = Obsolete {
            objects: vec![(namespace.clone(), Operation::Remove)],
            ..Obsolete::default()
        };
        obsolete.add(content, Operation::Remove, role);
        let (owner, spared) = (Owner::new("web", "apps"), Spared::default());
        let retained = Retained::of_removal();
        let decided = retained.decide(&cluster, &owner, spared, obsolete, |_| true);
        let decided = decided.await.unwrap().objects;
        let goes = decided.iter().any(|(one, _)| *one == namespace);
        assert_eq!(goes, !stays);
    }

    const UNCONVERTED: &str = "conversion webhook for x.io/v1, Kind=Car failed: service not found";

    /// What becomes of a definition: it may not take along an object that may ask to be kept.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fate {
        TriedAgain,
        LeftUnread,
        Left,
        Goes,
    }

    /// What the object is, where its definition is about to go.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Role {
        OfTheManifest,
        ARecordAsksToKeepIt,
        OfAHook,
        /// Only a former version had it.
        OfAFormerVersion,
        /// Only a record of others has it.
        OfSomebodyElse,
        /// Only such a record asks to keep it.
        SomebodyElseAsksToKeepIt,
    }

    impl Obsolete {
        fn add(&mut self, object: Object, operation: Operation, role: Role) {
            match role {
                Role::OfTheManifest => self.objects.push((object, operation)),
                Role::ARecordAsksToKeepIt => self.kept.push(object),
                Role::OfAHook => self.of_hooks.push(object),
                Role::OfAFormerVersion => self.of_former.push((object, Operation::Drop)),
                Role::OfSomebodyElse => {
                    self.foreign.insert(object.key());
                    self.objects.push((object, operation));
                }
                Role::SomebodyElseAsksToKeepIt => {
                    self.foreign.insert(object.key());
                    self.kept.push(object);
                }
            }
        }
    }

    fn is_unread(decided: &Obsolete, container: &Object) -> bool {
        let mut held = decided.held.iter();
        held.any(|held| held.object == *container && held.is_unread)
    }

    /// Of what hooks make an account may have no right to read anything, whatever else it may.
    #[rstest]
    #[case::no_answer_says_so((500, ""), true, Fate::TriedAgain)]
    #[case::the_webhook_may_come_back((500, UNCONVERTED), false, Fate::TriedAgain)]
    #[case::the_webhook_is_gone((500, UNCONVERTED), true, Fate::LeftUnread)]
    #[case::the_account_may_not_yet((403, ""), false, Fate::TriedAgain)]
    #[case::the_account_may_not((403, ""), true, Fate::LeftUnread)]
    #[case::nobody_may_ask_for_it_yet((400, ""), false, Fate::TriedAgain)]
    #[case::nobody_may_ask_for_it((400, ""), true, Fate::LeftUnread)]
    #[tokio::test(start_paused = true)]
    async fn a_definition_goes_with_no_object_that_nobody_could_read(
        #[case] (code, message): (u16, &'static str),
        #[case] for_minutes: bool,
        #[case] expected: Fate,
        #[values(false, true)] has_namespace: bool,
        #[values(Operation::Drop, Operation::Remove)] operation: Operation,
        #[values(
            Role::OfTheManifest,
            Role::ARecordAsksToKeepIt,
            Role::OfAHook,
            Role::OfAFormerVersion,
            Role::OfSomebodyElse,
            Role::SomebodyElseAsksToKeepIt
        )]
        role: Role,
    ) {
        let expected = match (code, role) {
            (400 | 403, Role::OfTheManifest | Role::ARecordAsksToKeepIt) => Fate::TriedAgain,
            _ => expected,
        };
        let refusal = json!({"kind": "Status", "code": code, "message": message});
        let cluster = fixture::server(move |_, _, _| Some((code, refusal.clone())));
        let definition = object(CRD.0, CRD.1, None, "cars.x.io");
        let namespace = object("", "Namespace", None, "data");
        let content = object("x.io", "Car", Some("data"), "beetle");
        let mut containers = vec![definition];
        containers.extend(has_namespace.then_some(namespace));
        let mut tries = if for_minutes { 4 } else { 1 };
        let decided = loop {
            let going = containers.iter().cloned();
            let mut obsolete = Obsolete {
                objects: going.map(|one| (one, operation)).collect(),
                ..Obsolete::default()
            };
            obsolete.add(content.clone(), operation, role);
            let retained = match operation {
                Operation::Remove => Retained::of_removal(),
                _ => Retained::new("apps", &[], None),
            };
            let (owner, spared) = (Owner::new("web", "apps"), Spared::default());
            let decided = retained.decide(&cluster, &owner, spared, obsolete, |_| true);
            let decided = decided.await;
            tries -= 1;
            if tries == 0 {
                break decided;
            }
            tokio::time::advance(Duration::from_secs(120)).await;
        };
        let Ok(decided) = decided else {
            assert_eq!(expected, Fate::TriedAgain);
            return;
        };
        for container in &containers {
            let goes = decided.objects.iter().any(|(one, _)| one == container);
            let fate = match goes {
                true => Fate::Goes,
                false if is_unread(&decided, container) => Fate::LeftUnread,
                false => Fate::Left,
            };
            assert_eq!(fate, expected, "{container:?}");
            assert_eq!(decided.kept.contains(container), !goes);
        }
        assert!(decided.objects.is_empty());
        let is_left_alone = matches!(role, Role::OfAHook | Role::OfAFormerVersion);
        assert_eq!(decided.kept.contains(&content), !is_left_alone);
    }

    /// An undo deletes no definition, so that what of it cannot be read has no other end than to be left.
    #[tokio::test(start_paused = true)]
    async fn what_an_undo_cannot_read_is_left_once_the_webhook_is_gone() {
        let refusal = json!({"kind": "Status", "code": 500, "message": UNCONVERTED});
        let cluster = fixture::server(move |_, _, _| Some((500, refusal.clone())));
        let definition = object(CRD.0, CRD.1, None, "cars.x.io");
        let content = object("x.io", "Car", Some("apps"), "beetle");
        let of_hook = object("x.io", "Car", Some("apps"), "hooked");
        let owner = Owner::new("web", "apps");
        let decide = async || {
            let objects = [definition.clone(), content.clone()];
            let obsolete = Obsolete {
                objects: objects.map(|one| (one, Operation::Undo)).into(),
                of_hooks: vec![of_hook.clone()],
                ..Obsolete::default()
            };
            let retained = Retained::of_removal();
            let spared = Spared::default();
            let decided = retained.decide(&cluster, &owner, spared, obsolete, |_| true);
            decided.await
        };
        for _ in 0..3 {
            assert_eq!(decide().await.unwrap_err().len(), 1);
            tokio::time::advance(Duration::from_secs(120)).await;
        }
        let decided = decide().await.unwrap();
        let goes: Vec<_> = decided.objects.iter().map(|(one, _)| one).collect();
        assert_eq!(goes, [&definition]);
        assert_eq!(decided.kept, [content]);
        assert!(decided.held.is_empty());
    }

    /// The stored version of an object needs no webhook, which may be gone with the release.
    #[rstest]
    #[case::nothing_asks_for_it(None, Fate::Goes)]
    #[case::it_asks_to_be_kept(Some("keep"), Fate::Left)]
    #[tokio::test]
    async fn an_object_whose_webhook_is_gone_is_read_as_it_is_stored(
        #[case] policy: Option<&str>,
        #[case] expected: Fate,
        #[values(Role::OfTheManifest, Role::OfAHook)] role: Role,
    ) {
        let refusal = json!({"kind": "Status", "code": 500, "message": UNCONVERTED});
        let mut live = json!({"metadata": {"uid": "u", "resourceVersion": "7"}});
        Owner::new("web", "apps").mark(&mut live);
        if let Some(policy) = policy {
            live["metadata"]["annotations"]["helm.sh/resource-policy"] = json!(policy);
        }
        let mut cars = fixture::discovery("x.io", &[("Car", true)]);
        let mut stored = cars["versions"][0].clone();
        stored["version"] = json!("v2");
        cars["versions"].as_array_mut().unwrap().push(stored);
        let cluster = fixture::server(move |_, path, _| match path {
            "/version" => Some((200, json!({}))),
            "/api" => Some(fixture::discovered(&[])),
            "/apis" => Some(fixture::discovered(std::slice::from_ref(&cars))),
            path if path.starts_with("/apis/x.io/v2/") => Some((200, live.clone())),
            _ => Some((500, refusal.clone())),
        });
        let definition = object(CRD.0, CRD.1, None, "cars.x.io");
        let content = object("x.io", "Car", Some("apps"), "beetle");
        let mut obsolete = Obsolete {
            objects: vec![(definition.clone(), Operation::Remove)],
            ..Obsolete::default()
        };
        match role {
            Role::OfAHook => obsolete.of_hooks.push(content),
            _ => obsolete.objects.push((content, Operation::Remove)),
        }
        let (owner, spared) = (Owner::new("web", "apps"), Spared::default());
        let retained = Retained::of_removal();
        let decided = retained.decide(&cluster, &owner, spared, obsolete, |_| true);
        let decided = decided.await.unwrap();
        let goes = decided.objects.iter().any(|(one, _)| *one == definition);
        assert_eq!(goes, expected == Fate::Goes);
        assert!(!is_unread(&decided, &definition));
    }

    /// Of what a record asks to keep only an answer says whether it is there.
    #[tokio::test(start_paused = true)]
    async fn a_container_waits_for_what_a_record_asks_to_keep_and_nobody_can_read() {
        let cluster = fixture::server(|_, _, _| Some((500, json!({"kind": "Status"}))));
        let obsolete = Obsolete {
            objects: vec![(object("", "Namespace", None, "data"), Operation::Remove)],
            kept: vec![object("", "PersistentVolumeClaim", Some("data"), "disk")],
            ..Obsolete::default()
        };
        let retained = Retained::of_removal();
        let owner = Owner::new("web", "apps");
        let decided = retained
            .decide(&cluster, &owner, Spared::default(), obsolete, |_| true)
            .await;
        assert_eq!(decided.unwrap_err().len(), 1);
    }

    /// An attempt of another bundle's left it in the namespace that the next owner's chart has no more.
    #[rstest]
    #[case::it_asks_to_be_kept(Reason::Live, true)]
    #[case::it_was_there_before(Reason::Adopted, true)]
    #[case::the_attempt_took_it_over(Reason::HandedOver, true)]
    #[case::it_is_not_the_releases(Reason::NotOwned, true)]
    #[case::it_goes(Reason::Nothing, false)]
    #[tokio::test]
    async fn a_container_of_what_stays_of_somebody_elses_attempt_is_left(
        #[case] reason: Reason,
        #[case] stays: bool,
    ) {
        let obsolete = Obsolete {
            of_others: vec![object("", "PersistentVolumeClaim", Some("data"), "disk")],
            ..Obsolete::default()
        };
        assert_namespace_stays(reason, obsolete, stays).await;
    }

    /// What a former revision left in the namespace that the next version drops, or the removal takes: what only an attempt had that failed is not the
    /// release's.
    #[rstest]
    #[case::it_asks_to_be_kept(Reason::Live, (true, true))]
    #[case::it_was_there_before(Reason::Adopted, (true, true))]
    #[case::the_revision_took_it_over(Reason::HandedOver, (true, false))]
    #[case::it_is_not_the_releases_any_more(Reason::NotOwned, (false, false))]
    #[case::it_goes(Reason::Nothing, (false, false))]
    #[tokio::test]
    async fn a_container_of_what_stays_of_a_former_revision_is_left(
        #[case] reason: Reason,
        #[case] (of_attempt, of_version): (bool, bool),
    ) {
        for (operation, stays) in [(Operation::Undo, of_attempt), (Operation::Drop, of_version)] {
            let disk = object("", "PersistentVolumeClaim", Some("data"), "disk");
            let obsolete = Obsolete {
                of_former: vec![(disk, operation)],
                ..Obsolete::default()
            };
            assert_namespace_stays(reason, obsolete, stays).await;
        }
    }

    /// By what is live of what is in the namespace, which a version drops.
    async fn assert_namespace_stays(reason: Reason, mut obsolete: Obsolete, stays: bool) {
        let owner = Owner::new("web", "apps");
        let mut live = json!({"metadata": {"uid": "u", "resourceVersion": "7"}});
        owner.mark(&mut live);
        let annotations = &mut live["metadata"]["annotations"];
        match reason {
            Reason::Live => annotations["helm.sh/resource-policy"] = json!("keep"),
            Reason::Adopted => annotations["fleetagent.cattle.io/adopted"] = json!("kept"),
            Reason::HandedOver => {
                annotations["fleetagent.cattle.io/adopted"] = json!("handed-over");
            }
            Reason::NotOwned => *annotations = json!({}),
            _ => {}
        }
        let cluster = fixture::server(move |_, _, _| Some((200, live.clone())));
        let namespace = object("", "Namespace", None, "data");
        obsolete.objects.push((namespace.clone(), Operation::Drop));
        let retained = Retained::new("apps", &[], None);
        let decided = retained.decide(&cluster, &owner, Spared::default(), obsolete, |_| true);
        let decided = decided.await.unwrap();
        assert_eq!(decided.kept.contains(&namespace), stays);
        assert_eq!(decided.objects.is_empty(), stays);
    }

    /// What a record that nobody can read has in a namespace may ask to be kept.
    #[tokio::test]
    async fn a_container_is_left_where_a_record_cannot_be_read() {
        let cluster = fixture::server(|_, _, _| Some(fixture::missing("data")));
        let namespace = object("", "Namespace", None, "data");
        let plain = object("", "ConfigMap", Some("apps"), "a");
        let objects = [namespace.clone(), plain.clone()];
        let obsolete = Obsolete {
            objects: objects.map(|one| (one, Operation::Drop)).into(),
            is_incomplete: true,
            ..Obsolete::default()
        };
        let (owner, spared) = (Owner::new("web", "apps"), Spared::default());
        let retained = Retained::new("apps", &[], None);
        let decided = retained.decide(&cluster, &owner, spared, obsolete, |_| true);
        let decided = decided.await.unwrap();
        assert_eq!(decided.objects, [(plain, Operation::Drop)]);
        assert_eq!(decided.kept, std::slice::from_ref(&namespace));
        assert!(is_unread(&decided, &namespace));
    }
}
