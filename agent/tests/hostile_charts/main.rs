//! Charts that mean harm end in a clear error, or in what Helm makes of them, and cost little: every one is
//! rendered by the real command, whose memory and time are watched.
//!
//! `cargo test -p agent --test hostile_charts -- --nocapture` prints the figures; `FLEETAGENT_BINARY=path` watches another
//! build, `ONLY=text` picks cases, `KEEP=folder` leaves the charts there.

mod build;
mod cases;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use wait4::Wait4 as _;

/// The most memory a render may hold at once.
const MAX_KIB: u64 = 200 << 10;
/// The most processor time it may take. Unoptimised builds are several times slower.
const MAX_SECONDS: u64 = if cfg!(debug_assertions) { 20 } else { 5 };
/// The most that may be said: Helm quotes long names and templates inside templates as they are.
const MAX_MESSAGE: usize = 2 << 20;

/// A chart, or something that pretends to be one.
pub(crate) struct Case {
    pub name: &'static str,
    pub archive: Vec<u8>,
    pub arguments: Vec<String>,
    pub want: Want,
}

pub(crate) enum Want {
    /// Fails, and the message has this in it.
    Error(&'static str),
    /// Works, and the output has this in it.
    Output(&'static str),
}

struct Cost {
    peak_kib: u64,
    seconds: f64,
}

struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    cost: Cost,
}

fn program() -> PathBuf {
    let built = env!("CARGO_BIN_EXE_fleetagent");
    std::env::var_os("FLEETAGENT_BINARY").map_or_else(|| built.into(), PathBuf::from)
}

/// Runs the command with a limit on processor time, and asks the system what it used.
fn run(case: &Case, folder: &Path) -> Outcome {
    let archive = folder.join(format!("{}.tgz", case.name));
    std::fs::write(&archive, &case.archive).expect("a file");
    let file = |name: &str| std::fs::File::create(folder.join(name)).expect("a file");
    let child = Command::new("sh")
        .arg("-c")
        .arg(format!("ulimit -t {MAX_SECONDS}; exec \"$0\" \"$@\""))
        .arg(program())
        .args(["template", "rel"])
        .arg(&archive)
        .args(&case.arguments)
        .env_clear()
        .env("HOME", folder)
        .stdin(Stdio::null())
        .stdout(file("stdout"))
        .stderr(file("stderr"))
        .spawn()
        .expect("the program runs");
    let ended = child.wait4().expect("the program ends");
    let text = |name: &str| {
        let bytes = std::fs::read(folder.join(name)).expect("a file");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Outcome {
        code: ended.status.code(),
        stdout: text("stdout"),
        stderr: text("stderr"),
        cost: Cost {
            peak_kib: ended.rusage.maxrss >> 10,
            seconds: (ended.rusage.utime + ended.rusage.stime).as_secs_f64(),
        },
    }
}

fn check(case: &Case, outcome: &Outcome) -> Result<(), String> {
    let shown: String = outcome.stderr.chars().take(600).collect();
    let Cost { peak_kib, seconds } = outcome.cost;
    if outcome.code.is_none() {
        return Err(format!("was killed after {seconds} s: {shown}"));
    }
    if peak_kib > MAX_KIB {
        return Err(format!("took {peak_kib} KiB: {shown}"));
    }
    if outcome.stderr.contains("panicked") || outcome.stderr.len() > MAX_MESSAGE {
        return Err(format!("{} bytes of error: {shown}", outcome.stderr.len()));
    }
    match (&case.want, outcome.code) {
        (Want::Error(text), Some(1)) if outcome.stderr.contains(text) => Ok(()),
        (Want::Output(text), Some(0)) if outcome.stdout.contains(text) => Ok(()),
        (Want::Error(text), code) => Err(format!("{code:?}, want {text:?}: {shown}")),
        (Want::Output(text), code) => Err(format!("{code:?}, want output {text:?}: {shown}")),
    }
}

#[test]
fn hostile_charts_cost_little() {
    let scratch = tempfile::tempdir().expect("a folder");
    let keep = std::env::var_os("KEEP").map(PathBuf::from);
    let folder = keep.as_deref().unwrap_or(scratch.path());
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut failures = Vec::new();
    for case in cases::all()
        .into_iter()
        .filter(|case| case.name.contains(&only))
    {
        let outcome = run(&case, folder);
        let Cost { peak_kib, seconds } = outcome.cost;
        let first: String = outcome
            .stderr
            .lines()
            .last()
            .unwrap_or("ok")
            .chars()
            .take(120)
            .collect();
        println!(
            "{:32} {:4} MiB {seconds:6.2} s  {first}",
            case.name,
            peak_kib >> 10
        );
        if let Err(failure) = check(&case, &outcome) {
            failures.push(format!("{}: {failure}", case.name));
        }
        if keep.is_none() {
            let archive = folder.join(format!("{}.tgz", case.name));
            std::fs::remove_file(archive).expect("the archive");
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
