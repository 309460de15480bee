//! Scenes: what no random history has, acted step by step around a whole agent. What they show is that what is decided in one place is asked in another.

use std::time::Duration;

use serde_json::{Value, json};
use simulation::apiserver::{Actor, Id};
use simulation::desired::{CLUSTER, SYSTEM, content_of};
use simulation::history::scene;
use simulation::plan::Action;
use simulation::script::parse;
use simulation::world::{World, path};
use tokio::time::sleep;

const MINUTE: Duration = Duration::from_secs(60);

const BUNDLES: &str =
    "/apis/fleet.cattle.io/v1alpha1/namespaces/cluster-fleet-default-c1/bundledeployments";

/// Begins with what a script says, in a world where upstream has a bundle of the agent's own.
fn act(steps: &str, acts: impl AsyncFnOnce(&mut World) + Send + 'static) {
    const SETTING: &str =
        "seed 1: upstream has a bundle of the agent's own; fleet-default does not exist";
    let plan = parse(&format!("{SETTING}\n{steps}")).expect("the script is understood");
    scene(&plan, acts);
}

/// Does what a line of a script says, at once.
async fn happens(world: &mut World, step: &str) {
    let plan = parse(&format!("seed 1:\n{step}")).expect("the step is understood");
    world.act(&plan.steps[0].action).await;
}

/// What a script says of a bundle of a ConfigMap `c0` in namespace `apps`, with these options.
fn wants(value: u8, options: &str) -> String {
    format!("5.0 s later upstream wants of b0: apps/r0 [c0=v{value}] {options}")
}

/// A ConfigMap in namespace `apps`.
fn map(name: &str) -> Id {
    Id::new("", "configmaps", "apps", name)
}

/// What a ConfigMap holds; nothing where it is not there.
fn value(world: &World, name: &str) -> Value {
    let map = world.local.get(&map(name));
    map.map_or(Value::Null, |map| map["data"]["value"].clone())
}

/// A person writes into a ConfigMap.
fn edit(world: &World, name: &str) {
    let edited = json!({"data": {"value": "edited"}});
    let path = path(&map(name));
    world.local.act(Actor::Person, "PATCH", &path, edited);
    assert_eq!(value(world, name), "edited");
}

/// A bundle as it is upstream; nothing where it is not there.
fn bundle(world: &World, name: &str) -> Value {
    let id = Id::new("fleet.cattle.io", "bundledeployments", CLUSTER, name);
    let found = world.upstream.get(&id);
    found.map_or(Value::Null, |found| found.as_ref().clone())
}

/// Writes a bundle, new or over what is there.
fn write(world: &World, name: &str, mut written: Value) {
    let (method, path) = match bundle(world, name) {
        Value::Null => ("POST", BUNDLES.to_owned()),
        _ => ("PATCH", format!("{BUNDLES}/{name}")),
    };
    written["metadata"]["name"] = name.into();
    let upstream = &world.upstream;
    let answer = upstream.act(Actor::Upstream, method, &path, written);
    assert!(answer.is_ok(), "{:?}", answer.value());
}

/// Wants an object in namespace `apps` of a bundle, with more options.
fn want(world: &World, name: &str, object: &Value, more: &Value) {
    let file = ("object.yaml".to_owned(), object.to_string());
    let (content, body) = content_of(std::iter::once(file));
    let contents = "/apis/fleet.cattle.io/v1alpha1/contents";
    // It may be there.
    world.upstream.act(Actor::Upstream, "POST", contents, body);
    let mut options = json!({"defaultNamespace": "apps", "helm": {"timeoutSeconds": 5}});
    for (key, value) in more.as_object().into_iter().flatten() {
        options[key] = value.clone();
    }
    let id = format!("{content}:1");
    let spec = json!({
        "deploymentID": id, "stagedDeploymentID": id, "options": options, "stagedOptions": options,
    });
    write(world, name, json!({"spec": spec}));
}

/// After a while so many bundles wait for a kind.
async fn waits(world: &World, why: &str, expected: usize) {
    sleep(2 * MINUTE).await;
    let entries = world.entries().into_iter();
    let waiting = entries.filter(|(map, _)| *map == "bundles_waiting_for_kinds");
    let waiting: usize = waiting.map(|(_, count)| count).sum();
    assert_eq!(waiting, expected, "{why}");
}

/// Of an upstream that swallows what is sent to it each question takes a minute.
#[test]
fn an_upstream_that_is_silent_holds_up_no_correction() {
    act(&wants(1, "correctDrift"), async |world| {
        sleep(MINUTE).await;
        assert_eq!(value(world, "c0"), "v1");
        world.network.lock().silent.insert("upstream");
        // By then that was noticed.
        sleep(10 * MINUTE).await;
        edit(world, "c0");
        sleep(MINUTE / 4).await;
        assert_eq!(value(world, "c0"), "v1", "it is not corrected yet");
    });
}

/// What waits is woken by each change of a definition, and keeps definitions watched.
#[test]
fn a_bundle_waits_for_a_kind_only_while_it_fails_for_that() {
    act("", async |world| {
        let widget = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one"},
        });
        let refused = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"},
            "data": {"refuse": "true"},
        });
        want(world, "web", &widget, &Value::Null);
        waits(world, "its kind is not served", 1).await;
        write(world, "web", json!({"spec": {"paused": true}}));
        waits(world, "it is left alone", 0).await;
        write(world, "web", json!({"spec": {"paused": false}}));
        waits(world, "its kind is not served yet", 1).await;
        want(world, "web", &refused, &Value::Null);
        waits(world, "it fails for another reason", 0).await;
        want(world, "web", &widget, &Value::Null);
        waits(world, "its kind is still not served", 1).await;
        let definition = json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
                "versions": [{"name": "v1", "served": true, "storage": true}],
            },
        });
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        world
            .local
            .act(Actor::Person, "POST", definitions, definition);
        waits(world, "it is deployed", 0).await;
        let one = Id::new("example.com", "widgets", "apps", "one");
        assert!(world.local.get(&one).is_some());
    });
}

/// Where the redeploy waits, or the bundle is installed once, a look at its objects is no reason for another try.
#[test]
fn a_missing_overwritten_object_does_not_cause_requests_without_end() {
    act("", async |world| {
        let object = |name: &str| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                "data": {"value": "v1"},
            })
        };
        for name in ["anew", "once"] {
            let overwrites = json!({"overwrites": [{"kind": "ConfigMap", "name": name}]});
            want(world, name, &object(name), &overwrites);
        }
        let once = json!({"fleet.cattle.io/install-once": "true"});
        write(world, "once", json!({"metadata": {"annotations": once}}));
        sleep(2 * MINUTE).await;
        for name in ["anew", "once"] {
            assert_eq!(value(world, name), "v1", "{name}");
            let path = path(&map(name));
            world.local.act(Actor::Person, "DELETE", &path, Value::Null);
        }
        sleep(2 * MINUTE).await;
        assert_eq!(value(world, "anew"), "v1");
        assert_eq!(value(world, "once"), Value::Null);
        let before = world.network.lock().requests;
        sleep(10 * MINUTE).await;
        let asked = world.network.lock().requests - before;
        assert!(asked < 100, "{asked} requests");
    });
}

/// Its removal had begun, which the list would prove no more: the agent's own bundle is gone with it when it is gone again.
#[test]
fn a_removal_ends_once_its_bundle_is_back_though_it_cannot_be_read() {
    act(&wants(1, "as deployer"), async |world| {
        sleep(MINUTE).await;
        world.act(&Action::Deny("deployer", 0)).await;
        world.act(&Action::Unwant(0)).await;
        sleep(2 * MINUTE).await;
        let begun = world.held();
        assert_eq!(begun, [0], "its removal has begun, and fails");
        write(world, "b0", json!({"spec": {"options": 5}}));
        sleep(2 * MINUTE).await;
        world.act(&Action::Empty).await;
        sleep(2 * MINUTE).await;
        world.act(&Action::Grant).await;
        sleep(10 * MINUTE).await;
        assert_eq!(value(world, "c0"), "v1", "it was removed without a proof");
    });
}

#[test]
fn while_the_site_holds_changes_nothing_is_deployed_corrected_or_removed() {
    let other = "1.0 s later upstream wants of b1: apps/r1 [c1=v1]";
    let steps = format!("{}\n{other}", wants(1, "correctDrift"));
    act(&steps, async |world| {
        sleep(MINUTE).await;
        let hold = |annotations: Value| json!({"metadata": {"name": "fleet-site", "annotations": annotations}});
        let maps = format!("/api/v1/namespaces/{SYSTEM}/configmaps");
        let held = hold(json!({"fleet.cattle.io/hold-deploys": "until Monday"}));
        world.local.act(Actor::Person, "POST", &maps, held);
        sleep(MINUTE).await;
        edit(world, "c0");
        world.act(&Action::Unwant(1)).await;
        sleep(10 * MINUTE).await;
        assert_eq!(value(world, "c0"), "edited");
        assert_eq!(value(world, "c1"), "v1");
        happens(world, &wants(2, "")).await;
        sleep(10 * MINUTE).await;
        assert_eq!(value(world, "c0"), "edited");
        let free = hold(json!({"fleet.cattle.io/hold-deploys": null}));
        let site = format!("{maps}/fleet-site");
        world.local.act(Actor::Person, "PATCH", &site, free);
        sleep(10 * MINUTE).await;
        assert_eq!(value(world, "c0"), "v2");
        assert_eq!(value(world, "c1"), Value::Null);
    });
}

/// What cannot be one segment of a path becomes part of none.
#[test]
fn a_namespace_that_would_change_a_request_path_is_refused() {
    act("", async |world| {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"},
        });
        want(world, "web", &object, &json!({"defaultNamespace": ".."}));
        sleep(2 * MINUTE).await;
        let told = bundle(world, "web")["status"]["conditions"].to_string();
        assert!(told.contains("invalid namespace"), "{told}");
    });
}

/// As Kubernetes has it: what is there may be changed, and where something goes there is room for another.
#[test]
fn a_quota_refuses_new_objects_and_lets_existing_ones_change() {
    act(&wants(1, "correctDrift"), async |world| {
        sleep(MINUTE).await;
        happens(world, "0.0 s later a quota refuses new configmaps in apps").await;
        happens(world, &wants(2, "correctDrift")).await;
        sleep(MINUTE).await;
        assert_eq!(value(world, "c0"), "v2", "it is no new one");
        happens(world, "0.0 s later upstream wants of b1: apps/r1 [c1=v1]").await;
        sleep(MINUTE).await;
        assert_eq!(value(world, "c1"), Value::Null);
        let told = bundle(world, "b1")["status"]["conditions"].to_string();
        let text =
            "exceeded quota: compute, requested: count/configmaps=1, used: count/configmaps=1";
        assert!(told.contains(text), "{told}");
        happens(world, "0.0 s later upstream deletes b0").await;
        sleep(10 * MINUTE).await;
        assert_eq!(value(world, "c1"), "v1", "there is room by now");
    });
}

/// Whoever sets replicas as an autoscaler does owns them, and is left alone with them by a correction as by the next version.
#[test]
fn replicas_set_by_an_autoscaler_are_left_alone() {
    let wants = |version: u8| {
        format!("5.0 s later upstream wants of b0: apps/r0 [d0=v{version}] correctDrift")
    };
    act(&wants(1), async move |world| {
        sleep(MINUTE).await;
        let deployment = Id::new("apps", "deployments", "apps", "d0");
        let spec = |world: &World| {
            let live = world.local.get(&deployment).expect("it is deployed");
            live["spec"].clone()
        };
        assert_eq!(spec(world)["replicas"], 1);
        happens(world, "0.0 s later an autoscaler has apps/d0 at 4 to 8").await;
        sleep(10 * MINUTE).await;
        world.checker().writes.clear();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..40 {
            sleep(MINUTE / 2).await;
            seen.insert(spec(world)["replicas"].as_u64());
        }
        assert!(seen.len() > 1, "the load does not change: {seen:?}");
        assert!(seen.iter().all(|one| *one >= Some(4)), "{seen:?}");
        let written = world.checker().writes.get(&deployment).copied();
        assert_eq!(written, None, "the agent writes it at rest");
        happens(world, &wants(2)).await;
        sleep(2 * MINUTE).await;
        let spec = spec(world);
        let image = &spec["template"]["spec"]["containers"][0]["image"];
        assert_eq!(*image, "image:v2");
        assert!(spec["replicas"].as_u64() >= Some(4), "{spec}");
    });
}

/// Upstream is told of pods that crash, and that they are up again; that they do is no reason to deploy.
#[test]
fn a_workload_with_crashing_pods_is_reported_and_not_deployed_again() {
    let steps = "5.0 s later upstream wants of b0: apps/r0 [d0=v1] correctDrift";
    act(steps, async |world| {
        let ready = |world: &World| {
            let conditions = bundle(world, "b0")["status"]["conditions"].clone();
            let mut conditions = conditions.as_array().into_iter().flatten();
            let found = conditions.find(|condition| condition["type"] == "Ready");
            found.map_or(Value::Null, |found| found["status"].clone())
        };
        sleep(MINUTE).await;
        assert_eq!(ready(world), "True");
        world.checker().writes.clear();
        happens(world, "0.0 s later the pods of apps/d0 crash").await;
        sleep(MINUTE).await;
        assert_eq!(ready(world), "False");
        happens(world, "0.0 s later all pods are well").await;
        sleep(MINUTE).await;
        assert_eq!(ready(world), "True");
        happens(
            world,
            "0.0 s later the pods of apps/d0 crash again and again",
        )
        .await;
        sleep(30 * MINUTE).await;
        let written = world.checker().writes.clone();
        let place = Id::new("apps", "deployments", "apps", "d0");
        assert_eq!(written.get(&place), None, "{written:?}");
    });
}

/// What waits for somebody's finalizer is there, and going: a correction makes it anew once it is gone.
#[test]
fn an_object_deleted_with_a_finalizer_is_recreated_once_it_is_gone() {
    act(&wants(1, "correctDrift"), async |world| {
        sleep(MINUTE).await;
        happens(world, "0.0 s later a person puts a finalizer on apps/c0").await;
        happens(world, "0.0 s later a person deletes apps/c0").await;
        let metadata = |world: &World| {
            let live = world.local.get(&map("c0"));
            live.map_or(Value::Null, |live| live["metadata"].clone())
        };
        let former = metadata(world);
        assert_ne!(former["deletionTimestamp"], Value::Null, "{former}");
        sleep(60 * MINUTE).await;
        let now = metadata(world);
        assert_ne!(now["uid"], former["uid"], "it is not gone");
        assert_eq!(now["deletionTimestamp"], Value::Null, "{now}");
        assert_eq!(value(world, "c0"), "v1");
    });
}

/// The real server's words (`ValidateObjectMetaUpdate`).
#[test]
fn an_object_being_deleted_takes_no_new_finalizer() {
    act(&wants(1, ""), async |world| {
        sleep(MINUTE).await;
        let put = |finalizers: Value| {
            let body = json!({"metadata": {"finalizers": finalizers}});
            let path = path(&map("c0"));
            world.local.act(Actor::Person, "PATCH", &path, body)
        };
        assert!(put(json!(["example.com/a"])).is_ok());
        let path = path(&map("c0"));
        world.local.act(Actor::Person, "DELETE", &path, Value::Null);
        let refused = put(json!(["example.com/a", "example.com/b"]));
        assert_eq!(refused.code, 422);
        let said = r#"ConfigMap "c0" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"example.com/b"}"#;
        assert_eq!(refused.value()["message"], said);
        assert!(put(json!([])).is_ok());
        assert!(world.local.get(&map("c0")).is_none());
    });
}

/// What nobody's manifest has is left as it is, and is nothing to write again.
#[test]
fn fields_that_a_webhook_adds_are_no_drift() {
    act(&wants(1, "correctDrift"), async |world| {
        sleep(MINUTE).await;
        for habit in ["adds a label", "sets what is missing"] {
            let step = format!("0.0 s later a webhook for configmaps in apps {habit}");
            happens(world, &step).await;
        }
        happens(world, &wants(2, "correctDrift")).await;
        sleep(2 * MINUTE).await;
        let live = world.local.get(&map("c0")).expect("it is deployed");
        assert_eq!(live["data"]["site"], "north");
        let label = &live["metadata"]["labels"]["site.example.com/owner"];
        assert_eq!(label, "platform");
        world.checker().writes.clear();
        sleep(20 * MINUTE).await;
        let written = world.checker().writes.clone();
        assert_eq!(written.get(&map("c0")), None, "{written:?}");
        edit(world, "c0");
        sleep(MINUTE).await;
        assert_eq!(value(world, "c0"), "v2");
    });
}

/// As of any server that does not answer: it is told of, and tried again.
#[test]
fn a_deploy_failed_by_a_silent_webhook_succeeds_once_the_webhook_is_gone() {
    act(&wants(1, ""), async |world| {
        sleep(MINUTE).await;
        let step = "0.0 s later a webhook for configmaps in apps is silent for 30 s";
        happens(world, step).await;
        happens(world, &wants(2, "")).await;
        sleep(2 * MINUTE).await;
        assert_eq!(value(world, "c0"), "v1");
        let told = bundle(world, "b0")["status"]["conditions"].to_string();
        assert!(told.contains("context deadline exceeded"), "{told}");
        happens(world, "0.0 s later no webhook is asked any more").await;
        sleep(10 * MINUTE).await;
        assert_eq!(value(world, "c0"), "v2");
    });
}

/// With a definition go its objects, and the kind: that is told, and what is defined again is deployed again.
#[test]
fn custom_resources_go_with_their_definition_and_are_deployed_again_with_it() {
    let steps = "1.0 s later a person creates the definition of widgets\n\
                 5.0 s later upstream wants of b0: apps/r0 [w0=v1] correctDrift";
    act(steps, async |world| {
        let widget = Id::new("example.com", "widgets", "apps", "w0");
        sleep(MINUTE).await;
        assert!(world.local.get(&widget).is_some());
        happens(
            world,
            "0.0 s later a person deletes the definition of widgets",
        )
        .await;
        sleep(10 * MINUTE).await;
        assert!(world.local.get(&widget).is_none());
        let conditions = bundle(world, "b0")["status"]["conditions"].clone();
        let mut conditions = conditions.as_array().into_iter().flatten();
        let ready = conditions.find(|condition| condition["type"] == "Ready");
        let ready = ready.cloned().unwrap_or_default();
        assert_eq!(ready["status"], "False", "{ready}");
        happens(
            world,
            "0.0 s later a person creates the definition of widgets",
        )
        .await;
        sleep(20 * MINUTE).await;
        assert!(world.local.get(&widget).is_some());
    });
}

/// As Helm has it: what is in `crds` comes before all else, and goes with nothing.
#[test]
fn a_chart_may_define_a_kind_and_deploy_objects_of_it() {
    let steps = "5.0 s later upstream wants of b0: apps/r0 [w0=v1] defines";
    act(steps, async |world| {
        let widget = Id::new("example.com", "widgets", "apps", "w0");
        sleep(2 * MINUTE).await;
        assert!(world.local.get(&widget).is_some());
        happens(world, "0.0 s later upstream deletes b0").await;
        sleep(10 * MINUTE).await;
        assert!(world.local.get(&widget).is_none());
        let definitions = world
            .local
            .all(|id| id.plural == "customresourcedefinitions");
        assert_eq!(definitions.len(), 1);
    });
}

/// Each puts the copy back and wakes the other one, who finds it changed again: every time would be a revision by force, with its hooks.
#[test]
fn bundles_whose_copy_somebody_keeps_changing_are_deployed_ever_more_rarely() {
    act("", async |world| {
        let sources = format!("/api/v1/namespaces/{CLUSTER}/secrets");
        let secret = |text: &str| json!({"metadata": {"name": "shared"}, "data": {"key": text}});
        let upstream = &world.upstream;
        // Clusters count their uids alike, and by these a copy is told from its source.
        for at in 0..100 {
            let other = json!({"metadata": {"name": format!("other-{at}")}});
            upstream.act(Actor::Upstream, "POST", &sources, other);
        }
        let made = upstream.act(Actor::Upstream, "POST", &sources, secret("b25l"));
        assert!(made.is_ok(), "{:?}", made.value());
        let copies = json!({"downstreamResources": [{"kind": "Secret", "name": "shared"}]});
        let names = ["left", "right"];
        for name in names {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                "data": {"value": "v1"},
            });
            want(world, name, &object, &copies);
        }
        sleep(2 * MINUTE).await;
        let copy = Id::new("", "secrets", "apps", "shared");
        let said = |world: &World| {
            world
                .local
                .get(&copy)
                .map(|copy| copy["data"]["key"].clone())
        };
        let revisions = |world: &World| {
            names.map(|name| {
                let release = bundle(world, name)["status"]["release"].clone();
                let revision = release
                    .as_str()
                    .and_then(|release| release.rsplit_once(':'));
                revision.and_then(|(_, revision)| revision.parse::<u32>().ok())
            })
        };
        assert_eq!(said(world), Some(json!("b25l")));
        assert_eq!(revisions(world), [Some(1), Some(1)]);
        // The first bundle is looked at again, for another reason.
        let edit = |world: &World| {
            let edited = json!({"data": {"key": "aGlz"}});
            world
                .local
                .act(Actor::Person, "PATCH", &path(&copy), edited);
        };
        edit(world);
        write(
            world,
            "left",
            json!({"spec": {"downstreamResourcesGeneration": 1}}),
        );
        for _ in 0..6_000 {
            sleep(Duration::from_millis(100)).await;
            if said(world) != Some(json!("aGlz")) {
                edit(world);
            }
        }
        let after = revisions(world);
        // One at once, and then after 5, 10, 20, 40, 80, 160 and 300 s, less their jitter.
        assert!(
            after.iter().all(|one| (Some(3)..=Some(10)).contains(one)),
            "{after:?}"
        );
        sleep(10 * MINUTE).await;
        assert_eq!(
            said(world),
            Some(json!("b25l")),
            "nobody changes it any more"
        );
        // A changed source waits for nothing.
        let before = revisions(world);
        let path = format!("{sources}/shared");
        world
            .upstream
            .act(Actor::Upstream, "PATCH", &path, secret("dHdv"));
        write(
            world,
            "left",
            json!({"spec": {"downstreamResourcesGeneration": 2}}),
        );
        sleep(MINUTE / 12).await;
        assert_eq!(said(world), Some(json!("dHdv")));
        let after = revisions(world);
        assert_eq!(after, before.map(|one| one.map(|one| one + 1)));
    });
}
