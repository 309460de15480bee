//! The labels of storage objects, by which records are found.

use std::collections::BTreeMap;

use crate::model::Status;

/// Labels that Helm sets itself. Users may not.
pub const SYSTEM_LABELS: [&str; 6] = [
    "name",
    "owner",
    "status",
    "version",
    "createdAt",
    "modifiedAt",
];

/// The labels that every record has, times aside.
pub fn system_labels(name: &str, revision: i64, status: &Status) -> [(String, String); 4] {
    [
        ("name".to_owned(), name.to_owned()),
        ("owner".to_owned(), "helm".to_owned()),
        ("status".to_owned(), status.as_str().to_owned()),
        ("version".to_owned(), revision.to_string()),
    ]
}

/// Whether a label is one that Helm sets itself.
pub fn is_system_label(label: &str) -> bool {
    SYSTEM_LABELS.contains(&label)
}

/// The labels that are the user's.
pub fn user_labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels
        .iter()
        .filter(|(label, _)| !is_system_label(label))
        .map(|(label, value)| (label.clone(), value.clone()))
        .collect()
}

/// Why `value` cannot be a label's value, in the API server's words; `None` if it can.
pub fn invalid_label_value(value: &str) -> Option<String> {
    const MAX_BYTES: usize = 63;
    const PATTERN: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
    let mut problems = Vec::new();
    if value.len() > MAX_BYTES {
        problems.push(format!("must be no more than {MAX_BYTES} bytes"));
    }
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    if !(is_edge(bytes.first()) && is_edge(bytes.last()) && bytes.iter().copied().all(is_inner)) {
        problems.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
             or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
             'my_value',  or '12345', regex used for validation is '{PATTERN}')"
        ));
    }
    (!problems.is_empty()).then(|| problems.join("; "))
}
