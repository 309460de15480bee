//! The watch of the credential and bootstrap Secrets.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};

use crate::client::health::{Health, Side};
use crate::client::watch::{self, Broken};
use crate::config::{AGENT_NAME, BOOTSTRAP_NAME};
use crate::error;
use crate::public;
use crate::register::{Credential, Registrar};
use crate::report::events::{Events, Reason};
use crate::report::public::PublicText;

/// The pause after the last of a growing series, which has no last.
const RETRY: Duration = Duration::from_secs(5);

type SecretEvents = BoxStream<'static, watcher::Result<watcher::Event<PartialObjectMeta<Secret>>>>;

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
                        tracing::info!("the credential is gone, registering again");
                        renewal = Some(self.registrar.renew().boxed());
                    }
                    Err(failed) => {
                        tracing::debug!(error = %error::chain(&failed), "watching the credential");
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
        let mut backoff = watch::Backoff::default();
        loop {
            let failed = match self.registrar.has_replacement_of(self.current).await {
                Ok(is_replaced) => return is_replaced,
                Err(failed) => PublicText::nothing_secret_in(&failed),
            };
            tracing::warn!(
                error = %failed,
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
