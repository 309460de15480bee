//! What tells kustomize of fields and types: field specs, configurations, definitions of custom resources, schemas.

use super::directory::Directory;
use super::tree::{Tree, list, map, raw, text};

impl Directory<'_, '_> {
    /// One of some fields, for all objects or those of a type.
    fn spec(&mut self, paths: &[&str], kinds: &[&str], creates: bool) -> Tree {
        let odd = [
            "data",
            "spec/replicas",
            "spec/items[]/value",
            "kind",
            "spec/template",
            "",
        ];
        let path = self.maker.mostly(paths, &odd);
        let mut spec = map([("path", text(path))]);
        if creates && self.maker.chance(50) {
            spec.set("create", raw("true"));
        }
        if !kinds.is_empty() {
            spec.set("kind", raw(self.maker.pick(kinds)));
            if self.maker.chance(20) {
                spec.set("version", raw(self.maker.pick(&["v1", "v2"])));
            }
        }
        spec
    }

    pub(super) fn field_of_labels(&mut self) -> Tree {
        let paths = [
            "spec/marks",
            "spec/template/metadata/labels",
            "spec/template/marks/deep",
        ];
        self.spec(&paths, &["Deployment", "Widget", "Job"], true)
    }

    fn field_of_texts(&mut self) -> Tree {
        let paths = [
            "spec/size",
            "spec/items/value",
            "spec/items[]/value",
            "spec/image",
            "spec/secretRef/name",
        ];
        self.spec(&paths, &["Widget"], false)
    }

    /// A field for a transformer of its own.
    pub(super) fn field_spec(&mut self, list: &str) -> Tree {
        match list {
            "labels" => self.field_of_labels(),
            "namespace" => self.spec(
                &["spec/where", "spec/secretRef/namespace"],
                &["Widget"],
                true,
            ),
            "name" => {
                let paths = ["metadata/name", "metadata/name", "spec/secretRef/name"];
                let kinds: &[&str] = if self.maker.chance(50) {
                    &[]
                } else {
                    &["Widget", "ConfigMap"]
                };
                self.spec(&paths, kinds, false)
            }
            "count" => self.spec(
                &["spec/replicas", "spec/count"],
                &["Deployment", "StatefulSet"],
                true,
            ),
            _ => self.field_of_texts(),
        }
    }

    pub(super) fn crds(&mut self) {
        let properties = "{\"kind\": {}, \"apiVersion\": {}, \"metadata\": {}, \"spec\": {\"$ref\": \"example.com/v1.WidgetSpec\"}}";
        let widget = format!("{{\"Schema\": {{\"properties\": {properties}}}}}");
        let spec = match self.maker.below(4) {
            0 => {
                "\"secretRef\": {\"x-kubernetes-object-ref-api-version\": \"v1\", \"x-kubernetes-object-ref-kind\": \"Secret\"}"
            }
            1 => {
                "\"secretRef\": {\"x-kubernetes-object-ref-api-version\": \"v1\", \"x-kubernetes-object-ref-kind\": \"ConfigMap\", \"x-kubernetes-object-ref-name-key\": \"name\"}"
            }
            2 => {
                "\"marks\": {\"x-kubernetes-label-selector\": \"\"}, \"notes\": {\"x-kubernetes-annotation\": \"\"}"
            }
            _ => "\"size\": {\"x-kubernetes-identity\": \"\"}",
        };
        let definitions = format!(
            "{{\"example.com/v1.Widget\": {widget}, \"example.com/v1.WidgetSpec\": {{\"Schema\": {{\"properties\": {{{spec}}}}}}}}}"
        );
        let content = match self.maker.fault(15) {
            true => self
                .maker
                .pick(&["{", "[]", "text", "{\"a\": 5}"])
                .to_owned(),
            false => definitions,
        };
        self.maker.files.insert(self.path("crd.json"), content);
        let name = self.maker.mostly(&["crd.json"], &["none.json"]);
        self.set("crds", list([text(name)]));
    }

    pub(super) fn configurations(&mut self) {
        let mut configuration = map::<&str>([]);
        let fields: [(&str, &str); 10] = [
            ("namePrefix", "name"),
            ("nameSuffix", "name"),
            ("namespace", "namespace"),
            ("commonLabels", "labels"),
            ("labels", "labels"),
            ("commonAnnotations", "labels"),
            ("images", "text"),
            ("replicas", "count"),
            ("varReference", "text"),
            ("templateLabels", "labels"),
        ];
        for (field, what) in fields {
            if self.maker.chance(20) {
                let mut spec = self.field_spec(what);
                if !self.maker.fault(20)
                    && let Tree::Map(entries) = &mut spec
                {
                    // The defaults make these, and say so.
                    let is_default = |path: &str| {
                        matches!(path, "spec/replicas" | "spec/template/metadata/labels")
                    };
                    let path = entries.iter().find(|(key, _)| key == "path");
                    if path
                        .and_then(|(_, path)| path.scalar())
                        .is_some_and(is_default)
                    {
                        entries.retain(|(key, _)| key != "create");
                        entries.push(("create".into(), raw("true")));
                    }
                }
                configuration.set(field, list([spec]));
            }
        }
        if self.maker.chance(40) {
            let kind = self.maker.pick(&["Secret", "ConfigMap", "Service"]);
            let path = self.maker.mostly(
                &["spec/secretRef/name", "spec/size"],
                &["spec/secretRef", "spec/items", ""],
            );
            let spec = map([("path", text(path)), ("kind", raw("Widget"))]);
            let reference = map([
                ("kind", raw(kind)),
                ("version", raw("v1")),
                ("fieldSpecs", list([spec])),
            ]);
            configuration.set("nameReference", list([reference]));
        }
        if self.maker.fault(10) {
            configuration.set(self.maker.pick(&["odd", "nameprefix"]), text("x"));
        }
        let name = self.file("config", &[configuration]);
        self.set("configurations", list([text(name)]));
    }

    pub(super) fn open_api(&mut self) {
        // Each costs Go more than ten other cases.
        if !self.maker.chance(20) {
            return;
        }
        if self.maker.chance(50) {
            let version = self.maker.mostly(&["v1.21.2"], &["v9", ""]);
            self.set("openapi", map([("version", text(version))]));
            return;
        }
        let items = "{\"type\": \"array\", \"items\": {\"type\": \"object\"}, \"x-kubernetes-patch-merge-key\": \"name\", \
             \"x-kubernetes-patch-strategy\": \"merge\"}";
        let spec = format!("{{\"type\": \"object\", \"properties\": {{\"items\": {items}}}}}");
        let kinds = "[{\"group\": \"example.com\", \"kind\": \"Widget\", \"version\": \"v1\"}]";
        let widget = format!(
            "{{\"type\": \"object\", \"properties\": {{\"spec\": {spec}}}, \"x-kubernetes-group-version-kind\": {kinds}}}"
        );
        let mut schema = format!("{{\"definitions\": {{\"com.example.v1.Widget\": {widget}}}}}");
        if self.maker.fault(15) {
            schema = self
                .maker
                .pick(&["{", "[]", "text", "{\"definitions\": 5}"])
                .to_owned();
        }
        self.maker.files.insert(self.path("schema.json"), schema);
        let mut field = map([(
            "path",
            text(self.maker.mostly(&["schema.json"], &["none.json"])),
        )]);
        if self.maker.fault(10) {
            field.set("version", text("v1.21.2"));
        }
        self.set("openapi", field);
    }
}
