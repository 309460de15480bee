//! Errors for logs that nobody redacts.

use logging::Public;
use objects::BuildError;

use super::error::HookError;
use crate::kube::error::answered;
use crate::kube::{ApiError, ApplyError, WaitError};
use crate::storage::RecordError;

/// An error without what it may quote: it may leave the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unquoted(String);

impl std::fmt::Display for Unquoted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Public for Unquoted {
    fn tell(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// An error and its causes for a log that nobody redacts: what may quote an object is left out. An API server or a webhook repeats what it
/// refuses, a parser what it stumbles over, and it may be a Secret.
pub fn error_unquoted(error: &(dyn std::error::Error + 'static)) -> Unquoted {
    Unquoted(words(error))
}

fn words(error: &(dyn std::error::Error + 'static)) -> String {
    // These say what their causes say.
    match error.downcast_ref::<HookError>() {
        Some(HookError::Observed(inner) | HookError::Discovery(inner)) => {
            return words(inner);
        }
        Some(HookError::Delete(inner)) => return words(inner),
        Some(HookError::Storage(inner)) => return words(inner),
        Some(HookError::Wait(inner) | HookError::Former(inner)) => return words(inner),
        _ => {}
    }
    let mut words: Vec<String> = Vec::new();
    for cause in std::iter::successors(Some(error), |error| error.source()) {
        if let Some(unquoted) = unquoted(cause) {
            words.push(unquoted);
            break;
        }
        let told = cause.to_string();
        if !told.is_empty() && words.last() != Some(&told) {
            words.push(told);
        }
    }
    words.join(": ")
}

/// What stands for an error that may quote an object; none for any other.
fn unquoted(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(ApiError::Refused(status)) = error.downcast_ref() {
        return Some(answered(status));
    }
    if let Some(ApiError::Unreadable(_)) = error.downcast_ref() {
        return Some("the answer of the API server cannot be read".to_owned());
    }
    if let Some(kube::Error::Api(status)) = error.downcast_ref() {
        return Some(answered(status));
    }
    if let Some(failed) = error.downcast_ref::<ApplyError>() {
        let count = failed.failures.len();
        return Some(format!("{count} objects were refused: {}", failed.reason()));
    }
    if let Some(WaitError::NotReady { .. }) = error.downcast_ref() {
        return Some("it did not come to its end".to_owned());
    }
    let is_unread = error.is::<BuildError>() || error.is::<RecordError>();
    is_unread.then(|| "it cannot be read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::error_chain;
    use crate::storage::StorageError;
    use kube::core::Status;

    /// What a webhook says of an object, wherever it stands in a chain.
    #[test]
    fn errors_that_may_quote_an_object_are_unquoted() {
        let quoting = || {
            let text = "admission webhook denied the request: canary";
            let status = Status::failure(text, "Invalid").with_code(422);
            ApiError::Refused(status.boxed())
        };
        let storage = || StorageError::Api {
            verb: "update",
            source: quoting(),
        };
        let unread = objects::manifest::documents("a: [canary").unwrap_err();
        let cases: [(&(dyn std::error::Error + 'static), &str); 6] = [
            (&quoting(), "the API server answered 422 Invalid"),
            (
                &storage(),
                "update: failed to update: the API server answered 422 Invalid",
            ),
            (
                &HookError::Observed(quoting()),
                "the API server answered 422 Invalid",
            ),
            (
                &HookError::Storage(storage()),
                "update: failed to update: the API server answered 422 Invalid",
            ),
            (
                &HookError::Wait(WaitError::NotReady {
                    lines: vec!["canary".to_owned()],
                    timed_out: true,
                }),
                "it did not come to its end",
            ),
            (&unread, "it cannot be read"),
        ];
        for (error, told) in cases {
            assert_eq!(error_unquoted(error).0, told);
        }
        assert!(error_chain(&storage()).contains("canary"));
    }
}
