//! TLS with API servers: kube's, but for whom it believes, which is [`chart::trust`]'s as for charts.
//!
//! kube refuses what Go accepts: a server whose self-signed certificate is the given one and calls itself a CA, and all of many
//! certificates for one that cannot be read.

use std::sync::Arc;

use chart::trust::{
    Authorities, AuthorityFile, AuthorityFileError, Verifier, certificates, to_pem,
};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use kube::client::{ConfigExt as _, RustlsTlsError};
use kube::config::Cluster;

/// TLS over connections of `tcp`, as the configuration wants it: the client's certificate, the server's name, whom it believes.
pub(super) fn connector<C>(config: &kube::Config, tcp: C) -> kube::Result<HttpsConnector<C>> {
    // kube's part believes nobody; who is believed comes instead.
    let mut without = config.clone();
    without.root_cert = Some(Vec::new());
    without.root_cert_file = None;
    let mut tls = without.rustls_client_config()?;
    if !config.accept_invalid_certs {
        let verifier = verifier(config).map_err(|error| kube::Error::Service(error.into()))?;
        tls.dangerous().set_certificate_verifier(Arc::new(verifier));
    }
    let mut builder = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into();
        let name =
            name.map_err(|error| kube::Error::RustlsTls(RustlsTlsError::InvalidServerName(error)))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_http1().wrap_connector(tcp))
}

/// As client-go: the given authorities alone, the system's where none are given.
fn verifier(config: &kube::Config) -> Result<Verifier, AuthorityFileError> {
    Ok(match (&config.root_cert_file, &config.root_cert) {
        (Some(file), _) => Verifier::File(AuthorityFile::open(file)?),
        (None, Some(given)) => Verifier::Authorities(Authorities::new(given)),
        (None, None) => Verifier::Authorities(Authorities::system()),
    })
}

/// Leaves those authorities of a cluster that can be read: kube gives up over one that cannot be, and says so where none can.
pub(super) fn keep_readable(cluster: &mut Cluster) {
    // An empty text names none.
    cluster
        .certificate_authority_data
        .take_if(|data| data.is_empty());
    cluster
        .certificate_authority
        .take_if(|path| path.is_empty());
    let pem = match (
        &cluster.certificate_authority_data,
        &cluster.certificate_authority,
    ) {
        (Some(data), _) => golib::base64::decode(data).ok(),
        (None, Some(path)) => std::fs::read(path).ok(),
        (None, None) => None,
    };
    let readable = certificates(&pem.unwrap_or_default());
    if !readable.is_empty() {
        let data = golib::base64::encode(to_pem(&readable));
        cluster.certificate_authority_data = Some(data);
    }
}

#[cfg(test)]
mod tests {
    use kube::config::{KubeConfigOptions, Kubeconfig};
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rstest::rstest;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::server::WebPkiClientVerifier;
    use rustls::{RootCertStore, ServerConfig};
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::super::connection;
    use super::*;

    const MALFORMED: &str = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    const NO_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    const CUT_OFF: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n";

    /// A self-signed certificate and its key. It calls itself a CA, as `openssl req -x509` makes them.
    fn self_signed(name: &str, until: i32) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap(), key)
    }

    /// An API server with a self-signed certificate for this name; it asks clients for a certificate by `clients`.
    struct Server {
        address: String,
        pem: String,
    }

    impl Server {
        async fn start(name: &str, until: i32, clients: Option<&rcgen::Certificate>) -> Self {
            rustls::crypto::aws_lc_rs::default_provider()
                .install_default()
                .ok();
            let (certificate, key) = self_signed(name, until);
            let builder = match clients {
                None => ServerConfig::builder().with_no_client_auth(),
                Some(clients) => {
                    let mut roots = RootCertStore::empty();
                    roots.add(clients.der().clone()).unwrap();
                    let verifier = WebPkiClientVerifier::builder(Arc::new(roots));
                    ServerConfig::builder().with_client_cert_verifier(verifier.build().unwrap())
                }
            };
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            let config = builder.with_single_cert(vec![certificate.der().clone()], key);
            let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("https://{}", listener.local_addr().unwrap());
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        continue;
                    };
                    let _ = stream.read(&mut [0; 4096]).await;
                    let answer =
                        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.shutdown().await;
                }
            });
            Self {
                address,
                pem: certificate.pem(),
            }
        }

        /// With these fields of the kubeconfig's cluster and user.
        async fn config(&self, cluster: Value, user: Value) -> kube::Config {
            let mut described = json!({"server": self.address});
            let fields = cluster.as_object().unwrap().clone();
            described.as_object_mut().unwrap().extend(fields);
            let kubeconfig = json!({
                "clusters": [{"name": "c", "cluster": described}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "d", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "d",
            });
            let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).unwrap();
            let config = connection::config(kubeconfig, &KubeConfigOptions::default()).await;
            config.unwrap()
        }

        async fn trusting(&self, pem: &str) -> Result<String, String> {
            let cluster = json!({"certificate-authority-data": golib::base64::encode(pem)});
            ask(self.config(cluster, json!({})).await).await
        }
    }

    async fn ask(config: kube::Config) -> Result<String, String> {
        let client = connection::client(config).map_err(|error| crate::error_chain(&error))?;
        let request = http::Request::get("/healthz").body(Vec::new()).unwrap();
        let answer = client.request_text(request).await;
        answer.map_err(|error| crate::error_chain(&error))
    }

    const HERE: &str = "127.0.0.1";

    #[tokio::test]
    async fn a_self_signed_server_is_reached_where_its_certificate_is_given() {
        let server = Server::start(HERE, 2100, None).await;
        assert_eq!(server.trusting(&server.pem).await.unwrap(), "ok");
    }

    #[rstest]
    #[case::malformed(MALFORMED)]
    #[case::no_certificate(NO_CERTIFICATE)]
    #[case::cut_off(CUT_OFF)]
    #[tokio::test]
    async fn an_authority_that_cannot_be_read_hides_no_other(#[case] bad: &str) {
        let server = Server::start(HERE, 2100, None).await;
        let around = format!("{bad}{}{bad}", server.pem);
        assert_eq!(server.trusting(&around).await.unwrap(), "ok");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.crt");
        std::fs::write(&file, &around).unwrap();
        let by_file = json!({"certificate-authority": file, "certificate-authority-data": ""});
        let by_file = server.config(by_file, json!({})).await;
        assert_eq!(ask(by_file).await.unwrap(), "ok");
        // As in a pod.
        let mut renewed = kube::Config::new(server.address.parse().unwrap());
        renewed.root_cert_file = Some(file);
        assert_eq!(ask(renewed).await.unwrap(), "ok");
    }

    #[tokio::test]
    async fn another_self_signed_server_is_refused() {
        let server = Server::start(HERE, 2100, None).await;
        let (other, _) = self_signed(HERE, 2100);
        let failed = server.trusting(&other.pem()).await.unwrap_err();
        assert!(failed.contains("UnknownIssuer"), "{failed}");
        // System roots are not consulted when CAs are configured, or explicitly none; where nothing is configured they do not know it either.
        let mut config = kube::Config::new(server.address.parse().unwrap());
        for given in [Some(Vec::new()), None] {
            config.root_cert = given;
            let failed = ask(config.clone()).await.unwrap_err();
            assert!(failed.contains("UnknownIssuer"), "{failed}");
        }
    }

    #[tokio::test]
    async fn a_self_signed_server_is_held_to_its_dates() {
        let server = Server::start(HERE, 2020, None).await;
        let failed = server.trusting(&server.pem).await.unwrap_err();
        assert!(failed.contains("expired"), "{failed}");
    }

    #[tokio::test]
    async fn a_self_signed_server_is_held_to_its_names() {
        let server = Server::start("upstream.example", 2100, None).await;
        let failed = server.trusting(&server.pem).await.unwrap_err();
        assert!(failed.contains("not valid for name"), "{failed}");
        let named = json!({
            "certificate-authority-data": golib::base64::encode(&server.pem),
            "tls-server-name": "upstream.example",
        });
        let named = server.config(named, json!({})).await;
        assert_eq!(ask(named).await.unwrap(), "ok");
        let unchecked = json!({"insecure-skip-tls-verify": true});
        let unchecked = server.config(unchecked, json!({})).await;
        assert_eq!(ask(unchecked).await.unwrap(), "ok");
    }

    #[tokio::test]
    async fn a_clients_certificate_is_shown() {
        let (client, key) = self_signed("client.example", 2100);
        let params = CertificateParams::new(vec!["client.example".to_owned()]).unwrap();
        let own = KeyPair::generate().unwrap();
        let issuer = rcgen::Issuer::from_ca_cert_der(client.der(), &key).unwrap();
        let issued = params.signed_by(&own, &issuer).unwrap();
        let server = Server::start(HERE, 2100, Some(&client)).await;
        let given = json!({"certificate-authority-data": golib::base64::encode(&server.pem)});
        let user = json!({
            "client-certificate-data": golib::base64::encode(issued.pem()),
            "client-key-data": golib::base64::encode(own.serialize_pem()),
        });
        let shown = server.config(given.clone(), user).await;
        assert_eq!(ask(shown).await.unwrap(), "ok");
        let nothing = server.config(given, json!({})).await;
        assert!(ask(nothing).await.is_err());
    }
}
