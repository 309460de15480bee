//! Objects upstream has of a cluster whose requests are refused, or carried out without an answer.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use k8s_openapi::ByteString;
use kube::client::Body;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::bootstrap::BOOTSTRAP_DIGEST_ANNOTATION;
use super::{LONG_UNHEARD, Registrar, credential};
use crate::client::scripted;
use crate::config::{AGENT_NAME, BOOTSTRAP_NAME};

/// The fate of a ClusterRegistration that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The request is carried out, and nobody hears of it.
    Unanswered,
    Refused,
}

/// Upstream has too much to do.
struct Busy {
    until: Instant,
    /// For requests of which the path has this.
    at: &'static str,
    /// 0 where nothing answers.
    code: u16,
    /// The `Retry-After` of the answer, in seconds.
    retry_after: u32,
}

impl Busy {
    fn with(at: &'static str, code: u16, for_minutes: u64) -> Self {
        Self {
            until: Instant::now() + minutes(for_minutes),
            at,
            code,
            retry_after: 0,
        }
    }

    fn again_after(self, retry_after: u32) -> Self {
        Self {
            retry_after,
            ..self
        }
    }
}

/// After what time Fleet's controller may delete the Secret that answers a registration.
const KEPT: Duration = Duration::from_secs(40 * 60);

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

/// A local cluster and its upstream, which answers a registration at once.
#[derive(Default)]
struct World {
    credential: Option<Value>,
    bootstrap: Option<Value>,
    refuses_first_credential: bool,
    /// The fates of the next registrations; then of all.
    outcomes: VecDeque<Outcome>,
    refuses_all: bool,
    /// While no request for one is heard.
    outage: Option<Range<Instant>>,
    /// How long one is there before it is answered.
    granted_after: Duration,
    /// When a ClusterRegistration was asked for.
    asked: Vec<Instant>,
    /// The ones that are there, and since when.
    registered: Vec<(String, Instant)>,
    /// The Secret that answers the newest one.
    answer: String,
    busy: Option<Busy>,
    /// When Events came.
    events: Vec<Instant>,
    /// So often a credential cannot be stored, and one that was granted cannot be read.
    failing_stores: u32,
    failing_looks: u32,
}

fn secret(name: &str, texts: &[(&str, &str)]) -> Value {
    let data: BTreeMap<_, _> = texts
        .iter()
        .map(|(key, text)| (*key, ByteString((*text).into())))
        .collect();
    json!({"metadata": {"name": name}, "data": data})
}

fn bootstrap(token: &str) -> Value {
    bootstrap_of("http://scripted", token)
}

fn bootstrap_of(server: &str, token: &str) -> Value {
    let texts = [
        ("apiServerURL", server),
        ("token", token),
        ("clusterNamespace", "clusters"),
        ("systemRegistrationNamespace", "registrations"),
    ];
    secret(BOOTSTRAP_NAME, &texts)
}

/// A credential that came of no bootstrap Secret.
fn first_credential() -> Value {
    let mut first = credential_of("http://scripted");
    first["metadata"]["annotations"] = json!({BOOTSTRAP_DIGEST_ANNOTATION: "none"});
    first
}

/// A credential without a note of where it came from.
fn credential_of(server: &str) -> Value {
    let kubeconfig = json!({
        "clusters": [{"name": "a", "cluster": {"server": server}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "bundles"}}],
        "users": [{"name": "a", "user": {"token": "t"}}],
        "current-context": "a",
    });
    secret(AGENT_NAME, &[("kubeconfig", &kubeconfig.to_string())])
}

/// Counts one down.
fn takes_one(left: &mut u32) -> bool {
    let is_left = *left > 0;
    *left = left.saturating_sub(1);
    is_left
}

impl World {
    fn has_granted_credential(&self) -> bool {
        let granted = json!(ByteString("granted".into()));
        let namespace = |stored: &Value| stored["data"]["deploymentNamespace"] == granted;
        self.credential.as_ref().is_some_and(namespace)
    }

    /// Whether the Secret that answers the newest registration is there.
    fn is_answer_there(&self) -> bool {
        let newest = self.registered.last();
        newest.is_some_and(|(_, at)| (self.granted_after..KEPT).contains(&at.elapsed()))
    }

    /// Answers a request; `None` where nobody hears the answer.
    fn serve(&mut self, method: &Method, path: &str, sent: &Value) -> Option<(u16, Value)> {
        let failure = |code: u16, reason: &str| {
            let failed =
                json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason});
            Some((code, failed))
        };
        let found = |object: Option<Value>| match object {
            Some(object) => Some((200, object)),
            None => failure(404, "NotFound"),
        };
        let name = path.rsplit('/').next().unwrap_or_default();
        let now = Instant::now();
        if name == "clusterregistrations" {
            self.asked.push(now);
        }
        if method == Method::POST && name == "events" {
            self.events.push(now);
        }
        if let Some(busy) = &self.busy
            && now < busy.until
            && path.contains(busy.at)
        {
            return failure(busy.code, "").filter(|(code, _)| *code > 0);
        }
        match (method.as_str(), name) {
            ("GET", "bundledeployments") => {
                let is_first = path.contains("/namespaces/bundles/");
                if is_first && self.refuses_first_credential {
                    return failure(401, "Unauthorized");
                }
                if !is_first && takes_one(&mut self.failing_looks) {
                    return failure(500, "InternalError");
                }
                Some((200, json!({"metadata": {}, "items": []})))
            }
            ("GET", "kube-system") => Some((200, json!({"metadata": {"uid": "u"}}))),
            ("GET", AGENT_NAME) if path.contains("/secrets/") => found(self.credential.clone()),
            ("GET", BOOTSTRAP_NAME) => found(self.bootstrap.clone()),
            ("DELETE", BOOTSTRAP_NAME) => found(self.bootstrap.take()),
            ("POST", "clusterregistrations") => {
                if self.outage.as_ref().is_some_and(|one| one.contains(&now)) {
                    return None;
                }
                let becomes = self.outcomes.pop_front();
                if self.refuses_all || becomes == Some(Outcome::Refused) {
                    return failure(403, "Forbidden");
                }
                let made = self.registered.len().to_string();
                let name = sent["metadata"]["name"].as_str().unwrap_or(&made);
                if self.registered.iter().any(|(known, _)| known == name) {
                    return failure(409, "AlreadyExists");
                }
                self.registered.push((name.to_owned(), Instant::now()));
                let random = sent["spec"]["clientRandom"].as_str().unwrap_or_default();
                self.answer = credential::secret_name("u", random);
                becomes.is_none().then(|| (201, sent.clone()))
            }
            ("GET", name) if name == self.answer && self.is_answer_there() => {
                let texts = [("token", "t"), ("deploymentNamespace", "granted")];
                Some((200, secret(name, &texts)))
            }
            ("POST", "secrets") if self.credential.is_some() => failure(409, "AlreadyExists"),
            ("POST", "secrets") | ("PUT", AGENT_NAME) => {
                if takes_one(&mut self.failing_stores) {
                    return failure(500, "InternalError");
                }
                self.credential = Some(sent.clone());
                Some((200, sent.clone()))
            }
            _ => failure(404, "NotFound"),
        }
    }
}

fn registrar(world: &Arc<Mutex<World>>) -> Registrar {
    let world = Arc::clone(world);
    let clients = scripted::clients_with_headers(move |request: Request<Body>| {
        let world = Arc::clone(&world);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let sent = serde_json::from_slice(&body).unwrap_or_default();
            let answer = world.lock().serve(&parts.method, parts.uri.path(), &sent);
            let Some((code, body)) = answer else {
                return std::future::pending().await;
            };
            let mut answer = Response::new(body);
            *answer.status_mut() = StatusCode::from_u16(code).unwrap();
            let retry_after = world.lock().busy.as_ref().map(|busy| busy.retry_after);
            if let Some(seconds) = retry_after.filter(|seconds| *seconds > 0 && code >= 400) {
                let headers = answer.headers_mut();
                headers.insert(header::RETRY_AFTER, seconds.into());
            }
            answer
        }
    });
    Registrar::scripted(clients)
}

fn world(world: World) -> (Arc<Mutex<World>>, Registrar) {
    let world = Arc::new(Mutex::new(World {
        bootstrap: Some(bootstrap("a")),
        ..world
    }));
    let registrar = registrar(&world);
    (world, registrar)
}

/// Two registrations of one cluster are two accounts upstream, and the second takes away what the first was granted.
#[rstest]
#[case::unanswered(&[Outcome::Unanswered], false)]
#[case::unanswered_and_then_refused(&[Outcome::Unanswered, Outcome::Refused], false)]
#[case::refused(&[Outcome::Refused, Outcome::Refused], false)]
#[case::dropped_meanwhile(&[Outcome::Unanswered], true)]
#[tokio::test(start_paused = true)]
async fn one_registration_is_made_though_answers_are_lost_or_refused(
    #[case] outcomes: &[Outcome],
    #[case] is_dropped: bool,
) {
    let (world, registrar) = world(World {
        outcomes: outcomes.iter().copied().collect(),
        ..World::default()
    });
    if is_dropped {
        let dropped = tokio::time::timeout(Duration::from_secs(5), registrar.register(None));
        assert!(dropped.await.is_err());
    }
    registrar.register(None).await;
    let world = world.lock();
    assert_eq!(world.asked.len(), outcomes.len() + 1);
    assert_eq!(world.registered.len(), 1);
    assert!(world.has_granted_credential());
}

/// Fleet keeps the answer for 40 minutes: until then what was sent is asked for again, and after that it would be waited for in vain.
#[rstest]
#[case::kept(35, 1)]
#[case::deleted(45, 2)]
#[tokio::test(start_paused = true)]
async fn a_registration_that_got_no_reply_is_repeated_only_while_its_answer_is_kept(
    #[case] out_until: u64,
    #[case] registered: usize,
) {
    let begun = Instant::now();
    let (world, registrar) = world(World {
        outcomes: [Outcome::Unanswered].into(),
        outage: Some(begun + Duration::from_secs(30)..begun + minutes(out_until)),
        ..World::default()
    });
    registrar.register(None).await;
    let world = world.lock();
    assert_eq!(world.registered.len(), registered);
    assert!(world.has_granted_credential());
    assert!(begun.elapsed() < minutes(50), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_registration_made_after_an_outage_is_waited_for_as_long_as_any_other() {
    let begun = Instant::now();
    let (world, registrar) = world(World {
        outage: Some(begun..begun + minutes(27)),
        granted_after: minutes(10),
        ..World::default()
    });
    registrar.register(None).await;
    let world = world.lock();
    assert_eq!(world.registered.len(), 1);
    assert!(world.has_granted_credential());
}

#[rstest]
#[case::not_stored(2, 0)]
#[case::not_looked_at(0, 2)]
#[tokio::test(start_paused = true)]
async fn a_granted_credential_is_fetched_again_without_a_second_registration(
    #[case] failing_stores: u32,
    #[case] failing_looks: u32,
) {
    let (world, registrar) = world(World {
        failing_stores,
        failing_looks,
        ..World::default()
    });
    registrar.register(None).await;
    let world = world.lock();
    assert_eq!(world.registered.len(), 1);
    assert!(world.has_granted_credential());
}

/// A session asks for another connection, and makes use of the Secret: they have one pause.
#[tokio::test(start_paused = true)]
async fn a_refused_bootstrap_secret_is_used_once_a_minute() {
    let (world, registrar) = world(World {
        credential: Some(first_credential()),
        refuses_first_credential: true,
        refuses_all: true,
        ..World::default()
    });
    let both = async { tokio::join!(registrar.connect_again(), registrar.renew_if_new()) };
    let both = Box::pin(both);
    let hour = Duration::from_secs(3600);
    assert!(tokio::time::timeout(hour, both).await.is_err());
    // A minute goes by with the first seven.
    let asked = world.lock().asked.len();
    assert!((60..=70).contains(&asked), "{asked}");
}

/// Two tools restore one each.
#[tokio::test(start_paused = true)]
async fn alternating_bootstrap_secrets_register_with_growing_pauses() {
    let (world, registrar) = world(World {
        credential: Some(first_credential()),
        ..World::default()
    });
    for turn in 0..9 {
        let token = ["a", "b"][turn % 2];
        world.lock().bootstrap = Some(bootstrap(token));
        registrar.renew_if_new().await;
    }
    let world = world.lock();
    let registered = world.registered.iter().map(|(_, at)| *at);
    let pauses = registered.clone().zip(registered.skip(1));
    let pauses = pauses.map(|(one, next)| (next - one).as_secs() / 60);
    assert_eq!(
        pauses.collect::<Vec<_>>(),
        [1, 2, 4, 8, 16, 32, 60, 60],
        "in minutes"
    );
    assert!(world.has_granted_credential());
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_could_not_be_stored_is_no_renewal() {
    let (world, registrar) = world(World {
        credential: Some(first_credential()),
        failing_stores: 3,
        ..World::default()
    });
    registrar.renew_if_new().await;
    assert!(world.lock().has_granted_credential());
    let renewed = Instant::now();
    world.lock().bootstrap = Some(bootstrap("b"));
    registrar.renew_if_new().await;
    let last = world.lock().registered.last().unwrap().1;
    assert_eq!((last - renewed).as_secs(), 60);
}

/// Not at each try of somebody who hopes, and not as late as a proxy may say.
#[rstest]
#[case::too_many_requests(429, 120, &[120])]
#[case::unavailable(503, 120, &[120])]
#[case::for_a_day(429, 86_400, &[300])]
#[tokio::test(start_paused = true)]
async fn a_registration_is_retried_after_the_time_a_busy_upstream_names(
    #[case] code: u16,
    #[case] retry_after: u32,
    #[case] pauses: &[u64],
) {
    let begun = Instant::now();
    let (world, registrar) = world(World {
        busy: Some(Busy::with("/clusterregistrations", code, 1).again_after(retry_after)),
        ..World::default()
    });
    registrar.register(None).await;
    let world = world.lock();
    let asked = world.asked[1..].iter();
    let asked: Vec<_> = asked.map(|at| (*at - begun).as_secs()).collect();
    assert_eq!(asked, pauses);
    assert_eq!(world.registered.len(), 1);
    assert!(world.has_granted_credential());
}

/// The bootstrap Secret is as good as before.
#[rstest]
#[case::too_many_requests(429)]
#[case::it_fails(500)]
#[case::unavailable(503)]
#[case::out_of_reach(0)]
#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_busy_for_long_makes_one_registration(#[case] code: u16) {
    for (at, for_minutes) in [
        ("/clusterregistrations", 20),
        // The Secret that answers.
        ("/registrations/secrets/", 35),
        ("/granted/bundledeployments", 20),
        ("/granted/bundledeployments", 45),
    ] {
        let (world, registrar) = world(World {
            busy: Some(Busy::with(at, code, for_minutes)),
            ..World::default()
        });
        let begun = Instant::now();
        registrar.register(None).await;
        let world = world.lock();
        assert_eq!(world.registered.len(), 1, "{at} {for_minutes}");
        assert!(world.has_granted_credential());
        let late = begun.elapsed() - minutes(for_minutes);
        assert!(late < minutes(2), "{at}: {late:?}");
    }
}

/// A registration would take it away, though it works.
#[rstest]
#[case::too_many_requests(429)]
#[case::unavailable(503)]
#[case::out_of_reach(0)]
#[tokio::test(start_paused = true)]
async fn a_busy_upstream_refuses_no_credential(#[case] code: u16) {
    let (world, registrar) = world(World::default());
    registrar.register(None).await;
    {
        let mut world = world.lock();
        // The deletion of the Secret was lost, or somebody restores it.
        world.bootstrap = Some(bootstrap("a"));
        world.busy = Some(Busy::with("/bundledeployments", code, 10));
    }
    registrar.register(None).await;
    assert_eq!(world.lock().registered.len(), 1);
}

/// As where the Go agent stored it, and a re-import restores the Secret. Another server has to be registered with: the first may be gone for good.
#[rstest]
#[case::of_the_same_server("http://scripted", 0)]
#[case::of_another_server("http://former", 1)]
#[tokio::test(start_paused = true)]
async fn a_credential_that_says_nothing_of_its_origin_is_kept_while_its_server_is_busy(
    #[case] server: &str,
    #[case] registered: usize,
) {
    for code in [503, 0] {
        let (world, registrar) = world(World {
            credential: Some(credential_of(server)),
            busy: Some(Busy::with("/bundles/bundledeployments", code, 20)),
            ..World::default()
        });
        registrar.register(None).await;
        assert_eq!(world.lock().registered.len(), registered);
    }
}

/// Somebody changed where it leads to: that it came of this Secret keeps nobody from making a new one.
#[tokio::test(start_paused = true)]
async fn a_credential_that_leads_to_another_server_than_its_bootstrap_secret_is_replaced() {
    let (world, registrar) = world(World {
        busy: Some(Busy::with("/bundles/bundledeployments", 0, 60)),
        ..World::default()
    });
    let with = serde_json::from_value(bootstrap("a")).unwrap();
    let mut stored = credential_of("http://former");
    stored["metadata"]["annotations"] =
        json!({BOOTSTRAP_DIGEST_ANNOTATION: super::bootstrap::digest(Some(&with))});
    world.lock().credential = Some(stored);
    registrar.register(None).await;
    assert_eq!(world.lock().registered.len(), 1);
}

/// The next one waits for what the first was promised, as long as Fleet keeps it.
#[tokio::test(start_paused = true)]
async fn a_session_that_ends_while_upstream_is_busy_leaves_the_registration_to_the_next() {
    for at in ["/registrations/secrets/", "/granted/bundledeployments"] {
        let (world, registrar) = world(World {
            busy: Some(Busy::with(at, 503, 38)),
            ..World::default()
        });
        let session = tokio::time::timeout(minutes(35), registrar.register(None));
        assert!(session.await.is_err());
        registrar.register(None).await;
        assert_eq!(world.lock().registered.len(), 1, "{at}");
    }
}

/// An address behind which something else answers that it is busy is reported in the end.
#[rstest]
#[case::for_a_moment(5, false)]
#[case::for_ever(60, true)]
#[tokio::test(start_paused = true)]
async fn an_event_reports_an_upstream_that_is_busy_for_long(
    #[case] for_minutes: u64,
    #[case] is_reported: bool,
) {
    for at in ["/clusterregistrations", "/registrations/secrets/"] {
        let (world, registrar) = world(World {
            busy: Some(Busy::with(at, 502, for_minutes)),
            ..World::default()
        });
        let begun = Instant::now();
        let registering = registrar.register(None);
        let writing = registrar.events.run();
        let half_an_hour = tokio::time::timeout(minutes(30), async {
            tokio::select! {
                _ = registering => tokio::time::sleep(minutes(1)).await,
                () = writing => {}
            }
        });
        let _ = Box::pin(half_an_hour).await;
        let world = world.lock();
        let of_busy = world
            .events
            .iter()
            .filter(|reported| **reported < begun + minutes(29));
        let first = of_busy.map(|reported| *reported - begun).min();
        let is_of_busy = first.is_some_and(|first| first >= LONG_UNHEARD);
        assert_eq!(is_of_busy, is_reported, "{at}: {first:?}");
    }
}

/// What a server asked for says nothing of another one.
#[tokio::test(start_paused = true)]
async fn a_pause_of_one_server_delays_no_bootstrap_secret_for_another() {
    let (world, registrar) = world(World {
        busy: Some(Busy::with("/clusterregistrations", 503, 60).again_after(300)),
        ..World::default()
    });
    let begun = Instant::now();
    let moving = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let mut world = world.lock();
        world.bootstrap = Some(bootstrap_of("http://other", "b"));
        world.busy = None;
    };
    tokio::join!(registrar.register(None), moving);
    assert!(begun.elapsed() < minutes(2), "{:?}", begun.elapsed());
}
