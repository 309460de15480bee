//! sprig.json: single templates with all of Helm's functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use golib::json::floats;
use golib::regexp::{Regexp, Steps};
use serde_json::Value as Data;
use templating::Dialect;
use templating::{Error, Limits, MissingKey, Renderer, SystemHost, TemplateSet, Value};

use crate::{Case, Outcome};

/// The name of the template under test.
const NAME: &str = "t";

pub(crate) fn run(case: &Case) -> Outcome {
    let got = render(case).map_err(|error| error.to_string());
    let show = |result: &Result<Vec<u8>, String>| match result {
        Ok(output) => format!("output {:?}", String::from_utf8_lossy(output)),
        Err(error) => format!("error {error}"),
    };
    if let Some(pattern) = case.text("match") {
        let whole = Regexp::compile(format!(r"\A(?:{pattern})\z"));
        let matches = match (&whole, &got) {
            (Ok(whole), Ok(output)) => {
                whole.is_match(output, &mut Steps::new(u64::MAX)) == Ok(true)
            }
            _ => false,
        };
        return match matches {
            true => Outcome::Passed,
            false => Outcome::failed(show(&got), format!("match {pattern}")),
        };
    }
    let want = match (case.bytes("want"), case.bytes("err")) {
        (Some(output), _) => Ok(output),
        (None, Some(error)) => Err(String::from_utf8_lossy(&error).into_owned()),
        (None, None) => return Outcome::unknown("result"),
    };
    match got == want {
        true => Outcome::Passed,
        false => Outcome::failed(show(&got), show(&want)),
    }
}

fn render(case: &Case) -> Result<Vec<u8>, Error> {
    let mut set =
        TemplateSet::new(NAME, Dialect::Helm.functions()).with_missing_key(MissingKey::Zero);
    let templates: BTreeMap<String, String> = case.parse("templates").unwrap_or_default();
    for (name, text) in templates {
        set.parse(&name, text)?;
    }
    set.parse(NAME, case.text("template").unwrap_or_default())?;
    let data = case.get("data").cloned().unwrap_or(Data::Null);
    let dot = Value::from(&floats(data));
    Renderer::new(Arc::new(set), &SystemHost, Limits::default()).render(NAME, &dot)
}
