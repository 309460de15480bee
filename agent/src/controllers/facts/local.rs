//! Reading facts on this cluster: the API server's version, nodes, networks, the Cluster API Cluster.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::{ApiResource, DynamicObject, ListParams, ObjectMeta};
use kube::core::{GroupVersionKind, ObjectList};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::Value;

use super::read::ReadError;
use crate::client::listed::{self, Metadata, RawObject};
use crate::error;
use crate::values::{ClusterRef, LocalFact, LocalRequest, LocalState, NodeState};

/// Cluster API's versions, the newest first.
const CLUSTER_API_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// Reads what is asked for; what is not there or not allowed stays empty.
///
/// # Errors
/// The API server does not answer, or nobody says which Cluster of Cluster API is meant.
pub(super) async fn read(
    client: &Client,
    requested: &LocalRequest,
) -> Result<LocalState, ReadError> {
    let mut state = objects(client, &requested.facts)
        .await
        .map_err(unreadable)?;
    if requested.facts.contains(&LocalFact::ClusterApi) {
        state.cluster = cluster(client, requested.cluster.as_ref()).await?;
    }
    Ok(state)
}

fn unreadable(source: kube::Error) -> ReadError {
    ReadError::Read {
        what: "this cluster".to_owned(),
        source,
    }
}

/// What Kubernetes itself says.
async fn objects(client: &Client, requested: &BTreeSet<LocalFact>) -> kube::Result<LocalState> {
    let mut state = LocalState {
        networks: requested.contains(&LocalFact::Networks),
        ..LocalState::default()
    };
    if requested.contains(&LocalFact::Version) {
        state.version = client.apiserver_version().await?.git_version;
    }
    if state.networks {
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
        let kubeadm = tolerant(maps.get_opt("kubeadm-config").await)?.flatten();
        let data = kubeadm.and_then(|map| map.data);
        state.kubeadm = data.and_then(|mut data| data.remove("ClusterConfiguration"));
        let cidrs = Api::<ServiceCIDR>::all(client.clone());
        let found = tolerant(cidrs.list(&ListParams::default()).await)?;
        let specs = found.into_iter().flatten().filter_map(|cidr| cidr.spec);
        state.service_cidrs = specs
            .flat_map(|spec| spec.cidrs.unwrap_or_default())
            .collect();
    }
    let needs_ranges = state.networks && state.kubeadm.is_none();
    if requested.contains(&LocalFact::Nodes) || needs_ranges {
        let nodes = nodes(client, needs_ranges).await?;
        // Asked for or not: pod networks come from here as well.
        state.nodes = Some(nodes);
    }
    state.shows_nodes = requested.contains(&LocalFact::Nodes);
    Ok(state)
}

/// The nodes, page by page. Their labels suffice unless their ranges are wanted.
async fn nodes(client: &Client, with_ranges: bool) -> kube::Result<Vec<NodeState>> {
    let mut nodes = Vec::new();
    let listed = if with_ranges {
        let api = Api::<RawObject<Node>>::all(client.clone());
        let state = |node: RawObject<Node>| state_of(pod_ranges(&node), node.metadata);
        listed::list(&api, |page| nodes.extend(page.into_iter().map(state))).await
    } else {
        let api = Api::<Metadata<Node>>::all(client.clone());
        let state = |node: Metadata<Node>| state_of(Vec::new(), node.metadata);
        listed::list(&api, |page| nodes.extend(page.into_iter().map(state))).await
    };
    tolerant(listed)?;
    Ok(nodes)
}

/// The networks of a node's pods.
fn pod_ranges(node: &RawObject<Node>) -> Vec<String> {
    #[derive(Deserialize)]
    struct Outline {
        spec: Option<Spec>,
    }
    #[derive(Deserialize)]
    struct Spec {
        #[serde(rename = "podCIDRs")]
        pod_cidrs: Option<Vec<String>>,
    }
    let outline = serde_json::from_str::<Outline>(node.text()).ok();
    let ranges = outline.and_then(|node| node.spec?.pod_cidrs);
    ranges.unwrap_or_default()
}

fn state_of(pod_cidrs: Vec<String>, metadata: ObjectMeta) -> NodeState {
    let mut labels = metadata.labels.unwrap_or_default();
    let mut label = |name: &str| labels.remove(name).unwrap_or_default();
    NodeState {
        architecture: label("kubernetes.io/arch"),
        operating_system: label("kubernetes.io/os"),
        pod_cidrs,
    }
}

/// An object without who wrote which field.
fn whole(object: &RawObject<DynamicObject>) -> kube::Result<Value> {
    let mut value = golib::json::decode(object.text().as_bytes())
        .map_err(|failed| kube::Error::SerdeError(serde::de::Error::custom(failed)))?;
    if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    Ok(value)
}

/// The Cluster of Cluster API that is named, else the only one that lives here.
async fn cluster(client: &Client, named: Option<&ClusterRef>) -> Result<Option<Value>, ReadError> {
    for version in CLUSTER_API_VERSIONS {
        let kind = GroupVersionKind::gvk("cluster.x-k8s.io", version, "Cluster");
        let resource = ApiResource::from_gvk_with_plural(&kind, "clusters");
        let chosen = match named {
            Some(named) => named.clone(),
            None => {
                let all = Api::<Metadata<DynamicObject>>::all_with(client.clone(), &resource);
                // Two tell that there are several.
                let listed = all.list(&ListParams::default().limit(2)).await;
                let Some(listed) = tolerant(listed).map_err(unreadable)? else {
                    continue;
                };
                match only(listed)? {
                    Some(only) => only,
                    None => return Ok(None),
                }
            }
        };
        let api = Api::<RawObject<DynamicObject>>::namespaced_with(
            client.clone(),
            &chosen.namespace,
            &resource,
        );
        let found = tolerant(api.get(&chosen.name).await).map_err(unreadable)?;
        if let Some(found) = found {
            return whole(&found).map(Some).map_err(unreadable);
        }
    }
    Ok(None)
}

/// The only Cluster there is. Of several none is taken, whatever they are called: whoever may create one somewhere would say what the facts are.
fn only(listed: ObjectList<Metadata<DynamicObject>>) -> Result<Option<ClusterRef>, ReadError> {
    let token = listed.metadata.continue_.unwrap_or_default();
    match listed.items.as_slice() {
        [] if token.is_empty() => Ok(None),
        [one] if token.is_empty() => {
            let ObjectMeta {
                namespace, name, ..
            } = one.metadata.clone();
            let named = namespace.zip(name);
            Ok(named.map(|(namespace, name)| ClusterRef { namespace, name }))
        }
        _ => Err(ReadError::ManyClusters),
    }
}

/// `None` where the kind is not served or not allowed.
fn tolerant<T>(found: kube::Result<T>) -> kube::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(failed) if error::has_code(&failed, 403) || error::has_code(&failed, 404) => Ok(None),
        Err(failed) => Err(failed),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::client::scripted;

    fn refusal(code: u16, reason: &str) -> (u16, Value) {
        (
            code,
            json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "x"}),
        )
    }

    fn cluster_of(namespace: &str, name: &str, range: &str) -> Value {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterNetwork": {"pods": {"cidrBlocks": [range]}}},
        })
    }

    /// The namespace of the Cluster that `words` ask for where these are there, as etcd lists them: by namespace.
    async fn cluster_api(words: &str, clusters: Vec<Value>) -> Result<Option<String>, ReadError> {
        let clients = scripted::clients(move |request: Request<Body>| {
            let clusters = clusters.clone();
            async move {
                let path = request.uri().path().to_owned();
                if path.ends_with("/v1beta2/clusters") {
                    return (200, json!({"metadata": {}, "items": clusters}));
                }
                let found = clusters.into_iter().find(|one| {
                    let part = |field: &str| one["metadata"][field].as_str().unwrap_or_default();
                    path.ends_with(&format!("/{}/clusters/{}", part("namespace"), part("name")))
                });
                found.map_or_else(|| refusal(404, "NotFound"), |found| (200, found))
            }
        });
        let client = scripted::identities(&clients).agent().client();
        let state = read(&client, &LocalRequest::parse(words).unwrap()).await?;
        let namespace = |found: Value| found["metadata"]["namespace"].as_str().map(str::to_owned);
        Ok(state.cluster.and_then(namespace))
    }

    /// Whoever may create a Cluster in a namespace of his own, before the cluster's or beside it.
    #[rstest]
    #[case::of_the_same_name("edge-1", "edge-1")]
    #[case::of_this_clusters_name("mgmt", "edge-1")]
    #[case::of_any_name("mgmt", "x")]
    #[tokio::test]
    async fn a_cluster_of_a_tenant_takes_no_other_ones_place(
        #[case] own: &str,
        #[case] forged: &str,
    ) {
        let own = cluster_of("default", own, "10.42.0.0/16");
        let forged = cluster_of("aaa-tenant", forged, "6.6.6.0/24");
        let alone = cluster_api("cluster-api", vec![own.clone()]).await.unwrap();
        assert_eq!(alone.as_deref(), Some("default"));
        // Not known which one is meant: an error, which leaves what is deployed; not a cluster without a Cluster.
        let both = cluster_api("cluster-api", vec![forged, own]).await;
        assert!(matches!(both, Err(ReadError::ManyClusters)), "{both:?}");
    }

    #[tokio::test]
    async fn a_cluster_that_is_named_is_taken_whatever_else_is_there() {
        let own = cluster_of("default", "edge-1", "10.42.0.0/16");
        let forged = cluster_of("aaa-tenant", "edge-1", "6.6.6.0/24");
        let named = "cluster-api=default/edge-1";
        let found = cluster_api(named, vec![forged.clone(), own]).await;
        assert_eq!(found.unwrap().as_deref(), Some("default"));
        assert_eq!(cluster_api(named, vec![forged]).await.unwrap(), None);
    }
}
