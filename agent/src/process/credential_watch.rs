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
        // Says whether another credential was found.
        let mut renewal: Option<BoxFuture<'_, bool>> = None;
        let mut refusals = Backoff::default();
        // Whether that is since upstream refuses the one in use.
        let mut is_refused = false;
        // Whether that is for want of a credential.
        let mut is_gone = false;
        // Whether a bootstrap Secret came while another one was made use of.
        let mut is_asked_again = false;
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
                is_replaced = until_done(&mut renewal) => {
                    if is_replaced {
                        return;
                    }
                    (is_gone, is_refused) = (false, false);
                    refusals.begins();
                    // What was told meanwhile is over; who is still refused tells so again.
                    let _was_told = self.refused.notified().now_or_never();
                    renewal = std::mem::take(&mut is_asked_again).then(|| self.renew_if_new());
                }
                Some(event) = bootstrap.next() => {
                    if let Ok(watcher::Event::Apply(_) | watcher::Event::InitApply(_)) = event {
                        match renewal {
                            Some(_) => is_asked_again = true,
                            None => renewal = Some(self.renew_if_new()),
                        }
                    }
                }
                Some(event) = credential.next() => match event {
                    Ok(watcher::Event::Apply(_) | watcher::Event::InitApply(_)) => {
                        self.health.contact(Side::Local);
                        is_listed = true;
                        // While it does not work, all else goes on, and whatever is stored next is looked at instead.
                        check = Some(self.is_replaced().boxed());
                    }
                    Ok(watcher::Event::Init) => is_listed = false,
                    Ok(watcher::Event::InitDone) if is_listed => self.health.contact(Side::Local),
                    // Deleted, also while nobody watched.
                    Ok(watcher::Event::InitDone | watcher::Event::Delete(_)) => {
                        self.health.contact(Side::Local);
                        check = None;
                        // A local cluster that fails now and then tells so each time.
                        if !std::mem::replace(&mut is_gone, true) {
                            logging::info!("the credential is gone, registering again");
                            renewal = Some(self.registrar.renew().map(|()| false).boxed());
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
                () = self.refused.notified(), if !is_refused => {
                    let pause = refusals.next().unwrap_or(RETRY);
                    // A registration with a new bootstrap Secret may be waiting for its turn, for up to an hour: this one makes use of that too.
                    is_asked_again |= renewal.is_some();
                    is_refused = true;
                    renewal = Some(self.connect_again(pause).boxed());
                }
            }
        }
    }

    /// As the watch tells of the credential that it leads to, it says nothing itself.
    fn renew_if_new(&self) -> BoxFuture<'_, bool> {
        self.registrar.renew_if_new().map(|()| false).boxed()
    }

    /// Upstream refuses the credential, once or for good: registers again where it does not connect after a pause either and there is a bootstrap
    /// Secret. Whether there is another one then, or this one needs a connection of another kind: authorities and TLS mode may have changed.
    ///
    /// # Cancellation
    /// Safe, as [`Registrar::register`].
    async fn connect_again(&self, pause: Duration) -> bool {
        const TEXT: &str = "upstream refuses the credential, connecting again";
        logging::warn!(pause, "{}", TEXT);
        self.events.emit_for_agent(Reason::CredentialRefused, TEXT);
        tokio::time::sleep(pause).await;
        let (found, _) = self.registrar.register().await;
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
    /// Safe: it only looks.
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use http::Request;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::client::scripted;

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
        let kubeconfig = json!({
            "clusters": [{"name": "a", "cluster": {"server": "http://scripted"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "bundles"}}],
            "users": [{"name": "a", "user": {"token": "t"}}],
            "current-context": "a",
        });
        let data = json!({"kubeconfig": k8s_openapi::ByteString(kubeconfig.to_string().into())});
        let secret = json!({"metadata": {"name": AGENT_NAME}, "data": data});
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
        let (found, _) = Registrar::scripted(scripted(0)).register().await;
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
    async fn a_credential_that_is_refused_ends_no_session_without_another_one() {
        // It connects again, and is asked once more by the client of the session.
        assert_eq!(goes_on(0, false, false).await, (None, 2));
        assert_eq!(goes_on(3, false, false).await, (None, 5));
        let (ended, asked) = goes_on(usize::MAX, false, false).await;
        assert!(ended.is_none() && (50..=75).contains(&asked), "{asked}");
        // Its authorities were replaced, perhaps.
        let (ended, _) = goes_on(0, true, false).await;
        assert!(ended.is_some_and(|after| after < Duration::from_secs(5)));
        // Another registration is under way, and may be for long.
        let (ended, _) = goes_on(0, true, true).await;
        assert!(ended.is_some_and(|after| after < Duration::from_secs(5)));
    }
}
