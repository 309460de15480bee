//! One bounded GET, with retries, redirects, proxies and a word for each way to fail.
//!
//! Nothing here knows charts. Clients are shared by accesses that trust the same certificates;
//! credentials travel with the request, and never to an address that they are not for: not after a redirect either.

use std::collections::{BTreeSet, VecDeque};
use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use rustls::CertificateError;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use url::Url;

use super::access::LocalAccess;
use super::credentials::{Credentials, Identity, Secret, ShownSecrets};
use super::deadline::{self, Deadline, Pace};
use super::echoed;
use super::error::{CredentialsUse, FetchError, TransportError, is_transient};
use super::index_filter::IndexFilter;
use super::memory::Reservation;
use super::safe_url::SafeUrl;
use super::settings::Settings;
use super::tls;

/// Redirects followed, as Go's client.
const MAX_REDIRECTS: usize = 10;
/// Different trusts whose connections are kept.
const MAX_CLIENTS: usize = 32;
/// What an error page may cost.
const MAX_ERROR_BYTES: u64 = 64 << 10;
/// The longest `Retry-After` worth waiting for; beyond it the caller's own back-off takes over.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(5);
/// A server that says nothing for so long is given up; a slow one may go on.
const SILENCE: Duration = Duration::from_secs(30);

/// How a form is written.
const FORM: &str = "application/x-www-form-urlencoded";

/// Indexes up to this size are read as a whole.
const LARGE_INDEX_BYTES: u64 = 4 << 20;

/// Answers up to this size reserve nothing.
pub(super) const SMALL_BYTES: u64 = 256 << 10;

/// A request to send.
pub(super) struct Request<'a> {
    pub(super) url: Url,
    /// The URL in errors, where the real one is not to be shown.
    pub(super) shown_url: Option<SafeUrl>,
    pub(super) headers: HeaderMap,
    /// An answer longer than this is an error.
    pub(super) limit_bytes: u64,
    /// The access for `url`.
    pub(super) access: &'a LocalAccess,
    /// Sent as a form, by POST; then no redirect is followed.
    pub(super) form: Option<Secret>,
    /// For an index: the charts whose entries alone are read where it is large.
    pub(super) only: Option<BTreeSet<String>>,
    /// Time limit of the work that the request is a part of; else it has a time of its own.
    pub(super) deadline: Option<&'a Deadline>,
}

impl<'a> Request<'a> {
    pub(super) fn get(url: Url, limit_bytes: u64, access: &'a LocalAccess) -> Self {
        Self {
            url,
            shown_url: None,
            headers: HeaderMap::new(),
            limit_bytes,
            access,
            form: None,
            only: None,
            deadline: None,
        }
    }

    pub(super) fn header(mut self, name: reqwest::header::HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

/// The answer, whatever the status; the body of a failure is cut short.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) body_is: BodyIs,
    /// It is of an address that the credentials are not for, mostly as the one that was asked redirects there; it was shown none.
    pub(super) is_elsewhere: bool,
}

impl Answer {
    /// What the server that gave it was shown, where the one that was asked is shown `here`.
    pub(super) fn shown(&self, here: CredentialsUse) -> CredentialsUse {
        match self.is_elsewhere && here == CredentialsUse::Sent {
            true => CredentialsUse::Elsewhere,
            false => here,
        }
    }

    /// Whether the body is but a part.
    pub(super) fn is_filtered(&self) -> bool {
        self.body_is == BodyIs::Filtered
    }
}

/// How much of what was sent a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyIs {
    Whole,
    /// The entries of the requested charts.
    Filtered,
    /// Empty: the body was too large to be kept, and in a form that only makes sense as a whole.
    UnknownForm,
}

/// Bytes that count in the budget until they are dropped, where they are many.
pub(super) fn reserved(bytes: Bytes, reservation: Option<Reservation>) -> Bytes {
    match reservation {
        Some(mut reservation) => {
            reservation.rest();
            Bytes::from_owner(Reserved { bytes, reservation })
        }
        None => bytes,
    }
}

/// A body that counts in the budget until it is dropped.
struct Reserved {
    bytes: Bytes,
    #[expect(dead_code, reason = "held, never read")]
    reservation: Reservation,
}

impl AsRef<[u8]> for Reserved {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The value of a basic `Authorization` header, marked as sensitive.
pub(super) fn basic(credentials: &Credentials) -> HeaderValue {
    let pair = format!("{}:{}", credentials.username(), credentials.password());
    let text = format!("Basic {}", golib::base64::encode(pair));
    let mut value = HeaderValue::from_str(&text).expect("base64 is a valid header value");
    value.set_sensitive(true);
    value
}

type ClientKey = [u8; 32];

/// Answers requests in place of the network.
pub trait Transport: Send + Sync {
    /// The answer to one GET, as it comes: no redirect followed, nothing tried again.
    fn get(
        &self,
        url: &Url,
        headers: &HeaderMap,
    ) -> BoxFuture<'static, Result<http::Response<Bytes>, TransportError>>;
}

/// Sends requests; cheap to share.
pub(super) struct Http {
    settings: Settings,
    transport: Option<Arc<dyn Transport>>,
    clients: Mutex<VecDeque<(ClientKey, reqwest::Client)>>,
}

impl Http {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            transport: None,
            clients: Mutex::default(),
        }
    }

    pub(super) fn over(transport: Arc<dyn Transport>, settings: Settings) -> Self {
        Self {
            transport: Some(transport),
            ..Self::new(settings)
        }
    }

    /// Sends the request until an answer comes that is worth reporting.
    ///
    /// Connection failures, 408, 429 and 5xx are tried again a few times; the whole thing ends
    /// after [`Settings::timeout`], in which waiting for memory does not count; so do all requests together that have one deadline.
    pub(super) async fn send(&self, mut request: Request<'_>) -> Result<Answer, FetchError> {
        let address = || SafeUrl::from(request.url.clone());
        let url = request.shown_url.clone().unwrap_or_else(address);
        if request.access.is_refused(&request.url) {
            return Err(FetchError::HostRefused { url });
        }
        let secrets = shown(&request);
        // A registry names the pages of its lists, and may name another folder's.
        let is_elsewhere = !request.access.shows_credentials_at(&request.url);
        if is_elsewhere {
            request.headers.remove(AUTHORIZATION);
        }
        let limit = self.settings.timeout;
        let own = Deadline::started();
        let deadline = request.deadline.unwrap_or(&own);
        let result = tokio::select! {
            biased;
            result = self.attempts(&request, &url, deadline) => result.map(|answer| Answer {
                is_elsewhere: answer.is_elsewhere || is_elsewhere,
                ..answer
            }),
            () = deadline.expired(limit) => Err(FetchError::Transport {
                source: TransportError::Timeout { limit },
                url: url.clone(),
            }),
        };
        // Where the address is not to be shown a server named it.
        let asked = request
            .url
            .host_str()
            .filter(|_| request.shown_url.is_none());
        result.map_err(|error| match error {
            FetchError::Transport { url, source } => FetchError::Transport {
                source: echoed::transport(source, asked, &secrets),
                url,
            },
            error => error,
        })
    }

    async fn attempts(
        &self,
        request: &Request<'_>,
        url: &SafeUrl,
        deadline: &Deadline,
    ) -> Result<Answer, FetchError> {
        let mut pause = self.settings.retry_pause;
        for left in (0..=self.settings.retries).rev() {
            let result = self.once(request, url, deadline).await;
            let wait = match &result {
                Ok(answer) if is_transient(answer.status.as_u16()) => {
                    retry_after(&answer.headers).unwrap_or(pause)
                }
                Err(FetchError::Transport { source, .. }) if is_passing(source) => pause,
                _ => return result,
            };
            if left == 0 || wait > MAX_RETRY_AFTER {
                return result;
            }
            logging::debug!(url = *url, wait, "trying again");
            tokio::time::sleep(wait).await;
            pause *= 2;
        }
        unreachable!("the last attempt returns")
    }

    async fn once(
        &self,
        request: &Request<'_>,
        url: &SafeUrl,
        deadline: &Deadline,
    ) -> Result<Answer, FetchError> {
        if let Some(transport) = &self.transport {
            let answer = match &request.form {
                None => transport.get(&request.url, &request.headers).await,
                Some(_) => Err(TransportError::Connect {
                    problem: "this transport sends no forms".to_owned(),
                }),
            };
            let (parts, body) = answer
                .map_err(|source| FetchError::Transport {
                    url: url.clone(),
                    source,
                })?
                .into_parts();
            return Ok(Answer {
                status: parts.status,
                headers: parts.headers,
                body,
                body_is: BodyIs::Whole,
                is_elsewhere: false,
            });
        }
        let failed = |error: reqwest::Error| FetchError::Transport {
            url: url.clone(),
            source: transport(error, SILENCE),
        };
        let (mut response, is_elsewhere) = self.follow(request, url).await?;
        let status = response.status();
        let is_success = status.is_success();
        let limit_bytes = if is_success {
            request.limit_bytes
        } else {
            MAX_ERROR_BYTES
        };
        let too_large = || FetchError::TooLarge {
            url: url.clone(),
            limit_bytes,
        };
        let promised = response.content_length().unwrap_or(0);
        if is_success && promised > limit_bytes {
            return Err(too_large());
        }
        let mut filter: Option<IndexFilter> = None;
        let mut is_other_form = false;
        let mut received = 0;
        let mut body = BytesMut::new();
        let mut reservation: Option<Reservation> = None;
        let mut pace = Pace::default();
        loop {
            // A request to a slow server keeps no memory from others for long.
            let waits = reservation.as_ref().map(Reservation::waits);
            let waiting = Instant::now();
            let chunk = response.chunk().await;
            drop(waits);
            let chunk = match chunk {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                // What a failure adds to its status may be missing: servers hang up on whom they refuse.
                Err(_) if !is_success => break,
                Err(error) => return Err(failed(error)),
            };
            received += chunk.len() as u64;
            let is_held = reservation.is_some() || filter.is_some();
            if is_held && pace.is_too_slow(chunk.len() as u64, waiting.elapsed()) {
                return Err(FetchError::Transport {
                    url: url.clone(),
                    source: TransportError::TooSlow {
                        least_bytes: deadline::LEAST_BYTES,
                        within: deadline::WITHIN,
                    },
                });
            }
            if received > limit_bytes {
                if is_success {
                    return Err(too_large());
                }
                break;
            }
            if let Some(charts) = request.only.as_ref().filter(|_| is_success)
                && received > LARGE_INDEX_BYTES
            {
                match &mut filter {
                    Some(filter) => {
                        if filter.push(&chunk).is_err() {
                            return Ok(unknown_form(response.headers_mut()));
                        }
                        // The filter's kept entries are there, as the body would be.
                        let kept = filter.kept_bytes();
                        let held = reservation.as_ref();
                        if kept > held.map_or(SMALL_BYTES, Reservation::bytes) {
                            let needed = kept.saturating_mul(2);
                            self.reserve(&mut reservation, needed, deadline).await;
                        }
                        continue;
                    }
                    // The beginning is here: in a form that only makes sense as a whole it goes on as that.
                    None if is_other_form => {}
                    None => {
                        let mut begun = IndexFilter::new(charts.clone());
                        match begun.push(&body).and_then(|()| begun.push(&chunk)) {
                            Ok(()) => {
                                body = BytesMut::new();
                                reservation = None;
                                filter = Some(begun);
                                continue;
                            }
                            Err(_) => is_other_form = true,
                        }
                    }
                }
            }
            let length = (body.len() + chunk.len()) as u64;
            let held = reservation.as_ref();
            let held = held.map_or(SMALL_BYTES, Reservation::bytes);
            if length > held {
                // A promised body that does not come keeps no memory from others.
                let doubled = length.saturating_mul(2);
                let needed = match promised >= length {
                    true => doubled.min(promised),
                    false => doubled.min(limit_bytes),
                };
                self.reserve(&mut reservation, needed, deadline).await;
            }
            body.extend_from_slice(&chunk);
        }
        let body_is = match filter.map(IndexFilter::finish) {
            None => BodyIs::Whole,
            Some(Err(_)) => return Ok(unknown_form(response.headers_mut())),
            Some(Ok(kept)) => {
                let bytes = kept.len() as u64;
                if bytes > SMALL_BYTES && reservation.is_none() {
                    self.reserve(&mut reservation, bytes, deadline).await;
                }
                body = BytesMut::from(Bytes::from(kept));
                BodyIs::Filtered
            }
        };
        if let Some(reservation) = &mut reservation {
            reservation.resize(body.len() as u64).await;
        }
        // Capacity beyond the body's length is given back: the body may be kept for long.
        let mut body = Vec::from(body);
        body.shrink_to_fit();
        let body = reserved(body.into(), reservation);
        Ok(Answer {
            status,
            headers: std::mem::take(response.headers_mut()),
            body,
            body_is,
            is_elsewhere,
        })
    }

    /// Waits for a reservation of so many bytes, outside of the time that the server has.
    async fn reserve(
        &self,
        reservation: &mut Option<Reservation>,
        bytes: u64,
        deadline: &Deadline,
    ) {
        match reservation {
            Some(reservation) => deadline.paused_while(reservation.resize(bytes)).await,
            None => {
                let reserved = self.settings.memory.reserve(bytes);
                *reservation = Some(deadline.paused_while(reserved).await);
            }
        }
    }

    /// Sends it, and follows redirects. Only the server that was asked is shown credentials, not the one it redirects to, and only where they
    /// are for all addresses that it leads to.
    async fn follow(
        &self,
        request: &Request<'_>,
        shown: &SafeUrl,
    ) -> Result<(reqwest::Response, bool), FetchError> {
        let failed = |source| FetchError::Transport {
            url: shown.clone(),
            source,
        };
        let (mut url, mut headers) = (request.url.clone(), request.headers.clone());
        let access = request.access;
        let mut identity = access.identity_at(&url);
        let mut client = self.client(access, identity)?;
        let mut is_elsewhere = false;
        for left in (0..=MAX_REDIRECTS).rev() {
            let sent = match &request.form {
                None => client.get(url.clone()),
                Some(form) => client
                    .post(url.clone())
                    .header(CONTENT_TYPE, FORM)
                    .body(form.reveal().to_owned()),
            };
            let sent = sent.headers(headers.clone()).send().await;
            let response = sent.map_err(|error| failed(transport(error, SILENCE)))?;
            let Some(next) = redirected(&response, &url).filter(|_| request.form.is_none()) else {
                return Ok((response, is_elsewhere));
            };
            let next = next.map_err(|problem| failed(TransportError::Redirect { problem }))?;
            if access.is_refused(&next) {
                let is_shown = request.shown_url.is_none();
                let url = if is_shown { next.into() } else { shown.clone() };
                return Err(FetchError::HostRefused { url });
            }
            if left == 0 {
                let problem = "too many redirects".to_owned();
                return Err(failed(TransportError::Redirect { problem }));
            }
            let stays = SafeUrl::from(url.clone()).same_origin(&next) || is_upgrade(&url, &next);
            if !stays || !access.shows_credentials_at(&next) {
                is_elsewhere = true;
                headers.remove(AUTHORIZATION);
            }
            if !stays {
                // As a token service, another host is trusted as what the cluster says of it has it, and sees no certificate.
                identity = None;
                client = self.client(&access.for_token_service(&next), None)?;
            } else if identity.is_some() && access.identity_at(&next).is_none() {
                identity = None;
                client = self.client(access, None)?;
            }
            url = next;
        }
        unreachable!("the last redirect returns")
    }

    /// The client for one trust, with the certificate that it shows. Credentials are no part of it.
    fn client(
        &self,
        access: &LocalAccess,
        identity: Option<&Identity>,
    ) -> Result<reqwest::Client, FetchError> {
        let mut hash = Sha256::new();
        hash.update([u8::from(access.is_insecure())]);
        let ca = access.ca().unwrap_or_default();
        hash.update((ca.len() as u64).to_le_bytes());
        hash.update(ca);
        if let Some(identity) = identity {
            hash.update((identity.certificates.len() as u64).to_le_bytes());
            hash.update(&identity.certificates);
            hash.update(identity.key.reveal());
        }
        let key: ClientKey = hash.finalize().into();
        let mut clients = self.clients.lock();
        if let Some(at) = clients.iter().position(|(known, _)| *known == key) {
            let found = clients.remove(at).expect("its position was just found");
            let client = found.1.clone();
            clients.push_back(found);
            return Ok(client);
        }
        let client = self.build(access, identity)?;
        if clients.len() == MAX_CLIENTS {
            clients.pop_front();
        }
        clients.push_back((key, client.clone()));
        Ok(client)
    }

    fn build(
        &self,
        access: &LocalAccess,
        identity: Option<&Identity>,
    ) -> Result<reqwest::Client, FetchError> {
        let bundles: Vec<&[u8]> = access
            .ca()
            .into_iter()
            .chain(self.settings.proxy_ca.as_deref())
            .collect();
        let mut builder = reqwest::Client::builder()
            .user_agent(self.settings.user_agent.clone())
            .tls_backend_preconfigured(tls::client_config(
                &bundles,
                access.is_insecure(),
                identity,
            )?)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .retry(reqwest::retry::never())
            .connect_timeout(SILENCE)
            .read_timeout(SILENCE)
            .pool_idle_timeout(Duration::from_secs(90))
            .pool_max_idle_per_host(4)
            .dns_resolver(Arc::new(Resolver));
        builder = match &self.settings.proxy {
            Some(proxy) => {
                let proxy = Arc::clone(proxy);
                builder.proxy(reqwest::Proxy::custom(move |url| proxy.for_url(url)))
            }
            None => builder.no_proxy(),
        };
        builder.build().map_err(|error| FetchError::Tls {
            problem: error.to_string(),
        })
    }
}

/// A large index that came and was not kept.
fn unknown_form(headers: &mut HeaderMap) -> Answer {
    Answer {
        status: StatusCode::OK,
        headers: std::mem::take(headers),
        body: Bytes::new(),
        body_is: BodyIs::UnknownForm,
        is_elsewhere: false,
    }
}

/// What the server is shown that nobody else may read.
fn shown(request: &Request<'_>) -> ShownSecrets {
    let mut secrets = ShownSecrets::of(request.access.credentials()).and_of(&request.url);
    let header = request.headers.get(AUTHORIZATION);
    let header = header.and_then(|value| value.to_str().ok());
    if let Some((_, token)) = header.and_then(|text| text.split_once(' ')) {
        secrets.add(token);
    }
    secrets
}

/// Adds user name and password, where it has some.
pub(super) fn authorize<'a>(request: Request<'a>, access: &LocalAccess) -> Request<'a> {
    match access.credentials().filter(|found| found.is_pair()) {
        Some(credentials) => request.header(AUTHORIZATION, basic(credentials)),
        None => request,
    }
}

/// Whether a redirect leads to the same host, from plain HTTP to TLS.
fn is_upgrade(from: &Url, to: &Url) -> bool {
    let place = |url: &Url| (url.scheme() == "http", url.port_or_known_default());
    from.host() == to.host() && (place(from), place(to)) == ((true, Some(80)), (false, Some(443)))
}

/// Where an answer leads to, if it is a redirect.
fn redirected(response: &reqwest::Response, url: &Url) -> Option<Result<Url, String>> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?;
    let next = location.to_str().ok().and_then(|text| url.join(text).ok());
    let next = next.filter(|next| matches!(next.scheme(), "http" | "https"));
    Some(next.ok_or_else(|| "it leads to no address of HTTP".to_owned()))
}

/// Seconds only; a date would need a clock we agree on.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

/// Whether the same request may well succeed in a moment.
fn is_passing(error: &TransportError) -> bool {
    matches!(
        error,
        TransportError::Connect { .. } | TransportError::Interrupted { .. }
    )
}

/// Asks the system, and remembers that it was the name that failed.
struct Resolver;

#[derive(Debug, thiserror::Error)]
#[error("lookup {host}")]
struct UnknownHost {
    host: String,
    source: Arc<io::Error>,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found = tokio::net::lookup_host((host.as_str(), 0))
                .await
                .map(|addresses| Box::new(addresses.collect::<Vec<_>>().into_iter()) as Addrs);
            found.map_err(|source| {
                UnknownHost {
                    host,
                    source: Arc::new(source),
                }
                .into()
            })
        })
    }
}

/// Finds `T` among the causes, also where an `io::Error` wraps one (its `source` skips that one).
fn cause<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        let wrapped = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        if let Some(inner) = wrapped
            && let Some(found) = cause(inner as &(dyn StdError + 'static))
        {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The innermost cause, which is the one people understand.
fn root_text(error: &(dyn StdError + 'static)) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

fn transport(error: reqwest::Error, limit: Duration) -> TransportError {
    let error = error.without_url();
    if let Some(UnknownHost { host, source }) = cause(&error) {
        return TransportError::UnknownHost {
            host: host.clone(),
            source: Arc::clone(source),
        };
    }
    if let Some(error) = cause::<rustls::Error>(&error) {
        return match error {
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                TransportError::UnknownIssuer
            }
            error => TransportError::Tls {
                problem: error.to_string(),
            },
        };
    }
    let problem = root_text(&error);
    if error.is_redirect() {
        TransportError::Redirect { problem }
    } else if error.is_timeout() {
        TransportError::Timeout { limit }
    } else if error.is_connect() {
        TransportError::Connect { problem }
    } else {
        TransportError::Interrupted { problem }
    }
}
