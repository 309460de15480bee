//! `mutations`: breaks decision points one at a time and shows what notices: a unit test, a story, a random history, or nothing.
//!
//! The points are in `mutations.txt`. All of them are compiled at once, in a worktree of their own at the commit that is checked out;
//! the environment tells which one is broken.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

/// Breaks decision points one at a time and shows what notices.
#[derive(Parser)]
struct Args {
    /// A folder for the worktree
    #[arg(long)]
    folder: PathBuf,
    /// Only those whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Random histories for what no unit test and no story notices
    #[arg(long, default_value_t = 200)]
    histories: u64,
    /// Random histories alone: what they find by the invariants, seed, steps and time
    #[arg(long)]
    searched: bool,
    /// The first of their seeds
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads for the random histories
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// The cargo profile they are built with
    #[arg(long, default_value = "simulation")]
    profile: String,
}

/// A decision point and how it is broken.
struct Mutation<'t> {
    name: &'t str,
    package: &'t str,
    path: &'t str,
    right: &'t str,
    broken: &'t str,
}

/// What noticed.
enum Killer {
    UnitTest(String),
    Story(String),
    History(String),
    Nothing,
}

/// What stands for its switch in a mutation.
const BROKEN: &str = "BROKEN";
/// The environment variable that holds the name of the mutation that is on.
const SWITCH: &str = "FLEETAGENT_MUTATION";
/// How many seconds tests may take: what is broken may wait for ever.
const PATIENCE: &str = "900";

/// Programs that hold all mutations.
struct Programs {
    /// Unit tests by package.
    unit_tests: Vec<(&'static str, PathBuf)>,
    stories: Option<PathBuf>,
    simulation: PathBuf,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let mutations = read(include_str!("../../mutations.txt"))?;
    let checkout = checkout(&args.folder)?;
    for mutation in &mutations {
        write(&checkout, mutation)?;
    }
    let programs = build(&checkout, &args)?;
    let mut survivors = 0;
    for mutation in mutations {
        if !mutation.name.contains(&args.only) {
            continue;
        }
        let begun = Instant::now();
        let killer = killer(&checkout, &programs, &mutation, &args)
            .with_context(|| mutation.name.to_owned())?;
        let reported = match killer {
            Killer::UnitTest(name) => format!("unit test {name}"),
            Killer::Story(name) => format!("story {name}"),
            Killer::History(rule) => format!("history {rule}"),
            Killer::Nothing => {
                survivors += 1;
                "NOTHING".to_owned()
            }
        };
        let took = begun.elapsed().as_secs_f64();
        writeln!(
            std::io::stdout(),
            "{:<66} {took:>6.1} s  {reported}",
            mutation.name
        )?;
    }
    Ok(match survivors {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn read(text: &str) -> Result<Vec<Mutation<'_>>> {
    let blocks = text.split("\n\n").filter(|block| !block.starts_with('#'));
    let mutations = blocks.map(|block| {
        let block = block.trim();
        let not_understood = || format!("not understood: {block}");
        let (name, rest) = block.split_once('\n').with_context(not_understood)?;
        let (place, rest) = rest.split_once("\n- ").with_context(not_understood)?;
        let (package, path) = place.split_once(' ').with_context(not_understood)?;
        let (right, broken) = rest.split_once("\n+ ").with_context(not_understood)?;
        Ok(Mutation {
            name,
            package,
            path,
            right,
            broken,
        })
    });
    mutations.collect()
}

/// Writes a mutation into its file, with a switch that is off unless the environment has its name.
fn write(checkout: &Path, mutation: &Mutation<'_>) -> Result<()> {
    let path = checkout.join(mutation.path);
    let right = std::fs::read_to_string(&path)?;
    ensure!(
        right.matches(mutation.right).count() == 1,
        "{}: what is to be broken does not stand in {} once",
        mutation.name,
        mutation.path
    );
    let switch = format!(
        "{{ static IT: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| \
         std::env::var({SWITCH:?}).is_ok_and(|name| name == {:?})); *IT }}",
        mutation.name
    );
    let broken = mutation.broken.replace(BROKEN, &switch);
    std::fs::write(&path, right.replace(mutation.right, &broken))?;
    Ok(())
}

/// A worktree at the commit that is checked out here.
fn checkout(folder: &Path) -> Result<PathBuf> {
    let git = |arguments: &[&str], folder: &Path| -> Result<()> {
        let status = Command::new("git")
            .arg("-C")
            .arg(folder)
            .args(arguments)
            .status()?;
        ensure!(status.success(), "git {arguments:?} failed");
        Ok(())
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let commit = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(here)
        .output()?;
    let commit = String::from_utf8(commit.stdout)?;
    let commit = commit.trim();
    if folder.join(".git").exists() {
        git(
            &["checkout", "--quiet", "--force", "--detach", commit],
            folder,
        )?;
    } else {
        let path = folder.to_str().context("the folder's name is no text")?;
        git(&["worktree", "prune"], here)?;
        git(
            &["worktree", "add", "--quiet", "--detach", path, commit],
            here,
        )?;
    }
    Ok(folder.to_owned())
}

fn build(checkout: &Path, args: &Args) -> Result<Programs> {
    let profile = args.profile.as_str();
    let simulation = ["--profile", profile, "--package", "simulation"];
    let binary = [&["build", "--bin", "simulation"], &simulation[..]].concat();
    let mut programs = Programs {
        unit_tests: Vec::new(),
        stories: None,
        simulation: cargo(checkout, &binary, "simulation")?,
    };
    if args.searched {
        return Ok(programs);
    }
    let stories = [&["test", "--no-run", "--test", "stories"], &simulation[..]].concat();
    programs.stories = Some(cargo(checkout, &stories, "stories")?);
    for package in ["agent", "release"] {
        // Run dozens of times, each of them a tenth as long as built for debugging.
        let unit_tests = ["test", "--no-run", "--lib", "--profile", profile];
        let unit_tests = [&unit_tests[..], &["--package", package]].concat();
        let program = cargo(checkout, &unit_tests, package)?;
        programs.unit_tests.push((package, program));
    }
    Ok(programs)
}

/// Builds a target's program.
fn cargo(checkout: &Path, arguments: &[&str], target: &str) -> Result<PathBuf> {
    let output = Command::new("cargo")
        .args(arguments)
        .args(["--quiet", "--message-format", "json-render-diagnostics"])
        .current_dir(checkout)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "cargo {arguments:?} failed");
    let said = String::from_utf8(output.stdout)?;
    let messages = said
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut programs = messages
        .filter(|message| message["target"]["name"] == target)
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    programs
        .next()
        .with_context(|| format!("cargo {arguments:?} makes no {target}"))
}

/// What tests say that fail with a mutation on: the first of them.
fn failing(program: &Path, folder: &Path, mutation: &Mutation<'_>) -> Result<Option<String>> {
    let output = Command::new("timeout")
        .arg(PATIENCE)
        .arg(program)
        .current_dir(folder)
        .env(SWITCH, mutation.name)
        .stderr(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = |line: &str| {
        Some(
            line.strip_prefix("test ")?
                .strip_suffix(" ... FAILED")?
                .to_owned(),
        )
    };
    let mut failed = said.lines().filter_map(failed);
    let first = failed.next();
    let others = failed.count();
    Ok(Some(match (first, others) {
        (Some(first), 0) => first,
        (Some(first), others) => format!("{first} and {others} more"),
        (None, _) => "that does not end".to_owned(),
    }))
}

fn killer(
    checkout: &Path,
    programs: &Programs,
    mutation: &Mutation<'_>,
    args: &Args,
) -> Result<Killer> {
    // All stories take less time than the unit tests of the agent.
    if let Some(stories) = &programs.stories
        && let Some(story) = failing(stories, &checkout.join("tests/simulation"), mutation)?
    {
        return Ok(Killer::Story(story));
    }
    let mut unit_tests = programs.unit_tests.iter();
    if let Some((package, program)) = unit_tests.find(|(package, _)| *package == mutation.package)
        && let Some(test) = failing(program, &checkout.join(package), mutation)?
    {
        return Ok(Killer::UnitTest(test));
    }
    let ran = Command::new(&programs.simulation)
        .args(["--whole", "--first"])
        .args(["--seed", &args.seed.to_string()])
        .args(["--count", &args.histories.to_string()])
        .args(["--threads", &args.threads.to_string()])
        .env(SWITCH, mutation.name)
        .stderr(Stdio::null())
        .output()?;
    if ran.status.success() {
        return Ok(Killer::Nothing);
    }
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let mut lines = said.lines().skip(1);
    let (rule, found) = (lines.next(), lines.next());
    let rule = rule.and_then(|rule| rule.split(':').next());
    Ok(Killer::History(format!(
        "{}, {}",
        rule.unwrap_or("that ends at once").trim(),
        found.unwrap_or_default().trim()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever changes a decision point sees that its mutation is gone.
    #[test]
    fn every_mutation_matches_the_code_exactly_once() -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mutations = read(include_str!("../../mutations.txt"))?;
        assert!(mutations.len() >= 20, "{}", mutations.len());
        for mutation in mutations {
            let text = std::fs::read_to_string(root.join(mutation.path))?;
            let count = text.matches(mutation.right).count();
            assert_eq!(count, 1, "{} in {}", mutation.name, mutation.path);
            assert!(mutation.broken.contains(BROKEN), "{}", mutation.name);
        }
        Ok(())
    }
}
