//! Which keys of values may be secret: the name of an object stands in any message.

use super::limits::SHORTEST;

/// Whether a key has words in it that no name has, and together as long as a secret: of signs that are neither letters nor digits, of many digits, or of
/// both in turn. `nodeSelector`, `kubernetes.io/os`, `http01`, `v1beta1` and `web-01` are names, `sk_live_51H8s9dKf` and `ann@example.com` are none.
pub(super) fn may_be_secret(key: &str) -> bool {
    let words = key.split(|c: char| c.is_whitespace() || "-._/:".contains(c));
    let odd = words.filter(|word| is_odd(word));
    odd.map(|word| word.chars().count()).sum::<usize>() >= SHORTEST
}

fn is_odd(word: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit();
    let digits = word.chars().filter(|c| is_digit(*c)).count();
    let neighbours = word.chars().zip(word.chars().skip(1));
    let turns = neighbours.filter(|(one, next)| is_digit(*one) != is_digit(*next));
    !word.chars().all(char::is_alphanumeric) || digits > 4 || turns.count() > 3
}

/// A key as a JSON pointer has it, where that is another text: errors of schemas name places so.
pub(super) fn in_pointer(key: &str) -> Option<String> {
    let escaped = || key.replace('~', "~0").replace('/', "~1");
    key.contains(['~', '/']).then(escaped)
}

#[cfg(test)]
mod tests {
    use chart::{Chart, File};
    use objects::drift::MASK;
    use rstest::rstest;
    use serde_json::json;

    use super::super::SensitiveData;

    fn redact(text: &str) -> String {
        let values = json!({
            "apiKeys": { "sk_live_51H8s9dKf": "reader", "a1~b2x9/c3d4": 1.0 },
            "users": [{ "ann@example.com": {} }],
            "hosts": { "web1.x7k2m9q4.com": {}, "db.example.com": {} },
            "s3BucketName": "b",
            "oauth2Proxy": { "x509Directory": "c" },
            "solvers": [{ "http01": {} }, { "route53": {} }],
            "digests": { "sha256": "e", "k8sServiceHost": "f", "v1beta1": "g", "log4j2.properties": "h" },
            "pools": { "nvidia.com/mig-3g.20gb": 2.0, "10.0.0.0/8": "i", "node01": "j" },
            "resources": { "limits": { "nvidia.com/gpu": 1.0 }, "requests": {} },
            "nodeSelector": { "kubernetes.io/os": "linux", "k8s-app": "dns", "web-01": "d" },
        });
        let shown = json!({ "hosts": { "web1.x7k2m9q4.com": {} } });
        let chart = Chart {
            values: json!({ "s3BucketName": "" }).into(),
            templates: vec![File::new(
                "templates/t.yaml",
                "{{ .Values.oauth2Proxy.x509Directory }}",
            )]
            .into(),
            ..Chart::default()
        };
        let secrets = SensitiveData::of_values(values.as_object().unwrap(), &chart.into());
        secrets.without(shown.as_object().unwrap()).redact(text)
    }

    #[rstest]
    #[case::in_a_message("no such role: sk_live_51H8s9dKf", "no such role: **REDACTED**")]
    #[case::of_an_object_in_a_list("bad user ann@example.com", "bad user **REDACTED**")]
    #[case::where_something_is(
        "at '/apiKeys/sk_live_51H8s9dKf': got string",
        "at '/apiKeys/**REDACTED**': got string"
    )]
    #[case::where_something_is_escaped(
        "at '/apiKeys/a1~0b2x9~1c3d4'",
        "at '/apiKeys/**REDACTED**'"
    )]
    #[case::encoded("got c2tfbGl2ZV81MUg4czlkS2Y=", "got **REDACTED**")]
    fn a_key_of_values_that_is_no_name_is_masked(#[case] text: &str, #[case] redacted: &str) {
        assert_eq!(redact(text), redacted);
        assert_eq!(MASK, "**REDACTED**");
    }

    /// A Secret of accounts may have their names as keys.
    #[test]
    fn a_key_of_a_secrets_data_is_masked_as_one_of_values_is() {
        let object = json!({
            "kind": "Secret",
            "data": { "sk_live_51H8s9dKf": "eA==", "tls.crt": "eA==" },
            "stringData": { "a1b2x9c3d4": "x" },
        });
        let mut secrets = SensitiveData::default();
        secrets.add_object(&object);
        let text = secrets.redact("data[sk_live_51H8s9dKf], tls.crt, stringData.a1b2x9c3d4");
        assert_eq!(text, "data[**REDACTED**], tls.crt, stringData.**REDACTED**");
    }

    #[rstest]
    #[case::words("spec.resources.limits[nvidia.com/gpu]: exceeds requests, nodeSelector")]
    #[case::labels("metadata.labels[kubernetes.io/os], k8s-app, web-01: not found")]
    #[case::with_digits(
        "spec.acme.solvers[0].http01.ingress, route53, sha256, k8sServiceHost, v1beta1, log4j2.properties"
    )]
    #[case::of_resources("nvidia.com/mig-3g.20gb of node01 in 10.0.0.0/8")]
    #[case::of_the_charts_values("s3BucketName is required")]
    #[case::of_its_templates("oauth2Proxy has no x509Directory")]
    #[case::of_the_spec("no route to web1.x7k2m9q4.com")]
    fn ordinary_names_among_keys_are_not_masked(#[case] text: &str) {
        assert_eq!(redact(text), text);
    }
}
