//! One object of a build. What kustomize remembers about it lies in its annotations, as in the original, since patches can
//! reach it there.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use golib::budget::Budget;
use golib::yaml::node::Node;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::fns::{self, Texts, field, is_nil_or_empty, is_null};
use crate::loader::Build;
use crate::merge2;
use crate::openapi::OpenApi;
use crate::origin::Origin;
use crate::resid::{Gvk, ResId, parse_group_version};

pub(crate) const PREVIOUS_KINDS: &str = "internal.config.kubernetes.io/previousKinds";
pub(crate) const PREVIOUS_NAMES: &str = "internal.config.kubernetes.io/previousNames";
pub(crate) const PREVIOUS_NAMESPACES: &str = "internal.config.kubernetes.io/previousNamespaces";
pub(crate) const PREFIXES: &str = "internal.config.kubernetes.io/prefixes";
pub(crate) const SUFFIXES: &str = "internal.config.kubernetes.io/suffixes";
pub(crate) const ALLOW_NAME_CHANGE: &str = "internal.config.kubernetes.io/allowNameChange";
pub(crate) const ALLOW_KIND_CHANGE: &str = "internal.config.kubernetes.io/allowKindChange";
pub(crate) const REF_BY: &str = "internal.config.kubernetes.io/refBy";
pub(crate) const GENERATOR_BEHAVIOR: &str = "internal.config.kubernetes.io/generatorBehavior";
pub(crate) const NEEDS_HASH: &str = "internal.config.kubernetes.io/needsHashSuffix";
pub(crate) const ORIGIN: &str = "config.kubernetes.io/origin";
pub(crate) const TRANSFORMATIONS: &str = "alpha.config.kubernetes.io/transformations";
const ENABLED: &str = "enabled";

/// Annotations that are taken off before the output.
#[rustfmt::skip]
const BUILD_ANNOTATIONS: [&str; 19] = [
    PREVIOUS_KINDS, PREVIOUS_NAMES, PREFIXES, SUFFIXES, PREVIOUS_NAMESPACES, ALLOW_NAME_CHANGE, ALLOW_KIND_CHANGE,
    REF_BY, GENERATOR_BEHAVIOR, NEEDS_HASH, "internal.config.kubernetes.io/path", "internal.config.kubernetes.io/index",
    "internal.config.kubernetes.io/seqindent", "internal.config.kubernetes.io/id",
    "internal.config.kubernetes.io/annotations-migration-resource-id", "config.kubernetes.io/path",
    "config.kubernetes.io/index", "config.k8s.io/id", "internal.config.kubernetes.io/helm-generated",
];

/// A problem of an object's text, in which lines are counted.
fn as_written(node: &Node, error: golib::yaml::node::Error) -> Error {
    let again = golib::yaml::node::parse(node.to_yaml().as_bytes(), &mut Budget::default());
    match again.map(|node| node.map(|node| node.decode())) {
        Ok(Some(Err(again))) => again.into(),
        _ => error.into(),
    }
}

/// An object and the variables that are taken from it.
#[derive(Clone)]
pub(crate) struct Resource {
    /// The object; `None` once it was deleted.
    node: Option<Node>,
    pub(crate) variables: Vec<String>,
    /// Annotations of each group of nodes that Go has as one ([`fns::share`]).
    shared: Vec<String>,
    api: Rc<OpenApi>,
    id: OnceCell<ResId>,
}

/// How a generator treats an object that exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behavior {
    Unspecified,
    Create,
    Replace,
    Merge,
}

impl Behavior {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "replace" => Self::Replace,
            "merge" => Self::Merge,
            "create" => Self::Create,
            _ => Self::Unspecified,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Merge => "merge",
        }
    }
}

impl Resource {
    pub(crate) fn new(node: Node, api: &Rc<OpenApi>) -> Self {
        Self {
            node: Some(node),
            variables: Vec::new(),
            shared: Vec::new(),
            api: Rc::clone(api),
            id: OnceCell::new(),
        }
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    /// The object to be changed; what was known of its name is forgotten.
    pub(crate) fn node_mut(&mut self) -> Option<&mut Node> {
        self.id.take();
        self.node.as_mut()
    }

    /// As [`Self::node_mut`], for changes below the annotations only.
    fn node_mut_keeping_id(&mut self) -> Option<&mut Node> {
        self.node.as_mut()
    }

    /// A value for several fields, which will change together.
    pub(crate) fn shared(&mut self, value: Node) -> Node {
        let line = fns::share(self.shared.len());
        self.shared.push(value.value.clone());
        Node { line, ..value }
    }

    /// Gives the nodes of each group the value that one of them was given.
    pub(crate) fn settle_shared(&mut self, build: &Build<'_>) -> Result<()> {
        fn each(node: &mut Node, visit: &mut impl FnMut(&mut Node, usize)) {
            if fns::is_shared(node) {
                let group = usize::try_from(node.line - fns::share(0)).unwrap_or(usize::MAX);
                visit(node, group);
            }
            node.content.iter_mut().for_each(|node| each(node, visit));
        }
        let Some(node) = self.node.as_mut().filter(|_| !self.shared.is_empty()) else {
            return Ok(());
        };
        build.work(fns::walk_cost(node))?;
        let mut changed = BTreeMap::new();
        each(node, &mut |node, group| {
            if self.shared.get(group).is_some_and(|own| *own != node.value)
                && node.kind == golib::yaml::node::Kind::Scalar
            {
                changed.insert(group, (node.value.clone(), node.tag.clone()));
            }
        });
        if changed.is_empty() {
            return Ok(());
        }
        each(node, &mut |node, group| {
            if let Some((value, tag)) = changed.get(&group) {
                node.value.clone_from(value);
                node.tag.clone_from(tag);
            }
        });
        for (group, (value, _)) in changed {
            self.shared[group] = value;
        }
        Ok(())
    }

    pub(crate) fn is_nil_or_empty(&self) -> bool {
        self.node.as_ref().is_none_or(is_nil_or_empty)
    }

    fn text(&self, name: &str) -> &str {
        let value = self.node.as_ref().and_then(|node| field(node, name));
        value.map_or("", |value| &value.value)
    }

    pub(crate) fn kind(&self) -> &str {
        self.text("kind")
    }

    pub(crate) fn api_version(&self) -> &str {
        self.text("apiVersion")
    }

    pub(crate) fn name(&self) -> &str {
        self.node
            .as_ref()
            .map_or("", |node| metadata_text(node, "name"))
    }

    pub(crate) fn namespace(&self) -> &str {
        self.node
            .as_ref()
            .map_or("", |node| metadata_text(node, "namespace"))
    }

    pub(crate) fn annotations(&self) -> Texts {
        self.node
            .as_ref()
            .map_or_else(Texts::new, |node| metadata_map(node, "annotations"))
    }

    pub(crate) fn labels(&self) -> Texts {
        self.node
            .as_ref()
            .map_or_else(Texts::new, |node| metadata_map(node, "labels"))
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        let annotations = field(metadata(self.node.as_ref()?)?, "annotations")?;
        field(annotations, name).map(|value| &*value.value)
    }

    pub(crate) fn set_annotations(&mut self, texts: &Texts) -> Result<()> {
        match self.node_mut_keeping_id() {
            Some(node) => set_metadata_map(node, "annotations", texts),
            None => Ok(()),
        }
    }

    pub(crate) fn set_labels(&mut self, texts: &Texts) -> Result<()> {
        match self.node_mut_keeping_id() {
            Some(node) => set_metadata_map(node, "labels", texts),
            None => Ok(()),
        }
    }

    pub(crate) fn set_name(&mut self, name: &str) -> Result<()> {
        self.set_in_metadata("name", name)
    }

    fn set_in_metadata(&mut self, field: &str, text: &str) -> Result<()> {
        let Some(node) = self.node_mut() else {
            return Ok(());
        };
        match fns::lookup_create(node, &["metadata"], golib::yaml::node::Kind::Mapping)? {
            Some(metadata) => fns::set_field(metadata, field, Some(Node::scalar(text))),
            None => Ok(()),
        }
    }

    pub(crate) fn set_namespace(&mut self, namespace: &str) -> Result<()> {
        if !namespace.is_empty() {
            return self.set_in_metadata("namespace", namespace);
        }
        let Some(node) = self.node_mut() else {
            return Ok(());
        };
        match fns::lookup_mut(node, &["metadata"])? {
            Some(metadata) => fns::clear(metadata, "namespace"),
            None => Ok(()),
        }
    }

    pub(crate) fn set_kind(&mut self, kind: &str) -> Result<()> {
        match self.node_mut() {
            Some(node) => fns::set_field(node, "kind", Some(Node::scalar(kind))),
            None => Ok(()),
        }
    }

    pub(crate) fn set_gvk(&mut self, gvk: &Gvk) -> Result<()> {
        self.set_kind(&gvk.kind)?;
        let api_version = gvk.api_version();
        match self.node_mut() {
            Some(node) => fns::set_field(node, "apiVersion", Some(Node::scalar(api_version))),
            None => Ok(()),
        }
    }

    pub(crate) fn gvk(&self) -> Gvk {
        self.cur_id().gvk.clone()
    }

    /// The name it has now.
    pub(crate) fn cur_id(&self) -> &ResId {
        self.id.get_or_init(|| ResId {
            gvk: Gvk::of_type(self.api_version(), self.kind(), &self.api),
            name: self.name().to_owned(),
            namespace: self.namespace().to_owned(),
        })
    }

    /// The names it had.
    pub(crate) fn prev_ids(
        &self,
        build: &Build<'_>,
    ) -> Result<impl Iterator<Item = ResId> + use<'_>> {
        let ids = self.node.as_ref().map(|node| prev_ids(node, build));
        Ok(ids.transpose()?.into_iter().flatten())
    }

    /// What the names it had take, in bytes.
    pub(crate) fn prev_ids_weight(&self) -> usize {
        self.node.as_ref().map_or(0, prev_ids_weight)
    }

    /// The name it was read with.
    pub(crate) fn org_id(&self, build: &Build<'_>) -> Result<ResId> {
        let first = self.prev_ids(build)?.next();
        Ok(first.unwrap_or_else(|| self.cur_id().clone()))
    }

    pub(crate) fn store_previous_id(&mut self, build: &Build<'_>) -> Result<()> {
        let id = self.cur_id().clone();
        self.append_csv(PREVIOUS_NAMES, &id.name, build)?;
        self.append_csv(PREVIOUS_NAMESPACES, id.effective_namespace(), build)?;
        self.append_csv(PREVIOUS_KINDS, &id.gvk.kind, build)
    }

    pub(crate) fn append_csv(&mut self, name: &str, value: &str, build: &Build<'_>) -> Result<()> {
        if value.is_empty() {
            return Ok(());
        }
        build.grow_by(value.len() + 1)?;
        // The annotation is read and written again each time.
        build.work(self.annotation(name).map_or(0, str::len) / 8)?;
        let text = match self.annotation(name) {
            Some(old) => format!("{old},{value}"),
            None => value.to_owned(),
        };
        match self.node_mut_keeping_id() {
            Some(node) => fns::set_annotation(node, name, &text),
            None => Ok(()),
        }
    }

    /// `AppendRefBy`, of all at once.
    pub(crate) fn note_referrers(&mut self, ids: &[Rc<str>]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let old = self.annotation(REF_BY).into_iter();
        let all: Vec<&str> = old.chain(ids.iter().map(|id| &**id)).collect();
        let text = all.join(",");
        match self.node_mut_keeping_id() {
            Some(node) => fns::set_annotation(node, REF_BY, &text),
            None => Ok(()),
        }
    }

    fn csv(&self, name: &str) -> Vec<String> {
        self.annotation(name)
            .map(|text| text.split(',').map(str::to_owned).collect())
            .unwrap_or_default()
    }

    /// Whether prefixes and suffixes were added to both alike, the last ones first.
    pub(crate) fn has_affixes_of(&self, other: &Self, allow_empty: bool) -> bool {
        let same = |name: &str| {
            let (one, other) = (self.csv(name), other.csv(name));
            allow_empty && (one.is_empty() || other.is_empty()) || same_ending(&one, &other)
        };
        same(PREFIXES) && same(SUFFIXES)
    }

    fn is_enabled(&self, name: &str) -> bool {
        self.annotation(name) == Some(ENABLED)
    }

    pub(crate) fn enable(&mut self, name: &str) -> Result<()> {
        let mut annotations = self.annotations();
        annotations.insert(name.to_owned(), ENABLED.to_owned());
        self.set_annotations(&annotations)
    }

    pub(crate) fn needs_hash(&self) -> bool {
        self.is_enabled(NEEDS_HASH)
    }

    pub(crate) fn behavior(&self) -> Behavior {
        Behavior::parse(self.annotation(GENERATOR_BEHAVIOR).unwrap_or(""))
    }

    pub(crate) fn set_behavior(&mut self, behavior: Behavior) -> Result<()> {
        let mut annotations = self.annotations();
        annotations.insert(GENERATOR_BEHAVIOR.into(), behavior.text().into());
        self.set_annotations(&annotations)
    }

    pub(crate) fn remove_build_annotations(&mut self) -> Result<()> {
        let mut annotations = self.annotations();
        if annotations.is_empty() {
            return Ok(());
        }
        for name in BUILD_ANNOTATIONS {
            annotations.remove(name);
        }
        self.set_annotations(&annotations)
    }

    pub(crate) fn origin(&self) -> Result<Option<Origin>> {
        self.annotation(ORIGIN).map(Origin::parse).transpose()
    }

    pub(crate) fn set_origin(&mut self, origin: Option<&Origin>) -> Result<()> {
        let mut annotations = self.annotations();
        match origin {
            Some(origin) => annotations.insert(ORIGIN.into(), origin.to_yaml()),
            None => annotations.remove(ORIGIN),
        };
        self.set_annotations(&annotations)
    }

    pub(crate) fn add_transformation(&mut self, origin: &Origin, build: &Build<'_>) -> Result<()> {
        let mut annotations = self.annotations();
        let old = annotations.get(TRANSFORMATIONS).map(String::as_str);
        // The list is read and written again each time.
        build.work(1 + old.map_or(0, str::len) / 2)?;
        let old_length = old.map_or(0, str::len);
        let text = Origin::append_to_list(old, origin)?;
        build.grow_by(text.len().saturating_sub(old_length))?;
        annotations.insert(TRANSFORMATIONS.into(), text);
        self.set_annotations(&annotations)
    }

    pub(crate) fn clear_transformations(&mut self) -> Result<()> {
        let mut annotations = self.annotations();
        annotations.remove(TRANSFORMATIONS);
        self.set_annotations(&annotations)
    }

    /// `CopyMergeMetaDataFieldsFrom`: labels, annotations, name and namespace of another, under its own.
    pub(crate) fn copy_metadata_from(&mut self, other: &Self) -> Result<()> {
        let mut labels = other.labels();
        labels.extend(self.labels());
        self.set_labels(&labels)
            .map_err(|error| error.reworded_as("copyMerge cannot set labels"))?;
        let own = self.annotations();
        let needs_hash = own.contains_key(NEEDS_HASH);
        let others = other.annotations();
        let mut merged = others.clone();
        merged.extend(own);
        for name in BUILD_ANNOTATIONS {
            match others.get(name) {
                Some(value) => merged.insert(name.to_owned(), value.clone()),
                None => merged.remove(name),
            };
        }
        if !needs_hash {
            merged.remove(NEEDS_HASH);
        }
        self.set_annotations(&merged)?;
        self.set_name(other.name())?;
        self.set_namespace(other.namespace())?;
        self.variables.clone_from(&other.variables);
        Ok(())
    }

    /// Merges the entries of `data` or `binaryData` of another under its own.
    pub(crate) fn merge_data_from(
        &mut self,
        other: &Self,
        name: &'static str,
        build: &Build<'_>,
    ) -> Result<()> {
        for resource in [&*self, other] {
            if let Some(data) = resource.node.as_ref().and_then(|node| field(node, name)) {
                build.grow(data)?;
            }
        }
        let map = |resource: &Self| -> Texts {
            let data = resource.node.as_ref().and_then(|node| field(node, name));
            let entries = data.into_iter().flat_map(Node::entries);
            entries
                .map(|(key, value)| (key.value.clone(), fns::value_of(value).to_owned()))
                .collect()
        };
        let mut data = map(other);
        data.extend(map(self));
        let Some(node) = self.node_mut_keeping_id() else {
            return Ok(());
        };
        fns::clear(node, name)?;
        crate::datamap::load_config_map_data(node, &data, (name != "data").then_some(name))
    }

    /// Applies a strategic merge patch; afterwards the object may be gone ([`Self::is_nil_or_empty`]).
    pub(crate) fn apply_patch(&mut self, patch: &Self, build: &Build<'_>) -> Result<()> {
        let (name, namespace, kind) = (
            self.name().to_owned(),
            self.namespace().to_owned(),
            self.kind().to_owned(),
        );
        let may_rename = patch.is_enabled(ALLOW_NAME_CHANGE);
        let may_change_kind = patch.is_enabled(ALLOW_KIND_CHANGE);
        if may_rename || may_change_kind {
            self.store_previous_id(build)?;
        }
        let api = Rc::clone(&self.api);
        if let Some(patch) = &patch.node {
            build.grow(patch)?;
        }
        if let (Some(patch), Some(node)) = (patch.node.clone(), self.node_mut())
            && !merge2::merge(patch, node, &api, build)?
        {
            self.node = None;
        }
        if self.is_nil_or_empty() {
            return Ok(());
        }
        if !may_change_kind {
            // Go ignores what comes of these three.
            let _ = self.set_kind(&kind);
        }
        if !may_rename {
            let _ = self.set_name(&name);
        }
        let _ = self.set_namespace(&namespace);
        Ok(())
    }

    pub(crate) fn set_node(&mut self, node: Node) {
        self.node = Some(node);
        self.id.take();
    }

    /// The object as its output has it.
    pub(crate) fn to_value(&self) -> Result<Value> {
        match &self.node {
            Some(node) => node
                .decode_written()
                .map_err(|error| as_written(node, error)),
            None => Ok(Value::Null),
        }
    }

    /// The object as it is held, not as it would be read again.
    pub(crate) fn to_data(&self) -> Result<Value> {
        match &self.node {
            Some(node) => Ok(node.decode()?),
            None => Ok(Value::Null),
        }
    }

    pub(crate) fn to_yaml(&self) -> Result<String> {
        Ok(golib::yaml::encode(&self.to_value()?)?)
    }

    /// `GetValidatedMetadata`.
    pub(crate) fn validate(node: &Node) -> Result<()> {
        let meta = Meta::of(node)?;
        if meta.kind.is_empty() {
            return Err(Error::new(format!(
                "missing kind in object {}",
                meta.go_format()
            )));
        }
        if !meta.kind.ends_with("List") && meta.name.is_empty() {
            return Err(Error::new(format!(
                "missing metadata.name in object {}",
                meta.go_format()
            )));
        }
        Ok(())
    }

    pub(crate) fn matches_labels(&self, selector: &crate::selector::Selector) -> bool {
        selector.matches(&self.labels())
    }

    pub(crate) fn matches_annotations(&self, selector: &crate::selector::Selector) -> bool {
        selector.matches(&self.annotations())
    }
}

impl Error {
    fn reworded_as(self, prefix: &str) -> Self {
        let text = format!("{prefix} - {self}");
        self.reworded(text)
    }
}

fn same_ending(one: &[String], other: &[String]) -> bool {
    let (short, long) = if one.len() > other.len() {
        (other, one)
    } else {
        (one, other)
    };
    if short.is_empty() {
        return long.is_empty();
    }
    long.ends_with(short)
}

/// What `GetMeta` reads.
#[derive(Default)]
pub(crate) struct Meta {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) labels: Texts,
    pub(crate) annotations: Texts,
}

impl Meta {
    /// # Errors
    /// When there is none of it.
    pub(crate) fn of(node: &Node) -> Result<Self> {
        if is_null(node) {
            return Ok(Self::default());
        }
        let filled = |node: &Node, name: &str| {
            field(node, name)
                .filter(|value| !is_nil_or_empty(value))
                .cloned()
        };
        let mut meta = Self::default();
        let mut is_missing = true;
        let mut text = |value: Option<Node>| match value {
            Some(value) => {
                is_missing = false;
                value.value
            }
            None => String::new(),
        };
        meta.api_version = text(filled(node, "apiVersion"));
        meta.kind = text(filled(node, "kind"));
        if let Some(metadata) = filled(node, "metadata") {
            meta.name = text(filled(&metadata, "name"));
            meta.namespace = text(filled(&metadata, "namespace"));
            let mut map = |name| -> Texts {
                let Some(map) = filled(&metadata, name) else {
                    return Texts::new();
                };
                is_missing = false;
                map.entries()
                    .map(|(key, value)| {
                        (
                            fns::value_of(key).to_owned(),
                            fns::value_of(value).to_owned(),
                        )
                    })
                    .collect()
            };
            meta.labels = map("labels");
            meta.annotations = map("annotations");
        }
        if is_missing {
            return Err(Error::new("missing Resource metadata"));
        }
        Ok(meta)
    }

    /// As Go prints it with `%v`.
    fn go_format(&self) -> String {
        let map = |texts: &Texts| {
            let entries: Vec<_> = texts
                .iter()
                .map(|(key, value)| format!("{key}:{value}"))
                .collect();
            format!("map[{}]", entries.join(" "))
        };
        format!(
            "{{{{{} {}}} {{{{{} {}}} {} {}}}}}",
            self.api_version,
            self.kind,
            self.name,
            self.namespace,
            map(&self.labels),
            map(&self.annotations)
        )
    }
}

fn metadata(node: &Node) -> Option<&Node> {
    if is_null(node) {
        return None;
    }
    field(node, "metadata").filter(|value| !is_nil_or_empty(value))
}

fn metadata_text<'a>(node: &'a Node, name: &str) -> &'a str {
    metadata(node)
        .and_then(|metadata| field(metadata, name))
        .filter(|value| !is_nil_or_empty(value))
        .map_or("", |value| &value.value)
}

fn metadata_map(node: &Node, name: &str) -> Texts {
    let entries = metadata(node).and_then(|metadata| field(metadata, name));
    entries
        .into_iter()
        .flat_map(Node::entries)
        .map(|(key, value)| (key.value.clone(), value.value.clone()))
        .collect()
}

fn set_metadata_map(node: &mut Node, name: &str, texts: &Texts) -> Result<()> {
    use golib::yaml::node::Kind;
    let Some(metadata) = fns::lookup_create(node, &["metadata"], Kind::Mapping)? else {
        return Ok(());
    };
    fns::clear(metadata, name)?;
    if texts.is_empty() {
        return Ok(());
    }
    let Some(map) = fns::lookup_create(metadata, &[name], Kind::Mapping)? else {
        return Ok(());
    };
    for (key, value) in texts {
        let mut value = Node::string(value);
        fns::quote_if_needed(&mut value);
        map.content.extend([Node::scalar(key), value]);
    }
    Ok(())
}

/// The names an object had, as its annotations say them. Anybody may write those, and each comma is a name.
struct PreviousIds<'a> {
    names: &'a str,
    namespaces: &'a str,
    kinds: &'a str,
    api_version: &'a str,
}

impl<'a> PreviousIds<'a> {
    fn of(node: &'a Node) -> Option<Self> {
        let annotations = metadata(node).and_then(|metadata| field(metadata, "annotations"))?;
        let text = |name| field(annotations, name).map(|value| &*value.value);
        Some(Self {
            names: text(PREVIOUS_NAMES)?,
            namespaces: text(PREVIOUS_NAMESPACES).unwrap_or(""),
            kinds: text(PREVIOUS_KINDS).unwrap_or(""),
            api_version: field(node, "apiVersion").map_or("", |value| &value.value),
        })
    }

    fn weight(&self) -> usize {
        let one = size_of::<ResId>() + self.api_version.len();
        let texts = self.names.len() + self.namespaces.len() + self.kinds.len();
        commas(self.names)
            .saturating_add(1)
            .saturating_mul(one)
            .saturating_add(texts)
    }

    fn ids(self) -> Result<impl Iterator<Item = ResId> + use<'a>> {
        let count = commas(self.names);
        if count != commas(self.namespaces) || count != commas(self.kinds) {
            return Err(Error::new(
                "number of previous names, number of previous namespaces, number of previous kinds not equal",
            ));
        }
        let (group, version) = parse_group_version(self.api_version);
        let (names, namespaces) = (self.names.split(','), self.namespaces.split(','));
        let ids = names.zip(namespaces).zip(self.kinds.split(','));
        Ok(ids.map(|((name, namespace), kind)| ResId {
            gvk: Gvk {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: kind.to_owned(),
                is_cluster_scoped: false,
            },
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        }))
    }
}

fn commas(text: &str) -> usize {
    text.matches(',').count()
}

/// `utils.PrevIds`, one at a time: whoever keeps them all counts their [weight](prev_ids_weight) first. To look at them is
/// counted here, for many may ask the same object.
pub(crate) fn prev_ids<'a>(
    node: &'a Node,
    build: &Build<'_>,
) -> Result<impl Iterator<Item = ResId> + use<'a>> {
    let previous = PreviousIds::of(node);
    if let Some(previous) = &previous {
        build.work(previous.weight() / 1024)?;
    }
    let ids = previous.map(PreviousIds::ids).transpose()?;
    Ok(ids.into_iter().flatten())
}

/// What [`prev_ids`] are together, in bytes.
pub(crate) fn prev_ids_weight(node: &Node) -> usize {
    PreviousIds::of(node).map_or(0, |previous| previous.weight())
}

/// `utils.MakeResIds`: the name it has, and those it had.
pub(crate) fn all_ids(node: &Node, build: &Build<'_>) -> Result<Vec<ResId>> {
    let former = prev_ids(node, build)?;
    build.expect_room(prev_ids_weight(node))?;
    Ok(std::iter::once(id_of(node)).chain(former).collect())
}

/// The name of an object, in messages too (`resid.FromRNode`).
pub(crate) fn id_of(node: &Node) -> ResId {
    let text = |name| field(node, name).map_or("", |value| &*value.value);
    let (group, version) = parse_group_version(text("apiVersion"));
    ResId {
        gvk: Gvk {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text("kind").to_owned(),
            is_cluster_scoped: false,
        },
        name: metadata_text(node, "name").to_owned(),
        namespace: metadata_text(node, "namespace").to_owned(),
    }
}

/// The annotations that patches must not take away.
pub(crate) fn internal_annotations(node: &Node) -> Texts {
    let annotations = Meta::of(node)
        .map(|meta| meta.annotations)
        .unwrap_or_default();
    annotations
        .into_iter()
        .filter(|(key, _)| {
            key.starts_with("internal.config.kubernetes.io/")
                || matches!(
                    &**key,
                    "config.kubernetes.io/path" | "config.kubernetes.io/index" | "config.k8s.io/id"
                )
        })
        .collect()
}
