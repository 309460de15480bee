//! Sets of fields, as `managedFields` names them, and what can be done with an object by them.
//!
//! Mirrors `sigs.k8s.io/structured-merge-diff`: `fieldpath.Set`, `typed.Merge`, `Compare` and the pruning of `merge/update.go`.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value};

use super::schema::{List, Schema};

/// A tree of fields; the keys are those of `fieldsV1` (`f:name`, `k:{…}`, `v:…`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// Whether this very field belongs to the set.
    pub(crate) own: bool,
    pub(crate) children: BTreeMap<String, Fields>,
}

impl Fields {
    fn leaf() -> Self {
        Self {
            own: true,
            children: BTreeMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.own && self.children.is_empty()
    }

    fn put(&mut self, key: String, child: Self) {
        if !child.is_empty() {
            self.children.insert(key, child);
        }
    }

    pub(crate) fn union(&mut self, other: &Self) {
        self.own |= other.own;
        for (key, child) in &other.children {
            self.children.entry(key.clone()).or_default().union(child);
        }
    }

    pub(crate) fn minus(&self, other: &Self) -> Self {
        let mut left = Self {
            own: self.own && !other.own,
            ..Self::default()
        };
        for (key, child) in &self.children {
            match other.children.get(key) {
                Some(taken) => left.put(key.clone(), child.minus(taken)),
                None => left.put(key.clone(), child.clone()),
            }
        }
        left
    }

    pub(crate) fn common(&self, other: &Self) -> Self {
        let mut both = Self {
            own: self.own && other.own,
            ..Self::default()
        };
        for (key, child) in &self.children {
            if let Some(other) = other.children.get(key) {
                both.put(key.clone(), child.common(other));
            }
        }
        both
    }

    /// Reads `fieldsV1`. A field without others below is in the set itself.
    pub(crate) fn from_json(value: &Value) -> Self {
        let Some(map) = value.as_object() else {
            return Self::default();
        };
        let mut fields = Self {
            own: map.is_empty() || map.contains_key("."),
            ..Self::default()
        };
        for (key, child) in map.iter().filter(|(key, _)| *key != ".") {
            fields.children.insert(key.clone(), Self::from_json(child));
        }
        fields
    }

    /// The fields as an error names them: `.spec.replicas`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect(String::new(), &mut paths);
        paths
    }

    fn collect(&self, path: String, paths: &mut Vec<String>) {
        for (key, child) in &self.children {
            let step = match key.split_once(':') {
                Some(("k", keys)) => {
                    let keys: BTreeMap<String, Value> =
                        serde_json::from_str(keys).unwrap_or_default();
                    let keys: Vec<_> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
                    format!("[{}]", keys.join(","))
                }
                Some(("v", value)) => format!("[={value}]"),
                Some((_, name)) => format!(".{name}"),
                None => String::new(),
            };
            child.collect(format!("{path}{step}"), paths);
        }
        if self.own {
            paths.push(path);
        }
    }
}

/// As `fieldsV1` has them.
impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.own && !self.children.is_empty() {
            map.serialize_entry(".", &Map::new())?;
        }
        for (key, child) in &self.children {
            map.serialize_entry(key, child)?;
        }
        map.end()
    }
}

/// How an item of a keyed list is named.
fn item_key(item: &Value, keys: &[(&str, Option<&str>)]) -> String {
    let named: BTreeMap<&str, Value> = keys
        .iter()
        .filter_map(|(key, default)| {
            let found = item.get(key).cloned();
            Some((*key, found.or_else(|| default.map(Value::from))?))
        })
        .collect();
    format!("k:{}", serde_json::to_string(&named).unwrap_or_default())
}

/// All fields of a value.
pub(crate) fn of(value: &Value, schema: Schema<'_>) -> Fields {
    match value {
        Value::Object(map) if !map.is_empty() && !schema.is_atomic() => {
            let mut fields = Fields::default();
            for (key, child) in map.iter().filter(|(key, _)| schema.has_owners(key)) {
                fields.put(format!("f:{key}"), of(child, schema.below(key)));
            }
            fields
        }
        Value::Array(items) if !items.is_empty() => match schema.list() {
            List::Atomic => Fields::leaf(),
            List::Set => {
                let mut fields = Fields::default();
                for item in items {
                    fields.put(format!("v:{item}"), Fields::leaf());
                }
                fields
            }
            List::Keyed(keys) => {
                let mut fields = Fields::default();
                for item in items {
                    let mut child = of(item, schema.item());
                    child.own = true;
                    fields.put(item_key(item, keys), child);
                }
                fields
            }
        },
        _ => Fields::leaf(),
    }
}

/// What differs between two states: what is new or other, and what is gone.
pub(crate) fn compare(old: &Value, new: &Value, schema: Schema<'_>) -> (Fields, Fields) {
    let (mut changed, mut removed) = (Fields::default(), Fields::default());
    if old == new {
        return (changed, removed);
    }
    match (old, new) {
        (Value::Object(old), Value::Object(new)) if !schema.is_atomic() => {
            for (key, after) in new.iter().filter(|(key, _)| schema.has_owners(key)) {
                let below = schema.below(key);
                match old.get(key) {
                    Some(before) if before == after => {}
                    Some(before) => {
                        let (other, gone) = compare(before, after, below);
                        changed.put(format!("f:{key}"), other);
                        removed.put(format!("f:{key}"), gone);
                    }
                    None => changed.put(format!("f:{key}"), of(after, below)),
                }
            }
            let is_gone = |key: &str| schema.has_owners(key) && !new.contains_key(key);
            for (key, before) in old.iter().filter(|(key, _)| is_gone(key)) {
                // The field goes, with all that is below it.
                let mut gone = of(before, schema.below(key));
                gone.own = true;
                removed.put(format!("f:{key}"), gone);
            }
        }
        (Value::Array(old), Value::Array(new)) => match schema.list() {
            List::Atomic => changed.own = true,
            List::Set => {
                for item in new.iter().filter(|item| !old.contains(item)) {
                    changed.put(format!("v:{item}"), Fields::leaf());
                }
                for item in old.iter().filter(|item| !new.contains(item)) {
                    removed.put(format!("v:{item}"), Fields::leaf());
                }
            }
            List::Keyed(keys) => {
                let named = |items: &[Value]| -> BTreeMap<String, Value> {
                    let pairs = items
                        .iter()
                        .map(|item| (item_key(item, keys), item.clone()));
                    pairs.collect()
                };
                let (old, new) = (named(old), named(new));
                let whole = |item: &Value| {
                    let mut fields = of(item, schema.item());
                    fields.own = true;
                    fields
                };
                for (key, after) in &new {
                    match old.get(key) {
                        Some(before) => {
                            let (other, gone) = compare(before, after, schema.item());
                            changed.put(key.clone(), other);
                            removed.put(key.clone(), gone);
                        }
                        None => changed.put(key.clone(), whole(after)),
                    }
                }
                for (key, before) in old.iter().filter(|(key, _)| !new.contains_key(*key)) {
                    removed.put(key.clone(), whole(before));
                }
            }
        },
        _ => changed.own = true,
    }
    (changed, removed)
}

/// `live` with what `wanted` says laid over it.
pub(crate) fn merge(live: &Value, wanted: &Value, schema: Schema<'_>) -> Value {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) if !schema.is_atomic() => {
            let mut merged = live.clone();
            for (key, wanted) in wanted {
                let value = match live.get(key) {
                    Some(live) => merge(live, wanted, schema.below(key)),
                    None => wanted.clone(),
                };
                merged.insert(key.clone(), value);
            }
            Value::Object(merged)
        }
        (Value::Array(live), Value::Array(wanted)) => match schema.list() {
            List::Atomic => Value::Array(wanted.clone()),
            List::Set => {
                let new = wanted.iter().filter(|item| !live.contains(item));
                Value::Array(live.iter().chain(new).cloned().collect())
            }
            List::Keyed(keys) => {
                let mut merged = live.clone();
                for item in wanted {
                    let key = item_key(item, keys);
                    match merged.iter_mut().find(|live| item_key(live, keys) == key) {
                        Some(live) => *live = merge(live, item, schema.item()),
                        None => merged.push(item.clone()),
                    }
                }
                Value::Array(merged)
            }
        },
        _ => wanted.clone(),
    }
}

/// Takes from a value the fields of `gone`, unless `kept` names them or something below them. Says whether nothing is left.
pub(crate) fn prune(
    value: &mut Value,
    gone: &Fields,
    kept: Option<&Fields>,
    schema: Schema<'_>,
) -> bool {
    match value {
        Value::Object(map) if !schema.is_atomic() => {
            for (key, gone) in &gone.children {
                let Some(name) = key.strip_prefix("f:") else {
                    continue;
                };
                let kept = kept.and_then(|kept| kept.children.get(key));
                let Some(child) = map.get_mut(name) else {
                    continue;
                };
                let is_gone = if gone.children.is_empty() {
                    gone.own && kept.is_none_or(Fields::is_empty)
                } else {
                    prune(child, gone, kept, schema.below(name))
                        && kept.is_none_or(Fields::is_empty)
                };
                if is_gone {
                    map.remove(name);
                }
            }
            map.is_empty()
        }
        Value::Array(items) => {
            match schema.list() {
                List::Atomic => {}
                List::Set => items.retain(|item| {
                    let key = format!("v:{item}");
                    let is_kept = kept.is_some_and(|kept| kept.children.contains_key(&key));
                    is_kept || !gone.children.contains_key(&key)
                }),
                List::Keyed(keys) => items.retain_mut(|item| {
                    let key = item_key(item, keys);
                    let Some(gone) = gone.children.get(&key) else {
                        return true;
                    };
                    let kept = kept.and_then(|kept| kept.children.get(&key));
                    if gone.own && kept.is_none_or(Fields::is_empty) {
                        return false;
                    }
                    prune(item, gone, kept, schema.item());
                    true
                }),
            }
            items.is_empty()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_printed_as_the_server_prints_them() {
        let object = json!({"spec": {"replicas": 1, "template": {"spec": {"containers": [
            {"name": "web", "image": "a", "ports": [{"containerPort": 80}]}]}}}});
        let fields = of(&object, Schema::of("apps", "Deployment"));
        let printed = json!({"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
            "k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}, "f:ports": {
                "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}}}}});
        assert_eq!(serde_json::to_value(&fields).expect("texts"), printed);
        assert_eq!(Fields::from_json(&printed), fields);
        assert!(
            fields
                .paths()
                .contains(&".spec.template.spec.containers[name=\"web\"].image".to_owned())
        );
    }
}
