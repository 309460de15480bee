//! One agent for all cases, and a bundle of plain manifests in a namespace of its own for each of them.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::bed::{self, Bed, unique};
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::apply;
use testbed::fleet::test_agent::{PATIENCE, TestAgent, condition};
use testbed::wait::wait_until;
use tokio::sync::OnceCell;

/// Two Services, one that cannot be deleted at once, and a ConfigMap.
pub(crate) const SERVICES: &str = r#"apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  type: ClusterIP
  selector:
    app: web
  ports:
  - name: http
    protocol: TCP
    port: 80
    targetPort: 9376
---
apiVersion: v1
kind: Service
metadata:
  name: outside
spec:
  type: ExternalName
  externalName: outside.example
---
apiVersion: v1
kind: Service
metadata:
  name: held
  finalizers:
  - tests.example/held
spec:
  selector:
    app: web
  ports:
  - protocol: TCP
    port: 80
    targetPort: 9376
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: config
data:
  greeting: hello
  server.properties: |
    threads=4
"#;

/// What [`SERVICES`] is upgraded to: two Services are gone.
pub(crate) const FEWER: &str = r#"apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  selector:
    app: web
  ports:
  - protocol: TCP
    port: 80
    targetPort: 9376
---
kind: ConfigMap
apiVersion: v1
metadata:
  name: config
data:
  server.properties: |
    threads=8
"#;

/// A Deployment.
pub(crate) const DEPLOYMENT: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels:
    app: web
spec:
  replicas: 1
  selector:
    matchLabels:
      app: web
  template:
    metadata:
      labels:
        app: web
    spec:
      containers:
      - name: web
        image: registry.example/web:1
        ports:
        - containerPort: 80
"#;

/// Runs a test where all of them run: clients and their connections, which are shared, belong to the runtime they were made in.
pub(crate) fn run(test: impl Future<Output = Result<()>>) -> Result<()> {
    bed::runtime().block_on(test)
}

/// The agent all cases share.
pub(crate) async fn agent() -> Result<&'static TestAgent<'static>> {
    static AGENT: OnceCell<Result<TestAgent<'static>, String>> = OnceCell::const_new();
    let start = async || {
        let mut agent = TestAgent::prepare(Bed::shared().await?).await?;
        agent.grant().await?;
        agent.start(quick())?;
        anyhow::Ok(agent)
    };
    let start = async || start().await.map_err(|e| format!("{e:#}"));
    AGENT
        .get_or_init(start)
        .await
        .as_ref()
        .map_err(|e| anyhow::Error::msg(e.clone()))
}

/// Changes are collected for a moment only: the default of five seconds is all that most cases would wait for.
pub(crate) fn quick() -> BTreeMap<String, String> {
    BTreeMap::from([(
        "FLEET_AGENT_TIMING".to_owned(),
        "drift-delay=200ms".to_owned(),
    )])
}

/// A bundle of one manifest in a namespace of its own, which exists.
pub(crate) struct Case {
    /// The agent.
    pub(crate) agent: &'static TestAgent<'static>,
    /// Where the objects are.
    pub(crate) namespace: String,
    /// The BundleDeployment.
    pub(crate) name: String,
}

impl Case {
    /// A namespace, and nothing in it.
    pub(crate) async fn new(prefix: &str) -> Result<Self> {
        let agent = agent().await?;
        let name = unique(prefix);
        let case = Self {
            agent,
            namespace: format!("{name}-app"),
            name,
        };
        case.namespace(&case.namespace, json!({})).await?;
        Ok(case)
    }

    /// Creates a namespace with labels.
    pub(crate) async fn namespace(&self, name: &str, labels: Value) -> Result<()> {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels },
        });
        apply(&self.agent.downstream, namespace).await.map(drop)
    }

    /// The bundle with this manifest.
    pub(crate) fn bundle(&self, manifest: &str) -> BundleDeployment {
        bundle(&self.name, manifest, &self.namespace)
    }

    /// Deploys and waits until it is ready and unmodified.
    pub(crate) async fn deploy(&self, bundle: &BundleDeployment) -> Result<Value> {
        self.agent.apply(bundle).await?;
        self.agent.wait_ready(bundle.name()).await
    }

    /// Waits for Ready and unmodified.
    pub(crate) async fn ready(&self) -> Result<Value> {
        self.agent.wait_ready(&self.name).await
    }

    /// Merges a change into an object, as somebody with kubectl.
    pub(crate) async fn edit(
        &self,
        api_version: &str,
        kind: &str,
        name: &str,
        change: Value,
    ) -> Result<()> {
        let params = PatchParams {
            field_manager: Some("kubectl-edit".to_owned()),
            ..PatchParams::default()
        };
        let objects = self.agent.objects(api_version, kind, &self.namespace);
        objects.patch(name, &params, &Patch::Merge(&change)).await?;
        Ok(())
    }

    /// Changes a Service.
    pub(crate) async fn edit_service(&self, name: &str, change: Value) -> Result<()> {
        self.edit("v1", "Service", name, change).await
    }

    /// Changes the ConfigMap.
    pub(crate) async fn edit_config(&self, change: Value) -> Result<()> {
        self.edit("v1", "ConfigMap", "config", change).await
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, api_version: &str, kind: &str, name: &str) -> Result<()> {
        let objects = self.agent.objects(api_version, kind, &self.namespace);
        objects.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Creates an object in the case's namespace.
    pub(crate) async fn create(&self, mut object: Value) -> Result<DynamicObject> {
        object["metadata"]["namespace"] = json!(self.namespace);
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let objects = self
            .agent
            .objects(&text("apiVersion"), &text("kind"), &self.namespace);
        let object = serde_json::from_value(object)?;
        Ok(objects.create(&PostParams::default(), &object).await?)
    }

    /// An object that is there.
    pub(crate) async fn object(&self, api_version: &str, kind: &str, name: &str) -> Result<Value> {
        let object = self
            .agent
            .object(api_version, kind, &self.namespace, name)
            .await?;
        let object = object.with_context(|| format!("{kind} {name} is gone"))?;
        Ok(serde_json::to_value(object)?)
    }

    /// Waits until an object passes; gives it.
    pub(crate) async fn wait_object(
        &self,
        api_version: &str,
        kind: &str,
        name: &str,
        what: &str,
        passes: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let what = format!("{kind} {name} {what}");
        let waited = wait_until(&what, PATIENCE, async || {
            let object = self.object(api_version, kind, name).await;
            let object = object.map_err(|e| e.to_string())?;
            match passes(&object) {
                true => Ok(object),
                false => Err(object.to_string()),
            }
        });
        let log = || {
            format!(
                "the agent's log ends with:\n{}",
                self.agent.agent_log_tail(30)
            )
        };
        waited.await.with_context(log)
    }

    /// Waits until status lists exactly these modified objects, with this message at Ready.
    pub(crate) async fn modified(&self, entries: Value, message: &str) -> Result<Value> {
        let what = format!("to list {entries}");
        let found = self.agent.wait_for(&self.name, &what, |bundle| {
            bundle["status"]["modifiedStatus"] == entries
        });
        let found = found.await?;
        let ready = condition(&found, "Ready").context("a Ready condition")?;
        assert_eq!(ready["status"], "False");
        assert_eq!(ready["reason"], "Error");
        assert_eq!(ready["message"], json!(message));
        assert!(found["status"]["nonModified"].is_null());
        Ok(found)
    }

    /// The entry of `modifiedStatus` for an object of this namespace.
    pub(crate) fn entry(&self, kind: &str, name: &str, what: (&str, Value)) -> Value {
        let mut entry = json!({
            "apiVersion": "v1", "kind": kind, "namespace": self.namespace, "name": name,
        });
        entry[what.0] = what.1;
        entry
    }

    /// Shows that the agent has looked at everything that was changed until now: a change made after it is reported, alone.
    /// The ConfigMap is edited for that, and put right again.
    pub(crate) async fn only_this_is_reported(&self) -> Result<()> {
        self.edit_config(json!({ "data": { "server.properties": "edited" } }))
            .await?;
        let patch = r#"{"data":{"server.properties":"threads=4\n"}}"#;
        let message = format!("configmap.v1 {}/config modified {patch}", self.namespace);
        self.modified(
            json!([self.entry("ConfigMap", "config", ("patch", json!(patch)))]),
            &message,
        )
        .await?;
        self.edit_config(json!({ "data": { "server.properties": "threads=4\n" } }))
            .await?;
        self.ready().await.map(drop)
    }
}

/// A bundle with one file of manifests.
pub(crate) fn bundle(name: &str, manifest: &str, namespace: &str) -> BundleDeployment {
    BundleDeployment::content(name, vec![("manifests.yaml".to_owned(), manifest.into())])
        .option("defaultNamespace", json!(namespace))
}

/// A stored release, decoded.
pub(crate) async fn record(case: &Case, name: &str, revision: i64) -> Result<Value> {
    let key = format!("sh.helm.release.v1.{name}.v{revision}");
    decoded(&case.object("v1", "Secret", &key).await?)
}

/// What a release's Secret holds.
pub(crate) fn decoded(secret: &Value) -> Result<Value> {
    let payload = secret["data"]["release"].as_str().context("a payload")?;
    let zipped = STANDARD.decode(STANDARD.decode(payload)?)?;
    let mut json = Vec::new();
    GzDecoder::new(&zipped[..]).read_to_end(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}
