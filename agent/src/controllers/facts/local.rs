//! Reading facts on this cluster: the API server's version, nodes, networks, the Cluster API Cluster.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::{ApiResource, DynamicObject, ListParams, ObjectMeta};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::Value;

use crate::client::listed::{self, Metadata, RawObject};
use crate::error;
use crate::values::{LocalFact, LocalState, NodeState};

/// Cluster API's versions, the newest first.
const CLUSTER_API_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// Reads what is asked for; what is not there or not allowed stays empty. `name` chooses among several Cluster API
/// Clusters.
///
/// # Errors
/// The API server does not answer.
pub(super) async fn read(
    client: &Client,
    requested: &BTreeSet<LocalFact>,
    name: &str,
) -> kube::Result<LocalState> {
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
    if requested.contains(&LocalFact::ClusterApi) {
        state.cluster = cluster(client, name).await?;
    }
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

/// The Cluster of Cluster API that lives here: the one named like this cluster, else the only one.
async fn cluster(client: &Client, name: &str) -> kube::Result<Option<Value>> {
    for version in CLUSTER_API_VERSIONS {
        let kind = GroupVersionKind::gvk("cluster.x-k8s.io", version, "Cluster");
        let resource = ApiResource::from_gvk_with_plural(&kind, "clusters");
        let all = Api::<Metadata<DynamicObject>>::all_with(client.clone(), &resource);
        let Some(found) = tolerant(all.list(&ListParams::default()).await)? else {
            continue;
        };
        let named =
            |object: &&Metadata<DynamicObject>| object.metadata.name.as_deref() == Some(name);
        let chosen = match (found.items.iter().find(named), found.items.as_slice()) {
            (Some(named), _) => named,
            (None, [only]) => only,
            (None, _) => return Ok(None),
        };
        let (namespace, name) = (&chosen.metadata.namespace, &chosen.metadata.name);
        let (Some(namespace), Some(name)) = (namespace, name) else {
            return Ok(None);
        };
        let api =
            Api::<RawObject<DynamicObject>>::namespaced_with(client.clone(), namespace, &resource);
        let object = tolerant(api.get_opt(name).await)?.flatten();
        return object.map(|object| whole(&object)).transpose();
    }
    Ok(None)
}

/// `None` where the kind is not served or not allowed.
fn tolerant<T>(found: kube::Result<T>) -> kube::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(failed) if error::has_code(&failed, 403) || error::has_code(&failed, 404) => Ok(None),
        Err(failed) => Err(failed),
    }
}
