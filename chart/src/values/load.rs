//! Reading a values file: one or more YAML documents, later ones merged over earlier ones.
//!
//! Mirrors `LoadValues` of `pkg/chart/v2/loader/load.go`, and the document reader of Kubernetes'
//! `apimachinery` it uses.

use golib::budget::Budget;
use golib::yaml;
use serde_json::{Map, Value};

use crate::depth::{TooDeep, bounded};

/// Bytes that the values of a chart and its subcharts may take, and those of its user: rendering needs them several times.
pub const MAX_VALUES: usize = 32 << 20;

/// A values file that cannot be read. The text is Helm's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadValuesError {
    /// Something other than a comment follows `---`.
    #[error("error reading yaml document: {0}")]
    Separator(#[source] yaml::SeparatorError),
    /// A document is no YAML, or no table.
    #[error("cannot unmarshal yaml document: {0}")]
    Document(#[source] yaml::Error),
    /// A document nests too deep.
    #[error("cannot unmarshal yaml document: {0}")]
    TooDeep(#[source] TooDeep),
}

/// Reads a values file into a table; an empty file is an empty table.
///
/// ```
/// let values = chart::values::load_values(b"replicas: 3\nimage: {tag: 1.10}\n")?;
/// assert_eq!(values, serde_json::json!({"replicas": 3.0, "image": {"tag": 1.1}}));
/// # Ok::<(), chart::values::LoadValuesError>(())
/// ```
///
/// # Errors
/// A document separator is followed by text, or a document is no YAML table.
pub fn load_values(data: &[u8]) -> Result<Value, LoadValuesError> {
    load_values_within(data, &mut Budget::new(MAX_VALUES))
}

/// [`load_values`] of one of several files whose values are kept.
///
/// # Errors
/// As [`load_values`], and values heavier than what is left of the budget.
pub(crate) fn load_values_within(
    data: &[u8],
    budget: &mut Budget,
) -> Result<Value, LoadValuesError> {
    let mut values = Map::new();
    for document in yaml::documents(data).map_err(LoadValuesError::Separator)? {
        let read = yaml::Decoder::new()
            .floats()
            .decode_into_map(&document, budget);
        let read = Value::Object(read.map_err(LoadValuesError::Document)?);
        let read = bounded(read).map_err(LoadValuesError::TooDeep)?;
        if let Value::Object(read) = read {
            merge_maps(&mut values, read);
        }
    }
    Ok(Value::Object(values))
}

/// `over` merged over `base`: maps merge, everything else is replaced, also by null.
///
/// ```
/// use serde_json::{Map, Value, from_str};
///
/// let mut base: Map<String, Value> = from_str(r#"{"a": {"x": 1, "y": 2}, "list": [1, 2]}"#)?;
/// chart::values::merge_maps(&mut base, from_str(r#"{"a": {"y": 3}, "list": null}"#)?);
/// assert_eq!(Value::Object(base).to_string(), r#"{"a":{"x":1,"y":3},"list":null}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn merge_maps(base: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Object(base)), Value::Object(value)) => merge_maps(base, value),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{load_values, merge_maps};
    use crate::chart::Chart;
    use crate::values::coalesce_values;

    #[test]
    fn maps_are_merged_and_all_else_is_replaced() {
        let mut base = json!({"m": {"a": 1, "b": {"c": 1}}, "s": 1, "n": {"x": 1}});
        let over = json!({"m": {"b": {"d": 2}}, "s": {"now": "map"}, "n": null});
        if let (Value::Object(base), Value::Object(over)) = (&mut base, over) {
            merge_maps(base, over);
        }
        let merged = json!({"m": {"a": 1, "b": {"c": 1, "d": 2}}, "s": {"now": "map"}, "n": null});
        assert_eq!(base, merged);
    }

    #[test]
    fn deep_values_do_not_exhaust_a_small_stack() {
        let deep = |levels: usize| format!("{}1{}", "{a: ".repeat(levels), "}".repeat(levels));
        for levels in [500, 5_000, 50_000] {
            if let Ok(values) = load_values(deep(levels).as_bytes()) {
                let chart = Chart {
                    values: values.into(),
                    ..Chart::default()
                };
                let _ = coalesce_values(&chart, &chart.values, &mut crate::Warnings::default());
            }
        }
    }
}
