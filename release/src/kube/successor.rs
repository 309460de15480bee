//! Whether an object that is to be deleted and made anew would be created: asked by a dry run while it is still there.
//!
//! The API server authorizes, mutates, validates and admits an object before it sees that its name is taken (`Store.create` of k8s.io/apiserver,
//! 1.36), so "exists already" says that nothing else is in the way. What the object that is there holds itself is left out of the question, and a
//! refusal that only means that object proves nothing.

use objects::{Object, Resource};
use serde_json::{Value, json};

use super::client::Cluster;
use super::error::ApiError;

/// The `clusterIP` of a Service that has no address.
const HEADLESS: &str = "None";

/// What a dry run says of the object that would be created.
#[derive(Debug)]
enum Verdict {
    /// Nothing is known to be in its way but the object that is there.
    Accepted,
    /// The account may create nothing of the kind, unless under this name alone.
    Unauthorized,
    /// It would not be created.
    Refused,
}

/// Asks whether `object` would be created in the place of `live`.
///
/// # Errors
/// It would be refused, or nobody answered.
///
/// # Cancellation
/// Safe: nothing is written.
pub(super) async fn check_successor(
    cluster: &Cluster,
    object: &Object,
    live: &Value,
) -> Result<(), ApiError> {
    let body = without_holdings(object, live);
    let Err(refusal) = cluster.try_create(object, &body).await else {
        return Ok(());
    };
    match judge(object, &refusal) {
        Verdict::Accepted => Ok(()),
        // An apply names what it creates, which a right to `create` by `resourceNames` allows; a POST never does.
        Verdict::Unauthorized if may_create_named(cluster, object).await => Ok(()),
        Verdict::Unauthorized | Verdict::Refused => Err(refusal),
    }
}

fn judge(object: &Object, refusal: &ApiError) -> Verdict {
    if refusal.is_dry_run_unsupported() {
        return Verdict::Accepted;
    }
    if refusal.is_webhooks() {
        return Verdict::Refused; // It says what it likes.
    }
    if refusal.is_already_exists() || refusal.is_quota_exceeded() {
        return Verdict::Accepted;
    }
    // Whoever admits an object names it; who authorizes a POST has no name.
    let is_nameless = match refusal {
        ApiError::Refused(status) => status.details.as_ref().is_some_and(|details| {
            details.name.is_empty() && details.kind == object.resource.plural
        }),
        _ => false,
    };
    match refusal.is_forbidden() && is_nameless {
        true => Verdict::Unauthorized,
        false => Verdict::Refused,
    }
}

/// Whether the account may create an object of this name; an API server that does not say so has refused.
async fn may_create_named(cluster: &Cluster, object: &Object) -> bool {
    let Resource {
        group,
        version,
        plural,
        ..
    } = &*object.resource;
    let attributes = json!({
        "verb": "create", "group": group, "version": version, "resource": plural,
        "namespace": object.namespace, "name": object.name,
    });
    let answer = cluster.review_access(&attributes).await;
    answer.is_ok_and(|answer| answer.pointer("/status/allowed") == Some(&Value::Bool(true)))
}

/// The object without what the one in its place has and only one can have: addresses and ports, and being the default.
fn without_holdings(object: &Object, live: &Value) -> Value {
    let mut body = object.body.clone();
    let resource = &object.resource;
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Service") => leave_out_held(&mut body, live),
        // Admission lets none become the default while there is one.
        ("scheduling.k8s.io", "PriorityClass") if live["globalDefault"] == true => {
            remove(&mut body, "globalDefault");
        }
        _ => {}
    }
    body
}

/// Leaves out of a Service what the allocators of the API server, which come before validation, would say is allocated to `live`.
fn leave_out_held(service: &mut Value, live: &Value) {
    let held = addresses(&live["spec"]);
    let ports = ports(&live["spec"]);
    let Some(spec) = service.get_mut("spec") else {
        return;
    };
    if addresses(spec).iter().any(|address| held.contains(address)) {
        // The first of several has to be `clusterIP`.
        remove(spec, "clusterIP");
        remove(spec, "clusterIPs");
    }
    let is_held = |port: Option<&Value>| port.is_some_and(|port| ports.contains(port));
    if is_held(spec.get("healthCheckNodePort")) {
        remove(spec, "healthCheckNodePort");
    }
    let wanted = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in wanted.into_iter().flatten() {
        if is_held(port.get("nodePort")) {
            remove(port, "nodePort");
        }
    }
}

/// The addresses of a Service that no other one may have.
fn addresses(spec: &Value) -> Vec<Value> {
    let several = spec["clusterIPs"].as_array().into_iter().flatten();
    let all = several.chain(spec.get("clusterIP"));
    all.filter(|address| {
        address
            .as_str()
            .is_some_and(|it| !it.is_empty() && it != HEADLESS)
    })
    .cloned()
    .collect()
}

/// The ports of all nodes that a Service has.
fn ports(spec: &Value) -> Vec<Value> {
    let ports = spec["ports"].as_array().into_iter().flatten();
    let ports = ports.filter_map(|port| port.get("nodePort"));
    ports
        .chain(spec.get("healthCheckNodePort"))
        .cloned()
        .collect()
}

fn remove(table: &mut Value, field: &str) {
    if let Some(table) = table.as_object_mut() {
        table.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::object;
    use super::*;

    /// The address of a Service, its ports and the default among classes are left out of the question only where the object that is there has them.
    #[test]
    fn what_the_object_that_is_there_holds_is_left_out_of_the_question() {
        let live = json!({"spec": {
            "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5", "fd00::5"], "healthCheckNodePort": 30002,
            "ports": [{"port": 80, "nodePort": 30001}, {"port": 81}],
        }});
        for (situation, wanted, asked) in [
            (
                "the same",
                json!({"clusterIP": "10.0.0.5", "healthCheckNodePort": 30002, "ports": [{"port": 80, "nodePort": 30001}]}),
                json!({"ports": [{"port": 80}]}),
            ),
            (
                "the second of several",
                json!({"clusterIPs": ["10.0.0.6", "fd00::5"], "clusterIP": "10.0.0.6"}),
                json!({}),
            ),
            (
                "others",
                json!({"clusterIP": "10.0.0.6", "ports": [{"port": 80, "nodePort": 30003}, {"nodePort": 30002}]}),
                json!({"clusterIP": "10.0.0.6", "ports": [{"port": 80, "nodePort": 30003}, {}]}),
            ),
            (
                "none",
                json!({"clusterIP": "None"}),
                json!({"clusterIP": "None"}),
            ),
        ] {
            let service = object("", "Service", json!({"spec": wanted}));
            assert_eq!(
                without_holdings(&service, &live)["spec"],
                asked,
                "{situation}"
            );
        }
        let headless = json!({"spec": {"clusterIP": "None", "clusterIPs": ["None"]}});
        let service = object("", "Service", headless.clone());
        assert_eq!(without_holdings(&service, &headless), headless);
        // Another kind of that name is another matter.
        let service = object("example.com", "Service", live.clone());
        assert_eq!(without_holdings(&service, &live), live);

        let class = object(
            "scheduling.k8s.io",
            "PriorityClass",
            json!({"globalDefault": true}),
        );
        for (is_default, asked) in [(true, json!({})), (false, json!({"globalDefault": true}))] {
            let live = json!({"globalDefault": is_default});
            assert_eq!(without_holdings(&class, &live), asked);
        }
    }
}
