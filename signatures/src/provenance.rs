//! Helm's provenance files: a clear-signed text that names a chart's archive and its SHA-256.
//!
//! Mirrors `Verify` of Helm's `pkg/provenance/sign.go`. Stricter: nothing may stand around the signed text, keys of its YAML must not
//! repeat, and there are two documents and no more.

use serde_json::Value;

use crate::openpgp::{Cleartext, Keyring, PgpError};

/// Largest provenance file that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// What a provenance file says of a chart it is right about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The key's fingerprint and its owner.
    pub signer: String,
    /// `Chart.yaml` as it was when it was signed.
    pub metadata: Value,
    /// User names of the key.
    pub users: Vec<String>,
    /// The key's fingerprint, upper-case hexadecimal.
    pub fingerprint: String,
}

/// Why a provenance file does not vouch for a chart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProvenanceError {
    /// It is no clear-signed text, or the signature does not count.
    #[error(transparent)]
    Signature(#[from] PgpError),
    /// What is signed is not what Helm writes.
    #[error("what the provenance file signs is malformed: {0}")]
    Message(String),
    /// It is about other files.
    #[error("provenance does not contain a SHA for a file named \"{name}\" (it names: {})", .named.join(", "))]
    OtherFile {
        /// The chart's file.
        name: String,
        /// Those it is about.
        named: Vec<String>,
    },
    /// It is about another file of that name.
    #[error("sha256 sum does not match for {name}: \"sha256:{signed}\" != \"sha256:{found}\"")]
    OtherDigest {
        /// The chart's file.
        name: String,
        /// What was signed.
        signed: String,
        /// What was fetched.
        found: String,
    },
}

/// Checks a provenance file for the archive `file_name` (empty where nobody knows it), whose SHA-256 is `digest` in hexadecimal.
///
/// # Errors
/// It is not signed by a key of `keyring`, or not about that archive.
pub fn verify(
    file: &[u8],
    file_name: &str,
    digest: &str,
    keyring: &Keyring,
) -> Result<Signed, ProvenanceError> {
    if file.len() > MAX_BYTES {
        let problem = format!("it has more than {MAX_BYTES} bytes");
        return Err(PgpError::Cleartext(problem).into());
    }
    let cleartext = Cleartext::parse(file)?;
    let signer = keyring.verify(&cleartext)?;
    let (metadata, files) = message(cleartext.text())?;
    let sum = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        text.strip_prefix("sha256:").unwrap_or(text).to_owned()
    };
    // What was pulled by digest has no version in its name; the digest decides there as everywhere.
    let is_nameless = file_name.is_empty() && files.values().any(|value| sum(value) == digest);
    if !is_nameless {
        let Some(signed) = files.get(file_name).map(sum) else {
            return Err(ProvenanceError::OtherFile {
                name: file_name.to_owned(),
                named: files.keys().take(5).cloned().collect(),
            });
        };
        if signed != digest {
            return Err(ProvenanceError::OtherDigest {
                name: file_name.to_owned(),
                signed,
                found: digest.to_owned(),
            });
        }
    }
    Ok(Signed {
        signer: signer.to_string(),
        metadata,
        users: signer.users.clone(),
        fingerprint: signer.fingerprint.clone(),
    })
}

/// The two documents of the text.
fn message(text: &str) -> Result<(Value, serde_json::Map<String, Value>), ProvenanceError> {
    let malformed = |problem: &str| ProvenanceError::Message(problem.to_owned());
    let parts: Vec<&str> = text.split("\n...\n").collect();
    let [metadata, sums] = parts.as_slice() else {
        return Err(malformed("message block must have exactly two parts"));
    };
    let read = |text: &str| {
        match golib::yaml::decode_all(text.as_bytes()) {
            Ok(documents) if documents.len() > 1 => {
                return Err(malformed("one of its parts has more than one document"));
            }
            _ => {}
        }
        golib::yaml::decode_strict(text.as_bytes())
            .map_err(|error| ProvenanceError::Message(error.to_string()))
    };
    let metadata = read(metadata)?;
    match read(sums)?.get_mut("files").map(Value::take) {
        Some(Value::Object(files)) => Ok((metadata, files)),
        _ => Err(malformed("it lists no files")),
    }
}
