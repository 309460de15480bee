//! Charts and bundles out of registries.

use reqwest::header::HeaderMap;
use tokio::time::Instant;

use super::access::Access;
use super::archive;
use super::cached::{Cached, FetchedAt, Key};
use super::error::FetchError;
use super::fetched::{Artifact, FetchedChart};
use super::fetcher::{Fetcher, Shared};
use super::oci::{self, Descriptor, Reference, Registry, Requested};
use super::safe_url::SafeUrl;

impl Shared {
    pub(super) async fn fetch_pulled(
        &self,
        reference: &Reference,
        version: &str,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<FetchedAt, FetchError> {
        let registry = Registry::new(&self.http, access, reference)?;
        let name = format!("{reference} {version}");
        let key = (name, registry.access().fingerprint());
        let by_digest = reference.digest.is_some();
        let asked_for = reference.clone();
        let asked_version = version.to_owned();
        let is_sound = move |chart: &FetchedChart, manifests: &[String]| {
            is_pulled(&asked_for, &asked_version, chart, manifests)
        };
        let cached = self.cached_chart(&key, is_sound).await;
        let is_fresh =
            |cached: &Cached<_>| by_digest || cached.is_fresh(self.settings.fresh_for, since);
        let cached = match cached.clone().filter(is_fresh) {
            Some(fresh) => fresh,
            None => match self.pull(&registry, reference, version, key).await {
                Err(error) => Cached::in_place_of(cached, error)?,
                Ok(pulled) => pulled,
            },
        };
        Ok(cached.fetched_at(by_digest))
    }

    async fn pull(
        &self,
        registry: &Registry<'_>,
        reference: &Reference,
        version: &str,
        key: Key,
    ) -> Result<Cached<FetchedChart>, FetchError> {
        let asked = Instant::now();
        let named = match oci::requested(reference, version)? {
            Requested::Name(named) => named,
            Requested::Constraint(constraint) => {
                oci::resolve(registry, reference, &constraint).await?
            }
        };
        let oci::Found {
            layer,
            named: manifest,
            manifests,
            ..
        } = oci::layer(registry, &named).await?;
        let blob = (format!("{} {}", reference.registry, layer.digest), key.1);
        let digest = layer.digest.clone();
        let is_sound =
            move |chart: &FetchedChart, _: &[String]| chart.digest == digest && chart.is_intact();
        let (bytes, unpacked_bytes) = match self.cached_chart(&blob, is_sound).await {
            Some(cached) => (cached.value.bytes, cached.value.unpacked_bytes),
            None => {
                let bytes = registry
                    .blob(&layer, self.settings.max_archive_bytes)
                    .await?;
                archive::checked(bytes, &shown(&named), self.settings.max_unpacked_bytes).await?
            }
        };
        let version = named.tag.clone().unwrap_or_else(|| version.to_owned());
        let url = shown(&named);
        let chart = FetchedChart {
            bytes,
            unpacked_bytes,
            version,
            digest: layer.digest,
            manifest: Some(manifest),
            url,
            is_stale: false,
        };
        let cached = Cached::new(chart, &HeaderMap::new(), asked);
        for key in [key, blob] {
            // The bytes are shared: counting them twice errs on the safe side.
            self.keep_chart(key, &cached, &manifests).await;
        }
        Ok(cached)
    }

    async fn download_layer(
        &self,
        registry: &Registry<'_>,
        reference: &Reference,
        id: &str,
        key: &Key,
    ) -> Result<Cached<FetchedChart>, FetchError> {
        let asked = Instant::now();
        // The rest of the manifest is dropped while the layer comes.
        let (layers, named) = {
            let manifest = registry.manifest(&reference.wire_name()).await?;
            (manifest.layers, manifest.digest)
        };
        let artifact = |problem: String| FetchError::Artifact {
            reference: reference.to_string(),
            problem,
        };
        let found = layers.len();
        let Ok([layer]) = <[Descriptor; 1]>::try_from(layers) else {
            return Err(artifact(format!(
                "expected 1 layer in OCI manifest, {found} found"
            )));
        };
        if layer.annotations.len() != 1 {
            return Err(artifact(format!(
                "expecting 1 Annotation in layer descriptor. Found {}",
                layer.annotations.len()
            )));
        }
        if layer.annotations.get(oci::ID) != Some(id) {
            let problem = "could not find expected id in Descriptor's annotations";
            return Err(artifact(problem.to_owned()));
        }
        let blob = (
            format!("artifact {} {}", reference.registry, layer.digest),
            key.1,
        );
        let digest = layer.digest.clone();
        let is_sound = move |found: &FetchedChart, _: &[String]| oci::is_of(&digest, &found.bytes);
        let bytes = match self.cached_chart(&blob, is_sound).await {
            Some(cached) => cached.value.bytes,
            None => {
                let limit = self.settings.max_archive_bytes;
                registry.blob(&layer, limit).await?
            }
        };
        let chart = FetchedChart {
            bytes,
            unpacked_bytes: 0,
            version: String::new(),
            digest: named,
            manifest: None,
            url: shown(reference),
            is_stale: false,
        };
        let cached = Cached::new(chart, &HeaderMap::new(), asked);
        for key in [key.clone(), blob] {
            self.keep_chart(key, &cached, &[]).await;
        }
        Ok(cached)
    }
}

impl Fetcher {
    /// Gets the single layer of an artifact whose only annotation `id` is `id`, as Fleet stores
    /// bundles.
    ///
    /// ```no_run
    /// # async fn example(fetcher: chart::source::Fetcher) -> Result<(), chart::source::FetchError> {
    /// use chart::source::{Access, Reference};
    ///
    /// let bundle = Reference::parse("oci://registry.example/fleet/s-1234:latest")?;
    /// let artifact = fetcher.layer(&bundle, "s-1234", &Access::default()).await?;
    /// println!("{}: {} bytes", artifact.digest, artifact.bytes.len());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`FetchError::Artifact`] with Fleet's texts when it is shaped differently.
    pub async fn layer(
        &self,
        reference: &Reference,
        id: &str,
        access: &Access,
    ) -> Result<Artifact, FetchError> {
        let shared = &self.shared;
        let registry = Registry::new(&shared.http, access, reference)?;
        let key = (
            format!("artifact {reference} {id}"),
            registry.access().fingerprint(),
        );
        let found = match shared.download_layer(&registry, reference, id, &key).await {
            Err(error) if error.is_out_of_reach() => {
                // The manifest ID is a digest of the bundle's files, which is checked.
                Cached::in_place_of(shared.cached_chart(&key, |_, _| true).await, error)?
            }
            found => found?,
        };
        Ok(Artifact {
            bytes: found.value.bytes,
            digest: found.value.digest,
        })
    }
}

/// A reference as a URL; references are checked to be hosts and paths.
fn shown(reference: &Reference) -> SafeUrl {
    SafeUrl::parse(&reference.to_string()).expect("a reference is a valid URL")
}

/// Whether what a note says of a chart that was pulled as `reference` and `version` holds: which manifest names the archive is proven by
/// its bytes. Which version a constraint meant, and what a tag was, cannot be proven.
fn is_pulled(
    reference: &Reference,
    version: &str,
    chart: &FetchedChart,
    manifests: &[String],
) -> bool {
    let named = match oci::requested(reference, version) {
        Ok(Requested::Name(named)) => Ok(named),
        _ => reference.with_tag(&chart.version),
    };
    let manifest = chart.manifest.as_deref().unwrap_or_default();
    named.is_ok_and(|named| {
        chart.url.to_string() == shown(&named).to_string()
            && named.digest.is_none_or(|digest| digest == manifest)
            && named.tag.is_none_or(|tag| tag == chart.version)
    }) && chart.is_intact()
        && oci::proves(manifests, manifest, &chart.digest)
}
