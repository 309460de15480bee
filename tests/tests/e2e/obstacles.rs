//! What stands in the way of a bundle's coming or going: a namespace that it brings itself, finalizers that nobody removes, rights
//! that were taken away, a conversion that nobody serves, a thousand objects.

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use testbed::bed::unique;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

use crate::scene::{
    app, deletions, deploy, gone, present, target, wait_event, widgets, with_own_bundle,
};

async fn hurried() -> Result<TestAgent<'static>> {
    let agent = with_own_bundle().await?;
    Ok(agent)
}

/// A bundle of these manifests in the apps' namespace.
fn manifests(agent: &TestAgent<'_>, name: &str, text: &str) -> BundleDeployment {
    BundleDeployment::content(name, vec![("all.yaml".to_owned(), text.into())])
        .release(name, &target(agent))
}

fn map(name: &str, rest: &str) -> String {
    format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n{rest}")
}

/// With Fleet a bundle often brings the namespace it goes to. It comes, stays when the bundle stops bringing it, and goes with a bundle
/// that still does.
#[tokio::test]
async fn a_bundle_may_contain_its_namespace() -> Result<()> {
    let agent = hurried().await?;
    let namespace =
        |name: &str| format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n");
    let is_there = async |name: &str| -> Result<bool> {
        let found = agent.object("v1", "Namespace", "", name).await?;
        Ok(found.is_some_and(|found| found.metadata.deletion_timestamp.is_none()))
    };
    let bundle = |name: &str, has_namespace: bool| {
        let own = format!("{}-{name}", agent.id);
        let text = map(name, "")
            + if has_namespace {
                namespace(&own)
            } else {
                String::new()
            }
            .as_str();
        manifests(&agent, name, &text).option("defaultNamespace", json!(own))
    };
    for name in ["brings", "stops"] {
        agent.apply(&bundle(name, true)).await?;
        agent.wait_ready(name).await?;
    }
    agent.apply(&bundle("stops", false)).await?;
    agent.wait_ready("stops").await?;
    ensure!(is_there(&format!("{}-stops", agent.id)).await?);
    agent.delete("brings").await?;
    wait_until("the namespace to go", PATIENCE, async || {
        match is_there(&format!("{}-brings", agent.id)).await {
            Ok(false) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(30))?;
    // And comes back, as soon as its predecessor is gone.
    agent.apply(&bundle("brings", true)).await?;
    agent.wait_ready("brings").await.map(drop)
}

/// An object that is held by a finalizer when its bundle goes: the release is gone all the same, and the same bundle waits for the
/// object's end when it comes back.
#[tokio::test]
async fn a_removal_waits_for_a_finalizer() -> Result<()> {
    let agent = hurried().await?;
    let bundle = manifests(&agent, "held", &map("held", "data: {key: a}\n"));
    agent.apply(&bundle).await?;
    agent.wait_ready("held").await?;
    let maps = agent.objects("v1", "ConfigMap", &target(&agent));
    let finalizers = async |all: &[&str]| {
        let patch = json!({ "metadata": { "finalizers": all } });
        maps.patch("held", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map(drop)
    };
    finalizers(&["example.com/hold"]).await?;
    let uid = maps.get("held").await?.metadata.uid;
    agent.delete("held").await?;
    wait_event(&agent, "Removed", "held").await?;
    wait_until("the records to go", PATIENCE, async || {
        let secrets = agent.objects("v1", "Secret", &target(&agent));
        let records = secrets
            .list(&ListParams::default().labels("owner=helm,name=held"))
            .await;
        match records.map_err(|e| e.to_string())?.items.len() {
            0 => Ok(()),
            left => Err(format!("{left} left")),
        }
    })
    .await?;
    agent.apply(&bundle).await?;
    agent
        .wait_deploy_error("held", |message| message.contains("is being deleted"))
        .await?;
    // Nobody else waits with it.
    deploy(&agent, "other", 2).await?;
    finalizers(&[]).await?;
    agent.wait_ready("held").await?;
    ensure!(maps.get("held").await?.metadata.uid != uid);
    Ok(())
}

/// An account's rights are taken away, then its bundle goes: nothing can be removed, which is reported, and nothing is forgotten, so that
/// all of it goes once the rights are back. One that is only in the way of a deploy leaves what was deployed.
#[tokio::test]
async fn a_removal_waits_for_rights_that_were_taken_away() -> Result<()> {
    let mut agent = hurried().await?;
    let rbac = "rbac.authorization.k8s.io";
    let system = agent.system_namespace.clone();
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": target(&agent) } });
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "tenant", "namespace": system },
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
        "metadata": { "name": "tenant", "namespace": target(&agent) },
        "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "tenant", "namespace": system }],
    });
    for object in [&namespace, &account, &binding] {
        apply(&agent.downstream, object.clone()).await?;
    }
    let bundle = |key: &str| {
        manifests(
            &agent,
            "rights",
            &map("rights", &format!("data: {{key: {key}}}\n")),
        )
        .option("serviceAccount", json!("tenant"))
    };
    let (first, second) = (bundle("a"), bundle("b"));
    agent.apply(&first).await?;
    agent.wait_ready("rights").await?;
    let bindings = agent.objects(&format!("{rbac}/v1"), "RoleBinding", &target(&agent));
    bindings.delete("tenant", &DeleteParams::default()).await?;
    agent.apply(&second).await?;
    agent
        .wait_deploy_error("rights", |message| message.contains("forbidden"))
        .await?;
    agent.delete("rights").await?;
    wait_event(&agent, "RemovalFailed", "rights").await?;
    // A restart in between forgets nothing either.
    agent.process()?.restart()?;
    deploy(&agent, "other", 1).await?;
    let names = ["rights".to_owned()];
    ensure!(present(&agent, &names).await? == names);
    let deleted = deletions(&agent)?;
    let done: Vec<_> = deleted.iter().filter(|one| one.code < 400).collect();
    ensure!(done.is_empty(), "{done:#?}");
    apply(&agent.downstream, binding).await?;
    gone(&agent, &names, PATIENCE).await
}

/// A definition whose conversion nobody serves: every object of the kind is unreadable in the version that the chart writes. It is reported,
/// nobody else is held up, nothing is deleted, and it heals.
#[tokio::test]
async fn a_missing_conversion_webhook_is_reported_and_recovered_from() -> Result<()> {
    let agent = hurried().await?;
    let group = format!("{}.example.com", unique("conversion"));
    let definition = |conversion: serde_json::Value| {
        let mut definition = widgets(&group);
        let mut version = definition["spec"]["versions"][0].clone();
        version["name"] = json!("v1beta1");
        version["storage"] = json!(false);
        definition["spec"]["versions"] = json!([definition["spec"]["versions"][0], version]);
        definition["spec"]["conversion"] = conversion;
        definition
    };
    apply(&agent.downstream, definition(json!({ "strategy": "None" }))).await?;
    let bundle = |value: &str| {
        let text = format!(
            "{}---\napiVersion: {group}/v1beta1\nkind: Widget\nmetadata: {{name: w}}\nspec: {{a: {value}}}\n",
            map("beside", "")
        );
        manifests(&agent, "widgets", &text).correct_drift()
    };
    agent.apply(&bundle("one")).await?;
    agent.wait_ready("widgets").await?;
    let stored = agent.objects(&format!("{group}/v1"), "Widget", &target(&agent));
    let uid = stored.get("w").await?.metadata.uid;
    let broken = json!({
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": { "url": "https://127.0.0.1:1/" },
        },
    });
    apply(&agent.downstream, definition(broken)).await?;
    agent.apply(&bundle("two")).await?;
    agent
        .wait_deploy_error("widgets", |message| message.contains("conversion webhook"))
        .await?;
    deploy(&agent, "other", 2).await?;
    apply(
        &agent.downstream,
        definition(json!({ "strategy": "None", "webhook": null })),
    )
    .await?;
    agent.wait_ready("widgets").await?;
    let widget = stored.get("w").await?;
    ensure!(widget.metadata.uid == uid && widget.data["spec"]["a"] == "two");
    let deleted = deletions(&agent)?;
    ensure!(
        deleted.iter().all(|one| one.resource == "secrets"),
        "{deleted:#?}"
    );
    Ok(())
}

/// A version drops a definition with an object that asks to be kept, or the bundle goes, when the webhook that converts the object is gone: deleting the
/// definition would take it along. As it is stored it can be read all the same, unless that version is not served: then it is reported, nothing
/// goes, and once it can be read it stays, and its definition.
#[tokio::test]
async fn a_definition_whose_objects_nobody_can_read_is_not_deleted() -> Result<()> {
    let agent = hurried().await?;
    for (is_removal, is_served) in [(false, true), (true, true), (false, false), (true, false)] {
        let name = unique("unread");
        let group = format!("{name}.example.com");
        let mut crd = widgets(&group);
        let stored_version = &mut crd["spec"]["versions"][0];
        stored_version["served"] = json!(is_served);
        let mut version = stored_version.clone();
        version["name"] = json!("v1beta1");
        version["storage"] = json!(false);
        version["served"] = json!(true);
        crd["spec"]["versions"] = json!([crd["spec"]["versions"][0], version]);
        let beside = map(&format!("{name}-beside"), "");
        let widget = |name: &str| {
            format!("---\napiVersion: {group}/v1beta1\nkind: Widget\nmetadata: {{name: {name}}}\n")
        };
        let (kept, gone) = (widget("kept"), widget("gone"));
        let whole = format!("{beside}---\n{crd}\n{kept}{gone}");
        agent.apply(&manifests(&agent, &name, &whole)).await?;
        agent.wait_ready(&name).await?;
        let all = agent.objects(&format!("{group}/v1beta1"), "Widget", &target(&agent));
        let keep = json!({ "metadata": { "annotations": { "helm.sh/resource-policy": "keep" } } });
        let patch = Patch::Merge(&keep);
        all.patch("kept", &PatchParams::default(), &patch).await?;
        let uid = all.get("kept").await?.metadata.uid;
        let definitions = agent.objects("apiextensions.k8s.io/v1", "CustomResourceDefinition", "");
        let crd_name = format!("widgets.{group}");
        let convert = async |conversion: serde_json::Value| {
            let patch = json!({ "spec": { "conversion": conversion } });
            let (options, patch) = (PatchParams::default(), Patch::Merge(&patch));
            let done = definitions.patch(&crd_name, &options, &patch).await;
            done.map(drop)
        };
        convert(json!({
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": { "url": "https://127.0.0.1:1/" },
            },
        }))
        .await?;
        match is_removal {
            true => agent.delete(&name).await?,
            false => agent.apply(&manifests(&agent, &name, &beside)).await?,
        }
        let heal = convert(json!({ "strategy": "None", "webhook": null }));
        let ended = async || match is_removal {
            true => wait_event(&agent, "Removed", &name).await.map(drop),
            false => agent.wait_ready(&name).await.map(drop),
        };
        if is_served {
            ended().await?;
            heal.await?;
        } else {
            if is_removal {
                wait_event(&agent, "RemovalFailed", &name).await?;
            } else {
                agent
                    .wait_deploy_error(&name, |message| message.contains("conversion webhook"))
                    .await?;
            }
            let definition = definitions.get(&crd_name).await?;
            ensure!(definition.metadata.deletion_timestamp.is_none());
            heal.await?;
            ended().await?;
        }
        // The API server takes a moment to notice that they need no webhook.
        let kept = wait_until("objects to be read", PATIENCE, async || {
            all.get("kept").await.map_err(|e| e.to_string())
        });
        ensure!(kept.await?.metadata.uid == uid);
        ensure!(all.get_opt("gone").await?.is_none());
        let definition = definitions.get(&crd_name).await?;
        ensure!(definition.metadata.deletion_timestamp.is_none());
    }
    Ok(())
}

/// A hook's Secret that asks to be kept lies in a namespace of the chart, which a version drops, or which would go with the bundle.
#[tokio::test]
async fn what_a_hook_has_made_to_be_kept_outlives_its_namespace() -> Result<()> {
    let agent = hurried().await?;
    for is_removal in [false, true] {
        let (name, data) = (unique("hooked"), unique("data"));
        let beside = map(&format!("{name}-beside"), "");
        let whole = format!(
            "{beside}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {data}}}\n---\n\
             apiVersion: v1\nkind: Secret\nmetadata:\n  name: root\n  namespace: {data}\n  annotations:\n    \
             helm.sh/hook: post-install\n    helm.sh/resource-policy: keep\n"
        );
        agent.apply(&manifests(&agent, &name, &whole)).await?;
        agent.wait_ready(&name).await?;
        let secrets = agent.objects("v1", "Secret", &data);
        let uid = secrets.get("root").await?.metadata.uid;
        if is_removal {
            agent.delete(&name).await?;
            wait_event(&agent, "Removed", &name).await?;
        } else {
            agent.apply(&manifests(&agent, &name, &beside)).await?;
            agent.wait_ready(&name).await?;
        }
        ensure!(secrets.get("root").await?.metadata.uid == uid);
        let namespaces = agent.objects("v1", "Namespace", "");
        let namespace = namespaces.get(&data).await?;
        ensure!(namespace.metadata.deletion_timestamp.is_none());
    }
    Ok(())
}

/// A chart of a thousand objects comes, loses half of them and goes, beside others.
#[tokio::test]
async fn a_bundle_of_a_thousand_objects_is_deployed_shrunk_and_removed() -> Result<()> {
    const MANY: usize = 1_000;
    let agent = hurried().await?;
    let bundle = |count: usize| {
        let text: String = (0..count).map(|n| map(&format!("many-{n}"), "")).collect();
        manifests(&agent, "many", &text)
    };
    let names: Vec<_> = (0..MANY).map(|n| format!("many-{n}")).collect();
    let count = async || -> Result<usize> {
        let maps = agent.objects("v1", "ConfigMap", &target(&agent));
        let all = maps.list_metadata(&ListParams::default()).await?.items;
        let is_one = |name: &Option<String>| name.as_ref().is_some_and(|name| names.contains(name));
        Ok(all.iter().filter(|one| is_one(&one.metadata.name)).count())
    };
    for wanted in [MANY, MANY / 2] {
        agent.apply(&bundle(wanted)).await?;
        let ready = agent.wait_ready("many").await?;
        let reported = ready["status"]["resources"].as_array().map_or(0, Vec::len);
        ensure!(reported == wanted, "{reported} of {wanted} told");
        ensure!(count().await? == wanted);
    }
    agent.apply(&app(&agent, "beside")).await?;
    agent.wait_ready("beside").await?;
    agent.delete("many").await?;
    wait_until("all of them to go", PATIENCE, async || {
        match count().await.map_err(|e| e.to_string())? {
            0 => Ok(()),
            left => Err(format!("{left} left")),
        }
    })
    .await?;
    ensure!(present(&agent, &["beside".to_owned()]).await?.len() == 1);
    Ok(())
}
