//! An OCI registry: the real `registry` program, with or without TLS and basic auth, and a small client to push charts.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::certs::install_crypto_provider;
use crate::chart::{Chart, identity};
use crate::ports;
use crate::process::{Process, ProcessGroup};
use crate::repository::Access;
use crate::tools::Tool;
use crate::wait::wait_until;

/// Helm's media type for a chart's metadata.
const CONFIG_TYPE: &str = "application/vnd.cncf.helm.config.v1+json";
/// Helm's media type for a chart's archive.
const CHART_TYPE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// A running registry. Dropping it ends it.
pub struct Registry {
    host: String,
    base: String,
    client: Client,
    credentials: Option<(String, String)>,
    _process: Process,
}

impl Registry {
    /// Starts an empty registry; `name` names its files in the group's directory.
    ///
    /// # Errors
    /// When the program is missing or does not answer.
    pub async fn start(group: &Arc<ProcessGroup>, name: &str, access: Access<'_>) -> Result<Self> {
        install_crypto_provider();
        let directory = group.directory().join(name);
        std::fs::create_dir_all(&directory)?;
        let file = |name: &str| directory.join(name);
        let host = format!("127.0.0.1:{}", ports::free()?);
        let mut config = json!({
            "version": "0.1",
            "log": { "level": "warn", "accesslog": { "disabled": true } },
            "storage": {
                "filesystem": { "rootdirectory": file("storage") },
                "delete": { "enabled": true },
            },
            "http": { "addr": host },
        });
        let mut builder = Client::builder()
            .timeout(Duration::from_secs(60))
            // Each test has a runtime of its own; a pooled connection would belong to one that is gone.
            .pool_max_idle_per_host(0);
        let scheme = match access.authority {
            Some(authority) => {
                let server = authority.issue(&[])?;
                std::fs::write(file("tls.crt"), server.certificate)?;
                std::fs::write(file("tls.key"), server.key)?;
                config["http"]["tls"] =
                    json!({ "certificate": file("tls.crt"), "key": file("tls.key") });
                let trusted = reqwest::Certificate::from_pem(authority.pem().as_bytes())?;
                builder = builder.tls_certs_only([trusted]);
                "https"
            }
            None => {
                builder = builder.tls_certs_only([]);
                "http"
            }
        };
        if let Some((user, password)) = access.basic_auth {
            let hash = bcrypt::hash(password, 4)?;
            std::fs::write(file("htpasswd"), format!("{user}:{hash}\n"))?;
            config["auth"] = json!({ "htpasswd": { "realm": "test", "path": file("htpasswd") } });
        }
        // JSON is YAML, and the registry reads YAML.
        std::fs::write(file("config.yaml"), config.to_string())?;
        let process = group.spawn(
            name,
            Command::new(Tool::Registry.path()?)
                .arg("serve")
                .arg(file("config.yaml"))
                .env("OTEL_TRACES_EXPORTER", "none"),
        )?;
        let registry = Self {
            base: format!("{scheme}://{host}"),
            host,
            client: builder.build()?,
            credentials: access.basic_auth.map(|(u, p)| (u.to_owned(), p.to_owned())),
            _process: process,
        };
        wait_until("the registry", Duration::from_secs(30), async || {
            let request = registry.request(reqwest::Method::GET, &format!("{}/v2/", registry.base));
            match request.send().await {
                Ok(answer) if answer.status() == StatusCode::OK => Ok(()),
                Ok(answer) => Err(answer.status().to_string()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await?;
        Ok(registry)
    }

    /// Host and port, as in a reference.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The `oci://` reference of a chart in the folder `charts`.
    pub fn reference(&self, chart: &str) -> String {
        format!("oci://{}/charts/{chart}", self.host)
    }

    /// Pushes a chart as `helm push` does, below `charts/`; the tag is the version with `_` for `+`. Returns the manifest's digest.
    ///
    /// # Errors
    /// When the registry refuses.
    pub async fn push(&self, chart: &Chart) -> Result<String> {
        self.push_archive(chart.archive()?).await
    }

    /// Pushes an archive, see [`Self::push`].
    ///
    /// # Errors
    /// When it names no chart or the registry refuses.
    pub async fn push_archive(&self, archive: Vec<u8>) -> Result<String> {
        let (name, version) = identity(&archive)?;
        let repository = format!("charts/{name}");
        let metadata = json!({ "apiVersion": "v2", "name": name, "version": version });
        let config = self
            .push_blob(&repository, CONFIG_TYPE, metadata.to_string().into_bytes())
            .await?;
        let layer = self.push_blob(&repository, CHART_TYPE, archive).await?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": config,
            "layers": [layer],
        });
        self.push_manifest(&repository, &version.replace('+', "_"), &manifest)
            .await
    }

    /// Pushes bundle contents the way Fleet stores them in a registry: one layer, annotated with its manifest ID.
    ///
    /// # Errors
    /// When the registry refuses.
    pub async fn push_bundle(
        &self,
        repository: &str,
        manifest_id: &str,
        content: Vec<u8>,
    ) -> Result<()> {
        let repository = format!("{repository}/{manifest_id}");
        let config = self
            .push_blob(
                &repository,
                "application/vnd.oci.empty.v1+json",
                b"{}".to_vec(),
            )
            .await?;
        let mut layer = self
            .push_blob(&repository, "application/fleet.file", content)
            .await?;
        layer["annotations"] = json!({ "id": manifest_id });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": "application/fleet.manifest",
            "config": config,
            "layers": [layer],
        });
        self.push_manifest(&repository, "latest", &manifest)
            .await
            .map(drop)
    }

    async fn push_manifest(&self, repository: &str, tag: &str, manifest: &Value) -> Result<String> {
        let body = manifest.to_string().into_bytes();
        let digest = digest(&body);
        let url = format!("{}/v2/{repository}/manifests/{tag}", self.base);
        let request = self
            .request(reqwest::Method::PUT, &url)
            .header("content-type", MANIFEST_TYPE);
        expect(request.body(body).send().await?, StatusCode::CREATED).await?;
        Ok(digest)
    }

    async fn push_blob(
        &self,
        repository: &str,
        media_type: &str,
        content: Vec<u8>,
    ) -> Result<Value> {
        let (digest, size) = (digest(&content), content.len());
        let url = format!("{}/v2/{repository}/blobs/uploads/", self.base);
        let started = self.request(reqwest::Method::POST, &url).send().await?;
        let started = expect(started, StatusCode::ACCEPTED).await?;
        let location = started
            .headers()
            .get("location")
            .context("no upload location")?
            .to_str()?;
        let mut location = url::Url::parse(&self.base)?.join(location)?;
        location.query_pairs_mut().append_pair("digest", &digest);
        let request = self.request(reqwest::Method::PUT, location.as_str());
        expect(request.body(content).send().await?, StatusCode::CREATED).await?;
        Ok(json!({ "mediaType": media_type, "digest": digest, "size": size }))
    }

    fn request(&self, method: reqwest::Method, url: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, url);
        match &self.credentials {
            Some((user, password)) => request.basic_auth(user, Some(password)),
            None => request,
        }
    }
}

fn digest(content: &[u8]) -> String {
    let hex: String = Sha256::digest(content)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    format!("sha256:{hex}")
}

async fn expect(response: Response, status: StatusCode) -> Result<Response> {
    let (got, url) = (response.status(), response.url().clone());
    if got != status {
        let body = response.text().await.unwrap_or_default();
        bail!("{url}: {got}, want {status}: {body}");
    }
    Ok(response)
}
