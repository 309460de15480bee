//! `-f` and `--set…`: the values flags that the commands about charts share.
//!
//! Mirrors `addValueOptionsFlags` (`pkg/cmd/flags.go`) and `pkg/cli/values`.

use std::io::Read as _;

use chart::loader;
use chart::source::SafeUrl;
use chart::values::options::{Options, OptionsError};
use serde_json::Value;

/// Flags that give values; names and meanings are helm's.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ValueFlags {
    /// Values files, later ones over earlier ones; - is standard input
    #[arg(short = 'f', long = "values", value_name = "FILE,…", value_parser = checked_list)]
    pub files: Vec<String>,

    /// Values: key=value,…
    #[arg(long, value_name = "EXPRESSION")]
    pub set: Vec<String>,

    /// Values that stay text: key=value,…
    #[arg(long, value_name = "EXPRESSION")]
    pub set_string: Vec<String>,

    /// Values from files: key=path,…
    #[arg(long, value_name = "EXPRESSION")]
    pub set_file: Vec<String>,

    /// Values as JSON: key=json,… or one JSON object
    #[arg(long, value_name = "EXPRESSION")]
    pub set_json: Vec<String>,

    /// One value taken as it is: key=value
    #[arg(long, value_name = "EXPRESSION")]
    pub set_literal: Vec<String>,
}

impl ValueFlags {
    /// Everything they say, merged in helm's order.
    ///
    /// # Errors
    /// A file cannot be read or an expression is malformed; the text is helm's.
    pub fn merge(&self) -> Result<Value, OptionsError> {
        let options = Options {
            value_files: self.files.iter().flat_map(|text| list(text)).collect(),
            json_values: self.set_json.clone(),
            values: self.set.clone(),
            string_values: self.set_string.clone(),
            file_values: self.set_file.clone(),
            literal_values: self.set_literal.clone(),
        };
        options.merge(&mut read_file)
    }
}

/// Checks a flag that takes a list, as Go's `encoding/csv` reads one record.
///
/// # Errors
/// Quotes are where they do not belong.
pub fn checked_list(text: &str) -> Result<String, String> {
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
pub fn list(text: &str) -> Vec<String> {
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

/// A file, what is at an HTTP address, or standard input for `-`; errors read as Go words them.
///
/// # Errors
/// It cannot be read.
pub fn read_file(name: &str) -> Result<Vec<u8>, String> {
    if name.trim() == "-" {
        let mut data = Vec::new();
        std::io::stdin()
            .read_to_end(&mut data)
            .map_err(|error| error.to_string())?;
        return Ok(data);
    }
    let scheme = ["http://", "https://"];
    if scheme.iter().any(|scheme| name.trim().starts_with(scheme)) {
        let url = SafeUrl::parse(name.trim()).map_err(|error| error.to_string())?;
        return super::chart_flags::get(&url);
    }
    std::fs::read(name).map_err(|error| go_cause(name, &error))
}

/// Why a file cannot be read, in Go's words.
pub fn go_cause(name: &str, error: &std::io::Error) -> String {
    // Opening a directory works.
    let is_directory = error.kind() == std::io::ErrorKind::IsADirectory;
    let action = if is_directory { "read" } else { "open" };
    format!("{action} {name}: {}", loader::io_cause(error))
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
