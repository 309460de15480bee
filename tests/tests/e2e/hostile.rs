//! Worlds that are against the agent: spoilt Secrets, garbage in every field, namespaces that do not end, webhooks that refuse or
//! never answer, quotas, kinds that go and API groups that hang. Each is reported, affects no other bundle, and is recovered from without a restart.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::{Bed, unique};
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent, condition};
use testbed::wait::wait_until;
use testbed::wire::{State, Wire};

use crate::scene::{
    app, behind_faults, deploy, figure, haste, in_haste, limit, target, wait_event, widgets,
};

async fn hurried() -> Result<TestAgent<'static>> {
    let agent = in_haste().await?;
    Ok(agent)
}

/// A bundle of these manifests, in a namespace of its own.
fn manifests(agent: &TestAgent<'_>, name: &str, text: &str) -> BundleDeployment {
    BundleDeployment::content(name, vec![("all.yaml".to_owned(), text.into())])
        .release(name, &namespace_of(agent, name))
}

fn namespace_of(agent: &TestAgent<'_>, name: &str) -> String {
    format!("{}-{name}", agent.id)
}

fn map(name: &str, text: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: {text}\n---\n"
    )
}

/// The agent lives: nothing panicked, and a new bundle is deployed.
async fn unharmed(agent: &TestAgent<'_>) -> Result<()> {
    for controller in ["bundledeployment", "drift-reconciler"] {
        let panics =
            format!("controller_runtime_reconcile_panics_total{{controller=\"{controller}\"}}");
        let panics = figure(agent, &panics).await.map_err(anyhow::Error::msg)?;
        ensure!(panics == 0, "{}", agent.agent_log_tail(60));
    }
    deploy(agent, &unique("after"), 1).await.map(drop)
}

#[tokio::test]
async fn garbage_in_every_field_is_reported_and_affects_no_other_bundle() -> Result<()> {
    let agent = hurried().await?;
    let long = "x".repeat(300);
    let none = json!(null);
    let options: &[(&str, Value)] = &[
        ("defaultNamespace", json!("../../kube-system")),
        ("defaultNamespace", json!("Not A Namespace")),
        ("namespace", json!("a/b?c=d#e")),
        ("namespace", json!(long)),
        ("serviceAccount", json!("../other/admin")),
        ("serviceAccount", json!("a b\nc")),
        ("namespaceLabels", json!({ "not a key!": "not a value!" })),
        ("namespaceAnnotations", json!({ "/": "" })),
        (
            "downstreamResources",
            json!([{ "kind": "Secret", "name": "../x" }, { "kind": "", "name": "" }]),
        ),
        (
            "allowedTargetNamespaceSelector",
            json!({ "matchExpressions": [{ "key": "a", "operator": "Bogus" }] }),
        ),
        ("yaml", json!({ "overlays": ["../..", "", "/etc"] })),
        ("kustomize", json!({ "dir": "../../etc" })),
        (
            "overwrites",
            json!([{ "kind": "", "name": "", "namespace": "" }]),
        ),
        (
            "diff",
            json!({ "comparePatches": [{
                "apiVersion": "", "kind": "ConfigMap", "jsonPointers": ["not a pointer", "/~9"],
                "operations": [{ "op": "explode", "path": "~", "value": "{" }],
            }]}),
        ),
        ("ignore", json!({ "conditions": [{}, { "type": "" }] })),
        ("correctDrift", json!({ "enabled": true, "force": true })),
    ];
    let helm: &[(&str, Value)] = &[
        ("releaseName", json!("../../x")),
        ("releaseName", json!(long)),
        ("releaseName", json!("UPPER_case")),
        ("repo", json!("file:///etc")),
        ("repo", json!("::not a url::")),
        ("repo", json!("oci://")),
        ("chart", json!("../../../etc/passwd")),
        ("version", json!(">>> not a version <<<")),
        ("timeoutSeconds", json!(-5)),
        ("maxHistory", json!(-5)),
        (
            "values",
            json!({ "a": "${ .Broken", "b": { "c": [none, {}] } }),
        ),
        ("valuesFiles", json!(["../../etc/passwd", ""])),
        (
            "valuesFrom",
            json!([{}, { "secretKeyRef": { "name": "", "namespace": "/", "key": "" } }]),
        ),
        ("templateValues", json!({ "a": "${" })),
    ];
    let specs: &[(&str, Value)] = &[
        ("deploymentID", json!("no colon")),
        ("deploymentID", json!(":::")),
        ("valuesHash", json!("not a hash")),
        (
            "dependsOn",
            json!([{ "selector": { "matchExpressions": [{ "key": "", "operator": "In" }] } }]),
        ),
        ("dependsOn", json!([{}, { "name": "" }])),
        ("downstreamResourcesGeneration", json!(-1)),
        (
            "helmChartOptions",
            json!({ "helmOpSecretName": "../x", "helmOpCABundle": "bm90IGEgY2VydA==" }),
        ),
    ];
    let plain = |index: usize, kind: &str| app(&agent, &format!("{kind}-{index}"));
    let mut all = Vec::new();
    for (index, (key, value)) in options.iter().enumerate() {
        all.push(plain(index, "option").option(key, value.clone()));
    }
    for (index, (key, value)) in helm.iter().enumerate() {
        all.push(plain(index, "helm").helm(key, value.clone()));
    }
    for (index, (key, value)) in specs.iter().enumerate() {
        all.push(plain(index, "spec").spec(key, value.clone()));
    }
    let mut stored = Vec::new();
    for bundle in &all {
        // What the definition refuses, no agent sees.
        if agent.apply(bundle).await.is_ok() {
            stored.push(bundle.name());
        }
    }
    ensure!(stored.len() * 3 > all.len() * 2, "{stored:?}");
    // While they are tried again and again, others are deployed.
    unharmed(&agent).await?;
    let bundles = agent.bundle_deployments()?;
    for name in &stored {
        wait_until(&format!("{name} to be judged"), PATIENCE, async || {
            let bundle = bundles.get(name).await.map_err(|e| e.to_string())?;
            let bundle = serde_json::to_value(&bundle).map_err(|e| e.to_string())?;
            condition(&bundle, "Deployed")
                .map(drop)
                .ok_or_else(|| bundle["status"].to_string())
        })
        .await
        .with_context(|| agent.agent_log_tail(30))?;
    }
    // Nothing went where a path would have led.
    for namespace in ["kube-system", "default"] {
        let maps = agent.objects("v1", "ConfigMap", namespace);
        let maps = maps.list(&kube::api::ListParams::default()).await?.items;
        let ours = maps.iter().any(|map| {
            let name = map.metadata.name.as_deref().unwrap_or_default();
            stored.contains(&name)
        });
        ensure!(!ours, "something is in {namespace}");
    }
    unharmed(&agent).await
}

/// As many levels of maps.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }))
}

/// Writes what kube's own types cannot read back, as they stop at 128 levels.
async fn send(agent: &TestAgent<'_>, method: &str, name: &str, body: &Value) -> Result<()> {
    let namespace = agent.deployment_namespace()?;
    let kind = "application/merge-patch+json";
    let (name, content_type) = match method {
        "POST" => (String::new(), "application/json"),
        _ => (format!("/{name}"), kind),
    };
    let request = http::Request::builder()
        .method(method)
        .uri(format!(
            "/apis/fleet.cattle.io/v1alpha1/namespaces/{namespace}/bundledeployments{name}"
        ))
        .header("Content-Type", content_type)
        .body(serde_json::to_vec(body)?)?;
    agent.upstream.request_text(request).await?;
    Ok(())
}

async fn create(agent: &TestAgent<'_>, bundle: &BundleDeployment) -> Result<()> {
    let objects = bundle.build(agent.deployment_namespace()?)?;
    if let Some(content) = objects.content {
        apply(&agent.upstream, content).await?;
    }
    send(agent, "POST", bundle.name(), &objects.bundle_deployment).await
}

/// The log names the bundle, and why it is neither deployed nor removed.
async fn wait_named(agent: &TestAgent<'_>, name: &str, why: &str, times: usize) -> Result<()> {
    let named = format!("\"name\":\"{name}\"");
    wait_until(&format!("the log to name {name}"), PATIENCE, async || {
        let log = agent.process.as_ref().map(|agent| agent.log());
        let log = log.unwrap_or_default();
        let lines = log.lines().filter(|line| line.contains(&named));
        match lines.filter(|line| line.contains(why)).count() {
            count if count >= times => Ok(()),
            count => Err(format!("{count} times")),
        }
    })
    .await
    .with_context(|| agent.agent_log_tail(20))
}

/// BundleDeployments that nest deep, take much once they are read, or have lists without end stand between others in one list and one watch: each costs
/// itself alone, also after a restart, and one that was deployed before stays as it is.
#[tokio::test]
async fn a_bundle_too_deep_or_too_large_affects_no_other() -> Result<()> {
    const DEEP: &str = "spec is nested deeper than 1000 levels";
    const MUCH: &str = "spec takes more than 24 MiB once it is read";
    const MANY: &str = "spec.options.diff.comparePatches has more than 1000 elements";
    let mut agent = hurried().await?;
    agent.apply(&app(&agent, "turned")).await?;
    agent.apply(&app(&agent, "a-neighbour")).await?;
    agent.wait_ready("turned").await?;
    agent.wait_ready("a-neighbour").await?;
    // A map of one entry is 7 bytes of text and a hundred times as much in memory.
    let maps = |count: usize| Value::from(vec![json!({ "a": 0 }); count]);
    let patches = |count: usize| {
        let patch = json!({ "apiVersion": "v1", "kind": "ConfigMap", "jsonPointers": ["/data/x"] });
        json!({ "comparePatches": vec![patch; count] })
    };
    let deep = app(&agent, "deep").helm("values", nested(1_100));
    let below = app(&agent, "not-so-deep").helm("values", nested(400));
    let much = app(&agent, "much").helm("values", json!({ "all": maps(60_000) }));
    let large = app(&agent, "large").helm("values", json!({ "all": maps(3_000) }));
    let many = app(&agent, "many").option("diff", patches(1_001));
    for bundle in [&deep, &below, &much, &large, &many] {
        create(&agent, bundle).await?;
    }
    let values = json!({ "spec": { "options": { "helm": { "values": nested(1_100) } } } });
    send(&agent, "PATCH", "turned", &values).await?;
    for round in 1..=2 {
        wait_named(&agent, "deep", DEEP, round).await?;
        wait_named(&agent, "turned", DEEP, round).await?;
        wait_named(&agent, "much", MUCH, round).await?;
        agent
            .wait_deploy_error("many", |reported| reported.contains(MANY))
            .await?;
        agent.wait_ready("large").await?;
        agent.apply(&app(&agent, &format!("new-{round}"))).await?;
        agent.wait_ready(&format!("new-{round}")).await?;
        // It is read by name: what the test's client makes of its BundleDeployment is not the question.
        for name in ["not-so-deep", "turned"] {
            wait_until(&format!("what {name} has"), PATIENCE, async || {
                let found = agent.object("v1", "ConfigMap", &target(&agent), name).await;
                let found = found.map_err(|failed| failed.to_string())?;
                found.map(drop).ok_or_else(|| "nothing".to_owned())
            })
            .await?;
        }
        for name in ["deep", "much", "many"] {
            let found = agent
                .object("v1", "ConfigMap", &target(&agent), name)
                .await?;
            ensure!(found.is_none(), "{name}");
        }
        if round == 1 {
            agent.process()?.restart()?;
        }
    }
    // Whoever mends one has it deployed.
    let none = json!({ "helm": { "values": null } });
    let mended = json!({ "spec": { "options": none, "stagedOptions": none } });
    for name in ["deep", "turned"] {
        send(&agent, "PATCH", name, &mended).await?;
        agent.wait_ready(name).await?;
    }
    unharmed(&agent).await
}

/// What is done to a bootstrap Secret.
type Spoil = fn(&mut Value);

/// One agent meets one spoilt Secret after the other, and starts its work with the first good one.
#[tokio::test]
async fn invalid_values_secrets_are_reported_until_a_valid_one_exists() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.start(haste())?;
    let refused = "\"failed to register agent\"";
    let failures = |agent: &TestAgent<'_>| {
        let log = agent.process.as_ref().map(|agent| agent.log());
        log.unwrap_or_default().matches(refused).count()
    };
    let reported = async |agent: &TestAgent<'_>, what: &str| {
        let before = failures(agent);
        wait_until(&format!("{what} to be told"), PATIENCE, async || {
            // The attempt that was on its way does not count.
            match failures(agent) {
                now if now > before + 1 => Ok(()),
                now => Err(now.to_string()),
            }
        })
        .await
        .with_context(|| agent.agent_log_tail(20))
    };
    let spoils: &[(&str, Spoil)] = &[
        ("nothing in it", |data| *data = json!({})),
        ("no address", |data| data["apiServerURL"] = json!("")),
        ("an address that is none", |data| {
            data["apiServerURL"] = json!("::/nowhere");
        }),
        ("an authority that is none", |data| {
            data["apiServerCA"] =
                json!("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        }),
        ("a token with a line break", |data| {
            data["token"] = json!("a\nb")
        }),
        ("an empty token", |data| data["token"] = json!("")),
        ("a namespace that is a path", |data| {
            data["clusterNamespace"] = json!("../../secrets");
        }),
    ];
    reported(&agent, "no secret at all").await?;
    for (what, spoil) in spoils {
        agent.bootstrap(spoil).await?;
        reported(&agent, what).await?;
    }
    for (what, kubeconfig) in [
        ("no kubeconfig", ""),
        ("a kubeconfig that is none", "\u{0}{{{"),
        ("an empty kubeconfig", "{}"),
        (
            "a kubeconfig with files",
            "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'https://127.0.0.1:1', certificate-authority: /nowhere}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\nusers: [{name: a, user: {tokenFile: /nowhere}}]\n",
        ),
    ] {
        agent
            .secret("fleet-agent", json!({ "kubeconfig": kubeconfig }))
            .await?;
        reported(&agent, what).await?;
    }
    // An invalid configuration is reported as well; none at all means the defaults.
    let maps = agent.objects("v1", "ConfigMap", &agent.system_namespace);
    let spoilt = json!({ "data": { "config": "{ not: [yaml" } });
    maps.patch(
        "fleet-agent",
        &PatchParams::default(),
        &Patch::Merge(&spoilt),
    )
    .await?;
    agent.bootstrap(|_| ()).await?;
    reported(&agent, "a configuration that is none").await?;
    let empty = json!({ "data": null });
    maps.patch(
        "fleet-agent",
        &PatchParams::default(),
        &Patch::Merge(&empty),
    )
    .await?;
    wait_event(&agent, "Registered", "").await?;
    let log = agent.process()?.log();
    ensure!(!log.contains("panicked"), "{log}");
    Ok(())
}

/// A namespace that does not end, a quota that is used up, a webhook that refuses and one that never answers: reported in the API
/// server's words, and Ready once the cause is gone.
#[tokio::test]
async fn a_refusal_of_the_cluster_is_reported_and_retried() -> Result<()> {
    let agent = hurried().await?;
    // A namespace that is being deleted for as long as something in it is held.
    let ending = manifests(&agent, "ending", &map("ending", "a"));
    let name = namespace_of(&agent, "ending");
    for object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "held", "namespace": name, "finalizers": ["example.com/hold"] },
        }),
    ] {
        apply(&agent.downstream, object).await?;
    }
    let namespaces = agent.objects("v1", "Namespace", "");
    namespaces.delete(&name, &DeleteParams::default()).await?;
    agent.apply(&ending).await?;
    agent
        .wait_deploy_error("ending", |message| message.contains("being terminated"))
        .await?;

    // A quota.
    let name = namespace_of(&agent, "quota");
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    apply(&agent.downstream, namespace).await?;
    limit(&agent, &name, "count/services", "0").await?;
    let service =
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: quota\nspec:\n  ports: [{port: 80}]\n";
    agent.apply(&manifests(&agent, "quota", service)).await?;
    agent
        .wait_deploy_error("quota", |message| message.contains("exceeded quota"))
        .await?;

    // Webhooks: one whose address refuses connections, one that hangs until its time is over.
    let wire = Wire::to("127.0.0.1:1").await?;
    wire.set(State::Silent);
    let (hook, hooked) = (unique("hook"), namespace_of(&agent, "hooked"));
    let webhook = |url: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": hook },
            "webhooks": [{
                "name": "no.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Fail", "timeoutSeconds": 2, "clientConfig": { "url": url },
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": hooked } },
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"],
                }],
            }],
        })
    };
    apply(&agent.downstream, webhook("https://127.0.0.1:1/")).await?;
    agent
        .apply(&manifests(&agent, "hooked", &map("hooked", "a")))
        .await?;
    agent
        .wait_deploy_error("hooked", |message| message.contains("no.example.com"))
        .await?;
    apply(&agent.downstream, webhook(&wire.https_url())).await?;
    agent
        .wait_deploy_error("hooked", |message| message.contains("deadline exceeded"))
        .await?;
    // Others are not held up by any of them.
    unharmed(&agent).await?;

    let release = json!({ "metadata": { "finalizers": null } });
    agent
        .objects("v1", "ConfigMap", &namespace_of(&agent, "ending"))
        .patch("held", &PatchParams::default(), &Patch::Merge(&release))
        .await?;
    limit(
        &agent,
        &namespace_of(&agent, "quota"),
        "count/services",
        "9",
    )
    .await?;
    agent
        .objects(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            "",
        )
        .delete(&hook, &DeleteParams::default())
        .await?;
    for name in ["ending", "quota", "hooked"] {
        agent.wait_ready(name).await?;
    }
    Ok(())
}

/// A definition that is deleted takes its objects with it, whatever owns them.
#[tokio::test]
async fn a_kind_that_is_no_longer_served_is_reported_and_deployed_again_once_it_is() -> Result<()> {
    let agent = hurried().await?;
    let group = format!("{}.example.com", unique("gone"));
    let definition = widgets(&group);
    apply(&agent.downstream, definition.clone()).await?;
    let text = format!(
        "{}apiVersion: {group}/v1\nkind: Widget\nmetadata:\n  name: first\nspec: {{a: 1}}\n",
        map("beside", "a")
    );
    let bundle = manifests(&agent, "widgets", &text).correct_drift();
    agent.apply(&bundle).await?;
    agent.wait_ready("widgets").await?;
    agent
        .objects("apiextensions.k8s.io/v1", "CustomResourceDefinition", "")
        .delete(&format!("widgets.{group}"), &DeleteParams::default())
        .await?;
    agent
        .wait_for("widgets", "to tell that a kind is gone", |bundle| {
            let status = &bundle["status"];
            let told = &status["modifiedStatus"][0];
            let monitored = condition(bundle, "Monitored").unwrap_or(&Value::Null);
            let why = monitored["message"].as_str().unwrap_or_default();
            told["name"] == "first"
                && told["missing"] == true
                && status["nonModified"] != true
                && monitored["status"] == "False"
                && why.contains("no matches for kind \"Widget\"")
        })
        .await?;
    wait_event(&agent, "KindMissing", "widgets").await?;
    unharmed(&agent).await?;
    apply(&agent.downstream, definition).await?;
    agent.wait_ready("widgets").await?;
    let widget = agent
        .object(
            &format!("{group}/v1"),
            "Widget",
            &namespace_of(&agent, "widgets"),
            "first",
        )
        .await?;
    ensure!(widget.context("the widget is back")?.data["spec"]["a"] == 1);
    Ok(())
}

/// A chart that brings a kind goes from one version of it to the next, and the old one is not served any more: the object is the
/// same, and is watched as it was.
#[tokio::test]
async fn a_kind_is_still_watched_after_its_version_changed() -> Result<()> {
    let (agent, fault_proxy) = behind_faults().await?;
    let group = format!("{}.example.com", unique("versions"));
    let chart = |version: &str| {
        let mut definition = widgets(&group);
        let mut served = definition["spec"]["versions"][0].clone();
        let mut versions = Vec::new();
        for name in ["v1alpha1", "v1"] {
            served["name"] = json!(name);
            // What was stored in a version stays readable by it as long as it is listed.
            served["served"] = json!(name == version);
            served["storage"] = json!(name == "v1");
            versions.push(served.clone());
        }
        definition["spec"]["versions"] = json!(versions);
        let widget = format!(
            "apiVersion: {group}/{version}\nkind: Widget\nmetadata: {{name: w}}\nspec: {{a: 1}}\n"
        );
        let text = format!("{definition}\n---\n{widget}");
        manifests(&agent, "versions", &text).correct_drift()
    };
    let namespace = namespace_of(&agent, "versions");
    let mut uids = Vec::new();
    for version in ["v1alpha1", "v1"] {
        agent.apply(&chart(version)).await?;
        agent.wait_ready("versions").await?;
        let widgets = agent.objects(&format!("{group}/{version}"), "Widget", &namespace);
        uids.push(widgets.get("w").await?.metadata.uid);
        // A watch may live on for a while in a version that is not served any more.
        fault_proxy.expire_watches();
        let edit = json!({ "spec": { "a": 2 } });
        widgets
            .patch("w", &PatchParams::default(), &Patch::Merge(&edit))
            .await?;
        wait_until("the edit to be put right", PATIENCE, async || {
            let widget = widgets.get("w").await.map_err(|e| e.to_string())?;
            if widget.data["spec"]["a"] == 1 {
                Ok(())
            } else {
                Err(widget.data.to_string())
            }
        })
        .await
        .with_context(|| agent.agent_log_tail(30))?;
    }
    ensure!(uids[0] == uids[1], "{uids:?}");
    Ok(())
}

/// An API group whose server hangs or is not there: what is of that group waits, everything else goes on.
#[tokio::test]
async fn an_unavailable_api_group_delays_no_other_bundle() -> Result<()> {
    // A bed of its own: such a group hinders discovery and the deletion of namespaces for everybody.
    let bed = Bed::start(true).await?;
    let mut agent = TestAgent::prepare(&bed).await?;
    agent.grant().await?;
    let group = "broken.example.com";
    for object in [
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "nowhere", "namespace": "default" },
            "spec": { "ports": [{ "port": 443 }] },
        }),
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": { "name": format!("v1.{group}") },
            "spec": {
                "group": group, "version": "v1", "insecureSkipTLSVerify": true,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": { "name": "nowhere", "namespace": "default" },
            },
        }),
    ] {
        apply(&agent.downstream, object).await?;
    }
    agent.start(haste())?;
    let thing = format!("apiVersion: {group}/v1\nkind: Thing\nmetadata:\n  name: a\n");
    agent.apply(&manifests(&agent, "thing", &thing)).await?;
    deploy(&agent, "other", 3).await?;
    agent
        .wait_deploy_error("thing", |message| message.contains("no matches for kind"))
        .await?;
    unharmed(&agent).await
}

/// Two bundles with one release name that say they take it: the one that was changed last has it, and none is uninstalled by the other's end.
#[tokio::test]
async fn a_release_is_removed_with_the_bundle_that_took_it_over_last() -> Result<()> {
    let agent = hurried().await?;
    let own = crate::scene::own(&agent);
    agent.apply(&own).await?;
    agent.wait_ready(own.name()).await?;
    let claim = |name: &str, text: &str| {
        BundleDeployment::content(
            name,
            vec![("map.yaml".to_owned(), map("shared", text).into())],
        )
        .release("web", &target(&agent))
        .helm("takeOwnership", json!(true))
    };
    agent.apply(&claim("first", "one")).await?;
    agent.wait_ready("first").await?;
    agent.apply(&claim("second", "two")).await?;
    agent.wait_ready("second").await?;
    // The former owner goes, as when a bundle is renamed: the release stays.
    agent.delete("first").await?;
    unharmed(&agent).await?;
    let shared = agent
        .object("v1", "ConfigMap", &target(&agent), "shared")
        .await?;
    ensure!(shared.context("the release is there")?.data["data"]["key"] == "two");
    agent.delete("second").await?;
    crate::scene::gone(&agent, &["shared".to_owned()], PATIENCE).await
}

/// A log that cannot be written (a full disk) does not stop the work.
#[tokio::test]
async fn a_log_that_cannot_be_written_stops_nothing() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    agent.grant().await?;
    let log = format!("agent-{}.log", agent.id);
    let log = agent.bed.group.directory().join(log);
    std::os::unix::fs::symlink("/dev/full", &log)?;
    agent.start(BTreeMap::new())?;
    // It is open now; whoever reads it to the end would never come back.
    std::fs::remove_file(&log)?;
    deploy(&agent, "web", 1).await?;
    unharmed(&agent).await
}
