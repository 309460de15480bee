//! Looking values up by a dotted path, as conditions and tags do.

use golib::strconv::quote;
use serde_json::{Map, Value};

/// A path leads nowhere. The text is Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path is empty.
    #[error("YAML path cannot be empty")]
    Empty,
    /// This element is missing or no table.
    #[error("{} is not a table", quote(.0.as_bytes()))]
    NoTable(String),
    /// The last element is missing or a table.
    #[error("{} is not a value", quote(.0.as_bytes()))]
    NoValue(String),
}

/// The table at a dotted path.
///
/// ```
/// use chart::values::{PathError, table};
/// use serde_json::json;
///
/// let values = json!({"db": {"auth": {"user": "web"}}});
/// assert_eq!(table(&values, "db.auth")?["user"], "web");
/// assert!(matches!(table(&values, "db.auth.user"), Err(PathError::NoTable(_))));
/// # Ok::<(), PathError>(())
/// ```
///
/// # Errors
/// An element of the path is missing or no table.
pub fn table<'v>(values: &'v Value, path: &str) -> Result<&'v Map<String, Value>, PathError> {
    let mut current = values.as_object();
    for key in path.split('.') {
        current = current
            .and_then(|map| map.get(key))
            .and_then(Value::as_object);
        if current.is_none() {
            return Err(PathError::NoTable(key.to_owned()));
        }
    }
    current.ok_or_else(|| PathError::NoTable(path.to_owned()))
}

/// The value at a dotted path; it may be null but no table.
///
/// ```
/// use chart::values::{PathError, path_value};
///
/// let values = serde_json::json!({"db": {"enabled": true}});
/// assert_eq!(path_value(&values, "db.enabled")?, true);
/// assert!(matches!(path_value(&values, "db"), Err(PathError::NoValue(_))));
/// # Ok::<(), PathError>(())
/// ```
///
/// # Errors
/// The path is empty, or what it leads to is missing or a table.
pub fn path_value<'v>(values: &'v Value, path: &str) -> Result<&'v Value, PathError> {
    if path.is_empty() {
        return Err(PathError::Empty);
    }
    let (parent, key) = match path.rsplit_once('.') {
        Some((parent, key)) => (table(values, parent).ok(), key),
        None => (values.as_object(), path),
    };
    parent
        .and_then(|map| map.get(key))
        .filter(|value| !value.is_object())
        .ok_or_else(|| PathError::NoValue(key.to_owned()))
}
