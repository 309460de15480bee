//! Whose rights a bundle needs, and whose name is on what is written for it.

use anyhow::{Context, Result};
use serde_json::json;
use testbed::bed::Bed;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::TestAgent;

/// An account of the system namespace that may write ConfigMaps and records in `target`, no more.
async fn narrow_account(agent: &TestAgent<'_>, target: &str) -> Result<()> {
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
                { "apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "update", "delete"] },
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
    narrow_account(&agent, &target).await?;
    for (revision, value) in [(1, "one"), (2, "two")] {
        agent.apply(&settings(&target, value)).await?;
        let ready = agent.wait_ready("narrow").await?;
        let release = format!("{target}/narrow:{revision}");
        assert_eq!(ready["status"]["release"], json!(release));
    }
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
