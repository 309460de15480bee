//! What a JSON text comes to when it is decoded, without decoding it.

use crate::budget::Budget;

/// What [`decode_within`](super::decode_within) spends of its budget for a well-formed text, in bytes; never less, and the same where no
/// character is written as `\u1234`. Of a text that is not well-formed it is of no meaning.
///
/// ```
/// use golib::budget::Budget;
/// use golib::json;
///
/// let text = br#"{"a": [{}, {"b": "c\n"}]}"#;
/// let mut budget = Budget::default();
/// json::decode_within(text, &mut budget)?;
/// assert_eq!(json::weigh(text), budget.spent());
/// # Ok::<(), golib::json::Error>(())
/// ```
pub fn weigh(text: &[u8]) -> usize {
    let mut budget = Budget::new(usize::MAX);
    let mut open: Vec<Open> = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'}' | b']' => drop(open.pop()),
            b',' => {
                if let Some(open) = open.last_mut() {
                    open.members += 1;
                    open.is_key_next = open.is_map;
                }
            }
            byte if byte == b':' || byte.is_ascii_whitespace() => {}
            byte => {
                let is_key = open.last_mut().is_some_and(Open::takes_key);
                let spent = match open.last() {
                    Some(open) if is_key => budget.value_entry(open.members),
                    Some(open) if !open.is_map => budget.value(open.members),
                    _ => Ok(()),
                };
                let spent = spent.and_then(|()| match byte {
                    b'{' | b'[' => {
                        open.push(Open {
                            is_map: byte == b'{',
                            is_key_next: byte == b'{',
                            members: 0,
                        });
                        Ok(())
                    }
                    b'"' => budget.text(string(text, &mut at)),
                    // A number or a word.
                    _ => {
                        let rest = text.get(at..).unwrap_or_default();
                        let is_end = |byte: &u8| {
                            matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace()
                        };
                        at += rest.iter().position(is_end).unwrap_or(rest.len());
                        Ok(())
                    }
                });
                if spent.is_err() {
                    return usize::MAX;
                }
            }
        }
    }
    budget.spent()
}

/// A collection that is still open.
struct Open {
    is_map: bool,
    is_key_next: bool,
    /// Complete ones.
    members: usize,
}

impl Open {
    /// Whether what comes is a key; what comes then is its value.
    fn takes_key(&mut self) -> bool {
        std::mem::take(&mut self.is_key_next)
    }
}

/// How long a string is that begins `at`, once it is decoded; `at` is behind it then.
fn string(text: &[u8], at: &mut usize) -> usize {
    let mut length = 0;
    while let Some(&byte) = text.get(*at) {
        *at += 1;
        match byte {
            b'"' => break,
            b'\\' => {
                let is_code = text.get(*at) == Some(&b'u');
                // Half of a pair comes to less.
                length += if is_code { 3 } else { 1 };
                *at += if is_code { 5 } else { 1 };
            }
            _ => length += 1,
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::{decode_within, encode};
    use super::*;

    fn spent(text: &str) -> usize {
        let mut budget = Budget::new(usize::MAX);
        decode_within(text.as_bytes(), &mut budget).unwrap();
        budget.spent()
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~\n\"\\\\é]{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 200, 20, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
                prop::collection::btree_map("[a-z\"]{0,5}", inner, 0..20)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_text_weighs_what_decoding_it_spends(value in values()) {
            let text = encode(&value);
            // What Go writes of `<`, `>` and `&` is a code.
            match text.contains("\\u") {
                true => prop_assert!(weigh(text.as_bytes()) >= spent(&text)),
                false => prop_assert_eq!(weigh(text.as_bytes()), spent(&text)),
            }
            let wide = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(weigh(wide.as_bytes()), spent(&wide));
        }
    }

    #[test]
    fn codes_weigh_no_less_than_what_they_stand_for() {
        for text in [
            r#""\u0000""#,
            r#""\u20ac""#,
            r#""\ud83d\ude00""#,
            r#""\ud83d""#,
        ] {
            assert!(weigh(text.as_bytes()) >= spent(text), "{text}");
        }
    }
}
