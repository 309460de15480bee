//! Packets: their headers, the numbers in them, and public keys.

use aws_lc_rs::signature::{self, RsaParameters, VerificationAlgorithm};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};

use super::error::PgpError;

/// Packets that one block may have.
const MAX_PACKETS: usize = 10_000;

pub(super) const SIGNATURE: u8 = 2;
pub(super) const PUBLIC_KEY: u8 = 6;
pub(super) const USER_ID: u8 = 13;
pub(super) const PUBLIC_SUBKEY: u8 = 14;
pub(super) const USER_ATTRIBUTE: u8 = 17;

fn malformed(problem: impl Into<String>) -> PgpError {
    PgpError::Malformed(problem.into())
}

/// A packet: its type and its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub(super) tag: u8,
    pub(super) body: &'a [u8],
}

/// Reads from a slice; every read says whether there was enough.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], PgpError> {
        if count > self.0.len() {
            return Err(malformed("it ends too early"));
        }
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, PgpError> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Result<usize, PgpError> {
        let bytes = self.take(2)?;
        Ok(usize::from(bytes[0]) << 8 | usize::from(bytes[1]))
    }

    pub(super) fn u32(&mut self) -> Result<u32, PgpError> {
        let bytes = self.take(4)?;
        Ok(bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
    }

    /// A multiprecision integer: its length in bits, its bytes without leading zeros.
    pub(super) fn number(&mut self) -> Result<&'a [u8], PgpError> {
        let bits = self.u16()?;
        let bytes = self.take(bits.div_ceil(8))?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        Ok(&bytes[zeros..])
    }
}

/// The packets of a block.
pub(super) fn packets(bytes: &[u8]) -> Result<Vec<Packet<'_>>, PgpError> {
    let mut reader = Reader(bytes);
    let mut packets = Vec::new();
    while !reader.0.is_empty() {
        if packets.len() == MAX_PACKETS {
            return Err(malformed(format!("more than {MAX_PACKETS} packets")));
        }
        let header = reader.byte()?;
        if header & 0x80 == 0 {
            return Err(malformed("a packet has no header"));
        }
        let (tag, length) = match header & 0x40 {
            0 => {
                let length = match header & 3 {
                    0 => usize::from(reader.byte()?),
                    1 => reader.u16()?,
                    2 => reader.u32()? as usize,
                    _ => return Err(malformed("a packet has no length")),
                };
                (header >> 2 & 0xf, length)
            }
            _ => {
                let length = match reader.byte()? {
                    first @ ..192 => usize::from(first),
                    first @ 192..224 => {
                        ((usize::from(first) - 192) << 8) + usize::from(reader.byte()?) + 192
                    }
                    255 => reader.u32()? as usize,
                    _ => return Err(malformed("a packet comes in parts")),
                };
                (header & 0x3f, length)
            }
        };
        packets.push(Packet {
            tag,
            body: reader.take(length)?,
        });
    }
    Ok(packets)
}

/// Hash algorithms that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    /// In a keyring alone: keys made long ago vouch for their own names so.
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    pub(super) fn of(number: u8) -> Result<Self, String> {
        match number {
            2 => Ok(Self::Sha1),
            8 => Ok(Self::Sha256),
            9 => Ok(Self::Sha384),
            10 => Ok(Self::Sha512),
            1 => Err("MD5 does not count".to_owned()),
            3 => Err("RIPEMD-160 does not count".to_owned()),
            other => Err(format!("hash algorithm {other} is not supported")),
        }
    }

    pub(super) fn digest(self, parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Sha1 => hashed::<Sha1>(parts),
            Self::Sha256 => hashed::<Sha256>(parts),
            Self::Sha384 => hashed::<Sha384>(parts),
            Self::Sha512 => hashed::<Sha512>(parts),
        }
    }
}

fn hashed<D: sha2::Digest>(parts: &[&[u8]]) -> Vec<u8> {
    let mut hash = D::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().to_vec()
}

/// What a key's signatures are checked with.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    Ecdsa {
        curve: Curve,
        point: Vec<u8>,
    },
    Ed25519([u8; 32]),
    /// Not one that signs, or not one that we know.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Curve {
    P256,
    P384,
    P521,
}

const CURVES: [(&[u8], Curve); 3] = [
    (
        &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
        Curve::P256,
    ),
    (&[0x2b, 0x81, 0x04, 0x00, 0x22], Curve::P384),
    (&[0x2b, 0x81, 0x04, 0x00, 0x23], Curve::P521),
];
const ED25519_LEGACY: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01];

const RSA: [u8; 2] = [1, 3];
const ECDSA: u8 = 19;
const EDDSA_LEGACY: u8 = 22;
const ED25519: u8 = 27;

/// A public key, primary or subkey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PublicKey {
    /// The packet's body, which certifications are about.
    pub(super) body: Vec<u8>,
    /// Seconds since 1970.
    pub(super) created: u32,
    pub(super) fingerprint: [u8; 20],
    algorithm: u8,
    material: Material,
}

impl PublicKey {
    pub(super) fn parse(body: &[u8]) -> Result<Self, PgpError> {
        let mut reader = Reader(body);
        let version = reader.byte()?;
        if version != 4 {
            return Err(malformed(format!(
                "a key of version {version}; version 4 is supported"
            )));
        }
        let created = reader.u32()?;
        let algorithm = reader.byte()?;
        let oid = |reader: &mut Reader<'_>| {
            let length = reader.byte()?;
            reader.take(usize::from(length)).map(<[u8]>::to_vec)
        };
        let material = match algorithm {
            _ if RSA.contains(&algorithm) => Material::Rsa {
                modulus: reader.number()?.to_vec(),
                exponent: reader.number()?.to_vec(),
            },
            ECDSA => {
                let oid = oid(&mut reader)?;
                let point = reader.number()?.to_vec();
                let curve = CURVES.iter().find(|(known, _)| *known == oid);
                match curve {
                    Some((_, curve)) => Material::Ecdsa {
                        curve: *curve,
                        point,
                    },
                    None => Material::Other,
                }
            }
            EDDSA_LEGACY => {
                let oid = oid(&mut reader)?;
                match reader.number()? {
                    [0x40, point @ ..] if oid == ED25519_LEGACY => {
                        point.try_into().map_or(Material::Other, Material::Ed25519)
                    }
                    _ => Material::Other,
                }
            }
            ED25519 => reader
                .take(32)?
                .try_into()
                .map_or(Material::Other, Material::Ed25519),
            _ => Material::Other,
        };
        let length = u16::try_from(body.len()).map_err(|_| malformed("a key is too long"))?;
        let fingerprint = Hash::Sha1.digest(&[&[0x99], &length.to_be_bytes(), body]);
        Ok(Self {
            body: body.to_vec(),
            created,
            fingerprint: fingerprint
                .try_into()
                .map_err(|_| malformed("a fingerprint"))?,
            algorithm,
            material,
        })
    }

    /// The last eight bytes of the fingerprint.
    pub(super) fn id(&self) -> &[u8] {
        &self.fingerprint[12..]
    }

    /// As signatures over the key hash it.
    pub(super) fn hashed(&self) -> Vec<u8> {
        // Its length was checked when it was read.
        let length = u16::try_from(self.body.len()).unwrap_or(u16::MAX);
        [&[0x99], &length.to_be_bytes()[..], &self.body].concat()
    }

    /// Whether `values` are this key's signature, by `algorithm` and `hash`, over the parts. The key decides what is checked: a
    /// signature that claims another algorithm is not by this key.
    pub(super) fn verify(
        &self,
        algorithm: u8,
        hash: Hash,
        parts: &[&[u8]],
        values: &[u8],
    ) -> Result<(), String> {
        let is_same = algorithm == self.algorithm
            || (RSA.contains(&algorithm) && RSA.contains(&self.algorithm));
        if !is_same {
            return Err("the signature is of another algorithm than the key".to_owned());
        }
        let wrong = |_| "the signature does not match".to_owned();
        let short = |_: PgpError| "the signature is malformed".to_owned();
        let mut reader = Reader(values);
        match &self.material {
            Material::Rsa { modulus, exponent } => {
                if modulus.len() < 256 {
                    let bits = modulus.len() * 8;
                    return Err(format!("RSA keys need 2048 bits, this one has {bits}"));
                }
                let number = reader.number().map_err(short)?;
                // Leading zeros were cut off, the library wants all of its length.
                let mut padded = vec![0; modulus.len().saturating_sub(number.len())];
                padded.extend_from_slice(number);
                let parameters: &RsaParameters = match hash {
                    Hash::Sha1 => &signature::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
                    Hash::Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    Hash::Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Hash::Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                };
                let key = signature::RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                key.verify(parameters, &parts.concat(), &padded)
                    .map_err(wrong)
            }
            Material::Ecdsa { curve, point } => {
                let r = reader.number().map_err(short)?;
                let s = reader.number().map_err(short)?;
                let algorithm: &dyn VerificationAlgorithm = match (curve, hash) {
                    (Curve::P256, Hash::Sha1) => &signature::ECDSA_P256_SHA1_ASN1,
                    (Curve::P256, Hash::Sha256) => &signature::ECDSA_P256_SHA256_ASN1,
                    (Curve::P256, Hash::Sha384) => &signature::ECDSA_P256_SHA384_ASN1,
                    (Curve::P256, Hash::Sha512) => &signature::ECDSA_P256_SHA512_ASN1,
                    (Curve::P384, Hash::Sha256) => &signature::ECDSA_P384_SHA256_ASN1,
                    (Curve::P384, Hash::Sha384) => &signature::ECDSA_P384_SHA384_ASN1,
                    (Curve::P384, Hash::Sha512) => &signature::ECDSA_P384_SHA512_ASN1,
                    (Curve::P521, Hash::Sha1) => &signature::ECDSA_P521_SHA1_ASN1,
                    (Curve::P521, Hash::Sha256) => &signature::ECDSA_P521_SHA256_ASN1,
                    (Curve::P521, Hash::Sha384) => &signature::ECDSA_P521_SHA384_ASN1,
                    (Curve::P521, Hash::Sha512) => &signature::ECDSA_P521_SHA512_ASN1,
                    (Curve::P384, Hash::Sha1) => {
                        return Err("SHA-1 on P-384 is not supported".to_owned());
                    }
                };
                algorithm
                    .verify_sig(point, &parts.concat(), &asn1(r, s)?)
                    .map_err(wrong)
            }
            Material::Ed25519(point) => {
                let fixed = match algorithm {
                    ED25519 => reader.take(64).map_err(short)?.to_vec(),
                    _ => {
                        let r = reader.number().map_err(short)?;
                        let s = reader.number().map_err(short)?;
                        [fixed(r, 32)?, fixed(s, 32)?].concat()
                    }
                };
                let key = signature::UnparsedPublicKey::new(&signature::ED25519, point);
                key.verify(&hash.digest(parts), &fixed).map_err(wrong)
            }
            Material::Other => Err(format!(
                "keys of algorithm {} are not supported",
                self.algorithm
            )),
        }
    }
}

/// A number with zeros in front.
fn fixed(number: &[u8], size: usize) -> Result<Vec<u8>, String> {
    if number.len() > size {
        return Err("the signature is malformed".to_owned());
    }
    let mut fixed = vec![0; size - number.len()];
    fixed.extend_from_slice(number);
    Ok(fixed)
}

/// Two numbers without leading zeros as a sequence of ASN.1, in its distinguished encoding.
fn asn1(r: &[u8], s: &[u8]) -> Result<Vec<u8>, String> {
    let long = |_| "the signature is malformed".to_owned();
    let mut numbers = Vec::new();
    for number in [r, s] {
        // The first bit is the sign's.
        let sign: &[u8] = match number.first() {
            None | Some(0x80..) => &[0],
            Some(_) => &[],
        };
        let length = u8::try_from(sign.len() + number.len()).map_err(long)?;
        let header = [0x02, length];
        // No curve's numbers are longer than what one byte of length tells.
        if length > 0x7f {
            return Err("the signature is malformed".to_owned());
        }
        numbers.extend([&header, sign, number].concat());
    }
    let header = match u8::try_from(numbers.len()).map_err(long)? {
        length @ ..0x80 => vec![0x30, length],
        length => vec![0x30, 0x81, length],
    };
    Ok([header, numbers].concat())
}
