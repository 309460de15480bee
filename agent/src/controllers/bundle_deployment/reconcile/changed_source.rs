//! What a bundle only names: the values it reads on this cluster, and its chart's source. They are watched and asked, and a change of them is deployed.

use std::sync::Arc;
use std::time::Duration;

use release::storage::StoredRelease;

use super::{ReconcileState, Reconciler};
use crate::api::{ANNOTATION_INSTALL_ONCE, ANNOTATION_VALUES_FROM, BundleDeployment, WATCH_VALUES};
use crate::client::identity::DeploymentClient;
use crate::controllers::bundle_deployment::chart_poll::{self, Found};
use crate::controllers::bundle_deployment::halt::InputError;
use crate::controllers::bundle_deployment::plan::DeployReason;
use crate::controllers::bundle_deployment::values::MAX_REFERENCES;
use crate::controllers::queue::ReconcileKind;
use crate::report::events::Reason;
use crate::values;

/// How soon a source is asked again that did not answer when a change was deployed.
const OWED_RETRY: Duration = Duration::from_secs(60);

/// Whether a change of what values come from leads to a deploy.
fn watches_values(bundle: &BundleDeployment) -> bool {
    bundle.switch(WATCH_VALUES) != Some("false")
}

impl Reconciler {
    /// Watches what the bundle's values come from, as its account.
    pub(super) fn watch_values(&self, state: &ReconcileState, impersonated: &DeploymentClient) {
        let bundle = &state.bundle;
        let mut references = match watches_values(bundle) {
            true => values::references(&bundle.spec.options),
            false => Vec::new(),
        };
        // A bundle with more references is refused.
        references.truncate(MAX_REFERENCES);
        let watches = &self.context.values_watches;
        watches.refresh(bundle.name(), impersonated, &references);
    }

    /// After a deploy: when the chart's source is asked next.
    pub(super) fn ask_source_again(&self, state: &mut ReconcileState) {
        if let Ok(Some(interval)) = chart_poll::interval(&state.bundle) {
            state.report.wake_after(ReconcileKind::Full, interval);
        }
        let sources = &self.context.deployer.sources;
        if sources.is_owed_answer(state.bundle.name()) {
            state.report.wake_after(ReconcileKind::Full, OWED_RETRY);
        }
    }

    /// Nothing of the bundle itself has changed. Checks what it only names: the values it reads on this cluster, its chart's source. A failed read is
    /// reported, and is no reason to deploy.
    pub(super) async fn changed_source(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
        stored: Option<&StoredRelease>,
    ) -> Option<DeployReason> {
        let (bundle, stored) = (Arc::clone(&state.bundle), stored?);
        let is_installed_once = bundle.switch(ANNOTATION_INSTALL_ONCE) == Some("true");
        if bundle.metadata.deletion_timestamp.is_some() || is_installed_once {
            return None;
        }
        let (deployer, report) = (&self.context.deployer, &mut state.report);
        if watches_values(&bundle) {
            let recorded = stored.annotation(ANNOTATION_VALUES_FROM);
            let watches = &deployer.values.watches;
            let is_changed = |digest: &str| watches.is_changed(bundle.name(), recorded, digest);
            match deployer.values.digest_now(impersonated, &bundle).await {
                Ok(Some(digest)) if is_changed(&digest) => {
                    return Some(DeployReason::ValuesChanged);
                }
                Ok(_) => {}
                Err(unread) => {
                    // The event that woke it does not come again.
                    if let Some(pause) = unread.read_again_in(watches, bundle.name()) {
                        report.wake_after(ReconcileKind::Full, pause);
                    }
                    let (InputError::NotYet(why) | InputError::Failed(why)) = unread.why;
                    let what = "cannot look at what values come from";
                    report.failed(Reason::ValuesFailed, what, &why);
                }
            }
        }
        let sources = &deployer.sources;
        let is_owed = sources.is_owed_answer(bundle.name());
        let interval = match chart_poll::interval(&bundle) {
            Ok(interval) if is_owed => interval.unwrap_or(OWED_RETRY).min(OWED_RETRY),
            Ok(interval) => interval?,
            Err(why) => {
                report.failed(Reason::SourceFailed, "not polling", &why);
                return None;
            }
        };
        let left = sources.poll_in(bundle.name(), interval);
        if !left.is_zero() {
            report.wake_after(ReconcileKind::Full, left);
            return None;
        }
        report.wake_after(ReconcileKind::Full, interval);
        match deployer.poll(impersonated, &bundle, stored).await {
            Ok(Found::Unanswered) => None,
            Ok(Found::Same) => {
                sources.owes_answer(bundle.name(), false);
                None
            }
            Ok(Found::Other) => Some(DeployReason::ChartChanged),
            // Somebody asked for what is there now.
            Ok(Found::Older(_)) if is_owed => Some(DeployReason::ChartChanged),
            Ok(Found::Older(text)) => {
                report.event(Reason::OlderChart, text);
                None
            }
            Err(halt) => {
                let what = "cannot look for another chart";
                report.failed(Reason::SourceFailed, what, &halt.message);
                None
            }
        }
    }
}
