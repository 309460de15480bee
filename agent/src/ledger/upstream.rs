//! What the agent remembers of upstream, to tell whether it still is the one the bundles came from. No I/O.

use serde::{Deserialize, Serialize};

/// An upstream that is this many writes further than when it was last seen was restored from a
/// backup: etcd's documented restore skips a thousand million revisions.
const LEAP: u64 = 500_000_000;

/// Why upstream is not the one the bundles came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContinuityBreak {
    /// Another server, or another namespace of it: the agent was registered elsewhere.
    Elsewhere,
    /// The same one in another state than it was left in: restored from a backup.
    Restored,
}

/// The upstream that was seen last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamState {
    /// Address of its API server.
    pub server: String,
    /// Namespace of the BundleDeployments.
    pub namespace: String,
    /// Highest resourceVersion seen; 0 where versions are no numbers.
    #[serde(default)]
    pub version: u64,
    /// Whether the agent's own BundleDeployment was ever listed.
    #[serde(default)]
    pub has_own: bool,
    /// When it last took a report of this agent, in seconds since 1970. A backup remembers an older one, whatever was written after
    /// it was restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<i64>,
    /// A break that was found before a list could tell which bundles are lost by it. The next heartbeat and the next event overwrite what
    /// proved it, so it is kept, across restarts too, until there is such a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<ContinuityBreak>,
}

impl UpstreamState {
    /// Whether `now`, seen later, is a continuation; why not otherwise.
    pub fn continues(&self, now: &Self) -> Result<(), ContinuityBreak> {
        if self.server != now.server || self.namespace != now.namespace {
            return Err(ContinuityBreak::Elsewhere);
        }
        let (before, after) = (self.version, now.version);
        let is_older = before != 0 && after != 0 && after < before;
        if is_older || is_leap(before, after) {
            return Err(ContinuityBreak::Restored);
        }
        self.broken.map_or(Ok(()), Err)
    }

    /// Takes in the version of an event.
    pub fn sees(&mut self, version: u64) {
        if is_leap(self.version, version) {
            self.broken = Some(ContinuityBreak::Restored);
        }
        self.version = self.version.max(version);
    }

    /// Takes in when upstream itself says that it last took a report of this agent, in seconds since 1970, 0 for never. `sent` is what
    /// [`Self::reported`] was before upstream was asked: a report that it took after its answer was not forgotten.
    pub fn remembers(&mut self, taken: i64, sent: Option<i64>) {
        if Some(taken) < sent {
            self.broken = Some(ContinuityBreak::Restored);
        }
        if self.reported == sent {
            self.reported = Some(taken);
        }
    }
}

/// How often upstream was not known to be what it was before, and up to which of these it has answered.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) doubts: u64,
    pub(super) answered: u64,
}

fn is_leap(before: u64, after: u64) -> bool {
    before != 0 && after.saturating_sub(before) > LEAP
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn upstream(server: &str, version: u64) -> UpstreamState {
        UpstreamState {
            server: server.into(),
            namespace: "cluster-a".into(),
            version,
            reported: Some(100),
            ..UpstreamState::default()
        }
    }

    const BUMPED: u64 = 1_000_000_007;

    #[rstest]
    #[case::same_moment(upstream("a", 7), Ok(()))]
    #[case::later(upstream("a", 8), Ok(()))]
    #[case::versions_that_are_no_numbers(upstream("a", 0), Ok(()))]
    #[case::another_server(upstream("b", 8), Err(ContinuityBreak::Elsewhere))]
    #[case::another_namespace(UpstreamState { namespace: "cluster-b".into(), ..upstream("a", 8) }, Err(ContinuityBreak::Elsewhere))]
    #[case::an_old_backup(upstream("a", 6), Err(ContinuityBreak::Restored))]
    #[case::a_backup_whose_revisions_were_bumped(
        upstream("a", BUMPED),
        Err(ContinuityBreak::Restored)
    )]
    fn an_upstream_continues_or_not(
        #[case] now: UpstreamState,
        #[case] expected: Result<(), ContinuityBreak>,
    ) {
        assert_eq!(upstream("a", 7).continues(&now), expected);
    }

    /// What proves a break is gone with the next report or event; that there was one is not.
    #[rstest]
    #[case::an_older_report(|seen: &mut UpstreamState| seen.remembers(99, Some(100)), true)]
    #[case::no_report_at_all(|seen: &mut UpstreamState| seen.remembers(0, Some(100)), true)]
    #[case::the_same_report(|seen: &mut UpstreamState| seen.remembers(100, Some(100)), false)]
    #[case::a_report_whose_answer_was_lost(|seen: &mut UpstreamState| seen.remembers(101, Some(100)), false)]
    #[case::a_report_that_was_under_way(|seen: &mut UpstreamState| { seen.reported = Some(160); seen.remembers(100, Some(100)); }, false)]
    #[case::the_first_question(|seen: &mut UpstreamState| seen.remembers(50, None), false)]
    #[case::bumped_revisions_in_an_event(|seen: &mut UpstreamState| seen.sees(BUMPED), true)]
    #[case::the_next_event(|seen: &mut UpstreamState| seen.sees(8), false)]
    #[case::the_first_event(|seen: &mut UpstreamState| { seen.version = 0; seen.sees(BUMPED); }, false)]
    fn a_restore_that_was_noticed_is_known_after_later_reports_and_events(
        #[case] happens: fn(&mut UpstreamState),
        #[case] is_found: bool,
    ) {
        let mut seen = upstream("a", 7);
        happens(&mut seen);
        // Upstream goes on, and takes the next report.
        let version = seen.version + 1;
        seen.sees(version);
        let (sent, taken) = (seen.reported, seen.reported.unwrap_or_default() + 60);
        seen.remembers(taken, sent);
        let expected = if is_found {
            Err(ContinuityBreak::Restored)
        } else {
            Ok(())
        };
        assert_eq!(seen.continues(&upstream("a", version + 1)), expected);
        assert_eq!(
            seen.continues(&upstream("b", version + 1)),
            Err(ContinuityBreak::Elsewhere)
        );
    }

    #[test]
    fn a_report_taken_during_a_comparison_is_not_overwritten() {
        let mut seen = upstream("a", 7);
        seen.reported = Some(160);
        seen.remembers(100, Some(100));
        assert_eq!(seen.reported, Some(160));
        seen.remembers(100, Some(160));
        assert_eq!(seen.broken, Some(ContinuityBreak::Restored));
        assert_eq!(seen.reported, Some(100));
    }
}
