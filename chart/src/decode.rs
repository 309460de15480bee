//! Reading JSON trees into our structs as Go's `encoding/json` reads into Helm's: names match
//! whatever their case, `null` changes nothing, numbers become floats, and a wrong type is told in
//! Go's words. Chart.yaml (through YAML, which also turns plain scalars into text where a string is
//! wanted) and release records are read by it.

use golib::json;
use golib::time::{RFC3339, Zone};
use serde_json::{Map, Value};

use crate::time::Time;
use crate::time::TimeError;

/// A value does not fit the field it is for. The text is Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The whole document has the wrong type.
    #[error("json: cannot unmarshal {found} into Go value of type {wanted}")]
    Document {
        /// JSON type of what was found.
        found: &'static str,
        /// Go type that was wanted.
        wanted: &'static str,
    },
    /// A field has the wrong type.
    #[error("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")]
    Field {
        /// JSON type of what was found.
        found: &'static str,
        /// Go's name of the struct the field belongs to.
        owner: &'static str,
        /// Path of field names from the document's root.
        path: String,
        /// Go type that was wanted.
        wanted: &'static str,
    },
    /// A byte field is not base64.
    #[error(transparent)]
    Base64(#[from] golib::base64::CorruptInputError),
    /// A time field is no RFC 3339 time.
    #[error("{0}")]
    Time(#[source] golib::time::ParseError),
    /// A time field is not a time.
    #[error(transparent)]
    TimeRange(TimeError),
}

impl DecodeError {
    /// The same error in a chart of the third generation, whose types are named alike.
    pub(crate) fn in_generation_3(mut self) -> Self {
        if let Self::Document { wanted, .. } | Self::Field { wanted, .. } = &mut self {
            *wanted = match *wanted {
                "v2.Metadata" => "v3.Metadata",
                "v2.Maintainer" => "v3.Maintainer",
                "[]*v2.Maintainer" => "[]*v3.Maintainer",
                "v2.Dependency" => "v3.Dependency",
                "[]*v2.Dependency" => "[]*v3.Dependency",
                "v2.Lock" => "v3.Lock",
                other => other,
            };
        }
        self
    }
}

/// Where in a document we are, and whether scalars are turned into text (YAML only).
#[derive(Debug, Clone)]
pub(crate) struct At<'a> {
    /// The struct this place is a field of.
    owner: &'static str,
    /// The struct that stands here, whose fields are below.
    inner: &'static str,
    inner_type: &'static str,
    path: String,
    parent: &'a str,
    coerce: bool,
}

impl<'a> At<'a> {
    /// The struct `inner` (Go type `inner_type`) that stands at `path` in its document.
    pub(crate) fn new(inner: &'static str, inner_type: &'static str, path: &'a str) -> Self {
        Self {
            owner: inner,
            inner,
            inner_type,
            path: path.to_owned(),
            parent: path,
            coerce: false,
        }
    }

    /// Turn numbers and booleans into text where text is wanted, as sigs.k8s.io/yaml does.
    pub(crate) fn coercing(mut self) -> Self {
        self.coerce = true;
        self
    }

    /// An element of the list or pointer at this place that is itself a struct.
    pub(crate) fn within(&self, inner: &'static str, inner_type: &'static str) -> At<'_> {
        At {
            owner: self.owner,
            inner,
            inner_type,
            path: self.path.clone(),
            parent: &self.path,
            coerce: self.coerce,
        }
    }

    pub(crate) fn mismatch(&self, value: &Value, wanted: &'static str) -> DecodeError {
        let found = json::type_name(value);
        if self.path.is_empty() {
            return DecodeError::Document { found, wanted };
        }
        DecodeError::Field {
            found,
            owner: self.owner,
            path: self.path.clone(),
            wanted,
        }
    }

    /// Calls `field` for each of the `known` fields the object has, in the object's order.
    pub(crate) fn object(
        &self,
        value: &Value,
        known: &[&'static str],
        mut field: impl FnMut(&'static str, &At<'_>, &Value) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let map: &Map<String, Value> = match value {
            Value::Null => return Ok(()),
            Value::Object(map) => map,
            other => return Err(self.mismatch(other, self.inner_type)),
        };
        for (key, value) in map {
            let exact = known.iter().find(|name| *name == key);
            let folded = || known.iter().find(|name| name.eq_ignore_ascii_case(key));
            if let Some(name) = exact.or_else(folded) {
                let path = if self.parent.is_empty() {
                    (*name).to_owned()
                } else {
                    format!("{}.{name}", self.parent)
                };
                let at = At {
                    owner: self.inner,
                    inner: self.inner,
                    inner_type: self.inner_type,
                    path,
                    parent: self.parent,
                    coerce: self.coerce,
                };
                field(name, &at, value)?;
            }
        }
        Ok(())
    }

    pub(crate) fn string(&self, value: &Value, out: &mut String) -> Result<(), DecodeError> {
        match value {
            Value::Null => {}
            Value::String(text) => text.clone_into(out),
            other => match self.coerced(other) {
                Some(text) => *out = text,
                None => return Err(self.mismatch(other, "string")),
            },
        }
        Ok(())
    }

    fn coerced(&self, value: &Value) -> Option<String> {
        match value {
            _ if !self.coerce => None,
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Number(number) if number.is_f64() => {
                // sigs.k8s.io/yaml prints floats with 32 bits.
                let float = number.as_f64()?;
                Some(golib::strconv::format_float(float, b'g', -1, 32))
            }
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    pub(crate) fn boolean(&self, value: &Value, out: &mut bool) -> Result<(), DecodeError> {
        match value {
            Value::Null => {}
            Value::Bool(flag) => *out = *flag,
            other => return Err(self.mismatch(other, "bool")),
        }
        Ok(())
    }

    /// A list's elements; `None` for `null`.
    pub(crate) fn list<'v>(
        &self,
        value: &'v Value,
        wanted: &'static str,
    ) -> Result<Option<&'v [Value]>, DecodeError> {
        match value {
            Value::Null => Ok(None),
            Value::Array(items) => Ok(Some(items)),
            other => Err(self.mismatch(other, wanted)),
        }
    }

    pub(crate) fn strings(&self, value: &Value, out: &mut Vec<String>) -> Result<(), DecodeError> {
        let Some(items) = self.list(value, "[]string")? else {
            out.clear();
            return Ok(());
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            let mut text = String::new();
            self.string(item, &mut text)?;
            texts.push(text);
        }
        *out = texts;
        Ok(())
    }

    /// A `map[string]any`: an object with float numbers, or null.
    pub(crate) fn table(&self, value: &Value) -> Result<Value, DecodeError> {
        match value {
            Value::Null | Value::Object(_) => Ok(golib::json::floats(value.clone())),
            other => Err(self.mismatch(other, "map[string]interface {}")),
        }
    }

    /// The entries of a `map[string]string`.
    pub(crate) fn entries<'v>(
        &self,
        value: &'v Value,
    ) -> Result<Option<&'v Map<String, Value>>, DecodeError> {
        match value {
            Value::Null => Ok(None),
            Value::Object(map) => Ok(Some(map)),
            other => Err(self.mismatch(other, "map[string]string")),
        }
    }

    pub(crate) fn base64(&self, value: &Value) -> Result<Option<Vec<u8>>, DecodeError> {
        match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(golib::base64::decode(text)?)),
            other => Err(self.mismatch(other, "[]uint8")),
        }
    }

    pub(crate) fn time(&self, value: &Value, out: &mut Time) -> Result<(), DecodeError> {
        match value {
            Value::Null => Ok(()),
            Value::String(text) => {
                *out = text.parse().map_err(|error: TimeError| {
                    match golib::time::Time::parse(RFC3339, text, &Zone::Utc) {
                        Err(worded) => DecodeError::Time(worded),
                        Ok(_) => DecodeError::TimeRange(error),
                    }
                })?;
                Ok(())
            }
            other => Err(self.mismatch(other, "time.Time")),
        }
    }
}

/// Go's encoding of `[]byte` in JSON.
pub(crate) fn to_base64(data: &[u8]) -> String {
    golib::base64::encode(data)
}
