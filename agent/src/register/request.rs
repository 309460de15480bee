//! One registration: what upstream is asked, and how it answers.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{GetParams, ObjectMeta, PostParams, TypeMeta};
use kube::{Api, Client};
use rand::seq::IndexedRandom as _;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::bootstrap::{self, Bootstrap};
use super::credential::{self, Credential};
use super::registration_lock::{RegistrationState, Sent};
use super::{LONG_UNHEARD, RegisterError, Registrar, Upstream};
use crate::api::{
    ClusterRegistration, ClusterRegistrationSpec, LABEL_CREATED_BY_AGENT_POD,
    LABEL_REGISTRATION_TOKEN,
};
use crate::client::retries::RetryAfter;
use crate::config::{AgentConfig, TlsMode};
use crate::error;
use crate::public;
use crate::public::{Name, PublicText};
use crate::report::events::Reason;

impl Registrar {
    /// Asks upstream for a credential, waits for it, proves it. What was asked with this Secret by somebody who was dropped is waited for instead.
    pub(super) async fn request(
        &self,
        registration: &mut RegistrationState,
        bootstrap: &Secret,
        config: &AgentConfig,
    ) -> Result<Upstream, RegisterError> {
        let digest = bootstrap::digest(Some(bootstrap));
        let bootstrap = Bootstrap::from_data(&bootstrap.data.clone().unwrap_or_default());
        let client_id = match config.client_id.is_empty() {
            false => config.client_id.clone(),
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

        let known = registration.sent(&digest, &client_id);
        let timeout = self.timing.credential_timeout;
        let mut sent = known.clone().unwrap_or_else(|| Sent {
            digest,
            client_id,
            client_random: random_text(RANDOM_LENGTH),
            name: format!("request-{}", random_text(SUFFIX_LENGTH)),
            is_accepted: false,
            since: Instant::now(),
            until: Instant::now() + timeout,
            granted: None,
        });
        if !sent.is_accepted {
            // The request may have been carried out even if it is cut off, or gets no answer.
            registration.sends(Some(sent.clone()));
            match self.send(&asking, &bootstrap, &sent, config).await {
                Ok(true) => {
                    sent.since = Instant::now();
                    sent.until = sent.since + timeout;
                }
                // Made at an earlier request: Fleet's controller deletes the answer after a while.
                Ok(false) => {}
                Err(FailedRequest {
                    source,
                    retry_after,
                }) => {
                    if error::is_refused(&source) {
                        registration.sends(known);
                    } else {
                        // The request may have been carried out, and be answered.
                        sent.waits_longer();
                        registration.sends(Some(sent.clone()));
                    }
                    return Err(RegisterError::Create {
                        client_id: sent.client_id,
                        retry_after,
                        source,
                    });
                }
            }
            sent.is_accepted = true;
            registration.arrives(&sent);
        }
        let credential = match &sent.granted {
            Some(granted) => granted.clone(),
            None => {
                let digest = sent.digest.clone();
                let namespace = &bootstrap.system_registration_namespace;
                let answer = tokio::select! {
                    biased;
                    answer = self.await_answer(&asking, namespace, (&mut *registration, &mut sent)) => answer?,
                    () = self.until_replaced(&digest) => return Err(RegisterError::Replaced),
                };
                // The credential is shown, and stored, again from here on: the Secret may be gone by then.
                let granted = granted(&bootstrap, &answer)?;
                sent.granted = Some(granted.clone());
                registration.sends(Some(sent.clone()));
                granted
            }
        };
        let failed = match self.connect(&credential, config.tls_mode).await {
            Err(failed) => failed,
            connected => return connected,
        };
        if failed.is_unheard() {
            sent.waits_longer();
            registration.sends(Some(sent));
        }
        Err(RegisterError::NewCredential(Box::new(failed)))
    }

    /// Creates a ClusterRegistration, unless an earlier request for it was carried out: one that is made twice is two for Fleet's controller, and the
    /// bootstrap Secret's account may not read what is there. Gives whether it was made now.
    async fn send(
        &self,
        asking: &Client,
        bootstrap: &Bootstrap,
        sent: &Sent,
        config: &AgentConfig,
    ) -> Result<bool, FailedRequest> {
        logging::info!(
            client_id = Name(&sent.client_id),
            "creating a clusterregistration"
        );
        let mut cluster_labels = config.labels.clone();
        cluster_labels.insert(LABEL_CREATED_BY_AGENT_POD.into(), self.hostname.clone());
        let registration = ClusterRegistration {
            types: TypeMeta::resource::<ClusterRegistration>(),
            metadata: ObjectMeta {
                name: Some(sent.name.clone()),
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
                client_id: sent.client_id.clone(),
                client_random: sent.client_random.clone(),
                cluster_labels,
            },
        };
        let registrations =
            Api::<ClusterRegistration>::namespaced(asking.clone(), &bootstrap.cluster_namespace);
        let content = serde_json::to_vec(&registration).map_err(kube::Error::SerdeError)?;
        let create = kube::core::Request::new(registrations.resource_url())
            .create(&PostParams::default(), content);
        let create = create.map_err(kube::Error::BuildRequest)?;
        match ask::<ClusterRegistration>(asking, create).await {
            Err(FailedRequest {
                source: kube::Error::Api(status),
                ..
            }) if status.reason == "AlreadyExists" => Ok(false),
            created => created.map(|_| true),
        }
    }

    async fn kube_system_uid(&self) -> Result<String, RegisterError> {
        let namespaces = Api::<Namespace>::all(self.local.clone());
        let namespace = namespaces
            .get("kube-system")
            .await
            .map_err(RegisterError::KubeSystem)?;
        Ok(namespace.metadata.uid.unwrap_or_default())
    }

    /// Returns once another bootstrap Secret is there: the Cluster may have been imported anew, and its former token be worth nothing. That it is gone
    /// says nothing, as whoever made it may have deleted it.
    pub(super) async fn until_replaced(&self, digest: &str) {
        loop {
            tokio::time::sleep(self.timing.registration_retry).await;
            let bootstrap = self.secrets().bootstrap().await;
            let is_another = |found: &Secret| bootstrap::digest(Some(found)) != digest;
            if bootstrap.is_ok_and(|found| found.as_ref().is_some_and(is_another)) {
                return;
            }
        }
    }

    /// Polls for the Secret upstream answers with. Whatever is refused means "not there yet": the right to read it is granted only when it is.
    /// An upstream that is busy, or out of reach, has not said that it is not there: the wait ends with a read that was answered.
    async fn await_answer(
        &self,
        asking: &Client,
        namespace: &str,
        (registration, sent): (&mut RegistrationState, &mut Sent),
    ) -> Result<BTreeMap<String, k8s_openapi::ByteString>, RegisterError> {
        let name = credential::secret_name(&sent.client_id, &sent.client_random);
        let name = name.as_str();
        let secrets = Api::<Secret>::namespaced(asking.clone(), namespace);
        let request = kube::core::Request::new(secrets.resource_url());
        let mut pause = self.timing.credential_poll;
        let mut unheard_since = None;
        loop {
            let now = Instant::now();
            let next = match now < sent.until {
                // The last read.
                true => (now + pause).min(sent.until),
                false if unheard_since.is_some() => now + pause,
                false => {
                    return Err(RegisterError::Timeout {
                        namespace: namespace.to_owned(),
                        name: name.to_owned(),
                    });
                }
            };
            tokio::time::sleep_until(next).await;
            let get = request.get(name, &GetParams::default());
            let answer = match get.map_err(kube::Error::BuildRequest) {
                Ok(get) => ask::<Secret>(asking, get).await,
                Err(failed) => Err(failed.into()),
            };
            let failed = match answer {
                Ok(secret) => return Ok(secret.data.unwrap_or_default()),
                Err(failed) => failed,
            };
            let error = PublicText::nothing_secret_in(&failed.source);
            logging::info!(namespace, name, error, "waiting for a secret on upstream");
            pause = self.timing.credential_poll;
            // An answer that is no Secret is an answer, too.
            if error::is_refused(&failed.source)
                || matches!(failed.source, kube::Error::SerdeError(_))
            {
                unheard_since = None;
                continue;
            }
            if let Some(retry_after) = failed.retry_after {
                pause = pause.max(self.bounded(retry_after));
            }
            // A session may end before upstream says anything.
            sent.waits_longer();
            registration.sends(Some(sent.clone()));
            let since = unheard_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= LONG_UNHEARD {
                *since = Instant::now();
                let text = public!("cannot register: no word of what was granted: {}", error);
                self.events.emit_for_agent(Reason::CredentialRefused, text);
            }
        }
    }
}

/// The credential that a Secret grants.
fn granted(
    bootstrap: &Bootstrap,
    answer: &BTreeMap<String, k8s_openapi::ByteString>,
) -> Result<Credential, RegisterError> {
    let text = |key: &str| {
        let bytes = answer.get(key);
        let bytes = bytes.map(|value| value.0.as_slice()).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let deployment_namespace = text("deploymentNamespace");
    Ok(Credential {
        kubeconfig: credential::kubeconfig(bootstrap, &text("token"), &deployment_namespace)
            .map_err(RegisterError::Print)?,
        deployment_namespace,
        cluster_namespace: text("clusterNamespace"),
        cluster_name: text("clusterName"),
    })
}

/// A request that failed.
struct FailedRequest {
    source: kube::Error,
    /// When upstream says that it may be asked again.
    retry_after: Option<Duration>,
}

impl From<kube::Error> for FailedRequest {
    fn from(source: kube::Error) -> Self {
        Self {
            source,
            retry_after: None,
        }
    }
}

async fn ask<T: DeserializeOwned>(
    client: &Client,
    mut request: http::Request<Vec<u8>>,
) -> Result<T, FailedRequest> {
    let retry_after = RetryAfter::default();
    request.extensions_mut().insert(retry_after.clone());
    let answer = client.request(request).await;
    answer.map_err(|source| FailedRequest {
        source,
        retry_after: retry_after.pause(),
    })
}

/// As long as wrangler's `randomtoken`.
const RANDOM_LENGTH: usize = 54;

/// With the prefix and a UID, as Fleet's controller calls the account, a name is not cut. The API server's own suffix has five characters, and it
/// makes another one where the name is there.
const SUFFIX_LENGTH: usize = 10;

/// Characters of the alphabet of wrangler's `randomtoken`, which is the API server's for names too.
fn random_text(length: usize) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rng = rand::rng();
    (0..length)
        .filter_map(|_| ALPHABET.choose(&mut rng))
        .map(|&byte| char::from(byte))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_tokens_have_the_length_and_alphabet_of_wranglers() {
        let token = random_text(RANDOM_LENGTH);
        assert_eq!(token.len(), 54);
        assert!(
            token
                .chars()
                .all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c))
        );
        assert_ne!(token, random_text(RANDOM_LENGTH));
    }
}
