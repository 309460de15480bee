//! Recorded bundles, replayed: what the stock controller wrote goes upstream as it was, and what comes of it (status, release
//! record, live objects) is held against what came of it under the Go agent.
//!
//! A specimen is a file of `tests/fixtures/recorded`. Where ours is to differ, `tests/fixtures/specimens.json` has the change to
//! what was recorded, as a merge patch, and the line of COMPATIBILITY.md that says why.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Map, Value, json};
use testbed::agent::built;
use testbed::bed::Bed;
use testbed::chart::Chart;
use testbed::corpus;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::TestAgent;

use crate::shared::{decoded, quick, run};

/// Where the recorded charts came from.
const REPOSITORY: &str = "http://127.0.0.1:7300";
const REGISTRY: &str = "oci://127.0.0.1:7350/charts/smallchart";
/// The chart that is too large to be in its recording.
const LARGE: (&str, &str) = ("helmop-constraint", "longhorn-crd-104.2.0+up1.7.1");
/// How long all specimens together may take.
const PATIENCE: Duration = Duration::from_secs(300);

struct Specimen {
    name: String,
    recorded: Value,
    /// What our status, record and objects shall be instead; a null record is none to compare.
    differs: Value,
}

impl Specimen {
    fn bundle(&self) -> &Value {
        &self.recorded["bundledeployment"]
    }

    /// The recorded status, with our differences, without what no replay can repeat.
    fn status(&self) -> Value {
        let mut status = self.bundle()["status"].clone();
        merge(&mut status, &self.differs["status"]);
        comparable(status)
    }

    /// Whether somebody edited objects after the deployment.
    fn is_edited(&self) -> bool {
        self.bundle()["status"]["modifiedStatus"].is_array()
    }

    fn live(&self) -> impl Iterator<Item = &Value> {
        self.recorded["live"].as_array().into_iter().flatten()
    }

    /// A recorded object, with our differences.
    fn object(&self, recorded: &Value) -> Value {
        let name = recorded["metadata"]["name"].as_str().unwrap_or_default();
        let kind = recorded["kind"].as_str().unwrap_or_default();
        let mut object = comparable_object(recorded);
        merge(&mut object, &self.differs["live"][format!("{kind} {name}")]);
        object
    }

    /// The recorded release that status names, decoded.
    fn release(&self) -> Option<Value> {
        let differs = self.differs.get("release");
        if differs.is_some_and(Value::is_null) {
            return None;
        }
        let status = self.status();
        let (_, revision) = status["release"].as_str()?.rsplit_once(':')?;
        let decoded = self.recorded["releases"]
            .as_array()?
            .iter()
            .map(|r| &r["decoded"]);
        let mut decoded: Vec<&Value> = decoded.filter(|d| d.is_object()).collect();
        let wanted: i64 = revision.parse().ok()?;
        decoded.sort_by_key(|d| d["version"] != json!(wanted));
        let mut release = (*decoded.first()?).clone();
        merge(&mut release, differs.unwrap_or(&Value::Null));
        Some(release)
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// All specimens, with the addresses of our own repository and registry.
fn specimens(bed: &Bed) -> Result<Vec<Specimen>> {
    let here = |text: String| {
        let text = text.replace(REPOSITORY, bed.repository.url());
        text.replace(REGISTRY, &bed.registry.reference("smallchart"))
    };
    let differences = std::fs::read_to_string(fixtures().join("specimens.json"))?;
    let differences: Value = serde_json::from_str(&here(differences))?;
    let mut files: Vec<PathBuf> = std::fs::read_dir(fixtures().join("recorded"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let mut specimens = Vec::new();
    for file in files
        .iter()
        .filter(|f| f.extension().is_some_and(|e| e == "json"))
    {
        let name = file
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or_default();
        let recorded: Value = serde_json::from_str(&here(std::fs::read_to_string(file)?))?;
        if name.starts_with('_') || recorded["bundledeployment"].is_null() {
            continue;
        }
        if name == LARGE.0 && !corpus::is_present_for(name) {
            continue;
        }
        specimens.push(Specimen {
            differs: differences[name].clone(),
            name: name.to_owned(),
            recorded,
        });
    }
    Ok(specimens)
}

/// The chart of a recorded release, as it must have been in its repository.
fn chart(release: &Value) -> Result<Chart> {
    let recorded = &release["chart"];
    let mut metadata = recorded["metadata"].clone();
    let annotations = metadata["annotations"]
        .as_object_mut()
        .context("annotations")?;
    annotations.retain(|key, _| !key.starts_with("fleet.cattle.io/"));
    if annotations.is_empty() {
        metadata
            .as_object_mut()
            .context("metadata")?
            .remove("annotations");
    }
    let text = |key: &str| metadata[key].as_str().context("a text");
    let mut chart = Chart::new(text("name")?, text("version")?)
        .file("Chart.yaml", golib::yaml::encode(&metadata)?)
        .file("values.yaml", recorded["values"].to_string());
    for file in ["templates", "files"]
        .iter()
        .filter_map(|k| recorded[*k].as_array())
        .flatten()
    {
        let name = file["name"].as_str().context("a name")?;
        chart = chart.file(
            name,
            STANDARD.decode(file["data"].as_str().unwrap_or_default())?,
        );
    }
    Ok(chart)
}

/// An object as it may be written again, in another namespace if one is given.
fn rewritten(object: &Value, namespace: Option<&str>) -> Value {
    let mut object = object.clone();
    let metadata = &object["metadata"];
    let mut kept = json!({ "name": metadata["name"] });
    for key in ["labels", "annotations"] {
        if metadata[key].is_object() {
            kept[key] = metadata[key].clone();
        }
    }
    if let Some(namespace) = namespace {
        kept["namespace"] = json!(namespace);
    }
    object["metadata"] = kept;
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

/// A merge patch (RFC 7396); null as a whole changes nothing.
fn merge(value: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        if !patch.is_null() {
            *value = patch.clone();
        }
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (key, change) in patch {
        if change.is_null() {
            value.as_object_mut().map(|fields| fields.remove(key));
        } else {
            merge(&mut value[key.as_str()], change);
        }
    }
}

/// A status without times, UIDs and what is the controller's; its conditions by name.
fn comparable(mut status: Value) -> Value {
    if let Some(fields) = status.as_object_mut() {
        fields.remove("display");
    }
    let drop = |list: &mut Value, key: &str| {
        for entry in list.as_array_mut().into_iter().flatten() {
            entry.as_object_mut().map(|fields| fields.remove(key));
        }
    };
    for (list, key) in [
        ("conditions", "lastUpdateTime"),
        ("resources", "createdAt"),
        ("nonReadyStatus", "uid"),
    ] {
        if let Some(list) = status.get_mut(list) {
            drop(list, key);
        }
    }
    // They stand in the order in which they were first set, which depends on what failed before the bundle was recorded.
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.sort_by_key(|condition| condition["type"].to_string());
    }
    if let Some(counts) = status
        .get_mut("resourceCounts")
        .and_then(Value::as_object_mut)
    {
        counts.retain(|_, count| *count != json!(0));
    }
    status
}

/// A release without times; its templates and files in the order of their names.
fn comparable_release(mut release: Value) -> Value {
    if let Some(info) = release["info"].as_object_mut() {
        info.remove("first_deployed");
        info.remove("last_deployed");
    }
    for list in ["templates", "files"] {
        if let Some(files) = release["chart"][list].as_array_mut() {
            files.sort_by_key(|file| file["name"].to_string());
        }
    }
    release
}

/// An object's own fields, without what an API server allots.
fn comparable_object(object: &Value) -> Value {
    let mut kept = Map::new();
    for key in [
        "apiVersion",
        "kind",
        "data",
        "rules",
        "roleRef",
        "subjects",
        "spec",
    ] {
        kept.insert(key.to_owned(), object[key].clone());
    }
    if object["kind"] == "Service" {
        for key in ["clusterIP", "clusterIPs"] {
            kept["spec"].as_object_mut().map(|spec| spec.remove(key));
        }
    }
    for key in ["labels", "annotations"] {
        kept.insert(key.to_owned(), object["metadata"][key].clone());
    }
    // How often the Deployment was changed before it was recorded.
    if let Some(annotations) = kept["annotations"].as_object_mut() {
        annotations.remove("deployment.kubernetes.io/revision");
    }
    Value::Object(kept)
}

/// The fields of `wanted` that `owned` (a `fieldsV1`) does not have.
fn not_owned(owned: &Value, wanted: &Value, path: &str) -> Vec<String> {
    // An empty set of fields is a value owned as a whole.
    let (Some(owned), Some(wanted)) = (owned.as_object(), wanted.as_object()) else {
        return Vec::new();
    };
    if owned.is_empty() {
        return Vec::new();
    }
    let missing = wanted.iter().flat_map(|(key, value)| {
        let path = format!("{path}.{key}");
        match owned.get(&format!("f:{key}")) {
            Some(owned) => not_owned(owned, value, &path),
            None => vec![path],
        }
    });
    missing.collect()
}

/// Line by line, where two values differ.
fn difference(wanted: &Value, got: &Value) -> Option<String> {
    if wanted == got {
        return None;
    }
    let mut lines = Vec::new();
    differing(wanted, got, "", &mut lines);
    Some(lines.join("\n"))
}

fn differing(wanted: &Value, got: &Value, path: &str, lines: &mut Vec<String>) {
    match (wanted, got) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeMap<&String, ()> = a.keys().chain(b.keys()).map(|k| (k, ())).collect();
            for key in keys.keys() {
                let of = |map: &Map<String, Value>| map.get(*key).cloned().unwrap_or_default();
                differing(&of(a), &of(b), &format!("{path}/{key}"), lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differing(a, b, &format!("{path}/{index}"), lines);
            }
        }
        (a, b) if a != b => lines.push(format!("  {path}\n    recorded {a}\n    ours     {b}")),
        _ => {}
    }
}

/// The bed's side of a replay.
struct Replay<'b> {
    agent: TestAgent<'b>,
    specimens: Vec<Specimen>,
}

impl Replay<'_> {
    /// Charts, credentials and copies first, then every bundle.
    async fn begin(&self) -> Result<()> {
        let (agent, bed) = (&self.agent, self.agent.bed);
        for specimen in &self.specimens {
            for release in specimen.recorded["releases"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let decoded = &release["decoded"];
                if decoded["chart"]["templates"].is_array() && specimen.name.starts_with("helmop-")
                {
                    let chart = chart(decoded)?;
                    bed.repository.add(&chart)?;
                    bed.registry.push(&chart).await?;
                }
            }
        }
        if self
            .specimens
            .iter()
            .any(|specimen| specimen.name == LARGE.0)
        {
            bed.repository.add_archive(corpus::chart(LARGE.1)?)?;
        }
        let namespace = agent.deployment_namespace()?;
        let others = std::fs::read_to_string(fixtures().join("recorded/_namespace.json"))?;
        let others: Value = serde_json::from_str(&others)?;
        for object in others["others"].as_array().context("a list")? {
            if object["metadata"]["ownerReferences"].is_array() {
                apply(&agent.upstream, rewritten(object, Some(namespace))).await?;
            }
        }
        for specimen in &self.specimens {
            for key in ["content", "valuesSecret"] {
                let object = &specimen.recorded[key];
                if object.is_object() {
                    let namespace = (key == "valuesSecret").then_some(namespace);
                    apply(&agent.upstream, rewritten(object, namespace)).await?;
                }
            }
            apply(
                &agent.upstream,
                rewritten(specimen.bundle(), Some(namespace)),
            )
            .await
            .with_context(|| specimen.name.clone())?;
        }
        Ok(())
    }

    /// Does to the objects of a deployed specimen what somebody did to the recorded ones.
    async fn edit(&self, specimen: &Specimen) -> Result<()> {
        self.agent.wait_ready(&specimen.name).await?;
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let modified = specimen.bundle()["status"]["modifiedStatus"].as_array();
        for entry in modified
            .into_iter()
            .flatten()
            .filter(|e| e["missing"] == json!(true))
        {
            self.agent
                .objects(
                    &text(entry, "apiVersion"),
                    &text(entry, "kind"),
                    &text(entry, "namespace"),
                )
                .delete(&text(entry, "name"), &DeleteParams::default())
                .await?;
        }
        let params = PatchParams {
            field_manager: Some("kubectl-edit".to_owned()),
            ..PatchParams::default()
        };
        for object in specimen.live() {
            let mut change = comparable_object(object);
            let fields = change.as_object_mut().context("an object")?;
            fields
                .retain(|key, value| ["data", "spec"].contains(&key.as_str()) && !value.is_null());
            let metadata = &object["metadata"];
            self.agent
                .objects(
                    &text(object, "apiVersion"),
                    &text(object, "kind"),
                    &text(metadata, "namespace"),
                )
                .patch(&text(metadata, "name"), &params, &Patch::Merge(&change))
                .await?;
        }
        Ok(())
    }

    /// Where a bundle's status differs from the recorded one.
    async fn status(&self, specimen: &Specimen) -> Result<Option<String>> {
        let bundle = self.agent.bundle_deployments()?.get(&specimen.name).await?;
        let got = bundle.data.get("status").cloned().unwrap_or(json!({}));
        Ok(difference(&specimen.status(), &comparable(got)))
    }

    async fn release(&self, specimen: &Specimen) -> Result<Option<String>> {
        let Some(wanted) = specimen.release() else {
            return Ok(None);
        };
        let bundle = self.agent.bundle_deployments()?.get(&specimen.name).await?;
        let id = bundle.data["status"]["release"]
            .as_str()
            .unwrap_or_default();
        let (path, revision) = id
            .rsplit_once(':')
            .with_context(|| format!("no release: {id:?}"))?;
        let (namespace, name) = path.split_once('/').context("no namespace")?;
        let key = format!("sh.helm.release.v1.{name}.v{revision}");
        let secret = self.agent.object("v1", "Secret", namespace, &key).await?;
        let secret = secret.with_context(|| format!("no record {key}"))?;
        ensure!(
            secret.data["type"] == json!("helm.sh/release.v1"),
            "{}",
            secret.data["type"]
        );
        let labels = secret.metadata.labels.clone().unwrap_or_default();
        let labels: BTreeMap<&str, &str> = labels
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .filter(|(k, _)| !["createdAt", "modifiedAt"].contains(k))
            .collect();
        let expected = BTreeMap::from([
            ("name", name),
            ("owner", "helm"),
            ("status", "deployed"),
            ("version", revision),
        ]);
        ensure!(labels == expected, "labels of the record: {labels:?}");
        let got = comparable_release(decoded(&serde_json::to_value(&secret)?)?);
        Ok(difference(&comparable_release(wanted), &got))
    }

    /// Labels, annotations and fields of the live objects, and who owns what the manifest says.
    async fn objects(&self, specimen: &Specimen) -> Result<Option<String>> {
        let mut problems = Vec::new();
        let manifest = specimen.release();
        let manifest = manifest
            .as_ref()
            .and_then(|r| r["manifest"].as_str())
            .unwrap_or_default();
        let documents: Vec<Value> = manifest
            .split("\n---\n")
            .filter_map(|document| golib::yaml::decode(document.as_bytes()).ok())
            .collect();
        for wanted in specimen.live() {
            let text =
                |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
            let metadata = &wanted["metadata"];
            let (kind, name) = (text(wanted, "kind"), text(metadata, "name"));
            let namespace = text(metadata, "namespace");
            let got = self
                .agent
                .object(&text(wanted, "apiVersion"), &kind, &namespace, &name)
                .await?;
            let got = serde_json::to_value(got.with_context(|| format!("no {kind} {name}"))?)?;
            if let Some(lines) = difference(&specimen.object(wanted), &comparable_object(&got)) {
                problems.push(format!(" {kind} {name}\n{lines}"));
            }
            let document = documents
                .iter()
                .find(|d| d["kind"] == json!(kind) && d["metadata"]["name"] == json!(name));
            let managers = got["metadata"]["managedFields"].as_array();
            let ours = managers
                .into_iter()
                .flatten()
                .find(|entry| entry["manager"] == "fleetagent" && entry["operation"] == "Apply");
            let Some(ours) = ours else {
                problems.push(format!(" {kind} {name} was not applied by fleetagent"));
                continue;
            };
            let mut document = document.cloned().unwrap_or_default();
            for key in ["apiVersion", "kind"] {
                document.as_object_mut().map(|fields| fields.remove(key));
            }
            for key in ["name", "namespace"] {
                document["metadata"]
                    .as_object_mut()
                    .map(|fields| fields.remove(key));
            }
            // What somebody edited is no longer ours.
            if !specimen.is_edited() {
                let missing = not_owned(&ours["fieldsV1"], &document, "");
                if !missing.is_empty() {
                    problems.push(format!(
                        " {kind} {name}: fleetagent does not own {missing:?}"
                    ));
                }
            }
        }
        Ok((!problems.is_empty()).then(|| problems.join("\n")))
    }
}

#[test]
fn recorded_bundles_are_replayed() -> Result<()> {
    run(async {
        let bed = Bed::shared().await?;
        let names = ("fleet-default".to_owned(), "cattle-fleet-system".to_owned());
        let mut agent =
            TestAgent::prepare_named(bed, built()?, "recorded".to_owned(), names).await?;
        agent.grant().await?;
        let specimens = specimens(bed)?;
        ensure!(specimens.len() >= 15, "only {} specimens", specimens.len());
        let mut replay = Replay { agent, specimens };
        replay.begin().await?;
        replay.agent.start(quick())?;
        for specimen in replay.specimens.iter().filter(|s| s.is_edited()) {
            replay.edit(specimen).await?;
        }
        let started = Instant::now();
        let mut failures = BTreeMap::new();
        loop {
            failures.clear();
            for specimen in &replay.specimens {
                if let Some(lines) = replay.status(specimen).await? {
                    failures.insert(&specimen.name, format!("status\n{lines}"));
                }
            }
            if failures.is_empty() || started.elapsed() > PATIENCE {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        for specimen in &replay.specimens {
            if failures.contains_key(&specimen.name) {
                continue;
            }
            let found = [
                ("release", replay.release(specimen).await),
                ("objects", replay.objects(specimen).await),
            ];
            for (what, found) in found {
                let lines = found.unwrap_or_else(|failed| Some(format!("  {failed:#}")));
                if let Some(lines) = lines {
                    failures
                        .entry(&specimen.name)
                        .or_default()
                        .push_str(&format!("{what}\n{lines}\n"));
                }
            }
        }
        let report: Vec<String> = failures
            .iter()
            .map(|(name, what)| format!("{name}: {what}"))
            .collect();
        ensure!(
            report.is_empty(),
            "{}\nthe agent's log ends with:\n{}",
            report.join("\n"),
            replay.agent.agent_log_tail(20)
        );
        Ok(())
    })
}

#[test]
fn every_difference_has_its_line() -> Result<()> {
    let text = std::fs::read_to_string(fixtures().join("specimens.json"))?;
    let differences: Map<String, Value> = serde_json::from_str(&text)?;
    let page = std::fs::read_to_string(fixtures().join("../../COMPATIBILITY.md"))?;
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, difference) in differences {
        let reasons = difference["because"].as_array().context("reasons")?;
        ensure!(!reasons.is_empty(), "{name}: no reason");
        for because in reasons {
            let because = because.as_str().context("a reason")?;
            ensure!(
                page.contains(because),
                "{name}: not in COMPATIBILITY.md: {because}"
            );
        }
        ensure!(
            fixtures().join(format!("recorded/{name}.json")).exists(),
            "no specimen {name}"
        );
    }
    Ok(())
}
