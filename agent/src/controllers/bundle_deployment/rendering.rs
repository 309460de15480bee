//! Rendering a bundle's chart for a deploy: everything it needs, owned, and the cluster as templates see it.
//!
//! Runs where it may block. What it gets to see of secrets is kept aside, so that errors can be reported without them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chart::rendered::RenderedError;
use chart::source::{Reservation, Waits};
use chart::{Chart, rendered};
use golib::budget::Allowance;
use kustomize::Stop;
use objects::manifest::documents;
use objects::{Discovery, Object, group_version};
use parking_lot::Mutex;
use release::BoxError;
use release::action::{RenderRequest, Rendered};
use release::kube::ClusterLookup;
use release::model::Release;
use serde_json::{Map, Value, json};
use templating::{Host, Limits, TemplateCache};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{ANNOTATION_LOOKED_UP, BundleDeployment};
use crate::bundle::{FleetPostRenderer, Kustomization, ResourceScope, Scopes, SetId};
use crate::ledger::{Containers, PlannedContainers};
use crate::public::PublicText;
use crate::public::redact::{LAST_APPLIED, SensitiveData};
use crate::schemas::Schemas;

/// Values do not fit the chart's schemas: where, not which.
#[derive(Debug, thiserror::Error)]
#[error("values don't meet the specifications of the schema(s) in the following chart(s):\n{0}")]
struct SchemaViolation(String);

/// What a deploy got to see of secrets besides its values, to be redacted from errors.
#[derive(Default)]
pub(super) struct SensitiveInputs {
    /// Documents that are Secrets, or lists that may hold some.
    secrets: Mutex<Vec<String>>,
    looked_up: Mutex<LookedUp>,
}

/// Secrets that templates looked up, each version once.
#[derive(Default)]
struct LookedUp {
    found: BTreeMap<(String, String, String), Value>,
    /// Size of the looked-up objects, in bytes, about.
    bytes: usize,
}

/// The most of Secrets that templates may look up: all of them are remembered, for errors to be reported without them.
const MAX_LOOKED_UP: usize = 4 << 20;

impl SensitiveInputs {
    fn rendered(&self, rendered: &rendered::Rendered) {
        let manifests = rendered.manifests.iter();
        let manifests = manifests.map(|one| (&one.head.kind, &one.content));
        let hooks = rendered
            .hooks
            .iter()
            .map(|hook| (&hook.kind, &hook.manifest));
        let secrets = manifests
            .chain(hooks)
            .filter(|(kind, _)| *kind == "Secret" || kind.ends_with("List"));
        let secrets = secrets.map(|(_, text)| text.clone()).collect();
        *self.secrets.lock() = secrets;
    }

    /// Remembers Secrets: one, or a list of them.
    ///
    /// # Errors
    /// They are too many.
    fn looked_up(&self, found: &Value) -> Result<(), templating::Error> {
        if let Some(items) = found.get("items").and_then(Value::as_array) {
            return items.iter().try_for_each(|item| self.looked_up(item));
        }
        if found.get("type").and_then(Value::as_str) == Some("helm.sh/release.v1") {
            // Packed, nobody quotes it, and it may take megabytes.
            return Ok(());
        }
        let of = |name: &str| {
            let field = found.get("metadata").and_then(|all| all.get(name));
            field.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let version = (of("namespace"), of("name"), of("resourceVersion"));
        let mut looked_up = self.looked_up.lock();
        if looked_up.found.contains_key(&version) {
            return Ok(());
        }
        // Secrets are recognised by their kind, which items of a list may lack.
        let mut secret = Map::from_iter([("kind".to_owned(), "Secret".into())]);
        for field in ["data", "stringData"] {
            secret.extend(found.get(field).map(|all| (field.to_owned(), all.clone())));
        }
        let annotations = found.get("metadata").and_then(|all| all.get("annotations"));
        if let Some(applied) = annotations.and_then(|all| all.get(LAST_APPLIED)) {
            let metadata = json!({ "annotations": { LAST_APPLIED: applied } });
            secret.insert("metadata".to_owned(), metadata);
        }
        let secret = Value::Object(secret);
        looked_up.bytes += golib::budget::weigh(&secret);
        looked_up.found.insert(version, secret);
        match looked_up.bytes {
            ..=MAX_LOOKED_UP => Ok(()),
            _ => Err(templating::Error::message(format!(
                "templates look up more than {MAX_LOOKED_UP} bytes of Secrets"
            ))),
        }
    }

    /// Whether what was looked up stands in Secrets of the release no more: nobody knows it later.
    fn are_some_unknown(&self) -> bool {
        let mut secrets = SensitiveData::default();
        let looked_up = self.looked_up.lock();
        if looked_up.found.is_empty() {
            return false;
        }
        let documents = self.secrets.lock();
        documents
            .iter()
            .for_each(|document| secrets.add_manifest(document));
        secrets.lacks(looked_up.found.values())
    }

    /// All sensitive data of the deploy, values included.
    pub(super) fn secrets(&self, values: &Map<String, Value>, chart: &Arc<Chart>) -> SensitiveData {
        let mut secrets = SensitiveData::of_values(values, chart);
        let documents = self.secrets.lock();
        documents
            .iter()
            .for_each(|document| secrets.add_manifest(document));
        let looked_up = self.looked_up.lock();
        let found = looked_up.found.values();
        found.for_each(|object| secrets.add_object(object));
        secrets
    }
}

/// The inputs of a rendering, owned, because it runs on another thread.
pub(super) struct Rendering {
    pub(super) bundle: Arc<BundleDeployment>,
    pub(super) chart: Arc<Chart>,
    pub(super) kustomization: Option<Kustomization>,
    pub(super) values: Arc<Map<String, Value>>,
    pub(super) sensitive: Arc<SensitiveInputs>,
    pub(super) set: SetId,
    pub(super) templates: Arc<TemplateCache>,
    pub(super) schemas: Arc<Schemas>,
    pub(super) discovery: Arc<Discovery>,
    pub(super) skip_schema_validation: bool,
    pub(super) disable_dns: bool,
    /// How long templates may take, however often the deploy renders them, and how long they have.
    pub(super) limit: Duration,
    pub(super) spent: Mutex<Duration>,
    /// Cancelled when nobody wants the result any more.
    pub(super) superseded: CancellationToken,
    /// Memory the rendering may take.
    pub(super) reservation: RenderReservation,
    /// How many revisions are there at one time, as large as this one.
    pub(super) revisions: u64,
    /// What the objects will be in.
    pub(super) planned: PlannedContainers,
}

/// What a deploy may take, for whoever has to do with it: from reading its chart until its release is not used any more.
#[derive(Clone)]
pub(super) struct RenderReservation(Arc<Mutex<Granted>>);

struct Granted {
    reservation: Option<Reservation>,
    /// The most it ever was: templates that are rendered once more, for another revision, may take as much again.
    most: u64,
    /// Bytes that stay reserved once the objects are written.
    rest: u64,
}

impl RenderReservation {
    pub(super) fn new(reservation: Reservation) -> Self {
        Self(Arc::new(Mutex::new(Granted {
            most: reservation.bytes(),
            rest: reservation.bytes(),
            reservation: Some(reservation),
        })))
    }

    /// How many bytes templates may count on.
    fn most(&self) -> u64 {
        self.0.lock().most
    }

    /// Templates wait for a server, until this is dropped: others do not wait with them.
    fn waits(&self) -> Option<Waits> {
        self.0.lock().reservation.as_ref().map(Reservation::waits)
    }

    /// The release is rendered, and takes `bytes` until its objects are written, `rest` then. Hooks and waits come now, and keep no memory
    /// from others.
    fn rendered(&self, bytes: u64, rest: u64) {
        let mut granted = self.0.lock();
        granted.rest = rest;
        if let Some(reservation) = granted.reservation.as_mut() {
            reservation.hold(bytes);
            reservation.rest();
        }
    }

    /// The objects are written.
    pub(super) fn written(&self) {
        let mut granted = self.0.lock();
        let rest = granted.rest;
        if let Some(reservation) = granted.reservation.as_mut() {
            reservation.shrink(rest);
        }
    }

    /// Waits for a reservation that templates fit into which outgrew this one.
    ///
    /// # Cancellation
    /// What there was is given back.
    pub(super) async fn grow(&self) {
        let Some(mut reservation) = self.take() else {
            return;
        };
        let most = larger_reservation(self.most());
        reservation.resize(most).await;
        *self.0.lock() = Granted {
            reservation: Some(reservation),
            most,
            rest: most,
        };
    }

    /// Takes it away from whoever has it still.
    pub(super) fn take(&self) -> Option<Reservation> {
        self.0.lock().reservation.take()
    }
}

/// How many times the size of its manifest a release takes: the text, the objects as they are wanted, as they are sent and as they are
/// live. Measured, not computed.
const MANIFEST_FACTOR: u64 = 10;

/// What a rendered release takes until its objects are written, in bytes, about: its text, that in its record and in requests, the objects,
/// and those in flight or live.
/// What stays of them then is `rest`.
fn rendered_bytes(rendered: &rendered::Rendered, rest: u64) -> u64 {
    let text = rendered.manifest.len() as u64;
    let weigh = |object: &Value| golib::budget::weigh(object) as u64;
    let objects = rendered
        .manifests
        .iter()
        .map(|manifest| match &manifest.object {
            Some(object) => weigh(object),
            None => manifest.content.len() as u64 * MANIFEST_FACTOR / 2,
        });
    text + 2 * objects.sum::<u64>() + rest
}

/// What a release takes that live objects are compared with, in bytes, about.
pub(super) struct Compared {
    /// With its objects.
    pub(super) known: u64,
    /// The live ones, where they are as they are wanted.
    pub(super) live: u64,
}

impl Compared {
    pub(super) fn of(release: &Release, objects: &[Object]) -> Self {
        let objects = objects
            .iter()
            .map(|object| golib::budget::weigh(&object.body) as u64);
        let live = objects.sum();
        Self {
            known: release.size_bytes() + live,
            live,
        }
    }

    /// With live objects that take so much by now.
    pub(super) fn bytes(&self, live: u64) -> u64 {
        self.known + self.live.max(live)
    }
}

/// What a release takes with the objects that are read from it and those that are live, in bytes, about, as long as they are not read.
pub(super) fn release_bytes(manifest: &str, chart: Option<&Chart>) -> u64 {
    manifest.len() as u64 * MANIFEST_FACTOR + chart.map_or(0, Chart::size_bytes)
}

/// The most that the templates of a bundle may leave, and the most of lists and maps that they may have at one time, in bytes. More fits
/// no record unless it is packed eightfold, and not beside the rest of what the agent may take.
const MAX_OUTPUT: u64 = 8 << 20;
const MAX_BUILT: u64 = 64 << 20;

/// Fraction of the reservation that the templates' output may take. A chart of nothing but definitions leaves a little more than its files are.
const OUTPUT_PART: u64 = 8;

/// A reservation for templates that outgrew one of so many bytes.
pub(super) fn larger_reservation(bytes: u64) -> u64 {
    bytes
        .saturating_mul(4)
        .min(MAX_OUTPUT * MANIFEST_FACTOR)
        .max(bytes)
}

/// Limits of templates in a reservation of so many bytes, and whether a larger one would raise them.
fn limits(reserved: u64) -> (Limits, bool) {
    let output = reserved / OUTPUT_PART;
    if output >= MAX_OUTPUT {
        let limits = Limits {
            output: MAX_OUTPUT,
            memory: MAX_BUILT,
            ..Limits::default()
        };
        return (limits, false);
    }
    let limits = Limits {
        output,
        text: output,
        memory: reserved,
        ..Limits::default()
    };
    (limits, true)
}

/// The templates take more than their reservation covers: they are rendered once more, in a larger one.
#[derive(Debug, thiserror::Error)]
#[error("rendering takes more than the {0} bytes that it has")]
pub(super) struct OverReservation(u64);

/// Whether templates were stopped because they took too much.
fn is_limit(failed: &RenderedError) -> bool {
    let RenderedError::Render(failed) = failed else {
        return false;
    };
    failed
        .template_error()
        .is_some_and(templating::Error::is_limit)
}

/// Another spec came while this one was being rendered.
#[derive(Debug, thiserror::Error)]
#[error("the bundle has changed meanwhile")]
struct Superseded;

impl Rendering {
    /// Renders.
    ///
    /// # Errors
    /// The chart does not render, or not in time, or nobody wants it any more. No text quotes values that break a schema.
    pub(super) fn render(&self, request: &RenderRequest) -> Result<Rendered, BoxError> {
        let lookup = request.lookup.clone().resolving_names(!self.disable_dns);
        let host = ClusterHost {
            lookup: &lookup,
            reservation: &self.reservation,
            sensitive: &self.sensitive,
            clock: RenderClock::new(*self.spent.lock(), self.limit),
            superseded: &self.superseded,
        };
        let reserved = self.reservation.most();
        let (limits, has_less) = limits(reserved);
        let may_grow = larger_reservation(reserved) > reserved;
        let allowance = Allowance::new(usize::try_from(reserved).unwrap_or(usize::MAX));
        let scopes = DiscoveredScopes(&self.discovery);
        let kustomization = self.kustomization.as_ref();
        let kustomization = kustomization.map(|own| own.until(host.stop()));
        let post_renderer = FleetPostRenderer::new(
            &self.chart,
            &self.set,
            &self.bundle.spec.options,
            Some(&scopes),
        )
        .kustomized(kustomization.as_ref())
        .within(&allowance);
        let values = Value::Object(self.values.as_ref().clone());
        let chart = self.chart.as_ref().clone();
        let (release, capabilities) = (&request.release, &request.capabilities);
        let rendered = rendered::render_release(rendered::Request {
            post_renderer: Some(&post_renderer),
            templates: Some(&self.templates),
            schemas: Some(&*self.schemas),
            allowance: allowance.clone(),
            options: rendered::RenderOptions {
                skip_schema_validation: self.skip_schema_validation,
                limits,
                ..rendered::RenderOptions::default()
            },
            ..rendered::Request::new(chart, &values, release, capabilities, &host)
        });
        *self.spent.lock() += host.clock.begun.elapsed();
        // An error here may be caused by the reservation: text beyond it is left out, or the error worded otherwise.
        let is_over = may_grow && allowance.is_exceeded();
        let mut rendered = match rendered {
            rendered if is_over => {
                drop(rendered);
                host.check()?;
                return Err(OverReservation(reserved).into());
            }
            Ok(rendered) => rendered,
            Err(RenderedError::Schema(misfits)) => {
                return Err(SchemaViolation(misfits.masked()).into());
            }
            Err(failed) if has_less && is_limit(&failed) && host.check().is_ok() => {
                return Err(OverReservation(reserved).into());
            }
            Err(failed) => return Err(failed.into()),
        };
        self.sensitive.rendered(&rendered);
        if self.sensitive.are_some_unknown() {
            let annotations = rendered.chart.metadata.annotations.get_or_insert_default();
            annotations.insert(ANNOTATION_LOOKED_UP.to_owned(), "true".to_owned());
        }
        if self.superseded.is_cancelled() {
            // The last moment before anything is written.
            return Err(Superseded.into());
        }
        let namespace = self.bundle.spec.options.release_namespace();
        self.planned
            .set(containers(&rendered, namespace, &self.discovery));
        let rest = self.rest_bytes(&rendered);
        let bytes = rendered_bytes(&rendered, rest);
        self.reservation.rendered(bytes * self.revisions, rest);
        for warning in &rendered.warnings {
            logging::debug!(
                bundle = self.bundle.name(),
                warning = PublicText::of_warning(warning),
                "rendering"
            );
        }
        Ok(Rendered::new(rendered, self.values.as_ref().clone()))
    }
}

impl Rendering {
    /// Memory a deploy keeps once its objects are written, while it waits for hooks and objects, in bytes, about: the text, that in
    /// its record, the chart, the files that kustomize built, and values as they were given and in the record.
    fn rest_bytes(&self, rendered: &rendered::Rendered) -> u64 {
        let values = golib::budget::weigh_entries(&self.values) as u64;
        let files = self
            .kustomization
            .as_ref()
            .map_or(0, Kustomization::size_bytes);
        let text = rendered.manifest.len() as u64;
        2 * text + rendered.chart.size_bytes() + files + 2 * values
    }
}

/// What the objects of a rendered release will be in, those of its hooks with them, besides its own namespace. What cannot be read is not deployed.
fn containers(rendered: &rendered::Rendered, namespace: &str, discovery: &Discovery) -> Containers {
    let mut containers = Containers::default();
    let manifests = rendered.manifests.iter();
    let manifests = manifests.map(|one| (&one.object, &one.content));
    let hooks = rendered.hooks.iter();
    let hooks = hooks.map(|hook| (&hook.object, &hook.manifest));
    for (object, text) in manifests.chain(hooks) {
        match object {
            Some(object) => containers.note_document(object, namespace, discovery),
            None => documents(text)
                .unwrap_or_default()
                .iter()
                .for_each(|one| containers.note_document(one, namespace, discovery)),
        }
    }
    containers
}

/// The world as templates of a deploy see it: the clock, the cluster, and names if allowed.
struct ClusterHost<'a> {
    lookup: &'a ClusterLookup,
    reservation: &'a RenderReservation,
    sensitive: &'a SensitiveInputs,
    clock: RenderClock,
    superseded: &'a CancellationToken,
}

/// How long a deploy has rendered.
#[derive(Clone, Copy)]
pub(super) struct RenderClock {
    begun: Instant,
    /// Time that earlier tries of the same deploy took.
    before: Duration,
    limit: Duration,
}

impl RenderClock {
    /// Begins now.
    pub(super) fn new(before: Duration, limit: Duration) -> Self {
        Self {
            begun: Instant::now(),
            before,
            limit,
        }
    }

    fn check(&self) -> Result<(), templating::Error> {
        let spent = self.before + self.begun.elapsed();
        if spent < self.limit {
            return Ok(());
        }
        let seconds = self.limit.as_secs_f64();
        Err(templating::Error::limit(format!(
            "rendering takes longer than {seconds} s"
        )))
    }
}

impl ClusterHost<'_> {
    /// Ends a build of kustomize as [`Host::check`] ends templates.
    fn stop(&self) -> Stop {
        let (superseded, clock) = (self.superseded.clone(), self.clock);
        // A build has a thread of its own, and its time is the runtime's.
        let runtime = Handle::try_current().ok();
        Stop::new(move || {
            let _runtime = runtime.as_ref().map(Handle::enter);
            match superseded.is_cancelled() {
                true => Some(Superseded.to_string()),
                false => clock.check().err().map(|error| error.to_string()),
            }
        })
    }
}

impl Host for ClusterHost<'_> {
    fn check(&self) -> Result<(), templating::Error> {
        if self.superseded.is_cancelled() {
            return Err(templating::Error::limit(Superseded.to_string()));
        }
        self.clock.check()
    }

    fn resolve(&self, name: &str) -> Option<Result<Vec<std::net::IpAddr>, templating::Error>> {
        let _waits = self.reservation.waits();
        self.lookup.resolve(name)
    }

    fn lookup(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, templating::Error> {
        let waits = self.reservation.waits();
        let found = self.lookup.lookup(api_version, kind, namespace, name);
        drop(waits);
        let found = found?;
        if kind == "Secret" {
            self.sensitive.looked_up(&found)?;
        }
        Ok(found)
    }
}

/// The world as `${ }` sees it: the clock alone.
impl Host for RenderClock {
    fn check(&self) -> Result<(), templating::Error> {
        Self::check(self)
    }
}

/// Scopes of kinds as the cluster serves them.
struct DiscoveredScopes<'a>(&'a Discovery);

impl Scopes for DiscoveredScopes<'_> {
    fn scope(&self, api_version: &str, kind: &str) -> Option<ResourceScope> {
        let (group, version) = group_version(api_version);
        let resource = self.0.resource(group, version, kind)?;
        Some(if resource.namespaced {
            ResourceScope::Namespaced
        } else {
            ResourceScope::Cluster
        })
    }
}

#[cfg(test)]
mod tests {
    use chart::source::Memory;

    use super::*;

    /// A chart may look the same Secret up in a loop.
    #[test]
    fn secrets_that_are_looked_up_are_remembered_once_and_not_without_end() {
        let secret = |name: &str, version: &str| {
            serde_json::json!({
                "kind": "Secret", "metadata": {"namespace": "ns", "name": name, "resourceVersion": version},
                "stringData": {"password": "x".repeat(1 << 20)},
            })
        };
        let inputs = SensitiveInputs::default();
        for _ in 0..100 {
            inputs.looked_up(&secret("a", "1")).unwrap();
        }
        let list = serde_json::json!({"kind": "SecretList", "items": [secret("a", "1"), secret("b", "1")]});
        inputs.looked_up(&list).unwrap();
        // Records of releases stand in the namespace too, and nobody quotes them.
        let mut record = secret("sh.helm.release.v1.web.v1", "1");
        record["type"] = "helm.sh/release.v1".into();
        record["data"] = serde_json::json!({"release": "x".repeat(5 << 20)});
        inputs.looked_up(&record).unwrap();
        inputs.looked_up(&secret("a", "2")).unwrap();
        let count = inputs.looked_up.lock().found.len();
        assert_eq!(count, 3);
        let failed = inputs.looked_up(&secret("c", "1")).unwrap_err();
        assert!(
            failed.to_string().contains("more than 4194304 bytes"),
            "{failed}"
        );
        let secrets = inputs.secrets(&Map::new(), &Arc::default());
        assert!(!secrets.redact(&"x".repeat(1 << 20)).contains('x'));
    }

    /// A password that was changed where it is used, but not yet in all places.
    #[test]
    fn the_former_values_of_a_looked_up_secret_are_redacted() {
        let before = json!({"kind": "Secret", "stringData": {"password": "canary-before"}});
        let annotations = json!({ LAST_APPLIED: before.to_string() });
        let secret = json!({
            "kind": "Secret", "metadata": {"name": "a", "annotations": annotations},
            "data": {"password": golib::base64::encode("canary-now")},
        });
        let inputs = SensitiveInputs::default();
        inputs.looked_up(&secret).unwrap();
        let secrets = inputs.secrets(&Map::new(), &Arc::default());
        let shown = secrets.redact(&format!("no: {}", golib::json::encode(&secret)));
        assert!(
            shown.contains("password") && !shown.contains("canary"),
            "{shown}"
        );
        assert!(
            !shown.contains(&golib::base64::encode("canary-now")),
            "{shown}"
        );
    }

    /// A password of a Secret of others is known at the deploy alone; what a chart makes once and looks up from then on is in its own Secret.
    #[test]
    fn a_lookup_of_a_secret_outside_the_release_is_noted() {
        let looked_up = |data: &str| {
            let inputs = SensitiveInputs::default();
            let encoded = golib::base64::encode("canary");
            let own = format!("kind: Secret\ndata: {{a: {encoded}}}\nstringData: {{b: other}}\n");
            inputs.secrets.lock().push(own);
            let secret =
                serde_json::json!({"kind": "Secret", "data": {"x": golib::base64::encode(data)}});
            inputs.looked_up(&secret).unwrap();
            inputs.are_some_unknown()
        };
        assert!(!looked_up("canary"));
        assert!(!looked_up("other"));
        assert!(looked_up("of-others"));
        assert!(!SensitiveInputs::default().are_some_unknown());
    }

    /// A chart that is rendered four times, as it wants ever more room, has its time once.
    #[test]
    fn the_render_time_limit_covers_all_renders_of_a_deploy() {
        let clock = |before| RenderClock {
            begun: Instant::now(),
            before: Duration::from_secs(before),
            limit: Duration::from_secs(120),
        };
        assert!(clock(60).check().is_ok());
        let failed = clock(120).check().unwrap_err().to_string();
        assert!(
            failed.contains("rendering takes longer than 120 s"),
            "{failed}"
        );
    }

    /// The last reservation of templates is alone and has the most, whatever they begin with.
    #[test]
    fn memory_reservations_grow_until_templates_have_the_maximum() {
        let (mut reserved, mut reservations) = (1 << 20, 1);
        while let (smaller, true) = limits(reserved) {
            reserved = larger_reservation(reserved);
            reservations += 1;
            let (larger, _) = limits(reserved);
            assert!(larger.output > smaller.output && larger.memory > smaller.memory);
        }
        assert_eq!(reservations, 4);
        assert_eq!(limits(reserved).0.output, MAX_OUTPUT);
        // A large chart has it at once, and no less for being large.
        assert_eq!(larger_reservation(1 << 30), 1 << 30);
    }

    /// Templates that ask the cluster in a loop, in the largest reservation there is.
    #[tokio::test(start_paused = true)]
    async fn templates_waiting_for_the_cluster_do_not_block_other_reservations() {
        let memory = Memory::new(48 << 20);
        let reservation = RenderReservation::new(memory.reserve(64 << 20).await);
        let asks = async {
            loop {
                let waits = reservation.waits();
                tokio::time::sleep(Duration::from_millis(20)).await;
                drop(waits);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let begun = Instant::now();
        tokio::select! {
            () = asks => {}
            _other = memory.reserve(2 << 20) => {}
        }
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        // A reservation that was taken away waits for nothing.
        drop(reservation.take());
        assert!(reservation.waits().is_none());
        assert_eq!(memory.used(), 0);
    }
}
