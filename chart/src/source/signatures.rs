//! Finds the provenance file of a chart and its signatures in the registry. Nothing of that is checked here.
//!
//! Mirrors where `helm pull --verify` and `cosign verify` look. Bounded: anybody with push access may attach as much as they like.

use std::collections::BTreeMap;

use bytes::Bytes;
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};

use super::access::Access;
use super::disk::{Disk, on_disk};
use super::error::FetchError;
use super::fetched::{Attached, ChartSignatures, FetchedChart, SignatureKinds};
use super::fetcher::{Fetcher, Shared};
use super::http::{Request, authorize};
use super::oci::{self, Descriptor, NamedBy, Reference, Registry};
use super::reference::{ChartRef, Location};
use super::safe_url::SafeUrl;

/// Signatures of one chart that are fetched, each way.
const MAX_SIGNATURES: usize = 200;
/// Largest signature or provenance file, and all of one chart, in bytes.
const MAX_BYTES: u64 = 1 << 20;
const MAX_ALL_BYTES: u64 = 8 << 20;

const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
/// What `cosign sign` says that its bundle states.
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";

/// Kind of the notes on disk.
const NOTE: &str = "vouchers";

/// The provenance file and signatures as kept on disk: all of them are texts.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    provenance: Option<String>,
    attached: Vec<(String, BTreeMap<String, String>)>,
    bundles: Vec<String>,
    left_out: usize,
}

impl Note {
    /// `None` where something is not text: no signer writes that, and it is not kept.
    fn of(found: &ChartSignatures) -> Option<Self> {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).ok();
        let provenance = match &found.provenance {
            Some(file) => Some(text(file)?),
            None => None,
        };
        let attached = found.attached.iter();
        let attached = attached.map(|one| Some((text(&one.payload)?, one.annotations.clone())));
        Some(Self {
            provenance,
            attached: attached.collect::<Option<_>>()?,
            bundles: found.bundles.iter().map(text).collect::<Option<_>>()?,
            left_out: found.left_out,
        })
    }
}

impl From<Note> for ChartSignatures {
    fn from(note: Note) -> Self {
        let attached = note.attached.into_iter();
        Self {
            provenance: note.provenance.map(Bytes::from),
            attached: attached
                .map(|(payload, annotations)| Attached {
                    payload: payload.into(),
                    annotations,
                })
                .collect(),
            bundles: note.bundles.into_iter().map(Bytes::from).collect(),
            left_out: note.left_out,
        }
    }
}

impl Fetcher {
    /// The cached result of [`Fetcher::signatures`] for this chart, in memory or on disk. It may be older than what is there now, and is no more
    /// believed than that.
    ///
    /// ```no_run
    /// # async fn example(fetcher: chart::source::Fetcher) -> Result<(), chart::source::FetchError> {
    /// use chart::source::{Access, ChartRef, SignatureKinds};
    ///
    /// let web = ChartRef { repo: "oci://registry.example/charts/web".into(), version: "1.0.0".into(), ..ChartRef::default() };
    /// let (access, kinds) = (Access::default(), SignatureKinds { provenance: true, cosign: true });
    /// let fetched = fetcher.fetch(&web, &access).await?;
    /// let signatures = match fetcher.known_signatures(&fetched, &access, kinds).await {
    ///     Some(known) => known,
    ///     None => fetcher.signatures(&web, &fetched, &access, kinds).await?,
    /// };
    /// # drop(signatures);
    /// # Ok(()) }
    /// ```
    pub async fn known_signatures(
        &self,
        fetched: &FetchedChart,
        access: &Access,
        kinds: SignatureKinds,
    ) -> Option<ChartSignatures> {
        let key = (key(fetched, kinds), access.fingerprint());
        if let Some(known) = self.shared.signatures.get(&key) {
            return Some(known);
        }
        let read = move |disk: &Disk| disk.note::<Note>(&disk.name(NOTE, &key.0, key.1));
        let note = on_disk(self.shared.disk.as_ref()?, read).await;
        note.map(ChartSignatures::from)
    }

    /// Fetches the provenance file and signatures of a chart that was fetched as `chart` with this access. Missing ones are left out.
    ///
    /// ```no_run
    /// # async fn example(fetcher: chart::source::Fetcher) -> Result<(), chart::source::FetchError> {
    /// use chart::source::{Access, ChartRef, SignatureKinds};
    ///
    /// let web = ChartRef { repo: "oci://registry.example/charts/web".into(), version: "1.0.0".into(), ..ChartRef::default() };
    /// let (access, kinds) = (Access::default(), SignatureKinds { provenance: true, cosign: true });
    /// let fetched = fetcher.fetch(&web, &access).await?;
    /// let signatures = fetcher.signatures(&web, &fetched, &access, kinds).await?;
    /// println!("{} signatures, provenance: {}", signatures.attached.len(), signatures.provenance.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`FetchError`] where it cannot be known what there is, or where the manifest does not name the archive.
    pub async fn signatures(
        &self,
        chart: &ChartRef,
        fetched: &FetchedChart,
        access: &Access,
        kinds: SignatureKinds,
    ) -> Result<ChartSignatures, FetchError> {
        let location = chart.locate()?;
        let found = match &fetched.manifest {
            Some(manifest) => {
                let mut reference = Reference::parse(fetched.url.as_str())?;
                reference.digest = Some(manifest.clone());
                let (access, named_by) = match &location {
                    // The credentials are the repository's, not the registry's.
                    Location::Repository { repo, .. } => {
                        (&access.without_own(), NamedBy::Index(repo))
                    }
                    _ => (access, NamedBy::Bundle),
                };
                let registry = Registry::new(&self.shared.http, access, &reference, named_by)?;
                pulled(&registry, &reference, fetched, kinds).await?
            }
            None => {
                let origin = match location {
                    Location::Repository { repo, .. } => repo,
                    _ => fetched.url.clone(),
                };
                ChartSignatures {
                    provenance: match kinds.provenance {
                        true => downloaded(&self.shared, &fetched.url, &origin, access).await?,
                        false => None,
                    },
                    ..ChartSignatures::default()
                }
            }
        };
        let key = (key(fetched, kinds), access.fingerprint());
        self.shared.signatures.put(key.clone(), found.clone());
        if let (Some(disk), Some(note)) = (&self.shared.disk, Note::of(&found)) {
            let write = move |disk: &Disk| {
                disk.put_note(&disk.name(NOTE, &key.0, key.1), &note);
                Some(())
            };
            // A result that cannot be kept is asked for again.
            on_disk(disk, write).await;
        }
        Ok(found)
    }
}

fn key(fetched: &FetchedChart, kinds: SignatureKinds) -> String {
    let manifest = fetched.manifest.as_deref().unwrap_or_default();
    let SignatureKinds { provenance, cosign } = kinds;
    format!(
        "{} {} {manifest} {provenance} {cosign}",
        fetched.url.as_str(),
        fetched.digest
    )
}

/// The signatures in a registry. The manifest is read again, by its digest, so that the signed archive is the fetched one, wherever
/// that was remembered meanwhile.
async fn pulled(
    registry: &Registry<'_>,
    reference: &Reference,
    fetched: &FetchedChart,
    kinds: SignatureKinds,
) -> Result<ChartSignatures, FetchError> {
    let chart = oci::layer(registry, reference).await?;
    if chart.layer.digest != fetched.digest {
        return Err(registry.artifact(&format!(
            "its manifest names the archive {}, and {} was fetched",
            chart.layer.digest, fetched.digest
        )));
    }
    let mut found = Found {
        registry,
        room: MAX_ALL_BYTES,
        signatures: ChartSignatures::default(),
    };
    if let Some(provenance) = chart.provenance.filter(|_| kinds.provenance) {
        found.signatures.provenance = found.small(&provenance).await?;
    }
    if kinds.cosign {
        found.attached(&chart.named).await?;
        match found.bundles(&chart.named).await {
            // The signatures that were found may do.
            Err(error) if !found.signatures.attached.is_empty() => {
                logging::debug!(error, "referrers of a chart");
            }
            done => done?,
        }
    }
    Ok(found.signatures)
}

/// The signatures found so far, and the bytes that may still be fetched.
struct Found<'r> {
    registry: &'r Registry<'r>,
    room: u64,
    signatures: ChartSignatures,
}

impl Found<'_> {
    /// The layers of the image under the tag `sha256-….sig`.
    async fn attached(&mut self, manifest: &str) -> Result<(), FetchError> {
        let tag = format!("{}.sig", manifest.replace(':', "-"));
        let image = self.registry.manifest_if_any(&tag).await?;
        let mut layers = image.unwrap_or_default().layers;
        layers.retain(|layer| layer.media_type == SIMPLE_SIGNING);
        self.leave_out(&mut layers);
        for layer in layers {
            if let Some(payload) = self.small(&layer).await? {
                self.signatures.attached.push(Attached {
                    payload,
                    annotations: layer.annotations.into_signature(),
                });
            }
        }
        Ok(())
    }

    /// The bundles that refer to the manifest; those first that say that they are signatures, as `cosign sign` does.
    async fn bundles(&mut self, manifest: &str) -> Result<(), FetchError> {
        let pick = |referrer: Descriptor| {
            let is_one =
                referrer.artifact_type.starts_with(BUNDLE) && oci::is_digest(&referrer.digest);
            let states = referrer.annotations.get(oci::STATES);
            let order = match states {
                Some(SIGNED) => 0,
                None => 1,
                Some(_) => 2,
            };
            is_one.then_some((order, referrer.digest))
        };
        let (mut referrers, is_cut) = self.registry.referrers(manifest, pick).await?;
        referrers.sort_by_key(|(order, _)| *order);
        self.signatures.left_out += usize::from(is_cut);
        self.leave_out(&mut referrers);
        for (_, digest) in referrers {
            // The rest of the manifest is dropped while the bundle comes.
            let layer = {
                let manifest = self.registry.manifest_if_any(&digest).await?;
                let mut layers = manifest.unwrap_or_default().layers.into_iter();
                layers.find(|layer| layer.media_type.starts_with(BUNDLE))
            };
            if let Some(layer) = layer
                && let Some(bundle) = self.small(&layer).await?
            {
                self.signatures.bundles.push(bundle);
            }
        }
        Ok(())
    }

    fn leave_out<T>(&mut self, signatures: &mut Vec<T>) {
        self.signatures.left_out += signatures.len().saturating_sub(MAX_SIGNATURES);
        signatures.truncate(MAX_SIGNATURES);
    }

    /// A blob that is small enough, of those that there still is room for.
    async fn small(&mut self, layer: &Descriptor) -> Result<Option<Bytes>, FetchError> {
        let limit = MAX_BYTES.min(self.room);
        let blob = match layer.size <= limit {
            true => self.registry.small_blob(layer, limit).await,
            false => {
                self.signatures.left_out += 1;
                return Ok(None);
            }
        };
        match blob {
            Ok(bytes) => {
                self.room = self.room.saturating_sub(bytes.len() as u64);
                Ok(Some(bytes))
            }
            // A broken artifact is no signature; others may be.
            Err(
                FetchError::Registry { status: 404, .. }
                | FetchError::Checksum { .. }
                | FetchError::Artifact { .. }
                | FetchError::TooLarge { .. },
            ) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The file beside an archive.
async fn downloaded(
    shared: &Shared,
    archive: &SafeUrl,
    origin: &SafeUrl,
    access: &Access,
) -> Result<Option<Bytes>, FetchError> {
    let mut url = (**archive).clone();
    url.set_path(&format!("{}.prov", archive.path()));
    let shown = SafeUrl::from(url.clone());
    let here = access.at(&url, origin);
    let request = authorize(Request::get(url, MAX_BYTES, &here), &here);
    let answer = shared.http.send(request).await?;
    match answer.status {
        StatusCode::OK => Ok(Some(answer.body)),
        StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
        status => Err(FetchError::Status {
            shown: answer.shown(access.shown(&shown, origin)),
            url: shown,
            status: status.as_u16(),
        }),
    }
}
