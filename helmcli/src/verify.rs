//! `--verify`: a chart only with its provenance file.
//!
//! Mirrors `VerifyChart` (`pkg/downloader/chart_downloader.go`) over `pkg/provenance`, in Helm's words.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use chart::loader::io_cause;
use chart::source::{Reference, SignatureKinds};
use golib::strconv::quote;
use sha2::{Digest as _, Sha256};
use signatures::openpgp::Keyring;
use signatures::provenance::{self, ProvenanceError};

use crate::client::{Client, Fetched};
use crate::files::go_cause;

/// Reads an archive that lies here, with its provenance file beside it.
///
/// # Errors
/// It is a folder, one of the two is missing, or the file does not vouch for the archive.
pub(crate) fn file(path: &Path, keyring: &str) -> Result<Bytes, String> {
    if path.is_dir() {
        return Err("unpacked charts cannot be verified".to_owned());
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".prov");
    let beside = PathBuf::from(beside);
    let signed = std::fs::read(&beside).map_err(|error| {
        let shown = beside.display();
        let reason = io_cause(&error);
        format!("could not load provenance file {shown}: stat {shown}: {reason}")
    })?;
    let archive = std::fs::read(path);
    let archive = archive.map_err(|error| go_cause(&path.display().to_string(), &error))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    verify(&signed, &name, &archive, keyring)?;
    Ok(archive.into())
}

/// Checks an archive that was fetched; its provenance file lies beside it there.
///
/// # Errors
/// There is none, or it does not vouch for the archive.
pub(crate) fn fetched(client: &Client, fetched: &Fetched, keyring: &str) -> Result<(), String> {
    let Fetched {
        chart,
        archive,
        access,
    } = fetched;
    let kinds = SignatureKinds {
        provenance: true,
        cosign: false,
    };
    let found = client.run(async |fetcher| fetcher.signatures(chart, archive, access, kinds).await);
    let address = archive.url.to_string();
    let file = found.ok().and_then(|found| found.provenance);
    let file = file.ok_or_else(|| {
        format!(
            "failed to fetch provenance {}",
            quote(format!("{address}.prov"))
        )
    })?;
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let pulled = archive
        .manifest
        .as_ref()
        .and_then(|_| Reference::parse(archive.url.as_str()).ok());
    let name = match pulled {
        Some(Reference { tag: None, .. }) => String::new(),
        Some(reference) => {
            let name = last(&reference.repository);
            format!("{name}-{}.tgz", archive.version)
        }
        None => last(&archive.url.path().replace("%2B", "+").replace("%2b", "+")),
    };
    verify(&file, &name, &archive.bytes, keyring)
}

fn verify(file: &[u8], name: &str, archive: &[u8], keyring: &str) -> Result<(), String> {
    let path = match keyring {
        "" => default_keyring(),
        path => PathBuf::from(path),
    };
    let keys = std::fs::read(&path).map_err(|error| {
        let reason = go_cause(&path.display().to_string(), &error);
        format!("failed to load keyring: {reason}")
    })?;
    let keys = Keyring::parse(&keys).map_err(|error| format!("failed to load keyring: {error}"))?;
    let digest = golib::hex::encode(&Sha256::digest(archive));
    match provenance::verify(file, name, &digest, &keys) {
        Ok(_) => Ok(()),
        Err(ProvenanceError::OtherFile { name, .. }) => Err(format!(
            "provenance does not contain a SHA for a file named {}",
            quote(&name)
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// GnuPG's ring of old, which Helm looks for too.
fn default_keyring() -> PathBuf {
    let home = match std::env::var_os("GNUPGHOME") {
        Some(home) if !home.is_empty() => PathBuf::from(home),
        _ => PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".gnupg"),
    };
    home.join("pubring.gpg")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specimen(name: &str) -> PathBuf {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../signatures/tests/specimens");
        Path::new(folder).join(name)
    }

    /// What helm 4 says to the same files.
    #[test]
    fn a_file_is_verified_in_helms_words() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, from: &str| {
            let path = folder.path().join(name);
            std::fs::copy(specimen(from), &path).unwrap();
            path
        };
        let chart = put("web-1.1.0.tgz", "rsa.tgz");
        let shown = chart.display();
        let ring = |name: &str| specimen(name).display().to_string();
        let good = ring("rsa-maintainer.asc");
        let error = file(&chart, &good).unwrap_err();
        let missing = format!(
            "could not load provenance file {shown}.prov: stat {shown}.prov: no such file or directory"
        );
        assert_eq!(error, missing);
        put("web-1.1.0.tgz.prov", "rsa.prov");
        assert_eq!(file(&chart, &good).unwrap(), std::fs::read(&chart).unwrap());
        let error = file(&chart, &ring("stranger.asc")).unwrap_err();
        assert!(
            error.starts_with("openpgp: signature made by unknown entity"),
            "{error}"
        );
        let error = file(&chart, "missing.gpg").unwrap_err();
        assert_eq!(
            error,
            "failed to load keyring: open missing.gpg: no such file or directory"
        );
        let other = put("other.tgz", "rsa.tgz");
        put("other.tgz.prov", "rsa.prov");
        let error = file(&other, &good).unwrap_err();
        assert_eq!(
            error,
            "provenance does not contain a SHA for a file named \"other.tgz\""
        );
        put("web-1.1.0.tgz", "config.json");
        let error = file(&chart, &good).unwrap_err();
        assert!(
            error.starts_with("sha256 sum does not match for web-1.1.0.tgz: \"sha256:"),
            "{error}"
        );
        put("web-1.1.0.tgz.prov", "config.json");
        assert_eq!(
            file(&chart, &good).unwrap_err(),
            "signature block not found"
        );
        let error = file(folder.path(), &good).unwrap_err();
        assert_eq!(error, "unpacked charts cannot be verified");
    }
}
