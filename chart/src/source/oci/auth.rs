//! Answering a registry's challenge: a bearer token from its token service, or basic.
//!
//! The distribution spec's token protocol. Credentials go to the registry itself and to the token
//! service it names, the latter only over TLS (or when the registry is a plain one).

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::super::credentials::{Credentials, Secret};
use super::super::echoed;
use super::super::error::{CredentialsUse, FetchError};
use super::super::http::{Request, authorize, basic};
use super::problem::{detail, message};
use super::registry::Registry;

const MAX_TOKEN_BYTES: u64 = 1 << 20;
/// The `client_id` sent to token services.
const CLIENT_ID: &str = "fleetagent";
/// What the spec says when the answer names no `expires_in`.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(60);

/// The `Authorization` header, and until when it is valid.
#[derive(Clone)]
pub(super) struct Authorization {
    pub(super) header: HeaderValue,
    expires: Option<Instant>,
}

impl Authorization {
    /// The token of the header, without its scheme.
    pub(super) fn token(&self) -> &str {
        let header = self.header.to_str().unwrap_or_default();
        header.split_once(' ').map_or(header, |(_, token)| token)
    }

    /// Whether the authorization outlives the request to come.
    pub(super) fn is_fresh(&self) -> bool {
        self.expires
            .is_none_or(|expires| expires > Instant::now() + Duration::from_secs(5))
    }
}

/// What a 401 asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

impl Challenge {
    /// The first challenge we can answer; bearer before basic.
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let texts = || {
            headers
                .get_all(WWW_AUTHENTICATE)
                .iter()
                .filter_map(|v| v.to_str().ok())
        };
        texts().find_map(bearer).or_else(|| {
            texts()
                .any(|text| scheme(text).eq_ignore_ascii_case("basic"))
                .then_some(Self::Basic)
        })
    }
}

fn scheme(text: &str) -> &str {
    text.trim_start()
        .split([' ', ','])
        .next()
        .unwrap_or_default()
}

fn bearer(text: &str) -> Option<Challenge> {
    if !scheme(text).eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service, mut scope) = (None, None, None);
    let mut rest = text.trim_start().get("bearer".len()..)?.trim_start();
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = parameter(after)?;
        match name.trim().to_ascii_lowercase().as_str() {
            "realm" => realm = Some(value),
            "service" => service = Some(value),
            "scope" => scope = Some(value),
            _ => {}
        }
        rest = after.trim_start().trim_start_matches(',').trim_start();
    }
    Some(Challenge::Bearer {
        realm: realm?,
        service,
        scope,
    })
}

/// A token or a quoted string, and what follows it.
fn parameter(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

/// What a token service answers. Some write null for what there is not, and a lifetime that is no number of seconds is as good as none.
#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<Value>,
}

impl TokenAnswer {
    fn lifetime(&self) -> Duration {
        // A day is for ever here; a larger figure must not overflow the clock.
        const MOST: Duration = Duration::from_secs(86_400);
        let seconds = self.expires_in.as_ref().and_then(Value::as_u64);
        seconds
            .map_or(DEFAULT_LIFETIME, Duration::from_secs)
            .min(MOST)
    }

    fn token(self) -> String {
        let named = self.token.filter(|token| !token.is_empty());
        named.or(self.access_token).unwrap_or_default()
    }
}

/// Answers `challenge` for a pull from `repository`. `None`: we have nothing it would accept.
pub(super) async fn answer(
    registry: &Registry<'_>,
    repository: &str,
    challenge: &Challenge,
) -> Result<Option<Authorization>, FetchError> {
    match challenge {
        Challenge::Basic => Ok(registry
            .access
            .credentials()
            .filter(|credentials| credentials.is_pair())
            .map(|credentials| Authorization {
                header: basic(credentials),
                expires: None,
            })),
        Challenge::Bearer {
            realm,
            service,
            scope,
        } => {
            let pull = format!("repository:{repository}:pull");
            let scope = scope.as_deref().unwrap_or(&pull);
            token(registry, realm, service.as_deref(), scope)
                .await
                .map(Some)
        }
    }
}

async fn token(
    at: &Registry<'_>,
    realm: &str,
    service: Option<&str>,
    scope: &str,
) -> Result<Authorization, FetchError> {
    let (http, registry, deadline) = (at.http, &at.base, &at.deadline);
    let invalid = |problem: &str| FetchError::Artifact {
        reference: registry.to_string(),
        problem: format!("the token service it names {problem}"),
    };
    let credentials = at.access.credentials();
    if let Some(token) = credentials.and_then(Credentials::registry_token) {
        let header = bearer_header(token).ok_or_else(|| FetchError::Artifact {
            reference: registry.to_string(),
            problem: "the login's registry token cannot be sent".to_owned(),
        })?;
        return Ok(Authorization {
            header,
            expires: None,
        });
    }
    let mut url: Url = registry.join(realm).map_err(|_| invalid("is not a URL"))?;
    let is_safe =
        url.scheme() == "https" || (url.scheme() == "http" && registry.scheme() == "http");
    if !is_safe {
        return Err(invalid("is not reached by TLS, though the registry is"));
    }
    let access = at.access.for_token_service(&url);
    let form = credentials
        .and_then(Credentials::identity_token)
        .map(|token| identity_form(token, service, scope));
    let request = match form {
        Some(form) => Request {
            form: Some(form),
            deadline: Some(deadline),
            ..Request::get(url, MAX_TOKEN_BYTES, &access)
        },
        None => {
            asked_for(&mut url, service, scope);
            let request = Request {
                deadline: Some(deadline),
                ..Request::get(url, MAX_TOKEN_BYTES, &access)
            };
            authorize(request, &access)
        }
    };
    // The challenge that names it may have in it what the registry was shown. What a registry asks for is shown otherwise, as nobody sees
    // without it why a token is refused.
    let shown_url = echoed::shown_url(&request.url, registry, &at.secrets());
    let request = Request {
        shown_url: Some(shown_url.clone()),
        ..request
    };
    let answer = http.send(request).await?;
    if !answer.status.is_success() {
        return Err(FetchError::Registry {
            url: shown_url,
            status: answer.status.as_u16(),
            message: message(&answer.body, &at.secrets()),
            detail: detail(&answer.body, &at.secrets()),
            shown: match credentials {
                Some(_) => CredentialsUse::Sent,
                None => at.shown,
            },
        });
    }
    let answer: TokenAnswer =
        serde_json::from_slice(&answer.body).map_err(|_| invalid("answered no JSON token"))?;
    let lifetime = answer.lifetime();
    let header = bearer_header(&answer.token());
    let header = header.ok_or_else(|| invalid("answered no usable token"))?;
    Ok(Authorization {
        header,
        expires: Some(Instant::now() + lifetime),
    })
}

fn bearer_header(token: &str) -> Option<HeaderValue> {
    let header = HeaderValue::from_str(&format!("Bearer {token}")).ok();
    let mut header = header.filter(|_| !token.is_empty())?;
    header.set_sensitive(true);
    Some(header)
}

/// What a token is asked for with, in the address.
fn asked_for(url: &mut Url, service: Option<&str>, scope: &str) {
    let mut query = url.query_pairs_mut();
    if let Some(service) = service {
        query.append_pair("service", service);
    }
    for scope in scope.split(' ').filter(|scope| !scope.is_empty()) {
        query.append_pair("scope", scope);
    }
}

/// What an identity token is traded with: OAuth2, as oras and docker do it.
fn identity_form(token: &str, service: Option<&str>, scope: &str) -> Secret {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.append_pair("client_id", CLIENT_ID);
    form.append_pair("grant_type", "refresh_token");
    form.append_pair("refresh_token", token);
    form.append_pair("scope", scope);
    form.append_pair("service", service.unwrap_or_default());
    Secret::new(form.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenge(texts: &[&'static str]) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        for text in texts {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(text));
        }
        Challenge::from_headers(&headers)
    }

    #[test]
    fn reads_challenges() {
        let text =
            r#"Bearer realm="https://a/t?x=1,2",service="reg \"x\"", scope="repository:a/b:pull""#;
        assert_eq!(
            challenge(&[text]),
            Some(Challenge::Bearer {
                realm: "https://a/t?x=1,2".into(),
                service: Some("reg \"x\"".into()),
                scope: Some("repository:a/b:pull".into()),
            })
        );
        assert_eq!(challenge(&["basic realm=x"]), Some(Challenge::Basic));
        let both = challenge(&["Basic realm=\"r\"", "BEARER realm=https://a/t"]);
        assert!(matches!(both, Some(Challenge::Bearer { .. })), "{both:?}");
    }

    #[test]
    fn a_token_is_taken_whatever_is_said_of_its_lifetime() {
        let read = |text: &str| {
            let answer: TokenAnswer = serde_json::from_str(text).unwrap();
            (answer.lifetime().as_secs(), answer.token())
        };
        for (text, lifetime) in [
            (r#"{"token": "t"}"#, 60),
            (r#"{"token": null, "access_token": "t"}"#, 60),
            (r#"{"token": "", "access_token": "t", "expires_in": 9}"#, 9),
            (
                r#"{"token": "t", "access_token": null, "expires_in": null}"#,
                60,
            ),
            (r#"{"token": "t", "expires_in": -1}"#, 60),
            (r#"{"token": "t", "expires_in": 300.5}"#, 60),
            (r#"{"token": "t", "expires_in": "300"}"#, 60),
            (
                r#"{"token": "t", "expires_in": 18446744073709551615}"#,
                86_400,
            ),
        ] {
            assert_eq!(read(text), (lifetime, "t".to_owned()), "{text}");
        }
        assert_eq!(read(r#"{"token": null}"#).1, "");
    }

    #[test]
    fn a_malformed_challenge_is_ignored() {
        for text in [
            "",
            "Negotiate",
            "Bearer",
            "Bearer realm=\"open",
            "Bearer service=x",
            "Bearerö",
        ] {
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.append(WWW_AUTHENTICATE, value);
            }
            assert_eq!(Challenge::from_headers(&headers), None, "{text}");
        }
    }
}
