//! The table of requirements is complete, and everything it names exists.
//!
//! `tests/fixtures/requirements.tsv` has one line for each numbered statement about the Go agent: its number, its subject, the
//! tests that show it for ours, and the words of COMPATIBILITY.md that tell where ours differs on purpose.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// How many statements each section has.
const SECTIONS: [(u32, u32); 14] = [
    (1, 27),
    (2, 20),
    (3, 6),
    (4, 36),
    (5, 31),
    (6, 17),
    (7, 52),
    (8, 12),
    (9, 40),
    (10, 22),
    (11, 15),
    (12, 11),
    (13, 21),
    (14, 50),
];

/// Says of a statement that it is about the controller, and asks nothing of an agent.
const UPSTREAM: &str = "upstream";
/// How names of metrics begin, which look like those of tests.
const METRICS: [&str; 6] = [
    "controller_runtime_",
    "fleet_agent_",
    "leader_election_",
    "process_",
    "rest_client_",
    "workqueue_",
];

/// Says that nothing shows it yet.
const OPEN: &str = "open";

struct Row {
    number: String,
    shown: Vec<String>,
    changed: String,
}

pub(crate) fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("the crate is in a workspace")
}

fn table() -> Result<Vec<Row>> {
    let text = std::fs::read_to_string(root()?.join("tests/fixtures/requirements.tsv"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            let [number, subject, shown, changed] = cells[..] else {
                anyhow::bail!("not four cells: {line}");
            };
            ensure!(!subject.is_empty(), "no subject: {line}");
            Ok(Row {
                number: number.to_owned(),
                shown: shown
                    .split(' ')
                    .filter(|s| !s.is_empty())
                    .map(str::to_owned)
                    .collect(),
                changed: changed.to_owned(),
            })
        })
        .collect()
}

/// Every Rust file, by its stem, or by its directory's name where the stem says nothing.
fn sources() -> Result<BTreeMap<String, Vec<String>>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let crates = [
        "agent",
        "helmcli",
        "release",
        "objects",
        "chart",
        "templating",
        "golib",
        "logging",
        "kustomize",
        "tests",
    ];
    let mut open: Vec<PathBuf> = crates
        .map(|part| root().map(|root| root.join(part)))
        .into_iter()
        .collect::<Result<_>>()?;
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let stem = path
                    .file_stem()
                    .and_then(|s| s.to_str())
                    .unwrap_or_default();
                let parent = directory
                    .file_name()
                    .and_then(|s| s.to_str())
                    .unwrap_or_default();
                let name = if stem == "mod" { parent } else { stem };
                let text = std::fs::read_to_string(&path)?;
                found.entry(name.to_owned()).or_default().push(text);
            }
        }
    }
    Ok(found)
}

#[test]
fn every_statement_is_in_the_table_once() -> Result<()> {
    let wanted: BTreeSet<String> = SECTIONS
        .iter()
        .flat_map(|(section, count)| (1..=*count).map(move |n| format!("{section}.{n}")))
        .collect();
    let mut seen = BTreeSet::new();
    for row in table()? {
        ensure!(wanted.contains(&row.number), "there is no {}", row.number);
        ensure!(
            seen.insert(row.number.clone()),
            "{} is there twice",
            row.number
        );
    }
    let missing: Vec<&String> = wanted.difference(&seen).collect();
    ensure!(missing.is_empty(), "not in the table: {missing:?}");
    Ok(())
}

#[test]
fn everything_the_table_names_exists() -> Result<()> {
    let sources = sources()?;
    let fixtures = root()?.join("tests/fixtures");
    let differences = std::fs::read_to_string(root()?.join("COMPATIBILITY.md"))?;
    // Lines are broken where they are full.
    let differences = differences.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut wrong = Vec::new();
    for row in table()? {
        for shown in row
            .shown
            .iter()
            .filter(|s| ![UPSTREAM, OPEN].contains(&s.as_str()))
        {
            let exists = match shown.split_once("::") {
                Some(("vectors", name)) => fixtures.join(format!("vectors/{name}.json")).exists(),
                Some((stem, test)) => sources.get(stem).is_some_and(|texts| {
                    texts
                        .iter()
                        .any(|text| text.contains(&format!("fn {test}(")))
                }),
                None => false,
            };
            if !exists {
                wrong.push(format!("{}: no test {shown}", row.number));
            }
        }
        if !differences.contains(&row.changed) {
            wrong.push(format!(
                "{}: not in COMPATIBILITY.md: {}",
                row.number, row.changed
            ));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The documents that people read.
pub(crate) fn documents() -> Result<Vec<(String, String)>> {
    let mut paths: Vec<PathBuf> = [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "COMPATIBILITY.md",
        "CONTRIBUTING.md",
        "README.md",
    ]
    .map(PathBuf::from)
    .into();
    for entry in std::fs::read_dir(root()?.join("docs"))? {
        paths.push(Path::new("docs").join(entry?.file_name()));
    }
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(root()?.join(&path))?;
        Ok((path.display().to_string(), text))
    };
    paths.into_iter().map(read).collect()
}

/// Whether a word has the form that names of tests have.
fn looks_like_a_test(word: &str) -> bool {
    let is_plain = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    word.split('_').count() > 3
        && word.split('_').all(is_plain)
        && !METRICS.iter().any(|metric| word.starts_with(metric))
}

/// A claim whose test was renamed or deleted is a claim without one.
#[test]
fn every_test_that_a_document_names_exists() -> Result<()> {
    let sources = sources()?;
    let mut named = 0;
    let mut missing = Vec::new();
    for (document, text) in documents()? {
        let code = text.split('`').skip(1).step_by(2);
        let words = code.flat_map(|code| code.split([' ', ':', '\n']));
        for word in words.filter(|word| looks_like_a_test(word)) {
            named += 1;
            let definition = format!("fn {word}(");
            let mut texts = sources.values().flatten();
            let story = format!("tests/simulation/tests/stories/{word}.txt");
            if !texts.any(|text| text.contains(&definition)) && !root()?.join(story).exists() {
                missing.push(format!("{document}: {word}"));
            }
        }
    }
    ensure!(named > 50, "only {named} names were found");
    ensure!(missing.is_empty(), "{}", missing.join("\n"));
    Ok(())
}

#[test]
fn no_statement_is_open() -> Result<()> {
    let is_open = |row: &Row| {
        row.shown.iter().any(|s| s == OPEN) || (row.shown.is_empty() && row.changed.is_empty())
    };
    let open = table()?.into_iter().filter(is_open);
    let open: Vec<String> = open.map(|row| row.number).collect();
    ensure!(open.is_empty(), "nothing shows or changes {open:?}");
    Ok(())
}
