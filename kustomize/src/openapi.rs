//! Kustomize's schema of types: which lists are merged by which keys, and which kinds have no namespace. Mirrors kyaml's
//! `openapi` package; its default, Kubernetes 1.21.2, is in `tables/types.json` and `tables/scopes.txt`, reduced by
//! `tests/reference/kustomize` to what leads to merged lists.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::LazyLock;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::loader::Build;

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

/// A type, with those that its references name.
#[derive(Clone)]
pub(crate) struct Schema {
    definitions: Rc<Definitions>,
    own: Rc<Type>,
}

/// What merging asks of a schema. All else that one says, such as the values that a field may have, is not kept.
#[derive(Default)]
struct Type {
    reference: Option<String>,
    properties: HashMap<String, Rc<Type>>,
    /// The type of entries that are not named.
    additional: Option<Rc<Type>>,
    /// The type of the elements, of a list.
    items: Option<Rc<Type>>,
    strategy: Option<String>,
    keys: Vec<String>,
}

/// API version and kind.
type Kind = (String, String);

#[derive(Default, Clone)]
struct Definitions {
    by_name: HashMap<String, Rc<Type>>,
    by_type: HashMap<Kind, Rc<Type>>,
    is_namespaced: HashMap<Kind, bool>,
}

impl Definitions {
    fn add_default(&mut self) {
        let has_room = self.add(&DEFAULT_TYPES, &mut |_| Ok(()));
        debug_assert!(has_room.is_ok(), "nothing is counted");
    }

    /// What others say of a type takes the place of what is said here.
    fn extend(&mut self, others: &Self) {
        let copies = |(name, own): (&String, &Rc<Type>)| (name.clone(), Rc::clone(own));
        self.by_name.extend(others.by_name.iter().map(copies));
        let copies = |(kind, own): (&Kind, &Rc<Type>)| (kind.clone(), Rc::clone(own));
        self.by_type.extend(others.by_type.iter().map(copies));
        for (kind, &is_namespaced) in &others.is_namespaced {
            self.note_namespaced(kind.clone(), is_namespaced);
        }
    }

    /// One path with a namespace is enough.
    fn note_namespaced(&mut self, kind: Kind, is_namespaced: bool) {
        *self.is_namespaced.entry(kind).or_default() |= is_namespaced;
    }

    fn add(&mut self, swagger: &Value, room: &mut Room<'_>) -> Result<()> {
        let Some(definitions) = swagger.get("definitions").and_then(Value::as_object) else {
            return Ok(());
        };
        for (name, definition) in definitions {
            let own = Rc::new(Type::read(definition, room)?);
            let kinds = definition
                .get("x-kubernetes-group-version-kind")
                .and_then(Value::as_array);
            for kind in kinds.into_iter().flatten() {
                if let Some(kind) = type_of(kind) {
                    room(ENTRY + kind.0.len() + kind.1.len())?;
                    self.by_type.insert(kind, Rc::clone(&own));
                }
            }
            room(ENTRY + name.len())?;
            self.by_name.insert(name.clone(), own);
        }
        Ok(())
    }

    fn add_paths(&mut self, swagger: &Value, room: &mut Room<'_>) -> Result<()> {
        let paths = swagger.get("paths").and_then(Value::as_object);
        for (path, operations) in paths.into_iter().flatten() {
            let kind = operations
                .get("get")
                .and_then(|get| get.get("x-kubernetes-group-version-kind"))
                .and_then(type_of);
            let Some(kind) = kind else { continue };
            room(ENTRY + kind.0.len() + kind.1.len())?;
            self.note_namespaced(kind, path.contains("namespaces/{namespace}"));
        }
        Ok(())
    }
}

fn type_of(value: &Value) -> Option<Kind> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let version = text("version")?;
    let api_version = match text("group") {
        Some(group) if !group.is_empty() => format!("{group}/{version}"),
        _ => version.to_owned(),
    };
    Some((api_version, text("kind")?.to_owned()))
}

/// What an entry of a table takes beside its texts, about, with the room that tables keep free.
const ENTRY: usize = 2 * size_of::<(String, String, Rc<Type>)>();

/// Counts bytes before they are taken.
type Room<'r> = dyn FnMut(usize) -> Result<()> + 'r;

impl Type {
    fn read(schema: &Value, room: &mut Room<'_>) -> Result<Self> {
        let text = |key: &str| schema.get(key).and_then(Value::as_str).map(str::to_owned);
        let reference = text("$ref");
        let strategy = text("x-kubernetes-patch-strategy");
        let keys = match schema
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array)
        {
            Some(keys) => {
                let keys = keys.iter().filter_map(Value::as_str).map(str::to_owned);
                keys.collect()
            }
            None => Vec::from_iter(text("x-kubernetes-patch-merge-key")),
        };
        let texts = reference.iter().chain(&strategy).chain(&keys);
        let texts: usize = texts.map(|text| size_of::<String>() + text.len()).sum();
        room(2 * size_of::<Rc<Self>>() + size_of::<Self>() + texts)?;
        let mut properties = HashMap::new();
        let named = schema.get("properties").and_then(Value::as_object);
        for (name, property) in named.into_iter().flatten() {
            room(ENTRY + name.len())?;
            properties.insert(name.clone(), Rc::new(Self::read(property, room)?));
        }
        let mut inner = |schema: Option<&Value>| {
            schema
                .map(|schema| Self::read(schema, room).map(Rc::new))
                .transpose()
        };
        let additional = schema.get("additionalProperties");
        let additional = inner(additional.filter(|schema| schema.is_object()))?;
        let items = inner(schema.get("items").filter(|_| is_array(schema)))?;
        Ok(Self {
            reference,
            properties,
            additional,
            items,
            strategy,
            keys,
        })
    }
}

fn is_array(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == "array",
        Some(Value::Array(kinds)) => {
            matches!(kinds.as_slice(), [Value::String(kind)] if kind == "array")
        }
        _ => false,
    }
}

impl Schema {
    /// The schema of an entry; references are followed.
    pub(crate) fn field(&self, name: &str) -> Option<Self> {
        let named = self.own.properties.get(name);
        self.resolved(named.or(self.own.additional.as_ref())?)
    }

    /// The schema of a list's elements.
    pub(crate) fn elements(&self) -> Option<Self> {
        self.resolved(self.own.items.as_ref()?)
    }

    fn resolved(&self, own: &Rc<Type>) -> Option<Self> {
        const MAX_REFERENCES: usize = 64;
        let mut own = own;
        for _ in 0..MAX_REFERENCES {
            let Some(reference) = &own.reference else {
                return Some(Self {
                    definitions: Rc::clone(&self.definitions),
                    own: Rc::clone(own),
                });
            };
            let name = reference.strip_prefix("#/definitions/")?;
            own = self.definitions.by_name.get(name)?;
        }
        None
    }

    /// Whether a list of this schema is merged element by element.
    pub(crate) fn is_merged(&self) -> bool {
        let strategy = self.own.strategy.as_ref();
        strategy.is_some_and(|strategy| strategy.split(',').any(|strategy| strategy == "merge"))
    }

    /// The keys of `PatchStrategyAndKeyList`.
    pub(crate) fn keys(&self) -> &[String] {
        &self.own.keys
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
    /// The types of a file, or what is wrong with it, which is said where they are asked for.
    custom: Option<Result<Definitions>>,
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
        build: &Build<'_>,
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
            let read = read(&schema, build);
            // What has no room is said at once: nothing may be built without the types that it would be built with.
            if let Err(error) = &read
                && error.is_limit()
            {
                return Err(error.clone());
            }
            state.custom = Some(read);
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
        Ok(state.definitions.by_type.get(&key).map(|own| Schema {
            definitions: Rc::clone(&state.definitions),
            own: Rc::clone(own),
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
        let mut definitions = Rc::unwrap_or_clone(old);
        match &state.custom {
            Some(Ok(own)) => definitions.extend(own),
            Some(Err(error)) => return Err(error.clone()),
            None => {
                definitions.add_default();
                state.default = Status::Parsed;
            }
        }
        if state.default == Status::Delayed {
            definitions.add_default();
            state.default = Status::Parsed;
        }
        state.definitions = Rc::new(definitions);
        Ok(())
    }
}

fn read(text: &[u8], build: &Build<'_>) -> Result<Definitions> {
    let swagger = parse(text, build).map_err(|error| error.context("invalid schema file"))?;
    let mut definitions = Definitions::default();
    definitions.add(&swagger, &mut |bytes| build.grow_by(bytes))?;
    definitions.add_paths(&swagger, &mut |bytes| build.grow_by(bytes))?;
    Ok(definitions)
}

fn parse(text: &[u8], build: &Build<'_>) -> Result<Value> {
    let mut budget = build.document();
    let swagger = if text.first().is_none_or(|first| *first == b'{') {
        golib::json::decode_within(text, &mut budget)?
    } else {
        golib::yaml::Decoder::new().decode(text, &mut budget)?
    };
    crate::fns::expect_depth(golib::json::depth(&swagger))?;
    Ok(swagger)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::loader::Limits;

    #[test]
    fn what_is_asked_for_twice_is_held_once() {
        let text = br##"{"definitions": {"a": {
            "x-kubernetes-group-version-kind": [{"version": "v1", "kind": "A"}],
            "properties": {
                "own": {"enum": [1, 2, 3]},
                "list": {"type": "array", "items": {"properties": {}}},
                "same": {"$ref": "#/definitions/a"}
            },
            "additionalProperties": {"enum": [1, 2, 3]}
        }}}"##;
        let files = crate::MemoryFiles::new();
        let build = Build::new(&files, &Limits::default());
        let no_version = std::collections::BTreeMap::new();
        let set = build
            .api
            .set(&no_version, Some(text.to_vec()), true, &build);
        assert_eq!(set, Ok(()));
        let schema = build.api.schema_of("v1", "A").unwrap().unwrap();
        let is_shared = |one: Option<Schema>, other: Option<Schema>| {
            Rc::ptr_eq(&one.unwrap().own, &other.unwrap().own)
        };
        assert!(is_shared(schema.field("own"), schema.field("own")));
        assert!(is_shared(schema.field("other"), schema.field("any")));
        assert!(is_shared(schema.field("same"), Some(schema.clone())));
        let list = schema.field("list").unwrap();
        assert!(is_shared(list.elements(), list.elements()));
    }
}
