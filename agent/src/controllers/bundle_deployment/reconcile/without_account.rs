//! What becomes of a bundle whose account cannot be had. Nothing is written as it, nor as anyone else in its place.

use std::time::Duration;

use super::{Current, ReconcileState, Reconciler};
use crate::api::{BundleDeployment, BundleDeploymentStatus};
use crate::client::identity::DeploymentClient;
use crate::controllers::bundle_deployment::halt::Halt;
use crate::controllers::bundle_deployment::plan::{self, DeployFacts, Record};
use crate::controllers::bundle_deployment::values::Filled;
use crate::controllers::queue::ReconcileKind;

/// How long until a whole reconcile asks again for an account that was gone at first.
const LOOKED_FOR: Duration = Duration::from_secs(5 * 60);

/// Whether a full reconcile has anything to do that takes the bundle's account, besides looking.
fn needs_account(
    bundle: &BundleDeployment,
    status: &BundleDeploymentStatus,
    facts: DeployFacts,
) -> bool {
    let (spec, options) = (&bundle.spec, &bundle.spec.options);
    spec.deployment_id != status.applied_deployment_id
        || !options.downstream_resources.is_empty()
        || options.namespace_labels.is_some()
        || options.namespace_annotations.is_some()
        || plan::deploy_reason(bundle, facts).is_some()
}

impl Reconciler {
    /// The rest of a full reconcile. A deploy that is due fails; what is deployed already is in order without an account, and still looked at.
    pub(super) async fn without_account(
        &self,
        state: &mut ReconcileState,
        filled: &Filled,
        missing: Halt,
    ) -> Result<(), Halt> {
        let stored = match self.deployed_with(state) {
            Some(former) => self.wanted(state, &former).await.ok(),
            None => None,
        };
        let record = stored.as_ref().map(|stored| {
            let status = stored.as_ref().map(|stored| stored.status());
            Record::of(status.as_ref())
        });
        let release = stored.as_ref().and_then(Option::as_ref);
        let facts = DeployFacts {
            // That it cannot be read is no reason to deploy.
            record: record.unwrap_or(Record::Deployed),
            ..self.deploy_facts(state, filled, release, false)
        };
        if needs_account(&state.bundle, state.report.status(), facts) {
            self.report(state, &missing);
        } else if state.hold.is_none() && state.bundle.metadata.deletion_timestamp.is_none() {
            self.check_dependencies(state)?;
            state.report.confirmed();
        }
        self.monitor(state, None, Current::Unread).await?;
        // What the rest of a full reconcile would have found is not lost, should the account be there by now.
        state.report.wake_after(ReconcileKind::Full, LOOKED_FOR);
        Ok(())
    }

    /// The account that the release was deployed with, by our ledger, if the bundle still names it: it may be gone, and what it may read is up to the API server.
    pub(super) fn deployed_with(&self, state: &ReconcileState) -> Option<DeploymentClient> {
        let (bundle, id) = (&state.bundle, state.named()?);
        let account = &bundle.spec.options.service_account;
        let entry = self.context.ledger.get(&id.key())?;
        let is_its = entry.bundle == bundle.name() && entry.digest(id.revision).is_some();
        if !is_its || account.is_empty() || entry.account != *account {
            return None;
        }
        self.context.identities.account(account).ok()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const DEPLOYED: DeployFacts = DeployFacts {
        record: Record::Deployed,
        is_known: true,
        downstream_resources_changed: false,
        overwritten: false,
        facts_changed: false,
        status_is_outdated: false,
    };

    #[rstest]
    #[case::deployed(json!({}), DEPLOYED, false)]
    #[case::another_version(json!({ "deploymentID": "b" }), DEPLOYED, true)]
    #[case::labels(json!({ "options": { "namespaceLabels": { "a": "b" } } }), DEPLOYED, true)]
    #[case::annotations(json!({ "options": { "namespaceAnnotations": { "a": "b" } } }), DEPLOYED, true)]
    #[case::copies(
        json!({ "options": { "downstreamResources": [{ "kind": "Secret", "name": "a" }] } }),
        DEPLOYED,
        true
    )]
    #[case::a_record_that_is_gone(json!({}), DeployFacts { record: Record::Missing, ..DEPLOYED }, true)]
    fn the_account_is_missed_where_something_is_to_be_written(
        #[case] spec: Value,
        #[case] facts: DeployFacts,
        #[case] expected: bool,
    ) {
        let mut bundle = json!({
            "metadata": { "name": "web" }, "spec": { "deploymentID": "a" },
            "status": { "appliedDeploymentID": "a", "release": "shop/web:1" },
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            bundle["spec"][key] = value.clone();
        }
        let bundle: BundleDeployment = serde_json::from_value(bundle).unwrap();
        assert_eq!(needs_account(&bundle, &bundle.status, facts), expected);
    }
}
