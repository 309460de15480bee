//! Flags that take a list: one record of comma-separated values, as Go's `encoding/csv` reads it.

/// Checks a flag that takes a list, as Go's `encoding/csv` reads one record.
///
/// # Errors
/// Quotes are where they do not belong.
pub(crate) fn checked_list(text: &str) -> Result<String, String> {
    let wrong =
        |column: usize, what: &str| Err(format!("parse error on line 1, column {column}: {what}"));
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let Some(quoted) = rest.strip_prefix('"') else {
            let end = rest.find(',').unwrap_or(rest.len());
            if let Some(quote) = rest[..end].find('"') {
                return wrong(at + quote + 1, "bare \" in non-quoted-field");
            }
            at += end + 1;
            continue;
        };
        let Some(length) = quoted_length(quoted) else {
            return wrong(text.len() + 1, EXTRANEOUS);
        };
        at += 1 + length + 1;
        if !matches!(text.as_bytes().get(at), None | Some(b',')) {
            return wrong(at, EXTRANEOUS);
        }
        at += 1;
    }
    Ok(text.to_owned())
}

const EXTRANEOUS: &str = "extraneous or missing \" in quoted-field";

/// Bytes up to the quote that ends a field.
fn quoted_length(text: &str) -> Option<usize> {
    let mut length = 0;
    loop {
        length += text[length..].find('"')?;
        match text[length + 1..].starts_with('"') {
            true => length += 2,
            false => return Some(length),
        }
    }
}

/// The items of a flag that takes a list, as Go's `encoding/csv` reads one record.
pub(crate) fn list(text: &str) -> Vec<String> {
    let mut items = Vec::new();
    let mut rest = text;
    loop {
        let mut item = String::new();
        if let Some(quoted) = rest.strip_prefix('"') {
            rest = quoted;
            while let Some(end) = rest.find('"') {
                item.push_str(&rest[..end]);
                rest = &rest[end + 1..];
                match rest.strip_prefix('"') {
                    Some(more) => {
                        item.push('"');
                        rest = more;
                    }
                    None => break,
                }
            }
        }
        let end = rest.find(',').unwrap_or(rest.len());
        item.push_str(&rest[..end]);
        if !text.is_empty() {
            items.push(item);
        }
        match rest.get(end + 1..) {
            Some(more) => rest = more,
            None => return items,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_checked_as_csv() {
        for fine in ["", "a", "a,,b,", "\"a,b\",c", "\"a\"\"b\",c"] {
            assert_eq!(checked_list(fine).as_deref(), Ok(fine));
        }
        let column = |text: &str| {
            let error = checked_list(text).unwrap_err();
            error.split([' ', ':']).nth(6).map(str::to_owned)
        };
        assert_eq!(column("\"x").as_deref(), Some("3"));
        assert_eq!(column("a\"b").as_deref(), Some("2"));
        assert_eq!(column("one.yaml,\"").as_deref(), Some("11"));
        assert_eq!(column("\"a\"b").as_deref(), Some("3"));
    }

    #[test]
    fn lists_are_read_as_csv() {
        assert_eq!(list(""), [""; 0]);
        assert_eq!(list("a"), ["a"]);
        assert_eq!(list("a,,b,"), ["a", "", "b", ""]);
        assert_eq!(list("\"a,b\",c"), ["a,b", "c"]);
        assert_eq!(list("\"a\"\"b\",\"c"), ["a\"b", "c"]);
    }
}
