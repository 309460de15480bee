//! From a BundleDeployment to a deployed release: content, values, rendering, Helm's part.
//!
//! Reads what upstream and the cluster hold and hands it to the pure modules [`crate::bundle`] and
//! [`crate::values`]; [`super::rendering`] runs where it may block, applying is the release crate's.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chart::source::{FetchedChart, Fetcher, Memory, Reservation};
use golib::budget::Budget;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use parking_lot::Mutex;
use release::action::{DeployError, DeployOptions, DeploySpec, Deployed, Writer};
use release::model::Release;
use release::storage::{Storage, StoredRelease};
use release::{BoxError, ForeignObjects, MAX_HISTORY, OtherReleases};
use serde_json::{Map, Value};
use templating::TemplateCache;
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::chart_poll::{self, AskedSources, Found};
use super::halt::{Cause, Halt, InputError, Waiting};
use super::memory_permit::MemoryPermit;
use super::outcome::Report;
use super::plan::{self, DeployReason};
use super::rendering::{OverReservation, RenderReservation, Rendering, SensitiveInputs};
use super::values::{Filled, ValuesReader};
use crate::api::{
    ANNOTATION_AGENT_NAMESPACE, ANNOTATION_FACTS, ANNOTATION_VALUES_FROM, BundleDeployment,
    BundleDeploymentOptions, Content,
};
use crate::bundle;
use crate::bundle::{Bundle, BundleError, Fetching, MAX_UNPACKED_BYTES, Package, SetId, Source};
use crate::client::identity::DeploymentClient;
use crate::config::Settings;
use crate::controllers::queue::Queue;
use crate::controllers::signature_policy::{PolicyUnusable, SignaturePolicy};
use crate::controllers::source_hosts::SourceHosts;
use crate::error;
use crate::ledger::PlannedContainers;
use crate::public;
use crate::public::redact::SensitiveData;
use crate::public::{Name, PublicText};
use crate::report::events::Reason;
use crate::report::metrics::Entries;
use crate::schemas::Schemas;

/// Revisions kept where the bundle does not say.
const HISTORY: i64 = 2;

/// The longest that a bundle may have hooks and objects waited for: nobody waits longer, and a clock has an end.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// So often in a row a deploy is given up for a newer spec.
const MAX_SUPERSEDED: u32 = 3;

/// Memory for parsed templates, kept until a burst of deploys is over, in bytes.
const PARSED: usize = 4 << 20;

/// How many revisions of a bundle's release are kept.
pub(super) fn max_history(options: &BundleDeploymentOptions) -> i64 {
    let desired = options.helm.as_ref().map_or(0, |helm| helm.max_history);
    let kept = if desired > 0 { desired } else { HISTORY };
    kept.min(i64::from(MAX_HISTORY))
}

/// How long a bundle may have hooks and objects waited for; nothing where it does not say.
fn timeout(seconds: i64) -> Option<Duration> {
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    seconds.map(|seconds| Duration::from_secs(seconds).min(LONGEST_WAIT))
}

/// The halt of a deploy that failed.
fn halt(cause: DeployError, secrets: &SensitiveData) -> Halt {
    let reason = match error::api_code(&cause) {
        Some(403) => Reason::Forbidden,
        _ => reason(&cause),
    };
    let waiting = match cause {
        DeployError::Undone { .. } | DeployError::NotUndone { .. } => Some(Waiting::Undone),
        _ => None,
    };
    Halt::at(Cause::Deploy(reason, waiting), secrets)(cause)
}

fn reason(cause: &DeployError) -> Reason {
    match cause {
        DeployError::Build { source, .. } if source.is_no_match() => Reason::KindMissing,
        DeployError::Render(_) | DeployError::RenderAborted(_) | DeployError::Build { .. } => {
            Reason::RenderFailed
        }
        DeployError::Hook { .. } | DeployError::Removal(_) => Reason::HookFailed,
        DeployError::Wait(_) => Reason::NotReadyInTime,
        DeployError::Undone { source, .. } => reason(source),
        DeployError::Namespace { .. } => Reason::NamespaceRefused,
        _ => Reason::ApplyFailed,
    }
}

/// How often in a row the deploy of a bundle was given up for a newer spec: one that changes faster than it is fetched and rendered would
/// never be deployed.
#[derive(Default)]
struct Supersessions(Mutex<HashMap<String, u32>>);

impl Supersessions {
    /// The number of supersessions counted so far; reset to 0, unless it is noted again.
    fn take(&self, bundle: &str) -> u32 {
        self.0.lock().remove(bundle).unwrap_or_default()
    }

    fn note(&self, bundle: &str, count: u32) {
        self.0.lock().insert(bundle.to_owned(), count);
    }
}

/// What a deploy builds on.
pub struct Base<'a> {
    /// The release as it was read before.
    pub known: Option<&'a StoredRelease>,
    /// Objects of it that others may have by now.
    pub foreign_objects: ForeignObjects,
    /// Bundles and releases in the namespaces, and of the definitions, that the chart had.
    pub other_releases: OtherReleases,
    /// What the objects are in: noted once it is rendered.
    pub planned: PlannedContainers,
    /// There was no attempt before whose record is read.
    pub is_first: bool,
    /// All is written anew though nothing has changed.
    pub is_forced: bool,
    /// Called once the record of an attempt is stored.
    pub on_begun: Arc<dyn Fn() + Send + Sync>,
}

/// Deploys bundles; shared by all reconciles.
pub struct Deployer {
    upstream: Client,
    fetcher: Fetcher,
    hosts: Arc<SourceHosts>,
    pub(super) values: ValuesReader,
    /// Bundles are often of one chart: a fleet's, or the versions of one.
    pub(super) templates: Arc<TemplateCache>,
    schemas: Arc<Schemas>,
    pub(super) sources: AskedSources,
    /// The policy that chart signatures are checked against.
    signatures: SignaturePolicy,
    /// Knows whether the bundle has changed meanwhile.
    queue: Arc<Queue>,
    supersessions: Supersessions,
    /// How long the templates of a bundle may take.
    render_limit: Duration,
    /// System namespace.
    namespace: String,
    scope: String,
}

impl Deployer {
    /// A deployer reading from `upstream`; `queue` knows which bundles have changed meanwhile.
    pub fn new(
        upstream: Client,
        (fetcher, hosts): (Fetcher, Arc<SourceHosts>),
        values: ValuesReader,
        signatures: SignaturePolicy,
        queue: Arc<Queue>,
        settings: &Settings,
    ) -> Self {
        Self {
            upstream,
            fetcher,
            hosts,
            values,
            templates: Arc::new(TemplateCache::new(PARSED)),
            schemas: Arc::new(Schemas::new(settings.remote_schemas)),
            sources: AskedSources::default(),
            signatures,
            queue,
            supersessions: Supersessions::default(),
            render_limit: settings.timing.render_limit,
            namespace: settings.namespace.clone(),
            scope: settings.scope.clone(),
        }
    }

    /// The memory budget that deploys, downloads and reads of records reserve from.
    pub fn memory(&self) -> &Memory {
        self.fetcher.memory()
    }

    /// Forgets a bundle that is gone.
    pub fn forget(&self, bundle: &str) {
        self.sources.forget(bundle);
        self.supersessions.take(bundle);
    }

    /// A token that is cancelled once another spec came, and the halt to end with then; never cancelled after several such ends in a row.
    fn supersession<'a>(&'a self, bundle: &'a str) -> (CancellationToken, impl Fn() -> Halt + 'a) {
        let count = self.supersessions.take(bundle);
        let superseded = match count < MAX_SUPERSEDED {
            true => self.queue.superseded(bundle).unwrap_or_default(),
            false => CancellationToken::new(),
        };
        let give_up = move || {
            self.supersessions.note(bundle, count + 1);
            Halt::new(Cause::Superseded, "the bundle has changed meanwhile")
        };
        (superseded, give_up)
    }

    /// Does what need not come to its end once another spec came.
    ///
    /// # Errors
    /// It came.
    ///
    /// # Cancellation
    /// As safe as `work`.
    pub async fn unless_superseded<T>(
        &self,
        bundle: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, Halt> {
        let (superseded, give_up) = self.supersession(bundle);
        let done = superseded.run_until_cancelled(work).await;
        done.ok_or_else(give_up)
    }

    /// Bundles whose sources were asked, and whose deploys gave way to a newer spec.
    pub fn entries(&self) -> Entries {
        let mut entries = self.sources.entries();
        entries.push(("superseded_bundles", self.supersessions.0.lock().len()));
        entries
    }

    /// Brings the release to what the bundle wants; `records` are those of its namespace. Gives back, too, the reservation that covers what was
    /// deployed, for as long as it is read.
    ///
    /// # Errors
    /// Whatever is in the way, to be shown and tried again.
    ///
    /// # Cancellation
    /// Safe: the next deploy finishes what was begun.
    pub async fn deploy(
        &self,
        filled: &Filled,
        reason: DeployReason,
        impersonated: &DeploymentClient,
        records: &Storage,
        base: Base<'_>,
        report: &mut Report,
    ) -> Result<(Deployed, Option<Reservation>), Halt> {
        let (bundle, known, is_first) = (&filled.bundle, base.known, base.is_first);
        let (superseded, give_up) = self.supersession(bundle.name());
        let inputs = superseded
            .run_until_cancelled(self.inputs(filled, impersonated, is_first, report))
            .await;
        let Some(inputs) = inputs else {
            return Err(give_up());
        };
        let Inputs {
            reservation,
            values,
            values_digest,
            package,
        } = inputs?;
        let reservation = RenderReservation::new(reservation);
        let revisions = revisions(is_first);
        let values = Arc::new(values);
        let Package {
            mut chart,
            kustomization,
            ..
        } = package;
        let digests = [
            (ANNOTATION_FACTS, filled.digest.clone()),
            (ANNOTATION_VALUES_FROM, values_digest),
        ];
        for (annotation, digest) in digests {
            if let Some(digest) = digest {
                let annotations = chart.metadata.annotations.get_or_insert_default();
                annotations.insert(annotation.to_owned(), digest);
            }
        }
        let chart = Arc::new(chart);
        let sensitive = Arc::new(SensitiveInputs::default());
        // Kinds another bundle brought a moment ago count: `.Capabilities` is asked for them.
        let discovery = impersonated
            .cluster()
            .fresh_discovery()
            .await
            .map_err(|failed| halt(DeployError::Discovery(failed), &SensitiveData::default()))?;
        let options = &bundle.spec.options;
        let helm = options.helm.clone().unwrap_or_default();
        let rendering = Rendering {
            bundle: Arc::clone(bundle),
            chart: Arc::clone(&chart),
            kustomization,
            values: Arc::clone(&values),
            sensitive: Arc::clone(&sensitive),
            set: SetId::new(bundle.name(), &self.scope),
            templates: Arc::clone(&self.templates),
            schemas: Arc::clone(&self.schemas),
            discovery,
            skip_schema_validation: helm.skip_schema_validation,
            disable_dns: helm.disable_dns,
            limit: self.render_limit,
            spent: Mutex::default(),
            superseded: superseded.clone(),
            reservation: reservation.clone(),
            revisions,
            planned: base.planned,
        };
        let always = matches!(
            reason,
            DeployReason::DownstreamResourcesChanged
                | DeployReason::DownstreamResourcesPutBack
                | DeployReason::Overwritten
        ) || base.is_forced;
        let has_run_hooks = Arc::new(AtomicBool::new(false));
        let read = Arc::new(Mutex::new(Vec::new()));
        let spec = DeploySpec {
            name: bundle::release_name(bundle.name(), options),
            namespace: options.release_namespace().to_owned(),
            chart: Arc::clone(&chart),
            render: Arc::new(move |request| rendering.render(request)),
            options: DeployOptions {
                writer: Writer {
                    annotations: BTreeMap::from([(
                        ANNOTATION_AGENT_NAMESPACE.to_owned(),
                        self.namespace.clone(),
                    )]),
                },
                // Copies have made it already. Where it went since they went with it, and are made first.
                create_namespace: options.create_namespace != Some(false)
                    && options.downstream_resources.is_empty(),
                take_ownership: helm.take_ownership,
                foreign_objects: base.foreign_objects,
                other_releases: base.other_releases,
                check_ownership_first: plan::has_failed(&bundle.status),
                force: helm.force || options.correct_drift.unwrap_or_default().force,
                atomic: helm.atomic,
                wait_for_jobs: helm.wait_for_jobs,
                timeout: timeout(helm.timeout_seconds),
                max_history: max_history(options),
                always,
            },
            known: known.cloned(),
            on_begun: Some(base.on_begun),
            on_written: Some({
                let reservation = reservation.clone();
                Arc::new(move || reservation.written())
            }),
            on_hooks: Some({
                let has_run_hooks = Arc::clone(&has_run_hooks);
                Arc::new(move || has_run_hooks.store(true, Ordering::Relaxed))
            }),
            on_failure: Some({
                let read = Arc::clone(&read);
                Arc::new(move |release: Release| read.lock().push(release))
            }),
        };
        let deployed = loop {
            let deployed = release::action::deploy(impersonated.cluster(), records, &spec).await;
            match deployed {
                // Rendering ran out of its reservation and wrote nothing: it begins anew once there is more memory.
                Err(DeployError::Render(failed)) if failed.is::<OverReservation>() => {
                    if superseded
                        .run_until_cancelled(reservation.grow())
                        .await
                        .is_none()
                    {
                        return Err(give_up());
                    }
                }
                deployed => break deployed,
            }
        };
        let deployed = match deployed {
            Ok(deployed) => deployed,
            Err(DeployError::Render(_)) if superseded.is_cancelled() => {
                return Err(give_up());
            }
            Err(cause) => {
                let is_failed_hook = cause.is_failed_hook();
                // An undo, or a refused change, may quote what is there: also where the status names no release.
                let known = known.cloned();
                let read = std::mem::take(&mut *read.lock());
                let redaction = move || {
                    let mut secrets = sensitive.secrets(&values, &chart);
                    for known in known.as_deref().into_iter().chain(&read) {
                        secrets.add_release(known);
                    }
                    halt(cause, &secrets)
                };
                // A long message with many secrets takes long to redact: other bundles do not wait for it.
                let reported = impersonated.cluster().host().work(redaction).await;
                let mut halt = reported.map_err(|aborted| {
                    let aborted = DeployError::RenderAborted(aborted);
                    halt(aborted, &SensitiveData::default())
                })?;
                if has_run_hooks.load(Ordering::Relaxed) {
                    halt.cause = halt.cause.after_hooks(is_failed_hook);
                }
                return Err(halt);
            }
        };
        self.sources.note_polled(bundle.name());
        Ok((deployed, reservation.take()))
    }

    /// The bundle's values, its chart and its kustomization, from whichever source its spec names, and the reservation that covers what is
    /// made of them.
    async fn inputs(
        &self,
        filled: &Filled,
        impersonated: &DeploymentClient,
        is_first: bool,
        report: &mut Report,
    ) -> Result<Inputs, Halt> {
        let bundle = &filled.bundle;
        let memory = self.fetcher.memory();
        // Downloads have reservations of their own.
        let is_read = !bundle.spec.oci_contents && bundle.spec.helm_chart_options.is_none();
        let mut permit =
            MemoryPermit::new(memory, impersonated.cluster().host(), revisions(is_first));
        if is_read {
            // A chart that is pulled instead has a reservation of its own, and may have to wait for it.
            permit.reads_content().await;
        }
        let since = self.sources.asked_since(bundle);
        let loaded = self.load(bundle, since, &mut permit).await?;
        let mut vouched = None;
        if let Bundle::Chart(fetched, verified) = &loaded {
            vouched = verified.as_ref().map(|verified| {
                public!(
                    "the chart is vouched for: {}",
                    PublicText::of_signer(verified)
                )
            });
            self.sources.owes_answer(bundle.name(), fetched.is_stale);
            if fetched.is_stale {
                let FetchedChart { url, digest, .. } = fetched;
                let text = public!(
                    "{} does not answer: deploying what it gave before, {}",
                    *url,
                    Name(digest)
                );
                report.event(Reason::SourceUnreachable, text);
            }
        }
        let files = checked_size(&loaded).map_err(not_loaded)?;
        // As upstream, after the chart: nothing is downloaded while they are held, and what they make the permit grow by leads to its end.
        let given = self.values.of(impersonated, filled, &mut permit).await;
        let given = given.map_err(lacking(Reason::ValuesFailed))?;
        let values_digest = given.digest.clone();
        let (bundle, namespace) = (Arc::clone(bundle), self.namespace.clone());
        let decode = move |budget: &mut Budget| {
            let values = given.merged(budget);
            let values = values.map_err(lacking(Reason::ValuesFailed))?;
            let package = loaded.package(&bundle, &namespace, budget);
            Ok::<_, Halt>((values, package.map_err(not_loaded)?))
        };
        let (values, package) = permit.decode(files, decode).await.map_err(aborted)??;
        let weight = golib::budget::weigh_entries(&values) as u64 + package.chart.values_bytes();
        let reservation = permit.for_deploy(files, weight).await;
        if let Some(text) = vouched {
            report.event(Reason::SignatureVerified, text);
        }
        for warning in &package.warnings {
            logging::debug!(warning = PublicText::of_warning(warning), "loading a chart");
        }
        Ok(Inputs {
            reservation,
            values,
            values_digest,
            package,
        })
    }

    /// The bundle's files, from whichever source its spec names; one that was asked before `since` is asked again. A chart that is not signed
    /// as the policy asks is none.
    async fn load(
        &self,
        bundle: &BundleDeployment,
        since: Option<Instant>,
        permit: &mut MemoryPermit<'_>,
    ) -> Result<Bundle, Halt> {
        let policy = self.signatures.current().await.map_err(|unusable| {
            let reason = match unusable {
                PolicyUnusable::Read(_) => Reason::SourceFailed,
                _ => Reason::SignatureRefused,
            };
            lacking(reason)(InputError::new(unusable))
        })?;
        let is_fetched = Source::of(bundle).is_ok_and(|source| source.is_fetched());
        let hosts = match is_fetched {
            true => self.hosts.current().await,
            false => Ok(None),
        };
        let fetching = Fetching {
            fetcher: &self.fetcher,
            hosts: hosts
                .map_err(|unread| lacking(Reason::SourceFailed)(InputError::new(unread)))?,
            since,
            policy: &policy,
        };
        let upstream = UpstreamObjects(&self.upstream);
        let loaded = bundle::load(bundle, &upstream, &fetching, permit);
        Box::pin(loaded).await.map_err(not_loaded)
    }

    /// Asks the source of a bundle's chart what it has now in place of what is deployed. Nothing where the bundle's chart has no source.
    ///
    /// # Errors
    /// The source cannot be asked, or has what could not be deployed: that is nothing to upgrade to, unless somebody asked for it.
    pub async fn poll(
        &self,
        impersonated: &DeploymentClient,
        bundle: &Arc<BundleDeployment>,
        deployed: &Release,
    ) -> Result<Found, Halt> {
        let now = self.sources.note_polled(bundle.name());
        let is_fetched = matches!(
            Source::of(bundle),
            Ok(Source::Chart { .. } | Source::Content { chart: Some(_), .. })
        );
        if !is_fetched {
            return Ok(Found::Same);
        }
        let memory = self.fetcher.memory();
        let mut permit = MemoryPermit::new(memory, impersonated.cluster().host(), 1);
        let loaded = self.load(bundle, Some(now), &mut permit).await?;
        let Bundle::Chart(fetched, _) = &loaded else {
            return Ok(Found::Same);
        };
        let (found, digest) = (
            chart_poll::compare(deployed, fetched),
            fetched.digest.clone(),
        );
        if found != Found::Other || self.sources.is_owed_answer(bundle.name()) {
            return Ok(found);
        }
        // What an index says of a chart is one thing, what the chart says of itself another.
        let files = checked_size(&loaded).map_err(not_loaded)?;
        let (bundle, namespace) = (Arc::clone(bundle), self.namespace.clone());
        let decode = move |budget: &mut Budget| {
            let package = loaded.package(&bundle, &namespace, budget);
            package.map(|package| package.chart.metadata)
        };
        let metadata = permit.decode(files, decode).await.map_err(aborted)?;
        let metadata = metadata.map_err(not_loaded)?;
        drop(permit);
        let older = chart_poll::older(deployed, &metadata.version, &digest);
        Ok(older.unwrap_or(found))
    }
}

/// What a deploy is made from.
struct Inputs {
    /// Covers what is made of them.
    reservation: Reservation,
    values: Map<String, Value>,
    /// Digest of the values that come from ConfigMaps and Secrets.
    values_digest: Option<String>,
    package: Package,
}

/// How many bytes a bundle's files take.
///
/// # Errors
/// More than are taken.
fn checked_size(loaded: &Bundle) -> Result<u64, BundleError> {
    match loaded.size_bytes() {
        files @ ..=MAX_UNPACKED_BYTES => Ok(files),
        // Nobody has counted further.
        _ => Err(BundleError::Content(format!(
            "the files take more than {MAX_UNPACKED_BYTES} bytes unpacked"
        ))),
    }
}

/// What a deploy is made from cannot be had, for `map_err`.
fn lacking(reason: Reason) -> impl FnOnce(InputError) -> Halt {
    InputError::at(Cause::Deploy(reason, None))
}

/// A panic may quote anything.
fn aborted(_: JoinError) -> Halt {
    lacking(Reason::SourceFailed)(InputError::Failed("loading the chart was aborted".into()))
}

/// The bundle's chart cannot be had, or may not be deployed.
fn not_loaded(failed: BundleError) -> Halt {
    let reason = match failed {
        BundleError::Refused(_) | BundleError::SignatureRule(_) => Reason::SignatureRefused,
        _ => Reason::SourceFailed,
    };
    lacking(reason)(InputError::from(failed))
}

/// How many revisions of a release a deploy has before it: its own, and the one that it builds on.
fn revisions(is_first: bool) -> u64 {
    match is_first {
        true => 1,
        false => 2,
    }
}

/// Reads of the content's source, each a live GET: the rights upstream allow no more.
struct UpstreamObjects<'a>(&'a Client);

impl bundle::Upstream for UpstreamObjects<'_> {
    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Secret>, BoxError> {
        let secrets = Api::<Secret>::namespaced(self.0.clone(), namespace);
        Ok(error::found(secrets.get(name).await)?)
    }

    async fn content(&self, name: &str) -> Result<Option<Content>, BoxError> {
        let contents = Api::<Content>::all(self.0.clone());
        Ok(error::found(contents.get(name).await)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_that_changes_all_the_time_is_deployed_now_and_then() {
        let supersessions = Supersessions::default();
        let mut deployed = 0;
        for _ in 0..40 {
            match supersessions.take("a") {
                MAX_SUPERSEDED => deployed += 1,
                count => supersessions.note("a", count + 1),
            }
        }
        assert_eq!(deployed, 10);
        assert!(supersessions.0.lock().is_empty());
    }

    /// A clock has an end: to add more to it than there is panics.
    #[test]
    fn a_timeout_has_an_upper_bound() {
        let longest = timeout(i64::MAX).unwrap();
        assert_eq!(longest, LONGEST_WAIT);
        assert!(Instant::now().checked_add(longest).is_some());
        assert_eq!(timeout(300), Some(Duration::from_secs(300)));
        assert_eq!((timeout(0), timeout(-1)), (None, None));
    }
}
