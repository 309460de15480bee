//! Masking what is secret in a text, or in all texts of a value, once it is known where that stands.

use objects::drift::MASK;
use serde_json::Value;

/// Where secrets stand in a text, which is gone through from its beginning.
pub(super) struct Masks {
    places: std::iter::Peekable<std::vec::IntoIter<(usize, usize)>>,
    at: usize,
}

impl Masks {
    pub(super) fn at(places: Vec<(usize, usize)>) -> Self {
        Self {
            places: merged(places).into_iter().peekable(),
            at: 0,
        }
    }

    /// Whether no place is masked from here on.
    pub(super) fn is_empty(&mut self) -> bool {
        self.places.peek().is_none()
    }

    /// The next piece of the text, without what is secret in it.
    pub(super) fn take(&mut self, piece: &str) -> String {
        let (from, to) = (self.at, self.at + piece.len());
        let (mut redacted, mut rest) = (String::with_capacity(piece.len()), from);
        while let Some((begin, end)) = self.places.next_if(|(begin, _)| *begin < to) {
            redacted.push_str(&piece[rest - from..begin.max(rest) - from]);
            redacted.push_str(MASK);
            rest = end.min(to).max(rest);
        }
        redacted.push_str(&piece[rest - from..]);
        // Behind the sign that is between two of them.
        self.at = to + 1;
        redacted
    }

    /// In the order in which [`collect`] has them.
    pub(super) fn redact_value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.take(text),
            Value::Number(number) => {
                let text = number.to_string();
                let redacted = self.take(&text);
                if redacted != text {
                    *value = Value::String(redacted);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(fields) => {
                let mut count = 1;
                for (key, mut field) in std::mem::take(fields) {
                    let masked = self.take(&key);
                    self.redact_value(&mut field);
                    // Other keys may be masked to the same text: none replaces another.
                    let mut key = masked.clone();
                    while fields.contains_key(&key) {
                        count += 1;
                        key = format!("{masked} {count}");
                    }
                    fields.insert(key, field);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
}

/// Merges overlapping places, and sorts them.
pub(super) fn merged(mut places: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    places.sort_unstable();
    places.dedup_by(|next, before| {
        let is_one = next.0 < before.1;
        if is_one {
            before.1 = before.1.max(next.1);
        }
        is_one
    });
    places
}

/// Every text of a value, with a sign between them that none has.
pub(super) fn collect(value: &Value, texts: &mut String) {
    let mut add = |text: &str| {
        texts.push_str(text);
        texts.push('\0');
    };
    match value {
        Value::String(text) => add(text),
        Value::Number(number) => add(&number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(fields) => {
            for (key, field) in fields {
                texts.push_str(key);
                texts.push('\0');
                collect(field, texts);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}
