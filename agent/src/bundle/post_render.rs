//! What Fleet does to rendered objects: its label and annotation, CRDs that outlive their bundle, the
//! target namespace, and the raw YAML of the bundle on top.
//!
//! Mirrors `internal/helmdeployer/postrender.go`. Runs on every render, over hooks too.

use std::error::Error;

use chart::Chart;
use chart::post_render::{Document, Form, PostRenderer};
use golib::budget::{Allowance, Budget};
use golib::yaml;
use golib::yaml::node::Kind;
use serde_json::{Map, Value};

use super::kustomize::{BuiltObject, Kustomization, RenderedDocument};
use super::names::SetId;
use super::objects::{self, ObjectsError, text};
use super::raw_yaml;
use crate::api::{ANNOTATION_OBJECT_SET_ID, BundleDeploymentOptions, LABEL_OBJECT_SET_HASH};
use crate::public::Name;

const CRD_KIND: &str = "CustomResourceDefinition";
const RESOURCE_POLICY: &str = "helm.sh/resource-policy";

/// Whether a kind lives in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceScope {
    /// Objects of the kind have a namespace.
    Namespaced,
    /// Objects of the kind have no namespace.
    Cluster,
}

/// What the cluster serves.
pub trait Scopes: Send + Sync {
    /// The scope of a kind; `None` if the cluster does not serve it.
    fn scope(&self, api_version: &str, kind: &str) -> Option<ResourceScope>;
}

/// Fleet's post-renderer for one bundle.
pub struct FleetPostRenderer<'a> {
    set: &'a SetId,
    options: &'a BundleDeploymentOptions,
    raw_yaml: Vec<(String, String)>,
    scopes: Option<&'a dyn Scopes>,
    kustomization: Option<&'a Kustomization>,
    /// Memory and work that files and documents may take.
    allowance: Allowance,
}

/// What the raw files of a bundle may take together once they are read, as much as the manifest of a record may, and rendered documents on their
/// way to kustomize; in bytes.
const MAX_RAW: usize = 96 << 20;
const MAX_NODES: usize = 48 << 20;

/// Why a bundle's objects cannot be deployed.
#[derive(Debug, thiserror::Error)]
pub enum FleetPostRenderError {
    /// A document is no object.
    #[error("{path}: {source}")]
    Document {
        /// The template, or the file of the bundle.
        path: String,
        #[source]
        source: ObjectsError,
    },
    /// A file of raw YAML cannot be parsed as YAML. Fleet's words, which do not name the file.
    #[error("{problem}")]
    RawDocument { problem: String },
    /// Kustomize does not build the bundle. Its own words, without secrets.
    #[error("{problem}")]
    Kustomize { problem: String },
    /// A target namespace and an object outside all namespaces.
    #[error(
        "invalid cluster scoped object [name={name} kind={kind} apiVersion={api_version}] found. \
         Your config uses targetNamespace or namespace and thus forbids cluster-scoped resources. \
         If you do not intend to disallow cluster scoped resources, you could switch to defaultNamespace"
    )]
    ClusterScoped {
        name: String,
        kind: String,
        api_version: String,
    },
    /// A target namespace and an object of a kind that the cluster does not serve.
    #[error("no matches for kind \"{kind}\" in version \"{api_version}\"")]
    UnknownKind { kind: String, api_version: String },
}

struct Rendered {
    path: Option<String>,
    object: Map<String, Value>,
}

impl<'a> FleetPostRenderer<'a> {
    /// For a chart of [`super::chart`]. Without `scopes` (no cluster) any object may get the target
    /// namespace.
    pub fn new(
        chart: &Chart,
        set: &'a SetId,
        options: &'a BundleDeploymentOptions,
        scopes: Option<&'a dyn Scopes>,
    ) -> Self {
        let raw_yaml = chart
            .files
            .iter()
            .filter(|file| file.name.starts_with(raw_yaml::DIRECTORY))
            .map(|file| {
                (
                    file.name.clone(),
                    String::from_utf8_lossy(&file.data).into_owned(),
                )
            })
            .collect();
        Self {
            set,
            options,
            raw_yaml,
            scopes,
            kustomization: None,
            allowance: Allowance::default(),
        }
    }

    /// The same renderer, limited to `allowance` for files and documents.
    #[must_use]
    pub fn within(self, allowance: &Allowance) -> Self {
        Self {
            allowance: allowance.clone(),
            ..self
        }
    }

    /// The same renderer with kustomize before it.
    #[must_use]
    pub fn kustomized(self, kustomization: Option<&'a Kustomization>) -> Self {
        Self {
            kustomization,
            ..self
        }
    }

    fn objects(&self, documents: Vec<Document>) -> Result<Vec<Rendered>, FleetPostRenderError> {
        let mut rendered = match self.kustomization {
            Some(kustomization) => kustomized(kustomization, documents, &self.allowance)?,
            None => as_rendered(documents)?,
        };
        let mut budget = self.allowance.budget(MAX_RAW);
        for (path, content) in &self.raw_yaml {
            rendered.extend(
                raw_objects(path, content, &mut budget)?
                    .into_iter()
                    .map(|object| Rendered { path: None, object }),
            );
        }
        Ok(rendered)
    }

    fn mark(&self, object: &mut Map<String, Value>) {
        let keeps = text(object, "kind") == CRD_KIND && self.options.keeps_crds();
        let metadata = object
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
        if !metadata.is_object() {
            *metadata = Value::Object(Map::new());
        }
        let Value::Object(metadata) = metadata else {
            return;
        };
        let (hash, id) = (self.set.hash(), self.set.id());
        set_text(metadata, "labels", LABEL_OBJECT_SET_HASH, hash);
        set_text(metadata, "annotations", ANNOTATION_OBJECT_SET_ID, id);
        if keeps {
            set_text(metadata, "annotations", RESOURCE_POLICY, "keep");
        }
    }

    fn place(&self, object: &mut Map<String, Value>) -> Result<(), FleetPostRenderError> {
        let namespace = &self.options.target_namespace;
        if namespace.is_empty() {
            return Ok(());
        }
        if let Some(scopes) = self.scopes {
            let (api_version, kind) = (text(object, "apiVersion"), text(object, "kind"));
            let scope = scopes.scope(api_version, kind);
            let (kind, api_version) = (kind.to_owned(), api_version.to_owned());
            match scope {
                Some(ResourceScope::Namespaced) => {}
                Some(ResourceScope::Cluster) => {
                    let name = object.get("metadata").and_then(|m| m.get("name"));
                    let name = name.and_then(Value::as_str).unwrap_or_default().to_owned();
                    return Err(FleetPostRenderError::ClusterScoped {
                        name,
                        kind,
                        api_version,
                    });
                }
                None => return Err(FleetPostRenderError::UnknownKind { kind, api_version }),
            }
        }
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.insert("namespace".into(), namespace.as_str().into());
        }
        Ok(())
    }
}

/// The objects of rendered documents.
fn as_rendered(documents: Vec<Document>) -> Result<Vec<Rendered>, FleetPostRenderError> {
    let mut rendered = Vec::new();
    for document in documents {
        let path = document.path.clone();
        let objects = document.into_object().map_err(ObjectsError::Yaml);
        let objects = objects.and_then(objects::of_value).map_err(|source| {
            let path = path.clone().unwrap_or_default();
            FleetPostRenderError::Document { path, source }
        })?;
        // The items of a list have lost the mark of their file.
        let path = path.filter(|_| !objects.flattened);
        rendered.extend(objects.items.into_iter().map(|object| Rendered {
            path: path.clone(),
            object,
        }));
    }
    Ok(rendered)
}

/// Runs rendered documents through kustomize.
fn kustomized(
    kustomization: &Kustomization,
    documents: Vec<Document>,
    allowance: &Allowance,
) -> Result<Vec<Rendered>, FleetPostRenderError> {
    let mut budget = allowance.budget(MAX_NODES);
    let mut nodes = Vec::with_capacity(documents.len());
    for document in documents {
        let path = document.path.clone();
        let node = document.into_node(&mut budget).map_err(ObjectsError::Node);
        let node = node.and_then(|node| {
            let node = node.filter(|node| !node.content.is_empty() || node.kind == Kind::Scalar);
            node.map(|node| objects::of_kind(&node).map(|()| node))
                .transpose()
        });
        let node = node.map_err(|source| {
            let path = path.clone().unwrap_or_default();
            FleetPostRenderError::Document { path, source }
        })?;
        nodes.extend(node.map(|node| RenderedDocument { path, node }));
    }
    let built = kustomization.build(nodes, allowance);
    let built = built.map_err(|problem| FleetPostRenderError::Kustomize { problem })?;
    let built = built.into_iter();
    Ok(built
        .map(|BuiltObject { path, object }| Rendered { path, object })
        .collect())
}

/// The objects of one raw file. A document without kind drops the whole file, silently, and one
/// without apiVersion drops itself; only text that is no YAML is an error.
fn raw_objects(
    path: &str,
    content: &str,
    budget: &mut Budget,
) -> Result<Vec<Map<String, Value>>, FleetPostRenderError> {
    let mut read = || {
        let mut found = Vec::new();
        let documents = yaml::documents(content.as_bytes());
        for document in documents.map_err(|_| ObjectsError::Separator)? {
            found.extend(objects::of_document(&document, budget)?.items);
        }
        Ok(found)
    };
    let mut found: Vec<Map<String, Value>> = match read() {
        Ok(found) => found,
        Err(ObjectsError::NoKind) => {
            logging::debug!(
                path = Name(path),
                "a file with an object without kind is skipped"
            );
            return Ok(Vec::new());
        }
        Err(source) => {
            // The parser's error goes into the status, redacted, as it quotes the file: the log has only the path.
            logging::warn!(path = Name(path), "a file cannot be read");
            let problem = match source {
                // Fleet reads raw files without converting them to JSON first.
                ObjectsError::Yaml(error) => {
                    let text = error.to_string();
                    let bare = text.strip_prefix("error converting YAML to JSON: ");
                    bare.unwrap_or(&text).to_owned()
                }
                source => source.to_string(),
            };
            return Err(FleetPostRenderError::RawDocument { problem });
        }
    };
    found.retain(|object| {
        !text(object, "apiVersion").is_empty() && !text(object, "kind").is_empty()
    });
    Ok(found)
}

/// Adds to a table of texts. One that holds anything else counts as empty, as for Kubernetes'
/// `Unstructured`; null entries become empty texts.
fn set_text(metadata: &mut Map<String, Value>, field: &str, key: &str, value: &str) {
    let mut table = match metadata.remove(field) {
        Some(Value::Object(table)) if table.values().all(|v| v.is_string() || v.is_null()) => table,
        _ => Map::new(),
    };
    for value in table.values_mut().filter(|value| value.is_null()) {
        *value = Value::String(String::new());
    }
    table.insert(key.to_owned(), value.into());
    metadata.insert(field.to_owned(), Value::Object(table));
}

impl PostRenderer for FleetPostRenderer<'_> {
    fn run(&self, documents: Vec<Document>) -> Result<Vec<Document>, Box<dyn Error + Send + Sync>> {
        let rendered = self.objects(documents)?;
        let mut result = Vec::with_capacity(rendered.len());
        for Rendered { path, mut object } in rendered {
            self.mark(&mut object);
            self.place(&mut object)?;
            result.push(Document::from_object(path, Value::Object(object)));
        }
        Ok(result)
    }

    fn form(&self) -> Form {
        match self.kustomization {
            Some(_) => Form::Nodes,
            None => Form::Objects,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chart::File;

    struct Served;

    impl Scopes for Served {
        fn scope(&self, api_version: &str, kind: &str) -> Option<ResourceScope> {
            match (api_version, kind) {
                ("v1", "ConfigMap") => Some(ResourceScope::Namespaced),
                ("v1", "Namespace") | ("apiextensions.k8s.io/v1", CRD_KIND) => {
                    Some(ResourceScope::Cluster)
                }
                _ => None,
            }
        }
    }

    fn run(
        documents: &[(&str, &str)],
        raw: &[(&str, &str)],
        options: &BundleDeploymentOptions,
    ) -> Result<Vec<(Option<String>, Value)>, String> {
        let chart = Chart {
            files: raw
                .iter()
                .map(|(name, data)| File::new(*name, data.as_bytes().to_vec()))
                .collect::<Vec<_>>()
                .into(),
            ..Chart::default()
        };
        let set = SetId::new("app", "");
        let renderer = FleetPostRenderer::new(&chart, &set, options, Some(&Served));
        let documents = documents
            .iter()
            .map(|(path, text)| Document::from_text(Some((*path).into()), (*text).into()))
            .collect();
        let rendered = renderer.run(documents).map_err(|error| error.to_string())?;
        Ok(rendered
            .into_iter()
            .map(|document| (document.path.clone(), document.into_object().unwrap()))
            .collect())
    }

    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {x: own}}\n";

    #[test]
    fn every_object_gets_the_label_and_annotation_of_its_set() {
        let options = BundleDeploymentOptions::default();
        let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: c}\n";
        let list = format!(
            "apiVersion: v1\nkind: List\nitems:\n- {}\n",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}"
        );
        let rendered = run(
            &[("t/a.yaml", MAP), ("t/c.yaml", crd), ("t/l.yaml", &list)],
            &[],
            &options,
        )
        .unwrap();
        let set = SetId::new("app", "");
        for (_, object) in &rendered {
            assert_eq!(
                object["metadata"]["labels"][LABEL_OBJECT_SET_HASH],
                set.hash()
            );
            assert_eq!(
                object["metadata"]["annotations"][ANNOTATION_OBJECT_SET_ID],
                set.id()
            );
        }
        let paths: Vec<_> = rendered.iter().map(|(path, _)| path.as_deref()).collect();
        assert_eq!(paths, [Some("t/a.yaml"), Some("t/c.yaml"), None]);
        assert_eq!(rendered[0].1["metadata"]["labels"]["x"], "own");
        assert_eq!(
            rendered[1].1["metadata"]["annotations"][RESOURCE_POLICY],
            "keep"
        );
        let options = BundleDeploymentOptions {
            delete_crd_resources: true,
            ..options
        };
        let rendered = run(&[("t/c.yaml", crd)], &[], &options).unwrap();
        assert!(
            rendered[0].1["metadata"]["annotations"]
                .get(RESOURCE_POLICY)
                .is_none()
        );
    }

    #[test]
    fn raw_objects_without_a_kind_or_version_are_dropped_and_broken_yaml_fails() {
        let raw = [
            (
                "raw-yaml/a.yaml",
                "kind: ConfigMap\nmetadata: {name: no-version}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\n",
            ),
            (
                "raw-yaml/b.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: lost}\n---\na: 1\n",
            ),
            ("README.md", "[not yaml"),
        ];
        let rendered = run(&[], &raw, &BundleDeploymentOptions::default()).unwrap();
        let names: Vec<_> = rendered
            .iter()
            .map(|(_, o)| o["metadata"]["name"].clone())
            .collect();
        assert_eq!(names, ["good"]);
        // As the stock controller showed it for the Go agent.
        let broken = [(
            "raw-yaml/cm.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: p\n data: x",
        )];
        let error = run(&[], &broken, &BundleDeploymentOptions::default()).unwrap_err();
        assert_eq!(error, "yaml: line 4: did not find expected key");
    }

    #[test]
    fn a_target_namespace_is_forced() {
        let options = BundleDeploymentOptions {
            target_namespace: "tn".into(),
            ..Default::default()
        };
        let rendered = run(&[("a", MAP)], &[], &options).unwrap();
        assert_eq!(rendered[0].1["metadata"]["namespace"], "tn");
        let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: ns}\n";
        let error = run(&[("a", namespace)], &[], &options).unwrap_err();
        assert!(error.starts_with(
            "invalid cluster scoped object [name=ns kind=Namespace apiVersion=v1] found. Your config uses"
        ));
        let unknown = "apiVersion: example.com/v1\nkind: X\nmetadata: {name: x}\n";
        let error = run(&[("a", unknown)], &[], &options).unwrap_err();
        assert_eq!(
            error,
            "no matches for kind \"X\" in version \"example.com/v1\""
        );
    }

    #[test]
    fn labels_that_are_no_texts_count_as_none() {
        let odd = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {x: 1, z: w}, annotations: {none: null}}\n";
        let rendered = run(&[("a", odd)], &[], &BundleDeploymentOptions::default()).unwrap();
        let metadata = &rendered[0].1["metadata"];
        assert_eq!(metadata["labels"].as_object().unwrap().len(), 1);
        assert_eq!(metadata["annotations"]["none"], "");
    }

    /// However many files they stand in, and documents.
    #[test]
    fn raw_files_share_one_allowance() {
        let maps = vec!["{a: 1}"; 500].join(", ");
        let text = format!("apiVersion: v1\nkind: ConfigMap\nspec: [{maps}]\n---\n").repeat(2);
        let allowance = Allowance::new(1 << 20);
        let mut budget = allowance.budget(MAX_RAW);
        assert_eq!(raw_objects("a.yaml", &text, &mut budget).unwrap().len(), 2);
        assert!(raw_objects("b.yaml", &text, &mut budget).is_err());
        assert!(allowance.is_exceeded());
    }
}
