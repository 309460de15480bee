//! Memory of values, about: lists and maps are counted by it.

use super::{Str, Value};

/// Bytes of one element of a list.
pub(crate) const ELEMENT: u64 = size_of::<Value>() as u64;
/// Bytes of one entry of a large map, with its key, about.
pub(crate) const ENTRY: u64 = 96;
/// A map's nodes have room for eleven entries, however few there are; filled in order, they are left with six.
const NODE_ENTRIES: u64 = 11;
const NODE_FILLED: u64 = 6;
const NODE: u64 = NODE_ENTRIES * (ELEMENT + size_of::<Str>() as u64) + 32;

/// Bytes of a map's entries.
pub(super) fn entries(count: usize) -> u64 {
    (count as u64).div_ceil(NODE_FILLED) * NODE
}
