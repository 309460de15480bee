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

/// A history as a script that a person can read.
pub fn script(plan: &Plan, outcome: &Outcome) -> String {
    let mut lines = vec![format!(
        "seed {}: upstream {} a bundle of the agent's own; fleet-default {}",
        plan.seed,
        if plan.setting.has_own {
            "has"
        } else {
            "never had"
        },
        if plan.setting.has_fallback {
            "exists"
        } else {
            "does not exist"
        },
    )];
    for step in &plan.steps {
        lines.push(format!(
            "  {:>7.1} s later {}",
            step.after.as_secs_f64(),
            step.action
        ));
    }
    for violation in &outcome.violations {
        lines.push(format!("  => {}: {}", violation.rule, violation.text));
    }
    lines.join("\n")
}
