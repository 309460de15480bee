//! Generated ConfigMaps and Secrets, of their own and over those that are there.

use super::directory::{Directory, Object};
use super::objects::{NAMES, NAMESPACES, labels};
use super::tree::{Tree, list, map, raw, text};

impl Directory<'_, '_> {
    /// A generator's arguments: of a new object, or of one that is merged into or replaced.
    pub(super) fn generator(&mut self, kind: &str) -> Tree {
        let base = match self.maker.chance(25) {
            true => self.any_of(|object| object.kind() == kind),
            false => None,
        };
        let mut made = map::<&str>([]);
        match base {
            Some(at) => {
                made.set("name", text(self.name_of(at)));
                if let Some(namespace) = self.objects[at].namespace() {
                    made.set("namespace", text(namespace));
                }
                let behavior = self
                    .maker
                    .mostly(&["merge", "replace"], &["create", "odd", ""]);
                made.set("behavior", text(behavior));
            }
            None => {
                let name = self.maker.free_name(kind, &NAMES);
                made.set("name", text(name.as_str()));
                let mut metadata = map([("name", text(name))]);
                if self.maker.chance(15) {
                    let namespace = self.maker.pick(&NAMESPACES);
                    made.set("namespace", text(namespace));
                    metadata.set("namespace", text(namespace));
                }
                if self.maker.chance(10) || self.maker.fault(10) {
                    let behavior = self
                        .maker
                        .mostly(&["create", ""], &["odd", "merge", "replace"]);
                    made.set("behavior", text(behavior));
                }
                let tree = map([
                    ("apiVersion", raw("v1")),
                    ("kind", raw(kind)),
                    ("metadata", metadata),
                ]);
                self.objects.push(Object {
                    names: vec![
                        made.get("name")
                            .and_then(Tree::scalar)
                            .unwrap_or_default()
                            .to_owned(),
                    ],
                    tree,
                });
            }
        }
        self.sources(&mut made);
        if kind == "Secret" && self.maker.chance(40) {
            made.set(
                "type",
                text(self.maker.pick(&["Opaque", "kubernetes.io/tls", ""])),
            );
        }
        if self.maker.chance(30) {
            let options = self.options();
            made.set("options", options);
        }
        if self.maker.fault(3)
            && let Tree::Map(entries) = &mut made
        {
            entries.retain(|(key, _)| key != "name");
        }
        made
    }

    fn sources(&mut self, made: &mut Tree) {
        if self.maker.chance(70) {
            let usual = [
                "a=b",
                "c='d e'",
                "e=\"f\"",
                "g=",
                "u=http://x/?a=b",
                "n=two\nlines\n",
                "q='",
                "y=yes",
                "long=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            ];
            let start = self.maker.below(usual.len());
            let count = 1 + self.maker.below(3);
            let literals = (0..count).map(|at| {
                let usual = usual[(start + at) % usual.len()];
                text(
                    self.maker
                        .mostly(&[usual], &["novalue", "=x", "a=b", "a=1\n2"]),
                )
            });
            let literals = literals.collect::<Vec<_>>();
            made.set("literals", list(literals));
        }
        if self.maker.chance(30) {
            let content = self.maker.pick(&[
                "key=value\n",
                "two\nlines\n",
                "",
                "\u{e9}t\u{e9}\n",
                "trailing  \n",
                "a: b",
                "crlf\r\nlines\r\n",
                "\ttab\n",
            ]);
            self.maker
                .files
                .insert(self.path("data.txt"), content.to_owned());
            let source = self.maker.mostly(
                &["data.txt", "k=data.txt", "k.yaml=./data.txt"],
                &[
                    "missing.txt",
                    "=data.txt",
                    "k=",
                    "a=b=c",
                    ".",
                    "../data.txt",
                ],
            );
            made.set("files", list([text(source)]));
        }
        if self.maker.chance(25) {
            let content = self.maker.pick(&[
                "A=1\n# no\n\nB=two words\n",
                "\u{feff}A=x\n",
                "NOVALUE\n=x\n",
                "A='q'\r\nB=2",
                "  A = 1 \n",
            ]);
            self.maker
                .files
                .insert(self.path("x.env"), content.to_owned());
            match self.maker.chance(30) {
                true => made.set("env", text("x.env")),
                false => made.set(
                    "envs",
                    list([text(self.maker.mostly(&["x.env"], &["y.env", "."]))]),
                ),
            }
        }
    }

    fn options(&mut self) -> Tree {
        let mut options = map::<&str>([]);
        if self.maker.chance(50) {
            options.set(
                "disableNameSuffixHash",
                raw(self.maker.pick(&["true", "false"])),
            );
        }
        for field in ["labels", "annotations"] {
            if self.maker.chance(30) {
                options.set(field, labels(self.maker));
            }
        }
        if self.maker.chance(20) {
            options.set("immutable", raw("true"));
        }
        options
    }

    pub(super) fn config_maps(&mut self) {
        let made = self.generator("ConfigMap");
        self.push("configMapGenerator", made);
    }

    pub(super) fn secrets(&mut self) {
        let made = self.generator("Secret");
        self.push("secretGenerator", made);
    }

    pub(super) fn generator_options(&mut self) {
        let options = self.options();
        self.set("generatorOptions", options);
    }
}
