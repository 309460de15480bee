//! Installing, upgrading, carrying on after a crash, undoing and removing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use release::model::{HookExecution, Status};
use release::state::{Action, State};
use release::{DeployOptions, DeploySpec, UninstallSpec};
use serde_json::json;

use crate::world::{Template, World, config_map, deployment, job};

#[tokio::test]
async fn an_install_is_recorded_marked_and_unchanged_the_second_time() -> Result<()> {
    let world = World::new().await?;
    let done = world.deploy(&config_map("a", "1")).await?;
    assert!(done.changed);
    assert_eq!(done.plan.state, State::Absent);
    assert_eq!(done.release.status(), Status::Deployed);
    assert_eq!(done.release.description(), "Install complete");
    let live = world.config_map("a").await?.unwrap();
    assert_eq!(
        live["metadata"]["labels"]["app.kubernetes.io/managed-by"],
        "Helm"
    );
    assert_eq!(
        live["metadata"]["annotations"]["meta.helm.sh/release-name"],
        "web"
    );
    assert_eq!(done.applied[0]["data"], json!({"value": "1"}));
    assert!(done.applied[0]["metadata"].get("managedFields").is_none());

    let again = world.deploy(&config_map("a", "1")).await?;
    assert!(!again.changed);
    assert_eq!(again.plan.state, State::InSync);
    assert_eq!(world.history().await?, ["1 deployed"]);
    Ok(())
}

#[tokio::test]
async fn an_upgrade_deletes_what_vanished_and_keeps_two_records() -> Result<()> {
    let world = World::new().await?;
    let kept = config_map("kept", "1").replace(
        "name: kept\n",
        "name: kept\n  annotations: {helm.sh/resource-policy: keep}\n",
    );
    world
        .deploy(&(config_map("a", "1") + &config_map("b", "1") + &kept))
        .await?;
    let done = world.deploy(&config_map("a", "2")).await?;
    assert_eq!(done.release.revision, 2);
    assert_eq!(
        done.retained
            .iter()
            .map(|key| key.name.as_str())
            .collect::<Vec<_>>(),
        ["kept"]
    );
    assert!(world.config_map("b").await?.is_none());
    assert!(world.config_map("kept").await?.is_some());
    assert_eq!(world.config_map("a").await?.unwrap()["data"]["value"], "2");
    assert_eq!(world.history().await?, ["1 superseded", "2 deployed"]);
    world.deploy(&config_map("a", "3")).await?;
    assert_eq!(world.history().await?, ["2 superseded", "3 deployed"]);
    Ok(())
}

#[tokio::test]
async fn a_foreign_object_is_refused_in_helms_words_and_nothing_stays() -> Result<()> {
    let world = World::new().await?;
    world.kubectl(&["create", "namespace", &world.namespace])?;
    world.kubectl(&["create", "configmap", "a", "--from-literal=value=theirs"])?;
    let error = world.deploy(&config_map("a", "1")).await.unwrap_err();
    assert_eq!(
        release::error_chain(&error),
        format!(
            "unable to continue with install: ConfigMap \"a\" in namespace \"{0}\" exists and cannot \
             be imported into the current release: invalid ownership metadata; label validation \
             error: missing key \"app.kubernetes.io/managed-by\": must be set to \"Helm\"; annotation \
             validation error: missing key \"meta.helm.sh/release-name\": must be set to \"web\"; \
             annotation validation error: missing key \"meta.helm.sh/release-namespace\": must be set \
             to \"{0}\"",
            world.namespace
        )
    );
    assert_eq!(world.history().await?, [""; 0]);
    assert_eq!(
        world.config_map("a").await?.unwrap()["data"]["value"],
        "theirs"
    );
    let options = DeployOptions {
        take_ownership: true,
        ..DeployOptions::default()
    };
    world
        .deploy_with(&Template::new(&config_map("a", "1")), options)
        .await?;
    assert_eq!(world.config_map("a").await?.unwrap()["data"]["value"], "1");
    Ok(())
}

/// Creating shows whose an object is: what was created before that goes again, and nothing that runs
/// was started.
#[tokio::test]
async fn objects_created_before_a_foreign_one_was_found_are_deleted() -> Result<()> {
    let world = World::new().await?;
    world.kubectl(&["create", "namespace", &world.namespace])?;
    world.kubectl(&["create", "configmap", "b", "--from-literal=value=theirs"])?;
    world.kubectl(&["create", "deployment", "d", "--image=theirs"])?;
    let maps = config_map("a", "1") + &config_map("b", "1");
    for (manifest, foreign) in [
        (maps.clone(), "ConfigMap \"b\""),
        (
            config_map("a", "1") + &deployment("d", 1, "ours"),
            "Deployment \"d\"",
        ),
    ] {
        let refused = world.deploy(&manifest).await.unwrap_err();
        let text = release::error_chain(&refused);
        let expected = format!("unable to continue with install: {foreign} in namespace ");
        assert!(text.starts_with(&expected), "{text}");
        assert!(world.config_map("a").await?.is_none());
        assert_eq!(world.history().await?, [""; 0]);
    }
    let map = world.config_map("b").await?.unwrap();
    assert_eq!(map["data"]["value"], "theirs");
    assert_eq!(
        map["metadata"]["managedFields"].as_array().map(Vec::len),
        Some(1)
    );
    // Marked as ours they may be there: an uninstall that kept them, say.
    for object in ["configmap/b", "deployment/d"] {
        world.kubectl(&["label", object, "app.kubernetes.io/managed-by=Helm"])?;
        let name = "meta.helm.sh/release-name=web";
        let namespace = format!("meta.helm.sh/release-namespace={}", world.namespace);
        world.kubectl(&["annotate", object, name, &namespace])?;
    }
    world.deploy(&maps).await?;
    assert_eq!(world.config_map("b").await?.unwrap()["data"]["value"], "1");
    Ok(())
}

#[tokio::test]
async fn a_refused_object_is_reported_recorded_and_put_right_by_the_next_try() -> Result<()> {
    let world = World::new().await?;
    let bad = config_map("b", "1").replace("\ndata:", "\ndota:");
    let error = world
        .deploy(&(config_map("a", "1") + &bad))
        .await
        .unwrap_err();
    let text = release::error_chain(&error);
    assert!(text.starts_with(&format!(
        "server-side apply failed for object {}/b /v1, Kind=ConfigMap: ",
        world.namespace
    )));
    assert!(
        text.contains(".dota: field not declared in schema"),
        "{text}"
    );
    assert_eq!(world.history().await?, ["1 failed"]);
    let record = world.newest().await?;
    assert_eq!(
        record.description(),
        format!("Release \"web\" failed: {text}")
    );
    assert!(
        world.config_map("a").await?.is_some(),
        "the others are applied"
    );

    let done = world.deploy(&config_map("a", "1")).await?;
    assert_eq!(done.plan.state, State::NeverDeployed);
    assert_eq!(done.plan.action, Action::Install { revision: 2 });
    assert_eq!(world.history().await?, ["1 failed", "2 deployed"]);
    Ok(())
}

#[tokio::test]
async fn objects_of_a_failed_revision_are_deleted_by_the_next_good_one() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    let bad = config_map("b", "1").replace("\ndata:", "\ndota:");
    world
        .deploy(&(config_map("a", "1") + &config_map("stray", "1") + &bad))
        .await
        .unwrap_err();
    assert!(world.config_map("stray").await?.is_some());
    world.deploy(&config_map("a", "2")).await?;
    assert!(world.config_map("stray").await?.is_none());
    assert_eq!(world.history().await?, ["1 superseded", "3 deployed"]);
    Ok(())
}

#[tokio::test]
async fn an_interrupted_revision_is_finished_not_repeated() -> Result<()> {
    let world = World::new().await?;
    let template = Template::new(&config_map("a", "1"));
    world
        .deploy_with(&template, DeployOptions::default())
        .await?;
    for (status, wanted, history) in [
        (Status::PendingInstall, "1", &["1 deployed"][..]),
        (Status::PendingInstall, "2", &["1 failed", "2 deployed"][..]),
    ] {
        world.tamper(1, status).await?;
        world.kubectl(&["delete", "configmap", "a"])?;
        let done = world.deploy(&config_map("a", wanted)).await?;
        assert_eq!(done.plan.state, State::Interrupted);
        assert!(done.plan.action.is_install());
        assert_eq!(
            world.config_map("a").await?.unwrap()["data"]["value"],
            wanted
        );
        let statuses = world.history().await?;
        assert_eq!(statuses.len(), history.len());
        assert_eq!(
            statuses.last(),
            history.last().map(ToString::to_string).as_ref()
        );
    }
    Ok(())
}

#[tokio::test]
async fn an_interrupted_upgrade_builds_on_the_last_good_revision() -> Result<()> {
    let world = World::new().await?;
    world
        .deploy(&(config_map("a", "1") + &config_map("b", "1")))
        .await?;
    world.deploy(&config_map("a", "2")).await?;
    // As it was left by a crash after the pending record: nothing applied yet.
    world.tamper(2, Status::PendingUpgrade).await?;
    world.tamper(1, Status::Deployed).await?;
    let template = Template::new(&config_map("a", "2"));
    let done = world
        .deploy_with(&template, DeployOptions::default())
        .await?;
    assert_eq!(
        done.plan.action,
        Action::Finish {
            revision: 2,
            from: Some(1)
        }
    );
    assert_eq!(*template.seen.lock().unwrap(), [(2, false)]);
    assert_eq!(world.history().await?, ["1 superseded", "2 deployed"]);
    Ok(())
}

#[tokio::test]
async fn a_release_can_be_deployed_again_while_its_removal_is_unfinished() -> Result<()> {
    let world = World::new().await?;
    world
        .deploy(&(config_map("a", "1") + &config_map("b", "1")))
        .await?;
    world.tamper(1, Status::Uninstalling).await?;
    let done = world.deploy(&config_map("a", "2")).await?;
    assert_eq!(done.plan.state, State::Uninstalling);
    assert!(world.config_map("b").await?.is_none());
    assert_eq!(world.config_map("a").await?.unwrap()["data"]["value"], "2");
    Ok(())
}

#[tokio::test]
async fn an_uninstall_leaves_only_objects_of_others() -> Result<()> {
    let world = World::new().await?;
    let manifest = config_map("a", "1") + &config_map("b", "1");
    world.deploy(&manifest).await?;
    world.kubectl(&[
        "annotate",
        "configmap",
        "b",
        "--overwrite",
        "meta.helm.sh/release-name=other",
    ])?;
    let spec = UninstallSpec::new("web", &world.namespace);
    let done = release::uninstall(&world.cluster, &world.storage, &spec).await?;
    assert!(done.existed);
    assert_eq!(
        done.not_owned
            .iter()
            .map(|key| key.name.as_str())
            .collect::<Vec<_>>(),
        ["b"]
    );
    assert!(world.config_map("a").await?.is_none());
    assert!(world.config_map("b").await?.is_some());
    assert_eq!(world.history().await?, [""; 0]);
    let again = release::uninstall(&world.cluster, &world.storage, &spec).await?;
    assert!(!again.existed);
    Ok(())
}

#[tokio::test]
async fn keep_resources_deletes_only_the_records() -> Result<()> {
    let world = World::new().await?;
    world.deploy(&config_map("a", "1")).await?;
    let spec = UninstallSpec {
        keep_resources: true,
        ..UninstallSpec::new("web", &world.namespace)
    };
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    assert!(world.config_map("a").await?.is_some());
    assert_eq!(world.history().await?, [""; 0]);
    // And it is taken up again by its marks.
    world.deploy(&config_map("a", "2")).await?;
    assert_eq!(world.config_map("a").await?.unwrap()["data"]["value"], "2");
    Ok(())
}

#[tokio::test]
async fn hooks_run_in_order_and_are_recorded() -> Result<()> {
    let world = World::new().await?;
    let template = Template::new(&config_map("a", "1"))
        .hook("before", "pre-install", &job("before"))
        .hook("after", "post-install", &job("after"))
        .hook("removal", "pre-delete", &job("removal"));
    let done = world
        .deploy_with(&template, DeployOptions::default())
        .await?;
    let phases: Vec<_> = done
        .release
        .hooks
        .iter()
        .map(|hook| hook.last_run.phase.as_str())
        .collect();
    assert_eq!(
        phases,
        [HookExecution::SUCCEEDED, HookExecution::SUCCEEDED, ""]
    );
    let jobs = world.kubectl(&["get", "jobs", "--output", "name"])?;
    assert_eq!(jobs, "job.batch/after\njob.batch/before\n");
    let spec = UninstallSpec::new("web", &world.namespace);
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    assert!(
        world
            .kubectl(&["get", "jobs", "--output", "name"])?
            .contains("removal")
    );
    Ok(())
}

#[tokio::test]
async fn a_hook_that_fails_fails_the_install_and_runs_again() -> Result<()> {
    let world = World::new().await?;
    let refused = job("before").replace("restartPolicy: Never", "restartPolicy: Sometimes");
    let template = Template::new(&config_map("a", "1")).hook("before", "pre-install", &refused);
    // A hook that the API server refuses has not run: it is tried again as soon as anything else.
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = |template: &Template| DeploySpec {
        on_hooks: Some({
            let runs = Arc::clone(&runs);
            Arc::new(move || {
                runs.fetch_add(1, Ordering::Relaxed);
            })
        }),
        ..world.spec(template, DeployOptions::default())
    };
    let error = release::deploy(&world.cluster, &world.storage, &counted(&template))
        .await
        .unwrap_err();
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    let text = release::error_chain(&error);
    assert!(
        text.starts_with(
            "failed pre-install: warning: Hook pre-install web/templates/before.yaml failed: "
        ),
        "{text}"
    );
    assert!(world.config_map("a").await?.is_none());
    let template =
        Template::new(&config_map("a", "1")).hook("before", "pre-install", &job("before"));
    let done = release::deploy(&world.cluster, &world.storage, &counted(&template)).await?;
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert!(done.plan.action.is_install(), "the install hooks run");
    assert_eq!(
        done.release.hooks[0].last_run.phase,
        HookExecution::SUCCEEDED
    );
    Ok(())
}

#[tokio::test]
async fn atomic_undoes_a_failed_deployment() -> Result<()> {
    let world = World::new().await?;
    let bad = config_map("b", "1").replace("\ndata:", "\ndota:");
    let options = || DeployOptions {
        atomic: true,
        ..DeployOptions::default()
    };
    let failing = Template::new(&(config_map("a", "2") + &bad));
    let error = world.deploy_with(&failing, options()).await.unwrap_err();
    assert!(release::error_chain(&error).starts_with(
        "release web failed, and has been uninstalled due to rollback-on-failure being set: "
    ));
    assert_eq!(world.history().await?, [""; 0]);
    assert!(world.config_map("a").await?.is_none());

    world.deploy(&config_map("a", "1")).await?;
    let error = world.deploy_with(&failing, options()).await.unwrap_err();
    assert!(release::error_chain(&error).starts_with(
        "release web failed, and has been rolled back due to rollback-on-failure being set: "
    ));
    assert_eq!(world.config_map("a").await?.unwrap()["data"]["value"], "1");
    assert_eq!(
        world.history().await?.last().map(String::as_str),
        Some("3 deployed")
    );
    Ok(())
}

#[tokio::test]
async fn a_chart_may_define_a_kind_and_use_it() -> Result<()> {
    let world = World::new().await?;
    let group = format!("{}.example.com", world.namespace);
    let manifest = format!(
        "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
         metadata: {{name: cars.{group}}}\nspec:\n  group: {group}\n  scope: Namespaced\n  \
         names: {{kind: Car, plural: cars, singular: car}}\n  versions:\n  - name: v1\n    \
         served: true\n    storage: true\n    schema: {{openAPIV3Schema: {{type: object, \
         x-kubernetes-preserve-unknown-fields: true}}}}\n\
         ---\napiVersion: {group}/v1\nkind: Car\nmetadata: {{name: beetle}}\nspec: {{doors: 2}}\n"
    );
    let done = world.deploy(&manifest).await?;
    assert_eq!(done.applied.len(), 2);
    assert!(
        world
            .kubectl(&["get", &format!("cars.{group}"), "beetle"])?
            .contains("beetle")
    );
    let spec = UninstallSpec::new("web", &world.namespace);
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    Ok(())
}

#[tokio::test]
async fn only_force_recreates_what_is_immutable() -> Result<()> {
    let world = World::new().await?;
    let one = crate::world::deployment("d", 1, "nginx:1");
    world.deploy(&one).await?;
    let other = one.replace("app: d", "app: e");
    let error = world.deploy(&other).await.unwrap_err();
    assert!(
        release::error_chain(&error).contains("field is immutable"),
        "{error:?}"
    );
    let options = DeployOptions {
        force: true,
        ..DeployOptions::default()
    };
    world.deploy_with(&Template::new(&other), options).await?;
    assert!(
        world
            .kubectl(&["get", "deployment", "d", "--output", "yaml"])?
            .contains("app: e")
    );
    Ok(())
}

/// The selector of a Deployment cannot change: the chart before goes on, another name does too.
#[tokio::test]
async fn an_immutable_selector_does_not_block_other_objects() -> Result<()> {
    let world = World::new().await?;
    let one = deployment("d", 1, "nginx:1");
    world.deploy(&one).await?;
    let uid = [
        "get",
        "deployment",
        "d",
        "--output=jsonpath={.metadata.uid}",
    ];
    let before = world.kubectl(&uid)?;
    let relabelled = one.replace("app: d", "app: e");
    world
        .deploy(&(relabelled.clone() + &config_map("a", "2")))
        .await
        .unwrap_err();
    let atomic = DeployOptions {
        atomic: true,
        ..DeployOptions::default()
    };
    let template = Template::new(&(relabelled.clone() + &config_map("b", "3")));
    let error = world.deploy_with(&template, atomic).await.unwrap_err();
    let text = release::error_chain(&error);
    assert!(text.contains("has been rolled back"), "{text}");
    assert_eq!(world.kubectl(&uid)?, before);
    for gone in ["a", "b"] {
        assert!(world.config_map(gone).await?.is_none(), "{gone}");
    }
    assert!(
        !world.deploy(&one).await?.changed,
        "what was gone back to is deployed"
    );
    let renamed = relabelled.replace("name: d\n", "name: e\n");
    world.deploy(&renamed).await?;
    let names = world.kubectl(&["get", "deployments", "--output=name"])?;
    assert_eq!(names, "deployment.apps/e\n");
    Ok(())
}

/// Whatever else somebody edited: what others hold is settled before the API server validates.
#[tokio::test]
async fn force_replaces_what_cannot_be_merged() -> Result<()> {
    let service = "---\n# Source: web/templates/s.yaml\napiVersion: v1\nkind: Service\nmetadata:\n  name: s\n  \
                   labels: {dropped: \"yes\"}\nspec:\n  selector: {app: web}\n  ports: [{port: 80}]\n";
    for edit in [
        r#"{"spec":{"ports":[{"port":81}]}}"#,
        r#"{"spec":{"ports":[{"port":81}],"selector":{"app":"edited"}}}"#,
    ] {
        let world = World::new().await?;
        world.deploy(service).await?;
        let uid = ["get", "service", "s", "--output=jsonpath={.metadata.uid}"];
        let before = world.kubectl(&uid)?;
        world.kubectl(&["patch", "service", "s", "--type=merge", "--patch", edit])?;

        let other = service
            .replace("app: web", "app: other")
            .replace("dropped: ", "added: \"yes\", dropped: ");
        let error = world.deploy(&other).await.unwrap_err();
        let text = release::error_chain(&error);
        assert!(
            text.contains("spec.ports[0].name: Required value"),
            "{text}"
        );
        let options = DeployOptions {
            force: true,
            ..DeployOptions::default()
        };
        world.deploy_with(&Template::new(&other), options).await?;
        let shown =
            "--output=jsonpath={.spec.ports[*].port} {.spec.selector} {.metadata.labels.added}";
        let live = world.kubectl(&["get", "service", "s", shown])?;
        assert_eq!(live, r#"80 {"app":"other"} yes"#, "{edit}");
        assert_eq!(world.kubectl(&uid)?, before, "it was not recreated");

        // What was replaced is ours: what the chart drops goes, what only the replacement brought too.
        let without = other
            .replace("  labels: {added: \"yes\", dropped: \"yes\"}\n", "")
            .replace("app: other", "tier: web");
        assert!(!without.contains("added"), "{without}");
        world.deploy(&without).await?;
        let shown = "--output=jsonpath={.spec.selector} {.metadata.labels.added} {.metadata.labels.dropped}";
        let live = world.kubectl(&["get", "service", "s", shown])?;
        assert_eq!(live, r#"{"tier":"web"}  "#, "{edit}");
    }
    Ok(())
}

/// What somebody wrote that says whether and when an object may go stays as the object is replaced, now and with later versions. What the chart said
/// of that goes with the chart's word.
#[tokio::test]
async fn force_replaces_no_wish_to_be_kept_no_finalizer_and_no_owner() -> Result<()> {
    let service = |app: &str, annotations: &str| {
        format!(
            "---\n# Source: web/templates/s.yaml\napiVersion: v1\nkind: Service\nmetadata:\n  name: s\n{annotations}spec:\n  \
             selector: {{app: {app}}}\n  ports: [{{port: 80}}]\n"
        )
    };
    let options = || DeployOptions {
        force: true,
        ..DeployOptions::default()
    };
    let shown = "--output=jsonpath={.spec.ports[*].port} {.metadata.annotations.helm\\.sh/resource-policy} \
                 {.metadata.finalizers[*]} {.metadata.ownerReferences[*].name}";
    let edit = r#"{"spec":{"ports":[{"port":81}]}}"#;
    let edit = ["patch", "service", "s", "--type=merge", "--patch", edit];

    let world = World::new().await?;
    world.deploy(&service("one", "")).await?;
    world.kubectl(&["create", "configmap", "owner"])?;
    let owner = [
        "get",
        "configmap",
        "owner",
        "--output=jsonpath={.metadata.uid}",
    ];
    let owner = world.kubectl(&owner)?;
    let theirs = format!(
        r#"{{"metadata":{{"annotations":{{"helm.sh/resource-policy":"keep"}},"finalizers":["example.com/keep"],
        "ownerReferences":[{{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"{owner}"}}]}}}}"#
    );
    world.kubectl(&["patch", "service", "s", "--type=merge", "--patch", &theirs])?;
    world.kubectl(&edit)?;
    let second = Template::new(&service("two", ""));
    world.deploy_with(&second, options()).await?;
    let kept = "80 keep example.com/keep owner";
    assert_eq!(world.kubectl(&["get", "service", "s", shown])?, kept);
    world.deploy(&service("three", "")).await?;
    assert_eq!(world.kubectl(&["get", "service", "s", shown])?, kept);
    world.deploy(&config_map("a", "1")).await?;
    let shown_going = "--output=jsonpath={.metadata.deletionTimestamp}";
    assert_eq!(world.kubectl(&["get", "service", "s", shown_going])?, "");

    let world = World::new().await?;
    let asking = "  annotations: {helm.sh/resource-policy: keep}\n";
    world.deploy(&service("one", asking)).await?;
    world.kubectl(&edit)?;
    let second = Template::new(&service("two", ""));
    world.deploy_with(&second, options()).await?;
    assert_eq!(world.kubectl(&["get", "service", "s", shown])?, "80   ");
    Ok(())
}

/// What was there before the release is noted as such and replaced, once, where it cannot be merged with the chart's.
#[tokio::test]
async fn force_replaces_what_was_there_before() -> Result<()> {
    let service = |port: u16| {
        format!(
            "---\n# Source: web/templates/s.yaml\napiVersion: v1\nkind: Service\nmetadata:\n  name: s\nspec:\n  \
             selector: {{app: web}}\n  ports: [{{port: {port}, name: http}}]\n"
        )
    };
    for (take_ownership, is_upgrade, noted) in [
        (true, false, "owned"),
        (true, true, "owned"),
        (false, true, "kept"),
    ] {
        let world = World::new().await?;
        if is_upgrade {
            world.deploy(&config_map("a", "1")).await?;
        } else {
            world.kubectl(&["create", "namespace", &world.namespace])?;
        }
        world.create(&service(8080)).await?;
        let uid = ["get", "service", "s", "--output=jsonpath={.metadata.uid}"];
        let before = world.kubectl(&uid)?;
        let options = DeployOptions {
            force: true,
            take_ownership,
            ..DeployOptions::default()
        };
        let template = Template::new(&(config_map("a", "2") + &service(80)));
        world.deploy_with(&template, options).await?;
        let shown = "--output=jsonpath={.spec.ports[*].port} {.metadata.annotations.fleetagent\\.cattle\\.io/adopted}";
        let live = world.kubectl(&["get", "service", "s", shown])?;
        assert_eq!(live, format!("80 {noted}"));
        assert_eq!(world.kubectl(&uid)?, before, "it was not recreated");
    }
    Ok(())
}

#[tokio::test]
async fn a_retry_names_the_object_it_could_not_create() -> Result<()> {
    let world = World::new().await?;
    let bad = config_map("b", "1").replace("\ndata:", "\ndota:");
    for prefix in ["", "failed to create resource: "] {
        let error = world.deploy(&bad).await.unwrap_err();
        let text = release::error_chain(&error);
        let start = format!(
            "{prefix}server-side apply failed for object {}/b ",
            world.namespace
        );
        assert!(text.starts_with(&start), "{text}");
    }
    Ok(())
}

#[tokio::test]
async fn a_hook_that_ran_is_recorded_with_its_delete_policy() -> Result<()> {
    let world = World::new().await?;
    let template =
        Template::new(&config_map("a", "1")).hook("h", "post-install", &config_map("h", "1"));
    world
        .deploy_with(&template, DeployOptions::default())
        .await?;
    let record = world.newest().await?;
    assert_eq!(record.hooks[0].delete_policies, ["before-hook-creation"]);
    let again = world
        .deploy_with(&template, DeployOptions::default())
        .await?;
    assert!(!again.changed, "a default written out is no change");
    Ok(())
}
