//! The encodings in which a text may quote something: escapes, and digits.

/// What a text's first bytes stand for, and how many these are; none if they are no escape.
type Decode = fn(&[u8]) -> Option<(Vec<u8>, usize)>;

/// One way to write signs that a text cannot have as they are.
pub(super) struct Escape {
    /// With which each of them begins.
    pub(super) sign: u8,
    pub(super) decode: Decode,
}

pub(super) const ESCAPES: [Escape; 3] = [
    Escape {
        sign: b'\\',
        decode: backslash,
    },
    Escape {
        sign: b'%',
        decode: percent,
    },
    Escape {
        sign: b'&',
        decode: entity,
    },
];

/// Two halves of a character in JSON, in bytes.
pub(super) const LONGEST_ESCAPE: usize = 12;

/// Escapes of YAML alone.
const YAML: [(u8, char); 6] = [
    (b'0', '\0'),
    (b'e', '\x1b'),
    (b'N', '\u{85}'),
    (b'_', '\u{a0}'),
    (b'L', '\u{2028}'),
    (b'P', '\u{2029}'),
];

fn utf8(c: char) -> Vec<u8> {
    c.encode_utf8(&mut [0; 4]).as_bytes().to_vec()
}

/// Of Go, JSON and YAML; before any other sign a backslash stands for that sign.
fn backslash(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    if let Some(one) = golib::strconv::unquote_char(text, 0) {
        let length = text.len() - one.tail.len();
        let bytes = match char::from_u32(one.value) {
            Some(c) if one.multibyte => utf8(c),
            _ => vec![one.value as u8],
        };
        return Some((bytes, length));
    }
    match *text.get(1)? {
        b'u' => {
            let half = |at: usize| {
                let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
                u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
            };
            let c = char::decode_utf16([half(0)?, half(6)?]).next()?.ok()?;
            Some((utf8(c), 12))
        }
        // A line of YAML that goes on in the next.
        b'\n' => {
            let blanks = text[2..].iter().take_while(|byte| b" \t".contains(byte));
            Some((Vec::new(), 2 + blanks.count()))
        }
        kind if !kind.is_ascii_alphanumeric() && kind != b'_' => Some((vec![kind], 2)),
        kind => {
            let (_, c) = YAML.iter().find(|(yaml, _)| *yaml == kind)?;
            Some((utf8(*c), 2))
        }
    }
}

/// Of addresses and forms.
fn percent(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let digit = |at: usize| hex(*text.get(at)?);
    Some((vec![digit(1)? << 4 | digit(2)?], 3))
}

/// Of HTML.
fn entity(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let end = text
        .iter()
        .take(LONGEST_ESCAPE)
        .position(|byte| *byte == b';')?;
    let c = match std::str::from_utf8(&text[1..end]).ok()? {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        name => {
            let number = name.strip_prefix('#')?;
            let c = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            char::from_u32(c.ok()?)?
        }
    };
    Some((utf8(c), end + 1))
}

/// One way to write bytes as digits.
pub(super) struct Digits {
    /// So many bits of a byte each of them stands for.
    pub(super) bits: u32,
    pub(super) value: fn(u8) -> Option<u8>,
}

pub(super) const DIGITS: [Digits; 3] = [
    Digits {
        bits: 6,
        value: base64,
    },
    Digits {
        bits: 5,
        value: base32,
    },
    Digits {
        bits: 4,
        value: hex,
    },
];

/// That of addresses as well.
fn base64(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}

fn base32(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'2'..=b'7' => digit - b'2' + 26,
        _ => return None,
    })
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}
