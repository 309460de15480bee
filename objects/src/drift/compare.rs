//! The cheap first look: does the live object visibly have every wanted field?

use serde_json::Value;

/// Whether every field of `wanted` stands in `live` with an equal value.
///
/// `true` is certain; `false` only means that the API server has to be asked: quantities, dates or
/// list order may differ in form alone. `status` and bookkeeping annotations are not looked at.
/// Lists must have equal length; a wanted null or empty list is taken as absent. An empty map is not: `emptyDir: {}`
/// may have become another volume.
pub fn covers(live: &Value, wanted: &Value) -> bool {
    let (Some(live), Some(wanted)) = (live.as_object(), wanted.as_object()) else {
        return live == wanted;
    };
    wanted
        .iter()
        .filter(|(field, _)| !matches!(field.as_str(), "status" | "metadata" | "stringData"))
        .all(|(field, value)| has(live.get(field), value))
        && covers_metadata(live.get("metadata"), wanted.get("metadata"))
        && covers_string_data(live.get("data"), wanted.get("stringData"))
}

fn covers_metadata(live: Option<&Value>, wanted: Option<&Value>) -> bool {
    let Some(wanted) = wanted.and_then(Value::as_object) else {
        return true;
    };
    wanted
        .iter()
        .filter(|(field, _)| *field != "creationTimestamp")
        .all(|(field, value)| {
            let live = live.and_then(|live| live.get(field));
            match (field.as_str(), value) {
                ("annotations", Value::Object(annotations)) => annotations
                    .iter()
                    .filter(|(key, _)| !super::patch::is_bookkeeping(key))
                    .all(|(key, value)| has(live.and_then(|live| live.get(key)), value)),
                _ => has(live, value),
            }
        })
}

/// `stringData` is written through `data`; anything but an obvious match is left to the server.
fn covers_string_data(data: Option<&Value>, wanted: Option<&Value>) -> bool {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let Some(wanted) = wanted.and_then(Value::as_object) else {
        return true;
    };
    wanted.iter().all(|(key, value)| {
        let live = data.and_then(|data| data.get(key)).and_then(Value::as_str);
        match (live, value.as_str()) {
            (Some(live), Some(text)) => live == BASE64_STANDARD.encode(text),
            _ => false,
        }
    })
}

fn has(live: Option<&Value>, wanted: &Value) -> bool {
    match (live, wanted) {
        (None, wanted) => is_nothing(wanted),
        (Some(Value::Object(live)), Value::Object(wanted)) => wanted
            .iter()
            .all(|(field, value)| has(live.get(field), value)),
        (Some(Value::Array(live)), Value::Array(wanted)) => {
            live.len() == wanted.len()
                && live
                    .iter()
                    .zip(wanted)
                    .all(|(live, wanted)| has(Some(live), wanted))
        }
        (Some(Value::Number(live)), Value::Number(wanted)) => {
            live == wanted || live.as_f64() == wanted.as_f64()
        }
        (Some(live), wanted) => live == wanted,
    }
}

/// Values that the API server may drop without a trace.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::equal(json!({"spec": {"a": 1}}), json!({"spec": {"a": 1}}), true)]
    #[case::defaulted(json!({"spec": {"a": 1, "b": "x"}}), json!({"spec": {"a": 1}}), true)]
    #[case::changed(json!({"spec": {"a": 2}}), json!({"spec": {"a": 1}}), false)]
    #[case::removed(json!({"spec": {}}), json!({"spec": {"a": 1}}), false)]
    #[case::null_is_absent(json!({}), json!({"spec": null}), true)]
    #[case::empty_list_is_absent(json!({"spec": {}}), json!({"spec": {"a": []}}), true)]
    #[case::empty_map_says_something(json!({"spec": {}}), json!({"spec": {"selfSigned": {}}}), false)]
    #[case::another_volume(
        json!({"volumes": [{"name": "tmp", "hostPath": {"path": "/"}}]}),
        json!({"volumes": [{"name": "tmp", "emptyDir": {}}]}),
        false
    )]
    #[case::whole_float(json!({"spec": {"a": 3}}), json!({"spec": {"a": 3.0}}), true)]
    #[case::longer_list(json!({"l": [{"a": 1}, {"a": 2}]}), json!({"l": [{"a": 1}]}), false)]
    #[case::list_items_defaulted(json!({"l": [{"a": 1, "b": 2}]}), json!({"l": [{"a": 1}]}), true)]
    #[case::status_is_the_servers(json!({}), json!({"status": {"x": 1}}), true)]
    #[case::string_data(json!({"data": {"k": "dg=="}}), json!({"stringData": {"k": "v"}}), true)]
    #[case::bookkeeping(
        json!({"metadata": {"annotations": {"objectset.rio.cattle.io/id": "other"}}}),
        json!({"metadata": {"annotations": {"objectset.rio.cattle.io/id": "mine"}}}),
        true
    )]
    fn covers_cases(#[case] live: Value, #[case] wanted: Value, #[case] expected: bool) {
        assert_eq!(covers(&live, &wanted), expected);
    }
}
