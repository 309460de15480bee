//! What lies beside a chart: how much of it is looked at, and who is shown what to get it.

use chart::source::{Access, Credentials, SignatureKinds};
use serde_json::{Value, json};

use super::registry::{content, plain};
use super::server::{Answer, Ca, Seen, Server, answer, with};
use super::{archive, fetcher, reference, sha256};

const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const BOTH: SignatureKinds = SignatureKinds {
    provenance: true,
    cosign: true,
};

/// A bundle, and the manifest that has it as its layer.
fn bundle(number: usize) -> (String, String) {
    let text = json!({ "bundle": number }).to_string();
    let digest = format!("sha256:{}", sha256(text.as_bytes()));
    let layer = json!({ "mediaType": BUNDLE, "digest": digest, "size": text.len() });
    let manifest = json!({ "schemaVersion": 2, "layers": [layer] });
    (text, manifest.to_string())
}

/// The first so many bundles, of which the last alone says that it is a signature; `per_page` referrers are told at a time.
fn with_referrers(bundles: usize, per_page: usize, seen: &Seen) -> Answer {
    let path = seen
        .path
        .strip_prefix("/v2/charts/web/")
        .unwrap_or_default();
    let numbers = 0..bundles;
    let named = |name: &str, text: &str| name == format!("sha256:{}", sha256(text.as_bytes()));
    if let Some(page) = path.strip_prefix("referrers/") {
        let from = page
            .split_once("?from=")
            .map_or(0, |(_, from)| from.parse().unwrap());
        let entry = |number: usize| -> Value {
            let (_, manifest) = bundle(number);
            let states = match number + 1 == bundles {
                true => "https://sigstore.dev/cosign/sign/v1",
                false => "https://slsa.dev/provenance/v1",
            };
            json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json", "artifactType": BUNDLE,
                "digest": format!("sha256:{}", sha256(manifest.as_bytes())), "size": manifest.len(),
                "annotations": { "dev.sigstore.bundle.predicateType": states },
            })
        };
        let entries: Vec<Value> = numbers.skip(from).take(per_page).map(entry).collect();
        let page = answer(200, json!({ "manifests": entries }).to_string());
        let next = from + per_page;
        return match next < bundles {
            true => with(
                page,
                "link",
                &format!(
                    "<{}?from={next}>; rel=\"next\"",
                    seen.path.split('?').next().unwrap()
                ),
            ),
            false => page,
        };
    }
    if let Some(name) = path.strip_prefix("manifests/sha256:") {
        let name = format!("sha256:{name}");
        let found = numbers
            .map(bundle)
            .find(|(_, manifest)| named(&name, manifest));
        if let Some((_, manifest)) = found {
            return answer(200, manifest);
        }
    } else if let Some(name) = path.strip_prefix("blobs/") {
        let found = numbers.map(bundle).find(|(text, _)| named(name, text));
        if let Some((text, _)) = found {
            return answer(200, text);
        }
    } else if path.ends_with(".sig") {
        return answer(404, "");
    }
    content(seen)
}

#[tokio::test]
async fn a_signature_is_found_among_many_others() {
    let server = Server::plain(|seen| with_referrers(60, 7, seen)).await;
    let chart = reference(&server.oci("charts/web"), "", "1.0.0");
    let fetcher = fetcher();
    let fetched = fetcher.fetch(&chart, &plain()).await.unwrap();
    let found = fetcher.signatures(&chart, &fetched, &plain(), BOTH).await;
    let found = found.unwrap();
    assert_eq!((found.bundles.len(), found.left_out), (60, 0));
    assert_eq!(found.bundles[0], bundle(59).0);
}

#[tokio::test]
async fn signatures_beyond_the_limits_are_skipped_and_reported() {
    let server = Server::plain(|seen| with_referrers(203, 1000, seen)).await;
    let chart = reference(&server.oci("charts/web"), "", "1.0.0");
    let fetcher = fetcher();
    let fetched = fetcher.fetch(&chart, &plain()).await.unwrap();
    let found = fetcher.signatures(&chart, &fetched, &plain(), BOTH).await;
    let found = found.unwrap();
    assert_eq!((found.bundles.len(), found.left_out), (200, 3));
    assert_eq!(found.bundles[0], bundle(202).0);
}

/// Who may push may add a thousand others to each layer.
#[tokio::test]
async fn only_cosigns_annotations_of_a_signature_are_kept() {
    let payload = "{}";
    let digest = format!("sha256:{}", sha256(payload.as_bytes()));
    let own =
        json!({ "dev.cosignproject.cosign/signature": "s", "dev.sigstore.cosign/bundle": "b" });
    let mut annotations = own.clone();
    for at in 0..998 {
        annotations[format!("{at}")] = "".into();
    }
    let layer = json!({
        "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
        "digest": digest, "size": payload.len(), "annotations": annotations,
    });
    let manifest = json!({ "schemaVersion": 2, "layers": [layer] }).to_string();
    let server = Server::plain(move |seen| match seen.path.as_str() {
        path if path.ends_with(".sig") => answer(200, manifest.clone()),
        path if path.ends_with(&digest) => answer(200, payload),
        _ => with_referrers(0, 1, seen),
    })
    .await;
    let chart = reference(&server.oci("charts/web"), "", "1.0.0");
    let fetcher = fetcher();
    let fetched = fetcher.fetch(&chart, &plain()).await.unwrap();
    let found = fetcher.signatures(&chart, &fetched, &plain(), BOTH).await;
    let [attached] = &found.unwrap().attached[..] else {
        panic!("one is attached");
    };
    assert_eq!(json!(attached.annotations), own);
}

/// A registry whose pages lead to ever more.
#[tokio::test]
async fn endless_pages_of_referrers_and_tags_are_bounded() {
    let server = Server::plain(|seen| {
        let more = format!("<{}&x>; rel=\"next\"", seen.path);
        match seen.path.as_str() {
            path if path.contains("/referrers/") => {
                let more = format!("<{path}?x>; rel=\"next\"");
                with(
                    answer(200, json!({ "manifests": [] }).to_string()),
                    "link",
                    &more,
                )
            }
            path if path.contains("/tags/list") => {
                let tags: Vec<String> = (0..2000)
                    .map(|n| format!("1.0.{n}-{}", "x".repeat(100)))
                    .collect();
                let tags = [tags, vec!["y".repeat(100_000)]].concat();
                with(
                    answer(200, json!({ "tags": tags }).to_string()),
                    "link",
                    &more,
                )
            }
            path if path.ends_with(".sig") => answer(404, ""),
            _ => content(seen),
        }
    })
    .await;
    let chart = reference(&server.oci("charts/web"), "", "1.0.0");
    let fetcher = fetcher();
    let fetched = fetcher.fetch(&chart, &plain()).await.unwrap();
    let found = fetcher.signatures(&chart, &fetched, &plain(), BOTH).await;
    assert_eq!(found.unwrap().left_out, 1);
    let asked = |what: &str| {
        server
            .paths()
            .iter()
            .filter(|path| path.contains(what))
            .count()
    };
    assert_eq!(asked("/referrers/"), 100);
    let constraint = reference(&server.oci("charts/web"), "", "^2");
    let error = fetcher.fetch(&constraint, &plain()).await.unwrap_err();
    assert_eq!(error.reason(), "NoMatchingVersion");
    assert!(asked("/tags/list") < 30, "{}", asked("/tags/list"));
}

/// All that is asked for one chart has one time, however short each answer takes.
#[tokio::test]
async fn the_time_for_one_chart_bounds_all_its_requests() {
    let server = Server::plain(|seen| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        with(
            answer(200, r#"{"tags":["1.0.0"]}"#),
            "link",
            &format!("<{}&x>; rel=\"next\"", seen.path),
        )
    })
    .await;
    let fetcher = chart::source::Fetcher::new(chart::source::Settings {
        timeout: std::time::Duration::from_millis(300),
        ..super::settings()
    });
    let chart = reference(&server.oci("charts/web"), "", "^1");
    let error = fetcher.fetch(&chart, &plain()).await.unwrap_err();
    assert_eq!(error.reason(), "Timeout");
}

/// What proves who asks a repository is not shown to the registry that its index names, neither for the chart nor for its signatures.
#[tokio::test]
async fn a_registry_of_an_index_is_shown_nothing_of_the_repositorys() {
    let (authority, clients) = (Ca::new("servers"), Ca::new("clients"));
    // It lets in who shows no certificate, and remembers who shows one.
    let registry = Server::asking(&authority, &clients, |seen| with_referrers(1, 9, seen)).await;
    let listed = registry.oci("charts/web") + ":1.0.0";
    let repository = Server::signed(&authority, Some(&clients), move |_| {
        let entry = json!([{ "name": "web", "version": "1.0.0", "urls": [listed] }]);
        answer(
            200,
            json!({ "apiVersion": "v1", "entries": { "web": entry } }).to_string(),
        )
    })
    .await;
    let access = Access {
        credentials: Credentials::new("joe", "canary"),
        ca: Some(authority.pem.clone()),
        identity: Some(clients.client()),
        ..Access::default()
    };
    let chart = reference(&repository.url(""), "web", "");
    let fetcher = fetcher();
    let fetched = fetcher.fetch(&chart, &access).await.unwrap();
    assert_eq!(fetched.bytes, archive("1.0.0"));
    let found = fetcher.signatures(&chart, &fetched, &access, BOTH).await;
    assert_eq!(found.unwrap().bundles.len(), 1);
    let seen = registry.seen();
    assert!(
        seen.len() > 5
            && seen
                .iter()
                .all(|seen| seen.authorization.is_none() && !seen.has_certificate)
    );
    assert!(repository.seen().iter().all(|seen| seen.has_certificate));
}
