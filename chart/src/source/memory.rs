//! A budget of bytes for all work at once, and a queue for it: a share of it is a turn.
//!
//! Work reserves what it is about to take. What fits begins at once, also where something larger waits before it; what does not fit waits
//! for other work to end. Progress is a change of the bytes that are held, or an end, and nothing else: who goes to and fro between working
//! and waiting moves nothing.
//!
//! **Nothing waits for ever.** Work larger than the budget runs alone, what has waited long is overtaken no more, and where nothing moves for
//! a while the oldest begins all the same. Who has begun changes its bytes a few times at most, and what can begin beside one that is
//! overtaken no more is that one alone, so that nothing resets that while for ever; what is taken of the reserve does not count there.
//!
//! **Nobody waits long for one that stands still**, be it a server that gives a byte a second or a template that asks the cluster in a loop:
//! beside what stalls others begin at once, up to half as much again as the budget. One that is larger than that leaves room for an eighth of
//! the budget. Where the oldest waits for what stalls, the others do not wait with it, for some minutes.
//!
//! **The bound.** Used are at most the budget; half as much again beside what stalls, or beside what rests; the largest one that stalls
//! with an eighth of the budget beside it; or the largest one that begins beside a half of the budget that waits. Only where nothing at all moves for half a minute one more begins above that, as they may wait for
//! each other: for three minutes where some wait for a server, since they end by themselves.
//! The reserve is a part of the budget that only brief work takes, so that no download and no template keeps a look waiting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

/// What has waited for so long is overtaken no more.
const PATIENCE: Duration = Duration::from_secs(30);

/// The same of one that waits for what stalls, and gains nothing where others wait with it; and how long nothing moves where some wait for
/// a server. Longer than any template renders.
const LONG_PATIENCE: Duration = Duration::from_secs(180);

/// So long after the last change the oldest begins though it does not fit, where all the others rest: they may wait for something that
/// takes minutes. One that has waited for so long since its last change stalls.
const LULL: Duration = Duration::from_secs(2);

/// One that works for so long since its last change stalls, too.
const SLOW: Duration = Duration::from_secs(10);

/// So long after the last change the oldest begins where some do not rest: they may be waiting for it.
const STALL: Duration = Duration::from_secs(30);

/// What part of the budget there is beside one that stalls, however large that is.
const BESIDE: u64 = 8;

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
    /// Without the reserve.
    limit: u64,
    used: u64,
    /// For brief work alone, and what is used of it.
    reserve: u64,
    reserve_used: u64,
    /// Work that has its turn.
    holders: BTreeMap<u64, Holder>,
    /// By age.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    changed: Instant,
    /// Since when all rest.
    idle: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    bytes: u64,
    /// Who has a part already.
    grows: Option<u64>,
    /// May be given of the reserve.
    is_brief: bool,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Works,
    /// For something that comes by itself, or fails: a server's answer.
    Waits(Instant),
    /// It is done, or waits for memory or for something that takes long.
    Rests,
}

#[derive(Debug)]
struct Holder {
    bytes: u64,
    activity: Activity,
    /// When its bytes changed.
    changed: Instant,
    /// How long it has waited since then, without the wait that goes on.
    waited: Duration,
    /// Its bytes are the reserve's.
    is_brief: bool,
    /// It came by the reserve: it comes again and again, and is no sign that others move. So it is as long as it has no more than that gave.
    is_extra: bool,
    /// What it began with, in bytes.
    given: u64,
}

impl Holder {
    /// Whether it has waited for long: it ends by itself, as whatever it asks has a limit.
    fn has_waited(&self, now: Instant) -> bool {
        let waited = match self.activity {
            Activity::Rests => return false,
            Activity::Waits(since) => self.waited + now.duration_since(since),
            Activity::Works => self.waited,
        };
        waited >= LULL
    }

    fn is_stalled(&self, now: Instant) -> bool {
        let is_slow = now.duration_since(self.changed) >= SLOW;
        self.has_waited(now) || is_slow && self.activity != Activity::Rests
    }
}

/// What there is room for.
struct Available {
    /// Now.
    now: u64,
    /// Once all have ended that do not stall; `None` where none stalls.
    beside_stalled: Option<u64>,
}

impl Usage {
    fn ask(&mut self, bytes: u64, grows: Option<u64>, is_brief: bool, now: Instant) -> u64 {
        let id = self.next;
        self.next += 1;
        self.waiting.insert(
            id,
            Waiting {
                bytes,
                grows,
                is_brief,
                since: now,
            },
        );
        id
    }

    fn room(&self, now: Instant) -> Available {
        let stalled = self.holders.values().filter(|one| one.is_stalled(now));
        let (stalled, largest) = stalled.fold((0u64, 0u64), |(all, largest), one| {
            (all.saturating_add(one.bytes), largest.max(one.bytes))
        });
        let lent = stalled.min((self.limit + self.reserve) / 2);
        let ceiling = self.limit.saturating_add(lent);
        // One that is too large for anything to fit beside it counts as if it left something.
        let excess = largest.saturating_sub(ceiling - self.limit / BESIDE);
        Available {
            now: ceiling.saturating_sub(self.used - excess),
            beside_stalled: (stalled > 0).then(|| ceiling.saturating_sub(stalled - excess)),
        }
    }

    /// Whether this one's turn has come; then it has it.
    fn begin(&mut self, id: u64, now: Instant) -> bool {
        let Some(waiting) = self.waiting.get(&id) else {
            return true;
        };
        let room = self.room(now);
        let half_more = (self.limit + self.reserve).saturating_mul(3) / 2;
        // What is read by it stays beside all else: not without end, and whatever a single one has.
        let largest = self.holders.values().map(|one| one.bytes).max();
        let beside_largest = self.used.saturating_sub(largest.unwrap_or_default());
        let is_brief = waiting.is_brief
            && self.reserve_used.saturating_add(waiting.bytes) <= self.reserve
            && beside_largest <= half_more;
        let oldest = self.waiting.first_key_value();
        let is_oldest = oldest.is_none_or(|(first, _)| *first == id);
        let is_passed_too_often = oldest.is_some_and(|(_, first)| {
            let is_in_vain = room.beside_stalled.is_some_and(|room| first.bytes > room);
            let patience = if is_in_vain { LONG_PATIENCE } else { PATIENCE };
            now.duration_since(first.since) >= patience
        });
        let fits = waiting.bytes <= room.now;
        let still = now.duration_since(self.changed);
        let idle = self.idle.map(|since| now.duration_since(since));
        let is_idle = still >= LULL && idle.is_some_and(|idle| idle >= LULL);
        // Who waits for a server waits for none of those who wait here.
        let ends = self.holders.values().any(|one| one.has_waited(now));
        let stands_still = still >= if ends { LONG_PATIENCE } else { STALL };
        let mut holders = self.holders.values().filter(|one| !one.is_extra);
        let works = holders.any(|one| one.activity != Activity::Rests && !one.has_waited(now));
        // What is larger than anything begins beside a little that waits, too.
        let little = (self.limit + self.reserve) / 2;
        let is_nearly_alone = ends && !works && still >= LULL && self.used <= little;
        let nothing_moves = self.used == 0 || is_idle || is_nearly_alone || stands_still;
        // Work that grows gives nothing back before it has the rest, so it goes first; new work may wait until there is room. The one that
        // began first goes on to its end: what each has made by then stays, and all would hold it together.
        let waiting_holders = self.waiting.iter();
        let growing = waiting_holders.filter_map(|(asked, one)| Some((one.grows?, *asked)));
        let is_next = growing.min().map_or(is_oldest, |(_, first)| first == id);
        let has_room = self.used.saturating_add(self.reserve_used) <= half_more;
        let may_exceed = is_next && (waiting.grows.is_some() || has_room || stands_still);
        let begins =
            is_brief || nothing_moves && may_exceed || fits && (is_oldest || !is_passed_too_often);
        if begins {
            let (bytes, grows) = (waiting.bytes, waiting.grows);
            self.waiting.remove(&id);
            let holder = self.holders.entry(grows.unwrap_or(id)).or_insert(Holder {
                bytes: 0,
                activity: Activity::Works,
                changed: now,
                waited: Duration::ZERO,
                is_brief,
                is_extra: is_brief,
                given: bytes,
            });
            holder.is_extra &= grows.is_none();
            holder.bytes += bytes;
            holder.activity = Activity::Works;
            holder.changed = now;
            holder.waited = Duration::ZERO;
            match is_brief {
                true => self.reserve_used += bytes,
                false => {
                    self.used = self.used.saturating_add(bytes);
                    self.changed = now;
                }
            }
            self.note_idle(now);
        }
        begins
    }

    /// What a holder has is `bytes` now, be there room or not. What was the reserve's counts among the rest from here on.
    fn hold(&mut self, id: u64, bytes: u64, now: Instant) {
        let Some(holder) = self.holders.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut holder.bytes, bytes);
        holder.is_extra &= bytes <= holder.given;
        if before != bytes {
            holder.changed = now;
            holder.waited = Duration::ZERO;
            if let Activity::Waits(since) = &mut holder.activity {
                *since = now;
            }
        }
        match std::mem::take(&mut holder.is_brief) {
            true => self.reserve_used -= before,
            false => self.used -= before,
        }
        self.used = self.used.saturating_add(bytes);
        if !holder.is_extra && before != bytes {
            self.changed = now;
        }
        self.note_idle(now);
    }

    fn end(&mut self, id: u64, now: Instant) {
        self.hold(id, 0, now);
        self.holders.remove(&id);
        self.note_idle(now);
    }

    fn set_activity(&mut self, id: u64, activity: Activity, now: Instant) {
        let Some(holder) = self.holders.get_mut(&id) else {
            return;
        };
        if let Activity::Waits(since) = std::mem::replace(&mut holder.activity, activity) {
            holder.waited += now.duration_since(since);
        }
        self.note_idle(now);
    }

    fn note_idle(&mut self, now: Instant) {
        let mut holders = self.holders.values();
        let moves = holders.any(|one| !one.is_extra && one.activity != Activity::Rests);
        self.idle = (!moves).then(|| self.idle.unwrap_or(now));
    }
}

impl Memory {
    /// A budget of so many bytes.
    pub fn new(limit: u64) -> Self {
        let turns = Usage {
            limit,
            used: 0,
            reserve: 0,
            reserve_used: 0,
            holders: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next: 0,
            changed: Instant::now(),
            idle: None,
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

    /// The same budget, `bytes` of which only [`reserve_brief`](Self::reserve_brief) gives out.
    #[must_use]
    pub fn with_reserve(self, bytes: u64) -> Self {
        {
            let mut turns = self.lock();
            let bytes = bytes.min(turns.limit);
            turns.limit -= bytes;
            turns.reserve += bytes;
        }
        self
    }

    /// Waits for a turn of so many bytes.
    ///
    /// # Cancellation
    /// Safe: who stops waiting is forgotten.
    pub async fn reserve(&self, bytes: u64) -> Reservation {
        self.reserved(bytes, false).await
    }

    /// The same for work that is small and ends soon whatever others do, such as reading one object: it has a reserve that downloads and
    /// templates do not take. What it holds once that is known, or is done, counts among the rest.
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
        let turn = Asked {
            memory: self,
            id: self.lock().ask(bytes, grows, is_brief, Instant::now()),
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
        turn.id
    }

    /// How many bytes are reserved.
    pub fn used(&self) -> u64 {
        let turns = self.lock();
        turns.used.saturating_add(turns.reserve_used)
    }

    fn change(&self, change: impl FnOnce(&mut Usage, Instant)) {
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
    pub fn hold(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.memory
            .change(|turns, now| turns.hold(self.id, bytes, now));
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
        self.memory.change(|turns, now| turns.end(self.id, now));
        self.memory.released(self.bytes);
    }
}

/// A wait of one that has a turn.
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

    /// What they have made stays: if each went a step further in turn, all of it would be there together.
    #[tokio::test(start_paused = true)]
    async fn of_those_that_grow_in_steps_one_comes_to_its_end_before_the_next() {
        let memory = Memory::new(100);
        let work = |memory: Memory| async move {
            let mut turn = memory.reserve(10).await;
            let mut most = 0;
            for bytes in [20, 40, 80] {
                turn.resize(bytes).await;
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

    /// Work that begins, waits a while and ends, many times over; how long all of it takes.
    async fn small_ones(memory: &Memory, bytes: u64) -> Duration {
        let begun = Instant::now();
        let work = || async {
            let turn = memory.reserve(bytes).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(turn);
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
                let turn = memory.reserve(bytes).await;
                for _ in 0..300 {
                    let waits = turn.waits();
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

    /// Templates that ask the cluster in a loop, in the largest turn.
    #[tokio::test(start_paused = true)]
    async fn a_reservation_that_waits_again_and_again_holds_nobody_up() {
        for bytes in [64, 200] {
            let memory = Memory::new(48).with_reserve(6);
            let evil = tokio::spawn({
                let memory = memory.clone();
                async move {
                    let turn = memory.reserve(bytes).await;
                    for _ in 0..12_000 {
                        let waits = turn.waits();
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

    /// Nothing but work is slow, too.
    #[tokio::test(start_paused = true)]
    async fn a_reservation_that_works_for_long_holds_nobody_up_for_long() {
        let memory = Memory::new(48);
        let _works = memory.reserve(64).await;
        let took = small_ones(&memory, 2).await;
        assert!(took < SLOW + Duration::from_secs(20), "{took:?}");
    }

    /// What stalls is lent against once, not with each one that does.
    #[tokio::test(start_paused = true)]
    async fn however_many_stall_they_stay_within_a_bound() {
        let memory = Memory::new(48).with_reserve(6);
        let mut stalled = Vec::new();
        let stalls = |turn: Reservation| (turn.waits(), turn);
        stalled.push(stalls(memory.reserve(64).await));
        while let Ok(turn) = tokio::time::timeout(STALL / 2, memory.reserve(2)).await {
            stalled.push(stalls(turn));
            assert!(memory.used() <= 72, "{}", memory.used());
        }
        assert_eq!(memory.used(), 68);
    }

    /// The others do not wait with one that waits for what stalls; once that has ended it is their turn to wait.
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

    /// Who has a template of his own keeps no look waiting; what looks hold counts as soon as it is known.
    #[tokio::test(start_paused = true)]
    async fn brief_work_has_a_reserve() {
        let memory = Memory::new(48).with_reserve(6);
        let mut large = memory.reserve(200).await;
        assert!(memory.reserve(2).now_or_never().is_none());
        let mut looks = Vec::new();
        for _ in 0..3 {
            looks.push(memory.reserve_brief(2).now_or_never().unwrap());
        }
        assert!(memory.reserve_brief(2).now_or_never().is_none());
        looks[0].resize(1).await;
        looks[0].rest();
        looks.push(memory.reserve_brief(2).now_or_never().unwrap());
        assert_eq!(memory.used(), 200 + 1 + 3 * 2);
        drop(looks);
        assert_eq!(memory.used(), 200);
        // What looks hold is not without end either.
        let mut look = memory.reserve_brief(2).await;
        look.hold(80);
        assert!(memory.reserve_brief(2).now_or_never().is_none());
        drop(look);
        large.hold(64);
        // They come and go, and nothing moves by that.
        let next = tokio::spawn({
            let memory = memory.clone();
            async move { memory.reserve(40).await }
        });
        for _ in 0..STALL.as_secs() + 2 {
            let look = memory.reserve_brief(2).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(look);
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
        // The same where it holds what it has read, whether there is room or not.
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
