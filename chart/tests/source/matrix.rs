//! Every way to prove who asks, by every trust, over every way there: each with what is right, and with what is missing.

use std::sync::{Arc, Mutex};

use chart::source::{
    Access, ChartRef, Credentials, DiskSettings, Fetcher, HostAccess, HostPattern, Hosts, Logins,
    ProxyRules, Settings,
};
use serde_json::json;

use super::registry::content;
use super::server::{Answer, Ca, Proxy, Seen, Server, answer, with};
use super::{archive, chain, reference, settings};

/// Shows in no log and no file, and at no other host.
const CANARY: &str = "canary-of-the-matrix";

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

fn is_joe(seen: &Seen) -> bool {
    let pair = golib::base64::encode(format!("joe:{CANARY}"));
    seen.authorization.as_deref() == Some(&format!("Basic {pair}"))
}

/// A repository and a registry in one; what it has lies with `elsewhere`, where it redirects to.
fn served(proof: Proof, elsewhere: &str, seen: &Seen) -> Answer {
    let is_shown = match proof {
        Proof::Anonymous | Proof::Certificate => true,
        Proof::Token if seen.path.starts_with("/token") => {
            return match is_joe(seen) {
                true => answer(200, r#"{"token":"t"}"#),
                false => answer(401, ""),
            };
        }
        Proof::Token => seen.authorization.as_deref() == Some("Bearer t"),
        _ => is_joe(seen),
    };
    let challenge = match proof {
        Proof::Token => "Bearer realm=\"/token\",service=\"s\"",
        _ => "Basic realm=\"r\"",
    };
    match seen.path.as_str() {
        _ if !is_shown => with(answer(401, ""), "www-authenticate", challenge),
        "/index.yaml" => {
            let entry = json!([{ "name": "web", "version": "1.0.0", "urls": ["web.tgz"] }]);
            let entries = json!({ "apiVersion": "v1", "entries": { "web": entry } });
            answer(200, entries.to_string())
        }
        path if path == "/web.tgz" || path.contains("/blobs/") => {
            with(answer(307, ""), "location", elsewhere)
        }
        _ => content(seen),
    }
}

struct Bed {
    public: Ca,
    private: Ca,
    clients: Ca,
    elsewhere: Server,
    proxy: Proxy,
    tls_proxy: Proxy,
}

impl Bed {
    async fn server(&self, proof: Proof, trust: Trust) -> Server {
        let elsewhere = self.elsewhere.url("/content");
        let reply = move |seen: &Seen| served(proof, &elsewhere, seen);
        let clients = (proof == Proof::Certificate).then_some(&self.clients);
        match trust {
            Trust::Plain => Server::plain(reply).await,
            Trust::Public => Server::signed(&self.public, clients, reply).await,
            Trust::Private | Trust::Skipped => Server::signed(&self.private, clients, reply).await,
        }
    }

    fn fetcher(&self, way: Way, folder: &std::path::Path) -> Fetcher {
        let proxy = match way {
            Way::Direct => None,
            Way::Proxy => Some(&self.proxy),
            Way::TlsProxy => Some(&self.tls_proxy),
        };
        let variable = |name: &str| {
            let is_proxy = name == "HTTP_PROXY" || name == "HTTPS_PROXY";
            proxy.filter(|_| is_proxy).map(Proxy::url)
        };
        Fetcher::new(Settings {
            proxy: ProxyRules::from_variables(variable).map(Arc::new),
            proxy_ca: Some(self.public.pem.clone()),
            disk: Some(DiskSettings {
                directory: folder.to_owned(),
                max_bytes: 16 << 20,
            }),
            retries: 0,
            ..settings()
        })
    }

    /// With everything that it takes.
    fn access(&self, kind: Kind, proof: Proof, trust: Trust, host: &str) -> Access {
        let (ca, insecure) = match trust {
            Trust::Private => (Some(self.private.pem.clone()), false),
            Trust::Skipped => (None, true),
            Trust::Public | Trust::Plain => (None, false),
        };
        let is_plain = trust == Trust::Plain;
        let access = Access {
            ca: ca.clone(),
            insecure,
            plain_http: is_plain && kind == Kind::Oci,
            ..Access::default()
        };
        let joe = Credentials::new("joe", CANARY);
        match proof {
            Proof::Anonymous => access,
            Proof::Basic | Proof::Token => Access {
                credentials: joe,
                ..access
            },
            Proof::DockerLogin => {
                let auths = json!({ host: { "username": "joe", "password": CANARY } });
                let text = json!({ "auths": auths }).to_string();
                let logins = Logins::from_docker_config(text.as_bytes()).unwrap();
                Access {
                    logins: Some(Arc::new(logins)),
                    ..access
                }
            }
            Proof::Certificate => Access {
                identity: Some(self.clients.client()),
                ..access
            },
            Proof::HostSecret => {
                let known = HostAccess {
                    credentials: joe,
                    ca,
                    insecure: Some(insecure),
                    plain_http: Some(is_plain),
                    ..HostAccess::default()
                };
                let pattern = HostPattern::parse(host).unwrap();
                let hosts = Hosts::new(vec![(pattern, known)]);
                Access {
                    hosts: Some(Arc::new(hosts)),
                    ..Access::default()
                }
            }
        }
    }
}

fn chart(kind: Kind, server: &Server, host: &str) -> ChartRef {
    match kind {
        Kind::Http if server.ca.is_some() => reference(&format!("https://{host}"), "web", ""),
        Kind::Http => reference(&format!("http://{host}"), "web", ""),
        Kind::Oci => reference(&format!("oci://{host}/charts/web"), "", "1.0.0"),
    }
}

/// What is written to the log of this thread, all of it.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn every_cell_works_and_fails_where_something_is_missing() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let public = Ca::new("public");
    let bed = Bed {
        elsewhere: Server::plain(|_| answer(200, archive("1.0.0"))).await,
        proxy: Proxy::start(None).await,
        tls_proxy: Proxy::start(Some(&public)).await,
        private: Ca::new("private"),
        clients: Ca::new("clients"),
        public,
    };
    let folder = tempfile::tempdir().unwrap();
    let (mut cells, mut errors) = (0, Vec::new());
    for kind in KINDS {
        for proof in PROOFS {
            for trust in TRUSTS {
                if !is_cell(kind, proof, trust) {
                    continue;
                }
                let server = bed.server(proof, trust).await;
                for way in WAYS {
                    cells += 1;
                    // Nothing goes to this machine through a proxy, so it has another name then, which the proxies know.
                    let name = match way {
                        Way::Direct => "localhost",
                        _ => "charts.example",
                    };
                    let host = format!("{name}:{}", server.address.port());
                    let (chart, access) = (
                        chart(kind, &server, &host),
                        bed.access(kind, proof, trust, &host),
                    );
                    let cell = format!("{kind:?} {proof:?} {trust:?} {way:?}");
                    let fetch = async |access: &Access| {
                        let fetched = bed.fetcher(way, folder.path()).fetch(&chart, access).await;
                        fetched.map_err(|error| (error.reason(), chain(&error)))
                    };
                    match fetch(&access).await {
                        Ok(fetched) => assert_eq!(fetched.bytes, archive("1.0.0"), "{cell}"),
                        Err((_, text)) => errors.push(format!("{cell}: {text}")),
                    }
                    // Without what proves who asks.
                    let nobody = Access {
                        credentials: None,
                        logins: None,
                        identity: None,
                        hosts: None,
                        ..bed.access(kind, Proof::Anonymous, trust, &host)
                    };
                    let want: &[&str] = match proof {
                        Proof::Anonymous => &[],
                        Proof::Certificate => &["TLSFailed", "Unreachable"],
                        _ => &["Unauthorized"],
                    };
                    match fetch(&nobody).await {
                        Ok(_) if want.is_empty() => {}
                        Err((reason, _)) if want.contains(&reason) => {}
                        other => errors.push(format!("{cell} without proof: {other:?}")),
                    }
                    // Without trust.
                    let distrustful = Access {
                        ca: None,
                        insecure: false,
                        hosts: None,
                        credentials: Credentials::new("joe", CANARY),
                        ..access
                    };
                    if matches!(trust, Trust::Private | Trust::Skipped) {
                        match fetch(&distrustful).await {
                            Err(("UnknownIssuer", text)) if text.contains("x509") => {}
                            other => errors.push(format!("{cell} without trust: {other:?}")),
                        }
                    }
                }
            }
        }
    }
    assert!(
        errors.is_empty(),
        "{} of {cells}:\n{}",
        errors.len(),
        errors.join("\n")
    );
    assert_eq!(cells, (5 + 6) * 4 * 3 - 2 * 3);
    assert!(bed.proxy.asked() > 0 && bed.tls_proxy.asked() > 0);
    assert!(
        bed.elsewhere
            .seen()
            .iter()
            .all(|seen| seen.authorization.is_none())
    );
    let encoded = golib::base64::encode(format!("joe:{CANARY}"));
    let mut texts = vec![("the log".to_owned(), log.0.lock().unwrap().clone())];
    for path in super::disk::files(folder.path()) {
        texts.push((path.display().to_string(), std::fs::read(&path).unwrap()));
    }
    assert!(texts.len() > 20 && texts[0].1.len() > 1000);
    for (what, text) in texts {
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains(CANARY) && !text.contains(&encoded), "{what}");
    }
}
