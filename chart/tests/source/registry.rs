//! OCI registries.

use chart::source::{Access, Credentials, Reference};
use rstest::rstest;

use super::server::{Answer, Seen, Server, answer, with};
use super::{archive, chain, fetcher, reference, sha256};

const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

fn manifest(config: &str, layer: &str, version: &str) -> String {
    let blob = archive(version);
    format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
           "config":{{"mediaType":"{config}","digest":"sha256:{0}","size":2}},
           "layers":[{{"mediaType":"application/vnd.cncf.helm.chart.provenance.v1.prov","digest":"sha256:{0}","size":2}},
                     {{"mediaType":"{layer}","digest":"sha256:{1}","size":{2}}}]}}"#,
        sha256(b"{}"),
        sha256(&blob),
        blob.len()
    )
}

/// The registry's content: `charts/web` with a few tags.
pub(crate) fn content(seen: &Seen) -> Answer {
    let Some(path) = seen.path.strip_prefix("/v2/charts/web/") else {
        let body = r#"{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known"}]}"#;
        return answer(404, body);
    };
    match path {
        "tags/list?n=1000" => {
            let page = answer(
                200,
                r#"{"name":"charts/web","tags":["1.0.0","latest","v3.0.0"]}"#,
            );
            with(
                page,
                "link",
                "</v2/charts/web/tags/list?n=1000&last=v3.0.0>; rel=\"next\"",
            )
        }
        "tags/list?n=1000&last=v3.0.0" => answer(
            200,
            r#"{"name":"charts/web","tags":["1.10.0_b1","1.9.0","2.0.0-rc.1"]}"#,
        ),
        "manifests/image" => answer(
            200,
            manifest("application/vnd.oci.image.config", LAYER, "x"),
        ),
        "manifests/wrong" => answer(200, manifest(CONFIG, "application/zip", "x")),
        path => match path.split_once('/') {
            Some(("manifests", name)) if name.starts_with("sha256:") => ["1.0.0", "1.9.0"]
                .iter()
                .map(|version| manifest(CONFIG, LAYER, version))
                .find(|text| name == format!("sha256:{}", sha256(text.as_bytes())))
                .map_or_else(|| answer(404, ""), |text| answer(200, text)),
            Some(("manifests", tag)) if tag != "9.9.9" => answer(200, manifest(CONFIG, LAYER, tag)),
            Some(("blobs", digest)) => ["1.0.0", "1.9.0", "1.10.0_b1"]
                .iter()
                .map(|version| archive(version))
                .find(|blob| digest == format!("sha256:{}", sha256(blob)))
                .map_or_else(|| answer(404, ""), |blob| answer(200, blob)),
            _ => answer(
                404,
                r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#,
            ),
        },
    }
}

pub(crate) fn plain() -> Access {
    Access {
        plain_http: true,
        ..Access::default()
    }
}

#[tokio::test]
async fn tags_digests_and_constraints() {
    let server = Server::plain(content).await;
    let repo = server.oci("charts/web");
    let digest = sha256(manifest(CONFIG, LAYER, "1.0.0").as_bytes());
    let cases = [
        // A version with a plus is no tag for Helm, whatever the registry has under it.
        (
            format!("{repo}@sha256:{digest}"),
            "1.10.0+b1",
            "1.10.0+b1",
            "1.0.0",
        ),
        (repo.clone(), "1.0.0", "1.0.0", "1.0.0"),
        (repo.clone(), "", "1.10.0+b1", "1.10.0_b1"),
        (repo.clone(), "1.10.0+b1", "1.10.0+b1", "1.10.0_b1"),
        (repo.clone(), "~1.9.x", "1.9.0", "1.9.0"),
        (format!("{repo}:1.9.0"), "", "1.9.0", "1.9.0"),
        (format!("{repo}@sha256:{digest}"), "", "", "1.0.0"),
        (format!("{repo}@sha256:{digest}"), "1.0.0", "1.0.0", "1.0.0"),
        // Of a digest nothing says that it must have a tag.
        (format!("{repo}@sha256:{digest}"), "9.9.9", "9.9.9", "1.0.0"),
        (format!("{repo}@sha256:{digest}"), "^1", "^1", "1.0.0"),
        (
            format!("{repo}:1.0.0@sha256:{digest}"),
            "1.0.0",
            "1.0.0",
            "1.0.0",
        ),
    ];
    for (repo, version, want, content) in cases {
        let fetched = fetcher()
            .fetch(&reference(&repo, "", version), &plain())
            .await
            .unwrap();
        assert_eq!(
            (fetched.version.as_str(), fetched.bytes.to_vec()),
            (want, archive(content))
        );
    }
}

/// Fleet does not hand Helm the version that an index has beside a digest.
#[tokio::test]
async fn a_digest_that_an_index_names_is_not_compared_with_the_tag_of_its_version() {
    let server = Server::plain(content).await;
    let digest = sha256(manifest(CONFIG, LAYER, "1.0.0").as_bytes());
    let named = server.oci(&format!("charts/web@sha256:{digest}"));
    let index = format!(
        "apiVersion: v1\nentries: {{web: [{{name: web, version: 1.9.0, urls: ['{named}']}}]}}\n"
    );
    let repository = Server::plain(move |_| answer(200, index.clone())).await;
    let fetcher = fetcher();
    for version in ["", "^1"] {
        let chart = reference(&repository.url(""), "web", version);
        let fetched = fetcher.fetch(&chart, &plain()).await.unwrap();
        assert_eq!(fetched.bytes.to_vec(), archive("1.0.0"));
    }
    // A bundle that names both is told, whatever was fetched before.
    let chart = reference(&named, "", "1.9.0");
    let error = chain(&fetcher.fetch(&chart, &plain()).await.unwrap_err());
    assert!(error.contains("chart reference digest mismatch"), "{error}");
}

#[tokio::test]
async fn a_chart_is_pulled_once() {
    let server = Server::plain(content).await;
    let fetcher = fetcher();
    let chart = reference(&server.oci("charts/web"), "", "1.0.0");
    for _ in 0..3 {
        fetcher.fetch(&chart, &plain()).await.unwrap();
    }
    // Another way to the same blob asks for the manifest only.
    let range = reference(&server.oci("charts/web:1.0.0"), "", "");
    fetcher.fetch(&range, &plain()).await.unwrap();
    let blobs = server
        .paths()
        .iter()
        .filter(|path| path.contains("/blobs/"))
        .count();
    assert_eq!((server.seen().len(), blobs), (3, 1), "{:?}", server.paths());
}

#[tokio::test]
async fn an_answer_that_is_no_chart_is_an_error() {
    let server = Server::plain(content).await;
    let repo = server.oci("charts/web");
    let [first, other] = ["1.0.0", "1.9.0"].map(|version| {
        format!(
            "sha256:{}",
            sha256(manifest(CONFIG, LAYER, version).as_bytes())
        )
    });
    let pinned = format!("{repo}@{first}");
    let tagged = format!("{repo}:1.9.0@{first}");
    let mismatch = |asked: &str| {
        let problem = format!("chart reference digest mismatch: {other} is not {first}");
        format!("invalid chart source {asked:?}: {problem}")
    };
    let cases = [
        (reference(&pinned, "", "1.9.0"), mismatch(&pinned)),
        (reference(&tagged, "", ""), mismatch(&tagged)),
        (
            reference(&format!("{repo}:1.0.0"), "", "1.9.0"),
            format!(
                "invalid chart source {:?}: chart reference and version mismatch: 1.9.0 is not 1.0.0",
                format!("{repo}:1.0.0")
            ),
        ),
        (
            reference(&repo, "", "9.9.9"),
            format!(
                "registry answered 404 for {:?}: manifest unknown: manifest unknown",
                server.url("/v2/charts/web/manifests/9.9.9")
            ),
        ),
        (
            reference(&repo, "", "^9.x"),
            format!(
                "could not locate a version matching provided version string ^9.x \
                 (newest seen: 2.0.0-rc.1, 1.10.0+b1, 1.9.0, 1.0.0) in {repo}"
            ),
        ),
        (
            reference(&server.oci("charts/none"), "", ""),
            format!(
                "registry answered 404 for {:?}: repository \"charts/none\" not found in the \
                 registry: name unknown: repository name not known",
                server.url("/v2/charts/none/tags/list?n=1000")
            ),
        ),
    ];
    for (chart, text) in cases {
        let error = fetcher().fetch(&chart, &plain()).await.unwrap_err();
        assert_eq!(chain(&error), text);
    }
}

#[tokio::test]
async fn one_layer_artifacts() {
    let blob = b"{\"resources\":[]}";
    let manifest = |id: &str| {
        format!(
            r#"{{"layers":[{{"mediaType":"application/fleet.file","digest":"sha256:{}","size":{},"annotations":{{"id":"{id}"}}}}]}}"#,
            sha256(blob),
            blob.len()
        )
    };
    let server = Server::plain(move |seen| match seen.path.as_str() {
        "/v2/fleet/s-1/manifests/latest" => answer(200, manifest("s-1")),
        "/v2/fleet/s-2/manifests/latest" => answer(200, manifest("s-1")),
        "/v2/fleet/s-3/manifests/latest" => answer(200, r#"{"layers":[]}"#),
        _ => answer(200, &blob[..]),
    })
    .await;
    let get = async |id: &str| {
        let reference = Reference::parse(&server.oci(&format!("fleet/{id}"))).unwrap();
        fetcher()
            .layer(&reference, id, &plain())
            .await
            .map_err(|error| chain(&error))
    };
    assert_eq!(get("s-1").await.unwrap().bytes, &blob[..]);
    assert!(
        get("s-2")
            .await
            .unwrap_err()
            .ends_with("could not find expected id in Descriptor's annotations")
    );
    assert!(
        get("s-3")
            .await
            .unwrap_err()
            .ends_with("expected 1 layer in OCI manifest, 0 found")
    );
}

/// A registry behind a token service (on the same server) that knows joe, or anybody.
async fn behind_tokens(anybody: bool) -> Server {
    Server::plain(move |seen| {
        if let Some(query) = seen.path.strip_prefix("/token?") {
            assert_eq!(query, "service=reg&scope=repository%3Acharts%2Fweb%3Apull");
            return match seen.authorization.as_deref() {
                Some("Basic am9lOnNlY3JldA==") => {
                    answer(200, r#"{"access_token":"t","expires_in":300}"#)
                }
                None if anybody => answer(200, r#"{"token":"t"}"#),
                _ => answer(401, ""),
            };
        }
        if seen.authorization.as_deref() != Some("Bearer t") {
            return with(
                answer(401, ""),
                "www-authenticate",
                "Bearer realm=\"/token\",service=\"reg\",scope=\"repository:charts/web:pull\"",
            );
        }
        content(seen)
    })
    .await
}

#[tokio::test]
async fn tokens() {
    let joe = Access {
        credentials: Credentials::new("joe", "secret"),
        ..plain()
    };
    let server = behind_tokens(false).await;
    let chart = reference(&server.oci("charts/web"), "", "1.0.0");
    fetcher().fetch(&chart, &joe).await.unwrap();
    // One refusal, one token, then manifest and blob with it.
    assert_eq!(server.seen().len(), 4, "{:?}", server.paths());
    let wrong = Access {
        credentials: Credentials::new("joe", "wrong"),
        ..plain()
    };
    for (access, hint) in [
        (wrong, "(the credentials were refused)"),
        (plain(), "(no credentials were sent)"),
    ] {
        let error = fetcher().fetch(&chart, &access).await.unwrap_err();
        assert_eq!(error.reason(), "Unauthorized");
        assert!(chain(&error).ends_with(hint), "{}", chain(&error));
    }
    let open = behind_tokens(true).await;
    let chart = reference(&open.oci("charts/web"), "", "1.0.0");
    fetcher().fetch(&chart, &plain()).await.unwrap();
}

/// A server that tells a tenant the operator's login in what cannot be used of its answers.
#[tokio::test]
async fn credentials_echoed_in_unusable_registry_answers_are_redacted() {
    let digest = format!("sha256:{}", sha256(b"{}"));
    let invalid = format!(
        r#"{{"config":{{"mediaType":"{CONFIG}","digest":"{digest}"}},"layers":[{{"mediaType":"{LAYER}","digest":SAID}}]}}"#
    );
    let quoted = r#"canary "1" canary"#;
    let (plain_one, tag) = ("canary-1", "9.0.0-canary-1");
    for (password, said, version, body, told) in [
        (
            quoted,
            quoted,
            "1.0.0",
            r#"{"layers":SAID}"#,
            "manifest cannot be read",
        ),
        (quoted, quoted, "1.0.0", &invalid, "has an invalid digest"),
        (
            quoted,
            quoted,
            "^1",
            r#"{"tags":SAID}"#,
            "tag list cannot be read",
        ),
        (
            plain_one,
            tag,
            "^1",
            r#"{"tags":["9.0.0",SAID]}"#,
            "newest seen: 9.0.0, ",
        ),
    ] {
        let body = body.replace("SAID", &format!("{said:?}"));
        let server = Server::plain(move |seen| match seen.authorization {
            Some(_) => answer(200, body.clone()),
            None => with(answer(401, ""), "www-authenticate", "Basic realm=\"r\""),
        });
        let server = server.await;
        let access = Access {
            credentials: Credentials::new("joe", password),
            ..plain()
        };
        let chart = reference(&server.oci("charts/web"), "", version);
        let error = fetcher().fetch(&chart, &access).await.unwrap_err();
        let reported = chain(&error);
        assert!(reported.contains(told), "{reported}");
        assert!(reported.contains("**REDACTED**"), "{reported}");
        assert!(!reported.contains("canary"), "{reported}");
    }
}

/// A tag that a registry lists is as much its word as what it answers.
#[tokio::test]
async fn credentials_echoed_in_a_tag_are_redacted() {
    let server = Server::plain(|seen| match seen.authorization {
        None => with(answer(401, ""), "www-authenticate", "Basic realm=\"r\""),
        _ if seen.path.contains("/tags/") => answer(200, r#"{"tags":["1.0.0_canary-1"]}"#),
        _ => answer(404, ""),
    });
    let server = server.await;
    let access = Access {
        credentials: Credentials::new("joe", "canary-1"),
        ..plain()
    };
    let chart = reference(&server.oci("charts/web"), "", "^1");
    let error = fetcher().fetch(&chart, &access).await.unwrap_err();
    let reported = chain(&error);
    assert!(reported.contains("registry answered 404"), "{reported}");
    assert!(!reported.contains("canary"), "{reported}");
}

/// It may know a login from before.
#[rstest]
#[case::refused("/token", "canary-1", "/token\"")]
#[case::refused_at_a_path("/token/canary-1", "s", "/v2/charts/web/\"")]
// Nobody listens there.
#[case::not_reached("http://127.0.0.1:1/token", "canary-1", "http://127.0.0.1:1/token\"")]
#[case::no_host("http://Canary-1.invalid/token", "s", "lookup **REDACTED**.invalid: no such host")]
#[tokio::test]
async fn credentials_echoed_in_a_challenge_are_redacted(
    #[case] realm: &str,
    #[case] scope: &str,
    #[case] told: &str,
) {
    let challenge = format!(r#"Bearer realm="{realm}",service="reg",scope="{scope}""#);
    let server = Server::plain(move |seen| match seen.path.starts_with("/token") {
        true => answer(403, ""),
        false => with(answer(401, ""), "www-authenticate", &challenge),
    });
    let server = server.await;
    let access = Access {
        credentials: Credentials::new("joe", "canary-1"),
        ..plain()
    };
    let chart = reference(&server.oci("charts/web"), "", "1.0.0");
    let error = fetcher().fetch(&chart, &access).await.unwrap_err();
    let reported = chain(&error);
    assert!(reported.contains(told), "{reported}");
    assert!(!reported.contains("canary"), "{reported}");
}

/// A registry with TLS names a token service without: passwords would go there in the clear.
#[tokio::test]
async fn a_token_service_without_tls_is_asked_only_by_a_registry_without() {
    let tokens = Server::plain(|_| answer(200, r#"{"token":"t"}"#)).await;
    let challenge = format!("Bearer realm=\"{}\"", tokens.url("/token"));
    let server = Server::tls(move |_| with(answer(401, ""), "www-authenticate", &challenge)).await;
    let access = Access {
        credentials: Credentials::new("joe", "secret"),
        ca: server.ca.clone(),
        ..Access::default()
    };
    let chart = reference(&server.oci("charts/web"), "", "1.0.0");
    let error = fetcher().fetch(&chart, &access).await.unwrap_err();
    let reported = chain(&error);
    assert!(
        reported.contains("is not reached by TLS, though the registry is"),
        "{reported}"
    );
    assert!(tokens.seen().is_empty(), "{:?}", tokens.paths());
}

#[tokio::test]
async fn basic_over_tls_and_redirected_blobs() {
    let storage = Server::plain(|_| answer(200, archive("1.0.0"))).await;
    let target = storage.url("/blob");
    let server = Server::tls(move |seen| match seen.authorization.as_deref() {
        Some("Basic am9lOnNlY3JldA==") if seen.path.contains("/blobs/") => {
            with(answer(307, ""), "location", &target)
        }
        Some("Basic am9lOnNlY3JldA==") => content(seen),
        _ => with(answer(401, ""), "www-authenticate", "Basic realm=\"r\""),
    })
    .await;
    let access = Access {
        credentials: Credentials::new("joe", "secret"),
        ca: server.ca.clone(),
        ..Access::default()
    };
    let chart = reference(&server.oci("charts/web"), "", "1.0.0");
    fetcher().fetch(&chart, &access).await.unwrap();
    assert!(
        storage
            .seen()
            .iter()
            .all(|seen| seen.authorization.is_none())
    );
    let error = fetcher()
        .fetch(
            &chart,
            &Access {
                credentials: None,
                ..access
            },
        )
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "Unauthorized");
}

#[tokio::test]
async fn damaged_blobs_are_noticed() {
    let server = Server::plain(|seen| match seen.path.contains("/blobs/") {
        true => answer(200, archive("evil")),
        false => content(seen),
    })
    .await;
    let chart = reference(&server.oci("charts/web"), "", "1.0.0");
    let error = fetcher().fetch(&chart, &plain()).await.unwrap_err();
    assert_eq!(error.reason(), "ChecksumMismatch");
}

#[tokio::test]
async fn other_artifacts_are_refused_in_helms_words() {
    let server = Server::plain(|seen| match seen.path.rsplit('/').next() {
        Some("1.0.0") => content(&Seen {
            path: "/v2/charts/web/manifests/image".into(),
            ..seen.clone()
        }),
        _ => content(&Seen {
            path: "/v2/charts/web/manifests/wrong".into(),
            ..seen.clone()
        }),
    })
    .await;
    let repo = server.oci("charts/web");
    let error = fetcher()
        .fetch(&reference(&repo, "", "1.0.0"), &plain())
        .await
        .unwrap_err();
    assert!(chain(&error).ends_with(&format!("could not load config with mediatype {CONFIG}")));
    let error = fetcher()
        .fetch(&reference(&repo, "", "1.1.0"), &plain())
        .await
        .unwrap_err();
    assert!(chain(&error).ends_with(&format!(
        "manifest does not contain a layer with mediatype {LAYER}"
    )));
}
