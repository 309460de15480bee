//! One chart from its install to its removal, with kills on the way.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::charts::{Subject, VERSIONS};
use super::gate::Gate;
use super::records::{self, Record};
use super::tally::{Fault, Finding, Tally};
use crate::audit::{Mark, Request};
use crate::fleet::bundle_deployment::BundleDeployment;
use crate::fleet::controller::apply;
use crate::fleet::test_agent::{TestAgent, condition};
use crate::wait::wait_until;

/// A stage of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Version 1.0.0 where nothing was.
    Install,
    /// Version 2.0.0 over it.
    Upgrade,
    /// Something that the API server refuses, with `atomic`: version 2.0.0 comes back.
    Rollback,
    /// The BundleDeployment goes.
    Uninstall,
}

impl Stage {
    /// In the order of a life.
    pub(super) const ALL: [Self; 4] = [
        Self::Install,
        Self::Upgrade,
        Self::Rollback,
        Self::Uninstall,
    ];

    /// One word.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Upgrade => "upgrade",
            Self::Rollback => "rollback",
            Self::Uninstall => "uninstall",
        }
    }

    /// The version that is to be in the cluster at the end; at a removal the one that was.
    fn version(self) -> &'static str {
        match self {
            Self::Install => VERSIONS[0],
            Self::Upgrade | Self::Rollback | Self::Uninstall => VERSIONS[1],
        }
    }

    /// What the ConfigMap `settings` is to say at the end.
    fn says(self) -> &'static str {
        match self {
            Self::Install => "one",
            Self::Upgrade | Self::Rollback | Self::Uninstall => "two",
        }
    }

    /// The hook events that must have been gone through.
    fn events(self) -> &'static [&'static str] {
        match self {
            Self::Install => &["pre-install", "post-install"],
            Self::Upgrade => &["pre-upgrade", "post-upgrade"],
            // What comes after the upgrade never does.
            Self::Rollback => &["pre-upgrade", "pre-rollback", "post-rollback"],
            Self::Uninstall => &["pre-delete", "post-delete"],
        }
    }
}

/// When to kill.
#[derive(Debug, Clone, Copy)]
pub(super) enum Point {
    /// After the answer to so many changes; it does not reach the agent.
    Change(usize),
    /// After some time.
    Time(Duration),
}

impl Point {
    fn change(self) -> Option<usize> {
        match self {
            Self::Change(last) => Some(last),
            Self::Time(_) => None,
        }
    }
}

/// How long a stage is when nobody kills.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) changes: usize,
    pub(super) took: Duration,
}

/// The sizes measured so far.
pub(super) type Sizes = Mutex<BTreeMap<(&'static str, Stage), Size>>;

pub(super) struct Life<'l, 'b> {
    pub(super) agent: &'l mut TestAgent<'b>,
    pub(super) gate: &'l Gate,
    pub(super) subject: Subject,
    pub(super) tally: Tally,
    /// Within this time after the last restart everything must have come right.
    pub(super) limit: Duration,
}

impl Life<'_, '_> {
    /// Goes through one stage, killing at each point that is reached, and says how long the stage was. None: it is no use going
    /// on with this life.
    pub(super) async fn stage(&mut self, stage: Stage, points: &[Point]) -> Result<Option<Size>> {
        let sort = self.subject.sort;
        let mark = self.agent.bed.downstream.audit().mark();
        let mut started = Instant::now();
        let change_of = |at: usize| points.get(at).copied().and_then(Point::change);
        self.gate.open(change_of(0));
        self.begin(stage).await?;
        let mut kills = 0;
        while let Some(point) = points.get(kills) {
            let is_killed = tokio::select! {
                () = self.gate.closed() => true,
                () = pause(*point) => true,
                came = self.come_right(stage) => { came.is_err() && self.is_stuck(stage, &points[..kills], mark).await },
            };
            if !is_killed {
                break;
            }
            self.gate.close();
            self.agent.process()?.kill();
            kills += 1;
            self.tally.killed(sort, stage);
            self.check_records(stage, &points[..kills]).await;
            self.gate.open(change_of(kills));
            started = Instant::now();
            self.agent.process()?.restart()?;
        }
        let points = &points[..kills];
        if let Err(failed) = self.come_right(stage).await {
            let story = format!("{failed:#}");
            self.find(Fault::Stuck, stage, points, story);
            return Ok(None);
        }
        let took = started.elapsed();
        if kills > 0 {
            self.tally.recovered(sort, stage, took);
        }
        let changes = self.gate.changes();
        self.check(stage, points, mark).await?;
        Ok(Some(Size { changes, took }))
    }

    /// That a stage was not over in time before its next kill is a finding of its own.
    async fn is_stuck(&mut self, stage: Stage, points: &[Point], mark: Mark) -> bool {
        let requests = self.requests(mark).unwrap_or_default();
        let story = format!("it did not get to its next kill\n{}", trail(&requests));
        self.find(Fault::Stuck, stage, points, story);
        false
    }

    fn find(&mut self, fault: Fault, stage: Stage, points: &[Point], what: String) {
        let story = format!(
            "{} during {} of {}, killed at {points:?}: {what}\nthe agent's log ends with:\n{}",
            self.subject.name,
            stage.name(),
            self.subject.sort,
            self.agent.agent_log_tail(40)
        );
        self.tally.findings.push(Finding { fault, story });
    }

    fn bundle(&self, stage: Stage) -> BundleDeployment {
        let name = &self.subject.name;
        let repository = self.agent.bed.repository.url();
        let bundle =
            BundleDeployment::helm_op(name, repository, name, stage.version()).release(name, name);
        match stage {
            Stage::Rollback => bundle
                .values(json!({ "say": "three", "broken": true }))
                .helm("atomic", json!(true)),
            _ => bundle.values(json!({ "say": stage.says() })),
        }
    }

    async fn begin(&self, stage: Stage) -> Result<()> {
        let name = &self.subject.name;
        match stage {
            Stage::Install => {
                for version in VERSIONS {
                    self.agent
                        .bed
                        .repository
                        .add(&self.subject.chart(version))?;
                }
                for number in 0..self.subject.volumes {
                    apply(&self.agent.downstream, volume(name, number)).await?;
                }
            }
            Stage::Uninstall => return self.agent.delete(name).await,
            Stage::Upgrade | Stage::Rollback => {}
        }
        self.agent.apply(&self.bundle(stage)).await
    }

    /// Waits until the stage is over.
    async fn come_right(&self, stage: Stage) -> Result<()> {
        let what = format!("{} to come right", self.subject.name);
        wait_until(&what, self.limit, async || {
            let look = match stage {
                Stage::Install | Stage::Upgrade => self.is_deployed(stage).await,
                Stage::Rollback => self.is_rolled_back(stage).await,
                Stage::Uninstall => self.is_removed().await,
            };
            look.map_err(|failed| format!("{failed:#}"))
        })
        .await
    }

    async fn is_deployed(&self, stage: Stage) -> Result<()> {
        let bundle = self.status().await?;
        let status = &bundle["status"];
        let is_ready = status["appliedDeploymentID"] == bundle["spec"]["deploymentID"]
            && status["ready"] == true
            && status["nonModified"] == true
            && condition(&bundle, "Ready").is_some_and(|ready| ready["status"] == "True");
        anyhow::ensure!(is_ready, "{status:#}");
        self.is_recorded(stage).await.map(drop)
    }

    async fn is_rolled_back(&self, stage: Stage) -> Result<()> {
        let status = self.status().await?["status"].to_string();
        let says_so = status.contains("has been rolled back");
        anyhow::ensure!(says_so, "the status does not tell: {status}");
        let newest = self.is_recorded(stage).await?;
        let is_back = newest.description().starts_with("Rollback to");
        anyhow::ensure!(is_back, "not rolled back: {}", newest.summary());
        Ok(())
    }

    /// The newest record, if it is the deployed one and the cluster has what it says.
    async fn is_recorded(&self, stage: Stage) -> Result<Record> {
        let mut records = self.records().await?;
        let history: Vec<String> = records.iter().map(Record::summary).collect();
        let newest = records.pop().context("no record")?;
        let fits = newest.status == "deployed" && newest.chart_version() == stage.version();
        anyhow::ensure!(fits, "the records are {history:?}");
        let settings = format!("{}-settings", self.subject.name);
        let live = self.object("v1", "ConfigMap", &settings).await?;
        let said = live.context("no settings")?["data"]["value"].clone();
        anyhow::ensure!(said == stage.says(), "the settings say {said}");
        Ok(newest)
    }

    async fn is_removed(&self) -> Result<()> {
        let records = self.records().await?;
        anyhow::ensure!(records.is_empty(), "there are {} records", records.len());
        for version in VERSIONS {
            for one in self.subject.wanted(version) {
                let live = self.object(&one.api_version, &one.kind, &one.name).await?;
                anyhow::ensure!(live.is_none(), "{} {} is there", one.kind, one.name);
            }
        }
        let ledger = self.agent.ledger().await?;
        let ledger = ledger.context("no ledger")?.data.to_string();
        let is_forgotten = !ledger.contains(&self.subject.name);
        anyhow::ensure!(is_forgotten, "the ledger still has it");
        Ok(())
    }

    /// Right after a kill: whatever else is half-done, a good revision is stored and can be read.
    async fn check_records(&mut self, stage: Stage, points: &[Point]) {
        if !matches!(stage, Stage::Upgrade | Stage::Rollback) {
            return;
        }
        let found = match self.records().await {
            Ok(records) => {
                let is_good =
                    |one: &Record| one.is_good() && one.release["config"]["broken"] != true;
                match records.iter().any(is_good) {
                    true => return,
                    false => format!("{:?}", records.iter().map(Record::summary)),
                }
            }
            Err(failed) => format!("{failed:#}"),
        };
        let story = format!("no good revision is stored: {found}");
        self.find(Fault::Lost, stage, points, story);
    }

    /// Once everything came right: what was asked of the API server on the way, and what is there.
    async fn check(&mut self, stage: Stage, points: &[Point], mark: Mark) -> Result<()> {
        let requests = self.requests(mark)?;
        if stage != Stage::Uninstall {
            for one in self.subject.wanted(stage.version()) {
                let is_deletion = |request: &&Request| {
                    request.verb == "delete"
                        && request.resource == one.plural
                        && request.name == one.name
                        && request.code < 300
                };
                if requests.iter().any(|request| is_deletion(&request)) {
                    let story = format!("{} was deleted\n{}", one.name, trail(&requests));
                    self.find(Fault::Deleted, stage, points, story);
                }
            }
        }
        for (fault, hook, found) in self.miscounted_hooks(stage, points.len(), &requests) {
            let story = format!("hook {hook} {found}\n{}", trail(&requests));
            self.find(fault, stage, points, story);
        }
        match stage {
            Stage::Install | Stage::Upgrade => self.check_end(stage, points).await,
            Stage::Rollback | Stage::Uninstall => Ok(()),
        }
    }

    /// Hooks that were created less or more often than their events came, or after what they have to precede.
    fn miscounted_hooks(
        &self,
        stage: Stage,
        kills: usize,
        requests: &[Request],
    ) -> Vec<(Fault, String, String)> {
        let is_creation = |request: &Request, plural: &str, name: &str| {
            request.code == 201 && request.resource == plural && request.name == name
        };
        let wanted = self.subject.wanted(stage.version());
        let first_object = requests.iter().position(|request| {
            let mut wanted = wanted.iter();
            wanted.any(|one| is_creation(request, &one.plural, &one.name))
        });
        let mut found = Vec::new();
        for (hook, events) in &self.subject.hooks {
            let due = stage.events().iter().filter(|event| events.contains(event));
            let due = due.count();
            let runs = || {
                requests
                    .iter()
                    .enumerate()
                    .filter(|(_, request)| is_creation(request, "jobs", hook))
            };
            let count = runs().count();
            let reported = format!("ran {count} times, not {due}");
            if count < due {
                found.push((Fault::Skipped, hook.clone(), reported));
            } else if count > due + self.repeats(stage, kills, hook) {
                found.push((Fault::Repeated, hook.clone(), reported));
            }
            let is_before = stage == Stage::Install && events.contains(&"pre-install");
            let first = runs().next().map(|(at, _)| at);
            if is_before && first > first_object {
                let reported = "ran after the first object".to_owned();
                found.push((Fault::Skipped, hook.clone(), reported));
            }
        }
        found
    }

    /// How often a hook may run again: with an attempt that fails, which is made again where a kill came before that was noted, and where
    /// its object removes itself, so that nobody who comes later can tell that it ran.
    fn repeats(&self, stage: Stage, kills: usize, hook: &str) -> usize {
        match stage == Stage::Rollback || hook.ends_with("-vanishing") {
            true => kills,
            false => 0,
        }
    }

    async fn check_end(&mut self, stage: Stage, points: &[Point]) -> Result<()> {
        let records = self.records().await?;
        let Some(newest) = records.last() else {
            return Ok(());
        };
        for event in stage.events() {
            for hook in newest.unfinished_hooks(event) {
                let story = format!("hook {hook} is not recorded as done at {event}");
                self.find(Fault::Skipped, stage, points, story);
            }
        }
        let current = |one: &&Record| !["superseded", "failed"].contains(&one.status.as_str());
        if records.iter().filter(current).count() != 1 || records.len() > 2 {
            let history: Vec<String> = records.iter().map(Record::summary).collect();
            let story = format!("the records are {history:?}");
            self.find(Fault::LeftOver, stage, points, story);
        }
        let gone = format!("{}-old", self.subject.name);
        let is_left =
            stage == Stage::Upgrade && self.object("v1", "ConfigMap", &gone).await?.is_some();
        if is_left {
            self.find(Fault::LeftOver, stage, points, format!("{gone} is there"));
        }
        Ok(())
    }

    async fn status(&self) -> Result<Value> {
        let bundles = self.agent.bundle_deployments()?;
        Ok(serde_json::to_value(
            bundles.get(&self.subject.name).await?,
        )?)
    }

    async fn records(&self) -> Result<Vec<Record>> {
        let name = &self.subject.name;
        records::read(&self.agent.downstream, name, name).await
    }

    /// An object, none also if its kind is not served.
    async fn object(&self, api_version: &str, kind: &str, name: &str) -> Result<Option<Value>> {
        let namespace = &self.subject.name;
        let found = self
            .agent
            .object(api_version, kind, namespace, name)
            .await?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }

    fn requests(&self, mark: Mark) -> Result<Vec<Request>> {
        let audit = self.agent.bed.downstream.audit();
        audit.by_user(&self.agent.user, mark)
    }
}

/// Ends when it is time to kill, if a time was given.
async fn pause(point: Point) {
    match point {
        Point::Time(pause) => tokio::time::sleep(pause).await,
        Point::Change(_) => std::future::pending().await,
    }
}

/// The changes among `requests`, a line each.
fn trail(requests: &[Request]) -> String {
    let changes = requests
        .iter()
        .filter(|request| !["get", "list", "watch"].contains(&request.verb.as_str()));
    let line = |request: &Request| {
        format!(
            "  {} {} {} {}",
            request.code, request.verb, request.resource, request.name
        )
    };
    changes.map(line).collect::<Vec<_>>().join("\n")
}

/// A volume that a claim of the release may have.
fn volume(class: &str, number: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": format!("{class}-{number}") },
        "spec": {
            "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "hostPath": { "path": format!("/tmp/{class}-{number}") },
        },
    })
}
