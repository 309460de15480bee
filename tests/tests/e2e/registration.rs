//! From a bootstrap secret to a working agent, and the heartbeat.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};
use testbed::bed::{Bed, unique};
use testbed::certs::IssuedCertificate;
use testbed::chart::Chart;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::{Granted, resource};
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::tls_front;
use testbed::wait::wait_until;

use crate::scene::{haste, wait_bootstrap_gone, wait_event};

/// Waits for the agent's credential secret; gives its texts.
async fn credential(agent: &TestAgent<'_>) -> Result<BTreeMap<String, String>> {
    let waited = wait_until("the agent to register", PATIENCE, async || {
        let secret = agent
            .object("v1", "Secret", &agent.system_namespace, "fleet-agent")
            .await
            .map_err(|e| e.to_string())?;
        let secret = secret.ok_or("no secret fleet-agent")?;
        texts(&secret.data["data"]).map_err(|e| e.to_string())
    })
    .await;
    waited.with_context(|| agent.agent_log_tail(30))
}

fn texts(data: &Value) -> Result<BTreeMap<String, String>> {
    use base64::Engine;
    let mut texts = BTreeMap::new();
    for (key, value) in data.as_object().context("no data")? {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(value.as_str().context("not a text")?)?;
        texts.insert(key.clone(), String::from_utf8(bytes)?);
    }
    Ok(texts)
}

/// What a registered agent holds is what the controller granted; deploys something to prove it works.
async fn registered(mut agent: TestAgent<'_>) -> Result<()> {
    let secret = credential(&agent).await?;
    assert_eq!(secret["clusterNamespace"], agent.registration_namespace);
    agent.granted = Some(Granted {
        cluster_namespace: secret["clusterNamespace"].clone(),
        cluster_name: secret["clusterName"].clone(),
        deployment_namespace: secret["deploymentNamespace"].clone(),
        user: String::new(),
        token: String::new(),
    });
    let chart = Chart::small(&unique("web"), "1.0.0");
    agent.bed.repository.add(&chart)?;
    let target = format!("{}-app", agent.id);
    let bundle =
        BundleDeployment::helm_op("web", agent.bed.repository.url(), chart.name(), "1.0.0")
            .release("web", &target);
    agent.apply(&bundle).await?;
    agent.wait_ready("web").await?;
    wait_bootstrap_gone(&agent).await
}

#[tokio::test]
async fn a_bootstrap_secret_leads_to_a_working_agent() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.bootstrap(|_| ()).await?;
    agent.start(BTreeMap::new())?;
    credential(&agent).await?;
    let registrations: Api<DynamicObject> = Api::namespaced_with(
        agent.upstream.clone(),
        &agent.registration_namespace,
        &resource("ClusterRegistration"),
    );
    let all = registrations
        .list(&kube::api::ListParams::default())
        .await?
        .items;
    assert_eq!(all.len(), 1);
    let request = &all[0];
    assert!(
        request
            .metadata
            .name
            .as_deref()
            .is_some_and(|n| n.starts_with("request-"))
    );
    let labels = request.metadata.labels.clone().unwrap_or_default();
    assert_eq!(
        labels
            .get("fleet.cattle.io/registration-token")
            .map(String::as_str),
        Some("import-token")
    );
    assert_eq!(request.data["spec"]["clientID"], json!(agent.id));
    assert_eq!(
        request.data["spec"]["clientRandom"].as_str().map(str::len),
        Some(54)
    );
    assert_eq!(request.data["spec"]["clusterLabels"]["env"], "test");
    assert!(
        request.data["spec"]["clusterLabels"]["fleet.cattle.io/created-by-agent-pod"].is_string()
    );
    registered(agent).await
}

/// As `openssl req -x509` makes them, in every mode, and with something beside it in the bundle that is no certificate.
#[rstest]
#[case::trusting_it_alone("strict")]
#[case::trusting_the_systems_too("system-store")]
#[tokio::test]
async fn an_upstream_with_a_self_signed_certificate_is_reached(#[case] mode: &str) -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    let certificate = IssuedCertificate::self_signed()?;
    let address = tls_front::start(&agent.bed.upstream, &certificate)?;
    let malformed = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    let authorities = format!("{malformed}{}", certificate.certificate);
    let labels = json!({"env": "test"});
    agent
        .configure(json!({"clientID": agent.id, "labels": labels, "agentTLSMode": mode}))
        .await?;
    agent
        .bootstrap(|data| {
            data["apiServerURL"] = json!(address);
            data["apiServerCA"] = json!(authorities);
        })
        .await?;
    agent.start(BTreeMap::new())?;
    registered(agent).await
}

#[tokio::test]
async fn a_working_credential_is_used_and_the_bootstrap_secret_removed() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let before = credential(&agent).await?;
    agent.bootstrap(|_| ()).await?;
    agent.start(BTreeMap::new())?;
    let granted = before["kubeconfig"].clone();
    let after = credential(&agent).await?;
    assert_eq!(after["kubeconfig"], granted);
    registered(agent).await
}

#[tokio::test]
async fn a_refused_credential_is_replaced_by_registering_again() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let broken = credential(&agent).await?["kubeconfig"].replace("\"token\":\"", "\"token\":\"x");
    agent
        .secret("fleet-agent", json!({ "kubeconfig": broken }))
        .await?;
    agent.bootstrap(|_| ()).await?;
    agent.start(BTreeMap::new())?;
    wait_until("a new credential", PATIENCE, async || {
        let now = credential(&agent).await.map_err(|e| e.to_string())?;
        if now["kubeconfig"] == broken {
            Err("still the old one".to_owned())
        } else {
            Ok(())
        }
    })
    .await?;
    registered(agent).await
}

/// A cluster that moves: the same `helm upgrade` brings a bootstrap Secret and a new pod, while the old upstream still answers.
#[tokio::test]
async fn a_bootstrap_secret_that_comes_with_a_restart_is_used() -> Result<()> {
    for is_first in [true, false] {
        let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
        match is_first {
            // Stored by another agent, that did not note what it came of.
            true => agent.grant().await?,
            false => agent.bootstrap(|_| ()).await?,
        }
        agent.start(haste())?;
        let before = credential(&agent).await?;
        if !is_first {
            wait_bootstrap_gone(&agent).await?;
        }
        noted(&agent).await?;
        agent.process()?.kill();
        // One that leads nowhere first: the old credential works on.
        agent
            .bootstrap(|data| data["token"] = json!("not-a-token"))
            .await?;
        agent.process()?.restart()?;
        wait_event(&agent, "CredentialRefused", "cannot register again").await?;
        assert_eq!(credential(&agent).await?, before);
        agent.process()?.kill();
        agent.bootstrap(|_| ()).await?;
        agent.process()?.restart()?;
        wait_until("another credential", PATIENCE, async || {
            match credential(&agent).await.map_err(|e| e.to_string())? {
                now if now != before => Ok(()),
                _ => Err(agent.agent_log_tail(30)),
            }
        })
        .await?;
        registered(agent).await?;
    }
    Ok(())
}

/// Somebody made the credential immutable: it is deleted and created, as by the Go agent.
#[tokio::test]
async fn an_immutable_credential_is_replaced() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let secrets = agent.objects("v1", "Secret", &agent.system_namespace);
    let immutable = Patch::Merge(json!({ "immutable": true }));
    secrets
        .patch("fleet-agent", &PatchParams::default(), &immutable)
        .await?;
    let before = credential(&agent).await?;
    agent.start(haste())?;
    noted(&agent).await?;
    agent.bootstrap(|_| ()).await?;
    wait_until("another credential", PATIENCE, async || {
        match credential(&agent).await.map_err(|e| e.to_string())? {
            now if now != before => Ok(()),
            _ => Err(agent.agent_log_tail(30)),
        }
    })
    .await?;
    registered(agent).await
}

/// Waits until the credential says which bootstrap Secret it came of.
async fn noted(agent: &TestAgent<'_>) -> Result<()> {
    wait_until("the origin to be noted", PATIENCE, async || {
        let secret = agent.object("v1", "Secret", &agent.system_namespace, "fleet-agent");
        let secret = secret.await.map_err(|e| e.to_string())?;
        let annotations = secret.and_then(|secret| secret.metadata.annotations);
        let noted = annotations.and_then(|mut all| all.remove("fleet.cattle.io/bootstrap-digest"));
        noted.map(drop).ok_or_else(|| agent.agent_log_tail(30))
    })
    .await
}

#[tokio::test]
async fn a_bootstrap_secret_created_after_the_start_is_used() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.start(BTreeMap::new())?;
    agent.bootstrap(|_| ()).await?;
    registered(agent).await
}

#[tokio::test]
async fn the_heartbeat_reaches_the_cluster_upstream() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    agent.start(BTreeMap::from([(
        "CHECKIN_INTERVAL".to_owned(),
        "1s".to_owned(),
    )]))?;
    let granted = agent.granted.as_ref().context("just granted")?;
    let clusters: Api<DynamicObject> = Api::namespaced_with(
        agent.upstream.clone(),
        &granted.cluster_namespace,
        &resource("Cluster"),
    );
    wait_until("the first report", PATIENCE, async || {
        let cluster = clusters
            .get(&granted.cluster_name)
            .await
            .map_err(|e| e.to_string())?;
        let reported = &cluster.data["status"]["agent"];
        let seen = reported["lastSeen"]
            .as_str()
            .is_some_and(|t| t.ends_with('Z') && t.len() == 20);
        if seen && reported["namespace"] == json!(agent.system_namespace) {
            Ok(())
        } else {
            Err(cluster.data.to_string())
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(30))
}
