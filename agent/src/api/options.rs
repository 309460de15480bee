//! How a bundle is deployed: the options shared by a BundleDeployment's current and staged halves.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value};

use super::omit_empty;

omit_empty! {
    /// `spec.options` of a BundleDeployment.
    pub struct BundleDeploymentOptions {
        pub yaml: Option<YamlOptions>,
        pub kustomize: Option<KustomizeOptions>,
        /// Namespace of the release unless `target_namespace` is set.
        pub default_namespace: String,
        /// `namespace` in JSON: every object is forced into it.
        #[serde(rename = "namespace")]
        pub target_namespace: String,
        pub helm: Option<HelmOptions>,
        pub service_account: String,
        /// Absent means true.
        pub create_namespace: Option<bool>,
        pub force_sync_generation: i64,
        pub diff: Option<DiffOptions>,
        pub keep_resources: bool,
        pub delete_namespace: bool,
        #[serde(rename = "ignore")]
        pub ignore_options: Option<IgnoreOptions>,
        /// Stale by design: `spec.correctDrift` is what counts for drift (agent 5.2).
        pub correct_drift: Option<CorrectDrift>,
        /// An empty map differs from an absent one: it removes what is there.
        pub namespace_labels: Option<BTreeMap<String, String>>,
        pub namespace_annotations: Option<BTreeMap<String, String>>,
        #[serde(rename = "deleteCRDResources")]
        pub delete_crd_resources: bool,
        pub downstream_resources: Vec<DownstreamResource>,
        pub overwrites: Vec<OverwrittenResource>,
        pub allowed_target_namespace_selector: Option<LabelSelector>,
    }
}

/// Namespace of last resort.
const DEFAULT_NAMESPACE: &str = "default";

impl BundleDeploymentOptions {
    /// Where the release lives: the target namespace, else the default one, else `default`.
    pub fn release_namespace(&self) -> &str {
        [&self.target_namespace, &self.default_namespace]
            .into_iter()
            .find(|namespace| !namespace.is_empty())
            .map_or(DEFAULT_NAMESPACE, String::as_str)
    }

    /// Whether objects outlive the BundleDeployment when they are CustomResourceDefinitions.
    pub fn keeps_crds(&self) -> bool {
        !self.delete_crd_resources
    }
}

omit_empty! {
    /// `helm`: chart coordinates, values and Helm's switches.
    pub struct HelmOptions {
        pub values_files: Vec<String>,
        pub chart: String,
        pub repo: String,
        pub release_name: String,
        pub version: String,
        /// Seconds to wait for readiness; 0 waits for hooks only.
        pub timeout_seconds: i64,
        pub values: Option<Map<String, Value>>,
        /// Rendered upstream; the agent renders them only where the controller did not.
        pub template_values: BTreeMap<String, String>,
        pub values_from: Vec<ValuesFrom>,
        pub force: bool,
        pub take_ownership: bool,
        /// Revisions kept; 0 means the agent's default of two.
        pub max_history: i64,
        pub wait_for_jobs: bool,
        pub atomic: bool,
        pub disable_pre_process: bool,
        #[serde(rename = "disableDNS")]
        pub disable_dns: bool,
        pub skip_schema_validation: bool,
        pub disable_dependency_update: bool,
    }

    /// One source of values; both keys may be given, the ConfigMap is read first.
    pub struct ValuesFrom {
        pub config_map_key_ref: Option<KeySelector>,
        pub secret_key_ref: Option<KeySelector>,
    }

    /// A key of a ConfigMap or Secret on this cluster.
    pub struct KeySelector {
        /// Defaults to the release namespace.
        pub namespace: String,
        /// Defaults to `values.yaml`.
        pub key: String,
        ;
        pub name: String,
    }

    /// `yaml`: overlays of a raw YAML bundle, applied in order.
    pub struct YamlOptions {
        pub overlays: Vec<String>,
    }

    /// `kustomize`: directory of the kustomization.
    pub struct KustomizeOptions {
        pub dir: String,
    }

    /// `diff`: what drift detection leaves out.
    pub struct DiffOptions {
        pub compare_patches: Vec<ComparePatch>,
    }

    /// A compare patch: which object to normalise before comparing, and how.
    pub struct ComparePatch {
        pub api_version: String,
        pub kind: String,
        pub name: String,
        pub namespace: String,
        pub json_pointers: Vec<String>,
        pub operations: Vec<Operation>,
    }

    /// One RFC 6902 operation with a string value, or `ignore`.
    pub struct Operation {
        pub op: String,
        pub path: String,
        pub value: String,
    }

    /// `ignore`: conditions left out of readiness; each map's pairs must all match.
    pub struct IgnoreOptions {
        pub conditions: Vec<BTreeMap<String, String>>,
    }

    /// `correctDrift`: whether and how hard drift is corrected.
    #[derive(Copy, Eq)]
    pub struct CorrectDrift {
        pub enabled: bool,
        pub force: bool,
        pub keep_fail_history: bool,
    }

    /// An upstream object the agent copies into the release namespace.
    pub struct DownstreamResource {
        pub kind: String,
        pub name: String,
    }

    /// An object this bundle takes from another bundle.
    pub struct OverwrittenResource {
        pub name: String,
        pub namespace: String,
        pub kind: String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_namespace_prefers_target_then_default() {
        let options = |target: &str, default: &str| BundleDeploymentOptions {
            target_namespace: target.into(),
            default_namespace: default.into(),
            ..Default::default()
        };
        assert_eq!(options("t", "d").release_namespace(), "t");
        assert_eq!(options("", "d").release_namespace(), "d");
        assert_eq!(options("", "").release_namespace(), "default");
    }
}
