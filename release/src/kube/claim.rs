//! Decides which objects an operation on a release may write, and which of them may be somebody else's.
//!
//! A [`Claim`] is a release's right to the objects of its manifest, a [`HookClaim`] one run's right to those of its hooks, which carry no
//! marks of a release. Both only judge what was found; [`super::write`] acts on it.

use std::collections::{HashMap, HashSet};

use objects::{Object, ObjectKey, Resource};
use serde_json::Value;

use super::losses::holds_more;
use super::ownership::{HookState, Owner, RunMark, adoption, is_kept, is_written_by_us};
use crate::state::ownership::{ObjectState, Operation, Verdict, judge};

/// In whose name objects are written, and which of them may be somebody else's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    /// The release.
    pub(crate) owner: &'a Owner,
    /// The operation on the release.
    pub(crate) operation: Operation,
    /// Objects that the last good revision does not prove to be the release's, each as it was found when it was
    /// read. One that was not there, or not read, is created if nothing is there.
    pub(crate) open: &'a HashMap<ObjectKey, Option<Value>>,
    /// Objects that a stored revision has.
    pub(crate) recorded: &'a HashSet<ObjectKey>,
}

impl Claim<'_> {
    /// What an object is that was found.
    pub(crate) fn state(&self, object: &Object, found: Option<&Value>) -> ObjectState {
        let Some(live) = found else {
            return ObjectState::Absent;
        };
        let is_recorded = self.recorded.contains(&object.key());
        self.owner.observe(live).state(self.operation, is_recorded)
    }

    /// The verdict about an object; with the adoption noted on it before: one noted already is simply written.
    pub(crate) fn verdict(&self, object: &Object, found: Option<&Value>) -> Verdict {
        let noted = found.and_then(adoption);
        match judge(self.operation, self.state(object, found)) {
            Verdict::Adopt(now) => match now.after(noted) {
                now if noted == Some(now) => Verdict::Write,
                now => Verdict::Adopt(now),
            },
            verdict => verdict,
        }
    }
}

/// For which run hooks are written, and what it may find.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HookClaim<'a> {
    /// The run.
    pub(crate) run: &'a RunMark,
    /// Whether the hooks of before make way for it, as its policy says.
    pub(crate) makes_way: bool,
    /// Whether a record said before that it was started.
    pub(crate) is_resumed: bool,
}

/// The verdict about an object that has a hook's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookVerdict {
    /// The object is of this run, which is under way: there is nothing to be written.
    Await,
    /// The object is written over.
    Write,
    /// The object is left, and the hook not run.
    Refuse,
}

impl HookClaim<'_> {
    /// The verdict about `live`. An object that runs was started for one release, event and revision, and counts for no other run: it is waited for,
    /// or in the way. One that a client wrote without saying for whom is this run's where a record says that one was started.
    pub(super) fn verdict(&self, object: &Object, live: &Value) -> HookVerdict {
        let state = self.run.state(live);
        let is_made_way_for = || self.makes_way && stays_for_next_run(object, live);
        match state {
            HookState::This if runs(object) => HookVerdict::Await,
            HookState::Unsigned if self.is_resumed && runs(object) => HookVerdict::Await,
            HookState::This => HookVerdict::Write,
            HookState::Former if !runs(object) => HookVerdict::Write,
            HookState::Unsigned if !runs(object) && (self.is_resumed || is_written_by_us(live)) => {
                HookVerdict::Write
            }
            HookState::Unsigned if is_made_way_for() => HookVerdict::Write,
            _ => HookVerdict::Refuse,
        }
    }
}

/// Whether a hook of before is written over in place of being made anew: it asks to be kept, or holds more than itself. Of what runs nothing is
/// kept.
pub(super) fn stays_for_next_run(object: &Object, live: &Value) -> bool {
    (is_kept(live) && !runs(object)) || holds_more(object)
}

/// Whether an object does its work once, and is in the way of the next time.
pub(super) fn runs(object: &Object) -> bool {
    let Resource { group, kind, .. } = &*object.resource;
    matches!(
        (group.as_str(), kind.as_str()),
        ("batch", "Job") | ("", "Pod")
    )
}

#[cfg(test)]
mod tests {
    use chart::manifest::HOOK_ANNOTATION;
    use objects::managed_fields::FIELD_MANAGER;
    use rstest::rstest;
    use serde_json::json;

    use super::super::fixture::object;
    use super::*;
    use crate::record::{RecordId, RecordUid};
    use HookVerdict::{Await, Refuse, Write};

    /// By what the run expects: nothing that makes way, hooks of before that make way, a start that a record tells of.
    #[rstest]
    #[case::this_run(Some(("web", 3)), [[Await; 3], [Write; 3], [Write; 3]])]
    #[case::another_revisions(Some(("web", 2)), [[Refuse; 3], [Write; 3], [Write; 3]])]
    #[case::another_releases(Some(("other", 3)), [[Refuse; 3]; 3])]
    #[case::unsigned(None, [[Refuse, Refuse, Await], [Write; 3], [Write; 3]])]
    fn a_hook_is_written_over_what_its_run_may_find(
        #[case] of: Option<(&str, i64)>,
        #[case] expected: [[HookVerdict; 3]; 3],
    ) {
        let run = |name: &str, revision| {
            let uid = RecordUid::new("u");
            let record = RecordId { revision, uid };
            RunMark::new(Owner::new(name, "shop"), &record, "pre-upgrade")
        };
        let mut live = json!({"metadata": {
            "annotations": {HOOK_ANNOTATION: "pre-upgrade"},
            "managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply"}],
        }});
        if let Some((name, revision)) = of {
            run(name, revision).sign(&mut live);
        }
        let kinds = [
            object("batch", "Job", Value::Null),
            object("", "ConfigMap", Value::Null),
            object(
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                Value::Null,
            ),
        ];
        let mine = run("web", 3);
        let found = kinds.map(|object| {
            [(false, false), (true, false), (false, true)].map(|(makes_way, is_resumed)| {
                let claim = HookClaim {
                    run: &mine,
                    makes_way,
                    is_resumed,
                };
                claim.verdict(&object, &live)
            })
        });
        assert_eq!(found, expected);
    }
}
