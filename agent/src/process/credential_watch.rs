//! The watch of the credential and bootstrap Secrets.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::Notify;

use crate::api::BundleDeployment;
use crate::client::health::{Health, Side};
use crate::client::listed::Metadata;
use crate::client::watch::{self, Backoff, Broken};
use crate::config::{AGENT_NAME, BOOTSTRAP_NAME};
use crate::public;
use crate::public::PublicText;
use crate::register::{Registrar, Upstream};
use crate::report::events::{Events, Reason};

/// The pause after the last of a growing series, which has no last.
const RETRY: Duration = Duration::from_secs(5);

type SecretEvents = BoxStream<'static, watcher::Result<watcher::Event<Metadata<Secret>>>>;

/// What the watch reads and sets.
pub(super) struct CredentialWatch<'a> {
    pub(super) local: Client,
    /// System namespace.
    pub(super) namespace: &'a str,
    pub(super) registrar: &'a Registrar,
    /// As the credential in use leads to it.
    pub(super) upstream: &'a Upstream,
    /// Notified when upstream refuses that.
    pub(super) refused: &'a Notify,
    pub(super) health: &'a Health,
    pub(super) events: &'a Events,
}

impl CredentialWatch<'_> {
    /// Ends when another credential is stored and works; until then the one in use is kept. A
    /// bootstrap Secret that appears with new content, or a credential that is deleted or refused, leads to another registration
    /// while work goes on.
    pub(super) async fn run(&self) {
        let mut bootstrap = self.watch(BOOTSTRAP_NAME);
        let mut credential = self.watch(AGENT_NAME);
        // May wait for the lock for an hour, and for its answer for half of one. The session alone ends it.
        let mut renewal: Option<BoxFuture<'_, ()>> = None;
        // Whether a bootstrap Secret came while another one was made use of.
        let mut is_asked_again = false;
        // Since upstream refuses the credential in use, or there is none. Says whether another connection is needed, as `check` does.
        let mut connection: Option<BoxFuture<'_, bool>> = None;
        let mut refusals = Backoff::default();
        let mut is_gone = false;
        let mut check: Option<BoxFuture<'_, bool>> = None;
        let mut is_listed = false;
        loop {
            tokio::select! {
                biased;
                is_replaced = until_done(&mut check) => {
                    if is_replaced {
                        return;
                    }
                    check = None;
                }
                is_replaced = until_done(&mut connection) => {
                    if is_replaced {
                        return;
                    }
                    (connection, is_gone) = (None, false);
                    refusals.begins();
                    // A refusal noted before is over; a client that is still refused notes it again.
                    let _was_told = self.refused.notified().now_or_never();
                }
                () = until_done(&mut renewal) => {
                    renewal = std::mem::take(&mut is_asked_again).then(|| self.registrar.renew_if_new().boxed());
                }
                Some(event) = bootstrap.next() => {
                    if let Ok(watcher::Event::Apply(_) | watcher::Event::InitApply(_)) = event {
                        match renewal {
                            Some(_) => is_asked_again = true,
                            None => renewal = Some(self.registrar.renew_if_new().boxed()),
                        }
                    }
                }
                Some(event) = credential.next() => match event {
                    Ok(watcher::Event::Apply(_) | watcher::Event::InitApply(_)) => {
                        self.health.contact(Side::Local);
                        is_listed = true;
                        // While it does not work, all else goes on, and whatever is stored next is tried instead.
                        check = Some(self.is_replaced().boxed());
                    }
                    Ok(watcher::Event::Init) => is_listed = false,
                    Ok(watcher::Event::InitDone) if is_listed => self.health.contact(Side::Local),
                    // Deleted, also while nobody watched.
                    Ok(watcher::Event::InitDone | watcher::Event::Delete(_)) => {
                        self.health.contact(Side::Local);
                        check = None;
                        // A local cluster that fails now and then says so each time.
                        if !std::mem::replace(&mut is_gone, true) {
                            logging::info!("the credential is gone, registering again");
                            // A registration that is under way goes on all the same.
                            connection = Some(self.connect_again(Duration::ZERO).boxed());
                        }
                    }
                    Err(failed) => {
                        logging::debug!(error = PublicText::nothing_secret_in(&failed), "watching the credential");
                        match watch::is_answer(&failed) {
                            true => self.health.refused(Side::Local),
                            false => self.health.trouble(Side::Local),
                        }
                    }
                },
                () = self.refused.notified(), if connection.is_none() => {
                    const TEXT: &str = "upstream refuses the credential, connecting again";
                    let pause = refusals.next().unwrap_or(RETRY);
                    logging::warn!(pause, "{}", TEXT);
                    self.events.emit_for_agent(Reason::CredentialRefused, TEXT);
                    connection = Some(self.connect_again(pause).boxed());
                }
            }
        }
    }

    /// Upstream refuses the credential, once or for good, or it is gone: registers again where it does not connect after a pause either and there is a
    /// bootstrap Secret. Whether there is another one then, or this one needs a connection of another kind: authorities and TLS mode may have changed.
    ///
    /// # Cancellation
    /// Safe, as [`Registrar::register`].
    async fn connect_again(&self, pause: Duration) -> bool {
        tokio::time::sleep(pause).await;
        let found = self.registrar.connect_again().await;
        if found.credential != self.upstream.credential {
            return true;
        }
        let bundles = self
            .upstream
            .bundle_deployments::<Metadata<BundleDeployment>>();
        let asked = bundles.list(&ListParams::default().limit(1)).await;
        asked.is_err_and(|failed| watch::is_refusal_of_credential(&failed))
    }

    fn watch(&self, name: &str) -> SecretEvents {
        let secrets = Api::namespaced(self.local.clone(), self.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        watch::watch(secrets, config, Broken::Relist)
    }

    /// Whether the stored credential is another one that works. One that does not is tried again
    /// until it does, or is the one in use again.
    ///
    /// # Cancellation
    /// Safe: it only reads.
    async fn is_replaced(&self) -> bool {
        let mut backoff = Backoff::default();
        loop {
            let failed = match self
                .registrar
                .has_replacement_of(&self.upstream.credential)
                .await
            {
                Ok(is_replaced) => return is_replaced,
                Err(failed) => PublicText::nothing_secret_in(&failed),
            };
            logging::warn!(
                error = failed,
                "the new credential does not work, keeping the old one"
            );
            self.events.emit_for_agent(
                Reason::CredentialRefused,
                public!(
                    "the new credential does not work, the old one is kept: {}",
                    failed
                ),
            );
            let pause = backoff.next().unwrap_or(RETRY);
            tokio::time::sleep(pause).await;
        }
    }
}

/// Waits for work that may not be there.
async fn until_done<T>(work: &mut Option<BoxFuture<'_, T>>) -> T {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use http::{Method, Request};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;
    use crate::client::scripted;
    use crate::register::bootstrap::BOOTSTRAP_DIGEST_ANNOTATION;
    use crate::register::credential;

    /// What a local cluster answers that has no Secret and ends each watch; what else it is asked it counts, and never answers.
    async fn flap(asked: Arc<AtomicUsize>, request: Request<Body>) -> (u16, Value) {
        let query = request.uri().query().unwrap_or_default();
        if !query.contains("fieldSelector") {
            asked.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<()>().await;
        }
        match query.contains("watch=true") {
            true => (
                410,
                json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"}),
            ),
            false => (
                200,
                json!({"metadata": {"resourceVersion": "1"}, "items": []}),
            ),
        }
    }

    /// Each list without the credential would begin another registration in the place of the one under way.
    #[tokio::test(start_paused = true)]
    async fn a_local_cluster_that_flaps_leads_to_one_registration() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let clients = scripted::clients(move |request| flap(Arc::clone(&counted), request));
        let registrar = Registrar::scripted(clients);
        let watch = CredentialWatch {
            local: registrar.local.clone(),
            namespace: "system",
            registrar: &registrar,
            upstream: &Upstream::scripted(&registrar.clients),
            refused: &Notify::new(),
            health: &Health::new(Duration::from_secs(300)),
            events: &registrar.events,
        };
        // Less than a request may take.
        let ended = tokio::time::timeout(Duration::from_secs(25), watch.run()).await;
        assert!(ended.is_err());
        // The configuration and both Secrets.
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    fn kubeconfig() -> String {
        let kubeconfig = json!({
            "clusters": [{"name": "a", "cluster": {"server": "http://scripted"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "bundles"}}],
            "users": [{"name": "a", "user": {"token": "t"}}],
            "current-context": "a",
        });
        kubeconfig.to_string()
    }

    /// What a local cluster with a credential and without a bootstrap Secret answers, and an upstream that refuses the first requests: as many as
    /// `refused`. What is asked of upstream is counted. The first look at a bootstrap Secret that is there never ends, where one is to `renew`.
    async fn refusing(
        refused: usize,
        asked: Arc<AtomicUsize>,
        renews: Arc<AtomicBool>,
        request: Request<Body>,
    ) -> (u16, Value) {
        const FAILED: &str = "Failure";
        let (path, query) = (request.uri().path(), request.uri().query());
        let query = query.unwrap_or_default();
        let secret = secret(AGENT_NAME, &[("kubeconfig", &kubeconfig())]);
        if path.ends_with("/bundledeployments") {
            return match asked.fetch_add(1, Ordering::Relaxed) < refused {
                true => (
                    401,
                    json!({"status": FAILED, "code": 401, "reason": "Unauthorized"}),
                ),
                false => (200, json!({"metadata": {}, "items": []})),
            };
        }
        if query.contains("watch=true") {
            std::future::pending::<()>().await;
        }
        if query.contains("fieldSelector") {
            let is_there = !query.contains(BOOTSTRAP_NAME) || renews.load(Ordering::Relaxed);
            let items: Vec<_> = is_there.then_some(secret).into_iter().collect();
            return (
                200,
                json!({"metadata": {"resourceVersion": "1"}, "items": items}),
            );
        }
        if path.ends_with(BOOTSTRAP_NAME) && renews.swap(false, Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        match path.ends_with("/secrets/fleet-agent") {
            true => (200, secret),
            false => (
                404,
                json!({"status": FAILED, "code": 404, "reason": "NotFound"}),
            ),
        }
    }

    /// How long a session goes on whose upstream refuses the credential once, where registering again is refused so often; a client of its own may be
    /// refused for ever. What upstream is asked meanwhile.
    async fn goes_on(
        refused: usize,
        is_client_refused: bool,
        is_renewed: bool,
    ) -> (Option<Duration>, usize) {
        let asked = Arc::new(AtomicUsize::new(0));
        let renews = Arc::new(AtomicBool::new(false));
        let scripted = |refused| {
            let (counted, renews) = (Arc::clone(&asked), Arc::clone(&renews));
            scripted::clients(move |request| {
                refusing(refused, Arc::clone(&counted), Arc::clone(&renews), request)
            })
        };
        let registrar = Registrar::scripted(scripted(refused));
        let clients = if is_client_refused {
            scripted(usize::MAX)
        } else {
            registrar.clients.clone()
        };
        let (found, _) = Registrar::scripted(scripted(0)).register(None).await;
        asked.store(0, Ordering::Relaxed);
        renews.store(is_renewed, Ordering::Relaxed);
        let upstream = Upstream {
            credential: found.credential,
            ..Upstream::scripted(&clients)
        };
        let notify = Notify::new();
        let refusing = async {
            // Once a registration is under way, if there is one.
            tokio::time::sleep(Duration::from_secs(1)).await;
            notify.notify_one();
            std::future::pending::<()>().await;
        };
        let watch = CredentialWatch {
            local: registrar.local.clone(),
            namespace: "system",
            registrar: &registrar,
            upstream: &upstream,
            refused: &notify,
            health: &Health::new(Duration::from_secs(300)),
            events: &registrar.events,
        };
        let begun = tokio::time::Instant::now();
        let running = async {
            tokio::select! {
                () = watch.run() => {}
                () = refusing => {}
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(3600), running).await;
        (
            ended.is_ok().then(|| begun.elapsed()),
            asked.load(Ordering::Relaxed),
        )
    }

    /// Local work needs no upstream: only another connection ends it.
    #[tokio::test(start_paused = true)]
    async fn a_refused_credential_ends_the_session_only_once_there_is_another() {
        // The watch connects again, and upstream is asked once more by the client of the session.
        assert_eq!(goes_on(0, false, false).await, (None, 2));
        assert_eq!(goes_on(3, false, false).await, (None, 5));
        let (ended, asked) = goes_on(usize::MAX, false, false).await;
        assert!(ended.is_none() && (50..=75).contains(&asked), "{asked}");
        // The server's authorities may have been replaced.
        let (ended, _) = goes_on(0, true, false).await;
        assert!(ended.is_some_and(|after| after < Duration::from_secs(5)));
        // Another registration is under way, and may be for long.
        let (ended, _) = goes_on(0, true, true).await;
        assert!(ended.is_some_and(|after| after < Duration::from_secs(5)));
    }

    /// A local cluster, and an upstream that answers the newest registration after five seconds, as Fleet's forgets the older ones.
    struct Registering {
        /// Of the credential.
        version: u64,
        credential: Option<Value>,
        bootstrap: Option<Value>,
        registered: Vec<Instant>,
        /// The Secret that answers the newest one.
        answer: String,
        refuses_first_credential: bool,
        forgets_first_registration: bool,
    }

    impl Registering {
        const ANSWERED_AFTER: Duration = Duration::from_secs(5);

        /// With a credential that came of no bootstrap Secret, and one that is new.
        fn new() -> Self {
            let mut credential = secret(AGENT_NAME, &[("kubeconfig", &kubeconfig())]);
            credential["metadata"]["annotations"] = json!({BOOTSTRAP_DIGEST_ANNOTATION: "none"});
            let mut registering = Self {
                version: 0,
                credential: None,
                bootstrap: Some(bootstrap("a")),
                registered: Vec::new(),
                answer: String::new(),
                refuses_first_credential: false,
                forgets_first_registration: false,
            };
            registering.store(credential);
            registering
        }

        fn store(&mut self, mut credential: Value) {
            self.version += 1;
            credential["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.credential = Some(credential);
        }

        fn delete(&mut self) {
            self.version += 1;
            self.credential = None;
        }

        fn uses_answer(&self) -> bool {
            let namespace = json!(k8s_openapi::ByteString("granted".into()));
            let is_answer = |stored: &Value| stored["data"]["deploymentNamespace"] == namespace;
            self.credential.as_ref().is_some_and(is_answer)
        }

        fn answer(&mut self, method: &Method, path: &str, sent: &Value) -> (u16, Value) {
            let status = |code: u16, reason: &str| {
                let failed = json!({"status": "Failure", "code": code, "reason": reason});
                (code, failed)
            };
            let found = |object: Option<Value>| match object {
                Some(object) => (200, object),
                None => status(404, "NotFound"),
            };
            let name = path.rsplit('/').next().unwrap_or_default();
            match (method.as_str(), name) {
                ("GET", "bundledeployments") => {
                    match path.contains("/bundles/") && self.refuses_first_credential {
                        true => status(401, "Unauthorized"),
                        false => (200, json!({"metadata": {}, "items": []})),
                    }
                }
                ("GET", "kube-system") => (200, json!({"metadata": {"uid": "u"}})),
                ("GET", AGENT_NAME) if path.contains("/secrets/") => found(self.credential.clone()),
                ("GET", BOOTSTRAP_NAME) => found(self.bootstrap.clone()),
                ("DELETE", BOOTSTRAP_NAME) => found(self.bootstrap.take()),
                ("POST", "clusterregistrations") => {
                    let random = sent["spec"]["clientRandom"].as_str().unwrap_or_default();
                    self.answer = credential::secret_name("u", random);
                    self.registered.push(Instant::now());
                    (201, sent.clone())
                }
                ("GET", name) if name == self.answer => match self.registered.last() {
                    _ if self.forgets_first_registration && self.registered.len() == 1 => {
                        status(404, "NotFound")
                    }
                    Some(at) if at.elapsed() >= Self::ANSWERED_AFTER => {
                        let texts = [("token", "t"), ("deploymentNamespace", "granted")];
                        (200, secret(name, &texts))
                    }
                    _ => status(404, "NotFound"),
                },
                ("POST", "secrets") if self.credential.is_some() => status(409, "AlreadyExists"),
                ("POST", "secrets") | ("PUT", AGENT_NAME) => {
                    self.store(sent.clone());
                    found(self.credential.clone())
                }
                _ => status(404, "NotFound"),
            }
        }

        /// What a watch tells that has told of `version`.
        fn changed_since(&self, version: &str) -> Option<Value> {
            if self.version.to_string() == version {
                return None;
            }
            let gone = json!({"metadata": {"name": AGENT_NAME, "resourceVersion": self.version.to_string()}});
            Some(match &self.credential {
                Some(stored) => json!({"type": "MODIFIED", "object": stored}),
                None => json!({"type": "DELETED", "object": gone}),
            })
        }
    }

    fn secret(name: &str, texts: &[(&str, &str)]) -> Value {
        let bytes = |text: &str| k8s_openapi::ByteString(text.into());
        let data: BTreeMap<_, _> = texts
            .iter()
            .map(|(key, text)| (*key, bytes(text)))
            .collect();
        json!({"metadata": {"name": name}, "data": data})
    }

    fn bootstrap(token: &str) -> Value {
        let texts = [
            ("apiServerURL", "http://scripted"),
            ("token", token),
            ("clusterNamespace", "clusters"),
            ("systemRegistrationNamespace", "registrations"),
        ];
        secret(BOOTSTRAP_NAME, &texts)
    }

    async fn registering(state: Arc<Mutex<Registering>>, request: Request<Body>) -> (u16, Value) {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let query = uri.query().unwrap_or_default();
        if query.contains("watch=true") && !query.contains(BOOTSTRAP_NAME) {
            let version = query.split("resourceVersion=").nth(1).unwrap_or_default();
            let version = version.split('&').next().unwrap_or_default();
            loop {
                if let Some(changed) = state.lock().changed_since(version) {
                    return (200, changed);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        if query.contains("watch=true") {
            std::future::pending::<()>().await;
        }
        if query.contains("fieldSelector") {
            let state = state.lock();
            let listed = match query.contains(BOOTSTRAP_NAME) {
                true => state.bootstrap.clone(),
                false => state.credential.clone(),
            };
            let items: Vec<_> = listed.into_iter().collect();
            let version = state.version.to_string();
            let list = json!({"metadata": {"resourceVersion": version}, "items": items});
            return (200, list);
        }
        let body = request.into_body().collect_bytes().await.unwrap();
        let sent = serde_json::from_slice(&body).unwrap_or_default();
        state.lock().answer(&method, uri.path(), &sent)
    }

    fn registrar(state: &Arc<Mutex<Registering>>) -> Registrar {
        let state = Arc::clone(state);
        let clients = move |request| registering(Arc::clone(&state), request);
        Registrar::scripted(scripted::clients(clients))
    }

    /// Whether a session ends within that time, with another credential; when `acts` ends, it goes on.
    async fn session(
        registrar: &Registrar,
        longest: u64,
        acts: impl Future<Output = ()>,
        refused: &Notify,
    ) -> bool {
        let (upstream, _) = registrar.register(None).await;
        let watch = CredentialWatch {
            local: registrar.local.clone(),
            namespace: "system",
            registrar,
            upstream: &upstream,
            refused,
            health: &Health::new(Duration::from_secs(300)),
            events: &registrar.events,
        };
        let acting = async {
            acts.await;
            std::future::pending::<()>().await;
        };
        let running = async {
            tokio::select! {
                () = watch.run() => {}
                () = acting => {}
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(longest), running).await;
        ended.is_ok()
    }

    /// An agent that drops a registration that upstream has accepted and asks again may lose the credential that answers the first.
    #[rstest::rstest]
    #[case::told_for_nothing(false, false)]
    #[case::refused(true, false)]
    #[case::deleted(false, true)]
    #[tokio::test(start_paused = true)]
    async fn a_registration_under_way_is_completed_whatever_happens_to_the_credential(
        #[case] is_refused: bool,
        #[case] is_deleted: bool,
    ) {
        let state = Arc::new(Mutex::new(Registering::new()));
        let (registrar, refused) = (registrar(&state), Notify::new());
        let acts = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            state.lock().refuses_first_credential = is_refused;
            match is_deleted {
                true => state.lock().delete(),
                false => refused.notify_one(),
            }
        };
        assert!(session(&registrar, 30, acts, &refused).await);
        let state = state.lock();
        assert_eq!(state.registered.len(), 1);
        assert!(state.uses_answer());
    }

    #[tokio::test(start_paused = true)]
    async fn a_registration_under_way_is_answered_in_the_next_session() {
        let state = Arc::new(Mutex::new(Registering::new()));
        let (registrar, refused) = (registrar(&state), Notify::new());
        let nothing = || std::future::ready(());
        assert!(!session(&registrar, 3, nothing(), &refused).await);
        assert_eq!(state.lock().registered.len(), 1);
        assert!(session(&registrar, 30, nothing(), &refused).await);
        let state = state.lock();
        assert_eq!(state.registered.len(), 1);
        assert!(state.uses_answer());
    }

    /// Two bootstrap Secrets within an hour: the second waits for a minute, and not for one more whenever upstream refuses a request meanwhile.
    #[tokio::test(start_paused = true)]
    async fn refusals_do_not_put_off_a_registration() {
        let state = Arc::new(Mutex::new(Registering::new()));
        let (registrar, refused) = (registrar(&state), Notify::new());
        assert!(session(&registrar, 30, std::future::ready(()), &refused).await);
        state.lock().bootstrap = Some(bootstrap("b"));
        let begun = Instant::now();
        let acts = async {
            loop {
                tokio::time::sleep(Duration::from_secs(20)).await;
                refused.notify_one();
            }
        };
        session(&registrar, 90, acts, &refused).await;
        let state = state.lock();
        assert_eq!(state.registered.len(), 2);
        assert!(state.registered[1] - begun <= Duration::from_secs(61));
    }

    /// The Cluster was deleted and imported anew while its registration waited for an answer.
    #[tokio::test(start_paused = true)]
    async fn a_new_bootstrap_secret_ends_the_wait_for_the_former_registration() {
        let state = Arc::new(Mutex::new(Registering::new()));
        state.lock().forgets_first_registration = true;
        let (registrar, refused) = (registrar(&state), Notify::new());
        let acts = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            state.lock().bootstrap = Some(bootstrap("b"));
        };
        assert!(session(&registrar, 120, acts, &refused).await);
        let state = state.lock();
        assert_eq!(state.registered.len(), 2);
        assert!(state.uses_answer());
    }
}
