//! Sprig's keys and certificates. Keys and signatures are aws-lc's, by way of rcgen; the certificates are put together
//! here, with the fields and extensions, in the order, that Go's `crypto/x509` gives them.

use std::net::IpAddr;

use golib::base64;
use golib::time::{Time, Zone};
use rcgen::{KeyPair, PublicKeyData as _, RsaKeySize, SigningKey as _};
use sha2::{Digest as _, Sha256};

use super::argument::Argument;
use super::der::{self, Item};
use super::functions::Functions;
use super::moment;
use crate::error::Error;
use crate::fmt;
use crate::state::State;
use crate::value::{LIST, List, Object, Operand, Str, Type, Value};

/// Work that making a key counts for, by what it takes beside the other steps: some 150 ms.
const KEY_STEPS: u64 = 2_000_000;
/// RSA of 4096 bits takes a second, at times two.
const LARGE_KEY_STEPS: u64 = 12_000_000;
const TYPE_NAME: &str = "sprig.certificate";

pub(super) fn add(f: &mut Functions) {
    f.add(
        "genPrivateKey",
        |state: &mut State<'_>, kind: Str| -> Result<String, Error> {
            state.spend_steps(match &*kind {
                b"" | b"rsa" => LARGE_KEY_STEPS,
                _ => KEY_STEPS,
            })?;
            let key = match &*kind {
                b"" | b"rsa" => Key::rsa(RsaKeySize::_4096),
                b"ecdsa" => Key::generate(&rcgen::PKCS_ECDSA_P256_SHA256),
                b"ed25519" => Key::generate(&rcgen::PKCS_ED25519),
                b"dsa" => return Err(Error::message("DSA keys are not supported")),
                _ => return Ok(format!("Unknown type {kind}")),
            };
            key.map(|key| key.pem)
                .map_err(|e| e.context("failed to generate private key"))
        },
    );
    f.add("genCA", |state: &mut State<'_>, name: Str, days: i64| {
        let key = new_key(state)?;
        issue(state, &Request::authority(name, days), key, None)
    });
    f.add(
        "genCAWithKey",
        |state: &mut State<'_>, name: Str, days: i64, pem: Str| {
            let key = given_key(state, &pem)?;
            issue(state, &Request::authority(name, days), key, None)
        },
    );
    f.add(
        "genSelfSignedCert",
        |state: &mut State<'_>, name: Str, ips: List, dns: List, days: i64| {
            let key = new_key(state)?;
            issue(state, &Request::leaf(name, ips, dns, days), key, None)
        },
    );
    f.add(
        "genSelfSignedCertWithKey",
        |state: &mut State<'_>, name: Str, ips: List, dns: List, days: i64, pem: Str| {
            let key = given_key(state, &pem)?;
            issue(state, &Request::leaf(name, ips, dns, days), key, None)
        },
    );
    f.add(
        "genSignedCert",
        |state: &mut State<'_>, name: Str, ips: List, dns: List, days: i64, ca: Certificate| {
            let key = new_key(state)?;
            issue(state, &Request::leaf(name, ips, dns, days), key, Some(ca))
        },
    );
    f.add("genSignedCertWithKey", gen_signed_cert_with_key);
    f.add("buildCustomCert", build_custom_cert);
}

fn gen_signed_cert_with_key(
    state: &mut State<'_>,
    name: Str,
    ips: List,
    dns: List,
    days: i64,
    authority: Certificate,
    pem: Str,
) -> Result<Certificate, Error> {
    let key = given_key(state, &pem)?;
    issue(
        state,
        &Request::leaf(name, ips, dns, days),
        key,
        Some(authority),
    )
}

/// Go's `sprig.certificate`: both parts in PEM.
#[derive(Debug, Clone)]
struct Certificate {
    cert: Str,
    key: Str,
}

impl Object for Certificate {
    fn type_name(&self) -> &'static str {
        TYPE_NAME
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("Cert", self.cert.clone().into()),
            ("Key", self.key.clone().into()),
        ]
    }

    fn equals(&self, other: &dyn Object) -> bool {
        let other = other.downcast_ref::<Self>();
        other.is_some_and(|other| self.cert == other.cert && self.key == other.key)
    }
}

impl Argument for Certificate {
    const TYPE: Type = Type::Object(TYPE_NAME);

    fn take(operand: Operand) -> Option<Self> {
        moment::object(&operand.value)
    }
}

/// A private key and its text as Go writes it for its kind.
struct Key {
    pair: KeyPair,
    pem: String,
}

impl Key {
    fn rsa(size: RsaKeySize) -> Result<Self, Error> {
        KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size)
            .map_err(key_error)
            .and_then(Self::new)
    }

    fn generate(algorithm: &'static rcgen::SignatureAlgorithm) -> Result<Self, Error> {
        KeyPair::generate_for(algorithm)
            .map_err(key_error)
            .and_then(Self::new)
    }

    fn new(pair: KeyPair) -> Result<Self, Error> {
        let pem = key_pem(&pair).ok_or_else(|| Error::message("unable to encode the key"))?;
        Ok(Self { pair, pem })
    }

    /// Reads a key in PEM, with Sprig's messages, for one use.
    fn from_pem(state: &mut State<'_>, text: &[u8]) -> Result<Self, Error> {
        let Some(block) = der::from_pem(text) else {
            return Err(Error::message("no PEM data in input"));
        };
        let what = match block.label.as_str() {
            "PRIVATE KEY" => "decoding PEM as PKCS#8",
            "RSA PRIVATE KEY" => "parsing RSA private key from PEM",
            "EC PRIVATE KEY" => "parsing EC private key from PEM",
            label => {
                let message = match label.strip_suffix(" PRIVATE KEY") {
                    Some("DSA") => "DSA keys are not supported".to_owned(),
                    Some(_) => format!("invalid private key type {label}"),
                    None => format!("no private key data in PEM block of type {label}"),
                };
                return Err(Error::message(message));
            }
        };
        state.spend_steps(use_steps(block.content.len()))?;
        let pair = KeyPair::try_from(block.content.as_slice())
            .map_err(|error| Error::message(format!("{what}: {error}")))?;
        Self::new(pair)
    }
}

/// Work that checking an RSA key and signing with it counts for: it grows with the cube of the key's length.
fn use_steps(length: usize) -> u64 {
    let length = length as u64;
    1_000 + length.saturating_pow(3) / 50_000
}

fn key_error(error: rcgen::Error) -> Error {
    Error::message(error.to_string())
}

fn new_key(state: &mut State<'_>) -> Result<Key, Error> {
    state.spend_steps(KEY_STEPS)?;
    Key::rsa(RsaKeySize::_2048).map_err(|error| error.context("error generating rsa key"))
}

fn given_key(state: &mut State<'_>, pem: &[u8]) -> Result<Key, Error> {
    Key::from_pem(state, pem).map_err(|error| error.context("parsing private key"))
}

/// RSA keys in PKCS#1, ECDSA keys in SEC 1, others in PKCS#8.
fn key_pem(pair: &KeyPair) -> Option<String> {
    let encoded = pair.serialized_der();
    let (whole, _) = der::read(encoded)?;
    let items = whole.items()?;
    // aws-lc hands keys out as PKCS#8: version, algorithm, key.
    let [version, algorithm, key, ..] = items.as_slice() else {
        return None;
    };
    if version.tag != der::INTEGER || algorithm.tag != der::SEQUENCE {
        return Some(to_pem_by_shape(encoded, &items));
    }
    if pair.is_compatible(&rcgen::PKCS_RSA_SHA256) {
        return Some(der::to_pem("RSA PRIVATE KEY", key.content));
    }
    if pair.is_compatible(&rcgen::PKCS_ED25519) {
        // Go writes the first version, without the public key.
        let plain = der::group(
            der::SEQUENCE,
            &[&[der::INTEGER, 1, 0], algorithm.whole, key.whole],
        );
        return Some(der::to_pem("PRIVATE KEY", &plain));
    }
    let curve = algorithm.items()?.get(1)?.whole.to_vec();
    let (inner, _) = der::read(key.content)?;
    let secret = *inner.items()?.get(1)?;
    let sec1 = der::group(
        der::SEQUENCE,
        &[
            &[der::INTEGER, 1, 1],
            secret.whole,
            &der::value(der::context(0), &curve),
            &der::value(der::context(1), &der::bits(pair.der_bytes())),
        ],
    );
    Some(der::to_pem("EC PRIVATE KEY", &sec1))
}

/// Keys that were read in another form than PKCS#8 keep it: SEC 1 has its secret second, PKCS#1 a number.
fn to_pem_by_shape(encoded: &[u8], items: &[Item<'_>]) -> String {
    let is_sec1 = items
        .get(1)
        .is_some_and(|item| item.tag == der::OCTET_STRING);
    der::to_pem(
        if is_sec1 {
            "EC PRIVATE KEY"
        } else {
            "RSA PRIVATE KEY"
        },
        encoded,
    )
}

/// What a certificate shall say.
#[derive(Debug)]
struct Request {
    name: Str,
    ips: List,
    dns: List,
    days: i64,
    is_authority: bool,
}

impl Request {
    fn leaf(name: Str, ips: List, dns: List, days: i64) -> Self {
        Self {
            name,
            ips,
            dns,
            days,
            is_authority: false,
        }
    }

    fn authority(name: Str, days: i64) -> Self {
        Self {
            is_authority: true,
            ..Self::leaf(name, List::nil(&LIST), List::nil(&LIST), days)
        }
    }
}

/// What is needed of the certificate that signs.
struct Issuer {
    subject: Vec<u8>,
    key_id: Option<Vec<u8>>,
    public_key: Vec<u8>,
}

/// Makes the certificate for a key, signed by the authority or by itself.
fn issue(
    state: &mut State<'_>,
    request: &Request,
    key: Key,
    authority: Option<Certificate>,
) -> Result<Certificate, Error> {
    let signer = match &authority {
        None => None,
        Some(authority) => {
            let block = der::from_pem(&authority.cert)
                .ok_or_else(|| Error::message("unable to decode certificate"))?;
            let issuer = read_issuer(&block.content).ok_or_else(|| {
                let message = "error parsing certificate: decodedSignerCert.Bytes";
                Error::message("x509: malformed certificate").context(message)
            })?;
            let key = Key::from_pem(state, &authority.key)
                .map_err(|error| error.context("error parsing private key"))?;
            Some((issuer, key))
        }
    };
    let addresses = addresses(state, &request.ips)?;
    let names = names(state, &request.dns)?;
    let failed = |message: String| Error::message(message).context("error creating certificate");

    let subject = subject(&request.name);
    let public_key = key.pair.subject_public_key_info();
    let (issuer_name, signing_key) = match &signer {
        Some((issuer, key)) => (&issuer.subject, key),
        None => (&subject, &key),
    };
    if let Some((issuer, signing_key)) = &signer
        && issuer.public_key != signing_key.pair.subject_public_key_info()
    {
        let message = "x509: provided PrivateKey doesn't match parent's PublicKey";
        return Err(failed(message.to_owned()));
    }
    let authority_key_id = signer
        .as_ref()
        .and_then(|(issuer, _)| issuer.key_id.clone())
        .filter(|_| *issuer_name != subject);

    let mut serial = [0; 16];
    state.host().fill_random(&mut serial);
    let not_before = moment::now(state).in_zone(Zone::Utc);
    let lifetime = golib::duration::Duration(
        golib::duration::Duration::HOUR
            .0
            .wrapping_mul(24)
            .wrapping_mul(request.days),
    );
    let not_after = not_before.add(lifetime);
    let times = [time(&not_before), time(&not_after)];
    let [Some(not_before), Some(not_after)] = times else {
        let message = "cannot represent time as GeneralizedTime";
        return Err(failed(format!("asn1: structure error: {message}")));
    };

    let algorithm = signature_algorithm(&signing_key.pair)
        .ok_or_else(|| failed("x509: unsupported elliptic curve".to_owned()))?;
    let extensions = extensions(
        request,
        key.pair.der_bytes(),
        authority_key_id.as_deref(),
        &addresses,
        &names,
    );
    let content = der::group(
        der::SEQUENCE,
        &[
            // Version 3.
            &der::value(der::context(0), &[der::INTEGER, 1, 2]),
            &der::unsigned(&serial),
            &algorithm,
            issuer_name,
            &der::group(der::SEQUENCE, &[&not_before, &not_after]),
            &subject,
            &public_key,
            &der::value(der::context(3), &der::value(der::SEQUENCE, &extensions)),
        ],
    );
    let signature = signing_key
        .pair
        .sign(&content)
        .map_err(|error| failed(error.to_string()))?;
    let certificate = der::group(
        der::SEQUENCE,
        &[&content, &algorithm, &der::bits(&signature)],
    );
    Ok(Certificate {
        cert: der::to_pem("CERTIFICATE", &certificate).into(),
        key: key.pem.into(),
    })
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
        if !text.is_ascii() {
            let quoted = golib::strconv::quote(text);
            let message = format!("x509: {quoted} cannot be encoded as an IA5String");
            return Err(Error::message(message).context("error creating certificate"));
        }
        names.push(text.clone());
    }
    Ok(names)
}

/// A name that is only a common name.
fn subject(name: &Str) -> Vec<u8> {
    const COMMON_NAME: &[u8] = &[der::OBJECT_ID, 3, 0x55, 0x04, 0x03];
    if name.is_empty() {
        return der::value(der::SEQUENCE, &[]);
    }
    let is_printable = |b: &u8| b.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(b);
    let tag = if name.iter().all(is_printable) {
        der::PRINTABLE_STRING
    } else {
        der::UTF8_STRING
    };
    let attribute = der::group(der::SEQUENCE, &[COMMON_NAME, &der::value(tag, name)]);
    der::value(der::SEQUENCE, &der::value(der::SET, &attribute))
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
fn signature_algorithm(pair: &KeyPair) -> Option<Vec<u8>> {
    const RSA_SHA256: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 11];
    const ECDSA_SHA256: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 2];
    const ECDSA_SHA384: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 3];
    const ECDSA_SHA512: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 4];
    const ED25519: &[u8] = &[0x2B, 0x65, 0x70];
    const NULL: &[u8] = &[5, 0];
    let algorithm = pair.algorithm();
    let (id, parameters): (_, &[u8]) = if *algorithm == rcgen::PKCS_RSA_SHA256 {
        (RSA_SHA256, NULL)
    } else if *algorithm == rcgen::PKCS_ECDSA_P256_SHA256 {
        (ECDSA_SHA256, &[])
    } else if *algorithm == rcgen::PKCS_ECDSA_P384_SHA384 {
        (ECDSA_SHA384, &[])
    } else if *algorithm == rcgen::PKCS_ECDSA_P521_SHA512 {
        (ECDSA_SHA512, &[])
    } else if *algorithm == rcgen::PKCS_ED25519 {
        (ED25519, &[])
    } else {
        return None;
    };
    Some(der::group(
        der::SEQUENCE,
        &[&der::value(der::OBJECT_ID, id), parameters],
    ))
}

/// The parts of a certificate's content: its fields after the version.
fn certificate_fields(certificate: &[u8]) -> Option<Vec<Item<'_>>> {
    let (whole, rest) = der::read(certificate)?;
    let parts = whole.items()?;
    if whole.tag != der::SEQUENCE || !rest.is_empty() || parts.len() != 3 {
        return None;
    }
    let mut fields = parts[0].items()?;
    if fields
        .first()
        .is_some_and(|field| field.tag == der::context(0))
    {
        fields.remove(0);
    }
    // Serial number, algorithm, issuer, validity, subject, public key.
    (fields.len() >= 6 && fields[0].tag == der::INTEGER).then_some(fields)
}

fn read_issuer(certificate: &[u8]) -> Option<Issuer> {
    let fields = certificate_fields(certificate)?;
    let mut key_id = None;
    if let Some(extensions) = fields.iter().find(|field| field.tag == der::context(3)) {
        let (list, _) = der::read(extensions.content)?;
        for extension in list.items()? {
            let parts = extension.items()?;
            let [id, .., content] = parts.as_slice() else {
                continue;
            };
            if id.content == [0x55, 0x1D, 14] {
                key_id = der::read(content.content).map(|(id, _)| id.content.to_vec());
            }
        }
    }
    Some(Issuer {
        subject: fields[4].whole.to_vec(),
        key_id,
        public_key: fields[5].whole.to_vec(),
    })
}

fn build_custom_cert(state: &mut State<'_>, cert: Str, key: Str) -> Result<Certificate, Error> {
    let cert = base64::decode(&*cert)
        .map_err(|_| Error::message("unable to decode base64 certificate"))?;
    let key =
        base64::decode(&*key).map_err(|_| Error::message("unable to decode base64 private key"))?;
    let block =
        der::from_pem(&cert).ok_or_else(|| Error::message("unable to decode certificate"))?;
    if certificate_fields(&block.content).is_none() {
        let message = "error parsing certificate: decodedCert.Bytes";
        return Err(Error::message("x509: malformed certificate").context(message));
    }
    Key::from_pem(state, &key).map_err(|error| error.context("error parsing private key"))?;
    Ok(Certificate {
        cert: cert.into(),
        key: key.into(),
    })
}
