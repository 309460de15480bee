//! State of a BundleDeployment as others that depend on it see it. No I/O.

use super::conditions::DEPLOYED;
use crate::api::BundleDeployment;

/// State of a bundle as `dependsOn` sees it; upstream's `GetDeploymentState`, first match wins.
pub fn state(bundle: &BundleDeployment) -> &'static str {
    let (spec, status) = (&bundle.spec, &bundle.status);
    if status.applied_deployment_id != spec.deployment_id {
        if status.condition(DEPLOYED) == "False" {
            "ErrApplied"
        } else {
            "WaitApplied"
        }
    } else if !status.ready {
        "NotReady"
    } else if spec.deployment_id != spec.staged_deployment_id {
        "OutOfSync"
    } else if !status.non_modified {
        "Modified"
    } else {
        "Ready"
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use rstest::rstest;

    use super::*;
    use crate::public::PublicText;

    #[rstest]
    #[case::nothing_applied("new", "old", "", true, true, "WaitApplied")]
    #[case::failed("new", "old", "False", true, true, "ErrApplied")]
    #[case::not_ready("id", "id", "False", false, true, "NotReady")]
    #[case::modified("id", "id", "True", true, false, "Modified")]
    #[case::ready("id", "id", "True", true, true, "Ready")]
    fn states(
        #[case] desired: &str,
        #[case] applied: &str,
        #[case] deployed: &str,
        #[case] ready: bool,
        #[case] non_modified: bool,
        #[case] expected: &str,
    ) {
        let mut bundle = BundleDeployment::default();
        bundle.spec.deployment_id = desired.into();
        bundle.spec.staged_deployment_id = desired.into();
        bundle.status.applied_deployment_id = applied.into();
        bundle.status.ready = ready;
        bundle.status.non_modified = non_modified;
        if !deployed.is_empty() {
            let why = PublicText::from("x");
            let outcome = (deployed == "True").then_some(()).ok_or(&why);
            bundle
                .status
                .set_condition(DEPLOYED, outcome, Timestamp::UNIX_EPOCH);
        }
        assert_eq!(state(&bundle), expected);
        if expected == "Ready" {
            bundle.spec.staged_deployment_id = "next".into();
            assert_eq!(state(&bundle), "OutOfSync");
        }
    }
}
