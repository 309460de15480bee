//! What Helm says of values that do not fit a schema, keyword by keyword, in every draft it knows.
//!
//! A file of `schemas/` has blocks: `schema JSON`, the schema of the value at `v` (below `ROOT`: of everything), then `value
//! JSON` lines, each followed by what the drafts say of it: `4 6 7: message`, further lines of the message behind `| `, or `fits`.
//! The answers are Helm 4.3.1's: `RECORD=path/to/helm cargo test -p chart --test schemas` writes them anew, `ONLY=text` picks
//! files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use chart::loader::load_files;
use chart::{Chart, File, values};
use serde_json::{Value, json};

const DRAFTS: [(&str, &str); 5] = [
    ("4", "http://json-schema.org/draft-04/schema#"),
    ("6", "http://json-schema.org/draft-06/schema#"),
    ("7", "http://json-schema.org/draft-07/schema#"),
    ("2019", "https://json-schema.org/draft/2019-09/schema"),
    ("2020", "https://json-schema.org/draft/2020-12/schema"),
];

/// One value against one schema.
struct Case {
    schema: Value,
    /// As written, which JSON in memory would not keep.
    shown: (String, String),
    value: Value,
    recorded: String,
}

fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut schema = (String::new(), Value::Null);
    let json =
        |text: &str| serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    for line in text.lines() {
        if let Some(text) = line.strip_prefix("schema ") {
            schema = (text.to_owned(), json(text));
        } else if let Some(text) = line.strip_prefix("value ") {
            cases.push(Case {
                schema: schema.1.clone(),
                shown: (schema.0.clone(), text.to_owned()),
                value: json(text),
                recorded: String::new(),
            });
        } else if let Some(case) = cases.last_mut() {
            case.recorded.push_str(line);
            case.recorded.push('\n');
        }
    }
    cases
}

fn print(cases: &[Case], answers: &[String]) -> String {
    let mut text = String::new();
    let mut schema = "";
    for (case, answer) in cases.iter().zip(answers) {
        if case.shown.0 != schema {
            schema = &case.shown.0;
            let _ = writeln!(text, "schema {schema}");
        }
        let _ = write!(text, "value {}\n{answer}", case.shown.1);
    }
    text
}

/// A chart for each case and draft, by name: its schema and its values.
fn charts(cases: &[Case]) -> BTreeMap<String, [String; 2]> {
    let mut charts = BTreeMap::new();
    for (at, case) in cases.iter().enumerate() {
        for (draft, url) in DRAFTS {
            let root = case.schema.get("ROOT").cloned();
            let mut root = root.unwrap_or_else(|| json!({"properties": {"v": case.schema}}));
            if let Some(root) = root.as_object_mut() {
                root.entry("$schema").or_insert_with(|| url.into());
            }
            let values = json!({"v": case.value}).to_string();
            charts.insert(format!("c{at}-{draft}"), [root.to_string(), values]);
        }
    }
    charts
}

/// What is said of each chart, from the text of the error. What is said of a schema has no line break behind it, so that a
/// name may follow on the same line.
fn by_chart(cases: &[Case], error: &str) -> BTreeMap<String, String> {
    let names = charts(cases);
    let mut said: BTreeMap<String, String> = BTreeMap::new();
    let mut chart = String::new();
    for line in error.lines() {
        let bare = line.strip_suffix(':').unwrap_or_default();
        let mut starts = bare.rmatch_indices('c').map(|(at, _)| at);
        let name = starts.find(|at| names.contains_key(&bare[*at..]));
        let text = name.map_or(line, |at| &line[..at]);
        if let Some(said) = said.get_mut(&chart).filter(|_| !text.is_empty()) {
            let _ = writeln!(said, "{text}");
        }
        if let Some(at) = name {
            bare[at..].clone_into(&mut chart);
            said.insert(chart.clone(), String::new());
        }
    }
    said
}

/// The answers in the form of the files.
fn answers(cases: &[Case], said: &BTreeMap<String, String>) -> Vec<String> {
    let answer = |at: usize| {
        let mut groups: Vec<(Vec<&str>, String)> = Vec::new();
        for (draft, _) in DRAFTS {
            let message = said
                .get(&format!("c{at}-{draft}"))
                .map_or("fits", |text| text.trim_end());
            match groups.iter_mut().find(|(_, known)| known == message) {
                Some((drafts, _)) => drafts.push(draft),
                None => groups.push((vec![draft], message.to_owned())),
            }
        }
        groups
            .iter()
            .fold(String::new(), |mut text, (drafts, message)| {
                let message = message.replace('\n', "\n| ");
                let _ = writeln!(text, "{}: {message}", drafts.join(" "));
                text
            })
    };
    (0..cases.len()).map(answer).collect()
}

fn our_error(cases: &[Case]) -> String {
    let chart = |name: &str, [schema, values]: &[String; 2]| {
        let files = vec![
            File::new(
                "Chart.yaml",
                format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n"),
            ),
            File::new("values.schema.json", schema.clone()),
            File::new("values.yaml", values.clone()),
        ];
        load_files(files, &mut chart::Warnings::default()).expect("a small chart")
    };
    let parent = Chart {
        dependencies: charts(cases)
            .iter()
            .map(|(name, content)| chart(name, content))
            .collect(),
        ..Chart::default()
    };
    let coalesced = values::coalesce_values(&parent, &Value::Null, &mut chart::Warnings::default())
        .expect("small values");
    match values::schema::validate(&parent, &coalesced, None, &mut chart::Warnings::default()) {
        Ok(()) => String::new(),
        Err(error) => error.to_string(),
    }
}

/// Helm reports what lies in a map in random order; ours goes by name. Of many answers the first in order is the one that does.
fn helms_answers(helm: &Path, cases: &[Case]) -> BTreeMap<String, String> {
    const ASKED: usize = 20;
    let mut said: BTreeMap<String, String> = BTreeMap::new();
    for _ in 0..ASKED {
        for (chart, text) in by_chart(cases, &helms_error(helm, cases)) {
            let known = said.entry(chart).or_insert_with(|| text.clone());
            if text < *known {
                *known = text;
            }
        }
    }
    said
}

fn helms_error(helm: &Path, cases: &[Case]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |path: &Path, name: &str, text: &str| {
        std::fs::create_dir_all(path).expect("a folder");
        std::fs::write(path.join(name), text).expect("a file");
    };
    write(
        folder.path(),
        "Chart.yaml",
        "apiVersion: v2\nname: parent\nversion: 1.0.0\n",
    );
    for (name, [schema, values]) in charts(cases) {
        let path = folder.path().join("charts").join(&name);
        write(
            &path,
            "Chart.yaml",
            &format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n"),
        );
        write(&path, "values.schema.json", &schema);
        write(&path, "values.yaml", &values);
    }
    let output = Command::new(helm)
        .arg("template")
        .arg("rel")
        .arg(folder.path())
        .output()
        .expect("helm runs");
    String::from_utf8(output.stderr).expect("helm writes text")
}

#[test]
fn values_are_refused_in_helms_words() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemas");
    let only = std::env::var("ONLY").unwrap_or_default();
    let helm = std::env::var_os("RECORD");
    let (mut seen, mut differences) = (0, String::new());
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be listed").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !name.contains(&only) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a text");
        let cases = parse(&text);
        if let Some(helm) = &helm {
            let recorded = answers(&cases, &helms_answers(Path::new(helm), &cases));
            std::fs::write(&path, print(&cases, &recorded)).expect("a file");
            continue;
        }
        let said = by_chart(&cases, &our_error(&cases));
        for (case, got) in cases.iter().zip(answers(&cases, &said)) {
            seen += 1;
            if got != case.recorded {
                let (schema, value) = &case.shown;
                let _ = writeln!(
                    differences,
                    "{name}: schema {schema}\nvalue {value}\ngot\n{got}want\n{}",
                    case.recorded
                );
            }
        }
    }
    assert!(differences.is_empty(), "{differences}");
    assert!(
        helm.is_some() || !only.is_empty() || seen > 100,
        "only {seen} cases"
    );
}
