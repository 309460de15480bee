//! Which chart: a path, an address, or a name in a repository, and how to reach it.
//!
//! Mirrors `addChartPathOptionsFlags` (`pkg/cmd/flags.go`) and `LocateChart` (`pkg/action/install.go`).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chart::source::{
    Access, ChartRef, Credentials, Entry, FetchedChart, Fetcher, Identity, SafeUrl, Settings,
    Strictness,
};
use chart::{Chart, Warning, loader};
use golib::strconv::quote;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::console::say;
use super::fetch_errors::told;
use super::helm_home::HelmFlags;
use super::logins;
use super::repositories::{self, Repository};
use super::value_flags::read_file;

/// Flags that tell where a chart comes from; names and meanings are helm's.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ChartFlags {
    /// Chart repository to take the chart from
    #[arg(long, default_value = "", hide_default_value = true)]
    pub repo: String,

    /// Version or constraint of the chart to take
    #[arg(long, default_value = "", hide_default_value = true)]
    pub version: String,

    /// Take development versions too: the same as --version '>0.0.0-0'
    #[arg(long)]
    pub devel: bool,

    /// User name for the repository or registry
    #[arg(long, default_value = "", hide_default_value = true)]
    pub username: String,

    /// Password for the repository or registry
    #[arg(long, default_value = "", hide_default_value = true)]
    pub password: String,

    /// Send user name and password to every host an index names
    #[arg(long)]
    pub pass_credentials: bool,

    /// Certificates to trust when fetching, in PEM
    #[arg(long, default_value = "", hide_default_value = true)]
    pub ca_file: String,

    /// Certificate to show when fetching, in PEM
    #[arg(long, default_value = "", hide_default_value = true)]
    pub cert_file: String,

    /// Key of that certificate, in PEM
    #[arg(long, default_value = "", hide_default_value = true)]
    pub key_file: String,

    /// Accept any certificate when fetching
    #[arg(long)]
    pub insecure_skip_tls_verify: bool,

    /// Fetch from the registry without TLS
    #[arg(long)]
    pub plain_http: bool,

    /// Refused: signatures are not checked
    #[arg(long)]
    pub verify: bool,

    /// Accepted and ignored without --verify
    #[arg(long, default_value = "", hide_default_value = true)]
    pub keyring: String,
}

/// A chart that was found: here, or fetched.
#[derive(Debug)]
pub enum Located {
    Path(PathBuf),
    Archive(bytes::Bytes),
}

impl Located {
    /// Reads it.
    ///
    /// # Errors
    /// It is no chart; the text is helm's.
    pub fn load(&self, warnings: &mut Vec<Warning>) -> Result<Chart, String> {
        let loaded = match self {
            Self::Path(path) => loader::load(path, warnings),
            Self::Archive(bytes) => loader::load_archive(&bytes[..], warnings),
        };
        loaded.map_err(|error| error.to_string())
    }
}

impl ChartFlags {
    /// Finds a chart, as helm looks for it, and fetches it where it is not here.
    ///
    /// # Errors
    /// It is not there, or cannot be had.
    pub fn locate(&self, reference: &str, helm: &HelmFlags) -> Result<Located, String> {
        let reference = reference.trim();
        if self.repo.is_empty() {
            let path = Path::new(reference);
            if path.exists() {
                if self.verify && path.is_dir() {
                    return Err("unpacked charts cannot be verified".to_owned());
                }
                self.refuse_verify()?;
                let absolute = std::path::absolute(path).map_err(|error| error.to_string())?;
                let cleaned = golib::path::clean(absolute.as_os_str().as_encoded_bytes());
                return Ok(Located::Path(OsString::from_vec(cleaned).into()));
            }
            if path.is_absolute() || reference.starts_with('.') {
                return Err(format!("path {} not found", quote(reference)));
            }
        }
        self.refuse_verify()?;
        self.fetch(reference, helm).map(Located::Archive)
    }

    fn refuse_verify(&self) -> Result<(), String> {
        match self.verify {
            true => Err("--verify is not supported: signatures are not checked".to_owned()),
            false => Ok(()),
        }
    }

    fn version(&self) -> String {
        match (self.version.trim(), self.devel) {
            ("", true) => ">0.0.0-0".to_owned(),
            (version, _) => version.to_owned(),
        }
    }

    /// How the flags say to reach a server.
    ///
    /// # Errors
    /// A certificate file cannot be read.
    pub fn access(&self) -> Result<Access, String> {
        let (ca, identity) = tls_files(&self.ca_file, &self.cert_file, &self.key_file)
            .map_err(|cause| format!("missing registry client: {cause}"))?;
        Ok(Access {
            credentials: Credentials::new(&self.username, &self.password),
            ca,
            insecure: self.insecure_skip_tls_verify,
            plain_http: self.plain_http,
            identity,
            passes_credentials: self.pass_credentials,
        })
    }

    fn fetch(&self, reference: &str, helm: &HelmFlags) -> Result<bytes::Bytes, String> {
        let access = self.access()?;
        let version = self.version();
        let client = Client::new()?;
        if !self.repo.is_empty() {
            let (url, digest) =
                repositories::find_at(&client, &self.repo, reference, &version, &access)?;
            // Whoever has the archive in an index that is kept has a say in how to get it.
            let owner = match url.starts_with("oci://") {
                true => None,
                false => repositories::owner(helm, &url)?,
            };
            return match owner {
                Some(owner) => {
                    let access = overridden(access, &owner)?;
                    self.listed(&client, helm, &owner.url, &url, &digest, &access)
                }
                None => self.listed(&client, helm, &self.repo, &url, &digest, &access),
            };
        }
        let has_host = |scheme: &str| {
            reference
                .strip_prefix(scheme)
                .is_some_and(|rest| !rest.is_empty())
        };
        if has_host("oci://") {
            let access = registry_access(helm, reference, &access);
            let pulled = client.pull(reference, &version, &access);
            return pulled.map(|chart| chart.bytes);
        }
        check_address(reference)?;
        if has_host("http://") || has_host("https://") {
            if let Some(owner) = repositories::owner(helm, reference)? {
                let access = overridden(access, &owner)?;
                return self.listed(&client, helm, &owner.url, reference, "", &access);
            }
            let chart = ChartRef {
                chart: reference.to_owned(),
                ..ChartRef::default()
            };
            let fetched = client.run(async |fetcher| fetcher.fetch(&chart, &access).await);
            return fetched
                .map(|chart| chart.bytes)
                .map_err(|error| told(&error));
        }
        // Go's URLs forget the slashes of an empty host.
        let reference = reference.strip_suffix("//").unwrap_or(reference);
        let listed = repositories::find(helm, reference, &version)?;
        let access = overridden(access, &listed.repository)?;
        let origin = &listed.repository.url;
        self.listed(&client, helm, origin, &listed.url, &listed.digest, &access)
    }

    /// Gets an archive that an index names.
    fn listed(
        &self,
        client: &Client,
        helm: &HelmFlags,
        repository: &str,
        url: &str,
        digest: &str,
        access: &Access,
    ) -> Result<bytes::Bytes, String> {
        let fetched = match url.starts_with("oci://") {
            true => {
                // The credentials are the repository's, not the registry's.
                let access = Access {
                    credentials: None,
                    ..access.clone()
                };
                client.quietly(url, "", &registry_access(helm, url, &access))
            }
            false => client.archive(repository, url, digest, access),
        };
        fetched.map(|chart| chart.bytes)
    }
}

/// With the login stored for a registry where no other is given.
fn registry_access(helm: &HelmFlags, reference: &str, access: &Access) -> Access {
    let host = reference.trim_start_matches("oci://").split('/').next();
    let login = host.and_then(|host| logins::for_registry(helm, host));
    Access {
        credentials: access.credentials.clone().or(login),
        ..access.clone()
    }
}

/// Refuses addresses that are none of a chart.
fn check_address(reference: &str) -> Result<(), String> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let is_scheme =
        |text: &str| text.starts_with(char::is_alphabetic) && text.chars().all(is_letter);
    match reference.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => match rest.split_once('/') {
            None if !rest.is_empty() => Err(repositories::not_absolute(reference)),
            None | Some(("", _)) => Ok(()),
            Some(_) if ["http", "https"].contains(&scheme) => Ok(()),
            Some(_) => Err(format!("scheme {} not supported", quote(scheme))),
        },
        _ => Ok(()),
    }
}

/// What a configured repository says of itself goes over the flags.
pub fn overridden(access: Access, repository: &Repository) -> Result<Access, String> {
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

type TlsFiles = (Option<Arc<[u8]>>, Option<Identity>);

/// Certificates to trust, and the one to show with its key.
fn tls_files(ca_file: &str, cert_file: &str, key_file: &str) -> Result<TlsFiles, String> {
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
    if let Some((certificates, key)) = pair {
        let unusable = |what: &str| {
            failed(format!(
                "unable to load cert from key pair: {NO_PEM} {what} input"
            ))
        };
        if !has_certificate(&certificates) {
            return Err(unusable("certificate"));
        }
        if PrivateKeyDer::from_pem_slice(&key).is_err() {
            return Err(unusable("key"));
        }
        let key = String::from_utf8_lossy(&key).into_owned();
        identity = Some(Identity::new(certificates, key));
    }
    let Some(ca) = ca else {
        return Ok((None, identity));
    };
    match ca.is_empty() || has_certificate(&ca) {
        true => Ok((Some(ca.into()), identity)),
        false => Err(failed(
            "failed to append certificates from pem block".into(),
        )),
    }
}

fn has_certificate(pem: &[u8]) -> bool {
    CertificateDer::pem_slice_iter(pem).any(|found| found.is_ok())
}

/// What helm says of tags with an underscore.
const UNDERSCORE: &str = "
OCI artifact references (e.g. tags) do not support the plus sign (+). To support
storing semantic versions, Helm adopts the convention of changing plus (+) to
an underscore (_) in chart version tags when pushing to a registry and back to
a plus (+) when pulling from a registry.";

/// Fetches, one thing after the other.
pub struct Client {
    runtime: tokio::runtime::Runtime,
    fetcher: Fetcher,
}

impl Client {
    /// A client that reads indexes as helm does.
    ///
    /// # Errors
    /// There is no room for a runtime.
    pub fn new() -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let settings = Settings {
            strictness: Strictness::Helm,
            ..Settings::from_environment()
        };
        Ok(Self {
            runtime,
            fetcher: Fetcher::new(settings),
        })
    }

    /// Runs one fetch to its end.
    pub fn run<T>(&self, fetch: impl AsyncFnOnce(&Fetcher) -> T) -> T {
        self.runtime.block_on(fetch(&self.fetcher))
    }

    /// Pulls a chart from a registry, and tells so as helm does.
    ///
    /// # Errors
    /// It cannot be had; the text is helm's.
    pub fn pull(
        &self,
        reference: &str,
        version: &str,
        access: &Access,
    ) -> Result<FetchedChart, String> {
        let pulled = self.quietly(reference, version, access)?;
        // Registries know no `+`.
        let name = pulled.url.as_str().trim_start_matches("oci://");
        let name = name.replace('+', "_");
        say(&format!("Pulled: {name}"));
        let digest = pulled.manifest.as_deref().unwrap_or_default();
        say(&format!("Digest: {digest}"));
        if name.contains('_') {
            say(&format!("{name} contains an underscore.\n{UNDERSCORE}"));
        }
        Ok(pulled)
    }

    /// Pulls a chart from a registry that an index names.
    fn quietly(
        &self,
        reference: &str,
        version: &str,
        access: &Access,
    ) -> Result<FetchedChart, String> {
        let tag = reference
            .rsplit('/')
            .next()
            .and_then(|name| name.split_once(':'));
        if let Some((_, tag)) = tag.filter(|(_, tag)| tag.contains('+')) {
            return Err(format!("invalid reference: invalid tag {}", quote(tag)));
        }
        let chart = ChartRef {
            repo: reference.to_owned(),
            chart: String::new(),
            version: version.to_owned(),
        };
        let pulled = self.run(async |fetcher| fetcher.fetch(&chart, access).await);
        pulled.map_err(|error| told(&error))
    }

    /// Downloads an archive that the index of a repository names.
    ///
    /// # Errors
    /// It cannot be had; the text is helm's.
    pub fn archive(
        &self,
        repository: &str,
        url: &str,
        digest: &str,
        access: &Access,
    ) -> Result<FetchedChart, String> {
        let origin = SafeUrl::parse(repository)
            .map_err(|_| format!("invalid chart URL format: {repository}"))?;
        let entry = Entry {
            urls: Some(vec![url.to_owned()]),
            digest: digest.to_owned(),
            ..Entry::default()
        };
        self.run(async |fetcher| fetcher.fetch_entry(&origin, "", &entry, access).await)
            .map_err(|error| told(&error))
    }
}

/// What is at an address, for values files.
///
/// # Errors
/// It cannot be had.
pub fn get(url: &SafeUrl) -> Result<Vec<u8>, String> {
    let client = Client::new()?;
    let answer = client.run(async |fetcher| fetcher.get(url, &Access::default()).await);
    answer.map(Vec::from).map_err(|error| told(&error))
}
