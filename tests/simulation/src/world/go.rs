//! The Go agent, which runs while ours is down: it deploys, removes and reports, and knows nothing of our ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent::api::{
    ANNOTATION_AGENT_NAMESPACE, ANNOTATION_BUNDLE_ID, ANNOTATION_KEEP_RESOURCES,
    ANNOTATION_OBJECT_SET_ID, ANNOTATION_SERVICE_ACCOUNT, LABEL_OBJECT_SET_HASH,
};
use agent::bundle::SetId;
use chart::Chart;
use release::model::Status;
use serde_json::{Value, json};

use super::{BUNDLES_PATH, World, bundle_id, path};
use crate::apiserver::{Actor, Id};
use crate::desired::{
    ACCOUNTS, BUNDLES, CHART, Desired, Manifest, NAMESPACES, Origin, SYSTEM, VERSION, bundle_name,
};

impl World {
    /// One pass over all bundles; `dies` in the middle of the first that it deploys.
    pub(super) fn go_agent(&mut self, dies: bool) {
        for bundle in 0..BUNDLES {
            let Some(live) = self.upstream.get(&bundle_id(bundle)) else {
                continue;
            };
            let id = live["spec"]["deploymentID"].as_str().unwrap_or_default();
            let Some(desired) = self.specs.get(id).cloned() else {
                continue;
            };
            let is_applied = live["status"]["appliedDeploymentID"] == live["spec"]["deploymentID"];
            let newest = self.newest(desired.namespace, desired.release);
            let is_there = newest.is_some_and(|(_, release)| release.status() == Status::Deployed);
            if is_applied && is_there {
                continue;
            }
            if let Some(revision) = self.deploy_as_go(bundle, &desired, dies) {
                if dies {
                    return;
                }
                self.report_as_go(bundle, id, &desired, revision);
            }
        }
        self.collect_as_go();
    }

    /// The revision that it came to, if there is something to report. Bundles with hooks are left to ours.
    fn deploy_as_go(&self, bundle: usize, desired: &Desired, dies: bool) -> Option<i64> {
        let has_content = desired.origin != Origin::Content || {
            let id = Id::new("fleet.cattle.io", "contents", "", &desired.content().0);
            self.upstream.get(&id).is_some()
        };
        let manifests: Vec<&Manifest> = desired.manifests.iter().collect();
        let has_hooks = manifests.iter().any(|manifest| manifest.kind.is_hook());
        if has_hooks || desired.is_missing || !has_content {
            return None;
        }
        let namespace = desired.release_namespace();
        let body = json!({"metadata": {"name": namespace, "labels": {"name": namespace}}});
        self.local
            .act(Actor::Go, "POST", "/api/v1/namespaces", body);
        let newest = self.newest(desired.namespace, desired.release);
        let before = newest.map(|(revision, _)| revision);
        let is_foreign = |id: &Id| {
            let live = self.local.get(id);
            live.is_some_and(|live| owner(&live) != Some(&desired.release_name()))
        };
        if !desired.take_ownership && desired.ids().any(|id| is_foreign(&id)) {
            return None;
        }
        let set = SetId::new(&bundle_name(bundle), "");
        let objects: Vec<(Id, Value)> = manifests
            .iter()
            .map(|manifest| {
                let mut object = manifest.object();
                object["metadata"]["namespace"] = namespace.into();
                object["metadata"]["labels"] = json!({LABEL_OBJECT_SET_HASH: set.hash()});
                object["metadata"]["annotations"] = json!({ANNOTATION_OBJECT_SET_ID: set.id()});
                (manifest.id(namespace), object)
            })
            .collect();
        let mut release = self.helm_release(
            desired.namespace,
            desired.release,
            before.unwrap_or(0) + 1,
            manifests[0],
        );
        release.manifest = objects
            .iter()
            .map(|(id, object)| {
                let text = golib::yaml::encode(object).unwrap_or_default();
                format!("---\n# Source: {CHART}/templates/{}.yaml\n{text}", id.name)
            })
            .collect();
        release.chart = Some(Arc::new(chart_of(bundle, desired)));
        let pending = match before {
            Some(_) => Status::PendingUpgrade,
            None => Status::PendingInstall,
        };
        release.set_status(pending, "Preparing upgrade");
        // What this has and the new one has not goes: the deployed one, else the newest.
        let former = self.deployed(desired.namespace, desired.release);
        if !self.write_record(Actor::Go, &release) {
            return None;
        }
        if dies {
            return Some(release.revision);
        }
        for (id, object) in &objects {
            let mut object = object.clone();
            object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm".into();
            let annotations = &mut object["metadata"]["annotations"];
            annotations["meta.helm.sh/release-name"] = release.name.clone().into();
            annotations["meta.helm.sh/release-namespace"] = namespace.into();
            let answer = match self.local.get(id) {
                Some(_) => self.local.act(Actor::Go, "PATCH", &path(id), object),
                None => {
                    let name = String::new();
                    let collection = path(&Id { name, ..id.clone() });
                    self.local.act(Actor::Go, "POST", &collection, object)
                }
            };
            if !answer.is_ok() {
                release.set_status(Status::Failed, "Upgrade failed");
                self.rewrite_record(Actor::Go, &release);
                return None;
            }
        }
        // Whichever bundle's it was and whoever has it by now.
        let dropped = former
            .as_ref()
            .map_or("", |former| former.manifest.as_str());
        for id in self.of_manifest(desired.namespace, dropped) {
            if !objects.iter().any(|(wanted, _)| *wanted == id) {
                self.local.act(Actor::Go, "DELETE", &path(&id), Value::Null);
            }
        }
        release.set_status(Status::Deployed, "Upgrade complete");
        self.rewrite_record(Actor::Go, &release);
        if let Some(former) = former {
            self.supersede(Actor::Go, former);
        }
        Some(release.revision)
    }

    fn report_as_go(&self, bundle: usize, id: &str, desired: &Desired, revision: i64) {
        let ready = ["Deployed", "Installed", "Monitored", "Ready"]
            .map(|kind| json!({"type": kind, "status": "True"}));
        let (namespace, name) = (desired.release_namespace(), desired.release_name());
        let status = json!({"status": {
            "appliedDeploymentID": id, "release": format!("{namespace}/{name}:{revision}"), "ready": true, "nonModified": true, "conditions": ready}});
        let path = format!("{BUNDLES_PATH}/{}/status", bundle_name(bundle));
        self.upstream.act(Actor::Go, "PATCH", &path, status);
    }

    /// Removes releases whose bundle is not there, or wants another one.
    fn collect_as_go(&self) {
        for (namespace, name) in
            (0..NAMESPACES.len()).flat_map(|n| (0..BUNDLES).map(move |r| (n, r)))
        {
            let name = u8::try_from(name).unwrap_or(0);
            let Some((_, release)) = self.newest(namespace, name) else {
                continue;
            };
            let annotations = release.chart.as_ref();
            let annotations = annotations.and_then(|chart| chart.metadata.annotations.as_ref());
            let Some(bundle) = annotations.and_then(|all| all.get(ANNOTATION_BUNDLE_ID)) else {
                continue;
            };
            let id = bundle
                .strip_prefix('b')
                .and_then(|number| number.parse().ok());
            let Some(id) = id.map(bundle_id) else {
                continue;
            };
            let live = self.upstream.get(&id);
            let desired = live.as_ref().and_then(|live| {
                self.specs
                    .get(live["spec"]["deploymentID"].as_str().unwrap_or_default())
            });
            let is_wanted = desired
                .is_some_and(|desired| desired.namespace == namespace && desired.release == name);
            if is_wanted || live.is_some() && desired.is_none() {
                continue;
            }
            let keeps = annotations.and_then(|all| all.get(ANNOTATION_KEEP_RESOURCES));
            if keeps.is_none_or(|keeps| keeps != "true") {
                for (id, _) in self.of_release(namespace, name) {
                    self.local.act(Actor::Go, "DELETE", &path(&id), Value::Null);
                }
            }
            for (id, _) in self.listed_records(namespace, name) {
                self.local.act(Actor::Go, "DELETE", &path(&id), Value::Null);
            }
        }
    }
}

fn owner(object: &Value) -> Option<&str> {
    let annotations = &object["metadata"]["annotations"];
    annotations["meta.helm.sh/release-name"].as_str()
}

fn chart_of(bundle: usize, desired: &Desired) -> Chart {
    let mut chart = Chart::default();
    chart.metadata.api_version = "v2".into();
    chart.metadata.name = CHART.into();
    chart.metadata.version = VERSION.into();
    let annotations = [
        (
            ANNOTATION_SERVICE_ACCOUNT,
            ACCOUNTS[desired.account].to_owned(),
        ),
        (ANNOTATION_BUNDLE_ID, bundle_name(bundle)),
        (ANNOTATION_AGENT_NAMESPACE, SYSTEM.to_owned()),
        (
            ANNOTATION_KEEP_RESOURCES,
            desired.keep_resources.to_string(),
        ),
    ];
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value));
    chart.metadata.annotations = Some(BTreeMap::from(annotations));
    chart
}
