//! The fields of a kustomization file (`types/kustomization.go`), read as strictly as kustomize reads them.

use serde_json::{Map, Value};

use crate::config::FieldSpec;
use crate::decode::{Decoder, PatchStrategicMerge, SortOrder, Write, go_structs};
use crate::error::{Context as _, Error, Result};
use crate::fns::Texts;
use crate::loader::Build;
use crate::resid::{Gvk, ResId};

pub(crate) const KIND: &str = "Kustomization";
pub(crate) const COMPONENT: &str = "Component";
const VERSION: &str = "kustomize.config.k8s.io/v1beta1";
const COMPONENT_VERSION: &str = "kustomize.config.k8s.io/v1alpha1";

/// The names a kustomization file may have.
pub(crate) const FILE_NAMES: [&str; 3] =
    ["kustomization.yaml", "kustomization.yml", "Kustomization"];

impl Gvk {
    pub(crate) const GO: &'static str = "Gvk";

    pub(crate) fn embedding(_: &str) -> Vec<&'static str> {
        Vec::new()
    }

    pub(crate) fn known() -> Vec<&'static str> {
        vec!["group", "version", "kind"]
    }

    pub(crate) fn take(&mut self, decoder: &mut Decoder, field: &str, value: &Value) -> bool {
        match field {
            "group" => decoder.field(&mut self.group, value),
            "version" => decoder.field(&mut self.version, value),
            "kind" => decoder.field(&mut self.kind, value),
            _ => return false,
        }
        true
    }
}

impl ResId {
    pub(crate) const GO: &'static str = "ResId";

    pub(crate) fn embedding(field: &str) -> Vec<&'static str> {
        if Gvk::known().contains(&field) {
            vec![Gvk::GO]
        } else {
            Vec::new()
        }
    }

    pub(crate) fn known() -> Vec<&'static str> {
        vec!["group", "version", "kind", "name", "namespace"]
    }

    pub(crate) fn take(&mut self, decoder: &mut Decoder, field: &str, value: &Value) -> bool {
        match field {
            "name" => decoder.field(&mut self.name, value),
            "namespace" => decoder.field(&mut self.namespace, value),
            _ => return self.gvk.take(decoder, field, value),
        }
        true
    }
}

impl Write for Gvk {
    fn write(&self) -> Option<Value> {
        let fields = [
            ("group", &self.group),
            ("version", &self.version),
            ("kind", &self.kind),
        ];
        Some(texts(&fields))
    }
}

impl Write for ResId {
    fn write(&self) -> Option<Value> {
        Some(texts(&[
            ("group", &self.gvk.group),
            ("version", &self.gvk.version),
            ("kind", &self.gvk.kind),
            ("name", &self.name),
            ("namespace", &self.namespace),
        ]))
    }
}

fn texts(fields: &[(&str, &String)]) -> Value {
    let given = fields.iter().filter(|(_, text)| !text.is_empty());
    given
        .map(|(name, text)| ((*name).to_owned(), Value::from(text.as_str())))
        .collect()
}

go_structs! {
    /// The whole file.
    Kustomization = "Kustomization" {
        metadata: "metadata" = Option<ObjectMeta>,
        openapi: "openapi" = Texts,
        name_prefix: "namePrefix" = String,
        name_suffix: "nameSuffix" = String,
        namespace: "namespace" = String,
        common_labels: "commonLabels" = Option<Texts>,
        labels: "labels" = Vec<Label>,
        common_annotations: "commonAnnotations" = Texts,
        patches_strategic_merge: "patchesStrategicMerge" = Option<Vec<PatchStrategicMerge>>,
        patches_json6902: "patchesJson6902" = Option<Vec<Patch>>,
        patches: "patches" = Vec<Patch>,
        images: "images" = Vec<Image>,
        image_tags: "imageTags" = Option<Vec<Image>>,
        replacements: "replacements" = Vec<ReplacementField>,
        replicas: "replicas" = Vec<Replica>,
        vars: "vars" = Option<Vec<Var>>,
        sort_options: "sortOptions" = Option<SortOptions>,
        resources: "resources" = Vec<String>,
        components: "components" = Vec<String>,
        crds: "crds" = Vec<String>,
        bases: "bases" = Option<Vec<String>>,
        config_map_generator: "configMapGenerator" = Vec<ConfigMapArgs>,
        secret_generator: "secretGenerator" = Vec<SecretArgs>,
        helm_globals: "helmGlobals" = Option<HelmGlobals>,
        helm_charts: "helmCharts" = Vec<HelmChart>,
        helm_chart_inflation_generator: "helmChartInflationGenerator" = Vec<HelmChartArgs>,
        generator_options: "generatorOptions" = Option<GeneratorOptions>,
        configurations: "configurations" = Vec<String>,
        generators: "generators" = Vec<String>,
        transformers: "transformers" = Vec<String>,
        validators: "validators" = Vec<String>,
        build_metadata: "buildMetadata" = Vec<String>,
        + types: TypeMeta,
    }
    HelmGlobals = "HelmGlobals" {
        chart_home: "chartHome" = String,
        config_home: "configHome" = String,
    }
    /// A chart that would be inflated. Only its name is used, to refuse it.
    HelmChart = "HelmChart" {
        name: "name" = String,
        version: "version" = String,
        repo: "repo" = String,
        release_name: "releaseName" = String,
        namespace: "namespace" = String,
        additional_values_files: "additionalValuesFiles" = Vec<String>,
        values_file: "valuesFile" = String,
        values_inline: "valuesInline" = Map<String, Value>,
        values_merge: "valuesMerge" = String,
        include_crds: "includeCRDs" = bool,
        skip_hooks: "skipHooks" = bool,
        api_versions: "apiVersions" = Vec<String>,
        kube_version: "kubeVersion" = String,
        name_template: "nameTemplate" = String,
        skip_tests: "skipTests" = bool,
        debug: "debug" = bool,
        devel: "devel" = bool,
    }
    /// Fields of a Helm chart in `helmChartInflationGenerator`, the former name of `helmCharts`.
    HelmChartArgs = "HelmChartArgs" {
        chart_name: "chartName" = String,
        chart_version: "chartVersion" = String,
        chart_repo_url: "chartRepoUrl" = String,
        chart_home: "chartHome" = String,
        chart_repo_name: "chartRepoName" = String,
        helm_bin: "helmBin" = String,
        helm_home: "helmHome" = String,
        values: "values" = String,
        values_local: "valuesLocal" = Map<String, Value>,
        values_merge: "valuesMerge" = String,
        release_name: "releaseName" = String,
        release_namespace: "releaseNamespace" = String,
        extra_args: "extraArgs" = Vec<String>,
    }
    TypeMeta = "TypeMeta" {
        kind: "kind" = String,
        api_version: "apiVersion" = String,
    }
    ObjectMeta = "ObjectMeta" {
        name: "name" = String,
        namespace: "namespace" = String,
        labels: "labels" = Texts,
        annotations: "annotations" = Texts,
    }
    Label = "Label" {
        pairs: "pairs" = Texts,
        include_selectors: "includeSelectors" = bool,
        include_templates: "includeTemplates" = bool,
        field_specs: "fields" = Vec<FieldSpec>,
    }
    /// A patch, or what it is applied to by name (`patchesJson6902`).
    Patch = "Patch" {
        path: "path" = String,
        patch: "patch" = String,
        target: "target" = Option<Selector>,
        options: "options" = Option<PatchArgs>,
    }
    PatchArgs = "PatchArgs" {
        allow_name_change: "allowNameChange" = bool,
        allow_kind_change: "allowKindChange" = bool,
    }
    /// Selects objects; texts are regular expressions.
    Selector = "Selector" {
        annotation_selector: "annotationSelector" = String,
        label_selector: "labelSelector" = String,
        + id: ResId,
    }
    Image = "Image" {
        name: "name" = String,
        new_name: "newName" = String,
        tag_suffix: "tagSuffix" = String,
        new_tag: "newTag" = String,
        digest: "digest" = String,
    }
    Replica = "Replica" {
        name: "name" = String,
        count: "count" = i64,
    }
    ReplacementField = "ReplacementField" {
        path: "path" = String,
        + replacement: Replacement,
    }
    Replacement = "Replacement" {
        source: "source" = Option<SourceSelector>,
        targets: "targets" = Option<Vec<Option<TargetSelector>>>,
        source_value: "sourceValue" = Option<String>,
    }
    SourceSelector = "SourceSelector" {
        field_path: "fieldPath" = String,
        options: "options" = Option<FieldOptions>,
        + id: ResId,
    }
    TargetSelector = "TargetSelector" {
        select: "select" = Option<Selector>,
        reject: "reject" = Vec<Option<Selector>>,
        field_paths: "fieldPaths" = Vec<String>,
        options: "options" = Option<FieldOptions>,
    }
    FieldOptions = "FieldOptions" {
        delimiter: "delimiter" = String,
        index: "index" = isize,
        encoding: "encoding" = String,
        create: "create" = bool,
    }
    Var = "Var" {
        name: "name" = String,
        object: "objref" = Target,
        field: "fieldref" = FieldSelector,
    }
    Target = "Target" {
        api_version: "apiVersion" = String,
        name: "name" = String,
        namespace: "namespace" = String,
        + gvk: Gvk,
    }
    FieldSelector = "FieldSelector" {
        field_path: "fieldPath" = String,
    }
    SortOptions = "SortOptions" {
        order: "order" = SortOrder,
        legacy: "legacySortOptions" = Option<LegacySortOptions>,
    }
    LegacySortOptions = "LegacySortOptions" {
        first: "orderFirst" = Vec<String>,
        last: "orderLast" = Vec<String>,
    }
    GeneratorOptions = "GeneratorOptions" {
        labels: "labels" = Texts,
        annotations: "annotations" = Texts,
        disable_name_suffix_hash: "disableNameSuffixHash" = bool,
        immutable: "immutable" = bool,
    }
    /// The sources that config maps and secrets are generated from.
    GeneratorArgs = "GeneratorArgs" {
        namespace: "namespace" = String,
        name: "name" = String,
        behavior: "behavior" = String,
        options: "options" = Option<GeneratorOptions>,
        + sources: KvPairSources,
    }
    KvPairSources = "KvPairSources" {
        literals: "literals" = Vec<String>,
        files: "files" = Vec<String>,
        envs: "envs" = Vec<String>,
        env: "env" = String,
    }
    ConfigMapArgs = "ConfigMapArgs" {
        + args: GeneratorArgs,
    }
    SecretArgs = "SecretArgs" {
        secret_type: "type" = String,
        + args: GeneratorArgs,
    }
}

impl Kustomization {
    /// Reads and completes a file. Deprecated fields lead to the build's warnings.
    ///
    /// # Errors
    /// In kustomize's words.
    pub(crate) fn parse(
        text: &[u8],
        first: Option<&str>,
        root: &str,
        build: &Build<'_>,
    ) -> Result<Self> {
        let value = crate::decode::yaml_to_json(text, build).context("invalid Kustomization")?;
        let mut own: Self = if value.is_null() {
            Self::default()
        } else {
            Decoder::new(true, build)
                .read(&value, build)
                .context("invalid Kustomization")?
        };
        own.warn(&mut build.warnings.borrow_mut());
        if let Some(first) = first
            && !own.resources.iter().any(|own| own == first)
        {
            own.resources.insert(0, first.to_owned());
        }
        own.complete();
        if Self::is_empty(&value) && first.is_none() {
            return Err(Error::new("kustomization.yaml is empty"));
        }
        own.check(root)?;
        Ok(own)
    }

    fn warn(&self, warnings: &mut Vec<String>) {
        let mut warn = |is_there: bool, old: &str, new: &str, fix: &str| {
            if is_there {
                warnings.push(format!(
                    "# Warning: '{old}' is deprecated. Please use '{new}' instead. {fix}Run 'kustomize edit fix' to update your \
                     Kustomization automatically."
                ));
            }
        };
        warn(self.bases.is_some(), "bases", "resources", "");
        warn(self.common_labels.is_some(), "commonLabels", "labels", "");
        warn(self.image_tags.is_some(), "imageTags", "images", "");
        warn(
            self.patches_json6902.is_some(),
            "patchesJson6902",
            "patches",
            "",
        );
        warn(
            self.patches_strategic_merge.is_some(),
            "patchesStrategicMerge",
            "patches",
            "",
        );
        warn(
            self.vars.is_some(),
            "vars",
            "replacements",
            "[EXPERIMENTAL] ",
        );
    }

    /// `FixKustomization`.
    fn complete(&mut self) {
        if self.types.kind.is_empty() {
            KIND.clone_into(&mut self.types.kind);
        }
        if self.types.api_version.is_empty() {
            let version = if self.types.kind == COMPONENT {
                COMPONENT_VERSION
            } else {
                VERSION
            };
            version.clone_into(&mut self.types.api_version);
        }
        self.resources
            .extend(self.bases.take().into_iter().flatten());
        self.images
            .extend(self.image_tags.take().into_iter().flatten());
        let configs = self
            .config_map_generator
            .iter_mut()
            .map(|args| &mut args.args.sources);
        let secrets = self
            .secret_generator
            .iter_mut()
            .map(|args| &mut args.args.sources);
        for args in configs.chain(secrets) {
            if !args.env.is_empty() {
                args.envs.push(std::mem::take(&mut args.env));
            }
        }
        for chart in std::mem::take(&mut self.helm_chart_inflation_generator) {
            self.helm_charts.push(HelmChart {
                name: chart.chart_name,
                ..HelmChart::default()
            });
        }
    }

    /// Whether a kustomization has nothing but its type. A list or map that is there and empty counts as something.
    fn is_empty(value: &Value) -> bool {
        let Some(entries) = value.as_object() else {
            return true;
        };
        entries.iter().all(|(key, value)| {
            let is = |name: &str| key.eq_ignore_ascii_case(name);
            let is_zero = match value {
                Value::Null => true,
                Value::String(text) => text.is_empty(),
                // Lists that are moved into others leave nothing when they are empty.
                Value::Array(items) => {
                    items.is_empty()
                        && ["bases", "imageTags", "helmChartInflationGenerator"]
                            .into_iter()
                            .any(is)
                }
                _ => false,
            };
            is("kind") || is("apiVersion") || is_zero
        })
    }

    fn check(&self, root: &str) -> Result<()> {
        let mut problems = Vec::new();
        if self.types.kind != KIND && self.types.kind != COMPONENT {
            problems.push(format!("kind should be {KIND} or {COMPONENT}"));
        }
        let required = if self.types.kind == COMPONENT {
            COMPONENT_VERSION
        } else {
            VERSION
        };
        if self.types.api_version != required {
            problems.push(format!(
                "apiVersion for {} should be {required}",
                self.types.kind
            ));
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::new(format!(
            "Failed to read kustomization file under {root}:\n{}",
            problems.join("\n")
        )))
    }
}

impl Target {
    /// The type, with what the API version says of it.
    pub(crate) fn full_gvk(&self) -> Gvk {
        let mut gvk = self.gvk.clone();
        if self.api_version.is_empty() {
            return gvk;
        }
        let parts: Vec<&str> = self.api_version.split('/').collect();
        match parts.as_slice() {
            [group, version] => {
                (*group).clone_into(&mut gvk.group);
                (*version).clone_into(&mut gvk.version);
            }
            [version] => (*version).clone_into(&mut gvk.version),
            _ => {}
        }
        gvk
    }
}

impl GeneratorOptions {
    /// `MergeGlobalOptionsIntoLocal`.
    pub(crate) fn merged(local: Option<&Self>, global: Option<&Self>) -> Option<Self> {
        let Some(global) = global else {
            return local.cloned();
        };
        let mut merged = local.cloned().unwrap_or_default();
        let fill = |own: &mut Texts, others: &Texts| {
            for (key, value) in others {
                own.entry(key.clone()).or_insert_with(|| value.clone());
            }
        };
        fill(&mut merged.labels, &global.labels);
        fill(&mut merged.annotations, &global.annotations);
        merged.disable_name_suffix_hash |= global.disable_name_suffix_hash;
        merged.immutable |= global.immutable;
        Some(merged)
    }
}
