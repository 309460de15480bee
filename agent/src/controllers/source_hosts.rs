//! What the operator of this cluster says of hosts that charts come from: Secrets of the system namespace with a label.
//!
//! They are read when the first chart is fetched, and watched from then on. They are this cluster's alone: nothing of them goes upstream.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chart::source::{HostAccess, HostPattern, Hosts};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::watcher;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::bundle;
use crate::client::identity::AgentClient;
use crate::client::watch::{self, Broken};
use crate::public;
use crate::public::{Name, PublicText};
use crate::report::events::{Events, Reason};

/// Label of these Secrets.
pub const LABEL: &str = "fleet.cattle.io/source-host";

/// How long a deploy waits for the first answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Nobody knows what this cluster says of hosts.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot list the Secrets of namespace {0} with label {LABEL}, which say how hosts of charts are reached"
)]
pub struct HostsUnavailable(String);

/// The hosts of this cluster; shared by all deploys.
pub struct SourceHosts {
    agent: AgentClient,
    namespace: String,
    events: Arc<Events>,
    /// How long until it is tried again where it is forbidden.
    refresh: Duration,
    state: Mutex<State>,
    requested: Notify,
    known: Notify,
}

#[derive(Default)]
struct State {
    /// The Secrets that exist, by name.
    secrets: BTreeMap<String, Secret>,
    /// The last usable content of each Secret.
    last_usable: BTreeMap<String, Vec<(HostPattern, HostAccess)>>,
    hosts: Option<Arc<Hosts>>,
    is_known: bool,
}

impl SourceHosts {
    /// Hosts that nobody asked for yet; their Secrets are in `namespace`.
    pub fn new(
        agent: AgentClient,
        namespace: &str,
        events: Arc<Events>,
        refresh: Duration,
    ) -> Self {
        Self {
            agent,
            namespace: namespace.to_owned(),
            events,
            refresh,
            state: Mutex::default(),
            requested: Notify::new(),
            known: Notify::new(),
        }
    }

    /// The configured hosts, as soon as they are known. `None`: none are configured.
    ///
    /// # Errors
    /// The Secrets cannot be read. To go on without could send a host what was meant to be overridden.
    pub async fn current(&self) -> Result<Option<Arc<Hosts>>, HostsUnavailable> {
        self.requested.notify_one();
        tokio::time::timeout(PATIENCE, self.known())
            .await
            .map_err(|_| HostsUnavailable(self.namespace.clone()))
    }

    async fn known(&self) -> Option<Arc<Hosts>> {
        loop {
            let known = self.known.notified();
            tokio::pin!(known);
            // Before the state is read: what becomes known in between wakes us too.
            known.as_mut().enable();
            {
                let state = self.state.lock();
                if state.is_known {
                    return state.hosts.clone();
                }
            }
            known.await;
        }
    }

    /// Watches the Secrets from the first question on; never ends. Run again it answers once they were read anew; where that is forbidden, what is known stays.
    pub async fn run(&self) {
        self.state.lock().is_known = false;
        self.requested.notified().await;
        let client = self.agent.client();
        let api = Api::<Secret>::namespaced(client, &self.namespace);
        let config = watcher::Config::default().labels(&format!("{LABEL}=true"));
        loop {
            let mut events = watch::watch(api.clone(), config.clone(), Broken::Relist);
            let mut listed = BTreeMap::new();
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Init) => listed.clear(),
                    Ok(watcher::Event::InitApply(secret)) => {
                        listed.insert(name(&secret).to_owned(), secret);
                    }
                    Ok(watcher::Event::InitDone) => {
                        let listed = std::mem::take(&mut listed);
                        self.change(|secrets| *secrets = listed);
                    }
                    Ok(watcher::Event::Apply(secret)) => self.change(|secrets| {
                        secrets.insert(name(&secret).to_owned(), secret);
                    }),
                    Ok(watcher::Event::Delete(secret)) => self.change(|secrets| {
                        secrets.remove(name(&secret));
                    }),
                    Err(failed) => {
                        let is_forbidden = watch::is_forbidden(&failed);
                        let error = PublicText::nothing_secret_in(&failed);
                        logging::warn!(error, "cannot read what is said of hosts of charts");
                        if is_forbidden {
                            // Known hosts stay; without any, none are configured.
                            self.change(|_| {});
                            break;
                        }
                    }
                }
            }
            tokio::time::sleep(self.refresh).await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Secret>)) {
        let mut broken = Vec::new();
        {
            let state = &mut *self.state.lock();
            change(&mut state.secrets);
            let secrets = &state.secrets;
            state
                .last_usable
                .retain(|name, _| secrets.contains_key(name));
            for (name, secret) in secrets {
                let hosts = match bundle::source_hosts(secret) {
                    Ok(hosts) => hosts,
                    Err(failed) => {
                        broken.push((name.clone(), PublicText::nothing_secret_in(&failed)));
                        let mut refused = bundle::refused_hosts(secret);
                        // To go on without would show a host what was meant to be overridden: of those before, too.
                        if !refused.is_empty() {
                            let before = state.last_usable.remove(name).unwrap_or_default();
                            let gone = before.into_iter().filter(|(host, _)| {
                                !refused.iter().any(|(readable, _)| readable == host)
                            });
                            let gone: Vec<_> = gone.map(|(host, _)| host).collect();
                            refused.extend(gone.into_iter().map(bundle::refused));
                        }
                        refused
                    }
                };
                if !hosts.is_empty() {
                    state.last_usable.insert(name.clone(), hosts);
                }
            }
            let entries: Vec<_> = state.last_usable.values().flatten().cloned().collect();
            state.hosts = (!entries.is_empty()).then(|| Arc::new(Hosts::new(entries)));
            state.is_known = true;
        }
        self.known.notify_waiters();
        for (name, error) in broken {
            let (namespace, name) = (Name(&self.namespace), Name(&name));
            let text = public!(
                "Secret {}/{} cannot be used, and no chart is fetched from hosts that it names: {}",
                namespace,
                name,
                error
            );
            logging::warn!("{}", text);
            self.events.emit_for_agent(Reason::SourceFailed, text);
        }
    }
}

fn name(secret: &Secret) -> &str {
    secret.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::client::scripted;
    use crate::report::metrics::Metrics;

    /// As with each other credential: what was read before is asked for anew, and stays where that is forbidden by then.
    #[tokio::test(start_paused = true)]
    async fn hosts_that_may_not_be_read_any_more_outlive_their_session() {
        let is_allowed = Arc::new(AtomicBool::new(true));
        let allowed = Arc::clone(&is_allowed);
        let clients = scripted::clients(move |request: http::Request<kube::client::Body>| {
            let is_allowed = allowed.load(Ordering::Relaxed);
            async move {
                if !is_allowed {
                    let status = json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "x"});
                    return (403, status);
                }
                if request
                    .uri()
                    .query()
                    .is_some_and(|query| query.contains("watch=true"))
                {
                    std::future::pending::<()>().await;
                }
                let data =
                    json!({"hosts": "Y2hhcnRzLmV4YW1wbGU=", "insecureSkipVerify": "ZmFsc2U="});
                let secret =
                    json!({"metadata": {"name": "host", "namespace": "system"}, "data": data});
                (
                    200,
                    json!({"metadata": {"resourceVersion": "1"}, "items": [secret]}),
                )
            }
        });
        let agent = scripted::identities(&clients).agent();
        let events = Arc::new(Events::new(&agent, "system", "host", Metrics::default()));
        let known = SourceHosts::new(agent, "system", events, Duration::from_secs(60));
        for may_be_read in [true, false] {
            is_allowed.store(may_be_read, Ordering::Relaxed);
            let session = known.run();
            tokio::pin!(session);
            assert!(session.as_mut().now_or_never().is_none());
            assert!(!known.state.lock().is_known);
            let hosts = tokio::select! {
                () = session => unreachable!("it never ends"),
                hosts = known.current() => hosts.unwrap(),
            };
            assert!(hosts.is_some(), "{may_be_read}");
        }
    }

    #[tokio::test]
    async fn no_request_goes_to_the_hosts_of_a_broken_secret() {
        let clients = scripted::clients(|_| async { (404, json!({})) });
        let agent = scripted::identities(&clients).agent();
        let events = Arc::new(Events::new(&agent, "system", "host", Metrics::default()));
        let known = SourceHosts::new(agent, "system", events, Duration::from_secs(60));
        let says = |data: &[(&str, &str)]| {
            let data = data.iter().map(|(key, text)| {
                let text = k8s_openapi::ByteString(text.as_bytes().to_vec());
                ((*key).to_owned(), text)
            });
            let secret = Secret {
                data: Some(data.collect()),
                ..Secret::default()
            };
            known.change(|secrets| {
                secrets.insert("host".to_owned(), secret);
            });
            let state = known.state.lock();
            let hosts = state.last_usable.values().flatten();
            let hosts = hosts.map(|(host, access)| format!("{host} {}", access.is_refused));
            (hosts.collect::<Vec<_>>(), state.hosts.is_some())
        };
        let used = (vec!["charts.example false".to_owned()], true);
        let refused = (vec!["charts.example true".to_owned()], true);
        let whole = [("hosts", "charts.example"), ("insecureSkipVerify", "false")];
        assert_eq!(says(&whole), used);
        assert_eq!(says(&[whole[0], ("tls.crt", "its key is lost")]), refused);
        assert_eq!(says(&[("hosts", "charts.example u:p@h")]), refused);
        let both = vec!["a.example true".to_owned(), "b.example true".to_owned()];
        says(&[("hosts", "a.example b.example"), whole[1]]);
        for _ in 0..2 {
            let half = says(&[("hosts", "a.example u:p@b.example")]);
            assert_eq!(half, (both.clone(), true));
        }
        assert_eq!(says(&whole), used);
        assert_eq!(says(&[("hosts", "u:p@h")]), used);
        let logins = r#"{"auths": {"b.example": {"auth": "?"}}}"#;
        let mut all = refused.0.clone();
        all.insert(0, "b.example true".to_owned());
        assert_eq!(says(&[(".dockerconfigjson", logins)]), (all, true));
        assert_eq!(says(&whole), used);
        assert_eq!(
            says(&[whole[0], ("username", "u"), ("password", "")]),
            refused
        );
        assert_eq!(says(&whole), used);
        known.change(BTreeMap::clear);
        assert!(known.state.lock().hosts.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn known_source_hosts_outlive_a_lost_permission() {
        let allowed = Arc::new(Mutex::new(true));
        let is_allowed = allowed.clone();
        let clients = scripted::clients(move |request| {
            let may = *is_allowed.lock();
            let is_watch = request
                .uri()
                .query()
                .is_some_and(|query| query.contains("watch="));
            async move {
                let forbidden = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "x", "code": 403});
                let secret = json!({
                    "metadata": {"name": "host", "namespace": "system", "labels": {LABEL: "true"}},
                    "data": {"hosts": "Y2hhcnRzLmV4YW1wbGU="},
                });
                match may && !is_watch {
                    true => (
                        200,
                        json!({"metadata": {"resourceVersion": "1"}, "items": [secret]}),
                    ),
                    false => (403, forbidden),
                }
            }
        });
        let agent = scripted::identities(&clients).agent();
        let minute = Duration::from_secs(60);
        let hosts = |agent: AgentClient| {
            let events = Arc::new(Events::new(&agent, "system", "host", Metrics::default()));
            Arc::new(SourceHosts::new(agent, "system", events, minute))
        };
        let known = hosts(agent.clone());
        let runs = known.clone();
        tokio::spawn(async move { runs.run().await });
        assert!(known.current().await.unwrap().is_some());
        *allowed.lock() = false;
        tokio::time::sleep(10 * minute).await;
        assert!(known.current().await.unwrap().is_some());
        // Without hosts known before, none are configured.
        let unknown = hosts(agent);
        let runs = unknown.clone();
        tokio::spawn(async move { runs.run().await });
        assert!(unknown.current().await.unwrap().is_none());
    }
}
