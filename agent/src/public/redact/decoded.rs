//! A text that is told, and all that can be decoded from it, in which secrets are looked for as they are.
//!
//! Who quotes a value may write it as JSON, Go, YAML, HTML or an address has it, in base64, base32 or hex, and one within the other; what is
//! encoded may be more than the secret. So whatever looks like an encoding is decoded, and what comes out of it again, until nothing
//! does; each decoded byte knows where in the text it stands. That most texts only look so by chance costs nothing: what comes out is no
//! secret. There is no depth at which this ends, but a size, [`MOST_BYTES`].

use std::collections::HashSet;
use std::ops::Range;
use std::rc::Rc;

use super::MAX_TEXT_BYTES;
use super::encodings::{DIGITS, Digits, ESCAPES, Escape, LONGEST_ESCAPE};
use super::parts::{Part, Parts};
use super::secret::SHORTEST;

/// So much is decoded of a text at most, in bytes. Of one with more only the first half is told, or the first quarter, and so on.
const MOST_BYTES: usize = 4 * MAX_TEXT_BYTES;

/// Something is always told of a text, as this is more than what comes out of the shortest.
const EACH_BYTES: usize = 16;

/// Once it is folded a secret has so many bytes at least: there are blanks alone otherwise.
const SHORTEST_FOLDED: usize = 4;

/// In no text: where one ends that may go on, and where the next one begins.
const CUT: u8 = 0xff;
const BETWEEN: u8 = 0xfe;

/// Behind the beginning of a secret: its writer cut it there.
const CUTS: [&[u8]; 5] = [&[CUT], b"...", b"\"...", "…".as_bytes(), b" ..."];

/// A text and what comes out of it, of which every part can be looked up.
pub(super) struct Decoded {
    parts: Parts,
    /// Where in the text each of the bytes stands that are looked into.
    places: Vec<(usize, usize)>,
}

impl Decoded {
    /// `None` where it is too much. The place of what a cut text may go on with is behind its end.
    pub(super) fn of(text: &str, is_cut: bool) -> Option<Self> {
        let whole = Layer {
            bytes: text.into(),
            places: (0..text.len()).map(|at| (at, at + 1)).collect(),
            cut: is_cut.then_some(text.len() + 1),
        };
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        for layer in whole.layers()? {
            let mut rest = folded(&layer.bytes).peekable();
            while let Some((at, byte)) = rest.next() {
                // With those that it stands for.
                let next = rest.peek().map_or(layer.bytes.len(), |(next, _)| *next);
                bytes.push(byte);
                places.push(hull(&layer.places[at..next]));
            }
            let end = layer.places.last().map_or(0, |(_, end)| *end);
            if let Some(cut) = layer.cut {
                bytes.push(CUT);
                places.push((end, cut));
            }
            bytes.push(BETWEEN);
            places.push((end, end));
        }
        let parts = Parts::of(bytes);
        Some(Self { parts, places })
    }

    /// What stands there of something: all of it, and its beginning where that is cut.
    pub(super) fn find(&self, whole: &str) -> Vec<Part> {
        let whole: Vec<u8> = folded(whole.as_bytes()).map(|(_, byte)| byte).collect();
        if whole.len() < SHORTEST_FOLDED {
            return Vec::new();
        }
        let mut found = self.parts.begun(&whole, SHORTEST, &CUTS);
        found.extend(self.parts.find(&whole));
        found
    }

    /// Takes those away that stand in any of `others` as well.
    pub(super) fn without_those_in<'o>(
        &self,
        parts: &mut HashSet<Part>,
        others: impl Iterator<Item = &'o [u8]>,
    ) {
        let others = others.map(|other| folded(other).map(|(_, byte)| byte));
        self.parts.without_those_in(parts, others);
    }

    /// Where in the text these stand, as it is or encoded.
    pub(super) fn places(&self, found: &HashSet<Part>) -> Vec<(usize, usize)> {
        let places = self.parts.places(found).into_iter();
        places
            .map(|(from, to)| hull(&self.places[from..to]))
            .collect()
    }
}

/// From where the first of them begins to where the last one ends.
fn hull(places: &[(usize, usize)]) -> (usize, usize) {
    let begin = places.iter().map(|(begin, _)| *begin).min();
    let end = places.iter().map(|(_, end)| *end).max();
    (begin.unwrap_or_default(), end.unwrap_or_default())
}

/// What texts are compared by: letters of either size are one, and so are blanks, however many, and quotes that a writer doubles.
fn folded(text: &[u8]) -> impl Iterator<Item = (usize, u8)> {
    let mut before = None;
    let folded = text.iter().enumerate().map(|(at, byte)| match byte {
        b'+' | b'\t' | b'\n' | b'\r' => (at, b' '),
        byte => (at, byte.to_ascii_lowercase()),
    });
    folded.filter(move |(_, byte)| {
        let is_repeated = before.replace(*byte) == Some(*byte);
        !(is_repeated && b" '\"".contains(byte))
    })
}

/// What came out of a text.
#[derive(PartialEq, Eq, Hash)]
struct Layer {
    bytes: Vec<u8>,
    /// Where in the text each of them stands.
    places: Vec<(usize, usize)>,
    /// It may go on behind its end, with what would end here in the text.
    cut: Option<usize>,
}

impl Layer {
    /// This one, and all that comes out of it.
    fn layers(self) -> Option<Vec<Rc<Self>>> {
        let mut all = vec![Rc::new(self)];
        let mut known: HashSet<_> = all.iter().cloned().collect();
        let (mut next, mut left) = (0, MOST_BYTES);
        while let Some(layer) = all.get(next).cloned() {
            next += 1;
            let unescaped = ESCAPES.iter().filter_map(|escape| layer.unescaped(escape));
            let unpacked = DIGITS.iter().flat_map(|digits| layer.unpacked(digits));
            for new in unescaped.chain(unpacked).map(Rc::new) {
                if known.insert(Rc::clone(&new)) {
                    left = left.checked_sub(new.bytes.len() + EACH_BYTES)?;
                    all.push(new);
                }
            }
        }
        Some(all)
    }

    fn push(&mut self, byte: u8, place: (usize, usize)) {
        self.bytes.push(byte);
        self.places.push(place);
    }

    fn part(&self, range: Range<usize>, cut: Option<usize>) -> Self {
        Self {
            bytes: self.bytes[range.clone()].to_vec(),
            places: self.places[range].to_vec(),
            cut,
        }
    }

    /// Without escapes of one kind, if it has any.
    fn unescaped(&self, escape: &Escape) -> Option<Self> {
        let mut layer = self.part(0..0, self.cut);
        let mut rest = &self.bytes[..];
        while let Some(byte) = rest.first() {
            let at = self.bytes.len() - rest.len();
            let mut length = 1;
            if *byte != escape.sign {
                layer.push(*byte, self.places[at]);
            } else if let Some((bytes, used)) = (escape.decode)(rest) {
                length = used;
                let place = hull(&self.places[at..at + used]);
                bytes.iter().for_each(|byte| layer.push(*byte, place));
            } else if self.cut.is_some() && rest.len() < LONGEST_ESCAPE {
                // Of one that is cut nobody knows what it stands for.
                break;
            } else {
                layer.push(*byte, self.places[at]);
            }
            rest = &rest[length..];
        }
        let is_changed = layer.bytes != self.bytes;
        (is_changed && layer.bytes.len() >= SHORTEST).then_some(layer)
    }

    /// What stands in it as digits of one kind.
    fn unpacked(&self, digits: &Digits) -> Vec<Self> {
        let (mut unpacked, mut run, mut is_next_line) = (Vec::new(), Vec::new(), false);
        for (at, byte) in self.bytes.iter().enumerate() {
            let value = (digits.value)(*byte);
            let (is_blank, is_end) = (b" \t".contains(byte), b"\r\n".contains(byte));
            is_next_line = is_end || is_next_line && is_blank;
            match value {
                Some(value) => run.push((at, value)),
                // They go on in the next line.
                None if is_next_line => {}
                None => self.unpack(&std::mem::take(&mut run), digits, &mut unpacked),
            }
        }
        self.unpack(&run, digits, &mut unpacked);
        unpacked
    }

    /// Nobody knows which of the digits is the first one of a byte: it is tried with each. What is text of that may be meant.
    fn unpack(&self, run: &[(usize, u8)], digits: &Digits, unpacked: &mut Vec<Self>) {
        let Some((last, _)) = run.last().filter(|_| run.len() >= SHORTEST) else {
            return;
        };
        let padding = self.bytes[last + 1..].iter();
        let padded = last + 1 + padding.take_while(|byte| **byte == b'=').count();
        let (_, end) = self.places[padded - 1];
        let cut = match padded == self.bytes.len() {
            true => self.cut.unwrap_or(end),
            false => end,
        };
        // So many digits may stand before the first one: what is to a byte as they are repeats from there on.
        for first in 0..8 >> digits.bits.trailing_zeros() {
            let mut layer = self.part(0..0, Some(cut));
            let (mut bits, mut count, mut begin) = (0_u32, 0, 0);
            for (at, value) in run.iter().skip(first) {
                let place = self.places[*at];
                if count == 0 {
                    begin = place.0;
                }
                bits = bits << digits.bits | u32::from(*value);
                count += digits.bits;
                if count >= 8 {
                    count -= 8;
                    layer.push((bits >> count) as u8, (begin, place.1));
                    begin = place.0;
                }
            }
            if let Some((_, last)) = layer.places.last_mut() {
                *last = end.max(*last);
            }
            let mut at = 0;
            for chunk in layer.bytes.utf8_chunks() {
                let text = chunk.valid().len();
                let is_last = at + text + chunk.invalid().len() == layer.bytes.len();
                if text >= SHORTEST {
                    unpacked.push(layer.part(at..at + text, is_last.then_some(cut)));
                }
                at += text + chunk.invalid().len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use objects::drift::MASK;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::SensitiveData;
    use super::*;

    fn secrets(secret: &str) -> SensitiveData {
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!(secret));
        secrets
    }

    #[rstest]
    #[case::in_base64_at_the_first_alignment("eDogaHVudGVyMi9jYW5hcnkgeQ==")]
    #[case::in_base64_at_the_second("ICBodW50ZXIyL2NhbmFyeSE=")]
    #[case::in_base64_at_the_third("IGh1bnRlcjIvY2FuYXJ5")]
    #[case::in_base64_of_addresses("Pz8_aHVudGVyMi9jYW5hcnk_")]
    #[case::in_base64_on_two_lines("eDogaHVudGVy\n    Mi9jYW5hcnkgeQ==")]
    #[case::in_base64_twice("ZURvZ2FIVnVkR1Z5TWk5allXNWhjbmtnZVE9PQ==")]
    #[case::in_base64_that_is_cut("aHVudGVyMi9j")]
    #[case::in_base32("NB2W45DFOIZC6Y3BNZQXE6I=")]
    #[case::in_hex("68756e746572322f63616e617279")]
    #[case::in_hex_of_large_letters("68756E746572322F63616E617279")]
    #[case::in_small_escapes_of_addresses("hunter2%2fcanary")]
    #[case::in_small_escapes("hunter2\\u002fcanary")]
    #[case::in_large_escapes("HUNTER2\\U0000002FCANARY")]
    #[case::in_entities("hunter2&#x2f;c&#97;nary")]
    #[case::in_json_in_json_in_json("hunter2\\\\\\\\\\/canary")]
    #[case::folded_by_yaml("hunter2/\\\n    canary")]
    #[case::cut_by_its_writer("hunter2/ca...")]
    #[case::cut_by_a_writer_of_templates("\"hunter2/ca\"...")]
    fn what_is_encoded_is_redacted(#[case] text: &str) {
        let redacted = secrets("hunter2/canary").redact(&format!("before: {text}; after"));
        let (begin, end) = redacted.split_once(MASK).unwrap_or_default();
        assert!(begin.starts_with("before: "), "{redacted}");
        assert!(end.ends_with("; after"), "{redacted}");
        for part in [
            "hunter", "2", "/", "canary", "HUNTER", "aHVu", "NB2W", "6875",
        ] {
            assert!(!redacted.contains(part), "{redacted}");
        }
    }

    #[test]
    fn what_a_value_is_the_base64_of_is_redacted() {
        let secrets = secrets("aHVudGVyMi9jYW5hcnk=");
        assert_eq!(secrets.redact("no: hunter2/canary"), format!("no: {MASK}"));
    }

    /// One whose decoding takes more than is decoded.
    #[test]
    fn of_a_text_with_too_much_in_it_the_beginning_is_told() {
        let endless = format!("hunter2/canary %{}hunter2%2Fcanary", "25".repeat(10_000));
        let redacted = secrets("hunter2/canary").redact(&endless);
        let rest = redacted.strip_prefix(&format!("{MASK} %")).unwrap();
        assert!(rest.len() > 200 && rest.len() < 1_000, "{}", rest.len());
        assert!(rest.trim_start_matches("25").len() < 2, "{rest}");
        let mut value = json!({ "a": endless, "b": 1 });
        secrets("hunter2/canary").redact_value(&mut value);
        assert_eq!(value, json!(MASK));
    }

    struct Random(u32);

    impl Random {
        fn below(&mut self, below: usize) -> usize {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (self.0 >> 8) as usize % below
        }

        fn of<T: Copy>(&mut self, all: &[T]) -> T {
            all[self.below(all.len())]
        }
    }

    fn digits(text: &str, digits: &str, bits: u32) -> String {
        let all = text
            .bytes()
            .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
        let all: Vec<_> = all.collect();
        let value = |bits: &[u8]| {
            bits.iter()
                .fold(0, |value, bit| value << 1 | usize::from(*bit))
        };
        let chunks = all.chunks(bits as usize).map(|chunk| {
            let missing = bits as usize - chunk.len();
            char::from(digits.as_bytes()[value(chunk) << missing])
        });
        chunks.collect()
    }

    fn base64_of_addresses(text: &str) -> String {
        let encoded = golib::base64::encode(text).replace('+', "-");
        encoded.replace('/', "_").trim_end_matches('=').to_owned()
    }

    fn lines(text: &str) -> String {
        let encoded = golib::base64::encode(text);
        let lines = encoded.as_bytes().chunks(76);
        let lines: Vec<_> = lines.map(String::from_utf8_lossy).collect();
        lines.join("\n")
    }

    fn escaped(text: &str, is_kept: fn(u8) -> bool) -> String {
        text.bytes().fold(String::new(), |mut all, byte| {
            match is_kept(byte) {
                true => all.push(char::from(byte)),
                false => write!(all, "%{byte:02X}").unwrap(),
            }
            all
        })
    }

    fn small(text: &str) -> String {
        let signs = text.chars().map(|c| match c.is_ascii_alphanumeric() {
            true => c.to_string(),
            false => escaped(&c.to_string(), |_| false).to_lowercase(),
        });
        signs.collect()
    }

    fn utf16(text: &str) -> String {
        let units = text.encode_utf16();
        units.map(|unit| format!("\\u{unit:04x}")).collect()
    }

    fn html(text: &str) -> String {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        text.replace('>', "&gt;")
            .replace('"', "&#34;")
            .replace('\'', "&#39;")
    }

    const BASE32: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

    const ENCODINGS: [fn(&str) -> String; 17] = [
        |text| golib::json::encode(&Value::String(text.to_owned())),
        |text| serde_json::to_string(text).unwrap(),
        |text| golib::strconv::quote(text),
        |text| golib::strconv::quote_to_ascii(text),
        utf16,
        |text| escaped(text, |byte| byte.is_ascii_alphanumeric()),
        small,
        |text| {
            escaped(text, |byte| byte != b' ' && byte.is_ascii_alphanumeric()).replace("%20", "+")
        },
        |text| escaped(text, |byte| byte.is_ascii() && byte != b'%'),
        |text| escaped(text, |_| false),
        |text| golib::base64::encode(text),
        base64_of_addresses,
        lines,
        |text| digits(text, BASE32, 5),
        |text| golib::hex::encode(text.as_bytes()),
        |text| golib::hex::encode(text.as_bytes()).to_uppercase(),
        html,
    ];

    const AROUND: [&str; 14] = [
        "", "", "x", "user:", "C:\\", "100%", "a \"b' ", "ü", "k=\n", "\\n", "&", " ", "AB", "00",
    ];

    const SIGNS: [&str; 4] = [
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
        "ab01 \\\"'%&+<>=/-_;:#x25nu\n",
        "äöüé日本語😀 ab\"\\",
        "0123456789abcdef",
    ];

    type Encoding = (fn(&str) -> String, &'static str, &'static str);

    /// One within the other, each with something before and behind.
    fn encoded(text: &str, encodings: &[Encoding]) -> String {
        let encodings = encodings.iter();
        encodings.fold(text.to_owned(), |text, (encode, before, after)| {
            encode(&format!("{before}{text}{after}"))
        })
    }

    /// A sign that is written with as many others in each encoding, if there is one.
    fn other(c: char) -> char {
        let alike = [SIGNS[0], "#=:;/-_+", "<>", "äöüé", "日本語"];
        let at = |signs: &str| signs.chars().position(|sign| sign == c);
        let other = alike
            .into_iter()
            .find_map(|signs| signs.chars().cycle().nth(at(signs)? + 1));
        other.unwrap_or(c)
    }

    /// What is left would stand there, too, if the secret were another.
    #[test]
    fn nothing_of_a_secret_is_left_however_it_is_encoded() {
        let mut random = Random(7);
        for round in 0..2_000 {
            let signs: Vec<_> = random.of(&SIGNS).chars().collect();
            let length = 8 + random.below(40);
            let secret: String = (0..length).map(|_| random.of(&signs)).collect();
            let count = random.below(5);
            let one = |_| {
                (
                    random.of(&ENCODINGS),
                    random.of(&AROUND),
                    random.of(&AROUND),
                )
            };
            let encodings: Vec<Encoding> = (0..count).map(one).collect();
            let told = |secret: &str| format!("no: {}; none", encoded(secret, &encodings));
            let text = told(&secret);
            if text.len() > MAX_TEXT_BYTES / 2 {
                continue;
            }
            let redacted = secrets(&secret).redact(&text);
            assert!(redacted.contains(MASK), "{round}: {secret:?} in {text:?}");
            let without = told(&secret.chars().map(other).collect::<String>());
            assert_eq!(without.len(), text.len());
            let known: HashSet<_> = without.as_bytes().windows(8).collect();
            let left = redacted
                .split(MASK)
                .flat_map(|left| left.as_bytes().windows(8));
            for left in left {
                let shown = String::from_utf8_lossy(left);
                assert!(
                    known.contains(left),
                    "{round}: {shown} of {secret:?} in {text:?}: {redacted}"
                );
            }
        }
    }

    /// What the API server said, as it was recorded, comes out as it went in.
    #[test]
    fn messages_without_secrets_stay_as_they_are() {
        let mut secrets = SensitiveData::default();
        let key = format!(
            "-----BEGIN KEY-----\n{}\n-----END KEY-----\n",
            "Zm9v".repeat(400)
        );
        secrets.add_object(&json!({ "kind": "Secret", "stringData": {
            "password": "hunter2-canary", "pin": "123456", "tls.key": key, "token": "aHVudGVyMi1jYW5hcnk=",
            "config": "users:\n- name: admin\n  token: 0123456789abcdef\n",
        } }));
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/recorded");
        let mut count = 0;
        for file in std::fs::read_dir(fixtures).unwrap() {
            let file = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let messages = file.lines().filter(|line| line.contains("\"message\": "));
            for message in messages {
                assert_eq!(secrets.redact(message), message);
                count += 1;
            }
        }
        assert!(count > 50, "{count}");
    }
}
