//! Deploys that are not tried again at once: an app that swings between bad and good is worse than an old one, a hook may be a migration, and two
//! that deploy whenever the other one does never end.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{ReconcileState, Reconciler};
use crate::api::BundleDeployment;
use crate::client::identity::DeploymentClient;
use crate::config::Timing;
use crate::controllers::bundle_deployment::halt::{Halt, Waiting};
use crate::controllers::bundle_deployment::outcome::tried_again;
use crate::controllers::bundle_deployment::plan::DeployReason;
use crate::controllers::bundle_deployment::values::Filled;
use crate::controllers::claims;
use crate::ledger::{Pauses, Postponed, Tried, Wait};
use crate::public::PublicText;

fn is_atomic(bundle: &BundleDeployment) -> bool {
    let helm = bundle.spec.options.helm.as_ref();
    helm.is_some_and(|helm| helm.atomic)
}

/// Pauses after an attempt at content of this kind.
fn pauses(timing: &Timing, waiting: Waiting) -> Pauses {
    let first = match waiting {
        Waiting::Undone | Waiting::Taking => timing.undo_retry,
        Waiting::AfterHooks | Waiting::HookEnded | Waiting::Answered => timing.overwrite_retry,
    };
    let longest = match waiting {
        // Until then nobody knows what the objects are compared with.
        Waiting::Answered => timing.answer_retry_max,
        // The cause may be gone any moment: another bundle's webhook, a quota.
        Waiting::AfterHooks => timing.answer_retry_max,
        Waiting::Undone | Waiting::HookEnded | Waiting::Taking => timing.undo_retry_max,
    };
    Pauses { first, longest }
}

/// How long a deploy waits that is all of these attempts at once, and for which of them; none if it may be tried.
fn longest_wait(
    postponed: &Postponed,
    tried: impl Iterator<Item = (Tried, Waiting)>,
    now: i64,
    timing: &Timing,
) -> Option<(Wait, Waiting)> {
    let waits = tried.filter_map(|(tried, kind)| {
        let wait = postponed.wait(&tried, now, pauses(timing, kind))?;
        Some((wait, kind))
    });
    waits.max_by_key(|(wait, _)| wait.until)
}

impl Reconciler {
    /// Identifies the deploy before it is tried, where that is needed: with other values the same spec may well succeed, and an object that was only
    /// touched has no others.
    pub(super) async fn known_before(
        &self,
        state: &ReconcileState,
        filled: &Filled,
        impersonated: &DeploymentClient,
    ) -> Option<Tried> {
        let postponed = self.context.ledger.postponed(state.bundle.name());
        let must_know = is_atomic(&state.bundle) || postponed != Postponed::default();
        match must_know {
            true => Some(self.tried(state, filled, impersonated).await),
            false => None,
        }
    }

    pub(super) async fn tried(
        &self,
        state: &ReconcileState,
        filled: &Filled,
        impersonated: &DeploymentClient,
    ) -> Tried {
        let (bundle, values) = (&state.bundle, &self.context.deployer.values);
        // Values that cannot be read make no difference.
        let values = values.digest_now(impersonated, bundle).await;
        let values = values.ok().flatten();
        Tried::content(bundle, filled.digest.as_deref(), values.as_deref())
    }

    /// Whether a deploy has to wait, which the report then says.
    pub(super) fn waits(
        &self,
        state: &mut ReconcileState,
        tried: Option<&Tried>,
        reason: DeployReason,
    ) -> bool {
        let now = state.report.now().as_second();
        let postponed = self.context.ledger.postponed(state.bundle.name());
        let content = match is_atomic(&state.bundle) {
            true => Waiting::Undone,
            false if self.is_owned_by_other(state) => Waiting::Taking,
            // How long it was to wait stands in the ledger.
            false => Waiting::HookEnded,
        };
        let answer = reason
            .is_answer()
            .then(|| (Tried::answer(&state.bundle), Waiting::Answered));
        let all = tried.cloned().map(|tried| (tried, content));
        let tried = all.into_iter().chain(answer);
        let Some((wait, kind)) = longest_wait(&postponed, tried, now, &self.timing) else {
            return false;
        };
        state.report.waits(kind, time(wait.until), wait.left);
        true
    }

    /// How long another bundle is not woken for what is an answer to somebody: until its own answer is due, and for the first pause.
    pub(super) fn pause_of_answer(&self, bundle: &str, now: Timestamp) -> Duration {
        let pauses = pauses(&self.timing, Waiting::Answered);
        let left = self.context.store.get(bundle).and_then(|bundle| {
            let postponed = self.context.ledger.postponed(bundle.name());
            postponed.wait(&Tried::answer(&bundle), now.as_second(), pauses)
        });
        left.map_or(pauses.first, |wait| wait.left.max(pauses.first))
    }

    /// Whether another bundle has the release that is wanted.
    fn is_owned_by_other(&self, state: &ReconcileState) -> bool {
        let known = self.context.ledger.get(&claims::desired(&state.bundle));
        known.is_some_and(|entry| entry.bundle != state.bundle.name())
    }

    /// Reports a deploy that failed. If it was undone, or had run hooks, the same content waits from now on, and status says until
    /// when.
    pub(super) async fn deploy_failed(&self, state: &mut ReconcileState, tried: Tried, halt: Halt) {
        let Some(waiting) = halt.cause.waiting() else {
            return self.report(state, &halt);
        };
        let (ledger, name) = (&self.context.ledger, state.bundle.name());
        // Not when the reconcile began: an attempt may take long.
        let now = self.context.identities.agent().now().as_second();
        let (before, pauses) = (ledger.postponed(name), pauses(&self.timing, waiting));
        let (postponed, wait) = before.after(tried, now, pauses, rand::random());
        if let Err(failed) = ledger.postpone(name, postponed, now).await {
            let error = PublicText::nothing_secret_in(&failed);
            logging::warn!(bundle = name, error, "cannot write down a failed attempt");
        }
        let postponed_halt = halt.followed_by(&tried_again(time(wait.until)));
        self.report(state, &postponed_halt.postponed(wait.left));
    }

    /// A deploy went well, and may have been an answer to what others do.
    pub(super) async fn deploy_succeeded(&self, state: &ReconcileState, reason: DeployReason) {
        let (ledger, name) = (&self.context.ledger, state.bundle.name());
        let now = self.context.identities.agent().now().as_second();
        let mut postponed = ledger.postponed(name).after_success();
        if reason.is_answer() {
            let pauses = pauses(&self.timing, Waiting::Answered);
            (postponed, _) =
                postponed.after(Tried::answer(&state.bundle), now, pauses, rand::random());
        }
        if let Err(failed) = ledger.postpone(name, postponed, now).await {
            let error = PublicText::nothing_secret_in(&failed);
            logging::warn!(bundle = name, error, "cannot write the ledger");
        }
    }
}

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::bundle_deployment::halt::Cause;
    use crate::report::events::Reason;
    use rstest::rstest;

    /// A webhook of another bundle that is not up yet is no verdict on the content.
    #[rstest]
    #[case::a_hook(true, 60 * 60)]
    #[case::something_else_after_hooks(false, 5 * 60)]
    fn only_a_failed_hook_waits_up_to_an_hour_for_its_retry(
        #[case] is_hook: bool,
        #[case] longest: u64,
    ) {
        let cause = Cause::Deploy(Reason::ApplyFailed, None).after_hooks(is_hook);
        let waiting = cause.waiting().unwrap();
        let (tried, mut postponed, mut now) = (content(), Postponed::default(), 0);
        for _ in 0..20 {
            let pauses = pauses(&Timing::default(), waiting);
            let wait;
            (postponed, wait) = postponed.after(tried.clone(), now, pauses, 0.0);
            assert!(wait.left.as_secs() <= longest, "{wait:?}");
            now = wait.until;
        }
    }

    /// An undone deploy waits whatever asks for it; other content, and the same one after its time, does not.
    #[test]
    fn a_deploy_waits_for_the_longest_pause_of_what_it_tries() {
        let timing = Timing::default();
        let noted = |postponed: Postponed, tried: Tried, kind| {
            postponed.after(tried, 0, pauses(&timing, kind), 0.0).0
        };
        let answer = || Tried::answer(&BundleDeployment::default());
        let postponed = noted(Postponed::default(), content(), Waiting::Undone);
        let postponed = noted(postponed, answer(), Waiting::Answered);
        let wait = |tried: Vec<(Tried, Waiting)>, now| {
            longest_wait(&postponed, tried.into_iter(), now, &timing).map(|(_, kind)| kind)
        };
        let both = || vec![(answer(), Waiting::Answered), (content(), Waiting::Undone)];
        let (undone, answered) = (timing.undo_retry, timing.overwrite_retry);
        assert!(answered < undone, "or the other one is waited for");
        assert_eq!(wait(both(), 0), Some(Waiting::Undone));
        assert_eq!(wait(vec![both().remove(0)], 0), Some(Waiting::Answered));
        let last = undone.as_secs().cast_signed() - 1;
        assert_eq!(wait(both(), last), Some(Waiting::Undone));
        assert_eq!(wait(both(), last + 1), None);
        let other = Tried::content(&BundleDeployment::default(), Some("a fact"), None);
        assert_eq!(wait(vec![(other, Waiting::Undone)], 0), None);
    }

    #[rstest]
    #[case::refused(Cause::Deploy(Reason::ApplyFailed, None))]
    #[case::refused_after_hooks(Cause::Deploy(Reason::ApplyFailed, None).after_hooks(false))]
    #[case::stopped_by_a_hook(Cause::Deploy(Reason::HookFailed, None).after_hooks(true))]
    fn a_failed_takeover_waits_the_same_whatever_its_cause(#[case] cause: Cause) {
        assert_eq!(cause.of_a_take().waiting(), Some(Waiting::Taking));
    }

    fn content() -> Tried {
        Tried::content(&BundleDeployment::default(), None, None)
    }
}
