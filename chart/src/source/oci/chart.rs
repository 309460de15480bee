//! Finds the artifact that is a Helm chart, and the tag of a version.
//!
//! Mirrors Helm's `pkg/registry` (`client.go`, `tag.go`, `constants.go`).

use bytes::Bytes;
use golib::semver::{Constraint, Version};

use super::super::echoed;
use super::super::error::FetchError;
use super::super::index::{LookupError, NEWEST_SHOWN};
use super::reference::{Reference, is_digest, version};
use super::registry::{Descriptor, Manifest, Registry, is_of};

const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const LEGACY_LAYER: &str = "application/tar+gzip";
const PROVENANCE_LAYER: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";
/// An index of indexes is not a chart.
const MAX_INDEX_DEPTH: usize = 2;
const MAX_INDEX_MANIFESTS: usize = 64;

/// What a version says about a repository.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::source) enum Requested {
    /// Exactly this.
    Name(Reference),
    /// The best tag for a constraint (empty: the newest release).
    Constraint(String),
}

/// Decides without asking the registry (Helm's `ValidateReference`).
///
/// A version that parses, however leniently, is the tag itself: `1.2` asks for the tag `1.2`.
pub(in crate::source) fn requested(
    reference: &Reference,
    version: &str,
) -> Result<Requested, FetchError> {
    if let Some(tag) = &reference.tag
        && !version.is_empty()
        && tag != version
    {
        return Err(FetchError::InvalidReference {
            reference: reference.to_string(),
            problem: format!("chart reference and version mismatch: {version} is not {tag}"),
        });
    }
    if reference.digest.is_some() {
        return Ok(Requested::Name(reference.clone()));
    }
    let version = match (&reference.tag, version) {
        (Some(tag), "") => tag,
        (_, version) => version,
    };
    match Version::parse(version) {
        Ok(_) => reference.with_tag(version).map(Requested::Name),
        Err(_) => Ok(Requested::Constraint(version.to_owned())),
    }
}

/// The tags that are versions, as versions, newest first (Helm's `Tags`); builds of one version as Go's `sort.Sort` leaves them.
pub(in crate::source) fn versions(tags: &[String]) -> Vec<String> {
    let mut versions: Vec<Version> = tags.iter().filter_map(|tag| version(tag)).collect();
    golib::sort::sort(&mut versions, |a, b| b < a);
    versions.iter().map(ToString::to_string).collect()
}

/// Picks from tags, newest first, as a registry's are sorted (Helm's `GetTagMatchingVersionOrConstraint`).
///
/// ```
/// let tags = ["2.0.0", "1.4.2", "1.0.0"].map(str::to_owned);
/// assert_eq!(chart::source::pick_tag(&tags, "^1")?, "1.4.2");
/// # Ok::<(), chart::source::LookupError>(())
/// ```
///
/// # Errors
/// When the constraint cannot be parsed, or nothing satisfies it.
pub fn pick(tags: &[String], version: &str) -> Result<String, LookupError> {
    if !version.is_empty() && tags.iter().any(|tag| tag == version) {
        return Ok(version.to_owned());
    }
    let constraint = if version.is_empty() { "*" } else { version };
    let constraint = Constraint::parse(constraint).map_err(|error| LookupError::Constraint {
        text: error.to_string(),
    })?;
    let fits = |tag: &&String| Version::parse(tag.as_str()).is_ok_and(|v| constraint.check(&v));
    tags.iter()
        .find(fits)
        .cloned()
        .ok_or_else(|| LookupError::Tag {
            version: version.to_owned(),
            newest: tags.iter().take(NEWEST_SHOWN).cloned().collect(),
        })
}

/// Whether a registry still has the digest under the version that is asked for with it. A version that is no tag there says nothing, nor
/// does an error: what is pulled is named by the digest (Helm's `ValidateReference`). Helm looks for a version as it is written, and no tag
/// has a `+`.
pub(in crate::source) async fn check_version(
    registry: &Registry<'_>,
    reference: &Reference,
    version: &str,
) -> Result<(), FetchError> {
    let version = match (&reference.tag, version) {
        (Some(tag), "") => tag,
        (_, version) if version.contains('+') => return Ok(()),
        (_, version) => version,
    };
    let (Some(digest), Ok(tagged)) = (&reference.digest, reference.with_tag(version)) else {
        return Ok(());
    };
    match registry.manifest(&tagged.wire_name()).await {
        Ok(manifest) if manifest.digest != *digest => Err(FetchError::InvalidReference {
            reference: reference.to_string(),
            problem: format!(
                "chart reference digest mismatch: {} is not {digest}",
                manifest.digest
            ),
        }),
        _ => Ok(()),
    }
}

/// Lists, picks, and names the tag.
pub(in crate::source) async fn resolve(
    registry: &Registry<'_>,
    reference: &Reference,
    constraint: &str,
) -> Result<Reference, FetchError> {
    let not_found = |lookup| FetchError::NotFound {
        location: reference.to_string(),
        lookup: echoed::lookup(lookup, &registry.secrets()),
    };
    let tags = match registry.tags().await {
        Ok(tags) => versions(&tags),
        Err(mut error) => {
            if let FetchError::Registry {
                status: 404,
                message,
                ..
            } = &mut error
            {
                let missing = format!(": repository {:?} not found", reference.repository);
                *message = format!("{missing} in the registry{message}");
            }
            return Err(error);
        }
    };
    if tags.is_empty() {
        let repository = reference.to_string();
        return Err(not_found(LookupError::NoTags { repository }));
    }
    reference.with_tag(&pick(&tags, constraint).map_err(not_found)?)
}

/// A chart in a registry.
pub(in crate::source) struct Found {
    /// The chart's archive.
    pub(in crate::source) layer: Descriptor,
    /// The chart's provenance file, if it was pushed with one.
    pub(in crate::source) provenance: Option<Descriptor>,
    /// Digest of what the reference names.
    pub(in crate::source) named: String,
    /// The manifests from the reference down to the one of the archive.
    pub(in crate::source) manifests: Vec<Bytes>,
}

/// Whether manifests lead from the digest that something has to the archive of a chart.
pub(in crate::source) fn proves(manifests: &[String], named: &str, archive: &str) -> bool {
    let mut named = vec![named.to_owned()];
    for (at, text) in manifests.iter().enumerate() {
        let is_named = named.iter().any(|digest| is_of(digest, text.as_bytes()));
        let Ok(manifest) = serde_json::from_str::<Manifest>(text) else {
            return false;
        };
        if !is_named {
            return false;
        }
        if at + 1 == manifests.len() {
            return find(&manifest).is_ok_and(|layer| layer.digest == archive);
        }
        let inner = manifest.manifests.into_iter();
        named = inner.map(|descriptor| descriptor.digest).collect();
    }
    false
}

/// The chart of an artifact; an index is followed to the first manifest that has one.
pub(in crate::source) async fn layer(
    registry: &Registry<'_>,
    reference: &Reference,
) -> Result<Found, FetchError> {
    let mut waiting = vec![(reference.wire_name(), Vec::new())];
    let mut seen = 0;
    let mut named = None;
    let mut last = None;
    while let Some((name, mut manifests)) = waiting.pop() {
        let manifest = registry.manifest(&name).await?;
        seen += 1;
        let digest = named.get_or_insert_with(|| manifest.digest.clone());
        let depth = manifests.len();
        manifests.push(manifest.bytes.clone());
        if manifest.is_index() && depth < MAX_INDEX_DEPTH {
            let room = MAX_INDEX_MANIFESTS.saturating_sub(seen + waiting.len());
            // A tag in a digest's place would be whatever it is now.
            let inner = manifest.manifests.into_iter();
            let inner = inner.filter(|one| is_digest(&one.digest)).take(room);
            let at = waiting.len();
            waiting.extend(inner.map(|descriptor| (descriptor.digest, manifests.clone())));
            waiting[at..].reverse();
            continue;
        }
        match find(&manifest) {
            Ok(layer) => {
                let mut layers = manifest.layers.iter();
                return Ok(Found {
                    layer: layer.clone(),
                    provenance: layers
                        .rfind(|layer| layer.media_type == PROVENANCE_LAYER)
                        .cloned(),
                    named: digest.clone(),
                    manifests,
                });
            }
            Err(problem) => last = Some(problem),
        }
    }
    let problem = last.unwrap_or_else(|| "the index names no manifest".to_owned());
    Err(FetchError::Artifact {
        reference: reference.to_string(),
        problem,
    })
}

/// Helm's checks, in its words; of several layers the last one counts.
fn find(manifest: &Manifest) -> Result<&Descriptor, String> {
    let named = std::iter::once(&manifest.config).filter(|config| !config.digest.is_empty());
    let descriptors: Vec<_> = named.chain(&manifest.layers).collect();
    if descriptors.len() < 2 {
        return Err(format!(
            "manifest does not contain minimum number of descriptors (2), descriptors found: {}",
            descriptors.len()
        ));
    }
    if !descriptors
        .iter()
        .any(|descriptor| descriptor.media_type == CONFIG)
    {
        return Err(format!("could not load config with mediatype {CONFIG}"));
    }
    let layer = manifest
        .layers
        .iter()
        .rfind(|layer| layer.media_type == LAYER || layer.media_type == LEGACY_LAYER);
    layer.ok_or_else(|| format!("manifest does not contain a layer with mediatype {LAYER}"))
}
