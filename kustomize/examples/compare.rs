//! `make kustomize-public DIR=...`: builds every kustomization below a directory with us and with the real kustomize, and says
//! where what they print, or say to be wrong, differs in a byte. Nothing is fetched: what refers to other places is counted apart.
//!
//! Usage: `compare REFERENCE DIR`, where the first is the program built of `tests/reference/kustomize`.

#![allow(clippy::print_stdout, reason = "the findings are for the person who started it")]

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use kustomize::{DiskFiles, Options};

const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// What we refuse by name, and kustomize would fetch or start.
const REFUSED: [(&str, &str); 4] = [
    ("what is remote", "is remote:"),
    ("Helm charts", "helmCharts"),
    ("Helm charts", "must specify --enable-helm"),
    ("programs and containers", "external plugins disabled"),
];
const SHOWN_CHARS: usize = 300;

type Answer = Result<String, String>;

fn main() -> io::Result<ExitCode> {
    let [reference, folder] = std::env::args()
        .skip(1)
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| io::Error::other("usage: compare REFERENCE DIR"))?;
    let folder = std::fs::canonicalize(folder)?;
    let mut directories = Vec::new();
    find(&folder, &mut directories)?;
    let (mut alike, mut failing, mut different) = (0, 0, 0);
    let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
    for directory in &directories {
        let name = directory.to_string_lossy();
        let shown = directory.strip_prefix(&folder).unwrap_or(directory);
        let got = kustomize::build(&DiskFiles, &name, &Options::default())
            .and_then(|built| built.to_yaml())
            .map_err(|error| error.to_string());
        if let Err(error) = &got
            && let Some((reason, _)) = REFUSED.iter().find(|(_, mark)| error.contains(mark))
        {
            *refused.entry(reason).or_default() += 1;
            continue;
        }
        let want = ask(&reference, &name)?;
        match (&want, &got) {
            (Ok(want), Ok(got)) if want == got => alike += 1,
            (Err(want), Err(got)) if want == got => failing += 1,
            _ => {
                different += 1;
                println!("{}: {}", shown.display(), difference(&want, &got));
            }
        }
    }
    println!(
        "{} kustomizations: {alike} print the same, {failing} fail with the same words, {different} differ, \
         {} are refused",
        directories.len(),
        refused.values().sum::<usize>()
    );
    for (reason, count) in &refused {
        println!("  {count} of these need {reason}");
    }
    Ok(if different == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Directories with a kustomization. Links are not followed.
fn find(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    if NAMES.iter().any(|name| folder.join(name).is_file()) {
        found.push(folder.to_owned());
    }
    let mut inner = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            inner.insert(entry.file_name(), entry.path());
        }
    }
    inner.values().try_for_each(|path| find(path, found))
}

/// What the real one answers. It finds no git and no network.
fn ask(reference: &str, directory: &str) -> io::Result<Answer> {
    let mut child = Command::new(reference)
        .args(["build", directory])
        .env_clear()
        .env("PATH", "/nonexistent")
        .env("HTTPS_PROXY", "http://127.0.0.1:9")
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut text = String::new();
    if let Some(output) = &mut child.stdout {
        output.read_to_string(&mut text)?;
    }
    child.wait()?;
    let (head, body) = text.split_once('\n').unwrap_or((&text, ""));
    let body = body.strip_suffix('\n').unwrap_or(body).to_owned();
    Ok(match head.split('\t').nth(1) {
        Some("ok") => Ok(body),
        _ => Err(body),
    })
}

/// Where the answers part.
fn difference(want: &Answer, got: &Answer) -> String {
    let kind = |answer: &Answer| {
        if answer.is_ok() {
            "prints"
        } else {
            "fails with"
        }
    };
    let (Ok(expected) | Err(expected), Ok(found) | Err(found)) = (want, got);
    let (mut wanted_lines, mut found_lines) = (expected.lines(), found.lines());
    loop {
        let pair = (wanted_lines.next(), found_lines.next());
        if pair.0 == pair.1 && pair.0.is_some() {
            continue;
        }
        let cut = |line: Option<&str>| -> String {
            line.unwrap_or("(its end)")
                .chars()
                .take(SHOWN_CHARS)
                .collect()
        };
        return format!(
            "kustomize {} {:?}, ours {} {:?}",
            kind(want),
            cut(pair.0),
            kind(got),
            cut(pair.1)
        );
    }
}
