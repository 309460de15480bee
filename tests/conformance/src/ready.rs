//! `ready.json`: is a live object ready?

use agent::api::NonReadyStatus;
use agent::public::redact::{RedactedDetail, SensitiveData};
use agent::summary::{self, ErrorMapping};
use objects::readiness::{kstatus, wait};
use serde_json::{Value, json};

use crate::{Case, Check, Outcome, compare};

/// Times in the cases lie years back, so the present moment does not matter.
pub(crate) fn run(case: &Case) -> Outcome {
    check(case).err().unwrap_or(Outcome::Passed)
}

fn check(case: &Case) -> Check {
    let now = jiff::Timestamp::now();
    match case.kind() {
        "kstatus" => match kstatus::compute(case.value("object"), now) {
            Ok(result) => {
                let conditions: Vec<_> = result
                    .conditions
                    .iter()
                    .map(|c| {
                        json!({"type": c.condition_type, "status": "True",
                               "reason": c.reason, "message": c.message})
                    })
                    .collect();
                compare(&result.status.as_str().into(), case.value("status"))?;
                compare(&result.message.into(), case.value("message"))?;
                compare(&conditions.into(), case.value("conditions"))
            }
            Err(error) => compare(&error.to_string().into(), case.value("compute_error")),
        },
        "helm_wait" => {
            for (name, mode) in [
                ("wait", wait::Mode::Wait),
                ("wait_with_jobs", wait::Mode::WaitWithJobs),
                ("hook", wait::Mode::Hook),
            ] {
                let reading = wait::read(case.value("object"), list(case, "others"), mode, now);
                let mut got = json!({"status": reading.status.as_str()});
                match reading.error {
                    Some(error) => got["error"] = error.into(),
                    None => got["message"] = reading.message.into(),
                }
                compare(&got, case.value(name))?;
            }
            Ok(())
        }
        "fleet_summary" => {
            let mut got = summary::summarize(case.value("object"), &ErrorMapping::default(), now);
            got.state = got.state.chars().map(golib::unicode::to_lower).collect();
            let got = json!({
                "state": got.state, "error": got.error, "transitioning": got.transitioning,
                "message": got.message, "ready": got.is_ready(), "text": got.to_string(),
            });
            for (field, value) in got.as_object().into_iter().flatten() {
                let wanted = match (field.as_str(), case.value(field)) {
                    ("message", Value::Null) => json!([]),
                    (_, wanted) => wanted.clone(),
                };
                compare(value, &wanted)?;
            }
            Ok(())
        }
        "fleet_non_ready" => non_ready(case, now),
        kind => Outcome::unknown(kind).checked(),
    }
}

fn list<'a>(case: &'a Case, field: &str) -> &'a [Value] {
    case.value(field)
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn non_ready(case: &Case, now: jiff::Timestamp) -> Check {
    let ignored: Vec<std::collections::BTreeMap<String, String>> =
        serde_json::from_value(case.value("ignore")["conditions"].clone()).unwrap_or_default();
    let mut found: Vec<NonReadyStatus> = Vec::new();
    for object in list(case, "objects") {
        let mut object = object.clone();
        if !ignored.is_empty() {
            summary::exclude_ignored_conditions(&mut object, &ignored.iter().collect());
        }
        let not_ready = summary::non_ready(&object, &ErrorMapping::default(), now);
        // As a status has it.
        let reported = not_ready.map(|one| SensitiveData::default().redact_not_ready(one));
        found.extend(reported.map(RedactedDetail::into_inner));
    }
    found.sort_by(|left, right| left.uid.cmp(&right.uid));
    let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
    let got = serde_json::to_value(&found).unwrap_or(Value::Null);
    let or_empty = |value: &Value| {
        if value.is_null() {
            json!([])
        } else {
            value.clone()
        }
    };
    compare(&got, &or_empty(case.value("non_ready_status")))?;
    compare(&texts.into(), &or_empty(case.value("texts")))
}
