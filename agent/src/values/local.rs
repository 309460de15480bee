//! Facts read on this cluster itself, where its operator asks for them.
//!
//! They appear as `.ClusterValues.Local`; the Cluster API Cluster as `.ClusterValues.Cluster`, where Cluster API's own
//! Fleet integration puts it upstream.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde_json::{Value, json};

use super::cluster::ClusterFacts;
use super::inline::Values;
use chart::values::merge_maps;

/// Something that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocalFact {
    /// `Local.kubernetesVersion`.
    Version,
    /// `Local.nodes`: count, architectures, operating systems.
    Nodes,
    /// `Local.clusterNetwork`: CIDR blocks of pods and services, shaped as in Cluster API.
    Networks,
    /// `Cluster`: the Cluster API Cluster, if it lives here.
    ClusterApi,
}

/// A word that asks for no [`LocalFact`].
#[derive(Debug, thiserror::Error)]
pub enum UnknownLocalFact {
    #[error("unknown local fact {0:?}: version, nodes, networks and cluster-api are known")]
    Word(String),
    #[error("{0:?} names no Cluster: cluster-api=NAMESPACE/NAME does")]
    Cluster(String),
}

impl FromStr for LocalFact {
    type Err = UnknownLocalFact;

    fn from_str(text: &str) -> Result<Self, UnknownLocalFact> {
        match text {
            "version" => Ok(Self::Version),
            "nodes" => Ok(Self::Nodes),
            "networks" => Ok(Self::Networks),
            "cluster-api" => Ok(Self::ClusterApi),
            other => Err(UnknownLocalFact::Word(other.to_owned())),
        }
    }
}

/// A Cluster of Cluster API on this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRef {
    pub namespace: String,
    pub name: String,
}

impl ClusterRef {
    /// `NAMESPACE/NAME`.
    fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        (is_object_name(namespace) && is_object_name(name)).then(|| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// Whether an object can be called so. It becomes part of a request's path.
fn is_object_name(name: &str) -> bool {
    let is_inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= 253
        && bytes.iter().copied().all(is_inner)
        && is_edge(bytes.first())
        && is_edge(bytes.last())
}

/// What is asked for on this cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalRequest {
    pub facts: BTreeSet<LocalFact>,
    /// The Cluster API Cluster that is meant; `None`: the only one.
    pub cluster: Option<ClusterRef>,
}

impl LocalRequest {
    /// Of a list separated by commas or white space.
    ///
    /// # Errors
    /// [`UnknownLocalFact`] for the first word that names no fact.
    pub fn parse(text: &str) -> Result<Self, UnknownLocalFact> {
        let mut request = Self::default();
        let words = text.split([',', ' ', '\n', '\t']);
        for word in words.filter(|word| !word.is_empty()) {
            let fact = match word.split_once('=') {
                Some(("cluster-api", named)) => {
                    let named = ClusterRef::parse(named);
                    let named = named.ok_or_else(|| UnknownLocalFact::Cluster(word.to_owned()))?;
                    request.cluster = Some(named);
                    LocalFact::ClusterApi
                }
                _ => word.parse()?,
            };
            request.facts.insert(fact);
        }
        Ok(request)
    }

    /// Adds what a nearer source asks for; the Cluster that it names takes the place of one that is named here.
    pub fn add(&mut self, nearer: Self) {
        self.facts.extend(nearer.facts);
        self.cluster = nearer.cluster.or_else(|| self.cluster.take());
    }
}

/// The facts about a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Label `kubernetes.io/arch`.
    pub architecture: String,
    /// Label `kubernetes.io/os`.
    pub operating_system: String,
    /// `spec.podCIDRs`.
    pub pod_cidrs: Vec<String>,
}

/// The cluster as it was read; what was not asked for is empty, and what could not be read is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalState {
    /// As the API server says it, `v1.36.3`.
    pub version: String,
    /// `None`: not read.
    pub nodes: Option<Vec<NodeState>>,
    /// Nodes were asked for, not only read for their networks.
    pub shows_nodes: bool,
    /// kubeadm's `ClusterConfiguration` as YAML, where kubeadm made the cluster.
    pub kubeadm: Option<String>,
    /// CIDRs of the ServiceCIDR objects.
    pub service_cidrs: Option<Vec<String>>,
    /// Networks were asked for.
    pub networks: bool,
    /// The Cluster API Cluster.
    pub cluster: Option<Value>,
}

impl LocalState {
    /// As facts. What could not be read has no key: that there are no nodes is another thing to say.
    pub fn facts(self) -> ClusterFacts {
        let mut local = Values::new();
        if !self.version.is_empty() {
            local.insert("kubernetesVersion".into(), self.version.clone().into());
        }
        if self.networks {
            let parts = [
                ("pods", self.pod_cidrs()),
                ("services", self.service_cidrs()),
            ];
            let network: Values = parts
                .into_iter()
                .filter_map(|(part, blocks)| Some((part.into(), json!({"cidrBlocks": blocks?}))))
                .collect();
            if !network.is_empty() {
                local.insert("clusterNetwork".into(), network.into());
            }
        }
        if let Some(nodes) = self.nodes.as_ref().filter(|_| self.shows_nodes) {
            let architectures = distinct(nodes, |node| &node.architecture);
            let operating_systems = distinct(nodes, |node| &node.operating_system);
            let nodes = json!({
                "count": nodes.len() as f64,
                "architectures": architectures,
                "operatingSystems": operating_systems,
            });
            local.insert("nodes".into(), nodes);
        }
        let mut values = Values::new();
        if !local.is_empty() {
            values.insert("Local".into(), Value::Object(local));
        }
        if let Some(cluster) = self.cluster {
            let shown = json!({"Cluster": golib::json::floats(cluster)});
            merge_maps(&mut values, shown.as_object().cloned().unwrap_or_default());
        }
        ClusterFacts {
            template_values: values,
            ..ClusterFacts::default()
        }
    }

    /// The cluster's own range where kubeadm records it, else the nodes' shares of it.
    fn pod_cidrs(&self) -> Option<Vec<String>> {
        let recorded = self.kubeadm_network("podSubnet");
        recorded.or_else(|| match (&self.nodes, &self.kubeadm) {
            (Some(nodes), _) => {
                let all: BTreeSet<_> = nodes.iter().flat_map(|node| &node.pod_cidrs).collect();
                Some(all.into_iter().cloned().collect())
            }
            // kubeadm was told of none.
            (None, Some(_)) => Some(Vec::new()),
            (None, None) => None,
        })
    }

    fn service_cidrs(&self) -> Option<Vec<String>> {
        let found = self.service_cidrs.clone();
        match found.as_deref() {
            None | Some([]) => self.kubeadm_network("serviceSubnet").or(found),
            Some(_) => found,
        }
    }

    fn kubeadm_network(&self, field: &str) -> Option<Vec<String>> {
        let configuration = golib::yaml::decode(self.kubeadm.as_ref()?.as_bytes()).ok()?;
        let subnet = configuration.get("networking")?.get(field)?.as_str()?;
        let blocks = subnet.split(',').map(str::trim);
        Some(
            blocks
                .filter(|block| !block.is_empty())
                .map(str::to_owned)
                .collect(),
        )
    }
}

fn distinct<'n>(
    nodes: &'n [NodeState],
    part: impl Fn(&'n NodeState) -> &'n String,
) -> Vec<&'n String> {
    let found: BTreeSet<_> = nodes
        .iter()
        .map(part)
        .filter(|text| !text.is_empty())
        .collect();
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(architecture: &str, operating_system: &str, cidr: &str) -> NodeState {
        NodeState {
            architecture: architecture.into(),
            operating_system: operating_system.into(),
            pod_cidrs: vec![cidr.into()],
        }
    }

    #[test]
    fn facts_of_a_cluster_with_several_architectures() {
        let state = LocalState {
            version: "v1.36.3".into(),
            nodes: Some(vec![
                node("amd64", "linux", "10.42.1.0/24"),
                node("arm64", "linux", "10.42.0.0/24"),
                node("amd64", "windows", "10.42.2.0/24"),
            ]),
            shows_nodes: true,
            service_cidrs: Some(vec!["10.43.0.0/16".into()]),
            networks: true,
            cluster: Some(json!({"spec": {"paused": true}})),
            ..LocalState::default()
        };
        assert_eq!(
            Value::Object(state.facts().template_values),
            json!({
                "Local": {
                    "kubernetesVersion": "v1.36.3",
                    "nodes": {"count": 3.0, "architectures": ["amd64", "arm64"],
                              "operatingSystems": ["linux", "windows"]},
                    "clusterNetwork": {
                        "pods": {"cidrBlocks": ["10.42.0.0/24", "10.42.1.0/24", "10.42.2.0/24"]},
                        "services": {"cidrBlocks": ["10.43.0.0/16"]},
                    },
                },
                "Cluster": {"spec": {"paused": true}},
            })
        );
        assert_eq!(LocalState::default().facts(), ClusterFacts::default());
    }

    #[test]
    fn kubeadms_ranges_come_before_those_of_nodes() {
        let state = LocalState {
            nodes: Some(vec![node("amd64", "linux", "10.42.1.0/24")]),
            kubeadm: Some(
                "networking: {podSubnet: '10.42.0.0/16,fd00::/48', serviceSubnet: 10.43.0.0/16}"
                    .into(),
            ),
            ..LocalState::default()
        };
        assert_eq!(state.pod_cidrs().unwrap(), ["10.42.0.0/16", "fd00::/48"]);
        assert_eq!(state.service_cidrs().unwrap(), ["10.43.0.0/16"]);
    }

    #[test]
    fn what_could_not_be_read_has_no_key() {
        let facts = |state: LocalState| Value::Object(state.facts().template_values);
        let unread = LocalState {
            shows_nodes: true,
            networks: true,
            ..LocalState::default()
        };
        assert_eq!(facts(unread.clone()), json!({}));
        let pods = LocalState {
            nodes: Some(vec![node("amd64", "linux", "10.42.1.0/24")]),
            shows_nodes: false,
            ..unread.clone()
        };
        assert_eq!(
            facts(pods),
            json!({"Local": {"clusterNetwork": {"pods": {"cidrBlocks": ["10.42.1.0/24"]}}}})
        );
        // Read, and there are none.
        let none = LocalState {
            nodes: Some(Vec::new()),
            service_cidrs: Some(Vec::new()),
            ..unread
        };
        assert_eq!(
            facts(none),
            json!({"Local": {
                "nodes": {"count": 0.0, "architectures": [], "operatingSystems": []},
                "clusterNetwork": {"pods": {"cidrBlocks": []}, "services": {"cidrBlocks": []}},
            }})
        );
    }

    #[test]
    fn an_unknown_local_fact_is_refused() {
        let all = LocalRequest::parse("version, nodes\nnetworks,cluster-api").unwrap();
        assert_eq!(all.facts.len(), 4);
        assert_eq!(all.cluster, None);
        let failed = LocalRequest::parse("nodes,pods").unwrap_err().to_string();
        assert!(failed.contains("\"pods\""));
    }

    #[test]
    fn a_cluster_is_named_by_namespace_and_name() {
        let named = |text: &str| LocalRequest::parse(text).map(|request| request.cluster);
        let expected = ClusterRef {
            namespace: "default".into(),
            name: "mgmt".into(),
        };
        assert_eq!(
            named("version cluster-api=default/mgmt").unwrap(),
            Some(expected.clone())
        );
        for word in ["", "mgmt", "/mgmt", "default/", "a/b/c", "a/..", "A/b"] {
            let failed = named(&format!("cluster-api={word}")).unwrap_err();
            assert!(
                failed
                    .to_string()
                    .ends_with("cluster-api=NAMESPACE/NAME does"),
                "{failed}"
            );
        }
        assert!(named("nodes=default/mgmt").is_err());
        // A nearer source goes first, unless it leaves open which one is meant.
        let mut request = LocalRequest::parse("cluster-api=aaa/x, nodes").unwrap();
        request.add(LocalRequest::parse("cluster-api=default/mgmt").unwrap());
        request.add(LocalRequest::parse("cluster-api").unwrap());
        assert_eq!(request.cluster, Some(expected));
        assert_eq!(request.facts.len(), 2);
    }
}
