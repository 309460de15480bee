//! An upstream that pods reach through a proxy only, and what `NO_PROXY` takes past it.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testbed::bed::CREDENTIALS;
use testbed::certs::Authority;
use testbed::cluster::{GATEWAY_ADDRESS, PROXIED_NAME, UPSTREAM_NAME};
use testbed::forward::{ForwardProxy, NAME};
use testbed::repository::Access;

use testbed::node::bed::{NodeBed, port};
use testbed::node::managed_cluster::{Agent, ManagedCluster};

/// What Rancher's documents tell people to set: the proxy's own address is within.
const NO_PROXY: &str = "127.0.0.0/8,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,.svc,.cluster.local,charts.testbed.example";

/// A proxy that pods find by its name; gives its address with `who` in front.
async fn proxy(access: &Access<'_>, who: &str) -> Result<(ForwardProxy, String)> {
    let bed = NodeBed::shared().await?;
    let proxy = ForwardProxy::start(access)?;
    let port = port(proxy.url())?;
    bed.gateway.lead(NAME, port, port).await?;
    let (scheme, _) = proxy.url().split_once("://").context("a scheme")?;
    let address = format!("{scheme}://{who}{NAME}:{port}");
    Ok((proxy, address))
}

fn variables(proxy: &str, no_proxy: &str, authority: Option<&Authority>) -> Value {
    let mut all = vec![
        json!({ "name": "HTTP_PROXY", "value": proxy }),
        json!({ "name": "HTTPS_PROXY", "value": proxy }),
        json!({ "name": "NO_PROXY", "value": no_proxy }),
    ];
    if let Some(authority) = authority {
        all.push(json!({ "name": "PROXY_CA_BUNDLE", "value": authority.pem() }));
    }
    json!(all)
}

/// Fleet is told an address upstream that the proxy alone can resolve.
async fn works_through(access: &Access<'_>, who: &str) -> Result<()> {
    let bed = NodeBed::shared().await?;
    let (proxy, address) = proxy(access, who).await?;
    let site = ManagedCluster::managed(Agent::Ours, |spec, secret| {
        spec["agentEnvVars"] = variables(&address, NO_PROXY, access.authority);
        secret["apiServerURL"] = json!(bed.upstream.url_at(PROXIED_NAME));
        secret["apiServerCA"] = json!(bed.upstream.authority());
    })
    .await?;
    site.proves_itself().await?;
    let asked = proxy.asked();
    let upstream = format!("{PROXIED_NAME}:{}", bed.upstream.port());
    ensure!(!asked.is_empty(), "nothing went through the proxy");
    ensure!(asked.iter().all(|server| *server == upstream), "{asked:?}");
    let log = site.logs();
    ensure!(!log.contains(CREDENTIALS.1), "{log}");
    site.end().await
}

#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn a_pod_reaches_upstream_through_a_plain_proxy() -> Result<()> {
    works_through(&Access::default(), "").await
}

#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn a_pod_reaches_upstream_through_a_proxy_with_a_password() -> Result<()> {
    let access = Access {
        basic_auth: Some(CREDENTIALS),
        authority: None,
    };
    works_through(&access, &format!("{}:{}@", CREDENTIALS.0, CREDENTIALS.1)).await
}

#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn a_pod_reaches_upstream_through_a_proxy_with_tls() -> Result<()> {
    let authority = Authority::new("proxy")?;
    let access = Access {
        basic_auth: Some(CREDENTIALS),
        authority: Some(&authority),
    };
    works_through(&access, &format!("{}:{}@", CREDENTIALS.0, CREDENTIALS.1)).await
}

/// Names, ports and networks: the proxy would lead there too, and hears nothing; another port is asked for at the proxy.
#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn no_proxy_bypasses_the_proxy() -> Result<()> {
    let bed = NodeBed::shared().await?;
    for (host, no_proxy, is_straight) in [
        (UPSTREAM_NAME, "testbed.example", true),
        (UPSTREAM_NAME, ".testbed.example:443", true),
        (GATEWAY_ADDRESS, "10.96.0.0/16,charts.testbed.example", true),
        (
            GATEWAY_ADDRESS,
            "10.96.0.2:6443,charts.testbed.example",
            false,
        ),
    ] {
        let (proxy, address) = proxy(&Access::default(), "").await?;
        // The proxy leads to loopback, whatever it is asked for: the port has to be the API server's own.
        let port = bed.upstream.port();
        let is_forwarded = is_straight.then(|| format!("https://{host}"));
        let url = is_forwarded.unwrap_or(format!("https://{host}:{port}"));
        let site = ManagedCluster::managed(Agent::Ours, |spec, secret| {
            spec["agentEnvVars"] = variables(&address, no_proxy, None);
            secret["apiServerURL"] = json!(url);
            secret["apiServerCA"] = json!(bed.upstream.authority());
        })
        .await
        .with_context(|| format!("{host} with {no_proxy}"))?;
        let asked = proxy.asked();
        ensure!(
            asked.is_empty() == is_straight,
            "{host} with {no_proxy}: {asked:?}"
        );
        site.end().await?;
    }
    Ok(())
}
