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
    Documents::of(stream).collect()
}

/// The first of [`documents`], whatever stands behind it; `None` where there is none.
///
/// ```
/// let first = golib::yaml::first_document(b"# none\n---\na: 1\n--- x\n").unwrap();
/// assert_eq!(first, Some(b"# none\n".to_vec()));
/// ```
///
/// # Errors
/// Text behind the dashes that end it, or that stand before it.
pub fn first_document(stream: &[u8]) -> Result<Option<Vec<u8>>, SeparatorError> {
    Documents::of(stream).next().transpose()
}

struct Documents<'a> {
    /// `None` once all are read.
    rest: Option<&'a [u8]>,
}

impl<'a> Documents<'a> {
    fn of(stream: &'a [u8]) -> Self {
        let lines = stream.strip_suffix(b"\n").unwrap_or(stream);
        Self {
            rest: (!stream.is_empty()).then_some(lines),
        }
    }

    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let end = rest.iter().position(|&byte| byte == b'\n');
        let (line, rest) = match end {
            Some(end) => (&rest[..end], Some(&rest[end + 1..])),
            None => (rest, None),
        };
        self.rest = rest;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

impl Iterator for Documents<'_> {
    type Item = Result<Vec<u8>, SeparatorError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut document: Vec<u8> = Vec::new();
        while let Some(line) = self.line() {
            if let Some(rest) = line.strip_prefix(b"---") {
                let rest = String::from_utf8_lossy(rest);
                let rest = rest.trim();
                if !rest.is_empty() && !rest.starts_with('#') {
                    self.rest = None;
                    return Some(Err(SeparatorError(rest.to_owned())));
                }
                if !document.is_empty() {
                    return Some(Ok(document));
                }
            }
            document.extend_from_slice(line);
            document.push(b'\n');
        }
        (!document.is_empty()).then_some(Ok(document))
    }
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
