//! Records in memory: a driver that has no cluster.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};

use release::model::Release;
use release::storage::{Driver, StorageError, StoredRevision, key};

/// Records of one namespace, gone when dropped.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    records: Mutex<BTreeMap<String, Release>>,
}

impl Memory {
    fn records(&self) -> MutexGuard<'_, BTreeMap<String, Release>> {
        // A panic elsewhere cannot leave the map half-written.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for Memory {
    fn history<'a>(
        &'a self,
        release: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRevision>, StorageError>> {
        let history = self
            .records()
            .values()
            .filter(|record| record.name == release)
            .map(|record| StoredRevision::new(record.revision, record.status()))
            .collect();
        ready(Ok(history)).boxed()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Release, StorageError>> {
        ready(
            self.records()
                .get(key)
                .cloned()
                .ok_or(StorageError::NotFound),
        )
        .boxed()
    }

    fn create<'a>(&'a self, release: &'a Release) -> BoxFuture<'a, Result<(), StorageError>> {
        let mut records = self.records();
        let key = key(&release.name, release.revision);
        let result = match records.entry(key) {
            Entry::Occupied(_) => Err(StorageError::Exists),
            Entry::Vacant(free) => {
                free.insert(release.clone());
                Ok(())
            }
        };
        ready(result).boxed()
    }

    fn update<'a>(&'a self, release: &'a Release) -> BoxFuture<'a, Result<(), StorageError>> {
        let result = match self
            .records()
            .get_mut(&key(&release.name, release.revision))
        {
            Some(record) => {
                record.clone_from(release);
                Ok(())
            }
            None => Err(StorageError::NotFound),
        };
        ready(result).boxed()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), StorageError>> {
        let removed = self.records().remove(key);
        ready(removed.map(drop).ok_or(StorageError::NotFound)).boxed()
    }
}
