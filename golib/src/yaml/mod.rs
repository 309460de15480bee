//! YAML as Helm sees it: read and written as by sigs.k8s.io/yaml 1.6.0 over yaml.v2 2.4.4, error texts included.
//!
//! Reading is a scanner, a parser, a composer and a decoder of our own, because what charts rely on is what yaml.v2 does
//! where it differs from everyone else: YAML 1.1 booleans (also as keys), `010` as eight, merge keys at their position, a
//! block scalar at the end of the text without a newline, and the words of its messages. Writing is yaml.v2's emitter:
//! natural key order, its choice of quotes and its folding at 80 columns.
//!
//! Nearly every document goes from events straight to values (`build`); one with anchors, tags or anything wrong becomes
//! nodes first (`compose`, `decode`). What is built is counted against a [`Budget`].
//!
//! Depth costs memory and never the thread's stack; what aliases may repeat is limited as in Go. A [`Value`] is dropped by
//! recursion, so one has [`MAX_DEPTH`] levels at most.

mod build;
mod compose;
mod decode;
mod emitter;
mod encode;
mod error;
pub mod node;
mod order;
mod parser;
mod pretty;
mod properties;
mod reader;
mod resolve;
mod scalar;
mod scanner;
mod stream;
mod token;
mod tree;
mod value;

pub use encode::{MAX_DIRECT_DEPTH, Writer, encode, json_to_yaml};
pub use error::Error;
pub use pretty::{Pretty, encode_pretty};
pub use stream::{SeparatorError, documents, first_document};

use serde_json::{Map, Value};

use crate::budget::{Budget, MAX_DEPTH, Part};
use crate::json;
use build::{Apart, Builder, Stop};
use compose::Composer;
use reader::Input;
use value::{Keep, Raw, Target};

/// How a document is read: integers exact and keys given twice no error, unless asked otherwise.
///
/// ```
/// use golib::budget::Budget;
/// use golib::yaml::Decoder;
///
/// let decoder = Decoder::new().strict().floats();
/// assert!(decoder.decode(b"{a: 1, a: 2}", &mut Budget::default()).is_err());
/// ```
#[derive(Clone, Copy, Default)]
pub struct Decoder<'k> {
    strict: bool,
    floats: bool,
    keep: Option<Keep<'k>>,
    apart: Option<Apart<'k>>,
    texts: Option<Keep<'k>>,
}

impl<'k> Decoder<'k> {
    /// What [`decode`] does.
    pub fn new() -> Self {
        Self::default()
    }

    /// A key given twice is an error (`UnmarshalStrict`).
    pub fn strict(self) -> Self {
        Self {
            strict: true,
            ..self
        }
    }

    /// Every number is a float (`Unmarshal` into an `any`).
    pub fn floats(self) -> Self {
        Self {
            floats: true,
            ..self
        }
    }

    /// Leaves out values that are not wanted; they are read and checked all the same, and take no memory. `keep` is asked
    /// for each value of a map that is not inside a list, with the keys that lead to it. What it does not want may be
    /// there nevertheless, in documents with anchors, tags or keys that are no text; where keys are read strictly, null is.
    pub fn filter(self, keep: Keep<'k>) -> Self {
        Self {
            keep: Some(keep),
            ..self
        }
    }

    /// Hands values that are `selected` to `take`, each as soon as it was read, and leaves null in their places: so they take
    /// memory one at a time. `selected` is asked as for [`Self::filter`]. A document that has anchors, tags or keys that are
    /// no text, or turns out to be wrong, is decoded once more as a whole.
    pub fn extract(self, selected: Keep<'k>, take: &'k dyn Fn(&[&str], Value)) -> Self {
        Self {
            apart: Some(Apart { selected, take }),
            ..self
        }
    }

    /// Infinite floats and those that are no number are text (`+Inf`) where a struct has one, as `Unmarshal` into it reads
    /// them. `texts` is asked with the keys that lead to such a float, lists left out.
    ///
    /// ```
    /// use golib::{budget::Budget, yaml::Decoder};
    ///
    /// let texts = |path: &[&str]| path == ["items", "name"];
    /// let decoder = Decoder::new().texts(&texts);
    /// let read = decoder.decode(b"items: [{name: -.inf}]", &mut Budget::default())?;
    /// assert_eq!(read, serde_json::json!({"items": [{"name": "-Inf"}]}));
    /// assert!(decoder.decode(b"items: [{size: -.inf}]", &mut Budget::default()).is_err());
    /// # Ok::<(), golib::yaml::Error>(())
    /// ```
    pub fn texts(self, texts: Keep<'k>) -> Self {
        Self {
            texts: Some(texts),
            ..self
        }
    }

    /// The first document as a map; null is an empty one.
    ///
    /// # Errors
    /// As [`Self::decode`], and for a document that is a list or a scalar.
    pub fn decode_into_map(
        &self,
        text: &[u8],
        budget: &mut Budget,
    ) -> Result<Map<String, Value>, Error> {
        match self.decode(text, budget)? {
            Value::Object(entries) => Ok(entries),
            Value::Null => Ok(Map::new()),
            other => Err(wrong_type(&other, "map[string]interface {}")),
        }
    }

    /// The first document as a list; null is an empty one.
    ///
    /// # Errors
    /// As [`Self::decode`], and for a document that is a map or a scalar.
    pub fn decode_into_list(&self, text: &[u8], budget: &mut Budget) -> Result<Vec<Value>, Error> {
        match self.decode(text, budget)? {
            Value::Array(items) => Ok(items),
            Value::Null => Ok(Vec::new()),
            other => Err(wrong_type(&other, "[]interface {}")),
        }
    }

    /// The first document, `Null` for an empty text.
    ///
    /// # Errors
    /// Text that yaml.v2 refuses, what JSON cannot hold (null keys, infinite floats), and [`Error::TooLarge`].
    pub fn decode(&self, text: &[u8], budget: &mut Budget) -> Result<Value, Error> {
        let input = reader::read(text);
        let before = budget.clone();
        let mut builder =
            Builder::new(&input, budget, self.floats, self.strict, self.keep).extract(self.apart);
        match builder.document() {
            Ok(document) => Ok(document.unwrap_or_default()),
            Err(Stop::TooLarge(error)) => Err(error.into()),
            Err(Stop::NotPlain) => {
                *budget = before;
                let target = self.texts.map_or(Target::Any, Target::Texts);
                let value = read(&input, self.strict, budget)?.into_json(target)?;
                Ok(if self.floats {
                    json::floats(value)
                } else {
                    value
                })
            }
        }
    }
}

/// The first document, as `YAMLToJSON` gives it: integers exact, `Null` for an empty text.
///
/// ```
/// use golib::yaml;
///
/// // YAML 1.1: `y` is a boolean, `010` is eight.
/// assert_eq!(yaml::decode(b"y: 010")?, serde_json::json!({"true": 8}));
/// match yaml::decode(b"a: 1\nb: [\n") {
///     Err(yaml::Error::Syntax { message, line }) => {
///         assert_eq!(message, "did not find expected node content");
///         assert_eq!(line, Some(2));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), yaml::Error>(())
/// ```
///
/// # Errors
/// Text that yaml.v2 refuses, what JSON cannot hold (null keys, infinite floats), and what is heavier than a [`Budget`]
/// usually is.
pub fn decode(text: &[u8]) -> Result<Value, Error> {
    Decoder::new().decode(text, &mut Budget::default())
}

/// As [`decode`], of a mapping with at least the entries whose keys are among `selected`, whatever their case. The rest of the
/// document is read and checked all the same, and may be missing from the result.
///
/// ```
/// use golib::yaml;
///
/// let chart = yaml::decode_entries(b"name: app\nnotes: [much, more]\n", &["name"])?;
/// assert_eq!(chart, serde_json::json!({"name": "app"}));
/// # Ok::<(), yaml::Error>(())
/// ```
///
/// # Errors
/// As [`decode`].
pub fn decode_entries(text: &[u8], selected: &[&str]) -> Result<Value, Error> {
    let keep = |path: &[&str]| match path {
        [key] => selected.iter().any(|name| name.eq_ignore_ascii_case(key)),
        _ => true,
    };
    Decoder::new()
        .filter(&keep)
        .decode(text, &mut Budget::default())
}

/// As [`decode`], with every key given twice an error (`UnmarshalStrict`).
///
/// ```
/// assert!(golib::yaml::decode(b"a: 1\na: 2").is_ok());
/// assert!(golib::yaml::decode_strict(b"a: 1\na: 2").is_err());
/// ```
///
/// # Errors
/// As [`decode`].
pub fn decode_strict(text: &[u8]) -> Result<Value, Error> {
    Decoder::new().strict().decode(text, &mut Budget::default())
}

/// The first document, as `Unmarshal` puts it into an `any`: every number is a float.
///
/// ```
/// let value = golib::yaml::decode_floats(b"1000000000000000000001")?;
/// assert!(value.is_f64());
/// # Ok::<(), golib::yaml::Error>(())
/// ```
///
/// # Errors
/// As [`decode`].
pub fn decode_floats(text: &[u8]) -> Result<Value, Error> {
    Decoder::new().floats().decode(text, &mut Budget::default())
}

/// The first document, as `Unmarshal` puts it into a `map[string]any`: every number is a float; null is an empty map.
///
/// ```
/// assert!(golib::yaml::decode_into_map(b"null")?.is_empty());
/// assert_eq!(
///     golib::yaml::decode_into_map(b"[]").unwrap_err().to_string(),
///     "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type \
///      map[string]interface {}"
/// );
/// # Ok::<(), golib::yaml::Error>(())
/// ```
///
/// # Errors
/// As [`decode`], for half as many levels, and for a document that is a list or a scalar.
pub fn decode_into_map(text: &[u8]) -> Result<Map<String, Value>, Error> {
    // Such maps are put into others: half of what may be read again.
    let mut budget = Budget::default().with_depth(MAX_DEPTH / 2);
    Decoder::new().floats().decode_into_map(text, &mut budget)
}

/// The first document, as `Unmarshal` puts it into a `[]any`: every number is a float; null is an empty list.
///
/// ```
/// assert_eq!(golib::yaml::decode_into_list(b"[a]")?, ["a"]);
/// # Ok::<(), golib::yaml::Error>(())
/// ```
///
/// # Errors
/// As [`decode`], and for a document that is a map or a scalar.
pub fn decode_into_list(text: &[u8]) -> Result<Vec<Value>, Error> {
    Decoder::new()
        .floats()
        .decode_into_list(text, &mut Budget::default())
}

/// Every document of a stream, as yaml.v2's `Decoder` reads them one after the other.
///
/// ```
/// assert_eq!(golib::yaml::decode_all(b"a: 1\n---\nb: 2\n")?.len(), 2);
/// # Ok::<(), golib::yaml::Error>(())
/// ```
///
/// # Errors
/// As [`decode`], at the first document that fails; the weight is that of all documents together.
pub fn decode_all(text: &[u8]) -> Result<Vec<Value>, Error> {
    let input = reader::read(text);
    let mut budget = Budget::default();
    let mut builder = Builder::new(&input, &mut budget, false, false, None);
    let mut documents = Vec::new();
    loop {
        match builder.document() {
            Ok(Some(document)) => documents.push(document),
            Ok(None) => return Ok(documents),
            Err(Stop::TooLarge(error)) => return Err(error.into()),
            Err(Stop::NotPlain) => break,
        }
    }
    drop(documents);
    let mut budget = Budget::default();
    let mut composer = Composer::new(&input);
    let mut documents = Vec::new();
    while let Some(raw) = next(&mut composer, false, &mut budget)? {
        documents.push(raw.into_json(Target::Any)?);
    }
    Ok(documents)
}

fn wrong_type(value: &Value, expected: &'static str) -> Error {
    Error::Json(json::Error::wrong_type(value, expected).to_string())
}

/// The first document, by way of its nodes.
fn read(input: &Input<'_>, strict: bool, budget: &mut Budget) -> Result<Raw, Error> {
    Ok(next(&mut Composer::new(input), strict, budget)?.unwrap_or_default())
}

fn next(
    composer: &mut Composer<'_>,
    strict: bool,
    budget: &mut Budget,
) -> Result<Option<Raw>, Error> {
    let Some(document) = composer.document(budget)? else {
        return Ok(None);
    };
    let value = decode::decode(&document, strict, budget)?;
    budget.give_back(Part::Anchors, document.weight());
    Ok(Some(value))
}

#[cfg(test)]
mod tests;
