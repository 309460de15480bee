//! How a bundle is deployed: the options shared by a BundleDeployment's current and staged halves.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{is_default, null_as_default};

/// `spec.options` of a BundleDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BundleDeploymentOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yaml: Option<YamlOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kustomize: Option<KustomizeOptions>,
    /// Namespace of the release unless `target_namespace` is set.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub default_namespace: String,
    /// `namespace` in JSON: every object is forced into it.
    #[serde(rename = "namespace", skip_serializing_if = "is_default")]
    #[serde(deserialize_with = "null_as_default")]
    pub target_namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helm: Option<HelmOptions>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub service_account: String,
    /// Absent means true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_namespace: Option<bool>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub force_sync_generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<DiffOptions>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub keep_resources: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub delete_namespace: bool,
    #[serde(rename = "ignore", skip_serializing_if = "Option::is_none")]
    pub ignore_options: Option<IgnoreOptions>,
    /// Stale by design: `spec.correctDrift` is what counts for drift (agent 5.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correct_drift: Option<CorrectDrift>,
    /// An empty map differs from an absent one: it removes what is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_labels: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_annotations: Option<BTreeMap<String, String>>,
    #[serde(rename = "deleteCRDResources", skip_serializing_if = "is_default")]
    #[serde(deserialize_with = "null_as_default")]
    pub delete_crd_resources: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub downstream_resources: Vec<DownstreamResource>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub overwrites: Vec<OverwrittenResource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_target_namespace_selector: Option<LabelSelector>,
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

/// `helm`: chart coordinates, values and Helm's switches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HelmOptions {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub values_files: Vec<String>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub chart: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub repo: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub release_name: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub version: String,
    /// Seconds to wait for readiness; 0 waits for hooks only.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub timeout_seconds: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Map<String, Value>>,
    /// Rendered upstream; the agent renders them only where the controller did not.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub template_values: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub values_from: Vec<ValuesFrom>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub force: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub take_ownership: bool,
    /// Revisions kept; 0 means the agent's default of two.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub max_history: i64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub wait_for_jobs: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub atomic: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub disable_pre_process: bool,
    #[serde(rename = "disableDNS", skip_serializing_if = "is_default")]
    #[serde(deserialize_with = "null_as_default")]
    pub disable_dns: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub skip_schema_validation: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub disable_dependency_update: bool,
}

/// One source of values; both keys may be given, the ConfigMap is read first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ValuesFrom {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeySelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeySelector>,
}

/// A key of a ConfigMap or Secret on this cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeySelector {
    pub name: String,
    /// Defaults to the release namespace.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub namespace: String,
    /// Defaults to `values.yaml`.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub key: String,
}

/// `yaml`: overlays of a raw YAML bundle, applied in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct YamlOptions {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub overlays: Vec<String>,
}

/// `kustomize`: directory of the kustomization.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KustomizeOptions {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub dir: String,
}

/// `diff`: what drift detection leaves out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiffOptions {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub compare_patches: Vec<ComparePatch>,
}

/// Which object to normalise before comparing, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ComparePatch {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub api_version: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub kind: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub name: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub namespace: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub json_pointers: Vec<String>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub operations: Vec<Operation>,
}

/// One RFC 6902 operation with a string value, or `ignore`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Operation {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub op: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub path: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub value: String,
}

/// `ignore`: conditions left out of readiness; each map's pairs must all match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IgnoreOptions {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub conditions: Vec<BTreeMap<String, String>>,
}

/// `correctDrift`: whether and how hard drift is put right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CorrectDrift {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub enabled: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub force: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub keep_fail_history: bool,
}

/// An upstream object the agent copies into the release namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DownstreamResource {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub kind: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub name: String,
}

/// An object this bundle takes from another bundle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OverwrittenResource {
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub name: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub namespace: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_as_default")]
    pub kind: String,
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
