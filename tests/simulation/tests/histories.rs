//! As many histories as a minute has, other ones each day, and what makes a seed worth printing.
//!
//! A day's seeds are no commit's: one that breaks something shows a hole that may have been there for long. So one or two are told, with their script,
//! and fail nobody; more of them are more than chance finds in a tree that is as good as the one before.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use simulation::history::{again, run};
use simulation::known::is_known;
use simulation::plan::Plan;
use simulation::script::script;
use simulation::shrink::shrink;

/// How many histories are run at least, however slow the machine is.
const FEWEST: u64 = 20;
/// How many may break an invariant that is not known to be broken.
const MOST_BROKEN: usize = 2;

/// For how long histories are run: a minute, unless `SIMULATE_SECONDS` says otherwise.
fn budget() -> Duration {
    let seconds = std::env::var("SIMULATE_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

/// Today's first seed.
fn today() -> u64 {
    let day = jiff::Timestamp::now().as_second() / 86_400;
    u64::try_from(day).unwrap_or(0) * 1_000_000
}

/// What repeats a history as this test ran it: in the same profile, for an optimised build draws hash maps anew and may not break what this one does.
fn repeating(seed: u64) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_simulation"));
    let folder = program.parent().and_then(Path::file_name);
    // Where the dev profile builds to has a name of its own.
    let profile = match folder.and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(profile) => profile,
    };
    format!("cargo run --package simulation --bin simulation --profile {profile} -- --seed {seed}")
}

/// What a seed breaks that is not known to be broken: the history, and the smallest part of it that still does.
fn broken(seed: u64) -> Option<String> {
    let plan = Plan::of(seed);
    let outcome = run(&plan, false);
    let rule = outcome.rule().filter(|rule| !is_known(rule))?;
    let plan = plan.until(outcome.taken);
    let (kept, small) = shrink(&plan, rule);
    Some(format!(
        "{seed} breaks an invariant; {} repeats it:\n{}\nmade small (steps {kept:?}):\n{}",
        repeating(seed),
        script(&plan, &outcome),
        script(&plan.only(&kept), &small)
    ))
}

#[test]
fn histories_break_no_invariant_that_is_not_known_to_be_broken() {
    let (first, until) = (today(), Instant::now() + budget());
    let mut found: Vec<String> = Vec::new();
    let mut seed = first;
    while seed < first + FEWEST || Instant::now() < until {
        found.extend(broken(seed));
        seed += 1;
        assert!(found.len() <= MOST_BROKEN, "{}", found.join("\n\n"));
    }
    let count = seed - first;
    let mut said = format!(
        "simulation: {count} histories from seed {first}, {} BROKEN",
        found.len()
    );
    for text in &found {
        said =
            format!("{said}\n{text}\nsimulation: repair it, whether or not this commit broke it");
    }
    // Not captured, as what a test prints is: whoever reads the run is to see it.
    let reported = writeln!(std::io::stderr(), "{said}");
    assert!(reported.is_ok(), "nobody can be told: {reported:?}");
}

#[test]
fn the_command_that_repeats_a_history_uses_the_tests_build_profile() {
    let command = repeating(7);
    let is_optimised = command.contains(" --profile simulation ");
    let program = env!("CARGO_BIN_EXE_simulation");
    assert_eq!(is_optimised, program.contains("/simulation/"), "{command}");
    assert!(command.ends_with(" -- --seed 7"), "{command}");
}

#[test]
fn a_seed_always_gives_the_same_history() {
    for seed in 40..46 {
        let plan = Plan::of(seed);
        assert_eq!(
            run(&plan, false).digest,
            again(&plan, false).digest,
            "{seed}"
        );
    }
}
