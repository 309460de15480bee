//! A minute of histories, with another seed each day, and those that once failed.

use std::time::{Duration, Instant};

use simulation::history::run;
use simulation::known::is_known;
use simulation::plan::Plan;
use simulation::shrink::script;

/// How long histories are run; `SIMULATE_SECONDS` says otherwise.
fn minute() -> Duration {
    let seconds = std::env::var("SIMULATE_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

/// Today's first seed.
fn today() -> u64 {
    let day = jiff::Timestamp::now().as_second() / 86_400;
    u64::try_from(day).unwrap_or(0) * 1_000_000
}

#[test]
fn histories_break_no_invariant_that_is_not_known_to_be_broken() {
    let begun = Instant::now();
    let (mut seed, mut known) = (today(), 0);
    while begun.elapsed() < minute() {
        let plan = Plan::of(seed);
        let outcome = run(&plan, false);
        if let Some(rule) = outcome.rule() {
            assert!(
                is_known(rule),
                "make simulate ARGS=\"--seed {seed}\" repeats this:\n{}",
                script(&plan, &outcome)
            );
            known += 1;
        }
        seed += 1;
    }
    assert!(seed > today(), "no history took place");
    assert!(known <= seed - today());
}

#[test]
fn a_seed_is_a_history() {
    for seed in 40..46 {
        let plan = Plan::of(seed);
        assert_eq!(run(&plan, false).digest, run(&plan, false).digest, "{seed}");
    }
}
