//! Which BundleDeployment is the agent's own. No I/O.

use super::Ledger;
use super::state::LedgerState;
use crate::api::AGENT_BUNDLE_PREFIX;

/// Whether a bundle may be the agent's own by its name: Fleet calls it `fleet-agent-` and the name of the cluster, or what that is cut to, and once
/// called it `fleet-agent`.
fn may_be_own(name: &str) -> bool {
    let rest = name.strip_prefix(AGENT_BUNDLE_PREFIX);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Whether a bundle is the agent's own, which is called `known` where that is known to be there, or to have been. Until then any one counts that is
/// called alike: that it is not recognised would let go what vanishes with it.
pub fn is_own(name: &str, known: Option<&str>) -> bool {
    match known {
        Some(known) => name == known,
        None => may_be_own(name),
    }
}

impl Ledger {
    /// Whether the agent's own bundle was ever listed, or deployed, under this name.
    pub fn knows_own(&self, name: &str) -> bool {
        let state = self.state.lock();
        let seen = state.upstream.as_ref();
        seen.is_some_and(|seen| seen.own.contains_key(name))
            || state.iter().any(|(_, entry)| entry.bundle == name)
    }
}

impl LedgerState {
    /// Whether the agent ever had a BundleDeployment of its own.
    pub(super) fn had_own(&self) -> bool {
        self.upstream.as_ref().is_some_and(|seen| seen.has_own)
            || self.iter().any(|(_, entry)| may_be_own(&entry.bundle))
    }

    /// Whether a bundle is one that was noted as the agent's own, or may be where none was.
    pub(super) fn is_noted_as_own(&self, name: &str) -> bool {
        let noted = self.upstream.as_ref().map(|seen| &seen.own);
        match noted.filter(|noted| !noted.is_empty()) {
            Some(noted) => noted.contains_key(name),
            None => may_be_own(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::as_fleet_calls_it("fleet-agent-c1", None, true)]
    #[case::as_it_once_did("fleet-agent", None, true)]
    #[case::another_word("fleet-agents", None, false)]
    #[case::another_one("web", None, false)]
    #[case::that_is_there("fleet-agent-c1", Some("fleet-agent-c1"), true)]
    #[case::of_which_another_one_is_there("fleet-agent-else", Some("fleet-agent-c1"), false)]
    fn the_agents_own_bundle_is_told_by_its_name(
        #[case] name: &str,
        #[case] known: Option<&str>,
        #[case] expected: bool,
    ) {
        assert_eq!(is_own(name, known), expected);
    }
}
