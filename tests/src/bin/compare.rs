//! `make compare CHARTS=folder`: helm and ours over every chart below a folder, with default values and with each
//! file of its `ci/`; says where they differ.
//!
//! Output, exit status and standard error must be the same; of standard error the order of lines is left out,
//! because helm's is random. Where helm differs from itself, lines are compared that it says twice.
#![expect(clippy::print_stdout, reason = "the findings are for the person who started it")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use testbed::agent;
use testbed::tools::Tool;

/// Flags that are tried with default values, besides none.
const VARIANTS: [&[&str]; 4] = [
    &["--is-upgrade", "--no-hooks"],
    &["--include-crds", "--skip-tests"],
    &[
        "--kube-version",
        "1.16.0",
        "--api-versions",
        "monitoring.coreos.com/v1,networking.k8s.io/v1",
    ],
    &[
        "--skip-schema-validation",
        "--set",
        "a.b[2].c=1,x={1,2,null},nameOverride=other",
    ],
];

#[derive(PartialEq)]
struct Answer {
    code: Option<i32>,
    output: String,
    errors: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let folder = std::env::args().nth(1).context("give a folder of charts")?;
    let folder = std::fs::canonicalize(folder)?;
    let (helm, ours) = (Tool::Helm4.path()?, agent::built()?);
    let mut charts = Vec::new();
    find(&folder, &mut charts)?;
    let (mut same, mut random, mut different) = (0, 0, 0);
    for chart in &charts {
        for flags in runs(chart)? {
            let run = |program: &Path| answer(program, chart, &flags);
            let (want, got) = (run(&helm)?, run(&ours)?);
            if want == got {
                same += 1;
                continue;
            }
            let again = run(&helm)?;
            if again != want && is_alike(&want, &again, &got) {
                random += 1;
                continue;
            }
            different += 1;
            let shown = chart.strip_prefix(&folder).unwrap_or(chart);
            println!(
                "{} {}{}",
                shown.display(),
                flags.join(" "),
                difference(&want, &got)
            );
        }
    }
    println!(
        "{} charts: {same} answers the same, {random} outside random text, {different} different",
        charts.len()
    );
    Ok(if different == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Charts, without those inside others.
fn find(folder: &Path, charts: &mut Vec<PathBuf>) -> Result<()> {
    if folder.join("Chart.yaml").exists() {
        charts.push(folder.to_owned());
        return Ok(());
    }
    let mut entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        if entry.file_type()?.is_dir() {
            find(&entry.path(), charts)?;
        }
    }
    Ok(())
}

/// The arguments of each run.
fn runs(chart: &Path) -> Result<Vec<Vec<String>>> {
    let mut runs = vec![Vec::new()];
    runs.extend(
        VARIANTS
            .iter()
            .map(|flags| flags.iter().map(|flag| (*flag).to_owned()).collect()),
    );
    let Ok(entries) = std::fs::read_dir(chart.join("ci")) else {
        return Ok(runs);
    };
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry?.path());
    }
    files.retain(|file| {
        file.extension()
            .is_some_and(|ext| ext == "yaml" || ext == "yml")
    });
    files.sort();
    runs.extend(
        files
            .into_iter()
            .map(|file| vec!["-f".to_owned(), file.display().to_string()]),
    );
    Ok(runs)
}

fn answer(program: &Path, chart: &Path, flags: &[String]) -> Result<Answer> {
    let output = Command::new(program)
        .args(["template", "rel"])
        .arg(chart)
        .args(["-n", "ns"])
        .args(flags)
        .env_clear()
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null())
        .output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut errors: Vec<String> = text(&output.stderr).lines().map(str::to_owned).collect();
    errors.sort();
    Ok(Answer {
        code: output.status.code(),
        output: text(&output.stdout),
        errors,
    })
}

/// Whether ours agrees wherever helm agrees with itself, line by line.
fn is_alike(one: &Answer, two: &Answer, got: &Answer) -> bool {
    let lines = |answer: &Answer| answer.output.lines().map(str::to_owned).collect::<Vec<_>>();
    let (one_lines, two_lines, got_lines) = (lines(one), lines(two), lines(got));
    one.code == got.code
        && one_lines.len() == got_lines.len()
        && one_lines
            .iter()
            .zip(&two_lines)
            .zip(&got_lines)
            .all(|((one, two), got)| one != two || one == got)
}

fn difference(want: &Answer, got: &Answer) -> String {
    if want.code != got.code {
        return format!(
            ": exit status {:?}, want {:?}\n    {}\n    {}",
            got.code,
            want.code,
            got.errors.join("\n    "),
            want.errors.join("\n    ")
        );
    }
    let first = |got: &[String], want: &[String]| {
        let at = got
            .iter()
            .zip(want)
            .take_while(|(got, want)| got == want)
            .count();
        let line = |lines: &[String]| lines.get(at).map_or("(end)", String::as_str).to_owned();
        format!("\n    got  {}\n    want {}", line(got), line(want))
    };
    let lines = |answer: &Answer| answer.output.lines().map(str::to_owned).collect::<Vec<_>>();
    match want.output == got.output {
        true => format!(": standard error{}", first(&got.errors, &want.errors)),
        false => format!(": output{}", first(&lines(got), &lines(want))),
    }
}
