//! Registration: from whatever the cluster holds to a working client for upstream.
//!
//! Mirrors `internal/cmd/agent/register/register.go`. Differences: a credential that works is kept
//! until another one has listed BundleDeployments; it says which bootstrap Secret it came of, so that another one is
//! made use of and not deleted; upstream's CA and the system's are combined as the TLS mode says, without a probe request.

pub mod bootstrap;
pub mod credential;
mod renewals;
mod secrets;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{ListParams, ObjectMeta, PostParams, TypeMeta};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use rand::seq::IndexedRandom as _;
use tokio::time::Instant;

use crate::api::{
    BundleDeployment, Cluster, ClusterRegistration, ClusterRegistrationSpec,
    LABEL_CREATED_BY_AGENT_POD, LABEL_REGISTRATION_TOKEN,
};
use crate::client::listed::Metadata;
use crate::client::requests::{self, Clients, LastContact};
use crate::config::{AGENT_NAME, AgentConfig, AgentConfigError, BOOTSTRAP_NAME, Timing, TlsMode};
use crate::public;
use crate::public::{Name, PublicText};
use crate::report::events::{Events, Reason};
use bootstrap::{Bootstrap, Origin};
use secrets::Secrets;

pub use credential::{Credential, CredentialError};
pub use renewals::Renewals;

/// Time to reach upstream's API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Upstream, reachable.
#[derive(Clone)]
pub struct Upstream {
    pub client: Client,
    /// Address of its API server.
    pub server: String,
    /// What opened it.
    pub credential: Arc<Credential>,
    /// Namespace of the BundleDeployments, from the kubeconfig's context.
    pub namespace: String,
    pub cluster_namespace: String,
    pub cluster_name: String,
}

impl Upstream {
    /// Whatever `clients` answer.
    #[cfg(test)]
    pub(crate) fn scripted(clients: &Clients) -> Self {
        let contact = LastContact::default();
        let client = clients.client(crate::client::scripted::config(), &contact);
        Self {
            client: client.expect("a scripted client needs nothing"),
            server: "http://scripted".to_owned(),
            credential: Arc::new(Credential::from_data(&Default::default())),
            namespace: "bundles".to_owned(),
            cluster_namespace: "clusters".to_owned(),
            cluster_name: "cluster".to_owned(),
        }
    }

    /// Clusters, in the namespace of ours.
    pub fn clusters(&self) -> Api<Cluster> {
        Api::namespaced(self.client.clone(), &self.cluster_namespace)
    }

    /// Our BundleDeployments; `K` is the type they are read as.
    pub fn bundle_deployments<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// Why an attempt failed. Retried by [`Registrar::register`].
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error("looking up secret {namespace}/{name}")]
    Secret {
        namespace: String,
        name: &'static str,
        source: kube::Error,
    },
    #[error("looking up secret {namespace}/{name}: secrets \"{name}\" not found")]
    NoBootstrap {
        namespace: String,
        name: &'static str,
    },
    #[error("failed to look up client config {namespace}/{name}")]
    ConfigMap {
        namespace: String,
        name: &'static str,
        source: kube::Error,
    },
    #[error(transparent)]
    Config(#[from] AgentConfigError),
    #[error("cannot retrieve our kubeSystem.UID")]
    KubeSystem(#[source] kube::Error),
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error("failed to build a client for upstream")]
    Client(#[source] kube::Error),
    #[error("cannot create clusterregistration on management cluster for cluster id '{client_id}'")]
    Create {
        client_id: String,
        source: kube::Error,
    },
    #[error("timeout waiting for registration secret '{namespace}/{name}' on management cluster")]
    Timeout { namespace: String, name: String },
    #[error("cannot list bundledeployments on management cluster")]
    List(#[source] kube::Error),
    #[error("new client config cannot list bundledeployments on management cluster")]
    NewCredential(#[source] Box<RegisterError>),
    #[error("failed to create 'fleet-agent' secret")]
    Store(#[source] kube::Error),
    #[error("failed to print the kubeconfig")]
    Print(#[source] golib::yaml::Error),
}

/// Registers this cluster.
#[derive(Clone)]
pub struct Registrar {
    /// Client of the local cluster.
    pub local: Client,
    /// What makes those of upstream.
    pub clients: Clients,
    /// System namespace.
    pub namespace: String,
    /// Told upstream for debugging.
    pub hostname: String,
    pub timing: Timing,
    pub events: Arc<Events>,
    /// Kept at upstream's last answer.
    pub last_contact: LastContact,
    /// When credentials were renewed.
    pub renewals: Renewals,
}

impl Registrar {
    /// Where local cluster and upstream answer whatever `clients` do.
    #[cfg(test)]
    pub(crate) fn scripted(clients: Clients) -> Self {
        let agent = crate::client::scripted::identities(&clients).agent();
        let events = Events::new(&agent, "system", "host", Default::default());
        Self {
            local: agent.client(),
            clients,
            namespace: "system".to_owned(),
            hostname: "host".to_owned(),
            timing: Timing::default(),
            events: Arc::new(events),
            last_contact: LastContact::default(),
            renewals: Renewals::default(),
        }
    }

    /// Returns once upstream lists our BundleDeployments, with the configuration that led there; tries for ever.
    ///
    /// # Cancellation
    /// Safe: the stored credential is only replaced by one that works.
    pub async fn register(&self) -> (Upstream, AgentConfig) {
        self.until_registered(false).await
    }

    /// Registers with a bootstrap Secret that the credential did not come of, as [`Registrar::renew`]. One that it came of is left
    /// where it is: what restores it would do so again.
    ///
    /// # Cancellation
    /// Safe, as [`Registrar::register`].
    pub async fn renew_if_new(&self) {
        loop {
            match self.has_new_bootstrap().await {
                Ok(true) => break,
                Ok(false) => {
                    logging::info!("the bootstrap secret was made use of before, leaving it");
                    return;
                }
                Err(failed) => {
                    let error = PublicText::nothing_secret_in(&failed);
                    logging::warn!(error, "cannot read the bootstrap secret");
                    tokio::time::sleep(self.pause(&failed, 0)).await;
                }
            }
        }
        let pause = self
            .renewals
            .pause(Instant::now(), self.timing.registration_retry);
        logging::info!(pause, "a bootstrap secret is there, registering again");
        tokio::time::sleep(pause).await;
        self.renew().await;
    }

    /// Replaces a credential that may still work by what the bootstrap Secret leads to. Returns
    /// when that is done, or when there is nothing to register with any more.
    ///
    /// # Cancellation
    /// Safe, as [`Registrar::register`].
    pub async fn renew(&self) {
        self.until_registered(true).await;
    }

    fn secrets(&self) -> Secrets {
        Secrets::of(&self.local, &self.namespace)
    }

    async fn has_new_bootstrap(&self) -> Result<bool, RegisterError> {
        let secrets = self.secrets();
        let (stored, bootstrap) = tokio::try_join!(secrets.credential(), secrets.bootstrap())?;
        Ok(bootstrap.is_some_and(|bootstrap| {
            stored.is_none_or(|stored| Origin::of(&stored, Some(&bootstrap)) != Origin::This)
        }))
    }

    async fn until_registered(&self, anew: bool) -> (Upstream, AgentConfig) {
        let (logged, emitted) = match anew {
            false => ("failed to register agent", "cannot register"),
            true => (
                "failed to register agent again",
                "cannot register again, the old credential is kept",
            ),
        };
        let mut failures = 0;
        loop {
            let failed = match self.attempt(anew).await {
                Ok(registered) => return registered,
                Err(failed) => failed,
            };
            let text = PublicText::nothing_secret_in(&failed);
            logging::error!(error = text, "{}", logged);
            let text = public!("{}: {}", emitted, text);
            self.events.emit_for_agent(Reason::CredentialRefused, text);
            tokio::time::sleep(self.pause(&failed, failures)).await;
            failures += 1;
        }
    }

    /// Whether the stored credential is another one than `current`, and works.
    ///
    /// # Errors
    /// There is none, or it does not work.
    pub async fn has_replacement_of(&self, current: &Credential) -> Result<bool, RegisterError> {
        let secrets = self.secrets();
        let secret = secrets.credential().await?;
        let secret = secret.ok_or_else(|| RegisterError::NoBootstrap {
            namespace: self.namespace.clone(),
            name: AGENT_NAME,
        })?;
        let stored = Credential::from_data(&secret.data.unwrap_or_default());
        if stored == *current {
            return Ok(false);
        }
        let config = self.agent_config().await?;
        self.connect(&stored, config.tls_mode).await?;
        Ok(true)
    }

    /// A request upstream has accepted is not repeated hastily; everything else soon, then slower.
    fn pause(&self, failed: &RegisterError, failures: u32) -> Duration {
        let longest = self.timing.registration_retry;
        match failed {
            RegisterError::Timeout { .. }
            | RegisterError::NewCredential(_)
            | RegisterError::Store(_) => longest,
            _ => (longest / 60)
                .saturating_mul(2_u32.saturating_pow(failures.min(10)))
                .min(longest),
        }
    }

    async fn attempt(&self, anew: bool) -> Result<(Upstream, AgentConfig), RegisterError> {
        let secrets = self.secrets();
        let (config, stored, bootstrap) = tokio::try_join!(
            self.agent_config(),
            secrets.credential(),
            secrets.bootstrap(),
        )?;
        let current = match &stored {
            None => None,
            Some(secret) => {
                let credential = Credential::from_data(&secret.data.clone().unwrap_or_default());
                let origin = Origin::of(secret, bootstrap.as_ref());
                let connected = self.connect(&credential, config.tls_mode).await;
                Some((secret, origin, connected))
            }
        };
        let upstream = match (current, &bootstrap) {
            (Some((stored, origin, Ok(upstream))), bootstrap)
                if !anew || bootstrap.is_none() || origin == Origin::This =>
            {
                match origin {
                    Origin::This => {}
                    // The session registers with it, and works meanwhile.
                    Origin::Another => return Ok((upstream, config)),
                    // Whoever stored the credential may have made use of this Secret: as the Go agent, which deletes it.
                    Origin::Unknown => secrets.note(stored, bootstrap.as_ref()).await,
                }
                upstream
            }
            (current, Some(bootstrap)) => {
                if let Some((_, _, Err(failed))) = current {
                    let error = PublicText::nothing_secret_in(&failed);
                    logging::error!(error, "current credential failed, registering again");
                }
                self.request(&secrets, bootstrap, config.clone()).await?
            }
            (Some((_, _, Err(failed))), None) => return Err(failed),
            (_, None) => {
                return Err(RegisterError::NoBootstrap {
                    namespace: self.namespace.clone(),
                    name: BOOTSTRAP_NAME,
                });
            }
        };
        if let Some(bootstrap) = bootstrap {
            secrets.discard(bootstrap).await;
        }
        Ok((upstream, config))
    }

    /// The agent's ConfigMap; defaults when there is none.
    ///
    /// # Errors
    /// It cannot be read or is not a configuration.
    pub async fn agent_config(&self) -> Result<AgentConfig, RegisterError> {
        let maps = Api::<ConfigMap>::namespaced(self.local.clone(), &self.namespace);
        let found = maps
            .get_opt(AGENT_NAME)
            .await
            .map_err(|source| RegisterError::ConfigMap {
                namespace: self.namespace.clone(),
                name: AGENT_NAME,
                source,
            })?;
        match found {
            Some(map) => Ok(AgentConfig::from_data(&map.data.unwrap_or_default())?),
            None => Ok(AgentConfig::default()),
        }
    }

    /// Asks upstream for a credential, waits for it, proves it, stores it.
    async fn request(
        &self,
        secrets: &Secrets,
        bootstrap: &Secret,
        config: AgentConfig,
    ) -> Result<Upstream, RegisterError> {
        let origin = bootstrap::origin(Some(bootstrap));
        let bootstrap = Bootstrap::from_data(&bootstrap.data.clone().unwrap_or_default());
        let client_id = match config.client_id.is_empty() {
            false => config.client_id,
            true => self.kube_system_uid().await?,
        };
        let kubeconfig =
            credential::kubeconfig(&bootstrap, &bootstrap.token, &bootstrap.cluster_namespace)
                .map_err(RegisterError::Print)?;
        let mut asking = credential::client_config(&kubeconfig, config.tls_mode).await?;
        if config.tls_mode == TlsMode::Strict && asking.root_cert.is_none() {
            // No CA given means that none is trusted; client-go's fallback comes with the
            // credential only.
            asking.root_cert = Some(Vec::new());
        }
        let asking = self.client(asking)?;

        logging::info!(
            client_id = Name(&client_id),
            "creating a clusterregistration"
        );
        let client_random = random_token();
        let mut cluster_labels = config.labels;
        cluster_labels.insert(LABEL_CREATED_BY_AGENT_POD.into(), self.hostname.clone());
        let registration = ClusterRegistration {
            types: TypeMeta::resource::<ClusterRegistration>(),
            metadata: ObjectMeta {
                generate_name: Some("request-".into()),
                namespace: Some(bootstrap.cluster_namespace.clone()),
                labels: Some(
                    [(
                        LABEL_REGISTRATION_TOKEN.into(),
                        bootstrap.token_name.clone(),
                    )]
                    .into(),
                ),
                ..Default::default()
            },
            spec: ClusterRegistrationSpec {
                client_id: client_id.clone(),
                client_random: client_random.clone(),
                cluster_labels,
            },
        };
        let registrations =
            Api::<ClusterRegistration>::namespaced(asking.clone(), &bootstrap.cluster_namespace);
        registrations
            .create(&PostParams::default(), &registration)
            .await
            .map_err(|source| RegisterError::Create {
                client_id: client_id.clone(),
                source,
            })?;

        let name = credential::secret_name(&client_id, &client_random);
        let answer = self
            .await_answer(&asking, &bootstrap.system_registration_namespace, &name)
            .await?;
        let text = |key: &str| {
            let bytes = answer
                .get(key)
                .map(|value| value.0.as_slice())
                .unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        let deployment_namespace = text("deploymentNamespace");
        let credential = Credential {
            kubeconfig: credential::kubeconfig(&bootstrap, &text("token"), &deployment_namespace)
                .map_err(RegisterError::Print)?,
            deployment_namespace,
            cluster_namespace: text("clusterNamespace"),
            cluster_name: text("clusterName"),
        };
        let upstream = self
            .connect(&credential, config.tls_mode)
            .await
            .map_err(|failed| RegisterError::NewCredential(Box::new(failed)))?;
        secrets
            .store(&credential, origin)
            .await
            .map_err(RegisterError::Store)?;
        self.events.emit_for_agent(
            Reason::Registered,
            public!("registered with {}", Name(&upstream.server)),
        );
        Ok(upstream)
    }

    async fn kube_system_uid(&self) -> Result<String, RegisterError> {
        let namespaces = Api::<Namespace>::all(self.local.clone());
        let namespace = namespaces
            .get("kube-system")
            .await
            .map_err(RegisterError::KubeSystem)?;
        Ok(namespace.metadata.uid.unwrap_or_default())
    }

    /// Polls for the Secret upstream answers with. Whatever goes wrong means "not there yet": the
    /// right to read it is granted only when it is.
    async fn await_answer(
        &self,
        asking: &Client,
        namespace: &str,
        name: &str,
    ) -> Result<BTreeMap<String, k8s_openapi::ByteString>, RegisterError> {
        let secrets = Api::<Secret>::namespaced(asking.clone(), namespace);
        let poll = async {
            loop {
                tokio::time::sleep(self.timing.credential_poll).await;
                match secrets.get(name).await {
                    Ok(secret) => return secret.data.unwrap_or_default(),
                    Err(failed) => {
                        let error = PublicText::nothing_secret_in(&failed);
                        logging::info!(namespace, name, error, "waiting for a secret on upstream");
                    }
                }
            }
        };
        tokio::time::timeout(self.timing.credential_timeout, poll)
            .await
            .map_err(|_| RegisterError::Timeout {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
    }

    /// Turns a credential into a client and proves it by one LIST.
    async fn connect(
        &self,
        credential: &Credential,
        mode: TlsMode,
    ) -> Result<Upstream, RegisterError> {
        let config = credential::client_config(&credential.kubeconfig, mode).await?;
        let namespace = config.default_namespace.clone();
        let server = requests::shown(&config.cluster_url);
        let client = self.client(config)?;
        let bundles = Api::<Metadata<BundleDeployment>>::namespaced(client.clone(), &namespace);
        bundles
            .list(&ListParams::default().limit(1))
            .await
            .map_err(RegisterError::List)?;
        Ok(Upstream {
            client,
            server,
            credential: Arc::new(credential.clone()),
            namespace,
            cluster_namespace: credential.cluster_namespace.clone(),
            cluster_name: credential.cluster_name.clone(),
        })
    }

    fn client(&self, mut config: kube::Config) -> Result<Client, RegisterError> {
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        self.clients
            .client(config, &self.last_contact)
            .map_err(RegisterError::Client)
    }
}

/// 54 characters of the alphabet of wrangler's `randomtoken`.
fn random_token() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rng = rand::rng();
    (0..54)
        .filter_map(|_| ALPHABET.choose(&mut rng))
        .map(|&byte| char::from(byte))
        .collect()
}

#[cfg(test)]
mod tests {
    use http::{Method, Request};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::bootstrap::ORIGIN_ANNOTATION;
    use super::*;
    use crate::client::scripted;

    /// A Secret of the system namespace with text values.
    fn secret(name: &str, texts: &[(&str, &str)]) -> Secret {
        let bytes = |text: &str| k8s_openapi::ByteString(text.into());
        Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..Default::default()
            },
            data: Some(
                texts
                    .iter()
                    .map(|(key, text)| ((*key).to_owned(), bytes(text)))
                    .collect(),
            ),
            ..Default::default()
        }
    }

    /// What is written at a start with a credential that works and notes `origin`.
    async fn writes(origin: Option<String>, bootstrap: Option<&Secret>) -> Vec<String> {
        let open = Bootstrap::from_data(
            &[(
                "apiServerURL".to_owned(),
                k8s_openapi::ByteString("http://scripted".into()),
            )]
            .into(),
        );
        let kubeconfig = credential::kubeconfig(&open, "t", "bundles").unwrap();
        let kubeconfig = String::from_utf8(kubeconfig).unwrap();
        let mut stored = secret(AGENT_NAME, &[("kubeconfig", kubeconfig.as_str())]);
        stored.metadata.annotations =
            origin.map(|origin| [(ORIGIN_ANNOTATION.to_owned(), origin)].into());
        let found = |secret: Option<&Secret>| match secret {
            Some(secret) => (200, serde_json::to_value(secret).unwrap()),
            None => (
                404,
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}),
            ),
        };
        let answers: BTreeMap<&str, (u16, Value)> = [
            ("configmaps/fleet-agent", found(None)),
            ("secrets/fleet-agent", found(Some(&stored))),
            ("secrets/fleet-agent-bootstrap", found(bootstrap)),
            (
                "bundles/bundledeployments",
                (200, json!({"metadata": {}, "items": []})),
            ),
        ]
        .into();
        let written = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&written);
        let clients = scripted::clients(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let answer = answers.iter().find(|(end, _)| path.ends_with(*end));
            let answer = answer.map(|(_, answer)| answer.clone());
            let what = path.rsplit('/').next().unwrap_or_default();
            if request.method() != Method::GET {
                noted.lock().push(format!("{} {what}", request.method()));
            }
            async move { answer.unwrap_or((500, json!({}))) }
        });
        let registrar = Registrar::scripted(clients);
        registrar.attempt(false).await.map(drop).unwrap();
        written.lock().clone()
    }

    #[tokio::test]
    async fn a_start_deletes_no_bootstrap_secret_that_the_credential_did_not_come_of() {
        let bootstrap = secret(BOOTSTRAP_NAME, &[("token", "a")]);
        let (this, another) = (
            bootstrap::origin(Some(&bootstrap)),
            bootstrap::origin(Some(&secret(BOOTSTRAP_NAME, &[("token", "b")]))),
        );
        let there = Some(&bootstrap);
        let delete = "DELETE fleet-agent-bootstrap";
        assert_eq!(writes(Some(this.clone()), there).await, [delete]);
        assert!(writes(Some(another), there).await.is_empty());
        assert!(
            writes(Some(bootstrap::origin(None)), there)
                .await
                .is_empty()
        );
        assert!(writes(Some(this), None).await.is_empty());
        // As the Go agent leaves it.
        let note = "PATCH fleet-agent";
        assert_eq!(writes(None, there).await, [note, delete]);
        assert_eq!(writes(None, None).await, [note]);
    }

    #[tokio::test]
    async fn what_upstream_accepted_is_not_asked_for_hastily() {
        let registrar = Registrar::scripted(scripted::clients(|_| async { (500, json!({})) }));
        let cause = || kube::Error::LinesCodecMaxLineLengthExceeded;
        let refused = RegisterError::List(cause());
        assert_eq!(registrar.pause(&refused, 0), Duration::from_secs(1));
        let proof = RegisterError::NewCredential(Box::new(refused));
        for failed in [proof, RegisterError::Store(cause())] {
            assert_eq!(registrar.pause(&failed, 0), Duration::from_secs(60));
        }
    }

    #[test]
    fn random_tokens_are_wranglers() {
        let token = random_token();
        assert_eq!(token.len(), 54);
        assert!(
            token
                .chars()
                .all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c))
        );
        assert_ne!(token, random_token());
    }
}
