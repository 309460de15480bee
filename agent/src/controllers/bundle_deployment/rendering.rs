//! Rendering a bundle's chart for a deploy: everything it needs, owned, and the cluster as templates see it.
//!
//! Runs where it may block. What it gets to see of secrets is kept aside, so that errors can be told without them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chart::rendered::RenderedError;
use chart::source::Reservation;
use chart::{Chart, rendered};
use objects::Discovery;
use release::BoxError;
use release::action::{RenderRequest, Rendered};
use release::kube::ClusterLookup;
use serde_json::{Map, Value};
use templating::{Host, TemplateCache};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::BundleDeployment;
use crate::bundle::{FleetPostRenderer, Kustomization, Scope, Scopes, SetId};
use crate::error;
use crate::report::redact::SensitiveData;
use crate::schemas::Schemas;

/// Values do not fit the chart's schemas: where, not which.
#[derive(Debug, thiserror::Error)]
#[error("values don't meet the specifications of the schema(s) in the following chart(s):\n{0}")]
struct ValuesMisfit(String);

/// What a deploy got to see of secrets besides its values, to be redacted from errors.
#[derive(Default)]
pub(super) struct SensitiveInputs {
    manifest: Mutex<String>,
    looked_up: Mutex<Vec<Value>>,
}

impl SensitiveInputs {
    fn rendered(&self, manifest: &str) {
        if manifest.contains("Secret") {
            manifest.clone_into(&mut self.manifest.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn looked_up(&self, found: &Value) {
        let mut looked_up = self
            .looked_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        looked_up.push(found.clone());
    }

    /// All of it, with the values.
    pub(super) fn secrets(&self, values: &Map<String, Value>, chart: &Chart) -> SensitiveData {
        let mut secrets = SensitiveData::of_values(values, chart);
        secrets.add_manifest(&self.manifest.lock().unwrap_or_else(PoisonError::into_inner));
        let looked_up = self
            .looked_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        looked_up
            .iter()
            .for_each(|object| secrets.add_object(object));
        secrets
    }
}

/// Everything a rendering needs, owned, because it runs on another thread.
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
    /// How long templates may take.
    pub(super) limit: Duration,
    /// Cancelled when nobody wants the result any more.
    pub(super) superseded: CancellationToken,
    /// What it may take. Hooks and waits come after it, and take none of it from others.
    pub(super) turn: Mutex<Reservation>,
}

/// What a manifest takes with the objects that are read from it, about.
pub(super) fn manifest_bytes(manifest: &str) -> u64 {
    manifest.len() as u64 * 6
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
        let host = ClusterHost {
            lookup: &request.lookup,
            sensitive: &self.sensitive,
            resolves_names: !self.disable_dns,
            begun: Instant::now(),
            limit: self.limit,
            superseded: &self.superseded,
        };
        let scopes = DiscoveredScopes(&self.discovery);
        let post_renderer = FleetPostRenderer::new(
            &self.chart,
            &self.set,
            &self.bundle.spec.options,
            Some(&scopes),
        )
        .kustomized(self.kustomization.as_ref());
        let values = Value::Object(self.values.as_ref().clone());
        let chart = self.chart.as_ref().clone();
        let (release, capabilities) = (&request.release, &request.capabilities);
        let rendered = rendered::render_release(rendered::Request {
            post_renderer: Some(&post_renderer),
            templates: Some(&self.templates),
            schemas: Some(&*self.schemas),
            options: rendered::RenderOptions {
                skip_schema_validation: self.skip_schema_validation,
                ..rendered::RenderOptions::default()
            },
            ..rendered::Request::new(chart, &values, release, capabilities, &host)
        })
        .map_err(|failed| match failed {
            RenderedError::Schema(misfits) => Box::new(ValuesMisfit(misfits.masked())).into(),
            failed => BoxError::from(failed),
        })?;
        self.sensitive.rendered(&rendered.manifest);
        if self.superseded.is_cancelled() {
            // The last moment before anything is written.
            return Err(Superseded.into());
        }
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        turn.shrink(manifest_bytes(&rendered.manifest));
        turn.rest();
        drop(turn);
        for warning in &rendered.warnings {
            tracing::debug!(bundle = self.bundle.name(), %warning, "rendering");
        }
        Ok(Rendered::new(rendered, self.values.as_ref().clone()))
    }
}

/// The world as templates of a deploy see it: the clock, the cluster, and names if allowed.
struct ClusterHost<'a> {
    lookup: &'a ClusterLookup,
    sensitive: &'a SensitiveInputs,
    resolves_names: bool,
    begun: Instant,
    limit: Duration,
    superseded: &'a CancellationToken,
}

impl Host for ClusterHost<'_> {
    fn check(&self) -> Result<(), templating::Error> {
        if self.superseded.is_cancelled() {
            return Err(templating::Error::limit(Superseded.to_string()));
        }
        if self.begun.elapsed() < self.limit {
            return Ok(());
        }
        let seconds = self.limit.as_secs_f64();
        Err(templating::Error::limit(format!(
            "rendering takes longer than {seconds} s"
        )))
    }

    fn resolve(&self, name: &str) -> Option<Result<Vec<std::net::IpAddr>, templating::Error>> {
        use std::net::ToSocketAddrs as _;
        if !self.resolves_names {
            return None;
        }
        let addresses = (name, 0).to_socket_addrs();
        Some(match addresses {
            Ok(addresses) => Ok(addresses.map(|address| address.ip()).collect()),
            Err(failed) => Err(templating::Error::message(failed.to_string())),
        })
    }

    fn lookup(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, templating::Error> {
        let found = self
            .lookup
            .lookup(api_version, kind, namespace, name)
            .map_err(|failed| templating::Error::message(error::chain(&failed)))?;
        if kind == "Secret" {
            self.sensitive.looked_up(&found);
        }
        Ok(found)
    }
}

/// Scopes of kinds as the cluster serves them.
struct DiscoveredScopes<'a>(&'a Discovery);

impl Scopes for DiscoveredScopes<'_> {
    fn scope(&self, api_version: &str, kind: &str) -> Option<Scope> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = self.0.resource(group, version, kind)?;
        Some(if resource.namespaced {
            Scope::Namespaced
        } else {
            Scope::Cluster
        })
    }
}
