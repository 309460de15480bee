//! Whatever happened to a release, the next deployment comes right and loses nothing.
//!
//! Random sequences of deployments and removals that are cut off, of edits and deletions by hand, of
//! damage to records and of helm's own upgrades. The same four each time: a landing must not depend on
//! chance. `HISTORIES=500 SEED=7` asks for others, or for the ones of a failure.

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use release::model::Status;
use release::{DeployOptions, UninstallSpec};
use testbed::cluster::ADMIN;
use testbed::helm::Helm;

use crate::doomed::Doomed;
use crate::world::{Template, World, config_map};

/// Sequences in `make test`.
const HISTORIES: u64 = 4;
/// The seed of the first of them.
const SEED: u64 = 7_740_001_166_364_276_211;
/// Events in a sequence.
const EVENTS: usize = 8;
/// Everything a release here may hold.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// What is wanted of the release.
#[derive(Debug, Clone)]
struct Spec {
    names: Vec<&'static str>,
    value: String,
    is_broken: bool,
    atomic: bool,
    max_history: i64,
}

impl Spec {
    fn random(random: &mut StdRng) -> Self {
        let mut names: Vec<&str> = NAMES.to_vec();
        names.retain(|_| random.random_bool(0.6));
        Self {
            names,
            value: random.random_range(0..1000).to_string(),
            is_broken: random.random_bool(0.25),
            atomic: random.random_bool(0.3),
            max_history: random.random_range(1..4),
        }
    }

    fn manifest(&self) -> String {
        let maps = self.names.iter().map(|name| config_map(name, &self.value));
        let broken = config_map("zz", "1").replace("\ndata:", "\ndota:");
        let broken = self.is_broken.then_some(broken);
        maps.chain(broken).collect()
    }

    fn template(&self) -> Template {
        let hook = |name: &str| config_map(name, &self.value);
        Template::new(&self.manifest())
            .hook("before", "pre-install", &hook("before"))
            .hook("between", "pre-upgrade", &hook("between"))
            .hook("goodbye", "pre-delete", &hook("goodbye"))
    }

    fn options(&self) -> DeployOptions {
        DeployOptions {
            atomic: self.atomic,
            max_history: self.max_history,
            ..DeployOptions::default()
        }
    }
}

/// Something that happens to a release.
#[derive(Debug, Clone)]
enum Event {
    /// A deployment that ends after so many changes.
    CutOff(Spec, usize),
    /// One that nobody disturbs; it may fail.
    Deploy(Spec),
    /// A removal that ends after so many changes.
    CutOffRemoval(usize),
    Edit(&'static str),
    Delete(&'static str),
    /// The newest record but so many goes, is spoiled, loses its labels.
    DeleteRecord(usize),
    SpoilRecord(usize),
    StripRecord(usize),
    /// Helm 3 or 4 upgrades it to something of its own.
    Helm(usize, Spec),
}

impl Event {
    fn random(random: &mut StdRng) -> Self {
        let name = NAMES[random.random_range(0..NAMES.len())];
        match random.random_range(0..20) {
            0..=5 => Self::CutOff(Spec::random(random), random.random_range(1..14)),
            6..=9 => Self::Deploy(Spec::random(random)),
            10..=11 => Self::CutOffRemoval(random.random_range(1..8)),
            12..=13 => Self::Edit(name),
            14 => Self::Delete(name),
            15 => Self::DeleteRecord(random.random_range(0..2)),
            16 => Self::SpoilRecord(random.random_range(0..2)),
            17 => Self::StripRecord(random.random_range(0..2)),
            _ => {
                let spec = Spec::random(random);
                let is_broken = false;
                Self::Helm(random.random_range(0..2), Spec { is_broken, ..spec })
            }
        }
    }

    /// Whether it takes away what only a record knew.
    fn forgets(&self) -> bool {
        matches!(
            self,
            Self::DeleteRecord(_) | Self::SpoilRecord(_) | Self::StripRecord(_)
        )
    }

    /// Whether it may leave no good revision, by doing away with the release or with its records.
    fn may_lose(&self) -> bool {
        self.forgets() || matches!(self, Self::CutOffRemoval(_))
    }
}

struct Story {
    world: World,
    events: Vec<Event>,
}

impl Story {
    async fn happen(&self, event: &Event) -> Result<()> {
        let world = &self.world;
        match event {
            Event::CutOff(spec, last) => {
                let doomed = Doomed::new(world).await?;
                doomed.deploy(&spec.template(), spec.options(), *last).await;
            }
            Event::Deploy(spec) => {
                // Failing is its right; the end is what counts.
                world
                    .deploy_with(&spec.template(), spec.options())
                    .await
                    .ok();
            }
            Event::CutOffRemoval(last) => {
                Doomed::new(world).await?.uninstall(*last).await;
            }
            Event::Edit(name) => {
                let patch = r#"{"data": {"value": "edited", "more": "edited"}}"#;
                let edit = ["patch", "configmap", name, "--type=merge", "--patch", patch];
                world.kubectl(&edit).ok();
            }
            Event::Delete(name) => {
                world
                    .kubectl(&["delete", "configmap", name, "--ignore-not-found"])
                    .ok();
            }
            Event::DeleteRecord(back) => {
                if let Some(record) = self.record(*back).await? {
                    world.kubectl(&["delete", "secret", &record])?;
                }
            }
            Event::SpoilRecord(back) => {
                let heads = world.storage.history(&world.name).await?;
                if let Some(head) = heads.iter().rev().nth(*back) {
                    world.spoil(head.revision)?;
                }
            }
            Event::StripRecord(back) => {
                if let Some(record) = self.record(*back).await? {
                    world.kubectl(&["label", "secret", &record, "owner-", "status-"])?;
                }
            }
            Event::Helm(which, spec) => self.helm(*which, spec)?,
        }
        Ok(())
    }

    async fn record(&self, back: usize) -> Result<Option<String>> {
        let heads = self.world.storage.history(&self.world.name).await?;
        let head = heads.iter().rev().nth(back);
        Ok(head.map(|head| format!("sh.helm.release.v1.web.v{}", head.revision)))
    }

    /// Helm may refuse, or fail half-way, and leaves then what it leaves.
    fn helm(&self, which: usize, spec: &Spec) -> Result<()> {
        let directory = tempfile::tempdir()?;
        let chart = directory.path().join("web");
        std::fs::create_dir_all(chart.join("templates"))?;
        let metadata = "apiVersion: v2\nname: web\nversion: 1.0.0\n";
        std::fs::write(chart.join("Chart.yaml"), metadata)?;
        std::fs::write(chart.join("templates/all.yaml"), spec.manifest())?;
        let helm = &Helm::both(&self.world.plane.kubeconfig(ADMIN)?, directory.path())?[which];
        let path = chart.to_string_lossy();
        let namespace = ["--namespace", &self.world.namespace, "--create-namespace"];
        let upgrade = ["upgrade", "--install", "web", &path];
        helm.run(&[&upgrade[..], &namespace].concat()).ok();
        Ok(())
    }

    /// Nothing but the release itself is needed for it to come right.
    async fn settle(&self, spec: &Spec) -> Result<()> {
        let world = &self.world;
        let mut last = None;
        for _ in 0..4 {
            let before = self.uids().await?;
            match world.deploy_with(&spec.template(), spec.options()).await {
                Ok(done) => {
                    let after = self.uids().await?;
                    for name in &spec.names {
                        let is_same = before.iter().all(|(known, uid)| {
                            known != name || after.iter().any(|(_, other)| other == uid)
                        });
                        anyhow::ensure!(is_same, "{name} was deleted on the way");
                    }
                    return self.check(spec, done.release.revision).await;
                }
                Err(error) => last = Some(release::error_chain(&error)),
            }
        }
        anyhow::bail!("stuck: {}", last.unwrap_or_default())
    }

    async fn check(&self, spec: &Spec, revision: i64) -> Result<()> {
        let world = &self.world;
        let history = world.history().await?;
        let is_deployed = history.last() == Some(&format!("{revision} deployed"));
        anyhow::ensure!(is_deployed, "the history is {history:?}");
        for head in &world.storage.history(&world.name).await? {
            // What cannot be read cannot be closed either.
            let is_readable = world.storage.get(&world.name, head.revision).await.is_ok();
            let is_closed = !head.status.is_pending() && head.status != Status::Deployed;
            let is_fine = head.revision == revision || is_closed || !is_readable;
            anyhow::ensure!(is_fine, "{history:?}");
        }
        let knows_all = !self.events.iter().any(Event::forgets);
        for name in NAMES {
            let live = world.value(name).await?;
            match spec.names.contains(&name) {
                true => anyhow::ensure!(live == spec.value, "{name} says {live}"),
                false if knows_all => anyhow::ensure!(live == "none", "{name} was left over"),
                false => {}
            }
        }
        Ok(())
    }

    /// Names and uids of what is live.
    async fn uids(&self) -> Result<Vec<(&'static str, String)>> {
        let mut uids = Vec::new();
        for name in NAMES {
            if let Some(live) = self.world.config_map(name).await? {
                uids.push((name, live["metadata"]["uid"].to_string()));
            }
        }
        Ok(uids)
    }
}

async fn history(seed: u64) -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut story = Story {
        world: World::new().await?,
        events: Vec::new(),
    };
    let mut has_been_good = false;
    for _ in 0..EVENTS {
        let event = Event::random(&mut random);
        story.events.push(event.clone());
        let reported = format!("{:#?}", story.events);
        story
            .happen(&event)
            .await
            .with_context(|| reported.clone())?;
        let is_good = story.world.has_good_revision().await;
        if event.may_lose() || is_good.is_err() {
            has_been_good = is_good.unwrap_or_default();
            continue;
        }
        let is_good = is_good.unwrap_or_default();
        anyhow::ensure!(
            is_good || !has_been_good,
            "the good revision is lost\n{reported}"
        );
        has_been_good = is_good;
        // Somebody wants something of it only now and then.
        if random.random_bool(0.3) {
            let is_broken = false;
            let spec = Spec {
                is_broken,
                ..Spec::random(&mut random)
            };
            story
                .settle(&spec)
                .await
                .with_context(|| format!("{spec:?}\n{reported}"))?;
            has_been_good = true;
        }
    }
    let is_broken = false;
    let spec = Spec {
        is_broken,
        ..Spec::random(&mut random)
    };
    let reported = format!("{spec:?}\n{:#?}", story.events);
    story
        .settle(&spec)
        .await
        .with_context(|| reported.clone())?;
    let world = &story.world;
    let removal = UninstallSpec::new(&world.name, &world.namespace);
    release::uninstall(&world.cluster, &world.storage, &removal).await?;
    anyhow::ensure!(world.history().await?.is_empty(), "{reported}");
    for name in spec.names {
        anyhow::ensure!(
            world.value(name).await? == "none",
            "{name} stayed\n{reported}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn after_any_history_the_next_deployment_succeeds() -> Result<()> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let first = number("SEED").unwrap_or(SEED);
    for at in 0..number("HISTORIES").unwrap_or(HISTORIES) {
        let seed = first.wrapping_add(at);
        let reported = history(seed).await;
        reported.with_context(|| format!("SEED={seed} HISTORIES=1"))?;
    }
    Ok(())
}
