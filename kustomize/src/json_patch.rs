//! JSON patches (RFC 6902) as `evanphx/json-patch` 4.13 applies them, words included: replacing what is not there adds it, and
//! indices may count from the end.

use golib::json::pointer;
use serde_json::{Map, Number, Value};

use crate::error::{Error, Result};
use crate::loader::Build;

/// The operations of a patch; none for a null one.
#[derive(Clone)]
pub(crate) struct JsonPatch {
    operations: Option<Vec<Map<String, Value>>>,
}

const MISSING: &str = "missing value";

impl JsonPatch {
    /// A patch in JSON, or in YAML that does not begin with a bracket.
    pub(crate) fn parse(text: &[u8], build: &Build<'_>) -> Result<Self> {
        let value = if text.first() == Some(&b'[') {
            golib::json::decode_within(text, &mut build.document())?
        } else {
            crate::decode::yaml_to_json(text, build)?
        };
        Self::from_value(value)
    }

    fn from_value(value: Value) -> Result<Self> {
        let operations = match value {
            Value::Null => None,
            Value::Array(items) => {
                let mut operations = Vec::with_capacity(items.len());
                for item in items {
                    match item {
                        Value::Object(operation) => operations.push(operation),
                        Value::Null => operations.push(Map::new()),
                        other => return Err(wrong_type(&other, "jsonpatch.Operation")),
                    }
                }
                Some(operations)
            }
            other => return Err(wrong_type(&other, "jsonpatch.Patch")),
        };
        Ok(Self { operations })
    }

    /// As of null.
    pub(crate) fn none() -> Self {
        Self { operations: None }
    }

    /// `false` for null.
    pub(crate) fn is_there(&self) -> bool {
        self.operations.is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.operations.as_ref().map_or(0, Vec::len)
    }

    /// # Errors
    /// At the first operation that does not apply, in the words of the original.
    pub(crate) fn apply(&self, document: &mut Value, build: &Build<'_>) -> Result<()> {
        for operation in self.operations.iter().flatten() {
            apply(document, operation, build)?;
        }
        Ok(())
    }
}

fn wrong_type(value: &Value, expected: &'static str) -> Error {
    golib::json::Error::wrong_type(value, expected).into()
}

/// A text of an operation: `None` when it is missing, an error when it is no text.
fn text<'a>(operation: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>> {
    match operation.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(other, "string")),
    }
}

/// Counts a value that is put at the end of a path, and how deep it is there.
fn count(value: &Value, path: &str, build: &Build<'_>) -> Result<()> {
    /// What a map takes for each few of its entries, and for the first one.
    const MAP_NODE: usize = 640;
    const MAP_NODE_ENTRIES: usize = 6;
    fn weight(value: &Value, depth: usize) -> Result<usize> {
        crate::fns::expect_depth(depth)?;
        let inner = match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().try_fold(0, |sum, item| {
                Ok::<_, Error>(sum + weight(item, depth + 1)?)
            })?,
            Value::Object(entries) => entries.iter().try_fold(
                MAP_NODE * entries.len().div_ceil(MAP_NODE_ENTRIES),
                |sum, (key, value)| Ok::<_, Error>(sum + key.len() + weight(value, depth + 1)?),
            )?,
            _ => 0,
        };
        Ok(size_of::<Value>() + inner)
    }
    build.grow_by(weight(value, path.matches('/').count())?)
}

fn apply(document: &mut Value, operation: &Map<String, Value>, build: &Build<'_>) -> Result<()> {
    let kind = match text(operation, "op") {
        Ok(Some(kind)) => kind,
        Ok(None) | Err(_) => "unknown",
    };
    let fail = |message: String| Err(Error::new(message));
    let path = |what: &str| match text(operation, "path") {
        Ok(Some(path)) => Ok(path.to_owned()),
        Ok(None) => Err(Error::new(format!(
            "{kind} operation failed to decode path: operation missing path field: {MISSING}"
        ))),
        Err(error) => Err(error.context(what)),
    };
    let path_or_missing = || {
        path("")
            .map_err(|_| Error::new(format!("{kind} operation failed to decode path: {MISSING}")))
    };
    let from = || match text(operation, "from") {
        Ok(Some(from)) => Ok(from.to_owned()),
        Ok(None) => Err(Error::new(format!(
            "{kind} operation failed to decode from: operation, missing from field: {MISSING}"
        ))),
        Err(error) => Err(error.context(format!("{kind} operation failed to decode from"))),
    };
    let missing = |what: &str, path: &str| {
        Error::new(format!(
            "{kind} operation does not apply: {what}: {path}: {MISSING}"
        ))
    };
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match kind {
        "add" => {
            let path = path_or_missing()?;
            let (container, key) = pointer::parent(document, &path)
                .ok_or_else(|| missing("doc is missing path", &quoted(&path)))?;
            let value = value();
            count(&value, &path, build)?;
            pointer::add(container, &key, value).map_err(within("add for path", &path))
        }
        "remove" => {
            let path = path_or_missing()?;
            let (container, key) = pointer::parent(document, &path)
                .ok_or_else(|| missing("doc is missing path", &quoted(&path)))?;
            let removed = pointer::remove(container, &key);
            removed.map(drop).map_err(within("remove for path", &path))
        }
        "replace" => {
            let path = path("replace operation failed to decode path")?;
            if path.is_empty() {
                return match value() {
                    new @ (Value::Object(_) | Value::Array(_)) => {
                        *document = new;
                        Ok(())
                    }
                    _ => fail("replace operation value must be object or array: %!w(<nil>)".into()),
                };
            }
            let (container, key) = pointer::parent(document, &path)
                .ok_or_else(|| missing("doc is missing path", &path))?;
            let value = value();
            count(&value, &path, build)?;
            pointer::replace(container, &key, value)
                .map_err(|_| missing("doc is missing key", &path))
        }
        "move" => {
            let from = from()?;
            let (container, key) = pointer::parent(document, &from)
                .ok_or_else(|| missing("doc is missing from path", &from))?;
            let moved = pointer::remove(container, &key).map_err(within("move for path", &key))?;
            let path = path("move operation failed to decode path")?;
            let (container, key) = pointer::parent(document, &path)
                .ok_or_else(|| missing("doc is missing destination path", &path))?;
            count(&moved, &path, build)?;
            pointer::add(container, &key, moved).map_err(within("move for path", &path))
        }
        "test" => {
            let path = path("test operation failed to decode path")?;
            let expected = value();
            let found = match path.as_str() {
                "" => &*document,
                path => {
                    let (container, key) = pointer::parent(document, path)
                        .ok_or_else(|| missing("is missing path", path))?;
                    let found = pointer::get(container, &key);
                    found
                        .map_err(within("test for path", path))?
                        .unwrap_or(&Value::Null)
                }
            };
            match is_equal(found, &expected) {
                true => Ok(()),
                false => fail(format!("testing value {path} failed: test failed")),
            }
        }
        "copy" => {
            let from = from()?;
            let (container, key) = pointer::parent(document, &from)
                .ok_or_else(|| missing("doc is missing from path", &from))?;
            let copied = pointer::get(container, &key).map_err(within("copy for from", &from))?;
            if let Some(copied) = copied {
                count(copied, "", build)?;
            }
            let copied = copied.cloned().unwrap_or(Value::Null);
            let path = path_or_missing()?;
            count(&copied, &path, build)?;
            let (container, key) = pointer::parent(document, &path)
                .ok_or_else(|| missing("doc is missing destination path", &path))?;
            pointer::add(container, &key, copied)
                .map_err(|error| Error::new(error).context("error while adding value during copy"))
        }
        _ => fail(format!("Unexpected kind: {kind}")),
    }
}

/// What is wrong with a place that an operation names.
fn within(operation: &str, place: &str) -> impl FnOnce(String) -> Error {
    move |error| Error::new(error).context(format!("error in {operation}: '{place}'"))
}

fn quoted(path: &str) -> String {
    format!("\"{path}\"")
}

/// As texts of JSON are equal, whatever the order of their fields: there `1.0` is `1`.
fn is_equal(one: &Value, other: &Value) -> bool {
    golib::json::equal(one, other, |one, other| {
        let text = |number: &Number| golib::json::encode(&Value::Number(number.clone()));
        text(one) == text(other)
    })
}
