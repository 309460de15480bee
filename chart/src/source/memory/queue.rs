//! The queue for a budget of bytes: decides whose turn it is. No I/O, and nothing here waits: each call is given the time.
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
//! The reserve is a part of the budget that only brief work takes, so that no download and no template keeps it waiting.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Work that has waited for so long is overtaken no more.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The same limit for work that waits for stalled work, and gains nothing where others wait with it; and how long nothing moves where some wait for
/// a server. Longer than any template renders.
const LONG_PATIENCE: Duration = Duration::from_secs(180);

/// So long after the last change the oldest begins though it does not fit, where all the others rest: they may wait for something that
/// takes minutes. One that has waited for so long since its last change stalls.
pub(super) const LULL: Duration = Duration::from_secs(2);

/// Work without a change for so long stalls, too.
pub(super) const SLOW: Duration = Duration::from_secs(10);

/// So long after the last change the oldest begins where some do not rest: they may be waiting for it.
pub(super) const STALL: Duration = Duration::from_secs(30);

/// Fraction of the budget that is free beside work that stalls, however large that is.
const BESIDE: u64 = 8;

/// Work that has reserved bytes, and work that waits for some.
#[derive(Debug)]
pub(super) struct Queue {
    /// Without the reserve.
    limit: u64,
    used: u64,
    /// For brief work alone, and what is used of it.
    reserve: u64,
    reserve_used: u64,
    /// Work that has its reservation.
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
    /// The work whose reservation is to grow, if it has one already.
    grows: Option<u64>,
    /// Whether the work may use the reserve.
    is_brief: bool,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    Works,
    /// For something that comes by itself, or fails: a server's answer.
    Waits(Instant),
    /// The work is done, or waits for memory or for something that takes long.
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
    /// Whether the bytes are the reserve's.
    is_brief: bool,
    /// Whether the work began in the reserve and has no more than that gave: such work comes again and again, and is no sign that others move.
    is_extra: bool,
    /// Bytes the work began with.
    given: u64,
}

impl Holder {
    /// Whether the work has waited for long: it ends by itself, as whatever it asks has a limit.
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

/// The free bytes.
struct Available {
    /// Now.
    now: u64,
    /// Once all have ended that do not stall; `None` where none stalls.
    beside_stalled: Option<u64>,
}

impl Queue {
    /// Nobody has anything of so many bytes.
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            used: 0,
            reserve: 0,
            reserve_used: 0,
            holders: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next: 0,
            changed: Instant::now(),
            idle: None,
        }
    }

    /// So many bytes are for brief work alone from now on.
    pub(super) fn set_aside(&mut self, bytes: u64) {
        let bytes = bytes.min(self.limit);
        self.limit -= bytes;
        self.reserve += bytes;
    }

    /// How many bytes are taken.
    pub(super) fn used(&self) -> u64 {
        self.used.saturating_add(self.reserve_used)
    }

    pub(super) fn ask(
        &mut self,
        bytes: u64,
        grows: Option<u64>,
        is_brief: bool,
        now: Instant,
    ) -> u64 {
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

    /// Forgets work that waits no longer; whether it waited still.
    pub(super) fn leave(&mut self, id: u64) -> bool {
        self.waiting.remove(&id).is_some()
    }

    fn room(&self, now: Instant) -> Available {
        let stalled = self.holders.values().filter(|one| one.is_stalled(now));
        let (stalled, largest) = stalled.fold((0u64, 0u64), |(all, largest), one| {
            (all.saturating_add(one.bytes), largest.max(one.bytes))
        });
        let lent = stalled.min((self.limit + self.reserve) / 2);
        let ceiling = self.limit.saturating_add(lent);
        // Work that is too large for anything to fit beside it counts as if it left something.
        let excess = largest.saturating_sub(ceiling - self.limit / BESIDE);
        Available {
            now: ceiling.saturating_sub(self.used - excess),
            beside_stalled: (stalled > 0).then(|| ceiling.saturating_sub(stalled - excess)),
        }
    }

    /// Whether this one may begin; then it has begun.
    pub(super) fn begin(&mut self, id: u64, now: Instant) -> bool {
        let Some(waiting) = self.waiting.get(&id) else {
            return true;
        };
        let room = self.room(now);
        let half_more = (self.limit + self.reserve).saturating_mul(3) / 2;
        // Data that brief work has read stays beside all else: not without end, and not counting the largest single holder.
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
        // Work that waits for a server waits for none of those who wait here.
        let ends = self.holders.values().any(|one| one.has_waited(now));
        let stands_still = still >= if ends { LONG_PATIENCE } else { STALL };
        let mut holders = self.holders.values().filter(|one| !one.is_extra);
        let works = holders.any(|one| one.activity != Activity::Rests && !one.has_waited(now));
        // Work larger than the budget begins beside a little that waits, too.
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
    pub(super) fn hold(&mut self, id: u64, bytes: u64, now: Instant) {
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

    pub(super) fn end(&mut self, id: u64, now: Instant) {
        self.hold(id, 0, now);
        self.holders.remove(&id);
        self.note_idle(now);
    }

    pub(super) fn set_activity(&mut self, id: u64, activity: Activity, now: Instant) {
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
