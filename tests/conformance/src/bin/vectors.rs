//! Runs recorded vectors: `vectors DIR [--only FILE] [--verbose]`.
//!
//! Prints `FILE: passed N failed M` for each file in DIR that holds cases; with `--verbose` also each case that failed. Exits with 1 when
//! any failed.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use conformance::{Case, Outcome, SUITES};
use serde_json::Value;

/// Deep values are dropped and printed recursively; cases may nest 10,000 levels and templates 100,000.
const STACK_BYTES: usize = 1 << 30;
const SHOWN_CHARS: usize = 600;

struct Args {
    directory: PathBuf,
    only: Option<String>,
    verbose: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = options()?;
    std::panic::set_hook(Box::new(|_| {})); // a panic is a failed case, shown like any other
    std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || run(&options))?
        .join()
        .unwrap_or_else(|_| bail!("the runner itself panicked"))
}

fn options() -> anyhow::Result<Args> {
    let mut options = Args {
        directory: PathBuf::new(),
        only: None,
        verbose: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--verbose" => options.verbose = true,
            "--only" => options.only = Some(arguments.next().context("--only needs a file name")?),
            _ => options.directory = argument.into(),
        }
    }
    if options.directory.as_os_str().is_empty() {
        bail!("usage: vectors DIR [--only FILE] [--verbose]");
    }
    Ok(options)
}

fn run(options: &Args) -> anyhow::Result<ExitCode> {
    let mut failed = 0;
    let mut files = 0;
    for path in vector_files(&options.directory)? {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if options.only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let text = std::fs::read(&path).with_context(|| format!("cannot read {name}"))?;
        let cases = match serde_json::from_slice(&text) {
            Ok(Value::Array(cases)) => cases,
            Ok(case @ Value::Object(_)) => vec![case],
            _ => bail!("{name} is no JSON array"),
        };
        if cases.iter().any(|case| !case.is_object()) {
            bail!("{name} holds something that is no case");
        }
        files += 1;
        failed += run_file(&name, cases, options.verbose)?;
    }
    if files == 0 {
        bail!("no vectors found");
    }
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn vector_files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).context("cannot list the vectors")? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn run_file(name: &str, cases: Vec<Value>, verbose: bool) -> anyhow::Result<usize> {
    let mut out = std::io::stdout().lock();
    let suite = SUITES
        .iter()
        .find(|(file, _)| *file == name)
        .map(|(_, suite)| *suite);
    let total = cases.len();
    let mut failed = 0;
    for case in cases {
        let case = Case::new(case);
        let outcome = match suite {
            Some(suite) => case.run(suite),
            None => Outcome::failed("no suite runs this file", ""),
        };
        if let Outcome::Failed { got, want } = outcome {
            failed += 1;
            if verbose && suite.is_some() {
                let (got, want) = (shown(&got), shown(&want));
                writeln!(out, "{name} {}\n  got:  {got}\n  want: {want}", case.name())?;
            }
        }
    }
    writeln!(out, "{name}: passed {} failed {failed}", total - failed)?;
    Ok(failed)
}

fn shown(text: &str) -> String {
    let escaped = text.escape_debug().to_string();
    match escaped.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}… ({} bytes)", &escaped[..end], text.len()),
        None => escaped,
    }
}
