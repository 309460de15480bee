//! What the source must keep to, where a rule of the project hangs on it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::imports::Imports;
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
    // The ways through the code name files for what they do, not for what bounds it.
    let (before, ways) = map.split_once("## Three ways").context("the ways")?;
    let (_, after) = ways.split_once("\n## ").context("the end of the ways")?;
    let bounds = format!("{before}{after}");
    let outside = bounds.split("```").step_by(2);
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
        if path.ends_with("fixtures.rs") {
            // For tests alone.
            continue;
        }
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

/// The crates of the shipped binary.
const SHIPPED: [&str; 10] = [
    "golib",
    "logging",
    "templating",
    "chart",
    "signatures",
    "objects",
    "kustomize",
    "release",
    "helmcli",
    "agent",
];

/// Two files that need each other are read together; in a larger circle nothing can be read first.
#[test]
fn no_circle_of_imports_has_more_than_two_files() -> Result<()> {
    let (mut files, mut edges, mut large) = (0, 0, Vec::new());
    for member in SHIPPED {
        let imports = Imports::of_crate(&root()?.join(member).join("src"))?;
        let used = imports.edges();
        files += used.len();
        edges += used.values().map(|used| used.len()).sum::<usize>();
        let circles = imports.circles().into_iter();
        large.extend(
            circles
                .filter(|circle| circle.len() > 2)
                .map(|circle| (member, circle)),
        );
    }
    ensure!(
        files > 500 && edges > 1500,
        "only {files} files and {edges} imports were found"
    );
    ensure!(
        large.is_empty(),
        "circles of more than two files: {large:#?}"
    );
    Ok(())
}

/// The table in ARCHITECTURE.md has the modules from the bottom up, a row for those of one height.
#[test]
fn a_module_of_the_agent_names_only_those_above_it() -> Result<()> {
    let uses = names_only_those_above("ARCHITECTURE.md", "## The agent's modules", "agent", &[])?;
    ensure!(uses > 300, "only {uses} uses were found");
    Ok(())
}

/// What waits, cleans up and reconciles builds on what knows the bundles, and not the other way round.
#[test]
fn a_room_of_the_controllers_names_only_those_above_it() -> Result<()> {
    let heading = "### The rooms of `controllers`";
    let uses = names_only_those_above("ARCHITECTURE.md", heading, "agent", &["controllers"])?;
    ensure!(uses > 100, "only {uses} uses were found");
    Ok(())
}

#[test]
fn a_module_of_the_template_engine_names_only_those_above_it() -> Result<()> {
    let uses = names_only_those_above("templating/README.md", "## Modules", "templating", &[])?;
    ensure!(uses > 150, "only {uses} uses were found");
    Ok(())
}

/// Holds the modules of a folder of a crate against the table after a heading, whose rows come from the bottom up. Gives how many uses it has seen.
fn names_only_those_above(
    page: &str,
    heading: &str,
    member: &str,
    folder: &[&str],
) -> Result<usize> {
    let page = std::fs::read_to_string(root()?.join(page))?;
    let (_, table) = page.split_once(heading).context("a table")?;
    let rows = table.lines().skip_while(|line| !line.starts_with("| `"));
    let rows: Vec<Vec<&str>> = rows
        .map_while(|row| row.strip_prefix('|')?.split('|').next())
        .map(|modules| modules.split('`').skip(1).step_by(2).collect())
        .collect();
    let row_of = |module: &str| {
        let row = rows.iter().position(|row| row.contains(&module));
        row.with_context(|| format!("no row has `{module}`"))
    };
    let imports = Imports::of_crate(&root()?.join(member).join("src"))?;
    let named = imports.named_in(folder);
    let mut wrong = BTreeSet::new();
    for (file, module) in &named {
        if row_of(module)? > row_of(&file[folder.len()])? {
            wrong.insert(format!("{} names {module}", file.join("::")));
        }
    }
    ensure!(wrong.is_empty(), "arrows upward: {wrong:#?}");
    Ok(named.len())
}
