//! Which of many texts are part of one, and where they stand in it.
//!
//! The one is what is told, and short; the many are all that may be secret: as much as values and Secrets take. So the one is made ready to
//! be looked into (its suffix automaton, some 60 bytes for each of its own), and each of the many costs its own length, whatever they
//! have in common.

use std::collections::HashSet;

/// A text of which every part can be looked up.
pub(super) struct Parts {
    states: Vec<State>,
    steps: Vec<Step>,
    /// The state after each of its bytes.
    after: Vec<u32>,
}

/// Parts that end at the same places, each of which is an end of the next longer one.
struct State {
    longest: u32,
    /// The state of the next shorter part that ends at more places.
    shorter: u32,
    /// The first of the steps from here.
    steps: u32,
}

/// By which byte one state follows another.
#[derive(Clone, Copy)]
struct Step {
    to: u32,
    /// The next step from the same state.
    other: u32,
    byte: u8,
}

const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

/// One part of the text, wherever it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Part {
    state: u32,
    length: usize,
}

impl Parts {
    pub(super) fn of(text: impl AsRef<[u8]>) -> Self {
        let text = text.as_ref();
        let mut parts = Self {
            states: Vec::with_capacity(text.len()),
            steps: Vec::with_capacity(text.len()),
            after: Vec::with_capacity(text.len()),
        };
        parts.add_state(0, NONE);
        for byte in text {
            parts.push(*byte);
        }
        parts
    }

    fn state(&self, state: u32) -> &State {
        &self.states[state as usize]
    }

    fn steps(&self, state: u32) -> impl Iterator<Item = (u32, Step)> {
        let step = |at: u32| self.steps.get(at as usize).map(|step| (at, *step));
        let first = step(self.state(state).steps);
        std::iter::successors(first, move |(_, before)| step(before.other))
    }

    fn next(&self, state: u32, byte: u8) -> Option<u32> {
        let mut steps = self.steps(state);
        let (_, step) = steps.find(|(_, step)| step.byte == byte)?;
        Some(step.to)
    }

    fn lead(&mut self, state: u32, byte: u8, to: u32) {
        let known = self.steps(state).find(|(_, step)| step.byte == byte);
        match known {
            Some((at, _)) => self.steps[at as usize].to = to,
            None => self.add_step(state, byte, to),
        }
    }

    fn add_step(&mut self, state: u32, byte: u8, to: u32) {
        let new = self.steps.len() as u32;
        let other = std::mem::replace(&mut self.states[state as usize].steps, new);
        self.steps.push(Step { to, other, byte });
    }

    fn add_state(&mut self, longest: u32, shorter: u32) -> u32 {
        let new = self.states.len() as u32;
        self.states.push(State {
            longest,
            shorter,
            steps: NONE,
        });
        new
    }

    /// Adds a byte: Blumer's construction, linear in all of them.
    fn push(&mut self, byte: u8) {
        let before = self.after.last().copied().unwrap_or(ROOT);
        let new = self.add_state(self.after.len() as u32 + 1, ROOT);
        let mut from = before;
        while from != NONE {
            if let Some(known) = self.next(from, byte) {
                let longest = self.state(from).longest + 1;
                let shorter = match self.state(known).longest == longest {
                    true => known,
                    false => self.split(known, longest, (byte, from)),
                };
                self.states[new as usize].shorter = shorter;
                break;
            }
            self.lead(from, byte, new);
            from = self.state(from).shorter;
        }
        self.after.push(new);
    }

    /// Parts of a state, up to the `longest`, end at one more place than its others, to which those from `from` on lead by this byte.
    fn split(&mut self, state: u32, longest: u32, (byte, from): (u8, u32)) -> u32 {
        let split = self.add_state(longest, self.state(state).shorter);
        let steps: Vec<_> = self.steps(state).collect();
        for (_, step) in steps {
            self.add_step(split, step.byte, step.to);
        }
        self.states[state as usize].shorter = split;
        let mut from = from;
        while from != NONE && self.next(from, byte) == Some(state) {
            self.lead(from, byte, split);
            from = self.state(from).shorter;
        }
        split
    }

    fn walk(&self, from: u32, bytes: &[u8]) -> Option<u32> {
        let mut bytes = bytes.iter();
        bytes.try_fold(from, |state, byte| self.next(state, *byte))
    }

    /// What it is a part of the text, if it is one.
    pub(super) fn find(&self, part: impl AsRef<[u8]>) -> Option<Part> {
        let part = part.as_ref();
        let state = self.walk(ROOT, part)?;
        let length = part.len();
        Some(Part { state, length })
    }

    /// Beginnings of something, of so many bytes or more, that one of these follows: the beginning and what follows.
    pub(super) fn begun(&self, whole: &[u8], shortest: usize, ends: &[&[u8]]) -> Vec<Part> {
        let (mut state, mut begun) = (ROOT, Vec::new());
        for (at, byte) in whole.iter().enumerate() {
            let Some(next) = self.next(state, *byte) else {
                break;
            };
            state = next;
            let ends = ends.iter().filter(|_| at + 1 >= shortest);
            begun.extend(ends.filter_map(|end| {
                let length = at + 1 + end.len();
                let state = self.walk(state, end)?;
                Some(Part { state, length })
            }));
        }
        begun
    }

    /// Where in the text these stand, from first to last; what overlaps is one place.
    pub(super) fn places(&self, parts: &HashSet<Part>) -> Vec<(usize, usize)> {
        let mut longest = vec![0; self.states.len()];
        for part in parts {
            let longest = &mut longest[part.state as usize];
            *longest = part.length.max(*longest);
        }
        // What ends somewhere in a shorter form does so in a longer one, too.
        for state in self.by_length() {
            let shorter = self.state(state).shorter;
            if shorter != NONE {
                longest[state as usize] = longest[state as usize].max(longest[shorter as usize]);
            }
        }
        let mut places: Vec<(usize, usize)> = Vec::new();
        for (at, state) in self.after.iter().enumerate().rev() {
            let (begin, end) = (at + 1 - longest[*state as usize], at + 1);
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
    fn by_length(&self) -> Vec<u32> {
        let mut all: Vec<_> = (0..self.states.len() as u32).collect();
        all.sort_by_key(|state| self.state(*state).longest);
        all
    }

    /// Takes those away that stand in any of `others` as well.
    pub(super) fn without_those_in(
        &self,
        parts: &mut HashSet<Part>,
        others: impl Iterator<Item = impl Iterator<Item = u8>>,
    ) {
        // Of each state the longest that was seen.
        let mut seen = vec![0; self.states.len()];
        for other in others {
            let (mut state, mut length) = (ROOT, 0);
            for byte in other {
                loop {
                    if let Some(next) = self.next(state, byte) {
                        (state, length) = (next, length + 1);
                        break;
                    }
                    let shorter = self.state(state).shorter;
                    if shorter == NONE {
                        length = 0;
                        break;
                    }
                    (state, length) = (shorter, self.state(shorter).longest);
                }
                let seen = &mut seen[state as usize];
                *seen = length.max(*seen);
            }
        }
        for state in self.by_length().into_iter().rev() {
            let shorter = self.state(state).shorter;
            if shorter != NONE && seen[state as usize] > 0 {
                seen[shorter as usize] = self.state(shorter).longest;
            }
        }
        parts.retain(|part| part.length > seen[part.state as usize] as usize);
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
                let begun = (1..=other.len()).filter(|n| text.ends_with(&other[..*n]));
                let ended = Parts::of(format!("{text}."));
                let reported = ended.begun(other.as_bytes(), 1, &[b"."]).into_iter();
                let reported = reported.map(|part| part.length - 1);
                assert!(reported.eq(begun), "{other} at {text}");
                let mut unknown: HashSet<_> = found.into_iter().collect();
                let known = ["cabbage", "aab"];
                parts.without_those_in(&mut unknown, known.iter().map(|text| text.bytes()));
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
