//! Archives by their address: those that were fetched earlier, in memory and on disk, and downloads, of which nobody relies on one before it
//! is known to be whole. Reading and writing files takes a thread of its own.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use flate2::bufread::GzDecoder;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::access::{Access, LocalAccess};
use super::cached::{Cached, FetchedAt, Key};
use super::disk::{ChartNote, Disk, blob_name, on_disk};
use super::error::{CredentialsUse, FetchError};
use super::fetched::FetchedChart;
use super::fetcher::Shared;
use super::http::{Request, SMALL_BYTES, authorize, reserved};
use super::reference::Checksum;
use super::safe_url::SafeUrl;
use crate::archive::{is_tar, measure};

impl Shared {
    /// An archive by address. With a checksum, what is remembered under it is the thing itself.
    pub(super) async fn archive(
        self: &Arc<Self>,
        url: &SafeUrl,
        origin: &SafeUrl,
        checksum: Option<Checksum>,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<FetchedAt, FetchError> {
        let name = match &checksum {
            Some(checksum) => format!("{} {}", checksum.key(), url.as_str()),
            None => url.as_str().to_owned(),
        };
        let here = access.at(url, origin);
        let key = (name, here.fingerprint());
        loop {
            let (promised, asked_for) = (checksum.clone(), url.to_string());
            let is_sound = move |chart: &FetchedChart, _: &[String]| {
                let is_promised =
                    |checksum: Checksum| checksum.check(&chart.url, &chart.bytes).is_ok();
                chart.url.to_string() == asked_for
                    && chart.is_intact()
                    && chart.manifest.is_none()
                    && promised.is_none_or(is_promised)
            };
            let cached = self.cached_chart(&key, is_sound).await.map(|mut cached| {
                // On disk it stands without what it may hold of credentials.
                cached.value.url = url.clone();
                cached
            });
            let is_fresh = |cached: &Cached<_>| {
                checksum.is_some() || cached.is_fresh(self.settings.fresh_for, since)
            };
            if let Some(cached) = cached.clone().filter(is_fresh) {
                return Ok(cached.fetched_at(checksum.is_some()));
            }
            let start = || {
                let (shared, key, url) = (Arc::clone(self), key.clone(), url.clone());
                let (here, shown) = (here.clone(), access.shown(&url, origin));
                let checksum = checksum.clone();
                let cached = cached.clone();
                async move {
                    shared
                        .download(key, url, checksum, &here, shown, cached)
                        .await
                }
            };
            let cached = match self.archive_flights.run(key.clone(), start).await {
                Err(error) => Cached::in_place_of(cached, error)?,
                Ok(cached) => cached,
            };
            if checksum.is_some() || cached.answers(since) {
                return Ok(cached.fetched_at(checksum.is_some()));
            }
        }
    }

    async fn download(
        &self,
        key: Key,
        url: SafeUrl,
        checksum: Option<Checksum>,
        access: &LocalAccess,
        shown: CredentialsUse,
        cached: Option<Cached<FetchedChart>>,
    ) -> Result<Cached<FetchedChart>, FetchError> {
        const ACCEPTED: HeaderValue =
            HeaderValue::from_static("application/gzip,application/octet-stream,*/*;q=0.1");
        let asked = Instant::now();
        let request = Request::get((*url).clone(), self.settings.max_archive_bytes, access)
            .header(ACCEPT, ACCEPTED);
        let mut request = authorize(request, access);
        if let Some(cached) = &cached {
            request.headers.extend(cached.validators.clone());
        }
        let answer = self.http.send(request).await?;
        if let Some(cached) = cached.filter(|_| answer.status == StatusCode::NOT_MODIFIED) {
            let cached = cached.confirmed(asked);
            self.archives.put(key, cached.clone());
            return Ok(cached);
        }
        if answer.status != StatusCode::OK {
            let (status, shown) = (answer.status.as_u16(), answer.shown(shown));
            return Err(FetchError::Status { url, status, shown });
        }
        if let Some(checksum) = &checksum {
            checksum.check(&url, &answer.body)?;
        }
        let digest = format!(
            "sha256:{}",
            golib::hex::encode(&Sha256::digest(&answer.body))
        );
        let limit = self.settings.max_unpacked_bytes;
        let unpacked_bytes = checked(answer.body.clone(), &url, limit).await?;
        let chart = FetchedChart {
            bytes: answer.body,
            unpacked_bytes,
            version: String::new(),
            digest,
            manifest: None,
            url,
            is_stale: false,
        };
        let cached = Cached::new(chart, &answer.headers, asked);
        self.keep_chart(key, &cached, &[]).await;
        Ok(cached)
    }
}

/// Kind of the notes.
const CHART: &str = "chart";

impl Shared {
    /// The chart fetched under a key by this process, or by one before. A chart from disk says of itself what it is; `is_sound` believes
    /// it, or not.
    pub(super) async fn cached_chart(
        &self,
        key: &Key,
        is_sound: impl FnOnce(&FetchedChart, &[String]) -> bool + Send + 'static,
    ) -> Option<Cached<FetchedChart>> {
        if let Some(cached) = self.archives.get(key) {
            return Some(cached);
        }
        let disk = self.disk.as_ref()?;
        let name = disk.name(CHART, &key.0, key.1);
        let note: ChartNote = on_disk(disk, move |disk| disk.note(&name)).await?;
        let url = SafeUrl::parse(&note.url).ok()?;
        let limit = self.settings.max_archive_bytes.min(note.bytes);
        let reservation = match note.bytes > SMALL_BYTES {
            true => Some(self.settings.memory.reserve(note.bytes).await),
            false => None,
        };
        let (etag, last_modified) = (note.etag, note.last_modified);
        let read = on_disk(disk, move |disk| {
            let bytes = disk.blob(&note.blob, limit)?;
            let chart = FetchedChart {
                bytes: reserved(Bytes::from(bytes), reservation),
                unpacked_bytes: note.unpacked_bytes,
                version: note.version,
                digest: note.digest,
                manifest: note.manifest,
                url,
                is_stale: false,
            };
            is_sound(&chart, &note.manifests).then_some(chart)
        });
        let cached = Cached::from_disk(read.await?, etag.as_deref(), last_modified.as_deref());
        self.archives.put(key.clone(), cached.clone());
        Some(cached)
    }

    /// Remembers what was fetched, with the manifests that lead to it.
    pub(super) async fn keep_chart(
        &self,
        key: Key,
        cached: &Cached<FetchedChart>,
        manifests: &[Bytes],
    ) {
        self.archives.put(key.clone(), cached.clone());
        let Some(disk) = &self.disk else { return };
        let chart = cached.value.clone();
        let text = |manifest: &Bytes| String::from_utf8_lossy(manifest).into_owned();
        let manifests = manifests.iter().map(text).collect();
        let (etag, last_modified) = (
            cached.validator(IF_NONE_MATCH),
            cached.validator(IF_MODIFIED_SINCE),
        );
        let write = move |disk: &Disk| {
            let blob = blob_name(&chart.bytes);
            disk.put_blob(&blob, &chart.bytes);
            let note = ChartNote {
                etag,
                last_modified,
                version: chart.version,
                digest: chart.digest,
                manifest: chart.manifest,
                manifests,
                // As people see it: without what it may hold of credentials.
                url: chart.url.to_string(),
                unpacked_bytes: chart.unpacked_bytes,
                bytes: chart.bytes.len() as u64,
                blob,
            };
            disk.put_note(&disk.name(CHART, &key.0, key.1), &note);
            Some(())
        };
        on_disk(disk, write).await;
    }
}

/// Archives up to this size are checked without leaving the thread, as long as no more than this comes out of them.
const INLINE_BYTES: usize = 256 << 10;
const INLINE_UNPACKED: u64 = 1 << 20;

/// Formats Fleet unpacks and we do not, by their first bytes.
const OTHER_FORMATS: [(&[u8], &str); 4] = [
    (
        b"PK\x03\x04",
        "zip archives are not supported, only tar and tar.gz",
    ),
    (
        b"BZh",
        "bzip2 archives are not supported, only tar and tar.gz",
    ),
    (
        b"\x28\xb5\x2f\xfd",
        "zstd archives are not supported, only tar and tar.gz",
    ),
    (
        b"\xfd7zXZ\0",
        "xz archives are not supported, only tar and tar.gz",
    ),
];

/// Checks a gzip archive to its end, or that it is a plain tar. Its size unpacked, that of archives in it included, as far as `limit`.
pub(super) async fn checked(bytes: Bytes, url: &SafeUrl, limit: u64) -> Result<u64, FetchError> {
    if let Some((_, problem)) = OTHER_FORMATS
        .iter()
        .find(|(magic, _)| bytes.starts_with(magic))
    {
        return Err(FetchError::Unsupported {
            reference: url.to_string(),
            problem,
        });
    }
    let little = INLINE_UNPACKED.min(limit);
    let inline = (bytes.len() <= INLINE_BYTES).then(|| check(bytes.clone(), little));
    let checked = match inline {
        Some(Ok(unpacked)) if unpacked == little && little < limit => None,
        inline => inline,
    };
    let checked = match checked {
        Some(checked) => checked,
        None => {
            let work = tokio::task::spawn_blocking(move || check(bytes, limit));
            work.await.unwrap_or_else(|error| Err(error.to_string()))
        }
    };
    checked.map_err(|problem| FetchError::Archive {
        url: url.clone(),
        problem,
    })
}

fn check(bytes: Bytes, limit: u64) -> Result<u64, String> {
    if bytes.starts_with(GZIP) {
        let (unpacked, failed) = measure(&mut Members::of(&bytes), limit);
        return match failed {
            None => Ok(unpacked),
            Some(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(format!("it is truncated after {} bytes", bytes.len()))
            }
            Some(error) => Err(error.to_string()),
        };
    }
    if is_tar(&bytes) {
        return Ok(measure(&mut &bytes[..], limit).0);
    }
    Err(match bytes.is_empty() {
        true => "it is empty".to_owned(),
        false => "it is no gzip and no tar archive".to_owned(),
    })
}

const GZIP: &[u8] = &[0x1f, 0x8b];

/// What gzip members hold, one after the other. Padding behind the last one is no part of it: who reads a tar does not come so far.
struct Members<'a>(Option<GzDecoder<&'a [u8]>>);

impl<'a> Members<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self(bytes.starts_with(GZIP).then(|| GzDecoder::new(bytes)))
    }
}

impl Read for Members<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let read = member.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            *self = Self::of(self.0.take().map_or(&[], GzDecoder::into_inner));
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const LIMIT: u64 = 32 << 20;

    fn gzip(content: &[u8]) -> Bytes {
        let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
        writer.write_all(content).unwrap();
        writer.finish().unwrap().into()
    }

    #[tokio::test]
    async fn a_truncated_archive_is_not_whole() {
        let url = SafeUrl::parse("https://h/a.tgz").unwrap();
        let whole = gzip(&[7; 300_000]);
        let found = checked(whole.clone(), &url, LIMIT).await.unwrap();
        assert_eq!(found, 300_000);
        let cut = whole.slice(..whole.len() - 9);
        let error = checked(cut, &url, LIMIT).await.unwrap_err();
        assert!(error.to_string().contains("truncated"), "{error}");
        let page = checked(Bytes::from_static(b"<html>"), &url, LIMIT)
            .await
            .unwrap_err();
        assert_eq!(page.reason(), "InvalidArchive");
        let zip = checked(Bytes::from_static(b"PK\x03\x04"), &url, LIMIT)
            .await
            .unwrap_err();
        assert_eq!(zip.reason(), "UnsupportedChartSource");
    }

    /// Only little is unpacked on the thread of others, however small the archive is.
    #[tokio::test]
    async fn others_run_while_an_archive_is_checked() {
        let url = SafeUrl::parse("https://h/a.tgz").unwrap();
        let bomb = gzip(&vec![0; 20 << 20]);
        assert!(bomb.len() < INLINE_BYTES);
        let ticks = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let ticking = ticks.clone();
        let ticker = tokio::spawn(async move {
            loop {
                ticking.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let unpacked = checked(bomb, &url, LIMIT).await.unwrap();
        assert_eq!(unpacked, 20 << 20);
        assert!(ticks.load(std::sync::atomic::Ordering::Relaxed) > 0);
        ticker.abort();
    }

    #[tokio::test]
    async fn plain_tar_is_measured_as_it_is() {
        let url = SafeUrl::parse("https://h/a.tar").unwrap();
        let mut tar = vec![0; 1024];
        tar[257..262].copy_from_slice(b"ustar");
        assert_eq!(checked(tar.into(), &url, LIMIT).await.unwrap(), 1024);
    }

    /// As `dd` and tape drives leave it; Helm stops where the tar ends.
    #[tokio::test]
    async fn what_follows_the_last_gzip_member_is_overlooked() {
        let url = SafeUrl::parse("https://h/a.tgz").unwrap();
        for padding in [&[0; 3][..], &[0; 512], b"anything else"] {
            let two = [&gzip(&[7; 1000])[..], &gzip(&[7; 500]), padding].concat();
            assert_eq!(checked(two.into(), &url, LIMIT).await.unwrap(), 1500);
        }
        let mut damaged = gzip(&[7; 1000]).to_vec();
        let checksum = damaged.len() - 8;
        damaged[checksum] ^= 1;
        damaged.extend([0; 512]);
        checked(damaged.into(), &url, LIMIT).await.unwrap_err();
    }
}
