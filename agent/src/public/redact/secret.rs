//! One thing that may be secret, and the forms in which a text may quote it.

use serde_json::{Number, Value};

use super::limits::{MAX_TEXT_BYTES, SHORTEST};

/// Something that may be secret, as it came.
pub(super) enum Secret {
    Text(String),
    Number(Number),
}

impl Secret {
    /// All forms that it may be quoted in, one by one, besides escapes, which are taken off the text. Of one that is longer than any text it is the beginning.
    pub(super) fn each_form(&self, mut take: impl FnMut(&str)) {
        let mut add = |form: &str| {
            if form.chars().nth(SHORTEST - 1).is_some() {
                take(form);
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
            let print =
                |(format, precision)| golib::strconv::format_float(number, format, precision, 64);
            texts.extend([(b'g', -1), (b'f', -1), (b'f', 0)].map(print));
            // As `%e` and `%f` have it, which make many digits of few.
            let exact = print((b'e', -1));
            let digits = exact.bytes().take_while(|byte| *byte != b'e');
            if digits.filter(u8::is_ascii_digit).count() >= SHORTEST {
                texts.extend([exact, print((b'e', 6)), print((b'f', 6))]);
            }
        }
    }
    texts.sort_unstable();
    texts.dedup();
    texts
}

fn each_form_of(text: &str, add: &mut impl FnMut(&str)) {
    let begun = beginning(text);
    add(&golib::base64::encode(begun));
    add(begun);
    // A plain word is another word then.
    if !begun.chars().all(char::is_alphabetic) {
        for cased in [begun.to_lowercase(), begun.to_uppercase()] {
            if cased != begun {
                add(&cased);
            }
        }
    }
    for line in text.lines() {
        let line = beginning(line.trim());
        if line.len() < text.len() {
            add(line);
        }
        // Without the signs YAML reads as its own: `*anchor`, `&tag`, quotes.
        add(line.trim_matches(|c: char| !c.is_alphanumeric()));
        each_base64_within(line, add);
    }
}

/// The beginning of a secret, longer than any published text.
fn beginning(text: &str) -> &str {
    &text[..text.ceil_char_boundary(MAX_TEXT_BYTES + 1)]
}

/// The base64 that a secret has wherever it stands in a longer text, as in `user:password`: without the characters at its ends that tell of what is
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
    use super::*;

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

    #[rstest]
    #[case::with_an_exponent("1.234568e+08")]
    #[case::with_all_digits("1.23456789e+08")]
    #[case::in_capitals("1.23456789E+08")]
    #[case::with_a_sign("+1.234568e+08")]
    #[case::plainly("123456789.000000")]
    #[case::a_fraction("1234567.123457")]
    #[case::a_fraction_with_an_exponent("1.234567e+06")]
    #[case::less_than_one("0.001235")]
    #[case::less_than_one_with_an_exponent("1.234568e-03")]
    #[case::a_huge_one("1.234568e+21")]
    #[case::a_huge_one_in_json("1.23456789e+21")]
    #[case::a_huge_one_plainly("1234567890000000000000.000000")]
    fn a_number_is_masked_however_go_prints_it(#[case] printed: &str) {
        let mut secrets = SensitiveData::default();
        let numbers = json!([
            123_456_789,
            1_234_567.123_456_7,
            0.001_234_567_8,
            1.234_567_89e21
        ]);
        secrets.add_value(&numbers);
        let redacted = secrets.redact(&format!("got {printed}"));
        let shown = redacted.replace(MASK, "");
        assert!(
            !shown.contains(|c: char| c.is_ascii_digit() && c != '0'),
            "{redacted}"
        );
    }

    #[test]
    fn a_number_of_few_digits_is_a_word() {
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!([3, 80, 1_200, 0.5, 99_999]));
        let text = "3.000000 of 8.000000e+01, 1200.000000, 0.500000, 9.999900e+04";
        assert_eq!(secrets.redact(text), text);
    }

    #[rstest]
    #[case::in_small_letters("hunter2-canary", "hunter2-canary")]
    #[case::in_capitals("HUNTER2-CANARY", "hunter2-canary")]
    #[case::cut_by_a_template("\"Hunter2-Ca\"...", "hunter2-ca")]
    #[case::cut_in_an_excerpt("|\"Hunter2-C|...", "hunter2-c")]
    fn a_secret_is_masked_in_another_case_and_where_it_is_cut(
        #[case] shown: &str,
        #[case] part: &str,
    ) {
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!("Hunter2-Canary"));
        let redacted = secrets.redact(&format!("got {shown}, which is none"));
        assert!(redacted.contains(MASK), "{redacted}");
        assert!(!redacted.to_lowercase().contains(part), "{redacted}");
    }

    /// A secret longer than any text stands in none, and is made into no form as long; its lines do stand there.
    #[test]
    fn an_oversized_secret_is_searched_for_by_its_beginning_and_its_lines() {
        let line = "\u{1}".repeat(1 << 20);
        let long = Secret::Text(format!("{line}\ncanary-line\n{line}"));
        let (mut longest, mut has_line) = (0, false);
        long.each_form(|form| {
            longest = longest.max(form.len());
            has_line |= form == "canary-line";
        });
        assert!(
            longest > MAX_TEXT_BYTES && longest < 2 * MAX_TEXT_BYTES,
            "{longest}"
        );
        assert!(has_line);
        let mut secrets = SensitiveData::default();
        secrets.texts.push(long);
        let text = format!("no {}, nor canary-line", &line[..100]);
        assert_eq!(secrets.redact(&text), text.replace("canary-line", MASK));
        // Of a text that is cut, which may go on with it, nothing of it is told.
        assert_eq!(&*secrets.redact(&format!("no {line}")), "no ");
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
