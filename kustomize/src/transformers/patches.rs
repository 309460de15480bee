//! Patches, strategic and JSON 6902: how they are read, and which objects they change.

use golib::yaml::node::Node;

use super::step::{JsonPatchConfig, StrategicConfig, Transformer};
use crate::decode::PatchStrategicMerge;
use crate::error::{Context as _, Error, Result};
use crate::factory;
use crate::json_patch::JsonPatch;
use crate::kustomization::{Patch, PatchArgs, Selector};
use crate::loader::{Build, Loader};
use crate::resmap::ResMap;
use crate::resource::{ALLOW_KIND_CHANGE, ALLOW_NAME_CHANGE, Resource, internal_annotations};

pub(super) fn json6902(config: JsonPatchConfig, loader: &Loader<'_>) -> Result<Transformer> {
    let Some(target) = &config.target else {
        // Go falls over its missing target.
        return Err(Error::new("must specify a target for the JSON patch"));
    };
    if target.id.name.is_empty() {
        return Err(Error::new("must specify the target name"));
    }
    let text = match (config.path.is_empty(), config.json_op.is_empty()) {
        (true, true) => return Err(Error::new("empty file path and empty jsonOp")),
        (false, false) => {
            return Err(Error::new("must specify a file path or jsonOp, not both"));
        }
        (true, false) => config.json_op.clone().into_bytes(),
        (false, true) => {
            let text = loader.load(&config.path)?;
            if text.is_empty() {
                return Err(Error::new(format!(
                    "patch file '{}' empty seems to be empty",
                    config.path
                )));
            }
            text
        }
    };
    let json = || -> Result<String> {
        if text.first() == Some(&b'[') {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
        Ok(golib::json::encode(&crate::decode::yaml_to_json(
            &text,
            loader.build,
        )?))
    };
    let as_json = json()?;
    let patch =
        JsonPatch::parse(&text, loader.build).with_context(|| format!("decoding {as_json}"))?;
    if patch.len() == 0 {
        return Err(Error::new(format!(
            "patch appears to be empty; file={}, JsonOp={as_json}",
            config.path
        )));
    }
    Ok(Transformer::Json6902(patch, config.target))
}

pub(super) fn strategic(config: &StrategicConfig, loader: &Loader<'_>) -> Result<Transformer> {
    if config.paths.is_empty() && config.patches.is_empty() {
        return Err(Error::new("empty file path and empty patch content"));
    }
    let mut patches = Vec::new();
    for PatchStrategicMerge(path) in &config.paths {
        // The path may be the patch itself.
        let found = match factory::resources(loader.build, path.as_bytes()) {
            Err(error) if error.is_limit() => return Err(error),
            Err(_) => {
                let text = loader.load(path)?;
                factory::resources(loader.build, &text)
                    .map_err(|error| factory::in_file(error, path))?
            }
            Ok(found) => found,
        };
        patches.extend(found);
    }
    if !config.patches.is_empty() {
        patches.extend(factory::resources(loader.build, config.patches.as_bytes())?);
    }
    if patches.is_empty() {
        return Err(Error::new(format!(
            "patch appears to be empty; files=[{}], Patch={}",
            config
                .paths
                .iter()
                .map(|path| &*path.0)
                .collect::<Vec<_>>()
                .join(" "),
            config.patches
        )));
    }
    Ok(Transformer::StrategicMerge(patches))
}

/// `config` is what `given` says.
pub(super) fn patch_step(
    config: Patch,
    given: &serde_json::Value,
    loader: &Loader<'_>,
) -> Result<Transformer> {
    let inline = config.patch.trim();
    let shown = || golib::yaml::encode(given).unwrap_or_default();
    let (text, source) = match (inline.is_empty(), config.path.is_empty()) {
        (true, true) => {
            return Err(Error::new(format!(
                "must specify one of patch and path in\n{}",
                shown()
            )));
        }
        (false, false) => {
            return Err(Error::new(format!(
                "patch and path can't be set at the same time\n{}",
                shown()
            )));
        }
        (false, true) => (
            inline.as_bytes().to_vec(),
            format!("[patch: {}]", golib::strconv::quote(inline)),
        ),
        (true, false) => (
            loader.load(&config.path).with_context(|| {
                format!("failed to get the patch file from path({})", config.path)
            })?,
            format!("[path: {}]", golib::strconv::quote(&config.path)),
        ),
    };
    let strategic = factory::resources(loader.build, &text);
    let json = if text.is_empty() {
        Err(Error::new("empty json patch operations"))
    } else {
        JsonPatch::parse(&text, loader.build)
    };
    if let Ok(strategic) = &strategic
        && let Ok(json) = &json
        && !strategic.is_empty()
        && json.len() > 0
    {
        return Err(Error::new(format!(
            "illegally qualifies as both an SM and JSON patch: {source}"
        )));
    }
    let (strategic, json) = match (strategic, json) {
        (Err(error), _) if error.is_limit() => return Err(error),
        (Err(_), Err(_)) => {
            return Err(Error::new(format!(
                "unable to parse SM or JSON patch from {source}"
            )));
        }
        (Ok(mut patches), json) => {
            let options = config.options.clone().unwrap_or_default();
            for patch in &mut patches {
                allow(patch, &options)?;
            }
            // An empty list is none in Go.
            let patches = (!patches.is_empty()).then_some(patches);
            (patches, json.ok().filter(|_| false))
        }
        (Err(_), Ok(json)) => (None, Some(json)),
    };
    Ok(Transformer::Patch {
        strategic,
        json: json.unwrap_or_else(JsonPatch::none),
        target: config.target,
        source,
    })
}

fn allow(patch: &mut Resource, options: &PatchArgs) -> Result<()> {
    if options.allow_name_change {
        patch.enable(ALLOW_NAME_CHANGE)?;
    }
    if options.allow_kind_change {
        patch.enable(ALLOW_KIND_CHANGE)?;
    }
    Ok(())
}

pub(super) fn patch_strategically(
    map: &mut ResMap,
    patches: &[Resource],
    target: Option<&Selector>,
    source: &str,
    build: &Build<'_>,
) -> Result<()> {
    if let Some(target) = target {
        let [patch] = patches else {
            return Err(Error::new(format!(
                "Multiple Strategic-Merge Patches in one `patches` entry is not allowed to set `patches.target` field: {source}"
            )));
        };
        let selected = map.select(target, build).with_context(|| {
            format!(
                "unable to find patch target {} in `resources`",
                golib::strconv::quote(format!(
                    "{}:a={}:l={}",
                    target.id, target.annotation_selector, target.label_selector
                ))
            )
        })?;
        let size = patch.node().map_or(0, Node::count);
        build.work(selected.len() * (40 + 4 * size))?;
        return map.apply_patch(&selected, patch, build);
    }
    for patch in patches {
        build.work(map.resources().len())?;
        let id = patch.org_id(build)?;
        let at = map.get_by_id(&id, build).with_context(|| {
            format!(
                "no resource matches strategic merge patch {}",
                golib::strconv::quote(id.to_string())
            )
        })?;
        map.resources_mut()[at].apply_patch(patch, build)?;
    }
    Ok(())
}

pub(super) fn patch_json(
    map: &mut ResMap,
    patch: &JsonPatch,
    target: &Selector,
    remember: bool,
    build: &Build<'_>,
) -> Result<()> {
    let selected = map.select(target, build)?;
    build.work(map.resources().len())?;
    for at in selected {
        let resource = &mut map.resources_mut()[at];
        if remember {
            resource.store_previous_id(build)?;
        }
        let Some(node) = resource.node() else {
            continue;
        };
        build.work(20 + node.count() / 2 + patch.len())?;
        build.grow(node)?;
        let internal = internal_annotations(node);
        let mut value = node.decode_written()?;
        patch.apply(&mut value, build)?;
        if !value.is_object() {
            return Err(golib::json::Error::wrong_type(&value, "map[string]interface {}").into());
        }
        resource.set_node(factory::node_of(&golib::json::floats(value)));
        let mut annotations = resource.annotations();
        annotations.extend(internal);
        let set = resource.set_annotations(&annotations);
        if !remember {
            set?;
        }
    }
    Ok(())
}
