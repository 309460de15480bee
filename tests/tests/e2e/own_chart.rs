//! The chart in `deploy/`: helm installs it, and it refuses what Fleet's chart refuses.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testbed::bed::Bed;
use testbed::cluster::ADMIN;
use testbed::helm::Helm;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/fleet-agent");
const NEEDED: [&str; 2] = [
    "--set=apiServerURL=https://upstream.example:6443",
    "--set=tokenName=import",
];

const FLEETS_CHART: &str = "apiVersion: v2\nname: fleet-agent\nversion: 0.1.0\n";
const FLEETS_OBJECTS: &str = r#"apiVersion: v1
kind: ConfigMap
metadata: {name: fleet-agent}
data: {config: "{}"}
---
apiVersion: v1
kind: Secret
metadata: {name: fleet-agent-bootstrap}
stringData: {token: old}
"#;

#[tokio::test]
async fn helm_installs_the_agents_chart() -> Result<()> {
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

    // As the agent does once it is registered.
    let registered =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleet-agent"}});
    let registered = serde_json::from_value(registered)?;
    secrets.create(&Default::default(), &registered).await?;
    secrets
        .delete("fleet-agent-bootstrap", &Default::default())
        .await?;
    let upgrade = |token: &str| {
        let token = format!("--set=token={token}");
        let values = [token.as_str(), "--set=clusterNamespace=fleet-default"];
        let upgrade = [&["upgrade"][..], &install[1..5], &values, &NEEDED].concat();
        helm.run(&upgrade).map(drop)
    };
    upgrade("secret")?;
    let bootstrap = secrets.get_opt("fleet-agent-bootstrap").await?;
    ensure!(bootstrap.is_none(), "the same registration begins anew");
    upgrade("another")?;
    let bootstrap = secrets.get("fleet-agent-bootstrap").await?.data;
    assert_eq!(bootstrap.context("data")?["token"].0, b"another");
    helm.run(&["uninstall", "fleet-agent", install[3], install[4]])?;

    // Coming from Fleet's chart, which has the bootstrap Secret among its objects and notes no digest of it.
    let chart = bed.group.directory().join("fleets-chart");
    std::fs::create_dir_all(chart.join("templates"))?;
    std::fs::write(chart.join("Chart.yaml"), FLEETS_CHART)?;
    std::fs::write(chart.join("templates/agent.yaml"), FLEETS_OBJECTS)?;
    let fleets = chart.to_str().context("a path")?;
    for is_registered in [false, true] {
        for left in ["fleet-agent", "fleet-agent-bootstrap"] {
            let _ = secrets.delete(left, &Default::default()).await;
        }
        helm.run(&["install", "fleet-agent", fleets, install[3], install[4]])?;
        if is_registered {
            secrets.create(&Default::default(), &registered).await?;
            let bootstrap = "fleet-agent-bootstrap";
            secrets.delete(bootstrap, &Default::default()).await?;
        }
        upgrade("new")?;
        let bootstrap = secrets.get("fleet-agent-bootstrap").await?.data;
        assert_eq!(bootstrap.context("data")?["token"].0, b"new");
        helm.run(&["uninstall", "fleet-agent", install[3], install[4]])?;
    }
    Ok(())
}

/// The objects that helm renders with these values.
async fn rendered(values: &[&str]) -> Result<Vec<Value>> {
    let bed = Bed::shared().await?;
    let [_, helm] = Helm::both(&bed.downstream.kubeconfig(ADMIN)?, bed.group.directory())?;
    let command = [
        "template",
        "fleet-agent",
        CHART,
        "--namespace",
        "cattle-fleet-system",
    ];
    let text = helm.run(&[&command[..], &NEEDED, values].concat())?;
    Ok(golib::yaml::decode_all(text.as_bytes())?)
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind)
}

/// The variable of the agent's container.
fn variable<'a>(deployment: &'a Value, name: &str) -> Option<&'a Value> {
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let mut variables = container["env"].as_array()?.iter();
    variables.find(|variable| variable["name"] == name)
}

/// A pod that runs where Fleet's does: on nodes that wait for a network or a cloud provider, rather on those that are marked for it.
#[tokio::test]
async fn its_pod_goes_where_fleets_goes() -> Result<()> {
    let objects = rendered(&[]).await?;
    let deployment = of_kind(&objects, "Deployment").context("a Deployment")?;
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "fleetagent:0.1.0");
    let tolerations = pod["tolerations"].to_string();
    assert!(
        tolerations.contains("node.cloudprovider.kubernetes.io/uninitialized"),
        "{tolerations}"
    );
    assert!(
        pod["affinity"]
            .to_string()
            .contains("fleet.cattle.io/agent")
    );
    assert!(of_kind(&objects, "PodDisruptionBudget").is_none());
    assert_eq!(deployment["spec"]["strategy"], Value::Null);
    let ports = &pod["containers"][0]["ports"];
    assert_eq!(ports[1]["containerPort"], 8081);
    // Pods on one node may have one host name and process id.
    let identity = variable(deployment, "POD_NAME").context("POD_NAME")?;
    assert_eq!(
        identity["valueFrom"]["fieldRef"]["fieldPath"],
        "metadata.name"
    );
    Ok(())
}

/// Zero is a number like others where values have it, and no missing value.
#[tokio::test]
async fn chart_values_of_zero_are_set() -> Result<()> {
    let zeros = [
        "--set=fleetAgent.ports.metrics=0,chartCacheMiB=0",
        "--set-string=agent.reconciler.workers.drift=0",
    ];
    let objects = rendered(&zeros).await?;
    let deployment = of_kind(&objects, "Deployment").context("a Deployment")?;
    for name in [
        "FLEET_AGENT_METRICS_BIND_ADDRESS",
        "FLEET_AGENT_CACHE_MIB",
        "DRIFT_RECONCILER_WORKERS",
    ] {
        let variable = variable(deployment, name).context(name)?;
        assert_eq!(variable["value"], "0", "{name}");
    }
    let ports = &deployment["spec"]["template"]["spec"]["containers"][0]["ports"];
    assert_eq!(ports.as_array().map(Vec::len), Some(1), "{ports}");
    assert_eq!(ports[0]["name"], "probes");
    Ok(())
}

/// The agent reads its ConfigMap when it starts: another one is another pod.
#[tokio::test]
async fn its_pod_is_replaced_for_another_configuration() -> Result<()> {
    let mut checksums = Vec::new();
    for values in [
        &[][..],
        &["--set=debug=true"],
        &["--set=garbageCollectionInterval=1h"],
    ] {
        let objects = rendered(values).await?;
        let deployment = of_kind(&objects, "Deployment").context("a Deployment")?;
        let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
        checksums.push(annotations["checksum/config"].clone());
    }
    ensure!(checksums[0].is_string(), "{checksums:?}");
    assert_eq!(checksums[0], checksums[1]);
    assert_ne!(checksums[0], checksums[2]);
    Ok(())
}

#[tokio::test]
async fn a_signature_policy_becomes_a_map_that_must_be_there() -> Result<()> {
    let is_required = |objects: &[Value]| {
        let deployment = of_kind(objects, "Deployment").map(ToString::to_string);
        deployment.is_some_and(|text| text.contains("FLEET_AGENT_SIGNATURES"))
    };
    ensure!(!is_required(&rendered(&[]).await?));
    let objects = rendered(&["--set=signaturePolicy.unmatched=refuse"]).await?;
    ensure!(is_required(&objects));
    let maps = objects
        .iter()
        .filter(|object| object["kind"] == "ConfigMap");
    let policies: Vec<&Value> = maps.map(|map| &map["data"]["policy.yaml"]).collect();
    ensure!(
        policies.contains(&&json!("{\"unmatched\":\"refuse\"}")),
        "{policies:?}"
    );
    Ok(())
}

#[tokio::test]
async fn chart_values_reach_the_pod() -> Result<()> {
    let objects = rendered(&[
        "--set=image.repository=registry.example/agent,image.tag=v1",
        "--set=imagePullSecrets[0].name=pull",
        "--set=priorityClassName=system-cluster-critical",
        "--set=extraEnv[0].name=TZ,extraEnv[0].value=UTC",
        "--set=podDisruptionBudget.minAvailable=0",
        "--set=proxy=http://proxy.example:3128,proxyCACert=PEM",
        "--set=fleetAgent.hostNetwork=true,fleetAgent.ports.probes=9081",
        "--set=agentTLSMode=",
        "--set-string=chartCacheMiB=0",
        "--set=fleetAgent.temporaryVolume.persistentVolumeClaim.claimName=charts",
    ])
    .await?;
    let deployment = of_kind(&objects, "Deployment").context("a Deployment")?;
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "registry.example/agent:v1");
    assert_eq!(pod["imagePullSecrets"][0]["name"], "pull");
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    for (name, value) in [
        ("TZ", "UTC"),
        ("HTTPS_PROXY", "http://proxy.example:3128"),
        ("PROXY_CA_BUNDLE", "PEM"),
        ("FLEET_AGENT_PROBE_BIND_ADDRESS", ":9081"),
        ("FLEET_AGENT_CACHE_MIB", "0"),
    ] {
        let found = variable(deployment, name).context(name)?;
        assert_eq!(found["value"], value, "{name}");
    }
    let volume = &pod["volumes"][0];
    assert_eq!(volume["persistentVolumeClaim"]["claimName"], "charts");
    assert_eq!(volume["emptyDir"], Value::Null);
    assert_eq!(pod["securityContext"]["fsGroup"], 1000);
    // Pod Security `restricted` wants one.
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    // Two pods on a node would want the same ports of it, whether they are named or not.
    assert_eq!(deployment["spec"]["strategy"]["type"], "Recreate");
    assert_eq!(pod["containers"][0]["ports"], Value::Null);
    assert_eq!(
        pod["containers"][0]["readinessProbe"]["httpGet"]["port"],
        9081
    );
    let budget = of_kind(&objects, "PodDisruptionBudget").context("a budget")?;
    assert_eq!(budget["spec"]["minAvailable"], 0);
    // Fleet's agent takes an empty mode for strict, and so does ours.
    let config = of_kind(&objects, "ConfigMap").context("a ConfigMap")?;
    let config: Value = serde_json::from_str(config["data"]["config"].as_str().context("text")?)?;
    assert_eq!(config["agentTLSMode"], "");
    Ok(())
}

#[tokio::test]
async fn the_agents_chart_refuses_values_that_cannot_work() -> Result<()> {
    let bed = Bed::shared().await?;
    let [_, helm] = Helm::both(&bed.downstream.kubeconfig(ADMIN)?, bed.group.directory())?;
    let cases: [(&str, &str, &[&str], &str); 6] = [
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
        (
            "fleet-agent",
            "cattle-fleet-system",
            &[
                NEEDED[0],
                NEEDED[1],
                "--set=podDisruptionBudget.minAvailable=1,podDisruptionBudget.maxUnavailable=1",
            ],
            "podDisruptionBudget takes minAvailable or maxUnavailable, not both",
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
