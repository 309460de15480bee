//! UTF-8 as Go's `unicode/utf8` decodes it: strings are any bytes, and each byte that begins no valid sequence is U+FFFD,
//! one byte wide.
//!
//! ```
//! use golib::utf8;
//!
//! assert_eq!(utf8::decode_rune("é!".as_bytes()), Some(('é', 2)));
//! assert_eq!(utf8::decode_rune(b"\xff!"), Some(('\u{fffd}', 1)));
//! assert_eq!(utf8::decode_rune(b""), None);
//! assert_eq!(utf8::to_string(b"a\xff\xffb".to_vec()), "a\u{fffd}\u{fffd}b");
//! ```

/// Go's `DecodeRune`: the first character and its width in bytes; `None` at the end.
///
/// A width of 1 tells an invalid byte from a U+FFFD that stands in the text, which is three bytes wide.
pub fn decode_rune(text: &[u8]) -> Option<(char, usize)> {
    let &first = text.first()?;
    if first.is_ascii() {
        return Some((char::from(first), 1));
    }
    let head = &text[..text.len().min(char::MAX_LEN_UTF8)];
    let valid = head.utf8_chunks().next()?.valid().chars().next();
    Some(valid.map_or((char::REPLACEMENT_CHARACTER, 1), |c| (c, c.len_utf8())))
}

/// Go's `DecodeLastRune`: the last character and its width in bytes; `None` of nothing.
pub fn decode_last_rune(text: &[u8]) -> Option<(char, usize)> {
    text.last()?;
    for width in 1..=text.len().min(char::MAX_LEN_UTF8) {
        let tail = std::str::from_utf8(&text[text.len() - width..]);
        if let Some(c) = tail.ok().and_then(|tail| tail.chars().next()) {
            return Some((c, width));
        }
    }
    Some((char::REPLACEMENT_CHARACTER, 1))
}

/// The first character and the bytes after it; `None` at the end.
pub fn split_first(text: &[u8]) -> Option<(char, &[u8])> {
    decode_rune(text).map(|(c, width)| (c, &text[width..]))
}

/// The characters of a text, each with its bytes: Go's `for _, r := range text`.
pub fn runes(text: &[u8]) -> impl Iterator<Item = (char, &[u8])> {
    text.utf8_chunks().flat_map(|chunk| {
        let (valid, invalid) = (chunk.valid(), chunk.invalid().chunks(1));
        let bytes = valid.as_bytes();
        let valid = valid
            .char_indices()
            .map(move |(at, c)| (c, &bytes[at..at + c.len_utf8()]));
        valid.chain(invalid.map(|byte| (char::REPLACEMENT_CHARACTER, byte)))
    })
}

/// Go's `RuneCount`: how many characters a text has, an invalid byte counting as one.
pub fn rune_count(text: &[u8]) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    text.utf8_chunks()
        .map(|chunk| chunk.valid().chars().count() + chunk.invalid().len())
        .sum()
}

/// The bytes as valid text, one U+FFFD for each byte that is not UTF-8: Go's `string([]rune(text))`. (The standard
/// library's lossy conversion writes one for a whole broken sequence.)
pub fn to_string(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| {
        let mut text = String::new();
        push(&mut text, error.as_bytes());
        text
    })
}

/// As [`to_string`], without a copy where there is nothing to replace.
pub fn to_str(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => {
            let mut text = String::new();
            push(&mut text, bytes);
            text.into()
        }
    }
}

/// Appends what [`to_string`] makes of the bytes.
pub(crate) fn push(out: &mut String, bytes: &[u8]) {
    // Many times as fast as chunk by chunk, and nearly all there is.
    if let Ok(text) = std::str::from_utf8(bytes) {
        out.push_str(text);
        return;
    }
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_invalid_byte_is_one_character() {
        let text = b"a\xc3\xa9\xff\xe2\x82\xef\xbf\xbd";
        let decoded: Vec<_> = runes(text).map(|(c, bytes)| (c, bytes.len())).collect();
        let bad = (char::REPLACEMENT_CHARACTER, 1);
        let want = [('a', 1), ('é', 2), bad, bad, bad, ('\u{fffd}', 3)];
        assert_eq!(decoded, want);
        let mut rest = &text[..];
        for want in want {
            assert_eq!(decode_rune(rest), Some(want));
            rest = &rest[want.1..];
        }
        let mut rest = &text[..];
        for want in want.into_iter().rev() {
            assert_eq!(decode_last_rune(rest), Some(want));
            rest = &rest[..rest.len() - want.1];
        }
        assert_eq!(rune_count(text), want.len());
    }
}
