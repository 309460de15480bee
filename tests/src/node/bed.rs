//! What all tests of a real node share: Fleet upstream, a cluster with a real node, charts, and the images.

use std::sync::Arc;

use super::{Gateway, OUR_NAME, RealNode, archive, ours};
use crate::bed::{keep, unique};
use crate::cluster::{ADMIN, ControlPlane, Part, UPSTREAM_NAME};
use crate::fleet::stock::{AGENT_IMAGE, SYSTEM_NAMESPACE, StockFleet};
use crate::objects;
use crate::process::ProcessGroup;
use crate::registry::Registry;
use crate::repository::{Access, ChartRepository};
use crate::tools::Stock;
use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// The name by which pods and Fleet find charts over HTTP.
pub const CHARTS: &str = "http://charts.testbed.example";
/// The name behind it.
const CHARTS_NAME: &str = "charts.testbed.example";
/// The registry of charts, as pods and Fleet find it.
pub const REGISTRY: &str = "registry.testbed.example:5000";
const REGISTRY_NAME: &str = "registry.testbed.example";
const REGISTRY_PORT: u16 = 5000;
/// The registry that has our image under the name of Fleet's, for clusters that are to try it.
pub const CANARY: &str = "canary.example";
/// Our image, as somebody names it who pushed it to a registry.
pub const OURS: &str = "registry.example/fleetagent:0.1.0";

/// One Fleet, and one cluster with a real node.
pub struct NodeBed {
    /// The processes and their files.
    pub group: Arc<ProcessGroup>,
    /// Where Fleet is; its pods are kwok's.
    pub upstream: ControlPlane,
    /// The cluster of the node.
    pub downstream: ControlPlane,
    /// The node.
    pub node: RealNode,
    /// How its pods reach what listens on loopback.
    pub gateway: Gateway,
    /// Charts over HTTP, at [`CHARTS`].
    pub repository: ChartRepository,
    /// Charts in a registry, at [`REGISTRY`]; images that are pushed go there too.
    pub registry: Registry,
    /// The unmodified Fleet.
    pub fleet: StockFleet,
}

impl NodeBed {
    /// The bed of this program, started by whoever asks first.
    ///
    /// # Errors
    /// When it does not start; everyone who asks gets the same error.
    pub async fn shared() -> Result<&'static Self> {
        static BED: OnceCell<Result<NodeBed, String>> = OnceCell::const_new();
        let start = || async { Self::start().await.map_err(|e| format!("{e:#}")) };
        BED.get_or_init(start)
            .await
            .as_ref()
            .map_err(|e| anyhow::Error::msg(e.clone()))
            .context("starting Fleet and a real node")
    }

    /// Starts a bed.
    ///
    /// # Errors
    /// When a part of it does not start, or this is no place for a node.
    pub async fn start() -> Result<Self> {
        let directory = std::env::temp_dir().join(unique("bed"));
        let group = Arc::new(ProcessGroup::new(&directory, keep())?);
        let (upstream, downstream) = tokio::try_join!(
            ControlPlane::start(group.clone(), "upstream", Part::ALL),
            ControlPlane::start(group.clone(), "downstream", Part::WITHOUT_NODE),
        )?;
        let gateway = Gateway::open(&downstream, &upstream).await?;
        let repository = ChartRepository::start(Access::default()).await?;
        let registry = Registry::start(&group, "registry", Access::default()).await?;
        gateway
            .lead(CHARTS_NAME, 80, port(repository.url())?)
            .await?;
        gateway
            .lead(REGISTRY_NAME, REGISTRY_PORT, port(registry.host())?)
            .await?;
        gateway.take_images(port(registry.host())?).await?;
        let node = RealNode::start(group.clone(), &downstream).await?;
        let stock = format!("docker.io/{AGENT_IMAGE}");
        node.load(&archive(&Stock::Agent.path()?, &stock, &node.images())?)?;
        node.load(&ours()?)?;
        let version = env!("CARGO_PKG_VERSION");
        let canary = format!("{CANARY}/{AGENT_IMAGE}");
        for name in [OURS, &canary] {
            node.name_image(&format!("{OUR_NAME}:{version}"), name)?;
        }
        let url = format!("https://{UPSTREAM_NAME}");
        let fleet = StockFleet::install(&group, &upstream, &url).await?;
        Ok(Self {
            group,
            upstream,
            downstream,
            node,
            gateway,
            repository,
            registry,
            fleet,
        })
    }

    /// Whether Fleet installs and replaces agents itself, as it does where nobody tells it otherwise, or leaves them to charts. Each test
    /// says so at its start: the one before may have ended early.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn manages_agents(&self, is_so: bool) -> Result<()> {
        let client = self.upstream.client(ADMIN).await?;
        let maps = objects::api(&client, "v1", "ConfigMap", SYSTEM_NAMESPACE);
        let map = maps.get("fleet-controller").await?;
        let config = map.data["data"]["config"].as_str().context("no config")?;
        let mut config: Value = serde_json::from_str(config)?;
        if config["manageAgent"].as_bool().unwrap_or(true) == is_so {
            return Ok(());
        }
        config["manageAgent"] = json!(is_so);
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": "fleet-controller",
                "labels": map.metadata.labels, "annotations": map.metadata.annotations,
            },
            "data": { "config": config.to_string() },
        });
        // As docs/install.md does it: helm would meet another owner of the field at its next upgrade, and give up.
        let params = PatchParams::apply("helm").force();
        maps.patch("fleet-controller", &params, &Patch::Apply(map))
            .await?;
        Ok(())
    }
}

/// The port of an address, after its last colon.
///
/// # Errors
/// When there is none.
pub fn port(address: &str) -> Result<u16> {
    let port = address.rsplit_once(':').context("no port")?.1;
    Ok(port.parse()?)
}
