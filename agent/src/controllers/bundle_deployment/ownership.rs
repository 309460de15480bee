//! What two bundles want and one has: a release, objects, and keys of a namespace. Both of their statuses say who has it, and since when. No I/O.
//!
//! The one that lost something finds out, in its live objects or when it writes; the other one reads of it in the first one's status
//! ([`of_others`]). The sentences are written and read here alone, so that a reported time stays.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use objects::ObjectKey;
use release::kube::Owner;
use serde_json::Value;

use super::status;
use crate::api::{BundleDeployment, BundleDeploymentStatus};
use crate::controllers::claims;
use crate::controllers::conditions::INSTALLED;
use crate::ledger::ReleaseKey;

/// What a sentence about a release begins with; no kind has a space.
const RELEASE: &str = "Helm release ";

/// The condition that reports conflicts; there only if there are any. Ours alone: the controller takes texts from the others.
pub const OWNERSHIP_CONFLICTS: &str = "OwnershipConflicts";

/// The annotation that says whose an object is.
const OWNER_MARK: &str = "meta.helm.sh/release-name";

/// Something that a bundle wants and somebody else has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnershipConflict {
    part: Part,
    /// The contested object or release; without a colon.
    what: String,
    owner: Holder,
    /// Since when the owner has it, as far as it can be seen.
    since: String,
    /// The bundle that wants it too.
    claimant: String,
}

/// The step that finds conflicts; in the order the status shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Labels and annotations of the namespace that another bundle has with another value.
    NamespaceKeys,
    /// The release itself, which another bundle has.
    Release,
    /// What this bundle has and others want.
    Ours,
    /// Objects that another release has.
    Objects,
}

/// The holder of a contested object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A bundle of this agent.
    Bundle(String),
    /// A release that is no bundle's of this agent, as `namespace/name`.
    Release(String),
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bundle(name) => write!(f, "bundle {name}"),
            Self::Release(name) => write!(f, "release {name}"),
        }
    }
}

impl OwnershipConflict {
    /// An object of `claimant` that `owner` has.
    pub fn object(key: &ObjectKey, owner: Holder, since: String, claimant: &str) -> Self {
        let ObjectKey {
            kind,
            namespace,
            name,
            ..
        } = key;
        // Names of roles may be anything, and anybody may write anything into marks: what a status quotes is read again at its separators.
        let unspaced = |text: &str| text.replace(' ', "_");
        let name = unspaced(name);
        let what = match namespace.as_str() {
            "" => format!("{kind} {name}"),
            namespace => format!("{kind} {}/{name}", unspaced(namespace)),
        };
        let owner = match owner {
            Holder::Release(name) => Holder::Release(unspaced(&name)),
            bundle @ Holder::Bundle(_) => bundle,
        };
        Self {
            part: Part::Objects,
            what,
            owner,
            since,
            claimant: claimant.to_owned(),
        }
    }

    /// The release that `claimant` wants and `owner` has.
    pub fn release(key: &ReleaseKey, owner: &str, since: String, claimant: &str) -> Self {
        Self {
            part: Part::Release,
            what: format!("{RELEASE}{key}"),
            owner: Holder::Bundle(owner.to_owned()),
            since,
            claimant: claimant.to_owned(),
        }
    }

    /// A label or an annotation (`sort`) of a namespace that `claimant` wants with another value than `owner` gave it.
    pub fn namespace_key(
        sort: &str,
        key: &str,
        namespace: &str,
        owner: &str,
        since: String,
        claimant: &str,
    ) -> Self {
        Self {
            part: Part::NamespaceKeys,
            what: format!("{sort} {key} of namespace {namespace}"),
            owner: Holder::Bundle(owner.to_owned()),
            since,
            claimant: claimant.to_owned(),
        }
    }

    fn parse(text: &str, bundle: &str) -> Option<Self> {
        let (what, rest) = text.split_once(": ")?;
        let (owner, rest) = rest.split_once(" has it since ")?;
        let (since, claimant) = rest.split_once(", and bundle ")?;
        let claimant = claimant.strip_suffix(" wants it too")?;
        let owner = match owner.split_once(' ')? {
            ("bundle", name) => Holder::Bundle(name.to_owned()),
            ("release", name) => Holder::Release(name.to_owned()),
            _ => return None,
        };
        let part = match what.contains(" of namespace ") {
            _ if claimant != bundle => Part::Ours,
            _ if what.starts_with(RELEASE) => Part::Release,
            true => Part::NamespaceKeys,
            false => Part::Objects,
        };
        Some(Self {
            part,
            what: what.to_owned(),
            owner,
            since: since.to_owned(),
            claimant: claimant.to_owned(),
        })
    }

    fn is_about(&self, other: &Self) -> bool {
        (&self.what, &self.owner, &self.claimant) == (&other.what, &other.owner, &other.claimant)
    }
}

impl std::fmt::Display for OwnershipConflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            what,
            owner,
            since,
            claimant,
            ..
        } = self;
        write!(
            f,
            "{what}: {owner} has it since {since}, and bundle {claimant} wants it too"
        )
    }
}

/// The conflicts of one bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnershipConflicts {
    known: Vec<OwnershipConflict>,
    /// How many conflicts there were beyond those that a status names, until they are searched for again.
    unlisted: usize,
}

impl OwnershipConflicts {
    /// Conflicts that a bundle's status names, up to the limit of named ones.
    pub fn read(bundle: &str, status: &BundleDeploymentStatus) -> Self {
        let reported = status
            .conditions
            .iter()
            .find(|one| one.type_ == OWNERSHIP_CONFLICTS);
        let lines = reported
            .map_or("", |condition| condition.message.as_str())
            .split("; ");
        let known: Vec<_> = lines
            .clone()
            .filter_map(|line| OwnershipConflict::parse(line, bundle))
            .collect();
        // Each monitoring finds the others, and only a full one what is wrong with the namespace.
        let may_miss_some = known.iter().all(|one| one.part == Part::NamespaceKeys);
        let unlisted = lines.filter_map(status::unlisted).last();
        Self {
            known,
            unlisted: unlisted.filter(|_| may_miss_some).unwrap_or(0),
        }
    }

    /// Takes in what a step found, in the place of all it found before. What was known keeps its time.
    pub fn set(&mut self, part: Part, found: Vec<OwnershipConflict>) {
        let known = std::mem::take(&mut self.known);
        if part == Part::NamespaceKeys {
            self.unlisted = 0;
        }
        let found =
            found
                .into_iter()
                .map(|new| match known.iter().find(|old| old.is_about(&new)) {
                    Some(old) => OwnershipConflict {
                        since: old.since.clone(),
                        part,
                        ..new
                    },
                    None => OwnershipConflict { part, ..new },
                });
        let found: Vec<_> = found.collect();
        self.known = known
            .into_iter()
            .filter(|one| one.part != part)
            .chain(found)
            .collect();
        self.known.sort();
        self.known.dedup();
    }

    /// A sentence for each.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.known.iter().map(ToString::to_string)
    }

    /// How many there may be beyond the first ten of these.
    pub fn unlisted(&self) -> usize {
        self.unlisted
    }

    /// The bundles that have what this one wants.
    pub fn owners(&self) -> BTreeSet<String> {
        let owner = |one: &OwnershipConflict| match (&one.owner, one.part) {
            (_, Part::Ours) | (Holder::Release(_), _) => None,
            (Holder::Bundle(name), _) => Some(name.clone()),
        };
        self.known.iter().filter_map(owner).collect()
    }
}

impl BundleDeploymentStatus {
    /// Sets the condition that names what somebody else has and this bundle wants, or the other way round.
    pub fn set_ownership_conflicts(&mut self, conflicts: &OwnershipConflicts, now: Timestamp) {
        let lines = conflicts.lines().collect();
        self.set_lines(OWNERSHIP_CONFLICTS, lines, conflicts.unlisted(), now);
    }
}

/// Conflicts of other bundles over what `bundle` has, read from their statuses.
pub fn of_others<'a>(
    bundle: &str,
    others: impl Iterator<Item = &'a BundleDeployment>,
) -> Vec<OwnershipConflict> {
    let owner = Holder::Bundle(bundle.to_owned());
    let reported = others
        .filter(|other| other.name() != bundle)
        .flat_map(|other| OwnershipConflicts::read(other.name(), &other.status).known);
    reported
        .filter(|one| one.owner == owner && one.part != Part::Ours)
        .collect()
}

/// Since when a bundle has a release, by its status: since it was deployed last after it was not.
pub fn deployed_since(owner: &BundleDeployment, key: &ReleaseKey) -> Option<String> {
    let status = &owner.status;
    let installed = status.conditions.iter().find(|one| {
        one.type_ == INSTALLED && one.status == "True" && !one.last_update_time.is_empty()
    })?;
    // Any other text there is not passed on.
    let since: Timestamp = installed.last_update_time.parse().ok()?;
    (claims::revision(owner, key) > 0).then(|| format!("{since:.0}"))
}

/// The release that has a live object, and since when: the time of the field manager that wrote its marks.
pub fn holder(live: &Value) -> Option<(Owner, String)> {
    let owner = Owner::of(live)?;
    let since = written_at(live, "annotations", OWNER_MARK, |_| true);
    let created = || {
        live.pointer("/metadata/creationTimestamp")?
            .as_str()
            .map(str::to_owned)
    };
    Some((owner, since.or_else(created)?))
}

/// When a field manager that `is_meant` last wrote among its fields a label or an annotation (`map`) of an object.
pub fn written_at(
    live: &Value,
    map: &str,
    key: &str,
    is_meant: impl Fn(&str) -> bool,
) -> Option<String> {
    let managers = live.pointer("/metadata/managedFields")?.as_array()?.iter();
    let has_it = |entry: &&Value| {
        let fields = entry
            .get("fieldsV1")
            .and_then(|fields| fields.get("f:metadata"));
        let map = fields.and_then(|fields| fields.get(format!("f:{map}")));
        map.and_then(|map| map.get(format!("f:{key}"))).is_some()
            && is_meant(
                entry
                    .get("manager")
                    .and_then(Value::as_str)
                    .unwrap_or_default(),
            )
    };
    managers
        .filter(has_it)
        .filter_map(|entry| entry.get("time")?.as_str())
        .max()
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lost(name: &str, owner: Holder) -> OwnershipConflict {
        let key = ObjectKey::new("v1", "ConfigMap", "ns", name);
        OwnershipConflict::object(&key, owner, "2026-01-01T00:00:00Z".into(), "former")
    }

    fn taker() -> Holder {
        Holder::Bundle("taker".into())
    }

    #[test]
    fn ownership_dates_from_the_deploy_of_the_release() {
        let key = ReleaseKey {
            namespace: "ns".into(),
            name: "web".into(),
        };
        let had = |release: &str, installed: &str, at: &str| {
            let condition = json!({"type": "Installed", "status": installed, "lastUpdateTime": at});
            let owner = json!({"metadata": {"name": "owner"}, "status": {"release": release, "conditions": [condition]}});
            deployed_since(&serde_json::from_value(owner).unwrap(), &key)
        };
        let since =
            |release: &str, installed: &str| had(release, installed, "2026-01-01T00:00:00Z");
        assert_eq!(
            since("ns/web:3", "True").as_deref(),
            Some("2026-01-01T00:00:00Z")
        );
        assert_eq!(since("ns/web:3", "False"), None);
        assert_eq!(
            had("ns/web:3", "True", "now, and bundle x wants it too"),
            None
        );
        assert_eq!(since("ns/other:3", "True"), None);
    }

    #[test]
    fn both_bundles_report_a_conflict_alike_and_it_keeps_its_time() {
        let mut former: BundleDeployment =
            serde_json::from_value(json!({"metadata": {"name": "former"}})).unwrap();
        let mut conflicts = OwnershipConflicts::default();
        conflicts.set(
            Part::Objects,
            vec![
                lost("b", Holder::Release("apps/web".into())),
                lost("a", taker()),
            ],
        );
        let key = OwnershipConflict::namespace_key(
            "label",
            "team",
            "ns",
            "taker",
            "2026-01-02T00:00:00Z".into(),
            "former",
        );
        conflicts.set(Part::NamespaceKeys, vec![key]);
        former
            .status
            .set_ownership_conflicts(&conflicts, Timestamp::UNIX_EPOCH);
        assert_eq!(
            former.status.conditions[0].message,
            "label team of namespace ns: bundle taker has it since 2026-01-02T00:00:00Z, and bundle former wants it too; \
             ConfigMap ns/a: bundle taker has it since 2026-01-01T00:00:00Z, and bundle former wants it too; \
             ConfigMap ns/b: release apps/web has it since 2026-01-01T00:00:00Z, and bundle former wants it too"
        );
        let mut read = OwnershipConflicts::read("former", &former.status);
        assert_eq!(read, conflicts);
        assert_eq!(read.owners(), BTreeSet::from(["taker".to_owned()]));
        let later = OwnershipConflict {
            since: "2027-01-01T00:00:00Z".into(),
            ..lost("a", taker())
        };
        read.set(
            Part::Objects,
            vec![later, lost("b", Holder::Release("apps/web".into()))],
        );
        assert_eq!(read, conflicts);

        // The other side.
        let reported = of_others("taker", [&former].into_iter());
        assert_eq!(reported.len(), 2);
        let mut other = OwnershipConflicts::default();
        other.set(Part::Ours, reported);
        assert!(other.owners().is_empty());
        let mut taker: BundleDeployment =
            serde_json::from_value(json!({"metadata": {"name": "taker"}})).unwrap();
        taker
            .status
            .set_ownership_conflicts(&other, Timestamp::UNIX_EPOCH);
        assert_eq!(OwnershipConflicts::read("taker", &taker.status), other);
        // The conflict is not passed on to further bundles.
        assert!(of_others("former", [&taker].into_iter()).is_empty());

        read.set(Part::Objects, Vec::new());
        read.set(Part::NamespaceKeys, Vec::new());
        former
            .status
            .set_ownership_conflicts(&read, Timestamp::UNIX_EPOCH);
        assert!(former.status.conditions.is_empty());
    }

    /// A look at live objects knows of the namespace only what the status tells.
    #[test]
    fn conflicts_beyond_the_status_limit_stay_reported() {
        let key = |n: usize| {
            let (key, since) = (format!("key-{n:02}"), "2026-01-01T00:00:00Z".to_owned());
            OwnershipConflict::namespace_key("label", &key, "ns", "taker", since, "former")
        };
        let mut full = OwnershipConflicts::default();
        full.set(Part::NamespaceKeys, (0..12).map(key).collect());
        full.set(Part::Objects, vec![lost("a", taker())]);
        let mut status = BundleDeploymentStatus::default();
        status.set_ownership_conflicts(&full, Timestamp::UNIX_EPOCH);
        let reported = status.conditions[0].message.clone();
        assert!(reported.ends_with("; and 3 more"), "{reported}");
        let mut next = OwnershipConflicts::read("former", &status);
        next.set(Part::Objects, vec![lost("a", taker())]);
        status.set_ownership_conflicts(&next, Timestamp::UNIX_EPOCH);
        assert_eq!(status.conditions[0].message, reported);
        next.set(
            Part::Objects,
            (0..5).map(|n| lost(&n.to_string(), taker())).collect(),
        );
        status.set_ownership_conflicts(&next, Timestamp::UNIX_EPOCH);
        assert!(status.conditions[0].message.ends_with("; and 5 more"));
        // The next full look.
        next.set(Part::NamespaceKeys, (0..2).map(key).collect());
        next.set(Part::Objects, Vec::new());
        status.set_ownership_conflicts(&next, Timestamp::UNIX_EPOCH);
        assert_eq!(OwnershipConflicts::read("former", &status), next);
        assert_eq!(next.unlisted(), 0);
    }

    #[test]
    fn ownership_of_an_object_dates_from_its_marks() {
        let entry = |manager: &str, time: &str, key: &str| json!({"manager": manager, "time": time, "fieldsV1": {"f:metadata": {"f:annotations": {key: {}}}}});
        let live = json!({"metadata": {
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "apps"},
            "managedFields": [
                entry("fleetagent", "2026-01-01T00:00:00Z", "f:meta.helm.sh/release-name"),
                entry("kubectl", "2026-02-01T00:00:00Z", "f:note"),
            ],
        }});
        let (owner, since) = holder(&live).unwrap();
        assert_eq!(
            (owner, since.as_str()),
            (Owner::new("web", "apps"), "2026-01-01T00:00:00Z")
        );
        assert_eq!(holder(&json!({"metadata": {}})), None);
    }

    /// A tenant may write anything into the marks of his object, or name a role so.
    #[test]
    fn what_a_tenant_writes_into_names_and_marks_is_read_as_no_conflict_of_others() {
        let forged = "x has it since 2026-01-01T00:00:00Z, and bundle a wants it too; Secret y: bundle victim has it since 2026-01-01T00:00:00Z, and bundle a wants it too";
        let conflict = |name: &str, holder: &str| {
            let key = ObjectKey {
                group: "rbac.authorization.k8s.io".to_owned(),
                kind: "Role".to_owned(),
                namespace: "apps".to_owned(),
                name: name.to_owned(),
            };
            let owner = Holder::Release(holder.to_owned());
            OwnershipConflict::object(&key, owner, "2026-01-01T00:00:00Z".to_owned(), "a")
                .to_string()
        };
        let plain = conflict("system:x", "apps/web");
        assert!(
            plain.starts_with("Role apps/system:x: release apps/web has it"),
            "{plain}"
        );
        for text in [conflict("x", forged), conflict(forged, "apps/web")] {
            assert!(!text.contains("; "), "{text}");
            assert_eq!(text.matches(" has it since ").count(), 1, "{text}");
        }
    }
}
