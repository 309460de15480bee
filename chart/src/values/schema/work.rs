//! Limit on checking the values of one render: hostile schemas are given up, not followed.

use golib::regexp::Meter;

use super::failure::{Failure, Kind};

/// Schemas applied to the values of a chart and of all charts in it, and what else takes time in proportion. The published chart that
/// takes most takes some 30 thousand.
const MAX_STEPS: u64 = 5_000_000;
/// Steps after which it is asked again whether the result is wanted: some milliseconds.
const STEPS_UNASKED: u64 = 10_000;
/// Bytes of failures of all charts together, whose text takes about as much again, and of what a check keeps beside them.
const MAX_HELD: usize = 16 << 20;
/// Bytes of a failure that are made in about the time a schema takes.
const BYTES_PER_STEP: usize = 256;
/// Steps of a regular expression in one of a check.
const REGEXP_STEPS: u64 = 4;

/// What is left for the schemas of a chart and of all charts in it. One chart may be in another very many times, by its aliases.
pub(super) struct Work<'w> {
    steps: u64,
    room: usize,
    /// Of the schema that is checked, and of no other.
    is_too_deep: bool,
    unasked: u64,
    is_wanted: &'w dyn Fn() -> bool,
}

impl<'w> Work<'w> {
    /// All of it, given up once `is_wanted` says no.
    pub(super) fn new(is_wanted: &'w dyn Fn() -> bool) -> Self {
        Self {
            steps: MAX_STEPS,
            room: MAX_HELD,
            is_too_deep: false,
            unasked: STEPS_UNASKED,
            is_wanted,
        }
    }

    /// Whether this check has ended early: any result of it is not the whole truth.
    pub(super) fn is_over(&self) -> bool {
        self.is_too_deep || self.is_used_up()
    }

    /// Whether nothing is left for any chart.
    pub(super) fn is_used_up(&self) -> bool {
        self.steps == 0
    }

    /// Ends the check of one schema.
    pub(super) fn end_too_deep(&mut self) {
        self.is_too_deep = true;
    }

    /// What comes next is another schema.
    pub(super) fn begin_schema(&mut self) {
        self.is_too_deep = false;
    }

    fn give_up(&mut self) {
        self.steps = 0;
    }

    /// Takes `cost` steps; false if there are not that many left.
    pub(super) fn step(&mut self, cost: usize) -> bool {
        self.take(u64::try_from(cost).unwrap_or(u64::MAX))
    }

    fn take(&mut self, cost: u64) -> bool {
        self.steps = self.steps.saturating_sub(cost);
        match self.unasked.checked_sub(cost) {
            Some(left) => self.unasked = left,
            None => {
                self.unasked = STEPS_UNASKED;
                if !(self.is_wanted)() {
                    self.give_up();
                }
            }
        }
        !self.is_over()
    }

    /// Makes room for a failure that lies `depth` schemas deep.
    pub(super) fn hold(&mut self, failure: &Failure, depth: usize) {
        let weight = failure.weight();
        self.step(weight / BYTES_PER_STEP);
        // Each level may indent the line.
        self.hold_bytes(weight + 2 * depth);
    }

    /// Makes room for so many bytes that are reported or kept for a while; false if there is none.
    pub(super) fn hold_bytes(&mut self, bytes: usize) -> bool {
        match self.room.checked_sub(bytes) {
            Some(room) => self.room = room,
            None => self.give_up(),
        }
        !self.is_over()
    }

    /// So many bytes are not kept any more.
    pub(super) fn release(&mut self, bytes: usize) {
        self.room = (self.room + bytes).min(MAX_HELD);
    }

    /// Failures that will not be reported take no room any more.
    pub(super) fn forget(&mut self, failures: &[Failure]) {
        for failure in failures {
            // Where nobody asked what failed, nothing was held.
            if !matches!(failure.kind, Kind::Unspecified) {
                self.release(failure.weight());
            }
            self.forget(&failure.causes);
        }
    }

    /// The room that is left.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// A check began with so much room, and nothing of what it held is reported.
    pub(super) fn give_back_to(&mut self, room: usize) {
        self.room = room;
    }
}

impl Meter for Work<'_> {
    /// There are no more steps, for this and anything else.
    type Error = ();

    fn spend(&mut self, steps: u64) -> Result<(), ()> {
        if self.take(steps / REGEXP_STEPS) {
            Ok(())
        } else {
            Err(())
        }
    }
}
