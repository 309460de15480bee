//! The meaning of conditions: data, not code.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// Condition types that are True when all is well: False is an error, Unknown is transitioning.
/// Beside each the state it puts the object in.
#[rustfmt::skip]
const STATE_WHEN_NOT_TRUE: [(&str, &str); 38] = [
    ("AbleToScale", "pending"), ("Active", "activating"), ("AddonDeploy", "provisioning"),
    ("AgentDeployed", "provisioning"), ("BackingNamespaceCreated", "configuring"), ("Built", "building"),
    ("CertsGenerated", "provisioning"), ("ConfigOK", "configuring"), ("Created", "creating"),
    ("CreatorMadeOwner", "configuring"), ("DefaultNamespaceAssigned", "configuring"),
    ("DefaultNetworkPolicyCreated", "configuring"), ("DefaultProjectCreated", "configuring"), ("Deployed", "deploying"),
    ("DockerProvisioned", "provisioning"), ("Downloaded", "downloading"), ("Drained", "draining"),
    ("Inactive", "deactivating"), ("InitialRolesPopulated", "activating"), ("Initialized", "initializing"),
    ("Installed", "installing"), ("NodesCreated", "provisioning"), ("Pending", "pending"),
    ("PodScheduled", "scheduling"), ("Processed", "processed"), ("Provisioned", "provisioning"),
    ("Reconciled", "reconciling"), ("Refreshed", "refreshed"), ("Registered", "registering"), ("Removed", "removing"),
    ("RunCompleted", "running"), ("Saved", "saving"), ("ScalingActive", "pending"), ("Updated", "updating"),
    ("Updating", "updating"), ("Upgraded", "upgrading"), ("Waiting", "waiting"), ("etcd", "provisioning"),
];

/// The state of an object whose condition of this type is not True; `None` for other types.
pub(super) fn state_when_not_true(condition_type: &str) -> Option<&'static str> {
    let index = STATE_WHEN_NOT_TRUE
        .binary_search_by_key(&condition_type, |row| row.0)
        .ok()?;
    Some(STATE_WHEN_NOT_TRUE[index].1)
}

/// Condition type to the statuses of it that are errors.
type Rules = BTreeMap<String, BTreeSet<String>>;

/// The conditions of each kind that are errors, whatever their reason.
#[derive(Debug, Clone)]
pub struct ErrorMapping {
    /// By group, version and kind; the row of three empty strings serves every other kind.
    kinds: BTreeMap<(String, String, String), Rules>,
    none: Rules,
}

/// Why the text of `CATTLE_WRANGLER_CHECK_GVK_ERROR_MAPPING` was not taken.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// Not JSON of the documented shape.
    #[error("failed to parse the condition mapping")]
    Json(#[source] serde_json::Error),
    /// A `gvk` that is not `group/version, Kind=Kind`.
    #[error("gvk parsing failed: wrong GVK format: <{0}>")]
    Kind(String),
}

#[derive(Deserialize)]
struct KindMapping {
    #[serde(default)]
    gvk: String,
    #[serde(default, rename = "conditionMappings")]
    condition_mappings: Vec<ConditionMapping>,
}

#[derive(Deserialize)]
struct ConditionMapping {
    #[serde(default, rename = "type")]
    condition_type: String,
    #[serde(default)]
    status: Vec<String>,
}

/// A condition type and the statuses of it that are errors.
type Row<'a> = (&'a str, &'a [&'a str]);

impl Default for ErrorMapping {
    fn default() -> Self {
        let rows: [(&str, &str, &str, &[Row<'_>]); 5] = [
            (
                "helm.cattle.io",
                "v1",
                "HelmChart",
                &[("JobCreated", &[]), ("Failed", &["True"])],
            ),
            (
                "",
                "v1",
                "Node",
                &[
                    ("OutOfDisk", &["True"]),
                    ("MemoryPressure", &["True"]),
                    ("DiskPressure", &["True"]),
                    ("NetworkUnavailable", &["True"]),
                ],
            ),
            (
                "apps",
                "v1",
                "Deployment",
                &[("ReplicaFailure", &["True"]), ("Progressing", &["False"])],
            ),
            ("apps", "v1", "ReplicaSet", &[("ReplicaFailure", &["True"])]),
            ("", "", "", &[("Stalled", &["True"]), ("Failed", &["True"])]),
        ];
        let own = |text: &str| text.to_owned();
        let kinds = rows
            .into_iter()
            .map(|(group, version, kind, rules)| {
                let rules = rules
                    .iter()
                    .map(|(kind, statuses)| (own(kind), statuses.iter().map(|s| own(s)).collect()))
                    .collect();
                ((own(group), own(version), own(kind)), rules)
            })
            .collect();
        Self {
            kinds,
            none: Rules::new(),
        }
    }
}

impl ErrorMapping {
    /// The built-in table with the text of `CATTLE_WRANGLER_CHECK_GVK_ERROR_MAPPING` merged over
    /// it: a condition named there replaces its set of statuses, all others stay.
    ///
    /// # Errors
    /// The text is not the documented JSON; nothing of it applies then.
    pub fn with_overrides(json: &str) -> Result<Self, MappingError> {
        let mut mapping = Self::default();
        let overrides: Vec<KindMapping> = serde_json::from_str(json).map_err(MappingError::Json)?;
        for row in overrides {
            let (version, kind) = row
                .gvk
                .split_once('/')
                .and_then(|(group, rest)| {
                    let (version, kind) = rest.rsplit_once(',')?;
                    let kind = kind.trim_start().strip_prefix("Kind=")?;
                    (!kind.is_empty()).then_some(((group, version), kind))
                })
                .ok_or_else(|| MappingError::Kind(row.gvk.clone()))?;
            let key = (version.0.to_owned(), version.1.to_owned(), kind.to_owned());
            let rules = mapping.kinds.entry(key).or_default();
            for condition in row.condition_mappings {
                rules.insert(
                    condition.condition_type,
                    condition.status.into_iter().collect(),
                );
            }
        }
        Ok(mapping)
    }

    pub(super) fn for_kind(&self, api_version: &str, kind: &str) -> &Rules {
        let (group, version) = objects::group_version(api_version);
        let row = |key: [&str; 3]| self.kinds.get(&key.map(str::to_owned).into());
        row([group, version, kind])
            .or_else(|| row(["", "", ""]))
            .unwrap_or(&self.none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_for_the_binary_search() {
        assert!(STATE_WHEN_NOT_TRUE.is_sorted());
        assert_eq!(state_when_not_true("etcd"), Some("provisioning"));
        assert_eq!(state_when_not_true("Ready"), None);
    }

    #[test]
    fn an_override_replaces_the_statuses_of_a_condition_and_keeps_the_others() {
        let json = r#"[{"gvk": "helm.cattle.io/v1, Kind=HelmChart",
            "conditionMappings": [{"type": "Failed", "status": ["False"]}, {"type": "Odd"}]}]"#;
        let mapping = ErrorMapping::with_overrides(json).unwrap();
        let rules = mapping.for_kind("helm.cattle.io/v1", "HelmChart");
        assert_eq!(rules["Failed"], BTreeSet::from(["False".to_owned()]));
        assert!(rules["JobCreated"].is_empty() && rules["Odd"].is_empty());
    }

    #[test]
    fn a_kind_without_a_version_is_refused() {
        let error = ErrorMapping::with_overrides(r#"[{"gvk": "Node"}]"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "gvk parsing failed: wrong GVK format: <Node>"
        );
    }
}
