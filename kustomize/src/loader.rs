//! Reading files below a kustomization's directory, and stepping into those of its bases (`internal/loader`). Nothing is
//! fetched: what is not among the files is refused by name.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use golib::budget::{Allowance, Budget};
use golib::regexp::{self, ErrorCode, Regexp};
use golib::yaml::node::Node;

use crate::error::{Context as _, Error, Result};
use crate::files::FileSystem;
use crate::openapi::OpenApi;
use crate::origin::join;

/// Bytes of files that one build may read, each counted as often as it is read.
const MAX_BYTES: usize = 32 << 20;
/// Bytes of what is made of one of the files that say what is to be built.
const MAX_DOCUMENT: usize = 48 << 20;
/// Directories that one build may step into.
const MAX_DIRECTORIES: usize = 1_000;
/// How many directories may lead to one another.
const MAX_DEPTH: usize = 64;
/// Cost of finding out that an expression is too large, in steps.
const LARGE_STEPS: usize = 100_000;

/// Asks whether somebody still waits for a build; an answer is why not.
#[derive(Clone)]
pub struct Stop(Arc<dyn Fn() -> Option<String> + Send + Sync>);

impl Stop {
    /// Asked again and again while a build works.
    pub fn new(stop: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(stop))
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").finish_non_exhaustive()
    }
}

/// Limits of a build, beside 32 MiB of files, 1,000 bases 64 deep and 20,000 objects.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Steps, about a microsecond each.
    pub work: u64,
    /// Bytes of all that is made of the files, and added to it.
    pub weight: usize,
    /// The rest of a budget that is shared with others.
    pub allowance: Allowance,
    /// Ends a build that nobody waits for any more.
    pub stop: Option<Stop>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            work: 4_000_000,
            weight: 96 << 20,
            allowance: Allowance::default(),
            stop: None,
        }
    }
}

/// Expressions that were compiled, and what they take, in bytes.
#[derive(Default)]
struct Patterns {
    known: HashMap<String, Rc<Regexp>>,
    taken: usize,
}

impl Patterns {
    /// Forgets those that nobody uses.
    fn tidy(&mut self) {
        self.known.retain(|_, one| Rc::strong_count(one) > 1);
        self.taken = self.known.values().map(|one| one.weight()).sum();
    }
}

/// State shared by one build: its files, its types, its budgets, and its warnings.
pub(crate) struct Build<'a> {
    files: &'a dyn FileSystem,
    pub(crate) api: Rc<OpenApi>,
    pub(crate) budget: RefCell<Budget>,
    pub(crate) warnings: RefCell<Vec<String>>,
    bytes: Cell<usize>,
    added: Cell<usize>,
    directories: Cell<usize>,
    work: Cell<u64>,
    /// The work at which it is asked next whether to go on.
    asks_at: Cell<u64>,
    limits: Limits,
    patterns: RefCell<Patterns>,
}

impl<'a> Build<'a> {
    pub(crate) fn new(files: &'a dyn FileSystem, limits: &Limits) -> Self {
        Self {
            files,
            api: Rc::default(),
            budget: RefCell::new(limits.allowance.budget(limits.weight)),
            warnings: RefCell::default(),
            bytes: Cell::new(0),
            added: Cell::new(0),
            directories: Cell::new(0),
            work: Cell::new(0),
            asks_at: Cell::new(0),
            limits: limits.clone(),
            patterns: RefCell::default(),
        }
    }

    /// For one of the files that say what is to be built.
    pub(crate) fn document(&self) -> Budget {
        self.limits.allowance.budget(MAX_DOCUMENT)
    }

    /// Bytes of what is made of the files, and added to it.
    fn weight(&self) -> usize {
        self.limits.allowance.limit(self.limits.weight)
    }

    /// More than that would be made.
    pub(crate) fn note_too_large(&self) {
        self.limits.allowance.note_exceeded(self.limits.weight);
    }

    /// An expression, compiled once while there is room for all of them: those that are in use stay whatever comes.
    pub(crate) fn compile(&self, pattern: &str) -> Result<Rc<Regexp>> {
        let mut patterns = self.patterns.borrow_mut();
        if let Some(known) = patterns.known.get(pattern) {
            return Ok(Rc::clone(known));
        }
        self.work(1 + pattern.len())?;
        let most = self.weight() / 2;
        let compile = |patterns: &Patterns| {
            let mut budget = regexp::Budget::new(most.saturating_sub(patterns.taken));
            Regexp::compile_within(pattern, &mut budget)
        };
        let mut compiled = compile(&patterns);
        if is_too_large(&compiled) && !patterns.known.is_empty() {
            patterns.tidy();
            compiled = compile(&patterns);
        }
        if is_too_large(&compiled) {
            self.note_too_large();
            self.work(LARGE_STEPS)?;
            return Err(Error::limit(format!(
                "the kustomization's expressions take more memory than {} MiB",
                most >> 20
            )));
        }
        let compiled = compiled.map_err(|error| Error::new(error.to_string()))?;
        self.work(usize::try_from(compiled.effort()).unwrap_or(usize::MAX))?;
        let compiled = Rc::new(compiled);
        patterns.taken += compiled.weight();
        patterns
            .known
            .insert(pattern.to_owned(), Rc::clone(&compiled));
        Ok(compiled)
    }

    /// Whether a text has what an expression looks for; what that takes is counted.
    pub(crate) fn matches(&self, regex: &Regexp, text: &str) -> Result<bool> {
        regex.is_match(text.as_bytes(), &mut Work(self))
    }

    /// Counts steps of work, about a microsecond each.
    pub(crate) fn work(&self, steps: usize) -> Result<()> {
        /// Steps between two questions whether to go on.
        const STEPS: u64 = 10_000;
        let work = self
            .work
            .get()
            .saturating_add(u64::try_from(steps).unwrap_or(u64::MAX));
        self.work.set(work);
        if work > self.limits.work {
            return Err(Error::limit(
                "the kustomization takes too much work: its lists of objects, patches, selectors and fields multiply",
            ));
        }
        if let Some(Stop(stop)) = &self.limits.stop
            && work >= self.asks_at.get()
        {
            self.asks_at.set(work.saturating_add(STEPS));
            if let Some(reason) = stop() {
                return Err(Error::limit(reason));
            }
        }
        Ok(())
    }

    /// Counts a node that is added to an object, with all that is in it.
    pub(crate) fn grow(&self, node: &Node) -> Result<()> {
        fn weight(node: &Node) -> usize {
            size_of::<Node>() + node.value.len() + node.content.iter().map(weight).sum::<usize>()
        }
        self.grow_by(weight(node))
    }

    /// Counts bytes that are added to objects, which may be many times what was read.
    pub(crate) fn grow_by(&self, bytes: usize) -> Result<()> {
        self.added.set(self.added.get().saturating_add(bytes));
        self.expect_room(0)
    }

    /// Refuses bytes that are held for a while and would be more than may still be added.
    pub(crate) fn expect_room(&self, bytes: usize) -> Result<()> {
        let spent = self
            .added
            .get()
            .saturating_add(self.budget.borrow().spent());
        if spent.saturating_add(bytes) > self.weight() {
            self.note_too_large();
            return Err(Error::limit(format!(
                "the kustomization makes its objects larger than {} MiB",
                self.weight() >> 20
            )));
        }
        Ok(())
    }

    /// Bytes that may still be added.
    pub(crate) fn room(&self) -> usize {
        let spent = self
            .added
            .get()
            .saturating_add(self.budget.borrow().spent());
        self.weight().saturating_sub(spent)
    }

    /// Counts bytes that stay in memory.
    pub(crate) fn keep(&self, bytes: usize) -> Result<()> {
        let bytes = self.bytes.get().saturating_add(bytes);
        self.bytes.set(bytes);
        if bytes > MAX_BYTES {
            return Err(Error::limit(format!(
                "the kustomization reads and copies more than {} MiB",
                MAX_BYTES >> 20
            )));
        }
        Ok(())
    }
}

/// The work of expressions.
struct Work<'a>(&'a Build<'a>);

impl regexp::Meter for Work<'_> {
    type Error = Error;

    fn spend(&mut self, steps: u64) -> Result<()> {
        /// Steps of an expression in one of a build.
        const STEPS: u64 = 16;
        self.0
            .work(usize::try_from(steps / STEPS).unwrap_or(usize::MAX))
    }
}

fn is_too_large(compiled: &Result<Regexp, regexp::Error>) -> bool {
    matches!(compiled, Err(error) if error.code == ErrorCode::Large)
}

/// A directory that a build works in, and those that led to it.
#[derive(Clone)]
pub(crate) struct Loader<'a> {
    pub(crate) build: &'a Build<'a>,
    root: Rc<Root>,
}

struct Root {
    path: String,
    referrer: Option<Rc<Root>>,
    depth: usize,
}

/// Whether a directory is another or lies below it.
fn is_in(path: &str, other: &str) -> bool {
    other == "/"
        || path == other
        || path
            .strip_prefix(other)
            .is_some_and(|rest| rest.starts_with('/'))
}

/// A URL without who asks.
fn without_credentials(path: &str) -> String {
    match path.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            match rest[..end].rfind('@') {
                Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
                None => path.to_owned(),
            }
        }
        None => path.to_owned(),
    }
}

/// Remote references are refused before anything else is tried.
pub(crate) fn refuse_remote(path: &str) -> Error {
    Error::limit(format!(
        "'{}' is remote: only files of the bundle are used, nothing is fetched",
        without_credentials(path)
    ))
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix)
        .then(|| &text[prefix.len()..])
}

/// A file that kustomize would fetch (`IsRemoteFile`).
pub(crate) fn is_remote_file(path: &str) -> bool {
    ["http:", "https:"]
        .into_iter()
        .any(|scheme| strip_prefix_ignoring_case(path, scheme).is_some())
}

/// A repository that kustomize would clone (`NewRepoSpecFromURL`).
fn is_repository(path: &str) -> bool {
    if path.starts_with('/') {
        return false;
    }
    let path = path.split('?').next().unwrap_or(path);
    let path = strip_prefix_ignoring_case(path, "git::").unwrap_or(path);
    let schemes = ["ssh://", "https://", "http://", "file://"];
    let scheme = schemes
        .into_iter()
        .find_map(|scheme| Some((scheme, strip_prefix_ignoring_case(path, scheme)?)));
    let (scheme, rest) = scheme.unwrap_or(("", path));
    let user = rest.find('@').filter(|&at| {
        let name = &rest.as_bytes()[..at];
        name.first().is_some_and(u8::is_ascii_alphabetic)
            && name.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'-')
    });
    let rest = user.map_or(rest, |at| &rest[at + 1..]);
    let is_github = ["github.com/", "github.com:"]
        .into_iter()
        .any(|host| strip_prefix_ignoring_case(rest, host).is_some());
    let is_scp = scheme.is_empty() && (user.is_some() || is_github);
    if scheme.is_empty() && !is_scp {
        return false;
    }
    if scheme == "file://" {
        return !rest.is_empty();
    }
    let slash = rest.find('/');
    let colon = rest.find(':').filter(|&at| at > 0 && is_scp);
    let separator = match (slash, colon) {
        (Some(slash), Some(colon)) => Some(slash.min(colon)),
        (slash, colon) => slash.or(colon),
    };
    let Some(separator) = separator else {
        return false;
    };
    let repository = &rest[separator + 1..];
    // At least an owner and a name, unless the name's end is marked.
    let is_marked = ["_git/", "//", ".git"]
        .into_iter()
        .any(|mark| repository.contains(mark));
    !repository.is_empty() && (is_marked || repository.contains('/'))
}

impl<'a> Loader<'a> {
    /// The directory that is built.
    pub(crate) fn new(build: &'a Build<'a>, path: &str) -> Result<Self> {
        if is_repository(path) {
            return Err(refuse_remote(path));
        }
        let root = confirm(build.files, path).context("must build at directory")?;
        Ok(Self {
            build,
            root: Rc::new(Root {
                path: root,
                referrer: None,
                depth: 0,
            }),
        })
    }

    pub(crate) fn root(&self) -> &str {
        &self.root.path
    }

    /// The directory of a base.
    pub(crate) fn enter(&self, path: &str) -> Result<Self> {
        if path.is_empty() {
            return Err(Error::new("new root cannot be empty"));
        }
        if is_repository(path) {
            return Err(refuse_remote(path));
        }
        if path.starts_with('/') {
            return Err(Error::new(format!("new root '{path}' cannot be absolute")));
        }
        let candidate = confirm(self.build.files, &join(&self.root.path, path))
            .context("must build at directory")?;
        let mut visited = Some(&self.root);
        while let Some(root) = visited {
            if is_in(&root.path, &candidate) {
                return Err(Error::new(format!(
                    "cycle detected: candidate root '{candidate}' contains visited root '{}'",
                    root.path
                )));
            }
            visited = root.referrer.as_ref();
        }
        let depth = self.root.depth + 1;
        let directories = self.build.directories.get() + 1;
        self.build.directories.set(directories);
        if depth > MAX_DEPTH || directories > MAX_DIRECTORIES {
            return Err(Error::limit(format!(
                "the kustomization has more than {MAX_DIRECTORIES} bases, or bases more than {MAX_DEPTH} deep"
            )));
        }
        Ok(Self {
            build: self.build,
            root: Rc::new(Root {
                path: candidate,
                referrer: Some(Rc::clone(&self.root)),
                depth,
            }),
        })
    }

    /// A file's content; it must be in or below the directory.
    pub(crate) fn load(&self, path: &str) -> Result<Vec<u8>> {
        let file = self.locate(path)?;
        let content = self.build.files.read(&file, MAX_BYTES)?;
        self.build.keep(content.len())?;
        Ok(content)
    }

    /// The documents of a file that was read before; `None` for one that is text.
    pub(crate) fn documents(&self, path: &str) -> Result<Option<&'a [Node]>> {
        let file = self.locate(path)?;
        Ok(self.build.files.documents(&file))
    }

    fn locate(&self, path: &str) -> Result<String> {
        if is_remote_file(path) {
            return Err(refuse_remote(path));
        }
        let absolute = if path.starts_with('/') {
            path.to_owned()
        } else {
            join(&self.root.path, path)
        };
        let place = self.build.files.locate(&absolute)?;
        let Some(file) = place.file else {
            return Err(Error::new(format!("'{absolute}' must resolve to a file")));
        };
        if !is_in(&place.directory, &self.root.path) {
            return Err(Error::new(format!(
                "security; file '{absolute}' is not in or below '{}'",
                self.root.path
            )));
        }
        Ok(join(&place.directory, &file))
    }
}

fn confirm(files: &dyn FileSystem, path: &str) -> Result<String> {
    if path.is_empty() {
        return Err(Error::new("directory path cannot be empty"));
    }
    let place = files.locate(path).context("not a valid directory")?;
    if place.file.is_some() {
        return Err(Error::new(format!("'{path}': file is not directory")));
    }
    Ok(place.directory)
}
