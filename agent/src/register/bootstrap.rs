//! The bootstrap Secret: where upstream is, the token to ask with, and whether a credential came of it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// On the credential Secret: what it came of, as [`digest`] says (not upstream's).
pub const BOOTSTRAP_DIGEST_ANNOTATION: &str = "fleet.cattle.io/bootstrap-digest";

/// In the place of a digest, where a credential was there before any bootstrap Secret was seen.
const NONE: &str = "none";

/// What the bootstrap Secret says. The token never prints.
#[derive(Clone, PartialEq, Eq)]
pub struct Bootstrap {
    pub api_server_url: String,
    /// PEM; empty when none is given.
    pub api_server_ca: Vec<u8>,
    pub token: String,
    pub token_name: String,
    pub cluster_namespace: String,
    pub system_registration_namespace: String,
}

impl Bootstrap {
    /// Reads the Secret's data. A non-empty `values` key holding YAML replaces all other keys.
    pub fn from_data(data: &BTreeMap<String, ByteString>) -> Self {
        let values = values(data);
        let text = |key: &str| values.get(key).cloned().unwrap_or_default();
        let string = |key: &str| String::from_utf8_lossy(&text(key)).into_owned();
        Self {
            api_server_url: string("apiServerURL"),
            api_server_ca: text("apiServerCA"),
            token: string("token"),
            token_name: string("tokenName"),
            cluster_namespace: string("clusterNamespace"),
            system_registration_namespace: string("systemRegistrationNamespace"),
        }
    }
}

/// What a stored credential says of where it came from, beside a bootstrap Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootstrapMatch {
    /// This Secret: it asks for nothing new.
    Same,
    /// Not this one.
    Different,
    /// Unknown origin: stored by the Go agent, a person, or an agent older than the note.
    Unknown,
}

impl BootstrapMatch {
    /// What `stored` says, where `bootstrap` is there.
    pub fn of(stored: &Secret, bootstrap: Option<&Secret>) -> Self {
        let annotations = stored.metadata.annotations.as_ref();
        match annotations.and_then(|all| all.get(BOOTSTRAP_DIGEST_ANNOTATION)) {
            None => Self::Unknown,
            Some(noted) if bootstrap.is_some() && *noted == digest(bootstrap) => Self::Same,
            Some(_) => Self::Different,
        }
    }
}

/// What a credential notes of the bootstrap Secret that it came of: the digest of its content, whoever wrote that.
pub fn digest(bootstrap: Option<&Secret>) -> String {
    let Some(bootstrap) = bootstrap else {
        return NONE.to_owned();
    };
    let mut hash = Sha256::new();
    for (key, value) in bootstrap.data.iter().flatten() {
        for part in [key.as_bytes(), &value.0] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    golib::hex::encode(&hash.finalize())
}

fn values(data: &BTreeMap<String, ByteString>) -> BTreeMap<String, Vec<u8>> {
    let raw = || {
        data.iter()
            .map(|(key, value)| (key.clone(), value.0.clone()))
            .collect()
    };
    let Some(yaml) = data.get("values").filter(|values| !values.0.is_empty()) else {
        return raw();
    };
    match golib::yaml::decode(&yaml.0) {
        Ok(Value::Object(values)) => values
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.as_str()?.as_bytes().to_vec())))
            .collect(),
        _ => raw(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, ByteString> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), ByteString((*v).into())))
            .collect()
    }

    #[test]
    fn values_replace_every_key() {
        let read = Bootstrap::from_data(&data(&[
            ("token", "outer"),
            ("tokenName", "outer"),
            (
                "values",
                "token: inner\napiServerURL: https://x\nclusterNamespace: 7\n",
            ),
        ]));
        assert_eq!(
            (read.token.as_str(), read.token_name.as_str()),
            ("inner", "")
        );
        assert_eq!(
            (
                read.api_server_url.as_str(),
                read.cluster_namespace.as_str()
            ),
            ("https://x", "")
        );
    }

    #[test]
    fn a_bootstrap_secret_is_known_by_its_content() {
        let secret = |uid: &str, token: &str| Secret {
            metadata: ObjectMeta {
                uid: Some(uid.to_owned()),
                ..Default::default()
            },
            data: Some(data(&[("token", token)])),
            ..Default::default()
        };
        let noting = |noted: Option<String>| Secret {
            metadata: ObjectMeta {
                annotations: noted
                    .map(|noted| [(BOOTSTRAP_DIGEST_ANNOTATION.to_owned(), noted)].into()),
                ..Default::default()
            },
            ..Default::default()
        };
        let (first, again, other) = (secret("1", "a"), secret("2", "a"), secret("1", "b"));
        let stored = noting(Some(digest(Some(&first))));
        assert_eq!(
            BootstrapMatch::of(&stored, Some(&again)),
            BootstrapMatch::Same
        );
        assert_eq!(
            BootstrapMatch::of(&stored, Some(&other)),
            BootstrapMatch::Different
        );
        assert_eq!(BootstrapMatch::of(&stored, None), BootstrapMatch::Different);
        let stored = noting(Some(digest(None)));
        assert_eq!(
            BootstrapMatch::of(&stored, Some(&first)),
            BootstrapMatch::Different
        );
        assert_eq!(
            BootstrapMatch::of(&noting(None), Some(&first)),
            BootstrapMatch::Unknown
        );
    }

    #[test]
    fn values_that_do_not_parse_are_ignored() {
        let read = Bootstrap::from_data(&data(&[("token", "raw"), ("values", "{")]));
        assert_eq!(read.token, "raw");
    }
}
