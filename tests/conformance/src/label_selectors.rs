//! `label_selectors.json`: what a selector of labels says, what it matches, and why it is refused.

use std::collections::BTreeMap;

use agent::api::Selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use crate::{Case, Outcome};

pub(crate) fn run(case: &Case) -> Outcome {
    let Some(selector) = case.parse::<LabelSelector>("selector") else {
        return Outcome::failed("no selector", "a selector");
    };
    let selector = match (Selector::new(&selector), case.text("err")) {
        (Err(error), Some(want)) => return Outcome::of_texts(&error.to_string(), want),
        (Err(error), None) => return Outcome::failed(error, "a selector"),
        (Ok(selector), Some(want)) => return Outcome::failed(selector, want),
        (Ok(selector), None) => selector,
    };
    let text = Outcome::of_texts(&selector.to_string(), case.text("text").unwrap_or_default());
    let looks = case.value("looks").as_array().into_iter().flatten();
    let looks = looks.map(|look| {
        let labels: Option<BTreeMap<String, String>> =
            serde_json::from_value(look["labels"].clone()).unwrap_or_default();
        let matches = selector.matches(&labels.unwrap_or_default());
        Outcome::of_values(&Value::Bool(matches), &look["matches"])
    });
    Outcome::all(std::iter::once(text).chain(looks))
}
