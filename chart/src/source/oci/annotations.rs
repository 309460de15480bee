//! Annotations of a manifest's blobs, as far as somebody asks for them: a small text may have tens of thousands of others.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// Of one blob.
const MAX_ANNOTATIONS: usize = 1_000;

/// What Fleet says of the files of a bundle: whose they are.
pub(in crate::source) const ID: &str = "id";
/// What a referrer says that its bundle states.
pub(in crate::source) const STATES: &str = "dev.sigstore.bundle.predicateType";
/// Where `cosign` puts a signature, and what it adds to it.
const SIGNATURE: [&str; 5] = [
    "dev.cosignproject.cosign/signature",
    "dev.sigstore.cosign/bundle",
    "dev.sigstore.cosign/certificate",
    "dev.sigstore.cosign/chain",
    "dev.sigstore.cosign/rfc3161timestamp",
];

/// Annotations of one blob.
#[derive(Clone, Debug, Default)]
pub(in crate::source) struct Annotations {
    /// The annotations that are read.
    known: Vec<(&'static str, String)>,
    /// How many others there are.
    others: usize,
}

impl Annotations {
    /// How many there are, with those that nobody asks for.
    pub(in crate::source) fn len(&self) -> usize {
        self.known.len() + self.others
    }

    pub(in crate::source) fn get(&self, name: &str) -> Option<&str> {
        let mut known = self.known.iter();
        known.find_map(|(known, text)| (*known == name).then_some(text.as_str()))
    }

    /// The annotations of a signature.
    pub(in crate::source) fn into_signature(self) -> BTreeMap<String, String> {
        let known = self.known.into_iter();
        known
            .filter(|(name, _)| SIGNATURE.contains(name))
            .map(|(name, text)| (name.to_owned(), text))
            .collect()
    }
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Entries)
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Annotations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map")
    }

    fn visit_unit<E: Error>(self) -> Result<Annotations, E> {
        Ok(Annotations::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
        let mut read = Annotations::default();
        while let Some(name) = map.next_key::<String>()? {
            if read.len() == MAX_ANNOTATIONS {
                let most = MAX_ANNOTATIONS;
                return Err(A::Error::custom(format_args!("more than {most} entries")));
            }
            let text = map.next_value()?;
            let mut known = [ID, STATES].into_iter().chain(SIGNATURE);
            match known.find(|known| *known == name) {
                Some(name) => {
                    read.known.retain(|(known, _)| *known != name);
                    read.known.push((name, text));
                }
                None => read.others += 1,
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Annotations, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn unused_annotations_are_counted_and_not_kept() {
        let text = r#"{"other": "a", "id": "b", "dev.sigstore.cosign/chain": "c", "id": "d"}"#;
        let annotations = read(text).unwrap();
        assert_eq!((annotations.len(), annotations.get(ID)), (3, Some("d")));
        assert_eq!(
            (annotations.get("other"), annotations.get(STATES)),
            (None, None)
        );
        let signature = annotations.into_signature();
        assert_eq!(
            signature,
            [("dev.sigstore.cosign/chain".to_owned(), "c".to_owned())].into()
        );
    }

    #[test]
    fn anything_else_than_texts_is_refused() {
        for text in [
            "[]",
            r#"{"other": 1}"#,
            r#"{"id": null}"#,
            r#"{"other": {}}"#,
            "\"id\"",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(read("null").unwrap().len(), 0);
    }

    #[test]
    fn too_many_are_refused_while_they_are_read() {
        let many = |count: usize| {
            let entries: Vec<_> = (0..count).map(|at| format!("\"{at}\":\"\"")).collect();
            read(&format!("{{{}}}", entries.join(",")))
        };
        assert_eq!(many(MAX_ANNOTATIONS).unwrap().len(), MAX_ANNOTATIONS);
        let error = many(MAX_ANNOTATIONS + 1).unwrap_err().to_string();
        assert!(error.starts_with("more than 1000 entries"), "{error}");
    }
}
