//! Releases for tests.

use super::{LedgerEntry, ReleaseKey};

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
