//! The values a bundle is deployed with: where they come from, and how `${ }` in them is filled in.
//!
//! Everything here is pure: objects go in as they were read. Stored values are checked against their
//! hash ([`stored`]), `valuesFrom` entries are merged on top ([`references`], [`parse`], [`merge`]),
//! and inline values are templated with the facts of the cluster ([`preprocess`]). Mirrors
//! `pkg/helmvalues`, `getValues` (`internal/helmdeployer/install.go`) and `preprocessHelmValues`
//! (`internal/cmd/controller/target/builder.go`).

mod cluster;
mod from;
mod stored;
mod template;

use serde_json::{Map, Value};

pub use cluster::{ClusterFacts, FactsError};
pub use from::{Reference, ReferenceKind, ValuesFromError, merge, parse, references};
pub use stored::{HashMismatch, Stored, stored};
pub use template::{TemplateError, needs_processing, preprocess};

/// Values as Helm takes them; numbers are floats, as everywhere after Go's decoder.
pub type Values = Map<String, Value>;

/// Inline values of the options, with numbers as Go holds them.
pub fn inline(values: Option<&Values>) -> Values {
    match golib::json::floats(Value::Object(values.cloned().unwrap_or_default())) {
        Value::Object(values) => values,
        _ => Values::new(),
    }
}
