//! Listing the records of a release: metadata only, and one list for all concurrent requests.
//!
//! Fifty releases of one namespace that are deployed together would make fifty lists. While one list
//! is under way further requests wait, and go together into the list after it; a list that began
//! before a request was made never answers it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::sync::oneshot;

use super::error::ApiError;
use super::transport::{ListOutline, decode};
use crate::model::BEFORE_REMOVAL_LABEL;

/// Names in one list: what fits into the address of a request anywhere.
const MAX_NAMES: usize = 64;

/// A release, and where its records go.
type Request = (String, oneshot::Sender<Vec<RecordMetadata>>);

/// The lists of one identity.
#[derive(Debug, Default)]
pub(super) struct BatchedLists {
    /// By namespace.
    namespaces: Mutex<HashMap<String, Arc<Queue>>>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Held while a list is under way.
    listing: tokio::sync::Mutex<()>,
    requests: Mutex<Vec<Request>>,
}

impl BatchedLists {
    /// The records of `release`, by a `list` of several releases that begins after this call.
    ///
    /// # Cancellation
    /// Safe: the other requests of the batch are made again.
    pub(super) async fn list<F, A>(
        &self,
        namespace: &str,
        release: &str,
        list: F,
    ) -> Result<Vec<RecordMetadata>, ApiError>
    where
        F: FnOnce(BTreeSet<String>) -> A,
        A: Future<Output = Result<Vec<RecordMetadata>, ApiError>>,
    {
        let queue = self.at(namespace);
        let (sender, mut answer) = oneshot::channel();
        queue.requests.lock().push((release.to_owned(), sender));
        let listing = queue.listing.lock().await;
        if let Ok(records) = answer.try_recv() {
            drop(listing);
            self.forget(namespace, queue);
            return Ok(records);
        }
        // Not answered yet, or part of a batch whose list failed.
        let mut batch: Vec<Request> = {
            let mut requests = queue.requests.lock();
            requests.retain(|(_, sender)| !sender.is_closed());
            let some = requests.len().min(MAX_NAMES);
            requests.drain(..some).collect()
        };
        batch.retain(|(name, _)| name != release);
        let names = batch.iter().map(|(name, _)| name.clone());
        let mut records = list(names.chain([release.to_owned()]).collect()).await?;
        for (name, sender) in batch {
            let of_name = |record: &&RecordMetadata| record.release() == Some(name.as_str());
            // A request that was given up needs no answer.
            drop(sender.send(records.iter().filter(of_name).cloned().collect()));
        }
        drop(listing);
        self.forget(namespace, queue);
        records.retain(|record| record.release() == Some(release));
        Ok(records)
    }

    fn at(&self, namespace: &str) -> Arc<Queue> {
        let mut namespaces = self.namespaces.lock();
        Arc::clone(namespaces.entry(namespace.to_owned()).or_default())
    }

    /// Namespaces come and go: one without requests is not kept.
    fn forget(&self, namespace: &str, queue: Arc<Queue>) {
        let mut namespaces = self.namespaces.lock();
        drop(queue);
        if namespaces
            .get(namespace)
            .is_some_and(|queue| Arc::strong_count(queue) == 1)
        {
            namespaces.remove(namespace);
        }
    }
}

/// The metadata of a storage object.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordMetadata {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) created_at: Option<Timestamp>,
    /// The latest entry of `managedFields`.
    pub(crate) written_at: Option<Timestamp>,
    pub(crate) written_by: Option<String>,
}

impl RecordMetadata {
    /// The release it says it belongs to.
    fn release(&self) -> Option<&str> {
        self.labels.get("name").map(String::as_str)
    }

    fn of(listed: Listed) -> Self {
        let (written_at, written_by) = listed.managed_fields.unwrap_or_default().0.unzip();
        Self {
            name: listed.name,
            uid: listed.uid,
            labels: listed.labels.unwrap_or_default().0,
            created_at: listed.creation_timestamp.and_then(|at| at.parse().ok()),
            written_at,
            written_by,
        }
    }
}

/// A page of a list of records, of which no more is ever in memory than its text and what is kept of it: whoever may write Secrets may make any
/// number of them look like records, with a hundred thousand fields and labels each.
#[derive(Debug, Default)]
pub(super) struct RecordPage {
    pub(super) records: Vec<RecordMetadata>,
    /// Where the next page begins, if there is one.
    pub(super) next: String,
}

impl RecordPage {
    /// # Errors
    /// It is no list.
    pub(super) fn read(text: &str) -> Result<Self, ApiError> {
        #[derive(Deserialize)]
        struct Item {
            metadata: Listed,
        }
        let outline: ListOutline<Item> = match serde_json::from_str(text) {
            Ok(outline) => outline,
            // In the words for all answers, where it is no JSON.
            Err(failed) => {
                return decode(text)
                    .and_then(|_| Err(ApiError::from(kube::Error::SerdeError(failed))));
            }
        };
        let (items, next) = outline.parts();
        let records = items.into_iter();
        let records = records.map(|item| RecordMetadata::of(item.metadata));
        Ok(Self {
            records: records.collect(),
            next,
        })
    }
}

/// The part of a record's metadata that is read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Listed {
    name: String,
    uid: String,
    creation_timestamp: Option<String>,
    labels: Option<HelmLabels>,
    managed_fields: Option<LastWrite>,
}

/// The labels that say what a record is of.
#[derive(Default)]
struct HelmLabels(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for HelmLabels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const READ: [&str; 4] = ["name", "version", "status", BEFORE_REMOVAL_LABEL];
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = HelmLabels;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HelmLabels, A::Error> {
                let mut labels = BTreeMap::new();
                while let Some(key) = map.next_key::<Cow<'_, str>>()? {
                    if READ.contains(&&*key) {
                        labels.insert(key.into_owned(), map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(HelmLabels(labels))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// When an object was written last, and by whom, as `managedFields` say.
#[derive(Default)]
struct LastWrite(Option<(Timestamp, String)>);

impl<'de> Deserialize<'de> for LastWrite {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Entry {
            manager: Option<String>,
            time: Option<String>,
        }
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = LastWrite;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of managers")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<LastWrite, A::Error> {
                let mut last = None;
                while let Some(Entry { manager, time }) = entries.next_element()? {
                    let at = time.and_then(|time| time.parse().ok());
                    last = last.max(at.zip(manager));
                }
                Ok(LastWrite(last))
            }
        }
        deserializer.deserialize_seq(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str) -> RecordMetadata {
        RecordMetadata {
            labels: BTreeMap::from([("name".to_owned(), name.to_owned())]),
            ..RecordMetadata::default()
        }
    }

    /// A writer of Secrets may make such records of any release.
    #[test]
    fn little_is_kept_of_a_record_with_many_labels_and_fields() {
        let pairs: Vec<_> = (0..60_000).map(|n| format!(r#""f:{n}":"x""#)).collect();
        let fields = pairs.join(",");
        let text = format!(
            r#"{{"metadata":{{"continue":"next"}},"items":[{{"metadata":{{"name":"n","uid":"u","creationTimestamp":"2026-01-02T03:04:05Z",
                "labels":{{{fields},"name":"web","version":"3","status":"deployed"}},"managedFields":[
                {{"manager":"helm","time":"2026-01-02T03:04:06Z","fieldsV1":{{{fields}}}}},
                {{"manager":"fleetagent","time":"2026-01-02T03:04:07Z"}},{{"manager":"x"}}]}}}}]}}"#
        );
        let page = RecordPage::read(&text).unwrap();
        assert_eq!(page.next, "next");
        let record = &page.records[0];
        assert_eq!((&*record.name, &*record.uid), ("n", "u"));
        assert_eq!(record.labels.len(), 3);
        assert_eq!(record.release(), Some("web"));
        assert_eq!(record.written_by.as_deref(), Some("fleetagent"));
        assert!(record.written_at > record.created_at);
        let empty = RecordPage::read(r#"{"items":null}"#).unwrap();
        assert!(empty.records.is_empty() && empty.next.is_empty());
        assert!(RecordPage::read("{").is_err());
        assert!(RecordPage::read(r#"{"items":[{"metadata":{"name":1}}]}"#).is_err());
    }

    /// Twenty requests while the first list is under way: two lists, and each gets its own records.
    #[tokio::test]
    async fn concurrent_requests_share_a_list() {
        let lists = BatchedLists::default();
        let made = Mutex::new(Vec::new());
        let ask = async |name: String| {
            let list = async |names: BTreeSet<String>| {
                made.lock().push(names.len());
                tokio::task::yield_now().await;
                Ok(names.iter().map(|name| record(name)).collect())
            };
            let records = lists.list("ns", &name, list).await.unwrap();
            assert_eq!(records.len(), 1);
            assert_eq!(records[0].release(), Some(name.as_str()));
        };
        let all = (0..20).map(|n| ask(format!("r{n}")));
        futures_util::future::join_all(all).await;
        assert_eq!(*made.lock(), [1, 19]);
        assert!(lists.namespaces.lock().is_empty());
    }

    #[tokio::test]
    async fn a_failed_list_fails_only_the_request_that_made_it() {
        let lists = BatchedLists::default();
        let made = Mutex::new(0);
        let ask = async |name: &'static str| {
            let list = async |names: BTreeSet<String>| {
                *made.lock() += 1;
                let count = *made.lock();
                tokio::task::yield_now().await;
                match count {
                    2 => Err(ApiError::Timeout(std::time::Duration::ZERO)),
                    _ => Ok(names.iter().map(|name| record(name)).collect()),
                }
            };
            lists.list("ns", name, list).await.is_ok()
        };
        let (a, b, c) = tokio::join!(ask("a"), ask("b"), ask("c"));
        assert_eq!((a, b, c), (true, false, true));
        assert_eq!(*made.lock(), 3);
    }
}
