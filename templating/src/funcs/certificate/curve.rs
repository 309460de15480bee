//! The elliptic curves that Go's `crypto/x509` knows, as far as keys are checked by them.

use num_bigint::BigUint;

use super::asn1::Result;

/// A curve y² = x³ - 3x + b over the numbers below a prime.
#[derive(Debug, PartialEq)]
pub(super) struct Curve {
    /// As Go's `nistec` names it.
    pub(super) name: &'static str,
    pub(super) id: &'static [u8],
    /// Of a coordinate as of a private key.
    pub(super) bytes: usize,
    prime: &'static str,
    order: &'static str,
    b: &'static str,
}

static CURVES: [Curve; 4] = [
    Curve {
        name: "P224",
        id: &[0x2B, 0x81, 0x04, 0x00, 0x21],
        bytes: 28,
        prime: "ffffffffffffffffffffffffffffffff000000000000000000000001",
        order: "ffffffffffffffffffffffffffff16a2e0b8f03e13dd29455c5c2a3d",
        b: "b4050a850c04b3abf54132565044b0b7d7bfd8ba270b39432355ffb4",
    },
    Curve {
        name: "P256",
        id: &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07],
        bytes: 32,
        prime: "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff",
        order: "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551",
        b: "5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b",
    },
    Curve {
        name: "P384",
        id: &[0x2B, 0x81, 0x04, 0x00, 0x22],
        bytes: 48,
        prime: concat!(
            "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe",
            "ffffffff0000000000000000ffffffff"
        ),
        order: concat!(
            "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf",
            "581a0db248b0a77aecec196accc52973"
        ),
        b: concat!(
            "b3312fa7e23ee7e4988e056be3f82d19181d9c6efe8141120314088f5013875a",
            "c656398d8a2ed19d2a85c8edd3ec2aef"
        ),
    },
    Curve {
        name: "P521",
        id: &[0x2B, 0x81, 0x04, 0x00, 0x23],
        bytes: 66,
        prime: concat!(
            "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
            "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
            "ffff"
        ),
        order: concat!(
            "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
            "fffa51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e9138",
            "6409"
        ),
        b: concat!(
            "0051953eb9618e1c9a1f929a21a0b68540eea2da725b99b315f3b8b489918ef1",
            "09e156193951ec7e937b1652c0bd3bb1bf073573df883d2c34f1ef451fd46b50",
            "3f00"
        ),
    },
];

fn number(digits: &str) -> BigUint {
    BigUint::parse_bytes(digits.as_bytes(), 16).unwrap_or_default()
}

impl Curve {
    pub(super) fn of_id(id: &[u8]) -> Option<&'static Self> {
        CURVES.iter().find(|curve| curve.id == id)
    }

    /// Go's `ecdsa.ParseRawPrivateKey`, for a secret of the curve's length.
    pub(super) fn check_secret(&self, secret: &[u8]) -> Result<()> {
        let (secret, order) = (BigUint::from_bytes_be(secret), number(self.order));
        if &secret % &order == BigUint::ZERO {
            // Go looks at the public key first, which is no point then.
            return Err("ecdsa: invalid public key encoding".to_owned());
        }
        if secret >= order {
            return Err("input overflows the modulus".to_owned());
        }
        Ok(())
    }

    /// Go's `ecdsa.ParseUncompressedPublicKey`.
    pub(super) fn check_point(&self, point: &[u8]) -> Result<()> {
        let name = self.name;
        let Some((4, coordinates)) = point.split_first() else {
            return Err("ecdsa: invalid uncompressed public key".to_owned());
        };
        if coordinates.len() != 2 * self.bytes {
            return Err(format!("invalid {name} point encoding"));
        }
        let (x, y) = coordinates.split_at(self.bytes);
        let (x, y) = (BigUint::from_bytes_be(x), BigUint::from_bytes_be(y));
        let prime = number(self.prime);
        if x >= prime || y >= prime {
            // The curve with assembly of its own has words of its own.
            return Err(match name {
                "P256" => format!("invalid {name} element encoding"),
                _ => format!("invalid {name}Element encoding"),
            });
        }
        // -3x, as numbers here are not negative.
        let minus_three_x = (&prime - &x) * 3u32;
        let right = &x * &x * &x + minus_three_x + number(self.b);
        if (&y * &y) % &prime != right % &prime {
            return Err(format!("{name} point not on curve"));
        }
        Ok(())
    }
}
