//! `engine.json`: Go's template language alone, and whole charts through Helm's engine.

use std::sync::Arc;

use chart::render::{EngineOptions, render};
use chart::values::coalesce_values;
use chart::{Capabilities, Chart, File, HelmVersion, KubeVersion, ReleaseInfo};
use golib::json;
use serde_json::{Map, Value as Json};
use templating::{Functions, MissingKey, SystemHost, TemplateSet};

use crate::{Case, Outcome, gofmt};

pub(crate) fn run(case: &Case) -> Outcome {
    match case.kind() {
        "text" => text(case),
        "helm" => helm(case),
        other => Outcome::unknown(other),
    }
}

fn text(case: &Case) -> Outcome {
    let missing_key = match case.text("missingkey") {
        Some("zero") => MissingKey::Zero,
        Some("error") => MissingKey::Error,
        _ => MissingKey::Invalid,
    };
    let set = TemplateSet::new("t", Arc::new(Functions::builtin()))
        .with_delims(
            case.text("left").unwrap_or(""),
            case.text("right").unwrap_or(""),
        )
        .with_missing_key(missing_key);
    gofmt::render(case, set)
}

fn helm(case: &Case) -> Outcome {
    let result = rendered(case).map(|files| json::encode(&files));
    match (result, case.get("want"), case.text("err")) {
        (Ok(got), Some(want), _) => Outcome::of_texts(&got, &json::encode(want)),
        (Err(got), _, Some(want)) => Outcome::of_texts(&got, want),
        (Ok(got), None, want) => Outcome::failed(got, want.unwrap_or("?")),
        (Err(got), want, None) => Outcome::failed(got, want.unwrap_or(&Json::Null)),
    }
}

/// The files of a case's chart, or Helm's error.
fn rendered(case: &Case) -> Result<Json, String> {
    let chart = chart(case.get("chart").unwrap_or(&Json::Null))?;
    let user = match case.get("values") {
        Some(values) if !values.is_null() => json::floats(values.clone()),
        _ => Json::Object(Map::new()),
    };
    let values = coalesce_values(&chart, &user, &mut chart::Warnings::default())
        .map_err(|error| format!("values: {error}"))?;
    let release = release(case.get("release"));
    let capabilities = capabilities(case).map_err(|error| error.to_string())?;
    let mut options = EngineOptions::new(&release, &capabilities, &SystemHost);
    options.strict = case.parse("strict").unwrap_or_default();
    options.lint = case.parse("lint").unwrap_or_default();
    let files = render(&chart, &values, &options).map_err(|error| error.to_string())?;
    Ok(files
        .into_iter()
        .map(|(name, text)| (name, Json::String(text)))
        .collect())
}

fn chart(recorded: &Json) -> Result<Chart, String> {
    let files = |field: &str| -> Vec<File> {
        let files = recorded[field].as_object().into_iter().flatten();
        files
            .map(|(name, text)| {
                File::new(
                    name.clone(),
                    text.as_str().unwrap_or_default().as_bytes().to_vec(),
                )
            })
            .collect()
    };
    let metadata = serde_json::from_value(recorded["metadata"].clone());
    let dependencies = recorded["dependencies"].as_array().into_iter().flatten();
    Ok(Chart {
        metadata: metadata.map_err(|error| error.to_string())?,
        values: json::floats(recorded["values"].clone()).into(),
        templates: files("templates").into(),
        files: files("files").into(),
        dependencies: dependencies.map(chart).collect::<Result<_, _>>()?,
        ..Chart::default()
    })
}

/// The release of a case: an install unless one is recorded, and then what is not recorded is zero.
fn release(recorded: Option<&Json>) -> ReleaseInfo {
    let mut release = ReleaseInfo::install("rel", "ns");
    let Some(recorded) = recorded.filter(|recorded| !recorded.is_null()) else {
        return release;
    };
    if let Some(name) = recorded["Name"].as_str() {
        release.name = name.to_owned();
    }
    if let Some(namespace) = recorded["Namespace"].as_str() {
        release.namespace = namespace.to_owned();
    }
    let is = |field: &str| recorded[field].as_bool().unwrap_or_default();
    release.revision = recorded["Revision"].as_i64().unwrap_or_default();
    release.is_install = is("IsInstall");
    release.is_upgrade = is("IsUpgrade");
    release
}

fn capabilities(case: &Case) -> Result<Capabilities, impl std::error::Error> {
    const API_VERSIONS: [&str; 5] = [
        "v1",
        "apps/v1",
        "apps/v1/Deployment",
        "batch/v1",
        "networking.k8s.io/v1",
    ];
    let default = || API_VERSIONS.map(str::to_owned).to_vec();
    let api_versions: Vec<String> = case.parse("apiVersions").unwrap_or_else(default);
    let kube_version = KubeVersion::parse(case.text("kubeVersion").unwrap_or("v1.31.2"))?;
    Ok::<_, chart::capabilities::KubeVersionError>(Capabilities {
        kube_version,
        api_versions: api_versions.into(),
        helm_version: HelmVersion {
            version: "v4.3.1".to_owned(),
            git_commit: "0123456789abcdef0123456789abcdef01234567".to_owned(),
            git_tree_state: "clean".to_owned(),
            go_version: "go1.26.0".to_owned(),
            kube_client_version: "v1.37".to_owned(),
        },
    })
}
