//! Runs the recorded answers of the real Go programs against our crates.
//!
//! A vector file is one JSON array of cases, or a single case. Each file has a module here with one function from a case to an [`Outcome`];
//! [`SUITES`] names them. The formats are described beside the vectors.

mod engine;
mod fleet_values;
mod functions;
mod gofmt;
mod label_selectors;
mod manifests;
mod ready;
mod release;
mod repository;
mod semver;
mod smp;
mod sprig;
mod values;
mod yaml;

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Map, Value};

/// Which function judges the cases of which file. A file that is missing here fails as a whole, loudly.
pub const SUITES: &[(&str, Suite)] = &[
    ("manifests.json", manifests::run),
    ("ready.json", ready::run),
    ("release.json", release::run),
    ("smp.json", smp::run),
    ("engine.json", engine::run),
    ("fleet_values.json", fleet_values::run),
    ("functions.json", functions::run),
    ("gofmt.json", gofmt::run),
    ("label_selectors.json", label_selectors::run),
    ("semver.json", semver::run),
    ("sprig.json", sprig::run),
    ("values.json", values::run),
    ("yaml.json", yaml::run),
];

/// Judges one case.
pub type Suite = fn(&Case) -> Outcome;

/// One recorded case.
pub struct Case {
    fields: Map<String, Value>,
}

/// Whether our answer was the recorded one.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It was.
    Passed,
    /// It was not, or the case cannot be run.
    Failed {
        /// Our answer, or why there is none.
        got: String,
        /// The recorded answer.
        want: String,
    },
}

impl Outcome {
    /// Compares our answer with the recorded one as values.
    pub fn of_values(got: &Value, want: &Value) -> Self {
        if same(got, want) {
            Self::Passed
        } else {
            Self::failed(got, want)
        }
    }

    /// Compares our answer with the recorded one as text.
    pub fn of_texts(got: &str, want: &str) -> Self {
        if got == want {
            Self::Passed
        } else {
            Self::failed(got, want)
        }
    }

    /// A difference.
    pub fn failed(got: impl ToString, want: impl ToString) -> Self {
        Self::Failed {
            got: got.to_string(),
            want: want.to_string(),
        }
    }

    /// A case this runner does not know how to run.
    pub fn unknown(kind: &str) -> Self {
        Self::failed(format!("the runner knows no {kind:?}"), "")
    }

    /// A failure as an error, for a case that compares several things one after the other.
    pub fn checked(self) -> Result<(), Self> {
        match self {
            Self::Passed => Ok(()),
            failed => Err(failed),
        }
    }

    /// The first outcome that is a failure, else a pass.
    pub fn all(outcomes: impl IntoIterator<Item = Self>) -> Self {
        outcomes
            .into_iter()
            .find(|outcome| *outcome != Self::Passed)
            .unwrap_or(Self::Passed)
    }
}

/// What a case that compares several things came to: the first difference.
pub(crate) type Check = Result<(), Outcome>;

pub(crate) fn compare(got: &Value, want: &Value) -> Check {
    Outcome::of_values(got, want).checked()
}

impl Case {
    /// A case from its JSON object.
    pub fn new(value: Value) -> Self {
        let fields = match value {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        Self { fields }
    }

    /// The case's name, unique in its file.
    pub fn name(&self) -> &str {
        self.text("name").unwrap_or_default()
    }

    /// The `kind` field, empty if there is none.
    pub fn kind(&self) -> &str {
        self.text("kind").unwrap_or_default()
    }

    /// A field, if it is present; null counts as present.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field)
    }

    /// A field's value, null if it is absent.
    pub fn value(&self, field: &str) -> &Value {
        self.get(field).unwrap_or(&Value::Null)
    }

    /// A text field, if it is present.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.get(field).and_then(Value::as_str)
    }

    /// A text field as bytes, from `FIELD` or, when it is not UTF-8, from `FIELD_base64`.
    pub fn bytes(&self, field: &str) -> Option<Vec<u8>> {
        use base64::Engine as _;
        if let Some(text) = self.text(field) {
            return Some(text.as_bytes().to_vec());
        }
        let encoded = self.text(&format!("{field}_base64"))?;
        base64::engine::general_purpose::STANDARD
            .decode(encoded)
            .ok()
    }

    /// A field as a serde type; `None` when absent or of another shape.
    pub fn parse<T: serde::de::DeserializeOwned>(&self, field: &str) -> Option<T> {
        serde_json::from_value(self.get(field)?.clone()).ok()
    }

    /// Runs the case; a panic is a failure.
    pub fn run(&self, suite: Suite) -> Outcome {
        catch_unwind(AssertUnwindSafe(|| suite(self))).unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Outcome::failed(
                format!("panicked: {}", text.unwrap_or_default()),
                "no panic",
            )
        })
    }
}

/// Whether two values are the same to Go, which holds every JSON number as a 64-bit float.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|((key_a, a), (key_b, b))| key_a == key_b && same(a, b))
        }
        _ => a == b,
    }
}
