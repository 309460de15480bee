//! `make bench`: how long we and the real kustomize take for the same kustomizations, in turns, and what a process of each takes
//! for one alone.
//!
//! Usage: `speed REFERENCE`, where that is the program built of `tests/reference/kustomize`.

#![allow(clippy::print_stdout, reason = "the figures are for the person who started it")]

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kustomize::{MemoryFiles, Options};
use serde_json::json;

type Files = BTreeMap<String, String>;

/// Pairs of measurements; the median of each side counts.
const PAIRS: usize = 21;
/// What a busy machine makes long is measured less often, but thrice.
const PATIENCE: Duration = Duration::from_secs(15);
const ALONE: &str = "--alone";

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = || io::Error::other("usage: speed REFERENCE");
    let reference = arguments.next().ok_or_else(usage)?;
    if reference == ALONE {
        let files = overlay(3);
        return build(&files).map(drop);
    }
    let mut child = Command::new(&reference)
        .arg("answer")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("the reference has no pipes"));
    };
    let mut output = BufReader::new(output);
    let mut ask = |files: &Files| -> io::Result<String> {
        let question = json!({ "dir": "app", "files": files });
        writeln!(input, "{question}")?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        Ok(line)
    };
    println!("kustomize: a build in a process that runs, median of up to {PAIRS} in turns");
    for (name, files) in [
        ("an overlay of 3 objects", overlay(3)),
        ("an overlay of 100 objects", overlay(100)),
        ("an overlay of 1,000 objects", overlay(1_000)),
        ("2 patches each for 100 objects", patched(100)),
    ] {
        let answer: serde_json::Value = serde_json::from_str(&ask(&files)?)?;
        let ours = build(&files)?;
        if answer["output"].as_str() != Some(&ours) {
            return Err(io::Error::other(format!(
                "{name}: the two print something else"
            )));
        }
        let (mut own, mut other) = (Vec::new(), Vec::new());
        let started = Instant::now();
        while own.len() < 3 || own.len() < PAIRS && started.elapsed() < PATIENCE {
            own.push(timed(|| build(&files).map(drop))?);
            other.push(timed(|| ask(&files).map(drop))?);
        }
        show(name, own, other);
    }
    let folder = tempfile::tempdir()?;
    for (path, text) in overlay(3) {
        let path = folder.path().join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, text)?;
    }
    let directory = folder.path().join("app");
    let (mut own, mut other) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let exe = std::env::current_exe()?;
        own.push(timed(|| Command::new(&exe).arg(ALONE).output().map(drop))?);
        let mut go = Command::new(&reference);
        go.arg("build").arg(&directory);
        other.push(timed(|| go.output().map(drop))?);
    }
    show("a process for an overlay of 3 objects", own, other);
    child.kill()?;
    child.wait().map(drop)
}

fn timed(run: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let started = Instant::now();
    run()?;
    Ok(started.elapsed())
}

fn show(name: &str, own: Vec<Duration>, other: Vec<Duration>) {
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1_000.0
    };
    let (own, other) = (median(own), median(other));
    println!(
        "  {name:<40} {own:>9.2} ms   kustomize {other:>9.2} ms   {:>6.1} times as fast",
        other / own
    );
}

fn build(files: &Files) -> io::Result<String> {
    let mut memory = MemoryFiles::new();
    for (path, text) in files {
        memory
            .add(path, text.as_bytes())
            .map_err(io::Error::other)?;
    }
    let built = kustomize::build(&memory, "app", &Options::default());
    built
        .and_then(|built| built.to_yaml())
        .map_err(io::Error::other)
}

fn deployment(at: usize) -> String {
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web-{at}\n  labels: {{app: web-{at}}}\nspec:\n  replicas: 1\n  \
         selector:\n    matchLabels: {{app: web-{at}}}\n  template:\n    metadata:\n      labels: {{app: web-{at}}}\n    spec:\n      \
         containers:\n      - name: web\n        image: registry.example/web:1\n        ports:\n        - containerPort: 80\n        \
         env:\n        - name: MODE\n          value: plain\n        envFrom:\n        - configMapRef:\n            name: settings\n"
    )
}

/// What overlays do most: names, labels, images, a generator and a patch over a base of Deployments.
fn overlay(objects: usize) -> Files {
    let base: String = (0..objects).map(deployment).collect();
    let overlay = "\
resources: [../base]
namespace: shop
namePrefix: dev-
labels: [{pairs: {team: shop}, includeSelectors: true}]
commonAnnotations: {owner: shop}
images: [{name: registry.example/web, newTag: '2'}]
configMapGenerator: [{name: settings, literals: [mode=dev]}]
patches: [{target: {kind: Deployment}, path: patch.yaml}]
";
    let patch = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: any}\nspec:\n  template:\n    spec:\n      containers:\n      \
                 - name: web\n        resources: {limits: {memory: 64Mi}}\n";
    [
        ("base/kustomization.yaml", "resources: [web.yaml]\n"),
        ("base/web.yaml", &base),
        ("app/kustomization.yaml", overlay),
        ("app/patch.yaml", patch),
    ]
    .map(|(path, text)| (path.to_owned(), text.to_owned()))
    .into()
}

/// A strategic and a JSON patch for each object.
fn patched(objects: usize) -> Files {
    let base: String = (0..objects).map(deployment).collect();
    let patches: String = (0..objects)
        .map(|at| {
            format!(
                "- patch: '{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web-{at}}}, spec: {{replicas: 2}}}}'\n\
                 - {{target: {{kind: Deployment, name: web-{at}}}, patch: '[{{\"op\": \"add\", \"path\": \"/spec/paused\", \"value\": true}}]'}}\n"
            )
        })
        .collect();
    [
        (
            "app/kustomization.yaml",
            format!("resources: [web.yaml]\npatches:\n{patches}"),
        ),
        ("app/web.yaml", base),
    ]
    .map(|(path, text)| (path.to_owned(), text))
    .into()
}
