//! The chart in `deploy/`: helm installs it, and it refuses what Fleet's chart refuses.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use testbed::bed::Bed;
use testbed::cluster::ADMIN;
use testbed::helm::Helm;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/fleet-agent");
const NEEDED: [&str; 2] = [
    "--set=apiServerURL=https://upstream.example:6443",
    "--set=tokenName=import",
];

#[tokio::test]
async fn helm_installs_it() -> Result<()> {
    assert!(Path::new(CHART).is_dir());
    let bed = Bed::shared().await?;
    let [_, helm] = Helm::both(&bed.downstream.kubeconfig(ADMIN)?, bed.group.directory())?;
    let install = [
        "install",
        "fleet-agent",
        CHART,
        "--namespace",
        "cattle-fleet-system",
        "--create-namespace",
    ];
    let waiting = [
        "--wait",
        "--timeout",
        "60s",
        "--set=labels.env=lab",
        "--set=token=secret",
        "--set=clusterNamespace=fleet-default",
    ];
    helm.run(&[&install[..], &waiting, &NEEDED].concat())?;
    let client = bed.downstream.client(ADMIN).await?;
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(client.clone(), "cattle-fleet-system");
    let config = maps.get("fleet-agent").await?.data.context("data")?;
    let config: Value = serde_json::from_str(&config["config"])?;
    assert_eq!(
        (&config["labels"]["env"], &config["agentTLSMode"]),
        (&"lab".into(), &"system-store".into())
    );
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(client, "cattle-fleet-system");
    let bootstrap = secrets
        .get("fleet-agent-bootstrap")
        .await?
        .data
        .context("data")?;
    assert_eq!(
        bootstrap["apiServerURL"].0,
        b"https://upstream.example:6443"
    );
    assert_eq!(bootstrap["token"].0, b"secret");
    assert_eq!(
        bootstrap["systemRegistrationNamespace"].0,
        b"cattle-fleet-clusters-system"
    );
    Ok(())
}

#[tokio::test]
async fn it_refuses_what_cannot_work() -> Result<()> {
    let bed = Bed::shared().await?;
    let [_, helm] = Helm::both(&bed.downstream.kubeconfig(ADMIN)?, bed.group.directory())?;
    let cases: [(&str, &str, &[&str], &str); 5] = [
        (
            "fleet-agent",
            "elsewhere",
            &NEEDED,
            "This chart must be installed in the cattle-fleet-system namespace",
        ),
        (
            "other",
            "cattle-fleet-system",
            &NEEDED,
            "This chart must be installed with release name fleet-agent",
        ),
        (
            "fleet-agent",
            "cattle-fleet-system",
            &NEEDED[1..],
            "apiServerURL is required to be set, and most likely also apiServerCA",
        ),
        (
            "fleet-agent",
            "cattle-fleet-system",
            &NEEDED[..1],
            "tokenName is required to be set",
        ),
        (
            "fleet-agent",
            "cattle-fleet-system",
            &[NEEDED[0], NEEDED[1], "--set=garbageCollectionInterval=1d"],
            "garbageCollectionInterval",
        ),
    ];
    for (release, namespace, arguments, reason) in cases {
        let command = ["template", release, CHART, "--namespace", namespace];
        let error = helm
            .run(&[&command[..], arguments].concat())
            .err()
            .context("it must refuse")?;
        assert!(error.to_string().contains(reason), "{error}");
    }
    Ok(())
}
