//! What a policy and a bundle ask for, and of which charts.

use rstest::rstest;
use serde_json::{Value, json};
use signatures::policy::BundleRule;
use signatures::{Evidence, Policy, PolicyError, Subject};

use crate::{checked, found, json_of, key, pulled};

fn fetched_from(address: &str) -> Subject {
    Subject {
        addresses: vec![crate::address(address)],
        ..Subject::default()
    }
}

/// A policy with one rule about these sources.
fn about(sources: Value) -> Result<Policy, PolicyError> {
    let digests = [format!("sha256:{}", "0".repeat(64))];
    let rule = json!({"name": "r", "sources": sources, "digests": digests});
    Policy::parse(&json!({"rules": [rule]}).to_string())
}

fn is_about(policy: &Policy, address: &str) -> bool {
    let subject = fetched_from(address);
    !policy.demands(&subject, None).unwrap().are_none()
}

#[test]
fn digests_are_pinned() {
    let subject = pulled("127.0.0.1:5599/charts/web");
    let pinned = |digests: Value| {
        let rule =
            json!({"name": "r", "sources": ["oci://127.0.0.1:5599/charts/*"], "digests": digests});
        let policy = Policy::parse(&json!({"rules": [rule]}).to_string()).unwrap();
        checked(&policy, &subject, &Evidence::default())
    };
    pinned(json!([subject.archive])).unwrap();
    pinned(json!([subject.manifest])).unwrap();
    let refusal = pinned(json!([format!("sha256:{}", "0".repeat(64))])).unwrap_err();
    let refusal = refusal.to_string();
    assert!(
        refusal.contains(&subject.archive) && refusal.contains("is expected"),
        "{refusal}"
    );
}

#[test]
fn every_rule_that_is_about_a_chart_counts() {
    let rule = |name: &str, source: &str, signer: &str| json!({"name": name, "sources": [source], "signedBy": [key(signer)]});
    let rules = [
        rule("wide", "oci://127.0.0.1:5599/**", "key"),
        rule("narrow", "oci://127.0.0.1:5599/attached-key/*", "other"),
        rule("elsewhere", "oci://r.example/**", "rsa"),
    ];
    let policy = Policy::parse(&json!({"rules": rules}).to_string()).unwrap();
    let case = json_of("attached-key.json");
    let subject = pulled(case["repository"].as_str().unwrap());
    let refusal = checked(&policy, &subject, &found(&case)).unwrap_err();
    let unmet: Vec<&str> = refusal
        .unmet
        .iter()
        .map(|unmet| unmet.rule.as_str())
        .collect();
    assert_eq!(unmet, ["narrow"]);
    checked(&policy, &subject, &found(&json_of("attached-both.json"))).unwrap();
}

#[test]
fn a_bundle_adds_to_the_policy_and_takes_nothing_away() {
    let named = json!({"name": "strict", "signedBy": [key("other")]});
    let rule =
        json!({"name": "r", "sources": ["oci://127.0.0.1:5599/**"], "signedBy": [key("key")]});
    let policy = Policy::parse(&json!({"rules": [rule, named]}).to_string()).unwrap();
    let case = json_of("attached-key.json");
    let subject = pulled(case["repository"].as_str().unwrap());
    let asked = |own: &str, case: &str| {
        let own = BundleRule::parse(own).unwrap();
        policy
            .demands(&subject, Some(&own))?
            .check(&subject, &found(&json_of(case)))
    };
    // Its own digest does not stand in for the signature.
    let digest = json!({"digests": [subject.archive]}).to_string();
    asked(&digest, "attached-key.json").unwrap();
    asked(&digest, "attached-other-key.json").unwrap_err();
    // A rule by name adds another key; one that is not there is no rule.
    let refusal = asked("strict", "attached-key.json").unwrap_err();
    assert_eq!(refusal.unmet[0].rule, "strict");
    asked("strict", "attached-both.json").unwrap();
    let refusal = asked("lax", "attached-key.json").unwrap_err().to_string();
    assert!(refusal.contains("none of that name"), "{refusal}");
    for text in [
        "",
        "[]",
        "{}",
        "{digests: []}",
        "{signedBy: []}",
        "{sources: ['oci://**'], digests: []}",
    ] {
        BundleRule::parse(text).unwrap_err();
    }
}

#[test]
fn no_spelling_of_an_address_escapes_a_rule() {
    let zeros = format!("sha256:{}", "0".repeat(64));
    let sources = [
        "https://Charts.example/stable/**",
        "oci://registry.example/charts/*",
    ];
    let rule = json!({"name": "r", "sources": sources, "digests": [zeros]});
    let policy = Policy::parse(&json!({"rules": [rule]}).to_string()).unwrap();
    for address in [
        "https://charts.example/stable/web",
        "HTTPS://CHARTS.EXAMPLE:443/stable/web-1.0.0.tgz",
        "https://user:password@charts.example./stable//web",
        "https://charts.example/x/../stable/web?v=1",
        "https://charts.example/%73table/web",
        "https://charts.example/stable/%3F/web",
        "https://charts.example\\stable\\web",
        "https://charts.example/x/%2e%2e/stable/web",
        "https://charts.example/x%2f..%2fstable/web",
        " https://charts.example/stable/web",
        "oci://registry.example/charts/web",
        "oci://Registry.example:443/charts/web:1.0.0",
        "oci://registry.example/charts/web:1.0.0@sha256:00",
        "https://registry.example/v2/charts/web/blobs/sha256:00",
        "http://registry.example/x/..//v2/charts/%77eb/manifests/1.0.0",
    ] {
        assert!(is_about(&policy, address), "{address}");
    }
    for address in [
        "https://charts.example/other/web",
        "oci://registry.example/charts/deep/web",
        "https://registry.example/v2/charts/deep/web/blobs/sha256:00",
        "https://registry.example/v2/blobs/sha256:00",
    ] {
        assert!(!is_about(&policy, address), "{address}");
    }
}

#[test]
fn charts_that_no_rule_is_about_may_be_refused() {
    let policy = Policy::parse("unmatched: refuse\ncontent: refuse\n").unwrap();
    assert!(policy.refuses_content());
    let subject = pulled("127.0.0.1:5599/charts/web");
    policy.demands(&subject, None).unwrap_err();
    // What a bundle asks for does not stand in for the policy.
    let own = json!({"digests": [subject.archive]}).to_string();
    let own = BundleRule::parse(&own).unwrap();
    policy.demands(&subject, Some(&own)).unwrap_err();
}

#[rstest]
#[case("rules: [{name: a, sources: ['oci://**']}]", "rules[0]: it asks for nothing")]
#[case(
    "rules: [{name: a, sources: ['registry/**'], digests: []}]",
    "a pattern begins with a scheme"
)]
#[case("rules: [{name: a, signedby: []}]", "unknown field `signedby`")]
#[case("rules: [{digests: ['sha256:12']}]", "digests[0]: a digest is sha256:")]
#[case("rules: []\nrules: []", "already set in map")]
#[case("unmatched: deny", "unknown variant `deny`")]
#[case("", "it is empty")]
#[case("# nothing", "it is empty")]
#[case("rules: []\n---\nunmatched: refuse", "more than one document")]
#[case("---\n---\nunmatched: refuse", "more than one document")]
#[case(
    "rules: [{name: a, sources: ['oci://r/**'], digests: ['sha256:12'], signedBy: }]",
    "invalid type: null"
)]
#[case("rules: [{name: a, sources: [], digests: ['sha256:12']}]", "sources: it is empty")]
#[case(
    "rules: [{name: a, sources: ['https://h/my%20charts/**'], digests: ['sha256:12']}]",
    "a pattern has no user"
)]
#[case(
    "rules: [{name: a, sources: ['https://user@h/**'], digests: ['sha256:12']}]",
    "a pattern has no user"
)]
#[case("rules: [{name: a, signedBy: [{}]}]", "either cosign or provenance")]
#[case("rules: [{name: a, signedBy: [{cosign: {publicKey: x}}]}]", "signedBy[0].cosign.publicKey")]
#[case(
    "rules: [{name: a, signedBy: [{cosign: {identity: a@b, issuer: c}}]}]",
    "trustedRoot, is expected"
)]
#[case(
    "rules: [{name: a, signedBy: [{provenance: {keyring: ''}}]}]",
    "provenance.keyring: the keyring has no public key"
)]
fn a_policy_that_is_malformed_is_none(#[case] policy: &str, #[case] reported: &str) {
    let error = Policy::parse(policy).unwrap_err().to_string();
    assert!(error.contains(reported), "{error}");
}

#[test]
fn a_pattern_is_about_the_address_that_it_is() {
    let zeros = format!("sha256:{}", "0".repeat(64));
    for (pattern, address) in [
        (
            "oci://registry.example:443/charts/**",
            "oci://registry.example/charts/web",
        ),
        ("http://h.example:80/**", "http://h.example/web"),
        (
            "https://B\u{fc}cher.example./**",
            "https://xn--bcher-kva.example/web",
        ),
        (
            "oci://docker.io/acme/**",
            "oci://index.docker.io/acme/web:1.0.0",
        ),
        (
            "oci://registry-1.docker.io/acme/**",
            "oci://docker.io/acme/web",
        ),
        ("https://h.example/**", "http://h.example/web"),
        ("https://h.example/?é/*", "https://h.example/aé/web"),
        (
            "oci://docker.io/acme/*",
            "https://registry-1.docker.io/v2/acme/web/blobs/sha256:00",
        ),
    ] {
        let rule = json!({"name": "r", "sources": [pattern], "digests": [zeros]});
        let policy = Policy::parse(&json!({"rules": [rule]}).to_string()).unwrap();
        assert!(is_about(&policy, address), "{pattern}");
    }
}

#[test]
fn an_address_of_which_rules_know_nothing_is_refused() {
    let policy = about(json!(["https://charts.example/**"])).unwrap();
    for address in [
        "data:text/plain,x",
        "file:///web.tgz",
        "oci:registry.example/web",
        "s3://bucket/web",
    ] {
        let refusal = policy.demands(&fetched_from(address), None).unwrap_err();
        assert_eq!(refusal.unmet[0].rule, "unmatched", "{address}");
        let nothing_asked = Policy::default();
        let demands = nothing_asked.demands(&fetched_from(address), None).unwrap();
        assert!(demands.are_none(), "{address}");
    }
    policy.demands(&Subject::default(), None).unwrap_err();
}

#[rstest]
#[case::no_path("https://charts.example")]
#[case::no_path_of_a_registry("oci://registry.example")]
#[case::no_path_behind_a_pattern("oci://*.example")]
#[case::a_slash_at_the_end("oci://registry.example/charts/")]
#[case::a_slash_alone("https://charts.example/")]
#[case::a_scheme_that_is_none("htps://charts.example/**")]
#[case::a_scheme_among_others("{https,htps}://charts.example/**")]
#[case::another_scheme("docker://registry.example/**")]
#[case::no_host("https:///charts/**")]
#[case::an_empty_label("https://*..example/**")]
#[case::a_label_that_no_host_has("https://*.b\u{fc}cher*.example/**")]
#[case::a_port_that_is_none("oci://*.example:http/**")]
#[case::a_port_too_high("oci://*.example:70000/**")]
#[case::capitals("oci://registry.example/Charts/**")]
#[case::a_sign_that_no_repository_has("oci://registry.example/my charts/*")]
#[case::one_of_two("oci://registry.example/{charts,Charts}/*")]
#[case::braces_that_are_not_closed("https://{a,b.example/**")]
fn a_pattern_that_no_address_can_match_is_no_pattern(#[case] pattern: &str) {
    let error = about(json!(["oci://r.example/**", pattern])).unwrap_err();
    assert_eq!(error.at, "rules[0].sources[1]", "{error}");
}

#[rstest]
#[case::a_default_port("oci://*.example:443/**", "oci://r.example/charts/web")]
#[case::a_default_port_of_http("http://*.example:80/**", "http://h.example/web")]
#[case::another_port("oci://*.example:5000/**", "oci://r.example:5000/charts/web")]
#[case::any_port("oci://r.example:*/**", "oci://r.example:5000/charts/web")]
#[case::a_dot_at_the_end("https://*.example./**", "https://h.example/web")]
#[case::no_ascii("https://*.B\u{fc}cher.example/**", "https://h.xn--bcher-kva.example/web")]
#[case::numbers("https://10.0.*.*/**", "https://10.0.3.4/web")]
#[case::hosts_in_braces("https://{a,B\u{fc}cher}.example/**", "https://xn--bcher-kva.example/web")]
#[case::schemes_in_braces("{oci,https}://h.example/**", "oci://h.example/web")]
#[case::whole_addresses_in_braces(
    "{oci://r.example,https://{g,h}.example/x}/**",
    "https://h.example/x/web"
)]
#[case::any_scheme("*://h.example/**", "oci://h.example/web")]
#[case::any_scheme_that_has_capitals("*://h.example/Charts/**", "https://h.example/Charts/web")]
#[case::any_scheme_that_has_a_plus(
    "*://h.example/web-1.0.0+b.tgz",
    "http://h.example/web-1.0.0+b.tgz"
)]
#[case::everything("https://**", "https://h.example/x/web")]
#[case::everything_of_hosts("oci://*.example**", "oci://r.example/charts/web")]
#[case::dockers_own("oci://*.docker.io/acme/*", "oci://registry-1.docker.io/acme/web")]
#[case::a_tag("oci://r.example/charts/web:1.0.0-RC*", "oci://r.example/charts/web:1.0.0-RC1")]
#[case::plain_http("oci://r.example:80/charts/*", "oci://r.example/charts/web")]
#[case::plain_http_everywhere("oci://*.example:80/charts/*", "oci://r.example/charts/web")]
fn a_pattern_is_read_as_addresses_are(#[case] pattern: &str, #[case] address: &str) {
    let policy = about(json!([pattern])).unwrap_or_else(|error| panic!("{error}"));
    assert!(is_about(&policy, address));
    assert!(!is_about(&policy, "https://elsewhere.test/web") || pattern == "https://**");
}

#[test]
fn a_registry_by_plain_http_is_the_same_one() {
    let policy = about(json!(["oci://registry.example/charts/**"])).unwrap();
    for address in [
        "oci://registry.example:80/charts/web:1.0.0",
        "http://registry.example:80/v2/charts/web/blobs/sha256:00",
        "https://registry.example:80/v2/charts/web/blobs/sha256:00",
    ] {
        assert!(is_about(&policy, address), "{address}");
    }
    assert!(!is_about(&policy, "oci://registry.example:5000/charts/web"));
}
