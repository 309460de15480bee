//! The ways through the code, as ARCHITECTURE.md lists them.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use crate::requirements::root;

#[test]
fn every_file_of_the_ways_exists_and_is_counted_once() -> Result<()> {
    let map = std::fs::read_to_string(root()?.join("ARCHITECTURE.md"))?;
    let (_, ways) = map
        .split_once("## Three ways through the code\n")
        .context("the ways")?;
    let ways = ways.split("\n## ").next().unwrap_or_default();
    let mut found = 0;
    for way in ways.split("\n### ").skip(1) {
        let heading = way.lines().next().unwrap_or_default();
        let lines = way.lines().filter_map(|line| line.strip_prefix("- `"));
        let files: Vec<&str> = lines.filter_map(|line| line.split('`').next()).collect();
        let count = format!("({} files)", files.len());
        ensure!(heading.ends_with(&count), "{heading}: not {count}");
        let mut seen = BTreeSet::new();
        for file in files {
            ensure!(root()?.join(file).is_file(), "{heading}: no {file}");
            ensure!(seen.insert(file), "{heading}: {file} stands twice");
        }
        found += 1;
    }
    ensure!(found == 3, "{found} ways");
    Ok(())
}
