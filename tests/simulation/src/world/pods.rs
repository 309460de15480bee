//! The agent's pods: what runs in them lives, dies and is started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use agent::client::requests::{Clients, Transport};
use agent::config::{AgentArgs, Settings};
use agent::process::run::{World as Outside, lead};
use agent::report::metrics::{Entries, Metrics};
use chart::source::Fetcher;
use jiff::SignedDuration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::util::BoxCloneSyncService;

use super::World;
use crate::desired::SYSTEM;
use crate::network::Connection;
use crate::plan::Setting;

/// A pod, on a node with a clock of its own.
#[derive(Default)]
pub(super) struct Pod {
    life: Option<Life>,
    /// By how many seconds the node's clock is off.
    jumped: Arc<AtomicI64>,
}

/// A life of the agent.
struct Life {
    number: u32,
    task: JoinHandle<()>,
    metrics: Metrics,
}

impl Pod {
    /// One, or two that share a lease.
    pub(super) fn all(setting: Setting) -> Vec<Self> {
        let count = if setting.has_two { 2 } else { 1 };
        (0..count).map(|_| Self::default()).collect()
    }
}

impl World {
    /// Lives of the agent begin in all pods that have none.
    pub fn start(&mut self) {
        for pod in 0..self.pods.len() {
            if self.pods[pod].life.is_none() {
                self.start_in(pod);
            }
        }
    }

    fn start_in(&mut self, pod: usize) {
        self.lives += 1;
        let number = self.lives;
        self.network.begin(number);
        self.network
            .note(format_args!("agent{number} starts in pod {pod}"));
        let name = format!("agent-{pod}");
        let environment = [
            ("NAMESPACE", SYSTEM),
            ("FLEET_AGENT_METRICS_BIND_ADDRESS", "0"),
            ("FLEET_AGENT_PROBE_BIND_ADDRESS", "0"),
            ("HOSTNAME", &name),
            ("POD_NAME", &name),
        ];
        let args = AgentArgs {
            leader_elect: self.setting.has_two,
            ..AgentArgs::default()
        };
        let settings = Settings::new(&args, &environment.into_iter().collect());
        let settings = settings.expect("the settings are good");
        let (network, local, upstream) = (
            self.network.clone(),
            self.local.clone(),
            self.upstream.clone(),
        );
        let clients = Clients::over(move |config| -> Transport {
            let is_upstream = config.cluster_url.host() == Some("upstream");
            let (server, to) = match is_upstream {
                true => (upstream.clone(), "upstream"),
                false => (local.clone(), "local"),
            };
            let connection = Connection {
                network: network.clone(),
                server,
                to,
                life: number,
            };
            BoxCloneSyncService::new(connection)
        });
        let (clock, jumped) = (Arc::clone(&self.clock), Arc::clone(&self.pods[pod].jumped));
        let clock = move || {
            let jumped = SignedDuration::from_secs(jumped.load(Ordering::Relaxed));
            clock().checked_add(jumped).unwrap_or_default()
        };
        let repository = Arc::new(self.repository.clone());
        let metrics = Metrics::default();
        let outside = Outside {
            local: kube::Config::new(http::Uri::from_static("https://local")),
            clients,
            fetcher: Fetcher::over(repository, chart::source::Settings::default()),
            host: release::Host::repeatable(clock),
            metrics: metrics.clone(),
        };
        let network = self.network.clone();
        let task = tokio::task::spawn_local(async move {
            let ended = lead(settings, outside, CancellationToken::new()).await;
            network.note(format_args!("agent{number} ended: {ended:?}"));
        });
        self.pods[pod].life = Some(Life {
            number,
            task,
            metrics,
        });
    }

    /// The pod that has the lease, as far as anybody has it.
    pub(super) fn leading(&self) -> usize {
        let leader = self.checker().leader();
        let lives = self.pods.iter().map(|pod| pod.life.as_ref());
        let mut numbers = lives.map(|life| life.map(|life| life.number));
        numbers
            .position(|number| number.is_some() && number == leader)
            .unwrap_or(0)
    }

    /// How many entries the agents' maps hold.
    pub fn entries(&self) -> Entries {
        let lives = self.pods.iter().filter_map(|pod| pod.life.as_ref());
        lives.flat_map(|life| life.metrics.entries()).collect()
    }

    /// The agent of a pod is killed.
    pub(super) fn kill(&mut self, pod: usize) {
        if let Some(life) = self.pods[pod].life.take() {
            self.network.end(life.number);
            self.network
                .note(format_args!("kill -9 agent{}", life.number));
            life.task.abort();
        }
    }

    /// The leading agent dies after so many more requests.
    pub(super) fn kill_after(&self, requests: u64) {
        if let Some(life) = &self.pods[self.leading()].life {
            self.network.kill_after(life.number, requests);
        }
    }

    /// The leading agent reaches nothing any more, and does not die.
    pub(super) fn cut(&self) {
        if let Some(life) = &self.pods[self.leading()].life {
            self.network.lock().cut.insert(life.number);
        }
    }

    /// The clock of the leading agent's node jumps.
    pub(super) fn jump(&self, seconds: i64) {
        let jumped = &self.pods[self.leading()].jumped;
        jumped.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Starts agents again that died by themselves.
    pub fn revive(&mut self) {
        let ended = std::mem::take(&mut self.network.lock().ended);
        for pod in 0..self.pods.len() {
            let number = self.pods[pod].life.as_ref().map(|life| life.number);
            if number.is_some_and(|number| ended.contains(&number)) {
                self.kill(pod);
                self.start_in(pod);
            }
        }
    }

    /// All agents are killed.
    pub(super) fn end_lives(&mut self) {
        for pod in 0..self.pods.len() {
            self.kill(pod);
        }
    }

    /// Ends everything.
    pub fn end(&mut self) {
        self.end_lives();
        self.controllers.abort();
    }
}
