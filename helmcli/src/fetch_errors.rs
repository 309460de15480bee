//! Failed fetches in the words of helm and of Go's libraries, where they have some.

use std::net::IpAddr;

use chart::source::{FetchError, SafeUrl, TransportError};
use golib::strconv::quote;
use release::error_chain;

/// What helm says.
pub(crate) fn message(error: &FetchError) -> String {
    match error {
        FetchError::IndexStatus { url, status, .. } | FetchError::Status { url, status, .. } => {
            let status = http::StatusCode::from_u16(*status);
            let text = status.map(|status| status.to_string()).unwrap_or_default();
            format!("failed to fetch {url} : {text}")
        }
        FetchError::NotFound { lookup, .. } => lookup.in_helms_words(),
        FetchError::InvalidReference { reference, problem } => {
            invalid_reference(reference, problem).unwrap_or_else(|| error_chain(error))
        }
        FetchError::Transport { url, source } => match transport(url, source) {
            Some(cause) => pulling(url, &format!("Get {}: {cause}", quote(shown(url)))),
            None => error_chain(error),
        },
        FetchError::Registry {
            url,
            status,
            message,
            detail,
            ..
        } => refused(url, *status, &format!("{message}{detail}")),
        other => error_chain(other),
    }
}

/// The address; without how many tags we ask for at a time.
fn shown(url: &SafeUrl) -> String {
    let text = url.to_string();
    text.strip_suffix("/tags/list?n=1000")
        .map_or(text.clone(), |front| format!("{front}/tags/list"))
}

/// The prefix that errors have while a manifest is asked for.
fn pulling(url: &SafeUrl, cause: &str) -> String {
    match url.path().contains("/manifests/") {
        true => format!("failed to perform \"FetchReference\" on source: {cause}"),
        false => cause.to_owned(),
    }
}

fn refused(url: &SafeUrl, status: u16, message: &str) -> String {
    let named = url.path().strip_prefix("/v2/").unwrap_or_default();
    if let (404, Some((repository, tag))) = (status, named.split_once("/manifests/")) {
        let (host, port) = (url.host_str().unwrap_or_default(), url.port());
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let separator = if tag.starts_with("sha") { '@' } else { ':' };
        let name = format!("{host}{port}/{repository}{separator}{tag}");
        return pulling(url, &format!("{name}: not found"));
    }
    // Ours, in front of the registry's own.
    let message = match message.split_once(" not found in the registry") {
        Some((_, message)) => message,
        None => message,
    };
    let message = match message {
        "" => http::StatusCode::from_u16(status)
            .ok()
            .and_then(|status| status.canonical_reason())
            .map(|reason| format!(": {reason}"))
            .unwrap_or_default(),
        message => message.to_owned(),
    };
    let cause = format!(
        "GET {}: response status code {status}{message}",
        quote(shown(url))
    );
    pulling(url, &cause)
}

fn transport(url: &SafeUrl, error: &TransportError) -> Option<String> {
    match error {
        TransportError::UnknownIssuer => Some(
            "tls: failed to verify certificate: x509: certificate signed by unknown authority"
                .into(),
        ),
        TransportError::Tls { problem } if problem.contains("InvalidContentType") => {
            Some("http: server gave HTTP response to HTTPS client".into())
        }
        TransportError::UnknownHost { host, .. } => {
            Some(format!("dial tcp: lookup {host}: no such host"))
        }
        // Elsewhere a proxy may have been asked, or a name has several addresses.
        TransportError::Connect { problem } if problem.starts_with("Connection refused") => {
            let host: IpAddr = url.host_str()?.parse().ok()?;
            let address = std::net::SocketAddr::new(host, url.port_or_known_default()?);
            host.is_loopback()
                .then(|| format!("dial tcp {address}: connect: connection refused"))
        }
        _ => None,
    }
}

fn invalid_reference(reference: &str, problem: &str) -> Option<String> {
    if problem.starts_with("chart reference and version mismatch") {
        return Some(problem.to_owned());
    }
    let path = reference.trim_start_matches("oci://");
    match path.split_once('/') {
        None => Some("invalid reference: missing registry or repository".into()),
        Some((registry, _)) if problem.starts_with("the registry") => Some(format!(
            "invalid reference: invalid registry {}",
            quote(registry)
        )),
        Some((_, repository)) if problem.starts_with("the repository") => Some(format!(
            "invalid reference: invalid repository {}",
            quote(repository)
        )),
        _ => None,
    }
}
