//! The configuration of `PrefixTransformer` and `SuffixTransformer`, which kustomize reads by yaml.v3 and not by way of JSON: every
//! scalar is a text where one is wanted, names of fields are exact, and all errors are reported at once.

use golib::budget::Budget;
use golib::yaml::node::{self, Kind, Node, tag};
use serde_json::Value;

use crate::config::FieldSpec;
use crate::error::{Error, Result};
use crate::fns::is_null;

/// A prefix or suffix, and the fields it is added to.
pub(super) struct Affix {
    pub(super) text: String,
    pub(super) specs: Vec<FieldSpec>,
}

impl Affix {
    /// The text stands in the field `name`.
    ///
    /// # Errors
    /// Fields of other types, and no fields to change.
    pub(super) fn read(config: &Value, name: &str) -> Result<Self> {
        let text = golib::yaml::encode(config)?;
        let node = node::parse(text.as_bytes(), &mut Budget::default())?;
        let mut reader = Reader::default();
        let (mut text, mut specs) = (String::new(), None);
        for (key, value) in node.iter().flat_map(Node::entries) {
            if key.value == name {
                text = reader.text(value);
            } else if key.value == "fieldSpecs" {
                specs = reader.specs(value);
            }
        }
        if !reader.problems.is_empty() {
            return Err(node::Error::Type(reader.problems).into());
        }
        let specs = specs.ok_or_else(|| Error::new("fieldSpecs is not expected to be nil"))?;
        Ok(Self { text, specs })
    }
}

/// yaml.v3's decoder.
#[derive(Default)]
struct Reader {
    problems: Vec<String>,
}

impl Reader {
    /// `decoder.terror`.
    fn wrong_type(&mut self, node: &Node, expected: &str) {
        let shown = match node.kind {
            Kind::Scalar if node.value.len() > 10 => {
                let head = String::from_utf8_lossy(&node.value.as_bytes()[..7]);
                format!(" `{head}...`")
            }
            Kind::Scalar => format!(" `{}`", node.value),
            Kind::Sequence | Kind::Mapping => String::new(),
        };
        self.problems.push(format!(
            "line {}: cannot unmarshal {}{shown} into {expected}",
            node.line,
            node.short_tag()
        ));
    }

    fn text(&mut self, node: &Node) -> String {
        match node.kind {
            Kind::Scalar if is_null(node) => String::new(),
            Kind::Scalar => node.value.clone(),
            Kind::Sequence | Kind::Mapping => {
                self.wrong_type(node, "string");
                String::new()
            }
        }
    }

    fn truth(&mut self, node: &Node) -> bool {
        match (node.short_tag(), &*node.value) {
            (tag::NULL, _) => false,
            (tag::BOOL, text) => text.eq_ignore_ascii_case("true"),
            (tag::STR, "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON") => true,
            (tag::STR, "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF") => false,
            _ => {
                self.wrong_type(node, "bool");
                false
            }
        }
    }

    fn specs(&mut self, node: &Node) -> Option<Vec<FieldSpec>> {
        match node.kind {
            Kind::Scalar if is_null(node) => None,
            Kind::Sequence => Some(
                node.content
                    .iter()
                    .filter_map(|item| self.spec(item))
                    .collect(),
            ),
            Kind::Scalar | Kind::Mapping => {
                self.wrong_type(node, "types.FsSlice");
                None
            }
        }
    }

    fn spec(&mut self, node: &Node) -> Option<FieldSpec> {
        if is_null(node) {
            return None;
        }
        if node.kind != Kind::Mapping {
            self.wrong_type(node, "types.FieldSpec");
            return None;
        }
        let mut spec = FieldSpec::default();
        for (key, value) in node.entries() {
            match &*key.value {
                "group" => spec.gvk.group = self.text(value),
                "version" => spec.gvk.version = self.text(value),
                "kind" => spec.gvk.kind = self.text(value),
                "path" => spec.path = self.text(value),
                "create" => spec.create = self.truth(value),
                _ => {}
            }
        }
        Some(spec)
    }
}
