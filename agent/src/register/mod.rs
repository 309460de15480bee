//! Registration: from whatever the cluster holds to a working client for upstream.
//!
//! Mirrors `internal/cmd/agent/register/register.go`. Differences: a credential that works is kept
//! until another one has listed BundleDeployments; it says which bootstrap Secret it came of, so that another one is
//! made use of and not deleted; upstream's CA and the system's are combined as the TLS mode says, without a probe request.

pub mod bootstrap;
pub mod credential;
#[cfg(test)]
mod lost_answers;
mod registration_lock;
mod renewals;
mod request;
mod secrets;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use tokio::time::Instant;

use crate::api::{BundleDeployment, Cluster};
use crate::client::listed::Metadata;
use crate::client::requests::{self, Clients, LastContact};
use crate::config::{AGENT_NAME, AgentConfig, AgentConfigError, BOOTSTRAP_NAME, Timing, TlsMode};
use crate::error;
use crate::public;
use crate::public::{Name, PublicText};
use crate::report::events::{Events, Reason};
use bootstrap::{Bootstrap, BootstrapMatch};
use registration_lock::RegistrationState;
use secrets::Secrets;

pub use credential::{Credential, CredentialError};
pub use registration_lock::RegistrationLock;
pub use renewals::Renewals;

/// Time to reach upstream's API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// So many of the longest pauses upstream may ask for before it is asked again.
const LONGEST_RETRY_AFTER: u32 = 5;

/// For how long an upstream that is busy is no Event: after that its address may be wrong, behind which something answers for ever that it is.
const LONG_UNHEARD: Duration = Duration::from_secs(10 * 60);

/// Upstream, reachable.
#[derive(Clone)]
pub struct Upstream {
    pub client: Client,
    /// Address of its API server.
    pub server: String,
    /// The credential of this connection.
    pub credential: Arc<Credential>,
    /// Namespace of the BundleDeployments, from the kubeconfig's context.
    pub namespace: String,
    pub cluster_namespace: String,
    pub cluster_name: String,
}

impl Upstream {
    /// An upstream that answers as `clients` do.
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
        /// When upstream says that it may be asked again.
        retry_after: Option<Duration>,
        source: kube::Error,
    },
    #[error("timeout waiting for registration secret '{namespace}/{name}' on management cluster")]
    Timeout { namespace: String, name: String },
    #[error("another bootstrap secret has come, registering with that one")]
    Replaced,
    #[error("cannot list bundledeployments on management cluster")]
    List(#[source] kube::Error),
    #[error("new client config cannot list bundledeployments on management cluster")]
    NewCredential(#[source] Box<RegisterError>),
    #[error("failed to create 'fleet-agent' secret")]
    Store(#[source] kube::Error),
    #[error("another 'fleet-agent' secret was stored meanwhile, it is kept")]
    Overtaken,
    #[error("failed to print the kubeconfig")]
    Print(#[source] golib::yaml::Error),
}

impl RegisterError {
    /// Whether upstream had accepted a registration, which came to nothing.
    fn is_of_accepted(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. } | Self::NewCredential(_) | Self::Store(_) | Self::Overtaken
        )
    }

    /// Whether the registration has to be asked for once more. A granted credential that cannot be stored, or read, is fetched again.
    fn is_in_vain(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::NewCredential(why) => !why.is_unheard(),
            _ => false,
        }
    }

    /// Whether upstream is too busy, or fails by itself: that is no word on the bootstrap Secret or the credential that it was shown.
    fn is_of_busy_upstream(&self) -> bool {
        match self {
            Self::Create { source, .. } | Self::List(source) => error::is_busy(source),
            Self::NewCredential(why) => why.is_of_busy_upstream(),
            _ => false,
        }
    }

    /// Whether upstream said nothing of the credential that it was shown, as where it is busy or out of reach.
    fn is_unheard(&self) -> bool {
        matches!(self, Self::List(failed) if !error::is_refused(failed))
    }

    /// When upstream says that it may be asked again, where it refused nothing.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Create {
                retry_after,
                source,
                ..
            } if !error::is_refused(source) => *retry_after,
            _ => None,
        }
    }
}

/// Registers this cluster.
#[derive(Clone)]
pub struct Registrar {
    /// Client of the local cluster.
    pub local: Client,
    /// Makes clients of upstream.
    pub clients: Clients,
    /// System namespace.
    pub namespace: String,
    /// Sent upstream for debugging.
    pub hostname: String,
    pub timing: Timing,
    pub events: Arc<Events>,
    /// Kept at upstream's last answer.
    pub last_contact: LastContact,
    /// When credentials were renewed.
    pub renewals: Renewals,
    /// One registration at a time.
    pub registration_lock: RegistrationLock,
}

/// What an attempt is for.
#[derive(Clone, Copy)]
enum RegistrationPurpose<'a> {
    /// A session; the one before, of the same process, had this credential.
    Start(Option<&'a Credential>),
    /// A connection, while a session goes on: bootstrap Secrets are read beside that.
    Connection,
    /// Another credential than that, which may still work.
    Renewal,
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
            registration_lock: RegistrationLock::default(),
        }
    }

    /// Returns once upstream lists our BundleDeployments, with the configuration that led there; tries for ever. For a session: the one before it in
    /// this process had the credential `former`.
    ///
    /// # Cancellation
    /// Safe: the stored credential is only replaced by one that works. A registration that upstream has accepted is answered at the next call.
    pub async fn register(&self, former: Option<&Credential>) -> (Upstream, AgentConfig) {
        self.until_registered(RegistrationPurpose::Start(former))
            .await
    }

    /// As [`Registrar::register`], in a session whose credential is gone or was refused.
    ///
    /// # Cancellation
    /// Safe, as [`Registrar::register`].
    pub async fn connect_again(&self) -> Upstream {
        self.until_registered(RegistrationPurpose::Connection)
            .await
            .0
    }

    /// Registers with a bootstrap Secret that the credential did not come of, once no other one is under way. One that it came of is left
    /// where it is: what restores it would do so again. The credential may still work meanwhile. Returns when another one is stored, or when there is
    /// nothing to register with any more.
    ///
    /// # Cancellation
    /// Safe, as [`Registrar::register`].
    pub async fn renew_if_new(&self) {
        loop {
            let pause = match self.has_new_bootstrap().await {
                Ok(true) => {
                    let first = self.timing.registration_retry;
                    let pause = self.renewals.pause(Instant::now(), first);
                    logging::info!(pause, "a bootstrap secret is there, registering again");
                    if pause.is_zero() {
                        break;
                    }
                    pause
                }
                Ok(false) => {
                    logging::info!("the bootstrap secret was made use of before, leaving it");
                    return;
                }
                Err(failed) => {
                    let error = PublicText::nothing_secret_in(&failed);
                    logging::warn!(error, "cannot read the bootstrap secret");
                    self.pause(&failed, 0)
                }
            };
            tokio::time::sleep(pause).await;
        }
        self.until_registered(RegistrationPurpose::Renewal).await;
    }

    fn secrets(&self) -> Secrets {
        Secrets::of(&self.local, &self.namespace)
    }

    async fn has_new_bootstrap(&self) -> Result<bool, RegisterError> {
        let secrets = self.secrets();
        let (stored, bootstrap) = tokio::try_join!(secrets.credential(), secrets.bootstrap())?;
        Ok(bootstrap.is_some_and(|bootstrap| {
            stored.is_none_or(|stored| {
                BootstrapMatch::of(&stored, Some(&bootstrap)) != BootstrapMatch::Same
            })
        }))
    }

    async fn until_registered(&self, purpose: RegistrationPurpose<'_>) -> (Upstream, AgentConfig) {
        let (logged, emitted) = match purpose {
            RegistrationPurpose::Start(_) => ("failed to register agent", "cannot register"),
            RegistrationPurpose::Connection | RegistrationPurpose::Renewal => (
                "failed to register agent again",
                "cannot register again, the old credential is kept",
            ),
        };
        let mut failures = 0;
        let mut busy_since = None;
        loop {
            let failed = match self.attempt(purpose).await {
                Ok(registered) => return registered,
                Err(failed) => failed,
            };
            let text = PublicText::nothing_secret_in(&failed);
            let is_busy = failed.is_of_busy_upstream();
            if !is_busy {
                busy_since = None;
            }
            if is_busy && busy_since.get_or_insert_with(Instant::now).elapsed() < LONG_UNHEARD {
                logging::warn!(error = text, "upstream is busy, registering later");
            } else {
                logging::error!(error = text, "{}", logged);
                let text = public!("{}: {}", emitted, text);
                self.events.emit_for_agent(Reason::CredentialRefused, text);
            }
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
        match failed.is_of_accepted() {
            true => longest,
            false => (longest / 60)
                .saturating_mul(2_u32.saturating_pow(failures.min(10)))
                .min(longest),
        }
    }

    /// How long upstream is not asked as it says so: what stands before it may say anything.
    fn bounded(&self, retry_after: Duration) -> Duration {
        retry_after.min(self.timing.registration_retry * LONGEST_RETRY_AFTER)
    }

    /// Whether a registration with the bootstrap Secret can lead to nothing but what a credential has: it came of that, or says nothing of where it came
    /// from, as the Go agent's, and both are for the same server.
    async fn is_no_other(
        &self,
        credential: &Credential,
        bootstrap_match: BootstrapMatch,
        bootstrap: Option<&Secret>,
    ) -> bool {
        let bootstrap = match (bootstrap_match, bootstrap) {
            (BootstrapMatch::Different, _) | (_, None) => return false,
            (BootstrapMatch::Same | BootstrapMatch::Unknown, Some(bootstrap)) => bootstrap,
        };
        let bootstrap = Bootstrap::from_data(&bootstrap.data.clone().unwrap_or_default());
        let namespace = &bootstrap.cluster_namespace;
        let Ok(theirs) = credential::kubeconfig(&bootstrap, &bootstrap.token, namespace) else {
            return false;
        };
        // The comparison is the same in each mode.
        let mode = TlsMode::Strict;
        let ours = credential::client_config(&credential.kubeconfig, mode);
        let theirs = credential::client_config(&theirs, mode);
        match tokio::join!(ours, theirs) {
            (Ok(ours), Ok(theirs)) => {
                (ours.cluster_url, ours.root_cert) == (theirs.cluster_url, theirs.root_cert)
            }
            _ => false,
        }
    }

    async fn attempt(
        &self,
        purpose: RegistrationPurpose<'_>,
    ) -> Result<(Upstream, AgentConfig), RegisterError> {
        let secrets = self.secrets();
        let (upstream, config, bootstrap) = loop {
            let (config, stored, bootstrap) = tokio::try_join!(
                self.agent_config(),
                secrets.credential(),
                secrets.bootstrap(),
            )?;
            let current = match &stored {
                None => None,
                Some(secret) => {
                    let credential =
                        Credential::from_data(&secret.data.clone().unwrap_or_default());
                    let bootstrap_match = BootstrapMatch::of(secret, bootstrap.as_ref());
                    let connected = self.connect(&credential, config.tls_mode).await;
                    let is_spared = connected.as_ref().is_err_and(RegisterError::is_unheard)
                        && self
                            .is_no_other(&credential, bootstrap_match, bootstrap.as_ref())
                            .await;
                    Some((secret, (bootstrap_match, is_spared), connected))
                }
            };
            match (current, &bootstrap) {
                (Some((stored, (bootstrap_match, _), Ok(upstream))), _)
                    if !matches!(purpose, RegistrationPurpose::Renewal)
                        || bootstrap.is_none()
                        || bootstrap_match == BootstrapMatch::Same =>
                {
                    if !self.is_used_up(purpose, bootstrap_match, &upstream) {
                        // The session registers with it, and works meanwhile, or leaves it.
                        return Ok((upstream, config));
                    }
                    if bootstrap_match == BootstrapMatch::Unknown {
                        secrets.note(stored, bootstrap.as_ref()).await;
                    }
                    break (upstream, config, bootstrap);
                }
                // What the Secret leads to would take away this one, which nobody has refused.
                (Some((_, (_, true), Err(failed))), _) => return Err(failed),
                (current, Some(with)) => {
                    if let Some((_, _, Err(failed))) = current {
                        let error = PublicText::nothing_secret_in(&failed);
                        logging::error!(error, "current credential failed, registering again");
                    }
                    // The lock may be held for half an hour. The credential may work before that.
                    let Some(mut registration) = self
                        .registration_lock
                        .next(self.timing.registration_retry)
                        .await
                    else {
                        continue;
                    };
                    let server = Bootstrap::from_data(&with.data.clone().unwrap_or_default());
                    let server = server.api_server_url;
                    let pause = registration.pause(&server);
                    if !pause.is_zero() {
                        drop(registration);
                        let digest = bootstrap::digest(Some(with));
                        // Another one may be for another server.
                        tokio::select! {
                            () = tokio::time::sleep(pause) => {}
                            () = self.until_replaced(&digest) => {}
                        }
                        continue;
                    }
                    // The former holder of the lock may have stored another credential, and have used up the Secret.
                    let now = tokio::try_join!(secrets.credential(), secrets.bootstrap())?;
                    if (&now.0, &now.1) != (&stored, &bootstrap) {
                        continue;
                    }
                    let is_renewal = matches!(purpose, RegistrationPurpose::Renewal);
                    let registered = self
                        .register_with(
                            &mut registration,
                            with,
                            stored.as_ref(),
                            &config,
                            is_renewal,
                        )
                        .await;
                    match &registered {
                        Ok(_) => registration.succeeds(),
                        Err(RegisterError::Replaced) => {
                            registration.abandons();
                            continue;
                        }
                        Err(failed @ RegisterError::Create { .. }) => {
                            let pause = self.pause(failed, registration.failures(&server));
                            let asked = self.bounded(failed.retry_after().unwrap_or_default());
                            registration.waits(&server, pause.max(asked));
                        }
                        Err(failed) if failed.is_in_vain() => {
                            registration.fails(&server, self.timing.registration_retry);
                        }
                        Err(_) => {}
                    }
                    break (registered?, config, bootstrap);
                }
                (Some((_, _, Err(failed))), None) => return Err(failed),
                (_, None) => {
                    return Err(RegisterError::NoBootstrap {
                        namespace: self.namespace.clone(),
                        name: BOOTSTRAP_NAME,
                    });
                }
            }
        };
        if let Some(bootstrap) = bootstrap {
            secrets.discard(bootstrap).await;
        }
        Ok((upstream, config))
    }

    /// Requests a credential and stores it in the place of the one that is there.
    async fn register_with(
        &self,
        registration: &mut RegistrationState,
        bootstrap: &Secret,
        replaced: Option<&Secret>,
        config: &AgentConfig,
        is_renewal: bool,
    ) -> Result<Upstream, RegisterError> {
        let upstream = self.request(registration, bootstrap, config).await?;
        let digest = bootstrap::digest(Some(bootstrap));
        let first = self.timing.registration_retry;
        let renewals = is_renewal.then(|| self.renewals.clone());
        let count = move || {
            if let Some(renewals) = renewals {
                renewals.count(Instant::now(), first);
            }
        };
        let secrets = self.secrets();
        let stored = secrets.store(&upstream.credential, digest, replaced, count);
        stored.await?;
        self.events.emit_for_agent(
            Reason::Registered,
            public!("registered with {}", Name(&upstream.server)),
        );
        Ok(upstream)
    }

    /// Whether a bootstrap Secret beside a credential that works is to be deleted. Within a session it never is: what restores one that was made use of
    /// would do so again, and another one, also beside a credential that says nothing of its origin, is to be made use of.
    fn is_used_up(
        &self,
        purpose: RegistrationPurpose<'_>,
        bootstrap_match: BootstrapMatch,
        upstream: &Upstream,
    ) -> bool {
        let RegistrationPurpose::Start(former) = purpose else {
            return false;
        };
        match bootstrap_match {
            // The registration may have been cut off before that.
            BootstrapMatch::Same => true,
            BootstrapMatch::Different => false,
            // The Secret may have been used up by the credential's writer, such as the Go agent, which deletes it. Not where the session before had
            // the same credential, which this was asked of then, nor while a registration is under way that may revoke it.
            BootstrapMatch::Unknown => {
                former.is_none_or(|former| *former != *upstream.credential)
                    && !self.registration_lock.is_under_way()
            }
        }
    }

    /// The agent's ConfigMap; defaults when there is none.
    ///
    /// # Errors
    /// It cannot be read or is not a configuration.
    pub async fn agent_config(&self) -> Result<AgentConfig, RegisterError> {
        let maps = Api::<ConfigMap>::namespaced(self.local.clone(), &self.namespace);
        let found = error::found(maps.get(AGENT_NAME).await).map_err(|source| {
            RegisterError::ConfigMap {
                namespace: self.namespace.clone(),
                name: AGENT_NAME,
                source,
            }
        })?;
        match found {
            Some(map) => Ok(AgentConfig::from_data(&map.data.unwrap_or_default())?),
            None => Ok(AgentConfig::default()),
        }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http::{Method, Request};
    use kube::api::ObjectMeta;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::bootstrap::BOOTSTRAP_DIGEST_ANNOTATION;
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

    /// The Secrets written at a start with a credential that works and notes `digest`.
    async fn writes(digest: Option<String>, bootstrap: Option<&Secret>) -> Vec<String> {
        writes_for(RegistrationPurpose::Start(None), digest, bootstrap).await
    }

    fn working() -> Credential {
        let open = Bootstrap::from_data(
            &[(
                "apiServerURL".to_owned(),
                k8s_openapi::ByteString("http://scripted".into()),
            )]
            .into(),
        );
        let kubeconfig = credential::kubeconfig(&open, "t", "bundles").unwrap();
        Credential::from_data(
            &[("kubeconfig".to_owned(), k8s_openapi::ByteString(kubeconfig))].into(),
        )
    }

    async fn writes_for(
        purpose: RegistrationPurpose<'_>,
        digest: Option<String>,
        bootstrap: Option<&Secret>,
    ) -> Vec<String> {
        let kubeconfig = String::from_utf8(working().kubeconfig).unwrap();
        let mut stored = secret(AGENT_NAME, &[("kubeconfig", kubeconfig.as_str())]);
        stored.metadata.annotations =
            digest.map(|digest| [(BOOTSTRAP_DIGEST_ANNOTATION.to_owned(), digest)].into());
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
        registrar.attempt(purpose).await.map(drop).unwrap();
        written.lock().clone()
    }

    #[tokio::test]
    async fn a_start_deletes_no_bootstrap_secret_that_the_credential_did_not_come_of() {
        let bootstrap = secret(BOOTSTRAP_NAME, &[("token", "a")]);
        let (this, another) = (
            bootstrap::digest(Some(&bootstrap)),
            bootstrap::digest(Some(&secret(BOOTSTRAP_NAME, &[("token", "b")]))),
        );
        let there = Some(&bootstrap);
        let delete = "DELETE fleet-agent-bootstrap";
        assert_eq!(writes(Some(this.clone()), there).await, [delete]);
        assert!(writes(Some(another), there).await.is_empty());
        assert!(
            writes(Some(bootstrap::digest(None)), there)
                .await
                .is_empty()
        );
        assert!(writes(Some(this), None).await.is_empty());
        // As the Go agent leaves it.
        let note = "PATCH fleet-agent";
        assert_eq!(writes(None, there).await, [note, delete]);
        assert_eq!(writes(None, None).await, [note]);
    }

    /// A credential without a note may have been stored long before this Secret came.
    #[tokio::test]
    async fn a_session_that_connects_again_deletes_no_bootstrap_secret_unused() {
        let bootstrap = secret(BOOTSTRAP_NAME, &[("token", "a")]);
        let this = bootstrap::digest(Some(&bootstrap));
        let there = Some(&bootstrap);
        let former = working();
        let again = writes_for(RegistrationPurpose::Start(Some(&former)), None, there).await;
        assert!(again.is_empty());
        for digest in [None, Some(this)] {
            assert!(
                writes_for(RegistrationPurpose::Connection, digest, there)
                    .await
                    .is_empty()
            );
        }
        // Stored by somebody else in the session before.
        let other = Credential::from_data(&BTreeMap::new());
        let other = writes_for(RegistrationPurpose::Start(Some(&other)), None, there).await;
        assert_eq!(other.len(), 2);
    }

    #[tokio::test]
    async fn a_failure_after_an_accepted_registration_waits_a_minute() {
        let registrar = Registrar::scripted(scripted::clients(|_| async { (500, json!({})) }));
        let cause = || kube::Error::LinesCodecMaxLineLengthExceeded;
        let refused = RegisterError::List(cause());
        assert_eq!(registrar.pause(&refused, 0), Duration::from_secs(1));
        let proof = RegisterError::NewCredential(Box::new(refused));
        let store = RegisterError::Store(cause());
        for failed in [proof, store, RegisterError::Overtaken] {
            assert_eq!(registrar.pause(&failed, 0), Duration::from_secs(60));
        }
    }
}
