//! The identity a request is made with: the agent's own, or a bundle's service account.
//!
//! The two clients are different types. Whatever is done on behalf of a bundle takes a
//! [`DeploymentClient`]; nothing turns an [`AgentClient`] into one, so a tenant's bundle cannot be
//! acted for as cluster-admin by mistake. Mirrors `internal/helmdeployer/impersonate.go`;
//! impersonation goes through the configured kubeconfig.

use std::collections::HashMap;
use std::error::Error as _;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use release::Host;
use release::kube::Cluster;
use release::storage::{KubernetesDriver, Storage};
use tokio::time::Instant;

use crate::client::account_records::{AccountRecords, ReadFor};
use crate::client::listed::{Metadata, list_selected};
use crate::client::read_sources::ReadSources;
use crate::client::requests::{Clients, LastContact};
use crate::error;

/// The account used when a bundle names none, if it exists.
const FALLBACK_ACCOUNT: &str = "fleet-default";

/// How long an account that was found is believed to exist. That one is missing is remembered for monitoring alone: in a deploy
/// it may mean that the bundle deploys with the agent's own rights.
const REMEMBERED: Duration = Duration::from_secs(2);

/// The most accounts that are remembered. Whoever writes bundles chooses their names, whether or not there are such.
const MOST_ACCOUNTS: usize = 256;

/// The agent itself: for its system namespace and for watches of metadata.
#[derive(Clone)]
pub struct AgentClient {
    client: Client,
    host: Host,
    read_sources: ReadSources,
}

impl AgentClient {
    /// The client, for the agent's own objects and for watches that carry metadata alone.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        self.host.now()
    }

    /// What this process has read.
    pub fn read_sources(&self) -> &ReadSources {
        &self.read_sources
    }
}

/// A bundle's account.
#[derive(Clone)]
pub struct DeploymentClient {
    cluster: Cluster,
    client: Client,
    account: String,
    /// The agent's, for reading release records where the account may write them, and nothing else.
    reader: Cluster,
    /// The agent's, for listing metadata where the account may not list what it wrote, and nothing else.
    lister: Client,
    read_for: ReadFor,
}

impl DeploymentClient {
    /// The cluster as this account sees it.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The release records of a namespace, read and written with the account's rights. An account that may write records there and not
    /// read them, which is all that the Go agent asks for (agent 7.6), has them read with the agent's.
    pub fn records(&self, namespace: &str) -> Storage {
        let own = KubernetesDriver::new(self.cluster.clone(), namespace);
        match self.account.as_str() {
            "" => Storage::new(own),
            account => Storage::new(AccountRecords::new(
                own,
                (self.reader.clone(), self.read_for.clone()),
                (account, self.client.clone()),
                namespace,
            )),
        }
    }

    /// Lists objects of a namespace as the agent sees them, metadata alone: an account that wrote objects by name may have no right to list them.
    /// What is done with them is done as the account.
    ///
    /// # Errors
    /// As [`list_selected`].
    pub async fn list_for<K>(
        &self,
        namespace: &str,
        selected: ListParams,
        take: impl FnMut(Vec<Metadata<K>>),
    ) -> kube::Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug,
    {
        let objects = Api::<Metadata<K>>::namespaced(self.lister.clone(), namespace);
        list_selected(&objects, selected, take).await.map(drop)
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
    clients: Clients,
    host: Host,
    client: Client,
    cluster: Cluster,
    namespace: String,
    last_contact: LastContact,
    /// By account; one handle each, so that what its bundles ask at the same time is asked once.
    accounts: Mutex<HashMap<String, (Client, Cluster)>>,
    seen: Mutex<HashMap<String, Arc<AccountLookup>>>,
    read_for: ReadFor,
    read_sources: ReadSources,
}

/// What an account is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To deploy.
    Deploy,
    /// To monitor what was deployed, and to correct it.
    Monitor,
}

/// Whether an account exists; held while asking, so that many bundles ask once.
type AccountLookup = tokio::sync::Mutex<Option<LookupResult>>;

/// An answer, and when the request for it went out: requests made before that share it.
struct LookupResult {
    asked: Instant,
    outcome: kube::Result<bool>,
}

impl LookupResult {
    /// Whether this lookup answers a question that was asked at `since`.
    fn is_for(&self, since: Instant, purpose: Purpose) -> bool {
        let is_lasting = match (&self.outcome, purpose) {
            (Ok(exists), Purpose::Deploy) => *exists,
            (outcome, Purpose::Monitor) => outcome.is_ok(),
            (Err(_), Purpose::Deploy) => false,
        };
        self.asked >= since || is_lasting && self.asked.elapsed() < REMEMBERED
    }

    fn to_result(&self) -> kube::Result<bool> {
        match &self.outcome {
            Ok(exists) => Ok(*exists),
            Err(kube::Error::Api(status)) => Err(kube::Error::Api(status.clone())),
            Err(failed) => {
                let cause = failed.source().map_or_else(String::new, error::chain);
                Err(kube::Error::Service(cause.into()))
            }
        }
    }
}

impl Identities {
    /// Identities on the cluster `config` leads to, through `clients`; accounts live in `namespace`. `last_contact` is kept at that cluster's last answer.
    ///
    /// # Errors
    /// No client can be built from the configuration.
    pub fn new(
        config: kube::Config,
        clients: Clients,
        host: Host,
        namespace: &str,
        last_contact: &LastContact,
    ) -> kube::Result<Self> {
        let client = clients.client(config.clone(), last_contact)?;
        Ok(Self {
            cluster: Cluster::new(client.clone()).from_host(host.clone()),
            config,
            clients,
            host,
            client,
            namespace: namespace.to_owned(),
            last_contact: last_contact.clone(),
            accounts: Mutex::default(),
            seen: Mutex::default(),
            read_for: ReadFor::default(),
            read_sources: ReadSources::default(),
        })
    }

    /// The agent.
    pub fn agent(&self) -> AgentClient {
        AgentClient {
            client: self.client.clone(),
            host: self.host.clone(),
            read_sources: self.read_sources.clone(),
        }
    }

    /// The process that all of this runs in.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Accounts there are clients for, those that were looked up, and those that the agent reads for.
    pub fn entries(&self) -> [(&'static str, usize); 3] {
        let accounts = self.accounts.lock();
        let seen = self.seen.lock();
        [
            ("accounts", accounts.len()),
            ("looked_up_accounts", seen.len()),
            ("accounts_read_for", self.read_for.len()),
        ]
    }

    /// CRDs or API services changed: which kinds the cluster serves is asked anew.
    pub fn forget_discovery(&self) {
        self.cluster.forget_discovery();
    }

    /// The account a bundle deploys with: the named one, which must exist, else `fleet-default` if
    /// it exists, else the agent's.
    ///
    /// # Errors
    /// The named account does not exist or cannot be looked up.
    pub async fn deployment(
        &self,
        named: &str,
        purpose: Purpose,
    ) -> Result<DeploymentClient, IdentityError> {
        let desired = if named.is_empty() {
            FALLBACK_ACCOUNT
        } else {
            named
        };
        let exists = self.exists(desired, purpose).await;
        match exists {
            Ok(true) => self.account(desired),
            Ok(false) if named.is_empty() => self.account(""),
            Ok(false) => Err(IdentityError::Account {
                namespace: self.namespace.clone(),
                name: named.to_owned(),
                source: not_found(named),
            }),
            Err(source) => Err(IdentityError::Account {
                namespace: self.namespace.clone(),
                name: desired.to_owned(),
                source,
            }),
        }
    }

    /// The account a release was deployed with, by our ledger; not looked up, so that the
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
            lister: self.client.clone(),
            read_for: self.read_for.clone(),
        })
    }

    fn impersonating(&self, name: &str) -> kube::Result<(Client, Cluster)> {
        let mut accounts = self.accounts.lock();
        if let Some(known) = accounts.get(name) {
            return Ok(known.clone());
        }
        let mut config = self.config.clone();
        let user = format!("system:serviceaccount:{}:{name}", self.namespace);
        config.auth_info.impersonate = Some(user);
        let client = self.clients.client(config, &self.last_contact)?;
        let made = (client.clone(), self.cluster.impersonating(client));
        if accounts.len() >= MOST_ACCOUNTS {
            // Clients in use are clones, and live on.
            accounts.clear();
        }
        accounts.insert(name.to_owned(), made.clone());
        Ok(made)
    }

    async fn exists(&self, name: &str, purpose: Purpose) -> kube::Result<bool> {
        if !is_object_name(name) {
            return Ok(false);
        }
        let since = Instant::now();
        let question = {
            let mut seen = self.seen.lock();
            if seen.len() >= MOST_ACCOUNTS {
                // But for those that are asked for just now.
                seen.retain(|_, question| Arc::strong_count(question) > 1);
            }
            Arc::clone(seen.entry(name.to_owned()).or_default())
        };
        let mut question = question.lock().await;
        if let Some(answer) = question
            .as_ref()
            .filter(|answer| answer.is_for(since, purpose))
        {
            return answer.to_result();
        }
        let asked = Instant::now();
        let accounts =
            Api::<Metadata<ServiceAccount>>::namespaced(self.client.clone(), &self.namespace);
        let found = error::found(accounts.get(name).await);
        let answer = question.insert(LookupResult {
            asked,
            outcome: found.map(|found| found.is_some()),
        });
        answer.to_result()
    }
}

/// Whether an object can have this name: a DNS-1123 subdomain.
fn is_object_name(name: &str) -> bool {
    let is_inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    (1..=253).contains(&name.len()) && name.bytes().all(is_inner)
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
        matches!(self, Self::Account { source, .. } if error::is_not_found(source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deploy_always_asks_again_for_an_account_that_was_missing() {
        let second = Duration::from_secs(1);
        let asked = Instant::now();
        let answer = |outcome| LookupResult { asked, outcome };
        let unreachable = || kube::Error::Service("no answer".into());
        // Callers that asked while the request was on its way share the answer, whatever it is.
        for outcome in [Ok(true), Ok(false), Err(unreachable())] {
            assert!(answer(outcome).is_for(asked, Purpose::Deploy));
        }
        tokio::time::advance(second).await;
        let lasts = |outcome, purpose| answer(outcome).is_for(Instant::now(), purpose);
        assert!(lasts(Ok(true), Purpose::Deploy));
        assert!(!lasts(Ok(false), Purpose::Deploy));
        assert!(lasts(Ok(false), Purpose::Monitor));
        assert!(!lasts(Err(unreachable()), Purpose::Monitor));
        tokio::time::advance(second).await;
        assert!(!lasts(Ok(true), Purpose::Deploy));
        let result = answer(Err(unreachable())).to_result().unwrap_err();
        assert_eq!(error::chain(&result), error::chain(&unreachable()));
    }

    /// An author of bundles may name as many accounts as he likes.
    #[tokio::test]
    async fn remembered_accounts_are_bounded() {
        let clients = crate::client::scripted::clients(|request| {
            let is_there = request.uri().path().ends_with('0');
            let missing = serde_json::json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"});
            let account = serde_json::json!({"metadata": {"name": "a"}});
            let answer = if is_there {
                (200, account)
            } else {
                (404, missing)
            };
            async { answer }
        });
        let identities = crate::client::scripted::identities(&clients);
        for n in 0..4 * MOST_ACCOUNTS {
            let name = format!("a-{n}");
            let found = identities.deployment(&name, Purpose::Deploy).await;
            assert_eq!(found.is_ok(), n.is_multiple_of(10));
        }
        for n in 0..2 * MOST_ACCOUNTS {
            let name = format!("b-{n}0");
            identities.deployment(&name, Purpose::Deploy).await.unwrap();
        }
        for (what, count) in identities.entries() {
            assert!(count <= MOST_ACCOUNTS, "{count} {what}");
        }
    }

    /// The agent may do everything: a page of a proxy must not be the word that there is no account for bundles.
    #[tokio::test]
    async fn a_page_in_place_of_an_account_deploys_nothing_with_the_agents_rights() {
        let clients = crate::client::scripted::clients(|_| async {
            (404, serde_json::json!("404 page not found"))
        });
        let identities = crate::client::scripted::identities(&clients);
        for named in ["", "tenant"] {
            let failed = identities.deployment(named, Purpose::Deploy).await;
            let text = error::chain(&failed.err().unwrap());
            assert!(text.contains("the API server answered 404"), "{text}");
        }
    }

    #[tokio::test]
    async fn an_invalid_account_name_makes_no_request() {
        let clients = crate::client::scripted::clients(|request| async move {
            panic!("{} was asked for", request.uri());
        });
        let identities = crate::client::scripted::identities(&clients);
        for name in ["a".repeat(254), "a/token".into(), "../secrets/a".into()] {
            let found = identities.deployment(&name, Purpose::Deploy).await;
            assert!(found.is_err_and(|error| error.is_missing()));
        }
        assert!(identities.entries().iter().all(|(_, count)| *count == 0));
    }
}
