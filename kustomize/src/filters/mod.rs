//! What the transformers do to one object's fields.

pub(crate) mod fieldspec;
pub(crate) mod imagetag;
pub(crate) mod nameref;
pub(crate) mod namespace;
pub(crate) mod refvar;
pub(crate) mod replacement;
