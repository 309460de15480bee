//! Reading facts on this cluster: the API server's version, nodes, networks, the Cluster API Cluster.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource};
use kube::api::{ApiResource, DynamicObject, ListParams, ObjectMeta};
use kube::core::{GroupVersionKind, ObjectList};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::Value;

use super::read::{ReadError, answered};
use crate::client::listed::{self, Metadata, RawObject};
use crate::client::read_sources::ReadSources;
use crate::error;
use crate::values::{Answer, ClusterRef, LocalFact, LocalRequest, LocalState, NodeState, Source};

/// Cluster API's versions, the newest first.
const CLUSTER_API_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// Reads what is asked for; what is not there stays empty, and so does what may not be read, which is told as well.
///
/// # Errors
/// The API server does not answer, or does not let us read any more what was read before, or nobody says which Cluster of Cluster API is meant.
pub(super) async fn read(
    client: &Client,
    known: &ReadSources,
    requested: &LocalRequest,
) -> Result<(LocalState, Vec<Source>), ReadError> {
    let mut reader = LocalReader {
        client,
        known,
        refused: Vec::new(),
    };
    let mut state = reader.objects(&requested.facts).await?;
    if requested.facts.contains(&LocalFact::ClusterApi) {
        state.cluster = reader.cluster(requested.cluster.as_ref()).await?;
    }
    Ok((state, reader.refused))
}

struct LocalReader<'a> {
    client: &'a Client,
    known: &'a ReadSources,
    /// What may not be read, and never was.
    refused: Vec<Source>,
}

impl LocalReader<'_> {
    /// What Kubernetes itself says.
    async fn objects(&mut self, requested: &BTreeSet<LocalFact>) -> Result<LocalState, ReadError> {
        let mut state = LocalState {
            networks: requested.contains(&LocalFact::Networks),
            ..LocalState::default()
        };
        if requested.contains(&LocalFact::Version) {
            let version = self.client.apiserver_version().await;
            let version = version.map_err(unreadable("the version of this cluster"))?;
            state.version = version.git_version;
        }
        if state.networks {
            let maps = Api::<ConfigMap>::namespaced(self.client.clone(), "kube-system");
            let kubeadm = maps.get("kubeadm-config").await;
            let kubeadm = self.answer("ConfigMap kube-system/kubeadm-config", kubeadm)?;
            let data = self.unless_refused(kubeadm).and_then(|map| map.data);
            state.kubeadm = data.and_then(|mut data| data.remove("ClusterConfiguration"));
            state.service_cidrs = self.service_cidrs().await?;
        }
        let needs_ranges = state.networks && state.kubeadm.is_none();
        if requested.contains(&LocalFact::Nodes) || needs_ranges {
            // Asked for or not: pod networks come from here as well.
            state.nodes = self.nodes(needs_ranges).await?;
        }
        state.shows_nodes = requested.contains(&LocalFact::Nodes);
        Ok(state)
    }

    /// The ranges of services; `None` where they may not be read, or this version of Kubernetes has no objects for them.
    async fn service_cidrs(&mut self) -> Result<Option<Vec<String>>, ReadError> {
        let api = Api::<ServiceCIDR>::all(self.client.clone());
        let found = api.list(&ListParams::default()).await;
        let resource = ApiResource::erase::<ServiceCIDR>(&());
        let found = self
            .answer_of(&resource, "ServiceCIDRs of this cluster", found)
            .await?;
        let blocks = |list: ObjectList<ServiceCIDR>| {
            let specs = list.into_iter().filter_map(|cidr| cidr.spec);
            specs
                .flat_map(|spec| spec.cidrs.unwrap_or_default())
                .collect()
        };
        Ok(self.unless_refused(found).map(blocks))
    }

    /// The nodes, page by page; `None` where they may not be read. Their labels suffice unless their ranges are wanted.
    async fn nodes(&mut self, with_ranges: bool) -> Result<Option<Vec<NodeState>>, ReadError> {
        let mut nodes = Vec::new();
        let listed = if with_ranges {
            let api = Api::<RawObject<Node>>::all(self.client.clone());
            let state = |node: RawObject<Node>| state_of(pod_ranges(&node), node.metadata);
            listed::list(&api, |page| nodes.extend(page.into_iter().map(state))).await
        } else {
            let api = Api::<Metadata<Node>>::all(self.client.clone());
            let state = |node: Metadata<Node>| state_of(Vec::new(), node.metadata);
            listed::list(&api, |page| nodes.extend(page.into_iter().map(state))).await
        };
        let listed = self.answer("nodes of this cluster", listed)?;
        Ok(self.unless_refused(listed).map(|_| nodes))
    }

    /// The Cluster of Cluster API that is named, else the only one that lives here.
    async fn cluster(&mut self, named: Option<&ClusterRef>) -> Result<Option<Value>, ReadError> {
        for version in CLUSTER_API_VERSIONS {
            let kind = GroupVersionKind::gvk("cluster.x-k8s.io", version, "Cluster");
            let resource = ApiResource::from_gvk_with_plural(&kind, "clusters");
            match self.cluster_as(&resource, named).await? {
                Ok(found) => return Ok(found),
                // This version may not be served.
                Err(source) if source.answer == Answer::Absent => {}
                Err(refused) => {
                    self.refused.push(refused);
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// [`Self::cluster`], in one version.
    async fn cluster_as(
        &self,
        resource: &ApiResource,
        named: Option<&ClusterRef>,
    ) -> Result<Result<Option<Value>, Source>, ReadError> {
        let client = || self.client.clone();
        let chosen = match named {
            Some(named) => named.clone(),
            None => {
                let all = Api::<Metadata<DynamicObject>>::all_with(client(), resource);
                // Two tell that there are several.
                let listed = all.list(&ListParams::default().limit(2)).await;
                let listed = self.answer_of(resource, "Clusters of Cluster API", listed);
                match listed.await? {
                    Ok(listed) => match only(listed)? {
                        Some(only) => only,
                        None => return Ok(Ok(None)),
                    },
                    Err(unread) => return Ok(Err(unread)),
                }
            }
        };
        let ClusterRef { namespace, name } = &chosen;
        let what = format!("Cluster {namespace}/{name} of Cluster API");
        let api = Api::<RawObject<DynamicObject>>::namespaced_with(client(), namespace, resource);
        let found = api.get(name).await;
        match self.answer_of(resource, &what, found).await? {
            Ok(found) => {
                let whole = whole(&found).map_err(unreadable(&what))?;
                Ok(Ok(Some(whole)))
            }
            Err(unread) => Ok(Err(unread)),
        }
    }

    /// What was read, unless it is absent or may not be read, which is noted.
    fn unless_refused<T>(&mut self, answer: Result<T, Source>) -> Option<T> {
        match answer {
            Ok(read) => Some(read),
            Err(source) => {
                if source.answer == Answer::Forbidden {
                    self.refused.push(source);
                }
                None
            }
        }
    }

    fn answer<T>(
        &self,
        name: &str,
        found: kube::Result<T>,
    ) -> Result<Result<T, Source>, ReadError> {
        let answer = answered(self.known, name, found).map_err(unreadable(name))?;
        Ok(answer.map_err(|answer| Source {
            name: name.to_owned(),
            answer,
        }))
    }

    /// [`Self::answer`], of a kind that there may not be. The API server answers that with a page, and so does whatever stands before it where it knows no
    /// such address: only kinds that it lists tell one from the other.
    async fn answer_of<T>(
        &self,
        resource: &ApiResource,
        name: &str,
        found: kube::Result<T>,
    ) -> Result<Result<T, Source>, ReadError> {
        let is_page = match &found {
            Err(failed) => error::has_code(failed, 404) && !error::is_not_found(failed),
            Ok(_) => false,
        };
        if is_page && self.lacks(resource).await {
            return Ok(Err(Source {
                name: name.to_owned(),
                answer: Answer::Absent,
            }));
        }
        self.answer(name, found)
    }

    /// Whether the API server lists its kinds, and this one is not among them.
    async fn lacks(&self, resource: &ApiResource) -> bool {
        let Ok(list) = self.client.list_api_groups().await else {
            return false;
        };
        match serves_version(&list.groups, resource) {
            // No API server is without any group.
            None => false,
            Some(false) => true,
            Some(true) => {
                let kinds = self.client.list_api_group_resources(&resource.api_version);
                let is_this = |kind: &APIResource| kind.name == resource.plural;
                let kinds = kinds.await.map(|list| list.resources);
                kinds.is_ok_and(|kinds| !kinds.iter().any(is_this))
            }
        }
    }
}

/// Whether a list of groups has a resource's version; `None` where it has none at all.
fn serves_version(groups: &[APIGroup], resource: &ApiResource) -> Option<bool> {
    let group = groups.iter().find(|group| group.name == resource.group);
    let mut versions = group.into_iter().flat_map(|group| &group.versions);
    let is_served = versions.any(|version| version.version == resource.version);
    (!groups.is_empty()).then_some(is_served)
}

fn unreadable(what: &str) -> impl FnOnce(kube::Error) -> ReadError {
    let what = what.to_owned();
    |source| ReadError::Read { what, source }
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
        let request = LocalRequest::parse(words).unwrap();
        let (state, _) = read(&client, &ReadSources::default(), &request).await?;
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

    /// The third worked example of docs/cluster-values.md would turn its Windows part off.
    #[tokio::test]
    async fn nodes_that_may_not_be_listed_are_not_counted_as_none() {
        let clients = scripted::clients(|_| async { refusal(403, "Forbidden") });
        let client = scripted::identities(&clients).agent().client();
        let request = LocalRequest::parse("nodes, networks, cluster-api").unwrap();
        let known = ReadSources::default();
        let (state, refused) = read(&client, &known, &request).await.unwrap();
        assert!(state.facts().template_values.is_empty());
        let refused: Vec<_> = refused.iter().map(Source::to_string).collect();
        assert_eq!(
            refused,
            [
                "ConfigMap kube-system/kubeadm-config (not allowed)",
                "ServiceCIDRs of this cluster (not allowed)",
                "nodes of this cluster (not allowed)",
                "Clusters of Cluster API (not allowed)",
            ]
        );
        known.add("nodes of this cluster");
        let failed = read(&client, &known, &request).await.unwrap_err();
        assert_eq!(failed.to_string(), "cannot read nodes of this cluster");
    }

    /// An API server that is starting, or what stands before it, answers 404 as well.
    #[rstest]
    #[case::no_group(&["apps"], &[], Some("v1beta1"))]
    #[case::another_version(&["apps", "cluster.x-k8s.io"], &[], Some("v1beta1"))]
    #[case::another_kind(&["apps", "cluster.x-k8s.io", "v1beta2"], &["machines"], Some("v1beta1"))]
    #[case::served(&["apps", "cluster.x-k8s.io", "v1beta2"], &["clusters"], None)]
    #[case::no_list_of_kinds(&[], &[], None)]
    #[tokio::test]
    async fn only_a_kind_that_is_not_listed_is_not_served(
        #[case] groups: &'static [&'static str],
        #[case] kinds: &'static [&'static str],
        #[case] expected: Option<&str>,
    ) {
        let clients = scripted::clients(move |request: Request<Body>| async move {
            let path = request.uri().path();
            let page = (404, json!("404 page not found"));
            match path.rsplit('/').next().unwrap_or_default() {
                "apis" if !groups.is_empty() => {
                    let served = groups.contains(&"v1beta2");
                    let version = if served { "v1beta2" } else { "v1beta1" };
                    let version = json!({"groupVersion": "", "version": version});
                    let names = groups.iter().filter(|name| **name != "v1beta2");
                    let groups = names.map(|name| json!({"name": name, "versions": [version]}));
                    (200, json!({"groups": groups.collect::<Vec<_>>()}))
                }
                "v1beta2" => {
                    let kind = |name: &&str| json!({"name": name, "kind": "", "namespaced": true, "singularName": "", "verbs": []});
                    let kinds: Vec<_> = kinds.iter().map(kind).collect();
                    (200, json!({"groupVersion": "", "resources": kinds}))
                }
                "c" if path.contains("/v1beta1/") => {
                    let mut found = cluster_of("default", "c", "10.42.0.0/16");
                    found["apiVersion"] = json!("cluster.x-k8s.io/v1beta1");
                    (200, found)
                }
                _ => page,
            }
        });
        let client = scripted::identities(&clients).agent().client();
        let request = LocalRequest::parse("cluster-api=default/c").unwrap();
        let found = read(&client, &ReadSources::default(), &request).await;
        let found = found.map(|(state, _)| state.cluster).unwrap_or_default();
        let version = found.map(|found| found["apiVersion"].clone());
        let expected = expected.map(|version| json!(format!("cluster.x-k8s.io/{version}")));
        assert_eq!(version, expected);
    }
}
