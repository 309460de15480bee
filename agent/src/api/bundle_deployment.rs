//! BundleDeployment: what the controller wants on this cluster. Upstream
//! `bundledeployment_types.go`; status lives in [`super::status`], options in [`super::options`].

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{NamespaceResourceScope, ObjectMeta};
use serde::{Deserialize, Serialize};

use super::{
    AGENT_BUNDLE_PREFIX, BundleDeploymentOptions, BundleDeploymentStatus, CorrectDrift,
    null_as_default, omit_empty,
};

/// One bundle on one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BundleDeployment {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: BundleDeploymentSpec,
    #[serde(deserialize_with = "null_as_default")]
    pub status: BundleDeploymentStatus,
}

super::fleet_kind!(
    BundleDeployment,
    "BundleDeployment",
    "bundledeployments",
    NamespaceResourceScope
);

impl BundleDeployment {
    /// `metadata.name`, empty when absent.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// `metadata.namespace`, empty when absent.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// The value of one annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    /// What an annotation of ours says, or a label of the same name: Fleet's controller copies the labels of bundles, HelmOps and GitRepos
    /// to BundleDeployments, and no annotation.
    pub fn switch(&self, key: &str) -> Option<&str> {
        let label = || Some(self.metadata.labels.as_ref()?.get(key)?.as_str());
        self.annotation(key).or_else(label)
    }

    /// Whether somebody asks that it is deployed anew (`forceSyncGeneration`), and its status does not say that this was done.
    pub fn is_sync_due(&self) -> bool {
        self.spec.options.force_sync_generation != self.status.sync_generation.unwrap_or_default()
    }

    /// Whether this bundle carries the agent itself.
    pub fn is_agent_bundle(&self) -> bool {
        self.name().starts_with(AGENT_BUNDLE_PREFIX)
    }
}

omit_empty! {
    /// Wanted state. `staged_*` is what the next rollout partition will bring and is only compared.
    pub struct BundleDeploymentSpec {
        pub paused: bool,
        #[serde(rename = "stagedDeploymentID")]
        pub staged_deployment_id: String,
        /// `<manifest ID>:<hash of the options>`; the first half is empty for HelmOps.
        #[serde(rename = "deploymentID")]
        pub deployment_id: String,
        pub depends_on: Vec<BundleRef>,
        pub correct_drift: Option<CorrectDrift>,
        /// The content lies in an OCI registry, not in a Content resource.
        #[serde(rename = "ociContents")]
        pub oci_contents: bool,
        /// Present when the agent itself fetches the chart (HelmOps).
        pub helm_chart_options: Option<BundleHelmOptions>,
        /// Hex SHA-256 of the values Secret of the same name; empty when there is none.
        pub values_hash: String,
        pub downstream_resources_generation: i64,
        pub off_schedule: bool,
        pub waiting_for_values: bool,
        /// Why only names are left of [`Self::options`], and nothing of [`Self::staged_options`], where that is so.
        #[serde(skip)]
        pub left_out: Option<LeftOut>,
        ;
        pub staged_options: BundleDeploymentOptions,
        pub options: BundleDeploymentOptions,
    }
}

/// Why most of the options are not there. With the SHA-256 of what was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// Options too large to be kept; read again from upstream when they are needed.
    Large([u8; 32]),
    /// Options that are refused: the bundle is not worked on.
    Refused([u8; 32], TooMany),
}

/// More of something than is worked on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} has more than {most} elements")]
pub struct TooMany {
    /// Path of the field from the object on, `[]` behind lists.
    pub field: String,
    /// How many elements are allowed, in all lists of that path together.
    pub most: usize,
}

impl BundleDeploymentSpec {
    /// The manifest ID: the deployment ID up to its first `:`, or all of it.
    pub fn manifest_id(&self) -> &str {
        self.deployment_id.split(':').next().unwrap_or_default()
    }

    /// `spec.correctDrift`, all off when absent.
    pub fn correct_drift(&self) -> CorrectDrift {
        self.correct_drift.unwrap_or_default()
    }
}

omit_empty! {
    /// A bundle this one waits for.
    pub struct BundleRef {
        pub name: String,
        pub selector: Option<LabelSelector>,
        /// States the other may be in; empty means `Ready` alone.
        pub accepted_states: Vec<String>,
    }

    /// How the agent reaches a HelmOp's chart.
    pub struct BundleHelmOptions {
        /// Secret in the BundleDeployment's namespace holding credentials.
        #[serde(rename = "helmOpSecretName")]
        pub secret_name: String,
        #[serde(rename = "helmOpInsecureSkipTLSVerify")]
        pub insecure_skip_tls_verify: bool,
        /// PEM certificates.
        #[serde(rename = "helmOpCABundle")]
        pub ca_bundle: ByteString,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_fields_and_nulls_are_tolerated() {
        let bd: BundleDeployment = serde_json::from_value(json!({
            "apiVersion": "fleet.cattle.io/v1alpha1", "kind": "BundleDeployment",
            "metadata": {"name": "b", "namespace": "ns"},
            "spec": {"deploymentID": "s-1:x", "paused": null, "fromTheFuture": {"a": 1},
                     "helmChartOptions": {"helmOpCABundle": "Zm9v"}},
        }))
        .unwrap();
        assert_eq!(bd.spec.manifest_id(), "s-1");
        assert!(!bd.spec.paused);
        assert_eq!(bd.spec.helm_chart_options.unwrap().ca_bundle.0, b"foo");
    }

    #[test]
    fn manifest_id_of_a_helm_op_is_empty() {
        let spec = |id: &str| BundleDeploymentSpec {
            deployment_id: id.into(),
            ..Default::default()
        };
        assert_eq!(spec(":abc").manifest_id(), "");
        assert_eq!(spec("v1").manifest_id(), "v1");
    }

    #[test]
    fn serialises_as_go_does() {
        let bd = BundleDeployment::default();
        assert_eq!(
            serde_json::to_value(&bd).unwrap(),
            json!({"metadata": {}, "spec": {"options": {}, "stagedOptions": {}}, "status": {
                "display": {},
                "resourceCounts": {"ready": 0, "desiredReady": 0, "waitApplied": 0, "modified": 0,
                                   "orphaned": 0, "missing": 0, "unknown": 0, "notReady": 0},
            }})
        );
    }
}
