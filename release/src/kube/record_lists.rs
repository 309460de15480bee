//! Listing the records of a release: metadata only, and one list for all concurrent requests.
//!
//! Fifty releases of one namespace that are deployed together would make fifty lists. While one list
//! is under way further requests wait, and go together into the list after it; a list that began
//! before a request was made never answers it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

use super::error::ApiError;

/// Names in one list: what fits into the address of a request anywhere.
const MAX_NAMES: usize = 64;

/// The kind of the records and their namespace.
type Place = (&'static str, String);

/// A release, and where its records go.
type Request = (String, oneshot::Sender<Vec<RecordMetadata>>);

/// The lists of one identity.
#[derive(Debug, Default)]
pub(super) struct BatchedLists {
    places: Mutex<HashMap<Place, Arc<Queue>>>,
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
        place: Place,
        release: &str,
        list: F,
    ) -> Result<Vec<RecordMetadata>, ApiError>
    where
        F: FnOnce(BTreeSet<String>) -> A,
        A: Future<Output = Result<Vec<RecordMetadata>, ApiError>>,
    {
        let queue = self.at(&place);
        let (sender, mut answer) = oneshot::channel();
        queue.requests.lock().push((release.to_owned(), sender));
        let listing = queue.listing.lock().await;
        if let Ok(records) = answer.try_recv() {
            drop(listing);
            self.forget(&place, queue);
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
        self.forget(&place, queue);
        records.retain(|record| record.release() == Some(release));
        Ok(records)
    }

    fn at(&self, place: &Place) -> Arc<Queue> {
        let mut places = self.places.lock();
        Arc::clone(places.entry(place.clone()).or_default())
    }

    /// Namespaces come and go: one without requests is not kept.
    fn forget(&self, place: &Place, queue: Arc<Queue>) {
        let mut places = self.places.lock();
        drop(queue);
        if places
            .get(place)
            .is_some_and(|queue| Arc::strong_count(queue) == 1)
        {
            places.remove(place);
        }
    }
}

impl Queue {}

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

    pub(super) fn read(item: &Value) -> Self {
        let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str);
        let labels = item.pointer("/metadata/labels").and_then(Value::as_object);
        let labels = labels
            .into_iter()
            .flatten()
            .filter_map(|(label, value)| Some((label.clone(), value.as_str()?.to_owned())))
            .collect();
        let entries = item
            .pointer("/metadata/managedFields")
            .and_then(Value::as_array);
        let latest = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let at: Timestamp = entry.get("time")?.as_str()?.parse().ok()?;
                Some((at, entry.get("manager")?.as_str()?.to_owned()))
            })
            .max();
        let (written_at, written_by) = latest.unzip();
        Self {
            name: text("/metadata/name").unwrap_or_default().to_owned(),
            uid: text("/metadata/uid").unwrap_or_default().to_owned(),
            labels,
            created_at: text("/metadata/creationTimestamp").and_then(|at| at.parse().ok()),
            written_at,
            written_by,
        }
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
            let place = ("secrets", "ns".to_owned());
            let records = lists.list(place, &name, list).await.unwrap();
            assert_eq!(records.len(), 1);
            assert_eq!(records[0].release(), Some(name.as_str()));
        };
        let all = (0..20).map(|n| ask(format!("r{n}")));
        futures_util::future::join_all(all).await;
        assert_eq!(*made.lock(), [1, 19]);
        assert!(lists.places.lock().is_empty());
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
            let place = ("secrets", "ns".to_owned());
            lists.list(place, name, list).await.is_ok()
        };
        let (a, b, c) = tokio::join!(ask("a"), ask("b"), ask("c"));
        assert_eq!((a, b, c), (true, false, true));
        assert_eq!(*made.lock(), 3);
    }
}
