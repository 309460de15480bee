//! The signature policy of this cluster, read when a deploy asks for it.
//!
//! It stands in a ConfigMap of the system namespace, where its operator writes and no bundle does (docs/security.md). There is no
//! watch: a deploy asks for a policy that was read within [`FRESH`], so that deploys of a burst share one read and a cluster at rest makes
//! none. A policy that cannot be read lets nothing through.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use signatures::Policy;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::client::identity::AgentClient;
use crate::error;
use crate::public::PublicText;

/// Name of the ConfigMap.
pub const SIGNATURE_POLICY: &str = "fleet-agent-signatures";
/// The ConfigMap's key that holds the policy.
pub const POLICY_KEY: &str = "policy.yaml";
/// How long a policy is believed to be in force.
const FRESH: Duration = Duration::from_secs(5);

/// Reads the policy; shared by all deploys.
pub struct SignaturePolicy {
    agent: AgentClient,
    namespace: String,
    /// Whether a policy must be there.
    is_required: bool,
    known: Mutex<Option<Known>>,
}

struct Known {
    at: Instant,
    /// Of the ConfigMap; empty without one.
    version: String,
    policy: Result<Arc<Policy>, PolicyUnusable>,
}

/// There is no policy to go by, so nothing is deployed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PolicyUnusable {
    /// The API server does not give it out.
    #[error("the signature policy cannot be read: ConfigMap {SIGNATURE_POLICY}: {0}")]
    Read(String),
    /// The policy is missing, and the agent needs one.
    #[error(
        "there is no signature policy (ConfigMap {SIGNATURE_POLICY}), and this agent needs one"
    )]
    Missing,
    /// The ConfigMap has no policy in it.
    #[error("ConfigMap {SIGNATURE_POLICY} has no key {POLICY_KEY}")]
    NoKey,
    /// The policy is malformed.
    #[error("the signature policy is malformed: ConfigMap {SIGNATURE_POLICY}: {0}")]
    Malformed(signatures::PolicyError),
}

impl SignaturePolicy {
    /// The policy of the system namespace.
    pub fn new(agent: AgentClient, namespace: &str, is_required: bool) -> Self {
        Self {
            agent,
            namespace: namespace.to_owned(),
            is_required,
            known: Mutex::default(),
        }
    }

    /// The policy in force. Without a ConfigMap, everything is let through.
    ///
    /// # Errors
    /// It cannot be read, or is malformed; nothing may be deployed then.
    pub async fn current(&self) -> Result<Arc<Policy>, PolicyUnusable> {
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_ref().filter(|known| known.at.elapsed() < FRESH) {
            return known.policy.clone();
        }
        let api = Api::<ConfigMap>::namespaced(self.agent.client(), &self.namespace);
        let found = error::found(api.get(SIGNATURE_POLICY).await);
        let found = found.map_err(|failed| PolicyUnusable::Read(error::chain(&failed)))?;
        let version = found
            .as_ref()
            .and_then(|map| map.metadata.resource_version.clone());
        let version = version.unwrap_or_default();
        let policy = match known.take() {
            Some(known) if known.version == version => known.policy,
            _ => self.read(found.as_ref()),
        };
        if let Err(unusable) = &policy {
            logging::error!(
                error = PublicText::nothing_secret_in(unusable),
                "nothing is deployed"
            );
        }
        *known = Some(Known {
            at: Instant::now(),
            version,
            policy: policy.clone(),
        });
        policy
    }

    fn read(&self, map: Option<&ConfigMap>) -> Result<Arc<Policy>, PolicyUnusable> {
        let Some(map) = map else {
            return match self.is_required {
                true => Err(PolicyUnusable::Missing),
                false => Ok(Arc::default()),
            };
        };
        let text = map.data.as_ref().and_then(|data| data.get(POLICY_KEY));
        let text = text.ok_or(PolicyUnusable::NoKey)?;
        let policy = Policy::parse(text).map_err(PolicyUnusable::Malformed)?;
        Ok(Arc::new(policy))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::scripted;

    /// Without a policy charts need no signature: a page of a proxy must not be the word that there is none.
    #[tokio::test]
    async fn a_page_in_place_of_the_policy_lets_nothing_through() {
        let missing = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "x"});
        for (answer, is_let_through) in [(missing, true), (json!("404 page not found"), false)] {
            let clients = scripted::clients(move |_| std::future::ready((404, answer.clone())));
            let agent = scripted::identities(&clients).agent().clone();
            let policy = SignaturePolicy::new(agent, "system", false);
            assert_eq!(policy.current().await.is_ok(), is_let_through);
        }
    }
}
