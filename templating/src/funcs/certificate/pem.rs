//! PEM as Go's `encoding/pem` reads and writes it.

use golib::base64;
use memchr::{memchr, memmem};

/// A block of PEM.
#[derive(Debug)]
pub(super) struct Block {
    /// The text after `BEGIN`.
    pub(super) label: Vec<u8>,
    pub(super) content: Vec<u8>,
}

/// The text of a block, in lines of 64 characters.
pub(super) fn encode(label: &str, content: &[u8]) -> String {
    let encoded = base64::encode(content);
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in encoded.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";

/// The first block of a text that is well formed: the first line with `END`, and the last one with `BEGIN` before it.
pub(super) fn decode(text: &[u8]) -> Option<Block> {
    let mut from = 0;
    loop {
        let end = from + memmem::find(text.get(from..)?, END)?;
        let after_end = end + END.len();
        let begin = memmem::rfind(&text[from..end], BEGIN).map(|at| from + at);
        let is_at_line = |at: &usize| *at == from || text[*at - 1] == b'\n';
        if let Some(begin) = begin.filter(is_at_line) {
            match block(text, begin + BEGIN.len(), end) {
                Found::Block(block) => return Some(block),
                Found::Malformed => {}
                Found::PastTheEnd => return None,
            }
        }
        from = after_end;
    }
}

enum Found {
    Block(Block),
    Malformed,
    /// Headers run on beyond the line with `END`: Go looks no further.
    PastTheEnd,
}

/// The block whose label begins at one place and whose line with `END` at another.
fn block(text: &[u8], at: usize, end: usize) -> Found {
    let (line, mut at) = line(text, at);
    let Some(label) = line.strip_suffix(DASHES) else {
        return Found::Malformed;
    };
    let mut has_headers = false;
    loop {
        if at == text.len() {
            return Found::PastTheEnd;
        }
        let (header, next) = self::line(text, at);
        if !header.contains(&b':') {
            break;
        }
        has_headers = true;
        at = next;
    }
    let after_end = end + END.len();
    if has_headers && end < at {
        return if after_end < at {
            Found::PastTheEnd
        } else {
            Found::Malformed
        };
    }
    let closing = text[after_end..]
        .strip_prefix(label)
        .and_then(|rest| rest.strip_prefix(DASHES));
    if closing.is_none_or(|rest| !self::line(rest, 0).0.is_empty()) {
        return Found::Malformed;
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let body = text.get(at..end).unwrap_or_default();
    let body: Vec<u8> = body.iter().copied().filter(|b| !is_blank(b)).collect();
    match base64::decode(&body) {
        Ok(content) => Found::Block(Block {
            label: label.to_vec(),
            content,
        }),
        Err(_) => Found::Malformed,
    }
}

/// The line at a place, without blanks at its end, and where the next one begins.
fn line(text: &[u8], at: usize) -> (&[u8], usize) {
    let rest = &text[at..];
    let (line, next) = match memchr(b'\n', rest) {
        None => (rest, text.len()),
        Some(length) => {
            let line = &rest[..length];
            (line.strip_suffix(b"\r").unwrap_or(line), at + length + 1)
        }
    };
    let blanks = line
        .iter()
        .rev()
        .take_while(|byte| matches!(byte, b' ' | b'\t'))
        .count();
    (&line[..line.len() - blanks], next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_round_trip() {
        let text = encode("X", &[1; 100]);
        let block = decode(text.as_bytes()).unwrap();
        assert_eq!(
            (block.label.as_slice(), block.content),
            (&b"X"[..], vec![1; 100])
        );
        assert!(decode(b"-----BEGIN X-----\n!\n-----END X-----\n").is_none());
    }
}
