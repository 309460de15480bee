//! Kustomize over a bundle's files, with what its chart renders among the resources.
//!
//! Mirrors `internal/helmdeployer/kustomize/kustomize.go`: the original files of the bundle are built in `kustomize.dir`, where
//! the rendered documents lie as `fleet-manifests.yaml`; what comes out takes their place.

mod secrets;

use std::sync::Arc;

use golib::budget::Allowance;
use golib::path::clean_text;
use golib::yaml::node::{Kind, Node, tag};
use kustomize::{Limits, MemoryFiles, Options, Stop};
use serde_json::{Map, Value};

use self::secrets::Secrets;
use super::error::BundleError;
use super::manifest::{Budget, Resource};
use super::style::kustomization_path;
use crate::api::BundleDeploymentOptions;

/// What the rendered documents are called beside the kustomization file.
const MANIFESTS: &str = "fleet-manifests.yaml";
const KUSTOMIZATION: &str = "kustomization.yaml";
/// Helm's annotation for the file that a document comes from, while others see it.
const FILE_ANNOTATION: &str = "postrenderer.helm.sh/postrender-filename";

/// A bundle's files that are built by kustomize.
#[derive(Clone)]
pub struct Kustomization {
    /// `kustomize.dir`, `.` for the root.
    directory: String,
    files: Arc<[(String, Vec<u8>)]>,
    stop: Option<Stop>,
}

/// Files may hold secrets.
impl std::fmt::Debug for Kustomization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Kustomization");
        shown
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

/// A rendered document on its way into a build.
pub(super) struct RenderedDocument {
    /// Path of the document's template.
    pub(super) path: Option<String>,
    pub(super) node: Node,
}

/// An object that was built.
pub(super) struct BuiltObject {
    /// The template of the document that it was; `None` for one of the bundle's own files.
    pub(super) path: Option<String>,
    pub(super) object: Map<String, Value>,
}

impl Kustomization {
    /// Of a bundle that has a `kustomization.yaml` in its `kustomize.dir`.
    ///
    /// # Errors
    /// Files that cannot be decoded.
    pub(super) fn of(
        resources: &[Resource],
        options: &BundleDeploymentOptions,
    ) -> Result<Option<Self>, BundleError> {
        let path = kustomization_path(options);
        let is_it = |resource: &Resource| clean_text(resource.name.trim_start_matches('/')) == path;
        if !resources.iter().any(is_it) {
            return Ok(None);
        }
        let mut budget = Budget::default();
        let named = resources
            .iter()
            .filter(|resource| !resource.name.is_empty());
        let files = named
            .map(|resource| Ok((resource.name.clone(), resource.decode(&mut budget)?)))
            .collect::<Result<_, BundleError>>()?;
        let directory = match path.strip_suffix(KUSTOMIZATION) {
            Some("") | None => ".".to_owned(),
            Some(directory) => directory.trim_end_matches('/').to_owned(),
        };
        Ok(Some(Self {
            directory,
            files,
            stop: None,
        }))
    }

    /// The same one, whose builds end as soon as `stop` says why; the files are shared.
    #[must_use]
    pub fn until(&self, stop: Stop) -> Self {
        Self {
            stop: Some(stop),
            ..self.clone()
        }
    }

    /// Size of the kustomization's files, in bytes.
    pub fn size_bytes(&self) -> u64 {
        let files = self.files.iter();
        files
            .map(|(name, content)| name.len() + content.len())
            .sum::<usize>() as u64
    }

    /// The objects of the kustomization, those of rendered documents among them.
    ///
    /// # Errors
    /// Where kustomize fails, in its words, without what Secrets hold.
    pub(super) fn build(
        &self,
        rendered: Vec<RenderedDocument>,
        allowance: &Allowance,
    ) -> Result<Vec<BuiltObject>, String> {
        let secret_nodes: Vec<Node> = rendered
            .iter()
            .filter(|document| document.may_be_secret())
            .map(|document| document.node.clone())
            .collect();
        self.build_unredacted(rendered, allowance).map_err(|error| {
            let files = self.files.iter();
            let mut secrets = Secrets::of_files(files.map(|(name, content)| (&**name, &**content)));
            secret_nodes
                .iter()
                .for_each(|node| secrets.add(node.to_yaml().as_bytes()));
            secrets.redact(&error.to_string())
        })
    }

    fn build_unredacted(
        &self,
        rendered: Vec<RenderedDocument>,
        allowance: &Allowance,
    ) -> kustomize::Result<Vec<BuiltObject>> {
        let mut files = MemoryFiles::new();
        for (name, content) in &*self.files {
            files.add(name, content)?;
        }
        let options = Options {
            // Fleet asks for no order, takes objects without their text, and builds kustomize without a version.
            is_sorted: false,
            is_printed: false,
            version: "(devel)".to_owned(),
            first_resource: (!rendered.is_empty()).then(|| MANIFESTS.to_owned()),
            limits: Limits {
                allowance: allowance.clone(),
                stop: self.stop.clone(),
                ..Limits::default()
            },
        };
        let documents = rendered.into_iter().map(RenderedDocument::into_marked);
        files.add_documents(
            &format!("{}/{MANIFESTS}", self.directory),
            documents.collect(),
        )?;
        let built = kustomize::build(&files, &self.directory, &options)?;
        if !built.warnings.is_empty() {
            let deprecated = built.warnings.len();
            logging::debug!(deprecated, "fields of a kustomization are deprecated");
        }
        let objects = built.objects.into_iter().filter_map(|object| match object {
            Value::Object(object) => Some(BuiltObject::of(object)),
            _ => None,
        });
        Ok(objects.collect())
    }
}

/// The value of an entry.
fn entry<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let mut entries = node.entries();
    entries.find_map(|(key, value)| (key.value == name).then_some(value))
}

/// The mapping under a name, made where it is missing; `None` where something else is.
fn mapping<'a>(node: &'a mut Node, name: &str) -> Option<&'a mut Node> {
    if node.kind != Kind::Mapping {
        return None;
    }
    if entry(node, name).is_none() {
        node.content.push(Node::scalar(name));
        node.content.push(Node::collection(Kind::Mapping));
    }
    let mut pairs = node.content.chunks_exact_mut(2);
    let found = pairs.find(|pair| pair[0].value == name)?;
    (found[1].kind == Kind::Mapping).then_some(&mut found[1])
}

impl RenderedDocument {
    /// A Secret, or a list that may hold one.
    fn may_be_secret(&self) -> bool {
        entry(&self.node, "kind").is_some_and(|kind| {
            matches!(
                &*kind.value,
                "Secret" | "SecretList" | "List" | "ResourceList"
            )
        })
    }

    /// With its template in the annotation that Helm's own stream has.
    fn into_marked(self) -> Node {
        let mut node = self.node;
        if let Some(path) = self.path
            && let Some(metadata) = mapping(&mut node, "metadata")
            && let Some(annotations) = mapping(metadata, "annotations")
        {
            let path = Node::tagged(path, tag::STR);
            let mut pairs = annotations.content.chunks_exact_mut(2);
            match pairs.find(|pair| pair[0].value == FILE_ANNOTATION) {
                // Helm's own takes the place of the chart's.
                Some(pair) => pair[1] = path,
                None => annotations
                    .content
                    .extend([Node::scalar(FILE_ANNOTATION), path]),
            }
        }
        node
    }
}

impl BuiltObject {
    /// Without the annotation.
    fn of(mut object: Map<String, Value>) -> Self {
        let mut path = None;
        if let Some(Value::Object(metadata)) = object.get_mut("metadata")
            && let Some(Value::Object(annotations)) = metadata.get_mut("annotations")
            && let Some(Value::String(file)) = annotations.remove(FILE_ANNOTATION)
        {
            path = Some(file);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
        Self { path, object }
    }
}

#[cfg(test)]
mod tests {
    use golib::yaml::node;

    use super::*;
    use crate::api::KustomizeOptions;

    fn kustomization(directory: &str, files: &[(&str, &str)]) -> Option<Kustomization> {
        let resource = |(name, content): &(&str, &str)| Resource {
            name: (*name).into(),
            content: (*content).into(),
            encoding: String::new(),
        };
        let resources: Vec<_> = files.iter().map(resource).collect();
        let options = BundleDeploymentOptions {
            kustomize: Some(KustomizeOptions {
                dir: directory.into(),
            }),
            ..BundleDeploymentOptions::default()
        };
        Kustomization::of(&resources, &options).unwrap()
    }

    fn rendered(path: &str, text: &str) -> RenderedDocument {
        let mut budget = golib::budget::Budget::default();
        RenderedDocument {
            path: Some(path.into()),
            node: node::parse(text.as_bytes(), &mut budget).unwrap().unwrap(),
        }
    }

    fn failure(files: &[(&str, &str)]) -> String {
        let kustomization = kustomization("", files).unwrap();
        match kustomization.build(Vec::new(), &Allowance::default()) {
            Err(problem) => problem,
            Ok(_) => panic!("it is built"),
        }
    }

    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: chart}\ndata: {a: yes}\n";

    #[test]
    fn rendered_documents_come_before_other_resources_and_keep_their_file() {
        let files = [
            (
                "k/kustomization.yaml",
                "namePrefix: p-\nresources: [sub/map.yaml]\n",
            ),
            (
                "k/sub/map.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\n",
            ),
        ];
        let kustomization = kustomization("./k/", &files).unwrap();
        let built = kustomization
            .build(vec![rendered("t/a.yaml", MAP)], &Allowance::default())
            .unwrap();
        let shown: Vec<_> = built
            .iter()
            .map(|built| (built.path.as_deref(), built.object["metadata"].clone()))
            .collect();
        let metadata = |name: &str| serde_json::json!({ "name": name });
        let wanted = [
            (Some("t/a.yaml"), metadata("p-chart")),
            (None, metadata("p-own")),
        ];
        assert_eq!(shown, wanted);
        // As kustomize reads it, not as Kubernetes does.
        assert_eq!(built[0].object["data"]["a"], "yes");
        assert_eq!(
            kustomization
                .build(Vec::new(), &Allowance::default())
                .unwrap()
                .len(),
            1
        );
    }

    #[test]
    fn a_document_with_the_annotation_for_its_file_is_read() {
        let kustomization =
            kustomization("", &[("kustomization.yaml", "namePrefix: p-\n")]).unwrap();
        let text = MAP.replace(
            "{name: chart}",
            "{name: chart, annotations: {postrenderer.helm.sh/postrender-filename: other.yaml}}",
        );
        let built = kustomization
            .build(vec![rendered("t/a.yaml", &text)], &Allowance::default())
            .unwrap();
        assert_eq!(built[0].path.as_deref(), Some("t/a.yaml"));
        assert_eq!(
            built[0].object["metadata"],
            serde_json::json!({"name": "p-chart"})
        );
    }

    #[test]
    fn rendered_documents_stand_where_the_kustomization_names_them() {
        let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\n";
        let files = [
            (
                "kustomization.yaml",
                "resources: [map.yaml, fleet-manifests.yaml]\n",
            ),
            ("map.yaml", map),
        ];
        let kustomization = kustomization("", &files).unwrap();
        let built = kustomization
            .build(vec![rendered("t/a.yaml", MAP)], &Allowance::default())
            .unwrap();
        assert_eq!(built[1].path.as_deref(), Some("t/a.yaml"));
        // The chart may have rendered nothing.
        assert_eq!(
            kustomization
                .build(Vec::new(), &Allowance::default())
                .unwrap()
                .len(),
            1
        );
    }

    /// What a kustomization may say does not depend on whether a chart stands beside it.
    #[test]
    fn one_text_is_no_list_of_resources_though_a_chart_renders() {
        let files = [
            ("kustomization.yaml", "resources: map.yaml\n"),
            ("map.yaml", MAP),
        ];
        let built = kustomization("", &files).unwrap();
        let beside_a_chart = built
            .build(vec![rendered("t/a.yaml", MAP)], &Allowance::default())
            .err();
        assert_eq!(beside_a_chart, Some(failure(&files)));
    }

    #[test]
    fn an_empty_kustomization_lets_a_chart_pass() {
        let files = [("kustomization.yaml", "")];
        let kustomization = kustomization("", &files).unwrap();
        let built = kustomization.build(vec![rendered("t/a.yaml", MAP)], &Allowance::default());
        assert_eq!(built.unwrap().len(), 1);
        assert_eq!(failure(&files), "kustomization.yaml is empty");
    }

    #[test]
    fn only_a_kustomization_yaml_in_the_directory_counts() {
        for (directory, file, is_built) in [
            ("", "kustomization.yaml", true),
            ("", "kustomization.yml", false),
            ("", "k/kustomization.yaml", false),
            ("k", "k/kustomization.yaml", true),
            ("/k", "k/kustomization.yaml", true),
            ("../../etc", "etc/kustomization.yaml", false),
        ] {
            let found = kustomization(directory, &[(file, "namePrefix: a\n")]);
            assert_eq!(found.is_some(), is_built, "{directory} {file}");
        }
    }

    #[test]
    fn refused_kustomizations_name_the_field() {
        for (file, wanted) in [
            (
                "resources: ['https://user:token@example.com/org/repo']\n",
                "'https://example.com/org/repo' is remote: only files of the bundle are used, nothing is fetched",
            ),
            (
                "helmCharts: [{name: web}]\n",
                "the kustomization has chart \"web\"",
            ),
            (
                "transformers:\n- |\n  apiVersion: example.com/v1\n  kind: Own\n  metadata: {name: own}\n",
                "unable to load external plugin 'Own'",
            ),
        ] {
            let found = failure(&[("kustomization.yaml", file)]);
            assert!(found.contains(wanted), "{found}");
        }
    }

    /// Each overlay has objects of its own, whatever its files take.
    #[test]
    fn objects_multiplied_by_overlays_count_against_the_allowance() {
        let entries: String = (0..1_000).map(|at| format!("  k{at}: v\n")).collect();
        let base =
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata:\n{entries}");
        let names: Vec<String> = (0..20).map(|at| format!("o{at}")).collect();
        let mut files = vec![
            (
                "kustomization.yaml".to_owned(),
                format!("resources: [{}]\n", names.join(", ")),
            ),
            (
                "base/kustomization.yaml".to_owned(),
                "resources: [a.yaml]\n".to_owned(),
            ),
            ("base/a.yaml".to_owned(), base),
        ];
        for name in names {
            let text = format!("namePrefix: {name}-\nresources: [../base]\n");
            files.push((format!("{name}/kustomization.yaml"), text));
        }
        let files: Vec<_> = files
            .iter()
            .map(|(name, text)| (&**name, &**text))
            .collect();
        let kustomization = kustomization("", &files).unwrap();
        let build = |limit: usize| {
            let allowance = Allowance::new(limit);
            let built = kustomization.build(Vec::new(), &allowance);
            (
                built.map(|objects| objects.len()).ok(),
                allowance.is_exceeded(),
            )
        };
        assert_eq!(build(1 << 20), (None, true));
        assert_eq!(build(32 << 20), (Some(20), false));
    }
}
