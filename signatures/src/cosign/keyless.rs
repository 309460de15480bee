//! Signatures by an identity: a certificate that was good for minutes, and proof that it was used in them.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use sigstore_verify::crypto::{Keyring, parse_certificate_info};
use sigstore_verify::trust_root::TrustedRoot;
use sigstore_verify::types::{
    Bundle, CanonicalizedBody, DerCertificate, HashAlgorithm, InclusionPromise, KindVersion, LogId,
    LogIndex, LogKeyId, MediaType, MessageDigest, MessageSignature, Rfc3161Timestamp, Sha256Hash,
    SignatureBytes, SignatureContent, SignedTimestamp, TimestampToken, TimestampVerificationData,
    TransparencyLogEntry, VerificationMaterial, VerificationMaterialContent, X509Certificate,
};
use sigstore_verify::{VerificationPolicy, VerificationResult, Verifier};

use super::attached::signature_of;
use super::bundle::Signed;
use super::field_problem::FieldProblem;
use crate::evidence::Attached;

const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const CHAIN: &str = "dev.sigstore.cosign/chain";
const LOG_ENTRY: &str = "dev.sigstore.cosign/bundle";
const TIMESTAMP: &str = "dev.sigstore.cosign/rfc3161timestamp";
/// Certificates of a chain that are looked at.
const MAX_CHAIN: usize = 10;

/// An identity, and the authorities whose word is taken for it.
#[derive(Clone)]
pub struct Keyless {
    issuer: String,
    identity: Identity,
    /// Whether the signature must be in a transparency log; else a timestamp authority may say when it was made.
    needs_log: bool,
    needs_sct: bool,
    verifier: Arc<Verifier>,
}

#[derive(Clone, Debug)]
enum Identity {
    Exact(String),
    /// Matches the whole identity.
    Pattern(String, Regex),
}

impl fmt::Debug for Keyless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Keyless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.identity {
            Identity::Exact(text) => write!(f, "identity {text}")?,
            Identity::Pattern(text, _) => write!(f, "an identity like {text}")?,
        }
        write!(f, " of issuer {}", self.issuer)
    }
}

/// Reads a `trusted_root.json`.
pub(super) fn trusted_root(json: &str) -> Result<TrustedRoot, FieldProblem> {
    TrustedRoot::from_json(json).map_err(|error| (".trustedRoot", error.to_string()))
}

pub(super) fn sha256(digest: &str) -> Result<Sha256Hash, String> {
    let hex = digest
        .strip_prefix("sha256:")
        .ok_or("signatures are about SHA-256 digests")?;
    Sha256Hash::from_hex(hex).map_err(|error| error.to_string())
}

impl Keyless {
    /// An identity of `issuer` that the authorities of the trusted root vouch for.
    ///
    /// # Errors
    /// The identity is missing or no expression, or the root lacks an authority that is needed.
    pub(crate) fn new(
        issuer: String,
        identity: Option<String>,
        pattern: Option<String>,
        root: &str,
        needs_log: bool,
        needs_sct: bool,
    ) -> Result<Self, FieldProblem> {
        let identity = match (identity, pattern) {
            (Some(text), None) if !text.is_empty() => Identity::Exact(text),
            (None, Some(text)) => {
                let whole = RegexBuilder::new(&format!("^(?:{text})$"))
                    .size_limit(1 << 20)
                    .build()
                    .map_err(|error| (".identityRegExp", error.to_string()))?;
                Identity::Pattern(text, whole)
            }
            _ => {
                let problem = "either identity or identityRegExp is expected";
                return Err(("", problem.to_owned()));
            }
        };
        if issuer.is_empty() {
            return Err((".issuer", "it is empty".to_owned()));
        }
        let root = trusted_root(root)?;
        let lacks = |what: &str| Err((".trustedRoot", format!("it has no {what}")));
        if root.certificate_authorities.is_empty() {
            return lacks("certificate authority (certificateAuthorities)");
        }
        if needs_log && root.tlogs.is_empty() {
            return lacks("transparency log (tlogs), and transparencyLog is required");
        }
        if root.tlogs.is_empty() && root.timestamp_authorities.is_empty() {
            return lacks(
                "transparency log (tlogs) and no timestamp authority (timestampAuthorities)",
            );
        }
        if needs_sct && root.ctlogs.is_empty() {
            return lacks(
                "certificate transparency log (ctlogs), and certificateTransparency is required",
            );
        }
        let verifier = Verifier::new(&root).map_err(|error| (".trustedRoot", error.to_string()))?;
        Ok(Self {
            issuer,
            identity,
            needs_log,
            needs_sct,
            verifier: Arc::new(verifier),
        })
    }

    fn policy(&self) -> VerificationPolicy {
        let policy = VerificationPolicy::any_identity().require_issuer(&*self.issuer);
        let policy = match &self.identity {
            Identity::Exact(text) => policy.require_identity(&**text),
            // Held against the result.
            Identity::Pattern(..) => policy,
        };
        match self.needs_sct {
            true => policy,
            false => policy.skip_sct(),
        }
    }

    /// Holds what was proven against what is asked for.
    fn accept(&self, verified: &VerificationResult) -> Result<String, String> {
        let found = verified.identity().map(|identity| identity.as_str());
        let found = found.ok_or("its certificate has no identity")?;
        let is_proven = verified.certificate_verified()
            && (verified.sct_verified() || !self.needs_sct)
            && verified.identity_policy_checked();
        if !is_proven {
            return Err("its certificate was not proven".to_owned());
        }
        if let Identity::Pattern(text, pattern) = &self.identity
            && !pattern.is_match(found)
        {
            return Err(format!(
                "identity mismatch: expected one like {text}, got {found}"
            ));
        }
        Ok(format!("by identity {found}"))
    }

    pub(super) fn check_bundle(&self, signed: &Signed, digest: &str) -> Result<String, String> {
        let bundle = &signed.bundle;
        let has_entry = !bundle.verification_material.tlog_entries.is_empty();
        if self.needs_log && !has_entry {
            return Err("it has no entry of a transparency log".to_owned());
        }
        let policy = match self.needs_log {
            true => self.policy(),
            false => self.policy().skip_tlog_unsafe(),
        };
        let verified = self.verifier.verify(sha256(digest)?, bundle, &policy);
        let verified = verified.map_err(|error| message(&error, bundle))?;
        if self.needs_log && !verified.tlog_verified() {
            return Err("its entry of a transparency log was not proven".to_owned());
        }
        self.accept(&verified)
    }

    pub(super) fn check_attached(&self, attached: &Attached) -> Result<String, String> {
        let annotation = |name: &str| attached.annotations.get(name).map(String::as_str);
        let certificate = annotation(CERTIFICATE).ok_or("it has no certificate")?;
        let mut certificates = certificates(certificate)?;
        if certificates.len() != 1 {
            return Err("it has not one certificate".to_owned());
        }
        if let Some(chain) = annotation(CHAIN) {
            certificates.extend(self::certificates(chain)?);
        }
        let entry = LogEntry::of(attached)?;
        if self.needs_log && entry.is_none() {
            return Err("it has no entry of a transparency log".to_owned());
        }
        let mut material =
            VerificationMaterial::new(VerificationMaterialContent::X509CertificateChain {
                certificates,
            });
        // Where the log is asked for, its promise alone says when: checked as it says so.
        if let Some(token) = annotation(TIMESTAMP).filter(|_| !self.needs_log) {
            material = material.with_timestamp_verification_data(timestamp(token)?);
        }
        if let Some(entry) = entry {
            material = material.with_tlog_entries(vec![entry.entry]);
        }
        let digest = Sha256::digest(&attached.payload).to_vec();
        let digest = MessageDigest::new(HashAlgorithm::Sha2256, digest.into());
        let content = MessageSignature::new(signature_of(attached)?).with_message_digest(digest);
        let content = SignatureContent::MessageSignature(content);
        let bundle = Bundle::new(MediaType::Bundle0_2, material, content);
        // Attached entries carry a promise and no proof. The promise is what says when the certificate was used, so it is checked.
        let policy = self.policy().skip_tlog_unsafe();
        let verified = self
            .verifier
            .verify(&attached.payload[..], &bundle, &policy);
        let verified = verified.map_err(|error| message(&error, &bundle))?;
        self.accept(&verified)
    }
}

/// What is wrong, and whose certificate it is: claims, not proof.
fn message(error: &sigstore_verify::Error, bundle: &Bundle) -> String {
    let certificate = bundle.signing_certificate();
    let Some(info) = certificate.and_then(|found| parse_certificate_info(found).ok()) else {
        return error.to_string();
    };
    let identity = info.identity.as_ref();
    let identity = identity.map_or("nobody", |identity| identity.as_str());
    let issuer = info.issuer.as_deref().unwrap_or("no issuer");
    format!("{error} (its certificate claims {identity} of issuer {issuer})")
}

fn certificates(pem: &str) -> Result<Vec<X509Certificate>, String> {
    const END: &str = "-----END CERTIFICATE-----";
    let blocks = pem.split_inclusive(END).filter(|block| block.contains(END));
    blocks
        .take(MAX_CHAIN)
        .map(|block| {
            let certificate = DerCertificate::from_pem(block.trim());
            let certificate = certificate.map_err(|error| format!("its certificate: {error}"))?;
            Ok(X509Certificate::new(certificate))
        })
        .collect()
}

fn timestamp(annotation: &str) -> Result<TimestampVerificationData, String> {
    #[derive(Deserialize)]
    struct Token {
        #[serde(rename = "SignedRFC3161Timestamp")]
        token: String,
    }
    let malformed = |_| format!("annotation {TIMESTAMP} is malformed");
    let token: Token = serde_json::from_str(annotation).map_err(malformed)?;
    let token = TimestampToken::from_base64(&token.token)
        .map_err(|error| format!("annotation {TIMESTAMP}: {error}"))?;
    Ok(TimestampVerificationData::new(vec![Rfc3161Timestamp::new(
        token,
    )]))
}

/// An entry of a transparency log as an annotation carries it: with the log's promise, without proof.
pub(super) struct LogEntry {
    pub(super) entry: TransparencyLogEntry,
    promised: String,
    promise: SignatureBytes,
    log: Sha256Hash,
    time: jiff::Timestamp,
}

impl LogEntry {
    /// The entry of an attached signature, if it has one.
    pub(super) fn of(attached: &Attached) -> Result<Option<Self>, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Annotation {
            signed_entry_timestamp: String,
            payload: Payload,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Payload {
            body: String,
            integrated_time: i64,
            log_index: u64,
            #[serde(rename = "logID")]
            log_id: String,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind {
            kind: String,
            api_version: String,
        }
        let Some(text) = attached.annotations.get(LOG_ENTRY) else {
            return Ok(None);
        };
        let malformed = |what: &dyn fmt::Display| format!("annotation {LOG_ENTRY}: {what}");
        let annotation: Annotation =
            serde_json::from_str(text).map_err(|error| malformed(&error))?;
        let payload = annotation.payload;
        let body = STANDARD
            .decode(&payload.body)
            .map_err(|error| malformed(&error))?;
        let kind: Kind = serde_json::from_slice(&body).map_err(|error| malformed(&error))?;
        if kind.kind != "hashedrekord" || kind.api_version != "0.0.1" {
            let what = format!("an entry of kind {} {}", kind.kind, kind.api_version);
            return Err(malformed(&what));
        }
        let log = Sha256Hash::from_hex(&payload.log_id).map_err(|error| malformed(&error))?;
        let time = jiff::Timestamp::from_second(payload.integrated_time)
            .map_err(|error| malformed(&error))?;
        let promise = SignedTimestamp::from_base64(&annotation.signed_entry_timestamp)
            .map_err(|error| malformed(&error))?;
        let index = LogIndex::new(payload.log_index).map_err(|error| malformed(&error))?;
        // What the log signed, in the canonical form of JSON: keys in order, no blanks.
        let promised = serde_json::json!({
            "body": payload.body,
            "integratedTime": payload.integrated_time,
            "logIndex": payload.log_index,
            "logID": payload.log_id,
        });
        let entry = TransparencyLogEntry::new(
            index,
            LogId::new(LogKeyId::from_bytes(log.as_bytes())),
            KindVersion::HashedRekordV001,
            CanonicalizedBody::new(body),
        )
        .with_integrated_time(time)
        .with_inclusion_promise(InclusionPromise::new(promise.clone()));
        Ok(Some(Self {
            entry,
            promised: promised.to_string(),
            promise: SignatureBytes::new(promise.as_bytes().to_vec()),
            log,
            time,
        }))
    }

    /// Whether a log with one of these keys promised to keep the entry.
    pub(super) fn check_promise(&self, keys: &Keyring) -> Result<(), String> {
        let key = keys
            .key_at(&self.log, self.time)
            .ok_or_else(|| format!("unknown transparency log {}", self.log.to_hex()))?;
        key.verify(self.promised.as_bytes(), &self.promise)
            .map_err(|_| "the transparency log did not sign its entry".to_owned())
    }
}
