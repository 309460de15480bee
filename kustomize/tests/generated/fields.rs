//! Kustomization files with every field, over bases and components, mostly right and now and then wrong.

use std::collections::BTreeMap;

use super::dice::Dice;
use super::objects::{self, IMAGES, NAMES, NAMESPACES, labels, scalar};
use super::tree::{Tree, list, map, raw, text};

/// Texts by their paths.
pub(super) type Files = BTreeMap<String, String>;

const FIELD_PATHS: [&str; 16] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.labels.app",
    "metadata.annotations.[example.com/owner]",
    "spec.replicas",
    "spec.template.spec.containers.0.image",
    "spec.template.spec.containers.[name=main].image",
    "spec.template.spec.containers.*.image",
    "spec.template.spec.containers.[name=main].env.[name=A].value",
    "spec.items.[name=a].value",
    "spec.items.*.value",
    "data.a",
    "data.[b.yaml]",
    "data.[b.yaml].a.b",
    "spec.missing.deep",
    "spec.ports.0.port",
];

/// Writes a directory to build, and those it leads to.
pub(super) fn write(dice: &mut Dice, directory: &str, depth: usize, files: &mut Files) {
    let mut writer = Fields {
        dice,
        files,
        directory: directory.to_owned(),
        kustomization: map::<&str>([]),
        count: 0,
    };
    writer.resources(depth);
    writer.fields();
    writer.finish();
}

struct Fields<'a> {
    dice: &'a mut Dice,
    files: &'a mut Files,
    directory: String,
    kustomization: Tree,
    count: usize,
}

impl Fields<'_> {
    fn path(&self, name: &str) -> String {
        match self.directory.as_str() {
            "." => name.to_owned(),
            directory => format!("{directory}/{name}"),
        }
    }

    /// A file of this directory with a document, or several.
    fn file(&mut self, name: &str, documents: &[Tree]) -> String {
        self.count += 1;
        let name = format!("{name}{}.yaml", self.count);
        let texts: Vec<String> = documents.iter().map(|tree| tree.write(self.dice)).collect();
        let start = if self.dice.chance(10) { "---\n" } else { "" };
        self.files
            .insert(self.path(&name), format!("{start}{}", texts.join("---\n")));
        name
    }

    fn set(&mut self, key: &str, value: Tree) {
        self.kustomization.set(key, value);
    }

    fn resources(&mut self, depth: usize) {
        let mut resources = Vec::new();
        for _ in 0..1 + self.dice.below(2) {
            let count = 1 + self.dice.below(3);
            let objects: Vec<Tree> = (0..count).map(|_| objects::any(self.dice)).collect();
            resources.push(text(self.file("r", &objects)));
        }
        if depth > 0 && self.dice.chance(45) {
            for name in ["base", "other"].into_iter().take(1 + self.dice.below(2)) {
                let directory = self.path(name);
                write(self.dice, &directory, depth - 1, self.files);
                resources.push(text(format!("{}{name}", self.dice.pick(&["", "./"]))));
            }
        }
        if self.dice.chance(2) {
            resources.push(text(self.dice.pick(&[
                "missing.yaml",
                "/r1.yaml",
                "../r1.yaml",
                "r1.yaml",
                ".",
                "",
            ])));
        }
        if self.dice.chance(95) {
            let field = self.dice.mostly(&["resources"], &["bases"]).to_owned();
            self.set(&field, list(resources));
        }
        if depth > 0 && self.dice.chance(12) {
            let directory = self.path("component");
            let mut component = Fields {
                dice: self.dice,
                files: self.files,
                directory,
                kustomization: map([
                    ("apiVersion", raw("kustomize.config.k8s.io/v1alpha1")),
                    ("kind", raw("Component")),
                ]),
                count: 0,
            };
            component.fields();
            component.finish();
            self.set("components", list([text("component")]));
        }
    }

    fn finish(self) {
        let mut written = self.kustomization.write(self.dice);
        if self.dice.chance(4) {
            written = torn(self.dice, &written);
        }
        let name = self.dice.mostly(
            &["kustomization.yaml"],
            &["kustomization.yml", "Kustomization"],
        );
        let path = self.path(name);
        self.files.insert(path, written);
    }

    fn fields(&mut self) {
        // Few at a time, so that most builds get to their end.
        let density = [6, 12, 25][self.dice.below(3)];
        let fields: [fn(&mut Self); 27] = [
            Self::namespace,
            Self::prefix,
            Self::suffix,
            Self::common_labels,
            Self::labels,
            Self::common_annotations,
            Self::images,
            Self::replicas,
            Self::config_maps,
            Self::config_maps,
            Self::secrets,
            Self::generator_options,
            Self::patches,
            Self::patches,
            Self::strategic_patches,
            Self::json_patches,
            Self::replacements,
            Self::replacements,
            Self::vars,
            Self::crds,
            Self::configurations,
            Self::open_api,
            Self::sort,
            Self::metadata,
            Self::transformers,
            Self::generators,
            Self::validators,
        ];
        let mut done = std::collections::BTreeSet::new();
        for (at, field) in fields.into_iter().enumerate() {
            if self.dice.chance(density) && done.insert(at) {
                field(self);
            }
        }
        if self.dice.chance(2) {
            let odd = self.dice.pick(&[
                "unknown",
                "namePrefixes",
                "kind",
                "helmGlobals",
                "imageTags",
                "NAMEPREFIX",
            ]);
            let odd = odd.to_owned();
            let value = scalar(self.dice);
            self.set(&odd, value);
        }
    }

    fn namespace(&mut self) {
        let namespace = self.dice.pick(&NAMESPACES);
        self.set("namespace", text(namespace));
    }

    fn prefix(&mut self) {
        let prefix = self.dice.pick(&["p-", "a-b-", "1"]);
        self.set("namePrefix", text(prefix));
    }

    fn suffix(&mut self) {
        let suffix = self.dice.pick(&["-s", "-v1"]);
        self.set("nameSuffix", text(suffix));
    }

    fn common_labels(&mut self) {
        let labels = labels(self.dice);
        self.set("commonLabels", labels);
    }

    fn common_annotations(&mut self) {
        let labels = labels(self.dice);
        self.set("commonAnnotations", labels);
    }

    fn labels(&mut self) {
        let mut label = map([("pairs", labels(self.dice))]);
        for field in ["includeSelectors", "includeTemplates"] {
            if self.dice.chance(35) {
                label.set(field, raw(self.dice.pick(&["true", "false"])));
            }
        }
        if self.dice.chance(25) {
            label.set("fields", list([self.field_spec()]));
        }
        self.set("labels", list([label]));
    }

    fn field_spec(&mut self) -> Tree {
        let path = self.dice.pick(&[
            "spec/template/metadata/labels",
            "spec/selector",
            "spec/size",
            "spec/items[]/value",
            "spec/items/value",
            "metadata/annotations",
            "spec/secretRef/name",
            "data/a",
        ]);
        let mut spec = map([("path", text(path))]);
        if self.dice.chance(50) {
            spec.set("create", raw("true"));
        }
        if self.dice.chance(50) {
            spec.set(
                "kind",
                raw(self
                    .dice
                    .pick(&["Deployment", "Widget", "Service", "ConfigMap"])),
            );
        }
        if self.dice.chance(20) {
            spec.set("group", raw(self.dice.pick(&["apps", "example.com"])));
        }
        spec
    }

    fn images(&mut self) {
        let count = 1 + self.dice.below(2);
        let images = (0..count).map(|_| {
            let name = self
                .dice
                .pick(&IMAGES)
                .split([':', '@'])
                .next()
                .unwrap_or_default()
                .to_owned();
            let mut image = map([("name", text(name))]);
            if self.dice.chance(50) {
                image.set(
                    "newName",
                    text(self.dice.pick(&[
                        "mirror.example/web",
                        "nginx2",
                        "registry.example:5000/x",
                    ])),
                );
            }
            if self.dice.chance(60) {
                image.set("newTag", text(self.dice.pick(&["v2", "1.0", "latest"])));
            }
            if self.dice.chance(20) {
                image.set("digest", text(format!("sha256:{}", "ab".repeat(32))));
            }
            if self.dice.chance(15) {
                image.set("tagSuffix", text("-alpine"));
            }
            image
        });
        let images = images.collect::<Vec<_>>();
        self.set("images", list(images));
    }

    fn replicas(&mut self) {
        let name = self.dice.pick(&NAMES);
        let count = self.dice.mostly(&["0", "5"], &["x", "-1", "1.5"]);
        self.set(
            "replicas",
            list([map([("name", text(name)), ("count", raw(count))])]),
        );
    }

    fn generator(&mut self, is_secret: bool) -> Tree {
        let mut made = map([("name", text(self.dice.pick(&NAMES)))]);
        if self.dice.chance(70) {
            let count = 1 + self.dice.below(2);
            let literals = (0..count).map(|_| {
                text(self.dice.mostly(
                    &["a=b", "c='d e'", "e=\"f\"", "g=", "u=http://x/?a=b"],
                    &["novalue", "=x", "a=b", "a=1\n2"],
                ))
            });
            let literals = literals.collect::<Vec<_>>();
            made.set("literals", list(literals));
        }
        if self.dice.chance(30) {
            let content = self.dice.pick(&[
                "key=value\n",
                "two\nlines\n",
                "",
                "\u{e9}t\u{e9}\n",
                "trailing  \n",
                "a: b",
            ]);
            self.files.insert(self.path("data.txt"), content.to_owned());
            let source = self.dice.mostly(
                &["data.txt", "k=data.txt", "k.yaml=./data.txt"],
                &["missing.txt", "=data.txt", "k=", "a=b=c"],
            );
            made.set("files", list([text(source)]));
        }
        if self.dice.chance(25) {
            let content = self.dice.pick(&[
                "A=1\n# no\n\nB=two words\n",
                "\u{feff}A=x\n",
                "NOVALUE\n=x\n",
                "A='q'\r\nB=2",
            ]);
            self.files.insert(self.path("x.env"), content.to_owned());
            let field = self.dice.pick(&["envs", "env"]);
            let value = if field == "env" {
                text("x.env")
            } else {
                list([text("x.env")])
            };
            made.set(field, value);
        }
        if self.dice.chance(20) {
            made.set(
                "behavior",
                text(
                    self.dice
                        .mostly(&["merge", "replace", "create"], &["odd", ""]),
                ),
            );
        }
        if self.dice.chance(20) {
            made.set("namespace", text(self.dice.pick(&NAMESPACES)));
        }
        if is_secret && self.dice.chance(40) {
            made.set(
                "type",
                text(self.dice.pick(&["Opaque", "kubernetes.io/tls", ""])),
            );
        }
        if self.dice.chance(25) {
            let options = self.options();
            made.set("options", options);
        }
        made
    }

    fn options(&mut self) -> Tree {
        let mut options = map::<&str>([]);
        if self.dice.chance(50) {
            options.set(
                "disableNameSuffixHash",
                raw(self.dice.pick(&["true", "false"])),
            );
        }
        for field in ["labels", "annotations"] {
            if self.dice.chance(30) {
                options.set(field, labels(self.dice));
            }
        }
        if self.dice.chance(20) {
            options.set("immutable", raw("true"));
        }
        options
    }

    fn config_maps(&mut self) {
        let made = self.generator(false);
        self.once("configMapGenerator", made);
    }

    fn secrets(&mut self) {
        let made = self.generator(true);
        self.once("secretGenerator", made);
    }

    /// One more in a list.
    fn once(&mut self, key: &str, item: Tree) {
        if let Tree::Map(entries) = &mut self.kustomization {
            match entries.iter_mut().find(|(own, _)| own == key) {
                Some((_, Tree::List(items))) => items.push(item),
                _ => entries.push((key.to_owned(), list([item]))),
            }
        }
    }

    fn generator_options(&mut self) {
        let options = self.options();
        self.set("generatorOptions", options);
    }

    /// What a strategic merge patch of some object looks like.
    fn strategic_patch(&mut self) -> Tree {
        let mut patch = objects::any(self.dice);
        if self.dice.chance(30) {
            let spec = match self.dice.below(7) {
                0 => map([("replicas", raw("7"))]),
                1 => map([("replicas", raw("null"))]),
                2 => map([("template", map([("$patch", text("delete"))]))]),
                3 => map([(
                    "template",
                    map([(
                        "spec",
                        map([(
                            "containers",
                            list([map([("name", text("main")), ("$patch", text("delete"))])]),
                        )]),
                    )]),
                )]),
                4 => map([(
                    "template",
                    map([(
                        "spec",
                        map([(
                            "containers",
                            list([
                                map([("$patch", text("replace"))]),
                                map([("name", text("new")), ("image", text("x"))]),
                            ]),
                        )]),
                    )]),
                )]),
                5 => map([(
                    "template",
                    map([(
                        "spec",
                        map([(
                            "containers",
                            list([map([("name", text("main")), ("env", raw("null"))])]),
                        )]),
                    )]),
                )]),
                _ => map([("items", list([map([("name", text("c"))])]))]),
            };
            if let Tree::Map(entries) = &mut patch {
                entries.retain(|(key, _)| key != "spec");
            }
            patch.set("spec", spec);
        }
        if self.dice.chance(6) {
            patch.set(
                "$patch",
                text(self.dice.pick(&["delete", "replace", "merge", "odd"])),
            );
        }
        patch
    }

    fn operations(&mut self) -> Tree {
        let count = 1 + self.dice.below(2);
        let made = (0..count).map(|_| {
            let op = self
                .dice
                .mostly(
                    &["add", "replace", "remove", "test", "copy", "move"],
                    &["odd", ""],
                )
                .to_owned();
            let path = self
                .dice
                .mostly(
                    &[
                        "/metadata/name",
                        "/metadata/labels/app",
                        "/metadata/annotations",
                        "/metadata/labels/example.com~1owner",
                        "/spec/replicas",
                        "/spec/template/spec/containers/0/image",
                        "/spec/template/spec/containers/-",
                        "/spec/items/0/value",
                        "/data/a",
                        "/spec/ports/0/port",
                    ],
                    &[
                        "",
                        "metadata",
                        "/spec/template/spec/containers/9",
                        "/spec/items/-1",
                        "/a/b/c",
                        "/metadata/namespace",
                        "/kind",
                    ],
                )
                .to_owned();
            let mut made = map([("op", text(op.as_str())), ("path", text(path))]);
            if op == "copy" || op == "move" {
                made.set(
                    "from",
                    text(
                        self.dice
                            .pick(&["/metadata/name", "/spec", "/data/a", "/none"]),
                    ),
                );
            } else if op != "remove" || self.dice.chance(5) {
                let value = match self.dice.below(4) {
                    0 => map([("name", text("added"))]),
                    1 => list([text("x")]),
                    _ => scalar(self.dice),
                };
                made.set("value", value);
            }
            made
        });
        let made = made.collect::<Vec<_>>();
        list(made)
    }

    fn target(&mut self) -> Tree {
        let mut target = map::<&str>([]);
        let kind = self.dice.mostly(
            &[
                "Deployment",
                "ConfigMap",
                "Service",
                "Widget",
                "Secret",
                "StatefulSet",
            ],
            &["Deploy.*", ".*", "(", "", "deployment"],
        );
        if self.dice.chance(75) {
            target.set("kind", text(kind));
        }
        if self.dice.chance(50) {
            target.set(
                "name",
                text(self.dice.mostly(&NAMES, &["w.*", "[", "api|web", "^web$"])),
            );
        }
        if self.dice.chance(15) {
            target.set(
                "group",
                text(self.dice.pick(&["apps", "", "example.com", ".*"])),
            );
        }
        if self.dice.chance(15) {
            target.set("version", text(self.dice.pick(&["v1", "v2", "v.*"])));
        }
        if self.dice.chance(12) {
            target.set("namespace", text(self.dice.pick(&NAMESPACES)));
        }
        for field in ["labelSelector", "annotationSelector"] {
            if self.dice.chance(12) {
                let selector = self.dice.mostly(
                    &[
                        "app=web",
                        "app",
                        "!app",
                        "app in (web, back)",
                        "tier!=x",
                        "app==web,tier",
                        "app notin (web)",
                    ],
                    &["app in web", "=", "app=(", "a b", ",", "app>1", "-x"],
                );
                target.set(field, text(selector));
            }
        }
        target
    }

    fn patch(&mut self) -> Tree {
        let is_json = self.dice.chance(45);
        let content = if is_json {
            self.operations()
        } else {
            self.strategic_patch()
        };
        let mut patch = map::<&str>([]);
        if is_json || self.dice.chance(60) {
            let target = self.target();
            patch.set("target", target);
        }
        let in_file = self.dice.chance(30);
        if in_file {
            let name = self.file("p", &[content]);
            patch.set("path", text(name));
        } else {
            let written = content.write(self.dice);
            patch.set("patch", text(written));
        }
        if self.dice.chance(15) {
            let mut options = map::<&str>([]);
            for field in ["allowNameChange", "allowKindChange"] {
                if self.dice.chance(70) {
                    options.set(field, raw("true"));
                }
            }
            patch.set("options", options);
        }
        patch
    }

    fn patches(&mut self) {
        let patch = self.patch();
        self.once("patches", patch);
    }

    fn strategic_patches(&mut self) {
        let patch = self.strategic_patch();
        let entry = if self.dice.chance(50) {
            text(self.file("s", &[patch]))
        } else {
            text(patch.write(self.dice))
        };
        self.set("patchesStrategicMerge", list([entry]));
    }

    fn json_patches(&mut self) {
        let operations = self.operations();
        let target = map([
            (
                "kind",
                text(self.dice.pick(&["Deployment", "ConfigMap", "Widget"])),
            ),
            ("name", text(self.dice.pick(&NAMES))),
            ("version", text("v1")),
        ]);
        let target = if self.dice.chance(50) {
            target.with("group", text("apps"))
        } else {
            target
        };
        let mut patch = map([("target", target)]);
        if self.dice.chance(40) {
            let name = self.file("j", &[operations]);
            patch.set("path", text(name));
        } else {
            let written = operations.write(self.dice);
            patch.set("patch", text(written));
        }
        self.set("patchesJson6902", list([patch]));
    }

    fn field_options(&mut self) -> Tree {
        let mut options = map::<&str>([]);
        if self.dice.chance(60) {
            options.set("delimiter", text(self.dice.pick(&[":", "/", ".", "-"])));
        }
        if self.dice.chance(60) {
            options.set("index", raw(self.dice.pick(&["0", "1", "-1", "5"])));
        }
        if self.dice.chance(40) {
            options.set("create", raw("true"));
        }
        options
    }

    fn replacement(&mut self) -> Tree {
        let mut source = map([(
            "kind",
            text(
                self.dice
                    .pick(&["ConfigMap", "Deployment", "Service", "Widget"]),
            ),
        )]);
        if self.dice.chance(80) {
            source.set("name", text(self.dice.pick(&NAMES)));
        }
        if self.dice.chance(75) {
            source.set("fieldPath", text(self.dice.pick(&FIELD_PATHS)));
        }
        if self.dice.chance(20) {
            let options = self.field_options();
            source.set("options", options);
        }
        let targets = (0..1 + self.dice.below(2)).map(|_| {
            let select = self.target();
            let mut target = map([("select", select)]);
            if self.dice.chance(15) {
                let reject = self.target();
                target.set("reject", list([reject]));
            }
            if self.dice.chance(90) {
                let count = 1 + self.dice.below(2);
                let paths = (0..count)
                    .map(|_| text(self.dice.pick(&FIELD_PATHS)))
                    .collect::<Vec<_>>();
                target.set("fieldPaths", list(paths));
            }
            if self.dice.chance(40) {
                let options = self.field_options();
                target.set("options", options);
            }
            target
        });
        let targets = targets.collect::<Vec<_>>();
        if self.dice.chance(8) {
            return map([
                ("sourceValue", scalar(self.dice)),
                ("targets", list(targets)),
            ]);
        }
        map([("source", source), ("targets", list(targets))])
    }

    fn replacements(&mut self) {
        let mut made = self.replacement();
        if self.dice.chance(20) {
            let name = self.file("replace", &[made]);
            made = map([("path", text(name))]);
        }
        self.once("replacements", made);
    }

    fn vars(&mut self) {
        let name = self.dice.pick(&["NAME", "IMAGE", "HOST"]);
        let object = map([
            ("apiVersion", text(self.dice.pick(&["v1", "apps/v1"]))),
            (
                "kind",
                text(self.dice.pick(&["ConfigMap", "Service", "Deployment"])),
            ),
            ("name", text(self.dice.pick(&NAMES))),
        ]);
        let mut var = map([("name", text(name)), ("objref", object)]);
        if self.dice.chance(50) {
            let path = self.dice.pick(&[
                "metadata.name",
                "spec.replicas",
                "data.a",
                "spec.ports[0].port",
                "spec.template.spec.containers[0].image",
            ]);
            var.set("fieldref", map([("fieldPath", text(path))]));
        }
        self.set("vars", list([var]));
    }

    fn crds(&mut self) {
        let content = "{\"example.com/v1.Widget\": {\"Schema\": {\"properties\": {\"spec\": {\"$ref\": \"example.com/v1.WidgetSpec\"}}, \
             \"x-kubernetes-group-version-kind\": [{\"group\": \"example.com\", \"version\": \"v1\", \"kind\": \"Widget\"}]}}, \
             \"example.com/v1.WidgetSpec\": {\"Schema\": {\"properties\": {\"secretRef\": {\"x-kubernetes-object-ref-api-version\": \"v1\", \
             \"x-kubernetes-object-ref-kind\": \"Secret\", \"$ref\": \"x.Ref\"}}}}}";
        self.files.insert(self.path("crd.json"), content.to_owned());
        self.set("crds", list([text("crd.json")]));
    }

    fn configurations(&mut self) {
        let mut configuration = map::<&str>([]);
        for field in [
            "namePrefix",
            "nameSuffix",
            "namespace",
            "commonLabels",
            "labels",
            "commonAnnotations",
            "images",
            "replicas",
            "varReference",
            "templateLabels",
        ] {
            if self.dice.chance(20) {
                let spec = self.field_spec();
                configuration.set(field, list([spec]));
            }
        }
        if self.dice.chance(40) {
            let spec = map([
                ("path", text("spec/secretRef/name")),
                ("kind", raw("Widget")),
            ]);
            configuration.set(
                "nameReference",
                list([map([
                    ("kind", raw("Secret")),
                    ("version", raw("v1")),
                    ("fieldSpecs", list([spec])),
                ])]),
            );
        }
        let name = self.file("config", &[configuration]);
        self.set("configurations", list([text(name)]));
    }

    fn open_api(&mut self) {
        if self.dice.chance(50) {
            let version = self.dice.mostly(&["v1.21.2"], &["v9", ""]);
            self.set("openapi", map([("version", text(version))]));
            return;
        }
        let widget = "{\"definitions\": {\"com.example.v1.Widget\": {\"type\": \"object\", \"properties\": {\"spec\": {\"type\": \"object\", \
             \"properties\": {\"items\": {\"type\": \"array\", \"items\": {\"type\": \"object\"}, \"x-kubernetes-patch-merge-key\": \"name\", \
             \"x-kubernetes-patch-strategy\": \"merge\"}}}}, \"x-kubernetes-group-version-kind\": [{\"group\": \"example.com\", \"kind\": \"Widget\", \
             \"version\": \"v1\"}]}}}";
        self.files
            .insert(self.path("schema.json"), widget.to_owned());
        self.set("openapi", map([("path", text("schema.json"))]));
    }

    fn sort(&mut self) {
        let order = self.dice.mostly(&["legacy", "fifo"], &["odd", ""]);
        let mut options = map([("order", text(order))]);
        if self.dice.chance(40) {
            let first = list([text("Service"), text("Widget")]);
            options.set(
                "legacySortOptions",
                map([
                    ("orderFirst", first),
                    ("orderLast", list([text("ConfigMap")])),
                ]),
            );
        }
        self.set("sortOptions", options);
    }

    fn metadata(&mut self) {
        let all = [
            "originAnnotations",
            "transformerAnnotations",
            "managedByLabel",
        ];
        let mut found: Vec<Tree> = all
            .into_iter()
            .filter(|_| self.dice.chance(50))
            .map(text)
            .collect();
        if self.dice.chance(5) {
            found.push(text("odd"));
        }
        self.set("buildMetadata", list(found));
    }

    fn plugin(&mut self) -> Tree {
        let kind = self
            .dice
            .mostly(
                &[
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
                    "HashTransformer",
                ],
                &[
                    "ConfigMapGenerator",
                    "SecretGenerator",
                    "HelmChartInflationGenerator",
                    "OddTransformer",
                ],
            )
            .to_owned();
        let version = self
            .dice
            .mostly(&["builtin"], &["example.com/v1", "v1"])
            .to_owned();
        let mut metadata = map([("name", text("plugin"))]);
        if self.dice.chance(50) {
            metadata.set("namespace", text(self.dice.pick(&NAMESPACES)));
        }
        let mut made = map([
            ("apiVersion", raw(version)),
            ("kind", raw(kind.as_str())),
            ("metadata", metadata),
        ]);
        match kind.as_str() {
            "LabelTransformer" => made.set("labels", labels(self.dice)),
            "AnnotationsTransformer" => made.set("annotations", labels(self.dice)),
            "NamespaceTransformer" => {
                if self.dice.chance(50) {
                    made.set("unsetOnly", raw("true"));
                }
                if self.dice.chance(50) {
                    made.set(
                        "setRoleBindingSubjects",
                        text(
                            self.dice
                                .mostly(&["allServiceAccounts", "defaultOnly", "none"], &["odd"]),
                        ),
                    );
                }
            }
            "PrefixTransformer" => made.set("prefix", text("t-")),
            "SuffixTransformer" => made.set("suffix", text("-t")),
            "PrefixSuffixTransformer" => {
                made.set("prefix", text("t-"));
                made.set("suffix", text("-t"));
            }
            "ImageTagTransformer" => made.set(
                "imageTag",
                map([("name", text("nginx")), ("newTag", text("t"))]),
            ),
            "ReplicaCountTransformer" => made.set(
                "replica",
                map([("name", text(self.dice.pick(&NAMES))), ("count", raw("9"))]),
            ),
            "PatchTransformer" => {
                if let Tree::Map(entries) = self.patch() {
                    for (key, value) in entries {
                        made.set(&key, value);
                    }
                }
            }
            "PatchJson6902Transformer" => {
                let operations = self.operations().write(self.dice);
                made.set(
                    "target",
                    map([
                        ("kind", text("Deployment")),
                        ("name", text(self.dice.pick(&NAMES))),
                        ("version", text("v1")),
                        ("group", text("apps")),
                    ]),
                );
                made.set("jsonOp", text(operations));
            }
            "PatchStrategicMergeTransformer" => {
                let patch = self.strategic_patch().write(self.dice);
                made.set("patches", text(patch));
            }
            "ReplacementTransformer" => {
                let replacement = self.replacement();
                made.set("replacements", list([replacement]));
            }
            "ValueAddTransformer" => {
                made.set("value", text(self.dice.pick(&["added", "prod"])));
                let mut target = map([(
                    "fieldPath",
                    text(self.dice.pick(&[
                        "metadata/namespace",
                        "metadata/labels/team",
                        "spec/size",
                        "data/a",
                    ])),
                )]);
                if self.dice.chance(50) {
                    let selector = self.target();
                    target.set("selector", selector);
                }
                if self.dice.chance(40) {
                    target.set(
                        "filePathPosition",
                        raw(self.dice.pick(&["0", "1", "2", "9"])),
                    );
                }
                made.set("targets", list([target]));
            }
            "ConfigMapGenerator" | "SecretGenerator" => {
                let generator = self.generator(kind == "SecretGenerator");
                if let Tree::Map(entries) = generator {
                    for (key, value) in entries.into_iter().filter(|(key, _)| key != "name") {
                        made.set(&key, value);
                    }
                }
            }
            _ => {}
        }
        if self.dice.chance(55) {
            let spec = match kind.as_str() {
                "PrefixTransformer" | "SuffixTransformer" | "PrefixSuffixTransformer" => {
                    map([("path", text("metadata/name"))])
                }
                "NamespaceTransformer" => map([
                    ("path", text("metadata/namespace")),
                    ("create", raw("true")),
                ]),
                _ => self.field_spec(),
            };
            made.set("fieldSpecs", list([spec]));
        }
        made
    }

    fn entry_of(&mut self, plugin: Tree) -> Tree {
        if self.dice.chance(50) {
            text(self.file("plugin", &[plugin]))
        } else {
            text(plugin.write(self.dice))
        }
    }

    fn transformers(&mut self) {
        let plugin = self.plugin();
        let entry = self.entry_of(plugin);
        self.set("transformers", list([entry]));
    }

    fn generators(&mut self) {
        let kind = self
            .dice
            .mostly(
                &["ConfigMapGenerator", "SecretGenerator"],
                &["LabelTransformer", "Odd"],
            )
            .to_owned();
        let mut made = map([
            ("apiVersion", raw("builtin")),
            ("kind", raw(kind.as_str())),
            ("metadata", map([("name", text(self.dice.pick(&NAMES)))])),
        ]);
        let generator = self.generator(kind == "SecretGenerator");
        if let Tree::Map(entries) = generator {
            for (key, value) in entries.into_iter().filter(|(key, _)| key != "name") {
                made.set(&key, value);
            }
        }
        let entry = self.entry_of(made);
        self.set("generators", list([entry]));
    }

    fn validators(&mut self) {
        let plugin = self.plugin();
        let entry = self.entry_of(plugin);
        self.set("validators", list([entry]));
    }
}

/// With one thing wrong.
fn torn(dice: &mut Dice, written: &str) -> String {
    let mut lines: Vec<&str> = written.split_inclusive('\n').collect();
    let at = dice.below(lines.len());
    let odd;
    match dice.below(4) {
        0 => {
            lines.remove(at);
        }
        1 => lines.insert(at, lines[at]),
        2 => lines.insert(at, "  odd\n"),
        _ => {
            let key = lines[at]
                .split(':')
                .next()
                .unwrap_or_default()
                .trim_end()
                .to_owned();
            odd = format!(
                "{key}: {}\n",
                dice.pick(&["5", "[a]", "{a: b}", "true", "null", "text"])
            );
            lines[at] = &odd;
        }
    }
    lines.concat()
}
