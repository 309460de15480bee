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
}

/// What was known of upstream when it was asked. What it says may be older than what is known by the time it is heard: an event came, a
/// heartbeat was taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeenBefore {
    /// Highest resourceVersion.
    pub version: u64,
    /// When it last took a report of this agent.
    pub reported: Option<i64>,
}

impl UpstreamState {
    /// Whether `now`, seen later, is a continuation; why not otherwise.
    pub fn continues(&self, now: &Self) -> Result<(), ContinuityBreak> {
        if self.server != now.server || self.namespace != now.namespace {
            return Err(ContinuityBreak::Elsewhere);
        }
        let (before, after) = (self.version, now.version);
        if before != 0 && after != 0 && (after < before || after - before > LEAP) {
            return Err(ContinuityBreak::Restored);
        }
        if now.reported.is_some() && now.reported < self.reported {
            return Err(ContinuityBreak::Restored);
        }
        Ok(())
    }
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
            has_own: false,
            reported: Some(100),
        }
    }

    #[rstest]
    #[case::same_moment(upstream("a", 7), Ok(()))]
    #[case::later(upstream("a", 8), Ok(()))]
    #[case::versions_that_are_no_numbers(upstream("a", 0), Ok(()))]
    #[case::another_server(upstream("b", 8), Err(ContinuityBreak::Elsewhere))]
    #[case::another_namespace(UpstreamState { namespace: "cluster-b".into(), ..upstream("a", 8) }, Err(ContinuityBreak::Elsewhere))]
    #[case::an_old_backup(upstream("a", 6), Err(ContinuityBreak::Restored))]
    #[case::an_old_backup_that_was_written_to(UpstreamState { reported: Some(99), ..upstream("a", 8) }, Err(ContinuityBreak::Restored))]
    #[case::reports_that_cannot_be_read(UpstreamState { reported: None, ..upstream("a", 8) }, Ok(()))]
    #[case::a_backup_whose_revisions_were_bumped(
        upstream("a", 1_000_000_007),
        Err(ContinuityBreak::Restored)
    )]
    fn an_upstream_continues_or_not(
        #[case] now: UpstreamState,
        #[case] expected: Result<(), ContinuityBreak>,
    ) {
        assert_eq!(upstream("a", 7).continues(&now), expected);
    }
}
