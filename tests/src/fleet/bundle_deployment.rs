//! BundleDeployments as the stock controller writes them, for each kind of content.

use std::io::Write as _;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};

use super::{API_VERSION, FINALIZER, sha256_hex};

/// A BundleDeployment in the making; [`Self::build`] gives the objects the controller would write.
#[derive(Debug, Clone)]
pub struct BundleDeployment {
    name: String,
    options: Map<String, Value>,
    helm: Map<String, Value>,
    values: Option<Value>,
    chart_options: Option<Value>,
    content: Option<Vec<(String, Vec<u8>)>>,
    spec: Map<String, Value>,
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
}

/// The objects of one BundleDeployment.
#[derive(Debug, Clone)]
pub struct Objects {
    /// The BundleDeployment.
    pub bundle_deployment: Value,
    /// The Secret of the same name with the values, if there are any.
    pub values_secret: Option<Value>,
    /// The cluster-scoped Content, if the bundle carries files.
    pub content: Option<Value>,
}

impl BundleDeployment {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            options: Map::new(),
            helm: Map::new(),
            values: None,
            chart_options: None,
            content: None,
            spec: Map::new(),
            labels: Map::new(),
            annotations: Map::new(),
        }
    }

    /// A HelmOp: the agent pulls the chart, `repo` is an HTTP repository.
    pub fn helm_op(name: &str, repo: &str, chart: &str, version: &str) -> Self {
        let mut it = Self::native(name, repo, chart, version);
        it.chart_options = Some(json!({}));
        it
    }

    /// A HelmOp from an OCI registry: `reference` begins with `oci://`.
    pub fn oci_helm_op(name: &str, reference: &str, version: &str) -> Self {
        let mut it = Self::new(name)
            .helm("repo", json!(reference))
            .helm("version", json!(version));
        it.chart_options = Some(json!({}));
        it
    }

    /// Chart coordinates without content and without HelmOp: the stock controller names the empty manifest.
    pub fn native(name: &str, repo: &str, chart: &str, version: &str) -> Self {
        let it = Self::new(name)
            .helm("repo", json!(repo))
            .helm("chart", json!(chart));
        if version.is_empty() {
            it
        } else {
            it.helm("version", json!(version))
        }
    }

    /// Files carried in a Content: a chart below a directory, or plain manifests.
    pub fn content(name: &str, files: Vec<(String, Vec<u8>)>) -> Self {
        let mut it = Self::new(name);
        it.content = Some(files);
        it
    }

    /// A chart `c` among its files, in folder `chart`: what else is in there, by path and text.
    pub fn chart(name: &str, files: &[(&str, &str)]) -> Self {
        let metadata = ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n");
        let files = std::iter::once(&metadata).chain(files);
        let files = files.map(|(path, text)| (format!("chart/{path}"), (*text).into()));
        Self::content(name, files.collect()).helm("chart", json!("chart"))
    }

    /// Sets `options.helm.<key>`.
    #[must_use]
    pub fn helm(mut self, key: &str, value: Value) -> Self {
        self.helm.insert(key.to_owned(), value);
        self
    }

    /// Sets `options.<key>`.
    #[must_use]
    pub fn option(mut self, key: &str, value: Value) -> Self {
        self.options.insert(key.to_owned(), value);
        self
    }

    /// Sets `spec.<key>`.
    #[must_use]
    pub fn spec(mut self, key: &str, value: Value) -> Self {
        self.spec.insert(key.to_owned(), value);
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), json!(value));
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), json!(value));
        self
    }

    /// The release's name and the namespace it goes to unless the objects say otherwise.
    #[must_use]
    pub fn release(self, name: &str, default_namespace: &str) -> Self {
        self.helm("releaseName", json!(name))
            .option("defaultNamespace", json!(default_namespace))
    }

    /// The values, which travel in a Secret.
    #[must_use]
    pub fn values(mut self, values: Value) -> Self {
        self.values = Some(values);
        self
    }

    /// Switches drift correction on.
    #[must_use]
    pub fn correct_drift(self) -> Self {
        self.spec("correctDrift", json!({ "enabled": true }))
            .option("correctDrift", json!({ "enabled": true }))
    }

    /// HelmOps options: the name of the secret with credentials, a CA bundle (PEM), whether to skip verification.
    #[must_use]
    pub fn chart_options(mut self, secret: &str, ca_bundle: Option<&str>, insecure: bool) -> Self {
        let mut options = Map::new();
        if !secret.is_empty() {
            options.insert("helmOpSecretName".to_owned(), json!(secret));
        }
        if let Some(pem) = ca_bundle {
            options.insert("helmOpCABundle".to_owned(), json!(STANDARD.encode(pem)));
        }
        if insecure {
            options.insert("helmOpInsecureSkipTLSVerify".to_owned(), json!(true));
        }
        self.chart_options = Some(Value::Object(options));
        self
    }

    /// The BundleDeployment's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The objects, in the namespace of one cluster.
    ///
    /// # Errors
    /// When the content cannot be packed.
    pub fn build(&self, namespace: &str) -> Result<Objects> {
        let mut options = self.options.clone();
        if !self.helm.is_empty() {
            options.insert("helm".to_owned(), Value::Object(self.helm.clone()));
        }
        let options = Value::Object(options);
        // The values are part of what is hashed, before the controller takes them out again.
        let hash = sha256_hex(format!("{options}{:?}", self.values).as_bytes());
        let manifest = manifest(self.content.as_deref().unwrap_or_default());
        let manifest_id = manifest_id(&manifest);
        let deployment_id = match &self.chart_options {
            Some(_) => format!(":{hash}"),
            None => format!("{manifest_id}:{hash}"),
        };
        let mut labels = self.labels.clone();
        for (key, value) in [
            ("fleet.cattle.io/bundle-name", self.name.as_str()),
            ("fleet.cattle.io/bundle-namespace", "fleet-default"),
            ("fleet.cattle.io/managed", "true"),
        ] {
            labels.entry(key).or_insert_with(|| json!(value));
        }
        let mut spec = self.spec.clone();
        spec.insert("deploymentID".to_owned(), json!(deployment_id));
        spec.insert("stagedDeploymentID".to_owned(), json!(deployment_id));
        spec.insert("options".to_owned(), options.clone());
        spec.insert("stagedOptions".to_owned(), options);
        if let Some(chart_options) = &self.chart_options {
            spec.insert("helmChartOptions".to_owned(), chart_options.clone());
        }
        let values_secret = self.values.as_ref().map(|values| {
            let values = values.to_string();
            let hash = sha256_hex(format!("{values}{values}").as_bytes());
            spec.insert("valuesHash".to_owned(), json!(hash));
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "fleet.cattle.io/bundle-deployment/v1alpha1",
                "metadata": { "name": self.name, "namespace": namespace },
                "data": { "values": STANDARD.encode(&values), "stagedValues": STANDARD.encode(&values) },
            })
        });
        let content = match self.content {
            Some(_) => Some(content(&manifest_id, &manifest)?),
            None => None,
        };
        let bundle_deployment = json!({
            "apiVersion": API_VERSION,
            "kind": "BundleDeployment",
            "metadata": {
                "name": self.name,
                "namespace": namespace,
                "labels": labels,
                "annotations": self.annotations,
                "finalizers": [FINALIZER],
            },
            "spec": spec,
        });
        Ok(Objects {
            bundle_deployment,
            values_secret,
            content,
        })
    }
}

/// The manifest of files as Go prints it, with its newline: this is what is hashed.
pub fn manifest(files: &[(String, Vec<u8>)]) -> String {
    let resources: Vec<String> = files
        .iter()
        .map(|(name, content)| {
            let (content, encoding) = match std::str::from_utf8(content) {
                Ok(text) => (text.to_owned(), String::new()),
                Err(_) => (
                    STANDARD.encode(content),
                    ",\"encoding\":\"base64\"".to_owned(),
                ),
            };
            format!(
                "{{\"name\":{},\"content\":{}{encoding}}}",
                go_string(name),
                go_string(&content)
            )
        })
        .collect();
    if resources.is_empty() {
        return "{}\n".to_owned();
    }
    format!("{{\"resources\":[{}]}}\n", resources.join(","))
}

/// A JSON string with the characters Go escapes for HTML.
fn go_string(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// The ID of a manifest: `s-` and its hash, cut to 63 characters.
pub fn manifest_id(manifest: &str) -> String {
    let mut id = format!("s-{}", sha256_hex(manifest.as_bytes()));
    id.truncate(63);
    id
}

fn content(manifest_id: &str, manifest: &str) -> Result<Value> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(manifest.as_bytes())?;
    Ok(json!({
        "apiVersion": API_VERSION,
        "kind": "Content",
        "metadata": { "name": manifest_id },
        "content": STANDARD.encode(gzip.finish()?),
        "sha256sum": sha256_hex(manifest.as_bytes()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_manifest_has_the_recorded_id() {
        let id = manifest_id(&manifest(&[]));
        assert_eq!(
            id,
            "s-ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442"
        );
    }
}
