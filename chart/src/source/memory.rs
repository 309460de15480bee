//! A budget of bytes for all work at once, and a queue for it: a share of it is a turn.
//!
//! Work reserves what it is about to take. What fits begins at once, also where something larger waits before it; what does not fit waits
//! for other work to end. Nothing waits for ever: work larger than the budget runs alone, what has waited long is overtaken no more, and
//! where nothing moves for a while the oldest begins all the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

/// What has waited for so long is overtaken no more.
const PATIENCE: Duration = Duration::from_secs(30);

/// So long after the last change the oldest begins though it does not fit, where all the others rest: they may wait for something that
/// takes minutes. Those who rest for a moment only come to an end before.
const LULL: Duration = Duration::from_secs(2);

/// The same where some do not rest: they may be waiting for it.
const STALL: Duration = Duration::from_secs(30);

/// A budget of bytes. Cheap to clone, all clones share.
#[derive(Clone, Debug)]
pub struct Memory {
    shared: Arc<Shared>,
    /// Called when much is given back at once.
    on_release: Option<fn()>,
}

/// How much is much, in bytes.
const MUCH: u64 = 4 << 20;

#[derive(Debug)]
struct Shared {
    turns: Mutex<Usage>,
    changed: Notify,
}

/// The state of the queue. Nothing here waits: each call is told what time it is.
#[derive(Debug)]
struct Usage {
    limit: u64,
    used: u64,
    /// Work that has its turn, and does not wait itself.
    active: usize,
    /// By age.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    changed: Instant,
}

#[derive(Debug)]
struct Waiting {
    bytes: u64,
    /// Whether it has a part already.
    grows: bool,
    since: Instant,
}

impl Usage {
    fn ask(&mut self, bytes: u64, grows: bool, now: Instant) -> u64 {
        let id = self.next;
        self.next += 1;
        let since = now;
        self.waiting.insert(
            id,
            Waiting {
                bytes,
                grows,
                since,
            },
        );
        id
    }

    /// Whether this one's turn has come; then it has it.
    fn begin(&mut self, id: u64, now: Instant) -> bool {
        let Some(waiting) = self.waiting.get(&id) else {
            return true;
        };
        let oldest = self.waiting.first_key_value();
        let is_oldest = oldest.is_none_or(|(first, _)| *first == id);
        let is_passed_too_often =
            oldest.is_some_and(|(_, first)| now.duration_since(first.since) >= PATIENCE);
        let fits = self.used.saturating_add(waiting.bytes) <= self.limit;
        let still = now.duration_since(self.changed);
        let nothing_moves = self.used == 0 || self.active == 0 && still >= LULL || still >= STALL;
        // Work that grows gives nothing back before it has the rest, so it goes first; new work may wait until there is room.
        let mut growing = self.waiting.iter().filter(|(_, one)| one.grows);
        let is_next = growing.next().map_or(is_oldest, |(first, _)| *first == id);
        let has_room = self.used <= self.limit.saturating_add(self.limit / 2);
        let may_exceed = is_next && (waiting.grows || has_room || still >= STALL);
        let begins = nothing_moves && may_exceed || fits && (is_oldest || !is_passed_too_often);
        if begins {
            self.used = self.used.saturating_add(waiting.bytes);
            self.active += 1;
            self.changed = now;
            self.waiting.remove(&id);
        }
        begins
    }
}

impl Memory {
    /// A budget of so many bytes.
    pub fn new(limit: u64) -> Self {
        let turns = Usage {
            limit,
            used: 0,
            active: 0,
            waiting: BTreeMap::new(),
            next: 0,
            changed: Instant::now(),
        };
        Self {
            shared: Arc::new(Shared {
                turns: Mutex::new(turns),
                changed: Notify::new(),
            }),
            on_release: None,
        }
    }

    /// The same budget; `on_release` is called whenever four mebibytes or more are given back at once. Allocators keep what was freed, and
    /// the next work may run on a thread that cannot use it.
    #[must_use]
    pub fn on_release(self, on_release: fn()) -> Self {
        Self {
            on_release: Some(on_release),
            ..self
        }
    }

    /// Waits for a turn of so many bytes.
    ///
    /// # Cancellation
    /// Safe: who stops waiting is forgotten.
    pub async fn reserve(&self, bytes: u64) -> Reservation {
        self.wait(bytes, false).await
    }

    async fn wait(&self, bytes: u64, grows: bool) -> Reservation {
        let turn = Asked {
            memory: self,
            id: self.lock().ask(bytes, grows, Instant::now()),
        };
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.lock().begin(turn.id, Instant::now()) {
                break;
            }
            // A turn that has come by mere lapse of time is found within a second.
            tokio::time::timeout(Duration::from_secs(1), changed)
                .await
                .ok();
        }
        // What fits beside it need not wait for the next change.
        self.shared.changed.notify_waiters();
        Reservation {
            memory: self.clone(),
            bytes,
            is_active: true,
        }
    }

    /// How many bytes are reserved.
    pub fn used(&self) -> u64 {
        self.lock().used
    }

    fn change(&self, change: impl FnOnce(&mut Usage)) {
        {
            let mut turns = self.lock();
            change(&mut turns);
            turns.changed = Instant::now();
        }
        self.shared.changed.notify_waiters();
    }

    /// So many bytes are not used any more.
    fn released(&self, bytes: u64) {
        if let Some(on_release) = self.on_release.filter(|_| bytes >= MUCH) {
            on_release();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.shared.turns.lock()
    }
}

/// A place among those who wait; leaves it when dropped.
struct Asked<'m> {
    memory: &'m Memory,
    id: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.memory.lock().waiting.remove(&self.id).is_some() {
            self.memory.shared.changed.notify_waiters();
        }
    }
}

/// Bytes that are reserved until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    memory: Memory,
    bytes: u64,
    is_active: bool,
}

impl Reservation {
    /// How many bytes it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until it holds `bytes`; gives what is more than that back at once.
    ///
    /// # Cancellation
    /// Safe: it holds what it held.
    pub async fn resize(&mut self, bytes: u64) {
        if bytes <= self.bytes {
            return self.shrink(bytes);
        }
        // Work that waits must not be waited for.
        self.rest();
        let mut more = self.memory.wait(bytes - self.bytes, true).await;
        more.is_active = false;
        self.is_active = true;
        self.bytes += std::mem::take(&mut more.bytes);
    }

    /// Gives back what is more than `bytes`.
    pub fn shrink(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.memory.change(|turns| turns.used -= less);
        self.memory.released(less);
    }

    /// Holds `bytes` from now on, whether there is room for more or not: they are taken already, and others wait for them.
    pub fn hold(&mut self, bytes: u64) {
        let more = bytes.saturating_sub(self.bytes);
        self.shrink(bytes);
        self.bytes += more;
        self.memory
            .change(|turns| turns.used = turns.used.saturating_add(more));
    }

    /// The work goes on: others that do not fit beside it wait for its end.
    pub fn resume(&mut self) {
        if !std::mem::replace(&mut self.is_active, true) {
            self.memory.change(|turns| turns.active += 1);
        }
    }

    /// The work is done, or waits for something else; what it made stays.
    pub fn rest(&mut self) {
        if std::mem::take(&mut self.is_active) {
            self.memory.change(|turns| turns.active -= 1);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let (bytes, active) = (self.bytes, usize::from(self.is_active));
        self.memory.change(|turns| {
            turns.used -= bytes;
            turns.active -= active;
        });
        self.memory.released(bytes);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reservation_that_fits_overtakes_one_that_does_not() {
        let memory = Memory::new(100);
        let first = memory.reserve(60).await;
        let large = memory.reserve(50);
        tokio::pin!(large);
        assert!(large.as_mut().now_or_never().is_none());
        let small = memory.reserve(40).now_or_never().unwrap();
        assert_eq!(memory.used(), 100);
        drop(first);
        assert!(large.as_mut().now_or_never().is_some());
        drop(small);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reservation_that_waited_long_is_not_overtaken() {
        let memory = Memory::new(100);
        let first = memory.reserve(60).await;
        let large = tokio::spawn({
            let memory = memory.clone();
            async move { memory.reserve(90).await }
        });
        tokio::task::yield_now().await;
        let _moves = memory.reserve(10).await;
        tokio::time::advance(PATIENCE - Duration::from_secs(1)).await;
        let _passes = memory.reserve(1).await;
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(memory.reserve(1).now_or_never().is_none());
        drop(first);
        drop(_moves);
        let large = large.await.unwrap();
        assert_eq!(large.bytes(), 90);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reservation_above_the_limit_runs_alone() {
        let memory = Memory::new(100);
        let first = memory.reserve(1).await;
        let huge = memory.reserve(1_000);
        tokio::pin!(huge);
        assert!(huge.as_mut().now_or_never().is_none());
        drop(first);
        let huge = huge.as_mut().now_or_never().unwrap();
        assert!(memory.reserve(1).now_or_never().is_none());
        drop(huge);
        assert_eq!(memory.used(), 0);
    }

    /// Each holds what the other waits for.
    #[tokio::test(start_paused = true)]
    async fn growing_ends_in_no_deadlock() {
        let memory = Memory::new(100);
        let mut turns = Vec::new();
        for _ in 0..10 {
            turns.push(memory.reserve(10).await);
        }
        let works = turns.into_iter().map(|mut turn| async move {
            turn.resize(40).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        });
        let begun = Instant::now();
        futures_util::future::join_all(works).await;
        assert!(begun.elapsed() < STALL, "{:?}", begun.elapsed());
        assert_eq!(memory.used(), 0);
    }

    /// New work takes what was given back while those who have a part wait for the rest.
    #[tokio::test(start_paused = true)]
    async fn a_reservation_that_grows_goes_before_new_ones() {
        let memory = Memory::new(100);
        let work = |memory: Memory| async move {
            let mut turn = memory.reserve(20).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            turn.resize(60).await;
            turn.rest();
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        let begun = Instant::now();
        futures_util::future::join_all((0..30).map(|_| work(memory.clone()))).await;
        let each = begun.elapsed() / 30;
        assert!(each <= LULL + Duration::from_secs(2), "{each:?}");
    }

    /// Who rests for long takes no more and more.
    #[tokio::test(start_paused = true)]
    async fn reservations_at_rest_stay_within_a_bound() {
        let memory = Memory::new(100);
        let mut resting = Vec::new();
        for _ in 0..2 {
            let mut turn = memory.reserve(80).await;
            turn.rest();
            resting.push(turn);
        }
        let early = tokio::time::timeout(STALL / 2, memory.reserve(80)).await;
        assert!(early.is_err(), "{}", memory.used());
        resting.pop();
        memory.reserve(80).await;
    }

    /// One that has its turn waits for something that only another one brings.
    #[tokio::test(start_paused = true)]
    async fn two_reservations_that_wait_for_each_other_go_on() {
        let memory = Memory::new(100);
        let waits_for_the_other = memory.reserve(100).await;
        let other = memory.reserve(100).await;
        assert_eq!(memory.used(), 200);
        drop((waits_for_the_other, other));
    }

    /// What rests takes memory all the same.
    #[tokio::test(start_paused = true)]
    async fn reservations_at_rest_begin_one_after_another() {
        let memory = Memory::new(100);
        let mut resting = Vec::new();
        let begun = Instant::now();
        for _ in 0..3 {
            let mut turn = memory.reserve(60).await;
            turn.rest();
            resting.push(turn);
        }
        assert!(begun.elapsed() >= 2 * LULL, "{:?}", begun.elapsed());
        // One that goes on is waited for.
        resting[0].resume();
        let next = memory.reserve(80);
        tokio::pin!(next);
        let early = tokio::time::timeout(STALL / 2, next.as_mut()).await;
        assert!(early.is_err());
        drop(resting);
        next.await;
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_above_a_reservation_count() {
        let memory = Memory::new(100);
        let mut first = memory.reserve(60).await;
        first.hold(120);
        assert!(memory.reserve(1).now_or_never().is_none());
        first.hold(20);
        assert_eq!((first.bytes(), memory.used()), (20, 20));
        drop(first);
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_reservation_leaves_nothing() {
        let memory = Memory::new(100);
        let first = memory.reserve(60).await;
        assert!(memory.reserve(90).now_or_never().is_none());
        let mut second = memory.reserve(40).await;
        assert!(second.resize(50).now_or_never().is_none());
        assert_eq!((second.bytes(), memory.used()), (40, 100));
        drop(first);
        second.resize(50).await;
        second.resize(20).await;
        assert_eq!(memory.used(), 20);
        drop(second);
        assert_eq!(memory.used(), 0);
    }
}
