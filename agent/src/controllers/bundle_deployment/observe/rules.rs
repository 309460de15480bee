//! What a bundle's compare patches leave out of a comparison.

use std::sync::Arc;

use objects::drift::{Operation, Rule, Rules, RulesError};
use release::kube::Cluster;
use tokio::task::JoinError;

use crate::api::{BundleDeployment, BundleDeploymentOptions};
use crate::public::PublicText;

/// The rules of a bundle. What cannot be used is logged and left out. Many patterns take long to compile: other bundles do not wait for it.
///
/// # Errors
/// The work panicked.
pub async fn rules(cluster: &Cluster, bundle: &Arc<BundleDeployment>) -> Result<Rules, JoinError> {
    let diff = bundle.spec.options.diff.as_ref();
    if diff.is_none_or(|diff| diff.compare_patches.is_empty()) {
        return Ok(Rules::default());
    }
    let bundle = Arc::clone(bundle);
    let compile = move || compiled(&bundle.spec.options);
    cluster.host().work(compile).await
}

fn compiled(options: &BundleDeploymentOptions) -> Rules {
    let patches = options.diff.iter().flat_map(|diff| &diff.compare_patches);
    let rules: Vec<Rule> = patches
        .map(|patch| Rule {
            api_version: patch.api_version.clone(),
            kind: patch.kind.clone(),
            namespace: patch.namespace.clone(),
            name: patch.name.clone(),
            json_pointers: patch.json_pointers.clone(),
            operations: patch
                .operations
                .iter()
                .map(|operation| Operation {
                    op: operation.op.clone(),
                    path: operation.path.clone(),
                    value: operation.value.clone(),
                })
                .collect(),
        })
        .collect();
    let (rules, problems) = Rules::compile(&rules);
    log_left_out(&problems);
    rules
}

pub(super) fn log_left_out(problems: &[RulesError]) {
    if let Some(first) = problems.first() {
        let (count, error) = (problems.len(), PublicText::nothing_secret_in(first));
        logging::warn!(count, error, "compare patches are left out");
    }
}
