//! `ValueAddTransformer`: one text put into, or into the path in, fields of objects.

use golib::yaml::node::{Kind, Node};

use super::step::{Transformer, ValueAddConfig, ValueAddFile, ValueAddTarget};
use crate::decode::unmarshal;
use crate::error::{Error, Result};
use crate::filters::namespace::{self, Subjects};
use crate::fns;
use crate::loader::{Build, Loader};
use crate::resmap::ResMap;

pub(super) fn value_add(config: ValueAddConfig, loader: &Loader<'_>) -> Result<Transformer> {
    let mut value = config.value.trim().to_owned();
    if value.is_empty() {
        let base = golib::path::base(loader.root().as_bytes());
        value = String::from_utf8_lossy(base).into_owned();
    }
    let mut targets = config.targets;
    if !config.target_file.is_empty() {
        let decoder = golib::yaml::Decoder::new().texts(&is_text);
        let file = decoder.decode(
            &loader.load(&config.target_file)?,
            &mut loader.build.document(),
        )?;
        targets.extend(unmarshal::<ValueAddFile>(&file, loader.build)?.targets);
    }
    if targets.is_empty() {
        return Err(Error::new("must specify at least one target"));
    }
    for target in &targets {
        if target.field_path.is_empty() {
            return Err(Error::new("fieldPath cannot be empty"));
        }
        if target.position < 0 {
            return Err(Error::new(format!(
                "value of FilePathPosition ({}) cannot be negative",
                target.position
            )));
        }
    }
    Ok(Transformer::ValueAdd(value, targets))
}

/// The paths of texts in a file of targets; an embedded struct, such as a selector's name, adds no level to a path.
fn is_text(path: &[&str]) -> bool {
    let is = |path: &str, name: &str| path.eq_ignore_ascii_case(name);
    match path {
        [targets, field] => is(targets, "targets") && is(field, "fieldPath"),
        [targets, selector, field] => {
            is(targets, "targets")
                && is(selector, "selector")
                && (is(field, "annotationSelector") || is(field, "labelSelector"))
        }
        _ => false,
    }
}

pub(super) fn add_values(
    map: &mut ResMap,
    value: &str,
    targets: &[ValueAddTarget],
    build: &Build<'_>,
) -> Result<()> {
    for target in targets {
        build.work(map.resources().len())?;
        let places = match &target.selector {
            None => (0..map.resources().len()).collect(),
            Some(selector) => map.select(selector, build)?,
        };
        for at in places {
            let Some(node) = map.resources_mut()[at].node_mut() else {
                continue;
            };
            if target.field_path == "metadata/namespace" {
                let filter = namespace::Filter {
                    namespace: value,
                    specs: &[],
                    unset_only: false,
                    subjects: Subjects::NamedDefault,
                };
                filter.apply(node, build)?;
                continue;
            }
            let parts = value_add_path(&target.field_path);
            fns::expect_depth(parts.len())?;
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let Some(field) = fns::lookup_create(node, &parts, Kind::Scalar)? else {
                continue;
            };
            fns::expect_kind(field, Kind::Scalar)?;
            build.grow_by(value.len())?;
            build.work(field.value.len() / 64)?;
            let text = match usize::try_from(target.position) {
                Ok(position) if position > 0 => insert_path_part(&field.value, position - 1, value),
                _ => value.to_owned(),
            };
            fns::set_scalar(field, Node::scalar(text))?;
        }
    }
    Ok(())
}

/// As `PathSplitter`, with a leading slash kept as an empty part, which looking up leaves out.
fn value_add_path(path: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in path.split('/') {
        match parts.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push('/');
                last.push_str(part);
            }
            _ => parts.push(part.to_owned()),
        }
    }
    parts
}

/// `filesys.InsertPathPart`.
fn insert_path_part(path: &str, position: usize, part: &str) -> String {
    if path.is_empty() {
        return part.to_owned();
    }
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    parts.insert(position.min(parts.len()), part);
    let joined = golib::path::clean_text(&parts.join("/"));
    if is_absolute {
        format!("/{joined}")
    } else {
        joined
    }
}
