//! After an attempt that was undone the same content waits: an app that swings between bad and good is worse than an old one.

use k8s_openapi::jiff::Timestamp;

use super::{ReconcileState, Reconciler};
use crate::controllers::bundle_deployment::outcome::{Cause, Halt, again_after_undo};
use crate::error;
use crate::ledger::{UndoPauses, Undone};

impl Reconciler {
    fn undo_pauses(&self) -> UndoPauses {
        UndoPauses {
            first: self.timing.undo_retry,
            longest: self.timing.undo_retry_max,
        }
    }

    /// Whether this content has to wait, which the report then says.
    pub(super) fn waits_after_undo(&self, state: &mut ReconcileState, content: &str) -> bool {
        let now = state.report.now().as_second();
        let Some(undone) = self.context.ledger.undone(state.bundle.name()) else {
            return false;
        };
        let Some(pause) = undone.pause(content, now, self.undo_pauses()) else {
            return false;
        };
        state.report.waits_after_undo(time(undone.until), pause);
        true
    }

    /// Reports a deploy that failed. If it was undone, the same content waits from now on, and status says until when.
    pub(super) async fn deploy_failed(
        &self,
        state: &mut ReconcileState,
        content: String,
        halt: Halt,
    ) {
        if !matches!(halt.cause, Cause::Undone(_)) {
            return self.report(state, &halt);
        }
        let (ledger, name) = (&self.context.ledger, state.bundle.name());
        // Not when the reconcile began: an attempt may take long.
        let now = self.context.identities.agent().now().as_second();
        let (before, pauses) = (ledger.undone(name), self.undo_pauses());
        let undone = Undone::after(
            before.as_ref(),
            content.clone(),
            now,
            pauses,
            rand::random(),
        );
        let until = time(undone.until);
        let pause = undone.pause(&content, now, pauses).unwrap_or_default();
        if let Err(failed) = ledger.note_undone(name, Some(undone), now).await {
            let error = error::text(&failed);
            tracing::warn!(bundle = name, error, "cannot write down an undone attempt");
        }
        self.report(state, &halt.followed_by(&again_after_undo(until)));
        state.report.waits_after_undo(until, pause);
    }

    /// An attempt went well.
    pub(super) async fn not_undone(&self, state: &ReconcileState) {
        let now = state.report.now().as_second();
        let noted = self
            .context
            .ledger
            .note_undone(state.bundle.name(), None, now);
        if let Err(failed) = noted.await {
            let error = error::text(&failed);
            tracing::warn!(
                bundle = state.bundle.name(),
                error,
                "cannot write the ledger"
            );
        }
    }
}

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}
