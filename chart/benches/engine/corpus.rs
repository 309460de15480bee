//! Published charts, from the archive's bytes to sorted manifests.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use chart::rendered::{RenderOptions, Request, render_release};
use chart::{Capabilities, KubeVersion, ReleaseInfo, loader};
use templating::SystemHost;

use crate::measure::{Cost, SHORT, measure};

struct Row {
    name: String,
    /// Bytes of all files of the chart.
    content: usize,
    load: Cost,
    install: Cost,
    output: usize,
}

/// Prints a table by chart size: the smallest, every tenth and the largest, and the sums over all.
pub(crate) fn print() -> Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus/charts");
    if !directory.is_dir() {
        println!("SKIPPED: no published charts beside the checkout, so they were NOT measured");
        return Ok(());
    }
    let mut rows = Vec::new();
    for path in archives(&directory)? {
        if let Some(row) = row(&path).with_context(|| format!("{path:?}"))? {
            rows.push(row);
        }
    }
    rows.sort_by_key(|row| row.content);
    println!(
        "content KiB  output KiB |   load: us   KiB alloc   allocs | install: us KiB alloc   allocs |  MiB/s  chart"
    );
    let last = rows.len().saturating_sub(1);
    for (at, row) in rows.iter().enumerate() {
        if at % 8 == 0 || at + 3 > last {
            let kib = |bytes: usize| bytes as f64 / 1024.0;
            println!(
                "{:>11.0} {:>11.0} | {} | {} | {:>6.0}  {}",
                kib(row.content),
                kib(row.output),
                row.load,
                row.install,
                kib(row.content) / 1024.0 / (row.load.seconds + row.install.seconds),
                row.name
            );
        }
    }
    let seconds = rows
        .iter()
        .map(|row| row.load.seconds + row.install.seconds);
    let content: usize = rows.iter().map(|row| row.content).sum();
    let (count, seconds) = (rows.len(), seconds.sum::<f64>());
    let mib = content as f64 / (1 << 20) as f64;
    println!("{count} charts: {mib:.1} MiB in {:.0} ms", seconds * 1e3);
    Ok(())
}

fn archives(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "tgz") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Nothing for a chart that cannot be rendered with its own values.
fn row(path: &Path) -> Result<Option<Row>> {
    let bytes = std::fs::read(path)?;
    let chart = loader::load_archive(&bytes[..], &mut chart::Warnings::default())?;
    let capabilities = Capabilities {
        kube_version: KubeVersion::parse("1.36.3").map_err(|e| anyhow::anyhow!("{e}"))?,
        ..Capabilities::default()
    };
    let release = ReleaseInfo::install("rel", "ns");
    let values = serde_json::json!({});
    let request = || Request {
        options: RenderOptions {
            include_crds: true,
            ..RenderOptions::default()
        },
        ..Request::new(chart.clone(), &values, &release, &capabilities, &SystemHost)
    };
    let Ok(rendered) = render_release(request()) else {
        return Ok(None);
    };
    let load = measure(SHORT, || {
        Ok(loader::load_archive(
            &bytes[..],
            &mut chart::Warnings::default(),
        )?)
    })?;
    let install = measure(SHORT, || Ok(render_release(request())?))?;
    Ok(Some(Row {
        name: path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        content: content(&chart),
        load,
        install,
        output: rendered.manifest.len(),
    }))
}

fn content(chart: &chart::Chart) -> usize {
    let own = chart.templates.iter().chain(chart.files.iter());
    let below = chart.dependencies.iter().map(content);
    own.map(|file| file.data.len()).sum::<usize>() + below.sum::<usize>()
}
