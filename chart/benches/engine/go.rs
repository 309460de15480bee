//! The same work in Go, by the program of `tests/reference/engine-speed`.

use std::collections::HashMap;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::generated::Generated;
use crate::measure::Cost;

/// Costs by chart and operation; none, with a word about it, when the program is not there.
pub(crate) fn costs(charts: &[Generated]) -> Result<HashMap<(String, String), Cost>> {
    let program =
        std::env::var_os("ENGINE_SPEED").filter(|path| std::path::Path::new(path).exists());
    let Some(program) = program else {
        println!(
            "SKIPPED: the Go program is not built, so Go was NOT measured (make bench builds it)"
        );
        return Ok(HashMap::new());
    };
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(program);
    for chart in charts {
        let path = directory.path().join(&chart.name);
        chart.write(&path)?;
        command.arg(path);
    }
    let output = command.output().context("running the Go program")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the Go program failed: {errors}");
    let text = String::from_utf8(output.stdout)?;
    text.lines().map(row).collect()
}

fn row(line: &str) -> Result<((String, String), Cost)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [chart, operation, nanos, bytes, allocations] = words[..] else {
        anyhow::bail!("the Go program printed {line:?}");
    };
    let cost = Cost {
        seconds: nanos.parse::<f64>()? / 1e9,
        bytes: bytes.parse()?,
        allocations: allocations.parse()?,
    };
    Ok(((chart.to_owned(), operation.to_owned()), cost))
}
