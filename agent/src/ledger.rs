//! Which bundle, account and namespace each release belongs to: our own record of identity.
//!
//! A release record lies where a tenant may write, so it proves nothing. The ledger is one
//! ConfigMap in the system namespace, written at each deploy that changes it and believed when a
//! release is removed. What it does not know is never removed.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::error;
use crate::identity::AgentClient;

/// Name of the ConfigMap.
pub const LEDGER_NAME: &str = "fleet-agent-ledger";

/// Set to `true` on the ledger to let removals through that the brake holds back.
pub const RELEASE_HOLD_ANNOTATION: &str = "fleet.cattle.io/release-held-removals";

/// A release by its namespace and name; a name is unique in its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReleaseKey {
    pub namespace: String,
    pub name: String,
}

impl ReleaseKey {
    /// Neither part can hold an underscore, so one tells them apart in a ConfigMap's key.
    fn data_key(&self) -> String {
        format!("{}_{}", self.namespace, self.name)
    }

    fn from_data_key(key: &str) -> Option<Self> {
        let (namespace, name) = key.split_once('_')?;
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// What is known of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    /// Name of the BundleDeployment.
    pub bundle: String,
    /// Account it was deployed with; empty for the agent's own.
    #[serde(default)]
    pub account: String,
    /// Whether its objects outlive the BundleDeployment.
    #[serde(default)]
    pub keep_resources: bool,
}

/// The ledger, read once and written through.
pub struct Ledger {
    maps: Api<ConfigMap>,
    entries: Mutex<BTreeMap<ReleaseKey, LedgerEntry>>,
}

impl Ledger {
    /// Reads the ledger; none yet is an empty one.
    ///
    /// # Errors
    /// It cannot be read. An entry that does not parse is left out, with a log line.
    pub async fn load(agent: &AgentClient, namespace: &str) -> kube::Result<Self> {
        let maps = Api::<ConfigMap>::namespaced(agent.client(), namespace);
        let data = match maps.get_opt(LEDGER_NAME).await? {
            Some(map) => map.data.unwrap_or_default(),
            None => BTreeMap::new(),
        };
        let read = |(key, text): (String, String)| {
            let entry = ReleaseKey::from_data_key(&key).zip(serde_json::from_str(&text).ok());
            if entry.is_none() {
                tracing::warn!(key, "an entry of the ledger cannot be read");
            }
            entry
        };
        let entries = Mutex::new(data.into_iter().filter_map(read).collect());
        Ok(Self { maps, entries })
    }

    /// Records whose a release is. Writes only what changed.
    ///
    /// # Errors
    /// It cannot be written; then it is not recorded in memory either.
    pub async fn record(&self, key: ReleaseKey, entry: LedgerEntry) -> kube::Result<()> {
        let mut entries = self.entries.lock().await;
        if entries.get(&key) == Some(&entry) {
            return Ok(());
        }
        let text = serde_json::to_value(&entry).map_err(kube::Error::SerdeError)?;
        self.write(&key, Value::String(golib::json::encode(&text)))
            .await?;
        entries.insert(key, entry);
        Ok(())
    }

    /// Forgets a release that was removed.
    ///
    /// # Errors
    /// It cannot be written.
    pub async fn forget(&self, key: &ReleaseKey) -> kube::Result<()> {
        let mut entries = self.entries.lock().await;
        if entries.contains_key(key) {
            self.write(key, Value::Null).await?;
            entries.remove(key);
        }
        Ok(())
    }

    /// The releases of a bundle.
    pub async fn of_bundle(&self, bundle: &str) -> Vec<(ReleaseKey, LedgerEntry)> {
        let entries = self.entries.lock().await;
        let of_bundle = entries.iter().filter(|(_, entry)| entry.bundle == bundle);
        of_bundle
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect()
    }

    /// Every release and its bundle.
    pub async fn all(&self) -> Vec<(ReleaseKey, LedgerEntry)> {
        let entries = self.entries.lock().await;
        entries
            .iter()
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect()
    }

    /// Whether someone let held removals through.
    ///
    /// # Errors
    /// The ConfigMap cannot be read.
    pub async fn is_hold_released(&self) -> kube::Result<bool> {
        let map = self.maps.get_metadata_opt(LEDGER_NAME).await?;
        let released = |map: &kube::core::PartialObjectMeta<ConfigMap>| {
            map.annotations()
                .get(RELEASE_HOLD_ANNOTATION)
                .is_some_and(|value| value == "true")
        };
        Ok(map.as_ref().is_some_and(released))
    }

    async fn write(&self, key: &ReleaseKey, value: Value) -> kube::Result<()> {
        let patch = json!({"data": {key.data_key(): value}});
        let parameters = PatchParams::default();
        match self
            .maps
            .patch(LEDGER_NAME, &parameters, &Patch::Merge(&patch))
            .await
        {
            Err(failed) if error::has_code(&failed, 404) => {}
            result => return result.map(drop),
        }
        let Some(text) = value.as_str() else {
            return Ok(());
        };
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(LEDGER_NAME.into()),
                ..Default::default()
            },
            data: Some([(key.data_key(), text.to_owned())].into()),
            ..Default::default()
        };
        match self.maps.create(&PostParams::default(), &map).await {
            Err(failed) if error::has_code(&failed, 409) => self
                .maps
                .patch(LEDGER_NAME, &parameters, &Patch::Merge(&patch))
                .await
                .map(drop),
            result => result.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_a_round_trip() {
        let key = ReleaseKey {
            namespace: "a-b".into(),
            name: "c.d".into(),
        };
        assert_eq!(ReleaseKey::from_data_key(&key.data_key()), Some(key));
        assert_eq!(ReleaseKey::from_data_key("no-separator"), None);
    }
}
