//! What matching takes, and who counts it. A search goes through a text once, but one that ends early may have looked far beyond
//! its match, and the next one does so again: `.*[^A-Z]|[A-Z]` looks through all of `AAAA…` for each of its letters.

use std::ops::Range;

use regex::bytes::Regex;
use regex_automata::Input;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;

use super::{MAX_COMPILED_BYTES, MAX_NESTING, Regexp, Subject};

/// Counts what matching takes.
pub trait Meter {
    /// Why matching ends.
    type Error;

    /// Counts work that is about to be done: steps of some fifty nanoseconds.
    ///
    /// # Errors
    /// There are to be no more.
    fn spend(&mut self, steps: u64) -> Result<(), Self::Error>;
}

/// So many steps, and no more.
///
/// ```
/// use golib::regexp::{Regexp, Steps};
///
/// let letters = Regexp::compile(".*[^A-Z]|[A-Z]")?;
/// let text = "A".repeat(20_000);
/// assert!(letters.is_match(text.as_bytes(), &mut Steps::new(100_000)).is_ok());
/// assert!(letters.find_all(text.as_bytes(), -1, &mut Steps::new(100_000)).is_err());
/// # Ok::<(), golib::regexp::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Steps {
    left: u64,
}

impl Steps {
    /// At most so many.
    pub fn new(steps: u64) -> Self {
        Self { left: steps }
    }
}

impl Meter for Steps {
    type Error = TooSlow;

    fn spend(&mut self, steps: u64) -> Result<(), TooSlow> {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or(TooSlow)
    }
}

/// Matching would take longer than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the regular expression takes too long")]
pub struct TooSlow;

/// Bytes behind matches that are taken as looked at, in one text. Beyond them each search is followed.
const ASSUMED_BYTES: usize = 64 << 10;
/// Bytes that an automaton reads in a step.
const BYTES_A_STEP: u64 = 16;
/// Units of effort that a byte costs a step for, at worst: without room for its states the pattern itself is gone through for each byte.
const EFFORT_A_STEP: u64 = 64;

/// Searches in one text, each of which is paid for.
pub(super) struct Searches<'a, M> {
    regexp: &'a Regexp,
    text: &'a str,
    meter: &'a mut M,
    /// Bytes behind matches so far.
    behind: usize,
    /// What follows searches, once it is needed; nothing where that cannot be done.
    follower: Option<Option<Follower>>,
}

impl<'a, M: Meter> Searches<'a, M> {
    /// Pays for going through the text once.
    pub(super) fn begin(
        regexp: &'a Regexp,
        subject: &'a Subject<'_>,
        meter: &'a mut M,
    ) -> Result<Self, M::Error> {
        meter.spend(regexp.steps(subject.text.len()))?;
        Ok(Self {
            regexp,
            text: &subject.text,
            meter,
            behind: 0,
            follower: None,
        })
    }

    /// Pays for something else.
    pub(super) fn spend(&mut self, steps: u64) -> Result<(), M::Error> {
        self.meter.spend(steps)
    }

    /// The leftmost match at or after `start`, by `find`.
    pub(super) fn search(
        &mut self,
        start: usize,
        mut find: impl FnMut(&Regex, &[u8], usize) -> Option<Range<usize>>,
    ) -> Result<Option<Range<usize>>, M::Error> {
        let mut start = start;
        loop {
            self.meter.spend(1)?;
            let Some(found) = find(&self.regexp.regex, self.text.as_bytes(), start) else {
                return Ok(None);
            };
            let behind = self.looked_at_behind(start, found.end);
            self.meter.spend(self.regexp.steps(behind))?;
            // `\B` also holds inside of a character, where Go, which steps by rune, never looks.
            if self.text.is_char_boundary(found.start) {
                return Ok(Some(found));
            }
            start = self.text.ceil_char_boundary(found.start);
        }
    }

    /// How many bytes behind its match a search looked at. In a short text that is the rest of it, at worst.
    fn looked_at_behind(&mut self, start: usize, end: usize) -> usize {
        let rest = self.text.len() - end;
        self.behind = self.behind.saturating_add(rest);
        if self.behind <= ASSUMED_BYTES {
            return rest;
        }
        let regexp = self.regexp;
        let follower = self.follower.get_or_insert_with(|| Follower::new(regexp));
        let looked = follower
            .as_mut()
            .and_then(|follower| follower.end_of_search(self.text.as_bytes(), start));
        match looked {
            Some(looked) => looked.saturating_sub(end),
            None => {
                *follower = None;
                rest
            }
        }
    }
}

impl Regexp {
    /// What it takes to go through so many bytes, at worst.
    fn steps(&self, bytes: usize) -> u64 {
        let bytes = bytes as u64;
        bytes / BYTES_A_STEP + bytes.saturating_mul(self.effort) / EFFORT_A_STEP
    }
}

/// Goes through a text as a search does, to see where it ends.
struct Follower {
    automaton: DFA,
    cache: Cache,
}

impl Follower {
    fn new(regexp: &Regexp) -> Option<Self> {
        // With these, it gives up where the search itself does.
        let config = DFA::config()
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(3))
            .minimum_bytes_per_state(Some(10));
        let syntax = syntax::Config::new().utf8(false).nest_limit(MAX_NESTING);
        let nfa = thompson::Config::new()
            .utf8(false)
            .which_captures(thompson::WhichCaptures::None)
            .nfa_size_limit(Some(MAX_COMPILED_BYTES));
        let automaton = DFA::builder()
            .configure(config)
            .syntax(syntax)
            .thompson(nfa)
            .build(regexp.pattern.as_deref()?)
            .ok()?;
        let cache = automaton.create_cache();
        Some(Self { automaton, cache })
    }

    fn end_of_search(&mut self, text: &[u8], start: usize) -> Option<usize> {
        let Self { automaton, cache } = self;
        let input = Input::new(text).span(start..text.len());
        cache.search_start(start);
        let mut state = automaton.start_state_forward(cache, &input).ok()?;
        for (at, &byte) in text.iter().enumerate().skip(start) {
            cache.search_update(at);
            state = automaton.next_state(cache, state, byte).ok()?;
            if state.is_dead() {
                return Some(at);
            }
            if state.is_quit() {
                return None;
            }
        }
        Some(text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps that all matches take.
    fn taken(pattern: &str, text: &str) -> u64 {
        let regexp = Regexp::compile(pattern).expect(pattern);
        let mut steps = Steps::new(u64::MAX);
        let found = regexp.find_all(text.as_bytes(), -1, &mut steps);
        assert!(!found.expect("unlimited").is_empty(), "{pattern}");
        u64::MAX - steps.left
    }

    #[test]
    fn looking_ahead_again_and_again_is_paid_for() {
        let usual = taken("[A-Z]", &"A".repeat(5_000));
        assert!(usual < 50_000, "{usual}");
        let (half, whole) = ("A".repeat(2_000), "A".repeat(4_000));
        for pattern in [".*[^A-Z]|[A-Z]", "(?:(?:A|B)*C)?A", r"(?s).*\d|."] {
            let (half, whole) = (taken(pattern, &half), taken(pattern, &whole));
            assert!(
                half > 300_000 && whole > 3 * half,
                "{pattern}: {half}, {whole}"
            );
        }
    }

    #[test]
    fn many_matches_of_usual_patterns_cost_what_the_text_does() {
        let text = "  key: value # comment\n".repeat(10_000);
        for pattern in [
            r"\s+",
            "(?m)^ *#.*$|#.*",
            r"\w+:\s*(.*)",
            "\n",
            "[^a-z]",
            r"\b",
        ] {
            let steps = taken(pattern, &text);
            assert!(steps < 1_500_000, "{pattern}: {steps}");
        }
    }

    #[test]
    fn a_search_costs_steps_by_text_and_pattern() {
        let pattern = format!("[a-m]{}[0-9]", "[a-z]{999}".repeat(8));
        let text = "a".repeat(20_000);
        let regexp = Regexp::compile(pattern).expect("valid");
        let matched = regexp.is_match(text.as_bytes(), &mut Steps::new(20_000_000));
        assert_eq!(matched, Err(TooSlow));
        let short = regexp.is_match(b"abc", &mut Steps::new(10_000));
        assert_eq!(short, Ok(false));
    }
}
