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
    #[arg(short = 'f', long = "values", value_name = "FILE,…")]
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
    fn lists_are_read_as_csv() {
        assert_eq!(list(""), [""; 0]);
        assert_eq!(list("a"), ["a"]);
        assert_eq!(list("a,,b,"), ["a", "", "b", ""]);
        assert_eq!(list("\"a,b\",c"), ["a,b", "c"]);
        assert_eq!(list("\"a\"\"b\",\"c"), ["a\"b", "c"]);
    }
}
