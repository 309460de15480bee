//! What the source must keep to, where a rule of the project hangs on it.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::requirements::root;

/// Crates of the shipped binary that may write a line of a log: all of them through `logging`, whose macros take no text from elsewhere.
#[test]
fn one_crate_alone_writes_logs() -> Result<()> {
    let manifest = std::fs::read_to_string(root()?.join("Cargo.toml"))?;
    let members = manifest.lines().find(|line| line.starts_with("members"));
    let members = members.context("members")?.split('"').skip(1).step_by(2);
    // What never runs in a cluster may listen to logs.
    let shipped = members.filter(|member| {
        let is_test = member.starts_with("tests") || *member == "fuzz";
        !is_test && *member != "deploy/image"
    });
    let mut looked_at = 0;
    for member in shipped {
        let manifest = std::fs::read_to_string(root()?.join(member).join("Cargo.toml"))?;
        let writes = |name: &str| {
            let is_it = |line: &str| line.split(['.', ' ', '=']).next() == Some(name);
            manifest.lines().any(is_it)
        };
        looked_at += 1;
        ensure!(
            !writes("log") && writes("tracing") == (member == "logging"),
            "{member} logs by itself"
        );
    }
    ensure!(looked_at > 8, "{looked_at} crates");
    Ok(())
}

/// What a file has that remembers something beyond a call, or tries again.
const REMEMBERS_OR_WAITS: [&str; 6] = [
    "Mutex<",
    "RwLock<",
    "VecDeque<",
    "mpsc",
    "thread_local",
    "sleep(",
];

/// A map, a queue or a loop that somebody adds is bounded, and stands in ARCHITECTURE.md with its bound.
#[test]
fn every_map_queue_and_loop_has_its_bound_in_architecture() -> Result<()> {
    let map = std::fs::read_to_string(root()?.join("ARCHITECTURE.md"))?;
    let outside = map.split("```").step_by(2);
    let code = outside.flat_map(|part| part.split('`').skip(1).step_by(2));
    let named: Vec<String> = code
        .flat_map(str::split_whitespace)
        .map(|word| format!("/{word}"))
        .collect();
    let mut open: Vec<PathBuf> = vec![
        "agent/src".into(),
        "release/src".into(),
        "chart/src/source".into(),
    ];
    let (mut found, mut missing) = (0, Vec::new());
    while let Some(path) = open.pop() {
        if root()?.join(&path).is_dir() {
            for entry in std::fs::read_dir(root()?.join(&path))? {
                open.push(path.join(entry?.file_name()));
            }
            continue;
        }
        let text = std::fs::read_to_string(root()?.join(&path))?;
        let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let remembers = |line: &str| REMEMBERS_OR_WAITS.iter().any(|part| line.contains(part));
        if !shipped.lines().filter(is_code).any(remembers) {
            continue;
        }
        found += 1;
        let path = format!("/{}", path.display());
        let names = |word: &String| match word.ends_with('/') {
            true => path.contains(word),
            false => path.ends_with(word),
        };
        if !named.iter().any(names) {
            missing.push(path);
        }
    }
    ensure!(found > 40, "only {found} files were found");
    ensure!(missing.is_empty(), "no line for {missing:#?}");
    Ok(())
}
