//! The share of all memory that one deploy has: from reading its bundle until its chart and its values are there.
//!
//! How large files are is known before they are unpacked. What YAML comes to is not: a few kilobytes with anchors may stand for tens of megabytes. So it is
//! read in as much as the permit has, and where that is too little once more in a larger one.

use std::sync::Arc;

use chart::source::{Memory, Reservation};
use golib::budget::{Allowance, Budget};
use release::Host;
use tokio::task::JoinError;

use super::rendering::larger_reservation;
use crate::bundle::{BundleError, Unpacking};
use crate::values::MAX_DECODED;

/// What the deploy of a small chart takes, in bytes, and how many times the size of its files one of a large chart.
const SMALL_DEPLOY: u64 = 1 << 20;
const DEPLOY_FACTOR: u64 = 10;

/// The part of a deploy's memory that values of ordinary size take, and the factor for larger ones: as given and as the chart has them, merged, and
/// in the record.
const VALUES_PART: u64 = 8;
const VALUES_FACTOR: u64 = 4;

/// Memory for reading a bundle's files from upstream, in bytes: a Content is a mebibyte at most, packed.
const CONTENT: u64 = 4 << 20;

/// Values of which no more was read need no permit, in bytes.
const SMALL_VALUES: u64 = 256 << 10;

/// What a deploy takes whose bundle has so many bytes of files, and values that take so much, about: the files, what templates make of them, the objects
/// read from that, and the record. Measured, not computed.
fn deploy_bytes(files: u64, values: u64) -> u64 {
    let ordinary = SMALL_DEPLOY.max(files.saturating_mul(DEPLOY_FACTOR));
    ordinary + VALUES_FACTOR * values.saturating_sub(ordinary / VALUES_PART)
}

/// Memory reserved for a deploy, from the unpacking of its bundle on.
pub(super) struct MemoryPermit<'t> {
    memory: &'t Memory,
    host: &'t Host,
    revisions: u64,
    reservation: Option<Reservation>,
    /// Bytes of values that were read before it is known what they come to.
    read: u64,
}

impl<'t> MemoryPermit<'t> {
    pub(super) fn new(memory: &'t Memory, host: &'t Host, revisions: u64) -> Self {
        Self {
            memory,
            host,
            revisions,
            reservation: None,
            read: 0,
        }
    }

    /// Covers the reading of a bundle's files from upstream.
    pub(super) async fn reads_content(&mut self) {
        self.reservation
            .insert(self.memory.reserve(CONTENT).await)
            .rest();
    }

    /// Covers so many bytes that were read of values, too.
    pub(super) async fn has_read(&mut self, bytes: u64) {
        self.read += bytes;
        if self.read > SMALL_VALUES {
            self.holds(self.held().max(CONTENT) + bytes).await;
            self.rests();
        }
    }

    /// Reads texts in as much as there is for the deploy of so many bytes of files, once more with a larger permit where that is too little; the values of a
    /// bundle and of its chart together may be as large as those of a bundle alone. What cannot be read is told by the last one.
    ///
    /// # Errors
    /// The work panicked.
    pub(super) async fn decode<T: Send + 'static>(
        &mut self,
        files: u64,
        decode: impl Fn(&mut Budget) -> T + Send + Sync + 'static,
    ) -> Result<T, JoinError> {
        let decode = Arc::new(decode);
        let mut bytes = self.needed(files, 0);
        loop {
            self.holds(bytes).await;
            let allowance = Allowance::new(usize::try_from(bytes).unwrap_or(usize::MAX));
            let mut budget = allowance.budget(MAX_DECODED);
            let decode = Arc::clone(&decode);
            let done = self.covered(move || decode(&mut budget)).await?;
            if !allowance.is_exceeded() {
                return Ok(done);
            }
            drop(done);
            bytes = larger_reservation(bytes);
        }
    }

    /// The share of a deploy of so many bytes of files, with values that take so much.
    pub(super) async fn for_deploy(mut self, files: u64, values: u64) -> Reservation {
        let bytes = self.needed(files, values) - self.read;
        self.resized(bytes).await
    }

    fn needed(&self, files: u64, values: u64) -> u64 {
        deploy_bytes(files, values) * self.revisions + self.read
    }

    fn held(&self) -> u64 {
        self.reservation.as_ref().map_or(0, Reservation::bytes)
    }

    /// Works on another thread, which has the permit for as long: it goes on where nobody waits for it any more.
    async fn covered<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let reservation = self.reservation.take();
        let work = move || (work(), reservation);
        let (done, reservation) = self.host.work(work).await?;
        self.reservation = reservation;
        Ok(done)
    }

    /// Marks the reservation as resting: the next step may wait for a reservation of its own.
    fn rests(&mut self) {
        if let Some(reservation) = &mut self.reservation {
            reservation.rest();
        }
    }

    /// Holds so much, no more and no less, and works.
    async fn holds(&mut self, bytes: u64) {
        self.reservation = Some(self.resized(bytes).await);
    }

    async fn resized(&mut self, bytes: u64) -> Reservation {
        match self.reservation.take() {
            Some(mut reservation) => {
                reservation.resize(bytes).await;
                reservation.resume();
                reservation
            }
            None => self.memory.reserve(bytes).await,
        }
    }
}

impl Unpacking for MemoryPermit<'_> {
    async fn work<T: Send + 'static>(
        &mut self,
        bytes: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BundleError> {
        if bytes > 0 {
            self.holds(self.needed(bytes, 0).max(self.held())).await;
        }
        let done = self.covered(work).await;
        self.rests();
        // A panic may quote anything.
        done.map_err(|_| BundleError::Content("unpacking the bundle was aborted".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn files_are_unpacked_once_there_is_room_for_them() {
        let (memory, host) = (Memory::new(48 << 20), Host::default());
        let mut permit = MemoryPermit::new(&memory, &host, 2);
        permit.reads_content().await;
        let held = memory.clone();
        let used = async |permit: &mut MemoryPermit<'_>, bytes| {
            let held = held.clone();
            permit.work(bytes, move || held.used()).await.unwrap()
        };
        assert_eq!(used(&mut permit, 0).await, CONTENT);
        assert_eq!(used(&mut permit, 1 << 20).await, (2 * DEPLOY_FACTOR) << 20);
        assert_eq!(used(&mut permit, 1).await, (2 * DEPLOY_FACTOR) << 20);
        assert_eq!(permit.for_deploy(1, 0).await.bytes(), 2 * SMALL_DEPLOY);
    }

    /// Six kilobytes that come to megabytes, ten times at once, as bundles of a repository would bring them.
    #[tokio::test(start_paused = true)]
    async fn decoded_values_fit_the_permit_they_are_read_with() {
        let lists = ["*a"; 100].join(", ");
        // Without plain elements there are too many aliases.
        let plain = "- 1\n".repeat(2_000);
        let lists = format!(
            "a: &a {{x: 1}}\nb: &b [{lists}]\nc: [{}]\n",
            ["*b"; 50].join(", ")
        );
        let text: Arc<str> = format!("plain:\n{plain}{lists}").into();
        let (memory, host) = (Memory::new(48 << 20), Host::default());
        let deploy = async || {
            let mut permit = MemoryPermit::new(&memory, &host, 1);
            let (text, shared) = (Arc::clone(&text), memory.clone());
            let files = text.len() as u64;
            let decode = move |budget: &mut Budget| {
                let decoder = golib::yaml::Decoder::new();
                let read = decoder.decode_into_map(text.as_bytes(), budget);
                read.inspect(|read| {
                    assert!(golib::budget::weigh_entries(read) as u64 <= shared.used());
                })
            };
            let values = permit.decode(files, decode).await.unwrap().unwrap();
            let weight = golib::budget::weigh_entries(&values) as u64;
            assert!(weight > 3 << 20, "{weight}");
            let reservation = permit.for_deploy(files, weight).await;
            assert!(reservation.bytes() >= VALUES_FACTOR * weight / 2);
            assert!(memory.used() <= 72 << 20, "{}", memory.used());
            (values, reservation)
        };
        let many = futures_util::future::join_all((0..10).map(|_| async {
            drop(deploy().await);
        }));
        many.await;
        assert_eq!(memory.used(), 0);
    }

    /// More than the largest permit gives is refused, in the words of who reads it.
    #[tokio::test]
    async fn values_that_take_too_much_are_refused() {
        let (memory, host) = (Memory::new(48 << 20), Host::default());
        let mut permit = MemoryPermit::new(&memory, &host, 2);
        let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = Arc::clone(&tries);
        let decode = move |budget: &mut Budget| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            budget.text(MAX_DECODED)
        };
        let failed = permit.decode(1, decode).await.unwrap().unwrap_err();
        assert!(failed.to_string().contains("more than 24 MiB"), "{failed}");
        assert_eq!(tries.load(std::sync::atomic::Ordering::Relaxed), 3);
    }

    /// A newer spec ends a deploy, and not the thread that reads for it.
    #[tokio::test]
    async fn an_abandoned_read_keeps_its_permit_to_its_end() {
        let (memory, host) = (Memory::new(48 << 20), Host::default());
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let ends = parking_lot::Mutex::new(ends);
        {
            let mut permit = MemoryPermit::new(&memory, &host, 1);
            let reads = permit.decode(1, move |_| ends.lock().recv().ok());
            let given_up = tokio::time::timeout(Duration::from_millis(100), reads).await;
            assert!(given_up.is_err());
        }
        assert_eq!(memory.used(), SMALL_DEPLOY);
        end.send(()).unwrap();
        // A waiting reservation is given once there is room again.
        memory.reserve(48 << 20).await;
        assert_eq!(memory.used(), 0);
    }

    /// Charts of ordinary size have the permits that they had before values counted.
    #[test]
    fn values_of_ordinary_size_are_covered_by_the_permit_of_the_files() {
        assert_eq!(deploy_bytes(1 << 10, 100 << 10), SMALL_DEPLOY);
        assert_eq!(deploy_bytes(2 << 20, 2 << 20), 20 << 20);
        assert_eq!(
            deploy_bytes(1, 24 << 20),
            SMALL_DEPLOY + VALUES_FACTOR * ((24 << 20) - (128 << 10))
        );
    }
}
