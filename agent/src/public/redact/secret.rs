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
        each_base64_within(line, add);
    }
    // In an object that is quoted as JSON.
    let encoded = golib::json::encode(&Value::String(text.to_owned()));
    add(encoded.trim_matches('"'));
}

/// What its base64 has in common wherever it stands in a longer text, as in `user:password`: without the characters at its ends that tell of what is
/// around it, too.
fn each_base64_within(text: &str, add: &mut impl FnMut(&str)) {
    if text.chars().nth(SHORTEST - 1).is_none() {
        return;
    }
    for before in 0..3 {
        let longer = [&[0; 3][..before], text.as_bytes()].concat();
        let encoded = golib::base64::encode(&longer);
        let (begin, end) = ((before * 4).div_ceil(3), longer.len() * 4 / 3);
        for form in [&encoded[begin..end], &encoded[begin..]] {
            add(form);
            // As tokens have it.
            if form.contains(['+', '/']) {
                add(&form.replace('+', "-").replace('/', "_"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use objects::drift::MASK;
    use rstest::rstest;
    use serde_json::json;

    use super::super::SensitiveData;

    /// Wherever a password stands in a text that is encoded as a whole; what is around it tells nothing of it.
    #[rstest]
    #[case::first("hunter2-canary!", "", "kh")]
    #[case::last_in_a_login("u:hunter2-canary", "dTp", "")]
    #[case::last_behind_one_character("xhunter2-canary", "eG", "")]
    #[case::last_in_another_login("us:hunter2-canary", "dXM6", "")]
    #[case::between_others("user:hunter2-canary@db", "dXNlcjp", "UBkYg==")]
    #[case::a_line_of_others("u:second-canary;", "dTp", "Ow==")]
    fn a_password_in_longer_base64_is_masked(
        #[case] text: &str,
        #[case] before: &str,
        #[case] after: &str,
    ) {
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!(["hunter2-canary", "first\n  second-canary\n"]));
        let quoted = format!("bad login: Basic {}", golib::base64::encode(text));
        let masked = format!("bad login: Basic {before}{MASK}{after}");
        assert_eq!(secrets.redact(&quoted), masked);
    }

    #[test]
    fn base64_of_addresses_is_masked_too() {
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!("canary<word>&"));
        let encoded = golib::base64::encode("us:canary<word>&").replace('+', "-");
        assert!(encoded.contains('-'));
        assert_eq!(secrets.redact(&encoded), format!("dXM6{MASK}"));
    }

    #[test]
    fn base64_of_a_short_word_in_a_longer_text_is_no_secret() {
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!("admin"));
        let encoded = golib::base64::encode("is the administrator");
        assert_eq!(secrets.redact(&encoded), encoded);
    }
}
