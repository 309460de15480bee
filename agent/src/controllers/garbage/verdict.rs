//! Whether a bundle that is gone was deleted. No I/O.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ledger::ContinuityBreak;

/// A list in which everything is being deleted may be of a namespace or a type that is being deleted itself: then the watch ends, within
/// this time. While it lives, the deletions were meant.
const SETTLES: Duration = Duration::from_secs(10);

/// The decision about the releases of a bundle that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The bundle is listed: nothing is orphaned.
    Alive,
    /// To be checked again after this time: proven by then, if nothing else goes; or bundles that may want its release are yet to be delivered.
    Wait(Duration),
    /// A bundle whose `${ }` are not filled in yet may want its release.
    Claimed,
    /// Proven, and nothing is left but namespaces that other releases are about to leave.
    NamespacesDeferred,
    /// Not proven, or too many at once: everything stays.
    Held(HoldReason),
    /// Proven.
    Remove,
}

/// Why a release whose bundle is gone is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HoldReason {
    /// The list lacks the bundle, and nobody saw it being deleted: it may have been lost.
    Unseen,
    /// The agent's own BundleDeployment is gone as well.
    OwnGone,
    /// More than a fifth of all releases, and at least three, are orphaned at once.
    TooMany,
    /// The agent was registered elsewhere after it deployed the bundle.
    Elsewhere,
    /// Upstream was restored from a backup while the bundle was missing.
    Restored,
    /// The agent's own BundleDeployment was made anew while the bundle was missing, or being deleted.
    Recreated,
    /// Another bundle may want it, whose `${ }` were never filled in.
    MayBeWanted,
    /// Another bundle may want it, which the watch has not delivered for minutes.
    Unreported,
    /// Other bundles vanish, so many and without an end that the agent's own may be the next.
    Vanishing,
}

impl HoldReason {
    /// Whether the removal waits, and nobody needs to let it go.
    pub(super) fn passes(self) -> bool {
        matches!(self, Self::Unreported | Self::Vanishing)
    }

    /// For the operator's report.
    pub fn text(self) -> &'static str {
        match self {
            Self::Unseen => "it is not listed upstream, but nobody saw it being deleted",
            Self::OwnGone => "the agent's own bundledeployment is gone from upstream as well",
            Self::TooMany => {
                "more than a fifth of all releases lost their bundledeployment at once"
            }
            Self::Elsewhere => "the agent was registered elsewhere since it was deployed",
            Self::Restored => {
                "upstream, or this cluster, was restored from a backup, and it is not listed since then"
            }
            Self::Recreated => {
                "the agent's own bundledeployment was made anew, and it is not listed since then"
            }
            Self::MayBeWanted => {
                "another bundle may want it: one whose names hold ${ } that are not filled in, or that had it before and is missing"
            }
            Self::Unreported => {
                "the watch of bundledeployments has not told of all of them for minutes: one may want it"
            }
            Self::Vanishing => {
                "other bundledeployments vanish without an end, three or more within seconds"
            }
        }
    }
}

impl From<ContinuityBreak> for HoldReason {
    fn from(found: ContinuityBreak) -> Self {
        match found {
            ContinuityBreak::Elsewhere => Self::Elsewhere,
            ContinuityBreak::Restored => Self::Restored,
            ContinuityBreak::Recreated => Self::Recreated,
        }
    }
}

/// Facts about a bundle and everything around it, which the verdict depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemovalFacts<'a> {
    /// The fresh list.
    pub(super) listed: &'a BTreeSet<String>,
    /// The agent's own BundleDeployment is in it, and not being deleted.
    pub(super) own_is_listed: bool,
    /// Something in it is not being deleted.
    pub(super) has_live_bundles: bool,
    /// Where many bundles vanish one soon after the other, how long nothing of that is known to have been meant.
    pub(super) settles_in: Option<Duration>,
    /// The agent ever had one.
    pub(super) had_own: bool,
    /// How long ago a DELETED event came, on a watch that has not been refused since.
    pub(super) seen_deleted: Option<Duration>,
    /// The removal was proven and begun before.
    pub(super) is_begun: bool,
    /// Upstream changed while the bundle was missing.
    pub(super) lost: Option<ContinuityBreak>,
    /// Held already, or as soon as that can be written: few of the bundles it went with may still be gone.
    pub(super) was_held: bool,
    /// Releases whose bundle is not listed, of those that the brake counts: what is held already counts for itself, not against what
    /// goes later.
    pub(super) orphans: usize,
    /// All releases that the brake counts.
    pub(super) releases: usize,
}

/// Judges one bundle.
pub(super) fn judge(bundle: &str, facts: RemovalFacts<'_>) -> Verdict {
    if facts.listed.contains(bundle) {
        return Verdict::Alive;
    }
    if let Some(found) = facts.lost {
        return Verdict::Held(found.into());
    }
    // Where the agent's own is gone by now, the bundle may have come back and gone again with it, while no agent ran.
    if facts.is_begun && (facts.own_is_listed || !facts.had_own) {
        return Verdict::Remove;
    }
    if facts.own_is_listed {
        // A deletion of all bundles may not have reached the agent's own yet.
        return facts.settles_in.map_or(Verdict::Remove, Verdict::Wait);
    }
    if facts.had_own {
        return Verdict::Held(HoldReason::OwnGone);
    }
    let Some(since) = facts.seen_deleted else {
        return Verdict::Held(HoldReason::Unseen);
    };
    if facts.was_held || facts.orphans >= 3 && facts.orphans * 5 > facts.releases {
        return Verdict::Held(HoldReason::TooMany);
    }
    if !facts.has_live_bundles && since < SETTLES {
        return Verdict::Wait(SETTLES - since);
    }
    Verdict::Remove
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Twelve releases of which so many are orphaned; nothing else is known.
    fn facts(listed: &BTreeSet<String>, orphans: usize) -> RemovalFacts<'_> {
        RemovalFacts {
            listed,
            own_is_listed: false,
            settles_in: None,
            has_live_bundles: !listed.is_empty(),
            had_own: false,
            seen_deleted: None,
            is_begun: false,
            lost: None,
            was_held: false,
            orphans,
            releases: 12,
        }
    }

    #[derive(Clone, Copy)]
    enum Own {
        Listed,
        Gone,
        Never,
    }

    #[rstest]
    #[case::own_listed_and_all_others_gone(Own::Listed, false, None, 11, Verdict::Remove)]
    #[case::own_gone_too(Own::Gone, true, None, 1, Verdict::Held(HoldReason::OwnGone))]
    #[case::nobody_saw_it(Own::Never, false, None, 1, Verdict::Held(HoldReason::Unseen))]
    #[case::seen_on_a_live_watch(Own::Never, true, None, 1, Verdict::Remove)]
    #[case::two_are_never_many(Own::Never, true, None, 2, Verdict::Remove)]
    #[case::a_quarter_at_once(Own::Never, true, None, 3, Verdict::Held(HoldReason::TooMany))]
    #[case::lost_beats_every_proof(
        Own::Listed,
        true,
        Some(ContinuityBreak::Restored),
        1,
        Verdict::Held(HoldReason::Restored)
    )]
    #[case::own_is_back_and_is_another_one(
        Own::Listed,
        true,
        Some(ContinuityBreak::Recreated),
        1,
        Verdict::Held(HoldReason::Recreated)
    )]
    #[case::registered_elsewhere(
        Own::Listed,
        false,
        Some(ContinuityBreak::Elsewhere),
        1,
        Verdict::Held(HoldReason::Elsewhere)
    )]
    fn a_release_is_removed_only_on_proof(
        #[case] own: Own,
        #[case] was_seen_deleted: bool,
        #[case] lost: Option<ContinuityBreak>,
        #[case] orphans: usize,
        #[case] expected: Verdict,
    ) {
        let listed = BTreeSet::from(["another".to_owned()]);
        let facts = RemovalFacts {
            own_is_listed: matches!(own, Own::Listed),
            had_own: !matches!(own, Own::Never),
            seen_deleted: was_seen_deleted.then_some(Duration::ZERO),
            lost,
            ..facts(&listed, orphans)
        };
        assert_eq!(judge("a", facts), expected);
    }

    #[test]
    fn a_removal_held_among_many_stays_held_when_the_other_bundles_return() {
        let listed = BTreeSet::from(["another".to_owned()]);
        let facts = RemovalFacts {
            seen_deleted: Some(SETTLES),
            was_held: true,
            ..facts(&listed, 1)
        };
        assert_eq!(judge("a", facts), Verdict::Held(HoldReason::TooMany));
    }

    #[test]
    fn a_fifth_exactly_is_not_too_many() {
        let listed = BTreeSet::new();
        let facts = RemovalFacts {
            seen_deleted: Some(SETTLES),
            releases: 15,
            ..facts(&listed, 3)
        };
        assert_eq!(judge("a", facts), Verdict::Remove);
    }

    #[test]
    fn the_last_bundle_is_removed_after_a_wait_that_rules_out_a_deleted_namespace() {
        let listed = BTreeSet::new();
        let facts = |seen| RemovalFacts {
            seen_deleted: Some(seen),
            ..facts(&listed, 1)
        };
        let soon = Verdict::Wait(Duration::from_secs(1));
        assert_eq!(judge("a", facts(Duration::from_secs(9))), soon);
        assert_eq!(judge("a", facts(SETTLES)), Verdict::Remove);
        // All others are being deleted too, as before a namespace is deleted.
        let others = BTreeSet::from(["another".to_owned()]);
        let going = RemovalFacts {
            listed: &others,
            ..facts(Duration::ZERO)
        };
        assert_eq!(judge("a", going), Verdict::Wait(SETTLES));
    }

    #[test]
    fn a_removal_that_was_begun_is_finished_unless_upstream_changed() {
        let listed = BTreeSet::new();
        let begun = RemovalFacts {
            is_begun: true,
            own_is_listed: true,
            had_own: true,
            settles_in: Some(Duration::from_secs(1)),
            ..facts(&listed, 12)
        };
        assert_eq!(judge("a", begun), Verdict::Remove);
        let never_had_own = RemovalFacts {
            own_is_listed: false,
            had_own: false,
            ..begun
        };
        assert_eq!(judge("a", never_had_own), Verdict::Remove);
        let lost = RemovalFacts {
            lost: Some(ContinuityBreak::Elsewhere),
            ..begun
        };
        assert_eq!(judge("a", lost), Verdict::Held(HoldReason::Elsewhere));
    }

    /// While no agent ran its bundle may have come back, and gone again with all others: that is another absence than the one that was proven.
    #[test]
    fn a_removal_that_was_begun_is_held_once_the_agents_own_bundle_is_gone_too() {
        let listed = BTreeSet::new();
        let begun = RemovalFacts {
            is_begun: true,
            had_own: true,
            ..facts(&listed, 1)
        };
        assert_eq!(judge("a", begun), Verdict::Held(HoldReason::OwnGone));
    }

    /// The agent's own bundle may be the next one that goes.
    #[test]
    fn the_agents_own_bundle_in_the_list_is_no_proof_while_many_bundles_vanish() {
        let listed = BTreeSet::from(["another".to_owned()]);
        let left = Duration::from_secs(20);
        let vanishing = RemovalFacts {
            own_is_listed: true,
            had_own: true,
            settles_in: Some(left),
            ..facts(&listed, 3)
        };
        assert_eq!(judge("a", vanishing), Verdict::Wait(left));
        let lost = RemovalFacts {
            lost: Some(ContinuityBreak::Recreated),
            ..vanishing
        };
        assert_eq!(judge("a", lost), Verdict::Held(HoldReason::Recreated));
        let settled = RemovalFacts {
            settles_in: None,
            ..vanishing
        };
        assert_eq!(judge("a", settled), Verdict::Remove);
    }

    #[test]
    fn a_listed_bundle_is_alive() {
        let listed = BTreeSet::from(["a".to_owned()]);
        let facts = RemovalFacts {
            own_is_listed: true,
            lost: Some(ContinuityBreak::Restored),
            ..facts(&listed, 1)
        };
        assert_eq!(judge("a", facts), Verdict::Alive);
    }
}
