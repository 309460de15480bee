//! Classes and case of characters as Go's `unicode` package has them: classes by general category, and case mappings that
//! give one character for one. (Rust's classes are by derived properties, its mappings may grow a string, and both know
//! characters of later versions of Unicode than Go 1.26, which has 15.0.)
//!
//! ```
//! use golib::unicode;
//!
//! assert!(unicode::is_letter('é') && unicode::is_digit('٣') && !unicode::is_digit('Ⅷ'));
//! assert_eq!(unicode::to_upper('ß'), 'ß');
//! assert_eq!(unicode::to_title('ǆ'), 'ǅ');
//! ```

use std::sync::LazyLock;

use regex::Regex;

macro_rules! category {
    ($(#[$doc:meta])* $visibility:vis $name:ident, $class:literal, $ascii:expr) => {
        $(#[$doc])*
        $visibility fn $name(c: char) -> bool {
            static CLASS: LazyLock<Regex> = LazyLock::new(|| {
                Regex::new(concat!("^[", $class, r"&&\p{age=15.0}]"))
                    .expect("a constant pattern, covered by tests")
            });
            match u8::try_from(c) {
                Ok(byte) if byte.is_ascii() => $ascii(&byte),
                _ => CLASS.is_match(c.encode_utf8(&mut [0; 4])),
            }
        }
    };
}

category!(/** Category Lu. */ pub is_upper, r"\p{Lu}", u8::is_ascii_uppercase);
category!(/** Category Ll. */ pub is_lower, r"\p{Ll}", u8::is_ascii_lowercase);
category!(/** Category Lt. */ pub is_title, r"\p{Lt}", |_| false);
category!(/** Any letter. */ pub is_letter, r"\p{L}", u8::is_ascii_alphabetic);
category!(/** Category Nd. */ pub is_digit, r"\p{Nd}", u8::is_ascii_digit);
category!(/** Any number. */ pub is_number, r"\p{N}", u8::is_ascii_digit);
category!(/** Any punctuation. */ pub is_punctuation, r"\p{P}", |b: &u8| b.is_ascii_punctuation()
    && !b"$+<=>^`|~".contains(b));
category!(/** Go's `strconv.IsPrint`: letters, marks, numbers, punctuation, symbols and the ASCII space. */
    pub is_print, r"[\p{L}\p{M}\p{N}\p{P}\p{S}]", |b: &u8| (b' '..=b'~').contains(b));
category!(/** Whether Go has heard of the character: Unicode 15.0 knows it. */ is_known, r"\p{Any}", u8::is_ascii);

/// Go's `unicode.ToUpper`.
pub fn to_upper(c: char) -> char {
    match c {
        // Lower-case letters whose full mapping has more characters but which have a simple one, to title case.
        '\u{1F80}'..='\u{1F87}' | '\u{1F90}'..='\u{1F97}' | '\u{1FA0}'..='\u{1FA7}' => offset(c, 8),
        '\u{1FB3}' | '\u{1FC3}' | '\u{1FF3}' => offset(c, 9),
        '\u{1F88}'..='\u{1F8F}' | '\u{1F98}'..='\u{1F9F}' | '\u{1FA8}'..='\u{1FAF}' => c,
        _ => single(c, c.to_uppercase()),
    }
}

/// Go's `unicode.ToLower`.
pub fn to_lower(c: char) -> char {
    match c {
        '\u{130}' => 'i',
        _ => single(c, c.to_lowercase()),
    }
}

/// Go's `unicode.ToTitle`.
pub fn to_title(c: char) -> char {
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
        (Some(only), None) if only == c || is_known(c) && is_known(only) => only,
        _ => c,
    }
}

fn offset(c: char, distance: u32) -> char {
    char::from_u32(u32::from(c) + distance).unwrap_or(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str, change: impl FnMut(char) -> char) -> String {
        text.chars().map(change).collect()
    }

    #[test]
    fn classes_and_mappings_are_those_of_go() {
        assert!(is_upper('Ä') && !is_upper('Ⓐ') && is_lower('ß') && !is_lower('ª'));
        assert!(is_title('ǅ') && is_digit('٣') && is_number('Ⅷ') && !is_digit('Ⅷ'));
        assert!(is_punctuation('!') && !is_punctuation('$') && is_punctuation('«'));
        assert_eq!(map("ßǆᾳİ", to_upper), "ßǄᾼİ");
        assert_eq!(map("İÄ", to_lower), "iä");
        assert_eq!(to_title('ǆ'), 'ǅ');
    }

    /// How many characters each has in Go 1.26: another Unicode version has others.
    #[test]
    fn classes_have_the_members_of_unicode_15() {
        let count = |class: fn(char) -> bool| ('\0'..=char::MAX).filter(|c| class(*c)).count();
        let classes = [
            is_upper,
            is_lower,
            is_title,
            is_letter,
            is_digit,
            is_number,
            is_punctuation,
        ];
        let members = [1831, 2233, 31, 136_104, 680, 1831, 842];
        assert_eq!(classes.map(count), members);
    }

    /// How many characters each changes in Go 1.26, and the sum of what they become.
    #[test]
    fn mappings_are_those_of_unicode_15() {
        let changes = |change: fn(char) -> char| {
            let changed = ('\0'..=char::MAX).filter(|c| change(*c) != *c);
            changed.fold((0, 0), |(count, sum), c| {
                (count + 1, sum + u32::from(change(c)))
            })
        };
        assert_eq!(changes(to_upper), (1450, 32_256_850));
        assert_eq!(changes(to_lower), (1433, 34_914_171));
        assert_eq!(changes(to_title), (1404, 31_919_465));
        assert_eq!(map("\u{1c8a}ƛ\u{a7cb}", to_upper), "\u{1c8a}ƛ\u{a7cb}");
    }

    /// The number of characters and the sum of those that begin a run: the tables of another Unicode version have others.
    #[test]
    fn printable_characters_are_those_of_unicode_15() {
        let printable: Vec<u32> = ('\0'..=char::MAX)
            .filter(|c| is_print(*c))
            .map(u32::from)
            .collect();
        let runs = printable.chunk_by(|before, next| before + 1 == *next);
        let firsts: u32 = runs.map(|run| run[0]).sum();
        assert_eq!((printable.len(), firsts), (148_998, 40_369_577));
    }
}
