//! Charts as their projects published them, handed to and fro between us and both helms.
//!
//! They lie beside the checkout or in the cache (`make corpus`); without them this test says so and passes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use chart::rendered::{Request, render_release};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use release::{DeployError, DeployOptions, DeploySpec, Rendered, UninstallSpec};
use serde_json::{Map, Value};
use templating::SystemHost;
use testbed::cluster::ADMIN;
use testbed::corpus;
use testbed::helm::Helm;
use testbed::wait::wait_until;

use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(300);

/// Charts in the order they need each other, with values. Between them they bring definitions, Jobs and hooks
/// of every event; none guards the cluster with a webhook that nobody serves.
const CHARTS: [&[(&str, &str)]; 6] = [
    &[
        ("longhorn-crd-104.2.0+up1.7.1", "{}"),
        ("longhorn-104.2.0+up1.7.1", "{}"),
    ],
    &[
        ("rancher-backup-crd-104.0.2+up5.0.2", "{}"),
        ("rancher-backup-104.0.2+up5.0.2", "{}"),
    ],
    &[
        ("rancher-cis-benchmark-crd-6.3.0", "{}"),
        ("rancher-cis-benchmark-6.3.0", "{}"),
    ],
    &[
        ("ui-plugin-operator-crd-103.0.2+up0.2.1", "{}"),
        ("ui-plugin-operator-103.0.2+up0.2.1", "{}"),
    ],
    &[
        ("rke2-snapshot-controller-crd-5.2.003", "{}"),
        ("rke2-snapshot-controller-5.2.003", "{}"),
    ],
    &[
        ("fleet-crd-104.1.0+up0.10.4", "{}"),
        ("fleet-104.1.0+up0.10.4", "{}"),
    ],
];

/// So many of the charts with definitions go through all hands themselves: ten charts in all.
const CRDS: usize = 4;

/// One chart on its way through several hands.
struct Journey {
    world: World,
    chart: Arc<chart::Chart>,
    archive: std::path::PathBuf,
    values: Map<String, Value>,
    helms: [Helm; 2],
}

impl Journey {
    async fn new(file: &str, values: &str) -> Result<Self> {
        let mut world = World::new().await?;
        let data = corpus::chart(file)?;
        let chart = chart::loader::load_archive(&data[..], &mut chart::Warnings::default())?;
        world.name = chart.name().to_owned();
        let home = std::env::temp_dir().join(&world.namespace);
        std::fs::create_dir_all(&home)?;
        let archive = home.join("chart.tgz");
        std::fs::write(&archive, data)?;
        let helms = Helm::both(&world.plane.kubeconfig(ADMIN)?, &home)?;
        Ok(Self {
            world,
            chart: Arc::new(chart),
            archive,
            values: serde_json::from_str(values)?,
            helms,
        })
    }

    fn options() -> DeployOptions {
        DeployOptions {
            always: true,
            max_history: 0,
            ..DeployOptions::default()
        }
    }

    fn spec(&self) -> DeploySpec {
        let (chart, values) = (Arc::clone(&self.chart), self.values.clone());
        DeploySpec {
            name: self.world.name.clone(),
            namespace: self.world.namespace.clone(),
            chart: Arc::clone(&self.chart),
            render: Arc::new(move |request| {
                let rendered = render_release(Request::new(
                    chart.as_ref().clone(),
                    &Value::Object(values.clone()),
                    &request.release,
                    &request.capabilities,
                    &SystemHost,
                ))?;
                Ok(Rendered::new(rendered, values.clone()))
            }),
            options: Self::options(),
            known: None,
            on_begun: None,
            on_written: None,
            on_hooks: None,
            on_failure: None,
        }
    }

    /// Deploys; kinds that were defined just now may be served a moment later.
    async fn deploy(&self) -> Result<i64> {
        let (world, spec) = (&self.world, self.spec());
        wait_until(
            "its kinds to be served",
            PATIENCE,
            async || match release::deploy(&world.cluster, &world.storage, &spec).await {
                Err(error @ DeployError::Build { .. }) => Err(release::error_chain(&error)),
                done => Ok(done),
            },
        )
        .await?
        .map(|done| done.release.revision)
        .map_err(|e| anyhow::Error::msg(release::error_chain(&e)))
    }

    /// Helm 3 or Helm 4, in the release's namespace.
    async fn helm(&self, index: usize, arguments: &[&str]) -> Result<String> {
        let helm = self.helms[index].clone();
        let mut all: Vec<String> = arguments.iter().map(|&one| one.to_owned()).collect();
        all.extend(["--namespace".to_owned(), self.world.namespace.clone()]);
        tokio::task::spawn_blocking(move || {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            helm.run(&all)
        })
        .await?
    }

    async fn helm_upgrade(&self, index: usize) -> Result<()> {
        let (name, archive) = (self.world.name.as_str(), self.archive.to_string_lossy());
        let values = Value::Object(self.values.clone()).to_string();
        let file = self.archive.with_extension("json");
        std::fs::write(&file, values)?;
        let file = file.to_string_lossy();
        let mut arguments = vec!["upgrade", name, &*archive, "--values", &*file];
        if index == 1 {
            arguments.push("--force-conflicts");
        }
        // Helm asks for all kinds at once, which lists one that was defined just now later than its group does: a chart that looks for it is
        // not rendered until then, and nothing is written.
        wait_until(
            "helm to be told of all kinds",
            PATIENCE,
            async || match self.helm(index, &arguments).await {
                Err(failed) if failed.to_string().contains("CRDs are missing") => {
                    Err(failed.to_string())
                }
                done => Ok(done.map(drop)),
            },
        )
        .await?
    }

    /// The objects of a manifest that are there.
    fn live(&self, manifest: &str) -> Result<String> {
        let file = self.archive.with_extension("yaml");
        std::fs::write(&file, manifest)?;
        let file = file.to_string_lossy();
        self.world
            .kubectl(&["get", "--ignore-not-found", "-o", "name", "-f", &file])
    }

    async fn travel(&self, is_removed_by_us: bool) -> Result<()> {
        let name = self.world.name.clone();
        assert_eq!(self.deploy().await.context("installing")?, 1);
        self.helm_upgrade(0).await?;
        assert_eq!(self.deploy().await.context("upgrading")?, 3);
        self.helm_upgrade(1).await?;
        assert_eq!(self.deploy().await.context("upgrading again")?, 5);
        self.helm(0, &["rollback", &name, "2"]).await?;
        assert_eq!(self.deploy().await.context("once more")?, 7);
        let history = self.helm(1, &["history", &name, "-o", "json"]).await?;
        let history: Value = serde_json::from_str(&history)?;
        let statuses: Vec<&str> = history
            .as_array()
            .context("a history")?
            .iter()
            .filter_map(|one| one["status"].as_str())
            .collect();
        let mut wanted = ["superseded"; 7];
        wanted[6] = "deployed";
        assert_eq!(statuses, wanted);
        let manifest = self.helm(1, &["get", "manifest", &name]).await?;
        let wanted = manifest.matches("\nkind: ").count();
        let live = self.live(&manifest)?;
        assert_eq!(live.lines().count(), wanted, "{live}");
        self.remove(is_removed_by_us).await
    }

    /// Uninstalls, by us or by helm, and waits until nothing is left.
    async fn remove(&self, by_us: bool) -> Result<()> {
        let world = &self.world;
        let manifest = self.helm(1, &["get", "manifest", &world.name]).await?;
        if by_us {
            let spec = UninstallSpec::new(&world.name, &world.namespace);
            let done = release::uninstall(&world.cluster, &world.storage, &spec).await;
            let done = done.map_err(|e| anyhow::Error::msg(release::error_chain(&e)))?;
            assert!(done.not_owned.is_empty(), "{:?}", done.not_owned);
        } else {
            self.helm(1, &["uninstall", &world.name]).await?;
        }
        let mut asked = 0;
        wait_until("its objects to go", PATIENCE * 4, async || {
            match self.live(&manifest) {
                Ok(left) if !left.is_empty() => {
                    // A definition whose instances cannot be listed just then ("storage is (re)initializing") goes only
                    // after something has touched it.
                    asked += 1;
                    let mark = format!("asked={asked}");
                    for name in left
                        .lines()
                        .filter(|name| name.starts_with("customresourced"))
                    {
                        let _gone = world.kubectl(&["annotate", "--overwrite", name, &mark]);
                    }
                    Err(left)
                }
                // Kinds that went with their definitions cannot be asked for.
                _ => Ok(()),
            }
        })
        .await
    }
}

impl Drop for Journey {
    fn drop(&mut self) {
        if let Some(home) = self.archive.parent() {
            drop(std::fs::remove_dir_all(home));
        }
    }
}

#[tokio::test]
async fn published_charts_survive_every_action() -> Result<()> {
    if !corpus::is_present_for("published charts through every action") {
        return Ok(());
    }
    let travel =
        async |(index, charts): (usize, &'static [(&'static str, &'static str)])| -> Result<()> {
            // Definitions stay until what uses them is gone.
            let definitions = Journey::new(charts[0].0, charts[0].1).await?;
            definitions.deploy().await.with_context(|| charts[0].0)?;
            for (file, values) in &charts[1..] {
                let journey = Journey::new(file, values).await?;
                journey
                    .travel(index % 2 == 0)
                    .await
                    .with_context(|| *file)?;
            }
            definitions.remove(true).await?;
            if index >= CRDS {
                return Ok(());
            }
            let again = Journey::new(charts[0].0, charts[0].1).await?;
            again
                .travel(index % 2 == 1)
                .await
                .with_context(|| charts[0].0)
        };
    stream::iter(CHARTS.into_iter().enumerate())
        .map(travel)
        .buffer_unordered(3)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}
