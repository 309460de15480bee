//! `${ }` filled in on the cluster: the Cluster API example, sources of facts, modes, and a site that holds deploys.

use std::path::Path;

use anyhow::{Context, Result, bail};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::bed::{Bed, unique};
use testbed::chart::Chart;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::{apply, resource};
use testbed::fleet::test_agent::{PATIENCE, TestAgent, condition};
use testbed::wait::wait_until;

/// The values of the user's bundle, word for word.
const CALICO: &str = r#"cni:
  type: Calico
  ipam:
    type: HostLocal
calicoNetwork:
  bgp: Disabled
  mtu: 1350
  ipPools: ${- range $cidr := .ClusterValues.Cluster.spec.clusterNetwork.pods.cidrBlocks }
  - cidr: "${ $cidr }"
    encapsulation: None
    natOutgoing: Enabled
    nodeSelector: all()${- end}"#;

const INSTALLATION_CRD: &str = r#"apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: installations.operator.example.com
spec:
  group: operator.example.com
  scope: Cluster
  names: {kind: Installation, plural: installations, singular: installation}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
"#;

/// A chart shaped like tigera-operator's: a CRD, the operator, and an Installation made of values, which may be a map
/// or a text.
fn operator() -> Chart {
    Chart::small(&unique("operator"), "3.32.1")
        .file("crds/installations.yaml", INSTALLATION_CRD)
        .template(
            "installation.yaml",
            r#"{{- $spec := .Values.installation }}
{{- if kindIs "string" $spec }}{{ $spec = fromYaml $spec }}{{ end }}
apiVersion: operator.example.com/v1
kind: Installation
metadata:
  name: {{ .Release.Namespace }}
spec: {{- toYaml $spec | nindent 2 }}
"#,
        )
}

/// A chart that shows the values it got.
fn mirror(name: &str, version: &str) -> Chart {
    Chart::new(name, version).template(
        "values.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  values: {{ .Values | toJson | quote }}\n",
    )
}

async fn mirrored(agent: &TestAgent<'_>, namespace: &str, name: &str) -> Result<Value> {
    let map = agent.object("v1", "ConfigMap", namespace, name).await?;
    let map = map.with_context(|| format!("ConfigMap {namespace}/{name} is there"))?;
    let text = map.data["data"]["values"].as_str().context("a text")?;
    Ok(serde_json::from_str(text)?)
}

fn blocks(cidrs: &[&str]) -> Value {
    json!({ "Cluster": { "spec": { "clusterNetwork": { "pods": { "cidrBlocks": cidrs } } } } })
}

/// Changes the Cluster upstream as a person does.
async fn describe_cluster(agent: &TestAgent<'_>, change: Value) -> Result<()> {
    let granted = agent.granted.as_ref().context("a registered cluster")?;
    let clusters = Api::<DynamicObject>::namespaced_with(
        agent.upstream.clone(),
        &granted.cluster_namespace,
        &resource("Cluster"),
    );
    let parameters = PatchParams::default();
    clusters
        .patch(&granted.cluster_name, &parameters, &Patch::Merge(&change))
        .await?;
    Ok(())
}

/// Lets the agent read its own Cluster, with the manifest we ship.
async fn grant_facts(agent: &TestAgent<'_>) -> Result<()> {
    let granted = agent.granted.as_ref().context("a registered cluster")?;
    let shipped =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/upstream/cluster-facts.yaml");
    let text = std::fs::read_to_string(shipped)?
        .replace("CLUSTER_NAMESPACE", &granted.cluster_namespace)
        .replace("AGENT_NAMESPACE", &granted.deployment_namespace)
        .replace("CLUSTER", &granted.cluster_name);
    for document in text.split("\n---\n") {
        apply(&agent.upstream, golib::yaml::decode(document.as_bytes())?).await?;
    }
    Ok(())
}

/// A registered cluster whose Cluster the agent may read, described by `cidrs`.
async fn described(bed: &'static Bed, cidrs: &[&str]) -> Result<TestAgent<'static>> {
    let mut agent = TestAgent::prepare(bed).await?;
    agent.grant().await?;
    grant_facts(&agent).await?;
    describe_cluster(
        &agent,
        json!({ "spec": { "templateValues": blocks(cidrs) } }),
    )
    .await?;
    agent.start([].into())?;
    Ok(agent)
}

/// Writes a ConfigMap in the agent's namespace.
async fn config_map(
    agent: &TestAgent<'_>,
    name: &str,
    data: Value,
    annotations: Value,
) -> Result<()> {
    let metadata = json!({
        "name": name, "namespace": agent.system_namespace, "annotations": annotations,
    });
    let map =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data });
    apply(&agent.downstream, map).await.map(drop)
}

async fn pools(agent: &TestAgent<'_>, name: &str) -> Result<Vec<String>> {
    let object = agent
        .object("operator.example.com/v1", "Installation", "", name)
        .await?;
    let object = object.context("the Installation is there")?;
    let pools = object.data["spec"]["calicoNetwork"]["ipPools"].as_array();
    let pools = pools.context("pools")?.iter();
    Ok(pools
        .map(|pool| pool["cidr"].as_str().unwrap_or_default().to_owned())
        .collect())
}

async fn wait_pools(agent: &TestAgent<'_>, name: &str, expected: &[&str]) -> Result<()> {
    wait_until("the Installation has the pools", PATIENCE, async || {
        let found = pools(agent, name).await.map_err(|e| format!("{e:#}"))?;
        match found == expected {
            true => Ok(()),
            false => Err(format!("{found:?}")),
        }
    })
    .await
}

fn release(bundle: &Value) -> String {
    bundle["status"]["release"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Both forms of the example, on clusters with one and with two blocks; then the Cluster changes upstream.
#[tokio::test]
async fn the_cluster_api_example_gets_its_pools() -> Result<()> {
    let bed = Bed::shared().await?;
    let chart = operator();
    bed.repository.add(&chart)?;
    let one = described(bed, &["192.168.0.0/16"]).await?;
    let two = described(bed, &["10.42.0.0/16", "10.44.0.0/16"]).await?;
    let native = |agent: &TestAgent<'_>, form: &str| {
        let namespace = format!("{}-{form}", agent.id);
        let bundle = BundleDeployment::native(form, bed.repository.url(), chart.name(), "");
        (bundle.release("calico", &namespace), namespace)
    };
    let (words, in_words) = native(&one, "words");
    one.apply(&words.helm("values", json!({ "installation": CALICO })))
        .await?;
    let (parsed, in_parsed) = native(&two, "parsed");
    two.apply(&parsed.helm("templateValues", json!({ "installation": CALICO })))
        .await?;
    // Reads nothing: stays as it is when facts change.
    let (plain, in_plain) = native(&two, "plain");
    two.apply(&plain.helm("values", json!({ "installation": { "a": "b" } })))
        .await?;

    one.wait_ready("words").await?;
    two.wait_ready("parsed").await?;
    two.wait_ready("plain").await?;
    assert_eq!(pools(&one, &in_words).await?, ["192.168.0.0/16"]);
    assert_eq!(
        pools(&two, &in_parsed).await?,
        ["10.42.0.0/16", "10.44.0.0/16"]
    );

    let cidrs = ["10.42.0.0/16", "10.44.0.0/16", "10.46.0.0/16"];
    describe_cluster(
        &two,
        json!({ "spec": { "templateValues": blocks(&cidrs) } }),
    )
    .await?;
    wait_pools(&two, &in_parsed, &cidrs).await?;
    // A fact nobody reads: nothing is deployed. The next change proves that it was seen.
    describe_cluster(&two, json!({ "metadata": { "labels": { "rack": "7" } } })).await?;
    describe_cluster(
        &two,
        json!({ "spec": { "templateValues": blocks(&cidrs[..1]) } }),
    )
    .await?;
    wait_pools(&two, &in_parsed, &cidrs[..1]).await?;
    let third = format!("{in_parsed}/calico:3");
    two.wait_for("parsed", "to be at its third revision", |bundle| {
        release(bundle) == third
    })
    .await?;
    let plain = two.wait_ready("plain").await?;
    assert_eq!(release(&plain), format!("{in_plain}/calico:1"));
    Ok(())
}

/// One bundle misses a key, the other does not care; the key comes, and the bundle goes on by itself.
#[tokio::test]
async fn a_missing_key_fails_that_bundle_alone() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = mirror(&unique("mirror"), "1.0.0");
    bed.repository.add(&chart)?;
    let target = format!("{}-app", agent.id);
    let bundle = |name: &str, values: Value| {
        BundleDeployment::native(name, bed.repository.url(), chart.name(), "1.0.0")
            .release(name, &target)
            .helm("values", values)
    };
    agent
        .apply(&bundle(
            "misses",
            json!({ "a": 1, "rack": "${ .ClusterValues.rack }" }),
        ))
        .await?;
    agent
        .apply(&bundle("other", json!({ "name": "${ .ClusterName }" })))
        .await?;
    let message = agent
        .wait_deploy_error("misses", |message| message.contains("rack"))
        .await?;
    let granted = agent.granted.as_ref().context("a registered cluster")?;
    let expected = format!(
        "failed to render helm values template: template: values:2:23: executing \"values\" at \
         <.ClusterValues.rack>: map has no entry for key \"rack\"; cluster facts: Cluster {}/{} \
         upstream (not allowed), ConfigMap {system}/fleet-cluster-values (not there), ConfigMap \
         {system}/fleet-site (not there), Secret {system}/fleet-site (not there), this cluster (not \
         requested)",
        granted.cluster_namespace,
        granted.cluster_name,
        system = agent.system_namespace,
    );
    assert_eq!(message, expected);
    agent.wait_ready("other").await?;

    // The site's Secret is nearer than its ConfigMap.
    config_map(
        &agent,
        "fleet-site",
        json!({ "values": "rack: map" }),
        json!({}),
    )
    .await?;
    agent.wait_ready("misses").await?;
    agent
        .secret("fleet-site", json!({ "values": "rack: secret" }))
        .await?;
    let second = format!("{target}/misses:2");
    agent
        .wait_for("misses", "to be deployed again", |bundle| {
            release(bundle) == second
        })
        .await?;
    assert_eq!(mirrored(&agent, &target, "misses").await?["rack"], "secret");

    // A function that quotes what it cannot use quotes no fact.
    agent
        .secret("fleet-site", json!({ "values": "rack: hunter2-canary" }))
        .await?;
    let quoting = "${ mustToDate \"2006\" .ClusterValues.rack }";
    agent
        .apply(&bundle("quotes", json!({ "a": quoting })))
        .await?;
    let message = agent
        .wait_deploy_error("quotes", |message| message.contains("mustToDate"))
        .await?;
    assert!(message.contains("**REDACTED**"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");

    // Nor does a chart that says so, whatever of the Secret it is.
    let facts = "annotations: {token: hunter6-canary}\n";
    agent
        .secret("fleet-site", json!({ "facts": facts }))
        .await?;
    let failing = "${ fail .ClusterAnnotations.token }";
    agent
        .apply(&bundle("fails", json!({ "a": failing })))
        .await?;
    let message = agent
        .wait_deploy_error("fails", |message| message.contains("error calling fail"))
        .await?;
    assert!(message.contains("**REDACTED**"), "{message}");
    assert!(!message.contains("hunter6"), "{message}");

    // And one that cannot be read is told by its place.
    for broken in [
        "values: 1\npassword: *hunter4-canary",
        "a: 1\nb: !!int hunter7-canary",
    ] {
        agent
            .secret("fleet-site", json!({ "values": broken }))
            .await?;
        let message = agent
            .wait_deploy_error("fails", |message| message.contains("no YAML"))
            .await?;
        assert!(!message.contains("hunter"), "{message}");
    }
    agent
        .secret("fleet-site", json!({ "facts": "hunter8-canary: 1" }))
        .await?;
    let message = agent
        .wait_deploy_error("fails", |message| message.contains("that there is not"))
        .await?;
    assert!(!message.contains("hunter"), "{message}");
    assert!(!agent.agent_log_tail(usize::MAX).contains("hunter"));
    Ok(())
}

/// A source that makes no sense is named, without what it says.
#[tokio::test]
async fn invalid_facts_are_reported() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = mirror(&unique("mirror"), "1.0.0");
    bed.repository.add(&chart)?;
    let place = format!("ConfigMap {}/fleet-site", agent.system_namespace);
    let target = format!("{}-app", agent.id);
    let bundle = BundleDeployment::native("web", bed.repository.url(), chart.name(), "1.0.0")
        .release("web", &target)
        .helm("values", json!({ "name": "${ .ClusterName }" }));
    config_map(
        &agent,
        "fleet-site",
        json!({ "facts": "nmae: hunter2" }),
        json!({}),
    )
    .await?;
    agent.apply(&bundle).await?;
    let message = agent
        .wait_deploy_error("web", |message| message.contains("nmae"))
        .await?;
    assert_eq!(
        message,
        format!("{place} cannot be used: unknown field \"nmae\"")
    );
    config_map(
        &agent,
        "fleet-site",
        json!({ "facts": "name: [hunter2]" }),
        json!({}),
    )
    .await?;
    let message = agent
        .wait_deploy_error("web", |message| message.contains("no text"))
        .await?;
    assert_eq!(
        message,
        format!("{place} cannot be used: field \"name\" is no text")
    );
    config_map(
        &agent,
        "fleet-site",
        json!({ "facts": "name: edge", "local": "pods" }),
        json!({}),
    )
    .await?;
    let message = agent
        .wait_deploy_error("web", |message| message.contains("pods"))
        .await?;
    assert_eq!(
        message,
        format!(
            "{place}, key local: unknown local fact \"pods\": version, nodes, networks and cluster-api are known"
        )
    );
    config_map(
        &agent,
        "fleet-site",
        json!({ "facts": "name: edge", "local": "" }),
        json!({}),
    )
    .await?;
    agent.wait_ready("web").await?;
    assert_eq!(mirrored(&agent, &target, "web").await?["name"], "edge");
    Ok(())
}

/// Where Cluster API runs on the cluster itself, its Cluster is a fact, as are the networks the API server knows.
#[tokio::test]
async fn local_facts_are_read_from_the_cluster() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = mirror(&unique("mirror"), "1.0.0");
    bed.repository.add(&chart)?;
    let crd = INSTALLATION_CRD
        .replace("operator.example.com", "cluster.x-k8s.io")
        .replace("kind: Installation", "kind: Cluster")
        .replace("installation", "cluster")
        .replace("scope: Cluster", "scope: Namespaced")
        .replace("name: v1\n", "name: v1beta1\n");
    let crd: Value = golib::yaml::decode(crd.as_bytes())?;
    apply(&agent.downstream, crd).await?;
    let name = &agent.granted.as_ref().context("granted")?.cluster_name;
    let network = json!({ "pods": { "cidrBlocks": ["10.42.0.0/16"] } });
    let clusters = agent.objects(
        "cluster.x-k8s.io/v1beta1",
        "Cluster",
        &agent.system_namespace,
    );
    let cluster: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "Cluster",
        "metadata": { "name": name },
        "spec": { "clusterNetwork": network },
    }))?;
    // The kind is served a moment after its definition was accepted.
    wait_until("the Cluster is accepted", PATIENCE, async || {
        let created = clusters.create(&PostParams::default(), &cluster).await;
        created.map(drop).map_err(|e| e.to_string())
    })
    .await?;
    config_map(
        &agent,
        "fleet-site",
        json!({ "local": "cluster-api networks version" }),
        json!({}),
    )
    .await?;
    let target = format!("{}-app", agent.id);
    let templates = json!({
        "pods": "${ toJson .ClusterValues.Cluster.spec.clusterNetwork.pods }",
        "services": "${ toJson .ClusterValues.Local.clusterNetwork.services }",
        "version": "${ .ClusterValues.Local.kubernetesVersion }",
        "nodes": "${ hasKey .ClusterValues.Local \"nodes\" }",
    });
    let bundle = BundleDeployment::native("web", bed.repository.url(), chart.name(), "1.0.0")
        .release("web", &target)
        .helm("templateValues", templates);
    agent.apply(&bundle).await?;
    agent.wait_ready("web").await?;
    let version = agent.downstream.apiserver_version().await?.git_version;
    assert_eq!(
        mirrored(&agent, &target, "web").await?,
        json!({
            "pods": { "cidrBlocks": ["10.42.0.0/16"] },
            "services": { "cidrBlocks": ["10.96.0.0/16"] },
            "version": version,
            "nodes": false,
        })
    );
    Ok(())
}

/// A chart that wants a map is given a text: the error names the value.
#[tokio::test]
async fn a_text_where_a_map_belongs_is_reported_by_path() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = described(bed, &["10.42.0.0/16"]).await?;
    let chart = Chart::small(&unique("strict"), "1.0.0").template(
        "strict.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: strict\ndata:\n  mtu: {{ .Values.installation.calicoNetwork.mtu | quote }}\n",
    );
    bed.repository.add(&chart)?;
    let bundle = BundleDeployment::native("strict", bed.repository.url(), chart.name(), "1.0.0")
        .release("strict", &format!("{}-app", agent.id));
    agent
        .apply(&bundle.helm("values", json!({ "installation": CALICO })))
        .await?;
    let message = agent
        .wait_deploy_error("strict", |message| message.contains("installation"))
        .await?;
    assert!(
        message.contains("<.Values.installation.calicoNetwork.mtu>"),
        "{message}"
    );
    assert!(
        message.contains("can't evaluate field calicoNetwork"),
        "{message}"
    );
    Ok(())
}

/// What came through the controller's Secret stays; an annotation or a setting says otherwise.
#[tokio::test]
async fn values_filled_in_by_the_controller_are_not_filled_in_again() -> Result<()> {
    const MODE: &str = "fleet.cattle.io/cluster-values";
    let bed = Bed::shared().await?;
    let mut agent = TestAgent::prepare(bed).await?;
    agent.grant().await?;
    agent.start([("FLEET_AGENT_CLUSTER_VALUES".to_owned(), "auto".to_owned())].into())?;
    let name = agent
        .granted
        .as_ref()
        .context("granted")?
        .cluster_name
        .clone();
    let chart = mirror(&unique("mirror"), "1.0.0");
    bed.repository.add(&chart)?;
    let target = format!("{}-app", agent.id);
    let bundle = |name: &str| {
        BundleDeployment::native(name, bed.repository.url(), chart.name(), "1.0.0")
            .release(name, &target)
    };
    let (raw, dollar) = ("${ .ClusterName }", json!({ "name": "${ .ClusterName }" }));
    let bundles = [
        (bundle("processed").values(dollar.clone()), raw),
        (bundle("inline").helm("values", dollar.clone()), &name),
        (
            bundle("never")
                .helm("values", dollar.clone())
                .annotation(MODE, "never"),
            raw,
        ),
        (
            bundle("always")
                .values(dollar.clone())
                .annotation(MODE, "always"),
            &name,
        ),
        // What the stock controller hands on of a HelmOp: labels, and values as they stand in its Secret.
        (
            bundle("labelled")
                .values(dollar.clone())
                .helm("disablePreProcess", json!(true))
                .label(MODE, "always"),
            &name,
        ),
        (
            bundle("kept-from-us")
                .values(dollar.clone())
                .helm("disablePreProcess", json!(true)),
            raw,
        ),
        (
            bundle("disabled")
                .helm("values", dollar.clone())
                .helm("disablePreProcess", json!(true)),
            raw,
        ),
    ];
    for (bundle, _) in &bundles {
        agent.apply(bundle).await?;
    }
    agent
        .apply(
            &bundle("unknown")
                .helm("values", dollar)
                .annotation(MODE, "perhaps"),
        )
        .await?;
    for (bundle, expected) in &bundles {
        agent.wait_ready(bundle.name()).await?;
        let found = mirrored(&agent, &target, bundle.name()).await?;
        assert_eq!(found["name"], **expected, "{}", bundle.name());
    }
    let message = agent
        .wait_deploy_error("unknown", |message| message.contains("mode"))
        .await?;
    assert_eq!(
        message,
        "unknown mode \"perhaps\" in fleet.cattle.io/cluster-values: auto, always or never is expected"
    );
    Ok(())
}

/// Version, release name and namespace by facts; installed once and left there.
#[tokio::test]
async fn version_name_and_namespace_are_filled_in_and_follow_the_facts() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let facts = "name: edge-1\nlabels: {ring: canary}\n";
    config_map(&agent, "fleet-site", json!({ "facts": facts }), json!({})).await?;
    let name = unique("mirror");
    for version in ["1.0.0", "2.0.0"] {
        bed.repository.add(&mirror(&name, version))?;
    }
    let version = "${ if eq .ClusterLabels.ring \"canary\" }2.0.0${ else }1.0.0${ end }";
    let namespace = format!("{}-${{ .ClusterName }}", agent.id);
    let bundle = |values: Value| {
        BundleDeployment::native("web", bed.repository.url(), &name, version)
            .option("namespace", json!(namespace))
            .helm("values", values)
            .annotation("fleet.cattle.io/release-name", "web-${ .ClusterName }")
            .annotation("fleet.cattle.io/install-once", "true")
    };
    agent.apply(&bundle(json!({ "a": "1" }))).await?;
    let ready = agent.wait_ready("web").await?;
    let target = format!("{}-edge-1", agent.id);
    assert_eq!(release(&ready), format!("{target}/web-edge-1:1"));
    let record = agent
        .object("v1", "Secret", &target, "sh.helm.release.v1.web-edge-1.v1")
        .await?;
    assert!(record.is_some());

    agent.apply(&bundle(json!({ "a": "2" }))).await?;
    let ready = agent.wait_ready("web").await?;
    assert_eq!(release(&ready), format!("{target}/web-edge-1:1"));
    assert_eq!(mirrored(&agent, &target, "web-edge-1").await?["a"], "1");
    Ok(())
}

/// A site holds deploys: nothing changes, reporting goes on, and what waited starts when the hold ends.
#[tokio::test]
async fn a_hold_annotation_stops_deploys_until_it_is_removed() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = Chart::small(&unique("web"), "1.0.0");
    bed.repository.add(&chart)?;
    let target = format!("{}-app", agent.id);
    let bundle = |name: &str, greeting: &str| {
        BundleDeployment::helm_op(name, bed.repository.url(), chart.name(), "1.0.0")
            .release(name, &target)
            .values(json!({ "greeting": greeting }))
            .correct_drift()
    };
    agent.apply(&bundle("web", "one")).await?;
    agent.apply(&bundle("gone", "one")).await?;
    agent.apply(&bundle("misled", "one")).await?;
    agent.wait_ready("web").await?;
    agent.wait_ready("gone").await?;
    agent.wait_ready("misled").await?;
    let hold = |value: &str| {
        let annotation = json!({ "fleet.cattle.io/hold-deploys": value });
        config_map(&agent, "fleet-site", json!({}), annotation)
    };
    hold("until Monday").await?;
    // The annotation has arrived when a new bundle reports it.
    agent.apply(&bundle("new", "one")).await?;
    let message = agent
        .wait_deploy_error("new", |message| message.starts_with("held"))
        .await?;
    assert_eq!(message, "held by site: until Monday");

    agent.apply(&bundle("web", "two")).await?;
    agent
        .wait_deploy_error("web", |message| message == "held by site: until Monday")
        .await?;
    // A status that names another release, whoever wrote it, hides nothing that is held up.
    let lie = json!({ "status": { "release": format!("{target}/web:1") } });
    agent
        .bundle_deployments()?
        .patch_status("misled", &PatchParams::default(), &Patch::Merge(&lie))
        .await?;
    let woken = json!({ "metadata": { "labels": { "example.com/round": "1" } } });
    agent
        .bundle_deployments()?
        .patch("misled", &PatchParams::default(), &Patch::Merge(&woken))
        .await?;
    agent
        .wait_deploy_error("misled", |message| message == "held by site: until Monday")
        .await?;
    agent.delete("gone").await?;
    let maps = agent.objects("v1", "ConfigMap", &target);
    let edit = Patch::Merge(json!({ "data": { "greeting": "edited" } }));
    maps.patch("web", &PatchParams::default(), &edit).await?;
    agent
        .wait_for("web", "to be reported as modified", |bundle| {
            bundle["status"]["modifiedStatus"]
                .as_array()
                .is_some_and(|all| !all.is_empty())
        })
        .await?;
    let map = agent
        .object("v1", "ConfigMap", &target, "web")
        .await?
        .context("there")?;
    assert_eq!(map.data["data"]["greeting"], "edited");
    assert!(
        agent
            .object("v1", "ConfigMap", &target, "gone")
            .await?
            .is_some()
    );
    assert!(
        agent
            .object("v1", "ConfigMap", &target, "new")
            .await?
            .is_none()
    );

    // A record that goes meanwhile is missed, not made anew, and nobody runs in circles for it.
    let record = "sh.helm.release.v1.web.v1";
    let records = agent.objects("v1", "Secret", &target);
    records.delete(record, &DeleteParams::default()).await?;

    hold("true").await?;
    agent
        .wait_deploy_error("web", |message| message == "held by site")
        .await?;
    agent.apply(&bundle("later", "one")).await?;
    agent
        .wait_deploy_error("later", |message| message == "held by site")
        .await?;
    let requests = agent.downstream_requests()?.into_iter();
    let reads = requests.filter(|request| request.name == record).count();
    assert!(reads < 30, "{reads} reads of the record");
    hold("false").await?;
    for name in ["web", "new"] {
        let ready = agent.wait_ready(name).await?;
        assert_eq!(
            condition(&ready, "Deployed").context("Deployed")?["status"],
            "True"
        );
    }
    let map = agent
        .object("v1", "ConfigMap", &target, "web")
        .await?
        .context("there")?;
    assert_eq!(map.data["data"]["greeting"], "two");
    wait_until("the deleted bundle's release to go", PATIENCE, async || {
        let object = agent.object("v1", "ConfigMap", &target, "gone").await;
        match object.map_err(|e| format!("{e:#}"))? {
            None => Ok(()),
            Some(_) => Err("still there".to_owned()),
        }
    })
    .await
}

/// One of the examples in docs/cluster-values.md.
#[derive(Default)]
struct Example {
    title: String,
    bundle: Value,
    facts: Value,
    values: Value,
}

/// The examples as operators read them: under each heading, blocks that say in their first line what they are.
fn examples() -> Result<Vec<Example>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cluster-values.md");
    let text = std::fs::read_to_string(path)?;
    let (_, chapter) = text
        .split_once("\n## Three worked examples\n")
        .context("the chapter")?;
    let mut examples = Vec::new();
    for section in chapter.split("\n### ").skip(1) {
        let mut example = Example {
            title: section.lines().next().unwrap_or_default().to_owned(),
            ..Example::default()
        };
        for block in section.split("```yaml\n").skip(1) {
            let (block, _) = block.split_once("```").context("the block's end")?;
            let object = golib::yaml::decode(block.as_bytes())?;
            match block.lines().next() {
                Some("# bundle") => example.bundle = object,
                Some("# facts") => example.facts = object,
                Some("# values") => example.values = object,
                other => bail!("{}: a block begins with {other:?}", example.title),
            }
        }
        examples.push(example);
    }
    Ok(examples)
}

#[tokio::test]
async fn the_documented_examples_render_as_documented() -> Result<()> {
    let bed = Bed::shared().await?;
    let examples = examples()?;
    assert_eq!(examples.len(), 3);
    for example in examples {
        let agent = TestAgent::registered(bed).await?;
        let map = &example.facts;
        let name = map["metadata"]["name"].as_str().context("a name")?;
        config_map(&agent, name, map["data"].clone(), json!({})).await?;
        let spec = &example.bundle["spec"];
        let chart = unique("example");
        for version in ["1.0.0", "2.0.0"] {
            bed.repository.add(&mirror(&chart, version))?;
        }
        // Only what exists nowhere else is replaced: repository, chart and namespace are the test's.
        let mut bundle = BundleDeployment::native("example", bed.repository.url(), &chart, "");
        for (key, value) in spec["helm"].as_object().context("helm")? {
            if !["repo", "chart"].contains(&key.as_str()) {
                bundle = bundle.helm(key, value.clone());
            }
        }
        for field in ["namespace", "defaultNamespace"] {
            if let Some(namespace) = spec[field].as_str() {
                bundle = bundle.option(field, json!(format!("{}-{namespace}", agent.id)));
            }
        }
        agent.apply(&bundle).await?;
        let ready = agent
            .wait_ready("example")
            .await
            .context(example.title.clone())?;
        let release = release(&ready);
        let (namespace, rest) = release.split_once('/').context("a release")?;
        let (name, _) = rest.split_once(':').context("a revision")?;
        let found = mirrored(&agent, namespace, name).await?;
        let numbers = golib::json::floats;
        assert_eq!(numbers(found), numbers(example.values), "{}", example.title);
    }
    Ok(())
}
