//! Charts and bundles out of registries.

use reqwest::header::HeaderMap;
use tokio::time::Instant;

use super::access::Access;
use super::archive;
use super::cached::{Cached, FetchedAt, Key};
use super::echoed;
use super::error::FetchError;
use super::fetched::{Artifact, FetchedChart};
use super::fetcher::{Fetcher, Shared};
use super::oci::{self, Descriptor, NamedBy, Reference, Registry, Requested};
use super::safe_url::SafeUrl;

impl Shared {
    pub(super) async fn fetch_pulled(
        &self,
        reference: &Reference,
        version: &str,
        named_by: NamedBy<'_>,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<FetchedAt, FetchError> {
        let registry = Registry::new(&self.http, access, reference, named_by)?;
        let by_digest = reference.digest.is_some();
        // Fleet hands Helm the bundle's version; what an index says beside a digest is compared with nothing.
        let is_checked = matches!(named_by, NamedBy::Bundle);
        let name = match by_digest && !is_checked {
            // What was not compared is not handed out as if it was.
            true => format!("{reference} {version} listed"),
            false => format!("{reference} {version}"),
        };
        let key = (name, registry.access().fingerprint());
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
            None => {
                let pulled = self.pull(&registry, reference, version, is_checked, key);
                match pulled.await {
                    Err(error) => Cached::in_place_of(cached, error)?,
                    Ok(pulled) => pulled,
                }
            }
        };
        Ok(cached.fetched_at(by_digest))
    }

    async fn pull(
        &self,
        registry: &Registry<'_>,
        reference: &Reference,
        version: &str,
        is_checked: bool,
        key: Key,
    ) -> Result<Cached<FetchedChart>, FetchError> {
        let asked = Instant::now();
        match oci::requested(reference, version)? {
            Requested::Name(named) => {
                if is_checked {
                    oci::check_version(registry, &named, version).await?;
                }
                let pulled = self.pull_named(registry, named, version, key, asked);
                pulled.await
            }
            Requested::Constraint(constraint) => {
                let named = oci::resolve(registry, reference, &constraint).await?;
                let pulled = self.pull_named(registry, named, version, key, asked);
                // The tag is the registry's word.
                let named = |error| echoed::named(error, registry.base(), &registry.secrets());
                pulled.await.map_err(named)
            }
        }
    }

    async fn pull_named(
        &self,
        registry: &Registry<'_>,
        reference: Reference,
        version: &str,
        key: Key,
        asked: Instant,
    ) -> Result<Cached<FetchedChart>, FetchError> {
        let url = shown(&reference)?;
        let oci::Found {
            layer,
            named: manifest,
            manifests,
            ..
        } = oci::layer(registry, &reference).await?;
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
                let limit = self.settings.max_unpacked_bytes;
                let unpacked_bytes = archive::checked(bytes.clone(), &url, limit).await?;
                (bytes, unpacked_bytes)
            }
        };
        let version = reference.tag.unwrap_or_else(|| version.to_owned());
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
            url: shown(reference)?,
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
        let registry = Registry::new(&shared.http, access, reference, NamedBy::Bundle)?;
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

/// A reference as a URL.
fn shown(reference: &Reference) -> Result<SafeUrl, FetchError> {
    let reference = reference.to_string();
    SafeUrl::parse(&reference).map_err(|error| FetchError::InvalidReference {
        reference,
        problem: error.to_string(),
    })
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
        shown(&named).is_ok_and(|url| chart.url.to_string() == url.to_string())
            && named.digest.is_none_or(|digest| digest == manifest)
            && named.tag.is_none_or(|tag| tag == chart.version)
    }) && chart.is_intact()
        && oci::proves(manifests, manifest, &chart.digest)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use futures_util::FutureExt as _;
    use futures_util::future::{BoxFuture, ready};
    use serde_json::json;

    use super::super::error::TransportError;
    use super::super::{ChartRef, Settings, Transport};
    use super::*;

    /// A registry at whatever address, of one chart.
    struct Registry;

    impl Transport for Registry {
        fn get(
            &self,
            url: &url::Url,
            _: &HeaderMap,
        ) -> BoxFuture<'static, Result<http::Response<Bytes>, TransportError>> {
            let mut tar = vec![0; 1024];
            tar[257..262].copy_from_slice(b"ustar");
            let digest = <sha2::Sha256 as sha2::Digest>::digest(&tar);
            let digest = format!("sha256:{}", golib::hex::encode(&digest));
            let manifest = json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": {"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": digest},
                "layers": [{"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": digest}],
            });
            let body = match url.path().contains("/manifests/") {
                true => manifest.to_string().into(),
                false => Bytes::from(tar),
            };
            ready(Ok(http::Response::new(body))).boxed()
        }
    }

    #[tokio::test]
    async fn what_is_no_host_of_a_registry_is_an_error_and_no_panic() {
        let fetcher = Fetcher::over(Arc::new(Registry), Settings::default());
        let fetch = async |repo: &str| {
            let chart = ChartRef {
                repo: repo.to_owned(),
                version: "1.0.0".to_owned(),
                ..ChartRef::default()
            };
            fetcher.fetch(&chart, &Access::default()).await
        };
        assert!(fetch("oci://good.example/x/charts/web").await.is_ok());
        let refused = fetch("oci://evil.example\\x/charts/web").await;
        let error = refused.expect_err("its host is none").to_string();
        assert!(error.contains("not a host name"), "{error}");
        // Whoever puts a reference together: its fields are public.
        let made = Reference {
            registry: "evil.example\\x".to_owned(),
            ..Reference::parse("oci://good.example/web").expect("a reference")
        };
        assert!(shown(&made).is_err());
    }
}
