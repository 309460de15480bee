//! What is kept on disk: what it is good for after a restart, and whom it is given to.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chart::source::{Access, ChartRef, Credentials, DiskSettings, Fetcher, Logins, Settings};
use serde_json::json;
use tokio::time::Instant;

use super::registry::{content, plain};
use super::server::{Seen, Server, answer, with};
use super::{archive, chain, reference, settings, sha256};

fn kept_in(folder: &Path) -> Fetcher {
    Fetcher::new(Settings {
        disk: Some(DiskSettings {
            directory: folder.to_owned(),
            max_bytes: 16 << 20,
        }),
        retries: 0,
        ..settings()
    })
}

/// All files of a folder and those in it.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files
}

/// A repository and a registry in one, which know joe alone.
fn joes(seen: &Seen) -> http::Response<http_body_util::Full<hyper::body::Bytes>> {
    let is_joe = seen.authorization.as_deref() == Some("Basic am9lOmNhbmFyeS1wYXNzd29yZA==");
    match seen.path.split('?').next().unwrap_or_default() {
        _ if !is_joe => with(answer(401, ""), "www-authenticate", "Basic realm=\"r\""),
        "/index.yaml" if seen.if_none_match.as_deref() == Some("\"i\"") => answer(304, ""),
        "/index.yaml" => {
            let digest = sha256(&archive("listed"));
            let entry = json!([{ "name": "web", "version": "1.2.0", "urls": ["web.tgz"], "digest": digest }]);
            let signed = |urls: serde_json::Value| json!([{ "name": "signed", "version": "1.0.0", "urls": urls }]);
            let entries = json!({
                "web": entry,
                "api": entry,
                "signed": signed(json!(["web.tgz?private_token=canary-token"])),
                "mirrored": signed(json!(["web.tgz", "https://canary-user@mirror.example/web.tgz"])),
            });
            let index = json!({ "apiVersion": "v1", "entries": entries });
            with(answer(200, index.to_string()), "etag", "\"i\"")
        }
        "/web.tgz" => answer(200, archive("listed")),
        "/plain.tgz" => answer(200, archive("plain")),
        "/plain.tar" => answer(200, plain_tar()),
        _ => content(seen),
    }
}

/// An archive that nobody has compressed.
fn plain_tar() -> Vec<u8> {
    let mut tar = vec![0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    tar
}

fn joe(access: Access) -> Access {
    Access {
        credentials: Credentials::new("joe", "canary-password"),
        ..access
    }
}

fn charts(server: &Server) -> Vec<(ChartRef, Access)> {
    let oci = server.oci("charts/web");
    vec![
        (reference(&server.url(""), "web", "^1"), Access::default()),
        (reference(&server.url(""), "api", ""), Access::default()),
        (
            reference("", &server.url("/plain.tgz?token=canary-token"), ""),
            Access::default(),
        ),
        (reference(&oci, "", "1.0.0"), plain()),
        (reference(&oci, "", "~1.9.x"), plain()),
        (reference(&format!("{oci}:1.9.0"), "", ""), plain()),
        (
            reference("", &server.url("/plain.tar"), ""),
            Access::default(),
        ),
    ]
}

/// Fetches charts for joe, each with a memory of its own.
async fn keep(charts: &[(ChartRef, Access)], folder: &Path) {
    for (chart, access) in charts {
        let access = joe(access.clone());
        kept_in(folder).fetch(chart, &access).await.unwrap();
    }
}

#[tokio::test]
async fn after_a_restart_charts_are_there_while_no_source_answers() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::plain(joes).await;
    let charts = charts(&server);
    let mut digests = Vec::new();
    for (chart, access) in &charts {
        let fetched = kept_in(folder.path())
            .fetch(chart, &joe(access.clone()))
            .await;
        let fetched = fetched.unwrap();
        assert!(!fetched.is_stale);
        digests.push(fetched.digest);
    }
    drop(server);
    for since in [None, Some(Instant::now())] {
        let fetcher = kept_in(folder.path());
        for ((chart, access), digest) in charts.iter().zip(&digests) {
            let access = joe(access.clone());
            let fetched = fetcher.fetch_since(chart, &access, since).await.unwrap();
            assert_eq!(
                (&fetched.digest, fetched.is_stale),
                (digest, true),
                "{chart}"
            );
        }
    }
    // What an old index does not have may be there by now.
    for (chart, version) in [("web", "9.9.9"), ("none", "")] {
        let chart = reference(&charts[0].0.repo, chart, version);
        let error = kept_in(folder.path())
            .fetch(&chart, &joe(Access::default()))
            .await;
        assert_eq!(error.unwrap_err().reason(), "Unreachable", "{chart}");
    }
    // Not for those who never fetched it so.
    for (chart, access) in &charts {
        for other in [
            access.clone(),
            Access {
                insecure: true,
                ..joe(access.clone())
            },
        ] {
            let error = kept_in(folder.path())
                .fetch(chart, &other)
                .await
                .unwrap_err();
            assert_eq!(error.reason(), "Unreachable", "{chart}");
        }
    }
}

#[tokio::test]
async fn after_a_restart_nothing_is_downloaded_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::plain(joes).await;
    let charts = charts(&server);
    keep(&charts, folder.path()).await;
    let before = server.seen().len();
    let fetcher = kept_in(folder.path());
    for at in [0, 3] {
        let (chart, access) = &charts[at];
        fetcher.fetch(chart, &joe(access.clone())).await.unwrap();
    }
    let after = &server.seen()[before..];
    assert!(
        after[0].if_none_match.is_some() && after.len() == 3,
        "{after:?}"
    );
    assert!(
        after[1..]
            .iter()
            .all(|seen| seen.path.ends_with("/manifests/1.0.0")),
        "{after:?}"
    );
    // By digest nothing is asked at all.
    let digest = sha256(&archive("listed"));
    let named = reference(
        "",
        &server.url(&format!("/web.tgz?checksum=sha256:{digest}")),
        "",
    );
    kept_in(folder.path())
        .fetch(&named, &joe(Access::default()))
        .await
        .unwrap();
    let before = server.seen().len();
    let fetched = kept_in(folder.path())
        .fetch(&named, &joe(Access::default()))
        .await
        .unwrap();
    assert!(!fetched.is_stale && server.seen().len() == before);
}

#[tokio::test]
async fn a_source_that_answers_has_the_last_word() {
    let folder = tempfile::tempdir().unwrap();
    let status = Arc::new(std::sync::atomic::AtomicU16::new(200));
    let now = Arc::clone(&status);
    let server = Server::plain(
        move |seen| match now.load(std::sync::atomic::Ordering::SeqCst) {
            200 => joes(seen),
            other => answer(other, ""),
        },
    )
    .await;
    let charts = charts(&server);
    keep(&charts, folder.path()).await;
    for (code, is_error) in [
        (401, true),
        (403, true),
        (404, true),
        (500, false),
        (429, false),
    ] {
        status.store(code, std::sync::atomic::Ordering::SeqCst);
        for (chart, access) in &charts {
            let fetched = kept_in(folder.path())
                .fetch(chart, &joe(access.clone()))
                .await;
            assert_eq!(fetched.is_err(), is_error, "{code} {chart}");
        }
    }
}

#[tokio::test]
async fn a_digest_alone_gives_no_access_to_cached_content() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::plain(joes).await;
    let fetcher = kept_in(folder.path());
    for (chart, access) in &charts(&server) {
        fetcher.fetch(chart, &joe(access.clone())).await.unwrap();
    }
    let digest = sha256(&archive("listed"));
    let private = server.url("/web.tgz");
    let evil = Server::plain(move |seen| match seen.path.as_str() {
        "/index.yaml" => {
            let entry = |url: &str| json!([{ "name": "web", "version": "1.2.0", "urls": [url], "digest": digest }]);
            let entries = json!({ "own": entry("own.tgz"), "far": entry(&private) });
            answer(200, json!({ "apiVersion": "v1", "entries": entries }).to_string())
        }
        _ => answer(200, archive("evil")),
    })
    .await;
    for (chart, reason) in [("own", "ChecksumMismatch"), ("far", "Unauthorized")] {
        let error = fetcher
            .fetch(&reference(&evil.url(""), chart, ""), &Access::default())
            .await;
        assert_eq!(error.unwrap_err().reason(), reason);
    }
    // The same by a manifest of another registry.
    let layer = format!("sha256:{}", sha256(&archive("1.0.0")));
    let evil = Server::plain(move |seen| match seen.path.contains("/manifests/") {
        true => answer(200, json!({
            "config": { "mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": layer, "size": 1 },
            "layers": [{ "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": layer, "size": 9 }],
        }).to_string()),
        false => answer(404, ""),
    })
    .await;
    let error = fetcher
        .fetch(&reference(&evil.oci("charts/web"), "", "1.0.0"), &plain())
        .await;
    assert_eq!(error.unwrap_err().reason(), "NotFound");
}

#[tokio::test]
async fn damage_is_noticed_and_no_file_has_a_credential() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::plain(joes).await;
    let login = json!({ "auths": { server.address.to_string(): { "username": "joe", "password": "canary-password" } } });
    let login = Logins::from_docker_config(login.to_string().as_bytes()).unwrap();
    for (chart, access) in &charts(&server) {
        kept_in(folder.path())
            .fetch(chart, &joe(access.clone()))
            .await
            .unwrap();
        let access = Access {
            logins: Some(Arc::new(login.clone())),
            ..access.clone()
        };
        kept_in(folder.path()).fetch(chart, &access).await.unwrap();
    }
    let files = files(folder.path());
    assert!(files.len() > 8, "{files:?}");
    for file in &files {
        let text = String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned();
        let encoded = golib::base64::encode("joe:canary-password");
        assert!(
            !text.contains("canary") && !text.contains(&encoded),
            "{file:?}"
        );
        if file
            .parent()
            .is_some_and(|folder| folder.ends_with("blobs"))
        {
            std::fs::write(file, b"damaged").unwrap();
        }
    }
    let before = server.seen().len();
    for (chart, access) in &charts(&server) {
        kept_in(folder.path())
            .fetch(chart, &joe(access.clone()))
            .await
            .unwrap();
    }
    let bodies = server.paths()[before..]
        .iter()
        .filter(|path| path.ends_with(".tgz") || path.contains("/blobs/") || path.contains("plain"))
        .count();
    assert!(bodies >= 4, "{:?}", server.paths());
}

/// Whatever a key of a query is called, what it says may open something.
#[tokio::test]
async fn addresses_with_a_user_or_a_query_are_not_written_down() {
    for chart in ["signed", "mirrored"] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::plain(joes).await;
        let chart = reference(&server.url(""), chart, "");
        let fetched = kept_in(folder.path())
            .fetch(&chart, &joe(Access::default()))
            .await
            .unwrap();
        assert!(
            !fetched.url.to_string().contains("canary"),
            "{}",
            fetched.url
        );
        for file in files(folder.path()) {
            let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
            assert!(!text.contains("canary"), "{file:?}: {text}");
        }
    }
}

/// Notes say which archive a source gave: whoever writes into the folder does not get another one deployed by that.
#[tokio::test]
async fn a_forged_cache_note_does_not_change_which_archive_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::plain(joes).await;
    let oci = server.oci("charts/web");
    let charts = [
        (reference(&oci, "", "1.0.0"), joe(plain())),
        (reference(&oci, "", "1.9.0"), joe(plain())),
        (
            reference(&server.url(""), "web", "^1"),
            joe(Access::default()),
        ),
    ];
    let mut digests = Vec::new();
    for (chart, access) in &charts {
        let fetched = kept_in(folder.path()).fetch(chart, access).await.unwrap();
        digests.push(fetched.digest);
    }
    drop(server);
    let mut notes = Vec::new();
    for path in files(folder.path()) {
        let note = std::fs::read_to_string(&path).unwrap_or_default();
        let note: serde_json::Value = serde_json::from_str(&note).unwrap_or_default();
        if note["blob"].is_string() {
            notes.push((path, note));
        }
    }
    let of = |version: &str| {
        let is_so = |(_, note): &&(PathBuf, serde_json::Value)| {
            note["version"] == version && note["url"].as_str().unwrap().contains(version)
        };
        notes.iter().find(is_so).unwrap().1.clone()
    };
    let other = of("1.9.0");
    let all_there = async |reported: &str| {
        let mut there = Vec::new();
        for ((chart, access), digest) in charts.iter().zip(&digests) {
            match kept_in(folder.path()).fetch(chart, access).await {
                Ok(fetched) => {
                    assert_eq!(&fetched.digest, digest, "{reported}");
                    there.push(true);
                }
                Err(error) => {
                    assert_eq!(error.reason(), "Unreachable", "{reported}");
                    there.push(false);
                }
            }
        }
        there
    };
    assert_eq!(all_there("as it was").await, [true, true, true]);
    // Another archive, digest, manifest, proof or source in the notes of the first; another archive in that of the last.
    let fields: [&[&str]; 8] = [
        &["blob", "bytes"],
        &["blob", "bytes", "digest"],
        &["blob", "bytes", "digest", "manifests"],
        &["manifest"],
        &["manifests"],
        &["url"],
        &["version"],
        &["blob", "bytes", "digest", "manifest", "manifests", "url"],
    ];
    for fields in fields {
        for (path, note) in &notes {
            let mut note = note.clone();
            if note["version"] != "1.9.0" {
                for field in fields {
                    note[*field] = other[*field].clone();
                }
            }
            std::fs::write(path, note.to_string()).unwrap();
        }
        let there = all_there(&fields.join(" ")).await;
        assert!(!there[0] && there[1], "{fields:?} {there:?}");
    }
}

#[tokio::test]
async fn many_processes_use_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::plain(joes).await;
    let charts = charts(&server);
    let fetchers: Vec<_> = (0..4).map(|_| kept_in(folder.path())).collect();
    let fetches = fetchers.iter().flat_map(|fetcher| {
        let all = charts.iter().cycle().take(20);
        all.map(
            move |(chart, access)| async move { fetcher.fetch(chart, &joe(access.clone())).await },
        )
    });
    for fetched in futures_util::future::join_all(fetches).await {
        assert!(fetched.is_ok(), "{}", chain(&fetched.unwrap_err()));
    }
    drop(server);
    keep(&charts, folder.path()).await;
}

const ENTRY: &str = "{name: web7, version: 1.0.0, urls: [a.tgz]}";

/// An index in the form that helm writes, of so many charts with ten versions each.
fn large_index(charts: usize) -> String {
    let mut text = "apiVersion: v1\nentries:\n".to_owned();
    for chart in 0..charts {
        text.push_str(&format!("  web{chart}:\n"));
        for version in (0..10).rev() {
            text.push_str(&format!(
                "  - apiVersion: v2\n    created: \"2026-01-01T00:00:00Z\"\n    description: {}\n    digest: {}\n    name: web{chart}\n    urls:\n    - charts/web{chart}-1.{version}.0.tgz\n    version: 1.{version}.0\n",
                "words ".repeat(40), sha256(&archive("large")),
            ));
        }
    }
    text + "generated: \"2026-01-01T00:00:00Z\"\n"
}

#[tokio::test]
async fn a_large_index_is_kept_for_the_charts_that_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let index = large_index(3000);
    assert!(index.len() > 12 << 20);
    let late = large_index(1200).replace("generated:", &format!("  zebra: [{ENTRY}]\ngenerated:"));
    assert!(late.len() > 9 << 19);
    let server = Server::plain(move |seen| match seen.path.as_str() {
        "/index.yaml" if seen.if_none_match.is_some() => answer(304, ""),
        "/index.yaml" => with(answer(200, index.clone()), "etag", "\"i\""),
        // Forms that only make sense as a whole: the one says so early, the other late.
        "/early/index.yaml" => {
            let padding = "x".repeat(5 << 20);
            answer(
                200,
                format!("{{apiVersion: v1, entries: {{ web7: [{ENTRY}] }}}} #{padding}"),
            )
        }
        "/late/index.yaml" => answer(200, late.clone()),
        _ => answer(200, archive("large")),
    })
    .await;
    let fetcher = kept_in(folder.path());
    let (fetcher, server) = (&fetcher, &server);
    let fetch = |chart: String| async move {
        fetcher
            .fetch(
                &reference(&server.url(""), &chart, "~1.5"),
                &Access::default(),
            )
            .await
    };
    let many = (0..30).map(|chart| fetch(format!("web{}", chart * 90)));
    for fetched in futures_util::future::join_all(many).await {
        assert_eq!(fetched.unwrap().version, "1.5.0");
    }
    let indexes = || {
        server
            .paths()
            .iter()
            .filter(|path| *path == "/index.yaml")
            .count()
    };
    assert!(indexes() <= 2, "{}", indexes());
    let error = fetch("web".to_owned()).await.unwrap_err();
    assert_eq!(error.reason(), "UnknownChart");
    let before = indexes();
    fetch("web90".to_owned()).await.unwrap();
    assert!(indexes() <= before + 1);
    let asked = |path: &str| server.paths().iter().filter(|seen| *seen == path).count();
    for (form, chart, at_first) in [("early", "web7", 1), ("late", "web9", 2)] {
        let chart = reference(&server.url(&format!("/{form}")), chart, "");
        for times in 0..2 {
            let since = Some(Instant::now());
            let anybody = Access::default();
            let fetched = fetcher.fetch_since(&chart, &anybody, since).await;
            assert!(!fetched.unwrap().is_stale);
            assert_eq!(
                asked(&format!("/{form}/index.yaml")),
                at_first + times,
                "{form}"
            );
        }
    }
}
