//! Decides what to do about a BundleDeployment, from what is known of it. No I/O.
//!
//! Mirrors the order of `bundledeployment_controller.go` and `internal/cmd/agent/deployer`; the
//! texts are upstream's.

use std::fmt;

use release::model::Status;

use crate::api::{
    ANNOTATION_INSTALL_ONCE, BundleDeployment, BundleDeploymentSpec, BundleDeploymentStatus,
    ModifiedStatus,
};
use crate::controllers::conditions::{CORRECTIONS_POSTPONED, DEPLOYED, INSTALLED};
use crate::controllers::downstream_resources::Copies;
use crate::public::Public;

/// Whether a deploy is called for, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeployReason {
    /// Another deployment ID than the one applied.
    Changed,
    /// The last attempt failed or did not get to its end, or another bundle had the release meanwhile.
    Unfinished,
    /// The release the status names is gone or was removed, or its deploy is not over, and nobody is about to go on with it.
    ReleaseGone,
    /// Copied resources changed.
    DownstreamResourcesChanged,
    /// Copied resources were changed by somebody else, and are again what they were at the last deploy.
    DownstreamResourcesPutBack,
    /// An object this bundle overwrites went with the bundle it was taken from.
    Overwritten,
    /// A fact of the cluster that its templates read is another.
    FactsChanged,
    /// A ConfigMap or Secret that its values come from is another.
    ValuesChanged,
    /// The chart's source serves another chart under the same name.
    ChartChanged,
}

impl Public for DeployReason {
    fn fmt_public(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl DeployReason {
    /// Whether this deploy repairs what others removed or changed; repeated repairs are delayed.
    pub fn is_answer(self) -> bool {
        matches!(
            self,
            Self::ReleaseGone | Self::Overwritten | Self::DownstreamResourcesPutBack
        )
    }
}

/// State of the release record that a status names: whether it was deployed to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    Missing,
    /// The deploy is under way or has failed, as the cluster was restored from a backup or a try to deploy the same revision anew was cut off; or the
    /// removal has begun, here or by helm, which may be at it still: a deploy waits for that.
    Unfinished,
    Deployed,
}

impl Record {
    /// By the status of the record, if there is one. No condition says so: one that is False may be so for what ended before any try.
    pub fn of(status: Option<&Status>) -> Self {
        match status {
            None => Self::Missing,
            Some(status) if status.is_complete() => Self::Deployed,
            Some(_) => Self::Unfinished,
        }
    }
}

/// Whether what is live may be made like the record, or adopted by it: not where a hook of its deploy may still have to come first, nor while the
/// site holds changes.
pub fn may_correct(record: Record, is_held: bool) -> bool {
    record == Record::Deployed && !is_held
}

/// Facts a deploy depends on.
#[derive(Clone, Copy, Debug)]
pub struct DeployFacts {
    /// The release named by the status.
    pub record: Record,
    /// The ledger knows the deployment that the status names as the one of this bundle that was deployed last as that release: what is not installed
    /// about it is the namespace, whose labels are asked for again without a deploy.
    pub is_known: bool,
    pub copies: Copies,
    /// See [`is_overwritten`].
    pub overwritten: bool,
    /// The release was filled in with other facts than there are now.
    pub facts_changed: bool,
    /// A deploy was tried since the status was written, and none has succeeded, or another one has: upstream was restored from a backup, or a commit that
    /// failed was reverted.
    pub status_is_outdated: bool,
}

/// What Fleet's command line writes for `{{ }}` in a file's fields.
const TEMPLATED: &str = "TEMPLATED";

/// Whether an object listed under `overwrites` was last found missing: it was deleted along with
/// the bundle it was taken from, and is deployed anew. Fleet lists the namespace that the bundle's file names. Unlike upstream it counts, where the
/// file names one that is final: not in a template, nor where all objects are put into the target namespace.
pub fn is_overwritten(spec: &BundleDeploymentSpec, modified: &[ModifiedStatus]) -> bool {
    let options = &spec.options;
    let is_final = |namespace: &str| {
        options.target_namespace.is_empty()
            && !namespace.is_empty()
            && !namespace.contains(TEMPLATED)
    };
    let is_listed = |entry: &ModifiedStatus| {
        options.overwrites.iter().any(|taken| {
            taken.kind == entry.kind
                && taken.name == entry.name
                && (!is_final(&taken.namespace) || taken.namespace == entry.namespace)
        })
    };
    modified
        .iter()
        .any(|entry| entry.missing && !entry.exist && is_listed(entry))
}

/// Whether this bundle asked to be installed once, and was.
pub fn is_installed_once(bundle: &BundleDeployment, facts: DeployFacts) -> bool {
    bundle.switch(ANNOTATION_INSTALL_ONCE) == Some("true")
        && facts.record == Record::Deployed
        && !is_unfinished(&bundle.status, facts)
}

/// Whether the last attempt did not get to its end. `Installed` is False for what came after one as well.
fn is_unfinished(status: &BundleDeploymentStatus, facts: DeployFacts) -> bool {
    status.release.is_empty() || status.condition(INSTALLED) == "False" && !facts.is_known
}

/// Whether to deploy.
///
/// A BundleDeployment that is being deleted is watched to the end but nothing new is started.
pub fn deploy_reason(bundle: &BundleDeployment, facts: DeployFacts) -> Option<DeployReason> {
    let (spec, status) = (&bundle.spec, &bundle.status);
    if bundle.metadata.deletion_timestamp.is_some() || is_installed_once(bundle, facts) {
        None
    } else if facts.copies == Copies::Changed {
        Some(DeployReason::DownstreamResourcesChanged)
    } else if spec.deployment_id != status.applied_deployment_id {
        Some(DeployReason::Changed)
    } else if is_unfinished(status, facts) {
        Some(DeployReason::Unfinished)
    } else if facts.record == Record::Missing {
        Some(DeployReason::ReleaseGone)
    } else if facts.overwritten {
        Some(DeployReason::Overwritten)
    } else if facts.status_is_outdated {
        // Asked after the two above: a deploy for one of them that failed makes the status outdated as well, and the next try is still for that
        // reason, which has pauses of its own.
        Some(DeployReason::Changed)
    } else if facts.record == Record::Unfinished {
        Some(DeployReason::ReleaseGone)
    } else if facts.facts_changed {
        Some(DeployReason::FactsChanged)
    } else if facts.copies == Copies::PutBack {
        // The last: it has pauses, and nothing that was changed on purpose waits for them.
        Some(DeployReason::DownstreamResourcesPutBack)
    } else {
        None
    }
}

/// Whether the last try of a deploy failed, whichever condition says so: what was in its way is probably still there, and the next one looks
/// before it writes anything.
pub fn has_failed(status: &BundleDeploymentStatus) -> bool {
    [DEPLOYED, INSTALLED]
        .iter()
        .any(|condition| status.condition(condition) == "False")
}

/// Whether live objects are compared with the release: only the deployment that is wanted is.
pub fn should_monitor(bundle: &BundleDeployment, status: &BundleDeploymentStatus) -> bool {
    bundle.spec.deployment_id == status.applied_deployment_id
        && status.condition(INSTALLED) != "False"
        && !status.release.is_empty()
}

/// Whether a monitoring may read only what changed since the last one: all was in order, and the status shows no correction in vain.
pub fn may_read_changes_alone(bundle: &BundleDeployment, status: &BundleDeploymentStatus) -> bool {
    status.non_modified
        && status.condition(CORRECTIONS_POSTPONED).is_empty()
        && should_monitor(bundle, status)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::controllers::conditions::MONITORED;
    use rstest::rstest;
    use serde_json::json;

    fn bundle(value: serde_json::Value) -> BundleDeployment {
        serde_json::from_value(value).unwrap()
    }

    #[rstest]
    #[case::same_id("id", "ns/r:1", Record::Deployed, None)]
    #[case::new_id("old", "ns/r:1", Record::Deployed, Some(DeployReason::Changed))]
    #[case::new_id_over_an_unfinished_one(
        "old",
        "ns/r:1",
        Record::Unfinished,
        Some(DeployReason::Changed)
    )]
    #[case::record_gone("id", "ns/r:1", Record::Missing, Some(DeployReason::ReleaseGone))]
    #[case::failed_before("id", "", Record::Deployed, Some(DeployReason::Unfinished))]
    fn deploys_when_something_changed(
        #[case] applied: &str,
        #[case] release: &str,
        #[case] record: Record,
        #[case] reason: Option<DeployReason>,
    ) {
        let facts = facts(record);
        let mut bundle = bundle(json!({"metadata": {}, "spec": {"deploymentID": "id"},
            "status": {"appliedDeploymentID": applied, "release": release}}));
        assert_eq!(deploy_reason(&bundle, facts), reason);
        let copied = DeployFacts {
            copies: Copies::Changed,
            ..facts
        };
        assert_eq!(
            deploy_reason(&bundle, copied),
            Some(DeployReason::DownstreamResourcesChanged)
        );
        let outdated = DeployFacts {
            status_is_outdated: true,
            ..facts
        };
        let of_before = reason.or(Some(DeployReason::Changed));
        assert_eq!(
            deploy_reason(&bundle, outdated),
            of_before,
            "the status is of before a restore"
        );
        let facts_changed = DeployFacts {
            facts_changed: true,
            ..facts
        };
        let reason = reason.or(Some(DeployReason::FactsChanged));
        assert_eq!(deploy_reason(&bundle, facts_changed), reason);
        bundle.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert_eq!(deploy_reason(&bundle, copied), None);
    }

    /// Of a release of this name.
    fn facts(record: Record) -> DeployFacts {
        DeployFacts {
            record,
            is_known: false,
            copies: Copies::Same,
            overwritten: false,
            facts_changed: false,
            status_is_outdated: false,
        }
    }

    /// Who changes a copy each time it is put back is not answered each time, and keeps nothing else from being deployed.
    #[test]
    fn copies_that_were_put_back_are_an_answer_that_nothing_else_waits_for() {
        let bundle = |applied: &str| {
            bundle(json!({"spec": {"deploymentID": "id"},
                "status": {"appliedDeploymentID": applied, "release": "ns/r:1"}}))
        };
        let with = |copies| DeployFacts {
            copies,
            ..facts(Record::Deployed)
        };
        let cases = [
            (Copies::Same, None),
            (
                Copies::PutBack,
                Some((DeployReason::DownstreamResourcesPutBack, true)),
            ),
            (
                Copies::Changed,
                Some((DeployReason::DownstreamResourcesChanged, false)),
            ),
        ];
        for (copies, expected) in cases {
            let reason = deploy_reason(&bundle("id"), with(copies));
            assert_eq!(
                reason.map(|one| (one, one.is_answer())),
                expected,
                "{copies:?}"
            );
        }
        let put_back = with(Copies::PutBack);
        let reason = deploy_reason(&bundle("old"), put_back);
        assert_eq!(reason, Some(DeployReason::Changed));
        let facts_changed = DeployFacts {
            facts_changed: true,
            ..put_back
        };
        let reason = deploy_reason(&bundle("id"), facts_changed);
        assert_eq!(reason, Some(DeployReason::FactsChanged));
    }

    /// Another bundle may have had the release since, and what it deployed is there still.
    #[test]
    fn a_deploy_reported_as_not_installed_is_unfinished_though_its_record_is_deployed() {
        let bundle = not_installed("id");
        let reason = deploy_reason(&bundle, facts(Record::Deployed));
        assert_eq!(reason, Some(DeployReason::Unfinished));
    }

    /// The chart may render otherwise each time: the namespace's labels are no reason for another revision.
    #[rstest]
    #[case::deployed("id", Record::Deployed, None)]
    #[case::with_another_id("old", Record::Deployed, Some(DeployReason::Changed))]
    #[case::deleted("id", Record::Missing, Some(DeployReason::ReleaseGone))]
    #[case::cut_off("id", Record::Unfinished, Some(DeployReason::ReleaseGone))]
    fn a_namespace_that_may_not_be_labelled_deploys_nothing_anew(
        #[case] applied: &str,
        #[case] record: Record,
        #[case] reason: Option<DeployReason>,
    ) {
        let mut bundle = not_installed(applied);
        let known = DeployFacts {
            is_known: true,
            ..facts(record)
        };
        assert_eq!(deploy_reason(&bundle, known), reason);
        let once = BTreeMap::from([(ANNOTATION_INSTALL_ONCE.to_owned(), "true".to_owned())]);
        bundle.metadata.annotations = Some(once);
        let is_deployed = record == Record::Deployed;
        assert_eq!(is_installed_once(&bundle, known), is_deployed);
    }

    /// Of a bundle that wants the deployment `id`.
    fn not_installed(applied: &str) -> BundleDeployment {
        bundle(json!({"spec": {"deploymentID": "id"},
            "status": {"appliedDeploymentID": applied, "release": "ns/r:1",
                       "conditions": [{"type": INSTALLED, "status": "False"}]}}))
    }

    /// The record decides, whatever a condition says: `Deployed` is False for a dependency, an account or a hold as well.
    #[rstest]
    #[case::reported_deployed("True")]
    #[case::held_up_before_any_try("False")]
    fn an_unfinished_record_is_deployed_whatever_the_deployed_condition_says(
        #[case] deployed: &str,
    ) {
        let bundle = bundle(json!({"spec": {"deploymentID": "id"},
            "status": {"appliedDeploymentID": "id", "release": "ns/r:1",
                       "conditions": [{"type": DEPLOYED, "status": deployed}]}}));
        let facts = DeployFacts {
            facts_changed: true,
            ..facts(Record::Unfinished)
        };
        let reason = deploy_reason(&bundle, facts);
        assert_eq!(reason, Some(DeployReason::ReleaseGone));
        // A try is being made already, in its own time.
        let tried = DeployFacts {
            status_is_outdated: true,
            ..facts
        };
        let reason = deploy_reason(&bundle, tried);
        assert_eq!(reason, Some(DeployReason::Changed));
    }

    #[rstest]
    #[case(Record::Deployed, false, true)]
    #[case::its_hooks_come_first(Record::Unfinished, false, false)]
    #[case::while_changes_are_held(Record::Deployed, true, false)]
    #[case(Record::Missing, false, false)]
    fn drift_is_corrected_only_after_a_finished_deploy_and_while_no_changes_are_held(
        #[case] record: Record,
        #[case] is_held: bool,
        #[case] expected: bool,
    ) {
        assert_eq!(may_correct(record, is_held), expected);
    }

    #[rstest]
    #[case(None, Record::Missing)]
    #[case(Some(Status::PendingInstall), Record::Unfinished)]
    #[case(Some(Status::PendingRollback), Record::Unfinished)]
    #[case(Some(Status::Failed), Record::Unfinished)]
    #[case::by_helm_which_kept_its_history(Some(Status::Uninstalled), Record::Unfinished)]
    #[case::its_removal_has_begun(Some(Status::Uninstalling), Record::Unfinished)]
    #[case(Some(Status::Deployed), Record::Deployed)]
    #[case(Some(Status::Superseded), Record::Deployed)]
    fn a_record_says_how_far_its_deploy_got(
        #[case] status: Option<Status>,
        #[case] expected: Record,
    ) {
        assert_eq!(Record::of(status.as_ref()), expected);
    }

    #[rstest]
    #[case::reported_not_deployed(DEPLOYED, "False", true)]
    #[case::reported_not_installed(INSTALLED, "False", true)]
    #[case::deployed(DEPLOYED, "True", false)]
    #[case::only_not_monitored(MONITORED, "False", false)]
    fn ownership_is_checked_before_anything_is_written_where_the_last_try_failed(
        #[case] condition: &str,
        #[case] reported: &str,
        #[case] expected: bool,
    ) {
        let bundle = bundle(json!({"spec": {"deploymentID": "id"},
            "status": {"conditions": [{"type": condition, "status": reported}]}}));
        assert_eq!(has_failed(&bundle.status), expected);
    }

    /// The condition goes away only where all objects are monitored.
    #[test]
    fn a_failing_correction_is_monitored_until_its_condition_clears() {
        let mut bundle = bundle(json!({"spec": {"deploymentID": "id"},
            "status": {"appliedDeploymentID": "id", "release": "ns/r:1", "nonModified": true}}));
        assert!(may_read_changes_alone(&bundle, &bundle.status));
        let reported = vec!["ConfigMap ns/a: corrected 2 times".to_owned()];
        let now = k8s_openapi::jiff::Timestamp::UNIX_EPOCH;
        bundle.status.set_postponed_corrections(reported, now);
        assert!(!may_read_changes_alone(&bundle, &bundle.status));
        bundle.status.set_postponed_corrections(Vec::new(), now);
        bundle.status.non_modified = false;
        assert!(!may_read_changes_alone(&bundle, &bundle.status));
    }

    #[rstest]
    #[case::installed(Record::Deployed, None)]
    #[case::not_to_its_end(Record::Unfinished, Some(DeployReason::Changed))]
    #[case::gone(Record::Missing, Some(DeployReason::Changed))]
    fn an_install_once_bundle_is_not_deployed_again_while_its_release_is_deployed(
        #[case] record: Record,
        #[case] reason: Option<DeployReason>,
    ) {
        let bundle = bundle(
            json!({"metadata": {"annotations": {ANNOTATION_INSTALL_ONCE: "true"}},
            "spec": {"deploymentID": "new"},
            "status": {"appliedDeploymentID": "old", "release": "ns/r:1"}}),
        );
        let facts = DeployFacts {
            facts_changed: true,
            ..facts(record)
        };
        assert_eq!(deploy_reason(&bundle, facts), reason);
    }

    /// Fleet writes the namespace that the bundle's file names, mostly none.
    #[rstest]
    #[case::named("ns", "", true)]
    #[case::elsewhere("elsewhere", "", false)]
    #[case::not_named("", "", true)]
    #[case::in_a_template("TEMPLATED", "", true)]
    #[case::put_elsewhere("elsewhere", "ns", true)]
    fn an_overwritten_object_that_is_missing_is_deployed_anew(
        #[case] namespace: &str,
        #[case] target_namespace: &str,
        #[case] expected: bool,
    ) {
        let bundle = bundle(json!({"metadata": {}, "spec": {"options": {
            "namespace": target_namespace,
            "overwrites": [{"kind": "ConfigMap", "namespace": namespace, "name": "a"}],
        }}, "status": {"modifiedStatus": [
            {"kind": "ConfigMap", "namespace": "ns", "name": "a", "missing": true},
        ]}}));
        let check = |change: fn(&mut ModifiedStatus), expected| {
            let mut modified = bundle.status.modified_status.clone();
            change(&mut modified[0]);
            assert_eq!(is_overwritten(&bundle.spec, &modified), expected);
        };
        check(|_| {}, expected);
        check(|entry| entry.exist = true, false);
        check(|entry| entry.missing = false, false);
        check(|entry| entry.name = "b".into(), false);
        check(|entry| entry.kind = "Secret".into(), false);
    }
}
