//! Published charts, rendered and compared with what Helm made of them.
//!
//! The corpus lies beside the project (or where `CORPUS` points); without it this says so and passes.
//! `CORPUS_ONLY=text` runs the cases whose name holds the text.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use chart::rendered::{self, RenderOptions, Request, ShowOptions};
use chart::{Capabilities, KubeVersion, ReleaseInfo, loader, values};
use serde_json::Value;
use templating::SystemHost;

/// The version the goldens were recorded with.
const KUBE_VERSION: &str = "1.36.3";

fn corpus() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    let place = std::env::var_os("CORPUS").map_or(beside, PathBuf::from);
    place.join("golden/index.json").exists().then_some(place)
}

/// `helm template rel CHART -n ns --include-crds`, or its error.
fn template(chart: &Path, values_file: Option<&Path>) -> Result<String, String> {
    let text = |error: &dyn std::error::Error| format!("Error: {error}");
    let user = match values_file {
        None => Value::Null,
        Some(file) => {
            let data = std::fs::read(file).map_err(|error| text(&error))?;
            values::load_values(&data).map_err(|error| text(&error))?
        }
    };
    let chart =
        loader::load(chart, &mut chart::Warnings::default()).map_err(|error| text(&error))?;
    rendered::check_type(&chart).map_err(|error| text(&error))?;
    rendered::check_dependencies(&chart).map_err(|error| text(&error))?;
    let remark = if chart.metadata.deprecated {
        "level=WARN msg=\"this chart is deprecated\"\n"
    } else {
        ""
    };
    let capabilities = Capabilities {
        kube_version: KubeVersion::parse(KUBE_VERSION).map_err(|error| text(&error))?,
        ..Capabilities::default()
    };
    let release = ReleaseInfo::install("rel", "ns");
    let rendered = rendered::render_release(Request {
        options: RenderOptions {
            include_crds: true,
            ..RenderOptions::default()
        },
        ..Request::new(chart, &user, &release, &capabilities, &SystemHost)
    })
    .map_err(|error| {
        let hint = "\n\nUse --debug flag to render out invalid YAML";
        format!(
            "{remark}Error: {error}{}",
            if error.is_from_rendering() { hint } else { "" }
        )
    })?;
    rendered
        .show(&ShowOptions::default())
        .map_err(|error| text(&error))
}

fn golden(folder: &Path, name: &str) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(folder.join(format!("{name}.yaml.gz"))).expect("a golden");
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .expect("a readable golden");
    text
}

/// The first lines that differ.
fn difference(got: &str, want: &str) -> Option<String> {
    if got == want {
        return None;
    }
    let at = got
        .lines()
        .zip(want.lines())
        .take_while(|(got, want)| got == want)
        .count();
    let mut shown = String::new();
    for (name, text) in [("got ", got), ("want", want)] {
        let line = text.lines().nth(at).unwrap_or("(end)");
        let _ = write!(
            shown,
            "\n    {name} {}: {}",
            at + 1,
            line.chars().take(200).collect::<String>()
        );
    }
    Some(shown)
}

/// Lines, with each PEM block as one.
fn lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        if line.contains("-----BEGIN ") {
            is_inside = !line.contains("-----END ");
            lines.push("PEM".to_owned());
        } else if is_inside {
            is_inside = !line.contains("-----END ");
        } else {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// What two renders of one line have in common at its beginning, up to the word where they part.
fn fixed_beginning<'a>(line: &'a str, other: &str) -> &'a str {
    let same = line.bytes().zip(other.bytes()).take_while(|(a, b)| a == b);
    let head = &line.as_bytes()[..same.count()];
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=.".contains(byte);
    let end = head
        .iter()
        .rposition(|byte| !is_word(byte))
        .map_or(0, |at| at + 1);
    line.get(..end).unwrap_or_default()
}

fn reversed(line: &str) -> String {
    line.chars().rev().collect()
}

/// Compares outside random text, which is what differs between two renders of our own: lines they agree on
/// must be Helm's, in the others what stands before and behind the random words.
fn difference_outside_random(runs: [&str; 2], want: &str) -> Option<String> {
    let [first, second] = runs.map(lines);
    let want = lines(want);
    if first.len() != want.len() || second.len() != want.len() {
        return Some(format!("\n    {} lines, want {}", first.len(), want.len()));
    }
    let odd = first
        .iter()
        .zip(&second)
        .zip(&want)
        .position(|((one, two), want)| {
            if one == two {
                return one != want;
            }
            let (back, other) = (reversed(one), reversed(two));
            !want.starts_with(fixed_beginning(one, two))
                || !reversed(want).starts_with(fixed_beginning(&back, &other))
        })?;
    Some(format!("\n    got  {}\n    want {}", first[odd], want[odd]))
}

#[test]
fn published_charts_render_as_with_helm() {
    let Some(corpus) = corpus() else {
        // Past the harness, which keeps back what a test that passes prints.
        let reported = "SKIPPED: published charts beside what helm made of them: CORPUS=folder says where they are";
        writeln!(std::io::stderr(), "{reported}").ok();
        return;
    };
    let folder = corpus.join("golden");
    let index = std::fs::read(folder.join("index.json")).expect("the index");
    let rows: Vec<Value> = serde_json::from_slice(&index).expect("the index is a list");
    let only = std::env::var("CORPUS_ONLY").unwrap_or_default();
    let mut failures = Vec::new();
    let mut passed = 0;
    for row in &rows {
        let field = |name: &str| row[name].as_str().unwrap_or_default();
        let name = format!("{}@{}", field("chart"), field("case"));
        if !name.contains(&only) {
            continue;
        }
        let values_file = folder.join(format!("{name}.values.yaml"));
        let values_file = values_file.exists().then_some(values_file);
        let chart = corpus
            .join("charts")
            .join(format!("{}.tgz", field("chart")));
        let got = template(&chart, values_file.as_deref());
        let failure = match (&got, row["ok"].as_bool()) {
            (Ok(got), Some(true)) if row["deterministic"] == Value::Bool(true) => {
                difference(got, &golden(&folder, &name))
            }
            (Ok(got), Some(true)) => {
                let again = template(&chart, values_file.as_deref()).unwrap_or_default();
                difference_outside_random([got, &again], &golden(&folder, &name))
            }
            (Err(error), Some(true)) => Some(format!("\n    {error}")),
            (Ok(_), _) => Some(format!("\n    no error, want {}", field("error"))),
            (Err(error), _) => difference(error.trim(), field("error").trim()),
        };
        match failure {
            None => passed += 1,
            Some(failure) => failures.push(format!("{name}:{failure}")),
        }
    }
    assert!(passed + failures.len() > 0, "no chart is named {only:?}");
    assert!(
        failures.is_empty(),
        "{passed} charts as with Helm, {} not:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
