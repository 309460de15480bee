//! `--output-dir`: one file per template instead of standard output.
//!
//! Mirrors `writeToFile` (`pkg/cmd/template.go`, `pkg/action/install.go`).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use chart::loader::io_cause;
use chart::manifest::HookEvent;
use chart::rendered::{Rendered, ShowOptions};

/// Writes files below one directory and remembers what to say about it.
pub(super) struct OutputDir<'a> {
    /// As given; CRDs go here.
    pub root: &'a str,
    /// Manifests and hooks go here: the same, or below it a folder named after the release.
    pub release: String,
    /// `wrote …` lines.
    pub written: String,
}

impl<'a> OutputDir<'a> {
    /// With `release_name`, manifests and hooks go into a folder of that name.
    pub(super) fn new(root: &'a str, release_name: Option<&str>) -> Self {
        let release = match release_name {
            Some(name) => golib::path::clean_text(&format!("{root}/{name}")),
            None => root.to_owned(),
        };
        Self {
            root,
            release,
            written: String::new(),
        }
    }

    /// Writes CRDs and manifests.
    ///
    /// # Errors
    /// A file cannot be written; earlier ones stay.
    pub(super) fn manifests(
        &mut self,
        rendered: &Rendered,
        include_crds: bool,
    ) -> Result<(), String> {
        let mut written = BTreeSet::new();
        if include_crds {
            for crd in &rendered.crds {
                let root = self.root.to_owned();
                let text = String::from_utf8_lossy(&crd.file.data);
                self.file(&root, &crd.path, &text, !written.insert(crd.path.clone()))?;
            }
        }
        let folder = self.release.clone();
        let mut written = BTreeSet::new();
        for manifest in &rendered.manifests {
            let again = !written.insert(manifest.path.clone());
            self.file(&folder, &manifest.path, &manifest.content, again)?;
        }
        Ok(())
    }

    /// Writes hooks.
    ///
    /// # Errors
    /// A file cannot be written; earlier ones stay.
    pub(super) fn hooks(&mut self, rendered: &Rendered, show: &ShowOptions) -> Result<(), String> {
        if show.no_hooks {
            return Ok(());
        }
        let folder = self.release.clone();
        for hook in &rendered.hooks {
            if show.skip_tests && hook.events.contains(&HookEvent::Test) {
                continue;
            }
            let exists = Path::new(&folder).join(&hook.path).exists();
            self.file(&folder, &hook.path, &hook.manifest, exists)?;
        }
        Ok(())
    }

    fn file(&mut self, folder: &str, name: &str, text: &str, again: bool) -> Result<(), String> {
        let path = format!("{folder}/{name}");
        let failed = |action: &str, place: &Path, error: &std::io::Error| {
            format!("{action} {}: {}", place.display(), io_cause(error))
        };
        let parent = Path::new(&path).parent().unwrap_or(Path::new("."));
        if let Err(error) = fs::metadata(parent)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(failed("stat", parent, &error));
        }
        fs::create_dir_all(parent).map_err(|error| failed("mkdir", parent, &error))?;
        let mut options = OpenOptions::new();
        match again {
            true => options.append(true),
            false => options.write(true).create(true).truncate(true),
        };
        let mut file = options
            .open(&path)
            .map_err(|error| failed("open", Path::new(&path), &error))?;
        write!(file, "---\n# Source: {name}\n{text}\n")
            .map_err(|error| failed("write", Path::new(&path), &error))?;
        let _ = writeln!(self.written, "wrote {path}");
        Ok(())
    }
}
