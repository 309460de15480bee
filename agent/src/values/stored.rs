//! Values the controller keeps in a Secret beside the BundleDeployment.
//!
//! Mirrors `pkg/helmvalues` (`hash.go`, `set.go`).

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::from::MAX_DECODED;
use super::inline::Values;

const VALUES_KEY: &str = "values";
const STAGED_KEY: &str = "stagedValues";

/// The Secret is not (or not yet) the one the BundleDeployment was written for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HashMismatch {
    /// Another content.
    #[error(
        "retrying, hash mismatch between secret and bundledeployment: actual {actual} != expected {expected}"
    )]
    Hash {
        /// Of the Secret's content.
        actual: String,
        /// From `spec.valuesHash`.
        expected: String,
    },
    /// The content has the right hash, but is no JSON object. It is not quoted: it may be secret.
    #[error("the values in the secret are not a JSON object")]
    Malformed,
    /// The values have the right hash, and would take more memory than allowed once they are read.
    #[error("the values in the secret take more than {} MiB once they are read", MAX_DECODED >> 20)]
    TooLarge,
}

/// Checks a values Secret and reads it; `None` when the controller stored no values: the options' own stay.
///
/// # Errors
/// [`HashMismatch`]: the controller is still writing, or somebody else wrote.
pub fn stored(secret: &Secret, values_hash: &str) -> Result<Option<Values>, HashMismatch> {
    let part = |key: &str| {
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        data.map_or(&[][..], |ByteString(bytes)| bytes)
    };
    let mut hash = Sha256::new();
    hash.update(part(VALUES_KEY));
    hash.update(part(STAGED_KEY));
    let actual = golib::hex::encode(&hash.finalize());
    if actual != values_hash {
        return Err(HashMismatch::Hash {
            actual,
            expected: values_hash.to_owned(),
        });
    }
    match part(VALUES_KEY) {
        [] => Ok(None),
        json if golib::json::weigh(json) > MAX_DECODED => Err(HashMismatch::TooLarge),
        json => match serde_json::from_slice(json).map(golib::json::floats) {
            Ok(Value::Object(values)) => Ok(Some(values)),
            Ok(Value::Null) => Ok(None),
            _ => Err(HashMismatch::Malformed),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(values: &str, staged: &str) -> Secret {
        let data = [(VALUES_KEY, values), (STAGED_KEY, staged)]
            .map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())));
        Secret {
            data: Some(data.into()),
            ..Secret::default()
        }
    }

    /// Two megabytes of small maps.
    #[test]
    fn values_that_would_take_too_much_are_not_read() {
        let many = format!("{{\"a\":[{}{{}}]}}", "{\"a\":1},".repeat(250_000));
        let hash = golib::hex::encode(&Sha256::digest(&many));
        assert_eq!(
            stored(&secret(&many, ""), &hash),
            Err(HashMismatch::TooLarge)
        );
    }

    #[test]
    fn both_halves_are_hashed() {
        let hash = golib::hex::encode(&Sha256::digest(br#"{"a":1}{"b":2}"#));
        let values = stored(&secret(r#"{"a":1}"#, r#"{"b":2}"#), &hash)
            .unwrap()
            .unwrap();
        assert_eq!(values["a"].as_f64(), Some(1.0));
        let error = stored(&secret(r#"{"a":1}"#, ""), &hash)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(
                "retrying, hash mismatch between secret and bundledeployment: actual "
            )
        );
        assert!(error.ends_with(&format!(" != expected {hash}")));
    }

    #[test]
    fn missing_keys_hash_as_empty() {
        let hash = golib::hex::encode(&Sha256::digest(b""));
        assert_eq!(stored(&Secret::default(), &hash).unwrap(), None);
    }

    #[test]
    fn malformed_values_are_not_quoted() {
        let hash = golib::hex::encode(&Sha256::digest(b"hunter2"));
        let error = stored(&secret("hunter2", ""), &hash).unwrap_err();
        assert!(!error.to_string().contains("hunter2"));
    }
}
