//! Which chart: a path, an address, or a name in a repository, and how to reach it.
//!
//! Mirrors `addChartPathOptionsFlags` (`pkg/cmd/flags.go`) and `LocateChart` (`pkg/action/install.go`).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use chart::source::{
    Access, ChartRef, Credentials, FetchedChart, Fetcher, Identity, SafeUrl, Settings, Strictness,
};
use chart::{Chart, Warning, loader};
use golib::strconv::quote;

use super::console::say;
use super::fetch_errors::{from_repository, told};
use super::helm_home::HelmFlags;
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
        let ca = match self.ca_file.as_str() {
            "" => None,
            file => {
                let missing =
                    |cause: String| format!("missing registry client: {}", no_ca(file, &cause));
                Some(read_file(file).map_err(missing)?.into())
            }
        };
        Ok(Access {
            credentials: Credentials::new(&self.username, &self.password),
            ca,
            insecure: self.insecure_skip_tls_verify,
            plain_http: self.plain_http,
            identity: identity(&self.cert_file, &self.key_file)?,
            passes_credentials: self.pass_credentials,
        })
    }

    fn fetch(&self, reference: &str, helm: &HelmFlags) -> Result<bytes::Bytes, String> {
        let access = self.access()?;
        let version = self.version();
        let client = Client::new()?;
        if !self.repo.is_empty() {
            let chart = ChartRef {
                repo: self.repo.clone(),
                chart: reference.to_owned(),
                version,
            };
            let fetched = client.run(async |fetcher| fetcher.fetch(&chart, &access).await);
            let fetched = fetched.map_err(|error| from_repository(&chart, &error));
            return fetched.map(|chart| chart.bytes);
        }
        let has_host = |scheme: &str| {
            reference
                .strip_prefix(scheme)
                .is_some_and(|rest| !rest.is_empty())
        };
        if has_host("oci://") {
            let host = reference["oci://".len()..].split('/').next();
            let login = host.and_then(|host| repositories::registry_login(helm, host));
            let access = Access {
                credentials: access.credentials.clone().or(login),
                ..access
            };
            let pulled = client.pull(reference, &version, &access);
            return pulled.map(|chart| chart.bytes);
        }
        check_address(reference)?;
        if has_host("http://") || has_host("https://") {
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
        let (url, entry) = (&listed.url, &listed.entry);
        let fetched = client.run(async |fetcher| {
            fetcher
                .fetch_entry(url, &listed.chart, entry, &access)
                .await
        });
        fetched
            .map(|chart| chart.bytes)
            .map_err(|error| told(&error))
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
    let ca = match repository.ca_file.as_str() {
        "" => access.ca.clone(),
        file => Some(read_file(file).map_err(|cause| no_ca(file, &cause))?.into()),
    };
    let identity = identity(&repository.cert_file, &repository.key_file)?;
    let has_own = repository.credentials.is_some();
    Ok(Access {
        credentials: repository
            .credentials
            .clone()
            .or(access.credentials.clone()),
        ca,
        insecure: access.insecure || repository.insecure,
        identity: identity.or(access.identity.clone()),
        passes_credentials: match has_own {
            true => repository.passes_credentials,
            false => access.passes_credentials,
        },
        ..access
    })
}

fn no_ca(file: &str, cause: &str) -> String {
    format!(
        "can't create TLS config for client: can't read CA file: {}: {cause}",
        quote(file)
    )
}

fn identity(cert_file: &str, key_file: &str) -> Result<Option<Identity>, String> {
    if cert_file.is_empty() || key_file.is_empty() {
        return Ok(None);
    }
    let certificates = read_file(cert_file)?;
    let key = String::from_utf8_lossy(&read_file(key_file)?).into_owned();
    Ok(Some(Identity::new(certificates, key)))
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
        let pulled = pulled.map_err(|error| told(&error))?;
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
