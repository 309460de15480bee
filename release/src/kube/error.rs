//! What the API server, or the way to it, says when a request fails.

use std::time::Duration;

use kube::core::Status;
use kube::core::response::StatusCause;
use objects::GroupKind;

/// A request failed. The text is the API server's where it answered.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The API server refused.
    #[error("{}", .0.message)]
    Refused(Box<Status>),
    /// There was no answer.
    #[error("kubernetes cluster unreachable")]
    Unreachable(#[source] kube::Error),
    /// There is an answer, and it is no JSON, or nested deeper than anything that is worked on here.
    #[error("the answer of the kubernetes cluster cannot be read")]
    Unreadable(#[source] golib::json::Error),
    /// The answer took too long.
    #[error("no answer from the kubernetes cluster within {0:?}")]
    Timeout(Duration),
    /// The API server does not serve a kind at this moment, and does not say that it is gone.
    #[error("there may be objects of kind {0}, which the kubernetes cluster does not serve now")]
    NotServed(GroupKind),
    /// A name or path cannot be part of a request.
    #[error("invalid request")]
    Request(#[source] http::Error),
}

/// How many bytes the answer of a request may take, for whoever carries requests: an extension of the request.
#[derive(Clone, Copy, Debug)]
pub struct AnswerLimit(pub u64);

/// An answer is larger than anybody asked for; whoever carries requests ends it with this.
#[derive(Debug, thiserror::Error)]
#[error("the answer of the API server takes more than {0} bytes")]
pub struct AnswerTooLarge(pub u64);

/// Whether a request failed for an [`AnswerTooLarge`].
pub fn is_too_large(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| cause.is::<AnswerTooLarge>())
}

/// What an API server gives as the reason of a refusal: `metav1.StatusReason` of apimachinery.
#[rustfmt::skip]
const REASONS: [&str; 19] = [
    "AlreadyExists", "BadRequest", "Conflict", "Expired", "Forbidden", "Gone", "InternalError", "Invalid",
    "MethodNotAllowed", "NotAcceptable", "NotFound", "RequestEntityTooLarge", "ServerTimeout", "ServiceUnavailable",
    "StoreReadError", "Timeout", "TooManyRequests", "Unauthorized", "UnsupportedMediaType",
];

/// How a refusal begins that is a webhook's, or about one.
const OF_WEBHOOK: &str = "admission webhook \"";

/// What exceeds a ResourceQuota of one thing that it counts.
#[derive(Debug)]
pub(crate) struct QuotaExcess<'a> {
    /// `secrets`, `count/jobs.batch`, `services.nodeports`, …
    pub(crate) counted: &'a str,
    pub(crate) requested: u64,
    pub(crate) used: u64,
    pub(crate) limited: u64,
}

/// What a quota counts, and how many.
type Quantity<'a> = (&'a str, u64);

/// The quantities of a list `a=1,b=2`, if all are plain numbers.
fn quantities(list: &str) -> Option<Vec<Quantity<'_>>> {
    let quantity = |entry| {
        let (counted, number): (&str, &str) = str::split_once(entry, '=')?;
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
        Some((counted, number.parse().ok().filter(|_| is_plain)?))
    };
    list.split(',').map(quantity).collect()
}

/// The reason of a refusal; none if there is none, or it is a webhook's own, who may write what he likes there.
fn known_reason(status: &Status) -> Option<&'static str> {
    REASONS.into_iter().find(|known| *known == status.reason)
}

/// A refusal without what it may quote of an object.
pub(crate) fn answered(status: &Status) -> String {
    let code = status.code;
    match known_reason(status) {
        Some(reason) => format!("the API server answered {code} {reason}"),
        None => format!("the API server answered {code}"),
    }
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused(status),
            other => Self::Unreachable(other),
        }
    }
}

impl ApiError {
    /// Whether the answer was an [`AnswerTooLarge`].
    pub(crate) fn is_too_large(&self) -> bool {
        is_too_large(self)
    }

    /// HTTP status code, if the API server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(status) => Some(status.code),
            _ => None,
        }
    }

    /// The API server's reason (`NotFound`, `Forbidden`, …), `Unknown` where it is none that it gives, or `Unreachable`. A small fixed set,
    /// fit for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Refused(status) => known_reason(status).unwrap_or("Unknown"),
            Self::Unreachable(_) | Self::Timeout(_) => "Unreachable",
            Self::NotServed(_) => "NotServed",
            Self::Unreadable(_) => "Unreadable",
            Self::Request(_) => "BadRequest",
        }
    }

    /// Whether a change may have been carried out all the same: there is no answer, or one of a proxy or of a server that gave up. A 500 is a
    /// refusal (of a field that the schema does not have, of a webhook) unless it passes on what etcd said, as API servers do without a reason.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Refused(status) => {
                let is_etcds = || {
                    let message = &status.message;
                    ["etcdserver: ", "rpc error: "]
                        .iter()
                        .any(|from| message.starts_with(from))
                        || message.contains("context deadline exceeded")
                };
                matches!(status.code, 502..=504)
                    || ["Timeout", "ServerTimeout"].contains(&status.reason.as_str())
                    || (status.code == 500 && status.reason.is_empty() && is_etcds())
            }
            Self::Unreachable(_) | Self::Unreadable(_) | Self::Timeout(_) => true,
            Self::NotServed(_) | Self::Request(_) => false,
        }
    }

    /// Whether the webhook failed that converts objects of a definition, in the words of the API server: `webhookConverter` of apiextensions-apiserver.
    pub(crate) fn is_unconverted(&self) -> bool {
        match self {
            Self::Refused(status) => {
                status.code == 500 && status.message.contains("conversion webhook for ")
            }
            _ => false,
        }
    }

    /// The object, or its namespace, does not exist: the answer names what is missing. A 404 that names nothing is of the address alone
    /// ([`Self::is_unserved`]), and says nothing about objects; one with which a webhook denies a request is about whatever it asked for itself.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404) && !self.is_unserved() && !self.is_webhooks()
    }

    /// Whether nothing is served at this address: neither the object nor its namespace is missing.
    pub fn is_unserved(&self) -> bool {
        let names_something = |status: &Status| {
            let details = status.details.as_ref();
            details.is_some_and(|details| !details.name.is_empty())
        };
        match self {
            Self::Refused(status) => {
                status.code == 404 && !names_something(status) && !self.is_webhooks()
            }
            Self::NotServed(_) => true,
            _ => false,
        }
    }

    /// The object exists already.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// Somebody else changed the object, or owns a field of it.
    pub fn is_conflict(&self) -> bool {
        self.reason() == "Conflict"
    }

    /// The identity may not do this.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// The object is invalid for the API server.
    pub fn is_invalid(&self) -> bool {
        self.code() == Some(422)
    }

    /// Details the API server gave.
    pub fn causes(&self) -> &[StatusCause] {
        match self {
            Self::Refused(status) => status
                .details
                .as_ref()
                .map_or(&[], |details| &details.causes),
            _ => &[],
        }
    }

    /// The fields that the API server says other managers own.
    pub(crate) fn conflicting_fields(&self) -> Vec<&str> {
        let conflicts = self
            .causes()
            .iter()
            .filter(|cause| cause.reason == "FieldManagerConflict");
        conflicts.map(|cause| cause.field.as_str()).collect()
    }

    /// Whether the API server refused because something may not change. It has no reason of its own
    /// for that, only words that are the same since Kubernetes 1.0.
    pub(crate) fn is_immutable(&self) -> bool {
        const WORDS: [&str; 4] = [
            "field is immutable",
            "may not be changed",
            "may not change once set",
            "updates to statefulset spec for fields other than",
        ];
        let is_about_it =
            |cause: &StatusCause| WORDS.iter().any(|word| cause.message.contains(word));
        self.is_invalid() && self.causes().iter().any(is_about_it)
    }

    /// Whether a ResourceQuota is used up, in the words of `admission/plugin/resourcequota`.
    pub(crate) fn is_quota_exceeded(&self) -> bool {
        self.is_forbidden()
            && !self.is_webhooks()
            && self.message().contains(" is forbidden: exceeded quota: ")
    }

    /// What exceeds a ResourceQuota, where the refusal is that and nothing else, about the object of this name and resource (with its group): `CheckRequest`
    /// of `admission/plugin/resourcequota`, which tells of the first quota that is exceeded. `None` too where a number is abbreviated.
    pub(crate) fn quota_excesses(
        &self,
        resource: &str,
        name: &str,
    ) -> Option<Vec<QuotaExcess<'_>>> {
        if !self.is_forbidden() || self.reason() != "Forbidden" {
            return None;
        }
        let about = format!("{resource} \"{name}\" is forbidden: exceeded quota: ");
        let (_quota, rest) = self
            .message()
            .strip_prefix(&*about)?
            .split_once(", requested: ")?;
        let (requested, rest) = rest.split_once(", used: ")?;
        let (used, limited) = rest.split_once(", limited: ")?;
        let (requested, used, limited) = (
            quantities(requested)?,
            quantities(used)?,
            quantities(limited)?,
        );
        if requested.len() != used.len() || requested.len() != limited.len() {
            return None;
        }
        let mut excesses = Vec::new();
        for ((requested, used), limited) in requested.into_iter().zip(used).zip(limited) {
            let (counted, requested) = requested;
            if counted != used.0 || counted != limited.0 {
                return None;
            }
            excesses.push(QuotaExcess {
                counted,
                requested,
                used: used.1,
                limited: limited.1,
            });
        }
        Some(excesses)
    }

    /// Whether the API server refused a dry run because it would have asked a webhook that has side effects: `NewDryRunUnsupportedErr` of its webhooks. What
    /// a webhook says itself comes after other words.
    pub(crate) fn is_dry_run_unsupported(&self) -> bool {
        let webhook = || {
            let webhook = self.message().strip_prefix(OF_WEBHOOK)?;
            webhook.strip_suffix("\" does not support dry run")
        };
        self.code() == Some(400)
            && self.reason() == "BadRequest"
            && webhook().is_some_and(|name| !name.is_empty() && !name.contains('"'))
    }

    /// Whether the refusal is a webhook's, or about one.
    pub(crate) fn is_webhooks(&self) -> bool {
        self.message().starts_with(OF_WEBHOOK)
    }

    fn message(&self) -> &str {
        match self {
            Self::Refused(status) => &status.message,
            _ => "",
        }
    }

    /// Whether the API server refuses this request, and has no failure of its own.
    pub(crate) fn is_lasting_refusal(&self) -> bool {
        self.is_lasting() && self.code() != Some(500)
    }

    /// Whether the API server judged this request, and will judge it alike while nobody changes anything. So it does with a 500 without a
    /// reason, by which it says that the schema lacks a field, unless that passes on what etcd said; a webhook that is away has a reason.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Refused(status) if status.code == 500 => {
                status.reason.is_empty() && !self.is_outcome_unknown()
            }
            Self::Refused(status) => {
                (400..500).contains(&status.code)
                    && ![401, 404, 408, 409, 429].contains(&status.code)
            }
            Self::Request(_) => true,
            Self::Unreachable(_) | Self::Unreadable(_) | Self::Timeout(_) | Self::NotServed(_) => {
                false
            }
        }
    }

    /// Whether trying again can help without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        // A namespace on its way out refuses everything until it is gone.
        let is_ending = self
            .causes()
            .iter()
            .any(|cause| cause.reason == "NamespaceTerminating");
        match self.code() {
            Some(code) => is_ending || code >= 500 || code == 429 || code == 409,
            None => !matches!(self, Self::Request(_)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_that_may_have_been_carried_out_has_an_unknown_outcome() {
        let reported = |code, reason: &str, message: &str| {
            let status = Status::failure(message, reason).with_code(code);
            ApiError::Refused(status.boxed()).is_outcome_unknown()
        };
        let refused = |code, reason: &str| reported(code, reason, "x");
        // As kube makes one of a proxy's page.
        let page = "Failed to parse error data";
        for (code, reason, expected) in [
            (502, page, true),
            (503, page, true),
            (504, page, true),
            (503, "ServiceUnavailable", true),
            (504, "Timeout", true),
            (500, "ServerTimeout", true),
            (500, "", false),
            (500, "InternalError", false),
            (403, "Forbidden", false),
            (409, "Conflict", false),
            (422, "Invalid", false),
        ] {
            assert_eq!(refused(code, reason), expected, "{code} {reason}");
        }
        for (message, expected) in [
            ("etcdserver: request timed out", true),
            ("etcdserver: leader changed", true),
            ("rpc error: code = Unavailable desc = closing", true),
            ("Post \"https://webhook\": context deadline exceeded", true),
            (
                "failed to create typed patch object (web): .data.x: field not declared in schema",
                false,
            ),
        ] {
            assert_eq!(reported(500, "", message), expected, "{message}");
        }
        let of_a_webhook = "failed calling webhook \"x\": context deadline exceeded";
        assert!(!reported(500, "InternalError", of_a_webhook));
    }

    /// Its own request may have met with a 404, which it passes on with the details.
    #[test]
    fn what_a_webhook_says_is_missing_is_not_the_object() {
        let details = serde_json::json!({"name": "parent"});
        let details: kube::core::response::StatusDetails = serde_json::from_value(details).unwrap();
        let of_server = "cars.x.io \"parent\" not found";
        let of_webhook = format!("admission webhook \"v.x.io\" denied the request: {of_server}");
        for (message, is_found) in [(of_server, true), (&of_webhook, false)] {
            let mut status = Status::failure(message, "NotFound").with_code(404);
            status.details = Some(details.clone());
            let named = ApiError::Refused(status.clone().boxed());
            assert_eq!(named.is_not_found(), is_found);
            status.details = None;
            let nameless = ApiError::Refused(status.boxed());
            assert!(!nameless.is_not_found());
            assert_eq!(nameless.is_unserved(), is_found);
        }
    }

    #[test]
    fn lasting_refusals_are_told_from_transient_failures() {
        let is_lasting = |code, reason: &str, message: &str| {
            let status = Status::failure(message, reason).with_code(code);
            ApiError::Refused(status.boxed()).is_lasting()
        };
        for (code, reason, message, lasting) in [
            (
                400,
                "BadRequest",
                "admission webhook \"x\" denied the request",
                true,
            ),
            (401, "Unauthorized", "Unauthorized", false),
            (403, "Forbidden", "cannot patch resource", true),
            (404, "NotFound", "not found", false),
            (409, "Conflict", "the object has been modified", false),
            (422, "Invalid", "field is immutable", true),
            (429, "TooManyRequests", "slow down", false),
            (
                500,
                "",
                "failed to create typed patch object (web): .data.x: field not declared in schema",
                true,
            ),
            (500, "", "etcdserver: request timed out", false),
            (
                500,
                "InternalError",
                "failed calling webhook \"x\": connection refused",
                false,
            ),
            (502, "Failed to parse error data", "x", false),
            (503, "ServiceUnavailable", "x", false),
            (504, "Timeout", "x", false),
        ] {
            assert_eq!(
                is_lasting(code, reason, message),
                lasting,
                "{code} {message}"
            );
        }
        assert!(!ApiError::Timeout(Duration::ZERO).is_lasting());
    }
}
