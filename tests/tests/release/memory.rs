//! Records in memory: a driver that has no cluster.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};

use release::model::Release;
use release::storage::{
    Driver, Found, RecordUid, StorageError, StoredRelease, StoredRevision, key,
};

/// Records of one namespace, gone when dropped.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
struct Records {
    stored: BTreeMap<String, StoredRelease>,
    created: usize,
}

impl Memory {
    fn records(&self) -> MutexGuard<'_, Records> {
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
            .stored
            .values()
            .filter(|record| record.name == release)
            .map(|record| StoredRevision {
                uid: record.uid().clone(),
                ..StoredRevision::new(record.revision, record.status())
            })
            .collect();
        ready(Ok(history)).boxed()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Found, StorageError>> {
        let found = self.records().stored.get(key).map(|stored| Found {
            uid: stored.uid().clone(),
            release: Ok(stored.clone().into_release()),
        });
        ready(found.ok_or(StorageError::NotFound)).boxed()
    }

    fn create<'a>(
        &'a self,
        release: &'a Release,
    ) -> BoxFuture<'a, Result<RecordUid, StorageError>> {
        let Records { stored, created } = &mut *self.records();
        let result = match stored.entry(key(&release.name, release.revision)) {
            Entry::Occupied(_) => Err(StorageError::Exists),
            Entry::Vacant(free) => {
                *created += 1;
                let uid = RecordUid::new(created.to_string());
                free.insert(StoredRelease::new(release.clone(), uid.clone()));
                Ok(uid)
            }
        };
        ready(result).boxed()
    }

    fn update<'a>(&'a self, stored: &'a StoredRelease) -> BoxFuture<'a, Result<(), StorageError>> {
        let key = key(&stored.name, stored.revision);
        let result = match self.records().stored.get_mut(&key) {
            Some(record) if record.uid() != stored.uid() => Err(StorageError::Replaced { key }),
            Some(record) => {
                record.clone_from(stored);
                Ok(())
            }
            None => Err(StorageError::NotFound),
        };
        ready(result).boxed()
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        uid: &'a RecordUid,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        let stored = &mut self.records().stored;
        let result = match stored.get(key) {
            Some(record) if record.uid() != uid => Err(StorageError::Replaced {
                key: key.to_owned(),
            }),
            Some(_) => {
                stored.remove(key);
                Ok(())
            }
            None => Err(StorageError::NotFound),
        };
        ready(result).boxed()
    }
}
