//! Templates that know each other.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::cache::{Key, Parsed, TemplateCache};
use crate::error::Error;
use crate::funcs::Functions;
use crate::parse::{self, Reads, Tree};

/// What a key that is not in a map gives: Go's `missingkey` option.
///
/// ```
/// use std::sync::Arc;
/// use templating::{Functions, Limits, Map, MissingKey, Renderer, SystemHost, TemplateSet};
///
/// for (option, want) in [(MissingKey::Invalid, Ok("<no value>")), (MissingKey::Error, Err(()))] {
///     let functions = Arc::new(Functions::builtin());
///     let mut set = TemplateSet::new("set", functions).with_missing_key(option);
///     set.parse("t", "{{ .missing }}")?;
///     let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
///     let got = renderer.render("t", &Map::new().into()).map_err(|_| ());
///     assert_eq!(got, want.map(|text| text.as_bytes().to_vec()));
/// }
/// # Ok::<(), templating::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKey {
    /// No value at all, printed as `<no value>`.
    #[default]
    Invalid,
    /// The zero value of the map's element type.
    Zero,
    /// An error.
    Error,
}

/// Enough for any real template, and little enough for any stack.
const DEFAULT_MAX_DEPTH: usize = 200;

/// Parsed templates that can call each other by name. Shared between renders and threads in an `Arc`.
///
/// ```
/// use std::sync::Arc;
/// use templating::{Functions, Limits, Renderer, SystemHost, TemplateSet, Value};
///
/// let mut set = TemplateSet::new("set", Arc::new(Functions::builtin()));
/// set.parse("page", r#"{{ define "title" }}<{{ . }}>{{ end }}{{ template "title" 7 }}"#)?;
/// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
/// assert_eq!(renderer.render("page", &Value::Nil)?, b"<7>");
/// assert_eq!(renderer.render("title", &Value::from("a"))?, b"<a>");
/// # Ok::<(), templating::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TemplateSet {
    name: Arc<str>,
    functions: Arc<Functions>,
    left: String,
    right: String,
    missing_key: MissingKey,
    max_depth: usize,
    trees: HashMap<Arc<str>, Arc<Tree>>,
    /// Memory of the templates parsed for the set, in bytes, about.
    weight: usize,
    /// The set this one was made from for the time of a `tpl`.
    outer: Option<Arc<TemplateSet>>,
}

impl TemplateSet {
    /// An empty set. Its name appears only in the error about a template that is not in it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use templating::{Functions, Limits, Renderer, SystemHost, TemplateSet, Value};
    ///
    /// let set = Arc::new(TemplateSet::new("set", Arc::new(Functions::builtin())));
    /// let error = Renderer::new(set, &SystemHost, Limits::default()).render("page", &Value::Nil);
    /// assert_eq!(error.unwrap_err().to_string(), r#"template: no template "page" associated with template "set""#);
    /// ```
    pub fn new(name: &str, functions: Arc<Functions>) -> Self {
        Self {
            name: name.into(),
            functions,
            left: "{{".to_owned(),
            right: "}}".to_owned(),
            missing_key: MissingKey::default(),
            max_depth: DEFAULT_MAX_DEPTH,
            trees: HashMap::new(),
            weight: 0,
            outer: None,
        }
    }

    /// Other delimiters than `{{` and `}}`; an empty one keeps the default.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use templating::{Functions, TemplateSet};
    ///
    /// let mut set = TemplateSet::new("set", Arc::new(Functions::builtin())).with_delims("[[", "]]");
    /// assert!(set.parse("t", "{{ untouched }} [[ len .name ]]").is_ok());
    /// ```
    #[must_use]
    pub fn with_delims(mut self, left: &str, right: &str) -> Self {
        if !left.is_empty() {
            self.left = left.to_owned();
        }
        if !right.is_empty() {
            self.right = right.to_owned();
        }
        self
    }

    /// Sets the value of missing keys.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use templating::{Functions, Limits, Map, MissingKey, Renderer, SystemHost, TemplateSet};
    ///
    /// let mut set = TemplateSet::new("set", Arc::new(Functions::builtin())).with_missing_key(MissingKey::Error);
    /// set.parse("t", "{{ .name }}")?;
    /// let dot = Map::new().into();
    /// let error = Renderer::new(Arc::new(set), &SystemHost, Limits::default()).render("t", &dot);
    /// assert!(error.unwrap_err().to_string().contains(r#"map has no entry for key "name""#));
    /// # Ok::<(), templating::Error>(())
    /// ```
    #[must_use]
    pub fn with_missing_key(mut self, missing_key: MissingKey) -> Self {
        self.missing_key = missing_key;
        self
    }

    /// How deep parentheses, and blocks such as `if`, may nest: 200. Go allows 10,000 parentheses, which needs a large
    /// stack to parse.
    ///
    /// ```
    /// use templating::Dialect;
    ///
    /// let mut set = Dialect::Helm.template_set("chart").with_max_depth(2);
    /// let nested = "{{ if 1 }}{{ if 2 }}{{ if 3 }}{{ end }}{{ end }}{{ end }}";
    /// assert!(set.parse("t", nested).unwrap_err().is_too_deep());
    /// ```
    #[must_use]
    pub fn with_max_depth(mut self, max_depth: usize) -> Self {
        self.max_depth = max_depth;
        self
    }

    /// Parses a text under a name, with the templates it defines. A template replaces another of its name unless it
    /// is blank.
    ///
    /// ```
    /// use templating::Dialect;
    /// use templating::error::ErrorKind;
    ///
    /// let mut set = Dialect::Helm.template_set("chart");
    /// let error = set.parse("a.yaml", "ok\n{{ nosuch }}").unwrap_err();
    /// assert_eq!(error.to_string(), "template: a.yaml:2: function \"nosuch\" not defined");
    /// assert!(matches!(error.kind(), ErrorKind::Parse(error) if error.line == 2));
    /// ```
    ///
    /// # Errors
    /// When the text is no template; the set stays as it was.
    pub fn parse(&mut self, name: &str, text: impl Into<Vec<u8>>) -> Result<(), Error> {
        self.parse_shared(name, Bytes::from(text.into()))
    }

    /// Like [`TemplateSet::parse`], for a text that is held elsewhere too: it is not copied.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use templating::Dialect;
    ///
    /// let text = Bytes::from_static(b"{{ .Values.image }}"); // of a chart that stays in memory
    /// let mut set = Dialect::Helm.template_set("chart");
    /// set.parse_shared("a.yaml", text.clone())?;
    /// # Ok::<(), templating::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the text is no template; the set stays as it was.
    pub fn parse_shared(&mut self, name: &str, text: Bytes) -> Result<(), Error> {
        let mut weight = self.weight;
        for tree in self.parse_trees(name, text, &mut weight)? {
            self.add(&tree);
        }
        self.weight = weight;
        Ok(())
    }

    /// Like [`TemplateSet::parse_shared`], but takes from `cache` what was parsed there before.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use templating::{Dialect, TemplateCache};
    ///
    /// let cache = TemplateCache::new(1 << 20);
    /// let text = Bytes::from_static(b"{{ .Values.image }}");
    /// let mut set = Dialect::Helm.template_set("chart");
    /// set.parse_cached("a.yaml", text, &cache)?;
    /// # Ok::<(), templating::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the text is no template; the set stays as it was.
    pub fn parse_cached(
        &mut self,
        name: &str,
        text: Bytes,
        cache: &TemplateCache,
    ) -> Result<(), Error> {
        let key = Key {
            name: name.to_owned(),
            text: text.clone(),
            delims: (self.left.clone(), self.right.clone()),
            max_depth: self.max_depth,
        };
        let kept = cache.get(&key, &self.functions);
        // A template that no longer fits into the set is for parsing to refuse.
        let kept = kept.filter(|parsed| self.weight + parsed.weight <= parse::MAX_WEIGHT);
        if let Some(parsed) = kept {
            parsed.trees.iter().for_each(|tree| self.add(tree));
            self.weight += parsed.weight;
            return Ok(());
        }
        let mut weight = self.weight;
        let trees = self.parse_trees(name, text, &mut weight)?;
        trees.iter().for_each(|tree| self.add(tree));
        let parsed = Parsed {
            trees: trees.into(),
            weight: weight - self.weight,
        };
        self.weight = weight;
        cache.keep(key, &self.functions, parsed);
        Ok(())
    }

    pub(crate) fn parse_trees(
        &self,
        name: &str,
        text: Bytes,
        weight: &mut usize,
    ) -> Result<Vec<Arc<Tree>>, Error> {
        let delims = (&*self.left, &*self.right);
        let trees = parse::parse(name, text, delims, &self.functions, self.max_depth, weight)?;
        Ok(trees.into_iter().map(Arc::new).collect())
    }

    fn add(&mut self, tree: &Arc<Tree>) {
        if !tree.is_blank() || self.tree(&tree.name).is_none() {
            self.trees.insert(Arc::clone(&tree.name), Arc::clone(tree));
        }
    }

    /// A set with some more templates over an unchanged one.
    pub(crate) fn overlay(outer: Arc<TemplateSet>, trees: &[Arc<Tree>]) -> Self {
        let mut set = Self::new(&outer.name, Arc::clone(&outer.functions))
            .with_delims(&outer.left, &outer.right)
            .with_missing_key(outer.missing_key)
            .with_max_depth(outer.max_depth);
        set.outer = Some(outer);
        for tree in trees {
            set.add(tree);
        }
        set
    }

    pub(crate) fn tree(&self, name: &str) -> Option<&Arc<Tree>> {
        let mut set = self;
        loop {
            if let Some(tree) = set.trees.get(name) {
                return Some(tree);
            }
            set = set.outer.as_deref()?;
        }
    }

    /// The fields of its dot that a template of this set may read, found without running it. `None`: no such template.
    ///
    /// ```
    /// use templating::{Dialect, Reads};
    ///
    /// let mut set = Dialect::Fleet.template_set("values");
    /// set.parse("t", "${ if .ClusterLabels.env }${ .ClusterName }${ end }")?;
    /// let Some(Reads::Paths(paths)) = set.reads("t") else { panic!("the dot is not handed on") };
    /// assert!(paths.contains(&vec!["ClusterLabels".to_owned(), "env".to_owned()]));
    /// assert_eq!(paths.len(), 2);
    /// # Ok::<(), templating::Error>(())
    /// ```
    pub fn reads(&self, name: &str) -> Option<Reads> {
        let tree = self.tree(name)?;
        Some(parse::reads(tree, &|name| self.tree(name)))
    }

    /// The name given to [`TemplateSet::new`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The functions its templates may name.
    ///
    /// ```
    /// let set = templating::Dialect::Helm.template_set("chart");
    /// assert!(set.functions().get("toYaml").is_some());
    /// ```
    pub fn functions(&self) -> &Arc<Functions> {
        &self.functions
    }

    pub(crate) fn missing_key(&self) -> MissingKey {
        self.missing_key
    }
}
