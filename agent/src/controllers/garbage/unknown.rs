//! Release records that look like ours and that the ledger does not know.
//!
//! A tenant can write such a record, so nothing follows from one: it is reported, never removed.
//! Only metadata is listed, and only of Helm's records; the body is read once of those that the
//! ledger does not know.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use release::storage::{StoredRevision, decode};

use super::report::Unknown;
use crate::api::{ANNOTATION_AGENT_NAMESPACE, ANNOTATION_BUNDLE_ID};
use crate::client::identity::AgentClient;
use crate::error;
use crate::ledger::{Ledger, ReleaseKey};

/// Records asked for at once.
const PAGE: u32 = 500;

/// Looks for unknown releases.
pub(super) struct Search {
    secrets: Api<Secret>,
    /// System namespace, which our records name.
    namespace: String,
    /// Bundles that records name, by the record's uid; `None` for other people's releases.
    read: Mutex<HashMap<String, Option<String>>>,
}

/// The newest record of each release.
pub(super) type Newest = BTreeMap<ReleaseKey, Record>;

/// A release record, by its metadata.
pub(super) struct Record {
    pub(super) revision: i64,
    name: String,
    uid: String,
}

impl Search {
    /// A search as the agent, all over the cluster.
    pub(super) fn new(agent: &AgentClient, namespace: &str) -> Self {
        Self {
            secrets: Api::all(agent.client()),
            namespace: namespace.to_owned(),
            read: Mutex::default(),
        }
    }

    /// Of the newest records, those that name this agent and are in no entry of the ledger.
    ///
    /// # Errors
    /// Records cannot be read.
    pub(super) async fn unknown(
        &self,
        agent: &AgentClient,
        ledger: &Ledger,
        newest: Newest,
    ) -> kube::Result<Vec<Unknown>> {
        self.read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|uid, _| newest.values().any(|record| record.uid == *uid));
        let mut unknown = Vec::new();
        for (key, record) in newest {
            if ledger.get(&key).is_some() {
                continue;
            }
            if let Some(bundle) = self.bundle_of(agent, &key, &record).await? {
                unknown.push(Unknown { key, bundle });
            }
        }
        Ok(unknown)
    }

    /// The newest record of every release of the cluster.
    ///
    /// # Errors
    /// Records cannot be listed.
    pub(super) async fn newest(&self) -> kube::Result<Newest> {
        let mut newest = Newest::new();
        let mut page = ListParams::default()
            .labels("owner=helm")
            .fields("type=helm.sh/release.v1")
            .limit(PAGE);
        loop {
            let listed = self.secrets.list_metadata(&page).await?;
            for item in listed.items {
                let metadata = item.metadata;
                let labels = metadata.labels.unwrap_or_default();
                let (Some(head), Some(name)) =
                    (StoredRevision::from_labels(&labels), labels.get("name"))
                else {
                    continue;
                };
                let key = ReleaseKey {
                    namespace: metadata.namespace.unwrap_or_default(),
                    name: name.clone(),
                };
                if newest
                    .get(&key)
                    .is_some_and(|known| known.revision > head.revision)
                {
                    continue;
                }
                let record = Record {
                    revision: head.revision,
                    name: metadata.name.unwrap_or_default(),
                    uid: metadata.uid.unwrap_or_default(),
                };
                newest.insert(key, record);
            }
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(newest),
            }
        }
    }

    /// The bundle a record names, if it names this agent too. One that is damaged or gone names
    /// nobody.
    async fn bundle_of(
        &self,
        agent: &AgentClient,
        key: &ReleaseKey,
        newest: &Record,
    ) -> kube::Result<Option<String>> {
        let known = |read: &HashMap<_, _>| read.get(&newest.uid).cloned();
        if let Some(bundle) = known(&self.read.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(bundle);
        }
        let secrets = Api::<Secret>::namespaced(agent.client(), &key.namespace);
        let secret = match secrets.get(&newest.name).await {
            Ok(secret) => secret,
            Err(failed) if error::has_code(&failed, 404) => return Ok(None),
            Err(failed) => return Err(failed),
        };
        let payload = secret.data.and_then(|mut data| data.remove("release"));
        let annotations = payload
            .and_then(|payload| decode(&payload.0).ok())
            .and_then(|release| release.chart.clone())
            .and_then(|chart| chart.metadata.annotations.clone())
            .unwrap_or_default();
        let is_ours = annotations
            .get(ANNOTATION_AGENT_NAMESPACE)
            .is_some_and(|namespace| *namespace == self.namespace);
        let bundle = annotations
            .get(ANNOTATION_BUNDLE_ID)
            .filter(|_| is_ours)
            .cloned();
        self.read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(newest.uid.clone(), bundle.clone());
        Ok(bundle)
    }
}
