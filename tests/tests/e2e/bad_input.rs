//! Input that cannot work: each shows its exact reason, and becomes Ready without a restart once the cause is gone.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::bed::{Bed, CREDENTIALS, unique};
use testbed::chart::Chart;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::sha256_hex;
use testbed::fleet::test_agent::{TestAgent, condition};
use testbed::repository::{Access, ChartRepository, Fault};

/// Deploys `bad` and compares its message; then mends the cause and waits for Ready.
async fn mends<M>(
    agent: &TestAgent<'_>,
    bad: &BundleDeployment,
    message: &str,
    mend: M,
) -> Result<()>
where
    M: AsyncFnOnce() -> Result<Option<BundleDeployment>>,
{
    agent.apply(bad).await?;
    let got = agent
        .wait_deploy_error(bad.name(), |m| !m.is_empty())
        .await?;
    // What the system's resolver adds is its own business.
    let got = got.replace(
        ": failed to lookup address information: Name or service not known",
        "",
    );
    // Helm says so in front of the same text when a retry finds objects of the first attempt.
    assert_eq!(
        got.strip_prefix("failed to create resource: ")
            .unwrap_or(&got),
        message
    );
    if let Some(better) = mend().await? {
        agent.apply(&better).await?;
    }
    let ready = agent.wait_ready(bad.name()).await?;
    let deployed = condition(&ready, "Deployed").context("a Deployed condition")?;
    assert_eq!(
        (&deployed["status"], deployed["message"].is_null()),
        (&json!("True"), true)
    );
    Ok(())
}

/// A repository of its own with one chart, the site and the bundle.
async fn one_chart() -> Result<(TestAgent<'static>, ChartRepository, Chart, BundleDeployment)> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let repository = ChartRepository::start(Access::default()).await?;
    let chart = Chart::small("web", "1.0.0");
    repository.add(&chart)?;
    let bundle = BundleDeployment::helm_op("web", repository.url(), "web", "1.0.0")
        .release("web", &format!("{}-app", agent.id));
    Ok((agent, repository, chart, bundle))
}

#[tokio::test]
async fn no_such_host() -> Result<()> {
    let (agent, _, _, good) = one_chart().await?;
    let bad = good.clone().helm("repo", json!("http://nowhere.invalid"));
    let message = "failed to fetch \"http://nowhere.invalid/index.yaml\": lookup nowhere.invalid: no such host";
    mends(&agent, &bad, message, async || Ok(Some(good.clone()))).await
}

#[tokio::test]
async fn an_index_that_is_not_there() -> Result<()> {
    let (agent, repository, _, bundle) = one_chart().await?;
    repository.break_path("index.yaml", Fault::Status(404));
    let message = format!(
        "failed to read helm repo from {}/index.yaml, error code: 404",
        repository.url()
    );
    mends(&agent, &bundle, &message, async || {
        repository.heal("index.yaml");
        Ok(None)
    })
    .await
}

#[tokio::test]
async fn a_chart_the_repository_does_not_have() -> Result<()> {
    let (agent, repository, _, good) = one_chart().await?;
    let bad = good.helm("chart", json!("late"));
    let message = format!("no chart name found: \"late\" in {}/", repository.url());
    mends(&agent, &bad, &message, async || {
        repository.add(&Chart::small("late", "1.0.0"))?;
        Ok(None)
    })
    .await
}

#[tokio::test]
async fn no_version_that_matches() -> Result<()> {
    let (agent, repository, _, good) = one_chart().await?;
    repository.add(&Chart::small("web", "1.2.0"))?;
    let bad = good.helm("version", json!("^2.0"));
    let message = format!(
        "no chart version found for web-^2.0 (newest seen: 1.2.0, 1.0.0) in {}/",
        repository.url()
    );
    mends(&agent, &bad, &message, async || {
        repository.add(&Chart::small("web", "2.1.0"))?;
        Ok(None)
    })
    .await
}

#[tokio::test]
async fn a_wrong_password() -> Result<()> {
    let agent = TestAgent::registered(Bed::shared().await?).await?;
    let repository = ChartRepository::start(Access {
        basic_auth: Some(CREDENTIALS),
        authority: None,
    })
    .await?;
    repository.add(&Chart::small("web", "1.0.0"))?;
    agent
        .upstream_secret(
            "login",
            json!({ "username": CREDENTIALS.0, "password": "wrong" }),
        )
        .await?;
    let bundle = BundleDeployment::helm_op("web", repository.url(), "web", "1.0.0")
        .chart_options("login", None, false)
        .release("web", &format!("{}-app", agent.id));
    let message = format!(
        "failed to read helm repo from {}/index.yaml, error code: 401 (the credentials were refused)",
        repository.url()
    );
    mends(&agent, &bundle, &message, async || {
        agent
            .upstream_secret(
                "login",
                json!({ "username": CREDENTIALS.0, "password": CREDENTIALS.1 }),
            )
            .await?;
        Ok(None)
    })
    .await?;
    assert!(
        !agent
            .process
            .as_ref()
            .context("the agent runs")?
            .log()
            .contains(CREDENTIALS.1),
        "a password in the log"
    );
    Ok(())
}

/// A server that refuses and hangs up before it has said all.
fn rude_server() -> Result<String> {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            if stream.read(&mut request).is_ok() {
                let answer = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 500\r\n\r\nno";
                drop(stream.write_all(answer));
            }
        }
    });
    Ok(url)
}

#[tokio::test]
async fn a_refusal_whose_body_breaks_off() -> Result<()> {
    let (agent, _, _, good) = one_chart().await?;
    let url = rude_server()?;
    let bad = good.clone().helm("repo", json!(url));
    let message = format!(
        "failed to read helm repo from {url}/index.yaml, error code: 401 (no credentials were sent)"
    );
    mends(&agent, &bad, &message, async || Ok(Some(good.clone()))).await
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority() -> Result<()> {
    let bed = Bed::shared().await?;
    let agent = TestAgent::registered(bed).await?;
    let chart = Chart::small(&unique("web"), "1.0.0");
    bed.private_repository.add(&chart)?;
    agent
        .upstream_secret(
            "login",
            json!({ "username": CREDENTIALS.0, "password": CREDENTIALS.1 }),
        )
        .await?;
    let bundle =
        BundleDeployment::helm_op("web", bed.private_repository.url(), chart.name(), "1.0.0")
            .release("web", &format!("{}-app", agent.id));
    let bad = bundle.clone().chart_options("login", None, false);
    let message = format!(
        "failed to fetch \"{}/index.yaml\": tls: failed to verify certificate: x509: certificate signed by unknown authority (is a private CA missing?)",
        bed.private_repository.url()
    );
    mends(&agent, &bad, &message, async || {
        Ok(Some(bundle.clone().chart_options(
            "login",
            Some(bed.authority.pem()),
            false,
        )))
    })
    .await
}

#[tokio::test]
async fn an_archive_that_is_not_what_the_index_promised() -> Result<()> {
    let (agent, repository, chart, bundle) = one_chart().await?;
    let path = "charts/web-1.0.0.tgz";
    repository.break_path(path, Fault::Truncated(200));
    let archive = chart.archive()?;
    let (wanted, got) = (sha256_hex(&archive), sha256_hex(&archive[..200]));
    let url = repository.url();
    let message = format!(
        "checksum mismatch for \"{url}/{path}\": expected sha256:{wanted}, got sha256:{got}"
    );
    mends(&agent, &bundle, &message, async || {
        repository.heal(path);
        Ok(None)
    })
    .await
}

#[tokio::test]
async fn an_archive_that_breaks_off() -> Result<()> {
    let (agent, repository, _, bundle) = one_chart().await?;
    repository.forget_digests();
    let path = "charts/web-1.0.0.tgz";
    repository.break_path(path, Fault::Truncated(200));
    let message = format!(
        "chart archive \"{}/{path}\" is damaged: it is truncated after 200 bytes",
        repository.url()
    );
    mends(&agent, &bundle, &message, async || {
        repository.heal(path);
        Ok(None)
    })
    .await
}

#[tokio::test]
async fn a_template_that_does_not_parse() -> Result<()> {
    let (agent, repository, chart, bundle) = one_chart().await?;
    repository.add(
        &chart
            .clone()
            .template("service.yaml", "kind: Service\n{{ if }}\n"),
    )?;
    let message = "parse error at (web/templates/service.yaml:2): missing value for if";
    mends(&agent, &bundle, message, async || {
        repository.add(&Chart::small("web", "1.0.1"))?;
        Ok(Some(bundle.clone().helm("version", json!("1.0.1"))))
    })
    .await
}

#[tokio::test]
async fn values_that_fail_the_schema() -> Result<()> {
    let (agent, repository, chart, bundle) = one_chart().await?;
    let schema = json!({ "type": "object", "properties": { "replicas": { "type": "integer" } } });
    repository.add(&chart.file("values.schema.json", schema.to_string()))?;
    let bad = bundle.clone().values(json!({ "replicas": "two" }));
    let message = "values don't meet the specifications of the schema(s) in the following chart(s):\nweb:\n- at '/replicas': got string, want integer\n";
    mends(&agent, &bad, message, async || {
        Ok(Some(bundle.clone().values(json!({ "replicas": 2 }))))
    })
    .await
}

#[tokio::test]
async fn an_object_the_api_server_rejects() -> Result<()> {
    let (agent, repository, chart, bundle) = one_chart().await?;
    repository.add(&chart.template(
        "bad.yaml",
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {{ .Values.bad | default \"Bad_Name\" }}\nspec:\n  ports:\n  - port: 80\n",
    ))?;
    let target = format!("{}-app", agent.id);
    let mut message = String::new();
    write!(
        message,
        "server-side apply failed for object {target}/Bad_Name /v1, Kind=Service: Service \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    )?;
    mends(&agent, &bundle, &message, async || {
        Ok(Some(bundle.clone().values(json!({ "bad": "good-name" }))))
    })
    .await
}

#[tokio::test]
async fn a_kind_the_cluster_does_not_have() -> Result<()> {
    let (agent, repository, chart, bundle) = one_chart().await?;
    let widget = "apiVersion: e2e.example.com/v1\nkind: Widget\nmetadata:\n  name: w\n";
    repository.add(&chart.template("widget.yaml", widget))?;
    let message = "unable to build kubernetes objects from release manifest: resource mapping not found for name: \"w\" namespace: \"\" from \"\": no matches for kind \"Widget\" in version \"e2e.example.com/v1\"\nensure CRDs are installed first";
    mends(&agent, &bundle, message, async || {
        let definition = crate::scene::widgets("e2e.example.com");
        let params = PatchParams::apply("e2e").force();
        agent
            .objects("apiextensions.k8s.io/v1", "CustomResourceDefinition", "")
            .patch(
                "widgets.e2e.example.com",
                &params,
                &Patch::Apply(&definition),
            )
            .await?;
        Ok(None)
    })
    .await
}
