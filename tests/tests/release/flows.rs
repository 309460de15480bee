//! Helm's recorded flows: what its history says after each action, and what ours says.
//!
//! Each flow of `release.json` is followed on the memory driver until an action that ours takes
//! otherwise on purpose or that only a person takes: an install over a history, an upgrade of nothing, a rollback, a record tampered with, a
//! dry run, a merge on the client's side, and failures that a real API server cannot be told to have.
//! COMPATIBILITY.md argues them.

use anyhow::{Context, Result};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use release::model::{Release, Status};
use release::{DeployOptions, Storage, UninstallSpec};
use serde_json::{Value, json};

use crate::memory::Memory;
use crate::world::{Template, World, config_map};

const EVENTS: [&str; 8] = [
    "pre-install",
    "post-install",
    "pre-upgrade",
    "post-upgrade",
    "pre-rollback",
    "post-rollback",
    "pre-delete",
    "post-delete",
];

/// What an action is for us.
enum Step {
    Deploy {
        is_refused: bool,
        options: DeployOptions,
    },
    Uninstall {
        keep_history: bool,
    },
    /// Ours does something else.
    Other,
}

fn step(given: &Value, history: &[Release]) -> Step {
    let is = |field: &str| given[field] == true;
    let options = DeployOptions {
        max_history: given["max_history"].as_i64().unwrap_or_default(),
        atomic: is("rollback_on_failure"),
        always: true,
        ..DeployOptions::default()
    };
    let known = [
        "op",
        "version",
        "max_history",
        "keep_history",
        "rollback_on_failure",
        "fail",
        "ignore_not_found",
    ];
    let has_more = given
        .as_object()
        .is_none_or(|given| given.keys().any(|key| !known.contains(&key.as_str())));
    let is_refused = given["fail"] == "update" && given["op"] == "upgrade" && !options.atomic;
    if has_more || !(given["fail"].is_null() || is_refused) {
        return Step::Other;
    }
    let newest = history.last().map(Release::status);
    let was_deployed = history
        .iter()
        .any(|release| matches!(release.status(), Status::Deployed | Status::Superseded));
    match given["op"].as_str() {
        Some("install") if history.is_empty() => Step::Deploy {
            is_refused,
            options,
        },
        Some("upgrade") if was_deployed && newest != Some(Status::Uninstalled) => Step::Deploy {
            is_refused,
            options,
        },
        Some("uninstall") if newest != Some(Status::Uninstalled) => Step::Uninstall {
            keep_history: is("keep_history"),
        },
        _ => Step::Other,
    }
}

async fn history(world: &World) -> Result<Vec<Release>> {
    let mut all = Vec::new();
    for head in world.storage.history(&world.name).await? {
        let record = world.storage.get(&world.name, head.revision).await?;
        all.push(record.into_release());
    }
    Ok(all)
}

/// A record as the vectors tell it. Of a failure only its beginning: the cause is the real one.
fn reported(release: &Release) -> Value {
    let info = release.info.clone().unwrap_or_default();
    let mut reported = json!({
        "version": release.revision,
        "status": release.status().to_string(),
        "description": without_cause(&info.description),
        "apply_method": release.apply_method.as_str(),
        "deleted": !info.deleted.is_zero(),
    });
    if info.rollback_revision != 0 {
        reported["rollback_revision"] = info.rollback_revision.into();
    }
    reported
}

fn without_cause(description: &str) -> String {
    match description.split_once(" failed: ") {
        Some((before, _)) => before.to_owned(),
        None => description.to_owned(),
    }
}

/// The hooks that the action of this record has run.
fn phases(release: &Release) -> Vec<(String, String)> {
    let ran = release
        .hooks
        .iter()
        .filter(|hook| !hook.last_run.phase.is_empty());
    ran.map(|hook| (hook.name.clone(), hook.last_run.phase.clone()))
        .collect()
}

/// Follows one flow; gives how many actions were compared, and how many there are.
async fn follow(flow: &Value) -> Result<(usize, usize)> {
    let mut world = World::new().await?;
    world.storage = Storage::new(Memory::default());
    world.name = "demo".to_owned();
    let namespace = serde_json::from_value(json!({"metadata": {"name": world.namespace}}))?;
    let namespaces: kube::Api<Namespace> = kube::Api::all(world.client.clone());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    let steps = flow["steps"].as_array().context("steps")?;
    for (index, given) in steps.iter().enumerate() {
        let before = history(&world).await?;
        // Every action brings something else, so that none is a repetition.
        let manifest = config_map("demo", &index.to_string());
        let failed = match step(&given["do"], &before) {
            Step::Deploy {
                is_refused,
                options,
            } => {
                let manifest = match is_refused {
                    true => manifest.replace("\ndata:", "\ndota:"),
                    false => manifest,
                };
                let mut template = Template::new(&manifest);
                if flow["hooks"] == true {
                    for event in EVENTS {
                        template = template.hook(event, event, &config_map(event, "hook"));
                    }
                }
                world.deploy_with(&template, options).await.is_err()
            }
            Step::Uninstall { keep_history } => {
                let spec = UninstallSpec {
                    keep_history,
                    ..UninstallSpec::new(&world.name, &world.namespace)
                };
                let done = release::uninstall(&world.cluster, &world.storage, &spec).await?;
                !done.existed && given["do"]["ignore_not_found"] != true
            }
            Step::Other => return Ok((index, steps.len())),
        };
        let action = format!("{}, action {index} ({})", flow["name"], given["do"]);
        assert_eq!(failed, given.get("error").is_some(), "{action}");
        let after = history(&world).await?;
        let ours: Vec<Value> = after.iter().map(reported).collect();
        let mut theirs = given["history"].as_array().context("history")?.clone();
        for record in &mut theirs {
            let description = record["description"].as_str().unwrap_or_default();
            record["description"] = without_cause(description).into();
            if let Some(record) = record.as_object_mut() {
                record.remove("hook_phases");
            }
        }
        assert_eq!(Value::from(ours), Value::from(theirs), "{action}");
        let newest = given["history"].as_array().and_then(|all| all.last());
        let Some((newest, ours)) = newest.zip(after.last()) else {
            continue;
        };
        for (event, phase) in phases(ours) {
            assert_eq!(newest["hook_phases"][&event], phase, "{action}: {event}");
        }
    }
    Ok((steps.len(), steps.len()))
}

#[tokio::test]
async fn our_histories_read_as_helms() -> Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/vectors/release.json");
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(path)?)?;
    let flows: Vec<&Value> = cases.iter().filter(|case| case["kind"] == "flow").collect();
    let followed: Vec<(usize, usize)> = stream::iter(flows)
        .map(follow)
        .buffered(8)
        .try_collect()
        .await?;
    let whole = followed.iter().filter(|(done, all)| done == all).count();
    let done: usize = followed.iter().map(|(done, _)| done).sum();
    let all: usize = followed.iter().map(|(_, all)| all).sum();
    eprintln!(
        "{whole} of {} flows to their end, {done} of {all} actions",
        followed.len()
    );
    assert!(whole >= 5 && done >= 89, "fewer than there were");
    Ok(())
}
