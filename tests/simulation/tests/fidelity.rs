//! The simulated API server answers as the real one does.
//!
//! `tests/fixtures/recordings` has what end-to-end tests asked of real API servers and how these answered (`make record` records it anew).
//! Here the same is asked of the simulated server, each time from the state that the real one was in: an answer that differs fails, and
//! so does a request that is not modelled. Discovery and watches are in no audit log; what is told of a watch is in `apiserver::watch`'s
//! own tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use simulation::apiserver::{Actor, Request, Server, Who};

/// Parts of an answer that are the server's own choice.
const CHOSEN: [&str; 6] = [
    "/metadata/uid",
    "/metadata/resourceVersion",
    "/metadata/creationTimestamp",
    "/metadata/deletionTimestamp",
    "/details/uid",
    "/metadata/continue",
];

#[test]
fn recorded_requests_are_answered_as_the_real_server_answers_them() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    let mut replayed = Replayed::default();
    for path in &paths {
        replayed.replay(path)?;
    }
    let Replayed {
        asked,
        unsure,
        differences,
    } = replayed;
    assert!(asked > 500, "only {asked} requests were replayed");
    assert!(
        unsure * 20 < asked,
        "{unsure} of {asked} requests came from a state that is not recorded"
    );
    let shown: Vec<&str> = differences.iter().take(10).map(String::as_str).collect();
    assert!(
        differences.is_empty(),
        "{} of {asked} differ:\n{}",
        differences.len(),
        shown.join("\n\n")
    );
    Ok(())
}

#[derive(Default)]
struct Replayed {
    asked: usize,
    /// Requests about objects that were there before the recording began.
    unsure: usize,
    differences: Vec<String>,
}

impl Replayed {
    fn replay(&mut self, path: &Path) -> Result<()> {
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(path)?;
        let server = Server::new(
            "replayed",
            name.ends_with("upstream"),
            Arc::new(|| Timestamp::UNIX_EPOCH),
        );
        let mut known = BTreeSet::new();
        for (number, line) in text.lines().enumerate() {
            let line: Value =
                serde_json::from_str(line).with_context(|| format!("{name} {number}"))?;
            let place = format!("{name} {}: {} {}", number + 1, line["method"], line["uri"]);
            if let Some(object) = line.get("object") {
                // A kind that the simulation does not serve is nothing it could be asked for.
                if server.put(object).is_ok() {
                    known.extend(uid(object));
                }
            } else if let Some(path) = line["gone"].as_str() {
                drop(server.forget(path));
            } else {
                self.ask(&server, &line, &mut known)
                    .with_context(|| place.clone())?;
            }
        }
        ensure!(!known.is_empty(), "{name} is empty");
        Ok(())
    }

    fn ask(&mut self, server: &Server, line: &Value, known: &mut BTreeSet<String>) -> Result<()> {
        let (request, real, code) = (
            request(line),
            &line["answer"],
            line["code"].as_u64().unwrap_or(0),
        );
        let is_read = request.method == "GET";
        let mut is_unsure = false;
        for object in objects(real) {
            if object["kind"] == "PartialObjectMetadata" {
                continue;
            }
            let Some(uid) = uid(object).filter(|uid| !known.contains(uid)) else {
                continue;
            };
            if is_read {
                server
                    .put(&typed(object, real))
                    .map_err(anyhow::Error::msg)?;
                known.insert(uid);
            } else if code == 200 {
                is_unsure = true;
            }
        }
        let right = format!("{}/{}", request.who.account, namespace(&request));
        let is_denied = code == 403
            && real["message"]
                .as_str()
                .is_some_and(|text| text.contains(" cannot "));
        server.deny(&right, is_denied);
        self.asked += 1;
        let simulated = server.ask(&request);
        server.deny(&right, false);
        let is_reported = !real.is_null();
        let found = match simulated.code == u16::try_from(code)? {
            true if is_reported => {
                let mut simulated = simulated.value();
                if request.body.pointer("/metadata/generateName").is_some() {
                    simulated["metadata"]["name"] = real["metadata"]["name"].clone();
                }
                difference(real, &simulated, "")
            }
            // Answers in parts of objects are not in the log.
            true => None,
            false => Some(format!("the code is {}, not {code}", simulated.code)),
        };
        if let (Some(found), false) = (&found, is_unsure) {
            self.differences.push(format!(
                "{} {}\n  {found}\n  asked     {}\n  real      {real}\n  simulated {}",
                request.method,
                request.uri,
                request.body,
                simulated.value()
            ));
        }
        self.unsure += usize::from(is_unsure);
        if request.is_write() && code < 300 {
            keep(server, &request, real, known)?;
        }
        Ok(())
    }
}

/// From here on there is what the real server had.
fn keep(
    server: &Server,
    request: &Request,
    real: &Value,
    known: &mut BTreeSet<String>,
) -> Result<()> {
    let path = request.uri.split('?').next().unwrap_or_default();
    let Some(uid) = uid(real) else {
        if request.method == "DELETE" {
            drop(server.forget(path));
        }
        return Ok(());
    };
    let is_held = ["/metadata/finalizers", "/spec/finalizers"]
        .iter()
        .any(|pointer| {
            let finalizers = real.pointer(pointer).and_then(Value::as_array);
            finalizers.is_some_and(|finalizers| !finalizers.is_empty())
        });
    let is_leaving = real.pointer("/metadata/deletionTimestamp").is_some();
    if is_leaving && !is_held || request.method == "DELETE" && !is_leaving {
        drop(server.forget(path));
        return Ok(());
    }
    if real["kind"] != "PartialObjectMetadata" {
        server.put(real).map_err(anyhow::Error::msg)?;
        known.insert(uid);
    }
    Ok(())
}

fn namespace(request: &Request) -> String {
    let at = request.path.iter().position(|part| part == "namespaces");
    at.and_then(|at| request.path.get(at + 1))
        .cloned()
        .unwrap_or_default()
}

fn request(line: &Value) -> Request {
    let text = |key: &str| line[key].as_str().unwrap_or_default();
    let who = Who {
        actor: Actor::Agent(1),
        account: text("as").to_owned(),
    };
    let mut request = Request::new(who, text("method"), text("uri"), line["body"].clone());
    text("by").clone_into(&mut request.user_agent);
    let answered = line["answer"]["kind"].as_str().unwrap_or_default();
    if answered.starts_with("PartialObjectMetadata") {
        request.accept = format!("application/json;as={answered};g=meta.k8s.io;v=v1");
    }
    // The audit log has no content types.
    request.content_type = match (&request.body, request.query.contains_key("force")) {
        _ if request.method != "PATCH" => "application/json",
        (Value::Array(_), _) => "application/json-patch+json",
        (_, true) => "application/apply-patch+yaml",
        _ if request.body.to_string().contains("\"$") => "application/strategic-merge-patch+json",
        _ => "application/merge-patch+json",
    }
    .to_owned();
    request
}

/// The objects an answer holds.
fn objects(answer: &Value) -> Vec<&Value> {
    match answer["items"].as_array() {
        Some(items) => items.iter().collect(),
        None => vec![answer],
    }
}

/// An item of a list with the type that the list has.
fn typed(object: &Value, list: &Value) -> Value {
    let mut object = object.clone();
    let kind = list["kind"]
        .as_str()
        .and_then(|kind| kind.strip_suffix("List"));
    if let (None, Some(kind)) = (object.get("kind"), kind) {
        object["kind"] = kind.into();
        object["apiVersion"] = list["apiVersion"].clone();
    }
    object
}

fn uid(object: &Value) -> Option<String> {
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
    uid.map(str::to_owned)
}

/// How the simulated answer differs from the real one where it may not.
fn difference(real: &Value, simulated: &Value, path: &str) -> Option<String> {
    if CHOSEN.iter().any(|end| path.ends_with(end)) {
        return None;
    }
    match (real, simulated) {
        // Go writes an empty list of metadata so.
        (Value::Null, Value::Array(items)) if items.is_empty() => None,
        (Value::Object(real), Value::Object(simulated)) => {
            for (key, value) in simulated {
                let path = format!("{path}/{key}");
                let other = real.get(key).unwrap_or(&Value::Null);
                let found = match key.as_str() {
                    "managedFields" => owners(other, value, &path),
                    _ => difference(other, value, &path),
                };
                if found.is_some() {
                    return found;
                }
            }
            // What the real one fills in is no difference; what people and charts write is.
            let is_theirs = ["/labels", "/annotations", "/data", "/finalizers"]
                .iter()
                .any(|end| path.ends_with(end));
            let more = real.keys().find(|key| !simulated.contains_key(*key))?;
            is_theirs.then(|| format!("{path}/{more} is missing"))
        }
        (Value::Array(real), Value::Array(simulated)) => {
            if real.len() != simulated.len() {
                return Some(format!(
                    "{path} has {} items, not {}",
                    simulated.len(),
                    real.len()
                ));
            }
            let mut pairs = real.iter().zip(simulated).enumerate();
            pairs.find_map(|(at, (real, simulated))| {
                difference(real, simulated, &format!("{path}/{at}"))
            })
        }
        (Value::String(real), Value::String(simulated))
            if without_value(real) == without_value(simulated) =>
        {
            None
        }
        (real, simulated) if real == simulated => None,
        (real, simulated) => Some(format!("{path} is {simulated}, not {real}")),
    }
}

/// An error without the value it is about, which the real server prints as Go does.
fn without_value(text: &str) -> Option<(&str, &str)> {
    let (before, after) = text.split_once("Invalid value: ")?;
    Some((before, after.rsplit_once(": ")?.1))
}

/// The same managers own the same fields; those who write whole objects own what is filled in too.
fn owners(real: &Value, simulated: &Value, path: &str) -> Option<String> {
    let named = |value: &Value| -> Vec<(String, Value)> {
        let entries = value.as_array().into_iter().flatten();
        let mut named: Vec<_> = entries
            .map(|entry| {
                let name = format!(
                    "{} {} {}",
                    entry["manager"], entry["operation"], entry["subresource"]
                );
                (name, entry["fieldsV1"].clone())
            })
            .collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        named
    };
    let (real, simulated) = (named(real), named(simulated));
    let names = |owners: &[(String, Value)]| {
        owners
            .iter()
            .map(|owner| owner.0.clone())
            .collect::<Vec<_>>()
    };
    if names(&real) != names(&simulated) {
        return Some(format!(
            "{path} are {:?}, not {:?}",
            names(&simulated),
            names(&real)
        ));
    }
    real.iter()
        .zip(&simulated)
        .find_map(|((name, real), (_, simulated))| {
            let is_same = match name.contains("\"Apply\"") {
                true => real == simulated,
                false => is_within(simulated, real),
            };
            (!is_same).then(|| format!("{path} of {name} are {simulated}, not {real}"))
        })
}

fn is_within(small: &Value, large: &Value) -> bool {
    let (Some(small), Some(large)) = (small.as_object(), large.as_object()) else {
        return small == large;
    };
    small
        .iter()
        .all(|(key, value)| large.get(key).is_some_and(|large| is_within(value, large)))
}
