//! Random templates and the values they run on.

mod documents;
mod functions;
mod patterns;
mod statements;
mod texts;
mod values;

use serde_json::Value as Json;

use crate::Choices;

pub use documents::{json_text, toml_text, yaml_text};
pub use patterns::{pattern, subject};
pub use texts::{constraint, duration, glob, layout, printf_format, time_text, version, words};
pub use values::{small_value, value};

/// Which functions templates may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vocabulary {
    /// Go's own.
    Builtin,
    /// Helm's, as far as their results do not depend on clock, chance or addresses.
    Helm,
    /// Fleet's, with its delimiters.
    Fleet,
    /// All of Helm's, also those whose results nobody can foretell.
    Everything,
}

/// A template, those it may name, and its data.
#[derive(Clone, Debug)]
pub struct Case {
    /// The source of the template that is rendered.
    pub template: String,
    /// Name and source of the others, to be parsed before it.
    pub others: Vec<(String, String)>,
    /// Dot: an object.
    pub data: Json,
}

/// A template over the whole language.
pub fn case(choices: &mut Choices<'_>, vocabulary: Vocabulary) -> Case {
    let data = values::dot(choices);
    let (template, others) = statements::templates(choices, vocabulary);
    Case {
        template,
        others,
        data,
    }
}
