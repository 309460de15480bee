//! Turning schema documents into something that can be checked against: each schema once, references
//! resolved.
//!
//! Mirrors `compiler.go`, `objcompiler.go` and `roots.go` of santhosh-tekuri/jsonschema.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use golib::budget::Budget;
use golib::regexp::Regexp;
use serde_json::{Map, Value};

use super::compiled::{Additional, Dependent, Id, Ref, Schema, Set};
use super::draft::Draft;
use super::failure::escape;
use super::format::Format;
use super::number::Decimal;
use super::remote::Fetches;
use super::resource::{CompileError, Documents, Place, Root, encode, join};
use super::validate;
use super::work::Work;
use crate::warning::Warnings;

/// Bytes that a compiled pattern takes at least, while it is used.
const PATTERN_BYTES: usize = 32 << 10;
/// Bytes of it for each character with repetitions written out.
const EFFORT_BYTES: usize = 64;
/// Steps of a check that compiling it takes for each of them.
const STEPS_PER_EFFORT: usize = 16;
/// Schemas of all documents together.
const MAX_COMPILED: usize = 60_000;
/// Bytes that the patterns of one schema may take.
const MAX_PATTERNS: usize = 16 << 20;

/// The drafts' own schemas, compiled when the first schema is checked.
static METASCHEMAS: LazyLock<(Set, [Id; 5])> = LazyLock::new(|| {
    let (mut work, mut warnings) = (Work::new(&|| true), Warnings::default());
    let mut compiler = Compiler {
        assert_format: true,
        ..Compiler::new(None, Budget::default(), &mut work, &mut warnings)
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

/// Compiles a document; returns its set, whose first schema is the document. Others that it refers to are read within `budget`.
pub(super) fn compile_document(
    url: &str,
    document: Value,
    (remote, budget): (Option<&Fetches<'_>>, Budget),
    work: &mut Work<'_>,
    warnings: &mut Warnings,
) -> Result<Set, CompileError> {
    let mut compiler = Compiler::new(remote, budget, work, warnings);
    compiler.documents.add(url, Arc::new(document));
    compiler.compile(url)?;
    Ok(Set {
        schemas: compiler.schemas,
    })
}

struct Compiler<'c, 'w> {
    documents: Documents<'c>,
    roots: BTreeMap<String, Root>,
    schemas: Vec<Schema>,
    known: BTreeMap<Place, Id>,
    compiled: usize,
    patterns: BTreeMap<String, Arc<Regexp>>,
    pattern_bytes: usize,
    work: &'c mut Work<'w>,
    assert_format: bool,
    warnings: &'c mut Warnings,
}

impl<'c, 'w> Compiler<'c, 'w> {
    fn new(
        remote: Option<&'c Fetches<'_>>,
        budget: Budget,
        work: &'c mut Work<'w>,
        warnings: &'c mut Warnings,
    ) -> Self {
        Self {
            documents: Documents::new(remote, budget),
            roots: BTreeMap::new(),
            schemas: Vec::new(),
            known: BTreeMap::new(),
            compiled: 0,
            patterns: BTreeMap::new(),
            pattern_bytes: 0,
            work,
            assert_format: false,
            warnings,
        }
    }

    fn compile(&mut self, url: &str) -> Result<Id, CompileError> {
        self.load(url)?;
        let id = self.enqueue(Place::new(url.into(), ""));
        while self.compiled < self.schemas.len() {
            let place = self.schemas[self.compiled].place.clone();
            self.ensure_subschema(&place)?;
            self.compile_schema(self.compiled, &place)?;
            self.compiled += 1;
            if self.schemas.len() > MAX_COMPILED {
                return Err(CompileError::TooComplex);
            }
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
            check_against_metaschema(&root, "", self.work)?;
        }
        self.roots.insert(url.to_owned(), root);
        Ok(())
    }

    /// Makes sure that a place a reference leads to holds a valid schema.
    fn ensure_subschema(&mut self, place: &Place) -> Result<(), CompileError> {
        self.load(&place.url)?;
        if self.root(&place.url).processed.contains(&*place.pointer) {
            return Ok(());
        }
        let mut root = self
            .roots
            .remove(&*place.url)
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
        check_against_metaschema(&root, &place.pointer, self.work)?;
        self.roots.insert(place.url.to_string(), root);
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
        let at = |pointer: &str| Place::new(Arc::clone(&place.url), pointer);
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
            let id = self.enqueue(place);
            let dynamic = schema.dynamic.get_or_insert_default();
            dynamic.anchors.insert(anchor, id);
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
                let listed = schema.allowed.iter().flat_map(|allowed| allowed.iter());
                let compared = listed.chain(schema.constant.as_deref());
                schema.comparing = compared.map(|value| validate::nodes(value) - 1).sum();
                let asked = schema.object.as_ref();
                schema.asking = asked.map_or(0, |rules| rules.asking(validate::BYTES_PER_STEP));
            }
            _ => {}
        }
        self.schemas[id] = schema;
        Ok(())
    }

    /// The schema a reference means, from a base URL.
    fn resolve(&mut self, base: &str, reference: &str, from: &str) -> Result<Id, CompileError> {
        let (url, fragment) = join(base, reference)?;
        let root = self.root(from);
        let resource = if url == *root.url {
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
    work: &mut Work<'_>,
) -> Result<(), CompileError> {
    let meta = metaschema(root.resource(pointer).draft);
    let value = root.lookup(pointer)?;
    let checked = validate::validate(value, meta, Some((meta, &root.resources)), work);
    if work.is_over() {
        return Err(CompileError::TooComplex);
    }
    checked.map_err(|failure| CompileError::Invalid {
        url: Place::new(Arc::clone(&root.url), pointer).shown(),
        failure: failure.to_string(),
    })
}

/// Reads the keywords of one schema object.
struct Keywords<'k, 'c, 'w> {
    compiler: &'k mut Compiler<'c, 'w>,
    object: &'k Map<String, Value>,
    place: &'k Place,
    base: &'k str,
}

impl Keywords<'_, '_, '_> {
    fn compile(&mut self, s: &mut Schema) -> Result<(), CompileError> {
        s.reference = self.reference("$ref")?;
        // Before 2019 a reference was to stand alone. What Helm ignores beside it are the keywords of draft 4.
        if s.draft >= Draft::Draft2019 || s.reference.is_none() {
            self.applicators(s)?;
            self.assertions(s)?;
        }
        if s.draft >= Draft::Draft6 {
            keep(&mut s.array, self.schema("contains"), |a| &mut a.contains);
            let names = self.schema("propertyNames");
            keep(&mut s.object, names, |o| &mut o.property_names);
            if let Some(constant) = self.object.get("const") {
                s.constant = Some(Arc::new(self.compiler.documents.copied(constant)?));
            }
        }
        if s.draft >= Draft::Draft7 {
            self.condition(s);
        }
        if s.draft >= Draft::Draft2019 {
            self.since_2019(s)?;
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
                let dynamic = s.dynamic.get_or_insert_default();
                dynamic.reference = Some((id, anchor));
            }
            let anchor = self.text("$dynamicAnchor").unwrap_or_default();
            keep(&mut s.dynamic, anchor.to_owned(), |d| &mut d.anchor);
        }
        Ok(())
    }

    fn applicators(&mut self, s: &mut Schema) -> Result<(), CompileError> {
        keep(&mut s.combined, self.list("allOf"), |c| &mut c.all_of);
        keep(&mut s.combined, self.list("anyOf"), |c| &mut c.any_of);
        keep(&mut s.combined, self.list("oneOf"), |c| &mut c.one_of);
        keep(&mut s.combined, self.schema("not"), |c| &mut c.not);
        if s.draft >= Draft::Draft2020 {
            let prefix = self.list("prefixItems");
            keep(&mut s.array, prefix, |a| &mut a.prefix_items);
            keep(&mut s.array, self.schema("items"), |a| &mut a.items);
        } else if self.object.get("items").is_some_and(Value::is_array) {
            let prefix = self.list("items");
            keep(&mut s.array, prefix, |a| &mut a.prefix_items);
            let rest = self.additional("additionalItems");
            keep(&mut s.array, rest, |a| &mut a.additional_items);
        } else {
            keep(&mut s.array, self.schema("items"), |a| &mut a.items);
        }
        let properties = self.schemas("properties");
        keep(&mut s.object, properties, |o| &mut o.properties);
        for (pattern, id) in self.schemas("patternProperties") {
            let pattern = self.regex("patternProperties", &pattern)?;
            let object = s.object.get_or_insert_default();
            object.pattern_properties.push((pattern, id));
        }
        let rest = self.additional("additionalProperties");
        keep(&mut s.object, rest, |o| &mut o.additional_properties);
        for (name, value) in self.map("dependencies").into_iter().flatten() {
            let dependent = match value {
                Value::Array(items) => Dependent::Required(strings(&items)),
                _ => {
                    let at = format!("{}/dependencies/{}", self.place.pointer, escape(&name));
                    Dependent::Schema(self.enqueue(at))
                }
            };
            let object = s.object.get_or_insert_default();
            object.dependencies.insert(name.clone(), dependent);
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
            _ => Box::default(),
        };
        if let Some(Value::Array(allowed)) = self.object.get("enum") {
            let copied = allowed
                .iter()
                .map(|one| self.compiler.documents.copied(one));
            s.allowed = Some(copied.collect::<Result<_, _>>()?);
        }
        self.bounds(s);
        keep(&mut s.text, self.integer("minLength"), |t| {
            &mut t.min_length
        });
        keep(&mut s.text, self.integer("maxLength"), |t| {
            &mut t.max_length
        });
        if let Some(pattern) = self.object.get("pattern").and_then(Value::as_str) {
            let pattern = (self.regex("pattern", pattern)?, pattern.to_owned());
            s.text.get_or_insert_default().pattern = Some(pattern);
        }
        keep(&mut s.array, self.integer("minItems"), |a| &mut a.min_items);
        keep(&mut s.array, self.integer("maxItems"), |a| &mut a.max_items);
        let unique = self.is_true("uniqueItems");
        keep(&mut s.array, unique, |a| &mut a.unique_items);
        let (most, least) = (self.integer("maxProperties"), self.integer("minProperties"));
        keep(&mut s.object, most, |o| &mut o.max_properties);
        keep(&mut s.object, least, |o| &mut o.min_properties);
        if let Some(Value::Array(names)) = self.object.get("required") {
            keep(&mut s.object, strings(names), |o| &mut o.required);
        }
        // Newer drafts take formats for remarks.
        if self.compiler.assert_format || s.draft < Draft::Draft2019 {
            s.format = self.text("format").and_then(Format::named);
        }
        Ok(())
    }

    /// The bounds of numbers. In draft 4 the exclusive bounds are switches of the others.
    fn bounds(&self, s: &mut Schema) {
        let bound = |keyword: &str, switch: &str| match self.is_true(switch) {
            true => (None, self.number(keyword)),
            false => (self.number(keyword), self.number(switch)),
        };
        let (maximum, exclusive_maximum) = bound("maximum", "exclusiveMaximum");
        let (minimum, exclusive_minimum) = bound("minimum", "exclusiveMinimum");
        keep(&mut s.number, maximum, |n| &mut n.maximum);
        keep(&mut s.number, exclusive_maximum, |n| {
            &mut n.exclusive_maximum
        });
        keep(&mut s.number, minimum, |n| &mut n.minimum);
        keep(&mut s.number, exclusive_minimum, |n| {
            &mut n.exclusive_minimum
        });
        let multiple = self.number("multipleOf");
        keep(&mut s.number, multiple, |n| &mut n.multiple_of);
    }

    fn condition(&mut self, s: &mut Schema) {
        let Some(condition) = self.schema("if") else {
            return;
        };
        let decided = self.object.get("if").and_then(Value::as_bool);
        let then = match decided {
            Some(false) => None,
            _ => self.schema("then"),
        };
        let otherwise = match decided {
            Some(true) => None,
            _ => self.schema("else"),
        };
        let combined = s.combined.get_or_insert_default();
        combined.condition = Some(condition);
        combined.then = then;
        combined.otherwise = otherwise;
    }

    fn since_2019(&mut self, s: &mut Schema) -> Result<(), CompileError> {
        let recursive = self.reference("$recursiveRef")?;
        keep(&mut s.dynamic, recursive, |d| &mut d.recursive_reference);
        let anchor = self.is_true("$recursiveAnchor");
        keep(&mut s.dynamic, anchor, |d| &mut d.is_recursive_anchor);
        if let Some(array) = &mut s.array
            && array.contains.is_some()
        {
            array.min_contains = self.integer("minContains");
            array.max_contains = self.integer("maxContains");
        }
        for (name, value) in self.map("dependentRequired").into_iter().flatten() {
            if let Value::Array(items) = value {
                let object = s.object.get_or_insert_default();
                object.dependent_required.insert(name, strings(&items));
            }
        }
        let dependent = self.schemas("dependentSchemas");
        keep(&mut s.object, dependent, |o| &mut o.dependent_schemas);
        let items = self.schema("unevaluatedItems");
        keep(&mut s.array, items, |a| &mut a.unevaluated_items);
        let properties = self.schema("unevaluatedProperties");
        keep(&mut s.object, properties, |o| &mut o.unevaluated_properties);
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
        let is_paid = self
            .compiler
            .work
            .step(effort.saturating_mul(STEPS_PER_EFFORT));
        if self.compiler.pattern_bytes > MAX_PATTERNS || !is_paid {
            return Err(CompileError::TooComplex);
        }
        let regex = Arc::new(regex);
        self.compiler
            .patterns
            .insert(pattern.to_owned(), Arc::clone(&regex));
        Ok(regex)
    }

    fn enqueue(&mut self, pointer: String) -> Id {
        self.compiler
            .enqueue(Place::new(Arc::clone(&self.place.url), &pointer))
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

/// Sets one of a schema's rules; rules that ask nothing are not kept.
fn keep<Rules: Default, T: Default + PartialEq>(
    rules: &mut Option<Box<Rules>>,
    rule: T,
    field: impl FnOnce(&mut Rules) -> &mut T,
) {
    if rule != T::default() {
        *field(rules.get_or_insert_default()) = rule;
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
fn known_types(names: &[&str]) -> Box<[&'static str]> {
    const TYPES: [&str; 7] = [
        "null", "boolean", "number", "integer", "string", "array", "object",
    ];
    TYPES
        .into_iter()
        .filter(|known| names.contains(known))
        .collect()
}
