//! Objects of lists and watches, each read by itself: what is wrong with one costs none of the others.
//!
//! kube reads an answer as a whole. An object that nests deeper than serde's 128 levels makes it unreadable then, by its `managedFields` alone
//! too, which repeat the object's structure; and all that a page holds is there at once, as large as it gets when it is read.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ListParams, ObjectMeta};
use kube::core::ObjectList;
use kube::{Api, Resource};
use release::kube::is_too_large;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::requests::PAGE;
use crate::api::{HOLD_ANNOTATION, LABEL_OBJECT_SET_HASH, RELEASE_HOLD_ANNOTATION};
use crate::error::ListTooLong;

/// Labels that are read of an object's metadata, and annotations: whoever may write an object may give it a hundred thousand.
pub const MOST_LABELS: usize = 1_000;

/// What is read of one with more of them. Not what marks a copy of an upstream resource: a copy whose claims cannot all be read is nobody's
/// to delete.
const ALWAYS_READ: [&str; 5] = [
    LABEL_OBJECT_SET_HASH,
    RELEASE_HOLD_ANNOTATION,
    HOLD_ANNOTATION,
    "meta.helm.sh/release-name",
    "meta.helm.sh/release-namespace",
];

/// Metadata of an object, without who wrote which field. Nothing else of it is asked for, and what was sent of it all the same is passed over.
pub struct Metadata<K> {
    /// Without `managedFields`, owners and finalizers. Of more than a thousand labels or annotations it has those that the agent goes by.
    pub metadata: ObjectMeta,
    /// Names of those who wrote any field.
    pub managers: BTreeSet<String>,
    kind: PhantomData<fn() -> K>,
}

impl<K> From<ObjectMeta> for Metadata<K> {
    fn from(metadata: ObjectMeta) -> Self {
        Self {
            metadata,
            managers: BTreeSet::new(),
            kind: PhantomData,
        }
    }
}

impl<'de, K> Deserialize<'de> for Metadata<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Outline {
            #[serde(default)]
            metadata: Brief,
        }
        let Outline { metadata } = Outline::deserialize(deserializer)?;
        Ok(Self {
            managers: metadata.managed_fields.unwrap_or_default().0,
            metadata: ObjectMeta {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                generation: metadata.generation,
                creation_timestamp: metadata.creation_timestamp,
                deletion_timestamp: metadata.deletion_timestamp,
                labels: metadata.labels.map(|labels| labels.0),
                annotations: metadata.annotations.map(|annotations| annotations.0),
                ..ObjectMeta::default()
            },
            kind: PhantomData,
        })
    }
}

/// The metadata that is read of anybody's objects: no more than what is kept is ever in memory.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Brief {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<FewTexts>,
    annotations: Option<FewTexts>,
    managed_fields: Option<Managers>,
}

/// Labels or annotations: all, or of too many those that are [`ALWAYS_READ`].
struct FewTexts(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for FewTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = FewTexts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of texts")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FewTexts, A::Error> {
                let (mut texts, mut is_too_many) = (BTreeMap::new(), false);
                let is_read = |key: &str| ALWAYS_READ.contains(&key);
                while let Some(key) = map.next_key::<Cow<'_, str>>()? {
                    if !is_too_many && texts.len() >= MOST_LABELS {
                        is_too_many = true;
                        texts.retain(|key: &String, _| is_read(key));
                    }
                    if is_too_many && !is_read(&key) {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        texts.insert(key.into_owned(), map.next_value()?);
                    }
                }
                Ok(FewTexts(texts))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// Who wrote an object, of its `managedFields`.
#[derive(Default)]
struct Managers(BTreeSet<String>);

impl<'de> Deserialize<'de> for Managers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Entry {
            manager: Option<String>,
        }
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Managers;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of managers")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Managers, A::Error> {
                let mut managers = BTreeSet::new();
                while let Some(Entry { manager }) = entries.next_element()? {
                    managers.extend(manager);
                }
                Ok(Managers(managers))
            }
        }
        deserializer.deserialize_seq(Reader)
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
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
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
            ..Self::default()
        }
    }
}

/// An object as the text it came in, of which only the metadata was read; the rest is read once it is its turn.
pub struct Unread<K> {
    /// Without `managedFields`, owners and finalizers.
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

/// Both stand for objects of kind `K`, which they do not hold: they are cloned and printed whatever it is.
macro_rules! listed {
    ($type:ident, $metadata_alone:literal, $kept:ident) => {
        impl<K> Clone for $type<K> {
            fn clone(&self) -> Self {
                Self {
                    metadata: self.metadata.clone(),
                    $kept: self.$kept.clone(),
                    kind: PhantomData,
                }
            }
        }

        impl<K> fmt::Debug for $type<K> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($type)).finish_non_exhaustive()
            }
        }

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

listed!(Metadata, true, managers);
listed!(Unread, false, text);

/// How long a list may be, over all its pages: a server that gives one token after the other would never end it, and whoever keeps something of each
/// object would run out of memory.
#[derive(Clone, Copy, Debug)]
pub struct ListLimits {
    pub pages: u64,
    pub objects: u64,
    /// As JSON.
    pub bytes: u64,
}

impl ListLimits {
    /// Of what a cluster has any number of, and little is kept: nodes, records of releases.
    pub const ANY: Self = Self {
        pages: 10_000,
        objects: 500_000,
        bytes: 1 << 30,
    };

    /// Of the metadata of our BundleDeployments, of which names are kept: some thirty times as many as the ledger has room for.
    pub const BUNDLES: Self = Self {
        pages: 2_000,
        objects: 100_000,
        bytes: 128 << 20,
    };

    /// The first limit that is exceeded, and what there are more of.
    fn exceeded(self, length: &Length) -> Option<(u64, &'static str)> {
        let all = [
            (length.pages, self.pages, "pages"),
            (length.objects, self.objects, "objects"),
            (length.bytes, self.bytes, "bytes"),
        ];
        let exceeded = all.into_iter().find(|(is, most, _)| is > most);
        exceeded.map(|(_, most, of)| (most, of))
    }
}

/// What a list has had so far.
#[derive(Default)]
struct Length {
    pages: u64,
    objects: u64,
    bytes: u64,
}

impl Length {
    fn adds_page(&mut self, objects: usize, bytes: usize) {
        let all = [
            (&mut self.pages, 1),
            (&mut self.objects, objects),
            (&mut self.bytes, bytes),
        ];
        for (sum, added) in all {
            *sum = sum.saturating_add(u64::try_from(added).unwrap_or(u64::MAX));
        }
    }
}

/// Hands over all objects, page by page; gives the version of the list. Of larger objects fewer are asked for at a time.
///
/// # Errors
/// The API server refused a page, or did not answer, or the list is longer than [`ListLimits::ANY`]; the pages before were handed over.
pub async fn list<K>(api: &Api<K>, take: impl FnMut(Vec<K>)) -> kube::Result<Option<String>>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned,
{
    list_selected(api, ListParams::default(), take).await
}

/// The same of the objects that are `selected`.
///
/// # Errors
/// As [`list`].
pub async fn list_selected<K>(
    api: &Api<K>,
    selected: ListParams,
    take: impl FnMut(Vec<K>),
) -> kube::Result<Option<String>>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned,
{
    list_within(api, selected, ListLimits::ANY, take).await
}

/// The same within these limits.
///
/// # Errors
/// As [`list`], with these limits: a [`ListTooLong`] names the one.
pub async fn list_within<K>(
    api: &Api<K>,
    selected: ListParams,
    limits: ListLimits,
    mut take: impl FnMut(Vec<K>),
) -> kube::Result<Option<String>>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned,
{
    let request = kube::core::Request::new(api.resource_url());
    let client = api.clone().into_client();
    let mut page = selected.limit(PAGE);
    let (mut length, mut version) = (Length::default(), None);
    loop {
        let list = match K::metadata_api() {
            true => request.list_metadata(&page),
            false => request.list(&page),
        };
        let list = list.map_err(kube::Error::BuildRequest)?;
        let text = match client.request_text(list).await {
            Err(error) if page.limit.is_some_and(|limit| limit > 1) && is_too_large(&error) => {
                page.limit = page.limit.map(smaller_page);
                continue;
            }
            answer => answer?,
        };
        let answer = serde_json::from_str::<ObjectList<K>>(&text);
        let answer = answer.map_err(kube::Error::SerdeError)?;
        length.adds_page(answer.items.len(), text.len());
        drop(text);
        if let Some((most, of)) = limits.exceeded(&length) {
            let resource = K::plural(&()).into_owned();
            let too_long = ListTooLong { resource, most, of };
            return Err(kube::Error::Service(Box::new(too_long)));
        }
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::api::{DynamicObject, WatchEvent};
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::api::BundleDeployment;
    use crate::client::requests::LastContact;
    use crate::client::scripted;

    /// A server that gives two objects a page and one token after the other, and how often it is asked.
    async fn list_without_end(limits: ListLimits) -> (kube::Result<Option<String>>, usize) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let clients = scripted::clients(move |_| {
            let count = counted.fetch_add(1, Ordering::Relaxed);
            assert!(count < 100, "it is asked without end");
            let items = [
                json!({"metadata": {"name": "a"}}),
                json!({"metadata": {"name": "b"}}),
            ];
            let list = json!({"metadata": {"continue": count.to_string()}, "items": items});
            async move { (200, list) }
        });
        let client = clients.client(scripted::config(), &LastContact::default());
        let bundles = Api::<Metadata<BundleDeployment>>::namespaced(client.unwrap(), "x");
        let listed = list_within(&bundles, ListParams::default(), limits, drop).await;
        (listed, asked.load(Ordering::Relaxed))
    }

    #[rstest]
    #[case::pages(ListLimits { pages: 3, ..ListLimits::ANY }, 4, "3 pages")]
    #[case::objects(ListLimits { objects: 9, ..ListLimits::ANY }, 5, "9 objects")]
    #[case::bytes(ListLimits { bytes: 100, ..ListLimits::ANY }, 2, "100 bytes")]
    #[tokio::test]
    async fn a_list_without_end_is_given_up(
        #[case] limits: ListLimits,
        #[case] expected: usize,
        #[case] most: &str,
    ) {
        let (listed, asked) = list_without_end(limits).await;
        let failed = listed.unwrap_err();
        let text = crate::error::chain(&failed);
        assert_eq!(
            text,
            format!("the list of bundledeployments has more than {most}")
        );
        assert_eq!(asked, expected);
    }

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

    /// Whoever may write an object may give it a hundred thousand labels and fields.
    #[test]
    fn little_is_kept_of_an_object_with_many_labels_and_fields() {
        let many = |name: &str| -> String {
            let pairs: Vec<_> = (0..60_000).map(|n| format!(r#""{name}{n}":"x""#)).collect();
            format!("{{{},\"{LABEL_OBJECT_SET_HASH}\":\"h\"}}", pairs.join(","))
        };
        let fields = many("f:");
        let text = format!(
            r#"{{"metadata":{{"name":"a","labels":{},"annotations":{},"finalizers":["x"],"managedFields":[
                {{"manager":"Helm","fieldsV1":{fields}}},{{"manager":"Helm","fieldsV1":{fields}}},{{"fieldsV1":{fields}}}]}}}}"#,
            many("a"),
            many("z")
        );
        let object: Metadata<DynamicObject> = serde_json::from_str(&text).unwrap();
        let hash = BTreeMap::from([(LABEL_OBJECT_SET_HASH.to_owned(), "h".to_owned())]);
        assert_eq!(object.metadata.labels.as_ref(), Some(&hash));
        assert_eq!(object.metadata.annotations.as_ref(), Some(&hash));
        assert_eq!(object.managers, BTreeSet::from(["Helm".to_owned()]));
        assert!(object.metadata.managed_fields.is_none());
        let text =
            r#"{"metadata":{"labels":{"a":"1","b":"2"},"annotations":null,"managedFields":null}}"#;
        let object: Metadata<DynamicObject> = serde_json::from_str(text).unwrap();
        assert_eq!(object.metadata.labels.unwrap().len(), 2);
        assert!(object.metadata.annotations.is_none());
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
