//! Fleet's kinds as the agent reads and writes them, one file per kind.
//!
//! Field names, omitted defaults and enums are upstream's `pkg/apis/fleet.cattle.io/v1alpha1`
//! (v0.16): what serialises here is what Go's encoder would have sent. Fields this version does
//! not know are ignored on reading and, because status is only ever patched, never lost.

mod bundle_deployment;
mod cluster;
mod cluster_registration;
mod content;
mod options;
mod selector;
mod status;

pub use bundle_deployment::{
    BundleDeployment, BundleDeploymentSpec, BundleHelmOptions, BundleRef, LeftOut, TooMany,
};
pub use cluster::{AgentStatus, Cluster, ClusterSpec, ClusterStatus};
pub use cluster_registration::{ClusterRegistration, ClusterRegistrationSpec};
pub use content::Content;
pub use options::{
    BundleDeploymentOptions, ComparePatch, CorrectDrift, DiffOptions, DownstreamResource,
    HelmOptions, IgnoreOptions, KeySelector, KustomizeOptions, Operation, OverwrittenResource,
    ValuesFrom, YamlOptions,
};
pub use selector::{InvalidSelector, Selector};
pub use status::{
    BundleDeploymentDisplay, BundleDeploymentResource, BundleDeploymentStatus, Condition,
    ModifiedStatus, NonReadyStatus, ResourceCounts, Summary,
};

/// API group of every Fleet kind.
pub const GROUP: &str = "fleet.cattle.io";
/// The one API version.
pub const VERSION: &str = "v1alpha1";

/// Name of the Bundle a BundleDeployment was made from.
pub const LABEL_BUNDLE_NAME: &str = "fleet.cattle.io/bundle-name";
/// Namespace of the Bundle a BundleDeployment was made from.
pub const LABEL_BUNDLE_NAMESPACE: &str = "fleet.cattle.io/bundle-namespace";
/// Commit a GitRepo's bundle came from.
pub const LABEL_COMMIT: &str = "fleet.cattle.io/commit";
/// On Secrets of charts' credentials that Fleet puts beside BundleDeployments for itself.
pub const LABEL_INTERNAL_SECRET: &str = "fleet.cattle.io/bundle-internal-secret";
/// On copies of upstream Secrets and ConfigMaps: the BundleDeployment they belong to.
pub const LABEL_BUNDLE_DEPLOYMENT: &str = "fleet.cattle.io/bundledeployment";
/// On a ClusterRegistration: the token that was used, which decides who may read the credential.
pub const LABEL_REGISTRATION_TOKEN: &str = "fleet.cattle.io/registration-token";
/// Cluster label naming the agent pod that registered.
pub const LABEL_CREATED_BY_AGENT_POD: &str = "fleet.cattle.io/created-by-agent-pod";

/// Chart annotation: account a release was deployed with (may be empty).
pub const ANNOTATION_SERVICE_ACCOUNT: &str = "fleet.cattle.io/service-account";
/// Chart annotation: name of the BundleDeployment.
pub const ANNOTATION_BUNDLE_ID: &str = "fleet.cattle.io/bundle-id";
/// Chart annotation: system namespace of the agent that deployed.
pub const ANNOTATION_AGENT_NAMESPACE: &str = "fleet.cattle.io/agent-namespace";
/// Chart annotation: `true` when objects outlive the BundleDeployment.
pub const ANNOTATION_KEEP_RESOURCES: &str = "fleet.cattle.io/keep-resources";
/// Chart annotation: commit of the bundle.
pub const ANNOTATION_COMMIT: &str = "fleet.cattle.io/commit";

/// Chart annotation: digest of the facts that were filled into values, where the agent did that (not upstream's).
pub const ANNOTATION_FACTS: &str = "fleet.cattle.io/cluster-facts";

/// Chart annotation: SHA-256 of the archive, where the chart was fetched (not upstream's).
pub const ANNOTATION_CHART_DIGEST: &str = "fleet.cattle.io/chart-digest";
/// Chart annotation: repository, chart and version as the bundle names them, where the chart was fetched (not upstream's).
pub const ANNOTATION_CHART_SOURCE: &str = "fleet.cattle.io/chart-source";
/// Chart annotation: digest of the values that came from ConfigMaps and Secrets of the cluster (not upstream's).
pub const ANNOTATION_VALUES_FROM: &str = "fleet.cattle.io/values-from";
/// Chart annotation: templates looked up what of Secrets does not stand in Secrets of the release (not upstream's).
pub const ANNOTATION_LOOKED_UP: &str = "fleet.cattle.io/looked-up-secrets";

/// On a BundleDeployment: how often it is looked whether its chart's source has another one, `5m` (not upstream's).
pub const CHART_POLL: &str = "fleet.cattle.io/chart-poll";
/// On a BundleDeployment: `false` for values that are read at deploys alone (not upstream's).
pub const WATCH_VALUES: &str = "fleet.cattle.io/watch-values";

/// On a BundleDeployment: whether the agent fills in `${ }`: `auto`, `always` or `never` (not upstream's).
pub const ANNOTATION_CLUSTER_VALUES: &str = "fleet.cattle.io/cluster-values";
/// On a BundleDeployment: a release name with `${ }`, which `helm.releaseName` cannot hold (not upstream's).
pub const ANNOTATION_RELEASE_NAME: &str = "fleet.cattle.io/release-name";
/// On a BundleDeployment: `true` to install once and never upgrade (not upstream's).
pub const ANNOTATION_INSTALL_ONCE: &str = "fleet.cattle.io/install-once";
/// What a bundle asks of its chart besides the agent's signature policy; `docs/signatures.md` has the format. On a deployed chart: its
/// signers.
pub const ANNOTATION_SIGNATURES: &str = "fleet.cattle.io/signatures";

/// Label or annotation on a BundleDeployment: with another value than before, content whose last attempt was undone is tried again at
/// once (not upstream's).
pub const TRY_AGAIN: &str = "fleet.cattle.io/try-again";

/// On the site's ConfigMap: `true` or a reason holds all deploys, corrections and removals (not upstream's).
pub const HOLD_ANNOTATION: &str = "fleet.cattle.io/hold-deploys";
/// Set to `true` on the ledger to let the removals through that are held back by then (not upstream's). The agent takes it away as soon as it
/// has read it.
pub const RELEASE_HOLD_ANNOTATION: &str = "fleet.cattle.io/release-held-removals";

/// On every object: the set it belongs to.
pub const ANNOTATION_OBJECT_SET_ID: &str = "objectset.rio.cattle.io/id";
/// On every object: hex SHA-1 of the set ID.
pub const LABEL_OBJECT_SET_HASH: &str = "objectset.rio.cattle.io/hash";
/// `false` keeps an object that is no longer wanted out of "extra".
pub const LABEL_OBJECT_SET_PRUNE: &str = "objectset.rio.cattle.io/prune";

/// Bundles whose name starts so carry the agent itself and are never uninstalled.
pub const AGENT_BUNDLE_PREFIX: &str = "fleet-agent";

/// Implements [`kube::Resource`] for a kind of Fleet's API group.
macro_rules! fleet_kind {
    ($type:ty, $kind:literal, $plural:literal, $scope:ty) => {
        impl kube::Resource for $type {
            type DynamicType = ();
            type Scope = $scope;
            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $crate::api::GROUP.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $crate::api::VERSION.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &kube::core::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
use fleet_kind;

/// Declares structs as Go has them: what is empty is not written (`omitempty`), but for the fields behind a `;`, and what is absent or `null` is
/// empty.
macro_rules! omit_empty {
    ($(
        $(#[$of_struct:meta])*
        pub struct $name:ident {
            $($(#[$of_field:meta])* pub $field:ident: $type:ty,)*
            $(; $($(#[$of_written:meta])* pub $written:ident: $written_type:ty,)+)?
        }
    )+) => {$(
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        $(#[$of_struct])*
        pub struct $name {
            $(
                #[serde(skip_serializing_if = "crate::api::is_default")]
                #[serde(deserialize_with = "crate::api::null_as_default")]
                $(#[$of_field])*
                pub $field: $type,
            )*
            $($(
                #[serde(deserialize_with = "crate::api::null_as_default")]
                $(#[$of_written])*
                pub $written: $written_type,
            )+)?
        }
    )+};
}
use omit_empty;

/// For `skip_serializing_if`: Go's `omitempty`.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads an explicit `null` as the zero value, as Go's decoder does.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + serde::Deserialize<'de>,
{
    Ok(<Option<T> as serde::Deserialize>::deserialize(deserializer)?.unwrap_or_default())
}
