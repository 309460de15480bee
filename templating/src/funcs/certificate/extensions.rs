//! Extensions of certificates as Go's `crypto/x509` reads them.

use golib::strconv::quote;
use golib::url::Url;

use super::asn1::Result;
use super::cursor::Cursor;
use super::names::{self, is_domain};
use super::{der, parsed};

/// An extension as it stands in a certificate.
#[derive(Debug)]
pub(super) struct Extension<'a> {
    pub(super) id: &'a [u8],
    is_critical: bool,
    content: &'a [u8],
}

impl<'a> Extension<'a> {
    pub(super) fn read(mut fields: Cursor<'a>) -> Result<Self> {
        let malformed = |field: &str| parsed::malformed(&format!("extension {field} field"));
        let id = fields.object_id().ok_or_else(|| malformed("OID"))?;
        let is_critical =
            fields.is_at(der::BOOLEAN) && fields.boolean().ok_or_else(|| malformed("critical"))?;
        let content = fields.element(der::OCTET_STRING);
        Ok(Self {
            id,
            is_critical,
            content: content.ok_or_else(|| malformed("value"))?.content,
        })
    }
}

const AUTHORITY_INFO_ACCESS: &[u8] = &[0x2B, 6, 1, 5, 5, 7, 1, 1];
/// `[n]`, neither constructed nor explicit.
const fn implicit(n: u8) -> u8 {
    0x80 | n
}
/// A universal resource identifier among the kinds of names.
const URI: u8 = implicit(6);

fn invalid(what: &str) -> String {
    format!("x509: invalid {what}")
}

/// Checks an extension, and returns the certificate's key identifier if this is it.
pub(super) fn check<'a>(extension: &Extension<'a>) -> Result<Option<&'a [u8]>> {
    let content = Cursor(extension.content);
    let not_critical = |what: &str| match extension.is_critical {
        true => Err(format!("x509: {what} incorrectly marked critical")),
        false => Ok(()),
    };
    let check = |result: Option<()>, what: &str| result.ok_or_else(|| invalid(what));
    match extension.id {
        [0x55, 0x1D, 14] => {
            not_critical("subject key identifier")?;
            let id = Cursor(extension.content).element(der::OCTET_STRING);
            return match id {
                Some(id) => Ok(Some(id.content)),
                None => Err(invalid("subject key identifier")),
            };
        }
        [0x55, 0x1D, 15] => check(Cursor(extension.content).bits().map(|_| ()), "key usage")?,
        [0x55, 0x1D, 17] => alternative_names(content)?,
        [0x55, 0x1D, 19] => check(basic_constraints(content), "basic constraints")?,
        [0x55, 0x1D, 30] => names::constraints(content)?,
        [0x55, 0x1D, 31] => distribution_points(content)?,
        [0x55, 0x1D, 32] => check(policies(content), "certificate policies")?,
        [0x55, 0x1D, 33] => check(policy_mappings(content), "policy mappings extension")?,
        [0x55, 0x1D, 35] => {
            not_critical("authority key identifier")?;
            let what = "authority key identifier";
            check(authority_key_id(content), what)?;
        }
        [0x55, 0x1D, 36] => check(policy_constraints(content), "policy constraints extension")?,
        [0x55, 0x1D, 37] => check(purposes(content), "extended key usages")?,
        [0x55, 0x1D, 54] => {
            let number = Cursor(extension.content).int(der::INTEGER);
            check(number.map(|_| ()), "inhibit any policy extension")?;
        }
        AUTHORITY_INFO_ACCESS => {
            not_critical("authority info access")?;
            check(info_access(content), "authority info access")?;
        }
        _ => {}
    }
    Ok(None)
}

fn basic_constraints(mut content: Cursor<'_>) -> Option<()> {
    let mut fields = content.enter(der::SEQUENCE)?;
    if fields.is_at(der::BOOLEAN) {
        fields.boolean()?;
    }
    if fields.is_at(der::INTEGER) {
        fields.int(der::INTEGER).filter(|&length| length >= 0)?;
    }
    Some(())
}

fn alternative_names(mut content: Cursor<'_>) -> Result<()> {
    const EMAIL: u8 = 1;
    const DNS: u8 = 2;
    const URI: u8 = 6;
    const IP: u8 = 7;
    let list = content.enter(der::SEQUENCE);
    let mut list = list.ok_or_else(|| invalid("subject alternative names"))?;
    while !list.is_empty() {
        let name = list.any();
        let name = name.ok_or_else(|| invalid("subject alternative name"))?;
        let text = name.content;
        let ascii = |what: &str| match text.is_ascii() {
            true => Ok(()),
            false => Err(format!("x509: SAN {what} is malformed")),
        };
        match name.tag ^ 0x80 {
            EMAIL => ascii("rfc822Name")?,
            DNS => ascii("dNSName")?,
            URI => {
                ascii("uniformResourceIdentifier")?;
                let failed =
                    |error: &str| format!("x509: cannot parse URI {}: {error}", quote(text));
                let url = Url::parse(text).map_err(|error| failed(&error))?;
                if !is_domain(&url.host, false) {
                    return Err(failed("invalid domain"));
                }
            }
            IP if !matches!(text.len(), 4 | 16) => {
                let length = text.len();
                return Err(format!("x509: cannot parse IP address of length {length}"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn distribution_points(mut content: Cursor<'_>) -> Result<()> {
    let list = content.enter(der::SEQUENCE);
    let list = list.ok_or_else(|| invalid("CRL distribution points"))?;
    points(list).ok_or_else(|| invalid("CRL distribution point"))
}

fn points(mut list: Cursor<'_>) -> Option<()> {
    while !list.is_empty() {
        let mut point = list.enter(der::SEQUENCE)?;
        let Some(mut name) = point.optional(der::context(0))? else {
            continue;
        };
        let mut names = name.enter(der::context(0))?;
        while names.is_at(URI) {
            names.element(URI)?;
        }
    }
    Some(())
}

fn policies(mut content: Cursor<'_>) -> Option<()> {
    let mut list = content.enter(der::SEQUENCE)?;
    let mut seen = std::collections::BTreeSet::new();
    while !list.is_empty() {
        let id = list.enter(der::SEQUENCE)?.element(der::OBJECT_ID)?.content;
        // Numbers may be of any size here.
        let begins_with_zero =
            |(at, byte): (usize, &u8)| *byte == 0x80 && (at == 0 || id[at - 1] < 0x80);
        let is_id = id.last().is_some_and(|&last| last < 0x80);
        if !is_id || !seen.insert(id) || id.iter().enumerate().any(begins_with_zero) {
            return None;
        }
    }
    Some(())
}

fn policy_mappings(mut content: Cursor<'_>) -> Option<()> {
    let mut list = content.enter(der::SEQUENCE)?;
    while !list.is_empty() {
        let mut pair = list.enter(der::SEQUENCE)?;
        pair.element(der::OBJECT_ID)?;
        pair.element(der::OBJECT_ID)?;
    }
    Some(())
}

fn authority_key_id(mut content: Cursor<'_>) -> Option<()> {
    content.enter(der::SEQUENCE)?.optional(implicit(0))?;
    Some(())
}

fn policy_constraints(mut content: Cursor<'_>) -> Option<()> {
    let mut fields = content.enter(der::SEQUENCE)?;
    for tag in [implicit(0), implicit(1)] {
        if fields.is_at(tag) {
            fields.int(tag)?;
        }
    }
    Some(())
}

fn purposes(mut content: Cursor<'_>) -> Option<()> {
    let mut list = content.enter(der::SEQUENCE)?;
    while !list.is_empty() {
        list.object_id()?;
    }
    Some(())
}

fn info_access(mut content: Cursor<'_>) -> Option<()> {
    let mut list = content.enter(der::SEQUENCE)?;
    while !list.is_empty() {
        let mut access = list.enter(der::SEQUENCE)?;
        access.object_id()?;
        if access.is_at(URI) {
            access.element(URI)?;
        }
    }
    Some(())
}
