//! semver.json: versions, their order, constraints. Choosing among versions is judged where it is implemented.

use golib::semver::{Constraint, Version};
use serde_json::{Value, json};

use crate::{Case, Outcome};

pub(crate) fn run(case: &Case) -> Outcome {
    match case.kind() {
        "parse" => parse(case),
        "compare" => compare(case),
        "constraint" => constraint(case),
        "pick" | "tag" | "index" => crate::repository::run(case),
        "compatible" => {
            let text = |field| case.text(field).unwrap_or_default();
            let ok = chart::dependency::is_compatible_range(text("constraint"), text("version"));
            Outcome::of_values(&ok.into(), case.get("ok").unwrap_or(&Value::Null))
        }
        other => Outcome::unknown(other),
    }
}

fn parse(case: &Case) -> Outcome {
    let input = case.bytes("input").unwrap_or_default();
    let check = |field: &str, parsed: Result<Version, golib::semver::Error>| match parsed {
        Ok(version) => {
            let got = json!({
                "string": version.to_string(),
                "original": version.original(),
                "major": version.major(),
                "minor": version.minor(),
                "patch": version.patch(),
                "prerelease": version.prerelease(),
                "metadata": version.metadata(),
            });
            Outcome::of_values(&got, case.get(field).unwrap_or(&Value::Null))
        }
        Err(error) => {
            let want = case.text(&format!("{field}_error")).unwrap_or("a version");
            Outcome::of_texts(&error.to_string(), want)
        }
    };
    Outcome::all([
        check("loose", Version::parse(&input)),
        check("strict", Version::parse_strict(&input)),
    ])
}

fn compare(case: &Case) -> Outcome {
    let version = |field| Version::parse(case.text(field).unwrap_or_default());
    let (a, b) = match (version("a"), version("b")) {
        (Ok(a), Ok(b)) => (a, b),
        (a, b) => return Outcome::failed(format!("{a:?} {b:?}"), "versions"),
    };
    let got = json!([a.cmp(&b) as i8, a == b, a < b]);
    let want = json!([case.get("compare"), case.get("equal"), case.get("less")]);
    Outcome::of_values(&got, &want)
}

fn constraint(case: &Case) -> Outcome {
    let text = case.bytes("constraint").unwrap_or_default();
    let constraint = match Constraint::parse(&text) {
        Ok(constraint) => constraint,
        Err(error) => {
            let want = case.text("error").unwrap_or("a constraint");
            return Outcome::of_texts(&error.to_string(), want);
        }
    };
    let lenient = constraint.clone().include_prerelease(true);
    let versions: Vec<String> = case.parse("versions").unwrap_or_default();
    let results = versions.iter().map(|text| match Version::parse(text) {
        Ok(version) => {
            let messages = constraint.validate(&version).err();
            json!({
                "version": text,
                "check": constraint.check(&version),
                "check_prerelease": lenient.check(&version),
                "valid": messages.is_none(),
                "messages": messages.unwrap_or_default(),
            })
        }
        Err(error) => json!({ "version": text, "error": error.to_string() }),
    });
    Outcome::all([
        Outcome::of_texts(
            &constraint.to_string(),
            case.text("string").unwrap_or_default(),
        ),
        Outcome::of_values(
            &results.collect(),
            case.get("results").unwrap_or(&Value::Null),
        ),
    ])
}
