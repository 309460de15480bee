//! Several documents in one text, as apimachinery's `YAMLReader` cuts them.

/// Something other than a comment stands behind the dashes of a separator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid Yaml document separator: {0}")]
pub struct SeparatorError(pub String);

/// Cuts a stream at lines that begin with `---`; line ends become `\n`, and a document without text is left out. A separator
/// before the first document stays with it.
///
/// ```
/// assert_eq!(golib::yaml::documents(b"a: 1\n--- # next\nb: 2").unwrap(), [b"a: 1\n", b"b: 2\n"]);
/// ```
///
/// # Errors
/// Text behind the dashes.
pub fn documents(stream: &[u8]) -> Result<Vec<Vec<u8>>, SeparatorError> {
    let mut documents = Vec::new();
    let mut current: Vec<u8> = Vec::new();
    if stream.is_empty() {
        return Ok(documents);
    }
    let lines = stream.strip_suffix(b"\n").unwrap_or(stream);
    for line in lines.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(rest) = line.strip_prefix(b"---") {
            let rest = String::from_utf8_lossy(rest);
            let rest = rest.trim();
            if !rest.is_empty() && !rest.starts_with('#') {
                return Err(SeparatorError(rest.to_owned()));
            }
            if !current.is_empty() {
                documents.push(std::mem::take(&mut current));
                continue;
            }
        }
        current.extend_from_slice(line);
        current.push(b'\n');
    }
    if !current.is_empty() {
        documents.push(current);
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::documents;

    #[test]
    fn streams_are_cut_at_separators_only() {
        let text = b"a: 1\n---\nb: 2\n--- # comment\nc: 3";
        assert_eq!(
            documents(text).unwrap(),
            [&b"a: 1\n"[..], b"b: 2\n", b"c: 3\n"]
        );
        assert!(documents(b"").unwrap().is_empty());
        assert!(documents(b"a: 1\n---foo\n").is_err());
    }
}
