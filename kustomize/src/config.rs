//! The fields that transformers change: the defaults, and those that `configurations` and `crds` add (`builtinconfig`,
//! `accumulator/loadconfigfromcrds.go`).

use std::fmt;
use std::sync::LazyLock;

use serde_json::Value;

use crate::decode::{COPIES, Decoder, go_slices, go_structs};
use crate::error::{Context as _, Error, Result};
use crate::loader::{Build, Loader};
use crate::resid::Gvk;

go_structs! {
    /// A field of the objects of some types.
    FieldSpec = "FieldSpec" {
        path: "path" = String,
        create: "create" = bool,
        + gvk: Gvk,
    }
    /// The fields that name objects of a type.
    NameBackReferences = "builtinconfig.NameBackReferences" {
        referrers: "fieldSpecs" = FsSlice,
        + gvk: Gvk,
    }
    /// The fields of all transformers.
    TransformerConfig = "builtinconfig.TransformerConfig" {
        name_prefix: "namePrefix" = FsSlice,
        name_suffix: "nameSuffix" = FsSlice,
        namespace: "namespace" = FsSlice,
        common_labels: "commonLabels" = FsSlice,
        labels: "labels" = FsSlice,
        template_labels: "templateLabels" = FsSlice,
        common_annotations: "commonAnnotations" = FsSlice,
        name_reference: "nameReference" = NbrSlice,
        var_reference: "varReference" = FsSlice,
        images: "images" = FsSlice,
        replicas: "replicas" = FsSlice,
    }
}

/// The paths of texts in a file of configurations; an embedded struct, such as a kind, adds no level to a path.
fn is_text(path: &[&str]) -> bool {
    let is = |path: &str, name: &str| path.eq_ignore_ascii_case(name);
    match path {
        [specs, field] => {
            let is_known = TransformerConfig::known()
                .into_iter()
                .any(|known| is(specs, known));
            is_known && !is(specs, "nameReference") && is(field, "path")
        }
        [references, specs, field] => {
            is(references, "nameReference") && is(specs, "fieldSpecs") && is(field, "path")
        }
        _ => false,
    }
}

go_slices! {
    /// The fields of one transformer.
    FsSlice = "types.FsSlice" of FieldSpec;
    /// The fields that name objects.
    NbrSlice = "builtinconfig.nbrSlice" of NameBackReferences;
}

impl FieldSpec {
    pub(crate) fn of(path: &str, create: bool) -> Self {
        Self {
            path: path.to_owned(),
            create,
            gvk: Gvk::default(),
        }
    }
}

impl fmt::Display for FieldSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.gvk, self.create, self.path)
    }
}

/// As Go's `%v` prints slices.
macro_rules! in_brackets {
    ($($slice:ty),*) => {$(
        impl fmt::Display for $slice {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let texts: Vec<String> = self.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", texts.join(" "))
            }
        }
    )*};
}

in_brackets!(FsSlice, NbrSlice);

impl fmt::Display for NameBackReferences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.referrers.iter().map(ToString::to_string).collect();
        write!(f, "{}:  (\n{}\n)", self.gvk, texts.join("\n"))
    }
}

/// As Go's `%v` prints a pointer to it.
impl fmt::Display for TransformerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "&{{{} {} {} {} {} {} {} {} {} {} {}}}",
            self.name_prefix,
            self.name_suffix,
            self.namespace,
            self.common_labels,
            self.labels,
            self.template_labels,
            self.common_annotations,
            self.name_reference,
            self.var_reference,
            self.images,
            self.replicas,
        )
    }
}

/// Adds a field, unless one for at least the same objects is there.
///
/// # Errors
/// When it is there and is to be created in only one of both.
pub(crate) fn merge_one(list: &mut Vec<FieldSpec>, spec: &FieldSpec) -> Result<()> {
    let same = list
        .iter()
        .find(|own| own.gvk.is_selected(&spec.gvk) && own.path == spec.path);
    match same {
        Some(own) if own.create != spec.create => Err(Error::new("conflicting fieldspecs")),
        Some(_) => Ok(()),
        None => {
            list.push(spec.clone());
            Ok(())
        }
    }
}

pub(crate) fn merge_all(list: &mut Vec<FieldSpec>, specs: &[FieldSpec]) -> Result<()> {
    specs.iter().try_for_each(|spec| merge_one(list, spec))
}

/// Fields of one type, which are many, stand in no order of their own: where the sort leaves them is where they are changed.
fn sort_as_go<T>(list: &mut Vec<T>, gvk: impl Fn(&T) -> &Gvk) {
    let keyed = std::mem::take(list).into_iter();
    let mut keyed: Vec<_> = keyed.map(|item| (gvk(&item).sort_key(), item)).collect();
    golib::sort::sort(&mut keyed, |one, other| one.0 < other.0);
    list.extend(keyed.into_iter().map(|(_, item)| item));
}

static DEFAULT: LazyLock<TransformerConfig> = LazyLock::new(|| {
    let mut config = TransformerConfig::default();
    for line in include_str!("tables/field_specs.txt").lines() {
        config.add_default(line).expect("the table is well formed");
    }
    config.sort();
    config
});

impl TransformerConfig {
    fn add_default(&mut self, line: &str) -> Option<()> {
        let mut words = line
            .split(' ')
            .map(|word| if word == "-" { "" } else { word });
        let mut next = || words.next();
        let list = next()?;
        let referent = match list {
            "nameReference" => Some([next()?, next()?, next()?]),
            _ => None,
        };
        let [group, version, kind] = [next()?, next()?, next()?];
        let spec = FieldSpec {
            gvk: Gvk {
                group: group.into(),
                version: version.into(),
                kind: kind.into(),
                is_cluster_scoped: false,
            },
            create: next()? == "true",
            path: next()?.into(),
        };
        if let Some([group, version, kind]) = referent {
            let gvk = Gvk {
                group: group.into(),
                version: version.into(),
                kind: kind.into(),
                is_cluster_scoped: false,
            };
            match self.name_reference.last_mut() {
                Some(last) if last.gvk == gvk => last.referrers.push(spec),
                _ => self.name_reference.push(NameBackReferences {
                    gvk,
                    referrers: FsSlice(vec![spec]),
                }),
            }
            return Some(());
        }
        // Files name a list with a small letter, kustomize's messages with a capital.
        let mut lists = self.lists().into_iter();
        let (_, list) = lists.find(|(name, _)| name.eq_ignore_ascii_case(list))?;
        list.push(spec);
        Some(())
    }

    fn lists(&mut self) -> [(&'static str, &mut Vec<FieldSpec>); 10] {
        [
            ("NamePrefix", &mut self.name_prefix),
            ("NameSuffix", &mut self.name_suffix),
            ("NameSpace", &mut self.namespace),
            ("CommonAnnotations", &mut self.common_annotations),
            ("CommonLabels", &mut self.common_labels),
            ("Labels", &mut self.labels),
            ("TemplateLabels", &mut self.template_labels),
            ("VarReference", &mut self.var_reference),
            ("Images", &mut self.images),
            ("Replicas", &mut self.replicas),
        ]
    }

    fn sort(&mut self) {
        for (_, list) in self.lists() {
            sort_as_go(list, |spec| &spec.gvk);
        }
        sort_as_go(&mut self.name_reference, |references| &references.gvk);
    }

    /// Cost of merging another configuration, in steps of work: each field is held against all others of its list.
    fn cost_of(&mut self, other: &mut Self) -> usize {
        let referrers = |config: &Self| -> usize {
            let all = config.name_reference.iter();
            all.map(|one| 1 + one.referrers.len()).sum()
        };
        // The new ones are held against one another too.
        let pairs = self.lists().into_iter().zip(other.lists());
        let pairs = pairs
            .map(|((_, own), (_, new))| (own.len() + new.len()).saturating_mul(new.len()))
            .sum::<usize>();
        pairs / 32 + (referrers(self) + referrers(other)).saturating_mul(referrers(other)) / 1024
    }

    /// Adds the fields of another.
    ///
    /// # Errors
    /// When both have a field that only one of them creates.
    pub(crate) fn merge(&mut self, other: &Self, build: &Build<'_>) -> Result<()> {
        let mut other = other.clone();
        build.work(1 + self.cost_of(&mut other))?;
        for ((name, own), (_, new)) in self.lists().into_iter().zip(other.lists()) {
            merge_all(own, new).with_context(|| format!("failed to merge {name} fieldSpec"))?;
        }
        for references in &*other.name_reference {
            self.merge_reference(references)
                .context("failed to merge NameReference fieldSpec")?;
        }
        self.sort();
        Ok(())
    }

    fn merge_reference(&mut self, references: &NameBackReferences) -> Result<()> {
        let mut is_found = false;
        for own in &mut *self.name_reference {
            if own.gvk.equals(&references.gvk) {
                merge_all(&mut own.referrers, &references.referrers)?;
                is_found = true;
            }
        }
        if !is_found {
            self.name_reference.push(references.clone());
        }
        Ok(())
    }

    /// The defaults with what some files add.
    pub(crate) fn load(loader: &Loader<'_>, paths: &[String]) -> Result<Self> {
        let mut config = DEFAULT.clone();
        if paths.is_empty() {
            return Ok(config);
        }
        let mut added = Self::default();
        for path in paths {
            let text = loader.load(path)?;
            let decoder = golib::yaml::Decoder::new().strict().texts(&is_text);
            let value = decoder.decode(&text, &mut loader.build.document())?;
            let mut own: Self = if value.is_null() {
                Self::default()
            } else {
                Decoder::new(true, loader.build)
                    .converting()
                    .read(&value, loader.build)
                    .map_err(|error| {
                        error.context("error unmarshaling JSON: while decoding JSON")
                    })?
            };
            own.sort();
            added.merge(&own, loader.build)?;
        }
        config.merge(&added, loader.build)?;
        Ok(config)
    }

    /// The fields that definitions of custom resources name by their extensions.
    pub(crate) fn load_from_crds(loader: &Loader<'_>, paths: &[String]) -> Result<Self> {
        let mut config = Self::default();
        for path in paths {
            let text = loader.load(path)?;
            let value = if text.first() == Some(&b'{') {
                let value = golib::json::decode_within(&text, &mut loader.build.document())
                    .map_err(Error::from);
                value.and_then(|value| expect_definitions(&value).map(|()| value))
            } else {
                let value = golib::yaml::Decoder::new()
                    .decode(&text, &mut loader.build.document())
                    .map_err(Error::from);
                value.and_then(|value| {
                    expect_definitions(&value)
                        .context("error unmarshaling JSON: while decoding JSON")
                        .map(|()| value)
                })
            };
            let value = value
                .with_context(|| format!("unable to parse open API definition from '{path}'"))?;
            config.merge(&Self::from_definitions(&value, loader.build)?, loader.build)?;
        }
        Ok(config)
    }

    fn from_definitions(definitions: &Value, build: &Build<'_>) -> Result<Self> {
        let mut config = Self::default();
        for (name, definition) in definitions.as_object().into_iter().flatten() {
            let Some(properties) = properties(definition) else {
                continue;
            };
            let looks_like_a_type = ["kind", "apiVersion", "metadata"]
                .into_iter()
                .all(|field| properties.contains_key(field));
            if !looks_like_a_type {
                continue;
            }
            let mut own = Self::default();
            let gvk = Gvk {
                kind: name.rsplit('.').next().unwrap_or_default().to_owned(),
                ..Gvk::default()
            };
            own.add_properties(&gvk, definitions, name, &mut Vec::new(), build)?;
            config.merge(&own, build)?;
        }
        Ok(config)
    }

    fn add_properties(
        &mut self,
        gvk: &Gvk,
        definitions: &Value,
        name: &str,
        path: &mut Vec<String>,
        build: &Build<'_>,
    ) -> Result<()> {
        /// Definitions that name themselves have no end.
        const MAX_DEPTH: usize = 32;
        let Some(properties) = definitions.get(name).and_then(properties) else {
            return Ok(());
        };
        if path.len() >= MAX_DEPTH {
            return Err(Error::limit(format!(
                "the definition of {name} is nested deeper than {MAX_DEPTH} levels"
            )));
        }
        for (field, property) in properties {
            // Definitions that name one another several times lead along many more paths than there are definitions.
            let entries = property.as_object().map_or(0, serde_json::Map::len);
            build.work(1 + path.len() + entries / 8 + field.len() / 64)?;
            path.push(field.clone());
            let extension = |name: &str| {
                let entries = property.as_object()?;
                let found = entries
                    .iter()
                    .find(|(key, _)| key.eq_ignore_ascii_case(name))?;
                found.1.as_str()
            };
            let spec = |path: &[String], others: usize| {
                let length: usize = path.iter().map(|part| part.len() + 1).sum();
                build.grow_by(COPIES * (size_of::<FieldSpec>() + length + gvk.kind.len()))?;
                build.work(1 + others / 32 + length / 64)?;
                Ok::<_, Error>(FieldSpec {
                    gvk: gvk.clone(),
                    create: false,
                    path: path.join("/"),
                })
            };
            for (name, list) in [
                ("x-kubernetes-annotation", &mut self.common_annotations),
                ("x-kubernetes-label-selector", &mut self.common_labels),
                ("x-kubernetes-identity", &mut self.name_prefix),
            ] {
                if extension(name).is_some() {
                    let spec = spec(path, list.len())?;
                    merge_one(list, &spec)?;
                }
            }
            if let (Some(version), Some(kind)) = (
                extension("x-kubernetes-object-ref-api-version"),
                extension("x-kubernetes-object-ref-kind"),
            ) {
                let key = extension("x-kubernetes-object-ref-name-key").unwrap_or("name");
                path.push(key.to_owned());
                let others = self.name_reference.iter();
                let others = others.map(|one| 1 + one.referrers.len()).sum();
                let bytes = size_of::<NameBackReferences>() + version.len() + kind.len();
                build.grow_by(COPIES * bytes)?;
                let references = NameBackReferences {
                    gvk: Gvk {
                        version: version.to_owned(),
                        kind: kind.to_owned(),
                        ..Gvk::default()
                    },
                    referrers: FsSlice(vec![spec(path, others)?]),
                };
                path.pop();
                self.merge_reference(&references)?;
            }
            if let Some(reference) = property.get("$ref").and_then(Value::as_str) {
                self.add_properties(gvk, definitions, reference, path, build)?;
            }
            path.pop();
        }
        Ok(())
    }
}

/// Definitions have the types that Go reads them into.
///
/// # Errors
/// In its words.
fn expect_definitions(definitions: &Value) -> Result<()> {
    let map = |value: &Value, kind: &'static str| match value {
        Value::Null | Value::Object(_) => Ok(()),
        other => Err(Error::from(golib::json::Error::wrong_type(other, kind))),
    };
    map(definitions, "accumulator.nameToApiMap")?;
    for definition in definitions
        .as_object()
        .into_iter()
        .flat_map(|all| all.values())
    {
        map(definition, "accumulator.OpenAPIDefinition")?;
        let schema = definition
            .get("Schema")
            .or_else(|| definition.get("schema"));
        if let Some(schema) = schema {
            expect_schema(schema)?;
        }
    }
    Ok(())
}

fn expect_schema(schema: &Value) -> Result<()> {
    const SCHEMA: &str = "json: cannot unmarshal Go value of type spec.Schema";
    let map = |value: &Value, expected: &str| {
        let kind = match value {
            Value::Null | Value::Object(_) => return Ok(()),
            Value::Bool(_) => "boolean",
            other => golib::json::type_name(other),
        };
        let text = format!("json: cannot unmarshal JSON {kind} into Go value of type {expected}");
        Err(Error::new(text).context(SCHEMA))
    };
    map(
        schema,
        "struct { spec.Extensions; spec.SchemaProps; spec.SwaggerSchemaProps }",
    )?;
    let Some(properties) = schema.get("properties") else {
        return Ok(());
    };
    map(properties, "map[string]spec.Schema")?;
    let properties = properties
        .as_object()
        .into_iter()
        .flat_map(|all| all.values());
    properties
        .into_iter()
        .try_for_each(|property| expect_schema(property).context(SCHEMA))
}

fn properties(definition: &Value) -> Option<&serde_json::Map<String, Value>> {
    let schema = definition
        .get("Schema")
        .or_else(|| definition.get("schema"))?;
    schema.get("properties")?.as_object()
}
