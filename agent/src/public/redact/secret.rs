//! One thing that may be secret, and the forms in which a text may quote it.

use serde_json::{Number, Value};

/// Shorter texts are no secrets but words, and redacting them would spoil every message.
pub(super) const SHORTEST: usize = 6;

/// Go's YAML decoder quotes so much of what it cannot use.
const GO_QUOTED: usize = 7;

/// Something that may be secret, as it came.
pub(super) enum Secret {
    Text(String),
    Number(Number),
}

impl Secret {
    /// All forms that it may be quoted in, one by one.
    pub(super) fn each_form(&self, mut take: impl FnMut(&str)) {
        let mut add = |form: &str| {
            if form.chars().nth(SHORTEST - 1).is_none() {
                return;
            }
            take(form);
            if let Some((end, _)) = form.char_indices().nth(GO_QUOTED) {
                take(&format!("{}...", &form[..end]));
            }
        };
        match self {
            Self::Number(number) => {
                add(&number.to_string());
                // As templates print it.
                if let Some(number) = number.as_f64() {
                    add(&golib::strconv::format_float(number, b'g', -1, 64));
                }
            }
            Self::Text(text) => {
                add(&golib::base64::encode(text));
                add(text);
                for line in text.lines() {
                    let line = line.trim();
                    add(line);
                    // Without the signs YAML reads as its own: `*anchor`, `&tag`, quotes.
                    add(line.trim_matches(|c: char| !c.is_alphanumeric()));
                    let quoted = golib::strconv::quote(line);
                    add(quoted.trim_matches('"'));
                }
                // In an object that is quoted as JSON.
                let encoded = golib::json::encode(&Value::String(text.clone()));
                add(encoded.trim_matches('"'));
            }
        }
    }
}
