//! How much memory the lists, maps and larger texts of this thread hold at the moment. Values never leave their thread, so a count per
//! thread tells what a render holds on to, whatever it copied and dropped on the way.

use std::cell::Cell;

thread_local! {
    static LIVE: Cell<u64> = const { Cell::new(0) };
}

/// Bytes of an empty list or map.
const CONTAINER: u64 = 64;

/// Bytes of all that is counted and alive on this thread.
pub(crate) fn live() -> u64 {
    LIVE.get()
}

/// The share of one list, map or text; it counts until it is dropped.
pub(crate) struct Held(Cell<u64>);

impl Held {
    /// A list or map whose content takes so many bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        let bytes = bytes + CONTAINER;
        LIVE.set(LIVE.get() + bytes);
        Self(Cell::new(bytes))
    }

    /// The content has another size now.
    pub(crate) fn set(&self, bytes: u64) {
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
