//! Which bundle, account and namespace each release belongs to: our own record of identity.
//!
//! A release record lies where a tenant may write, so it proves nothing. The ledger is one
//! ConfigMap in the system namespace, written at each deploy that changes it and believed when a
//! release is removed. What it does not know is never removed. It also remembers which upstream
//! its bundles came from, so that another upstream, or an older state of the same one, proves
//! nothing about them.

pub mod records;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use release::storage::KnownDigest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::api::AGENT_BUNDLE_PREFIX;
use crate::client::identity::AgentClient;
use crate::error;

/// Name of the ConfigMap.
pub const LEDGER_NAME: &str = "fleet-agent-ledger";

/// Set to `true` on the ledger to let removals through that are held back. The agent takes it away
/// again once nothing is held any more.
pub const RELEASE_HOLD_ANNOTATION: &str = "fleet.cattle.io/release-held-removals";

/// Where the ledger keeps its [`UpstreamState`], as JSON.
const ORIGIN_ANNOTATION: &str = "fleet.cattle.io/upstream";

/// Revisions of a release that are remembered by digest: all that is ever gone back to.
const MAX_REVISIONS: usize = 8;

/// An upstream that is this many writes further than when it was last seen was restored from a
/// backup: etcd's documented restore skips a thousand million revisions.
const LEAP: u64 = 500_000_000;

/// A release by its namespace and name; a name is unique in its namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReleaseKey {
    pub namespace: String,
    pub name: String,
}

impl ReleaseKey {
    /// Neither part can hold an underscore, so one tells them apart in a ConfigMap's key.
    fn data_key(&self) -> String {
        format!("{}_{}", self.namespace, self.name)
    }

    /// Whether the API server takes it as a ConfigMap's key. One that it refuses would keep all others from being written.
    fn is_storable(&self) -> bool {
        let key = self.data_key();
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        key.len() <= 253 && !key.starts_with("..") && key.bytes().all(is_allowed)
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    /// Name of the BundleDeployment.
    pub bundle: String,
    /// Account it was deployed with; empty for the agent's own.
    #[serde(default)]
    pub account: String,
    /// Whether its objects outlive the BundleDeployment: as the spec last seen or the one last
    /// deployed says.
    #[serde(default)]
    pub keep_resources: bool,
    /// Set when upstream was not what it was while this bundle was missing: its absence proves
    /// nothing until it was listed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<ContinuityBreak>,
    /// Its removal was proven and has begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_removing: bool,
    /// What each revision was written with, as a digest; none for a release whose records are older
    /// than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revisions: Option<BTreeMap<i64, String>>,
}

impl LedgerEntry {
    /// What the entry says of a revision's record.
    pub fn known_digest(&self, revision: i64) -> KnownDigest {
        let Some(revisions) = &self.revisions else {
            return KnownDigest::Untracked;
        };
        match revisions.get(&revision) {
            Some(digest) => KnownDigest::Digest(digest.clone()),
            None => KnownDigest::Unknown,
        }
    }

    /// This entry with what another one knows of the records.
    #[must_use]
    pub fn with_revisions_of(self, other: &Self) -> Self {
        Self {
            revisions: other.revisions.clone(),
            ..self
        }
    }

    /// This entry with the digest of one more revision; the oldest beyond [`MAX_REVISIONS`] go.
    #[must_use]
    pub fn noting(mut self, revision: i64, digest: String) -> Self {
        let revisions = self.revisions.get_or_insert_default();
        revisions.insert(revision, digest);
        while revisions.len() > MAX_REVISIONS {
            revisions.pop_first();
        }
        self
    }
}

/// Why upstream is not the one the bundles came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContinuityBreak {
    /// Another server, or another namespace of it: the agent was registered elsewhere.
    Elsewhere,
    /// The same one in another state than it was left in: restored from a backup.
    Restored,
}

/// The upstream that was seen last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamState {
    /// Address of its API server.
    pub server: String,
    /// Namespace of the BundleDeployments.
    pub namespace: String,
    /// Highest resourceVersion seen; 0 where versions are no numbers.
    #[serde(default)]
    pub version: u64,
    /// Whether the agent's own BundleDeployment was ever listed.
    #[serde(default)]
    pub has_own: bool,
    /// When it last took a report of this agent, in seconds since 1970. A backup remembers an older one, whatever was written after
    /// it was restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<i64>,
}

impl UpstreamState {
    /// Whether `now`, seen later, is a continuation; why not otherwise.
    pub fn continues(&self, now: &Self) -> Result<(), ContinuityBreak> {
        if self.server != now.server || self.namespace != now.namespace {
            return Err(ContinuityBreak::Elsewhere);
        }
        let (before, after) = (self.version, now.version);
        if before != 0 && after != 0 && (after < before || after - before > LEAP) {
            return Err(ContinuityBreak::Restored);
        }
        if now.reported.is_some() && now.reported < self.reported {
            return Err(ContinuityBreak::Restored);
        }
        Ok(())
    }
}

/// The ledger, read once and written through.
pub struct Ledger {
    maps: Api<ConfigMap>,
    state: std::sync::Mutex<LedgerState>,
    /// Held while writing: changes that come meanwhile go out together with the next write.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct LedgerState {
    /// Breaks found by [`Ledger::check_continuity`].
    breaks: u64,
    entries: BTreeMap<ReleaseKey, LedgerEntry>,
    origin: Option<UpstreamState>,
    /// Wanted, and not known to be written; `None` removes.
    pending: BTreeMap<ReleaseKey, Option<LedgerEntry>>,
}

impl LedgerState {
    fn desired(&self, key: &ReleaseKey) -> Option<&LedgerEntry> {
        match self.pending.get(key) {
            Some(pending) => pending.as_ref(),
            None => self.entries.get(key),
        }
    }
}

impl Ledger {
    /// Reads the ledger; none yet is an empty one.
    ///
    /// # Errors
    /// It cannot be read. An entry that does not parse is left out, with a log line.
    pub async fn load(agent: &AgentClient, namespace: &str) -> kube::Result<Self> {
        let maps = Api::<ConfigMap>::namespaced(agent.client(), namespace);
        let map = maps.get_opt(LEDGER_NAME).await?.unwrap_or_default();
        let origin = map
            .annotations()
            .get(ORIGIN_ANNOTATION)
            .and_then(|text| serde_json::from_str(text).ok());
        let read = |(key, text): (String, String)| {
            let entry = ReleaseKey::from_data_key(&key).zip(serde_json::from_str(&text).ok());
            if entry.is_none() {
                tracing::warn!(key, "an entry of the ledger cannot be read");
            }
            entry
        };
        let data = map.data.unwrap_or_default();
        let state = LedgerState {
            breaks: 0,
            entries: data.into_iter().filter_map(read).collect(),
            origin,
            pending: BTreeMap::new(),
        };
        Ok(Self {
            maps,
            state: std::sync::Mutex::new(state),
            writing: Mutex::default(),
        })
    }

    /// Records whose a release is. Writes only what changed; records that come while another is
    /// being written go out in one write.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn record(&self, key: ReleaseKey, entry: LedgerEntry) -> kube::Result<()> {
        if !key.is_storable() {
            let problem = format!("{}/{} cannot be a release", key.namespace, key.name);
            return Err(kube::Error::Service(problem.into()));
        }
        {
            let mut state = self.lock();
            if state.entries.get(&key) == Some(&entry) && !state.pending.contains_key(&key) {
                return Ok(());
            }
            state.pending.insert(key.clone(), Some(entry));
        }
        self.flush(Some(&key)).await
    }

    /// Believes a revision that was there before the ledger knew any of its release; written with the
    /// next write.
    pub fn adopt_revision(&self, key: ReleaseKey, entry: LedgerEntry) {
        self.lock().pending.insert(key, Some(entry));
    }

    /// Forgets the digest of a revision that is gone; written with the next write.
    pub fn forget_revision(&self, key: &ReleaseKey, revision: i64) {
        let mut state = self.lock();
        let Some(mut entry) = state.desired(key).cloned() else {
            return;
        };
        let revisions = entry.revisions.as_mut();
        if revisions.is_some_and(|known| known.remove(&revision).is_some()) {
            state.pending.insert(key.clone(), Some(entry));
        }
    }

    /// Forgets a release that was removed.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn forget(&self, key: &ReleaseKey) -> kube::Result<()> {
        if self.lock().desired(key).is_none() {
            return Ok(());
        }
        self.lock().pending.insert(key.clone(), None);
        self.flush(Some(key)).await
    }

    /// Takes note of a bundle that is listed: it is not lost, and its objects are kept if
    /// `keep_resources` says so; whether they still are otherwise is for the next deploy to say.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn seen(&self, bundle: &str, keep_resources: bool) -> kube::Result<()> {
        self.change(bundle, |entry| LedgerEntry {
            keep_resources: entry.keep_resources || keep_resources,
            lost: None,
            is_removing: false,
            ..entry
        })
        .await
    }

    /// Takes note that the removal of a bundle's releases was proven and begins.
    ///
    /// # Errors
    /// It cannot be written; then nothing should be removed yet.
    pub async fn begin_removal(&self, bundle: &str) -> kube::Result<()> {
        self.change(bundle, |entry| LedgerEntry {
            is_removing: true,
            ..entry
        })
        .await
    }

    async fn change(
        &self,
        bundle: &str,
        now: impl Fn(LedgerEntry) -> LedgerEntry,
    ) -> kube::Result<()> {
        let mut changed = None;
        {
            let mut state = self.lock();
            for (key, entry) in state.of_bundle(bundle) {
                let now = now(entry.clone());
                if now != entry || state.pending.contains_key(&key) {
                    state.pending.insert(key.clone(), Some(now));
                    changed = Some(key);
                }
            }
        }
        match changed {
            Some(key) => self.flush(Some(&key)).await,
            None => Ok(()),
        }
    }

    /// The highest version seen so far. To be asked before a list is: what is told while the list is
    /// on its way is no measure of it.
    pub fn seen_version(&self) -> u64 {
        self.lock()
            .origin
            .as_ref()
            .map_or(0, |origin| origin.version)
    }

    /// How often upstream turned out not to be the one seen before. A watch from before the last time is deaf.
    pub fn breaks(&self) -> u64 {
        self.lock().breaks
    }

    /// Compares upstream with the one seen before, when `floor` was its version. After a break, every bundle that is not
    /// `listed` is lost: its absence is no proof from now on. Bundles that are listed are not.
    ///
    /// # Errors
    /// It cannot be written. Then the break is remembered in memory, and written with the next
    /// write.
    pub async fn check_continuity(
        &self,
        now: UpstreamState,
        floor: u64,
        listed: &BTreeSet<String>,
    ) -> kube::Result<Option<ContinuityBreak>> {
        let (found, must_write) = {
            let mut state = self.lock();
            let before = state.origin.clone().map(|origin| UpstreamState {
                version: floor,
                ..origin
            });
            let seen = state.origin.as_ref().map_or(0, |origin| origin.version);
            let found = before
                .as_ref()
                .and_then(|origin| origin.continues(&now).err());
            let keys: Vec<_> = state.all().into_iter().collect();
            for (key, entry) in keys {
                let lost = match (listed.contains(&entry.bundle), found) {
                    (true, _) => None,
                    (false, Some(found)) => Some(found),
                    (false, None) => entry.lost,
                };
                if lost != entry.lost {
                    state
                        .pending
                        .insert(key, Some(LedgerEntry { lost, ..entry }));
                }
            }
            state.breaks += u64::from(found.is_some());
            let mut origin = now;
            if let (Some(before), None) = (&before, found) {
                origin.version = origin.version.max(seen);
                origin.has_own |= before.has_own;
                origin.reported = origin.reported.max(before.reported);
            }
            // A version alone is not worth a write.
            let is_news = before
                .as_ref()
                .is_none_or(|before| found.is_some() || before.has_own != origin.has_own);
            state.origin = Some(origin);
            (found, is_news || !state.pending.is_empty())
        };
        if must_write {
            self.flush(None).await?;
        }
        Ok(found)
    }

    /// Takes note of a report that upstream took, in seconds since 1970.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn reported(&self, at: i64) -> kube::Result<()> {
        match &mut self.lock().origin {
            Some(origin) => origin.reported = Some(at),
            None => return Ok(()),
        }
        self.flush(None).await
    }

    /// Takes note of a version upstream told, which no later list may fall behind.
    pub fn saw(&self, version: Option<&str>) {
        let version = version.and_then(|text| text.parse::<u64>().ok());
        let mut state = self.lock();
        if let (Some(origin), Some(version)) = (&mut state.origin, version) {
            origin.version = origin.version.max(version);
        }
    }

    /// The upstream seen last.
    pub fn origin(&self) -> Option<UpstreamState> {
        self.lock().origin.clone()
    }

    /// Whether the agent ever had a BundleDeployment of its own.
    pub fn had_own(&self) -> bool {
        let state = self.lock();
        state.origin.as_ref().is_some_and(|origin| origin.has_own)
            || state
                .all()
                .iter()
                .any(|(_, entry)| entry.bundle.starts_with(AGENT_BUNDLE_PREFIX))
    }

    /// The entry of a release.
    pub fn get(&self, key: &ReleaseKey) -> Option<LedgerEntry> {
        self.lock().desired(key).cloned()
    }

    /// The releases of a bundle.
    pub fn of_bundle(&self, bundle: &str) -> Vec<(ReleaseKey, LedgerEntry)> {
        self.lock().of_bundle(bundle)
    }

    /// Every release and its bundle.
    pub fn all(&self) -> Vec<(ReleaseKey, LedgerEntry)> {
        self.lock().all()
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

    /// Takes the release of a hold back, so that the next hold holds.
    ///
    /// # Errors
    /// It cannot be written.
    pub async fn end_release_of_hold(&self) -> kube::Result<()> {
        let patch = json!({"metadata": {"annotations": {RELEASE_HOLD_ANNOTATION: null}}});
        self.patch(&patch).await
    }

    /// Writes what is pending; a caller whose `key` went out with somebody else's write is done.
    async fn flush(&self, key: Option<&ReleaseKey>) -> kube::Result<()> {
        let _writing = self.writing.lock().await;
        let (changes, origin) = {
            let state = self.lock();
            if key.is_some_and(|key| !state.pending.contains_key(key)) {
                return Ok(());
            }
            (state.pending.clone(), state.origin.clone())
        };
        let mut data = Map::new();
        for (key, entry) in &changes {
            let value = entry.as_ref().map_or(Ok(Value::Null), text);
            data.insert(key.data_key(), value?);
        }
        let annotations = origin.as_ref().map(origin_text).transpose()?;
        let annotations = annotations.map(|text| json!({ORIGIN_ANNOTATION: text}));
        let patch = json!({"metadata": {"annotations": annotations}, "data": data});
        match self.patch(&patch).await {
            // Deleted, or never there: written whole.
            Err(failed) if error::has_code(&failed, 404) => self.create().await?,
            result => result?,
        }
        let mut state = self.lock();
        for (key, entry) in changes {
            if state.pending.get(&key) == Some(&entry) {
                state.pending.remove(&key);
            }
            match entry {
                Some(entry) => state.entries.insert(key, entry),
                None => state.entries.remove(&key),
            };
        }
        Ok(())
    }

    async fn patch(&self, patch: &Value) -> kube::Result<()> {
        self.maps
            .patch(LEDGER_NAME, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(drop)
    }

    async fn create(&self) -> kube::Result<()> {
        let (all, origin) = (self.all(), self.origin());
        let mut data = BTreeMap::new();
        for (key, entry) in &all {
            data.insert(key.data_key(), golib::json::encode(&tree(entry)?));
        }
        let origin = origin.as_ref().map(origin_text).transpose()?;
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(LEDGER_NAME.into()),
                annotations: origin.map(|text| [(ORIGIN_ANNOTATION.to_owned(), text)].into()),
                ..Default::default()
            },
            data: Some(data),
            ..Default::default()
        };
        self.maps
            .create(&PostParams::default(), &map)
            .await
            .map(drop)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LedgerState> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl LedgerState {
    fn all(&self) -> Vec<(ReleaseKey, LedgerEntry)> {
        let mut all = self.entries.clone();
        for (key, entry) in &self.pending {
            match entry {
                Some(entry) => all.insert(key.clone(), entry.clone()),
                None => all.remove(key),
            };
        }
        all.into_iter().collect()
    }

    fn of_bundle(&self, bundle: &str) -> Vec<(ReleaseKey, LedgerEntry)> {
        let written = self.entries.iter();
        let written = written.filter(|(key, _)| !self.pending.contains_key(*key));
        let pending = self.pending.iter();
        let pending = pending.filter_map(|(key, entry)| Some((key, entry.as_ref()?)));
        written
            .chain(pending)
            .filter(|(_, entry)| entry.bundle == bundle)
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect()
    }
}

fn tree(value: &impl Serialize) -> kube::Result<Value> {
    serde_json::to_value(value).map_err(kube::Error::SerdeError)
}

fn text(entry: &LedgerEntry) -> kube::Result<Value> {
    Ok(Value::String(golib::json::encode(&tree(entry)?)))
}

fn origin_text(origin: &UpstreamState) -> kube::Result<String> {
    Ok(golib::json::encode(&tree(origin)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn keys_survive_a_round_trip() {
        let key = ReleaseKey {
            namespace: "a-b".into(),
            name: "c.d".into(),
        };
        assert_eq!(ReleaseKey::from_data_key(&key.data_key()), Some(key));
        assert_eq!(ReleaseKey::from_data_key("no-separator"), None);
    }

    #[rstest]
    #[case::usual("apps", "web.1", true)]
    #[case::path("../..", "web", false)]
    #[case::blank("apps", "a b", false)]
    fn only_what_can_be_a_key_is_written(
        #[case] namespace: &str,
        #[case] name: &str,
        #[case] expected: bool,
    ) {
        let key = ReleaseKey {
            namespace: namespace.into(),
            name: name.into(),
        };
        assert_eq!(key.is_storable(), expected);
    }

    fn origin(server: &str, version: u64) -> UpstreamState {
        UpstreamState {
            server: server.into(),
            namespace: "cluster-a".into(),
            version,
            has_own: false,
            reported: Some(100),
        }
    }

    #[rstest]
    #[case::same_moment(origin("a", 7), Ok(()))]
    #[case::later(origin("a", 8), Ok(()))]
    #[case::versions_that_are_no_numbers(origin("a", 0), Ok(()))]
    #[case::another_server(origin("b", 8), Err(ContinuityBreak::Elsewhere))]
    #[case::another_namespace(UpstreamState { namespace: "cluster-b".into(), ..origin("a", 8) }, Err(ContinuityBreak::Elsewhere))]
    #[case::an_old_backup(origin("a", 6), Err(ContinuityBreak::Restored))]
    #[case::an_old_backup_that_was_written_to(UpstreamState { reported: Some(99), ..origin("a", 8) }, Err(ContinuityBreak::Restored))]
    #[case::reports_that_cannot_be_read(UpstreamState { reported: None, ..origin("a", 8) }, Ok(()))]
    #[case::a_backup_whose_revisions_were_bumped(
        origin("a", 1_000_000_007),
        Err(ContinuityBreak::Restored)
    )]
    fn an_upstream_continues_or_not(
        #[case] now: UpstreamState,
        #[case] expected: Result<(), ContinuityBreak>,
    ) {
        assert_eq!(origin("a", 7).continues(&now), expected);
    }
}
