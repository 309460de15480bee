//! Sigstore bundles about an image: an in-toto statement in an envelope, with what proves who signed it.

use sigstore_verify::types::{Bundle, SignatureContent, Statement};

/// The one statement that says no more than "signed".
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";
const IN_TOTO: &str = "application/vnd.in-toto+json";

/// A bundle that holds a statement.
#[derive(Debug)]
pub(super) struct Signed {
    pub(super) bundle: Bundle,
    statement: Statement,
}

impl Signed {
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(json).map_err(|_| "it is not UTF-8")?;
        let bundle =
            Bundle::from_json(text).map_err(|error| format!("it cannot be read: {error}"))?;
        let SignatureContent::DsseEnvelope(envelope) = &bundle.content else {
            return Err("it holds no statement about an image".to_owned());
        };
        if envelope.payload_type != IN_TOTO {
            return Err(format!("it holds a {:?}", envelope.payload_type));
        }
        let statement = serde_json::from_slice(envelope.payload.as_bytes())
            .map_err(|error| format!("its statement cannot be read: {error}"))?;
        Ok(Self { bundle, statement })
    }

    /// What the signature is over.
    pub(super) fn signed_bytes(&self) -> Vec<u8> {
        match &self.bundle.content {
            SignatureContent::DsseEnvelope(envelope) => envelope.pae(),
            // Not one that was parsed.
            _ => Vec::new(),
        }
    }

    /// Whether a statement whose signature is good says "signed" of this manifest.
    pub(super) fn claims(&self, digest: &str) -> Result<(), String> {
        if self.statement.predicate_type != SIGNED {
            return Err(format!(
                "it is no signature but a statement of type {:?}",
                self.statement.predicate_type
            ));
        }
        let subjects = &self.statement.subject;
        let digests: Vec<String> = subjects
            .iter()
            .filter_map(|subject| subject.digest.sha256.as_ref())
            .map(|sha256| format!("sha256:{}", sha256.to_hex()))
            .collect();
        match digests.iter().any(|signed| signed == digest) {
            true => Ok(()),
            false => {
                let shown: Vec<&str> = digests.iter().take(3).map(String::as_str).collect();
                Err(format!("it is about another digest, {}", shown.join(", ")))
            }
        }
    }
}
