//! What to do about a BundleDeployment, from what is known of it. No I/O.
//!
//! Mirrors the order of `bundledeployment_controller.go` and `internal/cmd/agent/deployer`; the
//! texts are upstream's.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Expression, Selector, SelectorExt as _};

use super::status::{self, INSTALLED};
use crate::api::{
    ANNOTATION_INSTALL_ONCE, BundleDeployment, BundleDeploymentSpec, BundleDeploymentStatus,
    BundleRef, LABEL_BUNDLE_NAME, LABEL_BUNDLE_NAMESPACE,
};
use crate::ledger::ReleaseKey;

/// Why a bundle is left alone for now: nothing is deployed, corrected, removed or reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuspendReason {
    Paused,
    OffSchedule,
    WaitingForValues,
}

/// Whether the bundle is to be left alone.
pub fn suspend_reason(spec: &BundleDeploymentSpec) -> Option<SuspendReason> {
    match spec {
        BundleDeploymentSpec { paused: true, .. } => Some(SuspendReason::Paused),
        BundleDeploymentSpec {
            off_schedule: true, ..
        } => Some(SuspendReason::OffSchedule),
        BundleDeploymentSpec {
            waiting_for_values: true,
            ..
        } => Some(SuspendReason::WaitingForValues),
        _ => None,
    }
}

/// The target namespace as the selector check finds it.
#[derive(Clone, Debug)]
pub enum TargetNamespace {
    Missing,
    Unreadable(String),
    Labelled(BTreeMap<String, String>),
}

/// Checks `allowedTargetNamespaceSelector`.
///
/// # Errors
/// The text of the Deployed condition.
pub fn check_target_namespace(
    selector: &LabelSelector,
    name: &str,
    found: &TargetNamespace,
) -> Result<(), String> {
    let labels = match found {
        TargetNamespace::Missing => {
            return Err(format!(
                "target namespace {name} does not exist on downstream cluster"
            ));
        }
        TargetNamespace::Unreadable(cause) => {
            return Err(format!("failed to get target namespace {name}: {cause}"));
        }
        TargetNamespace::Labelled(labels) => labels,
    };
    let parsed = Selector::try_from(selector.clone())
        .map_err(|error| format!("invalid AllowedTargetNamespaceSelector: {error}"))?;
    if parsed.matches(labels) {
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

/// What stands in the way of a bundle that depends on others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DependencyProblem {
    /// A selector selects nothing, or is none: a failure.
    Unknown(String),
    /// These are not in a state that would do: wait.
    NotReady(Vec<String>),
}

impl DependencyProblem {
    /// The text of the Deployed condition.
    pub fn message(&self) -> String {
        match self {
            Self::Unknown(message) => message.clone(),
            Self::NotReady(names) => {
                format!("dependent bundle(s) are not ready: [{}]", names.join(" "))
            }
        }
    }
}

/// Checks `dependsOn` against all BundleDeployments of the cluster.
///
/// # Errors
/// What stands in the way.
pub fn check_dependencies<'a>(
    bundle: &BundleDeployment,
    others: impl Iterator<Item = &'a BundleDeployment> + Clone,
) -> Result<(), DependencyProblem> {
    let mut waiting = Vec::new();
    for dependency in &bundle.spec.depends_on {
        let Some(selector) = selector(bundle, dependency).transpose() else {
            continue;
        };
        let selector = selector.map_err(DependencyProblem::Unknown)?;
        let mut found = false;
        for other in others.clone() {
            let none = BTreeMap::new();
            if !selector.matches(other.metadata.labels.as_ref().unwrap_or(&none)) {
                continue;
            }
            found = true;
            let state = status::state(other);
            let accepted = match dependency.accepted_states.as_slice() {
                [] => state == "Ready",
                states => states.iter().any(|accepted| accepted == state),
            };
            if !accepted {
                waiting.push(other.name().to_owned());
            }
        }
        if !found {
            let namespace = bundle.label(LABEL_BUNDLE_NAMESPACE).unwrap_or_default();
            return Err(DependencyProblem::Unknown(format!(
                "list bundledeployments: no bundles matching labels {selector} in namespace \
                 {namespace}"
            )));
        }
    }
    match waiting.is_empty() {
        true => Ok(()),
        false => Err(DependencyProblem::NotReady(waiting)),
    }
}

fn selector(bundle: &BundleDeployment, desired: &BundleRef) -> Result<Option<Selector>, String> {
    if desired.name.is_empty() && desired.selector.is_none() {
        return Ok(None);
    }
    let mut selector = match &desired.selector {
        Some(selector) => Selector::try_from(selector.clone()).map_err(|e| e.to_string())?,
        None => Selector::default(),
    };
    if !desired.name.is_empty() {
        let namespace = bundle.label(LABEL_BUNDLE_NAMESPACE).unwrap_or_default();
        selector.extend([
            Expression::Equal(LABEL_BUNDLE_NAME.into(), desired.name.clone()),
            Expression::Equal(LABEL_BUNDLE_NAMESPACE.into(), namespace.into()),
        ]);
    }
    Ok(Some(selector))
}

/// Whether a deploy is called for, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeployReason {
    /// Another deployment ID than the one applied.
    Changed,
    /// The last attempt failed or did not get to its end.
    Unfinished,
    /// The release the status names is gone.
    ReleaseGone,
    /// Copied resources changed.
    DownstreamResourcesChanged,
    /// An object this bundle overwrites went with the bundle it was taken from.
    Overwritten,
    /// A fact of the cluster that its templates read is another.
    FactsChanged,
}

/// Facts a deploy depends on.
#[derive(Clone, Copy, Debug)]
pub struct DeployFacts {
    /// Whether the release named by the status is in storage.
    pub release_exists: bool,
    /// A copied resource was updated.
    pub downstream_resources_changed: bool,
    /// See [`is_overwritten`].
    pub overwritten: bool,
    /// The release was filled in with other facts than there are now.
    pub facts_changed: bool,
}

/// Whether an object listed under `overwrites` was last found missing: it was deleted along with
/// the bundle it was taken from, and is deployed anew. Unlike upstream the namespace counts.
pub fn is_overwritten(spec: &BundleDeploymentSpec, status: &BundleDeploymentStatus) -> bool {
    let listed = |kind: &str, namespace: &str, name: &str| {
        spec.options
            .overwrites
            .iter()
            .any(|taken| taken.kind == kind && taken.name == name && taken.namespace == namespace)
    };
    status.modified_status.iter().any(|entry| {
        entry.missing && !entry.exist && listed(&entry.kind, &entry.namespace, &entry.name)
    })
}

/// Whether this bundle asked to be installed once, and was.
pub fn is_installed_once(bundle: &BundleDeployment, facts: DeployFacts) -> bool {
    bundle.annotation(ANNOTATION_INSTALL_ONCE) == Some("true")
        && facts.release_exists
        && bundle.status.condition(INSTALLED) != "False"
}

/// Whether to deploy.
///
/// A BundleDeployment that is being deleted is watched to the end but nothing new is started.
pub fn deploy_reason(bundle: &BundleDeployment, facts: DeployFacts) -> Option<DeployReason> {
    let (spec, status) = (&bundle.spec, &bundle.status);
    if bundle.metadata.deletion_timestamp.is_some() || is_installed_once(bundle, facts) {
        None
    } else if facts.downstream_resources_changed {
        Some(DeployReason::DownstreamResourcesChanged)
    } else if spec.deployment_id != status.applied_deployment_id {
        Some(DeployReason::Changed)
    } else if status.condition(INSTALLED) == "False" || status.release.is_empty() {
        Some(DeployReason::Unfinished)
    } else if !facts.release_exists {
        Some(DeployReason::ReleaseGone)
    } else if facts.overwritten {
        Some(DeployReason::Overwritten)
    } else if facts.facts_changed {
        Some(DeployReason::FactsChanged)
    } else {
        None
    }
}

/// Whether live objects are compared with the release: only the deployment that is wanted is.
pub fn should_monitor(bundle: &BundleDeployment, status: &BundleDeploymentStatus) -> bool {
    bundle.spec.deployment_id == status.applied_deployment_id
        && status.condition(INSTALLED) != "False"
        && !status.release.is_empty()
}

/// Whether an event about a BundleDeployment calls for a reconcile: its spec, labels or annotations
/// changed, or its status is neither what it was nor what we left there.
pub fn is_relevant_change(
    old: &BundleDeployment,
    new: &BundleDeployment,
    written: Option<&BundleDeploymentStatus>,
) -> bool {
    let status_is_ours = || {
        status::patch(&old.status, &new.status).is_none()
            || written.is_some_and(|written| status::patch(written, &new.status).is_none())
    };
    old.metadata.generation != new.metadata.generation
        || old.metadata.labels != new.metadata.labels
        || old.metadata.annotations != new.metadata.annotations
        || old.metadata.uid != new.metadata.uid
        || old.spec != new.spec
        || !status_is_ours()
}

/// A release as `status.release` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseId {
    pub namespace: String,
    pub name: String,
    pub revision: i64,
}

impl ReleaseId {
    /// A revision of a release.
    pub fn new(key: &ReleaseKey, revision: i64) -> Self {
        let ReleaseKey { namespace, name } = key.clone();
        Self {
            namespace,
            name,
            revision,
        }
    }

    /// The release, whatever its revision.
    pub fn key(&self) -> ReleaseKey {
        ReleaseKey {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// Parses `<namespace>/<name>:<revision>`.
    pub fn parse(text: &str) -> Option<Self> {
        let (path, revision) = text.rsplit_once(':')?;
        let (namespace, name) = path.split_once('/')?;
        if namespace.is_empty() || name.is_empty() {
            return None;
        }
        let revision = revision.parse().ok()?;
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            revision,
        })
    }
}

impl std::fmt::Display for ReleaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.name, self.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn bundle(value: serde_json::Value) -> BundleDeployment {
        serde_json::from_value(value).unwrap()
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn standstills_come_in_upstreams_order() {
        let mut spec = BundleDeploymentSpec {
            waiting_for_values: true,
            ..Default::default()
        };
        assert_eq!(suspend_reason(&spec), Some(SuspendReason::WaitingForValues));
        spec.paused = true;
        assert_eq!(suspend_reason(&spec), Some(SuspendReason::Paused));
        assert_eq!(suspend_reason(&BundleDeploymentSpec::default()), None);
    }

    #[test]
    fn target_namespace_messages_are_upstreams() {
        let selector: LabelSelector =
            serde_json::from_value(json!({"matchLabels": {"team": "a"}})).unwrap();
        let check = |found| check_target_namespace(&selector, "ns", &found);
        assert_eq!(
            check(TargetNamespace::Missing).unwrap_err(),
            "target namespace ns does not exist on downstream cluster"
        );
        assert_eq!(
            check(TargetNamespace::Labelled(labels(&[
                ("team", "b"),
                ("a", "1")
            ])))
            .unwrap_err(),
            "target namespace ns does not match AllowedTargetNamespaceSelector (team=a); \
             namespace labels map[a:1 team:b]"
        );
        assert!(check(TargetNamespace::Labelled(labels(&[("team", "a")]))).is_ok());
    }

    fn dependent(depends_on: serde_json::Value) -> BundleDeployment {
        bundle(json!({
            "metadata": {"name": "b", "labels": {LABEL_BUNDLE_NAMESPACE: "fleet-default"}},
            "spec": {"dependsOn": depends_on},
        }))
    }

    fn other(name: &str, ready: bool) -> BundleDeployment {
        bundle(json!({
            "metadata": {"name": name, "labels": {
                LABEL_BUNDLE_NAME: name, LABEL_BUNDLE_NAMESPACE: "fleet-default",
            }},
            "spec": {"deploymentID": "x", "stagedDeploymentID": "x"},
            "status": {"appliedDeploymentID": "x", "ready": ready, "nonModified": true},
        }))
    }

    #[test]
    fn dependencies_must_be_ready() {
        let others = [
            other("one", true),
            other("two", false),
            other("three", false),
        ];
        let bundle = dependent(json!([{"name": "one"}, {}, {"name": "two"}, {"name": "three"}]));
        let problem = check_dependencies(&bundle, others.iter()).unwrap_err();
        assert_eq!(
            problem.message(),
            "dependent bundle(s) are not ready: [two three]"
        );
        let bundle = dependent(json!([{"name": "two", "acceptedStates": ["NotReady"]}]));
        assert_eq!(check_dependencies(&bundle, others.iter()), Ok(()));
    }

    #[test]
    fn a_dependency_nobody_matches_is_a_failure() {
        let bundle = dependent(json!([{"name": "none"}]));
        let problem = check_dependencies(&bundle, [other("one", true)].iter()).unwrap_err();
        assert_eq!(
            problem.message(),
            "list bundledeployments: no bundles matching labels \
             fleet.cattle.io/bundle-name=none,fleet.cattle.io/bundle-namespace=fleet-default \
             in namespace fleet-default"
        );
    }

    #[rstest]
    #[case::same_id("id", "ns/r:1", true, None)]
    #[case::new_id("old", "ns/r:1", true, Some(DeployReason::Changed))]
    #[case::record_gone("id", "ns/r:1", false, Some(DeployReason::ReleaseGone))]
    #[case::failed_before("id", "", true, Some(DeployReason::Unfinished))]
    fn deploys_when_something_changed(
        #[case] applied: &str,
        #[case] release: &str,
        #[case] release_exists: bool,
        #[case] reason: Option<DeployReason>,
    ) {
        let facts = DeployFacts {
            release_exists,
            downstream_resources_changed: false,
            overwritten: false,
            facts_changed: false,
        };
        let mut bundle = bundle(json!({"metadata": {}, "spec": {"deploymentID": "id"},
            "status": {"appliedDeploymentID": applied, "release": release}}));
        assert_eq!(deploy_reason(&bundle, facts), reason);
        let copied = DeployFacts {
            downstream_resources_changed: true,
            ..facts
        };
        assert_eq!(
            deploy_reason(&bundle, copied),
            Some(DeployReason::DownstreamResourcesChanged)
        );
        let facts_changed = DeployFacts {
            facts_changed: true,
            ..facts
        };
        let reason = reason.or(Some(DeployReason::FactsChanged));
        assert_eq!(deploy_reason(&bundle, facts_changed), reason);
        bundle.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert_eq!(deploy_reason(&bundle, copied), None);
    }

    #[rstest]
    #[case::installed(true, None)]
    #[case::gone(false, Some(DeployReason::Changed))]
    fn installed_once_stays_as_it_is(
        #[case] release_exists: bool,
        #[case] reason: Option<DeployReason>,
    ) {
        let bundle = bundle(
            json!({"metadata": {"annotations": {ANNOTATION_INSTALL_ONCE: "true"}},
            "spec": {"deploymentID": "new"},
            "status": {"appliedDeploymentID": "old", "release": "ns/r:1"}}),
        );
        let facts = DeployFacts {
            release_exists,
            downstream_resources_changed: false,
            overwritten: false,
            facts_changed: true,
        };
        assert_eq!(deploy_reason(&bundle, facts), reason);
    }

    #[test]
    fn an_overwritten_object_that_is_missing_is_deployed_anew() {
        let mut bundle = bundle(json!({"metadata": {}, "spec": {"options": {"overwrites": [
            {"kind": "ConfigMap", "namespace": "ns", "name": "a"},
        ]}}, "status": {"modifiedStatus": [
            {"kind": "ConfigMap", "namespace": "ns", "name": "a", "missing": true},
        ]}}));
        assert!(is_overwritten(&bundle.spec, &bundle.status));
        bundle.status.modified_status[0].namespace = "elsewhere".into();
        assert!(!is_overwritten(&bundle.spec, &bundle.status));
    }

    #[test]
    fn our_own_status_writes_and_the_controllers_display_wake_nobody() {
        let old = bundle(json!({"metadata": {"generation": 1}, "spec": {}}));
        let mut new = old.clone();
        new.status.display.state = "Ready".into();
        assert!(!is_relevant_change(&old, &new, None));
        new.status.release = "a/b:1".into();
        assert!(!is_relevant_change(&old, &new, Some(&new.status)));
        assert!(is_relevant_change(&old, &new, None));
        let mut spec = old.clone();
        spec.spec.downstream_resources_generation = 2;
        assert!(is_relevant_change(&old, &spec, None));
    }

    #[rstest]
    #[case("ns/name:3", Some(("ns", "name", 3)))]
    #[case("", None)]
    #[case("name:3", None)]
    #[case("ns/name", None)]
    #[case("ns/name:x", None)]
    fn release_ids(#[case] text: &str, #[case] expected: Option<(&str, &str, i64)>) {
        let parsed = ReleaseId::parse(text);
        assert_eq!(
            parsed
                .as_ref()
                .map(|id| (&*id.namespace, &*id.name, id.revision)),
            expected
        );
        assert!(parsed.is_none_or(|id| id.to_string() == text));
    }
}
