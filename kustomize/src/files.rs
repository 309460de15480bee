//! Where files come from: a bundle in memory, or a directory. Paths are absolute, and links lead nowhere unseen: a file is
//! where it really is.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use golib::path::{clean_text, io_cause};
use golib::yaml::node::Node;

use crate::error::{Error, Result};

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The directory, without links in its path.
    pub directory: String,
    /// The file in it; nothing when the path is a directory's.
    pub file: Option<String>,
}

/// The files of a build, which has a thread of its own.
pub trait FileSystem: Sync {
    /// Where a path leads, links followed.
    ///
    /// # Errors
    /// When there is nothing.
    fn locate(&self, path: &str) -> Result<Place>;

    /// A file's content.
    ///
    /// # Errors
    /// When it cannot be read, or has more than `limit` bytes.
    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>>;

    /// The documents of a file that was read before; `None` for one that is text.
    fn documents(&self, path: &str) -> Option<&[Node]> {
        let _ = path;
        None
    }
}

/// Files by their paths, `/` being the root of all.
#[derive(Debug, Default)]
pub struct MemoryFiles<'a> {
    files: BTreeMap<ByParts, Content<'a>>,
}

/// A path that is ordered by its parts: what is below a directory follows it at once.
#[derive(Debug, PartialEq, Eq)]
struct ByParts(String);

impl Ord for ByParts {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.split('/').cmp(other.0.split('/'))
    }
}

impl PartialOrd for ByParts {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug)]
enum Content<'a> {
    Text(&'a [u8]),
    Documents(Vec<Node>),
}

fn not_there(path: &str) -> Error {
    Error::new(format!("'{path}' doesn't exist"))
}

fn too_large(path: &str) -> Error {
    Error::limit(format!("{path}: file is too large"))
}

impl<'a> MemoryFiles<'a> {
    /// No files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file, or replaces it.
    ///
    /// # Errors
    /// For a path that leads out of the root or through a file.
    pub fn add(&mut self, path: &str, content: &'a [u8]) -> Result<()> {
        self.put(path, Content::Text(content))
    }

    /// Adds a file of documents that somebody has read already, or replaces one.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_documents(&mut self, path: &str, documents: Vec<Node>) -> Result<()> {
        self.put(path, Content::Documents(documents))
    }

    fn put(&mut self, path: &str, content: Content<'a>) -> Result<()> {
        let path = clean_text(path.trim_start_matches('/'));
        if path == "." || path == ".." || path.starts_with("../") {
            return Err(Error::new(format!(
                "illegal name '{path}' in file creation"
            )));
        }
        let path = format!("/{path}");
        if let Some(file) = self.file_above(&path) {
            return Err(Error::new(format!(
                "cannot make dir '{file}'; a file of that name already exists"
            )));
        }
        if self.is_directory(&path) {
            return Err(Error::new(format!(
                "illegal name '{path}' in file creation"
            )));
        }
        self.files.insert(ByParts(path), content);
        Ok(())
    }

    /// A file that the path would lead through. As nothing is below a file, it is the one before the path.
    fn file_above(&self, path: &str) -> Option<&str> {
        let path = ByParts(path.to_owned());
        let (ByParts(before), _) = self.files.range(..&path).next_back()?;
        let rest = path.0.strip_prefix(before.as_str())?;
        rest.starts_with('/').then_some(before)
    }

    /// Whether the path is a directory: there is a file below it.
    fn is_directory(&self, path: &str) -> bool {
        let below = match path {
            "/" => return true,
            path => ByParts(format!("{path}/")),
        };
        let first = self.files.range(&below..).next();
        first.is_some_and(|(ByParts(file), _)| file.starts_with(&below.0))
    }

    fn get(&self, path: &str) -> Option<&Content<'a>> {
        self.files.get(&ByParts(path.to_owned()))
    }

    fn find(&self, path: &str) -> Result<String> {
        let query = clean_text(path.trim_start_matches('/'));
        let absolute = if query == "." {
            "/".to_owned()
        } else {
            format!("/{query}")
        };
        match self.file_above(&absolute) {
            Some(file) => Err(Error::new(format!("'{file}' is not a directory"))),
            None => Ok(absolute),
        }
    }
}

impl FileSystem for MemoryFiles<'_> {
    fn locate(&self, path: &str) -> Result<Place> {
        if path.is_empty() {
            return Err(not_there(path));
        }
        let found = self
            .find(path)
            .map_err(|error| error.context("unable to clean"))?;
        if self.is_directory(&found) {
            return Ok(Place {
                directory: found,
                file: None,
            });
        }
        if self.get(&found).is_none() {
            return Err(not_there(path));
        }
        let (directory, file) = found.rsplit_once('/').unwrap_or(("", &found));
        let directory = if directory.is_empty() { "/" } else { directory };
        Ok(Place {
            directory: directory.to_owned(),
            file: Some(file.to_owned()),
        })
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>> {
        let found = self.find(path)?;
        match self.get(&found) {
            Some(Content::Text(content)) if content.len() > limit => Err(too_large(path)),
            Some(Content::Text(content)) => Ok(content.to_vec()),
            Some(Content::Documents(documents)) => {
                let texts: Vec<String> = documents.iter().map(Node::to_yaml).collect();
                Ok(texts.join("---\n").into_bytes())
            }
            None if self.is_directory(&found) => {
                Err(Error::new("cannot read content from non-file '/'"))
            }
            None => Err(not_there(path)),
        }
    }

    fn documents(&self, path: &str) -> Option<&[Node]> {
        match self.get(&self.find(path).ok()?)? {
            Content::Documents(documents) => Some(documents),
            Content::Text(_) => None,
        }
    }
}

/// The files of this machine.
#[derive(Debug, Default)]
pub struct DiskFiles;

/// `filepath.EvalSymlinks`.
fn resolve(path: &Path) -> Result<PathBuf> {
    const MAX_LINKS: usize = 255;
    let mut links = 0;
    let mut resolved = PathBuf::from("/");
    let mut rest: Vec<PathBuf> = components(path);
    while let Some(next) = rest.pop() {
        if next.as_os_str() == ".." {
            resolved.pop();
            continue;
        }
        let candidate = resolved.join(&next);
        let failed = |call: &str, error: &std::io::Error| {
            Error::new(format!(
                "{call} {}: {}",
                candidate.display(),
                io_cause(error)
            ))
        };
        let metadata = std::fs::symlink_metadata(&candidate);
        let metadata = metadata.map_err(|error| failed("lstat", &error))?;
        if !metadata.file_type().is_symlink() {
            if !metadata.is_dir() && !rest.is_empty() {
                return Err(Error::new(format!("{}: not a directory", path.display())));
            }
            resolved = candidate;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Error::new("EvalSymlinks: too many links"));
        }
        let target = std::fs::read_link(&candidate);
        let target = target.map_err(|error| failed("readlink", &error))?;
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        }
        rest.extend(components(&target));
    }
    Ok(resolved)
}

/// The names of a path, the last first.
fn components(path: &Path) -> Vec<PathBuf> {
    path.components()
        .rev()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(PathBuf::from(name)),
            Component::ParentDir => Some(PathBuf::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

impl FileSystem for DiskFiles {
    fn locate(&self, path: &str) -> Result<Place> {
        let absolute = if path.starts_with('/') {
            path.to_owned()
        } else {
            let current = std::env::current_dir()
                .map_err(|error| Error::new(format!("abs path error on '{path}' : {error}")))?;
            format!("{}/{path}", current.display())
        };
        let absolute = clean_text(&absolute);
        let resolved = resolve(Path::new(&absolute))
            .map_err(|error| error.prefixed(&format!("evalsymlink failure on '{path}' : ")))?;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        if resolved.is_dir() {
            return Ok(Place {
                directory: text(&resolved),
                file: None,
            });
        }
        Ok(Place {
            directory: resolved.parent().map_or_else(|| "/".to_owned(), text),
            file: resolved
                .file_name()
                .map(|name| name.to_string_lossy().into_owned()),
        })
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>> {
        let fail = |error: &std::io::Error| Error::new(format!("open {path}: {}", io_cause(error)));
        let metadata = std::fs::metadata(path).map_err(|error| fail(&error))?;
        // A pipe or a device would be waited for.
        if !metadata.is_file() {
            let what = if metadata.is_dir() {
                "is a directory"
            } else {
                "is no regular file"
            };
            return Err(Error::new(format!("read {path}: {what}")));
        }
        let file = std::fs::File::open(path).map_err(|error| fail(&error))?;
        let mut content = Vec::new();
        let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        file.take(most)
            .read_to_end(&mut content)
            .map_err(|error| fail(&error))?;
        if content.len() > limit {
            return Err(too_large(path));
        }
        Ok(content)
    }
}

impl Error {
    fn prefixed(self, prefix: &str) -> Self {
        let message = format!("{prefix}{self}");
        self.reworded(message)
    }
}
