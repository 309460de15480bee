//! Certificates as Go's `x509.ParseCertificate` reads them, with its words.

use std::collections::BTreeSet;

use num_bigint::Sign;

use super::asn1::{Result, dotted};
use super::cursor::Cursor;
use super::extensions::{self, Extension};
use super::public_key::PublicKey;
use super::{attributes, der};

/// The parts of a certificate that are needed to sign others for it.
#[derive(Debug)]
pub(super) struct Parsed {
    /// With its header.
    pub(super) subject: Vec<u8>,
    pub(super) key_id: Option<Vec<u8>>,
    /// The key; `None` if its algorithm is not known.
    pub(super) public_key: Option<PublicKey>,
}

/// Go's error for something malformed.
pub(super) fn malformed(what: &str) -> String {
    format!("x509: malformed {what}")
}

/// `[n]` of a class of its own, not constructed.
const ISSUER_UNIQUE_ID: u8 = 0x81;
const SUBJECT_UNIQUE_ID: u8 = 0x82;

impl Parsed {
    pub(super) fn read(text: &[u8]) -> Result<Self> {
        let mut all = Cursor(text);
        let mut outer = all
            .enter(der::SEQUENCE)
            .ok_or_else(|| malformed("certificate"))?;
        let inner = outer.enter(der::SEQUENCE);
        let mut fields = inner.ok_or_else(|| malformed("tbs certificate"))?;
        let version = version(&mut fields)?;
        let serial = fields.big_int().ok_or_else(|| malformed("serial number"))?;
        if serial.sign() == Sign::Minus {
            return Err("x509: negative serial number".to_owned());
        }
        let algorithm = fields.enter(der::SEQUENCE);
        let algorithm = algorithm.ok_or_else(|| malformed("signature algorithm identifier"))?;
        let outer_algorithm = outer.enter(der::SEQUENCE);
        let outer_algorithm = outer_algorithm.ok_or_else(|| malformed("algorithm identifier"))?;
        if outer_algorithm.0 != algorithm.0 {
            let problem = "inner and outer signature algorithm identifiers don't match";
            return Err(format!("x509: {problem}"));
        }
        algorithm_parts(algorithm)?;
        name(&mut fields)?;
        validity(&mut fields)?;
        let subject = name(&mut fields)?;
        let public_key = public_key(&mut fields)?;
        let key_id = extensions_of(&mut fields, version)?;
        outer.bits().ok_or_else(|| malformed("signature"))?;
        if !all.is_empty() {
            return Err("x509: trailing data".to_owned());
        }
        Ok(Self {
            subject: subject.to_vec(),
            key_id,
            public_key,
        })
    }
}

/// The version, from 1.
fn version(fields: &mut Cursor<'_>) -> Result<i64> {
    let read = |fields: &mut Cursor<'_>| match fields.optional(der::context(0))? {
        None => Some(0),
        Some(mut version) => {
            let number = version.int(der::INTEGER)?;
            version.is_empty().then_some(number)
        }
    };
    match read(fields) {
        // Go adds 1 to the largest number too, which is a small one then.
        Some(number @ (0..=2 | i64::MAX)) => Ok(number.wrapping_add(1)),
        Some(3..) => Err("x509: invalid version".to_owned()),
        _ => Err(malformed("version")),
    }
}

/// An algorithm's identifier and its parameters with their header, empty if there are none.
fn algorithm_parts(mut algorithm: Cursor<'_>) -> Result<(&[u8], &[u8])> {
    let id = algorithm.object_id().ok_or_else(|| malformed("OID"))?;
    if algorithm.is_empty() {
        return Ok((id, &[]));
    }
    let parameters = algorithm.any().ok_or_else(|| malformed("parameters"))?;
    Ok((id, parameters.whole))
}

/// A name with its header.
fn name<'a>(fields: &mut Cursor<'a>) -> Result<&'a [u8]> {
    // Go calls either of them the issuer.
    let name = fields.element(der::SEQUENCE);
    let name = name.ok_or_else(|| malformed("issuer"))?;
    attributes::check(Cursor(name.content))?;
    Ok(name.whole)
}

fn validity(fields: &mut Cursor<'_>) -> Result<()> {
    let times = fields.enter(der::SEQUENCE);
    let mut times = times.ok_or_else(|| malformed("validity"))?;
    for _ in ["not before", "not after"] {
        if times.is_at(der::UTC_TIME) {
            let layouts = ["060102150405Z0700", "0601021504Z0700"];
            let time = times.time(der::UTC_TIME, &layouts);
            time.ok_or_else(|| malformed("UTCTime"))?;
        } else if times.is_at(der::GENERALIZED_TIME) {
            let time = times.time(der::GENERALIZED_TIME, &["20060102150405Z0700"]);
            time.ok_or_else(|| malformed("GeneralizedTime"))?;
        } else {
            return Err("x509: unsupported time format".to_owned());
        }
    }
    Ok(())
}

fn public_key(fields: &mut Cursor<'_>) -> Result<Option<PublicKey>> {
    let info = fields.enter(der::SEQUENCE);
    let mut info = info.ok_or_else(|| malformed("spki"))?;
    let algorithm = info.enter(der::SEQUENCE);
    let algorithm = algorithm.ok_or_else(|| malformed("public key algorithm identifier"))?;
    let (id, parameters) = algorithm_parts(algorithm)?;
    let bits = info.bits().ok_or_else(|| malformed("subjectPublicKey"))?;
    PublicKey::read(id, parameters, bits)
}

/// Checks the extensions, and returns the key's identifier among them.
fn extensions_of(fields: &mut Cursor<'_>, version: i64) -> Result<Option<Vec<u8>>> {
    if version <= 1 {
        return Ok(None);
    }
    let unique_ids = [
        (ISSUER_UNIQUE_ID, "issuerUniqueID"),
        (SUBJECT_UNIQUE_ID, "subjectUniqueID"),
    ];
    for (tag, what) in unique_ids {
        fields.optional(tag).ok_or_else(|| malformed(what))?;
    }
    if version == 2 {
        return Ok(None);
    }
    let list = fields.optional(der::context(3));
    let Some(mut list) = list.ok_or_else(|| malformed("extensions"))? else {
        return Ok(None);
    };
    let list = list.enter(der::SEQUENCE);
    let mut list = list.ok_or_else(|| malformed("extensions"))?;
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    while !list.is_empty() {
        let extension = list.enter(der::SEQUENCE);
        let extension = Extension::read(extension.ok_or_else(|| malformed("extension"))?)?;
        if !seen.insert(extension.id) {
            let problem = "certificate contains duplicate extension with OID";
            return Err(format!("x509: {problem} \"{}\"", dotted(extension.id)));
        }
        found.push(extension);
    }
    let mut key_id = None;
    for extension in found {
        if let Some(id) = extensions::check(&extension)? {
            key_id = Some(id.to_vec());
        }
    }
    Ok(key_id)
}
