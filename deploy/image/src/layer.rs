//! What is in the image, as files and as the one layer: nothing but the program, certificate authorities and an empty `/tmp`.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// A file or directory of the image.
struct Entry<'a> {
    path: &'static str,
    mode: u32,
    /// None for a directory.
    content: Option<&'a [u8]>,
}

fn entries<'a>(program: &'a [u8], authorities: &'a [u8]) -> Vec<Entry<'a>> {
    let directory = |path, mode| Entry {
        path,
        mode,
        content: None,
    };
    let file = |path, mode, content| Entry {
        path,
        mode,
        content: Some(content),
    };
    vec![
        directory("etc", 0o755),
        directory("etc/ssl", 0o755),
        directory("etc/ssl/certs", 0o755),
        file("etc/ssl/certs/ca-certificates.crt", 0o644, authorities),
        directory("tmp", 0o1777),
        directory("usr", 0o755),
        directory("usr/bin", 0o755),
        file("usr/bin/fleetagent", 0o755, program),
    ]
}

/// Mozilla's authorities as PEM: a crate pins them, so that the image does not depend on the machine that builds it.
fn authorities() -> String {
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(certificate);
        for line in encoded.as_bytes().chunks(64) {
            text.extend(line.iter().map(|byte| char::from(*byte)));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// The layer as a tar file, without times and names of people.
pub(crate) fn tar(program: &[u8]) -> Result<Vec<u8>> {
    let authorities = authorities();
    let mut tar = Builder::new(Vec::new());
    for entry in entries(program, authorities.as_bytes()) {
        let content = entry.content.unwrap_or_default();
        let mut header = Header::new_ustar();
        header.set_mode(entry.mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        let (kind, path) = match entry.content {
            Some(_) => (EntryType::Regular, entry.path.to_owned()),
            None => (EntryType::Directory, format!("{}/", entry.path)),
        };
        header.set_entry_type(kind);
        tar.append_data(&mut header, path, content)?;
    }
    Ok(tar.into_inner()?)
}

/// Compressed, without a time and a file name.
pub(crate) fn gzip(data: &[u8]) -> Result<Vec<u8>> {
    let builder = GzBuilder::new().operating_system(255);
    let mut gzip = builder.write(Vec::new(), Compression::best());
    gzip.write_all(data)?;
    Ok(gzip.finish()?)
}

/// The same files below a directory.
pub(crate) fn write_files(program: &[u8], root: &Path) -> Result<()> {
    let authorities = authorities();
    for entry in entries(program, authorities.as_bytes()) {
        let path = root.join(entry.path);
        match entry.content {
            Some(content) => std::fs::write(&path, content)?,
            None => std::fs::create_dir_all(&path)?,
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(entry.mode))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layer_holds_nothing_of_its_builder() {
        let layer = tar(b"program").unwrap();
        assert_eq!(layer, tar(b"program").unwrap());
        let mut archive = tar::Archive::new(layer.as_slice());
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(
                (
                    header.uid().unwrap(),
                    header.gid().unwrap(),
                    header.mtime().unwrap()
                ),
                (0, 0, 0)
            );
            seen.push((
                entry.path().unwrap().display().to_string(),
                header.mode().unwrap(),
            ));
        }
        assert!(
            seen.contains(&("usr/bin/fleetagent".to_owned(), 0o755)),
            "{seen:?}"
        );
        assert!(seen.contains(&("tmp/".to_owned(), 0o1777)), "{seen:?}");
    }

    #[test]
    fn files_and_layer_are_the_same() {
        let root = tempfile::tempdir().unwrap();
        write_files(b"program", root.path()).unwrap();
        let layer = tar(b"program").unwrap();
        let mut archive = tar::Archive::new(layer.as_slice());
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let path = root.path().join(entry.path().unwrap());
            let found = std::fs::metadata(&path).unwrap();
            assert_eq!(
                found.permissions().mode() & 0o7777,
                entry.header().mode().unwrap()
            );
            assert!(found.is_dir() || found.len() == entry.size());
        }
    }

    #[test]
    fn authorities_are_pem() {
        let text = authorities();
        let count = text.matches("-----BEGIN CERTIFICATE-----\n").count();
        assert!(count > 100 && count == text.matches("-----END CERTIFICATE-----\n").count());
        assert!(text.lines().all(|line| line.len() <= 64));
    }
}
