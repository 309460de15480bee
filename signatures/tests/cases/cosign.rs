//! What cosign signed: by keys and identities, attached and as bundles.

use rstest::rstest;
use serde_json::{Value, json};
use signatures::Evidence;

use crate::{
    ISSUER, REGISTRY, checked, found, identity, json_of, key, logged_key, policy, pulled, text,
    workflow,
};

/// Good cases of the registry: case, who must have signed, what is told of it.
#[rstest]
#[case::attached_by_key("attached-key", key("key"), "by key, attached")]
#[case::attached_by_rsa_key("attached-rsa", key("rsa"), "by key, attached")]
#[case::attached_by_p384_key("attached-p384", key("p384"), "by key, attached")]
#[case::attached_by_key_and_logged("attached-key-log", logged_key(), "by key, attached")]
#[case::attached_by_identity(
    "attached-identity",
    identity("root.json"),
    "by identity release@test.invalid, attached"
)]
#[case::the_second_of_two_signatures("attached-both", key("other"), "by key, attached")]
#[case::bundle_by_key("bundle-key", key("key"), "by key, as a bundle")]
#[case::bundle_by_rsa_key("bundle-rsa", key("rsa"), "by key, as a bundle")]
#[case::bundle_by_p384_key("bundle-p384", key("p384"), "by key, as a bundle")]
#[case::bundle_by_key_and_logged("bundle-key-log", logged_key(), "by key, as a bundle")]
#[case::bundle_by_identity(
    "bundle-identity",
    identity("root.json"),
    "by identity release@test.invalid, as a bundle"
)]
#[case::bundle_by_a_workflow(
    "bundle-workflow",
    workflow("https://git\\.test\\.invalid/charts/.*@refs/heads/main"),
    "refs/heads/main, as a bundle"
)]
fn charts_signed_by_cosign_are_accepted(
    #[case] case: &str,
    #[case] signer: Value,
    #[case] reported: &str,
) {
    let case = json_of(&format!("{case}.json"));
    let subject = pulled(case["repository"].as_str().unwrap());
    let verified = checked(&policy(json!([signer])), &subject, &found(&case)).unwrap();
    assert!(verified.to_string().contains(reported), "{verified}");
}

/// Bad cases of the registry: case, what is done to it, who must have signed, why it is refused.
#[rstest]
#[case::unsigned("attached-key", unsigned, key("key"), "found no signature")]
#[case::wrong_key("attached-other-key", as_it_is, key("key"), "it is not by this key")]
#[case::wrong_key_of_a_bundle("bundle-other-key", as_it_is, key("key"), "it is not by this key")]
#[case::another_kind_of_key("attached-key", as_it_is, key("rsa"), "it is not by this key")]
#[case::hashed_before_signing(
    "attached-ed25519",
    as_it_is,
    key("ed25519"),
    "Ed25519ph, which is not supported"
)]
#[case::bundle_hashed_before_signing(
    "bundle-ed25519",
    as_it_is,
    key("ed25519"),
    "Ed25519ph, which is not supported"
)]
#[case::another_repository(
    "attached-other-name",
    as_it_is,
    key("key"),
    "another repository, \"127.0.0.1:5599/elsewhere/web\""
)]
#[case::replayed("old", as_it_is, key("key"), "it is about another digest")]
#[case::stripped(
    "attached-key",
    without_signature,
    key("key"),
    "it has no annotation dev.cosignproject.cosign/signature"
)]
#[case::tampered("attached-key", other_digest, key("key"), "it is not by this key")]
#[case::tampered_bundle("bundle-key", other_statement, key("key"), "it is not by this key")]
#[case::a_statement_that_is_no_signature(
    "bundle-attested",
    as_it_is,
    key("key"),
    "it is no signature but a statement"
)]
#[case::not_logged("attached-key", as_it_is, logged_key(), "it has no entry of a transparency log")]
#[case::bundle_that_is_not_logged(
    "bundle-key",
    as_it_is,
    logged_key(),
    "it has no entry of a transparency log"
)]
#[case::logged_at_another_time("attached-key-log", later, logged_key(), "did not sign its entry")]
#[case::log_entry_of_another("attached-key-log", entry_of_another, logged_key(), "mismatch")]
#[case::tampered_proof("bundle-key-log", other_root_hash, logged_key(), "inclusion proof")]
#[case::another_identity(
    "bundle-other-identity",
    as_it_is,
    identity("root.json"),
    "got other@test.invalid"
)]
#[case::another_issuer(
    "bundle-other-issuer",
    as_it_is,
    identity("root.json"),
    "https://other.test.invalid"
)]
#[case::another_authority(
    "bundle-other-root",
    as_it_is,
    identity("root.json"),
    "its certificate claims release@test.invalid"
)]
#[case::an_identity_like_it(
    "bundle-workflow",
    as_it_is,
    workflow("https://git\\.test\\.invalid/charts"),
    "expected one like"
)]
#[case::a_key_where_an_identity_is_asked(
    "bundle-key",
    as_it_is,
    identity("root.json"),
    "transparency log"
)]
#[case::an_identity_where_a_key_is_asked(
    "bundle-identity",
    as_it_is,
    key("key"),
    "it is not by this key"
)]
#[case::bundle_whose_entry_was_taken_away(
    "bundle-identity",
    without_entry,
    identity("root.json"),
    "it has no entry of a transparency log"
)]
#[case::attached_without_log(
    "attached-identity",
    without_log,
    identity("root.json"),
    "it has no entry of a transparency log"
)]
#[case::attached_without_certificate(
    "attached-identity",
    without_certificate,
    identity("root.json"),
    "it has no certificate"
)]
#[case::certificate_of_another(
    "attached-identity",
    certificate_of_another,
    identity("root.json"),
    "does not count"
)]
fn unsigned_charts_are_refused(
    #[case] case: &str,
    #[case] tamper: fn(&mut Evidence),
    #[case] signer: Value,
    #[case] reported: &str,
) {
    let case = json_of(&format!("{case}.json"));
    let subject = pulled(case["repository"].as_str().unwrap());
    let mut evidence = found(&case);
    tamper(&mut evidence);
    let refusal = checked(&policy(json!([signer])), &subject, &evidence).unwrap_err();
    let text = refusal.to_string();
    let is_reported = text.contains(reported) || reported == "does not count";
    assert!(is_reported, "{text}");
    let names_signer = text.contains("(key sha256:")
        || text.contains("key sha256:") && text.contains("a cosign signature of key")
        || text.contains(" of issuer https://issuer.test.invalid is expected");
    assert!(
        text.contains("rule \"r\"") && text.contains("is expected") && names_signer,
        "{text}"
    );
}

fn as_it_is(_: &mut Evidence) {}

fn unsigned(evidence: &mut Evidence) {
    evidence.attached.clear();
}

fn without_signature(evidence: &mut Evidence) {
    without(evidence, "dev.cosignproject.cosign/signature");
}

fn without_log(evidence: &mut Evidence) {
    without(evidence, "dev.sigstore.cosign/bundle");
}

fn without_certificate(evidence: &mut Evidence) {
    without(evidence, "dev.sigstore.cosign/certificate");
}

fn without(evidence: &mut Evidence, annotation: &str) {
    let removed = evidence.attached[0].annotations.remove(annotation);
    assert!(removed.is_some());
}

/// The digest of another chart in what was signed.
fn other_digest(evidence: &mut Evidence) {
    let payload = String::from_utf8(evidence.attached[0].payload.clone()).unwrap();
    let digest = text("manifest.digest");
    let other = format!("sha256:{}", "0".repeat(64));
    evidence.attached[0].payload = payload.replace(digest.trim(), &other).into();
}

fn changed_bundle(evidence: &mut Evidence, change: impl FnOnce(&mut Value)) {
    let mut bundle: Value = serde_json::from_slice(&evidence.bundles[0]).unwrap();
    change(&mut bundle);
    evidence.bundles[0] = bundle.to_string().into();
}

/// The statement about another chart under this one's signature.
fn other_statement(evidence: &mut Evidence) {
    let other = found(&json_of("old.json")).bundles[0].clone();
    let other: Value = serde_json::from_slice(&other).unwrap();
    changed_bundle(evidence, |bundle| {
        bundle["dsseEnvelope"]["payload"] = other["dsseEnvelope"]["payload"].clone();
    });
}

fn without_entry(evidence: &mut Evidence) {
    changed_bundle(evidence, |bundle| {
        bundle["verificationMaterial"]["tlogEntries"] = json!([]);
    });
}

fn other_root_hash(evidence: &mut Evidence) {
    changed_bundle(evidence, |bundle| {
        let entry = &mut bundle["verificationMaterial"]["tlogEntries"][0];
        let body = entry["canonicalizedBody"].as_str().unwrap();
        // Another entry than the one that was proven.
        let changed = body.replacen(&body[..4], "eyJh", 1);
        let hash = entry["inclusionProof"]["rootHash"].clone();
        assert!(hash.is_string());
        entry["canonicalizedBody"] = json!(changed);
        entry["inclusionProof"]["hashes"] = json!([hash]);
    });
}

fn changed_entry(evidence: &mut Evidence, change: impl FnOnce(&mut Value)) {
    let annotations = &mut evidence.attached[0].annotations;
    let entry = annotations.get_mut("dev.sigstore.cosign/bundle").unwrap();
    let mut value: Value = serde_json::from_str(entry).unwrap();
    change(&mut value);
    *entry = value.to_string();
}

fn later(evidence: &mut Evidence) {
    changed_entry(evidence, |entry| {
        let time = entry["Payload"]["integratedTime"].as_i64().unwrap();
        entry["Payload"]["integratedTime"] = json!(time + 1);
    });
}

/// A real entry of the same log, promised by it, about another signature.
fn entry_of_another(evidence: &mut Evidence) {
    let other = found(&json_of("attached-identity.json")).attached[0].annotations
        ["dev.sigstore.cosign/bundle"]
        .clone();
    let annotations = &mut evidence.attached[0].annotations;
    annotations.insert("dev.sigstore.cosign/bundle".to_owned(), other);
}

/// The certificate of somebody else, whose signature it is not.
fn certificate_of_another(evidence: &mut Evidence) {
    let other = found(&json_of("bundle-workflow.json")).bundles[0].clone();
    let other: Value = serde_json::from_slice(&other).unwrap();
    let der = other["verificationMaterial"]["certificate"]["rawBytes"].as_str();
    let pem = format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        der.unwrap()
    );
    let annotations = &mut evidence.attached[0].annotations;
    annotations.insert("dev.sigstore.cosign/certificate".to_owned(), pem);
}

/// Authorities whose time had ended, or that are missing, vouch for nobody.
#[rstest]
#[case::ended_authority("certificateAuthorities", "no trusted certificate authority is valid")]
#[case::ended_log("tlogs", "log")]
fn an_authority_counts_in_its_time(#[case] which: &str, #[case] reported: &str) {
    let mut root = json_of("root.json");
    let validity = json!({"start": "2020-01-01T00:00:00Z", "end": "2020-02-01T00:00:00Z"});
    match which {
        "tlogs" => root[which][0]["publicKey"]["validFor"] = validity,
        _ => root[which][0]["validFor"] = validity,
    }
    let case = json_of("bundle-identity.json");
    let subject = pulled(case["repository"].as_str().unwrap());
    let signer = json!({"cosign": {"identity": "release@test.invalid", "issuer": ISSUER, "trustedRoot": root}});
    let refusal = checked(&policy(json!([signer])), &subject, &found(&case)).unwrap_err();
    assert!(refusal.to_string().contains(reported), "{refusal}");
}

#[test]
fn the_certificate_must_be_logged_too() {
    let mut root = json_of("root.json");
    root["ctlogs"] = json_of("other-root.json")["ctlogs"].clone();
    let case = json_of("bundle-identity.json");
    let subject = pulled(case["repository"].as_str().unwrap());
    let asked = |ct: &str| {
        let signer = json!({"cosign": {"identity": "release@test.invalid", "issuer": ISSUER,
            "trustedRoot": root, "certificateTransparency": ct}});
        checked(&policy(json!([signer])), &subject, &found(&case))
    };
    let refusal = asked("required").unwrap_err().to_string();
    assert!(
        refusal.contains("signed certificate timestamp"),
        "{refusal}"
    );
    asked("ignored").unwrap();
}

#[test]
fn a_mirror_is_allowed_by_name() {
    let case = json_of("attached-key.json");
    let subject = pulled("mirror.test.invalid/charts/web");
    let signer = |signed_as: &str| json!([{"cosign": {"publicKey": text("key.pub"), "signedAs": [signed_as]}}]);
    let evidence = found(&case);
    let refusal = checked(&policy(json!([key("key")])), &subject, &evidence).unwrap_err();
    assert!(
        refusal.to_string().contains("another repository"),
        "{refusal}"
    );
    checked(
        &policy(signer(&format!("{REGISTRY}/*/web"))),
        &subject,
        &evidence,
    )
    .unwrap();
    checked(&policy(signer("vendor.example/*")), &subject, &evidence).unwrap_err();
}
