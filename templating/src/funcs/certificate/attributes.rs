//! Names of certificates as Go's `crypto/x509` reads them.

use super::asn1::Result;
use super::cursor::Cursor;
use super::der;

/// Checks the content of a name.
pub(super) fn check(mut name: Cursor<'_>) -> Result<()> {
    let invalid = |part: &str| format!("x509: invalid RDNSequence{part}");
    while !name.is_empty() {
        let mut set = name.enter(der::SET).ok_or_else(|| invalid(""))?;
        while !set.is_empty() {
            let attribute = set.enter(der::SEQUENCE);
            let mut attribute = attribute.ok_or_else(|| invalid(": invalid attribute"))?;
            let kind = attribute.object_id();
            kind.ok_or_else(|| invalid(": invalid attribute type"))?;
            let value = attribute.any();
            let value = value.ok_or_else(|| invalid(": invalid attribute value"))?;
            text(value.tag, value.content)
                .map_err(|error| invalid(&format!(": invalid attribute value: {error}")))?;
        }
    }
    Ok(())
}

/// Checks a text of a tag.
fn text(tag: u8, content: &[u8]) -> Result<()> {
    let is_printable = |b: &u8| b.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(b);
    let (is_valid, kind) = match tag {
        der::T61_STRING => return Ok(()),
        der::PRINTABLE_STRING => (content.iter().all(is_printable), "PrintableString"),
        der::UTF8_STRING => (std::str::from_utf8(content).is_ok(), "UTF-8 string"),
        der::BMP_STRING => (is_bmp(content), "BMPString"),
        der::IA5_STRING => (content.is_ascii(), "IA5String"),
        der::NUMERIC_STRING => {
            let is_numeric = |b: &u8| b.is_ascii_digit() || *b == b' ';
            (content.iter().all(is_numeric), "NumericString")
        }
        _ => return Err(format!("unsupported string type: {tag}")),
    };
    if is_valid {
        Ok(())
    } else {
        Err(format!("invalid {kind}"))
    }
}

/// Whether the text is of two-byte characters, none of which is of UTF-16 only.
fn is_bmp(content: &[u8]) -> bool {
    let content = content.strip_suffix(&[0, 0]).unwrap_or(content);
    let (pairs, rest) = content.as_chunks::<2>();
    let is_character = |&pair: &[u8; 2]| {
        let point = u16::from_be_bytes(pair);
        !matches!(point, 0xFFFE | 0xFFFF | 0xFDD0..=0xFDEF | 0xD800..=0xDFFF)
    };
    rest.is_empty() && pairs.iter().all(is_character)
}
