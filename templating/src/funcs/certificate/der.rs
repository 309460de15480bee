//! DER as it is written.

/// Tags of the values we read and write.
pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_ID: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0C;
pub(super) const NUMERIC_STRING: u8 = 0x12;
pub(super) const PRINTABLE_STRING: u8 = 0x13;
pub(super) const T61_STRING: u8 = 0x14;
pub(super) const IA5_STRING: u8 = 0x16;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const BMP_STRING: u8 = 0x1E;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
pub(super) const NULL: &[u8] = &[0x05, 0x00];
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
