//! A clear-signed text: readable, with its signature below.

use super::armor;
use super::error::PgpError;

/// A text and the signatures below it, as bytes; nothing is checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleartext {
    text: String,
    canonical: Vec<u8>,
    signatures: Vec<u8>,
}

impl Cleartext {
    /// Reads a file that is one clear-signed text and nothing else: whatever stands around it is not signed, so it may not be there.
    ///
    /// # Errors
    /// It is not clear-signed text.
    pub fn parse(file: &[u8]) -> Result<Self, PgpError> {
        const KIND: &str = "PGP SIGNATURE";
        let malformed = |problem: &str| {
            PgpError::Cleartext(format!("the clear-signed text is malformed: {problem}"))
        };
        let file = std::str::from_utf8(file).map_err(|_| malformed("it is not UTF-8"))?;
        let mut lines = file
            .split('\n')
            .map(|line| line.strip_suffix('\r').unwrap_or(line));
        if lines.next() != Some("-----BEGIN PGP SIGNED MESSAGE-----") {
            return Err(PgpError::Cleartext("signature block not found".to_owned()));
        }
        loop {
            match lines.next() {
                Some("") => break,
                Some(header) if header.starts_with("Hash: ") => {}
                _ => return Err(malformed("it has a header other than Hash")),
            }
        }
        let mut signed = Vec::new();
        loop {
            let line = lines
                .next()
                .ok_or_else(|| malformed("its signature is missing"))?;
            if line.trim_end() == "-----BEGIN PGP SIGNATURE-----" {
                break;
            }
            if line.chars().any(|c| c.is_control() && c != '\t') {
                return Err(malformed("it has control characters"));
            }
            let line = match line.strip_prefix("- ") {
                Some(escaped) => escaped,
                None if line.starts_with('-') => {
                    return Err(malformed("a line begins with a dash that is not escaped"));
                }
                None => line,
            };
            // What trails a line is not signed, so it is not read either.
            signed.push(line.trim_end_matches([' ', '\t']));
        }
        let signatures = armor::block(&mut lines, KIND)?;
        if lines.any(|line| !line.trim().is_empty()) {
            return Err(malformed("something follows the signature"));
        }
        Ok(Self {
            text: signed.join("\n"),
            canonical: signed.join("\r\n").into_bytes(),
            signatures,
        })
    }

    /// What is signed, for reading: lines end with a line feed, and none with blanks.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is signed, as it is hashed.
    pub(super) fn canonical(&self) -> &[u8] {
        &self.canonical
    }

    /// The packets of the signature.
    pub(super) fn signatures(&self) -> &[u8] {
        &self.signatures
    }
}
