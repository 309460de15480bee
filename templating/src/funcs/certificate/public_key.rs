//! Public keys as they stand in certificates.

use num_bigint::{BigInt, Sign};

use super::asn1::Result;
use super::cursor::Cursor;
use super::curve::Curve;
use super::der;

pub(super) const RSA_ID: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 1];
pub(super) const EC_ID: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 2, 1];
pub(super) const ED25519_ID: &[u8] = &[0x2B, 0x65, 0x70];
pub(super) const X25519_ID: &[u8] = &[0x2B, 0x65, 0x6E];
const DSA_ID: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x38, 4, 1];

/// A public key of one of the kinds that Go reads.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PublicKey {
    Rsa {
        modulus: BigInt,
        exponent: i64,
    },
    Ec {
        curve: &'static Curve,
        point: Vec<u8>,
    },
    Ed25519(Vec<u8>),
    X25519,
    Dsa,
}

impl PublicKey {
    /// The bytes that certificates hold and that keys are told apart by.
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Rsa { modulus, exponent } => der::group(
                der::SEQUENCE,
                &[
                    &der::unsigned(&modulus.to_bytes_be().1),
                    &der::unsigned(&exponent.to_be_bytes()),
                ],
            ),
            Self::Ec { point, .. } => point.clone(),
            Self::Ed25519(bytes) => bytes.clone(),
            Self::X25519 | Self::Dsa => Vec::new(),
        }
    }

    /// The key with its algorithm; none for kinds that certificates are not made for, which Go names by the type.
    pub(super) fn to_der(&self) -> std::result::Result<Vec<u8>, &'static str> {
        let id = |id: &[u8]| der::value(der::OBJECT_ID, id);
        let algorithm = match self {
            Self::Rsa { .. } => [&id(RSA_ID), der::NULL].concat(),
            Self::Ec { curve, .. } => [id(EC_ID), id(curve.id)].concat(),
            Self::Ed25519(_) => id(ED25519_ID),
            Self::X25519 => return Err("*ecdh.PublicKey"),
            Self::Dsa => return Err("*dsa.PublicKey"),
        };
        Ok(der::group(
            der::SEQUENCE,
            &[
                &der::value(der::SEQUENCE, &algorithm),
                &der::bits(&self.bytes()),
            ],
        ))
    }

    /// Reads the key of a certificate by the bytes of its algorithm's identifier; none if that is not known.
    pub(super) fn read(
        algorithm: &[u8],
        parameters: &[u8],
        bits: (&[u8], u8),
    ) -> Result<Option<Self>> {
        let data = right_aligned(bits);
        Ok(Some(match algorithm {
            RSA_ID => rsa(parameters, &data)?,
            EC_ID => {
                let id = Cursor(parameters).object_id();
                let id = id.ok_or("x509: invalid ECDSA parameters")?;
                let curve = Curve::of_id(id).ok_or("x509: unsupported elliptic curve")?;
                curve.check_point(&data)?;
                Self::Ec { curve, point: data }
            }
            ED25519_ID if !parameters.is_empty() => {
                return Err("x509: Ed25519 key encoded with illegal parameters".to_owned());
            }
            ED25519_ID if data.len() != 32 => {
                return Err("x509: wrong Ed25519 public key size".to_owned());
            }
            ED25519_ID => Self::Ed25519(data),
            DSA_ID => {
                dsa(parameters, &data)?;
                Self::Dsa
            }
            _ => return Ok(None),
        }))
    }
}

/// The bytes of a bit string with what is no bit in front.
fn right_aligned((bytes, padding): (&[u8], u8)) -> Vec<u8> {
    if padding == 0 {
        return bytes.to_vec();
    }
    let mut before = 0;
    let shift = |&byte: &u8| {
        let shifted = byte >> padding | (u16::from(before) << (8 - padding)) as u8;
        before = byte;
        shifted
    };
    bytes.iter().map(shift).collect()
}

fn rsa(parameters: &[u8], data: &[u8]) -> Result<PublicKey> {
    if parameters != der::NULL {
        return Err("x509: RSA key missing NULL parameters".to_owned());
    }
    let fields = Cursor(data).enter(der::SEQUENCE);
    let mut fields = fields.ok_or("x509: invalid RSA public key")?;
    let modulus = fields.big_int().ok_or("x509: invalid RSA modulus")?;
    let exponent = fields.int(der::INTEGER);
    let exponent = exponent.ok_or("x509: invalid RSA public exponent")?;
    if modulus.sign() != Sign::Plus {
        return Err("x509: RSA modulus is not a positive number".to_owned());
    }
    if exponent <= 0 {
        return Err("x509: RSA public exponent is not a positive number".to_owned());
    }
    Ok(PublicKey::Rsa { modulus, exponent })
}

fn dsa(parameters: &[u8], data: &[u8]) -> Result<()> {
    let y = Cursor(data).big_int();
    let y = y.ok_or("x509: invalid DSA public key")?;
    let numbers = Cursor(parameters)
        .enter(der::SEQUENCE)
        .and_then(|mut fields| Some([fields.big_int()?, fields.big_int()?, fields.big_int()?]));
    let numbers = numbers.ok_or("x509: invalid DSA parameters")?;
    if numbers.iter().chain([&y]).any(|n| n.sign() != Sign::Plus) {
        return Err("x509: zero or negative DSA parameter".to_owned());
    }
    Ok(())
}
