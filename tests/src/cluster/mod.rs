//! A real Kubernetes control plane: etcd, API server, controllers and scheduler are the real programs, kubelets are played by kwok.
//!
//! Each part can be stopped and started by itself, on the same port and with the same data, which is how a test takes an API
//! server away for a while. What is left out: networking, storage, cloud.

mod files;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::audit::AuditLog;
use crate::bed::unique;
use crate::certs::{Authority, install_crypto_provider};
use crate::ports;
use crate::process::{Process, ProcessGroup};
use crate::tools::Tool;
use crate::wait::wait_until;

/// The user that tests and helpers act as: all rights.
pub const ADMIN: &str = "admin";
/// How many users `agent-0`, `agent-1`, … with all rights there are, so that each agent under test is one line in the audit log.
pub const AGENT_USERS: usize = 200;

/// A name of API servers that only a proxy can resolve: clients never go through one to loopback.
pub const PROXIED_NAME: &str = "apiserver.example";
/// An address of this machine that clients do not take for loopback.
pub const UNPROXIED_ADDRESS: &str = "0.0.0.0";

/// Where pods of a real node find their own API server: the first address of the service network.
pub const IN_CLUSTER_ADDRESS: &str = "10.96.0.1";
/// Where they find everything else.
pub const GATEWAY_ADDRESS: &str = "10.96.0.2";
/// A name of API servers that pods of a real node resolve.
pub const UPSTREAM_NAME: &str = "upstream.testbed.example";
/// The name that documents give it.
pub const DOCUMENTED_NAME: &str = "upstream.example";

/// How long a part may take to start. A busy machine is slow, not broken.
const STARTUP: Duration = Duration::from_secs(180);

/// A process of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each variant is the program of that name")]
pub enum Part {
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
    /// Plays the kubelets: pods get an address, run and become ready.
    Kwok,
}

impl Part {
    /// Everything a workload needs to become ready.
    pub const ALL: &'static [Self] = &[
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kwok,
    ];
    /// Everything but a node: for a real one.
    pub const WITHOUT_NODE: &'static [Self] = &[
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
    ];
    /// Enough to store objects and answer for them.
    pub const API: &'static [Self] = &[Self::Etcd, Self::ApiServer];

    fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
        }
    }
}

/// One cluster. Dropping it ends its processes.
pub struct ControlPlane {
    name: String,
    group: Arc<ProcessGroup>,
    directory: PathBuf,
    authority: String,
    ports: Ports,
    /// In start order, so that dropping goes through them all.
    running: Mutex<BTreeMap<Part, Process>>,
}

struct Ports {
    etcd: u16,
    etcd_peer: u16,
    api: u16,
    controller_manager: u16,
    scheduler: u16,
}

impl ControlPlane {
    /// Starts a cluster and returns when its API serves, its node is ready (if it has one) and its `default` namespace is there.
    ///
    /// # Errors
    /// When a program is missing or ends, with the end of its log.
    pub async fn start(group: Arc<ProcessGroup>, name: &str, parts: &[Part]) -> Result<Self> {
        install_crypto_provider();
        let directory = group.directory().join(name);
        std::fs::create_dir_all(&directory)?;
        let authority = Authority::new(&format!("{name} test authority"))?;
        let cluster = Self {
            name: name.to_owned(),
            directory,
            authority: authority.pem().to_owned(),
            ports: Ports {
                etcd: ports::free()?,
                etcd_peer: ports::free()?,
                api: ports::free()?,
                controller_manager: ports::free()?,
                scheduler: ports::free()?,
            },
            running: Mutex::default(),
            group,
        };
        files::write(&cluster.directory, &authority)?;
        for user in ["controller-manager", "scheduler", "kwok", ADMIN] {
            cluster.kubeconfig(user)?;
        }
        for part in parts {
            cluster.start_part(*part).await?;
        }
        cluster
            .wait_usable(parts)
            .await
            .with_context(|| format!("starting cluster {name}"))?;
        Ok(cluster)
    }

    /// The name given at the start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The API server's address.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api)
    }

    /// The API server's address under another name of its certificate.
    pub fn url_at(&self, host: &str) -> String {
        format!("https://{host}:{}", self.ports.api)
    }

    /// The API server's port on loopback.
    pub fn port(&self) -> u16 {
        self.ports.api
    }

    /// The certificate authority of the API server, PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The token of a user of the static token file.
    pub fn token(&self, user: &str) -> String {
        files::token(user)
    }

    /// The kubeconfig for a user, as an object.
    pub fn kubeconfig_value(&self, user: &str, namespace: &str) -> Value {
        kubeconfig(&self.url(), &self.authority, &self.token(user), namespace)
    }

    /// The kubeconfig file of a user.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig(&self, user: &str) -> Result<PathBuf> {
        let path = self.directory.join(format!("{user}.kubeconfig"));
        if !path.exists() {
            // Renamed into place: whoever asks at the same time must not read half a file.
            let part = self.directory.join(unique("kubeconfig"));
            let content = self.kubeconfig_value(user, "default").to_string();
            std::fs::write(&part, content)?;
            std::fs::rename(part, &path)?;
        }
        Ok(path)
    }

    /// A client for a user, without retries of its own making sense only inside the runtime that uses it.
    ///
    /// # Errors
    /// When the kubeconfig is refused.
    pub async fn client(&self, user: &str) -> Result<kube::Client> {
        client(self.kubeconfig_value(user, "default")).await
    }

    /// The audit log, from the first request on.
    pub fn audit(&self) -> AuditLog {
        AuditLog::new(self.directory.join("audit.log"))
    }

    /// Starts a part and waits until it answers. Starting one that runs restarts it.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_part(&self, part: Part) -> Result<()> {
        self.stop_part(part);
        let process = self.group.spawn(
            &format!("{}-{}", self.name, part.name()),
            &mut self.command(part)?,
        )?;
        self.lock().insert(part, process);
        match part {
            Part::Etcd => self.wait_answer("/health", self.ports.etcd, part).await,
            Part::ApiServer => {
                let client = self.client(ADMIN).await?;
                wait_until(
                    &format!("the API server of {}", self.name),
                    STARTUP,
                    async || {
                        self.ensure_running(part)?;
                        let request = http::Request::get("/readyz")
                            .body(Vec::new())
                            .map_err(|e| e.to_string())?;
                        client
                            .request_text(request)
                            .await
                            .map_err(|e| e.to_string())
                    },
                )
                .await
                .map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Kills a part, as a crash would; nothing happens when it does not run.
    pub fn stop_part(&self, part: Part) {
        let process = self.lock().remove(&part);
        drop(process);
    }

    /// Saves everything that is stored, under a name; the cluster is away meanwhile.
    ///
    /// # Errors
    /// When a file cannot be copied or a part does not come back.
    pub async fn save(&self, name: &str) -> Result<()> {
        self.with_store_at_rest(|store, saved| copy(store, &saved.join(name)))
            .await
    }

    /// Puts back what was saved, as from a backup: everything since then is forgotten.
    ///
    /// # Errors
    /// When there is no such copy or a part does not come back.
    pub async fn restore(&self, name: &str) -> Result<()> {
        self.with_store_at_rest(|store, saved| {
            std::fs::remove_dir_all(store)?;
            copy(&saved.join(name), store)
        })
        .await
    }

    async fn with_store_at_rest(
        &self,
        deed: impl FnOnce(&Path, &Path) -> std::io::Result<()>,
    ) -> Result<()> {
        let parts = [Part::ApiServer, Part::Etcd];
        parts.iter().for_each(|part| self.stop_part(*part));
        deed(&self.directory.join("etcd"), &self.directory.join("saved"))
            .with_context(|| format!("the store of {}", self.name))?;
        for part in parts.iter().rev() {
            self.start_part(*part).await?;
        }
        Ok(())
    }

    /// The sum of resident memory of all parts, in KiB.
    pub fn memory_kib(&self) -> u64 {
        self.lock()
            .values()
            .filter_map(|p| p.memory_kib().ok())
            .map(|m| m.now)
            .sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Part, Process>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ensure_running(&self, part: Part) -> Result<(), String> {
        self.lock()
            .get_mut(&part)
            .map_or(Ok(()), |p| p.ensure_running().map_err(|e| e.to_string()))
    }

    async fn wait_answer(&self, path: &str, port: u16, part: Part) -> Result<()> {
        let http = reqwest::Client::builder().tls_certs_only([]).build()?;
        let url = format!("http://127.0.0.1:{port}{path}");
        wait_until(
            &format!("{} of {}", part.name(), self.name),
            STARTUP,
            async || {
                self.ensure_running(part)?;
                let answer = http.get(&url).send().await.map_err(|e| e.to_string())?;
                if answer.status().is_success() {
                    Ok(())
                } else {
                    Err(answer.status().to_string())
                }
            },
        )
        .await
    }

    async fn wait_usable(&self, parts: &[Part]) -> Result<()> {
        let client = self.client(ADMIN).await?;
        let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> =
            kube::Api::all(client.clone());
        wait_until("namespace default", STARTUP, async || {
            namespaces.get("default").await.map_err(|e| e.to_string())
        })
        .await?;
        if parts.contains(&Part::ControllerManager) {
            let accounts: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> =
                kube::Api::namespaced(client.clone(), "default");
            wait_until("the default service account", STARTUP, async || {
                self.ensure_running(Part::ControllerManager)?;
                accounts.get("default").await.map_err(|e| e.to_string())
            })
            .await?;
        }
        if parts.contains(&Part::Kwok) {
            self.add_node(client).await?;
        }
        Ok(())
    }

    /// Registers the one node, large enough for everything, and waits until pods may be scheduled to it.
    async fn add_node(&self, client: kube::Client) -> Result<()> {
        use k8s_openapi::api::core::v1::Node;
        let nodes: kube::Api<Node> = kube::Api::all(client);
        let node: Node = serde_json::from_value(files::node())?;
        nodes
            .create(&kube::api::PostParams::default(), &node)
            .await?;
        wait_until("the node to be ready", STARTUP, async || {
            self.ensure_running(Part::Kwok)?;
            let node = nodes.get("node-0").await.map_err(|e| e.to_string())?;
            let conditions = node.status.and_then(|s| s.conditions).unwrap_or_default();
            let ready = conditions
                .iter()
                .any(|c| c.type_ == "Ready" && c.status == "True");
            let tainted = node
                .spec
                .and_then(|s| s.taints)
                .is_some_and(|t| !t.is_empty());
            if ready && !tainted {
                Ok(())
            } else {
                Err(format!("tainted: {tainted}, {conditions:?}"))
            }
        })
        .await
    }

    /// The command line of a part, as the testbed notes found it to work.
    fn command(&self, part: Part) -> Result<Command> {
        let file = |name: &str| self.directory.join(name);
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let kubeconfig = |user: &str| flag("kubeconfig", &file(&format!("{user}.kubeconfig")));
        let ports = &self.ports;
        let etcd = format!("http://127.0.0.1:{}", ports.etcd);
        let mut command;
        match part {
            Part::Etcd => {
                let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
                command = Command::new(Tool::Etcd.path()?);
                command
                    .arg(flag("data-dir", &file("etcd")))
                    .args(["--unsafe-no-fsync", "--log-level=error"])
                    .args([
                        format!("--listen-client-urls={etcd}"),
                        format!("--advertise-client-urls={etcd}"),
                    ])
                    .args([
                        format!("--listen-peer-urls={peer}"),
                        format!("--initial-advertise-peer-urls={peer}"),
                    ])
                    .arg(format!("--initial-cluster=default={peer}"));
            }
            Part::ApiServer => {
                command = Command::new(Tool::KubeApiserver.path()?);
                command
                    .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
                    .arg(format!("--secure-port={}", ports.api))
                    .arg(format!("--etcd-servers={etcd}"))
                    .arg(flag("cert-dir", &file("certs")))
                    .arg(flag("tls-cert-file", &file("server.crt")))
                    .arg(flag("tls-private-key-file", &file("server.key")))
                    .arg(flag("token-auth-file", &file("tokens.csv")))
                    .arg(flag("service-account-key-file", &file("accounts.pub")))
                    .arg(flag(
                        "service-account-signing-key-file",
                        &file("accounts.key"),
                    ))
                    .arg("--service-account-issuer=https://kubernetes.default.svc")
                    .args(["--authorization-mode=RBAC", "--allow-privileged=true"])
                    .args([
                        "--service-cluster-ip-range=10.96.0.0/16",
                        "--endpoint-reconciler-type=none",
                    ])
                    .arg(flag("audit-policy-file", &file("audit-policy.json")))
                    .arg(flag("audit-log-path", &file("audit.log")))
                    .arg("--max-requests-inflight=2000");
            }
            Part::ControllerManager => {
                command = Command::new(Tool::KubeControllerManager.path()?);
                command
                    .arg(kubeconfig("controller-manager"))
                    .arg(format!("--secure-port={}", ports.controller_manager))
                    .arg(flag("cert-dir", &file("certs-controller-manager")))
                    .arg(flag(
                        "service-account-private-key-file",
                        &file("accounts.key"),
                    ))
                    .arg(flag("root-ca-file", &file("authority.crt")))
                    .args([
                        "--bind-address=127.0.0.1",
                        "--leader-elect=false",
                        "--use-service-account-credentials",
                    ])
                    // Nobody renews the node's heartbeat; without this its pods turn unready after a minute.
                    .arg("--node-monitor-grace-period=24h")
                    .args(["--kube-api-qps=500", "--kube-api-burst=1000"]);
            }
            Part::Scheduler => {
                command = Command::new(Tool::KubeScheduler.path()?);
                command
                    .arg(kubeconfig("scheduler"))
                    .arg(format!("--secure-port={}", ports.scheduler))
                    .arg(flag("cert-dir", &file("certs-scheduler")))
                    .args(["--bind-address=127.0.0.1", "--leader-elect=false"])
                    .args(["--kube-api-qps=500", "--kube-api-burst=1000"]);
            }
            Part::Kwok => {
                command = Command::new(Tool::Kwok.path()?);
                command
                    .arg(kubeconfig("kwok"))
                    .arg(flag("config", &file("kwok.yaml")))
                    .args([
                        "--manage-all-nodes=true",
                        "--node-ip=127.0.0.1",
                        "--server-address=",
                    ])
                    .env("HOME", &self.directory);
            }
        }
        Ok(command)
    }
}

/// Copies a directory with everything in it.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// A kubeconfig with one context named `default`, as Fleet writes them: JSON is YAML, so it is also a file.
pub fn kubeconfig(url: &str, authority: &str, token: &str, namespace: &str) -> Value {
    use base64::Engine;
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "cluster", "cluster": {
            "server": url,
            "certificate-authority-data": base64::engine::general_purpose::STANDARD.encode(authority),
        }}],
        "users": [{ "name": "user", "user": { "token": token } }],
        "contexts": [{ "name": "default", "context": {
            "cluster": "cluster", "user": "user", "namespace": namespace,
        }}],
        "current-context": "default",
    })
}

/// A client from a kubeconfig object.
///
/// # Errors
/// When it is refused.
pub async fn client(kubeconfig: Value) -> Result<kube::Client> {
    install_crypto_provider();
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig)?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}
