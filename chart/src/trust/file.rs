//! Authorities that are renewed in a file while the program runs: those of a pod's own cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use logging::Name;
use parking_lot::Mutex;

use super::authorities::Authorities;
use super::pem::certificates;

/// A volume of Kubernetes changes about once a minute.
const READ_EVERY: Duration = Duration::from_secs(60);

/// The authorities in a PEM file. It is read again once a minute; connections that are there stay.
///
/// While the file is missing or holds no certificate, what it held before counts.
#[derive(Debug)]
pub struct AuthorityFile {
    path: PathBuf,
    every: Duration,
    last: Mutex<(Arc<Authorities>, Instant)>,
}

/// A file that gives no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityFileError {
    /// The file cannot be read.
    #[error("failed to read the CA certificates in {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The error of the read.
        source: std::io::Error,
    },
    /// The file holds no usable certificate.
    #[error("no CA certificate in {} can be used", path.display())]
    Empty {
        /// Path of the file.
        path: PathBuf,
    },
}

impl AuthorityFile {
    /// Reads the authorities of a file, which has to give at least one.
    ///
    /// ```
    /// use chart::trust::{AuthorityFile, AuthorityFileError, Verifier};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("ca.crt");
    /// std::fs::write(&path, "no certificate")?;
    /// assert!(matches!(AuthorityFile::open(&path), Err(AuthorityFileError::Empty { .. })));
    /// # let ca = rcgen::generate_simple_self_signed(["ca.example".to_owned()])?.cert;
    /// std::fs::write(&path, ca.pem())?;
    /// let verifier = Verifier::File(AuthorityFile::open(&path)?); // for rustls
    /// # drop(verifier);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The file gives no authority now.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, AuthorityFileError> {
        Self::open_every(path.into(), READ_EVERY)
    }

    pub(super) fn open_every(path: PathBuf, every: Duration) -> Result<Self, AuthorityFileError> {
        let authorities = Arc::new(read(&path)?);
        Ok(Self {
            path,
            every,
            last: Mutex::new((authorities, Instant::now())),
        })
    }

    pub(super) fn current(&self) -> Arc<Authorities> {
        let mut last = self.last.lock();
        let (authorities, read_at) = &mut *last;
        if read_at.elapsed() >= self.every {
            *read_at = Instant::now();
            match read(&self.path) {
                Ok(fresh) => *authorities = Arc::new(fresh),
                Err(_) => {
                    let file = self.path.display().to_string();
                    logging::warn!(
                        file = Name(&file),
                        "no CA certificates there, those from before count"
                    );
                }
            }
        }
        Arc::clone(authorities)
    }
}

fn read(path: &Path) -> Result<Authorities, AuthorityFileError> {
    let pem = std::fs::read(path).map_err(|source| AuthorityFileError::Read {
        path: path.to_owned(),
        source,
    })?;
    let authorities = Authorities::new(certificates(&pem));
    match authorities.is_empty() {
        false => Ok(authorities),
        true => Err(AuthorityFileError::Empty {
            path: path.to_owned(),
        }),
    }
}
