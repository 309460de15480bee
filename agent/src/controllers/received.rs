//! A BundleDeployment as upstream sends it: read however deep its values nest, and how much of it is kept.
//!
//! A text of 1.4 MB, the most that etcd takes, can stand for a hundred times as much: `{},` is a comparePatch. So the options of a large one are
//! not kept but asked for again when it is reconciled; what all others must know of it is: its names, what it copies, and how it stands.

use golib::budget::{Budget, MAX_DEPTH};
use golib::json;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::api::{
    BundleDeployment, BundleDeploymentOptions, BundleDeploymentSpec, BundleDeploymentStatus,
    HelmOptions, LeftOut, TooMany,
};
use crate::client::listed::RawObject;
use crate::controllers::spec_identity::SpecIdentity;

/// What a spec may take while it is read, in bytes.
const MAX_SPEC: usize = 24 << 20;

/// Limit up to which options are kept, in bytes: a thousand maps, or some 30 KB of ordinary values. Of more, drift is corrected only while upstream
/// answers.
const KEPT_OPTIONS: usize = 512 << 10;

/// Limit of the names in larger options, in bytes of their text.
const MAX_NAMES: usize = 256 << 10;

/// Memory for the rest of a spec once it is read, in bytes.
const MAX_REST: usize = 1 << 20;

/// Memory for a status, in bytes; one of five thousand objects takes half of that.
const MAX_STATUS: usize = 8 << 20;

/// Labels and annotations together.
const MAX_LABELS: usize = 10_000;

/// Levels of what is no value of a chart's.
const MAX_FIELD_DEPTH: usize = 100;

/// How many elements lists and maps of the options may have, all of one path together: work goes by their numbers, some by those of two multiplied. A
/// hundred where each costs a request.
const COUNTED: [(&str, usize); 16] = [
    ("diff/comparePatches", 1_000),
    ("diff/comparePatches/[]/jsonPointers", 1_000),
    ("diff/comparePatches/[]/operations", 1_000),
    ("helm/valuesFrom", 100),
    ("helm/valuesFiles", 1_000),
    ("helm/templateValues", 1_000),
    ("yaml/overlays", 1_000),
    ("ignore/conditions", 1_000),
    ("ignore/conditions/[]", 1_000),
    ("namespaceLabels", 1_000),
    ("namespaceAnnotations", 1_000),
    ("downstreamResources", 100),
    ("overwrites", 1_000),
    ("allowedTargetNamespaceSelector/matchLabels", 1_000),
    ("allowedTargetNamespaceSelector/matchExpressions", 1_000),
    (
        "allowedTargetNamespaceSelector/matchExpressions/[]/values",
        1_000,
    ),
];

/// How many elements lists and maps in the rest of the spec may have.
const SPEC_COUNTED: [(&str, usize); 5] = [
    ("dependsOn", 1_000),
    ("dependsOn/[]/acceptedStates", 1_000),
    ("dependsOn/[]/selector/matchLabels", 1_000),
    ("dependsOn/[]/selector/matchExpressions", 1_000),
    ("dependsOn/[]/selector/matchExpressions/[]/values", 1_000),
];

/// The lists and maps at a path.
fn count(value: &Value, path: &str) -> usize {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let below = |inside: &Value| match (rest, inside) {
        ("", Value::Array(items)) => items.len(),
        ("", Value::Object(map)) => map.len(),
        ("", _) => 0,
        _ => count(inside, rest),
    };
    match value {
        Value::Array(items) if first == "[]" => items.iter().map(below).sum(),
        other => other.get(first).map_or(0, below),
    }
}

/// Takes away what is at a path that begins with names.
fn cut(value: &mut Value, path: &str) {
    let path = path.split("/[]").next().unwrap_or_default();
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let pointer = match parent {
        "" => String::new(),
        parent => format!("/{parent}"),
    };
    if let Some(Value::Object(parent)) = value.pointer_mut(&pointer) {
        parent.remove(name);
    }
}

/// Takes away the lists and maps that have too many elements, or all of them.
fn cut_too_many(value: &mut Value, counted: &[(&str, usize)], all: bool) {
    for (path, most) in counted {
        if all || count(value, path) > *most {
            cut(value, path);
        }
    }
}

/// The first list or map that has too many elements.
fn too_many(spec: &Value) -> Option<TooMany> {
    let found = |value: &Value, prefix: &str, (path, most): &(&str, usize)| {
        let field = format!("{prefix}.{}", path.replace("/[]", "[]").replace('/', "."));
        let most = *most;
        (count(value, path) > most).then_some(TooMany { field, most })
    };
    let in_options = ["options", "stagedOptions"].into_iter().find_map(|half| {
        let options = spec.get(half)?;
        let prefix = format!("spec.{half}");
        COUNTED
            .iter()
            .find_map(|counted| found(options, &prefix, counted))
    });
    in_options.or_else(|| {
        SPEC_COUNTED
            .iter()
            .find_map(|counted| found(spec, "spec", counted))
    })
}

/// Why a BundleDeployment is neither deployed nor removed. No text quotes a value but the last one's.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableBundle {
    /// Values of millions of empty maps, mostly.
    #[error("spec takes more than {} MiB once it is read", MAX_SPEC >> 20)]
    Spec,
    /// Names and keys of the options, which are kept as other bundles ask for them.
    #[error("the names, namespaceLabels, namespaceAnnotations, downstreamResources and overwrites of spec.options take more than {} KiB", MAX_NAMES >> 10)]
    Names,
    /// Long texts in `dependsOn`, mostly.
    #[error("spec takes more than {} MiB beside its options once it is read", MAX_REST >> 20)]
    Rest,
    /// Of nearly ten thousand objects.
    #[error("status takes more than {} MiB once it is read", MAX_STATUS >> 20)]
    Status,
    /// An object may have any number of labels.
    #[error("metadata has more than {MAX_LABELS} labels and annotations")]
    Labels,
    /// Go's decoder stops at 10,000 levels.
    #[error("spec is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Elsewhere than in values.
    #[error("spec is nested deeper than {MAX_FIELD_DEPTH} levels, and not in helm.values")]
    FieldTooDeep,
    /// Not what the definition of the kind allows.
    #[error("{0}")]
    Field(#[from] serde_json::Error),
}

/// The parts of the object.
#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

/// The parts of its spec.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecOutline<'a> {
    #[serde(borrow, default)]
    options: Option<&'a RawValue>,
    #[serde(borrow, default)]
    staged_options: Option<&'a RawValue>,
}

fn weigh(part: Option<&RawValue>) -> usize {
    part.map_or(0, |part| json::weigh(part.get().as_bytes()))
}

impl RawObject<BundleDeployment> {
    /// The part of the BundleDeployment that is kept: all, or all but most of its options, with [`BundleDeploymentSpec::left_out`].
    ///
    /// # Errors
    /// As [`RawObject::whole`], or the part to be kept is too large.
    pub fn kept(&self) -> Result<BundleDeployment, UnreadableBundle> {
        let (mut bundle, weight) = self.whole()?;
        if weight > KEPT_OPTIONS && bundle.spec.left_out.is_none() {
            bundle.spec.left_out = Some(LeftOut::Large(self.digest()?));
        }
        if bundle.spec.left_out.is_some() {
            bundle.spec.staged_options = BundleDeploymentOptions::default();
            bundle.spec.options = abridged(std::mem::take(&mut bundle.spec.options));
            if serde_json::to_vec(&bundle.spec.options)?.len() > MAX_NAMES {
                return Err(UnreadableBundle::Names);
            }
        }
        Ok(bundle)
    }

    /// The whole BundleDeployment, and the weight of its options in bytes; but for what of [`LeftOut::Refused`] options has too many elements.
    ///
    /// # Errors
    /// The object is nested too deep, takes too much, or has a field of the wrong type.
    pub fn whole(&self) -> Result<(BundleDeployment, usize), UnreadableBundle> {
        let metadata = self.metadata.clone();
        let labels = metadata.labels.iter().chain(&metadata.annotations);
        if labels.map(|all| all.len()).sum::<usize>() > MAX_LABELS {
            return Err(UnreadableBundle::Labels);
        }
        let outline: Outline<'_> = serde_json::from_str(self.text())?;
        let status = match outline.status {
            Some(_) if weigh(outline.status) > MAX_STATUS => return Err(UnreadableBundle::Status),
            Some(status) => serde_json::from_str::<Option<_>>(status.get())?.unwrap_or_default(),
            None => BundleDeploymentStatus::default(),
        };
        let (mut spec, weight, refused) = match outline.spec {
            Some(spec) => read_spec(spec)?,
            None => (BundleDeploymentSpec::default(), 0, None),
        };
        if let Some(too_many) = refused {
            spec.left_out = Some(LeftOut::Refused(self.digest()?, too_many));
        }
        let bundle = BundleDeployment {
            metadata,
            spec,
            status,
        };
        Ok((bundle, weight))
    }

    /// Whether this is what the watch has told of a BundleDeployment whose options are left out there: the same spec, labels and annotations.
    ///
    /// # Errors
    /// As [`RawObject::whole`].
    pub fn has_identity_of(&self, delivered: &BundleDeployment) -> Result<bool, UnreadableBundle> {
        let has_options = match &delivered.spec.left_out {
            None => true,
            Some(LeftOut::Large(digest) | LeftOut::Refused(digest, _)) => self.digest()? == *digest,
        };
        Ok(has_options && SpecIdentity::of(&self.metadata).is_of(&delivered.metadata))
    }

    /// Of the options as they were sent: upstream writes equal ones alike.
    fn digest(&self) -> Result<[u8; 32], UnreadableBundle> {
        let outline: Outline<'_> = serde_json::from_str(self.text())?;
        let halves = outline_of(outline.spec)?;
        let mut digest = Sha256::new();
        for half in [halves.options, halves.staged_options] {
            let text = half.map_or("", RawValue::get);
            digest.update(text.len().to_le_bytes());
            digest.update(text);
        }
        Ok(digest.finalize().into())
    }
}

fn outline_of(spec: Option<&RawValue>) -> Result<SpecOutline<'_>, UnreadableBundle> {
    let outline = spec.map(|spec| serde_json::from_str::<Option<_>>(spec.get()));
    Ok(outline.transpose()?.flatten().unwrap_or_default())
}

/// The spec, what its options weigh, and why they are not worked on.
fn read_spec(
    text: &RawValue,
) -> Result<(BundleDeploymentSpec, usize, Option<TooMany>), UnreadableBundle> {
    let outline = outline_of(Some(text))?;
    let options = weigh(outline.options).saturating_add(weigh(outline.staged_options));
    let all = weigh(Some(text));
    if all > MAX_SPEC {
        return Err(UnreadableBundle::Spec);
    }
    let mut budget = Budget::new(usize::MAX);
    let spec = json::decode_within(text.get().as_bytes(), &mut budget);
    let mut spec = spec.map_err(|failed| match failed {
        json::Error::Syntax { message, .. } if message.contains("depth") => {
            UnreadableBundle::TooDeep
        }
        other => UnreadableBundle::Field(serde::de::Error::custom(other)),
    })?;
    let refused = too_many(&spec);
    let is_rest_large = all.saturating_sub(options) > MAX_REST;
    if refused.is_none() && is_rest_large {
        return Err(UnreadableBundle::Rest);
    }
    if refused.is_some() {
        // What others ask for stays: what the bundle set, copied and took is still there.
        for half in ["options", "stagedOptions"] {
            if let Some(options) = spec.get_mut(half) {
                cut_too_many(options, &COUNTED, false);
            }
        }
        cut_too_many(&mut spec, &SPEC_COUNTED, is_rest_large);
    }
    // Serde reads values by recursion, and they may be anything.
    let values = take_values(&mut spec, "/options/helm");
    let staged = take_values(&mut spec, "/stagedOptions/helm");
    if !is_shallow(&spec, MAX_FIELD_DEPTH) {
        return Err(UnreadableBundle::FieldTooDeep);
    }
    let mut spec =
        serde_json::from_value::<Option<BundleDeploymentSpec>>(spec)?.unwrap_or_default();
    for (options, values) in [
        (&mut spec.options, values),
        (&mut spec.staged_options, staged),
    ] {
        if let (Some(helm), Some(values)) = (&mut options.helm, values) {
            helm.values = Some(values);
        }
    }
    Ok((spec, options, refused))
}

fn take_values(spec: &mut Value, helm: &str) -> Option<Map<String, Value>> {
    let helm = spec.pointer_mut(helm)?.as_object_mut()?;
    match helm.remove("values")? {
        Value::Object(values) => Some(values),
        other => {
            helm.insert("values".to_owned(), other);
            None
        }
    }
}

fn is_shallow(value: &Value, levels: usize) -> bool {
    let mut inside: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(map) => Box::new(map.values()),
        _ => return true,
    };
    levels > 0 && inside.all(|value| is_shallow(value, levels - 1))
}

/// The options that other bundles ask for, and those that decide whether the bundle is worked on.
fn abridged(options: BundleDeploymentOptions) -> BundleDeploymentOptions {
    let helm = options.helm.map(|helm| HelmOptions {
        values: None,
        template_values: Default::default(),
        values_from: Vec::new(),
        values_files: Vec::new(),
        ..helm
    });
    BundleDeploymentOptions {
        helm,
        yaml: None,
        kustomize: None,
        diff: None,
        ignore_options: None,
        allowed_target_namespace_selector: None,
        ..options
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn received(bundle: &Value) -> RawObject<BundleDeployment> {
        serde_json::from_str(&bundle.to_string()).unwrap()
    }

    fn with_options(options: Value) -> RawObject<BundleDeployment> {
        received(
            &json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "spec": {
            "deploymentID": "s-1:x", "options": options, "stagedOptions": {},
        }, "status": {"ready": true}}),
        )
    }

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }))
    }

    #[test]
    fn an_ordinary_bundle_is_stored_unchanged() {
        let bundle = json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": {
            "deploymentID": "s-1:x", "dependsOn": [{"name": "b"}], "stagedOptions": null,
            "options": {"helm": {"releaseName": "r", "values": {"a": {"b": [1, "x"]}}}, "defaultNamespace": "d"},
        }, "status": {"ready": true}});
        let kept = received(&bundle).kept().unwrap();
        assert_eq!(kept, serde_json::from_value(bundle).unwrap());
        assert_eq!(kept.spec.left_out, None);
        assert!(
            received(&json!({"metadata": {"name": "a"}, "spec": null, "status": null}))
                .kept()
                .is_ok()
        );
    }

    #[test]
    fn values_nest_as_deep_as_documents_may() {
        let deep = with_options(json!({"helm": {"values": nested(900)}}));
        let (bundle, _) = deep.whole().unwrap();
        assert_eq!(bundle.spec.options.helm.unwrap().values.unwrap().len(), 1);
        let refused = [
            (
                json!({"helm": {"values": nested(1_100)}}),
                "spec is nested deeper than 1000 levels",
            ),
            (
                json!({"unknown": nested(200)}),
                "spec is nested deeper than 100 levels, and not in helm.values",
            ),
            (
                json!({"helm": {"values": {"a": 1}}, "serviceAccount": 7}),
                "invalid type: integer `7`, expected a string",
            ),
        ];
        for (options, wanted) in refused {
            assert_eq!(
                with_options(options).kept().unwrap_err().to_string(),
                wanted
            );
        }
    }

    #[test]
    fn only_the_names_and_flags_of_large_options_are_kept() {
        let many = vec![json!({"kind": "x"}); 1_000];
        let options = |values: Value| {
            with_options(
                json!({"diff": {"comparePatches": many}, "defaultNamespace": "d", "keepResources": true,
                "helm": {"releaseName": "r", "takeOwnership": true, "values": values}}),
            )
        };
        let received = options(json!({"a": 1}));
        let (whole, weight) = received.whole().unwrap();
        assert!(weight > KEPT_OPTIONS && whole.spec.options.diff.is_some());
        let kept = received.kept().unwrap();
        let helm = kept.spec.options.helm.as_ref().unwrap();
        assert_eq!(
            (helm.release_name.as_str(), helm.take_ownership),
            ("r", true)
        );
        assert_eq!(kept.spec.options.release_namespace(), "d");
        assert!(
            kept.spec.options.keep_resources
                && kept.spec.options.diff.is_none()
                && helm.values.is_none()
        );
        assert_eq!(
            (kept.metadata.clone(), kept.status.clone()),
            (whole.metadata, whole.status)
        );
        // A change of options that are not kept is seen all the same.
        assert_ne!(options(json!({"a": 2})).kept().unwrap().spec, kept.spec);
        assert_eq!(options(json!({"a": 1})).kept().unwrap().spec, kept.spec);
    }

    #[test]
    fn a_bundle_beyond_the_limits_names_the_field() {
        let many = |count: usize| Value::from(vec![json!({}); count]);
        let labels: Map<_, _> = (0..=MAX_LABELS)
            .map(|at| (format!("l{at}"), json!("")))
            .collect();
        for (bundle, wanted) in [
            (
                json!({"spec": {"options": {"helm": {"values": {"a": many(470_000), "b": many(470_000)}}}}}),
                "spec takes more than 24 MiB once it is read",
            ),
            (
                json!({"spec": {"options": {"serviceAccount": "x".repeat(600 << 10)}}}),
                "overwrites of spec.options take more than 256 KiB",
            ),
            (
                json!({"spec": {"deploymentID": "x".repeat(2 << 20)}}),
                "spec takes more than 1 MiB beside its options",
            ),
            (
                json!({"status": {"resources": many(300_000)}}),
                "status takes more than 8 MiB",
            ),
            (
                json!({"metadata": {"labels": labels}}),
                "more than 10000 labels",
            ),
        ] {
            let error = received(&bundle).kept().unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }

    /// A value with so many elements at a path, one list or map for each of what leads there.
    fn with(path: &str, elements: usize) -> Value {
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let inside = match rest {
            "" if path.ends_with("[]")
                || path.ends_with("Labels")
                || path.ends_with("Annotations")
                || path.ends_with("templateValues") =>
            {
                (0..elements)
                    .map(|at| (format!("k{at}"), json!("v")))
                    .collect::<Map<_, _>>()
                    .into()
            }
            "" => json!(vec![element_of(path); elements]),
            rest => with(rest, elements),
        };
        match first {
            "[]" => json!([inside]),
            name => json!({ name: inside }),
        }
    }

    fn element_of(list: &str) -> Value {
        let of_texts = [
            "jsonPointers",
            "overlays",
            "valuesFiles",
            "acceptedStates",
            "values",
        ];
        match of_texts.contains(&list) {
            true => json!("x"),
            false => json!({}),
        }
    }

    #[test]
    fn a_bundle_with_too_many_elements_is_stored_as_malformed() {
        let options = COUNTED.map(|(path, most)| ("options/", path, most));
        let rest = SPEC_COUNTED.map(|(path, most)| ("", path, most));
        for (half, path, most) in options.into_iter().chain(rest) {
            let path = format!("{half}{path}");
            let bundle = |elements| {
                let mut bundle = json!({"metadata": {"name": "a"}, "spec": with(&path, elements)});
                bundle["spec"]["options"]["defaultNamespace"] = "d".into();
                received(&bundle).kept()
            };
            let enough = bundle(most).map(|kept| kept.spec.left_out);
            assert!(
                matches!(enough, Ok(None | Some(LeftOut::Large(_)))),
                "{path}: {enough:?}"
            );
            let kept = bundle(most + 1).unwrap();
            let Some(LeftOut::Refused(_, too_many)) = &kept.spec.left_out else {
                panic!("{path}: {kept:?}");
            };
            assert_eq!(too_many.most, most);
            assert_eq!(
                too_many.field,
                format!("spec.{}", path.replace("/[]", "[]").replace('/', "."))
            );
            assert_eq!(kept.spec.options.release_namespace(), "d");
            assert!(kept.spec.depends_on.is_empty() && kept.spec.options.overwrites.is_empty());
        }
        let two = with_options(json!({"overwrites": vec![json!({}); 1_001],
            "namespaceLabels": {"team": "a"}, "downstreamResources": [{"kind": "Secret", "name": "pull"}]}));
        let options = two.kept().unwrap().spec.options;
        assert!(options.overwrites.is_empty());
        assert_eq!(options.namespace_labels.unwrap()["team"], "a");
        assert_eq!(options.downstream_resources[0].name, "pull");
        let long = json!({"spec": {"options": {"overwrites": vec![json!({}); 1_001]},
            "dependsOn": [{"name": "x".repeat(2 << 20)}]}});
        assert!(received(&long).kept().unwrap().spec.depends_on.is_empty());
        let millions =
            json!({"spec": {"options": {"diff": {"comparePatches": vec![json!({}); 460_000]}}}});
        let kept = received(&millions).kept().unwrap();
        assert!(matches!(kept.spec.left_out, Some(LeftOut::Refused(..))));
    }
}
