//! What a registry says of a failure, as errors quote it: without what it was shown, which a server may repeat to whoever reads the error.

use serde::Deserialize;
use serde_json::Value;

use super::super::credentials::ShownSecrets;

/// A longer body is no error's.
const MAX_BODY_BYTES: usize = 64 << 10;

/// So many characters of a text are quoted.
const MAX_QUOTED: usize = 200;

/// A text of a registry's, without secrets and control characters, cut short.
pub(super) fn quoted(text: &str, shown: &ShownSecrets) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    shown.redact(&text).chars().take(MAX_QUOTED).collect()
}

/// What the first error of a registry's answer says besides code and message, as `: detail`, cut short.
pub(super) fn detail(body: &[u8], shown: &ShownSecrets) -> String {
    let body: Value = match body.len() {
        ..=MAX_BODY_BYTES => serde_json::from_slice(body).unwrap_or_default(),
        _ => Value::Null,
    };
    match &body["errors"][0]["detail"] {
        Value::Null => String::new(),
        detail => {
            format!(": {}", quoted(&golib::json::go_text(detail), shown))
        }
    }
}

/// The first error of a registry's answer as `: code: message`, cut short.
pub(super) fn message(body: &[u8], shown: &ShownSecrets) -> String {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<One>,
    }
    #[derive(Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct One {
        code: String,
        message: String,
    }
    if body.len() > MAX_BODY_BYTES {
        return String::new();
    }
    let Ok(Errors { errors }) = serde_json::from_slice(body) else {
        return String::new();
    };
    let Some(One { code, message }) = errors.into_iter().next() else {
        return String::new();
    };
    let code = quoted(&code, shown).to_ascii_lowercase().replace('_', " ");
    let text = [code, quoted(&message, shown)].join(": ");
    let text = text.trim_matches([':', ' ']);
    let text: String = text.chars().take(MAX_QUOTED).collect();
    if text.is_empty() {
        text
    } else {
        format!(": {text}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::credentials::Credentials;
    use super::*;

    fn message(body: &[u8]) -> String {
        super::message(body, &ShownSecrets::default())
    }

    fn detail(body: &[u8]) -> String {
        super::detail(body, &ShownSecrets::default())
    }

    #[test]
    fn error_bodies_are_quoted_briefly() {
        let body = br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
        assert_eq!(message(body), ": manifest unknown: manifest unknown");
        assert_eq!(message(b"<html>"), "");
        assert_eq!(detail(b"<html>"), "");
        let body = br#"{"errors":[{"code":"X","detail":{"name":"a/b","n":[1]}}]}"#;
        assert_eq!(detail(body), ": map[n:[1] name:a/b]");
        assert_eq!(message(br#"{"errors":[]}"#), "");
        let long = format!(
            r#"{{"errors":[{{"code":"X","message":"{}"}}]}}"#,
            "y".repeat(9000)
        );
        assert!(message(long.as_bytes()).len() < 300);
        let many = format!(
            r#"{{"errors":[{{"code":"X","detail":[{}1]}}]}}"#,
            "[],".repeat(30_000)
        );
        assert_eq!(
            (message(many.as_bytes()), detail(many.as_bytes())),
            Default::default()
        );
    }

    /// A server that tells a tenant the operator's login.
    #[test]
    fn credentials_echoed_by_a_registry_are_redacted() {
        let login = Credentials::login(
            "robot".into(),
            "can ary-1".into(),
            "canary-2".into(),
            "canary-3".into(),
        );
        let mut shown = ShownSecrets::of(login.as_ref());
        shown.add("canary-4");
        let pair = golib::base64::encode("robot:can ary-1");
        let said = format!(
            "no such login: robot:can ary-1 can+ary-1 CANARY {pair} {} canary-2 canary-3 can\\u0007ary-4",
            pair.trim_end_matches('=')
        );
        // Cut in two by the limit, none is told by half.
        let long = format!("{}can ary-1", "y".repeat(195));
        for text in [said, long] {
            let body = format!(
                r#"{{"errors":[{{"code":"{text}","message":"{text}","detail":{{"a":["{text}"]}}}}]}}"#
            );
            for quoted in [
                super::message(body.as_bytes(), &shown),
                super::detail(body.as_bytes(), &shown),
            ] {
                assert!(!quoted.is_empty());
                for secret in ["can ", "can+", "canary-", pair.trim_end_matches('=')] {
                    assert!(!quoted.contains(secret), "{quoted}");
                }
            }
        }
        let reported = super::message(
            br#"{"errors":[{"code":"X","message":"for robot: can ary-1!"}]}"#,
            &shown,
        );
        assert_eq!(reported, ": x: for robot: **REDACTED**!");
    }
}
