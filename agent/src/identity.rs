//! Who acts: the agent for itself, or a bundle's service account.
//!
//! The two clients are different types. Whatever is done on behalf of a bundle takes a
//! [`DeploymentClient`]; nothing turns an [`AgentClient`] into one, so a tenant's bundle cannot be
//! acted for as cluster-admin by mistake. Mirrors `internal/helmdeployer/impersonate.go`;
//! impersonation goes through the configured kubeconfig.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use release::kube::Cluster;
use release::storage::{Objects, RecordKind, Storage};
use tokio::time::Instant;

use crate::{error, requests};

/// The account used when a bundle names none, if it exists.
const FALLBACK_ACCOUNT: &str = "fleet-default";

/// How long an account that was looked up is believed to exist or not.
const REMEMBERED: Duration = Duration::from_secs(2);

/// The agent itself: system namespace, watches, copies of nothing.
#[derive(Clone)]
pub struct AgentClient {
    client: Client,
}

impl AgentClient {
    /// The client, for the agent's own objects and for watches that carry metadata alone.
    pub fn client(&self) -> Client {
        self.client.clone()
    }
}

/// A bundle's account.
#[derive(Clone)]
pub struct DeploymentClient {
    cluster: Cluster,
    client: Client,
    account: String,
    /// The agent's, for reading release records and nothing else.
    reader: Cluster,
}

impl DeploymentClient {
    /// The cluster as this account sees it.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The release records of a namespace: written with the account's rights, read with the agent's
    /// as upstream does, so that an account needs no right to read Secrets (agent 7.6).
    pub fn records(&self, namespace: &str) -> Storage {
        let written = Objects::new(self.cluster.clone(), namespace, RecordKind::Secret);
        Storage::new(written.read_by(self.reader.clone()))
    }

    /// The client, for Fleet's own few requests on behalf of the bundle.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Name of the account in the system namespace; empty for the agent's own.
    pub fn account(&self) -> &str {
        &self.account
    }
}

/// No client for a bundle.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("looking up service account {namespace}/{name}")]
    Account {
        namespace: String,
        name: String,
        source: kube::Error,
    },
    #[error("failed to build a client for service account {name}")]
    Client { name: String, source: kube::Error },
}

/// Hands out clients.
pub struct Identities {
    config: kube::Config,
    client: Client,
    cluster: Cluster,
    namespace: String,
    /// By account; one handle each, so that what its bundles ask at the same time is asked once.
    accounts: Mutex<HashMap<String, (Client, Cluster)>>,
    /// Held while looking, so that many bundles look once.
    seen: tokio::sync::Mutex<HashMap<String, (Instant, bool)>>,
}

impl Identities {
    /// Identities on the cluster `config` leads to; accounts live in `namespace`.
    ///
    /// # Errors
    /// No client can be built from the configuration.
    pub fn new(config: kube::Config, namespace: &str) -> kube::Result<Self> {
        let client = requests::client(config.clone())?;
        Ok(Self {
            cluster: Cluster::new(client.clone()),
            config,
            client,
            namespace: namespace.to_owned(),
            accounts: Mutex::default(),
            seen: tokio::sync::Mutex::default(),
        })
    }

    /// The agent.
    pub fn agent(&self) -> AgentClient {
        AgentClient {
            client: self.client.clone(),
        }
    }

    /// The account a bundle deploys with: the named one, which must exist, else `fleet-default` if
    /// it exists, else the agent's.
    ///
    /// # Errors
    /// The named account does not exist or cannot be looked up.
    pub async fn deployment(&self, named: &str) -> Result<DeploymentClient, IdentityError> {
        let wanted = if named.is_empty() {
            FALLBACK_ACCOUNT
        } else {
            named
        };
        let exists = self.exists(wanted).await;
        match exists {
            Ok(true) => self.account(wanted),
            Ok(false) if named.is_empty() => self.account(""),
            Ok(false) => Err(IdentityError::Account {
                namespace: self.namespace.clone(),
                name: named.to_owned(),
                source: not_found(named),
            }),
            Err(source) => Err(IdentityError::Account {
                namespace: self.namespace.clone(),
                name: wanted.to_owned(),
                source,
            }),
        }
    }

    /// The account a release was deployed with, as our ledger says; not looked up, so that the
    /// API server refuses what a deleted account may not do.
    ///
    /// # Errors
    /// No client can be built.
    pub fn account(&self, name: &str) -> Result<DeploymentClient, IdentityError> {
        let failed = |source| IdentityError::Client {
            name: name.to_owned(),
            source,
        };
        let (client, cluster) = match name {
            "" => (self.client.clone(), self.cluster.clone()),
            name => self.impersonating(name).map_err(failed)?,
        };
        Ok(DeploymentClient {
            cluster,
            client,
            account: name.to_owned(),
            reader: self.cluster.clone(),
        })
    }

    fn impersonating(&self, name: &str) -> kube::Result<(Client, Cluster)> {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = accounts.get(name) {
            return Ok(known.clone());
        }
        let mut config = self.config.clone();
        let user = format!("system:serviceaccount:{}:{name}", self.namespace);
        config.auth_info.impersonate = Some(user);
        let client = requests::client(config)?;
        let made = (client.clone(), self.cluster.acting_as(client));
        accounts.insert(name.to_owned(), made.clone());
        Ok(made)
    }

    async fn exists(&self, name: &str) -> kube::Result<bool> {
        let mut seen = self.seen.lock().await;
        let known = seen.get(name).copied();
        if let Some((at, exists)) = known.filter(|(at, _)| at.elapsed() < REMEMBERED) {
            tracing::trace!(account = name, age = ?at.elapsed(), "account is remembered");
            return Ok(exists);
        }
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), &self.namespace);
        let exists = accounts.get_metadata_opt(name).await?.is_some();
        seen.insert(name.to_owned(), (Instant::now(), exists));
        Ok(exists)
    }
}

/// The Go agent asks its cache, which names the kind where the API server names the resource.
fn not_found(name: &str) -> kube::Error {
    let message = format!("ServiceAccount \"{name}\" not found");
    kube::Error::Api(
        kube::core::Status::failure(&message, "NotFound")
            .with_code(404)
            .boxed(),
    )
}

impl IdentityError {
    /// Whether the cluster was asked and said no.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Account { source, .. } if error::has_code(source, 404))
    }
}
