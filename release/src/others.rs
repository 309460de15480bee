//! Other releases' share in this one: objects that they may have by now, though its last good revision has them, and objects in a namespace
//! or of a kind that it is about to delete, which would go with it; and whether they want a release after all that is about to go. No I/O.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use objects::{Object, ObjectKey};

/// Knows which objects of a release another one has by now: they are read before they are written. It is asked once the chart is
/// rendered, as somebody may have taken them while it was fetched, or waited for its turn. By default nobody has any.
#[derive(Clone, Default)]
pub struct ForeignObjects(Option<Arc<ListForeign>>);

type ListForeign = dyn Fn() -> Option<BTreeSet<ObjectKey>> + Send + Sync;

impl ForeignObjects {
    /// The objects that `objects` gives; `None` where nobody knows, so that all are read before they are written.
    pub fn new(objects: impl Fn() -> Option<BTreeSet<ObjectKey>> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(objects)))
    }

    /// The foreign objects that are known now.
    pub(crate) fn now(&self) -> Option<BTreeSet<ObjectKey>> {
        let objects = self.0.as_deref();
        objects.map_or_else(|| Some(BTreeSet::new()), |objects| objects())
    }
}

impl fmt::Debug for ForeignObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignObjects").finish_non_exhaustive()
    }
}

/// Knows whether a removal that has begun is to be aborted. It is asked after the hooks that come before it, which take their time, and before the first
/// object goes, or the first record where objects stay. By default none is.
#[derive(Clone, Default)]
pub struct AbortCheck(Option<Arc<IsAborted>>);

type IsAborted = dyn Fn() -> bool + Send + Sync;

impl AbortCheck {
    /// Where `is_aborted` says so.
    pub fn new(is_aborted: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_aborted)))
    }

    /// Whether the removal is aborted by now.
    pub(crate) fn now(&self) -> bool {
        self.0.as_deref().is_some_and(|is_aborted| is_aborted())
    }
}

impl fmt::Debug for AbortCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortCheck").finish_non_exhaustive()
    }
}

/// Says once more that a removal that has begun is to be. It is asked when hooks have run that come before it, for as long as those take, and before the
/// first object goes: who answers may ask a server. By default nobody is asked.
#[derive(Clone, Copy, Default)]
pub struct Confirmation<'a>(Option<&'a IsConfirmed<'a>>);

type IsConfirmed<'a> = dyn Fn() -> BoxFuture<'a, bool> + Send + Sync + 'a;

impl<'a> Confirmation<'a> {
    /// Where `is_confirmed` says so: not where the release is wanted by now, nor where that is unknown.
    pub fn new(is_confirmed: &'a IsConfirmed<'a>) -> Self {
        Self(Some(is_confirmed))
    }

    /// Whether the removal is confirmed by now.
    pub(crate) async fn now(self) -> bool {
        match self.0 {
            Some(is_confirmed) => is_confirmed().await,
            None => true,
        }
    }
}

impl fmt::Debug for Confirmation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Confirmation").finish_non_exhaustive()
    }
}

/// An object with which goes all that is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container<'a> {
    /// The namespace of this name.
    Namespace(&'a str),
    /// The definition of this name, `<plural>.<group>`: every object of its kind is in it.
    Definition(&'a str),
}

impl<'a> Container<'a> {
    /// What an object is, as one that others may be in.
    pub(crate) fn of(object: &'a Object) -> Option<Self> {
        match object {
            _ if object.is_namespace() => Some(Self::Namespace(&object.name)),
            _ if object.is_crd() => Some(Self::Definition(&object.name)),
            _ => None,
        }
    }

    /// The object's name: a definition's has a dot, and that of a namespace has none.
    pub fn name(self) -> &'a str {
        match self {
            Self::Namespace(name) | Self::Definition(name) => name,
        }
    }
}

/// The usage of a namespace or definition by other releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerUsage {
    /// No other release is known there.
    Unused,
    /// Releases that are about to go: the container goes after them.
    Draining,
    /// Releases that stay, or that are about to come: it stays.
    InUse,
}

/// Why a namespace or definition is left that was to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyLeft {
    /// Others are in it, or are about to come.
    Others,
    /// Objects in it cannot be read, for so long that nobody waits for it any more: they may ask to be kept.
    Unread,
}

/// Knows what others have in a namespace, or of a definition's kind. It is asked right before each deletion of one, as somebody may have come there since
/// the release's deploy or removal began. By default nobody is known.
#[derive(Clone, Default)]
pub struct OtherReleases {
    usage_of: Option<Arc<UsageOf>>,
    on_left: Option<Arc<OnLeft>>,
}

type UsageOf = dyn Fn(Container<'_>) -> ContainerUsage + Send + Sync;

type OnLeft = dyn Fn(Container<'_>, WhyLeft) + Send + Sync;

impl OtherReleases {
    /// The releases of which `usage_of` knows.
    pub fn new(usage_of: impl Fn(Container<'_>) -> ContainerUsage + Send + Sync + 'static) -> Self {
        Self {
            usage_of: Some(Arc::new(usage_of)),
            on_left: None,
        }
    }

    /// The same, where `on_left` is told of each container that would have been deleted and was left, and why.
    #[must_use]
    pub fn reporting(
        self,
        on_left: impl Fn(Container<'_>, WhyLeft) + Send + Sync + 'static,
    ) -> Self {
        Self {
            on_left: Some(Arc::new(on_left)),
            ..self
        }
    }

    /// The usage of a container now.
    pub(crate) fn of(&self, container: Container<'_>) -> ContainerUsage {
        let usage_of = self.usage_of.as_deref();
        usage_of.map_or(ContainerUsage::Unused, |usage_of| usage_of(container))
    }

    /// An object that was to be deleted was left.
    pub(crate) fn left(&self, object: &Object, why: WhyLeft) {
        if let (Some(on_left), Some(container)) = (&self.on_left, Container::of(object)) {
            on_left(container, why);
        }
    }
}

impl fmt::Debug for OtherReleases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtherReleases").finish_non_exhaustive()
    }
}
