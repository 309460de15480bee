//! Label and field selectors.

use serde_json::Value;

use super::request::{Answer, Request};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    /// A field of metadata.
    Field(String, String),
}

/// What a list or a watch is limited to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Rule>);

impl Rule {
    /// Whether its key and its values are made of what keys and values of labels are made of.
    fn is_well_formed(&self) -> bool {
        let is_of = |text: &str, more: &str| {
            text.chars()
                .all(|one| one.is_ascii_alphanumeric() || more.contains(one))
        };
        let (key, values) = match self {
            Self::In(key, values) | Self::NotIn(key, values) => (key, values.as_slice()),
            Self::Exists(key) | Self::Absent(key) | Self::Field(key, _) => (key, &[][..]),
        };
        !key.is_empty() && is_of(key, "-_./") && values.iter().all(|value| is_of(value, "-_."))
    }
}

impl Selector {
    /// What a request limits itself to, of a kind.
    pub(crate) fn of(request: &Request, plural: &str) -> Result<Self, Answer> {
        let mut rules = Vec::new();
        for part in split(request.parameter("labelSelector")) {
            let rule = label(part.trim());
            let rule = rule.filter(Rule::is_well_formed);
            rules
                .push(rule.ok_or_else(|| Answer::not_modelled(&format!("label selector {part}")))?);
        }
        for part in split(request.parameter("fieldSelector")) {
            let Some((field, value)) = part.split_once('=') else {
                return Err(Answer::not_modelled(&format!("field selector {part}")));
            };
            match field {
                "metadata.name" | "metadata.namespace" => {}
                "type" if plural == "secrets" => {}
                field => return Err(Answer::not_modelled(&format!("field selector {field}"))),
            }
            let value = value.trim_start_matches('=');
            rules.push(Rule::Field(field.to_owned(), value.to_owned()));
        }
        Ok(Self(rules))
    }

    pub(crate) fn fits(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        let label = |key: &str| {
            labels
                .and_then(|labels| labels.get(key))
                .and_then(Value::as_str)
        };
        self.0.iter().all(|rule| match rule {
            Rule::In(key, values) => {
                label(key).is_some_and(|found| values.iter().any(|value| value == found))
            }
            Rule::NotIn(key, values) => {
                label(key).is_none_or(|found| values.iter().all(|value| value != found))
            }
            Rule::Exists(key) => label(key).is_some(),
            Rule::Absent(key) => label(key).is_none(),
            Rule::Field(field, value) => {
                let pointer = format!("/{}", field.replace('.', "/"));
                object.pointer(&pointer).and_then(Value::as_str) == Some(value)
            }
        })
    }
}

/// The parts between commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text.is_empty() {
        parts.push(&text[start..]);
    }
    parts
}

/// None where the values of a set are in no brackets.
fn label(rule: &str) -> Option<Rule> {
    let values = |list: &str| -> Option<Vec<String>> {
        let list = list.trim().strip_prefix('(')?.strip_suffix(')')?;
        let values = list.split(',');
        Some(values.map(|value| value.trim().to_owned()).collect())
    };
    if let Some((key, list)) = rule.split_once(" notin ") {
        return Some(Rule::NotIn(key.trim().to_owned(), values(list)?));
    }
    if let Some((key, list)) = rule.split_once(" in ") {
        return Some(Rule::In(key.trim().to_owned(), values(list)?));
    }
    if let Some((key, value)) = rule.split_once("!=") {
        let values = vec![value.trim().to_owned()];
        return Some(Rule::NotIn(key.trim().to_owned(), values));
    }
    if let Some((key, value)) = rule.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        let values = vec![value.trim().to_owned()];
        return Some(Rule::In(key.trim().to_owned(), values));
    }
    Some(match rule.strip_prefix('!') {
        Some(key) => Rule::Absent(key.to_owned()),
        None => Rule::Exists(rule.to_owned()),
    })
}
