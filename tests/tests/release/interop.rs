//! helm reads, upgrades and removes our releases, and we its.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use release::model::{ApplyMethod, Status};
use release::{DeployError, DeployOptions, UninstallSpec};
use serde_json::{Value, json};
use testbed::cluster::ADMIN;
use testbed::helm::Helm;

use crate::world::{Template, World, config_map, deployment, job};

/// A place for charts and for what helm keeps, gone at the end.
struct Home(PathBuf);

impl Home {
    fn of(world: &World) -> Result<Self> {
        let home = std::env::temp_dir().join(format!("{}-home", world.namespace));
        std::fs::create_dir_all(&home)?;
        Ok(Self(home))
    }

    /// A chart `web` with one template, annotated as Fleet annotates its charts.
    fn chart(&self, version: &str, template: &str) -> Result<String> {
        let chart = self.0.join(format!("web-{version}"));
        std::fs::create_dir_all(chart.join("templates"))?;
        let metadata = format!(
            "apiVersion: v2\nname: web\nversion: {version}\nannotations:\n  \
             fleet.cattle.io/agent-namespace: cattle-fleet-system\n  \
             fleet.cattle.io/bundle-id: web\n"
        );
        std::fs::write(chart.join("Chart.yaml"), metadata)?;
        std::fs::write(chart.join("templates/all.yaml"), template)?;
        std::fs::write(chart.join("templates/NOTES.txt"), "Thanks")?;
        Ok(chart.to_string_lossy().into_owned())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn helms(world: &World, home: &Path) -> Result<[Helm; 2]> {
    Helm::both(&world.plane.kubeconfig(ADMIN)?, home)
}

/// Runs helm in the release's namespace.
fn ask(world: &World, helm: &Helm, arguments: &[&str]) -> Result<String> {
    helm.run(&[arguments, &["--namespace", &world.namespace]].concat())
}

fn ask_json(world: &World, helm: &Helm, arguments: &[&str]) -> Result<Value> {
    helm.json(&[arguments, &["--namespace", &world.namespace]].concat())
}

const HOOK: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: hook\n  annotations:\n    \
                    helm.sh/hook: test\n";

#[tokio::test]
async fn helm_reads_our_releases() -> Result<()> {
    let world = World::new().await?;
    let home = Home::of(&world)?;
    let (one, two) = (config_map("a", "1"), config_map("a", "2"));
    let template = |manifest: &str| Template::new(manifest).hook("hook", "test", HOOK);
    world
        .deploy_with(&template(&one), DeployOptions::default())
        .await?;
    world
        .deploy_with(&template(&two), DeployOptions::default())
        .await?;
    for (index, helm) in helms(&world, &home.0)?.iter().enumerate() {
        let json = |arguments: &[&str]| ask_json(&world, helm, arguments);
        let text = |arguments: &[&str]| ask(&world, helm, arguments);
        let list = json(&["list"])?;
        assert_eq!(list[0]["name"], "web");
        assert_eq!(list[0]["revision"], "2");
        assert_eq!(list[0]["chart"], "web-1.0.0");
        assert_eq!(list[0]["status"], "deployed");
        assert_eq!(
            text(&["get", "manifest", "web"])?.trim_end(),
            two.trim_end()
        );
        let first = text(&["get", "manifest", "web", "--revision", "1"])?;
        assert_eq!(first.trim_end(), one.trim_end());
        assert!(text(&["get", "hooks", "web"])?.contains("name: hook"));
        assert!(text(&["get", "notes", "web"])?.contains("Thanks"));
        assert_eq!(json(&["get", "values", "web", "--all"])?, json!({}));
        let metadata = json(&["get", "metadata", "web"])?;
        assert_eq!(metadata["chart"], "web");
        assert_eq!(metadata["status"], "deployed");
        if index == 1 {
            assert_eq!(metadata["applyMethod"], "ssa");
        }
        let all = text(&["get", "all", "web"])?;
        assert!(
            all.contains("REVISION: 2") && all.contains("Thanks"),
            "{all}"
        );
        let status = json(&["status", "web"])?;
        assert_eq!(status["info"]["description"], "Upgrade complete");
        let history = json(&["history", "web"])?;
        assert_eq!(history[0]["status"], "superseded");
        assert_eq!(history[0]["description"], "Install complete");
        assert_eq!(history[1]["description"], "Upgrade complete");
    }
    Ok(())
}

#[tokio::test]
async fn helm_upgrades_rolls_back_and_removes_our_releases() -> Result<()> {
    // Helm 4 applies under its own name, and asks before it takes fields from another manager. It
    // asks so of the Go agent's releases too: see the test below.
    let takes: [&[&str]; 2] = [&[], &["--force-conflicts"]];
    for (index, takes) in takes.into_iter().enumerate() {
        let world = World::new().await?;
        let home = Home::of(&world)?;
        let helm = &helms(&world, &home.0)?[index];
        let value = async || -> Result<Value> {
            let map = world
                .config_map("a")
                .await?
                .context("the ConfigMap is there")?;
            Ok(map["data"]["value"].clone())
        };
        let (one, two) = (config_map("a", "1"), config_map("a", "2"));
        world.deploy(&one).await?;
        world.deploy(&two).await?;
        ask(&world, helm, &[&["rollback", "web", "1"], takes].concat())?;
        assert_eq!(value().await?, "1");
        // And what helm left is ours to go on from.
        let done = world.deploy(&two).await?;
        assert_eq!(done.release.revision, 4);
        assert_eq!(value().await?, "2");
        let three = home.chart("3.0.0", &(config_map("a", "3") + &config_map("b", "3")))?;
        ask(&world, helm, &[&["upgrade", "web", &three], takes].concat())?;
        assert_eq!(value().await?, "3");
        let done = world.deploy(&two).await?;
        assert_eq!(done.release.revision, 6);
        assert_eq!(value().await?, "2");
        assert!(world.config_map("b").await?.is_none());
        ask(&world, helm, &["uninstall", "web"])?;
        assert!(world.config_map("a").await?.is_none());
        assert_eq!(world.history().await?, [""; 0]);
    }
    Ok(())
}

/// Makes what helm wrote look as the Go agent writes it: that is Helm 4's library in a program called
/// `fleetagent`, and the manager of fields is the program's name.
fn rewrite_as_go_agent(world: &World, objects: &[&str]) -> Result<()> {
    let records = world.kubectl(&["get", "secrets", "-o", "name"])?;
    for object in objects.iter().copied().chain(records.lines()) {
        let get = ["get", object, "-o", "json", "--show-managed-fields"];
        let live: Value = serde_json::from_str(&world.kubectl(&get)?)?;
        let mut entries = live["metadata"]["managedFields"].clone();
        for entry in entries.as_array_mut().into_iter().flatten() {
            if entry["manager"] == "helm" {
                entry["manager"] = "fleetagent".into();
            }
        }
        let patch = json!([{"op": "replace", "path": "/metadata/managedFields", "value": entries}]);
        world.kubectl(&["patch", object, "--type=json", "-p", &patch.to_string()])?;
    }
    Ok(())
}

/// What helm's own command can do with the Go agent's releases it can do with ours, and it refuses
/// the same with the same words.
#[tokio::test]
async fn helm_treats_our_releases_as_the_go_agents() -> Result<()> {
    let mut refusals = Vec::new();
    for is_ours in [true, false] {
        let world = World::new().await?;
        let home = Home::of(&world)?;
        let helm = &helms(&world, &home.0)?[1];
        for value in ["1", "2"] {
            let manifest = config_map("a", value);
            if is_ours {
                world.deploy(&manifest).await?;
            } else {
                let chart = home.chart(&format!("{value}.0.0"), &manifest)?;
                let create = "--create-namespace";
                ask(
                    &world,
                    helm,
                    &["upgrade", "--install", "web", &chart, create],
                )?;
            }
        }
        if !is_ours {
            rewrite_as_go_agent(&world, &["configmap/a"])?;
        }
        let refused = ask(&world, helm, &["rollback", "web", "1"]);
        let refused = refused.err().context("the manager is another")?;
        refusals.push(format!("{refused:#}").replace(&world.namespace, "NS"));
        ask(&world, helm, &["rollback", "web", "1", "--force-conflicts"])?;
        let map = world.config_map("a").await?.context("it is there")?;
        assert_eq!(map["data"]["value"], "1");
        ask(&world, helm, &["uninstall", "web"])?;
        assert!(world.config_map("a").await?.is_none());
    }
    assert!(
        refusals[0].contains("conflict with \"fleetagent\""),
        "{}",
        refusals[0]
    );
    assert_eq!(refusals[0], refusals[1]);
    Ok(())
}

/// How another client made a release.
struct Theirs {
    /// Helm 3 or Helm 4.
    index: usize,
    /// Whether it is the Go agent.
    is_go_agent: bool,
    /// More of its options.
    options: &'static [&'static str],
    method: ApplyMethod,
}

const THEIRS: [Theirs; 5] = [
    Theirs {
        index: 0,
        is_go_agent: false,
        options: &[],
        method: ApplyMethod::Unset,
    },
    Theirs {
        index: 1,
        is_go_agent: false,
        options: &[],
        method: ApplyMethod::ServerSide,
    },
    Theirs {
        index: 1,
        is_go_agent: false,
        options: &["--server-side=false"],
        method: ApplyMethod::ClientSide,
    },
    Theirs {
        index: 1,
        is_go_agent: true,
        options: &[],
        method: ApplyMethod::ServerSide,
    },
    // The Go agent with takeOwnership, and each of its drift corrections.
    Theirs {
        index: 1,
        is_go_agent: true,
        options: &["--server-side=false"],
        method: ApplyMethod::ClientSide,
    },
];

/// Releases of every other client are upgraded, rolled back and removed by us; what the chart drops
/// goes, what others added stays.
#[tokio::test]
async fn we_upgrade_roll_back_and_remove_releases_of_others() -> Result<()> {
    for theirs in THEIRS {
        let world = World::new().await?;
        let home = Home::of(&world)?;
        let helm = &helms(&world, &home.0)?[theirs.index];
        let first = config_map("a", "1")
            + "  dropped: \"yes\"\n  edited: \"yes\"\n"
            + &config_map("b", "1")
            + &deployment("d", 1, "nginx:1")
            + "      - name: side\n        image: side:1\n";
        let chart = home.chart("1.0.0", &first)?;
        let install = ["install", "web", &chart, "--create-namespace"];
        ask(&world, helm, &[&install[..], theirs.options].concat())?;
        if theirs.is_go_agent {
            rewrite_as_go_agent(&world, &["configmap/a", "configmap/b", "deployment/d"])?;
        }
        let record = world.newest().await?;
        assert_eq!(record.status(), Status::Deployed);
        assert_eq!(record.apply_method, theirs.method);
        // Somebody changes a field of the chart, adds one, and a container.
        let change = json!({"data": {"edited": "by hand", "added": "by hand"}}).to_string();
        let patch = ["patch", "configmap", "a", "--type=merge", "-p", &change];
        world.kubectl(&[&patch[..], &["--field-manager=kubectl-edit"]].concat())?;

        let second = config_map("a", "2") + &deployment("d", 1, "nginx:2");
        let done = world.deploy(&second).await?;
        assert_eq!(done.release.revision, 2);
        assert_eq!(done.release.apply_method, ApplyMethod::ServerSide);
        let map = world.config_map("a").await?.context("it is there")?;
        let mut left = json!({"value": "2", "added": "by hand"});
        if theirs.method == ApplyMethod::ServerSide {
            // As with Helm 4: whoever applied or edited a field last keeps it.
            left["edited"] = "by hand".into();
        }
        assert_eq!(map["data"], left, "{:?}", theirs.method);
        assert!(world.config_map("b").await?.is_none());
        let images = "-o=jsonpath={.spec.template.spec.containers[*].image}";
        let get = ["get", "deployment", "d", images];
        assert_eq!(world.kubectl(&get)?, "nginx:2");
        // Once is enough: the next change meets nobody.
        let third = config_map("a", "3") + &deployment("d", 1, "nginx:3");
        let done = world.deploy(&third).await?;
        assert!(done.conflicts.is_empty(), "{:?}", done.conflicts);
        let spec = UninstallSpec::new("web", &world.namespace);
        release::uninstall(&world.cluster, &world.storage, &spec).await?;
        assert!(world.config_map("a").await?.is_none());
    }
    Ok(())
}

/// Somebody gives an object to a release by hand, as Helm's documentation says, and asks to keep it in the same breath. That stays his when the release
/// is taken over, as does whatever else he wrote.
#[tokio::test]
async fn what_a_person_wrote_when_he_gave_an_object_to_a_release_stays() -> Result<()> {
    for index in [0, 1] {
        for is_annotated in [true, false] {
            let world = World::new().await?;
            let home = Home::of(&world)?;
            let helm = &helms(&world, &home.0)?[index];
            world.kubectl(&["create", "namespace", &world.namespace])?;
            let annotations = [
                "meta.helm.sh/release-name=web",
                &format!("meta.helm.sh/release-namespace={}", world.namespace),
                "helm.sh/resource-policy=keep",
                "owner=ann",
            ];
            let managed = "app.kubernetes.io/managed-by=Helm";
            let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";
            if is_annotated {
                world.create(&format!("{map}data: {{extra: x}}\n")).await?;
                world.kubectl(&["label", "configmap", "a", managed])?;
                world.kubectl(&[&["annotate", "configmap", "a"][..], &annotations].concat())?;
            } else {
                let annotations = annotations.join(", ").replace('=', ": ");
                let managed = managed.replace('=', ": ");
                world.create(&format!(
                    "{map}  labels: {{{managed}}}\n  annotations: {{{annotations}}}\ndata: {{extra: x}}\n"
                ))
                .await?;
            }
            let chart = home.chart("1.0.0", &config_map("a", "1"))?;
            ask(&world, helm, &["install", "web", &chart])?;
            world.deploy(&config_map("a", "2")).await?;
            let map = world.config_map("a").await?.context("it is there")?;
            let noted = &map["metadata"]["annotations"];
            assert_eq!(noted["helm.sh/resource-policy"], "keep", "{map}");
            assert_eq!(noted["owner"], "ann", "{map}");
            assert_eq!(map["data"], json!({"extra": "x", "value": "2"}));
            // What the chart has is the release's, and goes with it.
            let empty = config_map("a", "2").replace("\ndata:", "\ndata: {}");
            world.deploy(&empty.replace("  value: \"2\"\n", "")).await?;
            let map = world.config_map("a").await?.context("it is there")?;
            assert_eq!(map["data"], json!({"extra": "x"}));
            world.deploy(&config_map("b", "1")).await?;
            assert!(
                world.config_map("a").await?.is_some(),
                "he asked to keep it"
            );
        }
    }
    Ok(())
}

/// Helm is uninstalling: what were deployed meanwhile it would delete.
#[tokio::test]
async fn nothing_is_deployed_while_helm_uninstalls() -> Result<()> {
    for index in [0, 1] {
        let world = World::new().await?;
        let home = Home::of(&world)?;
        let helm = &helms(&world, &home.0)?[index];
        let hook = job("goodbye")
            .replace("image: busybox", "image: busybox:never")
            .replace(
                "metadata:\n",
                "metadata:\n  annotations: {helm.sh/hook: pre-delete}\n",
            );
        let chart = home.chart("1.0.0", &format!("{}---\n{hook}", config_map("a", "1")))?;
        ask(
            &world,
            helm,
            &["install", "web", &chart, "--create-namespace"],
        )?;
        // It waits for its hook, and gives up.
        ask(&world, helm, &["uninstall", "web", "--timeout", "2s"]).unwrap_err();
        assert_eq!(world.history().await?, ["1 uninstalling"]);
        let error = world.deploy(&config_map("a", "2")).await.unwrap_err();
        assert!(matches!(error, DeployError::Locked));
        assert_eq!(world.history().await?, ["1 uninstalling"]);
        assert_eq!(world.value("a").await?, "1");
        // A removal goes on with it.
        let spec = UninstallSpec {
            disable_hooks: true,
            ..UninstallSpec::new("web", &world.namespace)
        };
        release::uninstall(&world.cluster, &world.storage, &spec).await?;
        assert_eq!(world.value("a").await?, "none");
    }
    Ok(())
}

/// One chart, installed by helm and by us: the live objects differ in names, times and managers.
#[tokio::test]
async fn our_install_leaves_the_same_objects_as_helms() -> Result<()> {
    let (theirs, ours) = (World::new().await?, World::new().await?);
    let home = Home::of(&theirs)?;
    let helm = &helms(&theirs, &home.0)?[1];
    let manifest = config_map("a", "1")
        + &deployment("d", 2, "nginx:1")
        + "        ports: [{containerPort: 80}]\n        resources: {limits: {cpu: 1000m, memory: 1Gi}}\n"
        + "---\napiVersion: v1\nkind: Service\nmetadata: {name: s, labels: {app: d}}\nspec:\n  \
           selector: {app: d}\n  ports: [{port: 80}]\n"
        + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: k}\nstringData: {password: hunter2}\n"
        + "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: w}\n"
        + "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i}\nspec:\n  rules:\n  \
           - host: example.org\n    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}\n"
        + "---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c}\nspec:\n  schedule: \"0 0 1 1 *\"\n  \
           jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: busybox}]}}}}\n"
        + "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: p}\nspec: {minAvailable: 1, selector: {matchLabels: {app: d}}}\n"
        + "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r}\nrules: [{apiGroups: [\"\"], resources: [pods], verbs: [get]}]\n";
    let chart = home.chart("1.0.0", &manifest)?;
    ask(
        &theirs,
        helm,
        &["install", "web", &chart, "--create-namespace"],
    )?;
    let manifest = ask(&theirs, helm, &["get", "manifest", "web"])?;
    ours.deploy(&manifest).await?;
    let kinds = "configmap/a,deployment/d,service/s,secret/k,serviceaccount/w,ingress/i,cronjob/c,\
                 poddisruptionbudget/p,role/r,namespace";
    for object in kinds.split(',') {
        let live = |world: &World| -> Result<Value> {
            let name = match object {
                "namespace" => format!("namespace/{}", world.namespace),
                object => object.to_owned(),
            };
            let get = ["get", &name, "-o", "json", "--show-managed-fields"];
            let text = world.kubectl(&get)?.replace(&world.namespace, "NS");
            Ok(comparable(serde_json::from_str(&text)?))
        };
        assert_eq!(live(&ours)?, live(&theirs)?, "{object}");
    }
    Ok(())
}

/// An object without what differs between any two: identity, times, what controllers wrote, and the
/// names of managers.
fn comparable(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    let kind = object["kind"].clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
            metadata.remove(field);
        }
        if let Some(annotations) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            annotations.remove("deployment.kubernetes.io/revision");
        }
        if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
            entries.retain(|entry| {
                let manager = entry["manager"].as_str().unwrap_or_default();
                manager.starts_with("helm") || manager == "fleetagent"
            });
            for entry in entries {
                entry["manager"] = "it".into();
                entry["time"] = Value::Null;
            }
        }
        // Helm 4 applies the namespace it creates, we create it: who owns its label is not the point.
        if kind == "Namespace" {
            metadata.remove("managedFields");
        }
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    object
}
