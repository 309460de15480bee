//! The release namespace: whether a bundle may deploy into it (`allowedTargetNamespaceSelector`), and what it is to carry
//! (`namespaceLabels`, `namespaceAnnotations`).
//!
//! Upstream makes labels and annotations *equal* to the options after a deploy, which wipes what
//! other controllers put there. Here our keys are set before the objects, by server-side apply
//! under a field manager for each bundle: what its options no longer have is removed, what others set stays. A key that another bundle has
//! with another value is left to it, and both say so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::ownership::{self, OwnershipConflict};
use crate::api::{BundleDeployment, BundleDeploymentOptions, LeftOut, Selector};
use crate::bundle::SetId;
use crate::client::identity::{AgentClient, DeploymentClient};
use crate::client::listed::Metadata;
use crate::controllers::store::Store;
use crate::error;
use crate::ledger::Ledger;

/// Begins the field managers of labels and annotations of namespaces, apart from the objects of releases; alone, the one that all bundles had
/// before each had its own.
const FIELD_MANAGER: &str = "fleetagent-namespace";

/// How often a write that met another one is tried.
const TRIES: u32 = 5;

/// Set by the API server, on every namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The cluster's administrator decides these.
const POD_SECURITY_PREFIX: &str = "pod-security.kubernetes.io/";

/// The namespace could not be labelled.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The account lacks a right; granting it causes no event.
    #[error(
        "the deployment's service account is not allowed to {verb} namespace \"{namespace}\"; \
         grant it '{verb}' on this namespace (scoped via resourceNames) or remove \
         namespaceLabels/namespaceAnnotations"
    )]
    Forbidden {
        verb: &'static str,
        namespace: String,
        source: kube::Error,
    },
    #[error("failed to {verb} namespace {namespace}")]
    Api {
        verb: &'static str,
        namespace: String,
        source: kube::Error,
    },
}

impl NamespaceError {
    fn new(verb: &'static str, namespace: &str, source: kube::Error) -> Self {
        let namespace = namespace.to_owned();
        match error::has_code(&source, 403) {
            true => Self::Forbidden {
                verb,
                namespace,
                source,
            },
            false => Self::Api {
                verb,
                namespace,
                source,
            },
        }
    }
}

/// Checks `allowedTargetNamespaceSelector` as the agent: it bounds the bundle, so the bundle's own rights do not count.
///
/// # Errors
/// The text of the Deployed condition: the namespace cannot be read, or does not match, or the selector is none.
pub async fn check_allowed(
    agent: &AgentClient,
    options: &BundleDeploymentOptions,
) -> Result<(), String> {
    let Some(selector) = &options.allowed_target_namespace_selector else {
        return Ok(());
    };
    let name = options.release_namespace();
    let namespaces = Api::<Namespace>::all(agent.client());
    let found = error::found(namespaces.get_metadata(name).await);
    let labels = found.map(|found| Some(found?.metadata.labels.unwrap_or_default()));
    check_selector(selector, name, labels)
}

fn check_selector(
    selector: &LabelSelector,
    name: &str,
    labels: kube::Result<Option<BTreeMap<String, String>>>,
) -> Result<(), String> {
    let labels = labels.map_err(|failed| {
        let cause = error::chain(&failed);
        format!("failed to get target namespace {name}: {cause}")
    })?;
    let missing = || format!("target namespace {name} does not exist on downstream cluster");
    let labels = labels.ok_or_else(missing)?;
    let parsed = Selector::new(selector)
        .map_err(|error| format!("invalid AllowedTargetNamespaceSelector: {error}"))?;
    if parsed.matches(&labels) {
        return Ok(());
    }
    let pairs: Vec<_> = labels
        .iter()
        .map(|(key, value)| format!("{key}:{value}"))
        .collect();
    Err(format!(
        "target namespace {name} does not match AllowedTargetNamespaceSelector ({parsed}); \
         namespace labels map[{}]",
        pairs.join(" ")
    ))
}

/// What a namespace should carry.
struct Desired {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// What the namespace should carry; `None` when the options say nothing about it.
fn desired(options: &BundleDeploymentOptions) -> Option<Desired> {
    if options.namespace_labels.is_none() && options.namespace_annotations.is_none() {
        return None;
    }
    let allowed = |pairs: &Option<BTreeMap<String, String>>| -> BTreeMap<String, String> {
        let pairs = pairs.clone().unwrap_or_default();
        let ours = |key: &String| key != NAME_LABEL && !key.starts_with(POD_SECURITY_PREFIX);
        pairs.into_iter().filter(|(key, _)| ours(key)).collect()
    };
    Some(Desired {
        labels: allowed(&options.namespace_labels),
        annotations: allowed(&options.namespace_annotations),
    })
}

impl Desired {
    /// Whether a namespace has all this, given by this field manager and nothing else by it, nor anything by the one that all bundles had.
    fn is_applied(&self, found: &Namespace, manager: &str) -> bool {
        let is_same = |map: &str, desired: &BTreeMap<String, String>, live| {
            let live: &Option<BTreeMap<String, String>> = live;
            let has = |key, value| live.as_ref().and_then(|live| live.get(key)) == Some(value);
            owned(found, FIELD_MANAGER, map).is_empty()
                && owned(found, manager, map).iter().eq(desired.keys())
                && desired.iter().all(|(key, value)| has(key, value))
        };
        let metadata = &found.metadata;
        is_same("f:labels", &self.labels, &metadata.labels)
            && is_same("f:annotations", &self.annotations, &metadata.annotations)
    }

    fn object(&self, namespace: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": namespace, "labels": self.labels, "annotations": self.annotations,
            },
        })
    }
}

/// The labels or annotations (`map`) of a namespace that a field manager has applied.
fn owned(found: &Namespace, manager: &str, map: &str) -> BTreeSet<String> {
    let entries = found.metadata.managed_fields.iter().flatten();
    let applied = entries.filter(|entry| {
        entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply")
    });
    let fields = applied.filter_map(|entry| {
        let fields = &entry.fields_v1.as_ref()?.0;
        fields.get("f:metadata")?.get(map)?.as_object()
    });
    let keys = fields
        .flatten()
        .filter_map(|(field, _)| field.strip_prefix("f:"));
    keys.map(str::to_owned).collect()
}

/// Labels and annotates the release namespace, creating it where the options allow that. Gives back the keys that other bundles have with
/// another value, or may have: they keep them.
///
/// # Errors
/// The account may not, or the API server refuses.
///
/// # Cancellation
/// Safe: each request is whole, and the next call finds what is still to do.
pub async fn label(
    downstream: &DeploymentClient,
    bundle: &BundleDeployment,
    bundles: &KnownBundles,
) -> Result<Vec<OwnershipConflict>, NamespaceError> {
    let options = &bundle.spec.options;
    let Some(desired) = desired(options) else {
        return Ok(Vec::new());
    };
    let keys = Keys {
        namespace: options.release_namespace(),
        bundle: bundle.name(),
        desired,
        others: ConflictingBundle::all(bundle, bundles),
        unlisted: bundles.unlisted_managers(),
    };
    let namespaces = Api::<Namespace>::all(downstream.client());
    if options.create_namespace == Some(false) {
        let metadata = Api::<Metadata<Namespace>>::all(downstream.client());
        let found = error::found(metadata.get(keys.namespace).await);
        let found = found.map_err(|source| NamespaceError::new("get", keys.namespace, source))?;
        if found.is_none() {
            // The deploy that follows has the better error for it.
            return Ok(Vec::new());
        }
    }
    match keys.apply(&namespaces).await {
        Err(failed) if error::has_code(&failed, 403) => keys.update(&namespaces).await,
        outcome => outcome.map_err(|source| NamespaceError::new("patch", keys.namespace, source)),
    }
}

/// The field manager of a bundle's keys; Kubernetes takes 128 characters.
fn field_manager(bundle: &str) -> String {
    let manager = format!("{FIELD_MANAGER}-{bundle}");
    match manager.len() {
        0..=128 => manager,
        _ => format!("{FIELD_MANAGER}-{}", SetId::new(bundle, "").hash()),
    }
}

/// Whether a text has `${ }` that are not filled in: only its bundle's own reconcile does that.
fn is_template(text: &str) -> bool {
    text.contains("${")
}

/// The bundles that may have keys of namespaces.
#[derive(Debug, Default)]
pub struct KnownBundles {
    listed: Vec<Arc<BundleDeployment>>,
    /// Those that nobody can ask what they want: they cannot be read, or were deployed, are not listed and have not been removed.
    unread: BTreeSet<String>,
    /// Whether a list is still coming, which may have any.
    is_listing: bool,
}

impl KnownBundles {
    /// As upstream lists them, and those that the ledger knows beside.
    pub fn of(store: &Store, ledger: &Ledger) -> Self {
        let is_listing = store.is_listing();
        let mut unread = ledger.bundles(|_| true);
        unread.append(&mut store.names());
        let listed = store.all();
        for bundle in &listed {
            unread.remove(bundle.name());
        }
        Self {
            listed,
            unread,
            is_listing,
        }
    }

    /// Of field managers those of bundles that the list may yet have.
    fn unlisted_managers(&self) -> UnlistedManagers {
        let listed = self.listed.iter();
        let listed = listed.map(|bundle| field_manager(bundle.name()));
        UnlistedManagers {
            except: self.is_listing.then(|| listed.collect()),
        }
    }
}

/// Field managers of bundles that a list is yet to have.
struct UnlistedManagers {
    /// All but these; absent where no list is coming.
    except: Option<BTreeSet<String>>,
}

impl UnlistedManagers {
    /// Those in a namespace.
    fn in_namespace(&self, found: &Namespace) -> Vec<ConflictingBundle> {
        let Some(except) = &self.except else {
            return Vec::new();
        };
        let entries = found.metadata.managed_fields.iter().flatten();
        let managers = entries.filter_map(|entry| entry.manager.as_ref());
        let unlisted = managers.filter_map(|manager| {
            let name = manager.strip_prefix(FIELD_MANAGER)?.strip_prefix('-')?;
            (!except.contains(manager)).then(|| ConflictingBundle {
                name: name.to_owned(),
                manager: manager.clone(),
                desired: None,
            })
        });
        unlisted.collect()
    }
}

/// Another bundle that wants keys of the same namespace.
struct ConflictingBundle {
    name: String,
    manager: String,
    /// Absent where nobody knows: then it wants what it has.
    desired: Option<Desired>,
}

impl ConflictingBundle {
    fn all(bundle: &BundleDeployment, bundles: &KnownBundles) -> Vec<Self> {
        let namespace = bundle.spec.options.release_namespace();
        let of = |name: &str, desired| Self {
            name: name.to_owned(),
            manager: field_manager(name),
            desired,
        };
        let conflicting = |other: &Arc<BundleDeployment>| {
            let options = &other.spec.options;
            let name = other.name();
            if name == bundle.name() {
                return None;
            }
            if other.metadata.deletion_timestamp.is_some() {
                return None;
            }
            if matches!(other.spec.left_out, Some(LeftOut::Refused(..))) {
                // What is deployed of it is a former version, and just these may be what is left out of this one.
                return Some(of(name, None));
            }
            // For a templated name, the field manager in the namespace shows whether this one is meant.
            let is_here = options.release_namespace() == namespace
                || is_template(options.release_namespace());
            let desired = desired(options).filter(|_| is_here)?;
            Some(of(name, Some(desired)))
        };
        let unread = bundles
            .unread
            .iter()
            .filter(|name| *name != bundle.name())
            .map(|name| of(name, None));
        let listed = bundles.listed.iter().filter_map(conflicting);
        listed.chain(unread).collect()
    }
}

/// Keys of a bundle that no other bundle has, in one version of the namespace. Only reading that version ([`Keys::own`]) makes them, and only these
/// are written over what is there.
struct OwnKeys {
    rest: Desired,
    version: Option<String>,
}

/// The keys of a namespace that a bundle wants.
struct Keys<'a> {
    namespace: &'a str,
    bundle: &'a str,
    desired: Desired,
    others: Vec<ConflictingBundle>,
    unlisted: UnlistedManagers,
}

impl Keys<'_> {
    /// By server-side apply, as the bundle's own field manager. What another bundle has with another value is left to it, whatever anybody
    /// else has is taken. Nothing is sent where that is how it is.
    async fn apply(&self, namespaces: &Api<Namespace>) -> kube::Result<Vec<OwnershipConflict>> {
        let manager = field_manager(self.bundle);
        let parameters = PatchParams::apply(&manager);
        let found = match error::found(namespaces.get(self.namespace).await) {
            // The account may be allowed to write what it may not read.
            Err(failed) if error::has_code(&failed, 403) => None,
            found => found?,
        };
        let desired = found.as_ref().map(|found| self.own(found));
        let mut left = match (&found, desired) {
            (Some(found), Some((own, left))) if own.rest.is_applied(found, &manager) => {
                return Ok(left);
            }
            // Conflicts are looked for again.
            _ => Vec::new(),
        };
        // Without force: what anybody else has with another value refuses it.
        let body = self.desired.object(self.namespace);
        let mut applied = namespaces
            .patch(self.namespace, &parameters, &Patch::Apply(&body))
            .await;
        let mut tries = 1;
        while matches!(&applied, Err(failed) if error::has_code(failed, 409)) && tries < TRIES {
            tries += 1;
            let Some(found) = error::found(namespaces.get(self.namespace).await)? else {
                continue;
            };
            let own;
            (own, left) = self.own(&found);
            applied = self.take(namespaces, &manager, own).await;
        }
        self.leave_shared_manager(namespaces, &applied?).await?;
        Ok(left)
    }

    /// Applies keys over whatever has them, in the version in which they were found to be the bundle's.
    async fn take(
        &self,
        namespaces: &Api<Namespace>,
        manager: &str,
        own: OwnKeys,
    ) -> kube::Result<Namespace> {
        let mut body = own.rest.object(self.namespace);
        // A write by others in between fails the version check, and the namespace is read again.
        body["metadata"]["resourceVersion"] = json!(own.version);
        let parameters = PatchParams::apply(manager).force();
        namespaces
            .patch(self.namespace, &parameters, &Patch::Apply(&body))
            .await
    }

    /// Takes these keys from the field manager that all bundles had before each had its own, so that they go once no bundle wants them.
    async fn leave_shared_manager(
        &self,
        namespaces: &Api<Namespace>,
        found: &Namespace,
    ) -> kube::Result<()> {
        let live = json!({"metadata": found.metadata});
        let has = |map: &str, key: &str| {
            ownership::written_at(&live, map, key, |manager| manager == FIELD_MANAGER).is_some()
        };
        let rest = |map: &str,
                    live: &Option<BTreeMap<String, String>>,
                    ours: &BTreeMap<String, String>| {
            let live = live.clone().unwrap_or_default().into_iter();
            live.filter(|(key, _)| has(map, key) && !ours.contains_key(key))
                .collect()
        };
        let has_any = |map| !owned(found, FIELD_MANAGER, map).is_empty();
        if !has_any("f:labels") && !has_any("f:annotations") {
            return Ok(());
        }
        let rest = Desired {
            labels: rest("labels", &found.metadata.labels, &self.desired.labels),
            annotations: rest(
                "annotations",
                &found.metadata.annotations,
                &self.desired.annotations,
            ),
        };
        let body = rest.object(self.namespace);
        let parameters = PatchParams::apply(FIELD_MANAGER);
        let left = namespaces
            .patch(self.namespace, &parameters, &Patch::Apply(&body))
            .await;
        match left {
            // Written meanwhile: next time.
            Err(failed) if error::has_code(&failed, 409) => Ok(()),
            left => left.map(drop),
        }
    }

    /// The way the Go agent goes, for accounts that were given the rights it needs: reading and replacing.
    async fn update(
        &self,
        namespaces: &Api<Namespace>,
    ) -> Result<Vec<OwnershipConflict>, NamespaceError> {
        let failed = |verb| move |source| NamespaceError::new(verb, self.namespace, source);
        let found = error::found(namespaces.get(self.namespace).await);
        let Some(mut namespace) = found.map_err(failed("get"))? else {
            // The deploy that follows creates it, or says why not.
            return Ok(Vec::new());
        };
        let (OwnKeys { rest, version }, left) = self.own(&namespace);
        let metadata = &mut namespace.metadata;
        let labels = metadata.labels.get_or_insert_default();
        let annotations = metadata.annotations.get_or_insert_default();
        let before = (labels.clone(), annotations.clone());
        labels.extend(rest.labels);
        annotations.extend(rest.annotations);
        if before == (labels.clone(), annotations.clone()) {
            return Ok(left);
        }
        metadata.managed_fields = None;
        metadata.resource_version = version;
        let parameters = PostParams {
            field_manager: Some(field_manager(self.bundle)),
            ..PostParams::default()
        };
        namespaces
            .replace(self.namespace, &parameters, &namespace)
            .await
            .map_err(failed("update"))?;
        Ok(left)
    }

    /// The desired keys that may be written, and those that another bundle has with another value.
    fn own(&self, found: &Namespace) -> (OwnKeys, Vec<OwnershipConflict>) {
        let live = json!({"metadata": found.metadata});
        let unlisted = self.unlisted.in_namespace(found);
        let mut left = Vec::new();
        let mut rest = |sort: &str,
                        map: &str,
                        desired: &BTreeMap<String, String>,
                        of: fn(&Desired) -> &BTreeMap<String, String>| {
            let mut rest = desired.clone();
            rest.retain(|key, value| {
                let current = live.pointer(&format!("/metadata/{map}"));
                let current = current.and_then(|map| map.get(key)?.as_str());
                let has_it = |other: &&ConflictingBundle| {
                    let wants_it = other.desired.as_ref().is_none_or(|desired| {
                        let desired = of(desired).get(key);
                        desired.is_some_and(|value| is_template(value) || Some(&**value) == current)
                    });
                    let since = ownership::written_at(&live, map, key, |by| by == other.manager);
                    wants_it && since.is_some()
                };
                let Some(other) = self.others.iter().chain(&unlisted).find(has_it) else {
                    return true;
                };
                if current == Some(value) {
                    return true;
                }
                let since = ownership::written_at(&live, map, key, |by| by == other.manager);
                left.push(OwnershipConflict::namespace_key(
                    sort,
                    key,
                    self.namespace,
                    &other.name,
                    since.unwrap_or_default(),
                    self.bundle,
                ));
                false
            });
            rest
        };
        let labels = rest("label", "labels", &self.desired.labels, |of| &of.labels);
        let annotations = rest(
            "annotation",
            "annotations",
            &self.desired.annotations,
            |of| &of.annotations,
        );
        let rest = Desired {
            labels,
            annotations,
        };
        let version = found.metadata.resource_version.clone();
        (OwnKeys { rest, version }, left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_keys_are_left_out() {
        let options: BundleDeploymentOptions = serde_json::from_value(json!({
            "namespaceLabels": {"team": "a", "kubernetes.io/metadata.name": "x",
                                "pod-security.kubernetes.io/enforce": "privileged"},
        }))
        .unwrap();
        let object = desired(&options).unwrap().object("ns");
        assert_eq!(object["metadata"]["labels"], json!({"team": "a"}));
        assert_eq!(object["metadata"]["annotations"], json!({}));
        assert!(desired(&BundleDeploymentOptions::default()).is_none());
    }

    #[test]
    fn a_namespace_label_that_another_bundle_set_to_another_value_is_not_changed() {
        let bundle = |name: &str, labels: Value| -> Arc<BundleDeployment> {
            let bundle = json!({"metadata": {"name": name},
                "spec": {"options": {"defaultNamespace": "ns", "namespaceLabels": labels}}});
            Arc::new(serde_json::from_value(bundle).unwrap())
        };
        let found = |owner: &str| -> Namespace {
            let entry = json!({"manager": owner, "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {"f:team": {}}}}});
            serde_json::from_value(json!({"metadata": {"name": "ns", "labels": {"team": "a"}, "managedFields": [entry]}})).unwrap()
        };
        let us = bundle("b", json!({"team": "b", "tier": "1"}));
        let check_among = |found: Namespace, bundles: &KnownBundles| {
            let keys = Keys {
                namespace: "ns",
                bundle: us.name(),
                desired: desired(&us.spec.options).unwrap(),
                others: ConflictingBundle::all(&us, bundles),
                unlisted: bundles.unlisted_managers(),
            };
            let (own, left) = keys.own(&found);
            let left: Vec<_> = left.iter().map(ToString::to_string).collect();
            (Vec::from_iter(own.rest.labels.into_keys()), left)
        };
        let check = |found: Namespace, others: &[Arc<BundleDeployment>]| {
            let listed = others.to_vec();
            let bundles = KnownBundles {
                listed,
                ..KnownBundles::default()
            };
            check_among(found, &bundles)
        };
        let theirs = [bundle("a", json!({"team": "a"})), Arc::clone(&us)];
        let reported = "label team of namespace ns: bundle a has it since 2026-01-01T00:00:00Z, and bundle b wants it too";
        assert_eq!(
            check(found("fleetagent-namespace-a"), &theirs),
            (vec!["tier".to_owned()], vec![reported.to_owned()])
        );
        let both = (vec!["team".to_owned(), "tier".to_owned()], Vec::new());
        // The label's value shows when the bundle's `${ }` are filled in; that it has the key, here.
        let templated = [bundle("a", json!({"team": "${ .ClusterLabels.team }"}))];
        assert_eq!(
            check(found("fleetagent-namespace-a"), &templated),
            (vec!["tier".to_owned()], vec![reported.to_owned()])
        );
        let mut elsewhere = bundle("a", json!({"team": "a"}));
        Arc::make_mut(&mut elsewhere).spec.options.default_namespace = "${ .ClusterName }".into();
        assert_eq!(
            check(found("fleetagent-namespace-a"), &[elsewhere]),
            (vec!["tier".to_owned()], vec![reported.to_owned()])
        );
        // Somebody else, a bundle that is gone, and one that wants it no more.
        assert_eq!(check(found("kubectl"), &theirs), both);
        assert_eq!(check(found("fleetagent-namespace-a"), &[]), both);
        let other = [bundle("a", json!({"team": "c"}))];
        assert_eq!(check(found("fleetagent-namespace-a"), &other), both);
        // One that nobody can ask: unreadable, held or lost, yet to be listed, or with options that are refused.
        let kept = (vec!["tier".to_owned()], vec![reported.to_owned()]);
        let listed = || vec![Arc::clone(&us)];
        let unread = |names: &[&str]| KnownBundles {
            listed: listed(),
            unread: names.iter().map(|name| (*name).to_owned()).collect(),
            is_listing: false,
        };
        let theirs = || found("fleetagent-namespace-a");
        assert_eq!(check_among(theirs(), &unread(&["a", "b"])), kept);
        assert_eq!(check_among(theirs(), &unread(&["b", "c"])), both);
        assert_eq!(
            check_among(found("fleetagent-namespace-b"), &unread(&["a", "b"])),
            both
        );
        let listing = |listed| KnownBundles {
            listed,
            unread: BTreeSet::new(),
            is_listing: true,
        };
        assert_eq!(check_among(theirs(), &listing(listed())), kept);
        assert_eq!(
            check_among(found("fleetagent-namespace"), &listing(listed())),
            both
        );
        assert_eq!(check_among(found("kubectl"), &listing(listed())), both);
        let wants_no_more = bundle("a", json!({"team": "c"}));
        let with_it = vec![Arc::clone(&us), wants_no_more];
        assert_eq!(check_among(theirs(), &listing(with_it)), both);
        let mut refused = bundle("a", json!({}));
        let too_many = crate::api::TooMany {
            field: "spec.options.namespaceLabels".to_owned(),
            most: 1_000,
        };
        Arc::make_mut(&mut refused).spec.left_out = Some(LeftOut::Refused([0; 32], too_many));
        assert_eq!(check(theirs(), &[refused]), kept);
    }

    #[test]
    fn a_namespace_that_is_up_to_date_is_not_written() {
        let found = |manager: &str, fields: Value| -> Namespace {
            let entry = json!({"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": fields}}});
            let metadata = json!({"name": "ns", "labels": {"team": "a", "tier": "1"}, "managedFields": [entry]});
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let desired = |pairs| Desired {
            labels: labels(pairs),
            annotations: BTreeMap::new(),
        };
        let team = || json!({"f:team": {}});
        let is_applied = |found: Namespace, pairs| desired(pairs).is_applied(&found, "us");
        assert!(is_applied(found("us", team()), &[("team", "a")]));
        assert!(!is_applied(found("us", team()), &[("team", "b")]));
        assert!(!is_applied(found("us", team()), &[]));
        assert!(!is_applied(
            found("us", team()),
            &[("team", "a"), ("tier", "1")]
        ));
        assert!(!is_applied(found("other", team()), &[("team", "a")]));
        // An API server keeps no entry for a manager that has nothing.
        assert!(is_applied(found("other", team()), &[]));
        // The keys under the field manager that all bundles shared are given up first.
        let mut both = found("us", team());
        let shared = found(FIELD_MANAGER, json!({"f:tier": {}}));
        let shared = shared.metadata.managed_fields.into_iter().flatten();
        both.metadata
            .managed_fields
            .get_or_insert_default()
            .extend(shared);
        assert!(!is_applied(both, &[("team", "a")]));
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn a_namespace_that_does_not_match_is_refused_in_upstreams_words() {
        let selector: LabelSelector =
            serde_json::from_value(json!({"matchLabels": {"team": "a"}})).unwrap();
        let check = |labels| check_selector(&selector, "ns", Ok(labels));
        assert_eq!(
            check(None).unwrap_err(),
            "target namespace ns does not exist on downstream cluster"
        );
        assert_eq!(
            check(Some(labels(&[("team", "b"), ("a", "1")]))).unwrap_err(),
            "target namespace ns does not match AllowedTargetNamespaceSelector (team=a); \
             namespace labels map[a:1 team:b]"
        );
        assert!(check(Some(labels(&[("team", "a")]))).is_ok());
    }

    /// A comma is no part of a label's value: this was to keep tenants out of two namespaces.
    #[test]
    fn a_selector_that_kubernetes_refuses_allows_no_namespace() {
        let check = |requirement: Value| {
            let selector = json!({"matchExpressions": [requirement]});
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            check_selector(&selector, "kube-system", Ok(Some(labels(&[("a", "1")])))).unwrap_err()
        };
        let name = "kubernetes.io/metadata.name";
        assert_eq!(
            check(
                json!({"key": name, "operator": "NotIn", "values": ["kube-system,cattle-fleet-system"]})
            ),
            "invalid AllowedTargetNamespaceSelector: values[0][kubernetes.io/metadata.name]: Invalid value: \
             \"kube-system,cattle-fleet-system\": a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        );
        assert_eq!(
            check(json!({"key": name, "operator": "DoesNotExist", "values": ["kube-system"]})),
            "invalid AllowedTargetNamespaceSelector: values: Invalid value: [\"kube-system\"]: values set must be empty for exists and \
             does not exist"
        );
    }
}
