//! Reading the sources of facts, in their order: upstream's Cluster, the agent's ConfigMap, the site's ConfigMap and
//! Secret, this cluster itself.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::local;
use crate::client::identity::AgentClient;
use crate::client::read_sources::ReadSources;
use crate::config::SiteRef;
use crate::error;
use crate::register::Upstream;
use crate::values::{
    AGENT_MAP, Answer, ClusterFacts, FactsError, Gathered, LOCAL_FACTS_KEY, LocalRequest, Source,
    UnknownLocalFact, facts_of,
};

/// Facts that cannot be had. No text quotes a fact.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {what}")]
    Read { what: String, source: kube::Error },
    #[error("{what} cannot be used")]
    Content { what: String, source: FactsError },
    #[error("{what}, key {LOCAL_FACTS_KEY}")]
    Local {
        what: String,
        source: UnknownLocalFact,
    },
    /// In a Secret whatever stands in the place of a name may be secret.
    #[error("{what} cannot be used: it has a field, or a local fact, that there is not")]
    Unknown { what: String },
    /// Any of them may be somebody else's.
    #[error(
        "this cluster has several Clusters of Cluster API: key {LOCAL_FACTS_KEY} has to name one, cluster-api=NAMESPACE/NAME"
    )]
    ManyClusters,
    #[error("cannot write the Cluster as JSON")]
    Encode(#[source] serde_json::Error),
}

/// Where facts are, and the clients to read them with.
pub struct FactsReader {
    /// Downstream, as the agent: the facts are the agent's to give.
    pub agent: AgentClient,
    /// System namespace.
    pub namespace: String,
    pub site: SiteRef,
    pub upstream: Upstream,
}

/// What the objects say, and what they ask for on this cluster.
pub struct Objects {
    gathered: Gathered,
    requested: LocalRequest,
}

/// A ConfigMap's or Secret's data, or why there is none.
type Data = Result<BTreeMap<String, Vec<u8>>, Answer>;

impl FactsReader {
    /// Reads the objects, upstream's among them.
    ///
    /// # Errors
    /// [`ReadError`]. An absent source is none, nor is a forbidden one that this process has never read; it is noted in the answer.
    pub async fn objects(&self) -> Result<Objects, ReadError> {
        let mut gathered = Gathered::default();
        gathered.facts.name = self.upstream.cluster_name.clone();
        gathered.facts.namespace = self.upstream.cluster_namespace.clone();
        self.cluster(&mut gathered).await?;
        let mut requested = LocalRequest::default();
        let mut add = |what: String, data: Data, is_secret: bool| {
            let data = match data {
                Ok(data) => data,
                Err(answer) => {
                    gathered.add(what, answer, None);
                    return Ok(());
                }
            };
            let unknown = || ReadError::Unknown { what: what.clone() };
            if let Some(words) = data.get(LOCAL_FACTS_KEY) {
                let found = LocalRequest::parse(&String::from_utf8_lossy(words));
                requested.add(found.map_err(|source| match is_secret {
                    true => unknown(),
                    false => ReadError::Local {
                        what: what.clone(),
                        source,
                    },
                })?);
            }
            let facts = facts_of(&data).map_err(|source| match source {
                FactsError::UnknownField(_) if is_secret => unknown(),
                source => ReadError::Content {
                    what: what.clone(),
                    source,
                },
            })?;
            match is_secret {
                true => gathered.add_secret(what, Answer::Read, facts),
                false => gathered.add(what, Answer::Read, facts),
            }
            Ok(())
        };
        let (what, data) = self.config_map(&self.namespace, AGENT_MAP).await?;
        add(what, data, false)?;
        let (what, data) = self
            .config_map(&self.site.namespace, &self.site.name)
            .await?;
        add(what, data, false)?;
        let (what, data) = self.site_secret().await?;
        add(what, data, true)?;
        Ok(Objects {
            gathered,
            requested,
        })
    }

    /// Lays what this cluster says over what the objects say.
    ///
    /// # Errors
    /// As [`Self::objects`].
    pub async fn with_local(&self, objects: &Objects) -> Result<Gathered, ReadError> {
        let mut gathered = objects.gathered.clone();
        let requested = &objects.requested;
        if requested.facts.is_empty() {
            gathered.add("this cluster".to_owned(), Answer::NotRequested, None);
            return Ok(gathered);
        }
        let client = self.agent.client();
        let (state, refused) = local::read(&client, self.agent.read_sources(), requested).await?;
        for Source { name, answer } in refused {
            gathered.add(name, answer, None);
        }
        gathered.add("this cluster".to_owned(), Answer::Read, Some(state.facts()));
        Ok(gathered)
    }

    /// The Cluster upstream. The stock rights do not allow reading it.
    async fn cluster(&self, gathered: &mut Gathered) -> Result<(), ReadError> {
        let Upstream {
            cluster_namespace,
            cluster_name,
            ..
        } = &self.upstream;
        let what = format!("Cluster {cluster_namespace}/{cluster_name} upstream");
        // Another upstream may have a Cluster of the same name, and other rights for us.
        let key = format!("{what} at {}", self.upstream.server);
        let found = self.upstream.clusters().get(cluster_name).await;
        match answered(self.agent.read_sources(), &key, found) {
            Ok(Ok(cluster)) => {
                let cluster = serde_json::to_value(&cluster).map_err(ReadError::Encode)?;
                let facts = ClusterFacts::from_cluster(&cluster);
                gathered.add(what, Answer::Read, Some(facts));
            }
            Ok(Err(answer)) => gathered.add(what, answer, None),
            Err(source) => return Err(ReadError::Read { what, source }),
        }
        Ok(())
    }

    async fn config_map(&self, namespace: &str, name: &str) -> Result<(String, Data), ReadError> {
        let data = |map: ConfigMap| {
            let data = map.data.unwrap_or_default().into_iter();
            data.map(|(key, text)| (key, text.into_bytes())).collect()
        };
        self.data(namespace, name, data).await
    }

    async fn site_secret(&self) -> Result<(String, Data), ReadError> {
        let SiteRef { namespace, name } = &self.site;
        let data = |secret: Secret| {
            let data = secret.data.unwrap_or_default().into_iter();
            data.map(|(key, content)| (key, content.0)).collect()
        };
        self.data(namespace, name, data).await
    }

    /// What an object in the agent's cluster is called, and what `data` takes out of it.
    async fn data<K>(
        &self,
        namespace: &str,
        name: &str,
        data: impl FnOnce(K) -> BTreeMap<String, Vec<u8>>,
    ) -> Result<(String, Data), ReadError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let what = format!("{} {namespace}/{name}", K::kind(&()));
        let objects = Api::<K>::namespaced(self.agent.client(), namespace);
        match answered(self.agent.read_sources(), &what, objects.get(name).await) {
            Ok(found) => Ok((what, found.map(data))),
            Err(source) => Err(ReadError::Read { what, source }),
        }
    }
}

/// What came of asking for a source by this name, which is noted where it was read.
pub(super) fn answered<T>(
    known: &ReadSources,
    name: &str,
    found: kube::Result<T>,
) -> kube::Result<Result<T, Answer>> {
    let answer = answer(found, known.contains(name));
    if matches!(answer, Ok(Ok(_))) {
        known.add(name);
    }
    answer
}

/// Absent is an answer too. So is forbidden where the source was never read: the stock rights do not let an agent read all of them. Where it was read,
/// rights that are revoked or not there yet do not tell that it is gone.
fn answer<T>(found: kube::Result<T>, was_read: bool) -> kube::Result<Result<T, Answer>> {
    match found {
        Ok(found) => Ok(Ok(found)),
        Err(failed) if error::is_not_found(&failed) => Ok(Err(Answer::Absent)),
        Err(failed) if error::has_code(&failed, 403) && !was_read => Ok(Err(Answer::Forbidden)),
        Err(failed) => Err(failed),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::not_there(404, "NotFound", false, Some(Answer::Absent))]
    #[case::gone(404, "NotFound", true, Some(Answer::Absent))]
    #[case::never_allowed(403, "Forbidden", false, Some(Answer::Forbidden))]
    #[case::revoked(403, "Forbidden", true, None)]
    #[case::a_page_of_a_proxy(404, "Failed to parse error data", false, None)]
    #[case::busy(429, "TooManyRequests", false, None)]
    fn a_refusal_is_an_answer_where_nothing_was_read(
        #[case] code: u16,
        #[case] reason: &str,
        #[case] was_read: bool,
        #[case] expected: Option<Answer>,
    ) {
        let status = Status::failure("", reason).with_code(code);
        let found = Err::<(), _>(kube::Error::Api(status.boxed()));
        assert_eq!(
            answer(found, was_read).ok().map(Result::err),
            expected.map(Some)
        );
    }
}
