//! `dependsOn`: whether the bundles one depends on are as far as they must be. No I/O.
//!
//! Mirrors `internal/cmd/agent/deployer` (`checkDependency`); the texts are upstream's.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};

use super::bundle_state;
use crate::api::{
    BundleDeployment, BundleRef, LABEL_BUNDLE_NAME, LABEL_BUNDLE_NAMESPACE, Selector,
};

/// Why a bundle's dependencies are not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A selector selects nothing, or cannot be parsed: a failure.
    Unknown(String),
    /// These bundles are not in an accepted state: wait.
    NotReady(Vec<String>),
}

impl Problem {
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
pub fn check<'a>(
    bundle: &BundleDeployment,
    others: impl Iterator<Item = &'a BundleDeployment>,
) -> Result<(), Problem> {
    let others: Vec<_> = others.map(|other| (other, OnceCell::new())).collect();
    let mut waiting = Waiting::default();
    for dependency in &bundle.spec.depends_on {
        let Some(selector) = selector(bundle, dependency).transpose() else {
            continue;
        };
        let selector = selector.map_err(Problem::Unknown)?;
        let mut found = false;
        for (other, state) in &others {
            let none = BTreeMap::new();
            if !selector.matches(other.metadata.labels.as_ref().unwrap_or(&none)) {
                continue;
            }
            found = true;
            let state = *state.get_or_init(|| bundle_state::state(other));
            let accepted = match dependency.accepted_states.as_slice() {
                [] => state == "Ready",
                states => states.iter().any(|accepted| accepted == state),
            };
            if !accepted {
                waiting.add(other.name());
            }
        }
        if !found {
            let namespace = bundle.label(LABEL_BUNDLE_NAMESPACE).unwrap_or_default();
            return Err(Problem::Unknown(format!(
                "list bundledeployments: no bundles matching labels {selector} in namespace \
                 {namespace}"
            )));
        }
    }
    match waiting.names.is_empty() {
        true => Ok(()),
        false => Err(Problem::NotReady(waiting.first_names())),
    }
}

/// Whether a bundle depends on another one. A selector that cannot be parsed selects nothing.
pub fn is_on(bundle: &BundleDeployment, other: &BundleDeployment) -> bool {
    let none = BTreeMap::new();
    let labels = other.metadata.labels.as_ref().unwrap_or(&none);
    let mut dependencies = bundle.spec.depends_on.iter();
    dependencies.any(|dependency| {
        let selector = selector(bundle, dependency).ok().flatten();
        selector.is_some_and(|selector| selector.matches(labels))
    })
}

/// How many of those that are waited for are named.
const MAX_NAMED: usize = 100;

/// Bundles that are waited for, each once however many entries ask for it, in the order they were found.
#[derive(Default)]
struct Waiting<'a> {
    names: Vec<&'a str>,
    known: HashSet<&'a str>,
}

impl<'a> Waiting<'a> {
    fn add(&mut self, name: &'a str) {
        if self.known.insert(name) {
            self.names.push(name);
        }
    }

    fn first_names(self) -> Vec<String> {
        let names = self.names.iter().take(MAX_NAMED);
        let mut names: Vec<String> = names.map(|name| (*name).to_owned()).collect();
        if self.names.len() > MAX_NAMED {
            names.push(format!("and {} more", self.names.len() - MAX_NAMED));
        }
        names
    }
}

fn selector(bundle: &BundleDeployment, desired: &BundleRef) -> Result<Option<Selector>, String> {
    if desired.name.is_empty() && desired.selector.is_none() {
        return Ok(None);
    }
    let mut selector = desired.selector.clone().unwrap_or_default();
    if !desired.name.is_empty() {
        // In the place of what the selector says of these two, as upstream.
        let namespace = bundle.label(LABEL_BUNDLE_NAMESPACE).unwrap_or_default();
        let labels = selector.match_labels.get_or_insert_default();
        labels.insert(LABEL_BUNDLE_NAME.to_owned(), desired.name.clone());
        labels.insert(LABEL_BUNDLE_NAMESPACE.to_owned(), namespace.to_owned());
    }
    let selector = Selector::new(&selector).map_err(|error| error.to_string())?;
    Ok(Some(selector))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bundle(value: serde_json::Value) -> BundleDeployment {
        serde_json::from_value(value).unwrap()
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
        let problem = check(&bundle, others.iter()).unwrap_err();
        assert_eq!(
            problem.message(),
            "dependent bundle(s) are not ready: [two three]"
        );
        let bundle = dependent(json!([{"name": "two", "acceptedStates": ["NotReady"]}]));
        assert_eq!(check(&bundle, others.iter()), Ok(()));
    }

    /// Each entry may select them all.
    #[test]
    fn a_dependency_of_many_entries_is_named_once() {
        let names: Vec<_> = (0..150).map(|at| format!("b{at}")).collect();
        let others: Vec<_> = names.iter().map(|name| other(name, false)).collect();
        let all = vec![json!({"selector": {}, "acceptedStates": ["x"]}); 1_000];
        let problem = check(&dependent(json!(all)), others.iter()).unwrap_err();
        let wanted = names[..100].join(" ");
        assert_eq!(
            problem.message(),
            format!("dependent bundle(s) are not ready: [{wanted} and 50 more]")
        );
    }

    #[test]
    fn a_dependency_nobody_matches_is_a_failure() {
        let bundle = dependent(json!([{"name": "none"}]));
        let problem = check(&bundle, [other("one", true)].iter()).unwrap_err();
        assert_eq!(
            problem.message(),
            "list bundledeployments: no bundles matching labels \
             fleet.cattle.io/bundle-name=none,fleet.cattle.io/bundle-namespace=fleet-default \
             in namespace fleet-default"
        );
    }

    #[test]
    fn a_selector_that_kubernetes_refuses_is_a_failure() {
        let requirement = json!({"key": "team", "operator": "NotIn", "values": []});
        let bundle = dependent(json!([{"selector": {"matchExpressions": [requirement]}}]));
        assert_eq!(
            check(&bundle, [other("one", true)].iter())
                .unwrap_err()
                .message(),
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
        );
    }

    #[test]
    fn a_name_stands_in_the_place_of_the_selectors() {
        let selector = json!({"matchLabels": {LABEL_BUNDLE_NAME: "two"}});
        let bundle = dependent(json!([{"name": "one", "selector": selector}]));
        assert_eq!(check(&bundle, [other("one", true)].iter()), Ok(()));
    }
}
