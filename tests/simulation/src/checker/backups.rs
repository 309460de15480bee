//! What is known of the local cluster where it becomes what it was when it was backed up.

use tokio::time::Instant;

use super::{Checker, attempts::Attempt, release_of};

impl Checker {
    /// The local cluster is backed up.
    pub fn backed_up(&mut self) {
        self.at_backup = None;
        self.at_backup = Some(Box::new(self.clone()));
    }

    /// The local cluster is what it was: so is what its records say and who wrote them, and what ran since did not. What is known of upstream, and what
    /// is counted, stays.
    pub fn restored(&mut self) {
        let Some(then) = self.at_backup.as_deref().cloned() else {
            return;
        };
        let written = self.written.iter();
        let under_way = written.filter(|(release, (revision, _))| {
            let records = self.records.get(*release);
            let status = records.and_then(|records| records.get(revision));
            let is_there = then.records.get(*release);
            let is_there = is_there.is_some_and(|records| records.contains_key(revision));
            status.is_some_and(|status| status == "pending-upgrade") && !is_there
        });
        let cut_off = under_way.map(|(release, (_, record))| (release.clone(), record.clone()));
        self.cut_off = cut_off.collect();
        if !self.is_restored || self.lived_on != self.latest_life {
            self.outlived.clear();
        }
        self.lived_on = self.latest_life;
        let succeeded = self.runs.iter().filter(|(_, run)| run.has_succeeded);
        let outlived = succeeded.map(|(uid, run)| (uid.clone(), run.clone()));
        self.outlived.extend(outlived);
        self.is_restored = true;
        self.ledger = then.ledger;
        self.records = then.records;
        self.were_good = then.were_good;
        self.tampered = then.tampered;
        self.written = then.written;
        self.helms = then.helms;
        self.helms_at = then.helms_at;
        self.forgotten = then.forgotten;
        self.not_entered = then.not_entered;
        self.in_place = then.in_place;
        self.under_announced = then.under_announced;
        self.deployed = then.deployed;
        self.deployed_by_agent = then.deployed_by_agent;
        self.deployed_for = then.deployed_for;
        self.taken_above_forged = then.taken_above_forged;
        self.withdrawn = then.withdrawn;
        self.given_up = then.given_up;
        self.made_again = then.made_again;
        self.origins = then.origins;
        self.marked = then.marked;
        self.claimed = then.claimed;
        self.unnoticed = then.unnoticed;
        self.copies_changed = then.copies_changed;
        self.last_deployed = then.last_deployed;
        self.hooks = then.hooks;
        self.runs = then.runs;
        self.attempts = then.attempts;
        let releases: Vec<_> = self.records.keys().cloned().collect();
        for release in releases {
            let newest = self.records[&release].last_key_value();
            if newest.is_some_and(|(_, status)| !Self::is_deployed(status)) {
                // As which version it goes on nobody knows.
                let bundles = self.desired_state.of_release(&release.0, &release.1);
                let mut ever = bundles
                    .iter()
                    .flat_map(|bundle| &self.desired_state.ever[bundle]);
                let is_atomic =
                    ever.any(|desired| desired.atomic && release_of(desired) == release);
                let attempt = Attempt {
                    bundle: None,
                    good: self.deployed.get(&release).copied().unwrap_or(0),
                    is_first: !self.has_deployed(&release),
                    is_atomic,
                    life: None,
                    begun: Instant::now(),
                };
                let attempt = self.attempts.entry(release).or_insert(attempt);
                attempt.is_atomic |= is_atomic;
                attempt.begun = Instant::now();
            }
        }
    }
}
