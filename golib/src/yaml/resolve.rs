//! What a scalar is: YAML 1.1 as yaml.v2 understands it, and yaml.v3 for the most part (`resolve.go` of both).

use std::borrow::Cow;

use serde_json::{Number, Value};

use super::error::Error;
use super::value::{Key, Raw};
use crate::strconv::{parse_float, parse_int, parse_uint};
use crate::time::{Time, Zone};
use crate::{base64, utf8};

const PREFIX: &str = "tag:yaml.org,2002:";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Str,
    Bool,
    Int,
    Float,
    Null,
    Timestamp,
}

/// Whose rules are followed: yaml.v3 has two words for each boolean, in three cases, and octals of other forms.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Rules {
    V2,
    V3,
}

impl Tag {
    /// By its name without any prefix.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "str" => Self::Str,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "float" => Self::Float,
            "null" => Self::Null,
            "timestamp" => Self::Timestamp,
            _ => return None,
        })
    }

    pub(super) fn short(self) -> &'static str {
        match self {
            Self::Str => "!!str",
            Self::Bool => "!!bool",
            Self::Int => "!!int",
            Self::Float => "!!float",
            Self::Null => "!!null",
            Self::Timestamp => "!!timestamp",
        }
    }
}

pub(super) fn is_merge(tag: &str, value: &str, implicit: bool) -> bool {
    value == "<<" && (implicit || tag.strip_prefix(PREFIX) == Some("merge"))
}

fn text(value: &str) -> Raw {
    Raw::Scalar(Key::Str(value.to_owned()))
}

/// The value of a scalar node.
pub(super) fn scalar(tag: &str, value: &str, implicit: bool) -> Result<Raw, Error> {
    if tag.is_empty() && !implicit {
        return Ok(text(value));
    }
    if tag.is_empty() {
        return Ok(plain(value, None).1.into_raw(value));
    }
    if tag.strip_prefix(PREFIX) == Some("binary") {
        let mut out = String::new();
        let data = base64::decode(value)
            .map_err(|_| Error::yaml("!!binary value contains invalid base64 data"))?;
        utf8::push(&mut out, &data);
        return Ok(Raw::Scalar(Key::Str(out)));
    }
    let Some(expected) = tag.strip_prefix(PREFIX).and_then(Tag::named) else {
        return Ok(text(value));
    };
    match (expected, plain(value, Some(expected))) {
        (Tag::Str, _) => Ok(text(value)),
        (_, (found, resolved)) if found == expected => Ok(resolved.into_raw(value)),
        #[expect(clippy::cast_precision_loss, reason = "the tag asks for a float")]
        (Tag::Float, (_, Plain::Int(integer))) => Ok(Raw::Scalar(Key::Float(integer as f64))),
        (_, (found, _)) => Err(Error::yaml(format!(
            "cannot decode {} `{value}` as a {}",
            found.short(),
            expected.short()
        ))),
    }
}

/// A key of an untagged scalar as JSON has it.
pub(super) struct PlainKey {
    pub(super) text: String,
    /// It was a boolean or a number.
    pub(super) is_converted: bool,
}

/// The key an untagged scalar is. `None` for merge keys and what JSON has no text for, or a rare one.
pub(super) fn plain_key(value: Cow<'_, str>, implicit: bool) -> Option<PlainKey> {
    let converted = match plain(&value, None).1 {
        _ if !implicit => None,
        Plain::Str if value == "<<" => return None,
        Plain::Str | Plain::Time(_) => None,
        Plain::Bool(value) => Some(value.to_string()),
        Plain::Int(value) => Some(value.to_string()),
        Plain::Null | Plain::Uint(_) | Plain::Float(_) => return None,
    };
    Some(PlainKey {
        is_converted: converted.is_some(),
        text: converted.unwrap_or_else(|| value.into_owned()),
    })
}

/// The value of an untagged plain scalar, its numbers as floats where asked. `None` for what JSON cannot hold.
#[expect(clippy::cast_precision_loss, reason = "floats are asked for")]
pub(super) fn plain_value(value: Cow<'_, str>, floats: bool) -> Option<Value> {
    Some(match plain(&value, None).1 {
        Plain::Null => Value::Null,
        Plain::Bool(value) => value.into(),
        Plain::Int(value) if !floats => value.into(),
        Plain::Uint(value) if !floats => value.into(),
        Plain::Int(value) => Number::from_f64(value as f64)?.into(),
        Plain::Uint(value) => Number::from_f64(value as f64)?.into(),
        Plain::Float(value) => Number::from_f64(value)?.into(),
        Plain::Str | Plain::Time(_) => Value::String(value.into_owned()),
    })
}

/// Whether an untagged scalar may be the value of any key, and whether it may be a key, as far as JSON can hold it. Rather no
/// than yes for what is rare.
pub(super) fn fits_json(value: &str, is_key: bool) -> bool {
    match plain(value, None).1 {
        Plain::Null | Plain::Uint(_) => !is_key,
        Plain::Bool(_) | Plain::Int(_) | Plain::Time(_) | Plain::Str => true,
        Plain::Float(float) => !is_key && float.is_finite(),
    }
}

/// Whether a string must be quoted lest it be read back as something else.
pub(super) fn is_plain_string(value: &str) -> bool {
    plain(value, None).0 == Tag::Str && !is_base60(value)
}

/// Base 60 is read as text, but quoted for the sake of other parsers: `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`
fn is_base60(value: &str) -> bool {
    let digits = value.strip_prefix(['-', '+']).unwrap_or(value);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return false;
    }
    let mut parts = digits.split(':');
    let is_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let is_sixty =
        |text: &str| matches!(text.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9']);
    let (Some(first), Some(last)) = (parts.next(), parts.next_back()) else {
        return false;
    };
    let (last, fraction) = last.split_once('.').unwrap_or((last, ""));
    is_digits(first) && parts.all(is_sixty) && is_sixty(last) && is_digits(fraction)
}

/// What an untagged scalar is; text is left where it stands.
pub(super) enum Plain {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    /// In an untyped value of yaml.v2 it stays text, but it is quoted when written.
    Time(Time),
    Str,
}

impl Plain {
    fn into_raw(self, text: &str) -> Raw {
        Raw::Scalar(match self {
            Self::Null => Key::Null,
            Self::Bool(value) => Key::Bool(value),
            Self::Int(value) => Key::Int(value),
            Self::Uint(value) => Key::Uint(value),
            Self::Float(value) => Key::Float(value),
            Self::Time(_) | Self::Str => Key::Str(text.to_owned()),
        })
    }
}

fn plain(value: &str, tag: Option<Tag>) -> (Tag, Plain) {
    resolve(value, tag, Rules::V2)
}

/// Only a time depends on the tag that is asked for.
pub(super) fn resolve(value: &str, tag: Option<Tag>, rules: Rules) -> (Tag, Plain) {
    const STRING: (Tag, Plain) = (Tag::Str, Plain::Str);
    if tag == Some(Tag::Str) {
        return STRING;
    }
    let first = value.as_bytes().first();
    let is_number = matches!(first, Some(b'.' | b'+' | b'-' | b'0'..=b'9'));
    if value.len() <= LONGEST_WORD
        && let Some(word) = word(value)
    {
        return match word {
            (Tag::Bool, _) if rules == Rules::V3 && !is_word_of_v3(value) => STRING,
            word => word,
        };
    }
    if !is_number {
        return STRING;
    }
    if first == Some(&b'.') {
        return match parse_float(value, 64) {
            Ok(float) => (Tag::Float, Plain::Float(float)),
            Err(_) => STRING,
        };
    }
    if tag.is_none_or(|tag| tag == Tag::Timestamp)
        && let Some(time) = timestamp(value)
    {
        return (Tag::Timestamp, Plain::Time(time));
    }
    let digits = if value.contains('_') {
        Cow::Owned(value.replace('_', ""))
    } else {
        Cow::Borrowed(value)
    };
    number(&digits, rules).unwrap_or(STRING)
}

fn is_word_of_v3(value: &str) -> bool {
    matches!(
        value,
        "true" | "True" | "TRUE" | "false" | "False" | "FALSE"
    )
}

/// Bytes of the longest of the words below.
const LONGEST_WORD: usize = 5;

fn word(value: &str) -> Option<(Tag, Plain)> {
    Some(match value {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            (Tag::Bool, Plain::Bool(true))
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            (Tag::Bool, Plain::Bool(false))
        }
        "" | "~" | "null" | "Null" | "NULL" => (Tag::Null, Plain::Null),
        ".nan" | ".NaN" | ".NAN" => (Tag::Float, Plain::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            (Tag::Float, Plain::Float(f64::INFINITY))
        }
        "-.inf" | "-.Inf" | "-.INF" => (Tag::Float, Plain::Float(f64::NEG_INFINITY)),
        _ => return None,
    })
}

/// `digits` has no underscores any more.
fn number(digits: &str, rules: Rules) -> Option<(Tag, Plain)> {
    let unsigned = digits.strip_prefix(['-', '+']).unwrap_or(digits);
    let is_integral =
        |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b'x' | b'X' | b'o' | b'O');
    if unsigned.bytes().all(is_integral) {
        if let Ok(integer) = parse_int(digits, 0, 64) {
            return Some((Tag::Int, Plain::Int(integer)));
        }
        if let Ok(integer) = parse_uint(digits, 0, 64) {
            return Some((Tag::Int, Plain::Uint(integer)));
        }
    }
    if is_yaml_float(digits)
        && let Ok(float) = parse_float(digits, 64)
    {
        return Some((Tag::Float, Plain::Float(float)));
    }
    let prefixes = match rules {
        Rules::V2 => &[("0b", 2)][..],
        Rules::V3 => &[("0b", 2), ("0o", 8)],
    };
    prefixes.iter().find_map(|(prefix, base)| {
        let negative = digits.strip_prefix('-');
        // A sign may stand behind the prefix: `0b-1` is -1.
        let text = match negative.and_then(|rest| rest.strip_prefix(prefix)) {
            Some(rest) => format!("-{rest}"),
            None => digits.strip_prefix(prefix)?.to_owned(),
        };
        let integer = parse_int(&text, *base, 64).map(Plain::Int);
        let integer = integer.or_else(|_| parse_uint(&text, *base, 64).map(Plain::Uint));
        Some((Tag::Int, integer.ok()?))
    })
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_yaml_float(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let is_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_is_fine = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && is_digits(digits)
    });
    is_digits(whole)
        && is_digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent_is_fine
}

/// What both take for a time.
fn timestamp(text: &str) -> Option<Time> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits != 4 || text.as_bytes().get(4) != Some(&b'-') {
        return None;
    }
    [
        "2006-1-2T15:4:5.999999999Z07:00",
        "2006-1-2t15:4:5.999999999Z07:00",
        "2006-1-2 15:4:5.999999999",
        "2006-1-2",
    ]
    .iter()
    .find_map(|layout| Time::parse(layout, text, &Zone::Utc).ok())
}
