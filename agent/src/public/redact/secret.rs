//! One thing that may be secret, and the forms in which a text may quote it.

use serde_json::{Number, Value};

/// Shorter texts are no secrets but words, and redacting them would spoil every message.
pub(super) const SHORTEST: usize = 6;

/// Go's YAML decoder quotes so much of what it cannot use.
const GO_QUOTED: usize = 7;

/// The longest text that is looked for as addresses have it, in bytes.
const MOST_ESCAPED: usize = 1 << 10;

/// What Go leaves as it is, besides letters, digits and `-_.~`: in a query, a path and a login.
const KEPT_IN_ADDRESSES: [&str; 3] = ["", "$&+=:@", "$&+,;="];

fn escaped(text: &str, kept: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        let sign = char::from(byte);
        match sign.is_ascii_alphanumeric() || "-_.~".contains(sign) || kept.contains(sign) {
            true => escaped.push(sign),
            false => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

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
                let printed = printed(number).into_iter();
                let printed = printed.filter(|text| text.len() >= SHORTEST);
                printed.for_each(|text| each_form_of(&text, &mut add));
            }
            Self::Text(text) => each_form_of(text, &mut add),
        }
    }
}

/// The texts that templates and we make of a number, which is a float in all values: with an exponent or plainly, as an integer or with its fraction.
fn printed(number: &Number) -> Vec<String> {
    let mut texts = vec![
        number.to_string(),
        golib::json::encode(&Value::Number(number.clone())),
    ];
    if let Some(number) = number.as_f64() {
        for number in [number, number.trunc()] {
            let formats = [(b'g', -1), (b'f', -1), (b'f', 0)];
            texts.extend(formats.map(|(format, precision)| {
                golib::strconv::format_float(number, format, precision, 64)
            }));
        }
    }
    texts.sort_unstable();
    texts.dedup();
    texts
}

fn each_form_of(text: &str, add: &mut impl FnMut(&str)) {
    add(&golib::base64::encode(text));
    add(text);
    // In an address. Longer ones stand in none.
    if text.len() <= MOST_ESCAPED {
        for kept in KEPT_IN_ADDRESSES {
            let form = escaped(text, kept);
            if form != *text {
                add(&form);
                add(&form.replace("%20", "+"));
            }
        }
    }
    for line in text.lines() {
        let line = line.trim();
        add(line);
        // Without the signs YAML reads as its own: `*anchor`, `&tag`, quotes.
        add(line.trim_matches(|c: char| !c.is_alphanumeric()));
        let quoted = golib::strconv::quote(line);
        add(quoted.trim_matches('"'));
    }
    // In an object that is quoted as JSON.
    let encoded = golib::json::encode(&Value::String(text.to_owned()));
    add(encoded.trim_matches('"'));
}
