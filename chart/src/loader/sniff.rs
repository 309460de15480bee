//! Telling a gzipped archive from something else before trying to read it.
//!
//! Mirrors `EnsureArchive` of `pkg/chart/loader/archive/archive.go` with the part of Go's
//! `http.DetectContentType` that people meet there.

use std::fs::File;
use std::io::{Chain, Cursor, Read};

use golib::path::io_cause;

use super::error::LoadError;

const SNIFFED: usize = 512;

/// The file's content, if it begins like a gzip stream.
pub(super) fn ensure_archive(
    name: &str,
    mut file: File,
) -> Result<Chain<Cursor<Vec<u8>>, File>, LoadError> {
    let mut start = Vec::with_capacity(SNIFFED);
    file.by_ref()
        .take(SNIFFED as u64)
        .read_to_end(&mut start)
        .map_err(|error| {
            LoadError::Io(format!(
                "file '{name}' cannot be read: {}",
                io_cause(&error)
            ))
        })?;
    if start.starts_with(b"\x1F\x8B\x08") {
        return Ok(Cursor::new(start).chain(file));
    }
    if name.ends_with(".yml") || name.ends_with(".yaml") {
        return Err(LoadError::YamlFile(name.to_owned()));
    }
    let content_type = content_type(&start);
    Err(LoadError::NotGzip {
        file: name.to_owned(),
        content_type,
    })
}

fn content_type(start: &[u8]) -> &'static str {
    const SIGNATURES: &[(&[u8], &str)] = &[
        (b"%PDF-", "application/pdf"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x89PNG\r\n\x1A\n", "image/png"),
        (b"\xFF\xD8\xFF", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"Rar!\x1A\x07", "application/x-rar-compressed"),
        (b"\x00\x61\x73\x6D", "application/wasm"),
    ];
    if let Some((_, known)) = SIGNATURES
        .iter()
        .find(|(magic, _)| start.starts_with(magic))
    {
        return known;
    }
    let begins = |tag: &str| {
        let text = start.trim_ascii_start();
        text.len() > tag.len() && text[..tag.len()].eq_ignore_ascii_case(tag.as_bytes())
    };
    if begins("<!DOCTYPE HTML") || begins("<HTML") || begins("<HEAD") || begins("<BODY") {
        return "text/html; charset=utf-8";
    }
    if begins("<?xml") {
        return "text/xml; charset=utf-8";
    }
    // Helm sniffs a whole buffer of 512 bytes, so a shorter file ends in zeros and looks binary.
    let is_binary = |byte: &u8| matches!(byte, 0..=8 | 0x0B | 0x0E..=0x1A | 0x1C..=0x1F);
    if start.len() < SNIFFED || start.iter().any(is_binary) {
        "application/octet-stream"
    } else {
        "text/plain; charset=utf-8"
    }
}
