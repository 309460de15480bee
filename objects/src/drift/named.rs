//! What a prediction changes of the fields that are desired.
//!
//! Admission runs in a dry run too: what it adds or changes beside the desired fields nobody asked for, and the next dry run may have it
//! otherwise. So only what is named counts: fields by their names, elements of a list by what the API server tells them apart by.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::managed_fields;
use crate::merge::json::is_equal;
use crate::merge::schema::{Builtin, Shape, Strategy};

/// Knowledge about a place in an object.
#[derive(Clone, Copy)]
pub(super) enum Place<'p> {
    /// The fields we own in it, as `managedFields` has them; empty where the place is owned as a whole.
    Owned(&'p Map<String, Value>),
    /// The Go type of the place, and how it is merged where it is a field.
    Typed(Shape, Option<Strategy>),
    Unknown,
}

/// How elements of a list are told apart.
enum Elements {
    /// By these fields of theirs; by what they are where there are none.
    Keyed(Vec<String>),
    /// The list is one value.
    Atomic,
    Unknown,
}

impl<'p> Place<'p> {
    /// All that an apply of ours would leave.
    pub(super) fn applied(predicted: &'p Value) -> Self {
        managed_fields::applied(predicted).map_or(Self::Unknown, Self::Owned)
    }

    /// An object of a built-in kind.
    pub(super) fn typed(builtin: Builtin) -> Self {
        Self::Typed(builtin.root(), None)
    }

    /// The place of a field; `None` if the API server knows no such field.
    fn field(self, name: &str) -> Option<Self> {
        match self {
            Self::Owned(fields) if !fields.is_empty() => {
                let fields = fields.get(&format!("f:{name}")).and_then(Value::as_object);
                Some(fields.map_or(Self::Unknown, Self::Owned))
            }
            Self::Typed(shape, _) => {
                let field = shape.child(name)?;
                Some(field.map_or(Self::Unknown, |(shape, strategy)| {
                    Self::Typed(shape, strategy)
                }))
            }
            whole => Some(whole),
        }
    }

    fn elements(self) -> Elements {
        match self {
            Self::Owned(fields) => {
                let key = fields.keys().find_map(|name| name.strip_prefix("k:"));
                let key = key.and_then(|key| serde_json::from_str::<Map<String, Value>>(key).ok());
                match key {
                    Some(key) => Elements::Keyed(key.into_iter().map(|(name, _)| name).collect()),
                    None if fields.keys().any(|name| name.starts_with("v:")) => {
                        Elements::Keyed(Vec::new())
                    }
                    None => Elements::Atomic,
                }
            }
            Self::Typed(
                _,
                Some(Strategy {
                    kind: "merge",
                    merge_key,
                    ..
                }),
            ) => {
                // Go's types have one key for ports, the API server two.
                let protocol = matches!(merge_key, "port" | "containerPort").then_some("protocol");
                let keys = Some(merge_key).filter(|key| !key.is_empty());
                Elements::Keyed(
                    keys.into_iter()
                        .chain(protocol)
                        .map(str::to_owned)
                        .collect(),
                )
            }
            Self::Typed(shape, _) if shape.element().is_some() => Elements::Atomic,
            Self::Typed(..) | Self::Unknown => Elements::Unknown,
        }
    }

    /// The place of an element that no key leads to.
    fn element(self) -> Self {
        match self {
            Self::Typed(shape, _) => shape
                .element()
                .map_or(Self::Unknown, |shape| Self::Typed(shape, None)),
            Self::Owned(fields) if !fields.is_empty() => Self::Unknown,
            whole => whole,
        }
    }

    /// The places of elements that we own, by their keys.
    fn by_key(self, keys: &[String]) -> HashMap<String, Self> {
        let Self::Owned(fields) = self else {
            return HashMap::new();
        };
        let place = |(name, fields): (&String, &'p Value)| {
            let key: Value = serde_json::from_str(name.strip_prefix("k:")?).ok()?;
            Some((identity(&key, keys), Self::Owned(fields.as_object()?)))
        };
        fields.iter().filter_map(place).collect()
    }

    fn is_same(self, live: Option<&Value>, target: Option<&Value>) -> bool {
        match (self, live, target) {
            (_, None, Some(Value::Null)) | (Self::Typed(..), _, Some(Value::Null)) => true,
            // A field that is false has no default.
            (Self::Typed(shape, Some(_)), live, Some(target)) if shape.is_none(target) => {
                !target.is_boolean() || live != Some(&Value::Bool(true))
            }
            (Self::Typed(shape, _), Some(live), Some(target)) => shape.is_same(live, target),
            (_, Some(live), Some(target)) => is_equal(live, target),
            (_, live, target) => live.is_none() && target.is_none(),
        }
    }
}

/// Makes what is desired in `live` what it is in `target`, where it differs; the rest stays. Whether anything differed.
pub(super) fn take_over(
    live: &mut Map<String, Value>,
    target: &Map<String, Value>,
    desired: &Map<String, Value>,
    place: Place<'_>,
) -> bool {
    let mut differs = false;
    for (field, expected) in desired {
        let target = target.get(field);
        let Some(place) = place.field(field) else {
            continue;
        };
        if names_nothing(field, expected) || agree(live.get(field), target, expected, place) {
            continue;
        }
        differs = true;
        match (live.get_mut(field), target, expected) {
            (Some(Value::Object(live)), Some(Value::Object(target)), Value::Object(expected)) => {
                take_over(live, target, expected, place);
            }
            (_, Some(target), _) => {
                live.insert(field.clone(), target.clone());
            }
            (_, None, Value::Null) => {
                live.remove(field);
            }
            // A zero value, which the API server leaves out.
            (_, None, expected) => {
                live.insert(field.clone(), expected.clone());
            }
        }
    }
    differs
}

/// Charts write empty labels and annotations, which are none: who finds some there has them from somebody else.
fn names_nothing(field: &str, expected: &Value) -> bool {
    matches!(field, "annotations" | "labels") && expected.as_object().is_some_and(Map::is_empty)
}

/// Whether what is desired is in `live` what it is in `target`.
fn agree(live: Option<&Value>, target: Option<&Value>, desired: &Value, place: Place<'_>) -> bool {
    if live == target {
        return true;
    }
    // An omitted field counts as its zero value.
    let target = target.or(live.and(Some(desired)).filter(|desired| !desired.is_null()));
    match (live, target, desired) {
        (Some(Value::Array(live)), Some(Value::Array(target)), Value::Array(desired)) => {
            lists_agree(live, target, desired, place)
        }
        (None, Some(Value::Array(_)), Value::Array(desired)) if desired.is_empty() => true,
        (Some(Value::Object(live)), Some(Value::Object(target)), Value::Object(desired)) => {
            fields_agree(Some(live), target, desired, place)
        }
        (None, Some(Value::Object(target)), Value::Object(desired)) if !desired.is_empty() => {
            fields_agree(None, target, desired, place)
        }
        (live, target, _) => place.is_same(live, target),
    }
}

fn fields_agree(
    live: Option<&Map<String, Value>>,
    target: &Map<String, Value>,
    desired: &Map<String, Value>,
    place: Place<'_>,
) -> bool {
    desired.iter().all(|(field, expected)| {
        let live = live.and_then(|live| live.get(field));
        let agree = |place| agree(live, target.get(field), expected, place);
        names_nothing(field, expected) || place.field(field).is_none_or(agree)
    })
}

fn lists_agree(live: &[Value], target: &[Value], desired: &[Value], place: Place<'_>) -> bool {
    let elements = place.elements();
    if let Elements::Keyed(keys) = &elements {
        return keyed_agree(live, target, desired, place, keys);
    }
    let place = place.element();
    let is_ours = target.len() == desired.len();
    if is_ours && live.len() == target.len() {
        let mut all = live.iter().zip(target).zip(desired);
        return all
            .all(|((live, target), expected)| agree(Some(live), Some(target), expected, place));
    }
    if is_ours && matches!(elements, Elements::Atomic) {
        return false;
    }
    // Others have elements in it.
    let mut live = live.iter();
    let is_there = |expected| live.any(|live| agree(Some(live), Some(expected), expected, place));
    desired.iter().all(is_there)
}

/// Whether each desired element is in `live` what it is in `target`, in the same order. What else is there is somebody's.
fn keyed_agree(
    live: &[Value],
    target: &[Value],
    desired: &[Value],
    place: Place<'_>,
    keys: &[String],
) -> bool {
    let named = desired
        .iter()
        .map(|expected| (identity(expected, keys), expected));
    let named: HashMap<_, _> = named.collect();
    // The API server has defaults for keys.
    let is_partial = |expected: &&Value| keys.iter().any(|key| expected.get(key).is_none());
    let mut partial = desired.iter().filter(is_partial);
    let found = live.iter().enumerate();
    let found = found.map(|(at, element)| (identity(element, keys), (at, element)));
    let found: HashMap<_, _> = found.collect();
    let (places, element) = (place.by_key(keys), place.element());
    let mut behind = 0;
    target.iter().all(|target| {
        let key = identity(target, keys);
        let own = places.get(&key).copied();
        let expected = named.get(&key).copied();
        let Some(expected) = expected.or_else(|| own.and_then(|_| partial.next())) else {
            return true;
        };
        let Some(&(at, live)) = found.get(&key) else {
            return false;
        };
        let is_in_order = matches!(place, Place::Typed(..)) || at >= behind;
        behind = at;
        is_in_order && agree(Some(live), Some(target), expected, own.unwrap_or(element))
    })
}

/// What an element is told apart by.
fn identity(element: &Value, keys: &[String]) -> String {
    let value = |key: &String| match element.get(key) {
        Some(value) => value.clone(),
        None if key == "protocol" => "TCP".into(),
        None => Value::Null,
    };
    match keys {
        [] => element.to_string(),
        keys => Value::Array(keys.iter().map(value).collect()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::super::{Prediction, Rules, modification};
    use super::*;

    fn object(kind: &str, spec: Value) -> Value {
        let api_version = match kind {
            "Service" | "Pod" => "v1",
            _ => "example.com/v1",
        };
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "web"}, "spec": spec})
    }

    /// A prediction, with what we own of its spec.
    fn predicted(kind: &str, spec: Value, owned: Value) -> Prediction {
        let mut object = object(kind, spec);
        object["metadata"]["managedFields"] = json!([
            {"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {}},
            {"manager": "fleetagent", "operation": "Apply", "fieldsV1": {"f:spec": owned}},
        ]);
        Prediction::Server(object)
    }

    fn patch(kind: &str, live: Value, desired: Value, prediction: &Prediction) -> Option<Value> {
        let (live, desired) = (object(kind, live), object(kind, desired));
        let patch = modification(&live, &desired, prediction, &Rules::default())?;
        Some(patch["spec"].clone())
    }

    fn keyed(names: &[&str]) -> Value {
        let keys = names
            .iter()
            .map(|name| (format!("k:{{\"name\":\"{name}\"}}"), json!({})));
        json!({"f:list": Value::Object(keys.collect())})
    }

    /// Lists whose elements are told apart by their names, of which `a` and `b` are desired.
    #[rstest]
    #[case::a_webhook_adds_one(json!(["a", "b"]), json!(["a", "b", "w"]), true)]
    #[case::a_webhook_adds_another_one_each_time(json!(["w1", "a", "b"]), json!(["w2", "a", "b"]), true)]
    #[case::somebody_added_one(json!(["a", "x", "b"]), json!(["a", "x", "b"]), true)]
    #[case::one_is_missing(json!(["a", "x"]), json!(["a", "b", "x"]), false)]
    #[case::they_changed_places(json!(["b", "a"]), json!(["a", "b"]), false)]
    #[case::a_webhook_takes_one_out(json!(["a"]), json!(["a"]), true)]
    fn elements_with_keys(#[case] live: Value, #[case] prediction: Value, #[case] agree: bool) {
        let list = |names: &Value| {
            let names = names.as_array().unwrap().iter();
            let named = |name| json!({"name": name, "defaulted": true});
            json!({"list": names.map(named).collect::<Vec<_>>()})
        };
        let desired = json!({"list": [{"name": "a"}, {"name": "b"}]});
        let prediction = predicted("Thing", list(&prediction), keyed(&["a", "b"]));
        let found = patch("Thing", list(&live), desired, &prediction);
        assert_eq!(found.is_none(), agree, "{found:?}");
    }

    #[test]
    fn only_desired_fields_of_elements_count() {
        let list = |value: &str, stamp: &str| json!({"list": [{"name": "w"}, {"name": "a", "value": value, "stamp": stamp}]});
        let desired = json!({"list": [{"name": "a", "value": "1000m"}]});
        let prediction = predicted("Thing", list("1", "new"), keyed(&["a"]));
        assert_eq!(
            patch("Thing", list("1", "old"), desired.clone(), &prediction),
            None
        );
        let edited = patch("Thing", list("2", "old"), desired, &prediction);
        assert_eq!(edited, Some(list("1", "new")));
    }

    #[test]
    fn ports_are_told_apart_by_protocol_too() {
        let ports = |udp: u16| {
            json!({"ports": [{"port": 53, "protocol": "UDP", "targetPort": udp},
                             {"port": 53, "protocol": "TCP", "targetPort": 53}]})
        };
        let desired =
            json!({"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "targetPort": 53}]});
        let owned = json!({"f:ports": {
            "k:{\"port\":53,\"protocol\":\"TCP\"}": {}, "k:{\"port\":53,\"protocol\":\"UDP\"}": {},
        }});
        for prediction in [predicted("Service", ports(53), owned), Prediction::Estimate] {
            assert_eq!(
                patch("Service", ports(54), desired.clone(), &prediction),
                None
            );
            let mut edited = ports(53);
            edited["ports"][1]["targetPort"] = 54.into();
            assert!(patch("Service", edited, desired.clone(), &prediction).is_some());
        }
    }

    /// The list is one value, and `a` is desired.
    #[rstest]
    #[case::a_webhook_adds_a_value(json!(["a"]), json!(["a", "w"]), true)]
    #[case::a_webhook_adds_another_one_each_time(json!(["a", "w1"]), json!(["a", "w2"]), true)]
    #[case::somebody_added_a_value(json!(["a", "x"]), json!(["a"]), false)]
    #[case::it_was_changed(json!(["x"]), json!(["a"]), false)]
    #[case::it_was_emptied(json!([]), json!(["a"]), false)]
    fn whole_lists(#[case] live: Value, #[case] prediction: Value, #[case] agree: bool) {
        let list = |values| json!({"list": values});
        let prediction = predicted("Thing", list(prediction), json!({"f:list": {}}));
        let found = patch("Thing", list(live), list(json!(["a"])), &prediction);
        assert_eq!(found.is_none(), agree, "{found:?}");
    }

    #[test]
    fn a_list_inside_an_atomic_list_is_compared_as_a_whole() {
        let rules = |verbs: &[&str]| json!({"rules": [{"rule": {"verbs": verbs}}]});
        let prediction = predicted("Thing", rules(&["get"]), json!({"f:rules": {}}));
        let found = patch(
            "Thing",
            rules(&["get", "delete"]),
            rules(&["get"]),
            &prediction,
        );
        assert_eq!(found, Some(rules(&["get"])));
    }

    /// The prediction where this is desired, and whether live has that.
    #[rstest]
    #[case::not_desired(json!({}), json!({"a": 5}), json!({"a": 1}), None)]
    #[case::a_webhooks_annotation(json!({"annotations": {}}), json!({}), json!({"annotations": {"w": "1"}}), None)]
    #[case::changed(json!({"a": 1}), json!({"a": 2, "b": 1}), json!({"a": 1, "b": 2}), Some(json!({"a": 1})))]
    #[case::removed(json!({"a": {"b": 1}}), json!({}), json!({"a": {"b": 1}}), Some(json!({"a": {"b": 1}})))]
    #[case::defaulted_as_null(json!({"a": null}), json!({"a": 5}), json!({"a": 1}), Some(json!({"a": 1})))]
    #[case::taken_away_as_null(json!({"a": null}), json!({"a": 5}), json!({}), None)]
    // The API server leaves out what is false, and says nothing of it.
    #[case::zero(json!({"a": false}), json!({"a": true}), json!({}), Some(json!({"a": false})))]
    #[case::zero_as_it_is(json!({"a": false}), json!({}), json!({}), None)]
    #[case::an_empty_object_that_says_something(
        json!({"ours": {}}), json!({"theirs": {}}), json!({"ours": {"defaulted": 1}, "theirs": {}}),
        Some(json!({"ours": {"defaulted": 1}}))
    )]
    fn fields(
        #[case] desired: Value,
        #[case] live: Value,
        #[case] prediction: Value,
        #[case] expected: Option<Value>,
    ) {
        let prediction = predicted("Thing", prediction, json!({}));
        assert_eq!(patch("Thing", live, desired, &prediction), expected);
    }

    #[test]
    fn text_of_a_secret_is_data() {
        let secret = |field: &str, value: &str| json!({"apiVersion": "v1", "kind": "Secret", field: {"a": value}});
        let (desired, written) = (secret("stringData", "v"), secret("data", "dg=="));
        let edited = secret("data", "eA==");
        for prediction in [Prediction::Server(written.clone()), Prediction::Estimate] {
            let patch = |live| modification(live, &desired, &prediction, &Rules::default());
            assert_eq!(patch(&written), None);
            assert!(patch(&edited).is_some());
        }
    }

    fn pod(container: Value) -> Value {
        let mut whole = json!({"name": "web", "imagePullPolicy": "Always", "resources": {}});
        whole
            .as_object_mut()
            .unwrap()
            .extend(container.as_object().unwrap().clone());
        json!({"containers": [{"name": "injected"}, whole], "dnsPolicy": "ClusterFirst",
               "tolerations": [{"key": "a", "operator": "Exists"}],
               "volumes": [{"name": "token"}, {"name": "tmp", "emptyDir": {}}]})
    }

    /// The API server's forms and defaults are no drift where it refuses to predict either.
    #[rstest]
    #[case::defaults(json!({"containers": [{"name": "web"}]}), pod(json!({})))]
    #[case::quantity(
        json!({"containers": [{"name": "web", "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}}]}),
        pod(json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}))
    )]
    #[case::zero(json!({"hostNetwork": false, "hostname": "", "nodeSelector": {}, "tolerations": null}), pod(json!({})))]
    #[case::defaulted_zero(
        json!({"containers": [{"name": "web", "livenessProbe": {"periodSeconds": 0}}]}),
        pod(json!({"livenessProbe": {"periodSeconds": 10}}))
    )]
    #[case::elements_of_whole_lists(json!({"tolerations": [{"key": "a"}]}), pod(json!({})))]
    #[case::volumes(json!({"volumes": [{"name": "tmp", "emptyDir": {}}]}), pod(json!({})))]
    #[case::unknown_field(json!({"containers": [{"name": "web", "foo": 1}]}), pod(json!({})))]
    fn an_estimate_invents_no_drift(#[case] desired: Value, #[case] live: Value) {
        assert_eq!(patch("Pod", live, desired, &Prediction::Estimate), None);
    }

    #[rstest]
    #[case::value(json!({"containers": [{"name": "web", "image": "b"}]}), pod(json!({"image": "a"})))]
    #[case::quantity(
        json!({"containers": [{"name": "web", "resources": {"limits": {"cpu": "1"}}}]}),
        pod(json!({"resources": {"limits": {"cpu": "1001m"}}}))
    )]
    #[case::element(json!({"containers": [{"name": "other"}]}), pod(json!({})))]
    #[case::another_volume(
        json!({"volumes": [{"name": "tmp", "emptyDir": {}}]}),
        json!({"volumes": [{"name": "tmp", "hostPath": {"path": "/"}}]})
    )]
    #[case::on(json!({"hostNetwork": false}), json!({"hostNetwork": true}))]
    #[case::zero_of_a_pointer(json!({"terminationGracePeriodSeconds": 0}), json!({"terminationGracePeriodSeconds": 30}))]
    #[case::empty_value_of_a_map(json!({"nodeSelector": {"a": ""}}), json!({"nodeSelector": {"a": "x"}}))]
    #[case::more_of_a_whole_list(
        json!({"tolerations": [{"key": "a"}]}), json!({"tolerations": [{"key": "a"}, {"operator": "Exists"}]})
    )]
    fn an_estimate_tells_what_visibly_differs(#[case] desired: Value, #[case] live: Value) {
        let patch = patch("Pod", live, desired.clone(), &Prediction::Estimate);
        assert_eq!(patch, Some(desired));
    }

    /// Of other kinds it is not known how lists are merged.
    #[rstest]
    #[case::defaulted_elements(json!([{"a": 1}]), json!([{"a": 1, "b": 2}]), true)]
    #[case::more_elements(json!([{"a": 1}]), json!([{"x": 1}, {"a": 1, "b": 2}]), true)]
    #[case::changed(json!([{"a": 1}]), json!([{"a": 2}]), false)]
    #[case::fewer(json!([1, 2]), json!([2]), false)]
    #[case::another_form(json!(["1000m"]), json!(["1"]), false)]
    fn an_estimate_of_an_unknown_kind(
        #[case] desired: Value,
        #[case] live: Value,
        #[case] agree: bool,
    ) {
        let list = |list| json!({"list": list});
        let found = patch("Thing", list(live), list(desired), &Prediction::Estimate);
        assert_eq!(found.is_none(), agree, "{found:?}");
    }
}
