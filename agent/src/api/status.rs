//! BundleDeployment status: what the agent reports, and the words upstream shows for it.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use objects::ObjectKey;
use serde::{Deserialize, Serialize};

use super::omit_empty;

omit_empty! {
    /// `status` of a BundleDeployment. `display` belongs to the controller.
    pub struct BundleDeploymentStatus {
        pub conditions: Vec<Condition>,
        #[serde(rename = "appliedDeploymentID")]
        pub applied_deployment_id: String,
        /// `<namespace>/<name>:<revision>`.
        pub release: String,
        pub ready: bool,
        pub non_modified: bool,
        pub non_ready_status: Vec<NonReadyStatus>,
        pub modified_status: Vec<ModifiedStatus>,
        /// One of the two lists above was cut, or that of all objects.
        pub incomplete_state: bool,
        /// Written whenever the deployment is monitored, 0 included.
        pub sync_generation: Option<i64>,
        pub resources: Vec<BundleDeploymentResource>,
        pub downstream_resources_generation: i64,
        ;
        pub display: BundleDeploymentDisplay,
        pub resource_counts: ResourceCounts,
    }

    /// A condition. `last_transition_time` is upstream's field too and is never set.
    pub struct Condition {
        /// RFC 3339; changes only together with status or message.
        pub last_update_time: String,
        pub last_transition_time: String,
        pub reason: String,
        pub message: String,
        ;
        #[serde(rename = "type")]
        pub type_: String,
        /// `True`, `False` or `Unknown`.
        pub status: String,
    }

    /// Columns of `kubectl get`; written by the controller.
    pub struct BundleDeploymentDisplay {
        pub deployed: String,
        pub monitored: String,
        pub state: String,
    }

    /// A live object of the release.
    pub struct BundleDeploymentResource {
        pub kind: String,
        pub api_version: String,
        pub namespace: String,
        pub name: String,
        ;
        /// `null` while unknown, as Go prints its zero time.
        pub created_at: Option<Time>,
    }

    /// An object that is not ready yet.
    pub struct NonReadyStatus {
        pub uid: String,
        pub kind: String,
        pub api_version: String,
        pub namespace: String,
        pub name: String,
        ;
        pub summary: Summary,
    }

    /// Why an object is not ready.
    pub struct Summary {
        pub state: String,
        pub error: bool,
        pub transitioning: bool,
        pub message: Vec<String>,
    }

    /// An object that differs from the manifest.
    pub struct ModifiedStatus {
        pub kind: String,
        pub api_version: String,
        pub namespace: String,
        pub name: String,
        /// Upstream's `Create`: no owned object of that name.
        pub missing: bool,
        /// With `missing`: the object is there but carries another owner's marks, or none.
        pub exist: bool,
        /// Upstream's `Delete`: owned, and not in the manifest any more.
        #[serde(rename = "delete")]
        pub extra: bool,
        /// JSON merge patch from the live object to the wanted one.
        pub patch: String,
    }
}

/// Objects by state. All eight are always written; `wait_applied` and `unknown` stay 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceCounts {
    pub ready: i64,
    pub desired_ready: i64,
    pub wait_applied: i64,
    pub modified: i64,
    pub orphaned: i64,
    pub missing: i64,
    pub unknown: i64,
    pub not_ready: i64,
}

/// `deployment.apps ns/name`, as upstream names an object in messages.
fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> String {
    let mut text = kind.to_lowercase();
    let group = api_version.split('/').next().unwrap_or_default();
    if !group.is_empty() {
        text = format!("{text}.{group}");
    }
    match namespace {
        "" => format!("{text} {name}"),
        _ => format!("{text} {namespace}/{name}"),
    }
}

impl fmt::Display for NonReadyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = object(&self.api_version, &self.kind, &self.namespace, &self.name);
        write!(f, "{object} {}", self.summary)
    }
}

impl Summary {
    /// Whether the object counts as ready.
    pub fn is_ready(&self) -> bool {
        !self.error && !self.transitioning
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = match (self.transitioning, self.error) {
            (false, false) => return f.write_str(&self.state),
            (true, false) => "[progressing]",
            (true, true) => "[progressing,error]",
            // The bracket is missing upstream too (summary.go, v0.16).
            (false, true) => "error]",
        };
        f.write_str(flags)?;
        if !self.message.is_empty() {
            write!(f, " {}", self.message.join(", "))?;
        }
        Ok(())
    }
}

impl ModifiedStatus {
    /// Key of the modified object.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.api_version, &self.kind, &self.namespace, &self.name)
    }
}

impl fmt::Display for ModifiedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = object(&self.api_version, &self.kind, &self.namespace, &self.name);
        write!(f, "{object} ")?;
        match (self.missing, self.exist, self.extra) {
            (true, true, _) => f.write_str("is not owned by us"),
            (true, false, _) => f.write_str("missing"),
            (false, _, true) => f.write_str("extra"),
            (false, _, false) => write!(f, "modified {}", self.patch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn service() -> ModifiedStatus {
        ModifiedStatus {
            kind: "Service".into(),
            api_version: "v1".into(),
            namespace: "ns".into(),
            name: "svc-test".into(),
            ..Default::default()
        }
    }

    #[rstest]
    #[case::missing(ModifiedStatus { missing: true, ..service() }, "service.v1 ns/svc-test missing")]
    #[case::foreign(
        ModifiedStatus { missing: true, exist: true, ..service() },
        "service.v1 ns/svc-test is not owned by us"
    )]
    #[case::extra(ModifiedStatus { extra: true, ..service() }, "service.v1 ns/svc-test extra")]
    #[case::modified(
        ModifiedStatus { patch: "{}".into(), ..service() },
        "service.v1 ns/svc-test modified {}"
    )]
    #[case::cluster_scoped(
        ModifiedStatus { extra: true, namespace: "".into(), api_version: "a/v1".into(), ..service() },
        "service.a svc-test extra"
    )]
    fn modified_entries_read_as_upstream(#[case] entry: ModifiedStatus, #[case] text: &str) {
        assert_eq!(entry.to_string(), text);
    }

    #[rstest]
    #[case::plain(false, false, "in-progress")]
    #[case::progressing(true, false, "[progressing] a, b")]
    #[case::both(true, true, "[progressing,error] a, b")]
    #[case::error_alone_lacks_its_bracket(false, true, "error] a, b")]
    fn summaries_read_as_upstream(
        #[case] transitioning: bool,
        #[case] error: bool,
        #[case] text: &str,
    ) {
        let summary = Summary {
            state: "in-progress".into(),
            error,
            transitioning,
            message: vec!["a".into(), "b".into()],
        };
        assert_eq!(summary.to_string(), text);
    }
}
