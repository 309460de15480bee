//! `values.json`: merging, importing, checking and setting values as Helm does.

use std::collections::BTreeMap;

use chart::rendered::RenderedError;
use chart::values::options::ValueOptions;
use chart::values::strvals::{self, Mode};
use chart::values::{self, schema};
use chart::{Chart, File, Warning, dependency};
use golib::json;
use serde_json::{Map, Value};

use crate::{Case, Outcome};

pub(crate) fn run(case: &Case) -> Outcome {
    match case.kind() {
        "coalesce" => coalesce(case),
        "render" => render(case),
        "schema" => check(case),
        "set" => set(case),
        "options" => options(case),
        "load_values" => judge(case, load(case), "values"),
        "path" => path(case),
        other => Outcome::unknown(other),
    }
}

/// Compares an answer, or the error's text, with the case's.
fn judge(case: &Case, answer: Result<Value, String>, field: &str) -> Outcome {
    match (answer, case.text("error")) {
        (Ok(_), Some(error)) => Outcome::failed("no error", error),
        (Ok(got), None) => Outcome::of_values(&got, case.get(field).unwrap_or(&Value::Null)),
        (Err(error), Some(want)) => Outcome::of_texts(&error, want),
        (Err(error), None) => Outcome::failed(error, "no error"),
    }
}

fn log(case: &Case, warnings: &chart::Warnings) -> Outcome {
    let mut got: Vec<String> = warnings.iter().map(Warning::in_helms_words).collect();
    got.sort();
    let want: Vec<String> = case.parse("log").unwrap_or_default();
    Outcome::of_texts(&got.join("\n"), &want.join("\n"))
}

fn build(value: &Value) -> Chart {
    let mut chart = Chart {
        metadata: serde_json::from_value(value["metadata"].clone()).unwrap_or_default(),
        ..Chart::default()
    };
    if let Some(text) = value["values"].as_str() {
        chart.values = values::load_values(text.as_bytes())
            .unwrap_or_default()
            .into();
    }
    chart.schema = value["schema"]
        .as_str()
        .map(|text| File::new("", text.to_owned()).data);
    let dependencies = value["dependencies"].as_array().into_iter().flatten();
    chart.dependencies = dependencies.map(build).collect();
    chart
}

fn chart_and_user(case: &Case) -> (Chart, Value) {
    let chart = build(case.get("chart").unwrap_or(&Value::Null));
    (
        chart,
        json::floats(case.get("user").cloned().unwrap_or_default()),
    )
}

fn coalesce(case: &Case) -> Outcome {
    let (chart, user) = chart_and_user(case);
    let mut warnings = chart::Warnings::default();
    let coalesced = values::coalesce_values(&chart, &user, &mut warnings);
    let merged = values::merge_values(&chart, &user, &mut chart::Warnings::default());
    let merged = match (merged, case.get("merged")) {
        (Ok(got), Some(want)) => Outcome::of_values(&got, want),
        _ => Outcome::Passed,
    };
    Outcome::all([
        judge(case, coalesced.map_err(|error| error.to_string()), "values"),
        merged,
        log(case, &warnings),
    ])
}

fn tree(chart: &Chart) -> Value {
    serde_json::json!({
        "name": chart.name(),
        "version": chart.metadata.version,
        "dependencies": chart.dependencies.iter().map(tree).collect::<Vec<_>>(),
    })
}

fn render(case: &Case) -> Outcome {
    let (mut chart, user) = chart_and_user(case);
    let mut warnings = chart::Warnings::default();
    if let Err(error) = dependency::process(&mut chart, &user, &mut warnings) {
        return judge(case, Err(error.to_string()), "values");
    }
    let stays = case
        .get("tree")
        .map(|want| Outcome::of_values(&tree(&chart), want));
    let defaults = case
        .get("chart_values")
        .map(|want| Outcome::of_values(&chart.values, want));
    let coalesced = values::coalesce_values(&chart, &user, &mut warnings);
    let coalesced = judge(case, coalesced.map_err(|error| error.to_string()), "values");
    let parts = [Some(coalesced), stays, defaults, Some(log(case, &warnings))];
    Outcome::all(parts.into_iter().flatten())
}

fn check(case: &Case) -> Outcome {
    let (chart, user) = chart_and_user(case);
    let mut warnings = chart::Warnings::default();
    let checked = values::coalesce_values(&chart, &user, &mut warnings)
        .map_err(|error| error.to_string())
        .and_then(|values| {
            schema::validate(&chart, &values, None, &mut warnings)
                .map_err(|errors| RenderedError::Schema(errors).to_string())
        });
    if let (Err(error), Some(want)) = (&checked, case.parse::<Vec<String>>("error_sorted_lines")) {
        let mut lines: Vec<&str> = error.split('\n').collect();
        lines.sort_unstable();
        return Outcome::of_texts(&lines.join("\n"), &want.join("\n"));
    }
    judge(case, checked.map(|()| Value::Bool(true)), "ok")
}

/// The Go type of every scalar, in the shape of the value.
fn types(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), types(value)))
            .collect(),
        Value::Array(items) => items.iter().map(types).collect(),
        Value::Null => "nil".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(number) if number.is_f64() => "float64".into(),
        Value::Number(_) => "int64".into(),
        Value::String(_) => "string".into(),
    }
}

/// Go reads each byte that is no UTF-8 as a character of its own.
fn text(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    out
}

fn set(case: &Case) -> Outcome {
    let expression = text(&case.bytes("expr").unwrap_or_default());
    let files: BTreeMap<String, String> = case.parse("files").unwrap_or_default();
    let base = json::floats(case.get("base").cloned().unwrap_or_default());
    let mut values = base.as_object().cloned().unwrap_or_default();
    let mut reader = |name: &str| {
        files
            .get(name)
            .cloned()
            .ok_or_else(|| format!("no file {name}"))
    };
    let mut mode = match case.text("mode") {
        Some("set") => Mode::Typed,
        Some("string") => Mode::Text,
        Some("json") => Mode::Json,
        Some("literal") => Mode::Literal,
        Some("file") => Mode::File(&mut reader),
        _ => return Outcome::unknown("mode"),
    };
    let parsed = strvals::set(&expression, &mut mode, &mut values);
    finish_set(
        case,
        parsed.map(|()| values).map_err(|error| error.to_string()),
    )
}

fn finish_set(case: &Case, values: Result<Map<String, Value>, String>) -> Outcome {
    let values = values.map(Value::Object);
    if let (Ok(values), Some(bytes)) = (&values, case.get("json_bytes")) {
        return Outcome::of_values(&json::encode(values).len().into(), bytes);
    }
    let kinds = match (&values, case.get("types")) {
        (Ok(values), Some(want)) => Outcome::of_values(&types(values), want),
        _ => Outcome::Passed,
    };
    Outcome::all([judge(case, values, "values"), kinds])
}

fn options(case: &Case) -> Outcome {
    let list = |field| {
        case.parse::<Option<Vec<String>>>(field)
            .flatten()
            .unwrap_or_default()
    };
    let options = ValueOptions {
        value_files: list("value_files"),
        json_values: list("set_json"),
        values: list("set"),
        string_values: list("set_string"),
        file_values: list("set_file"),
        literal_values: list("set_literal"),
    };
    let files: BTreeMap<String, String> = case.parse("files").unwrap_or_default();
    let merged = options.merge(&mut |name| {
        let file = files.get(name).map(|text| text.as_bytes().to_vec());
        file.ok_or_else(|| format!("open {name}: no such file or directory"))
    });
    let values = merged.map_err(|error| error.to_string());
    finish_set(
        case,
        values.map(|values| values.as_object().cloned().unwrap_or_default()),
    )
}

fn load(case: &Case) -> Result<Value, String> {
    let text = case.bytes("yaml").unwrap_or_default();
    values::load_values(&text).map_err(|error| error.to_string())
}

fn path(case: &Case) -> Outcome {
    let tree = json::floats(case.get("values").cloned().unwrap_or_default());
    let path = case.text("path_text").unwrap_or_default();
    let compare = |got: Result<Value, String>, value: &str, error: &str| match got {
        Ok(got) => case.get(value).map_or_else(
            || Outcome::failed(&got, case.text(error).unwrap_or_default()),
            |want| Outcome::of_values(&got, want),
        ),
        Err(got) => Outcome::of_texts(&got, case.text(error).unwrap_or("no error")),
    };
    let found = values::path_value(&tree, path)
        .cloned()
        .map_err(|error| error.to_string());
    let table = values::table(&tree, path).cloned().map(Value::Object);
    Outcome::all([
        compare(found, "path", "path_error"),
        compare(
            table.map_err(|error| error.to_string()),
            "table",
            "table_error",
        ),
    ])
}
