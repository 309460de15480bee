//! Go's `sort.Sort`: pattern-defeating quicksort, as of Go 1.19. Which of several equal elements comes first is part of what its
//! programs print, and no stable sort gives it.

const MAX_INSERTION: usize = 12;

#[derive(Clone, Copy, PartialEq)]
enum Hint {
    Unknown,
    Increasing,
    Decreasing,
}

/// Sorts a list, and leaves equal elements where Go leaves them.
///
/// ```
/// let mut words = ["pear", "fig", "apple", "kiwi"];
/// golib::sort::sort(&mut words, |one, other| one.len() < other.len());
/// assert_eq!(words, ["fig", "pear", "kiwi", "apple"]);
/// ```
pub fn sort<T>(list: &mut [T], is_less: impl Fn(&T, &T) -> bool) {
    let limit = bits(list.len());
    let length = list.len();
    let mut data = Data { list, is_less };
    data.pdqsort(0, length, limit);
}

fn bits(number: usize) -> u32 {
    usize::BITS - number.leading_zeros()
}

struct Data<'a, T, F> {
    list: &'a mut [T],
    is_less: F,
}

impl<T, F: Fn(&T, &T) -> bool> Data<'_, T, F> {
    fn less(&self, one: usize, other: usize) -> bool {
        (self.is_less)(&self.list[one], &self.list[other])
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.list.swap(one, other);
    }

    fn insertion_sort(&mut self, from: usize, to: usize) {
        for sorted in from + 1..to {
            let mut at = sorted;
            while at > from && self.less(at, at - 1) {
                self.swap(at, at - 1);
                at -= 1;
            }
        }
    }

    fn sift_down(&mut self, low: usize, high: usize, first: usize) {
        let mut root = low;
        loop {
            let mut child = 2 * root + 1;
            if child >= high {
                return;
            }
            if child + 1 < high && self.less(first + child, first + child + 1) {
                child += 1;
            }
            if !self.less(first + root, first + child) {
                return;
            }
            self.swap(first + root, first + child);
            root = child;
        }
    }

    fn heap_sort(&mut self, from: usize, to: usize) {
        let length = to - from;
        for low in (0..=(length - 1) / 2).rev() {
            self.sift_down(low, length, from);
        }
        for high in (0..length).rev() {
            self.swap(from, from + high);
            self.sift_down(0, high, from);
        }
    }

    fn pdqsort(&mut self, from: usize, to: usize, limit: u32) {
        let (mut from, mut to, mut limit) = (from, to, limit);
        let mut was_balanced = true;
        let mut was_partitioned = true;
        loop {
            let length = to - from;
            if length <= MAX_INSERTION {
                self.insertion_sort(from, to);
                return;
            }
            if limit == 0 {
                self.heap_sort(from, to);
                return;
            }
            if !was_balanced {
                self.break_patterns(from, to);
                limit -= 1;
            }
            let (mut pivot, mut hint) = self.choose_pivot(from, to);
            if hint == Hint::Decreasing {
                self.list[from..to].reverse();
                pivot = (to - 1) - (pivot - from);
                hint = Hint::Increasing;
            }
            if was_balanced
                && was_partitioned
                && hint == Hint::Increasing
                && self.partial_insertion_sort(from, to)
            {
                return;
            }
            if from > 0 && !self.less(from - 1, pivot) {
                from = self.partition_equal(from, to, pivot);
                continue;
            }
            let (middle, already) = self.partition(from, to, pivot);
            was_partitioned = already;
            let (left, right) = (middle - from, to - middle);
            if left < right {
                was_balanced = left >= length / 8;
                self.pdqsort(from, middle, limit);
                from = middle + 1;
            } else {
                was_balanced = right >= length / 8;
                self.pdqsort(middle + 1, to, limit);
                to = middle;
            }
        }
    }

    /// The place of the pivot, and whether nothing had to be moved.
    fn partition(&mut self, from: usize, to: usize, pivot: usize) -> (usize, bool) {
        self.swap(from, pivot);
        let (mut low, mut high) = (from + 1, to - 1);
        let mut is_first = true;
        loop {
            while low <= high && self.less(low, from) {
                low += 1;
            }
            while low <= high && !self.less(high, from) {
                high -= 1;
            }
            if low > high {
                self.swap(high, from);
                return (high, is_first);
            }
            is_first = false;
            self.swap(low, high);
            low += 1;
            high -= 1;
        }
    }

    /// Where those begin that are greater than the pivot.
    fn partition_equal(&mut self, from: usize, to: usize, pivot: usize) -> usize {
        self.swap(from, pivot);
        let (mut low, mut high) = (from + 1, to - 1);
        loop {
            while low <= high && !self.less(from, low) {
                low += 1;
            }
            while low <= high && self.less(from, high) {
                high -= 1;
            }
            if low > high {
                return low;
            }
            self.swap(low, high);
            low += 1;
            high -= 1;
        }
    }

    fn partial_insertion_sort(&mut self, from: usize, to: usize) -> bool {
        const MAX_STEPS: usize = 5;
        const SHORTEST_SHIFTING: usize = 50;
        let mut at = from + 1;
        for _ in 0..MAX_STEPS {
            while at < to && !self.less(at, at - 1) {
                at += 1;
            }
            if at == to {
                return true;
            }
            if to - from < SHORTEST_SHIFTING {
                return false;
            }
            self.swap(at, at - 1);
            if at - from >= 2 {
                for smaller in (1..at).rev() {
                    if !self.less(smaller, smaller - 1) {
                        break;
                    }
                    self.swap(smaller, smaller - 1);
                }
            }
            if to - at >= 2 {
                for greater in at + 1..to {
                    if !self.less(greater, greater - 1) {
                        break;
                    }
                    self.swap(greater, greater - 1);
                }
            }
        }
        false
    }

    fn break_patterns(&mut self, from: usize, to: usize) {
        let length = to - from;
        if length < 8 {
            return;
        }
        let mut random = length as u64;
        let modulus = 1_usize << bits(length);
        let middle = from + length / 4 * 2;
        for at in middle - 1..=middle + 1 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let bits = usize::try_from(random & (modulus as u64 - 1)).unwrap_or(0);
            let other = if bits >= length { bits - length } else { bits };
            self.swap(at, from + other);
        }
    }

    fn choose_pivot(&self, from: usize, to: usize) -> (usize, Hint) {
        const SHORTEST_NINTHER: usize = 50;
        const MAX_SWAPS: usize = 4 * 3;
        let length = to - from;
        let mut swaps = 0;
        let quarter = length / 4;
        let mut places = [from + quarter, from + quarter * 2, from + quarter * 3];
        if length >= 8 {
            if length >= SHORTEST_NINTHER {
                for place in &mut places {
                    *place = self.median([*place - 1, *place, *place + 1], &mut swaps);
                }
            }
            places[1] = self.median(places, &mut swaps);
        }
        let hint = match swaps {
            0 => Hint::Increasing,
            MAX_SWAPS => Hint::Decreasing,
            _ => Hint::Unknown,
        };
        (places[1], hint)
    }

    fn median(&self, places: [usize; 3], swaps: &mut usize) -> usize {
        let [mut a, mut b, mut c] = places;
        for is_first in [true, false, true] {
            let (low, high) = if is_first {
                (&mut a, &mut b)
            } else {
                (&mut b, &mut c)
            };
            if self.less(*high, *low) {
                *swaps += 1;
                std::mem::swap(low, high);
            }
        }
        b
    }
}

#[cfg(test)]
mod tests {
    use super::sort;

    /// Keys by chance, ascending, descending, in waves, and by chance again.
    fn keys(length: usize, range: usize, kind: usize) -> Vec<(usize, usize)> {
        let mut state = u32::try_from(length * 31 + range).expect("a small number");
        let numbers = 0..length;
        numbers
            .map(|at| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let key = match kind {
                    1 => at / range,
                    2 => (length - at) / range,
                    3 => at % range,
                    _ => (state >> 16) as usize % range,
                };
                (key, at)
            })
            .collect()
    }

    #[test]
    fn equal_elements_are_in_the_order_go_leaves_them_in() {
        // Lengths, and a checksum (FNV-1a) of the orders that Go 1.26's `sort.Sort` leaves the lists of `keys` in, the last kind
        // with a comparison that is no order.
        let recorded: [(usize, u32); 12] = [
            (5, 3372393817),
            (12, 1885899449),
            (13, 673861991),
            (20, 3856089129),
            (49, 4275826093),
            (50, 4062601384),
            (51, 345133418),
            (97, 2331575379),
            (128, 3503017973),
            (300, 509955425),
            (1000, 1155806685),
            (5000, 1507038427),
        ];
        for (length, checksum) in recorded {
            let mut found: u32 = 2_166_136_261;
            for range in [1, 2, 3, 7, 40] {
                for kind in 0..5 {
                    let mut list = keys(length, range, kind);
                    sort(&mut list, |one, other| match kind {
                        4 => (one.0 * 7 + other.0 * 13 + one.1) % 5 < 2,
                        _ => one.0 < other.0,
                    });
                    for (_, at) in list {
                        found = (found ^ u32::try_from(at).expect("a small number"))
                            .wrapping_mul(16_777_619);
                    }
                }
            }
            assert_eq!(found, checksum, "lists of {length}");
        }
    }
}
