//! An OCI registry: the real `registry` program, with or without TLS and basic auth, and a small client to push charts.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::certs::{Authority, install_crypto_provider};
use crate::chart::{Chart, identity};
use crate::ports;
use crate::process::{Process, ProcessGroup};
use crate::repository::{Access, NAME};
use crate::signed::{Signatures, SignedChart};
use crate::tokens::{self, TokenService};
use crate::tools::Tool;
use crate::wait::wait_until;

/// Helm's media type for a chart's metadata.
const CONFIG_TYPE: &str = "application/vnd.cncf.helm.config.v1+json";
/// Helm's media type for a chart's archive.
const CHART_TYPE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// What a registry does besides serving what is pushed to it.
#[derive(Clone, Copy, Default)]
pub struct Serving<'a> {
    /// Keep what is pushed here: registries of one folder have the same charts. Otherwise in a folder of its own.
    pub storage: Option<&'a Path>,
    /// Redirect to this server for blobs.
    pub redirects_to: Option<&'a str>,
    /// Ask for tokens of this service.
    pub tokens: Option<&'a TokenService>,
    /// With TLS, serve those alone who show a certificate of this authority.
    pub clients: Option<&'a Authority>,
}

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
        Self::start_with(group, name, access, Serving::default()).await
    }

    /// Starts a registry that serves as told, see [`Self::start`].
    ///
    /// # Errors
    /// As there.
    pub async fn start_with(
        group: &Arc<ProcessGroup>,
        name: &str,
        access: Access<'_>,
        serving: Serving<'_>,
    ) -> Result<Self> {
        install_crypto_provider();
        let directory = group.directory().join(name);
        std::fs::create_dir_all(&directory)?;
        let file = |name: &str| directory.join(name);
        let host = format!("127.0.0.1:{}", ports::free()?);
        let mut config = json!({
            "version": "0.1",
            "log": { "level": "warn", "accesslog": { "disabled": true } },
            "storage": {
                "filesystem": { "rootdirectory": serving.storage.map_or(file("storage"), Into::into) },
                "delete": { "enabled": true },
            },
            "http": { "addr": host },
        });
        if let Some(url) = serving.redirects_to {
            config["middleware"] =
                json!({ "storage": [{ "name": "redirect", "options": { "baseurl": url } }] });
        }
        if let Some(service) = serving.tokens {
            std::fs::write(file("tokens.crt"), service.certificate())?;
            config["auth"] = json!({ "token": {
                "realm": service.url(), "service": tokens::SERVICE, "issuer": tokens::ISSUER,
                "rootcertbundle": file("tokens.crt"),
            } });
        }
        let mut builder = Client::builder()
            .timeout(Duration::from_secs(60))
            // Each test has a runtime of its own; a pooled connection would belong to one that is gone.
            .pool_max_idle_per_host(0);
        let scheme = match access.authority {
            Some(authority) => {
                let server = authority.issue(&[NAME])?;
                std::fs::write(file("tls.crt"), server.certificate)?;
                std::fs::write(file("tls.key"), server.key)?;
                config["http"]["tls"] =
                    json!({ "certificate": file("tls.crt"), "key": file("tls.key") });
                if let Some(clients) = serving.clients {
                    std::fs::write(file("clients.crt"), clients.pem())?;
                    config["http"]["tls"]["clientcas"] = json!([file("clients.crt")]);
                    let own = clients.issue(&[])?;
                    let own = reqwest::Identity::from_pem((own.certificate + &own.key).as_bytes())?;
                    builder = builder.identity(own);
                }
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
        let asks_for_tokens = serving.tokens.is_some();
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
        wait_until("the registry", Duration::from_secs(300), async || {
            let request = registry.request(reqwest::Method::GET, &format!("{}/v2/", registry.base));
            match request.send().await {
                Ok(answer) if answer.status() == StatusCode::OK => Ok(()),
                // It asks for a token, which nobody here has.
                Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED && asks_for_tokens => {
                    Ok(())
                }
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

    /// Pushes an archive and its provenance file as `helm push` does.
    ///
    /// # Errors
    /// When the registry refuses.
    pub async fn push_with_provenance(
        &self,
        repository: &str,
        version: &str,
        archive: Vec<u8>,
        file: Vec<u8>,
    ) -> Result<String> {
        const PROVENANCE: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";
        let config = self
            .push_blob(repository, CONFIG_TYPE, b"{}".to_vec())
            .await?;
        let layer = self.push_blob(repository, CHART_TYPE, archive).await?;
        let provenance = self.push_blob(repository, PROVENANCE, file).await?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": config,
            "layers": [layer, provenance],
        });
        self.push_manifest(repository, version, &manifest).await
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

    /// Copies a chart of [`crate::signed`] to a repository, manifest and all: its digest stays what it is.
    ///
    /// # Errors
    /// When the registry refuses.
    pub async fn mirror(&self, repository: &str, chart: &SignedChart) -> Result<String> {
        for (kind, blob) in [(CONFIG_TYPE, &chart.config), (CHART_TYPE, &chart.archive)] {
            self.push_blob(repository, kind, blob.clone()).await?;
        }
        let manifest = chart.manifest.clone();
        self.push_bytes(repository, "1.1.0", MANIFEST_TYPE, manifest)
            .await
    }

    /// Gives a chart of [`crate::signed`] that is in a repository another tag.
    ///
    /// # Errors
    /// When the registry refuses.
    pub async fn tag(&self, repository: &str, tag: &str, chart: &SignedChart) -> Result<String> {
        let manifest = chart.manifest.clone();
        self.push_bytes(repository, tag, MANIFEST_TYPE, manifest)
            .await
    }

    /// Puts signatures beside the manifest with this digest, as `cosign` does where a registry has no referrers API.
    ///
    /// # Errors
    /// When the registry refuses.
    pub async fn attach(&self, repository: &str, digest: &str, found: &Signatures) -> Result<()> {
        const EMPTY: &str = "application/vnd.oci.empty.v1+json";
        const INDEX: &str = "application/vnd.oci.image.index.v1+json";
        const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
        let tag = digest.replace(':', "-");
        let config = self.push_blob(repository, EMPTY, b"{}".to_vec()).await?;
        let manifest = |layers: Vec<Value>| json!({"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": layers});
        if !found.attached.is_empty() {
            let mut layers = Vec::new();
            for (payload, annotations) in &found.attached {
                let kind = "application/vnd.dev.cosign.simplesigning.v1+json";
                let mut layer = self
                    .push_blob(repository, kind, payload.clone().into_bytes())
                    .await?;
                layer["annotations"] = annotations.clone();
                layers.push(layer);
            }
            self.push_manifest(repository, &format!("{tag}.sig"), &manifest(layers))
                .await?;
        }
        let mut referrers: Vec<Value> = Vec::new();
        for (at, bundle) in found.bundles.iter().enumerate() {
            // The same again is there already.
            if at > 0 && found.bundles[at - 1] == *bundle {
                referrers.extend(referrers.last().cloned());
                continue;
            }
            let layer = self
                .push_blob(repository, BUNDLE, bundle.clone().into_bytes())
                .await?;
            let manifest = manifest(vec![layer]);
            let size = manifest.to_string().len();
            let digest = self::digest(manifest.to_string().as_bytes());
            self.push_manifest(repository, &digest, &manifest).await?;
            referrers.push(json!({
                "mediaType": MANIFEST_TYPE, "digest": digest, "size": size, "artifactType": BUNDLE,
            }));
        }
        if !referrers.is_empty() {
            let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": referrers});
            let index = index.to_string().into_bytes();
            self.push_bytes(repository, &tag, INDEX, index).await?;
        }
        Ok(())
    }

    /// The digest that a tag has.
    ///
    /// # Errors
    /// When there is no such tag.
    pub async fn digest(&self, repository: &str, tag: &str) -> Result<String> {
        let url = format!("{}/v2/{repository}/manifests/{tag}", self.base);
        let request = self.request(reqwest::Method::GET, &url);
        let request = request.header("accept", MANIFEST_TYPE);
        let found = expect(request.send().await?, StatusCode::OK).await?;
        Ok(digest(&found.bytes().await?))
    }

    async fn push_manifest(&self, repository: &str, tag: &str, manifest: &Value) -> Result<String> {
        let body = manifest.to_string().into_bytes();
        self.push_bytes(repository, tag, MANIFEST_TYPE, body).await
    }

    async fn push_bytes(
        &self,
        repository: &str,
        tag: &str,
        kind: &str,
        body: Vec<u8>,
    ) -> Result<String> {
        let digest = digest(&body);
        let url = format!("{}/v2/{repository}/manifests/{tag}", self.base);
        let request = self
            .request(reqwest::Method::PUT, &url)
            .header("content-type", kind);
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
