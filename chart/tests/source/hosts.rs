//! Settings of the cluster's operator for single hosts.

use std::sync::Arc;

use chart::source::{Access, Credentials, FetchError, HostAccess, HostPattern, Hosts};

use super::registry::{content, plain};
use super::server::{Answer, Seen, Server, answer, with};
use super::{archive, chain, fetcher, reference};

const JOE: &str = "Basic am9lOnNlY3JldA==";

fn joe() -> HostAccess {
    HostAccess {
        credentials: Credentials::new("joe", "secret"),
        ..HostAccess::default()
    }
}

fn hosts(entries: &[(&str, HostAccess)]) -> Option<Arc<Hosts>> {
    let entries = entries
        .iter()
        .map(|(host, access)| (HostPattern::parse(host).unwrap(), access.clone()));
    Some(Arc::new(Hosts::new(entries.collect())))
}

#[tokio::test]
async fn a_host_may_be_given_what_upstream_lacks_or_has_wrong() {
    let server = Server::tls(|seen| match seen.authorization.as_deref() {
        Some(JOE) => content(seen),
        _ => with(answer(401, ""), "www-authenticate", "Basic realm=\"r\""),
    })
    .await;
    let host = format!("localhost:{}", server.address.port());
    let known = HostAccess {
        ca: server.ca.clone(),
        ..joe()
    };
    let chart = reference(&server.oci("charts/web"), "", "1.0.0");
    let upstream = [
        Access::default(),
        Access {
            credentials: Credentials::new("eve", "wrong"),
            ..Access::default()
        },
        // What a bundle says of trust does not count for what the site has of the host.
        Access {
            insecure: true,
            plain_http: true,
            ..Access::default()
        },
    ];
    for access in upstream {
        let access = Access {
            hosts: hosts(&[(&host, known.clone()), ("other.example", joe())]),
            ..access
        };
        fetcher().fetch(&chart, &access).await.unwrap();
    }
    assert!(server.seen().iter().all(|seen| {
        seen.authorization
            .as_deref()
            .is_none_or(|shown| shown == JOE)
    }));
    let elsewhere = Access {
        hosts: hosts(&[(&format!("{host}/other"), known)]),
        ca: server.ca.clone(),
        ..Access::default()
    };
    let error = fetcher().fetch(&chart, &elsewhere).await.unwrap_err();
    assert!(
        chain(&error).ends_with("(no credentials were sent)"),
        "{}",
        chain(&error)
    );
    // Trust alone may be all there is to say.
    let trust = HostAccess {
        ca: server.ca.clone(),
        ..HostAccess::default()
    };
    let own = Access {
        hosts: hosts(&[(&host, trust)]),
        credentials: Credentials::new("joe", "secret"),
        ..Access::default()
    };
    fetcher().fetch(&chart, &own).await.unwrap();
}

#[tokio::test]
async fn a_sites_login_for_a_host_is_not_sent_elsewhere() {
    let server = Server::tls(|_| answer(200, archive("web"))).await;
    let host = format!("localhost:{}", server.address.port());
    let chart = reference("", &server.url("/web.tgz"), "");
    let insecure = Access {
        insecure: true,
        hosts: hosts(&[(&host, joe())]),
        ..Access::default()
    };
    let error = fetcher().fetch(&chart, &insecure).await.unwrap_err();
    assert_eq!(error.reason(), "UnknownIssuer");
    let ca = Access {
        ca: server.ca.clone(),
        ..insecure.clone()
    };
    assert_eq!(
        fetcher().fetch(&chart, &ca).await.unwrap_err().reason(),
        "UnknownIssuer"
    );
    assert!(server.seen().is_empty());
    let plainly = Server::plain(|seen| match seen.path.as_str() {
        path if path.starts_with("/v2/") => content(seen),
        _ => answer(200, archive("web")),
    })
    .await;
    let host = plainly.address.to_string();
    let chart = reference("", &plainly.url("/web.tgz"), "");
    let over = |known: HostAccess| Access {
        hosts: hosts(&[(&host, known)]),
        ..Access::default()
    };
    fetcher().fetch(&chart, &over(joe())).await.unwrap();
    assert_eq!(plainly.seen()[0].authorization, None);
    let allowed = HostAccess {
        plain_http: Some(true),
        ..joe()
    };
    fetcher()
        .fetch(&chart, &over(allowed.clone()))
        .await
        .unwrap();
    assert_eq!(plainly.seen()[1].authorization.as_deref(), Some(JOE));
    let oci = reference(&plainly.oci("charts/web"), "", "1.0.0");
    fetcher().fetch(&oci, &over(allowed)).await.unwrap();
    let by_tls = Access {
        hosts: hosts(&[(&host, joe())]),
        ..plain()
    };
    let error = fetcher().fetch(&oci, &by_tls).await.unwrap_err();
    assert_eq!(error.reason(), "TLSFailed", "{}", chain(&error));
}

#[tokio::test]
async fn a_refused_host_is_asked_for_nothing() {
    let server = Server::plain(|_| answer(200, archive("web"))).await;
    let refused = HostAccess {
        is_refused: true,
        ..HostAccess::default()
    };
    let access = Access {
        plain_http: true,
        hosts: hosts(&[(&server.address.to_string(), refused)]),
        ..Access::default()
    };
    for chart in [
        reference("", &server.url("/web.tgz"), ""),
        reference(&server.oci("charts/web"), "", "1.0.0"),
    ] {
        let error = fetcher().fetch(&chart, &access).await.unwrap_err();
        assert!(matches!(error, FetchError::HostRefused { .. }), "{error:?}");
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_redirect_to_a_refused_host_is_not_followed() {
    let behind = Server::plain(|_| answer(200, archive("web"))).await;
    let target = behind.url("/web.tgz");
    let server = Server::plain(move |_| with(answer(302, ""), "location", &target)).await;
    let refused = HostAccess {
        is_refused: true,
        ..HostAccess::default()
    };
    let access = Access {
        hosts: hosts(&[(&behind.address.to_string(), refused)]),
        ..plain()
    };
    let chart = reference("", &server.url("/web.tgz"), "");
    let error = fetcher().fetch(&chart, &access).await.unwrap_err();
    assert!(matches!(error, FetchError::HostRefused { .. }), "{error:?}");
    assert!(
        error.to_string().contains(&behind.url("/web.tgz")),
        "{error}"
    );
    assert!(behind.seen().is_empty());
    let open = Access {
        hosts: None,
        ..access
    };
    fetcher().fetch(&chart, &open).await.unwrap();
}

#[tokio::test]
async fn a_host_that_is_redirected_to_is_trusted_as_its_settings_say() {
    let behind = Server::tls(|_| answer(200, archive("web"))).await;
    let place = format!("localhost:{}", behind.address.port());
    let target = format!("https://{place}/web.tgz");
    let server = Server::plain(move |_| with(answer(302, ""), "location", &target)).await;
    let chart = reference("", &server.url("/web.tgz"), "");
    let over = |ca: Option<Arc<[u8]>>, insecure| {
        let host = HostAccess {
            ca,
            insecure: Some(false),
            ..HostAccess::default()
        };
        Access {
            hosts: hosts(&[(&place, host)]),
            insecure,
            ..plain()
        }
    };
    let known = over(behind.ca.clone(), false);
    fetcher().fetch(&chart, &known).await.unwrap();
    // No bundle weakens it.
    let error = fetcher().fetch(&chart, &over(None, true)).await;
    assert_eq!(error.unwrap_err().reason(), "UnknownIssuer");
}

/// A registry that has a token for whoever its token service knows.
fn behind(service: &Server) -> impl Fn(&Seen) -> Answer + use<> {
    let challenge = format!("Bearer realm=\"{}\"", service.url("/token"));
    move |seen| match seen.authorization.as_deref() {
        Some("Bearer t") => content(seen),
        _ => with(answer(401, ""), "www-authenticate", &challenge),
    }
}

#[tokio::test]
async fn a_token_service_on_a_refused_host_is_asked_for_nothing() {
    let service = Server::plain(|_| answer(200, r#"{"token":"t"}"#)).await;
    let registry = Server::plain(behind(&service)).await;
    let refused = HostAccess {
        is_refused: true,
        ..HostAccess::default()
    };
    let access = Access {
        credentials: Credentials::new("joe", "secret"),
        hosts: hosts(&[(&service.address.to_string(), refused)]),
        ..plain()
    };
    let chart = reference(&registry.oci("charts/web"), "", "1.0.0");
    let error = fetcher().fetch(&chart, &access).await.unwrap_err();
    assert!(matches!(error, FetchError::HostRefused { .. }), "{error:?}");
    assert!(service.seen().is_empty());
    let open = Access {
        hosts: None,
        ..access
    };
    fetcher().fetch(&chart, &open).await.unwrap();
}

#[tokio::test]
async fn a_token_service_is_trusted_as_its_hosts_settings_say() {
    let service = Server::tls(|seen| match seen.authorization.as_deref() {
        Some(JOE) => answer(200, r#"{"token":"t"}"#),
        _ => answer(401, ""),
    })
    .await;
    let registry = Server::tls(behind(&service)).await;
    let [own, other] =
        [&registry, &service].map(|server| format!("localhost:{}", server.address.port()));
    let login = HostAccess {
        ca: registry.ca.clone(),
        ..joe()
    };
    let trust = |ca: &Option<Arc<[u8]>>| HostAccess {
        ca: ca.clone(),
        ..HostAccess::default()
    };
    let chart = reference(&registry.oci("charts/web"), "", "1.0.0");
    let over = |entries: &[(&str, HostAccess)], insecure: bool| Access {
        hosts: hosts(entries),
        insecure,
        ..Access::default()
    };
    let known = over(
        &[(&own, login.clone()), (&other, trust(&service.ca))],
        false,
    );
    fetcher().fetch(&chart, &known).await.unwrap();
    // Whose login it is stays the registry's: another one that is kept for the service's host is not shown for it.
    let ann = HostAccess {
        credentials: Credentials::new("ann", "other"),
        ..trust(&service.ca)
    };
    let known = over(&[(&own, login.clone()), (&other, ann)], false);
    fetcher().fetch(&chart, &known).await.unwrap();
    // What a bundle says of trust does not get the cluster's login shown to just anybody.
    let asked = service.seen().len();
    let error = fetcher().fetch(&chart, &over(&[(&own, login)], true)).await;
    assert_eq!(error.unwrap_err().reason(), "UnknownIssuer");
    assert_eq!(service.seen().len(), asked);
}

#[tokio::test]
async fn another_page_of_a_registry_on_a_refused_path_is_not_asked_for() {
    let registry = Server::plain(|seen| match seen.path.as_str() {
        path if path.contains("/tags/list") => {
            let page = answer(200, r#"{"tags":["1.0.0"]}"#);
            with(page, "link", "</v2/other/tags/list>; rel=\"next\"")
        }
        _ => content(seen),
    })
    .await;
    let refused = HostAccess {
        is_refused: true,
        ..HostAccess::default()
    };
    let access = Access {
        hosts: hosts(&[(&format!("{}/other", registry.address), refused)]),
        ..plain()
    };
    let chart = reference(&registry.oci("charts/web"), "", "^1");
    let error = fetcher().fetch(&chart, &access).await.unwrap_err();
    assert!(matches!(error, FetchError::HostRefused { .. }), "{error:?}");
    assert_eq!(registry.paths(), ["/v2/charts/web/tags/list?n=1000"]);
}
