//! The network between the agent and its API servers: latency, faults, and the end of a process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, stream};
use http::{HeaderMap, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tower::BoxError;

use crate::apiserver::{Actor, Answer, Next, Request, Server, Watch, Who};
use crate::desired::SYSTEM;
use crate::random::Random;

/// A watch that has been silent for so long tells its version.
const BOOKMARK: Duration = Duration::from_secs(60);

/// How long it takes more where a list goes on with another page: one has many objects.
const NEXT_PAGE: Duration = Duration::from_secs(1);

/// What goes wrong on the way, in percent of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The request never arrives: the connection breaks.
    pub lost_requests: u64,
    /// It is carried out, and the connection breaks before the answer comes.
    pub lost_answers: u64,
    /// The server answers with 500, 503 or 429.
    pub errors: u64,
    /// Requests take up to this many milliseconds.
    pub slowest: u64,
    /// Watches tell up to this many milliseconds late.
    pub lag: u64,
}

/// Requests of one sort, which a server answers with 503: those of others succeed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outage {
    pub server: &'static str,
    pub verb: Verb,
    pub plural: &'static str,
}

/// What is asked of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    List,
    Read,
    Write,
}

impl Verb {
    /// All of them, as they are told of.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::List, "lists"),
        (Self::Read, "reads"),
        (Self::Write, "writes"),
    ];
}

impl Outage {
    /// The kinds that may not be answered for, by server.
    pub const PLURALS: [(&'static str, &'static [&'static str]); 2] = [
        (
            "upstream",
            &["bundledeployments", "clusters", "contents", "secrets"],
        ),
        (
            "local",
            &[
                "secrets",
                "configmaps",
                "namespaces",
                "jobs",
                "deployments",
                "serviceaccounts",
            ],
        ),
    ];

    /// Whether a request is of this sort.
    fn hits(&self, server: &str, request: &Request) -> bool {
        let is_collection = request.path.last().is_some_and(|last| last == self.plural);
        let verb = match (request.method.as_str(), is_collection) {
            ("GET", true) => Verb::List,
            ("GET", false) => Verb::Read,
            _ => Verb::Write,
        };
        let is_of_kind = request.path.iter().any(|part| part == self.plural);
        server == self.server && verb == self.verb && is_of_kind
    }
}

/// What upstream tells agents to do.
const BUNDLE_DEPLOYMENTS: &str = "bundledeployments";

/// The state of the network.
pub struct Traffic {
    random: Random,
    pub faults: Faults,
    /// What servers do not answer.
    pub outages: BTreeSet<Outage>,
    /// Servers nobody reaches, by name.
    pub down: BTreeSet<&'static str>,
    /// Servers that take what is sent to them and never answer, by name.
    pub silent: BTreeSet<&'static str>,
    /// Lives that reach no server.
    pub cut: BTreeSet<u32>,
    /// The lives of the agent that have not ended.
    alive: BTreeSet<u32>,
    /// A life ends after so many of its requests.
    kill_after: BTreeMap<u32, u64>,
    /// Lives that have just ended that way.
    pub ended: Vec<u32>,
    /// Requests that were answered.
    pub requests: u64,
    /// The same by what was asked, once it is counted.
    pub tally: Option<BTreeMap<String, u64>>,
    /// When the agent last read which bundles upstream has.
    pub listed: Option<Instant>,
    /// When upstream last told the agent anything.
    pub heard: Option<Instant>,
    /// The highest version that upstream has told an agent of.
    pub told_version: u64,
    /// Everything that took place, for printing and comparing.
    pub log: Log,
    begun: Instant,
}

impl Traffic {
    /// Upstream tells an agent something.
    fn hear(&mut self, text: &[u8]) {
        self.heard = Some(Instant::now());
        let told = versions(text).max().unwrap_or(0);
        self.told_version = self.told_version.max(told);
    }
}

/// The versions of objects and lists in an answer.
fn versions(text: &[u8]) -> impl Iterator<Item = u64> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let told = text.split("\"resourceVersion\":\"").skip(1);
    told.filter_map(|rest| rest.split('"').next()?.parse().ok())
}

/// What took place, line by line; only its hash where nobody reads it.
pub struct Log {
    hash: DefaultHasher,
    pub lines: Option<Vec<String>>,
}

impl Log {
    fn new(keeps: bool) -> Self {
        Self {
            hash: DefaultHasher::new(),
            lines: keeps.then(Vec::new),
        }
    }

    /// Adds a line.
    fn add(&mut self, line: fmt::Arguments<'_>) {
        if let Some(lines) = &mut self.lines {
            lines.push(line.to_string());
        }
        fmt::write(&mut Hashed(&mut self.hash), line).expect("a hash takes everything");
        self.hash.write_u8(b'\n');
    }

    /// The hash of all lines.
    pub fn digest(&self) -> String {
        format!("{:016x}", self.hash.finish())
    }
}

/// Hashes what is written, piece by piece.
struct Hashed<'h>(&'h mut DefaultHasher);

impl fmt::Write for Hashed<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// The network; clones share it.
#[derive(Clone)]
pub struct Network {
    traffic: Arc<Mutex<Traffic>>,
    /// Told when a life ends by itself.
    pub deaths: Arc<Notify>,
    /// Told when the agent has read which bundles upstream has.
    pub lists: Arc<Notify>,
}

impl Network {
    /// A network whose chance is `seed`'s.
    pub fn new(seed: u64, keeps_log: bool) -> Self {
        let traffic = Traffic {
            random: Random::of(seed, "network"),
            faults: Faults::default(),
            outages: BTreeSet::new(),
            down: BTreeSet::new(),
            silent: BTreeSet::new(),
            cut: BTreeSet::new(),
            alive: BTreeSet::new(),
            kill_after: BTreeMap::new(),
            ended: Vec::new(),
            requests: 0,
            tally: None,
            listed: None,
            heard: None,
            told_version: 0,
            log: Log::new(keeps_log),
            begun: Instant::now(),
        };
        Self {
            traffic: Arc::new(Mutex::new(traffic)),
            deaths: Arc::new(Notify::new()),
            lists: Arc::new(Notify::new()),
        }
    }

    /// What is known of the traffic.
    pub fn lock(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line to the log.
    pub fn note(&self, line: impl fmt::Display) {
        let mut traffic = self.lock();
        let at = traffic.begun.elapsed().as_millis();
        traffic.log.add(format_args!("{at:>8} {line}"));
    }

    /// A life of the agent begins.
    pub fn begin(&self, life: u32) {
        self.lock().alive.insert(life);
    }

    /// A life ends: nothing of it reaches anything any more.
    pub fn end(&self, life: u32) {
        let mut traffic = self.lock();
        traffic.alive.remove(&life);
        traffic.kill_after.remove(&life);
    }

    /// A life ends after so many more requests.
    pub fn kill_after(&self, life: u32, requests: u64) {
        self.lock().kill_after.insert(life, requests);
    }

    fn is_alive(&self, who: &Who) -> bool {
        who.agent()
            .is_none_or(|life| self.lock().alive.contains(&life))
    }

    /// How long one way takes.
    fn latency(&self) -> Duration {
        let mut traffic = self.lock();
        let slowest = traffic.faults.slowest.max(4);
        // Most are quick; some take as long as it gets.
        let bound = match traffic.random.chance(85) {
            true => slowest.min(8),
            false => slowest,
        };
        Duration::from_millis(1 + traffic.random.below(bound))
    }

    fn lag(&self) -> Duration {
        let mut traffic = self.lock();
        let bound = match traffic.random.chance(80) {
            true => 20,
            false => traffic.faults.lag.max(20),
        };
        Duration::from_millis(1 + traffic.random.below(bound))
    }

    fn chance(&self, percent: impl Fn(&Faults) -> u64) -> bool {
        let mut traffic = self.lock();
        let percent = percent(&traffic.faults);
        percent != 0 && traffic.random.chance(percent)
    }

    /// Counts a request; its life may end with it.
    fn counted(&self, request: &Request, server: &'static str, answer: &Answer) {
        let (actor, code) = (name(request.who.actor), answer.code);
        let mut traffic = self.lock();
        traffic.requests += 1;
        let at = traffic.begun.elapsed().as_millis();
        let asked = request.describe();
        let line = format_args!("{at:>8} {server:<8} {actor} {asked} -> {code}");
        traffic.log.add(line);
        // A lease is renewed for ever.
        let is_lease = asked.contains("/leases/");
        if let Some(tally) = traffic.tally.as_mut().filter(|_| !is_lease) {
            *tally.entry(format!("{server} {asked}")).or_default() += 1;
        }
        let Some(life) = request.who.agent() else {
            return;
        };
        if server == "upstream" && code == 200 {
            traffic.hear(&answer.text);
        }
        if server == "upstream" && code == 200 && asked.ends_with("/bundledeployments") {
            traffic.listed = Some(Instant::now());
            self.lists.notify_one();
        }
        let Some(left) = traffic.kill_after.get_mut(&life) else {
            return;
        };
        *left = left.saturating_sub(1);
        if *left == 0 {
            traffic.kill_after.remove(&life);
            traffic.alive.remove(&life);
            traffic.ended.push(life);
            traffic.log.add(format_args!("{at:>8} kill -9 {actor}"));
            drop(traffic);
            self.deaths.notify_one();
        }
    }
}

/// How an actor is printed.
pub fn name(actor: Actor) -> String {
    match actor {
        Actor::Agent(life) => format!("agent{life}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// The body of an answer.
type Answered = UnsyncBoxBody<Bytes, BoxError>;

/// One connection: from a life of the agent to a server.
#[derive(Clone)]
pub struct Connection {
    pub network: Network,
    pub server: Server,
    /// Name of the server.
    pub to: &'static str,
    pub life: u32,
}

fn unavailable() -> Answer {
    Answer::failure(
        503,
        "ServiceUnavailable",
        "apiserver is shutting down",
        &serde_json::Value::Null,
    )
}

fn broken() -> BoxError {
    std::io::Error::new(
        std::io::ErrorKind::ConnectionReset,
        "connection reset by peer",
    )
    .into()
}

/// The end of a process: nothing more happens.
async fn never<T>() -> T {
    std::future::pending().await
}

impl tower::Service<http::Request<Body>> for Connection {
    type Response = Response<Answered>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Answered>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let connection = self.clone();
        async move { connection.carry(request).await }.boxed()
    }
}

impl Connection {
    async fn carry(self, request: http::Request<Body>) -> Result<Response<Answered>, BoxError> {
        let request = self.read(request).await?;
        sleep(self.network.latency()).await;
        if !self.network.is_alive(&request.who) || self.is_silent() {
            return never().await;
        }
        if self.is_down() {
            let refused = std::io::ErrorKind::ConnectionRefused;
            return Err(std::io::Error::new(refused, "connection refused").into());
        }
        if self.network.chance(|faults| faults.lost_requests) {
            self.network
                .note(format_args!("lost: {}", request.describe()));
            return Err(broken());
        }
        if request.is_watch() {
            return self.watch(request).await;
        }
        if !request.parameter("continue").is_empty() {
            sleep(NEXT_PAGE).await;
        }
        let answer = if self.is_out(&request) {
            unavailable()
        } else if self.network.chance(|faults| faults.errors) {
            self.server_error()
        } else if let Some((held, answer)) = self.server.held_up(&request) {
            sleep(held).await;
            if !self.network.is_alive(&request.who) {
                return never().await;
            }
            answer
        } else {
            self.server.ask(&request)
        };
        self.network.counted(&request, self.to, &answer);
        sleep(self.network.latency()).await;
        if !self.network.is_alive(&request.who) {
            return never().await;
        }
        if self.network.chance(|faults| faults.lost_answers) {
            self.network.note("its answer is lost");
            return Err(broken());
        }
        let is_of_bundles = request
            .path
            .last()
            .is_some_and(|part| part == BUNDLE_DEPLOYMENTS);
        if self.to == "upstream"
            && answer.code == 200
            && is_of_bundles
            && request.who.agent().is_some()
        {
            self.server.told();
        }
        respond(&answer)
    }

    fn is_out(&self, request: &Request) -> bool {
        let traffic = self.network.lock();
        let mut outages = traffic.outages.iter();
        outages.any(|outage| outage.hits(self.to, request))
    }

    fn is_down(&self) -> bool {
        let traffic = self.network.lock();
        traffic.down.contains(self.to) || traffic.cut.contains(&self.life)
    }

    fn is_silent(&self) -> bool {
        self.network.lock().silent.contains(self.to)
    }

    fn server_error(&self) -> Answer {
        let nothing = serde_json::Value::Null;
        let which = self.network.lock().random.below(3);
        match which {
            0 => Answer::failure(
                500,
                "InternalError",
                "etcdserver: request timed out",
                &nothing,
            ),
            1 => unavailable(),
            _ => Answer::failure(429, "TooManyRequests", "too many requests", &nothing),
        }
    }

    async fn read(&self, request: http::Request<Body>) -> Result<Request, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(BoxError::from)?.to_bytes();
        let body = match body.is_empty() {
            true => serde_json::Value::Null,
            false => serde_json::from_slice(&body)?,
        };
        let header = |name: &str| header(&parts.headers, name);
        let user = header("impersonate-user");
        let account = user.rsplit(':').next().unwrap_or_default();
        let who = Who {
            actor: Actor::Agent(self.life),
            account: account.to_owned(),
        };
        let uri = parts.uri.path_and_query().map_or("/", |uri| uri.as_str());
        let mut request = Request::new(who, parts.method.as_str(), uri, body);
        request.accept = header("accept");
        request.content_type = header("content-type");
        request.user_agent = header("user-agent");
        request.impersonates = more_impersonated(&parts.headers, &user);
        let token = header("authorization");
        token
            .trim_start_matches("Bearer ")
            .clone_into(&mut request.token);
        Ok(request)
    }

    async fn watch(self, request: Request) -> Result<Response<Answered>, BoxError> {
        let begun = self.server.watch(&request);
        let answer = match &begun {
            Ok(_) => Answer::ok(Bytes::new()),
            Err(refused) => refused.clone(),
        };
        self.network.counted(&request, self.to, &answer);
        sleep(self.network.latency()).await;
        if !self.network.is_alive(&request.who) {
            return never().await;
        }
        let Ok(watch) = begun else {
            return respond(&answer);
        };
        let seconds = request.query.get("timeoutSeconds");
        let seconds = seconds.and_then(|seconds| seconds.parse().ok());
        let telling = WatchStream {
            connection: self,
            who: request.who,
            watch,
            until: Instant::now() + Duration::from_secs(seconds.unwrap_or(1800)),
            is_over: false,
        };
        let parts = stream::unfold(telling, |mut telling| async move {
            let part = telling.part().await?;
            Some((part.map(Frame::data), telling))
        });
        let body = StreamBody::new(parts).boxed_unsync();
        Ok(Response::builder()
            .header("content-type", "application/json")
            .body(body)?)
    }
}

/// What is impersonated besides an account of the agent's namespace: of those the server knows the groups by itself.
fn more_impersonated(headers: &HeaderMap, user: &str) -> Vec<String> {
    let named = headers.iter();
    let more = named.filter(|(name, _)| {
        let name = name.as_str();
        name.starts_with("impersonate-") && name != "impersonate-user"
    });
    let more = more.map(|(name, value)| format!("{name}: {value:?}"));
    let accounts = format!("system:serviceaccount:{SYSTEM}:");
    let is_account = user.is_empty() || user.starts_with(&accounts);
    let other = (!is_account).then(|| format!("user {user}"));
    more.chain(other).collect()
}

fn header(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

fn respond(answer: &Answer) -> Result<Response<Answered>, BoxError> {
    let mut response = Response::builder()
        .status(answer.code)
        .header("content-type", "application/json");
    if answer.code == 504 {
        response = response.header("retry-after", "1");
    }
    Ok(response.body(
        Full::new(answer.text.clone())
            .map_err(|never| match never {})
            .boxed_unsync(),
    )?)
}

/// A watch on its way.
struct WatchStream {
    connection: Connection,
    who: Who,
    watch: Watch,
    until: Instant,
    is_over: bool,
}

impl WatchStream {
    async fn part(&mut self) -> Option<Result<Bytes, BoxError>> {
        let network = self.connection.network.clone();
        while !self.is_over {
            if !network.is_alive(&self.who) || self.connection.is_silent() {
                return never().await;
            }
            if self.connection.is_down() {
                self.is_over = true;
                return Some(Err(broken()));
            }
            let server = self.connection.server.clone();
            match server.next(&mut self.watch) {
                Next::Part(text) => {
                    sleep(network.lag()).await;
                    if !network.is_alive(&self.who) {
                        return never().await;
                    }
                    if network.chance(|faults| faults.lost_answers) {
                        self.is_over = true;
                        return Some(Err(broken()));
                    }
                    if self.connection.to == "upstream" && self.who.agent().is_some() {
                        network.lock().hear(&text);
                        if self.watch.is_of(BUNDLE_DEPLOYMENTS) {
                            server.told();
                        }
                    }
                    return Some(Ok(text));
                }
                Next::Last(text) => {
                    self.is_over = true;
                    return Some(Ok(text));
                }
                Next::Broken => {
                    self.is_over = true;
                    return Some(Err(broken()));
                }
                Next::End => {
                    self.is_over = true;
                    return None;
                }
                Next::Nothing => {
                    let wakeup = self.watch.wakeup();
                    let silent = Instant::now() + BOOKMARK;
                    tokio::select! {
                        biased;
                        () = wakeup.notified() => {}
                        () = sleep_until(silent.min(self.until)) => {
                            if silent >= self.until {
                                return None;
                            }
                            if let Some(bookmark) = server.bookmark(&mut self.watch) {
                                return Some(Ok(bookmark));
                            }
                        }
                    }
                }
            }
        }
        None
    }
}
