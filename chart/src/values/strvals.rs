//! The `--set` family: `a.b[1].c=v,d={x,y}`.
//!
//! Mirrors `pkg/strvals`: typed, text, JSON, file and literal values. All but literal ones share one
//! grammar: a backslash escapes the next character, a comma ends a value.

use golib::{json, strconv};
use serde_json::{Map, Value};

use super::json_stream;

/// Highest list index that may be set.
pub const MAX_INDEX: i64 = 65_536;
/// How deep a dotted name may nest.
pub const MAX_NESTED_NAME_LEVEL: usize = 30;

/// An expression that cannot be read. The text is Helm's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StrvalsError {
    /// A name without `=`.
    #[error("key {} has no value", strconv::quote(.0))]
    NoValue(String),
    /// A name that ends with a comma.
    #[error("key {} has no value (cannot end with ,)", strconv::quote(.0))]
    EndsWithComma(String),
    /// A dotted name that sets nothing.
    #[error("key map {} has no value", strconv::quote(.0))]
    EmptyMap(String),
    /// A dotted name is too long.
    #[error(
        "value name nested level is greater than maximum supported nested level of \
         {MAX_NESTED_NAME_LEVEL}"
    )]
    TooDeep,
    /// A list index is no number.
    #[error("error parsing index: {0}")]
    Index(#[source] strconv::NumError),
    /// A list index is below zero.
    #[error("negative {0} index not allowed")]
    NegativeIndex(i64),
    /// A list index is too large.
    #[error("index of {0} is greater than maximum supported index of {MAX_INDEX}")]
    IndexTooLarge(i64),
    /// Text between `]` and the next `[`, `.` or `=`.
    #[error("unexpected data at end of array index: [{}]", runes(.0))]
    AfterIndex(String),
    /// The name meets a value of another shape.
    #[error("unable to parse key: interface conversion: interface {{}} is {found}, not {expected}")]
    Shape {
        /// Go type of what is there.
        found: &'static str,
        /// Go type the name needs.
        expected: &'static str,
    },
    /// `{` without `}`.
    #[error("list must terminate with '}}'")]
    UnterminatedList,
    /// A value that is not JSON.
    #[error("{0}")]
    Json(#[source] json::Error),
    /// A JSON value ends too early.
    #[error("unexpected EOF")]
    JsonEnds,
    /// The file a value names cannot be read.
    #[error("{0}")]
    File(String),
}

/// How Go prints a rune slice with `%q`, without the brackets.
fn runes(text: &str) -> String {
    let quoted: Vec<String> = text
        .chars()
        .map(|c| strconv::quote_rune(u32::from(c)))
        .collect();
    quoted.join(" ")
}

/// How values are read, and the flag that reads them so.
pub enum Mode<'r> {
    /// Booleans, null, integers without leading zeros, else text: `--set`.
    Typed,
    /// Text: `--set-string`.
    Text,
    /// JSON; an empty value is null: `--set-json`.
    Json,
    /// The content of the file that is named, or the error to show: `--set-file`.
    File(&'r mut dyn FnMut(&str) -> Result<String, String>),
    /// One text, which is the rest of the expression whatever it holds: `--set-literal`.
    Literal,
}

/// Sets what an expression says.
///
/// ```
/// use chart::values::strvals::{Mode, set};
///
/// let mut values = serde_json::Map::new();
/// set("a.b[1]=x,on=true,n=null", &mut Mode::Typed, &mut values)?;
/// set("tag=1.10", &mut Mode::Text, &mut values)?;
/// set(r#"hosts=["a", "b"]"#, &mut Mode::Json, &mut values)?;
/// set("motto=a,b=c\\d", &mut Mode::Literal, &mut values)?;
/// let mut read = |path: &str| Ok(format!("what is in {path}"));
/// set("config=app.ini", &mut Mode::File(&mut read), &mut values)?;
/// assert_eq!(
///     serde_json::Value::from(values),
///     serde_json::json!({
///         "a": {"b": [null, "x"]}, "on": true, "n": null, "tag": "1.10", "hosts": ["a", "b"], "motto": "a,b=c\\d",
///         "config": "what is in app.ini"
///     })
/// );
/// # Ok::<(), chart::values::strvals::StrvalsError>(())
/// ```
///
/// # Errors
/// The expression is malformed or does not fit what is there, a value is no JSON, or a file cannot be read.
pub fn set(
    expression: &str,
    mode: &mut Mode<'_>,
    values: &mut Map<String, Value>,
) -> Result<(), StrvalsError> {
    let mut parser = Parser {
        rest: expression,
        mode,
    };
    loop {
        match parser.key(values, 0) {
            Ok(()) => {}
            Err(Stop::End) => return Ok(()),
            Err(Stop::Failed(error)) => return Err(error),
        }
    }
}

/// Why reading a name stopped.
enum Stop {
    /// The expression is at its end, which is how every reading ends.
    End,
    Failed(StrvalsError),
}

impl From<StrvalsError> for Stop {
    fn from(error: StrvalsError) -> Self {
        Self::Failed(error)
    }
}

struct Parser<'e, 'm, 'r> {
    rest: &'e str,
    mode: &'m mut Mode<'r>,
}

/// Text up to a stop character, and that character; none at the end.
struct Token {
    text: String,
    stop: Option<char>,
}

impl Parser<'_, '_, '_> {
    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    fn until(&mut self, stops: &[char]) -> Token {
        let literal = matches!(self.mode, Mode::Literal);
        let mut text = String::new();
        loop {
            match self.next() {
                None => return Token { text, stop: None },
                Some(c) if stops.contains(&c) => {
                    return Token {
                        text,
                        stop: Some(c),
                    };
                }
                Some('\\') if !literal => match self.next() {
                    None => return Token { text, stop: None },
                    Some(escaped) => text.push(escaped),
                },
                Some(c) => text.push(c),
            }
        }
    }

    fn key(&mut self, data: &mut Map<String, Value>, level: usize) -> Result<(), Stop> {
        let stops: &[char] = match self.mode {
            Mode::Literal => &['=', '[', '.'],
            _ => &['=', '[', ',', '.'],
        };
        let Token { text: name, stop } = self.until(stops);
        match stop {
            None if name.is_empty() => Err(Stop::End),
            None => Err(StrvalsError::NoValue(name).into()),
            Some('[') => {
                let index = self.index()?;
                let mut list = match data.get_mut(&name) {
                    None => Vec::new(),
                    Some(Value::Array(items)) => std::mem::take(items),
                    Some(other) => return Err(wrong_shape(other, &Value::Array(vec![])).into()),
                };
                let done = self.list_item(&mut list, index, level);
                put(data, name, Value::Array(list));
                done
            }
            Some('=') => self.assignment(|value| put(data, name, value)),
            Some(',') => {
                put(data, name.clone(), Value::String(String::new()));
                Err(StrvalsError::EndsWithComma(name).into())
            }
            Some(_) => {
                let level = level + 1;
                if level > MAX_NESTED_NAME_LEVEL {
                    return Err(StrvalsError::TooDeep.into());
                }
                let mut inner = match data.get_mut(&name) {
                    None => Map::new(),
                    Some(Value::Object(map)) => std::mem::take(map),
                    Some(other) => {
                        return Err(wrong_shape(other, &Value::Object(Map::new())).into());
                    }
                };
                let existed = data.contains_key(&name);
                let done = self.key(&mut inner, level);
                if done.is_ok() && inner.is_empty() {
                    return Err(StrvalsError::EmptyMap(name).into());
                }
                if existed || !inner.is_empty() {
                    put(data, name, Value::Object(inner));
                }
                done
            }
        }
    }

    /// Reads what follows `=` and hands it to `store`.
    fn assignment(&mut self, store: impl FnOnce(Value)) -> Result<(), Stop> {
        match self.mode {
            Mode::Literal => {
                store(Value::String(std::mem::take(&mut self.rest).to_owned()));
                Ok(())
            }
            Mode::Json => {
                if self.empty_value() {
                    store(Value::Null);
                    return Ok(());
                }
                store(self.json()?);
                self.empty_value();
                Ok(())
            }
            _ if self.rest.is_empty() => {
                store(Value::String(String::new()));
                Err(Stop::End)
            }
            _ if self.rest.starts_with('{') => {
                self.next();
                store(Value::Array(self.value_list()?));
                Ok(())
            }
            _ => {
                let text = self.until(&[',']).text;
                store(self.read(text)?);
                Ok(())
            }
        }
    }

    fn index(&mut self) -> Result<i64, Stop> {
        let token = self.until(&[']']);
        if token.stop.is_none() {
            // Helm wraps the end of the text here, and then takes it for the end of everything.
            return Err(Stop::End);
        }
        strconv::atoi(&token.text).map_err(|error| StrvalsError::Index(error).into())
    }

    fn list_item(&mut self, list: &mut Vec<Value>, index: i64, level: usize) -> Result<(), Stop> {
        if index < 0 {
            return Err(StrvalsError::NegativeIndex(index).into());
        }
        let Token { text, stop } = self.until(&['[', '.', '=']);
        if !text.is_empty() {
            return Err(StrvalsError::AfterIndex(text).into());
        }
        let present = usize::try_from(index).ok().filter(|at| *at < list.len());
        match stop {
            None => Err(Stop::End),
            Some('=') => {
                let mut value = None;
                match self.assignment(|read| value = Some(read)) {
                    // The end of the expression is an empty text here, and no end.
                    Ok(()) | Err(Stop::End) => {}
                    failed => return failed,
                }
                set_index(list, index, value.unwrap_or_default())
            }
            Some('[') => {
                let next = self.index()?;
                let mut inner = match present.map(|at| &mut list[at]) {
                    None | Some(Value::Null) => Vec::new(),
                    Some(Value::Array(items)) => items.clone(),
                    Some(other) => return Err(wrong_shape(other, &Value::Array(vec![])).into()),
                };
                let done = self.list_item(&mut inner, next, level);
                if let (Err(_), Some(at)) = (&done, present) {
                    if list[at].is_array() {
                        list[at] = Value::Array(inner);
                    }
                    return done;
                }
                done?;
                set_index(list, index, Value::Array(inner))
            }
            Some(_) => {
                let mut inner = match present.map(|at| std::mem::take(&mut list[at])) {
                    Some(Value::Object(map)) => map,
                    _ => Map::new(),
                };
                let done = self.key(&mut inner, level);
                match (done, present) {
                    (Ok(()), _) => set_index(list, index, Value::Object(inner)),
                    (stopped, Some(at)) => {
                        list[at] = Value::Object(inner);
                        stopped
                    }
                    (stopped, None) => stopped,
                }
            }
        }
    }

    /// Skips blanks; true if the value ends here (a comma is consumed).
    fn empty_value(&mut self) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(',') {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => self.rest.is_empty(),
        }
    }

    fn value_list(&mut self) -> Result<Vec<Value>, Stop> {
        let mut list = Vec::new();
        loop {
            let Token { text, stop } = self.until(&[',', '}']);
            let ended = match stop {
                None => return Err(StrvalsError::UnterminatedList.into()),
                Some(stop) => stop == '}',
            };
            if ended {
                self.rest = self.rest.strip_prefix(',').unwrap_or(self.rest);
            }
            list.push(self.read(text)?);
            if ended {
                return Ok(list);
            }
        }
    }

    fn read(&mut self, text: String) -> Result<Value, Stop> {
        match self.mode {
            Mode::Typed => Ok(typed(text)),
            Mode::File(reader) => match reader(&text) {
                Ok(content) => Ok(Value::String(content)),
                Err(message) => Err(StrvalsError::File(message).into()),
            },
            Mode::Text | Mode::Json | Mode::Literal => Ok(Value::String(text)),
        }
    }

    /// Reads one JSON value from the front of the rest.
    fn json(&mut self) -> Result<Value, Stop> {
        let end = json_end(self.rest);
        let value = end.and_then(|end| json::decode(&self.rest.as_bytes()[..end]).ok());
        match (end, value) {
            (Some(end), Some(value)) => {
                self.rest = &self.rest[end..];
                Ok(json::floats(value))
            }
            _ => {
                let wrong = json_stream::error(self.rest.as_bytes());
                Err(wrong
                    .map_or(StrvalsError::JsonEnds, StrvalsError::Json)
                    .into())
            }
        }
    }
}

/// Where the JSON value at the front of `text` ends; `None` if it does not.
fn json_end(text: &str) -> Option<usize> {
    let start = text.len() - text.trim_start_matches([' ', '\t', '\r', '\n']).len();
    let bytes = text.as_bytes();
    match bytes.get(start)? {
        b'{' | b'[' => {
            let (mut depth, mut at) = (0_usize, start);
            loop {
                match bytes.get(at)? {
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' if depth == 1 => return Some(at + 1),
                    b'}' | b']' => depth -= 1,
                    b'"' => at = string_end(bytes, at)? - 1,
                    _ => {}
                }
                at += 1;
            }
        }
        b'"' => string_end(bytes, start),
        b'-' | b'0'..=b'9' => Some(number_end(bytes, start)),
        _ => ["true", "false", "null"]
            .iter()
            .find(|word| text[start..].starts_with(**word))
            .map(|word| start + word.len()),
    }
}

fn string_end(bytes: &[u8], quote: usize) -> Option<usize> {
    let mut at = quote + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn number_end(bytes: &[u8], start: usize) -> usize {
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count()
    };
    let mut end = start + usize::from(bytes[start] == b'-');
    // JSON numbers have no leading zeros: `01` is 0 and then something else.
    end += if bytes.get(end) == Some(&b'0') {
        1
    } else {
        digits(end)
    };
    if bytes.get(end) == Some(&b'.') {
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let signed = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        end += 1 + signed + digits(end + 1 + signed);
    }
    end
}

fn wrong_shape(found: &Value, expected: &Value) -> StrvalsError {
    StrvalsError::Shape {
        found: match found {
            Value::Null => "nil",
            found => json::go_type(found),
        },
        expected: json::go_type(expected),
    }
}

/// An empty name sets nothing.
fn put(data: &mut Map<String, Value>, name: String, value: Value) {
    if !name.is_empty() {
        data.insert(name, value);
    }
}

fn set_index(list: &mut Vec<Value>, index: i64, value: Value) -> Result<(), Stop> {
    if index > MAX_INDEX {
        return Err(StrvalsError::IndexTooLarge(index).into());
    }
    let at = usize::try_from(index).map_err(|_| StrvalsError::NegativeIndex(index))?;
    if list.len() <= at {
        list.resize(at + 1, Value::Null);
    }
    list[at] = value;
    Ok(())
}

fn typed(text: String) -> Value {
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    if is("true") {
        return Value::Bool(true);
    }
    if is("false") {
        return Value::Bool(false);
    }
    if is("null") {
        return Value::Null;
    }
    if text == "0" {
        return Value::from(0_i64);
    }
    if !text.starts_with('0')
        && let Ok(number) = strconv::parse_int(&text, 10, 64)
    {
        return Value::from(number);
    }
    Value::String(text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::Mode;

    fn set(expression: &str, mut mode: Mode<'_>) -> Value {
        let mut values = Map::new();
        super::set(expression, &mut mode, &mut values).expect("a valid expression");
        Value::Object(values)
    }

    #[test]
    fn types_are_guessed() {
        assert_eq!(
            set("a=1,b=1.5,c=TRUE,d=null,e=010,f=0,g=", Mode::Typed),
            json!({
                "a": 1, "b": "1.5", "c": true, "d": null, "e": "010", "f": 0, "g": ""
            })
        );
    }

    #[test]
    fn paths_and_lists_nest() {
        assert_eq!(
            set(r"a.b[1].c=v,d={x,2},e\.f=g", Mode::Typed),
            json!({"a": {"b": [null, {"c": "v"}]}, "d": ["x", 2], "e.f": "g"})
        );
    }

    #[test]
    fn json_values_end_where_json_ends() {
        assert_eq!(
            set(r#"a={"b":[1,"x]"]},c=,d= 2 "#, Mode::Json),
            json!({"a": {"b": [1.0, "x]"]}, "c": null, "d": 2.0})
        );
    }

    #[test]
    fn literals_are_taken_whole() {
        assert_eq!(
            set(r"a.b={x},c=\d", Mode::Literal),
            json!({"a": {"b": r"{x},c=\d"}})
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_is_reported() {
        let mut reader = |name: &str| Err(format!("no file {name}"));
        let mut mode = Mode::File(&mut reader);
        let error = super::set("a=x", &mut mode, &mut Map::new()).expect_err("no file");
        assert_eq!(error.to_string(), "no file x");
    }
}
