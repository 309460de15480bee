//! `random_charts [--seed N] [--count N] [--case N] [--keep FOLDER]`: helm and ours over charts and flags made up by chance.
//!
//! Output, exit status and standard error must be the same, but for the order of lines of standard error, which is random in
//! helm. Where helm differs from itself, ours must be one of its answers. A difference is made as small as it gets and shown.
#![expect(clippy::print_stdout, reason = "the findings are for the person who started it")]

mod chart;
mod dice;
mod flags;
mod values;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use testbed::agent;
use testbed::tools::Tool;

use chart::Files;
use dice::Dice;

/// How often helm is asked before an answer of ours counts as none of its.
const ASKED: usize = 12;
/// After as many answers that are the same, helm's is taken for certain.
const SURE: usize = 2;

#[derive(Clone)]
struct Case {
    files: Files,
    flags: Vec<String>,
    input: String,
}

#[derive(PartialEq)]
struct Answer {
    code: Option<i32>,
    output: Vec<u8>,
    errors: Vec<String>,
}

struct Programs {
    helm: PathBuf,
    ours: PathBuf,
}

fn main() -> Result<ExitCode> {
    let (mut seed, mut first, mut count, mut keep) = (1, 0, 1000, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments
            .next()
            .with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--seed" => seed = value.parse()?,
            "--count" => count = value.parse()?,
            "--case" => (first, count) = (value.parse()?, 1),
            "--keep" => keep = Some(PathBuf::from(value)),
            _ => bail!("unknown flag {flag}"),
        }
    }
    let programs = Programs {
        helm: Tool::Helm4.path()?,
        ours: match std::env::var_os("FLEETAGENT_BINARY") {
            Some(path) => path.into(),
            None => agent::built()?,
        },
    };
    let next = AtomicU64::new(first);
    let found = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            let scratch = tempfile::tempdir()?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= first + count {
                    return Ok(());
                }
                let case = make(seed, number);
                if let Some(text) = programs.look(&case, scratch.path())? {
                    let small = programs.shrink(case, scratch.path())?;
                    let text = programs.look(&small, scratch.path())?.unwrap_or(text);
                    println!("case {number}\n{}{text}", show(&small));
                    if let Some(folder) = &keep {
                        lay_out(&small, &folder.join(number.to_string()))?;
                    }
                    found.lock().expect("nobody panics with it").push(number);
                }
            }
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("workers do not panic"))
    })?;
    let found = found.into_inner().expect("nobody panics with it");
    println!(
        "seed {seed}: {count} charts, {} different {found:?}",
        found.len()
    );
    Ok(match found.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn make(seed: u64, number: u64) -> Case {
    let mut dice = Dice::new(seed, number);
    let mut files = Files::new();
    chart::write(&mut dice, "chart", "web", 2, &mut files);
    let (flags, input) = flags::write(&mut dice, &mut files);
    Case {
        files,
        flags,
        input,
    }
}

fn lay_out(case: &Case, folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    for (name, text) in &case.files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().context("files lie in folders")?)?;
        std::fs::write(path, text)?;
    }
    Ok(())
}

fn show(case: &Case) -> String {
    let mut text = format!("  flags {:?}\n", case.flags);
    if !case.input.is_empty() {
        text.push_str(&format!("  input {:?}\n", case.input));
    }
    for (name, content) in &case.files {
        text.push_str(&format!("  {name} {content:?}\n"));
    }
    text
}

impl Programs {
    /// How the answers differ, if they do.
    fn look(&self, case: &Case, scratch: &Path) -> Result<Option<String>> {
        let folder = scratch.join("case");
        lay_out(case, &folder)?;
        let got = answer(&self.ours, case, &folder)?;
        let want = answer(&self.helm, case, &folder)?;
        if got == want {
            return Ok(None);
        }
        let mut is_random = false;
        for asked in 0..ASKED {
            let again = answer(&self.helm, case, &folder)?;
            if again == got {
                return Ok(None);
            }
            is_random |= again != want;
            if asked == SURE && !is_random {
                break;
            }
        }
        Ok(Some(difference(&want, &got)))
    }

    /// Leaves out what the difference does not need.
    fn shrink(&self, mut case: Case, scratch: &Path) -> Result<Case> {
        loop {
            let mut is_smaller = false;
            for smaller in smaller(&case) {
                if self.look(&smaller, scratch)?.is_some() {
                    case = smaller;
                    is_smaller = true;
                    break;
                }
            }
            if !is_smaller {
                return Ok(case);
            }
        }
    }
}

/// The case with one thing less.
fn smaller(case: &Case) -> Vec<Case> {
    let mut found = Vec::new();
    for name in case.files.keys().filter(|name| *name != "chart/Chart.yaml") {
        let mut less = case.clone();
        less.files.remove(name);
        found.push(less);
    }
    for at in 1..case.flags.len() {
        for count in [2, 1] {
            if at + count <= case.flags.len() && case.flags[at] != "./chart" {
                let mut less = case.clone();
                less.flags.drain(at..at + count);
                found.push(less);
            }
        }
    }
    for (name, text) in &case.files {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        for at in 0..lines.len() {
            let mut less = case.clone();
            let mut lines = lines.clone();
            lines.remove(at);
            less.files.insert(name.clone(), lines.concat());
            found.push(less);
        }
    }
    found
}

fn answer(program: &Path, case: &Case, folder: &Path) -> Result<Answer> {
    let mut child = Command::new(program)
        .arg("template")
        .args(&case.flags)
        .current_dir(folder)
        .env_clear()
        .env("HOME", "/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("it was asked for")?;
    // Who does not read its input closes it.
    stdin.write_all(case.input.as_bytes()).ok();
    drop(stdin);
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut errors: Vec<String> = text
        .replace("helm template", "fleetagent template")
        .lines()
        // Ours has no debug lines.
        .filter(|line| !line.starts_with("level=DEBUG"))
        .map(str::to_owned)
        .collect();
    errors.sort();
    Ok(Answer {
        code: output.status.code(),
        output: output.stdout,
        errors,
    })
}

fn difference(want: &Answer, got: &Answer) -> String {
    let mut text = String::new();
    if want.code != got.code {
        text.push_str(&format!(
            "  exit status {:?}, want {:?}\n",
            got.code, want.code
        ));
    }
    let lines = |answer: &Answer| {
        String::from_utf8_lossy(&answer.output)
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for (what, got, want) in [
        ("output", lines(got), lines(want)),
        ("errors", got.errors.clone(), want.errors.clone()),
    ] {
        if got == want {
            continue;
        }
        let same = got
            .iter()
            .zip(&want)
            .take_while(|(got, want)| got == want)
            .count();
        for (who, lines) in [("got ", &got), ("want", &want)] {
            let shown: Vec<&str> = lines[same..].iter().take(4).map(String::as_str).collect();
            text.push_str(&format!("  {what} {who} {shown:?}\n"));
        }
    }
    if text.is_empty() {
        text.push_str("  output differs in its last line break or in bytes that are no text\n");
    }
    text
}
