//! What the actions are asked for, and what they answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chart::{Capabilities, Chart, ReleaseInfo};
use objects::ObjectKey;
use objects::conflict::FieldConflict;
use serde_json::{Map, Value};

use super::known_records::KnownRecords;
use crate::error::BoxError;
use crate::kube::ClusterLookup;
use crate::model::{Hook, Release};
use crate::others::{AbortCheck, ForeignObjects, OtherReleases};
use crate::state::Plan;
use crate::storage::StoredRelease;

/// How long hooks are waited for when no time-out is set.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A release as it is desired.
#[derive(Clone)]
pub struct DeploySpec {
    /// Name of the release.
    pub name: String,
    /// Namespace of the release, where its records live.
    pub namespace: String,
    /// The chart as it was loaded. What is recorded is the one [`Rendered`] gives back.
    pub chart: Arc<Chart>,
    /// Renders the chart; called from a thread that may block.
    pub render: Arc<RenderFn>,
    /// How to go about it.
    pub options: DeployOptions,
    /// A deployed revision as the caller has just read it, which then is not read again.
    pub known: Option<StoredRelease>,
    /// Called once the record of an attempt is stored: from then on the attempt is the newest revision, however little else it writes.
    pub on_begun: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Called once the objects are written and what they say is not kept any more; hooks and waits may follow, for as long as they take.
    pub on_written: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Called once a hook is there: whoever tries again after a failure runs it again.
    pub on_hooks: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Given, after a failure, each stored revision that was read, as what refuses a change may quote what was there before: those that were built on
    /// and, where going back failed, the one gone back to.
    pub on_failure: Option<Arc<dyn Fn(Release) + Send + Sync>>,
}

impl DeploySpec {
    /// Hands out what an action had read that failed.
    pub(super) fn failed(&self, read: impl IntoIterator<Item = StoredRelease>) {
        if let Some(on_failure) = &self.on_failure {
            let read = read.into_iter().map(StoredRelease::into_release);
            read.for_each(|read| on_failure(read));
        }
    }
}

impl std::fmt::Debug for DeploySpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            name,
            namespace,
            options,
            ..
        } = self;
        f.debug_struct("DeploySpec")
            .field("name", name)
            .field("namespace", namespace)
            .field("options", options)
            .finish_non_exhaustive()
    }
}

/// Turns a chart into manifests. It may be called twice, for two revisions.
pub type RenderFn = dyn Fn(&RenderRequest) -> Result<Rendered, BoxError> + Send + Sync;

/// What a rendering may depend on besides chart and values.
#[derive(Debug, Clone)]
pub struct RenderRequest {
    /// `.Release`.
    pub release: ReleaseInfo,
    /// `.Capabilities`, the kinds of the chart's own `crds/` included on install.
    pub capabilities: Capabilities,
    /// `lookup`, as the identity that deploys.
    pub lookup: ClusterLookup,
}

/// A rendered chart, as it will be recorded and applied.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// The chart after its dependencies were processed.
    pub chart: Arc<Chart>,
    /// The user's values as given, for the record.
    pub config: Map<String, Value>,
    /// All documents but the hooks, in install order.
    pub manifest: String,
    /// The documents of `manifest` as objects, where rendering had to read them.
    pub objects: Option<Vec<Value>>,
    /// The hooks, in kind order.
    pub hooks: Vec<Hook>,
    /// The hooks as objects, in the same order, where rendering had to read them; may be shorter.
    pub hook_objects: Vec<Option<Value>>,
    /// The rendered `NOTES.txt`.
    pub notes: String,
}

impl Rendered {
    /// What a rendering gave, with the values it was given.
    pub fn new(rendered: chart::rendered::Rendered, config: Map<String, Value>) -> Self {
        let manifests = rendered.manifests.into_iter();
        let read = |mut hook: chart::manifest::Hook| {
            let object = hook.object.take();
            (Hook::from(hook), object)
        };
        let (hooks, hook_objects) = rendered.hooks.into_iter().map(read).unzip();
        Self {
            chart: Arc::new(rendered.chart),
            config,
            manifest: rendered.manifest,
            objects: manifests.map(|manifest| manifest.object).collect(),
            hooks,
            hook_objects,
            notes: rendered.notes,
        }
    }
}

/// How records tell that an agent like the caller wrote them, for the caller's bundles: annotations of their chart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writer {
    /// Annotations that must all be there; without any, no record counts as such an agent's.
    pub annotations: BTreeMap<String, String>,
}

impl Writer {
    /// Whether a record says so. It is no proof of anything: who may write records may write that too.
    pub fn wrote(&self, record: &Release) -> bool {
        let chart = record.chart.as_ref();
        let found = chart.and_then(|chart| chart.metadata.annotations.as_ref());
        let is_there = |(key, value): (&String, &String)| {
            found.is_some_and(|found| found.get(key) == Some(value))
        };
        !self.annotations.is_empty() && self.annotations.iter().all(is_there)
    }
}

/// How a release is deployed.
#[derive(Debug, Clone)]
pub struct DeployOptions {
    /// Agents that also write records for the caller's bundles. A pending record of theirs was cut off, and is finished at once.
    pub writer: Writer,
    /// Create the release's namespace if it is missing.
    pub create_namespace: bool,
    /// Take objects that belong to others.
    pub take_ownership: bool,
    /// Objects of the release that another one may have by now.
    pub foreign_objects: ForeignObjects,
    /// Other releases in a namespace that the chart had and drops: it is left to them.
    pub other_releases: OtherReleases,
    /// Check whether an object is somebody else's before anything is written, even where creating it
    /// would show it: for a release that was refused before.
    pub check_ownership_first: bool,
    /// Recreate an object whose change is refused because a field is immutable.
    pub force: bool,
    /// On failure roll back (upgrade) or uninstall (install); objects that do not become ready in
    /// time are a failure, and the call lasts until they are.
    pub atomic: bool,
    /// With `atomic`: Jobs are ready once they are complete, not once they are started.
    pub wait_for_jobs: bool,
    /// How long each hook, and with `atomic` becoming ready, may take, and reads between them may be refused; `None` and zero are
    /// [`DEFAULT_TIMEOUT`].
    pub timeout: Option<Duration>,
    /// Records to keep, the new one included; 0 is no limit. The last deployed one is always kept.
    pub max_history: i64,
    /// Write and apply a new revision even if nothing changed.
    pub always: bool,
}

impl Default for DeployOptions {
    /// Fleet's defaults: two records, hooks, no force.
    fn default() -> Self {
        Self {
            writer: Writer::default(),
            create_namespace: true,
            take_ownership: false,
            foreign_objects: ForeignObjects::default(),
            other_releases: OtherReleases::default(),
            check_ownership_first: false,
            force: false,
            atomic: false,
            wait_for_jobs: false,
            timeout: None,
            max_history: 2,
            always: false,
        }
    }
}

impl DeployOptions {
    pub(super) fn limit(&self) -> Duration {
        self.timeout
            .filter(|timeout| !timeout.is_zero())
            .unwrap_or(DEFAULT_TIMEOUT)
    }
}

/// Result of [`super::deploy`].
#[derive(Debug)]
pub struct Deployed {
    /// The deployed revision's record.
    pub release: StoredRelease,
    /// Whether anything was written.
    pub changed: bool,
    /// What the release was found as, and what was done.
    pub plan: Plan,
    /// Fields that other managers held, and who has them now.
    pub conflicts: Vec<FieldConflict>,
    /// The objects as they are now, without `managedFields`; empty if nothing was written.
    pub applied: Vec<Value>,
    /// Objects of earlier revisions that were left in the cluster: kept by policy, or not ours.
    pub retained: Vec<ObjectKey>,
}

/// A release as it shall go.
#[derive(Debug, Clone)]
pub struct UninstallSpec {
    /// Name of the release.
    pub name: String,
    /// Namespace of the release.
    pub namespace: String,
    /// Only forget the release: its objects stay, its records go.
    pub keep_resources: bool,
    /// The release was never deployed: an attempt that fails takes over no object, so only those it created go.
    pub is_attempt: bool,
    /// Records that existed when the release was found to be the caller's: with any other record that is asked anew. `None` where nobody asked.
    pub known: Option<KnownRecords>,
    /// Only revisions up to this one count, as if there were no others: what is above is of who has the release next. `None` for all.
    pub up_to: Option<i64>,
    /// Agents that also write records for the caller's bundles, as for a deploy: a pending record of theirs was cut off.
    pub writer: Writer,
    /// Other releases in a namespace of the release: it is left to them, or goes after them.
    pub other_releases: OtherReleases,
    /// Whether the release is wanted after all.
    pub abort_check: AbortCheck,
    /// Keep the records, the newest one marked `uninstalled`.
    pub keep_history: bool,
    /// Do not run hooks.
    pub disable_hooks: bool,
    /// How long each hook may take; `None` is [`DEFAULT_TIMEOUT`].
    pub timeout: Option<Duration>,
}

impl UninstallSpec {
    /// Removes objects and records, running hooks.
    pub fn new(name: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
            keep_resources: false,
            is_attempt: false,
            known: None,
            up_to: None,
            writer: Writer::default(),
            other_releases: OtherReleases::default(),
            abort_check: AbortCheck::default(),
            keep_history: false,
            disable_hooks: false,
            timeout: None,
        }
    }
}

/// Result of [`super::uninstall`].
#[derive(Debug, Default)]
pub struct Uninstalled {
    /// Whether the release existed at all.
    pub existed: bool,
    /// Objects that stay, as a record or their resource policy asks for that or nobody can read them, and namespaces and definitions of what stays.
    pub kept: Vec<ObjectKey>,
    /// Namespaces that were left to the other releases that are in them.
    pub in_use: Vec<ObjectKey>,
    /// Objects that were there before the release and nobody said that it may have, left alone.
    pub adopted: Vec<ObjectKey>,
    /// Objects that do not carry this release's marks, and were left alone.
    pub not_owned: Vec<ObjectKey>,
}
