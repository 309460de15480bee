//! DER as Go's `cryptobyte` reads it: certificates are read this way. It says nothing of what is wrong.

use golib::time::{Time, Zone};
use num_bigint::BigInt;

use super::{asn1, der};

/// The part of a text that is still to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

/// One value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
    /// Tag, length and content.
    pub(super) whole: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the next value is of a tag.
    pub(super) fn is_at(&self, tag: u8) -> bool {
        self.0.first() == Some(&tag)
    }

    /// The next value, of whatever tag below 31.
    pub(super) fn any(&mut self) -> Option<Element<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        if tag & 0x1F == 0x1F {
            return None;
        }
        let mut length = usize::from(first);
        if first >= 0x80 {
            let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7F))?;
            if bytes.len() > 4 || bytes.first().is_none_or(|&byte| byte == 0) {
                return None;
            }
            length = bytes
                .iter()
                .fold(0, |length, &byte| length << 8 | usize::from(byte));
            if length < 0x80 {
                return None;
            }
            rest = after;
        }
        let (content, after) = rest.split_at_checked(length)?;
        let whole = &self.0[..self.0.len() - after.len()];
        self.0 = after;
        Some(Element {
            tag,
            content,
            whole,
        })
    }

    /// The next value with its header, if it is of a tag.
    pub(super) fn element(&mut self, tag: u8) -> Option<Element<'a>> {
        self.any().filter(|element| element.tag == tag)
    }

    /// The content of the next value, if that is of a tag.
    pub(super) fn enter(&mut self, tag: u8) -> Option<Self> {
        self.element(tag).map(|element| Cursor(element.content))
    }

    /// The content of the next value where that is of a tag; `Some(None)` where it is not.
    pub(super) fn optional(&mut self, tag: u8) -> Option<Option<Self>> {
        if self.is_at(tag) {
            self.enter(tag).map(Some)
        } else {
            Some(None)
        }
    }

    pub(super) fn boolean(&mut self) -> Option<bool> {
        match self.element(der::BOOLEAN)?.content {
            [0] => Some(false),
            [0xFF] => Some(true),
            _ => None,
        }
    }

    /// The bytes of a number of a tag.
    fn digits(&mut self, tag: u8) -> Option<&'a [u8]> {
        asn1::checked_integer(self.element(tag)?.content).ok()
    }

    pub(super) fn big_int(&mut self) -> Option<BigInt> {
        self.digits(der::INTEGER).map(BigInt::from_signed_bytes_be)
    }

    /// A number of 64 bits, of a tag.
    pub(super) fn int(&mut self, tag: u8) -> Option<i64> {
        let number = BigInt::from_signed_bytes_be(self.digits(tag)?);
        i64::try_from(number).ok()
    }

    pub(super) fn object_id(&mut self) -> Option<&'a [u8]> {
        asn1::checked_object_id(self.element(der::OBJECT_ID)?.content).ok()
    }

    /// The bytes of a bit string, and how many bits of the last one are none.
    pub(super) fn bits(&mut self) -> Option<(&'a [u8], u8)> {
        let (&padding, bytes) = self.element(der::BIT_STRING)?.content.split_first()?;
        let is_valid = match bytes.last() {
            _ if padding > 7 => false,
            None => padding == 0,
            Some(last) => last & ((1 << padding) - 1) == 0,
        };
        is_valid.then_some((bytes, padding))
    }

    /// Checks a time in one of some layouts, in which it has to be written as Go would write it.
    pub(super) fn time(&mut self, tag: u8, layouts: &[&str]) -> Option<()> {
        let text = self.element(tag)?.content;
        let (layout, time) = layouts
            .iter()
            .find_map(|layout| Some((layout, Time::parse(layout, text, &Zone::Utc).ok()?)))?;
        (time.format(layout) == text).then_some(())
    }
}
