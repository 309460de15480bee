//! A process that ends in the middle of an action, as a future that is dropped behind a gate.

use anyhow::Result;
use release::model::Status;
use release::storage::Storage;
use release::{Cluster, DeployOptions, DeploySpec, UninstallSpec};
use testbed::cluster::{ADMIN, client, kubeconfig};
use testbed::kills::gate::Gate;

use crate::world::{Template, World};

/// A process that ends after so many changes.
pub(crate) struct Doomed<'w> {
    world: &'w World,
    pub(crate) gate: Gate,
    pub(crate) cluster: Cluster,
    pub(crate) storage: Storage,
}

impl<'w> Doomed<'w> {
    pub(crate) async fn new(world: &'w World) -> Result<Self> {
        let gate = Gate::start(world.plane, ADMIN).await?;
        let kubeconfig = kubeconfig(gate.url(), world.plane.authority(), "any", "default");
        let cluster = Cluster::new(client(kubeconfig).await?);
        Ok(Self {
            world,
            gate,
            storage: Storage::secrets(&cluster, &world.namespace),
            cluster,
        })
    }

    /// Deploys until the last change; false if the deployment was over before.
    pub(crate) async fn deploy(
        &self,
        template: &Template,
        options: DeployOptions,
        last: usize,
    ) -> bool {
        let spec: DeploySpec = self.world.spec(template, options);
        self.gate.open(Some(last));
        let deploy = release::deploy(&self.cluster, &self.storage, &spec);
        tokio::select! {
            () = self.gate.closed() => true,
            _ = deploy => false,
        }
    }

    pub(crate) async fn uninstall(&self, last: usize) -> bool {
        let spec = UninstallSpec::new(&self.world.name, &self.world.namespace);
        self.gate.open(Some(last));
        let uninstall = release::uninstall(&self.cluster, &self.storage, &spec);
        tokio::select! {
            () = self.gate.closed() => true,
            _ = uninstall => false,
        }
    }
}

impl World {
    /// Whether a revision that is or was deployed, and not removed since, is stored and can be read. A record
    /// without labels counts too: the next deployment gives them back.
    pub(crate) async fn has_good_revision(&self) -> Result<bool> {
        let listed = self.storage.history(&self.name).await?;
        let prefix = format!("secret/sh.helm.release.v1.{}.v", self.name);
        let names = self.kubectl(&["get", "secret", "--output=name"])?;
        let revisions = names.lines().filter_map(|name| name.strip_prefix(&prefix));
        let mut revisions: Vec<i64> = revisions.flat_map(str::parse).collect();
        revisions.sort_unstable();
        for revision in revisions.into_iter().rev() {
            let head = listed.iter().find(|head| head.revision == revision);
            let status = match head {
                Some(head) => head.status.clone(),
                None => self.storage.get(&self.name, revision).await?.status(),
            };
            match status {
                Status::Deployed | Status::Superseded => {
                    self.storage.get(&self.name, revision).await?;
                    return Ok(true);
                }
                Status::Uninstalling | Status::Uninstalled => return Ok(false),
                _ => {}
            }
        }
        Ok(false)
    }

    /// What a ConfigMap says; `none` if it is not there.
    pub(crate) async fn value(&self, name: &str) -> Result<String> {
        let map = self.config_map(name).await?.unwrap_or_default();
        Ok(map["data"]["value"].as_str().unwrap_or("none").to_owned())
    }

    /// Makes a record's payload unreadable.
    pub(crate) fn spoil(&self, revision: i64) -> Result<()> {
        let record = format!("sh.helm.release.v1.web.v{revision}");
        let patch = r#"{"data": {"release": "c3BvaWxlZA=="}}"#;
        self.kubectl(&["patch", "secret", &record, "--type=merge", "--patch", patch])?;
        Ok(())
    }
}
