//! Schema documents, the schemas inside them that have names of their own, and finding what a
//! reference means.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use golib::budget::{Budget, TooLarge};
use golib::strconv::quote;
use golib::url::{Url, path_escape, path_unescape};
use serde_json::{Map, Value};

use super::document;
use super::draft::{Draft, Position, known_document};
use super::failure::escape;
use super::remote::Fetches;
use crate::warning::{Warning, Warnings};

/// How deep schemas may lie in schemas.
const MAX_DEPTH: usize = 128;
/// Schemas in one document: each is compiled into something of its own.
const MAX_SCHEMAS: usize = 50_000;
/// Bytes of the pointers to them all, which grow with depth.
const MAX_POINTERS: usize = 16 << 20;
/// Bytes of all the documents that a chart's schema refers to elsewhere.
const MAX_FETCHED: usize = 4 << 20;

/// A schema that cannot be used. The text is santhosh-tekuri/jsonschema's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CompileError {
    #[error("failing loading {}: {why}", quote(.url))]
    Load { url: String, why: String },
    #[error("{} is not valid against metaschema: {failure}", quote(.url))]
    Invalid { url: String, failure: String },
    #[error("json-pointer in {} not found", quote(.0))]
    PointerNotFound(String),
    #[error("invalid json-pointer {}", quote(.0))]
    InvalidPointer(String),
    #[error("anchor in {} not found in schema {}", quote(.reference), quote(.url))]
    AnchorNotFound { reference: String, url: String },
    #[error("draft {} is not supported", quote(.0))]
    UnsupportedDraft(String),
    #[error("cycle in resolving $schema in {}", quote(.0))]
    MetaschemaCycle(String),
    #[error("duplicate id {} in {} at {} and {}", quote(.id), quote(.url), quote(.first), quote(.second))]
    DuplicateId {
        id: String,
        url: String,
        first: String,
        second: String,
    },
    #[error("duplicate anchor {} in {} at {} and {}", quote(.anchor), quote(.url), quote(.first), quote(.second))]
    DuplicateAnchor {
        anchor: String,
        url: String,
        first: String,
        second: String,
    },
    #[error("invalid regex {} at {}: {why}", quote(.regex), quote(.url))]
    InvalidRegex {
        regex: String,
        url: String,
        why: String,
    },
    #[error("error in parsing {}: {why}", quote(.url))]
    ParseUrl { url: String, why: String },
    #[error("invalid $schema in {}: {why}", quote(.place))]
    InvalidMetaschemaUrl { place: String, why: String },
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error("schemas are nested too deep")]
    TooDeep,
    #[error("values and schema are too complex to check")]
    TooComplex,
}

/// A place in a schema document: its URL and a JSON pointer.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) url: Arc<str>,
    pub(super) pointer: Arc<str>,
}

impl Place {
    pub(super) fn new(url: Arc<str>, pointer: &str) -> Self {
        Self {
            url,
            pointer: pointer.into(),
        }
    }

    /// The place as messages show it.
    pub(super) fn shown(&self) -> String {
        format!("{}#{}", self.url, encode(&self.pointer))
    }
}

/// A schema with a name of its own; the root of a document always is one.
#[derive(Debug, Clone)]
pub(super) struct Resource {
    pub(super) pointer: String,
    pub(super) id: String,
    pub(super) draft: Draft,
    pub(super) anchors: BTreeMap<String, String>,
    pub(super) dynamic_anchors: Vec<String>,
}

/// A schema document.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) url: Arc<str>,
    pub(super) document: Arc<Value>,
    pub(super) resources: BTreeMap<String, Resource>,
    /// The pointers of the resources, by their names.
    ids: BTreeMap<String, String>,
    pub(super) processed: BTreeSet<String>,
    pointer_bytes: usize,
}

/// Documents by URL. Nothing is read from files.
pub(super) struct Documents<'r> {
    own: BTreeMap<String, Arc<Value>>,
    remote: Option<&'r Fetches<'r>>,
    /// Bytes that may still be fetched.
    left: usize,
    /// Memory left for the documents once they are read, and for what is copied of them.
    budget: Budget,
}

impl<'r> Documents<'r> {
    pub(super) fn new(remote: Option<&'r Fetches<'r>>, budget: Budget) -> Self {
        Self {
            own: BTreeMap::new(),
            remote,
            left: MAX_FETCHED,
            budget,
        }
    }

    pub(super) fn add(&mut self, url: &str, document: Arc<Value>) {
        self.own.insert(url.to_owned(), document);
    }

    /// A value of one of them that is kept apart. Schemas in it may be kept as well, each with all that is in it.
    pub(super) fn copied(&mut self, value: &Value) -> Result<Value, CompileError> {
        self.budget.add(value)?;
        Ok(value.clone())
    }

    pub(super) fn load(
        &mut self,
        url: &str,
        warnings: &mut Warnings,
    ) -> Result<Arc<Value>, CompileError> {
        if let Some(document) = self.own.get(url) {
            return Ok(document.clone());
        }
        let document = if let Some(known) = known_document(url) {
            known.clone()
        } else if url.starts_with("urn:") {
            warnings.push(Warning::UnresolvedUrn {
                urn: url.to_owned(),
            });
            Value::Bool(true)
        } else {
            self.fetch(url).map_err(|why| CompileError::Load {
                url: url.to_owned(),
                why,
            })?
        };
        let document = Arc::new(document);
        self.add(url, document.clone());
        Ok(document)
    }

    fn fetch(&mut self, url: &str) -> Result<Value, String> {
        let parsed = Url::parse(url.as_bytes())?;
        match parsed.scheme.as_slice() {
            b"file" => {
                let path = String::from_utf8_lossy(&parsed.path);
                Err(format!("open {path}: no such file or directory"))
            }
            b"http" | b"https" => {
                let remote = self.remote.ok_or("fetching schemas is switched off")?;
                let bytes = remote.fetch(url)?;
                let left = self.left.checked_sub(bytes.len());
                self.left = left.ok_or("the schemas referred to are too large")?;
                document::decode(&bytes, &mut self.budget)
            }
            _ => Err(format!(
                "no URLLoader registered for {}",
                quote(parsed.to_text())
            )),
        }
    }

    /// The draft of a schema object, from its `$schema`.
    fn draft(
        &mut self,
        place: &Place,
        schema: &Map<String, Value>,
        fallback: Draft,
        warnings: &mut Warnings,
    ) -> Result<Draft, CompileError> {
        let mut seen = BTreeSet::new();
        let mut named = schema
            .get("$schema")
            .and_then(Value::as_str)
            .map(ToOwned::to_owned);
        let mut at = place.clone();
        while let Some(url) = named {
            if let Some(draft) = Draft::from_url(&url) {
                return Ok(draft);
            }
            let url = url.split('#').next().unwrap_or_default().to_owned();
            Url::parse(url.as_bytes()).map_err(|why| CompileError::InvalidMetaschemaUrl {
                place: at.shown(),
                why,
            })?;
            if at.pointer.is_empty() && *at.url == *url {
                return Err(CompileError::UnsupportedDraft(url));
            }
            if !seen.insert(url.clone()) {
                return Err(CompileError::MetaschemaCycle(url));
            }
            let document = self.load(&url, warnings)?;
            named = document
                .as_object()
                .and_then(|schema| schema.get("$schema"))
                .and_then(Value::as_str)
                .map(ToOwned::to_owned);
            at = Place::new(url.into(), "");
        }
        Ok(fallback)
    }
}

impl Root {
    pub(super) fn new(url: &str, document: Arc<Value>) -> Self {
        Self {
            url: url.into(),
            document,
            resources: BTreeMap::new(),
            ids: BTreeMap::new(),
            processed: BTreeSet::new(),
            pointer_bytes: 0,
        }
    }

    /// The resource of a name.
    pub(super) fn named(&self, id: &str) -> Option<&Resource> {
        self.resources.get(self.ids.get(id)?)
    }

    fn mark_processed(&mut self, pointer: &str) -> Result<(), CompileError> {
        self.pointer_bytes += pointer.len();
        self.processed.insert(pointer.to_owned());
        if self.processed.len() > MAX_SCHEMAS || self.pointer_bytes > MAX_POINTERS {
            return Err(CompileError::TooComplex);
        }
        Ok(())
    }

    /// The resource a place belongs to.
    pub(super) fn resource(&self, pointer: &str) -> &Resource {
        let mut pointer = pointer;
        loop {
            if let Some(resource) = self.resources.get(pointer) {
                return resource;
            }
            match pointer.rfind('/') {
                Some(slash) => pointer = &pointer[..slash],
                None => break,
            }
        }
        self.resources
            .get("")
            .expect("a document's root is a resource")
    }

    /// Finds the named schemas and anchors in the schema at `pointer` and below.
    pub(super) fn collect(
        &mut self,
        documents: &mut Documents<'_>,
        pointer: &str,
        base: &str,
        fallback: Draft,
        depth: usize,
        warnings: &mut Warnings,
    ) -> Result<(), CompileError> {
        if self.processed.contains(pointer) {
            return Ok(());
        }
        if depth > MAX_DEPTH {
            return Err(CompileError::TooDeep);
        }
        let document = self.document.clone();
        let value = self.lookup_in(&document, pointer)?;
        let Some(schema) = value.as_object() else {
            if pointer.is_empty() {
                self.add_resource(pointer, base, fallback);
            }
            return self.mark_processed(pointer);
        };
        let place = Place::new(Arc::clone(&self.url), pointer);
        let mut has_schema = schema.get("$schema").is_some_and(Value::is_string);
        let mut draft = documents.draft(&place, schema, fallback, warnings)?;
        let mut id = draft.id(schema);
        if id.is_empty() && !pointer.is_empty() {
            // Without a name of its own a schema follows the document's draft.
            draft = fallback;
            has_schema = false;
            id = draft.id(schema);
        }
        let mut base = base.to_owned();
        if !id.is_empty() {
            base = join(&base, id)?.0;
        }
        if !id.is_empty() || pointer.is_empty() {
            match self.named(&base) {
                Some(other) if other.pointer != pointer => {
                    return Err(CompileError::DuplicateId {
                        id: base,
                        url: self.url.to_string(),
                        first: pointer.to_owned(),
                        second: other.pointer.clone(),
                    });
                }
                Some(_) => {}
                None => {
                    self.add_resource(pointer, &base, if has_schema { draft } else { fallback })
                }
            }
        }
        let owner = self
            .named(&base)
            .map(|resource| (resource.pointer.clone(), resource.draft));
        let (owner, owner_draft) = owner.unwrap_or_else(|| (String::new(), fallback));
        self.collect_anchors(schema, pointer, &owner)?;
        for (keyword, position) in draft.positions() {
            let Some(value) = schema.get(keyword) else {
                continue;
            };
            let at = format!("{pointer}/{}", escape(keyword));
            if matches!(position, Position::Itself | Position::Both) {
                self.collect(documents, &at, &base, owner_draft, depth + 1, warnings)?;
            }
            let inner: Vec<String> = match (position, value) {
                (Position::Itself, _) => Vec::new(),
                (Position::Each, Value::Object(map)) => map.keys().map(|key| escape(key)).collect(),
                (Position::Each | Position::Both, Value::Array(items)) => {
                    (0..items.len()).map(|index| index.to_string()).collect()
                }
                _ => Vec::new(),
            };
            for key in inner {
                let at = format!("{at}/{key}");
                self.collect(documents, &at, &base, owner_draft, depth + 1, warnings)?;
            }
        }
        self.mark_processed(pointer)
    }

    fn add_resource(&mut self, pointer: &str, id: &str, draft: Draft) {
        self.ids.insert(id.to_owned(), pointer.to_owned());
        self.resources.insert(
            pointer.to_owned(),
            Resource {
                pointer: pointer.to_owned(),
                id: id.to_owned(),
                draft,
                anchors: BTreeMap::new(),
                dynamic_anchors: Vec::new(),
            },
        );
    }

    /// Anchors of a schema a reference leads to that no keyword leads to.
    pub(super) fn collect_stray_anchors(&mut self, pointer: &str) -> Result<(), CompileError> {
        if self.resources.contains_key(pointer) {
            return Ok(());
        }
        let owner = self.resource(pointer).pointer.clone();
        let document = self.document.clone();
        match self.lookup_in(&document, pointer)? {
            Value::Object(schema) => self.collect_anchors(schema, pointer, &owner),
            _ => Ok(()),
        }
    }

    fn collect_anchors(
        &mut self,
        schema: &Map<String, Value>,
        pointer: &str,
        owner: &str,
    ) -> Result<(), CompileError> {
        let url = self.url.clone();
        let Some(resource) = self.resources.get_mut(owner) else {
            return Ok(());
        };
        let draft = resource.draft;
        let text = |keyword: &str| schema.get(keyword).and_then(Value::as_str);
        let mut found = Vec::new();
        if draft < Draft::Draft2019 {
            if schema.contains_key("$ref") {
                return Ok(());
            }
            let fragment = text(draft.id_keyword()).and_then(|id| id.split_once('#'));
            if let Some((_, fragment)) = fragment {
                let fragment = decode(fragment).map_err(|why| CompileError::ParseUrl {
                    url: fragment.to_owned(),
                    why,
                })?;
                if !fragment.is_empty() && !fragment.starts_with('/') {
                    found.push(fragment);
                }
            }
        } else {
            found.extend(text("$anchor").map(ToOwned::to_owned));
        }
        if draft >= Draft::Draft2020
            && let Some(anchor) = text("$dynamicAnchor")
        {
            found.push(anchor.to_owned());
            resource.dynamic_anchors.push(anchor.to_owned());
        }
        for anchor in found {
            match resource.anchors.get(&anchor) {
                Some(first) if first != pointer => {
                    return Err(CompileError::DuplicateAnchor {
                        anchor,
                        url: url.to_string(),
                        first: first.clone(),
                        second: pointer.to_owned(),
                    });
                }
                Some(_) => {}
                None => {
                    resource.anchors.insert(anchor, pointer.to_owned());
                }
            }
        }
        Ok(())
    }

    /// The place a fragment of one of our resources means.
    pub(super) fn resolve_in(
        &self,
        resource: &Resource,
        fragment: &str,
    ) -> Result<Place, CompileError> {
        let pointer = if fragment.is_empty() || fragment.starts_with('/') {
            format!("{}{fragment}", resource.pointer)
        } else {
            let found = resource.anchors.get(fragment);
            found.cloned().ok_or_else(|| CompileError::AnchorNotFound {
                reference: format!("{}#{}", resource.id, encode(fragment)),
                url: self.url.to_string(),
            })?
        };
        Ok(Place::new(Arc::clone(&self.url), &pointer))
    }

    /// The value at a pointer.
    pub(super) fn lookup(&self, pointer: &str) -> Result<&Value, CompileError> {
        self.lookup_in(&self.document, pointer)
    }

    /// The value at a pointer of `document`, which is ours.
    pub(super) fn lookup_in<'d>(
        &self,
        document: &'d Value,
        pointer: &str,
    ) -> Result<&'d Value, CompileError> {
        let place = || Place::new(Arc::clone(&self.url), pointer).shown();
        let mut value = document;
        for key in pointer.split('/').skip(1) {
            let key = unescape(key).ok_or_else(|| CompileError::InvalidPointer(place()))?;
            let inner = match value {
                Value::Object(map) => map.get(&key),
                Value::Array(items) => key.parse::<usize>().ok().and_then(|at| items.get(at)),
                _ => None,
            };
            value = inner.ok_or_else(|| CompileError::PointerNotFound(place()))?;
        }
        Ok(value)
    }
}

fn unescape(key: &str) -> Option<String> {
    let mut out = String::with_capacity(key.len());
    let mut chars = key.chars();
    while let Some(c) = chars.next() {
        match c {
            '~' => out.push(match chars.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            }),
            c => out.push(c),
        }
    }
    Some(out)
}

/// A reference relative to a base, as URL and decoded fragment.
pub(super) fn join(base: &str, reference: &str) -> Result<(String, String), CompileError> {
    let (path, fragment) = reference.split_once('#').unwrap_or((reference, ""));
    let fragment = decode(fragment).map_err(|why| CompileError::ParseUrl {
        url: reference.to_owned(),
        why,
    })?;
    let parse = |url: &str| {
        Url::parse(url.as_bytes()).map_err(|why| CompileError::ParseUrl {
            url: url.to_owned(),
            why,
        })
    };
    let (base, reference) = (parse(base)?, parse(path)?);
    let mut url = base.resolve(&reference);
    if reference.scheme.is_empty() && !base.opaque.is_empty() {
        url.opaque = base.opaque;
    }
    let url = String::from_utf8_lossy(&url.to_text()).into_owned();
    Ok((url, fragment))
}

fn decode(text: &str) -> Result<String, String> {
    let decoded = path_unescape(text.as_bytes())?;
    Ok(String::from_utf8_lossy(&decoded).into_owned())
}

/// Escapes a JSON pointer for a URL's fragment, each element by itself.
pub(super) fn encode(pointer: &str) -> String {
    let elements = pointer.split('/');
    let elements: Vec<_> = elements.map(|one| path_escape(one.as_bytes())).collect();
    String::from_utf8_lossy(&elements.join(&b'/')).into_owned()
}
