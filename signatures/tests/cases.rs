//! What the real cosign, helm and gpg signed, and what becomes of it when somebody tampers: each as it should be.
//!
//! `make record-signatures` makes the specimens.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use std::path::{Path, PathBuf};

use rstest::rstest;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use signatures::openpgp::{Cleartext, Keyring};
use signatures::policy::BundleRule;
use signatures::{Attached, Evidence, Policy, Refusal, Subject, Verified};

const REGISTRY: &str = "127.0.0.1:5599";
const ISSUER: &str = "https://issuer.test.invalid";

fn specimen(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/specimens")
        .join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(specimen(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn text(name: &str) -> String {
    String::from_utf8(bytes(name)).unwrap()
}

fn json_of(name: &str) -> Value {
    serde_json::from_slice(&bytes(name)).unwrap()
}

fn digest_of(name: &str) -> String {
    format!(
        "sha256:{}",
        golib::hex::encode(&Sha256::digest(bytes(name)))
    )
}

/// The chart of the registry cases, as it is pulled from a repository.
fn pulled(repository: &str) -> Subject {
    Subject {
        addresses: vec![format!("oci://{repository}:1.1.0")],
        archive: digest_of("web-1.1.0.tgz"),
        manifest: Some(text("manifest.digest").trim().to_owned()),
        repository: Some(repository.to_owned()),
        file_name: "web-1.1.0.tgz".to_owned(),
    }
}

/// What a registry holds, as it was recorded.
fn found(case: &Value) -> Evidence {
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

fn policy(signers: Value) -> Policy {
    let rule = json!({"name": "r", "sources": ["oci://**", "https://**"], "signedBy": signers});
    Policy::parse(&json!({"rules": [rule]}).to_string()).unwrap()
}

fn checked(policy: &Policy, subject: &Subject, evidence: &Evidence) -> Result<Verified, Refusal> {
    policy.demands(subject, None)?.check(subject, evidence)
}

fn key(name: &str) -> Value {
    json!({"name": name, "cosign": {"publicKey": text(&format!("{name}.pub"))}})
}

fn logged_key() -> Value {
    json!({"cosign": {"publicKey": text("key.pub"), "trustedRoot": text("root.json")}})
}

fn identity(root: &str) -> Value {
    json!({"cosign": {"identity": "release@test.invalid", "issuer": ISSUER, "trustedRoot": json_of(root)}})
}

fn workflow(pattern: &str) -> Value {
    json!({"cosign": {"identityRegExp": pattern, "issuer": ISSUER, "trustedRoot": text("root.json")}})
}

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
fn what_cosign_signs_counts(#[case] case: &str, #[case] signer: Value, #[case] told: &str) {
    let case = json_of(&format!("{case}.json"));
    let subject = pulled(case["repository"].as_str().unwrap());
    let verified = checked(&policy(json!([signer])), &subject, &found(&case)).unwrap();
    assert!(verified.to_string().contains(told), "{verified}");
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
fn what_nobody_signed_is_refused(
    #[case] case: &str,
    #[case] tamper: fn(&mut Evidence),
    #[case] signer: Value,
    #[case] told: &str,
) {
    let case = json_of(&format!("{case}.json"));
    let subject = pulled(case["repository"].as_str().unwrap());
    let mut evidence = found(&case);
    tamper(&mut evidence);
    let refusal = checked(&policy(json!([signer])), &subject, &evidence).unwrap_err();
    let text = refusal.to_string();
    let is_told = text.contains(told) || told == "does not count";
    assert!(is_told, "{text}");
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
fn an_authority_counts_in_its_time(#[case] which: &str, #[case] told: &str) {
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
    assert!(refusal.to_string().contains(told), "{refusal}");
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

/// A chart over HTTP, with its provenance file.
fn downloaded(case: &str) -> Subject {
    Subject {
        addresses: vec!["https://charts.test.invalid/web-1.1.0.tgz".to_owned()],
        archive: digest_of(&format!("{case}.tgz")),
        file_name: "web-1.1.0.tgz".to_owned(),
        ..Subject::default()
    }
}

fn provenance(file: Vec<u8>) -> Evidence {
    Evidence {
        provenance: Some(file),
        ..Evidence::default()
    }
}

fn keyring(name: &str) -> Value {
    json!([{"name": "maintainers", "provenance": {"keyring": text(&format!("{name}.asc"))}}])
}

#[rstest]
#[case::by_helm_with_rsa("rsa", "rsa-maintainer")]
#[case::by_helm_with_ed25519("ed25519", "ed25519-maintainer")]
#[case::by_one_of_a_keyring("rsa", "keyring")]
#[case::by_a_subkey("subkey", "subkey-maintainer")]
#[case::before_its_key_was_revoked("revoked", "revoked-before")]
#[case::by_p256_with_sha512("p256", "p256-maintainer")]
#[case::by_p384_with_sha512("p384", "p384-maintainer")]
fn what_helm_and_gpg_sign_counts(#[case] case: &str, #[case] keys: &str) {
    let archive = match case {
        "rsa" | "ed25519" => case,
        _ => "rsa",
    };
    let subject = downloaded(archive);
    let evidence = provenance(bytes(&format!("{case}.prov")));
    let verified = checked(&policy(keyring(keys)), &subject, &evidence).unwrap();
    assert!(
        verified.to_string().contains("@test.invalid)"),
        "{verified}"
    );
}

#[rstest]
#[case::missing(|_: String| None, "rsa-maintainer", "there is no provenance file")]
#[case::by_nobody_known(Some, "stranger", "is not in the keyring")]
#[case::tampered(|file: String| Some(file.replace("1.1.0", "1.2.0")), "rsa-maintainer", "does not match")]
#[case::something_before(|file: String| Some(format!("files: {{}}\n{file}")), "rsa-maintainer", "signature block not found")]
#[case::something_after(|file: String| Some(format!("{file}\nfiles: {{}}\n")), "rsa-maintainer", "something follows the signature")]
#[case::another_header(|file: String| Some(file.replace("Hash: SHA512", "Comment: x")), "rsa-maintainer", "a header other than Hash")]
#[case::text_as_header(|file: String| Some(file.replacen("Hash: SHA512\n\n", "Hash: SHA512\nfiles: {}\n\n", 1)), "rsa-maintainer", "a header other than Hash")]
#[case::dash_that_is_not_escaped(|file: String| Some(file.replacen("apiVersion", "- x\n-y\napiVersion", 1)), "rsa-maintainer", "a dash that is not escaped")]
#[case::a_line_more(|file: String| Some(file.replacen("apiVersion", "- x\napiVersion", 1)), "rsa-maintainer", "does not match")]
#[case::control_characters(|file: String| Some(file.replacen("name: web", "name: web\rname: x", 1)), "rsa-maintainer", "control characters")]
#[case::cut_short(|file: String| Some(file[..file.len() / 2].to_owned()), "rsa-maintainer", "is missing")]
fn provenance_that_does_not_count(
    #[case] tamper: impl Fn(String) -> Option<String>,
    #[case] keys: &str,
    #[case] told: &str,
) {
    let evidence = match tamper(text("rsa.prov")) {
        Some(file) => provenance(file.into()),
        None => Evidence::default(),
    };
    let refusal = checked(&policy(keyring(keys)), &downloaded("rsa"), &evidence).unwrap_err();
    assert!(refusal.to_string().contains(told), "{refusal}");
}

#[rstest]
#[case::of_a_key_that_ended("ended", "ended", "has expired")]
#[case::of_a_key_that_was_revoked("revoked", "revoked", "is revoked")]
#[case::that_ended("ended-signature", "rsa-maintainer", "older than its key")]
#[case::with_sha1("sha1", "rsa-maintainer", "uses SHA-1, which does not count")]
fn signatures_of_gpg_that_do_not_count(#[case] case: &str, #[case] keys: &str, #[case] told: &str) {
    let evidence = provenance(bytes(&format!("{case}.prov")));
    let refusal = checked(&policy(keyring(keys)), &downloaded("rsa"), &evidence).unwrap_err();
    assert!(refusal.to_string().contains(told), "{refusal}");
}

#[test]
fn provenance_is_about_one_file() {
    let policy = policy(keyring("rsa-maintainer"));
    let evidence = provenance(bytes("rsa.prov"));
    let other_archive = Subject {
        archive: digest_of("config.json"),
        ..downloaded("rsa")
    };
    let refusal = checked(&policy, &other_archive, &evidence).unwrap_err();
    assert!(
        refusal.to_string().contains("sha256 sum does not match"),
        "{refusal}"
    );
    let other_name = Subject {
        file_name: "web-1.0.0.tgz".to_owned(),
        ..downloaded("rsa")
    };
    let refusal = checked(&policy, &other_name, &evidence).unwrap_err();
    let told = "does not contain a SHA for a file named \"web-1.0.0.tgz\"";
    assert!(refusal.to_string().contains(told), "{refusal}");
}

/// The bytes of a block of keys.
fn dearmored(name: &str) -> Vec<u8> {
    let text = text(name);
    let lines = text.lines().skip_while(|line| !line.is_empty());
    let data = lines
        .skip(1)
        .take_while(|line| !line.starts_with(['=', '-']));
    golib::base64::decode(data.collect::<String>()).unwrap()
}

/// A name that was taken back is none any more, nor is one whose revocation cannot be read.
#[test]
fn a_name_that_is_revoked_is_none() {
    let names = |keys: &[u8]| {
        let text = Cleartext::parse(&bytes("two-names.prov")).unwrap();
        Keyring::parse(keys).unwrap().verify(&text).unwrap().users
    };
    let keys = dearmored("two-names.asc");
    assert_eq!(names(&keys), ["two-names@test.invalid"]);
    // Version, what it is about, RSA, SHA-512: the only one of this kind.
    let is_revocation = |bytes: &[u8]| bytes == [4, 0x30, 1, 10];
    let at = keys.windows(4).position(is_revocation).unwrap();
    for (offset, other) in [(3, 99), (2, 99), (0, 6), (3, 8)] {
        let mut keys = keys.clone();
        keys[at + offset] = other;
        assert_eq!(names(&keys), ["two-names@test.invalid"], "{offset} {other}");
    }
    // Of another kind it is no revocation.
    let mut keys = keys.clone();
    keys[at + 1] = 0x13;
    assert_eq!(names(&keys).len(), 2);
}

#[test]
fn a_key_counts_until_it_ends() {
    let keys = Keyring::parse(&bytes("ended.asc")).unwrap();
    let text = Cleartext::parse(&bytes("ended.prov")).unwrap();
    // 2024-07-01 and 2026-01-01.
    keys.verify_at(&text, 1_719_792_000).unwrap();
    keys.verify_at(&text, 1_767_225_600).unwrap_err();
}

#[test]
fn digests_are_pinned() {
    let subject = pulled("127.0.0.1:5599/charts/web");
    let pinned = |digests: Value| {
        let rule =
            json!({"name": "r", "sources": ["oci://127.0.0.1:5599/charts/*"], "digests": digests});
        let policy = Policy::parse(&json!({"rules": [rule]}).to_string()).unwrap();
        checked(&policy, &subject, &Evidence::default())
    };
    pinned(json!([subject.archive])).unwrap();
    pinned(json!([subject.manifest])).unwrap();
    let refusal = pinned(json!([format!("sha256:{}", "0".repeat(64))])).unwrap_err();
    let refusal = refusal.to_string();
    assert!(
        refusal.contains(&subject.archive) && refusal.contains("is expected"),
        "{refusal}"
    );
}

#[test]
fn every_rule_that_is_about_a_chart_counts() {
    let rule = |name: &str, source: &str, signer: &str| json!({"name": name, "sources": [source], "signedBy": [key(signer)]});
    let rules = [
        rule("wide", "oci://127.0.0.1:5599/**", "key"),
        rule("narrow", "oci://127.0.0.1:5599/attached-key/*", "other"),
        rule("elsewhere", "oci://r.example/**", "rsa"),
    ];
    let policy = Policy::parse(&json!({"rules": rules}).to_string()).unwrap();
    let case = json_of("attached-key.json");
    let subject = pulled(case["repository"].as_str().unwrap());
    let refusal = checked(&policy, &subject, &found(&case)).unwrap_err();
    let unmet: Vec<&str> = refusal
        .unmet
        .iter()
        .map(|unmet| unmet.rule.as_str())
        .collect();
    assert_eq!(unmet, ["narrow"]);
    checked(&policy, &subject, &found(&json_of("attached-both.json"))).unwrap();
}

#[test]
fn a_bundle_adds_to_the_policy_and_takes_nothing_away() {
    let named = json!({"name": "strict", "signedBy": [key("other")]});
    let rule =
        json!({"name": "r", "sources": ["oci://127.0.0.1:5599/**"], "signedBy": [key("key")]});
    let policy = Policy::parse(&json!({"rules": [rule, named]}).to_string()).unwrap();
    let case = json_of("attached-key.json");
    let subject = pulled(case["repository"].as_str().unwrap());
    let asked = |own: &str, case: &str| {
        let own = BundleRule::parse(own).unwrap();
        policy
            .demands(&subject, Some(&own))?
            .check(&subject, &found(&json_of(case)))
    };
    // Its own digest does not stand in for the signature.
    let digest = json!({"digests": [subject.archive]}).to_string();
    asked(&digest, "attached-key.json").unwrap();
    asked(&digest, "attached-other-key.json").unwrap_err();
    // A rule by name adds another key; one that is not there is no rule.
    let refusal = asked("strict", "attached-key.json").unwrap_err();
    assert_eq!(refusal.unmet[0].rule, "strict");
    asked("strict", "attached-both.json").unwrap();
    let refusal = asked("lax", "attached-key.json").unwrap_err().to_string();
    assert!(refusal.contains("none of that name"), "{refusal}");
    for text in [
        "",
        "[]",
        "{}",
        "{digests: []}",
        "{signedBy: []}",
        "{sources: ['oci://**'], digests: []}",
    ] {
        BundleRule::parse(text).unwrap_err();
    }
}

#[test]
fn no_spelling_of_an_address_escapes_a_rule() {
    let zeros = format!("sha256:{}", "0".repeat(64));
    let sources = [
        "https://Charts.example/stable/**",
        "oci://registry.example/charts/*",
    ];
    let rule = json!({"name": "r", "sources": sources, "digests": [zeros]});
    let policy = Policy::parse(&json!({"rules": [rule]}).to_string()).unwrap();
    for address in [
        "https://charts.example/stable/web",
        "HTTPS://CHARTS.EXAMPLE:443/stable/web-1.0.0.tgz",
        "https://user:password@charts.example./stable//web",
        "https://charts.example/x/../stable/web?v=1",
        "https://charts.example/%73table/web",
        "https://charts.example/stable/%3F/web",
        "https://charts.example\\stable\\web",
        "https://charts.example/x/%2e%2e/stable/web",
        "https://charts.example/x%2f..%2fstable/web",
        " https://charts.example/stable/web",
        "oci://registry.example/charts/web",
        "oci://Registry.example:443/charts/web:1.0.0",
        "oci://registry.example/charts/web:1.0.0@sha256:00",
        "https://registry.example/v2/charts/web/blobs/sha256:00",
        "http://registry.example/x/..//v2/charts/%77eb/manifests/1.0.0",
    ] {
        let subject = Subject {
            addresses: vec![address.to_owned()],
            ..Subject::default()
        };
        let demands = policy.demands(&subject, None).unwrap();
        assert!(!demands.are_none(), "{address}");
    }
    for address in [
        "https://charts.example/other/web",
        "oci://registry.example/charts/deep/web",
        "https://registry.example/v2/charts/deep/web/blobs/sha256:00",
        "https://registry.example/v2/blobs/sha256:00",
    ] {
        let subject = Subject {
            addresses: vec![address.to_owned()],
            ..Subject::default()
        };
        assert!(
            policy.demands(&subject, None).unwrap().are_none(),
            "{address}"
        );
    }
}

#[test]
fn charts_that_no_rule_is_about_may_be_refused() {
    let policy = Policy::parse("unmatched: refuse\ncontent: refuse\n").unwrap();
    assert!(policy.refuses_content());
    let subject = pulled("127.0.0.1:5599/charts/web");
    policy.demands(&subject, None).unwrap_err();
    // What a bundle asks for does not stand in for the policy.
    let own = json!({"digests": [subject.archive]}).to_string();
    let own = BundleRule::parse(&own).unwrap();
    policy.demands(&subject, Some(&own)).unwrap_err();
}

#[rstest]
#[case("rules: [{name: a, sources: ['oci://**']}]", "rules[0]: it asks for nothing")]
#[case(
    "rules: [{name: a, sources: ['registry/**'], digests: []}]",
    "a pattern begins with a scheme"
)]
#[case("rules: [{name: a, signedby: []}]", "unknown field `signedby`")]
#[case("rules: [{digests: ['sha256:12']}]", "digests[0]: a digest is sha256:")]
#[case("rules: []\nrules: []", "already set in map")]
#[case("unmatched: deny", "unknown variant `deny`")]
#[case("", "it is empty")]
#[case("# nothing", "it is empty")]
#[case("rules: []\n---\nunmatched: refuse", "more than one document")]
#[case("---\n---\nunmatched: refuse", "more than one document")]
#[case(
    "rules: [{name: a, sources: ['oci://r/**'], digests: ['sha256:12'], signedBy: }]",
    "invalid type: null"
)]
#[case("rules: [{name: a, sources: [], digests: ['sha256:12']}]", "sources: it is empty")]
#[case(
    "rules: [{name: a, sources: ['https://h/my%20charts/**'], digests: ['sha256:12']}]",
    "a pattern has no user"
)]
#[case(
    "rules: [{name: a, sources: ['https://user@h/**'], digests: ['sha256:12']}]",
    "a pattern has no user"
)]
#[case("rules: [{name: a, signedBy: [{}]}]", "either cosign or provenance")]
#[case("rules: [{name: a, signedBy: [{cosign: {publicKey: x}}]}]", "signedBy[0].cosign.publicKey")]
#[case(
    "rules: [{name: a, signedBy: [{cosign: {identity: a@b, issuer: c}}]}]",
    "trustedRoot, is expected"
)]
#[case(
    "rules: [{name: a, signedBy: [{provenance: {keyring: ''}}]}]",
    "provenance.keyring: the keyring has no public key"
)]
fn a_policy_that_is_malformed_is_none(#[case] policy: &str, #[case] told: &str) {
    let error = Policy::parse(policy).unwrap_err().to_string();
    assert!(error.contains(told), "{error}");
}

#[test]
fn a_pattern_is_about_the_address_that_it_is() {
    let zeros = format!("sha256:{}", "0".repeat(64));
    for (pattern, address) in [
        (
            "oci://registry.example:443/charts/**",
            "oci://registry.example/charts/web",
        ),
        ("http://h.example:80/**", "http://h.example/web"),
        (
            "https://B\u{fc}cher.example./**",
            "https://xn--bcher-kva.example/web",
        ),
        (
            "oci://docker.io/acme/**",
            "oci://index.docker.io/acme/web:1.0.0",
        ),
        (
            "oci://registry-1.docker.io/acme/**",
            "oci://docker.io/acme/web",
        ),
        ("https://h.example/**", "http://h.example/web"),
        ("https://h.example/?é/*", "https://h.example/aé/web"),
        (
            "oci://docker.io/acme/*",
            "https://registry-1.docker.io/v2/acme/web/blobs/sha256:00",
        ),
    ] {
        let rule = json!({"name": "r", "sources": [pattern], "digests": [zeros]});
        let policy = Policy::parse(&json!({"rules": [rule]}).to_string()).unwrap();
        let subject = Subject {
            addresses: vec![address.to_owned()],
            ..Subject::default()
        };
        assert!(
            !policy.demands(&subject, None).unwrap().are_none(),
            "{pattern}"
        );
    }
}

#[test]
fn a_copy_from_before_its_revocation_takes_nothing_back() {
    let both = format!("{}\n{}", text("revoked-before.asc"), text("revoked.asc"));
    let signer = json!([{"provenance": {"keyring": both}}]);
    let evidence = provenance(bytes("revoked.prov"));
    let refusal = checked(&policy(signer), &downloaded("rsa"), &evidence).unwrap_err();
    assert!(refusal.to_string().contains("is revoked"), "{refusal}");
}

/// Whatever is done to a file, reading it ends, and only what was signed counts.
#[test]
fn broken_files_are_refused() {
    let policy = policy(keyring("keyring"));
    let subject = downloaded("rsa");
    let file = bytes("rsa.prov");
    for at in 0..file.len() {
        let mut broken = file.clone();
        broken[at] ^= 1 << (at % 7);
        let checked = checked(&policy, &subject, &provenance(broken.clone()));
        // Blanks that end a line are not signed, nor is what the checksum, headers and hints say.
        if checked.is_ok() {
            let text = Cleartext::parse(&broken).unwrap();
            assert_eq!(
                text.text(),
                Cleartext::parse(&file).unwrap().text(),
                "byte {at}"
            );
        }
        let _ = Keyring::parse(&broken);
    }
    let keys = bytes("keyring.asc");
    for at in (0..keys.len()).step_by(7) {
        let mut broken = keys.clone();
        broken[at] ^= 2;
        let _ = Keyring::parse(&broken);
        let _ = Keyring::parse(&keys[..at]);
    }
}
