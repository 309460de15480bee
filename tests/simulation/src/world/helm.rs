//! Helm clients, and a tenant who writes records.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use release::model::{Info, Release, Status};
use release::storage;
use serde_json::{Value, json};

use super::{World, id, path};
use crate::apiserver::{Actor, Id};
use crate::checker::FORGED;
use crate::desired::{Manifest, NAMESPACES};
use crate::plan::{Forgery, object_name};
use crate::records::{HIGHEST, decoded};

impl World {
    pub(super) fn records(&self, namespace: usize, name: u8) -> Vec<(Id, Arc<Value>)> {
        let prefix = format!("sh.helm.release.v1.r{name}.v");
        let place = NAMESPACES[namespace];
        self.local.all(|id| {
            id.plural == "secrets" && id.namespace == place && id.name.starts_with(&prefix)
        })
    }

    /// Those that helm lists.
    pub(super) fn listed_records(&self, namespace: usize, name: u8) -> Vec<(Id, Arc<Value>)> {
        let mut records = self.records(namespace, name);
        records.retain(|(_, record)| {
            let label = record.pointer("/metadata/labels/owner");
            label == Some(&Value::from("helm"))
        });
        records
    }

    /// Whether the name of a record is taken, so that helm cannot begin with it.
    fn has_record(&self, release: &Release) -> bool {
        let name = storage::key(&release.name, release.revision);
        let id = Id::new("", "secrets", &release.namespace, &name);
        self.local.get(&id).is_some()
    }

    pub(super) fn of_release(&self, namespace: usize, name: u8) -> Vec<(Id, Arc<Value>)> {
        let place = NAMESPACES[namespace];
        let mut all = self.local.all(|id| id.namespace == place);
        all.retain(|(_, object)| {
            object
                .pointer("/metadata/annotations/meta.helm.sh~1release-name")
                .and_then(Value::as_str)
                == Some(&format!("r{name}"))
        });
        all
    }

    pub(super) fn newest(&self, namespace: usize, name: u8) -> Option<(i64, Release)> {
        let records = self.listed_records(namespace, name).into_iter();
        let newest = records.max_by_key(|(id, _)| revision_of(&id.name))?;
        let release = decoded(&newest.1)?;
        Some((revision_of(&newest.0.name), release.as_ref().clone()))
    }

    /// What helm upgrades from: the newest revision if its record says that it is deployed, else the newest whose label does, else the newest.
    pub(super) fn deployed(&self, namespace: usize, name: u8) -> Option<Release> {
        let mut records = self.listed_records(namespace, name);
        records.sort_by_key(|(id, _)| revision_of(&id.name));
        let newest = decoded(&records.last()?.1)?;
        let is_deployed = |record: &Value| record["metadata"]["labels"]["status"] == "deployed";
        let older = records.iter().rev().find(|(_, one)| is_deployed(one));
        let current = match older {
            Some((_, older)) if newest.status() != Status::Deployed => decoded(older)?,
            _ => newest,
        };
        Some(current.as_ref().clone())
    }

    /// The objects that a manifest has and that are there.
    pub(super) fn of_manifest(&self, namespace: usize, manifest: &str) -> Vec<Id> {
        let documents = manifest.split("---\n");
        let documents = documents.filter_map(|one| golib::yaml::decode(one.as_bytes()).ok());
        let found = documents.filter_map(|one| self.find(NAMESPACES[namespace], &one));
        found.collect()
    }

    /// Whether a record of helm's can be written, without which helm begins nothing.
    fn takes_record(&self, release: &Release) -> bool {
        let namespace = &release.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/secrets?dryRun=All");
        let body = record(release);
        body.is_some_and(|body| self.local.act(Actor::Helm, "POST", &path, body).is_ok())
    }

    /// Whether it is written.
    pub(super) fn write_record(&self, actor: Actor, release: &Release) -> bool {
        let Some(body) = record(release) else {
            return false;
        };
        let namespace = &release.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/secrets");
        self.local.act(actor, "POST", &path, body).is_ok()
    }

    /// Writes a record again that is there.
    pub(super) fn rewrite_record(&self, actor: Actor, release: &Release) {
        let Ok(payload) = storage::encode(release) else {
            return;
        };
        let name = storage::key(&release.name, release.revision);
        let id = Id::new("", "secrets", &release.namespace, &name);
        let body = json!({
            "metadata": {"labels": {"status": release.status().as_str()}},
            "data": {"release": STANDARD.encode(payload)},
        });
        self.local.act(actor, "PATCH", &path(&id), body);
    }

    /// Says of a revision that a later one took its place.
    pub(super) fn supersede(&self, actor: Actor, mut release: Release) {
        let description = release.description().to_owned();
        release.set_status(Status::Superseded, description);
        self.rewrite_record(actor, &release);
    }

    pub(super) fn helm_release(
        &self,
        namespace: usize,
        name: u8,
        revision: i64,
        manifest: &Manifest,
    ) -> Release {
        let now = chart::Time::utc((self.clock)());
        let object = manifest.object();
        let manifest = golib::yaml::encode(&object).unwrap_or_default();
        Release {
            name: format!("r{name}"),
            namespace: NAMESPACES[namespace].to_owned(),
            revision,
            info: Some(Info {
                first_deployed: now,
                last_deployed: now,
                status: Status::Deployed,
                description: "Install complete".to_owned(),
                ..Info::default()
            }),
            manifest: format!("---\n# Source: own/templates/x.yaml\n{manifest}"),
            ..Release::default()
        }
    }

    pub(super) fn helm_install(&self, namespace: usize, name: u8, manifest: &Manifest) {
        if manifest.kind.is_hook() {
            return;
        }
        let newest = self.newest(namespace, name);
        if newest
            .as_ref()
            .is_some_and(|(_, one)| one.status().is_pending())
        {
            return; // Another operation is in progress.
        }
        let current = self.deployed(namespace, name);
        let former = current.as_ref().map_or("", |one| one.manifest.as_str());
        let former = self.of_manifest(namespace, former);
        let before = newest.map_or(0, |(revision, _)| revision);
        let release = self.helm_release(namespace, name, before + 1, manifest);
        if self.has_record(&release) || !self.takes_record(&release) {
            return;
        }
        let mut object = manifest.object();
        object["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
        object["metadata"]["annotations"] = json!({
            "meta.helm.sh/release-name": release.name,
            "meta.helm.sh/release-namespace": release.namespace,
        });
        let id = id(namespace, manifest);
        let answer = match self.local.get(&id) {
            // Helm refuses what is not the release's.
            Some(live) => {
                let owner = live.pointer("/metadata/annotations/meta.helm.sh~1release-name");
                match owner.and_then(Value::as_str) == Some(release.name.as_str()) {
                    true => self.local.act(Actor::Helm, "PATCH", &path(&id), object),
                    false => return,
                }
            }
            None => {
                let collection = path(&Id {
                    name: String::new(),
                    ..id.clone()
                });
                self.local.act(Actor::Helm, "POST", &collection, object)
            }
        };
        if !answer.is_ok() {
            return;
        }
        // What the revision has that it upgrades from, and this one has not.
        for dropped in former.into_iter().filter(|dropped| *dropped != id) {
            self.local
                .act(Actor::Helm, "DELETE", &path(&dropped), Value::Null);
        }
        self.write_record(Actor::Helm, &release);
        if let Some(current) = current {
            self.supersede(Actor::Helm, current);
        }
    }

    pub(super) fn helm_rollback(&self, namespace: usize, name: u8) {
        let Some((newest, current)) = self.newest(namespace, name) else {
            return;
        };
        let records = self.listed_records(namespace, name);
        let older = records.iter().filter(|(id, object)| {
            let status = object.pointer("/metadata/labels/status");
            revision_of(&id.name) < newest && status == Some(&Value::from("superseded"))
        });
        let Some((_, object)) = older.max_by_key(|(id, _)| revision_of(&id.name)) else {
            return;
        };
        let Some(target) = decoded(object) else {
            return;
        };
        let mut target = target.as_ref().clone();
        target.revision = newest + 1;
        target.namespace.clone_from(&current.namespace);
        target.set_status(Status::Deployed, "Rollback to an older revision");
        if self.has_record(&target) || !self.takes_record(&target) {
            return;
        }
        // Helm writes its objects as the old manifest has them, without Fleet's labels, and deletes what it has not.
        let mut written = Vec::new();
        for mut wanted in documents(&target.manifest) {
            let Some(found) = self.find(NAMESPACES[namespace], &wanted) else {
                continue;
            };
            wanted["metadata"]["namespace"] = NAMESPACES[namespace].into();
            self.local.act(Actor::Helm, "PATCH", &path(&found), wanted);
            written.push(found);
        }
        for dropped in documents(&current.manifest) {
            let found = self.find(NAMESPACES[namespace], &dropped);
            if let Some(found) = found.filter(|found| !written.contains(found)) {
                self.local
                    .act(Actor::Helm, "DELETE", &path(&found), Value::Null);
            }
        }
        self.write_record(Actor::Helm, &target);
        for (_, record) in records {
            let release = decoded(&record);
            if let Some(one) = release.filter(|one| one.status() == Status::Deployed) {
                self.supersede(Actor::Helm, one.as_ref().clone());
            }
        }
    }

    pub(super) fn find(&self, namespace: &str, wanted: &Value) -> Option<Id> {
        let name = wanted.pointer("/metadata/name")?.as_str()?.to_owned();
        let kind = wanted.get("kind")?.as_str()?.to_owned();
        let all = self
            .local
            .all(|id| id.namespace == namespace && id.name == name);
        let mut found = all
            .into_iter()
            .filter(|(_, object)| object["kind"].as_str() == Some(kind.as_str()));
        found.next().map(|(id, _)| id)
    }

    /// A record that copies everything the agent's own has, but for the manifest.
    pub(super) fn forge(&self, forgery: Forgery, namespace: usize, name: u8, manifest: &Manifest) {
        let Some((newest, mut release)) = self.newest(namespace, name) else {
            return;
        };
        let mut object = manifest.object();
        object["metadata"]["name"] = format!("{FORGED}{}", object_name(manifest)).into();
        release.manifest = format!(
            "---\n# Source: shop/templates/x.yaml\n{}",
            golib::yaml::encode(&object).unwrap_or_default()
        );
        release.revision = match forgery {
            Forgery::Highest => HIGHEST,
            Forgery::Former => self.former(namespace, name),
            _ => newest + 1,
        };
        release.namespace = NAMESPACES[namespace].to_owned();
        match forgery {
            Forgery::Removal => release.set_status(Status::Uninstalled, "Uninstallation complete"),
            Forgery::AtWork => release.set_status(Status::PendingUpgrade, "Preparing upgrade"),
            _ => release.set_status(Status::Deployed, "Upgrade complete"),
        }
        let actor = Actor::Tenant;
        match forgery {
            Forgery::Next | Forgery::Highest => {
                self.write_record(actor, &release);
                let namespace = &release.namespace;
                let id = Id::new(
                    "",
                    "secrets",
                    namespace,
                    &storage::key(&release.name, newest),
                );
                let body = json!({"metadata": {"labels": {"status": "superseded"}}});
                self.local.act(actor, "PATCH", &path(&id), body);
            }
            Forgery::Removal | Forgery::Former => {
                self.write_record(actor, &release);
            }
            Forgery::AtWork | Forgery::Bare => {
                let Some(mut body) = record(&release) else {
                    return;
                };
                let mut path = format!("/api/v1/namespaces/{}/secrets", release.namespace);
                if forgery == Forgery::AtWork {
                    path += "?fieldManager=Helm";
                } else {
                    body["type"] = "Opaque".into();
                    body["metadata"]["labels"] = json!({});
                }
                self.local.act(actor, "POST", &path, body);
            }
        }
    }

    /// A number that a release had: the one below its oldest record, or that of its newest, which is deleted.
    fn former(&self, namespace: usize, name: u8) -> i64 {
        let records = self.records(namespace, name);
        let numbers = records.iter().map(|(id, _)| revision_of(&id.name));
        let oldest = numbers.clone().min().unwrap_or_default();
        if oldest > 1 {
            return oldest - 1;
        }
        let newest = numbers.max().unwrap_or_default();
        for (id, _) in records {
            if revision_of(&id.name) == newest {
                self.local
                    .act(Actor::Tenant, "DELETE", &path(&id), Value::Null);
            }
        }
        newest
    }
}

/// The objects of a manifest.
fn documents(manifest: &str) -> impl Iterator<Item = Value> {
    let documents = manifest.split("---\n");
    documents.filter_map(|document| golib::yaml::decode(document.as_bytes()).ok())
}

/// A release as Helm stores it.
fn record(release: &Release) -> Option<Value> {
    let payload = storage::encode(release).ok()?;
    Some(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
        "metadata": {"name": storage::key(&release.name, release.revision), "labels": {
            "name": release.name, "owner": "helm", "status": release.status().as_str(),
            "version": release.revision.to_string()}},
        "data": {"release": STANDARD.encode(payload)},
    }))
}

pub(super) fn revision_of(name: &str) -> i64 {
    let number = name.rsplit_once(".v").map(|(_, number)| number);
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
