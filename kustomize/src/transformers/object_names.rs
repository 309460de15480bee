//! Namespaces, prefixes, suffixes and hashes: what an object is called.

use golib::yaml::node::{Kind, Node, tag};

use super::step::NamespaceConfig;
use crate::config::FieldSpec;
use crate::error::{Error, Result};
use crate::filters::fieldspec::{self, Create};
use crate::filters::namespace::{self, Subjects};
use crate::fns;
use crate::generators;
use crate::loader::Build;
use crate::resid::Gvk;
use crate::resmap::ResMap;
use crate::resource::{PREFIXES, Resource, SUFFIXES};

/// Kinds whose names stay.
fn keeps_name(gvk: &Gvk) -> bool {
    matches!(&*gvk.kind, "CustomResourceDefinition" | "Namespace")
        || gvk.kind == "APIService" && gvk.group == "apiregistration.k8s.io"
}

const NAME: Create = Create {
    kind: Kind::Scalar,
    tag: tag::STR,
};
pub(super) fn set_namespace(
    map: &mut ResMap,
    config: &NamespaceConfig,
    subjects: Subjects,
    build: &Build<'_>,
) -> Result<()> {
    let namespace = &config.metadata.namespace;
    if namespace.is_empty() {
        return Ok(());
    }
    let filter = namespace::Filter {
        namespace,
        specs: &config.field_specs,
        unset_only: config.unset_only,
        subjects,
    };
    let mut taken: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
    let key = |resource: &Resource| {
        let id = resource.cur_id();
        format!("{}\n{}\n{}", id.gvk, id.name, id.effective_namespace())
    };
    for resource in map.resources() {
        *taken.entry(key(resource)).or_default() += 1;
    }
    for at in 0..map.resources().len() {
        build.work(2)?;
        let resource = &mut map.resources_mut()[at];
        if resource.is_nil_or_empty() {
            continue;
        }
        let annotations = resource.annotations();
        let is_from_helm = annotations
            .get("internal.config.kubernetes.io/helm-generated")
            .is_some_and(|text| text == "true");
        if is_from_helm {
            continue;
        }
        // The object's names are kept beside it, to be held against those of others.
        build.grow_by(3 * namespace.len())?;
        let before = key(resource);
        resource.store_previous_id(build)?;
        if let Some(node) = resource.node_mut() {
            filter.apply(node, build)?;
        }
        let after = key(resource);
        if let Some(count) = taken.get_mut(&before) {
            *count -= 1;
        }
        let count = taken.entry(after).or_default();
        *count += 1;
        if *count != 1 {
            let id = map.resources()[at].cur_id().clone();
            let matches = map.matching_current_id(&id);
            let texts: Vec<String> = matches.iter().map(|&at| conflicting(map, at)).collect();
            return Err(Error::new(format!(
                "namespace transformation produces ID conflict: [{}]",
                texts.join(" ")
            )));
        }
    }
    Ok(())
}

/// An object in a message; what a Secret holds is not for messages.
fn conflicting(map: &ResMap, at: usize) -> String {
    let resource = &map.resources()[at];
    if resource.kind() == "Secret" {
        return resource.cur_id().to_string();
    }
    map.json_text(at)
}

pub(super) fn add_affix(
    map: &mut ResMap,
    affix: &str,
    specs: &[FieldSpec],
    is_prefix: bool,
    build: &Build<'_>,
) -> Result<()> {
    for resource in map.resources_mut() {
        build.work(1 + specs.len() / 2)?;
        let id = resource.org_id(build)?;
        if keeps_name(&id.gvk) {
            continue;
        }
        for spec in specs {
            if !id.gvk.is_selected(&spec.gvk) {
                continue;
            }
            if spec.path == "metadata/name" {
                resource.append_csv(if is_prefix { PREFIXES } else { SUFFIXES }, affix, build)?;
                if !affix.is_empty() {
                    resource.store_previous_id(build)?;
                }
            }
            let Some(node) = resource.node_mut() else {
                continue;
            };
            fieldspec::apply(spec, Some(NAME), node, &mut |node| {
                build.grow_by(affix.len())?;
                build.work(node.value.len() / 256)?;
                let text = if is_prefix {
                    format!("{affix}{}", node.value)
                } else {
                    format!("{}{affix}", node.value)
                };
                fns::set_scalar(node, Node::scalar(text))
            })?;
        }
    }
    Ok(())
}

pub(super) fn add_hashes(map: &mut ResMap, build: &Build<'_>) -> Result<()> {
    for resource in map.resources_mut() {
        if !resource.needs_hash() {
            continue;
        }
        let Some(node) = resource.node() else {
            continue;
        };
        let hash = generators::hash(node)?;
        resource.store_previous_id(build)?;
        let name = format!("{}-{hash}", resource.name());
        resource.set_name(&name)?;
    }
    Ok(())
}
