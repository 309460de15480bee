//! ASCII armor: a type, headers, and bytes in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::PgpError;

/// The blocks of this type in a text, decoded. What stands between blocks is skipped.
pub(super) fn blocks(text: &str, kind: &str) -> Result<Vec<Vec<u8>>, PgpError> {
    let begin = format!("-----BEGIN {kind}-----");
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while lines.by_ref().any(|line| line.trim_end() == begin) {
        blocks.push(block(&mut lines, kind)?);
    }
    Ok(blocks)
}

/// The bytes of a block whose first line has been read.
pub(super) fn block<'a>(
    lines: &mut impl Iterator<Item = &'a str>,
    kind: &str,
) -> Result<Vec<u8>, PgpError> {
    let malformed = |problem: &str| PgpError::Armor(problem.to_owned());
    let end = format!("-----END {kind}-----");
    let mut encoded = String::new();
    let mut in_headers = true;
    let mut checksum_seen = false;
    for line in lines {
        let line = line.trim_end();
        if line == end {
            let decoded = STANDARD.decode(&encoded);
            return decoded.map_err(|_| malformed("what is in it is not base64"));
        }
        if in_headers {
            if line.is_empty() {
                in_headers = false;
                continue;
            }
            if line.contains(": ") || line.ends_with(':') {
                continue;
            }
            // Some write no empty line where there are no headers.
            in_headers = false;
        }
        match line {
            "" => {}
            // The checksum against transmission errors says nothing about who wrote it.
            line if line.starts_with('=') && line.len() == 5 => checksum_seen = true,
            _ if checksum_seen => return Err(malformed("there is data after the checksum")),
            line => encoded.push_str(line),
        }
    }
    Err(malformed("its end is missing"))
}
