//! `fleet_values.json`: values filled in with the facts of a cluster, as Fleet's controller does it.

use agent::api::HelmOptions;
use agent::values::{ClusterFacts, preprocess};
use serde_json::Value;
use templating::SystemHost;

use crate::{Case, Outcome};

pub(crate) fn run(case: &Case) -> Outcome {
    let helm: Option<HelmOptions> = case.parse("helm");
    let cluster = case.get("cluster").unwrap_or(&Value::Null);
    let facts = ClusterFacts::from_cluster(&serde_json::json!({
        "metadata": cluster,
        "spec": {"templateValues": cluster.get("templateValues")},
    }));
    match (
        preprocess(helm.as_ref(), &facts, &SystemHost, true),
        case.text("err"),
    ) {
        (Err(error), Some(want)) => Outcome::of_texts(&error.to_string(), want),
        (Err(error), None) => Outcome::failed(error, "values"),
        (Ok(values), Some(want)) => {
            Outcome::failed(values.map_or(Value::Null, Value::Object), want)
        }
        (Ok(values), None) => {
            let values = values.map_or(Value::Null, Value::Object);
            Outcome::of_values(&values, case.get("want").unwrap_or(&Value::Null))
        }
    }
}
