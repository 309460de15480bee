//! Whether what was downloaded is a whole archive, before anybody relies on it.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::error::FetchError;
use super::safe_url::SafeUrl;
use crate::archive::measure;

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

/// Checks a gzip archive to its end; wraps a plain tar into gzip, which is what loaders read. With its size unpacked, that of archives in it
/// included, as far as `limit`.
pub(super) async fn checked(
    bytes: Bytes,
    url: &SafeUrl,
    limit: u64,
) -> Result<(Bytes, u64), FetchError> {
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
        Some(Ok((_, unpacked))) if unpacked == little && little < limit => None,
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

fn check(bytes: Bytes, limit: u64) -> Result<(Bytes, u64), String> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let (unpacked, failed) = measure(&mut MultiGzDecoder::new(&bytes[..]), limit);
        return match failed {
            None => Ok((bytes, unpacked)),
            Some(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(format!("it is truncated after {} bytes", bytes.len()))
            }
            Some(error) => Err(error.to_string()),
        };
    }
    if bytes.get(257..262) == Some(b"ustar") {
        let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
        let packed = writer.write_all(&bytes).and_then(|()| writer.finish());
        return match packed {
            Ok(packed) => Ok((packed.into(), measure(&mut &bytes[..], limit).0)),
            Err(error) => Err(error.to_string()),
        };
    }
    Err(match bytes.is_empty() {
        true => "it is empty".to_owned(),
        false => "it is no gzip and no tar archive".to_owned(),
    })
}

#[cfg(test)]
mod tests {
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
        assert_eq!(found, (whole.clone(), 300_000));
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

    /// What is unpacked where others run is little, however small the archive is.
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
        let (_, unpacked) = checked(bomb, &url, LIMIT).await.unwrap();
        assert_eq!(unpacked, 20 << 20);
        assert!(ticks.load(std::sync::atomic::Ordering::Relaxed) > 0);
        ticker.abort();
    }

    #[tokio::test]
    async fn plain_tar_is_wrapped() {
        let url = SafeUrl::parse("https://h/a.tar").unwrap();
        let mut tar = vec![0; 1024];
        tar[257..262].copy_from_slice(b"ustar");
        assert!(
            checked(tar.into(), &url, LIMIT)
                .await
                .unwrap()
                .0
                .starts_with(&[0x1f, 0x8b])
        );
    }
}
