//! Which of many texts are part of one, and where they stand in it.
//!
//! The one is what is told, and short; the many are all that may be secret, in all their forms: as much as values and Secrets take, many times
//! over. So the one is made ready to be looked into (its suffix automaton), and each of the many costs its own length, whatever they
//! have in common.

use std::collections::HashSet;

/// A text of which every part can be looked up.
pub(super) struct Parts {
    states: Vec<State>,
    /// The state after each of its bytes.
    after: Vec<usize>,
    /// The states whose parts end where it ends.
    last: HashSet<usize>,
}

/// Parts that end at the same places, each of which is an end of the next longer one.
struct State {
    longest: usize,
    /// The state of the next shorter part that ends at more places.
    shorter: Option<usize>,
    next: Vec<(u8, usize)>,
}

/// One part of the text, wherever it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Part {
    state: usize,
    length: usize,
}

impl State {
    fn next(&self, byte: u8) -> Option<usize> {
        let next = self.next.iter().find(|(by, _)| *by == byte);
        next.map(|(_, state)| *state)
    }

    fn lead(&mut self, byte: u8, to: usize) {
        match self.next.iter_mut().find(|(by, _)| *by == byte) {
            Some((_, state)) => *state = to,
            None => self.next.push((byte, to)),
        }
    }
}

impl Parts {
    pub(super) fn of(text: &str) -> Self {
        let root = State {
            longest: 0,
            shorter: None,
            next: Vec::new(),
        };
        let mut parts = Self {
            states: vec![root],
            after: Vec::with_capacity(text.len()),
            last: HashSet::new(),
        };
        for byte in text.bytes() {
            parts.push(byte);
        }
        let mut end = parts.after.last().copied();
        while let Some(state) = end {
            parts.last.insert(state);
            end = parts.states[state].shorter;
        }
        parts
    }

    /// Adds a byte: Blumer's construction, linear in all of them.
    fn push(&mut self, byte: u8) {
        let before = self.after.last().copied().unwrap_or_default();
        let new = self.states.len();
        self.states.push(State {
            longest: self.after.len() + 1,
            shorter: None,
            next: Vec::new(),
        });
        let mut from = Some(before);
        let known = loop {
            let Some(state) = from else { break None };
            if let Some(known) = self.states[state].next(byte) {
                break Some((state, known));
            }
            self.states[state].lead(byte, new);
            from = self.states[state].shorter;
        };
        let shorter = match known {
            None => 0,
            Some((state, known)) => {
                let longest = self.states[state].longest + 1;
                match self.states[known].longest == longest {
                    true => known,
                    false => self.split(known, longest, (byte, state)),
                }
            }
        };
        self.states[new].shorter = Some(shorter);
        self.after.push(new);
    }

    /// Parts of a state, up to the `longest`, end at one more place than its others, to which those from `from` on lead by this byte.
    fn split(&mut self, state: usize, longest: usize, (byte, from): (u8, usize)) -> usize {
        let split = self.states.len();
        self.states.push(State {
            longest,
            shorter: self.states[state].shorter,
            next: self.states[state].next.clone(),
        });
        self.states[state].shorter = Some(split);
        let mut from = Some(from);
        while let Some(at) = from.filter(|at| self.states[*at].next(byte) == Some(state)) {
            self.states[at].lead(byte, split);
            from = self.states[at].shorter;
        }
        split
    }

    /// What it is a part of the text, if it is one.
    pub(super) fn find(&self, part: &str) -> Option<Part> {
        let mut bytes = part.bytes();
        let state = bytes.try_fold(0, |state, byte| self.states[state].next(byte))?;
        let length = part.len();
        Some(Part { state, length })
    }

    /// How much of the beginning of something stands at the end of the text.
    pub(super) fn begun_at_end(&self, whole: &str) -> usize {
        let (mut state, mut begun) = (0, 0);
        for (at, byte) in whole.bytes().enumerate() {
            let Some(next) = self.states[state].next(byte) else {
                break;
            };
            state = next;
            if self.last.contains(&state) {
                begun = at + 1;
            }
        }
        begun
    }

    /// Where in the text these stand, from first to last; what overlaps is one place.
    pub(super) fn places(&self, parts: &HashSet<Part>) -> Vec<(usize, usize)> {
        let mut longest = vec![0; self.states.len()];
        for part in parts {
            longest[part.state] = part.length.max(longest[part.state]);
        }
        // What ends somewhere in a shorter form does so in a longer one, too.
        for state in self.by_length() {
            if let Some(shorter) = self.states[state].shorter {
                longest[state] = longest[state].max(longest[shorter]);
            }
        }
        let mut places: Vec<(usize, usize)> = Vec::new();
        for (at, state) in self.after.iter().enumerate().rev() {
            let (begin, end) = (at + 1 - longest[*state], at + 1);
            match places.last_mut() {
                _ if begin == end => {}
                Some((first, _)) if end > *first => *first = begin.min(*first),
                _ => places.push((begin, end)),
            }
        }
        places.reverse();
        places
    }

    /// All states, those of shorter parts first.
    fn by_length(&self) -> Vec<usize> {
        let mut all: Vec<_> = (0..self.states.len()).collect();
        all.sort_by_key(|state| self.states[*state].longest);
        all
    }

    /// Takes those away that stand in any of `others` as well.
    pub(super) fn without_those_in<'o>(
        &self,
        parts: &mut HashSet<Part>,
        others: impl Iterator<Item = &'o [u8]>,
    ) {
        // Of each state the longest that was seen.
        let mut seen = vec![0; self.states.len()];
        for other in others {
            let (mut state, mut length) = (0, 0);
            for byte in other {
                loop {
                    if let Some(next) = self.states[state].next(*byte) {
                        (state, length) = (next, length + 1);
                        break;
                    }
                    let Some(shorter) = self.states[state].shorter else {
                        length = 0;
                        break;
                    };
                    (state, length) = (shorter, self.states[shorter].longest);
                }
                seen[state] = length.max(seen[state]);
            }
        }
        for state in self.by_length().into_iter().rev() {
            if let (Some(shorter), true) = (self.states[state].shorter, seen[state] > 0) {
                seen[shorter] = self.states[shorter].longest;
            }
        }
        parts.retain(|part| part.length > seen[part.state]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of few letters, so that much of them repeats.
    fn texts() -> impl Iterator<Item = String> {
        let mut state = 1_u32;
        let mut random = move |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        (0..400).map(move |_| {
            let letters = ["ab", "abc"][random(2) as usize];
            let length = random(14);
            let letter = |_| letters.as_bytes()[random(letters.len() as u32) as usize];
            (0..length).map(letter).map(char::from).collect()
        })
    }

    #[test]
    fn each_part_is_found_where_it_stands() {
        for text in texts() {
            let parts = Parts::of(&text);
            for other in ["a", "ab", "aba", "abcab", "aaaa", "ca", "bbbbb", "cc"] {
                let found = parts.find(other);
                assert_eq!(found.is_some(), text.contains(other), "{other} in {text}");
                let mut at = vec![false; text.len()];
                for begin in 0..text.len() {
                    if text[begin..].starts_with(other) {
                        at[begin..begin + other.len()].fill(true);
                    }
                }
                let places = parts.places(&found.into_iter().collect());
                let mut reported = vec![false; text.len()];
                places.iter().for_each(|(a, b)| reported[*a..*b].fill(true));
                assert_eq!(reported, at, "{other} in {text}");
                let begun = (0..=other.len()).rev();
                let begun = begun.into_iter().find(|n| text.ends_with(&other[..*n]));
                assert_eq!(Some(parts.begun_at_end(other)), begun, "{other} at {text}");
                let mut unknown: HashSet<_> = found.into_iter().collect();
                let known = ["cabbage", "aab"];
                parts.without_those_in(&mut unknown, known.iter().map(|text| text.as_bytes()));
                let is_known = known.iter().any(|text| text.contains(other));
                assert_eq!(unknown.is_empty(), found.is_none() || is_known, "{other}");
            }
        }
    }

    #[test]
    fn overlapping_matches_are_one_place_and_adjacent_ones_two() {
        let parts = Parts::of("-one-two-three-");
        let find = |texts: &[&str]| {
            let found = texts.iter().filter_map(|text| parts.find(text));
            parts.places(&found.collect())
        };
        assert_eq!(find(&["one-t", "two-", "three"]), [(1, 9), (9, 14)]);
        assert_eq!(find(&["w", "two-three", "o"]), [(1, 2), (5, 14)]);
        assert_eq!(find(&["four"]), []);
    }
}
