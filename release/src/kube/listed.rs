//! Objects of a list, each read by itself, and no further than whoever takes it asks: what is wrong with one costs none of the others, and what a page
//! would take as trees is never there at once.

use std::borrow::Cow;
use std::fmt;

use golib::budget::Budget;
use golib::json;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::ownership::MARKS;
use super::transport::{ListOutline, decode, forget_managers};

/// The most that an object takes once it is read, in bytes: a mebibyte and a half of text is seldom more than 15.
pub const MAX_OBJECT: usize = 24 << 20;

/// The most that the annotations of an outline take, in bytes. All that is read of one of ours is a few names; of an object with more it has none, as one
/// that nobody has marked.
const MAX_ANNOTATIONS: usize = 16 << 10;

/// The most that a field takes that an outline is to have, in bytes once it is read.
const MAX_FIELD: usize = 64 << 10;

/// A page of a list.
#[derive(Debug)]
pub(super) struct Page<'t> {
    pub(super) items: Vec<Listed<'t>>,
    /// Where the next page begins, if there is one.
    pub(super) next: String,
}

impl<'t> Page<'t> {
    pub(super) fn read(text: &'t str) -> Result<Self, ApiError> {
        let Ok(outline) = serde_json::from_str::<ListOutline<&RawValue>>(text) else {
            // For the error.
            decode(text)?;
            return Ok(Self {
                items: Vec::new(),
                next: String::new(),
            });
        };
        let (items, next) = outline.parts();
        let items = items.into_iter().map(Listed::new).collect::<Result<_, _>>();
        Ok(Self {
            items: items?,
            next,
        })
    }
}

/// An object of a list, of which nothing is read yet but its name.
#[derive(Debug)]
pub struct Listed<'t> {
    text: &'t RawValue,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Named {
    metadata: Name,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Name {
    namespace: Option<String>,
    name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Outline<'t> {
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(borrow)]
    metadata: Metadata<'t>,
    #[serde(borrow)]
    spec: Option<&'t RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata<'t> {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    #[serde(borrow)]
    labels: Option<&'t RawValue>,
    #[serde(borrow)]
    annotations: Option<&'t RawValue>,
}

impl<'t> Listed<'t> {
    fn new(text: &'t RawValue) -> Result<Self, ApiError> {
        let Ok(Named { metadata }) = serde_json::from_str(text.get()) else {
            // For the error.
            decode(text.get())?;
            return Ok(Self {
                text,
                namespace: String::new(),
                name: String::new(),
            });
        };
        Ok(Self {
            text,
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
        })
    }

    /// Its namespace; empty for kinds without.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The object as it is, without who wrote which field.
    ///
    /// # Errors
    /// It takes more than `most` bytes once it is read, or nests deeper than anything that is worked on here.
    pub fn read(&self, most: usize) -> Result<Value, json::Error> {
        let mut object = json::decode_within(self.text.get().as_bytes(), &mut Budget::new(most))?;
        forget_managers(&mut object);
        Ok(object)
    }

    /// What says which object it is and whose: its name, its version, the marks of a release and those labels and annotations that are `asked` for;
    /// `with_spec` its `spec` too, where that is small. However large the object is, this is not.
    pub fn outline(&self, asked: &[&str], with_spec: bool) -> Value {
        let outline: Outline<'_> = serde_json::from_str(self.text.get()).unwrap_or_default();
        let metadata = outline.metadata;
        let texts = [
            ("namespace", metadata.namespace),
            ("name", metadata.name),
            ("uid", metadata.uid),
            ("resourceVersion", metadata.resource_version),
            ("creationTimestamp", metadata.creation_timestamp),
            ("deletionTimestamp", metadata.deletion_timestamp),
        ];
        let mut fields = texts_of(texts);
        let marks = [
            ("labels", metadata.labels),
            ("annotations", metadata.annotations),
        ];
        for (name, text) in marks {
            let marks = text.map(|text| marks_of(text, asked)).unwrap_or_default();
            if !marks.is_empty() {
                fields.insert(name.to_owned(), marks.into());
            }
        }
        let mut object = texts_of([("apiVersion", outline.api_version), ("kind", outline.kind)]);
        object.insert("metadata".to_owned(), fields.into());
        let spec = outline.spec.filter(|_| with_spec);
        let mut budget = Budget::new(MAX_FIELD);
        let spec = spec.map(|spec| json::decode_within(spec.get().as_bytes(), &mut budget));
        if let Some(Ok(spec)) = spec {
            object.insert("spec".to_owned(), spec);
        }
        object.into()
    }
}

fn texts_of<const N: usize>(texts: [(&str, Option<String>); N]) -> Map<String, Value> {
    let texts = texts.into_iter();
    let there = texts.filter_map(|(name, text)| Some((name.to_owned(), text?.into())));
    there.collect()
}

/// The marks of a release among labels or annotations, and those that are `asked` for; none where they are too large to be ours.
fn marks_of(text: &RawValue, asked: &[&str]) -> Map<String, Value> {
    let mut reader = serde_json::Deserializer::from_str(text.get());
    let marks = Marks(asked).deserialize(&mut reader).unwrap_or_default();
    let size = |(key, mark): (&String, &Value)| key.len() + mark.as_str().map_or(0, str::len);
    match marks.iter().map(size).sum::<usize>() <= MAX_ANNOTATIONS {
        true => marks,
        false => Map::new(),
    }
}

/// Reads a table, and of its entries those that are wanted.
struct Marks<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for Marks<'_> {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Marks<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels or annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut marks = Map::new();
        while let Some(key) = entries.next_key::<Cow<'_, str>>()? {
            match self.0.contains(&&*key) || MARKS.contains(&&*key) {
                true => {
                    let mark = entries.next_value::<Option<String>>()?;
                    marks.extend(mark.map(|mark| (key.into_owned(), mark.into())));
                }
                false => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(marks)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(page: &Page<'_>) -> Vec<String> {
        let names = page.items.iter().map(Listed::name);
        names.map(str::to_owned).collect()
    }

    /// Of a custom resource, for one, that keeps unknown fields.
    #[test]
    fn an_object_that_is_too_deep_or_too_large_costs_itself_alone() {
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        let object = |name: &str, levels: usize| {
            let deep = nested(levels);
            format!(
                r#"{{"metadata":{{"name":"{name}","uid":"u","managedFields":[{deep}]}},"spec":{deep}}}"#
            )
        };
        let items = [object("a", 1), object("b", 900), object("c", 100_000)].join(",");
        let text = format!(r#"{{"metadata":{{"continue":"x"}},"items":[{items}]}}"#);
        let page = Page::read(&text).unwrap();
        assert_eq!(
            (names(&page), &*page.next),
            (["a", "b", "c"].map(str::to_owned).into(), "x")
        );
        let [first, second, third] = &page.items[..] else {
            panic!("{page:?}");
        };
        let known = json!({"metadata": {"name": "a", "uid": "u"}, "spec": [1]});
        assert_eq!(first.read(usize::MAX).unwrap(), known);
        assert!(matches!(first.read(10), Err(json::Error::TooLarge(_))));
        assert!(second.read(usize::MAX).is_ok());
        assert!(third.read(usize::MAX).is_err());
        let known = json!({"metadata": {"name": "c", "uid": "u"}});
        assert_eq!(third.outline(&[], true), known);
        assert!(Page::read("{").is_err() && Page::read("<html>").is_err());
    }

    /// Anybody writes a hundred thousand labels, and annotations as large as they may be.
    #[test]
    fn an_outline_is_small_however_large_the_object_is() {
        let outline = |annotations: Value| {
            let mut labels: Map<_, _> = (0..50_000).map(|n| (n.to_string(), "".into())).collect();
            labels.insert("asked".to_owned(), "x".into());
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "spec": {"a": 1},
                "metadata": {"namespace": "ns", "name": "a", "labels": labels, "annotations": annotations, "finalizers": ["x"]}});
            let text = json!({"items": [object]}).to_string();
            let page = Page::read(&text).unwrap();
            [false, true].map(|with_spec| page.items[0].outline(&["asked"], with_spec))
        };
        let metadata = |annotations: Value| {
            let mut known = json!({"namespace": "ns", "name": "a", "labels": {"asked": "x"}});
            json_patch::merge(&mut known, &json!({ "annotations": annotations }));
            known
        };
        let [bare, with_spec] = outline(json!({"helm.sh/resource-policy": "keep", "other": "x"}));
        let known = metadata(json!({"helm.sh/resource-policy": "keep"}));
        let known = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": known});
        assert_eq!(bare, known);
        assert_eq!(with_spec["spec"], json!({"a": 1}));
        // Without the annotation that says whose it is, nothing is done to it.
        let large = json!({"meta.helm.sh/release-name": "web", "helm.sh/resource-policy": "x".repeat(20 << 10)});
        assert_eq!(outline(large)[0]["metadata"], metadata(Value::Null));
    }
}
