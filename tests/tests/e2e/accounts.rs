//! Whose rights a bundle needs, and whose name is on what is written for it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::bed::Bed;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent, condition};
use testbed::wait::wait_until;

use crate::scene::{in_haste, target, wait_event, with_own_bundle};

/// What of Secrets an account needs that deploys, as the agent reads its records for it.
const WRITES: &[&str] = &["create", "update", "delete"];

/// An account of the system namespace that may do this with Secrets and write ConfigMaps in `target`, no more.
async fn narrow_account(agent: &TestAgent<'_>, target: &str, secrets: &[&str]) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io";
    for object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": target } }),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "narrow", "namespace": agent.system_namespace },
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "Role",
            "metadata": { "name": "narrow", "namespace": target },
            "rules": [
                { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] },
                { "apiGroups": [""], "resources": ["secrets"], "verbs": secrets },
            ],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
            "metadata": { "name": "narrow", "namespace": target },
            "roleRef": { "apiGroup": rbac, "kind": "Role", "name": "narrow" },
            "subjects": [{ "kind": "ServiceAccount", "name": "narrow", "namespace": agent.system_namespace }],
        }),
    ] {
        apply(&agent.downstream, object).await?;
    }
    Ok(())
}

/// Takes the rights of the account in a namespace away.
async fn revoke(agent: &TestAgent<'_>, namespace: &str) -> Result<()> {
    let bindings = agent.objects("rbac.authorization.k8s.io/v1", "RoleBinding", namespace);
    bindings.delete("narrow", &DeleteParams::default()).await?;
    wait_revoked(agent, namespace, "secrets", "get").await
}

/// Waits until the account may not do something in a namespace any more.
async fn wait_revoked(
    agent: &TestAgent<'_>,
    namespace: &str,
    resource: &str,
    verb: &str,
) -> Result<()> {
    let user = format!("system:serviceaccount:{}:narrow", agent.system_namespace);
    let review = json!({ "spec": {
        "user": user,
        "resourceAttributes": { "namespace": namespace, "resource": resource, "verb": verb },
    }});
    let review: SubjectAccessReview = serde_json::from_value(review)?;
    let reviews = Api::<SubjectAccessReview>::all(agent.downstream.clone());
    wait_until("the right to be gone", PATIENCE, async || {
        let answer = reviews.create(&PostParams::default(), &review).await;
        let status = answer.map_err(|e| e.to_string())?.status;
        match status.is_some_and(|status| status.allowed) {
            true => Err("still allowed".to_owned()),
            false => Ok(()),
        }
    })
    .await
}

fn settings(target: &str, value: &str) -> BundleDeployment {
    let file = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\ndata: {{value: {value:?}}}\n"
    );
    BundleDeployment::content("narrow", vec![("cm.yaml".to_owned(), file.into_bytes())])
        .release("narrow", target)
        .option("serviceAccount", json!("narrow"))
}

#[tokio::test]
async fn an_account_deploys_without_the_right_to_read_secrets() -> Result<()> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let target = format!("{}-app", agent.id);
    narrow_account(&agent, &target, WRITES).await?;
    for (revision, value) in [(1, "one"), (2, "two")] {
        agent.apply(&settings(&target, value)).await?;
        let ready = agent.wait_ready("narrow").await?;
        let release = format!("{target}/narrow:{revision}");
        assert_eq!(ready["status"]["release"], json!(release));
    }
    Ok(())
}

/// Whoever copies by name needs no list; what it copied goes with its bundle all the same.
#[tokio::test]
async fn copies_go_with_a_bundle_whose_account_may_not_list_them() -> Result<()> {
    let agent = with_own_bundle().await?;
    let target = target(&agent);
    let by_name = ["get", "create", "update", "delete"];
    narrow_account(&agent, &target, &by_name).await?;
    let by_name = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": "narrow", "namespace": target },
        "rules": [
            { "apiGroups": [""], "resources": ["secrets"], "verbs": by_name },
            { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update", "patch"] },
            { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete"], "resourceNames": ["settings", "site"] },
        ],
    });
    apply(&agent.downstream, by_name).await?;
    wait_revoked(&agent, &target, "configmaps", "list").await?;
    agent
        .upstream_secret("pull", json!({ "key": "value" }))
        .await?;
    let site = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "key": "value" },
        "metadata": { "name": "site", "namespace": agent.deployment_namespace()? },
    });
    apply(&agent.upstream, site).await?;
    let resources =
        json!([{ "kind": "Secret", "name": "pull" }, { "kind": "ConfigMap", "name": "site" }]);
    let bundle = settings(&target, "one")
        .option("downstreamResources", resources)
        .spec("downstreamResourcesGeneration", json!(1));
    agent.apply(&bundle).await?;
    agent.wait_ready("narrow").await?;
    let is_there = async |kind: &str, name: &str| {
        let found = agent.object("v1", kind, &target, name).await;
        found.map(|found| found.is_some())
    };
    ensure!(is_there("Secret", "pull").await? && is_there("ConfigMap", "site").await?);
    // Anybody may label an object so, with which the account may do nothing: no removal waits for that.
    let labels = json!({ "fleet.cattle.io/bundledeployment": "narrow" });
    let foreign = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "foreign", "namespace": target, "labels": labels },
    });
    apply(&agent.downstream, foreign).await?;
    agent.delete("narrow").await?;
    wait_event(&agent, "Removed", "narrow").await?;
    let are_left = [
        ("Secret", "pull"),
        ("ConfigMap", "site"),
        ("ConfigMap", "foreign"),
    ];
    let mut found = Vec::new();
    for (kind, name) in are_left {
        found.push(is_there(kind, name).await?);
    }
    ensure!(found == [false, false, true], "{found:?}");
    Ok(())
}

/// `force` deletes nothing that the account may not create again. A right to create it by its name alone is enough.
#[tokio::test]
async fn what_an_account_may_not_create_again_is_not_recreated() -> Result<()> {
    let agent = in_haste().await?;
    let target = target(&agent);
    narrow_account(&agent, &target, WRITES).await?;
    let bundle = |value: &str| {
        let file = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\nimmutable: true\ndata: {{value: {value:?}}}\n"
        );
        BundleDeployment::content("narrow", vec![("cm.yaml".to_owned(), file.into_bytes())])
            .release("narrow", &target)
            .option("serviceAccount", json!("narrow"))
            .helm("force", json!(true))
    };
    agent.apply(&bundle("one")).await?;
    agent.wait_ready("narrow").await?;
    let settings = async || {
        let map = agent.object("v1", "ConfigMap", &target, "settings").await?;
        map.context("the ConfigMap is gone")
    };
    let before = settings().await?;
    let maps = |rule: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": "narrow", "namespace": target },
            "rules": [
                { "apiGroups": [""], "resources": ["secrets"], "verbs": WRITES },
                { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch", "delete"] },
                rule,
            ],
        })
    };
    let other = json!({
        "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"], "resourceNames": ["other"],
    });
    apply(&agent.downstream, maps(other)).await?;
    wait_revoked(&agent, &target, "configmaps", "create").await?;
    agent.apply(&bundle("two")).await?;
    let told = agent
        .wait_deploy_error("narrow", |message| {
            message.contains("cannot create resource")
        })
        .await?;
    for part in [
        "Kind=ConfigMap",
        "is not recreated",
        "its successor would be refused",
    ] {
        ensure!(told.contains(part), "{part}: {told}");
    }
    let still = settings().await?;
    ensure!(still.metadata.uid == before.metadata.uid, "{still:?}");
    ensure!(still.data["data"]["value"] == "one", "{still:?}");
    let named = json!({
        "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"], "resourceNames": ["settings"],
    });
    apply(&agent.downstream, maps(named)).await?;
    agent.wait_ready("narrow").await?;
    let made = settings().await?;
    ensure!(made.data["data"]["value"] == "two", "{made:?}");
    ensure!(made.metadata.uid != before.metadata.uid, "{made:?}");
    Ok(())
}

/// A chart may make up passwords, and its hooks may be migrations: what is asked for again are the labels of the namespace alone.
#[tokio::test]
async fn a_namespace_that_may_not_be_labelled_deploys_nothing_again() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let timing = "namespace-retry=300ms".to_owned();
    agent.start([("FLEET_AGENT_TIMING".to_owned(), timing)].into())?;
    let target = target(&agent);
    narrow_account(&agent, &target, WRITES).await?;
    let made_up = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: made-up}\ndata: {password: {{ randAlphaNum 20 }}}\n";
    let bundle = BundleDeployment::chart("narrow", &[("templates/map.yaml", made_up)])
        .release("narrow", &target)
        .option("serviceAccount", json!("narrow"))
        .option("namespaceLabels", json!({ "team": "a" }));
    agent.apply(&bundle).await?;
    agent
        .wait_for("narrow", "to lack the labels of its namespace", |bundle| {
            condition(bundle, "Installed").is_some_and(|one| one["status"] == "False")
        })
        .await?;
    let audit = agent.bed.downstream.audit();
    let user = format!("system:serviceaccount:{}:narrow", agent.system_namespace);
    let tries = async |count: usize| {
        let mark = audit.mark();
        wait_until("the labels to be asked for again", PATIENCE, async || {
            let requests = audit.by_user(&user, mark).map_err(|e| e.to_string())?;
            let tries = requests.iter().filter(|one| one.resource == "namespaces");
            let tries = tries.filter(|one| one.verb == "patch").count();
            (tries >= count)
                .then_some(())
                .ok_or(format!("{tries} tries"))
        })
        .await
    };
    tries(2).await?;
    let made_up = async || -> Result<Value> {
        let map = agent.object("v1", "ConfigMap", &target, "made-up").await?;
        Ok(map.context("the ConfigMap")?.data["data"].clone())
    };
    let bundles = agent.bundle_deployments()?;
    let (before, password) = (bundles.get("narrow").await?, made_up().await?);
    tries(6).await?;
    let after = bundles.get("narrow").await?;
    let release = json!(format!("{target}/narrow:1"));
    ensure!(after.data["status"]["release"] == release, "{after:?}");
    ensure!(made_up().await? == password, "it was deployed anew");
    ensure!(
        after.metadata.resource_version == before.metadata.resource_version,
        "{before:?}\n{after:?}"
    );
    // The right alone is what was missing, and nothing wakes the bundle.
    let rbac = "rbac.authorization.k8s.io";
    let name = format!("{target}-labels");
    for object in [
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": { "name": name },
            "rules": [{
                "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "patch"], "resourceNames": [target],
            }],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": "narrow", "namespace": agent.system_namespace }],
        }),
    ] {
        apply(&agent.downstream, object).await?;
    }
    let ready = agent.wait_ready("narrow").await?;
    ensure!(ready["status"]["release"] == release, "{ready}");
    ensure!(made_up().await? == password, "it was deployed anew");
    Ok(())
}

/// The record of a former release decides nothing; the release goes once its account may remove it.
#[tokio::test]
async fn a_bundle_moves_out_of_a_namespace_in_which_its_account_has_no_rights_any_more()
-> Result<()> {
    let agent = in_haste().await?;
    let (former, next) = (target(&agent), format!("{}-next", agent.id));
    for namespace in [&former, &next] {
        narrow_account(&agent, namespace, &["*"]).await?;
    }
    agent.apply(&settings(&former, "one")).await?;
    agent.wait_ready("narrow").await?;
    revoke(&agent, &former).await?;
    agent.apply(&settings(&next, "one")).await?;
    let release = json!(format!("{next}/narrow:1"));
    agent
        .wait_for("narrow", "to be deployed where it moved", |bundle| {
            bundle["status"]["release"] == release && bundle["status"]["ready"] == json!(true)
        })
        .await?;
    let left = async || agent.object("v1", "ConfigMap", &former, "settings").await;
    ensure!(left().await?.is_some(), "nobody may delete it");
    narrow_account(&agent, &former, &["*"]).await?;
    wait_until("the former release to go", PATIENCE, async || {
        match left().await.map_err(|e| e.to_string())? {
            Some(_) => Err(agent.agent_log_tail(5)),
            None => Ok(()),
        }
    })
    .await?;
    let ready = agent.wait_ready("narrow").await?;
    ensure!(ready["status"]["release"] == release, "{ready}");
    Ok(())
}

#[tokio::test]
async fn downstream_resources_get_a_namespace_labelled_as_helm_labels_it() -> Result<()> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let target = format!("{}-app", agent.id);
    let source = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "1" },
        "metadata": { "name": "shared", "namespace": agent.deployment_namespace()? },
    });
    apply(&agent.upstream, source).await?;
    let file = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\n";
    let bundle = BundleDeployment::content("copies", vec![("cm.yaml".to_owned(), file.into())])
        .release("copies", &target)
        .option(
            "downstreamResources",
            json!([{ "kind": "ConfigMap", "name": "shared" }]),
        )
        .spec("downstreamResourcesGeneration", json!(1));
    agent.apply(&bundle).await?;
    agent.wait_ready("copies").await?;
    let copy = agent.object("v1", "ConfigMap", &target, "shared").await?;
    let copy = copy.context("the copy is there")?;
    assert_eq!(copy.data["data"], json!({ "a": "1" }));
    // What names no field manager is known by the User-Agent.
    let managers = copy.metadata.managed_fields.unwrap_or_default();
    let managers: Vec<_> = managers.into_iter().filter_map(|m| m.manager).collect();
    assert_eq!(managers, ["fleetagent"]);
    let namespace = agent.object("v1", "Namespace", "", &target).await?;
    let labels = namespace.and_then(|namespace| namespace.metadata.labels);
    assert_eq!(labels.unwrap_or_default().get("name"), Some(&target));
    Ok(())
}

#[tokio::test]
async fn a_missing_account_is_reported_in_the_go_agents_words() -> Result<()> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    agent
        .apply(&settings(&format!("{}-app", agent.id), "one"))
        .await?;
    let message = agent
        .wait_deploy_error("narrow", |message| !message.is_empty())
        .await?;
    let namespace = &agent.system_namespace;
    assert_eq!(
        message,
        format!(
            "looking up service account {namespace}/narrow: ServiceAccount \"narrow\" not found"
        )
    );
    Ok(())
}

/// A deleted account takes no rights away, and gives none: with those that its name has left what is deployed is looked at, and nothing is written.
#[tokio::test]
async fn drift_under_a_deleted_account_is_reported_and_not_corrected() -> Result<()> {
    let agent = in_haste().await?;
    let target = target(&agent);
    narrow_account(&agent, &target, &["*"]).await?;
    let bundle = |value| settings(&target, value).correct_drift();
    agent.apply(&bundle("one")).await?;
    agent.wait_ready("narrow").await?;
    let accounts = agent.objects("v1", "ServiceAccount", &agent.system_namespace);
    accounts.delete("narrow", &DeleteParams::default()).await?;
    // That it is there is remembered for two seconds.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let maps = agent.objects("v1", "ConfigMap", &target);
    let edit = async |value: &str| -> Result<()> {
        let change = Patch::Merge(json!({ "data": { "value": value } }));
        let parameters = PatchParams::default();
        maps.patch("settings", &parameters, &change).await?;
        Ok(())
    };
    edit("edited").await?;
    let words = format!(
        "looking up service account {}/narrow: ServiceAccount \"narrow\" not found",
        agent.system_namespace
    );
    let says = |bundle: &Value, kind: &str, status: &str, message: &str| {
        condition(bundle, kind).is_some_and(|one| {
            one["status"] == status && one["message"].as_str().unwrap_or_default() == message
        })
    };
    let is_told = |bundle: &Value| {
        bundle["status"]["modifiedStatus"].is_array()
            && says(bundle, "Monitored", "False", &words)
            && says(bundle, "Deployed", "True", "")
    };
    agent
        .wait_for("narrow", "to be modified without an account", is_told)
        .await?;
    // Another version cannot be deployed, and the one that is needs no account.
    let there_and_back = async || {
        agent.apply(&bundle("two")).await?;
        let told = agent.wait_deploy_error("narrow", |message| !message.is_empty());
        let told = told.await?;
        ensure!(told == words, "{told}");
        agent.apply(&bundle("one")).await?;
        agent
            .wait_for("narrow", "to be as deployed", |bundle| is_told(bundle))
            .await
    };
    there_and_back().await?;
    let map = agent.object("v1", "ConfigMap", &target, "settings").await?;
    let map = map.context("the ConfigMap")?;
    ensure!(map.data["data"]["value"] == "edited", "{map:?}");
    // Nor is anything shown that it may not read.
    revoke(&agent, &target).await?;
    edit("one").await?;
    there_and_back().await?;
    narrow_account(&agent, &target, &["*"]).await?;
    // Its rights may be back before it is, which is enough to find the objects ready.
    let is_monitored = |bundle: &Value| says(bundle, "Monitored", "True", "");
    agent
        .wait_for("narrow", "to be monitored with its account", is_monitored)
        .await?;
    let ready = agent.wait_ready("narrow").await?;
    let release = json!(format!("{target}/narrow:1"));
    ensure!(ready["status"]["release"] == release, "{ready}");
    Ok(())
}
