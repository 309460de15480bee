//! `fleetagent template` beside `helm template`: whole processes on the published charts, in pairs, for `make bench`.
//!
//! `against_helm [ROUNDS]`. Each round runs both programs on a chart, one right after the other and the first by turns, so
//! that whatever else the machine does meets both. Output goes nowhere.
#![expect(clippy::print_stdout, reason = "the figures are for the person who started it")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use testbed::tools::Tool;
use testbed::{agent, corpus};
use wait4::Wait4 as _;

/// What one run of a program took.
#[derive(Debug, Clone, Copy)]
struct Run {
    wall: f64,
    cpu: f64,
    peak_kib: f64,
}

/// A chart's figures, the medians of all rounds.
struct Row {
    chart: String,
    archive: u64,
    helm: Run,
    ours: Run,
    /// How many times faster we are, of each pair.
    faster: f64,
}

fn main() -> Result<()> {
    let rounds = match std::env::args().nth(1) {
        Some(text) => text.parse().context("ROUNDS is a number")?,
        None => 3,
    };
    let charts = corpus::charts()?;
    if charts.is_empty() {
        println!("SKIPPED: no published charts are here (make corpus), so helm was NOT compared");
        return Ok(());
    }
    let Ok(helm) = Tool::Helm4.path() else {
        println!("SKIPPED: helm is not built (make tools), so it was NOT compared");
        return Ok(());
    };
    let ours = agent::optimised()?;
    let mut rows = Vec::new();
    for chart in &charts {
        rows.extend(compare(&helm, &ours, chart, rounds)?);
    }
    print(rows, charts.len());
    Ok(())
}

/// Nothing for a chart that one of the two refuses.
fn compare(helm: &Path, ours: &Path, chart: &Path, rounds: usize) -> Result<Option<Row>> {
    let mut pairs = Vec::new();
    for round in 0..rounds {
        let (first, second) = if round % 2 == 0 {
            (helm, ours)
        } else {
            (ours, helm)
        };
        let (Some(first), Some(second)) = (run(first, chart)?, run(second, chart)?) else {
            return Ok(None);
        };
        pairs.push(if round % 2 == 0 {
            (first, second)
        } else {
            (second, first)
        });
    }
    let middle = |figure: &dyn Fn(&(Run, Run)) -> f64| median(pairs.iter().map(figure).collect());
    let runs = |which: fn(&(Run, Run)) -> &Run| Run {
        wall: middle(&|pair| which(pair).wall),
        cpu: middle(&|pair| which(pair).cpu),
        peak_kib: middle(&|pair| which(pair).peak_kib),
    };
    Ok(Some(Row {
        chart: chart
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        archive: std::fs::metadata(chart)?.len(),
        helm: runs(|pair| &pair.0),
        ours: runs(|pair| &pair.1),
        faster: middle(&|(helm, ours)| helm.wall / ours.wall),
    }))
}

fn run(program: &Path, chart: &Path) -> Result<Option<Run>> {
    let mut command = Command::new(program);
    command
        .args(["template", "rel"])
        .arg(chart)
        .args(["-n", "ns", "--kube-version", "1.36.3", "--include-crds"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let started = Instant::now();
    let child = command
        .spawn()
        .with_context(|| format!("starting {program:?}"))?;
    let used = child.wait4()?;
    let wall = started.elapsed().as_secs_f64();
    Ok(used.status.success().then(|| Run {
        wall,
        cpu: (used.rusage.utime + used.rusage.stime).as_secs_f64(),
        peak_kib: used.rusage.maxrss as f64 / 1024.0,
    }))
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print(mut rows: Vec<Row>, charts: usize) {
    rows.sort_by_key(|row| row.archive);
    println!(
        "archive KiB |   helm: ms   cpu ms      MiB |   ours: ms   cpu ms      MiB |  faster   cpu  memory  chart"
    );
    let last = rows.len().saturating_sub(1);
    for (at, row) in rows.iter().enumerate() {
        if at % 8 == 0 || at + 4 > last {
            println!(
                "{:>11} | {} | {} | {:>6.1}x {:>4.0}x {:>6.2}  {}",
                row.archive / 1024,
                show(&row.helm),
                show(&row.ours),
                row.faster,
                row.helm.cpu / row.ours.cpu.max(0.001),
                row.ours.peak_kib / row.helm.peak_kib,
                row.chart
            );
        }
    }
    let middle = |figure: fn(&Row) -> f64| median(rows.iter().map(figure).collect());
    let least = rows
        .iter()
        .map(|row| row.faster)
        .fold(f64::INFINITY, f64::min);
    let largest = rows.last().map_or(f64::NAN, |row| row.faster);
    let memory = |row: &Row| row.ours.peak_kib / row.helm.peak_kib;
    let worst_memory = rows.iter().map(memory).fold(0.0, f64::max);
    println!(
        "{} of {charts} charts rendered by both: median {:.1}x faster, least {least:.1}x, largest archive {largest:.1}x; \
         memory of helm's: median {:.2}, most {worst_memory:.2}",
        rows.len(),
        middle(|row| row.faster),
        middle(|row| row.ours.peak_kib / row.helm.peak_kib),
    );
}

fn show(run: &Run) -> String {
    let mib = run.peak_kib / 1024.0;
    format!("{:>10.1} {:>8.1} {mib:>8.1}", run.wall * 1e3, run.cpu * 1e3)
}
