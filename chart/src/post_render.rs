//! Changing rendered documents before they are sorted into manifests and hooks.
//!
//! Helm 4 hands a post-renderer one text in which every document carries its file name in an
//! annotation. Ours work in the same process, so the file name goes along beside the document
//! instead; what comes out is what Helm would have made of it. Mirrors `annotateAndMerge` and
//! `splitAndDeannotate` of `pkg/action/action.go` and the three strategies around them.

use std::collections::BTreeMap;
use std::error::Error;

use golib::budget::{Allowance, Budget};
use golib::yaml;
use golib::yaml::node::{self, Node};
use serde_json::Value;

use crate::depth::bounded;
use crate::manifest::{self, INSTALL_ORDER, Piece, SortError, split_manifests};
use crate::warning::Warnings;

/// One document on its way through a post-renderer: text, what it says, or both.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Path of the template it comes from; `None` for what the post-renderer adds.
    pub path: Option<String>,
    text: Option<String>,
    parsed: Option<Parsed>,
}

/// What a document says, as it was read.
#[derive(Debug, Clone, PartialEq)]
enum Parsed {
    Object(Value),
    Node(Box<Node>),
}

/// How a post-renderer reads documents. Each is read once, before it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Form {
    /// As Helm and Kubernetes read them: objects, by YAML 1.1.
    #[default]
    Objects,
    /// As kustomize reads them: yaml.v3 nodes, which know how each scalar was written.
    Nodes,
}

impl Document {
    /// A document of text, which may be cut into several.
    ///
    /// ```
    /// use chart::post_render::Document;
    ///
    /// let document = Document::from_text(Some("web/templates/a.yaml".into()), "kind: Service".into());
    /// assert_eq!(document.text(), Some("kind: Service"));
    /// assert_eq!(document.into_object()?["kind"], "Service");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_text(path: Option<String>, text: String) -> Self {
        let (text, parsed) = (Some(text), None);
        Self { path, text, parsed }
    }

    /// A document that says `object`; its text is what Helm would write.
    ///
    /// ```
    /// use chart::post_render::Document;
    /// use serde_json::json;
    ///
    /// let document = Document::from_object(None, json!({ "kind": "Service" }));
    /// assert_eq!(document.text(), None);
    /// assert_eq!(document.into_object()?["kind"], "Service");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_object(path: Option<String>, object: Value) -> Self {
        let (text, parsed) = (None, Some(Parsed::Object(object)));
        Self { path, text, parsed }
    }

    /// The text as rendered, or as an earlier post-renderer gave it; `None` where that gave an object.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The document as an object. Reads the text only if it was not read before.
    ///
    /// # Errors
    /// The text is no YAML.
    pub fn into_object(self) -> Result<Value, yaml::Error> {
        match (self.parsed, self.text) {
            (Some(Parsed::Object(object)), _) => Ok(object),
            (_, text) => yaml::decode(text.unwrap_or_default().as_bytes()),
        }
    }

    /// The document as a node; `None` where it is empty. A renderer that asked for [`Form::Nodes`] gets documents that are read already.
    ///
    /// ```
    /// use chart::post_render::Document;
    /// use golib::budget::Budget;
    ///
    /// let mut budget = Budget::new(1 << 20);
    /// let service = Document::from_text(None, "kind: Service".into());
    /// assert!(service.into_node(&mut budget)?.is_some());
    /// let comment = Document::from_text(None, "# nothing".into());
    /// assert!(comment.into_node(&mut budget)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The text is no YAML, or takes more memory than `budget` allows.
    pub fn into_node(self, budget: &mut Budget) -> Result<Option<Node>, node::Error> {
        match (self.parsed, self.text) {
            (Some(Parsed::Node(node)), _) => Ok(Some(*node)),
            (_, Some(text)) => node::parse(text.as_bytes(), budget),
            (Some(Parsed::Object(object)), None) => {
                let text =
                    yaml::encode(&object).map_err(|error| node::Error::Yaml(error.to_string()))?;
                node::parse(text.as_bytes(), budget)
            }
            (None, None) => Ok(None),
        }
    }
}

/// Changes, adds or drops documents.
///
/// ```
/// use std::error::Error;
///
/// use chart::post_render::{Document, PostRenderer};
///
/// /// Labels everything.
/// struct Labels;
///
/// impl PostRenderer for Labels {
///     fn run(&self, documents: Vec<Document>) -> Result<Vec<Document>, Box<dyn Error + Send + Sync>> {
///         let label = |document: Document| {
///             let path = document.path.clone();
///             let mut object = document.into_object()?;
///             object["metadata"]["labels"]["team"] = "web".into();
///             Ok(Document::from_object(path, object))
///         };
///         documents.into_iter().map(label).collect()
///     }
/// }
/// # let document = Document::from_text(None, "metadata: {name: a}".into());
/// # let labelled = Labels.run(vec![document])?.remove(0).into_object()?;
/// # assert_eq!(labelled["metadata"]["labels"]["team"], "web");
/// # Ok::<(), Box<dyn Error + Send + Sync>>(())
/// ```
pub trait PostRenderer {
    /// Works on a stream of documents, in file order. Hooks are documents too.
    ///
    /// # Errors
    /// Whatever the post-renderer finds wrong; shown to the user.
    fn run(&self, documents: Vec<Document>) -> Result<Vec<Document>, Box<dyn Error + Send + Sync>>;

    /// The form in which it wants what was rendered.
    fn form(&self) -> Form {
        Form::default()
    }
}

/// The documents a post-renderer sees.
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
#[non_exhaustive]
pub enum PostRenderError {
    /// A rendered document is no YAML.
    #[error("error merging {group}: parsing {path}: {source}")]
    Merge {
        /// `manifests` or `hooks`.
        group: &'static str,
        /// The file.
        path: String,
        /// The error in the document.
        source: Box<dyn Error + Send + Sync>,
    },
    /// An object that the post-renderer gave cannot be written as YAML.
    #[error(
        "error while running post render on {group}: an object of {path} cannot be written: {source}"
    )]
    Encode {
        /// `files`, `manifests` or `hooks`.
        group: &'static str,
        /// The file.
        path: String,
        /// The error about the object.
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
    /// Separating hooks from manifests failed.
    #[error(transparent)]
    Sort(SortError),
}

type Files = BTreeMap<String, String>;

/// Limit on all documents together once they are read, in bytes.
const MAX_DECODED: usize = 48 << 20;

/// Sends rendered files through a post-renderer. What comes out is in the order of its files.
pub(crate) fn apply(
    renderer: &dyn PostRenderer,
    strategy: Strategy,
    files: Files,
    allowance: &Allowance,
    warnings: &mut Warnings,
) -> Result<Vec<Piece>, PostRenderError> {
    let budget = &mut allowance.budget(MAX_DECODED);
    if strategy == Strategy::Combined {
        let documents = documents(files, "manifests", renderer.form(), budget)?;
        return run(renderer, documents, "files", "");
    }
    let sorted =
        manifest::sort_manifests(files, INSTALL_ORDER, warnings).map_err(PostRenderError::Sort)?;
    let hooks = sorted.hooks.into_iter().map(|hook| Piece {
        path: hook.path,
        content: hook.manifest,
        object: hook.object,
    });
    let hooks: Vec<Piece> = hooks.collect();
    let mut pieces = match strategy == Strategy::Separate && !hooks.is_empty() {
        true => {
            let documents = documents(manifest::join(hooks), "hooks", renderer.form(), budget)?;
            run(renderer, documents, "hooks", "hooks-")?
        }
        false => hooks,
    };
    let manifests = sorted.manifests.into_iter().map(|manifest| Piece {
        path: manifest.path,
        content: manifest.content,
        object: manifest.object,
    });
    let manifests = manifest::join(manifests);
    if !manifests.is_empty() {
        let documents = documents(manifests, "manifests", renderer.form(), budget)?;
        pieces.extend(run(renderer, documents, "manifests", "manifests-")?);
    }
    Ok(in_file_order(pieces))
}

/// Runs the post-renderer; files are made up for what it adds, named by position.
fn run(
    renderer: &dyn PostRenderer,
    documents: Vec<Document>,
    group: &'static str,
    made_up: &str,
) -> Result<Vec<Piece>, PostRenderError> {
    let documents = renderer.run(documents);
    let documents = documents.map_err(|source| PostRenderError::Run { group, source })?;
    let mut pieces = Vec::with_capacity(documents.len());
    for (index, document) in documents.into_iter().enumerate() {
        let Document { path, text, parsed } = document;
        let path = path.unwrap_or_else(|| format!("generated-by-postrender-{made_up}{index}.yaml"));
        let object = match parsed {
            Some(Parsed::Object(object)) => Some(object),
            Some(Parsed::Node(_)) | None => None,
        };
        let (content, object) = match (text, object) {
            (Some(text), object) => (text, object),
            (None, object) => {
                let object = object.unwrap_or_default();
                let content = yaml::encode(&object).map_err(|source| PostRenderError::Encode {
                    group,
                    path: path.clone(),
                    source,
                })?;
                let mut object = object;
                let object = match settle(&mut object) {
                    true => Some(object),
                    false => yaml::decode(content.as_bytes()).ok(),
                };
                (content, object)
            }
        };
        pieces.push(Piece {
            path,
            content,
            object,
        });
    }
    Ok(in_file_order(pieces))
}

/// Makes an object what its text says: a number is what is read of it again (`1.0` is written and read as `1`). `false` where only
/// reading the text tells: Go's writer folds breaks that are not ASCII and leaves the key of a merge bare.
fn settle(value: &mut Value) -> bool {
    let is_plain = |text: &str| !text.contains(['\u{85}', '\u{2028}', '\u{2029}']);
    match value {
        Value::Number(number) if number.is_f64() => {
            let text = yaml::encode(value).ok();
            let read = text.and_then(|text| yaml::decode(text.as_bytes()).ok());
            let is_read = read.is_some();
            *value = read.unwrap_or_default();
            is_read
        }
        Value::String(text) => is_plain(text),
        Value::Array(items) => items.iter_mut().all(settle),
        Value::Object(map) => map
            .iter_mut()
            .all(|(key, value)| key != "<<" && is_plain(key) && settle(value)),
        Value::Number(_) | Value::Null | Value::Bool(_) => true,
    }
}

/// The documents of all files but partials; what holds comments only is left out.
fn documents(
    files: Files,
    group: &'static str,
    form: Form,
    budget: &mut Budget,
) -> Result<Vec<Document>, PostRenderError> {
    let read = |text: &str, budget: &mut Budget| -> Result<_, Box<dyn Error + Send + Sync>> {
        if form == Form::Nodes {
            let node = node::parse(text.as_bytes(), budget)?;
            let node = node.filter(|node| node.short_tag() != node::tag::NULL);
            return Ok(node.map(|node| Parsed::Node(Box::new(node))));
        }
        let value = yaml::Decoder::new().decode(text.as_bytes(), budget)?;
        Ok(match value {
            Value::Null => None,
            value => Some(Parsed::Object(value)),
        })
    };
    let mut documents = Vec::new();
    for (path, content) in files {
        let base = path.rsplit('/').next().unwrap_or(&path);
        if base.starts_with('_') {
            continue;
        }
        for text in split_manifests(&content) {
            let parsed = read(text, budget).map_err(|source| PostRenderError::Merge {
                group,
                path: path.clone(),
                source: malformed(text, budget).unwrap_or(source),
            })?;
            let parsed = match parsed {
                None => continue,
                // A document too deep to be walked is left to later stages.
                Some(Parsed::Object(object)) => bounded(object).ok().map(Parsed::Object),
                node => node,
            };
            documents.push(Document {
                path: Some(path.clone()),
                text: Some(text.to_owned()),
                parsed,
            });
        }
    }
    Ok(documents)
}

/// The error of a document in the words of kyaml, by which Helm reads the documents it hands to post-renderers.
fn malformed(text: &str, budget: &mut Budget) -> Option<Box<dyn Error + Send + Sync>> {
    match node::parse(text.as_bytes(), budget).err()? {
        node::Error::TooLarge(_) => None,
        error => {
            let error = error.to_string();
            let is_syntax = error.starts_with("yaml: ");
            is_syntax.then(|| format!("MalformedYAMLError: {error}").into())
        }
    }
}

/// The documents as they would be cut out of their files again: in the order of the paths, each but the last of a file with
/// its newline.
fn in_file_order(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_by(|a, b| a.path.cmp(&b.path));
    let mut cut = Vec::with_capacity(pieces.len());
    let mut rest = pieces.into_iter().filter(manifest::has_document).peekable();
    while let Some(piece) = rest.next() {
        let is_last = rest.peek().is_none_or(|next| next.path != piece.path);
        let Piece {
            path,
            mut content,
            object,
        } = piece;
        if !is_last && !content.ends_with('\n') {
            content.push('\n');
        }
        match object {
            Some(_) => cut.push(Piece {
                path,
                content,
                object,
            }),
            None => cut.extend(split_manifests(&content).into_iter().map(|text| Piece {
                path: path.clone(),
                content: text.to_owned(),
                object: None,
            })),
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Turns every document into an object and back.
    struct Objects;

    impl PostRenderer for Objects {
        fn run(
            &self,
            documents: Vec<Document>,
        ) -> Result<Vec<Document>, Box<dyn Error + Send + Sync>> {
            let object = |document: Document| {
                let path = document.path.clone();
                Ok(Document::from_object(path, document.into_object()?))
            };
            documents.into_iter().map(object).collect()
        }
    }

    /// Changes nothing.
    struct Keep;

    impl PostRenderer for Keep {
        fn run(
            &self,
            documents: Vec<Document>,
        ) -> Result<Vec<Document>, Box<dyn Error + Send + Sync>> {
            Ok(documents)
        }
    }

    /// As Helm 4.3.1 says; its reader has its own lines and words.
    #[test]
    fn malformed_yaml_is_refused_in_the_words_of_kyaml() {
        for (text, said) in [
            (
                "a: b: c\n",
                "yaml: mapping values are not allowed in this context",
            ),
            (
                "kind: A\nb: c: d\n",
                "yaml: line 2: mapping values are not allowed in this context",
            ),
            ("a: [\n", "yaml: line 1: did not find expected node content"),
            ("a: \"x\n", "yaml: line 2: found unexpected end of stream"),
            (
                "a:\n\t- b\n",
                "yaml: line 2: found character that cannot start any token",
            ),
            ("a: *b\n", "yaml: unknown anchor 'b' referenced"),
            ("- a\nb\n", "yaml: line 2: could not find expected ':'"),
            ("a: 'x\n", "yaml: line 2: found unexpected end of stream"),
            ("%X\n", "yaml: found unknown directive name"),
            ("a: {b\n", "yaml: line 1: did not find expected ',' or '}'"),
            ("\u{1}\n", "yaml: control characters are not allowed"),
            ("a: &x\n  b: *y\n", "yaml: unknown anchor 'y' referenced"),
            (
                "kind: x\n ab: c\n",
                "yaml: line 2: mapping values are not allowed in this context",
            ),
        ] {
            let files = [("c/a.yaml".to_owned(), text.to_owned())].into();
            let mut warnings = Warnings::default();
            let allowance = Allowance::default();
            let failed = apply(&Keep, Strategy::Combined, files, &allowance, &mut warnings);
            let failed = failed.map(|_| ()).unwrap_err().to_string();
            let expected =
                format!("error merging manifests: parsing c/a.yaml: MalformedYAMLError: {said}");
            assert_eq!(failed, expected, "{text}");
        }
    }

    fn rendered(files: &[(&str, &str)]) -> Vec<Piece> {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).into(), (*text).into()));
        let pieces = apply(
            &Objects,
            Strategy::Combined,
            files.collect(),
            &Allowance::default(),
            &mut Warnings::default(),
        );
        pieces.expect("no document is broken")
    }

    /// Each is far below what one document may take.
    #[test]
    fn documents_take_so_much_together_and_not_each() {
        let maps = "- {a: 1}\n".repeat(10_000);
        let document = |n: usize| format!("kind: A\nmetadata: {{name: a{n}}}\nspec:\n{maps}");
        let all: Vec<_> = (0..20).map(document).collect();
        let files = [("all.yaml".to_owned(), all.join("---\n"))];
        let failed = apply(
            &Objects,
            Strategy::Combined,
            files.into(),
            &Allowance::default(),
            &mut Warnings::default(),
        );
        let failed = failed.unwrap_err();
        let cause = failed.source().map(ToString::to_string).unwrap_or_default();
        let text = format!("{failed}: {cause}");
        assert!(text.contains("decoded it takes more than 48 MiB"), "{text}");
    }

    /// An applied object must equal a later reading of the stored manifest.
    #[test]
    fn an_object_reads_back_from_its_written_text() {
        let scalars = [
            "1.0",
            "-0.0",
            "1e3",
            "1e21",
            "1.5",
            "0.1",
            "1e-7",
            "0o14",
            "014",
            "0x1F",
            "1_000",
            "12345678901234567890",
            "9223372036854775808",
            "123456789012345678901234567890",
            "100000000000000000000.0",
            "3.0e15",
            "1e6",
            "y",
            "'y'",
            "~",
            "'~'",
            "''",
            "' '",
            "'1.0'",
            "'1e3'",
            "'0x1F'",
            "2001-01-01",
            "'2001-01-01'",
            "\"a\\nb\"",
            "\"a\\r\\tb\"",
            "\"---\"",
            "\"--- a\\n---\\nb\"",
            "\"\\x85\\u2028\\ufeff\"",
            "'<<'",
            "'='",
            "'null'",
            "'#a'",
            "'a: b'",
            "'- a'",
            "{}",
            "[]",
            "[[1.0, {a: 2.0}]]",
            "{'1': a, 'true': b, '---c': d, '~': e, '<<': f}",
        ];
        for scalar in scalars {
            let text = format!("a: {scalar}\n");
            let pieces = rendered(&[("t/a.yaml", &text)]);
            let [piece] = pieces.as_slice() else {
                panic!("{scalar}: {pieces:?}")
            };
            let read = yaml::decode(piece.content.as_bytes()).ok();
            assert_eq!(piece.object, read, "{scalar}");
            assert_eq!(
                split_manifests(&piece.content),
                [piece.content.as_str()],
                "{scalar}"
            );
        }
    }

    #[test]
    fn an_object_of_any_text_reads_back_from_its_written_text() {
        let alphabet: Vec<char> =
            " \n\tab01.e:#-'\"|>&*!%@`{}[],?~=<<<\\\r\u{7}\u{85}\u{a0}\u{2028}\u{feff}\u{fffd}é😀"
                .chars()
                .collect();
        let mut seed = 1_u64;
        let mut next = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(seed >> 33).unwrap_or_default() % below
        };
        for _ in 0..20_000 {
            let mut text = || -> String {
                let length = next(9);
                (0..length)
                    .map(|_| alphabet[next(alphabet.len())])
                    .collect()
            };
            let object = json!({text(): text(), "nested": {"list": [text(), {text(): text()}]}});
            let document = Document::from_object(None, object.clone());
            let Ok(pieces) = run(&Keep, vec![document], "files", "") else {
                continue;
            };
            let read = yaml::decode(pieces[0].content.as_bytes()).ok();
            assert_eq!(pieces[0].object, read, "{object} {:?}", pieces[0].content);
        }
    }

    #[test]
    fn hooks_keep_what_was_read_of_them() {
        let hook =
            "kind: Job\nmetadata:\n  annotations: {helm.sh/hook: pre-install}\nspec: {a: 1.0}\n";
        let pieces = rendered(&[("t/a.yaml", hook)]);
        let sorted =
            manifest::sort_pieces(pieces, INSTALL_ORDER, &mut Warnings::default()).unwrap();
        let [hook] = sorted.hooks.as_slice() else {
            panic!("{sorted:?}")
        };
        let read = yaml::decode(hook.manifest.as_bytes()).ok();
        assert!(read.is_some());
        assert_eq!(hook.object, read);
    }

    #[test]
    fn documents_come_in_the_order_of_their_files() {
        let files = [
            ("t/b.yaml", "b: 1\n---\nb: 2"),
            ("t/_p.yaml", "p: 1"),
            ("t/a.yaml", "# a\n---\na: 1.0"),
        ];
        let pieces = rendered(&files);
        let shown: Vec<_> = pieces
            .iter()
            .map(|p| (&*p.path, &*p.content, p.object.clone()))
            .collect();
        let want = [
            ("t/a.yaml", "a: 1\n", Some(json!({"a": 1}))),
            ("t/b.yaml", "b: 1\n", Some(json!({"b": 1}))),
            ("t/b.yaml", "b: 2\n", Some(json!({"b": 2}))),
        ];
        assert_eq!(shown, want);
    }
}
