//! Tests that no secret is shown, however often and in whatever ways it is quoted.

use golib::{base64, json, strconv};
use objects::drift::MASK;
use serde_json::{Value, json};

use super::SensitiveData;

/// Signs of each escape, quotes of each kind, and what looks like an escape by itself.
const SECRETS: [&str; 18] = [
    "hunter2-canary",
    "jdbc:m://h/d?user=a&password=b",
    "<p name=\"url\" value=\"jdbc:m://h/d?user=a&amp;password=b\"/>",
    "P=\"x\";Q=''",
    "p&amp;w%20x",
    "p&amp;w%20x\"",
    "a&lt;b''c\"d%20e",
    "canary''canary",
    "'canary'\"canary\"",
    "DOMAIN\\backup\\new",
    "canary\\\\\"canary\\\\",
    "^\\d+\\.\\u003c\\x41''$",
    "canary%2520%25&amp;amp;",
    "canary+with/ends==",
    "ends in signs &\"'\\%",
    "canary \\\n  canary\ttab",
    "gr\u{fc}\u{df}e <\u{1f600}> \"\u{fc}\"",
    "&quot;canary&#39;&#x27;",
];

type Escape = fn(&str) -> String;

/// As the programs write it that may quote something.
const ESCAPES: [(&str, Escape); 10] = [
    ("verbatim", str::to_owned),
    ("%q", |text| strconv::quote(text)),
    ("%+q", |text| {
        ascii(&strconv::quote(text), |c| match u32::from(c) {
            high @ 0x1_0000.. => format!("\\U{high:08x}"),
            low => format!("\\u{low:04x}"),
        })
    }),
    ("Go's JSON", |text| {
        json::encode(&Value::String(text.to_owned()))
    }),
    ("JSON", |text| Value::String(text.to_owned()).to_string()),
    ("JSON in ASCII", |text| {
        let json = Value::String(text.to_owned()).to_string();
        ascii(&json.replace('/', "\\/"), |c| {
            let units = c.encode_utf16(&mut [0; 2]).to_vec();
            units.iter().map(|unit| format!("\\u{unit:04X}")).collect()
        })
    }),
    ("YAML", |text| format!("'{}'", text.replace('\'', "''"))),
    ("HTML", |text| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let text = text.replace('>', "&gt;").replace('"', "&#34;");
        text.replace('\'', "&#39;")
    }),
    ("an address", |text| in_address(text, "")),
    ("a query", |text| in_address(text, "").replace("%20", "+")),
];

fn ascii(text: &str, escape: fn(char) -> String) -> String {
    let each = text.chars().map(|c| match c.is_ascii() {
        true => c.to_string(),
        false => escape(c),
    });
    each.collect()
}

fn in_address(text: &str, kept: &str) -> String {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c) || kept.contains(c);
    let each = text.bytes().map(|byte| match char::from(byte) {
        sign if is_kept(sign) => sign.to_string(),
        _ => format!("%{byte:02X}"),
    });
    each.collect()
}

fn secret(text: &str) -> SensitiveData {
    let mut secrets = SensitiveData::default();
    secrets.add_value(&json!(text));
    secrets
}

/// Whether a word of the secret is shown, or all of it: some signs may be, at its ends.
fn discloses(shown: &str, secret: &str) -> bool {
    let shown = shown.replace(MASK, "\0");
    let words = secret.split(|c: char| !c.is_ascii_alphabetic());
    let mut words = words.filter(|word| word.len() > 3 && *word != "quot");
    !shown.contains('\0') || words.any(|word| shown.contains(word))
}

#[test]
fn a_secret_is_redacted_under_any_two_levels_of_quoting() {
    let mut shown = Vec::new();
    for text in SECRETS {
        let secrets = secret(text);
        for (inner, quote) in ESCAPES {
            for before in ["", "a=", "A\\"] {
                let within = quote(&format!("{before}{text}"));
                for (outer, quote) in ESCAPES {
                    let redacted = secrets.redact(&quote(&format!("-: {within} :-")));
                    if discloses(&redacted, text) {
                        shown.push(format!("{inner} in {outer}: {redacted}"));
                    }
                }
            }
        }
    }
    let some = &shown[..shown.len().min(20)];
    assert!(shown.is_empty(), "{}: {some:#?}", shown.len());
}

/// Each form that was once made of a secret to be looked for.
#[test]
fn a_secret_is_redacted_in_every_form_that_was_once_searched_for() {
    for text in SECRETS {
        let mut forms = vec![text.to_owned(), base64::encode(text)];
        for kept in ["", "$&+=:@", "$&+,;="] {
            let form = in_address(text, kept);
            forms.extend([form.replace("%20", "+"), form]);
        }
        for line in text.lines().map(str::trim) {
            let bare = line.trim_matches(|c: char| !c.is_alphanumeric());
            forms.extend([line.to_owned(), bare.to_owned(), strconv::quote(line)]);
            let cut = line.char_indices().nth(7).map(|(end, _)| &line[..end]);
            forms.extend(cut.map(|cut| format!("{cut}...")));
        }
        forms.push(json::encode(&Value::String(text.to_owned())));
        let quoted = forms.iter().map(strconv::quote);
        let forms = quoted.collect::<Vec<_>>().into_iter().chain(forms);
        for form in forms.filter(|form| form.trim_matches('"').chars().count() >= 6) {
            let redacted = secret(text).redact(&format!("-: {form} :-"));
            assert!(!discloses(&redacted, text), "{form}: {redacted}");
        }
    }
}

/// What an escape stands for may be a part of a sign.
#[test]
fn a_secret_that_ends_within_a_character_is_redacted_with_it() {
    for (text, shown) in [
        ("abcdef%C3", "says abcdef\u{e9} 5%"),
        ("%BCabcdef", "says \u{fc}abcdef 5%"),
        ("abcdef\\xe2\\x82", "says abcdef\u{20ac} \\x"),
    ] {
        let redacted = secret(text).redact(shown);
        assert!(!redacted.contains("abcdef"), "{redacted}");
    }
}

#[test]
fn text_that_only_resembles_a_secret_is_not_redacted() {
    let secrets = secret("P=\"x\";Q=''");
    for text in ["P=x;Q=", "P='y';Q=\"\"", "the words P and Q"] {
        assert_eq!(secrets.redact(text), text);
    }
}
