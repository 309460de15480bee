//! `mutations`: breaks decision points one at a time and shows what notices: a unit test, a story, a random history, or nothing.
//!
//! The points are in `mutations.txt`. Everything takes place in a worktree of its own, at the commit that is checked out.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
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
    UnitTest,
    Story,
    History(String),
    Nothing,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let text = include_str!("../../mutations.txt");
    let mutations = read(text)?;
    let checkout = checkout(&args.folder)?;
    let mut survivors = 0;
    for mutation in mutations {
        if !mutation.name.contains(&args.only) {
            continue;
        }
        let path = checkout.join(mutation.path);
        let right = std::fs::read_to_string(&path)?;
        ensure!(
            right.matches(mutation.right).count() == 1,
            "{}: what is to be broken does not stand in {} once",
            mutation.name,
            mutation.path
        );
        std::fs::write(&path, right.replace(mutation.right, mutation.broken))?;
        let killer = killer(&checkout, &mutation, &args);
        std::fs::write(&path, right)?;
        let told = match killer.with_context(|| mutation.name.to_owned())? {
            Killer::UnitTest => "a unit test".to_owned(),
            Killer::Story => "a story".to_owned(),
            Killer::History(rule) => format!("a history: {rule}"),
            Killer::Nothing => {
                survivors += 1;
                "NOTHING".to_owned()
            }
        };
        writeln!(std::io::stdout(), "{:<66} {told}", mutation.name)?;
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

fn cargo(checkout: &Path, arguments: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo
        .args(arguments)
        .current_dir(checkout)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    cargo
}

fn killer(checkout: &Path, mutation: &Mutation<'_>, args: &Args) -> Result<Killer> {
    let unit = ["test", "--quiet", "--lib", "--package", mutation.package];
    // Whatever does not compile has broken nothing.
    let compiled = cargo(checkout, &[&unit[..], &["--no-run"]].concat()).status()?;
    if !compiled.success() {
        bail!("it does not compile");
    }
    if !args.searched && !cargo(checkout, &unit).status()?.success() {
        return Ok(Killer::UnitTest);
    }
    let profile = args.profile.as_str();
    let simulation = ["--quiet", "--profile", profile, "--package", "simulation"];
    let stories = [&["test"], &simulation[..], &["--test", "stories"]].concat();
    if !args.searched && !cargo(checkout, &stories).status()?.success() {
        return Ok(Killer::Story);
    }
    let (seed, count) = (args.seed.to_string(), args.histories.to_string());
    let histories = [
        "--", "--whole", "--first", "--seed", &seed, "--count", &count,
    ];
    let run = [
        &["run"],
        &simulation[..],
        &["--bin", "simulation"],
        &histories,
    ]
    .concat();
    let ran = cargo(checkout, &run).stdout(Stdio::piped()).output()?;
    if ran.status.success() {
        return Ok(Killer::Nothing);
    }
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let found = said
        .lines()
        .find(|line| line.trim_start().starts_with("seed "));
    Ok(Killer::History(found.unwrap_or(&said).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever changes a decision point sees that its mutation is gone.
    #[test]
    fn every_mutation_has_its_place() -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mutations = read(include_str!("../../mutations.txt"))?;
        assert!(mutations.len() >= 20, "{}", mutations.len());
        for mutation in mutations {
            let text = std::fs::read_to_string(root.join(mutation.path))?;
            let count = text.matches(mutation.right).count();
            assert_eq!(count, 1, "{} in {}", mutation.name, mutation.path);
            assert!(!mutation.broken.is_empty() && mutation.broken != mutation.right);
        }
        Ok(())
    }
}
