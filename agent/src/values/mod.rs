//! The values a bundle is deployed with: where they come from, and how `${ }` in them is filled in.
//!
//! Everything here is pure: objects go in as they were read. Stored values are checked against their
//! hash ([`stored`]), `valuesFrom` entries are merged on top ([`references`], [`parse`], [`merge_maps`](chart::values::merge_maps)),
//! and inline values are templated with the facts of the cluster ([`preprocess`]). Mirrors
//! `pkg/helmvalues`, `getValues` (`internal/helmdeployer/install.go`) and `preprocessHelmValues`
//! (`internal/cmd/controller/target/builder.go`).

mod cluster;
mod coordinates;
mod from;
mod gathered;
mod inline;
mod local;
mod stored;
mod template;

use serde_json::Value;
use templating::{Host, Reads};

use crate::api::{ANNOTATION_CLUSTER_VALUES, BundleDeployment, BundleDeploymentSpec, HelmOptions};
use crate::config::{ClusterValuesMode, UnknownMode};

pub use cluster::{ClusterFacts, FactsError};
pub use coordinates::{coordinates, has_templates};
pub use from::{MAX_DECODED, Reference, ReferenceKind, ValuesFromError, budget, parse, references};
pub use gathered::{AGENT_MAP, Answer, Gathered, LOCAL_FACTS_KEY, Source, facts_of};
pub use inline::{Values, inline};
pub use local::{ClusterRef, LocalFact, LocalRequest, LocalState, NodeState, UnknownLocalFact};
pub use stored::{HashMismatch, stored};
use template::{LABEL_REFERENCE, OPENING};
pub use template::{TemplateError, preprocess};

/// A bundle with its coordinates filled in, and the values that it gets where those are filled in too (`helm`). All templates share one set
/// of limits.
///
/// # Errors
/// [`TemplateError`]: one bad template spoils all of it.
pub fn fill(
    bundle: &BundleDeployment,
    helm: Option<&HelmOptions>,
    facts: &ClusterFacts,
    host: &dyn Host,
) -> Result<(BundleDeployment, Option<Values>), TemplateError> {
    let templates = template::Templates::new(facts, host);
    let filled = coordinates::coordinates_with(&templates, bundle)?;
    let values = template::preprocess_with(&templates, helm, facts, false)?;
    Ok((filled, values))
}

/// The facts that filling in a bundle may read: its coordinates, and `helm` with its values where those are filled
/// in too.
pub fn reads(bundle: &BundleDeployment, helm: Option<&HelmOptions>) -> Reads {
    let mut reads = coordinates::reads(bundle);
    if let Some(helm) = helm {
        reads.extend(template::reads(helm));
    }
    reads
}

impl ClusterValuesMode {
    /// The mode for one bundle: its annotation's or label's, else this one.
    ///
    /// # Errors
    /// That is no mode. Guessing could fill in twice, or deploy raw templates.
    pub fn for_bundle(self, bundle: &BundleDeployment) -> Result<Self, UnknownMode> {
        match bundle.switch(ANNOTATION_CLUSTER_VALUES) {
            Some(text) => text.parse(),
            None => Ok(self),
        }
    }

    /// Whether this bundle's values are the agent's to fill in.
    pub fn fills_values(self, spec: &BundleDeploymentSpec) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Auto => spec.values_hash.is_empty() && has_marks(spec),
        }
    }
}

/// The Helm options as the agent is to fill them in. Who asks the agent for it (`always` on the bundle itself) says `disablePreProcess` to
/// keep the controller from it: its values would arrive filled in, or as an error.
pub fn options_to_fill(bundle: &BundleDeployment) -> Option<HelmOptions> {
    let mut helm = bundle.spec.options.helm.clone();
    if bundle.switch(ANNOTATION_CLUSTER_VALUES) == Some("always")
        && let Some(helm) = &mut helm
    {
        helm.disable_pre_process = false;
    }
    helm
}

/// Whether the spec has `${ }` to fill in.
fn has_marks(spec: &BundleDeploymentSpec) -> bool {
    let Some(helm) = &spec.options.helm else {
        return false;
    };
    !helm.template_values.is_empty()
        || helm.values.as_ref().is_some_and(|values| {
            values
                .iter()
                .any(|(key, value)| is_marked(key) || any_text(value))
        })
}

fn is_marked(text: &str) -> bool {
    text.contains(OPENING) || text.starts_with(LABEL_REFERENCE)
}

fn any_text(value: &Value) -> bool {
    match value {
        Value::String(text) => is_marked(text),
        Value::Array(items) => items.iter().any(any_text),
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| is_marked(key) || any_text(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::inline(json!({"options": {"helm": {"values": {"a": {"b": ["x ${ .ClusterName }"]}}}}}), true)]
    #[case::from_the_controller(
        json!({"options": {"helm": {"values": {"a": "${ .ClusterName }"}}}, "valuesHash": "abc"}), false)]
    #[case::label(json!({"options": {"helm": {"values": {"a": "global.fleet.clusterLabels.x"}}}}), true)]
    #[case::template_values(json!({"options": {"helm": {"templateValues": {"a": "x"}}}}), true)]
    #[case::nothing(json!({"options": {"helm": {"values": {"a": "$ { plain }"}}}}), false)]
    #[case::no_chart(json!({}), false)]
    fn auto_never_fills_in_twice(#[case] spec: Value, #[case] expected: bool) {
        let spec = serde_json::from_value(spec).unwrap();
        assert_eq!(ClusterValuesMode::Auto.fills_values(&spec), expected);
        assert!(
            ClusterValuesMode::Always.fills_values(&spec)
                && !ClusterValuesMode::Never.fills_values(&spec)
        );
    }

    #[test]
    fn a_bundles_annotation_overrides_the_mode() {
        let bundle = |mode: &str| -> BundleDeployment {
            let annotations = json!({ANNOTATION_CLUSTER_VALUES: mode});
            serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
        };
        assert_eq!(
            ClusterValuesMode::Auto
                .for_bundle(&bundle("never"))
                .unwrap(),
            ClusterValuesMode::Never
        );
        let failed = ClusterValuesMode::Auto
            .for_bundle(&bundle("sometimes"))
            .unwrap_err();
        assert!(failed.to_string().contains("\"sometimes\""));
        let labelled: BundleDeployment = serde_json::from_value(json!({
            "metadata": {"labels": {ANNOTATION_CLUSTER_VALUES: "always"}},
            "spec": {"options": {"helm": {"disablePreProcess": true}}},
        }))
        .unwrap();
        assert_eq!(
            ClusterValuesMode::Auto.for_bundle(&labelled).unwrap(),
            ClusterValuesMode::Always
        );
        assert!(!options_to_fill(&labelled).unwrap().disable_pre_process);
        let annotated: BundleDeployment = serde_json::from_value(json!({
            "metadata": {
                "annotations": {ANNOTATION_CLUSTER_VALUES: "never"},
                "labels": {ANNOTATION_CLUSTER_VALUES: "always"},
            },
            "spec": {"options": {"helm": {"disablePreProcess": true}}},
        }))
        .unwrap();
        assert_eq!(
            ClusterValuesMode::Auto.for_bundle(&annotated).unwrap(),
            ClusterValuesMode::Never
        );
        assert!(options_to_fill(&annotated).unwrap().disable_pre_process);
        let plain = BundleDeployment::default();
        assert_eq!(
            ClusterValuesMode::Always.for_bundle(&plain).unwrap(),
            ClusterValuesMode::Always
        );
    }
}
