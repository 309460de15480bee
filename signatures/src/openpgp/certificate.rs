//! A keyring: keys, the names and subkeys they vouch for, and whether they count now.

use std::fmt;

use super::armor;
use super::cleartext::Cleartext;
use super::error::PgpError;
use super::packet::{self, PublicKey, packets};
use super::signature::{Signature, kind};

/// Who signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// Of the primary key, upper-case hexadecimal.
    pub fingerprint: String,
    /// The key's user names, those that are not revoked.
    pub users: Vec<String>,
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}", self.fingerprint)?;
        match self.users.first() {
            Some(user) => write!(f, " ({user})"),
            None => Ok(()),
        }
    }
}

/// Keys of a keyring, and signatures of a text, that are looked at.
const MAX_KEYS: usize = 1_000;
const MAX_SIGNATURES: usize = 16;
/// How far clocks may differ, in seconds.
const SKEW: i64 = 300;
const MAY_SIGN: u8 = 0x02;

/// Public keys that may sign.
#[derive(Clone, Debug)]
pub struct Keyring {
    certificates: Vec<Certificate>,
}

/// A primary key with what it vouches for, as it stands in the keyring.
#[derive(Clone, Debug)]
struct Certificate {
    primary: PublicKey,
    /// Signatures over the key itself.
    direct: Vec<Vec<u8>>,
    users: Vec<Part<Vec<u8>>>,
    subkeys: Vec<Part<PublicKey>>,
}

#[derive(Clone, Debug)]
struct Part<T> {
    what: T,
    signatures: Vec<Vec<u8>>,
}

impl Keyring {
    /// Reads public keys, as `gpg --export` writes them, armored or not.
    ///
    /// # Errors
    /// There is none, or they are malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, PgpError> {
        const KIND: &str = "PGP PUBLIC KEY BLOCK";
        let text = std::str::from_utf8(bytes).ok();
        let blocks = match text {
            Some(text) if text.contains(&format!("-----BEGIN {KIND}-----")) => {
                armor::blocks(text, KIND)?
            }
            _ if bytes.get(8..12) == Some(b"KBXf") => {
                let hint = ": it is GnuPG's keybox, whose keys gpg --export writes";
                return Err(PgpError::EmptyKeyring(hint));
            }
            _ => vec![bytes.to_vec()],
        };
        let mut certificates = Vec::new();
        for block in &blocks {
            read(block, &mut certificates)?;
        }
        let certificates = merged(certificates);
        match certificates.len() {
            0 => Err(PgpError::EmptyKeyring("")),
            1..=MAX_KEYS => Ok(Self { certificates }),
            _ => Err(PgpError::Malformed(format!(
                "the keyring has more than {MAX_KEYS} keys"
            ))),
        }
    }

    /// Who of the keyring signed the text.
    ///
    /// # Errors
    /// Nobody, with the reason for each signature.
    pub fn verify(&self, text: &Cleartext) -> Result<Signer, PgpError> {
        self.verify_at(text, jiff::Timestamp::now().as_second())
    }

    /// [`Keyring::verify`] at another time, seconds since 1970.
    ///
    /// # Errors
    /// As there.
    pub fn verify_at(&self, text: &Cleartext, now: i64) -> Result<Signer, PgpError> {
        let packets = packets(text.signatures())?;
        if packets.len() > MAX_SIGNATURES {
            let problem = format!("there are more than {MAX_SIGNATURES} signatures");
            return Err(PgpError::NotSigned(vec![problem]));
        }
        let mut problems = Vec::new();
        for packet in &packets {
            if packet.tag != packet::SIGNATURE {
                let problem = "there is something else than signatures beside the text";
                return Err(PgpError::Malformed(problem.to_owned()));
            }
            match self.signer(packet.body, text, now) {
                Ok(signer) => return Ok(signer),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            problems.push("there is no signature".to_owned());
        }
        Err(PgpError::NotSigned(problems))
    }

    fn signer(&self, body: &[u8], text: &Cleartext, now: i64) -> Result<Signer, String> {
        let signature = Signature::parse(body)?;
        if !matches!(signature.kind, kind::TEXT | kind::BINARY) {
            return Err(format!(
                "a signature of type {:#04x} is none of a text",
                signature.kind
            ));
        }
        let named = signature.issuer_in_words();
        if signature.has_weak_hash() {
            return Err(format!(
                "the signature by {named} uses SHA-1, which does not count"
            ));
        }
        let mut problem =
            format!("signature made by unknown entity: {named} is not in the keyring");
        for certificate in &self.certificates {
            for (key, subkey) in certificate.keys() {
                if !signature.names(key) {
                    continue;
                }
                let checked = signature
                    .verify(key, &[text.canonical()])
                    .map_err(|problem| format!("invalid signature: {problem} ({named})"))
                    .and_then(|()| certificate.counts(subkey, now))
                    .and_then(|users| {
                        dates(&signature, key, now)?;
                        Ok(users)
                    });
                match checked {
                    Ok(users) => {
                        return Ok(Signer {
                            fingerprint: hex(&certificate.primary.fingerprint),
                            users,
                        });
                    }
                    Err(found) => problem = found,
                }
            }
        }
        Err(problem)
    }
}

/// Whether the signature's dates are possible, and it has not ended.
fn dates(signature: &Signature<'_>, key: &PublicKey, now: i64) -> Result<(), String> {
    if i64::from(signature.created) > now + SKEW {
        return Err("the signature is from the future".to_owned());
    }
    if signature.created < key.created {
        return Err("the signature is older than its key".to_owned());
    }
    if signature.has_expired(now) {
        return Err("signature expired".to_owned());
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    golib::hex::encode(bytes).to_uppercase()
}

/// Copies of one key in one: what any of them says of it counts.
fn merged(certificates: Vec<Certificate>) -> Vec<Certificate> {
    let mut merged: Vec<Certificate> = Vec::new();
    for one in certificates {
        let known = merged.iter_mut().find(|known| known.primary == one.primary);
        let Some(known) = known else {
            merged.push(one);
            continue;
        };
        known.direct.extend(one.direct);
        add(&mut known.users, one.users);
        add(&mut known.subkeys, one.subkeys);
    }
    merged
}

fn add<T: PartialEq>(parts: &mut Vec<Part<T>>, more: Vec<Part<T>>) {
    for part in more {
        match parts.iter_mut().find(|known| known.what == part.what) {
            Some(known) => known.signatures.extend(part.signatures),
            None => parts.push(part),
        }
    }
}

/// Packets to certificates. Keys that cannot be read are left out together with what belongs to them.
fn read(block: &[u8], certificates: &mut Vec<Certificate>) -> Result<(), PgpError> {
    enum At {
        Nothing,
        Key,
        User,
        Subkey,
    }
    let mut at = At::Nothing;
    for (number, packet) in packets(block)?.into_iter().enumerate() {
        if number == 0 && packet.tag == packet::SIGNATURE {
            let problem =
                "a signature without its key, a revocation perhaps: import it and export the key";
            return Err(PgpError::Malformed(problem.to_owned()));
        }
        match packet.tag {
            packet::PUBLIC_KEY => {
                at = match PublicKey::parse(packet.body) {
                    Ok(primary) => {
                        certificates.push(Certificate {
                            primary,
                            direct: Vec::new(),
                            users: Vec::new(),
                            subkeys: Vec::new(),
                        });
                        At::Key
                    }
                    Err(_) => At::Nothing,
                };
                continue;
            }
            // A secret key's parts must not be taken for the key's before it.
            5 => at = At::Nothing,
            _ => {}
        }
        let Some(certificate) = certificates
            .last_mut()
            .filter(|_| !matches!(at, At::Nothing))
        else {
            continue;
        };
        match packet.tag {
            packet::USER_ID | packet::USER_ATTRIBUTE => {
                // Pictures are not user IDs, but their signatures must not be taken for others'.
                let what = match packet.tag {
                    packet::USER_ID => packet.body.to_vec(),
                    _ => Vec::new(),
                };
                certificate.users.push(Part {
                    what,
                    signatures: Vec::new(),
                });
                at = At::User;
            }
            packet::PUBLIC_SUBKEY => {
                let Ok(what) = PublicKey::parse(packet.body) else {
                    at = At::Nothing;
                    continue;
                };
                certificate.subkeys.push(Part {
                    what,
                    signatures: Vec::new(),
                });
                at = At::Subkey;
            }
            packet::SIGNATURE => {
                let signatures = match at {
                    At::Key => Some(&mut certificate.direct),
                    At::User => certificate
                        .users
                        .last_mut()
                        .map(|user| &mut user.signatures),
                    At::Subkey => certificate
                        .subkeys
                        .last_mut()
                        .map(|subkey| &mut subkey.signatures),
                    At::Nothing => None,
                };
                if let Some(signatures) = signatures {
                    signatures.push(packet.body.to_vec());
                }
            }
            _ => {}
        }
    }
    Ok(())
}

impl Certificate {
    /// The primary key, and the subkeys by number.
    fn keys(&self) -> impl Iterator<Item = (&PublicKey, Option<usize>)> {
        let subkeys = self.subkeys.iter().enumerate();
        std::iter::once((&self.primary, None))
            .chain(subkeys.map(|(at, subkey)| (&subkey.what, Some(at))))
    }

    /// Whether the key counts now for signing, the primary one or a subkey; its users' names.
    fn counts(&self, subkey: Option<usize>, now: i64) -> Result<Vec<String>, String> {
        let fingerprint = hex(&self.primary.fingerprint);
        let hashed = self.primary.hashed();
        let of_key = self.own(&self.direct, &[&hashed]);
        let named = format!("key {fingerprint}");
        not_revoked(&named, &of_key, &self.direct, kind::KEY_REVOCATION)?;
        let mut users = Vec::new();
        let mut best: Option<Signature<'_>> = None;
        for user in self.users.iter().filter(|user| !user.what.is_empty()) {
            let length = u32::try_from(user.what.len()).unwrap_or(u32::MAX);
            let name = [&[0xb4], &length.to_be_bytes()[..], &user.what].concat();
            let own = self.own(&user.signatures, &[&hashed, &name]);
            let latest = latest(own.iter(), |one| kind::CERTIFICATIONS.contains(&one.kind));
            let Some(latest) = latest.filter(|latest| !latest.has_expired(now)) else {
                continue;
            };
            let is_revoked = own
                .iter()
                .any(|one| one.kind == kind::USER_REVOCATION && one.created >= latest.created);
            let parts = [&hashed[..], &name];
            if is_revoked || self.has_unreadable(&user.signatures, kind::USER_REVOCATION, &parts) {
                continue;
            }
            let text = String::from_utf8_lossy(&user.what);
            let text: String = text.chars().filter(|c| !c.is_control()).take(100).collect();
            let is_better = best.as_ref().is_none_or(|best| {
                (latest.is_primary_user, latest.created) > (best.is_primary_user, best.created)
            });
            match is_better {
                true => users.insert(0, text),
                false => users.push(text),
            }
            if is_better {
                best = Some(latest);
            }
        }
        let best = best.ok_or_else(|| {
            format!(
                "key {fingerprint} has no user name that it vouches for and that is not revoked"
            )
        })?;
        let direct = latest(of_key.iter(), |one| one.kind == kind::DIRECT);
        let key_expires = best
            .key_expires
            .or(direct.as_ref().and_then(|direct| direct.key_expires));
        not_expired(&self.primary, key_expires, now)?;
        let flags = match subkey {
            None => best.flags.or(direct.and_then(|direct| direct.flags)),
            Some(at) => Some(self.subkey_flags(at, &hashed, now)?),
        };
        match flags {
            Some(flags) if flags & MAY_SIGN != 0 => Ok(users),
            _ => Err(format!("key {fingerprint} is not made for signing")),
        }
    }

    /// What a subkey may be used for, if it belongs to the key and counts now.
    fn subkey_flags(&self, at: usize, hashed: &[u8], now: i64) -> Result<u8, String> {
        let subkey = &self.subkeys[at];
        let id = hex(&subkey.what.fingerprint);
        let own_hashed = subkey.what.hashed();
        let own = self.own(&subkey.signatures, &[hashed, &own_hashed]);
        let (named, bodies) = (format!("subkey {id}"), &subkey.signatures);
        not_revoked(&named, &own, bodies, kind::SUBKEY_REVOCATION)?;
        let binding = latest(own.iter(), |one| one.kind == kind::SUBKEY_BINDING)
            .filter(|binding| !binding.has_expired(now))
            .ok_or_else(|| format!("subkey {id} is not bound to its key"))?;
        not_expired(&subkey.what, binding.key_expires, now)?;
        let flags = binding.flags.unwrap_or_default();
        if flags & MAY_SIGN != 0 {
            // Else somebody could adopt another one's subkey and its signatures.
            let problem = || format!("subkey {id} has not signed for its key");
            let embedded = binding.embedded.ok_or_else(problem)?;
            let back = Signature::parse(embedded).map_err(|_| problem())?;
            if back.kind != kind::PRIMARY_BINDING || back.has_expired(now) {
                return Err(problem());
            }
            back.verify(&subkey.what, &[hashed, &own_hashed])
                .map_err(|_| problem())?;
        }
        Ok(flags)
    }

    /// Whether one of the packets says that it is of this kind, may be the primary key's, and cannot be checked. One by another key says
    /// nothing here.
    fn has_unreadable(&self, signatures: &[Vec<u8>], kind: u8, parts: &[&[u8]]) -> bool {
        let mut claiming = signatures.iter().filter(|body| claims(body, kind));
        claiming.any(|body| match Signature::parse(body) {
            Ok(one) if one.names_nobody() => true,
            Ok(one) => one.names(&self.primary) && one.verify(&self.primary, parts).is_err(),
            Err(_) => true,
        })
    }

    /// Those signatures that the primary key made over the parts.
    fn own<'s>(&self, signatures: &'s [Vec<u8>], parts: &[&[u8]]) -> Vec<Signature<'s>> {
        let parsed = signatures
            .iter()
            .filter_map(|body| Signature::parse(body).ok());
        parsed
            .filter(|one| one.names(&self.primary) && one.verify(&self.primary, parts).is_ok())
            .collect()
    }
}

/// Whether a packet says that it is of this kind; nothing is checked.
fn claims(body: &[u8], kind: u8) -> bool {
    match body {
        [3, _, found, ..] | [_, found, ..] => *found == kind,
        _ => true,
    }
}

/// Of a key with these signatures of its own, among those that stand with it.
fn not_revoked(
    key: &str,
    own: &[Signature<'_>],
    bodies: &[Vec<u8>],
    kind: u8,
) -> Result<(), String> {
    if own.iter().any(|one| one.kind == kind) {
        return Err(format!("{key} is revoked"));
    }
    // What might be a revocation is not passed over because it cannot be read.
    match bodies.iter().any(|body| claims(body, kind)) {
        true => Err(format!("{key} has a revocation that cannot be checked")),
        false => Ok(()),
    }
}

fn latest<'a, 's: 'a>(
    signatures: impl Iterator<Item = &'a Signature<'s>>,
    is_expected: impl Fn(&Signature<'s>) -> bool,
) -> Option<Signature<'s>> {
    signatures
        .filter(|one| is_expected(one))
        .max_by_key(|one| one.created)
        .cloned()
}

fn not_expired(key: &PublicKey, seconds: Option<u32>, now: i64) -> Result<(), String> {
    let end = seconds.map(|seconds| i64::from(key.created) + i64::from(seconds));
    match end {
        Some(end) if end <= now => Err(format!("key {} has expired", hex(&key.fingerprint))),
        _ => Ok(()),
    }
}
