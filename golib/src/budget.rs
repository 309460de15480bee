//! What decoded documents weigh. A few bytes of text (`{a: b},`) can stand for a map that takes a hundred times as much
//! memory, so a bound on the text does not bound what is made of it: decoders count what they build, and stop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value};

/// Levels that a decoded document may have where its [`Budget`] says nothing else. A [`Value`] is cloned, compared and dropped by recursion: a
/// thread of 2 MiB has no room for the 10,000 at which Go's decoders stop.
pub const MAX_DEPTH: usize = 1_000;

/// Bytes that decoded documents may take together.
///
/// The default of 48 MiB holds what is made of 5 MiB of the densest YAML that real charts have; of ordinary values it is
/// some 20 MiB. One budget may serve several documents that are kept at the same time; what was spent on one that failed stays spent.
///
/// ```
/// use golib::budget::Budget;
/// use golib::json;
///
/// let mut budget = Budget::new(4096);
/// assert!(json::decode_within(b"[1, 2, 3]", &mut budget).is_ok());
/// let many = format!("[{}]", ["{}"; 1000].join(","));
/// let error = json::decode_within(many.as_bytes(), &mut budget).unwrap_err();
/// assert!(matches!(error, json::Error::TooLarge(_)));
/// ```
#[derive(Debug, Clone)]
pub struct Budget {
    limit: usize,
    depth: usize,
    spent: [usize; PARTS],
    /// Told when the limit is reached, where another one would have let more pass.
    exceeded: Option<Arc<AtomicBool>>,
}

/// What one piece of work may take for all that it decodes, which may be less than each of its decoders may take at most. It remembers whether one
/// of them would have taken more: what comes of the work says so in many words, or does not say it.
///
/// ```
/// use golib::budget::Allowance;
/// use golib::json;
///
/// let allowance = Allowance::new(100);
/// let large = format!("[{}]", ["{}"; 1000].join(","));
/// // The decoder's own limit counts where it is less.
/// assert!(json::decode_within(large.as_bytes(), &mut allowance.budget(10)).is_err());
/// assert!(!allowance.is_exceeded());
/// assert!(json::decode_within(large.as_bytes(), &mut allowance.budget(1 << 20)).is_err());
/// assert!(allowance.is_exceeded());
/// ```
#[derive(Debug, Clone)]
pub struct Allowance {
    limit: usize,
    exceeded: Arc<AtomicBool>,
}

impl Allowance {
    /// At most so many bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            exceeded: Arc::default(),
        }
    }

    /// What a decoder may take that may take `most` elsewhere.
    pub fn limit(&self, most: usize) -> usize {
        self.limit.min(most)
    }

    /// The budget of a decoder that may take `most` elsewhere.
    pub fn budget(&self, most: usize) -> Budget {
        Budget {
            exceeded: (self.limit < most).then(|| Arc::clone(&self.exceeded)),
            ..Budget::new(self.limit(most))
        }
    }

    /// Notes that something took more than [`Self::limit`] gave it.
    pub fn note_exceeded(&self, most: usize) {
        if self.limit < most {
            self.exceeded.store(true, Ordering::Relaxed);
        }
    }

    /// Whether more was asked for than it gave, and another one might give it.
    pub fn is_exceeded(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed)
    }
}

/// Each decoder has what it may take at most.
impl Default for Allowance {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

const PARTS: usize = 4;

/// What a document's weight consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Lists, by their elements.
    Lists,
    /// Maps, by their entries.
    Maps,
    /// Strings and keys.
    Text,
    /// What is remembered of the document while anchors may still be asked for.
    Anchors,
}

/// A document would take more memory than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("document is too large: decoded it takes more than {} MiB, most of it {}", .limit >> 20, .most.in_words())]
pub struct TooLarge {
    /// What weighed most of all when the limit was reached.
    pub most: Part,
    /// The limit in bytes.
    pub limit: usize,
}

impl Part {
    fn in_words(self) -> &'static str {
        match self {
            Self::Lists => "lists",
            Self::Maps => "maps",
            Self::Text => "text",
            Self::Anchors => "nodes that anchors may name",
        }
    }
}

/// What the allocator adds to a piece of memory, about.
const ALLOCATION: usize = 16;
/// A standard B-tree's node has room for eleven entries, however few there are; filled in order, it is left with six.
const NODE_ENTRIES: usize = 11;
const NODE_FILLED: usize = 6;

impl Budget {
    /// At most so many bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            depth: MAX_DEPTH,
            spent: [0; PARTS],
            exceeded: None,
        }
    }

    /// Documents may have so many levels; more than [`MAX_DEPTH`] where their values meet roomy stacks alone.
    #[must_use]
    pub fn with_depth(self, levels: usize) -> Self {
        Self {
            depth: levels,
            ..self
        }
    }

    /// For as long as `read` takes, documents have so many levels at most.
    pub fn limit_depth<T>(&mut self, levels: usize, read: impl FnOnce(&mut Self) -> T) -> T {
        let fewer = levels.min(self.depth);
        let before = std::mem::replace(&mut self.depth, fewer);
        let read = read(self);
        self.depth = before;
        read
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// What the documents read so far weigh, in bytes.
    pub fn spent(&self) -> usize {
        self.spent.iter().sum()
    }

    pub(crate) fn spend(&mut self, part: Part, bytes: usize) -> Result<(), TooLarge> {
        let spent = &mut self.spent[part as usize];
        *spent = spent.saturating_add(bytes);
        if self.spent() <= self.limit {
            return Ok(());
        }
        if let Some(exceeded) = &self.exceeded {
            exceeded.store(true, Ordering::Relaxed);
        }
        let parts = [Part::Lists, Part::Maps, Part::Text, Part::Anchors];
        let most = parts
            .into_iter()
            .max_by_key(|&part| self.spent[part as usize])
            .unwrap_or(part);
        Err(TooLarge {
            most,
            limit: self.limit,
        })
    }

    /// Gives back what was remembered and is forgotten.
    pub(crate) fn give_back(&mut self, part: Part, bytes: usize) {
        let spent = &mut self.spent[part as usize];
        *spent = spent.saturating_sub(bytes);
    }

    /// A string of its own, of so many bytes.
    ///
    /// # Errors
    /// With it, there is more than the limit.
    pub fn text(&mut self, length: usize) -> Result<(), TooLarge> {
        match length {
            0 => Ok(()),
            _ => self.spend(Part::Text, length + ALLOCATION),
        }
    }

    /// One more element, behind `length` others.
    pub(crate) fn element<T>(&mut self, length: usize) -> Result<(), TooLarge> {
        // Room for four is made at once.
        let slots = match length {
            0 => 4,
            1..=3 => return Ok(()),
            _ => 1,
        };
        self.spend(Part::Lists, slots * size_of::<T>())
    }

    /// One more entry, beside `length` others.
    pub(crate) fn entry<K, V>(&mut self, length: usize) -> Result<(), TooLarge> {
        if !length.is_multiple_of(NODE_FILLED) {
            return Ok(());
        }
        let node = NODE_ENTRIES * (size_of::<K>() + size_of::<V>()) + 2 * ALLOCATION;
        self.spend(Part::Maps, node)
    }

    /// One more value of a list of values.
    pub(crate) fn value(&mut self, length: usize) -> Result<(), TooLarge> {
        self.element::<Value>(length)
    }

    /// One more entry of a map of values.
    pub(crate) fn value_entry(&mut self, length: usize) -> Result<(), TooLarge> {
        self.entry::<String, Value>(length)
    }
}

/// What a value takes in memory, in bytes, about: a map of one entry takes as much as one of eleven.
///
/// ```
/// use golib::budget::weigh;
/// use serde_json::json;
///
/// assert_eq!(weigh(&json!(1)), 0);
/// assert!(weigh(&json!({"type": "string"})) > 600);
/// ```
pub fn weigh(value: &Value) -> usize {
    let mut weighed = Budget::new(usize::MAX);
    match weighed.add(value) {
        Ok(()) => weighed.spent(),
        Err(TooLarge { limit, .. }) => limit,
    }
}

/// The same of the entries of a map.
pub fn weigh_entries(entries: &Map<String, Value>) -> usize {
    let mut weighed = Budget::new(usize::MAX);
    match weighed.add_entries(entries) {
        Ok(()) => weighed.spent(),
        Err(TooLarge { limit, .. }) => limit,
    }
}

/// The same of a map of texts.
///
/// ```
/// use golib::budget::weigh_texts;
///
/// assert!(weigh_texts(&[("a".to_owned(), String::new())].into()) > 500);
/// ```
pub fn weigh_texts(texts: &BTreeMap<String, String>) -> usize {
    let mut weighed = Budget::new(usize::MAX);
    let texts = texts.iter().enumerate();
    let added = texts.map(|(length, (key, text))| {
        weighed.entry::<String, String>(length)?;
        weighed.text(key.len())?;
        weighed.text(text.len())
    });
    match added.collect::<Result<(), TooLarge>>() {
        Ok(()) => weighed.spent(),
        Err(TooLarge { limit, .. }) => limit,
    }
}

impl Budget {
    /// A value that is there already.
    ///
    /// # Errors
    /// With it, there is more than the limit.
    pub fn add(&mut self, value: &Value) -> Result<(), TooLarge> {
        match value {
            Value::String(text) => self.text(text.len()),
            Value::Array(items) => items.iter().enumerate().try_for_each(|(length, item)| {
                self.value(length)?;
                self.add(item)
            }),
            Value::Object(fields) => self.add_entries(fields),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    /// The entries of a map that is there already.
    ///
    /// # Errors
    /// With them, there is more than the limit.
    pub fn add_entries(&mut self, fields: &Map<String, Value>) -> Result<(), TooLarge> {
        let mut fields = fields.iter().enumerate();
        fields.try_for_each(|(length, (key, value))| {
            self.value_entry(length)?;
            self.text(key.len())?;
            self.add(value)
        })
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(48 << 20)
    }
}
