//! Whether what was downloaded is a whole archive, before anybody relies on it.

use std::io::{Read as _, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::error::FetchError;
use super::safe_url::SafeUrl;

/// Unpacked bytes looked at; more is for the loader to refuse.
const MAX_CHECKED_BYTES: u64 = 256 << 20;
/// Archives up to this size are checked without leaving the thread.
const INLINE_BYTES: usize = 256 << 10;

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

/// Checks a gzip archive to its end; wraps a plain tar into gzip, which is what loaders read. With its size unpacked.
pub(super) async fn checked(bytes: Bytes, url: &SafeUrl) -> Result<(Bytes, u64), FetchError> {
    if let Some((_, problem)) = OTHER_FORMATS
        .iter()
        .find(|(magic, _)| bytes.starts_with(magic))
    {
        return Err(FetchError::Unsupported {
            reference: url.to_string(),
            problem,
        });
    }
    let checked = if bytes.len() <= INLINE_BYTES {
        check(bytes)
    } else {
        let work = tokio::task::spawn_blocking(move || check(bytes));
        work.await.unwrap_or_else(|error| Err(error.to_string()))
    };
    checked.map_err(|problem| FetchError::Archive {
        url: url.clone(),
        problem,
    })
}

fn check(bytes: Bytes) -> Result<(Bytes, u64), String> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut reader = MultiGzDecoder::new(&bytes[..]).take(MAX_CHECKED_BYTES);
        return match std::io::copy(&mut reader, &mut std::io::sink()) {
            Ok(unpacked) => Ok((bytes, unpacked)),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(format!("it is truncated after {} bytes", bytes.len()))
            }
            Err(error) => Err(error.to_string()),
        };
    }
    if bytes.get(257..262) == Some(b"ustar") {
        let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
        let packed = writer.write_all(&bytes).and_then(|()| writer.finish());
        return match packed {
            Ok(packed) => Ok((packed.into(), bytes.len() as u64)),
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

    fn gzip(content: &[u8]) -> Bytes {
        let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
        writer.write_all(content).unwrap();
        writer.finish().unwrap().into()
    }

    #[tokio::test]
    async fn a_truncated_archive_is_not_whole() {
        let url = SafeUrl::parse("https://h/a.tgz").unwrap();
        let whole = gzip(&[7; 300_000]);
        let found = checked(whole.clone(), &url).await.unwrap();
        assert_eq!(found, (whole.clone(), 300_000));
        let cut = whole.slice(..whole.len() - 9);
        let error = checked(cut, &url).await.unwrap_err();
        assert!(error.to_string().contains("truncated"), "{error}");
        let page = checked(Bytes::from_static(b"<html>"), &url)
            .await
            .unwrap_err();
        assert_eq!(page.reason(), "InvalidArchive");
        let zip = checked(Bytes::from_static(b"PK\x03\x04"), &url)
            .await
            .unwrap_err();
        assert_eq!(zip.reason(), "UnsupportedChartSource");
    }

    #[tokio::test]
    async fn plain_tar_is_wrapped() {
        let url = SafeUrl::parse("https://h/a.tar").unwrap();
        let mut tar = vec![0; 1024];
        tar[257..262].copy_from_slice(b"ustar");
        assert!(
            checked(tar.into(), &url)
                .await
                .unwrap()
                .0
                .starts_with(&[0x1f, 0x8b])
        );
    }
}
