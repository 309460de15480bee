//! Files that flags name, with errors as Go words them.

use std::io::Read as _;

use chart::loader;
use chart::source::SafeUrl;

use crate::client;

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
        return client::get(&url);
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
