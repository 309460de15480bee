//! Where a resource comes from and what changed it, as the annotations of `buildMetadata` say.

use golib::path::clean_text;
use golib::yaml::node::{Kind, Node};
use serde_json::Value;

use crate::error::Result;

/// An origin, or a transformation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Origin {
    pub(crate) path: String,
    pub(crate) repo: String,
    pub(crate) reference: String,
    pub(crate) configured_in: String,
    /// API version, kind, name and namespace.
    pub(crate) configured_by: [String; 4],
}

impl Origin {
    /// A place below this one.
    pub(crate) fn append(&self, path: &str) -> Self {
        Self {
            path: join(&self.path, path),
            ..self.clone()
        }
    }

    /// What the build's own generators and transformers leave.
    pub(crate) fn of_builtin(&self, file: &str, kind: &str) -> Self {
        Self {
            path: String::new(),
            repo: self.repo.clone(),
            reference: self.reference.clone(),
            configured_in: join(&self.path, file),
            configured_by: ["builtin".into(), kind.into(), String::new(), String::new()],
        }
    }

    fn node(&self) -> Node {
        let mut node = Node::collection(Kind::Mapping);
        let mut put = |name: &str, value: &str| {
            if !value.is_empty() {
                node.content.push(Node::scalar(name));
                node.content.push(Node::string(value));
            }
        };
        put("path", &self.path);
        put("repo", &self.repo);
        put("ref", &self.reference);
        put("configuredIn", &self.configured_in);
        let mut by = Node::collection(Kind::Mapping);
        let names = ["apiVersion", "kind", "name", "namespace"];
        for (name, value) in names.into_iter().zip(&self.configured_by) {
            if !value.is_empty() {
                by.content.push(Node::scalar(name));
                by.content.push(Node::string(value));
            }
        }
        if !by.content.is_empty() {
            node.content.push(Node::scalar("configuredBy"));
            node.content.push(by);
        }
        node
    }

    pub(crate) fn to_yaml(&self) -> String {
        self.node().to_yaml()
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let value = golib::yaml::decode_into_map(text.as_bytes())?;
        Ok(Self::from_value(&Value::Object(value)))
    }

    fn from_value(value: &Value) -> Self {
        let text = |value: &Value, name: &str| {
            value
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned()
        };
        let by = value.get("configuredBy").unwrap_or(&Value::Null);
        Self {
            path: text(value, "path"),
            repo: text(value, "repo"),
            reference: text(value, "ref"),
            configured_in: text(value, "configuredIn"),
            configured_by: ["apiVersion", "kind", "name", "namespace"].map(|name| text(by, name)),
        }
    }

    /// The list of transformations with one more.
    pub(crate) fn append_to_list(list: Option<&str>, origin: &Self) -> Result<String> {
        let mut node = Node::collection(Kind::Sequence);
        if let Some(list) = list {
            for value in golib::yaml::decode_into_list(list.as_bytes())? {
                node.content.push(Self::from_value(&value).node());
            }
        }
        node.content.push(origin.node());
        Ok(node.to_yaml())
    }
}

/// `filepath.Join`.
pub(crate) fn join(one: &str, other: &str) -> String {
    let joined = match (one.is_empty(), other.is_empty()) {
        (true, true) => return String::new(),
        (true, false) => other.to_owned(),
        (false, true) => one.to_owned(),
        (false, false) => format!("{one}/{other}"),
    };
    clean_text(&joined)
}
