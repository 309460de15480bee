//! What documents name is there, and what an operator meets is in a document.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::requirements::{documents, root};

/// Endings of files that a document names by their own name, without saying what is in front of it.
const ENDINGS: [&str; 6] = ["md", "rs", "sh", "toml", "tsv", "txt"];

/// Stands for any name.
const ANY: &str = "NAME.rs";

/// What is in the checkout, by path from its root; what is built is left out.
fn files() -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![root()?.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            match name {
                Some(".git" | "target") | None => {}
                Some(_) if path.is_dir() => open.push(path),
                Some(_) => found.push(path.strip_prefix(root()?)?.display().to_string()),
            }
        }
    }
    Ok(found)
}

/// What stands between backticks, word by word, outside of blocks.
fn words(text: &str) -> Vec<&str> {
    let outside = text.split("```").step_by(2);
    let code = outside.flat_map(|part| part.split('`').skip(1).step_by(2));
    code.flat_map(|code| code.split([' ', '\n'])).collect()
}

#[test]
fn every_file_that_a_document_names_exists() -> Result<()> {
    let files = files()?;
    let (mut named, mut missing) = (0, Vec::new());
    for (document, text) in documents()? {
        for word in words(&text) {
            let word = word.trim_start_matches(['"', '$', '(']);
            let ending = word.rsplit_once('.').map_or("", |(_, ending)| ending);
            if !ENDINGS.contains(&ending) || word.contains('*') || word.ends_with(ANY) {
                continue;
            }
            named += 1;
            let below = format!("/{word}");
            if !files
                .iter()
                .any(|file| file == word || file.ends_with(&below))
            {
                missing.push(format!("{document}: {word}"));
            }
        }
    }
    ensure!(named > 100, "only {named} names were found");
    ensure!(missing.is_empty(), "{}", missing.join("\n"));
    Ok(())
}

/// The texts in a source file that `is_wanted` takes, those of its own tests left out.
fn texts(path: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<BTreeSet<String>> {
    let source = std::fs::read_to_string(root()?.join("agent/src").join(path))?;
    let shipped = source.split("#[cfg(test)]").next().unwrap_or_default();
    let texts = shipped.split('"').skip(1).step_by(2);
    Ok(texts
        .filter(|text| is_wanted(text))
        .map(str::to_owned)
        .collect())
}

/// The texts in all source files of a folder.
fn texts_below(folder: &str, is_wanted: impl Fn(&str) -> bool) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(root()?.join("agent/src").join(folder))? {
        found.extend(texts(
            &Path::new(folder).join(entry?.file_name()),
            &is_wanted,
        )?);
    }
    Ok(found)
}

/// A name as code has it: without labels, and without what a registry adds to it.
fn plain(word: &str) -> &str {
    let word = word.trim_end_matches(',');
    let name = word.split('{').next().unwrap_or_default();
    let name = name.strip_suffix("_total").unwrap_or(name);
    let units = ["_seconds", "_bytes"];
    let without = units.iter().find_map(|unit| name.strip_suffix(unit));
    without.unwrap_or(name)
}

/// What of these `docs/operating.md` does not name, in full or by an end of it behind `…`.
fn undocumented(names: &BTreeSet<String>) -> Result<Vec<&String>> {
    let text = std::fs::read_to_string(root()?.join("docs/operating.md"))?;
    let words = words(&text);
    let is_reported = |name: &&String| {
        words.iter().any(|word| match word.strip_prefix("…_") {
            Some(end) => name.ends_with(&format!("_{}", plain(end))),
            None => plain(word) == name.as_str(),
        })
    };
    Ok(names.iter().filter(|name| !is_reported(name)).collect())
}

#[test]
fn every_event_is_documented_for_operators() -> Result<()> {
    let source = std::fs::read_to_string(root()?.join("agent/src/report/events.rs"))?;
    let (_, list) = source.split_once("\nreasons! {\n").context("a list")?;
    let (list, _) = list.split_once("\n}").context("its end")?;
    let names = list
        .lines()
        .filter_map(|line| line.trim().strip_suffix(','));
    let reasons: BTreeSet<String> = names.map(str::to_owned).collect();
    ensure!(reasons.len() > 30, "only {reasons:?}");
    let undocumented = undocumented(&reasons)?;
    ensure!(undocumented.is_empty(), "{undocumented:?}");
    Ok(())
}

#[test]
fn every_metric_is_documented_for_operators() -> Result<()> {
    let prefixes = [
        "controller_runtime_",
        "workqueue_",
        "fleet_agent_",
        "process_",
        "leader_election_",
    ];
    let metrics = texts_below("report/metrics", |text| {
        prefixes.iter().any(|prefix| text.starts_with(prefix)) && !text.contains(['{', ' '])
    })?;
    ensure!(metrics.len() > 20, "only {metrics:?}");
    let undocumented = undocumented(&metrics)?;
    ensure!(undocumented.is_empty(), "{undocumented:?}");
    Ok(())
}

#[test]
fn every_variable_is_documented_for_operators() -> Result<()> {
    let is_variable = |text: &str| {
        text.trim_matches('_').contains('_')
            && !text.starts_with("CARGO_")
            && text
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    };
    let mut variables = texts_below("config", is_variable)?;
    variables.extend(texts(Path::new("process/telemetry.rs"), is_variable)?);
    ensure!(variables.len() > 15, "only {variables:?}");
    let undocumented = undocumented(&variables)?;
    ensure!(undocumented.is_empty(), "{undocumented:?}");
    Ok(())
}

#[test]
fn every_flag_is_documented_for_operators() -> Result<()> {
    let source = std::fs::read_to_string(root()?.join("agent/src/config/args.rs"))?;
    let (_, fields) = source
        .split_once("pub struct AgentArgs {")
        .context("the flags")?;
    let (fields, _) = fields.split_once("\n}").context("their end")?;
    let names = fields.lines().filter_map(|line| {
        let (name, _) = line.trim().strip_prefix("pub ")?.split_once(':')?;
        Some(format!("--{}", name.replace('_', "-")))
    });
    let flags: BTreeSet<String> = names.collect();
    ensure!(flags.len() > 10, "only {flags:?}");
    let undocumented = undocumented(&flags)?;
    ensure!(undocumented.is_empty(), "{undocumented:?}");
    Ok(())
}
