//! Drift: how a live object differs from the one a release wants.
//!
//! Two pure steps with one question to the API server between them:
//!
//! 1. [`covers`] clears, without a request, the objects that visibly have every desired field.
//! 2. For the rest the caller asks the API server for its prediction (a server-side apply with
//!    `dryRun=All`), so that defaulting and canonical forms are the cluster's own and not
//!    compiled in.
//! 3. [`modification`] compares the desired fields in prediction and live under the [`Rules`] of the release and gives
//!    the merge patch that would put the object right, or nothing.
//!
//! Mirrors Fleet's `internal/cmd/agent/deployer/desiredset` in what it reports.

mod autoscaler;
mod named;
mod patch;
mod rules;

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::discovery::group_version;
use crate::fields::text;
use crate::merge;
use named::Place;

pub use autoscaler::{MalformedAutoscaler, hold_replicas, is_autoscaler};
pub use patch::MASK;
pub use rules::{Operation, Rule, Rules, RulesError};

/// What an object will be once it is applied.
#[derive(Debug, Clone, PartialEq)]
pub enum Prediction {
    /// As the API server says: what a forced apply of the desired object would leave, `managedFields` included.
    Server(Value),
    /// The API server refuses the object and predicts nothing: the desired object counts, by the types of Kubernetes as far as they are known here.
    Estimate,
}

/// The merge patch that makes what is desired in `live` what it is in the prediction, or `None` where they agree under `rules`.
///
/// What the desired object does not name never counts: fields and elements that somebody, the API server or a webhook adds or changes, even
/// where applying would take them away. Nor do server-kept fields, status and Fleet-style bookkeeping annotations. Values of a
/// Secret are replaced by [`MASK`], so that the patch may be shown.
///
/// ```
/// use objects::drift::{Prediction, Rules, modification};
/// use serde_json::json;
///
/// let config_map = |value| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value}});
/// let (edited, desired) = (config_map("edited"), config_map("1"));
/// let mut predicted = desired.clone();
/// predicted["data"]["b"] = "a webhook's".into();
/// let prediction = Prediction::Server(predicted);
/// let patch = modification(&edited, &desired, &prediction, &Rules::default());
/// assert_eq!(patch, Some(json!({"data": {"a": "1"}})));
/// assert_eq!(modification(&desired, &desired, &prediction, &Rules::default()), None);
/// ```
pub fn modification(
    live: &Value,
    desired: &Value,
    prediction: &Prediction,
    rules: &Rules,
) -> Option<Value> {
    let is_secret = is_secret(live);
    let desired = match is_secret {
        true => with_string_data(desired),
        false => Cow::Borrowed(desired),
    };
    let (target, place) = match prediction {
        Prediction::Server(predicted) => (predicted, Place::applied(predicted)),
        Prediction::Estimate => {
            let builtin = merge::builtin(live).filter(|builtin| builtin.fits(&desired));
            (&*desired, builtin.map_or(Place::Unknown, Place::typed))
        }
    };
    let mut expected = live.clone();
    let differs = named::take_over(
        expected.as_object_mut()?,
        target.as_object()?,
        desired.as_object()?,
        place,
    );
    if !differs {
        return None;
    }
    let normalised = |mut object: Value| {
        patch::strip_server_fields(&mut object);
        rules.normalise(&mut object);
        object
    };
    let mut found = merge::json::create(&normalised(live.clone()), &normalised(expected))?;
    patch::strip_bookkeeping(&mut found);
    patch::strip_removals(&mut found);
    if is_secret {
        patch::mask_secret(&mut found);
    }
    let is_empty = found.as_object().is_some_and(Map::is_empty);
    (!is_empty).then_some(found)
}

fn is_secret(object: &Value) -> bool {
    let (group, _) = group_version(text(object, "/apiVersion"));
    group.is_empty() && text(object, "/kind") == "Secret"
}

/// A Secret with its `stringData` where the API server writes it.
fn with_string_data(desired: &Value) -> Cow<'_, Value> {
    if desired.get("stringData").is_none() {
        return Cow::Borrowed(desired);
    }
    let mut desired = desired.clone();
    let texts = desired["stringData"].take();
    let mut data = match desired["data"].take() {
        Value::Object(data) => data,
        _ => Map::new(),
    };
    for (key, text) in texts.as_object().into_iter().flatten() {
        let text = text.as_str().map(golib::base64::encode);
        data.extend(text.map(|text| (key.clone(), text.into())));
    }
    desired["data"] = data.into();
    Cow::Owned(desired)
}

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
                    .filter(|(key, _)| !patch::is_bookkeeping(key))
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
    use serde_json::json;

    use super::*;

    fn config_map(name: &str, data: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
               "metadata": {"name": name, "namespace": "ns"}, "data": data})
    }

    fn predicted_patch(live: &Value, desired: &Value, predicted: Value) -> Option<Value> {
        modification(
            live,
            desired,
            &Prediction::Server(predicted),
            &Rules::default(),
        )
    }

    #[test]
    fn an_edited_key_is_reported_and_an_added_one_is_not() {
        let live = config_map("a", json!({"x": "edited", "added": "y"}));
        let predicted = config_map("a", json!({"x": "1", "added": "y"}));
        let desired = config_map("a", json!({"x": "1"}));
        let patch = predicted_patch(&live, &desired, predicted);
        assert_eq!(patch, Some(json!({"data": {"x": "1"}})));
        assert_eq!(predicted_patch(&live, &desired, live.clone()), None);
    }

    #[test]
    fn a_secret_shows_which_keys_differ_but_not_their_values() {
        let secret = |data: Value| {
            json!({"apiVersion": "v1", "kind": "Secret",
                   "metadata": {"name": "s", "namespace": "ns"}, "data": data})
        };
        let live = secret(json!({"token": "b2xk", "added": "eA=="}));
        let predicted = secret(json!({"token": "bmV3"}));
        let patch = predicted_patch(&live, &predicted, predicted.clone()).unwrap();
        assert_eq!(patch, json!({"data": {"token": MASK}}));
    }

    #[test]
    fn added_fields_are_no_drift_even_where_an_apply_removes_them() {
        // A selector is owned as a whole: applying replaces it.
        let service = |selector: Value| {
            json!({"apiVersion": "v1", "kind": "Service",
                   "metadata": {"name": "s", "namespace": "ns"}, "spec": {"selector": selector}})
        };
        let predicted = service(json!({"app": "web"}));
        let replaced = service(json!({"env": "edited"}));
        assert_eq!(
            predicted_patch(&replaced, &predicted, predicted.clone()),
            Some(json!({"spec": {"selector": {"app": "web"}}}))
        );
        let extended = service(json!({"app": "web", "env": "added"}));
        assert_eq!(
            predicted_patch(&extended, &predicted, predicted.clone()),
            None
        );
    }

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
