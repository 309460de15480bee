//! Sprig's functions from goutils and xstrings: letter case, wrapping, abbreviating, and names in snake, kebab and camel
//! case.

use golib::unicode::{
    is_digit, is_letter, is_lower, is_number, is_punctuation, is_title, is_upper, to_lower,
    to_title, to_upper,
};
use golib::utf8::{runes, split_first};

use super::functions::Functions;
use crate::error::Error;
use crate::state::State;
use crate::value::Str;

pub(super) fn add(f: &mut Functions) {
    f.add("upper", |s: Str| {
        change_case(
            s,
            u8::is_ascii_lowercase,
            <[u8]>::to_ascii_uppercase,
            to_upper,
        )
    });
    f.add("lower", |s: Str| {
        change_case(
            s,
            u8::is_ascii_uppercase,
            <[u8]>::to_ascii_lowercase,
            to_lower,
        )
    });
    f.add("title", |s: Str| title(&s));
    f.add("untitle", |s: Str| untitle(&s));
    f.add("swapcase", |s: Str| swapcase(&s));
    f.add("nospace", nospace);
    f.add("initials", |s: Str| initials(&s));
    f.add("abbrev", |width: i64, s: Str| {
        if width < 4 {
            s
        } else {
            Str::from(abbreviate(&s, 0, width))
        }
    });
    f.add("abbrevboth", |left: i64, right: i64, s: Str| {
        let is_too_short = right < 4 || left > 0 && right < 7;
        if is_too_short {
            s
        } else {
            Str::from(abbreviate(&s, left, right))
        }
    });
    f.add("wrap", |state: &mut State<'_>, width: i64, s: Str| {
        wrap(state, &s, width, b"\n", false)
    });
    f.add(
        "wrapWith",
        |state: &mut State<'_>, width: i64, separator: Str, s: Str| {
            let separator = if separator.is_empty() {
                b"\n"
            } else {
                &*separator
            };
            wrap(state, &s, width, separator, true)
        },
    );
    f.add("snakecase", |s: Str| lower_words(&s, '_'));
    f.add("kebabcase", |s: Str| lower_words(&s, '-'));
    f.add("camelcase", |s: Str| camelcase(&s));
}

/// `strings.ToUpper` and `strings.ToLower`: nothing to do and ASCII are the common cases.
fn change_case(
    text: Str,
    changes: fn(&u8) -> bool,
    ascii: fn(&[u8]) -> Vec<u8>,
    change: fn(char) -> char,
) -> Str {
    match (text.is_ascii(), text.iter().any(changes)) {
        (true, false) => text,
        (true, true) => Str::from(ascii(&text)),
        (false, _) => Str::from(map(&text, change)),
    }
}

/// `strings.Map`: rewrites each character. Invalid bytes become U+FFFD.
fn map(text: &[u8], mut change: impl FnMut(char) -> char) -> String {
    runes(text).map(|(c, _)| change(c)).collect()
}

/// `strings.Title`: the first letter of each word, where letters, digits and underscores make words.
fn title(text: &[u8]) -> String {
    let mut previous = ' ';
    map(text, |c| {
        let starts_word = match previous {
            c if c.is_ascii() => !c.is_ascii_alphanumeric() && c != '_',
            c if is_letter(c) || is_digit(c) => false,
            c => c.is_whitespace(),
        };
        previous = c;
        if starts_word { to_title(c) } else { c }
    })
}

/// Lower case for the first letter of each word between white space.
fn untitle(text: &[u8]) -> String {
    let mut starts_word = true;
    map(text, |c| {
        if c.is_whitespace() {
            starts_word = true;
            return c;
        }
        if std::mem::take(&mut starts_word) {
            to_lower(c)
        } else {
            c
        }
    })
}

fn swapcase(text: &[u8]) -> String {
    let mut after_space = true;
    map(text, |c| {
        if is_upper(c) || is_title(c) {
            after_space = false;
            to_lower(c)
        } else if is_lower(c) {
            if std::mem::take(&mut after_space) {
                to_title(c)
            } else {
                to_upper(c)
            }
        } else {
            after_space = c.is_whitespace();
            c
        }
    })
}

/// A byte read as if it were a character, as goutils does.
fn byte_is_space(byte: u8) -> bool {
    char::from(byte).is_whitespace()
}

/// Drops white space. goutils goes by bytes: where it drops anything, other bytes are taken for Latin-1.
fn nospace(text: Str) -> Str {
    if !text.iter().copied().any(byte_is_space) {
        return text;
    }
    let kept = text.iter().filter(|&&b| !byte_is_space(b));
    Str::from(kept.map(|&b| char::from(b)).collect::<String>())
}

/// The first byte of each word, taken for Latin-1.
fn initials(text: &[u8]) -> String {
    let mut after_gap = true;
    let mut out = String::new();
    for &byte in text {
        if byte_is_space(byte) {
            after_gap = true;
        } else if std::mem::take(&mut after_gap) {
            out.push(char::from(byte));
        }
    }
    out
}

/// goutils' `AbbreviateFull`, in bytes; `width` is at least 4.
fn abbreviate(text: &[u8], offset: i64, width: i64) -> Vec<u8> {
    let length = text.len() as i64;
    if length <= width {
        return text.to_vec();
    }
    // From here 4 <= width < length, so every index below is within the text.
    let mut offset = offset.min(length);
    // An offset far below zero overflows, in Go too.
    if length.wrapping_sub(offset) < width - 3 {
        offset = length - (width - 3);
    }
    if offset <= 4 {
        return [&text[..width as usize - 3], b"..."].concat();
    }
    if width < 7 {
        return Vec::new();
    }
    if offset + width - 3 < length {
        let inner = abbreviate(&text[offset as usize..], 0, width - 3);
        return [b"...", inner.as_slice()].concat();
    }
    [b"...", &text[(length - (width - 3)) as usize..]].concat()
}

/// goutils' `WrapCustom`, in bytes.
fn wrap(
    state: &mut State<'_>,
    text: &[u8],
    width: i64,
    separator: &[u8],
    cut_long_words: bool,
) -> Result<Vec<u8>, Error> {
    let width = usize::try_from(width.max(1)).unwrap_or(usize::MAX);
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while rest.len() > width {
        if rest[0] == b' ' {
            rest = &rest[1..];
            continue;
        }
        state.spend_bytes(separator.len() as u64 + 1)?;
        if let Some(space) = rest[..=width].iter().rposition(|&b| b == b' ') {
            out.extend_from_slice(&rest[..space]);
            out.extend_from_slice(separator);
            rest = &rest[space + 1..];
        } else if cut_long_words {
            out.extend_from_slice(&rest[..width]);
            out.extend_from_slice(separator);
            rest = &rest[width..];
        } else if let Some(space) = rest[width..].iter().position(|&b| b == b' ') {
            out.extend_from_slice(&rest[..width + space]);
            out.extend_from_slice(separator);
            rest = &rest[width + space + 1..];
        } else {
            break;
        }
    }
    out.extend_from_slice(rest);
    Ok(out)
}

fn is_connector(c: char) -> bool {
    c == '-' || c == '_' || c.is_whitespace()
}

/// xstrings' `ToPascalCase`.
fn camelcase(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = runes(text).map(|(c, _)| c);
    let mut is_upper_run = false;
    let mut current = None;
    for c in chars.by_ref() {
        if !is_connector(c) {
            is_upper_run = is_upper(c);
            current = Some(to_upper(c));
            break;
        }
        out.push(c);
        current = None;
    }
    // Only connectors: xstrings writes the last one twice.
    let Some(mut current) = current else {
        out.extend(runes(text).last().map(|(c, _)| c));
        return out;
    };
    for c in chars {
        let previous = current;
        current = c;
        if is_connector(current) && is_connector(previous) {
            out.push(previous);
            continue;
        }
        if is_connector(previous) {
            is_upper_run = is_upper(current);
            current = to_upper(current);
        } else {
            if is_upper_run {
                if is_upper(current) {
                    current = to_lower(current);
                } else {
                    is_upper_run = false;
                }
            }
            out.push(previous);
        }
    }
    out.push(current);
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Invalid,
    Number,
    Upper,
    Alphabet,
    Connector,
    Punctuation,
    Other,
}

/// xstrings' `camelCaseToLowerCase`: words at changes of case and kind, joined by the connector.
fn lower_words(text: &[u8], connector: char) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 8);
    if text.is_empty() {
        return out;
    }
    let (mut kind, mut word, mut rest) = next_word(text);
    while !rest.is_empty() {
        if kind != Word::Connector {
            write_lower(&mut out, kind, word, connector);
        }
        let (previous, last) = (kind, word);
        (kind, word, rest) = next_word(rest);
        let joins = |kind| matches!(kind, Word::Connector | Word::Punctuation);
        match previous {
            Word::Number => {
                while matches!(kind, Word::Alphabet | Word::Number) {
                    write_lower(&mut out, kind, word, connector);
                    (kind, word, rest) = next_word(rest);
                }
                if kind != Word::Invalid && !joins(kind) {
                    push(&mut out, connector);
                }
            }
            Word::Connector => write_lower(&mut out, previous, last, connector),
            Word::Punctuation => {}
            _ if kind != Word::Number => {
                if !joins(kind) {
                    push(&mut out, connector);
                }
            }
            _ if rest.is_empty() => {}
            _ => {
                let number = word;
                (kind, word, rest) = next_word(rest);
                if kind != Word::Alphabet {
                    write_lower(&mut out, Word::Number, number, connector);
                    if !joins(kind) {
                        push(&mut out, connector);
                    }
                } else {
                    push(&mut out, connector);
                    write_lower(&mut out, Word::Number, number, connector);
                    while matches!(kind, Word::Alphabet | Word::Number) {
                        write_lower(&mut out, kind, word, connector);
                        (kind, word, rest) = next_word(rest);
                    }
                    if kind != Word::Invalid && !joins(kind) {
                        push(&mut out, connector);
                    }
                }
            }
        }
    }
    write_lower(&mut out, kind, word, connector);
    out
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn write_lower(out: &mut Vec<u8>, kind: Word, word: &[u8], connector: char) {
    if !matches!(kind, Word::Upper | Word::Connector) {
        out.extend_from_slice(word);
        return;
    }
    for (c, _) in runes(word) {
        push(
            out,
            if is_connector(c) {
                connector
            } else if is_upper(c) {
                to_lower(c)
            } else {
                c
            },
        );
    }
}

/// xstrings' `isAlphabet`: letters but for the common Chinese, Japanese and Korean characters.
fn is_alphabet(c: char) -> bool {
    is_letter(c)
        && !matches!(c, '\u{3400}'..='\u{4D85}' | '\u{4E00}'..='\u{9FCC}' | '\u{20000}'..='\u{2B81D}')
}

/// The next character that is none of Go's `RuneError`, and how many bytes it takes with the ones skipped; `previous`
/// where there is none.
fn next_valid(text: &[u8], previous: char) -> (char, usize) {
    let mut rest = text;
    while let Some((c, after)) = split_first(rest) {
        rest = after;
        if c != char::REPLACEMENT_CHARACTER {
            return (c, text.len() - rest.len());
        }
    }
    (previous, text.len())
}

/// xstrings' `nextWord`: the kind of the first word, the word, and the rest.
fn next_word(text: &[u8]) -> (Word, &[u8], &[u8]) {
    if text.is_empty() {
        return (Word::Invalid, b"", b"");
    }
    let (first, size) = next_valid(text, char::REPLACEMENT_CHARACTER);
    if first == char::REPLACEMENT_CHARACTER {
        return (Word::Invalid, &text[..size], &text[size..]);
    }
    let take = |from: usize, kept: fn(char) -> bool| {
        let mut end = from;
        let mut last = first;
        while end < text.len() {
            let (c, size) = next_valid(&text[end..], last);
            if !kept(c) {
                break;
            }
            last = c;
            end += size;
        }
        end
    };
    let is_lower_alphabet: fn(char) -> bool = |c| is_alphabet(c) && !is_upper(c);
    let (kind, end) = if is_connector(first) {
        (Word::Connector, take(size, is_connector))
    } else if is_punctuation(first) {
        (Word::Punctuation, take(size, is_punctuation))
    } else if is_upper(first) {
        (
            Word::Upper,
            end_of_upper_word(text, first, size, is_lower_alphabet),
        )
    } else if is_alphabet(first) {
        (Word::Alphabet, take(size, is_lower_alphabet))
    } else if is_number(first) {
        (Word::Number, take(size, is_number))
    } else {
        let is_other: fn(char) -> bool =
            |c| !(is_connector(c) || is_alphabet(c) || is_number(c) || is_punctuation(c));
        (Word::Other, take(size, is_other))
    };
    (kind, &text[..end], &text[end..])
}

/// A capital and the small letters after it, or a run of capitals up to the one that begins the next word.
fn end_of_upper_word(text: &[u8], first: char, size: usize, is_small: fn(char) -> bool) -> usize {
    if size >= text.len() {
        return size;
    }
    let mut end = size;
    let (mut c, mut width) = next_valid(&text[end..], first);
    if is_upper(c) {
        let mut last_width = width;
        end += width;
        while end < text.len() {
            (c, width) = next_valid(&text[end..], c);
            if !is_upper(c) {
                break;
            }
            last_width = width;
            end += width;
        }
        if end < text.len() && is_alphabet(c) {
            end -= last_width;
        }
    } else if is_alphabet(c) {
        end += width;
        while end < text.len() {
            (c, width) = next_valid(&text[end..], c);
            if !is_small(c) {
                break;
            }
            end += width;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_change_their_case() {
        for (text, snake, camel) in [
            ("HTTPServer2Foo", "http_server2_foo", "Httpserver2Foo"),
            ("foo-bar baz", "foo_bar_baz", "FooBarBaz"),
            ("JSONData", "json_data", "Jsondata"),
            ("_foo", "_foo", "_Foo"),
        ] {
            assert_eq!(
                lower_words(text.as_bytes(), '_'),
                snake.as_bytes(),
                "{text}"
            );
            assert_eq!(camelcase(text.as_bytes()), camel, "{text}");
        }
    }

    #[test]
    fn titles_and_initials() {
        assert_eq!(title(b"hello wORLD-foo"), "Hello WORLD-Foo");
        assert_eq!(initials(b"First Try"), "FT");
        assert_eq!(swapcase(b"This Is"), "tHIS iS");
        assert_eq!(abbreviate(b"hello world", 0, 5), b"he...");
        assert_eq!(abbreviate(b"multi line", i64::MIN, 8), b"... line");
        assert_eq!(abbreviate(b"multi line", i64::MIN, 5), b"");
    }
}
