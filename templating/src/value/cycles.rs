//! Maps that contain themselves. `set $d "self" $d` makes a ring of references that counting never frees; whoever
//! renders for a long time must break such rings.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use super::Entries;

thread_local! {
    /// The maps that got a container put into them on this thread, while someone keeps track.
    static CHANGED: RefCell<Option<Vec<Weak<Entries>>>> = const { RefCell::new(None) };
}

/// Frees, when dropped, the maps of this thread that were made to contain themselves during its life.
///
/// It empties every map that was changed and is still referred to, so all values made during its life must be done
/// with by then: make it the first variable of the function that renders.
///
/// ```
/// use templating::Map;
/// use templating::value::CycleGuard;
///
/// let _guard = CycleGuard::new();
/// let map = Map::new();
/// map.insert("self", map.clone())?; // would never be freed
/// # Ok::<(), templating::Error>(())
/// ```
#[derive(Debug)]
pub struct CycleGuard {
    /// Inside another guard there is nothing to do.
    is_outermost: bool,
}

impl CycleGuard {
    /// Begins to keep track.
    #[expect(clippy::new_without_default, reason = "making one has an effect")]
    pub fn new() -> Self {
        let is_outermost = CHANGED.with_borrow_mut(|changed| {
            let is_outermost = changed.is_none();
            changed.get_or_insert_default();
            is_outermost
        });
        Self { is_outermost }
    }
}

impl Drop for CycleGuard {
    fn drop(&mut self) {
        if !self.is_outermost {
            return;
        }
        let changed = CHANGED.with_borrow_mut(Option::take).unwrap_or_default();
        for entries in changed {
            if let Some(entries) = entries.upgrade() {
                let content = std::mem::take(&mut *entries.0.borrow_mut());
                drop(content);
            }
        }
    }
}

/// Notes that a container was put into a map.
pub(super) fn changed(entries: &Rc<Entries>) {
    CHANGED.with_borrow_mut(|changed| {
        if let Some(changed) = changed {
            // A map that changes all the time is noted once per streak, not once per change.
            let known = changed
                .last()
                .is_some_and(|last| last.as_ptr() == Rc::as_ptr(entries));
            if !known {
                changed.push(Rc::downgrade(entries));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::Map;
    use super::*;

    #[test]
    fn rings_are_freed() {
        let guard = CycleGuard::new();
        let map = Map::new();
        map.insert("self", map.clone()).unwrap();
        let outer = map.clone();
        drop(map);
        drop(guard);
        assert!(outer.is_empty(), "the ring is broken");
    }

    #[test]
    fn no_cycle_is_broken_without_a_guard() {
        let map = Map::new();
        map.insert("child", Map::new()).unwrap();
        drop(CycleGuard::new());
        assert!(map.contains_key("child"));
    }
}
