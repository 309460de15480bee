//! What a scalar is: YAML 1.1 as yaml.v2 understands it (`resolve.go`).

use std::sync::LazyLock;

use regex::Regex;

use super::Error;
use super::value::Raw;
use crate::json::push_go_utf8;
use crate::strconv::{parse_float, parse_int, parse_uint};
use crate::time::{Time, Zone};

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

impl Tag {
    fn parse(tag: &str) -> Option<Self> {
        Some(match tag.strip_prefix(PREFIX)? {
            "str" => Self::Str,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "float" => Self::Float,
            "null" => Self::Null,
            "timestamp" => Self::Timestamp,
            _ => return None,
        })
    }

    fn short(self) -> &'static str {
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

/// The value of a scalar node.
pub(super) fn scalar(tag: &str, value: &str, implicit: bool) -> Result<Raw, Error> {
    if tag.is_empty() && !implicit {
        return Ok(Raw::Str(value.to_owned()));
    }
    if tag.is_empty() {
        return Ok(plain(value, None).1);
    }
    if tag.strip_prefix(PREFIX) == Some("binary") {
        let mut out = String::new();
        let data = decode_base64(value)
            .ok_or_else(|| Error::yaml("!!binary value contains invalid base64 data"))?;
        push_go_utf8(&mut out, &data);
        return Ok(Raw::Str(out));
    }
    let Some(wanted) = Tag::parse(tag) else {
        return Ok(Raw::Str(value.to_owned()));
    };
    match (wanted, plain(value, Some(wanted))) {
        (Tag::Str, _) => Ok(Raw::Str(value.to_owned())),
        (_, (found, resolved)) if found == wanted => Ok(resolved),
        #[expect(clippy::cast_precision_loss, reason = "the tag asks for a float")]
        (Tag::Float, (_, Raw::Int(integer))) => Ok(Raw::Float(integer as f64)),
        (_, (found, _)) => Err(Error::yaml(format!(
            "cannot decode {} `{value}` as a {}",
            found.short(),
            wanted.short()
        ))),
    }
}

/// Go's `base64.StdEncoding`: padded, line breaks ignored.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    use base64::Engine as _;
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    const ENGINE: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    ENGINE.decode(text).ok()
}

/// Whether a string must be quoted lest it be read back as something else.
pub(super) fn is_plain_string(value: &str) -> bool {
    plain(value, None).0 == Tag::Str && !is_base60(value)
}

/// Base 60 is read as text, but quoted for the sake of other parsers.
fn is_base60(value: &str) -> bool {
    static BASE60: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\A[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?\z")
            .expect("a valid pattern")
    });
    value.contains(':') && BASE60.is_match(value)
}

fn plain(value: &str, tag: Option<Tag>) -> (Tag, Raw) {
    let string = || (Tag::Str, Raw::Str(value.to_owned()));
    if tag == Some(Tag::Str) {
        return string();
    }
    if let Some(word) = word(value) {
        return word;
    }
    match value.as_bytes().first() {
        Some(b'.') => match parse_float(value, 64) {
            Ok(float) => (Tag::Float, Raw::Float(float)),
            Err(_) => string(),
        },
        Some(b'+' | b'-' | b'0'..=b'9') => {
            if tag.is_none_or(|tag| tag == Tag::Timestamp) && is_timestamp(value) {
                return (Tag::Timestamp, Raw::Str(value.to_owned()));
            }
            number(&value.replace('_', "")).unwrap_or_else(string)
        }
        _ => string(),
    }
}

fn word(value: &str) -> Option<(Tag, Raw)> {
    Some(match value {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            (Tag::Bool, Raw::Bool(true))
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            (Tag::Bool, Raw::Bool(false))
        }
        "" | "~" | "null" | "Null" | "NULL" => (Tag::Null, Raw::Null),
        ".nan" | ".NaN" | ".NAN" => (Tag::Float, Raw::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            (Tag::Float, Raw::Float(f64::INFINITY))
        }
        "-.inf" | "-.Inf" | "-.INF" => (Tag::Float, Raw::Float(f64::NEG_INFINITY)),
        _ => return None,
    })
}

/// `digits` has no underscores any more.
fn number(digits: &str) -> Option<(Tag, Raw)> {
    if let Ok(integer) = parse_int(digits, 0, 64) {
        return Some((Tag::Int, Raw::Int(integer)));
    }
    if let Ok(integer) = parse_uint(digits, 0, 64) {
        return Some((Tag::Int, Raw::Uint(integer)));
    }
    if is_yaml_float(digits)
        && let Ok(float) = parse_float(digits, 64)
    {
        return Some((Tag::Float, Raw::Float(float)));
    }
    // A sign may stand behind the binary prefix: `0b-1` is -1.
    if let Some(bits) = digits.strip_prefix("0b") {
        if let Ok(integer) = parse_int(bits, 2, 64) {
            return Some((Tag::Int, Raw::Int(integer)));
        }
        return parse_uint(bits, 2, 64)
            .ok()
            .map(|integer| (Tag::Int, Raw::Uint(integer)));
    }
    let bits = digits.strip_prefix("-0b")?;
    parse_int(format!("-{bits}"), 2, 64)
        .ok()
        .map(|integer| (Tag::Int, Raw::Int(integer)))
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_yaml_float(text: &str) -> bool {
    static FLOAT: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\A[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\z")
            .expect("a valid pattern")
    });
    FLOAT.is_match(text)
}

/// Whether yaml.v2 takes the text for a time. In an untyped value it stays text, but it is quoted when written.
fn is_timestamp(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    digits == 4
        && text.as_bytes().get(4) == Some(&b'-')
        && [
            "2006-1-2T15:4:5.999999999Z07:00",
            "2006-1-2t15:4:5.999999999Z07:00",
            "2006-1-2 15:4:5.999999999",
            "2006-1-2",
        ]
        .iter()
        .any(|layout| Time::parse(layout, text, &Zone::Utc).is_ok())
}
