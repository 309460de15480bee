//! Time and allocations of a piece of work.

use std::alloc::System;
use std::fmt;
use std::hint::black_box;
use std::time::Duration;

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

/// Counting costs some nanoseconds per allocation, so our times are a little longer here than without.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// How long a piece of work is repeated where its speed matters most.
pub(crate) const LONG: Duration = Duration::from_millis(300);
/// How long elsewhere.
pub(crate) const SHORT: Duration = Duration::from_millis(50);

/// What one run costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Of processors, all threads together: what else the machine does matters little.
    pub(crate) seconds: f64,
    /// All bytes that were allocated, whether or not at the same time.
    pub(crate) bytes: f64,
    pub(crate) allocations: f64,
}

/// The processor time this process has used.
fn used() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        used.tv_sec.unsigned_abs(),
        u32::try_from(used.tv_nsec).unwrap_or(0),
    )
}

/// Runs the work over and over for some time; figures are means.
pub(crate) fn measure<T>(time: Duration, mut work: impl FnMut() -> Result<T>) -> Result<Cost> {
    // The first run fills caches and tables that are made once.
    black_box(work()?);
    let region = Region::new(ALLOCATOR);
    black_box(work()?);
    let change = region.change();
    let started = used();
    let mut runs = 0;
    while runs == 0 || used() - started < time {
        black_box(work()?);
        runs += 1;
    }
    Ok(Cost {
        seconds: (used() - started).as_secs_f64() / f64::from(runs),
        bytes: (change.bytes_allocated as f64).max(0.0),
        allocations: (change.allocations + change.reallocations) as f64,
    })
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (micros, kib) = (self.seconds * 1e6, self.bytes / 1024.0);
        write!(f, "{micros:>9.1} {kib:>11.1} {:>8}", self.allocations)
    }
}
