//! As much of ASN.1's DER and of PEM as certificates and keys need.

use golib::base64;

/// Tags of the values we read and write.
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_ID: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0C;
pub(super) const PRINTABLE_STRING: u8 = 0x13;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
/// `[n]`, constructed.
pub(super) const fn context(n: u8) -> u8 {
    0xA0 | n
}

/// A value of a tag.
pub(super) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let used = &bytes[bytes.iter().take_while(|&&b| b == 0).count()..];
        out.push(0x80 | used.len() as u8);
        out.extend_from_slice(used);
    }
    out.extend_from_slice(content);
    out
}

/// A constructed value.
pub(super) fn group(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    value(tag, &parts.concat())
}

/// A number that is not negative, from its big-endian bytes.
pub(super) fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|&&b| b == 0).count();
    let digits = &bytes[zeros..];
    let needs_zero = digits.first().is_none_or(|&b| b >= 0x80);
    let padding: &[u8] = if needs_zero { &[0] } else { &[] };
    value(INTEGER, &[padding, digits].concat())
}

/// Whole bytes as a bit string.
pub(super) fn bits(bytes: &[u8]) -> Vec<u8> {
    value(BIT_STRING, &[&[0], bytes].concat())
}

/// One value of a text of DER.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
    /// Tag, length and content.
    pub(super) whole: &'a [u8],
}

/// The first value and what follows it.
pub(super) fn read(text: &[u8]) -> Option<(Item<'_>, &[u8])> {
    let (&tag, rest) = text.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let length = if first < 0x80 {
        usize::from(first)
    } else {
        let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7F))?;
        rest = after;
        if bytes.is_empty() || bytes.len() > 4 {
            return None;
        }
        bytes
            .iter()
            .fold(0, |length, &byte| length << 8 | usize::from(byte))
    };
    let (content, after) = rest.split_at_checked(length)?;
    let whole = &text[..text.len() - after.len()];
    Some((
        Item {
            tag,
            content,
            whole,
        },
        after,
    ))
}

impl<'a> Item<'a> {
    /// The values inside.
    pub(super) fn items(&self) -> Option<Vec<Item<'a>>> {
        let mut items = Vec::new();
        let mut rest = self.content;
        while !rest.is_empty() {
            let (item, after) = read(rest)?;
            items.push(item);
            rest = after;
        }
        Some(items)
    }
}

/// A block of PEM.
#[derive(Debug)]
pub(super) struct Block {
    /// What stands after `BEGIN`.
    pub(super) label: String,
    pub(super) content: Vec<u8>,
}

/// The text of a block, in lines of 64 characters.
pub(super) fn to_pem(label: &str, content: &[u8]) -> String {
    let encoded = base64::encode(content);
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in encoded.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

/// The first block of a text, as Go's `pem.Decode` finds it; a block that is not well formed is skipped.
pub(super) fn from_pem(text: &[u8]) -> Option<Block> {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines().map(str::trim_end);
    while let Some(line) = lines.next() {
        let label = line
            .strip_prefix("-----BEGIN ")
            .and_then(|l| l.strip_suffix("-----"));
        let Some(label) = label else { continue };
        let end = format!("-----END {label}-----");
        let mut body = String::new();
        // A failed block may hold the beginning of the next, so look ahead without consuming.
        for line in lines.clone() {
            if line == end {
                if let Ok(content) = base64::decode(&body) {
                    return Some(Block {
                        label: label.to_owned(),
                        content,
                    });
                }
                break;
            }
            if line.starts_with("-----BEGIN ") {
                break;
            }
            // Headers are of no interest.
            if !line.contains(':') {
                body.extend(line.chars().filter(|c| !c.is_whitespace()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back() {
        let number = unsigned(&[0, 0x80]);
        assert_eq!(number, [INTEGER, 2, 0, 0x80]);
        let long = value(OCTET_STRING, &[7; 300]);
        let both = group(SEQUENCE, &[&number, &long]);
        let (item, rest) = read(&both).unwrap();
        assert!(rest.is_empty());
        let items = item.items().unwrap();
        assert_eq!(
            (items[0].whole, items[1].content.len()),
            (number.as_slice(), 300)
        );
        assert!(read(&both[..100]).is_none());
    }

    #[test]
    fn pem_round_trips() {
        let text = to_pem("X", &[1; 100]);
        let block = from_pem(text.as_bytes()).unwrap();
        assert_eq!((block.label.as_str(), block.content), ("X", vec![1; 100]));
        assert!(from_pem(b"-----BEGIN X-----\n!\n-----END X-----\n").is_none());
    }
}
