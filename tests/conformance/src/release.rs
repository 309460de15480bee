//! Release records: their JSON, labels, history and keys.
//!
//! Kind `flow` replays whole actions of Helm, which our one-entry `deploy` orders differently on
//! purpose; it is told as not runnable.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chart::Chart;
use jiff::Timestamp;
use release::model::{Release, Status};
use release::storage::{
    self, Deletable, Stamp, StorageError, StoredRevision, decode, deployed, is_system_label, last,
    prunable, record_labels, to_json, user_labels,
};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::{Case, Outcome};

pub(crate) fn run(case: &Case) -> Outcome {
    match case.kind() {
        "encode" => encode(case),
        "decode" => read(case),
        "decode_error" => refuse(case),
        "prune" => prune(case),
        "lookup" => lookup(case),
        "storage_key" => storage_key(case),
        "query" => query(case),
        "labels" => labels(case),
        other => Outcome::unknown(other),
    }
}

type Labels = BTreeMap<String, String>;

/// The labels with clock values as the vectors write them.
fn without_clock(mut labels: Labels) -> Labels {
    for (label, value) in &mut labels {
        if matches!(label.as_str(), "createdAt" | "modifiedAt") {
            *value = "<unix seconds>".to_owned();
        }
    }
    labels
}

fn want_labels(case: &Case, field: &str) -> Labels {
    without_clock(case.parse(field).unwrap_or_default())
}

fn of_labels(got: Labels, want: Labels) -> Outcome {
    Outcome::of_values(&json!(without_clock(got)), &json!(want))
}

fn encode(case: &Case) -> Outcome {
    let release = release(case.get("release").unwrap_or(&Value::Null));
    let json = to_json(&release).expect("a case that cannot be read fails");
    let text = match case.text("json") {
        Some(want) => Outcome::of_texts(&String::from_utf8_lossy(&json), want),
        None => of_digest(&json, case),
    };
    let object = |field: &str| {
        let want = case.get(field).cloned().unwrap_or_default();
        let mut got = json!({
            "data_keys": ["release"],
            "labels": without_clock(record_labels(&release, Stamp::Created(Timestamp::UNIX_EPOCH))),
            "name": storage::key(&release.name, release.revision),
            "namespace": release.namespace,
        });
        if field == "secret" {
            got["type"] = "helm.sh/release.v1".into();
        }
        Outcome::of_values(&got, &want)
    };
    Outcome::all([text, object("secret"), object("config_map")])
}

fn of_digest(got: &[u8], case: &Case) -> Outcome {
    let digest: String = Sha256::digest(got)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Outcome::of_texts(&digest, case.text("json_sha256").unwrap_or_default())
}

/// A release as the vectors describe one in memory.
fn release(given: &Value) -> Release {
    let mut given = given.clone();
    let labels = given.get("labels").cloned().unwrap_or_default();
    let chart = given
        .as_object_mut()
        .and_then(|given| given.remove("chart"));
    let manifest = given
        .get("manifest_base64")
        .and_then(Value::as_str)
        .map(|text| {
            go_lossy(
                &STANDARD
                    .decode(text)
                    .expect("a case that cannot be read fails"),
            )
        });
    let manifest = manifest.or_else(|| {
        let repeat = given.get("manifest_repeat")?;
        let times = usize::try_from(repeat["times"].as_u64()?).ok()?;
        Some(repeat["text"].as_str()?.repeat(times))
    });
    for hook in given
        .get_mut("hooks")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let take = |hook: &Value, field: &str| hook.get(field).cloned().unwrap_or_default();
        hook["last_run"] = json!({
            "started_at": take(hook, "started_at"),
            "completed_at": take(hook, "completed_at"),
            "phase": take(hook, "phase"),
        });
    }
    let config = given.get("config").cloned().unwrap_or_default();
    let floats = given.get("numbers") == Some(&json!("float64"));
    let payload =
        STANDARD.encode(serde_json::to_vec(&given).expect("a case that cannot be read fails"));
    let mut release = decode(payload.as_bytes()).expect("a case that cannot be read fails");
    if let (Value::Object(config), false) = (config, floats) {
        release.config = config;
    }
    if let Some(manifest) = manifest {
        release.manifest = manifest;
    }
    release.labels = serde_json::from_value(labels).unwrap_or_default();
    release.chart = chart
        .filter(|chart| !chart.is_null())
        .map(|chart| Arc::new(self::chart(chart, floats)));
    release
}

fn chart(mut given: Value, floats: bool) -> Chart {
    let values = given.get("values").cloned().unwrap_or_default();
    for list in ["templates", "files"] {
        for file in given
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let data = match (file.get("text"), file.get("data_base64")) {
                (Some(Value::String(text)), _) => STANDARD.encode(text).into(),
                (_, Some(data)) => data.clone(),
                _ if file.get("data_null").is_some() => Value::Null,
                _ => json!(""),
            };
            file["data"] = data;
        }
    }
    if let Some(Value::String(schema)) = given.get("schema") {
        given["schema"] = STANDARD.encode(schema).into();
    }
    let mut chart = Chart::from_json(&given, "chart").expect("a case that cannot be read fails");
    if !floats {
        chart.values = values.into();
    }
    chart
}

/// Text from bytes as Go's JSON sees it: each byte that is no UTF-8 is one replacement character.
fn go_lossy(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
    }
    text
}

fn read(case: &Case) -> Outcome {
    let read = decode(case.text("blob").unwrap_or_default().as_bytes());
    let release = match (read, case.text("error")) {
        (Err(error), Some(want)) => {
            let key = storage::key("u", 1);
            let error = release::error_chain(&StorageError::Decode { key, source: error });
            return Outcome::of_texts(&error, want);
        }
        (Err(error), None) => return Outcome::failed(error, "no error"),
        (Ok(_), Some(want)) => return Outcome::failed("no error", want),
        (Ok(release), None) => release,
    };
    let json = to_json(&release).expect("a case that cannot be read fails");
    let want = case.text("rewritten").or_else(|| case.text("json"));
    let text = match want {
        Some(want) => Outcome::of_texts(&String::from_utf8_lossy(&json), want),
        None => of_digest(&json, case),
    };
    let labels = user_labels(&case.parse("secret_labels").unwrap_or_default());
    Outcome::all([text, of_labels(labels, want_labels(case, "labels"))])
}

fn refuse(case: &Case) -> Outcome {
    let read = decode(case.text("blob").unwrap_or_default().as_bytes());
    let shown = json!(i32::from(read.is_ok()));
    let answer = match (read, case.text("get_error")) {
        (Err(error), Some(want)) => {
            let key = case.text("key").unwrap_or_default().to_owned();
            let error = release::error_chain(&StorageError::Decode { key, source: error });
            Outcome::of_texts(&error, want)
        }
        (Err(error), None) => Outcome::failed(error, "no error"),
        (Ok(_), Some(want)) => Outcome::failed("no error", want),
        (Ok(release), None) => {
            let json = to_json(&release).expect("a case that cannot be read fails");
            let want = case.text("rewritten").unwrap_or_default();
            Outcome::of_texts(&String::from_utf8_lossy(&json), want)
        }
    };
    let length = |field: &str| Outcome::of_values(&shown, case.get(field).unwrap_or(&Value::Null));
    Outcome::all([answer, length("list_length"), length("query_length")])
}

fn head(value: &Value) -> StoredRevision {
    let revision = value["version"].as_i64().unwrap_or_default();
    StoredRevision::new(
        revision,
        Status::from(value["status"].as_str().unwrap_or_default()),
    )
}

fn history(case: &Case) -> Vec<StoredRevision> {
    let stored = case.get("history").and_then(Value::as_array);
    stored.into_iter().flatten().map(head).collect()
}

fn prune(case: &Case) -> Outcome {
    let mut history = history(case);
    let max_history = case
        .get("max_history")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    let removed = prunable(&history, max_history).before;
    let mut removed: Vec<i64> = removed.iter().map(Deletable::revision).collect();
    history.retain(|head| !removed.contains(&head.revision));
    let new = head(case.get("create").unwrap_or(&Value::Null));
    let error = history.iter().any(|head| head.revision == new.revision);
    if !error {
        history.push(new);
    }
    let mut remaining: Vec<i64> = history.iter().map(|head| head.revision).collect();
    remaining.sort_unstable();
    let mut want_removed: Vec<i64> = case.parse("removed").unwrap_or_default();
    // A revision that was pruned and created again counts as neither here nor there.
    removed.retain(|revision| !remaining.contains(revision));
    removed.sort_unstable();
    want_removed.sort_unstable();
    let text = if error {
        StorageError::Exists.to_string()
    } else {
        String::new()
    };
    Outcome::all([
        Outcome::of_values(&json!(removed), &json!(want_removed)),
        Outcome::of_values(
            &json!(remaining),
            case.get("remaining").unwrap_or(&Value::Null),
        ),
        Outcome::of_texts(&text, case.text("error").unwrap_or_default()),
    ])
}

fn lookup(case: &Case) -> Outcome {
    let history = history(case);
    let mut got = Map::new();
    match last(&history) {
        Some(head) => got.insert("last".to_owned(), head.revision.into()),
        None => got.insert(
            "last_error".to_owned(),
            StorageError::NotFound.to_string().into(),
        ),
    };
    let name = case.text("release_name").unwrap_or_default();
    match deployed(&history) {
        Some(head) => got.insert("deployed".to_owned(), head.revision.into()),
        None => got.insert(
            "deployed_error".to_owned(),
            format!("{name:?} has no deployed releases").into(),
        ),
    };
    let pending: BTreeMap<&str, bool> = history
        .iter()
        .map(|head| (head.status.as_str(), head.status.is_pending()))
        .collect();
    got.insert("is_pending".to_owned(), json!(pending));
    let fields = [
        "last",
        "last_error",
        "deployed",
        "deployed_error",
        "is_pending",
    ];
    let want: Map<String, Value> = fields
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), case.get(field)?.clone())))
        .collect();
    Outcome::of_values(&Value::Object(got), &Value::Object(want))
}

fn named(case: &Case) -> Release {
    let mut release = Release {
        name: case.text("release_name").unwrap_or("web").to_owned(),
        revision: case.get("version").and_then(Value::as_i64).unwrap_or(1),
        ..Release::default()
    };
    release.set_status(Status::Deployed, "");
    release
}

fn storage_key(case: &Case) -> Outcome {
    let release = named(case);
    let key = storage::key(&release.name, release.revision);
    let labels = record_labels(&release, Stamp::Created(Timestamp::UNIX_EPOCH));
    Outcome::all([
        Outcome::of_texts(&key, case.text("key").unwrap_or_default()),
        of_labels(labels, want_labels(case, "labels")),
    ])
}

fn query(case: &Case) -> Outcome {
    let wanted: Labels = case.parse("labels").unwrap_or_default();
    let want = case
        .get("found")
        .or_else(|| case.get("error"))
        .cloned()
        .unwrap_or_default();
    for value in wanted.values() {
        if let Some(problem) = golib::validation::API_SERVER.invalid_label_value(value) {
            let error = StorageError::Label {
                value: value.clone(),
                problem,
            };
            return Outcome::of_values(&error.to_string().into(), &want);
        }
    }
    let stored = case.get("stored").and_then(Value::as_array);
    let mut found: Vec<String> = stored
        .into_iter()
        .flatten()
        .filter_map(|stored| {
            let head = head(stored);
            let name = stored["name"].as_str()?;
            let mut release = Release {
                name: name.to_owned(),
                revision: head.revision,
                ..Release::default()
            };
            release.set_status(head.status, "");
            let labels = record_labels(&release, Stamp::Created(Timestamp::UNIX_EPOCH));
            let fits = wanted
                .iter()
                .all(|(label, value)| labels.get(label) == Some(value));
            fits.then(|| storage::key(name, head.revision))
        })
        .collect();
    found.sort();
    if found.is_empty() {
        return Outcome::of_values(&StorageError::NotFound.to_string().into(), &want);
    }
    Outcome::of_values(&json!(found), &want)
}

fn labels(case: &Case) -> Outcome {
    let mut release = named(case);
    release.labels = case.parse("user_labels").unwrap_or_default();
    let reserved = json!(release.labels.keys().any(|label| is_system_label(label)));
    release.set_status(Status::PendingInstall, "");
    let created = record_labels(&release, Stamp::Created(Timestamp::UNIX_EPOCH));
    match case.text("read_back_by") {
        Some("get") => release.labels = user_labels(&created),
        // What Helm reads from lists keeps its system labels.
        Some("list") => release.labels = created.clone(),
        _ => {}
    }
    release.set_status(Status::Deployed, "");
    let updated = record_labels(&release, Stamp::Modified(Timestamp::UNIX_EPOCH));
    Outcome::all([
        of_labels(created, want_labels(case, "after_create")),
        of_labels(updated, want_labels(case, "after_update")),
        Outcome::of_values(
            &reserved,
            case.get("contains_system_labels").unwrap_or(&Value::Null),
        ),
    ])
}
