//! How servers are reached: what flags, the configured repositories and stored logins say of it.

use std::sync::Arc;

use chart::source::{Access, Identity};
use chart::trust::certificates;
use golib::strconv::quote;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use crate::files::read_file;
use crate::helm_home::HelmFlags;
use crate::logins;
use crate::repositories::Repository;

/// With the login stored for a registry where no other is given.
pub(crate) fn registry_access(helm: &HelmFlags, reference: &str, access: &Access) -> Access {
    let host = reference.trim_start_matches("oci://").split('/').next();
    let login = host.and_then(|host| logins::for_registry(helm, host));
    Access {
        credentials: access.credentials.clone().or(login),
        ..access.clone()
    }
}

/// What a configured repository says of itself goes over the flags.
pub(crate) fn overridden(access: Access, repository: &Repository) -> Result<Access, String> {
    let (ca, identity) = tls_files(
        &repository.ca_file,
        &repository.cert_file,
        &repository.key_file,
    )?;
    let has_own = repository.credentials.is_some();
    Ok(Access {
        credentials: repository
            .credentials
            .clone()
            .or(access.credentials.clone()),
        ca: ca.or(access.ca.clone()),
        insecure: access.insecure || repository.insecure,
        identity: identity.or(access.identity.clone()),
        passes_credentials: match has_own {
            true => repository.passes_credentials,
            false => access.passes_credentials,
        },
        ..access
    })
}

pub(crate) type TlsFiles = (Option<Arc<[u8]>>, Option<Identity>);

/// Certificates to trust, and the one to show with its key.
pub(crate) fn tls_files(
    ca_file: &str,
    cert_file: &str,
    key_file: &str,
) -> Result<TlsFiles, String> {
    const NO_PEM: &str = "tls: failed to find any PEM data in";
    let failed = |cause: String| format!("can't create TLS config for client: {cause}");
    let read = |what: &str, file: &str| {
        read_file(file).map_err(|cause| format!("{what}: {}: {cause}", quote(file)))
    };
    let shows = !cert_file.is_empty() && !key_file.is_empty();
    let pair = || {
        let certificates = read("unable to read cert file", cert_file)?;
        Ok((certificates, read("unable to read key file", key_file)?))
    };
    let (pair, ca) = match (
        shows.then(pair).transpose(),
        (!ca_file.is_empty())
            .then(|| read("can't read CA file", ca_file))
            .transpose(),
    ) {
        (Ok(pair), Ok(ca)) => (pair, ca),
        (Err(cause), Ok(_)) | (Ok(_), Err(cause)) => return Err(failed(cause)),
        (Err(first), Err(second)) => return Err(failed(format!("{first}\n{second}"))),
    };
    let mut identity = None;
    if let Some((shown, key)) = pair {
        let unusable = |what: &str| {
            failed(format!(
                "unable to load cert from key pair: {NO_PEM} {what} input"
            ))
        };
        if certificates(&shown).is_empty() {
            return Err(unusable("certificate"));
        }
        if PrivateKeyDer::from_pem_slice(&key).is_err() {
            return Err(unusable("key"));
        }
        let key = String::from_utf8_lossy(&key).into_owned();
        identity = Some(Identity::new(shown, key));
    }
    let Some(ca) = ca else {
        return Ok((None, identity));
    };
    match !ca.is_empty() && certificates(&ca).is_empty() {
        true => Err(failed(
            "failed to append certificates from pem block".into(),
        )),
        false => Ok((Some(ca.into()), identity)),
    }
}
