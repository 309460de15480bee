//! `b64enc`, `b32enc` and back, with the errors of Go's decoders: they name the byte where decoding stopped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Functions;
use crate::value::Str;

pub(super) fn add(f: &mut Functions) {
    f.add("b64enc", |s: Str| STANDARD.encode(&*s));
    f.add("b64dec", |s: Str| {
        decode64(&s).unwrap_or_else(String::into_bytes)
    });
    f.add("b32enc", |s: Str| encode32(&s));
    f.add("b32dec", |s: Str| {
        decode32(&s).unwrap_or_else(String::into_bytes)
    });
}

const ALPHABET_32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn is_newline(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

/// Go's `base64.StdEncoding.DecodeString`: padded, newlines skipped, stray bits ignored.
pub(super) fn decode64(text: &[u8]) -> Result<Vec<u8>, String> {
    let corrupt = |at: usize| Err(format!("illegal base64 data at input byte {at}"));
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let mut at = 0;
    while at < text.len() {
        let mut quantum = [0_u8; 4];
        let mut length = 0;
        let mut padded = false;
        while length < 4 {
            let Some(&byte) = text.get(at) else {
                if length == 0 {
                    return Ok(out);
                }
                return corrupt(at - length);
            };
            at += 1;
            let digit = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                byte if is_newline(byte) => continue,
                b'=' if length >= 2 => {
                    padded = true;
                    break;
                }
                _ => return corrupt(at - 1),
            };
            quantum[length] = digit;
            length += 1;
        }
        if padded {
            let skip_newlines = |at: &mut usize| {
                while text.get(*at).copied().is_some_and(is_newline) {
                    *at += 1;
                }
            };
            if length == 2 {
                skip_newlines(&mut at);
                match text.get(at) {
                    None => return corrupt(text.len()),
                    Some(b'=') => at += 1,
                    Some(_) => return corrupt(at - 1),
                }
            }
            skip_newlines(&mut at);
            if at < text.len() {
                return corrupt(at);
            }
        }
        let [a, b, c, d] = quantum;
        let bytes = [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d];
        out.extend_from_slice(&bytes[..length - 1]);
    }
    Ok(out)
}

fn encode32(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len().div_ceil(5) * 8);
    for chunk in text.chunks(5) {
        let mut bytes = [0; 8];
        bytes[3..3 + chunk.len()].copy_from_slice(chunk);
        let bits = u64::from_be_bytes(bytes);
        let digits = (chunk.len() * 8).div_ceil(5);
        for index in 0..8 {
            let digit = (bits >> (35 - 5 * index)) & 31;
            out.push(if index < digits {
                char::from(ALPHABET_32[digit as usize])
            } else {
                '='
            });
        }
    }
    out
}

/// Go's `base32.StdEncoding.DecodeString`. Newlines are taken out first, so positions do not count them.
fn decode32(text: &[u8]) -> Result<Vec<u8>, String> {
    let text: Vec<u8> = text.iter().copied().filter(|&b| !is_newline(b)).collect();
    let corrupt = |at: usize| Err(format!("illegal base32 data at input byte {at}"));
    let mut out = Vec::with_capacity(text.len() / 8 * 5);
    let mut at = 0;
    let mut is_end = false;
    while at < text.len() && !is_end {
        let mut bits = 0_u64;
        let mut length = 0;
        while length < 8 {
            let Some(&byte) = text.get(at) else {
                return corrupt(at - length);
            };
            at += 1;
            let left = text.len() - at;
            if byte == b'=' && length >= 2 && left < 8 {
                if left + length < 7 {
                    return corrupt(text.len());
                }
                for k in 0..7 - length {
                    if text.get(at + k).is_some_and(|&b| b != b'=') {
                        return corrupt(at + k - 1);
                    }
                }
                // These many digits do not make whole bytes.
                if matches!(length, 3 | 6) {
                    return corrupt(at - 1);
                }
                is_end = true;
                break;
            }
            let Some(digit) = ALPHABET_32.iter().position(|&b| b == byte) else {
                return corrupt(at - 1);
            };
            bits |= (digit as u64) << (35 - 5 * length);
            length += 1;
        }
        out.extend_from_slice(&bits.to_be_bytes()[3..3 + length * 5 / 8]);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_byte() {
        for (text, at) in [
            ("YQ", 0),
            ("a$b", 1),
            ("YW Jj", 2),
            ("YWJj=", 4),
            ("YQ=", 3),
        ] {
            let error = decode64(text.as_bytes()).unwrap_err();
            assert_eq!(
                error,
                format!("illegal base64 data at input byte {at}"),
                "{text}"
            );
        }
        assert_eq!(decode64(b"YW\nJj").unwrap(), b"abc");
        assert_eq!(
            decode32(b"MFRGG").unwrap_err(),
            "illegal base32 data at input byte 0"
        );
    }

    #[test]
    fn base32_round_trips() {
        for text in ["", "a", "ab", "abc", "abcd", "hello", "hello!"] {
            assert_eq!(
                decode32(encode32(text.as_bytes()).as_bytes()).unwrap(),
                text.as_bytes()
            );
        }
    }
}
