//! Namespaces that several bundles are in, or that one has in its chart and another is in; and definitions of whose kinds another one has objects.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::bed::unique;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

use crate::release_scene::{gone_entry, let_removals_pass, map, uid};
use crate::scene::{gone, target, wait_event, widgets, with_own_bundle};

/// A chart of nothing but a namespace, and what another bundle has in it: it goes with the last of both, in whatever order they are deleted.
#[tokio::test]
async fn a_namespace_goes_with_no_bundle_while_another_one_is_in_it() -> Result<()> {
    let agent = with_own_bundle().await?;
    let team = format!("{}-team", agent.id);
    let text = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {team}}}\n");
    let of = |name: &str, text: &str| {
        BundleDeployment::content(name, vec![("all.yaml".to_owned(), text.into())])
    };
    let namespaces = of("namespaces", &text).option("defaultNamespace", json!(target(&agent)));
    let inside = of("inside", &map("inside")).option("defaultNamespace", json!(team));
    agent.apply(&namespaces).await?;
    agent.wait_ready("namespaces").await?;
    agent.apply(&inside).await?;
    agent.wait_ready("inside").await?;
    let found = async |kind: &str, namespace: &str, name: &str| {
        let object = agent.object("v1", kind, namespace, name).await?;
        Ok::<_, anyhow::Error>(
            object.map(|object| (object.uid(), object.metadata.deletion_timestamp)),
        )
    };
    let before = found("ConfigMap", &team, "inside").await?;
    // A version without it, and one with it.
    agent
        .apply(&of("namespaces", &map("other")).option("defaultNamespace", json!(target(&agent))))
        .await?;
    let is_gone = || gone_entry(&agent, "namespaces");
    agent.wait_ready("namespaces").await?;
    agent.apply(&namespaces).await?;
    agent.wait_ready("namespaces").await?;
    agent.delete("namespaces").await?;
    is_gone().await?;
    let after = found("ConfigMap", &team, "inside").await?;
    ensure!(before.is_some() && before == after, "{before:?} {after:?}");
    let namespace = found("Namespace", "", &team)
        .await?
        .context("the namespace")?;
    ensure!(namespace.1.is_none(), "it is going");
    // It has no marks any more. Both at once.
    agent.apply(&namespaces).await?;
    agent.wait_ready("namespaces").await?;
    agent.delete("namespaces").await?;
    agent.delete("inside").await?;
    is_gone().await?;
    wait_until("the namespace to go", PATIENCE, async || {
        match found("Namespace", "", &team)
            .await
            .map_err(|e| e.to_string())?
        {
            Some((_, None)) => Err("it stays".to_owned()),
            _ => Ok(()),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(40))
}

/// The same where the other bundle has its objects there and its release elsewhere: only these objects say that the namespace is in use.
#[tokio::test]
async fn a_namespace_goes_with_no_bundle_while_objects_of_another_one_are_in_it() -> Result<()> {
    let agent = with_own_bundle().await?;
    let team = format!("{}-team", agent.id);
    let text = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {team}}}\n");
    let of = |name: &str, text: &str| {
        BundleDeployment::content(name, vec![("all.yaml".to_owned(), text.into())])
            .option("defaultNamespace", json!(target(&agent)))
    };
    let there = format!("  name: inside\n  namespace: {team}\n");
    let inside = of("inside", &map("inside").replace("  name: inside\n", &there));
    let namespaces = of("namespaces", &text);
    let found = async || -> Result<_> {
        let object = agent.object("v1", "ConfigMap", &team, "inside").await?;
        Ok(object.map(|object| (object.uid(), object.metadata.deletion_timestamp)))
    };
    agent.apply(&namespaces).await?;
    agent.wait_ready("namespaces").await?;
    agent.apply(&inside).await?;
    agent.wait_ready("inside").await?;
    let before = found().await?;
    agent.apply(&of("namespaces", &map("other"))).await?;
    agent.wait_ready("namespaces").await?;
    ensure!(is_whole(&agent, &team).await?, "a version took it along");
    wait_event(&agent, "LeftToOthers", "namespaces").await?;
    agent.apply(&namespaces).await?;
    agent.wait_ready("namespaces").await?;
    agent.delete("namespaces").await?;
    gone_entry(&agent, "namespaces").await?;
    let after = found().await?;
    ensure!(before.is_some() && before == after, "{before:?} {after:?}");
    ensure!(is_whole(&agent, &team).await?, "it is going");
    // It goes after the last one that has something in it, where both are deleted at once.
    agent.apply(&namespaces).await?;
    agent.wait_ready("namespaces").await?;
    agent.delete("namespaces").await?;
    agent.delete("inside").await?;
    gone_entry(&agent, "namespaces").await?;
    gone_entry(&agent, "inside").await?;
    ensure!(!is_whole(&agent, &team).await?, "it stays");
    Ok(())
}

/// A definition goes with all objects of its kind, whosever they are.
#[tokio::test]
async fn a_definition_goes_with_no_bundle_while_another_one_has_objects_of_its_kind() -> Result<()>
{
    let agent = with_own_bundle().await?;
    let group = format!("{}.example.com", unique("shared"));
    let of = |name: &str, text: &str| {
        BundleDeployment::content(name, vec![("all.yaml".to_owned(), text.into())])
            .option("defaultNamespace", json!(target(&agent)))
    };
    // As Fleet has it, definitions stay in any case unless a bundle says otherwise.
    let goes = |bundle: BundleDeployment| bundle.option("deleteCRDResources", json!(true));
    let crds = format!("{}\n{}", widgets(&group), map("beside"));
    let crds = goes(of("crds", &crds));
    let widget = format!("apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: first}}\n");
    let (api_version, name) = (format!("{group}/v1"), format!("widgets.{group}"));
    let app = of("app", &widget);
    let found = async || -> Result<_> {
        let object = agent
            .object(&api_version, "Widget", &target(&agent), "first")
            .await?;
        Ok(object.map(|object| (object.uid(), object.metadata.deletion_timestamp)))
    };
    let definitions = agent.objects("apiextensions.k8s.io/v1", "CustomResourceDefinition", "");
    let is_defined = async || -> Result<bool> {
        let found = definitions.get_opt(&name).await?;
        Ok(found.is_some_and(|found| found.metadata.deletion_timestamp.is_none()))
    };
    agent.apply(&crds).await?;
    agent.wait_ready("crds").await?;
    agent.apply(&app).await?;
    agent.wait_ready("app").await?;
    let before = found().await?;
    // A version without it, and one with it, which has it without `takeOwnership`.
    agent.apply(&goes(of("crds", &map("beside")))).await?;
    agent.wait_ready("crds").await?;
    ensure!(is_defined().await?, "a version took it along");
    wait_event(&agent, "LeftToOthers", "crds").await?;
    agent.apply(&crds).await?;
    agent.wait_ready("crds").await?;
    agent.delete("crds").await?;
    gone_entry(&agent, "crds").await?;
    ensure!(is_defined().await?, "it is going");
    let after = found().await?;
    ensure!(before.is_some() && before == after, "{before:?} {after:?}");
    // Both at once: it is not deleted before the other one's objects are.
    agent.apply(&crds).await?;
    agent.wait_ready("crds").await?;
    agent.delete("crds").await?;
    agent.delete("app").await?;
    gone_entry(&agent, "crds").await?;
    gone_entry(&agent, "app").await?;
    ensure!(!is_defined().await?, "it stays");
    Ok(())
}

/// A Pod that no scheduler takes, as a hook: its release is under way until somebody says that it is done. On a node that is not there it would be
/// deleted after a minute, as an orphan.
fn unending(event: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: waits\n  annotations: {{helm.sh/hook: {event}}}\nspec:\n  \
         containers: [{{name: c, image: none}}]\n  schedulerName: nobody\n  restartPolicy: Never\n"
    )
}

/// Waits for the hook of [`unending`].
async fn wait_hook(agent: &TestAgent<'_>, namespace: &str) -> Result<()> {
    let pods = agent.objects("v1", "Pod", namespace);
    wait_until("the hook to be waited for", PATIENCE, async || {
        let found = pods.get_opt("waits").await.map_err(|e| e.to_string())?;
        found.map(drop).ok_or_else(|| "no hook".to_owned())
    })
    .await
    .with_context(|| agent.agent_log_tail(40))
}

async fn end_hook(agent: &TestAgent<'_>, namespace: &str) -> Result<()> {
    let done = json!({ "status": { "phase": "Succeeded" } });
    let pods = agent.objects("v1", "Pod", namespace);
    pods.patch_status("waits", &PatchParams::default(), &Patch::Merge(&done))
        .await?;
    Ok(())
}

/// Whether a namespace is there and not being deleted.
async fn is_whole(agent: &TestAgent<'_>, namespace: &str) -> Result<bool> {
    let found = agent.object("v1", "Namespace", "", namespace).await?;
    Ok(found.is_some_and(|found| found.metadata.deletion_timestamp.is_none()))
}

/// Two bundles are deleted, of which one has the namespace of the other and would be done first: what the other one has elsewhere is in its
/// records there, so that it waits with all that it has.
#[tokio::test]
async fn a_namespace_goes_after_what_is_removed_from_it() -> Result<()> {
    let mut agent = with_own_bundle().await?;
    let team = format!("{}-team", agent.id);
    let namespace = format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {team}}}\n");
    let of = |name: &str, text: &str| {
        BundleDeployment::content(name, vec![("all.yaml".to_owned(), text.into())])
            .helm("timeoutSeconds", json!(600))
    };
    let namespaces = of("namespaces", &(map("beside") + &namespace))
        .option("defaultNamespace", json!(target(&agent)));
    let elsewhere = map("elsewhere").replace(
        "  name: elsewhere\n",
        &format!("  name: elsewhere\n  namespace: {}\n", target(&agent)),
    );
    let inside = of(
        "inside",
        &(map("inside") + &elsewhere + &unending("pre-delete")),
    )
    .option("defaultNamespace", json!(team));
    agent.apply(&namespaces).await?;
    agent.wait_ready("namespaces").await?;
    agent.apply(&inside).await?;
    agent.wait_ready("inside").await?;
    agent.delete("inside").await?;
    wait_hook(&agent, &team).await?;
    agent.delete("namespaces").await?;
    let_removals_pass(&agent, "next").await?;
    ensure!(uid(&agent, "beside").await?.is_some());
    ensure!(
        is_whole(&agent, &team).await?,
        "{}",
        agent.agent_log_tail(40)
    );
    ensure!(uid(&agent, "elsewhere").await?.is_some());
    // Nor does the next process forget it.
    agent.process()?.restart()?;
    let_removals_pass(&agent, "last").await?;
    ensure!(
        is_whole(&agent, &team).await?,
        "{}",
        agent.agent_log_tail(40)
    );
    end_hook(&agent, &team).await?;
    gone(
        &agent,
        &["elsewhere".to_owned(), "beside".to_owned()],
        PATIENCE,
    )
    .await?;
    gone_entry(&agent, "inside").await?;
    gone_entry(&agent, "namespaces").await?;
    ensure!(!is_whole(&agent, &team).await?, "it stays");
    Ok(())
}

/// A bundle comes to a namespace while the one that has it runs a hook of the version that leaves it out: it stays for that, and a third one
/// that has it in its chart gets it.
#[tokio::test]
async fn a_namespace_stays_for_a_bundle_that_comes_at_the_last_moment() -> Result<()> {
    let agent = with_own_bundle().await?;
    let team = format!("{}-team", agent.id);
    let namespace = format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {team}}}\n");
    let of = |name: &str, text: &str| {
        BundleDeployment::content(name, vec![("all.yaml".to_owned(), text.into())])
            .helm("timeoutSeconds", json!(600))
            .option("defaultNamespace", json!(target(&agent)))
    };
    agent
        .apply(&of("namespaces", &(map("beside") + &namespace)))
        .await?;
    agent.wait_ready("namespaces").await?;
    agent
        .apply(&of(
            "namespaces",
            &(map("beside") + &unending("post-upgrade")),
        ))
        .await?;
    wait_hook(&agent, &target(&agent)).await?;
    let inside = of("inside", &map("inside")).option("defaultNamespace", json!(team));
    agent.apply(&inside).await?;
    agent.wait_ready("inside").await?;
    let found = async || -> Result<_> {
        let object = agent.object("v1", "ConfigMap", &team, "inside").await?;
        Ok(object.map(|object| (object.uid(), object.metadata.deletion_timestamp)))
    };
    let before = found().await?;
    end_hook(&agent, &target(&agent)).await?;
    agent.wait_ready("namespaces").await?;
    ensure!(
        is_whole(&agent, &team).await?,
        "{}",
        agent.agent_log_tail(40)
    );
    agent.apply(&of("third", &namespace)).await?;
    agent.wait_ready("third").await?;
    ensure!(before.is_some() && found().await? == before);
    Ok(())
}
