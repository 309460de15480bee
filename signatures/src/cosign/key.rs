//! Signatures by a key that the policy holds.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use sigstore_verify::crypto::{KeyAlgorithm, Keyring, SigningScheme, verify_signature};
use sigstore_verify::trust_root::TrustedRoot;
use sigstore_verify::types::{
    Bundle, DerPublicKey, HashAlgorithm, MediaType, MessageDigest, MessageSignature,
    PublicKeyIdentifier, SignatureBytes, SignatureContent, VerificationMaterial,
    VerificationMaterialContent,
};
use sigstore_verify::{PublicKeyVerificationPolicy, Verifier};

use super::attached::signature_of;
use super::bundle::Signed;
use super::field_problem::FieldProblem;
use super::keyless::{self, LogEntry};
use crate::evidence::Attached;

/// A public key as `cosign generate-key-pair` writes it, with the log its signatures must be in, if any.
#[derive(Clone)]
pub struct PublicKey {
    key: DerPublicKey,
    /// What the key can have signed with; the signature has no say in it.
    schemes: Vec<SigningScheme>,
    fingerprint: String,
    log: Option<Arc<Log>>,
}

struct Log {
    verifier: Verifier,
    keys: Keyring,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key sha256:{}", self.fingerprint)
    }
}

impl PublicKey {
    /// Reads a key in PEM, and the trusted root whose logs its signatures must be in.
    ///
    /// # Errors
    /// They cannot be used.
    pub(crate) fn new(pem: &str, root: Option<&str>) -> Result<Self, FieldProblem> {
        let field = |problem: &dyn ToString| (".publicKey", problem.to_string());
        let key = DerPublicKey::from_pem(pem.trim()).map_err(|error| field(&error))?;
        let algorithm = KeyAlgorithm::from_spki(&key).map_err(|error| field(&error))?;
        let mut schemes = vec![algorithm.default_signing_scheme()];
        // cosign hashes with SHA-256 unless it is told otherwise, whatever the curve.
        if let Ok(scheme) = algorithm.resolve_signing_scheme(HashAlgorithm::Sha2256)
            && !schemes.contains(&scheme)
        {
            schemes.push(scheme);
        }
        let log = match root {
            None => None,
            Some(json) => {
                let root = keyless::trusted_root(json)?;
                if root.tlogs.is_empty() {
                    let problem = "it has no transparency log (tlogs)";
                    return Err((".trustedRoot", problem.to_owned()));
                }
                let field = |problem: &dyn ToString| (".trustedRoot", problem.to_string());
                Some(Arc::new(Log {
                    verifier: Verifier::new(&root).map_err(|error| field(&error))?,
                    keys: TrustedRoot::rekor_keys(&root).map_err(|error| field(&error))?,
                }))
            }
        };
        let fingerprint = golib::hex::encode(&Sha256::digest(key.as_bytes()));
        Ok(Self {
            key,
            schemes,
            fingerprint,
            log,
        })
    }

    fn verify(&self, signed: &[u8], signature: &SignatureBytes) -> Result<(), String> {
        let is_good = |scheme: &SigningScheme| {
            verify_signature(&self.key, signed, signature, *scheme).is_ok()
        };
        match self.schemes.iter().any(is_good) {
            true => Ok(()),
            // The crypto library has no Ed25519ph, and what it cannot check does not count.
            false if self.schemes == [SigningScheme::Ed25519] => {
                Err("it is not by this key, or by Ed25519ph, which is not supported".to_owned())
            }
            false => Err("it is not by this key".to_owned()),
        }
    }

    pub(super) fn check_attached(&self, attached: &Attached) -> Result<String, String> {
        let signature = signature_of(attached)?;
        self.verify(&attached.payload, &signature)?;
        if let Some(log) = &self.log {
            let entry = LogEntry::of(attached)?.ok_or("it has no entry of a transparency log")?;
            entry.check_promise(&log.keys)?;
            let digest = Sha256::digest(&attached.payload).to_vec();
            let digest = MessageDigest::new(HashAlgorithm::Sha2256, digest.into());
            let content = MessageSignature::new(signature).with_message_digest(digest);
            let material = VerificationMaterialContent::PublicKey(PublicKeyIdentifier::new(""));
            let bundle = Bundle::new(
                MediaType::Bundle0_2,
                VerificationMaterial::new(material).with_tlog_entries(vec![entry.entry]),
                SignatureContent::MessageSignature(content),
            );
            // Old entries carry a promise and no proof; it was checked above.
            let policy = PublicKeyVerificationPolicy::new(self.key.clone()).skip_tlog_unsafe();
            let verified = log.verifier.verify(&attached.payload[..], &bundle, &policy);
            verified.map_err(|error| error.to_string())?;
        }
        Ok("by key".to_owned())
    }

    pub(super) fn check_bundle(&self, signed: &Signed, digest: &str) -> Result<String, String> {
        let SignatureContent::DsseEnvelope(envelope) = &signed.bundle.content else {
            return Err("it holds no statement about an image".to_owned());
        };
        self.verify(&signed.signed_bytes(), &envelope.signature.sig)?;
        if let Some(log) = &self.log {
            if signed.bundle.verification_material.tlog_entries.is_empty() {
                return Err("it has no entry of a transparency log".to_owned());
            }
            let policy = PublicKeyVerificationPolicy::new(self.key.clone());
            let digest = keyless::sha256(digest)?;
            let verified = log.verifier.verify(digest, &signed.bundle, &policy);
            let verified = verified.map_err(|error| error.to_string())?;
            if !verified.tlog_verified() {
                return Err("its entry of a transparency log was not proven".to_owned());
            }
        }
        Ok("by key".to_owned())
    }
}
