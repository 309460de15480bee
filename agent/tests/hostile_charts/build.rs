//! Charts that mean harm, written by us: nothing of them is stored.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{EntryType, Header};

/// A chart archive in the making, byte by byte: names and types are not checked. It is compressed on the way, because the
/// memory of the process that starts a program counts as the program's own.
pub(crate) struct Archive {
    tar: GzEncoder<Vec<u8>>,
}

impl Default for Archive {
    fn default() -> Self {
        let tar = GzEncoder::new(Vec::new(), Compression::fast());
        Self { tar }
    }
}

pub(crate) const CHART_YAML: &str = "apiVersion: v2\nname: web\nversion: 1.0.0\n";

impl Archive {
    /// With a good `web/Chart.yaml`.
    pub(crate) fn chart() -> Self {
        Self::default().file("web/Chart.yaml", CHART_YAML)
    }

    pub(crate) fn file(self, name: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Self {
        self.entry(EntryType::Regular, name.as_ref(), content.as_ref(), "")
    }

    pub(crate) fn template(self, text: impl AsRef<[u8]>) -> Self {
        self.file("web/templates/a.yaml", text)
    }

    pub(crate) fn values(self, text: impl AsRef<[u8]>) -> Self {
        self.file("web/values.yaml", text)
    }

    /// Any entry; names of more than 100 bytes go into a GNU long name.
    pub(crate) fn entry(
        mut self,
        kind: EntryType,
        name: &[u8],
        content: &[u8],
        link: &str,
    ) -> Self {
        if name.len() > 100 {
            let long = [name, b"\0"].concat();
            self.append(EntryType::GNULongName, b"././@LongLink", &long, "");
        }
        self.append(kind, &name[..name.len().min(100)], content, link);
        self
    }

    /// One entry of so many bytes, compressed on its own.
    pub(crate) fn declared(kind: EntryType, size: u64, fill: &[u8]) -> Vec<u8> {
        let mut archive = Self::default();
        let mut header = Header::new_gnu();
        header.set_path("s/d").expect("a short path");
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_cksum();
        archive.write(header.as_bytes());
        let block = fill.repeat(1 << 20);
        (0..size >> 20).for_each(|_| archive.write(&block));
        archive.member()
    }

    /// The end of an archive with a file that is one hole.
    pub(crate) fn hole(size: u64) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.set_path("web/hole").expect("a short path");
        header.set_entry_type(EntryType::GNUSparse);
        header.set_size(0);
        let gnu = header.as_gnu_mut().expect("made as one");
        let octal = |field: &mut [u8; 12], value: u64| {
            field.copy_from_slice(format!("{value:011o}\0").as_bytes());
        };
        octal(&mut gnu.realsize, size);
        octal(&mut gnu.sparse[0].offset, size);
        octal(&mut gnu.sparse[0].numbytes, 0);
        header.set_cksum();
        let mut archive = Self::default();
        archive.write(header.as_bytes());
        archive.tgz()
    }

    fn append(&mut self, kind: EntryType, name: &[u8], content: &[u8], link: &str) {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_cksum();
        let padding = content.len().next_multiple_of(512) - content.len();
        self.write(header.as_bytes());
        self.write(content);
        self.write(&[0; 512][..padding]);
    }

    fn write(&mut self, data: &[u8]) {
        self.tar.write_all(data).expect("memory takes everything");
    }

    /// The entries without the end of the archive, compressed on their own.
    pub(crate) fn member(self) -> Vec<u8> {
        self.tar.finish().expect("memory takes everything")
    }

    pub(crate) fn tgz(mut self) -> Vec<u8> {
        self.write(&[0; 1024]);
        self.member()
    }
}

pub(crate) fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}
