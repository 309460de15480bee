//! Certificates as Go's `x509.CreateCertificate` makes them: the fields and extensions, in their order.

use std::net::IpAddr;

use golib::duration::Duration;
use golib::time::{Time, Zone};
use rcgen::{KeyPair, SigningKey as _};
use sha2::{Digest as _, Sha256};

use super::super::moment;
use super::parsed::Parsed;
use super::private_key::PrivateKey;
use super::{der, pem};
use crate::error::Error;
use crate::fmt;
use crate::state::State;
use crate::value::{LIST, List, Str, Value};

/// What a certificate shall say.
#[derive(Debug)]
pub(super) struct Request {
    name: Str,
    ips: List,
    dns: List,
    days: i64,
    is_authority: bool,
}

impl Request {
    pub(super) fn leaf(name: Str, ips: List, dns: List, days: i64) -> Self {
        Self {
            name,
            ips,
            dns,
            days,
            is_authority: false,
        }
    }

    pub(super) fn authority(name: Str, days: i64) -> Self {
        Self {
            is_authority: true,
            ..Self::leaf(name, List::nil(&LIST), List::nil(&LIST), days)
        }
    }
}

/// The signer of a certificate.
pub(super) struct Signer {
    pub(super) certificate: Parsed,
    pub(super) key: PrivateKey,
}

/// The certificate for a key in PEM, signed by another one's key or by itself.
pub(super) fn issue(
    state: &mut State<'_>,
    request: &Request,
    key: &PrivateKey,
    signer: Option<&Signer>,
) -> Result<String, Error> {
    let addresses = addresses(state, &request.ips)?;
    let names = names(state, &request.dns)?;
    let certificate = create(state, request, key, signer, &addresses, &names)
        .map_err(|error| error.context("error creating certificate"))?;
    Ok(pem::encode("CERTIFICATE", &certificate))
}

/// The certificate itself. What is wrong is found in Go's order.
fn create(
    state: &mut State<'_>,
    request: &Request,
    key: &PrivateKey,
    signer: Option<&Signer>,
    addresses: &[IpAddr],
    names: &[Str],
) -> Result<Vec<u8>, Error> {
    let signing_key = signer.map_or(key, |signer| &signer.key);
    if matches!(signing_key, PrivateKey::X25519 | PrivateKey::Dsa) {
        let problem = "certificate private key does not implement crypto.Signer";
        return Err(Error::message(format!("x509: {problem}")));
    }
    let public_key = key.public()?;
    let public_key_info = public_key
        .to_der()
        .map_err(|kind| Error::message(format!("x509: unsupported public key type: {kind}")))?;
    let subject = subject(&request.name).map_err(Error::message)?;
    let issuer = signer.map_or(&subject, |signer| &signer.certificate.subject);
    if let Some(signer) = signer
        && let Some(expected) = &signer.certificate.public_key
        && signer.key.public()? != *expected
    {
        let problem = "provided PrivateKey doesn't match parent's PublicKey";
        return Err(Error::message(format!("x509: {problem}")));
    }
    if let Some(name) = names.iter().find(|name| !name.is_ascii()) {
        let name = golib::strconv::quote(name);
        let problem = format!("x509: {name} cannot be encoded as an IA5String");
        return Err(Error::message(problem));
    }
    let authority_key_id = signer
        .and_then(|signer| signer.certificate.key_id.as_deref())
        .filter(|id| *issuer != subject && !id.is_empty());
    let extensions = extensions(
        request,
        &public_key.bytes(),
        authority_key_id,
        addresses,
        names,
    );
    let validity = validity(state, request.days).map_err(Error::message)?;
    let pair = signing_pair(signing_key)?;
    let algorithm = signature_algorithm(&pair);
    let mut serial = [0; 16];
    state.host().fill_random(&mut serial);
    let content = der::group(
        der::SEQUENCE,
        &[
            // Version 3.
            &der::value(der::context(0), &[der::INTEGER, 1, 2]),
            &der::unsigned(&serial),
            &algorithm,
            issuer,
            &validity,
            &subject,
            &public_key_info,
            &der::value(der::context(3), &der::value(der::SEQUENCE, &extensions)),
        ],
    );
    let signature = pair
        .sign(&content)
        .map_err(|error| Error::message(error.to_string()))?;
    Ok(der::group(
        der::SEQUENCE,
        &[&content, &algorithm, &der::bits(&signature)],
    ))
}

/// The key as aws-lc takes it to sign.
fn signing_pair(key: &PrivateKey) -> Result<KeyPair, Error> {
    const MIN_BITS: u64 = 1024;
    match key {
        PrivateKey::Rsa(key) if key.bits() < MIN_BITS => {
            let bits = key.bits();
            let page = "https://go.dev/pkg/crypto/rsa#hdr-Minimum_key_size";
            Err(Error::message(format!(
                "crypto/rsa: {bits}-bit keys are insecure (see {page})"
            )))
        }
        key => key.pair(),
    }
}

/// How long a certificate holds, from now on.
fn validity(state: &State<'_>, days: i64) -> Result<Vec<u8>, String> {
    let not_before = moment::now(state).in_zone(Zone::Utc);
    let lifetime = Duration(Duration::HOUR.0.wrapping_mul(24).wrapping_mul(days));
    let times = [time(&not_before), time(&not_before.add(lifetime))];
    match times {
        [Some(not_before), Some(not_after)] => {
            Ok(der::group(der::SEQUENCE, &[&not_before, &not_after]))
        }
        _ => Err(super::asn1::structure(
            "cannot represent time as GeneralizedTime",
        )),
    }
}

fn addresses(state: &mut State<'_>, ips: &List) -> Result<Vec<IpAddr>, Error> {
    let mut addresses = Vec::new();
    for ip in ips.iter() {
        let Value::Str(text) = ip else {
            let text = fmt::to_text(state, ip)?;
            return Err(Error::message(format!(
                "error parsing ip: {text} is not a string"
            )));
        };
        let address = text.as_str().and_then(|text| text.parse::<IpAddr>().ok());
        let bad = || Error::message(format!("error parsing ip: {text}"));
        // Go holds and writes an IPv4 address that was written as IPv6 as what it is.
        addresses.push(address.ok_or_else(bad)?.to_canonical());
    }
    Ok(addresses)
}

fn names(state: &mut State<'_>, dns: &List) -> Result<Vec<Str>, Error> {
    let mut names = Vec::new();
    for name in dns.iter() {
        let Value::Str(text) = name else {
            let text = fmt::to_text(state, name)?;
            let what = "error processing alternate dns name";
            return Err(Error::message(format!("{what}: {text} is not a string")));
        };
        names.push(text.clone());
    }
    Ok(names)
}

/// A name that is only a common name.
fn subject(name: &Str) -> Result<Vec<u8>, String> {
    const COMMON_NAME: &[u8] = &[der::OBJECT_ID, 3, 0x55, 0x04, 0x03];
    if name.is_empty() {
        return Ok(der::value(der::SEQUENCE, &[]));
    }
    let is_printable = |b: &u8| b.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(b);
    let tag = if name.iter().all(is_printable) {
        der::PRINTABLE_STRING
    } else if name.as_str().is_some() {
        der::UTF8_STRING
    } else {
        return Err("asn1: string not valid UTF-8".to_owned());
    };
    let attribute = der::group(der::SEQUENCE, &[COMMON_NAME, &der::value(tag, name)]);
    let name = der::value(der::SET, &attribute);
    Ok(der::value(der::SEQUENCE, &name))
}

/// A time in the form its year asks for; none for years beyond four digits.
fn time(time: &Time) -> Option<Vec<u8>> {
    match time.date().year {
        1950..=2049 => Some(der::value(der::UTC_TIME, &time.format("060102150405Z"))),
        0..=9999 => Some(der::value(
            der::GENERALIZED_TIME,
            &time.format("20060102150405Z"),
        )),
        _ => None,
    }
}

/// The extensions in Go's order: key usage, extended key usage, basic constraints, key identifiers, alternative names.
fn extensions(
    request: &Request,
    public_key: &[u8],
    authority_key_id: Option<&[u8]>,
    addresses: &[IpAddr],
    names: &[Str],
) -> Vec<u8> {
    const SERVER_AUTH: &[u8] = &[der::OBJECT_ID, 8, 0x2B, 6, 1, 5, 5, 7, 3, 1];
    const CLIENT_AUTH: &[u8] = &[der::OBJECT_ID, 8, 0x2B, 6, 1, 5, 5, 7, 3, 2];
    let mut out = Vec::new();
    // Digital signature and key encipherment; authorities sign certificates too.
    let usage: &[u8] = if request.is_authority {
        &[2, 0b1010_0100]
    } else {
        &[5, 0b1010_0000]
    };
    out.extend(extension(15, true, &der::value(der::BIT_STRING, usage)));
    out.extend(extension(
        37,
        false,
        &der::group(der::SEQUENCE, &[SERVER_AUTH, CLIENT_AUTH]),
    ));
    let constraints: &[u8] = if request.is_authority {
        &[1, 1, 0xFF]
    } else {
        &[]
    };
    out.extend(extension(19, true, &der::value(der::SEQUENCE, constraints)));
    if request.is_authority {
        let digest = Sha256::digest(public_key);
        out.extend(extension(
            14,
            false,
            &der::value(der::OCTET_STRING, &digest[..20]),
        ));
    }
    if let Some(id) = authority_key_id {
        let id = der::value(0x80, id);
        out.extend(extension(35, false, &der::value(der::SEQUENCE, &id)));
    }
    if !addresses.is_empty() || !names.is_empty() {
        let mut alternatives = Vec::new();
        for name in names {
            alternatives.extend(der::value(0x82, name));
        }
        for address in addresses {
            alternatives.extend(match address {
                IpAddr::V4(address) => der::value(0x87, &address.octets()),
                IpAddr::V6(address) => der::value(0x87, &address.octets()),
            });
        }
        let is_critical = request.name.is_empty();
        out.extend(extension(
            17,
            is_critical,
            &der::value(der::SEQUENCE, &alternatives),
        ));
    }
    out
}

/// An extension of the arc 2.5.29.
fn extension(id: u8, is_critical: bool, content: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if is_critical { &[1, 1, 0xFF] } else { &[] };
    let id = [der::OBJECT_ID, 3, 0x55, 0x1D, id];
    der::group(
        der::SEQUENCE,
        &[&id, critical, &der::value(der::OCTET_STRING, content)],
    )
}

/// How a key signs, as Go chooses it.
fn signature_algorithm(pair: &KeyPair) -> Vec<u8> {
    const RSA_SHA256: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 11];
    const ECDSA_SHA256: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 2];
    const ECDSA_SHA384: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 3];
    const ECDSA_SHA512: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 4];
    const ED25519: &[u8] = &[0x2B, 0x65, 0x70];
    let algorithm = pair.algorithm();
    let (id, parameters): (_, &[u8]) = if *algorithm == rcgen::PKCS_ECDSA_P256_SHA256 {
        (ECDSA_SHA256, &[])
    } else if *algorithm == rcgen::PKCS_ECDSA_P384_SHA384 {
        (ECDSA_SHA384, &[])
    } else if *algorithm == rcgen::PKCS_ECDSA_P521_SHA512 {
        (ECDSA_SHA512, &[])
    } else if *algorithm == rcgen::PKCS_ED25519 {
        (ED25519, &[])
    } else {
        (RSA_SHA256, der::NULL)
    };
    let id = der::value(der::OBJECT_ID, id);
    der::group(der::SEQUENCE, &[&id, parameters])
}
