//! Reading the values of a bundle: its Secret upstream, the ConfigMaps and Secrets it names on this
//! cluster, and facts about the cluster. What is made of them is decided in [`crate::values`].

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use serde_json::{Map, Value};
use templating::SystemHost;

use super::deploy::DeployFailure;
use crate::api::{BundleDeployment, Cluster};
use crate::error;
use crate::identity::{AgentClient, DeploymentClient};
use crate::values::{self, ClusterFacts, Reference, ReferenceKind};

/// Name of the ConfigMap in the system namespace through which a site tells facts about its
/// cluster that upstream does not let the agent read.
pub const FACTS_NAME: &str = "fleet-cluster-values";
/// Key with the ClusterValues alone, as YAML.
const CLUSTER_VALUES_KEY: &str = "values";
/// Key with all facts, as YAML: `name`, `namespace`, `labels`, `annotations`, `templateValues`.
const FACTS_KEY: &str = "facts";

/// Reads values; shared by all passes.
pub struct ValuesReader {
    /// The cluster's own description, read as the agent: it is the agent's to give.
    pub agent: AgentClient,
    /// System namespace.
    pub namespace: String,
    pub upstream: Client,
    pub cluster_namespace: String,
    pub cluster_name: String,
}

impl ValuesReader {
    /// The values a bundle is deployed with.
    ///
    /// # Errors
    /// Something named is missing or unreadable, or a template fails. No text quotes a value.
    pub async fn of(
        &self,
        acting: &DeploymentClient,
        bundle: &BundleDeployment,
    ) -> Result<Map<String, Value>, DeployFailure> {
        let spec = &bundle.spec;
        let helm = spec.options.helm.as_ref();
        let mut merged = values::inline(helm.and_then(|helm| helm.values.as_ref()));
        if !spec.values_hash.is_empty() {
            if let Some(stored) = self.stored(bundle).await? {
                merged = stored;
            }
        } else if values::needs_processing(spec) {
            let facts = self.facts().await?;
            merged = values::preprocess(helm, &facts, &SystemHost, false)
                .map_err(|failed| DeployFailure::Failed(failed.masked()))?
                .unwrap_or_default();
        }
        for reference in values::references(&spec.options) {
            let content = read(acting, &reference).await?;
            let over = values::parse(&reference, content.as_deref());
            values::merge(&mut merged, over.map_err(DeployFailure::new)?);
        }
        Ok(merged)
    }

    /// The values Secret the controller writes next to the BundleDeployment, a moment after it.
    async fn stored(
        &self,
        bundle: &BundleDeployment,
    ) -> Result<Option<Map<String, Value>>, DeployFailure> {
        let secrets = Api::<Secret>::namespaced(self.upstream.clone(), bundle.namespace());
        let secret = secrets.get(bundle.name()).await.map_err(|failed| {
            match error::has_code(&failed, 404) {
                true => DeployFailure::NotYet(error::text(&failed)),
                false => DeployFailure::new(failed),
            }
        })?;
        values::stored(&secret, &bundle.spec.values_hash)
            .map(|stored| stored.values)
            .map_err(|failed| DeployFailure::NotYet(error::chain(&failed)))
    }

    /// Facts from upstream's Cluster, where its rights let us read it, under those of the site.
    async fn facts(&self) -> Result<ClusterFacts, DeployFailure> {
        let mut facts = ClusterFacts {
            name: self.cluster_name.clone(),
            namespace: self.cluster_namespace.clone(),
            ..ClusterFacts::default()
        };
        let clusters = Api::<Cluster>::namespaced(self.upstream.clone(), &self.cluster_namespace);
        match clusters.get_opt(&self.cluster_name).await {
            Ok(Some(cluster)) => {
                let cluster = serde_json::to_value(&cluster).map_err(DeployFailure::new)?;
                facts = ClusterFacts::from_cluster(&cluster);
            }
            // The stock rights do not allow it.
            Err(failed) if error::has_code(&failed, 403) => {}
            Ok(None) => {}
            Err(failed) => return Err(DeployFailure::new(failed)),
        }
        let maps = Api::<ConfigMap>::namespaced(self.agent.client(), &self.namespace);
        let data = maps.get_opt(FACTS_NAME).await.map_err(DeployFailure::new)?;
        let data = data.and_then(|map| map.data).unwrap_or_default();
        if let Some(text) = data.get(FACTS_KEY) {
            let site = ClusterFacts::from_yaml(text.as_bytes()).map_err(DeployFailure::new)?;
            facts = facts.overlaid(site);
        }
        if let Some(text) = data.get(CLUSTER_VALUES_KEY) {
            let read = golib::yaml::decode(text.as_bytes()).map_err(DeployFailure::new)?;
            let template_values = values::inline(read.as_object());
            facts = facts.overlaid(ClusterFacts {
                template_values,
                ..ClusterFacts::default()
            });
        }
        Ok(facts)
    }
}

/// The content of a reference's key, read with the bundle's rights; `None` if there is no such key.
async fn read(
    acting: &DeploymentClient,
    reference: &Reference,
) -> Result<Option<Vec<u8>>, DeployFailure> {
    let Reference {
        kind,
        namespace,
        name,
        key,
    } = reference;
    Ok(match kind {
        ReferenceKind::ConfigMap => {
            let maps = Api::<ConfigMap>::namespaced(acting.client(), namespace);
            let map = maps.get(name).await.map_err(DeployFailure::new)?;
            map.data
                .unwrap_or_default()
                .remove(key)
                .map(String::into_bytes)
        }
        ReferenceKind::Secret => {
            let secrets = Api::<Secret>::namespaced(acting.client(), namespace);
            let secret = secrets.get(name).await.map_err(DeployFailure::new)?;
            secret
                .data
                .unwrap_or_default()
                .remove(key)
                .map(|content| content.0)
        }
    })
}
