//! Replacing matches, with Go's `$name` templates.

use std::ops::Range;

use regex::bytes::CaptureLocations;

use super::{Regexp, Subject};
use crate::unicode::{is_digit, is_letter};
use crate::utf8;

impl Regexp {
    /// Replaces each match by the template, in which `$1`, `${1}` and `$name` stand for groups
    /// (longest name wins: `$1x` is the group named `1x`) and `$$` for a dollar sign.
    /// Nothing when the result would have more than `max_bytes`.
    ///
    /// ```
    /// use golib::regexp::Regexp;
    ///
    /// let pair = Regexp::compile(r"(?P<key>\w+)=(\w+)")?;
    /// assert_eq!(pair.replace_all(b"a=1 b=2", b"$2:${key}", 100).unwrap(), b"1:a 2:b");
    /// # Ok::<(), golib::regexp::Error>(())
    /// ```
    pub fn replace_all(&self, text: &[u8], template: &[u8], max_bytes: usize) -> Option<Vec<u8>> {
        self.replace_with(text, max_bytes, |subject, groups, out| {
            self.expand(template, (text, max_bytes), subject, groups, out)
        })
    }

    /// Replaces each match by the text as it is; nothing when the result would have more than `max_bytes`.
    pub fn replace_all_literal(
        &self,
        text: &[u8],
        replacement: &[u8],
        max_bytes: usize,
    ) -> Option<Vec<u8>> {
        self.replace_with(text, max_bytes, |_, _, out| {
            out.extend_from_slice(replacement);
        })
    }

    fn replace_with(
        &self,
        text: &[u8],
        max_bytes: usize,
        mut replacement: impl FnMut(&Subject<'_>, &CaptureLocations, &mut Vec<u8>),
    ) -> Option<Vec<u8>> {
        let subject = Subject::new(text);
        let mut groups = self.regex.capture_locations();
        let mut out = Vec::with_capacity(text.len());
        let (mut last_end, mut position, mut copied) = (0, 0, 0);
        while position <= subject.text.len() {
            let Some(found) = self.next_captures(&subject, position, &mut groups) else {
                break;
            };
            let original: Range<usize> = subject.original(&found);
            out.extend_from_slice(&text[copied..original.start]);
            // An empty match directly after a match is not replaced a second time.
            if found.end > last_end || found.start == 0 {
                replacement(&subject, &groups, &mut out);
            }
            if out.len() > max_bytes {
                return None;
            }
            last_end = found.end;
            copied = original.end;
            position = found.end.max(position + subject.width_at(position));
        }
        out.extend_from_slice(&text[copied..]);
        (out.len() <= max_bytes).then_some(out)
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

    fn replace(pattern: &str, text: &str, template: &str) -> String {
        let regexp = Regexp::compile(pattern).expect(pattern);
        let replaced = regexp.replace_all(text.as_bytes(), template.as_bytes(), 100);
        String::from_utf8(replaced.expect("a short text")).expect("UTF-8")
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
    fn an_empty_match_after_a_match_is_left_alone() {
        assert_eq!(replace("a*", "baac", "-"), "-b-c-");
        assert_eq!(replace("", "é!", "."), ".é.!.");
    }
}
