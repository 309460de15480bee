//! HTTP repositories and plain archives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chart::source::{Access, Credentials, Fetcher, SafeUrl, Settings, Strictness, TransportError};
use futures_util::future::join_all;
use rstest::rstest;
use serde_json::json;

use super::server::{Server, answer, with};
use super::{archive, chain, fetcher, reference, settings, sha256};

fn index(digest: &str) -> String {
    let entry = |version: &str, digest: &str| {
        let url = format!("web-{version}.tgz");
        json!({"name": "web", "version": version, "urls": [url], "digest": digest})
    };
    json!({"apiVersion": "v1", "entries": {
        "web": [entry("1.0.0", ""), entry("1.2.0", digest), entry("2.0.0-rc.1", "")],
        "nourl": [{"name": "nourl", "version": "1.0.0", "urls": []}],
    }})
    .to_string()
}

/// An index of charts with one version each.
fn simple_index(charts: &[(&str, &str, &str)]) -> String {
    let entries: serde_json::Map<_, _> = charts
        .iter()
        .map(|(name, version, url)| {
            let entry = json!({"name": name, "version": version, "urls": [url]});
            ((*name).to_owned(), json!([entry]))
        })
        .collect();
    json!({"apiVersion": "v1", "entries": entries}).to_string()
}

/// A repository below `/charts` with the archives of [`index`].
async fn repository() -> Server {
    Server::plain(|seen| match seen.path.as_str() {
        "/charts/index.yaml" => {
            if seen.if_none_match.as_deref() == Some("\"i1\"") {
                return answer(304, "");
            }
            with(
                answer(200, index(&sha256(&archive("web-1.2.0")))),
                "etag",
                "\"i1\"",
            )
        }
        path if path.ends_with(".tgz") => {
            let name = path.trim_start_matches("/charts/").trim_end_matches(".tgz");
            answer(200, archive(name))
        }
        _ => answer(404, "nothing here"),
    })
    .await
}

#[tokio::test]
async fn picks_and_downloads() {
    let server = repository().await;
    let repo = server.url("/charts");
    for (version, want) in [
        ("", "1.2.0"),
        ("1.0.0", "1.0.0"),
        ("<1.2", "1.0.0"),
        ("^2-0", "2.0.0-rc.1"),
    ] {
        let chart = reference(&repo, "web", version);
        let fetched = fetcher().fetch(&chart, &Access::default()).await.unwrap();
        assert_eq!(fetched.version, want, "{version}");
        assert_eq!(fetched.bytes, archive(&format!("web-{want}")));
        assert_eq!(fetched.digest, format!("sha256:{}", sha256(&fetched.bytes)));
        assert_eq!(fetched.url.as_str(), format!("{repo}/web-{want}.tgz"));
    }
}

#[tokio::test]
async fn fifty_ask_and_one_downloads() {
    let server = repository().await;
    let (fetcher, access) = (fetcher(), Access::default());
    let chart = reference(&server.url("/charts"), "web", "^1");
    let all = join_all((0..50).map(|_| fetcher.fetch(&chart, &access))).await;
    assert!(all.iter().all(|fetched| fetched.is_ok()));
    // Later ones, also by another constraint, find it remembered by its digest.
    fetcher
        .fetch(&reference(&server.url("/charts"), "web", ">=1.1"), &access)
        .await
        .unwrap();
    assert_eq!(
        server.paths(),
        ["/charts/index.yaml", "/charts/web-1.2.0.tgz"]
    );
}

#[tokio::test]
async fn an_old_index_is_asked_for_conditionally() {
    let server = repository().await;
    let fetcher = Fetcher::new(Settings {
        fresh_for: Duration::ZERO,
        ..settings()
    });
    let chart = reference(&server.url("/charts"), "web", "1.2.0");
    for _ in 0..3 {
        fetcher.fetch(&chart, &Access::default()).await.unwrap();
    }
    let conditional: Vec<_> = server
        .seen()
        .into_iter()
        .filter_map(|s| s.if_none_match)
        .collect();
    assert_eq!(conditional, ["\"i1\"", "\"i1\""]);
    assert_eq!(
        server
            .paths()
            .iter()
            .filter(|path| path.ends_with(".tgz"))
            .count(),
        1
    );
}

/// A header may have hundreds of kilobytes, and is none of what an entry of the cache is expected to take.
#[tokio::test]
async fn a_long_validator_is_not_remembered() {
    for (length, is_kept) in [(1 << 10, true), ((1 << 10) + 1, false), (200 << 10, false)] {
        let tag = format!("\"{}\"", "x".repeat(length - 2));
        let sent = tag.clone();
        let server = Server::plain(move |seen| match seen.path.as_str() {
            "/index.yaml" => {
                let index = simple_index(&[("web", "1.0.0", "web.tgz")]);
                with(answer(200, index), "etag", &sent)
            }
            _ => with(answer(200, archive("web")), "etag", &sent),
        })
        .await;
        let fetcher = Fetcher::new(Settings {
            fresh_for: Duration::ZERO,
            ..settings()
        });
        let chart = reference(&server.url(""), "web", "1.0.0");
        for _ in 0..2 {
            fetcher.fetch(&chart, &Access::default()).await.unwrap();
        }
        let shown: Vec<_> = server.seen().into_iter().map(|s| s.if_none_match).collect();
        let kept = is_kept.then_some(tag);
        assert_eq!(shown, [None, None, kept.clone(), kept], "{length}");
    }
}

#[tokio::test]
async fn a_version_missing_from_a_remembered_index_is_looked_up_again() {
    let published = Arc::new(AtomicUsize::new(0));
    let switch = Arc::clone(&published);
    let server = Server::plain(move |seen| match seen.path.as_str() {
        "/index.yaml" => {
            let version = if switch.load(Ordering::SeqCst) == 0 {
                "1.0.0"
            } else {
                "1.1.0"
            };
            answer(200, simple_index(&[("web", version, "web.tgz")]))
        }
        _ => answer(200, archive("web")),
    })
    .await;
    let fetcher = fetcher();
    let chart = reference(&server.url(""), "web", "1.1.0");
    let error = fetcher.fetch(&chart, &Access::default()).await.unwrap_err();
    assert_eq!(
        chain(&error),
        format!(
            "no chart version found for web-1.1.0 (newest seen: 1.0.0) in {}/",
            server.url("")
        )
    );
    published.store(1, Ordering::SeqCst);
    let fetched = fetcher.fetch(&chart, &Access::default()).await.unwrap();
    assert_eq!(fetched.version, "1.1.0");
}

#[tokio::test]
async fn a_bundle_without_content_names_what_is_missing() {
    let server = repository().await;
    let repo = server.url("/charts");
    let cases = [
        (
            "nope",
            "",
            format!("no chart name found: \"nope\" in {repo}"),
            "UnknownChart",
        ),
        (
            "web",
            "^9",
            format!(
                "no chart version found for web-^9 (newest seen: 2.0.0-rc.1, 1.2.0, 1.0.0) in {repo}"
            ),
            "NoMatchingVersion",
        ),
        (
            "web",
            "latest",
            format!("improper constraint: \"latest\" in {repo}"),
            "InvalidVersion",
        ),
        (
            "nourl",
            "",
            format!("no URLs found for chart nourl 1.0.0 at {repo}"),
            "InvalidIndex",
        ),
    ];
    for (chart, version, text, reason) in cases {
        let chart = reference(&repo, chart, version);
        let error = fetcher()
            .fetch(&chart, &Access::default())
            .await
            .unwrap_err();
        assert_eq!((chain(&error), error.reason()), (text, reason));
    }
    let chart = reference(&server.url("/elsewhere"), "web", "");
    let error = fetcher()
        .fetch(&chart, &Access::default())
        .await
        .unwrap_err();
    assert_eq!(
        chain(&error),
        format!(
            "failed to read helm repo from {}/index.yaml, error code: 404",
            server.url("/elsewhere")
        )
    );
}

#[tokio::test]
async fn a_download_is_checked_against_its_digest() {
    let server = Server::plain(|seen| match seen.path.as_str() {
        "/index.yaml" => answer(200, index(&"0".repeat(64))),
        "/cut.tgz" => {
            let whole = archive("web");
            answer(200, whole[..whole.len() - 4].to_vec())
        }
        _ => answer(200, archive("web")),
    })
    .await;
    let chart = reference(&server.url(""), "web", "1.2.0");
    let error = fetcher()
        .fetch(&chart, &Access::default())
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "ChecksumMismatch");
    let cut = reference("", &server.url("/cut.tgz"), "");
    let error = fetcher().fetch(&cut, &Access::default()).await.unwrap_err();
    assert_eq!(
        chain(&error),
        format!(
            "chart archive \"{}\" is damaged: it is truncated after {} bytes",
            server.url("/cut.tgz"),
            archive("web").len() - 4
        )
    );
}

#[tokio::test]
async fn plain_archives_take_a_checksum() {
    let server = Server::plain(|seen| match seen.path.as_str() {
        "/web.tgz?x=1" => answer(200, archive("web")),
        path => answer(500, path.to_owned()),
    })
    .await;
    let good = format!(
        "{}&checksum=sha256:{}",
        server.url("/web.tgz?x=1"),
        sha256(&archive("web"))
    );
    let fetched = fetcher()
        .fetch(&reference("", &good, ""), &Access::default())
        .await
        .unwrap();
    assert_eq!(
        (fetched.bytes.to_vec(), fetched.version.as_str()),
        (archive("web"), "")
    );
    let bad = format!(
        "{}&checksum=md5:{}",
        server.url("/web.tgz?x=1"),
        "0".repeat(32)
    );
    let error = fetcher()
        .fetch(&reference("", &bad, ""), &Access::default())
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "ChecksumMismatch");
}

#[tokio::test]
async fn credentials_stay_with_their_origin() {
    let elsewhere = Server::plain(|_| answer(200, archive("web"))).await;
    let target = elsewhere.url("/web.tgz");
    let own = Server::plain(move |seen| match seen.path.as_str() {
        _ if seen.authorization.as_deref() != Some("Basic am9lOnNlY3JldA==") => answer(401, ""),
        "/index.yaml" => {
            let charts = [
                ("far", "1.0.0", target.as_str()),
                ("moved", "1.0.0", "moved.tgz"),
                ("near", "1.0.0", "near.tgz"),
            ];
            answer(200, simple_index(&charts))
        }
        "/moved.tgz" => with(answer(302, ""), "location", &target),
        _ => answer(200, archive("near")),
    })
    .await;
    let access = Access {
        credentials: Credentials::new("joe", "secret"),
        ..Access::default()
    };
    for chart in ["near", "far", "moved"] {
        fetcher()
            .fetch(&reference(&own.url(""), chart, ""), &access)
            .await
            .unwrap();
    }
    assert_eq!(elsewhere.seen().len(), 2);
    assert!(
        elsewhere
            .seen()
            .iter()
            .all(|seen| seen.authorization.is_none())
    );

    let wrong = Access {
        credentials: Credentials::new("joe", "wrong"),
        ..Access::default()
    };
    let error = fetcher()
        .fetch(&reference(&own.url(""), "near", ""), &wrong)
        .await
        .unwrap_err();
    assert_eq!(
        chain(&error),
        format!(
            "failed to read helm repo from {}/index.yaml, error code: 401 (the credentials were refused)",
            own.url("")
        )
    );
    let chart = reference(&own.url(""), "near", "");
    let error = fetcher()
        .fetch(&chart, &Access::default())
        .await
        .unwrap_err();
    assert!(chain(&error).ends_with("error code: 401 (no credentials were sent)"));
}

/// A server that tells a tenant the operator's login: in the repository's index, or by where it leads.
#[rstest]
#[case::a_version("9.0.0-canary-1", "", "^1", "newest seen: 9.0.0-**REDACTED**)")]
#[case::a_version_without_address("9.0.0-canary-1", "", "9.0.0-0 - 10", "**REDACTED**")]
#[case::a_time("1.0.0", "generated: canary-1\n", "", "failed to load the index")]
#[case::a_field("1.0.0", "canary-1: x\ngenerated: canary-1\n", "", "failed to load the index")]
#[case::no_yaml("1.0.0", "canary-1: *canary-1\n", "", "failed to load the index")]
#[tokio::test]
async fn credentials_echoed_in_an_index_are_redacted(
    #[case] version: &'static str,
    #[case] more: &'static str,
    #[case] asked: &str,
    #[case] told: &str,
    #[values(Strictness::Fleet, Strictness::Helm)] strictness: Strictness,
) {
    let server = Server::plain(move |_| {
        let index = format!(
            "apiVersion: v1\n{more}entries:\n  web:\n  - {{apiVersion: v1, name: web, version: {version}}}\n"
        );
        answer(200, index)
    });
    let server = server.await;
    let access = Access {
        credentials: Credentials::new("joe", "canary-1"),
        ..Access::default()
    };
    let fetcher = Fetcher::new(Settings {
        strictness,
        ..settings()
    });
    let chart = reference(&server.url(""), "web", asked);
    let error = fetcher.fetch(&chart, &access).await.unwrap_err();
    let reported = chain(&error);
    assert!(!reported.contains("canary"), "{reported}");
    assert!(
        reported.contains(told) || more.contains("x\n"),
        "{reported}"
    );
}

#[rstest]
#[case::password("joe:canary%2D1@", "")]
#[case::user("canary-1@", "")]
#[case::query("", "?private_token=canary-1")]
#[case::escaped("", "?private_token=canary%2D1")]
#[tokio::test]
async fn what_an_address_has_of_credentials_is_redacted_in_its_answers(
    #[case] user: &str,
    #[case] query: &str,
) {
    let pair = golib::base64::encode("joe:canary-1");
    for secret in ["canary-1", &pair, "canary%2D1"] {
        // Only what is sent so is told back.
        let is_sent = match secret {
            "canary-1" => true,
            "canary%2D1" => user.contains(secret) || query.contains(secret),
            _ => user.starts_with("joe"),
        };
        if !is_sent {
            continue;
        }
        let secret = secret.to_owned();
        let told = secret.clone();
        let server = Server::plain(move |_| answer(200, format!("generated: {secret}\n"))).await;
        let repo = format!("http://{user}{}{query}", server.address);
        let chart = reference(&repo, "web", "");
        let error = fetcher().fetch(&chart, &Access::default()).await;
        let reported = chain(&error.unwrap_err());
        assert!(reported.contains("**REDACTED**"), "{reported}");
        assert!(!reported.contains(&told), "{reported}");
    }
}

#[rstest]
#[case::a_place("https://cdn.invalid/canary-1/web.tgz")]
#[case::a_host("https://canary-1.invalid/web.tgz")]
#[case::a_kind("canary-1://cdn.invalid/web.tgz")]
#[case::a_registry("oci://cdn.invalid/canary-1/")]
#[case::no_registry("oci://cdn.invalid/Canary-1/")]
#[tokio::test]
async fn credentials_echoed_in_an_address_of_an_index_are_redacted(#[case] url: &'static str) {
    let index = simple_index(&[("web", "1.0.0", url)]);
    let server = Server::plain(move |_| answer(200, index.clone())).await;
    let access = Access {
        credentials: Credentials::new("joe", "canary-1"),
        ..Access::default()
    };
    let chart = reference(&server.url(""), "web", "");
    let error = fetcher().fetch(&chart, &access).await.unwrap_err();
    let reported = chain(&error);
    assert!(!reported.to_lowercase().contains("canary"), "{reported}");
}

#[tokio::test]
async fn credentials_echoed_in_a_redirect_are_redacted() {
    let target = "https://canary-1.invalid/";
    let server = Server::plain(move |_| with(answer(302, ""), "location", target)).await;
    let access = Access {
        credentials: Credentials::new("joe", "Canary-1"),
        ..Access::default()
    };
    for chart in [
        reference(&server.url(""), "web", ""),
        reference("", &server.url("/web.tgz"), ""),
    ] {
        let error = fetcher().fetch(&chart, &access).await.unwrap_err();
        let reported = chain(&error);
        assert!(
            reported.contains("lookup **REDACTED**.invalid"),
            "{reported}"
        );
        assert!(!reported.contains("canary"), "{reported}");
    }
}

#[tokio::test]
async fn a_cached_chart_is_not_served_to_other_credentials() {
    let server = Server::plain(|seen| match seen.authorization {
        Some(_) => answer(200, archive("web")),
        None => answer(403, ""),
    })
    .await;
    let (fetcher, chart) = (fetcher(), reference("", &server.url("/web.tgz"), ""));
    let access = Access {
        credentials: Credentials::new("joe", "secret"),
        ..Access::default()
    };
    fetcher.fetch(&chart, &access).await.unwrap();
    let error = fetcher.fetch(&chart, &Access::default()).await.unwrap_err();
    assert_eq!(error.reason(), "Unauthorized");
}

#[tokio::test]
async fn a_server_error_is_retried() {
    let count = AtomicUsize::new(0);
    let server = Server::plain(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => answer(503, ""),
        1 => with(answer(429, ""), "retry-after", "0"),
        _ => answer(200, archive("web")),
    })
    .await;
    let chart = reference("", &server.url("/web.tgz"), "");
    fetcher().fetch(&chart, &Access::default()).await.unwrap();
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn retries_end_with_the_last_answer() {
    let server = Server::plain(|_| answer(502, "")).await;
    let chart = reference("", &server.url("/web.tgz"), "");
    let error = fetcher()
        .fetch(&chart, &Access::default())
        .await
        .unwrap_err();
    assert!(error.is_retryable());
    assert_eq!(
        chain(&error),
        format!(
            "downloading \"{}\": unexpected status 502",
            server.url("/web.tgz")
        )
    );
    assert_eq!(server.seen().len(), 3);
    let asleep = with(answer(503, ""), "retry-after", "3600");
    let server = Server::plain(move |_| asleep.clone()).await;
    let chart = reference("", &server.url("/web.tgz"), "");
    fetcher()
        .fetch(&chart, &Access::default())
        .await
        .unwrap_err();
    assert_eq!(server.seen().len(), 1, "an hour is not waited for");
}

#[tokio::test]
async fn redirects_end() {
    let server = Server::plain(|seen| with(answer(302, ""), "location", &seen.path)).await;
    let chart = reference("", &server.url("/web.tgz"), "");
    let error = fetcher()
        .fetch(&chart, &Access::default())
        .await
        .unwrap_err();
    assert!(
        chain(&error).contains("redirect: too many redirects"),
        "{}",
        chain(&error)
    );
    assert_eq!(server.seen().len(), 11);
}

#[tokio::test]
async fn size_is_bounded() {
    let server = Server::plain(|_| answer(200, vec![0; 5000])).await;
    let fetcher = Fetcher::new(Settings {
        max_archive_bytes: 4000,
        ..settings()
    });
    let chart = reference("", &server.url("/web.tgz"), "");
    let error = fetcher.fetch(&chart, &Access::default()).await.unwrap_err();
    assert_eq!(error.reason(), "TooLarge");
}

/// What is held up by other downloads is not given up.
#[tokio::test]
async fn waiting_for_memory_is_not_the_servers_delay() {
    let server = Server::plain(|_| answer(200, vec![7; 1 << 20])).await;
    let settings = Settings {
        timeout: Duration::from_millis(500),
        ..settings()
    };
    let others = settings.memory.reserve(64 << 20).await;
    let fetcher = Fetcher::new(settings);
    let url = SafeUrl::parse(&format!("http://{}/values.yaml", server.address)).unwrap();
    let access = Access::default();
    let fetched = fetcher.get(&url, &access);
    tokio::pin!(fetched);
    let longer = tokio::time::sleep(Duration::from_secs(1));
    tokio::select! {
        fetched = &mut fetched => panic!("{fetched:?}"),
        () = longer => {}
    }
    drop(others);
    assert_eq!(fetched.await.unwrap().len(), 1 << 20);
}

#[tokio::test]
async fn a_server_that_never_answers_times_out() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/web.tgz", listener.local_addr().unwrap());
    let fetcher = Fetcher::new(Settings {
        timeout: Duration::from_millis(50),
        ..settings()
    });
    let error = fetcher
        .fetch(&reference("", &url, ""), &Access::default())
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "Timeout");
    assert!(
        chain(&error).ends_with("no complete answer within 0.05 s"),
        "{}",
        chain(&error)
    );
}

#[tokio::test]
async fn a_refused_connection_is_an_unreachable_source() {
    // Bound, so that no other test gets the port, and not listening.
    let refusing = tokio::net::TcpSocket::new_v4().unwrap();
    refusing.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let repo = format!("http://{}", refusing.local_addr().unwrap());
    let error = fetcher()
        .fetch(&reference(&repo, "web", ""), &Access::default())
        .await
        .unwrap_err();
    assert_eq!(
        (error.reason(), error.is_retryable()),
        ("Unreachable", true)
    );
    assert!(
        chain(&error).contains("Connection refused"),
        "{}",
        chain(&error)
    );
    let chart = reference("https://no-such-host.invalid/charts", "web", "");
    let error = fetcher()
        .fetch(&chart, &Access::default())
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "UnknownHost");
    assert!(
        chain(&error).starts_with(
            "failed to fetch \"https://no-such-host.invalid/charts/index.yaml\": \
             lookup no-such-host.invalid: no such host"
        ),
        "{}",
        chain(&error)
    );
}

#[tokio::test]
async fn trust_is_chosen_per_access() {
    let server = Server::tls(|_| answer(200, archive("web"))).await;
    let chart = reference("", &server.url("/web.tgz"), "");
    let fetcher = fetcher();
    let error = fetcher.fetch(&chart, &Access::default()).await.unwrap_err();
    assert_eq!(error.reason(), "UnknownIssuer", "{}", chain(&error));
    assert!(
        chain(&error).ends_with("(is a private CA missing?)"),
        "{}",
        chain(&error)
    );
    let bundled = Access {
        ca: server.ca.clone(),
        ..Access::default()
    };
    fetcher.fetch(&chart, &bundled).await.unwrap();
    fetcher
        .fetch(
            &chart,
            &Access {
                insecure: true,
                ..Access::default()
            },
        )
        .await
        .unwrap();
    let by_proxy_bundle = Fetcher::new(Settings {
        proxy_ca: server.ca.clone(),
        ..settings()
    });
    by_proxy_bundle
        .fetch(&chart, &Access::default())
        .await
        .unwrap();
    let other_name = format!("https://127.0.0.1:{}/web.tgz", server.address.port());
    let error = fetcher
        .fetch(&reference("", &other_name, ""), &bundled)
        .await
        .unwrap_err();
    assert!(
        matches!(
            &error,
            chart::source::FetchError::Transport {
                source: TransportError::Tls { .. },
                ..
            }
        ),
        "{}",
        chain(&error)
    );
}
