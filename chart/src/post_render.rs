//! Changing rendered documents before they are sorted into manifests and hooks.
//!
//! Helm 4 hands a post-renderer one text in which every document carries its file name in an
//! annotation. Ours work in the same process, so the file name goes along beside the document
//! instead; what comes out is what Helm would have made of it. Mirrors `annotateAndMerge` and
//! `splitAndDeannotate` of `pkg/action/action.go` and the three strategies around them.

use std::collections::BTreeMap;
use std::error::Error;

use golib::yaml;

use crate::Warning;
use crate::depth::bounded;
use crate::manifest::{self, INSTALL_ORDER, SortError, split_manifests};

/// One rendered document on its way through a post-renderer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Path of the template it comes from; `None` for what the post-renderer adds.
    pub path: Option<String>,
    /// The document's text.
    pub content: String,
}

/// Changes, adds or drops documents.
pub trait PostRenderer {
    /// Works on a stream of documents, in file order. Hooks are documents too.
    ///
    /// # Errors
    /// Whatever the post-renderer finds wrong; shown to the user.
    fn run(&self, documents: Vec<Document>) -> Result<Vec<Document>, Box<dyn Error + Send + Sync>>;
}

/// Which documents a post-renderer sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Strategy {
    /// All, in one stream. Helm 4's default.
    #[default]
    Combined,
    /// Hooks and manifests, each in a stream of their own.
    Separate,
    /// Manifests only, as Helm 3 did.
    NoHooks,
}

/// A post-render that failed. The text is Helm's.
#[derive(Debug, thiserror::Error)]
pub enum PostRenderError {
    /// A rendered document is no YAML.
    #[error("error merging {group}: parsing {path}: {source}")]
    Merge {
        /// `manifests` or `hooks`.
        group: &'static str,
        /// The file.
        path: String,
        /// What is wrong with the document.
        source: yaml::Error,
    },
    /// The post-renderer failed.
    #[error("error while running post render on {group}: {source}")]
    Run {
        /// `files`, `manifests` or `hooks`.
        group: &'static str,
        /// The post-renderer's error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Telling hooks from manifests failed.
    #[error(transparent)]
    Sort(SortError),
}

type Files = BTreeMap<String, String>;

/// Sends rendered files through a post-renderer.
pub(crate) fn apply(
    renderer: &dyn PostRenderer,
    strategy: Strategy,
    files: Files,
    warnings: &mut Vec<Warning>,
) -> Result<Files, PostRenderError> {
    if strategy == Strategy::Combined {
        let documents = documents(&files, "manifests")?;
        let rendered = run(renderer, documents, "files")?;
        return Ok(to_files(rendered, ""));
    }
    let sorted =
        manifest::sort_manifests(files, INSTALL_ORDER, warnings).map_err(PostRenderError::Sort)?;
    let mut hooks = Files::new();
    for hook in sorted.hooks {
        append(&mut hooks, hook.path, &hook.manifest);
    }
    let mut manifests = Files::new();
    for manifest in sorted.manifests {
        append(&mut manifests, manifest.path, &manifest.content);
    }
    if strategy == Strategy::Separate && !hooks.is_empty() {
        let rendered = run(renderer, documents(&hooks, "hooks")?, "hooks")?;
        hooks = to_files(rendered, "hooks-");
    }
    let mut result = hooks;
    if !manifests.is_empty() {
        let rendered = run(renderer, documents(&manifests, "manifests")?, "manifests")?;
        for (path, content) in to_files(rendered, "manifests-") {
            append(&mut result, path, &content);
        }
    }
    Ok(result)
}

fn run(
    renderer: &dyn PostRenderer,
    documents: Vec<Document>,
    group: &'static str,
) -> Result<Vec<Document>, PostRenderError> {
    renderer
        .run(documents)
        .map_err(|source| PostRenderError::Run { group, source })
}

/// The documents of all files but partials; what holds comments only is left out.
fn documents(files: &Files, group: &'static str) -> Result<Vec<Document>, PostRenderError> {
    let mut documents = Vec::new();
    for (path, content) in files {
        let base = path.rsplit('/').next().unwrap_or(path);
        if base.starts_with('_') {
            continue;
        }
        for document in split_manifests(content) {
            let value =
                yaml::decode(document.as_bytes()).map_err(|source| PostRenderError::Merge {
                    group,
                    path: path.clone(),
                    source,
                })?;
            let empty = value.is_null();
            // Nobody looks into it here; what is too deep is refused when it is sorted.
            let _ = bounded(value);
            if !empty {
                let (path, content) = (Some(path.clone()), document.to_owned());
                documents.push(Document { path, content });
            }
        }
    }
    Ok(documents)
}

/// Documents grouped by their file again; added ones get a file each, named by their position.
fn to_files(documents: Vec<Document>, group: &str) -> Files {
    let mut files = Files::new();
    for (index, document) in documents.into_iter().enumerate() {
        let path = document
            .path
            .unwrap_or_else(|| format!("generated-by-postrender-{group}{index}.yaml"));
        append(&mut files, path, &document.content);
    }
    files
}

fn append(files: &mut Files, path: String, content: &str) {
    let file = files.entry(path).or_default();
    if !file.is_empty() {
        if !file.ends_with('\n') {
            file.push('\n');
        }
        file.push_str("---\n");
    }
    file.push_str(content);
}
