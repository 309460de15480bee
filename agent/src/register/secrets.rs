//! The Secrets of a registration, in the cluster: the credential and what it came of.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;

use super::RegisterError;
use super::bootstrap::{self, BOOTSTRAP_DIGEST_ANNOTATION};
use super::credential::Credential;
use crate::config::{AGENT_NAME, BOOTSTRAP_NAME};
use crate::error;
use crate::public::PublicText;

/// What a Secret holds.
type SecretData = BTreeMap<String, ByteString>;

/// The Secrets of a system namespace.
#[derive(Clone)]
pub(super) struct Secrets {
    api: Api<Secret>,
    namespace: String,
}

impl Secrets {
    pub(super) fn of(local: &Client, namespace: &str) -> Self {
        Self {
            api: Api::namespaced(local.clone(), namespace),
            namespace: namespace.to_owned(),
        }
    }

    /// What the agent connects with.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) async fn credential(&self) -> Result<Option<Secret>, RegisterError> {
        self.read(AGENT_NAME).await
    }

    /// What the agent registers with.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) async fn bootstrap(&self) -> Result<Option<Secret>, RegisterError> {
        self.read(BOOTSTRAP_NAME).await
    }

    async fn read(&self, name: &'static str) -> Result<Option<Secret>, RegisterError> {
        error::found(self.api.get(name).await).map_err(|source| RegisterError::Secret {
            namespace: self.namespace.clone(),
            name,
            source,
        })
    }

    /// Creates the Secret, or replaces what is there: in one write, so that no moment is without. One that cannot be replaced
    /// (`immutable`) is deleted and created, as the Go agent always does. `replaced` is what was there when that was decided; `then` is called once it is
    /// stored.
    ///
    /// # Errors
    /// The API server refused, or another credential was stored meanwhile.
    ///
    /// # Cancellation
    /// What is begun goes on: the deletion is seen by the watch of this Secret, which lets go of the registration that deleted it.
    pub(super) async fn store(
        &self,
        credential: &Credential,
        digest: String,
        replaced: Option<&Secret>,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<(), RegisterError> {
        let (secrets, credential) = (self.clone(), credential.clone());
        let replaced = replaced.and_then(|secret| secret.data.clone());
        let storing = tokio::spawn(async move {
            let stored = secrets.replace(&credential, digest, replaced).await;
            if let Ok(true) = stored {
                then();
            }
            stored
        });
        let stored = storing
            .await
            .unwrap_or_else(|ended| Err(kube::Error::Service(ended.into())));
        match stored.map_err(RegisterError::Store)? {
            true => Ok(()),
            false => Err(RegisterError::Overtaken),
        }
    }

    /// Gives whether it is stored now: another process may lead by now and have stored a newer one, and upstream has revoked this one then.
    async fn replace(
        &self,
        credential: &Credential,
        digest: String,
        replaced: Option<SecretData>,
    ) -> kube::Result<bool> {
        let noted = (BOOTSTRAP_DIGEST_ANNOTATION.to_owned(), digest);
        let mut secret = Secret {
            metadata: ObjectMeta {
                name: Some(AGENT_NAME.into()),
                namespace: Some(self.namespace.clone()),
                annotations: Some([noted.clone()].into()),
                ..Default::default()
            },
            data: Some(credential.to_data()),
            ..Default::default()
        };
        match self.api.create(&PostParams::default(), &secret).await {
            Err(failed) if error::has_code(&failed, 409) => {}
            result => return result.map(|_| true),
        }
        let mut deletion = DeleteParams::default();
        let mut is_immutable = false;
        if let Some(existing) = error::found(self.api.get(AGENT_NAME).await)? {
            deletion.preconditions = Some(Preconditions {
                uid: existing.metadata.uid,
                ..Preconditions::default()
            });
            let found = existing.data.unwrap_or_default();
            if found != replaced.unwrap_or_default() && Some(&found) != secret.data.as_ref() {
                return Ok(false);
            }
            secret.metadata.resource_version = existing.metadata.resource_version;
            secret.metadata.labels = existing.metadata.labels;
            let mut annotations = existing.metadata.annotations.unwrap_or_default();
            annotations.extend([noted]);
            secret.metadata.annotations = Some(annotations);
            secret.type_ = existing.type_;
            is_immutable = existing.immutable == Some(true);
        }
        let parameters = PostParams::default();
        match self.api.replace(AGENT_NAME, &parameters, &secret).await {
            Err(failed) if is_immutable && error::has_code(&failed, 422) => {}
            result => return result.map(|_| true),
        }
        match self.api.delete(AGENT_NAME, &deletion).await {
            Err(failed) if !error::is_not_found(&failed) => return Err(failed),
            _ => {}
        }
        secret.type_ = None;
        secret.metadata.resource_version = None;
        self.api.create(&parameters, &secret).await.map(|_| true)
    }

    /// Notes on a credential that says nothing of its origin which bootstrap Secret is there: whatever comes later is another one.
    pub(super) async fn note(&self, stored: &Secret, bootstrap: Option<&Secret>) {
        let patch = json!({"metadata": {
            "uid": stored.metadata.uid,
            "resourceVersion": stored.metadata.resource_version,
            "annotations": {BOOTSTRAP_DIGEST_ANNOTATION: bootstrap::digest(bootstrap)},
        }});
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&patch));
        if let Err(failed) = self.api.patch(AGENT_NAME, &parameters, &patch).await {
            logging::warn!(
                error = PublicText::nothing_secret_in(&failed),
                "cannot note on the credential which bootstrap secret it came of"
            );
        }
    }

    /// Deletes the bootstrap Secret as it was read: one that was changed meanwhile leads to another registration.
    pub(super) async fn discard(&self, bootstrap: Secret) {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: bootstrap.metadata.uid,
                resource_version: bootstrap.metadata.resource_version,
            }),
            ..DeleteParams::default()
        };
        if let Err(failed) = self.api.delete(BOOTSTRAP_NAME, &parameters).await
            && !error::is_not_found(&failed)
        {
            logging::warn!(
                error = PublicText::nothing_secret_in(&failed),
                "cannot delete the bootstrap secret"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{Method, Request};
    use kube::client::Body;
    use serde_json::Value;
    use tokio::sync::{Notify, Semaphore};

    use super::*;
    use crate::client::scripted;

    /// A write that has begun goes on when the lease is lost: by then the next process may have stored another credential.
    #[tokio::test]
    async fn a_credential_that_changed_since_it_was_read_is_not_replaced() {
        let clients = scripted::clients(|request: Request<Body>| async {
            let method = request.method().clone();
            let body = request.into_body().collect_bytes().await.unwrap();
            let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
            let status = |code: u16| (code, json!({"kind": "Status", "code": code}));
            match method {
                Method::GET => (200, json!({"metadata": {"resourceVersion": "7"}})),
                Method::PUT if sent["metadata"]["resourceVersion"].is_null() => {
                    (200, json!({"metadata": {"resourceVersion": "9"}}))
                }
                _ => status(409),
            }
        });
        let local = scripted::identities(&clients).agent().client();
        let secrets = Secrets::of(&local, "system");
        let credential = Credential::from_data(&BTreeMap::new());
        let stored = secrets.store(&credential, String::new(), None, || ()).await;
        assert!(
            matches!(stored, Err(RegisterError::Store(failed)) if error::has_code(&failed, 409))
        );
    }

    /// The old leader may have begun to store its own before another process took the lease, whose registration revoked that.
    #[tokio::test]
    async fn a_credential_of_another_process_is_not_replaced_by_an_older_one() {
        let clients = scripted::clients(|request: Request<Body>| async move {
            let status = |code: u16| (code, json!({"kind": "Status", "code": code}));
            match *request.method() {
                Method::GET => (200, json!({"metadata": {}, "data": {"kubeconfig": "bmV3"}})),
                Method::PUT => (200, json!({"metadata": {}})),
                _ => status(409),
            }
        });
        let local = scripted::identities(&clients).agent().client();
        let secrets = Secrets::of(&local, "system");
        let credential = Credential::from_data(&BTreeMap::new());
        let seen = |text: &str| Secret {
            data: Some([("kubeconfig".to_owned(), ByteString(text.into()))].into()),
            ..Secret::default()
        };
        let (old, new) = (seen("old"), seen("new"));
        for replaced in [None, Some(&old)] {
            let stored = secrets.store(&credential, String::new(), replaced, || panic!());
            assert_eq!(
                stored.await.unwrap_err().to_string(),
                "another 'fleet-agent' secret was stored meanwhile, it is kept"
            );
        }
        let stored = secrets.store(&credential, String::new(), Some(&new), || ());
        assert!(stored.await.is_ok());
    }

    /// The watch of the credential sees the deletion and lets go of the registration before the creation is answered, or even sent.
    #[tokio::test(start_paused = true)]
    async fn an_immutable_credential_is_created_anew_though_nobody_waits_for_it() {
        let stored = json!({"metadata": {"name": AGENT_NAME, "uid": "1"}, "immutable": true});
        let (deleted, created) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
        let seen = (Arc::clone(&deleted), Arc::clone(&created));
        let clients = scripted::clients(move |request: Request<Body>| {
            let status = |code: u16| (code, json!({"kind": "Status", "code": code}));
            let is_gone = seen.1.available_permits() > 0;
            let answer: (u16, Value) = match *request.method() {
                Method::POST if is_gone => {
                    seen.1.add_permits(1);
                    (201, stored.clone())
                }
                Method::POST => status(409),
                Method::PUT => status(422),
                Method::DELETE => {
                    seen.0.notify_one();
                    seen.1.add_permits(1);
                    status(200)
                }
                _ => (200, stored.clone()),
            };
            async { answer }
        });
        let local = scripted::identities(&clients).agent().client();
        let secrets = Secrets::of(&local, "system");
        let credential = Credential::from_data(&BTreeMap::new());
        tokio::select! {
            biased;
            () = deleted.notified() => {}
            result = secrets.store(&credential, String::new(), None, || ()) => panic!("{result:?}"),
        }
        let both = created.acquire_many(2);
        let both = tokio::time::timeout(std::time::Duration::from_secs(60), both);
        assert!(both.await.is_ok(), "deleted and not created");
    }
}
