//! Whether an object that is to be deleted and made anew would be created: asked by a dry run while it is still there.
//!
//! The API server authorizes, mutates, validates and admits an object before it sees that its name is taken (`Store.create` of k8s.io/apiserver,
//! 1.36), so "exists already" says that nothing else is in the way. What the object that is there holds itself is left out of the question where the
//! new one may have it, and a refusal that only means that object proves nothing: a quota, which is asked last of all, that counts objects and is
//! full with it.

use objects::{Object, Resource};
use serde_json::{Value, json};

use super::client::Cluster;
use super::error::{ApiError, QuotaExcess};

/// The `clusterIP` of a Service that has no address.
const HEADLESS: &str = "None";
/// The protocol of a port that names none.
const TCP: &str = "TCP";
/// Kinds of the core group that a quota also counts by their plural: `pkg/quota/v1/evaluator/core` of Kubernetes, without what it measures
/// ([`may_exceed_others`]).
const COUNTED_BY_PLURAL: [&str; 5] = [
    "configmaps",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];

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
    match judge(object, live, &refusal) {
        Verdict::Accepted => Ok(()),
        // An apply names what it creates, which a right to `create` by `resourceNames` allows; a POST never does.
        Verdict::Unauthorized if may_create_named(cluster, object).await => Ok(()),
        Verdict::Unauthorized | Verdict::Refused => Err(refusal),
    }
}

fn judge(object: &Object, live: &Value, refusal: &ApiError) -> Verdict {
    if refusal.is_dry_run_unsupported() {
        return Verdict::Accepted;
    }
    if refusal.is_webhooks() {
        return Verdict::Refused; // It says what it likes.
    }
    if refusal.is_already_exists() || is_room_made(object, live, refusal) {
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

/// Whether `refusal` is a quota's that the deletion of `live` makes room in for the object.
fn is_room_made(object: &Object, live: &Value, refusal: &ApiError) -> bool {
    let Resource { group, plural, .. } = &*object.resource;
    let resource = match group.as_str() {
        "" => plural.clone(),
        group => format!("{plural}.{group}"),
    };
    let Some(excesses) = refusal.quota_excesses(&resource, &object.name) else {
        return false;
    };
    let is_own = |counted: &str| match counted.strip_prefix("count/") {
        Some(counted) => counted == resource,
        None => counted == resource && COUNTED_BY_PLURAL.contains(&counted),
    };
    let is_full = |it: &QuotaExcess<'_>| it.requested == 1 && (1..=it.limited).contains(&it.used);
    excesses.iter().all(|it| is_own(it.counted) && is_full(it)) && !may_exceed_others(object, live)
}

/// Whether another quota may refuse the object for what is no count of objects: the API server tells of the first one that is exceeded.
fn may_exceed_others(object: &Object, live: &Value) -> bool {
    let Resource { group, plural, .. } = &*object.resource;
    match (group.as_str(), plural.as_str()) {
        ("", "services") => {
            let (balancers, ports) = service_usage(&object.body["spec"]);
            let (live_balancers, live_ports) = service_usage(&live["spec"]);
            balancers > live_balancers || ports > live_ports
        }
        ("", "pods" | "persistentvolumeclaims") | ("resource.k8s.io", "resourceclaims") => true,
        _ => false,
    }
}

/// How many load balancers and node ports a quota counts of a Service.
fn service_usage(spec: &Value) -> (usize, usize) {
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    match spec["type"].as_str() {
        Some("NodePort") => (0, ports.len()),
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => {
            let named = ports.iter().filter_map(|port| port["nodePort"].as_u64());
            (1, named.filter(|port| *port != 0).count())
        }
        Some("LoadBalancer") => (1, ports.len()),
        _ => (0, 0),
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
        ("scheduling.k8s.io", "PriorityClass")
            if live["globalDefault"] == true && body["globalDefault"] == true =>
        {
            remove(&mut body, "globalDefault");
        }
        _ => {}
    }
    body
}

/// Leaves out of a Service what the allocators of the API server, which come before validation, would say is allocated to `live`. What validation
/// would refuse stays in.
fn leave_out_held(service: &mut Value, live: &Value) {
    let live = &live["spec"];
    let Some(spec) = service.get_mut("spec") else {
        return;
    };
    let (has_address, has_node_ports, may_be_checked) = match spec.get("type") {
        None | Some(Value::Null) => (true, false, false),
        Some(kind) => match kind.as_str() {
            Some("ClusterIP") => (true, false, false),
            Some("NodePort") => (true, true, false),
            Some("LoadBalancer") => (true, true, true),
            _ => (false, false, false),
        },
    };
    if has_address && are_addresses_held(spec, live) {
        // The first of several has to be `clusterIP`.
        remove(spec, "clusterIP");
        remove(spec, "clusterIPs");
    }
    let held = node_ports(live);
    let desired = node_ports(spec);
    let is_held = |port: Option<NodePort>| {
        port.is_some_and(|port| {
            let mut others = desired.iter().filter(|other| other.number == port.number);
            // One number serves both protocols of one port, and nothing else.
            others.all(|other| other.behind == port.behind)
                && held
                    .iter()
                    .any(|held| (&held.protocol, held.number) == (&port.protocol, port.number))
        })
    };
    let is_checked = may_be_checked && spec["externalTrafficPolicy"] == "Local";
    if is_checked && is_held(check_port(spec)) {
        remove(spec, "healthCheckNodePort");
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter(|_| has_node_ports) {
        if is_held(node_port(port)) {
            remove(port, "nodePort");
        }
    }
}

/// Whether `live` has all addresses that are wanted, and they are wanted as one Service may have them: the rules of
/// `ValidateServiceClusterIPsRelatedFields` of Kubernetes, and of its allocators.
fn are_addresses_held(desired: &Value, live: &Value) -> bool {
    let first = &desired["clusterIP"];
    if first == HEADLESS {
        return false;
    }
    let desired_addresses = match &desired["clusterIPs"] {
        Value::Array(several) if !several.is_empty() => several.as_slice(),
        Value::Array(_) | Value::Null => std::slice::from_ref(first),
        _ => return false,
    };
    let is_valid = match desired_addresses {
        [one] => one == first,
        [one, other] => {
            let policy = desired["ipFamilyPolicy"].as_str();
            let is_dual = matches!(policy, Some("PreferDualStack" | "RequireDualStack"));
            one == first && one != other && is_dual
        }
        _ => false,
    };
    let held = live["clusterIPs"].as_array().map_or(&[][..], Vec::as_slice);
    let is_held = |(index, address): (usize, &Value)| {
        let Some(position) = held.iter().position(|held| held == address) else {
            return false;
        };
        let family = &desired["ipFamilies"][index];
        family.is_null() || *family == live["ipFamilies"][position]
    };
    is_valid && desired_addresses.iter().enumerate().all(is_held)
}

/// A port of all nodes that a Service has or wants.
struct NodePort {
    protocol: String,
    number: u64,
    /// The port of the Service behind it; none is behind that of the health check.
    behind: Option<Value>,
}

fn node_ports(spec: &Value) -> Vec<NodePort> {
    let ports = spec["ports"].as_array().into_iter().flatten();
    ports
        .filter_map(node_port)
        .chain(check_port(spec))
        .collect()
}

fn node_port(port: &Value) -> Option<NodePort> {
    Some(NodePort {
        protocol: port["protocol"].as_str().unwrap_or(TCP).to_owned(),
        number: port["nodePort"].as_u64()?,
        behind: port.get("port").cloned(),
    })
}

fn check_port(spec: &Value) -> Option<NodePort> {
    Some(NodePort {
        protocol: TCP.to_owned(),
        number: spec["healthCheckNodePort"].as_u64()?,
        behind: None,
    })
}

fn remove(table: &mut Value, field: &str) {
    if let Some(table) = table.as_object_mut() {
        table.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{self, object};
    use super::*;

    /// The address of a Service, its ports and the default among classes are left out of the question only where the object that is there has them.
    #[test]
    fn what_the_object_that_is_there_holds_is_left_out_of_the_question() {
        let live = json!({"spec": {
            "type": "LoadBalancer", "externalTrafficPolicy": "Local",
            "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5", "fd00::5"], "ipFamilies": ["IPv4", "IPv6"],
            "healthCheckNodePort": 30002,
            "ports": [
                {"port": 80, "nodePort": 30001}, {"port": 81}, {"port": 53, "protocol": "UDP", "nodePort": 30053},
                {"port": 53, "protocol": "TCP", "nodePort": 30053},
            ],
        }});
        for (situation, desired, asked) in [
            (
                "the same",
                json!({
                    "type": "LoadBalancer", "externalTrafficPolicy": "Local", "clusterIP": "10.0.0.5",
                    "healthCheckNodePort": 30002, "ports": [{"port": 80, "nodePort": 30001}],
                }),
                json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]}),
            ),
            (
                "other addresses and ports",
                json!({"type": "NodePort", "clusterIP": "10.0.0.6", "ports": [{"port": 80, "nodePort": 30003}]}),
                json!({"type": "NodePort", "clusterIP": "10.0.0.6", "ports": [{"port": 80, "nodePort": 30003}]}),
            ),
            (
                "the port of the health check",
                json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30002}]}),
                json!({"type": "NodePort", "ports": [{"port": 80}]}),
            ),
            (
                "a port of both protocols",
                json!({"type": "NodePort", "ports": [
                    {"port": 53, "nodePort": 30053}, {"port": 53, "protocol": "UDP", "nodePort": 30053},
                ]}),
                json!({"type": "NodePort", "ports": [{"port": 53}, {"port": 53, "protocol": "UDP"}]}),
            ),
            (
                "both addresses",
                json!({"clusterIP": "fd00::5", "clusterIPs": ["fd00::5", "10.0.0.5"], "ipFamilyPolicy": "PreferDualStack"}),
                json!({"ipFamilyPolicy": "PreferDualStack"}),
            ),
            (
                "an address with its family",
                json!({"clusterIP": "fd00::5", "clusterIPs": ["fd00::5"], "ipFamilies": ["IPv6"]}),
                json!({"ipFamilies": ["IPv6"]}),
            ),
            (
                "no address",
                json!({"clusterIP": "None"}),
                json!({"clusterIP": "None"}),
            ),
        ] {
            let service = object("", "Service", json!({"spec": desired}));
            let question = without_holdings(&service, &live);
            assert_eq!(question["spec"], asked, "{situation}");
        }
        let headless = json!({"spec": {"clusterIP": "None", "clusterIPs": ["None"]}});
        let service = object("", "Service", headless.clone());
        assert_eq!(without_holdings(&service, &headless), headless);
        // Another kind of that name is another matter.
        let service = object("example.com", "Service", live.clone());
        assert_eq!(without_holdings(&service, &live), live);

        let class = |is_default: Value| {
            let body = json!({"globalDefault": is_default});
            object("scheduling.k8s.io", "PriorityClass", body)
        };
        for (is_default, desired, asked) in [
            (true, json!(true), json!({})),
            (false, json!(true), json!({"globalDefault": true})),
            (true, json!("yes"), json!({"globalDefault": "yes"})),
        ] {
            let live = json!({"globalDefault": is_default});
            assert_eq!(without_holdings(&class(desired), &live), asked);
        }
    }

    /// What would be refused in earnest is asked for as it is wanted, whatever the object that is there holds of it.
    #[test]
    fn what_is_wrong_with_an_address_or_port_is_part_of_the_question() {
        let live = json!({"spec": {
            "type": "LoadBalancer", "externalTrafficPolicy": "Local",
            "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5", "fd00::5"], "ipFamilies": ["IPv4", "IPv6"],
            "healthCheckNodePort": 30002,
            "ports": [{"port": 80, "nodePort": 30001}, {"port": 53, "protocol": "UDP", "nodePort": 30053}],
        }});
        let ports = json!([{"port": 80, "nodePort": 30001}]);
        let both = json!(["10.0.0.5", "fd00::5"]);
        for (situation, desired) in [
            (
                "a node port of a type without",
                json!({"type": "ClusterIP", "ports": ports}),
            ),
            (
                "a node port of the type by default",
                json!({"ports": ports}),
            ),
            (
                "no such type",
                json!({"type": "Gateway", "clusterIP": "10.0.0.5", "ports": ports}),
            ),
            (
                "a health check of another type",
                json!({"type": "NodePort", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30002}),
            ),
            (
                "a health check of all traffic",
                json!({"type": "LoadBalancer", "healthCheckNodePort": 30002}),
            ),
            (
                "an address of a name",
                json!({"type": "ExternalName", "clusterIP": "10.0.0.5"}),
            ),
            (
                "a port of another protocol",
                json!({"type": "NodePort", "ports": [{"port": 53, "nodePort": 30053}]}),
            ),
            (
                "a port twice",
                json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}, {"port": 81, "nodePort": 30001}]}),
            ),
            (
                "a port and the health check",
                json!({
                    "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001, "ports": ports,
                }),
            ),
            (
                "a text for a port",
                json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": "30001"}]}),
            ),
            (
                "the second of several",
                json!({"clusterIP": "10.0.0.6", "clusterIPs": ["10.0.0.6", "fd00::5"], "ipFamilyPolicy": "RequireDualStack"}),
            ),
            (
                "the first of several",
                json!({"clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5", "fd00::6"], "ipFamilyPolicy": "RequireDualStack"}),
            ),
            (
                "several for one family",
                json!({"clusterIP": "10.0.0.5", "clusterIPs": both}),
            ),
            (
                "several without the first",
                json!({"clusterIPs": both, "ipFamilyPolicy": "RequireDualStack"}),
            ),
            (
                "another first one",
                json!({"clusterIP": "fd00::5", "clusterIPs": both, "ipFamilyPolicy": "RequireDualStack"}),
            ),
            (
                "one twice",
                json!({"clusterIP": "fd00::5", "clusterIPs": ["fd00::5", "fd00::5"], "ipFamilyPolicy": "RequireDualStack"}),
            ),
            (
                "another family",
                json!({"clusterIP": "10.0.0.5", "ipFamilies": ["IPv6"]}),
            ),
        ] {
            let service = object("", "Service", json!({"spec": desired}));
            let question = without_holdings(&service, &live);
            assert_eq!(question["spec"], desired, "{situation}");
        }
    }

    /// Whether an object would take the place of `live`, for all that an API server says that answers the dry run with this.
    async fn is_accepted(
        object: &Object,
        live: &Value,
        (code, reason): (u16, &str),
        message: &str,
    ) -> bool {
        let details = json!({"kind": object.resource.plural, "name": object.name});
        let status = json!({
            "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, "details": details,
        });
        let cluster = fixture::server(move |_, _, _| Some((code, status.clone())));
        check_successor(&cluster, object, live).await.is_ok()
    }

    const FORBIDDEN: (u16, &str) = (403, "Forbidden");

    /// A quota that is exceeded is no matter only where it counts objects of the kind, and is full with the one that is there.
    #[tokio::test]
    async fn a_quota_lets_an_object_pass_only_where_the_deletion_makes_room() {
        let full = |of: &str, resource: &str| {
            format!(
                "{of} is forbidden: exceeded quota: few, requested: {resource}=1, used: {resource}=2, limited: {resource}=2"
            )
        };
        let of_secret =
            |what: &str| format!("secrets \"a\" is forbidden: exceeded quota: few, {what}");
        for (expected, message) in [
            (true, full("secrets \"a\"", "secrets")),
            (true, full("secrets \"a\"", "count/secrets")),
            (
                true,
                of_secret(
                    "requested: count/secrets=1,secrets=1, used: count/secrets=3,secrets=1, limited: count/secrets=3,secrets=1",
                ),
            ),
            (
                false,
                of_secret(
                    "requested: count/secrets=1,secrets=1, used: count/secrets=3,secrets=2, limited: count/secrets=3,secrets=1",
                ),
            ),
            (
                false,
                of_secret("requested: secrets=2, used: secrets=2, limited: secrets=2"),
            ),
            (
                false,
                of_secret("requested: secrets=1, used: secrets=3, limited: secrets=2"),
            ),
            (
                false,
                of_secret("requested: secrets=1, used: secrets=0, limited: secrets=0"),
            ),
            (
                false,
                of_secret("requested: secrets=1, used: secrets=1k, limited: secrets=1k"),
            ),
            (
                false,
                of_secret("requested: secrets=1, used: secrets=+2, limited: secrets=2"),
            ),
            (false, of_secret("requested: secrets=1, used: secrets=2")),
            (
                false,
                of_secret("requested: secrets=1, used: count/secrets=2, limited: secrets=2"),
            ),
            (false, of_secret("requested: , used: , limited: ")),
            (
                false,
                of_secret("requested: secrets=1, used: secrets=2, limited: secrets=2, and more"),
            ),
            (false, full("secrets \"a\"", "configmaps")),
            (false, full("secrets \"a\"", "count/secrets.example.com")),
            (false, full("secrets \"b\"", "secrets")),
            (false, full("configmaps \"a\"", "secrets")),
            // Whoever writes a policy chooses what it says.
            (
                false,
                format!(
                    "secrets \"a\" is forbidden: policy 'p' denied request: {}",
                    full("secrets \"a\"", "secrets")
                ),
            ),
        ] {
            let secret = object("", "Secret", json!({}));
            let accepted = is_accepted(&secret, &json!({}), FORBIDDEN, &message).await;
            assert_eq!(accepted, expected, "{message}");
        }
        let job = object("batch", "Job", json!({}));
        for (resource, expected) in [
            ("count/jobs.batch", true),
            ("count/jobs", false),
            ("jobs.batch", false),
            ("jobs", false),
        ] {
            let message = full("jobs.batch \"a\"", resource);
            let accepted = is_accepted(&job, &json!({}), FORBIDDEN, &message).await;
            assert_eq!(accepted, expected, "{message}");
        }
        // One that has ended counts no more, and its requests are measured.
        for resource in ["pods", "count/pods"] {
            let pod = object("", "Pod", json!({}));
            let message = full("pods \"a\"", resource);
            assert!(
                !is_accepted(&pod, &json!({}), FORBIDDEN, &message).await,
                "{message}"
            );
        }
    }

    /// The API server tells of one quota, and there may be others: what wants more of what they count than it has proves nothing.
    #[tokio::test]
    async fn a_full_quota_says_nothing_of_a_service_that_wants_more_of_others() {
        let service = |spec: Value| object("", "Service", json!({"spec": spec}));
        let ports = json!([{"port": 80}, {"port": 81}]);
        let inside = json!({"ports": ports});
        let on_nodes = json!({"type": "NodePort", "ports": ports});
        let on_one_node_port = json!({"type": "NodePort", "ports": [{"port": 80}]});
        let balanced = json!({"type": "LoadBalancer", "ports": ports});
        let without_node_ports = json!({
            "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{"port": 80}, {"port": 81, "nodePort": 30001}],
        });
        let full = "services \"a\" is forbidden: exceeded quota: few, requested: services=1, used: services=1, limited: services=1";
        for (live, desired, expected) in [
            (&inside, &inside, true),
            (&balanced, &inside, true),
            (&balanced, &on_nodes, true),
            (&balanced, &without_node_ports, true),
            (&on_nodes, &on_one_node_port, true),
            (&inside, &balanced, false),
            (&inside, &on_nodes, false),
            (&on_nodes, &balanced, false),
            (&on_one_node_port, &on_nodes, false),
            (&without_node_ports, &balanced, false),
        ] {
            let live = json!({"spec": live});
            let accepted = is_accepted(&service(desired.clone()), &live, FORBIDDEN, full).await;
            assert_eq!(accepted, expected, "{live} {desired}");
        }
        let none = "services \"a\" is forbidden: exceeded quota: few, requested: services.loadbalancers=1, used: services.loadbalancers=0, \
             limited: services.loadbalancers=0";
        let live = json!({"spec": inside});
        assert!(!is_accepted(&service(balanced), &live, FORBIDDEN, none).await);
    }

    /// Only the API server says that a webhook takes no dry runs.
    #[tokio::test]
    async fn a_webhook_does_not_say_itself_that_it_takes_no_dry_runs() {
        let bad = (400, "BadRequest");
        let does_not = "does not support dry run";
        for (expected, status, message) in [
            (
                true,
                bad,
                format!("admission webhook \"no.example.com\" {does_not}"),
            ),
            (
                false,
                FORBIDDEN,
                format!("admission webhook \"no.example.com\" {does_not}"),
            ),
            (
                false,
                (422, "BadRequest"),
                format!("admission webhook \"no.example.com\" {does_not}"),
            ),
            (
                false,
                bad,
                format!(
                    "admission webhook \"no.example.com\" denied the request: admission webhook \"other\" {does_not}"
                ),
            ),
            (
                false,
                bad,
                format!("admission webhook \"no.example.com\" denied the request: \" {does_not}"),
            ),
            (
                false,
                bad,
                format!("admission webhook \"no.example.com\" {does_not}, as it says"),
            ),
            (false, bad, format!("admission webhook \"\" {does_not}")),
            (
                false,
                bad,
                format!("so it goes: admission webhook \"no.example.com\" {does_not}"),
            ),
        ] {
            let secret = object("", "Secret", json!({}));
            let accepted = is_accepted(&secret, &json!({}), status, &message).await;
            assert_eq!(accepted, expected, "{status:?} {message}");
        }
    }
}
