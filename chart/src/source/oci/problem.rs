//! What a registry says of a failure, as errors quote it.

use serde::Deserialize;
use serde_json::Value;

use crate::go_format;

/// A longer body is no error's.
const MAX_BODY_BYTES: usize = 64 << 10;

/// What the first error of a registry's answer says besides code and message, as `: detail`, cut short.
pub(super) fn detail(body: &[u8]) -> String {
    let body: Value = match body.len() {
        ..=MAX_BODY_BYTES => serde_json::from_slice(body).unwrap_or_default(),
        _ => Value::Null,
    };
    match &body["errors"][0]["detail"] {
        Value::Null => String::new(),
        detail => {
            let text = go_format::value(detail);
            let text = text.chars().filter(|c| !c.is_control()).take(200);
            format!(": {}", text.collect::<String>())
        }
    }
}

/// The first error of a registry's answer as `: code: message`, cut short.
pub(super) fn message(body: &[u8]) -> String {
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
    let text = [code.to_ascii_lowercase().replace('_', " "), message].join(": ");
    let text: String = text
        .trim_matches([':', ' '])
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect();
    if text.is_empty() {
        text
    } else {
        format!(": {text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
