//! The credential Secret `fleet-agent`: a kubeconfig for upstream, readable by the Go agent too.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use release::kube::connection;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::bootstrap::Bootstrap;
use crate::config::{TlsMode, user_agent};

/// What the Secret holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// YAML.
    pub kubeconfig: Vec<u8>,
    /// Namespace upstream that holds this cluster's BundleDeployments.
    pub deployment_namespace: String,
    pub cluster_namespace: String,
    pub cluster_name: String,
}

impl Credential {
    /// Reads the Secret's data; absent keys are empty.
    pub fn from_data(data: &BTreeMap<String, ByteString>) -> Self {
        let bytes = |key: &str| data.get(key).map(|v| v.0.clone()).unwrap_or_default();
        let string = |key: &str| String::from_utf8_lossy(&bytes(key)).into_owned();
        Self {
            kubeconfig: bytes("kubeconfig"),
            deployment_namespace: string("deploymentNamespace"),
            cluster_namespace: string("clusterNamespace"),
            cluster_name: string("clusterName"),
        }
    }

    /// The Secret's data.
    pub fn to_data(&self) -> BTreeMap<String, ByteString> {
        [
            ("kubeconfig", self.kubeconfig.clone()),
            (
                "deploymentNamespace",
                self.deployment_namespace.clone().into_bytes(),
            ),
            (
                "clusterNamespace",
                self.cluster_namespace.clone().into_bytes(),
            ),
            ("clusterName", self.cluster_name.clone().into_bytes()),
        ]
        .map(|(key, value)| (key.to_owned(), ByteString(value)))
        .into()
    }
}

/// Name of the Secret upstream answers a registration with: `c-` and the hex SHA-256 of client ID
/// and random, cut to 63 characters.
pub fn secret_name(client_id: &str, client_random: &str) -> String {
    let hash = Sha256::new()
        .chain_update(client_id)
        .chain_update(client_random)
        .finalize();
    let mut name = format!("c-{}", golib::hex::encode(&hash));
    name.truncate(63);
    name
}

/// A kubeconfig as client-go writes it: cluster `cluster`, user `user`, context `default`.
///
/// # Errors
/// Printing YAML failed, which it does not for strings.
pub fn kubeconfig(
    bootstrap: &Bootstrap,
    token: &str,
    namespace: &str,
) -> Result<Vec<u8>, golib::yaml::Error> {
    let mut cluster = json!({"server": bootstrap.api_server_url});
    if let (Value::Object(cluster), false) = (&mut cluster, bootstrap.api_server_ca.is_empty()) {
        let ca = golib::base64::encode(&bootstrap.api_server_ca);
        cluster.insert("certificate-authority-data".into(), ca.into());
    }
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "contexts": [{
            "name": "default",
            "context": {"cluster": "cluster", "namespace": namespace, "user": "user"},
        }],
        "current-context": "default",
        "users": [{"name": "user", "user": {"token": token}}],
    });
    Ok(golib::yaml::encode(&config)?.into_bytes())
}

/// A kubeconfig that leads nowhere. Never quotes the kubeconfig, which holds a token.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("the kubeconfig for upstream is not UTF-8")]
    Encoding,
    #[error("the kubeconfig for upstream does not parse")]
    Syntax,
    #[error("the kubeconfig for upstream cannot be used")]
    Unusable(#[source] KubeconfigError),
}

/// Client configuration for upstream. The watched namespace is the context's.
///
/// In strict mode only the kubeconfig's CA is trusted (without one, the system's, as client-go);
/// in system-store mode both. No request is made to find out.
///
/// # Errors
/// The kubeconfig does not parse or names files or a context that are not there.
pub async fn client_config(
    kubeconfig: &[u8],
    mode: TlsMode,
) -> Result<kube::Config, CredentialError> {
    let text = std::str::from_utf8(kubeconfig).map_err(|_| CredentialError::Encoding)?;
    let parsed = Kubeconfig::from_yaml(text).map_err(|_| CredentialError::Syntax)?;
    let mut config = connection::config(parsed, &KubeConfigOptions::default())
        .await
        .map_err(CredentialError::Unusable)?;
    if let (TlsMode::SystemStore, Some(given)) = (mode, &mut config.root_cert) {
        let system = chart::trust::system_certificates();
        given.extend(system.iter().map(|certificate| certificate.to_vec()));
    }
    config.headers.push(user_agent());
    Ok(config)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn bootstrap() -> Bootstrap {
        Bootstrap {
            api_server_url: "https://upstream:6443".into(),
            api_server_ca: b"PEM".to_vec(),
            token: "t0".into(),
            token_name: "import".into(),
            cluster_namespace: "fleet-default".into(),
            system_registration_namespace: "cattle-fleet-clusters-system".into(),
        }
    }

    #[test]
    fn secret_names_match_the_controllers() {
        // sha256("idrandom"), as registration.SecretName prints it.
        let name = secret_name("id", "random");
        assert_eq!(name.len(), 63);
        assert!(name.starts_with("c-"));
        assert_eq!(name, secret_name("i", "drandom"));
    }

    #[tokio::test]
    async fn kubeconfigs_are_read_back() {
        let text = kubeconfig(&bootstrap(), "t1", "cluster-ns").unwrap();
        let parsed = Kubeconfig::from_yaml(std::str::from_utf8(&text).unwrap()).unwrap();
        assert_eq!(parsed.current_context.as_deref(), Some("default"));
        let context = parsed.contexts[0].context.clone().unwrap();
        assert_eq!(context.namespace.as_deref(), Some("cluster-ns"));
    }

    #[tokio::test]
    async fn a_broken_kubeconfig_is_not_quoted() {
        let error = client_config(b"users: [token: s3cret", TlsMode::Strict)
            .await
            .err()
            .unwrap();
        assert!(!crate::error::chain(&error).contains("s3cret"));
    }

    /// Whether the authorities lead to such an upstream is tested in e2e `registration`, whether they keep others away in `release/src/kube/tls.rs`.
    #[rstest]
    #[case::the_given_ones(TlsMode::Strict)]
    #[case::the_systems_too(TlsMode::SystemStore)]
    #[tokio::test]
    async fn each_mode_trusts_its_authorities(#[case] mode: TlsMode) {
        rustls::crypto::aws_lc_rs::default_provider()
            .install_default()
            .ok();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["upstream".into()]).unwrap();
        let given = params.self_signed(&key).unwrap();
        let trusting = async |pem: String| {
            let bootstrap = Bootstrap {
                api_server_ca: pem.into_bytes(),
                ..bootstrap()
            };
            let text = kubeconfig(&bootstrap, "t1", "cluster-ns").unwrap();
            let config = client_config(&text, mode).await.unwrap();
            connection::client(config.clone()).unwrap();
            config.root_cert
        };
        let mut expected = vec![given.der().to_vec()];
        if mode == TlsMode::SystemStore {
            let system = chart::trust::system_certificates();
            expected.extend(system.iter().map(|one| one.to_vec()));
        }
        let malformed = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        for before in ["", malformed] {
            let pem = format!("{before}{}", given.pem());
            assert_eq!(trusting(pem).await, Some(expected.clone()), "{before}");
        }
        // Without a given one client-go trusts the system's, in any mode.
        assert_eq!(trusting(String::new()).await, None);
    }

    #[test]
    fn the_secret_survives_a_round_trip() {
        let credential = Credential {
            kubeconfig: b"k".to_vec(),
            deployment_namespace: "d".into(),
            cluster_namespace: "n".into(),
            cluster_name: "c".into(),
        };
        assert!(Credential::from_data(&credential.to_data()) == credential);
    }
}
