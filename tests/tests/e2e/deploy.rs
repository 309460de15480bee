//! From a BundleDeployment to a release: every kind of source, upgrade, removal, values.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use testbed::bed::{Bed, CREDENTIALS, unique};
use testbed::chart::Chart;
use testbed::cluster::ADMIN;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::{PATIENCE, TestAgent, condition};
use testbed::helm::Helm;
use testbed::wait::wait_until;

/// A small chart nobody else uses, published everywhere.
async fn published(bed: &Bed, version: &str) -> Result<Chart> {
    let chart = Chart::small(&unique("web"), version);
    publish(bed, &chart).await?;
    Ok(chart)
}

async fn publish(bed: &Bed, chart: &Chart) -> Result<()> {
    bed.repository.add(chart)?;
    bed.private_repository.add(chart)?;
    bed.registry.push(chart).await?;
    bed.private_registry.push(chart).await?;
    Ok(())
}

/// The greeting in the small chart's ConfigMap.
async fn greeting(agent: &TestAgent<'_>, namespace: &str, release: &str) -> Result<Value> {
    let object = agent.object("v1", "ConfigMap", namespace, release).await?;
    Ok(object.context("the ConfigMap is there")?.data["data"]["greeting"].clone())
}

#[tokio::test]
async fn a_chart_comes_from_every_kind_of_source() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = published(bed, "1.0.0").await?;
    let absolute = Chart::small(&unique("absolute"), "2.0.0");
    bed.repository.add_absolute(absolute.archive()?)?;
    let digest = bed.registry.push(&chart).await?;
    let login = json!({ "username": CREDENTIALS.0, "password": CREDENTIALS.1 });
    agent.upstream_secret("login", login.clone()).await?;
    let mut with_ca = login.clone();
    with_ca["cacerts"] = json!(bed.authority.pem());
    agent.upstream_secret("login-with-ca", with_ca).await?;
    agent
        .upstream_secret("plain", json!({ "basicHTTP": "true" }))
        .await?;

    let name = chart.name();
    let ca = bed.authority.pem();
    let url = format!("{}/charts/{name}-1.0.0.tgz", bed.repository.url());
    let bundles = [
        BundleDeployment::helm_op("http", bed.repository.url(), name, "1.0.0"),
        BundleDeployment::helm_op("http-constraint", bed.repository.url(), name, ">=1 <2"),
        BundleDeployment::helm_op(
            "http-slash",
            &format!("{}/", bed.repository.url()),
            name,
            "",
        ),
        BundleDeployment::helm_op(
            "http-absolute",
            bed.repository.url(),
            absolute.name(),
            "2.0.0",
        ),
        BundleDeployment::helm_op("tarball", "", &url, ""),
        BundleDeployment::helm_op("https-ca", bed.private_repository.url(), name, "1.0.0")
            .chart_options("login", Some(ca), false),
        BundleDeployment::helm_op(
            "https-insecure",
            bed.private_repository.url(),
            name,
            "1.0.0",
        )
        .chart_options("login", None, true),
        BundleDeployment::helm_op(
            "https-secret-ca",
            bed.private_repository.url(),
            name,
            "1.0.0",
        )
        .chart_options("login-with-ca", None, false),
        BundleDeployment::oci_helm_op("oci", &bed.registry.reference(name), "1.0.0")
            .chart_options("plain", None, false),
        BundleDeployment::oci_helm_op(
            "oci-digest",
            &format!("{}@{digest}", bed.registry.reference(name)),
            "",
        )
        .chart_options("plain", None, false),
        BundleDeployment::oci_helm_op("oci-constraint", &bed.registry.reference(name), "^1.0")
            .chart_options("plain", None, false),
        BundleDeployment::oci_helm_op(
            "oci-private",
            &bed.private_registry.reference(name),
            "1.0.0",
        )
        .chart_options("login", Some(ca), false),
        BundleDeployment::oci_helm_op(
            "oci-insecure",
            &bed.private_registry.reference(name),
            "1.0.0",
        )
        .chart_options("login", None, true),
    ];
    let target = format!("{}-app", agent.id);
    for bundle in &bundles {
        agent
            .apply(&bundle.clone().release(bundle.name(), &target))
            .await?;
    }
    for bundle in &bundles {
        let ready = agent
            .wait_ready(bundle.name())
            .await
            .with_context(|| bundle.name().to_owned())?;
        assert_eq!(
            greeting(&agent, &target, bundle.name()).await?,
            json!("hello")
        );
        assert_eq!(
            ready["status"]["release"],
            json!(format!("{target}/{}:1", bundle.name()))
        );
    }
    Ok(())
}

#[tokio::test]
async fn status_is_what_the_stock_controller_expects() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = published(bed, "1.0.0").await?;
    let target = format!("{}-app", agent.id);
    let bundle = BundleDeployment::helm_op("web", bed.repository.url(), chart.name(), "1.0.0")
        .release("web", &target);
    agent.apply(&bundle).await?;
    let ready = agent.wait_ready("web").await?;
    let status = &ready["status"];
    let kinds: Vec<&Value> = status["conditions"]
        .as_array()
        .context("conditions")?
        .iter()
        .map(|c| &c["type"])
        .collect();
    assert_eq!(kinds, ["Installed", "Deployed", "Ready", "Monitored"]);
    for kind in ["Installed", "Deployed", "Ready", "Monitored"] {
        let condition = condition(&ready, kind).context("just listed")?;
        assert_eq!(condition["status"], "True");
        assert!(
            condition["message"].is_null() && condition["reason"].is_null(),
            "{condition}"
        );
        assert!(condition["lastUpdateTime"].is_string(), "{condition}");
    }
    assert_eq!(status["syncGeneration"], 0);
    assert_eq!(status["resourceCounts"]["desiredReady"], 3);
    assert_eq!(status["resourceCounts"]["ready"], 3);
    let resources: Vec<&Value> = status["resources"]
        .as_array()
        .context("resources")?
        .iter()
        .map(|r| &r["kind"])
        .collect();
    assert_eq!(resources, ["ConfigMap", "Service", "Deployment"]);
    assert!(status["modifiedStatus"].is_null() && status["nonReadyStatus"].is_null());
    Ok(())
}

#[tokio::test]
async fn objects_are_applied_by_fleetagent_and_carry_the_marks_of_helm_and_fleet() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = published(bed, "1.0.0").await?;
    let target = format!("{}-app", agent.id);
    agent
        .apply(
            &BundleDeployment::helm_op("web", bed.repository.url(), chart.name(), "1.0.0")
                .release("web", &target),
        )
        .await?;
    agent.wait_ready("web").await?;
    let object = agent
        .object("v1", "ConfigMap", &target, "web")
        .await?
        .context("the ConfigMap is there")?;
    let metadata = serde_json::to_value(&object.metadata)?;
    assert_eq!(metadata["labels"]["app.kubernetes.io/managed-by"], "Helm");
    assert_eq!(metadata["annotations"]["meta.helm.sh/release-name"], "web");
    assert_eq!(
        metadata["annotations"]["meta.helm.sh/release-namespace"],
        json!(target)
    );
    assert!(
        metadata["labels"]["objectset.rio.cattle.io/hash"].is_string(),
        "{metadata}"
    );
    assert_eq!(
        metadata["annotations"]["objectset.rio.cattle.io/id"],
        "default-web"
    );
    let manager = &metadata["managedFields"][0];
    assert_eq!(
        (&manager["manager"], &manager["operation"]),
        (&json!("fleetagent"), &json!("Apply")),
        "{manager}"
    );
    Ok(())
}

#[tokio::test]
async fn both_helms_read_the_release() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = published(bed, "1.0.0").await?;
    let target = format!("{}-app", agent.id);
    let bundle = BundleDeployment::helm_op("web", bed.repository.url(), chart.name(), "1.0.0")
        .release("web", &target);
    agent
        .apply(&bundle.clone().values(json!({ "greeting": "first" })))
        .await?;
    agent.wait_ready("web").await?;
    agent
        .apply(&bundle.values(json!({ "greeting": "second" })))
        .await?;
    agent.wait_ready("web").await?;
    for helm in Helm::both(&bed.downstream.kubeconfig(ADMIN)?, bed.group.directory())? {
        let list = helm.json(&["list", "--namespace", &target])?;
        assert_eq!(list[0]["name"], "web");
        assert_eq!(list[0]["revision"], "2");
        assert_eq!(list[0]["status"], "deployed");
        assert_eq!(list[0]["chart"], json!(format!("{}-1.0.0", chart.name())));
        let history = helm.json(&["history", "web", "--namespace", &target])?;
        let statuses: Vec<&Value> = history
            .as_array()
            .context("a list")?
            .iter()
            .map(|r| &r["status"])
            .collect();
        assert_eq!(statuses, ["superseded", "deployed"]);
        let values = helm.json(&["get", "values", "web", "--namespace", &target])?;
        assert_eq!(values, json!({ "greeting": "second" }));
        let manifest = helm.run(&["get", "manifest", "web", "--namespace", &target])?;
        assert!(manifest.contains("greeting: second"), "{manifest}");
    }
    Ok(())
}

#[tokio::test]
async fn a_changed_bundle_upgrades_and_a_deleted_one_uninstalls() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = published(bed, "1.0.0").await?;
    publish(bed, &Chart::small(chart.name(), "1.1.0")).await?;
    let target = format!("{}-app", agent.id);
    let bundle = |version: &str| {
        BundleDeployment::helm_op("web", bed.repository.url(), chart.name(), version)
            .release("web", &target)
    };
    agent.apply(&bundle("1.0.0")).await?;
    assert_eq!(
        agent.wait_ready("web").await?["status"]["release"],
        json!(format!("{target}/web:1"))
    );
    agent.apply(&bundle("1.1.0")).await?;
    assert_eq!(
        agent.wait_ready("web").await?["status"]["release"],
        json!(format!("{target}/web:2"))
    );
    let config = agent
        .object("v1", "ConfigMap", &target, "web")
        .await?
        .context("still there")?;
    assert_eq!(config.data["data"]["version"], "1.1.0");

    agent.delete("web").await?;
    wait_until("the release to be gone", PATIENCE, async || {
        let mut left = Vec::new();
        for (api_version, kind) in [
            ("v1", "ConfigMap"),
            ("v1", "Service"),
            ("apps/v1", "Deployment"),
        ] {
            if agent
                .object(api_version, kind, &target, "web")
                .await
                .map_err(|e| e.to_string())?
                .is_some()
            {
                left.push(kind);
            }
        }
        let secrets = agent.objects("v1", "Secret", &target);
        let records = secrets
            .list(&kube::api::ListParams::default())
            .await
            .map_err(|e| e.to_string())?
            .items
            .len();
        if left.is_empty() && records == 0 {
            Ok(())
        } else {
            Err(format!("{left:?} and {records} records"))
        }
    })
    .await
}

#[tokio::test]
async fn coordinates_without_content_are_pulled_natively() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = published(bed, "1.0.0").await?;
    let target = format!("{}-app", agent.id);
    agent
        .apply(
            &BundleDeployment::native("native", bed.repository.url(), chart.name(), "")
                .release("native", &target),
        )
        .await?;
    agent.wait_ready("native").await?;
    assert_eq!(greeting(&agent, &target, "native").await?, json!("hello"));
    Ok(())
}

#[tokio::test]
async fn a_chart_carried_in_the_bundle_is_deployed() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = Chart::small("carried", "1.0.0");
    let files = chart
        .files()
        .iter()
        .map(|(path, content)| (format!("carried/{path}"), content.clone()))
        .collect();
    let target = format!("{}-app", agent.id);
    let bundle = BundleDeployment::content("carried", files)
        .helm("chart", json!("carried"))
        .release("carried", &target)
        .values(json!({ "greeting": "from the bundle" }));
    agent.apply(&bundle).await?;
    agent.wait_ready("carried").await?;
    assert_eq!(
        greeting(&agent, &target, "carried").await?,
        json!("from the bundle")
    );
    Ok(())
}

#[tokio::test]
async fn plain_manifests_are_deployed() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: plain\ndata:\n  braces: \"{{ not a template }}\"\n";
    let target = format!("{}-app", agent.id);
    let bundle =
        BundleDeployment::content("plain", vec![("plain.yaml".to_owned(), manifest.into())])
            .option("defaultNamespace", json!(target));
    agent.apply(&bundle).await?;
    agent.wait_ready("plain").await?;
    let object = agent
        .object("v1", "ConfigMap", &target, "plain")
        .await?
        .context("the ConfigMap is there")?;
    assert_eq!(object.data["data"]["braces"], "{{ not a template }}");
    Ok(())
}

#[tokio::test]
async fn a_paused_bundle_waits() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = published(bed, "1.0.0").await?;
    let target = format!("{}-app", agent.id);
    let bundle = |name: &str| {
        BundleDeployment::helm_op(name, bed.repository.url(), chart.name(), "1.0.0")
            .release(name, &target)
    };
    agent
        .apply(&bundle("paused").spec("paused", json!(true)))
        .await?;
    // The agent has seen the paused one when a later one is deployed.
    agent.apply(&bundle("later")).await?;
    agent.wait_ready("later").await?;
    assert!(
        agent
            .object("v1", "ConfigMap", &target, "paused")
            .await?
            .is_none()
    );
    agent
        .apply(&bundle("paused").spec("paused", json!(false)))
        .await?;
    agent.wait_ready("paused").await?;
    Ok(())
}

#[tokio::test]
async fn a_bundle_waits_for_what_it_depends_on() -> Result<()> {
    let bed = Bed::shared().await?;
    let mut agent = TestAgent::prepare(bed).await?;
    agent.grant().await?;
    // What is waited for wakes it, and not that time.
    let timing = "dependency-retry=10m".to_owned();
    agent.start([("FLEET_AGENT_TIMING".to_owned(), timing)].into())?;
    let chart = published(bed, "1.0.0").await?;
    let target = format!("{}-app", agent.id);
    let bundle = |name: &str| {
        BundleDeployment::helm_op(name, bed.repository.url(), chart.name(), "1.0.0")
            .release(name, &target)
    };
    agent
        .apply(&bundle("first").values(json!({ "image": "registry.example/web:never" })))
        .await?;
    agent
        .apply(&bundle("second").spec("dependsOn", json!([{ "name": "first" }])))
        .await?;
    let message = agent
        .wait_deploy_error("second", |m| m.starts_with("dependent bundle(s)"))
        .await?;
    assert_eq!(message, "dependent bundle(s) are not ready: [first]");
    agent.apply(&bundle("first")).await?;
    agent.wait_ready("first").await?;
    agent.wait_ready("second").await?;
    Ok(())
}
