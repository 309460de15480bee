//! The facts of a cluster together with where they came from.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use sha2::{Digest, Sha256};
use templating::Reads;

use super::cluster::ClusterFacts;

/// How one source answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The object was read.
    Read,
    /// The object does not exist.
    Absent,
    /// The server refuses to let us read the object.
    Forbidden,
    /// Nobody asked for it.
    NotRequested,
}

/// One place facts may come from, as conditions and the CLI name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub name: String,
    pub answer: Answer,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = match self.answer {
            Answer::Read => "read",
            Answer::Absent => "not there",
            Answer::Forbidden => "not allowed",
            Answer::NotRequested => "not requested",
        };
        write!(f, "{} ({answer})", self.name)
    }
}

/// Facts and their sources, nearer ones later.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gathered {
    pub facts: ClusterFacts,
    pub sources: Vec<Source>,
    /// Texts that come from a Secret and are no ClusterValues, which are taken for secret wherever they come from.
    pub secrets: Vec<String>,
}

impl Gathered {
    /// Adds what a nearer source says; `None` where it said nothing.
    pub fn add(&mut self, name: String, answer: Answer, facts: Option<ClusterFacts>) {
        self.sources.push(Source { name, answer });
        if let Some(nearer) = facts {
            self.facts = std::mem::take(&mut self.facts).overlaid(nearer);
        }
    }

    /// [`Self::add`], of a Secret.
    pub fn add_secret(&mut self, name: String, answer: Answer, facts: Option<ClusterFacts>) {
        if let Some(facts) = &facts {
            let named = [&facts.name, &facts.namespace].into_iter();
            let noted = facts.labels.values().chain(facts.annotations.values());
            self.secrets.extend(named.chain(noted).cloned());
        }
        self.add(name, answer, facts);
    }

    /// The sources in a sentence, for the message about a key none of them has.
    pub fn summary(&self) -> String {
        let sources: Vec<_> = self.sources.iter().map(Source::to_string).collect();
        format!("cluster facts: {}", sources.join(", "))
    }

    /// Whether a source cannot be watched and has to be read again from time to time.
    pub fn is_polled(&self) -> bool {
        let local = self.sources.last();
        local.is_some_and(|local| local.answer == Answer::Read)
    }

    /// A digest of what `reads` names: equal as long as rendering again would give the same.
    pub fn digest(&self, reads: &Reads) -> String {
        let context = self.facts.context();
        let read = match reads {
            Reads::Everything => context,
            Reads::Paths(paths) => paths
                .iter()
                .map(|path| (path.join("\n"), at(&context, path)))
                .filter_map(|(key, value)| Some((key, value?.clone())))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        };
        golib::hex::encode(&Sha256::digest(golib::json::encode(&read)))
    }
}

fn at<'a>(context: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(context, |value, key| value.get(key))
}

/// The data of a ConfigMap or Secret that holds facts: key `values` (ClusterValues alone) and key `facts` (all of
/// them), each YAML. `None` without either.
///
/// # Errors
/// [`FactsError`](super::FactsError), with the key.
pub fn facts_of(
    data: &BTreeMap<String, Vec<u8>>,
) -> Result<Option<ClusterFacts>, super::FactsError> {
    let (all, values) = (data.get(FACTS_KEY), data.get(CLUSTER_VALUES_KEY));
    if all.or(values).is_none() {
        return Ok(None);
    }
    let mut facts = match all {
        Some(text) => ClusterFacts::from_yaml(text)?,
        None => ClusterFacts::default(),
    };
    if let Some(text) = values {
        facts = facts.overlaid(ClusterFacts::from_values(text)?);
    }
    Ok(Some(facts))
}

/// The agent's own ConfigMap of facts, in its system namespace.
pub const AGENT_MAP: &str = "fleet-cluster-values";
/// Key naming the facts to read on this cluster itself, see [`LocalRequest`](super::LocalRequest).
pub const LOCAL_FACTS_KEY: &str = "local";
/// Key with the ClusterValues alone, as YAML.
const CLUSTER_VALUES_KEY: &str = "values";
/// Key with all facts, as YAML: `name`, `namespace`, `labels`, `annotations`, `templateValues`.
const FACTS_KEY: &str = "facts";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn gathered(values: Value) -> Gathered {
        let mut gathered = Gathered::default();
        let facts = ClusterFacts::from_cluster(&json!({
            "metadata": {"name": "c"}, "spec": {"templateValues": values},
        }));
        gathered.add("Cluster".into(), Answer::Read, Some(facts));
        gathered
    }

    #[test]
    fn only_facts_that_are_read_change_the_digest() {
        let path = ["ClusterValues", "a"].map(str::to_owned).to_vec();
        let reads = Reads::Paths(BTreeSet::from([path]));
        let digest = |values, reads| gathered(values).digest(reads);
        let one = digest(json!({"a": {"b": 1}, "c": 1}), &reads);
        assert_eq!(one, digest(json!({"a": {"b": 1}, "c": 2}), &reads));
        assert_ne!(one, digest(json!({"a": {"b": 2}, "c": 1}), &reads));
        assert_ne!(one, digest(json!({"c": 1}), &reads));
        let all = &Reads::Everything;
        assert_ne!(digest(json!({"c": 1}), all), digest(json!({"c": 2}), all));
    }

    #[test]
    fn sources_are_named_in_order() {
        let mut gathered = gathered(json!({}));
        gathered.add("ConfigMap a/b".into(), Answer::Absent, None);
        assert_eq!(
            gathered.summary(),
            "cluster facts: Cluster (read), ConfigMap a/b (not there)"
        );
    }

    #[test]
    fn values_lie_over_facts() {
        let data = [
            ("facts", "templateValues: {a: 1, b: 1}"),
            ("values", "b: 2"),
        ]
        .map(|(key, text)| (key.to_owned(), text.as_bytes().to_vec()));
        let facts = facts_of(&data.into()).unwrap().unwrap();
        assert_eq!(
            Value::Object(facts.template_values),
            json!({"a": 1.0, "b": 2.0})
        );
        assert!(facts_of(&BTreeMap::new()).unwrap().is_none());
        let typo = BTreeMap::from([("values".to_owned(), b"[1]".to_vec())]);
        assert!(facts_of(&typo).is_err());
    }
}
