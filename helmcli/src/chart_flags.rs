//! Which chart: a path, an address, or a name in a repository, and how to reach it.
//!
//! Mirrors `addChartPathOptionsFlags` (`pkg/cmd/flags.go`) and `LocateChart` (`pkg/action/install.go`).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use chart::source::{Access, ChartRef, Credentials};
use chart::{Chart, Warnings, loader};
use golib::strconv::quote;

use crate::access::{overridden, registry_access, tls_files};
use crate::client::{Client, Fetched};
use crate::fetch_errors::message;
use crate::helm_home::HelmFlags;
use crate::repositories;
use crate::verify;

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

    /// Take the chart only with a provenance file that a key of the keyring signed
    #[arg(long)]
    pub verify: bool,

    /// Public keys for --verify, as gpg --export writes them; ~/.gnupg/pubring.gpg without the flag
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
    pub fn load(&self, warnings: &mut Warnings) -> Result<Chart, String> {
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
                let absolute = std::path::absolute(path).map_err(|error| error.to_string())?;
                let cleaned = golib::path::clean(absolute.as_os_str().as_encoded_bytes());
                let cleaned = PathBuf::from(OsString::from_vec(cleaned));
                return match self.verify {
                    // What was verified is what is rendered, whoever writes to the file meanwhile.
                    true => verify::file(&cleaned, &self.keyring).map(Located::Archive),
                    false => Ok(Located::Path(cleaned)),
                };
            }
            if path.is_absolute() || reference.starts_with('.') {
                return Err(format!("path {} not found", quote(reference)));
            }
        }
        let client = Client::new()?;
        let fetched = self.fetch(&client, reference, helm)?;
        if self.verify {
            verify::fetched(&client, &fetched, &self.keyring)?;
        }
        Ok(Located::Archive(fetched.archive.bytes))
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
            ..Access::default()
        })
    }

    fn fetch(&self, client: &Client, reference: &str, helm: &HelmFlags) -> Result<Fetched, String> {
        let access = self.access()?;
        let version = self.version();
        if !self.repo.is_empty() {
            let (url, digest) =
                repositories::find_at(client, &self.repo, reference, &version, &access)?;
            // Whoever has the archive in an index that is kept has a say in how to get it.
            let owner = match url.starts_with("oci://") {
                true => None,
                false => repositories::owner(helm, &url)?,
            };
            return match owner {
                Some(owner) => {
                    let access = overridden(access, &owner)?;
                    self.listed(client, helm, &owner.url, &url, &digest, &access)
                }
                None => self.listed(client, helm, &self.repo, &url, &digest, &access),
            };
        }
        let has_host = |scheme: &str| {
            reference
                .strip_prefix(scheme)
                .is_some_and(|rest| !rest.is_empty())
        };
        if has_host("oci://") {
            let access = registry_access(helm, reference, &access);
            let archive = client.pull(reference, &version, &access)?;
            return Ok(Fetched::new(reference, "", archive, access));
        }
        check_address(reference)?;
        if has_host("http://") || has_host("https://") {
            if let Some(owner) = repositories::owner(helm, reference)? {
                let access = overridden(access, &owner)?;
                return self.listed(client, helm, &owner.url, reference, "", &access);
            }
            let chart = ChartRef {
                chart: reference.to_owned(),
                ..ChartRef::default()
            };
            let fetched = client.run(async |fetcher| fetcher.fetch(&chart, &access).await);
            let archive = fetched.map_err(|error| message(&error))?;
            return Ok(Fetched::new("", reference, archive, access));
        }
        // Go's URLs forget the slashes of an empty host.
        let reference = reference.strip_suffix("//").unwrap_or(reference);
        let listed = repositories::find(helm, reference, &version)?;
        let access = overridden(access, &listed.repository)?;
        let origin = &listed.repository.url;
        self.listed(client, helm, origin, &listed.url, &listed.digest, &access)
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
    ) -> Result<Fetched, String> {
        match url.starts_with("oci://") {
            true => {
                // The credentials are the repository's, not the registry's.
                let access = Access {
                    credentials: None,
                    ..access.clone()
                };
                let access = registry_access(helm, url, &access);
                let archive = client.quietly(url, "", &access)?;
                Ok(Fetched::new(url, "", archive, access))
            }
            false => {
                let archive = client.archive(repository, url, digest, access)?;
                Ok(Fetched::new(repository, url, archive, access.clone()))
            }
        }
    }
}

/// Refuses addresses that cannot be a chart's.
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
