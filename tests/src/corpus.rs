//! Published charts that tests deploy as they are: found beside the checkout or in the cache `make corpus` fills.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::skipped;
use crate::tools::cache;

/// The chart whose presence stands for all of them.
const ONE_OF_THEM: &str = "rke2-coredns-1.47.003.tgz";

/// The archive of a published chart, by the name of its file without `.tgz`.
///
/// # Errors
/// When the chart is in neither place; the message says how to get it.
pub fn chart(name: &str) -> Result<Vec<u8>> {
    let file = format!("{name}.tgz");
    for directory in directories()? {
        let path = directory.join(&file);
        if path.is_file() {
            return std::fs::read(&path).with_context(|| format!("reading {path:?}"));
        }
    }
    anyhow::bail!("chart {file} is not here: run `make corpus`")
}

/// Whether the published charts are here. Where they are not, it is told that `what` was not tested; who asks passes.
pub fn is_present_for(what: &str) -> bool {
    let is_present =
        directories().is_ok_and(|all| all.iter().any(|d| d.join(ONE_OF_THEM).is_file()));
    if !is_present {
        skipped::tell(&format!(
            "{what}: the published charts are not here, `make corpus` fetches them"
        ));
    }
    is_present
}

/// All published charts, in the order of their names; none when they are not here.
///
/// # Errors
/// When their directory cannot be read.
pub fn charts() -> Result<Vec<PathBuf>> {
    for directory in directories()?.iter().rev().filter(|d| d.is_dir()) {
        let entries = std::fs::read_dir(directory)?;
        let paths = entries.map(|entry| Ok(entry?.path()));
        let mut charts = paths.collect::<Result<Vec<PathBuf>>>()?;
        charts.retain(|path| path.extension().is_some_and(|extension| extension == "tgz"));
        charts.sort();
        if !charts.is_empty() {
            return Ok(charts);
        }
    }
    Ok(Vec::new())
}

fn directories() -> Result<[PathBuf; 2]> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus/charts");
    Ok([cache()?.join("corpus"), beside])
}
