//! Transformers, generators and validators with a configuration of their own, in the file or beside it.

use super::directory::Directory;
use super::objects::{NAMESPACES, labels};
use super::tree::{Tree, list, map, raw, text};

const TRANSFORMERS: [&str; 15] = [
    "LabelTransformer",
    "AnnotationsTransformer",
    "NamespaceTransformer",
    "PrefixTransformer",
    "SuffixTransformer",
    "PrefixSuffixTransformer",
    "ImageTagTransformer",
    "ReplicaCountTransformer",
    "PatchTransformer",
    "PatchJson6902Transformer",
    "PatchStrategicMergeTransformer",
    "ReplacementTransformer",
    "ValueAddTransformer",
    "ValueAddTransformer",
    "HashTransformer",
];

impl Directory<'_, '_> {
    fn head(&mut self, kind: &str, name: &str) -> Tree {
        let version = self.maker.mostly(&["builtin"], &["example.com/v1", "v1"]);
        let mut metadata = map([("name", text(name))]);
        if self.maker.chance(if kind == "NamespaceTransformer" {
            95
        } else {
            30
        }) {
            metadata.set("namespace", text(self.maker.pick(&NAMESPACES)));
        }
        map([
            ("apiVersion", raw(version)),
            ("kind", raw(kind)),
            ("metadata", metadata),
        ])
    }

    /// Nothing where it would have nothing to change.
    fn transformer(&mut self, number: usize) -> Option<Tree> {
        let odd = [
            "ConfigMapGenerator",
            "SecretGenerator",
            "IAMPolicyGenerator",
            "HelmChartInflationGenerator",
            "OddTransformer",
        ];
        let kind = self.maker.mostly(&TRANSFORMERS, &odd).to_owned();
        let mut made = self.head(&kind, &format!("plugin-{number}"));
        let mut fields = None;
        match kind.as_str() {
            "LabelTransformer" => {
                made.set("labels", labels(self.maker));
                fields = Some("labels");
            }
            "AnnotationsTransformer" => {
                made.set("annotations", labels(self.maker));
                fields = Some("labels");
            }
            "NamespaceTransformer" => {
                if self.maker.chance(50) {
                    made.set("unsetOnly", raw("true"));
                }
                if self.maker.chance(60) {
                    let usual = ["allServiceAccounts", "defaultOnly", "none"];
                    made.set(
                        "setRoleBindingSubjects",
                        text(self.maker.mostly(&usual, &["odd"])),
                    );
                }
                fields = Some("namespace");
            }
            "PrefixTransformer" | "SuffixTransformer" | "PrefixSuffixTransformer" => {
                if kind != "SuffixTransformer" {
                    made.set("prefix", text("t-"));
                }
                if kind != "PrefixTransformer" {
                    made.set("suffix", text("-t"));
                }
                if !self.maker.fault(20) {
                    made.set("fieldSpecs", list([self.field_spec("name")]));
                }
            }
            "ImageTagTransformer" => {
                made.set(
                    "imageTag",
                    map([("name", text("nginx")), ("newTag", text("t"))]),
                );
                fields = Some("text");
            }
            "ReplicaCountTransformer" => {
                let at =
                    self.any_of(|object| matches!(object.kind(), "Deployment" | "StatefulSet"))?;
                made.set(
                    "replica",
                    map([("name", text(self.name_of(at))), ("count", raw("9"))]),
                );
                let kind = self.objects[at].kind().to_owned();
                let spec = map([
                    ("path", text("spec/replicas")),
                    ("create", raw("true")),
                    ("kind", raw(kind)),
                ]);
                made.set("fieldSpecs", list([spec]));
            }
            "PatchTransformer" => {
                if let Tree::Map(entries) = self.patch()? {
                    for (key, value) in entries {
                        made.set(&key, value);
                    }
                }
            }
            "PatchJson6902Transformer" => {
                let at = self.any_of(|_| true)?;
                made.set("target", self.plain_target(at));
                let operations = self.operations(at);
                made.set("jsonOp", text(self.written(&operations)));
            }
            "PatchStrategicMergeTransformer" => {
                let patch = self.patch()?;
                match patch.get("patch").and_then(Tree::scalar) {
                    Some(content) if patch.get("target").is_none() => {
                        made.set("patches", text(content))
                    }
                    _ => return None,
                }
            }
            "ReplacementTransformer" => {
                let replacement = self.replacement()?;
                made.set("replacements", list([replacement]));
            }
            "ValueAddTransformer" => self.value_add(&mut made)?,
            "ConfigMapGenerator" | "SecretGenerator" => made.set("literals", list([text("a=b")])),
            _ => {}
        }
        if let Some(fields) = fields
            && self.maker.chance(60)
        {
            made.set("fieldSpecs", list([self.field_spec(fields)]));
        }
        Some(made)
    }

    fn value_add(&mut self, made: &mut Tree) -> Option<()> {
        if self.maker.chance(85) {
            made.set(
                "value",
                text(self.maker.pick(&["added", "prod", " spaced "])),
            );
        }
        let at =
            self.any_of(|object| matches!(object.kind(), "Widget" | "ConfigMap" | "Deployment"))?;
        let paths: &[&str] = match self.objects[at].kind() {
            "Widget" => &[
                "spec/size",
                "spec/secretRef/name",
                "spec/new",
                "spec/items/0/name",
            ],
            "ConfigMap" => &["data/a", "data/new", "metadata/annotations/new"],
            _ => &[
                "spec/template/spec/containers/[name=main]/image",
                "metadata/labels/team",
                "/spec/paused",
            ],
        };
        let path = match self.maker.chance(20) {
            true => "metadata/namespace",
            false => self
                .maker
                .mostly(paths, &["", "spec", "metadata/name/deep"]),
        };
        let mut target = map([("fieldPath", text(path))]);
        if self.maker.chance(90) {
            let selector = self.target(at, true);
            target.set("selector", selector);
        }
        if self.maker.chance(40) {
            target.set(
                "filePathPosition",
                raw(self.maker.mostly(&["0", "1", "2", "9"], &["-1", "x"])),
            );
        }
        match self.maker.chance(75) {
            true => made.set("targets", list([target])),
            false => {
                let name = self.file("targets", &[map([("targets", list([target]))])]);
                made.set("targetFilePath", text(name));
            }
        }
        Some(())
    }

    /// In the file, beside it, or in a directory with a kustomization of its own.
    fn entry(&mut self, plugins: &[Tree]) -> String {
        match self.maker.below(5) {
            0 | 1 => self.file("plugin", plugins),
            2 => {
                let texts: Vec<String> =
                    plugins.iter().map(|plugin| self.written(plugin)).collect();
                let folder = self.folder("plugins");
                self.maker.files.insert(
                    self.path(&format!("{folder}/all.yaml")),
                    texts.join("---\n"),
                );
                let file = self.path(&format!("{folder}/kustomization.yaml"));
                self.maker
                    .files
                    .insert(file, "resources: [all.yaml]\n".to_owned());
                folder
            }
            _ => {
                let texts: Vec<String> =
                    plugins.iter().map(|plugin| self.written(plugin)).collect();
                texts.join("---\n")
            }
        }
    }

    pub(super) fn transformers(&mut self) {
        if self.kustomization.get("transformers").is_some() {
            return;
        }
        let count = 1 + self.maker.below(2);
        let plugins: Vec<Tree> = (0..count)
            .filter_map(|number| self.transformer(number))
            .collect();
        if !plugins.is_empty() {
            let entry = self.entry(&plugins);
            self.push("transformers", text(entry));
        }
    }

    pub(super) fn generators(&mut self) {
        let kind = self
            .maker
            .mostly(&["ConfigMap", "Secret"], &["Odd", "IAMPolicy"])
            .to_owned();
        let arguments = self.generator(&kind);
        let name = arguments
            .get("name")
            .and_then(Tree::scalar)
            .unwrap_or("unnamed")
            .to_owned();
        let mut made = self.head(&format!("{kind}Generator"), &name);
        if let Tree::Map(entries) = arguments {
            for (key, value) in entries.into_iter().filter(|(key, _)| key != "name") {
                made.set(&key, value);
            }
        }
        let entry = self.entry(&[made]);
        self.push("generators", text(entry));
    }

    /// What may look at everything and change nothing.
    pub(super) fn validators(&mut self) {
        let plugin = match self.maker.fault(40) {
            true => self.transformer(7),
            false => Some(self.head("LabelTransformer", "validator")),
        };
        if let Some(plugin) = plugin {
            let entry = self.entry(&[plugin]);
            self.push("validators", text(entry));
        }
    }
}
