//! Kustomize's schema of types: which lists are merged by which keys, and which kinds have no namespace. Mirrors kyaml's
//! `openapi` package; its default, Kubernetes 1.21.2, is in `tables/types.json` and `tables/scopes.txt`, reduced by
//! `tests/reference/kustomize` to what leads to merged lists.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::LazyLock;

use serde_json::Value;

use crate::error::{Error, Result};

const DEFAULT_VERSION: &str = "v1.21.2";

static DEFAULT_TYPES: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("tables/types.json")).expect("the table is JSON")
});

/// Whether types, as `version kind`, are without a namespace.
static IS_CLUSTER_SCOPED: LazyLock<HashMap<&'static str, bool>> = LazyLock::new(|| {
    let lines = include_str!("tables/scopes.txt").lines();
    let entries = lines.filter_map(|line| line.rsplit_once(' '));
    entries
        .map(|(name, scope)| (name, scope == "cluster"))
        .collect()
});

/// A schema as JSON has it, with what its references name.
#[derive(Clone)]
pub(crate) struct Schema {
    definitions: Rc<Definitions>,
    value: Rc<Value>,
}

#[derive(Default)]
struct Definitions {
    by_name: HashMap<String, Rc<Value>>,
    /// By API version and kind.
    by_type: HashMap<(String, String), Rc<Value>>,
    is_namespaced: HashMap<(String, String), bool>,
}

impl Definitions {
    fn add(&mut self, swagger: &Value) {
        let Some(definitions) = swagger.get("definitions").and_then(Value::as_object) else {
            return;
        };
        for (name, definition) in definitions {
            let definition = Rc::new(definition.clone());
            let kinds = definition
                .get("x-kubernetes-group-version-kind")
                .and_then(Value::as_array);
            for kind in kinds.into_iter().flatten() {
                if let Some(kind) = type_of(kind) {
                    self.by_type.insert(kind, Rc::clone(&definition));
                }
            }
            self.by_name.insert(name.clone(), definition);
        }
    }

    fn add_paths(&mut self, swagger: &Value) {
        let paths = swagger.get("paths").and_then(Value::as_object);
        for (path, operations) in paths.into_iter().flatten() {
            let kind = operations
                .get("get")
                .and_then(|get| get.get("x-kubernetes-group-version-kind"))
                .and_then(type_of);
            let Some(kind) = kind else { continue };
            if path.contains("namespaces/{namespace}") {
                self.is_namespaced.insert(kind, true);
            } else {
                self.is_namespaced.entry(kind).or_insert(false);
            }
        }
    }
}

fn type_of(value: &Value) -> Option<(String, String)> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let version = text("version")?;
    let api_version = match text("group") {
        Some(group) if !group.is_empty() => format!("{group}/{version}"),
        _ => version.to_owned(),
    };
    Some((api_version, text("kind")?.to_owned()))
}

impl Schema {
    /// The schema of an entry; references are followed.
    pub(crate) fn field(&self, name: &str) -> Option<Self> {
        let field = self
            .value
            .get("properties")
            .and_then(|properties| properties.get(name))
            .or_else(|| {
                self.value
                    .get("additionalProperties")
                    .filter(|schema| schema.is_object())
            })?;
        self.resolved(field)
    }

    /// The schema of a list's elements.
    pub(crate) fn elements(&self) -> Option<Self> {
        let is_array = match self.value.get("type")? {
            Value::String(kind) => kind == "array",
            Value::Array(kinds) => {
                matches!(kinds.as_slice(), [Value::String(kind)] if kind == "array")
            }
            _ => false,
        };
        if !is_array {
            return None;
        }
        self.resolved(self.value.get("items")?)
    }

    fn resolved(&self, schema: &Value) -> Option<Self> {
        const MAX_REFERENCES: usize = 64;
        let mut value = None;
        let mut schema: &Value = schema;
        let mut target;
        for _ in 0..MAX_REFERENCES {
            let Some(reference) = schema.get("$ref").and_then(Value::as_str) else {
                return Some(Self {
                    definitions: Rc::clone(&self.definitions),
                    value: value.unwrap_or_else(|| Rc::new(schema.clone())),
                });
            };
            let name = reference.strip_prefix("#/definitions/")?;
            target = Rc::clone(self.definitions.by_name.get(name)?);
            value = Some(Rc::clone(&target));
            schema = &target;
        }
        None
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.value.get(key).and_then(Value::as_str)
    }

    /// Whether a list of this schema is merged element by element.
    pub(crate) fn is_merged(&self) -> bool {
        self.text("x-kubernetes-patch-strategy")
            .is_some_and(|strategy| strategy.split(',').any(|strategy| strategy == "merge"))
    }

    /// `PatchStrategyAndKeyList`.
    pub(crate) fn strategy_and_keys(&self) -> (&str, Vec<String>) {
        let Some(strategy) = self.text("x-kubernetes-patch-strategy") else {
            return ("", Vec::new());
        };
        if let Some(keys) = self
            .value
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array)
        {
            let keys = keys.iter().filter_map(Value::as_str).map(str::to_owned);
            return (strategy, keys.collect());
        }
        let key = self.text("x-kubernetes-patch-merge-key");
        (strategy, key.map(str::to_owned).into_iter().collect())
    }
}

/// What the types of a build are known from. kustomize keeps this for its whole process; here it is one build's own.
#[derive(Default)]
pub(crate) struct OpenApi {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    version: String,
    custom: Option<Vec<u8>>,
    definitions: Rc<Definitions>,
    is_initialized: bool,
    default: Status,
}

#[derive(Default, PartialEq, Clone, Copy)]
enum Status {
    #[default]
    NotParsed,
    /// Precomputed answers of the default schema were used, and parsing it is delayed.
    Delayed,
    Parsed,
}

impl OpenApi {
    /// Follows a kustomization's `openapi` field (`SetSchema`); the topmost one wins.
    pub(crate) fn set(
        &self,
        field: &std::collections::BTreeMap<String, String>,
        schema: Option<Vec<u8>>,
        reset: bool,
    ) -> Result<()> {
        let mut state = self.state.borrow_mut();
        if (!state.version.is_empty() || state.custom.is_some()) && !reset {
            return Ok(());
        }
        let version = field.get("version");
        if let Some(schema) = schema {
            if version.is_some() {
                return Err(Error::new(
                    "builtin version and custom schema provided, cannot use both",
                ));
            }
            state.custom = Some(schema);
            "custom".clone_into(&mut state.version);
            state.is_initialized = false;
            return Ok(());
        }
        state.version = version.cloned().unwrap_or_default();
        if state.version.is_empty() {
            return Ok(());
        }
        if state.version != DEFAULT_VERSION {
            return Err(Error::new("the specified OpenAPI version is not built in"));
        }
        state.custom = None;
        state.is_initialized = false;
        Ok(())
    }

    /// The schema of a kind, if it is known.
    pub(crate) fn schema_of(&self, api_version: &str, kind: &str) -> Result<Option<Schema>> {
        self.initialize()?;
        let state = self.state.borrow();
        let key = (api_version.to_owned(), kind.to_owned());
        Ok(state.definitions.by_type.get(&key).map(|value| Schema {
            definitions: Rc::clone(&state.definitions),
            value: Rc::clone(value),
        }))
    }

    /// Whether objects of a kind certainly have no namespace.
    pub(crate) fn is_cluster_scoped(&self, api_version: &str, kind: &str) -> bool {
        if let Some(&found) = IS_CLUSTER_SCOPED.get(&*format!("{api_version} {kind}")) {
            return found;
        }
        let needs_custom = {
            let mut state = self.state.borrow_mut();
            if state.is_initialized {
                false
            } else if state.custom.is_some() {
                true
            } else {
                if state.default == Status::NotParsed {
                    state.default = Status::Delayed;
                }
                false
            }
        };
        if needs_custom && self.initialize().is_err() {
            return false;
        }
        let key = (api_version.to_owned(), kind.to_owned());
        let state = self.state.borrow();
        state.definitions.is_namespaced.get(&key) == Some(&false)
    }

    fn initialize(&self) -> Result<()> {
        let mut state = self.state.borrow_mut();
        if state.is_initialized {
            return Ok(());
        }
        state.is_initialized = true;
        let old = std::mem::take(&mut state.definitions);
        let mut definitions = Definitions {
            by_name: old.by_name.clone(),
            by_type: old.by_type.clone(),
            is_namespaced: old.is_namespaced.clone(),
        };
        match &state.custom {
            Some(text) => {
                let swagger = parse(text).map_err(|error| error.context("invalid schema file"))?;
                definitions.add(&swagger);
                definitions.add_paths(&swagger);
            }
            None => {
                definitions.add(&DEFAULT_TYPES);
                state.default = Status::Parsed;
            }
        }
        if state.default == Status::Delayed {
            definitions.add(&DEFAULT_TYPES);
            state.default = Status::Parsed;
        }
        state.definitions = Rc::new(definitions);
        Ok(())
    }
}

fn parse(text: &[u8]) -> Result<Value> {
    if text.first().is_none_or(|first| *first == b'{') {
        return Ok(golib::json::decode(text)?);
    }
    Ok(golib::yaml::decode(text)?)
}
