//! The ways in which a text may be read: as it stands there, and without the escapes in which it may quote something, whoever wrote them.

/// How often something may be quoted within what is quoted: JSON in JSON in a text that Go quotes.
const DEPTH: usize = 3;

/// HTML's named characters, besides their numbers.
const ENTITIES: [(&[u8], u8); 5] = [
    (b"&lt;", b'<'),
    (b"&gt;", b'>'),
    (b"&amp;", b'&'),
    (b"&quot;", b'"'),
    (b"&apos;", b'\''),
];

/// A text decoded in one way, with the place of each byte in the original.
pub(super) struct Reading {
    pub(super) bytes: Vec<u8>,
    /// The place of each byte in the original text.
    pub(super) spans: Vec<(usize, usize)>,
}

/// What an escape stands for.
pub(super) enum Sign {
    Byte(u8),
    Char(char),
    Nothing,
}

impl Reading {
    /// Each byte has the place of its whole sign: what is decoded may end within one, and no place does.
    pub(super) fn plain(text: &str) -> Self {
        let spans = text.char_indices().flat_map(|(at, sign)| {
            let span = (at, at + sign.len_utf8());
            std::iter::repeat_n(span, sign.len_utf8())
        });
        Self {
            bytes: text.as_bytes().to_vec(),
            spans: spans.collect(),
        }
    }

    /// This, and what it is without quoting, as often as that is another text.
    pub(super) fn unquoted(self) -> Vec<Self> {
        let mut all = vec![self];
        while let Some(next) = all.last().and_then(|last| last.read(quoted)) {
            all.push(next);
            if all.len() > DEPTH {
                break;
            }
        }
        all
    }

    /// The text with its escapes replaced, if it has any. `escape` also gives the length of each escape.
    pub(super) fn read(&self, escape: impl Fn(&[u8]) -> Option<(Sign, usize)>) -> Option<Self> {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        let (mut at, mut has_some) = (0, false);
        while let Some(byte) = self.bytes.get(at) {
            let Some((sign, length)) = escape(&self.bytes[at..]) else {
                bytes.push(*byte);
                spans.push(self.spans[at]);
                at += 1;
                continue;
            };
            match sign {
                Sign::Byte(byte) => bytes.push(byte),
                Sign::Char(c) => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
                Sign::Nothing => {}
            }
            let span = (self.spans[at].0, self.spans[at + length - 1].1);
            spans.resize(bytes.len(), span);
            at += length;
            has_some = true;
        }
        has_some.then_some(Self { bytes, spans })
    }
}

/// A text without the escapes in which Go, JSON and YAML quote it.
pub(super) fn unescaped(text: &str) -> String {
    match Reading::plain(text).read(quoted) {
        Some(read) => String::from_utf8_lossy(&read.bytes).into_owned(),
        None => text.to_owned(),
    }
}

/// An escape of Go, JSON, JavaScript, Rust or YAML, in double or single quotes, or of HTML. Nothing is read of one in which the text ends.
pub(super) fn quoted(rest: &[u8]) -> Option<(Sign, usize)> {
    let (kind, behind) = match rest {
        [b'\\'] => return Some((Sign::Nothing, 1)),
        [b'\\', kind, behind @ ..] => (*kind, behind),
        [b'\'', b'\'', ..] => return Some((Sign::Byte(b'\''), 2)),
        [b'&', ..] => return entity(rest),
        _ => return None,
    };
    let byte = match kind {
        b'a' => 7,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 11,
        b'f' => 12,
        b'r' => b'\r',
        b'e' => 27,
        b'0' => 0,
        b'"' | b'\'' | b'\\' | b'/' | b'`' | b' ' => kind,
        b'\n' => {
            let blanks = behind
                .iter()
                .take_while(|&&next| next == b' ' || next == b'\t');
            return Some((Sign::Nothing, 2 + blanks.count()));
        }
        b'x' => {
            let (number, length) = coded(behind, 2)?;
            let byte = number.and_then(|number| u8::try_from(number).ok());
            return Some((byte.map_or(Sign::Nothing, Sign::Byte), 2 + length));
        }
        b'u' => return in_braces(behind).or_else(|| in_sixteen_bits(behind)),
        b'U' => {
            let (number, length) = coded(behind, 8)?;
            return Some((character(number), 2 + length));
        }
        _ => return None,
    };
    Some((Sign::Byte(byte), 2))
}

/// Reads the digits behind `\u`, as Go and JSON have them.
fn in_sixteen_bits(behind: &[u8]) -> Option<(Sign, usize)> {
    let (first, length) = coded(behind, 4)?;
    let alone = Some((character(first), 2 + length));
    let cut = Some((Sign::Nothing, 2 + behind.len()));
    let Some(high) = first.filter(|first| (0xD800..0xDC00).contains(first)) else {
        return alone;
    };
    let rest = &behind[length..];
    // Several where it is quoted within what is quoted.
    let signs = backslashes(rest);
    let digits = match rest.get(signs) {
        None => return cut,
        Some(b'u') if signs > 0 => &rest[signs + 1..],
        Some(_) => return alone,
    };
    match coded(digits, 4) {
        Some((None, _)) => cut,
        Some((Some(low), _)) if (0xDC00..0xE000).contains(&low) => {
            let both = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
            Some((character(Some(both)), 2 + length + signs + 1 + 4))
        }
        _ => alone,
    }
}

/// Reads the digits in braces behind `\u`, as Rust has them.
fn in_braces(behind: &[u8]) -> Option<(Sign, usize)> {
    let behind = behind.strip_prefix(b"{")?;
    let digits = behind.iter().take_while(|digit| digit.is_ascii_hexdigit());
    let length = digits.count();
    match behind.get(length) {
        None => Some((Sign::Nothing, 3 + length)),
        Some(b'}') if length <= 6 => {
            let (number, _) = coded(behind, length)?;
            Some((character(number), 3 + length + 1))
        }
        Some(_) => None,
    }
}

pub(super) fn entity(rest: &[u8]) -> Option<(Sign, usize)> {
    let mut all = ENTITIES.iter();
    let known = all.find(|(one, _)| rest.starts_with(one) || one.starts_with(rest));
    let Some((entity, sign)) = known else {
        return numbered(rest);
    };
    Some(match rest.len() < entity.len() {
        true => (Sign::Nothing, rest.len()),
        false => (Sign::Byte(*sign), entity.len()),
    })
}

/// `&#39;` and `&#x27;`.
fn numbered(rest: &[u8]) -> Option<(Sign, usize)> {
    const MOST_DIGITS: usize = 8;
    let behind = rest.strip_prefix(b"&#")?;
    let is_hexadecimal = matches!(behind, [b'x' | b'X', ..]);
    let (before, radix) = if is_hexadecimal { (3, 16) } else { (2, 10) };
    let digits = rest.get(before..)?;
    let is_digit = |digit: &&u8| char::from(**digit).is_digit(radix);
    let length = digits.iter().take(MOST_DIGITS).take_while(is_digit);
    let length = length.count();
    match digits.get(length) {
        None => Some((Sign::Nothing, rest.len())),
        Some(b';') => {
            let number = std::str::from_utf8(&digits[..length]).ok()?;
            let number = u32::from_str_radix(number, radix).ok()?;
            Some((character(Some(number)), before + length + 1))
        }
        Some(_) => None,
    }
}

/// How many of them a text begins with, as far as they are those of one escape.
pub(super) fn backslashes(rest: &[u8]) -> usize {
    const MOST: usize = 64;
    let signs = rest.iter().take(MOST);
    signs.take_while(|sign| **sign == b'\\').count()
}

/// `%3C`.
pub(super) fn in_address(rest: &[u8]) -> Option<(Sign, usize)> {
    let (number, length) = coded(rest.strip_prefix(b"%")?, 2)?;
    let byte = number.and_then(|number| u8::try_from(number).ok());
    Some((byte.map_or(Sign::Nothing, Sign::Byte), 1 + length))
}

fn character(number: Option<u32>) -> Sign {
    match number {
        Some(number) => Sign::Char(char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)),
        None => Sign::Nothing,
    }
}

/// A number of so many hexadecimal digits, if one stands here, and how long it is. There is none yet where the text ends within it.
fn coded(digits: &[u8], count: usize) -> Option<(Option<u32>, usize)> {
    let digits = &digits[..count.min(digits.len())];
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let number = std::str::from_utf8(digits).ok();
    let number = number.filter(|digits| digits.len() == count);
    let number = number.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    Some((number, digits.len()))
}

#[cfg(test)]
mod tests {
    use objects::drift::MASK;
    use rstest::rstest;
    use serde_json::json;

    use super::super::{MAX_TEXT_BYTES, SensitiveData};

    #[rstest]
    #[case::gos_quoted_text(r#""a<ü'\"b\\c\nsecond line""#)]
    #[case::gos_quoted_ascii(r#""a<\u00fc'\"b\\c\nsecond line""#)]
    #[case::gos_quoted_bytes(r#""a<\xc3\xbc'\"b\\c\nsecond line""#)]
    #[case::gos_json(r#""a\u003cü'\"b\\c\nsecond line""#)]
    #[case::json_of_others(r#""a<\u00fc'\"b\\c\nsecond line""#)]
    #[case::javascript(r#""a\u003Cü\'\"b\\c\u000Asecond line""#)]
    #[case::rusts_debug(r#""a<\u{fc}'\"b\\c\nsecond line""#)]
    #[case::a_schemas_single_quotes(r#"'a<ü\'"b\\c\nsecond line'"#)]
    #[case::yamls_double_quotes("\"a<ü'\\\"b\\\\c\\nsecond\n  line\"")]
    #[case::yamls_double_quotes_with_a_blank("\"a<ü'\\\"b\\\\c\\nsecond\\\n  \\ line\"")]
    #[case::json_in_gos_quoted_text(r#""{\"a\":\"a\\u003cü'\\\"b\\\\c\\nsecond line\"}""#)]
    #[case::yamls_single_quotes("'a<ü''\"b\\c\n\n  second\n  line'")]
    #[case::json_in_json_in_gos_quoted_text(
        r#""{\"a\":\"\\\"a\\\\u003cü'\\\\\\\"b\\\\\\\\c\\\\nsecond line\\\"\"}""#
    )]
    #[case::html("a&lt;ü&#39;&#34;b\\c\nsecond line")]
    #[case::an_address("db://a%3C%C3%BC%27%22b%5Cc%0Asecond%20line@db")]
    #[case::an_address_in_small_letters("db://a%3c%c3%bc%27%22b%5cc%0asecond%20line@db")]
    #[case::a_query("db://db?a=a%3C%C3%BC%27%22b%5Cc%0Asecond+line")]
    #[case::an_address_in_json(r#""db://a%3C%C3%BC\u0027%22b%5Cc%0Asecond+line@db""#)]
    fn a_secret_is_masked_however_it_is_quoted(#[case] quoted: &str) {
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!("a<ü'\"b\\c\nsecond line"));
        let redacted = secrets.redact(&format!("Invalid value: {quoted}: it is none"));
        let shown = redacted.strip_prefix("Invalid value: ");
        let shown = shown.and_then(|rest| rest.strip_suffix(": it is none"));
        assert!(
            shown.is_some_and(|shown| shown.contains(MASK)),
            "{redacted}"
        );
        let left = shown.map(|shown| shown.replace(MASK, "").replace("db", ""));
        let signs = |c: char| "\"'\\{}:@/?=a".contains(c);
        assert_eq!(left.unwrap().trim_matches(signs), "", "{redacted}");
    }

    #[rstest]
    #[case::that_are_indented("1234\n5678\n9012\n3456\n7890\n", "a: |\n    ")]
    #[case::that_are_folded(
        "some words of a line that is longer than the eighty columns of YAML, folded there",
        "a: "
    )]
    fn a_secret_is_masked_however_its_lines_are_broken(#[case] secret: &str, #[case] before: &str) {
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!(secret));
        let lines = secret.trim().replace("\n", "\n    ");
        let lines = lines.replace(", folded", ",\n  folded");
        let text = format!("{before}{lines}");
        assert_eq!(secrets.redact(&text), format!("{before}{MASK}"));
        let quoted = golib::strconv::quote(&text);
        let before = golib::strconv::quote(before);
        let expected = format!("{}{MASK}\"", before.trim_end_matches('"'));
        assert_eq!(secrets.redact(&quoted), expected);
    }

    #[test]
    fn the_beginning_of_a_secret_is_masked_though_it_is_cut_within_an_escape() {
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!("canary<\"ü\">canary"));
        for quoted in [
            r#"canary\u003c\"\u00fc\"\u003ecanary"#,
            "canary%3C%22%C3%BC%22%3Ecanary",
            "canary&lt;&#34;ü&#34;&gt;canary",
        ] {
            for begun in (6..quoted.len()).filter(|begun| quoted.is_char_boundary(*begun)) {
                let text = "x".repeat(MAX_TEXT_BYTES - begun) + quoted + "y";
                let redacted = secrets.redact(&text);
                assert_eq!(redacted.trim_matches('x'), "", "{begun} of {quoted}");
            }
        }
    }

    #[test]
    fn a_text_without_secrets_stays_as_it_is_quoted() {
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!("canary"));
        for text in [
            r#"C:\new\x41\u00g1 \ud83d\ude00 \ud83d \u{1F600} \U0001f600 '' \"#,
            "100% of %41%zz%4",
            "\\\n  next\r\n",
        ] {
            assert_eq!(secrets.redact(text), text);
        }
    }
}
