//! A random chart: odd, but mostly one that helm renders.

use std::collections::BTreeMap;

use super::dice::Dice;
use super::values;

/// Paths below the folder of a case, and what is in them.
pub(crate) type Files = BTreeMap<String, String>;

const SUBCHARTS: [&str; 3] = ["one", "two", "three"];

/// Writes a chart with its subcharts below `root`.
pub(crate) fn write(dice: &mut Dice, root: &str, name: &str, depth: usize, files: &mut Files) {
    let is_old = dice.chance(12);
    let mut subcharts: Vec<&str> = Vec::new();
    if depth > 0 {
        subcharts.extend(
            SUBCHARTS
                .iter()
                .filter(|_| dice.chance(if depth > 1 { 60 } else { 35 })),
        );
    }
    let dependencies = dependencies(dice, &subcharts);
    let mut chart = metadata(dice, name, is_old, depth);
    match (dependencies.is_empty(), is_old) {
        (true, _) => {}
        (false, true) => {
            files.insert(format!("{root}/requirements.yaml"), dependencies);
        }
        (false, false) => chart.push_str(&dependencies),
    }
    files.insert(format!("{root}/Chart.yaml"), chart);
    for subchart in subcharts {
        let folder = dice.mostly(&[subchart], &["other", "_hidden", ".hidden", "x.tgz"]);
        write(
            dice,
            &format!("{root}/charts/{folder}"),
            subchart,
            depth - 1,
            files,
        );
    }
    if dice.chance(85) {
        files.insert(format!("{root}/values.yaml"), values_file(dice));
    }
    if dice.chance(10) {
        files.insert(format!("{root}/values.schema.json"), schema(dice));
    }
    for at in 0..1 + dice.below(3) {
        let file = dice.mostly(
            &[
                "a.yaml",
                "b.yaml",
                "deep/c.yaml",
                "_helpers.tpl",
                "NOTES.txt",
                "d.json",
            ],
            &[
                "e.txt",
                "_f.yaml",
                ".g.yaml",
                "MYNOTES.txt",
                "h",
                "tests/i.yaml",
                "j.YAML",
                "deep/NOTES.txt",
                "_partials/k.yaml",
            ],
        );
        let text = template(dice, name, at);
        files.insert(format!("{root}/templates/{file}"), text);
    }
    if dice.chance(20) {
        let file = dice.mostly(
            &["crds/x.yaml", "crds/y.yml"],
            &["crds/deep/z.json", "crds/README.md", "crds/w.YAML"],
        );
        files.insert(format!("{root}/{file}"), crd(dice));
    }
    if dice.chance(30) {
        let file = dice.pick(&[
            "README.md",
            "files/a.txt",
            "files/b.txt",
            "LICENSE",
            "values/c.yaml",
            ".hidden",
        ]);
        let text = dice.pick(&[
            "",
            "text",
            "one\ntwo\n",
            "{{ .Values.a }}\n",
            "a: b\r\n",
            "\u{feff}mark",
        ]);
        files.insert(format!("{root}/{file}"), text.to_owned());
    }
    if dice.chance(8) {
        files.insert(format!("{root}/.helmignore"), ignore(dice));
    }
    if dice.chance(4) {
        let file = dice.pick(&[
            "charts/README.md",
            "charts/.keep",
            "charts/a.prov",
            "Chart.lock",
            "requirements.lock",
        ]);
        let text = dice.pick(&[
            "",
            "dependencies: []\ndigest: x\ngenerated: \"2020-01-01T00:00:00Z\"\n",
            "text",
        ]);
        files.insert(format!("{root}/{file}"), text.to_owned());
    }
}

fn metadata(dice: &mut Dice, name: &str, is_old: bool, depth: usize) -> String {
    let api = match (is_old, dice.chance(4)) {
        (true, _) => dice.pick(&["apiVersion: v1\n", ""]),
        (false, true) => dice.pick(&["apiVersion: v3\n", "apiVersion: v4\n", "apiVersion: 2\n"]),
        (false, false) => "apiVersion: v2\n",
    };
    let version = dice.mostly(
        &["1.0.0", "0.1.0", "1.2.3"],
        &[
            "1.10",
            "v1.0.0",
            "1.0.0-rc.1",
            "1",
            "1.0.0+up1",
            "\"1.0\"",
            "1.2.3.4",
            "x",
        ],
    );
    let mut text = format!("{api}name: {name}\nversion: {version}\n");
    let odd = [
        "appVersion: 1.16\n",
        "appVersion: \"1.16.0\"\n",
        "description: a  b\n",
        "kubeVersion: \">=1.20.0-0\"\n",
        "kubeVersion: \"< 1.20\"\n",
        "deprecated: true\n",
        "annotations:\n  a: \"1\"\n  b: text\n",
        "annotations: {a: 1}\n",
        "keywords: [a, b]\n",
        "maintainers:\n- name: me\n  email: me@example.com\n",
        "maintainers: [null]\n",
        "sources: [https://example.com]\n",
        "icon: x\nhome: y\n",
        "unknown: field\n",
        "type: application\n",
        "type: \"\"\n",
        "condition: x\ntags: y\n",
    ];
    for _ in 0..dice.below(3) {
        let line = dice.pick(&odd);
        if !text.contains(line) {
            text.push_str(line);
        }
    }
    if depth < 2 && dice.chance(15) && !text.contains("type:") {
        text.push_str("type: library\n");
    }
    text
}

fn dependencies(dice: &mut Dice, subcharts: &[&str]) -> String {
    let mut text = String::new();
    for name in subcharts {
        let times = match dice.below(10) {
            0..2 => 0,
            2 => 2,
            _ => 1,
        };
        for time in 0..times {
            let version = dice.mostly(
                &[
                    "\"*\"",
                    "\">=0.0.0-0\"",
                    "x.x.x",
                    "^1",
                    "~1.0",
                    "1.0.0",
                    "\">= 0.1.0\"",
                ],
                &["\"\"", "2.0.0", "\"1.0.0 || 0.1.0\"", "nonsense", "1"],
            );
            text.push_str(&format!("- name: {name}\n  version: {version}\n"));
            if time > 0 || dice.chance(20) {
                let alias = dice.mostly(&["a", "b", "one", "alias"], &["x.y", "ä", "a_b-C1"]);
                text.push_str(&format!("  alias: {alias}\n"));
            }
            if dice.chance(45) {
                let condition = dice.mostly(
                    &[
                        "one.enabled",
                        "two.enabled",
                        "enabled",
                        "global.enabled",
                        "a.enabled",
                    ],
                    &[
                        "one.enabled,global.enabled",
                        "one.enabled, two.enabled",
                        "missing.path",
                        "a",
                        "global",
                        "enabled.",
                    ],
                );
                text.push_str(&format!("  condition: {condition}\n"));
            }
            if dice.chance(25) {
                text.push_str(&format!(
                    "  tags: [{}]\n",
                    dice.pick(&["front", "back", "front, back", "none", ""])
                ));
            }
            if dice.chance(30) {
                let import = dice.mostly(
                    &[
                        "[data]",
                        "[a, data]",
                        "[{child: data, parent: x}]",
                        "[{child: exports.data, parent: .}]",
                        "[{child: global, parent: global}]",
                    ],
                    &[
                        "[{child: ., parent: y}]",
                        "[{child: one.data, parent: data}]",
                        "[missing]",
                        "[{child: a.b.c, parent: z.w}]",
                        "[1]",
                        "data",
                        "[{child: data}]",
                    ],
                );
                text.push_str(&format!("  import-values: {import}\n"));
            }
            if dice.chance(10) {
                text.push_str(dice.pick(&[
                    "  repository: https://example.com\n",
                    "  repository: file://../x\n",
                    "  enabled: false\n",
                ]));
            }
        }
    }
    if dice.chance(3) {
        text.push_str(dice.pick(&["- name: missing\n  version: 1.0.0\n", "- null\n"]));
    }
    match text.is_empty() {
        true => text,
        false => format!("dependencies:\n{text}"),
    }
}

pub(crate) fn values_file(dice: &mut Dice) -> String {
    let mut text = values::mapping(dice, 0, 3);
    if dice.chance(5) {
        text.push_str(dice.pick(&["---\n", "--- # more\n", "---\n---\n", "--- text\n", "...\n"]));
        text.push_str(&values::mapping(dice, 0, 1));
    }
    match dice.below(40) {
        0 => String::new(),
        1 => "# nothing\n".to_owned(),
        2 => "[]\n".to_owned(),
        3 => "null\n".to_owned(),
        4 => format!("\u{feff}{text}"),
        5 => text.replace('\n', "\r\n"),
        6 => format!("---\n{text}"),
        7 => text.trim_end().to_owned(),
        _ => text,
    }
}

fn template(dice: &mut Dice, chart: &str, at: usize) -> String {
    let mut text = String::new();
    for part in 0..1 + dice.below(4) {
        if part > 0 {
            text.push_str(dice.mostly(
                &["---\n"],
                &[
                    "--- \n",
                    "---\n---\n",
                    "--- # x\n",
                    "---\t\n",
                    "\n\n---\n",
                    "----\n",
                    " ---\n",
                    "...\n---\n",
                    "---\r\n",
                ],
            ));
        }
        text.push_str(&document(dice, chart, at * 10 + part));
    }
    match dice.below(40) {
        0 => format!("\u{feff}{text}"),
        1 => text.replace('\n', "\r\n"),
        2 => format!("---\n{text}"),
        3 => text.trim_end().to_owned(),
        4 => format!("\n \n{text}\n\n  "),
        _ => text,
    }
}

fn document(dice: &mut Dice, chart: &str, at: usize) -> String {
    let partial =
        |name: &str, body: &str| format!("{{{{ define \"{name}\" }}}}{body}{{{{ end }}}}\n");
    match dice.below(30) {
        0 => {
            return partial(
                "part",
                &format!("part of {chart} {at} in {{{{ .Template.Name }}}}"),
            );
        }
        1 => return partial("other", "{{ include \"part\" . }}!"),
        2 => return "# only a comment\n".to_owned(),
        3 => return String::new(),
        4 => return "{{- if .Values.enabled }}\nkind: Maybe\n{{- end }}\n".to_owned(),
        5 => return format!("kind: Text\ntext: |\n  a\n  ---\n  b\n---\nkind: After{at}\n"),
        _ => {}
    }
    let kind = dice.mostly(
        &[
            "ConfigMap",
            "Secret",
            "Deployment",
            "Service",
            "Namespace",
            "Job",
            "CustomResourceDefinition",
        ],
        &[
            "Odd",
            "configmap",
            "5",
            "\"\"",
            "RoleList",
            "ClusterRole",
            "[1]",
        ],
    );
    let name = dice.mostly(
        &["{{ .Release.Name }}-x", "plain", "{{ .Chart.Name }}"],
        &["5", "true", "null", "\"\"", "{a: b}"],
    );
    let api = dice.mostly(&["v1"], &["apps/v1", "1", "null"]);
    let mut text = format!("apiVersion: {api}\nkind: {kind}\nmetadata:\n  name: {name}\n");
    if dice.chance(35) {
        text.push_str("  annotations:\n");
        let event = dice.mostly(
            &[
                "pre-install",
                "post-install",
                "test",
                "pre-install,post-upgrade",
                "test-success",
                "pre-delete",
            ],
            &[
                "crd-install",
                "Pre-Install, test",
                "pre-install,",
                "\"\"",
                "5",
                "null",
                "[test]",
                "test-failure",
            ],
        );
        text.push_str(&format!("    helm.sh/hook: {event}\n"));
        if dice.chance(50) {
            let weight = dice.mostly(
                &["\"1\"", "-5", "\"-5\"", "3"],
                &["x", "1.5", "\"+2\"", "0x1", "010", "1e1", "\" 1\""],
            );
            text.push_str(&format!("    helm.sh/hook-weight: {weight}\n"));
        }
    } else if dice.chance(10) {
        text.push_str(dice.pick(&[
            "  annotations: null\n",
            "  annotations: {a: 1, b: true}\n",
            "  annotations: []\n",
            "  annotations: {a: {b: c}}\n",
            "  annotations: text\n",
        ]));
    }
    let data = [
        "values: {{ .Values | toJson }}\n",
        "values: {{ toJson .Values | quote }}\n",
        "data:\n{{ toYaml .Values | indent 2 }}\n",
        "global: {{ .Values.global | toJson }}\n",
        "a: {{ .Values.a }}\n",
        "b: {{ .Values.b | default \"none\" | quote }}\n",
        "x: {{ .Values.x | toString | quote }}\n",
        "kind of a: {{ kindOf .Values.a }}\n",
        "part: {{ include \"part\" . | quote }}\n",
        "part: {{ if .Values.enabled }}{{ template \"other\" . }}{{ end }}\n",
        "chart: {{ .Chart | toJson }}\n",
        "version: {{ .Chart.Version }} {{ .Chart.AppVersion }} {{ .Chart.IsRoot }} {{ .Chart.Type }}\n",
        "dependencies: {{ .Chart.Dependencies | toJson }}\n",
        "release: {{ .Release | toJson }}\n",
        "template: {{ .Template | toJson }}\n",
        "files: {{ range $name, $_ := .Files }}{{ $name }},{{ end }}\n",
        "file: {{ .Files.Get \"README.md\" | quote }}\n",
        "globbed: {{ (.Files.Glob \"**\").AsConfig | quote }}\n",
        "secrets: {{ (.Files.Glob \"files/*\").AsSecrets | quote }}\n",
        "lines: {{ .Files.Lines \"files/a.txt\" | toJson }}\n",
        "subcharts: {{ range $name, $sub := .Subcharts }}{{ $name }}={{ $sub.Values | toJson }}{{ end }}\n",
        "one: {{ .Subcharts.one.Chart.Name }}\n",
        "kube: {{ .Capabilities.KubeVersion }} {{ .Capabilities.APIVersions.Has \"apps/v1\" }} {{ .Capabilities.HelmVersion.Version }}\n",
        "has: {{ .Capabilities.APIVersions.Has \"example.com/v1\" }} {{ len .Capabilities.APIVersions }}\n",
        "deep: {{ .Values.one.two.a }}\n",
        "required: {{ required \"x is needed\" .Values.x }}\n",
        "tpl: {{ tpl \"{{ .Values.a }} {{ .Template.Name }}\" . }}\n",
        "set: {{ $_ := set .Values \"made\" \"here\" }}{{ .Values.made }}\n",
        "made: {{ .Values.made }}\n",
        "lookup: {{ lookup \"v1\" \"Secret\" \"a\" \"b\" | toJson }}\n",
        "upgrade: {{ .Release.IsUpgrade }} {{ .Release.IsInstall }} {{ .Release.Revision }} {{ .Release.Namespace }}\n",
    ];
    for _ in 0..dice.below(4) {
        text.push_str(dice.pick(&data));
    }
    if dice.chance(3) {
        text.push_str(dice.pick(&[
            "{{ fail \"no\" }}\n",
            "{{ .Values.a.b.c }}\n",
            "a: b: c\n",
            "{{ if }}\n",
            "- list\n",
            "\ttab: x\n",
            "kind: Again\n",
            "{{ include \"nowhere\" . }}\n",
        ]));
    }
    text
}

fn crd(dice: &mut Dice) -> String {
    dice.mostly(
        &[
            "kind: CustomResourceDefinition\nmetadata:\n  name: x\n",
            "kind: One\n---\nkind: Two\n",
        ],
        &[
            "",
            "# comment\n",
            "---\nkind: X\n---\n",
            "not {{ rendered }}\n",
            "a: b: c\n",
            "\r\nkind: Y\r\n",
        ],
    )
    .to_owned()
}

fn ignore(dice: &mut Dice) -> String {
    let lines = [
        "*.md\n",
        "README.md\n",
        "templates/b.yaml\n",
        "/templates/a.yaml\n",
        "files/\n",
        "# comment\n",
        "\n",
        "*.txt\n",
        "deep/\n",
        "crds\n",
        "charts/one\n",
        ".?*\n",
        "b.*\n",
        "  a.yaml  \n",
        "templates/*/c.yaml\n",
        "[ab].yaml\n",
    ];
    let odd = [
        "!README.md\n",
        "**/x\n",
        "!templates/\n",
        "[\n",
        "/\n",
        "Chart.yaml\n",
    ];
    let mut text = String::new();
    for _ in 0..1 + dice.below(3) {
        text.push_str(dice.mostly(&lines, &odd));
    }
    text
}

fn schema(dice: &mut Dice) -> String {
    let draft = dice.mostly(
        &[
            "",
            "\"$schema\": \"http://json-schema.org/draft-07/schema#\", ",
            "\"$schema\": \"https://json-schema.org/draft/2020-12/schema\", ",
        ],
        &[
            "\"$schema\": \"http://json-schema.org/draft-04/schema#\", ",
            "\"$schema\": \"http://json-schema.org/draft-06/schema\", ",
            "\"$schema\": \"https://json-schema.org/draft/2019-09/schema\", ",
            "\"$schema\": \"x\", ",
        ],
    );
    let body = dice.mostly(
        &[
            "\"type\": \"object\"",
            "\"properties\": {\"a\": {\"type\": \"string\"}, \"enabled\": {\"type\": \"boolean\"}}",
            "\"required\": [\"a\", \"global\"]",
            "\"properties\": {\"a\": {\"type\": [\"integer\", \"null\"]}}, \"additionalProperties\": true",
            "\"properties\": {\"global\": {\"type\": \"object\"}, \"one\": {\"required\": [\"x\"]}}",
            "\"anyOf\": [{\"required\": [\"a\"]}, {\"required\": [\"b\"]}]",
        ],
        &["\"additionalProperties\": false", "\"type\": \"banana\"", "\"$ref\": \"#/$defs/x\"", "\"properties\": {\"a\": {\"pattern\": \"(\"}}", "\"not\": {}"],
    );
    format!("{{{draft}{body}}}")
}
