//! Reading JSON trees into structs as Go's `encoding/json` reads: names match whatever their case, `null` changes nothing, numbers
//! become floats, and a wrong type is told in Go's words.

use std::borrow::Cow;
use std::str::FromStr;

use serde_json::{Map, Value};

use super::{encode_raw, floats, type_name};
use crate::base64::{self, CorruptInputError};
use crate::time::{ParseError, RFC3339, RFC3339_NANO, Time, Zone};

/// A value of another type than its place has: Go's `*json.UnmarshalTypeError`, printed as Go prints it.
///
/// ```
/// use golib::json::Mismatch;
///
/// let error = Mismatch::new(&serde_json::json!([]), "string").of("Metadata", "name");
/// assert_eq!(error.to_string(), "json: cannot unmarshal array into Go struct field Metadata.name of type string");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("json: cannot unmarshal {found} into Go {} of type {expected}", self.place())]
pub struct Mismatch {
    /// JSON type of what was found; of a number that does not fit its type also the number.
    pub found: Cow<'static, str>,
    /// Go's name of the struct that the field belongs to; empty for a whole document.
    pub owner: &'static str,
    /// Names of the fields that lead from the document's root to the value, with points between them; empty for a whole document.
    pub path: String,
    /// Go type that was wanted.
    pub expected: Cow<'static, str>,
}

impl Mismatch {
    /// Of a whole document. A number where another number is wanted (`int…`) is named.
    pub fn new(value: &Value, expected: impl Into<Cow<'static, str>>) -> Self {
        let expected = expected.into();
        let found = match value {
            Value::Number(_) if matches!(&*expected, "int" | "int64") => {
                format!("number {}", super::encode(value)).into()
            }
            other => type_name(other).into(),
        };
        Self {
            found,
            owner: "",
            path: String::new(),
            expected,
        }
    }

    /// The same of a field of the struct `owner`; without a path of the whole document.
    #[must_use]
    pub fn of(self, owner: &'static str, path: impl Into<String>) -> Self {
        let path = path.into();
        Self {
            owner,
            path,
            ..self
        }
    }

    fn place(&self) -> Cow<'static, str> {
        match self.path.as_str() {
            "" => "value".into(),
            path => format!("struct field {}.{path}", self.owner).into(),
        }
    }
}

/// A value does not fit the field it is for. The text is Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// It has the wrong type.
    #[error(transparent)]
    Type(#[from] Mismatch),
    /// A byte field is not base64.
    #[error(transparent)]
    Base64(#[from] CorruptInputError),
    /// A list has more elements than anybody needs. Not Go's: it reads as many as there are.
    #[error("{place}: more than {most} elements")]
    TooMany {
        /// The field.
        place: Cow<'static, str>,
        /// How many it may have.
        most: usize,
    },
    /// A time field is no RFC 3339 time. Of a long text the beginning is told.
    #[error(transparent)]
    Time(#[from] ParseError),
    /// A time field is not even a text.
    #[error("Time.UnmarshalJSON: input is not a JSON string")]
    TimeNotText,
    /// A time field is a time that cannot be held.
    #[error("parsing time {0:?}: out of range")]
    TimeRange(String),
}

/// The one of `known` that Go reads a field of this name as: the exact one, or else the first in another case.
pub fn known_field(known: &[&'static str], name: &str) -> Option<&'static str> {
    let exact = known.iter().find(|known| **known == name);
    // Two letters beyond ASCII fold to letters of it.
    let ascii = || name.replace('\u{17f}', "s").replace('\u{212a}', "k");
    let folded = || {
        let name = ascii();
        known.iter().find(|known| known.eq_ignore_ascii_case(&name))
    };
    exact.or_else(folded).copied()
}

/// What `sigs.k8s.io/yaml` makes of a scalar where a text is wanted: a number, of floats the 32 bits that it prints, or a boolean. `None` for
/// all else, texts too.
///
/// ```
/// use golib::json::scalar_text;
/// use serde_json::json;
///
/// assert_eq!(scalar_text(&json!(0.1)).as_deref(), Some("0.1"));
/// assert_eq!(scalar_text(&json!(16777217.0)).as_deref(), Some("1.6777216e+07"));
/// assert_eq!(scalar_text(&json!(true)).as_deref(), Some("true"));
/// assert_eq!(scalar_text(&json!("true")), None);
/// ```
pub fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64()?;
            Some(crate::strconv::format_float(float, b'g', -1, 32))
        }
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Where in a document we are, and whether scalars are turned into text (YAML only).
///
/// ```
/// use golib::json::At;
/// use serde_json::json;
///
/// let (mut name, mut tags) = (String::new(), Vec::new());
/// let read = At::new("Head", "util.Head", "").object(
///     &json!({"Name": "web", "tags": ["a", 1]}),
///     &["name", "tags"],
///     |field, at, value| match field {
///         "name" => at.string(value, &mut name),
///         _ => at.strings(value, "[]string", &mut tags),
///     },
/// );
/// assert_eq!(name, "web");
/// assert_eq!(read.unwrap_err().to_string(), "json: cannot unmarshal number into Go struct field Head.tags of type string");
/// ```
#[derive(Debug, Clone)]
pub struct At<'a> {
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
    pub fn new(inner: &'static str, inner_type: &'static str, path: &'a str) -> Self {
        Self {
            owner: inner,
            inner,
            inner_type,
            path: path.to_owned(),
            parent: path,
            coerce: false,
        }
    }

    /// Turns numbers and booleans into text where text is wanted, as `sigs.k8s.io/yaml` does.
    #[must_use]
    pub fn coercing(mut self) -> Self {
        self.coerce = true;
        self
    }

    /// An element of the list or pointer at this place that is itself a struct.
    pub fn within(&self, inner: &'static str, inner_type: &'static str) -> At<'_> {
        At {
            owner: self.owner,
            inner,
            inner_type,
            path: self.path.clone(),
            parent: &self.path,
            coerce: self.coerce,
        }
    }

    /// That `value` stands here in place of a `expected`.
    pub fn mismatch(&self, value: &Value, expected: &'static str) -> FieldError {
        Mismatch::new(value, expected)
            .of(self.owner, self.path.as_str())
            .into()
    }

    /// Calls `field` for each of the `known` fields the object has, in the object's order.
    ///
    /// # Errors
    /// What stands here is no object, or the first error of `field`.
    pub fn object(
        &self,
        value: &Value,
        known: &[&'static str],
        mut field: impl FnMut(&'static str, &At<'_>, &Value) -> Result<(), FieldError>,
    ) -> Result<(), FieldError> {
        let map = match value {
            Value::Null => return Ok(()),
            Value::Object(map) => map,
            other => return Err(self.mismatch(other, self.inner_type)),
        };
        for (key, value) in map {
            let Some(name) = known_field(known, key) else {
                continue;
            };
            let path = match self.parent {
                "" => name.to_owned(),
                parent => format!("{parent}.{name}"),
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
        Ok(())
    }

    /// A `string`.
    ///
    /// # Errors
    /// [`FieldError::Type`].
    pub fn string(&self, value: &Value, out: &mut String) -> Result<(), FieldError> {
        match value {
            Value::Null => {}
            Value::String(text) => text.clone_into(out),
            other => match scalar_text(other).filter(|_| self.coerce) {
                Some(text) => *out = text,
                None => return Err(self.mismatch(other, "string")),
            },
        }
        Ok(())
    }

    /// A `bool`.
    ///
    /// # Errors
    /// [`FieldError::Type`].
    pub fn boolean(&self, value: &Value, out: &mut bool) -> Result<(), FieldError> {
        match value {
            Value::Null => {}
            Value::Bool(flag) => *out = *flag,
            other => return Err(self.mismatch(other, "bool")),
        }
        Ok(())
    }

    /// An `int`.
    ///
    /// # Errors
    /// [`FieldError::Type`], also for a number with a fraction.
    pub fn integer(&self, value: &Value, out: &mut i64) -> Result<(), FieldError> {
        match (value, value.as_i64()) {
            (Value::Null, _) => {}
            (_, Some(number)) => *out = number,
            (Value::Number(number), None) => {
                let found = format!("number {number}").into();
                let mismatch = Mismatch::new(value, "int").of(self.owner, self.path.as_str());
                return Err(Mismatch { found, ..mismatch }.into());
            }
            (other, None) => return Err(self.mismatch(other, "int")),
        }
        Ok(())
    }

    /// A list's elements, of the Go type `expected`; `None` for `null`.
    ///
    /// # Errors
    /// [`FieldError::Type`].
    pub fn list<'v>(
        &self,
        value: &'v Value,
        expected: &'static str,
    ) -> Result<Option<&'v [Value]>, FieldError> {
        match value {
            Value::Null => Ok(None),
            Value::Array(items) => Ok(Some(items)),
            other => Err(self.mismatch(other, expected)),
        }
    }

    /// As [`At::list`], of at most so many elements: what each is read into may take many times what it takes in the document.
    ///
    /// # Errors
    /// [`FieldError::Type`], [`FieldError::TooMany`].
    pub fn at_most<'v>(
        &self,
        most: usize,
        value: &'v Value,
        expected: &'static str,
    ) -> Result<Option<&'v [Value]>, FieldError> {
        match self.list(value, expected)? {
            Some(items) if items.len() > most => {
                let place = Mismatch::new(value, expected).of(self.owner, self.path.as_str());
                let place = place.place().into_owned().into();
                Err(FieldError::TooMany { place, most })
            }
            items => Ok(items),
        }
    }

    /// A list of texts, of the Go type `expected`; `null` empties it.
    ///
    /// # Errors
    /// [`FieldError::Type`].
    pub fn strings(
        &self,
        value: &Value,
        expected: &'static str,
        out: &mut Vec<String>,
    ) -> Result<(), FieldError> {
        let items = self.list(value, expected)?.unwrap_or_default();
        let mut texts = vec![String::new(); items.len()];
        for (item, text) in items.iter().zip(&mut texts) {
            self.string(item, text)?;
        }
        *out = texts;
        Ok(())
    }

    /// A `map[string]any`: an object with float numbers, or null.
    ///
    /// # Errors
    /// [`FieldError::Type`].
    pub fn table(&self, value: &Value) -> Result<Value, FieldError> {
        match value {
            Value::Null | Value::Object(_) => Ok(floats(value.clone())),
            other => Err(self.mismatch(other, "map[string]interface {}")),
        }
    }

    /// The entries of a `map[string]string`.
    ///
    /// # Errors
    /// [`FieldError::Type`].
    pub fn entries<'v>(
        &self,
        value: &'v Value,
    ) -> Result<Option<&'v Map<String, Value>>, FieldError> {
        match value {
            Value::Null => Ok(None),
            Value::Object(map) => Ok(Some(map)),
            other => Err(self.mismatch(other, "map[string]string")),
        }
    }

    /// A `[]byte`.
    ///
    /// # Errors
    /// [`FieldError::Type`] and [`FieldError::Base64`].
    pub fn base64(&self, value: &Value) -> Result<Option<Vec<u8>>, FieldError> {
        match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(base64::decode(text)?)),
            other => Err(self.mismatch(other, "[]uint8")),
        }
    }
}

/// What Go's `time.Time.UnmarshalJSON` makes of a text. It reads what stands between the quotes, escapes and all.
///
/// ```
/// use golib::json;
///
/// assert!(json::parse_time("2024-02-29T01:00:00,5Z").is_ok());
/// let error = json::parse_time("\n").unwrap_err().to_string();
/// assert!(error.ends_with(r#"cannot parse "\\n" as "2006""#));
/// ```
///
/// # Errors
/// The text is no RFC 3339 time.
pub fn parse_time(text: &str) -> Result<Time, ParseError> {
    let written = encode_raw(&text.into());
    Time::parse(RFC3339, &written[1..written.len() - 1], &Zone::Utc)
}

/// A `time.Time`, of which `T` may hold less.
///
/// # Errors
/// The three of a time in [`FieldError`].
pub fn time<T: FromStr>(value: &Value, out: &mut T) -> Result<(), FieldError> {
    let text = match value {
        Value::Null => return Ok(()),
        Value::String(text) => text,
        _ => return Err(FieldError::TimeNotText),
    };
    // A document may have megabytes in place of a time.
    let shown = || text.chars().take(64).collect::<String>();
    let range = || FieldError::TimeRange(shown());
    let parsed = match parse_time(text) {
        Ok(time) => time,
        Err(_) => {
            parse_time(&shown())?;
            return Err(range());
        }
    };
    let text = String::from_utf8_lossy(&parsed.format(RFC3339_NANO)).into_owned();
    *out = text.parse().map_err(|_| range())?;
    Ok(())
}

/// Reads an object into a struct, field by field: [`At::object`] with each name said once.
///
/// ```
/// use golib::json::At;
///
/// let (mut name, mut weight) = (String::new(), 0);
/// let value = serde_json::json!({"Name": "a", "weight": 2, "other": null});
/// golib::json_fields!(At::new("Hook", "v1.Hook", ""), &value, |at, value| {
///     "name" => at.string(value, &mut name),
///     "weight" => at.integer(value, &mut weight),
/// })?;
/// assert_eq!((name.as_str(), weight), ("a", 2));
/// # Ok::<(), golib::json::FieldError>(())
/// ```
#[macro_export]
macro_rules! json_fields {
    ($of:expr, $object:expr, |$at:ident, $value:ident| { $($name:literal => $read:expr,)* }) => {
        $of.object($object, &[$($name),*], |name, $at, $value| match name {
            $($name => $read,)*
            _ => Ok(()),
        })
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{At, FieldError, time};

    fn problem(value: &serde_json::Value) -> String {
        let mut out = String::new();
        time(value, &mut out).map_or_else(|error| error.to_string(), |()| out)
    }

    #[test]
    fn a_time_is_read_as_go_1_26_reads_it() {
        assert_eq!(problem(&json!(null)), "");
        let text = "2024-02-29T01:00:00.5+02:00";
        assert_eq!(problem(&json!(text)), text);
        let not_text = "Time.UnmarshalJSON: input is not a JSON string";
        assert_eq!(problem(&json!(5)), not_text);
        assert_eq!(problem(&json!([])), not_text);
        for (text, read) in [
            ("2024-02-29T1:00:00Z", "2024-02-29T01:00:00Z"),
            ("2024-02-29T01:00:00,5Z", "2024-02-29T01:00:00.5Z"),
            ("2024-02-29T01:00:00+01:60", "2024-02-29T01:00:00+02:00"),
        ] {
            assert_eq!(problem(&json!(text)), read);
        }
        let as_rfc = r#" as "2006-01-02T15:04:05Z07:00": cannot parse "#;
        for (text, said) in [
            (
                "\n",
                format!(r#"parsing time "\\n"{as_rfc}"\\n" as "2006""#),
            ),
            (
                "a\"b",
                format!(r#"parsing time "a\\\"b"{as_rfc}"a\\\"b" as "2006""#),
            ),
            (
                "2024-02-29T24:00:00Z",
                r#"parsing time "2024-02-29T24:00:00Z": hour out of range"#.to_owned(),
            ),
            (
                "2024-02-29T01:00:00+25:00",
                r#"parsing time "2024-02-29T01:00:00+25:00": time zone offset hour out of range"#
                    .to_owned(),
            ),
        ] {
            assert_eq!(problem(&json!(text)), said);
        }
        let long = problem(&json!("x".repeat(100_000)));
        assert!(long.len() < 300, "{long}");
    }

    #[test]
    fn a_number_with_a_fraction_is_named_where_it_does_not_fit() {
        let at = At::new("Release", "v1.Release", "");
        let read = |value: serde_json::Value| {
            let mut out = 0;
            at.object(&value, &["version"], |_, at, value| {
                at.integer(value, &mut out)
            })
            .map(|()| out)
        };
        assert_eq!(read(json!({"VERSION": 7})), Ok(7));
        let misfit = |value| read(value).unwrap_err().to_string();
        let of = "into Go struct field Release.version of type int";
        let expected = format!("json: cannot unmarshal number 1.5 {of}");
        assert_eq!(misfit(json!({"version": 1.5})), expected);
        let expected = format!("json: cannot unmarshal string {of}");
        assert_eq!(misfit(json!({"version": "1"})), expected);
        let failed = read(json!([])).unwrap_err();
        assert!(matches!(failed, FieldError::Type(mismatch) if mismatch.path.is_empty()));
    }
}
