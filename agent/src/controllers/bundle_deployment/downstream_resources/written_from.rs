//! What a copy was written from, as an annotation on it says, and how it stands to its source by that. No I/O.
//!
//! That a copy is not like its source has two reasons. The source was changed: what runs with it is deployed anew. Or the copy was, by a webhook, a
//! controller or another agent: then it is put right, ever more rarely, as the next change may be the answer to that.

use kube::api::ObjectMeta;
use sha2::{Digest as _, Sha256};

use super::claims;
use super::kinds::{Copied, same};
use crate::api::ANNOTATION_WRITTEN_FROM;

/// Helm's marks; a copy is no part of the release that its source is of.
const HELM_MARKS: &str = "meta.helm.sh/";

/// Characters of each part.
const DIGITS: usize = 16;

/// A source in one of its states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenFrom {
    /// Which object it is, as a digest: a name may be another cluster's as well.
    source: String,
    /// What it says, as a digest. Of which source is part of it, so that nobody who reads it can try contents.
    state: String,
}

impl WrittenFrom {
    pub(super) fn of<K: Copied>(source: &K) -> Self {
        let ObjectMeta {
            uid,
            labels,
            annotations,
            ..
        } = source.meta();
        let uid = uid.as_deref().unwrap_or_default();
        let marks = ObjectMeta {
            labels: labels.clone(),
            annotations: annotations.clone(),
            ..ObjectMeta::default()
        };
        // Maps of a fixed order: the same state gives the same text.
        let state = serde_json::to_vec(&source.clone().copied(marks, None)).unwrap_or_default();
        Self {
            source: digest(&[uid.as_bytes()]),
            state: digest(&[uid.as_bytes(), &state]),
        }
    }

    fn on(copy: &ObjectMeta) -> Option<Self> {
        let text = copy.annotations.as_ref()?.get(ANNOTATION_WRITTEN_FROM)?;
        let (source, state) = text.split_once('-')?;
        Some(Self {
            source: source.to_owned(),
            state: state.to_owned(),
        })
    }

    /// As it stands in the annotation.
    pub(super) fn text(&self) -> String {
        format!("{}-{}", self.source, self.state)
    }
}

fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut text = golib::hex::encode(&hash.finalize());
    text.truncate(DIGITS);
    text
}

/// How a copy stands to its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It says what its source says.
    Like,
    /// Its source was changed since it was written.
    SourceChanged { in_content: bool },
    /// It was changed since it was written.
    CopyChanged,
    /// It is not known which of them was: somebody else wrote it, or what it was written from is no longer on it.
    Unknown { in_content: bool },
}

impl Standing {
    pub(super) fn of<K: Copied>(copy: &K, source: &K, written_from: &WrittenFrom) -> Self {
        let in_content = !copy.has_content_of(source);
        if !in_content && has_marks_of(copy.meta(), source.meta()) {
            return Self::Like;
        }
        match WrittenFrom::on(copy.meta()) {
            Some(known) if known == *written_from => Self::CopyChanged,
            Some(known) if known.source == written_from.source => {
                Self::SourceChanged { in_content }
            }
            _ => Self::Unknown { in_content },
        }
    }

    /// Whether the releases that need the copy are to be deployed with it.
    pub(super) fn is_rolled_out(self) -> bool {
        match self {
            Self::SourceChanged { in_content } | Self::Unknown { in_content } => in_content,
            Self::Like | Self::CopyChanged => false,
        }
    }

    /// Whether to write it over may be to answer somebody who writes it as well.
    pub(super) fn is_answer(self) -> bool {
        matches!(self, Self::CopyChanged | Self::Unknown { .. })
    }
}

/// Whether an annotation of a source is its copy's too.
pub(super) fn is_copied(annotation: &str) -> bool {
    !annotation.starts_with(HELM_MARKS) && annotation != ANNOTATION_WRITTEN_FROM
}

/// Whether a copy has its source's labels and annotations, besides what it carries as a copy.
fn has_marks_of(copy: &ObjectMeta, source: &ObjectMeta) -> bool {
    let labels = |metadata: &ObjectMeta| {
        let mut labels = metadata.labels.clone();
        if let Some(labels) = &mut labels {
            labels.retain(|key, _| !claims::is_claim(key));
        }
        labels
    };
    let annotations = |metadata: &ObjectMeta| {
        let mut annotations = metadata.annotations.clone();
        if let Some(annotations) = &mut annotations {
            annotations.retain(|key, _| is_copied(key));
        }
        annotations
    };
    same(&labels(copy), &labels(source)) && same(&annotations(copy), &annotations(source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Secret;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn secret(uid: &str, text: &str, labels: Value, annotations: Value) -> Secret {
        let metadata =
            json!({"name": "s", "uid": uid, "labels": labels, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "data": {"key": text}})).unwrap()
    }

    fn source(text: &str) -> Secret {
        secret("u", text, json!({"a": "1"}), json!({"x": "y"}))
    }

    /// A copy that says it was written from this, and has this text and label.
    fn copy(from: Option<WrittenFrom>, text: &str, label: &str) -> Secret {
        let labels = json!({"a": label, "fleet.cattle.io/bundledeployment": "b", "bundledeployment.fleet.cattle.io/c": "7"});
        let mut annotations = json!({"x": "y"});
        if let Some(from) = from {
            annotations[ANNOTATION_WRITTEN_FROM] = json!(from.text());
        }
        secret("copy", text, labels, annotations)
    }

    const NOW: &str = "bm93";
    const BEFORE: &str = "YmVmb3Jl";

    fn of(text: &str) -> Option<WrittenFrom> {
        Some(WrittenFrom::of(&source(text)))
    }

    fn of_another_source() -> Option<WrittenFrom> {
        let another = secret("other", NOW, json!({"a": "1"}), json!({"x": "y"}));
        Some(WrittenFrom::of(&another))
    }

    #[rstest]
    #[case::written(of(NOW), NOW, "1", Standing::Like)]
    #[case::written_by_the_go_agent(None, NOW, "1", Standing::Like)]
    #[case::before_its_source_was_changed(of(BEFORE), BEFORE, "1", Standing::SourceChanged { in_content: true })]
    #[case::before_a_label_of_it_was(of(BEFORE), NOW, "0", Standing::SourceChanged { in_content: false })]
    #[case::changed_by_others(of(NOW), BEFORE, "1", Standing::CopyChanged)]
    #[case::labelled_by_others(of(NOW), NOW, "0", Standing::CopyChanged)]
    #[case::by_the_go_agent_before(None, BEFORE, "1", Standing::Unknown { in_content: true })]
    #[case::by_an_agent_of_another_upstream(of_another_source(), BEFORE, "1", Standing::Unknown { in_content: true })]
    #[case::by_one_that_labels_otherwise(None, NOW, "0", Standing::Unknown { in_content: false })]
    fn only_a_changed_source_is_a_change(
        #[case] from: Option<WrittenFrom>,
        #[case] text: &str,
        #[case] label: &str,
        #[case] expected: Standing,
    ) {
        let (copy, source) = (copy(from, text, label), source(NOW));
        let found = Standing::of(&copy, &source, &WrittenFrom::of(&source));
        assert_eq!(found, expected);
    }

    #[test]
    fn what_others_did_is_an_answer_and_only_other_content_is_rolled_out() {
        let all = [
            (Standing::Like, false, false),
            (Standing::SourceChanged { in_content: true }, true, false),
            (Standing::SourceChanged { in_content: false }, false, false),
            (Standing::CopyChanged, false, true),
            (Standing::Unknown { in_content: true }, true, true),
            (Standing::Unknown { in_content: false }, false, true),
        ];
        for (standing, is_rolled_out, is_answer) in all {
            assert_eq!(standing.is_rolled_out(), is_rolled_out, "{standing:?}");
            assert_eq!(standing.is_answer(), is_answer, "{standing:?}");
        }
    }

    /// Who may read the annotation and not the source's uid cannot try passwords.
    #[test]
    fn the_digest_of_a_secret_is_that_of_one_object() {
        let same = |uid: &str| WrittenFrom::of(&secret(uid, NOW, json!({}), json!({})));
        assert_eq!(same("u"), same("u"));
        assert_ne!(same("u").state, same("v").state);
        assert_ne!(same("u").source, same("v").source);
        assert_eq!(same("u").text().len(), 2 * DIGITS + 1);
    }
}
