//! A cluster as its people see it: registered with Fleet, its agent a pod, bundles deployed to it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::bed::unique;
use crate::chart::Chart;
use crate::cluster::ADMIN;
use crate::fleet::controller::apply;
use crate::fleet::stock::{CLUSTERS_NAMESPACE, SYSTEM_NAMESPACE};
use crate::objects::{api, get};
use crate::wait::wait_until;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::bed::{CANARY, CHARTS, NodeBed};

/// Fleet's controllers look at some things every 15 seconds only, a lease changes hands after 30, and the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Whose agent a cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// The one that Fleet names.
    Stock,
    /// Ours, by the cluster's private registry.
    Ours,
}

/// A registered cluster.
pub struct ManagedCluster {
    /// Where it is.
    pub bed: &'static NodeBed,
    /// Upstream with all rights.
    pub upstream: Client,
    /// Downstream with all rights.
    pub downstream: Client,
    /// The Cluster's name.
    pub name: String,
    /// Where its agent runs.
    pub namespace: String,
}

impl ManagedCluster {
    /// A cluster that Fleet's manager is given a kubeconfig of, and installs the agent in; `change` may add to its spec and its Secret.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn managed(
        agent: Agent,
        change: impl FnOnce(&mut Value, &mut Value),
    ) -> Result<Self> {
        Self::managed_as(&unique("site"), agent, change).await
    }

    /// The same under a given name.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn managed_as(
        name: &str,
        agent: Agent,
        change: impl FnOnce(&mut Value, &mut Value),
    ) -> Result<Self> {
        let bed = NodeBed::shared().await?;
        bed.manages_agents(true).await?;
        let mut site = Self::named(bed, name).await?;
        let namespace = format!("cattle-{name}");
        let kubeconfig = bed.downstream.kubeconfig_value(ADMIN, "default");
        let mut secret = json!({ "value": kubeconfig.to_string() });
        let mut spec = json!({
            "kubeConfigSecret": format!("{name}-kubeconfig"),
            "agentNamespace": namespace,
        });
        if agent == Agent::Ours {
            spec["privateRepoURL"] = json!(CANARY);
        }
        change(&mut spec, &mut secret);
        if spec["agentNamespace"] != "" {
            site.namespace = namespace;
        }
        site.upstream_object(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": format!("{name}-kubeconfig") }, "stringData": secret,
        }))
        .await?;
        site.upstream_object(json!({
            "apiVersion": "fleet.cattle.io/v1alpha1", "kind": "Cluster",
            "metadata": { "name": name, "labels": { "site": name } }, "spec": spec,
        }))
        .await?;
        site.registered().await?;
        Ok(site)
    }

    /// A cluster of this name with the agent in Fleet's usual namespace, registered or not yet.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn named(bed: &'static NodeBed, name: &str) -> Result<Self> {
        Ok(Self {
            bed,
            upstream: bed.upstream.client(ADMIN).await?,
            downstream: bed.downstream.client(ADMIN).await?,
            name: name.to_owned(),
            namespace: SYSTEM_NAMESPACE.to_owned(),
        })
    }

    /// Applies an object in the namespace of the clusters.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn upstream_object(&self, mut object: Value) -> Result<()> {
        object["metadata"]["namespace"] = json!(CLUSTERS_NAMESPACE);
        apply(&self.upstream, object).await.map(drop)
    }

    /// An object there.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn upstream_get(&self, kind: &str, name: &str) -> Result<Option<Value>> {
        let version = match kind {
            "Secret" => "v1",
            _ => "fleet.cattle.io/v1alpha1",
        };
        let found = api(&self.upstream, version, kind, CLUSTERS_NAMESPACE);
        get(&found, name).await
    }

    /// Changes the Cluster.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn patch_cluster(&self, patch: Value) -> Result<()> {
        let version = "fleet.cattle.io/v1alpha1";
        let clusters = api(&self.upstream, version, "Cluster", CLUSTERS_NAMESPACE);
        let patch = Patch::Merge(patch);
        let params = PatchParams::default();
        clusters.patch(&self.name, &params, &patch).await?;
        Ok(())
    }

    /// Waits until the agent says of itself that it is there.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn registered(&self) -> Result<()> {
        self.seen_after("").await.map(drop)
    }

    /// Waits until the agent's last word is later than that one; gives it.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn seen_after(&self, earlier: &str) -> Result<String> {
        self.wait("the agent to say that it is there", async || {
            let cluster = self.upstream_get("Cluster", &self.name).await?;
            let cluster = cluster.context("no Cluster")?;
            let seen = cluster["status"]["agent"]["lastSeen"].as_str();
            let seen = seen.with_context(|| cluster["status"].to_string())?;
            ensure!(seen > earlier, "seen {seen}");
            Ok(seen.to_owned())
        })
        .await
    }

    /// Where the cluster's BundleDeployments are.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn deployments_namespace(&self) -> Result<String> {
        let cluster = self.upstream_get("Cluster", &self.name).await?;
        let cluster = cluster.context("no Cluster")?;
        let namespace = cluster["status"]["namespace"].as_str();
        Ok(namespace.context("no namespace")?.to_owned())
    }

    /// A BundleDeployment of this cluster.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn deployment(&self, bundle: &str) -> Result<Option<Value>> {
        let namespace = self.deployments_namespace().await?;
        let version = "fleet.cattle.io/v1alpha1";
        let deployments = api(&self.upstream, version, "BundleDeployment", &namespace);
        get(&deployments, bundle).await
    }

    /// Waits until a bundle's deployment here is what was last asked for, and ready.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn ready(&self, bundle: &str) -> Result<Value> {
        self.wait(&format!("{bundle} to be ready"), async || {
            let deployment = self.deployment(bundle).await?;
            let deployment = deployment.context("no BundleDeployment yet")?;
            let (spec, status) = (&deployment["spec"], &deployment["status"]);
            let is_applied = status["appliedDeploymentID"] == spec["deploymentID"];
            let is_current = spec["stagedDeploymentID"] == spec["deploymentID"];
            let is_ready = status["ready"] == true && status["nonModified"] == true;
            ensure!(is_applied && is_current && is_ready, "{status}");
            Ok(deployment.clone())
        })
        .await
    }

    /// A Bundle of files for this cluster; `change` may add to its spec and labels.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn bundle(
        &self,
        name: &str,
        files: &[(String, Vec<u8>)],
        change: impl FnOnce(&mut Value),
    ) -> Result<()> {
        let resources: Vec<Value> = files
            .iter()
            .map(|(name, content)| json!({ "name": name, "content": String::from_utf8_lossy(content) }))
            .collect();
        let mut bundle = json!({
            "apiVersion": "fleet.cattle.io/v1alpha1", "kind": "Bundle",
            "metadata": { "name": name },
            "spec": {
                "resources": resources,
                "defaultNamespace": self.target(),
                "targets": [{ "clusterName": self.name }],
            },
        });
        change(&mut bundle);
        self.upstream_object(bundle).await
    }

    /// A HelmOp for this cluster; `change` may add to its spec.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn helm_op(
        &self,
        name: &str,
        helm: Value,
        change: impl FnOnce(&mut Value),
    ) -> Result<()> {
        let mut helm_op = json!({
            "apiVersion": "fleet.cattle.io/v1alpha1", "kind": "HelmOp",
            "metadata": { "name": name },
            "spec": {
                "helm": helm,
                "defaultNamespace": self.target(),
                "targets": [{ "clusterName": self.name }],
            },
        });
        change(&mut helm_op);
        self.upstream_object(helm_op).await
    }

    /// Deploys one chart with a running pod, to show that the agent works; gives the bundle's name.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn proves_itself(&self) -> Result<String> {
        let name = unique("proof");
        let chart = Chart::small(&name, "1.0.0");
        self.bed.repository.add(&chart)?;
        let helm = json!({
            "repo": CHARTS, "chart": name, "version": "1.0.0", "releaseName": name,
            "values": { "image": super::PAUSE },
        });
        self.helm_op(&name, helm, |_| ()).await?;
        self.ready(&name).await?;
        Ok(name)
    }

    /// The namespace that apps go to.
    pub fn target(&self) -> String {
        format!("{}-app", self.name)
    }

    /// An object of an app.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn deployed(&self, version: &str, kind: &str, name: &str) -> Result<Option<Value>> {
        get(&api(&self.downstream, version, kind, &self.target()), name).await
    }

    /// The agent's pods that are not about to end.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn pods(&self) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.downstream.clone(), &self.namespace);
        let params = ListParams::default().labels("app=fleet-agent");
        let mut pods = pods.list(&params).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }

    /// Waits until the agent's pods are all ready, are as many as they should be, and run this image.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn runs(&self, image: &str) -> Result<Vec<Pod>> {
        let deployments = api(&self.downstream, "apps/v1", "Deployment", &self.namespace);
        self.wait(&format!("pods of {image}"), async || {
            let deployment = get(&deployments, "fleet-agent").await?;
            let deployment = deployment.context("no Deployment")?;
            let pods = self.pods().await?;
            let wanted = deployment["spec"]["replicas"].as_u64();
            ensure!(
                wanted == Some(pods.len() as u64),
                "{} pods, {wanted:?} wanted",
                pods.len()
            );
            for pod in &pods {
                let pod_image = pod
                    .spec
                    .as_ref()
                    .and_then(|s| s.containers[0].image.clone());
                let status = pod.status.as_ref().context("no status")?;
                let conditions = status.conditions.iter().flatten();
                let is_ready = conditions
                    .filter(|one| one.type_ == "Ready")
                    .any(|one| one.status == "True");
                ensure!(
                    pod_image.as_deref() == Some(image) && is_ready,
                    "{pod_image:?}: {}",
                    serde_json::to_string(status)?
                );
            }
            Ok(pods)
        })
        .await
    }

    /// The id of the container of an agent's pod.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub fn container(pod: &Pod) -> Result<String> {
        let statuses = pod
            .status
            .as_ref()
            .and_then(|s| s.container_statuses.as_ref());
        let id = statuses.and_then(|all| all.first()?.container_id.clone());
        let id = id.context("the pod has no container")?;
        Ok(id.trim_start_matches("containerd://").to_owned())
    }

    /// What the agent's containers wrote, the ones before among them.
    pub fn logs(&self) -> String {
        let root = self.bed.group.directory().join("node/kubelet/logs");
        let mut text = String::new();
        for pod in std::fs::read_dir(root).into_iter().flatten().flatten() {
            let name = pod.file_name().into_string().unwrap_or_default();
            if !name.starts_with(&format!("{}_fleet-agent-", self.namespace)) {
                continue;
            }
            let files = std::fs::read_dir(pod.path().join("fleet-agent"));
            for file in files.into_iter().flatten().flatten() {
                text += &std::fs::read_to_string(file.path()).unwrap_or_default();
            }
        }
        text
    }

    /// Waits for a condition; a failure shows the end of the agent's log.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn wait<T>(
        &self,
        what: &str,
        mut probe: impl AsyncFnMut() -> Result<T>,
    ) -> Result<T> {
        let waited = wait_until(what, PATIENCE, async || {
            probe().await.map_err(|e| format!("{e:#}"))
        });
        waited.await.with_context(|| {
            let log = self.logs();
            let lines: Vec<&str> = log.lines().collect();
            format!(
                "the agent of {}:\n{}",
                self.name,
                lines[lines.len().saturating_sub(30)..].join("\n")
            )
        })
    }

    /// What uids the objects of the apps have, by kind and name.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn uids(&self, kinds: &[(&str, &str)]) -> Result<BTreeMap<String, String>> {
        let mut uids = BTreeMap::new();
        for (version, kind) in kinds {
            let list = api(&self.downstream, version, kind, &self.target());
            for object in list.list(&ListParams::default()).await? {
                let name = object.metadata.name.unwrap_or_default();
                uids.insert(
                    format!("{kind} {name}"),
                    object.metadata.uid.unwrap_or_default(),
                );
            }
        }
        Ok(uids)
    }

    /// The Cluster is deleted upstream, and its agent taken away.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn leave(&self) -> Result<()> {
        let params = DeleteParams::default();
        let version = "fleet.cattle.io/v1alpha1";
        let clusters = api(&self.upstream, version, "Cluster", CLUSTERS_NAMESPACE);
        clusters.delete(&self.name, &params).await?;
        let role = format!("{}-fleet-agent-role", self.namespace);
        let binding = format!("{role}-binding");
        for (version, kind, name) in [
            ("v1", "Namespace", &self.namespace),
            ("rbac.authorization.k8s.io/v1", "ClusterRole", &role),
            (
                "rbac.authorization.k8s.io/v1",
                "ClusterRoleBinding",
                &binding,
            ),
        ] {
            let api = api(&self.downstream, version, kind, "");
            api.delete(name, &params).await?;
        }
        let namespaces = api(&self.downstream, "v1", "Namespace", "");
        self.wait("the agent's namespace to end", async || {
            let namespace = namespaces.get_opt(&self.namespace).await?;
            ensure!(namespace.is_none(), "{:?}", namespace.map(|one| one.data));
            Ok(())
        })
        .await
    }

    /// Takes the agent away for good, so that the next tests have the machine to themselves.
    ///
    /// # Errors
    /// When an API server refuses, or what is waited for does not come.
    pub async fn end(self) -> Result<()> {
        let clusters = api(
            &self.upstream,
            "fleet.cattle.io/v1alpha1",
            "Cluster",
            CLUSTERS_NAMESPACE,
        );
        let params = DeleteParams::default();
        clusters.delete(&self.name, &params).await?;
        let namespaces = api(&self.downstream, "v1", "Namespace", "");
        for name in [self.target(), self.namespace.clone()] {
            // The next who registers by token needs the usual one.
            if name == SYSTEM_NAMESPACE {
                continue;
            }
            if namespaces.get_opt(&name).await?.is_some() {
                namespaces.delete(&name, &params).await?;
            }
        }
        Ok(())
    }
}
