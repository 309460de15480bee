//! Objects of lists and watches, each read by itself: what is wrong with one costs none of the others.
//!
//! kube reads an answer as a whole. An object that nests deeper than serde's 128 levels makes it unreadable then, by its `managedFields` alone
//! too, which repeat the object's structure; and all that a page holds is there at once, as large as it gets when it is read.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, Resource};
use release::kube::is_too_large;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::requests::PAGE;

/// Metadata of an object, without who wrote which field. Nothing else of it is asked for, and what was sent of it all the same is passed over.
pub struct Metadata<K> {
    /// Without `managedFields`.
    pub metadata: ObjectMeta,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Metadata<K> {
    fn clone(&self) -> Self {
        Self::from(self.metadata.clone())
    }
}

impl<K> fmt::Debug for Metadata<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata").finish_non_exhaustive()
    }
}

impl<K> From<ObjectMeta> for Metadata<K> {
    fn from(metadata: ObjectMeta) -> Self {
        Self {
            metadata,
            kind: PhantomData,
        }
    }
}

impl<'de, K> Deserialize<'de> for Metadata<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Outline { metadata } = Outline::deserialize(deserializer)?;
        Ok(ObjectMeta::from(metadata).into())
    }
}

/// An object of which only the metadata is read.
#[derive(Deserialize)]
struct Outline {
    #[serde(default)]
    metadata: Known,
}

/// The metadata that somebody asks for.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Known {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<std::collections::BTreeMap<String, String>>,
    annotations: Option<std::collections::BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
}

impl From<Known> for ObjectMeta {
    fn from(known: Known) -> Self {
        Self {
            name: known.name,
            namespace: known.namespace,
            uid: known.uid,
            resource_version: known.resource_version,
            generation: known.generation,
            creation_timestamp: known.creation_timestamp,
            deletion_timestamp: known.deletion_timestamp,
            labels: known.labels,
            annotations: known.annotations,
            owner_references: known.owner_references,
            finalizers: known.finalizers,
            ..Self::default()
        }
    }
}

/// An object as the text it came in, of which only the metadata was read; the rest is read once it is its turn.
pub struct Unread<K> {
    /// Without `managedFields`.
    pub metadata: ObjectMeta,
    text: Box<RawValue>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Unread<K> {
    /// The object as JSON.
    pub fn text(&self) -> &str {
        self.text.get()
    }
}

impl<K> Clone for Unread<K> {
    fn clone(&self) -> Self {
        Self {
            metadata: self.metadata.clone(),
            text: self.text.clone(),
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Unread<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unread").finish_non_exhaustive()
    }
}

impl<'de, K> Deserialize<'de> for Unread<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let outline = serde_json::from_str::<Outline>(text.get());
        let Outline { metadata } = outline.map_err(serde::de::Error::custom)?;
        Ok(Self {
            metadata: metadata.into(),
            text,
            kind: PhantomData,
        })
    }
}

/// Both stand for objects of kind `K`.
macro_rules! listed {
    ($type:ident, $metadata_alone:literal) => {
        impl<K: Resource> Resource for $type<K> {
            type DynamicType = K::DynamicType;
            type Scope = K::Scope;
            fn metadata_api() -> bool {
                $metadata_alone
            }
            fn kind(of: &K::DynamicType) -> Cow<'_, str> {
                K::kind(of)
            }
            fn group(of: &K::DynamicType) -> Cow<'_, str> {
                K::group(of)
            }
            fn version(of: &K::DynamicType) -> Cow<'_, str> {
                K::version(of)
            }
            fn plural(of: &K::DynamicType) -> Cow<'_, str> {
                K::plural(of)
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

listed!(Metadata, true);
listed!(Unread, false);

/// Hands over all objects, page by page; gives the version of the list. Of larger objects fewer are asked for at a time.
///
/// # Errors
/// The API server refused a page, or did not answer; the pages before were handed over.
pub async fn list<K>(api: &Api<K>, mut take: impl FnMut(Vec<K>)) -> kube::Result<Option<String>>
where
    K: Clone + fmt::Debug + DeserializeOwned,
{
    let mut page = ListParams::default().limit(PAGE);
    let mut version = None;
    loop {
        let answer = match api.list(&page).await {
            Err(error) if page.limit.is_some_and(|limit| limit > 1) && is_too_large(&error) => {
                page.limit = page.limit.map(smaller_page);
                continue;
            }
            answer => answer?,
        };
        version = version.or(answer.metadata.resource_version);
        take(answer.items);
        match answer.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(version),
        }
    }
}

/// How many objects to ask for where so many were too many.
pub(super) fn smaller_page(limit: u32) -> u32 {
    (limit / 4).max(1)
}

#[cfg(test)]
mod tests {
    use kube::api::{DynamicObject, WatchEvent};
    use kube::core::ObjectList;

    use super::*;

    /// An object with so many levels below `spec`, and with who wrote them.
    fn nested(name: &str, levels: usize) -> String {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        format!(
            r#"{{"kind":"K","metadata":{{"name":"{name}","managedFields":[{{"fieldsV1":{deep}}}],"resourceVersion":"7"}},"spec":{deep}}}"#
        )
    }

    fn list_of(levels: usize) -> String {
        let items = [nested("deep", levels), nested("flat", 1)].join(",");
        format!(r#"{{"apiVersion":"v1","kind":"List","metadata":{{}},"items":[{items}]}}"#)
    }

    #[test]
    fn a_list_is_read_despite_an_object_nested_too_deep() {
        for levels in [100, 130, 100_000] {
            let text = list_of(levels);
            let names = |metadata: Vec<ObjectMeta>| {
                let names: Vec<_> = metadata.into_iter().filter_map(|of| of.name).collect();
                assert_eq!(names, ["deep", "flat"], "{levels}");
            };
            let metadata: ObjectList<Metadata<DynamicObject>> =
                serde_json::from_str(&text).unwrap();
            names(
                metadata
                    .items
                    .into_iter()
                    .map(|item| item.metadata)
                    .collect(),
            );
            let unread: ObjectList<Unread<DynamicObject>> = serde_json::from_str(&text).unwrap();
            assert_eq!(unread.items[0].text(), nested("deep", levels));
            names(unread.items.into_iter().map(|item| item.metadata).collect());
        }
        // What this is about: kube's own types.
        let kubes = serde_json::from_str::<ObjectList<DynamicObject>>(&list_of(130));
        assert!(kubes.is_err());
    }

    #[test]
    fn an_event_is_read_however_deep_its_object_is() {
        let text = format!(
            r#"{{"type":"MODIFIED","object":{}}}"#,
            nested("deep", 5_000)
        );
        let event: WatchEvent<Unread<DynamicObject>> = serde_json::from_str(&text).unwrap();
        let WatchEvent::Modified(object) = event else {
            panic!("{event:?}");
        };
        assert_eq!(object.metadata.resource_version.as_deref(), Some("7"));
        let event: WatchEvent<Metadata<DynamicObject>> = serde_json::from_str(&text).unwrap();
        assert!(matches!(event, WatchEvent::Modified(_)));
    }
}
