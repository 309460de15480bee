//! Logins as docker keeps them, against servers that tell who asked.

use std::sync::{Arc, OnceLock};

use chart::source::{Access, Credentials, HostAccess, HostPattern, Hosts, Logins};
use serde_json::{Value, json};

use super::registry::{content, plain};
use super::server::{Answer, Seen, Server, answer, with};
use super::{archive, chain, fetcher, reference};

fn logins(auths: Value) -> Option<Arc<Logins>> {
    let text = json!({ "auths": auths }).to_string();
    Some(Arc::new(
        Logins::from_docker_config(text.as_bytes()).unwrap(),
    ))
}

fn pair(user: &str, password: &str) -> Value {
    json!({ "auth": golib::base64::encode(format!("{user}:{password}")) })
}

fn basic(user: &str, password: &str) -> Option<String> {
    let pair = golib::base64::encode(format!("{user}:{password}"));
    Some(format!("Basic {pair}"))
}

/// A registry that asks joe for his password.
async fn basic_registry() -> Server {
    Server::plain(|seen| match seen.authorization == basic("joe", "secret") {
        true => content(seen),
        false => with(answer(401, ""), "www-authenticate", "Basic realm=\"r\""),
    })
    .await
}

/// A registry behind a token service on the same server, which trades what `trades` accepts for a token.
async fn token_registry(trades: fn(&Seen) -> bool) -> Server {
    Server::plain(move |seen| match seen.path.split('?').next() {
        Some("/token") if trades(seen) => answer(200, r#"{"access_token":"t"}"#),
        Some("/token") => answer(401, ""),
        _ if seen.authorization.as_deref() == Some("Bearer t") => content(seen),
        _ => with(
            answer(401, ""),
            "www-authenticate",
            "Bearer realm=\"/token\",service=\"reg\",scope=\"repository:charts/web:pull\"",
        ),
    })
    .await
}

/// Pulls `charts/web` with the logins; an error as people see it.
async fn pull(server: &Server, logins: Option<Arc<Logins>>) -> Result<(), String> {
    let access = Access { logins, ..plain() };
    let chart = reference(&server.oci("charts/web"), "", "1.0.0");
    let fetched = fetcher().fetch(&chart, &access).await;
    let fetched = fetched.map_err(|error| chain(&error))?;
    assert_eq!(fetched.bytes, archive("1.0.0"));
    Ok(())
}

#[tokio::test]
async fn registries_take_the_login_that_is_for_them() {
    let server = basic_registry().await;
    let (host, wrong) = (server.address.to_string(), pair("eve", "secret"));
    let at =
        |address: &str| logins(json!({ address: pair("joe", "secret"), "other.example": wrong }));
    pull(&server, at(&host)).await.unwrap();
    pull(&server, at(&format!("http://{host}/v1/")))
        .await
        .unwrap();
    pull(&server, at(&format!("{host}/charts/web")))
        .await
        .unwrap();
    let longest = json!({
        host.as_str(): wrong,
        format!("{host}/charts"): pair("joe", "secret"),
        format!("{host}/charts/we"): wrong,
    });
    pull(&server, logins(longest)).await.unwrap();
    let elsewhere = [format!("{host}/other"), "127.0.0.1".to_owned()];
    for address in &elsewhere {
        let error = pull(&server, at(address)).await.unwrap_err();
        let hint = "(no credentials were sent: none of the logins is for this address)";
        assert!(
            error.contains("registry answered 401") && error.ends_with(hint),
            "{error}"
        );
    }
    let error = pull(&server, logins(json!({ host.as_str(): wrong }))).await;
    let error = error.unwrap_err();
    assert!(error.ends_with("(the credentials were refused)"), "{error}");
}

#[tokio::test]
async fn tokens_are_had_for_each_kind_of_login() {
    let by_password = token_registry(|seen| seen.authorization == basic("joe", "secret")).await;
    let host = |server: &Server| server.address.to_string();
    let login = |server: &Server, login: Value| logins(json!({ host(server): login }));
    pull(&by_password, login(&by_password, pair("joe", "secret")))
        .await
        .unwrap();

    let by_identity = token_registry(|seen| {
        seen.authorization.is_none()
            && seen.path == "/token"
            && seen.body
                == "client_id=fleetagent&grant_type=refresh_token&refresh_token=id%2F%3D\
                    &scope=repository%3Acharts%2Fweb%3Apull&service=reg"
    })
    .await;
    let identity = json!({ "auth": golib::base64::encode("joe:"), "identitytoken": "id/=" });
    pull(&by_identity, login(&by_identity, identity))
        .await
        .unwrap();
    let wrong = login(&by_identity, json!({ "identitytoken": "other" }));
    let error = pull(&by_identity, wrong).await.unwrap_err();
    assert!(error.ends_with("(the credentials were refused)"), "{error}");

    let by_token = token_registry(|_| false).await;
    pull(&by_token, login(&by_token, json!({ "registrytoken": "t" })))
        .await
        .unwrap();

    let basic = basic_registry().await;
    let identity = login(&basic, json!({ "identitytoken": "id" }));
    let error = pull(&basic, identity).await.unwrap_err();
    assert!(
        error.contains("has a token alone, which this server does not take"),
        "{error}"
    );
}

/// A repository whose chart is on `target`, for joe alone.
async fn repository(target: String) -> Server {
    Server::plain(move |seen| match seen.path.as_str() {
        _ if seen.authorization != basic("joe", "secret") => answer(401, ""),
        "/charts/index.yaml" => {
            let entry = json!([{ "name": "web", "version": "1.0.0", "urls": [target] }]);
            answer(
                200,
                json!({ "apiVersion": "v1", "entries": { "web": entry } }).to_string(),
            )
        }
        "/charts/moved.tgz" => with(answer(302, ""), "location", &target),
        _ => answer(200, archive("web")),
    })
    .await
}

async fn open() -> Server {
    Server::plain(|_| answer(200, archive("web"))).await
}

#[tokio::test]
async fn repositories_take_logins_too_and_no_other_host_does() {
    let elsewhere = open().await;
    let own = repository(elsewhere.url("/web.tgz")).await;
    let (here, there) = (own.address.to_string(), elsewhere.address.to_string());
    let with = |auths: Value| Access {
        logins: logins(auths),
        ..Access::default()
    };
    let chart = reference(&own.url("/charts"), "web", "");
    let moved = reference("", &own.url("/charts/moved.tgz"), "");
    let joe = with(json!({ format!("{here}/charts"): pair("joe", "secret") }));
    for chart in [&chart, &moved] {
        fetcher().fetch(chart, &joe).await.unwrap();
    }
    assert!(
        elsewhere
            .seen()
            .iter()
            .all(|seen| seen.authorization.is_none())
    );
    // Neither whom a redirect names nor whom the index does, which has no TLS here, may be shown a login of its own.
    let both = with(json!({ here: pair("joe", "secret"), there: pair("ann", "other") }));
    for chart in [&chart, &moved] {
        fetcher().fetch(chart, &both).await.unwrap();
    }
    let shown: Vec<_> = elsewhere
        .seen()
        .into_iter()
        .map(|seen| seen.authorization)
        .collect();
    assert_eq!(shown, [None, None, None, None]);
    // Fleet's own keys are for the repository and come first there.
    let own_keys = Access {
        credentials: Credentials::new("joe", "secret"),
        ..with(json!({ own.address.to_string(): pair("eve", "secret") }))
    };
    fetcher().fetch(&chart, &own_keys).await.unwrap();
    let token = with(json!({ own.address.to_string(): { "identitytoken": "id" } }));
    let error = fetcher().fetch(&chart, &token).await.unwrap_err();
    assert!(
        chain(&error).contains("error code: 401 (no credentials were sent: the login"),
        "{}",
        chain(&error)
    );
}

fn identity_service(seen: &Seen) -> Answer {
    match seen.body.contains("identity-canary") || seen.authorization.is_some() {
        true => answer(500, "a credential came here"),
        false => answer(200, r#"{"token":"t"}"#),
    }
}

#[tokio::test]
async fn a_login_is_shown_without_tls_only_where_the_bundle_asks_for_that() {
    let plainly = open().await;
    let target = plainly.url("/web.tgz");
    let own = Server::tls(move |_| {
        let entry = json!([{ "name": "web", "version": "1.0.0", "urls": [target] }]);
        answer(
            200,
            json!({ "apiVersion": "v1", "entries": { "web": entry } }).to_string(),
        )
    })
    .await;
    let access = Access {
        ca: own.ca.clone(),
        logins: logins(json!({ plainly.address.to_string(): pair("joe", "secret") })),
        ..Access::default()
    };
    fetcher()
        .fetch(&reference(&own.url(""), "web", ""), &access)
        .await
        .unwrap();
    assert_eq!(plainly.seen()[0].authorization, None);
}

/// A repository without TLS, or on whose connection somebody sits, chooses whom its index names.
#[tokio::test]
async fn an_index_has_no_login_of_another_host_shown_without_tls() {
    let registry = basic_registry().await;
    let plainly = open().await;
    let secure = Server::tls(|_| answer(200, archive("web"))).await;
    let secure_host = format!("localhost:{}", secure.address.port());
    let named = [
        (plainly.address.to_string(), plainly.url("/web.tgz")),
        (
            registry.address.to_string(),
            registry.oci("charts/web:1.0.0"),
        ),
        (secure_host, secure.url("/web.tgz")),
    ];
    for (at, (host, target)) in named.into_iter().enumerate() {
        let entry = json!([{ "name": "web", "version": "1.0.0", "urls": [target] }]);
        let index = json!({ "apiVersion": "v1", "entries": { "web": entry } }).to_string();
        let own = Server::plain(move |_| answer(200, index.clone())).await;
        let access = Access {
            ca: secure.ca.clone(),
            logins: logins(json!({ host: pair("joe", "secret") })),
            ..plain()
        };
        let chart = reference(&own.url(""), "web", "");
        let fetched = fetcher().fetch(&chart, &access).await;
        assert_eq!(fetched.is_ok(), at != 1, "{:?}", fetched.err());
    }
    let none = |server: &Server| {
        let seen = server.seen();
        !seen.is_empty() && seen.iter().all(|seen| seen.authorization.is_none())
    };
    assert!(none(&plainly));
    assert!(none(&registry));
    assert_eq!(secure.seen()[0].authorization, basic("joe", "secret"));
}

/// A repository whose index names `target`.
fn listing(target: &str) -> impl Fn(&Seen) -> Answer + use<> {
    let entry = json!([{ "name": "web", "version": "1.0.0", "urls": [target] }]);
    let index = json!({ "apiVersion": "v1", "entries": { "web": entry } }).to_string();
    move |_| answer(200, index.clone())
}

/// How a registry is reached may be said by the cluster's operator, whom the bundle does not repeat.
#[tokio::test]
async fn a_hosts_settings_have_no_login_shown_without_tls() {
    let registry = basic_registry().await;
    let host = registry.address.to_string();
    let own = Server::plain(listing(&registry.oci("charts/web:1.0.0"))).await;
    let access = Access {
        logins: logins(json!({ host.as_str(): pair("joe", "secret") })),
        hosts: spoken_to(&host, true),
        ..Access::default()
    };
    let chart = reference(&own.url(""), "web", "");
    let error = chain(&fetcher().fetch(&chart, &access).await.unwrap_err());
    assert!(error.contains("is not shown without TLS"), "{error}");
    let seen = registry.seen();
    assert!(!seen.is_empty() && seen.iter().all(|seen| seen.authorization.is_none()));
    // The bundle itself may name it so.
    let chart = reference(&registry.oci("charts/web:1.0.0"), "", "");
    fetcher().fetch(&chart, &access).await.unwrap();
}

fn spoken_to(host: &str, plainly: bool) -> Option<Arc<Hosts>> {
    let settings = HostAccess {
        plain_http: Some(plainly),
        ..HostAccess::default()
    };
    let pattern = HostPattern::parse(host).unwrap();
    Some(Arc::new(Hosts::new(vec![(pattern, settings)])))
}

#[tokio::test]
async fn a_registry_that_an_index_names_takes_its_login_by_tls_whatever_holds_for_others() {
    let registry = Server::tls(|seen| match seen.authorization == basic("joe", "secret") {
        true => content(seen),
        false => with(answer(401, ""), "www-authenticate", "Basic realm=\"r\""),
    })
    .await;
    let host = format!("localhost:{}", registry.address.port());
    let own = Server::plain(listing(&registry.oci("charts/web:1.0.0"))).await;
    let access = Access {
        ca: registry.ca.clone(),
        logins: logins(json!({ host.as_str(): pair("joe", "secret") })),
        hosts: spoken_to(&host, false),
        ..plain()
    };
    let chart = reference(&own.url(""), "web", "");
    fetcher().fetch(&chart, &access).await.unwrap();
}

/// It was shown the login without TLS already, for its index.
#[tokio::test]
async fn the_repositorys_own_host_takes_its_login_as_a_registry_too() {
    let at = Arc::new(OnceLock::new());
    let address = Arc::clone(&at);
    let own = Server::plain(move |seen| match seen.path.as_str() {
        _ if seen.authorization != basic("joe", "secret") => {
            with(answer(401, ""), "www-authenticate", "Basic realm=\"r\"")
        }
        "/index.yaml" => listing(&format!(
            "oci://{}/charts/web:1.0.0",
            address.get().unwrap()
        ))(seen),
        _ => content(seen),
    })
    .await;
    let host = own.address.to_string();
    at.set(host.clone()).unwrap();
    let access = Access {
        logins: logins(json!({ host: pair("joe", "secret") })),
        ..plain()
    };
    let chart = reference(&own.url(""), "web", "");
    fetcher().fetch(&chart, &access).await.unwrap();
}

/// Storage that a registry redirects to, and that asks for credentials itself.
#[tokio::test]
async fn a_redirect_target_gets_no_credentials() {
    let evil = Server::plain(|_| answer(200, r#"{"token":"t"}"#)).await;
    let realm = format!("Bearer realm=\"{}\"", evil.url("/token"));
    let storage = Server::plain(move |_| with(answer(401, ""), "www-authenticate", &realm)).await;
    let target = storage.url("/blob");
    let server = Server::plain(
        move |seen| match seen.authorization == basic("joe", "secret") {
            true if seen.path.contains("/blobs/") => with(answer(307, ""), "location", &target),
            true => content(seen),
            false => with(answer(401, ""), "www-authenticate", "Basic realm=\"r\""),
        },
    )
    .await;
    for login in [
        pair("joe", "secret"),
        json!({ "auth": golib::base64::encode("joe:secret"), "identitytoken": "id" }),
    ] {
        let error = pull(
            &server,
            logins(json!({ server.address.to_string(): login })),
        )
        .await;
        let error = error.unwrap_err();
        assert!(
            error.ends_with(
                "(no credentials were sent: it redirects to an address that they are not for)"
            ),
            "{error}"
        );
    }
    assert!(evil.seen().is_empty());
    assert!(
        storage
            .seen()
            .iter()
            .all(|seen| seen.authorization.is_none())
    );
}

/// A folder of a server that many share: whoever has the one next to it is shown nothing of its login.
#[tokio::test]
async fn a_redirect_to_another_folder_gets_no_login_of_this_one() {
    let own = Server::plain(|seen| match seen.path.as_str() {
        "/charts/near.tgz" => with(answer(302, ""), "location", "/charts/web.tgz"),
        "/charts/far.tgz" => with(answer(302, ""), "location", "/tenant/far.tgz"),
        "/charts/around.tgz" => with(answer(302, ""), "location", "/charts/..%2ftenant/web.tgz"),
        "/charts/back.tgz" => with(answer(302, ""), "location", "/tenant/back.tgz"),
        "/tenant/back.tgz" => with(answer(302, ""), "location", "/charts/web.tgz"),
        _ => answer(200, archive("web")),
    })
    .await;
    let host = own.address.to_string();
    let shown = async |chart: &str, access: &Access| {
        let before = own.seen().len();
        let chart = reference("", &own.url(&format!("/charts/{chart}.tgz")), "");
        fetcher().fetch(&chart, access).await.unwrap();
        let seen = own.seen().into_iter().skip(before);
        let shown: Vec<bool> = seen.map(|seen| seen.authorization.is_some()).collect();
        shown
    };
    let joe = Credentials::new("joe", "secret");
    let docker = Access {
        logins: logins(json!({ format!("{host}/charts"): pair("joe", "secret") })),
        ..Access::default()
    };
    let pattern = HostPattern::parse(&format!("{host}/charts")).unwrap();
    let settings = HostAccess {
        credentials: joe.clone(),
        plain_http: Some(true),
        ..HostAccess::default()
    };
    let cluster = Access {
        hosts: Some(Arc::new(Hosts::new(vec![(pattern, settings)]))),
        ..Access::default()
    };
    for access in [&docker, &cluster] {
        assert_eq!(shown("near", access).await, [true, true]);
        assert_eq!(shown("far", access).await, [true, false]);
        assert_eq!(shown("around", access).await, [true, false]);
        assert_eq!(shown("back", access).await, [true, false, false]);
    }
    // A bundle's own login is for the whole of its repository's host, as Helm has it.
    let bundle = Access {
        credentials: joe,
        ..Access::default()
    };
    assert_eq!(shown("far", &bundle).await, [true, true]);
}

#[tokio::test]
async fn another_page_of_a_registry_in_another_folder_gets_no_login_of_this_one() {
    let registry = Server::plain(|seen| match seen.path.as_str() {
        "/v2/other/tags/list" => answer(200, r#"{"tags":[]}"#),
        path if path.contains("/tags/list") => {
            let page = answer(200, r#"{"tags":["1.0.0"]}"#);
            let page = with(page, "link", "</v2/other/tags/list>; rel=\"next\"");
            match seen.authorization == basic("joe", "secret") {
                true => page,
                false => with(answer(401, ""), "www-authenticate", "Basic realm=\"r\""),
            }
        }
        _ => content(seen),
    })
    .await;
    let folder = format!("{}/charts", registry.address);
    let access = Access {
        logins: logins(json!({ folder: pair("joe", "secret") })),
        ..plain()
    };
    let chart = reference(&registry.oci("charts/web"), "", "^1");
    fetcher().fetch(&chart, &access).await.unwrap();
    let seen = registry.seen().into_iter();
    let other = seen.filter(|seen| seen.path.starts_with("/v2/other"));
    let shown: Vec<_> = other.map(|seen| seen.authorization).collect();
    assert_eq!(shown, [None]);
}

#[tokio::test]
async fn an_anonymous_token_is_no_credential() {
    let server = Server::plain(|seen| match seen.path.split('?').next() {
        Some("/token") => answer(200, r#"{"token":"anonymous"}"#),
        _ => with(
            answer(401, ""),
            "www-authenticate",
            "Bearer realm=\"/token\"",
        ),
    })
    .await;
    let error = pull(
        &server,
        logins(json!({ "other.example": pair("joe", "secret") })),
    )
    .await;
    let error = error.unwrap_err();
    assert!(
        error.ends_with("none of the logins is for this address)"),
        "{error}"
    );
    let broken = json!({ server.address.to_string(): { "auth": "?" } });
    let error = pull(&server, logins(broken)).await.unwrap_err();
    assert!(
        error.ends_with("the login for this address cannot be read)"),
        "{error}"
    );
}

#[tokio::test]
async fn a_form_with_a_token_follows_no_redirect() {
    let elsewhere = Server::plain(identity_service).await;
    let target = elsewhere.url("/token");
    let server = Server::plain(move |seen| match seen.path.as_str() {
        "/token" => with(answer(307, ""), "location", &target),
        _ => with(
            answer(401, ""),
            "www-authenticate",
            "Bearer realm=\"/token\"",
        ),
    })
    .await;
    let login = json!({ server.address.to_string(): { "identitytoken": "identity-canary" } });
    let error = pull(&server, logins(login)).await.unwrap_err();
    assert!(error.contains("registry answered 307"), "{error}");
    assert!(elsewhere.seen().is_empty() && !error.contains("canary"));
}
