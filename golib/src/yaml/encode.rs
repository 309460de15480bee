//! Values to YAML: what is written, in which order and style (yaml.v2's `encode.go`), over the writer in `emitter.rs`.

use std::borrow::Cow;

use serde_json::Value;

use super::emitter::{Collection, Emitter};
use super::error::{Error, with_line};
use super::resolve::is_plain_string;
use super::tree::{Dialect, Node, Scalar, Tree};
use super::{order, read, reader};
use crate::base64;
use crate::budget::Budget;
use crate::json;
use crate::strconv::format_float;

/// Go's `yaml.Marshal`, with its newline at the end: JSON, read as YAML, written by yaml.v2.
///
/// ```
/// let value = serde_json::json!({"a10": "yes", "a2": [1e6, null], "long": "x"});
/// assert_eq!(golib::yaml::encode(&value)?, "a2:\n- 1000000\n- null\na10: \"yes\"\nlong: x\n");
/// # Ok::<(), golib::yaml::Error>(())
/// ```
///
/// # Errors
/// Text that YAML cannot hold, such as DEL or U+FFFE, and what else yaml.v2 fails to read back from JSON (keys beyond 1,024
/// characters).
pub fn encode(value: &Value) -> Result<String, Error> {
    let mut writer = Writer::new();
    if write_directly(&mut writer, value, 0) {
        return Ok(writer.finish());
    }
    json_to_yaml(json::encode(value).as_bytes())
}

/// Writes data without the way over JSON; `false` when something in it might not come back from there as it went.
fn write_directly(writer: &mut Writer, value: &Value, depth: usize) -> bool {
    if depth > MAX_DIRECT_DEPTH {
        return false;
    }
    match value {
        Value::Null => writer.null(),
        Value::Bool(value) => writer.boolean(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(integer), _, _) => writer.integer(integer),
            (_, Some(integer), _) => writer.unsigned(integer),
            (_, _, Some(float)) => return writer.float(float),
            _ => return false,
        },
        Value::String(text) => return writer.text(text),
        Value::Array(items) => {
            writer.begin_list(items.is_empty());
            for item in items {
                writer.item();
                if !write_directly(writer, item, depth + 1) {
                    return false;
                }
            }
            writer.end(items.is_empty());
        }
        Value::Object(entries) => {
            writer.begin_mapping(entries.is_empty());
            let mut entries: Vec<_> = entries.iter().map(|(key, item)| (&**key, item)).collect();
            Writer::sort(&mut entries);
            for (key, item) in &entries {
                if !writer.key(key) || !write_directly(writer, item, depth + 1) {
                    return false;
                }
            }
            writer.end(entries.is_empty());
        }
    }
    true
}

/// How deep data may nest that is written without the way over JSON.
pub const MAX_DIRECT_DEPTH: usize = 100;

/// Writes what [`encode`] would, piece by piece, for callers with data of their own.
///
/// Go goes by JSON text read as YAML. Nearly all data comes back from there unchanged and is written straight away; methods
/// that return a `bool` say `false` for the rest, and the caller then has to begin again with [`encode`].
///
/// ```
/// use golib::yaml::Writer;
///
/// let mut writer = Writer::new();
/// writer.begin_mapping(false);
/// if writer.key("replicas") {
///     writer.integer(3);
/// }
/// writer.end(false);
/// assert_eq!(writer.finish(), "replicas: 3\n");
/// ```
#[derive(Debug)]
pub struct Writer {
    emitter: Emitter,
    /// For each open collection, whether it is a mapping.
    open: Vec<bool>,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// A writer of one value.
    pub fn new() -> Self {
        Self {
            emitter: Emitter::new(Dialect::V2),
            open: Vec::new(),
        }
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.emitter.len()
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text with its newline at the end.
    pub fn finish(self) -> String {
        self.emitter.finish()
    }

    /// Puts the entries of a mapping into the order they have to be written in. They must be sorted by bytes.
    pub fn sort<T: Copy>(entries: &mut [(&str, T)]) {
        let mut sorted: Vec<_> = entries
            .iter()
            .map(|(key, value)| (Scalar::Str(key), (*key, *value)))
            .collect();
        order::sort(&mut sorted, Dialect::V2);
        for (entry, (_, from)) in entries.iter_mut().zip(sorted) {
            *entry = from;
        }
    }

    /// Writes null.
    pub fn null(&mut self) {
        self.emitter.value("null", false);
    }

    /// Writes `true` or `false`.
    pub fn boolean(&mut self, value: bool) {
        self.emitter
            .value(if value { "true" } else { "false" }, false);
    }

    /// Writes an integer.
    pub fn integer(&mut self, value: i64) {
        self.emitter.value(&value.to_string(), false);
    }

    /// Writes an integer.
    pub fn unsigned(&mut self, value: u64) {
        self.emitter.value(&value.to_string(), false);
    }

    /// Writes a float; JSON makes integers of those that have no fraction.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "it was seen to fit")]
    pub fn float(&mut self, value: f64) -> bool {
        /// All integers below have one text, and it is theirs in both formats.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if value.is_nan() || value.abs() >= EXACT {
            return false;
        }
        if value.fract() == 0.0 {
            self.integer(value as i64);
        } else {
            let text = format_float(value, b'g', -1, 64);
            self.emitter.value(&text, false);
        }
        true
    }

    /// Writes a string.
    #[must_use]
    pub fn text(&mut self, text: &str) -> bool {
        let fits = survives_json(text);
        if fits {
            self.emitter.value(text, !is_plain_string(text));
        }
        fits
    }

    /// Writes the key of an entry, whose value comes next.
    #[must_use]
    pub fn key(&mut self, key: &str) -> bool {
        /// Escaped and quoted it is still below the 1,024 characters of a key in JSON.
        const MAX: usize = 160;
        let fits = key.len() <= MAX && survives_json(key);
        if fits {
            self.emitter.key(key, !is_plain_string(key));
        }
        fits
    }

    /// Begins a mapping; an empty one is then complete but for its [`Self::end`].
    pub fn begin_mapping(&mut self, is_empty: bool) {
        self.begin(Collection::Mapping, is_empty, ["{", "}"]);
    }

    /// Begins a list; an empty one is then complete but for its [`Self::end`].
    pub fn begin_list(&mut self, is_empty: bool) {
        self.begin(Collection::Sequence, is_empty, ["[", "]"]);
    }

    fn begin(&mut self, collection: Collection, is_empty: bool, [open, close]: [&str; 2]) {
        if is_empty {
            self.emitter.empty(open, close);
            return;
        }
        let in_mapping = self.open.last() == Some(&true);
        self.emitter.begin(collection, in_mapping);
        self.open.push(collection == Collection::Mapping);
    }

    /// Writes what stands before an item of a list.
    pub fn item(&mut self) {
        self.emitter.item();
    }

    /// Ends the list or mapping begun last.
    pub fn end(&mut self, is_empty: bool) {
        if !is_empty {
            self.open.pop();
            self.emitter.end();
        }
    }
}

/// Whether a string that is written as JSON is the same when it is read as YAML: not with control characters that YAML
/// refuses or, NEL, takes for a line break. The other line breaks of YAML are escaped in Go's JSON.
fn survives_json(text: &str) -> bool {
    if text.bytes().all(|byte| byte < 0x7f) {
        return true;
    }
    !text.contains(|c| matches!(c, '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}'))
}

/// Go's `JSONToYAML`: the text is read as YAML, so integers stay exact and JSON's own rules are not enforced.
///
/// ```
/// assert_eq!(golib::yaml::json_to_yaml(br#"{"count": 12345678901234567890}"#)?, "count: 12345678901234567890\n");
/// # Ok::<(), golib::yaml::Error>(())
/// ```
///
/// # Errors
/// As [`encode`], and for text that is neither JSON nor YAML.
pub fn json_to_yaml(text: &[u8]) -> Result<String, Error> {
    let input = reader::read(text);
    let value = read(&input, false, &mut Budget::default()).map_err(|error| match error {
        Error::Syntax { message, line } => Error::Encode(with_line(line, &message)),
        other => other,
    })?;
    Ok(write(&value, Dialect::V2))
}

enum Frame<'a, T> {
    Sequence(std::slice::Iter<'a, T>),
    Mapping(std::vec::IntoIter<(Scalar<'a>, &'a T)>),
}

/// Writes a document and its final newline.
pub(super) fn write<T: Tree>(value: &T, dialect: Dialect) -> String {
    let mut emitter = Emitter::new(dialect);
    let mut frames: Vec<Frame<'_, T>> = Vec::new();
    open(&mut emitter, &mut frames, value, false, dialect);
    while let Some(frame) = frames.last_mut() {
        match frame {
            Frame::Sequence(items) => match items.next() {
                Some(item) => {
                    emitter.item();
                    open(&mut emitter, &mut frames, item, false, dialect);
                }
                None => {
                    emitter.end();
                    frames.pop();
                }
            },
            Frame::Mapping(entries) => match entries.next() {
                Some((key, value)) => {
                    let (tag, text, quote) = text_of(key, dialect);
                    emitter.tagged_key(tag, &text, quote);
                    open(&mut emitter, &mut frames, value, true, dialect);
                }
                None => {
                    emitter.end();
                    frames.pop();
                }
            },
        }
    }
    emitter.finish()
}

/// Writes a scalar or an empty collection; of any other collection the beginning.
fn open<'a, T: Tree>(
    emitter: &mut Emitter,
    frames: &mut Vec<Frame<'a, T>>,
    value: &'a T,
    in_mapping: bool,
    dialect: Dialect,
) {
    match value.node() {
        Node::Scalar(scalar) => {
            let (tag, text, quote) = text_of(scalar, dialect);
            emitter.tag(tag);
            emitter.value(&text, quote);
        }
        Node::Sequence([]) => emitter.empty("[", "]"),
        Node::Mapping(entries) | Node::Struct(entries) if entries.is_empty() => {
            emitter.empty("{", "}")
        }
        Node::Sequence(items) => {
            emitter.begin(Collection::Sequence, in_mapping);
            frames.push(Frame::Sequence(items.iter()));
        }
        Node::Mapping(mut entries) => {
            emitter.begin(Collection::Mapping, in_mapping);
            order::sort(&mut entries, dialect);
            frames.push(Frame::Mapping(entries.into_iter()));
        }
        Node::Struct(entries) => {
            emitter.begin(Collection::Mapping, in_mapping);
            frames.push(Frame::Mapping(entries.into_iter()));
        }
    }
}

/// The tag and the text of a scalar, and whether it must be quoted to stay text.
fn text_of(scalar: Scalar<'_>, dialect: Dialect) -> (&'static str, Cow<'_, str>, bool) {
    let text = match scalar {
        Scalar::Null => return ("", "null".into(), false),
        Scalar::Bool(value) => value.to_string(),
        Scalar::Int(value) => value.to_string(),
        Scalar::Uint(value) => value.to_string(),
        Scalar::Float(value) => match format_float(value, b'g', -1, 64).as_str() {
            "+Inf" => ".inf".into(),
            "-Inf" => "-.inf".into(),
            "NaN" => ".nan".into(),
            text => text.into(),
        },
        Scalar::Plain(text) => return ("", text.into(), false),
        Scalar::Binary(bytes) => return ("!!binary", base64_lines(bytes).into(), false),
        Scalar::Str(text) => {
            let plain = match dialect {
                Dialect::V3 => is_plain_in_v3(text),
                _ => is_plain_string(text),
            };
            return ("", text.into(), !plain);
        }
    };
    ("", text.into(), false)
}

/// yaml.v3's `encodeBase64`: one line, or several that all end in a line break.
fn base64_lines(bytes: &[u8]) -> String {
    const LINE: usize = 70;
    let text = base64::encode(bytes);
    if text.len() < LINE {
        return text;
    }
    let mut lines = String::with_capacity(text.len() + text.len() / LINE + 1);
    for (at, c) in text.chars().enumerate() {
        if at > 0 && at % LINE == 0 {
            lines.push('\n');
        }
        lines.push(c);
    }
    lines.push('\n');
    lines
}

/// Whether yaml.v3 writes a string without quotes.
pub(super) fn is_plain_in_v3(text: &str) -> bool {
    is_plain_string(text) && !is_octal(text)
}

/// What only yaml.v3 takes for an octal: a sign behind the prefix.
fn is_octal(text: &str) -> bool {
    let digits = text.replace('_', "");
    let number = match (digits.strip_prefix("0o"), digits.strip_prefix("-0o")) {
        (Some(rest), _) => rest.to_owned(),
        (_, Some(rest)) => format!("-{rest}"),
        _ => return false,
    };
    crate::strconv::parse_int(number, 8, 64).is_ok()
}
