//! What an API server says of a request that it refuses, before anybody reads it: a `Status` and nothing else, without the credential that the
//! request was sent with.
//!
//! A refusal is published: in the log, in Events, in a status. What stands before an API server may answer in its place, with a page that repeats
//! the headers of the request (a debug backend, an ingress that is set up wrongly), and so may a `Status`. kube makes any other body the message of one.

use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, TryFutureExt as _};
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body as HttpBody;
use kube::core::Status;
use logging::MASK;
use serde_json::{Value, json};
use tower::{BoxError, Service};

use crate::error::{self, NO_STATUS};
use crate::public::redact::SHORTEST;

/// The largest refusal that is read, in bytes. One that says what is wrong with an object of the largest size takes less.
pub(super) const MAX_REFUSAL: u64 = 1 << 20;

/// Whether a server refuses the request with this.
pub(super) fn is_refusal(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// The credential that a request was sent with, on the answer.
#[derive(Clone)]
struct Sent(HeaderValue);

/// Keeps with each refusal the credential that was sent: whoever reads the answer never sees the request as it left.
#[derive(Clone)]
pub(super) struct Credentials<S>(pub(super) S);

impl<S, Q, B> Service<Request<Q>> for Credentials<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let sent = request.headers().get(AUTHORIZATION).cloned();
        let answer = self.0.call(request).map_ok(|mut answer| {
            if let Some(sent) = sent.filter(|_| is_refusal(answer.status())) {
                answer.extensions_mut().insert(Sent(sent));
            }
            answer
        });
        answer.boxed()
    }
}

/// A refusal as it may be read.
///
/// # Errors
/// It does not end in time, or breaks off.
pub(super) async fn read<B>(answer: Response<B>) -> Result<Response<Full<Bytes>>, BoxError>
where
    B: HttpBody<Data = Bytes, Error = BoxError>,
{
    let (mut parts, body) = answer.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        // Too long to be a `Status`.
        Err(failed) if release::kube::is_too_large(&*failed) => Bytes::new(),
        Err(failed) => return Err(failed),
    };
    let sent = parts.extensions.remove::<Sent>();
    let secrets = sent.map(|sent| secrets(&sent.0)).unwrap_or_default();
    let body = without(&secrets, parts.status, body);
    for header in [CONTENT_LENGTH, CONTENT_ENCODING] {
        parts.headers.remove(header);
    }
    Ok(Response::from_parts(parts, Full::new(body)))
}

/// The texts of a credential that nobody may read: as it is sent, and what is encoded in that of a user with a password.
fn secrets(sent: &HeaderValue) -> Vec<String> {
    let sent = String::from_utf8_lossy(sent.as_bytes());
    let (scheme, credential) = sent.split_once(' ').unwrap_or(("", &sent));
    let mut secrets = vec![credential.trim().to_owned()];
    let pair = golib::base64::decode(credential.trim()).ok();
    let pair = pair.filter(|_| scheme.eq_ignore_ascii_case("basic"));
    if let Some(pair) = pair.and_then(|pair| String::from_utf8(pair).ok()) {
        secrets.extend(
            pair.split_once(':')
                .map(|(_, password)| password.to_owned()),
        );
    } else {
        secrets.push(golib::base64::encode(credential.trim()));
    }
    secrets.retain(|secret| secret.len() >= SHORTEST);
    secrets
}

/// The body of a refusal without these texts; in the place of one that is no `Status`, one that says so.
fn without(secrets: &[String], code: StatusCode, body: Bytes) -> Bytes {
    let read = serde_json::from_slice::<Value>(&body).ok();
    let Some(mut said) = read.filter(is_status) else {
        let code = code.as_u16();
        let said = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": NO_STATUS,
            "message": error::answered(code), "code": code});
        return said.to_string().into();
    };
    match mask(&mut said, secrets) {
        true => said.to_string().into(),
        false => body,
    }
}

/// Whether this is what API servers answer. kube takes any object for it.
fn is_status(said: &Value) -> bool {
    let is_one = said["kind"] == "Status" || said["status"] == "Failure";
    is_one && serde_json::from_value::<Status>(said.clone()).is_ok()
}

/// Whether one of the secrets stood in any text; it does not any more.
fn mask(said: &mut Value, secrets: &[String]) -> bool {
    let mut is_masked = false;
    match said {
        Value::String(text) => {
            for secret in secrets {
                if text.contains(&**secret) {
                    *text = text.replace(&**secret, MASK);
                    is_masked = true;
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                is_masked |= mask(item, secrets);
            }
        }
        // Of the keys nobody reads any but those that a `Status` has.
        Value::Object(fields) => {
            for field in fields.values_mut() {
                is_masked |= mask(field, secrets);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    is_masked
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::super::requests::{Clients, LastContact};
    use super::*;
    use crate::public::PublicText;

    const TOKEN: &str = "kubeconfig-u-canary:c4n4ry/t0k3n+";

    /// A server that answers 403 with what `body` makes of the request's head.
    async fn echoing(body: impl Fn(&str) -> String + Send + 'static) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut seen, mut part) = (Vec::new(), [0; 4096]);
                while !seen.ends_with(b"\r\n\r\n") {
                    let read = stream.read(&mut part).await.unwrap();
                    seen.extend_from_slice(&part[..read]);
                }
                let body = body(&String::from_utf8(seen).unwrap());
                let head = format!(
                    "HTTP/1.1 403 Forbidden\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                // Who has read enough hangs up.
                let _ = stream.write_all((head + &body).as_bytes()).await;
            }
        });
        url
    }

    async fn refused(url: &str, login: kube::config::AuthInfo) -> (kube::core::Status, String) {
        let mut config = kube::Config::new(url.parse().unwrap());
        config.auth_info = login;
        let client = Clients::default().client(config, &LastContact::default());
        let request = Request::get("/api/v1/namespaces/x").body(Vec::new());
        let failed = client.unwrap().request_text(request.unwrap()).await;
        let failed = failed.unwrap_err();
        let text = PublicText::nothing_secret_in(&failed).to_string();
        match failed {
            kube::Error::Api(status) => (*status, text),
            other => panic!("{other:?}"),
        }
    }

    fn token() -> kube::config::AuthInfo {
        kube::config::AuthInfo {
            token: Some(TOKEN.to_owned().into()),
            ..kube::config::AuthInfo::default()
        }
    }

    fn forbidden(message: &str) -> String {
        let causes = json!([{"message": message, "field": "x"}]);
        json!({"kind": "Status", "reason": "Forbidden", "code": 403, "message": message,
            "details": {"causes": causes}})
        .to_string()
    }

    #[rstest]
    #[case::text(|head: &str| head.to_owned())]
    #[case::an_object(|head: &str| json!({"message": head, "code": 403}).to_string())]
    #[case::an_object_that_kube_cannot_read(|head: &str| json!({"code": head}).to_string())]
    #[case::nothing(|_: &str| String::new())]
    #[case::no_end_in_sight(|_: &str| "x".repeat(8 << 20))]
    #[tokio::test]
    async fn of_what_is_no_status_the_code_is_told(
        #[case] body: impl Fn(&str) -> String + Send + 'static,
    ) {
        let (status, text) = refused(&echoing(body).await, token()).await;
        assert_eq!(text, "the API server answered 403");
        assert_eq!((status.code, &*status.reason), (403, NO_STATUS));
        assert_eq!(status.message, text);
    }

    #[tokio::test]
    async fn a_status_that_repeats_the_token_does_not_show_it() {
        let url = echoing(|head| forbidden(&format!("denied: {head}"))).await;
        let (status, text) = refused(&url, token()).await;
        assert!(
            text.contains("authorization: Bearer **REDACTED**"),
            "{text}"
        );
        assert!(!format!("{status:?}").contains("c4n4ry"), "{status:?}");
        let url = echoing(|_| forbidden(&golib::base64::encode(TOKEN))).await;
        assert_eq!(refused(&url, token()).await.1, MASK);
    }

    #[tokio::test]
    async fn neither_does_one_that_repeats_a_users_password() {
        let login = || kube::config::AuthInfo {
            username: Some("agent".to_owned()),
            password: Some("c4n4ry".to_owned().into()),
            ..kube::config::AuthInfo::default()
        };
        let url = echoing(|head| forbidden(&format!("no c4n4ry: {head}"))).await;
        let (_, text) = refused(&url, login()).await;
        assert!(text.contains("Basic **REDACTED**"), "{text}");
        let encoded = golib::base64::encode("agent:c4n4ry");
        assert!(
            !text.contains("c4n4ry") && !text.contains(&encoded),
            "{text}"
        );
    }

    /// It is no secret, and nothing would be left of the words.
    #[tokio::test]
    async fn a_token_that_is_a_letter_hides_nothing() {
        let login = kube::config::AuthInfo {
            token: Some("i".to_owned().into()),
            ..kube::config::AuthInfo::default()
        };
        let (status, _) = refused(&echoing(|_| forbidden("it is")).await, login).await;
        assert_eq!((&*status.reason, &*status.message), ("Forbidden", "it is"));
    }

    #[tokio::test]
    async fn another_status_is_read_as_it_was_sent() {
        let url = echoing(|_| forbidden("namespaces \"x\" is forbidden")).await;
        let (status, text) = refused(&url, token()).await;
        assert_eq!(text, "namespaces \"x\" is forbidden");
        assert_eq!((status.code, &*status.reason), (403, "Forbidden"));
        assert_eq!(status.details.unwrap().causes[0].field, "x");
    }
}
