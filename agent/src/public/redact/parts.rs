//! Finds which of many secrets are part of a text, and where they stand in it.
//!
//! The text is to be published, and short; the secrets are many, in all their forms: as much as values and Secrets take, many times over. So the text
//! is indexed (its suffix automaton), and each secret costs its own length, whatever they have in common.

use std::collections::HashSet;

use super::limits::SHORTEST;

/// Marks for omitted text: by Go's YAML decoder and `%.10q`, by a decoder of JSON that shows an excerpt, by people.
const LEFT_OUT: [&str; 4] = ["...", "\"...", "|...", "…"];

/// A text of which every part can be looked up.
pub(super) struct Parts {
    states: Vec<State>,
    /// The state after each of its bytes.
    after: Vec<usize>,
    /// The states whose parts end where it ends.
    last: HashSet<usize>,
    /// Marks that may stand in the text for an omitted part.
    left_out: Vec<Vec<u8>>,
}

/// Parts that end at the same places, each of which is an end of the next longer one. There are up to two a byte, most of which lead to one other.
struct State {
    longest: u32,
    /// The state of the next shorter part that ends at more places.
    shorter: Option<u32>,
    next: Option<(u8, u32)>,
    others: Vec<(u8, u32)>,
}

/// One part of the text, wherever it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Part {
    state: usize,
    length: usize,
}

impl State {
    fn new(longest: usize, shorter: Option<u32>) -> Self {
        Self {
            longest: longest as u32,
            shorter,
            next: None,
            others: Vec::new(),
        }
    }

    fn longest(&self) -> usize {
        self.longest as usize
    }

    fn shorter(&self) -> Option<usize> {
        self.shorter.map(|state| state as usize)
    }

    fn next(&self, byte: u8) -> Option<usize> {
        let mut all = self.next.iter().chain(&self.others);
        let next = all.find(|(by, _)| *by == byte);
        next.map(|(_, state)| *state as usize)
    }

    fn lead(&mut self, byte: u8, to: usize) {
        let next = (byte, to as u32);
        let is_first = self.next.is_none();
        let mut all = self.next.iter_mut().chain(&mut self.others);
        match all.find(|(by, _)| *by == byte) {
            Some(known) => *known = next,
            None if is_first => self.next = Some(next),
            None => self.others.push(next),
        }
    }
}

impl Parts {
    pub(super) fn of(text: &[u8]) -> Self {
        let mut parts = Self {
            states: vec![State::new(0, None)],
            after: Vec::with_capacity(text.len()),
            last: HashSet::new(),
            left_out: LEFT_OUT.map(|sign| sign.as_bytes().to_vec()).to_vec(),
        };
        for byte in text {
            parts.push(*byte);
        }
        let mut end = parts.after.last().copied();
        while let Some(state) = end {
            parts.last.insert(state);
            end = parts.states[state].shorter();
        }
        parts
    }

    /// Where what was left out is shown in another form, as the text is.
    pub(super) fn with_left_out(mut self, form: impl Fn(&str) -> Vec<u8>) -> Self {
        self.left_out = LEFT_OUT.map(form).to_vec();
        self
    }

    /// Adds a byte: Blumer's construction, linear in all of them.
    fn push(&mut self, byte: u8) {
        let before = self.after.last().copied().unwrap_or_default();
        let new = self.states.len();
        self.states.push(State::new(self.after.len() + 1, None));
        let mut from = Some(before);
        let known = loop {
            let Some(state) = from else { break None };
            if let Some(known) = self.states[state].next(byte) {
                break Some((state, known));
            }
            self.states[state].lead(byte, new);
            from = self.states[state].shorter();
        };
        let shorter = match known {
            None => 0,
            Some((state, known)) => {
                let longest = self.states[state].longest() + 1;
                match self.states[known].longest() == longest {
                    true => known,
                    false => self.split(known, longest, (byte, state)),
                }
            }
        };
        self.states[new].shorter = Some(shorter as u32);
        self.after.push(new);
    }

    /// Parts of a state, up to the `longest`, end at one more place than its others, to which those from `from` on lead by this byte.
    fn split(&mut self, state: usize, longest: usize, (byte, from): (u8, usize)) -> usize {
        let split = self.states.len();
        let State { next, others, .. } = &self.states[state];
        let (next, others) = (*next, others.clone());
        let shorter = self.states[state].shorter;
        self.states.push(State {
            next,
            others,
            ..State::new(longest, shorter)
        });
        self.states[state].shorter = Some(split as u32);
        let mut from = Some(from);
        while let Some(at) = from.filter(|at| self.states[*at].next(byte) == Some(state)) {
            self.states[at].lead(byte, split);
            from = self.states[at].shorter();
        }
        split
    }

    /// Finds the parts of `whole` in the text: all of it, or its beginning where a mark says that the rest was left out.
    pub(super) fn find(&self, whole: impl Iterator<Item = u8>, mut take: impl FnMut(Part)) {
        let mut part = Part::default();
        for byte in whole {
            let Some(longer) = self.longer(part, byte) else {
                return;
            };
            part = longer;
            if part.length >= SHORTEST {
                let cut = self.left_out.iter().filter_map(|sign| {
                    let mut bytes = sign.iter().copied();
                    bytes.try_fold(part, |part, byte| self.longer(part, byte))
                });
                cut.for_each(&mut take);
            }
        }
        take(part);
    }

    fn longer(&self, part: Part, byte: u8) -> Option<Part> {
        let state = self.states[part.state].next(byte)?;
        let length = part.length + 1;
        Some(Part { state, length })
    }

    /// How much of the beginning of something stands at the end of the text.
    pub(super) fn begun_at_end(&self, whole: impl Iterator<Item = u8>) -> usize {
        let (mut state, mut begun) = (0, 0);
        for (at, byte) in whole.enumerate() {
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
        // A part that ends somewhere in a shorter form does so in a longer one, too.
        for state in self.by_length() {
            if let Some(shorter) = self.states[state].shorter() {
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
    pub(super) fn without_those_in(
        &self,
        parts: &mut HashSet<Part>,
        others: impl Iterator<Item = impl Iterator<Item = u8>>,
    ) {
        // Of each state the longest that was seen.
        let mut seen = vec![0; self.states.len()];
        for other in others {
            let (mut state, mut length) = (0, 0);
            for byte in other {
                loop {
                    if let Some(next) = self.states[state].next(byte) {
                        (state, length) = (next, length + 1);
                        break;
                    }
                    let Some(shorter) = self.states[state].shorter() else {
                        length = 0;
                        break;
                    };
                    (state, length) = (shorter, self.states[shorter].longest());
                }
                seen[state] = length.max(seen[state]);
            }
        }
        for state in self.by_length().into_iter().rev() {
            if let (Some(shorter), true) = (self.states[state].shorter(), seen[state] > 0) {
                seen[shorter] = self.states[shorter].longest();
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

    fn find(parts: &Parts, text: &str) -> HashSet<Part> {
        let mut found = HashSet::new();
        parts.find(text.bytes(), |part| {
            found.insert(part);
        });
        found
    }

    #[test]
    fn every_occurrence_of_a_part_is_found() {
        for text in texts() {
            let parts = Parts::of(text.as_bytes());
            for other in ["a", "ab", "aba", "abcab", "aaaa", "ca", "bbbbb", "cc"] {
                let found = find(&parts, other);
                assert_eq!(!found.is_empty(), text.contains(other), "{other} in {text}");
                let mut at = vec![false; text.len()];
                for begin in 0..text.len() {
                    if text[begin..].starts_with(other) {
                        at[begin..begin + other.len()].fill(true);
                    }
                }
                let places = parts.places(&found);
                let mut reported = vec![false; text.len()];
                places.iter().for_each(|(a, b)| reported[*a..*b].fill(true));
                assert_eq!(reported, at, "{other} in {text}");
                let begun = (0..=other.len()).rev();
                let begun = begun.into_iter().find(|n| text.ends_with(&other[..*n]));
                let found_begun = parts.begun_at_end(other.bytes());
                assert_eq!(Some(found_begun), begun, "{other} at {text}");
                let mut unknown = found.clone();
                let known = ["cabbage", "aab"];
                parts.without_those_in(&mut unknown, known.iter().map(|text| text.bytes()));
                let is_known = known.iter().any(|text| text.contains(other));
                assert_eq!(unknown.is_empty(), found.is_empty() || is_known, "{other}");
            }
        }
    }

    #[test]
    fn overlapping_matches_are_one_place_and_adjacent_ones_two() {
        let parts = Parts::of(b"-one-two-three-");
        let places = |texts: &[&str]| {
            let found = texts.iter().flat_map(|text| find(&parts, text));
            parts.places(&found.collect())
        };
        assert_eq!(places(&["one-t", "two-", "three"]), [(1, 9), (9, 14)]);
        assert_eq!(places(&["w", "two-three", "o"]), [(1, 2), (5, 14)]);
        assert_eq!(places(&["four"]), []);
    }

    #[test]
    fn the_beginning_of_a_secret_is_found_where_the_rest_is_left_out() {
        for cut in LEFT_OUT {
            let text = format!("`hunter2{cut}` and hunter2 and hunt...");
            let parts = Parts::of(text.as_bytes());
            let found = find(&parts, "hunter2-canary");
            let end = "`hunter2".len() + cut.len();
            assert_eq!(parts.places(&found), [(1, end)], "{cut}");
        }
    }
}
