//! One agent with everything that belongs to it: its cluster's namespace upstream, its system namespace downstream, the process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::bundle_deployment::BundleDeployment;
use super::controller::{Controller, Granted, apply, resource};
use crate::agent::{AgentOptions, AgentProcess, built};
use crate::audit::{Mark, Request};
use crate::bed::{Bed, unique};
use crate::cluster::{ADMIN, AGENT_USERS, ControlPlane, kubeconfig};
use crate::fault_proxy::FaultProxy;
use crate::objects;
use crate::wait::wait_until;

/// The ConfigMap of the agent that says whose each release is.
const LEDGER: &str = "fleet-agent-ledger";

/// How long a deployment may take in a test before it counts as stuck.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// An agent and its surroundings.
pub struct TestAgent<'b> {
    /// The bed it is in.
    pub bed: &'b Bed,
    /// Fleet's side; the bed's, unless the site was given one of its own.
    pub plane: &'b ControlPlane,
    /// A name no other site has; prefixes namespaces.
    pub id: String,
    /// Upstream with all rights.
    pub upstream: Client,
    /// Downstream with all rights.
    pub downstream: Client,
    /// The agent's namespace downstream.
    pub system_namespace: String,
    /// Where the cluster is registered upstream.
    pub registration_namespace: String,
    /// The user the agent is downstream, for the audit log.
    pub user: String,
    /// Fleet's controller.
    pub controller: Controller,
    /// The agent, when it was started.
    pub process: Option<AgentProcess>,
    /// What the registration granted, when it is known.
    pub granted: Option<Granted>,
    program: PathBuf,
    /// Both audit logs at the beginning.
    marks: (Mark, Mark),
}

impl<'b> TestAgent<'b> {
    /// Namespaces, ConfigMap and controller, with no agent and no credential yet.
    ///
    /// # Errors
    /// When an API server refuses one of them.
    pub async fn prepare(bed: &'b Bed) -> Result<Self> {
        Self::prepare_with(bed, built()?).await
    }

    /// [`Self::prepare`] for a given agent program.
    ///
    /// # Errors
    /// When an API server refuses an object.
    pub async fn prepare_with(bed: &'b Bed, program: PathBuf) -> Result<Self> {
        let id = unique("site");
        let namespaces = (format!("fleet-{id}"), format!("cattle-fleet-{id}"));
        Self::prepare_named(bed, program, id, namespaces).await
    }

    /// [`Self::prepare`] with an upstream of its own: one that may be broken.
    ///
    /// # Errors
    /// When an API server refuses an object.
    pub async fn prepare_on(bed: &'b Bed, plane: &'b ControlPlane) -> Result<Self> {
        let id = unique("site");
        let namespaces = (format!("fleet-{id}"), format!("cattle-fleet-{id}"));
        Self::prepare_between(bed, plane, built()?, id, namespaces).await
    }

    /// [`Self::prepare_with`] under given names: the client ID, then the registration and the system namespace.
    ///
    /// # Errors
    /// When an API server refuses an object.
    pub async fn prepare_named(
        bed: &'b Bed,
        program: PathBuf,
        id: String,
        namespaces: (String, String),
    ) -> Result<Self> {
        Self::prepare_between(bed, &bed.upstream, program, id, namespaces).await
    }

    async fn prepare_between(
        bed: &'b Bed,
        plane: &'b ControlPlane,
        program: PathBuf,
        id: String,
        (registration_namespace, system_namespace): (String, String),
    ) -> Result<Self> {
        static USERS: AtomicUsize = AtomicUsize::new(0);
        let (upstream, downstream) = (
            plane.client(ADMIN).await?,
            bed.downstream.client(ADMIN).await?,
        );
        let controller = Controller::start(upstream.clone(), &registration_namespace).await?;
        apply(
            &downstream,
            json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": system_namespace },
            }),
        )
        .await?;
        let agent = Self {
            user: format!(
                "agent-{}",
                USERS.fetch_add(1, Ordering::Relaxed) % AGENT_USERS
            ),
            marks: (plane.audit().mark(), bed.downstream.audit().mark()),
            bed,
            plane,
            id,
            upstream,
            downstream,
            system_namespace,
            registration_namespace,
            controller,
            process: None,
            granted: None,
            program,
        };
        agent.configure(
            json!({ "clientID": agent.id, "labels": { "env": "test" }, "agentTLSMode": "strict" }),
        )
        .await?;
        Ok(agent)
    }

    /// An agent that finds a working credential and starts with it: the usual case of a test.
    ///
    /// # Errors
    /// When the surroundings or the agent do not start.
    pub async fn registered(bed: &'b Bed) -> Result<Self> {
        Self::registered_with(bed, built()?).await
    }

    /// [`Self::registered`] for a given agent program.
    ///
    /// # Errors
    /// When the surroundings or the agent do not start.
    pub async fn registered_with(bed: &'b Bed, program: PathBuf) -> Result<Self> {
        let mut agent = Self::prepare_with(bed, program).await?;
        agent.grant().await?;
        agent.start(BTreeMap::new())?;
        Ok(agent)
    }

    /// Writes the agent's ConfigMap.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn configure(&self, config: Value) -> Result<()> {
        apply(
            &self.downstream,
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": { "name": "fleet-agent", "namespace": self.system_namespace },
                "data": { "config": config.to_string() },
            }),
        )
        .await
        .map(drop)
    }

    /// Grants the cluster upstream and stores the credential downstream, as a finished registration leaves it.
    ///
    /// # Errors
    /// When an API server refuses a part of it.
    pub async fn grant(&mut self) -> Result<()> {
        self.grant_at(&self.plane.url()).await
    }

    /// [`Self::grant`] for an upstream that is reached at `url`.
    ///
    /// # Errors
    /// When an API server refuses a part of it.
    pub async fn grant_at(&mut self, url: &str) -> Result<()> {
        let granted = self.controller.grant_directly(&self.id).await?;
        let credential = kubeconfig(
            url,
            self.plane.authority(),
            &granted.token,
            &granted.deployment_namespace,
        );
        self.secret(
            "fleet-agent",
            json!({
                "kubeconfig": credential.to_string(),
                "deploymentNamespace": granted.deployment_namespace,
                "clusterNamespace": granted.cluster_namespace,
                "clusterName": granted.cluster_name,
            }),
        )
        .await?;
        self.granted = Some(granted);
        Ok(())
    }

    /// [`Self::grant`] for an upstream that is reached through a proxy, which can spoil answers.
    ///
    /// # Errors
    /// When an API server refuses a part of it, or no port is free.
    pub async fn grant_behind_faults(&mut self) -> Result<FaultProxy> {
        let granted = self.controller.grant_directly(&self.id).await?;
        let (url, authority) = (self.plane.url(), self.plane.authority());
        let namespace = &granted.deployment_namespace;
        let config = kubeconfig(&url, authority, &granted.token, namespace);
        let fault_proxy = FaultProxy::before(config).await?;
        self.grant_at(fault_proxy.url()).await?;
        Ok(fault_proxy)
    }

    /// Stores the bootstrap secret downstream; `change` may spoil it.
    ///
    /// # Errors
    /// When an API server refuses a part of it.
    pub async fn bootstrap(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let upstream = self.plane;
        let mut data = self
            .controller
            .bootstrap("import-token", &upstream.url(), upstream.authority())
            .await?;
        change(&mut data);
        self.secret("fleet-agent-bootstrap", data).await
    }

    /// Writes a Secret with text values into the agent's namespace.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn secret(&self, name: &str, data: Value) -> Result<()> {
        apply(
            &self.downstream,
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "Opaque",
                "metadata": { "name": name, "namespace": self.system_namespace },
                "stringData": data,
            }),
        )
        .await
        .map(drop)
    }

    /// Starts the agent.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(&mut self, env: BTreeMap<String, String>) -> Result<()> {
        let kubeconfig = self.bed.downstream.kubeconfig(&self.user)?;
        self.start_with(kubeconfig, env)
    }

    /// Starts the agent with another address for the downstream API server.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start_at(&mut self, url: &str, env: BTreeMap<String, String>) -> Result<()> {
        let downstream = &self.bed.downstream;
        let (authority, token) = (downstream.authority(), downstream.token(&self.user));
        let path = self.bed.group.directory().join(unique("kubeconfig"));
        let content = kubeconfig(url, authority, &token, "default");
        std::fs::write(&path, content.to_string())?;
        self.start_with(path, env)
    }

    fn start_with(&mut self, kubeconfig: PathBuf, env: BTreeMap<String, String>) -> Result<()> {
        let options = AgentOptions {
            program: self.program.clone(),
            kubeconfig,
            namespace: self.system_namespace.clone(),
            env,
            arguments: Vec::new(),
        };
        self.process = Some(AgentProcess::start(
            self.bed.group.clone(),
            &format!("agent-{}", self.id),
            options,
        )?);
        Ok(())
    }

    /// The running agent.
    ///
    /// # Errors
    /// When none was started.
    pub fn process(&mut self) -> Result<&mut AgentProcess> {
        self.process.as_mut().context("no agent was started")
    }

    /// The namespace of the cluster's BundleDeployments.
    ///
    /// # Errors
    /// When nothing was granted yet.
    pub fn deployment_namespace(&self) -> Result<&str> {
        Ok(&self
            .granted
            .as_ref()
            .context("the cluster is not registered")?
            .deployment_namespace)
    }

    /// The BundleDeployments of this cluster.
    ///
    /// # Errors
    /// When nothing was granted yet.
    pub fn bundle_deployments(&self) -> Result<Api<DynamicObject>> {
        let namespace = self.deployment_namespace()?;
        Ok(Api::namespaced_with(
            self.upstream.clone(),
            namespace,
            &resource("BundleDeployment"),
        ))
    }

    /// Writes a BundleDeployment and what belongs to it, as the controller does for a new or a changed bundle.
    ///
    /// # Errors
    /// When the API server refuses one of them.
    pub async fn apply(&self, bundle: &BundleDeployment) -> Result<()> {
        let objects = bundle.build(self.deployment_namespace()?)?;
        if let Some(content) = objects.content {
            apply(&self.upstream, content).await?;
        }
        if let Some(secret) = objects.values_secret {
            apply(&self.upstream, secret).await?;
        }
        apply(&self.upstream, objects.bundle_deployment)
            .await
            .map(drop)
    }

    /// Writes a Secret with text values beside the BundleDeployments, as the controller copies HelmOps secrets.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn upstream_secret(&self, name: &str, data: Value) -> Result<()> {
        apply(
            &self.upstream,
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "fleet.cattle.io/bundle-helmops-access/v1alpha1",
                "metadata": {
                    "name": name,
                    "namespace": self.deployment_namespace()?,
                    "labels": { "fleet.cattle.io/bundle-internal-secret": "true" },
                },
                "stringData": data,
            }),
        )
        .await
        .map(drop)
    }

    /// Deletes a BundleDeployment; the controller's finalizer is let go at once.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn delete(&self, name: &str) -> Result<()> {
        let api = self.bundle_deployments()?;
        api.delete(name, &DeleteParams::default()).await?;
        let release = json!({ "metadata": { "finalizers": null } });
        api.patch(name, &PatchParams::default(), &Patch::Merge(&release))
            .await?;
        Ok(())
    }

    /// Waits until the BundleDeployment as it is now is deployed, ready and unmodified; gives it.
    ///
    /// # Errors
    /// When it does not come to that.
    pub async fn wait_ready(&self, name: &str) -> Result<Value> {
        self.wait_for(name, "to be Ready", |bundle| {
            let status = &bundle["status"];
            let applied = status["appliedDeploymentID"] == bundle["spec"]["deploymentID"];
            applied
                && status["ready"] == json!(true)
                && status["nonModified"] == json!(true)
                && condition(bundle, "Ready").is_some_and(|c| c["status"] == "True")
        })
        .await
    }

    /// Waits until the Deployed condition is False and its message passes `expected`; gives the message.
    ///
    /// # Errors
    /// When it does not come to that.
    pub async fn wait_deploy_error(
        &self,
        name: &str,
        expected: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let bundle = self
            .wait_for(name, "to fail with the expected message", |bundle| {
                condition(bundle, "Deployed").is_some_and(|c| {
                    c["status"] == "False" && expected(c["message"].as_str().unwrap_or_default())
                })
            })
            .await?;
        let message = condition(&bundle, "Deployed")
            .and_then(|c| c["message"].as_str())
            .unwrap_or_default();
        Ok(message.to_owned())
    }

    /// Waits until the BundleDeployment passes; a failure prints its status and the end of the agent's log.
    ///
    /// # Errors
    /// When it does not pass in time.
    pub async fn wait_for(
        &self,
        name: &str,
        what: &str,
        passes: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let api = self.bundle_deployments()?;
        let waited = wait_until(
            &format!("BundleDeployment {name} {what}"),
            PATIENCE,
            async || {
                let bundle = api.get(name).await.map_err(|e| e.to_string())?;
                let bundle = serde_json::to_value(&bundle).map_err(|e| e.to_string())?;
                if passes(&bundle) {
                    return Ok(bundle);
                }
                let status = serde_json::to_string_pretty(&bundle["status"]).unwrap_or_default();
                Err(format!(
                    "deploymentID {}\n{status}",
                    bundle["spec"]["deploymentID"]
                ))
            },
        )
        .await;
        waited.with_context(|| format!("the agent's log ends with:\n{}", self.agent_log_tail(30)))
    }

    /// An object downstream, if it is there.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn object(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>> {
        Ok(self
            .objects(api_version, kind, namespace)
            .get_opt(name)
            .await?)
    }

    /// The agent's ledger of releases; none before the first entry.
    pub async fn ledger(&self) -> Result<Option<DynamicObject>> {
        self.object("v1", "ConfigMap", &self.system_namespace, LEDGER)
            .await
    }

    /// Changes the ledger by a merge patch.
    pub async fn patch_ledger(&self, patch: &Value) -> Result<()> {
        let maps = self.objects("v1", "ConfigMap", &self.system_namespace);
        let parameters = PatchParams::default();
        maps.patch(LEDGER, &parameters, &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// The objects of a kind downstream; an empty namespace for cluster-scoped ones.
    pub fn objects(&self, api_version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
        objects::api(&self.downstream, api_version, kind, namespace)
    }

    /// The account a registration made for the agent in its deployment namespace.
    ///
    /// # Errors
    /// When there is none yet.
    pub async fn bundle_account(&self, deployment_namespace: &str) -> Result<String> {
        use k8s_openapi::api::core::v1::ServiceAccount;
        let accounts: Api<ServiceAccount> =
            Api::namespaced(self.upstream.clone(), deployment_namespace);
        let all = accounts
            .list(&kube::api::ListParams::default().labels("fleet.cattle.io/managed=true"))
            .await?;
        all.items
            .into_iter()
            .find_map(|a| a.metadata.name)
            .context("no account yet")
    }

    /// What the agent asked upstream since the site was made.
    ///
    /// # Errors
    /// When the audit log cannot be read or nothing was granted.
    pub fn upstream_requests(&self) -> Result<Vec<Request>> {
        let user = &self
            .granted
            .as_ref()
            .context("the cluster is not registered")?
            .user;
        self.plane.audit().by_user(user, self.marks.0)
    }

    /// What the agent asked downstream since the site was made.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub fn downstream_requests(&self) -> Result<Vec<Request>> {
        self.bed
            .downstream
            .audit()
            .by_user(&self.user, self.marks.1)
    }

    /// The end of the agent's log.
    pub fn agent_log_tail(&self, lines: usize) -> String {
        let text = self
            .process
            .as_ref()
            .map(AgentProcess::log)
            .unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

/// A condition of an object, by its type.
pub fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|c| c["type"] == kind)
}
