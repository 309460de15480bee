//! Releases, and what upstream says, for tests.

use std::collections::{BTreeMap, BTreeSet};

use super::{LedgerEntry, Listed, ReleaseKey, Renewal, UpstreamState};

pub(super) fn key(name: &str) -> ReleaseKey {
    ReleaseKey {
        namespace: "apps".to_owned(),
        name: name.to_owned(),
    }
}

pub(super) fn entry(bundle: &str) -> LedgerEntry {
    LedgerEntry {
        bundle: bundle.to_owned(),
        ..LedgerEntry::default()
    }
}

pub(super) fn upstream(version: u64) -> UpstreamState {
    UpstreamState {
        server: "a".into(),
        version,
        ..UpstreamState::default()
    }
}

pub(super) static NONE: BTreeSet<String> = BTreeSet::new();

/// A list of these, none of which is being deleted.
pub(super) fn listed(all: &BTreeSet<String>) -> Listed<'_> {
    Listed {
        all,
        leaving: &NONE,
        there: all,
        known: &NONE,
        own_name: None,
        was_broken: true,
        renewal: Renewal::New,
    }
}

/// Upstream as it is listed with the agent's own, and with one of somebody else's that is called alike.
pub(super) fn with_own(version: u64, own: &[&str]) -> UpstreamState {
    let names = ["fleet-agent-c1", "fleet-agent-else"];
    let own = names.iter().zip(own);
    let own: BTreeMap<_, _> = own
        .filter(|(_, uid)| !uid.is_empty())
        .map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned()))
        .collect();
    UpstreamState {
        has_own: !own.is_empty(),
        own,
        ..upstream(version)
    }
}
