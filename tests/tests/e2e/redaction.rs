//! Canaries: put everywhere a secret may be, and looked for everywhere the agent speaks.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use testbed::audit::Mark;
use testbed::bed::Bed;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::TestAgent;

use crate::scene::{conditions, deploy_own, haste, page, target};

/// Part of every canary; also in base64, at each of the three alignments.
const CANARY: &str = "xyzzy-canary";

/// One that is a number, and how Go prints it with an exponent.
const NUMBER: &str = "177506641234567";
const EXPONENT: &str = "1.77506641234567e";

fn canary(place: &str) -> String {
    format!("{CANARY}-{place}")
}

fn forms() -> Vec<String> {
    let mut forms = Vec::new();
    for canary in [CANARY, NUMBER, EXPONENT] {
        forms.push(canary.to_owned());
        for shift in 0..3 {
            let text = format!("{}{canary}", "x".repeat(shift));
            let encoded = base64::engine::general_purpose::STANDARD.encode(text);
            // Without the characters that share bits with what stands around.
            forms.push(encoded[4..encoded.len() - 4].to_owned());
        }
    }
    // What Go's YAML decoder quotes of a long text.
    forms.push(format!("{}...", &CANARY[..7]));
    forms
}

fn chart(
    agent: &TestAgent<'_>,
    name: &str,
    template: &str,
    files: &[(&str, &str)],
) -> BundleDeployment {
    let files = [&[("templates/t.yaml", template)], files].concat();
    BundleDeployment::chart(name, &files).option("defaultNamespace", json!(target(agent)))
}

fn kustomized(name: &str, kustomization: &str) -> BundleDeployment {
    let file = ("kustomization.yaml".to_owned(), kustomization.into());
    BundleDeployment::content(name, vec![file])
}

fn secret(fields: &str) -> String {
    format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{{{ .Release.Name }}}}\n{fields}")
}

#[tokio::test]
async fn no_canary_secret_leaves_the_process() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    let marks: (Mark, Mark) = (
        agent.plane.audit().mark(),
        agent.bed.downstream.audit().mark(),
    );
    agent.grant().await?;
    let mut env: BTreeMap<_, _> = haste();
    env.insert("FLEET_AGENT_LOG".to_owned(), "trace".to_owned());
    agent.start(env)?;
    deploy_own(&agent).await?;
    let namespace = target(&agent);
    apply(
        &agent.downstream,
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
    )
    .await?;
    for (name, text) in [
        (
            "good",
            format!("password: {}\npin: {NUMBER}\n", canary("from")),
        ),
        (
            "rotated",
            format!("password: {}\npin: {NUMBER}\n", canary("before")),
        ),
        (
            "keyed",
            format!("apiKeys:\n  {}: reader\n", canary("k3y-012345")),
        ),
        ("no-map", canary("no-map")),
        (
            "no-yaml",
            format!("a: {}\n  b: [{}\n", canary("one"), canary("two")),
        ),
    ] {
        apply(
            &agent.downstream,
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": { "name": name, "namespace": namespace },
                "stringData": { "values.yaml": text },
            }),
        )
        .await?;
    }
    let from = |name: &str| json!([{ "secretKeyRef": { "name": name, "namespace": namespace } }]);
    let values = json!({ "password": canary("value"), "nested": { "token": canary("nested") } });
    let pattern = r#"{"properties":{"password":{"pattern":"^[0-9]+$"},"nested":{"properties":{"token":{"maxLength":3}}}}}"#;
    let healthy = secret(
        "stringData:\n  a: {{ .Values.password | quote }}\n  b: {{ .Values.nested.token }}\n",
    );
    agent
        .apply(&chart(&agent, "healthy", &healthy, &[]).values(values.clone()))
        .await?;
    agent
        .apply(
            &chart(
                &agent,
                "from",
                &secret("stringData:\n  a: {{ .Values.password }}\n"),
                &[],
            )
            .helm("valuesFrom", from("good")),
        )
        .await?;
    let shown = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: shown\ndata:\n  url: db://{{ .Values.password }}@db\n  pin: '{{ int64 .Values.pin }}'\n";
    let shown = chart(&agent, "shown", shown, &[]).helm("valuesFrom", from("good"));
    agent.apply(&shown).await?;
    // Deployed with what the Secret says no more.
    let kept = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kept\ndata:\n  url: db://{{ .Values.password }}@db\n  pin: '{{ int64 .Values.pin }}'\n";
    let kept = chart(&agent, "kept", kept, &[])
        .helm("valuesFrom", from("rotated"))
        .annotation("fleet.cattle.io/watch-values", "false");
    agent.apply(&kept).await?;
    // A hook event that nobody knows is warned of.
    let hooked = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n  annotations: {helm.sh/hook: {{ .Values.password }}}\n";
    agent
        .apply(&chart(&agent, "hooked", hooked, &[]).values(values.clone()))
        .await?;
    for ready in ["healthy", "from", "shown", "kept", "hooked"] {
        agent.wait_ready(ready).await?;
    }
    agent
        .objects("v1", "Secret", &namespace)
        .delete("rotated", &DeleteParams::default())
        .await?;
    // What it should be is shown, without what came from a Secret.
    let edit = json!({ "data": { "url": "edited", "pin": "edited" } });
    for name in ["shown", "kept"] {
        agent
            .objects("v1", "ConfigMap", &namespace)
            .patch(name, &PatchParams::default(), &Patch::Merge(&edit))
            .await?;
        agent
            .wait_for(name, "to be modified", |bundle| {
                let modified = bundle["status"]["modifiedStatus"].to_string();
                modified.contains("db://") && modified.contains("@db")
            })
            .await?;
    }

    // What somebody says of an object that has such a value may quote it.
    let quoted = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: quoted\nspec:\n  replicas: 0\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec:\n      containers: [{name: a, image: a, env: [{name: A, value: '{{ .Values.password }}'}]}]\n";
    let quoted = chart(&agent, "quoted", quoted, &[]).helm("valuesFrom", from("good"));
    agent.apply(&quoted).await?;
    agent
        .wait_for("quoted", "to be deployed", |bundle| {
            !bundle["status"]["release"].is_null()
        })
        .await?;
    let message = format!("Invalid value: \"{}\"", canary("from"));
    let stalled =
        json!({ "type": "Stalled", "status": "True", "reason": "Quoted", "message": message });
    agent
        .objects("apps/v1", "Deployment", &namespace)
        .patch_status(
            "quoted",
            &PatchParams::default(),
            &Patch::Merge(json!({ "status": { "conditions": [stalled] } })),
        )
        .await?;
    agent
        .wait_for("quoted", "to tell what it is told", |bundle| {
            let why = bundle["status"]["nonReadyStatus"].to_string();
            why.contains("Invalid value") && why.contains("REDACTED")
        })
        .await?;

    let plain = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n";
    let keys = r#"{"properties":{"apiKeys":{"additionalProperties":{"type":"number"}}}}"#;
    let failing = [
        chart(&agent, "schema", plain, &[("values.schema.json", pattern)]).values(values.clone()),
        chart(
            &agent,
            "fail",
            "{{ fail (printf \"no: %s\" .Values.password) }}",
            &[],
        )
        .values(values.clone()),
        chart(
            &agent,
            "pin",
            "{{ fail (printf \"no: %v %d %.0f %s %s\" .Values.pin (int64 .Values.pin) .Values.pin (toJson .Values) (.Values.pin | int64 | toString | b64enc)) }}",
            &[],
        )
        .helm("valuesFrom", from("good")),
        chart(
            &agent,
            "pin-refused",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\ndata:\n  pin: {{ int64 .Values.pin }}\n",
            &[],
        )
        .helm("valuesFrom", from("good")),
        chart(
            &agent,
            "login",
            "{{ $all := list }}{{ range list \"u\" \"us\" \"use\" }}{{ $all = append $all (printf \"%s:%s@db\" . $.Values.password | b64enc) }}{{ end }}{{ fail (printf \"no: %v\" $all) }}",
            &[],
        )
        .helm("valuesFrom", from("good")),
        chart(
            &agent,
            "keyed",
            "{{ range $key, $_ := .Values.apiKeys }}{{ fail (printf \"no: %s\" $key) }}{{ end }}",
            &[],
        )
        .helm("valuesFrom", from("keyed")),
        chart(
            &agent,
            "keyed-schema",
            plain,
            &[("values.schema.json", keys)],
        )
        .helm("valuesFrom", from("keyed")),
        chart(
            &agent,
            "required",
            "{{ index .Values (printf \"%s\" .Values.password) \"x\" }}",
            &[],
        )
        .values(values.clone()),
        chart(
            &agent,
            "yaml",
            &secret("stringData:\n  a: *{{ .Values.password }}\n"),
            &[],
        )
        .values(values.clone()),
        chart(
            &agent,
            "number",
            &secret("data:\n  a: {{ .Values.password }}\n"),
            &[],
        )
        .values(values.clone()),
        chart(
            &agent,
            "refused",
            &secret(&format!("stringData: {}\n", canary("in-the-chart"))),
            &[],
        ),
        chart(
            &agent,
            "label",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n  labels:\n    x: \"{{ .Values.password }}!\"\n",
            &[],
        )
        .values(values.clone()),
        chart(
            &agent,
            "lookup",
            &format!("{{{{ fail (toJson (lookup \"v1\" \"Secret\" \"{namespace}\" \"good\")) }}}}"),
            &[],
        ),
        chart(&agent, "no-map", plain, &[]).helm("valuesFrom", from("no-map")),
        chart(&agent, "no-yaml", plain, &[]).helm("valuesFrom", from("no-yaml")),
        kustomized(
            "kustomized",
            &format!("patches:\n- patch: |\n    kind: Secret\n    metadata: {{name: a}}\n    stringData: {{a: {}}}\n", canary("patch")),
        ),
        kustomized(
            "generated",
            &format!("secretGenerator: [{{name: a, literals: [{}]}}]\n", canary("literal")),
        ),
        BundleDeployment::helm_op(
            "credentials",
            agent.bed.private_repository.url(),
            "c",
            "1.0.0",
        )
        .chart_options("access", Some(agent.bed.authority.pem()), false)
        .release("credentials", &namespace),
    ];
    agent
        .upstream_secret(
            "access",
            json!({ "username": "chart-reader", "password": canary("access") }),
        )
        .await?;
    for bundle in &failing {
        agent.apply(bundle).await?;
    }
    for bundle in &failing {
        let failed = agent
            .wait_for(bundle.name(), "to fail", |bundle| {
                conditions(bundle).contains("\"status\":\"False\"")
            })
            .await?;
        silent(&conditions(&failed), bundle.name())?;
    }
    let schema = agent
        .wait_deploy_error("schema", |message| message.contains("/password"))
        .await?;
    ensure!(schema.contains("/nested/token"), "{schema}");

    // Drift of a Secret: its keys are reported.
    let edit = json!({ "stringData": { "a": canary("edited"), "c": canary("added") } });
    agent
        .objects("v1", "Secret", &namespace)
        .patch("healthy", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    let drifted = agent
        .wait_for("healthy", "to be modified", |bundle| {
            !bundle["status"]["modifiedStatus"].is_null()
        })
        .await?;
    let patch = drifted["status"]["modifiedStatus"][0]["patch"]
        .as_str()
        .context("a patch")?;
    ensure!(
        patch.contains("\"a\"") && patch.contains("REDACTED"),
        "{patch}"
    );

    // Everywhere it speaks.
    for bundle in agent
        .bundle_deployments()?
        .list(&ListParams::default())
        .await?
        .items
    {
        silent(&bundle.data["status"].to_string(), "a status")?;
    }
    let events = agent.objects("v1", "Event", &agent.system_namespace);
    for event in events.list(&ListParams::default()).await?.items {
        silent(&serde_json::to_string(&event)?, "an event")?;
    }
    let metrics = page(format!("{}/metrics", agent.process()?.metrics_url())).await;
    silent(&metrics.map_err(anyhow::Error::msg)?.1, "the metrics")?;
    let user = agent.granted.as_ref().context("granted")?.user.clone();
    // What the agent sent; what the API server says to it is in the log too.
    let mine = |text: String, user: &str| -> String {
        let events = text
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        events
            .filter(|event| event["user"]["username"] == user)
            .map(|event| format!("{} {}\n", event["requestURI"], event["requestObject"]))
            .collect()
    };
    silent(
        &mine(agent.plane.audit().text(marks.0)?, &user),
        "requests upstream",
    )?;
    silent(
        &mine(agent.bed.downstream.audit().text(marks.1)?, &agent.user),
        "requests downstream",
    )?;
    let log = agent.process.as_ref().context("the agent")?.log();
    ensure!(log.contains("\"level\":\"TRACE\""));
    silent(&log, "the log")
}

fn silent(text: &str, place: &str) -> Result<()> {
    for form in forms() {
        if let Some(at) = text.find(&form) {
            let start = text[..at]
                .char_indices()
                .rev()
                .nth(300)
                .map_or(0, |(index, _)| index);
            anyhow::bail!("{place} tells {form}: {}", &text[start..at + form.len()]);
        }
    }
    Ok(())
}
