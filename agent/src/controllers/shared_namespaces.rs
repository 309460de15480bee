//! The bundles and releases in a namespace, or with objects of a definition's kind, besides a given release, by the ledger and by the bundles' specs. No I/O.
//!
//! A namespace that a chart has goes with all that is in it: with objects of other bundles, and with the records of what those have elsewhere. So does a
//! definition with all objects of its kind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use release::{Container, ContainerUsage, OtherReleases, WhyLeft};
use tokio::time::Instant;

use super::claims::{self, Claimant, NextOwner};
use super::store::Store;
use crate::api::AGENT_BUNDLE_PREFIX;
use crate::ledger::{Hold, Ledger, LedgerEntry, ReleaseKey};
use crate::public;
use crate::public::Name;
use crate::report::events::{Events, Reason};

/// How long a removal waits for objects of others in a namespace or definition that it is to delete, whose removals have begun: what they wait for may be
/// in the release that waits, such as a webhook that refuses their deletion.
const WAITS_FOR_OBJECTS: Duration = Duration::from_secs(60);

/// Namespaces and definitions that removals have come to and wait to delete, by release: it has nothing else left. None while another bundle deploys it.
type Waiting = BTreeMap<ReleaseKey, BTreeSet<String>>;

/// The bundles and releases of this cluster, as those who share namespaces and definitions.
#[derive(Clone)]
pub struct SharedNamespaces {
    store: Arc<Store>,
    ledger: Arc<Ledger>,
    events: Arc<Events>,
    waiting: Arc<Mutex<Waiting>>,
    /// Since when it is known that the removal of a release has begun whose objects another one is to wait for.
    begun: Arc<Mutex<BTreeMap<ReleaseKey, Instant>>>,
}

impl SharedNamespaces {
    /// What these know; what is left to others is told by `events`.
    pub fn new(store: &Arc<Store>, ledger: &Arc<Ledger>, events: &Arc<Events>) -> Self {
        Self {
            store: Arc::clone(store),
            ledger: Arc::clone(ledger),
            events: Arc::clone(events),
            waiting: Arc::default(),
            begun: Arc::default(),
        }
    }

    /// The other releases beside a bundle's release while it is deployed: whoever has or wants something in a namespace or definition that it drops
    /// keeps it.
    pub fn of_deploy(&self, key: &ReleaseKey, bundle: &str) -> OtherReleases {
        let (all, own, name) = (self.clone(), key.clone(), bundle.to_owned());
        self.reporting(bundle, move |container| {
            all.beside_deploy(&own, &name, container)
        })
    }

    /// The other releases beside a bundle's release while it is removed; `with_bundle`: all releases of its bundle are.
    pub fn of_removal(&self, key: &ReleaseKey, bundle: &str, with_bundle: bool) -> OtherReleases {
        let (all, own, name) = (self.clone(), key.clone(), bundle.to_owned());
        self.reporting(bundle, move |container| {
            all.beside(&own, &name, with_bundle, container.name())
        })
    }

    /// Others, with an Event for each namespace or definition of the bundle's that is left.
    fn reporting(
        &self,
        bundle: &str,
        usage_of: impl Fn(Container<'_>) -> ContainerUsage + Send + Sync + 'static,
    ) -> OtherReleases {
        let (events, bundle) = (Arc::clone(&self.events), bundle.to_owned());
        OtherReleases::new(usage_of).reporting(move |left, why| {
            let container = Name(left.name());
            let (reason, text) = match (why, left) {
                (WhyLeft::Others, Container::Namespace(_)) => (
                    Reason::LeftToOthers,
                    public!(
                        "namespace {} is not deleted: other bundles have something in it, or come there",
                        container
                    ),
                ),
                (WhyLeft::Others, Container::Definition(_)) => (
                    Reason::LeftToOthers,
                    public!(
                        "definition {} is not deleted: other bundles have objects of its kind",
                        container
                    ),
                ),
                (WhyLeft::Unread, Container::Namespace(_)) => (
                    Reason::LeftUnread,
                    public!(
                        "namespace {} is not deleted: an object in it cannot be read, and may ask to be kept. The webhook that converts it is gone, the account may not read it, or a record of the release that may name it is damaged",
                        container
                    ),
                ),
                (WhyLeft::Unread, Container::Definition(_)) => (
                    Reason::LeftUnread,
                    public!(
                        "definition {} is not deleted: objects of it cannot be read, and may ask to be kept. The webhook that converts them is gone, the account may not read them, or a record of the release that may name them is damaged",
                        container
                    ),
                ),
            };
            logging::info!(bundle, "{}", text);
            events.emit(reason, &bundle, text);
        })
    }

    fn beside_deploy(
        &self,
        key: &ReleaseKey,
        bundle: &str,
        container: Container<'_>,
    ) -> ContainerUsage {
        let name = container.name();
        let mut others = self.ledger.releases_in(name).into_iter();
        let is_in_use = others.any(|(other, _)| other != *key)
            || is_wanted(name, bundle, &self.store.claimants());
        match is_in_use {
            true => ContainerUsage::InUse,
            false => ContainerUsage::Unused,
        }
    }

    /// The usage of a namespace or definition, by its name.
    fn beside(
        &self,
        key: &ReleaseKey,
        bundle: &str,
        with_bundle: bool,
        container: &str,
    ) -> ContainerUsage {
        let claimants = self.store.claimants();
        let releases = self.ledger.releases_in(container);
        let (mut leaving, mut has_objects) = (Vec::new(), false);
        for (other, known) in releases.iter().filter(|(other, _)| other != key) {
            let goes_along = with_bundle && known.bundle == bundle;
            let is_kept = || {
                self.store.is_listed(&known.bundle)
                    || self.keeps(known)
                    || known.hold == Some(Hold::Held)
                    || known.lost.is_some()
            };
            let missing = || self.store.missing_owner(&self.ledger, &known.bundle, other);
            let next_owner = claims::next_known_owner(&known.bundle, other, &claimants, missing);
            let is_wanted = match &next_owner {
                NextOwner::Nobody => false,
                // Its removal may only have to be proven.
                NextOwner::Missing(missing) => {
                    self.ledger.is_held_back(missing) || self.store.is_listed(missing)
                }
                NextOwner::Bundle(_) | NextOwner::Unknown(_) => true,
            };
            if !goes_along && is_kept() || is_wanted {
                return ContainerUsage::InUse;
            }
            // Otherwise it may yet be held back, or wanted again.
            let goes = known.is_removing && next_owner == NextOwner::Nobody;
            match other.namespace == container {
                true => leaving.push(other),
                false => has_objects |= !goes || !self.has_had_time(other),
            }
        }
        if is_wanted(container, bundle, &claimants) {
            return ContainerUsage::InUse;
        }
        match usage(key, &leaving, &self.waiting.lock()) {
            ContainerUsage::Unused if has_objects => ContainerUsage::Draining,
            found => found,
        }
    }

    /// The removal of these releases begins: others have their time anew, whenever it began before their bundle was back.
    pub fn removal_begins(&self, releases: &[(ReleaseKey, LedgerEntry)]) {
        let mut begun = self.begun.lock();
        for (key, _) in releases {
            begun.remove(key);
        }
    }

    /// Whether others have waited long enough for the objects of a release whose removal has begun.
    fn has_had_time(&self, release: &ReleaseKey) -> bool {
        let mut begun = self.begun.lock();
        let is_removing =
            |key: &ReleaseKey| self.ledger.get(key).is_some_and(|one| one.is_removing);
        begun.retain(|key, _| is_removing(key));
        let since = begun.entry(release.clone()).or_insert_with(Instant::now);
        since.elapsed() >= WAITS_FOR_OBJECTS
    }

    /// Whether a bundle's objects are to stay when it goes.
    pub fn keeps(&self, entry: &LedgerEntry) -> bool {
        entry.keep_resources
            || self.store.kept_resources(&entry.bundle)
            || entry.bundle.starts_with(AGENT_BUNDLE_PREFIX)
    }

    /// The removal of a release has come to containers that others are about to leave, or to none while another bundle is at it. Whether it waited for
    /// the same before.
    pub fn waits(&self, key: &ReleaseKey, containers: Vec<String>) -> bool {
        let containers: BTreeSet<String> = containers.into_iter().collect();
        let before = self.waiting.lock().insert(key.clone(), containers.clone());
        before == Some(containers)
    }

    /// The containers that the removal of a release, while its bundle has another one, has come to and that others are about to leave still.
    pub fn pending_namespaces(&self, key: &ReleaseKey, bundle: &str) -> Vec<String> {
        let known = self.waiting.lock().get(key).cloned();
        let mut known: Vec<_> = known.into_iter().flatten().collect();
        known.retain(|container| {
            self.beside(key, bundle, false, container) == ContainerUsage::Draining
        });
        known
    }

    /// A bundle is there: no removal of it waits, but that of a release which it has no use for, as far as it is known which one it wants.
    pub fn is_back(&self, bundle: &str) {
        let known = self.store.get(bundle);
        let desired = known.and_then(|known| self.store.desired(&known));
        let mut waiting = self.waiting.lock();
        waiting.retain(|key, _| match self.ledger.get(key) {
            None => false,
            Some(entry) => {
                entry.bundle != bundle || desired.as_ref().is_some_and(|desired| desired != key)
            }
        });
    }

    /// A release was removed, or given to somebody, of which `entry` was known. The bundles whose removals may have waited for that.
    pub fn is_over(&self, key: &ReleaseKey, entry: &LedgerEntry) -> BTreeSet<String> {
        let mut waiting = self.waiting.lock();
        waiting.remove(key);
        let is_there = |one: &String| *one == key.namespace || entry.containers.has(one);
        let keys = waiting
            .iter()
            .filter(|(_, containers)| containers.iter().any(is_there));
        let bundles = keys.filter_map(|(key, _)| self.ledger.get(key));
        bundles.map(|entry| entry.bundle).collect()
    }

    /// How many removals wait for others.
    pub fn count(&self) -> usize {
        self.waiting.lock().len()
    }
}

/// Whether a bundle that is there, another one than `bundle`, wants its release in a namespace. What else its objects will be in only its chart says.
fn is_wanted(namespace: &str, bundle: &str, claimants: &[Claimant]) -> bool {
    let mut others = claimants.iter().filter(|one| {
        one.bundle.name() != bundle && one.bundle.metadata.deletion_timestamp.is_none()
    });
    others.any(|one| {
        let desired = one.desired.as_ref();
        desired.is_some_and(|desired| desired.namespace == namespace)
    })
}

/// What a release is to do with a namespace that others are `leaving`, whose records are in it. It waits for them, also as they may need what it has. Of
/// removals that wait for each other's records in a circle the first by key leaves the namespace, which is all that is lost so; for objects nobody waits
/// without end.
fn usage(key: &ReleaseKey, leaving: &[&ReleaseKey], waiting: &Waiting) -> ContainerUsage {
    if leaving.is_empty() {
        return ContainerUsage::Unused;
    }
    let mut seen = BTreeSet::new();
    let mut ahead: Vec<&ReleaseKey> = leaving.to_vec();
    while let Some(other) = ahead.pop() {
        // A smaller one in the circle leaves its own.
        if other <= key || !seen.insert(other) {
            continue;
        }
        let Some(containers) = waiting.get(other) else {
            continue;
        };
        let waits_for = |one: &ReleaseKey| !one.is_claims() && containers.contains(&one.namespace);
        if waits_for(key) {
            return ContainerUsage::InUse;
        }
        ahead.extend(waiting.keys().filter(|one| waits_for(one)));
    }
    ContainerUsage::Draining
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::client::scripted;
    use crate::ledger::Containers;
    use crate::report::metrics::Metrics;

    /// A release of that name, in the namespace of that name.
    fn key(name: &str) -> ReleaseKey {
        ReleaseKey {
            namespace: name.to_owned(),
            name: name.to_owned(),
        }
    }

    #[rstest]
    #[case::nobody_is_in_it("a", &[], &[], ContainerUsage::Unused)]
    #[case::it_has_more_to_remove("a", &["b"], &[], ContainerUsage::Draining)]
    #[case::it_waits_for_a_third("a", &["b"], &[("b", "c")], ContainerUsage::Draining)]
    #[case::both_wait_for_each_other("a", &["b"], &[("b", "a")], ContainerUsage::InUse)]
    #[case::and_the_other_is_first("b", &["a"], &[("a", "b")], ContainerUsage::Draining)]
    #[case::three_in_a_circle("a", &["c"], &[("b", "a"), ("c", "b")], ContainerUsage::InUse)]
    #[case::and_another_is_first("b", &["c"], &[("a", "b"), ("c", "a")], ContainerUsage::Draining)]
    #[case::a_circle_without_it("a", &["b"], &[("b", "c"), ("c", "b")], ContainerUsage::Draining)]
    fn a_namespace_is_deleted_after_the_releases_that_are_about_to_leave_it(
        #[case] name: &str,
        #[case] leaving: &[&str],
        #[case] waiting: &[(&str, &str)],
        #[case] expected: ContainerUsage,
    ) {
        let leaving: Vec<_> = leaving.iter().copied().map(key).collect();
        let waiting = waiting.iter();
        let waiting = waiting.map(|(name, on)| (key(name), BTreeSet::from([(*on).to_owned()])));
        let found = usage(
            &key(name),
            &leaving.iter().collect::<Vec<_>>(),
            &waiting.collect(),
        );
        assert_eq!(found, expected);
    }

    /// Bundles "namespaces" and "crds" have what "app" has its objects in, whose release is elsewhere.
    struct Shared {
        shared: SharedNamespaces,
        store: Arc<Store>,
    }

    impl Shared {
        async fn new() -> Self {
            let clients = scripted::clients(|_| async { (200, json!({"metadata": {}})) });
            let agent = scripted::identities(&clients).agent();
            let ledger = Arc::new(Ledger::load(&agent, "system").await.unwrap());
            let store = Arc::<Store>::default();
            let events = Arc::new(Events::new(&agent, "system", "host", Metrics::default()));
            let shared = SharedNamespaces::new(&store, &ledger, &events);
            for (bundle, containers) in [
                ("namespaces", json!([])),
                ("crds", json!([])),
                ("app", json!(["cars.x.io", "shop"])),
            ] {
                let entry = LedgerEntry {
                    bundle: bundle.to_owned(),
                    containers: serde_json::from_value::<Containers>(containers).unwrap(),
                    ..LedgerEntry::default()
                };
                ledger.attempt(key(bundle), entry).await.unwrap();
                store.applied(bundle_of(bundle, bundle));
            }
            Self { shared, store }
        }

        fn deploy(&self, name: &str, container: Container<'_>) -> ContainerUsage {
            self.shared.beside_deploy(&key(name), name, container)
        }

        fn removal(&self, name: &str, container: &str) -> ContainerUsage {
            self.shared.beside(&key(name), name, true, container)
        }
    }

    fn bundle_of(name: &str, namespace: &str) -> crate::api::BundleDeployment {
        let bundle: Value = json!({
            "metadata": {"name": name},
            "spec": {"options": {"defaultNamespace": namespace, "helm": {"releaseName": name}}},
        });
        serde_json::from_value(bundle).unwrap()
    }

    const SHOP: Container<'_> = Container::Namespace("shop");
    const CARS: Container<'_> = Container::Definition("cars.x.io");

    #[tokio::test]
    async fn a_namespace_or_definition_is_in_use_by_objects_whose_release_is_elsewhere() {
        let all = Shared::new().await;
        let others = [
            Container::Namespace("other"),
            Container::Definition("boats.x.io"),
        ];
        for (owner, container) in [("namespaces", SHOP), ("crds", CARS)] {
            assert_eq!(all.deploy(owner, container), ContainerUsage::InUse);
            assert_eq!(all.removal(owner, container.name()), ContainerUsage::InUse);
            // It may drop what only it has something in.
            assert_eq!(all.deploy("app", container), ContainerUsage::Unused);
            for other in others {
                assert_eq!(all.deploy(owner, other), ContainerUsage::Unused);
                assert_eq!(all.removal(owner, other.name()), ContainerUsage::Unused);
            }
        }
        // The record of a release is in its namespace, and a bundle that is not deployed yet wants to come there.
        let app = Container::Namespace("app");
        assert_eq!(all.deploy("namespaces", app), ContainerUsage::InUse);
        all.store.applied(bundle_of("new", "coming"));
        let coming = Container::Namespace("coming");
        assert_eq!(all.deploy("namespaces", coming), ContainerUsage::InUse);
    }

    /// All are deleted at once. The one may need what the other one has to be removed, or a webhook of it may refuse that.
    #[tokio::test(start_paused = true)]
    async fn a_removal_waits_a_while_for_objects_that_are_about_to_go() {
        let all = Shared::new().await;
        for bundle in ["namespaces", "crds", "app"] {
            all.store.deleted(bundle);
            all.shared.ledger.begin_removal(bundle).await.unwrap();
        }
        let both = [("namespaces", "shop"), ("crds", "cars.x.io")];
        for (owner, container) in both {
            assert_eq!(all.removal(owner, container), ContainerUsage::Draining);
            let waits = |container: &str| all.shared.waits(&key(owner), vec![container.to_owned()]);
            assert_eq!((waits(container), waits(container)), (false, true));
        }
        let app = all.shared.ledger.get(&key("app")).unwrap();
        let woken = all.shared.is_over(&key("app"), &app);
        let woken: Vec<_> = woken.into_iter().collect();
        assert_eq!(woken, ["crds", "namespaces"]);
        tokio::time::advance(WAITS_FOR_OBJECTS).await;
        for (owner, container) in both {
            assert_eq!(all.removal(owner, container), ContainerUsage::Unused);
        }
    }

    /// It is missing from the watch, and nobody has asked upstream yet whether it was deleted.
    #[tokio::test(start_paused = true)]
    async fn a_removal_waits_for_objects_of_a_bundle_that_may_be_held_back() {
        let all = Shared::new().await;
        for bundle in ["namespaces", "app"] {
            all.store.deleted(bundle);
        }
        all.shared.ledger.begin_removal("namespaces").await.unwrap();
        all.shared
            .waits(&key("namespaces"), vec!["shop".to_owned()]);
        tokio::time::advance(WAITS_FOR_OBJECTS * 10).await;
        assert_eq!(all.removal("namespaces", "shop"), ContainerUsage::Draining);
        let app = BTreeSet::from(["app".to_owned()]);
        all.shared.ledger.hold(&app).await.unwrap();
        assert_eq!(all.removal("namespaces", "shop"), ContainerUsage::InUse);
    }

    /// "app" has taken its release from "first", which is missing.
    #[tokio::test(start_paused = true)]
    async fn a_removal_leaves_what_has_objects_of_a_release_that_a_missing_bundle_may_want() {
        let all = Shared::new().await;
        let ledger = &all.shared.ledger;
        let taken = LedgerEntry {
            taken_from: BTreeSet::from(["first".to_owned()]),
            ..ledger.get(&key("app")).unwrap()
        };
        ledger.attempt(key("app"), taken).await.unwrap();
        let first = LedgerEntry {
            bundle: "first".to_owned(),
            ..LedgerEntry::default()
        };
        ledger.note_claims("app", &first).await.unwrap();
        for bundle in ["namespaces", "app"] {
            all.store.deleted(bundle);
            ledger.begin_removal(bundle).await.unwrap();
        }
        let usage = || all.removal("namespaces", "shop");
        assert_eq!(usage(), ContainerUsage::Draining);
        tokio::time::advance(WAITS_FOR_OBJECTS * 10).await;
        assert_eq!(usage(), ContainerUsage::Draining);
        // It is there, and nobody can read what it wants.
        all.store.malformed("first");
        assert_eq!(usage(), ContainerUsage::InUse);
        all.store.deleted("first");
        assert_eq!(usage(), ContainerUsage::Draining);
        let held = BTreeSet::from(["first".to_owned()]);
        ledger.hold(&held).await.unwrap();
        assert_eq!(usage(), ContainerUsage::InUse);
        // It is proven to be gone.
        ledger.seen("first", false).await.unwrap();
        let since = all.store.missing_since("first");
        assert!(all.store.note_proven_gone("first", since));
        assert_eq!(usage(), ContainerUsage::Draining);
        tokio::time::advance(WAITS_FOR_OBJECTS).await;
        assert_eq!(usage(), ContainerUsage::Unused);
    }

    /// However long the one has waited until then.
    #[tokio::test(start_paused = true)]
    async fn a_removal_that_begins_has_its_time_before_what_its_objects_are_in_goes() {
        let all = Shared::new().await;
        for bundle in ["namespaces", "app"] {
            all.store.deleted(bundle);
        }
        all.shared.ledger.begin_removal("namespaces").await.unwrap();
        assert_eq!(all.removal("namespaces", "shop"), ContainerUsage::Draining);
        tokio::time::advance(WAITS_FOR_OBJECTS * 10).await;
        all.shared.ledger.begin_removal("app").await.unwrap();
        assert_eq!(all.removal("namespaces", "shop"), ContainerUsage::Draining);
        tokio::time::advance(WAITS_FOR_OBJECTS).await;
        assert_eq!(all.removal("namespaces", "shop"), ContainerUsage::Unused);
    }

    /// "crds" has its records in what "app" has, and "app" objects of a kind that "crds" has.
    #[tokio::test(start_paused = true)]
    async fn a_removal_leaves_nothing_for_objects_of_one_that_waits_for_its_records() {
        let all = Shared::new().await;
        for bundle in ["crds", "app"] {
            all.store.deleted(bundle);
            all.shared.ledger.begin_removal(bundle).await.unwrap();
        }
        assert_eq!(all.removal("app", "crds"), ContainerUsage::Draining);
        all.shared.waits(&key("app"), vec!["crds".to_owned()]);
        assert_eq!(all.removal("crds", "cars.x.io"), ContainerUsage::Draining);
        tokio::time::advance(WAITS_FOR_OBJECTS).await;
        assert_eq!(all.removal("crds", "cars.x.io"), ContainerUsage::Unused);
    }
}
