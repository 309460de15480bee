//! The objects of a build in their order, each under a name of its own (`resmap/reswrangler.go`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use golib::regexp::Regexp;
use golib::yaml::node::Kind;

use crate::error::{Error, Result};
use crate::fns;
use crate::kustomization::Selector as Fields;
use crate::loader::Build;
use crate::origin::Origin;
use crate::resid::{Gvk, NOT_A_NAMESPACE, ResId};
use crate::resource::{Behavior, Resource};
use crate::selector::Selector;

/// Objects with different names.
#[derive(Default, Clone)]
pub(crate) struct ResMap {
    list: Vec<Resource>,
    /// The names of all, if they were asked for since the last change.
    ids: Option<HashSet<Key>>,
}

type Key = (String, String, String, String, String);

fn key(id: &ResId) -> Key {
    (
        id.gvk.group.clone(),
        id.gvk.version.clone(),
        id.gvk.kind.clone(),
        id.name.clone(),
        id.effective_namespace().to_owned(),
    )
}

impl ResMap {
    pub(crate) fn from_list(list: Vec<Resource>) -> Result<Self> {
        let mut map = Self::default();
        map.append_all(list)?;
        Ok(map)
    }

    /// Objects as they are, whatever their names.
    pub(crate) fn unchecked(list: Vec<Resource>) -> Self {
        Self { list, ids: None }
    }

    pub(crate) fn resources(&self) -> &[Resource] {
        &self.list
    }

    pub(crate) fn resources_mut(&mut self) -> &mut Vec<Resource> {
        self.ids = None;
        &mut self.list
    }

    pub(crate) fn into_list(self) -> Vec<Resource> {
        self.list
    }

    pub(crate) fn append(&mut self, resource: Resource) -> Result<()> {
        let ids = self
            .ids
            .get_or_insert_with(|| self.list.iter().map(|own| key(own.cur_id())).collect());
        if !ids.insert(key(resource.cur_id())) {
            return Err(Error::new(format!(
                "may not add resource with an already registered id: {}",
                resource.cur_id()
            )));
        }
        self.list.push(resource);
        Ok(())
    }

    pub(crate) fn append_all(&mut self, list: impl IntoIterator<Item = Resource>) -> Result<()> {
        list.into_iter()
            .try_for_each(|resource| self.append(resource))
    }

    pub(crate) fn drop_empties(&mut self) {
        if self.list.iter().any(Resource::is_nil_or_empty) {
            self.resources_mut()
                .retain(|resource| !resource.is_nil_or_empty());
        }
    }

    /// The places of the objects that have, or had, a name.
    pub(crate) fn matching_any_id(
        &self,
        build: &Build<'_>,
        matches: impl Fn(&ResId) -> bool,
    ) -> Result<Vec<usize>> {
        let mut found = Vec::new();
        for (at, resource) in self.list.iter().enumerate() {
            if resource.is_nil_or_empty() {
                continue;
            }
            if matches(resource.cur_id()) || resource.prev_ids(build)?.any(|id| matches(&id)) {
                found.push(at);
            }
        }
        Ok(found)
    }

    pub(crate) fn matching_current_id(&self, id: &ResId) -> Vec<usize> {
        let fits = |(_, resource): &(usize, &Resource)| resource.cur_id().equals(id);
        self.list
            .iter()
            .enumerate()
            .filter(fits)
            .map(|(at, _)| at)
            .collect()
    }

    /// The object that a patch is meant for.
    pub(crate) fn get_by_id(&self, id: &ResId, build: &Build<'_>) -> Result<usize> {
        let found = self.matching_any_id(build, |own| own.equals(id))?;
        let problem = match found.as_slice() {
            [one] => return Ok(*one),
            [] => "no matches for",
            _ => "multiple matches for",
        };
        Err(Error::new(format!(
            "{problem} Id {id}; failed to find unique target for patch {id}"
        )))
    }

    /// `AbsorbAll`: as generators want it, objects are added, replaced or merged into.
    pub(crate) fn absorb(&mut self, resources: Vec<Resource>, build: &Build<'_>) -> Result<()> {
        resources
            .into_iter()
            .try_for_each(|resource| self.absorb_one(resource, build))
    }

    fn absorb_one(&mut self, mut resource: Resource, build: &Build<'_>) -> Result<()> {
        build.work(self.list.len())?;
        let id = resource.cur_id().clone();
        let matches = self.matching_any_id(build, |own| own.equals(&id))?;
        let at = match matches.as_slice() {
            [] => {
                return match resource.behavior() {
                    Behavior::Merge | Behavior::Replace => Err(Error::new(format!(
                        "id {} does not exist; cannot merge or replace",
                        id.go_syntax()
                    ))),
                    Behavior::Create | Behavior::Unspecified => self.append(resource),
                };
            }
            [at] => *at,
            _ => {
                let texts: Vec<String> = matches.iter().map(|&at| self.json_text(at)).collect();
                return Err(Error::new(format!(
                    "found multiple objects [{}] that could accept merge of {id}",
                    texts.join(" ")
                )));
            }
        };
        let old = &self.list[at];
        match resource.behavior() {
            Behavior::Replace => resource.copy_metadata_from(old)?,
            Behavior::Merge => {
                let origin = old.origin()?;
                resource.copy_metadata_from(old)?;
                resource.merge_data_from(old, "data", build)?;
                resource.merge_data_from(old, "binaryData", build)?;
                if origin.is_some() {
                    resource.set_origin(origin.as_ref())?;
                }
            }
            behavior => {
                return Err(Error::new(format!(
                    "id {} exists; can not use behavior: '{}', behavior must be merge or replace",
                    id.go_syntax(),
                    behavior.text()
                )));
            }
        }
        let id = resource.cur_id().clone();
        let places = self.matching_current_id(&id);
        match places.as_slice() {
            [place] if *place == at => {
                self.resources_mut()[at] = resource;
                Ok(())
            }
            [_] => Err(Error::new("unexpected target index in replacement")),
            [] => Err(Error::new(format!(
                "cannot find resource with id {id} to replace"
            ))),
            _ => Err(Error::new(format!(
                "in Replace: id matched {} resources",
                places.len()
            ))),
        }
    }

    /// Whether a validator left all objects as they were before, but for the label by which validators sign
    /// (`ErrorIfNotEqualSets`).
    ///
    /// # Errors
    /// For the first object that changed, and for two of one name; neither is shown.
    pub(crate) fn expect_same(&self, before: &Self, build: &Build<'_>) -> Result<()> {
        const SIGNATURE: &str = "validated-by";
        if self.list.len() != before.list.len() {
            return Err(Error::new("lists have different number of entries"));
        }
        let mut by_key: HashMap<Key, Vec<&Resource>> = HashMap::new();
        for new in &self.list {
            by_key.entry(key(new.cur_id())).or_default().push(new);
        }
        for old in &before.list {
            let id = old.cur_id();
            let new = match by_key.get(&key(id)).map_or(&[][..], Vec::as_slice) {
                [new] => *new,
                [] => {
                    return Err(Error::new(format!(
                        "id in self missing from other; id: {id}"
                    )));
                }
                several => {
                    return Err(Error::new(format!(
                        "id in self matches {} in other; id: {id}",
                        several.len()
                    )));
                }
            };
            // What was before is a copy besides.
            build.work(4 + 8 * new.node().map_or(0, fns::walk_cost))?;
            let mut labels = new.labels();
            let is_same = if labels.remove(SIGNATURE).is_some() {
                let mut unsigned = new.clone();
                unsigned.set_labels(&labels)?;
                unsigned.node() == old.node()
            } else {
                new.node() == old.node()
            };
            if !is_same {
                return Err(Error::new("nodes unequal"));
            }
        }
        Ok(())
    }

    /// An object as messages show it.
    pub(crate) fn json_text(&self, at: usize) -> String {
        match self.list[at].to_value() {
            Ok(value) => golib::json::encode(&value),
            Err(error) => format!("<{error}>"),
        }
    }

    pub(crate) fn add_origin(&mut self, origin: Option<&Origin>) -> Result<()> {
        let Some(origin) = origin else { return Ok(()) };
        for resource in &mut self.list {
            if let Ok(None) = resource.origin() {
                resource.set_origin(Some(origin))?;
            }
        }
        Ok(())
    }

    pub(crate) fn add_transformation(&mut self, origin: &Origin, build: &Build<'_>) -> Result<()> {
        for resource in &mut self.list {
            if resource.origin()?.is_none() {
                resource.set_origin(Some(origin))?;
            } else {
                resource.add_transformation(origin, build)?;
            }
        }
        Ok(())
    }

    /// `Select`: the places of the objects that fit.
    pub(crate) fn select(&self, fields: &Fields, build: &Build<'_>) -> Result<Vec<usize>> {
        let regex = SelectorRegex::new(fields, build)?;
        let labels = Selector::parse(&fields.label_selector);
        let annotations = Selector::parse(&fields.annotation_selector);
        let mut found = Vec::new();
        for (at, resource) in self.list.iter().enumerate() {
            let current = resource.cur_id();
            let original = resource.org_id(build)?;
            regex.count(std::slice::from_ref(current), build)?;
            if !regex.matches_namespace(original.effective_namespace(), build)?
                && !regex.matches_namespace(current.effective_namespace(), build)?
                || !regex.matches_name(&original.name, build)?
                    && !regex.matches_name(&current.name, build)?
                || !regex.matches_gvk(&current.gvk, build)?
            {
                continue;
            }
            let fits = |selector: &Result<Selector>, matches: &dyn Fn(&Selector) -> bool| {
                let selector = selector.as_ref().map_err(Clone::clone)?;
                build.work(selector.cost())?;
                Ok::<_, Error>(matches(selector))
            };
            if fits(&labels, &|selector| resource.matches_labels(selector))?
                && fits(&annotations, &|selector| {
                    resource.matches_annotations(selector)
                })?
            {
                found.push(at);
            }
        }
        Ok(found)
    }

    /// Applies a patch to the objects of some places; what it deletes is gone.
    pub(crate) fn apply_patch(
        &mut self,
        selected: &[usize],
        patch: &Resource,
        build: &Build<'_>,
    ) -> Result<()> {
        build.work(self.list.len())?;
        // Go selects by name, which is the same but for objects that share one.
        let selected: HashSet<ResId> = selected
            .iter()
            .map(|&at| self.list[at].cur_id().clone())
            .collect();
        let mut list = Vec::with_capacity(self.list.len());
        for mut resource in std::mem::take(self.resources_mut()) {
            if selected.contains(resource.cur_id()) {
                let mut patch_copy = patch.clone();
                // Go ignores what comes of it.
                let _ = patch_copy.copy_metadata_from(patch);
                let _ = patch_copy.set_gvk(&resource.gvk());
                let _ = patch_copy.set_kind(patch.kind());
                resource.apply_patch(&patch_copy, build)?;
            }
            if !resource.is_nil_or_empty() {
                list.push(resource);
            }
        }
        self.append_all(list)
    }

    /// The places of what a resource may refer to.
    pub(crate) fn could_be_referenced_by(&self, at: usize) -> Result<Vec<usize>> {
        let referrer = &self.list[at];
        let id = referrer.cur_id();
        if id.is_cluster_scoped() {
            return Ok((0..self.list.len()).collect());
        }
        let namespaces = role_binding_namespaces(referrer)?;
        let fits = |(_, target): &(usize, &Resource)| {
            let target_id = target.cur_id();
            target_id.is_cluster_scoped()
                || target_id.is_namespace_equal(id)
                || namespaces.contains(target.namespace())
        };
        Ok(self
            .list
            .iter()
            .enumerate()
            .filter(fits)
            .map(|(at, _)| at)
            .collect())
    }

    /// Some places by namespace, those without one left out.
    pub(crate) fn by_namespace(
        &self,
        places: &[usize],
        original: bool,
        build: &Build<'_>,
    ) -> Result<BTreeMap<String, Vec<usize>>> {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for &at in places {
            let resource = &self.list[at];
            let id = if original {
                resource.org_id(build)?
            } else {
                resource.cur_id().clone()
            };
            let namespace = id.effective_namespace();
            if namespace != NOT_A_NAMESPACE {
                groups.entry(namespace.to_owned()).or_default().push(at);
            }
        }
        Ok(groups)
    }
}

fn role_binding_namespaces(resource: &Resource) -> Result<HashSet<String>> {
    let mut namespaces = HashSet::new();
    if resource.kind() != "RoleBinding" {
        return Ok(namespaces);
    }
    let subjects = resource
        .node()
        .and_then(|node| fns::field(node, "subjects"));
    let Some(subjects) = subjects.filter(|subjects| subjects.kind == Kind::Sequence) else {
        return Ok(namespaces);
    };
    for subject in &subjects.content {
        let kind = fns::field(subject, "kind").map_or("", |kind| &kind.value);
        if kind != "ServiceAccount" {
            continue;
        }
        if let Some(namespace) = fns::field(subject, "namespace") {
            if namespace.short_tag() != golib::yaml::node::tag::STR {
                return Err(Error::new(format!(
                    "Invalid Input: namespace is blank for resource {}\n",
                    golib::strconv::quote(resource.cur_id().to_string())
                )));
            }
            namespaces.insert(namespace.value.clone());
        }
    }
    Ok(namespaces)
}

/// The expressions of a selector.
pub(crate) struct SelectorRegex {
    group: Option<Rc<Regexp>>,
    version: Option<Rc<Regexp>>,
    kind: Option<Rc<Regexp>>,
    name: Option<Rc<Regexp>>,
    namespace: Option<Rc<Regexp>>,
    /// The length of all of them.
    length: usize,
}

fn anchored(pattern: &str, build: &Build<'_>) -> Result<Option<Rc<Regexp>>> {
    if pattern.is_empty() {
        return Ok(None);
    }
    build.compile(&format!("^(?:{pattern})$")).map(Some)
}

fn fits(regex: Option<&Rc<Regexp>>, text: &str, build: &Build<'_>) -> Result<bool> {
    regex.map_or(Ok(true), |regex| build.matches(regex, text))
}

impl SelectorRegex {
    pub(crate) fn new(fields: &Fields, build: &Build<'_>) -> Result<Self> {
        let anchored = |pattern: &str| anchored(pattern, build);
        Ok(Self {
            group: anchored(&fields.id.gvk.group)?,
            version: anchored(&fields.id.gvk.version)?,
            kind: anchored(&fields.id.gvk.kind)?,
            name: anchored(&fields.id.name)?,
            namespace: anchored(&fields.id.namespace)?,
            length: [
                &fields.id.gvk.group,
                &fields.id.gvk.version,
                &fields.id.gvk.kind,
                &fields.id.name,
                &fields.id.namespace,
            ]
            .map(String::len)
            .iter()
            .sum(),
        })
    }

    /// Counts what it takes to look at some names: at worst each byte of them is held against each of the expressions.
    pub(crate) fn count(&self, ids: &[ResId], build: &Build<'_>) -> Result<()> {
        let bytes: usize = ids
            .iter()
            .map(|id| id.name.len() + id.namespace.len() + id.gvk.kind.len())
            .sum();
        build.work(ids.len() / 8 + bytes.saturating_mul(self.length) / 4096)
    }

    pub(crate) fn matches_gvk(&self, gvk: &Gvk, build: &Build<'_>) -> Result<bool> {
        Ok(fits(self.group.as_ref(), &gvk.group, build)?
            && fits(self.version.as_ref(), &gvk.version, build)?
            && fits(self.kind.as_ref(), &gvk.kind, build)?)
    }

    pub(crate) fn matches_name(&self, name: &str, build: &Build<'_>) -> Result<bool> {
        fits(self.name.as_ref(), name, build)
    }

    pub(crate) fn matches_namespace(&self, namespace: &str, build: &Build<'_>) -> Result<bool> {
        fits(self.namespace.as_ref(), namespace, build)
    }
}
