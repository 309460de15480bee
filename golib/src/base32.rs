//! Base32 as Go's `encoding/base32` writes and reads it (`StdEncoding`).
//!
//! Ours rather than a crate's for the sake of what decoding refuses and the byte its error names: Go takes the line breaks
//! out first, so offsets do not count them, and its rules for padding are its own.
//!
//! ```
//! use golib::base32;
//!
//! assert_eq!(base32::encode("hello"), "NBSWY3DP");
//! assert_eq!(base32::decode("NBSW\nY3DP")?, b"hello");
//! assert_eq!(base32::decode("MFRGG").unwrap_err().to_string(), "illegal base32 data at input byte 0");
//! # Ok::<(), base32::CorruptInputError>(())
//! ```

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Text that is not base32: Go's `base32.CorruptInputError`, printed as Go prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("illegal base32 data at input byte {offset}")]
pub struct CorruptInputError {
    /// The byte that Go names, counted from 0 without line breaks.
    pub offset: usize,
}

/// Go's `StdEncoding.EncodeToString`: padded, on one line.
pub fn encode(data: impl AsRef<[u8]>) -> String {
    let data = data.as_ref();
    let mut out = String::with_capacity(data.len().div_ceil(5) * 8);
    for chunk in data.chunks(5) {
        let mut bytes = [0; 8];
        bytes[3..3 + chunk.len()].copy_from_slice(chunk);
        let bits = u64::from_be_bytes(bytes);
        let digits = (chunk.len() * 8).div_ceil(5);
        for index in 0..8 {
            let digit = (bits >> (35 - 5 * index)) & 31;
            out.push(if index < digits {
                char::from(ALPHABET[digit as usize])
            } else {
                '='
            });
        }
    }
    out
}

/// Go's `StdEncoding.DecodeString`.
///
/// # Errors
/// Anything but groups of eight characters of the alphabet, the last padded with `=`. Line breaks do not count.
pub fn decode(text: impl AsRef<[u8]>) -> Result<Vec<u8>, CorruptInputError> {
    let is_line_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let text = text.as_ref().iter().copied();
    let text: Vec<u8> = text.filter(|b| !is_line_break(b)).collect();
    let corrupt = |offset: usize| Err(CorruptInputError { offset });
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
            let Some(digit) = ALPHABET.iter().position(|&b| b == byte) else {
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
    fn base32_decodes_what_it_encodes() {
        for text in ["", "a", "ab", "abc", "abcd", "hello", "hello!"] {
            assert_eq!(decode(encode(text)).unwrap(), text.as_bytes());
        }
    }
}
