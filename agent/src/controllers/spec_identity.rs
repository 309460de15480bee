//! Whether a BundleDeployment that is listed is the one that the watch has delivered. No I/O.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kube::api::ObjectMeta;

use crate::client::listed::MOST_LABELS;

/// The metadata that identify an object's spec: another spec has others, but where the object was restored from a backup and
/// changed anew.
#[derive(Clone, Debug)]
pub struct SpecIdentity {
    uid: Option<String>,
    generation: Option<i64>,
    /// A digest of labels and annotations, which name releases and count as no change of the spec.
    marks: u64,
}

impl SpecIdentity {
    /// As an object's metadata have it.
    pub fn of(metadata: &ObjectMeta) -> Self {
        let mut marks = DefaultHasher::new();
        for all in [&metadata.labels, &metadata.annotations] {
            all.iter().flatten().collect::<Vec<_>>().hash(&mut marks);
        }
        Self {
            uid: metadata.uid.clone(),
            generation: metadata.generation,
            marks: marks.finish(),
        }
    }

    /// Whether an object, as the watch `delivered` it, has this identity. Of one with more labels than are read in lists those count for
    /// nothing.
    pub fn is_of(&self, delivered: &ObjectMeta) -> bool {
        let mut marks = [&delivered.labels, &delivered.annotations]
            .into_iter()
            .flatten();
        let is_read = marks.all(|marks| marks.len() <= MOST_LABELS);
        let delivered = Self::of(delivered);
        let is_marked_so = !is_read || self.marks == delivered.marks;
        (&self.uid, self.generation) == (&delivered.uid, delivered.generation) && is_marked_so
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::the_same(json!({"generation": 2, "resourceVersion": "9"}), true)]
    #[case::without_a_label(json!({"generation": 2, "labels": {}}), true)]
    #[case::another_spec(json!({"generation": 3}), false)]
    #[case::made_anew(json!({"generation": 2, "uid": "other"}), false)]
    #[case::an_annotation(json!({"generation": 2, "annotations": {"a": "b"}}), false)]
    #[case::a_label(json!({"generation": 2, "labels": {"a": "b"}}), false)]
    fn a_new_generation_uid_annotation_or_label_makes_another_identity(
        #[case] metadata: Value,
        #[case] is_equal: bool,
    ) {
        let read = |metadata: Value| serde_json::from_value::<ObjectMeta>(metadata).unwrap();
        let delivered = read(json!({"generation": 2, "resourceVersion": "7"}));
        assert_eq!(
            SpecIdentity::of(&read(metadata)).is_of(&delivered),
            is_equal
        );
    }

    #[test]
    fn beyond_a_thousand_labels_only_the_spec_of_a_bundle_is_compared() {
        let with = |count: usize| ObjectMeta {
            labels: Some((0..count).map(|n| (n.to_string(), String::new())).collect()),
            ..ObjectMeta::default()
        };
        let listed = SpecIdentity::of(&with(0));
        assert!(listed.is_of(&with(MOST_LABELS + 1)) && !listed.is_of(&with(MOST_LABELS)));
        let annotated = ObjectMeta {
            annotations: with(1).labels,
            ..ObjectMeta::default()
        };
        assert!(!SpecIdentity::of(&with(1)).is_of(&annotated));
    }
}
