//! Values while they are merged, and why they cannot be.
//!
//! Helm merges Go maps in place, and below the first level a parent's globals and a child's are the
//! *same* maps: what a subchart's defaults add there is seen by its parent and siblings. A tree with
//! shared tables gives that for free.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use golib::budget::Allowance;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::chart::{Chart, File};
use crate::depth::{MAX_DEPTH, TooDeep};

/// Bytes of values that may still be made, about. What is merged is shared; what comes out of it is not, and may be many
/// times as large: a subchart's defaults once for each of its aliases, global values once for each chart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weight(usize);

/// What the values of a chart and its user may become together, in bytes.
const MERGED: usize = 48 << 20;

impl Weight {
    /// False if that is too much.
    fn spend(&mut self, bytes: usize) -> bool {
        self.0 = self.0.saturating_sub(bytes);
        self.0 > 0
    }

    fn entries(&mut self, entries: usize) -> bool {
        // Nodes of the standard map have room for eleven entries and hold six.
        let nodes = entries.div_ceil(6);
        self.spend(nodes * 11 * (size_of::<String>() + size_of::<Value>()))
    }

    /// False if there is no room for this value.
    pub(crate) fn value(&mut self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.spend(text.len()),
            Value::Array(items) => {
                self.spend(size_of_val(items.as_slice()))
                    && items.iter().all(|item| self.value(item))
            }
            Value::Object(map) => {
                self.entries(map.len())
                    && map
                        .iter()
                        .all(|(key, value)| self.spend(key.len()) && self.value(value))
            }
            _ => true,
        }
    }

    /// False if there is no room for one more copy of a chart and of the charts in it, and for what merging makes of each.
    pub(crate) fn chart(&mut self, chart: &Chart) -> bool {
        const MERGED: usize = 1 << 10;
        fn written(value: &impl Serialize) -> usize {
            serde_json::to_vec(value).map_or(usize::MAX, |text| text.len())
        }
        let files = chart.templates.iter().chain(&chart.files);
        let names: usize = files.map(|file| size_of::<File>() + file.name.len()).sum();
        self.spend(MERGED + size_of::<Chart>() + names)
            && self.spend(written(&chart.metadata))
            && self.spend(chart.lock.as_ref().map_or(0, written))
            && self.value(&chart.values)
            && chart.dependencies.iter().all(|chart| self.chart(chart))
    }

    /// False if there is no room for one more entry and the table it may be.
    pub(super) fn entry(&mut self, key: &str, node: &Node) -> bool {
        let inside = node.as_table().map_or(0, |table| table.0.borrow().len());
        self.spend(key.len() + size_of::<String>() + size_of::<Value>()) && self.entries(inside)
    }

    /// False if there is no room for what the table becomes.
    pub(super) fn table(&mut self, table: &Table) -> bool {
        let table = table.0.borrow();
        self.entries(table.len())
            && table.iter().all(|(key, node)| {
                self.spend(key.len())
                    && match node {
                        Node::Table(table) => self.table(table),
                        Node::Leaf(value) => self.value(value),
                    }
            })
    }
}

/// Limits on merging tables: on the work, and on the memory of the result.
#[derive(Debug)]
pub(crate) struct Effort {
    keys_left: usize,
    allowance: Allowance,
}

impl Effort {
    /// For a chart with all its subcharts: some seconds at most, a hundred times what large charts take.
    pub(crate) fn within(allowance: &Allowance) -> Self {
        Self {
            keys_left: 10_000_000,
            allowance: allowance.clone(),
        }
    }

    /// Memory that merged values may take.
    pub(crate) fn weight(&self) -> Weight {
        Weight(self.allowance.limit(MERGED))
    }

    /// The error for merged values that would take more.
    pub(crate) fn too_large(&self) -> CoalesceError {
        self.allowance.note_exceeded(MERGED);
        CoalesceError::TooLarge
    }

    /// Copies a value.
    ///
    /// # Errors
    /// That is too much.
    pub(super) fn copy(&mut self, value: &Value) -> Result<(), CoalesceError> {
        match value {
            Value::String(text) => self.spend(text.len() / 64, 0),
            Value::Array(items) => items.iter().try_for_each(|item| self.copy(item)),
            Value::Object(map) => {
                self.spend(map.len(), 0)?;
                map.values().try_for_each(|value| self.copy(value))
            }
            _ => Ok(()),
        }
    }

    /// Looks at so many keys of a table that lies in so many others.
    ///
    /// # Errors
    /// That is too many of either. What lies in itself has no end of them.
    pub(crate) fn spend(&mut self, keys: usize, level: usize) -> Result<(), CoalesceError> {
        if level > MAX_MERGED_DEPTH {
            return Err(TooDeep.into());
        }
        let left = self.keys_left.checked_sub(1 + keys);
        self.keys_left = left.ok_or(CoalesceError::TooMuchWork)?;
        Ok(())
    }
}

/// Levels of merged values: those of a chart's, below the names of the charts that it lies in.
const MAX_MERGED_DEPTH: usize = MAX_DEPTH + 100;

/// A table, or anything else; lists are never merged, so they are leaves. Cloning shares both.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Table(Table),
    Leaf(Rc<Value>),
}

/// A shared map from key to node.
#[derive(Debug, Clone, Default)]
pub(super) struct Table(Rc<RefCell<BTreeMap<String, Node>>>);

impl Node {
    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Leaf(value) if value.is_null())
    }

    pub(super) fn as_table(&self) -> Option<&Table> {
        match self {
            Self::Table(table) => Some(table),
            Self::Leaf(_) => None,
        }
    }

    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Table(table) => Value::Object(table.to_map()),
            Self::Leaf(value) => (**value).clone(),
        }
    }
}

impl From<&Value> for Node {
    fn from(value: &Value) -> Self {
        match value {
            Value::Object(map) => Self::Table(Table::from(map)),
            other => Self::Leaf(Rc::new(other.clone())),
        }
    }
}

impl From<&Map<String, Value>> for Table {
    fn from(map: &Map<String, Value>) -> Self {
        map.iter()
            .map(|(key, value)| (key.clone(), Node::from(value)))
            .collect()
    }
}

impl FromIterator<(String, Node)> for Table {
    fn from_iter<I: IntoIterator<Item = (String, Node)>>(entries: I) -> Self {
        Self(Rc::new(RefCell::new(entries.into_iter().collect())))
    }
}

impl Table {
    /// A deep copy of a chart's or user's values; anything but an object is an empty table.
    pub(super) fn copy_of(value: &Value) -> Self {
        value.as_object().map(Self::from).unwrap_or_default()
    }

    /// A new table with the same nodes: nested tables are shared.
    pub(super) fn shallow_copy(&self) -> Self {
        Self(Rc::new(RefCell::new(self.0.borrow().clone())))
    }

    pub(super) fn get(&self, key: &str) -> Option<Node> {
        self.0.borrow().get(key).cloned()
    }

    pub(super) fn insert(&self, key: impl Into<String>, node: Node) {
        self.0.borrow_mut().insert(key.into(), node);
    }

    pub(super) fn remove(&self, key: &str) {
        self.0.borrow_mut().remove(key);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// The entries as they are now; changing the table meanwhile is fine.
    pub(super) fn entries(&self) -> Vec<(String, Node)> {
        self.0
            .borrow()
            .iter()
            .map(|(key, node)| (key.clone(), node.clone()))
            .collect()
    }

    /// Removes null entries here and in all tables below.
    pub(super) fn remove_nulls(&self) {
        self.0.borrow_mut().retain(|_, node| !node.is_null());
        for node in self.0.borrow().values() {
            if let Node::Table(table) = node {
                table.remove_nulls();
            }
        }
    }

    /// Walks a path of keys; on the way down everything must be a table.
    pub(super) fn table_at<'p>(&self, path: &'p str) -> Result<Self, &'p str> {
        let mut table = self.clone();
        for key in path.split('.') {
            let next = table.get(key);
            table = next.as_ref().and_then(Node::as_table).cloned().ok_or(key)?;
        }
        Ok(table)
    }

    /// Levels of tables, lists and maps, itself among them.
    ///
    /// # Errors
    /// There are more than merged values may have, or no end as a table lies in itself.
    pub(super) fn depth(&self, effort: &mut Effort) -> Result<usize, CoalesceError> {
        self.depth_below(0, &mut HashMap::new(), effort)
    }

    /// `known` has what each table came to, and nothing of one that is being walked.
    fn depth_below(
        &self,
        above: usize,
        known: &mut HashMap<*const RefCell<BTreeMap<String, Node>>, Option<usize>>,
        effort: &mut Effort,
    ) -> Result<usize, CoalesceError> {
        let place = Rc::as_ptr(&self.0);
        let depth = match known.get(&place) {
            Some(known) => (*known).ok_or(TooDeep)?,
            None => {
                effort.spend(self.0.borrow().len(), above)?;
                known.insert(place, None);
                let mut inside = 0;
                for node in self.0.borrow().values() {
                    inside = inside.max(match node {
                        Node::Table(table) => table.depth_below(above + 1, known, effort)?,
                        Node::Leaf(value) => depth_of(value),
                    });
                }
                known.insert(place, Some(1 + inside));
                1 + inside
            }
        };
        match above + depth <= MAX_MERGED_DEPTH {
            true => Ok(depth),
            false => Err(TooDeep.into()),
        }
    }

    /// Empties it and every table in it: what lies in itself would never be dropped, and what lies deep not without a deep stack.
    pub(super) fn take_apart(&self) {
        let mut tables = vec![self.clone()];
        while let Some(table) = tables.pop() {
            let entries = std::mem::take(&mut *table.0.borrow_mut());
            tables.extend(entries.into_values().filter_map(|node| match node {
                Node::Table(table) => Some(table),
                Node::Leaf(_) => None,
            }));
        }
    }

    pub(super) fn to_map(&self) -> Map<String, Value> {
        self.0
            .borrow()
            .iter()
            .map(|(key, node)| (key.clone(), node.to_value()))
            .collect()
    }

    pub(super) fn to_value(&self) -> Value {
        Value::Object(self.to_map())
    }
}

/// Levels of a value that is no deeper than [`MAX_DEPTH`](crate::depth::MAX_DEPTH).
fn depth_of(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth_of).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth_of).max().unwrap_or(0),
        _ => 0,
    }
}

/// Values that cannot be merged. The text is Helm's.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CoalesceError {
    /// Something that is no table stands where a subchart's values belong.
    #[error("type mismatch on {chart}: {}", golib::json::go_text_as(.value, 't'))]
    SubchartNotTable {
        /// The subchart's name or alias.
        chart: String,
        /// The value that stands there.
        value: Value,
    },
    /// Aliases and global values multiply what there is.
    #[error("values are too large: merged they take more than 48 MiB")]
    TooLarge,
    /// Merged they nest too deep: `import-values`, or a subchart that is called `global`, may even put a table into itself.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
    /// Imports and aliases merge the same tables again and again.
    #[error("values are too large: merging them looks at more than ten million keys")]
    TooMuchWork,
}
