//! Reading a chart archive (a gzipped tar) into files, within bounds.
//!
//! Mirrors `pkg/chart/loader/archive/archive.go`: path rules, the 100 MiB limit and its texts. Beyond
//! Helm's own limits the number of entries, their paths and headers, and the size of the tar streams are bounded too, and
//! archives nested in an archive share its budget, so that a hostile archive has a bounded cost.

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use tar::EntryType;

use crate::chart::File;
use crate::time::Time;

/// Sum of all decompressed files of a chart, in bytes, those of nested archives included.
pub const MAX_DECOMPRESSED_CHART_SIZE: u64 = 100 * 1024 * 1024;
/// How deep charts may lie in charts.
pub const MAX_CHART_DEPTH: usize = 64;
/// Number of entries of an archive, or of files of a directory.
pub const MAX_FILES: usize = 50_000;
/// Limit on tar streams besides the files in them, in bytes: headers, padding and skipped entries.
const AROUND_FILES: u64 = 64 * 1024 * 1024;
/// Limit on headers between two files, in bytes: a long name, a long link name and attributes, of which Go takes a mebibyte each.
const BETWEEN_FILES: u64 = (3 << 20) + (64 << 10);
/// The longest path of a file, in bytes: Linux has no longer ones.
const MAX_PATH: usize = 4096;
/// Limit on the paths of all files, in bytes.
const MAX_PATHS: u64 = 8 << 20;
/// So much of a path is quoted, in characters.
const MOST_QUOTED: usize = 200;

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
    #[error("chart illegally contains content outside the base directory: {}", quoted(.0))]
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
    #[error("decompressed chart is larger than the maximum size {0}")]
    TooLarge(u64),
    /// There are too many entries.
    #[error("chart archive has more than {MAX_FILES} entries")]
    TooManyFiles,
    /// A name, or what else stands before a file, is too long.
    #[error("archive/tar: header field too long")]
    HeaderTooLong,
    /// A path is longer than any system has one.
    #[error("chart archive has a path of more than {MAX_PATH} bytes")]
    PathTooLong,
    /// The paths are too long together.
    #[error("paths in chart archive take more than {MAX_PATHS} bytes")]
    PathsTooLong,
    /// A file has holes, which are in no stream and can be as large as its header says.
    #[error("chart archive has a sparse file")]
    Sparse,
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

/// How much one chart may still take, with all archives that are nested in it.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    data: Cell<u64>,
    stream: Cell<u64>,
    paths: Cell<u64>,
    entries: Cell<usize>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(MAX_DECOMPRESSED_CHART_SIZE)
    }
}

impl Budget {
    /// For a chart whose files may take so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self {
            limit: bytes,
            data: Cell::new(bytes),
            stream: Cell::new(bytes.saturating_add(AROUND_FILES)),
            paths: Cell::new(MAX_PATHS),
            entries: Cell::new(MAX_FILES),
        }
    }

    /// Bytes of files.
    pub(crate) fn left(&self) -> u64 {
        self.data.get()
    }

    /// Takes `bytes` of files out; false if that leaves less than nothing.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        take(&self.data, bytes)
    }

    fn too_large(&self) -> ArchiveError {
        ArchiveError::TooLarge(self.limit)
    }

    fn take_entry(&self) -> Result<(), ArchiveError> {
        let left = self.entries.get().checked_sub(1);
        self.entries.set(left.ok_or(ArchiveError::TooManyFiles)?);
        Ok(())
    }
}

fn take(from: &Cell<u64>, bytes: u64) -> bool {
    let left = from.get().checked_sub(bytes);
    left.is_some_and(|left| {
        from.set(left);
        true
    })
}

/// A tar stream as far as there is budget for it.
struct Metered<'b, R> {
    reader: R,
    budget: &'b Budget,
    /// Bytes that may be read before the next file.
    headers: &'b Cell<u64>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = self.budget.stream.get().min(self.headers.get());
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(into.len());
        if most == 0 && !into.is_empty() {
            let is_stream = self.budget.stream.get() == 0;
            return Err(io::Error::other(match is_stream {
                true => Exceeded::Stream,
                false => Exceeded::Header,
            }));
        }
        let read = self.reader.read(&mut into[..most])?;
        take(&self.budget.stream, read as u64);
        self.headers
            .set(self.headers.get().saturating_sub(read as u64));
        Ok(read)
    }
}

/// Why a tar stream is read no further.
#[derive(Clone, Copy, Debug)]
enum Exceeded {
    Stream,
    Header,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stream => "the archive is too large",
            Self::Header => "header field too long",
        })
    }
}

impl std::error::Error for Exceeded {}

/// The files of a chart archive, in the archive's order and without its base directory.
///
/// ```
/// # use std::io::Write as _;
/// use chart::archive::{Budget, load_archive_files};
///
/// # let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
/// # let mut tar = tar::Builder::new(&mut gzip);
/// # let mut header = tar::Header::new_gnu();
/// # header.set_size(10);
/// # tar.append_data(&mut header, "web/Chart.yaml", &b"name: web\n"[..])?;
/// # tar.finish()?;
/// # drop(tar);
/// # let archive = gzip.finish()?;
/// let files = load_archive_files(&archive[..], &Budget::default())?; // of web-1.0.0.tgz
/// assert_eq!(files[0].name, "Chart.yaml");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The archive is corrupt, breaks a path rule, or is too large.
pub fn load_archive_files(data: impl Read, budget: &Budget) -> Result<Vec<File>, ArchiveError> {
    files_of(&mut unpacked(data)?, budget)
}

/// As [`load_archive_files`], of an archive that was fetched, which may be a plain tar: Fleet unpacks one, Helm does not.
///
/// ```
/// use chart::archive::{Budget, load_fetched_files};
///
/// # let mut tar = tar::Builder::new(Vec::new());
/// # let mut header = tar::Header::new_gnu();
/// # header.set_size(10);
/// # tar.append_data(&mut header, "web/Chart.yaml", &b"name: web\n"[..])?;
/// # let archive = tar.into_inner()?;
/// let files = load_fetched_files(&archive, &Budget::default())?; // of web.tar
/// assert_eq!(files[0].name, "Chart.yaml");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As of [`load_archive_files`].
pub fn load_fetched_files(data: &[u8], budget: &Budget) -> Result<Vec<File>, ArchiveError> {
    match is_tar(data) {
        true => files_of(&mut &*data, budget),
        false => load_archive_files(data, budget),
    }
}

/// Whether bytes are a tar that nobody has compressed.
pub(crate) fn is_tar(bytes: &[u8]) -> bool {
    bytes.get(257..262) == Some(b"ustar") && !bytes.starts_with(&[0x1F, 0x8B])
}

fn files_of(stream: &mut dyn Read, budget: &Budget) -> Result<Vec<File>, ArchiveError> {
    let mut files = Vec::new();
    walk(stream, budget, &mut |entry| {
        let size = entry.size;
        if size > budget.left() {
            return Err(budget.too_large());
        }
        let mut data = Vec::new();
        // A buffer that grows while the file is read would be up to twice as large; the size in a header alone reserves no more than this.
        data.reserve_exact(usize::try_from(size.min(TRUSTED_SIZE)).unwrap_or(0));
        let read = entry.content.take(size).read_to_end(&mut data);
        read.map_err(|failed| broken(failed, budget))?;
        if (data.len() as u64) < size {
            return Err(ArchiveError::Truncated);
        }
        // Helm refuses a chart that uses its budget up to the last byte.
        if !budget.take(size) || budget.left() == 0 {
            return Err(budget.too_large());
        }
        let data = without_byte_order_mark(data);
        files.push(File::new(entry.path, data).modified(entry.modtime));
        Ok(())
    })?;
    if files.is_empty() {
        return Err(ArchiveError::Empty);
    }
    Ok(files)
}

/// How many bytes a file of a chart unpacks to where it is an archive that lies in the chart: nothing where it is not, and no more than
/// `limit` of a larger one.
///
/// ```
/// use chart::archive::nested_bytes;
///
/// # let packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
/// # let mut tar = tar::Builder::new(packed);
/// # let mut header = tar::Header::new_gnu();
/// # header.set_size(1 << 20);
/// # header.set_cksum();
/// # tar.append_data(&mut header, "db/Chart.yaml", std::io::repeat(b'#').take(1 << 20))?;
/// # use std::io::Read as _;
/// # let archive = tar.into_inner()?.finish()?;
/// assert!(archive.len() < 10_000);
/// assert!(nested_bytes("charts/db-1.0.0.tgz", &archive[..], 8 << 20) > 1 << 20);
/// assert_eq!(nested_bytes("files/db-1.0.0.tgz", &archive[..], 8 << 20), 0); // a file as any other
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn nested_bytes(path: &str, data: impl Read, limit: u64) -> u64 {
    match unpacked(data) {
        Ok(mut stream) if is_nested(path) => measure(&mut stream, limit).0,
        _ => 0,
    }
}

/// How many bytes a tar stream takes, with the archives that lie in it at any depth, but no more than `limit`. It
/// is read to its end, and why it cannot be is the second answer. What is wrong with what it holds is for the loader to say.
pub(crate) fn measure(stream: &mut dyn Read, limit: u64) -> (u64, Option<io::Error>) {
    let budget = Budget::new(0);
    budget.stream.set(limit);
    let mut stream = Noting {
        reader: stream,
        failed: None,
    };
    let _ = measure_files(&mut stream, &budget, 0);
    if stream.failed.is_none()
        && let Ok(rest) = drain((&mut stream).take(budget.stream.get()))
    {
        take(&budget.stream, rest);
    }
    (limit - budget.stream.get(), stream.failed)
}

fn measure_files(stream: &mut dyn Read, budget: &Budget, depth: usize) -> Result<(), ArchiveError> {
    walk(stream, budget, &mut |entry| {
        if depth < MAX_CHART_DEPTH
            && is_nested(&entry.path)
            && let Ok(mut inner) = unpacked(entry.content)
        {
            // A broken one counts up to where the loader refuses it.
            let _ = measure_files(&mut inner, budget, depth + 1);
        }
        Ok(())
    })
}

/// Whether the loader takes a file of this path for an archive of another chart.
fn is_nested(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let is_archive = parts.next().is_some_and(|name| name.ends_with(".tgz"));
    is_archive && parts.next() == Some("charts")
}

/// Keeps why a stream could not be read, whoever has read it.
struct Noting<'s> {
    reader: &'s mut dyn Read,
    failed: Option<io::Error>,
}

impl Read for Noting<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.reader.read(into).map_err(|failed| {
            let copy = io::Error::new(failed.kind(), failed.to_string());
            self.failed.get_or_insert(failed);
            copy
        })
    }
}

/// An entry of an archive, for the loader.
struct Entry<'e> {
    path: String,
    modtime: Time,
    size: u64,
    content: &'e mut dyn Read,
}

fn unpacked<R: Read>(data: R) -> Result<MultiGzDecoder<BufReader<R>>, ArchiveError> {
    let mut reader = BufReader::new(data);
    check_gzip_header(&mut reader)?;
    Ok(MultiGzDecoder::new(reader))
}

/// Goes through what a tar stream holds for Helm.
fn walk(
    stream: &mut dyn Read,
    budget: &Budget,
    each: &mut dyn FnMut(Entry<'_>) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let headers = Cell::new(0);
    let mut archive = tar::Archive::new(Metered {
        reader: stream,
        budget,
        headers: &headers,
    });
    let failed = |failed| broken(failed, budget);
    let mut entries = archive.entries().map_err(failed)?;
    loop {
        headers.set(BETWEEN_FILES);
        let Some(entry) = entries.next() else {
            return Ok(());
        };
        budget.take_entry()?;
        let mut entry = entry.map_err(failed)?;
        headers.set(u64::MAX);
        let kind = entry.header().entry_type();
        if kind.is_gnu_sparse() || is_pax_sparse(&mut entry).map_err(failed)? {
            return Err(ArchiveError::Sparse);
        }
        let name = entry.path_bytes();
        let is_skipped = kind == EntryType::Directory
            // A folder of old archives; of others such a name is a file's.
            || (entry.header().as_old().linkflag == [0] && name.ends_with(b"/"))
            || kind.is_pax_global_extensions()
            || kind.is_pax_local_extensions();
        if !is_skipped {
            if name.len() > MAX_PATH {
                return Err(ArchiveError::PathTooLong);
            }
            if !take(&budget.paths, name.len() as u64) {
                return Err(ArchiveError::PathsTooLong);
            }
            let path = path_in_chart(&String::from_utf8_lossy(&name))?;
            let modtime = entry.header().mtime().ok();
            let modtime = modtime.and_then(|seconds| i64::try_from(seconds).ok());
            let holds_data =
                kind.is_file() || kind.is_contiguous() || !matches!(kind.as_byte(), b'1'..=b'6');
            let size = if holds_data { entry.size() } else { 0 };
            each(Entry {
                path,
                modtime: modtime.map(Time::from_unix_seconds).unwrap_or_default(),
                size,
                content: &mut entry,
            })?;
        }
        // Nobody else reads what was left, and counts it.
        drain(entry).map_err(failed)?;
    }
}

/// Whether a file has holes by its PAX records: read as it stands it would be another file.
fn is_pax_sparse<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<bool> {
    let kind = entry.header().entry_type();
    // Records as an entry of their own would be read whole; those of a file have been, within their bound.
    if kind.is_pax_global_extensions() || kind.is_pax_local_extensions() {
        return Ok(false);
    }
    let records = entry.pax_extensions()?.into_iter().flatten();
    let mut keys = records.filter_map(|record| Some(record.ok()?.key_bytes()));
    Ok(keys.any(|key| key.starts_with(b"GNU.sparse.")))
}

fn drain(mut stream: impl Read) -> io::Result<u64> {
    io::copy(&mut stream, &mut io::sink())
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

fn broken(error: io::Error, budget: &Budget) -> ArchiveError {
    let exceeded = error.get_ref().and_then(|inner| inner.downcast_ref());
    match exceeded {
        Some(Exceeded::Stream) => return budget.too_large(),
        Some(Exceeded::Header) => return ArchiveError::HeaderTooLong,
        None => {}
    }
    if error.kind() == io::ErrorKind::UnexpectedEof
        || error.to_string().contains("failed to read entire block")
    {
        ArchiveError::Truncated
    } else {
        ArchiveError::Corrupt(error)
    }
}

fn quoted(path: &str) -> String {
    let end = path.char_indices().nth(MOST_QUOTED);
    golib::strconv::quote(end.map_or(path, |(end, _)| &path[..end]))
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
    let clean = golib::path::clean_text(&rest);
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

    use super::*;

    fn load(archive: &[u8]) -> Result<Vec<File>, ArchiveError> {
        load_archive_files(archive, &Budget::default())
    }

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

    /// As Go 1.26 reads it: only without a type a slash at the end makes a folder.
    #[test]
    fn a_slash_at_the_end_makes_no_folder_of_a_file() {
        let names = |kind: u8| {
            let mut header = tar::Header::new_gnu();
            header.as_old_mut().name[..7].copy_from_slice(b"demo/x/");
            header.as_old_mut().linkflag = [kind];
            header.set_size(0);
            header.set_cksum();
            let files = load(&archive(|builder| {
                add(builder, "demo/y", b"");
                builder
                    .append(&header, &b""[..])
                    .expect("memory does not fail");
            }));
            let files = files.expect("a chart");
            files.into_iter().map(|file| file.name).collect::<Vec<_>>()
        };
        assert_eq!(names(b'0'), ["y", "x"]);
        assert_eq!(names(0), ["y"]);
    }

    #[test]
    fn zip_bombs_stop_at_the_budget() {
        let zeros = vec![0; 60 * 1024 * 1024];
        let bomb = archive(|tar| {
            add(tar, "demo/a", &zeros);
            add(tar, "demo/b", &zeros);
        });
        assert!(matches!(load(&bomb[..]), Err(ArchiveError::TooLarge(_))));
    }

    #[test]
    fn a_million_files_stop_at_the_limit() {
        let many = archive(|tar| (0..=MAX_FILES).for_each(|i| add(tar, &format!("demo/{i}"), b"")));
        assert!(matches!(load(&many[..]), Err(ArchiveError::TooManyFiles)));
    }

    #[test]
    fn a_truncated_archive_and_no_archive_are_different_errors() {
        let whole = archive(|tar| add(tar, "demo/Chart.yaml", b"name: demo\n"));
        assert_eq!(load(&whole[..]).expect("whole").len(), 1);
        let cut = &whole[..whole.len() / 2];
        assert!(matches!(load(cut), Err(ArchiveError::Truncated)));
        assert!(matches!(
            load(&b"name: demo\nversion: 1\n"[..]),
            Err(ArchiveError::GzipHeader)
        ));
    }

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(data).expect("memory does not fail");
        gz.finish().expect("memory does not fail")
    }

    fn measured(archive: &[u8]) -> (u64, bool) {
        let mut stream = unpacked(archive).expect("gzip");
        let (bytes, failed) = measure(&mut stream, 32 << 20);
        (bytes, failed.is_some())
    }

    #[test]
    fn nested_archives_count_against_the_outer_budget() {
        let zeros = vec![0; 3 << 20];
        let inner = archive(|tar| add(tar, "s/big", &zeros));
        let middle = archive(|tar| add(tar, "m/charts/s.tgz", &inner));
        let outer = archive(|tar| {
            add(tar, "demo/charts/m.tgz", &middle);
            add(tar, "demo/charts/x/charts/s.tgz", &inner);
            add(tar, "demo/files/s.tgz", &inner);
        });
        let (bytes, _) = measured(&outer);
        assert!((6 << 20..7 << 20).contains(&bytes), "{bytes}");
        assert_eq!(nested_bytes("charts/m.tgz", &middle[..], 1 << 20), 1 << 20);
        assert_eq!(nested_bytes("files/m.tgz", &middle[..], 1 << 20), 0);

        let budget = Budget::new(2 << 20);
        budget.stream.set(4 << 20);
        let read = |archive: &[u8]| load_archive_files(archive, &budget);
        assert!(matches!(read(&inner), Err(ArchiveError::TooLarge(_))));
        // A folder's content is no file, and costs the same.
        let folder = archive(|tar| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(EntryType::Directory);
            header.set_size(zeros.len() as u64);
            tar.append_data(&mut header, "s/d", &zeros[..])
                .expect("memory does not fail");
            add(tar, "s/f", b"");
        });
        assert!(read(&folder).is_ok());
        assert!(matches!(read(&folder), Err(ArchiveError::TooLarge(_))));
    }

    #[test]
    fn an_archive_is_measured_to_its_end_whatever_it_holds() {
        let whole = archive(|tar| add(tar, "demo/Chart.yaml", b"name: demo\n"));
        let size = 512 + 512 + 1024;
        assert_eq!(measured(&whole), (size, false));
        assert!(measured(&whole[..whole.len() - 9]).1);
        assert_eq!(
            measured(&[&whole[..], &gzip(&[7; 5000])].concat()),
            (size + 5000, false)
        );
        assert_eq!(measured(&gzip(&[7; 5000])), (5000, false));
        assert_eq!(measured(&gzip(&vec![0; 40 << 20])), (32 << 20, false));
    }

    fn sparse(size: u64) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.set_path("demo/hole").expect("a short path");
        header.set_entry_type(EntryType::GNUSparse);
        header.set_size(0);
        let gnu = header.as_gnu_mut().expect("made as one");
        let octal = format!("{size:011o}\0");
        gnu.realsize.copy_from_slice(octal.as_bytes());
        gnu.sparse[0].offset.copy_from_slice(octal.as_bytes());
        gnu.sparse[0].numbytes.copy_from_slice(b"00000000000\0");
        header.set_cksum();
        gzip(&[header.as_bytes(), &[0; 1024][..]].concat())
    }

    #[test]
    fn files_with_holes_are_refused() {
        for size in [1 << 20, 7 << 30] {
            let refused = load(&sparse(size)).err();
            assert!(matches!(refused, Some(ArchiveError::Sparse)), "{refused:?}");
            assert_eq!(measured(&sparse(size)), (512 + 1024, false));
        }
    }

    fn named(kind: EntryType, name: &[u8]) -> Vec<u8> {
        archive(|tar| {
            let mut header = tar::Header::new_gnu();
            header.set_path("././@LongLink").expect("a short path");
            header.set_entry_type(kind);
            header.set_size(name.len() as u64);
            header.set_cksum();
            tar.append(&header, name).expect("memory does not fail");
            add(tar, "demo/Chart.yaml", b"");
        })
    }

    #[test]
    fn files_with_holes_by_their_pax_records_are_refused() {
        let with = |record: &[u8]| named(EntryType::XHeader, record);
        let refused = load(&with(b"22 GNU.sparse.major=1\n")).err();
        assert!(matches!(refused, Some(ArchiveError::Sparse)), "{refused:?}");
        assert!(load(&with(b"16 SCHILY.dev=1\n")).is_ok());
        // Records for all files are no file, and what they hold is passed over piece by piece.
        let global = named(EntryType::XGlobalHeader, b"22 GNU.sparse.major=1\n");
        assert!(load(&global).is_ok());
    }

    #[test]
    fn names_are_bounded() {
        for kind in [
            EntryType::GNULongName,
            EntryType::GNULongLink,
            EntryType::XHeader,
        ] {
            let endless = named(kind, &vec![b'a'; 5 << 20]);
            assert!(
                matches!(load(&endless), Err(ArchiveError::HeaderTooLong)),
                "{kind:?}"
            );
        }
        let long = named(
            EntryType::GNULongName,
            &[&b"demo/"[..], &[b'a'; MAX_PATH]].concat(),
        );
        assert!(matches!(load(&long), Err(ArchiveError::PathTooLong)));
        let refused = load(&named(EntryType::GNULongName, &[b'a'; MAX_PATH])).unwrap_err();
        assert!(refused.to_string().len() < 300, "{refused}");
        let path = [&b"demo/"[..], &[b'a'; 4000]].concat();
        let found = load(&named(EntryType::GNULongName, &path)).expect("a path of Linux");
        assert_eq!(found[0].name.len(), 4000);
    }
}
