//! Nodes as yaml.v3 3.0.3 has them: a document as it was written, each scalar with its text, tag and style, to be edited and
//! then read as data or written again. kustomize works on these. Comments are not kept.
//!
//! What is read goes through the same scanner as everything here (yaml.v3's grammar is yaml.v2's); what a plain scalar is
//! follows yaml.v3: `yes` is text and `0o14` a number.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde_json::{Map, Number, Value};

use super::emitter::{Collection, Emitter, Styled};
use super::error::Problem;
use super::parser::{Event, Parser};
use super::reader;
use super::resolve::{self, Plain, Rules, Tag};
use super::tree::Dialect;
use crate::budget::{Budget, Part, TooLarge};
use crate::utf8;

pub use super::token::ScalarStyle;

/// The short tags that yaml.v3 resolves to.
pub mod tag {
    #![allow(missing_docs, reason = "they are named as in YAML")]
    pub const NULL: &str = "!!null";
    pub const BOOL: &str = "!!bool";
    pub const STR: &str = "!!str";
    pub const INT: &str = "!!int";
    pub const FLOAT: &str = "!!float";
    pub const TIMESTAMP: &str = "!!timestamp";
    pub const SEQ: &str = "!!seq";
    pub const MAP: &str = "!!map";
    pub const BINARY: &str = "!!binary";
    pub const MERGE: &str = "!!merge";
}

const LONG_PREFIX: &str = "tag:yaml.org,2002:";

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A text with a tag and a style.
    Scalar,
    /// The content is the elements.
    Sequence,
    /// The content is keys and values in turn.
    Mapping,
}

/// How a node was written, or is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Of a scalar.
    pub scalar: ScalarStyle,
    /// A collection in brackets or braces.
    pub flow: bool,
    /// The tag stands in the text.
    pub tagged: bool,
}

/// One node and all that is in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// How it was written.
    pub style: Style,
    /// The short tag; empty where none was resolved yet.
    pub tag: Cow<'static, str>,
    /// The text of a scalar.
    pub value: String,
    /// What is in a collection.
    pub content: Vec<Node>,
    /// Counted from 1; 0 for a node that was made, not read.
    pub line: u32,
    /// It stands where an alias did.
    pub was_alias: bool,
}

/// Why a text is not read, or a node is no data, as Go prints it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not YAML.
    #[error("yaml: {0}")]
    Yaml(String),
    /// A text that is not what its tag says.
    #[error("yaml: cannot decode {found} `{text}` as a {tag}")]
    Scalar {
        /// The tag that the text would have by itself.
        found: &'static str,
        /// As it was written.
        text: String,
        /// What it was to be.
        tag: String,
    },
    /// Data that repeats keys: a line each.
    #[error("yaml: unmarshal errors:{}", Lines(.0))]
    Type(Vec<String>),
    /// Data that JSON cannot hold.
    #[error("json: {0}")]
    Json(String),
    /// A document that would fill the memory.
    #[error("yaml: {0}")]
    TooLarge(#[from] TooLarge),
}

/// Each on a line of its own.
struct Lines<'a>(&'a [String]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::Yaml(match problem.line_in_v3 {
            Some(line) => format!("line {line}: {}", problem.text),
            None => problem.text.to_owned(),
        })
    }
}

/// How deep a document may nest. Go has no such limit; nothing that is deployed comes near it.
pub const MAX_DEPTH: usize = 512;

/// Reads the first document. `None` when there is none; aliases stand as copies of what they name.
///
/// # Errors
/// Text that yaml.v3 refuses, documents nested deeper than [`MAX_DEPTH`], and what is heavier than the budget.
pub fn parse(text: &[u8], budget: &mut Budget) -> Result<Option<Node>, Error> {
    let input = reader::read(text);
    let mut parser = Parser::v3(&input);
    if parser.event()?.0 == Event::StreamEnd {
        return Ok(None);
    }
    let mut anchors: HashMap<Cow<'_, str>, Node> = HashMap::new();
    let mut open: Vec<(Node, Option<Cow<'_, str>>)> = Vec::new();
    loop {
        let (event, mark) = parser.event()?;
        let line = u32::try_from(mark.line)
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        let (node, anchor) = match event {
            Event::Alias(name) => {
                if let Some((_, Some(_))) = open
                    .iter()
                    .find(|(_, anchor)| anchor.as_deref() == Some(&*name))
                {
                    return Err(Error::Yaml(format!(
                        "anchor '{name}' value contains itself"
                    )));
                }
                let target = anchors
                    .get(&name)
                    .ok_or_else(|| Error::Yaml(format!("unknown anchor '{name}' referenced")))?;
                target.weigh(budget)?;
                if open.len() + target.depth() > MAX_DEPTH {
                    return Err(too_deep());
                }
                let mut node = target.clone();
                node.was_alias = true;
                (node, None)
            }
            Event::Scalar {
                anchor,
                tag,
                value,
                style,
                ..
            } => {
                spend(budget, value.len() + own_text(&short_tag(&tag)))?;
                (Node::parsed_scalar(&tag, value.into(), style, line), anchor)
            }
            Event::SequenceStart { anchor, tag, flow } => {
                open_collection(&mut open, Kind::Sequence, anchor, &tag, flow, line, budget)?;
                continue;
            }
            Event::MappingStart { anchor, tag, flow } => {
                open_collection(&mut open, Kind::Mapping, anchor, &tag, flow, line, budget)?;
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(closed) => closed,
                None => continue,
            },
            Event::DocumentEnd => return Ok(None),
            Event::StreamEnd | Event::DocumentStart => {
                return Err(Problem::bare("unknown problem parsing YAML content").into());
            }
        };
        if let Some(name) = anchor {
            node.weigh(budget)?;
            anchors.insert(name, node.clone());
        }
        match open.last_mut() {
            Some((parent, _)) => parent.content.push(node),
            None => {
                // What follows the document's content may still be wrong.
                let (event, mark) = parser.event()?;
                debug_assert!(event == Event::DocumentEnd, "{event:?} {mark:?}");
                return Ok(Some(node));
            }
        }
    }
}

/// The first document as data, its merge keys followed (`yaml.Unmarshal` into an `any`), as Go's JSON holds it. `None` when there is
/// none.
///
/// ```
/// use golib::budget::Budget;
/// use golib::yaml::node;
///
/// let read = node::unmarshal(b"mode: on\nday: 2026-01-02", &mut Budget::default())?;
/// let expected = serde_json::json!({"mode": "on", "day": "2026-01-02T00:00:00Z"});
/// assert_eq!(read, Some(expected));
/// # Ok::<(), node::Error>(())
/// ```
///
/// Nodes and values count while both are there, the values alone afterwards.
///
/// # Errors
/// As [`parse`] and [`Node::decode`], and for a key that is no text.
pub fn unmarshal(text: &[u8], budget: &mut Budget) -> Result<Option<Value>, Error> {
    unmarshal_weighed(text, budget).map(|(value, _)| value)
}

/// As [`unmarshal`], with the bytes that nodes and values took together: whoever reads documents one after the other, and keeps none,
/// counts these.
///
/// # Errors
/// As [`unmarshal`].
pub fn unmarshal_weighed(
    text: &[u8],
    budget: &mut Budget,
) -> Result<(Option<Value>, usize), Error> {
    let mut kept = budget.clone();
    let Some(node) = parse(text, budget)? else {
        let taken = budget.spent().saturating_sub(kept.spent());
        *budget = kept;
        return Ok((None, taken));
    };
    let decoding = Decoding {
        merges: true,
        budget: Some(budget),
        ..Decoding::default()
    };
    let value = node.value_of(Path::Direct, false, decoding)?;
    let taken = budget.spent().saturating_sub(kept.spent());
    kept.add(&value)?;
    *budget = kept;
    Ok((Some(value), taken))
}

fn too_deep() -> Error {
    Error::Yaml(format!("document is nested deeper than {MAX_DEPTH} levels"))
}

#[allow(clippy::too_many_arguments, reason = "the parts of one event")]
fn open_collection<'a>(
    open: &mut Vec<(Node, Option<Cow<'a, str>>)>,
    kind: Kind,
    anchor: Option<Cow<'a, str>>,
    tag: &str,
    flow: bool,
    line: u32,
    budget: &mut Budget,
) -> Result<(), Error> {
    if open.len() >= MAX_DEPTH {
        return Err(too_deep());
    }
    spend(budget, own_text(&short_tag(tag)))?;
    let mut node = Node::collection(kind);
    node.style.flow = flow;
    node.line = line;
    if !tag.is_empty() && tag != "!" {
        node.tag = short_tag(tag);
        node.style.tagged = true;
    }
    open.push((node, anchor));
    Ok(())
}

/// What a tag takes: few letters may name a long prefix.
#[allow(clippy::ptr_arg, reason = "a borrowed tag takes nothing")]
fn own_text(tag: &Cow<'static, str>) -> usize {
    match tag {
        Cow::Borrowed(_) => 0,
        Cow::Owned(tag) => tag.len(),
    }
}

fn spend(budget: &mut Budget, text: usize) -> Result<(), TooLarge> {
    budget.spend(Part::Anchors, size_of::<Node>())?;
    budget.text(text)
}

/// `tag:yaml.org,2002:str` as `!!str`.
fn short_tag(tag: &str) -> Cow<'static, str> {
    let short = match tag.strip_prefix(LONG_PREFIX) {
        Some(name) => format!("!!{name}"),
        None => tag.to_owned(),
    };
    let known = [
        tag::NULL,
        tag::BOOL,
        tag::STR,
        tag::INT,
        tag::FLOAT,
        tag::TIMESTAMP,
        tag::SEQ,
        tag::MAP,
        tag::BINARY,
        tag::MERGE,
    ];
    match known.into_iter().find(|known| *known == short) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(short),
    }
}

impl Node {
    /// A scalar without a tag: what it is depends on its text.
    pub fn scalar(value: impl Into<String>) -> Self {
        Self {
            kind: Kind::Scalar,
            style: Style::default(),
            tag: Cow::Borrowed(""),
            value: value.into(),
            content: Vec::new(),
            line: 0,
            was_alias: false,
        }
    }

    /// A scalar with a tag of [`tag`].
    pub fn tagged(value: impl Into<String>, tag: &'static str) -> Self {
        Self {
            tag: Cow::Borrowed(tag),
            ..Self::scalar(value)
        }
    }

    /// Text, as `Node.SetString` makes it: a literal where it has several lines.
    pub fn string(value: impl Into<String>) -> Self {
        let mut node = Self::tagged(value, tag::STR);
        if node.value.contains('\n') {
            node.style.scalar = ScalarStyle::Literal;
        }
        node
    }

    /// Text as it is read from what yaml.v3's encoder writes of it: in the style that can hold it.
    pub fn encoded_string(value: impl Into<String>) -> Self {
        let mut node = Self::string(value);
        if node.style.scalar == ScalarStyle::Plain && !is_plain_string(&node.value) {
            node.style.scalar = ScalarStyle::DoubleQuoted;
        }
        node.style.scalar = Styled {
            text: &node.value,
            style: node.style.scalar,
            tag: "",
            simple_key: false,
            in_flow: false,
        }
        .held(Dialect::V3);
        node
    }

    /// An empty sequence or mapping.
    pub fn collection(kind: Kind) -> Self {
        Self {
            kind,
            tag: Cow::Borrowed(match kind {
                Kind::Scalar => "",
                Kind::Sequence => tag::SEQ,
                Kind::Mapping => tag::MAP,
            }),
            ..Self::scalar("")
        }
    }

    /// Null.
    pub fn null() -> Self {
        Self::tagged("null", tag::NULL)
    }

    fn parsed_scalar(tag: &str, value: String, style: ScalarStyle, line: u32) -> Self {
        let plain = style == ScalarStyle::Plain;
        let is_tagged = !tag.is_empty() && tag != "!";
        let tag = if is_tagged {
            short_tag(tag)
        } else if !plain {
            Cow::Borrowed(tag::STR)
        } else if value == "<<" {
            Cow::Borrowed(tag::MERGE)
        } else {
            Cow::Borrowed(resolve(&value).0)
        };
        Self {
            kind: Kind::Scalar,
            style: Style {
                scalar: style,
                flow: false,
                tagged: is_tagged,
            },
            tag,
            value,
            content: Vec::new(),
            line,
            was_alias: false,
        }
    }

    /// Levels of collections in it, itself among them.
    pub fn depth(&self) -> usize {
        match self.kind {
            Kind::Scalar => 0,
            _ => 1 + self.content.iter().map(Self::depth).max().unwrap_or(0),
        }
    }

    /// Spends what it takes in memory, as reading it did.
    ///
    /// # Errors
    /// The budget does not allow it.
    pub fn weigh(&self, budget: &mut Budget) -> Result<(), TooLarge> {
        spend(budget, self.value.len() + own_text(&self.tag))?;
        self.content
            .iter()
            .try_for_each(|child| child.weigh(budget))
    }

    /// Nodes in it, itself among them.
    pub fn count(&self) -> usize {
        1 + self.content.iter().map(Self::count).sum::<usize>()
    }

    /// The entries of a mapping; none of anything else.
    pub fn entries(&self) -> impl Iterator<Item = (&Node, &Node)> {
        let content: &[Node] = match self.kind {
            Kind::Mapping => &self.content,
            _ => &[],
        };
        content.chunks_exact(2).map(|pair| (&pair[0], &pair[1]))
    }

    /// `Node.ShortTag`: the tag, or what the text of an untagged scalar makes of it.
    pub fn short_tag(&self) -> &str {
        if self.is_indicated_string() {
            return tag::STR;
        }
        if !self.tag.is_empty() && self.tag != "!" {
            return &self.tag;
        }
        match self.kind {
            Kind::Sequence => tag::SEQ,
            Kind::Mapping => tag::MAP,
            Kind::Scalar => resolve(&self.value).0,
        }
    }

    fn is_indicated_string(&self) -> bool {
        self.kind == Kind::Scalar
            && (self.tag == tag::STR
                || (self.tag.is_empty() || self.tag == "!")
                    && self.style.scalar != ScalarStyle::Plain)
    }

    /// The text of the node, as kyaml's `String` writes it: indented by two, lists level with their keys.
    pub fn to_yaml(&self) -> String {
        let mut emitter = Emitter::new(Dialect::V3Compact);
        self.emit(&mut emitter, Place::default());
        emitter.finish()
    }

    fn emit(&self, emitter: &mut Emitter, place: Place) {
        let (tag, quoted) = self.written_tag();
        let flow = place.in_flow || self.style.flow;
        match self.kind {
            Kind::Scalar => {
                let style = match self.style.scalar {
                    ScalarStyle::Plain if self.value.contains('\n') => ScalarStyle::Literal,
                    ScalarStyle::Plain if quoted => ScalarStyle::DoubleQuoted,
                    style => style,
                };
                emitter.styled(&Styled {
                    text: &self.value,
                    style,
                    tag,
                    simple_key: place.is_key,
                    in_flow: place.in_flow,
                });
            }
            Kind::Sequence | Kind::Mapping => {
                if !tag.is_empty() {
                    emitter.tag(tag);
                }
                let [open, close] = match self.kind {
                    Kind::Mapping => ["{", "}"],
                    _ => ["[", "]"],
                };
                let is_mapping = self.kind == Kind::Mapping;
                if self.content.is_empty() {
                    emitter.empty(open, close);
                } else if flow {
                    emitter.flow(open);
                    let in_flow = Place {
                        in_flow: true,
                        ..Place::default()
                    };
                    let step = if is_mapping { 2 } else { 1 };
                    for (at, item) in self.content.chunks(step).enumerate() {
                        if at > 0 {
                            emitter.flow(",");
                        }
                        if let [key, value] = item {
                            key.emit(
                                emitter,
                                Place {
                                    is_key: true,
                                    ..in_flow
                                },
                            );
                            emitter.colon();
                            value.emit(emitter, in_flow);
                        } else {
                            item.iter().for_each(|item| item.emit(emitter, in_flow));
                        }
                    }
                    emitter.flow(close);
                } else if is_mapping {
                    emitter.begin(Collection::Mapping, place.in_mapping);
                    for (key, value) in self.entries() {
                        emitter.next_line();
                        key.emit(
                            emitter,
                            Place {
                                is_key: true,
                                ..Place::default()
                            },
                        );
                        emitter.colon();
                        value.emit(
                            emitter,
                            Place {
                                in_mapping: true,
                                ..Place::default()
                            },
                        );
                    }
                    emitter.end();
                } else {
                    emitter.begin(Collection::Sequence, place.in_mapping);
                    for item in &self.content {
                        emitter.item();
                        item.emit(emitter, Place::default());
                    }
                    emitter.end();
                }
            }
        }
    }

    /// The tag that has to be written, as `encode.go` decides, and whether the text must be quoted in its place.
    fn written_tag(&self) -> (&str, bool) {
        let tag: &str = &self.tag;
        if tag.is_empty() || self.style.tagged {
            return (tag, false);
        }
        let implied = match self.kind {
            Kind::Mapping => tag::MAP,
            Kind::Sequence => tag::SEQ,
            Kind::Scalar if tag == tag::STR && self.style.scalar != ScalarStyle::Plain => tag::STR,
            Kind::Scalar => resolve(&self.value).0,
        };
        match tag {
            _ if tag == implied => ("", false),
            tag::STR if self.kind == Kind::Scalar => ("", true),
            _ => (tag, false),
        }
    }

    /// The data that `Node.Decode` makes of it, as Go's JSON holds it.
    ///
    /// # Errors
    /// Repeated keys, tags that do not fit their text, and what JSON has no form for.
    pub fn decode(&self) -> Result<Value, Error> {
        self.value_of(Path::Direct, true, Decoding::default())
    }

    /// The data of its text: what there is when it is written and read again (kyaml's `RNode.MarshalJSON`).
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn decode_written(&self) -> Result<Value, Error> {
        let path = Path::Written { in_flow: false };
        self.value_of(path, true, Decoding::default())
    }

    fn value_of(
        &self,
        path: Path,
        is_root: bool,
        mut decoding: Decoding<'_>,
    ) -> Result<Value, Error> {
        let mut unwritable = None;
        let value = self.to_value(path, is_root, &mut decoding, &mut unwritable)?;
        if !decoding.repeated.is_empty() {
            return Err(Error::Type(decoding.repeated));
        }
        match unwritable {
            Some(text) => Err(Error::Json(text)),
            None => Ok(value),
        }
    }

    fn to_value(
        &self,
        path: Path,
        is_root: bool,
        decoding: &mut Decoding<'_>,
        unwritable: &mut Option<String>,
    ) -> Result<Value, Error> {
        let path = match path {
            Path::Written { in_flow } => Path::Written {
                in_flow: in_flow || self.style.flow,
            },
            Path::Direct => Path::Direct,
        };
        match self.kind {
            Kind::Scalar => match scalar_value(self, path) {
                Ok(value) => {
                    decoding.weigh(|budget| budget.add(&value))?;
                    Ok(value)
                }
                // JSON is written of what was read without an error.
                Err(Error::Json(text)) => {
                    unwritable.get_or_insert(text);
                    Ok(Value::Null)
                }
                failed => failed,
            },
            Kind::Sequence => {
                let items = self.content.iter().enumerate().map(|(length, item)| {
                    decoding.weigh(|budget| budget.value(length))?;
                    item.to_value(path, false, decoding, unwritable)
                });
                Ok(Value::Array(items.collect::<Result<_, Error>>()?))
            }
            Kind::Mapping => {
                if decoding.has_repeated_keys(self) {
                    return Ok(Value::Null);
                }
                let mut map = Map::new();
                let mut has_other_keys = false;
                let mut merged = None;
                // The first one in the order in which JSON is written.
                let mut first: Option<(&str, String)> = None;
                for (key, value) in self.entries() {
                    expect_scalar_key(key)?;
                    let tag = key.short_tag();
                    if decoding.merges && tag == tag::MERGE {
                        merged = Some(value);
                        continue;
                    }
                    if !matches!(tag, tag::STR | tag::MERGE) {
                        if is_root && tag == tag::NULL {
                            continue;
                        }
                        has_other_keys |= !is_root;
                    }
                    let mut own = None;
                    let value = value.to_value(path, false, decoding, &mut own)?;
                    if let Some(text) = own
                        && first.as_ref().is_none_or(|(first, _)| *key.value < **first)
                    {
                        first = Some((&key.value, text));
                    }
                    decoding.weigh_entry(map.len(), &key.value)?;
                    map.insert(key.value.clone(), value);
                }
                if let Some(merged) = merged {
                    let mut own = None;
                    merged.merge_into(&mut map, path, decoding, &mut own)?;
                    first = first.or_else(|| own.map(|text| ("", text)));
                }
                if unwritable.is_none() {
                    *unwritable = match has_other_keys {
                        true => Some("unsupported type: map[interface {}]interface {}".to_owned()),
                        false => first.map(|(_, text)| text),
                    };
                }
                Ok(Value::Object(map))
            }
        }
    }

    /// What a merge key holds, as far as a map lacks it: of several maps the first one wins (yaml.v3's `merge`).
    fn merge_into(
        &self,
        map: &mut Map<String, Value>,
        path: Path,
        decoding: &mut Decoding<'_>,
        unwritable: &mut Option<String>,
    ) -> Result<(), Error> {
        let single = std::slice::from_ref(self);
        let maps = match self.kind {
            Kind::Sequence if !self.was_alias => &*self.content,
            Kind::Sequence | Kind::Scalar | Kind::Mapping => single,
        };
        for node in maps {
            if node.kind != Kind::Mapping {
                let text = "map merge requires map or sequence of maps as the value";
                return Err(Error::Yaml(text.to_owned()));
            }
            if decoding.has_repeated_keys(node) {
                continue;
            }
            let mut merged = None;
            for (key, value) in node.entries() {
                expect_scalar_key(key)?;
                match key.short_tag() {
                    tag::MERGE => merged = Some(value),
                    // The map that is merged into has texts as keys, and null is none.
                    tag::NULL => {}
                    _ if map.contains_key(&key.value) => {}
                    _ => {
                        let value = value.to_value(path, false, decoding, unwritable)?;
                        decoding.weigh_entry(map.len(), &key.value)?;
                        map.insert(key.value.clone(), value);
                    }
                }
            }
            if let Some(merged) = merged {
                merged.merge_into(map, path, decoding, unwritable)?;
            }
        }
        Ok(())
    }
}

fn expect_scalar_key(key: &Node) -> Result<(), Error> {
    match key.kind {
        Kind::Scalar => Ok(()),
        Kind::Sequence | Kind::Mapping => Err(Error::Yaml("invalid map key".to_owned())),
    }
}

/// What yaml.v3 tells of when it has read all of a document.
#[derive(Default)]
struct Decoding<'a> {
    /// Merge keys are followed, not kept.
    merges: bool,
    /// What the values may take.
    budget: Option<&'a mut Budget>,
    repeated: Vec<String>,
    repeated_bytes: usize,
}

impl Decoding<'_> {
    fn weigh(
        &mut self,
        part: impl FnOnce(&mut Budget) -> Result<(), TooLarge>,
    ) -> Result<(), TooLarge> {
        self.budget.as_deref_mut().map_or(Ok(()), part)
    }

    fn weigh_entry(&mut self, length: usize, key: &str) -> Result<(), TooLarge> {
        self.weigh(|budget| {
            budget.value_entry(length)?;
            budget.text(key.len())
        })
    }

    /// Notes each pair of equal keys. Nobody reads more of them than an error shows, and each quotes the key.
    fn has_repeated_keys(&mut self, mapping: &Node) -> bool {
        const MAX_NOTED: usize = 4_096;
        const MAX_NOTED_BYTES: usize = 64 << 10;
        let mut lines: HashMap<(Kind, &str), Vec<u32>> = HashMap::new();
        for (key, _) in mapping.entries() {
            let lines = lines.entry((key.kind, &key.value)).or_default();
            lines.push(key.line);
        }
        if lines.values().all(|lines| lines.len() == 1) {
            return false;
        }
        let mut seen: HashMap<(Kind, &str), usize> = HashMap::new();
        for (key, _) in mapping.entries() {
            let lines = &lines[&(key.kind, &*key.value)];
            if lines.len() == 1 {
                continue;
            }
            let seen = seen.entry((key.kind, &key.value)).or_default();
            *seen += 1;
            for line in &lines[*seen..] {
                if self.repeated.len() == MAX_NOTED || self.repeated_bytes > MAX_NOTED_BYTES {
                    return true;
                }
                let shown = &key.value[..key.value.floor_char_boundary(MAX_NOTED_BYTES)];
                let note = format!(
                    "line {line}: mapping key {} already defined at line {}",
                    crate::strconv::quote(shown),
                    key.line,
                );
                self.repeated_bytes += note.len();
                self.repeated.push(note);
            }
        }
        true
    }
}

/// Where a node is written.
#[derive(Clone, Copy, Default)]
struct Place {
    in_mapping: bool,
    in_flow: bool,
    is_key: bool,
}

/// Which way a node becomes data.
#[derive(Clone, Copy, PartialEq)]
enum Path {
    Direct,
    /// By way of its text.
    Written {
        in_flow: bool,
    },
}

fn scalar_value(node: &Node, path: Path) -> Result<Value, Error> {
    let text = &node.value;
    let tag: &str = &node.tag;
    let quoted = node.style.scalar != ScalarStyle::Plain;
    let tag = match path {
        Path::Direct if node.is_indicated_string() => tag::STR,
        Path::Direct => tag,
        Path::Written { in_flow } => {
            let (tag, quote) = node.written_tag();
            let quoted = quoted || quote || text.contains('\n');
            // What cannot stand plain in brackets is quoted.
            let quoted =
                quoted || in_flow && tag.is_empty() && (text.is_empty() || text.contains(':'));
            if tag.is_empty() && quoted {
                tag::STR
            } else {
                tag
            }
        }
    };
    match tag {
        "" => resolve(text).1.into_value(text),
        tag::STR if path != Path::Direct && node.style.scalar == ScalarStyle::Folded => {
            // yaml.v3 does not read every folded text as it wrote it.
            let written = Node {
                tag: Cow::Borrowed(tag::STR),
                ..node.clone()
            };
            let again = parse(written.to_yaml().as_bytes(), &mut Budget::default())?;
            Ok(Value::String(
                again.map_or_else(String::new, |node| node.value),
            ))
        }
        tag::STR => Ok(Value::String(text.clone())),
        tag::BINARY => {
            let data = crate::base64::decode(text).map_err(|_| {
                Error::Yaml("!!binary value contains invalid base64 data".to_owned())
            })?;
            let mut out = String::new();
            utf8::push(&mut out, &data);
            Ok(Value::String(out))
        }
        tag::NULL | tag::BOOL | tag::INT | tag::FLOAT | tag::TIMESTAMP => {
            let (found, plain) = resolve_as(text, tag);
            match plain {
                plain if found == tag => plain.into_value(text),
                #[expect(clippy::cast_precision_loss, reason = "the tag asks for a float")]
                Plain::Int(integer) if tag == tag::FLOAT => {
                    Plain::Float(integer as f64).into_value(text)
                }
                _ => Err(Error::Scalar {
                    found,
                    text: text.clone(),
                    tag: tag.to_owned(),
                }),
            }
        }
        _ => Ok(Value::String(text.clone())),
    }
}

impl Plain {
    fn into_value(self, text: &str) -> Result<Value, Error> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => value.into(),
            Self::Int(value) => value.into(),
            Self::Uint(value) => value.into(),
            Self::Float(value) => {
                let Some(number) = Number::from_f64(value) else {
                    let text = match value {
                        value if value.is_nan() => "NaN",
                        value if value > 0.0 => "+Inf",
                        _ => "-Inf",
                    };
                    return Err(Error::Json(format!("unsupported value: {text}")));
                };
                Value::Number(number)
            }
            Self::Time(time) => Value::String(time.to_rfc3339().map_err(|problem| {
                Error::Json(format!(
                    "error calling MarshalJSON for type time.Time: Time.MarshalJSON: {problem}"
                ))
            })?),
            Self::Str => Value::String(text.to_owned()),
        })
    }
}

/// Whether yaml.v3 writes a text without quotes, as far as it is one: not where yaml.v2 or YAML 1.1 would read something else.
fn is_plain_string(text: &str) -> bool {
    resolved_tag(text) == tag::STR && super::encode::is_plain_in_v3(text)
}

/// The tag that yaml.v3 gives an untagged plain text.
pub fn resolved_tag(text: &str) -> &'static str {
    resolve(text).0
}

fn resolve(text: &str) -> (&'static str, Plain) {
    resolve_as(text, "")
}

fn resolve_as(text: &str, expected: &str) -> (&'static str, Plain) {
    let expected = expected.strip_prefix("!!").and_then(Tag::named);
    let (found, plain) = resolve::resolve(text, expected, Rules::V3);
    (found.short(), plain)
}
