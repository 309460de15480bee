//! What this process has read: that it may not be read by now says nothing of what is there.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// Names of sources that were read. Clones share them, and they outlive the sessions of a process. There are a few for each upstream.
#[derive(Clone, Default)]
pub struct ReadSources(Arc<Mutex<BTreeSet<String>>>);

impl ReadSources {
    /// Whether a source was ever read.
    pub fn contains(&self, name: &str) -> bool {
        self.0.lock().contains(name)
    }

    /// A source was read.
    pub fn add(&self, name: &str) {
        let mut names = self.0.lock();
        if !names.contains(name) {
            names.insert(name.to_owned());
        }
    }
}
