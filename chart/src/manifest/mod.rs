//! Rendered files to ordered documents: splitting, reading each document's head, telling hooks from
//! the rest, and Helm's order by kind.
//!
//! Mirrors `pkg/release/v1/util/{manifest,manifest_sorter,kind_sorter}.go` and `pkg/release/v1/hook.go`.

mod head;
mod hook;
mod order;

use std::collections::BTreeMap;

use golib::yaml;
use serde_json::Value;

pub use head::{Head, HeadError};
pub use hook::{
    HOOK_ANNOTATION, HOOK_DELETE_ANNOTATION, HOOK_OUTPUT_LOG_ANNOTATION, HOOK_WEIGHT_ANNOTATION,
    Hook, HookEvent,
};
pub use order::{INSTALL_ORDER, UNINSTALL_ORDER, sort_by_kind};

use crate::warning::{Warning, Warnings};

/// One document of a rendered file.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Path of the file it comes from, beginning with the root chart's name.
    pub path: String,
    /// The document as rendered.
    pub content: String,
    /// The document's kind, name and annotations.
    pub head: Head,
    /// The document as an object, where a post-renderer had it read: the same as reading `content` gives.
    pub object: Option<Value>,
}

/// A document that was cut out of its file and not parsed yet.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) path: String,
    pub(crate) content: String,
    pub(crate) object: Option<Value>,
}

/// A document that is not YAML. The text is Helm's.
#[derive(Debug, thiserror::Error)]
#[error("YAML parse error on {path}: {source}")]
pub struct SortError {
    /// Path of the file.
    pub path: String,
    /// The error in the document.
    pub source: HeadError,
    /// All files, as they were given.
    pub files: BTreeMap<String, String>,
}

impl SortError {
    pub(crate) fn new(path: String, source: HeadError) -> Self {
        Self {
            path,
            source,
            files: BTreeMap::new(),
        }
    }
}

/// Hooks and plain manifests, each in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sorted {
    /// Documents with a hook annotation.
    pub hooks: Vec<Hook>,
    /// All others.
    pub manifests: Vec<Manifest>,
}

/// Cuts a rendered file at its `---` separators; blank pieces are dropped.
///
/// The separator only counts at the start of a line, and what follows it on its line begins the next
/// document.
///
/// ```
/// assert_eq!(chart::manifest::split_manifests("---\na: 1\n---\n# none\n---\n"), ["a: 1\n", "# none\n"]);
/// ```
pub fn split_manifests(text: &str) -> Vec<&str> {
    let cut = |piece| std::str::from_utf8(piece).expect("text is cut beside ASCII only");
    split_documents(text.as_bytes())
        .into_iter()
        .map(cut)
        .collect()
}

/// [`split_manifests`] for text that may not be UTF-8.
///
/// ```
/// use chart::manifest::split_documents;
///
/// assert_eq!(split_documents(b"a: 1\n---\nb: 2\n").len(), 2);
/// ```
pub fn split_documents(text: &[u8]) -> Vec<&[u8]> {
    let text = trim_start(text);
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut line = 0;
    while let Some(rest) = text.get(line..) {
        if let Some(after) = rest.strip_prefix(b"---") {
            pieces.push(&text[start..line]);
            let blanks = after
                .iter()
                .take_while(|byte| matches!(byte, b' ' | b'\t'))
                .count();
            start = text.len() - after.len() + blanks;
        }
        // A separator ends where the next document begins, so a line is looked at once.
        line = line.max(start);
        match text[line..].iter().position(|byte| *byte == b'\n') {
            Some(end) => line += end + 1,
            None => break,
        }
    }
    pieces.push(&text[start..]);
    pieces
        .into_iter()
        .map(trim_start)
        .filter(|piece| !piece.is_empty())
        .collect()
}

/// Drops leading white space.
fn trim_start(text: &[u8]) -> &[u8] {
    let Some(chunk) = text.utf8_chunks().next() else {
        return text;
    };
    &text[chunk.valid().len() - chunk.valid().trim_start().len()..]
}

/// The error of the first document that is not UTF-8.
pub(crate) fn find_fault(bytes: &[u8]) -> Option<HeadError> {
    std::str::from_utf8(bytes).err()?;
    let mut documents = split_documents(bytes).into_iter();
    documents.find_map(|document| yaml::decode(document).map_err(HeadError::Yaml).err())
}

/// Splits files (in path order), reads every document's head and sorts by `order`. Partials (base
/// names that begin with `_`) and blank files are left out; a document with an unknown hook event is
/// dropped with a warning. Each file is freed once its documents are cut out of it.
///
/// ```
/// use chart::manifest::{HookEvent, INSTALL_ORDER, sort_manifests};
///
/// let files = [
///     ("web/templates/app.yaml", "kind: Deployment\n---\nkind: Service\n"),
///     ("web/templates/job.yaml", "kind: Job\nmetadata:\n  annotations: {helm.sh/hook: pre-install}\n"),
/// ];
/// let files = files.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
/// let sorted = sort_manifests(files, INSTALL_ORDER, &mut chart::Warnings::default())?;
/// let kinds: Vec<_> = sorted.manifests.iter().map(|manifest| manifest.head.kind.as_str()).collect();
/// assert_eq!(kinds, ["Service", "Deployment"]);
/// assert_eq!(sorted.hooks[0].events, [HookEvent::PreInstall]);
/// # Ok::<(), chart::manifest::SortError>(())
/// ```
///
/// # Errors
/// A document is no YAML, or its head has values of the wrong type.
pub fn sort_manifests(
    files: BTreeMap<String, String>,
    order: &[&str],
    warnings: &mut Warnings,
) -> Result<Sorted, SortError> {
    let documents = || {
        let files = files.iter().filter(has_documents);
        files.flat_map(|(path, content)| {
            let documents = split_manifests(content).into_iter();
            documents.map(move |document| (path.as_str(), document))
        })
    };
    let heads = documents().map(|(path, document)| (path, Head::read(document)));
    let heads = match checked(heads, warnings) {
        Ok(heads) => heads,
        Err((path, source)) => {
            return Err(SortError {
                path,
                source,
                files,
            });
        }
    };
    let files = files.into_iter().filter(has_documents);
    let pieces = files.flat_map(|(path, content)| {
        let piece = |document: &str| Piece {
            path: path.clone(),
            content: document.to_owned(),
            object: None,
        };
        let documents = split_manifests(&content).into_iter();
        documents.map(piece).collect::<Vec<_>>()
    });
    Ok(sorted(heads, pieces, order))
}

/// [`sort_manifests`] for documents that were cut and read before. The error has no files.
///
/// # Errors
/// As [`sort_manifests`].
pub(crate) fn sort_pieces(
    pieces: Vec<Piece>,
    order: &[&str],
    warnings: &mut Warnings,
) -> Result<Sorted, SortError> {
    let read = |piece: &Piece| match &piece.object {
        Some(object) => Head::of(object),
        None => Head::read(&piece.content),
    };
    let heads = pieces.iter().map(|piece| (&*piece.path, read(piece)));
    match checked(heads, warnings) {
        Ok(heads) => Ok(sorted(heads, pieces.into_iter(), order)),
        Err((path, source)) => Err(SortError {
            path,
            source,
            files: join(pieces),
        }),
    }
}

/// Separates hooks from the rest and sorts each.
fn sorted(heads: Vec<Head>, pieces: impl Iterator<Item = Piece>, order: &[&str]) -> Sorted {
    let mut sorted = Sorted::default();
    for (piece, head) in pieces.zip(heads) {
        match head.annotations.get(HOOK_ANNOTATION) {
            None => sorted.manifests.push(Manifest {
                path: piece.path,
                content: piece.content,
                head,
                object: piece.object,
            }),
            Some(events) => sorted.hooks.extend(
                HookEvent::parse_list(events).map(|events| Hook::new(piece, &head, events)),
            ),
        }
    }
    sort_by_kind(&mut sorted.hooks, order, |hook| &hook.kind);
    sort_by_kind(&mut sorted.manifests, order, |manifest| &manifest.head.kind);
    sorted
}

/// The heads of all documents, if each could be read; the first that cannot, with its path, otherwise.
fn checked<'a>(
    heads: impl Iterator<Item = (&'a str, Result<Head, HeadError>)>,
    warnings: &mut Warnings,
) -> Result<Vec<Head>, (String, HeadError)> {
    let mut checked = Vec::new();
    for (path, head) in heads {
        let head = head.map_err(|source| (path.to_owned(), source))?;
        let events = head.annotations.get(HOOK_ANNOTATION);
        if let Some(events) = events.filter(|events| HookEvent::parse_list(events).is_none()) {
            warnings.push(Warning::UnknownHook {
                events: events.clone(),
            });
        }
        checked.push(head);
    }
    Ok(checked)
}

/// Documents as the files they come from.
pub(crate) fn join(pieces: impl IntoIterator<Item = Piece>) -> BTreeMap<String, String> {
    let mut files = BTreeMap::<String, String>::new();
    for piece in pieces {
        let file = files.entry(piece.path).or_default();
        if !file.is_empty() {
            if !file.ends_with('\n') {
                file.push('\n');
            }
            file.push_str("---\n");
        }
        file.push_str(&piece.content);
    }
    files
}

fn has_documents<T: AsRef<str>>((path, content): &(T, T)) -> bool {
    counts(path.as_ref(), content.as_ref())
}

pub(crate) fn has_document(piece: &Piece) -> bool {
    counts(&piece.path, &piece.content)
}

/// Whether a file counts: it is neither a partial nor blank.
fn counts(path: &str, content: &str) -> bool {
    let base = path.rsplit('/').next().unwrap_or(path);
    !base.starts_with('_') && !content.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::split_manifests;

    #[test]
    fn separators_count_at_line_starts_only() {
        assert_eq!(
            split_manifests("\n---\na: 1\n---b: 2\n --- \nc\n"),
            ["a: 1\n", "b: 2\n --- \nc\n"]
        );
        assert_eq!(split_manifests("--- # x\na\n---\n\n---\t\n"), ["# x\na\n"]);
        assert_eq!(split_manifests("----\na"), ["-\na"]);
        assert_eq!(split_manifests("a\n------b"), ["a\n", "---b"]);
        assert!(split_manifests(" \n").is_empty());
    }
}
