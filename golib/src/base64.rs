//! Base64 as Go's `encoding/base64` writes and reads it (`StdEncoding`).
//!
//! Decoding skips line breaks wherever they stand, wants padding, and overlooks stray bits in the last character. The work
//! is the `base64` crate's; what is ours is the place that an error names, which users of Go programs know.
//!
//! ```
//! use golib::base64;
//!
//! assert_eq!(base64::encode("hi"), "aGk=");
//! assert_eq!(base64::decode("aG\nk=")?, b"hi");
//! let error = base64::decode("aG!=").unwrap_err();
//! assert_eq!(error.offset, 2);
//! assert_eq!(error.to_string(), "illegal base64 data at input byte 2");
//! # Ok::<(), base64::CorruptInputError>(())
//! ```

use std::borrow::Cow;

use ::base64::Engine as _;
use ::base64::alphabet::STANDARD;
use ::base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Text that is not base64: Go's `base64.CorruptInputError`, printed as Go prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {offset}")]
pub struct CorruptInputError {
    /// The byte that Go names, counted from 0. Of a text that ends too early it is where its last, incomplete group begins.
    pub offset: usize,
}

/// Go's `StdEncoding.EncodeToString`: padded, on one line.
pub fn encode(data: impl AsRef<[u8]>) -> String {
    ENGINE.encode(data)
}

/// Go's `StdEncoding.DecodeString`.
///
/// # Errors
/// Anything but groups of four characters of the alphabet, the last padded with `=`. Line breaks do not count.
pub fn decode(text: impl AsRef<[u8]>) -> Result<Vec<u8>, CorruptInputError> {
    let text = text.as_ref();
    let packed: Cow<'_, [u8]> = if text.iter().any(is_line_break) {
        text.iter().copied().filter(|b| !is_line_break(b)).collect()
    } else {
        text.into()
    };
    ENGINE.decode(packed).map_err(|_| CorruptInputError {
        offset: corrupt_at(text),
    })
}

fn is_line_break(byte: &u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// The byte that Go's `decodeQuantum` names in a text that is not base64.
fn corrupt_at(text: &[u8]) -> usize {
    let mut bytes = text.iter().enumerate().filter(|(_, b)| !is_line_break(b));
    loop {
        for filled in 0..4 {
            let at = match bytes.next() {
                None => return text.len() - filled,
                Some((_, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/')) => continue,
                Some((at, _)) if filled < 2 => return at,
                Some((at, b'=')) => at,
                Some((at, _)) => return at,
            };
            // Two characters are padded by two, three by one, and nothing follows.
            return match (filled, bytes.next()) {
                (2, None) => text.len(),
                (2, Some((_, b'='))) => bytes.next().map_or(at, |(at, _)| at),
                (2, Some((at, _))) => at - 1,
                (_, next) => next.map_or(at, |(at, _)| at),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_byte_that_go_names() {
        for (text, offset) in [
            ("aGk", 0),
            ("aGkaG", 4),
            ("YW Jj", 2),
            ("a===", 1),
            ("aG=x", 2),
            ("aG=", 3),
            ("aG=\n", 4),
            ("aGk=aGk=", 4),
            ("aG==\nx", 5),
            ("%", 0),
            ("aGk\u{7f}", 3),
        ] {
            assert_eq!(decode(text), Err(CorruptInputError { offset }), "{text}");
        }
    }

    #[test]
    fn line_breaks_and_stray_bits_are_overlooked() {
        for (text, data) in [
            ("", ""),
            ("aGk=", "hi"),
            ("aG\r\nk\n=\n", "hi"),
            ("aGl=", "hi"),
            ("aB==", "h"),
        ] {
            assert_eq!(decode(text).unwrap(), data.as_bytes(), "{text}");
        }
    }

    /// Every text of up to six of these characters: what the crate refuses has a place, and what it takes is what Go takes.
    #[test]
    fn the_crate_decodes_as_go() {
        const LETTERS: &[u8] = b"aQ=\n!";
        for length in 0..=6_u32 {
            for mut number in 0..LETTERS.len().pow(length) {
                let mut text = Vec::new();
                for _ in 0..length {
                    text.push(LETTERS[number % LETTERS.len()]);
                    number /= LETTERS.len();
                }
                let packed: Vec<u8> = text.iter().copied().filter(|b| *b != b'\n').collect();
                let padding = packed.iter().rev().take_while(|b| **b == b'=').count();
                let letters = &packed[..packed.len() - padding];
                let is_valid = packed.len().is_multiple_of(4)
                    && padding <= 2
                    && letters.iter().all(|b| b.is_ascii_alphabetic());
                let shown = String::from_utf8_lossy(&text);
                match decode(&text) {
                    Ok(_) => assert!(is_valid, "{shown:?}"),
                    Err(error) => {
                        assert!(!is_valid, "{shown:?}");
                        assert!(error.offset <= text.len(), "{shown:?}");
                    }
                }
            }
        }
    }
}
