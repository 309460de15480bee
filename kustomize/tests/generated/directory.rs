//! A directory with a kustomization: its resources, bases and components, what it has gathered, and the fields that change it.

use super::maker::Maker;
use super::objects::{self, IMAGES, NAMESPACES, labels, scalar};
use super::tree::{Tree, list, map, raw, text};

/// An object that a kustomization has gathered, as far as later choices need to know it.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) tree: Tree,
    /// What it is called by patches and the like; the last is what it is called now.
    pub(super) names: Vec<String>,
}

impl Object {
    fn new(tree: Tree) -> Self {
        let metadata = tree.get("metadata");
        let name = metadata.and_then(|metadata| metadata.get("name"));
        let name = name.and_then(Tree::scalar).unwrap_or_default().to_owned();
        Self {
            tree,
            names: vec![name],
        }
    }

    fn text(&self, field: &str) -> &str {
        self.tree
            .get(field)
            .and_then(Tree::scalar)
            .unwrap_or_default()
    }

    pub(super) fn kind(&self) -> &str {
        self.text("kind")
    }

    pub(super) fn api_version(&self) -> &str {
        self.text("apiVersion")
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.tree.get("metadata")?.get("namespace")?.scalar()
    }
}

/// A directory in the making.
pub(super) struct Directory<'m, 'a> {
    pub(super) maker: &'m mut Maker<'a>,
    path: String,
    pub(super) kustomization: Tree,
    count: usize,
    pub(super) objects: Vec<Object>,
}

/// Writes a directory to build, and those it leads to. What it gathers.
pub(super) fn write(maker: &mut Maker<'_>, path: &str, depth: usize) -> Vec<Object> {
    let mut directory = Directory {
        maker,
        path: path.to_owned(),
        kustomization: map::<&str>([]),
        count: 0,
        objects: Vec::new(),
    };
    directory.resources(depth);
    directory.generated();
    directory.components(depth);
    directory.changes();
    directory.finish()
}

fn write_component(maker: &mut Maker<'_>, path: &str, objects: Vec<Object>) -> Vec<Object> {
    let kind = maker
        .mostly(&["Component"], &["Kustomization", "component"])
        .to_owned();
    let version = maker.mostly(&["v1alpha1"], &["v1beta1"]).to_owned();
    let mut component = Directory {
        maker,
        path: path.to_owned(),
        kustomization: map([
            (
                "apiVersion",
                raw(format!("kustomize.config.k8s.io/{version}")),
            ),
            ("kind", raw(kind)),
        ]),
        count: 0,
        objects,
    };
    if component.maker.chance(30) {
        let file = component.objects_in_a_file();
        component.set("resources", list([text(file)]));
    }
    component.generated();
    component.changes();
    component.finish()
}

impl Directory<'_, '_> {
    pub(super) fn path(&self, name: &str) -> String {
        match self.path.as_str() {
            "." => name.to_owned(),
            directory => format!("{directory}/{name}"),
        }
    }

    /// A file of this directory with a document, or several.
    pub(super) fn file(&mut self, name: &str, documents: &[Tree]) -> String {
        self.count += 1;
        let name = format!("{name}{}.yaml", self.count);
        let start = if self.maker.chance(10) { "---\n" } else { "" };
        let texts: Vec<String> = documents
            .iter()
            .map(|tree| tree.write(self.maker.dice()))
            .collect();
        let content = format!("{start}{}", texts.join("---\n"));
        self.maker.files.insert(self.path(&name), content);
        name
    }

    /// A folder of this directory that nothing else is in.
    pub(super) fn folder(&mut self, name: &str) -> String {
        self.count += 1;
        format!("{name}{}", self.count)
    }

    pub(super) fn written(&mut self, tree: &Tree) -> String {
        tree.write(self.maker.dice())
    }

    pub(super) fn set(&mut self, key: &str, value: Tree) {
        self.kustomization.set(key, value);
    }

    /// One more in a list of the kustomization.
    pub(super) fn push(&mut self, key: &str, item: Tree) {
        if let Tree::Map(entries) = &mut self.kustomization {
            match entries.iter_mut().find(|(own, _)| own == key) {
                Some((_, items)) => items.push(item),
                None => entries.push((key.to_owned(), list([item]))),
            }
        }
    }

    /// The place of one of the objects that are asked for.
    pub(super) fn any_of(&mut self, expected: impl Fn(&Object) -> bool) -> Option<usize> {
        let places = (0..self.objects.len()).filter(|&at| expected(&self.objects[at]));
        let places: Vec<usize> = places.collect();
        (!places.is_empty()).then(|| places[self.maker.below(places.len())])
    }

    /// What an object is called by who changes it.
    pub(super) fn name_of(&mut self, at: usize) -> String {
        let names = &self.objects[at].names;
        let number = if self.maker.chance(75) {
            0
        } else {
            self.maker.below(names.len())
        };
        names[number].clone()
    }

    fn objects_in_a_file(&mut self) -> String {
        let count = 1 + self.maker.below(3);
        let made: Vec<Tree> = (0..count).map(|_| objects::any(self.maker)).collect();
        for tree in &made {
            let items = match tree.get("items") {
                Some(Tree::List(items)) => items.clone(),
                _ => vec![tree.clone()],
            };
            self.objects.extend(items.into_iter().map(Object::new));
        }
        self.file("r", &made)
    }

    fn resources(&mut self, depth: usize) {
        let mut resources = Vec::new();
        for _ in 0..1 + self.maker.below(2) {
            resources.push(text(self.objects_in_a_file()));
        }
        if depth > 0 && self.maker.chance(35) {
            for name in ["base", "other"].into_iter().take(1 + self.maker.below(2)) {
                let found = write(self.maker, &self.path(name), depth - 1);
                self.objects.extend(found);
                resources.push(text(format!("{}{name}", self.maker.pick(&["", "./"]))));
            }
        } else if depth > 0 && self.maker.chance(10) {
            resources.extend(self.twins(depth));
        }
        if self.maker.fault(8) {
            let odd = ["missing.yaml", "/r1.yaml", "../r1.yaml", "r1.yaml", ".", ""];
            resources.push(text(self.maker.pick(&odd)));
        }
        if self.maker.chance(98) {
            let field = if self.maker.chance(92) {
                "resources"
            } else {
                "bases"
            };
            self.set(field, list(resources));
        } else {
            self.objects.clear();
        }
    }

    /// Two directories over the same base, which give its objects different names.
    fn twins(&mut self, depth: usize) -> Vec<Tree> {
        // A variable of the base would be there twice.
        let variables = self.maker.no_variables();
        let common = write(self.maker, &self.path("common"), depth - 1);
        self.maker.variables = variables;
        let mut resources = Vec::new();
        // What keeps its name would be there twice.
        let is_renamed =
            |object: &Object| !matches!(object.kind(), "Namespace" | "CustomResourceDefinition");
        let count = if common.iter().all(is_renamed) || self.maker.fault(50) {
            2
        } else {
            1
        };
        for (name, prefix) in [("left", "l-"), ("right", "r-")].into_iter().take(count) {
            let prefix = self.maker.mostly(&[prefix], &["l-"]).to_owned();
            let mut twin = map([
                ("namePrefix", text(prefix.as_str())),
                ("resources", list([text("../common")])),
            ]);
            if self.maker.chance(25) {
                twin.set("namespace", text(self.maker.pick(&NAMESPACES)));
            }
            let written = self.written(&twin);
            let path = self.path(&format!("{name}/kustomization.yaml"));
            self.maker.files.insert(path, written);
            resources.push(text(name));
            for object in &common {
                let mut object = object.clone();
                let now = object.names.pop().unwrap_or_default();
                object.names = vec![format!("{prefix}{now}")];
                self.objects.push(object);
            }
        }
        resources
    }

    fn components(&mut self, depth: usize) {
        if depth == 0 || !self.maker.chance(14) {
            return;
        }
        for name in ["component", "second"]
            .into_iter()
            .take(1 + self.maker.below(2))
        {
            let objects = std::mem::take(&mut self.objects);
            let path = self.path(name);
            self.objects = write_component(self.maker, &path, objects);
            self.push("components", text(name));
        }
    }

    /// What is generated, before anything is changed.
    fn generated(&mut self) {
        let density = [8, 15, 30][self.maker.below(3)];
        let fields: [fn(&mut Self); 6] = [
            Self::generator_options,
            Self::config_maps,
            Self::config_maps,
            Self::secrets,
            Self::generators,
            Self::open_api,
        ];
        self.some(&fields, density);
    }

    /// The fields that change what there is, in kustomize's order.
    fn changes(&mut self) {
        let density = [8, 15, 28][self.maker.below(3)];
        let fields: [fn(&mut Self); 26] = [
            Self::crds,
            Self::configurations,
            Self::strategic_patches,
            Self::patches,
            Self::patches,
            Self::patches,
            Self::namespace,
            Self::prefix,
            Self::suffix,
            Self::common_labels,
            Self::labels,
            Self::common_annotations,
            Self::json_patches,
            Self::replicas,
            Self::images,
            Self::replacements,
            Self::replacements,
            Self::transformers,
            Self::transformers,
            Self::validators,
            Self::vars,
            Self::vars,
            Self::sort,
            Self::metadata,
            Self::header,
            Self::odd_field,
        ];
        self.some(&fields, density);
    }

    fn some(&mut self, fields: &[fn(&mut Self)], density: usize) {
        for field in fields {
            if self.maker.chance(density) {
                field(self);
            }
        }
    }

    fn finish(self) -> Vec<Object> {
        let mut written = self.kustomization.write(self.maker.dice());
        if self.maker.fault(12) {
            written = torn(self.maker, &written);
        }
        let name = match self.maker.chance(92) {
            true => "kustomization.yaml",
            false => self.maker.pick(&["kustomization.yml", "Kustomization"]),
        };
        let path = self.path(name);
        self.maker.files.insert(path, written.clone());
        if self.maker.fault(2) {
            let path = self.path("kustomization.yml");
            self.maker.files.insert(path, written);
        }
        self.objects
    }

    fn header(&mut self) {
        let version = self
            .maker
            .mostly(&["v1beta1"], &["v1", "v1alpha1"])
            .to_owned();
        let kind = self
            .maker
            .mostly(&["Kustomization"], &["Kustomisation", "Component"])
            .to_owned();
        if self.kustomization.get("kind").is_none() {
            self.set(
                "apiVersion",
                text(format!("kustomize.config.k8s.io/{version}")),
            );
            self.set("kind", text(kind));
        }
        if self.maker.chance(30) {
            let metadata = map([("name", text("own")), ("labels", labels(self.maker))]);
            self.set("metadata", metadata);
        }
    }

    fn odd_field(&mut self) {
        if self.maker.fault(25) {
            let odd = [
                "unknown",
                "namePrefixes",
                "kind",
                "helmGlobals",
                "NAMEPREFIX",
                "imageTags",
                "helmCharts",
            ];
            let odd = self.maker.pick(&odd).to_owned();
            let value = scalar(self.maker);
            self.set(&odd, value);
        }
    }

    fn namespace(&mut self) {
        let namespace = self.maker.pick(&NAMESPACES);
        self.set("namespace", text(namespace));
    }

    fn prefix(&mut self) {
        let prefix = self.maker.pick(&["p-", "a-b-", "1"]);
        self.set("namePrefix", text(prefix));
        self.rename(|name| format!("{prefix}{name}"));
    }

    fn suffix(&mut self) {
        let suffix = self.maker.pick(&["-s", "-v1"]);
        self.set("nameSuffix", text(suffix));
        self.rename(|name| format!("{name}{suffix}"));
    }

    fn rename(&mut self, rename: impl Fn(&str) -> String) {
        for object in &mut self.objects {
            if matches!(object.kind(), "Namespace" | "CustomResourceDefinition") {
                continue;
            }
            if let Some(last) = object.names.last() {
                let name = rename(last);
                object.names.push(name);
            }
        }
    }

    fn common_labels(&mut self) {
        let labels = labels(self.maker);
        self.set("commonLabels", labels);
    }

    fn common_annotations(&mut self) {
        let labels = labels(self.maker);
        self.set("commonAnnotations", labels);
    }

    fn labels(&mut self) {
        for _ in 0..1 + self.maker.below(2) {
            let mut label = map([("pairs", labels(self.maker))]);
            for field in ["includeSelectors", "includeTemplates"] {
                if self.maker.chance(35) {
                    label.set(
                        field,
                        raw(self.maker.mostly(&["true", "false"], &["maybe", "'true'"])),
                    );
                }
            }
            if self.maker.chance(25) {
                label.set("fields", list([self.field_of_labels()]));
            }
            self.push("labels", label);
        }
    }

    fn images(&mut self) {
        let count = 1 + self.maker.below(2);
        let images = (0..count).map(|_| {
            let image = self.maker.pick(&IMAGES);
            let name = match self.maker.chance(15) {
                true => self.maker.mostly(
                    &["registry.*", "(nginx|busybox)", "web.?"],
                    &["(", "nginx:1.25", ""],
                ),
                // The port of a registry is no tag.
                false if image.contains(":5000/") => image,
                false => image.split([':', '@']).next().unwrap_or_default(),
            };
            let mut image = map([("name", text(name))]);
            if self.maker.chance(50) {
                let names = ["mirror.example/web", "nginx2", "registry.example:5000/x"];
                image.set("newName", text(self.maker.pick(&names)));
            }
            if self.maker.chance(60) {
                image.set(
                    "newTag",
                    text(self.maker.mostly(&["v2", "1.0", "latest"], &["", "a b"])),
                );
            }
            if self.maker.chance(20) {
                image.set("digest", text(format!("sha256:{}", "ab".repeat(32))));
            }
            if self.maker.chance(15) {
                image.set("tagSuffix", text("-alpine"));
            }
            image
        });
        let images = images.collect::<Vec<_>>();
        self.set("images", list(images));
    }

    fn replicas(&mut self) {
        let place = self.any_of(|object| matches!(object.kind(), "Deployment" | "StatefulSet"));
        let name = match place {
            Some(place) if !self.maker.fault(10) => self.name_of(place),
            None if !self.maker.fault(30) => return,
            _ => "nobody".to_owned(),
        };
        let count = self.maker.mostly(
            &["0", "5"],
            &["x", "-1", "1.5", "null", "9999999999999999999"],
        );
        self.push(
            "replicas",
            map([("name", text(name)), ("count", raw(count))]),
        );
    }

    fn sort(&mut self) {
        let order = self
            .maker
            .mostly(&["legacy", "fifo"], &["odd", ""])
            .to_owned();
        let mut options = map([("order", text(order.as_str()))]);
        if order == "legacy" && self.maker.chance(50) || self.maker.fault(30) {
            let first = list([text("Service"), text("Widget")]);
            let last = list([text("ConfigMap")]);
            let mut legacy = map([("orderFirst", first)]);
            if self.maker.chance(70) {
                legacy.set("orderLast", last);
            }
            options.set("legacySortOptions", legacy);
        }
        self.set("sortOptions", options);
    }

    fn metadata(&mut self) {
        let all = [
            "originAnnotations",
            "transformerAnnotations",
            "managedByLabel",
        ];
        let chosen = all.into_iter().filter(|_| self.maker.chance(50));
        let mut found: Vec<Tree> = chosen.map(text).collect();
        if self.maker.fault(10) {
            found.push(text("odd"));
        }
        self.set("buildMetadata", list(found));
    }
}

/// With one thing wrong.
fn torn(maker: &mut Maker<'_>, written: &str) -> String {
    let mut lines: Vec<&str> = written.split_inclusive('\n').collect();
    let at = maker.below(lines.len());
    let odd;
    match maker.below(4) {
        0 => {
            lines.remove(at);
        }
        1 => lines.insert(at, lines[at]),
        2 => lines.insert(at, "  odd\n"),
        _ => {
            let key = lines[at].split(':').next().unwrap_or_default();
            let value = maker.pick(&["5", "[a]", "{a: b}", "true", "null", "text"]);
            odd = format!("{}: {value}\n", key.trim_end());
            lines[at] = &odd;
        }
    }
    lines.concat()
}
