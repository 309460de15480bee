//! `manifests.json`: loading charts, sorting what they render, and `helm template` as a whole.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use chart::ignore::Rules;
use chart::loader::{self, LoadError, read_chart_yaml};
use chart::lock::{self, Versions};
use chart::manifest::{self, Hook, INSTALL_ORDER, Manifest, UNINSTALL_ORDER};
use chart::post_render::{Document, PostRenderer};
use chart::rendered::{self, RenderOptions, Request, ShowOptions};
use chart::validate_release_name;
use chart::{Capabilities, Chart, Dependency, File, KubeVersion, Metadata, ReleaseInfo, Warning};
use golib::json;
use serde_json::{Value, json};
use templating::SystemHost;

use crate::{Case, Outcome};

pub(crate) fn run(case: &Case) -> Outcome {
    match case.kind() {
        "kind_order" => kind_order(case),
        "split" => split(case),
        "sort" => sort(case),
        "metadata" => metadata(case),
        "release_name" => release_name(case),
        "ignore" => ignore(case),
        "load" => load(case),
        "load_dir" => load_dir(case),
        "load_archive" => load_archive(case),
        "install" => install(case),
        "template" => template(case),
        "lock" => lock_dependencies(case),
        "lock_check" => check_lock(case),
        other => Outcome::unknown(other),
    }
}

/// The error's text against the case's `error`, or the answer through `compare`.
fn judge<T>(case: &Case, answer: Result<T, String>, compare: impl FnOnce(T) -> Outcome) -> Outcome {
    match (answer, case.text("error")) {
        (Ok(_), Some(error)) => Outcome::failed("no error", error),
        (Ok(answer), None) => compare(answer),
        (Err(error), Some(want)) => Outcome::of_texts(&error, want),
        (Err(error), None) => Outcome::failed(error, "no error"),
    }
}

fn value(case: &Case, field: &str, got: &Value) -> Outcome {
    Outcome::of_values(got, case.get(field).unwrap_or(&Value::Null))
}

fn log(case: &Case, warnings: &chart::Warnings) -> Outcome {
    let mut got: Vec<String> = warnings.iter().map(Warning::in_helms_words).collect();
    got.sort();
    let want: Vec<String> = case.parse("log").unwrap_or_default();
    Outcome::of_texts(&got.join("\n"), &want.join("\n"))
}

fn text<E: ToString>(error: E) -> String {
    error.to_string()
}

fn kind_order(case: &Case) -> Outcome {
    let order = match case.text("order") {
        Some("install") => INSTALL_ORDER,
        _ => UNINSTALL_ORDER,
    };
    value(case, "kinds", &json!(order))
}

fn split(case: &Case) -> Outcome {
    let text = case.bytes("text").unwrap_or_default();
    let documents = manifest::split_documents(&text);
    if case.get("documents").is_some() {
        let documents: Vec<_> = documents.into_iter().map(String::from_utf8_lossy).collect();
        return value(case, "documents", &json!(documents));
    }
    use base64::Engine as _;
    let encode = |piece| base64::engine::general_purpose::STANDARD.encode(piece);
    let documents: Vec<String> = documents.into_iter().map(encode).collect();
    value(case, "documents_base64", &json!(documents))
}

fn hooks(hooks: &[Hook]) -> Value {
    let show = |hook: &Hook| {
        json!({
            "name": hook.name,
            "kind": hook.kind,
            "path": hook.path,
            "manifest": hook.manifest,
            "events": hook.events.iter().map(|event| event.as_str()).collect::<Vec<_>>(),
            "weight": hook.weight,
            "delete_policies": hook.delete_policies,
            "output_log_policies": hook.output_log_policies,
        })
    };
    hooks.iter().map(show).collect()
}

fn sort(case: &Case) -> Outcome {
    let files: BTreeMap<String, String> = case.parse("files").unwrap_or_default();
    let mut warnings = chart::Warnings::default();
    let sorted = manifest::sort_manifests(files.clone(), INSTALL_ORDER, &mut warnings);
    judge(case, sorted.map_err(text), |sorted| {
        let show = |manifest: &Manifest| {
            let head = &manifest.head;
            [
                &manifest.path,
                &manifest.content,
                &head.api_version,
                &head.kind,
                &head.name,
            ]
            .map(String::clone)
        };
        let manifests: Vec<_> = sorted.manifests.iter().map(show).collect();
        let reverse = manifest::sort_manifests(files, UNINSTALL_ORDER, &mut warnings);
        let uninstall: Vec<Value> = reverse
            .unwrap_or_default()
            .manifests
            .iter()
            .map(|m| json!([m.path, m.head.kind, m.head.name]))
            .collect();
        Outcome::all([
            compare_manifests(case, &manifests),
            value(case, "hooks", &hooks(&sorted.hooks)),
            value(case, "uninstall", &uninstall.into()),
            log(case, &warnings),
        ])
    })
}

fn compare_manifests(case: &Case, got: &[[String; 5]]) -> Outcome {
    let want = case
        .get("manifests")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    if got.len() != want.len() {
        return Outcome::failed(format!("{} manifests", got.len()), want.len());
    }
    Outcome::all(got.iter().zip(&want).map(|(got, want)| {
        let head = &want["head"];
        let name = &head["name"];
        let wanted = [
            &want["path"],
            &want["content"],
            &head["apiVersion"],
            &head["kind"],
            name,
        ]
        .map(|value| value.as_str().unwrap_or_default());
        Outcome::of_texts(&got.join("\n|"), &wanted.join("\n|"))
    }))
}

fn metadata(case: &Case) -> Outcome {
    let yaml = case.bytes("chart_yaml").unwrap_or_default();
    match (read_chart_yaml(&yaml), case.text("parse_error")) {
        (Err(error), Some(want)) => Outcome::of_texts(&error.to_string(), want),
        (Err(error), None) => judge(case, Err::<(), _>(error.to_string()), |()| Outcome::Passed),
        (Ok(_), Some(want)) => Outcome::failed("no error", want),
        (Ok(draft), None) => judge(case, draft.validate().map_err(text), |metadata| {
            value(case, "metadata", &json!(metadata))
        }),
    }
}

fn release_name(case: &Case) -> Outcome {
    let name = case.text("release").unwrap_or_default();
    judge(case, validate_release_name(name).map_err(text), |()| {
        Outcome::Passed
    })
}

fn ignore(case: &Case) -> Outcome {
    let rules = case.bytes("rules").unwrap_or_default();
    judge(case, Rules::parse(&rules).map_err(text), |rules| {
        let paths: Vec<String> = case.parse("paths").unwrap_or_default();
        let ignored = paths.iter().map(|path| {
            // `.` and `./` are names of their own.
            match path.strip_suffix('/') {
                Some(folder) if path != "./" => rules.ignores(folder, true),
                _ => rules.ignores(path, false),
            }
        });
        value(case, "ignored", &ignored.map(Value::Bool).collect())
    })
}

fn files(case: &Case) -> Vec<File> {
    let files: BTreeMap<String, String> = case.parse("files").unwrap_or_default();
    files
        .into_iter()
        .map(|(name, data)| File::new(name, data))
        .collect()
}

fn shown(chart: &Chart) -> Value {
    shown_below(chart, "")
}

fn shown_below(chart: &Chart, parent: &str) -> Value {
    let mut subcharts = serde_json::Map::new();
    for dependency in &chart.dependencies {
        let mut name = dependency.name().to_owned();
        while subcharts.contains_key(&name) {
            name.push('\'');
        }
        subcharts.insert(
            name,
            shown_below(dependency, &format!("{parent}{}/charts/", chart.name())),
        );
    }
    let names = |files: &[File]| {
        files
            .iter()
            .map(|file| file.name.clone())
            .collect::<Vec<_>>()
    };
    let crds = chart.crds().into_iter();
    let mut crds: Vec<String> = crds.map(|crd| format!("{parent}{}", crd.path)).collect();
    crds.sort();
    let mut out = json!({
        "metadata": chart.metadata,
        "values": *chart.values,
        "templates": names(&chart.templates),
        "files": names(&chart.files),
        "schema": chart.schema.is_some(),
        "crds": crds,
        "subcharts": subcharts,
    });
    if let Some(lock) = &chart.lock {
        out["lock"] = json!({
            "dependencies": lock.dependencies,
            "digest": lock.digest,
            "generated": chart::Time::utc(lock.generated.instant()),
        });
    }
    out
}

/// Helm also keeps every file a second time, for `helm show`; ours are kept once.
fn loaded(case: &Case, chart: &Chart) -> Outcome {
    fn without_raw(chart: &mut Value) {
        if let Some(fields) = chart.as_object_mut() {
            fields.remove("raw");
        }
        let subcharts = chart["subcharts"].as_object_mut();
        subcharts
            .into_iter()
            .flat_map(serde_json::Map::values_mut)
            .for_each(without_raw);
    }
    let mut want = case.value("chart").clone();
    without_raw(&mut want);
    Outcome::of_values(&shown(chart), &want)
}

fn load(case: &Case) -> Outcome {
    let mut warnings = chart::Warnings::default();
    let chart = loader::load_files(files(case), &mut warnings).map_err(text);
    let log = log(case, &warnings);
    Outcome::all([judge(case, chart, |chart| loaded(case, &chart)), log])
}

/// Calls `judge` with a folder that holds the case's files.
fn in_folder(case: &Case, judge: impl FnOnce(&Path) -> Outcome) -> Outcome {
    let folder = match Folder::new(case.name()) {
        Ok(folder) => folder,
        Err(error) => return Outcome::failed(error, "a folder to work in"),
    };
    for file in files(case) {
        let path = folder.0.join(&file.name);
        let parent = path.parent().unwrap_or(&folder.0);
        let written =
            std::fs::create_dir_all(parent).and_then(|()| std::fs::write(&path, &file.data));
        if let Err(error) = written {
            return Outcome::failed(error, "files to load");
        }
    }
    judge(&folder.0)
}

/// A folder that goes when it is no longer needed.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> std::io::Result<Self> {
        let unique = format!("conformance-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn load_dir(case: &Case) -> Outcome {
    in_folder(case, |folder| {
        let chart = loader::load(folder, &mut chart::Warnings::default());
        let place = folder.display().to_string();
        let chart = chart.map_err(|error| match error {
            // The cases were recorded below the step that looks for the chart's generation.
            LoadError::NoChart { .. } => LoadError::ChartYamlMissing.to_string(),
            error => error.to_string().replace(&place, "CHART"),
        });
        judge(case, chart, |chart| loaded(case, &chart))
    })
}

fn load_archive(case: &Case) -> Outcome {
    let entries = case
        .get("entries")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let mut tar = Vec::new();
    for entry in &entries {
        tar_entry(entry, &mut tar);
    }
    tar.extend_from_slice(&[0; 1024]);
    let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let archive = zipped
        .write_all(&tar)
        .and_then(|()| zipped.finish())
        .unwrap_or_default();
    let chart = loader::load_archive(&archive[..], &mut chart::Warnings::default()).map_err(text);
    judge(case, chart, |chart| loaded(case, &chart))
}

/// A ustar header by hand: names here are such as no library would write.
fn tar_entry(entry: &Value, tar: &mut Vec<u8>) {
    let field = |name: &str| entry[name].as_str().unwrap_or_default();
    let kind = match field("type") {
        "dir" => b'5',
        "symlink" => b'2',
        "hardlink" => b'1',
        "fifo" => b'6',
        "pax_global" => b'g',
        _ => b'0',
    };
    let data = if kind == b'g' {
        "16 comment=hello\n"
    } else {
        field("data")
    }
    .as_bytes();
    let mut header = [0_u8; 512];
    let name = field("name").as_bytes();
    if name.len() > 100 {
        // GNU's way of saying that the name comes first.
        let mut long = [0_u8; 512];
        fill_header(&mut long, b"././@LongLink", b'L', name.len() + 1, b"");
        tar.extend_from_slice(&long);
        let mut padded = name.to_vec();
        padded.resize((name.len() + 1).next_multiple_of(512), 0);
        tar.extend_from_slice(&padded);
    }
    fill_header(
        &mut header,
        &name[..name.len().min(100)],
        kind,
        data.len(),
        field("link").as_bytes(),
    );
    tar.extend_from_slice(&header);
    tar.extend_from_slice(data);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

fn fill_header(header: &mut [u8; 512], name: &[u8], kind: u8, size: usize, link: &[u8]) {
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name);
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link);
    put(257, b"ustar  \0");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

struct Settings(Value);

impl Settings {
    fn of(case: &Case) -> Self {
        Self(case.get("options").cloned().unwrap_or_default())
    }

    fn flag(&self, name: &str) -> bool {
        self.0[name].as_bool().unwrap_or(false)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0[name].as_str()
    }

    fn list(&self, name: &str) -> Vec<String> {
        let items = self.0[name].as_array().into_iter().flatten();
        items
            .filter_map(Value::as_str)
            .map(ToOwned::to_owned)
            .collect()
    }

    fn release(&self) -> ReleaseInfo {
        let name = self.text("release").unwrap_or("rel");
        let mut release = ReleaseInfo::install(name, self.text("namespace").unwrap_or("ns"));
        release.is_upgrade = self.flag("is_upgrade");
        release.is_install = !release.is_upgrade;
        release
    }

    fn capabilities(&self) -> Result<Capabilities, String> {
        let mut capabilities = Capabilities::default();
        if let Some(version) = self
            .text("kube_version")
            .filter(|version| !version.is_empty())
        {
            capabilities.kube_version = KubeVersion::parse(version).map_err(text)?;
        }
        let more = self.list("api_versions");
        capabilities.api_versions = capabilities
            .api_versions
            .iter()
            .cloned()
            .chain(more)
            .collect();
        Ok(capabilities)
    }

    fn values(&self) -> Result<Value, String> {
        match self.text("values") {
            Some(yaml) => chart::values::load_values(yaml.as_bytes())
                .map_err(|error| format!("failed to parse values.yaml: {error}")),
            None => Ok(json::floats(self.0["values"].clone())),
        }
    }

    fn options(&self) -> RenderOptions {
        RenderOptions {
            include_crds: self.flag("include_crds"),
            sub_notes: self.flag("sub_notes"),
            hide_secret: self.flag("hide_secret"),
            ..RenderOptions::default()
        }
    }
}

/// The post-renderers the cases were recorded with.
struct Named(String);

impl PostRenderer for Named {
    fn run(&self, documents: Vec<Document>) -> Result<Vec<Document>, Box<dyn Error + Send + Sync>> {
        let mut documents = documents;
        match self.0.as_str() {
            "identity" => {}
            "append" => documents.push(Document::from_text(
                None,
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: added\n".to_owned(),
            )),
            "label" => {
                for document in &mut documents {
                    let text = document.text().unwrap_or_default();
                    let text =
                        text.replace("metadata:\n", "metadata:\n  labels: {post: rendered}\n");
                    *document = Document::from_text(document.path.take(), text);
                }
            }
            "empty" => documents.clear(),
            _ => return Err("post-renderer fails".into()),
        }
        Ok(documents)
    }
}

fn install(case: &Case) -> Outcome {
    let settings = Settings::of(case);
    let mut warnings = chart::Warnings::default();
    let chart = match (
        loader::load_files(files(case), &mut warnings),
        case.text("load_error"),
    ) {
        (Ok(chart), None) => chart,
        (Ok(_), Some(want)) => return Outcome::failed("no error", want),
        (Err(error), want) => {
            return Outcome::of_texts(&error.to_string(), want.unwrap_or("no error"));
        }
    };
    let capabilities = match (settings.capabilities(), case.text("kube_version_error")) {
        (Ok(capabilities), None) => capabilities,
        (Ok(_), Some(want)) => return Outcome::failed("no error", want),
        (Err(error), want) => return Outcome::of_texts(&error, want.unwrap_or("no error")),
    };
    let release = settings.release();
    if let Err(error) = validate_release_name(&release.name) {
        let quoted = golib::strconv::quote(&release.name);
        let error = format!("release name check failed: release name {quoted}: {error}");
        return judge(case, Err::<(), _>(error), |()| Outcome::Passed);
    }
    let values = match settings.values() {
        Ok(values) => values,
        Err(error) => return judge(case, Err::<(), _>(error), |()| Outcome::Passed),
    };
    let post_renderer = settings
        .text("post_render")
        .map(|name| Named(name.to_owned()));
    let rendered = rendered::render_release(Request {
        post_renderer: post_renderer
            .as_ref()
            .map(|named| named as &dyn PostRenderer),
        options: settings.options(),
        ..Request::new(chart, &values, &release, &capabilities, &SystemHost)
    });
    judge(case, rendered.map_err(text), |rendered| {
        let config = if values.is_null() {
            json!({})
        } else {
            values.clone()
        };
        Outcome::all([
            value(case, "manifest", &rendered.manifest.into()),
            value(case, "hooks", &hooks(&rendered.hooks)),
            value(case, "notes", &rendered.notes.into()),
            value(case, "config", &config),
            value(case, "chart_values", &rendered.chart.values),
        ])
    })
}

/// The files and flags of a case go through the command itself.
fn template(case: &Case) -> Outcome {
    let settings = Settings::of(case);
    in_folder(case, |folder| {
        let answer = template_in(&settings, folder);
        judge(case, answer, |out| value(case, "out", &out.into()))
    })
}

fn template_in(settings: &Settings, folder: &Path) -> Result<String, String> {
    let hint = "\n\nUse --debug flag to render out invalid YAML";
    let capabilities = settings.capabilities().map_err(|error| {
        let version = settings.text("kube_version").unwrap_or_default();
        format!("invalid kube version '{version}': {error}")
    })?;
    let values = settings.values()?;
    let chart = loader::load(folder, &mut chart::Warnings::default()).map_err(text)?;
    rendered::check_type(&chart).map_err(text)?;
    rendered::check_dependencies(&chart).map_err(text)?;
    let release = settings.release();
    validate_release_name(&release.name).map_err(|error| {
        let quoted = golib::strconv::quote(&release.name);
        format!("release name check failed: release name {quoted}: {error}")
    })?;
    let rendered = rendered::render_release(Request {
        options: settings.options(),
        ..Request::new(chart, &values, &release, &capabilities, &SystemHost)
    })
    .map_err(|error| {
        if error.is_from_rendering() {
            format!("{error}{hint}")
        } else {
            text(error)
        }
    })?;
    let show = ShowOptions {
        no_hooks: settings.flag("no_hooks"),
        skip_tests: settings.flag("skip_tests"),
        show_only: settings.list("show_only"),
    };
    rendered.show(&show).map_err(text)
}

fn declared(case: &Case) -> Result<Metadata, String> {
    let yaml = case.bytes("chart_yaml").unwrap_or_default();
    let draft =
        read_chart_yaml(&yaml).map_err(|error| format!("cannot load Chart.yaml: {error}"))?;
    draft.validate().map_err(text)
}

/// Charts by the directory they lie in; the chart that depends on them lies in `top`.
struct Local(BTreeMap<String, String>);

impl Versions for Local {
    fn exists(&self, path: &str) -> Result<(), String> {
        self.local(path).map(|_| ())
    }

    fn local(&self, path: &str) -> Result<String, String> {
        let joined = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("top/{path}"),
        };
        let cleaned = golib::path::clean(joined.as_bytes());
        let path = String::from_utf8_lossy(&cleaned).into_owned();
        let version = self.0.get(&path).cloned();
        version.ok_or_else(|| format!("directory {path} not found"))
    }

    fn listed(&self, _: &str, _: &str) -> Result<Option<Vec<String>>, String> {
        Err("no case asks a repository".to_owned())
    }

    fn tags(&self, _: &str, _: &str) -> Result<Vec<String>, String> {
        Err("no case asks a registry".to_owned())
    }
}

fn lock_dependencies(case: &Case) -> Outcome {
    let local = Local(case.parse("local_charts").unwrap_or_default());
    let resolved = declared(case).and_then(|metadata| {
        let locked = lock::resolve(&metadata.dependencies, &BTreeMap::new(), &local);
        let locked = locked.map_err(text)?;
        Ok((lock::digest(&metadata.dependencies, &locked), locked))
    });
    judge(case, resolved, |(digest, locked)| {
        Outcome::all([
            value(case, "digest", &digest.into()),
            value(case, "dependencies", &json!(locked)),
        ])
    })
}

/// `helm dependency build` compares the digest; what it says of one that differs is not ours.
fn check_lock(case: &Case) -> Outcome {
    let locked: Vec<Dependency> = case.parse("locked_dependencies").unwrap_or_default();
    let digest = case.text("locked_digest").unwrap_or_default();
    match declared(case) {
        Ok(metadata) => {
            let is_in_sync = lock::digest(&metadata.dependencies, &locked) == digest;
            Outcome::of_values(&is_in_sync.into(), &case.text("error").is_none().into())
        }
        Err(error) => judge(case, Err::<(), _>(error), |()| Outcome::Passed),
    }
}
