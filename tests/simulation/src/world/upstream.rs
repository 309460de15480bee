//! The upstream cluster: what is wanted of bundles there, and what disasters do to it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{BUNDLES_PATH, WORKSPACE, World, bundle_id};
use crate::apiserver::{Actor, Id};
use crate::checker::ReleaseKey;
use crate::desired::{BUNDLES, CANARY, CLUSTER, Desired, Origin, SYSTEM, bundle_name};

/// How long it takes at most until a removal is judged.
const LOOKED_AT: Duration = Duration::from_secs(20);

impl World {
    pub(super) fn own(&self) {
        let body = json!({
            "metadata": {"name": "fleet-agent-c1", "namespace": CLUSTER},
            "spec": {"deploymentID": "", "paused": true, "options": {}, "stagedOptions": {}},
        });
        self.upstream.act(Actor::System, "POST", BUNDLES_PATH, body);
    }

    /// Creates what vanished, at once, or one after the other in any order, so many seconds apart.
    pub(super) async fn recreate(&mut self, apart: u64) {
        let desired_state = self.checker().desired_state.now.clone();
        // Nothing stands for the agent's own.
        let own = self.setting.has_own.then_some(None);
        let mut all: Vec<_> = own
            .into_iter()
            .chain(desired_state.into_iter().map(Some))
            .collect();
        while !all.is_empty() {
            let next = match apart {
                0 => 0,
                _ => self.random.index(all.len()),
            };
            match all.remove(next) {
                None => self.own(),
                Some((bundle, desired)) => self.put(bundle, &desired),
            }
            if apart != 0 {
                self.note_lost();
                tokio::time::sleep(Duration::from_secs(apart)).await;
            }
        }
        self.note_lost();
    }

    /// Whether upstream has a bundle.
    pub fn present(&self, bundle: usize) -> bool {
        self.upstream.get(&bundle_id(bundle)).is_some()
    }

    /// Puts a bundle upstream as it is wanted.
    pub(super) fn put(&mut self, bundle: usize, desired: &Desired) {
        if desired.is_missing || desired.origin != Origin::Content {
            self.repository.stock(desired);
        } else {
            let (_, content) = desired.content();
            let contents = "/apis/fleet.cattle.io/v1alpha1/contents";
            self.upstream
                .act(Actor::Upstream, "POST", contents, content);
        }
        let generation = self.generations.get(&bundle).copied().unwrap_or(0);
        let spec = desired.spec(generation);
        let id = spec["deploymentID"].as_str().unwrap_or_default();
        self.specs.insert(id.to_owned(), desired.clone());
        let name = bundle_name(bundle);
        let path = format!("{BUNDLES_PATH}/{name}");
        if self.present(bundle) {
            // A spec is replaced whole.
            let id = bundle_id(bundle);
            let live = self.upstream.get(&id).unwrap_or_default();
            let mut live = live.as_ref().clone();
            live["spec"] = spec;
            self.upstream.act(Actor::Upstream, "PUT", &path, live);
        } else {
            let body = json!({
                "metadata": {"name": name, "labels": {
                    "fleet.cattle.io/bundle-name": name,
                    "fleet.cattle.io/bundle-namespace": WORKSPACE}},
                "spec": spec,
            });
            self.upstream
                .act(Actor::Upstream, "POST", BUNDLES_PATH, body);
        }
    }

    /// The releases, each by its bundle, of bundles that upstream has not and that are held by the agent, or being removed: by its own word, as
    /// they may be gone.
    pub fn held(&self) -> Vec<usize> {
        self.missing_with(&["hold", "lost", "isRemoving"])
    }

    /// The same of those that the ledger has one of these fields of.
    pub(super) fn missing_with(&self, fields: &[&str]) -> Vec<usize> {
        let mut noted = self.noted_with(fields);
        noted.retain(|bundle| !self.present(*bundle));
        noted
    }

    /// The bundles of entries in the ledger that have one of these fields.
    pub(super) fn noted_with(&self, fields: &[&str]) -> Vec<usize> {
        let ledger = self.ledger();
        let entries = ledger["data"].as_object().into_iter().flatten();
        let held = entries.filter_map(|(_, text)| {
            let entry: Value = serde_json::from_str(text.as_str()?).ok()?;
            let is_held = fields.iter().any(|field| entry.get(field).is_some());
            let bundle = (0..BUNDLES).find(|bundle| entry["bundle"] == bundle_name(*bundle))?;
            is_held.then_some(bundle)
        });
        held.collect()
    }

    fn ledger(&self) -> Arc<Value> {
        let id = Id::new("", "configmaps", SYSTEM, "fleet-agent-ledger");
        self.local.get(&id).unwrap_or_default()
    }

    /// Releases that the agent remembers.
    pub fn remembered(&self) -> BTreeSet<ReleaseKey> {
        let ledger = self.ledger();
        let entries = ledger["data"].as_object().into_iter().flatten();
        let releases = entries.filter_map(|(key, _)| key.split_once('_'));
        releases
            .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
            .collect()
    }

    pub(super) fn note_lost(&mut self) {
        let wanted: Vec<usize> = self.checker().desired_state.now.keys().copied().collect();
        let lost: BTreeSet<usize> = wanted
            .into_iter()
            .filter(|bundle| !self.present(*bundle))
            .collect();
        let (listed, heard) = {
            let traffic = self.network.lock();
            (traffic.listed, traffic.heard)
        };
        let hidden = match &self.unnoticed {
            Some((_, reported, lost)) if self.upstream.backup().version() >= *reported => {
                lost.clone()
            }
            _ => BTreeSet::new(),
        };
        let mut checker = self.checker();
        let allowed = std::mem::take(&mut checker.allowed);
        let is_held = |one: &usize| lost.contains(one) || self.held.contains(one);
        let (allowed, back) = allowed.into_iter().partition(is_held);
        checker.allowed = allowed;
        checker.come_back(back);
        // Without a bundle of the agent's own, one or two of which the others are back before anybody looks are deletions like any other.
        let is_unseen =
            |at: Instant| at.elapsed() < LOOKED_AT || listed.is_none_or(|listed| listed < at);
        let is_fresh = self.emptied.is_some_and(is_unseen);
        let are_few = checker.own_releases(&lost, |bundle| self.present(bundle)) < 3;
        if !self.setting.has_own && is_fresh && are_few {
            checker.allowed.extend(&lost);
        }
        // As docs/security.md has it: versions that have passed what the agent was told of before anybody listed them show no restore.
        checker.allowed.extend(hidden.intersection(&lost));
        checker.lose(lost, heard);
    }

    /// The agent has listed: what the list did not show of a restore it is not told by a later one.
    pub fn note_listed(&mut self) {
        if self.unnoticed.is_none() {
            return;
        }
        self.note_lost();
        let listed = self.network.lock().listed;
        self.unnoticed.take_if(|(at, ..)| listed > Some(*at));
    }

    /// The highest version of a bundle upstream.
    pub(super) fn announced_version(&self) -> u64 {
        let bundles = self.upstream.all(|id| id.plural == "bundledeployments");
        let versions = bundles.iter().filter_map(|(_, bundle)| {
            let version = bundle.pointer("/metadata/resourceVersion")?;
            version.as_str()?.parse().ok()
        });
        versions.max().unwrap_or(0)
    }

    /// The last heartbeat that upstream remembers.
    pub(super) fn heartbeat(&self) -> Option<Value> {
        let clusters = self.upstream.all(|id| id.plural == "clusters");
        let (_, cluster) = clusters.first()?;
        cluster.pointer("/status/agent/lastSeen").cloned()
    }

    /// Fleet's controller writes what it takes for the last heartbeat, `null` for none.
    pub(super) fn set_heartbeat(&self, last_seen: Value) {
        let clusters = self.upstream.all(|id| id.plural == "clusters");
        let Some((_, cluster)) = clusters.first() else {
            return;
        };
        let mut cluster = cluster.as_ref().clone();
        cluster["status"]["agent"]["lastSeen"] = last_seen;
        let path =
            format!("/apis/fleet.cattle.io/v1alpha1/namespaces/{WORKSPACE}/clusters/c1/status");
        self.upstream.act(Actor::Upstream, "PUT", &path, cluster);
    }

    /// Whether the Cluster is not older than the agent has noted it.
    pub(super) fn has_cluster_as_noted(&self) -> bool {
        let clusters = self.upstream.all(|id| id.plural == "clusters");
        let version = clusters.first().and_then(|(_, cluster)| {
            let version = cluster.pointer("/metadata/resourceVersion")?;
            version.as_str()?.parse::<u64>().ok()
        });
        let ledger = self.ledger();
        let noted = ledger["metadata"]["annotations"]["fleet.cattle.io/upstream"].as_str();
        let noted: Value = noted
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        version >= noted["clusterVersion"].as_u64()
    }

    pub(super) fn return_contents(&mut self) {
        let desired_state: Vec<Desired> =
            self.checker().desired_state.now.values().cloned().collect();
        for desired in desired_state {
            let (_, content) = desired.content();
            let contents = "/apis/fleet.cattle.io/v1alpha1/contents";
            self.upstream
                .act(Actor::Upstream, "POST", contents, content);
        }
    }

    /// After a restore: what upstream has is wanted, as it is there.
    pub(super) fn rediscover(&self) {
        let Some((_, desired_state)) = &self.backup else {
            return;
        };
        let mut checker = self.checker();
        for (bundle, desired) in desired_state {
            // Newer desired_state are lost with the state that held them; what is there is what is wanted.
            checker.change(*bundle, desired);
        }
    }

    pub(super) fn change_source(&mut self, number: u8) {
        let path = format!("/api/v1/namespaces/{CLUSTER}/secrets/pull{number}");
        let changes = self.generations.entry(usize::MAX).or_default();
        *changes += 1;
        let token = STANDARD.encode(format!("{CANARY}pull{number}-{changes}"));
        let body = json!({"data": {"token": token}});
        self.upstream.act(Actor::Upstream, "PATCH", &path, body);
        // The controller tells those who have a copy.
        let desired_state = self.checker().desired_state.now.clone();
        for (bundle, desired) in desired_state {
            if desired.copies.contains(&number) && self.present(bundle) {
                *self.generations.entry(bundle).or_default() += 1;
                self.put(bundle, &desired);
            }
        }
    }
}
