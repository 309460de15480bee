//! A budget of bytes for all work at once, and a queue for it: a share of it is a reservation. Who is next, and what is used at most, says `queue.rs`.

mod queue;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use queue::{Activity, Queue};

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
    queue: Mutex<Queue>,
    changed: Notify,
}

impl Memory {
    /// A budget of so many bytes.
    ///
    /// ```
    /// use chart::source::Memory;
    /// use futures_util::FutureExt as _;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let memory = Memory::new(48 << 20);
    /// let first = memory.reserve(40 << 20).await;
    /// assert!(memory.reserve(40 << 20).now_or_never().is_none()); // it would have to wait
    /// drop(first);
    /// assert!(memory.reserve(40 << 20).now_or_never().is_some());
    /// # }
    /// ```
    pub fn new(limit: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                queue: Mutex::new(Queue::new(limit)),
                changed: Notify::new(),
            }),
            on_release: None,
        }
    }

    /// This budget; `on_release` is called whenever four mebibytes or more are given back at once. Allocators keep what was freed, and
    /// the next work may run on a thread that cannot use it.
    #[must_use]
    pub fn on_release(self, on_release: fn()) -> Self {
        Self {
            on_release: Some(on_release),
            ..self
        }
    }

    /// This budget, `bytes` of which only [`reserve_brief`](Self::reserve_brief) gives out.
    ///
    /// ```
    /// use chart::source::Memory;
    /// use futures_util::FutureExt as _;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let memory = Memory::new(48 << 20).with_reserve(6 << 20);
    /// let _downloads = memory.reserve(42 << 20).await;
    /// assert!(memory.reserve(1 << 20).now_or_never().is_none());
    /// assert!(memory.reserve_brief(1 << 20).now_or_never().is_some());
    /// # }
    /// ```
    #[must_use]
    pub fn with_reserve(self, bytes: u64) -> Self {
        self.lock().set_aside(bytes);
        self
    }

    /// Waits for a reservation of so many bytes.
    ///
    /// # Cancellation
    /// Safe: who stops waiting is forgotten.
    pub async fn reserve(&self, bytes: u64) -> Reservation {
        self.reserved(bytes, false).await
    }

    /// Like [`reserve`](Self::reserve), for work that is small and ends soon whatever others do, such as reading one object: it has a reserve that
    /// downloads and templates do not take. What it holds once that is known, or is done, counts among the rest.
    ///
    /// # Cancellation
    /// Safe: who stops waiting is forgotten.
    pub async fn reserve_brief(&self, bytes: u64) -> Reservation {
        self.reserved(bytes, true).await
    }

    async fn reserved(&self, bytes: u64, is_brief: bool) -> Reservation {
        let id = self.wait(bytes, None, is_brief).await;
        Reservation {
            memory: self.clone(),
            id,
            bytes,
        }
    }

    async fn wait(&self, bytes: u64, grows: Option<u64>, is_brief: bool) -> u64 {
        let position = Position {
            memory: self,
            id: self.lock().ask(bytes, grows, is_brief, Instant::now()),
        };
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.lock().begin(position.id, Instant::now()) {
                break;
            }
            // A reservation that is due by mere lapse of time is found within a second.
            tokio::time::timeout(Duration::from_secs(1), changed)
                .await
                .ok();
        }
        // Smaller work that fits beside it need not wait for the next change.
        self.shared.changed.notify_waiters();
        position.id
    }

    /// How many bytes are reserved.
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    fn change(&self, change: impl FnOnce(&mut Queue, Instant)) {
        change(&mut self.lock(), Instant::now());
        self.shared.changed.notify_waiters();
    }

    fn set_activity(&self, id: u64, activity: Activity, now: Instant) {
        self.lock().set_activity(id, activity, now);
    }

    /// So many bytes are not used any more.
    fn released(&self, bytes: u64) {
        if let Some(on_release) = self.on_release.filter(|_| bytes >= MUCH) {
            on_release();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.shared.queue.lock()
    }
}

/// A place among those who wait; leaves it when dropped.
struct Position<'m> {
    memory: &'m Memory,
    id: u64,
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        if self.memory.lock().leave(self.id) {
            self.memory.shared.changed.notify_waiters();
        }
    }
}

/// Bytes that are reserved until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    memory: Memory,
    id: u64,
    bytes: u64,
}

impl Reservation {
    /// How many bytes it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until it holds `bytes`; gives what is more than that back at once.
    ///
    /// ```
    /// use chart::source::Memory;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let memory = Memory::new(48 << 20);
    /// let mut download = memory.reserve(1 << 20).await; // what it was said to be
    /// download.resize(3 << 20).await; // what comes
    /// assert_eq!((download.bytes(), memory.used()), (3 << 20, 3 << 20));
    /// # }
    /// ```
    ///
    /// # Cancellation
    /// Safe: it holds what it held.
    pub async fn resize(&mut self, bytes: u64) {
        if bytes <= self.bytes {
            return self.shrink(bytes);
        }
        let more = bytes - self.bytes;
        self.hold(self.bytes);
        // Work that waits must not be waited for.
        self.rest();
        self.memory.wait(more, Some(self.id), false).await;
        self.bytes = bytes;
    }

    /// Gives back what is more than `bytes`.
    pub fn shrink(&mut self, bytes: u64) {
        self.hold(bytes.min(self.bytes));
    }

    /// Holds `bytes` from now on, whether there is room for more or not: they are taken already, and others wait for them.
    ///
    /// ```
    /// use chart::source::Memory;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let memory = Memory::new(48 << 20);
    /// let mut rendered = memory.reserve(40 << 20).await;
    /// rendered.hold(60 << 20);
    /// assert_eq!(memory.used(), 60 << 20); // nothing else begins until some of it is given back
    /// # }
    /// ```
    pub fn hold(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.memory
            .change(|queue, now| queue.hold(self.id, bytes, now));
        self.memory.released(before.saturating_sub(bytes));
    }

    /// The work goes on: others that do not fit beside it wait for its end.
    pub fn resume(&mut self) {
        self.memory
            .set_activity(self.id, Activity::Works, Instant::now());
    }

    /// The work is done, or waits for something else; what it made stays.
    pub fn rest(&mut self) {
        self.memory
            .set_activity(self.id, Activity::Rests, Instant::now());
    }

    /// The work waits until this is dropped, for something that comes or fails by itself: where that takes long, others go on beside it.
    pub fn waits(&self) -> Waits {
        let now = Instant::now();
        self.memory.set_activity(self.id, Activity::Waits(now), now);
        Waits {
            memory: self.memory.clone(),
            id: self.id,
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.change(|queue, now| queue.end(self.id, now));
        self.memory.released(self.bytes);
    }
}

/// A wait of one that has a reservation.
#[derive(Debug)]
pub struct Waits {
    memory: Memory,
    id: u64,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let now = Instant::now();
        self.memory.set_activity(self.id, Activity::Works, now);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::queue::{LULL, PATIENCE, SLOW, STALL};
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
        let mut first = memory.reserve(60).await;
        let large = tokio::spawn({
            let memory = memory.clone();
            async move { memory.reserve(90).await }
        });
        tokio::task::yield_now().await;
        let mut moves = memory.reserve(10).await;
        tokio::time::advance(PATIENCE - Duration::from_secs(1)).await;
        let _passes = memory.reserve(1).await;
        tokio::time::advance(Duration::from_secs(1)).await;
        first.hold(59);
        moves.hold(11);
        assert!(memory.reserve(1).now_or_never().is_none());
        drop(first);
        drop(moves);
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
        let mut reservations = Vec::new();
        for _ in 0..10 {
            reservations.push(memory.reserve(10).await);
        }
        let works = reservations.into_iter().map(|mut reservation| async move {
            reservation.resize(40).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        });
        let begun = Instant::now();
        futures_util::future::join_all(works).await;
        assert!(begun.elapsed() < STALL, "{:?}", begun.elapsed());
        assert_eq!(memory.used(), 0);
    }

    /// The memory of each stays: if each went a step further one after the other, all of it would be there together.
    #[tokio::test(start_paused = true)]
    async fn reservations_that_grow_in_steps_finish_one_after_the_other() {
        let memory = Memory::new(100);
        let work = |memory: Memory| async move {
            let mut reservation = memory.reserve(10).await;
            let mut most = 0;
            for bytes in [20, 40, 80] {
                reservation.resize(bytes).await;
                most = most.max(memory.used());
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            most
        };
        let all = (0..10).map(|_| work(memory.clone()));
        let most = futures_util::future::join_all(all).await.into_iter().max();
        assert!(most.is_some_and(|most| most <= 200), "{most:?}");
    }

    /// New work takes what was given back while those who have a part wait for the rest.
    #[tokio::test(start_paused = true)]
    async fn a_reservation_that_grows_goes_before_new_ones() {
        let memory = Memory::new(100);
        let work = |memory: Memory| async move {
            let mut reservation = memory.reserve(20).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            reservation.resize(60).await;
            reservation.rest();
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        let begun = Instant::now();
        futures_util::future::join_all((0..30).map(|_| work(memory.clone()))).await;
        let each = begun.elapsed() / 30;
        assert!(each <= LULL + Duration::from_secs(2), "{each:?}");
    }

    /// Work that rests for long does not take more and more.
    #[tokio::test(start_paused = true)]
    async fn reservations_at_rest_stay_within_a_bound() {
        let memory = Memory::new(100);
        let mut resting = Vec::new();
        for _ in 0..2 {
            let mut reservation = memory.reserve(80).await;
            reservation.rest();
            resting.push(reservation);
        }
        let early = tokio::time::timeout(STALL / 2, memory.reserve(80)).await;
        assert!(early.is_err(), "{}", memory.used());
        resting.pop();
        memory.reserve(80).await;
    }

    /// Work that has its reservation waits for something that only other work brings.
    #[tokio::test(start_paused = true)]
    async fn two_reservations_that_wait_for_each_other_go_on() {
        let memory = Memory::new(100);
        let waits_for_the_other = memory.reserve(100).await;
        let other = memory.reserve(100).await;
        assert_eq!(memory.used(), 200);
        drop((waits_for_the_other, other));
    }

    /// Resting work takes memory all the same.
    #[tokio::test(start_paused = true)]
    async fn reservations_at_rest_begin_one_after_another() {
        let memory = Memory::new(100);
        let mut resting = Vec::new();
        let begun = Instant::now();
        for _ in 0..3 {
            let mut reservation = memory.reserve(60).await;
            reservation.rest();
            resting.push(reservation);
        }
        assert!(begun.elapsed() >= 2 * LULL, "{:?}", begun.elapsed());
        // Work that goes on is waited for.
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

    /// Work that begins, waits a while and ends, many times over; how long all of it takes.
    async fn small_ones(memory: &Memory, bytes: u64) -> Duration {
        let begun = Instant::now();
        let work = || async {
            let reservation = memory.reserve(bytes).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(reservation);
        };
        futures_util::future::join_all((0..100).map(|_| work())).await;
        begun.elapsed()
    }

    /// Two servers that promise much and give a byte a second.
    #[tokio::test(start_paused = true)]
    async fn a_trickle_is_no_progress() {
        let memory = Memory::new(48);
        let trickle = |bytes| {
            let memory = memory.clone();
            async move {
                let reservation = memory.reserve(bytes).await;
                for _ in 0..300 {
                    let waits = reservation.waits();
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    drop(waits);
                }
            }
        };
        let trickles = [tokio::spawn(trickle(32)), tokio::spawn(trickle(16))];
        tokio::task::yield_now().await;
        assert_eq!(memory.used(), 48);
        let took = small_ones(&memory, 2).await;
        assert!(took < 3 * LULL, "{took:?}");
        assert!(trickles.iter().all(|one| !one.is_finished()));
    }

    /// Templates that ask the cluster in a loop, in the largest reservation.
    #[tokio::test(start_paused = true)]
    async fn a_reservation_that_waits_again_and_again_holds_nobody_up() {
        for bytes in [64, 200] {
            let memory = Memory::new(48).with_reserve(6);
            let evil = tokio::spawn({
                let memory = memory.clone();
                async move {
                    let reservation = memory.reserve(bytes).await;
                    for _ in 0..12_000 {
                        let waits = reservation.waits();
                        tokio::time::sleep(Duration::from_millis(9)).await;
                        drop(waits);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            });
            tokio::task::yield_now().await;
            assert_eq!(memory.used(), bytes);
            let took = small_ones(&memory, 2).await;
            assert!(took < Duration::from_secs(20), "{took:?}");
            assert!(!evil.is_finished());
        }
    }

    /// Work without a wait is slow, too.
    #[tokio::test(start_paused = true)]
    async fn a_reservation_that_works_for_long_holds_nobody_up_for_long() {
        let memory = Memory::new(48);
        let _works = memory.reserve(64).await;
        let took = small_ones(&memory, 2).await;
        assert!(took < SLOW + Duration::from_secs(20), "{took:?}");
    }

    /// Stalled work is lent against once, not with each one that stalls.
    #[tokio::test(start_paused = true)]
    async fn however_many_stall_they_stay_within_a_bound() {
        let memory = Memory::new(48).with_reserve(6);
        let mut stalled = Vec::new();
        let stalls = |reservation: Reservation| (reservation.waits(), reservation);
        stalled.push(stalls(memory.reserve(64).await));
        while let Ok(reservation) = tokio::time::timeout(STALL / 2, memory.reserve(2)).await {
            stalled.push(stalls(reservation));
            assert!(memory.used() <= 72, "{}", memory.used());
        }
        assert_eq!(memory.used(), 68);
    }

    /// The others do not wait with one that waits for what stalls; once that has ended they are the ones to wait.
    #[tokio::test(start_paused = true)]
    async fn a_reservation_behind_a_stalled_one_is_overtaken_and_begins_in_the_end() {
        let memory = Memory::new(100);
        let stalled = memory.reserve(100).await;
        let waits = stalled.waits();
        let large = tokio::spawn({
            let memory = memory.clone();
            async move { memory.reserve(90).await }
        });
        tokio::time::sleep(PATIENCE * 2).await;
        let took = small_ones(&memory, 20).await;
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert!(!large.is_finished());
        drop((waits, stalled));
        assert_eq!(large.await.unwrap().bytes(), 90);
    }

    /// An author of templates keeps no brief work waiting; bytes of brief work count as soon as they are known.
    #[tokio::test(start_paused = true)]
    async fn brief_work_has_a_reserve() {
        let memory = Memory::new(48).with_reserve(6);
        let mut large = memory.reserve(200).await;
        assert!(memory.reserve(2).now_or_never().is_none());
        let mut monitors = Vec::new();
        for _ in 0..3 {
            monitors.push(memory.reserve_brief(2).now_or_never().unwrap());
        }
        assert!(memory.reserve_brief(2).now_or_never().is_none());
        monitors[0].resize(1).await;
        monitors[0].rest();
        monitors.push(memory.reserve_brief(2).now_or_never().unwrap());
        assert_eq!(memory.used(), 200 + 1 + 3 * 2);
        drop(monitors);
        assert_eq!(memory.used(), 200);
        // Brief work does not hold without end either.
        let mut monitor = memory.reserve_brief(2).await;
        monitor.hold(80);
        assert!(memory.reserve_brief(2).now_or_never().is_none());
        drop(monitor);
        large.hold(64);
        // Brief reservations come and go, and nothing moves by that.
        let next = tokio::spawn({
            let memory = memory.clone();
            async move { memory.reserve(40).await }
        });
        for _ in 0..STALL.as_secs() + 2 {
            let monitor = memory.reserve_brief(2).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(monitor);
        }
        assert!(next.is_finished());
    }

    /// A look at what is large is work like any other once that is known: the next one does not begin beside it as if nobody worked.
    #[tokio::test(start_paused = true)]
    async fn brief_reservations_that_grow_wait_for_each_other() {
        let memory = Memory::new(48).with_reserve(6);
        let mut first = memory.reserve_brief(2).await;
        first.resize(80).await;
        first.resume();
        let mut second = memory.reserve_brief(2).now_or_never().unwrap();
        let grown = tokio::time::timeout(STALL / 2, second.resize(80)).await;
        assert!(grown.is_err(), "{}", memory.used());
        // Brief work that holds what it has read waits as well, whether there is room or not.
        let mut third = memory.reserve_brief(2).now_or_never().unwrap();
        third.hold(20);
        drop(first);
        tokio::time::sleep(LULL * 2).await;
        let grown = tokio::time::timeout(SLOW / 3, second.resize(80)).await;
        assert!(grown.is_err(), "{}", memory.used());
        drop(third);
        second.resize(80).await;
        assert_eq!(memory.used(), 80);
    }
}
