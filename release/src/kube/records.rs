//! Asking which records a release has: metadata, and once for all who ask at the same time.
//!
//! Fifty releases of one namespace that are deployed together would ask fifty times. While one list
//! is under way the next questions wait, and go together into the list after it; a list that began
//! before a question was put never answers it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::oneshot;

use super::error::ApiError;

/// Names in one list: what fits into the address of a request anywhere.
const MAX_NAMES: usize = 64;

/// The kind of the records and their namespace.
type Place = (&'static str, String);

/// A release, and where its answer goes.
type Question = (String, oneshot::Sender<Vec<RecordMetadata>>);

/// Questions of one identity.
#[derive(Debug, Default)]
pub(super) struct Questions {
    places: Mutex<HashMap<Place, Arc<Waiting>>>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Held while a list is under way.
    turn: tokio::sync::Mutex<()>,
    questions: Mutex<Vec<Question>>,
}

impl Questions {
    /// The records of `release`, by a `list` of several releases that begins after this call.
    ///
    /// # Cancellation
    /// Safe: others whose question was taken along ask again.
    pub(super) async fn ask<F, A>(
        &self,
        place: Place,
        release: &str,
        list: F,
    ) -> Result<Vec<RecordMetadata>, ApiError>
    where
        F: FnOnce(BTreeSet<String>) -> A,
        A: Future<Output = Result<Vec<RecordMetadata>, ApiError>>,
    {
        let waiting = self.at(&place);
        let (sender, mut answer) = oneshot::channel();
        waiting.lock().push((release.to_owned(), sender));
        let turn = waiting.turn.lock().await;
        if let Ok(records) = answer.try_recv() {
            drop(turn);
            self.forget(&place, waiting);
            return Ok(records);
        }
        // Not answered yet, or taken along by somebody who failed.
        let mut batch: Vec<Question> = {
            let mut questions = waiting.lock();
            questions.retain(|(_, sender)| !sender.is_closed());
            let some = questions.len().min(MAX_NAMES);
            questions.drain(..some).collect()
        };
        batch.retain(|(name, _)| name != release);
        let names = batch.iter().map(|(name, _)| name.clone());
        let mut records = list(names.chain([release.to_owned()]).collect()).await?;
        for (name, sender) in batch {
            let of_name = |record: &&RecordMetadata| record.release() == Some(name.as_str());
            // Whoever gave up asking misses nothing.
            drop(sender.send(records.iter().filter(of_name).cloned().collect()));
        }
        drop(turn);
        self.forget(&place, waiting);
        records.retain(|record| record.release() == Some(release));
        Ok(records)
    }

    fn at(&self, place: &Place) -> Arc<Waiting> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(places.entry(place.clone()).or_default())
    }

    /// Namespaces come and go: one in which nobody asks is not kept.
    fn forget(&self, place: &Place, waiting: Arc<Waiting>) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        drop(waiting);
        if places
            .get(place)
            .is_some_and(|waiting| Arc::strong_count(waiting) == 1)
        {
            places.remove(place);
        }
    }
}

impl Waiting {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Question>> {
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The metadata of a storage object.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordMetadata {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
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
            labels,
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

    /// Twenty ask while the first list is under way: two lists, and everybody gets their own.
    #[tokio::test]
    async fn those_who_ask_at_the_same_time_are_answered_together() {
        let questions = Questions::default();
        let lists = Mutex::new(Vec::new());
        let ask = async |name: String| {
            let list = async |names: BTreeSet<String>| {
                lists.lock().unwrap().push(names.len());
                tokio::task::yield_now().await;
                Ok(names.iter().map(|name| record(name)).collect())
            };
            let place = ("secrets", "ns".to_owned());
            let records = questions.ask(place, &name, list).await.unwrap();
            assert_eq!(records.len(), 1);
            assert_eq!(records[0].release(), Some(name.as_str()));
        };
        let all = (0..20).map(|n| ask(format!("r{n}")));
        futures_util::future::join_all(all).await;
        assert_eq!(*lists.lock().unwrap(), [1, 19]);
        assert!(questions.places.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_failed_list_fails_only_whoever_made_it() {
        let questions = Questions::default();
        let lists = Mutex::new(0);
        let ask = async |name: &'static str| {
            let list = async |names: BTreeSet<String>| {
                *lists.lock().unwrap() += 1;
                let turn = *lists.lock().unwrap();
                tokio::task::yield_now().await;
                match turn {
                    2 => Err(ApiError::Timeout(std::time::Duration::ZERO)),
                    _ => Ok(names.iter().map(|name| record(name)).collect()),
                }
            };
            let place = ("secrets", "ns".to_owned());
            questions.ask(place, name, list).await.is_ok()
        };
        let (a, b, c) = tokio::join!(ask("a"), ask("b"), ask("c"));
        assert_eq!((a, b, c), (true, false, true));
        assert_eq!(*lists.lock().unwrap(), 3);
    }
}
