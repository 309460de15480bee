//! What the kustomizations of `tests/hostile` cost: a line each with the seconds, the memory at its peak and the error.
//!
//! `cargo run --release -p kustomize --example hostile`; each is built in a process of its own.

#![allow(clippy::print_stdout, reason = "the findings are for the person who started it")]

#[path = "../tests/hostile/inputs.rs"]
mod inputs;

use std::io::{self, Read as _, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use kustomize::{MemoryFiles, Options};

const SHOWN_CHARS: usize = 120;
const CHILD: &str = "--child";

fn main() -> io::Result<()> {
    let argument = std::env::args().nth(1).unwrap_or_default();
    if argument == CHILD {
        return build(&receive()?);
    }
    for input in inputs::all() {
        if !input.name.contains(&argument) {
            continue;
        }
        let mut child = Command::new(std::env::current_exe()?)
            .arg(CHILD)
            .stdin(Stdio::piped())
            .spawn()?;
        if let Some(to) = child.stdin.take() {
            send(&input, to)?;
        }
        let status = child.wait()?;
        if !status.success() {
            println!("{}: {status}", input.name);
        }
    }
    Ok(())
}

/// What is built comes over the input, so that the process holds nothing else: its texts, each behind its length.
fn send(input: &inputs::Input, to: impl Write) -> io::Result<()> {
    let mut to = io::BufWriter::new(to);
    let mut text = |text: &str| -> io::Result<()> {
        to.write_all(&u64::try_from(text.len()).unwrap_or(0).to_le_bytes())?;
        to.write_all(text.as_bytes())
    };
    text(input.name)?;
    text(input.expected)?;
    for (path, content) in &input.files {
        text(path)?;
        text(content)?;
    }
    to.flush()
}

struct Received {
    name: String,
    expected: String,
    files: Vec<(String, String)>,
}

fn receive() -> io::Result<Received> {
    let mut from = io::BufReader::new(io::stdin().lock());
    let mut text = || -> io::Result<String> {
        let mut length = [0; 8];
        from.read_exact(&mut length)?;
        let mut text = vec![0; usize::try_from(u64::from_le_bytes(length)).unwrap_or(0)];
        from.read_exact(&mut text)?;
        String::from_utf8(text).map_err(io::Error::other)
    };
    let (name, expected) = (text()?, text()?);
    let mut files = Vec::new();
    while let Ok(path) = text() {
        files.push((path, text()?));
    }
    Ok(Received {
        name,
        expected,
        files,
    })
}

fn build(input: &Received) -> io::Result<()> {
    let mut files = MemoryFiles::new();
    for (path, text) in &input.files {
        if files.add(path, text.as_bytes()).is_err() {
            println!("{}: {path} is no path", input.name);
        }
    }
    let before = peak_mib();
    let started = Instant::now();
    let built =
        kustomize::build(&files, "app", &Options::default()).and_then(|built| built.to_yaml());
    let seconds = started.elapsed().as_secs_f64();
    let outcome = match built {
        Ok(text) => format!("BUILT: {} bytes", text.len()),
        Err(error) => {
            let text = error.to_string();
            let mark = if text.contains(&input.expected) {
                ""
            } else {
                "OTHER: "
            };
            let end: String = text.chars().rev().take(SHOWN_CHARS).collect();
            let end: String = end.chars().rev().collect();
            format!("{mark}({} bytes) …{}", text.len(), end.replace('\n', " "))
        }
    };
    println!(
        "{:<52} {seconds:>7.2} s {:>5} MiB (of them {before} before)  {outcome}",
        input.name,
        peak_mib()
    );
    Ok(())
}

/// The most memory that this process ever had.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
