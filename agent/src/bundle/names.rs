//! Names Fleet derives: releases, object sets, manifest IDs.
//!
//! Mirrors `internal/names` and `GetSetID`. Take-over from the Go agent stands or falls with these:
//! another name is another release, another set ID makes every object foreign.

use golib::hex;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::api::{AGENT_BUNDLE_PREFIX, BundleDeploymentOptions};

/// Helm's limit for release names.
const MAX_RELEASE_NAME: usize = 53;
/// Prefix of every set ID: the agent's default namespace, which cannot be configured.
const SET_ID_PREFIX: &str = "default";
/// Set ID of the bundle that carries the agent.
const AGENT_SET_ID: &str = "fleet-agent-bootstrap";

/// `helm.releaseName`, or a name derived from the BundleDeployment's.
pub fn release_name(bundle_deployment: &str, options: &BundleDeploymentOptions) -> String {
    match options.helm.as_ref().map(|helm| helm.release_name.as_str()) {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => derived_release_name(bundle_deployment),
    }
}

/// A valid release name that differs for different inputs (`HelmReleaseName`).
pub fn derived_release_name(text: &str) -> String {
    let mut name = text.replace('/', "-");
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name != name.to_lowercase() || !name.chars().all(is_allowed) {
        let hash = &hex::encode(&Md5::digest(name.as_bytes()))[..8];
        name = format!("{name}-{hash}");
    }
    let mut clean = String::with_capacity(name.len());
    for c in name.to_lowercase().chars() {
        let c = if is_allowed(c) { c } else { '-' };
        if c != '-' || !clean.ends_with('-') {
            clean.push(c);
        }
    }
    let clean = clean.trim_matches('-');
    if clean.is_empty() {
        return hex::encode(&Md5::digest(text.as_bytes()))[..24].to_owned();
    }
    limit(clean, MAX_RELEASE_NAME)
}

/// Cuts an ASCII text and marks the cut with a hash (`Limit`).
fn limit(text: &str, count: usize) -> String {
    const HEX: usize = 5;
    if text.len() <= count {
        return text.to_owned();
    }
    let kept = &text[..count - HEX - 1];
    let separator = if kept.ends_with('-') { "" } else { "-" };
    format!(
        "{kept}{separator}{}",
        &hex::encode(&Md5::digest(text.as_bytes()))[..HEX]
    )
}

/// The name of the bundle that carries the agent of a cluster, and of its BundleDeployment (`newAgentBundle`).
pub fn agent_bundle_name(cluster: &str) -> String {
    safe_concat(&[AGENT_BUNDLE_PREFIX, cluster])
}

/// Joins names below 64 characters (`SafeConcatName`).
fn safe_concat(parts: &[&str]) -> String {
    let whole = parts.join("-");
    let bytes = whole.as_bytes();
    if bytes.len() < 64 {
        return whole;
    }
    let digest = hex::encode(&Sha256::digest(bytes));
    let fits = matches!(bytes[56], b'a'..=b'z' | b'0'..=b'9');
    let (cut, length) = if fits { (57, 5) } else { (56, 6) };
    format!(
        "{}-{}",
        String::from_utf8_lossy(&bytes[..cut]),
        &digest[..length]
    )
}

/// ID and hash of a bundle's object set, shared by all its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetId {
    id: String,
    hash: String,
}

impl SetId {
    /// Of a BundleDeployment, seen by an agent with a scope (usually empty).
    pub fn new(bundle_deployment: &str, agent_scope: &str) -> Self {
        let mut parts = match bundle_deployment.starts_with(AGENT_BUNDLE_PREFIX) {
            true => vec![AGENT_SET_ID],
            false => vec![SET_ID_PREFIX, bundle_deployment],
        };
        if !agent_scope.is_empty() {
            parts.push(agent_scope);
        }
        let id = match parts.as_slice() {
            [alone] => (*alone).to_owned(),
            parts => safe_concat(parts),
        };
        let hash = hex::encode(&Sha1::digest(id.as_bytes()));
        Self { id, hash }
    }

    /// Value of [`crate::api::ANNOTATION_OBJECT_SET_ID`].
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Value of [`crate::api::LABEL_OBJECT_SET_HASH`].
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// The name of a Content: 63 characters of `s-` and the hash.
pub(super) fn manifest_id(json: &[u8]) -> String {
    let mut id = format!("s-{}", hex::encode(&Sha256::digest(json)));
    id.truncate(63);
    id
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("app", "app")]
    #[case("a/b", "a-b")]
    #[case("bundle.name.example.com", "bundle-name-example-com-645ef821")]
    #[case("long-name-test--App_-_12.factor", "long-name-test-app-12-factor-0efbac37")]
    #[case(
        "12345678901234567890123456789012345678901234567890123a",
        "12345678901234567890123456789012345678901234567-fdba4"
    )]
    fn a_release_name_is_derived_from_the_name_of_its_bundle(
        #[case] from: &str,
        #[case] want: &str,
    ) {
        assert_eq!(derived_release_name(from), want);
    }

    #[test]
    fn a_release_name_without_valid_characters_becomes_a_hash() {
        for text in ["", "-", "---", "//"] {
            let name = derived_release_name(text);
            assert_eq!(name.len(), 24, "{text:?}: {name}");
        }
        // Letters outside ASCII are replaced, not cut in half.
        assert!(derived_release_name(&"ü".repeat(60)).len() <= MAX_RELEASE_NAME);
    }

    #[test]
    fn set_ids() {
        let set = SetId::new("remove-metadata", "");
        assert_eq!(set.id(), "default-remove-metadata");
        assert_eq!(set.hash(), "0f3e1d9d146fa8b290c0de403881184751430e59");
        assert_eq!(
            SetId::new("fleet-agent-x", "").id(),
            "fleet-agent-bootstrap"
        );
        assert_eq!(
            SetId::new("fleet-agent-x", "s").id(),
            "fleet-agent-bootstrap-s"
        );
        assert_eq!(SetId::new("a", "s").id(), "default-a-s");
        let long = SetId::new(&"x".repeat(80), "");
        assert_eq!(long.id().len(), 63);
        let dash = SetId::new(&format!("{}-{}", "x".repeat(48), "y".repeat(20)), "");
        assert_eq!(dash.id().len(), 63);
    }

    /// As Fleet 0.16 calls it.
    #[rstest]
    #[case("local", "fleet-agent-local")]
    #[case(
        "a-cluster-whose-name-is-so-long-that-it-does-not-fit-at-all",
        "fleet-agent-a-cluster-whose-name-is-so-long-that-it-does-f00682"
    )]
    #[case(
        "a-cluster-whose-name-has-a-dash-where-it-is-c-t-at-the-very-end",
        "fleet-agent-a-cluster-whose-name-has-a-dash-where-it-is-c-eba19"
    )]
    #[case(
        "exactly-fifty-two-characters-long-is-this-name-here1",
        "fleet-agent-exactly-fifty-two-characters-long-is-this-nam-6cf0c"
    )]
    fn the_agents_own_bundle_is_named_after_its_cluster(#[case] cluster: &str, #[case] want: &str) {
        assert_eq!(agent_bundle_name(cluster), want);
    }

    #[test]
    fn id_of_the_empty_manifest() {
        assert_eq!(
            manifest_id(b"{}\n"),
            "s-ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442"
        );
    }
}
