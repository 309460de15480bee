//! What lies in a folder, as text: files with their content, archives with what is in them.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// Times after this are those of the test.
const RECENT: u64 = 1_700_000_000;

/// All files below `place`, in the order of their names.
pub(crate) fn show(folder: &Path, place: &str) -> String {
    let mut files = Vec::new();
    collect(&folder.join(place), &mut files);
    files.sort();
    let mut text = String::new();
    for file in files {
        let name = file.strip_prefix(folder).expect("it is below");
        let data = std::fs::read(&file).expect("a file");
        if data.starts_with(&[0x1f, 0x8b]) {
            archive(&name.display().to_string(), &data, &mut text);
        } else {
            let _ = writeln!(text, "{}", name.display());
            content(&data, &mut text);
        }
    }
    text
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    let about = std::fs::symlink_metadata(path);
    if about.is_ok_and(|about| about.is_dir()) {
        for entry in std::fs::read_dir(path).expect("a folder") {
            collect(&entry.expect("an entry").path(), files);
        }
    } else if path.exists() {
        files.push(path.to_owned());
    }
}

fn content(data: &[u8], text: &mut String) {
    for line in String::from_utf8_lossy(data).lines() {
        let line = match line.strip_prefix("generated: \"202") {
            Some(_) => "generated: NOW",
            None => line,
        };
        let _ = writeln!(text, "  {line}");
    }
}

fn archive(name: &str, data: &[u8], text: &mut String) {
    let zipped = GzDecoder::new(data);
    let comment = zipped.header().and_then(|header| header.comment());
    let comment = String::from_utf8_lossy(comment.unwrap_or_default()).into_owned();
    let mut archive = tar::Archive::new(zipped);
    for entry in archive.entries().expect("entries") {
        let mut entry = entry.expect("an entry");
        let path = entry.path().expect("a path").display().to_string();
        let (mode, time) = (
            entry.header().mode().expect("a mode"),
            entry.header().mtime().expect("a time"),
        );
        let time = match time {
            ..RECENT => time.to_string(),
            _ => "NOW".to_owned(),
        };
        let _ = writeln!(text, "{name} {comment}: {path} {mode:o} {time}");
        let mut data = Vec::new();
        entry.read_to_end(&mut data).expect("content");
        content(&data, text);
    }
}

/// An archive of files by path.
pub(crate) fn packed(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::none()));
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(1_000_000_000);
        builder
            .append_data(&mut header, path, content.as_bytes())
            .expect("room");
    }
    let zipped = builder.into_inner().expect("an archive");
    zipped.finish().expect("an archive")
}
