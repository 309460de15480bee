//! `${ }` in values, filled in with the facts of the cluster.
//!
//! Mirrors `preprocessHelmValues` (`internal/cmd/controller/target/builder.go`). Upstream the
//! controller does it, and what it did arrives in the values Secret; the agent does it for values
//! that stand in the BundleDeployment itself.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use golib::budget::Budget;
use golib::yaml::Decoder;
use serde_json::Value;
use templating::{Dialect, Host, Limits, Reads, Renderer};

use super::cluster::ClusterFacts;
use super::inline::{Values, inline};
use crate::api::HelmOptions;

/// A text beginning so is replaced by the label named by the rest.
pub(super) const LABEL_REFERENCE: &str = "global.fleet.clusterLabels.";
/// How a template's action opens in Fleet's dialect.
pub(super) const OPENING: &str = "${";
const MAX_LABEL_DEPTH: usize = 50;
/// What the templates of a bundle may use together: values are small, and their author may be hostile.
const MAX_STEPS: u64 = 5_000_000;
const MAX_BYTES: u64 = 32 << 20;
/// What `template` name the errors show.
const NAME: &str = "values";

/// Why values cannot be filled in. Texts are Fleet's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// Too deep for label references.
    #[error(
        "maximum recursion depth of {MAX_LABEL_DEPTH} exceeded for cluster label prefix processing, too many nested values"
    )]
    TooDeep,
    /// The values cannot be written as YAML.
    #[error("failed to marshal helm values section into a template: {0}")]
    Encode(golib::yaml::Error),
    /// Not a template.
    #[error("failed to parse helm values template: {0}")]
    Parse(templating::Error),
    /// The template fails: a missing key, mostly.
    #[error("failed to render helm values template: {0}")]
    Render(templating::Error),
    /// The rendered text is no YAML. Carries that text, as Fleet's message does; see
    /// [`TemplateError::masked`].
    #[error("failed to interpret rendered template as helm values: {rendered}, {problem}")]
    Decode {
        rendered: String,
        problem: golib::yaml::Error,
    },
}

impl TemplateError {
    /// The text for conditions and logs: without rendered values, which may hold secrets.
    pub fn masked(&self) -> String {
        match self {
            Self::Decode { problem, .. } => {
                format!("failed to interpret rendered template as helm values: {problem}")
            }
            other => other.to_string(),
        }
    }
}

/// The values a cluster gets. `None` where Fleet leaves them unset.
///
/// Without any visible label nothing is processed, as upstream; with `requires_labels` off, the
/// missing labels do not matter.
///
/// # Errors
/// [`TemplateError`]: one bad template spoils this bundle's values, never a part of them.
pub fn preprocess(
    helm: Option<&HelmOptions>,
    facts: &ClusterFacts,
    host: &dyn Host,
    requires_labels: bool,
) -> Result<Option<Values>, TemplateError> {
    let templates = Templates::new(facts, host);
    preprocess_with(&templates, helm, facts, requires_labels)
}

/// [`preprocess`], with templates that share their limits with others of the bundle.
pub(super) fn preprocess_with(
    templates: &Templates<'_>,
    helm: Option<&HelmOptions>,
    facts: &ClusterFacts,
    requires_labels: bool,
) -> Result<Option<Values>, TemplateError> {
    let Some(helm) = helm else { return Ok(None) };
    let labels = facts.visible_labels();
    if labels.is_empty() && requires_labels {
        return Ok(helm.values.as_ref().map(|values| inline(Some(values))));
    }
    let mut values = inline(helm.values.as_ref());
    if helm.template_values.is_empty() && values.is_empty() {
        return Ok(Some(values));
    }
    replace_references(&mut values, &labels, 0)?;
    if helm.disable_pre_process {
        return Ok(Some(values));
    }
    let mut rendered = templates.values(values)?;
    for (key, template) in &helm.template_values {
        let value = templates.value(template)?;
        rendered
            .get_or_insert_with(Values::new)
            .insert(key.clone(), value);
    }
    Ok(rendered)
}

/// The facts that [`preprocess`] may read. Texts that do not parse read nothing; rendering them is the error.
pub(super) fn reads(helm: &HelmOptions) -> Reads {
    let values = inline(helm.values.as_ref());
    let mut reads = Reads::default();
    referenced(&values, &mut reads, 0);
    if helm.disable_pre_process {
        return reads;
    }
    if !values.is_empty() {
        let text = golib::yaml::encode(&Value::Object(values));
        reads.extend(text.map_or(Reads::Everything, |text| text_reads(&text)));
    }
    for template in helm.template_values.values() {
        reads.extend(text_reads(template));
    }
    reads
}

/// The facts that one text reads.
pub(super) fn text_reads(text: &str) -> Reads {
    let mut set = Dialect::Fleet.template_set(NAME);
    let parsed = set.parse(NAME, text);
    parsed
        .ok()
        .and_then(|()| set.reads(NAME))
        .unwrap_or_default()
}

/// The labels that [`replace_references`] puts in.
fn referenced(values: &Values, reads: &mut Reads, depth: usize) {
    if depth > MAX_LABEL_DEPTH {
        return;
    }
    for value in values.values() {
        match value {
            Value::String(text) => {
                if let Some(label) = text.strip_prefix(LABEL_REFERENCE) {
                    let path = vec!["ClusterLabels".to_owned(), label.to_owned()];
                    reads.extend(Reads::Paths([path].into()));
                }
            }
            Value::Object(map) => referenced(map, reads, depth + 1),
            Value::Array(items) => {
                for map in items.iter().filter_map(Value::as_object) {
                    referenced(map, reads, depth + 1);
                }
            }
            _ => {}
        }
    }
}

/// Texts in maps, and in maps inside lists; not texts that stand in a list themselves.
fn replace_references(
    values: &mut Values,
    labels: &BTreeMap<&str, &str>,
    depth: usize,
) -> Result<(), TemplateError> {
    if depth > MAX_LABEL_DEPTH {
        return Err(TemplateError::TooDeep);
    }
    for value in values.values_mut() {
        match value {
            Value::String(text) => {
                if let Some(label) = text.strip_prefix(LABEL_REFERENCE) {
                    *value = Value::String(labels.get(label).copied().unwrap_or_default().into());
                }
            }
            Value::Object(map) => replace_references(map, labels, depth + 1)?,
            Value::Array(items) => {
                for item in items {
                    if let Value::Object(map) = item {
                        replace_references(map, labels, depth + 1)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The texts of a bundle that are templates, each of its own, with one set of limits for all of them.
pub(super) struct Templates<'a> {
    dot: templating::Value,
    host: &'a dyn Host,
    renderer: RefCell<Renderer<'a>>,
    /// Memory budget of the rendered texts.
    budget: RefCell<Budget>,
}

impl<'a> Templates<'a> {
    pub(super) fn new(facts: &ClusterFacts, host: &'a dyn Host) -> Self {
        let limits = Limits {
            steps: MAX_STEPS,
            bytes: MAX_BYTES,
            ..Limits::default()
        };
        Self {
            dot: templating::Value::from(&facts.context()),
            host,
            renderer: RefCell::new(Renderer::new(
                Arc::new(Dialect::Fleet.template_set(NAME)),
                host,
                limits,
            )),
            budget: RefCell::new(super::budget()),
        }
    }

    /// Renders one text with the facts of the cluster.
    ///
    /// # Errors
    /// [`TemplateError`], with `name` as the name of the template.
    pub(super) fn text(&self, name: &str, text: &str) -> Result<String, TemplateError> {
        let rendered = self.render(name, text.as_bytes().to_vec())?;
        Ok(String::from_utf8_lossy(&rendered).into_owned())
    }

    /// The whole map is one template: its YAML.
    fn values(&self, values: Values) -> Result<Option<Values>, TemplateError> {
        let text = golib::yaml::encode(&Value::Object(values)).map_err(TemplateError::Encode)?;
        let rendered = self.render(NAME, text.into_bytes())?;
        // Go prints its nil map here, whatever was rendered.
        let unset = || "map[string]interface {}(nil)".to_owned();
        let decoder = Decoder::new().floats();
        match decoder.decode_into_map(&rendered, &mut self.budget.borrow_mut()) {
            Ok(values) if values.is_empty() => {
                let is_null = golib::yaml::decode(&rendered).is_ok_and(|value| value.is_null());
                Ok((!is_null).then_some(values))
            }
            Ok(values) => Ok(Some(values)),
            Err(problem) => Err(TemplateError::Decode {
                rendered: unset(),
                problem,
            }),
        }
    }

    /// One of `templateValues`: any YAML may come out.
    fn value(&self, template: &str) -> Result<Value, TemplateError> {
        let rendered = self.render(NAME, template.as_bytes().to_vec())?;
        let decoded = Decoder::new()
            .floats()
            .decode(&rendered, &mut self.budget.borrow_mut());
        decoded.map_err(|problem| TemplateError::Decode {
            rendered: String::from_utf8_lossy(&rendered).into_owned(),
            problem,
        })
    }

    fn render(&self, name: &str, text: Vec<u8>) -> Result<Vec<u8>, TemplateError> {
        let mut set = Dialect::Fleet.template_set(name);
        set.parse(name, text).map_err(TemplateError::Parse)?;
        self.host.check().map_err(TemplateError::Render)?;
        let mut renderer = self.renderer.borrow_mut();
        renderer.go_on_with(Arc::new(set));
        renderer
            .render(name, &self.dot)
            .map_err(TemplateError::Render)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use templating::SystemHost;

    use super::*;

    #[test]
    fn masked_errors_quote_no_rendered_values() {
        let facts = ClusterFacts {
            labels: BTreeMap::from([("password".into(), "hunter2: : x".into())]),
            ..ClusterFacts::default()
        };
        let helm: HelmOptions = serde_json::from_value(
            json!({"templateValues": {"a": "x: ${ .ClusterLabels.password }"}}),
        )
        .unwrap();
        let error = preprocess(Some(&helm), &facts, &SystemHost, true).unwrap_err();
        assert!(error.to_string().contains("hunter2"));
        assert!(!error.masked().contains("hunter2"), "{}", error.masked());
    }

    #[test]
    fn the_texts_of_a_bundle_share_their_limits() {
        let helm = |count: usize| -> HelmOptions {
            let text = "${ $l := until 300 }${ range $l }${ range $l }${ end }${ end }";
            let all: serde_json::Map<_, _> = (0..count)
                .map(|at| (format!("k{at}"), json!(text)))
                .collect();
            serde_json::from_value(json!({ "templateValues": all })).unwrap()
        };
        let facts = ClusterFacts::default();
        let filled = |count| preprocess(Some(&helm(count)), &facts, &SystemHost, false);
        assert!(filled(3).is_ok());
        let reported = filled(1_000).unwrap_err().to_string();
        assert!(reported.contains("steps"), "{reported}");
        let many: serde_json::Map<_, _> = (0..15)
            .map(|at| (format!("k{at}"), json!("[${ repeat 150000 `{},` }{}]")))
            .collect();
        let helm: HelmOptions = serde_json::from_value(json!({ "templateValues": many })).unwrap();
        let filled = preprocess(Some(&helm), &facts, &SystemHost, false);
        let reported = filled.map(drop).unwrap_err().masked();
        assert!(reported.contains("more than 24 MiB"), "{reported}");
    }

    #[test]
    fn labels_may_be_missing_where_the_agent_decides() {
        let helm: HelmOptions =
            serde_json::from_value(json!({"values": {"a": "${ .ClusterName }"}})).unwrap();
        let facts = ClusterFacts {
            name: "c".into(),
            ..ClusterFacts::default()
        };
        let values = |requires| {
            preprocess(Some(&helm), &facts, &SystemHost, requires)
                .unwrap()
                .unwrap()
        };
        assert_eq!(values(true)["a"], "${ .ClusterName }");
        assert_eq!(values(false)["a"], "c");
    }

    /// As deep as an API object can be.
    #[test]
    fn values_nested_too_deep_are_an_error() {
        let mut deep = Value::String("${ .ClusterName }".into());
        for _ in 0..120 {
            deep = json!({"a": deep});
        }
        let helm = HelmOptions {
            values: deep.as_object().cloned(),
            ..HelmOptions::default()
        };
        let facts = ClusterFacts::default();
        let failed = preprocess(Some(&helm), &facts, &SystemHost, false).unwrap_err();
        assert!(matches!(failed, TemplateError::TooDeep));
        assert_eq!(reads(&helm), text_reads("${ .ClusterName }"));
    }

    #[test]
    fn endless_templates_are_an_error() {
        let facts = ClusterFacts {
            labels: BTreeMap::from([("a".into(), "b".into())]),
            ..ClusterFacts::default()
        };
        for template in [
            "${ define \"x\" }${ template \"x\" }${ end }${ template \"x\" }",
            "${ range until 100000000 }x${ end }",
            "${ repeat 1000000000 \"x\" }",
            "${ range until 100000 }[${ end }",
            "${ range until 100000 }{a: ${ end }",
        ] {
            let helm: HelmOptions =
                serde_json::from_value(json!({"templateValues": {"a": template}})).unwrap();
            assert!(
                preprocess(Some(&helm), &facts, &SystemHost, true).is_err(),
                "{template}"
            );
        }
    }
}
