//! What may be a label, in the API server's words.

/// Longest name and value.
const MAX_BYTES: usize = 63;
/// Longest prefix of a key.
const MAX_PREFIX_BYTES: usize = 253;
const NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const DOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

/// Why `key` cannot be a label's key; `None` if it can.
pub fn invalid_key(key: &str) -> Option<String> {
    let rule = |subject: &str| {
        format!(
            "{subject} must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{NAME}')"
        )
    };
    let (prefix, name) = match key.split_once('/') {
        Some((_, name)) if name.contains('/') => {
            let rule = rule("a valid label key");
            return Some(format!(
                "{rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
        }
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let mut problems = Vec::new();
    match prefix {
        Some("") => problems.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            if prefix.len() > MAX_PREFIX_BYTES {
                problems.push(format!(
                    "prefix part must be no more than {MAX_PREFIX_BYTES} bytes"
                ));
            }
            if !is_domain(prefix) {
                problems.push(format!(
                    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                     must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{DOMAIN}')"
                ));
            }
        }
        None => {}
    }
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_BYTES {
        problems.push(format!("name part must be no more than {MAX_BYTES} bytes"));
    }
    if !is_name(name) {
        problems.push(rule("name part"));
    }
    joined(&problems)
}

/// Why `value` cannot be a label's value; `None` if it can.
pub fn invalid_value(value: &str) -> Option<String> {
    let mut problems = Vec::new();
    if value.len() > MAX_BYTES {
        problems.push(format!("must be no more than {MAX_BYTES} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        problems.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
             or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
             'my_value',  or '12345', regex used for validation is '({NAME})?')"
        ));
    }
    joined(&problems)
}

fn joined(problems: &[String]) -> Option<String> {
    (!problems.is_empty()).then(|| problems.join("; "))
}

fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    is_between(text, |byte| byte.is_ascii_alphanumeric(), is_inner)
}

fn is_domain(text: &str) -> bool {
    let is_edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.split('.')
        .all(|label| is_between(label, is_edge, |byte| is_edge(byte) || byte == b'-'))
}

/// Whether a text is not empty, has such bytes at both ends and such ones throughout.
fn is_between(text: &str, is_edge: impl Fn(u8) -> bool, is_inner: impl Fn(u8) -> bool) -> bool {
    let (first, last) = (text.bytes().next(), text.bytes().next_back());
    first.is_some_and(&is_edge) && last.is_some_and(&is_edge) && text.bytes().all(is_inner)
}
