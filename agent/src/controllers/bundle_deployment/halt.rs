//! Why a step of a reconcile got no further, and what follows from that. No I/O.

use std::sync::LazyLock;
use std::time::Duration;

use regex::RegexSet;

use super::status::MAX_MESSAGE_BYTES;
use crate::bundle::{BundleError, UpstreamKind};
use crate::config::Timing;
use crate::controllers::conditions::{DEPLOYED, MONITORED, READY};
use crate::controllers::queue::Requeue;
use crate::error;
use crate::public;
use crate::public::PublicText;
use crate::public::redact::SensitiveData;
use crate::report::events::Reason;

/// Why a step got no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halt {
    /// What the step could not do.
    pub cause: Cause,
    /// What went wrong with it.
    pub message: PublicText,
    /// Whether it is of [`SHOWN_AS_NOT_READY`]: asked of the error itself, as what it quotes may be redacted from the message.
    is_shown_as_not_ready: bool,
    /// How long the same is not tried again, where that was written down. Without it the queue decides: a failure that nothing wakes is none.
    pause: Option<Duration>,
}

/// What a step could not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Work on a spec that has more of something than is worked on.
    TooMany,
    /// Fill in the bundle's `${ }`.
    FillIn,
    /// Read values, content or credentials, which upstream delivers after the BundleDeployment.
    WaitForUpstream,
    /// Use a name of the spec.
    Name,
    /// Deploy into the target namespace: its selector does not allow it.
    TargetNamespace,
    /// Have the release: it is another bundle's.
    ReleaseTaken,
    /// Keep the release: another bundle has taken it.
    ReleaseLost,
    /// Act on the release: another bundle, which does not keep it from this one, is at it.
    ReleaseBusy,
    /// Deploy as the bundle's account.
    DeployAccount,
    /// Copy a downstream resource.
    CopyResources,
    /// Find the bundles it depends on.
    DependencyUnknown,
    /// Wait no longer for the bundles it depends on.
    DependencyNotReady,
    /// Read the release before a deploy.
    ReadRelease,
    /// Read the release while the site holds changes.
    ReadHeldRelease,
    /// Label the namespace: the account lacks a right.
    NamespaceForbidden,
    /// Label the namespace.
    NamespaceLabels,
    /// Use the name of the release.
    ReleaseName,
    /// Deploy; what that failed at, and what is to wait for a while after it. Else it is tried again with the queue's back-off.
    Deploy(Reason, Option<Waiting>),
    /// Go on with a spec that is not the bundle's any more.
    Superseded,
    /// Go on with a spec that the watch has not told yet, and that everything else therefore does not know.
    NotDeliveredYet,
    /// Write the ledger.
    Ledger,
    /// Remove a release the bundle had under another name.
    FormerRelease,
    /// Look at live objects as the bundle's account.
    MonitorAccount,
    /// Read the release to compare live objects with.
    MonitorRelease,
    /// Compare live objects with the release.
    Monitor,
    /// Compare those whose kinds somebody has taken away since the deploy; they are missing.
    MonitorKinds,
    /// Put drifted objects right.
    Correct,
    /// Send the status upstream.
    UpdateStatus,
}

impl Cause {
    /// The same of a deploy that had run hooks, one of which may be what failed. What was undone waits longer anyway.
    #[must_use]
    pub fn after_hooks(self, is_failed_hook: bool) -> Self {
        let waiting = match is_failed_hook {
            true => Waiting::HookEnded,
            false => Waiting::AfterHooks,
        };
        match self {
            Self::Deploy(reason, None) => Self::Deploy(reason, Some(waiting)),
            other => other,
        }
    }

    /// The same of a deploy that wrote over the release of another bundle, which has it still. Tried again at once, it would go to and fro
    /// between the two. What was undone waits anyway.
    #[must_use]
    pub fn of_a_take(self) -> Self {
        match self {
            Self::Deploy(reason, waiting) if waiting != Some(Waiting::Undone) => {
                Self::Deploy(reason, Some(Waiting::Taking))
            }
            other => other,
        }
    }

    /// What is to wait for a while after it; nothing where it is tried again with the queue's back-off.
    pub fn waiting(self) -> Option<Waiting> {
        match self {
            Self::Deploy(_, waiting) => waiting,
            _ => None,
        }
    }
}

/// Why a deploy waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The last attempt at this content was undone.
    Undone,
    /// The last attempt at this content had run hooks when something else failed.
    AfterHooks,
    /// A hook failed in the last attempt at this content.
    HookEnded,
    /// The last attempt at this content was to take the release from another bundle.
    Taking,
    /// What is deployed was deployed anew a moment ago, as others had changed the release or a copy that it needs, or taken away what it
    /// overwrites.
    Answered,
}

impl Waiting {
    /// What is told where the error itself is gone. Of an undone attempt in the words by which Helm says it and Fleet's controller looks for it.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Undone => {
                "the last attempt at this deployment failed, and has been rolled back due to rollback-on-failure being set"
            }
            Self::AfterHooks | Self::HookEnded => {
                "the last attempt at this deployment failed, and had run hooks"
            }
            Self::Taking => {
                "the last attempt to take the release from the bundle that has it failed"
            }
            Self::Answered => {
                "the release, what it overwrites or a copy that it needs is changed by others again and again"
            }
        }
    }
}

/// How soon a bundle is monitored again whose objects went with their kind.
const UNSERVED_RECHECK: Duration = Duration::from_secs(5 * 60);

/// What follows from a halt.
pub(super) struct Effect {
    pub(super) status: StatusChange,
    /// The Event's reason, if there is one.
    pub(super) event: Option<Reason>,
    /// What could not be done; before the message, in Event and log. Empty where the message says it all.
    pub(super) what: &'static str,
    pub(super) requeue: Requeue,
}

/// What a halt changes of the status.
pub(super) enum StatusChange {
    None,
    /// This condition is False.
    Condition(&'static str),
    /// Deployed is False where another deployment is wanted than the one that is applied: it could not begin. Else this condition is, if there is one.
    NotBegun(Option<&'static str>),
    /// Ready and Installed are False, in upstream's words.
    NotInstalled,
    /// The same under a successful Deployed condition, and there is no release.
    DeployedButNotInstalled,
    /// Ready, Installed and Deployed are False, and no object is this bundle's.
    Lost,
}

/// Deploy errors upstream shows as "not ready" under a successful Deployed condition
/// (`deployer.go`). It never tries those again; here they are retried like any other. That Helm 4 says
/// `rollback-on-failure` where upstream's pattern says `atomic` is an oversight there.
static SHOWN_AS_NOT_READY: LazyLock<RegexSet> = LazyLock::new(|| {
    RegexSet::new([
        "timed out waiting for the condition",
        "error validating data",
        "chart requires kubeVersion",
        "annotation validation error",
        "failed, and has been rolled back due to (atomic|rollback-on-failure) being set",
        "YAML parse error",
        "MalformedYAMLError",
        "unknown field",
        "Forbidden: updates to [0-9A-Za-z]+ spec for fields other than [0-9A-Za-z ']+ are forbidden",
        "Forbidden: spec is immutable after creation",
    ])
    .expect("the patterns are constant and valid")
});

impl Halt {
    /// A halt with a message of its own.
    pub fn new(cause: Cause, message: impl Into<PublicText>) -> Self {
        let message = message.into();
        let is_shown_as_not_ready = SHOWN_AS_NOT_READY.is_match(&message);
        Self {
            cause,
            message,
            is_shown_as_not_ready,
            pause: None,
        }
    }

    /// Turns an error into a halt, for `map_err`. The message is the error and its causes, without what is secret.
    pub fn at<E: std::error::Error + 'static>(
        cause: Cause,
        secrets: &SensitiveData,
    ) -> impl FnOnce(E) -> Self {
        move |failed| Self {
            cause,
            message: secrets.redact_error(&failed),
            is_shown_as_not_ready: SHOWN_AS_NOT_READY.is_match(&error::chain(&failed)),
            pause: None,
        }
    }

    /// Adds a sentence that status says however long the message is.
    pub fn followed_by(self, sentence: &PublicText) -> Self {
        let room = MAX_MESSAGE_BYTES.saturating_sub(sentence.len() + 2);
        let message = public!("{}; {}", self.message.cut(room), *sentence);
        Self { message, ..self }
    }

    /// The same, which is not tried again for so long.
    #[must_use]
    pub fn postponed(self, pause: Duration) -> Self {
        let pause = Some(pause);
        Self { pause, ..self }
    }

    /// Whether upstream has yet to deliver something. Status says so only once that is late ([`Report::halt`](super::outcome::Report::halt)).
    pub fn waits_for_upstream(&self) -> bool {
        matches!(self.cause, Cause::WaitForUpstream | Cause::CopyResources)
    }

    pub(super) fn effect(&self, timing: &Timing, is_late: bool) -> Effect {
        let deployed = StatusChange::Condition(DEPLOYED);
        let monitored = StatusChange::Condition(MONITORED);
        let none = StatusChange::None;
        let deployed_if_late = match is_late {
            true => StatusChange::Condition(DEPLOYED),
            false => StatusChange::None,
        };
        // A refusal quotes what others wrote, and is a refusal whatever that is like.
        let shown_as_not_ready =
            |reason| reason != Reason::SignatureRefused && self.is_shown_as_not_ready;
        let (status, event, what) = match self.cause {
            Cause::TooMany => (deployed, Reason::ValuesFailed, "cannot work on the spec"),
            Cause::FillIn => (deployed, Reason::ValuesFailed, "cannot fill in values"),
            Cause::WaitForUpstream => (
                deployed_if_late,
                Reason::WaitingForUpstream,
                "waiting for upstream",
            ),
            Cause::CopyResources => (
                deployed_if_late,
                Reason::WaitingForUpstream,
                "cannot copy resources from upstream",
            ),
            Cause::Name => (deployed, Reason::NamespaceRefused, "a name"),
            Cause::TargetNamespace => (deployed, Reason::NamespaceRefused, "target namespace"),
            Cause::ReleaseTaken => (deployed, Reason::ReleaseTaken, "not deploying"),
            Cause::ReleaseLost => (StatusChange::Lost, Reason::ReleaseTaken, "not deploying"),
            Cause::DeployAccount => (
                deployed,
                Reason::AccountMissing,
                "no account to deploy with",
            ),
            Cause::DependencyUnknown => (deployed, Reason::DependencyNotReady, "dependencies"),
            // Waiting is no failure.
            Cause::DependencyNotReady => {
                return Effect {
                    status: deployed,
                    event: Some(Reason::DependencyNotReady),
                    what: "",
                    requeue: Requeue::after(timing.dependency_retry),
                };
            }
            Cause::ReadRelease => (
                StatusChange::NotBegun(Some(MONITORED)),
                Reason::MonitorFailed,
                "cannot read the release",
            ),
            Cause::ReadHeldRelease => (
                StatusChange::NotBegun(None),
                Reason::MonitorFailed,
                "cannot read the release",
            ),
            // Granting the right causes no event.
            Cause::NamespaceForbidden => {
                return Effect {
                    status: StatusChange::NotInstalled,
                    event: None,
                    what: "",
                    requeue: Requeue::after(timing.namespace_retry),
                };
            }
            Cause::NamespaceLabels => (
                deployed,
                Reason::NamespaceRefused,
                "cannot label the namespace",
            ),
            Cause::ReleaseName => (deployed, Reason::ApplyFailed, "the name of the release"),
            Cause::Deploy(reason, _) if shown_as_not_ready(reason) => (
                StatusChange::DeployedButNotInstalled,
                reason,
                "cannot install",
            ),
            Cause::Deploy(reason, _) => (deployed, reason, "failed deploying bundle"),
            // Whose the release is does not change by that.
            Cause::ReleaseBusy => {
                return Effect {
                    status: none,
                    event: None,
                    what: "not deploying",
                    requeue: Requeue::RETRY,
                };
            }
            // The next reconcile is of the spec that came meanwhile.
            Cause::Superseded => {
                return Effect {
                    status: none,
                    event: None,
                    what: "",
                    requeue: Requeue::full_after(Duration::ZERO),
                };
            }
            // The watch wakes the bundle. Until then each try reads all of the spec.
            Cause::NotDeliveredYet => {
                return Effect {
                    status: none,
                    event: None,
                    what: "not deploying",
                    requeue: Requeue::RETRY,
                };
            }
            Cause::Ledger => (
                StatusChange::NotBegun(None),
                Reason::ApplyFailed,
                "cannot write the ledger",
            ),
            Cause::FormerRelease => (
                none,
                Reason::RemovalFailed,
                "cannot remove a former release",
            ),
            Cause::MonitorAccount => (monitored, Reason::AccountMissing, "no account"),
            Cause::MonitorRelease => (none, Reason::MonitorFailed, "no release"),
            Cause::Monitor => (
                monitored,
                Reason::MonitorFailed,
                "cannot monitor deployed bundle",
            ),
            // Definitions that change wake it, but not all that may serve a kind tells of it.
            Cause::MonitorKinds => {
                return Effect {
                    status: monitored,
                    event: Some(Reason::KindMissing),
                    what: "cannot monitor deployed bundle",
                    requeue: Requeue::after(UNSERVED_RECHECK),
                };
            }
            Cause::Correct => (
                StatusChange::Condition(READY),
                Reason::CorrectionFailed,
                "failed reconciling drift",
            ),
            Cause::UpdateStatus => (
                none,
                Reason::WaitingForUpstream,
                "failed final update to bundledeployment status",
            ),
        };
        let requeue = self.pause.map_or(Requeue::RETRY, Requeue::postponed);
        Effect {
            status,
            event: Some(event),
            what,
            requeue,
        }
    }
}

/// Something a deploy is made from cannot be had: values, content, the chart.
#[derive(Debug)]
pub enum InputError {
    /// Upstream delivers it after the BundleDeployment, and has not yet.
    NotYet(PublicText),
    /// Anything else.
    Failed(PublicText),
}

impl InputError {
    /// An error and its causes, which quote no value.
    pub fn new(cause: impl std::error::Error + 'static) -> Self {
        Self::Failed(PublicText::nothing_secret_in(&cause))
    }

    /// Turns it into a halt, for `map_err`; `cause` is what it means where waiting does not help.
    pub fn at(cause: Cause) -> impl FnOnce(Self) -> Halt {
        move |failed| match failed {
            Self::NotYet(message) => Halt::new(Cause::WaitForUpstream, message),
            Self::Failed(message) => Halt::new(cause, message),
        }
    }
}

impl From<BundleError> for InputError {
    fn from(cause: BundleError) -> Self {
        match cause {
            BundleError::Missing {
                kind: UpstreamKind::Secret,
                ..
            } => Self::NotYet(PublicText::nothing_secret_in(&cause)),
            cause => Self::new(cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use chart::Chart;
    use release::model::Release;
    use rstest::rstest;

    use super::super::outcome::tests::{conditions, report};
    use super::*;
    use crate::api::ANNOTATION_LOOKED_UP;
    use crate::controllers::conditions::INSTALLED;

    const DEPENDENCY_RETRY: Requeue = Requeue::after(Duration::from_secs(15));
    const NAMESPACE_RETRY: Requeue = Requeue::after(Duration::from_secs(2 * 60));

    #[rstest]
    #[case(Cause::TooMany, &["Deployed=False m"], Some((Reason::ValuesFailed, "cannot work on the spec: m")), Requeue::RETRY)]
    #[case(Cause::FillIn, &["Deployed=False m"], Some((Reason::ValuesFailed, "cannot fill in values: m")), Requeue::RETRY)]
    #[case(Cause::WaitForUpstream, &[], Some((Reason::WaitingForUpstream, "waiting for upstream: m")), Requeue::RETRY)]
    #[case(Cause::CopyResources, &[], Some((Reason::WaitingForUpstream, "cannot copy resources from upstream: m")), Requeue::RETRY)]
    #[case(Cause::Name, &["Deployed=False m"], Some((Reason::NamespaceRefused, "a name: m")), Requeue::RETRY)]
    #[case(Cause::TargetNamespace, &["Deployed=False m"], Some((Reason::NamespaceRefused, "target namespace: m")), Requeue::RETRY)]
    #[case(Cause::ReleaseTaken, &["Deployed=False m"], Some((Reason::ReleaseTaken, "not deploying: m")), Requeue::RETRY)]
    #[case(Cause::ReleaseLost, &["Ready=False not ready: m", "Installed=False not installed: m", "Deployed=False m"], Some((Reason::ReleaseTaken, "not deploying: m")), Requeue::RETRY)]
    #[case(Cause::ReleaseBusy, &[], None, Requeue::RETRY)]
    #[case(Cause::DeployAccount, &["Deployed=False m"], Some((Reason::AccountMissing, "no account to deploy with: m")), Requeue::RETRY)]
    #[case(Cause::DependencyUnknown, &["Deployed=False m"], Some((Reason::DependencyNotReady, "dependencies: m")), Requeue::RETRY)]
    #[case(Cause::DependencyNotReady, &["Deployed=False m"], Some((Reason::DependencyNotReady, "m")), DEPENDENCY_RETRY)]
    #[case(Cause::ReadRelease, &["Deployed=False m"], Some((Reason::MonitorFailed, "cannot read the release: m")), Requeue::RETRY)]
    #[case(Cause::ReadHeldRelease, &["Deployed=False m"], Some((Reason::MonitorFailed, "cannot read the release: m")), Requeue::RETRY)]
    #[case(Cause::NamespaceForbidden, &["Ready=False not ready: m", "Installed=False not installed: m"], None, NAMESPACE_RETRY)]
    #[case(Cause::NamespaceLabels, &["Deployed=False m"], Some((Reason::NamespaceRefused, "cannot label the namespace: m")), Requeue::RETRY)]
    #[case(Cause::ReleaseName, &["Deployed=False m"], Some((Reason::ApplyFailed, "the name of the release: m")), Requeue::RETRY)]
    #[case(Cause::Deploy(Reason::HookFailed, None), &["Deployed=False m"], Some((Reason::HookFailed, "failed deploying bundle: m")), Requeue::RETRY)]
    #[case(Cause::Deploy(Reason::HookFailed, Some(Waiting::Undone)), &["Deployed=False m"], Some((Reason::HookFailed, "failed deploying bundle: m")), Requeue::RETRY)]
    #[case(Cause::Deploy(Reason::ApplyFailed, None).after_hooks(false), &["Deployed=False m"], Some((Reason::ApplyFailed, "failed deploying bundle: m")), Requeue::RETRY)]
    #[case(Cause::Deploy(Reason::HookFailed, None).after_hooks(true), &["Deployed=False m"], Some((Reason::HookFailed, "failed deploying bundle: m")), Requeue::RETRY)]
    #[case(Cause::Superseded, &[], None, Requeue::full_after(Duration::ZERO))]
    #[case(Cause::NotDeliveredYet, &[], None, Requeue::RETRY)]
    #[case(Cause::Ledger, &["Deployed=False m"], Some((Reason::ApplyFailed, "cannot write the ledger: m")), Requeue::RETRY)]
    #[case(Cause::FormerRelease, &[], Some((Reason::RemovalFailed, "cannot remove a former release: m")), Requeue::RETRY)]
    #[case(Cause::MonitorAccount, &["Monitored=False m"], Some((Reason::AccountMissing, "no account: m")), Requeue::RETRY)]
    #[case(Cause::MonitorRelease, &[], Some((Reason::MonitorFailed, "no release: m")), Requeue::RETRY)]
    #[case(Cause::Monitor, &["Monitored=False m"], Some((Reason::MonitorFailed, "cannot monitor deployed bundle: m")), Requeue::RETRY)]
    #[case(Cause::MonitorKinds, &["Monitored=False m"], Some((Reason::KindMissing, "cannot monitor deployed bundle: m")), Requeue::after(UNSERVED_RECHECK))]
    #[case(Cause::Correct, &["Ready=False m"], Some((Reason::CorrectionFailed, "failed reconciling drift: m")), Requeue::RETRY)]
    #[case(
        Cause::UpdateStatus,
        &[],
        Some((Reason::WaitingForUpstream, "failed final update to bundledeployment status: m")),
        Requeue::RETRY
    )]
    fn a_halted_reconcile_reports_its_conditions_event_and_requeue(
        #[case] cause: Cause,
        #[case] expected: &[&str],
        #[case] event: Option<(Reason, &'static str)>,
        #[case] requeue: Requeue,
    ) {
        let mut report = report();
        report.halt(&Halt::new(cause, "m"), false);
        assert_eq!(conditions(&report), expected);
        // What was deployed before still is.
        assert_eq!(report.status().release, "ns/b:1");
        assert_eq!(report.status().applied_deployment_id, "old");
        let (events, next) = report.finish();
        let event = event.map(|(reason, text)| (reason, text.into()));
        assert_eq!(events, Vec::from_iter(event));
        assert_eq!(next, requeue.without_monitor());
    }

    #[rstest]
    #[case(Cause::WaitForUpstream)]
    #[case(Cause::CopyResources)]
    fn upstream_is_given_time_before_status_says_that_it_is_late(#[case] cause: Cause) {
        let halt = Halt::new(cause, "m");
        assert!(halt.waits_for_upstream());
        let mut report = report();
        report.halt(&halt, true);
        assert_eq!(conditions(&report), ["Deployed=False m"]);
    }

    #[test]
    fn an_undone_deploy_is_shown_as_not_ready_though_what_it_quotes_is_redacted() {
        let mut chart = Chart::default();
        let annotations = chart.metadata.annotations.get_or_insert_default();
        annotations.insert(ANNOTATION_LOOKED_UP.to_owned(), "true".to_owned());
        let mut secrets = SensitiveData::default();
        secrets.add_release(&Release {
            chart: Some(chart.into()),
            ..Release::default()
        });
        let failed = "it failed, and has been rolled back due to atomic being set: not \"canary";
        let cause = Cause::Deploy(Reason::ApplyFailed, None);
        let halt = Halt::at(cause, &secrets)(std::io::Error::other(failed));
        let mut report = report();
        report.halt(&halt, false);
        let reported = conditions(&report).join("\n");
        assert!(reported.contains("Installed=False"), "{reported}");
        assert!(!reported.contains("canary"), "{reported}");
    }

    #[test]
    fn a_signature_refusal_is_not_taken_for_a_decoding_error() {
        let mut report = report();
        let cause = Cause::Deploy(Reason::SignatureRefused, None);
        report.halt(&Halt::new(cause, "rules[0]: unknown field `signed`"), false);
        let expected = ["Deployed=False rules[0]: unknown field `signed`"];
        assert_eq!(conditions(&report), expected);
    }

    #[rstest]
    #[case(r#"strict decoding error: unknown field "spec.x""#, true)]
    #[case("MalformedYAMLError on f.yaml: x", true)]
    #[case("chart requires kubeVersion: >=99 which is incompatible with Kubernetes v1.36.3", true)]
    #[case("Pod is invalid: spec: Forbidden: spec is immutable after creation", true)]
    #[case(
        "release web failed, and has been rolled back due to rollback-on-failure being set: x",
        true
    )]
    #[case(
        "release web failed, and has been uninstalled due to rollback-on-failure being set: x",
        false
    )]
    #[case("dial tcp: connection refused", false)]
    #[case("resource not found", false)]
    #[case("label validation error: missing key", false)]
    fn some_deploy_errors_are_shown_as_not_ready(
        #[case] message: &'static str,
        #[case] expected: bool,
    ) {
        let mut report = report();
        let cause = Cause::Deploy(Reason::ApplyFailed, None);
        report.halt(&Halt::new(cause, message), false);
        let status = report.status();
        assert_eq!(status.condition(DEPLOYED) == "True", expected);
        assert_eq!(status.condition(INSTALLED) == "False", expected);
        assert_eq!(status.release.is_empty(), expected);
        assert_eq!(status.applied_deployment_id == "new", expected);
        assert_eq!(status.ready, !expected);
        let (events, requeue) = report.finish();
        let what = match expected {
            true => "cannot install",
            false => "failed deploying bundle",
        };
        assert_eq!(
            events,
            [(Reason::ApplyFailed, public!("{}: {}", what, message))]
        );
        assert_eq!(requeue, Requeue::RETRY.without_monitor());
    }

    /// The controller copies a Secret with credentials a moment after the BundleDeployment; the files it names were there before.
    #[rstest]
    #[case(UpstreamKind::Secret, Cause::WaitForUpstream)]
    #[case(UpstreamKind::Content, Cause::Deploy(Reason::SourceFailed, None))]
    fn a_missing_upstream_secret_is_waited_for_and_missing_content_fails(
        #[case] kind: UpstreamKind,
        #[case] expected: Cause,
    ) {
        let name = "access".to_owned();
        let missing = InputError::from(BundleError::Missing { kind, name });
        let halt = InputError::at(Cause::Deploy(Reason::SourceFailed, None))(missing);
        assert_eq!(halt.cause, expected);
    }
}
