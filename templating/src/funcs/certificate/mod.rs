//! Sprig's keys and certificates. Keys and certificates are read and put together here, as Go's `crypto/x509` does it and
//! with its words; aws-lc makes keys and signatures, by way of rcgen.

mod asn1;
mod attributes;
mod cursor;
mod curve;
mod der;
mod extensions;
mod issue;
mod names;
mod parsed;
mod pem;
mod private_key;
mod public_key;
mod rsa;

use golib::base64;
use rcgen::{KeyPair, RsaKeySize};

use self::issue::{Request, Signer};
use self::parsed::Parsed;
use self::private_key::PrivateKey;
use super::argument::Argument;
use super::functions::Functions;
use super::moment;
use crate::error::Error;
use crate::state::State;
use crate::value::{List, Object, Operand, Str, Type, Value};

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
                b"" | b"rsa" => rsa_key(RsaKeySize::_4096),
                b"ecdsa" => made(KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)),
                b"ed25519" => made(KeyPair::generate_for(&rcgen::PKCS_ED25519)),
                b"dsa" => return Err(Error::message("DSA keys are not supported")),
                _ => return Ok(format!("Unknown type {kind}")),
            };
            key.and_then(|key| key.to_pem())
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

/// A key that was made.
fn made(pair: Result<KeyPair, rcgen::Error>) -> Result<PrivateKey, Error> {
    let pair = pair.map_err(|error| Error::message(error.to_string()))?;
    PrivateKey::from_pair(&pair).map_err(Error::message)
}

fn rsa_key(size: RsaKeySize) -> Result<PrivateKey, Error> {
    made(KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size))
}

fn new_key(state: &mut State<'_>) -> Result<PrivateKey, Error> {
    state.spend_steps(KEY_STEPS)?;
    rsa_key(RsaKeySize::_2048).map_err(|error| error.context("error generating rsa key"))
}

fn given_key(state: &mut State<'_>, pem: &[u8]) -> Result<PrivateKey, Error> {
    PrivateKey::from_pem(state, pem).map_err(|error| error.context("parsing private key"))
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

/// Makes the certificate for a key, signed by the authority or by itself.
fn issue(
    state: &mut State<'_>,
    request: &Request,
    key: PrivateKey,
    authority: Option<Certificate>,
) -> Result<Certificate, Error> {
    let signer = match &authority {
        None => None,
        Some(authority) => Some(Signer {
            certificate: read_certificate(&authority.cert, "decodedSignerCert")?,
            key: PrivateKey::from_pem(state, &authority.key)
                .map_err(|error| error.context("error parsing private key"))?,
        }),
    };
    let cert = issue::issue(state, request, &key, signer.as_ref())?;
    Ok(Certificate {
        cert: cert.into(),
        key: key.to_pem()?.into(),
    })
}

/// Reads a certificate in PEM, with Sprig's messages, in which it has a name.
fn read_certificate(text: &[u8], name: &str) -> Result<Parsed, Error> {
    let block = pem::decode(text);
    let block = block.ok_or_else(|| Error::message("unable to decode certificate"))?;
    let failed = |error| {
        let context = format!("error parsing certificate: {name}.Bytes");
        Error::message(error).context(context)
    };
    Parsed::read(&block.content).map_err(failed)
}

fn build_custom_cert(state: &mut State<'_>, cert: Str, key: Str) -> Result<Certificate, Error> {
    let cert = base64::decode(&*cert)
        .map_err(|_| Error::message("unable to decode base64 certificate"))?;
    let key =
        base64::decode(&*key).map_err(|_| Error::message("unable to decode base64 private key"))?;
    read_certificate(&cert, "decodedCert")?;
    PrivateKey::from_pem(state, &key)
        .map_err(|error| error.context("error parsing private key"))?;
    Ok(Certificate {
        cert: cert.into(),
        key: key.into(),
    })
}
