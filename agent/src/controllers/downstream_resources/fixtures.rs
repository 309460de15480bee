//! Copies for tests.

use kube::api::ObjectMeta;

/// The metadata of a copy with these labels.
pub(super) fn labelled(pairs: &[(&str, &str)]) -> ObjectMeta {
    let labels = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ObjectMeta {
        labels: Some(labels.collect()),
        ..Default::default()
    }
}
