//! TOML as BurntSushi/toml 1.6.0 reads and writes it, error texts included.

mod decode;
mod encode;
mod scan;

use std::collections::BTreeMap;

pub use decode::decode_within;
pub use encode::encode;

use crate::budget::TooLarge;
use crate::time::Time;

/// Tables and arrays may nest this deep; the Go library has no limit of its own.
const MAX_DEPTH: usize = 500;

/// A TOML value, and what else a Go program can hand to the encoder.
#[derive(Debug, Clone)]
pub enum Value {
    /// Go's nil: left out of tables, refused in arrays. Never decoded.
    Nil,
    /// `true` or `false`.
    Bool(bool),
    /// A signed integer.
    Integer(i64),
    /// An integer beyond an i64. Never decoded.
    Unsigned(u64),
    /// A float; written with a point or an exponent.
    Float(f64),
    /// A complex number, which TOML cannot hold. Never decoded.
    Complex,
    /// Text.
    String(String),
    /// A time. One without offset is in UTC in a zone named `datetime-local`, `date-local` or `time-local`, as in Go.
    Datetime(Time),
    /// An array.
    Array(Vec<Value>),
    /// What `[[name]]` makes: an array of nothing but tables, which has a type of its own in Go.
    Tables(Vec<Value>),
    /// A table.
    Table(BTreeMap<String, Value>),
    /// A Go struct: a table whose fields stay in the order of their declaration. Never decoded.
    Struct(Vec<(String, Value)>),
}

/// Why a text is no TOML or a value cannot be written, printed as the Go library prints it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not TOML.
    #[error("toml: line {line}{}: {message}", last_key_text(.last_key))]
    Parse {
        /// Counted from 1.
        line: usize,
        /// The key being set, with the table it is in; may be empty.
        last_key: String,
        /// What is wrong.
        message: String,
    },
    /// A value that TOML cannot hold.
    #[error("toml: {0}")]
    Encode(&'static str),
    /// A value of a type that TOML does not have.
    #[error("{0}")]
    UnsupportedType(&'static str),
    /// What is made of the text would take more memory than it may.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

fn last_key_text(key: &str) -> String {
    if key.is_empty() {
        return String::new();
    }
    format!(" (last key {})", crate::strconv::quote(key))
}

fn is_bare_key_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// A key as it is written: bare if it can be.
fn key_text(key: &str) -> String {
    if !key.is_empty() && key.chars().all(is_bare_key_char) {
        return key.to_owned();
    }
    encode::quoted(key)
}

/// A path of keys, joined with points.
fn path_text(path: &[String]) -> String {
    path.iter()
        .map(|key| key_text(key))
        .collect::<Vec<_>>()
        .join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    fn decode(text: &[u8]) -> Result<BTreeMap<String, Value>, Error> {
        decode_within(text, &mut Budget::default())
    }

    fn table(text: &str) -> String {
        match decode(text.as_bytes()) {
            Ok(table) => encode(&Value::Table(table)).unwrap(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn round_trips_in_the_go_librarys_layout() {
        for (text, want) in [
            ("", ""),
            (
                "b = 1\na = 1.0\n[t]\nx = 'y'",
                "a = 1.0\nb = 1\n\n[t]\n  x = \"y\"\n",
            ),
            (
                "[[l]]\na = 1\n[[l]]\na = 2",
                "[[l]]\n  a = 1\n\n[[l]]\n  a = 2\n",
            ),
            (
                "a.b = 0xff\na.c = [1, {d = 2}]",
                "[a]\n  b = 255\n  c = [1, {d = 2}]\n",
            ),
            (
                "d = 1979-05-27\nt = 07:32:00.5",
                "d = 1979-05-27\nt = 07:32:00.5\n",
            ),
            (
                "o = 1979-05-27 07:32:00-07:00",
                "o = 1979-05-27T07:32:00-07:00\n",
            ),
            ("s = \"\"\"\nx\\\n   y\\u00e9\"\"\"", "s = \"xyé\"\n"),
            ("s = '''\nx'y'''", "s = \"x'y\"\n"),
            ("f = [1e3, +inf, -0.0]", "f = [1000.0, inf, -0.0]\n"),
            (
                "p = {x.y = 1, z = {}}",
                "[p]\n  [p.x]\n    y = 1\n  [p.z]\n",
            ),
            // An empty key passes for the array it stands in.
            ("a = [{\"\" = [1]}, 2]", "a = [{\"\" = [1]}, 2]\n"),
            (
                "a = [{b = 1}, {b = 2}]",
                "[[a]]\n  b = 1\n\n[[a]]\n  b = 2\n",
            ),
        ] {
            assert_eq!(table(text), want, "{text}");
        }
    }

    #[test]
    fn errors_read_as_the_go_librarys() {
        for (text, want) in [
            (
                "a = 1\na = 2",
                "toml: line 2 (last key \"a\"): Key 'a' has already been defined.",
            ),
            (
                "[a]\n[a]",
                "toml: line 2: Key 'a' has already been defined.",
            ),
            (
                "a = 1\n[a.b]",
                "toml: line 2: Key 'a' was already created as a hash.",
            ),
            (
                "a =",
                "toml: line 1 (last key \"a\"): unexpected EOF; expected value",
            ),
            (
                "a = b",
                "toml: line 1 (last key \"a\"): expected value but found \"b\" instead",
            ),
            (
                "[a",
                "toml: line 1: expected '.' or ']' to end table name, but got '\\x00' instead",
            ),
            (
                "[t]\na = 01",
                "toml: line 2 (last key \"t.a\"): Invalid integer \"01\": cannot have leading zeroes",
            ),
            (
                "a = [1 2]",
                "toml: line 1 (last key \"a\"): expected a comma (',') or array terminator (']'), but got '2'",
            ),
            (
                "a = \"\\q\"",
                "toml: line 1 (last key \"a\"): invalid escape in string '\\q'",
            ),
            (
                "a = \u{1}",
                "toml: line 1 (last key \"a\"): TOML files cannot contain control characters: '0x01'",
            ),
            (
                "d = 1979-13-01",
                "toml: line 1 (last key \"d\"): invalid datetime: \"1979-13-01\"",
            ),
        ] {
            assert_eq!(table(text), want, "{text}");
        }
    }

    #[test]
    fn times_without_an_offset_are_utc() {
        let moment = |text: &str| match decode(text.as_bytes()).unwrap().remove("t") {
            Some(Value::Datetime(time)) => time.unix(),
            other => panic!("{other:?}"),
        };
        let utc = moment("t = 1979-05-27T07:32:00Z");
        assert_eq!(moment("t = 1979-05-27T07:32:00"), utc);
    }

    #[test]
    fn nesting_is_bounded() {
        for text in [
            format!("a = {}", "[".repeat(100_000)),
            format!("a{} = 1", ".a".repeat(100_000)),
        ] {
            assert!(table(&text).ends_with("nested too deeply"));
        }
    }

    #[test]
    fn decoding_stops_at_the_memory_budget() {
        let deep = ".a".repeat(480);
        let lines = |line: &dyn Fn(usize) -> String| (0..8000).map(line).collect::<String>();
        let inline = |inner: &str| format!("{}{inner}{}", "{a=".repeat(240), "}".repeat(240));
        for text in [
            lines(&|n| format!("[k{n}{deep}]\n")),
            lines(&|n| format!("k{n}{deep} = 1\n")),
            format!("[k{deep}]\n{}", lines(&|n| format!("a{n} = 1\n"))),
            format!("[k{deep}]\nb = [{}]", "{a=1},".repeat(3000)),
            format!("b = [{}]", format!("{},", inline("1")).repeat(300)),
            // What is in a table is looked through once for each of those that it is in.
            format!("b = {}", inline(&format!("[{}]", "1,".repeat(100_000)))),
        ] {
            let decoded = decode_within(text.as_bytes(), &mut Budget::new(8 << 20));
            assert!(matches!(decoded, Err(Error::TooLarge(_))), "{text:.80}");
        }
        let usual = lines(&|n| {
            format!(
                "[[server.{}]]\nname = 'n{n}'\nports = [{{a = 1}}]\n",
                n % 20
            )
        });
        let mut budget = Budget::default();
        assert!(decode_within(usual.as_bytes(), &mut budget).is_ok());
        assert!(budget.spent() < 32 << 20, "{}", budget.spent());
    }
}
