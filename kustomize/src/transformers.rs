//! The builtin transformers, each made of its part of the kustomization file or of a configuration of its own
//! (`internal/builtins`).

use golib::yaml::node::{Kind, Node, tag};
use serde_json::Value;

use crate::config::{FieldSpec, TransformerConfig};
use crate::decode::{PatchStrategicMerge, Write as _, go_structs, unmarshal};
use crate::error::{Context as _, Error, Result};
use crate::factory;
use crate::filters::fieldspec::{self, Create};
use crate::filters::imagetag::Updater;
use crate::filters::namespace::{self, Subjects};
use crate::filters::replacement;
use crate::fns;
use crate::generators;
use crate::json_patch::JsonPatch;
use crate::kustomization::{
    Image, ObjectMeta, Patch, PatchArgs, Replacement, ReplacementField, Replica, Selector,
    SortOptions,
};
use crate::loader::{Build, Loader};
use crate::resid::{Gvk, default_order};
use crate::resmap::ResMap;
use crate::resource::{
    ALLOW_KIND_CHANGE, ALLOW_NAME_CHANGE, PREFIXES, Resource, SUFFIXES, Texts, internal_annotations,
};

go_structs! {
    LabelConfig = "builtins.LabelTransformerPlugin" {
        labels: "labels" = Texts,
        field_specs: "fieldSpecs" = Vec<FieldSpec>,
    }
    AnnotationConfig = "builtins.AnnotationsTransformerPlugin" {
        annotations: "annotations" = Texts,
        field_specs: "fieldSpecs" = Vec<FieldSpec>,
    }
    NamespaceConfig = "builtins.NamespaceTransformerPlugin" {
        metadata: "metadata" = ObjectMeta,
        field_specs: "fieldSpecs" = Vec<FieldSpec>,
        unset_only: "unsetOnly" = bool,
        subjects: "setRoleBindingSubjects" = String,
    }
    AffixConfig = "builtins.PrefixTransformerPlugin" {
        prefix: "prefix" = String,
        suffix: "suffix" = String,
        field_specs: "fieldSpecs" = Option<Vec<FieldSpec>>,
    }
    ImageConfig = "builtins.ImageTagTransformerPlugin" {
        image: "imageTag" = Image,
        field_specs: "fieldSpecs" = Vec<FieldSpec>,
    }
    ReplicaConfig = "builtins.ReplicaCountTransformerPlugin" {
        replica: "replica" = Replica,
        field_specs: "fieldSpecs" = Vec<FieldSpec>,
    }
    JsonPatchConfig = "builtins.PatchJson6902TransformerPlugin" {
        target: "target" = Option<Selector>,
        path: "path" = String,
        json_op: "jsonOp" = String,
    }
    StrategicConfig = "builtins.PatchStrategicMergeTransformerPlugin" {
        paths: "paths" = Vec<PatchStrategicMerge>,
        patches: "patches" = String,
    }
    ReplacementConfig = "builtins.ReplacementTransformerPlugin" {
        replacements: "replacements" = Vec<ReplacementField>,
    }
    ValueAddConfig = "builtins.ValueAddTransformerPlugin" {
        value: "value" = String,
        targets: "targets" = Vec<ValueAddTarget>,
        target_file: "targetFilePath" = String,
    }
    ValueAddTarget = "Target" {
        selector: "selector" = Option<Selector>,
        field_path: "fieldPath" = String,
        position: "filePathPosition" = isize,
    }
    ValueAddFile = "Targets" {
        targets: "targets" = Vec<ValueAddTarget>,
    }
}

/// One step of a build.
pub(crate) enum Transformer {
    Labels(LabelConfig),
    Annotations(AnnotationConfig),
    Namespace(NamespaceConfig, Subjects),
    Prefix(String, Vec<FieldSpec>),
    Suffix(String, Vec<FieldSpec>),
    Both(Box<Transformer>, Box<Transformer>),
    Images(ImageConfig),
    Replicas(ReplicaConfig),
    StrategicMerge(Vec<Resource>),
    Patch {
        strategic: Option<Vec<Resource>>,
        json: JsonPatch,
        target: Option<Selector>,
        source: String,
    },
    Json6902(JsonPatch, Option<Selector>),
    Replacements(Vec<Replacement>),
    ValueAdd(String, Vec<ValueAddTarget>),
    Hash,
}

/// Steps made of a configuration of their own: `None` for a kind that is no transformer.
pub(crate) fn configure(
    kind: &str,
    config: &Value,
    loader: &Loader<'_>,
) -> Option<Result<Transformer>> {
    Some(match kind {
        "AnnotationsTransformer" => unmarshal(config).map(Transformer::Annotations),
        "LabelTransformer" => unmarshal(config).map(Transformer::Labels),
        "NamespaceTransformer" => unmarshal(config)
            .context("unmarshalling NamespaceTransformer config")
            .and_then(namespace_step),
        "PrefixTransformer" => unmarshal(config).and_then(|config| affix(config, true)),
        "SuffixTransformer" => unmarshal(config).and_then(|config| affix(config, false)),
        "PrefixSuffixTransformer" => unmarshal::<AffixConfig>(config).and_then(|config| {
            let prefix = affix(config.clone(), true)?;
            Ok(Transformer::Both(
                Box::new(prefix),
                Box::new(affix(config, false)?),
            ))
        }),
        "ImageTagTransformer" => unmarshal(config).map(Transformer::Images),
        "ReplicaCountTransformer" => unmarshal(config).map(Transformer::Replicas),
        "PatchJson6902Transformer" => unmarshal(config).and_then(|config| json6902(config, loader)),
        "PatchStrategicMergeTransformer" => {
            unmarshal(config).and_then(|config| strategic(&config, loader))
        }
        "PatchTransformer" => {
            unmarshal::<Patch>(config).and_then(|patch| patch_step(patch, loader))
        }
        "ReplacementTransformer" => {
            unmarshal(config).and_then(|config| replacements(config, loader))
        }
        "ValueAddTransformer" => unmarshal(config).and_then(|config| value_add(config, loader)),
        "HashTransformer" => Ok(Transformer::Hash),
        _ => return None,
    })
}

/// Adds what went into a step to what went wrong with it.
fn configured(
    kind: &str,
    config: impl FnOnce() -> Option<Value>,
    step: Result<Transformer>,
) -> Result<Transformer> {
    step.map_err(|error| {
        let config = config().map_or_else(String::new, |config| {
            golib::yaml::encode(&config).unwrap_or_default()
        });
        error.context(format!(
            "trouble configuring builtin {kind} with config: `\n{config}`"
        ))
    })
}

/// The steps of a kustomization file, in kustomize's order, each with the name of its transformer.
pub(crate) fn of_kustomization(
    kustomization: &crate::kustomization::Kustomization,
    config: &TransformerConfig,
    loader: &Loader<'_>,
) -> Result<Vec<(&'static str, Transformer)>> {
    use crate::config::{merge_all, merge_one};
    let own = kustomization;
    let mut steps = Vec::new();
    let paths = own.patches_strategic_merge.clone().unwrap_or_default();
    if !paths.is_empty() {
        let kind = "PatchStrategicMergeTransformer";
        let step = StrategicConfig {
            paths,
            patches: String::new(),
        };
        let made = strategic(&step, loader);
        steps.push((kind, configured(kind, || step.write(), made)?));
    }
    for patch in &own.patches {
        let kind = "PatchTransformer";
        let made = patch_step(patch.clone(), loader);
        steps.push((kind, configured(kind, || patch.write(), made)?));
    }
    if !own.namespace.is_empty() {
        let step = NamespaceConfig {
            metadata: ObjectMeta {
                namespace: own.namespace.clone(),
                ..ObjectMeta::default()
            },
            field_specs: config.namespace.to_vec(),
            ..NamespaceConfig::default()
        };
        steps.push(("NamespaceTransformer", namespace_step(step)?));
    }
    if !own.name_prefix.is_empty() {
        let step = Transformer::Prefix(own.name_prefix.clone(), config.name_prefix.to_vec());
        steps.push(("PrefixTransformer", step));
    }
    if !own.name_suffix.is_empty() {
        let step = Transformer::Suffix(own.name_suffix.clone(), config.name_suffix.to_vec());
        steps.push(("SuffixTransformer", step));
    }
    let common_labels = own.common_labels.clone().unwrap_or_default();
    if !own.labels.is_empty() || !common_labels.is_empty() {
        for label in &own.labels {
            let mut specs = label.field_specs.clone();
            let merged = merge_all(&mut specs, &config.labels).and_then(|()| {
                if label.include_selectors {
                    return merge_all(&mut specs, &config.common_labels);
                }
                if label.include_templates {
                    merge_all(&mut specs, &config.template_labels)
                        .context("failed to merge template fieldSpec")?;
                }
                merge_one(&mut specs, &FieldSpec::of("metadata/labels", true))
            });
            merged.map_err(|error| {
                if error.contains("template fieldSpec") {
                    error
                } else {
                    error.context("failed to merge labels")
                }
            })?;
            let build = loader.build;
            build.grow_by(specs.len() * (size_of::<FieldSpec>() + 64))?;
            build.work(specs.len() * specs.len() / 128)?;
            let step = LabelConfig {
                labels: label.pairs.clone(),
                field_specs: specs,
            };
            steps.push(("LabelTransformer", Transformer::Labels(step)));
        }
        let step = LabelConfig {
            labels: common_labels,
            field_specs: config.common_labels.to_vec(),
        };
        steps.push(("LabelTransformer", Transformer::Labels(step)));
    }
    if !own.common_annotations.is_empty() {
        let step = AnnotationConfig {
            annotations: own.common_annotations.clone(),
            field_specs: config.common_annotations.to_vec(),
        };
        steps.push(("AnnotationsTransformer", Transformer::Annotations(step)));
    }
    for patch in own.patches_json6902.iter().flatten() {
        let kind = "PatchJson6902Transformer";
        let step = JsonPatchConfig {
            target: patch.target.clone(),
            path: patch.path.clone(),
            json_op: patch.patch.clone(),
        };
        let made = json6902(step.clone(), loader);
        steps.push((kind, configured(kind, || step.write(), made)?));
    }
    for replica in &own.replicas {
        let bytes = config.replicas.len() * (size_of::<FieldSpec>() + 64);
        loader.build.grow_by(bytes)?;
        let step = ReplicaConfig {
            replica: replica.clone(),
            field_specs: config.replicas.to_vec(),
        };
        steps.push(("ReplicaCountTransformer", Transformer::Replicas(step)));
    }
    for image in &own.images {
        let bytes = config.images.len() * (size_of::<FieldSpec>() + 64);
        loader.build.grow_by(bytes)?;
        let step = ImageConfig {
            image: image.clone(),
            field_specs: config.images.to_vec(),
        };
        steps.push(("ImageTagTransformer", Transformer::Images(step)));
    }
    if !own.replacements.is_empty() {
        let kind = "ReplacementTransformer";
        let step = ReplacementConfig {
            replacements: own.replacements.clone(),
        };
        let made = replacements(step.clone(), loader);
        let config = || {
            let replacements = step.replacements.write()?;
            Some(
                [("Replacements".to_owned(), replacements)]
                    .into_iter()
                    .collect(),
            )
        };
        steps.push((kind, configured(kind, config, made)?));
    }
    Ok(steps)
}

fn namespace_step(config: NamespaceConfig) -> Result<Transformer> {
    let subjects = Subjects::parse(&config.subjects)?;
    Ok(Transformer::Namespace(config, subjects))
}

fn affix(config: AffixConfig, is_prefix: bool) -> Result<Transformer> {
    let Some(specs) = config.field_specs else {
        return Err(Error::new("fieldSpecs is not expected to be nil"));
    };
    Ok(if is_prefix {
        Transformer::Prefix(config.prefix, specs)
    } else {
        Transformer::Suffix(config.suffix, specs)
    })
}

fn json6902(config: JsonPatchConfig, loader: &Loader<'_>) -> Result<Transformer> {
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
        Ok(golib::json::encode(&crate::decode::yaml_to_json(&text)?))
    };
    let as_json = json()?;
    let patch = JsonPatch::parse(&text).with_context(|| format!("decoding {as_json}"))?;
    if patch.len() == 0 {
        return Err(Error::new(format!(
            "patch appears to be empty; file={}, JsonOp={as_json}",
            config.path
        )));
    }
    Ok(Transformer::Json6902(patch, config.target))
}

fn strategic(config: &StrategicConfig, loader: &Loader<'_>) -> Result<Transformer> {
    if config.paths.is_empty() && config.patches.is_empty() {
        return Err(Error::new("empty file path and empty patch content"));
    }
    let mut patches = Vec::new();
    for PatchStrategicMerge(path) in &config.paths {
        // It may be the patch itself.
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

fn patch_step(config: Patch, loader: &Loader<'_>) -> Result<Transformer> {
    let inline = config.patch.trim();
    let shown = || {
        let config = config.write().unwrap_or_default();
        golib::yaml::encode(&config).unwrap_or_default()
    };
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
        JsonPatch::parse(&text)
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
            // What is empty is no list in Go.
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

fn replacements(config: ReplacementConfig, loader: &Loader<'_>) -> Result<Transformer> {
    let mut list = Vec::new();
    for field in config.replacements {
        let own = field.replacement;
        if field.path.is_empty() {
            list.push(own);
            continue;
        }
        if own.source.is_some()
            || own
                .targets
                .as_ref()
                .is_some_and(|targets| !targets.is_empty())
        {
            return Err(Error::new(
                "cannot specify both path and inline replacement",
            ));
        }
        let value = golib::yaml::decode(&loader.load(&field.path)?)?;
        match &value {
            Value::Array(_) => list.extend(unmarshal::<Vec<Replacement>>(&value)?),
            Value::Object(_) => list.push(unmarshal(&value)?),
            other => {
                let kind = match other {
                    Value::Null => "invalid",
                    Value::Bool(_) => "bool",
                    Value::Number(_) => "float64",
                    _ => "string",
                };
                return Err(Error::new(format!(
                    "unsupported replacement type encountered within replacement path: {kind}"
                )));
            }
        }
    }
    Ok(Transformer::Replacements(list))
}

fn value_add(config: ValueAddConfig, loader: &Loader<'_>) -> Result<Transformer> {
    let mut value = config.value.trim().to_owned();
    if value.is_empty() {
        let base = golib::path::base(loader.root().as_bytes());
        value = String::from_utf8_lossy(base).into_owned();
    }
    let mut targets = config.targets;
    if !config.target_file.is_empty() {
        let file = golib::yaml::decode(&loader.load(&config.target_file)?)?;
        targets.extend(unmarshal::<ValueAddFile>(&file)?.targets);
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

/// Kinds whose names stay.
fn keeps_name(gvk: &Gvk) -> bool {
    matches!(&*gvk.kind, "CustomResourceDefinition" | "Namespace")
        || gvk.kind == "APIService" && gvk.group == "apiregistration.k8s.io"
}

const NAME: Create = Create {
    kind: Kind::Scalar,
    tag: tag::STR,
};
const MAP: Create = Create {
    kind: Kind::Mapping,
    tag: tag::MAP,
};
const COUNT: Create = Create {
    kind: Kind::Scalar,
    tag: tag::INT,
};

impl Transformer {
    /// Takes the step.
    pub(crate) fn transform(&self, map: &mut ResMap, build: &Build<'_>) -> Result<()> {
        build.work(map.resources().len())?;
        match self {
            Self::Labels(config) => set_texts(map, &config.labels, &config.field_specs, build),
            Self::Annotations(config) => {
                set_texts(map, &config.annotations, &config.field_specs, build)
            }
            Self::Namespace(config, subjects) => set_namespace(map, config, *subjects, build),
            Self::Prefix(prefix, specs) => add_affix(map, prefix, specs, true, build),
            Self::Suffix(suffix, specs) => add_affix(map, suffix, specs, false, build),
            Self::Both(one, other) => {
                one.transform(map, build)?;
                other.transform(map, build)
            }
            Self::Images(config) => {
                let updater = Updater::new(&config.image);
                build.work(8 * map.resources().len())?;
                for resource in map.resources_mut() {
                    if let Some(node) = resource.node_mut() {
                        updater.apply(node, &config.field_specs, build)?;
                    }
                }
                Ok(())
            }
            Self::Replicas(config) => set_replicas(map, config, build),
            Self::StrategicMerge(patches) => {
                for patch in patches {
                    build.work(map.resources().len())?;
                    let at = map.get_by_id(&patch.org_id()?)?;
                    map.apply_patch(&[at], patch, build)?;
                }
                Ok(())
            }
            Self::Patch {
                strategic,
                json,
                target,
                source,
            } => match strategic {
                Some(patches) => patch_strategically(map, patches, target.as_ref(), source, build),
                None if json.is_there() => {
                    let Some(target) = target else {
                        return Err(Error::new(format!(
                            "must specify a target for JSON patch {source}"
                        )));
                    };
                    patch_json(map, json, target, true, build)
                }
                None => Ok(()),
            },
            Self::Json6902(patch, target) => match target {
                Some(target) => patch_json(map, patch, target, false, build),
                None => Ok(()),
            },
            Self::Replacements(list) => {
                replacement::transform(map, list, build)?;
                map.drop_empties();
                Ok(())
            }
            Self::ValueAdd(value, targets) => add_values(map, value, targets, build),
            Self::Hash => add_hashes(map, build),
        }
    }
}

fn set_texts(
    map: &mut ResMap,
    texts: &Texts,
    specs: &[FieldSpec],
    build: &Build<'_>,
) -> Result<()> {
    for resource in map.resources_mut() {
        build.work(texts.len() * specs.len() / 4)?;
        for (key, text) in texts {
            // It is kept beside its nodes.
            build.grow_by(text.len())?;
            let value = resource.shared(Node::tagged(text, tag::STR));
            let Some(node) = resource.node_mut() else {
                continue;
            };
            fieldspec::apply_all(specs, Some(MAP), node, &mut |node| {
                build.grow_by(key.len() + text.len() + 2 * size_of::<Node>())?;
                fns::set_field(node, key, Some(value.clone()))
            })?;
            resource.settle_shared();
        }
    }
    Ok(())
}

fn set_namespace(
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
        // Its names are kept beside it, to be held against those of others.
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

fn add_affix(
    map: &mut ResMap,
    affix: &str,
    specs: &[FieldSpec],
    is_prefix: bool,
    build: &Build<'_>,
) -> Result<()> {
    for resource in map.resources_mut() {
        build.work(1 + specs.len() / 2)?;
        let id = resource.org_id()?;
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

fn set_replicas(map: &mut ResMap, config: &ReplicaConfig, build: &Build<'_>) -> Result<()> {
    let mut is_found = false;
    for spec in &config.field_specs {
        build.work(2 * map.resources().len())?;
        let places = map.matching_any_id(|id| {
            id.name == config.replica.name && id.gvk.is_selected(&spec.gvk)
        })?;
        for at in places {
            is_found = true;
            let Some(node) = map.resources_mut()[at].node_mut() else {
                continue;
            };
            fieldspec::apply(spec, Some(COUNT), node, &mut |node| {
                fns::set_scalar(
                    node,
                    Node::tagged(config.replica.count.to_string(), tag::INT),
                )
            })?;
        }
    }
    if is_found {
        return Ok(());
    }
    let kinds: Vec<String> = config
        .field_specs
        .iter()
        .map(|spec| spec.gvk.to_string())
        .collect();
    Err(Error::new(format!(
        "resource with name {} does not match a config with the following GVK [{}]",
        config.replica.name,
        kinds.join(" ")
    )))
}

fn patch_strategically(
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
        build.work(selected.len() * (20 + 2 * size))?;
        return map.apply_patch(&selected, patch, build);
    }
    for patch in patches {
        build.work(map.resources().len())?;
        let id = patch.org_id()?;
        let at = map.get_by_id(&id).with_context(|| {
            format!(
                "no resource matches strategic merge patch {}",
                golib::strconv::quote(id.to_string())
            )
        })?;
        map.resources_mut()[at].apply_patch(patch, build)?;
    }
    Ok(())
}

fn patch_json(
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

fn add_values(
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
    let joined = crate::origin::clean(&parts.join("/"));
    if is_absolute {
        format!("/{joined}")
    } else {
        joined
    }
}

fn add_hashes(map: &mut ResMap, build: &Build<'_>) -> Result<()> {
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

/// Puts the objects into the order that is asked for.
pub(crate) fn sort(map: &mut ResMap, options: &SortOptions) -> Result<()> {
    const ORDERS: [&str; 2] = ["fifo", "legacy"];
    if !ORDERS.contains(&&*options.order.0) {
        return Err(Error::new(
            "the field 'sortOptions.order' must be one of [fifo, legacy]",
        ));
    }
    if options.order.0 == "fifo" {
        if options.legacy.is_some() {
            return Err(Error::new(
                "the field 'sortOptions.legacySortOptions' is set but the selected sort order is 'fifo', not 'legacy'",
            ));
        }
        return Ok(());
    }
    let (first, last) = match &options.legacy {
        Some(legacy) => (legacy.first.clone(), legacy.last.clone()),
        None => default_order(),
    };
    let rank = |kind: &str| -> i64 {
        let place = |list: &[String]| {
            list.iter()
                .rposition(|own| own == kind)
                .and_then(|at| i64::try_from(at).ok())
        };
        let length = i64::try_from(first.len()).unwrap_or(0);
        match (place(&first), place(&last)) {
            (_, Some(at)) => 1 + at,
            (Some(at), None) => at - length,
            (None, None) => 0,
        }
    };
    let mut list = std::mem::take(map.resources_mut());
    list.sort_by_cached_key(|resource| {
        let id = resource.cur_id();
        let or = |text: &str, instead: &str| {
            if text.is_empty() {
                instead.to_owned()
            } else {
                text.to_owned()
            }
        };
        (
            rank(&id.gvk.kind),
            id.gvk.legacy_sort_text(),
            format!(
                "{}|{}|{}",
                id.gvk,
                or(&id.namespace, "~X"),
                or(&id.name, "~N")
            ),
        )
    });
    map.append_all(list)
        .context("SortOrderTransformer: Failed to append to resources")
}
