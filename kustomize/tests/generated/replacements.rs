//! Replacements and variables: values of places that are there, put into others.

use super::directory::Directory;
use super::maker::Maker;
use super::objects::{NAMES, labels};
use super::places::{self, Place};
use super::tree::{Tree, list, map, raw, text};

impl Directory<'_, '_> {
    fn field_options(&mut self, is_source: bool) -> Tree {
        let mut options = map::<&str>([]);
        options.set(
            "delimiter",
            text(self.maker.pick(&[":", "/", ".", "-", "e"])),
        );
        if self.maker.chance(60) {
            let usual: &[&str] = if is_source {
                &["0"]
            } else {
                &["0", "1", "-1", "5"]
            };
            options.set(
                "index",
                raw(self.maker.mostly(usual, &["1", "x", "99", "-2"])),
            );
        }
        if self.maker.fault(10) {
            options.set("encoding", text("base64"));
        }
        options
    }

    /// A place of a value: of a scalar, now and then of a collection.
    fn some_place(maker: &mut Maker<'_>, tree: &Tree, is_scalar: bool) -> Option<Place> {
        let (scalars, collections) = places::all(tree);
        let among = if is_scalar || maker.chance(90) || collections.is_empty() {
            scalars
        } else {
            collections
        };
        (!among.is_empty()).then(|| among[maker.below(among.len())].clone())
    }

    fn target_fields(&mut self, at: usize, target: &mut Tree) {
        let tree = self.objects[at].tree.clone();
        let (mut scalars, collections) = places::all(&tree);
        // A text where a number belongs cannot be written.
        if !self.maker.fault(30) {
            scalars.retain(|place| !places::find(&tree, place).is_some_and(Tree::is_number));
        }
        let mut paths = Vec::new();
        let creates = self.maker.chance(25);
        for _ in 0..1 + self.maker.below(2) {
            if creates && self.maker.chance(60) && !collections.is_empty() {
                let place = &collections[self.maker.below(collections.len())];
                let into = places::field_path(self.maker, &tree, place, false);
                paths.push(text(match places::find(&tree, place) {
                    Some(Tree::List(items)) => match self.maker.below(3) {
                        0 => format!("{into}.{}", items.len()),
                        1 => format!("{into}.[name=made].value"),
                        _ => format!("{into}.[name=main].image"),
                    },
                    _ => format!(
                        "{into}.{}",
                        self.maker
                            .pick(&["made", "new.deep", "[made.dot]", "grown.0.deep"])
                    ),
                }));
            } else if !scalars.is_empty() {
                let place = &scalars[self.maker.below(scalars.len())];
                let mut path = places::field_path(self.maker, &tree, place, true);
                let own = places::find(&tree, place)
                    .and_then(Tree::scalar)
                    .unwrap_or_default();
                if own.starts_with("{\"a\"") || own.starts_with("a: {b") {
                    // Into the text, as data.
                    path += self
                        .maker
                        .mostly(&["", ".a.b", ".c.0", ".a"], &[".none", ".c.9"]);
                }
                paths.push(text(path));
            }
        }
        if self.maker.fault(12) {
            let odd = [
                "spec.missing.deep",
                "a..b",
                "",
                "spec.*",
                "data.[x",
                "metadata.[name=x]",
                "spec.template.spec.containers.[name=(].image",
            ];
            paths.push(text(self.maker.pick(&odd)));
        }
        if !paths.is_empty() && self.maker.chance(92) {
            target.set("fieldPaths", list(paths));
        }
        let mut options = map::<&str>([]);
        if self.maker.chance(25) {
            options = self.field_options(false);
        }
        if creates {
            options.set("create", raw("true"));
        }
        if !options.is_empty() {
            target.set("options", options);
        }
    }

    pub(super) fn replacement(&mut self) -> Option<Tree> {
        let at = self.any_of(|_| true)?;
        let mut source = map([("kind", text(self.objects[at].kind()))]);
        if !self.maker.fault(8) {
            source.set("name", text(self.name_of(at)));
        }
        if let Some(namespace) = self.objects[at].namespace()
            && self.maker.chance(30)
        {
            source.set("namespace", text(namespace));
        }
        if self.maker.chance(20) {
            let (_, version) = split(self.objects[at].api_version());
            source.set("version", text(version));
        }
        let tree = self.objects[at].tree.clone();
        if let Some(place) = Self::some_place(self.maker, &tree, false)
            && self.maker.chance(80)
        {
            let path = places::field_path(self.maker, &tree, &place, false);
            source.set("fieldPath", text(path));
            let is_filled = places::find(&tree, &place)
                .and_then(Tree::scalar)
                .is_some_and(|text| text.len() > 2);
            if is_filled && self.maker.chance(20) {
                source.set("options", self.field_options(true));
            }
        }
        if self.maker.fault(8) {
            source.set(
                "fieldPath",
                text(self.maker.pick(&["none", "spec.none", "metadata.*", "[a"])),
            );
        }
        let mut targets = Vec::new();
        for _ in 0..1 + self.maker.below(2) {
            let at = self.any_of(|_| true)?;
            let exact = self.maker.chance(90);
            let select = self.target(at, exact);
            let mut target = map([("select", self.with_selectors(select))]);
            if self.maker.chance(12) {
                let other = self.any_of(|_| true)?;
                target.set("reject", list([self.target(other, false)]));
            }
            if exact {
                self.target_fields(at, &mut target);
            } else {
                let paths = [
                    "metadata.annotations.copied",
                    "metadata.labels.[example.com/copied]",
                ];
                target.set("fieldPaths", list([text(self.maker.pick(&paths))]));
                target.set("options", map([("create", raw("true"))]));
            }
            if self.maker.fault(5)
                && let Tree::Map(entries) = &mut target
            {
                entries.retain(|(key, _)| key != "select");
            }
            targets.push(target);
        }
        let mut made = map::<&str>([]);
        if self.maker.chance(10) {
            let value = match self.maker.chance(85) {
                true => text(self.maker.pick(&["given", "7", "true", "two words"])),
                false => raw(self.maker.mostly(&["'5'"], &["5", "true", "[a]", "null"])),
            };
            made.set("sourceValue", value);
            if self.maker.fault(15) {
                made.set("source", source);
            }
        } else if !self.maker.fault(4) {
            made.set("source", source);
        }
        if !self.maker.fault(4) {
            made.set("targets", list(targets));
        }
        Some(made)
    }

    pub(super) fn replacements(&mut self) {
        let Some(mut made) = self.replacement() else {
            return;
        };
        if self.maker.chance(20) {
            let second = self.replacement().filter(|_| self.maker.chance(50));
            let content = match second {
                Some(second) => list([made, second]),
                None => made,
            };
            let name = self.file("replace", &[content]);
            made = map([("path", text(name))]);
        }
        self.push("replacements", made);
    }

    pub(super) fn vars(&mut self) {
        let Some(name) = self.maker.variable() else {
            return;
        };
        let Some(at) = self.any_of(|object| object.kind() != "CustomResourceDefinition") else {
            return;
        };
        let called = match self.maker.fault(10) {
            true => NAMES[0].to_owned(),
            false => self.name_of(at),
        };
        let object = &self.objects[at];
        let mut target = map([
            ("apiVersion", text(object.api_version())),
            ("kind", text(object.kind())),
            ("name", text(called)),
        ]);
        if let Some(namespace) = object.namespace()
            && self.maker.chance(20)
        {
            target.set("namespace", text(namespace));
        }
        let tree = object.tree.clone();
        let mut var = map([("name", text(name)), ("objref", target)]);
        let is_scalar = !self.maker.fault(30);
        if let Some(place) = Self::some_place(self.maker, &tree, is_scalar)
            && self.maker.chance(60)
        {
            let mut path = places::variable_path(&place);
            if self.maker.fault(10) {
                path = self
                    .maker
                    .pick(&["spec.none", "spec.ports[9].port", ""])
                    .to_owned();
            }
            var.set("fieldref", map([("fieldPath", text(path))]));
        }
        self.push("vars", var);
        if self.maker.chance(50) {
            // Somewhere to stand.
            let annotations = labels(self.maker).with("by", text(format!("v-$({name})")));
            self.set("commonAnnotations", annotations);
        }
    }
}

fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}
