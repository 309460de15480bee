//! ASN.1 as Go's `encoding/asn1` reads it into structs, with its words. Private keys are read this way; certificates are
//! read by another reader, which is stricter and says less ([`cursor`](super::cursor)).

use num_bigint::BigInt;

/// A parsed value, or the error in Go's words.
pub(super) type Result<T> = std::result::Result<T, String>;

pub(super) fn syntax(message: &str) -> String {
    format!("asn1: syntax error: {message}")
}

pub(super) fn structure(message: &str) -> String {
    format!("asn1: structure error: {message}")
}

/// The header of a value.
#[derive(Debug, Clone, Copy)]
struct Header {
    class: u8,
    tag: u32,
    length: usize,
    is_compound: bool,
}

const UNIVERSAL: u8 = 0;
const CONTEXT_SPECIFIC: u8 = 2;

/// The type of a field.
#[derive(Debug, Clone, Copy)]
struct Kind {
    tag: u32,
    is_compound: bool,
    /// As Go's reflection names it; pointers and slices have no name.
    name: &'static str,
}

const INT: Kind = primitive(2, "int");
const BIG_INT: Kind = primitive(2, "");
const BIT_STRING: Kind = primitive(3, "BitString");
const BYTES: Kind = primitive(4, "");
const OBJECT_ID: Kind = primitive(6, "ObjectIdentifier");

const fn primitive(tag: u32, name: &'static str) -> Kind {
    Kind {
        tag,
        is_compound: false,
        name,
    }
}

const fn sequence(name: &'static str) -> Kind {
    Kind {
        tag: 16,
        is_compound: true,
        name,
    }
}

/// Reads the fields of a struct one after the other.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The text that is not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    /// A struct of Go's, by its name.
    pub(super) fn sequence(&mut self, name: &'static str) -> Result<Self> {
        self.required(sequence(name)).map(Reader::new)
    }

    pub(super) fn int(&mut self) -> Result<i64> {
        let digits = checked_integer(self.required(INT)?)?;
        let negative = digits[0] >= 0x80;
        let mut number = if negative { [0xFF; 8] } else { [0; 8] };
        let Some(from) = number.len().checked_sub(digits.len()) else {
            return Err(structure("integer too large"));
        };
        number[from..].copy_from_slice(digits);
        Ok(i64::from_be_bytes(number))
    }

    pub(super) fn big_int(&mut self) -> Result<BigInt> {
        big_int(self.required(BIG_INT)?)
    }

    pub(super) fn optional_big_int(&mut self) -> Result<Option<BigInt>> {
        self.field(BIG_INT, true)?.map(big_int).transpose()
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        self.required(BYTES)
    }

    /// The bytes of an identifier, which are others for each.
    pub(super) fn object_id(&mut self) -> Result<&'a [u8]> {
        checked_object_id(self.required(OBJECT_ID)?)
    }

    /// An identifier within a tag of its own, empty if there is none.
    pub(super) fn explicit_object_id(&mut self, number: u32) -> Result<&'a [u8]> {
        match self.explicit(number, OBJECT_ID)? {
            Some(content) => checked_object_id(content),
            None => Ok(&[]),
        }
    }

    /// Checks a bit string within a tag of its own, if there is one.
    pub(super) fn explicit_bits(&mut self, number: u32) -> Result<()> {
        let Some(content) = self.explicit(number, BIT_STRING)? else {
            return Ok(());
        };
        let Some((&padding, bits)) = content.split_first() else {
            return Err(syntax("zero length BIT STRING"));
        };
        match bits.last() {
            _ if padding > 7 => {}
            None if padding == 0 => return Ok(()),
            Some(last) if last & ((1 << padding) - 1) == 0 => return Ok(()),
            _ => {}
        }
        Err(syntax("invalid padding bits in BIT STRING"))
    }

    /// Any value with its header, empty if there is none.
    pub(super) fn optional_any(&mut self) -> Result<&'a [u8]> {
        if self.at == self.text.len() {
            return Ok(&[]);
        }
        let from = self.at;
        let (header, at) = header(self.text, from)?;
        self.content(header, at)?;
        Ok(&self.text[from..self.at])
    }

    /// The structs of a list, if there is one.
    pub(super) fn optional_sequences(&mut self) -> Result<Vec<Self>> {
        let Some(list) = self.field(sequence(""), true)? else {
            return Ok(Vec::new());
        };
        let mut elements = Vec::new();
        let mut at = 0;
        while at < list.len() {
            let (header, from) = header(list, at)?;
            if header.class != UNIVERSAL || !header.is_compound || header.tag != 16 {
                return Err(structure("sequence tag mismatch"));
            }
            let content = list.get(from..from + header.length);
            elements.push(Reader::new(
                content.ok_or_else(|| syntax("truncated sequence"))?,
            ));
            at = from + header.length;
        }
        Ok(elements)
    }

    fn required(&mut self, kind: Kind) -> Result<&'a [u8]> {
        let content = self.field(kind, false)?;
        content.ok_or_else(|| syntax("sequence truncated"))
    }

    /// The content of the next field, if it is of a kind; anything else is for the field after one that is optional.
    fn field(&mut self, kind: Kind, is_optional: bool) -> Result<Option<&'a [u8]>> {
        if self.at == self.text.len() {
            return Ok(None);
        }
        let (header, at) = header(self.text, self.at)?;
        if !header.is(kind) {
            if is_optional {
                return Ok(None);
            }
            return Err(mismatch(kind, header, at));
        }
        self.content(header, at).map(Some)
    }

    /// The content of an optional field that has a tag around it. The length of that tag counts for nothing.
    fn explicit(&mut self, number: u32, kind: Kind) -> Result<Option<&'a [u8]>> {
        if self.at == self.text.len() {
            return Ok(None);
        }
        let (outer, at) = header(self.text, self.at)?;
        if at == self.text.len() {
            return Err(structure("explicit tag has no child"));
        }
        let is_empty = outer.length == 0;
        if outer.class != CONTEXT_SPECIFIC
            || outer.tag != number
            || !(is_empty || outer.is_compound)
        {
            return Ok(None);
        }
        if is_empty {
            return Err(structure("zero length explicit tag was not an asn1.Flag"));
        }
        let (inner, at) = header(self.text, at)?;
        if !inner.is(kind) {
            return Ok(None);
        }
        self.content(inner, at).map(Some)
    }

    fn content(&mut self, header: Header, at: usize) -> Result<&'a [u8]> {
        let content = self.text.get(at..at + header.length);
        let content = content.ok_or_else(|| syntax("data truncated"))?;
        self.at = at + header.length;
        Ok(content)
    }
}

impl Header {
    fn is(&self, kind: Kind) -> bool {
        self.class == UNIVERSAL && self.tag == kind.tag && self.is_compound == kind.is_compound
    }
}

fn mismatch(kind: Kind, header: Header, at: usize) -> String {
    const PARAMETERS: &str = "{optional:false explicit:false application:false private:false defaultValue:<nil> tag:<nil> stringType:0 timeType:0 set:false omitEmpty:false}";
    let Header {
        class,
        tag,
        length,
        is_compound,
    } = header;
    structure(&format!(
        "tags don't match ({} vs {{class:{class} tag:{tag} length:{length} isCompound:{is_compound}}}) {PARAMETERS} {} @{at}",
        kind.tag, kind.name
    ))
}

/// The header at a place, which is within the text, and where its content begins.
fn header(text: &[u8], at: usize) -> Result<(Header, usize)> {
    let truncated = || syntax("truncated tag or length");
    let first = text[at];
    let mut at = at + 1;
    let mut tag = u32::from(first & 0x1F);
    if tag == 0x1F {
        tag = base128(text, &mut at)?;
        if tag < 0x1F {
            return Err(syntax("non-minimal tag"));
        }
    }
    let mut next = || {
        let byte = text.get(at).copied().ok_or_else(truncated);
        at += 1;
        byte
    };
    let byte = next()?;
    let mut length = usize::from(byte);
    if byte >= 0x80 {
        let count = byte & 0x7F;
        if count == 0 {
            return Err(syntax("indefinite length found (not DER)"));
        }
        length = 0;
        for _ in 0..count {
            let byte = next()?;
            if length >= 1 << 23 {
                return Err(structure("length too large"));
            }
            length = length << 8 | usize::from(byte);
            if length == 0 {
                return Err(structure("superfluous leading zeros in length"));
            }
        }
        if length < 0x80 {
            return Err(structure("non-minimal length"));
        }
    }
    let header = Header {
        class: first >> 6,
        tag,
        length,
        is_compound: first & 0x20 != 0,
    };
    Ok((header, at))
}

fn base128(text: &[u8], at: &mut usize) -> Result<u32> {
    let mut number: u64 = 0;
    for shifted in 0.. {
        let Some(&byte) = text.get(*at) else { break };
        if shifted == 5 {
            return Err(structure("base 128 integer too large"));
        }
        if shifted == 0 && byte == 0x80 {
            return Err(syntax("integer is not minimally encoded"));
        }
        number = number << 7 | u64::from(byte & 0x7F);
        *at += 1;
        if byte < 0x80 {
            return u32::try_from(number)
                .ok()
                .filter(|&number| number <= i32::MAX as u32)
                .ok_or_else(|| structure("base 128 integer too large"));
        }
    }
    Err(syntax("truncated base 128 integer"))
}

/// The bytes of an identifier whose numbers are not too large.
pub(super) fn checked_object_id(content: &[u8]) -> Result<&[u8]> {
    if content.is_empty() {
        return Err(syntax("zero length OBJECT IDENTIFIER"));
    }
    let mut at = 0;
    while at < content.len() {
        base128(content, &mut at)?;
    }
    Ok(content)
}

/// An identifier as people write it.
pub(super) fn dotted(object_id: &[u8]) -> String {
    let mut at = 0;
    let mut text = match base128(object_id, &mut at) {
        Ok(first @ 0..80) => format!("{}.{}", first / 40, first % 40),
        Ok(first) => format!("2.{}", first - 80),
        Err(_) => String::new(),
    };
    while let Ok(number) = base128(object_id, &mut at) {
        text.push_str(&format!(".{number}"));
    }
    text
}

/// The bytes of an integer that has as few of them as it can have.
pub(super) fn checked_integer(digits: &[u8]) -> Result<&[u8]> {
    match digits {
        [] => Err(structure("empty integer")),
        [0, 0..0x80, ..] | [0xFF, 0x80..=0xFF, ..] => {
            Err(structure("integer not minimally-encoded"))
        }
        _ => Ok(digits),
    }
}

fn big_int(digits: &[u8]) -> Result<BigInt> {
    checked_integer(digits).map(BigInt::from_signed_bytes_be)
}
