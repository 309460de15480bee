//! Characters as Go sees them: runes decoded from bytes, Unicode classes by general category, and the one-to-one case
//! mappings of Go's `unicode` package. (Rust's classes are by derived properties and its mappings may grow a string.)

use std::sync::LazyLock;

use regex::Regex;

/// The characters of a string with their bytes; an invalid byte is U+FFFD, as in Go.
pub(super) fn runes(text: &[u8]) -> impl Iterator<Item = (char, &[u8])> {
    text.utf8_chunks().flat_map(|chunk| {
        let (valid, invalid) = (chunk.valid(), chunk.invalid().chunks(1));
        let bytes = valid.as_bytes();
        let valid = valid
            .char_indices()
            .map(move |(at, c)| (c, &bytes[at..at + c.len_utf8()]));
        valid.chain(invalid.map(|byte| (char::REPLACEMENT_CHARACTER, byte)))
    })
}

/// The first character and the bytes after it.
pub(super) fn first_rune(text: &[u8]) -> Option<(char, &[u8])> {
    let head = &text[..text.len().min(4)];
    runes(head)
        .next()
        .map(|(c, bytes)| (c, &text[bytes.len()..]))
}

/// Rewrites each character. Invalid bytes become U+FFFD.
pub(super) fn map(text: &[u8], change: impl FnMut(char) -> char) -> String {
    text.utf8_chunks()
        .flat_map(|chunk| {
            let invalid = chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER);
            chunk.valid().chars().chain(invalid)
        })
        .map(change)
        .collect()
}

macro_rules! category {
    ($(#[$doc:meta])* $name:ident, $class:literal, $ascii:expr) => {
        $(#[$doc])*
        pub(super) fn $name(c: char) -> bool {
            static CLASS: LazyLock<Regex> = LazyLock::new(|| {
                Regex::new(concat!("^", $class)).expect("a constant pattern, covered by tests")
            });
            match u8::try_from(c) {
                Ok(byte) if byte.is_ascii() => $ascii(&byte),
                _ => CLASS.is_match(c.encode_utf8(&mut [0; 4])),
            }
        }
    };
}

category!(/** Category Lu. */ is_upper, r"\p{Lu}", u8::is_ascii_uppercase);
category!(/** Category Ll. */ is_lower, r"\p{Ll}", u8::is_ascii_lowercase);
category!(/** Category Lt. */ is_title, r"\p{Lt}", |_| false);
category!(/** Any letter. */ is_letter, r"\p{L}", u8::is_ascii_alphabetic);
category!(/** Category Nd. */ is_digit, r"\p{Nd}", u8::is_ascii_digit);
category!(/** Any number. */ is_number, r"\p{N}", u8::is_ascii_digit);
category!(/** Any punctuation. */ is_punctuation, r"\p{P}", |b: &u8| b.is_ascii_punctuation()
    && !b"$+<=>^`|~".contains(b));

/// Go's `unicode.ToUpper`.
pub(super) fn to_upper(c: char) -> char {
    match c {
        // Lower-case letters whose full mapping has more characters but which have a simple one, to title case.
        '\u{1F80}'..='\u{1F87}' | '\u{1F90}'..='\u{1F97}' | '\u{1FA0}'..='\u{1FA7}' => offset(c, 8),
        '\u{1FB3}' | '\u{1FC3}' | '\u{1FF3}' => offset(c, 9),
        '\u{1F88}'..='\u{1F8F}' | '\u{1F98}'..='\u{1F9F}' | '\u{1FA8}'..='\u{1FAF}' => c,
        _ => single(c, c.to_uppercase()),
    }
}

/// Go's `unicode.ToLower`.
pub(super) fn to_lower(c: char) -> char {
    match c {
        '\u{130}' => 'i',
        _ => single(c, c.to_lowercase()),
    }
}

/// Go's `unicode.ToTitle`.
pub(super) fn to_title(c: char) -> char {
    match c {
        '\u{1C4}'..='\u{1C6}' => '\u{1C5}',
        '\u{1C7}'..='\u{1C9}' => '\u{1C8}',
        '\u{1CA}'..='\u{1CC}' => '\u{1CB}',
        '\u{1F1}'..='\u{1F3}' => '\u{1F2}',
        // Georgian has capitals but no title case.
        '\u{10D0}'..='\u{10FA}' | '\u{10FD}'..='\u{10FF}' => c,
        _ => to_upper(c),
    }
}

fn single(c: char, mut mapped: impl Iterator<Item = char>) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(only), None) => only,
        _ => c,
    }
}

fn offset(c: char, distance: u32) -> char {
    char::from_u32(u32::from(c) + distance).unwrap_or(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_mappings_are_those_of_go() {
        assert!(is_upper('Ä') && !is_upper('Ⓐ') && is_lower('ß') && !is_lower('ª'));
        assert!(is_title('ǅ') && is_digit('٣') && is_number('Ⅷ') && !is_digit('Ⅷ'));
        assert!(is_punctuation('!') && !is_punctuation('$') && is_punctuation('«'));
        assert_eq!(map("ßǆᾳİ".as_bytes(), to_upper), "ßǄᾼİ");
        assert_eq!(map("İÄ".as_bytes(), to_lower), "iä");
        assert_eq!(to_title('ǆ'), 'ǅ');
        assert_eq!(map(b"a\xffb", to_upper), "A\u{FFFD}B");
        assert_eq!(runes(b"\xc3\xa9\xff").collect::<Vec<_>>().len(), 2);
    }
}
