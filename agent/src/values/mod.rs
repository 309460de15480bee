//! The values a bundle is deployed with: where they come from, and how `${ }` in them is filled in.
//!
//! Everything here is pure: objects go in as they were read. Stored values are checked against their
//! hash ([`stored`]), `valuesFrom` entries are merged on top ([`references`], [`parse`], [`merge_maps`](chart::values::merge_maps)),
//! and inline values are templated with the facts of the cluster ([`preprocess`]). Mirrors
//! `pkg/helmvalues`, `getValues` (`internal/helmdeployer/install.go`) and `preprocessHelmValues`
//! (`internal/cmd/controller/target/builder.go`).

mod cluster;
mod coordinates;
mod from;
mod gathered;
mod inline;
mod local;
mod mode;
mod stored;
mod template;

use templating::{Host, Reads};

use crate::api::{BundleDeployment, HelmOptions};

pub use cluster::{ClusterFacts, FactsError};
pub use coordinates::{coordinates, has_templates};
pub use from::{MAX_DECODED, Reference, ReferenceKind, ValuesFromError, budget, parse, references};
pub use gathered::{AGENT_MAP, Answer, Gathered, LOCAL_FACTS_KEY, Source, facts_of};
pub use inline::{Values, inline};
pub use local::{LocalFact, LocalState, NodeState, UnknownLocalFact};
pub use mode::options_to_fill;
pub use stored::{HashMismatch, stored};
pub use template::{TemplateError, preprocess};

/// A bundle with its coordinates filled in, and the values that it gets where those are filled in too (`helm`). All templates share one set
/// of limits.
///
/// # Errors
/// [`TemplateError`]: one bad template spoils all of it.
pub fn fill(
    bundle: &BundleDeployment,
    helm: Option<&HelmOptions>,
    facts: &ClusterFacts,
    host: &dyn Host,
) -> Result<(BundleDeployment, Option<Values>), TemplateError> {
    let templates = template::Templates::new(facts, host);
    let filled = coordinates::coordinates_with(&templates, bundle)?;
    let values = template::preprocess_with(&templates, helm, facts, false)?;
    Ok((filled, values))
}

/// The facts that filling in a bundle may read: its coordinates, and `helm` with its values where those are filled
/// in too.
pub fn reads(bundle: &BundleDeployment, helm: Option<&HelmOptions>) -> Reads {
    let mut reads = coordinates::reads(bundle);
    if let Some(helm) = helm {
        reads.extend(template::reads(helm));
    }
    reads
}
