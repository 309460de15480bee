//! Our side.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use golib::glob::Glob;
use golib::semver::{Constraint, Version};
use golib::{json, path, yaml};
use serde_json::Value as Json;
use templating::{Dialect, Functions, Limits, Renderer, SystemHost, TemplateSet, Value};

use super::{Answer, Question};

/// What we make of the question; a panic is an answer that nobody else gives.
pub(super) fn answer(question: &Question) -> Answer {
    catch_unwind(AssertUnwindSafe(|| match question.what {
        "template" => template(question),
        #[cfg(feature = "charts")]
        "chart" => chart(question),
        "yaml" => yaml::decode_floats(question.text.as_bytes())
            .map(|value| json::encode(&value).into_bytes())
            .map_err(|error| error.to_string()),
        "yaml_strict" => yaml::decode_strict(question.text.as_bytes())
            .map(|value| json::encode(&json::floats(value)).into_bytes())
            .map_err(|error| error.to_string()),
        "yaml_write" => yaml::encode(&json::floats(question.data.clone()))
            .map(String::into_bytes)
            .map_err(|error| error.to_string()),
        "glob" => {
            let glob = Glob::compile(&question.text, '/').map_err(|error| error.to_string())?;
            let found = question
                .names
                .iter()
                .map(|name| Json::Bool(glob.matches(name)));
            Ok(json::encode(&found.collect()).into_bytes())
        }
        "match" => {
            let found = question
                .names
                .iter()
                .map(|name| path::matches(&question.text, name).map(Json::Bool));
            match found.collect::<Result<Json, _>>() {
                Ok(found) => Ok(json::encode(&found).into_bytes()),
                Err(_) => Err("syntax error in pattern".to_owned()),
            }
        }
        "semver" => versions(question),
        other => Err(format!("no such kind: {other}")),
    }))
    .unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(format!("OUR PANIC: {}", text.unwrap_or_default()))
    })
}

fn template(question: &Question) -> Answer {
    let mut set = match question.dialect {
        "helm" => Dialect::Helm.template_set("t"),
        "fleet" => Dialect::Fleet.template_set("t"),
        _ => TemplateSet::new("t", Arc::new(Functions::builtin())),
    };
    let others = question.others.iter().map(|(name, text)| (&**name, text));
    for (name, text) in others.chain([("t", &question.template)]) {
        set.parse(name, text.as_str())
            .map_err(|error| error.to_string())?;
    }
    let dot = Value::from(json::floats(question.data.clone()));
    let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
    renderer
        .render("t", &dot)
        .map_err(|error| error.to_string())
}

/// As the Go program puts the question into a chart.
#[cfg(feature = "charts")]
fn chart(question: &Question) -> Answer {
    use chart::render::{EngineOptions, render};
    use chart::values::coalesce_values;
    use chart::{Capabilities, Chart, File, ReleaseInfo};

    let file = |name: String, text: &str| File::new(name, bytes::Bytes::from(text.to_owned()));
    let mut chart = Chart::default();
    chart.metadata.name = "c".to_owned();
    chart.metadata.version = "0.1.0".to_owned();
    chart.metadata.api_version = "v2".to_owned();
    let others = question
        .others
        .iter()
        .enumerate()
        .map(|(at, (name, text))| {
            let name = golib::strconv::quote(name);
            let text = format!("{{{{ define {name} }}}}{text}{{{{ end }}}}");
            file(format!("templates/_{at}.tpl"), &text)
        });
    chart.templates = others
        .chain([
            file("templates/_t.tpl".to_owned(), &question.template),
            file("templates/m.yaml".to_owned(), &question.text),
        ])
        .collect();
    chart.files = [file("t".to_owned(), &question.template)]
        .into_iter()
        .collect();
    let user = json::floats(question.data.clone());
    let values = coalesce_values(&chart, &user, &mut chart::Warnings::default())
        .map_err(|error| error.to_string())?;
    let (release, capabilities) = (ReleaseInfo::install("rel", "ns"), Capabilities::default());
    let options = EngineOptions::new(&release, &capabilities, &SystemHost);
    let files = render(&chart, &values, &options).map_err(|error| error.to_string())?;
    Ok(json::encode(&Json::from_iter(files)).into_bytes())
}

fn versions(question: &Question) -> Answer {
    let constraint = Constraint::parse(&question.text).map_err(|error| error.to_string())?;
    let mut lines = vec![constraint.to_string()];
    for name in &question.names {
        let version = match Version::parse(name) {
            Ok(version) => version,
            Err(error) => {
                lines.push(error.to_string());
                continue;
            }
        };
        let problems = constraint.validate(&version).err();
        let mut line = format!(
            "{version} {} {}",
            constraint.check(&version),
            problems.is_none()
        );
        let strict = Version::parse_strict(name)
            .err()
            .map(|error| error.to_string());
        for problem in problems.into_iter().flatten().chain(strict) {
            line.push_str("; ");
            line.push_str(&problem);
        }
        lines.push(line);
    }
    Ok(lines.join("\n").into_bytes())
}
