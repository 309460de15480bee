//! What is written at the same time, and what is not: seen by somebody between us and the API server, who keeps every write of a
//! kind waiting until as many are on their way as may be. Were they sent one by one, the first would wait in vain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http::{Method, Request};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use release::Cluster;
use release::storage::Storage;
use testbed::proxy::{self, Answer};
use tokio::sync::watch;

use crate::world::{World, config_map};

/// As many objects of a kind are sent at a time (`PARALLEL` in `kube/apply.rs`).
const AT_A_TIME: usize = 8;
/// Only what never comes is waited for so long; a test that passes waits for nothing.
const IN_VAIN: Duration = Duration::from_secs(30);

/// What was seen of the writes below a namespace.
#[derive(Debug, Default)]
struct Seen {
    /// Plurals in the order in which their first write came.
    order: Vec<String>,
    /// Writes of each plural that are on their way.
    under_way: BTreeMap<String, usize>,
    /// The most of each that ever were.
    most: BTreeMap<String, usize>,
    /// Plurals that were on their way together.
    mixed: Vec<[String; 2]>,
    /// Somebody waited in vain: nobody else is to.
    is_over: bool,
}

impl Seen {
    fn begin(&mut self, plural: &str) {
        let others = self.under_way.iter().filter(|(_, count)| **count > 0);
        let mixed = others
            .filter(|(other, _)| *other != plural)
            .map(|(other, _)| [other.clone(), plural.to_owned()]);
        self.mixed.extend(mixed);
        if !self.order.iter().any(|known| known == plural) {
            self.order.push(plural.to_owned());
        }
        let count = self.under_way.entry(plural.to_owned()).or_default();
        *count += 1;
        let most = self.most.entry(plural.to_owned()).or_default();
        *most = (*most).max(*count);
    }

    fn end(&mut self, plural: &str) {
        if let Some(count) = self.under_way.get_mut(plural) {
            *count -= 1;
        }
    }

    fn is_open(&self, plural: &str) -> bool {
        self.is_over || self.most.get(plural) >= Some(&AT_A_TIME)
    }
}

/// Counts writes and lets each through when enough of its plural have come.
async fn pass(
    client: &kube::Client,
    seen: &watch::Sender<Seen>,
    request: Request<Incoming>,
) -> Answer {
    let plural = written(&request);
    if let Some(plural) = &plural {
        seen.send_modify(|seen| seen.begin(plural));
        let mut news = seen.subscribe();
        let open = news.wait_for(|seen| seen.is_open(plural));
        let is_in_vain = tokio::time::timeout(IN_VAIN, open).await.is_err();
        seen.send_modify(|seen| seen.is_over |= is_in_vain);
    }
    let request = proxy::forwarded(request).await.expect("whole requests");
    let answer = client.send(request).await.expect("an answer");
    if let Some(plural) = &plural {
        seen.send_modify(|seen| seen.end(plural));
    }
    answer.map(BodyExt::boxed_unsync)
}

/// The plural of the object that a request writes.
fn written(request: &Request<Incoming>) -> Option<String> {
    let is_write = [Method::PATCH, Method::POST].contains(request.method());
    let path: Vec<&str> = request.uri().path().split('/').collect();
    let plural = match path.as_slice() {
        ["", "api", _, "namespaces", _, plural, ..] => *plural,
        _ => return None,
    };
    let is_object = ["configmaps", "services"].contains(&plural);
    (is_write && is_object).then(|| plural.to_owned())
}

fn service(name: &str) -> String {
    format!(
        "---\n# Source: web/templates/{name}.yaml\napiVersion: v1\nkind: Service\nmetadata:\n  \
         name: {name}\nspec:\n  ports: [{{port: 80}}]\n"
    )
}

/// Objects of one kind are written side by side, so many at a time; one kind is over before the next begins.
#[tokio::test]
async fn objects_of_one_kind_are_written_together_and_kinds_in_order() -> Result<()> {
    let mut world = World::new().await?;
    world.kubectl(&["create", "namespace", &world.namespace])?;
    let seen = Arc::new(watch::Sender::new(Seen::default()));
    let served = Arc::clone(&seen);
    let kubeconfig = world
        .plane
        .kubeconfig_value(testbed::cluster::ADMIN, "default");
    let url = proxy::listen(kubeconfig, move |client, request| {
        let seen = Arc::clone(&served);
        async move { pass(&client, &seen, request).await }
    })
    .await?;
    let config = kube::Config::new(url.parse().context("the proxy's address")?);
    world.cluster = Cluster::new(kube::Client::try_from(config)?);
    world.storage = Storage::secrets(&world.cluster, &world.namespace);

    let all = |make: &dyn Fn(&str) -> String| -> String {
        let names = (0..AT_A_TIME + 4).map(|n| format!("o-{n}"));
        names.map(|name| make(&name)).collect()
    };
    for value in ["installed", "upgraded"] {
        seen.send_replace(Seen::default());
        let maps = all(&|name| config_map(name, value));
        let services =
            all(&|name| service(name).replace("port: 80", &format!("name: {value}, port: 80")));
        world.deploy(&(maps + &services)).await?;
        let seen = seen.borrow();
        let most = ["configmaps", "services"].map(|plural| seen.most.get(plural).copied());
        assert_eq!(most, [Some(AT_A_TIME); 2], "{value}: {seen:?}");
        assert_eq!(seen.order, ["configmaps", "services"], "{value}");
        assert_eq!(seen.mixed, Vec::<[String; 2]>::new(), "{value}");
    }
    Ok(())
}
