//! How objects that are both wanted and live differ, by what the API server predicts.

use std::collections::{BTreeSet, HashMap};

use objects::drift::{self, Prediction, Rules};
use objects::{Object, ObjectKey};
use release::kube::{Cluster, DryRun, Owner};
use serde_json::Value;

use super::live::{Live, ObserveError, hash_of};
use crate::api::ModifiedStatus;
use crate::controllers::bundle_deployment::dry_run_budget::DryRunBudget;
use crate::controllers::bundle_deployment::ownership;
use crate::public::PublicText;

/// How objects differ.
#[derive(Debug, Default)]
pub struct Differences {
    /// Merge patches as JSON text; Secrets' values are masked. What else is secret is left out of those that are told.
    pub(super) patches: HashMap<ObjectKey, String>,
    /// Objects without a verdict of now, and why the first of them has none.
    pub unjudged: BTreeSet<ObjectKey>,
    pub problem: Option<ObserveError>,
}

impl Differences {
    /// Notes that nothing new is known of an object.
    fn keep(&mut self, key: ObjectKey, former: &[ModifiedStatus]) {
        let mut former = former.iter().filter(|entry| !entry.missing && !entry.extra);
        if let Some(entry) = former.find(|entry| entry.key() == key) {
            self.patches.insert(key.clone(), entry.patch.clone());
        }
        self.unjudged.insert(key);
    }
}

impl Live {
    /// How the objects that are both wanted and live differ, as merge patches.
    ///
    /// A pair whose live half visibly covers the wanted one costs nothing; for the others the API
    /// server predicts, by a dry run, what applying would leave. What was written since it was read is
    /// taken in as it is by then. Where the API server gives no verdict for now, the one of `former` stays.
    ///
    /// # Cancellation
    /// Safe: nothing is written.
    pub async fn differences(
        &mut self,
        cluster: &Cluster,
        owner: &Owner,
        desired: &[Object],
        rules: &Rules,
        former: &[ModifiedStatus],
    ) -> Differences {
        let mut differences = Differences::default();
        let mut budget = DryRunBudget::default();
        for object in desired {
            let key = object.key();
            let Some(live) = self.objects.get(&key) else {
                continue;
            };
            if self.covered.contains(&key) || drift::covers(live, &object.body) {
                continue;
            }
            if budget.is_exhausted() {
                differences.keep(key, former);
                continue;
            }
            let dry_run = release::kube::dry_run(cluster, owner, object, live);
            let prediction = match budget.wait(dry_run).await {
                Ok(DryRun::Applied { predicted, newer }) => {
                    self.renew(object, newer);
                    Prediction::Server(predicted)
                }
                Ok(DryRun::Gone) => {
                    self.objects.remove(&key);
                    continue;
                }
                Err(refused) if refused.is_lasting() => {
                    logging::debug!(error = release::error_unquoted(&refused), "no prediction");
                    Prediction::Estimate
                }
                Err(failed) => {
                    let problem = || ObserveError::Predict(key.clone(), failed);
                    differences.problem.get_or_insert_with(problem);
                    differences.keep(key, former);
                    continue;
                }
            };
            let mut desired = object.body.clone();
            owner.mark(&mut desired);
            if let Some(patch) = self.difference(&key, &desired, &prediction, rules) {
                differences.patches.insert(key, patch);
            }
        }
        differences
    }

    /// Takes in an object as it was found later than the others.
    fn renew(&mut self, object: &Object, newer: Option<Value>) {
        let Some(newer) = newer else { return };
        let key = object.key();
        let former = self.objects.remove(&key);
        if former.is_some_and(|former| hash_of(&former) == hash_of(&newer)) {
            self.add(&object.resource, vec![newer]);
        } else {
            self.foreign.insert(key, ownership::holder(&newer));
        }
    }

    fn difference(
        &self,
        key: &ObjectKey,
        desired: &Value,
        prediction: &Prediction,
        rules: &Rules,
    ) -> Option<String> {
        let live = self.objects.get(key)?;
        let found = drift::modification(live, desired, prediction, rules);
        let Some(Value::Object(mut patch)) = found else {
            return None;
        };
        let others = self.objects.values();
        if let Err(malformed) = drift::hold_replicas(&mut patch, live, others) {
            logging::warn!(
                error = PublicText::nothing_secret_in(&malformed),
                "an autoscaler cannot be judged"
            );
        }
        (!patch.is_empty()).then(|| golib::json::encode(&Value::Object(patch)))
    }
}
