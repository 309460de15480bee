//! Reading a chart archive (a gzipped tar) into files, within bounds.
//!
//! Mirrors `pkg/chart/loader/archive/archive.go`: path rules, the 100 MiB limit and its texts. Beyond
//! Helm's own limits the number of entries and the size of the tar stream are bounded too, and
//! archives nested in an archive share its budget, so that a hostile archive has a bounded cost.

use std::io::{self, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use tar::EntryType;

use crate::chart::File;
use crate::time::Time;

/// Sum of all decompressed files of a chart, in bytes, those of nested archives included.
pub const MAX_DECOMPRESSED_CHART_SIZE: u64 = 100 * 1024 * 1024;
/// Number of entries of an archive, or of files of a directory.
pub const MAX_FILES: usize = 50_000;
/// Size of the whole tar stream in bytes: files, padding and headers.
const MAX_STREAM: u64 = MAX_DECOMPRESSED_CHART_SIZE + 64 * 1024 * 1024;

/// Size of a file for which memory is set aside before its content was seen.
const TRUSTED_SIZE: u64 = 8 * 1024 * 1024;

const GZIP_HEADER_BYTES: usize = 10;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// An archive that is no chart, or a hostile one. The text is Helm's where Helm refuses it too.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The file name's rest is absolute.
    #[error("chart illegally contains absolute paths")]
    AbsolutePath,
    /// A file lies beside the base directory.
    #[error("chart illegally contains content outside the base directory: {}", golib::strconv::quote(.0))]
    OutsideBase(String),
    /// A file name leads upwards.
    #[error("chart illegally references parent directory")]
    ParentDirectory,
    /// A file name begins with a drive letter.
    #[error("chart contains illegally named files")]
    DriveLetter,
    /// `Chart.yaml` is used as a directory.
    #[error("chart yaml not in base directory")]
    ChartYamlOutsideBase,
    /// The files are too large together.
    #[error("decompressed chart is larger than the maximum size {MAX_DECOMPRESSED_CHART_SIZE}")]
    TooLarge,
    /// There are too many entries.
    #[error("chart archive has more than {MAX_FILES} entries")]
    TooManyFiles,
    /// There is nothing in it.
    #[error("no files in chart archive")]
    Empty,
    /// The gzip header is wrong.
    #[error("gzip: invalid header")]
    GzipHeader,
    /// There is no data at all.
    #[error("EOF")]
    NoData,
    /// The archive ends too early.
    #[error("unexpected EOF")]
    Truncated,
    /// The gzip or tar data is corrupt.
    #[error("corrupt chart archive: {0}")]
    Corrupt(#[source] io::Error),
}

/// How much may still be read.
#[derive(Debug)]
pub(crate) struct Budget(u64);

impl Default for Budget {
    fn default() -> Self {
        Self(MAX_DECOMPRESSED_CHART_SIZE)
    }
}

impl Budget {
    pub(crate) fn left(&self) -> u64 {
        self.0
    }

    /// Takes `bytes` out; false if that leaves less than nothing.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        match self.0.checked_sub(bytes) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => false,
        }
    }
}

/// The files of a chart archive, in the archive's order and without its base directory.
///
/// ```
/// # use std::io::Write as _;
/// use chart::archive::load_archive_files;
///
/// # let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
/// # let mut tar = tar::Builder::new(&mut gzip);
/// # let mut header = tar::Header::new_gnu();
/// # header.set_size(10);
/// # tar.append_data(&mut header, "web/Chart.yaml", &b"name: web\n"[..])?;
/// # tar.finish()?;
/// # drop(tar);
/// # let archive = gzip.finish()?;
/// let files = load_archive_files(&archive[..])?; // of web-1.0.0.tgz
/// assert_eq!(files[0].name, "Chart.yaml");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The archive is corrupt, breaks a path rule, or is too large.
pub fn load_archive_files(data: impl Read) -> Result<Vec<File>, ArchiveError> {
    load_within(data, &mut Budget::default())
}

pub(crate) fn load_within(data: impl Read, budget: &mut Budget) -> Result<Vec<File>, ArchiveError> {
    let mut reader = BufReader::new(data);
    check_gzip_header(&mut reader)?;
    let stream = MultiGzDecoder::new(reader).take(MAX_STREAM);
    let mut archive = tar::Archive::new(stream);
    let mut files = Vec::new();
    for (count, entry) in archive.entries().map_err(broken)?.enumerate() {
        if count >= MAX_FILES {
            return Err(ArchiveError::TooManyFiles);
        }
        let mut entry = entry.map_err(broken)?;
        let kind = entry.header().entry_type();
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if kind == EntryType::Directory
            || (kind.is_file() && name.ends_with('/'))
            || kind.is_pax_global_extensions()
            || kind.is_pax_local_extensions()
        {
            continue;
        }
        let path = path_in_chart(&name)?;
        let modtime = entry
            .header()
            .mtime()
            .ok()
            .and_then(|seconds| i64::try_from(seconds).ok());
        let holds_data = kind.is_file()
            || kind.is_contiguous()
            || kind.is_gnu_sparse()
            || !matches!(kind.as_byte(), b'1'..=b'6');
        let mut data = Vec::new();
        if holds_data {
            let size = entry.size();
            if size > budget.left() {
                return Err(ArchiveError::TooLarge);
            }
            // What is read by and by would be up to twice as large in memory; a header alone gets no more than this.
            data.reserve_exact(usize::try_from(size.min(TRUSTED_SIZE)).unwrap_or(0));
            entry
                .by_ref()
                .take(size)
                .read_to_end(&mut data)
                .map_err(broken)?;
            if (data.len() as u64) < size {
                return Err(ArchiveError::Truncated);
            }
        }
        // Helm refuses a chart that uses its budget up to the last byte.
        if !budget.take(data.len() as u64) || budget.left() == 0 {
            return Err(ArchiveError::TooLarge);
        }
        files.push(
            File::new(path, without_byte_order_mark(data))
                .modified(modtime.map(Time::from_unix_seconds).unwrap_or_default()),
        );
    }
    if files.is_empty() {
        return Err(ArchiveError::Empty);
    }
    Ok(files)
}

fn check_gzip_header(reader: &mut impl io::BufRead) -> Result<(), ArchiveError> {
    let start = reader.fill_buf().map_err(ArchiveError::Corrupt)?;
    match start {
        [] => Err(ArchiveError::NoData),
        // Go reads the whole header before it looks at it.
        short if short.len() < GZIP_HEADER_BYTES => Err(ArchiveError::Truncated),
        [0x1F, 0x8B, 8, ..] => Ok(()),
        _ => Err(ArchiveError::GzipHeader),
    }
}

fn broken(error: io::Error) -> ArchiveError {
    if error.kind() == io::ErrorKind::UnexpectedEof
        || error.to_string().contains("failed to read entire block")
    {
        ArchiveError::Truncated
    } else {
        ArchiveError::Corrupt(error)
    }
}

/// Drops the base directory and applies Helm's path rules.
fn path_in_chart(name: &str) -> Result<String, ArchiveError> {
    // Archives made on Windows may use `\`.
    let separator = if name.contains('\\') { '\\' } else { '/' };
    let (first, rest) = name.split_once(separator).unwrap_or((name, ""));
    let rest = rest.replace(separator, "/");
    if rest.starts_with('/') {
        return Err(ArchiveError::AbsolutePath);
    }
    let clean = golib::path::clean(rest.as_bytes());
    let clean = String::from_utf8_lossy(&clean).into_owned();
    if clean == "." {
        return Err(ArchiveError::OutsideBase(name.to_owned()));
    }
    if clean.starts_with("..") {
        return Err(ArchiveError::ParentDirectory);
    }
    if matches!(clean.as_bytes(), [drive, b':', b'/', ..] if drive.is_ascii_alphabetic()) {
        return Err(ArchiveError::DriveLetter);
    }
    if first == "Chart.yaml" {
        return Err(ArchiveError::ChartYamlOutsideBase);
    }
    Ok(clean)
}

/// A byte-order mark is no part of a file's content.
pub(crate) fn without_byte_order_mark(data: Vec<u8>) -> bytes::Bytes {
    let marked = data.starts_with(BYTE_ORDER_MARK);
    let data = bytes::Bytes::from(data);
    if marked {
        data.slice(BYTE_ORDER_MARK.len()..)
    } else {
        data
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{ArchiveError, MAX_FILES, load_archive_files, path_in_chart};

    fn archive(build: impl FnOnce(&mut tar::Builder<&mut Vec<u8>>)) -> Vec<u8> {
        let mut tarred = Vec::new();
        let mut builder = tar::Builder::new(&mut tarred);
        build(&mut builder);
        builder.finish().expect("memory does not fail");
        drop(builder);
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&tarred).expect("memory does not fail");
        gz.finish().expect("memory does not fail")
    }

    fn add(builder: &mut tar::Builder<&mut Vec<u8>>, name: &str, data: &[u8]) {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, name, data)
            .expect("memory does not fail");
    }

    #[test]
    fn paths_are_relative_to_the_base_directory() {
        assert_eq!(path_in_chart("demo/a/../b").expect("harmless"), "b");
        assert_eq!(path_in_chart(r"demo\a\b").expect("harmless"), "a/b");
        for hostile in [
            "demo//etc/passwd",
            "demo/../x",
            "demo/..foo",
            "values.yaml",
            "demo/c:/x",
        ] {
            assert!(path_in_chart(hostile).is_err(), "{hostile}");
        }
    }

    #[test]
    fn zip_bombs_stop_at_the_budget() {
        let zeros = vec![0; 60 * 1024 * 1024];
        let bomb = archive(|tar| {
            add(tar, "demo/a", &zeros);
            add(tar, "demo/b", &zeros);
        });
        assert!(matches!(
            load_archive_files(&bomb[..]),
            Err(ArchiveError::TooLarge)
        ));
    }

    #[test]
    fn a_million_files_stop_at_the_limit() {
        let many = archive(|tar| (0..=MAX_FILES).for_each(|i| add(tar, &format!("demo/{i}"), b"")));
        assert!(matches!(
            load_archive_files(&many[..]),
            Err(ArchiveError::TooManyFiles)
        ));
    }

    #[test]
    fn a_truncated_archive_and_no_archive_are_different_errors() {
        let whole = archive(|tar| add(tar, "demo/Chart.yaml", b"name: demo\n"));
        assert_eq!(load_archive_files(&whole[..]).expect("whole").len(), 1);
        let cut = &whole[..whole.len() / 2];
        assert!(matches!(
            load_archive_files(cut),
            Err(ArchiveError::Truncated)
        ));
        assert!(matches!(
            load_archive_files(&b"name: demo\nversion: 1\n"[..]),
            Err(ArchiveError::GzipHeader)
        ));
    }
}
