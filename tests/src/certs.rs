//! Private certificate authorities and server certificates for 127.0.0.1.

use std::sync::Arc;

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

/// Installs the one crypto provider of this workspace; harmless when it is already there.
pub fn install_crypto_provider() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// A certificate authority that only those trust who are configured to.
pub struct Authority {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

/// A server's or client's certificate and key, both PEM.
#[derive(Clone)]
pub struct IssuedCertificate {
    /// The certificate.
    pub certificate: String,
    /// Its PKCS#8 key.
    pub key: String,
}

impl Authority {
    /// A fresh authority.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new(common_name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { params, key, pem })
    }

    /// The authority's certificate as PEM: what a client has to trust.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for a server at 127.0.0.1 and localhost, which serves a client as well.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn issue(&self, extra_names: &[&str]) -> Result<IssuedCertificate> {
        let mut names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        names.extend(extra_names.iter().map(ToString::to_string));
        let key = KeyPair::generate()?;
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
        Ok(IssuedCertificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

impl IssuedCertificate {
    /// A server's at 127.0.0.1 that nobody but itself vouches for, and that calls itself a CA, as `openssl req -x509` makes them.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn self_signed() -> Result<Self> {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        Ok(Self {
            certificate: params.self_signed(&key)?.pem(),
            key: key.serialize_pem(),
        })
    }

    /// What rustls needs to serve with this certificate those clients that have one of `clients`, or all.
    ///
    /// # Errors
    /// When rustls refuses the pair.
    pub fn server_config(&self, clients: Option<&Authority>) -> Result<Arc<ServerConfig>> {
        install_crypto_provider();
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())?;
        let builder = match clients {
            None => ServerConfig::builder().with_no_client_auth(),
            Some(clients) => {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(clients.pem.as_bytes())?)?;
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build()?;
                ServerConfig::builder().with_client_cert_verifier(verifier)
            }
        };
        Ok(Arc::new(builder.with_single_cert(chain, key)?))
    }
}
