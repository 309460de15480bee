//! The quotes in a text, found by their quote signs: they may be anything, where nobody knows what is secret.

use objects::drift::MASK;

use crate::public::PublicText;

/// A text without what it quotes: a decoder names the value that it cannot use.
pub fn without_quotes(text: &str) -> PublicText {
    let (mut redacted, mut is_quoted, mut is_escaped) = (String::new(), false, false);
    for c in text.chars() {
        match c {
            '"' if !is_escaped => {
                redacted.push_str(if is_quoted { "" } else { MASK });
                is_quoted = !is_quoted;
            }
            _ if is_quoted => {}
            c => redacted.push(c),
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    PublicText::of_redacted(redacted)
}

/// The part of a text to withhold where it may quote unknown secrets: all from its first quote to its last. Where more came after it, it may end
/// within one, and where its first sign is no beginning it may begin within one: that side is withheld. Where signs do not pair nobody knows
/// which side that is; where they do, and the last is of another kind than the first, it may still end within one.
pub(super) fn quoted(text: &str, is_whole: bool) -> Option<(usize, usize)> {
    let before = |at: usize| text[..at].chars().next_back();
    let after = |at: usize| text[at + 1..].chars().next();
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let quotes = text.match_indices(['"', '`', '\'']).map(|(at, _)| at);
    let quotes = quotes.filter(|&at| {
        // In a word it is an apostrophe.
        text.as_bytes()[at] != b'\'' || !(is_word(before(at)) && is_word(after(at)))
    });
    let quotes: Vec<usize> = quotes.collect();
    let sign = |at: usize| text.as_bytes()[at];
    let is_each_even = [b'"', b'`', b'\''].into_iter().all(|kind| {
        let of_kind = quotes.iter().filter(|&&at| sign(at) == kind);
        of_kind.count().is_multiple_of(2)
    });
    let (&first, &last) = quotes.first().zip(quotes.last())?;
    let stands_before = text[..first].trim_end_matches('\\').chars().next_back();
    let begins = stands_before.is_none_or(|c| c.is_whitespace() || "([{<:,=".contains(c));
    let is_escaped = |at: usize| before(at) == Some('\\');
    let is_even = is_each_even && is_escaped(first) == is_escaped(last);
    let are_alike = sign(first) == sign(last);
    let begins = begins && (is_even && (are_alike || all_close(text, &quotes)) || !is_whole);
    let is_paired = is_even && are_alike && is_whole && !is_word(after(last));
    Some(match (begins, is_paired) {
        (true, true) => (first, last + 1),
        (true, false) => (first, text.len()),
        (false, _) => (0, text.len()),
    })
}

/// Whether every quote that begins in a text ends there, and none ends that did not begin. What stands within one is passed over.
fn all_close(text: &str, quotes: &[usize]) -> bool {
    let begins = |c: char| c.is_whitespace() || "([{<".contains(c);
    let mut open = None;
    for &at in quotes {
        let kind = text.as_bytes()[at];
        let may_open = text[..at].chars().next_back().is_none_or(begins);
        let precedes_word = text[at + 1..].starts_with(char::is_alphanumeric);
        open = match open {
            None if !may_open => return false,
            None => Some(kind),
            Some(begun) if begun == kind && !precedes_word && !may_open => None,
            Some(begun) => Some(begun),
        };
    }
    open.is_none()
}
