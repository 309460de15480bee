//! Wiring of the process: runtime, signals, lease, registration, session.
//!
//! A start-up failure ends the process; everything later is survived in it. Losing the lease drops
//! all work at once and campaigns again; another credential leads back to registration.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use chart::source::Fetcher;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use release::Host;
use release::kube::{connection, in_cluster};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::health::{Health, Role, Side};
use crate::client::identity::Identities;
use crate::client::requests::Clients;
use crate::config::{self, AgentConfig, Settings};
use crate::controllers::deployed_ids::DeployedIds;
use crate::controllers::facts::LastHold;
use crate::controllers::source_hosts::SourceHosts;
use crate::ledger::{Ledger, Losses};
use crate::process::leader::Candidate;
use crate::process::memory;
use crate::process::server::{self, Endpoint};
use crate::process::session::{Ended, Session};
use crate::public::{Name, PublicText};
use crate::register::{Credential, Registrar, RegistrationLock, Renewals, Upstream};
use crate::report::events::{Events, Reason};
use crate::report::metrics::Metrics;

/// Time to reach the local API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A session that lasted so long was well: the next one begins at once.
const LASTING: Duration = Duration::from_secs(5 * 60);

/// The longest pause between two sessions.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long what was read at the start counts as read just now.
const FRESH: Duration = Duration::from_secs(2);

/// `SIGXFSZ` of Linux: a file would grow beyond a limit of the process.
const FILE_TOO_LARGE: i32 = 25;

/// Runs the agent to its end: a requested termination is `Ok`.
///
/// # Errors
/// No local cluster, a port that is taken, or a second signal while shutting down.
pub fn run(settings: Settings) -> anyhow::Result<()> {
    // A second installation (tests) finds the same provider.
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .ok();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let result = runtime.block_on(until_signalled(settings));
    // A template that is still being rendered must not hold up the exit.
    runtime.shutdown_background();
    result
}

async fn until_signalled(settings: Settings) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    // A signal that is handled does not end the process: the write fails as on a full disk, and the chart is not kept.
    let _file_too_large =
        signal(SignalKind::from_raw(FILE_TOO_LARGE)).context("cannot listen for SIGXFSZ")?;
    let stop = CancellationToken::new();
    logging::info!(version = Name(config::VERSION), "starting");
    let world = World::around(&settings).await?;
    let mut agent = Box::pin(lead(settings, world, stop.clone()));
    loop {
        tokio::select! {
            biased;
            result = &mut agent => return result,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if stop.is_cancelled() {
            bail!("a second signal arrived");
        }
        logging::info!("termination requested, exiting");
        stop.cancel();
    }
}

/// What the agent reaches everything else through.
#[derive(Clone)]
pub struct World {
    /// The cluster it runs in.
    pub local: kube::Config,
    pub clients: Clients,
    pub fetcher: Fetcher,
    pub host: Host,
    pub metrics: Metrics,
}

impl World {
    /// The network and the system around this process.
    async fn around(settings: &Settings) -> anyhow::Result<Self> {
        Ok(Self {
            local: local_config(settings).await?,
            clients: Clients::default(),
            fetcher: Fetcher::new(memory::bounded(chart::source::Settings {
                disk: settings.chart_cache.clone(),
                ..chart::source::Settings::from_environment()
            })),
            host: Host::default(),
            metrics: Metrics::default(),
        })
    }
}

/// State that outlives a term as leader.
struct Process {
    settings: Settings,
    clients: Clients,
    identities: Arc<Identities>,
    fetcher: Fetcher,
    metrics: Metrics,
    events: Arc<Events>,
    health: Health,
    /// A lease that is lost and taken again is no reason to register anew.
    renewals: Renewals,
    registration_lock: RegistrationLock,
    /// What the site said is so until it says otherwise, also where it may not be read any more.
    source_hosts: Arc<SourceHosts>,
    last_hold: Arc<LastHold>,
    /// What was known to be lost is so until upstream lists it, also where the ledger forgets it while the lease is lost.
    losses: Arc<parking_lot::Mutex<Losses>>,
    /// The credential of the last session.
    former: parking_lot::Mutex<Option<Arc<Credential>>>,
}

/// Leads until `stop`: takes the lease, registers, works.
///
/// # Errors
/// A client cannot be made, or a port is taken.
///
/// # Cancellation
/// Dropping it is what `kill -9` is to the process.
pub async fn lead(settings: Settings, world: World, stop: CancellationToken) -> anyhow::Result<()> {
    let World {
        local,
        clients,
        fetcher,
        host,
        metrics,
    } = world;
    let health = Health::new(settings.timing.unready_after);
    let identities = Identities::new(
        local,
        clients.clone(),
        host.clone(),
        &settings.namespace,
        health.last_contact(Side::Local),
    );
    let identities = Arc::new(identities.context("failed to create local client")?);
    let events = Events::new(
        &identities.agent(),
        &settings.namespace,
        &settings.hostname,
        metrics.clone(),
    );
    let events = Arc::new(events);
    let source_hosts = SourceHosts::new(
        identities.agent(),
        &settings.namespace,
        Arc::clone(&events),
        settings.timing.facts_refresh,
    );
    let process = Process {
        settings,
        clients,
        identities,
        fetcher,
        metrics,
        events,
        source_hosts: Arc::new(source_hosts),
        last_hold: Arc::default(),
        losses: Arc::default(),
        health,
        renewals: Renewals::default(),
        registration_lock: RegistrationLock::default(),
        former: parking_lot::Mutex::default(),
    };
    process.metrics.leading(false);
    // Before the lease: a successor that nobody can ask would never be let in.
    let _servers = process.open_ports(&stop).await?;
    let settings = &process.settings;
    let Some(election) = settings.election else {
        return Box::pin(process.work(stop)).await;
    };
    let client = process.identities.agent().client();
    let mut candidate = Candidate::new(
        client,
        host,
        &settings.namespace,
        &settings.identity,
        election,
        process.health.clone(),
    );
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = candidate.campaign() => {}
        }
        logging::info!(
            identity = Name(&settings.identity.name),
            "holding the lease"
        );
        process.metrics.leading(true);
        let ended = tokio::select! {
            // First: a process that was stopped for a while must know that it lost before it does anything.
            biased;
            () = candidate.lead() => None,
            result = Box::pin(process.work(stop.clone())) => Some(result),
        };
        process.metrics.leading(false);
        process.health.set_role(Role::Standby);
        match ended {
            None => logging::warn!("lost the lease, all work has stopped"),
            Some(result) => {
                candidate.release().await;
                return result;
            }
        }
    }
}

/// Sessions that ended soon one after the other: what ends them may do so each time, as another agent that writes the ledger, or an upstream
/// that lets a credential connect and then refuses it.
#[derive(Default)]
struct Restarts(u32);

impl Restarts {
    /// How long to wait after a session that lasted so long: not after the first, then 1 s doubling to a minute.
    fn pause(&mut self, lasted: Duration) -> Duration {
        if lasted >= LASTING {
            self.0 = 0;
        }
        let former = self.0;
        self.0 = former.saturating_add(1);
        match former {
            0 => Duration::ZERO,
            more => Duration::from_secs(2_u64.saturating_pow(more - 1)).min(LONGEST_PAUSE),
        }
    }
}

impl Process {
    /// One term of office: ends on request or when the agent cannot start.
    ///
    /// # Cancellation
    /// Dropping it stops all work at once.
    async fn work(&self, stop: CancellationToken) -> anyhow::Result<()> {
        tokio::select! {
            biased;
            result = Box::pin(self.sessions(stop)) => result,
            () = self.events.run() => Ok(()),
        }
    }

    async fn sessions(&self, stop: CancellationToken) -> anyhow::Result<()> {
        let settings = &self.settings;
        let registrar = Registrar {
            local: self.identities.agent().client(),
            clients: self.clients.clone(),
            namespace: settings.namespace.clone(),
            hostname: settings.hostname.clone(),
            timing: settings.timing,
            events: Arc::clone(&self.events),
            last_contact: self.health.last_contact(Side::Upstream).clone(),
            renewals: self.renewals.clone(),
            registration_lock: self.registration_lock.clone(),
        };
        let health = &self.health;
        let deployed_ids = Arc::<DeployedIds>::default();
        let mut restarts = Restarts::default();
        health.set_role(Role::Register);
        loop {
            let former = self.former.lock().clone();
            let ((upstream, config), ledger) = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                registered = self.register(&registrar, former.as_deref()) => registered,
            };
            *self.former.lock() = Some(Arc::clone(&upstream.credential));
            health.contact(Side::Upstream);
            health.set_role(Role::Deploy);
            logging::info!(namespace = upstream.namespace, "registered");
            let identities = Arc::clone(&self.identities);
            let session = Session {
                settings: settings.clone(),
                config,
                identities,
                registrar: registrar.clone(),
                upstream,
                fetcher: self.fetcher.clone(),
                metrics: self.metrics.clone(),
                health: health.clone(),
                events: Arc::clone(&self.events),
                ledger,
                losses: Arc::clone(&self.losses),
                deployed_ids: Arc::clone(&deployed_ids),
                source_hosts: Arc::clone(&self.source_hosts),
                last_hold: Arc::clone(&self.last_hold),
            };
            let begun = Instant::now();
            let (reason, text) = match Box::pin(session.run(stop.clone())).await {
                Ended::Stopped => return Ok(()),
                Ended::CredentialReplaced => (
                    Reason::Registered,
                    "another credential is there and works, connecting with it",
                ),
                Ended::LedgerReplaced => {
                    deployed_ids.forget_all();
                    (
                        Reason::RecordChanged,
                        "the ledger was written by somebody else, or restored: reading it anew",
                    )
                }
            };
            logging::info!("{}", text);
            self.events.emit_for_agent(reason, text);
            let pause = restarts.pause(begun.elapsed());
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Registers, and at first reads the ledger meanwhile: later, writes of the session before may still be under way. What was read
    /// while registering took long is not kept.
    async fn register(
        &self,
        registrar: &Registrar,
        former: Option<&Credential>,
    ) -> ((Upstream, AgentConfig), Option<Ledger>) {
        let begun = Instant::now();
        let agent = self.identities.agent();
        let load = async {
            match former {
                None => Ledger::load(&agent, &self.settings.namespace).await.ok(),
                Some(_) => None,
            }
        };
        let (registered, ledger) = tokio::join!(registrar.register(former), load);
        (registered, ledger.filter(|_| begun.elapsed() < FRESH))
    }

    /// Opens the ports for as long as the process lives. One that another process has is waited for: on the host's network a
    /// predecessor still serves there.
    async fn open_ports(&self, stop: &CancellationToken) -> anyhow::Result<JoinSet<()>> {
        let mut servers = JoinSet::new();
        let endpoints = [
            (
                self.settings.metrics_address.clone(),
                Endpoint::Metrics(Box::new(self.metrics.clone())),
            ),
            (
                self.settings.probe_address.clone(),
                Endpoint::Probes(self.health.clone()),
            ),
        ];
        for (address, endpoint) in endpoints {
            let Some(address) = address else { continue };
            match server::bind(&address).await {
                Ok(listener) => servers.spawn(server::serve(listener, endpoint, stop.clone())),
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    let shown = PublicText::of_operator(&address.to_string());
                    logging::warn!(address = shown, "the port is taken, waiting for it");
                    servers.spawn(server::serve_later(address, endpoint, stop.clone()))
                }
                Err(error) => {
                    let context = format!("failed to listen on {address}");
                    return Err(anyhow::Error::new(error).context(context));
                }
            };
        }
        Ok(servers)
    }
}

/// The local cluster: the flag, `KUBECONFIG`, the pod's account, then `~/.kube/config`.
async fn local_config(settings: &Settings) -> anyhow::Result<kube::Config> {
    let options = KubeConfigOptions::default();
    let kubeconfig = match &settings.kubeconfig {
        Some(path) => match Kubeconfig::read_from(path) {
            // It names the path.
            Err(failed @ KubeconfigError::ReadConfig(..)) => return Err(failed.into()),
            read => Some(read.with_context(|| format!("failed to read {}", path.display()))?),
        },
        None => Kubeconfig::from_env().context("failed to read KUBECONFIG")?,
    };
    let mut config = match kubeconfig {
        Some(kubeconfig) => connection::config(kubeconfig, &options).await?,
        None => match in_cluster() {
            Ok(config) => config,
            Err(_) => {
                let kubeconfig = Kubeconfig::read();
                let kubeconfig = kubeconfig.context("failed to find the local cluster")?;
                connection::config(kubeconfig, &options).await?
            }
        },
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.headers.push(config::user_agent());
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_end_again_and_again_begin_ever_later() {
        let mut restarts = Restarts::default();
        let mut pauses = |lasted: &[u64]| -> Vec<u64> {
            let lasted = lasted.iter().map(|&seconds| Duration::from_secs(seconds));
            lasted.map(|one| restarts.pause(one).as_secs()).collect()
        };
        assert_eq!(pauses(&[3600, 1, 1, 0, 299]), [0, 1, 2, 4, 8]);
        assert_eq!(pauses(&[0; 40])[39], 60);
        assert_eq!(pauses(&[300, 0]), [0, 1]);
    }
}
