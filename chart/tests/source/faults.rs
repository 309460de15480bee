//! What goes wrong on the way: the right word for it, the right number of attempts, and never half of anything.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chart::source::{Access, Credentials, DiskSettings, Fetcher, Settings};
use rstest::rstest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::registry::{content, plain};
use super::server::{Answer, Ca, Seen, Server, answer, with};
use super::{archive, chain, reference, settings, sha256};

/// What a connection gets, byte by byte.
#[derive(Clone, Copy)]
enum Sent {
    /// The beginning of a body; then the connection ends.
    Half,
    /// A body that never ends, a byte at a time.
    Trickle,
    /// Nothing at all.
    Nothing,
    Whole,
}

/// A server that treats its connections as listed, the last one for ever.
async fn raw(script: &'static [Sent]) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/web.tgz", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let at = counted.fetch_add(1, Ordering::SeqCst);
            let sent = script[at.min(script.len() - 1)];
            tokio::spawn(async move {
                let mut request = [0; 2048];
                let _ = stream.read(&mut request).await;
                let body = archive("web");
                let head = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                // A client that has heard enough hangs up.
                match sent {
                    Sent::Nothing => {}
                    Sent::Half => {
                        let _ = stream.write_all(head.as_bytes()).await;
                        let _ = stream.write_all(&body[..body.len() / 2]).await;
                    }
                    Sent::Whole => {
                        let _ = stream.write_all(head.as_bytes()).await;
                        let _ = stream.write_all(&body).await;
                    }
                    Sent::Trickle => {
                        let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";
                        let _ = stream.write_all(head.as_bytes()).await;
                        while stream.write_all(b"x").await.is_ok() {
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                    }
                }
            });
        }
    });
    (url, count)
}

fn kept_in(folder: &Path, timeout: Duration) -> Fetcher {
    Fetcher::new(Settings {
        disk: Some(DiskSettings {
            directory: folder.to_owned(),
            max_bytes: 16 << 20,
        }),
        timeout,
        ..settings()
    })
}

/// Every blob that is kept.
fn blobs(folder: &Path) -> usize {
    let root = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap();
    std::fs::read_dir(root.path().join("blobs"))
        .unwrap()
        .count()
}

#[rstest]
#[case::broken_off_once(&[Sent::Half, Sent::Whole], None, 2)]
#[case::silent_once(&[Sent::Nothing, Sent::Whole], None, 2)]
#[case::broken_off_each_time(&[Sent::Half], Some("Unreachable"), 3)]
#[case::one_byte_at_a_time(&[Sent::Trickle], Some("Timeout"), 1)]
#[tokio::test]
async fn connections_that_fail(
    #[case] script: &'static [Sent],
    #[case] want: Option<&str>,
    #[case] attempts: usize,
) {
    let folder = tempfile::tempdir().unwrap();
    let (url, count) = raw(script).await;
    let timeout = match want {
        Some("Timeout") => Duration::from_millis(300),
        _ => Duration::from_secs(60),
    };
    let fetched = kept_in(folder.path(), timeout)
        .fetch(&reference("", &url, ""), &Access::default())
        .await;
    match (want, fetched) {
        (None, Ok(fetched)) => assert_eq!(fetched.bytes, archive("web")),
        (Some(reason), Err(error)) => {
            assert_eq!((error.reason(), error.is_retryable()), (reason, true));
        }
        (want, fetched) => panic!("{want:?}: {fetched:?}"),
    }
    assert_eq!(count.load(Ordering::SeqCst), attempts);
    assert_eq!(blobs(folder.path()), usize::from(want.is_none()));
}

/// Answers an archive with what is wrong.
type Fault = fn(usize) -> Answer;

fn limited(seconds: &str) -> Answer {
    with(answer(429, ""), "retry-after", seconds)
}

#[rstest]
#[case::cut_off_gzip(|_| answer(200, archive("web")[..40].to_vec()), Some("InvalidArchive"), 1)]
#[case::a_page_in_its_place(|_| answer(200, "<html>"), Some("InvalidArchive"), 1)]
#[case::refused(|_| answer(403, ""), Some("Unauthorized"), 1)]
#[case::not_there(|_| answer(404, ""), Some("NotFound"), 1)]
#[case::too_often_for_a_moment(|n| if n < 2 { limited("0") } else { answer(200, archive("web")) }, None, 3)]
#[case::too_often_for_long(|_| limited("3600"), Some("SourceUnavailable"), 1)]
#[case::a_burst_of_errors(|n| if n < 2 { answer(500, "") } else { answer(200, archive("web")) }, None, 3)]
#[case::errors_for_long(|_| answer(502, ""), Some("SourceUnavailable"), 3)]
#[case::a_loop(|_| with(answer(302, ""), "location", "/web.tgz"), Some("Unreachable"), 11)]
#[case::to_no_address(|_| with(answer(302, ""), "location", "file:///etc/passwd"), Some("Unreachable"), 1)]
#[tokio::test]
async fn sources_that_answer_with_faults(
    #[case] fault: Fault,
    #[case] want: Option<&str>,
    #[case] requests: usize,
) {
    let folder = tempfile::tempdir().unwrap();
    let count = AtomicUsize::new(0);
    let server = Server::plain(move |_| fault(count.fetch_add(1, Ordering::SeqCst))).await;
    let fetched = kept_in(folder.path(), Duration::from_secs(60))
        .fetch(
            &reference("", &server.url("/web.tgz"), ""),
            &Access::default(),
        )
        .await;
    assert_eq!(fetched.as_ref().err().map(|error| error.reason()), want);
    assert_eq!(server.seen().len(), requests);
    assert_eq!(blobs(folder.path()), usize::from(want.is_none()));
}

#[tokio::test]
async fn another_digest_is_no_chart_and_not_asked_for_twice() {
    let server = Server::plain(|seen| match seen.path.as_str() {
        "/web.tgz" => answer(200, archive("web")),
        path if path.contains("/blobs/") => answer(200, archive("evil")),
        _ => content(seen),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let named = server.url(&format!("/web.tgz?checksum=sha256:{}", sha256(b"other")));
    let charts = [
        (reference("", &named, ""), Access::default()),
        (reference(&server.oci("charts/web"), "", "1.0.0"), plain()),
    ];
    for (chart, access) in charts {
        let fetcher = kept_in(folder.path(), Duration::from_secs(60));
        let error = fetcher.fetch(&chart, &access).await.unwrap_err();
        assert_eq!(error.reason(), "ChecksumMismatch");
    }
    let bodies = |path: &&String| *path == "/web.tgz" || path.contains("/blobs/");
    assert_eq!(server.paths().iter().filter(bodies).count(), 2);
    assert_eq!(blobs(folder.path()), 0);
}

#[rstest]
#[case::which_has_it(|_| answer(200, archive("web")), None, 1)]
#[case::which_refuses(|_| answer(403, ""), Some("Unauthorized"), 1)]
#[case::which_fails_for_a_moment(|n| if n < 1 { answer(503, "") } else { answer(200, archive("web")) }, None, 2)]
#[case::which_has_something_else(|_| answer(200, "<html>"), Some("InvalidArchive"), 1)]
#[tokio::test]
async fn another_host_that_it_redirects_to(
    #[case] fault: Fault,
    #[case] want: Option<&str>,
    #[case] requests: usize,
) {
    let count = AtomicUsize::new(0);
    let other = Server::plain(move |_| fault(count.fetch_add(1, Ordering::SeqCst))).await;
    let target = other.url("/elsewhere.tgz");
    let server = Server::plain(move |_| with(answer(302, ""), "location", &target)).await;
    let folder = tempfile::tempdir().unwrap();
    let access = Access {
        credentials: Credentials::new("joe", "canary"),
        ..Access::default()
    };
    let chart = reference("", &server.url("/web.tgz"), "");
    let fetcher = kept_in(folder.path(), Duration::from_secs(60));
    let fetched = fetcher.fetch(&chart, &access).await;
    assert_eq!(fetched.as_ref().err().map(|error| error.reason()), want);
    let (asked, led) = (server.seen(), other.seen());
    assert_eq!((asked.len(), led.len()), (requests, requests));
    assert!(asked.iter().all(|seen| seen.authorization.is_some()));
    assert!(led.iter().all(|seen| seen.authorization.is_none()));
    assert_eq!(blobs(folder.path()), usize::from(want.is_none()));
}

#[tokio::test]
async fn an_expired_token_is_requested_again() {
    let tokens = AtomicUsize::new(0);
    let server = Server::plain(move |seen: &Seen| {
        let token = |at: usize| format!("Bearer t{at}");
        let is = |at| seen.authorization == Some(token(at));
        match seen.path.split('?').next().unwrap_or_default() {
            "/token" => {
                let at = tokens.fetch_add(1, Ordering::SeqCst);
                answer(200, format!(r#"{{"token":"t{at}"}}"#))
            }
            // The first one is taken for the manifest alone.
            path if is(0) && path.contains("/manifests/") || is(1) => content(seen),
            _ => with(
                answer(401, ""),
                "www-authenticate",
                "Bearer realm=\"/token\"",
            ),
        }
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let fetcher = kept_in(folder.path(), Duration::from_secs(60));
    let chart = reference(&server.oci("charts/web"), "", "1.0.0");
    let fetched = fetcher.fetch(&chart, &plain()).await.unwrap();
    assert_eq!(fetched.bytes, archive("1.0.0"));
    let tokens = server
        .paths()
        .iter()
        .filter(|path| path.starts_with("/token"))
        .count();
    assert_eq!(tokens, 2, "{:?}", server.paths());
}

#[tokio::test]
async fn certificates_that_do_not_hold() {
    let authority = Ca::new("faults");
    let access = Access {
        ca: Some(authority.pem.clone()),
        ..Access::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let get = async |url: String| {
        let fetcher = kept_in(folder.path(), Duration::from_secs(60));
        let fetched = fetcher.fetch(&reference("", &url, ""), &access).await;
        fetched
            .map(|fetched| fetched.bytes)
            .map_err(|error| (error.reason(), chain(&error)))
    };
    let good = Server::signed(&authority, None, |_| answer(200, archive("web"))).await;
    assert_eq!(get(good.url("/web.tgz")).await.unwrap(), archive("web"));
    let expired = Server::expired(&authority, |_| answer(200, archive("web"))).await;
    let (reason, text) = get(expired.url("/web.tgz")).await.unwrap_err();
    assert!(reason == "TLSFailed" && text.contains("expired"), "{text}");
    // It is for names, and not for this one.
    let other = format!("https://[::ffff:127.0.0.1]:{}/web.tgz", good.address.port());
    let (reason, text) = get(other).await.unwrap_err();
    assert!(
        reason == "TLSFailed" && text.contains("not valid for name"),
        "{text}"
    );
    assert_eq!(blobs(folder.path()), 1);
}

/// Others go on while a server that has sent much sends no more: who waits for it keeps no memory from them.
#[tokio::test]
async fn a_server_that_falls_silent_holds_nobody_else_up() {
    const EVERYTHING: u64 = 1 << 40;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/web.tgz", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 2048];
        let _ = stream.read(&mut request).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 3000000\r\n\r\n";
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(&[0; 2_000_000]).await;
        std::future::pending::<()>().await;
    });
    let settings = settings();
    let memory = settings.memory.clone();
    let fetcher = Fetcher::new(settings);
    let download = tokio::spawn(async move {
        fetcher
            .fetch(&reference("", &url, ""), &Access::default())
            .await
    });
    // Until it has its reservation.
    let soon = Duration::from_millis(100);
    while tokio::time::timeout(soon, memory.reserve(EVERYTHING))
        .await
        .is_ok()
    {
        assert!(!download.is_finished());
        tokio::task::yield_now().await;
    }
    // From now on the clock moves when there is nothing else to do.
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let _turn = memory.reserve(EVERYTHING).await;
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    assert!(!download.is_finished());
    download.abort();
}
