//! What `force` deletes to make it anew: only what the cluster would take again.

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};
use testbed::bed::unique;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

use crate::scene::{in_haste, limit, target};

/// A bundle of one manifest, to be deployed by force.
fn bundle(agent: &TestAgent<'_>, name: &str, manifest: &str) -> BundleDeployment {
    let files = vec![("all.yaml".to_owned(), manifest.to_owned().into_bytes())];
    BundleDeployment::content(name, files)
        .release(name, &target(agent))
        .helm("force", json!(true))
}

/// A ConfigMap whose data cannot change.
fn settings(value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\nimmutable: true\ndata: {{value: {value:?}}}\n"
    )
}

async fn namespace(agent: &TestAgent<'_>) -> Result<()> {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": target(agent) } });
    apply(&agent.downstream, namespace).await.map(drop)
}

async fn live(
    agent: &TestAgent<'_>,
    version: &str,
    kind: &str,
    name: &str,
) -> Result<DynamicObject> {
    let live = agent.object(version, kind, &target(agent), name).await?;
    live.with_context(|| format!("{kind} {name} is gone"))
}

/// A policy for ConfigMaps that are created in the agent's namespace for apps, once it is in force; gives its name.
async fn policy(agent: &TestAgent<'_>, expression: &str, refused: &str) -> Result<String> {
    let name = unique("policy");
    let version = "admissionregistration.k8s.io/v1";
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
    });
    for object in [
        json!({
            "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": { "name": name },
            "spec": {
                "matchConstraints": { "resourceRules": [rule] },
                "validations": [{ "expression": expression, "message": "it is out of season" }],
            },
        }),
        json!({
            "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": name },
            "spec": {
                "policyName": name, "validationActions": ["Deny"],
                "matchResources": {
                    "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": target(agent) } },
                },
            },
        }),
    ] {
        apply(&agent.downstream, object).await?;
    }
    let maps = agent.objects("v1", "ConfigMap", &target(agent));
    wait_until("the policy to be in force", PATIENCE, async || {
        let probe = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": unique("probe") }, "data": { "value": refused },
        });
        let probe = serde_json::from_value(probe).map_err(|e| e.to_string())?;
        match maps.create(&PostParams::default(), &probe).await {
            Ok(_) => Err("it is admitted".to_owned()),
            Err(_) => Ok(()),
        }
    })
    .await?;
    Ok(name)
}

async fn lift(agent: &TestAgent<'_>, policy: &str) -> Result<()> {
    let kind = "ValidatingAdmissionPolicyBinding";
    let bindings = agent.objects("admissionregistration.k8s.io/v1", kind, "");
    let deleted = bindings.delete(policy, &DeleteParams::default()).await;
    Ok(deleted.map(drop)?)
}

/// What a policy does not let anybody create is not deleted to be made anew. One that says so only in earnest takes it: that is told, and it is created
/// as soon as it may be.
#[tokio::test]
async fn what_a_policy_would_not_admit_again_is_not_recreated() -> Result<()> {
    let agent = in_haste().await?;
    agent
        .apply(&bundle(&agent, "app", &settings("one")))
        .await?;
    agent.wait_ready("app").await?;
    let before = live(&agent, "v1", "ConfigMap", "settings").await?;

    let refusing = policy(&agent, "object.data.value != 'two'", "two").await?;
    agent
        .apply(&bundle(&agent, "app", &settings("two")))
        .await?;
    let told = agent
        .wait_deploy_error("app", |message| message.contains("out of season"))
        .await?;
    for part in [
        "Kind=ConfigMap",
        "is not recreated",
        "its successor would be refused",
        &refusing,
    ] {
        ensure!(told.contains(part), "{part}: {told}");
    }
    let still = live(&agent, "v1", "ConfigMap", "settings").await?;
    ensure!(still.metadata.uid == before.metadata.uid, "{still:?}");
    let requests = agent.downstream_requests()?;
    let settings_of = |verb: &str| {
        let all = requests
            .iter()
            .filter(|one| one.resource == "configmaps" && one.namespace == target(&agent));
        all.filter(|one| one.verb == verb)
            .cloned()
            .collect::<Vec<_>>()
    };
    ensure!(settings_of("delete").is_empty(), "{requests:?}");
    let asked = settings_of("create");
    ensure!(
        !asked.is_empty() && asked.iter().all(|one| one.uri.contains("dryRun=All")),
        "{asked:?}"
    );
    lift(&agent, &refusing).await?;
    agent.wait_ready("app").await?;
    let made = live(&agent, "v1", "ConfigMap", "settings").await?;
    ensure!(made.data["data"]["value"] == "two", "{made:?}");
    ensure!(made.metadata.uid != before.metadata.uid, "{made:?}");

    let treacherous = policy(
        &agent,
        "request.dryRun || object.data.value != 'three'",
        "three",
    )
    .await?;
    agent
        .apply(&bundle(&agent, "app", &settings("three")))
        .await?;
    agent
        .wait_deploy_error("app", |message| message.contains("out of season"))
        .await?;
    // The first try says so; the next ones, seconds later, find nothing to delete.
    let logged = agent.agent_log_tail(usize::MAX);
    ensure!(logged.contains("could not be created anew"), "{logged}");
    lift(&agent, &treacherous).await?;
    agent.wait_ready("app").await?;
    let made = live(&agent, "v1", "ConfigMap", "settings").await?;
    ensure!(made.data["data"]["value"] == "three", "{made:?}");
    Ok(())
}

/// The addresses and ports of a Service are its own until it is deleted.
#[tokio::test]
async fn a_service_is_recreated_with_the_address_and_port_that_it_holds() -> Result<()> {
    let agent = in_haste().await?;
    let service = |class: &str, address: &Value, port: &Value| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec:\n  type: LoadBalancer\n  loadBalancerClass: example.com/{class}\n  \
             clusterIP: {address}\n  ports: [{{port: 80, nodePort: {port}}}]\n"
        )
    };
    let first = service("a", &json!(""), &json!(0));
    agent.apply(&bundle(&agent, "web", &first)).await?;
    let shown = async |class: &str| {
        let class = format!("example.com/{class}");
        wait_until("the Service", PATIENCE, async || {
            let live = live(&agent, "v1", "Service", "web").await;
            let live = live.map_err(|e| format!("{e}\n{}", agent.agent_log_tail(10)))?;
            match live.data["spec"]["loadBalancerClass"] == *class {
                true => Ok(live),
                false => Err(format!("{:?}\n{}", live.data, agent.agent_log_tail(10))),
            }
        })
        .await
    };
    let before = shown("a").await?;
    let spec = &before.data["spec"];
    let (address, port) = (&spec["clusterIP"], &spec["ports"][0]["nodePort"]);
    agent
        .apply(&bundle(&agent, "web", &service("b", address, port)))
        .await?;
    let after = shown("b").await?;
    ensure!(after.metadata.uid != before.metadata.uid, "{after:?}");
    ensure!(after.data["spec"]["clusterIP"] == *address, "{after:?}");
    ensure!(
        after.data["spec"]["ports"][0]["nodePort"] == *port,
        "{after:?}"
    );
    Ok(())
}

/// A quota counts what is to make way.
#[tokio::test]
async fn an_object_is_recreated_where_a_quota_is_full() -> Result<()> {
    let agent = in_haste().await?;
    namespace(&agent).await?;
    let job = |argument: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: once}}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n      \
             containers: [{{name: main, image: registry.example/job, args: [{argument:?}]}}]\n"
        )
    };
    agent.apply(&bundle(&agent, "app", &job("one"))).await?;
    agent.wait_ready("app").await?;
    let before = live(&agent, "batch/v1", "Job", "once").await?;
    limit(&agent, &target(&agent), "count/jobs.batch", "1").await?;
    agent.apply(&bundle(&agent, "app", &job("two"))).await?;
    let ready = agent.wait_ready("app").await?;
    let second = json!(format!("{}/app:2", target(&agent)));
    ensure!(ready["status"]["release"] == second, "one attempt: {ready}");
    let after = live(&agent, "batch/v1", "Job", "once").await?;
    ensure!(after.metadata.uid != before.metadata.uid, "{after:?}");
    Ok(())
}
