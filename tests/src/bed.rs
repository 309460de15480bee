//! The bed itself: two clusters, a registry and a repository, started once for a program and shared by all its tests.
//!
//! Tests take names of their own from [`unique`] and never clean up behind themselves; the bed goes away with the program.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

use crate::certs::Authority;
use crate::cluster::{ADMIN, ControlPlane, Part};
use crate::fleet::crds;
use crate::process::ProcessGroup;
use crate::registry::Registry;
use crate::repository::{Access, ChartRepository};

/// User and password of what is protected.
pub const CREDENTIALS: (&str, &str) = ("chart-reader", "correct-horse");

/// Everything tests share.
pub struct Bed {
    /// The processes and their files.
    pub group: Arc<ProcessGroup>,
    /// Fleet's side: an API server and its store, no controllers.
    pub upstream: ControlPlane,
    /// The cluster that is deployed to, complete.
    pub downstream: ControlPlane,
    /// An open registry over plain HTTP.
    pub registry: Registry,
    /// A registry with TLS by [`Self::authority`] and basic auth.
    pub private_registry: Registry,
    /// An open repository over plain HTTP.
    pub repository: ChartRepository,
    /// A repository with TLS by [`Self::authority`] and basic auth.
    pub private_repository: ChartRepository,
    /// The private authority of the protected ones.
    pub authority: Authority,
}

impl Bed {
    /// The bed of this program, started by whoever asks first.
    ///
    /// # Errors
    /// When it does not start; everyone who asks gets the same error.
    pub async fn shared() -> Result<&'static Self> {
        static BED: OnceCell<Result<Bed, String>> = OnceCell::const_new();
        let start = || async { Self::start(true).await.map_err(|e| format!("{e:#}")) };
        BED.get_or_init(start)
            .await
            .as_ref()
            .map_err(|e| anyhow::Error::msg(e.clone()))
            .context("starting the test bed")
    }

    /// One more upstream, with the same definitions: for tests that break it.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn another_upstream(&self) -> Result<ControlPlane> {
        let name = unique("upstream");
        let plane = ControlPlane::start(self.group.clone(), &name, Part::API).await?;
        let client = plane.client(ADMIN).await?;
        match crds::stock_file() {
            Some(file) => crds::install_file(&client, &plane.kubeconfig(ADMIN)?, &file).await?,
            None => crds::install(&client).await?,
        }
        Ok(plane)
    }

    /// Starts a bed. With `stock` Fleet's own definitions are used where they are beside the checkout.
    ///
    /// # Errors
    /// When a part of it does not start.
    pub async fn start(stock: bool) -> Result<Self> {
        let group = Arc::new(ProcessGroup::new(&directory(), keep())?);
        let authority = Authority::new("test bed")?;
        let (upstream, downstream) = tokio::try_join!(
            ControlPlane::start(group.clone(), "upstream", Part::API),
            ControlPlane::start(group.clone(), "downstream", Part::ALL),
        )?;
        let client = upstream.client(ADMIN).await?;
        match crds::stock_file().filter(|_| stock) {
            Some(file) => crds::install_file(&client, &upstream.kubeconfig(ADMIN)?, &file).await?,
            None => crds::install(&client).await?,
        }
        let open = Access::default;
        let private = || Access {
            basic_auth: Some(CREDENTIALS),
            authority: Some(&authority),
        };
        Ok(Self {
            registry: Registry::start(&group, "registry", open()).await?,
            private_registry: Registry::start(&group, "private-registry", private()).await?,
            repository: ChartRepository::start(open()).await?,
            private_repository: ChartRepository::start(private()).await?,
            authority,
            upstream,
            downstream,
            group,
        })
    }
}

/// The runtime of servers that must outlive a test: one thread, for as long as the program runs.
pub fn runtime() -> &'static Handle {
    static RUNTIME: OnceLock<Handle> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime needs nothing but a few file descriptors");
        let handle = runtime.handle().clone();
        std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        handle
    })
}

/// A short name nobody else uses.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{:08x}", rand::random::<u32>())
}

/// Whether files and logs stay behind (`KEEP=1`).
pub fn keep() -> bool {
    std::env::var_os("KEEP").is_some_and(|v| !v.is_empty() && v != "0")
}

/// A new directory for a bed's files.
fn directory() -> PathBuf {
    std::env::temp_dir().join(unique("fleetagent-testbed"))
}
