//! JSON patches (RFC 6902) as `evanphx/json-patch` 4.13 reads and applies them.

use golib::budget::weigh;
use golib::json::{self, pointer};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::loader::Build;

/// The operations of a patch; none for a null one.
#[derive(Clone)]
pub(crate) struct JsonPatch {
    operations: Option<Vec<Map<String, Value>>>,
}

impl JsonPatch {
    /// A patch in JSON, or in YAML that does not begin with a bracket.
    pub(crate) fn parse(text: &[u8], build: &Build<'_>) -> Result<Self> {
        let value = if text.first() == Some(&b'[') {
            json::decode_within(text, &mut build.document())?
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
        let mut put = |value: &Value, path: &str| {
            crate::fns::expect_depth(path.matches('/').count() + json::depth(value))?;
            build.grow_by(size_of::<Value>() + weigh(value))
        };
        for operation in self.operations.iter().flatten() {
            for path in ["from", "path"] {
                let path = operation.get(path).and_then(Value::as_str).unwrap_or("");
                // Elements of a list move: some 500 in a microsecond.
                let moved = pointer::behind(document, path) / 512;
                build.work(1 + path.len() / 128 + moved)?;
            }
            json::patch::apply(document, operation, &mut put, json::patch::same)?;
        }
        Ok(())
    }
}

fn wrong_type(value: &Value, expected: &'static str) -> Error {
    json::Error::wrong_type(value, expected).into()
}
