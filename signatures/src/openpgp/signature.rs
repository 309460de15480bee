//! Signature packets: what they claim, and checking them with a key.

use super::error::PgpError;
use super::packet::{Hash, PublicKey, Reader};

/// What a signature is about.
pub(super) mod kind {
    pub(in super::super) const BINARY: u8 = 0x00;
    pub(in super::super) const TEXT: u8 = 0x01;
    pub(in super::super) const CERTIFICATIONS: std::ops::RangeInclusive<u8> = 0x10..=0x13;
    pub(in super::super) const SUBKEY_BINDING: u8 = 0x18;
    pub(in super::super) const PRIMARY_BINDING: u8 = 0x19;
    pub(in super::super) const DIRECT: u8 = 0x1f;
    pub(in super::super) const KEY_REVOCATION: u8 = 0x20;
    pub(in super::super) const SUBKEY_REVOCATION: u8 = 0x28;
    pub(in super::super) const USER_REVOCATION: u8 = 0x30;
}

/// Subpackets that are understood; others may be passed over unless they are critical.
const HARMLESS: [u8; 13] = [4, 5, 7, 11, 21, 22, 23, 24, 26, 28, 30, 34, 39];

/// A signature packet of version 4.
#[derive(Clone, Debug)]
pub(super) struct Signature<'a> {
    pub(super) kind: u8,
    /// Seconds since 1970.
    pub(super) created: u32,
    /// Seconds after that.
    pub(super) expires: Option<u32>,
    /// Of the key that it certifies, seconds after that was made.
    pub(super) key_expires: Option<u32>,
    pub(super) is_primary_user: bool,
    /// What the certified key may be used for.
    pub(super) flags: Option<u8>,
    pub(super) embedded: Option<&'a [u8]>,
    issuer_id: Option<&'a [u8]>,
    issuer: Option<&'a [u8]>,
    algorithm: u8,
    hash: Hash,
    hashed: &'a [u8],
    values: &'a [u8],
}

impl<'a> Signature<'a> {
    /// Reads a packet.
    ///
    /// # Errors
    /// In words: it is malformed, or claims what we do not know and must not pass over.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, String> {
        let short = |error: PgpError| error.to_string();
        let mut reader = Reader(body);
        let version = reader.byte().map_err(short)?;
        if version != 4 {
            return Err(format!(
                "a signature of version {version}; version 4 is supported"
            ));
        }
        let kind = reader.byte().map_err(short)?;
        let algorithm = reader.byte().map_err(short)?;
        let hash = Hash::of(reader.byte().map_err(short)?)?;
        let length = reader.u16().map_err(short)?;
        let protected = reader.take(length).map_err(short)?;
        let hashed = &body[..6 + length];
        let length = reader.u16().map_err(short)?;
        let unprotected = reader.take(length).map_err(short)?;
        let left = reader.take(2).map_err(short)?;
        let _ = left;
        let mut signature = Self {
            kind,
            created: 0,
            expires: None,
            key_expires: None,
            is_primary_user: false,
            flags: None,
            embedded: None,
            issuer_id: None,
            issuer: None,
            algorithm,
            hash,
            hashed,
            values: reader.0,
        };
        let mut created = None;
        for subpacket in subpackets(protected)? {
            let Subpacket {
                kind,
                is_critical,
                body,
            } = subpacket;
            let number = || Reader(body).u32().map_err(short);
            match kind {
                2 => created = Some(number()?),
                3 => signature.expires = Some(number()?).filter(|seconds| *seconds > 0),
                9 => signature.key_expires = Some(number()?).filter(|seconds| *seconds > 0),
                25 => signature.is_primary_user = body.first().is_some_and(|byte| *byte > 0),
                27 => signature.flags = Some(body.first().copied().unwrap_or_default()),
                29 => {}
                16 | 32 | 33 => signature.hint(kind, body),
                _ if HARMLESS.contains(&kind) || !is_critical => {}
                other => {
                    return Err(format!(
                        "it has a critical subpacket {other} that is not known"
                    ));
                }
            }
        }
        // Only hints are taken from what is not signed.
        for subpacket in subpackets(unprotected)? {
            if matches!(subpacket.kind, 16 | 32 | 33) {
                signature.hint(subpacket.kind, subpacket.body);
            }
        }
        signature.created = created.ok_or("it does not say when it was made")?;
        Ok(signature)
    }

    /// Which key may have made it, or what an embedded signature is: checked by what follows, and so believed from anywhere. The first
    /// one counts.
    fn hint(&mut self, kind: u8, body: &'a [u8]) {
        match kind {
            16 if body.len() == 8 => _ = self.issuer_id.get_or_insert(body),
            32 => _ = self.embedded.get_or_insert(body),
            33 if body.len() == 21 && body[0] == 4 => _ = self.issuer.get_or_insert(&body[1..]),
            _ => {}
        }
    }

    /// Whether it names this key as the one that made it.
    pub(super) fn names(&self, key: &PublicKey) -> bool {
        match (self.issuer, self.issuer_id) {
            (Some(fingerprint), _) => fingerprint == key.fingerprint,
            (None, Some(id)) => id == key.id(),
            (None, None) => false,
        }
    }

    /// Whether it does not say which key made it.
    pub(super) fn names_nobody(&self) -> bool {
        self.issuer.is_none() && self.issuer_id.is_none()
    }

    /// The key that it names, for people.
    pub(super) fn issuer_in_words(&self) -> String {
        let named = self.issuer.or(self.issuer_id);
        named.map_or_else(
            || "no key".to_owned(),
            |bytes| format!("key {}", golib::hex::encode(bytes).to_uppercase()),
        )
    }

    /// Whether `key` made it over these parts.
    pub(super) fn verify(&self, key: &PublicKey, parts: &[&[u8]]) -> Result<(), String> {
        let length = u32::try_from(self.hashed.len()).map_err(|_| "it is too long")?;
        let trailer = [&[4, 0xff], &length.to_be_bytes()[..]].concat();
        let mut all = parts.to_vec();
        all.push(self.hashed);
        all.push(&trailer);
        key.verify(self.algorithm, self.hash, &all, self.values)
    }

    /// Whether its hash is good enough for what is signed today.
    pub(super) fn has_weak_hash(&self) -> bool {
        self.hash == Hash::Sha1
    }

    /// Whether it has an end that has passed.
    pub(super) fn has_expired(&self, now: i64) -> bool {
        let end = |seconds| i64::from(self.created) + i64::from(seconds);
        self.expires.is_some_and(|seconds| end(seconds) <= now)
    }
}

struct Subpacket<'a> {
    kind: u8,
    is_critical: bool,
    body: &'a [u8],
}

fn subpackets(bytes: &[u8]) -> Result<Vec<Subpacket<'_>>, String> {
    let short = |error: PgpError| error.to_string();
    let mut reader = Reader(bytes);
    let mut subpackets = Vec::new();
    while !reader.0.is_empty() {
        let length = match reader.byte().map_err(short)? {
            first @ ..192 => usize::from(first),
            first @ 192..255 => {
                let second = reader.byte().map_err(short)?;
                ((usize::from(first) - 192) << 8) + usize::from(second) + 192
            }
            255 => reader.u32().map_err(short)? as usize,
        };
        match reader.take(length).map_err(short)? {
            [kind, body @ ..] => subpackets.push(Subpacket {
                kind: kind & 0x7f,
                is_critical: kind & 0x80 != 0,
                body,
            }),
            [] => return Err("it has an empty subpacket".to_owned()),
        }
    }
    Ok(subpackets)
}
