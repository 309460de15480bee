//! How much memory the lists and maps of this thread hold at the moment. Values never leave their thread, so a count per
//! thread tells what a render holds on to, whatever it copied and dropped on the way.

use std::cell::Cell;

thread_local! {
    static LIVE: Cell<u64> = const { Cell::new(0) };
}

/// Bytes of one element of a list.
pub(crate) const ELEMENT: u64 = size_of::<super::Value>() as u64;
/// Bytes of one entry of a large map, with its key, about.
pub(crate) const ENTRY: u64 = 96;
/// Bytes of an empty list or map.
const CONTAINER: u64 = 64;
/// A map's nodes have room for eleven entries, however few there are; filled in order, they are left with six.
const NODE_ENTRIES: u64 = 11;
const NODE_FILLED: u64 = 6;
const NODE: u64 = NODE_ENTRIES * (ELEMENT + size_of::<super::Str>() as u64) + 32;

/// Bytes of a map's entries.
pub(super) fn entries(count: usize) -> u64 {
    (count as u64).div_ceil(NODE_FILLED) * NODE
}

/// Bytes of all lists and maps alive on this thread.
pub(crate) fn live() -> u64 {
    LIVE.get()
}

/// The share of one list or map; it counts until it is dropped.
pub(super) struct Held(Cell<u64>);

impl Held {
    pub(super) fn new(bytes: u64) -> Self {
        let bytes = bytes + CONTAINER;
        LIVE.set(LIVE.get() + bytes);
        Self(Cell::new(bytes))
    }

    /// The content has another size now.
    pub(super) fn set(&self, bytes: u64) {
        let bytes = bytes + CONTAINER;
        LIVE.set((LIVE.get() + bytes).saturating_sub(self.0.replace(bytes)));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The thread may be ending, and its count with it.
        let _ = LIVE.try_with(|live| live.set(live.get().saturating_sub(self.0.get())));
    }
}
