//! Matching (`match`). Lengths count characters and places count bytes, as in the library, which mixes them up where
//! characters are wider than a byte; a search may therefore begin inside of one.

use crate::utf8::decode_rune;

/// What a pattern, or a part of it, became.
#[derive(Debug, Clone)]
pub(super) enum Matcher {
    Nothing,
    Super,
    Any(Vec<char>),
    Single(Vec<char>),
    List {
        chars: Vec<char>,
        not: bool,
    },
    Range {
        low: char,
        high: char,
        not: bool,
    },
    Text(String),
    Prefix(String),
    Suffix(String),
    PrefixSuffix(String, String),
    PrefixAny(String, Vec<char>),
    SuffixAny(String, Vec<char>),
    Contains {
        needle: String,
        not: bool,
    },
    /// At least so many characters.
    Min(usize),
    /// At most so many.
    Max(usize),
    AnyOf(Vec<Matcher>),
    EveryOf(Vec<Matcher>),
    /// Matchers of fixed length, one after the other.
    Row {
        length: usize,
        matchers: Vec<Matcher>,
    },
    /// What is left of, at, and right of a place that is searched for.
    Tree {
        value: Box<Matcher>,
        left: Option<Box<Matcher>>,
        right: Option<Box<Matcher>>,
    },
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The library panics here.
    Panic,
    /// It takes longer than it may.
    Endless,
}

/// Where a match begins, and how long it may be.
type Found = Option<(usize, Vec<usize>)>;

/// Work that is left.
pub(super) struct Fuel(pub(super) usize);

impl Fuel {
    fn burn(&mut self, amount: usize) -> Result<(), Failure> {
        self.0 = self.0.checked_sub(amount + 1).ok_or(Failure::Endless)?;
        Ok(())
    }
}

impl Matcher {
    pub(super) fn tree(value: Self, left: Option<Self>, right: Option<Self>) -> Self {
        Self::Tree {
            value: Box::new(value),
            left: left.map(Box::new),
            right: right.map(Box::new),
        }
    }

    /// How many characters it matches, where that is always the same.
    pub(super) fn length(&self) -> Option<usize> {
        match self {
            Self::Nothing => Some(0),
            Self::Single(_) | Self::List { .. } | Self::Range { .. } => Some(1),
            Self::Text(text) => Some(text.chars().count()),
            Self::Row { length, .. } => Some(*length),
            Self::AnyOf(matchers) => {
                let mut lengths = matchers.iter().map(Self::length);
                // One without a length before those that have one is overlooked.
                let mut length = None;
                for own in &mut lengths {
                    match length {
                        None => length = own,
                        Some(_) if own == length => {}
                        Some(_) => return None,
                    }
                }
                length
            }
            Self::EveryOf(matchers) if matchers.is_empty() => Some(0),
            Self::Tree { value, left, right } => {
                let side = |side: &Option<Box<Self>>| match side {
                    None => Some(0),
                    Some(side) => side.length(),
                };
                Some(value.length()? + side(left)? + side(right)?)
            }
            _ => None,
        }
    }

    pub(super) fn matches(&self, s: &[u8], fuel: &mut Fuel) -> Result<bool, Failure> {
        fuel.burn(s.len() / 16)?;
        Ok(match self {
            Self::Nothing => s.is_empty(),
            Self::Super => true,
            Self::Any(separators) => find_any(s, separators).is_none(),
            Self::Single(separators) => only(s).is_some_and(|c| !separators.contains(&c)),
            Self::List { chars, not } => only(s).is_some_and(|c| chars.contains(&c) != *not),
            Self::Range { low, high, not } => {
                only(s).is_some_and(|c| (*low..=*high).contains(&c) != *not)
            }
            Self::Text(text) => text.as_bytes() == s,
            Self::Prefix(prefix) => s.starts_with(prefix.as_bytes()),
            Self::Suffix(suffix) => s.ends_with(suffix.as_bytes()),
            Self::PrefixSuffix(prefix, suffix) => {
                s.starts_with(prefix.as_bytes()) && s.ends_with(suffix.as_bytes())
            }
            Self::PrefixAny(prefix, separators) => s
                .strip_prefix(prefix.as_bytes())
                .is_some_and(|rest| find_any(rest, separators).is_none()),
            Self::SuffixAny(suffix, separators) => s
                .strip_suffix(suffix.as_bytes())
                .is_some_and(|rest| find_any(rest, separators).is_none()),
            Self::Contains { needle, not } => find(s, needle).is_some() != *not,
            Self::Min(least) => runes(s).nth(least.saturating_sub(1)).is_some(),
            Self::Max(most) => runes(s).nth(*most).is_none(),
            Self::AnyOf(matchers) => {
                for matcher in matchers {
                    if matcher.matches(s, fuel)? {
                        return Ok(true);
                    }
                }
                false
            }
            Self::EveryOf(matchers) => {
                for matcher in matchers {
                    if !matcher.matches(s, fuel)? {
                        return Ok(false);
                    }
                }
                true
            }
            Self::Row { length, matchers } => {
                runes(s).count() == *length && row_matches(matchers, s, fuel)?
            }
            Self::Tree { value, left, right } => {
                tree_matches(value, left.as_deref(), right.as_deref(), s, fuel)?
            }
        })
    }

    /// The first place where it matches.
    fn find(&self, s: &[u8], fuel: &mut Fuel) -> Result<Found, Failure> {
        fuel.burn(s.len() / 4)?;
        let first_rune = |expected: &dyn Fn(char) -> bool| {
            let (at, c, _) = runes(s).find(|&(_, c, _)| expected(c))?;
            Some((at, vec![c.len_utf8()]))
        };
        Ok(match self {
            Self::Nothing => Some((0, vec![0])),
            Self::Super => Some((0, starts(s))),
            Self::Any(separators) => match find_any(s, separators) {
                Some(0) => Some((0, vec![0])),
                Some(end) => Some((0, starts(&s[..end]))),
                None => Some((0, starts(s))),
            },
            Self::Single(separators) => first_rune(&|c| !separators.contains(&c)),
            Self::List { chars, not } => first_rune(&|c| chars.contains(&c) != *not),
            Self::Range { low, high, not } => first_rune(&|c| (*low..=*high).contains(&c) != *not),
            Self::Text(text) => find(s, text).map(|at| (at, vec![text.len()])),
            Self::Prefix(prefix) => {
                find(s, prefix).map(|at| (at, ends(&s[at + prefix.len()..], prefix.len())))
            }
            Self::PrefixAny(prefix, separators) => find(s, prefix).map(|at| {
                let rest = &s[at + prefix.len()..];
                let end = find_any(rest, separators).unwrap_or(rest.len());
                (at, ends(&rest[..end], prefix.len()))
            }),
            Self::Suffix(suffix) => find(s, suffix).map(|at| (0, vec![at + suffix.len()])),
            Self::SuffixAny(suffix, separators) => find(s, suffix).map(|at| {
                let start = find_last_any(&s[..at], separators).map_or(0, |before| before + 1);
                (start, vec![at + suffix.len() - start])
            }),
            Self::PrefixSuffix(prefix, suffix) => find(s, prefix).and_then(|at| {
                if suffix.is_empty() {
                    return Some((at, vec![s.len() - at]));
                }
                let mut lengths = Vec::new();
                let mut rest = &s[at..];
                while let Some(last) = find_last(rest, suffix) {
                    lengths.push(last + suffix.len());
                    rest = &rest[..last];
                }
                lengths.reverse();
                (!lengths.is_empty()).then_some((at, lengths))
            }),
            Self::Contains { needle, not } => match (find(s, needle), not) {
                (None, false) => None,
                (Some(at), false) => {
                    let offset = at + needle.len();
                    let lengths = starts(&s[offset..]).into_iter();
                    Some((0, lengths.map(|length| offset + length).collect()))
                }
                (at, true) => Some((0, starts(&s[..at.unwrap_or(s.len())]))),
            },
            Self::Min(least) => {
                if s.len() < *least {
                    return Ok(None);
                }
                let lengths: Vec<usize> = runes(s)
                    .skip(least.saturating_sub(1))
                    .map(|(at, c, _)| at + c.len_utf8())
                    .collect();
                (!lengths.is_empty()).then_some((0, lengths))
            }
            Self::Max(most) => {
                let lengths = runes(s).take(*most).map(|(at, c, _)| at + c.len_utf8());
                Some((0, std::iter::once(0).chain(lengths).collect()))
            }
            Self::AnyOf(matchers) => any_of(matchers, s, fuel)?,
            Self::EveryOf(matchers) => every_of(matchers, s, fuel)?,
            Self::Row { length, matchers } => {
                for (at, _, _) in runes(s) {
                    if s.len() - at < *length {
                        break;
                    }
                    if row_matches(matchers, &s[at..], fuel)? {
                        return Ok(Some((at, vec![*length])));
                    }
                }
                None
            }
            // The library searches for no tree.
            Self::Tree { .. } => None,
        })
    }
}

fn any_of(matchers: &[Matcher], s: &[u8], fuel: &mut Fuel) -> Result<Found, Failure> {
    let mut found: Found = None;
    for matcher in matchers {
        let Some((at, lengths)) = matcher.find(s, fuel)? else {
            continue;
        };
        match &mut found {
            Some((first, _)) if at > *first => {}
            Some((first, known)) if at == *first => {
                known.extend(lengths);
                known.sort_unstable();
                known.dedup();
            }
            _ => found = Some((at, lengths)),
        }
    }
    Ok(found)
}

fn every_of(matchers: &[Matcher], s: &[u8], fuel: &mut Fuel) -> Result<Found, Failure> {
    let (mut index, mut offset) = (0_usize, 0_usize);
    let mut current: Vec<usize> = Vec::new();
    let mut rest = s;
    for (number, matcher) in matchers.iter().enumerate() {
        let Some((at, lengths)) = matcher.find(rest, fuel)? else {
            return Ok(None);
        };
        if number == 0 {
            current = lengths;
        } else {
            fuel.burn(current.len() * lengths.len() / 16)?;
            let place = at + offset;
            current.retain(|length| {
                (length + index)
                    .checked_sub(place)
                    .is_some_and(|length| lengths.contains(&length))
            });
            if current.is_empty() {
                return Ok(None);
            }
            // Kept as lengths from the new place.
            let before = index;
            for length in &mut current {
                *length = (*length + before).saturating_sub(place);
            }
        }
        index = at + offset;
        rest = s.get(index..).ok_or(Failure::Panic)?;
        offset += at;
    }
    Ok(Some((index, current)))
}

fn row_matches(matchers: &[Matcher], s: &[u8], fuel: &mut Fuel) -> Result<bool, Failure> {
    let mut at = 0;
    for matcher in matchers {
        let length = matcher.length().unwrap_or(0);
        let rest = &s[at..];
        // Where the last of so many characters begins; as if it were one byte wide.
        let (mut last, mut count) = (0, 0);
        for (start, _, _) in runes(rest) {
            last = start;
            count += 1;
            if count == length {
                break;
            }
        }
        if count < length {
            return Ok(false);
        }
        let part = rest.get(..last + 1).ok_or(Failure::Panic)?;
        if !matcher.matches(part, fuel)? {
            return Ok(false);
        }
        at += last + 1;
    }
    Ok(true)
}

fn tree_matches(
    value: &Matcher,
    left: Option<&Matcher>,
    right: Option<&Matcher>,
    s: &[u8],
    fuel: &mut Fuel,
) -> Result<bool, Failure> {
    let length = |side: Option<&Matcher>| side.map_or(Some(0), Matcher::length);
    let (left_length, right_length) = (length(left), length(right));
    if let (Some(left), Some(value), Some(right)) = (left_length, value.length(), right_length)
        && left + value + right > s.len()
    {
        return Ok(false);
    }
    let mut offset = left_length.unwrap_or(0);
    let limit = match right_length {
        Some(right) => s.len().saturating_sub(right),
        None => s.len(),
    };
    let fits = |side: Option<&Matcher>, part: &[u8], fuel: &mut Fuel| match side {
        Some(side) => side.matches(part, fuel),
        None => Ok(part.is_empty()),
    };
    while offset < limit {
        let Some((at, lengths)) = value.find(&s[offset..limit], fuel)? else {
            return Ok(false);
        };
        let start = offset + at;
        if fits(left, &s[..start], fuel)? {
            for length in lengths.iter().rev() {
                let rest = s.get(start + length..).unwrap_or_default();
                if fits(right, rest, fuel)? {
                    return Ok(true);
                }
            }
        }
        offset = start + decode_rune(&s[start..]).map_or(0, |(_, width)| width);
        if offset == start {
            break;
        }
    }
    Ok(false)
}

/// The only character; U+FFFD where there is none at all.
fn only(s: &[u8]) -> Option<char> {
    match decode_rune(s) {
        None => Some(char::REPLACEMENT_CHARACTER),
        Some((c, width)) => (s.len() <= width).then_some(c),
    }
}

/// Characters with their places and widths.
fn runes(s: &[u8]) -> impl Iterator<Item = (usize, char, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (c, width) = decode_rune(&s[at..])?;
        let start = at;
        at += width;
        Some((start, c, width))
    })
}

/// Where each character begins, and the end.
fn starts(s: &[u8]) -> Vec<usize> {
    let starts = runes(s).map(|(at, _, _)| at);
    starts.chain([s.len()]).collect()
}

/// Lengths of a head of so many bytes with nothing behind it, with one character, and so on.
fn ends(s: &[u8], head: usize) -> Vec<usize> {
    let ends = runes(s).map(|(at, c, _)| head + at + c.len_utf8());
    std::iter::once(head).chain(ends).collect()
}

fn find(s: &[u8], needle: &str) -> Option<usize> {
    if needle.is_empty() {
        return Some(0);
    }
    s.windows(needle.len())
        .position(|part| part == needle.as_bytes())
}

fn find_last(s: &[u8], needle: &str) -> Option<usize> {
    s.windows(needle.len())
        .rposition(|part| part == needle.as_bytes())
}

/// Where the first of the characters that is there at all is.
fn find_any(s: &[u8], chars: &[char]) -> Option<usize> {
    let mut buffer = [0; 4];
    chars
        .iter()
        .find_map(|c| find(s, c.encode_utf8(&mut buffer)))
}

fn find_last_any(s: &[u8], chars: &[char]) -> Option<usize> {
    let mut buffer = [0; 4];
    chars
        .iter()
        .find_map(|c| find_last(s, c.encode_utf8(&mut buffer)))
}
