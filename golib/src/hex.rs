//! Bytes as Go's `encoding/hex` writes them.

use std::fmt::Write as _;

/// Two lower-case digits a byte.
///
/// ```
/// assert_eq!(golib::hex::encode(&[0, 171]), "00ab");
/// ```
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
