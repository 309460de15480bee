//! Which chart: a path, an address, or a name in a repository, and how to reach it.
//!
//! Mirrors `addChartPathOptionsFlags` (`pkg/cmd/flags.go`) and `LocateChart` (`pkg/action/install.go`).

use std::path::{Path, PathBuf};

use chart::source::{Access, ChartRef, Credentials, Fetcher, Settings};
use chart::{Chart, Warning, loader};

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

    /// User name for the repository or registry
    #[arg(long, default_value = "", hide_default_value = true)]
    pub username: String,

    /// Password for the repository or registry
    #[arg(long, default_value = "", hide_default_value = true)]
    pub password: String,

    /// Certificates to trust when fetching, in PEM
    #[arg(long)]
    pub ca_file: Option<PathBuf>,

    /// Accept any certificate when fetching
    #[arg(long)]
    pub insecure_skip_tls_verify: bool,

    /// Fetch from the registry without TLS
    #[arg(long)]
    pub plain_http: bool,
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
    /// Finds a chart and fetches it where it is not here.
    ///
    /// # Errors
    /// It is not there, or cannot be had.
    pub fn locate(&self, reference: &str) -> Result<Located, String> {
        if self.needs_fetching(reference) {
            return self.fetch(reference).map(Located::Archive);
        }
        let path = Path::new(reference);
        if !path.exists() {
            return Err(format!(
                "path {} not found",
                golib::strconv::quote(reference)
            ));
        }
        Ok(Located::Path(path.to_owned()))
    }

    fn needs_fetching(&self, reference: &str) -> bool {
        let remote = ["oci://", "http://", "https://"];
        !self.repo.is_empty() || remote.iter().any(|scheme| reference.starts_with(scheme))
    }

    fn fetch(&self, reference: &str) -> Result<bytes::Bytes, String> {
        let is_registry = reference.starts_with("oci://");
        let chart = ChartRef {
            repo: if is_registry {
                reference.to_owned()
            } else {
                self.repo.clone()
            },
            chart: if is_registry {
                String::new()
            } else {
                reference.to_owned()
            },
            version: self.version.clone(),
        };
        let ca = match &self.ca_file {
            Some(file) => Some(read_file(&file.display().to_string())?.into()),
            None => None,
        };
        let access = Access {
            credentials: Credentials::new(&self.username, &self.password),
            ca,
            insecure: self.insecure_skip_tls_verify,
            plain_http: self.plain_http,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let fetcher = Fetcher::new(Settings::from_environment());
        let fetched = runtime.block_on(fetcher.fetch(&chart, &access));
        fetched
            .map(|chart| chart.bytes)
            .map_err(|error| format!("{:#}", anyhow::Error::new(error)))
    }
}
