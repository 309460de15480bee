//! Fleet's upstream half, as far as the agent can see it: its kinds, what the controller does at registration, and the
//! BundleDeployments it writes.

pub mod bundle_deployment;
pub mod controller;
pub mod crds;
pub mod stock;
pub mod test_agent;

use sha2::{Digest, Sha256};

/// The API group and version of Fleet's kinds.
pub const API_VERSION: &str = "fleet.cattle.io/v1alpha1";
/// Where credential secrets wait for agents, upstream.
pub const SYSTEM_REGISTRATION_NAMESPACE: &str = "cattle-fleet-clusters-system";
/// What the controller puts on a BundleDeployment to clean up after it.
pub const FINALIZER: &str = "fleet.cattle.io/bundle-deployment-finalizer";

/// How Fleet joins names: with dashes, cut and hashed when too long for a label.
pub fn safe_concat_name(parts: &[&str]) -> String {
    let full = parts.join("-");
    if full.len() < 64 {
        return full;
    }
    let digest = sha256_hex(full.as_bytes());
    if full.as_bytes()[56].is_ascii_alphanumeric() {
        format!("{}-{}", &full[..57], &digest[..5])
    } else {
        format!("{}-{}", &full[..56], &digest[..6])
    }
}

/// The SHA-256 of `content` in lower-case hex.
pub fn sha256_hex(content: &[u8]) -> String {
    Sha256::digest(content)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_stay_and_long_ones_fit() {
        assert_eq!(safe_concat_name(&["cluster", "a"]), "cluster-a");
        assert_eq!(safe_concat_name(&["x", &"y".repeat(80)]).len(), 63);
    }
}
