//! Details that a status shows of an object: why it is not ready, in words of its own conditions, and how it differs from what is wanted.

use std::fmt;

use objects::drift::MASK;
use serde_json::{Map, Value};

use super::{MAX_TEXT_BYTES, SensitiveData};
use crate::api::{ModifiedStatus, NonReadyStatus};
use crate::public::{PublicText, cut};

/// The most that one detail may take, in bytes: a patch, the messages of an object.
pub const MAX_DETAIL_BYTES: usize = 16 << 10;

/// The most that the name of a state may take: it may be any text of the object's.
const MAX_STATE_BYTES: usize = 1 << 10;

/// A detail without what is secret: only [`SensitiveData`] makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct RedactedDetail<T>(T);

impl<T> RedactedDetail<T> {
    /// The detail, for a status.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T: fmt::Display> RedactedDetail<T> {
    /// The words for it.
    pub fn text(&self) -> PublicText {
        PublicText::of_redacted(self.0.to_string())
    }
}

impl SensitiveData {
    /// Why an object is not ready: a condition may quote what the object was made of.
    pub fn redact_not_ready(&self, mut entry: NonReadyStatus) -> RedactedDetail<NonReadyStatus> {
        let summary = &mut entry.summary;
        let mut texts = std::mem::take(&mut summary.message);
        texts.insert(0, std::mem::take(&mut summary.state));
        let mut redacted = self.redact_all(&texts).into_iter();
        summary.state = cut(redacted.next().unwrap_or_default(), MAX_STATE_BYTES);
        // Upstream has states in small letters, which secrets are not.
        let state = summary.state.split(MASK).map(str::to_lowercase);
        summary.state = state.collect::<Vec<_>>().join(MASK);
        summary.message = redacted.collect();
        cut_messages(&mut summary.message);
        RedactedDetail(entry)
    }

    /// How an object differs: a list is replaced whole, and may have a password beside what was edited.
    pub fn redact_modified(&self, mut entry: ModifiedStatus) -> RedactedDetail<ModifiedStatus> {
        let patch = &mut entry.patch;
        if patch.len() > MAX_TEXT_BYTES || self.are_some_unknown {
            *patch = outline(patch);
        }
        match serde_json::from_str(patch) {
            Ok(mut value) => {
                self.redact_value(&mut value);
                *patch = golib::json::encode(&value);
            }
            Err(_) => *patch = self.redact(patch),
        }
        if patch.len() > MAX_DETAIL_BYTES {
            *patch = outline(patch);
        }
        RedactedDetail(entry)
    }
}

/// Cuts the messages of an object to what they may take together.
fn cut_messages(messages: &mut Vec<String>) {
    let mut left = MAX_DETAIL_BYTES;
    messages.retain_mut(|message| {
        if left == 0 {
            return false;
        }
        *message = cut(std::mem::take(message), left.max(3));
        left = left.saturating_sub(message.len() + 1);
        true
    });
}

/// Shown in place of a patch that is too long: its fields, without their values.
fn outline(patch: &str) -> String {
    const FIELDS: usize = 50;
    const NAME: usize = 100;
    let Ok(Value::Object(patch)) = serde_json::from_str(patch) else {
        return "{}".to_owned();
    };
    let shape = |value: &Value| match value {
        Value::Object(map) => {
            let count = format!("{} fields", map.len());
            Value::Object(Map::from_iter([("...".to_owned(), count.into())]))
        }
        _ => "...".into(),
    };
    let fields = patch.iter().take(FIELDS).map(|(name, value)| {
        // Not cut: what is left of one might be the beginning of a secret.
        let name = if name.len() > NAME { "..." } else { name };
        (name.to_owned(), shape(value))
    });
    Value::Object(fields.collect()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Summary;
    use serde_json::json;

    fn secrets() -> SensitiveData {
        let mut secrets = SensitiveData::default();
        let data = json!({ "a": "canary-password", "b": "canary line, and a long one" });
        secrets.add_object(&json!({ "kind": "Secret", "stringData": data }));
        secrets
    }

    fn modified(patch: &str) -> String {
        let entry = ModifiedStatus {
            patch: patch.to_owned(),
            ..Default::default()
        };
        secrets().redact_modified(entry).into_inner().patch
    }

    #[test]
    fn a_patch_with_a_whole_list_shows_no_password() {
        let patch = r#"{"spec":{"containers":[{"env":[{"name":"DB","value":"canary-password"}],"image":"web:2"}]}}"#;
        assert_eq!(modified(patch), patch.replace("canary-password", MASK));
        assert_eq!(modified(""), "");
    }

    #[test]
    fn keys_that_are_masked_alike_stay_apart() {
        let mut secrets = secrets();
        secrets.add_value(&json!(["canary-one", "canary-two", "canary-three"]));
        let patch = json!({
            "data": { "canary-one": 1, "canary-three": "canary-one", "canary-two": { "x": 2 }, "z": 3 },
        });
        let entry = ModifiedStatus {
            patch: patch.to_string(),
            ..Default::default()
        };
        let redacted = secrets.redact_modified(entry).into_inner().patch;
        let expected = json!({
            "data": { MASK: 1, format!("{MASK} 2"): MASK, format!("{MASK} 3"): { "x": 2 }, "z": 3 },
        });
        assert_eq!(redacted, golib::json::encode(&expected));
    }

    #[test]
    fn a_long_patch_is_cut_to_its_field_names_without_secrets() {
        let long = "x".repeat(MAX_TEXT_BYTES);
        let name = format!("{}canary-password", "n".repeat(90));
        let patch = json!({ "a": { "b": long }, "canary-password": 1, name: 2 });
        let redacted = modified(&patch.to_string());
        assert_eq!(
            redacted,
            json!({ "...": "...", "a": { "...": "1 fields" }, MASK: "..." }).to_string()
        );
        // A patch that is long only once it is redacted.
        let many = format!("{{\"a\":[{}\"\"]}}", "\"canary-password\",".repeat(1_700));
        assert!(many.len() < MAX_TEXT_BYTES);
        let redacted = modified(&many);
        assert!(redacted == r#"{"a":"..."}"# && redacted.len() <= MAX_DETAIL_BYTES);
    }

    #[test]
    fn messages_of_a_condition_are_redacted_of_secrets_they_quote() {
        let redacted = |state: &str, message: &[&str]| {
            let entry = NonReadyStatus {
                summary: Summary {
                    state: state.to_owned(),
                    message: message.iter().map(|&one| one.to_owned()).collect(),
                    ..Summary::default()
                },
                ..NonReadyStatus::default()
            };
            let redacted = secrets().redact_not_ready(entry);
            assert!(!redacted.text().contains("canary"), "{}", &*redacted.text());
            redacted.into_inner().summary
        };
        let quoted = "Invalid value: \"canary-password\"";
        let summary = redacted("canary-password", &["one", quoted]);
        let quoted = quoted.replace("canary-password", MASK);
        assert_eq!(
            (&*summary.state, summary.message),
            (MASK, vec!["one".to_owned(), quoted])
        );
        assert_eq!(redacted("state", &[]).message, [""; 0]);
        // One text's quotes say nothing of another's.
        let looked_up = SensitiveData {
            are_some_unknown: true,
            ..SensitiveData::default()
        };
        let entry = NonReadyStatus {
            summary: Summary {
                state: "state".to_owned(),
                message: ["a 5\" disk", "got \"canary\"", "\"ca\0nary\" it", "well"]
                    .map(str::to_owned)
                    .into(),
                ..Summary::default()
            },
            ..NonReadyStatus::default()
        };
        let unquoted = looked_up.redact_not_ready(entry).into_inner().summary;
        assert_eq!(
            unquoted.message,
            [MASK, &format!("got {MASK}"), &format!("{MASK} it"), "well"]
        );
        // In capitals it is the secret still.
        let mut capitals = SensitiveData::default();
        capitals.add_value(&json!("Canary-Password"));
        let entry = NonReadyStatus {
            summary: Summary {
                state: "In Canary-Password".to_owned(),
                ..Summary::default()
            },
            ..NonReadyStatus::default()
        };
        let redacted_state = capitals.redact_not_ready(entry).into_inner().summary.state;
        assert_eq!(redacted_state, format!("in {MASK}"));
        // Cut in the middle of a secret, none of that is told.
        let secret = "canary line, and a long one";
        for begun in (1..secret.len()).step_by(5) {
            let long = "x".repeat(MAX_TEXT_BYTES - "state\0".len() - begun) + secret;
            redacted("state", &[&long]);
            let near = "x".repeat(MAX_DETAIL_BYTES - begun) + secret + secret;
            redacted("state", &[&near, "more"]);
        }
    }
}
