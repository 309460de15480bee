//! Connections to API servers: few are kept, and the way leads straight or through the proxy that Go's rules name.
//!
//! The way is decided once, when a kubeconfig is read ([`config`]), by the same [`ProxyRules`] as for charts; a client only goes it.
//! kube would decide by rules of its own, which hold `NO_PROXY` against the proxy's address instead of the server's and know no
//! `PROXY_CA_BUNDLE`. As with client-go the kubeconfig's own `proxy-url` goes before the environment. The account of a pod
//! ([`in_cluster`]) leads straight to the API server, always: it is the cluster's own address.

use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use chart::source::{ProxyRules, SafeUrl, proxy_trust};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::uri::InvalidUri;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_rustls::HttpsConnector;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Client;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::{Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
use percent_encoding::percent_decode_str;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};
use url::Url;

use super::tls;

/// Connections that wait for their next request, per server. What a burst opens beyond them is closed after use.
const KEPT_CONNECTIONS: usize = 8;
/// How long they wait.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// The HTTP service that sends requests to an API server.
pub type Connections = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

/// A proxy that does not lead to the server. Never quotes its password.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("the proxy {proxy} is none of http and https")]
    Scheme { proxy: SafeUrl },
    #[error("the address of a proxy cannot be read")]
    Address,
    #[error("no trust for the proxy {proxy}")]
    Trust { proxy: SafeUrl, source: BoxError },
    #[error("proxy {proxy} does not lead to {server}")]
    Refused {
        proxy: SafeUrl,
        server: String,
        source: BoxError,
    },
}

/// A client's configuration from a kubeconfig, with the proxy to go through in `proxy_url`.
///
/// # Errors
/// As kube's own: a context, file or certificate that is missing.
pub async fn config(
    mut kubeconfig: Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<kube::Config, KubeconfigError> {
    let mut named = None;
    if let Some(cluster) = chosen(&mut kubeconfig, options) {
        named = cluster.proxy_url.clone();
        tls::keep_readable(cluster);
    }
    let named = named.filter(|address| !address.is_empty());
    let mut config =
        kube::Config::from_custom_kubeconfig(without_doubt(kubeconfig), options).await?;
    let variable = |name: &str| std::env::var(name).ok();
    config.proxy_url = match named {
        Some(named) => Some(named.parse().map_err(KubeconfigError::ParseProxyUrl)?),
        None => from_rules(
            ProxyRules::from_variables(variable).as_ref(),
            &config.cluster_url,
        ),
    };
    Ok(config)
}

/// The cluster that the context names.
fn chosen<'k>(
    kubeconfig: &'k mut Kubeconfig,
    options: &KubeConfigOptions,
) -> Option<&'k mut Cluster> {
    let context = options
        .context
        .as_ref()
        .or(kubeconfig.current_context.as_ref())?;
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts
        .find(|known| known.name == *context)?
        .context
        .as_ref()?;
    let cluster = options.cluster.as_ref().unwrap_or(&context.cluster);
    let mut clusters = kubeconfig.clusters.iter_mut();
    clusters
        .find(|known| known.name == *cluster)?
        .cluster
        .as_mut()
}

/// kube reads `HTTPS_PROXY` first of all and gives up where it is no address; Go goes straight.
fn without_doubt(mut kubeconfig: Kubeconfig) -> Kubeconfig {
    let is_doubtful = ["HTTPS_PROXY", "https_proxy"].iter().any(|name| {
        std::env::var(name).is_ok_and(|text| !text.is_empty() && text.parse::<Uri>().is_err())
    });
    if is_doubtful {
        let clusters = kubeconfig.clusters.iter_mut();
        for cluster in clusters.filter_map(|named| named.cluster.as_mut()) {
            let unused = || "http://decided.below".to_owned();
            cluster.proxy_url.get_or_insert_with(unused);
        }
    }
    kubeconfig
}

fn from_rules(rules: Option<&ProxyRules>, server: &Uri) -> Option<Uri> {
    let server = Url::parse(&server.to_string()).ok()?;
    let proxy = rules?.for_url(&server)?;
    proxy.as_str().parse().ok()
}

/// Connections to the server of a configuration, by the way that its `proxy_url` says.
///
/// kube's own keep all that a burst opened, with 50 KiB of buffers each, until the server ends them.
///
/// # Errors
/// The configuration is no good, or the proxy none for HTTP.
pub fn connections(config: &kube::Config) -> kube::Result<Connections> {
    match &config.proxy_url {
        None => {
            let mut tcp = HttpConnector::new();
            tcp.enforce_http(false);
            Ok(pooled(config, tls::connector(config, tcp)?))
        }
        Some(proxy) => {
            let through = through(config, proxy);
            let through = through.map_err(|error| kube::Error::Service(error.into()))?;
            Ok(pooled(config, tls::connector(config, through)?))
        }
    }
}

fn pooled<C>(config: &kube::Config, connector: C) -> Connections
where
    C: Service<Uri> + Clone + Send + Sync + Unpin + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + Unpin + 'static,
    C::Error: Into<BoxError>,
{
    let mut connector = TimeoutConnector::new(connector);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let connections = legacy::Builder::new(TokioExecutor::new())
        .pool_max_idle_per_host(KEPT_CONNECTIONS)
        .pool_idle_timeout(KEPT_FOR)
        .pool_timer(TokioTimer::new())
        .build::<_, Body>(connector);
    BoxCloneSyncService::new(connections.map_err(Into::into))
}

/// A client for a short while, with kube's own layers.
///
/// # Errors
/// As [`connections`].
pub fn client(config: kube::Config) -> kube::Result<Client> {
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections(&config)?);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// A connector through the proxy that the configuration names.
fn through(config: &kube::Config, proxy: &Uri) -> Result<Through, ProxyError> {
    let url = Url::parse(&proxy.to_string()).map_err(|_| ProxyError::Address)?;
    let shown = SafeUrl::from(url.clone());
    if !matches!(url.scheme(), "http" | "https") {
        return Err(ProxyError::Scheme { proxy: shown });
    }
    // Go trusts a proxy by what it trusts the server by.
    let authorities = config.root_cert.as_deref().unwrap_or_default();
    let trust = proxy_trust(authorities).map_err(|source| ProxyError::Trust {
        proxy: shown.clone(),
        source: source.into(),
    })?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let mut tunnel = Tunnel::new(address(&url)?, HttpsConnector::from((tcp, trust)));
    if !url.username().is_empty() || url.password().is_some() {
        let decoded = |part: &str| percent_decode_str(part).collect::<Vec<u8>>();
        let user = decoded(url.username());
        let pair = [
            &user,
            &b":"[..],
            &decoded(url.password().unwrap_or_default()),
        ]
        .concat();
        let value = format!("Basic {}", golib::base64::encode(pair));
        tunnel = tunnel.with_auth(HeaderValue::from_str(&value).expect("base64 is a valid header"));
    }
    Ok(Through {
        tunnel,
        proxy: shown,
    })
}

/// Where the proxy listens, without who asks there.
fn address(proxy: &Url) -> Result<Uri, ProxyError> {
    let host = proxy.host_str().ok_or(ProxyError::Address)?;
    let port = proxy.port_or_known_default().ok_or(ProxyError::Address)?;
    let text = format!("{}://{host}:{port}", proxy.scheme());
    text.parse().map_err(|_| ProxyError::Address)
}

/// Connects by `CONNECT`, to servers without TLS too.
#[derive(Clone)]
struct Through {
    tunnel: Tunnel<HttpsConnector<HttpConnector>>,
    proxy: SafeUrl,
}

impl Service<Uri> for Through {
    type Response = <HttpsConnector<HttpConnector> as Service<Uri>>::Response;
    type Error = ProxyError;
    type Future = BoxFuture<'static, Result<Self::Response, ProxyError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ProxyError>> {
        let ready = self.tunnel.poll_ready(context);
        ready.map_err(|error| refused(&self.proxy, "any server", error))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let proxy = self.proxy.clone();
        let shown = server
            .authority()
            .map_or_else(String::new, |authority| authority.as_str().to_owned());
        let connecting = self.tunnel.call(with_port(server));
        async move {
            connecting
                .await
                .map_err(|error| refused(&proxy, &shown, error))
        }
        .boxed()
    }
}

fn refused(proxy: &SafeUrl, server: &str, source: impl Into<BoxError>) -> ProxyError {
    ProxyError::Refused {
        proxy: proxy.clone(),
        server: server.to_owned(),
        source: source.into(),
    }
}

/// A tunnel takes an address without a port for one of TLS.
fn with_port(server: Uri) -> Uri {
    let is_plain = server.scheme_str() == Some("http") && server.port().is_none();
    let Some(host) = server.host().filter(|_| is_plain) else {
        return server;
    };
    format!("http://{host}:80").parse().unwrap_or(server)
}

/// Where Kubernetes puts what a pod needs.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A process that is in no pod, or in one without an account.
#[derive(Debug, thiserror::Error)]
pub enum NotInCluster {
    #[error("{name} is not set")]
    Variable { name: &'static str },
    #[error("the address of the pod's API server cannot be read")]
    Address(#[source] InvalidUri),
    #[error("failed to read {}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// The configuration of a pod's account, as [`kube::Config::incluster`] has it. That one does without all certificates for one that cannot be
/// read; here they are read when a connection is made, and again when they change.
///
/// # Errors
/// This is no pod.
pub fn in_cluster() -> Result<kube::Config, NotInCluster> {
    in_pod(Path::new(ACCOUNT), |name| std::env::var(name).ok())
}

fn in_pod(
    account: &Path,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<kube::Config, NotInCluster> {
    let variable = |name: &'static str| {
        let set = variable(name).filter(|text| !text.is_empty());
        set.ok_or(NotInCluster::Variable { name })
    };
    let host = variable("KUBERNETES_SERVICE_HOST")?;
    let port = variable("KUBERNETES_SERVICE_PORT")?;
    let address = match host.contains(':') {
        true => format!("https://[{host}]:{port}"),
        false => format!("https://{host}:{port}"),
    };
    let mut config = kube::Config::new(address.parse().map_err(NotInCluster::Address)?);
    let namespace = account.join("namespace");
    config.default_namespace =
        std::fs::read_to_string(&namespace).map_err(|source| NotInCluster::Read {
            path: namespace,
            source,
        })?;
    config.auth_info.token_file = Some(account.join("token").display().to_string());
    config.root_cert_file = Some(account.join("ca.crt"));
    Ok(config)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn rules(no_proxy: &'static str) -> Option<ProxyRules> {
        ProxyRules::from_variables(move |name| match name {
            "HTTPS_PROXY" => Some("http://10.0.0.9:3128".into()),
            "NO_PROXY" => Some(no_proxy.into()),
            _ => None,
        })
    }

    /// The proxy's own address is never what `NO_PROXY` is about.
    #[rstest]
    #[case("10.0.0.0/8,.svc", "https://upstream.example:6443", true)]
    #[case("10.0.0.0/8", "https://10.1.2.3:6443", false)]
    #[case("upstream.example:6443", "https://upstream.example:6443", false)]
    #[case("upstream.example:443", "https://upstream.example:6443", true)]
    #[case("", "https://127.0.0.1:6443", false)]
    fn the_way_follows_gos_rules(
        #[case] no_proxy: &'static str,
        #[case] server: &str,
        #[case] proxied: bool,
    ) {
        let proxy = from_rules(rules(no_proxy).as_ref(), &server.parse().unwrap());
        assert_eq!(proxy.is_some(), proxied, "{proxy:?}");
    }

    #[tokio::test]
    async fn a_kubeconfigs_own_proxy_goes_first() {
        let text = "
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', proxy-url: 'http://proxy.example:1'}}]
contexts: [{name: d, context: {cluster: c, user: u}}]
current-context: d
";
        let kubeconfig = Kubeconfig::from_yaml(text).unwrap();
        let config = config(kubeconfig, &KubeConfigOptions::default()).await;
        let proxy = config.unwrap().proxy_url.unwrap();
        assert_eq!(proxy, "http://proxy.example:1");
    }

    #[test]
    fn no_error_shows_a_password() {
        rustls::crypto::aws_lc_rs::default_provider()
            .install_default()
            .ok();
        let config = kube::Config::new("https://upstream.example".parse().unwrap());
        let through = |proxy: &str| through(&config, &proxy.parse().unwrap());
        let failed = through("socks5://user:s3cret@proxy.example:1")
            .err()
            .unwrap();
        assert!(!crate::error_chain(&failed).contains("s3cret"), "{failed}");
        let proxy = through("http://user:s3cret@proxy.example").ok().unwrap();
        let failed = refused(&proxy.proxy, "upstream.example", "no");
        let text = crate::error_chain(&failed);
        assert!(
            text.contains("xxxxx@proxy.example") && !text.contains("s3cret"),
            "{text}"
        );
    }

    #[test]
    fn servers_without_tls_have_their_own_port() {
        let port = |server: &str| with_port(server.parse().unwrap()).port_u16();
        assert_eq!(port("http://upstream.example/"), Some(80));
        assert_eq!(port("http://upstream.example:8080/"), Some(8080));
        assert_eq!(port("https://upstream.example/"), None);
    }

    fn set<'v>(host: &'v str, port: &'v str) -> impl Fn(&str) -> Option<String> + 'v {
        move |name| match name {
            "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
            "KUBERNETES_SERVICE_PORT" => Some(port.to_owned()),
            _ => None,
        }
    }

    #[test]
    fn a_pods_account_is_what_kubernetes_gives_it() {
        let account = tempfile::tempdir().unwrap();
        let path = |name: &str| account.path().join(name);
        let without = in_pod(account.path(), set("10.43.0.1", "443"));
        assert!(matches!(without, Err(NotInCluster::Read { .. })));
        std::fs::write(path("namespace"), "cattle-fleet-system").unwrap();
        let config = in_pod(account.path(), set("10.43.0.1", "443")).unwrap();
        assert_eq!(config.cluster_url, "https://10.43.0.1:443");
        assert_eq!(config.default_namespace, "cattle-fleet-system");
        assert_eq!(config.root_cert_file, Some(path("ca.crt")));
        let token = path("token").display().to_string();
        assert_eq!(config.auth_info.token_file, Some(token));
        assert!(config.proxy_url.is_none());
        let config = in_pod(account.path(), set("fd00::1", "6443")).unwrap();
        assert_eq!(config.cluster_url, "https://[fd00::1]:6443");
        for (host, port) in [("", "443"), ("10.43.0.1", "")] {
            let none = in_pod(account.path(), set(host, port));
            assert!(matches!(none, Err(NotInCluster::Variable { .. })));
        }
    }
}
