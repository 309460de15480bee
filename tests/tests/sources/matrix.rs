//! Every way to prove who asks, by every trust, over every way there: each with what is right, and with what is missing. Registries are
//! the real one, credentials stand in Secrets as people keep them.

use std::sync::{Arc, Mutex, PoisonError};

use agent::api::BundleHelmOptions;
use agent::bundle::{helm_access, source_hosts};
use anyhow::{Context, Result, ensure};
use chart::source::{
    Access, ChartRef, DiskSettings, FetchedChart, Fetcher, Hosts, ProxyRules, Settings,
};
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use testbed::certs::Authority;
use testbed::chart::Chart;
use testbed::forward::ForwardProxy;
use testbed::process::ProcessGroup;
use testbed::registry::{Registry, Serving};
use testbed::repository::{self, ChartRepository, Fault, NAME};
use testbed::tokens::TokenService;

/// Shows in no log and no file, and at no other host.
const CANARY: &str = "canary-of-the-matrix";
const JOE: (&str, &str) = ("joe", CANARY);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Http,
    Oci,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    Anonymous,
    Basic,
    /// A registry's, for user name and password.
    Token,
    DockerLogin,
    Certificate,
    HostSecret,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// An authority that is trusted everywhere.
    Public,
    Private,
    Skipped,
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    Proxy,
    TlsProxy,
}

const KINDS: [Kind; 2] = [Kind::Http, Kind::Oci];
const PROOFS: [Proof; 6] = [
    Proof::Anonymous,
    Proof::Basic,
    Proof::Token,
    Proof::DockerLogin,
    Proof::Certificate,
    Proof::HostSecret,
];
const TRUSTS: [Trust; 4] = [Trust::Public, Trust::Private, Trust::Skipped, Trust::Plain];
const WAYS: [Way; 3] = [Way::Direct, Way::Proxy, Way::TlsProxy];

/// Whether the cell makes sense: tokens are a registry's, certificates TLS's.
fn is_cell(kind: Kind, proof: Proof, trust: Trust) -> bool {
    match proof {
        Proof::Token => kind == Kind::Oci,
        Proof::Certificate => trust != Trust::Plain,
        _ => true,
    }
}

/// Names what failed first, as the error's reason does.
type Outcome = Result<FetchedChart, (&'static str, String)>;

struct Bed {
    directory: tempfile::TempDir,
    group: Arc<ProcessGroup>,
    public: Authority,
    private: Authority,
    clients: Authority,
    chart: Vec<u8>,
    /// Has what repositories and registries redirect to.
    elsewhere: ChartRepository,
    proxy: ForwardProxy,
    tls_proxy: ForwardProxy,
}

impl Bed {
    async fn start() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let group = Arc::new(ProcessGroup::new(&directory.path().join("bed"), false)?);
        let public = Authority::new("public")?;
        let bed = Self {
            group,
            proxy: ForwardProxy::start(&repository::Access::default())?,
            tls_proxy: ForwardProxy::start(&repository::Access {
                authority: Some(&public),
                ..repository::Access::default()
            })?,
            private: Authority::new("private")?,
            clients: Authority::new("clients")?,
            chart: Chart::small("web", "1.0.0").archive()?,
            elsewhere: ChartRepository::start(repository::Access::default()).await?,
            public,
            directory,
        };
        // All registries have this one's charts; blobs they have elsewhere.
        let pushed = bed.registry("pushed", Proof::Anonymous, Trust::Plain, false);
        pushed.await?.push_archive(bed.chart.clone()).await?;
        let mut folders = vec![bed.storage()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.ends_with("data") {
                    let served = path.strip_prefix(bed.storage())?.display().to_string();
                    bed.elsewhere.add_file(&served, std::fs::read(&path)?);
                }
            }
        }
        bed.elsewhere.add_file("web.tgz", bed.chart.clone());
        Ok(bed)
    }

    fn storage(&self) -> std::path::PathBuf {
        self.directory.path().join("storage")
    }

    fn authority(&self, trust: Trust) -> Option<&Authority> {
        match trust {
            Trust::Public => Some(&self.public),
            Trust::Private | Trust::Skipped => Some(&self.private),
            Trust::Plain => None,
        }
    }

    fn server(&self, proof: Proof, trust: Trust) -> repository::Access<'_> {
        let has_password = matches!(proof, Proof::Basic | Proof::DockerLogin | Proof::HostSecret);
        repository::Access {
            basic_auth: has_password.then_some(JOE),
            authority: self.authority(trust),
        }
    }

    async fn registry(
        &self,
        name: &str,
        proof: Proof,
        trust: Trust,
        redirects: bool,
    ) -> Result<Registry> {
        let tokens = match proof {
            Proof::Token => Some(TokenService::start(JOE, self.authority(trust))?),
            _ => None,
        };
        let serving = Serving {
            storage: Some(&self.storage()),
            redirects_to: redirects.then(|| self.elsewhere.url()),
            tokens: tokens.as_ref(),
            clients: (proof == Proof::Certificate).then_some(&self.clients),
        };
        Registry::start_with(&self.group, name, self.server(proof, trust), serving).await
    }

    async fn repository(&self, proof: Proof, trust: Trust) -> Result<ChartRepository> {
        let clients = (proof == Proof::Certificate).then_some(&self.clients);
        let served = ChartRepository::start_for(self.server(proof, trust), clients).await?;
        served.add_archive(self.chart.clone())?;
        let target = format!("{}/web.tgz", self.elsewhere.url());
        served.break_path("charts/web-1.0.0.tgz", Fault::Redirect(target));
        Ok(served)
    }

    fn fetcher(&self, way: Way) -> Fetcher {
        let proxy = match way {
            Way::Direct => None,
            Way::Proxy => Some(self.proxy.url()),
            Way::TlsProxy => Some(self.tls_proxy.url()),
        };
        let variable = |name: &str| {
            let is_proxy = name == "HTTP_PROXY" || name == "HTTPS_PROXY";
            proxy.filter(|_| is_proxy).map(str::to_owned)
        };
        Fetcher::new(Settings {
            proxy: ProxyRules::from_variables(variable).map(Arc::new),
            proxy_ca: Some(self.public.pem().as_bytes().into()),
            disk: Some(DiskSettings {
                directory: self.directory.path().join("cache"),
                max_bytes: 16 << 20,
            }),
            retries: 0,
            ..Settings::default()
        })
    }

    /// With everything that it takes, as Secrets have it.
    fn access(&self, kind: Kind, proof: Proof, trust: Trust, host: &str) -> Result<Access> {
        let mut data = json!({});
        match trust {
            Trust::Private => data["cacerts"] = json!(self.private.pem()),
            Trust::Plain => data["basicHTTP"] = json!("true"),
            Trust::Public | Trust::Skipped => {}
        }
        match proof {
            Proof::Anonymous => {}
            Proof::Basic | Proof::Token | Proof::HostSecret => {
                data["username"] = json!(JOE.0);
                data["password"] = json!(JOE.1);
            }
            Proof::DockerLogin => {
                let login = json!({ host: { "username": JOE.0, "password": JOE.1 } });
                data[".dockerconfigjson"] = json!(json!({ "auths": login }).to_string());
            }
            Proof::Certificate => {
                let issued = self.clients.issue(&[])?;
                data["tls.crt"] = json!(issued.certificate);
                data["tls.key"] = json!(issued.key);
            }
        }
        if proof == Proof::HostSecret {
            data["hosts"] = json!(host);
            if trust == Trust::Skipped {
                data["insecureSkipVerify"] = json!("true");
            }
            let hosts = source_hosts(&secret(data)?)?;
            return Ok(Access {
                hosts: Some(Arc::new(Hosts::new(hosts))),
                ..Access::default()
            });
        }
        let options = BundleHelmOptions {
            insecure_skip_tls_verify: trust == Trust::Skipped,
            ..BundleHelmOptions::default()
        };
        let access = helm_access(&options, Some(&secret(data)?))?;
        // An HTTP repository says itself that it is plain.
        Ok(Access {
            plain_http: access.plain_http && kind == Kind::Oci,
            ..access
        })
    }
}

fn secret(data: Value) -> Result<Secret> {
    let data = data.as_object().context("an object")?.iter();
    let data = data.map(|(key, text)| {
        let text = text.as_str().unwrap_or_default();
        (key.clone(), k8s_openapi::ByteString(text.into()))
    });
    Ok(Secret {
        data: Some(data.collect()),
        ..Secret::default()
    })
}

fn chart(kind: Kind, trust: Trust, host: &str) -> ChartRef {
    let scheme = match trust {
        Trust::Plain => "http",
        _ => "https",
    };
    match kind {
        Kind::Http => ChartRef {
            repo: format!("{scheme}://{host}"),
            chart: "web".to_owned(),
            version: String::new(),
        },
        Kind::Oci => ChartRef {
            repo: format!("oci://{host}/charts/web"),
            chart: String::new(),
            version: "1.0.0".to_owned(),
        },
    }
}

/// What is written to the log of this thread, all of it.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> Vec<u8> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn fetched(fetcher: Fetcher, chart: &ChartRef, access: &Access) -> Outcome {
    let fetched = fetcher.fetch(chart, access).await;
    fetched.map_err(|error| (error.reason(), format!("{:#}", anyhow::Error::new(error))))
}

#[tokio::test]
async fn every_cell_works_and_fails_where_something_is_missing() -> Result<()> {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let bed = Bed::start().await?;
    let (mut cells, mut errors) = (0, Vec::new());
    for kind in KINDS {
        for proof in PROOFS {
            for trust in TRUSTS
                .into_iter()
                .filter(|trust| is_cell(kind, proof, *trust))
            {
                let name = format!("{kind:?}-{proof:?}-{trust:?}");
                let (mut registry, mut repository) = (None, None);
                let address = match kind {
                    Kind::Oci => {
                        let started = bed.registry(&name, proof, trust, true).await?;
                        registry.insert(started).host().to_owned()
                    }
                    Kind::Http => {
                        let started = bed.repository(proof, trust).await?;
                        repository.insert(started).url().to_owned()
                    }
                };
                let (_, port) = address.rsplit_once(':').context("a port")?;
                for way in WAYS {
                    cells += 1;
                    // Nothing goes to this machine through a proxy, so it has another name then, which the proxies know.
                    let host = match way {
                        Way::Direct => format!("localhost:{port}"),
                        _ => format!("{NAME}:{port}"),
                    };
                    let cell = format!("{name} {way:?}");
                    let chart = chart(kind, trust, &host);
                    let access = bed.access(kind, proof, trust, &host)?;
                    match fetched(bed.fetcher(way), &chart, &access).await {
                        Ok(fetched) if fetched.bytes == bed.chart => {}
                        other => errors.push(format!("{cell}: {other:?}")),
                    }
                    // Without what proves who asks.
                    let nobody = bed.access(kind, Proof::Anonymous, trust, &host)?;
                    let want: &[&str] = match proof {
                        Proof::Anonymous => &[],
                        // A server that refuses a client says so, or hangs up.
                        Proof::Certificate => &["TLSFailed", "Unreachable"],
                        _ => &["Unauthorized"],
                    };
                    match fetched(bed.fetcher(way), &chart, &nobody).await {
                        Ok(_) if want.is_empty() => {}
                        Err((reason, _)) if want.contains(&reason) => {}
                        other => errors.push(format!("{cell} without proof: {other:?}")),
                    }
                    // Without trust.
                    if matches!(trust, Trust::Private | Trust::Skipped) {
                        let distrustful = bed.access(kind, proof, Trust::Public, &host)?;
                        match fetched(bed.fetcher(way), &chart, &distrustful).await {
                            Err(("UnknownIssuer", text)) if text.contains("x509") => {}
                            other => errors.push(format!("{cell} without trust: {other:?}")),
                        }
                    }
                }
            }
        }
    }
    ensure!(
        errors.is_empty(),
        "{} of {cells}:\n{}",
        errors.len(),
        errors.join("\n")
    );
    ensure!(cells == (5 + 6) * 4 * 3 - 2 * 3, "{cells}");
    let led = [bed.proxy.asked().len(), bed.tls_proxy.asked().len()];
    ensure!(led.iter().all(|count| *count > 40), "{led:?}");
    let elsewhere = bed.elsewhere.requests().values().sum::<usize>();
    ensure!(
        elsewhere > 80 && bed.elsewhere.authorized_requests() == 0,
        "{elsewhere}"
    );
    holds_no_canary(&bed, &log)
}

/// Neither the log nor the cache has it, as it is or as it is sent.
fn holds_no_canary(bed: &Bed, log: &Log) -> Result<()> {
    let sent = golib::base64::encode(format!("{}:{}", JOE.0, JOE.1));
    let mut texts = vec![("the log".to_owned(), log.text())];
    let mut folders = vec![bed.directory.path().join("cache")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => texts.push((path.display().to_string(), std::fs::read(&path)?)),
            }
        }
    }
    ensure!(
        texts.len() > 20 && texts[0].1.len() > 1000,
        "{} texts",
        texts.len()
    );
    for (what, text) in texts {
        let text = String::from_utf8_lossy(&text);
        ensure!(!text.contains(CANARY) && !text.contains(&sent), "{what}");
    }
    Ok(())
}
