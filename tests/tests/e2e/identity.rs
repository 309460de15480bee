//! A tenant's bundle does what the tenant's account may do, on every path that leads to the cluster.

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

use crate::scene::{target, with_own_bundle};

const TENANT: &str = "tenant";

/// A site with an account that may do everything in its own namespace and nothing elsewhere, and a namespace of somebody else
/// with a Secret and a ConfigMap in it.
async fn tenancy() -> Result<(TestAgent<'static>, String, String)> {
    let agent = with_own_bundle().await?;
    let (own, foreign) = (target(&agent), format!("{}-foreign", agent.id));
    for name in [&own, &foreign] {
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        apply(&agent.downstream, namespace).await?;
    }
    account(&agent, TENANT, &own).await?;
    for kind in ["Secret", "ConfigMap"] {
        let content = if kind == "Secret" {
            "stringData"
        } else {
            "data"
        };
        apply(
            &agent.downstream,
            json!({
                "apiVersion": "v1", "kind": kind,
                "metadata": { "name": "theirs", "namespace": foreign },
                content: { "values.yaml": "stolen: yes-it-was\n" },
            }),
        )
        .await?;
    }
    Ok((agent, own, foreign))
}

async fn account(agent: &TestAgent<'_>, name: &str, namespace: &str) -> Result<()> {
    let system = &agent.system_namespace;
    for object in [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": system } }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": format!("{system}-{name}"), "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": system }],
        }),
    ] {
        apply(&agent.downstream, object).await?;
    }
    Ok(())
}

/// A chart with one template, deployed with the tenant's account into its namespace.
fn chart(agent: &TestAgent<'_>, name: &str, template: &str) -> BundleDeployment {
    BundleDeployment::chart(name, &[("templates/t.yaml", template)])
        .option("serviceAccount", json!(TENANT))
        .option("defaultNamespace", json!(target(agent)))
}

fn config_map(namespace: &str, name: &str, extra: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {namespace}\n{extra}"
    )
}

#[tokio::test]
async fn a_tenant_reaches_no_foreign_namespace() -> Result<()> {
    let (agent, own, foreign) = tenancy().await?;
    let hook = |policy: &str| {
        config_map(
            &foreign,
            "planted",
            &format!(
                "  annotations:\n    \"helm.sh/hook\": pre-install\n    \"helm.sh/hook-delete-policy\": {policy}\n"
            ),
        )
    };
    let lookup = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: found\ndata:\n  found: {{{{ (lookup \"v1\" \"Secret\" \"{foreign}\" \"theirs\").data | toJson | quote }}}}\n"
    );
    let bundles = [
        chart(&agent, "apply", &config_map(&foreign, "planted", "")),
        chart(&agent, "hook", &hook("hook-succeeded")),
        chart(
            &agent,
            "delete-by-hook",
            &hook("before-hook-creation").replace("name: planted", "name: theirs"),
        ),
        chart(&agent, "lookup", &lookup),
        chart(&agent, "values", &config_map(&own, "values", "")).helm(
            "valuesFrom",
            json!([{ "secretKeyRef": { "name": "theirs", "namespace": foreign } }]),
        ),
        chart(&agent, "copy", &config_map(&own, "copy", ""))
            .option("defaultNamespace", json!(foreign))
            .option(
                "downstreamResources",
                json!([{ "kind": "Secret", "name": "source" }]),
            ),
        chart(&agent, "labels", &config_map(&own, "labels", ""))
            .option("defaultNamespace", json!(foreign))
            .option("namespaceLabels", json!({ "taken": "yes" })),
        chart(&agent, "release", &config_map(&own, "release", ""))
            .option("defaultNamespace", json!(foreign)),
    ];
    agent
        .upstream_secret("source", json!({ "key": "value" }))
        .await?;
    for bundle in &bundles {
        agent.apply(bundle).await?;
    }
    for bundle in &bundles {
        let message = agent
            .wait_deploy_error(bundle.name(), |message| {
                message.contains("forbidden") || message.contains("not allowed")
            })
            .await
            .with_context(|| bundle.name().to_owned())?;
        ensure!(message.contains(&foreign), "{}: {message}", bundle.name());
        ensure!(!message.contains("yes-it-was"), "{message}");
    }
    // Nothing came, nothing went, and what was refused was asked as the tenant.
    for kind in ["Secret", "ConfigMap"] {
        ensure!(
            agent
                .object("v1", kind, &foreign, "theirs")
                .await?
                .is_some()
        );
        ensure!(
            agent
                .object("v1", kind, &foreign, "planted")
                .await?
                .is_none()
        );
        ensure!(
            agent
                .object("v1", kind, &foreign, "source")
                .await?
                .is_none()
        );
    }
    let namespace = agent
        .object("v1", "Namespace", "", &foreign)
        .await?
        .context("the namespace")?;
    ensure!(
        !namespace
            .metadata
            .labels
            .unwrap_or_default()
            .contains_key("taken")
    );
    let as_agent: Vec<_> = agent
        .downstream_requests()?
        .into_iter()
        .filter(|request| request.namespace == foreign && request.resource != "namespaces")
        // Release records are read as the agent, so that an account needs no right to read Secrets.
        .filter(|request| !(request.resource == "secrets" && request.verb == "list"))
        .filter(|request| !(request.name.starts_with("sh.helm.release.") && request.verb == "get"))
        .collect();
    ensure!(as_agent.is_empty(), "{as_agent:#?}");
    Ok(())
}

/// A tenant may write its release's record; what the record says is not believed when the release is removed.
#[tokio::test]
async fn a_forged_record_removes_no_object_of_others() -> Result<()> {
    let (agent, own, foreign) = tenancy().await?;
    agent
        .apply(&chart(&agent, "web", &config_map(&own, "web", "")))
        .await?;
    agent.wait_ready("web").await?;
    let secrets = agent.objects("v1", "Secret", &own);
    let name = "sh.helm.release.v1.web.v1";
    let record = secrets.get(name).await?;
    let payload = record.data["data"]["release"]
        .as_str()
        .context("a payload")?;
    let mut release = unpacked(payload)?;
    let manifest = release["manifest"].as_str().context("a manifest")?;
    let manifest = format!("{manifest}---\n{}", config_map(&foreign, "theirs", ""));
    release["manifest"] = json!(manifest);
    for (key, value) in [
        ("service-account", ""),
        ("bundle-id", "web"),
        ("keep-resources", "false"),
    ] {
        release["chart"]["metadata"]["annotations"][format!("fleet.cattle.io/{key}")] =
            json!(value);
    }
    let forged = json!({ "data": { "release": packed(&release)? } });
    secrets
        .patch(name, &PatchParams::default(), &Patch::Merge(&forged))
        .await?;
    agent.delete("web").await?;
    wait_until("the tenant's object to go", PATIENCE, async || match agent
        .object("v1", "ConfigMap", &own, "web")
        .await
        .map_err(|e| e.to_string())?
    {
        None => Ok(()),
        Some(_) => Err("still there".to_owned()),
    })
    .await
    .with_context(|| agent.agent_log_tail(30))?;
    ensure!(
        agent
            .object("v1", "ConfigMap", &foreign, "theirs")
            .await?
            .is_some()
    );
    Ok(())
}

/// What a record that somebody else wrote names may be nothing that can be asked for. What the bundle has goes all the same, and its records with it.
#[tokio::test]
async fn a_forged_record_holds_up_no_removal() -> Result<()> {
    let (agent, own, _) = tenancy().await?;
    agent
        .apply(&chart(&agent, "web", &config_map(&own, "web", "")))
        .await?;
    agent.wait_ready("web").await?;
    let secrets = agent.objects("v1", "Secret", &own);
    let record = secrets.get("sh.helm.release.v1.web.v1").await?;
    let payload = record.data["data"]["release"]
        .as_str()
        .context("a payload")?;
    let mut release = unpacked(payload)?;
    release["version"] = json!(2);
    release["info"]["status"] = json!("failed");
    let alias = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: foos}\n\
                 spec: {group: networking.k8s.io, scope: Cluster, names: {kind: Foo, plural: foos}, versions: [{name: v1}]}\n\
                 ---\napiVersion: networking.k8s.io/v1\nkind: Foo\nmetadata: {name: a}\n";
    let impossible = config_map(&own, "'a%b'", "");
    release["manifest"] = json!(format!("---\n{impossible}---\n{alias}"));
    let mut labels = record.metadata.labels.clone().unwrap_or_default();
    labels.insert("version".to_owned(), "2".to_owned());
    labels.insert("status".to_owned(), "failed".to_owned());
    let forged = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
        "metadata": { "name": "sh.helm.release.v1.web.v2", "namespace": own, "labels": labels },
        "data": { "release": packed(&release)? },
    });
    apply(&agent.downstream, forged).await?;
    agent.delete("web").await?;
    let selector = kube::api::ListParams::default().labels("owner=helm,name=web");
    wait_until("the records to go", PATIENCE, async || {
        let left = secrets.list(&selector).await.map_err(|e| e.to_string())?;
        match left.items.len() {
            0 => Ok(()),
            count => Err(format!("{count} are left")),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(30))?;
    let web = agent.object("v1", "ConfigMap", &own, "web").await?;
    ensure!(web.is_none());
    Ok(())
}

fn packed(release: &Value) -> Result<String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use std::io::Write as _;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(release.to_string().as_bytes())?;
    Ok(STANDARD.encode(STANDARD.encode(gzip.finish()?)))
}

fn unpacked(payload: &str) -> Result<Value> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let gzip = STANDARD.decode(STANDARD.decode(payload)?)?;
    Ok(serde_json::from_reader(flate2::read::GzDecoder::new(
        &gzip[..],
    ))?)
}

/// `fleet-default` is the account of bundles that name none, from the moment it exists; a named one must exist.
#[tokio::test]
async fn the_default_account_is_used_where_it_exists() -> Result<()> {
    let (agent, own, foreign) = tenancy().await?;
    let nameless = |name: &str, namespace: &str| {
        chart(&agent, name, &config_map(namespace, name, "")).option("serviceAccount", json!(""))
    };
    agent.apply(&nameless("before", &foreign)).await?;
    agent.wait_ready("before").await?;
    account(&agent, "fleet-default", &own).await?;
    // That there was none is remembered for moments: bundles go out until one asks as the account.
    let user = format!(
        "system:serviceaccount:{}:fleet-default",
        agent.system_namespace
    );
    let mut bundles = 0;
    wait_until("the account to be used", PATIENCE, async || {
        bundles += 1;
        let name = format!("within-{bundles}");
        let applied = agent.apply(&nameless(&name, &own)).await;
        applied.map_err(|e| e.to_string())?;
        agent.wait_ready(&name).await.map_err(|e| e.to_string())?;
        let audit = agent.bed.downstream.audit();
        let asked = audit.by_user(&user, testbed::audit::Mark::default());
        match asked.map_err(|e| e.to_string())?.is_empty() {
            false => Ok(()),
            true => Err(format!("{bundles} bundles as the agent")),
        }
    })
    .await?;
    agent.apply(&nameless("after", &foreign)).await?;
    agent
        .wait_deploy_error("after", |message| message.contains("forbidden"))
        .await?;
    let named = nameless("named", &own).option("serviceAccount", json!("nobody"));
    agent.apply(&named).await?;
    agent
        .wait_deploy_error("named", |message| message.contains("nobody"))
        .await?;
    // It comes, and the bundle heals by itself.
    account(&agent, "nobody", &own).await?;
    agent.wait_ready("named").await?;
    let accounts = agent.objects("v1", "ServiceAccount", &agent.system_namespace);
    accounts
        .delete("fleet-default", &DeleteParams::default())
        .await?;
    agent.wait_ready("after").await.map(drop)
}
