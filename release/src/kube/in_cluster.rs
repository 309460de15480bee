//! The pod's own account and cluster.

use std::path::{Path, PathBuf};

use http::uri::InvalidUri;

/// Where Kubernetes puts what a pod needs.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A process that is in no pod, or in one without an account.
#[derive(Debug, thiserror::Error)]
pub enum NotInCluster {
    #[error("{name} is not set")]
    Variable { name: &'static str },
    #[error("the address of the pod's API server cannot be read")]
    Address(#[source] InvalidUri),
    #[error("failed to read {}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// The configuration of a pod's account, as [`kube::Config::incluster`] has it. That one does without all certificates for one that cannot be
/// read; here they are read when a connection is made, and again when they change.
///
/// # Errors
/// This is no pod.
pub fn in_cluster() -> Result<kube::Config, NotInCluster> {
    in_pod(Path::new(ACCOUNT), |name| std::env::var(name).ok())
}

fn in_pod(
    account: &Path,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<kube::Config, NotInCluster> {
    let variable = |name: &'static str| {
        let set = variable(name).filter(|text| !text.is_empty());
        set.ok_or(NotInCluster::Variable { name })
    };
    let host = variable("KUBERNETES_SERVICE_HOST")?;
    let port = variable("KUBERNETES_SERVICE_PORT")?;
    let address = match host.contains(':') {
        true => format!("https://[{host}]:{port}"),
        false => format!("https://{host}:{port}"),
    };
    let mut config = kube::Config::new(address.parse().map_err(NotInCluster::Address)?);
    let namespace = account.join("namespace");
    config.default_namespace =
        std::fs::read_to_string(&namespace).map_err(|source| NotInCluster::Read {
            path: namespace,
            source,
        })?;
    config.auth_info.token_file = Some(account.join("token").display().to_string());
    config.root_cert_file = Some(account.join("ca.crt"));
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<'v>(host: &'v str, port: &'v str) -> impl Fn(&str) -> Option<String> + 'v {
        move |name| match name {
            "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
            "KUBERNETES_SERVICE_PORT" => Some(port.to_owned()),
            _ => None,
        }
    }

    #[test]
    fn a_pods_account_is_what_kubernetes_gives_it() {
        let account = tempfile::tempdir().unwrap();
        let path = |name: &str| account.path().join(name);
        let without = in_pod(account.path(), set("10.43.0.1", "443"));
        assert!(matches!(without, Err(NotInCluster::Read { .. })));
        std::fs::write(path("namespace"), "cattle-fleet-system").unwrap();
        let config = in_pod(account.path(), set("10.43.0.1", "443")).unwrap();
        assert_eq!(config.cluster_url, "https://10.43.0.1:443");
        assert_eq!(config.default_namespace, "cattle-fleet-system");
        assert_eq!(config.root_cert_file, Some(path("ca.crt")));
        let token = path("token").display().to_string();
        assert_eq!(config.auth_info.token_file, Some(token));
        assert!(config.proxy_url.is_none());
        let config = in_pod(account.path(), set("fd00::1", "6443")).unwrap();
        assert_eq!(config.cluster_url, "https://[fd00::1]:6443");
        for (host, port) in [("", "443"), ("10.43.0.1", "")] {
            let none = in_pod(account.path(), set(host, port));
            assert!(matches!(none, Err(NotInCluster::Variable { .. })));
        }
    }
}
