//! Fetched charts on disk: there after a restart, and while no source answers.
//!
//! *Blobs* are files named by the SHA-256 of what is in them, which is checked whenever one is read. A *note* is what one source said to one
//! credential, and names the blob: the only way to a blob is a note, and the name of a note is a hash of who asked whom for what, credential
//! included. So what needs a credential is given only to those who showed it to that source themselves; naming a digest is not enough.
//! A note is believed no more than it has to be: what it says of digests is proven when it is read.
//!
//! Files appear whole (written aside, then renamed) and are never changed, so that any number of processes may use one folder and be
//! killed at any time. Nothing here fails: what cannot be read is not there, what cannot be written is not kept.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use logging::Name;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::access::Fingerprint;

/// The folder in the one that is given; another form of its content gets another name.
const FOLDER: &str = "fleetagent-charts-v1";
/// The largest note that is read.
const MAX_NOTE_BYTES: u64 = 4 << 20;
/// Files that were written aside so long ago are of a process that was killed.
const ABANDONED: Duration = Duration::from_secs(10 * 60);
/// What a file costs besides its content.
const FILE_BYTES: u64 = 4 << 10;
/// Of the limit, what is left when room was made.
const ROOM: (u64, u64) = (9, 10);

/// Where charts are kept, and how much of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSettings {
    /// A folder in it is made, and used if it is the process's own.
    pub directory: PathBuf,
    /// Limit on all files, in bytes.
    pub max_bytes: u64,
}

/// A folder of blobs and notes.
#[derive(Debug)]
pub(super) struct Disk {
    root: PathBuf,
    max_bytes: u64,
    /// Salts the names of notes, so that a list of hashed passwords finds none of them.
    salt: [u8; 32],
    /// Size of all files, about: others may write too.
    used: Mutex<u64>,
}

/// What a chart was fetched as, and which blob it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ChartNote {
    pub(super) etag: Option<String>,
    pub(super) last_modified: Option<String>,
    pub(super) version: String,
    pub(super) digest: String,
    pub(super) manifest: Option<String>,
    /// Manifests that lead from the digest of the one to that of the archive.
    pub(super) manifests: Vec<String>,
    pub(super) url: String,
    pub(super) unpacked_bytes: u64,
    /// SHA-256 of the blob, in hexadecimal.
    pub(super) blob: String,
    pub(super) bytes: u64,
}

impl Disk {
    /// Opens the folder, or makes it. Reads the size and time of each file, and no content.
    ///
    /// # Errors
    /// It cannot be written to, or is somebody else's.
    pub(super) fn open(settings: &DiskSettings) -> io::Result<Self> {
        fs::create_dir_all(&settings.directory)?;
        let root = settings.directory.join(FOLDER);
        let private = |path: &Path| match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        };
        private(&root)?;
        let found = fs::symlink_metadata(&root)?;
        let probe = root.join(aside());
        let created = create(&probe)?.metadata()?;
        fs::remove_file(&probe)?;
        if !found.is_dir() || found.uid() != created.uid() || found.mode() & 0o007 != 0 {
            let problem = "it is not a folder of this user alone";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        }
        // A volume with an fsGroup gives it to that group whenever it is mounted.
        fs::set_permissions(&root, fs::Permissions::from_mode(0o700))?;
        for folder in ["blobs", "notes"] {
            private(&root.join(folder))?;
        }
        let disk = Self {
            salt: salt(&root)?,
            max_bytes: settings.max_bytes,
            used: Mutex::default(),
            root,
        };
        disk.remove_abandoned();
        let files = disk.files();
        *disk.used.lock() = files.iter().map(|file| file.bytes).sum();
        Ok(disk)
    }

    /// The name of the note for one credential and request; nothing of the key can be read from it.
    pub(super) fn name(&self, kind: &str, key: &str, access: Fingerprint) -> String {
        let mut hash = Sha256::new();
        hash.update(self.salt);
        for part in [kind.as_bytes(), key.as_bytes(), access.bytes()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        golib::hex::encode(&hash.finalize())
    }

    /// A note by its name.
    pub(super) fn note<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let path = self.root.join("notes").join(name);
        let text = read(&path, MAX_NOTE_BYTES)?;
        let note = serde_json::from_slice(&text);
        let note = note.inspect_err(|_| drop(fs::remove_file(&path))).ok();
        touch(&path);
        note
    }

    /// Writes a note, over one of that name.
    pub(super) fn put_note<T: Serialize>(&self, name: &str, note: &T) {
        if let Ok(text) = serde_json::to_vec(note)
            && text.len() as u64 <= MAX_NOTE_BYTES
        {
            self.put(&self.root.join("notes").join(name), &text);
        }
    }

    /// A blob that is what its name says. One that is not is removed.
    pub(super) fn blob(&self, name: &str, max_bytes: u64) -> Option<Vec<u8>> {
        if !is_name(name) {
            return None;
        }
        let path = self.root.join("blobs").join(name);
        let content = read(&path, max_bytes)?;
        if blob_name(&content) != name {
            logging::warn!(
                blob = Name(name),
                "a cached chart is damaged and is fetched again"
            );
            fs::remove_file(&path).ok();
            return None;
        }
        touch(&path);
        Some(content)
    }

    /// Keeps a blob under `name`, its own.
    pub(super) fn put_blob(&self, name: &str, content: &[u8]) {
        let path = self.root.join("blobs").join(name);
        // A file that exists may be damaged; that shows when it is read, and then it goes.
        let is_there = fs::metadata(&path).is_ok_and(|found| found.len() == content.len() as u64);
        if is_there {
            touch(&path);
        }
        // A file that takes half of the limit would push out everything else.
        if !is_there && content.len() as u64 <= self.max_bytes / 2 {
            self.put(&path, content);
        }
    }

    fn put(&self, path: &Path, content: &[u8]) {
        let aside = self.root.join(aside());
        let written = create(&aside).and_then(|mut file| {
            file.write_all(content)?;
            fs::rename(&aside, path)
        });
        if let Err(error) = written {
            logging::debug!(error = error.kind(), "cannot keep what was fetched");
            fs::remove_file(&aside).ok();
            return;
        }
        let is_full = {
            let mut used = self.used.lock();
            *used += content.len() as u64 + FILE_BYTES;
            *used > self.max_bytes
        };
        if is_full {
            self.make_room();
        }
    }

    /// Removes what was not used for longest.
    fn make_room(&self) {
        let mut files = self.files();
        files.sort_by_key(|file| file.used);
        let mut left: u64 = files.iter().map(|file| file.bytes).sum();
        let limit = self.max_bytes / ROOM.1 * ROOM.0;
        if left > self.max_bytes {
            for file in files {
                if left <= limit {
                    break;
                }
                // Another process may have removed it.
                fs::remove_file(&file.path).ok();
                left -= file.bytes;
            }
        }
        *self.used.lock() = left;
    }

    fn files(&self) -> Vec<CachedFile> {
        let mut files = Vec::new();
        let now = SystemTime::now();
        // Files that are being written, or were by a process that was killed, count too.
        for folder in [
            self.root.clone(),
            self.root.join("blobs"),
            self.root.join("notes"),
        ] {
            let entries = fs::read_dir(folder).into_iter().flatten();
            for entry in entries.flatten() {
                let found = entry.metadata().ok().filter(fs::Metadata::is_file);
                let is_salt = entry.file_name() == SALT;
                let Some(found) = found.filter(|_| !is_salt) else {
                    continue;
                };
                // By a clock that was ahead it would never go.
                let used = found.modified().ok().filter(|used| *used <= now);
                files.push(CachedFile {
                    path: entry.path(),
                    bytes: found.len() + FILE_BYTES,
                    used: used.unwrap_or(SystemTime::UNIX_EPOCH),
                });
            }
        }
        files
    }

    fn remove_abandoned(&self) {
        let entries = fs::read_dir(&self.root).into_iter().flatten();
        for entry in entries.flatten() {
            let age = entry.metadata().and_then(|found| found.modified());
            let age = age.ok().and_then(|at| at.elapsed().ok());
            let is_aside = entry.file_name().to_string_lossy().starts_with(ASIDE);
            if is_aside && age.is_some_and(|age| age > ABANDONED) {
                fs::remove_file(entry.path()).ok();
            }
        }
    }
}

/// Does something with files, on a thread that may wait.
pub(super) async fn on_disk<T: Send + 'static>(
    disk: &Arc<Disk>,
    work: impl FnOnce(&Disk) -> Option<T> + Send + 'static,
) -> Option<T> {
    let disk = Arc::clone(disk);
    let work = tokio::task::spawn_blocking(move || work(&disk));
    work.await.ok().flatten()
}

/// A file there, and when it was last of use.
struct CachedFile {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// How blobs of this content are called.
pub(super) fn blob_name(content: &[u8]) -> String {
    golib::hex::encode(&Sha256::digest(content))
}

fn is_name(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// How files begin that are being written.
const ASIDE: &str = "writing-";

/// A name that no other process writes to.
fn aside() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_nanos();
    format!("{ASIDE}{}-{count}-{now}", std::process::id())
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

fn read(path: &Path, max_bytes: u64) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    if length > max_bytes {
        return None;
    }
    let mut content = Vec::with_capacity(usize::try_from(length).ok()?);
    file.take(max_bytes).read_to_end(&mut content).ok()?;
    Some(content)
}

/// Marks a file as used just now.
fn touch(path: &Path) {
    if let Ok(file) = OpenOptions::new().append(true).open(path) {
        file.set_modified(SystemTime::now()).ok();
    }
}

/// Name of the file with the salt.
const SALT: &str = "salt";

/// The salt of the folder: the first process makes it.
fn salt(root: &Path) -> io::Result<[u8; 32]> {
    let path = root.join(SALT);
    for _ in 0..2 {
        if let Some(salt) = read(&path, 32).and_then(|salt| salt.try_into().ok()) {
            return Ok(salt);
        }
        fs::remove_file(&path).ok();
        let aside = root.join(aside());
        let mut random = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        create(&aside)?.write_all(&random)?;
        // Unlike a rename it leaves what another process made meanwhile.
        let linked = fs::hard_link(&aside, &path);
        fs::remove_file(&aside)?;
        if let Err(error) = linked
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
    }
    Err(io::Error::other("its salt cannot be made"))
}

#[cfg(test)]
mod tests {
    use super::super::Access;
    use super::*;

    fn open(directory: &Path, max_bytes: u64) -> io::Result<Disk> {
        Disk::open(&DiskSettings {
            directory: directory.to_owned(),
            max_bytes,
        })
    }

    fn put(disk: &Disk, content: &[u8]) -> String {
        let name = blob_name(content);
        disk.put_blob(&name, content);
        name
    }

    #[test]
    fn blobs_are_checked_when_they_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(folder.path(), 1 << 20).unwrap();
        let name = put(&disk, b"chart");
        assert_eq!(disk.blob(&name, 100).as_deref(), Some(&b"chart"[..]));
        assert_eq!(disk.blob(&name, 4), None);
        let path = disk.root.join("blobs").join(&name);
        for damaged in [&b"chars"[..], b"char", b""] {
            put(&disk, b"chart");
            fs::write(&path, damaged).unwrap();
            assert_eq!(disk.blob(&name, 100), None);
            assert!(!path.exists());
        }
        assert_eq!(disk.blob("../notes/x", 100), None);
    }

    #[test]
    fn the_least_recently_used_archive_is_evicted_first() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(folder.path(), 100 << 10).unwrap();
        let names: Vec<_> = (0..4_u8).map(|n| put(&disk, &vec![n; 20 << 10])).collect();
        let old = SystemTime::now() - Duration::from_secs(1000);
        for (age, name) in names.iter().enumerate() {
            let file = OpenOptions::new()
                .append(true)
                .open(disk.root.join("blobs").join(name));
            let used = old + Duration::from_secs(age as u64);
            file.unwrap().set_modified(used).unwrap();
        }
        assert!(disk.blob(&names[0], 1 << 20).is_some());
        put(&disk, &[9; 20 << 10]);
        let left: Vec<_> = names
            .iter()
            .map(|name| disk.blob(name, 1 << 20).is_some())
            .collect();
        assert_eq!(left, [true, false, false, true]);
        let giant = put(&disk, &[7; 60 << 10]);
        assert_eq!(disk.blob(&giant, 1 << 20), None);
    }

    #[test]
    fn names_of_notes_differ_between_credentials() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let disk = open(folder.path(), 1 << 20).unwrap();
        let insecure = Access {
            insecure: true,
            ..Access::default()
        };
        let (one, two) = (Access::default().fingerprint(), insecure.fingerprint());
        let name = disk.name("chart", "a", one);
        assert_eq!(
            name,
            open(folder.path(), 1).unwrap().name("chart", "a", one)
        );
        assert_ne!(name, open(other.path(), 1).unwrap().name("chart", "a", one));
        assert_ne!(name, disk.name("chart", "a", two));
        assert_ne!(name, disk.name("index", "a", one));
        let note = ChartNote {
            version: "1".into(),
            ..ChartNote::default()
        };
        disk.put_note(&name, &note);
        assert_eq!(disk.note(&name), Some(note));
        fs::write(disk.root.join("notes").join(&name), b"{").unwrap();
        assert_eq!(disk.note::<ChartNote>(&name), None);
    }

    #[test]
    fn a_folder_of_others_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join(FOLDER);
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(open(folder.path(), 1 << 20).is_err());
        // As the kubelet leaves it on a volume with an fsGroup.
        fs::set_permissions(&root, fs::Permissions::from_mode(0o2770)).unwrap();
        assert!(open(folder.path(), 1 << 20).is_ok());
        assert_eq!(fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
        fs::remove_dir_all(&root).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), &root).unwrap();
        assert!(open(folder.path(), 1 << 20).is_err());
        assert!(open(Path::new("/proc/none"), 1 << 20).is_err());
    }

    #[test]
    fn unfinished_files_of_a_killed_process_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let root = open(folder.path(), 1 << 20).unwrap().root;
        let (old, new) = (root.join("writing-1-1-1"), root.join("writing-2-2-2"));
        for path in [&old, &new] {
            fs::write(path, b"half").unwrap();
        }
        let before = SystemTime::now() - 2 * ABANDONED;
        OpenOptions::new()
            .append(true)
            .open(&old)
            .unwrap()
            .set_modified(before)
            .unwrap();
        open(folder.path(), 1 << 20).unwrap();
        assert_eq!((old.exists(), new.exists()), (false, true));
    }
}
