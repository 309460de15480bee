//! Whose rights a bundle needs, and whose name is on what is written for it.

use anyhow::{Context, Result};
use serde_json::json;
use testbed::bed::Bed;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::site::Site;

/// An account of the system namespace that may write ConfigMaps and records in `target`, no more.
async fn narrow_account(site: &Site<'_>, target: &str) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io";
    for object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": target } }),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "narrow", "namespace": site.system_namespace },
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
            "subjects": [{ "kind": "ServiceAccount", "name": "narrow", "namespace": site.system_namespace }],
        }),
    ] {
        apply(&site.downstream, object).await?;
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
async fn an_account_need_not_read_secrets() -> Result<()> {
    let site = Site::registered(Bed::shared().await?).await?;
    let target = format!("{}-app", site.id);
    narrow_account(&site, &target).await?;
    for (revision, value) in [(1, "one"), (2, "two")] {
        site.apply(&settings(&target, value)).await?;
        let ready = site.wait_ready("narrow").await?;
        let release = format!("{target}/narrow:{revision}");
        assert_eq!(ready["status"]["release"], json!(release));
    }
    Ok(())
}

#[tokio::test]
async fn copies_come_into_a_namespace_labelled_as_helm_labels_it() -> Result<()> {
    let site = Site::registered(Bed::shared().await?).await?;
    let target = format!("{}-app", site.id);
    let source = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "1" },
        "metadata": { "name": "shared", "namespace": site.deployment_namespace()? },
    });
    apply(&site.upstream, source).await?;
    let file = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\n";
    let bundle = BundleDeployment::content("copies", vec![("cm.yaml".to_owned(), file.into())])
        .release("copies", &target)
        .option(
            "downstreamResources",
            json!([{ "kind": "ConfigMap", "name": "shared" }]),
        )
        .spec("downstreamResourcesGeneration", json!(1));
    site.apply(&bundle).await?;
    site.wait_ready("copies").await?;
    let copy = site.object("v1", "ConfigMap", &target, "shared").await?;
    let copy = copy.context("the copy is there")?;
    assert_eq!(copy.data["data"], json!({ "a": "1" }));
    // What names no field manager is known by the User-Agent.
    let managers = copy.metadata.managed_fields.unwrap_or_default();
    let managers: Vec<_> = managers.into_iter().filter_map(|m| m.manager).collect();
    assert_eq!(managers, ["fleetagent"]);
    let namespace = site.object("v1", "Namespace", "", &target).await?;
    let labels = namespace.and_then(|namespace| namespace.metadata.labels);
    assert_eq!(labels.unwrap_or_default().get("name"), Some(&target));
    Ok(())
}

#[tokio::test]
async fn a_missing_account_is_told_in_the_go_agents_words() -> Result<()> {
    let site = Site::registered(Bed::shared().await?).await?;
    site.apply(&settings(&format!("{}-app", site.id), "one"))
        .await?;
    let message = site
        .wait_deploy_error("narrow", |message| !message.is_empty())
        .await?;
    let namespace = &site.system_namespace;
    assert_eq!(
        message,
        format!(
            "looking up service account {namespace}/narrow: ServiceAccount \"narrow\" not found"
        )
    );
    Ok(())
}
