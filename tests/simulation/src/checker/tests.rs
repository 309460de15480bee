//! What breaks a rule, and what an excuse does not reach: writes that no agent of ours does any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent::api::ANNOTATION_BUNDLE_ID;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chart::Chart;
use release::model::{Hook, HookExecution, Release, Status};
use release::storage;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, advance};

use super::{Checker, FORGED, LEDGER, Rest, Takeover};
use crate::apiserver::{Actor, Audit as _, Id, Who, Write};
use crate::desired::{Behaviour, Desired, Manifest, ObjectKind, SYSTEM, bundle_name};

const AGENT: Actor = Actor::Agent(1);

#[derive(Default)]
struct Cluster {
    checker: Checker,
    objects: BTreeMap<Id, Arc<Value>>,
    backup: BTreeMap<Id, Arc<Value>>,
    uids: u64,
}

impl Cluster {
    fn write(&mut self, actor: Actor, id: &Id, object: Option<Value>) {
        let before = self.objects.remove(id);
        let after = object.map(|mut object| {
            let uid = before
                .as_ref()
                .map(|before| before["metadata"]["uid"].clone());
            self.uids += 1;
            object["metadata"]["uid"] = uid.unwrap_or_else(|| self.uids.to_string().into());
            object["metadata"]["name"] = id.name.clone().into();
            Arc::new(object)
        });
        if let Some(after) = &after {
            self.objects.insert(id.clone(), Arc::clone(after));
        }
        let write = Write {
            side: "local",
            who: Who::is(actor),
            verb: "PUT",
            id: id.clone(),
            before,
            after,
        };
        self.checker.wrote(&write);
    }

    /// Writes a record of the release apps/r1.
    fn record(&mut self, actor: Actor, revision: i64, status: Status, hooks: &[(&str, &str)]) {
        let hooks = hooks.iter().map(|(name, phase)| Hook {
            name: (*name).to_owned(),
            kind: "Job".to_owned(),
            last_run: HookExecution {
                phase: (*phase).to_owned(),
                ..HookExecution::default()
            },
            ..Hook::default()
        });
        let mut release = Release {
            name: "r1".to_owned(),
            revision,
            hooks: hooks.collect(),
            manifest: format!("---\nkind: ConfigMap\nmetadata:\n  name: {FORGED}c1\n"),
            ..Release::default()
        };
        release.set_status(status, "");
        self.store(actor, &release);
    }

    /// Writes a record of the release apps/r1 that names a bundle.
    fn record_of(&mut self, bundle: usize, revision: i64, status: Status) {
        let mut chart = Chart::default();
        let named = (ANNOTATION_BUNDLE_ID.to_owned(), bundle_name(bundle));
        chart.metadata.annotations = Some(BTreeMap::from([named]));
        let mut release = Release {
            name: "r1".to_owned(),
            revision,
            chart: Some(Arc::new(chart)),
            ..Release::default()
        };
        release.set_status(status, "");
        self.store(AGENT, &release);
    }

    fn store(&mut self, actor: Actor, release: &Release) {
        let payload = storage::encode(release).expect("it can be written");
        let name = storage::key("r1", release.revision);
        let object = json!({
            "kind": "Secret",
            "metadata": {"labels": {"status": release.status().as_str()}},
            "data": {"release": STANDARD.encode(payload)},
        });
        self.write(actor, &Id::new("", "secrets", "apps", &name), Some(object));
    }

    /// Writes a job of apps/r1, which was created as a hook for this record.
    fn hook(&mut self, actor: Actor, record: &str, status: Value) {
        let run = format!("apps/r1 1 post-install {record}");
        let annotations =
            json!({"helm.sh/hook": "post-install", "fleetagent.cattle.io/hook-of": run});
        let object =
            json!({"kind": "Job", "metadata": {"annotations": annotations}, "status": status});
        self.write(actor, &Id::new("batch", "jobs", "apps", "q1"), Some(object));
    }

    fn delete_record(&mut self, actor: Actor, revision: i64) {
        let name = storage::key("r1", revision);
        self.write(actor, &Id::new("", "secrets", "apps", &name), None);
    }

    /// Writes an object of the release apps/r1.
    fn object(&mut self, name: &str) {
        self.object_of(AGENT, name);
    }

    fn object_of(&mut self, actor: Actor, name: &str) {
        let object = json!({"kind": "ConfigMap", "metadata": {"annotations": {
            "meta.helm.sh/release-name": "r1", "meta.helm.sh/release-namespace": "apps"}}});
        self.write(
            actor,
            &Id::new("", "configmaps", "apps", name),
            Some(object),
        );
    }

    fn delete_object(&mut self, name: &str) {
        self.write(AGENT, &Id::new("", "configmaps", "apps", name), None);
    }

    fn back_up(&mut self) {
        self.backup.clone_from(&self.objects);
        self.checker.backed_up();
    }

    fn restore(&mut self) {
        self.objects.clone_from(&self.backup);
        self.checker.restored();
    }

    fn leftover(&self) -> Option<String> {
        let rest = Rest {
            live: &|id| self.objects.get(id).cloned(),
            is_ready: &|_| true,
            is_held: &|_| false,
            remembered: &BTreeSet::new(),
        };
        self.checker.leftover(&rest)
    }

    fn rules(&self) -> Vec<&'static str> {
        let violations = self.checker.violations.iter();
        violations.map(|violation| violation.rule).collect()
    }
}

#[test]
fn objects_come_after_the_hooks_that_precede_them() {
    let broken: &[&str] = &["object before its hook"];
    for (hook, phase, rules) in [
        ("p1", "", broken),
        ("p1", HookExecution::RUNNING, broken),
        ("p1", HookExecution::FAILED, broken),
        ("p1", HookExecution::SUCCEEDED, &[]),
        ("q1", "", &[]),
    ] {
        let mut cluster = Cluster::default();
        cluster.record(AGENT, 1, Status::PendingInstall, &[(hook, phase)]);
        cluster.object("c1");
        assert_eq!(cluster.rules(), rules, "{hook} {phase}");
    }
}

#[test]
fn a_release_is_deployed_once_its_hooks_have_succeeded() {
    let mut cluster = Cluster::default();
    cluster.record(AGENT, 1, Status::PendingInstall, &[("q1", "")]);
    cluster.record(
        AGENT,
        1,
        Status::Deployed,
        &[("q1", HookExecution::RUNNING)],
    );
    assert_eq!(cluster.rules(), ["deployed before its hook"]);
}

#[test]
fn a_release_is_removed_after_the_hooks_that_precede_that() {
    let broken: &[&str] = &["removal before its hook"];
    for (actor, hook, rules) in [
        (AGENT, "r1", broken),
        (AGENT, "p1", &[]),
        // Of a record that nobody here wrote no hooks are run.
        (Actor::Tenant, "r1", &[]),
    ] {
        let mut cluster = Cluster::default();
        cluster.record(actor, 1, Status::Deployed, &[(hook, "")]);
        cluster.object("c1");
        cluster.record(AGENT, 1, Status::Uninstalling, &[(hook, "")]);
        cluster.delete_object("c1");
        assert_eq!(cluster.rules(), rules, "{hook} of {actor:?}");
    }
}

/// The agent that lives on goes by what had ended when the cluster was restored, until it writes the ledger; one that was started since does not.
#[test]
fn an_agent_that_outlives_a_restore_knows_that_a_hook_succeeded() {
    let ledger = Id::new("", "configmaps", SYSTEM, LEDGER);
    let broken: &[&str] = &["deletes a running hook", "hook did not run"];
    for (has_succeeded, life, has_noticed, rules) in [
        (false, 1, false, broken),
        (true, 2, false, broken),
        (true, 1, true, broken),
        (true, 1, false, &[]),
    ] {
        let mut cluster = Cluster::default();
        let running = [("q1", HookExecution::RUNNING)];
        cluster.record(AGENT, 1, Status::PendingInstall, &running);
        let record = cluster.uids.to_string();
        cluster.hook(AGENT, &record, Value::Null);
        cluster.back_up();
        if has_succeeded {
            let status = json!({"conditions": [{"type": "Complete", "status": "True"}]});
            cluster.hook(Actor::System, &record, status);
        }
        cluster.restore();
        if has_noticed {
            cluster.write(AGENT, &ledger, Some(json!({"data": {}})));
        }
        let (agent, job) = (Actor::Agent(life), Id::new("batch", "jobs", "apps", "q1"));
        cluster.write(agent, &job, None);
        let succeeded = [("q1", HookExecution::SUCCEEDED)];
        cluster.record(agent, 1, Status::Deployed, &succeeded);
        assert_eq!(
            cluster.rules(),
            rules,
            "{has_succeeded}, life {life}, {has_noticed}"
        );
    }
}

#[test]
fn a_restore_makes_no_forged_record_good() {
    let release = ("apps".to_owned(), "r1".to_owned());
    let mut cluster = Cluster::default();
    cluster.record(Actor::Tenant, 1, Status::Deployed, &[]);
    cluster.back_up();
    cluster.restore();
    assert!(!cluster.checker.has_deployed(&release));
}

/// What a tenant wrote in the place of a record of ours says no more than before once a later revision has closed it; what he wrote in the place of the
/// Go agent's may be believed.
#[test]
fn a_forged_record_that_is_superseded_is_no_good_one() {
    let release = ("apps".to_owned(), "r1".to_owned());
    for (first, is_good) in [(AGENT, false), (Actor::Go, true)] {
        let mut cluster = Cluster::default();
        cluster.record(first, 1, Status::Deployed, &[]);
        cluster.delete_record(Actor::Tenant, 1);
        cluster.record(Actor::Tenant, 1, Status::Deployed, &[]);
        cluster.record(AGENT, 2, Status::Deployed, &[]);
        cluster.record(AGENT, 1, Status::Superseded, &[]);
        cluster.delete_record(Actor::Tenant, 2);
        cluster.record(Actor::Tenant, 2, Status::Deployed, &[]);
        assert_eq!(cluster.checker.has_deployed(&release), is_good, "{first:?}");
        // Once more changes nothing; content of the agent's own does.
        cluster.record(AGENT, 1, Status::Superseded, &[]);
        assert_eq!(cluster.checker.has_deployed(&release), is_good, "{first:?}");
        cluster.record(AGENT, 1, Status::Superseded, &[("q1", "")]);
        assert!(cluster.checker.has_deployed(&release), "{first:?}");
    }
}

/// A tenant writes a record in the place of the Go agent's, which is believed while nothing was deployed above it.
#[test]
fn a_record_that_replaces_the_go_agents_is_believed_while_it_is_the_last_good_one() {
    let forged = format!("{FORGED}c1");
    let mut cluster = Cluster::default();
    cluster.record(Actor::Go, 1, Status::Deployed, &[]);
    cluster.record(Actor::Tenant, 1, Status::Deployed, &[]);
    cluster.object(&forged);
    cluster.back_up();
    cluster.record(AGENT, 2, Status::PendingUpgrade, &[]);
    cluster.object(&forged);
    assert_eq!(cluster.rules(), [""; 0]);
    cluster.record(AGENT, 2, Status::Deployed, &[]);
    let then = cluster.checker.clone();
    cluster.object(&forged);
    assert_eq!(cluster.rules(), ["believes a forged record"]);

    cluster.checker = then.clone();
    cluster.delete_record(Actor::Person, 2);
    cluster.object(&forged);
    assert_eq!(cluster.rules(), [""; 0]);

    cluster.checker = then;
    cluster.restore();
    cluster.object(&forged);
    assert_eq!(cluster.rules(), [""; 0]);
    cluster.object(&format!("{FORGED}c2"));
    assert_eq!(cluster.rules(), ["believes a forged record"]);
}

#[test]
fn the_owner_of_a_release_is_forgotten_with_its_records() {
    let release = ("apps".to_owned(), "r1".to_owned());
    let mut cluster = Cluster::default();
    cluster.checker.deployed_for.insert(release.clone(), 2);
    cluster.record(AGENT, 1, Status::Uninstalling, &[]);
    assert!(cluster.checker.deployed_for.contains_key(&release));
    cluster.delete_record(AGENT, 1);
    assert!(!cluster.checker.deployed_for.contains_key(&release));
}

/// A name, the bundle that deploys, what comes before, and what that breaks.
type Case<'c> = (&'c str, usize, fn(&mut Cluster), &'c [&'c str]);

/// The ledger has a release for b0, and b1 wants it as long.
#[test]
fn a_bundle_that_takes_a_release_from_its_owner_breaks_a_rule() {
    let wanted = || Desired::of(0, 1, BTreeSet::new());
    let broken: &[&str] = &["takes another's release"];
    let cases: [Case<'_>; 7] = [
        ("b1 may not", 1, |_| (), broken),
        ("b0 has it", 0, |_| (), &[]),
        (
            "b1 may take it",
            1,
            |cluster| {
                let taking = Desired {
                    take_ownership: true,
                    ..Desired::of(0, 1, BTreeSet::new())
                };
                cluster.checker.want(1, &taking);
            },
            &[],
        ),
        (
            "b1 had it before",
            1,
            |cluster| cluster.record_of(1, 1, Status::Deployed),
            &[],
        ),
        (
            "b0 wants another one",
            1,
            |cluster| cluster.checker.want(0, &Desired::of(1, 1, BTreeSet::new())),
            &[],
        ),
        (
            "b0 went, and is there again",
            1,
            |cluster| {
                cluster.checker.unwant(0, Some(Instant::now()));
                cluster.checker.want(0, &Desired::of(0, 1, BTreeSet::new()));
            },
            &[],
        ),
        (
            "b0 was lost",
            1,
            |cluster| {
                cluster.checker.lose([0].into(), None);
                cluster.checker.lose(BTreeSet::new(), None);
            },
            &[],
        ),
    ];
    for (case, bundle, happens, rules) in cases {
        let mut cluster = Cluster::default();
        cluster.checker.want(0, &wanted());
        cluster.checker.want(1, &wanted());
        happens(&mut cluster);
        let entry = json!({"bundle": "b0"}).to_string();
        let ledger = Id::new("", "configmaps", SYSTEM, LEDGER);
        cluster.write(AGENT, &ledger, Some(json!({"data": {"apps_r1": entry}})));
        cluster.record_of(bundle, 2, Status::PendingInstall);
        assert_eq!(cluster.rules(), rules, "{case}");
    }
}

/// Copies that were made before a restore was noticed are excused until the ledger names a bundle there that needs them.
#[test]
fn a_copy_made_before_a_restore_counts_once_the_ledger_names_its_bundle() {
    let copy = Id::new("", "secrets", "apps", "pull0");
    let ledger = Id::new("", "configmaps", SYSTEM, LEDGER);
    let names = |bundle: &str, namespace: &str| {
        let entry = json!({"bundle": bundle}).to_string();
        Some(json!({"data": {format!("{namespace}_Claims.{bundle}"): entry}}))
    };
    let mut cluster = Cluster::default();
    cluster.back_up();
    cluster.restore();
    let labels = json!({"fleet.cattle.io/bundledeployment": "b1"});
    let object = json!({"kind": "Secret", "metadata": {"labels": labels}});
    cluster.write(AGENT, &copy, Some(object));
    for (bundle, namespace, count) in [("b1", "data", 1), ("b2", "apps", 1), ("b1", "apps", 0)] {
        cluster.write(AGENT, &ledger, names(bundle, namespace));
        assert_eq!(
            cluster.checker.unnoticed.len(),
            count,
            "{bundle} in {namespace}"
        );
    }
}

/// Whether an attempt may be undone is as whoever goes on with it wants it.
#[test]
fn an_attempt_continued_by_another_agent_is_atomic_as_its_bundle_wants_now() {
    let release = ("apps".to_owned(), "r1".to_owned());
    for (life, is_atomic) in [(1, true), (2, false)] {
        let mut cluster = Cluster::default();
        cluster.record(AGENT, 1, Status::PendingInstall, &[("p1", "")]);
        let attempt = cluster.checker.attempts.get_mut(&release);
        attempt.expect("it has begun").is_atomic = true;
        let goes_on = [("p1", HookExecution::RUNNING)];
        cluster.record(Actor::Agent(life), 1, Status::PendingInstall, &goes_on);
        assert_eq!(
            cluster.checker.attempts[&release].is_atomic, is_atomic,
            "life {life}"
        );
    }
}

/// Another bundle took the release over above a forged record: what it has written since is its own to drop.
#[test]
fn an_object_that_the_new_owner_of_a_release_wrote_counts_as_its_leftover() {
    let release = ("apps".to_owned(), "r1".to_owned());
    let mut cluster = Cluster::default();
    let wanted = Manifest {
        kind: ObjectKind::ConfigMap,
        name: 1,
        value: 0,
        behaviour: Behaviour::Ready,
    };
    cluster.checker.want(0, &Desired::of(0, 1, [wanted].into()));
    cluster.object("c2");
    let taken = Takeover {
        good: 1,
        written: BTreeSet::new(),
    };
    cluster.checker.taken_above_forged.insert(release, taken);
    assert_eq!(cluster.leftover(), None);
    cluster.object("c2");
    assert!(cluster.leftover().is_some_and(|text| text.contains("c2")));
}

/// The Go agent goes by a forged record: what that leaves out stays, and what the Go agent deployed goes with what drops it.
#[test]
fn objects_a_forged_record_omits_are_no_leftovers_after_the_go_agent_deployed() {
    let is_left = |forger: Actor, end: Status, of_go: &[&str]| {
        let mut cluster = Cluster::default();
        let wanted = Desired::of(0, 1, BTreeSet::new());
        cluster.checker.want(0, &wanted);
        cluster.record(AGENT, 1, Status::PendingInstall, &[]);
        cluster.object("c2");
        cluster.object("c3");
        cluster.record(AGENT, 1, Status::Deployed, &[]);
        // It is corrected.
        cluster.delete_object("c3");
        cluster.object("c3");
        cluster.record(forger, 2, Status::Deployed, &[]);
        cluster.record(Actor::Go, 3, Status::PendingUpgrade, &[]);
        for name in of_go {
            cluster.object_of(Actor::Go, name);
        }
        cluster.record(Actor::Go, 3, end, &[]);
        let of_bundle = cluster.leftover();
        // Nor does it go with the bundle.
        cluster.checker.desired_state.now.clear();
        for revision in 1..=3 {
            cluster.delete_record(AGENT, revision);
        }
        let of_nobody = cluster.leftover();
        assert_eq!(of_bundle.is_some(), of_nobody.is_some());
        of_bundle.is_some()
    };
    assert!(!is_left(Actor::Tenant, Status::Deployed, &[]));
    assert!(is_left(Actor::Tenant, Status::Deployed, &["c2"]));
    assert!(is_left(Actor::Tenant, Status::Failed, &[]));
    assert!(is_left(AGENT, Status::Deployed, &[]));
}

/// With a bundle whose attempts at a helm client's release failed go their records, and nothing else.
#[test]
fn objects_of_failed_attempts_at_a_helm_release_are_no_leftovers() {
    let ledger = Id::new("", "configmaps", SYSTEM, LEDGER);
    let is_left = |client: Actor, end: Status, entries: Value, is_written: bool| {
        let mut cluster = Cluster::default();
        let wanted = Desired::of(0, 1, BTreeSet::new());
        cluster.checker.want(0, &wanted);
        cluster.record(client, 1, Status::Deployed, &[]);
        cluster.record(AGENT, 2, Status::PendingUpgrade, &[]);
        cluster.object("c2");
        cluster.record(AGENT, 2, end, &[]);
        cluster.delete_record(AGENT, 2);
        cluster.write(AGENT, &ledger, Some(json!({"data": entries})));
        // The bundle is back.
        cluster.record(AGENT, 2, Status::PendingUpgrade, &[]);
        if is_written {
            cluster.object("c2");
        }
        cluster.record(AGENT, 2, Status::Deployed, &[]);
        cluster.leftover().is_none()
    };
    let (nothing, entry) = (json!({}), json!({"apps_r1": "{}"}));
    assert!(is_left(Actor::Helm, Status::Failed, nothing.clone(), false));
    assert!(!is_left(Actor::Helm, Status::Failed, entry, false));
    assert!(!is_left(Actor::Helm, Status::Failed, nothing.clone(), true));
    assert!(!is_left(
        Actor::Helm,
        Status::Deployed,
        nothing.clone(),
        false
    ));
    assert!(!is_left(AGENT, Status::Failed, nothing, false));
}

/// Who waits for an answer neither hears nor begins anything.
#[tokio::test(start_paused = true)]
async fn a_change_stays_news_for_longer_while_a_webhook_delays_a_write() {
    let second = Duration::from_secs(1);
    let mut checker = Checker::default();
    let changed = Instant::now();
    advance(20 * second).await;
    checker.held_up(30 * second);
    advance(35 * second).await;
    assert!(checker.is_news(changed), "30 of 55 s were waited for");
    // Of two that keep somebody waiting at the same time the time counts once.
    checker.held_up(10 * second);
    checker.held_up(4 * second);
    advance(20 * second).await;
    assert!(!checker.is_news(changed), "40 of 75 s were");
}
