//! Limit on checking one document: a hostile schema is given up, not followed.

use golib::regexp::Meter;

use super::failure::Failure;

/// Schemas applied in one check, and what else takes time in proportion.
const MAX_STEPS: u64 = 5_000_000;
/// Bytes of failures held at once; their text takes about as much again.
const MAX_HELD: usize = 16 << 20;
/// Steps of a regular expression in one of a check.
const REGEXP_STEPS: u64 = 4;

/// The rest of the allowance of one check.
#[derive(Debug)]
pub(super) struct Work {
    steps: u64,
    room: usize,
}

impl Work {
    pub(super) fn new() -> Self {
        Self {
            steps: MAX_STEPS,
            room: MAX_HELD,
        }
    }

    /// Whether the allowance is used up: any result then is not the whole truth.
    pub(super) fn is_over(&self) -> bool {
        self.steps == 0
    }

    pub(super) fn give_up(&mut self) {
        self.steps = 0;
    }

    /// Takes `cost` steps; false if there are not that many left.
    pub(super) fn step(&mut self, cost: usize) -> bool {
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        self.steps = self.steps.saturating_sub(cost);
        self.steps > 0
    }

    /// Makes room for a failure that lies `depth` schemas deep.
    pub(super) fn hold(&mut self, failure: &Failure, depth: usize) {
        // Each level may indent the line.
        match self.room.checked_sub(failure.weight() + 2 * depth) {
            Some(room) => self.room = room,
            None => self.give_up(),
        }
    }

    /// Failures that will not be reported take no room any more.
    pub(super) fn forget(&mut self, failures: &[Failure]) {
        for failure in failures {
            self.room = (self.room + failure.weight()).min(MAX_HELD);
            self.forget(&failure.causes);
        }
    }
}

impl Meter for Work {
    /// There are no more steps, for this and anything else.
    type Error = ();

    fn spend(&mut self, steps: u64) -> Result<(), ()> {
        self.steps = self.steps.saturating_sub(steps / REGEXP_STEPS);
        if self.steps > 0 { Ok(()) } else { Err(()) }
    }
}
