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

use super::install::crd_kinds;
use crate::kube::{Cluster, Contents, DeleteError, Owner, Spared, find_kept};
use crate::state::ownership::Operation;
use objects::{Object, ObjectKey, Resource};

/// What a release has no longer, without bodies.
#[derive(Debug, Default)]
pub(super) struct Obsolete {
    /// To be deleted, and as what.
    pub(super) objects: Vec<(Object, Operation)>,
    /// Left: a record asks for that, or something is in it.
    pub(super) kept: Vec<Object>,
    /// What was read in containers that are to be deleted, and goes.
    pub(super) read: HashSet<ObjectKey>,
}

impl Obsolete {
    /// Leaves out what is not due.
    fn retain(&mut self, is_due: impl Fn(&Object) -> bool) {
        self.objects.retain(|(object, _)| is_due(object));
        self.kept.retain(is_due);
    }
}

/// Whether deleting `container` also deletes `object`.
fn contains(container: &Object, object: &Object) -> bool {
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
    /// What was read before anything went, and goes.
    read: Option<&'a HashSet<ObjectKey>>,
}

impl<'a> Retained<'a> {
    pub(super) fn new(namespace: &'a str, desired: &'a [Object], chart: Option<&Chart>) -> Self {
        Self {
            namespace: Some(namespace),
            desired,
            defined: chart.map(crd_kinds).unwrap_or_default(),
            read: None,
        }
    }

    /// The same once these were read and are about to go: the webhook that converts them may have gone since.
    #[must_use]
    pub(super) fn having_read(self, read: &'a HashSet<ObjectKey>) -> Self {
        Self {
            read: Some(read),
            ..self
        }
    }

    /// For a removal: nothing is desired any more.
    pub(super) fn of_removal() -> Self {
        Self {
            namespace: None,
            desired: &[],
            defined: Vec::new(),
            read: None,
        }
    }

    /// Decides what of `obsolete` goes, as far as it is due, before any of it does: containers of desired objects stay, and those of objects that stay
    /// themselves. For that the objects in containers which are due are read, and no others.
    ///
    /// # Errors
    /// Objects in a container that is due which cannot be read: they may ask to be kept. Where the webhook that converts them is gone for good they go
    /// with their definition all the same.
    pub(super) async fn decide(
        &self,
        cluster: &Cluster,
        owner: &Owner,
        spared: Spared<'_>,
        obsolete: Obsolete,
        is_due: impl Fn(&Object) -> bool,
    ) -> Result<Obsolete, Vec<DeleteError>> {
        let (objects, held) = self.split(obsolete.objects);
        let is_container = |object: &&Object| object.is_namespace() || object.is_crd();
        let all = objects.iter().map(|(object, _)| object);
        let containers: Vec<&Object> = all.filter(is_container).filter(|one| is_due(one)).collect();
        let is_inside = |object: &Object| containers.iter().any(|one| contains(one, object));
        let going = objects
            .iter()
            .map(|(object, operation)| (object, Some(*operation)));
        let asked_for = obsolete.kept.iter().map(|object| (object, None));
        let inside = going
            .chain(asked_for)
            .filter(|(object, _)| is_inside(object));
        let inside: Vec<_> = inside.collect();
        let Contents {
            mut kept,
            going,
            mut unseen,
        } = find_kept(cluster, owner, spared, &inside).await;
        let was_read = |one: &Object| self.read.is_some_and(|read| read.contains(&one.key()));
        unseen.retain(|one| !(one.is_unconverted && was_read(one.object)));
        let (unconverted, unseen): (Vec<_>, Vec<_>) =
            unseen.into_iter().partition(|one| one.is_lasting);
        if !unseen.is_empty() {
            return Err(unseen.into_iter().map(|one| one.failure).collect());
        }
        let asked_for = unconverted.iter().filter(|one| one.is_asked_for);
        kept.extend(asked_for.map(|one| one.object));
        let is_kept = |container: &Object| kept.iter().any(|object| contains(container, object));
        // Whether their definitions go is not certain yet, as others may use them: nothing else takes these along.
        let holds = |container: &Object| {
            let mut unconverted = unconverted.iter();
            is_kept(container)
                || container.is_namespace()
                    && unconverted.any(|one| contains(container, one.object))
        };
        let (mut goes, mut stays) = (Vec::new(), Vec::new());
        for (object, operation) in &objects {
            match holds(object) {
                true => stays.push(object.clone()),
                false => goes.push((object.clone(), *operation)),
            }
        }
        let mut decided = Obsolete {
            read: going.iter().map(|object| object.key()).collect(),
            objects: goes,
            kept: obsolete.kept,
        };
        decided.kept.extend(held.into_iter().chain(stays));
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
            return self.namespace == Some(&object.name) || self.is_wanted_in(object);
        }
        let is_defined = |kind: &Resource| object.name == kind.definition_name();
        object.is_crd() && (self.is_wanted_in(object) || self.defined.iter().any(is_defined))
    }

    fn is_wanted_in(&self, container: &Object) -> bool {
        self.desired.iter().any(|one| contains(container, one))
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
        Stored,
        /// Somebody has deleted what a record asks to keep.
        StoredAndGone,
        Nothing,
    }

    /// By what is in a container that goes with it: it stays with what stays.
    #[rstest]
    #[case::asks_to_be_kept(Reason::Live, true)]
    #[case::was_there_before(Reason::Adopted, true)]
    #[case::a_record_asks_to_keep_it(Reason::Stored, true)]
    #[case::it_is_not_there(Reason::StoredAndGone, false)]
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
            Reason::Stored | Reason::StoredAndGone => obsolete.kept.push(content.clone()),
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
        let is_stored = matches!(reason, Reason::Stored | Reason::StoredAndGone);
        assert_eq!(kept.contains(&content), is_stored);
    }

    const UNCONVERTED: &str = "conversion webhook for x.io/v1, Kind=Car failed: service not found";

    /// When a definition and its object are decided about, and how often before.
    #[derive(Clone, Copy)]
    enum Tried {
        Once,
        ForMinutes,
        OnceReadBefore,
    }

    /// It may ask to be kept. Where the webhook that converts it is gone for good nothing but the definition's end takes it away.
    #[rstest]
    #[case::no_answer_says_so("", Tried::ForMinutes, Err(1))]
    #[case::the_webhook_may_come_back(UNCONVERTED, Tried::Once, Err(1))]
    #[case::the_webhook_is_gone(UNCONVERTED, Tried::ForMinutes, Ok(2))]
    #[case::it_was_read_before_the_webhook_went(UNCONVERTED, Tried::OnceReadBefore, Ok(2))]
    #[tokio::test(start_paused = true)]
    async fn a_definition_goes_with_what_cannot_be_read_only_where_nobody_converts_it(
        #[case] message: &'static str,
        #[case] tried: Tried,
        #[case] expected: Result<usize, usize>,
        #[values(false, true)] has_namespace: bool,
        #[values(false, true)] is_removal: bool,
    ) {
        let refusal = json!({"kind": "Status", "code": 500, "message": message});
        let cluster = fixture::server(move |_, _, _| Some((500, refusal.clone())));
        let namespace = object("", "Namespace", None, "data");
        let content = object("x.io", "Car", Some("data"), "beetle");
        let read = HashSet::from([content.key()]);
        let obsolete = || {
            let definition = object(CRD.0, CRD.1, None, "cars.x.io");
            let mut objects = vec![definition, content.clone()];
            objects.extend(has_namespace.then(|| namespace.clone()));
            let going = objects.into_iter().map(|one| (one, Operation::Remove));
            Obsolete {
                objects: going.collect(),
                ..Obsolete::default()
            }
        };
        let mut retained = match is_removal {
            true => Retained::of_removal(),
            false => Retained::new("apps", &[], None),
        };
        if let Tried::OnceReadBefore = tried {
            retained = retained.having_read(&read);
        }
        let owner = Owner::new("web", "apps");
        let decide = || {
            let spared = Spared::default();
            retained.decide(&cluster, &owner, spared, obsolete(), |_| true)
        };
        let mut decided = decide().await;
        if let Tried::ForMinutes = tried {
            for _ in 0..3 {
                tokio::time::advance(Duration::from_secs(120)).await;
                decided = decide().await;
            }
        }
        let found = decided.map_err(|failures| failures.len());
        let is_left = matches!(&found, Ok(decided) if decided.kept.contains(&namespace));
        let extra = usize::from(has_namespace && !is_left && found.is_ok());
        assert_eq!(found.map(|decided| decided.objects.len() - extra), expected);
        // Where it was read, it is known that nothing in it stays.
        let is_unread = matches!(tried, Tried::ForMinutes);
        assert_eq!(is_left, has_namespace && expected.is_ok() && is_unread);
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
}
