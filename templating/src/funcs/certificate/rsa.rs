//! RSA keys: read from PKCS#1, checked as Go's `crypto/rsa` checks them, and written.

use num_bigint::{BigInt, BigUint, Sign};

use super::asn1::{Reader, Result};
use super::der;

/// A private key all of whose numbers are positive.
#[derive(Clone)]
pub(super) struct RsaKey {
    pub(super) modulus: BigUint,
    pub(super) exponent: i64,
    secret: BigUint,
    /// Two or more.
    primes: Vec<BigUint>,
    crt: Crt,
}

/// What the secret is by each prime, and the inverses that put the parts together: `Dp`, `Dq` and `Qinv`.
#[derive(Clone)]
struct Crt {
    p_exponent: BigUint,
    q_exponent: BigUint,
    coefficient: BigUint,
    /// Exponent and coefficient of each prime from the third on.
    others: Vec<(BigUint, BigUint)>,
}

/// The numbers of PKCS#1 as they stand there.
pub(super) struct Numbers {
    version: i64,
    modulus: BigInt,
    exponent: i64,
    secret: BigInt,
    p: BigInt,
    q: BigInt,
    p_exponent: Option<BigInt>,
    q_exponent: Option<BigInt>,
    coefficient: Option<BigInt>,
    other_primes: Vec<BigInt>,
}

impl Numbers {
    /// Reads them, and what follows.
    pub(super) fn read(text: &[u8]) -> Result<(Self, &[u8])> {
        let mut reader = Reader::new(text);
        let mut fields = reader.sequence("pkcs1PrivateKey")?;
        let numbers = Self {
            version: fields.int()?,
            modulus: fields.big_int()?,
            exponent: fields.int()?,
            secret: fields.big_int()?,
            p: fields.big_int()?,
            q: fields.big_int()?,
            p_exponent: fields.optional_big_int()?,
            q_exponent: fields.optional_big_int()?,
            coefficient: fields.optional_big_int()?,
            other_primes: other_primes(&mut fields)?,
        };
        Ok((numbers, reader.rest()))
    }

    /// Work that the inverse counts for that Go computes where one of the three numbers is missing: it grows with the
    /// cube of the prime's length, and no other number says how long that is.
    pub(super) fn inverse_steps(&self) -> u64 {
        let are_given =
            self.p_exponent.is_some() && self.q_exponent.is_some() && self.coefficient.is_some();
        if are_given || !self.other_primes.is_empty() {
            return 0;
        }
        self.p.bits().saturating_pow(3) / 160_000
    }
}

fn other_primes(fields: &mut Reader<'_>) -> Result<Vec<BigInt>> {
    let read = |mut fields: Reader<'_>| {
        let prime = fields.big_int()?;
        // Exponent and coefficient are of no interest, they are computed.
        fields.big_int()?;
        fields.big_int()?;
        Ok(prime)
    };
    fields.optional_sequences()?.into_iter().map(read).collect()
}

impl RsaKey {
    /// The key of these numbers, if it is one.
    pub(super) fn new(numbers: Numbers) -> Result<Self> {
        if numbers.version > 1 {
            return Err("x509: unsupported private key version".to_owned());
        }
        let negative = || "x509: private key contains zero or negative value".to_owned();
        let positive = |number: BigInt| positive(number).ok_or_else(negative);
        let optional = |number: Option<BigInt>| number.map(positive).transpose();
        let modulus = positive(numbers.modulus)?;
        let secret = positive(numbers.secret)?;
        let mut primes = vec![positive(numbers.p)?, positive(numbers.q)?];
        let given = (
            optional(numbers.p_exponent)?,
            optional(numbers.q_exponent)?,
            optional(numbers.coefficient)?,
        );
        for prime in numbers.other_primes {
            let negative = "x509: private key contains zero or negative prime";
            primes.push(self::positive(prime).ok_or_else(|| negative.to_owned())?);
        }
        let mut key = Self {
            modulus,
            exponent: numbers.exponent,
            secret,
            primes,
            crt: Crt::none(),
        };
        key.crt = match given {
            _ if key.primes.len() > 2 => key.computed_for_many()?,
            (Some(p_exponent), Some(q_exponent), Some(coefficient)) => {
                key.check_ranges()?;
                fits(&coefficient, &key.primes[0])?;
                Crt {
                    p_exponent,
                    q_exponent,
                    coefficient,
                    others: Vec::new(),
                }
            }
            _ => {
                key.check_ranges()?;
                key.computed_for_two()?
            }
        };
        if key.primes.len() == 2 {
            key.check()?;
        }
        Ok(key)
    }

    pub(super) fn bits(&self) -> u64 {
        self.modulus.bits()
    }

    pub(super) fn has_two_primes(&self) -> bool {
        self.primes.len() == 2
    }

    /// PKCS#1.
    pub(super) fn to_der(&self) -> Vec<u8> {
        let number = |number: &BigUint| der::unsigned(&number.to_bytes_be());
        let version = u8::from(!self.has_two_primes());
        let mut fields = [
            der::unsigned(&[version]),
            number(&self.modulus),
            der::unsigned(&self.exponent.to_be_bytes()),
            number(&self.secret),
            number(&self.primes[0]),
            number(&self.primes[1]),
            number(&self.crt.p_exponent),
            number(&self.crt.q_exponent),
            number(&self.crt.coefficient),
        ]
        .concat();
        let mut others = Vec::new();
        for (prime, (exponent, coefficient)) in self.primes[2..].iter().zip(&self.crt.others) {
            let parts = [number(prime), number(exponent), number(coefficient)].concat();
            others.extend(der::value(der::SEQUENCE, &parts));
        }
        if !others.is_empty() {
            fields.extend(der::value(der::SEQUENCE, &others));
        }
        der::value(der::SEQUENCE, &fields)
    }

    /// Checks that each number fits into the other's range, as Go's `bigmod` does.
    fn check_ranges(&self) -> Result<()> {
        is_modulus(&self.modulus)?;
        is_modulus(&self.primes[0])?;
        is_modulus(&self.primes[1])?;
        fits(&self.secret, &self.modulus)
    }

    fn computed_for_two(&self) -> Result<Crt> {
        let [p, q] = [&self.primes[0], &self.primes[1]];
        let [p_less_one, q_less_one] = [p - 1u32, q - 1u32];
        is_modulus(&p_less_one)?;
        is_modulus(&q_less_one)?;
        if !p.bit(0) {
            return Err("crypto/rsa: p is even".to_owned());
        }
        Ok(Crt {
            p_exponent: &self.secret % &p_less_one,
            q_exponent: &self.secret % &q_less_one,
            // The inverse if p is a prime, as in Go.
            coefficient: (q % p).modpow(&(p - 2u32), p),
            others: Vec::new(),
        })
    }

    fn computed_for_many(&self) -> Result<Crt> {
        is_modulus(&self.modulus)?;
        fits(&self.secret, &self.modulus)?;
        self.check_public()?;
        let one = BigUint::from(1u32);
        if self.primes.iter().any(|prime| *prime <= one) {
            return Err("crypto/rsa: prime factor is <= 1".to_owned());
        }
        let exponent = |prime: &BigUint| &self.secret % (prime - 1u32);
        let inverse = |number: &BigUint, prime: &BigUint| {
            let inverse = (number % prime).modinv(prime);
            inverse.ok_or_else(|| "crypto/rsa: prime factors are not relatively prime".to_owned())
        };
        let [p, q] = [&self.primes[0], &self.primes[1]];
        // Go's remainder of a division by 0 does not occur: 2 less one is 1.
        let (p_exponent, q_exponent) = (exponent(p), exponent(q));
        let coefficient = inverse(q, p)?;
        let mut product = p * q;
        let mut others = Vec::new();
        for prime in &self.primes[2..] {
            others.push((exponent(prime), inverse(&product, prime)?));
            product *= prime;
        }
        Ok(Crt {
            p_exponent,
            q_exponent,
            coefficient,
            others,
        })
    }

    fn check_public(&self) -> Result<()> {
        let problem = match self.exponent {
            _ if !self.modulus.bit(0) => "public modulus is even",
            ..2 => "public exponent too small or negative",
            exponent if exponent % 2 == 0 => "public exponent is even",
            exponent if exponent > i64::from(i32::MAX) => "public exponent too large",
            _ => return Ok(()),
        };
        Err(format!("crypto/rsa: {problem}"))
    }

    /// Go's `checkPrivateKey`: that the numbers belong together, and hide what they should.
    fn check(&self) -> Result<()> {
        self.check_public()?;
        let failed = |problem: &str| Err(format!("crypto/rsa: {problem}"));
        let one = BigUint::from(1u32);
        let [p, q] = [&self.primes[0], &self.primes[1]];
        if *p >= self.modulus || *q >= self.modulus {
            return failed("invalid prime");
        }
        if (p * q) % &self.modulus != BigUint::ZERO {
            return failed("p * q != n");
        }
        let exponent = BigUint::from(self.exponent.unsigned_abs());
        for (prime, by_prime) in [(p, &self.crt.p_exponent), (q, &self.crt.q_exponent)] {
            let less_one = prime - 1u32;
            if less_one <= one {
                return failed("invalid prime");
            }
            if *by_prime >= less_one || (&exponent * by_prime) % less_one != one {
                return failed("invalid CRT exponent");
            }
        }
        if (q * &self.crt.coefficient) % p != one {
            return failed("invalid CRT coefficient");
        }
        if &self.secret % (p - 1u32) != self.crt.p_exponent {
            return failed("d does not match dP");
        }
        if &self.secret % (q - 1u32) != self.crt.q_exponent {
            return failed("d does not match dQ");
        }
        let difference = if p > q { p - q } else { q - p };
        if difference == BigUint::ZERO {
            return failed("p == q");
        }
        let half = self.bits() / 2;
        if half >= 100 && difference.bits() <= half - 100 {
            return failed("|p - q| too small");
        }
        if self.secret.bits() <= half {
            return failed("d too small");
        }
        Ok(())
    }
}

impl Crt {
    fn none() -> Self {
        Self {
            p_exponent: BigUint::ZERO,
            q_exponent: BigUint::ZERO,
            coefficient: BigUint::ZERO,
            others: Vec::new(),
        }
    }
}

fn positive(number: BigInt) -> Option<BigUint> {
    (number.sign() == Sign::Plus).then(|| number.into_parts().1)
}

fn is_modulus(number: &BigUint) -> Result<()> {
    if *number <= BigUint::from(1u32) {
        return Err("modulus must be > 1".to_owned());
    }
    Ok(())
}

/// Go's numbers below a modulus have as many words of 64 bits as that.
fn fits(number: &BigUint, modulus: &BigUint) -> Result<()> {
    if number.bits().div_ceil(8) > modulus.bits().div_ceil(64) * 8 {
        return Err("input overflows the modulus size".to_owned());
    }
    if number >= modulus {
        return Err("input overflows the modulus".to_owned());
    }
    Ok(())
}
