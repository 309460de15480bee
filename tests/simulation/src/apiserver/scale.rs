//! The replicas of a workload, read and set by themselves, as autoscalers do it.
//!
//! Mirrors `ScaleREST` of `registry/apps/deployment/storage` and the managed fields of `fieldmanager/scalehandler.go`: who sets them owns them
//! in the workload, as a manager of this subresource, and nobody else does any more.

use std::sync::Arc;

use serde_json::{Value, json};

use super::object::Stored;
use super::request::{Answer, Request};
use super::route::Route;
use super::{Handled, State, apply, patch};

impl State {
    pub(super) fn scale(&mut self, request: &Request, route: &Route) -> Handled {
        let Some(stored) = self.objects.get(&route.id).cloned() else {
            return Err(Self::missing(route));
        };
        let told = scale_of(&stored);
        let wanted = match (request.method.as_str(), request.content_type.as_str()) {
            ("GET", _) => return Ok(Answer::json(&told)),
            ("PUT", _) => request.body.clone(),
            ("PATCH", "application/merge-patch+json") => {
                let mut wanted = told.clone();
                patch::merge(&mut wanted, &request.body);
                wanted
            }
            (method, form) => {
                let what = format!("{method} of a scale as {form}");
                return Err(Answer::not_modelled(&what));
            }
        };
        let version = |scale: &Value| {
            let version = scale.pointer("/metadata/resourceVersion");
            version.and_then(Value::as_str).map(str::to_owned)
        };
        if version(&wanted).is_some_and(|version| version != stored.version.to_string()) {
            return Err(Self::refused(route, 409, "Conflict", super::write::STALE));
        }
        let mut after = stored.value.as_ref().clone();
        after["spec"]["replicas"] = wanted["spec"]["replicas"].clone();
        let mut managed = stored.managed.clone();
        let writer = self.writer(request, route, "Update");
        apply::updated(&mut managed, &stored.value, &after, &writer);
        let answer = self.store(request, "update", route, after, managed)?;
        let stored = self.objects.get(&route.id);
        Ok(stored.map_or(answer, |stored| Answer::json(&scale_of(stored))))
    }
}

/// What is told of a workload's replicas.
fn scale_of(stored: &Arc<Stored>) -> Value {
    let metadata = &stored.value["metadata"];
    let status = &stored.value["status"];
    let replicas = |from: &Value, missing: i64| from["replicas"].as_i64().unwrap_or(missing);
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": replicas(&stored.value["spec"], 1)},
        "status": {"replicas": replicas(status, 0)},
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::{Actor, Id, Server, Who};
    use super::*;

    /// As `kubectl get --show-managed-fields` shows it after `kubectl scale`.
    #[test]
    fn the_manager_that_scales_a_workload_alone_owns_its_replicas() {
        let server = Server::new("local", false, Arc::new(|| Timestamp::UNIX_EPOCH));
        let namespace = json!({"metadata": {"name": "apps"}});
        server.act(Actor::System, "POST", "/api/v1/namespaces", namespace);
        let path = "/apis/apps/v1/namespaces/apps/deployments";
        let body = json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "paused": true}});
        server.act(Actor::Person, "POST", path, body);
        let scale = format!("{path}/d/scale");
        let told = server.act(Actor::System, "GET", &scale, Value::Null);
        let mut told = told.value();
        assert_eq!(told["spec"]["replicas"], 1);
        told["spec"]["replicas"] = 4.into();
        let answer = server.act(Actor::System, "PUT", &scale, told.clone());
        assert_eq!(answer.value()["spec"]["replicas"], 4);
        let again = server.act(Actor::System, "PUT", &scale, told);
        assert_eq!(again.code, 409, "it has another version by now");
        let id = Id::new("apps", "deployments", "apps", "d");
        let live = server.get(&id).unwrap_or_default();
        assert_eq!(live["spec"], json!({"replicas": 4, "paused": true}));
        assert_eq!(live["metadata"]["generation"], 2);
        let uri = format!("{path}/d");
        let request = Request::new(Who::is(Actor::Person), "GET", &uri, Value::Null);
        let managed = server.ask(&request).value()["metadata"]["managedFields"].clone();
        let of = |name: &str| {
            let mut entries = managed.as_array().into_iter().flatten();
            entries.find(|entry| entry["manager"] == name).cloned()
        };
        let person = of("kubectl").unwrap_or_default();
        assert_eq!(person["fieldsV1"], json!({"f:spec": {"f:paused": {}}}));
        let scaler = of("kube-controller-manager").unwrap_or_default();
        assert_eq!(scaler["subresource"], "scale");
        assert_eq!(scaler["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    }
}
