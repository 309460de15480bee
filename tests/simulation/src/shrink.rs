//! The smallest part of a history that still breaks the same invariant.

use crate::history::{Outcome, run};
use crate::plan::Plan;

/// Leaves out steps, many at a time and then one by one, as long as `rule` is still broken.
pub fn shrink(plan: &Plan, rule: &str) -> (Vec<usize>, Outcome) {
    let mut kept: Vec<usize> = (0..plan.steps.len()).collect();
    let mut last = run(plan, false);
    let mut size = kept.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < kept.len() {
            let end = (at + size).min(kept.len());
            let without: Vec<usize> = [&kept[..at], &kept[end..]].concat();
            let outcome = run(&plan.only(&without), false);
            if outcome.breaks(rule) {
                kept = without;
                last = outcome;
            } else {
                at = end;
            }
        }
        size /= 2;
    }
    (kept, last)
}
