//! The ledger's ConfigMap: how what is pending gets into it, and what somebody else's write there means.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::entry::LedgerEntry;
use super::key::ReleaseKey;
use super::postponed::AllPostponed;
use super::state::{LedgerState, Pending};
use super::unconfirmed_writes::UnconfirmedWrites;
use super::upstream::UpstreamState;
use super::{LEDGER_NAME, Ledger, POSTPONED_ANNOTATION, UPSTREAM_ANNOTATION};
use crate::api::RELEASE_HOLD_ANNOTATION;
use crate::error;

/// How often a write is tried again since somebody has annotated the ConfigMap.
const TRIES: usize = 5;

/// Whether somebody let through what is held.
pub(super) fn is_permitted(annotations: &BTreeMap<String, String>) -> bool {
    let value = annotations.get(RELEASE_HOLD_ANNOTATION);
    value.is_some_and(|value| value == "true")
}

/// Upstream as the ConfigMap has it; none where that cannot be read.
pub(super) fn upstream(annotations: &BTreeMap<String, String>) -> Option<UpstreamState> {
    let text = annotations.get(UPSTREAM_ANNOTATION)?;
    serde_json::from_str(text).ok()
}

/// The ConfigMap as it was left.
#[derive(Default)]
pub(super) struct Written {
    /// The ConfigMap's version; empty where there was none yet.
    pub(super) version: String,
    /// Values sent since then whose outcome is unknown.
    pub(super) unconfirmed: UnconfirmedWrites,
    /// Whether a write was sent since then that nobody has answered with a version: the ConfigMap may have a later one by it.
    pub(super) is_unanswered: bool,
}

/// What a write brings.
struct Outgoing {
    changes: Pending,
    upstream: Option<UpstreamState>,
    postponed: AllPostponed,
    is_postponed_pending: bool,
    ends_permission: bool,
}

impl Outgoing {
    fn of(state: &LedgerState) -> Self {
        Self {
            changes: state.pending.clone(),
            upstream: state.upstream.clone(),
            postponed: state.postponed.clone(),
            is_postponed_pending: state.is_postponed_pending,
            ends_permission: state.ends_permission,
        }
    }

    /// As a merge patch of the ConfigMap in this version.
    fn patch(&self, version: &str) -> kube::Result<Value> {
        let postponed = self.is_postponed_pending.then_some(&self.postponed);
        let annotations = annotations(self.upstream.as_ref(), postponed)?;
        let annotations = annotations
            .into_iter()
            .map(|(key, text)| (key, text.into()));
        let mut annotations: Map<_, _> = annotations.collect();
        if self.ends_permission {
            annotations.insert(RELEASE_HOLD_ANNOTATION.to_owned(), Value::Null);
        }
        let mut data = Map::new();
        for (key, entry) in &self.changes {
            let text = entry.as_ref().map(to_json).transpose()?;
            data.insert(key.data_key(), text.map_or(Value::Null, Value::String));
        }
        let metadata = json!({"annotations": annotations, "resourceVersion": version});
        Ok(json!({"metadata": metadata, "data": data}))
    }
}

impl Ledger {
    /// Writes what is pending; a caller whose `key` went out with somebody else's write is done.
    pub(super) async fn flush(&self, key: Option<&ReleaseKey>) -> kube::Result<()> {
        let mut written = self.writing.lock().await;
        let is_settled = |key| !self.state.lock().is_pending(key);
        if key.is_some_and(is_settled) {
            return Ok(());
        }
        if *self.replaced.borrow() {
            return Err(is_replaced());
        }
        let mut tries = 0;
        let (version, sent) = loop {
            // Each time anew: the permission that somebody else has written is taken in with what it is for.
            let sent = {
                let mut state = self.state.lock();
                state.begins_write();
                Outgoing::of(&state)
            };
            // Before it is sent: this can be dropped while it waits for the answer.
            written.unconfirmed.send(&sent.changes);
            written.is_unanswered = true;
            let answer = match written.version.is_empty() {
                true => self.create(&sent).await,
                false => self.patch(&sent.patch(&written.version)?).await,
            };
            match answer {
                Ok(version) => break (version, sent),
                // Deleted: written whole.
                Err(failed) if error::is_not_found(&failed) && !written.version.is_empty() => {
                    written.version.clear();
                }
                Err(failed) if error::has_code(&failed, 409) && tries < TRIES => {
                    tries += 1;
                    self.catch_up(&mut written).await?;
                }
                Err(failed) => return Err(failed),
            }
        };
        *written = Written {
            version,
            ..Written::default()
        };
        let mut state = self.state.lock();
        state.is_postponed_pending &= state.postponed != sent.postponed;
        state.ends_permission &= !sent.ends_permission;
        state.has_written(sent.upstream);
        state.wrote(sent.changes);
        Ok(())
    }

    /// Makes sure that the ConfigMap is what is known of it, by its version where that is the one that was known last. One that is gone, as
    /// somebody deleted it, is none that says otherwise.
    ///
    /// # Errors
    /// Somebody else wrote it, or the cluster was restored from a backup, or it cannot be read.
    pub async fn confirm_unreplaced(&self) -> kube::Result<()> {
        let before = self.writing.lock().await.version.clone();
        let found = error::found(self.metadata.get(LEDGER_NAME).await)?;
        let mut written = self.writing.lock().await;
        if *self.replaced.borrow() {
            return Err(is_replaced());
        }
        match found.map(|map| map.resource_version().unwrap_or_default()) {
            // It is written whole with the next write.
            None => Ok(()),
            // A write of its own since then was refused over any other version than this one.
            Some(version) if [&before, &written.version].contains(&&version) => Ok(()),
            Some(_) => self.catch_up(&mut written).await,
        }
    }

    /// Somebody has written the ConfigMap since, or what was sent before was carried out. What people write there are annotations.
    ///
    /// # Errors
    /// Its entries are neither those that were written last nor what was sent since, or it cannot be read.
    pub(super) async fn catch_up(&self, written: &mut Written) -> kube::Result<()> {
        let map = self.maps.get(LEDGER_NAME).await?;
        let version = map.resource_version().unwrap_or_default();
        let is_permitted = is_permitted(map.annotations());
        let upstream = upstream(map.annotations());
        let found = entries(map);
        let mut state = self.state.lock();
        let Some(carried_out) = written.unconfirmed.carried_out(&state.entries, &found) else {
            logging::warn!("the ledger is not as it was written here: it is read anew");
            self.replaced.send_replace(true);
            return Err(is_replaced());
        };
        state.wrote(carried_out);
        state.has_written(upstream);
        if is_permitted && !state.ends_permission {
            // The permission was given before the coming write, which may hold other removals.
            state.release_held(&found);
        }
        *written = Written {
            version,
            ..Written::default()
        };
        Ok(())
    }

    /// Gives the version that it has by that.
    async fn patch(&self, patch: &Value) -> kube::Result<String> {
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let map = self.maps.patch(LEDGER_NAME, &parameters, &patch).await?;
        Ok(map.resource_version().unwrap_or_default())
    }

    /// Gives the version that it has by that.
    async fn create(&self, sent: &Outgoing) -> kube::Result<String> {
        let postponed = Some(&sent.postponed).filter(|all| !all.is_empty());
        let annotations = annotations(sent.upstream.as_ref(), postponed)?;
        let mut all = self.state.lock().entries.clone();
        for (key, entry) in &sent.changes {
            match entry {
                Some(entry) => all.insert(key.clone(), entry.clone()),
                None => all.remove(key),
            };
        }
        let mut data = BTreeMap::new();
        for (key, entry) in &all {
            data.insert(key.data_key(), to_json(entry)?);
        }
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(LEDGER_NAME.into()),
                annotations: Some(annotations),
                ..Default::default()
            },
            data: Some(data),
            ..Default::default()
        };
        let created = self.maps.create(&PostParams::default(), &map).await?;
        Ok(created.resource_version().unwrap_or_default())
    }
}

fn is_replaced() -> kube::Error {
    kube::Error::Service("the ledger was written by somebody else and is read anew".into())
}

/// What the ConfigMap has of each release.
pub(super) fn entries(map: ConfigMap) -> BTreeMap<ReleaseKey, LedgerEntry> {
    let read = |(key, text): (String, String)| {
        let entry = ReleaseKey::from_data_key(&key).zip(serde_json::from_str(&text).ok());
        if entry.is_none() {
            logging::warn!(name = key, "an entry of the ledger cannot be read");
        }
        entry
    };
    let data = map.data.unwrap_or_default();
    data.into_iter().filter_map(read).collect()
}

/// What the ledger keeps in annotations.
fn annotations(
    upstream: Option<&UpstreamState>,
    postponed: Option<&AllPostponed>,
) -> kube::Result<BTreeMap<String, String>> {
    let mut annotations = BTreeMap::new();
    if let Some(upstream) = upstream {
        annotations.insert(UPSTREAM_ANNOTATION.to_owned(), to_json(upstream)?);
    }
    if let Some(postponed) = postponed {
        annotations.insert(POSTPONED_ANNOTATION.to_owned(), to_json(postponed)?);
    }
    Ok(annotations)
}

fn to_json(value: &impl Serialize) -> kube::Result<String> {
    let tree = serde_json::to_value(value).map_err(kube::Error::SerdeError)?;
    Ok(golib::json::encode(&tree))
}
