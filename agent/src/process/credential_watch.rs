//! The watch of the credential and bootstrap Secrets.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher;
use kube::{Api, Client};

use crate::client::backoff::Backoff;
use crate::client::health::{Health, Side};
use crate::client::listed::Metadata;
use crate::client::watch::{self, Broken};
use crate::config::{AGENT_NAME, BOOTSTRAP_NAME};
use crate::public;
use crate::public::PublicText;
use crate::register::{Credential, Registrar};
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
    /// The credential in use.
    pub(super) current: &'a Credential,
    pub(super) health: &'a Health,
    pub(super) events: &'a Events,
}

impl CredentialWatch<'_> {
    /// Ends when another credential is stored and works; until then the one in use is kept. A
    /// bootstrap Secret that appears with new content, or a credential that is deleted, leads to another registration
    /// while work goes on.
    pub(super) async fn run(&self) {
        let mut bootstrap = self.watch(BOOTSTRAP_NAME);
        let mut credential = self.watch(AGENT_NAME);
        let mut renewal: Option<BoxFuture<'_, ()>> = None;
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
                () = until_done(&mut renewal) => {
                    is_gone = false;
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
                            renewal = Some(self.registrar.renew().boxed());
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
            }
        }
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
            let failed = match self.registrar.has_replacement_of(self.current).await {
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
    use std::sync::atomic::{AtomicUsize, Ordering};

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
            current: &Credential::from_data(&BTreeMap::new()),
            health: &Health::new(Duration::from_secs(300)),
            events: &registrar.events,
        };
        // Less than a request may take.
        let ended = tokio::time::timeout(Duration::from_secs(25), watch.run()).await;
        assert!(ended.is_err());
        // The configuration and both Secrets.
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }
}
