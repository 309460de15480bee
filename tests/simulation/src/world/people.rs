//! What somebody with kubectl does to the local cluster.

use serde_json::{Value, json};

use super::helm::revision_of;
use super::{World, id, path};
use crate::apiserver::{Actor, Id};
use crate::controllers::GUARD;
use crate::desired::{NAMESPACES, ObjectKind, SYSTEM, definition};
use crate::plan::Action;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

impl World {
    pub(super) fn permit(&mut self) {
        let id = Id::new("", "configmaps", SYSTEM, "fleet-agent-ledger");
        if self.local.get(&id).is_none() {
            return;
        }
        let body = json!({"metadata": {"annotations": {
            "fleet.cattle.io/release-held-removals": "true"}}});
        self.local.act(Actor::Person, "PATCH", &path(&id), body);
        let noted = self.noted_with(&["hold"]);
        let (back, missing): (Vec<_>, Vec<_>) =
            noted.into_iter().partition(|bundle| self.present(*bundle));
        let mut checker = self.checker();
        checker.let_through.extend(missing);
        // What is held is what the agent could say of it last: also of what has come back and it was not told of.
        let held: Vec<usize> = checker.lost.union(&self.held).copied().collect();
        checker.allowed.extend(held.into_iter().chain(back));
    }

    /// What people and programs do to the local cluster.
    pub(super) fn kubectl(&mut self, action: &Action) {
        let local = &self.local;
        match action {
            Action::Create(namespace, manifest) => {
                let id = id(*namespace, manifest);
                let mut body = manifest.object();
                body["metadata"]["name"] = id.name.clone().into();
                let collection = path(&Id {
                    name: String::new(),
                    ..id
                });
                local.act(Actor::Person, "POST", &collection, body);
            }
            Action::Edit(namespace, manifest) => {
                let id = id(*namespace, manifest);
                let body = match manifest.kind {
                    ObjectKind::ConfigMap => json!({"data": {"value": "edited"}}),
                    ObjectKind::Secret => json!({"data": {"password": "ZWRpdGVk"}}),
                    ObjectKind::Service => json!({"spec": {"selector": {"app": "edited"}}}),
                    ObjectKind::Deployment => json!({"spec": {"replicas": 2}}),
                    ObjectKind::Widget => json!({"spec": {"value": "edited"}}),
                    _ => json!({"metadata": {"labels": {"edited": "yes"}}}),
                };
                local.act(Actor::Person, "PATCH", &path(&id), body);
            }
            Action::Scale(namespace, name) => {
                let id = Id::new(
                    "apps",
                    "deployments",
                    NAMESPACES[*namespace],
                    &format!("d{name}"),
                );
                let body = json!({"spec": {"replicas": 3}});
                let scale = format!("{}/scale", path(&id));
                local.act(Actor::Person, "PATCH", &scale, body);
            }
            Action::Autoscale(namespace, name) => {
                let name = format!("d{name}");
                let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
                let scaler = Id::new(
                    "autoscaling",
                    "horizontalpodautoscalers",
                    NAMESPACES[*namespace],
                    "",
                );
                let body = json!({
                    "metadata": {"name": name},
                    "spec": {"scaleTargetRef": target, "minReplicas": 4, "maxReplicas": 8},
                });
                local.act(Actor::Person, "POST", &path(&scaler), body);
            }
            Action::Delete(namespace, manifest) => {
                let id = id(*namespace, manifest);
                local.act(Actor::Person, "DELETE", &path(&id), Value::Null);
            }
            Action::StripMarks(namespace, manifest) => {
                let body = json!({"metadata": {"labels": null, "annotations": null}});
                let id = id(*namespace, manifest);
                local.act(Actor::Person, "PATCH", &path(&id), body);
            }
            Action::Define => {
                local.act(Actor::Person, "POST", DEFINITIONS, definition());
            }
            Action::Undefine => {
                let path = format!("{DEFINITIONS}/widgets.example.com");
                local.act(Actor::Person, "DELETE", &path, Value::Null);
            }
            Action::Guard(namespace, manifest) => {
                let body = json!({"metadata": {"finalizers": [GUARD]}});
                let id = id(*namespace, manifest);
                local.act(Actor::Person, "PATCH", &path(&id), body);
            }
            Action::DeleteRecords(namespace, name) => {
                for (id, _) in self.records(*namespace, *name) {
                    local.act(Actor::Person, "DELETE", &path(&id), Value::Null);
                }
            }
            Action::DeleteNamespace(namespace) => {
                let path = format!("/api/v1/namespaces/{}", NAMESPACES[*namespace]);
                local.act(Actor::Person, "DELETE", &path, Value::Null);
            }
            Action::HelmInstall(namespace, name, manifest) => {
                self.helm_install(*namespace, *name, manifest);
            }
            Action::HelmRollback(namespace, name) => self.helm_rollback(*namespace, *name),
            Action::HelmUninstall(namespace, name) => {
                for (id, _) in self.of_release(*namespace, *name) {
                    local.act(Actor::Helm, "DELETE", &path(&id), Value::Null);
                }
                for (id, _) in self.listed_records(*namespace, *name) {
                    local.act(Actor::Helm, "DELETE", &path(&id), Value::Null);
                }
            }
            Action::Forge(forgery, namespace, name, manifest) => {
                self.forge(*forgery, *namespace, *name, manifest);
            }
            Action::Relabel(namespace, name, status) => {
                let records = self.records(*namespace, *name).into_iter();
                if let Some((id, _)) = records.max_by_key(|(id, _)| revision_of(&id.name)) {
                    let body = json!({"metadata": {"labels": {"status": status}}});
                    local.act(Actor::Tenant, "PATCH", &path(&id), body);
                }
            }
            _ => {}
        }
    }
}
