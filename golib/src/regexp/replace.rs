//! Replacing matches, with Go's `$name` templates.

use std::ops::Range;

use regex::bytes::CaptureLocations;

use super::{Meter, Regexp, Searches, Subject, find};
use crate::unicode::{is_digit, is_letter};
use crate::utf8;

/// Bytes of a template that are looked through in a step, and named groups that one of its names is looked for among.
const TEMPLATE_A_STEP: usize = 4;
const NAMES_A_STEP: usize = 8;

/// What comes in the place of a match.
#[derive(Clone, Copy)]
enum Replacement<'a> {
    Text(&'a [u8]),
    Template(&'a [u8]),
}

impl Regexp {
    /// Replaces each match by the template, in which `$1`, `${1}` and `$name` stand for groups
    /// (longest name wins: `$1x` is the group named `1x`) and `$$` for a dollar sign.
    /// Nothing when the result would have more than `max_bytes`.
    ///
    /// ```
    /// use golib::regexp::{Regexp, Steps};
    ///
    /// let pair = Regexp::compile(r"(?P<key>\w+)=(\w+)")?;
    /// let replaced = pair.replace_all(b"a=1 b=2", b"$2:${key}", 100, &mut Steps::new(1_000));
    /// assert_eq!(replaced.unwrap().unwrap(), b"1:a 2:b");
    /// # Ok::<(), golib::regexp::Error>(())
    /// ```
    ///
    /// # Errors
    /// The meter's.
    pub fn replace_all<M: Meter>(
        &self,
        text: &[u8],
        template: &[u8],
        max_bytes: usize,
        meter: &mut M,
    ) -> Result<Option<Vec<u8>>, M::Error> {
        let by = match template.contains(&b'$') {
            true => Replacement::Template(template),
            false => Replacement::Text(template),
        };
        self.replace(text, by, max_bytes, meter)
    }

    /// Replaces each match by the text as it is; nothing when the result would have more than `max_bytes`.
    ///
    /// # Errors
    /// The meter's.
    pub fn replace_all_literal<M: Meter>(
        &self,
        text: &[u8],
        replacement: &[u8],
        max_bytes: usize,
        meter: &mut M,
    ) -> Result<Option<Vec<u8>>, M::Error> {
        self.replace(text, Replacement::Text(replacement), max_bytes, meter)
    }

    fn replace<M: Meter>(
        &self,
        text: &[u8],
        by: Replacement<'_>,
        max_bytes: usize,
        meter: &mut M,
    ) -> Result<Option<Vec<u8>>, M::Error> {
        let subject = Subject::new(text);
        let mut searches = Searches::begin(self, &subject, meter)?;
        let mut groups = self.regex.capture_locations();
        let mut out = Vec::with_capacity(text.len());
        let (mut last_end, mut position, mut copied) = (0, 0, 0);
        while position <= subject.text.len() {
            let found = match by {
                Replacement::Text(_) => searches.search(position, find)?,
                Replacement::Template(_) => searches.search(position, |regex, text, at| {
                    Some(regex.captures_read_at(&mut groups, text, at)?.range())
                })?,
            };
            let Some(found) = found else { break };
            let original: Range<usize> = subject.original(&found);
            out.extend_from_slice(&text[copied..original.start]);
            // An empty match directly after a match is not replaced a second time.
            if found.end > last_end || found.start == 0 {
                match by {
                    Replacement::Text(by) => out.extend_from_slice(by),
                    Replacement::Template(template) => {
                        // Its groups may all be empty, and nothing comes out of it.
                        let names = 1 + self.names.len() / NAMES_A_STEP;
                        searches.spend((template.len() / TEMPLATE_A_STEP * names) as u64)?;
                        self.expand(template, (text, max_bytes), &subject, &groups, &mut out);
                    }
                }
            }
            if out.len() > max_bytes {
                return Ok(None);
            }
            last_end = found.end;
            copied = original.end;
            position = found.end.max(position + subject.width_at(position));
        }
        out.extend_from_slice(&text[copied..]);
        Ok((out.len() <= max_bytes).then_some(out))
    }

    fn expand(
        &self,
        template: &[u8],
        (text, max_bytes): (&[u8], usize),
        subject: &Subject<'_>,
        groups: &CaptureLocations,
        out: &mut Vec<u8>,
    ) {
        let mut rest = template;
        while let Some(dollar) = rest.iter().position(|&b| b == b'$')
            && out.len() <= max_bytes
        {
            out.extend_from_slice(&rest[..dollar]);
            rest = &rest[dollar + 1..];
            if let Some(after) = rest.strip_prefix(b"$") {
                out.push(b'$');
                rest = after;
                continue;
            }
            let Some((name, after)) = group_name(rest) else {
                out.push(b'$');
                continue;
            };
            rest = after;
            let group = match group_number(name) {
                Some(number) => groups.get(number),
                None => (self.names.iter().enumerate())
                    .filter(|(_, n)| n.as_ref().is_some_and(|n| n.as_bytes() == name))
                    .find_map(|(number, _)| groups.get(number)),
            };
            if let Some((start, end)) = group {
                out.extend_from_slice(&text[subject.original(&(start..end))]);
            }
        }
        out.extend_from_slice(rest);
    }
}

/// The name after a dollar sign, with or without braces, and what follows it.
fn group_name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (inner, braced) = match text.strip_prefix(b"{") {
        Some(inner) => (inner, true),
        None => (text, false),
    };
    let mut length = 0;
    while let Some((c, width)) = utf8::decode_rune(&inner[length..])
        && (c == '_' || is_letter(c) || is_digit(c))
    {
        length += width;
    }
    if length == 0 {
        return None;
    }
    let (name, after) = inner.split_at(length);
    match braced {
        true => Some((name, after.strip_prefix(b"}")?)),
        false => Some((name, after)),
    }
}

/// A name of digits without a leading zero is a group's number.
fn group_number(name: &[u8]) -> Option<usize> {
    if name.len() > 1 && name[0] == b'0' || !name.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = std::str::from_utf8(name).ok()?;
    digits
        .parse()
        .ok()
        .filter(|&number: &usize| number < 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regexp::{Steps, TooSlow};

    fn replace(pattern: &str, text: &str, template: &str) -> String {
        let regexp = Regexp::compile(pattern).expect(pattern);
        let mut steps = Steps::new(10_000);
        let replaced = regexp.replace_all(text.as_bytes(), template.as_bytes(), 100, &mut steps);
        String::from_utf8(replaced.expect("quick").expect("a short text")).expect("UTF-8")
    }

    #[test]
    fn templates_name_groups_greedily() {
        assert_eq!(replace("a(x*)b", "-ab-axxb-", "${1}W"), "-W-xxW-");
        assert_eq!(replace("a(x*)b", "-ab-axxb-", "$1W"), "---");
        assert_eq!(replace("(?P<first>a)", "a", "$first$$$"), "a$$");
        assert_eq!(replace("(?P<1a>x)", "x", "<$1a>"), "<x>");
        assert_eq!(replace("a", "a", "${1"), "${1");
        assert_eq!(replace("(a)|b", "ab", "[$1]"), "[a][]");
    }

    #[test]
    fn a_replacement_that_expands_to_nothing_costs_steps_each_time() {
        let regexp = Regexp::compile("a").expect("valid");
        let (text, template) = ("a".repeat(10_000), "$z".repeat(1_000));
        let (text, template) = (text.as_bytes(), template.as_bytes());
        let replaced = regexp.replace_all(text, template, 100, &mut Steps::new(1_000_000));
        assert_eq!(replaced, Err(TooSlow));
    }

    #[test]
    fn an_empty_match_after_a_match_is_left_alone() {
        assert_eq!(replace("a*", "baac", "-"), "-b-c-");
        assert_eq!(replace("", "é!", "."), ".é.!.");
    }
}
