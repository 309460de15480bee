//! Constraints on names in certificates, and names of domains, as Go's `crypto/x509` reads them.

use std::net::IpAddr;

use golib::hex;
use golib::strconv::quote;

use super::asn1::Result;
use super::cursor::{Cursor, Element};
use super::der;

const EMAIL: u8 = 0x81;
const DNS: u8 = 0x82;
const URI: u8 = 0x86;
const IP: u8 = 0x87;

/// Checks the name constraints of a certificate.
pub(super) fn constraints(content: Cursor<'_>) -> Result<()> {
    let invalid = || "x509: invalid NameConstraints extension".to_owned();
    let subtrees = subtrees(content).ok_or_else(invalid)?;
    if subtrees.iter().all(Cursor::is_empty) {
        return Err("x509: empty name constraints extension".to_owned());
    }
    for mut list in subtrees {
        while !list.is_empty() {
            let base = list.enter(der::SEQUENCE).and_then(|mut tree| tree.any());
            constraint(base.ok_or_else(invalid)?)?;
        }
    }
    Ok(())
}

/// The names that are permitted and those that are not.
fn subtrees(mut content: Cursor<'_>) -> Option<[Cursor<'_>; 2]> {
    let mut fields = content.enter(der::SEQUENCE)?;
    let permitted = fields.optional(der::context(0))?;
    let excluded = fields.optional(der::context(1))?;
    let none = Cursor(&[]);
    let is_whole = content.is_empty() && fields.is_empty();
    is_whole.then_some([permitted.unwrap_or(none), excluded.unwrap_or(none)])
}

fn constraint(base: Element<'_>) -> Result<()> {
    let text = base.content;
    if base.tag == IP {
        return ip_constraint(text);
    }
    let (kind, is_valid) = match base.tag {
        DNS => ("dnsName", is_domain(text, true)),
        EMAIL if text.contains(&b'@') => ("rfc822Name", is_mailbox(text)),
        EMAIL => ("rfc822Name", is_domain(text, true)),
        URI => ("URI", is_domain(text, true)),
        _ => return Ok(()),
    };
    let quoted = quote(text);
    if !text.is_ascii() {
        let problem = format!("x509: {quoted} cannot be encoded as an IA5String");
        return Err(format!("x509: invalid constraint value: {problem}"));
    }
    let failed = format!("x509: failed to parse {kind} constraint {quoted}");
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    if base.tag == URI && std::str::from_utf8(text).is_ok_and(is_address) {
        return Err(format!("{failed}: cannot be IP address"));
    }
    if is_valid { Ok(()) } else { Err(failed) }
}

fn ip_constraint(text: &[u8]) -> Result<()> {
    if !matches!(text.len(), 8 | 32) {
        let length = text.len();
        return Err(format!(
            "x509: IP constraint contained value of length {length}"
        ));
    }
    let mask = &text[text.len() / 2..];
    let ones: u32 = mask.iter().map(|byte| byte.leading_ones()).sum();
    let set: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    let first_zero = mask.iter().position(|&byte| byte != 0xFF);
    let is_after = |&byte: &u8| byte != 0;
    let has_more = first_zero.is_some_and(|at| mask[at + 1..].iter().any(is_after));
    if ones != set || has_more {
        let mask = hex::encode(mask);
        return Err(format!("x509: IP constraint contained invalid mask {mask}"));
    }
    Ok(())
}

/// Go's `domainNameValid`.
pub(super) fn is_domain(name: &[u8], is_constraint: bool) -> bool {
    if name.is_empty() {
        return true;
    }
    if name.ends_with(b".") || !name.iter().all(u8::is_ascii_graphic) {
        return false;
    }
    let name = match name.strip_prefix(b".") {
        Some(rest) if is_constraint => rest,
        _ => name,
    };
    name.split(|&byte| byte == b'.')
        .all(|label| !label.is_empty())
}

/// Go's `parseRFC2821Mailbox`, by RFC 2822 and errata of it.
fn is_mailbox(text: &[u8]) -> bool {
    let local = match text.strip_prefix(b"\"") {
        Some(quoted) => quoted_local_part(quoted),
        None => local_part(text),
    };
    let Some(domain) = local.and_then(|rest| rest.strip_prefix(b"@")) else {
        return false;
    };
    let is_valid = |label: &[u8]| !label.is_empty() && label.iter().all(u8::is_ascii_graphic);
    domain.is_empty() || domain.split(|&byte| byte == b'.').all(is_valid)
}

/// The rest behind the quotation mark that ends this.
fn quoted_local_part(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        let (&first, rest) = text.split_first()?;
        text = rest;
        match first {
            b'"' => return Some(text),
            b'\\' => {
                let (&escaped, rest) = text.split_first()?;
                if !matches!(escaped, 1..=9 | 11 | 12 | 14..=127) {
                    return None;
                }
                text = rest;
            }
            1..=8 | 11 | 12 | 14..=33 | 35..=91 | 93..=127 => {}
            _ => return None,
        }
    }
}

/// The rest behind the letters that a part without quotation marks may have.
fn local_part(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    let mut local = Vec::new();
    while let Some((&first, after)) = rest.split_first() {
        let character = match first {
            // Any character behind a backslash.
            b'\\' => {
                rest = after;
                *after.first()?
            }
            b'.' => first,
            _ if first.is_ascii_alphanumeric() => first,
            _ if b"!#$%&'*+-/=?^_`{|}~".contains(&first) => first,
            _ => break,
        };
        local.push(character);
        rest = &rest[1..];
    }
    let has_empty = local.split(|&byte| byte == b'.').any(<[u8]>::is_empty);
    (!has_empty).then_some(rest)
}
