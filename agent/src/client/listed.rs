//! Objects of lists and watches, each read by itself: what is wrong with one costs none of the others.
//!
//! kube reads an answer as a whole. An object that nests deeper than serde's 128 levels makes it unreadable then, by its `managedFields` alone
//! too, which repeat the object's structure; and all that a page holds is there at once, as large as it gets when it is read.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, Resource};
use release::kube::is_too_large;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::requests::PAGE;
use crate::api::{HOLD_ANNOTATION, LABEL_OBJECT_SET_HASH, RELEASE_HOLD_ANNOTATION};
use crate::error::ListUnended;

/// Labels that are read of an object's metadata, and annotations: whoever may write an object may give it a hundred thousand.
pub const MOST_LABELS: usize = 1_000;

/// Labels and annotations that are read even of objects with more of them. Not the marks of a copied upstream resource: a copy whose claims cannot
/// all be read is never deleted.
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
        let outline = Outline::<FewTexts, Managers>::deserialize(deserializer)?;
        let Outline { mut metadata } = outline;
        Ok(Self {
            managers: metadata.managed_fields.take().unwrap_or_default().0,
            metadata: metadata.into(),
            kind: PhantomData,
        })
    }
}

/// An object of which only the metadata is read.
#[derive(Deserialize)]
struct Outline<T, M> {
    #[serde(default)]
    metadata: Known<T, M>,
}

/// The metadata that somebody asks for, with labels and annotations read as `T` and `managedFields` as `M`: no more of it than is kept is ever in memory.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Known<T, M> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<T>,
    annotations: Option<T>,
    managed_fields: Option<M>,
}

impl<T: Into<BTreeMap<String, String>>, M> From<Known<T, M>> for ObjectMeta {
    fn from(known: Known<T, M>) -> Self {
        Self {
            name: known.name,
            namespace: known.namespace,
            uid: known.uid,
            resource_version: known.resource_version,
            generation: known.generation,
            creation_timestamp: known.creation_timestamp,
            deletion_timestamp: known.deletion_timestamp,
            labels: known.labels.map(Into::into),
            annotations: known.annotations.map(Into::into),
            ..Self::default()
        }
    }
}

/// Labels or annotations: all, or of too many those that are [`ALWAYS_READ`].
#[derive(Default)]
struct FewTexts(BTreeMap<String, String>);

impl From<FewTexts> for BTreeMap<String, String> {
    fn from(few: FewTexts) -> Self {
        few.0
    }
}

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

/// Field managers of an object, from its `managedFields`.
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

/// An object as the text it came in, of which only the metadata was read; the rest is read once it is its turn.
pub struct RawObject<K> {
    /// Without `managedFields`, owners and finalizers.
    pub metadata: ObjectMeta,
    text: Box<RawValue>,
    kind: PhantomData<fn() -> K>,
}

impl<K> RawObject<K> {
    /// The object as JSON.
    pub fn text(&self) -> &str {
        self.text.get()
    }
}

impl<'de, K> Deserialize<'de> for RawObject<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let outline = serde_json::from_str::<Outline<BTreeMap<_, _>, IgnoredAny>>(text.get());
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
listed!(RawObject, false, text);

/// So many objects a list has at most, over all its pages: more than any API server keeps of one kind in a namespace.
const MOST_OBJECTS: usize = 1_000_000;

/// So many pages in a row may be without objects, as an API server may answer that passes others over, and ask for more.
const MOST_EMPTY_PAGES: u32 = 1_000;

/// So long a list may take. An API server forgets the version that a list is of after some minutes.
const LONGEST_LIST: Duration = Duration::from_secs(30 * 60);

/// So many pages in a row are read before more objects are asked for again than were too many.
const PAGES_BEFORE_LARGER: u32 = 16;

/// How far a list has come.
struct Progress {
    begun: Instant,
    objects: usize,
    /// Pages in a row that had none.
    empty_pages: u32,
    token: String,
}

impl Progress {
    /// Of a list that begins.
    fn begins() -> Self {
        Self {
            begun: Instant::now(),
            objects: 0,
            empty_pages: 0,
            token: String::new(),
        }
    }

    /// Takes note of a page that is not the last one.
    ///
    /// # Errors
    /// Why the list is not read on: a server that gives one token after the other would never end it, and whoever keeps something of each object would
    /// run out of memory.
    fn reads(&mut self, objects: usize, token: &str) -> Result<(), &'static str> {
        self.objects = self.objects.saturating_add(objects);
        self.empty_pages = match objects {
            0 => self.empty_pages.saturating_add(1),
            _ => 0,
        };
        if self.token == token {
            return Err("a page goes on with itself");
        }
        token.clone_into(&mut self.token);
        if self.empty_pages > MOST_EMPTY_PAGES {
            return Err("there is nothing on a thousand pages in a row");
        }
        if self.objects > MOST_OBJECTS {
            return Err("it has more than a million objects");
        }
        if self.begun.elapsed() > LONGEST_LIST {
            return Err("it takes more than half an hour");
        }
        Ok(())
    }
}

/// Hands over all objects, page by page; gives the version of the list. Of larger objects fewer are asked for at a time.
///
/// # Errors
/// The API server refused a page, or did not answer, or does not end the list ([`ListUnended`]); the pages before were handed over.
pub async fn list<K>(api: &Api<K>, take: impl FnMut(Vec<K>)) -> kube::Result<Option<String>>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned,
{
    list_selected(api, ListParams::default(), take).await
}

/// Like [`list`], for the objects that are `selected`.
///
/// # Errors
/// As [`list`].
pub async fn list_selected<K>(
    api: &Api<K>,
    selected: ListParams,
    mut take: impl FnMut(Vec<K>),
) -> kube::Result<Option<String>>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned,
{
    let mut page = selected.limit(PAGE);
    let (mut progress, mut version, mut answered) = (Progress::begins(), None, 0);
    loop {
        let answer = match api.list(&page).await {
            Err(error) if page.limit.is_some_and(|limit| limit > 1) && is_too_large(&error) => {
                page.limit = page.limit.map(smaller_page);
                answered = 0;
                continue;
            }
            answer => answer?,
        };
        version = version.or(answer.metadata.resource_version);
        let objects = answer.items.len();
        take(answer.items);
        let next = answer.metadata.continue_.filter(|token| !token.is_empty());
        let Some(token) = next else {
            return Ok(version);
        };
        progress.reads(objects, &token).map_err(|why| {
            let resource = K::plural(&()).into_owned();
            kube::Error::Service(Box::new(ListUnended { resource, why }))
        })?;
        answered += 1;
        if answered == PAGES_BEFORE_LARGER {
            page.limit = page.limit.map(|limit| limit.saturating_mul(2).min(PAGE));
            answered = 0;
        }
        page = page.continue_token(&token);
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
    use kube::core::ObjectList;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::api::BundleDeployment;
    use crate::client::requests::LastContact;
    use crate::client::scripted;

    /// Lists a server with `objects` on each page, which continues with what `next` says of the number of requests so far; returns that number, too.
    /// Each answer takes `takes`.
    async fn listed(
        objects: usize,
        takes: Duration,
        next: impl Fn(usize) -> String + Clone + Send + Sync + 'static,
    ) -> (kube::Result<Option<String>>, usize) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let clients = scripted::clients(move |_| {
            let count = counted.fetch_add(1, Ordering::Relaxed) + 1;
            assert!(count < 5_000, "it is asked without end");
            let items = vec![json!({"metadata": {"name": "a"}}); objects];
            let list = json!({"metadata": {"continue": next(count)}, "items": items});
            async move {
                tokio::time::sleep(takes).await;
                (200, list)
            }
        });
        let client = clients.client(scripted::config(), &LastContact::default());
        let bundles = Api::<Metadata<BundleDeployment>>::namespaced(client.unwrap(), "x");
        let listed = list(&bundles, drop).await;
        (listed, asked.load(Ordering::Relaxed))
    }

    #[rstest]
    #[case::a_page_that_goes_on_with_itself(2, 0, false, 2, "a page goes on with itself")]
    #[case::nothing_page_after_page(
        0,
        0,
        true,
        1_001,
        "there is nothing on a thousand pages in a row"
    )]
    #[case::it_takes_for_ever(1, 10, true, 181, "it takes more than half an hour")]
    #[tokio::test(start_paused = true)]
    async fn a_list_without_end_is_given_up(
        #[case] objects: usize,
        #[case] seconds: u64,
        #[case] goes_on: bool,
        #[case] expected: usize,
        #[case] why: &str,
    ) {
        let next = move |count: usize| {
            if goes_on {
                count.to_string()
            } else {
                "x".to_owned()
            }
        };
        let (listed, asked) = listed(objects, Duration::from_secs(seconds), next).await;
        let failed = listed.unwrap_err();
        let text = crate::error::chain(&failed);
        assert_eq!(
            text,
            format!("the list of bundledeployments does not end: {why}")
        );
        // The server answers.
        assert!(crate::error::is_answered(&failed));
        assert_eq!(asked, expected);
    }

    /// The server has a hundred thousand objects, in whatever pages they come.
    #[tokio::test(start_paused = true)]
    async fn a_list_of_many_pages_is_read_to_its_end() {
        const PAGES: usize = 3_000;
        let next = |count: usize| match count < PAGES {
            true => count.to_string(),
            false => String::new(),
        };
        let (listed, asked) = listed(1, Duration::from_millis(100), next).await;
        assert!(listed.is_ok() && asked == PAGES, "{asked}");
        let mut progress = Progress::begins();
        let pages = 100_000 / PAGE as usize;
        let read = (0..pages).all(|n| progress.reads(PAGE as usize, &n.to_string()).is_ok());
        assert!(read);
        let mut pages = 0..MOST_OBJECTS;
        assert!(!pages.all(|n| progress.reads(PAGE as usize, &n.to_string()).is_ok()));
    }

    /// A few large objects at its beginning make the rest of it no longer.
    #[tokio::test]
    async fn pages_grow_again() {
        let asked = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let clients = scripted::clients(move |request: http::Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default();
            let limit = query.split('&').find_map(|one| one.strip_prefix("limit="));
            let limit: u32 = limit.unwrap().parse().unwrap();
            let mut asked = noted.lock();
            asked.push(limit);
            let count = asked.len();
            let filler = match count {
                1 => "x".repeat(17 << 20),
                _ => String::new(),
            };
            let next = if count < 60 {
                count.to_string()
            } else {
                String::new()
            };
            let items = [json!({"metadata": {"name": "a"}, "filler": filler})];
            async move { (200, json!({"metadata": {"continue": next}, "items": items})) }
        });
        let client = clients.client(scripted::config(), &LastContact::default());
        let bundles = Api::<Metadata<BundleDeployment>>::namespaced(client.unwrap(), "x");
        list(&bundles, drop).await.unwrap();
        let mut limits = asked.lock().clone();
        limits.dedup();
        assert_eq!(limits, [64, 16, 32, 64]);
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
            let raw: ObjectList<RawObject<DynamicObject>> = serde_json::from_str(&text).unwrap();
            assert_eq!(raw.items[0].text(), nested("deep", levels));
            names(raw.items.into_iter().map(|item| item.metadata).collect());
        }
        // What this is about: kube's own types.
        let kubes = serde_json::from_str::<ObjectList<DynamicObject>>(&list_of(130));
        assert!(kubes.is_err());
    }

    /// A writer of an object may give it a hundred thousand labels and fields.
    #[test]
    fn only_the_object_set_of_an_object_with_many_labels_is_kept() {
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
        let event: WatchEvent<RawObject<DynamicObject>> = serde_json::from_str(&text).unwrap();
        let WatchEvent::Modified(object) = event else {
            panic!("{event:?}");
        };
        assert_eq!(object.metadata.resource_version.as_deref(), Some("7"));
        let event: WatchEvent<Metadata<DynamicObject>> = serde_json::from_str(&text).unwrap();
        assert!(matches!(event, WatchEvent::Modified(_)));
    }
}
