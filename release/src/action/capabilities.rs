//! What a cluster offers to templates.

use chart::{Capabilities, KubeVersion};

use crate::kube::{ApiError, Cluster};

/// The capabilities of the cluster for templates; at most five minutes old.
///
/// # Errors
/// The API server was never reached.
pub async fn capabilities(cluster: &Cluster) -> Result<Capabilities, ApiError> {
    let discovery = cluster.discovery().await?;
    let version = |field| discovery.server_version(field);
    Ok(Capabilities {
        kube_version: KubeVersion::live(version("gitVersion"), version("major"), version("minor")),
        api_versions: discovery.api_versions().map(str::to_owned).collect(),
        ..Capabilities::default()
    })
}
