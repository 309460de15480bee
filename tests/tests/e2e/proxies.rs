//! An upstream, and charts, that only a proxy leads to; what `NO_PROXY` names is reached without it, by the rules of Go.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testbed::bed::{Bed, CREDENTIALS, unique};
use testbed::chart::Chart;
use testbed::cluster::{PROXIED_NAME, UNPROXIED_ADDRESS};
use testbed::fleet::bundle_deployment::BundleDeployment;
use testbed::fleet::controller::Granted;
use testbed::fleet::test_agent::{PATIENCE, TestAgent};
use testbed::forward::ForwardProxy;
use testbed::repository::Access;
use testbed::wait::wait_until;

use crate::scene::{deploy, haste, target};

/// What Rancher's documents tell people to set, with the network of the test's own proxy.
const NO_PROXY: &str =
    "127.0.0.0/8,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,.svc,.cluster.local,localhost";

fn proxied(proxy: &str, no_proxy: &str) -> BTreeMap<String, String> {
    let mut env = haste();
    for (name, value) in [
        ("HTTP_PROXY", proxy),
        ("HTTPS_PROXY", proxy),
        ("NO_PROXY", no_proxy),
    ] {
        env.insert(name.to_owned(), value.to_owned());
    }
    env
}

/// The names of the cluster upstream that a registration through the proxy led to.
async fn registered(agent: &TestAgent<'_>) -> Result<Granted> {
    use base64::Engine;
    let waited = wait_until("the agent to register", PATIENCE, async || {
        let secret = agent
            .object("v1", "Secret", &agent.system_namespace, "fleet-agent")
            .await
            .map_err(|e| e.to_string())?
            .ok_or("no credential yet")?;
        let text = |key: &str| -> Result<String, String> {
            let encoded = secret.data["data"][key].as_str().ok_or("no such key")?;
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(encoded)
                .map_err(|e| e.to_string())?;
            String::from_utf8(bytes).map_err(|e| e.to_string())
        };
        Ok(Granted {
            cluster_namespace: text("clusterNamespace")?,
            cluster_name: text("clusterName")?,
            deployment_namespace: text("deploymentNamespace")?,
            user: String::new(),
            token: String::new(),
        })
    })
    .await;
    waited.with_context(|| agent.agent_log_tail(30))
}

/// Registers by token and deploys, all through the proxy.
async fn works_through(proxy: &ForwardProxy, address: &str, extra: &[(&str, &str)]) -> Result<()> {
    let bed = Bed::shared().await?;
    let mut agent = TestAgent::prepare(bed).await?;
    let upstream = bed.upstream.url_at(PROXIED_NAME);
    agent
        .bootstrap(|data| data["apiServerURL"] = json!(upstream))
        .await?;
    let mut env = proxied(address, NO_PROXY);
    for (name, value) in extra {
        env.insert((*name).to_owned(), (*value).to_owned());
    }
    agent.start(env)?;
    agent.granted = Some(registered(&agent).await?);
    let chart = Chart::small(&unique("proxied"), "1.0.0");
    bed.repository.add(&chart)?;
    // The index has paths of the repository relative to itself.
    let (_, place) = bed.repository.url().rsplit_once(':').context("a port")?;
    let repository = format!("http://charts.example:{place}");
    let bundle = BundleDeployment::helm_op("web", &repository, chart.name(), "1.0.0");
    agent.apply(&bundle.release("web", &target(&agent))).await?;
    agent.wait_ready("web").await?;
    let server = upstream.strip_prefix("https://").context("https")?;
    let asked = proxy.asked();
    ensure!(asked.iter().any(|asked| asked == server), "{asked:?}");
    let charts = format!("charts.example:{place}");
    ensure!(
        asked
            .iter()
            .all(|asked| *asked == server || *asked == charts),
        "{asked:?}"
    );
    let log = agent.process()?.log();
    ensure!(!log.contains(CREDENTIALS.1), "{log}");
    Ok(())
}

#[tokio::test]
async fn a_proxy_in_a_network_of_no_proxy_leads_upstream() -> Result<()> {
    let proxy = ForwardProxy::start(&Access::default())?;
    works_through(&proxy, proxy.url(), &[]).await
}

#[tokio::test]
async fn a_proxy_that_asks_for_a_password_leads_upstream() -> Result<()> {
    // Characters that have to be escaped in an address.
    let (user, password) = (CREDENTIALS.0, "p@ss:w%rd");
    let proxy = ForwardProxy::start(&Access {
        basic_auth: Some((user, password)),
        authority: None,
    })?;
    let escaped = format!("http://{user}:p%40ss%3Aw%25rd@");
    let address = proxy.url().replacen("http://", &escaped, 1);
    works_through(&proxy, &address, &[]).await
}

#[tokio::test]
async fn a_proxy_with_tls_is_trusted_by_its_bundle() -> Result<()> {
    let authority = &Bed::shared().await?.authority;
    let proxy = ForwardProxy::start(&Access {
        basic_auth: Some(CREDENTIALS),
        authority: Some(authority),
    })?;
    let (user, password) = CREDENTIALS;
    let with_password = format!("https://{user}:{password}@");
    let address = proxy.url().replacen("https://", &with_password, 1);
    let bundle = ("PROXY_CA_BUNDLE", authority.pem());
    works_through(&proxy, &address, &[bundle]).await
}

/// An agent with a credential for an address that needs no proxy.
async fn at_unproxied_address(no_proxy: impl Fn(&str) -> String) -> Result<(bool, Vec<String>)> {
    let bed = Bed::shared().await?;
    let proxy = ForwardProxy::start(&Access::default())?;
    let mut agent = TestAgent::prepare(bed).await?;
    let url = bed.upstream.url_at(UNPROXIED_ADDRESS);
    let (_, port) = url.rsplit_once(':').context("a port")?;
    agent.grant_at(&url).await?;
    agent.start(proxied(proxy.url(), &no_proxy(port)))?;
    deploy(&agent, "app", 1)
        .await
        .with_context(|| agent.agent_log_tail(30))?;
    let asked = proxy.asked();
    Ok((asked.is_empty(), asked))
}

#[tokio::test]
async fn upstream_in_a_network_of_no_proxy_is_reached_straight() -> Result<()> {
    let (straight, asked) = at_unproxied_address(|_| "10.0.0.0/8, 0.0.0.0/8".to_owned()).await?;
    ensure!(straight, "{asked:?}");
    Ok(())
}

#[tokio::test]
async fn upstream_at_an_address_and_port_of_no_proxy_is_reached_straight() -> Result<()> {
    let (straight, asked) = at_unproxied_address(|port| format!("0.0.0.0:{port}")).await?;
    ensure!(straight, "{asked:?}");
    Ok(())
}

#[tokio::test]
async fn upstream_at_another_port_than_that_of_no_proxy_is_proxied() -> Result<()> {
    let (straight, asked) = at_unproxied_address(|_| "0.0.0.0:1".to_owned()).await?;
    ensure!(!straight, "{asked:?}");
    Ok(())
}

/// Nobody but the proxy can resolve the name, so going straight shows in the error; the proxy hears nothing.
#[tokio::test]
async fn upstream_by_a_name_of_no_proxy_is_not_looked_for_at_the_proxy() -> Result<()> {
    let bed = Bed::shared().await?;
    for no_proxy in [".example", "*.example", "apiserver.example", "example"] {
        let proxy = ForwardProxy::start(&Access::default())?;
        let mut agent = TestAgent::prepare(bed).await?;
        agent.grant_at(&bed.upstream.url_at(PROXIED_NAME)).await?;
        agent.start(proxied(proxy.url(), no_proxy))?;
        let log = reported(&mut agent, "failed to register agent").await?;
        ensure!(log.contains("dns error"), "{log}");
        ensure!(proxy.asked().is_empty(), "{no_proxy}: {:?}", proxy.asked());
    }
    Ok(())
}

async fn reported(agent: &mut TestAgent<'_>, text: &str) -> Result<String> {
    wait_until(text, PATIENCE, async || {
        let log = agent.process().map_err(|e| e.to_string())?.log();
        if log.contains(text) {
            Ok(log)
        } else {
            Err(log)
        }
    })
    .await
}

/// The error names the proxy and the server, never the password.
#[tokio::test]
async fn a_proxy_that_refuses_is_named() -> Result<()> {
    let bed = Bed::shared().await?;
    let proxy = ForwardProxy::start(&Access {
        basic_auth: Some(CREDENTIALS),
        authority: None,
    })?;
    let mut agent = TestAgent::prepare(bed).await?;
    agent.grant_at(&bed.upstream.url_at(PROXIED_NAME)).await?;
    let address = proxy.url().replacen("http://", "http://user:wr0ng@", 1);
    agent.start(proxied(&address, NO_PROXY))?;
    let log = reported(&mut agent, "failed to register agent").await?;
    ensure!(log.contains("proxy authorization required"), "{log}");
    ensure!(log.contains("xxxxx@127.0.0.1"), "{log}");
    ensure!(
        log.contains(PROXIED_NAME) && !log.contains("user:") && !log.contains("wr0ng"),
        "{log}"
    );
    ensure!(proxy.asked().is_empty());
    Ok(())
}
