//! Whether a BundleDeployment is to be left alone for now. No I/O.

use std::fmt;

use crate::api::BundleDeploymentSpec;
use crate::public::Public;

/// Why a bundle is left alone for now: nothing is deployed, corrected, removed or reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuspendReason {
    Paused,
    OffSchedule,
    WaitingForValues,
}

/// Whether the bundle is to be left alone.
pub fn suspend_reason(spec: &BundleDeploymentSpec) -> Option<SuspendReason> {
    match spec {
        _ if spec.paused => Some(SuspendReason::Paused),
        _ if spec.off_schedule => Some(SuspendReason::OffSchedule),
        _ if spec.waiting_for_values => Some(SuspendReason::WaitingForValues),
        _ => None,
    }
}

impl Public for SuspendReason {
    fn fmt_public(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspend_reasons_come_in_upstreams_order() {
        let mut spec = BundleDeploymentSpec {
            waiting_for_values: true,
            ..Default::default()
        };
        assert_eq!(suspend_reason(&spec), Some(SuspendReason::WaitingForValues));
        spec.paused = true;
        assert_eq!(suspend_reason(&spec), Some(SuspendReason::Paused));
        assert_eq!(suspend_reason(&BundleDeploymentSpec::default()), None);
    }
}
