//! Fleet's recorded drift (`diff.json`), found anew on a real API server.
//!
//! Fleet computes drift from compiled-in types and defaults, ours asks the API server for both. So each
//! recorded case is made real: what is wanted is applied as we apply it, then somebody puts the recorded
//! live objects in its place. Cases that a real API server does not take (fields that may not change,
//! kinds it does not know) are counted out. What must agree is which objects are told, and as what;
//! patches of lists differ in form, as Fleet's are strategic and ours are JSON merge patches.

use std::collections::BTreeMap;

use agent::api::BundleDeployment;
use agent::controllers::bundle_deployment::observe::{self, Kept, KindAndName, Live, View};
use agent::summary::{ErrorMapping, IgnoredConditions};
use anyhow::{Context, Result};
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use objects::manifest::build_stored_names;
use release::kube::Owner;
use release::model::Release;
use serde_json::{Value, json};
use testbed::bed::unique;
use testbed::wait::wait_until;

use crate::world::World;

/// Cases in which ours tells something else, each for a reason.
const DIFFERENT: [&str; 21] = [
    // What only the live object has is in the prediction too, so a chain that removes it does not fail there.
    "d-op-path-only-live",
    // The API server has dropped what Fleet saw in the live object: fields that it does not know.
    "d-sweep-networkpolicy-4-live-extra",
    "d-sweep-role_binding-0-live-extra",
    "d-sweep-serviceaccount-0-live-extra",
    "d-sweep-serviceaccount-2-live-extra",
    "d-sweep-serviceaccount-4-live-extra",
    // What somebody added is no drift, to an element of a list neither.
    "d-sweep-daemonset-1-live-extra",
    "d-sweep-pdb-3-live-extra",
    // An element of a list that was given another name is somebody's, and ours is added beside it: at other places.
    "d-compare-008-statefulset",
    // Replicas are any autoscaler's, in whatever version of the API it names its target, and whether it is ours or not.
    "d-hpa-out-of-range",
    "d-hpa-wrong-api-version",
    "d-hpa-not-in-manifest",
    "d-hpa-not-owned",
    "d-hpa-below",
    // Finalizers of a Namespace are written through a subresource of their own.
    "d-random-018-namespace",
    "d-compare-037-namespace",
    // It names itself, and is called otherwise here.
    "d-sweep-namespace-4-live-extra",
    // An empty list that is not there is no drift.
    "d-cr-empty-list",
    // Fleet knows that a Rollout has quantities; its definition does not say so.
    "d-duration-rollout",
    // Told once for each time it is in the manifest.
    "d-duplicate-in-manifest",
    // Fleet sorts addresses.
    "d-endpoints-order",
];

/// Cases that a real API server takes, and those in which the patches are the same, at least.
const REPLAYED: usize = 330;
const EQUAL: usize = 260;

const HASH: &str = "objectset.rio.cattle.io/hash";

/// What a case came to.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    cases: usize,
    /// The API server took its objects.
    replayed: usize,
    /// The same objects were told, as the same.
    same: usize,
    /// With the same patches.
    equal: usize,
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// Replaces each text that is `from`, those in patches included.
fn rename(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) if text == from => to.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, from, to)),
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| rename(field, from, to)),
        _ => {}
    }
}

/// A recorded case in a namespace of its own.
struct Case<'w> {
    world: &'w World,
    namespace: String,
    given: Value,
}

impl<'w> Case<'w> {
    /// Cluster-scoped objects get names of their own, except definitions, whose names say what they define.
    async fn new(world: &'w World, recorded: &Value) -> Result<Self> {
        let namespace = unique("drift");
        create_namespace(world, &namespace).await?;
        let mut given = recorded.clone();
        for entry in given["modified"].as_array_mut().into_iter().flatten() {
            if let Some(patch) = entry["patch"].as_str() {
                entry["patch"] = serde_json::from_str(patch)?;
            }
        }
        let own = text(&given, "/default_namespace").to_owned();
        rename(&mut given, &own, &namespace);
        if given.to_string().contains("\"kube-system\"") {
            let system = format!("{namespace}-system");
            create_namespace(world, &system).await?;
            rename(&mut given, "kube-system", &system);
        }
        let objects = [list(&given["desired"]), list(&given["live"])].concat();
        for object in objects {
            let is_global = recorded["namespaced"][kind(&object)] == false;
            let name = text(&object, "/metadata/name");
            if is_global && object["kind"] != "CustomResourceDefinition" {
                let own_name = format!("{namespace}-{name}");
                rename(&mut given, name, &own_name);
            }
        }
        Ok(Self {
            world,
            namespace,
            given,
        })
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let api_version = text(object, "/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, text(object, "/kind"));
        let resource = ApiResource::from_gvk(&kind);
        match text(object, "/metadata/namespace") {
            "" => Api::all_with(self.world.client.clone(), &resource),
            namespace => Api::namespaced_with(self.world.client.clone(), namespace, &resource),
        }
    }

    /// Makes the recorded objects live.
    async fn set_up(&self, owner: &Owner) -> Result<()> {
        let desired = list(&self.given["desired"]);
        for mut live in list(&self.given["live"]) {
            let api = self.api(&live);
            let name = text(&live, "/metadata/name").to_owned();
            let wanted = desired
                .iter()
                .find(|wanted| identity(wanted) == identity(&live));
            let is_there = wanted.is_some();
            let mut version = None;
            if let Some(wanted) = wanted {
                let mut wanted = wanted.clone();
                owner.mark(&mut wanted);
                let params = PatchParams::apply("fleetagent").force();
                let applied = api.patch(&name, &params, &Patch::Apply(&wanted)).await?;
                version = applied.metadata.resource_version;
            }
            if let Some(fields) = live.as_object_mut() {
                fields.remove("status");
            }
            if let Some(metadata) = live["metadata"].as_object_mut() {
                for field in [
                    "uid",
                    "resourceVersion",
                    "creationTimestamp",
                    "generation",
                    "managedFields",
                ] {
                    metadata.remove(field);
                }
                metadata.extend(
                    version
                        .clone()
                        .map(|version| ("resourceVersion".to_owned(), version.into())),
                );
            }
            let mut live: DynamicObject = serde_json::from_value(live)?;
            let params = PostParams {
                field_manager: Some("somebody".to_owned()),
                ..PostParams::default()
            };
            if !is_there {
                api.create(&params, &live).await?;
                continue;
            }
            // Controllers write meanwhile.
            let mut tries = 0;
            while let Err(error) = api.replace(&name, &params, &live).await {
                let is_conflict = matches!(&error, kube::Error::Api(status) if status.code == 409);
                tries += 1;
                anyhow::ensure!(is_conflict && tries < 20, error);
                live.metadata.resource_version = api.get(&name).await?.metadata.resource_version;
            }
        }
        Ok(())
    }

    /// Looks as the agent looks; gives what it tells, in the words of the recording.
    async fn look(&self, owner: &Owner) -> Result<Vec<Value>> {
        let release = |objects: &Value| Release {
            name: owner.name.clone(),
            namespace: owner.namespace.clone(),
            manifest: list(objects)
                .iter()
                .map(|one| format!("---\n{one}\n"))
                .collect(),
            ..Release::default()
        };
        let cluster = &self.world.cluster;
        let observe::Desired {
            objects: wanted,
            unserved,
            ..
        } = observe::objects(cluster, &release(&self.given["desired"])).await?;
        let previous = release(&self.given["previous"]);
        let discovery = cluster.discovery().await?;
        let former = build_stored_names(&previous.manifest, &previous.namespace, &discovery)?;
        let former = former.listed();
        let former = former
            .iter()
            .map(|one| (KindAndName::of(&one.key()), Kept::No))
            .collect();
        let all = [list(&self.given["desired"]), list(&self.given["live"])].concat();
        let hash = all
            .first()
            .map(|one| one["metadata"]["labels"][HASH].clone());
        let hash = hash.as_ref().and_then(Value::as_str).unwrap_or_default();
        let bundle: BundleDeployment = serde_json::from_value(json!({
            "metadata": {"name": owner.name},
            "spec": {"options": {"diff": self.given["diff"]}},
        }))?;
        let rules = observe::rules(cluster, &bundle.into()).await?;
        let mut live = Live::read(&self.world.cluster, hash, &wanted, |_| ()).await?;
        let differences = live.differences(cluster, owner, &wanted, &rules, &[]).await;
        let mapping = ErrorMapping::default();
        let view = View {
            rules: &rules,
            owner,
            mapping: &mapping,
            ignored_conditions: IgnoredConditions::default(),
            now: k8s_openapi::jiff::Timestamp::now(),
        };
        let found = live.compare(&wanted, &unserved, &former, &differences, &view);
        let mut reported = Vec::new();
        for entry in found.modified {
            let mut entry = serde_json::to_value(entry)?;
            if let Some(patch) = entry["patch"].as_str() {
                entry["patch"] = serde_json::from_str(patch)?;
            } else if let Some(entry) = entry.as_object_mut() {
                entry.remove("patch");
            }
            reported.push(entry);
        }
        Ok(reported)
    }

    /// Only definitions could be in the way of the next case.
    async fn clean_up(&self) -> Result<()> {
        for object in [list(&self.given["desired"]), list(&self.given["live"])].concat() {
            if object["kind"] != "CustomResourceDefinition" {
                continue;
            }
            let (api, name) = (
                self.api(&object),
                text(&object, "/metadata/name").to_owned(),
            );
            wait_until("a definition to go", PATIENCE, async || {
                api.delete(&name, &DeleteParams::default()).await.ok();
                match api.get_opt(&name).await {
                    Ok(None) => Ok(()),
                    other => Err(format!(
                        "{:?}",
                        other.map(|left| left.map(|left| left.metadata))
                    )),
                }
            })
            .await?;
        }
        Ok(())
    }
}

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(300);

async fn create_namespace(world: &World, name: &str) -> Result<()> {
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    let namespaces = Api::<Namespace>::all(world.client.clone());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    Ok(())
}

fn kind(object: &Value) -> String {
    format!("{} {}", text(object, "/apiVersion"), text(object, "/kind"))
}

fn identity(object: &Value) -> [&str; 4] {
    [
        "/apiVersion",
        "/kind",
        "/metadata/namespace",
        "/metadata/name",
    ]
    .map(|field| text(object, field))
}

/// What is told of which object, its patch aside.
fn verdicts(reported: &[Value]) -> Vec<String> {
    let mut verdicts: Vec<String> = reported
        .iter()
        .map(|entry| {
            let mut entry = entry.clone();
            if entry.get("patch").is_some() {
                entry["patch"] = true.into();
            }
            entry.to_string()
        })
        .collect();
    verdicts.sort();
    verdicts
}

/// Replays one case; tells where it ends otherwise than recorded.
async fn replay(world: &World, recorded: &Value) -> Result<(Tally, String)> {
    let mut tally = Tally {
        cases: 1,
        ..Tally::default()
    };
    let case = Case::new(world, recorded).await?;
    let owner = Owner {
        name: "rel".to_owned(),
        namespace: case.namespace.clone(),
    };
    let mut reported = String::new();
    let theirs = list(&case.given["modified"]);
    if let Err(refused) = case.set_up(&owner).await {
        case.clean_up().await?;
        return Ok((tally, format!("not replayed: {refused}")));
    }
    let ours = case.look(&owner).await?;
    tally.replayed = 1;
    if verdicts(&ours) == verdicts(&theirs) {
        tally.same = 1;
        tally.equal = usize::from(sorted(&ours) == sorted(&theirs));
    } else {
        let (theirs, ours) = (Value::from(theirs), Value::from(ours));
        reported = format!("recorded {theirs}\n  found {ours}");
    }
    case.clean_up().await?;
    Ok((tally, reported))
}

fn sorted(reported: &[Value]) -> Vec<String> {
    let mut all: Vec<String> = reported.iter().map(Value::to_string).collect();
    all.sort();
    all
}

fn definition(group: &str, plural: &str, kind: &str, version: &str) -> String {
    format!(
        "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
         metadata: {{name: {plural}.{group}}}\nspec:\n  group: {group}\n  scope: Namespaced\n  \
         names: {{kind: {kind}, plural: {plural}}}\n  versions:\n  - name: {version}\n    \
         served: true\n    storage: true\n    schema: {{openAPIV3Schema: {{type: object, \
         x-kubernetes-preserve-unknown-fields: true}}}}\n"
    )
}

#[tokio::test]
async fn drift_is_reported_as_fleet_reports_it() -> Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/vectors/diff.json");
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(path)?)?;
    // Where Fleet fails there is nothing to compare with; a webhook would hold up every other test.
    let is_comparable = |case: &Value| {
        let failed = case.get("plan_error").or_else(|| case.get("diff_error"));
        failed.is_none()
            && !case
                .to_string()
                .contains("\"MutatingWebhookConfiguration\"")
    };
    let (cases, left_out): (Vec<Value>, Vec<Value>) = cases.into_iter().partition(is_comparable);
    let world = World::new().await?;
    let kinds = definition("example.io", "widgets", "Widget", "v1")
        + &definition("argoproj.io", "rollouts", "Rollout", "v1alpha1");
    world.deploy(&kinds).await?;
    let defines = |case: &&Value| case.to_string().contains("\"CustomResourceDefinition\"");
    let (defining, others): (Vec<&Value>, Vec<&Value>) = cases.iter().partition(defines);
    let one = async |case: &Value| -> Result<(String, String, Tally, String)> {
        let name = text(case, "/name").to_owned();
        let (tally, reported) = replay(&world, case).await.with_context(|| name.clone())?;
        Ok((text(case, "/family").to_owned(), name, tally, reported))
    };
    let mut done = stream::iter(others)
        .map(one)
        .buffer_unordered(4)
        .collect::<Vec<_>>()
        .await;
    for case in defining {
        done.push(one(case).await);
    }
    let mut families: BTreeMap<String, Tally> = BTreeMap::new();
    let mut all = Tally::default();
    let mut differing: Vec<String> = Vec::new();
    for one in done {
        let (family, name, tally, reported) = one?;
        for sum in [families.entry(family).or_default(), &mut all] {
            sum.cases += tally.cases;
            sum.replayed += tally.replayed;
            sum.same += tally.same;
            sum.equal += tally.equal;
        }
        if !reported.is_empty() {
            eprintln!("{name}: {reported}");
        }
        if tally.replayed > tally.same {
            differing.push(name);
        }
    }
    for (family, tally) in &families {
        eprintln!("{family}: {tally:?}");
    }
    eprintln!("{all:?}, {} left out", left_out.len());
    let unknown: Vec<&String> = differing
        .iter()
        .filter(|name| !DIFFERENT.contains(&name.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(all.replayed >= REPLAYED, "fewer than there were: {all:?}");
    assert!(all.equal >= EQUAL, "fewer than there were: {all:?}");
    Ok(())
}
