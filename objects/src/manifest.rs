//! From manifest text to objects the API server can be sent.
//!
//! A kind is looked up in discovery, or in the CustomResourceDefinitions of the same manifest, so
//! that a chart may bring both. Mirrors `Build` of `pkg/kube/client.go`.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use golib::budget::Budget;
use serde_json::{Map, Value, json};

use crate::discovery::{Discovery, GroupKind, Resource, group_version};
use crate::fields::text;
use crate::object::{Object, ObjectKey};

/// A manifest cannot be turned into objects. The texts are Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A document is no YAML.
    #[error("error parsing document {index}: {problem}")]
    Yaml {
        /// Position of the document, from 0.
        index: usize,
        /// The parser's words.
        problem: String,
    },
    /// A document is no object.
    #[error("error validating document {index}: {problem}")]
    Shape {
        /// Position of the document, from 0.
        index: usize,
        /// What is missing.
        problem: &'static str,
    },
    /// A name is given twice over.
    #[error("metadata.name and metadata.generateName cannot both be set")]
    TwoNames,
    /// The cluster does not serve the kind.
    #[error(
        "resource mapping not found for name: {:?} namespace: {:?} from \"\": no \
         matches for kind {:?} in version {:?}\nensure CRDs are installed first",
        .0.name, .0.namespace, .0.kind, .0.api_version
    )]
    NoMatch(Unserved),
    /// Several documents are wrong.
    #[error("[{}]", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Several(Vec<BuildError>),
}

impl BuildError {
    /// Whether a kind that the cluster does not serve is among the problems; a fresh look at the cluster may solve that.
    pub fn is_no_match(&self) -> bool {
        match self {
            Self::NoMatch(_) => true,
            Self::Several(all) => all.iter().any(Self::is_no_match),
            _ => false,
        }
    }

    /// What is told of objects of kinds that the cluster does not serve.
    pub fn no_matches(unserved: Vec<Unserved>) -> Self {
        Self::all(unserved.into_iter().map(Self::NoMatch).collect())
    }

    fn all(mut problems: Vec<Self>) -> Self {
        match problems.len() {
            1 => problems.remove(0),
            _ => Self::Several(problems),
        }
    }
}

/// An object of a kind that the cluster does not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unserved {
    pub name: String,
    /// As its document has it; empty where that names none, and the kind may have none.
    pub namespace: String,
    pub kind: String,
    pub api_version: String,
}

impl Unserved {
    /// Which object it would be.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.api_version, &self.kind, &self.namespace, &self.name)
    }

    /// Its kind in any version.
    pub fn group_kind(&self) -> GroupKind {
        self.key().group_kind()
    }
}

/// What the documents of a manifest may take together once they are read, in bytes: twice what they may when a chart is rendered, so that
/// what is deployed can always be read.
const MAX_DECODED: usize = 96 << 20;
/// What may be kept of all documents of a manifest whose objects are only taken away, in bytes: some twenty thousand objects.
const MAX_OUTLINES: usize = 32 << 20;

/// The documents of `manifest`, comments-only ones left out and lists flattened.
///
/// ```
/// use objects::manifest::documents;
///
/// let manifest = "# nothing\n---\nkind: List\nitems: [{kind: Pod}, {kind: Service}]\n";
/// let kinds: Vec<_> = documents(manifest)?.iter().map(|one| one["kind"].clone()).collect();
/// assert_eq!(kinds, ["Pod", "Service"]);
/// # Ok::<(), objects::BuildError>(())
/// ```
///
/// # Errors
/// The first document that is no YAML, or no object.
pub fn documents(manifest: &str) -> Result<Vec<Value>, BuildError> {
    let texts = split(manifest).into_iter().enumerate();
    let mut budget = Budget::new(MAX_DECODED);
    flattened(texts.map(|(index, text)| {
        let read = golib::yaml::Decoder::new().decode(text.as_bytes(), &mut budget);
        read.map_err(|error| BuildError::Yaml {
            index,
            problem: error.to_string(),
        })
    }))
}

/// [`documents`] of a manifest whose documents were read before, in its order.
///
/// # Errors
/// The first document that is no object.
pub fn read_documents(read: Vec<Value>) -> Result<Vec<Value>, BuildError> {
    flattened(read.into_iter().map(Ok))
}

fn flattened(
    read: impl Iterator<Item = Result<Value, BuildError>>,
) -> Result<Vec<Value>, BuildError> {
    let mut documents = Vec::new();
    for (index, value) in read.enumerate() {
        match value? {
            Value::Null => {}
            Value::Object(map) if map.is_empty() => {}
            Value::Object(map) => flatten(map, &mut documents),
            _ => {
                return Err(BuildError::Shape {
                    index,
                    problem: "it is not an object",
                });
            }
        }
    }
    Ok(documents)
}

/// The texts of a manifest's documents: cuts at lines that begin with `---`; what follows on such a line is dropped.
///
/// ```
/// let texts = objects::manifest::split("kind: Pod\n--- # the next one\nkind: Service\n");
/// assert_eq!(texts, ["kind: Pod\n", "kind: Service\n"]);
/// ```
pub fn split(manifest: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in manifest.split_inclusive('\n') {
        if line.starts_with("---") {
            pieces.push(&manifest[start..at]);
            start = at + line.len();
        }
        at += line.len();
    }
    pieces.push(&manifest[start..]);
    pieces.retain(|piece| !piece.trim().is_empty());
    pieces
}

fn flatten(mut map: Map<String, Value>, out: &mut Vec<Value>) {
    let is_list = map
        .get("kind")
        .and_then(Value::as_str)
        .is_some_and(|kind| kind.ends_with("List"));
    match map.get_mut("items") {
        Some(Value::Array(items)) if is_list => out.append(items),
        _ => out.push(Value::Object(map)),
    }
}

/// Turns [`documents`] into objects. `namespace` is for objects that name none; `defined` are kinds
/// that will be served by the time the objects are written, besides those that the documents define.
///
/// ```
/// use objects::manifest::{build, documents};
/// use objects::Discovery;
///
/// // A cluster that serves nothing of the kind.
/// let documents = documents("apiVersion: shop.example/v1\nkind: Till\nmetadata: {name: one}\n")?;
/// let refused = build(documents, "shop", &Discovery::default(), &[]).unwrap_err();
/// assert!(refused.is_no_match());
/// # Ok::<(), objects::BuildError>(())
/// ```
///
/// # Errors
/// Every document that is broken, or whose kind is unknown, is told.
pub fn build(
    documents: Vec<Value>,
    namespace: &str,
    discovery: &Discovery,
    defined: &[Resource],
) -> Result<Vec<Object>, BuildError> {
    let defined = [defined, &defined_kinds(&documents)].concat();
    let (objects, problems) = build_lenient(documents, namespace, discovery, &defined);
    match problems.is_empty() {
        true => Ok(objects),
        false => Err(BuildError::all(problems)),
    }
}

/// Like [`build`], with what is of kinds that the cluster does not serve apart.
///
/// # Errors
/// Every document that is broken is told.
pub fn build_deployed(
    documents: Vec<Value>,
    namespace: &str,
    discovery: &Discovery,
) -> Result<(Vec<Object>, Vec<Unserved>), BuildError> {
    let defined = defined_kinds(&documents);
    let (objects, problems) = build_lenient(documents, namespace, discovery, &defined);
    let (mut unserved, mut broken) = (Vec::new(), Vec::new());
    for problem in problems {
        match problem {
            BuildError::NoMatch(object) => unserved.push(object),
            problem => broken.push(problem),
        }
    }
    match broken.is_empty() {
        true => Ok((objects, unserved)),
        false => Err(BuildError::all(broken)),
    }
}

/// The objects of an earlier revision, as far as the cluster lists their kinds.
#[derive(Debug, Default)]
#[must_use = "what is not listed may be there"]
pub struct StoredObjects {
    listed: Vec<Object>,
    unlisted: BTreeSet<GroupKind>,
}

impl StoredObjects {
    /// All of them; only where the cluster lists every kind of theirs.
    ///
    /// # Errors
    /// The kinds it does not list: that there are no objects of them is to be shown otherwise.
    pub fn all(self) -> Result<Vec<Object>, Self> {
        match self.unlisted.is_empty() {
            true => Ok(self.listed),
            false => Err(self),
        }
    }

    /// The kinds that the cluster does not list.
    pub fn unlisted(&self) -> &BTreeSet<GroupKind> {
        &self.unlisted
    }

    /// How many of them the cluster lists.
    pub fn len(&self) -> usize {
        self.listed.len()
    }

    /// Whether it lists none.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Adds those of another manifest.
    pub fn extend(&mut self, others: Self) {
        self.listed.extend(others.listed);
        self.unlisted.extend(others.unlisted);
    }

    /// Those that can be reached. Of the others nothing follows.
    pub fn listed(self) -> Vec<Object> {
        self.listed
    }
}

/// Turns the manifest of an earlier revision into objects. A version that the cluster does not serve is replaced by one it does.
///
/// # Errors
/// The manifest is no YAML.
pub fn build_stored(
    manifest: &str,
    namespace: &str,
    discovery: &Discovery,
) -> Result<StoredObjects, BuildError> {
    build_served(documents(manifest)?, namespace, discovery)
}

/// Like [`build_stored`], for a removal: of each object only its kind, its name and Helm's annotations are kept, so that a forged manifest,
/// however large, takes little memory.
///
/// # Errors
/// The manifest is no YAML, one document of it is larger than any that is deployed, or what is left of all is more than 32 MiB.
pub fn build_stored_names(
    manifest: &str,
    namespace: &str,
    discovery: &Discovery,
) -> Result<StoredObjects, BuildError> {
    let mut all = Vec::new();
    let mut kept = Budget::new(MAX_OUTLINES);
    for (index, piece) in split(manifest).into_iter().enumerate() {
        let problem = |error: &dyn std::fmt::Display| BuildError::Yaml {
            index,
            problem: error.to_string(),
        };
        let mut budget = Budget::new(MAX_DECODED);
        let read = golib::yaml::Decoder::new().decode(piece.as_bytes(), &mut budget);
        let read = read.map_err(|error| problem(&error));
        for document in flattened(std::iter::once(read))? {
            let outline = outline(&document);
            kept.add(&outline).map_err(|error| problem(&error))?;
            all.push(outline);
        }
    }
    build_served(all, namespace, discovery)
}

/// What tells which object a document is, whether helm is to keep it, and which kind it defines.
fn outline(document: &Value) -> Value {
    const PATHS: [&[&str]; 9] = [
        &["apiVersion"],
        &["kind"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "generateName"],
        &["spec", "group"],
        &["spec", "scope"],
        &["spec", "names", "kind"],
        &["spec", "names", "plural"],
    ];
    let mut outline = Value::Null;
    let is_definition = text(document, "/kind") == "CustomResourceDefinition";
    for path in PATHS {
        let found = path.iter().try_fold(document, |at, key| at.get(key));
        if let Some(found @ Value::String(_)) = found
            && (is_definition || path[0] != "spec")
        {
            let place = path
                .iter()
                .fold(&mut outline, |at, key| &mut at[key.to_owned()]);
            *place = found.clone();
        }
    }
    for (key, value) in annotations(document) {
        if key.starts_with("helm.sh/") && value.is_string() {
            outline["metadata"]["annotations"][key] = value.clone();
        }
    }
    if is_definition {
        let versions = document.pointer("/spec/versions").and_then(Value::as_array);
        let names = versions.into_iter().flatten().map(|one| text(one, "/name"));
        outline["spec"]["versions"] = names.map(|name| json!({ "name": name })).collect();
    }
    outline
}

fn annotations(document: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let annotations = document.pointer("/metadata/annotations");
    annotations.and_then(Value::as_object).into_iter().flatten()
}

fn build_served(
    mut documents: Vec<Value>,
    namespace: &str,
    discovery: &Discovery,
) -> Result<StoredObjects, BuildError> {
    for body in &mut documents {
        let (group, version) = group_version(text(body, "/apiVersion"));
        let kind = text(body, "/kind");
        if discovery.resource(group, version, kind).is_none()
            && let Some(served) = discovery.any_version(group, kind)
        {
            body["apiVersion"] = served.api_version().into();
        }
    }
    // What is served has its kind from the cluster: under an invented one nobody would know what it is.
    let mut defined = defined_kinds(&documents);
    defined.retain(|kind| !discovery.serves(&kind.group, &kind.plural));
    let (listed, problems) = build_lenient(documents, namespace, discovery, &defined);
    let unlisted = problems.iter().filter_map(|problem| match problem {
        BuildError::NoMatch(object) => Some(object.group_kind()),
        _ => None,
    });
    let unlisted = unlisted.collect();
    let mut listed = listed;
    listed.retain(may_exist);
    Ok(StoredObjects { listed, unlisted })
}

/// Whether an API server can have an object of this name: it refuses to be asked for any other, so that a forged record could hold up whoever goes by it.
fn may_exist(object: &Object) -> bool {
    let namespace = object.namespace.as_deref().unwrap_or_default();
    // `IsValidPathSegmentName` of apimachinery's `pkg/api/validation/path`.
    let is_segment = |name: &str| !matches!(name, "." | "..") && !name.contains(['/', '%']);
    is_segment(&object.name) && is_segment(namespace)
}

fn build_lenient(
    documents: Vec<Value>,
    namespace: &str,
    discovery: &Discovery,
    defined: &[Resource],
) -> (Vec<Object>, Vec<BuildError>) {
    let mut objects = Vec::with_capacity(documents.len());
    let mut problems = Vec::new();
    for (index, body) in documents.into_iter().enumerate() {
        match build_one(body, index, namespace, discovery, defined) {
            Ok(object) => objects.push(object),
            Err(problem) => problems.push(problem),
        }
    }
    (without_doubles(objects), problems)
}

/// Of what stands twice in a manifest the last one, as that is what applying both leaves.
fn without_doubles(mut objects: Vec<Object>) -> Vec<Object> {
    let mut known = HashSet::new();
    let is_last = |object: &Object| object.name.is_empty() || known.insert(object.key());
    let mut keep: Vec<bool> = objects.iter().rev().map(is_last).collect();
    objects.retain(|_| keep.pop().unwrap_or(true));
    objects
}

/// Whether one of `documents` is of a kind that neither `discovery` nor `defined` nor the documents
/// know, so that a fresh answer of the cluster may help.
pub fn has_unknown_kinds(documents: &[Value], discovery: &Discovery, defined: &[Resource]) -> bool {
    let own = defined_kinds(documents);
    documents.iter().any(|document| {
        let (group, version) = group_version(text(document, "/apiVersion"));
        let kind = text(document, "/kind");
        let mut defined = defined.iter().chain(&own);
        !kind.is_empty()
            && discovery.resource(group, version, kind).is_none()
            && !defined.any(|resource| resource.is(group, version, kind))
    })
}

fn build_one(
    mut body: Value,
    index: usize,
    default_namespace: &str,
    discovery: &Discovery,
    defined: &[Resource],
) -> Result<Object, BuildError> {
    let own = |pointer: &str| text(&body, pointer).to_owned();
    let (api_version, kind) = (own("/apiVersion"), own("/kind"));
    let (name, named_namespace) = (own("/metadata/name"), own("/metadata/namespace"));
    let generates = !text(&body, "/metadata/generateName").is_empty();
    let misshapen = |problem| Err(BuildError::Shape { index, problem });
    if api_version.is_empty() {
        return misshapen("apiVersion not set");
    }
    if kind.is_empty() {
        return misshapen("kind not set");
    }
    match (name.is_empty(), generates) {
        (false, true) => return Err(BuildError::TwoNames),
        (true, false) => return misshapen("resource name may not be empty"),
        _ => {}
    }
    let (group, version) = group_version(&api_version);
    let is_it = |resource: &&Resource| resource.is(group, version, &kind);
    let found = discovery.resource(group, version, &kind);
    let resource = found.or_else(|| defined.iter().find(is_it).cloned().map(Arc::new));
    let Some(resource) = resource else {
        return Err(BuildError::NoMatch(Unserved {
            name,
            namespace: named_namespace,
            kind,
            api_version,
        }));
    };
    let namespace = resource.namespaced.then(|| {
        if named_namespace.is_empty() {
            default_namespace.to_owned()
        } else {
            named_namespace
        }
    });
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        match &namespace {
            Some(namespace) => {
                metadata.insert("namespace".to_owned(), namespace.clone().into());
            }
            None => {
                metadata.remove("namespace");
            }
        }
    }
    Ok(Object {
        resource,
        namespace,
        name,
        body,
    })
}

/// The kinds that the CustomResourceDefinitions among `documents` define, of those that the API server takes: a group and a plural are part of the address
/// of its objects, and none of them is Kubernetes' own.
pub fn defined_kinds(documents: &[Value]) -> Vec<Resource> {
    let is_name = |text: &str| {
        let is_of_name =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        text.split('.')
            .all(|label| !label.is_empty() && label.bytes().all(is_of_name))
    };
    let mut kinds = Vec::new();
    for crd in documents {
        let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str);
        if text("/kind") != Some("CustomResourceDefinition") {
            continue;
        }
        let (Some(group), Some(kind), Some(plural)) = (
            text("/spec/group"),
            text("/spec/names/kind"),
            text("/spec/names/plural"),
        ) else {
            continue;
        };
        // `ValidateCustomResourceDefinitionSpec` of apiextensions-apiserver.
        let of_group = GroupKind {
            group: group.to_owned(),
            kind: kind.to_owned(),
        };
        if of_group.is_kubernetes_own() || ![group, plural].into_iter().all(is_name) {
            continue;
        }
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
        for version in versions.into_iter().flatten() {
            if let Some(version) = version.get("name").and_then(Value::as_str)
                && is_name(version)
            {
                kinds.push(Resource {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    kind: kind.to_owned(),
                    plural: plural.to_owned(),
                    namespaced: text("/spec/scope") == Some("Namespaced"),
                });
            }
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn core() -> Discovery {
        let mut discovery = Discovery::default();
        discovery.add_list(&json!({"groupVersion": "v1", "resources": [
            {"name": "configmaps", "kind": "ConfigMap", "namespaced": true},
            {"name": "namespaces", "kind": "Namespace"}]}));
        discovery.add_list(
            &json!({"groupVersion": "apiextensions.k8s.io/v1", "resources": [
            {"name": "customresourcedefinitions", "kind": "CustomResourceDefinition"}]}),
        );
        discovery
    }

    /// The API server answers 400 to whoever asks for one of them, each time.
    #[test]
    fn stored_objects_that_cannot_be_there_are_left_out() {
        let object = |name: &str, namespace: &str| {
            format!(
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: '{name}', namespace: '{namespace}'}}\n"
            )
        };
        let manifest = [
            object("a%b", "n"),
            object("..", "n"),
            object("a/b", "n"),
            object("a", "."),
            object("a:b", "n"),
        ]
        .concat();
        for build in [build_stored, build_stored_names] {
            let built = build(&manifest, "n", &core()).unwrap().listed();
            let names: Vec<_> = built.iter().map(|object| object.name.as_str()).collect();
            assert_eq!(names, ["a:b"]);
        }
    }

    /// Under another kind a definition, or what is of one, would not be known for what it is.
    #[test]
    fn a_kind_that_is_served_is_not_stored_under_another_name() {
        let mut discovery = core();
        discovery.add_list(&json!({"groupVersion": "example.com/v1", "resources": [
            {"name": "cars", "kind": "Car", "namespaced": true}]}));
        let stored = |kind: &str| {
            let manifest = format!(
                "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: x}}\n\
                 spec: {{group: example.com, scope: Namespaced, names: {{kind: {kind}, plural: cars}}, versions: [{{name: v2}}]}}\n\
                 ---\napiVersion: example.com/v2\nkind: {kind}\nmetadata: {{name: beetle}}\n"
            );
            let stored = build_stored_names(&manifest, "n", &discovery).unwrap();
            let kinds: Vec<_> = stored
                .listed()
                .iter()
                .map(|one| one.resource.kind.clone())
                .collect();
            kinds
        };
        assert_eq!(stored("Car"), ["CustomResourceDefinition", "Car"]);
        assert_eq!(stored("Truck"), ["CustomResourceDefinition"]);
    }

    /// What a manifest says of a kind is part of the address that its objects are asked for at.
    #[test]
    fn a_definition_that_no_api_server_takes_defines_no_kind() {
        let definition = |group: &str, plural: &str, version: &str| {
            json!({"kind": "CustomResourceDefinition", "spec": {"group": group, "scope": "Namespaced",
                "names": {"kind": "Car", "plural": plural}, "versions": [{"name": version}]}})
        };
        let is_defined = |group, plural, version| {
            !defined_kinds(&[definition(group, plural, version)]).is_empty()
        };
        assert!(is_defined("example.com", "cars", "v1"));
        for (group, plural, version) in [
            ("", "cars", "v1"),
            ("apps", "cars", "v1"),
            ("networking.k8s.io", "foos", "v1"),
            ("apiextensions.k8s.io", "customresourcedefinitions", "v1"),
            ("example.com", "namespaces/x/services/y:80/proxy", "v1"),
            ("example.com/v1", "cars", "v1"),
            ("example.com", "cars", "v1/namespaces"),
            ("example.com", "..", "v1"),
        ] {
            assert!(
                !is_defined(group, plural, version),
                "{group} {plural} {version}"
            );
        }
    }

    /// A template that is included twice, or two dependencies with the same object.
    #[test]
    fn an_object_defined_twice_counts_once() {
        let one = |value: &str| {
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{x: {value}}}\n"
            )
        };
        let nameless = "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a-}\n";
        let manifest = [&one("first"), nameless, &one("last"), nameless].join("---\n");
        let objects = build(documents(&manifest).unwrap(), "n", &core(), &[]).unwrap();
        let values: Vec<_> = objects
            .iter()
            .map(|one| text(&one.body, "/data/x"))
            .collect();
        assert_eq!(values, ["", "last", ""]);
    }

    /// What another agent deployed is removed however large it is.
    #[test]
    fn a_manifest_that_is_too_large_to_be_compared_can_be_removed() {
        let large = |name: &str| {
            let list = "- {a: 1}\n".repeat(90_000);
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\nx:\n{list}")
        };
        let manifest = [large("a"), large("b")].join("---\n");
        assert!(build_stored(&manifest, "n", &core()).is_err());
        let objects = build_stored_names(&manifest, "n", &core())
            .unwrap()
            .listed();
        let names: Vec<_> = objects.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(objects.iter().all(|one| one.body.get("x").is_none()));
    }

    /// A forged value in a field that a removal reads takes little memory.
    #[test]
    fn a_removal_keeps_only_the_fields_it_needs() {
        let list = "[{a: 1}]";
        let odd = format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: a, labels: {list}, x: {list}, \
             annotations: {{helm.sh/resource-policy: keep, y: z, helm.sh/hook: {list}}}}}\n\
             spec: {{group: g, scope: Namespaced, names: {{kind: K, plural: ks, shortNames: {list}}}, x: {list}, \
             versions: [{{name: v1, schema: {list}}}]}}\n"
        );
        let expected = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "a", "annotations": {"helm.sh/resource-policy": "keep"}},
            "spec": {"group": "g", "scope": "Namespaced", "names": {"kind": "K", "plural": "ks"}, "versions": [{"name": "v1"}]},
        });
        assert_eq!(outline(&documents(&odd).unwrap()[0]), expected);
        let tiny = |n| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{n}}}\n");
        let many = |count| (0..count).map(tiny).collect::<Vec<_>>().join("---\n");
        let built = build_stored_names(&many(5_000), "n", &core()).unwrap();
        assert_eq!(built.listed().len(), 5_000);
        let failed = build_stored_names(&many(100_000), "n", &core()).unwrap_err();
        assert!(failed.to_string().contains("more than 32 MiB"), "{failed}");
    }

    #[test]
    fn documents_take_so_much_together_and_not_each() {
        let document = format!("kind: A\nspec:\n{}", "- {a: 1}\n".repeat(10_000));
        let manifest = vec![document; 20].join("---\n");
        let failed = documents(&manifest).unwrap_err();
        assert!(failed.to_string().contains("more than 96 MiB"), "{failed}");
    }

    #[test]
    fn namespaces_are_defaulted_kept_or_dropped() {
        let manifest = "---\n# Source: a\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n\
            --- # next\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: other}\n\
            ---\napiVersion: v1\nkind: Namespace\nmetadata: {name: c, namespace: odd}\n---\n# nothing\n";
        let objects = build(documents(manifest).unwrap(), "here", &core(), &[]).unwrap();
        let places: Vec<_> = objects.iter().map(|o| o.namespace.as_deref()).collect();
        assert_eq!(places, [Some("here"), Some("other"), None]);
        assert_eq!(objects[2].body["metadata"].get("namespace"), None);
    }

    #[test]
    fn a_kind_may_come_with_its_definition() {
        let manifest = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
            metadata: {name: cars.x.io}\nspec: {group: x.io, scope: Namespaced, \
            names: {kind: Car, plural: cars}, versions: [{name: v1}]}\n\
            ---\napiVersion: x.io/v1\nkind: Car\nmetadata: {name: a}\n";
        let objects = build(documents(manifest).unwrap(), "here", &core(), &[]).unwrap();
        assert_eq!(objects[1].resource.plural, "cars");
    }

    #[test]
    fn unknown_kinds_are_reported_in_helms_words() {
        let cars = documents("apiVersion: x.io/v1\nkind: Car\nmetadata: {name: a}").unwrap();
        assert!(has_unknown_kinds(&cars, &core(), &[]));
        let error = build(cars, "n", &core(), &[]).unwrap_err();
        assert!(error.is_no_match());
        assert_eq!(
            error.to_string(),
            "resource mapping not found for name: \"a\" namespace: \"\" from \"\": no matches for \
             kind \"Car\" in version \"x.io/v1\"\nensure CRDs are installed first"
        );
    }

    #[test]
    fn stored_objects_of_an_undiscovered_kind_are_kept() {
        let car = "apiVersion: x.io/v1\nkind: Car\nmetadata: {name: a}\n";
        let map = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let stored = build_stored(&format!("{car}{map}"), "n", &core()).unwrap();
        let unlisted: Vec<_> = stored.unlisted().iter().map(ToString::to_string).collect();
        assert_eq!(unlisted, ["Car.x.io"]);
        assert_eq!(stored.all().unwrap_err().listed().len(), 1);
        assert!(build_stored(map, "n", &core()).unwrap().all().is_ok());
    }

    #[test]
    fn lists_are_flattened() {
        let manifest = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n";
        assert_eq!(
            build(documents(manifest).unwrap(), "n", &core(), &[])
                .unwrap()
                .len(),
            1
        );
    }
}
