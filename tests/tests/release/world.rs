//! The cluster of these tests, and releases rendered from plain text.

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use chart::{Chart, Metadata};
use kube::Client;
use release::model::{Hook, HookExecution, Status};
use release::storage::{Storage, StoredRelease, StoredRevision};
use release::{Cluster, DeployError, DeployOptions, DeploySpec, Deployed, Rendered};
use serde_json::{Map, Value};
use testbed::bed::{keep, unique};
use testbed::cluster::{ADMIN, ControlPlane, Part};
use testbed::process::ProcessGroup;
use tokio::sync::OnceCell;

/// The cluster of this program, started by whoever asks first.
pub(crate) async fn control_plane() -> Result<&'static ControlPlane> {
    static CLUSTER: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();
    let start = || async {
        let directory = std::env::temp_dir().join(unique("fleetagent-releases"));
        let group = Arc::new(ProcessGroup::new(&directory, keep()).map_err(|e| format!("{e:#}"))?);
        ControlPlane::start(group, "releases", Part::ALL)
            .await
            .map_err(|e| format!("{e:#}"))
    };
    let started = CLUSTER.get_or_init(start).await;
    started
        .as_ref()
        .map_err(|error| anyhow::Error::msg(error.clone()))
}

/// A release in a namespace of its own.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) cluster: Cluster,
    pub(crate) storage: Storage,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) plane: &'static ControlPlane,
}

impl World {
    /// As the all-powerful user.
    pub(crate) async fn new() -> Result<Self> {
        Self::as_user(ADMIN).await
    }

    /// Another release in the same namespace.
    pub(crate) async fn beside(&self, name: &str) -> Result<Self> {
        let mut other = Self::new().await?;
        other.namespace.clone_from(&self.namespace);
        other.storage = Storage::secrets(&other.cluster, &other.namespace);
        other.name = name.to_owned();
        Ok(other)
    }

    /// As a user of the audit log's own, to count what a release costs.
    pub(crate) async fn as_user(user: &str) -> Result<Self> {
        let plane = control_plane().await?;
        let client = plane.client(user).await?;
        let cluster = Cluster::new(client.clone());
        let namespace = unique("release");
        let storage = Storage::secrets(&cluster, &namespace);
        Ok(Self {
            client,
            cluster,
            storage,
            namespace,
            name: "web".to_owned(),
            plane,
        })
    }

    /// Deploys `manifest` with default options.
    pub(crate) async fn deploy(&self, manifest: &str) -> Result<Deployed, DeployError> {
        self.deploy_with(&Template::new(manifest), DeployOptions::default())
            .await
    }

    pub(crate) async fn deploy_with(
        &self,
        template: &Template,
        options: DeployOptions,
    ) -> Result<Deployed, DeployError> {
        release::deploy(&self.cluster, &self.storage, &self.spec(template, options)).await
    }

    pub(crate) fn spec(&self, template: &Template, options: DeployOptions) -> DeploySpec {
        let Template {
            manifest,
            hooks,
            chart,
            seen,
        } = template.clone();
        DeploySpec {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            chart: Arc::clone(&chart),
            render: Arc::new(move |request| {
                seen.lock()
                    .expect("no rendering panics")
                    .push((request.release.revision, request.release.is_install));
                Ok(Rendered {
                    chart: Arc::clone(&chart),
                    config: Map::new(),
                    manifest: manifest.clone(),
                    objects: None,
                    hooks: hooks.clone(),
                    hook_objects: Vec::new(),
                    notes: "Thanks".to_owned(),
                })
            }),
            options,
            known: None,
            on_begun: None,
            on_written: None,
            on_hooks: None,
            on_failure: None,
        }
    }

    /// `revision status` of every record, oldest first.
    pub(crate) async fn history(&self) -> Result<Vec<String>> {
        let heads = self.storage.history(&self.name).await?;
        Ok(heads
            .iter()
            .map(
                |StoredRevision {
                     revision, status, ..
                 }| format!("{revision} {status}"),
            )
            .collect())
    }

    /// The newest revision.
    pub(crate) async fn newest(&self) -> Result<StoredRelease> {
        let history = self.storage.history(&self.name).await?;
        let newest = release::storage::last(&history).context("a revision")?;
        Ok(self.storage.get(&self.name, newest.revision).await?)
    }

    /// Overwrites the status of a record, as a crash at the right moment would have left it.
    pub(crate) async fn tamper(&self, revision: i64, status: Status) -> Result<StoredRelease> {
        let mut record = self.storage.get(&self.name, revision).await?;
        record.set_status(status, "tampered");
        self.storage.update(&record).await?;
        Ok(record)
    }

    /// A ConfigMap of the namespace, if it is there.
    pub(crate) async fn config_map(&self, name: &str) -> Result<Option<Value>> {
        let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
            kube::Api::namespaced(self.client.clone(), &self.namespace);
        Ok(maps
            .get_opt(name)
            .await?
            .map(serde_json::to_value)
            .transpose()?)
    }

    /// Creates an object as somebody else would; where its kind was defined just now, as soon as it is served.
    pub(crate) async fn create(&self, manifest: &str) -> Result<()> {
        let path = std::env::temp_dir().join(&self.namespace);
        std::fs::write(&path, manifest)?;
        let patience = std::time::Duration::from_secs(300);
        let created = testbed::wait::wait_until("the object to be created", patience, async || {
            let create = ["create", "--filename", &path.to_string_lossy()];
            self.kubectl(&create).map_err(|refused| refused.to_string())
        });
        created.await?;
        std::fs::remove_file(&path)?;
        Ok(())
    }

    /// Runs kubectl as the all-powerful user.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let kubeconfig = self.plane.kubeconfig(ADMIN)?;
        let output = std::process::Command::new(testbed::tools::Tool::Kubectl.path()?)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--namespace", &self.namespace])
            .args(arguments)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "kubectl {arguments:?}: {errors}");
        Ok(text)
    }
}

/// What a chart renders to.
#[derive(Clone)]
pub(crate) struct Template {
    pub(crate) manifest: String,
    pub(crate) hooks: Vec<Hook>,
    pub(crate) chart: Arc<Chart>,
    /// `.Release.Revision` and `.Release.IsInstall` of each rendering.
    pub(crate) seen: Arc<Mutex<Vec<(i64, bool)>>>,
}

impl Template {
    pub(crate) fn new(manifest: &str) -> Self {
        let metadata = Metadata {
            name: "web".to_owned(),
            version: "1.0.0".to_owned(),
            api_version: "v2".to_owned(),
            ..Metadata::default()
        };
        Self {
            manifest: manifest.to_owned(),
            hooks: Vec::new(),
            chart: Arc::new(Chart {
                metadata,
                ..Chart::default()
            }),
            seen: Arc::default(),
        }
    }

    /// Adds a hook that runs a ConfigMap (done at once) or a Job; its manifest says so, as a chart's does.
    pub(crate) fn hook(mut self, name: &str, event: &str, manifest: &str) -> Self {
        let annotated = format!("metadata:\n  annotations: {{helm.sh/hook: {event}}}\n");
        self.hooks.push(Hook {
            name: name.to_owned(),
            kind: "Job".to_owned(),
            path: format!("web/templates/{name}.yaml"),
            manifest: manifest.replacen("metadata:\n", &annotated, 1),
            events: vec![event.to_owned()],
            last_run: HookExecution::default(),
            ..Hook::default()
        });
        self
    }
}

/// A ConfigMap with one value.
pub(crate) fn config_map(name: &str, value: &str) -> String {
    format!(
        "---\n# Source: web/templates/{name}.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  \
         name: {name}\ndata:\n  value: {value:?}\n"
    )
}

/// A Deployment of pods that do nothing.
pub(crate) fn deployment(name: &str, replicas: u32, image: &str) -> String {
    format!(
        "---\n# Source: web/templates/{name}.yaml\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  \
         name: {name}\nspec:\n  replicas: {replicas}\n  selector:\n    matchLabels: {{app: {name}}}\n  \
         template:\n    metadata:\n      labels: {{app: {name}}}\n    spec:\n      containers:\n      \
         - name: main\n        image: {image}\n"
    )
}

/// A Job of one pod.
pub(crate) fn job(name: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\nspec:\n  template:\n    spec:\n      \
         restartPolicy: Never\n      containers:\n      - name: main\n        image: busybox\n"
    )
}
