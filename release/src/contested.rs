//! Which objects of a release another one may have by now, though the last good revision has them. No I/O.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use objects::ObjectKey;

/// Tells which objects of a release another one is known to have by now: they are looked at before they are written. It is asked once the chart is
/// rendered, as somebody may have taken them while it was fetched, or waited for its turn. By default nobody has any.
#[derive(Clone, Default)]
pub struct Contested(Option<Arc<ContestedObjects>>);

type ContestedObjects = dyn Fn() -> Option<BTreeSet<ObjectKey>> + Send + Sync;

impl Contested {
    /// Those that `objects` gives; nothing where nobody knows, so that all are looked at.
    pub fn new(objects: impl Fn() -> Option<BTreeSet<ObjectKey>> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(objects)))
    }

    /// Those that are known now.
    pub(crate) fn now(&self) -> Option<BTreeSet<ObjectKey>> {
        let objects = self.0.as_deref();
        objects.map_or_else(|| Some(BTreeSet::new()), |objects| objects())
    }
}

impl fmt::Debug for Contested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contested").finish_non_exhaustive()
    }
}
