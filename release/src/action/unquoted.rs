//! Errors for logs that nobody redacts.

use std::error::Error;

use logging::Public;
use objects::BuildError;

use super::error::{CrdError, DeployError, HookError, UninstallError};
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
    fn fmt_public(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// An error and its causes for a log that nobody redacts: what may quote an object is left out. An API server or a webhook repeats what it
/// refuses, a parser what it stumbles over, and it may be a Secret.
pub fn error_unquoted(error: &(dyn Error + 'static)) -> Unquoted {
    Unquoted(words(error))
}

fn words(error: &(dyn Error + 'static)) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        let cause = unwrapped(cause);
        if let Some(unquoted) = unquoted(cause) {
            words.push(unquoted);
            break;
        }
        let reported = cause.to_string();
        if !reported.is_empty() && words.last() != Some(&reported) {
            words.push(reported);
        }
        next = cause.source();
    }
    words.join(": ")
}

/// What an error only passes on. Each of its variants is named here: one that is `transparent` says what its cause says, and shows only the causes
/// of that.
fn unwrapped<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    let inner: Option<&'e (dyn Error + 'static)> = if let Some(failed) = error.downcast_ref() {
        match failed {
            HookError::Observed(inner) | HookError::Discovery(inner) => Some(inner),
            HookError::Delete(inner) => Some(inner),
            HookError::Storage(inner) => Some(inner),
            HookError::Wait(inner) | HookError::Former(inner) => Some(inner),
            HookError::Build { .. }
            | HookError::Create { .. }
            | HookError::Foreign { .. }
            | HookError::Busy { .. } => None,
        }
    } else if let Some(failed) = error.downcast_ref() {
        match failed {
            UninstallError::Hook(inner) => Some(inner),
            UninstallError::Discovery(inner) => Some(inner),
            UninstallError::Load { .. }
            | UninstallError::Locked
            | UninstallError::Taken(_)
            | UninstallError::Aborted(_)
            | UninstallError::Unconfirmed(_)
            | UninstallError::NamespacesDeferred(_)
            | UninstallError::Purge(_)
            | UninstallError::Corrupted(_)
            | UninstallError::Delete { .. } => None,
        }
    } else if let Some(failed) = error.downcast_ref() {
        match failed {
            CrdError::Build(inner) => Some(inner),
            CrdError::Api(inner) => Some(inner),
            CrdError::Wait(inner) => Some(inner),
            CrdError::Empty(_) => None,
        }
    } else {
        None
    };
    inner.map_or(error, unwrapped)
}

/// The text in place of an error that may quote an object; `None` for any other.
fn unquoted(error: &(dyn Error + 'static)) -> Option<String> {
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
    if error.is::<WaitError>() {
        return Some("it did not come to its end".to_owned());
    }
    if let Some(UninstallError::Delete { name, failures }) = error.downcast_ref() {
        let failures: Vec<String> = failures.iter().map(|failed| words(failed)).collect();
        let failures = failures.join("; ");
        return Some(format!("failed to delete release: {name}: {failures}"));
    }
    if error.is::<DeployError>() {
        return Some("the deploy failed".to_owned());
    }
    if error.is::<tokio::task::JoinError>() {
        // A panic may quote anything.
        return Some("it was aborted".to_owned());
    }
    let is_unread = error.is::<BuildError>()
        || error.is::<RecordError>()
        || matches!(error.downcast_ref(), Some(kube::Error::SerdeError(_)));
    is_unread.then(|| "it cannot be read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::error_chain;
    use crate::kube::DeleteError;
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
        // A webhook may put its sentence where the API server has one word.
        let own_reason = || {
            let status = Status::failure("canary", "password canary is refused").with_code(403);
            ApiError::Refused(status.boxed())
        };
        let unread = objects::manifest::documents("a: [canary").unwrap_err();
        let failed = DeleteError::of("apps", "a", "ConfigMap", quoting());
        let not_ready = || WaitError {
            lines: vec!["canary".to_owned()],
            timed_out: true,
        };
        let cases: [(&(dyn Error + 'static), &str); 12] = [
            (&own_reason(), "the API server answered 403"),
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
            (&HookError::Wait(not_ready()), "it did not come to its end"),
            (
                &UninstallError::Hook(HookError::Wait(not_ready())),
                "it did not come to its end",
            ),
            (
                &UninstallError::Hook(HookError::Observed(quoting())),
                "the API server answered 422 Invalid",
            ),
            (
                &UninstallError::Discovery(quoting()),
                "the API server answered 422 Invalid",
            ),
            (
                &UninstallError::Delete {
                    name: "web".to_owned(),
                    failures: vec![failed],
                },
                "failed to delete release: web: failed to delete resource namespace=apps, name=a, kind=ConfigMap: the API \
                 server answered 422 Invalid",
            ),
            (&DeployError::Storage(storage()), "the deploy failed"),
            (&unread, "it cannot be read"),
        ];
        for (error, reported) in cases {
            assert_eq!(error_unquoted(error).0, reported);
        }
        assert!(error_chain(&storage()).contains("canary"));
        assert_eq!(own_reason().reason(), "Unknown");
    }
}
