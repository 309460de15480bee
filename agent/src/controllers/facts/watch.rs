//! One metadata watch per source, each of one object by its name.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ObjectMeta;
use kube::{Api, Resource};

use super::Facts;
use crate::api::{Cluster, HOLD_ANNOTATION};
use crate::client::listed::Metadata;
use crate::controllers::source_watch::{self, Seen};
use crate::values::AGENT_MAP;

impl Facts {
    /// The Cluster upstream. Its status changes with every heartbeat and is no fact.
    pub(super) async fn watch_cluster(&self) {
        let api = Api::<Metadata<Cluster>>::namespaced(
            self.reader.upstream.client.clone(),
            &self.reader.upstream.cluster_namespace,
        );
        let name = self.reader.upstream.cluster_name.clone();
        let facts_of = |found: &ObjectMeta| {
            let ObjectMeta {
                generation,
                labels,
                annotations,
                ..
            } = found.clone();
            (generation, labels, annotations)
        };
        let mut known = None;
        self.follow(api, &name, |found| {
            let found = found.metadata().map(facts_of);
            if known.as_ref() != Some(&found) {
                known = Some(found);
                self.changed();
            }
        })
        .await;
    }

    pub(super) async fn watch_agent_map(&self) {
        let client = self.reader.agent.client();
        let api = Api::<Metadata<ConfigMap>>::namespaced(client, &self.reader.namespace);
        self.follow(api, AGENT_MAP, |_| self.changed()).await;
    }

    /// The site's ConfigMap, for its annotation and its facts.
    pub(super) async fn watch_site_map(&self) {
        let client = self.reader.agent.client();
        let api = Api::<Metadata<ConfigMap>>::namespaced(client, &self.reader.site.namespace);
        self.follow(api, &self.reader.site.name, |found| {
            match found {
                Seen::Forbidden => self.site_is_hidden(),
                Seen::There(_) | Seen::Gone => {
                    let annotations = found
                        .metadata()
                        .and_then(|found| found.annotations.as_ref());
                    let hold = annotations.and_then(|all| all.get(HOLD_ANNOTATION));
                    self.site_is(hold.map(String::as_str));
                }
            }
            self.changed();
        })
        .await;
    }

    pub(super) async fn watch_site_secret(&self) {
        let client = self.reader.agent.client();
        let api = Api::<Metadata<Secret>>::namespaced(client, &self.reader.site.namespace);
        self.follow(api, &self.reader.site.name, |_| self.changed())
            .await;
    }

    /// Calls `changed` with what is seen of one object whenever that changes. Never ends. Where watching is forbidden it is tried again after a
    /// long pause.
    async fn follow<K>(&self, api: Api<Metadata<K>>, name: &str, mut changed: impl FnMut(Seen<'_>))
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        loop {
            source_watch::follow(api.clone(), name, &mut changed).await;
            tokio::time::sleep(self.refresh).await;
        }
    }
}
