//! What a value did wrong, in the words of santhosh-tekuri/jsonschema.

use std::fmt;
use std::sync::Arc;

use golib::strconv;
use serde_json::Value;

use super::number::{Decimal, english, grouped};

/// Bytes that a bound, and what is beside it, are shown with at most.
const LONGEST_NUMBER: usize = 48;

/// A failed keyword, with the failures that caused it.
#[derive(Debug, Clone, Default)]
pub(super) struct Failure {
    /// Path of the value.
    pub(super) location: Vec<String>,
    pub(super) kind: Kind,
    pub(super) causes: Vec<Failure>,
}

#[derive(Debug, Clone, Default)]
pub(super) enum Kind {
    /// Nobody asked what exactly.
    #[default]
    Unspecified,
    /// The whole document, against the schema at this URL.
    Schema(String),
    Group,
    Reference,
    FalseSchema,
    RefCycle {
        url: String,
        first: String,
        second: String,
    },
    Type {
        got: &'static str,
        want: Vec<&'static str>,
    },
    Enum(Arc<[Value]>),
    Const(Arc<Value>),
    Format {
        got: Value,
        want: &'static str,
        why: String,
    },
    Not,
    AllOf,
    AnyOf,
    OneOf(Option<[usize; 2]>),
    /// Too few or too many properties, items or characters.
    Size {
        keyword: &'static str,
        got: i64,
        want: i64,
    },
    AdditionalItems(usize),
    Required(Vec<String>),
    Dependency {
        property: String,
        missing: Vec<String>,
    },
    AdditionalProperties(Vec<String>),
    PropertyNames(String),
    UniqueItems([usize; 2]),
    Contains,
    MinContains {
        got: Vec<usize>,
        want: i64,
    },
    MaxContains {
        got: Vec<usize>,
        want: i64,
    },
    Pattern {
        got: String,
        want: String,
    },
    Bound {
        keyword: &'static str,
        got: Decimal,
        want: Decimal,
    },
    /// Ours alone: checking would take too long or too much stack.
    TooComplex,
}

impl Failure {
    /// The text with the places of values, without the values.
    pub(super) fn masked(&self) -> String {
        let mut out = String::new();
        self.print(0, false, &mut out);
        out
    }

    /// About how many bytes this failure and its line take, without its causes.
    pub(super) fn weight(&self) -> usize {
        let texts = |texts: &[String]| {
            let quoted = texts.iter().map(|text| quoted_length(text) + 24);
            quoted.sum::<usize>()
        };
        let shown = match &self.kind {
            Kind::Schema(text) | Kind::PropertyNames(text) => quoted_length(text),
            Kind::RefCycle { url, first, second } => url.len() + first.len() + second.len(),
            Kind::Enum(values) => values.iter().map(|value| display_length(value) + 2).sum(),
            Kind::Const(value) => display_length(value),
            Kind::Format { got, why, .. } => 2 * display_length(got) + why.len(),
            Kind::Required(names) | Kind::AdditionalProperties(names) => texts(names),
            Kind::Dependency { property, missing } => quoted_length(property) + texts(missing),
            Kind::MinContains { got, .. } | Kind::MaxContains { got, .. } => 8 * got.len(),
            Kind::Pattern { got, want } => quoted_length(got) + quoted_length(want),
            Kind::Bound { .. } => 2 * LONGEST_NUMBER,
            _ => 0,
        };
        size_of::<Self>() + texts(&self.location) + shown
    }

    /// The failures of a group; of any other, itself.
    pub(super) fn into_causes(self) -> Vec<Self> {
        match self.kind {
            Kind::Group => self.causes,
            _ => vec![self],
        }
    }

    /// Prints the tree: a line for each failure, indented below its cause.
    fn print(&self, indent: usize, shows_values: bool, out: &mut String) {
        let mut indent = indent;
        // A reference that failed for one reason is not worth a line.
        if !(matches!(self.kind, Kind::Reference) && self.causes.len() == 1) {
            if indent > 0 {
                out.push('\n');
                out.push_str(&"  ".repeat(indent - 1));
                out.push_str("- ");
            }
            indent += 1;
            if matches!(self.kind, Kind::Schema(_)) {
                out.push_str(&self.kind.to_string());
            } else {
                let place: String = self
                    .location
                    .iter()
                    .map(|key| format!("/{}", escape(key)))
                    .collect();
                let masked = Some(&self.kind).filter(|_| !shows_values);
                let what = masked
                    .and_then(Kind::without_value)
                    .unwrap_or_else(|| self.kind.to_string());
                out.push_str(&format!("at {}: {what}", quote(&place)));
            }
        }
        for cause in &self.causes {
            cause.print(indent, shows_values, out);
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.print(0, true, &mut out);
        f.write_str(&out)
    }
}

impl Kind {
    /// The text without the value, where it would show one.
    fn without_value(&self) -> Option<String> {
        match self {
            Self::Format { want, .. } => Some(format!("value is not valid {want}")),
            Self::Pattern { want, .. } => {
                Some(format!("value does not match pattern {}", quote(want)))
            }
            Self::Bound { keyword, want, .. } => {
                Some(format!("{keyword}: want {}", english(want.to_f64())))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |number: i64| grouped(&number.to_string());
        match self {
            Self::Unspecified | Self::Group | Self::Reference => f.write_str("validation failed"),
            Self::Schema(url) => write!(f, "jsonschema validation failed with {}", quote(url)),
            Self::FalseSchema => f.write_str("false schema"),
            Self::RefCycle { url, first, second } => write!(
                f,
                "both {first} and {second} resolve to {} causing reference cycle",
                strconv::quote(url)
            ),
            Self::Type { got, want } => write!(f, "got {got}, want {}", want.join(" or ")),
            Self::Enum(values) => match &**values {
                values if values.iter().any(|v| v.is_array() || v.is_object()) => {
                    f.write_str("'enum' failed")
                }
                [value] => write!(f, "value must be {}", display(value)),
                values => {
                    let values: Vec<String> = values.iter().map(display).collect();
                    write!(f, "value must be one of {}", values.join(", "))
                }
            },
            Self::Const(value) if value.is_array() || value.is_object() => {
                f.write_str("'const' failed")
            }
            Self::Const(value) => write!(f, "value must be {}", display(value)),
            Self::Format { got, want, why } => {
                write!(f, "{} is not valid {want}: {why}", display(got))
            }
            Self::Not => f.write_str("'not' failed"),
            Self::AllOf => f.write_str("'allOf' failed"),
            Self::AnyOf => f.write_str("'anyOf' failed"),
            Self::OneOf(None) => f.write_str("'oneOf' failed, none matched"),
            Self::OneOf(Some([first, second])) => {
                write!(f, "'oneOf' failed, subschemas {first}, {second} matched")
            }
            Self::Size { keyword, got, want } => {
                write!(f, "{keyword}: got {}, want {}", count(*got), count(*want))
            }
            Self::AdditionalItems(number) => {
                write!(
                    f,
                    "last {} additionalItem(s) not allowed",
                    grouped(&number.to_string())
                )
            }
            Self::Required(missing) => match missing.as_slice() {
                [property] => write!(f, "missing property {}", quote(property)),
                several => write!(f, "missing properties {}", quoted(several)),
            },
            Self::Dependency { property, missing } => write!(
                f,
                "properties {} required, if {} exists",
                quoted(missing),
                quote(property)
            ),
            Self::AdditionalProperties(names) => {
                write!(f, "additional properties {} not allowed", quoted(names))
            }
            Self::PropertyNames(name) => write!(f, "invalid propertyName {}", quote(name)),
            Self::UniqueItems([first, second]) => {
                write!(f, "items at {first} and {second} are equal")
            }
            Self::Contains => f.write_str("no items match contains schema"),
            Self::MinContains { got, want } if got.is_empty() => write!(
                f,
                "min {} items required to match contains schema, but none matched",
                count(*want)
            ),
            Self::MinContains { got, want } => write!(
                f,
                "min {} items required to match contains schema, but matched {} items at {}",
                count(*want),
                got.len(),
                positions(got)
            ),
            Self::MaxContains { got, want } => write!(
                f,
                "max {} items required to match contains schema, but matched {} items at {}",
                count(*want),
                got.len(),
                positions(got)
            ),
            Self::Pattern { got, want } => {
                write!(f, "{} does not match pattern {}", quote(got), quote(want))
            }
            Self::Bound { keyword, got, want } => write!(
                f,
                "{keyword}: got {}, want {}",
                english(got.to_f64()),
                english(want.to_f64())
            ),
            Self::TooComplex => f.write_str("values and schema are too complex to check"),
        }
    }
}

/// Escapes a key for a JSON pointer.
pub(super) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Single-quoted, otherwise as Go quotes.
fn quote(text: &str) -> String {
    // The quotes around it are still there: of a backslash at the end the library loses half.
    let quoted = strconv::quote(text).replace("\\\"", "\"");
    let inner = quoted.get(1..quoted.len() - 1).unwrap_or_default();
    format!("'{}'", inner.replace('\'', "\\'"))
}

fn quoted(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    quoted.join(", ")
}

fn positions(at: &[usize]) -> String {
    let positions: Vec<String> = at.iter().map(ToString::to_string).collect();
    positions.join(" ")
}

fn display_length(value: &Value) -> usize {
    match value {
        Value::String(text) => quoted_length(text),
        _ => 24,
    }
}

/// Bytes of a text once it is quoted, at most.
fn quoted_length(text: &str) -> usize {
    let length = |letter: char| match letter {
        '"' | '\'' | '\\' | '/' | '~' => 2,
        ' '..='~' => 1,
        '\0'..='\u{7f}' => 4,
        '\u{80}'..='\u{ffff}' => 6,
        _ => 10,
    };
    text.chars().map(length).sum()
}

fn display(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Array(_) | Value::Object(_) => "value".to_owned(),
        // Numbers of schemas are shown as they are written.
        Value::Number(number) => number.to_string(),
        other => golib::json::go_text(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn number(text: &str) -> Decimal {
        Decimal::from(&text.parse().expect("a number"))
    }

    /// Letters that are quoted take up to ten bytes.
    #[test]
    fn a_failure_weighs_what_its_line_takes() {
        for text in [
            "plain",
            "\u{1}",
            "'\"\\",
            "/~",
            "\u{9f}",
            "\u{200b}",
            "\u{e0001}",
            "日本",
        ] {
            let long = text.repeat(1_000);
            let kinds = [
                Kind::Const(Arc::new(json!(long))),
                Kind::Enum([json!(long), json!(1.5)].into()),
                Kind::Required(vec![long.clone(), text.to_owned()]),
                Kind::PropertyNames(long.clone()),
                Kind::Pattern {
                    got: long.clone(),
                    want: text.to_owned(),
                },
                Kind::Format {
                    got: json!(long),
                    want: "email",
                    why: "missing @".to_owned(),
                },
                Kind::Bound {
                    keyword: "minimum",
                    got: number("-12345678901234567891"),
                    want: number("1.234567890123456e-300"),
                },
            ];
            for kind in kinds {
                let failure = Failure {
                    location: vec![long.clone()],
                    kind,
                    causes: Vec::new(),
                };
                let (weight, line) = (failure.weight(), failure.to_string().len());
                assert!(weight >= line, "{weight} < {line}: {:?}", failure.kind);
            }
        }
    }
}
