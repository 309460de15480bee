//! Decodes base64 as Go's `base64.StdEncoding` does: line breaks do not count, padding must be there,
//! and an error names the byte Go would name.

/// The decoded bytes, or the position of the byte that is wrong.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let mut bytes = text
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, byte)| !matches!(byte, b'\r' | b'\n'));
    loop {
        let mut quantum = [0u32; 4];
        let mut filled = 0;
        while filled < 4 {
            let Some((at, byte)) = bytes.next() else {
                return if filled == 0 {
                    Ok(out)
                } else {
                    Err(text.len() - filled)
                };
            };
            if let Some(value) = value_of(byte) {
                quantum[filled] = value;
                filled += 1;
                continue;
            }
            if byte != b'=' || filled < 2 {
                return Err(at);
            }
            if filled == 2 {
                match bytes.next() {
                    None => return Err(text.len()),
                    Some((_, b'=')) => {}
                    Some((at, _)) => return Err(at - 1),
                }
            }
            if let Some((garbage, _)) = bytes.next() {
                return Err(garbage);
            }
            push(&mut out, quantum, filled);
            return Ok(out);
        }
        push(&mut out, quantum, filled);
    }
}

fn value_of(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

fn push(out: &mut Vec<u8>, quantum: [u32; 4], filled: usize) {
    let [a, b, c, d] = quantum;
    let [_, bytes @ ..] = (a << 18 | b << 12 | c << 6 | d).to_be_bytes();
    out.extend(&bytes[..filled - 1]);
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn positions_are_gos() {
        assert_eq!(decode(b"aGk=").unwrap(), b"hi");
        assert_eq!(decode(b"aG\r\nk=\n").unwrap(), b"hi");
        assert_eq!(decode(b"").unwrap(), b"");
        for (text, at) in [
            ("aGk", 0),
            ("aGkaG", 4),
            ("a===", 1),
            ("aG=x", 2),
            ("aG=", 3),
            ("aGk=aGk=", 4),
            ("%", 0),
            ("aGk\u{7f}", 3),
        ] {
            assert_eq!(decode(text.as_bytes()), Err(at), "{text}");
        }
    }
}
