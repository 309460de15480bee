//! Selectors of labels. There is none that was not checked: one that says what no label can be would match by accident, a `NotIn` everything.
//!
//! The checks, the words and what is matched are apimachinery's (`metav1.LabelSelectorAsSelector`, `labels.NewRequirement`).

use std::collections::BTreeMap;
use std::fmt;

use golib::validation::API_SERVER;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// A label selector.
#[derive(Debug)]
pub struct Selector(Vec<Requirement>);

/// Why a selector is none: what is wrong with the first of its requirements that is not as it must be.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSelector(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

#[derive(Debug)]
struct Requirement {
    key: String,
    operator: Operator,
    /// In their order.
    values: Vec<String>,
}

impl Selector {
    /// # Errors
    /// What Kubernetes refuses of it.
    pub fn new(selector: &LabelSelector) -> Result<Self, InvalidSelector> {
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            let values = vec![value.clone()];
            requirements.push(Requirement::new(key, Operator::Equals, values)?);
        }
        for expression in selector.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    let quoted = golib::strconv::quote(other);
                    return Err(InvalidSelector(format!(
                        "{quoted} is not a valid label selector operator"
                    )));
                }
            };
            let values = expression.values.clone().unwrap_or_default();
            requirements.push(Requirement::new(&expression.key, operator, values)?);
        }
        requirements.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(Self(requirements))
    }

    /// Whether the selector matches these labels.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl Requirement {
    fn new(
        key: &str,
        operator: Operator,
        mut values: Vec<String>,
    ) -> Result<Self, InvalidSelector> {
        let mut problems = Vec::new();
        if let Some(problem) = API_SERVER.invalid_label_key(key) {
            let quoted = golib::strconv::quote(key);
            problems.push(format!("key: Invalid value: {quoted}: {problem}"));
        }
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => problems.push(
                "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty".to_owned(),
            ),
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                let values = golib::json::encode(&values.clone().into());
                problems.push(format!(
                    "values: Invalid value: {values}: values set must be empty for exists and does not exist"
                ));
            }
            _ => {}
        }
        for (at, value) in values.iter().enumerate() {
            if let Some(problem) = API_SERVER.invalid_label_value(value) {
                let quoted = golib::strconv::quote(value);
                problems.push(format!(
                    "values[{at}][{key}]: Invalid value: {quoted}: {problem}"
                ));
            }
        }
        match problems.as_slice() {
            [] => {}
            [problem] => return Err(InvalidSelector(problem.clone())),
            problems => return Err(InvalidSelector(format!("[{}]", problems.join(", ")))),
        }
        values.sort_unstable();
        Ok(Self {
            key: key.to_owned(),
            operator,
            values,
        })
    }

    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let is_listed = || value.is_some_and(|value| self.values.binary_search(value).is_ok());
        match self.operator {
            Operator::Equals | Operator::In => is_listed(),
            Operator::NotIn => !is_listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let values = self.values.join(",");
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
        }
    }
}
