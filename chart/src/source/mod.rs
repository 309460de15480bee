//! Fetching charts: HTTP repositories, plain archives, OCI registries. The only network I/O here.
//!
//! Owns connections, trust, credentials, limits and what is remembered between fetches: a chart is
//! downloaded once, however many ask for it. What is inside an archive is [`crate`]'s business;
//! here it is only checked to be whole. Behaviour follows Fleet's `internal/bundlereader` and
//! Helm's `pkg/repo` and `pkg/registry`; versions are picked exactly as there.
//!
//! ```no_run
//! # async fn example() -> Result<(), chart::source::FetchError> {
//! use chart::source::{Access, ChartRef, Fetcher, Settings};
//! let fetcher = Fetcher::new(Settings::from_environment());
//! let nginx = ChartRef {
//!     repo: "https://charts.example/stable".into(),
//!     chart: "nginx".into(),
//!     version: "^1".into(),
//! };
//! let fetched = fetcher.fetch(&nginx, &Access::default()).await?;
//! assert!(fetched.bytes.starts_with(&[0x1f, 0x8b]));
//! # Ok(()) }
//! ```

mod access;
mod archive;
mod cache;
mod cached;
mod credentials;
mod deadline;
mod disk;
mod echoed;
mod error;
mod fetched;
mod fetcher;
mod host;
mod http;
mod index;
mod index_filter;
mod index_schema;
mod indexes;
mod logins;
mod memory;
mod oci;
mod proxy;
mod pulls;
mod reference;
mod safe_url;
mod schemas;
mod settings;
mod signatures;
mod tls;

pub use access::{Access, HostAccess, Hosts};
pub use credentials::{Credentials, Identity, Secret};
pub use disk::DiskSettings;
pub use error::{CredentialsUse, FetchError, TransportError};
pub use fetched::{Artifact, Attached, ChartSignatures, FetchedChart, SignatureKinds};
pub use fetcher::Fetcher;
pub use host::HostPattern;
pub use http::Transport;
pub use index::{Entry, Index, IndexError, LookupError, Skipped, Strictness};
pub use logins::{Logins, LoginsError};
pub use memory::{Memory, Reservation, Waits};
pub use oci::{Reference, pick as pick_tag};
pub use proxy::ProxyRules;
pub use reference::ChartRef;
pub use safe_url::SafeUrl;
pub use schemas::SchemaFetcher;
pub use settings::Settings;
pub use tls::proxy_trust;
