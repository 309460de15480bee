//! `allowedTargetNamespaceSelector`.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::test_agent::condition;

use crate::shared::{Case, FEWER, run};

/// A case whose namespace is production's, and the selector that wants just that.
async fn production(prefix: &str) -> Result<(Case, Value)> {
    let case = Case::new(prefix).await?;
    let labels = json!({ "env": "production", "team": "platform" });
    case.namespace(&case.namespace, labels.clone()).await?;
    Ok((case, json!({ "matchLabels": labels })))
}

fn selecting(bundle: BundleDeployment, selector: Value) -> BundleDeployment {
    bundle.option("allowedTargetNamespaceSelector", selector)
}

/// The message of a Deployed condition that is False.
async fn refusal(case: &Case) -> Result<String> {
    case.agent
        .wait_deploy_error(&case.name, |m| !m.is_empty())
        .await
}

#[test]
fn case_14_31_without_a_selector_any_namespace_will_do() -> Result<()> {
    run(async {
        let (case, _) = production("any").await?;
        case.deploy(&case.bundle(FEWER)).await.map(drop)
    })
}

#[test]
fn case_14_32_without_a_selector_a_missing_namespace_is_created() -> Result<()> {
    run(async {
        let case = Case::new("created").await?;
        let missing = format!("{}-missing", case.name);
        case.deploy(
            &case
                .bundle(FEWER)
                .option("defaultNamespace", json!(missing)),
        )
        .await?;
        assert!(
            case.agent
                .object("v1", "Namespace", "", &missing)
                .await?
                .is_some()
        );
        Ok(())
    })
}

#[test]
fn case_14_33_a_namespace_that_matches_is_deployed_to() -> Result<()> {
    run(async {
        let (case, selector) = production("match").await?;
        case.deploy(&selecting(case.bundle(FEWER), selector))
            .await
            .map(drop)
    })
}

#[test]
fn case_14_34_the_target_namespace_is_what_is_checked() -> Result<()> {
    run(async {
        let (case, selector) = production("target").await?;
        let other = format!("{}-other", case.name);
        case.namespace(&other, json!({ "env": "development" }))
            .await?;
        let bundle = case
            .bundle(FEWER)
            .option("namespace", json!(case.namespace))
            .option("defaultNamespace", json!(other));
        case.deploy(&selecting(bundle, selector)).await.map(drop)
    })
}

#[test]
fn case_14_35_a_namespace_that_does_not_match_is_refused() -> Result<()> {
    run(async {
        let (case, selector) = production("mismatch").await?;
        let labels = json!({ "env": "development", "team": "backend" });
        case.namespace(&case.namespace, labels).await?;
        case.agent
            .apply(&selecting(case.bundle(FEWER), selector))
            .await?;
        let message = refusal(&case).await?;
        assert_eq!(
            message,
            format!(
                "target namespace {0} does not match AllowedTargetNamespaceSelector (env=production,team=platform); namespace labels map[env:development kubernetes.io/metadata.name:{0} team:backend]",
                case.namespace
            )
        );
        Ok(())
    })
}

#[test]
fn case_14_36_a_selector_and_a_missing_namespace() -> Result<()> {
    run(async {
        let (case, selector) = production("absent").await?;
        let missing = format!("{}-missing", case.name);
        let bundle = case
            .bundle(FEWER)
            .option("defaultNamespace", json!(missing));
        case.agent.apply(&selecting(bundle, selector)).await?;
        let message = format!("target namespace {missing} does not exist on downstream cluster");
        assert_eq!(refusal(&case).await?, message);
        assert!(
            case.agent
                .object("v1", "Namespace", "", &missing)
                .await?
                .is_none()
        );
        // Once it is there, and matches, it is deployed to.
        let labels = json!({ "env": "production", "team": "platform" });
        case.namespace(&missing, labels).await?;
        let ready = case.ready().await?;
        let deployed = condition(&ready, "Deployed").context("a Deployed condition")?;
        assert_eq!(deployed["status"], "True");
        Ok(())
    })
}
