//! `simulate`: histories by the thousand, or one by its seed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use simulation::history::{again, run};
use simulation::plan::Plan;
use simulation::script::{parse, script};
use simulation::shrink::shrink;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs random histories of the agent in simulated clusters.
#[derive(Parser)]
struct Args {
    /// The first seed, or the only one with --count 1
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many histories
    #[arg(long)]
    count: Option<u64>,
    /// How long, in seconds, where no number is given
    #[arg(long)]
    seconds: Option<u64>,
    /// Only these steps of the history, by number
    #[arg(long, value_delimiter = ',')]
    steps: Vec<usize>,
    /// A file with a printed history, in place of one by its seed
    #[arg(long)]
    script: Option<PathBuf>,
    /// Print everything that takes place
    #[arg(long)]
    verbose: bool,
    /// Do not make failing histories small
    #[arg(long)]
    whole: bool,
    /// Stop once a history has broken an invariant
    #[arg(long)]
    first: bool,
    /// Run every history twice and compare
    #[arg(long)]
    twice: bool,
    /// Threads
    #[arg(long, default_value_t = 1)]
    threads: u64,
}

fn main() -> std::io::Result<ExitCode> {
    let args = Args::parse();
    let mut out = std::io::stdout();
    if args.count.is_none() && args.seconds.is_none() {
        return one(&args, &mut out);
    }
    many(&args, &mut out)
}

/// A history that breaks an invariant is a failure.
fn code(is_well: bool) -> ExitCode {
    if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn one(args: &Args, out: &mut impl std::io::Write) -> std::io::Result<ExitCode> {
    let mut plan = match &args.script {
        Some(file) => parse(&std::fs::read_to_string(file)?).map_err(std::io::Error::other)?,
        None => Plan::of(args.seed),
    };
    if !args.steps.is_empty() {
        plan = plan.only(&args.steps);
    }
    let outcome = run(&plan, args.verbose);
    let again = again(&plan, args.verbose);
    let plan = plan.until(outcome.taken);
    for line in &outcome.lines {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "{}", script(&plan, &outcome))?;
    writeln!(out, "{} steps, digest {}", outcome.steps, outcome.digest)?;
    if again.digest != outcome.digest {
        writeln!(out, "NOT THE SAME TWICE: {}", again.digest)?;
        let pairs = outcome.lines.iter().zip(&again.lines);
        if let Some((first, second)) = pairs.clone().find(|(first, second)| first != second) {
            writeln!(out, "first: {first}\nthen:  {second}")?;
        }
    }
    if let (Some(rule), false) = (outcome.rule(), args.whole) {
        let (kept, small) = shrink(&plan, rule);
        let kept_text: Vec<String> = kept.iter().map(ToString::to_string).collect();
        writeln!(
            out,
            "made small (--seed {} --steps {}):\n{}",
            plan.seed,
            kept_text.join(","),
            script(&plan.only(&kept), &small)
        )?;
    }
    Ok(code(
        outcome.rule().is_none() && again.digest == outcome.digest,
    ))
}

/// A failing history: seed, steps, when it was found, what it broke.
type Found = (u64, u64, Duration, String);

fn many(args: &Args, out: &mut impl std::io::Write) -> std::io::Result<ExitCode> {
    let begun = Instant::now();
    let next = AtomicU64::new(args.seed);
    let last = args.count.map_or(u64::MAX, |count| args.seed + count);
    let limit = Duration::from_secs(args.seconds.unwrap_or(u64::MAX));
    let found: Mutex<BTreeMap<&'static str, Vec<Found>>> = Mutex::default();
    let (histories, steps) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let (differing, fewest) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    std::thread::scope(|scope| {
        for _ in 0..args.threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let is_found = is_over.load(Ordering::Relaxed);
                    if is_found || seed >= last || begun.elapsed() > limit {
                        return;
                    }
                    let started = Instant::now();
                    let outcome = run(&Plan::of(seed), false);
                    if args.verbose {
                        let took = started.elapsed();
                        let mut out = std::io::stdout().lock();
                        let said = writeln!(
                            out,
                            "seed {seed}: {} steps, {took:?}, {:?}",
                            outcome.steps,
                            outcome.rule()
                        );
                        drop(said);
                    }
                    if args.twice && again(&Plan::of(seed), false).digest != outcome.digest {
                        differing.fetch_add(1, Ordering::Relaxed);
                    }
                    histories.fetch_add(1, Ordering::Relaxed);
                    steps.fetch_add(outcome.steps, Ordering::Relaxed);
                    if args.first && !outcome.violations.is_empty() {
                        is_over.store(true, Ordering::Relaxed);
                    }
                    if outcome.violations.is_empty() {
                        fewest.fetch_min(outcome.steps, Ordering::Relaxed);
                    }
                    if let (Some(violation), Ok(mut found)) =
                        (outcome.violations.first(), found.lock())
                    {
                        found.entry(violation.rule).or_default().push((
                            seed,
                            outcome.steps,
                            begun.elapsed(),
                            violation.text.clone(),
                        ));
                    }
                }
            });
        }
    });
    let histories = histories.into_inner();
    let seconds = begun.elapsed().as_secs_f64();
    writeln!(
        out,
        "{histories} histories, {} steps, in {seconds:.1} s: {:.1} a second, {:.0} steps each, {} the fewest",
        steps.load(Ordering::Relaxed),
        histories as f64 / seconds,
        steps.load(Ordering::Relaxed) as f64 / histories.max(1) as f64,
        fewest.into_inner(),
    )?;
    if args.twice {
        writeln!(out, "{} were not the same twice", differing.into_inner())?;
    }
    let found = found.into_inner().unwrap_or_default();
    let is_well = found.is_empty();
    for (rule, seeds) in found {
        writeln!(out, "{rule}: {} histories", seeds.len())?;
        for (seed, steps, at, text) in seeds.iter().take(8) {
            writeln!(
                out,
                "    seed {seed} ({steps} steps, found after {:.1} s): {text}",
                at.as_secs_f64()
            )?;
        }
    }
    out.flush()?;
    Ok(code(is_well))
}
