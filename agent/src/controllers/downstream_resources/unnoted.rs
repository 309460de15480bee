//! Copies without a note of their source's version ([`SourceVersion`]), as admission refuses the note or takes it off again: they are rolled out for
//! that version once in a session, and not at each reconcile.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::api::ObjectMeta;
use parking_lot::Mutex;

use super::kinds::Kind;
use super::source_version::SourceVersion;
use crate::api::DownstreamResource;
use crate::controllers::store::Store;

/// One copy, of one version of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopiedVersion {
    /// Of the copy.
    uid: String,
    source: SourceVersion,
}

impl CopiedVersion {
    /// `None` where the copy has no uid, or its source no known version.
    pub(super) fn of(copy: &ObjectMeta, source: Option<&SourceVersion>) -> Option<Self> {
        let (uid, source) = (copy.uid.clone()?, source.cloned()?);
        Some(Self { uid, source })
    }
}

/// The copies of a bundle that keep no note, by what the bundle calls them.
type OfBundle = BTreeMap<(Kind, String), CopiedVersion>;

/// The copies that keep no note, by the bundles that need them, for as long as a session lasts: those that a bundle lists, of the bundles that are there,
/// whatever the labels of a copy say. Cheap to clone, all clones share.
#[derive(Clone, Debug, Default)]
pub struct UnnotedCopies {
    known: Arc<Mutex<HashMap<String, OfBundle>>>,
    store: Arc<Store>,
}

/// Whether a bundle lists a copy.
fn lists(listed: &[DownstreamResource], kind: Kind, name: &str) -> bool {
    let mut listed = listed.iter();
    listed.any(|one| one.name == name && Kind::parse(&one.kind) == Some(kind))
}

impl UnnotedCopies {
    /// An empty set, for the bundles that `store` has.
    pub fn of(store: &Arc<Store>) -> Self {
        Self {
            known: Arc::default(),
            store: Arc::clone(store),
        }
    }

    /// Drops what no bundle lists any more. What one lists that cannot be read is not known.
    fn sweep(&self, known: &mut HashMap<String, OfBundle>) {
        known.retain(|bundle, of_bundle| {
            let Some(bundle) = self.store.get(bundle) else {
                return self.store.is_listed(bundle);
            };
            let listed = &bundle.spec.options.downstream_resources;
            of_bundle.retain(|(kind, name), _| lists(listed, *kind, name));
            !of_bundle.is_empty()
        });
    }

    /// Whether a copy is known to keep no note of this version, whichever bundle copied it.
    pub(super) fn has(&self, copy: &CopiedVersion) -> bool {
        let known = self.known.lock();
        known
            .values()
            .flat_map(BTreeMap::values)
            .any(|one| one == copy)
    }

    /// Takes note of what a bundle copied, and whether it keeps no note.
    pub(super) fn set(&self, bundle: &str, kind: Kind, name: &str, copy: Option<CopiedVersion>) {
        let mut known = self.known.lock();
        let of_bundle = known.entry(bundle.to_owned()).or_default();
        let key = (kind, name.to_owned());
        match copy {
            Some(copy) => of_bundle.insert(key, copy),
            None => of_bundle.remove(&key),
        };
        self.sweep(&mut known);
    }

    /// Takes note of a copy that had a note and keeps none, for those of these bundles that need it: whoever may label a copy may name any number.
    /// What one of them has elsewhere by that name is another copy.
    pub(super) fn lost(
        &self,
        bundles: BTreeSet<String>,
        kind: Kind,
        name: &str,
        copy: &CopiedVersion,
    ) {
        let mut known = self.known.lock();
        for bundle in bundles {
            let found = self.store.get(&bundle);
            let listed = found.as_ref().map(|one| &one.spec.options);
            if !listed.is_some_and(|options| lists(&options.downstream_resources, kind, name)) {
                continue;
            }
            let of_bundle = known.entry(bundle).or_default();
            let key = (kind, name.to_owned());
            let one = of_bundle.entry(key).or_insert_with(|| copy.clone());
            if one.uid == copy.uid {
                one.clone_from(copy);
            }
        }
        self.sweep(&mut known);
    }

    /// Keeps those of a bundle that it still lists.
    pub(super) fn retain(&self, bundle: &str, listed: &[DownstreamResource]) {
        let mut known = self.known.lock();
        let Some(of_bundle) = known.get_mut(bundle) else {
            return;
        };
        of_bundle.retain(|(kind, name), _| lists(listed, *kind, name));
        if of_bundle.is_empty() {
            known.remove(bundle);
        }
    }

    /// The bundle is gone for good.
    pub fn forget(&self, bundle: &str) {
        self.known.lock().remove(bundle);
    }

    /// How many bundles have such copies.
    pub fn count(&self) -> usize {
        self.known.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Request};
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::{ChangedCopies, Copies, RolledOutCopies, copy_all, remove_all};
    use super::*;
    use crate::api::BundleDeployment;
    use crate::client::identity::Identities;
    use crate::client::requests::Clients;
    use crate::client::scripted;

    const NOTE: &str = "/metadata/annotations/fleetagent.cattle.io~1copied-version";

    /// Admission's treatment of a note.
    #[derive(Clone, Copy, Debug)]
    enum Admission {
        Keeps,
        Strips,
        Refuses,
    }

    /// A Secret of upstream, and its copy, of which admission makes something else.
    struct Secrets {
        source_version: u64,
        copy: Option<Value>,
        version: u64,
        admission: Admission,
    }

    impl Secrets {
        fn serve(&mut self, method: &Method, path: &str, sent: Option<Value>) -> (u16, Value) {
            let failure = |code: u16, reason: &str| {
                (
                    code,
                    json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason}),
                )
            };
            if !path.contains("/secrets") {
                return (200, json!({"metadata": {"name": "shop"}, "items": []}));
            }
            if *method == Method::GET && path.ends_with("/secrets") {
                let found = Vec::from_iter(self.copy.clone());
                return (200, json!({"metadata": {}, "items": found}));
            }
            if path.contains("/namespaces/up/") {
                let metadata = json!({
                    "namespace": "up", "name": "pull", "uid": "source", "resourceVersion": self.source_version.to_string(),
                });
                return (200, json!({"metadata": metadata, "data": {"key": "b25l"}}));
            }
            let Some(mut sent) = sent.filter(|_| *method != Method::GET) else {
                let found = self.copy.clone().map(|copy| (200, copy));
                return found.unwrap_or_else(|| failure(404, "NotFound"));
            };
            match self.admission {
                Admission::Refuses if sent.pointer(NOTE).is_some() => {
                    return failure(403, "Forbidden");
                }
                Admission::Strips => {
                    if let Some(annotations) = sent.pointer_mut("/metadata/annotations") {
                        *annotations = json!({});
                    }
                }
                _ => {}
            }
            self.version += 1;
            sent["metadata"]["uid"] = json!("copy");
            sent["metadata"]["resourceVersion"] = json!(self.version.to_string());
            sent["data"]["key"] = json!("dHdv");
            self.copy = Some(sent.clone());
            (200, sent)
        }
    }

    fn api_server(secrets: &Arc<Mutex<Secrets>>) -> Clients {
        let secrets = Arc::clone(secrets);
        scripted::clients(move |request: Request<Body>| {
            let secrets = Arc::clone(&secrets);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let sent = serde_json::from_slice(&body).ok();
                secrets.lock().serve(&parts.method, parts.uri.path(), sent)
            }
        })
    }

    fn bundle(name: &str) -> BundleDeployment {
        let options = json!({
            "defaultNamespace": "shop", "downstreamResources": [{"kind": "Secret", "name": "pull"}],
        });
        let bundle =
            json!({"metadata": {"namespace": "up", "name": name}, "spec": {"options": options}});
        serde_json::from_value(bundle).unwrap()
    }

    /// Of bundles that need the copy.
    fn unnoted_of(names: &[&str]) -> UnnotedCopies {
        let store = Arc::<Store>::default();
        for name in names {
            store.applied(bundle(name));
        }
        UnnotedCopies::of(&store)
    }

    impl Secrets {
        fn new(admission: Admission) -> Arc<Mutex<Self>> {
            Arc::new(Mutex::new(Self {
                source_version: 1,
                copy: None,
                version: 0,
                admission,
            }))
        }

        fn is_noted(&self) -> bool {
            let copy = self.copy.as_ref();
            copy.is_some_and(|copy| copy.pointer(NOTE).is_some())
        }
    }

    async fn copied(identities: &Identities, name: &str, unnoted: &UnnotedCopies) -> ChangedCopies {
        let upstream = identities.agent().client();
        let downstream = identities.account("").unwrap();
        let (bundle, rolled_out) = (bundle(name), RolledOutCopies::default());
        let copied = copy_all(&upstream, &downstream, &bundle, unnoted, &rolled_out);
        copied.await.unwrap()
    }

    async fn roll_out(
        identities: &Identities,
        name: &str,
        changed: ChangedCopies,
        unnoted: &UnnotedCopies,
    ) -> bool {
        let (downstream, bundle) = (identities.account("").unwrap(), bundle(name));
        let rolled_out = RolledOutCopies::default();
        let rolled_out = changed.rolled_out(&downstream, &bundle, unnoted, &rolled_out);
        rolled_out.await
    }

    /// Whether a bundle is deployed for its copy, and whether others are woken.
    async fn check(identities: &Identities, name: &str, unnoted: &UnnotedCopies) -> (bool, bool) {
        let changed = copied(identities, name, unnoted).await;
        let checked = (changed.state() != Copies::Same, !changed.others.is_empty());
        assert!(roll_out(identities, name, changed, unnoted).await);
        checked
    }

    /// Otherwise the bundles that share the copy deployed each other, with their hooks, without end.
    #[rstest]
    #[tokio::test]
    async fn a_changed_copy_is_rolled_out_once_whatever_admission_does_to_its_annotation(
        #[values(Admission::Keeps, Admission::Strips, Admission::Refuses)] admission: Admission,
    ) {
        let secrets = Secrets::new(admission);
        let identities = scripted::identities(&api_server(&secrets));
        let mut unnoted = unnoted_of(&["left", "right"]);
        let check =
            async |name: &str, unnoted: &UnnotedCopies| check(&identities, name, unnoted).await;
        for name in ["left", "right", "left", "right"] {
            assert_eq!(check(name, &unnoted).await, (false, false), "{name}");
        }
        secrets.lock().source_version = 2;
        let expected = [("left", (true, true)), ("right", (true, false))];
        for (name, expected) in expected {
            assert_eq!(check(name, &unnoted).await, expected, "{name}");
        }
        for name in ["left", "right", "left"] {
            assert_eq!(check(name, &unnoted).await, (false, false), "{name}");
        }
        let keeps = matches!(admission, Admission::Keeps);
        assert_eq!(unnoted.count(), if keeps { 0 } else { 2 });
        // Another session does not know.
        unnoted = unnoted_of(&["left", "right"]);
        let expected = [("left", (!keeps, !keeps)), ("right", (!keeps, false))];
        for (name, expected) in expected {
            assert_eq!(check(name, &unnoted).await, expected, "{name}");
        }
        for name in ["left", "right"] {
            assert_eq!(check(name, &unnoted).await, (false, false), "{name}");
        }
        // What a bundle needs no more is not remembered.
        unnoted.retain("left", &[]);
        unnoted.forget("right");
        assert_eq!(unnoted.count(), 0);
    }

    /// A policy may come long after the note.
    #[rstest]
    #[case::with_a_changed_source(true)]
    #[case::with_the_same_source(false)]
    #[tokio::test]
    async fn a_copy_is_written_though_admission_refuses_its_annotation_by_now(
        #[case] is_changed: bool,
    ) {
        let secrets = Secrets::new(Admission::Keeps);
        let identities = scripted::identities(&api_server(&secrets));
        let unnoted = unnoted_of(&["left", "right"]);
        for name in ["left", "right"] {
            check(&identities, name, &unnoted).await;
        }
        assert!(secrets.lock().is_noted());
        secrets.lock().admission = Admission::Refuses;
        secrets.lock().source_version += u64::from(is_changed);
        let expected = [
            ("left", (is_changed, is_changed)),
            ("right", (is_changed, false)),
        ];
        for (name, expected) in expected {
            assert_eq!(check(&identities, name, &unnoted).await, expected, "{name}");
            assert!(!secrets.lock().is_noted());
        }
        for name in ["left", "right"] {
            assert_eq!(
                check(&identities, name, &unnoted).await,
                (false, false),
                "{name}"
            );
        }
    }

    /// Otherwise the change stood on the copy, and was deployed again and again.
    #[tokio::test]
    async fn a_rolled_out_change_is_cleared_from_a_copy_though_its_annotation_is_refused() {
        let secrets = Secrets::new(Admission::Keeps);
        let identities = scripted::identities(&api_server(&secrets));
        let unnoted = unnoted_of(&["left", "right"]);
        for name in ["left", "right"] {
            check(&identities, name, &unnoted).await;
        }
        secrets.lock().source_version = 2;
        let changed = copied(&identities, "left", &unnoted).await;
        assert!(changed.state() == Copies::Changed && secrets.lock().is_noted());
        secrets.lock().admission = Admission::Refuses;
        assert!(roll_out(&identities, "left", changed, &unnoted).await);
        assert!(!secrets.lock().is_noted());
        // Nor does it count as changed for that it has no note any more.
        for (name, is_changed) in [("left", false), ("right", true), ("right", false)] {
            let checked = check(&identities, name, &unnoted).await;
            assert_eq!(checked, (is_changed, false), "{name}");
        }
    }

    #[tokio::test]
    async fn a_copy_that_loses_its_annotation_with_one_bundle_is_rolled_out_by_no_other() {
        let secrets = Secrets::new(Admission::Keeps);
        let identities = scripted::identities(&api_server(&secrets));
        let unnoted = unnoted_of(&["left", "right"]);
        for name in ["left", "right"] {
            check(&identities, name, &unnoted).await;
        }
        secrets.lock().admission = Admission::Refuses;
        let downstream = identities.account("").unwrap();
        let removed = remove_all(&downstream, "shop", "left", &[], &unnoted).await;
        removed.unwrap();
        unnoted.forget("left");
        assert!(!secrets.lock().is_noted());
        assert_eq!(check(&identities, "right", &unnoted).await, (false, false));
    }

    /// A writer of a copy's labels may name any number of bundles.
    #[tokio::test]
    async fn only_bundles_that_need_a_copy_are_remembered_with_it() {
        let secrets = Secrets::new(Admission::Keeps);
        let identities = scripted::identities(&api_server(&secrets));
        let unnoted = unnoted_of(&["left", "right"]);
        let mut other = bundle("other");
        other.spec.options.downstream_resources[0].name = "another".to_owned();
        unnoted.store.applied(other);
        for name in ["left", "right"] {
            check(&identities, name, &unnoted).await;
        }
        let strangers: Vec<_> = (0..1_000).map(|n| format!("stranger-{n}")).collect();
        {
            let mut secrets = secrets.lock();
            let copy = secrets.copy.as_mut().unwrap();
            for name in strangers.iter().map(String::as_str).chain(["other"]) {
                copy["metadata"]["labels"][format!("bundledeployment.fleet.cattle.io/{name}")] =
                    json!("");
            }
            secrets.source_version = 2;
        }
        let changed = copied(&identities, "left", &unnoted).await;
        secrets.lock().admission = Admission::Refuses;
        assert!(roll_out(&identities, "left", changed, &unnoted).await);
        assert_eq!(unnoted.count(), 2);
        // Entries of copies that are gone, or needed no more, go as others are noted.
        unnoted.store.deleted("left");
        check(&identities, "right", &unnoted).await;
        assert_eq!(unnoted.count(), 1);
        let mut right = bundle("right");
        right.spec.options.downstream_resources.clear();
        unnoted.store.applied(right);
        unnoted.set("other", Kind::Secret, "another", None);
        assert_eq!(unnoted.count(), 0);
    }

    /// A bundle that moved may have a copy in either namespace.
    #[test]
    fn copies_of_a_moved_bundle_stay_known_in_both_namespaces() {
        let source = ObjectMeta {
            uid: Some("source".to_owned()),
            resource_version: Some("1".to_owned()),
            ..ObjectMeta::default()
        };
        let source = SourceVersion::of(&source).unwrap();
        let copy = |uid: &str| CopiedVersion {
            uid: uid.to_owned(),
            source: source.clone(),
        };
        let unnoted = unnoted_of(&["moved", "stayed"]);
        unnoted.set("moved", Kind::Secret, "pull", Some(copy("new")));
        let needed_by = ["moved", "stayed"].map(str::to_owned);
        unnoted.lost(needed_by.into(), Kind::Secret, "pull", &copy("old"));
        assert!(unnoted.has(&copy("new")) && unnoted.has(&copy("old")));
    }
}
