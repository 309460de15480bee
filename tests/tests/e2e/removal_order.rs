//! Bundles that go together, of which one needs what another one has to be removed.

use anyhow::{Result, ensure};
use serde_json::json;
use testbed::bed::Bed;
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::wait::wait_until;

use crate::scene::{deploy_own, hasty, target};

const TENANTS: usize = 3;

/// A namespace, and the right of an account to deploy there: what a team's other bundles need.
fn onboarding(agent: &TestAgent<'_>, tenant: usize) -> BundleDeployment {
    let (team, system) = (team(agent, tenant), &agent.system_namespace);
    let text = format!(
        "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {team}}}\n\
         ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
         metadata: {{name: tenant, namespace: {team}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}\n\
         subjects: [{{kind: ServiceAccount, name: tenant, namespace: {system}}}]\n"
    );
    BundleDeployment::content(
        &format!("a-onboarding-{tenant}"),
        vec![("all.yaml".to_owned(), text.into())],
    )
    .option("defaultNamespace", json!(target(agent)))
}

/// What the account deploys there.
fn app(agent: &TestAgent<'_>, tenant: usize) -> BundleDeployment {
    let map = |number| {
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: inside-{number}}}\n")
    };
    let text: String = (0..20).map(map).collect();
    BundleDeployment::content(
        &format!("app-{tenant}"),
        vec![("all.yaml".to_owned(), text.into())],
    )
    .option("serviceAccount", json!("tenant"))
    .option("defaultNamespace", json!(team(agent, tenant)))
}

fn team(agent: &TestAgent<'_>, tenant: usize) -> String {
    format!("{}-team-{tenant}", agent.id)
}

/// A bundle that has a namespace, and the right to remove what another bundle has in it, goes after that one.
#[tokio::test]
async fn a_removal_waits_for_releases_in_its_namespaces() -> Result<()> {
    let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
    hasty(&mut agent).await?;
    deploy_own(&agent).await?;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "tenant", "namespace": agent.system_namespace },
    });
    apply(&agent.downstream, account).await?;
    for tenant in 0..TENANTS {
        agent.apply(&onboarding(&agent, tenant)).await?;
        agent.wait_ready(&format!("a-onboarding-{tenant}")).await?;
        agent.apply(&app(&agent, tenant)).await?;
    }
    for tenant in 0..TENANTS {
        agent.wait_ready(&format!("app-{tenant}")).await?;
    }
    for tenant in 0..TENANTS {
        agent.delete(&format!("app-{tenant}")).await?;
        agent.delete(&format!("a-onboarding-{tenant}")).await?;
    }
    wait_until("all to be removed", PATIENCE, async || {
        let ledger = agent.ledger().await.map_err(|e| e.to_string())?;
        let ledger = ledger.ok_or("no ledger")?.data["data"].to_string();
        let is_left = ["app-", "a-onboarding-"]
            .iter()
            .any(|name| ledger.contains(name));
        match is_left {
            true => Err(ledger),
            false => Ok(()),
        }
    })
    .await?;
    for tenant in 0..TENANTS {
        let found = agent
            .object("v1", "ConfigMap", &team(&agent, tenant), "inside-0")
            .await?;
        ensure!(found.is_none(), "{found:?}");
    }
    Ok(())
}
