//! Private keys as Sprig reads them, with Go's words, and as Go writes them.

use rcgen::{KeyPair, PublicKeyData as _};

use super::asn1::{self, Reader, Result};
use super::curve::Curve;
use super::public_key::{EC_ID, ED25519_ID, PublicKey, RSA_ID, X25519_ID};
use super::rsa::{Numbers, RsaKey};
use super::{der, pem};
use crate::error::Error;
use crate::state::State;

/// A private key of one of the kinds that Go reads.
#[derive(Clone)]
pub(super) enum PrivateKey {
    Rsa(Box<RsaKey>),
    Ec {
        curve: &'static Curve,
        /// Of the curve's length.
        secret: Vec<u8>,
    },
    Ed25519([u8; 32]),
    X25519,
    Dsa,
}

impl PrivateKey {
    /// Reads a key in PEM, for one use.
    pub(super) fn from_pem(state: &mut State<'_>, text: &[u8]) -> std::result::Result<Self, Error> {
        let Some(block) = pem::decode(text) else {
            return Err(Error::message("no PEM data in input"));
        };
        let read: fn(&[u8]) -> Result<Self> = match block.label.as_slice() {
            b"PRIVATE KEY" => {
                |text| pkcs8(text).map_err(|e| format!("decoding PEM as PKCS#8: {e}"))
            }
            b"RSA PRIVATE KEY" => |text| {
                let key = pkcs1(text).map_err(|e| format!("parsing RSA private key from PEM: {e}"));
                key.map(|key| Self::Rsa(Box::new(key)))
            },
            b"EC PRIVATE KEY" => {
                |text| sec1(None, text).map_err(|e| format!("parsing EC private key from PEM: {e}"))
            }
            b"DSA PRIVATE KEY" => |text| {
                dsa(text).map_err(|e| format!("parsing DSA private key from PEM: {e}"))?;
                Ok(Self::Dsa)
            },
            label => {
                let text = String::from_utf8_lossy(label);
                return Err(Error::message(if label.ends_with(b" PRIVATE KEY") {
                    format!("invalid private key type {text}")
                } else {
                    format!("no private key data in PEM block of type {text}")
                }));
            }
        };
        state.spend_steps(use_steps(block.content.len()))?;
        state.spend_steps(inverse_steps(&block.content))?;
        read(&block.content).map_err(Error::message)
    }

    /// A key that was made here.
    pub(super) fn from_pair(pair: &KeyPair) -> Result<Self> {
        pkcs8(pair.serialized_der())
    }

    /// RSA keys in PKCS#1, those of a curve in SEC 1, others in PKCS#8.
    pub(super) fn to_pem(&self) -> std::result::Result<String, Error> {
        Ok(match self {
            Self::Rsa(key) => pem::encode("RSA PRIVATE KEY", &key.to_der()),
            Self::Ec { curve, secret } => {
                let PublicKey::Ec { point, .. } = self.public()? else {
                    return Err(unusable("of its kind"));
                };
                let id = der::value(der::OBJECT_ID, curve.id);
                let sec1 = der::group(
                    der::SEQUENCE,
                    &[
                        &[der::INTEGER, 1, 1],
                        &der::value(der::OCTET_STRING, secret),
                        &der::value(der::context(0), &id),
                        &der::value(der::context(1), &der::bits(&point)),
                    ],
                );
                pem::encode("EC PRIVATE KEY", &sec1)
            }
            Self::Ed25519(_) => pem::encode("PRIVATE KEY", &self.to_pkcs8()),
            Self::X25519 | Self::Dsa => return Err(unusable("of its kind")),
        })
    }

    /// The public part, which for some kinds only aws-lc can tell.
    pub(super) fn public(&self) -> std::result::Result<PublicKey, Error> {
        Ok(match self {
            Self::Rsa(key) => PublicKey::Rsa {
                modulus: key.modulus.clone().into(),
                exponent: key.exponent,
            },
            Self::Ec { curve, .. } => PublicKey::Ec {
                curve,
                point: self.pair()?.der_bytes().to_vec(),
            },
            Self::Ed25519(_) => PublicKey::Ed25519(self.pair()?.der_bytes().to_vec()),
            Self::X25519 => PublicKey::X25519,
            Self::Dsa => PublicKey::Dsa,
        })
    }

    /// The key as aws-lc takes it, if it does.
    pub(super) fn pair(&self) -> std::result::Result<KeyPair, Error> {
        KeyPair::try_from(self.to_pkcs8()).map_err(|_| match self {
            Self::Rsa(key) if !key.has_two_primes() => unusable("of more than two primes"),
            Self::Rsa(key) => unusable(&format!("of RSA with {} bits", key.bits())),
            Self::Ec { curve, .. } => unusable(&format!("of the curve {}", curve.name)),
            _ => unusable("of its kind"),
        })
    }

    fn to_pkcs8(&self) -> Vec<u8> {
        let id = |id: &[u8]| der::value(der::OBJECT_ID, id);
        let (algorithm, key) = match self {
            Self::Rsa(key) => ([&id(RSA_ID), der::NULL].concat(), key.to_der()),
            Self::Ec { curve, secret } => (
                [id(EC_ID), id(curve.id)].concat(),
                der::group(
                    der::SEQUENCE,
                    &[
                        &[der::INTEGER, 1, 1],
                        &der::value(der::OCTET_STRING, secret),
                    ],
                ),
            ),
            Self::Ed25519(seed) => (id(ED25519_ID), der::value(der::OCTET_STRING, seed)),
            Self::X25519 | Self::Dsa => (Vec::new(), Vec::new()),
        };
        der::group(
            der::SEQUENCE,
            &[
                &[der::INTEGER, 1, 0],
                &der::value(der::SEQUENCE, &algorithm),
                &der::value(der::OCTET_STRING, &key),
            ],
        )
    }
}

/// Work that checking an RSA key and signing with it counts for: it grows with the cube of the key's length.
fn use_steps(length: usize) -> u64 {
    let length = length as u64;
    1_000 + length.saturating_pow(3) / 50_000
}

/// Work that numbers of an RSA key count for that it does not bring along.
fn inverse_steps(text: &[u8]) -> u64 {
    let numbers = Pkcs8::read(text).map_or(text, |key| key.key);
    Numbers::read(numbers).map_or(0, |(numbers, _)| numbers.inverse_steps())
}

/// A key that Go uses and we cannot.
fn unusable(what: &str) -> Error {
    Error::message(format!("keys {what} cannot be used here"))
}

/// The fields of PKCS#8 that count.
struct Pkcs8<'a> {
    algorithm: &'a [u8],
    /// The parameters behind the algorithm, with their header; empty if there are none.
    parameters: &'a [u8],
    key: &'a [u8],
}

impl<'a> Pkcs8<'a> {
    fn read(text: &'a [u8]) -> Result<Self> {
        let mut fields = Reader::new(text).sequence("pkcs8")?;
        fields.int()?;
        let mut algorithm = fields.sequence("AlgorithmIdentifier")?;
        Ok(Self {
            algorithm: algorithm.object_id()?,
            parameters: algorithm.optional_any()?,
            key: fields.bytes()?,
        })
    }
}

/// The fields of SEC 1 that count.
struct Sec1<'a> {
    version: i64,
    secret: &'a [u8],
    /// Empty if it is not there.
    curve: &'a [u8],
}

impl<'a> Sec1<'a> {
    fn read(text: &'a [u8]) -> Result<Self> {
        let mut fields = Reader::new(text).sequence("ecPrivateKey")?;
        let key = Self {
            version: fields.int()?,
            secret: fields.bytes()?,
            curve: fields.explicit_object_id(0)?,
        };
        fields.explicit_bits(1)?;
        Ok(key)
    }
}

/// The words for a key in another format, or those of the one that was tried.
fn other_format(text: &[u8], error: String, others: [Format; 2]) -> String {
    for other in others {
        let is_read = match other {
            Format::Pkcs1 => Numbers::read(text).is_ok(),
            Format::Pkcs8 => Pkcs8::read(text).is_ok(),
            Format::Sec1 => Sec1::read(text).is_ok(),
        };
        if is_read {
            let function = match other {
                Format::Pkcs1 => "ParsePKCS1PrivateKey",
                Format::Pkcs8 => "ParsePKCS8PrivateKey",
                Format::Sec1 => "ParseECPrivateKey",
            };
            return format!(
                "x509: failed to parse private key (use {function} instead for this key format)"
            );
        }
    }
    error
}

#[derive(Clone, Copy)]
enum Format {
    Pkcs1,
    Pkcs8,
    Sec1,
}

/// Go's `x509.ParsePKCS1PrivateKey`.
fn pkcs1(text: &[u8]) -> Result<RsaKey> {
    let (numbers, rest) = Numbers::read(text)
        .map_err(|error| other_format(text, error, [Format::Sec1, Format::Pkcs8]))?;
    if !rest.is_empty() {
        return Err(asn1::syntax("trailing data"));
    }
    RsaKey::new(numbers)
}

/// Go's `x509.ParsePKCS8PrivateKey`.
fn pkcs8(text: &[u8]) -> Result<PrivateKey> {
    let key = Pkcs8::read(text)
        .map_err(|error| other_format(text, error, [Format::Sec1, Format::Pkcs1]))?;
    let embedded = |kind: &str, error: String| {
        format!("x509: failed to parse {kind} private key embedded in PKCS#8: {error}")
    };
    match key.algorithm {
        RSA_ID => pkcs1(key.key)
            .map(|key| PrivateKey::Rsa(Box::new(key)))
            .map_err(|error| embedded("RSA", error)),
        EC_ID => {
            let curve = Reader::new(key.parameters).object_id().ok();
            sec1(curve, key.key).map_err(|error| embedded("EC", error))
        }
        ED25519_ID => {
            let seed = edwards(&key, "Ed25519")?;
            let length = seed.len();
            let seed = <[u8; 32]>::try_from(seed);
            seed.map(PrivateKey::Ed25519)
                .map_err(|_| format!("x509: invalid Ed25519 private key length: {length}"))
        }
        X25519_ID if edwards(&key, "X25519")?.len() == 32 => Ok(PrivateKey::X25519),
        X25519_ID => Err("crypto/ecdh: invalid private key size".to_owned()),
        other => {
            let problem = "x509: PKCS#8 wrapping contained private key with unknown algorithm";
            Err(format!("{problem}: {}", asn1::dotted(other)))
        }
    }
}

/// The secret of a key of one of the curves that have their own algorithm.
fn edwards<'a>(key: &Pkcs8<'a>, name: &str) -> Result<&'a [u8]> {
    if !key.parameters.is_empty() {
        return Err(format!("x509: invalid {name} private key parameters"));
    }
    let secret = Reader::new(key.key).bytes();
    secret.map_err(|error| format!("x509: invalid {name} private key: {error}"))
}

/// Go's `x509.ParseECPrivateKey`, with the curve where another place names it.
fn sec1(curve: Option<&[u8]>, text: &[u8]) -> Result<PrivateKey> {
    let key = Sec1::read(text).map_err(|error| {
        let error = format!("x509: failed to parse EC private key: {error}");
        other_format(text, error, [Format::Pkcs8, Format::Pkcs1])
    })?;
    if key.version != 1 {
        let version = key.version;
        return Err(format!("x509: unknown EC private key version {version}"));
    }
    let Some(curve) = Curve::of_id(curve.unwrap_or(key.curve)) else {
        return Err("x509: unknown elliptic curve".to_owned());
    };
    // Zeros before the secret count for nothing, and may be missing.
    let excess = key.secret.len().saturating_sub(curve.bytes);
    let (zeros, digits) = key.secret.split_at(excess);
    if zeros.iter().any(|&byte| byte != 0) {
        return Err("x509: invalid private key length".to_owned());
    }
    let mut secret = vec![0; curve.bytes - digits.len()];
    secret.extend_from_slice(digits);
    curve.check_secret(&secret)?;
    Ok(PrivateKey::Ec { curve, secret })
}

/// Checks a DSA key, which nothing can be made with.
fn dsa(text: &[u8]) -> Result<()> {
    let mut fields = Reader::new(text).sequence("DSAKeyFormat")?;
    fields.int()?;
    for _ in ["P", "Q", "G", "Y", "X"] {
        fields.big_int()?;
    }
    Ok(())
}
