//! Some dozen histories, other ones each day, and what makes a seed worth printing.

use simulation::history::run;
use simulation::known::is_known;
use simulation::plan::Plan;
use simulation::script::script;
use simulation::shrink::shrink;

/// How many histories are run: about a minute's on a quiet core without optimisation. `SIMULATE_HISTORIES` says otherwise.
fn count() -> u64 {
    let count = std::env::var("SIMULATE_HISTORIES").ok();
    count.and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// Today's first seed.
fn today() -> u64 {
    let day = jiff::Timestamp::now().as_second() / 86_400;
    u64::try_from(day).unwrap_or(0) * 1_000_000
}

#[test]
fn histories_break_no_invariant_that_is_not_known_to_be_broken() {
    let first = today();
    for seed in first..first + count() {
        let plan = Plan::of(seed);
        let outcome = run(&plan, false);
        let Some(rule) = outcome.rule().filter(|rule| !is_known(rule)) else {
            continue;
        };
        let plan = plan.until(outcome.taken);
        let (kept, small) = shrink(&plan, rule);
        panic!(
            "{seed} breaks an invariant (an optimised build draws hash maps anew and may not):\n{}\nmade small (steps {kept:?}):\n{}",
            script(&plan, &outcome),
            script(&plan.only(&kept), &small)
        );
    }
}

#[test]
fn a_seed_is_a_history() {
    for seed in 40..46 {
        let plan = Plan::of(seed);
        assert_eq!(run(&plan, false).digest, run(&plan, false).digest, "{seed}");
    }
}
