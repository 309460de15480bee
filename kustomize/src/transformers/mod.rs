//! The builtin transformers, each made of its part of the kustomization file or of a configuration of its own
//! (`internal/builtins`).

mod affixes;
mod object_names;
mod order;
mod patches;
mod step;
mod value_add;

pub(crate) use order::sort;
pub(crate) use step::Transformer;

use golib::yaml::node::{Kind, Node, tag};
use serde_json::Value;

use self::affixes::Affix;
use self::step::{
    AnnotationConfig, ImageConfig, JsonPatchConfig, LabelConfig, NamespaceConfig,
    ReplacementConfig, ReplicaConfig, StrategicConfig,
};
use crate::config::{FieldSpec, TransformerConfig};
use crate::decode::{Write as _, handed_over, unmarshal};
use crate::error::{Context as _, Error, Result};
use crate::filters::fieldspec::{self, Create};
use crate::filters::imagetag::Updater;
use crate::filters::namespace::Subjects;
use crate::filters::replacement;
use crate::fns::{self, Texts};
use crate::kustomization::{ObjectMeta, Patch, Replacement};
use crate::loader::{Build, Loader};
use crate::resmap::ResMap;

/// The kinds of the builtin transformers.
#[rustfmt::skip]
pub(crate) const KINDS: [&str; 14] = [
    "AnnotationsTransformer", "HashTransformer", "ImageTagTransformer", "LabelTransformer", "NamespaceTransformer",
    "PatchJson6902Transformer", "PatchStrategicMergeTransformer", "PatchTransformer", "PrefixSuffixTransformer",
    "PrefixTransformer", "ReplacementTransformer", "ReplicaCountTransformer", "SuffixTransformer",
    "ValueAddTransformer",
];

/// Steps made of a configuration of their own: `None` for a kind that is no transformer.
pub(crate) fn configure(
    kind: &str,
    config: &Value,
    loader: &Loader<'_>,
) -> Option<Result<Transformer>> {
    Some(match kind {
        "AnnotationsTransformer" => unmarshal(config, loader.build).map(Transformer::Annotations),
        "LabelTransformer" => unmarshal(config, loader.build).map(Transformer::Labels),
        "NamespaceTransformer" => unmarshal(config, loader.build)
            .context("unmarshalling NamespaceTransformer config")
            .and_then(namespace_step),
        "PrefixTransformer" => prefix(config),
        "SuffixTransformer" => suffix(config),
        "PrefixSuffixTransformer" => prefix(config).and_then(|prefix| {
            let suffix = suffix(config)?;
            Ok(Transformer::Both(Box::new(prefix), Box::new(suffix)))
        }),
        "ImageTagTransformer" => unmarshal(config, loader.build).map(Transformer::Images),
        "ReplicaCountTransformer" => unmarshal(config, loader.build).map(Transformer::Replicas),
        "PatchJson6902Transformer" => {
            unmarshal(config, loader.build).and_then(|config| patches::json6902(config, loader))
        }
        "PatchStrategicMergeTransformer" => {
            unmarshal(config, loader.build).and_then(|config| patches::strategic(&config, loader))
        }
        "PatchTransformer" => unmarshal::<Patch>(config, loader.build)
            .and_then(|patch| patches::patch_step(patch, config, loader)),
        "ReplacementTransformer" => {
            unmarshal(config, loader.build).and_then(|config| replacements(config, loader))
        }
        "ValueAddTransformer" => {
            unmarshal(config, loader.build).and_then(|config| value_add::value_add(config, loader))
        }
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
    macro_rules! step {
        ($kind:expr, $variant:ident($config:ident { $field:ident }), $specs:expr) => {{
            let given = $config {
                $field,
                ..$config::default()
            };
            let mut step = handed_over(given, loader.build)?;
            step.field_specs = $specs;
            steps.push(($kind, Transformer::$variant(step)));
        }};
    }
    let paths = own.patches_strategic_merge.clone().unwrap_or_default();
    if !paths.is_empty() {
        let kind = "PatchStrategicMergeTransformer";
        let step = StrategicConfig {
            paths,
            patches: String::new(),
        };
        let made = handed_over(step.clone(), loader.build)
            .and_then(|step| patches::strategic(&step, loader));
        steps.push((kind, configured(kind, || step.write(), made)?));
    }
    for patch in &own.patches {
        let kind = "PatchTransformer";
        let made = handed_over(patch.clone(), loader.build).and_then(|patch| {
            let given = patch.write().unwrap_or_default();
            patches::patch_step(patch, &given, loader)
        });
        steps.push((kind, configured(kind, || patch.write(), made)?));
    }
    if !own.namespace.is_empty() {
        let mut step = handed_over(
            NamespaceConfig {
                metadata: ObjectMeta {
                    namespace: own.namespace.clone(),
                    ..ObjectMeta::default()
                },
                ..NamespaceConfig::default()
            },
            loader.build,
        )?;
        step.field_specs = config.namespace.to_vec();
        steps.push(("NamespaceTransformer", namespace_step(step)?));
    }
    if !own.name_prefix.is_empty() {
        let prefix = affix("prefix", &own.name_prefix, loader.build)?;
        let step = Transformer::Prefix(prefix, config.name_prefix.to_vec());
        steps.push(("PrefixTransformer", step));
    }
    if !own.name_suffix.is_empty() {
        let suffix = affix("suffix", &own.name_suffix, loader.build)?;
        let step = Transformer::Suffix(suffix, config.name_suffix.to_vec());
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
            let (kind, labels) = ("LabelTransformer", label.pairs.clone());
            step!(kind, Labels(LabelConfig { labels }), specs);
        }
        let (kind, labels) = ("LabelTransformer", common_labels);
        let specs = config.common_labels.to_vec();
        step!(kind, Labels(LabelConfig { labels }), specs);
    }
    if !own.common_annotations.is_empty() {
        let (kind, annotations) = ("AnnotationsTransformer", own.common_annotations.clone());
        let specs = config.common_annotations.to_vec();
        step!(kind, Annotations(AnnotationConfig { annotations }), specs);
    }
    for patch in own.patches_json6902.iter().flatten() {
        let kind = "PatchJson6902Transformer";
        let step = JsonPatchConfig {
            target: patch.target.clone(),
            path: patch.path.clone(),
            json_op: patch.patch.clone(),
        };
        let made = handed_over(step.clone(), loader.build)
            .and_then(|step| patches::json6902(step, loader));
        steps.push((kind, configured(kind, || step.write(), made)?));
    }
    for replica in &own.replicas {
        let bytes = config.replicas.len() * (size_of::<FieldSpec>() + 64);
        loader.build.grow_by(bytes)?;
        let (kind, replica) = ("ReplicaCountTransformer", replica.clone());
        let specs = config.replicas.to_vec();
        step!(kind, Replicas(ReplicaConfig { replica }), specs);
    }
    for image in &own.images {
        let bytes = config.images.len() * (size_of::<FieldSpec>() + 64);
        loader.build.grow_by(bytes)?;
        let (kind, image) = ("ImageTagTransformer", image.clone());
        step!(kind, Images(ImageConfig { image }), config.images.to_vec());
    }
    if !own.replacements.is_empty() {
        let kind = "ReplacementTransformer";
        let step = ReplacementConfig {
            replacements: own.replacements.clone(),
        };
        let made = handed_over(step.clone(), loader.build).and_then(|mut step| {
            // An empty list is not written where a step is handed over, so that it is none when it is read.
            for field in &mut step.replacements {
                let targets = field.replacement.targets.take();
                field.replacement.targets = targets.filter(|targets| !targets.is_empty());
            }
            replacements(step, loader)
        });
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

/// A prefix or suffix of the kustomization file, which stands at `name` in its transformer's configuration.
fn affix(name: &str, text: &str, build: &Build<'_>) -> Result<String> {
    let config = handed_over(Texts::from([(name.to_owned(), text.to_owned())]), build)?;
    Ok(config.into_values().collect())
}

fn prefix(config: &Value) -> Result<Transformer> {
    let affix = Affix::read(config, "prefix")?;
    Ok(Transformer::Prefix(affix.text, affix.specs))
}

fn suffix(config: &Value) -> Result<Transformer> {
    let affix = Affix::read(config, "suffix")?;
    Ok(Transformer::Suffix(affix.text, affix.specs))
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
        let value = crate::decode::read(&loader.load(&field.path)?, loader.build)?;
        match &value {
            Value::Array(_) => list.extend(unmarshal::<Vec<Replacement>>(&value, loader.build)?),
            Value::Object(_) => list.push(unmarshal(&value, loader.build)?),
            other => {
                let kind = match other {
                    Value::Null => "invalid",
                    Value::Number(_) => "float64",
                    other => golib::json::go_type(other),
                };
                return Err(Error::new(format!(
                    "unsupported replacement type encountered within replacement path: {kind}"
                )));
            }
        }
    }
    Ok(Transformer::Replacements(list))
}

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
            Self::Namespace(config, subjects) => {
                object_names::set_namespace(map, config, *subjects, build)
            }
            Self::Prefix(prefix, specs) => object_names::add_affix(map, prefix, specs, true, build),
            Self::Suffix(suffix, specs) => {
                object_names::add_affix(map, suffix, specs, false, build)
            }
            Self::Both(one, other) => {
                one.transform(map, build)?;
                other.transform(map, build)
            }
            Self::Images(config) => {
                let updater = Updater::new(&config.image, build);
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
                    let at = map.get_by_id(&patch.org_id(build)?, build)?;
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
                Some(patches) => {
                    patches::patch_strategically(map, patches, target.as_ref(), source, build)
                }
                None if json.is_there() => {
                    let Some(target) = target else {
                        return Err(Error::new(format!(
                            "must specify a target for JSON patch {source}"
                        )));
                    };
                    patches::patch_json(map, json, target, true, build)
                }
                None => Ok(()),
            },
            Self::Json6902(patch, target) => match target {
                Some(target) => patches::patch_json(map, patch, target, false, build),
                None => Ok(()),
            },
            Self::Replacements(list) => {
                replacement::transform(map, list, build)?;
                map.drop_empties();
                Ok(())
            }
            Self::ValueAdd(value, targets) => value_add::add_values(map, value, targets, build),
            Self::Hash => object_names::add_hashes(map, build),
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
            // The text is kept beside its nodes.
            build.grow_by(text.len())?;
            let value = resource.shared(Node::tagged(text, tag::STR));
            let Some(node) = resource.node_mut() else {
                continue;
            };
            fieldspec::apply_all(specs, Some(MAP), node, &mut |node| {
                build.grow_by(key.len() + text.len() + 2 * size_of::<Node>())?;
                fns::set_field(node, key, Some(value.clone()))
            })?;
            resource.settle_shared(build)?;
        }
    }
    Ok(())
}

fn set_replicas(map: &mut ResMap, config: &ReplicaConfig, build: &Build<'_>) -> Result<()> {
    let mut is_found = false;
    for spec in &config.field_specs {
        build.work(2 * map.resources().len())?;
        let places = map.matching_any_id(build, |id| {
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
