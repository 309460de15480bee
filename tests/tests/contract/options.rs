//! The options of a bundle, one by one.

use anyhow::{Context, Result};
use kube::api::ListParams;
use serde_json::{Value, json};
use testbed::bed::unique;
use testbed::chart::Chart;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, condition};
use testbed::wait::wait_until;

use crate::shared::{Case, DEPLOYMENT, SERVICES, run};

/// A ConfigMap with the value `v` of the key `k`.
fn config(value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: config\ndata:\n  k: {value:?}\n")
}

/// A bundle that carries a chart with one template, a ConfigMap with this text for its data.
fn charted(case: &Case, data: &str) -> (Chart, BundleDeployment) {
    let template =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: config\ndata:\n{data}\n");
    let chart = Chart::new("app", "0.1.0").template("config.yaml", &template);
    let bundle = carried(case, &chart);
    (chart, bundle)
}

fn carried(case: &Case, chart: &Chart) -> BundleDeployment {
    let files = chart.files().iter();
    let files = files.map(|(path, data)| (format!("app/{path}"), data.clone()));
    BundleDeployment::content(&case.name, files.collect())
        .helm("chart", json!("app"))
        .option("defaultNamespace", json!(case.namespace))
}

/// An account in the agent's namespace with these rights in the case's namespace.
async fn account(case: &Case, rules: Value) -> Result<String> {
    let account = unique("tenant");
    let role = json!({ "name": account, "namespace": case.namespace });
    let objects = [
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": account, "namespace": case.agent.system_namespace },
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": role,
            "rules": rules,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": role,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account },
            "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": case.agent.system_namespace }],
        }),
    ];
    for object in objects {
        apply(&case.agent.downstream, object).await?;
    }
    Ok(account)
}

fn records_and_config_maps() -> Value {
    json!([{ "apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["*"] }])
}

/// Waits until an object of the case's namespace is gone.
async fn gone(case: &Case, kind: &str, name: &str) -> Result<()> {
    wait_until(&format!("{kind} {name} to be gone"), PATIENCE, async || {
        let found = case.agent.object("v1", kind, &case.namespace, name).await;
        match found.map_err(|e| e.to_string())? {
            Some(_) => Err("still there".to_owned()),
            None => Ok(()),
        }
    })
    .await
}

/// The revisions of a release that are stored.
async fn revisions(case: &Case) -> Result<Vec<String>> {
    let secrets = case.agent.objects("v1", "Secret", &case.namespace);
    let records = secrets
        .list(&ListParams::default().labels("owner=helm"))
        .await?;
    let version =
        |labels: &std::collections::BTreeMap<String, String>| labels.get("version").cloned();
    let mut found: Vec<String> = records
        .items
        .iter()
        .filter_map(|secret| secret.metadata.labels.as_ref().and_then(version))
        .collect();
    found.sort();
    Ok(found)
}

#[test]
fn a_namespace_is_created_unless_that_is_disabled() -> Result<()> {
    run(async {
        let case = Case::new("create").await?;
        let missing = format!("{}-missing", case.name);
        let bundle = case
            .bundle(&config("v"))
            .option("defaultNamespace", json!(missing))
            .option("createNamespace", json!(false));
        case.agent.apply(&bundle).await?;
        let message = case
            .agent
            .wait_deploy_error(&case.name, |m| !m.is_empty())
            .await?;
        assert!(
            message.contains(&format!("namespaces \"{missing}\" not found")),
            "{message}"
        );
        assert!(
            case.agent
                .object("v1", "Namespace", "", &missing)
                .await?
                .is_none()
        );
        case.agent
            .apply(&bundle.option("createNamespace", json!(true)))
            .await?;
        case.ready().await?;
        let namespace = case.agent.object("v1", "Namespace", "", &missing).await?;
        let labels = namespace
            .context("a namespace")?
            .metadata
            .labels
            .unwrap_or_default();
        assert_eq!(labels.get("name"), Some(&missing));
        Ok(())
    })
}

#[test]
fn a_namespace_is_labelled_before_its_objects() -> Result<()> {
    run(async {
        let case = Case::new("labelled").await?;
        case.namespace(
            &case.namespace,
            json!({ "pod-security.kubernetes.io/enforce": "baseline" }),
        )
        .await?;
        let foreign = json!({ "metadata": { "labels": { "mine": "yes" }, "annotations": { "field.cattle.io/projectId": "p-1" } } });
        let namespaces = case.agent.objects("v1", "Namespace", "");
        let params = kube::api::PatchParams::default();
        namespaces
            .patch(&case.namespace, &params, &kube::api::Patch::Merge(&foreign))
            .await?;
        // An object that cannot be deployed: the namespace is labelled all the same.
        let bad = config("v").replace("name: config", "name: Bad_Name");
        let bundle = |manifest: &str| {
            let labels = json!({ "team": "a", "tier": "one", "pod-security.kubernetes.io/enforce": "privileged" });
            case.bundle(manifest)
                .option("namespaceLabels", labels)
                .option("namespaceAnnotations", json!({ "owner": "b" }))
        };
        case.agent.apply(&bundle(&bad)).await?;
        case.agent
            .wait_deploy_error(&case.name, |m| m.contains("Bad_Name"))
            .await?;
        let metadata = async || -> Result<Value> {
            let namespace = namespaces.get(&case.namespace).await?;
            Ok(serde_json::to_value(namespace.metadata)?)
        };
        let found = metadata().await?;
        assert_eq!(
            (&found["labels"]["team"], &found["labels"]["tier"]),
            (&json!("a"), &json!("one"))
        );
        assert_eq!(found["annotations"]["owner"], "b");
        case.agent
            .apply(&bundle(&config("v")).option("namespaceLabels", json!({ "team": "c" })))
            .await?;
        case.ready().await?;
        let found = metadata().await?;
        assert_eq!(found["labels"]["team"], "c");
        assert!(found["labels"]["tier"].is_null(), "{found}");
        // What others put there, and what protects the namespace, is still there.
        assert_eq!(found["labels"]["mine"], "yes");
        assert_eq!(found["annotations"]["field.cattle.io/projectId"], "p-1");
        assert_eq!(
            found["labels"]["pod-security.kubernetes.io/enforce"],
            "baseline"
        );
        Ok(())
    })
}

#[test]
fn an_account_must_exist() -> Result<()> {
    run(async {
        let case = Case::new("account").await?;
        case.agent
            .apply(
                &case
                    .bundle(&config("v"))
                    .option("serviceAccount", json!("nobody")),
            )
            .await?;
        let message = case
            .agent
            .wait_deploy_error(&case.name, |m| !m.is_empty())
            .await?;
        assert_eq!(
            message,
            format!(
                "looking up service account {}/nobody: ServiceAccount \"nobody\" not found",
                case.agent.system_namespace
            )
        );
        Ok(())
    })
}

#[test]
fn an_account_deploys_with_its_own_rights() -> Result<()> {
    run(async {
        let case = Case::new("rights").await?;
        let account = account(&case, records_and_config_maps()).await?;
        let mark = case.agent.bed.downstream.audit().mark();
        let bundle = case
            .bundle(SERVICES)
            .option("serviceAccount", json!(account))
            .correct_drift();
        case.agent.apply(&bundle).await?;
        let message = case
            .agent
            .wait_deploy_error(&case.name, |m| !m.is_empty())
            .await?;
        let user = format!(
            "system:serviceaccount:{}:{account}",
            case.agent.system_namespace
        );
        let refused = format!("User \"{user}\" cannot");
        assert!(
            message.contains(&refused) && message.contains("services"),
            "{message}"
        );
        let bundle = case
            .bundle(&config("v"))
            .option("serviceAccount", json!(account))
            .correct_drift();
        case.deploy(&bundle).await?;
        case.edit_config(json!({ "data": { "k": "edited" } }))
            .await?;
        case.wait_object("v1", "ConfigMap", "config", "to have its data", |c| {
            c["data"]["k"] == "v"
        })
        .await?;
        let requests = case.agent.bed.downstream.audit().since(mark)?;
        let writes = requests.iter().filter(|r| {
            r.namespace == case.namespace
                && ["create", "update", "patch", "delete"].contains(&r.verb.as_str())
        });
        let writers: std::collections::BTreeSet<&str> = writes
            .filter(|r| ["configmaps", "secrets", "services"].contains(&r.resource.as_str()))
            .map(|r| r.user.as_str())
            .collect();
        assert!(writers.contains(user.as_str()), "{writers:?}");
        assert!(!writers.contains(case.agent.user.as_str()), "{writers:?}");
        Ok(())
    })
}

#[test]
fn an_account_that_may_not_label_its_namespace_is_reported() -> Result<()> {
    run(async {
        let case = Case::new("unlabelled").await?;
        let account = account(&case, records_and_config_maps()).await?;
        let bundle = case
            .bundle(&config("v"))
            .option("serviceAccount", json!(account))
            .option("namespaceLabels", json!({ "team": "a" }));
        case.agent.apply(&bundle).await?;
        let found = case
            .agent
            .wait_for(&case.name, "to be deployed and not ready", |b| {
                condition(b, "Ready").is_some_and(|c| c["status"] == "False")
            })
            .await?;
        let reported = |kind: &str| condition(&found, kind).cloned().unwrap_or_default();
        let message = format!(
            "the deployment's service account is not allowed to get namespace \"{}\"; grant it 'get' on this namespace (scoped via resourceNames) or remove namespaceLabels/namespaceAnnotations: ",
            case.namespace
        );
        let starts = |condition: Value, with: &str| {
            condition["message"]
                .as_str()
                .is_some_and(|m| m.starts_with(&format!("{with}{message}")))
        };
        assert!(starts(reported("Ready"), "not ready: "), "{found}");
        assert!(starts(reported("Installed"), "not installed: "), "{found}");
        assert_eq!(reported("Deployed")["status"], "True");
        assert_eq!(
            found["status"]["appliedDeploymentID"],
            found["spec"]["deploymentID"]
        );
        assert_eq!(
            found["status"]["release"],
            json!(format!("{0}/{1}:1", case.namespace, case.name))
        );
        // The rights that the message asks for will do, as they do for the Go agent.
        let name = format!("{account}-namespace");
        let rules = json!([{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "update"], "resourceNames": [case.namespace] }]);
        for object in [
            json!({ "kind": "ClusterRole", "rules": rules }),
            json!({
                "kind": "ClusterRoleBinding",
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
                "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": case.agent.system_namespace }],
            }),
        ] {
            let mut object = object;
            object["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
            object["metadata"] = json!({ "name": name });
            apply(&case.agent.downstream, object).await?;
        }
        // A grant wakes nobody; whatever comes next does.
        case.agent
            .apply(&bundle.label("tests.example/look", "again"))
            .await?;
        case.ready().await?;
        let namespace = case
            .agent
            .object("v1", "Namespace", "", &case.namespace)
            .await?;
        let labels = namespace
            .context("a namespace")?
            .metadata
            .labels
            .unwrap_or_default();
        assert_eq!(labels.get("team").map(String::as_str), Some("a"));
        Ok(())
    })
}

#[test]
fn a_timeout_does_not_hold_up_a_bundle_that_is_not_ready() -> Result<()> {
    run(async {
        let case = Case::new("timeout").await?;
        let never = DEPLOYMENT.replace("web:1", "web:never");
        case.agent
            .apply(&case.bundle(&never).helm("timeoutSeconds", json!(1)))
            .await?;
        let found = case
            .agent
            .wait_for(&case.name, "to be deployed and not ready", |b| {
                b["status"]["nonReadyStatus"].is_array()
            })
            .await?;
        assert_eq!(
            found["status"]["appliedDeploymentID"],
            found["spec"]["deploymentID"]
        );
        let deployed = condition(&found, "Deployed").context("a Deployed condition")?;
        assert_eq!(deployed["status"], "True");
        // Ready by itself, once its objects are.
        let containers = json!([{ "name": "web", "image": "registry.example/web:1", "ports": [{ "containerPort": 80 }] }]);
        let change = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
        case.edit("apps/v1", "Deployment", "web", change).await?;
        case.agent
            .wait_for(&case.name, "to have ready objects", |b| {
                b["status"]["ready"] == json!(true)
            })
            .await
            .map(drop)
    })
}

#[test]
fn jobs_are_waited_for_where_that_is_wanted() -> Result<()> {
    run(async {
        let case = Case::new("jobs").await?;
        let job = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: task\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n      containers: [{name: c, image: 'registry.example/task:never'}]\n";
        let bundle = case
            .bundle(job)
            .helm("atomic", json!(true))
            .helm("timeoutSeconds", json!(2));
        case.agent
            .apply(&bundle.clone().helm("waitForJobs", json!(true)))
            .await?;
        let message = case
            .agent
            .wait_deploy_error(&case.name, |m| !m.is_empty())
            .await?;
        assert!(message.contains("task"), "{message}");
        // A job that was started is enough otherwise.
        case.agent.apply(&bundle).await?;
        case.agent
            .wait_for(&case.name, "to be deployed", |b| {
                b["status"]["appliedDeploymentID"] == b["spec"]["deploymentID"]
                    && condition(b, "Deployed").is_some_and(|c| c["status"] == "True")
            })
            .await
            .map(drop)
    })
}

#[test]
fn as_many_records_are_kept_as_wanted() -> Result<()> {
    run(async {
        let case = Case::new("history").await?;
        for (value, kept) in [("1", 3), ("2", 3), ("3", 3), ("4", 3), ("5", 0)] {
            let bundle = case.bundle(&config(value)).helm("maxHistory", json!(kept));
            case.deploy(&bundle).await?;
            let wanted: &[&str] = match value {
                "4" => &["2", "3", "4"],
                // Unset means two.
                "5" => &["4", "5"],
                _ => continue,
            };
            assert_eq!(revisions(&case).await?, wanted);
        }
        Ok(())
    })
}

#[test]
fn names_are_resolved_unless_that_is_disabled() -> Result<()> {
    run(async {
        let case = Case::new("dns").await?;
        let (_, bundle) = charted(
            &case,
            "  address: {{ getHostByName \"localhost\" | quote }}",
        );
        case.deploy(&bundle.clone().helm("disableDNS", json!(true)))
            .await?;
        let address = async || -> Result<Value> {
            Ok(case.object("v1", "ConfigMap", "config").await?["data"]["address"].clone())
        };
        assert_eq!(address().await?, "");
        case.deploy(&bundle).await?;
        let found = address().await?;
        assert!(
            [json!("127.0.0.1"), json!("::1")].contains(&found),
            "{found}"
        );
        Ok(())
    })
}

#[test]
fn a_schema_may_be_skipped() -> Result<()> {
    run(async {
        let case = Case::new("schema").await?;
        let (chart, _) = charted(&case, "  replicas: {{ .Values.replicas | quote }}");
        let schema =
            json!({ "type": "object", "properties": { "replicas": { "type": "integer" } } });
        let chart = chart.file("values.schema.json", schema.to_string());
        let bundle = carried(&case, &chart).values(json!({ "replicas": "two" }));
        case.agent.apply(&bundle).await?;
        let message = case
            .agent
            .wait_deploy_error(&case.name, |m| !m.is_empty())
            .await?;
        assert!(message.contains("got string, want integer"), "{message}");
        case.deploy(&bundle.helm("skipSchemaValidation", json!(true)))
            .await
            .map(drop)
    })
}

#[test]
fn crds_are_kept_unless_their_deletion_is_allowed() -> Result<()> {
    run(async {
        let definition = |name: &str| {
            format!(
                "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: {name}s.contract.example.com\nspec:\n  group: contract.example.com\n  scope: Namespaced\n  names: {{kind: {name}, plural: {name}s, singular: {name}, listKind: {name}List}}\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema: {{openAPIV3Schema: {{type: object}}}}\n"
            )
        };
        let find = async |case: &Case, name: &str| {
            let kind = "CustomResourceDefinition";
            let name = format!("{name}s.contract.example.com");
            case.agent
                .object("apiextensions.k8s.io/v1", kind, "", &name)
                .await
        };
        let kept = Case::new("kept").await?;
        kept.deploy(&kept.bundle(&format!("{}---\n{}", definition("kept"), config("v"))))
            .await?;
        let passing = Case::new("passing").await?;
        passing
            .deploy(
                &passing
                    .bundle(&format!("{}---\n{}", definition("passing"), config("v")))
                    .option("deleteCRDResources", json!(true)),
            )
            .await?;
        for case in [&kept, &passing] {
            case.agent.delete(&case.name).await?;
        }
        for case in [&kept, &passing] {
            gone(case, "ConfigMap", "config").await?;
        }
        assert!(find(&kept, "kept").await?.is_some());
        wait_until(
            "the definition to be gone",
            PATIENCE,
            async || match find(&passing, "passing").await.map_err(|e| e.to_string())? {
                Some(_) => Err("still there".to_owned()),
                None => Ok(()),
            },
        )
        .await
    })
}

#[test]
fn resources_are_kept_where_that_is_wanted() -> Result<()> {
    run(async {
        let case = Case::new("resources").await?;
        // A release with another name than its bundle: its records go all the same.
        let bundle = case
            .bundle(&config("v"))
            .helm("releaseName", json!("other"));
        case.deploy(&bundle.option("keepResources", json!(true)))
            .await?;
        case.agent.delete(&case.name).await?;
        gone(&case, "Secret", "sh.helm.release.v1.other.v1").await?;
        assert_eq!(
            case.object("v1", "ConfigMap", "config").await?["data"]["k"],
            "v"
        );
        Ok(())
    })
}

#[test]
fn options_for_the_controller_change_nothing() -> Result<()> {
    run(async {
        let case = Case::new("controller").await?;
        let (_, bundle) = charted(
            &case,
            "  greeting: {{ .Values.greeting | default \"none\" | quote }}",
        );
        let bundle = bundle
            .values(json!({ "greeting": "literally ${ .ClusterName }" }))
            .helm("valuesFiles", json!(["no-such-file.yaml"]))
            .helm("disableDependencyUpdate", json!(true))
            .helm("disablePreProcess", json!(false))
            .helm("templateValues", json!({ "greeting": "${ .ClusterName }" }))
            .option("deleteNamespace", json!(true));
        case.deploy(&bundle).await?;
        // Values that came through the controller's Secret are final.
        let config = case.object("v1", "ConfigMap", "config").await?;
        assert_eq!(config["data"]["greeting"], "literally ${ .ClusterName }");
        case.agent.delete(&case.name).await?;
        gone(&case, "ConfigMap", "config").await?;
        assert!(
            case.agent
                .object("v1", "Namespace", "", &case.namespace)
                .await?
                .is_some()
        );
        Ok(())
    })
}

#[test]
fn conditions_may_be_ignored() -> Result<()> {
    run(async {
        let case = Case::new("conditions").await?;
        let custom = "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata:\n  name: set\nspec:\n  replicas: 0\n  selector: {matchLabels: {app: set}}\n  template:\n    metadata: {labels: {app: set}}\n    spec: {containers: [{name: c, image: registry.example/web:1}]}\n";
        let bundle = case.bundle(custom);
        case.deploy(&bundle).await?;
        let sets = case.agent.objects("apps/v1", "ReplicaSet", &case.namespace);
        let broken = json!({ "status": { "conditions": [{ "type": "Custom", "status": "False", "reason": "Error", "message": "out of order" }] } });
        let params = kube::api::PatchParams::default();
        sets.patch_status("set", &params, &kube::api::Patch::Merge(&broken))
            .await?;
        let found = case
            .agent
            .wait_for(&case.name, "not to be ready", |b| {
                b["status"]["nonReadyStatus"].is_array()
            })
            .await?;
        assert_eq!(
            found["status"]["nonReadyStatus"][0]["summary"]["message"][0],
            "out of order"
        );
        let ignored = json!({ "conditions": [{ "type": "Custom", "status": "False" }] });
        case.deploy(&bundle.option("ignore", ignored))
            .await
            .map(drop)
    })
}

#[test]
fn values_are_given_whole_and_numbers_are_floats() -> Result<()> {
    run(async {
        let case = Case::new("values").await?;
        let (chart, _) = charted(
            &case,
            "  size: {{ .Values.size | quote }}\n  mode: {{ .Values.mode | quote }}\n  extra: {{ .Values.extra | quote }}",
        );
        let chart = chart.file(
            "values.yaml",
            "mode: from the chart\nextra: from the chart\nsize: 1\n",
        );
        let bundle = carried(&case, &chart);
        case.deploy(
            &bundle
                .clone()
                .values(json!({ "size": 1_000_000, "mode": "first", "extra": "first" })),
        )
        .await?;
        let data = case.object("v1", "ConfigMap", "config").await?["data"].clone();
        assert_eq!(
            data,
            json!({ "size": "1e+06", "mode": "first", "extra": "first" })
        );
        case.deploy(&bundle.values(json!({ "mode": "second" })))
            .await?;
        let data = case.object("v1", "ConfigMap", "config").await?["data"].clone();
        assert_eq!(
            data,
            json!({ "size": "1", "mode": "second", "extra": "from the chart" })
        );
        Ok(())
    })
}

#[test]
fn values_come_from_config_maps_and_secrets() -> Result<()> {
    run(async {
        let case = Case::new("from").await?;
        let (_, bundle) = charted(&case, "  all: {{ .Values.all | toJson | quote }}");
        case.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "map" },
        "data": { "values.yaml": "all: {a: map, b: map, c: {x: map}}\n---\nall: {a: second document}\n", "empty": "" },
    }))
    .await?;
        case.create(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "secret" },
            "stringData": { "other": "all: {b: secret, c: {z: secret}}" },
        }))
        .await?;
        let from =
            |secret: Value, map: Value| json!([{ "configMapKeyRef": map, "secretKeyRef": secret }]);
        let bundle = bundle.values(json!({ "all": { "a": "inline", "d": "inline" } }));
        let good = from(
            json!({ "name": "secret", "key": "other" }),
            json!({ "name": "map" }),
        );
        case.deploy(&bundle.clone().helm("valuesFrom", good))
            .await?;
        let all = case.object("v1", "ConfigMap", "config").await?["data"]["all"].clone();
        let all: Value = serde_json::from_str(all.as_str().context("a text")?)?;
        assert_eq!(
            all,
            json!({ "a": "map", "b": "secret", "c": { "x": "map", "z": "secret" }, "d": "inline" })
        );

        for (reference, wanted) in [
            (
                json!([{ "configMapKeyRef": { "name": "map", "key": "none" } }]),
                "key none is missing from configmap NS/map, can't use it in valuesFrom",
            ),
            (
                json!([{ "secretKeyRef": { "name": "secret" } }]),
                "key values.yaml is missing from secret NS/secret, can't use it in valuesFrom",
            ),
            (
                json!([{ "configMapKeyRef": { "name": "map", "key": "empty" } }]),
                "EOF",
            ),
            (
                json!([{ "secretKeyRef": { "name": "none" } }]),
                "secrets \"none\" not found",
            ),
        ] {
            case.agent
                .apply(&bundle.clone().helm("valuesFrom", reference))
                .await?;
            let wanted = wanted.replace("NS", &case.namespace);
            case.agent
                .wait_deploy_error(&case.name, |m| m == wanted)
                .await?;
        }
        Ok(())
    })
}
