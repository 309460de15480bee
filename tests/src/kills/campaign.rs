//! Many lives, some at a time.

use anyhow::Result;
use futures_util::future::try_join_all;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::charts::{SORTS, Subject};
use super::gate::Gate;
use super::life::{Life, Point, Size, Sizes, Stage};
use super::tally::Tally;
use crate::bed::{Bed, unique};
use crate::fleet::bundle_deployment::BundleDeployment;
use crate::fleet::test_agent::TestAgent;

/// How much to kill.
#[derive(Debug, Clone, Copy)]
pub struct Campaign {
    /// Kills in all, more or less: lives are brought to their end.
    pub kills: usize,
    /// Chooses where to kill. What the agent does between two changes of its own has its own pace, so a seed gives like, not
    /// equal runs.
    pub seed: u64,
    /// Agents at work at once.
    pub lanes: usize,
    /// Kill after every single change of every stage instead, once each.
    pub sweep: bool,
    /// What takes longer after the last restart is stuck.
    pub limit: Duration,
    /// One sort alone, and kills in one stage alone; the others are gone through undisturbed.
    pub only: Option<(&'static str, Stage)>,
}

impl Campaign {
    /// Finds a sort and a stage by `sort/stage`.
    pub fn part(name: &str) -> Option<(&'static str, Stage)> {
        let (sort, stage) = name.split_once('/')?;
        let sort = SORTS.into_iter().find(|known| *known == sort)?;
        let stage = Stage::ALL.into_iter().find(|known| known.name() == stage)?;
        Some((sort, stage))
    }

    fn sorts(&self) -> Vec<&'static str> {
        match self.only {
            Some((sort, _)) => vec![sort],
            None => SORTS.to_vec(),
        }
    }
}

impl Default for Campaign {
    fn default() -> Self {
        Self {
            kills: 200,
            seed: 1,
            lanes: 3,
            sweep: false,
            limit: Duration::from_secs(300),
            only: None,
        }
    }
}

struct Shared {
    campaign: Campaign,
    sizes: Sizes,
    lives: AtomicUsize,
    kills: AtomicUsize,
}

/// Runs a campaign. `say` is called with each life's end and what was wrong in it.
///
/// # Errors
/// When the test bed itself fails; what the agent does wrong is in the tally.
pub async fn run(bed: &Bed, campaign: Campaign, say: &dyn Fn(&str)) -> Result<Tally> {
    let shared = Shared {
        campaign,
        sizes: Mutex::default(),
        lives: AtomicUsize::new(0),
        kills: AtomicUsize::new(0),
    };
    let lanes = (0..campaign.lanes).map(|_| lane(bed, &shared, say));
    let mut tally = Tally::default();
    for one in try_join_all(lanes).await? {
        tally.add(one);
    }
    Ok(tally)
}

/// One agent and its lives, one after the other.
async fn lane(bed: &Bed, shared: &Shared, say: &dyn Fn(&str)) -> Result<Tally> {
    let mut agent = TestAgent::prepare(bed).await?;
    let gate = Gate::start(&bed.downstream, &agent.user).await?;
    agent.grant().await?;
    agent.start_at(gate.url(), BTreeMap::new())?;
    // The agent's own bundle, which every managed cluster has: only next to it does a missing one count as deleted.
    let own = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: own\n";
    let own =
        BundleDeployment::content("fleet-agent-own", vec![("own.yaml".to_owned(), own.into())])
            .option("defaultNamespace", json!(agent.system_namespace));
    agent.apply(&own).await?;
    agent.wait_ready("fleet-agent-own").await?;
    let mut tally = Tally::default();
    loop {
        let number = shared.lives.fetch_add(1, Ordering::Relaxed);
        let sorts = shared.campaign.sorts();
        let sort = sorts[number % sorts.len()];
        // A full round of undisturbed lives measures how long the stages are.
        let is_measuring = number < sorts.len();
        if shared.is_over(number) {
            return Ok(tally);
        }
        let mut life = Life {
            agent: &mut agent,
            gate: &gate,
            subject: Subject::new(sort, &unique(sort)),
            tally: Tally::default(),
            limit: shared.campaign.limit,
        };
        let mut random = StdRng::seed_from_u64(shared.campaign.seed ^ ((number as u64) << 32));
        for stage in Stage::ALL {
            let size = shared.size(sort, stage);
            let only = shared.campaign.only;
            let is_meant = only.is_none_or(|(_, only)| only == stage);
            let points = match size.filter(|_| !is_measuring && is_meant) {
                Some(size) => shared.points(number, size, &mut random),
                None => Vec::new(),
            };
            let before = life.tally.kills();
            let size = life.stage(stage, &points).await?;
            // A stage may be over before its last point; those kills are still to be made.
            let unused = points.len() - (life.tally.kills() - before);
            shared.kills.fetch_sub(unused, Ordering::Relaxed);
            let Some(size) = size else {
                break;
            };
            if points.is_empty() {
                shared.lock().insert((sort, stage), size);
            }
        }
        say(&format!("life {number}, {sort}: {}", life.tally.summary()));
        let Life {
            subject,
            tally: ended,
            ..
        } = life;
        for finding in &ended.findings {
            say(&format!("{:?}: {}", finding.fault, finding.story));
        }
        if !ended.findings.is_empty() {
            // What is stuck must not disturb the next life.
            agent.delete(&subject.name).await.ok();
        }
        tally.add(ended);
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(&'static str, Stage), Size>> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this life would be one too many.
    fn is_over(&self, number: usize) -> bool {
        let sorts = self.campaign.sorts().len();
        if number < sorts {
            return false;
        }
        match self.campaign.sweep {
            true => {
                let sizes = self.lock();
                let only = self.campaign.only;
                let is_meant = |part: &&(&str, Stage)| only.is_none_or(|only| only == **part);
                let meant = sizes.keys().filter(is_meant);
                let longest = meant.map(|part| sizes[part].changes).max();
                number / sorts > longest.unwrap_or_default() + 1
            }
            false => self.kills.load(Ordering::Relaxed) >= self.campaign.kills,
        }
    }

    fn size(&self, sort: &'static str, stage: Stage) -> Option<Size> {
        self.lock().get(&(sort, stage)).copied()
    }

    /// Where to kill in a stage of this size; none once there were enough kills.
    fn points(&self, number: usize, size: Size, random: &mut StdRng) -> Vec<Point> {
        let changes = size.changes.max(1);
        if self.campaign.sweep {
            let round = number / self.campaign.sorts().len();
            // A few more than measured: retries make a stage longer than it was.
            let point = (round <= changes + 1).then_some(Point::Change(round));
            self.kills
                .fetch_add(usize::from(point.is_some()), Ordering::Relaxed);
            return point.into_iter().collect();
        }
        let is_left = || {
            let taken = self.kills.load(Ordering::Relaxed) < self.campaign.kills;
            if taken {
                self.kills.fetch_add(1, Ordering::Relaxed);
            }
            taken
        };
        let mut points = Vec::new();
        if is_left() {
            points.push(match random.random_bool(0.7) {
                true => Point::Change(random.random_range(1..=changes)),
                false => Point::Time(size.took.mul_f64(random.random_range(0.0..1.0))),
            });
            // Sometimes it dies again while it recovers.
            if random.random_bool(0.25) && is_left() {
                points.push(Point::Change(random.random_range(1..=changes)));
            }
        }
        points
    }
}
