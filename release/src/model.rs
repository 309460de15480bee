//! The release record: what Helm remembers of one revision, field by field as Helm 4 writes it.
//!
//! Reading and writing the stored form is in [`crate::storage`]; what to do with a record is decided
//! in [`crate::state`]. Mirrors `pkg/release/v1` and `pkg/release/common`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use chart::manifest::HookEvent;
use chart::{Chart, Time};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// Label of a record whose removal has begun: the status it had before. What is taken away depends on it, by the removal that goes on where
/// the first one was cut off too.
pub const BEFORE_REMOVAL_LABEL: &str = "fleetagent.cattle.io/status-before-removal";
/// Label of a record whose removal has deleted what it may and is about to delete the records: what held a namespace or definition may be in one of those.
pub const HOLDS_CONTAINERS_LABEL: &str = "fleetagent.cattle.io/removal-holds-containers";

/// Words of Helm's, as a record holds them. One that Helm does not know is kept as it was found.
macro_rules! helms_words {
    ($name:ident { $($word:ident = $text:literal,)* }) => {
        impl $name {
            /// Helm's word for it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$word => $text,)*
                    Self::Other(word) => word,
                }
            }

            fn is_unset(&self) -> bool {
                self.as_str().is_empty()
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($text => Self::$word,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

/// One revision of a release. Empty fields are left out of its JSON, as Go's `omitempty` does.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Release {
    /// Name of the release.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Status, times and notes. Absent only in records that others damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info: Option<Info>,
    /// The chart, without its subcharts.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "shared_chart")]
    pub chart: Option<Arc<Chart>>,
    /// The user's values, as given.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub config: Map<String, Value>,
    /// Every applied document but the hooks, in install order, each with its `# Source:` line.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manifest: String,
    /// The hooks, in kind order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Number of the revision, counted from 1; Helm's JSON calls it `version`.
    #[serde(rename = "version", skip_serializing_if = "is_zero")]
    pub revision: i64,
    /// Namespace of the release; its records live there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// How the objects were written; absent in records of Helm 3.
    #[serde(skip_serializing_if = "ApplyMethod::is_unset")]
    pub apply_method: ApplyMethod,
    /// User labels. They are labels of the storage object, not part of the JSON.
    #[serde(skip)]
    pub labels: BTreeMap<String, String>,
}

impl Release {
    /// The status; [`Status::Unset`] when the record has no info.
    pub fn status(&self) -> Status {
        self.info
            .as_ref()
            .map(|info| info.status.clone())
            .unwrap_or_default()
    }

    /// Memory of the release as it is read from a record, in bytes, about.
    pub fn size_bytes(&self) -> u64 {
        let chart = self.chart.as_deref().map_or(0, Chart::size_bytes);
        let config = golib::budget::weigh_entries(&self.config);
        let hooks: usize = self.hooks.iter().map(|hook| hook.manifest.len()).sum();
        (self.manifest.len() + hooks + config) as u64 + chart
    }

    /// An annotation of the chart.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.chart.as_ref()?.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    /// The description; empty when the record has no info.
    pub fn description(&self) -> &str {
        self.info.as_ref().map_or("", |info| &info.description)
    }

    /// The status; of a revision whose removal has begun the one it had before, if that was written down.
    pub fn status_before_removal(&self) -> Option<Status> {
        self.status().before_removal(&self.labels)
    }

    /// Says that the removal has begun of a revision that had the status `before`. That outlives the removal's being cut off.
    pub(crate) fn begin_removal(&mut self, before: Option<Status>, description: impl Into<String>) {
        let labels = &mut self.labels;
        match before {
            Some(before) => labels.insert(BEFORE_REMOVAL_LABEL.to_owned(), before.to_string()),
            None => labels.remove(BEFORE_REMOVAL_LABEL),
        };
        self.set_status(Status::Uninstalling, description);
    }

    /// Takes off what only a record of a removal says.
    pub(crate) fn forget_removal(labels: &mut BTreeMap<String, String>) {
        labels.remove(BEFORE_REMOVAL_LABEL);
        labels.remove(HOLDS_CONTAINERS_LABEL);
    }

    /// Sets status and description, creating the info if it is missing.
    pub fn set_status(&mut self, status: Status, description: impl Into<String>) {
        let info = self.info.get_or_insert_with(Info::default);
        info.status = status;
        info.description = description.into();
    }
}

fn shared_chart<S: Serializer>(chart: &Option<Arc<Chart>>, out: S) -> Result<S::Ok, S::Error> {
    chart.as_deref().serialize(out)
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Status, times and notes of a revision.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Info {
    /// When revision 1 was deployed.
    #[serde(skip_serializing_if = "Time::is_zero")]
    pub first_deployed: Time,
    /// When this revision was deployed.
    #[serde(skip_serializing_if = "Time::is_zero")]
    pub last_deployed: Time,
    /// When the uninstallation began.
    #[serde(skip_serializing_if = "Time::is_zero")]
    pub deleted: Time,
    /// One line for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where the revision stands.
    #[serde(skip_serializing_if = "Status::is_unset")]
    pub status: Status,
    /// The revision that was rolled back to; 0 if this is no rollback.
    #[serde(skip_serializing_if = "is_zero")]
    pub rollback_revision: i64,
    /// The rendered `NOTES.txt`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// Live objects by kind. Helm fills it for display only; ours is empty, others' is carried.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub resources: Map<String, Value>,
}

/// Where a revision stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// The record does not say.
    #[default]
    Unset,
    /// Helm could not tell.
    Unknown,
    /// The revision that is in the cluster.
    Deployed,
    /// Removed, with its history kept.
    Uninstalled,
    /// A later revision took its place.
    Superseded,
    /// The revision could not be applied completely.
    Failed,
    /// Removal has begun.
    Uninstalling,
    /// A first install is under way, or was cut off.
    PendingInstall,
    /// An upgrade is under way, or was cut off.
    PendingUpgrade,
    /// A rollback is under way, or was cut off.
    PendingRollback,
    /// A word Helm does not know; kept as it was found.
    Other(String),
}

impl Status {
    /// Whether an operation is under way, or was cut off.
    pub fn is_pending(&self) -> bool {
        matches!(
            self,
            Self::PendingInstall | Self::PendingUpgrade | Self::PendingRollback
        )
    }

    /// Whether the deploy of a revision that says so got to its end, and no removal has begun since: whoever began that.
    pub fn is_complete(&self) -> bool {
        let is_unfinished = matches!(self, Self::Failed | Self::Uninstalling | Self::Uninstalled);
        !is_unfinished && !self.is_pending()
    }

    /// This status; in its place, if a removal has begun, the one that a record's labels say it had before.
    pub(crate) fn before_removal(&self, labels: &BTreeMap<String, String>) -> Option<Self> {
        match self {
            Self::Uninstalling | Self::Uninstalled => labels
                .get(BEFORE_REMOVAL_LABEL)
                .map(|word| Self::from(word.as_str())),
            status => Some(status.clone()),
        }
    }
}

helms_words!(Status {
    Unset = "",
    Unknown = "unknown",
    Deployed = "deployed",
    Uninstalled = "uninstalled",
    Superseded = "superseded",
    Failed = "failed",
    Uninstalling = "uninstalling",
    PendingInstall = "pending-install",
    PendingUpgrade = "pending-upgrade",
    PendingRollback = "pending-rollback",
});

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a revision's objects were written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ApplyMethod {
    /// Not recorded: Helm 3, which merged on the client's side.
    #[default]
    Unset,
    /// Merged on the client's side.
    ClientSide,
    /// Applied by the server.
    ServerSide,
    /// A word Helm does not know; kept as it was found.
    Other(String),
}

helms_words!(ApplyMethod {
    Unset = "",
    ClientSide = "csa",
    ServerSide = "ssa",
});

/// A document that is run at an event of the release instead of belonging to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Hook {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Kind of the hook.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The template it came from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The document.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manifest: String,
    /// Events it runs at, in Helm's words; see [`HookEvent`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// The hook's last run.
    pub last_run: HookExecution,
    /// Hooks of one event run by ascending weight.
    #[serde(skip_serializing_if = "is_zero")]
    pub weight: i64,
    /// When the hook is deleted, in Helm's words; see [`HookDeletePolicy`]. Unknown words have no effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delete_policies: Vec<String>,
    /// When its log is copied, in Helm's words. Unknown words have no effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_log_policies: Vec<String>,
}

impl From<chart::manifest::Hook> for Hook {
    fn from(hook: chart::manifest::Hook) -> Self {
        Self {
            name: hook.name,
            kind: hook.kind,
            path: hook.path,
            manifest: hook.manifest,
            events: hook
                .events
                .iter()
                .map(|event| event.as_str().to_owned())
                .collect(),
            last_run: HookExecution::default(),
            weight: hook.weight,
            delete_policies: hook.delete_policies,
            output_log_policies: hook.output_log_policies,
        }
    }
}

impl Hook {
    /// Whether the hook runs at `event`.
    pub fn runs_at(&self, event: HookEvent) -> bool {
        self.events.iter().any(|word| word == event.as_str())
    }

    /// Whether `policy` applies. Without any policy it is `before-hook-creation` that does.
    pub fn is_deleted(&self, policy: HookDeletePolicy) -> bool {
        self.effective_delete_policies()
            .iter()
            .any(|word| word == policy.as_str())
    }

    /// The delete policies with Helm's default, which it stores once a hook is run.
    pub fn effective_delete_policies(&self) -> Vec<String> {
        match self.delete_policies.as_slice() {
            [] => vec![HookDeletePolicy::BeforeHookCreation.as_str().to_owned()],
            given => given.to_vec(),
        }
    }
}

/// When and how a hook was last run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HookExecution {
    /// When the hook was created.
    #[serde(skip_serializing_if = "Time::is_zero")]
    pub started_at: Time,
    /// When the hook ended.
    #[serde(skip_serializing_if = "Time::is_zero")]
    pub completed_at: Time,
    /// `Unknown`, `Running`, `Succeeded`, `Failed`, or empty when it never ran.
    pub phase: String,
}

impl HookExecution {
    /// The hook is due, and cannot be started.
    pub const UNKNOWN: &str = "Unknown";
    /// The hook is running.
    pub const RUNNING: &str = "Running";
    /// The hook ended well.
    pub const SUCCEEDED: &str = "Succeeded";
    /// The hook failed.
    pub const FAILED: &str = "Failed";
}

/// When a hook's object is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookDeletePolicy {
    /// Once every hook of the event ended well.
    Succeeded,
    /// After the hook failed.
    Failed,
    /// Just before the hook is created anew.
    BeforeHookCreation,
}

impl HookDeletePolicy {
    /// Helm's word, as the annotation `helm.sh/hook-delete-policy` has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "hook-succeeded",
            Self::Failed => "hook-failed",
            Self::BeforeHookCreation => "before-hook-creation",
        }
    }
}
