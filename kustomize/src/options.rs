//! How a kustomization is built.

use crate::loader::Limits;

/// The version of kustomize that is mirrored.
pub const VERSION: &str = "v5.8.1";

/// How a directory is built.
#[derive(Debug, Clone)]
pub struct Options {
    /// Without `sortOptions`, objects are put into kustomize's legacy order, as its command does; else they stay in the order
    /// they were read, as in Fleet.
    pub is_sorted: bool,
    /// Objects are what the printed text says, as `kustomize build` gives them; else what the build holds, as Fleet takes them. A
    /// number that a patch puts where a quoted text was is a text in the one and a number in the other.
    pub is_printed: bool,
    /// What the label of `managedByLabel` says.
    pub version: String,
    /// A file of the directory that comes before its kustomization's other resources, unless it is named there.
    pub first_resource: Option<String>,
    /// Limits of the build.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            is_sorted: true,
            is_printed: true,
            version: VERSION.to_owned(),
            first_resource: None,
            limits: Limits::default(),
        }
    }
}
