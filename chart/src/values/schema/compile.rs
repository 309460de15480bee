//! Turning schema documents into something that can be checked against: each schema once, references
//! resolved.
//!
//! Mirrors `compiler.go`, `objcompiler.go` and `roots.go` of santhosh-tekuri/jsonschema.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use golib::regexp::Regexp;
use serde_json::{Map, Value};

use super::draft::Draft;
use super::failure::escape;
use super::format::Format;
use super::number::Decimal;
use super::resource::{CompileError, Documents, Place, Root, encode, join};
use super::validate;
use super::work::Work;
use crate::Warning;

/// Bytes that a compiled pattern takes at least, while it is used.
const PATTERN_BYTES: usize = 32 << 10;
/// Bytes of it for each character with repetitions written out.
const EFFORT_BYTES: usize = 64;
/// Bytes that the patterns of one schema may take.
const MAX_PATTERNS: usize = 16 << 20;

/// A schema by its position in its set.
pub(super) type Id = usize;

/// One compiled schema; empty parts are not checked.
#[derive(Debug)]
pub(super) struct Schema {
    place: Place,
    pub(super) draft: Draft,
    pub(super) resource: Id,
    pub(super) dynamic_anchors: BTreeMap<String, Id>,
    pub(super) all_properties_evaluated: bool,
    pub(super) all_items_evaluated: bool,
    pub(super) items_evaluated: usize,

    pub(super) always: Option<bool>,
    pub(super) reference: Option<Id>,
    pub(super) recursive_ref: Option<Id>,
    pub(super) recursive_anchor: bool,
    pub(super) dynamic_ref: Option<(Id, String)>,
    pub(super) dynamic_anchor: String,
    pub(super) types: Vec<&'static str>,
    pub(super) allowed: Option<Arc<[Value]>>,
    pub(super) constant: Option<Arc<Value>>,
    pub(super) not: Option<Id>,
    pub(super) all_of: Vec<Id>,
    pub(super) any_of: Vec<Id>,
    pub(super) one_of: Vec<Id>,
    pub(super) condition: Option<Id>,
    pub(super) then: Option<Id>,
    pub(super) otherwise: Option<Id>,
    pub(super) format: Option<Format>,

    pub(super) max_properties: Option<i64>,
    pub(super) min_properties: Option<i64>,
    pub(super) required: Vec<String>,
    pub(super) property_names: Option<Id>,
    pub(super) properties: BTreeMap<String, Id>,
    pub(super) pattern_properties: Vec<(Arc<Regexp>, Id)>,
    pub(super) additional_properties: Option<Additional>,
    pub(super) dependencies: BTreeMap<String, Dependent>,
    pub(super) dependent_required: BTreeMap<String, Vec<String>>,
    pub(super) dependent_schemas: BTreeMap<String, Id>,
    pub(super) unevaluated_properties: Option<Id>,

    pub(super) min_items: Option<i64>,
    pub(super) max_items: Option<i64>,
    pub(super) unique_items: bool,
    pub(super) contains: Option<Id>,
    pub(super) min_contains: Option<i64>,
    pub(super) max_contains: Option<i64>,
    /// `prefixItems`, or `items` as a list before 2020.
    pub(super) prefix_items: Vec<Id>,
    /// `items` for all that are left.
    pub(super) items: Option<Id>,
    pub(super) additional_items: Option<Additional>,
    pub(super) unevaluated_items: Option<Id>,

    pub(super) min_length: Option<i64>,
    pub(super) max_length: Option<i64>,
    pub(super) pattern: Option<(Arc<Regexp>, String)>,

    pub(super) maximum: Option<Decimal>,
    pub(super) minimum: Option<Decimal>,
    pub(super) exclusive_maximum: Option<Decimal>,
    pub(super) exclusive_minimum: Option<Decimal>,
    pub(super) multiple_of: Option<Decimal>,
}

/// `additionalProperties` or `additionalItems`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Additional {
    Allowed(bool),
    Schema(Id),
}

/// An entry of `dependencies`.
#[derive(Debug)]
pub(super) enum Dependent {
    Required(Vec<String>),
    Schema(Id),
}

/// Compiled schemas that refer to each other.
#[derive(Debug, Default)]
pub(super) struct Set {
    pub(super) schemas: Vec<Schema>,
}

/// A schema in its set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ref<'s> {
    pub(super) set: &'s Set,
    pub(super) id: Id,
}

impl<'s> Ref<'s> {
    pub(super) fn schema(self) -> &'s Schema {
        &self.set.schemas[self.id]
    }

    pub(super) fn sibling(self, id: Id) -> Self {
        Self { set: self.set, id }
    }

    pub(super) fn is(self, other: Self) -> bool {
        std::ptr::eq(self.set, other.set) && self.id == other.id
    }
}

/// The drafts' own schemas, compiled when the first schema is checked.
static METASCHEMAS: LazyLock<(Set, [Id; 5])> = LazyLock::new(|| {
    let mut warnings = Vec::new();
    let mut compiler = Compiler {
        assert_format: true,
        ..Compiler::new(&mut warnings)
    };
    let ids = Draft::ALL.map(|draft| {
        compiler
            .compile(draft.url())
            .expect("the drafts' own schemas are valid")
    });
    (
        Set {
            schemas: compiler.schemas,
        },
        ids,
    )
});

/// The schema of a draft's schemas.
pub(super) fn metaschema(draft: Draft) -> Ref<'static> {
    let (set, ids) = &*METASCHEMAS;
    Ref {
        set,
        id: ids[draft as usize],
    }
}

/// Compiles a document; returns its set, whose first schema is the document.
pub(super) fn compile_document(
    url: &str,
    document: Value,
    warnings: &mut Vec<Warning>,
) -> Result<Set, CompileError> {
    let mut compiler = Compiler::new(warnings);
    compiler.documents.add(url, Arc::new(document));
    compiler.compile(url)?;
    Ok(Set {
        schemas: compiler.schemas,
    })
}

struct Compiler<'w> {
    documents: Documents,
    roots: BTreeMap<String, Root>,
    schemas: Vec<Schema>,
    known: BTreeMap<Place, Id>,
    compiled: usize,
    patterns: BTreeMap<String, Arc<Regexp>>,
    pattern_bytes: usize,
    work: Work,
    assert_format: bool,
    warnings: &'w mut Vec<Warning>,
}

impl<'w> Compiler<'w> {
    fn new(warnings: &'w mut Vec<Warning>) -> Self {
        Self {
            documents: Documents::default(),
            roots: BTreeMap::new(),
            schemas: Vec::new(),
            known: BTreeMap::new(),
            compiled: 0,
            patterns: BTreeMap::new(),
            pattern_bytes: 0,
            work: Work::new(),
            assert_format: false,
            warnings,
        }
    }

    fn compile(&mut self, url: &str) -> Result<Id, CompileError> {
        self.load(url)?;
        let id = self.enqueue(Place {
            url: url.to_owned(),
            pointer: String::new(),
        });
        while self.compiled < self.schemas.len() {
            let place = self.schemas[self.compiled].place.clone();
            self.ensure_subschema(&place)?;
            self.compile_schema(self.compiled, &place)?;
            self.compiled += 1;
        }
        Ok(id)
    }

    fn root(&self, url: &str) -> &Root {
        self.roots
            .get(url)
            .expect("documents are loaded before they are used")
    }

    fn load(&mut self, url: &str) -> Result<(), CompileError> {
        if self.roots.contains_key(url) {
            return Ok(());
        }
        let document = self.documents.load(url, self.warnings)?;
        let mut root = Root::new(url, document);
        root.collect(
            &mut self.documents,
            "",
            url,
            Draft::LATEST,
            0,
            self.warnings,
        )?;
        let own = ["http://json-schema.org/", "https://json-schema.org/"];
        if !own.iter().any(|prefix| url.starts_with(prefix)) {
            check_against_metaschema(&root, "", &mut self.work)?;
        }
        self.roots.insert(url.to_owned(), root);
        Ok(())
    }

    /// Makes sure that a place a reference leads to holds a valid schema.
    fn ensure_subschema(&mut self, place: &Place) -> Result<(), CompileError> {
        self.load(&place.url)?;
        if self.root(&place.url).processed.contains(&place.pointer) {
            return Ok(());
        }
        let mut root = self
            .roots
            .remove(&place.url)
            .expect("it was loaded just now");
        root.lookup(&place.pointer)?;
        let base = root.resource(&place.pointer);
        let (id, draft) = (base.id.clone(), base.draft);
        root.collect(
            &mut self.documents,
            &place.pointer,
            &id,
            draft,
            0,
            self.warnings,
        )?;
        root.collect_stray_anchors(&place.pointer)?;
        check_against_metaschema(&root, &place.pointer, &mut self.work)?;
        self.roots.insert(place.url.clone(), root);
        Ok(())
    }

    fn enqueue(&mut self, place: Place) -> Id {
        if let Some(id) = self.known.get(&place) {
            return *id;
        }
        let id = self.schemas.len();
        self.known.insert(place.clone(), id);
        self.schemas.push(Schema::empty(place));
        id
    }

    fn compile_schema(&mut self, id: Id, place: &Place) -> Result<(), CompileError> {
        let root = self.root(&place.url);
        let document = Arc::clone(&root.document);
        let value = root.lookup_in(&document, &place.pointer)?;
        let resource = root.resource(&place.pointer);
        let at = |pointer: &str| Place {
            url: place.url.clone(),
            pointer: pointer.to_owned(),
        };
        let own_place = at(&resource.pointer);
        let base = resource.id.clone();
        let mut schema = Schema::empty(place.clone());
        schema.draft = resource.draft;
        let mut anchors = Vec::new();
        if resource.draft >= Draft::Draft2020 && own_place == *place {
            for anchor in &resource.dynamic_anchors {
                let pointer = resource.anchors.get(anchor);
                anchors.extend(pointer.map(|pointer| (anchor.clone(), at(pointer))));
            }
        }
        schema.resource = self.enqueue(own_place);
        for (anchor, place) in anchors {
            schema.dynamic_anchors.insert(anchor, self.enqueue(place));
        }
        match value {
            Value::Bool(always) => schema.always = Some(*always),
            Value::Object(object) if object.is_empty() => schema.always = Some(true),
            Value::Object(object) => {
                Keywords {
                    compiler: self,
                    object,
                    place,
                    base: &base,
                }
                .compile(&mut schema)?;
            }
            _ => {}
        }
        schema.all_properties_evaluated = schema.additional_properties.is_some();
        schema.items_evaluated = schema.prefix_items.len();
        schema.all_items_evaluated = schema.items.is_some() || schema.additional_items.is_some();
        self.schemas[id] = schema;
        Ok(())
    }

    /// The schema a reference means, from a base URL.
    fn resolve(&mut self, base: &str, reference: &str, from: &str) -> Result<Id, CompileError> {
        let (url, fragment) = join(base, reference)?;
        let root = self.root(from);
        let resource = if url == root.url {
            Some(root.resource(""))
        } else {
            root.named(&url)
        };
        let place = match resource {
            Some(resource) => root.resolve_in(resource, &fragment)?,
            None => {
                self.load(&url)?;
                let root = self.root(&url);
                root.resolve_in(root.resource(""), &fragment)?
            }
        };
        Ok(self.enqueue(place))
    }
}

fn check_against_metaschema(
    root: &Root,
    pointer: &str,
    work: &mut Work,
) -> Result<(), CompileError> {
    let meta = metaschema(root.resource(pointer).draft);
    let value = root.lookup(pointer)?;
    let checked = validate::validate(value, meta, Some((meta, &root.resources)), work);
    if work.is_over() {
        return Err(CompileError::TooComplex);
    }
    checked.map_err(|failure| {
        let place = Place {
            url: root.url.clone(),
            pointer: pointer.to_owned(),
        };
        CompileError::Invalid {
            url: place.shown(),
            failure: failure.to_string(),
        }
    })
}

/// Reads the keywords of one schema object.
struct Keywords<'k, 'w> {
    compiler: &'k mut Compiler<'w>,
    object: &'k Map<String, Value>,
    place: &'k Place,
    base: &'k str,
}

impl Keywords<'_, '_> {
    fn compile(&mut self, s: &mut Schema) -> Result<(), CompileError> {
        s.reference = self.reference("$ref")?;
        if s.draft < Draft::Draft2019 && s.reference.is_some() {
            return Ok(());
        }
        self.applicators(s)?;
        self.assertions(s)?;
        if s.draft >= Draft::Draft6 {
            s.contains = self.schema("contains");
            s.property_names = self.schema("propertyNames");
            s.constant = self.object.get("const").cloned().map(Arc::new);
        }
        if s.draft >= Draft::Draft7 {
            s.condition = self.schema("if");
            if s.condition.is_some() {
                let decided = self.object.get("if").and_then(Value::as_bool);
                s.then = if decided == Some(false) {
                    None
                } else {
                    self.schema("then")
                };
                s.otherwise = if decided == Some(true) {
                    None
                } else {
                    self.schema("else")
                };
            }
        }
        if s.draft >= Draft::Draft2019 {
            s.recursive_ref = self.reference("$recursiveRef")?;
            s.recursive_anchor = self.is_true("$recursiveAnchor");
            if s.contains.is_some() {
                s.min_contains = self.integer("minContains");
                s.max_contains = self.integer("maxContains");
            }
            for (name, value) in self.map("dependentRequired").into_iter().flatten() {
                if let Value::Array(items) = value {
                    s.dependent_required.insert(name.clone(), strings(&items));
                }
            }
            s.dependent_schemas = self.schemas("dependentSchemas");
            s.unevaluated_items = self.schema("unevaluatedItems");
            s.unevaluated_properties = self.schema("unevaluatedProperties");
        }
        if s.draft >= Draft::Draft2020 {
            if let Some(id) = self.reference("$dynamicRef")? {
                let text = self.text("$dynamicRef").unwrap_or_default();
                let (_, fragment) = join(self.base, text)?;
                let anchor = if fragment.starts_with('/') {
                    String::new()
                } else {
                    fragment
                };
                s.dynamic_ref = Some((id, anchor));
            }
            s.dynamic_anchor = self.text("$dynamicAnchor").unwrap_or_default().to_owned();
        }
        Ok(())
    }

    fn applicators(&mut self, s: &mut Schema) -> Result<(), CompileError> {
        s.all_of = self.list("allOf");
        s.any_of = self.list("anyOf");
        s.one_of = self.list("oneOf");
        s.not = self.schema("not");
        if s.draft >= Draft::Draft2020 {
            s.prefix_items = self.list("prefixItems");
            s.items = self.schema("items");
        } else if self.object.get("items").is_some_and(Value::is_array) {
            s.prefix_items = self.list("items");
            s.additional_items = self.additional("additionalItems");
        } else {
            s.items = self.schema("items");
        }
        s.properties = self.schemas("properties");
        for (pattern, id) in self.schemas("patternProperties") {
            s.pattern_properties
                .push((self.regex("patternProperties", &pattern)?, id));
        }
        s.additional_properties = self.additional("additionalProperties");
        for (name, value) in self.map("dependencies").into_iter().flatten() {
            let dependent = match value {
                Value::Array(items) => Dependent::Required(strings(&items)),
                _ => {
                    let at = format!("{}/dependencies/{}", self.place.pointer, escape(&name));
                    Dependent::Schema(self.enqueue(at))
                }
            };
            s.dependencies.insert(name.clone(), dependent);
        }
        Ok(())
    }

    fn assertions(&mut self, s: &mut Schema) -> Result<(), CompileError> {
        s.types = match self.object.get("type") {
            Some(Value::String(name)) => known_types(&[name.as_str()]),
            Some(Value::Array(names)) => {
                let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                known_types(&names)
            }
            _ => Vec::new(),
        };
        let allowed = self.object.get("enum").and_then(Value::as_array);
        s.allowed = allowed.map(|values| Arc::from(values.as_slice()));
        s.multiple_of = self.number("multipleOf");
        s.maximum = self.number("maximum");
        s.exclusive_maximum = if self.is_true("exclusiveMaximum") {
            s.maximum.take()
        } else {
            self.number("exclusiveMaximum")
        };
        s.minimum = self.number("minimum");
        s.exclusive_minimum = if self.is_true("exclusiveMinimum") {
            s.minimum.take()
        } else {
            self.number("exclusiveMinimum")
        };
        s.min_length = self.integer("minLength");
        s.max_length = self.integer("maxLength");
        if let Some(pattern) = self.object.get("pattern").and_then(Value::as_str) {
            s.pattern = Some((self.regex("pattern", pattern)?, pattern.to_owned()));
        }
        s.min_items = self.integer("minItems");
        s.max_items = self.integer("maxItems");
        s.unique_items = self.is_true("uniqueItems");
        s.max_properties = self.integer("maxProperties");
        s.min_properties = self.integer("minProperties");
        if let Some(Value::Array(names)) = self.object.get("required") {
            s.required = strings(names);
        }
        // Newer drafts take formats for remarks.
        if self.compiler.assert_format || s.draft < Draft::Draft2019 {
            s.format = self.text("format").and_then(Format::named);
        }
        Ok(())
    }

    fn text(&self, keyword: &str) -> Option<&str> {
        self.object.get(keyword).and_then(Value::as_str)
    }

    fn map(&self, keyword: &str) -> Option<Map<String, Value>> {
        self.object.get(keyword).and_then(Value::as_object).cloned()
    }

    fn is_true(&self, keyword: &str) -> bool {
        self.object.get(keyword) == Some(&Value::Bool(true))
    }

    fn number(&self, keyword: &str) -> Option<Decimal> {
        match self.object.get(keyword) {
            Some(Value::Number(number)) => Some(Decimal::from(number)),
            _ => None,
        }
    }

    fn integer(&self, keyword: &str) -> Option<i64> {
        self.number(keyword)
            .filter(Decimal::is_integer)
            .map(|number| number.to_i64())
    }

    fn regex(&mut self, keyword: &str, pattern: &str) -> Result<Arc<Regexp>, CompileError> {
        if let Some(known) = self.compiler.patterns.get(pattern) {
            return Ok(Arc::clone(known));
        }
        let regex = Regexp::compile(pattern).map_err(|error| CompileError::InvalidRegex {
            regex: pattern.to_owned(),
            url: format!(
                "{}#{}/{keyword}",
                self.place.url,
                encode(&self.place.pointer)
            ),
            why: error.to_string(),
        })?;
        let effort = usize::try_from(regex.effort()).unwrap_or(usize::MAX);
        let bytes = PATTERN_BYTES.saturating_add(effort.saturating_mul(EFFORT_BYTES));
        self.compiler.pattern_bytes = self.compiler.pattern_bytes.saturating_add(bytes);
        if self.compiler.pattern_bytes > MAX_PATTERNS {
            return Err(CompileError::TooComplex);
        }
        let regex = Arc::new(regex);
        self.compiler
            .patterns
            .insert(pattern.to_owned(), Arc::clone(&regex));
        Ok(regex)
    }

    fn enqueue(&mut self, pointer: String) -> Id {
        self.compiler.enqueue(Place {
            url: self.place.url.clone(),
            pointer,
        })
    }

    fn reference(&mut self, keyword: &str) -> Result<Option<Id>, CompileError> {
        let Some(reference) = self.object.get(keyword).and_then(Value::as_str) else {
            return Ok(None);
        };
        self.compiler
            .resolve(self.base, reference, &self.place.url)
            .map(Some)
    }

    fn schema(&mut self, keyword: &str) -> Option<Id> {
        self.object.get(keyword)?;
        Some(self.enqueue(format!("{}/{keyword}", self.place.pointer)))
    }

    fn list(&mut self, keyword: &str) -> Vec<Id> {
        let length = self
            .object
            .get(keyword)
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        (0..length)
            .map(|index| self.enqueue(format!("{}/{keyword}/{index}", self.place.pointer)))
            .collect()
    }

    fn schemas(&mut self, keyword: &str) -> BTreeMap<String, Id> {
        let names = self.object.get(keyword).and_then(Value::as_object);
        let names: Vec<String> = names.into_iter().flat_map(Map::keys).cloned().collect();
        names
            .into_iter()
            .map(|name| {
                let at = format!("{}/{keyword}/{}", self.place.pointer, escape(&name));
                (name, self.enqueue(at))
            })
            .collect()
    }

    fn additional(&mut self, keyword: &str) -> Option<Additional> {
        match self.object.get(keyword)? {
            Value::Bool(allowed) => Some(Additional::Allowed(*allowed)),
            _ => self.schema(keyword).map(Additional::Schema),
        }
    }
}

fn strings(items: &[Value]) -> Vec<String> {
    items
        .iter()
        .filter_map(Value::as_str)
        .map(ToOwned::to_owned)
        .collect()
}

/// The types among `names` that exist, in the order messages list them.
fn known_types(names: &[&str]) -> Vec<&'static str> {
    const TYPES: [&str; 7] = [
        "null", "boolean", "number", "integer", "string", "array", "object",
    ];
    TYPES
        .into_iter()
        .filter(|known| names.contains(known))
        .collect()
}

impl Schema {
    /// The schema's URL with its pointer, as messages and reference cycles show it.
    pub(super) fn location(&self) -> String {
        self.place.shown()
    }

    /// What looking at a value takes besides the schemas inside, in steps.
    pub(super) fn cost(&self) -> usize {
        let listed = self.allowed.as_ref().map_or(0, |allowed| allowed.len());
        (listed + self.required.len()) / 16
    }

    fn empty(place: Place) -> Self {
        Self {
            place,
            draft: Draft::LATEST,
            resource: 0,
            dynamic_anchors: BTreeMap::new(),
            all_properties_evaluated: false,
            all_items_evaluated: false,
            items_evaluated: 0,
            always: None,
            reference: None,
            recursive_ref: None,
            recursive_anchor: false,
            dynamic_ref: None,
            dynamic_anchor: String::new(),
            types: Vec::new(),
            allowed: None,
            constant: None,
            not: None,
            all_of: Vec::new(),
            any_of: Vec::new(),
            one_of: Vec::new(),
            condition: None,
            then: None,
            otherwise: None,
            format: None,
            max_properties: None,
            min_properties: None,
            required: Vec::new(),
            property_names: None,
            properties: BTreeMap::new(),
            pattern_properties: Vec::new(),
            additional_properties: None,
            dependencies: BTreeMap::new(),
            dependent_required: BTreeMap::new(),
            dependent_schemas: BTreeMap::new(),
            unevaluated_properties: None,
            min_items: None,
            max_items: None,
            unique_items: false,
            contains: None,
            min_contains: None,
            max_contains: None,
            prefix_items: Vec::new(),
            items: None,
            additional_items: None,
            unevaluated_items: None,
            min_length: None,
            max_length: None,
            pattern: None,
            maximum: None,
            minimum: None,
            exclusive_maximum: None,
            exclusive_minimum: None,
            multiple_of: None,
        }
    }
}
