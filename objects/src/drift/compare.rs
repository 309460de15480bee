//! The cheap first look: does the live object visibly have every desired field?

use serde_json::Value;

/// Whether every field of `desired` stands in `live` with an equal value.
///
/// `true` is certain; `false` only means that the API server has to be asked: quantities, dates or
/// list order may differ in form alone. `status` and bookkeeping annotations are not looked at.
/// Lists must have equal length; a desired null or empty list is taken as absent. An empty map is not: `emptyDir: {}`
/// may have become another volume.
///
/// ```
/// use objects::drift::covers;
/// use serde_json::json;
///
/// let desired = json!({"kind": "ConfigMap", "data": {"a": "1"}});
/// let live = json!({"kind": "ConfigMap", "data": {"a": "1", "added": "x"}});
/// assert!(covers(&live, &desired));
/// assert!(!covers(&desired, &live));
/// ```
pub fn covers(live: &Value, desired: &Value) -> bool {
    let (Some(live), Some(desired)) = (live.as_object(), desired.as_object()) else {
        return live == desired;
    };
    desired
        .iter()
        .filter(|(field, _)| !matches!(field.as_str(), "status" | "metadata" | "stringData"))
        .all(|(field, value)| has(live.get(field), value))
        && covers_metadata(live.get("metadata"), desired.get("metadata"))
        && covers_string_data(live.get("data"), desired.get("stringData"))
}

fn covers_metadata(live: Option<&Value>, desired: Option<&Value>) -> bool {
    let Some(desired) = desired.and_then(Value::as_object) else {
        return true;
    };
    desired
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
fn covers_string_data(data: Option<&Value>, desired: Option<&Value>) -> bool {
    let Some(desired) = desired.and_then(Value::as_object) else {
        return true;
    };
    desired.iter().all(|(key, value)| {
        let live = data.and_then(|data| data.get(key)).and_then(Value::as_str);
        match (live, value.as_str()) {
            (Some(live), Some(text)) => live == golib::base64::encode(text),
            _ => false,
        }
    })
}

fn has(live: Option<&Value>, desired: &Value) -> bool {
    match (live, desired) {
        (None, desired) => is_nothing(desired),
        (Some(Value::Object(live)), Value::Object(desired)) => desired
            .iter()
            .all(|(field, value)| has(live.get(field), value)),
        (Some(Value::Array(live)), Value::Array(desired)) => {
            live.len() == desired.len()
                && live
                    .iter()
                    .zip(desired)
                    .all(|(live, desired)| has(Some(live), desired))
        }
        (Some(Value::Number(live)), Value::Number(desired)) => {
            live == desired || live.as_f64() == desired.as_f64()
        }
        (Some(live), desired) => live == desired,
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
    fn covers_cases(#[case] live: Value, #[case] desired: Value, #[case] expected: bool) {
        assert_eq!(covers(&live, &desired), expected);
    }
}
