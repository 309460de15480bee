//! Flags that take a list: one record of comma-separated values, as Go's `encoding/csv` reads it.

/// Checks a flag that takes a list, and keeps it as it was written.
///
/// # Errors
/// As those of [`list`].
pub(crate) fn checked_list(text: &str) -> Result<String, String> {
    list(text).map(|_| text.to_owned())
}

/// The items of a flag that takes a list, as Go's `encoding/csv` reads one record. Of a flag that was read with [`checked_list`] there
/// are no errors.
///
/// # Errors
/// Quotes are where they do not belong.
pub(crate) fn list(text: &str) -> Result<Vec<String>, String> {
    const EXTRANEOUS: &str = "extraneous or missing \" in quoted-field";
    let wrong =
        |column: usize, what: &str| Err(format!("parse error on line 1, column {column}: {what}"));
    let mut items = Vec::new();
    let mut at = 0;
    while !text.is_empty() && at <= text.len() {
        let mut rest = &text[at..];
        let mut item = String::new();
        if let Some(quoted) = rest.strip_prefix('"') {
            rest = quoted;
            loop {
                let Some((part, after)) = rest.split_once('"') else {
                    return wrong(text.len() + 1, EXTRANEOUS);
                };
                item.push_str(part);
                rest = after;
                match rest.strip_prefix('"') {
                    Some(more) => rest = more,
                    None => break,
                }
                item.push('"');
            }
            if !rest.is_empty() && !rest.starts_with(',') {
                return wrong(text.len() - rest.len(), EXTRANEOUS);
            }
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            if let Some(quote) = rest[..end].find('"') {
                return wrong(at + quote + 1, "bare \" in non-quoted-field");
            }
            item.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        items.push(item);
        at = text.len() - rest.len() + 1;
    }
    Ok(items)
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
        assert_eq!(list("").unwrap(), [""; 0]);
        assert_eq!(list("a").unwrap(), ["a"]);
        assert_eq!(list("a,,b,").unwrap(), ["a", "", "b", ""]);
        assert_eq!(list("\"a,b\",c").unwrap(), ["a,b", "c"]);
        assert_eq!(list("\"a\"\"b\",\"c\"").unwrap(), ["a\"b", "c"]);
    }
}
