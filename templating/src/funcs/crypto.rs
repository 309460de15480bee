//! Sprig's `crypto.go` without its certificates: digests, passwords, AES, and everything random.

use aes::Aes256;
use cbc::cipher::block_padding::NoPadding;
use cbc::cipher::{BlockModeDecrypt as _, BlockModeEncrypt as _, KeyIvInit as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use super::functions::Functions;
use crate::error::Error;
use crate::host::Host;
use crate::state::State;
use crate::value::Str;
use golib::{base64, hex};

/// Work that one password hash counts for, by what it takes beside the other steps: some 50 ms.
const HASH_STEPS: u64 = 1_000_000;
/// Work that one key derivation counts for: some 120 ms.
const DERIVATION_STEPS: u64 = 2_500_000;
const AES_BLOCK_BYTES: usize = 16;

pub(super) fn add(f: &mut Functions) {
    f.add("sha1sum", |s: Str| hex::encode(&Sha1::digest(&*s)));
    f.add("sha256sum", |s: Str| hex::encode(&Sha256::digest(&*s)));
    f.add("sha512sum", |s: Str| hex::encode(&Sha512::digest(&*s)));
    f.add("adler32sum", |s: Str| adler32(&s).to_string());
    f.add("bcrypt", |state: &mut State<'_>, s: Str| bcrypt(state, &s));
    f.add(
        "htpasswd",
        |state: &mut State<'_>, user: Str, password: Str| -> Result<Str, Error> {
            if user.contains(&b':') {
                return Ok([b"invalid username: ", &*user].concat().into());
            }
            Ok([&*user, b":", bcrypt(state, &password)?.as_bytes()]
                .concat()
                .into())
        },
    );
    f.add("derivePassword", derive_password);
    f.add("encryptAES", encrypt_aes);
    f.add("decryptAES", |password: Str, text: Str| {
        decrypt_aes(&password, &text)
    });
    f.add(
        "randBytes",
        |state: &mut State<'_>, count: i64| -> Result<String, Error> {
            let bad_length = || Error::message("runtime error: makeslice: len out of range");
            let count = usize::try_from(count).map_err(|_| bad_length())?;
            state.spend_bytes(count as u64)?;
            let mut bytes = vec![0; count];
            state.host().fill_random(&mut bytes);
            Ok(base64::encode(bytes))
        },
    );
    let alphabet: Vec<u8> = (b' '..=b'~').collect();
    let of = |keep: fn(&u8) -> bool| -> Vec<u8> { alphabet.iter().copied().filter(keep).collect() };
    for (name, characters) in [
        ("randAlphaNum", of(u8::is_ascii_alphanumeric)),
        ("randAlpha", of(u8::is_ascii_alphabetic)),
        ("randNumeric", of(u8::is_ascii_digit)),
        ("randAscii", of(|_| true)),
    ] {
        f.add(name, move |state: &mut State<'_>, count: i64| {
            random_text(state, count, &characters)
        });
    }
    f.add("uuidv4", |state: &mut State<'_>| {
        let mut bytes = [0; 16];
        state.host().fill_random(&mut bytes);
        uuid::Builder::from_random_bytes(bytes)
            .into_uuid()
            .to_string()
    });
    f.add("shuffle", shuffle);
}

fn adler32(text: &[u8]) -> u32 {
    const MODULUS: u32 = 65521;
    let (mut a, mut b) = (1, 0);
    for &byte in text {
        a = (a + u32::from(byte)) % MODULUS;
        b = (b + a) % MODULUS;
    }
    b << 16 | a
}

/// A number below `limit` (which is not 0), each as likely.
pub(super) fn random_below(host: &dyn Host, limit: u64) -> u64 {
    // Numbers from the last, incomplete multiple of the limit would come too often.
    let unfair_from = u64::MAX - u64::MAX % limit;
    loop {
        let mut bytes = [0; 8];
        host.fill_random(&mut bytes);
        let number = u64::from_le_bytes(bytes);
        if number < unfair_from {
            return number % limit;
        }
    }
}

/// Characters drawn from a set; nothing for a negative count.
fn random_text(state: &mut State<'_>, count: i64, characters: &[u8]) -> Result<Vec<u8>, Error> {
    let count = u64::try_from(count).unwrap_or(0);
    state.spend_bytes(count)?;
    state.spend_steps(count)?;
    let host = state.host();
    let draw = |_| characters[random_below(host, characters.len() as u64) as usize];
    Ok((0..count).map(draw).collect())
}

fn shuffle(state: &mut State<'_>, s: Str) -> Result<String, Error> {
    state.spend_steps(s.len() as u64)?;
    let mut characters: Vec<char> = golib::utf8::runes(&s).map(|(c, _)| c).collect();
    for last in (1..characters.len()).rev() {
        let other = random_below(state.host(), last as u64 + 1) as usize;
        characters.swap(last, other);
    }
    Ok(characters.into_iter().collect())
}

/// bcrypt at Go's default cost, or the text of its error.
fn bcrypt(state: &mut State<'_>, password: &[u8]) -> Result<String, Error> {
    const COST: u32 = 10;
    const MAX_BYTES: usize = 72;
    if password.len() > MAX_BYTES {
        let error = "bcrypt: password length exceeds 72 bytes";
        return Ok(format!("failed to encrypt string with bcrypt: {error}"));
    }
    state.spend_steps(HASH_STEPS)?;
    let mut salt = [0; 16];
    state.host().fill_random(&mut salt);
    let hash = bcrypt::hash_with_salt(password, COST, salt).map_err(|error| {
        Error::message(format!("failed to encrypt string with bcrypt: {error}"))
    })?;
    Ok(hash.format_for_version(bcrypt::Version::TwoA))
}

/// The Master Password algorithm.
fn derive_password(
    state: &mut State<'_>,
    counter: u32,
    kind: Str,
    password: Str,
    user: Str,
    site: Str,
) -> Result<String, Error> {
    const SEED: &[u8] = b"com.lyndir.masterpassword";
    let Some(templates) = password_templates(&kind) else {
        return Ok(format!("cannot find password template {kind}"));
    };
    state.spend_steps(DERIVATION_STEPS)?;
    let failed = |error: &str| Error::message(format!("failed to derive password: {error}"));
    let length = |text: &[u8]| (text.len() as u32).to_be_bytes();
    let salt = [SEED, &length(&user), &*user].concat();
    let parameters = scrypt::Params::new(15, 8, 2).map_err(|e| failed(&e.to_string()))?;
    let mut key = [0; 64];
    scrypt::scrypt(&password, &salt, &parameters, &mut key).map_err(|e| failed(&e.to_string()))?;
    let mut mac =
        Hmac::<Sha256>::new_from_slice(&key).map_err(|error| failed(&error.to_string()))?;
    for part in [SEED, &length(&site), &*site, &counter.to_be_bytes()] {
        mac.update(part);
    }
    let seed = mac.finalize().into_bytes();
    let template = templates[usize::from(seed[0]) % templates.len()];
    let pick = |(class, byte): (u8, &u8)| {
        let characters = password_characters(class);
        char::from(characters[usize::from(*byte) % characters.len()])
    };
    Ok(template.bytes().zip(&seed[1..]).map(pick).collect())
}

#[rustfmt::skip]
fn password_templates(kind: &Str) -> Option<&'static [&'static str]> {
    Some(match &**kind {
        b"maximum" => &["anoxxxxxxxxxxxxxxxxx", "axxxxxxxxxxxxxxxxxno"],
        b"long" => &[
            "CvcvnoCvcvCvcv", "CvcvCvcvnoCvcv", "CvcvCvcvCvcvno", "CvccnoCvcvCvcv", "CvccCvcvnoCvcv", "CvccCvcvCvcvno",
            "CvcvnoCvccCvcv", "CvcvCvccnoCvcv", "CvcvCvccCvcvno", "CvcvnoCvcvCvcc", "CvcvCvcvnoCvcc", "CvcvCvcvCvccno",
            "CvccnoCvccCvcv", "CvccCvccnoCvcv", "CvccCvccCvcvno", "CvcvnoCvccCvcc", "CvcvCvccnoCvcc", "CvcvCvccCvccno",
            "CvccnoCvcvCvcc", "CvccCvcvnoCvcc", "CvccCvcvCvccno",
        ],
        b"medium" => &["CvcnoCvc", "CvcCvcno"],
        b"short" => &["Cvcn"],
        b"basic" => &["aaanaaan", "aannaaan", "aaannaaa"],
        b"pin" => &["nnnn"],
        _ => return None,
    })
}

fn password_characters(class: u8) -> &'static [u8] {
    match class {
        b'V' => b"AEIOU",
        b'C' => b"BCDFGHJKLMNPQRSTVWXYZ",
        b'v' => b"aeiou",
        b'c' => b"bcdfghjklmnpqrstvwxyz",
        b'A' => b"AEIOUBCDFGHJKLMNPQRSTVWXYZ",
        b'a' => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz",
        b'n' => b"0123456789",
        b'o' => b"@&%?,=[]_:-+*$#!'^~;()/.",
        _ => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz0123456789!@#$%^&*()",
    }
}

/// The password's bytes, cut or filled with zeros: this is compatibility, not key derivation.
fn aes_key(password: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    let length = password.len().min(key.len());
    key[..length].copy_from_slice(&password[..length]);
    key
}

fn encrypt_aes(state: &mut State<'_>, password: Str, text: Str) -> Result<String, Error> {
    if text.is_empty() {
        return Ok(String::new());
    }
    state.spend_bytes(text.len() as u64)?;
    let mut iv = [0; AES_BLOCK_BYTES];
    state.host().fill_random(&mut iv);
    let mut content = text.to_vec();
    let padding = AES_BLOCK_BYTES - content.len() % AES_BLOCK_BYTES;
    content.resize(content.len() + padding, padding as u8);
    let encryptor = cbc::Encryptor::<Aes256>::new(&aes_key(&password).into(), &iv.into());
    let encrypted = encryptor.encrypt_padded_vec::<NoPadding>(&content);
    Ok(base64::encode([iv.as_slice(), &encrypted].concat()))
}

fn decrypt_aes(password: &[u8], text: &[u8]) -> Result<Vec<u8>, Error> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let encrypted = base64::decode(text).map_err(|error| Error::message(error.to_string()))?;
    let out_of_range = |what: String| Err(super::strings::out_of_range(&what));
    let Some((iv, encrypted)) = encrypted.split_at_checked(AES_BLOCK_BYTES) else {
        // Go checks against the capacity of the decoder's buffer.
        let capacity = text.len() / 4 * 3;
        if capacity < AES_BLOCK_BYTES {
            return out_of_range(format!("[:{AES_BLOCK_BYTES}] with capacity {capacity}"));
        }
        return out_of_range(format!("[{AES_BLOCK_BYTES}:{}]", encrypted.len()));
    };
    if !encrypted.len().is_multiple_of(AES_BLOCK_BYTES) {
        return Err(Error::message("crypto/cipher: input not full blocks"));
    }
    let iv: [u8; AES_BLOCK_BYTES] = iv.try_into().unwrap_or_default();
    let decryptor = cbc::Decryptor::<Aes256>::new(&aes_key(password).into(), &iv.into());
    let mut plain = decryptor
        .decrypt_padded_vec::<NoPadding>(encrypted)
        .map_err(|_| Error::message("crypto/cipher: input not full blocks"))?;
    let Some(&padding) = plain.last() else {
        return Err(Error::message("runtime error: index out of range [-1]"));
    };
    let Some(length) = plain.len().checked_sub(usize::from(padding)) else {
        let length = plain.len() as i64 - i64::from(padding);
        return out_of_range(format!("[:{length}]"));
    };
    plain.truncate(length);
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests() {
        assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
        assert!(hex::encode(&Sha1::digest(b"")).starts_with("da39a3ee"));
    }

    #[test]
    fn decrypting_plain_text_is_an_error() {
        let refused = |text: &str| decrypt_aes(b"pw", text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            refused("YQ=="),
            "runtime error: slice bounds out of range [:16] with capacity 3"
        );
        assert_eq!(refused("!"), "illegal base64 data at input byte 0");
    }
}
