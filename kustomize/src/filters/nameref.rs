//! Fields that hold the name of another object, which may have changed (`filters/nameref`,
//! `accumulator/namereferencetransformer.go`).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use golib::yaml::node::{Kind, Node};

use crate::config::NameBackReferences;
use crate::error::{Context as _, Error, Result};
use crate::filters::fieldspec;
use crate::fns::{self, field, is_null};
use crate::loader::Build;
use crate::resid::{Gvk, ResId};
use crate::resmap::ResMap;
use crate::resource::Resource;

/// Updates all references.
pub(crate) fn transform(
    map: &mut ResMap,
    references: &[NameBackReferences],
    build: &Build<'_>,
) -> Result<()> {
    let known = Known::of(map, build)?;
    let referrals = Referrals::new(map.resources().len());
    for at in 0..map.resources().len() {
        let original = map.resources()[at].org_id(build)?;
        let mut filters = Vec::new();
        for reference in references {
            for spec in &*reference.referrers {
                if original.gvk.is_selected(&spec.gvk) {
                    filters.push((&reference.gvk, &*spec.path));
                }
            }
        }
        build.work(20 + filters.len())?;
        if filters.is_empty() {
            continue;
        }
        // Go compares two readings of the field, of which one takes null for its text.
        let version = map.resources()[at]
            .node()
            .and_then(|node| field(node, "apiVersion"))
            .filter(|version| is_null(version) && !version.value.is_empty());
        if let Some(version) = version {
            return Err(Error::new(format!(
                "node-referrerOriginal 'APIVersion' mismatch '' != '{}'",
                version.value
            )));
        }
        let candidates = Candidates::of(map, at, &known)?;
        let Some(mut node) = map.resources()[at].node().cloned() else {
            continue;
        };
        let mut referrer_id: Rc<str> = map.resources()[at].cur_id().to_string().into();
        for (target, path) in filters {
            let mut is_changed = false;
            let filter = Filter {
                map,
                known: &known,
                candidates: &candidates,
                referrer: at,
                referrer_id: &referrer_id,
                referrals: &referrals,
                target,
                path,
                build,
                ambiguous: Cell::default(),
            };
            let applied = fieldspec::apply_anyway(path, false, None, &mut node, &mut |node| {
                filter.set(node, &mut is_changed)
            });
            if let Err(error) = applied {
                let found = filter.ambiguous.take();
                let id = map.resources()[at].cur_id().to_string();
                let error = match found {
                    None => error,
                    // The referrer is shown with what was updated before.
                    Some(found) => {
                        map.resources_mut()[at].set_node(node);
                        let text = format!("{error}\n{}", referrals.shown(at, &found, map));
                        error.reworded(text)
                    }
                };
                return Err(error.context(format!(
                    "updating name reference in '{path}' field of '{id}'"
                )));
            }
            // The next one may look at it, or show it.
            if is_changed {
                build.work(node.count() / 8)?;
                map.resources_mut()[at].set_node(node.clone());
                referrer_id = map.resources()[at].cur_id().to_string().into();
            }
        }
    }
    let all = referrals.by_object.into_inner();
    for (resource, referrers) in map.resources_mut().iter_mut().zip(all) {
        resource.note_referrers(&referrers)?;
    }
    Ok(())
}

/// The referrers of each object, which kustomize notes in its annotations: errors that show the object show them.
struct Referrals {
    by_object: RefCell<Vec<Vec<Rc<str>>>>,
}

impl Referrals {
    fn new(objects: usize) -> Self {
        Self {
            by_object: RefCell::new(vec![Vec::new(); objects]),
        }
    }

    fn record(&self, at: usize, referrer: &Rc<str>, build: &Build<'_>) -> Result<()> {
        build.grow_by(referrer.len() + size_of::<Rc<str>>())?;
        self.by_object.borrow_mut()[at].push(Rc::clone(referrer));
        Ok(())
    }

    /// A referrer, and the objects that it may refer to, as they are now.
    fn shown(&self, referrer: usize, found: &[usize], map: &ResMap) -> String {
        let text = |at: usize| {
            let resource = &map.resources()[at];
            if resource.kind() == "Secret" {
                // What a Secret holds is not for messages.
                return format!("{}\n", resource.cur_id());
            }
            let mut noted = resource.clone();
            let noted = noted
                .note_referrers(&self.by_object.borrow()[at])
                .map(|()| noted);
            noted.and_then(|noted| noted.to_yaml()).unwrap_or_default()
        };
        let mut shown = format!(
            "\n**** Too many possible referral targets to referrer:\n{}\n",
            text(referrer)
        );
        for (number, &at) in found.iter().enumerate() {
            shown += &format!("--- possible referral {number}:\n{}\n", text(at));
        }
        shown
    }
}

/// Lookups of objects that all referrers share.
struct Known {
    /// The places of objects by the names they had.
    by_previous_name: HashMap<String, Vec<usize>>,
    previous: Vec<Vec<ResId>>,
}

impl Known {
    fn of(map: &ResMap, build: &Build<'_>) -> Result<Self> {
        let mut by_previous_name: HashMap<String, Vec<usize>> = HashMap::new();
        let mut previous = Vec::with_capacity(map.resources().len());
        let mut held = 0_usize;
        for (at, resource) in map.resources().iter().enumerate() {
            // Each name is held twice.
            held += 2 * resource.prev_ids_weight();
            build.expect_room(held)?;
            let ids: Vec<ResId> = resource.prev_ids(build)?.collect();
            for id in &ids {
                let places = by_previous_name.entry(id.name.clone()).or_default();
                if places.last() != Some(&at) {
                    places.push(at);
                }
            }
            previous.push(ids);
        }
        Ok(Self {
            by_previous_name,
            previous,
        })
    }
}

/// Whether an object of a place may be referred to.
struct Candidates {
    may: Vec<bool>,
}

impl Candidates {
    fn of(map: &ResMap, at: usize, known: &Known) -> Result<Self> {
        let mut may = vec![false; known.previous.len()];
        for place in map.could_be_referenced_by(at)? {
            may[place] = true;
        }
        Ok(Self { may })
    }
}

struct Filter<'a> {
    map: &'a ResMap,
    known: &'a Known,
    candidates: &'a Candidates,
    referrer: usize,
    referrer_id: &'a Rc<str>,
    referrals: &'a Referrals,
    target: &'a Gvk,
    path: &'a str,
    build: &'a Build<'a>,
    /// The objects that a reference may mean, where they are several.
    ambiguous: Cell<Option<Vec<usize>>>,
}

impl Filter<'_> {
    fn resource(&self, at: usize) -> &Resource {
        &self.map.resources()[at]
    }

    fn set(&self, node: &mut Node, is_changed: &mut bool) -> Result<()> {
        if is_null(node) {
            return Ok(());
        }
        match node.kind {
            Kind::Scalar => self.set_scalar(node, is_changed),
            Kind::Mapping => self.set_mapping(node, is_changed),
            Kind::Sequence => {
                for element in &mut node.content {
                    if is_null(element) {
                        continue;
                    }
                    match element.kind {
                        Kind::Scalar => self.set_scalar(element, is_changed)?,
                        Kind::Mapping => self.set_mapping(element, is_changed)?,
                        Kind::Sequence => {
                            return Err(Error::new(format!(
                                "{} is expected to be either a string or a map of string",
                                element.to_yaml().trim_end()
                            )));
                        }
                    }
                }
                Ok(())
            }
        }
    }

    fn set_scalar(&self, node: &mut Node, is_changed: &mut bool) -> Result<()> {
        let Some(at) = self.select(&node.value, None, false)? else {
            return Ok(());
        };
        self.referrals.record(at, self.referrer_id, self.build)?;
        let name = self.resource(at).name();
        // A name that is gone is put nowhere.
        if name != node.value && !name.is_empty() {
            *is_changed = true;
            self.build.grow_by(name.len())?;
            fns::set_scalar(node, Node::scalar(name))?;
        }
        Ok(())
    }

    fn set_mapping(&self, node: &mut Node, is_changed: &mut bool) -> Result<()> {
        let Some(name) = fns::get(node, "name").context("trying to match 'name' field")? else {
            return Err(Error::new("path config error; no 'name' field in node"));
        };
        let old_name = name.value.clone();
        let namespace = field(node, "namespace").map(|namespace| namespace.value.clone());
        let places = match &namespace {
            None => None,
            Some(namespace) => {
                let all: Vec<usize> = (0..self.candidates.may.len())
                    .filter(|&at| self.candidates.may[at])
                    .collect();
                self.build.work(all.len() / 4)?;
                let mut groups = self.map.by_namespace(&all, true, self.build)?;
                match groups.remove(namespace) {
                    Some(places) => Some(places),
                    None => {
                        let mut groups = self.map.by_namespace(&all, false, self.build)?;
                        Some(groups.remove(namespace).unwrap_or_default())
                    }
                }
            }
        };
        let Some(at) = self.select(&old_name, places.as_deref(), true)? else {
            return Ok(());
        };
        self.referrals.record(at, self.referrer_id, self.build)?;
        let (name, namespace) = (self.resource(at).name(), self.resource(at).namespace());
        if name == old_name && namespace.is_empty() {
            return Ok(());
        }
        *is_changed = true;
        self.build
            .grow_by(name.len() + namespace.len() + 2 * size_of::<Node>())?;
        let name = Some(name).filter(|name| !name.is_empty());
        fns::set_field(node, "name", name.map(Node::scalar))?;
        if namespace.is_empty() {
            return Ok(());
        }
        fns::set_field(node, "namespace", Some(Node::scalar(namespace)))
    }

    /// `selectReferral`: the object that was called so.
    fn select(
        &self,
        old_name: &str,
        among: Option<&[usize]>,
        with_namespace: bool,
    ) -> Result<Option<usize>> {
        let Some(named) = self.known.by_previous_name.get(old_name) else {
            return Ok(None);
        };
        self.build.work(1 + named.len())?;
        let referrer = self.resource(self.referrer);
        let id = referrer.cur_id();
        let role = if self.path.ends_with("roleRef/name") {
            role_gvk(referrer)
        } else {
            None
        };
        let had_type = |at: usize, gvk: &Gvk| {
            self.known.previous[at]
                .iter()
                .any(|id| id.gvk.is_selected(gvk))
        };
        let mut found: Vec<usize> = named
            .iter()
            .copied()
            .filter(|at| self.candidates.may[*at] && among.is_none_or(|among| among.contains(at)))
            .filter(|&at| had_type(at, self.target))
            .filter(|&at| role.as_ref().is_none_or(|gvk| had_type(at, gvk)))
            .filter(|&at| {
                let other = self.resource(at);
                id.is_cluster_scoped()
                    || other.cur_id().is_cluster_scoped()
                    || other.kind() == "ServiceAccount"
                    || id.is_namespace_equal(other.cur_id())
            })
            .collect();
        if found.len() == 1 {
            return Ok(found.pop());
        }
        found.retain(|&at| self.resource(at).has_affixes_of(referrer, true));
        if found.len() > 1 {
            found.retain(|&at| self.resource(at).has_affixes_of(referrer, false));
        }
        let Some(&first) = found.first() else {
            return Ok(None);
        };
        let is_same = |&at: &usize| {
            self.resource(at).name() == self.resource(first).name()
                && (!with_namespace
                    || self.resource(at).namespace() == self.resource(first).namespace())
        };
        if found.iter().all(is_same) {
            return Ok(Some(first));
        }
        let ids = found
            .iter()
            .map(|&at| self.resource(at).cur_id().to_string());
        let ids: Vec<String> = ids.collect();
        self.ambiguous.set(Some(found));
        Err(Error::new(format!(
            "found multiple possible referrals: {}",
            ids.join(", ")
        )))
    }
}

fn role_gvk(referrer: &Resource) -> Option<Gvk> {
    let role = field(referrer.node()?, "roleRef")?;
    Some(Gvk {
        group: field(role, "apiGroup")?.value.clone(),
        kind: field(role, "kind")?.value.clone(),
        ..Gvk::default()
    })
}
