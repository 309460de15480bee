//! Kustomizations that would take too much, or lead out of their directory, each with what it is told. `main.rs` builds them,
//! `examples/hostile.rs` measures what each costs.

/// A kustomization that is not to be built.
pub(crate) struct Input {
    pub(crate) name: &'static str,
    /// Paths with contents; the first directory `app` is built.
    pub(crate) files: Vec<(String, String)>,
    /// Part of the error.
    pub(crate) expected: &'static str,
}

const OBJECT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n";
const TOO_MUCH_WORK: &str = "takes too much work";
const TOO_LARGE: &str = "document is too large";
const TOO_MANY_BYTES: &str = "reads and copies more than";
const OBJECTS_TOO_LARGE: &str = "makes its objects larger than";
const TOO_MUCH_MADE: &str = "is more than a build may make of it";
const TOO_MANY_BASES: &str = "more than 1000 bases, or bases more than 64 deep";
const TOO_MANY_EXPRESSIONS: &str = "expressions take more memory";
const UNKNOWN_DIRECTIVE: &str = "unknown patch strategy";
const TOO_DEEP: &str = "nested deeper than";

fn input(name: &'static str, expected: &'static str, files: &[(&str, &str)]) -> Input {
    let files = files.iter();
    Input {
        name,
        files: files
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect(),
        expected,
    }
}

/// One kustomization file and one of resources.
fn over(name: &'static str, expected: &'static str, kustomization: &str, resources: &str) -> Input {
    let kustomization = format!("resources: [a.yaml]\n{kustomization}");
    let files = [
        ("app/kustomization.yaml", &*kustomization),
        ("app/a.yaml", resources),
    ];
    input(name, expected, &files)
}

/// An object that says by its annotations that it had many names.
fn former_names(count: usize) -> String {
    let commas = ",".repeat(count - 1);
    let annotation =
        |name: &str| format!("    internal.config.kubernetes.io/previous{name}: '{commas}'\n");
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations:\n{}",
        ["Names", "Namespaces", "Kinds"].map(annotation).concat()
    )
}

/// Each source looks at all names that all objects had.
fn many_sources() -> Input {
    let replacements = "- source: {kind: Secret}\n  targets: []\n".repeat(400);
    let objects = format!("{}---\n{SECRET}", former_names(10_000));
    input(
        "sources beside an object that had many names",
        TOO_MUCH_WORK,
        &[
            (
                "app/kustomization.yaml",
                "resources: [a.yaml]\nreplacements: [{path: r.yaml}]\n",
            ),
            ("app/a.yaml", &objects),
            ("app/r.yaml", &replacements),
        ],
    )
}

fn config_maps(count: usize) -> String {
    let object = |at| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{at}}}\n");
    (0..count).map(object).collect()
}

/// A type with 1,000 fields of a definition with one of a long name.
fn wide_definitions(name: &str) -> String {
    let fields: String = (0..1_000)
        .map(|at| format!(", \"f{at}\": {{\"$ref\": \"d\"}}"))
        .collect();
    format!(
        "{{\"a.b.Kind\": {{\"Schema\": {{\"properties\": {{\"kind\": {{}}, \"apiVersion\": {{}}, \"metadata\": {{}}{fields}}}}}}}, \
         \"d\": {{\"Schema\": {{\"properties\": {{\"{name}\": {{\"x-kubernetes-annotation\": \"\"}}}}}}}}}}"
    )
}

/// A type whose field `d` leads through 31 definitions, each of which names the next one in eight fields: 8^30 paths.
fn eightfold_definitions() -> String {
    let definition = |name: &str, properties: String| {
        format!("{name:?}: {{\"Schema\": {{\"properties\": {{{properties}}}}}}}")
    };
    let reference = |at: usize| format!("{{\"$ref\": \"d{at}\"}}");
    let kind = format!(
        "\"kind\": {{}}, \"apiVersion\": {{}}, \"metadata\": {{}}, \"d\": {}",
        reference(0)
    );
    let mut all = vec![definition("a.b.Kind", kind)];
    for at in 0..30 {
        let fields: Vec<String> = (0..8)
            .map(|number| format!("\"f{number}\": {}", reference(at + 1)))
            .collect();
        all.push(definition(&format!("d{at}"), fields.join(", ")));
    }
    all.push(definition("d30", "\"f\": {}".to_owned()));
    format!("{{{}}}", all.join(", "))
}

/// A kustomization with types of its own, an object of kind `Kind` and a patch of it.
fn patched(
    name: &'static str,
    expected: &'static str,
    definitions: &str,
    object: &str,
    patch: &str,
) -> Input {
    const HEAD: &str = "{apiVersion: a.b/v1, kind: Kind, metadata: {name: a}, spec: ";
    over(
        name,
        expected,
        "openapi: {path: s.json}\npatches: [{path: p.yaml}]\n",
        &format!("{HEAD}{object}}}\n"),
    )
    .with("app/p.yaml", &format!("{HEAD}{patch}}}\n"))
    .with(
        "app/s.json",
        &format!("{{\"definitions\": {{{definitions}}}}}"),
    )
}

/// The definition of `Kind` with a schema for its field `spec`.
fn kind_with(spec: &str) -> String {
    format!(
        "\"a.b.v1.Kind\": {{\"properties\": {{\"spec\": {spec}}}, \
         \"x-kubernetes-group-version-kind\": [{{\"group\": \"a.b\", \"version\": \"v1\", \"kind\": \"Kind\"}}]}}"
    )
}

/// A definition whose elements are lists of its own kind again, merged by some keys.
fn keyed_lists(keys: &str) -> String {
    let list = format!(
        "{{\"type\": \"array\", \"items\": {{\"$ref\": \"#/definitions/n\"}}, \
         \"x-kubernetes-patch-strategy\": \"merge\", \"x-kubernetes-list-map-keys\": [{keys}]}}"
    );
    format!(
        "{}, \"n\": {{\"properties\": {{\"l\": {list}}}}}",
        kind_with("{\"$ref\": \"#/definitions/n\"}")
    )
}

/// Lists of lists of such a definition, with something in the innermost element.
fn nested_lists(levels: usize, innermost: &str) -> String {
    (0..levels).fold(format!("{{{innermost}}}"), |inner, _| {
        format!("{{name: x, l: [{inner}]}}")
    })
}

fn zeros(count: usize) -> String {
    format!("[{}]", vec!["0"; count].join(","))
}

fn pod(containers: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  containers:\n{containers}")
}

/// All of them.
pub(crate) fn all() -> Vec<Input> {
    let mut all = cycles();
    all.extend(escapes());
    all.extend(growing());
    all.extend(deep());
    all.extend(exploding());
    all.extend(structs());
    all.extend(expressions());
    all
}

/// Small expressions that take much when they are compiled.
fn expressions() -> Vec<Input> {
    let large = |at: usize| format!(r"c|x{{{at}}}\pL{{20}}");
    let rejects: Vec<String> = (0..60)
        .map(|at| format!("{{kind: '{0}', name: '{0}', namespace: '{0}'}}", large(at)))
        .collect();
    let rejects = format!(
        "replacements:\n- sourceValue: x\n  targets: [{{select: {{kind: ConfigMap}}, reject: [{}], fieldPaths: [metadata.name]}}]\n",
        rejects.join(", ")
    );
    let elements: Vec<String> = (0..150)
        .map(|at| format!("'spec.containers.[name={}].image'", large(at)))
        .collect();
    let elements = format!(
        "replacements:\n- sourceValue: x\n  targets: [{{select: {{kind: Pod}}, fieldPaths: [{}]}}]\n",
        elements.join(", ")
    );
    let images: String = (0..150)
        .map(|at| format!("- {{name: '{}', newTag: x}}\n", large(at)))
        .collect();
    let containers = pod("  - {name: c, image: c}\n");
    vec![
        over(
            "expressions of rejects",
            TOO_MANY_EXPRESSIONS,
            &rejects,
            OBJECT,
        ),
        over(
            "expressions of elements",
            TOO_MUCH_WORK,
            &elements,
            &containers,
        ),
        over(
            "expressions of images",
            TOO_MUCH_WORK,
            &format!("images:\n{images}"),
            &containers,
        ),
    ]
}

/// Lists of nothing, of which a build would make structs of many bytes each.
fn structs() -> Vec<Input> {
    let empty = vec!["{}"; 300_000].join(",");
    let list = |name: &'static str| {
        let text = format!("{name}: [{empty}]\n");
        input(name, TOO_MUCH_MADE, &[("app/kustomization.yaml", &text)])
    };
    let mut all: Vec<Input> = [
        "configMapGenerator",
        "images",
        "labels",
        "patches",
        "patchesJson6902",
        "replacements",
        "replicas",
        "secretGenerator",
        "vars",
    ]
    .into_iter()
    .map(list)
    .collect();
    let entries: String = (0..330_000).map(|at| format!("a{at}: ,")).collect();
    let annotations = format!("commonAnnotations: {{{entries}}}\n");
    all.push(input(
        "annotations",
        TOO_MUCH_MADE,
        &[("app/kustomization.yaml", &annotations)],
    ));
    all.push(
        over(
            "file of replacements",
            TOO_MUCH_MADE,
            "replacements: [{path: r.yaml}]\n",
            OBJECT,
        )
        .with("app/r.yaml", &format!("[{empty}]\n")),
    );
    all
}

fn cycles() -> Vec<Input> {
    let component = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n";
    let cycle = "cycle detected";
    let chain = (0..80).flat_map(|at| {
        let directory = if at == 0 {
            "app".to_owned()
        } else {
            format!("d{at}")
        };
        let text = format!("resources: [../d{}]\n", at + 1);
        [(format!("{directory}/kustomization.yaml"), text)]
    });
    // Two bases of each directory, each of which has two: 2^30 in all.
    let tree = (0..30).map(|at| {
        let directory = if at == 0 {
            "app".to_owned()
        } else {
            format!("d{at}")
        };
        let next = at + 1;
        let text = format!("resources: [../d{next}, ../e{next}]\n");
        (directory, text)
    });
    let mut doubled = Vec::new();
    for (directory, text) in tree {
        doubled.push((format!("{directory}/kustomization.yaml"), text.clone()));
        doubled.push((
            format!("{}/kustomization.yaml", directory.replace('d', "e")),
            text,
        ));
    }
    for directory in ["d30", "e30"] {
        let text = "commonLabels: {a: b}\n".to_owned();
        doubled.push((format!("{directory}/kustomization.yaml"), text));
    }
    vec![
        input(
            "cycle of bases",
            cycle,
            &[
                ("app/kustomization.yaml", "resources: [../other]\n"),
                ("other/kustomization.yaml", "resources: [../app]\n"),
            ],
        ),
        input(
            "base of itself",
            cycle,
            &[("app/kustomization.yaml", "resources: [.]\n")],
        ),
        input(
            "base above",
            cycle,
            &[
                ("app/kustomization.yaml", "resources: [..]\n"),
                ("kustomization.yaml", "resources: [app]\n"),
            ],
        ),
        input(
            "cycle of components",
            cycle,
            &[
                ("app/kustomization.yaml", "components: [../one]\n"),
                (
                    "one/kustomization.yaml",
                    &format!("{component}components: [../two]\n"),
                ),
                (
                    "two/kustomization.yaml",
                    &format!("{component}components: [../one]\n"),
                ),
            ],
        ),
        Input {
            name: "chain of 80 bases",
            files: chain.collect(),
            expected: TOO_MANY_BASES,
        },
        Input {
            name: "2^30 bases",
            files: doubled,
            expected: TOO_MANY_BASES,
        },
    ]
}

fn escapes() -> Vec<Input> {
    let secret = ("secret.yaml", OBJECT);
    let mut all = Vec::new();
    for (name, field) in [
        ("resource outside", "resources: [PATH]"),
        ("crd outside", "crds: [PATH]"),
        ("configuration outside", "configurations: [PATH]"),
        ("schema outside", "openapi: {path: PATH}"),
        ("patch outside", "patches: [{path: PATH}]"),
        ("strategic patch outside", "patchesStrategicMerge: [PATH]"),
        (
            "JSON patch outside",
            "patchesJson6902: [{target: {version: v1, kind: ConfigMap, name: a}, path: PATH}]",
        ),
        ("replacement outside", "replacements: [{path: PATH}]"),
        ("generator outside", "generators: [PATH]"),
        ("transformer outside", "transformers: [PATH]"),
        ("validator outside", "validators: [PATH]"),
        (
            "file of a generator outside",
            "configMapGenerator: [{name: b, files: [PATH]}]",
        ),
        (
            "variables of a generator outside",
            "configMapGenerator: [{name: b, envs: [PATH]}]",
        ),
        (
            "file of a Secret outside",
            "secretGenerator: [{name: b, files: ['x=PATH']}]",
        ),
    ] {
        for path in ["../secret.yaml", "/secret.yaml", "./sub/../../secret.yaml"] {
            let kustomization = format!("{}\n", field.replace("PATH", path));
            all.push(input(
                name,
                "is not in or below",
                &[
                    ("app/kustomization.yaml", &kustomization),
                    ("app/a.yaml", OBJECT),
                    secret,
                ],
            ));
        }
    }
    all
}

fn prefixes(count: usize) -> String {
    (0..count)
        .map(|at| format!("- |\n  apiVersion: builtin\n  kind: PrefixTransformer\n  metadata: {{name: p{at}}}\n  prefix: ''\n  fieldSpecs: [{{path: metadata/name}}]\n"))
        .collect()
}

fn label_step() -> &'static str {
    "- |\n  apiVersion: builtin\n  kind: LabelTransformer\n  metadata: {name: l}\n  labels: {a: b}\n  fieldSpecs: [{path: metadata/labels, create: true}]\n"
}

/// What grows without end, in memory or as text.
fn growing() -> Vec<Input> {
    let large = "x".repeat(4 << 20);
    let sources: Vec<String> = (0..40).map(|at| format!("k{at}=large.txt")).collect();
    let bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned()
        + &["ab", "bc", "cd", "de", "ef", "fg", "gh", "hi"]
            .map(|pair| {
                let (from, to) = pair.split_at(1);
                let aliases = vec![format!("*{from}"); 9].join(", ");
                format!("{to}: &{to} [{aliases}]\n")
            })
            .concat();
    let long = "x".repeat(1 << 20);
    let many = config_maps(2_000);
    let generators: String = (0..400)
        .map(|at| format!("- {{name: b{at}, literals: [a=b]}}\n"))
        .collect();
    let patches =
        "- '{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: b}}'\n".repeat(400);
    let doubling = "- source: {kind: ConfigMap, fieldPath: data.a}\n  \
                    targets: [{select: {kind: ConfigMap}, fieldPaths: [data.a], options: {delimiter: ':', index: 9999999}}]\n";
    let copies: String = (0..40)
        .map(|at| format!("  - {{op: copy, from: /data, path: /data/k{at}}}\n"))
        .collect();
    let into_itself = "- source: {kind: ConfigMap, fieldPath: data}\n  \
                       targets: [{select: {kind: ConfigMap}, fieldPaths: [data.b, data.c], options: {create: true}}]\n";
    let variables = format!(
        "vars: [{{name: A, objref: {{apiVersion: v1, kind: ConfigMap, name: a}}, fieldref: {{fieldpath: data.a}}}}]\n\
         commonAnnotations: {{b: '{}'}}\n",
        "$(A)".repeat(4_000)
    );
    // Each level puts what the last one said into quotes, and doubles its backslashes.
    let mut quoting: Vec<(String, String)> = (0..60)
        .map(|at| {
            let (directory, kind) = match at {
                0 => ("app".to_owned(), String::new()),
                _ => (
                    format!("c{at}"),
                    "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n".to_owned(),
                ),
            };
            (
                format!("{directory}/kustomization.yaml"),
                format!("{kind}components: [../c{}]\n", at + 1),
            )
        })
        .collect();
    quoting.push((
        "c60/kustomization.yaml".to_owned(),
        "kind: '\"'\n".to_owned(),
    ));
    let prefixes: String = (0..2_000)
        .map(|at| format!("- |\n  apiVersion: builtin\n  kind: PrefixTransformer\n  metadata: {{name: p{at}}}\n  prefix: x\n  fieldSpecs: [{{path: metadata/name}}]\n"))
        .collect();
    let labels = |count: usize| -> String {
        (0..count)
            .map(|at| format!("- {{pairs: {{l{at}: x}}, includeSelectors: true}}\n"))
            .collect()
    };
    let base_with = |name: &'static str, expected, field: &str, resources: &str| {
        over(name, expected, &format!("{field}\n"), resources)
    };
    vec![
        input(
            "generator of 160 MiB of files",
            TOO_MANY_BYTES,
            &[
                (
                    "app/kustomization.yaml",
                    &format!(
                        "configMapGenerator: [{{name: a, files: [{}]}}]\n",
                        sources.join(", ")
                    ),
                ),
                ("app/large.txt", &large),
            ],
        ),
        input(
            "generator of 1,000 values that share an anchor",
            "excessive aliasing",
            &[(
                "app/kustomization.yaml",
                &format!(
                    "secretGenerator:\n- {{name: a, literals: [&l 'k={long}']}}\n{}",
                    (0..1_000)
                        .map(|at| format!("- {{name: a{at}, literals: [*l]}}\n"))
                        .collect::<String>()
                ),
            )],
        ),
        input(
            "generators that merge what is there",
            OBJECTS_TOO_LARGE,
            &[
                (
                    "app/kustomization.yaml",
                    &format!(
                        "configMapGenerator:\n- {{name: a, files: [large.txt]}}\n{}",
                        "- {name: a, behavior: merge, literals: [a=b]}\n".repeat(60)
                    ),
                ),
                ("app/large.txt", &large),
            ],
        ),
        over(
            "aliases of aliases",
            TOO_LARGE,
            "",
            &format!("{OBJECT}{bomb}"),
        ),
        over(
            "texts that double",
            OBJECTS_TOO_LARGE,
            &format!("replacements:\n{}", doubling.repeat(60)),
            &format!("{OBJECT}data: {{a: xx}}\n"),
        ),
        // The elements are few bytes; each way to one is 500 long.
        over(
            "20,000 elements below 500 fields",
            OBJECTS_TOO_LARGE,
            &format!(
                "replacements:\n- sourceValue: x\n  targets: [{{select: {{kind: ConfigMap}}, fieldPaths: ['{}*']}}]\n",
                "a.".repeat(500)
            ),
            &format!(
                "{OBJECT}{}[{}]{}\n",
                "a: {".repeat(499) + "a: ",
                "{},".repeat(20_000),
                "}".repeat(499)
            ),
        ),
        over(
            "names that an object had by the comma",
            OBJECTS_TOO_LARGE,
            "namePrefix: p-\n",
            &former_names(200_000),
        ),
        over(
            "names that a selected object had by the comma",
            OBJECTS_TOO_LARGE,
            "replacements:\n- sourceValue: x\n  targets: [{select: {kind: ConfigMap}, fieldPaths: [kind]}]\n",
            &former_names(200_000),
        ),
        many_sources(),
        over(
            "generated objects beside one that had many names",
            TOO_MUCH_WORK,
            &format!("configMapGenerator:\n{generators}"),
            &former_names(10_000),
        ),
        over(
            "patches beside an object that had many names",
            TOO_MUCH_WORK,
            &format!("patchesStrategicMerge:\n{patches}"),
            &format!("{}---\n{SECRET}", former_names(10_000)),
        ),
        over(
            "fields copied into themselves",
            OBJECTS_TOO_LARGE,
            &format!("replacements:\n{}", into_itself.repeat(60)),
            &format!("{OBJECT}data: {{a: xx}}\n"),
        ),
        over(
            "JSON patch that copies what it copied",
            OBJECTS_TOO_LARGE,
            &format!(
                "patches:\n- target: {{kind: ConfigMap}}\n  patch: |\n{}",
                copies.replace("  - ", "    - ")
            ),
            &format!("{OBJECT}data: {{a: xx}}\n"),
        ),
        over(
            "variables of a long text",
            OBJECTS_TOO_LARGE,
            &variables,
            &format!("{OBJECT}data: {{a: {}}}\n", "x".repeat(64 << 10)),
        ),
        patched(
            "schema of 250 levels around 500,000 values",
            UNKNOWN_DIRECTIVE,
            &kind_with(
                &(0..250).fold(format!("{{\"enum\": {}}}", zeros(500_000)), |inner, _| {
                    format!("{{\"properties\": {{\"a\": {inner}}}}}")
                }),
            ),
            &(0..250).fold("{b: x}".to_owned(), |inner, _| format!("{{a: {inner}}}")),
            &(0..250).fold("{$patch: odd}".to_owned(), |inner, _| {
                format!("{{a: {inner}}}")
            }),
        ),
        patched(
            "5,000 fields of a schema of 1,000,000 values",
            UNKNOWN_DIRECTIVE,
            &kind_with(&format!(
                "{{\"additionalProperties\": {{\"enum\": {}}}}}",
                zeros(1_000_000)
            )),
            &format!(
                "{{{}z: {{b: x}}}}",
                (0..5_000)
                    .map(|at| format!("k{at}: x, "))
                    .collect::<String>()
            ),
            "{z: {$patch: odd}}",
        ),
        patched(
            "schema of 400,000 fields",
            TOO_LARGE,
            &kind_with(&format!(
                "{{\"properties\": {{{}\"z\": {{}}}}}}",
                (0..400_000)
                    .map(|at| format!("\"{at}\": {{}}, "))
                    .collect::<String>()
            )),
            "{z: {b: x}}",
            "{z: {$patch: odd}}",
        ),
        patched(
            "text of 4 MiB below 200 keyed lists",
            OBJECTS_TOO_LARGE,
            &keyed_lists("\"name\", \"t\""),
            &nested_lists(200, "name: x"),
            &nested_lists(200, &format!("name: x, t: {large}")),
        ),
        over(
            "custom resource with a field of 1 MiB below many others",
            OBJECTS_TOO_LARGE,
            "crds: [c.json]\n",
            OBJECT,
        )
        .with("app/c.json", &wide_definitions(&long)),
        over(
            "1,000 variables of a text of 4 MiB",
            OBJECTS_TOO_LARGE,
            &format!(
                "vars:\n{}",
                (0..1_000)
                    .map(|at| format!(
                        "- {{name: v{at}, objref: {{apiVersion: v1, kind: ConfigMap, name: a}}, fieldref: {{fieldpath: data.a}}}}\n"
                    ))
                    .collect::<String>()
            ),
            &format!("{OBJECT}data: {{a: {large}}}\n"),
        ),
        base_with(
            "prefix of 1 MiB",
            OBJECTS_TOO_LARGE,
            &format!("namePrefix: {long}"),
            &many,
        ),
        base_with(
            "namespace of 1 MiB",
            OBJECTS_TOO_LARGE,
            &format!("namespace: {long}"),
            &many,
        ),
        base_with(
            "label of 1 MiB",
            OBJECTS_TOO_LARGE,
            &format!("commonLabels: {{a: {long}}}"),
            &many,
        ),
        base_with(
            "annotation of 1 MiB",
            OBJECTS_TOO_LARGE,
            &format!("commonAnnotations: {{a: {long}}}"),
            &many,
        ),
        over(
            "image name of 1 MiB",
            OBJECTS_TOO_LARGE,
            &format!("images: [{{name: web, newName: {long}}}]\n"),
            &pod(&(0..4_000)
                .map(|at| format!("  - {{name: c{at}, image: web}}\n"))
                .collect::<String>()),
        ),
        over(
            "2,000 prefixes one after the other",
            TOO_MUCH_WORK,
            &format!("transformers:\n{prefixes}"),
            &many,
        ),
        over(
            "2,000 transformations remembered",
            TOO_MUCH_WORK,
            &format!("buildMetadata: [transformerAnnotations]\ntransformers:\n{prefixes}"),
            &config_maps(200),
        ),
        over(
            "20,000 references from a long name",
            OBJECTS_TOO_LARGE,
            "namePrefix: b-\n",
            &format!(
                "{OBJECT}---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {}}}\nspec:\n  volumes:\n{}",
                "x".repeat(64 << 10),
                "  - configMap: {name: a}\n".repeat(20_000)
            ),
        ),
        over(
            "4,000 equal keys",
            "already defined at line",
            "",
            &format!("{OBJECT}data:\n{}", "  a: b\n".repeat(4_000)),
        ),
        over(
            "20,000 labels with all fields",
            OBJECTS_TOO_LARGE,
            &format!("labels:\n{}", labels(20_000)),
            OBJECT,
        ),
        Input {
            name: "60 components that quote an error",
            files: quoting,
            expected: " … ",
        },
    ]
}

fn deep() -> Vec<Input> {
    let brackets = format!("a: {}{}\n", "[".repeat(20_000), "]".repeat(20_000));
    let path = vec!["a"; 20_000];
    let copies: String = (0..600)
        .map(|_| "    - {op: copy, from: /data, path: /data/d}\n")
        .collect();
    let steps: String = (1..3_000)
        .map(|depth| {
            format!(
                "    - {{op: add, path: {}, value: {{}}}}\n",
                "/d".repeat(depth)
            )
        })
        .collect();
    let nested = (0..400).fold("{}".to_owned(), |inner, _| format!("{{d: {inner}}}"));
    let into = format!(
        "- source: {{kind: ConfigMap, fieldPath: data}}\n  targets: [{{select: {{kind: ConfigMap}}, fieldPaths: [data{}], options: {{create: true}}}}]\n",
        ".d".repeat(400)
    );
    vec![
        patched(
            "250 levels of keyed lists",
            UNKNOWN_DIRECTIVE,
            &keyed_lists("\"name\""),
            &nested_lists(250, "name: x"),
            &nested_lists(250, "name: x, $patch: odd"),
        ),
        over(
            "20,000 brackets",
            TOO_DEEP,
            "",
            &format!("{OBJECT}{brackets}"),
        ),
        input(
            "20,000 brackets in the kustomization",
            "exceeded max depth",
            &[("app/kustomization.yaml", &brackets)],
        ),
        over(
            "20,000 brackets in a patch",
            "trouble configuring builtin PatchTransformer",
            &format!("patches:\n- patch: |\n    {}\n", brackets.trim_end()),
            OBJECT,
        ),
        over(
            "replacement of a source with a path of 1,000,000 parts",
            TOO_DEEP,
            &format!(
                "replacements:\n- source: {{kind: ConfigMap, fieldPath: '{}'}}\n  targets: [{{select: {{kind: ConfigMap}}}}]\n",
                ".".repeat(1_000_000)
            ),
            OBJECT,
        ),
        over(
            "replacement with a path of 20,000 parts",
            TOO_DEEP,
            &format!(
                "replacements:\n- source: {{kind: ConfigMap}}\n  targets: [{{select: {{kind: ConfigMap}}, fieldPaths: [data.{}], options: {{create: true}}}}]\n",
                path.join(".")
            ),
            OBJECT,
        ),
        input(
            "field spec with a path of 20,000 parts",
            TOO_DEEP,
            &[
                (
                    "app/kustomization.yaml",
                    "resources: [a.yaml]\nnamespace: x\nconfigurations: [c.yaml]\n",
                ),
                ("app/a.yaml", OBJECT),
                (
                    "app/c.yaml",
                    &format!("namespace: [{{path: {}, create: true}}]\n", path.join("/")),
                ),
            ],
        ),
        over(
            "value added at a path of 20,000 parts",
            TOO_DEEP,
            &format!(
                "transformers:\n- |\n  apiVersion: builtin\n  kind: ValueAddTransformer\n  metadata: {{name: v}}\n  value: x\n  targets: [{{fieldPath: {}}}]\n",
                path.join("/")
            ),
            OBJECT,
        ),
        over(
            "JSON patch of 600 copies into what is copied",
            TOO_DEEP,
            &format!("patches:\n- target: {{kind: ConfigMap}}\n  patch: |\n{copies}"),
            &format!("{OBJECT}data: {{a: xx}}\n"),
        ),
        over(
            "JSON patch of 3,000 steps down",
            TOO_DEEP,
            &format!("patches:\n- target: {{kind: ConfigMap}}\n  patch: |\n{steps}"),
            OBJECT,
        ),
        over(
            "fields copied deep into themselves",
            TOO_DEEP,
            &format!("replacements:\n{}", into.repeat(40)),
            &format!("{OBJECT}data: {nested}\n"),
        ),
    ]
}

/// Work that multiplies.
fn exploding() -> Vec<Input> {
    let many = config_maps(4_000);
    let source = "- {source: {kind: ConfigMap, name: a1}, targets: []}\n";
    let target =
        "- {sourceValue: x, targets: [{select: {kind: ConfigMap}, fieldPaths: [metadata.name]}]}\n";
    let expression = format!("({})*b", vec!["a?a"; 4_000].join("|"));
    let names: String = (0..2_000)
        .map(|at| {
            format!(
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {}{at}}}\n",
                "a".repeat(2_000)
            )
        })
        .collect();
    let values: Vec<String> = (0..50_000).map(|at| format!("v{at}")).collect();
    let labelled: String = (0..4_000)
        .map(|at| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{at}, labels: {{l: w}}}}\n"))
        .collect();
    let ports: String = (0..60_000)
        .map(|at| format!("    - {{containerPort: {at}}}\n"))
        .collect();
    let pod_of_ports = pod(&format!("  - name: c\n    ports:\n{ports}"));
    let entries: String = (0..150_000).map(|at| format!("  k{at}: x\n")).collect();
    let lines: String = (0..600_000).map(|at| format!("k{at}=\n")).collect();
    let patch = "- {target: {kind: ConfigMap}, patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {b: x}}'}\n";
    let specs: String = (0..40_000)
        .map(|at| format!("- {{path: a/b{at}, kind: ConfigMap}}\n"))
        .collect();
    let text = (0..20_000)
        .map(|at| format!("    k{at}: v\n"))
        .collect::<String>();
    let text_paths: Vec<String> = (0..4_000).map(|at| format!("data.t.k{at}")).collect();
    let elements: String = (0..20_000)
        .map(|at| format!("    - {{n: v{at}, m: x}}\n"))
        .collect();
    let element_paths: Vec<String> = (0..4_000).map(|at| format!("data.l.[n=v{at}].m")).collect();
    let wildcard_paths = vec!["data.l.*.m"; 4_000].join(", ");
    let merges: String = (0..3_000)
        .map(|at| format!("m{at}: &m{at} {{a{at}: x}}\n"))
        .collect();
    let merged: Vec<String> = (0..3_000).map(|at| format!("*m{at}")).collect();
    let label_patch = |count: usize| {
        "- {target: {labelSelector: 'l in (SET)'}, patch: '- {op: test, path: /kind, value: x}'}\n"
            .replace("SET", &values[..count].join(","))
    };
    vec![
        over(
            "4,000 sources among 4,000 objects",
            TOO_MUCH_WORK,
            "replacements: [{path: r.yaml}]\n",
            &many,
        )
        .with("app/r.yaml", &source.repeat(4_000)),
        over(
            "4,000 targets among 4,000 objects",
            TOO_MUCH_WORK,
            &format!("replacements:\n{}", target.repeat(4_000)),
            &many,
        ),
        over(
            "expression of 20 kB against long names",
            TOO_MUCH_WORK,
            &format!(
                "patches:\n- {{target: {{name: '{expression}'}}, patch: '- {{op: test, path: /kind, value: x}}'}}\n"
            ),
            &names,
        ),
        over(
            "expression that repeats repetitions",
            "invalid repeat count",
            "patches:\n- {target: {name: '((a{1000}){1000}){1000}'}, patch: '- {op: test, path: /kind, value: x}'}\n",
            OBJECT,
        ),
        over(
            "label selector of 50,000 values",
            TOO_MUCH_WORK,
            &format!("patches:\n{}", label_patch(50_000)),
            &labelled,
        ),
        over(
            "4,000 patches of 4,000 objects",
            TOO_MUCH_WORK,
            &format!("patches:\n{}", patch.repeat(4_000)),
            &many,
        ),
        over(
            "60,000 ports merged with as many",
            TOO_MUCH_WORK,
            "patches: [{path: p.yaml}]\n",
            &pod_of_ports,
        )
        .with("app/p.yaml", &pod_of_ports),
        over(
            "200,000 elements moved 20,000 times",
            TOO_MUCH_WORK,
            "patches: [{target: {kind: ConfigMap}, path: p.yaml}]\n",
            &format!("{OBJECT}data: [{}]\n", vec!["0"; 200_000].join(",")),
        )
        .with(
            "app/p.yaml",
            &"- {op: remove, path: /data/0}\n".repeat(20_000),
        ),
        over(
            "150,000 entries merged with as many",
            TOO_MUCH_WORK,
            "patches: [{path: p.yaml}]\n",
            &format!("{OBJECT}data:\n{entries}"),
        )
        .with("app/p.yaml", &format!("{OBJECT}data:\n{entries}")),
        over(
            "600,000 lines of variables",
            OBJECTS_TOO_LARGE,
            "configMapGenerator: [{name: b, envs: [e.env]}]\n",
            OBJECT,
        )
        .with("app/e.env", &lines),
        over(
            "40,000 field specs",
            TOO_MUCH_WORK,
            "configurations: [c.yaml]\n",
            OBJECT,
        )
        .with("app/c.yaml", &format!("varReference:\n{specs}")),
        over(
            "4,000 paths into a long text",
            TOO_MUCH_WORK,
            &format!(
                "replacements:\n- source: {{kind: ConfigMap}}\n  targets: [{{select: {{kind: ConfigMap}}, fieldPaths: [{}]}}]\n",
                text_paths.join(", ")
            ),
            &format!("{OBJECT}data:\n  t: |\n{text}"),
        ),
        over(
            "4,000 elements looked for among 20,000",
            TOO_MUCH_WORK,
            &format!(
                "replacements:\n- source: {{kind: ConfigMap}}\n  targets: [{{select: {{kind: ConfigMap}}, fieldPaths: ['{}']}}]\n",
                element_paths.join("', '")
            ),
            &format!("{OBJECT}data:\n  l:\n{elements}"),
        ),
        over(
            "4,000 times all of 20,000 elements",
            OBJECTS_TOO_LARGE,
            &format!(
                "replacements:\n- source: {{kind: ConfigMap}}\n  targets: [{{select: {{kind: ConfigMap}}, fieldPaths: [{wildcard_paths}]}}]\n"
            ),
            &format!("{OBJECT}data:\n  l:\n{elements}"),
        ),
        over(
            "2,000 validators of 4,000 objects",
            TOO_MUCH_WORK,
            &format!(
                "validators:\n{}",
                (0..2_000)
                    .map(|at| format!("- '{{apiVersion: builtin, kind: HashTransformer, metadata: {{name: v{at}}}}}'\n"))
                    .collect::<String>()
            ),
            &many,
        ),
        over(
            "4,000 images looked for among 200,000 values",
            TOO_MUCH_WORK,
            &format!("images:\n{}", "- {name: web, newTag: x}\n".repeat(4_000)),
            &format!("{OBJECT}data: {}\n", zeros(200_000)),
        ),
        over(
            "20,000 variables of 4,000 objects",
            TOO_MUCH_WORK,
            &format!(
                "vars:\n{}",
                (0..20_000)
                    .map(|at| format!(
                        "- {{name: v{at}, objref: {{apiVersion: v1, kind: ConfigMap, name: a0}}}}\n"
                    ))
                    .collect::<String>()
            ),
            &many,
        ),
        over(
            "4,000 labels of an object of 200,000 values",
            TOO_MUCH_WORK,
            &format!(
                "commonLabels: {{{}}}\n",
                (0..4_000)
                    .map(|at| format!("l{at}: x, "))
                    .collect::<String>()
            ),
            &format!("{OBJECT}data: {}\n", zeros(200_000)),
        ),
        over(
            "20,000 steps over a labelled object of 200,000 values",
            TOO_MUCH_WORK,
            &format!("transformers:\n{}{}", label_step(), prefixes(20_000)),
            &format!("{OBJECT}data: {}\n", zeros(200_000)),
        ),
        over(
            "900 components of 20,000 objects",
            TOO_MUCH_WORK,
            &format!("components: [{}]\n", vec!["../c"; 900].join(", ")),
            &config_maps(19_000),
        )
        .with(
            "c/kustomization.yaml",
            "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches: []\nnamespace: ''\n",
        ),
        over(
            "definitions that lead along 8^30 paths",
            TOO_MUCH_WORK,
            "crds: [c.json]\n",
            OBJECT,
        )
        .with("app/c.json", &eightfold_definitions()),
        over(
            "3,000 merged anchors 100 times",
            OBJECTS_TOO_LARGE,
            "",
            &format!(
                "{OBJECT}{merges}{}",
                (0..100)
                    .map(|at| format!("n{at}: {{<<: [{}]}}\n", merged.join(", ")))
                    .collect::<String>()
            ),
        ),
    ]
}

impl Input {
    /// Whether it is a limit of ours that it reaches.
    #[allow(dead_code, reason = "the example measures whatever it is")]
    pub(crate) fn is_limit(&self) -> bool {
        [
            TOO_MUCH_WORK,
            TOO_LARGE,
            TOO_MANY_BYTES,
            TOO_MUCH_MADE,
            TOO_DEEP,
            TOO_MANY_EXPRESSIONS,
            TOO_MANY_BASES,
            OBJECTS_TOO_LARGE,
        ]
        .contains(&self.expected)
    }

    fn with(mut self, path: &str, text: &str) -> Self {
        self.files.push((path.to_owned(), text.to_owned()));
        self
    }
}
