//! A kustomization and what it accumulates: resources, generators, components, transformers, in this order, and at the end the
//! hashes, references and variables (`internal/target`, `accumulator`).

use std::collections::{BTreeMap, HashMap};

use golib::yaml::node::Kind;
use serde_json::Value;

use crate::config::{FieldSpec, TransformerConfig};
use crate::decode::{go_structs, handed_over, unmarshal, written_and_read};
use crate::error::{Context as _, Error, Result};
use crate::factory;
use crate::filters::fieldspec::{self, Create};
use crate::filters::nameref;
use crate::filters::refvar::{self, Variable, Variables};
use crate::fns;
use crate::generators;
use crate::kustomization::{
    COMPONENT, ConfigMapArgs, FILE_NAMES, GeneratorArgs, GeneratorOptions, Kustomization,
    ObjectMeta, SecretArgs, SortOptions, Var,
};
use crate::loader::{Build, Loader};
use crate::options::Options;
use crate::origin::Origin;
use crate::resid::{Gvk, ResId};
use crate::resmap::ResMap;
use crate::resource::{ORIGIN, Resource};
use crate::transformers::{self, Transformer};

go_structs! {
    ConfigMapPlugin = "builtins.ConfigMapGeneratorPlugin" {
        metadata: "metadata" = ObjectMeta,
        + args: ConfigMapArgs,
    }
    SecretPlugin = "builtins.SecretGeneratorPlugin" {
        metadata: "metadata" = ObjectMeta,
        + args: SecretArgs,
    }
}

/// What a kustomization has gathered.
#[derive(Default)]
struct Accumulator {
    map: ResMap,
    config: TransformerConfig,
    vars: BTreeMap<String, Var>,
}

/// A directory with a kustomization file.
struct Target<'a> {
    kustomization: Kustomization,
    file: &'static str,
    loader: Loader<'a>,
    origin: Option<Origin>,
}

enum Generator {
    ConfigMap(ConfigMapArgs),
    Secret(SecretArgs),
    /// With its configuration, which nothing is checked of before.
    IamPolicy(Value),
}

impl Generator {
    fn generate(self, loader: &Loader<'_>) -> Result<Vec<Resource>> {
        Ok(match self {
            Self::ConfigMap(args) => vec![generators::config_map(loader, &args)?],
            Self::Secret(args) => vec![generators::secret(loader, &args)?],
            Self::IamPolicy(config) => iam_policy(loader.build, &config)?,
        })
    }
}

/// Builds a directory.
pub(crate) fn build(build: &Build<'_>, path: &str, options: &Options) -> Result<ResMap> {
    let loader = Loader::new(build, path)?;
    let mut target = Target::load(loader, options.first_resource.as_deref())?;
    target.set_schema(true)?;
    let mut map = target.customized()?;
    let own = &target.kustomization;
    match (&own.sort_options, options.is_sorted) {
        (Some(options), _) => transformers::sort(&mut map, options)?,
        (None, true) => {
            let legacy = SortOptions {
                order: crate::decode::SortOrder("legacy".into()),
                legacy: None,
            };
            transformers::sort(&mut map, &legacy)?;
        }
        (None, false) => {}
    }
    let has = |option: &str| own.build_metadata.iter().any(|own| own == option);
    if has("managedByLabel") {
        let spec = FieldSpec::of("metadata/labels", true);
        let create = Create {
            kind: Kind::Mapping,
            tag: golib::yaml::node::tag::MAP,
        };
        let text = format!("kustomize-{}", options.version);
        for resource in map.resources_mut() {
            let Some(node) = resource.node_mut() else {
                continue;
            };
            fieldspec::apply(&spec, Some(create), node, &mut |node| {
                let value = golib::yaml::node::Node::tagged(&text, golib::yaml::node::tag::STR);
                fns::set_field(node, "app.kubernetes.io/managed-by", Some(value))
            })?;
        }
    }
    for resource in map.resources_mut() {
        resource.remove_build_annotations()?;
        if !has("originAnnotations") {
            resource
                .set_origin(None)
                .context("failed to clean up origin tracking annotations")?;
        }
        if !has("transformerAnnotations") {
            resource
                .clear_transformations()
                .context("failed to clean up transformer annotations")?;
        }
    }
    Ok(map)
}

impl<'a> Target<'a> {
    /// Reads the kustomization file of a directory; `first` is the first of its resources, if it does not name it.
    fn load(loader: Loader<'a>, first: Option<&str>) -> Result<Self> {
        let mut found = None;
        for name in FILE_NAMES {
            match loader.load(name) {
                Ok(text) => {
                    if found.replace((name, text)).is_some() {
                        return Err(Error::new(format!(
                            "Found multiple kustomization files under: {}\n",
                            loader.root()
                        )));
                    }
                }
                Err(error) if error.is_limit() => return Err(error),
                Err(_) => {}
            }
        }
        let Some((file, text)) = found else {
            return Err(Error::new(format!(
                "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{}'",
                loader.root()
            )));
        };
        let kustomization = Kustomization::parse(&text, first, loader.root(), loader.build)?;
        Ok(Self {
            kustomization,
            file,
            loader: loader.clone(),
            origin: None,
        })
    }

    fn set_schema(&self, reset: bool) -> Result<()> {
        let field = &self.kustomization.openapi;
        let schema = field
            .get("path")
            .map(|path| self.loader.load(path))
            .transpose()?;
        let build = self.loader.build;
        build.api.set(field, schema, reset, build)
    }

    fn customized(&mut self) -> Result<ResMap> {
        if !self.kustomization.build_metadata.is_empty() {
            self.origin = Some(Origin::default());
        }
        let mut all = self.accumulate(Accumulator::default())?;
        let build = self.loader.build;
        Transformer::Hash.transform(&mut all.map, build)?;
        if !all.config.name_reference.is_empty() {
            nameref::transform(&mut all.map, &all.config.name_reference, build)?;
        }
        resolve_vars(&mut all, build)?;
        drop_local(&mut all.map)?;
        Ok(all.map)
    }

    fn accumulate(&mut self, all: Accumulator) -> Result<Accumulator> {
        let mut all = all;
        let resources = std::mem::take(&mut self.kustomization.resources);
        self.accumulate_resources(&mut all, &resources)
            .context("accumulating resources")?;
        let loader = self.loader.clone();
        let config = TransformerConfig::load(&loader, &self.kustomization.configurations)?;
        all.config
            .merge(&config, loader.build)
            .with_context(|| format!("merging config {config}"))?;
        let crds = &self.kustomization.crds;
        let config = TransformerConfig::load_from_crds(&loader, crds)
            .with_context(|| format!("loading CRDs [{}]", crds.join(" ")))?;
        all.config
            .merge(&config, loader.build)
            .with_context(|| format!("merging CRDs {config}"))?;
        self.run_generators(&mut all)?;
        let components = std::mem::take(&mut self.kustomization.components);
        all = self
            .accumulate_components(all, &components)
            .context("accumulating components")?;
        self.run_transformers(&mut all)?;
        self.run_validators(&mut all)?;
        let vars = self.kustomization.vars.clone().unwrap_or_default();
        merge_vars(&mut all, &vars, self.loader.build)
            .with_context(|| format!("merging vars [{}]", texts_of(&vars)))?;
        Ok(all)
    }

    fn accumulate_resources(&mut self, all: &mut Accumulator, paths: &[String]) -> Result<()> {
        for path in paths {
            let Err(file_error) = self.accumulate_file(all, path) else {
                continue;
            };
            if file_error.is_limit() {
                return Err(file_error);
            }
            let loader = match self.loader.enter(path) {
                Ok(loader) => loader,
                Err(error) if error.is_limit() => return Err(error),
                Err(_) if factory::is_malformed(&file_error) => return Err(file_error),
                Err(error) => {
                    return Err(error.context(format!("accumulation err='{file_error}'")));
                }
            };
            let base = self
                .accumulate_directory(loader, path, None)
                .with_context(|| format!("accumulation err='{file_error}'"))?;
            let root = base.1;
            merge(all, base.0, self.loader.build)
                .with_context(|| format!("recursed merging from path '{root}'"))
                .with_context(|| format!("accumulation err='{file_error}'"))?;
        }
        Ok(())
    }

    fn accumulate_components(&mut self, all: Accumulator, paths: &[String]) -> Result<Accumulator> {
        let mut all = all;
        let quoted = |prefix: &str, error: Error| {
            let text = format!("{prefix} {}", golib::strconv::quote(error.to_string()));
            error.reworded(text)
        };
        for path in paths {
            // All that is there goes into the component, and comes back.
            self.loader.build.work(2 * all.map.resources().len())?;
            let loader = self
                .loader
                .enter(path)
                .map_err(|error| quoted("loader.New", error))?;
            let (own, root) = self
                .accumulate_directory(loader, path, Some(all))
                .map_err(|error| quoted("accumulateDirectory:", error))?;
            all = Accumulator::default();
            merge(&mut all, own, self.loader.build)
                .with_context(|| format!("recursed merging from path '{root}'"))
                .map_err(|error| quoted("accumulateDirectory:", error))?;
        }
        Ok(all)
    }

    /// What a base, or a component with what is there already, accumulates, and its directory.
    fn accumulate_directory(
        &mut self,
        loader: Loader<'a>,
        path: &str,
        component_of: Option<Accumulator>,
    ) -> Result<(Accumulator, String)> {
        let root = loader.root().to_owned();
        let mut target = Target::load(loader, None)
            .with_context(|| format!("couldn't make target for path '{root}'"))?;
        target
            .kustomization
            .build_metadata
            .clone_from(&self.kustomization.build_metadata);
        target.origin = self.origin.as_ref().map(|origin| origin.append(path));
        target.set_schema(false)?;
        let is_component = component_of.is_some();
        let kind = &target.kustomization.types.kind;
        if is_component && kind != COMPONENT {
            return Err(Error::new(format!(
                "expected kind '{COMPONENT}' for path '{root}' but got '{kind}'"
            )));
        }
        if !is_component && kind == COMPONENT {
            return Err(Error::new(format!(
                "expected kind != '{COMPONENT}' for path '{root}'"
            )));
        }
        let own = target
            .accumulate(component_of.unwrap_or_default())
            .with_context(|| format!("recursed accumulation of path '{root}'"))?;
        Ok((own, root))
    }

    fn accumulate_file(&self, all: &mut Accumulator, path: &str) -> Result<()> {
        let resources = self
            .resources_of_file(path)
            .with_context(|| format!("accumulating resources from '{path}'"))?;
        all.map
            .append_all(resources)
            .with_context(|| format!("merging resources from '{path}'"))?;
        self.limit(all)
    }

    fn resources_of_file(&self, path: &str) -> Result<Vec<Resource>> {
        let build = self.loader.build;
        let resources = match self.loader.documents(path)? {
            Some(documents) => factory::of_documents(build, documents),
            None => factory::resources(build, &self.loader.load(path)?),
        };
        let resources = resources
            .and_then(ResMap::from_list)
            .map_err(|error| factory::in_file(error, path))?;
        let mut resources = resources.into_list();
        if let Some(origin) = &self.origin {
            annotate(&mut resources, &origin.append(path).to_yaml())?;
        }
        Ok(resources)
    }

    fn limit(&self, all: &Accumulator) -> Result<()> {
        const MAX_RESOURCES: usize = 20_000;
        self.loader.build.work(1)?;
        if all.map.resources().len() > MAX_RESOURCES {
            return Err(Error::limit(format!(
                "the kustomization has more than {MAX_RESOURCES} resources"
            )));
        }
        Ok(())
    }

    fn origin_of_builtin(&self, kind: &str) -> Option<Origin> {
        self.origin
            .as_ref()
            .map(|origin| origin.of_builtin(self.file, kind))
    }

    fn run_generators(&mut self, all: &mut Accumulator) -> Result<()> {
        let mut generators = Vec::new();
        let own = &self.kustomization;
        let global = own.generator_options.as_ref();
        for args in &own.config_map_generator {
            let mut args = args.clone();
            args.args.options = GeneratorOptions::merged(args.args.options.as_ref(), global);
            let origin = self.origin_of_builtin("ConfigMapGenerator");
            generators.push((
                Generator::ConfigMap(handed_over(args, self.loader.build)?),
                origin,
            ));
        }
        for args in &own.secret_generator {
            let mut args = args.clone();
            args.args.options = GeneratorOptions::merged(args.args.options.as_ref(), global);
            let origin = self.origin_of_builtin("SecretGenerator");
            generators.push((
                Generator::Secret(handed_over(args, self.loader.build)?),
                origin,
            ));
        }
        if let Some(chart) = own.helm_charts.first() {
            return Err(Error::new(format!(
                "helmCharts are not inflated here, and the kustomization has chart {}: must specify --enable-helm",
                golib::strconv::quote(&chart.name)
            )));
        }
        let external = self
            .load_external_generators()
            .context("loading generator plugins")?;
        generators.extend(external);
        for (generator, origin) in generators {
            let mut made = ResMap::unchecked(generator.generate(&self.loader)?);
            made.add_origin(origin.as_ref())
                .context("adding origin annotations for generator")?;
            all.map
                .absorb(made.into_list(), self.loader.build)
                .context("merging from generator")?;
        }
        self.limit(all)
    }

    /// Configurations that stand in the file itself or in files, in kustomize's order: inline ones first.
    fn external(&mut self, entries: &[String], what: &str) -> Result<Vec<Resource>> {
        let mut all = Accumulator::default();
        let mut paths = Vec::new();
        for entry in entries {
            let inline =
                factory::resources(self.loader.build, entry.as_bytes()).and_then(ResMap::from_list);
            let mut resources = match inline {
                Ok(map) => map.into_list(),
                Err(error) if error.is_limit() => return Err(error),
                Err(_) => {
                    paths.push(entry.clone());
                    continue;
                }
            };
            if let Some(origin) = &self.origin {
                let origin = origin.append(self.file);
                for resource in &mut resources {
                    resource.set_origin(Some(&origin))?;
                }
            }
            all.map
                .append_all(resources)
                .with_context(|| format!("configuring external {what}"))?;
        }
        self.accumulate_resources(&mut all, &paths)?;
        Ok(all.map.into_list())
    }

    fn load_external_generators(&mut self) -> Result<Vec<(Generator, Option<Origin>)>> {
        let entries = self.kustomization.generators.clone();
        let mut generators = Vec::new();
        for resource in self.external(&entries, "generator")? {
            let generator = self
                .load_generator(&resource)
                .context("failed to load generator")?;
            generators.push((generator, origin_of_plugin(&resource)?));
        }
        Ok(generators)
    }

    fn load_generator(&self, resource: &Resource) -> Result<Generator> {
        let config = plugin_config(resource, self.loader.build)?;
        let fails = || format!("plugin {} fails configuration", resource.cur_id());
        match resource.kind() {
            "ConfigMapGenerator" => {
                let mut plugin: ConfigMapPlugin =
                    unmarshal(&config, self.loader.build).with_context(fails)?;
                name_as(&mut plugin.args.args, &plugin.metadata);
                Ok(Generator::ConfigMap(plugin.args))
            }
            "SecretGenerator" => {
                let mut plugin: SecretPlugin =
                    unmarshal(&config, self.loader.build).with_context(fails)?;
                name_as(&mut plugin.args.args, &plugin.metadata);
                Ok(Generator::Secret(plugin.args))
            }
            "IAMPolicyGenerator" => Ok(Generator::IamPolicy(config)),
            "HelmChartInflationGenerator" => {
                Err(Error::new("must specify --enable-helm")).with_context(fails)
            }
            kind => match transformers::configure(kind, &config, &self.loader) {
                Some(Ok(_)) => Err(Error::new(format!(
                    "plugin {} not a generator",
                    resource.cur_id()
                ))),
                Some(Err(error)) => Err(error).with_context(fails),
                None => Err(unknown_builtin(resource)),
            },
        }
    }

    fn run_transformers(&mut self, all: &mut Accumulator) -> Result<()> {
        let mut steps = Vec::new();
        let own = transformers::of_kustomization(&self.kustomization, &all.config, &self.loader)?;
        for (kind, step) in own {
            steps.push((step, self.origin_of_builtin(kind)));
        }
        let entries = self.kustomization.transformers.clone();
        steps.extend(self.load_external_transformers(&entries)?);
        for (step, origin) in steps {
            step.transform(&mut all.map, self.loader.build)?;
            for resource in all.map.resources_mut() {
                resource.settle_shared(self.loader.build)?;
            }
            if let Some(origin) = origin {
                all.map.add_transformation(&origin, self.loader.build)?;
            }
            all.map.drop_empties();
        }
        Ok(())
    }

    fn load_external_transformers(
        &mut self,
        entries: &[String],
    ) -> Result<Vec<(Transformer, Option<Origin>)>> {
        let mut steps = Vec::new();
        for resource in self.external(entries, "transformer")? {
            let config = plugin_config(&resource, self.loader.build)?;
            let step = match transformers::configure(resource.kind(), &config, &self.loader) {
                Some(step) => step
                    .with_context(|| format!("plugin {} fails configuration", resource.cur_id()))?,
                None if matches!(
                    resource.kind(),
                    "ConfigMapGenerator" | "SecretGenerator" | "IAMPolicyGenerator"
                ) =>
                {
                    return Err(Error::new(format!(
                        "plugin {} not a transformer",
                        resource.cur_id()
                    )));
                }
                None if resource.kind() == "HelmChartInflationGenerator" => {
                    return Err(Error::new(format!(
                        "plugin {} fails configuration: must specify --enable-helm",
                        resource.cur_id()
                    )));
                }
                None => return Err(unknown_builtin(&resource)),
            };
            steps.push((step, origin_of_plugin(&resource)?));
        }
        Ok(steps)
    }

    fn run_validators(&mut self, all: &mut Accumulator) -> Result<()> {
        let entries = self.kustomization.validators.clone();
        for (step, _) in self.load_external_transformers(&entries)? {
            let before = all.map.clone();
            step.transform(&mut all.map, self.loader.build)?;
            all.map
                .expect_same(&before, self.loader.build)
                .context("validator shouldn't modify the resource map")?;
        }
        Ok(())
    }
}

/// What the generator itself does not say of its object's name is the name of its file's object.
fn name_as(args: &mut GeneratorArgs, meta: &ObjectMeta) {
    for (own, other) in [
        (&mut args.name, &meta.name),
        (&mut args.namespace, &meta.namespace),
    ] {
        if own.is_empty() {
            own.clone_from(other);
        }
    }
}

/// The kinds of the builtin generators.
const GENERATORS: [&str; 4] = [
    "ConfigMapGenerator",
    "SecretGenerator",
    "IAMPolicyGenerator",
    "HelmChartInflationGenerator",
];

/// The configuration of a builtin plugin; all others are refused.
fn plugin_config(resource: &Resource, build: &Build<'_>) -> Result<Value> {
    let gvk = resource.gvk();
    if gvk.group.is_empty() && gvk.version == "builtin" {
        if !GENERATORS.contains(&&*gvk.kind) && !transformers::KINDS.contains(&&*gvk.kind) {
            return Err(unknown_builtin(resource));
        }
        let config = resource.to_value();
        return written_and_read(
            config.with_context(|| format!("marshalling yaml from res {}", resource.cur_id()))?,
        );
    }
    Err(Error::new(format!(
        "external plugins disabled; unable to load external plugin '{}'",
        resource.org_id(build)?.gvk.kind
    )))
}

fn unknown_builtin(resource: &Resource) -> Error {
    Error::new(format!("unable to load builtin {}", resource.gvk()))
}

fn origin_of_plugin(resource: &Resource) -> Result<Option<Origin>> {
    Ok(resource.origin()?.map(|origin| Origin {
        path: String::new(),
        configured_in: origin.path.clone(),
        configured_by: [
            resource.api_version().to_owned(),
            resource.kind().to_owned(),
            resource.name().to_owned(),
            resource.namespace().to_owned(),
        ],
        ..origin
    }))
}

fn iam_policy(build: &Build<'_>, config: &Value) -> Result<Vec<Resource>> {
    let text = |path: &[&str]| {
        let found = path.iter().try_fold(config, |value, key| value.get(key));
        found.and_then(Value::as_str).unwrap_or("").to_owned()
    };
    let cloud = text(&["cloud"]);
    if cloud != "gke" {
        return Err(Error::new(format!(
            "cloud provider {cloud} not supported yet"
        )));
    }
    let mut yaml = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  annotations:\n    iam.gke.io/gcp-service-account: {}@{}.iam.gserviceaccount.com\n  name: {}\n",
        text(&["serviceAccount", "name"]),
        text(&["serviceAccount", "projectId"]),
        text(&["kubernetesService", "name"]),
    );
    let namespace = text(&["kubernetesService", "namespace"]);
    if !namespace.is_empty() {
        yaml += &format!("\n  namespace: {namespace}");
    }
    factory::resources(build, yaml.as_bytes())
}

fn annotate(resources: &mut [Resource], origin: &str) -> Result<()> {
    use golib::yaml::node::{Node, tag};
    let spec = FieldSpec::of("metadata/annotations", true);
    let create = Create {
        kind: Kind::Mapping,
        tag: tag::MAP,
    };
    for resource in resources {
        let Some(node) = resource.node_mut() else {
            continue;
        };
        fieldspec::apply(&spec, Some(create), node, &mut |node| {
            fns::set_field(node, ORIGIN, Some(Node::tagged(origin, tag::STR)))
        })?;
    }
    Ok(())
}

fn merge(all: &mut Accumulator, other: Accumulator, build: &Build<'_>) -> Result<()> {
    all.map.append_all(other.map.into_list())?;
    all.config.merge(&other.config, build)?;
    for (_, var) in other.vars {
        add_var(all, var)?;
    }
    Ok(())
}

fn add_var(all: &mut Accumulator, mut var: Var) -> Result<()> {
    if all.vars.contains_key(&var.name) {
        return Err(Error::new(format!(
            "var '{}' already encountered",
            var.name
        )));
    }
    if var.field.field_path.is_empty() {
        "metadata.name".clone_into(&mut var.field.field_path);
    }
    var.object.gvk = var.object.full_gvk();
    all.vars.insert(var.name.clone(), var);
    Ok(())
}

/// As Go's `%v` prints a variable.
fn text_of(var: &Var) -> String {
    format!(
        "{{{} {} {{{}}}}}",
        var.name, var.object.gvk, var.field.field_path
    )
}

fn texts_of(vars: &[Var]) -> String {
    let texts: Vec<String> = vars.iter().map(text_of).collect();
    texts.join(" ")
}

fn merge_vars(all: &mut Accumulator, vars: &[Var], build: &Build<'_>) -> Result<()> {
    for var in vars {
        build.work(1 + all.map.resources().len() / 8)?;
        let mut var = var.clone();
        var.object.gvk = var.object.full_gvk();
        let gvk: Gvk = var.object.gvk.clone();
        let expected = ResId {
            gvk,
            name: var.object.name.clone(),
            namespace: var.object.namespace.clone(),
        };
        let found = all.map.matching_any_id(build, |id| {
            if expected.namespace.is_empty() {
                expected.gvkn_equals(id)
            } else {
                expected.equals(id)
            }
        })?;
        match found.as_slice() {
            [] => {}
            [at] => all.map.resources_mut()[*at]
                .variables
                .push(var.name.clone()),
            more => {
                return Err(Error::new(format!(
                    "found {} resId matches for var {} (unable to disambiguate)",
                    more.len(),
                    text_of(&var)
                )));
            }
        }
    }
    vars.iter().try_for_each(|var| add_var(all, var.clone()))
}

fn resolve_vars(all: &mut Accumulator, build: &Build<'_>) -> Result<()> {
    let mut variables = Variables::new();
    let mut holders: HashMap<&str, &Resource> = HashMap::new();
    for resource in all.map.resources() {
        for name in &resource.variables {
            holders.entry(name).or_insert(resource);
        }
    }
    for var in all.vars.values() {
        let Some(holder) = holders.get(&*var.name) else {
            return Err(Error::new(format!(
                "var '{}' cannot be mapped to a field in the set of known resources",
                text_of(var)
            )));
        };
        let node = holder.node();
        build.work(1 + node.map_or(0, fns::walk_cost))?;
        let value = node.map(|node| field_value(node, &var.field.field_path, build));
        match value {
            Some(Err(error)) if error.is_limit() => return Err(error),
            Some(Ok(value)) => variables.insert(var.name.clone(), value),
            _ => {
                return Err(Error::new(format!(
                    "field specified in var '{}' not found in corresponding resource",
                    text_of(var)
                )));
            }
        };
    }
    if variables.is_empty() {
        return Ok(());
    }
    for resource in all.map.resources_mut() {
        build.work(all.config.var_reference.len())?;
        for spec in &*all.config.var_reference {
            if let Some(node) = resource.node_mut() {
                refvar::apply(spec, &variables, node, build)?;
            }
            resource.settle_shared(build)?;
        }
    }
    Ok(())
}

/// `GetFieldValue`.
fn field_value(node: &golib::yaml::node::Node, path: &str, build: &Build<'_>) -> Result<Variable> {
    use golib::yaml::node::tag;
    let mut parts: Vec<String> = Vec::new();
    for part in fns::split_path_smartly(path, '.')? {
        // `containers[0]` is two parts.
        match part
            .strip_suffix(']')
            .and_then(|part| part.rsplit_once('['))
        {
            Some((name, index))
                if !index.is_empty() && index.bytes().all(|c| c.is_ascii_digit()) =>
            {
                if !name.is_empty() {
                    parts.push(name.to_owned());
                }
                parts.push(index.to_owned());
            }
            _ => parts.push(part),
        }
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let Some(found) = fns::lookup(node, &parts)? else {
        return Err(Error::new(format!("no field named '{path}'")));
    };
    if found.kind != Kind::Scalar {
        build.work(16 * fns::walk_cost(found))?;
        found.decode()?;
        return Ok(Variable::Collection);
    }
    let text = &found.value;
    let fail = |error: golib::strconv::NumError| Error::new(error.to_string());
    Ok(match &*found.tag {
        tag::INT => Variable::Int(golib::strconv::atoi(text).map_err(fail)?),
        tag::FLOAT => Variable::Float(golib::strconv::parse_float(text, 64).map_err(fail)?),
        tag::BOOL => Variable::Bool(golib::strconv::parse_bool(text).map_err(fail)?),
        _ => {
            build.grow_by(text.len())?;
            Variable::Text(text.clone())
        }
    })
}

/// Drops objects that are for kustomize alone.
fn drop_local(map: &mut ResMap) -> Result<()> {
    for resource in map.resources() {
        if let Some(node) = resource.node().filter(|_| !resource.is_nil_or_empty()) {
            Resource::validate(node)?;
        }
    }
    map.resources_mut().retain(|resource| {
        let annotations = resource.annotations();
        let local = annotations.get("config.kubernetes.io/local-config");
        !resource.is_nil_or_empty() && local.is_none_or(|local| local == "false")
    });
    Ok(())
}
