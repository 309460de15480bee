//! JSON patches (RFC 6902) as `evanphx/json-patch` 4.13 applies them, words included: replacing what is not there adds it, and
//! indices may count from the end.

use golib::strconv::atoi;
use serde_json::{Map, Value};

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
            let (container, key) = find(document, &path)
                .ok_or_else(|| missing("doc is missing path", &quoted(&path)))?;
            let value = value();
            count(&value, &path, build)?;
            add(container, &key, value)
                .map_err(|error| error.context(format!("error in add for path: '{path}'")))
        }
        "remove" => {
            let path = path_or_missing()?;
            let (container, key) = find(document, &path)
                .ok_or_else(|| missing("doc is missing path", &quoted(&path)))?;
            remove(container, &key)
                .map(|_| ())
                .map_err(|error| error.context(format!("error in remove for path: '{path}'")))
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
            let (container, key) =
                find(document, &path).ok_or_else(|| missing("doc is missing path", &path))?;
            count(operation.get("value").unwrap_or(&Value::Null), &path, build)?;
            if get(container, &key).is_err() {
                return Err(missing("doc is missing key", &path));
            }
            match container {
                Value::Object(entries) => {
                    entries.insert(key, value());
                }
                Value::Array(items) => {
                    let index = index_of(&key, items.len())?;
                    if let Some(item) = items.get_mut(index) {
                        *item = value();
                    }
                }
                _ => {}
            }
            Ok(())
        }
        "move" => {
            let from = from()?;
            let (container, key) =
                find(document, &from).ok_or_else(|| missing("doc is missing from path", &from))?;
            let moved = get(container, &key)
                .map(|value| value.cloned().unwrap_or(Value::Null))
                .and_then(|value| remove(container, &key).map(|_| value))
                .map_err(|error| error.context(format!("error in move for path: '{key}'")))?;
            let path = path("move operation failed to decode path")?;
            let (container, key) = find(document, &path)
                .ok_or_else(|| missing("doc is missing destination path", &path))?;
            count(&moved, &path, build)?;
            add(container, &key, moved)
                .map_err(|error| error.context(format!("error in move for path: '{path}'")))
        }
        "test" => {
            let path = path("test operation failed to decode path")?;
            let expected = value();
            let failed = || Error::new(format!("testing value {path} failed: test failed"));
            if path.is_empty() {
                return match is_equal(document, &expected) {
                    true => Ok(()),
                    false => Err(failed()),
                };
            }
            let (container, key) =
                find(document, &path).ok_or_else(|| missing("is missing path", &path))?;
            let found = get(container, &key)
                .map_err(|error| error.context(format!("error in test for path: '{path}'")))?;
            match is_equal(found.unwrap_or(&Value::Null), &expected) {
                true => Ok(()),
                false => Err(failed()),
            }
        }
        "copy" => {
            let from = from()?;
            let (container, key) =
                find(document, &from).ok_or_else(|| missing("doc is missing from path", &from))?;
            let copied = get(container, &key)
                .map_err(|error| error.context(format!("error in copy for from: '{from}'")))?;
            if let Some(copied) = copied {
                count(copied, "", build)?;
            }
            let copied = copied.cloned().unwrap_or(Value::Null);
            let path = path_or_missing()?;
            count(&copied, &path, build)?;
            let (container, key) = find(document, &path)
                .ok_or_else(|| missing("doc is missing destination path", &path))?;
            add(container, &key, copied)
                .map_err(|error| error.context("error while adding value during copy"))
        }
        _ => fail(format!("Unexpected kind: {kind}")),
    }
}

fn quoted(path: &str) -> String {
    format!("\"{path}\"")
}

/// The collection that a path's last part names something in, and that part.
fn find<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let mut parts: Vec<&str> = path.split('/').collect();
    if parts.len() < 2 {
        return None;
    }
    let key = unescape(parts.pop()?);
    let mut found = document;
    for part in &parts[1..] {
        let part = unescape(part);
        found = match found {
            Value::Object(entries) => entries.get_mut(&part)?,
            Value::Array(items) => {
                let index = index_of(&part, items.len()).ok()?;
                items.get_mut(index)?
            }
            _ => return None,
        };
        if !found.is_object() && !found.is_array() {
            return None;
        }
    }
    Some((found, key))
}

fn unescape(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    let mut rest = part;
    while let Some(at) = rest.find('~') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(tail) = rest.strip_prefix("~1") {
            out.push('/');
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix("~0") {
            out.push('~');
            rest = tail;
        } else {
            out.push('~');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    out
}

fn invalid_index(index: i64) -> Error {
    Error::new(format!(
        "Unable to access invalid index: {index}: invalid index referenced"
    ))
}

/// A place among `length`, counted from the end where negative. It may be `length` and more.
fn index_of(key: &str, length: usize) -> Result<usize> {
    let index = atoi(key).map_err(|error| Error::new(error.to_string()))?;
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let place = if index < 0 { index + length } else { index };
    usize::try_from(place).map_err(|_| invalid_index(index))
}

fn get<'a>(container: &'a Value, key: &str) -> Result<Option<&'a Value>> {
    match container {
        Value::Object(entries) => Ok(entries.get(key)),
        Value::Array(items) => {
            let index = index_of(key, items.len())?;
            match items.get(index) {
                Some(item) => Ok(Some(item)),
                None => Err(invalid_index(i64::try_from(index).unwrap_or(i64::MAX))),
            }
        }
        _ => Ok(None),
    }
}

fn add(container: &mut Value, key: &str, value: Value) -> Result<()> {
    match container {
        Value::Object(entries) => {
            entries.insert(key.to_owned(), value);
            Ok(())
        }
        Value::Array(items) if key == "-" => {
            items.push(value);
            Ok(())
        }
        Value::Array(items) => {
            let index = atoi(key).map_err(|error| {
                Error::new(format!(
                    "value was not a proper array index: '{key}': {error}"
                ))
            })?;
            // Counted from the end it may be behind it.
            let place = index_of(key, items.len() + usize::from(index < 0))?;
            if place > items.len() {
                return Err(invalid_index(index));
            }
            items.insert(place, value);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn remove(container: &mut Value, key: &str) -> Result<Value> {
    match container {
        Value::Object(entries) => entries.remove(key).ok_or_else(|| {
            Error::new(format!(
                "Unable to remove nonexistent key: {key}: {MISSING}"
            ))
        }),
        Value::Array(items) => {
            let index = index_of(key, items.len())?;
            if index >= items.len() {
                return Err(invalid_index(i64::try_from(index).unwrap_or(i64::MAX)));
            }
            Ok(items.remove(index))
        }
        _ => Ok(Value::Null),
    }
}

/// As texts of JSON are equal, whatever the order of their fields: there `1.0` is `1`.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(_), Value::Number(_)) => {
            golib::json::encode(one) == golib::json::encode(other)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has = |(name, value): (&String, &Value)| {
                other.get(name).is_some_and(|found| is_equal(value, found))
            };
            one.len() == other.len() && one.iter().all(has)
        }
        _ => one == other,
    }
}
