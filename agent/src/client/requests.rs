//! The clients of the API servers, and what all requests have in common: they are counted, none waits for ever, and the last sign of
//! life of a server is known.
//!
//! `rest_client_requests_total` has client-go's labels, in one family for the process, as client-go has one registry: clients are
//! made in several places and live as long as their credential. Requests on behalf of bundles count too; of a request only its method,
//! its server and the status code are kept, and its path is logged at level `trace`. client-go has no time limit of its own: a
//! server that takes a connection and never answers holds its caller for ever there.

use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Either, Full};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use kube::Client;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use release::kube::{AnswerLimit, AnswerTooLarge, connection};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{Instant, Sleep};
use tower::retry::RetryLayer;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder};
use tower_http::decompression::DecompressionLayer;

use super::refusals::{self, MAX_REFUSAL};
use super::retries::{LastRetry, Retries, RetryAfter};
use crate::public::Name;

/// How long a server may take to begin the answer to a question, and between two parts of it.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an answer may take to its end, however steadily parts of it come: the largest page of a list comes whole at 10 KiB a second. A list is many
/// answers. Watches have none.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Time limit for requests that change something: admission webhooks may take 30 s each, the API server gives up after 60 s itself.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Name of the metric, without the suffix that counters get.
pub const NAME: &str = "rest_client_requests";

/// The `code` label in client-go's metrics for a request that no server answered.
const NO_ANSWER: &str = "<error>";

static REQUESTS: LazyLock<Family<[(&str, String); 3], Counter>> = LazyLock::new(Family::default);

/// The counts, for the page of metrics.
pub fn counts() -> impl prometheus_client::registry::Metric {
    REQUESTS.clone()
}

/// When a server last answered, wholly or in part, and not that it fails (5xx). Cheap to clone, all clones share.
#[derive(Clone, Debug)]
pub struct LastContact(Arc<Mutex<Instant>>);

impl Default for LastContact {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl LastContact {
    /// The last sign of life; the beginning, if there was none yet.
    pub fn last(&self) -> Instant {
        *self.0.lock()
    }

    pub(crate) fn now(&self) {
        *self.0.lock() = Instant::now();
    }
}

/// The largest answer that is taken, in bytes, but for watches: lists come in pages, or of metadata alone. Who can ask for less takes less
/// ([`AnswerLimit`]).
const MAX_ANSWER: u64 = 64 << 20;

/// Objects of a page of a list that is asked for again with fewer where it is too large.
pub const PAGE: u32 = 64;

/// The largest such page, in bytes.
const MAX_PAGE: u64 = 16 << 20;

/// The largest answer to a request that says nothing of it; of a watch the largest event.
fn most(uri: &http::Uri) -> u64 {
    if is_watch(uri) {
        return MAX_PAGE;
    }
    let mut parameters = uri.query().unwrap_or_default().split('&');
    let limit = parameters.find_map(|parameter| parameter.strip_prefix("limit="));
    match limit.and_then(|limit| limit.parse().ok()) {
        Some(2..=PAGE) => MAX_PAGE,
        _ => MAX_ANSWER,
    }
}

/// A watch that ends this soon without an event was not carried out, whatever its answer says: client-go's very short watch.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);

/// A watch that ended at once.
#[derive(Debug, thiserror::Error)]
#[error("the watch ended at once and told nothing")]
struct VeryShortWatch;

/// A server took too long.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
struct AnswerTimeout(Duration);

/// A server began to answer and came to no end.
#[derive(Debug, thiserror::Error)]
#[error("the answer has not ended within {0:?}")]
struct EndlessAnswer(Duration);

/// The HTTP service that sends requests to an API server.
pub type Transport =
    BoxCloneSyncService<Request<Body>, Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError>;

type Connect = dyn Fn(&kube::Config) -> Transport + Send + Sync;

/// Makes clients: over the network, unless something else carries their requests.
#[derive(Clone, Default)]
pub struct Clients {
    connect: Option<Arc<Connect>>,
}

impl Clients {
    /// Clients whose requests go where `connect` says instead of into the network.
    pub fn over(connect: impl Fn(&kube::Config) -> Transport + Send + Sync + 'static) -> Self {
        Self {
            connect: Some(Arc::new(connect)),
        }
    }

    /// A client of few kept connections whose requests are counted and end in time: with an answer, or without one. Only watches go on for
    /// as long as the server likes.
    ///
    /// # Errors
    /// The configuration is no good.
    pub fn client(&self, config: kube::Config, last_contact: &LastContact) -> kube::Result<Client> {
        check_token(&config)?;
        match &self.connect {
            Some(connect) => layered(connect(&config), config, last_contact),
            None => layered(connection::connections(&config)?, config, last_contact),
        }
    }
}

/// A client whose requests `transport` carries. The layers are those of `ClientBuilder::try_from`, and ours.
pub(super) fn layered<S, B>(
    transport: S,
    config: kube::Config,
    last_contact: &LastContact,
) -> kube::Result<Client>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    let (host, last_contact) = (host(&config.cluster_url), last_contact.clone());
    let counted = move |inner| Requests {
        inner,
        host: host.clone(),
        last_contact: last_contact.clone(),
    };
    let retries = config.default_retry.then(Retries::default);
    let service = ServiceBuilder::new()
        .layer_fn(counted)
        .layer(config.base_uri_layer())
        .layer(DecompressionLayer::new().gzip(!config.disable_compression))
        .option_layer(retries.map(RetryLayer::new))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .layer_fn(refusals::Credentials)
        .map_err(Into::into)
        .service(transport);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// kube panics over a token that cannot be sent: one with a line break, usually.
fn check_token(config: &kube::Config) -> kube::Result<()> {
    let token = config.auth_info.token.as_ref();
    let can_be_sent = |token: &SecretString| HeaderValue::from_str(token.expose_secret()).is_ok();
    match token.is_none_or(can_be_sent) {
        true => Ok(()),
        false => Err(kube::Error::Service(
            "the token holds a character that cannot be sent".into(),
        )),
    }
}

/// A server's name and port, without a user and password that its address may have.
fn host(address: &http::Uri) -> String {
    let host = address.host().unwrap_or_default();
    match address.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// The address of a server as status and log may show it.
pub fn shown(address: &http::Uri) -> String {
    let scheme = address.scheme_str().unwrap_or("https");
    format!("{scheme}://{}{}", host(address), address.path())
}

struct Requests<S> {
    inner: S,
    /// The server all requests go to.
    host: String,
    last_contact: LastContact,
}

impl<S, B> Service<Request<Body>> for Requests<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Either<Answer<B>, Full<Bytes>>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let method = request.method().to_string();
        let path = request.uri().path().to_owned();
        let (host, last_contact) = (self.host.clone(), self.last_contact.clone());
        let (limit, is_watch) = (timeout_of(request.method()), is_watch(request.uri()));
        let asked = request.extensions().get::<AnswerLimit>();
        let most = asked.map_or_else(|| most(request.uri()), |asked| asked.0);
        request.extensions_mut().insert(LastRetry::of(limit));
        let retry_after = request.extensions().get::<RetryAfter>().cloned();
        let answer = tokio::time::timeout(limit, self.inner.call(request));
        async move {
            let answer = answer
                .await
                .unwrap_or_else(|_| Err(AnswerTimeout(limit).into()));
            let code = answer.as_ref().map_or_else(
                |_| NO_ANSWER.to_owned(),
                |answer| answer.status().as_u16().to_string(),
            );
            let (method_name, server) = (Name(&method), Name(&host));
            logging::trace!(
                method = method_name,
                host = server,
                path = Name(&path),
                code = Name(&code),
                "request"
            );
            let labels = [("code", code), ("method", method), ("host", host)];
            REQUESTS.get_or_create(&labels).inc();
            let answer = answer?;
            if let Some(retry_after) = retry_after {
                retry_after.hears(&answer);
            }
            let last_contact = (!answer.status().is_server_error()).then_some(last_contact);
            if let Some(last_contact) = &last_contact {
                last_contact.now();
            }
            // An error answered in place of watch events is read to its end, like any other answer.
            let is_watch = is_watch && answer.status().is_success();
            let limits = (!is_watch).then(|| Limits::begin(limit));
            let is_refusal = refusals::is_refusal(answer.status());
            let answer = answer.map(|body| Answer {
                body: Box::pin(body),
                limits,
                silent_since: is_watch.then(Instant::now),
                most: if is_refusal { MAX_REFUSAL } else { most },
                received: 0,
                last_contact,
            });
            match is_refusal {
                true => Ok(refusals::read(answer).await?.map(Either::Right)),
                false => Ok(answer.map(Either::Left)),
            }
        }
        .boxed()
    }
}

fn timeout_of(method: &Method) -> Duration {
    if method == Method::GET {
        READ_TIMEOUT
    } else {
        WRITE_TIMEOUT
    }
}

fn is_watch(uri: &http::Uri) -> bool {
    let mut parameters = uri.query().unwrap_or_default().split('&');
    parameters.any(|parameter| matches!(parameter, "watch=true" | "watch=1"))
}

/// What an answer may take: until its next part, and until its end.
struct Limits {
    part: Duration,
    /// Of the part that is waited for.
    next: Option<Pin<Box<Sleep>>>,
    /// Never set anew.
    end: Pin<Box<Sleep>>,
}

impl Limits {
    /// Of an answer that begins.
    fn begin(part: Duration) -> Self {
        Self {
            part,
            next: None,
            end: Box::pin(tokio::time::sleep(ANSWER_TIMEOUT)),
        }
    }

    /// Why the answer is given up, where it is.
    fn poll_exceeded(&mut self, context: &mut Context<'_>) -> Poll<BoxError> {
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(EndlessAnswer(ANSWER_TIMEOUT).into());
        }
        let part = self.part;
        let next = self
            .next
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(part)));
        next.as_mut()
            .poll(context)
            .map(|()| AnswerTimeout(part).into())
    }
}

/// The body of an answer, which comes in time, each part of it and all.
struct Answer<B> {
    body: Pin<Box<B>>,
    /// Absent for a watch.
    limits: Option<Limits>,
    /// Of a watch that has delivered nothing yet.
    silent_since: Option<Instant>,
    /// In bytes; of a watch one event, which is a line.
    most: u64,
    /// Of the answer, or of the event that has begun.
    received: u64,
    /// `None` where the answer is no sign of life.
    last_contact: Option<LastContact>,
}

impl<B> HttpBody for Answer<B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(part) = this.body.as_mut().poll_frame(context) {
            if let Some(limits) = &mut this.limits {
                limits.next = None;
            }
            if part.is_none()
                && let Some(since) = this.silent_since.take()
                && since.elapsed() < SHORTEST_WATCH
            {
                // kube's watcher would open the next one without a pause.
                return Poll::Ready(Some(Err(VeryShortWatch.into())));
            }
            if let Some(Ok(part)) = &part {
                if let Some(last_contact) = &this.last_contact {
                    last_contact.now();
                }
                let data = part.data_ref().map_or(&[][..], |data| data);
                this.silent_since.take_if(|_| !data.is_empty());
                let begun = match this.limits {
                    Some(_) => None,
                    None => data.rsplit(|byte| *byte == b'\n').next(),
                };
                let is_other = begun.is_some_and(|begun| begun.len() < data.len());
                let before = if is_other { 0 } else { this.received };
                let bytes = begun.unwrap_or(data).len();
                this.received = before.saturating_add(bytes as u64);
                if this.received > this.most {
                    return Poll::Ready(Some(Err(AnswerTooLarge(this.most).into())));
                }
            }
            return Poll::Ready(part.map(|part| part.map_err(Into::into)));
        }
        let Some(limits) = &mut this.limits else {
            return Poll::Pending;
        };
        let exceeded = limits.poll_exceeded(context);
        exceeded.map(|failed| Some(Err(failed)))
    }

    fn is_end_stream(&self) -> bool {
        self.silent_since.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::StatusCode;
    use rstest::rstest;

    use super::super::scripted;
    use super::*;

    #[test]
    fn an_address_is_printed_without_its_password() {
        let address: http::Uri = "https://user:canary@api.example:6443/k8s/x"
            .parse()
            .unwrap();
        assert_eq!(host(&address), "api.example:6443");
        assert_eq!(shown(&address), "https://api.example:6443/k8s/x");
        let plain: http::Uri = "https://api.example".parse().unwrap();
        assert_eq!(
            (host(&plain), shown(&plain)),
            ("api.example".to_owned(), plain.to_string())
        );
    }

    #[test]
    fn watches_are_distinguished_from_lists() {
        let is_one = |uri: &str| is_watch(&uri.parse().unwrap());
        assert!(is_one("/api/v1/secrets?limit=5&watch=true"));
        assert!(!is_one("/api/v1/secrets?labelSelector=watch%3Dtrue"));
        assert!(!is_one("/api/v1/watch=true"));
    }

    #[tokio::test]
    async fn a_token_that_cannot_be_sent_is_an_error() {
        let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
        config.auth_info.token = Some("s3cret\nmore".to_owned().into());
        let client = Clients::default().client(config, &LastContact::default());
        let failed = client.err().unwrap();
        let text = crate::error::chain(&failed);
        assert!(
            text.contains("cannot be sent") && !text.contains("s3cret"),
            "{text}"
        );
    }

    struct Never;

    impl HttpBody for Never {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            Poll::Pending
        }
    }

    fn answer<B>(body: B, limit: Option<Duration>) -> Answer<B> {
        Answer {
            body: Box::pin(body),
            limits: limit.map(Limits::begin),
            silent_since: None,
            most: 16 << 20,
            received: 0,
            last_contact: None,
        }
    }

    /// The answer to another request to a failing cluster does not show whether it is well again.
    #[rstest]
    #[case::fails(500, false)]
    #[case::refuses(404, true)]
    #[case::answers(200, true)]
    #[tokio::test(start_paused = true)]
    async fn an_answer_with_a_5xx_is_no_sign_of_life(#[case] code: u16, #[case] is_sign: bool) {
        let clients = scripted::clients(move |_| {
            let status = serde_json::json!({"kind": "Status", "status": "Failure", "code": code});
            std::future::ready((code, status))
        });
        let last_contact = LastContact::default();
        let client = clients.client(scripted::config(), &last_contact).unwrap();
        let begun = Instant::now();
        tokio::time::advance(Duration::from_secs(60)).await;
        let _ = client.apiserver_version().await;
        assert_eq!(last_contact.last() > begun, is_sign);
    }

    /// So many parts, each alike.
    struct Parts(usize, &'static [u8]);

    impl HttpBody for Parts {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            let left = self.0.checked_sub(1);
            let part = left.map(|left| {
                self.0 = left;
                Ok(Frame::data(Bytes::from_static(self.1)))
            });
            Poll::Ready(part)
        }
    }

    #[tokio::test]
    async fn a_watch_may_send_without_end_and_an_event_may_not() {
        use http_body_util::BodyExt as _;
        const PART: usize = 1 << 20;
        static LINE: [u8; PART] = [b'x'; PART];
        static EVENTS: [u8; PART] = {
            let mut events = LINE;
            events[PART / 2] = b'\n';
            events
        };
        let read = async |parts, part: &'static [u8], limit| {
            let mut answer = answer(Parts(parts, part), limit);
            let mut read = 0;
            while let Some(part) = answer.frame().await {
                match part {
                    Ok(_) => read += 1,
                    Err(failed) => return Err((read, failed.is::<AnswerTooLarge>())),
                }
            }
            Ok(read)
        };
        // All together is what counts of an answer, and the line of a watch.
        assert_eq!(read(100, &EVENTS, None).await, Ok(100));
        assert_eq!(read(100, &LINE, None).await, Err((16, true)));
        assert_eq!(
            read(100, &EVENTS, Some(READ_TIMEOUT)).await,
            Err((16, true))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_answer_times_out_and_a_silent_watch_does_not() {
        use http_body_util::BodyExt as _;
        let failed = answer(Never, Some(READ_TIMEOUT))
            .collect()
            .await
            .unwrap_err();
        assert_eq!(failed.to_string(), "no answer within 30s");
        let watch = answer(Never, None).collect();
        let watch = tokio::time::timeout(Duration::from_secs(3600), watch).await;
        assert!(watch.is_err());
    }

    /// One byte each time, shortly before the next part is due.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_trickles_ends_and_a_watch_that_does_goes_on() {
        use http_body_util::{BodyExt as _, StreamBody};
        const PAUSE: Duration = Duration::from_secs(29);
        let trickle = || {
            StreamBody::new(futures_util::stream::unfold((), |()| async {
                tokio::time::sleep(PAUSE).await;
                let part = Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"x")));
                Some((part, ()))
            }))
        };
        let begun = Instant::now();
        let ends = answer(trickle(), Some(READ_TIMEOUT)).collect();
        let failed = tokio::time::timeout(Duration::from_secs(24 * 3600), ends).await;
        let failed = failed.map(|ended| ended.unwrap_err().to_string());
        assert_eq!(failed.unwrap(), "the answer has not ended within 1800s");
        assert_eq!(begun.elapsed(), ANSWER_TIMEOUT);
        let watch = answer(trickle(), None).collect();
        let watch = tokio::time::timeout(Duration::from_secs(24 * 3600), watch).await;
        assert!(watch.is_err());
    }

    /// Anybody who may create objects could otherwise make the agent hold them all.
    #[tokio::test]
    async fn an_answer_without_end_ends() {
        use http_body_util::{BodyExt as _, StreamBody};
        let parts = || {
            let part = || Ok::<_, BoxError>(Frame::data(Bytes::from(vec![0; 1 << 20])));
            StreamBody::new(futures_util::stream::iter((0..20).map(move |_| part())))
        };
        let failed = answer(parts(), Some(READ_TIMEOUT))
            .collect()
            .await
            .unwrap_err();
        assert!(failed.is::<AnswerTooLarge>(), "{failed}");
    }

    /// A tenant may make as many large objects as he likes; a list that cannot be had at once is asked for in parts.
    #[tokio::test]
    async fn a_list_that_is_too_large_comes_in_smaller_pages() {
        const OBJECTS: usize = 40;
        let asked = |request: &Request<Body>, key: &str| -> Option<usize> {
            let query = request.uri().query()?;
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == key)?.1.parse().ok()
        };
        let last = Arc::new(AtomicUsize::new(0));
        let noted = Arc::clone(&last);
        let serve = tower::service_fn(move |request: Request<Body>| {
            let begin = asked(&request, "continue").unwrap_or(0);
            let limit = asked(&request, "limit").unwrap_or(OBJECTS);
            noted.store(limit, Ordering::Relaxed);
            let end = OBJECTS.min(begin + limit);
            let filler = "x".repeat(1 << 20);
            let object = |n| serde_json::json!({"metadata": {"name": n}, "data": {"x": filler}});
            let next = if end < OBJECTS {
                end.to_string()
            } else {
                String::new()
            };
            let items: Vec<_> = (begin..end).map(|n| object(n.to_string())).collect();
            let list = serde_json::json!({"metadata": {"continue": next}, "items": items});
            let body = http_body_util::Full::new(Bytes::from(list.to_string()));
            std::future::ready(Ok::<_, BoxError>(Response::new(body)))
        });
        let config = kube::Config::new("http://unused".parse().unwrap());
        let client = layered(serve, config, &LastContact::default()).unwrap();
        let resource = objects::Resource {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            plural: "configmaps".to_owned(),
            namespaced: true,
        };
        let mut names = Vec::new();
        release::kube::Cluster::new(client)
            .list_each(&resource, Some("ns"), "a=b", |one| {
                names.push(one.name().parse::<usize>().unwrap());
            })
            .await
            .unwrap();
        assert_eq!(names, (0..OBJECTS).collect::<Vec<_>>());
        let last = last.load(Ordering::Relaxed);
        assert!(last < 16, "{last}");
    }

    /// `.cargo/config.toml` leaves AWS-LC's own entropy source out: it takes a tenth of a second of every start.
    #[test]
    fn randomness_comes_from_the_kernel() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let program = String::from_utf8_lossy(&program);
        let has = |name: [&str; 2]| program.contains(&name.join("_"));
        assert!(has(["RAND", "bytes"]), "symbols are stripped");
        assert!(!has(["jent", "entropy_collector_alloc"]));
    }

    /// Answers every request with an empty object.
    async fn answer_all(listener: tokio::net::TcpListener) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut seen, mut part) = (Vec::new(), [0; 4096]);
                while let Ok(read @ 1..) = stream.read(&mut part).await {
                    seen.extend_from_slice(&part[..read]);
                    if seen.ends_with(b"\r\n\r\n") {
                        seen.clear();
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                        if stream.write_all(answer).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    }

    /// The clock stands still, so whatever is made to wait by it waits for ever: nothing is.
    #[tokio::test(start_paused = true)]
    async fn no_request_waits_for_its_turn() {
        const REQUESTS: usize = 300;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(answer_all(listener));
        let config = kube::Config::new(url.parse().unwrap());
        let client = Clients::default().client(config, &LastContact::default());
        let client = client.unwrap();
        let asking = (0..REQUESTS).map(|_| {
            let request = Request::get("/version").body(Vec::new()).unwrap();
            client.request_text(request)
        });
        // A runtime with nothing to do would move the clock on.
        let begun = (Instant::now(), std::time::Instant::now());
        let busy = async {
            while begun.1.elapsed() < Duration::from_secs(60) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            answers = futures_util::future::join_all(asking) => {
                assert!(answers.iter().all(Result::is_ok), "{answers:?}");
            }
            () = busy => panic!("requests wait for the clock"),
        }
        assert_eq!(begun.0, Instant::now());
    }

    /// Parts of a mebibyte, with ends of lines, counted.
    struct Endless(std::sync::Arc<AtomicUsize>);

    impl HttpBody for Endless {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            static PART: [u8; 1 << 20] = [b'\n'; 1 << 20];
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0..200 => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&PART))))),
                _ => Poll::Ready(None),
            }
        }
    }

    /// A watch that is answered with an error; none if that does not end within a day.
    async fn watch_refused_with<B>(
        body: impl Fn() -> B + Send + Sync + Clone + 'static,
    ) -> Option<kube::Error>
    where
        B: HttpBody<Data = Bytes, Error = BoxError> + Send + 'static,
    {
        use http_body_util::BodyExt as _;
        let serve = tower::service_fn(move |_: Request<Body>| {
            let mut answer = Response::new(body().boxed_unsync());
            *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            std::future::ready(Ok::<_, BoxError>(answer))
        });
        let service = BoxCloneSyncService::new(serve);
        let clients = Clients::over(move |_| service.clone());
        let config = kube::Config::new("http://scripted".parse().unwrap());
        let client = clients.client(config, &LastContact::default()).unwrap();
        let maps = kube::Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(client, "x");
        let parameters = kube::api::WatchParams::default();
        let watching = maps.watch(&parameters, "0");
        let answer = tokio::time::timeout(Duration::from_secs(24 * 3600), watching).await;
        answer.ok().and_then(Result::err)
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_in_place_of_a_watch_ends_like_any_other_answer() {
        assert!(watch_refused_with(|| Never).await.is_some());
        let taken = std::sync::Arc::new(AtomicUsize::new(0));
        let counted = std::sync::Arc::clone(&taken);
        let refused = watch_refused_with(move || Endless(std::sync::Arc::clone(&counted))).await;
        assert!(refused.is_some());
        let taken = taken.load(Ordering::SeqCst) as u64;
        assert!(taken << 20 <= MAX_ANSWER + (1 << 20), "{taken} MiB");
    }
}
