//! What may be a name or a label, by the rules and in the words of Kubernetes' `apimachinery/pkg/util/validation`.

/// Longest name and value of a label.
pub const MAX_LABEL_BYTES: usize = 63;
const MAX_SUBDOMAIN_BYTES: usize = 253;
const NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

/// What is said of the rules, which stay the same, in a version of those libraries.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    unit: &'static str,
    subdomain: &'static str,
    key: &'static str,
}

/// The API server's.
pub const API_SERVER: Words = Words {
    unit: "bytes",
    subdomain: "a lowercase RFC 1123 subdomain",
    key: "a valid label key",
};

/// Those of kustomize, which has an old version.
pub const KUSTOMIZE: Words = Words {
    unit: "characters",
    subdomain: "a DNS-1123 subdomain",
    key: "a qualified name",
};

impl Words {
    /// Why `key` cannot be a label's key; `None` if it can.
    ///
    /// ```
    /// use golib::validation::API_SERVER;
    ///
    /// assert_eq!(API_SERVER.invalid_label_key("example.com/app"), None);
    /// assert!(API_SERVER.invalid_label_key("/app").is_some());
    /// ```
    pub fn invalid_label_key(self, key: &str) -> Option<String> {
        let Self {
            unit, subdomain, ..
        } = self;
        let rule = |subject: &str| {
            format!(
                "{subject} must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                 character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{NAME}')"
            )
        };
        let (prefix, name) = match key.split_once('/') {
            Some((_, name)) if name.contains('/') => {
                let rule = rule(self.key);
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
                if prefix.len() > MAX_SUBDOMAIN_BYTES {
                    problems.push(format!(
                        "prefix part must be no more than {MAX_SUBDOMAIN_BYTES} {unit}"
                    ));
                }
                if !is_dns1123_subdomain(prefix) {
                    problems.push(format!(
                        "prefix part {subdomain} must consist of lower case alphanumeric characters, '-' or '.', and must start \
                         and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
                    ));
                }
            }
            None => {}
        }
        if name.is_empty() {
            problems.push("name part must be non-empty".to_owned());
        } else if name.len() > MAX_LABEL_BYTES {
            problems.push(format!(
                "name part must be no more than {MAX_LABEL_BYTES} {unit}"
            ));
        }
        if !is_name(name) {
            problems.push(rule("name part"));
        }
        joined(&problems)
    }

    /// Why `value` cannot be a label's value; `None` if it can.
    ///
    /// ```
    /// let problem = golib::validation::API_SERVER.invalid_label_value(&"a".repeat(64));
    /// assert_eq!(problem.as_deref(), Some("must be no more than 63 bytes"));
    /// ```
    pub fn invalid_label_value(self, value: &str) -> Option<String> {
        let mut problems = Vec::new();
        if value.len() > MAX_LABEL_BYTES {
            let unit = self.unit;
            problems.push(format!("must be no more than {MAX_LABEL_BYTES} {unit}"));
        }
        if !value.is_empty() && !is_name(value) {
            problems.push(format!(
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
                 and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation \
                 is '({NAME})?')"
            ));
        }
        joined(&problems)
    }
}

fn joined(problems: &[String]) -> Option<String> {
    (!problems.is_empty()).then(|| problems.join("; "))
}

fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    is_between(text, |byte| byte.is_ascii_alphanumeric(), is_inner)
}

/// Whether a text is made as a DNS label, however long it is.
pub fn is_dns1123_label(text: &str) -> bool {
    let is_edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    is_between(text, is_edge, |byte| is_edge(byte) || byte == b'-')
}

/// Whether a text is made of such labels and dots, however long it is.
pub fn is_dns1123_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns1123_label)
}

/// Whether a text is not empty, has such bytes at both ends and such ones throughout.
fn is_between(text: &str, is_edge: impl Fn(u8) -> bool, is_inner: impl Fn(u8) -> bool) -> bool {
    let (first, last) = (text.bytes().next(), text.bytes().next_back());
    first.is_some_and(&is_edge) && last.is_some_and(&is_edge) && text.bytes().all(is_inner)
}
