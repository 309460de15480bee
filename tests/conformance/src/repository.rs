//! The kinds of `semver.json` that are about repositories: picking a version from an index or from a
//! registry's tags, and reading an index.

use chart::source::{Entry, Index, Strictness, pick_tag};
use serde_json::{Value, json};

use crate::{Case, Outcome};

/// What the recorded errors and warnings call the file.
const SOURCE: &str = "INDEX";

pub(crate) fn run(case: &Case) -> Outcome {
    match case.kind() {
        "pick" => pick(case),
        "tag" => tag(case),
        "index" => index(case),
        other => Outcome::unknown(other),
    }
}

fn answered<E: ToString>(case: &Case, answer: Result<Outcome, E>) -> Outcome {
    match (answer, case.text("error")) {
        (Ok(outcome), None) => outcome,
        (Ok(_), Some(error)) => Outcome::failed("no error", error),
        (Err(error), None) => Outcome::failed(error.to_string(), "no error"),
        (Err(error), Some(want)) => {
            // Ours go on with the newest versions there are.
            let text = error.to_string();
            let got = text.split(" (newest seen: ").next().unwrap_or_default();
            Outcome::of_texts(got, want)
        }
    }
}

fn pick(case: &Case) -> Outcome {
    let versions: Vec<String> = case.parse("versions").unwrap_or_default();
    let entry = |version: &String| json!({"name": "demo", "version": version});
    let entries: Vec<Value> = versions.iter().map(entry).collect();
    let text = json!({"apiVersion": "v1", "entries": {"demo": entries}}).to_string();
    let index = match Index::load(text.as_bytes(), Strictness::Fleet, SOURCE) {
        Ok(index) => index,
        Err(error) => return Outcome::failed(error, "an index"),
    };
    let order: Vec<&str> = index.entries["demo"]
        .iter()
        .map(|entry| entry.version.as_str())
        .collect();
    let sorted = match case.get("order") {
        Some(want) => Outcome::of_values(&json!(order), want),
        None => Outcome::Passed,
    };
    let want = case.text("want").unwrap_or_default();
    let picked = index
        .get("demo", want)
        .map(|entry| Outcome::of_texts(&entry.version, case.text("picked").unwrap_or("?")));
    Outcome::all([sorted, answered(case, picked)])
}

fn tag(case: &Case) -> Outcome {
    let tags: Vec<String> = case.parse("tags").unwrap_or_default();
    let picked = pick_tag(&tags, case.text("want").unwrap_or_default());
    answered(
        case,
        picked.map(|tag| Outcome::of_texts(&tag, case.text("picked").unwrap_or("?"))),
    )
}

fn index(case: &Case) -> Outcome {
    let text = case.bytes("text").unwrap_or_default();
    let loaded = Index::load(&text, Strictness::Helm, SOURCE)
        .map_err(|error| format!("error loading {SOURCE}: {error}"));
    let judged = loaded.map(|index| {
        let entries: serde_json::Map<String, Value> = index
            .entries
            .iter()
            .map(|(name, versions)| (name.clone(), versions.iter().map(entry).collect()))
            .collect();
        let mut log: Vec<String> = index
            .warnings
            .iter()
            .map(|warning| format!("WARN {warning}"))
            .collect();
        log.sort();
        Outcome::all([
            Outcome::of_texts(
                &index.api_version,
                case.text("api_version").unwrap_or_default(),
            ),
            Outcome::of_values(
                &Value::Object(entries),
                case.get("entries").unwrap_or(&Value::Null),
            ),
            Outcome::of_values(&json!(log), case.get("log").unwrap_or(&json!([]))),
        ])
    });
    answered(case, judged)
}

fn entry(entry: &Entry) -> Value {
    json!({
        "name": entry.name,
        "version": entry.version,
        "apiVersion": entry.api_version,
        "urls": entry.urls,
        "digest": entry.digest,
    })
}
