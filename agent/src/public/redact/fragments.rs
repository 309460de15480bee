//! What a parser quotes of a text besides the whole: where in it that is wrong which it cannot read.

use super::readings::unescaped;

/// Go's words before it, and what may stand between: an address, without what stands behind its `#`, a duration, a time, a regular expression, YAML.
const WORDS: [(&str, usize); 10] = [
    ("invalid port ", 0),
    ("invalid URL escape ", 0),
    ("unknown unit ", 0),
    ("parse ", 0),
    (": extra text: ", 0),
    (" (at ", 0),
    ("error parsing regexp: ", 60),
    ("unknown anchor ", 0),
    ("cannot unmarshal !!", 20),
    ("cannot decode !!", 20),
];

/// So many of a text are looked for in all that is secret.
const MOST: usize = 8;

/// A single character gives nothing away.
const SHORTEST: usize = 2;

/// Something that a parser quotes.
pub(super) struct Fragment {
    /// The fragment as it stands in the text, in its quotes.
    pub(super) quoted: String,
    /// The fragment without quotes.
    text: String,
}

impl Fragment {
    /// Whether the fragment may be a part of `secret`.
    pub(super) fn is_of(&self, secret: &str) -> bool {
        let begun = self.text.strip_suffix("...");
        secret.contains(begun.unwrap_or(&self.text))
    }

    /// The fragments in a text.
    pub(super) fn all_in(text: &str) -> Vec<Self> {
        let each = WORDS.iter().flat_map(|(words, between)| {
            let places = text.match_indices(words);
            places.filter_map(move |(at, words)| {
                Self::at_begin_of(&text[at + words.len()..], *between)
            })
        });
        each.take(MOST).collect()
    }

    fn at_begin_of(text: &str, between: usize) -> Option<Self> {
        let mut before = text.bytes().take(between + 1);
        let begin = before.position(|byte| b"\"`'".contains(&byte))?;
        let (open, within) = (text.as_bytes()[begin], &text[begin + 1..]);
        let is_raw = open == b'`';
        let mut is_escaped = false;
        let length = within.bytes().position(|byte| {
            let ends = byte == open && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped && !is_raw;
            ends
        })?;
        let text = match is_raw {
            true => within[..length].to_owned(),
            false => unescaped(&within[..length]),
        };
        let quoted = format!("{0}{1}{0}", char::from(open), &within[..length]);
        (text.len() >= SHORTEST).then_some(Self { quoted, text })
    }
}

#[cfg(test)]
mod tests {
    use objects::drift::MASK;
    use rstest::rstest;
    use serde_json::json;

    use super::super::SensitiveData;
    use super::*;

    /// As Sprig's functions fail in Go.
    #[rstest]
    #[case::a_port(
        r#"parse "postgres://u:hun/ter2#k@db": invalid port ":hun" after host"#,
        r#"parse **REDACTED**: invalid port **REDACTED** after host"#
    )]
    #[case::without_the_end_of_an_address(
        r#"parse "postgres://u:hun/ter2": invalid port ":hun" after host"#,
        r#"parse **REDACTED**: invalid port **REDACTED** after host"#
    )]
    #[case::an_escape(
        r#"parse "http://hunter2%zz": invalid URL escape "%zz""#,
        r#"parse **REDACTED**: invalid URL escape **REDACTED**"#
    )]
    #[case::a_unit(
        r#"time: unknown unit "hunter" in duration "5hunter""#,
        r#"time: unknown unit **REDACTED** in duration "**REDACTED**""#
    )]
    #[case::a_time(
        r#"parsing time "2024-hunt\"er2" as "2006-01-02": cannot parse "hunt\"er2" as "01""#,
        r#"parsing time "**REDACTED**" as "2006-01-02": cannot parse **REDACTED** as "01""#
    )]
    #[case::behind_a_time(
        r#"parsing time "2024-01-02hunter2": extra text: "hunter2""#,
        r#"parsing time "**REDACTED**": extra text: **REDACTED**"#
    )]
    #[case::a_regular_expression(
        "regexp: Compile(`a[hunter2`): error parsing regexp: missing closing ]: `[hunter2`",
        "regexp: Compile(`**REDACTED**`): error parsing regexp: missing closing ]: **REDACTED**"
    )]
    #[case::a_part_of_one_alone(
        "error calling mustRegexMatch: error parsing regexp: missing closing ]: `[hunter2`",
        "error calling mustRegexMatch: error parsing regexp: missing closing ]: **REDACTED**"
    )]
    #[case::an_anchor(
        "yaml: unknown anchor 'canary' referenced",
        "yaml: unknown anchor **REDACTED** referenced"
    )]
    #[case::in_the_middle_of_yaml(
        "cannot unmarshal !!str `canary2...` into int",
        "cannot unmarshal !!str **REDACTED** into int"
    )]
    #[case::of_no_secret(
        r#"parse "http://web:x1": invalid port ":x1" after host"#,
        r#"parse "http://web:x1": invalid port ":x1" after host"#
    )]
    fn a_parse_error_keeps_its_message_without_the_part_that_quotes_a_secret(
        #[case] said: &str,
        #[case] redacted: &str,
    ) {
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!([
            "postgres://u:hun/ter2#k@db",
            "http://hunter2%zz",
            "5hunter",
            "2024-hunt\"er2",
            "2024-01-02hunter2",
            "a[hunter2",
            "*canary behind",
            "user: a\nport: canary2-is-none\n",
        ]));
        assert_eq!(secrets.redact(said), redacted);
        assert_eq!(MASK, "**REDACTED**");
    }

    /// Gone through to its end for each of these words, it would take seconds.
    #[test]
    fn a_text_without_quotes_is_searched_once() {
        let text = "parse ".repeat(1 << 17);
        let begun = std::time::Instant::now();
        assert!(Fragment::all_in(&text).is_empty());
        assert!(begun.elapsed().as_secs() < 20);
    }
}
