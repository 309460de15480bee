//! A chart in a directory: files in lexical order, `.helmignore` applied, symbolic links followed.
//!
//! Mirrors `pkg/chart/v2/loader/directory.go` and `internal/sympath/walk.go`.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use golib::path::io_cause;
use jiff::Timestamp;

use super::error::LoadError;
use super::{Model, load_model};
use crate::archive::{Budget, MAX_FILES, without_byte_order_mark};
use crate::chart::{Chart, File};
use crate::ignore::{HELM_IGNORE, Rules};
use crate::time::Time;
use crate::values::MAX_VALUES;
use crate::warning::{Warning, Warnings};

/// How deep directories may nest; links that lead into each other end here.
const MAX_DIRECTORY_DEPTH: usize = 255;

pub(super) fn load(directory: &Path, warnings: &mut Warnings) -> Result<Chart, LoadError> {
    let root = std::path::absolute(directory)
        .map_err(|error| LoadError::Io(format!("{}: {error}", directory.display())))?;
    let chart_yaml = root.join("Chart.yaml");
    let name = chart_yaml.display().to_string();
    let data = fs::read(&chart_yaml).map_err(|error| LoadError::NoChart {
        cause: format!("open {name}: {}", io_cause(&error)),
        file: name,
    })?;
    let model = Model::detect(&data)?;

    let mut rules = match fs::read(root.join(HELM_IGNORE)) {
        Ok(data) => Rules::parse(&data).map_err(LoadError::Ignore)?,
        Err(_) => Rules::default(),
    };
    rules.add_defaults();
    let mut walk = Walk {
        root,
        rules,
        budget: Budget::default(),
        files: Vec::new(),
        warnings,
    };
    let root = walk.root.clone();
    walk.directory(&root, 0)?;
    let decoded = &mut golib::budget::Budget::new(MAX_VALUES);
    load_model(model, walk.files, (&walk.budget, decoded), walk.warnings)
}

struct Walk<'w> {
    root: PathBuf,
    rules: Rules,
    budget: Budget,
    files: Vec<File>,
    warnings: &'w mut Warnings,
}

impl Walk<'_> {
    fn directory(&mut self, directory: &Path, depth: usize) -> Result<(), LoadError> {
        let failed = |error: &std::io::Error| {
            LoadError::Io(format!("open {}: {}", directory.display(), io_cause(error)))
        };
        if depth > MAX_DIRECTORY_DEPTH {
            return Err(LoadError::Io(format!(
                "{}: too many links",
                directory.display()
            )));
        }
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory).map_err(|error| failed(&error))? {
            paths.push(entry.map_err(|error| failed(&error))?.path());
        }
        paths.sort();
        for path in paths {
            self.visit(&path, depth)?;
        }
        Ok(())
    }

    fn visit(&mut self, path: &Path, depth: usize) -> Result<(), LoadError> {
        let shown = path.display().to_string();
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        let name = relative.to_string_lossy().into_owned();
        // Links are followed wherever they lead, as Helm does.
        let about = fs::metadata(path).map_err(|error| {
            LoadError::Io(format!(
                "error evaluating symlink {shown}: lstat {}: {}",
                first_missing(path, 0).display(),
                io_cause(&error)
            ))
        })?;
        if let (true, Ok(resolved)) = (path.is_symlink(), path.canonicalize()) {
            self.warnings.push(Warning::Link {
                path: shown.clone(),
                resolved: resolved.display().to_string(),
            });
        }
        if self.rules.ignores(&name, about.is_dir()) {
            return Ok(());
        }
        if about.is_dir() {
            return self.directory(path, depth + 1);
        }
        if !about.is_file() {
            return Err(LoadError::Irregular(shown));
        }
        if self.files.len() >= MAX_FILES {
            return Err(LoadError::TooManyFiles);
        }
        let data = self.read(path, &name, about.len())?;
        let modtime = about.modified().map(time_of).unwrap_or_default();
        self.files
            .push(File::new(name, without_byte_order_mark(data)).modified(modtime));
        Ok(())
    }

    fn read(&mut self, path: &Path, name: &str, size: u64) -> Result<Vec<u8>, LoadError> {
        let too_large = || LoadError::DirectoryTooLarge {
            file: name.to_owned(),
        };
        if size > self.budget.left() {
            return Err(too_large());
        }
        let failed = |error: std::io::Error| LoadError::ReadFile {
            file: name.to_owned(),
            cause: format!("open {}: {}", path.display(), io_cause(&error)),
        };
        let file = fs::File::open(path).map_err(failed)?;
        let mut data = Vec::new();
        // The file may have grown since its size was asked for.
        file.take(self.budget.left() + 1)
            .read_to_end(&mut data)
            .map_err(failed)?;
        if self.budget.take(data.len() as u64) {
            Ok(data)
        } else {
            Err(too_large())
        }
    }
}

/// The path at which following links ends, as Go's `filepath.EvalSymlinks` names it: every link on the way
/// replaced by what it points to.
fn first_missing(path: &Path, links: usize) -> PathBuf {
    let mut resolved = PathBuf::new();
    let mut parts = path.components();
    while let Some(part) = parts.next() {
        let next = match part {
            std::path::Component::ParentDir => {
                resolved.pop();
                continue;
            }
            part => resolved.join(part),
        };
        match fs::read_link(&next) {
            Ok(target) if links < MAX_DIRECTORY_DEPTH => {
                let rest = resolved.join(target).join(parts.as_path());
                return first_missing(&rest, links + 1);
            }
            _ if fs::symlink_metadata(&next).is_err() => return next,
            _ => resolved = next,
        }
    }
    resolved
}

fn time_of(modified: SystemTime) -> Time {
    Timestamp::try_from(modified)
        .map(Time::utc)
        .unwrap_or_default()
}
