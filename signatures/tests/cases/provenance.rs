//! What helm and gpg signed: provenance files and the keys that count.

use rstest::rstest;
use serde_json::{Value, json};
use signatures::openpgp::{Cleartext, Keyring};
use signatures::{Evidence, Subject};

use crate::{bytes, checked, digest_of, policy, text};

/// A chart over HTTP, with its provenance file.
fn downloaded(case: &str) -> Subject {
    Subject {
        addresses: vec![crate::address("https://charts.test.invalid/web-1.1.0.tgz")],
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
fn charts_signed_by_helm_and_gpg_are_accepted(#[case] case: &str, #[case] keys: &str) {
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
    #[case] reported: &str,
) {
    let evidence = match tamper(text("rsa.prov")) {
        Some(file) => provenance(file.into()),
        None => Evidence::default(),
    };
    let refusal = checked(&policy(keyring(keys)), &downloaded("rsa"), &evidence).unwrap_err();
    assert!(refusal.to_string().contains(reported), "{refusal}");
}

#[rstest]
#[case::of_a_key_that_ended("ended", "ended", "has expired")]
#[case::of_a_key_that_was_revoked("revoked", "revoked", "is revoked")]
#[case::that_ended("ended-signature", "rsa-maintainer", "older than its key")]
#[case::with_sha1("sha1", "rsa-maintainer", "uses SHA-1, which does not count")]
fn signatures_of_gpg_that_do_not_count(
    #[case] case: &str,
    #[case] keys: &str,
    #[case] reported: &str,
) {
    let evidence = provenance(bytes(&format!("{case}.prov")));
    let refusal = checked(&policy(keyring(keys)), &downloaded("rsa"), &evidence).unwrap_err();
    assert!(refusal.to_string().contains(reported), "{refusal}");
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
    let reported = "does not contain a SHA for a file named \"web-1.0.0.tgz\"";
    assert!(refusal.to_string().contains(reported), "{refusal}");
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
fn a_revoked_user_id_does_not_count() {
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
fn an_older_copy_of_a_revoked_key_does_not_restore_it() {
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
