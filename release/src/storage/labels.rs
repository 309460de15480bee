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
