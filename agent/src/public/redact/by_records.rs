//! Errors about a release, redacted by all that its records hold.

use chart::source::Memory;
use release::Host;
use release::storage::{Storage, StorageError};

use super::{Redacted, Redaction, SensitiveData};
use crate::error;

/// So many revisions of a release are gone through for an error, and so many bytes of them: as many as a bundle may have kept, and what takes
/// some seconds. An error of a release that has more is not shown.
const MOST_REVISIONS: usize = 64;
const MOST_OF_RECORDS: u64 = 64 << 20;

/// Shown in place of quotes in an error of such a release.
const TOO_MANY: &str = "the release's records are more than are searched for it";

/// Shown in place of an error where the release has no record any more.
const NONE_LEFT: &str = "no record of the release is left to tell what is secret in it";

/// Limit on what is read of a record, in bytes.
const RECORD: u64 = 24 << 20;

impl Redacted {
    /// An error about a release, without what is secret in any revision of it that is kept. Who may write records there chooses how many there are and
    /// how large they are: they are read one by one, within a reservation, gone through on another thread, and dropped.
    pub async fn by_records(
        failed: &(dyn std::error::Error + Sync + 'static),
        (records, name): (&Storage, &str),
        (host, memory): (&Host, &Memory),
    ) -> Self {
        let gone_through = async {
            let history = records.history(name).await?;
            match history.len() {
                0 => return Ok(Err(NONE_LEFT)),
                1..=MOST_REVISIONS => {}
                _ => return Ok(Err(TOO_MANY)),
            }
            let reservation = memory.reserve(RECORD).await;
            let causes = error::causes(failed);
            let begun = host.work(move || Redaction::of_all(&causes)).await;
            let (mut redaction, mut left) = (begun.ok(), MOST_OF_RECORDS);
            for revision in history {
                let waits = reservation.waits();
                let release = records.get(name, revision.revision).await;
                drop(waits);
                let release = release?;
                let (Some(begun), Some(rest)) = (redaction, left.checked_sub(release.size_bytes()))
                else {
                    return Ok(Err(TOO_MANY));
                };
                left = rest;
                let work = move || begun.without(&SensitiveData::of_release(&release));
                redaction = host.work(work).await.ok();
            }
            Ok::<_, StorageError>(redaction.ok_or(TOO_MANY))
        };
        match gone_through.await {
            Ok(Ok(redaction)) => Self(redaction.finish_all().join(error::BETWEEN)),
            Ok(Err(why)) => Self::withheld(failed, why),
            Err(unreadable) => {
                let why = Self::unquoted(&unreadable);
                Self::withheld(
                    failed,
                    &format!("the release's records cannot be read: {why}"),
                )
            }
        }
    }

    /// An error without what it quotes.
    fn withheld(failed: &(dyn std::error::Error + 'static), why: &str) -> Self {
        let unquoted = Self::unquoted(failed);
        Self(format!("{unquoted}; what it quotes is not told, as {why}"))
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::ThreadId;

    use chart::{Chart, File};
    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;
    use objects::drift::MASK;
    use parking_lot::Mutex;
    use release::model::{Release, Status};
    use release::storage::{Driver, Found, RecordUid, StoredRelease, StoredRevision};
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// Records as somebody may have forged them.
    #[derive(Debug)]
    struct Records {
        count: i64,
        /// How large each of them is, in bytes.
        size: usize,
        /// The threads on which those were let go of that were read.
        gone_on: Arc<Mutex<Vec<ThreadId>>>,
        reads: Arc<AtomicUsize>,
    }

    /// The text of a template.
    struct Template(Vec<u8>, Arc<Mutex<Vec<ThreadId>>>);

    impl AsRef<[u8]> for Template {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Template {
        fn drop(&mut self) {
            self.1.lock().push(std::thread::current().id());
        }
    }

    impl Driver for Records {
        fn history<'a>(
            &'a self,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Vec<StoredRevision>, StorageError>> {
            let heads = (1..=self.count).map(|one| StoredRevision::new(one, Status::Superseded));
            ready(Ok(heads.collect())).boxed()
        }

        fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Found, StorageError>> {
            let reads = self.reads.fetch_add(1, Ordering::Relaxed);
            assert_eq!(self.gone_on.lock().len(), reads, "the one before is kept");
            let revision = key.rsplit_once('v').unwrap().1;
            let template = Template(vec![b'x'; self.size], Arc::clone(&self.gone_on));
            let template = bytes::Bytes::from_owner(template);
            let chart = Chart {
                templates: vec![File::new("templates/t.yaml", template)].into(),
                ..Chart::default()
            };
            let password = json!(format!("canary-{revision}"));
            let release = Release {
                config: [("password".to_owned(), password)].into_iter().collect(),
                chart: Some(chart.into()),
                ..Release::default()
            };
            let (uid, release) = (RecordUid::new(revision), Ok(release));
            ready(Ok(Found { uid, release })).boxed()
        }

        fn create<'a>(&'a self, _: &'a Release) -> BoxFuture<'a, Result<RecordUid, StorageError>> {
            unreachable!()
        }

        fn update<'a>(&'a self, _: &'a StoredRelease) -> BoxFuture<'a, Result<(), StorageError>> {
            unreachable!()
        }

        fn delete<'a>(
            &'a self,
            _: &'a str,
            _: &'a RecordUid,
        ) -> BoxFuture<'a, Result<(), StorageError>> {
            unreachable!()
        }
    }

    /// A tenant may write any number of records, 16 MiB each once they are unpacked. What is searched is searched on another thread.
    #[rstest]
    #[case::all_that_are_kept(62, 1 << 10, (62, 0), None)]
    #[case::none_any_more(0, 1, (0, 0), Some(NONE_LEFT))]
    #[case::more_than_are_kept(65, 1, (0, 0), Some(TOO_MANY))]
    #[case::large_ones(62, 16 << 20, (4, 1), Some(TOO_MANY))]
    #[tokio::test]
    async fn the_records_that_redact_a_releases_error_are_read_one_by_one(
        #[case] count: i64,
        #[case] size: usize,
        #[case] (reads, here): (usize, usize),
        #[case] withheld: Option<&str>,
    ) {
        let (gone_on, counted) = (Arc::<Mutex<Vec<_>>>::default(), Arc::default());
        let records = Storage::new(Records {
            count,
            size,
            gone_on: Arc::clone(&gone_on),
            reads: Arc::clone(&counted),
        });
        let text = "of canary-7 and canary-62, too";
        let refused = kube::core::Status::failure(text, "Invalid").with_code(422);
        let refused = release::kube::ApiError::Refused(refused.boxed());
        let failed = release::UninstallError::Discovery(refused);
        let (host, memory) = (Host::default(), Memory::new(48 << 20));
        let redacted = Redacted::by_records(&failed, (&records, "web"), (&host, &memory)).await;
        let expected = match withheld {
            None => format!("of {MASK} and {MASK}, too"),
            Some(why) => {
                format!("the API server answered 422 Invalid; what it quotes is not told, as {why}")
            }
        };
        assert_eq!(redacted.to_string(), expected);
        let this = std::thread::current().id();
        let gone_here = gone_on.lock().iter().filter(|on| **on == this).count();
        assert_eq!((counted.load(Ordering::Relaxed), gone_here), (reads, here));
        assert_eq!(memory.used(), 0);
    }
}
