//! How errors read: one line, causes included, each once.
//!
//! kube's own `Display` repeats a `Status` in debug form; people get the API server's sentence.

use std::error::Error;

use kube::runtime::watcher;
use release::kube::ApiError;

/// A list that an API server answers page by page and does not end.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the list of {resource} does not end: {why}")]
pub struct ListUnended {
    /// The resource that is listed, in the plural.
    pub resource: String,
    /// How the unended list was noticed, in words of ours.
    pub why: &'static str,
}

/// The list that an API server does not end, if that is what failed.
pub fn unended_list(failed: &kube::Error) -> Option<&ListUnended> {
    match failed {
        kube::Error::Service(cause) => cause.downcast_ref(),
        _ => None,
    }
}

/// The error and its causes, joined by [`BETWEEN`]. A cause the outer text ends with is not repeated.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    causes(error).join(BETWEEN)
}

/// Separator between an error and its cause.
pub const BETWEEN: &str = ": ";

/// The texts of an error and its causes, the outermost first: what [`chain`] joins.
pub fn causes(error: &(dyn Error + 'static)) -> Vec<String> {
    let mut whole = one(error);
    let mut texts = vec![whole.clone()];
    let mut next = source(error);
    while let Some(cause) = next {
        let text = one(cause);
        if !text.is_empty() && !whole.ends_with(&text) {
            whole.push_str(BETWEEN);
            whole.push_str(&text);
            texts.push(text);
        }
        next = source(cause);
    }
    texts
}

/// What kube gives as the reason of an answer that is no `Status`: a page of a proxy, of which nobody knows what it repeats.
pub const NO_STATUS: &str = "Failed to parse error data";

/// What is told of an answer that says nothing that may be told.
pub fn answered(code: u16) -> String {
    format!("the API server answered {code}")
}

/// Whether the API server answered with this HTTP status.
pub fn has_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Whether an API server answered that the request is not to be had: 4xx, in its own words, or page after page of a list without an end.
pub fn is_answered(failed: &kube::Error) -> bool {
    let is_refusal =
        matches!(failed, kube::Error::Api(status) if (400..500).contains(&status.code));
    is_refusal || unended_list(failed).is_some()
}

/// Whether an API server answered that this request is not to be had, whenever it is sent: not that it is too busy for it (429), or took too long (408).
pub fn is_refused(failed: &kube::Error) -> bool {
    is_answered(failed) && !is_busy(failed)
}

/// Whether a server answered that it cannot do what it was asked now: 408, 429 or 5xx. That says nothing of who asked, nor of what.
pub fn is_busy(failed: &kube::Error) -> bool {
    matches!(failed, kube::Error::Api(status) if matches!(status.code, 408 | 429 | 500..600))
}

/// Whether the API server says that there is no such thing. What stands before it answers 404 too, where it does not know the address, and so does a
/// webhook that denies a request as it has not found something of its own.
pub fn is_not_found(error: &kube::Error) -> bool {
    let is_webhooks = |message: &str| message.starts_with("admission webhook \"");
    matches!(error, kube::Error::Api(status)
        if status.reason == "NotFound" && !is_webhooks(&status.message))
}

/// What a GET found; nothing where the API server says that it is not there ([`is_not_found`]). kube's own `get_opt` takes any page with a 404 for that.
///
/// # Errors
/// Any other answer than these two, or none.
pub fn found<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(failed) if is_not_found(&failed) => Ok(None),
        Err(failed) => Err(failed),
    }
}

/// The HTTP status the API server answered with, if that is what an error comes from.
pub fn api_code(error: &(dyn Error + 'static)) -> Option<u16> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(kube::Error::Api(status)) = cause.downcast_ref::<kube::Error>() {
            return Some(status.code);
        }
        if let Some(ApiError::Refused(status)) = cause.downcast_ref::<ApiError>() {
            return Some(status.code);
        }
        next = cause.source();
    }
    None
}

fn one(error: &(dyn Error + 'static)) -> String {
    // The watcher's own texts repeat their causes.
    match error.downcast_ref::<watcher::Error>() {
        Some(watcher::Error::InitialListFailed(_)) => return "cannot list".to_owned(),
        Some(watcher::Error::WatchStartFailed(_)) => return "cannot watch".to_owned(),
        Some(watcher::Error::WatchFailed(_)) => return "the watch broke off".to_owned(),
        Some(watcher::Error::WatchError(_)) => return "the watch was ended".to_owned(),
        Some(watcher::Error::NoResourceVersion) | None => {}
    }
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) if status.reason == NO_STATUS => answered(status.code),
        Some(kube::Error::Api(status)) if !status.message.is_empty() => status.message.clone(),
        Some(kube::Error::Api(status)) if !status.reason.is_empty() => status.reason.clone(),
        Some(kube::Error::Api(status)) => answered(status.code),
        // Made here, of answers that came.
        Some(kube::Error::Service(cause)) if cause.is::<ListUnended>() => cause.to_string(),
        Some(kube::Error::Service(_) | kube::Error::HyperError(_)) => {
            "cannot reach the API server".to_owned()
        }
        _ => error.to_string(),
    }
}

fn source<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(_)) => None,
        _ => error.source(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the lease")]
    struct Outer(#[source] kube::Error);

    #[test]
    fn an_api_error_is_reported_in_the_servers_words() {
        let status = Status::failure("leases \"x\" not found", "NotFound").with_code(404);
        let error = Outer(kube::Error::Api(status.boxed()));
        assert_eq!(
            chain(&error),
            "cannot read the lease: leases \"x\" not found"
        );
        assert!(has_code(&error.0, 404) && is_not_found(&error.0));
        assert!(matches!(found::<()>(Err(error.0)), Ok(None)));
    }

    #[test]
    fn a_page_of_a_proxy_is_not_quoted() {
        let page = Status::failure("Authorization: Bearer canary", NO_STATUS).with_code(502);
        let error = Outer(kube::Error::Api(page.boxed()));
        assert_eq!(
            chain(&error),
            "cannot read the lease: the API server answered 502"
        );
    }

    /// A 404 page from a proxy (not a `Status`, or one without a reason) is not "object not found".
    #[test]
    fn a_404_page_does_not_count_as_a_missing_object() {
        for reason in [NO_STATUS, ""] {
            let page = Status::failure("404 page not found", reason).with_code(404);
            let page = kube::Error::Api(page.boxed());
            assert!(has_code(&page, 404) && !is_not_found(&page));
            assert!(found::<()>(Err(page)).is_err());
        }
    }
}
