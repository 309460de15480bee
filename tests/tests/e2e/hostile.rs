//! Worlds that are against the agent: spoilt Secrets, garbage in every field, namespaces that do not end, webhooks that refuse or
//! never answer, quotas, kinds that go and API groups that hang. Each is told, harms nobody else, and heals without a restart.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::bed::{Bed, unique};
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::site::{PATIENCE, Site, condition};
use testbed::meddler::Meddler;
use testbed::wait::wait_until;
use testbed::wire::{State, Wire};

use crate::scene::{app, deploy, figure, haste, hasty, target, wait_event, widgets};

async fn hurried() -> Result<Site<'static>> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    hasty(&mut site).await?;
    Ok(site)
}

/// A bundle of these manifests, in a namespace of its own.
fn manifests(site: &Site<'_>, name: &str, text: &str) -> BundleDeployment {
    BundleDeployment::content(name, vec![("all.yaml".to_owned(), text.into())])
        .release(name, &namespace_of(site, name))
}

fn namespace_of(site: &Site<'_>, name: &str) -> String {
    format!("{}-{name}", site.id)
}

fn map(name: &str, text: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: {text}\n---\n"
    )
}

/// The agent lives: nothing panicked, and a new bundle is deployed.
async fn unharmed(site: &Site<'_>) -> Result<()> {
    for controller in ["bundledeployment", "drift-reconciler"] {
        let panics =
            format!("controller_runtime_reconcile_panics_total{{controller=\"{controller}\"}}");
        let panics = figure(site, &panics).await.map_err(anyhow::Error::msg)?;
        ensure!(panics == 0, "{}", site.agent_log_tail(60));
    }
    deploy(site, &unique("after"), 1).await.map(drop)
}

#[tokio::test]
async fn garbage_in_every_field_is_told_and_harms_nobody() -> Result<()> {
    let site = hurried().await?;
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
    let plain = |index: usize, kind: &str| app(&site, &format!("{kind}-{index}"));
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
        if site.apply(bundle).await.is_ok() {
            stored.push(bundle.name());
        }
    }
    ensure!(stored.len() * 3 > all.len() * 2, "{stored:?}");
    // While they are tried again and again, others are deployed.
    unharmed(&site).await?;
    let bundles = site.bundle_deployments()?;
    for name in &stored {
        wait_until(&format!("{name} to be judged"), PATIENCE, async || {
            let bundle = bundles.get(name).await.map_err(|e| e.to_string())?;
            let bundle = serde_json::to_value(&bundle).map_err(|e| e.to_string())?;
            condition(&bundle, "Deployed")
                .map(drop)
                .ok_or_else(|| bundle["status"].to_string())
        })
        .await
        .with_context(|| site.agent_log_tail(30))?;
    }
    // Nothing went where a path would have led.
    for namespace in ["kube-system", "default"] {
        let maps = site.objects("v1", "ConfigMap", namespace);
        let maps = maps.list(&kube::api::ListParams::default()).await?.items;
        let ours = maps.iter().any(|map| {
            let name = map.metadata.name.as_deref().unwrap_or_default();
            stored.contains(&name)
        });
        ensure!(!ours, "something is in {namespace}");
    }
    unharmed(&site).await
}

/// What is done to a bootstrap Secret.
type Spoil = fn(&mut Value);

/// One agent meets one spoilt Secret after the other, and starts its work with the first good one.
#[tokio::test]
async fn spoilt_secrets_are_told_until_a_good_one_comes() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    site.start(haste())?;
    let refused = "\"failed to register agent\"";
    let failures = |site: &Site<'_>| {
        let log = site.agent.as_ref().map(|agent| agent.log());
        log.unwrap_or_default().matches(refused).count()
    };
    let told = async |site: &Site<'_>, what: &str| {
        let before = failures(site);
        wait_until(&format!("{what} to be told"), PATIENCE, async || {
            // The attempt that was on its way does not count.
            match failures(site) {
                now if now > before + 1 => Ok(()),
                now => Err(now.to_string()),
            }
        })
        .await
        .with_context(|| site.agent_log_tail(20))
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
    told(&site, "no secret at all").await?;
    for (what, spoil) in spoils {
        site.bootstrap(spoil).await?;
        told(&site, what).await?;
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
        site.secret("fleet-agent", json!({ "kubeconfig": kubeconfig }))
            .await?;
        told(&site, what).await?;
    }
    // A configuration that is none is told as well; none at all means the defaults.
    let maps = site.objects("v1", "ConfigMap", &site.system_namespace);
    let spoilt = json!({ "data": { "config": "{ not: [yaml" } });
    maps.patch(
        "fleet-agent",
        &PatchParams::default(),
        &Patch::Merge(&spoilt),
    )
    .await?;
    site.bootstrap(|_| ()).await?;
    told(&site, "a configuration that is none").await?;
    let empty = json!({ "data": null });
    maps.patch(
        "fleet-agent",
        &PatchParams::default(),
        &Patch::Merge(&empty),
    )
    .await?;
    wait_event(&site, "Registered", "").await?;
    let log = site.agent()?.log();
    ensure!(!log.contains("panicked"), "{log}");
    Ok(())
}

/// A namespace that does not end, a quota that is used up, a webhook that refuses and one that never answers: told in the API
/// server's words, and Ready once the cause is gone.
#[tokio::test]
async fn a_cluster_that_refuses_is_told_and_waited_for() -> Result<()> {
    let site = hurried().await?;
    // A namespace that is being deleted for as long as something in it is held.
    let ending = manifests(&site, "ending", &map("ending", "a"));
    let name = namespace_of(&site, "ending");
    for object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "held", "namespace": name, "finalizers": ["example.com/hold"] },
        }),
    ] {
        apply(&site.downstream, object).await?;
    }
    let namespaces = site.objects("v1", "Namespace", "");
    namespaces.delete(&name, &DeleteParams::default()).await?;
    site.apply(&ending).await?;
    site.wait_deploy_error("ending", |message| message.contains("being terminated"))
        .await?;

    // A quota.
    let name = namespace_of(&site, "quota");
    let quota = |count: &str| {
        json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": { "name": "few", "namespace": name },
            "spec": { "hard": { "count/services": count } },
        })
    };
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    apply(&site.downstream, namespace).await?;
    apply(&site.downstream, quota("0")).await?;
    let service =
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: quota\nspec:\n  ports: [{port: 80}]\n";
    site.apply(&manifests(&site, "quota", service)).await?;
    site.wait_deploy_error("quota", |message| message.contains("exceeded quota"))
        .await?;

    // Webhooks: one that is told "no" by the address nobody listens at, one that hangs until its time is over.
    let wire = Wire::to("127.0.0.1:1").await?;
    wire.set(State::Silent);
    let (hook, hooked) = (unique("hook"), namespace_of(&site, "hooked"));
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
    apply(&site.downstream, webhook("https://127.0.0.1:1/")).await?;
    site.apply(&manifests(&site, "hooked", &map("hooked", "a")))
        .await?;
    site.wait_deploy_error("hooked", |message| message.contains("no.example.com"))
        .await?;
    apply(&site.downstream, webhook(&wire.https_url())).await?;
    site.wait_deploy_error("hooked", |message| message.contains("deadline exceeded"))
        .await?;
    // Others are not held up by any of them.
    unharmed(&site).await?;

    let release = json!({ "metadata": { "finalizers": null } });
    site.objects("v1", "ConfigMap", &namespace_of(&site, "ending"))
        .patch("held", &PatchParams::default(), &Patch::Merge(&release))
        .await?;
    apply(&site.downstream, quota("9")).await?;
    site.objects(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "",
    )
    .delete(&hook, &DeleteParams::default())
    .await?;
    for name in ["ending", "quota", "hooked"] {
        site.wait_ready(name).await?;
    }
    Ok(())
}

/// A definition that is deleted takes its objects with it, whatever owns them.
#[tokio::test]
async fn a_kind_that_goes_is_told_and_deployed_anew_when_it_is_back() -> Result<()> {
    let site = hurried().await?;
    let group = format!("{}.example.com", unique("gone"));
    let definition = widgets(&group);
    apply(&site.downstream, definition.clone()).await?;
    let text = format!(
        "{}apiVersion: {group}/v1\nkind: Widget\nmetadata:\n  name: first\nspec: {{a: 1}}\n",
        map("beside", "a")
    );
    let bundle = manifests(&site, "widgets", &text).correct_drift();
    site.apply(&bundle).await?;
    site.wait_ready("widgets").await?;
    site.objects("apiextensions.k8s.io/v1", "CustomResourceDefinition", "")
        .delete(&format!("widgets.{group}"), &DeleteParams::default())
        .await?;
    site.wait_for("widgets", "to tell that a kind is gone", |bundle| {
        let status = &bundle["status"];
        let is_false = |name| condition(bundle, name).is_some_and(|c| c["status"] == "False");
        is_false("Ready") || is_false("Monitored") || status["nonModified"] == false
    })
    .await?;
    unharmed(&site).await?;
    apply(&site.downstream, definition).await?;
    site.wait_ready("widgets").await?;
    let widget = site
        .object(
            &format!("{group}/v1"),
            "Widget",
            &namespace_of(&site, "widgets"),
            "first",
        )
        .await?;
    ensure!(widget.context("the widget is back")?.data["spec"]["a"] == 1);
    Ok(())
}

/// A chart that brings a kind goes from one version of it to the next, and the old one is not served any more: the object is the
/// same, and is watched as it was.
#[tokio::test]
async fn a_kind_that_changes_its_version_is_watched_on() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    site.grant().await?;
    let downstream = &site.bed.downstream;
    let meddler = Meddler::before(downstream.kubeconfig_value(&site.user, "default")).await?;
    site.start_at(meddler.url(), haste())?;
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
        manifests(&site, "versions", &text).correct_drift()
    };
    let namespace = namespace_of(&site, "versions");
    let mut uids = Vec::new();
    for version in ["v1alpha1", "v1"] {
        site.apply(&chart(version)).await?;
        site.wait_ready("versions").await?;
        let widgets = site.objects(&format!("{group}/{version}"), "Widget", &namespace);
        uids.push(widgets.get("w").await?.metadata.uid);
        // A watch may live on for a while in a version that is not served any more.
        meddler.expire_watches();
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
        .with_context(|| site.agent_log_tail(30))?;
    }
    ensure!(uids[0] == uids[1], "{uids:?}");
    Ok(())
}

/// An API group whose server hangs or is not there: what is of that group waits, everything else goes on.
#[tokio::test]
async fn an_api_group_without_a_server_holds_nobody_else_up() -> Result<()> {
    // A bed of its own: such a group is in everybody's way who looks at what is served, or ends a namespace.
    let bed = Bed::start(true).await?;
    let mut site = Site::prepare(&bed).await?;
    site.grant().await?;
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
        apply(&site.downstream, object).await?;
    }
    site.start(haste())?;
    let thing = format!("apiVersion: {group}/v1\nkind: Thing\nmetadata:\n  name: a\n");
    site.apply(&manifests(&site, "thing", &thing)).await?;
    deploy(&site, "other", 3).await?;
    site.wait_deploy_error("thing", |message| message.contains("no matches for kind"))
        .await?;
    unharmed(&site).await
}

/// Two bundles with one release name that say they take it: the one that was changed last has it, and none is uninstalled by the other's end.
#[tokio::test]
async fn a_release_goes_with_the_bundle_that_claimed_it_last() -> Result<()> {
    let site = hurried().await?;
    let own = crate::scene::own(&site);
    site.apply(&own).await?;
    site.wait_ready(own.name()).await?;
    let claim = |name: &str, text: &str| {
        BundleDeployment::content(
            name,
            vec![("map.yaml".to_owned(), map("shared", text).into())],
        )
        .release("web", &target(&site))
        .helm("takeOwnership", json!(true))
    };
    site.apply(&claim("first", "one")).await?;
    site.wait_ready("first").await?;
    site.apply(&claim("second", "two")).await?;
    site.wait_ready("second").await?;
    // The former owner goes, as when a bundle is renamed: the release stays.
    site.delete("first").await?;
    unharmed(&site).await?;
    let shared = site
        .object("v1", "ConfigMap", &target(&site), "shared")
        .await?;
    ensure!(shared.context("the release is there")?.data["data"]["key"] == "two");
    site.delete("second").await?;
    crate::scene::gone(&site, &["shared".to_owned()], PATIENCE).await
}

/// A log that cannot be written (a full disk) does not stop the work.
#[tokio::test]
async fn a_full_disk_stops_nothing() -> Result<()> {
    let mut site = Site::prepare(Bed::shared().await?).await?;
    site.grant().await?;
    let log = format!("agent-{}.log", site.id);
    let log = site.bed.group.directory().join(log);
    std::os::unix::fs::symlink("/dev/full", &log)?;
    site.start(BTreeMap::new())?;
    // It is open now; whoever reads it to the end would never come back.
    std::fs::remove_file(&log)?;
    deploy(&site, "web", 1).await?;
    unharmed(&site).await
}
