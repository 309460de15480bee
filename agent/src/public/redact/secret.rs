//! One thing that may be secret, and what of it a text may quote.

use serde_json::Number;

/// Shorter texts are no secrets but words, and redacting them would spoil every message.
pub(super) const SHORTEST: usize = 6;

/// Something that may be secret, as it came.
pub(super) enum Secret {
    Text(String),
    Number(Number),
}

impl Secret {
    /// What a text may have of it, one by one, as it is or encoded.
    pub(super) fn each_form(&self, mut take: impl FnMut(&str)) {
        let mut add = |form: &str| {
            if form.chars().nth(SHORTEST - 1).is_some() {
                take(form);
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
                // That of a short one, or its beginning, tells something, too.
                add(&golib::base64::encode(text));
                add(text);
                for line in text.lines() {
                    let line = line.trim();
                    // Without the signs YAML reads as its own: `*anchor`, `&tag`, quotes.
                    let bare = line.trim_matches(|c: char| !c.is_alphanumeric());
                    if line != text {
                        add(line);
                    }
                    if bare != line {
                        add(bare);
                    }
                }
            }
        }
    }
}
