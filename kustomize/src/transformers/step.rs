//! A step of a build, and the configurations that steps are made of.

use crate::config::FieldSpec;
use crate::decode::{PatchStrategicMerge, go_structs};
use crate::filters::namespace::Subjects;
use crate::fns::Texts;
use crate::json_patch::JsonPatch;
use crate::kustomization::{Image, ObjectMeta, Replacement, ReplacementField, Replica, Selector};
use crate::resource::Resource;

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
