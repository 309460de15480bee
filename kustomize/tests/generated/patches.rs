//! Patches: strategic ones, which are made from what they change, and JSON patches of places that are there.

use super::directory::{Directory, Object};
use super::maker::Maker;
use super::objects::{NAMES, NAMESPACES, scalar};
use super::places::{self, Place, Step};
use super::tree::{Tree, list, map, raw, text};

/// The fields that items of a list are merged by.
const MERGE_KEYS: [&str; 6] = [
    "name",
    "containerPort",
    "protocol",
    "port",
    "mountPath",
    "ip",
];

/// Another scalar of the same kind.
fn other_scalar(maker: &mut Maker<'_>, old: &Tree) -> Tree {
    match old {
        number if number.is_number() && !maker.fault(10) => raw(maker.pick(&["7", "0", "1000"])),
        Tree::Text(old) if old.contains('/') && maker.chance(50) => {
            text("registry.example/patched:1")
        }
        _ => scalar(maker),
    }
}

/// What may be added to a collection as one of those that are in it.
fn alike(maker: &mut Maker<'_>, collection: &Tree) -> Tree {
    match collection {
        Tree::List(items) => match items.first() {
            Some(Tree::Map(_)) => {
                let mut new = items[maker.below(items.len())].clone();
                new.set("name", text("added"));
                new
            }
            Some(item) => item.clone(),
            None => text("added"),
        },
        Tree::Map(entries) if entries.iter().any(|(_, value)| value.scalar().is_none()) => {
            map([("name", text("added"))])
        }
        _ => text("added"),
    }
}

/// A patch of some of a map, which becomes what the patch leaves of it.
fn patch_map(maker: &mut Maker<'_>, tree: &mut Tree) -> Tree {
    let Tree::Map(entries) = tree else {
        return map::<&str>([]);
    };
    let mut patch = map::<&str>([]);
    let mut gone = Vec::new();
    for _ in 0..1 + maker.below(2) {
        if entries.is_empty() {
            break;
        }
        let at = maker.below(entries.len());
        let (key, value) = &mut entries[at];
        if gone.contains(key) || patch.get(key).is_some() {
            continue;
        }
        let key = key.clone();
        if maker.chance(7) {
            patch.set(&key, raw(maker.pick(&["null", "~", ""])));
            gone.push(key);
            continue;
        }
        let inner = patch_of(maker, value);
        if inner.get("$patch").and_then(Tree::scalar) == Some("delete") {
            gone.push(key.clone());
        }
        patch.set(&key, inner);
    }
    entries.retain(|(key, _)| !gone.contains(key));
    if maker.chance(15) || patch.is_empty() {
        let added = scalar(maker);
        patch.set("added", added);
    }
    patch
}

fn patch_of(maker: &mut Maker<'_>, tree: &mut Tree) -> Tree {
    if maker.fault(6) {
        return match tree {
            Tree::Map(_) => list([text("x")]),
            Tree::List(_) => map([("a", text("x"))]),
            Tree::Raw(_) | Tree::Text(_) => map([("a", list([]))]),
        };
    }
    match tree {
        Tree::Map(_) if maker.chance(6) => {
            let directive = maker.mostly(&["delete", "merge"], &["odd", "replace"]);
            map([("$patch", text(directive))])
        }
        Tree::Map(_) if maker.chance(6) => {
            let mut new = patch_map(maker, tree);
            *tree = new.clone();
            new.set("$patch", text("replace"));
            new
        }
        Tree::Map(_) => patch_map(maker, tree),
        Tree::List(items)
            if items
                .iter()
                .any(|item| item.get("name").is_some() || item.get("containerPort").is_some()) =>
        {
            patch_list(maker, items)
        }
        Tree::List(items) if items.iter().any(|item| matches!(item, Tree::Map(_))) => {
            let at = maker.below(items.len());
            patch_map(maker, &mut items[at]);
            list(items.clone())
        }
        Tree::List(items) => {
            *items = (0..maker.below(3)).map(|_| scalar(maker)).collect();
            list(items.clone())
        }
        Tree::Raw(_) | Tree::Text(_) => other_scalar(maker, tree),
    }
}

/// A patch of a list whose items are told by their names.
fn patch_list(maker: &mut Maker<'_>, items: &mut Vec<Tree>) -> Tree {
    let mut patch = Vec::new();
    let at = maker.below(items.len());
    let keys = |item: &Tree| -> Tree {
        let keys = MERGE_KEYS.into_iter();
        map(keys
            .filter_map(|key| Some((key, item.get(key)?.clone())))
            .collect::<Vec<_>>())
    };
    match maker.below(10) {
        0 => {
            let mut gone = keys(&items[at]);
            gone.set("$patch", text("delete"));
            items.remove(at);
            patch.push(gone);
        }
        1 => {
            let new = map([("name", text("new")), ("image", text("nginx:new"))]);
            *items = vec![new.clone()];
            patch.push(map([(
                "$patch",
                text(maker.mostly(&["replace"], &["delete", "odd"])),
            )]));
            patch.push(new);
        }
        2 | 3 => {
            let new = map([("name", text("new")), ("image", text("nginx:new"))]);
            if maker.chance(50) {
                patch.push(keys(&items[at]));
            }
            patch.push(new.clone());
            items.insert(0, new);
        }
        4 if items.len() > 1 => {
            // In another order.
            patch.extend(items.iter().rev().map(keys));
        }
        _ => {
            let mut changed = patch_map(maker, &mut items[at]);
            if let Tree::Map(entries) = keys(&items[at]) {
                for (key, value) in entries {
                    changed.set(&key, value);
                }
            }
            if maker.fault(10)
                && let Tree::Map(entries) = &mut changed
            {
                entries.retain(|(key, _)| key != "name");
            }
            patch.push(changed);
        }
    }
    list(patch)
}

impl Directory<'_, '_> {
    /// A strategic merge patch of an object of a place; with a target names do not matter.
    fn strategic_patch(&mut self, at: usize, has_target: bool) -> Tree {
        let name = match has_target && self.maker.chance(30) {
            true => "any".to_owned(),
            false => self.name_of(at),
        };
        let object = &mut self.objects[at];
        let mut metadata = map([("name", text(name))]);
        if let Some(namespace) = object.namespace() {
            metadata.set("namespace", text(namespace));
        }
        let mut patch = map([
            ("apiVersion", raw(object.api_version())),
            ("kind", raw(object.kind())),
        ]);
        if self.maker.fault(6) {
            patch.set("kind", raw(self.maker.pick(&["Deployment", "Odd", ""])));
        }
        if self.maker.chance(5) {
            let directive = self
                .maker
                .mostly(&["delete", "merge"], &["replace", "odd"])
                .to_owned();
            patch.set("metadata", metadata);
            patch.set("$patch", text(directive.as_str()));
            if directive == "delete" {
                self.objects.remove(at);
            }
            return patch;
        }
        let mut body = object.tree.clone();
        if let Tree::Map(entries) = &mut body {
            entries.retain(|(key, _)| {
                !matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "items")
            });
        }
        if !body.is_empty()
            && let Tree::Map(changed) = patch_map(self.maker, &mut body)
        {
            for (key, value) in changed {
                patch.set(&key, value);
            }
        }
        if let Tree::Map(entries) = &mut object.tree {
            entries.retain(|(key, _)| matches!(key.as_str(), "apiVersion" | "kind" | "metadata"));
            if let Tree::Map(left) = body {
                entries.extend(left);
            }
        }
        if self.maker.chance(35) {
            let field = self.maker.pick(&["labels", "annotations"]);
            let mut marks = object
                .tree
                .get("metadata")
                .and_then(|metadata| metadata.get(field))
                .cloned();
            let marks = marks.get_or_insert_with(|| map::<&str>([]));
            metadata.set(field, patch_map(self.maker, marks));
            let place = [Step::Field("metadata".into()), Step::Field(field.into())];
            if let Some(own) = places::find_mut(&mut object.tree, &place) {
                *own = marks.clone();
            }
        }
        patch.set("metadata", metadata);
        patch
    }

    fn operation(&mut self, at: usize) -> Tree {
        let tree = self.objects[at].tree.clone();
        let (scalars, collections) = places::all(&tree);
        let some = |maker: &mut Maker<'_>, among: &[Place]| -> Place {
            match among.is_empty() {
                true => vec![Step::Field("metadata".into()), Step::Field("name".into())],
                false => among[maker.below(among.len())].clone(),
            }
        };
        let place = some(self.maker, &scalars);
        let op = self.maker.mostly(
            &[
                "add", "add", "replace", "replace", "remove", "test", "copy", "move",
            ],
            &["odd", "", "Add"],
        );
        let op = op.to_owned();
        let mut made = map([("op", text(op.as_str()))]);
        // Where something may be added: a new field, or an item at some place.
        let into = some(self.maker, &collections);
        let new = match places::find(&tree, &into) {
            Some(Tree::List(items)) => {
                let index = self.maker.below(items.len() + 1).to_string();
                let last = self.maker.mostly(&["-", "", "-1"], &["99", "x", "-9"]);
                let index = if last.is_empty() {
                    index
                } else {
                    last.to_owned()
                };
                format!("{}/{index}", places::pointer(&into))
            }
            _ => format!(
                "{}/{}",
                places::pointer(&into),
                self.maker.pick(&["added", "a~1b", "1"])
            ),
        };
        let value = match (places::find(&tree, &into), self.maker.below(4)) {
            (Some(inside), _) if !self.maker.fault(30) => alike(self.maker, inside),
            (_, 0) => map([("name", text("added"))]),
            (_, 1) => list([text("x")]),
            _ => scalar(self.maker),
        };
        let mut path = places::pointer(&place);
        match op.as_str() {
            "add" => {
                if self.maker.chance(75) {
                    path = new;
                }
                made.set("value", value);
            }
            "replace" => {
                let old = places::find(&tree, &place).cloned().unwrap_or(text("x"));
                let mut new = other_scalar(self.maker, &old);
                if self.maker.chance(4) {
                    path = "/metadata/name".into();
                    new = text("replaced");
                } else if self.maker.fault(15) {
                    path = places::pointer(&into);
                    new = value;
                }
                made.set("value", new);
            }
            "test" => {
                // Labels, images and the like may have become others.
                let is_stable = |place: &&Place| {
                    let own = places::pointer(place);
                    ![
                        "abels",
                        "elector",
                        "nnotations",
                        "ame",
                        "image",
                        "replicas",
                        "$(",
                    ]
                    .iter()
                    .any(|part| own.contains(part))
                };
                let stable: Vec<Place> = scalars.iter().filter(is_stable).cloned().collect();
                let place = match (self.maker.fault(30), stable.is_empty()) {
                    (true, _) => place.clone(),
                    (_, true) => vec![Step::Field("kind".into())],
                    _ => some(self.maker, &stable),
                };
                path = places::pointer(&place);
                let own = places::find(&tree, &place).cloned().unwrap_or(text("x"));
                made.set(
                    "value",
                    if self.maker.fault(20) {
                        text("else")
                    } else {
                        own
                    },
                );
            }
            "copy" | "move" => {
                made.set("from", text(path));
                path = new;
            }
            _ => {}
        }
        if matches!(op.as_str(), "remove" | "move") {
            places::remove(&mut self.objects[at].tree, &place);
        }
        if self.maker.fault(10) {
            let odd = [
                "",
                "metadata",
                "/a/b/c",
                "/spec/template/spec/containers/9",
                "/metadata/namespace",
                "/kind",
            ];
            path = self.maker.pick(&odd).to_owned();
        }
        if !self.maker.fault(3) {
            made.set("path", text(path));
        }
        made
    }

    pub(super) fn operations(&mut self, at: usize) -> Tree {
        let count = 1 + self.maker.below(2);
        let made: Vec<Tree> = (0..count).map(|_| self.operation(at)).collect();
        match self.maker.fault(3) {
            true => made.into_iter().next().unwrap_or_else(|| text("x")),
            false => list(made),
        }
    }

    /// What fits an object of a place, and perhaps others; all of its kind have it when it is `exact`.
    pub(super) fn target(&mut self, at: usize, exact: bool) -> Tree {
        let name = self.name_of(at);
        let object = &self.objects[at];
        let (group, version) = match object.api_version().split_once('/') {
            Some((group, version)) => (group.to_owned(), version.to_owned()),
            None => (String::new(), object.api_version().to_owned()),
        };
        let kind = object.kind().to_owned();
        let namespace = object.namespace().map(str::to_owned);
        let mut target = map::<&str>([]);
        if exact || self.maker.chance(80) {
            let kind = match self.maker.chance(8) {
                true => format!("{}.*", &kind[..kind.len().min(4)]),
                false => kind,
            };
            target.set(
                "kind",
                text(
                    self.maker
                        .mostly(&[&kind], &["(", "deployment", ".*", "Odd"]),
                ),
            );
        }
        if exact || self.maker.chance(60) {
            let name = match self.maker.chance(10) && !exact {
                true => self
                    .maker
                    .pick(&["w.*", "api|web", "^web$", "[a-z]+"])
                    .to_owned(),
                false => name,
            };
            target.set(
                "name",
                text(self.maker.mostly(&[&name], &["[", "nobody", NAMES[0]])),
            );
        }
        if self.maker.chance(20) && !group.is_empty() {
            target.set("group", text(group));
        }
        if self.maker.chance(20) {
            target.set(
                "version",
                text(self.maker.mostly(&[&version, "v.*"], &["v9"])),
            );
        }
        if let Some(namespace) = namespace
            && self.maker.chance(30)
        {
            target.set(
                "namespace",
                text(self.maker.mostly(&[&namespace], &NAMESPACES)),
            );
        }
        target
    }

    /// Adds labels or annotations to what a target asks for.
    pub(super) fn with_selectors(&mut self, mut target: Tree) -> Tree {
        for field in ["labelSelector", "annotationSelector"] {
            if self.maker.chance(10) {
                let usual = [
                    "app=web",
                    "app",
                    "!app",
                    "app in (web, back)",
                    "tier!=x",
                    "app==web,tier",
                    "app notin (web)",
                    "team in (),!x",
                ];
                let odd = [
                    "app in web",
                    "=",
                    "app=(",
                    "a b",
                    ",",
                    "app>1",
                    "-x",
                    "a/b/c",
                    "x<y",
                    "app=blue green",
                ];
                target.set(field, text(self.maker.mostly(&usual, &odd)));
            }
        }
        target
    }

    fn content(&mut self, name: &str, content: Tree, patch: &mut Tree) {
        match self.maker.chance(30) {
            true => {
                let mut name = self.file(name, &[content]);
                if self.maker.fault(5) {
                    name = "missing.yaml".into();
                }
                patch.set("path", text(name));
            }
            false => {
                let written = self.written(&content);
                patch.set("patch", text(written));
            }
        }
    }

    pub(super) fn patch(&mut self) -> Option<Tree> {
        let at = self.any_of(|_| true)?;
        let mut patch = map::<&str>([]);
        if self.maker.chance(45) {
            let target = self.target(at, true);
            let target = self.with_selectors(target);
            let operations = self.operations(at);
            self.content("p", operations, &mut patch);
            if !self.maker.fault(6) {
                patch.set("target", target);
            }
        } else {
            let has_target = self.maker.chance(50);
            if has_target {
                let exact = self.maker.chance(70);
                let target = self.target(at, exact);
                let target = self.with_selectors(target);
                patch.set("target", target);
            }
            let content = self.strategic_patch(at, has_target);
            self.content("p", content, &mut patch);
            if self.maker.fault(4) {
                patch.set("path", text("both.yaml"));
            }
        }
        // Objects that all become one with the name of the patch are in conflict.
        let is_named = |patch: &Tree| {
            let content = patch.get("patch").and_then(Tree::scalar);
            content.is_some_and(|content| !content.contains("any"))
        };
        if self.maker.chance(15) && (is_named(&patch) || self.maker.fault(30)) {
            let mut options = map::<&str>([]);
            for field in ["allowNameChange", "allowKindChange"] {
                if self.maker.chance(70) {
                    options.set(
                        field,
                        raw(self.maker.mostly(&["true"], &["false", "'yes'"])),
                    );
                }
            }
            patch.set("options", options);
        }
        Some(patch)
    }

    pub(super) fn patches(&mut self) {
        if let Some(patch) = self.patch() {
            self.push("patches", patch);
        }
    }

    pub(super) fn strategic_patches(&mut self) {
        for _ in 0..1 + self.maker.below(2) {
            if let Some(at) = self.any_of(|_| true) {
                let patch = self.strategic_patch(at, false);
                let entry = match self.maker.chance(50) {
                    true => self.file("s", &[patch]),
                    false => self.written(&patch),
                };
                self.push("patchesStrategicMerge", text(entry));
            }
        }
    }

    /// A target that is a name, not an expression.
    pub(super) fn plain_target(&mut self, at: usize) -> Tree {
        let name = self.name_of(at);
        let Object { tree, .. } = &self.objects[at];
        let api_version = tree
            .get("apiVersion")
            .and_then(Tree::scalar)
            .unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = tree.get("kind").and_then(Tree::scalar).unwrap_or_default();
        let mut target = map([
            ("version", text(version)),
            ("kind", text(kind)),
            ("name", text(name)),
        ]);
        if !group.is_empty() {
            target.set("group", text(group));
        }
        target
    }

    pub(super) fn json_patches(&mut self) {
        let Some(at) = self.any_of(|_| true) else {
            return;
        };
        let target = self.plain_target(at);
        let operations = self.operations(at);
        let mut patch = map::<&str>([]);
        if !self.maker.fault(6) {
            patch.set("target", target);
        }
        self.content("j", operations, &mut patch);
        self.push("patchesJson6902", patch);
    }
}
