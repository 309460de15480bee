//! What the real cosign, helm and gpg signed, and what becomes of it when somebody tampers: each as it should be.
//!
//! `make record-signatures` makes the specimens.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

mod cosign;
mod policies;
mod provenance;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use signatures::{Address, Attached, Evidence, Policy, Refusal, Subject, Verified};

pub(crate) const REGISTRY: &str = "127.0.0.1:5599";
pub(crate) const ISSUER: &str = "https://issuer.test.invalid";

pub(crate) fn specimen(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/specimens")
        .join(name)
}

pub(crate) fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(specimen(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(crate) fn text(name: &str) -> String {
    String::from_utf8(bytes(name)).unwrap()
}

pub(crate) fn json_of(name: &str) -> Value {
    serde_json::from_slice(&bytes(name)).unwrap()
}

pub(crate) fn digest_of(name: &str) -> String {
    format!(
        "sha256:{}",
        golib::hex::encode(&Sha256::digest(bytes(name)))
    )
}

pub(crate) fn address(text: &str) -> Address {
    Address::from(&text.parse().unwrap())
}

/// The chart of the registry cases, as it is pulled from a repository.
pub(crate) fn pulled(repository: &str) -> Subject {
    Subject {
        addresses: vec![address(&format!("oci://{repository}:1.1.0"))],
        archive: digest_of("web-1.1.0.tgz"),
        manifest: Some(text("manifest.digest").trim().to_owned()),
        repository: Some(repository.to_owned()),
        file_name: "web-1.1.0.tgz".to_owned(),
        ..Subject::default()
    }
}

/// What a registry holds, as it was recorded.
pub(crate) fn found(case: &Value) -> Evidence {
    let attached = case["attached"].as_array().unwrap().iter();
    let bundles = case["bundles"].as_array().unwrap().iter();
    Evidence {
        provenance: None,
        attached: attached
            .map(|one| Attached {
                payload: one["payload"].as_str().unwrap().into(),
                annotations: serde_json::from_value(one["annotations"].clone()).unwrap(),
            })
            .collect(),
        bundles: bundles.map(|one| one.as_str().unwrap().into()).collect(),
        left_out: 0,
    }
}

pub(crate) fn policy(signers: Value) -> Policy {
    let rule = json!({"name": "r", "sources": ["oci://**", "https://**"], "signedBy": signers});
    Policy::parse(&json!({"rules": [rule]}).to_string()).unwrap()
}

pub(crate) fn checked(
    policy: &Policy,
    subject: &Subject,
    evidence: &Evidence,
) -> Result<Verified, Refusal> {
    policy.demands(subject, None)?.check(subject, evidence)
}

pub(crate) fn key(name: &str) -> Value {
    json!({"name": name, "cosign": {"publicKey": text(&format!("{name}.pub"))}})
}

pub(crate) fn logged_key() -> Value {
    json!({"cosign": {"publicKey": text("key.pub"), "trustedRoot": text("root.json")}})
}

pub(crate) fn identity(root: &str) -> Value {
    json!({"cosign": {"identity": "release@test.invalid", "issuer": ISSUER, "trustedRoot": json_of(root)}})
}

pub(crate) fn workflow(pattern: &str) -> Value {
    json!({"cosign": {"identityRegExp": pattern, "issuer": ISSUER, "trustedRoot": text("root.json")}})
}
