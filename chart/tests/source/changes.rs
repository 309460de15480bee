//! What is remembered, and what a change of its source means.

use std::sync::{Arc, Mutex};

use chart::source::Access;
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use super::registry::plain;
use super::server::{Server, answer};
use super::{archive, fetcher, reference, sha256};

/// A repository of one chart at one version, and a registry with it under one tag; what it is can be changed.
async fn mutable(with_digest: bool) -> (Server, Arc<Mutex<&'static str>>) {
    let content = Arc::new(Mutex::new("old"));
    let shared = Arc::clone(&content);
    let server = Server::plain(move |seen| {
        let blob = archive(*shared.lock().unwrap());
        let digest = sha256(&blob);
        match seen.path.as_str() {
            "/index.yaml" => {
                let named = if with_digest { digest.as_str() } else { "" };
                let entry = json!([{ "name": "web", "version": "1.0.0", "urls": ["web.tgz"], "digest": named }]);
                answer(200, json!({ "apiVersion": "v1", "entries": { "web": entry } }).to_string())
            }
            "/web.tgz" => answer(200, blob),
            path if path.ends_with("/manifests/1.0.0") => {
                let config = "application/vnd.cncf.helm.config.v1+json";
                let layer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
                answer(200, json!({
                    "schemaVersion": 2,
                    "config": { "mediaType": config, "digest": format!("sha256:{digest}"), "size": 2 },
                    "layers": [{ "mediaType": layer, "digest": format!("sha256:{digest}"), "size": blob.len() }],
                }).to_string())
            }
            path if path.contains("/blobs/") => answer(200, blob),
            _ => answer(404, ""),
        }
    })
    .await;
    (server, content)
}

#[tokio::test]
async fn a_fetch_since_a_change_asks_again() {
    for with_digest in [true, false] {
        let (server, content) = mutable(with_digest).await;
        let charts = [
            (
                reference(&server.url(""), "web", "1.0.0"),
                Access::default(),
            ),
            (
                reference("", &server.url("/web.tgz"), ""),
                Access::default(),
            ),
            (reference(&server.oci("charts/web"), "", "1.0.0"), plain()),
        ];
        let fetcher = fetcher();
        for (chart, access) in &charts {
            *content.lock().unwrap() = "old";
            let first = fetcher
                .fetch_since(chart, access, Some(Instant::now()))
                .await
                .unwrap();
            assert_eq!(first.bytes, archive("old"), "{chart}");
            *content.lock().unwrap() = "new";
            let remembered = fetcher.fetch(chart, access).await.unwrap();
            assert_eq!(remembered.digest, first.digest, "{chart}");
            let since = Some(Instant::now());
            let now = fetcher.fetch_since(chart, access, since).await.unwrap();
            assert_eq!(now.bytes, archive("new"), "{chart}");
            let asked = server.seen().len();
            fetcher.fetch_since(chart, access, since).await.unwrap();
            assert_eq!(server.seen().len(), asked, "asked since already: {chart}");
        }
    }
}

#[tokio::test]
async fn fetches_since_the_same_change_share_one_request() {
    let (server, _) = mutable(true).await;
    let chart = reference(&server.url(""), "web", "1.0.0");
    let (fetcher, access) = (fetcher(), Access::default());
    fetcher.fetch(&chart, &access).await.unwrap();
    let before = server.seen().len();
    let since = Instant::now();
    let all = (0..50).map(|_| fetcher.fetch_since(&chart, &access, Some(since)));
    for fetched in join_all(all).await {
        fetched.unwrap();
    }
    assert_eq!(server.paths()[before..], ["/index.yaml"]);
}
