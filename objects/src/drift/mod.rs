//! Drift: how a live object differs from the one a release wants.
//!
//! Two pure steps with one question to the API server between them:
//!
//! 1. [`covers`] clears, without a request, the objects that visibly have every desired field.
//! 2. For the rest the caller asks the API server for its prediction (a server-side apply with
//!    `dryRun=All`), so that defaulting and canonical forms are the cluster's own and not
//!    compiled in.
//! 3. [`modification`] compares prediction and live under the [`Rules`] of the release and gives
//!    the merge patch that would put the object right, or nothing.
//!
//! Mirrors Fleet's `internal/cmd/agent/deployer/desiredset` in what it reports.

mod autoscaler;
mod compare;
mod patch;
mod rules;

use serde_json::Value;

use crate::discovery::group_version;
use crate::fields::text;
use crate::merge;

pub use autoscaler::{MalformedAutoscaler, hold_replicas};
pub use compare::covers;
pub use patch::MASK;
pub use rules::{Operation, Rule, Rules, RulesError};

/// The merge patch from `live` to `predicted` (what a forced apply of the desired object would
/// leave), or `None` where they agree under `rules`.
///
/// Server-kept fields, status and Fleet-style bookkeeping annotations never count, nor does what the
/// live object has beyond the desired one, even where applying would take it away. Values of a
/// Secret are replaced by [`MASK`], so that the patch may be shown.
///
/// ```
/// use objects::drift::{Rules, modification};
/// use serde_json::json;
///
/// let config_map = |value| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value}});
/// let (edited, desired) = (config_map("edited"), config_map("1"));
/// let patch = modification(&edited, &desired, &Rules::default());
/// assert_eq!(patch, Some(json!({"data": {"a": "1"}})));
/// assert_eq!(modification(&desired, &desired, &Rules::default()), None);
/// ```
pub fn modification(live: &Value, predicted: &Value, rules: &Rules) -> Option<Value> {
    let normalised = |object: &Value| {
        let mut object = object.clone();
        patch::strip_server_fields(&mut object);
        rules.normalise(&mut object);
        object
    };
    let mut found = merge::json::create(&normalised(live), &normalised(predicted))?;
    patch::strip_bookkeeping(&mut found);
    patch::strip_removals(&mut found);
    let (group, _) = group_version(text(live, "/apiVersion"));
    if group.is_empty() && text(live, "/kind") == "Secret" {
        patch::mask_secret(&mut found);
    }
    let is_empty = found.as_object().is_some_and(serde_json::Map::is_empty);
    (!is_empty).then_some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config_map(name: &str, data: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
               "metadata": {"name": name, "namespace": "ns"}, "data": data})
    }

    #[test]
    fn an_edited_key_is_reported_and_an_added_one_is_not() {
        let live = config_map("a", json!({"x": "edited", "added": "y"}));
        let predicted = config_map("a", json!({"x": "1", "added": "y"}));
        let patch = modification(&live, &predicted, &Rules::default());
        assert_eq!(patch, Some(json!({"data": {"x": "1"}})));
        assert_eq!(modification(&live, &live, &Rules::default()), None);
    }

    #[test]
    fn a_secret_shows_which_keys_differ_but_not_their_values() {
        let secret = |data: Value| {
            json!({"apiVersion": "v1", "kind": "Secret",
                   "metadata": {"name": "s", "namespace": "ns"}, "data": data})
        };
        let live = secret(json!({"token": "b2xk", "added": "eA=="}));
        let predicted = secret(json!({"token": "bmV3"}));
        let patch = modification(&live, &predicted, &Rules::default()).unwrap();
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
            modification(&replaced, &predicted, &Rules::default()),
            Some(json!({"spec": {"selector": {"app": "web"}}}))
        );
        let extended = service(json!({"app": "web", "env": "added"}));
        assert_eq!(modification(&extended, &predicted, &Rules::default()), None);
    }
}
