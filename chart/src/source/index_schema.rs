//! The shape an index must have, with the errors Go's decoder gives for another one.
//!
//! `encoding/json` decodes into typed structs; we hold a tree, so the types are a table here. [`golib::json::At`] reads documents into
//! structs; this makes none, because an index may have a hundred thousand entries of which one is used.

use golib::json::{self, At, Mismatch};
use serde_json::{Map, Value};

use crate::chart::API_VERSION_V1;
use crate::metadata::{Draft, ValidationError};

/// A Go type as the decoder sees it.
enum Kind {
    Text,
    Bool,
    Time,
    /// `any`: everything fits.
    Any,
    List(&'static str, &'static Kind),
    Table(&'static str, &'static Kind),
    Struct(&'static Struct),
}

struct Struct {
    /// Name without package, as errors show the struct a field is in.
    name: &'static str,
    /// Name with package, as errors show the type that was expected.
    go_type: &'static str,
    fields: &'static [Field],
}

struct Field {
    name: &'static str,
    /// Inside an embedded struct whose name joins the path.
    embedded: Option<&'static str>,
    kind: Kind,
}

const fn own(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        embedded: None,
        kind,
    }
}

const fn metadata(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        embedded: Some("Metadata"),
        kind,
    }
}

const TEXTS: Kind = Kind::List("[]string", &Kind::Text);
const TEXT_TABLE: Kind = Kind::Table("map[string]string", &Kind::Text);

static INDEX: Struct = Struct {
    name: "IndexFile",
    go_type: "repo.IndexFile",
    fields: &[
        own(
            "serverInfo",
            Kind::Table("map[string]interface {}", &Kind::Any),
        ),
        own("apiVersion", Kind::Text),
        own("generated", Kind::Time),
        own(
            "entries",
            Kind::Table("map[string]repo.ChartVersions", &VERSIONS),
        ),
        own("publicKeys", TEXTS),
        own("annotations", TEXT_TABLE),
    ],
};

static VERSIONS: Kind = Kind::List("repo.ChartVersions", &Kind::Struct(&VERSION));

static VERSION: Struct = Struct {
    name: "ChartVersion",
    go_type: "repo.ChartVersion",
    fields: &[
        metadata("name", Kind::Text),
        metadata("home", Kind::Text),
        metadata("sources", TEXTS),
        metadata("version", Kind::Text),
        metadata("description", Kind::Text),
        metadata("keywords", TEXTS),
        metadata(
            "maintainers",
            Kind::List("[]*v2.Maintainer", &Kind::Struct(&MAINTAINER)),
        ),
        metadata("icon", Kind::Text),
        metadata("apiVersion", Kind::Text),
        metadata("condition", Kind::Text),
        metadata("tags", Kind::Text),
        metadata("appVersion", Kind::Text),
        metadata("deprecated", Kind::Bool),
        metadata("annotations", TEXT_TABLE),
        metadata("kubeVersion", Kind::Text),
        metadata(
            "dependencies",
            Kind::List("[]*v2.Dependency", &Kind::Struct(&DEPENDENCY)),
        ),
        metadata("type", Kind::Text),
        own("urls", TEXTS),
        own("created", Kind::Time),
        own("removed", Kind::Bool),
        own("digest", Kind::Text),
        own("checksum", Kind::Text),
        own("engine", Kind::Text),
        own("tillerVersion", Kind::Text),
        own("url", Kind::Text),
    ],
};

static MAINTAINER: Struct = Struct {
    name: "Maintainer",
    go_type: "v2.Maintainer",
    fields: &[
        own("name", Kind::Text),
        own("email", Kind::Text),
        own("url", Kind::Text),
    ],
};

static DEPENDENCY: Struct = Struct {
    name: "Dependency",
    go_type: "v2.Dependency",
    fields: &[
        own("name", Kind::Text),
        own("version", Kind::Text),
        own("repository", Kind::Text),
        own("condition", Kind::Text),
        own("tags", TEXTS),
        own("enabled", Kind::Bool),
        own("import-values", Kind::List("[]interface {}", &Kind::Any)),
        own("alias", Kind::Text),
    ],
};

/// Go's decoder prefers the exact name and takes any other case otherwise.
pub(super) fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let map = value.as_object()?;
    let any_case = || map.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    map.get(name).or_else(|| any_case().map(|(_, value)| value))
}

/// How the text was written, and by whose rules it is read.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// Unknown fields pass.
    pub(super) unknown_allowed: bool,
    /// YAML: a number or boolean where a string is wanted becomes one. Not in the embedded chart
    /// metadata, whose fields `sigs.k8s.io/yaml` does not see.
    pub(super) coerce: bool,
}

/// What the decoder would object to: the first time that it cannot read, which ends its work, or else the first field of another
/// type or none, after which it goes on.
pub(super) fn check(value: &Value, rules: Rules) -> Option<String> {
    let mut walk = Walk {
        rules,
        path: Vec::new(),
        inside: None,
        misfit: None,
    };
    walk.value(value, &Kind::Struct(&INDEX)).or(walk.misfit)
}

/// The text of a scalar where a string is wanted; what [`check`] let pass.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
        scalar => json::go_text(scalar),
    }
}

struct Walk {
    rules: Rules,
    path: Vec<&'static str>,
    inside: Option<&'static str>,
    /// The first field of another type, or none.
    misfit: Option<String>,
}

impl Walk {
    /// The time that ends the work.
    fn value(&mut self, value: &Value, kind: &Kind) -> Option<String> {
        match (kind, value) {
            (_, Value::Null)
            | (Kind::Any, _)
            | (Kind::Text, Value::String(_))
            | (Kind::Bool, Value::Bool(_)) => None,
            (Kind::Text, Value::Bool(_) | Value::Number(_)) if self.rules.coerce => None,
            (Kind::Time, Value::String(text)) => {
                json::parse_time(text).err().map(|error| error.to_string())
            }
            (Kind::Time, _) => Some("Time.UnmarshalJSON: input is not a JSON string".to_owned()),
            (Kind::List(_, item), Value::Array(items)) => {
                items.iter().find_map(|value| self.value(value, item))
            }
            (Kind::Table(_, item), Value::Object(map)) => {
                map.values().find_map(|value| self.value(value, item))
            }
            (Kind::Struct(shape), Value::Object(map)) => self.fields(map, shape),
            (kind, value) => {
                if self.misfit.is_none() {
                    self.misfit = Some(self.mismatch(value, kind));
                }
                None
            }
        }
    }

    fn fields(&mut self, map: &Map<String, Value>, shape: &'static Struct) -> Option<String> {
        let (depth, outside) = (self.path.len(), self.inside);
        for (key, value) in map {
            let known = |field: &&Field| field.name == key;
            let any_case = |field: &&Field| field.name.eq_ignore_ascii_case(key);
            let found = shape.fields.iter().find(known);
            let Some(field) = found.or_else(|| shape.fields.iter().find(any_case)) else {
                if !self.rules.unknown_allowed && self.misfit.is_none() {
                    let key = golib::strconv::quote(key);
                    self.misfit = Some(format!("json: unknown field {key}"));
                }
                continue;
            };
            self.path.extend(field.embedded);
            self.path.push(field.name);
            self.inside = Some(shape.name);
            let coerce = self.rules.coerce;
            self.rules.coerce &= field.embedded.is_none();
            let problem = self.value(value, &field.kind);
            self.path.truncate(depth);
            self.inside = outside;
            self.rules.coerce = coerce;
            if problem.is_some() {
                return problem;
            }
        }
        None
    }

    fn mismatch(&self, value: &Value, kind: &Kind) -> String {
        let expected = match kind {
            Kind::Text => "string",
            Kind::Bool => "bool",
            Kind::Time => "time.Time",
            Kind::Any => "interface {}",
            Kind::List(name, _) | Kind::Table(name, _) => name,
            Kind::Struct(shape) => shape.go_type,
        };
        let mismatch = Mismatch::new(value, expected);
        mismatch
            .of(self.inside.unwrap_or_default(), self.path.join("."))
            .to_string()
    }
}

/// Helm's `Metadata.Validate`, as far as an index minds it.
pub(super) fn objection(entry: &Value) -> Option<String> {
    let mut draft = Draft::default();
    // Types were checked, so that reading cannot fail any more.
    draft
        .read(entry, &At::new("ChartVersion", "repo.ChartVersion", ""))
        .ok()?;
    if draft.metadata.api_version.is_empty() {
        draft.metadata.api_version = API_VERSION_V1.to_owned();
    }
    match draft.validate() {
        // Some repositories strip the aliases that tell dependencies apart.
        Ok(_) | Err(ValidationError::DuplicateDependency(_)) => None,
        Err(problem) => Some(problem.to_string()),
    }
}
