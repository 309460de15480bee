//! What others have in a namespace that a release is about to delete: it would go with it. No I/O.

use std::fmt;
use std::sync::Arc;

/// What others have in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupancy {
    /// Nothing that is known.
    Vacant,
    /// Releases that are about to go: the namespace goes after them.
    Leaving,
    /// Releases that stay, or that are about to come: it stays.
    Inhabited,
}

/// Tells what others have in a namespace. It is asked right before each deletion of one, as somebody may have come there since the release's
/// deploy or removal began. By default nobody is known.
#[derive(Clone, Default)]
pub struct Neighbours(Option<Arc<OccupancyOf>>);

type OccupancyOf = dyn Fn(&str) -> Occupancy + Send + Sync;

impl Neighbours {
    /// Neighbours of which `occupancy_of` knows, by the name of a namespace.
    pub fn new(occupancy_of: impl Fn(&str) -> Occupancy + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(occupancy_of)))
    }

    /// What there is in a namespace now.
    pub(crate) fn of(&self, namespace: &str) -> Occupancy {
        let occupancy_of = self.0.as_deref();
        occupancy_of.map_or(Occupancy::Vacant, |occupancy_of| occupancy_of(namespace))
    }
}

impl fmt::Debug for Neighbours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Neighbours").finish_non_exhaustive()
    }
}
