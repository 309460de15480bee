//! The charts.

use tar::EntryType;

use super::build::{Archive, CHART_YAML, gzip};
use super::{Case, Want};

/// All that Helm says of an archive that breaks a rule.
const NO_ARCHIVE: &str = "unable to load chart archive";
const TOO_LARGE: &str = "document is too large";

fn case(name: &'static str, archive: Archive, want: Want) -> Case {
    raw(name, archive.tgz(), want)
}

fn raw(name: &'static str, archive: Vec<u8>, want: Want) -> Case {
    Case {
        name,
        archive,
        arguments: Vec::new(),
        want,
    }
}

fn fails(name: &'static str, archive: Archive, text: &'static str) -> Case {
    case(name, archive, Want::Error(text))
}

fn works(name: &'static str, archive: Archive, text: &'static str) -> Case {
    case(name, archive, Want::Output(text))
}

fn template(name: &'static str, text: &str, want: &'static str) -> Case {
    fails(name, Archive::chart().template(text), want)
}

fn schema(name: &'static str, schema: String, values: &str, want: Want) -> Case {
    let archive = Archive::chart().file("web/values.schema.json", schema);
    case(name, archive.values(values).template("a: b\n"), want)
}

fn nested(open: &str, close: &str, levels: usize) -> String {
    format!("{}1{}", open.repeat(levels), close.repeat(levels))
}

/// Ten times ten times … the same list.
fn alias_bomb(levels: usize) -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..levels {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    text
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(archives());
    cases.extend(paths());
    cases.extend(documents());
    cases.extend(metadata());
    cases.extend(templates());
    cases.extend(schemas());
    cases.extend(dependencies());
    cases
}

fn archives() -> Vec<Case> {
    let zeros = vec![0; 8 << 20];
    let block = gzip(&zeros);
    // One file that says it is 4 GiB large; its content is one block over and over.
    let header = {
        let mut header = tar::Header::new_gnu();
        header.set_path("web/big").expect("a short path");
        header.set_size(4 << 30);
        header.set_cksum();
        gzip(header.as_bytes())
    };
    let bomb = [Archive::chart().member(), header, block.repeat(64)].concat();
    let mut crowd = Archive::default();
    for at in 0..10_000 {
        crowd = crowd.file(format!("web/f{at}"), "");
    }
    let million = [Archive::chart().member(), crowd.member().repeat(100)].concat();
    let mut layers = Archive::chart().template("a: b\n");
    for at in 0..40 {
        let inner = Archive::default()
            .file(
                format!("s{at}/Chart.yaml"),
                format!("apiVersion: v2\nname: s{at}\nversion: 1.0.0\n"),
            )
            .file(format!("s{at}/big"), &zeros[..4 << 20]);
        layers = layers.file(format!("web/charts/s{at}.tgz"), inner.tgz());
    }
    let mut matryoshka = Archive::chart().tgz();
    for _ in 0..100 {
        matryoshka = Archive::chart()
            .file("web/charts/web.tgz", &matryoshka)
            .tgz();
    }
    let good = Archive::chart().template("a: b\n").tgz();
    let sub = Archive::default().file("s/Chart.yaml", subchart("s")).tgz();
    let named = |fill: &[u8]| {
        let name = Archive::declared(EntryType::GNULongName, 160 << 20, fill);
        let inner = [name, sub.clone()].concat();
        Archive::chart().file("web/charts/s.tgz", inner)
    };
    let folders = Archive::declared(EntryType::Directory, 160 << 20, b"\0");
    let folders = [folders, sub.clone()].concat();
    let folders = (0..50).fold(Archive::chart(), |archive, at| {
        archive.file(format!("web/charts/s{at}.tgz"), &folders)
    });
    vec![
        fails("long-name-in-charts", named(b"a"), "header field too long"),
        fails("long-name-latin1", named(b"\xff"), "header field too long"),
        raw(
            "sparse",
            [Archive::chart().member(), Archive::hole(300 << 20)].concat(),
            Want::Error(NO_ARCHIVE),
        ),
        fails("directories-with-size", folders, "larger than the maximum"),
        raw("zip-bomb", bomb, Want::Error(NO_ARCHIVE)),
        raw("million-files", million, Want::Error(NO_ARCHIVE)),
        fails("bombs-in-charts", layers, "larger than the maximum"),
        raw("charts-in-charts", matryoshka, Want::Error("nested deeper")),
        raw(
            "truncated",
            good[..good.len() / 2].to_vec(),
            Want::Error(NO_ARCHIVE),
        ),
        raw(
            "trailing-garbage",
            [&good[..], b"garbage"].concat(),
            Want::Output("a: b"),
        ),
        raw(
            "not-gzip",
            b"just text, no archive at all".to_vec(),
            Want::Error("gzip"),
        ),
        raw("empty-file", Vec::new(), Want::Error("gzip")),
        raw("empty-gzip", gzip(b""), Want::Error(NO_ARCHIVE)),
        raw(
            "gzip-of-text",
            gzip(b"no tar in here"),
            Want::Error(NO_ARCHIVE),
        ),
    ]
}

fn paths() -> Vec<Case> {
    let with = |name: &str| Archive::chart().file(name, "x");
    let link = |kind, name: &str, target| {
        Archive::chart()
            .template("a: b\n")
            .entry(kind, name.as_bytes(), b"", target)
    };
    let long = format!("web/{}", "d/".repeat(3_000));
    vec![
        fails("parent-path", with("web/../../etc/passwd"), NO_ARCHIVE),
        works("plain-parent", with("../passwd").template("a: b\n"), "a: b"),
        works(
            "absolute-path",
            with("/etc/passwd").template("a: b\n"),
            "a: b",
        ),
        works("windows-path", with("web/c:\\x").template("a: b\n"), "a: b"),
        works(
            "symlink",
            link(EntryType::Symlink, "web/l", "/etc/passwd"),
            "a: b",
        ),
        works(
            "hardlink",
            link(EntryType::Link, "web/l", "/etc/passwd"),
            "a: b",
        ),
        works("fifo", link(EntryType::Fifo, "web/l", ""), "a: b"),
        works("device", link(EntryType::Char, "web/l", ""), "a: b"),
        fails(
            "long-path",
            Archive::chart().file(long + "x", "x").template("a: b\n"),
            NO_ARCHIVE,
        ),
        works(
            "invalid-utf8-path",
            Archive::chart()
                .file(b"web/\xff\xfe", "x")
                .template("a: b\n"),
            "a: b",
        ),
        works(
            "twice",
            Archive::chart().template("a: 1\n").template("a: 2\n"),
            "a: 2",
        ),
    ]
}

fn documents() -> Vec<Case> {
    let values = |text: &str| {
        Archive::chart()
            .values(text)
            .template("a: {{ .Values.a }}\n")
    };
    let list = format!("a: [{}]\n", "1,".repeat(2_400_000));
    let maps: String = (0..250_000)
        .map(|at| format!("k{at}: {{a: b}}\n"))
        .collect();
    let lines = "- a\n".repeat(1_200_000);
    vec![
        fails("huge-flow-list", Archive::chart().values(list), TOO_LARGE),
        fails("many-keys", Archive::chart().values(maps), TOO_LARGE),
        works(
            "huge-manifest",
            Archive::chart().template(format!("a:\n{lines}")),
            "- a",
        ),
        fails("heavy-values-in-charts", heavy_charts(), TOO_LARGE),
        fails("heavy-aliases", heavy_aliases(""), "values are too large"),
        fails(
            "heavy-globals",
            heavy_aliases("global"),
            "values are too large",
        ),
        fails("huge-values", values(&"a: b\n".repeat(2 << 20)), TOO_LARGE),
        fails(
            "deep-flow-maps",
            values(&nested("{a: ", "}", 100_000)),
            "exceed",
        ),
        fails(
            "deep-flow-lists",
            values(&format!("a: {}", nested("[", "]", 1_000_000))),
            "exceed",
        ),
        fails(
            "deep-block-lists",
            values(&format!("a:\n {}x", "- ".repeat(200_000))),
            "exceed",
        ),
        fails("open-brackets", values(&"[".repeat(4 << 20)), "exceed"),
        fails("alias-bomb", values(&alias_bomb(12)), "excessive aliasing"),
        template("alias-bomb-rendered", &alias_bomb(12), "excessive aliasing"),
        fails("values-list", values("[1]"), "cannot unmarshal"),
        fails("values-text", values("text"), "cannot unmarshal"),
        works("values-null", values("null"), "a:"),
        works("values-bom-crlf", values("\u{feff}a: 1\r\n"), "a: 1"),
        fails(
            "values-nul",
            values("a: \0\n"),
            "control characters are not allowed",
        ),
        fails(
            "values-utf8",
            Archive::chart().values(b"a: \xff\n"),
            "invalid",
        ),
        template(
            "manifest-nul",
            "a: \0\n",
            "control characters are not allowed",
        ),
        fails(
            "template-utf8",
            Archive::chart().template(b"a: {{ \"\xff\" | quote }} # \xff\n"),
            "invalid leading UTF-8 octet",
        ),
        works(
            "ignore-bomb",
            Archive::chart()
                .file("web/.helmignore", "*".repeat(100_000))
                .template("a: b\n"),
            "a: b",
        ),
    ]
}

/// Some megabytes of maps as YAML, each line indented.
fn heavy(lines: usize) -> String {
    (0..lines)
        .map(|at| format!("  k{at}: {{a: b}}\n"))
        .collect()
}

fn subchart(name: &str) -> String {
    format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n")
}

/// Many subcharts with values that are fine alone.
fn heavy_charts() -> Archive {
    (0..20).fold(Archive::chart(), |archive, at| {
        let folder = format!("web/charts/s{at}");
        archive
            .file(format!("{folder}/Chart.yaml"), subchart(&format!("s{at}")))
            .file(
                format!("{folder}/values.yaml"),
                format!("a:\n{}", heavy(10_000)),
            )
    })
}

/// One subchart under many names, with its own values or global ones that each gets.
fn heavy_aliases(key: &str) -> Archive {
    let aliases: String = (0..1_000)
        .map(|at| format!("- {{name: s, version: 1.0.0, alias: s{at}}}\n"))
        .collect();
    let values = format!(
        "{}:\n{}",
        if key.is_empty() { "a" } else { key },
        heavy(5_000)
    );
    let owner = if key.is_empty() {
        "web/charts/s"
    } else {
        "web"
    };
    Archive::default()
        .file(
            "web/Chart.yaml",
            format!("{CHART_YAML}dependencies:\n{aliases}"),
        )
        .file("web/charts/s/Chart.yaml", subchart("s"))
        .file(format!("{owner}/values.yaml"), values)
}

fn metadata() -> Vec<Case> {
    let with = |text: &str| Archive::default().file("web/Chart.yaml", text);
    let mut cases = vec![
        fails(
            "no-chart-yaml",
            Archive::default().file("web/values.yaml", ""),
            "Chart.yaml",
        ),
        fails("chart-yaml-list", with("[1, 2]"), "cannot unmarshal"),
        fails("chart-yaml-empty", with(""), "chart.metadata"),
        fails(
            "chart-yaml-bomb",
            with(&(alias_bomb(12) + CHART_YAML)),
            "excessive aliasing",
        ),
        fails(
            "chart-yaml-deep",
            with(&nested("{a: ", "}", 50_000)),
            "exceed",
        ),
        fails(
            "name-with-path",
            with("apiVersion: v2\nname: ../../x\nversion: 1.0.0\n"),
            "invalid",
        ),
        fails(
            "version-nonsense",
            with("apiVersion: v2\nname: web\nversion: \"1 || rm\"\n"),
            "invalid",
        ),
        fails(
            "api-version-nonsense",
            with("apiVersion: v9\nname: web\nversion: 1.0.0\n"),
            "version",
        ),
        works(
            "crlf-bom",
            with(&format!("\u{feff}{}", CHART_YAML.replace('\n', "\r\n"))).template("a: b\r\n"),
            "a: b",
        ),
        fails(
            "long-name",
            with(&CHART_YAML.replace("web", &"n".repeat(1 << 20))).template("{{ fail \"x\" }}"),
            "",
        ),
    ];
    const FIELDS: [&str; 8] = [
        "name: {a: 1}",
        "version: [1]",
        "keywords: x",
        "maintainers: {a: 1}",
        "dependencies: x",
        "annotations: [1]",
        "deprecated: maybe",
        "sources: {a: 1}",
    ];
    const NAMES: [&str; 8] = [
        "name-map",
        "version-list",
        "keywords-text",
        "maintainers-map",
        "dependencies-text",
        "annotations-list",
        "deprecated-text",
        "sources-map",
    ];
    for (name, field) in NAMES.into_iter().zip(FIELDS) {
        let key = field.split(':').next().unwrap_or_default();
        let mut lines: Vec<&str> = CHART_YAML
            .lines()
            .filter(|line| !line.starts_with(key))
            .collect();
        lines.push(field);
        cases.push(fails(name, with(&lines.join("\n")), "cannot unmarshal"));
    }
    cases
}

fn templates() -> Vec<Case> {
    let slow = "{{ range until 100000 }}{{ genPrivateKey \"rsa\" }}{{ end }}";
    vec![
        template(
            "include-itself",
            "{{ define \"a\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}",
            "error calling include",
        ),
        template(
            "template-itself",
            "{{ define \"a\" }}{{ template \"a\" . }}{{ end }}{{ template \"a\" . }}",
            "depth",
        ),
        template(
            "include-each-other",
            "{{ define \"a\" }}{{ include \"b\" . }}{{ end }}{{ define \"b\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}",
            "error calling include",
        ),
        fails(
            "tpl-itself",
            Archive::chart()
                .values("t: '{{ tpl .Values.t . }}'")
                .template("{{ tpl .Values.t . }}"),
            "error",
        ),
        template("huge-range", "{{ range until 1000000000 }}x{{ end }}", ""),
        template(
            "nested-ranges",
            "{{ $l := until 10000 }}{{ range $l }}{{ range $l }}{{ end }}{{ end }}",
            "steps",
        ),
        template(
            "doubling",
            "{{ $s := \"xxxxxxxx\" }}{{ range until 64 }}{{ $s = print $s $s }}{{ end }}{{ $s }}",
            "",
        ),
        template("huge-repeat", "{{ repeat 1000000000 \"x\" }}", ""),
        template("huge-indent", "{{ indent 1000000000 \"x\" }}", ""),
        template("huge-width", "{{ printf \"%1000000000d\" 1 }}", ""),
        template("huge-random", "{{ randAlphaNum 1000000000 }}", ""),
        template(
            "doubling-lists",
            "{{ $l := list 1 }}{{ range until 64 }}{{ $l = concat $l $l }}{{ end }}{{ len $l }}",
            "",
        ),
        template(
            "texts-and-lists",
            "{{ $l := list 1 }}{{ range until 22 }}{{ $l = concat $l $l }}{{ end }}{{ $s := repeat 60000000 \"x\" }}\
             {{ $t := print $s $l }}{{ $t }}",
            "",
        ),
        template(
            "huge-output",
            "a: |\n{{ range until 50 }}  {{ repeat 1000000 \"x\" }}\n{{ end }}",
            "",
        ),
        works(
            "large-output",
            Archive::chart()
                .template("{{ range until 30 }}---\na: |\n  {{ repeat 1000000 \"x\" }}\n{{ end }}"),
            "a: |",
        ),
        template(
            "growing-dict",
            "{{ $d := dict }}{{ range until 100000000 }}{{ $_ := set $d (toString .) . }}{{ end }}",
            "",
        ),
        works(
            "self-dict",
            Archive::chart()
                .template("a: b{{ $d := dict }}{{ $_ := set $d \"a\" $d }}{{ toYaml $d }}"),
            "a: b",
        ),
        template(
            "regex-bomb",
            "{{ regexMatch \"(((((a{1,100}){1,100}){1,100}){1,100}){1,100})\" \"aaa\" }}",
            "",
        ),
        template("many-keys-made", slow, ""),
        template(
            "given-key-loop",
            "{{ $key := genPrivateKey \"rsa\" }}{{ range until 100000 }}{{ $_ := genCAWithKey \"a\" 1 $key }}{{ end }}",
            "",
        ),
        template(
            "certificate-loop",
            "{{ $ca := genCA \"a\" 1 }}{{ range until 100000 }}{{ $_ := genSignedCert \"a\" nil nil 1 $ca }}{{ end }}",
            "",
        ),
        template(
            "scrypt-loop",
            "{{ range until 100000 }}{{ derivePassword 1 \"long\" \"a\" \"b\" \"c\" }}{{ end }}",
            "",
        ),
        template(
            "bcrypt-loop",
            "{{ range until 100000 }}{{ bcrypt \"x\" }}{{ end }}",
            "",
        ),
        template(
            "deep-json",
            "{{ fromJson (repeat 100000 \"[\") | toJson }}{{ fail \"got here\" }}",
            "got here",
        ),
        template(
            "deep-parentheses",
            &format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000)),
            "",
        ),
        template(
            "deep-blocks",
            &format!(
                "{}{}",
                "{{ if true }}".repeat(100_000),
                "{{ end }}".repeat(100_000)
            ),
            "",
        ),
        template("unclosed", &"{{ ".repeat(1_000_000), ""),
        template(
            "huge-number",
            &format!("{{{{ {} }}}}", "9".repeat(1 << 20)),
            "",
        ),
    ]
}

/// One subchart under many names, each of which is checked against its schema.
fn schema_of_aliases(schema: &str, values: &str, aliases: usize) -> Archive {
    let aliases: String = (0..aliases)
        .map(|at| format!("- {{name: s, version: 1.0.0, alias: s{at}}}\n"))
        .collect();
    Archive::default()
        .file(
            "web/Chart.yaml",
            format!("{CHART_YAML}dependencies:\n{aliases}"),
        )
        .file("web/charts/s/Chart.yaml", subchart("s"))
        .file("web/charts/s/values.yaml", values)
        .file("web/charts/s/values.schema.json", schema)
}

fn schemas() -> Vec<Case> {
    let mut doubling = "{\"$defs\": {\"d0\": {\"type\": \"string\"}".to_owned();
    for level in 1..40 {
        let below = level - 1;
        doubling.push_str(&format!(
            ", \"d{level}\": {{\"anyOf\": [{{\"$ref\": \"#/$defs/d{below}\"}}, {{\"$ref\": \"#/$defs/d{below}\"}}]}}"
        ));
    }
    doubling.push_str("}, \"properties\": {\"a\": {\"$ref\": \"#/$defs/d39\"}}}");
    let listed = |form: fn(usize) -> String, count: usize| {
        (0..count).map(form).collect::<Vec<_>>().join(",")
    };
    let crowd = listed(|at| format!("\"p{at}\":{{}}"), 400_000);
    let strays = listed(|at| format!("{{\"$ref\":\"#/x/{at}\"}}"), 20_000);
    let targets = listed(|_| "{}".to_owned(), 20_000);
    let names = listed(
        |at| format!("\"d{at}\":{{\"$id\":\"http://e/{at}\"}}"),
        20_000,
    );
    let patterns = listed(|at| format!("\"^a{{1,90}}.{{90}}{at}$\":{{}}"), 2_000);
    let words = listed(|at| format!("\"w{at}\""), 200_000);
    let items = listed(|_| "\"x\"".to_owned(), 100_000);
    let keys: String = (0..60_000).map(|at| format!("k{at}: x\n")).collect();
    let unevaluated = format!(
        "{{\"unevaluatedProperties\":true,\"allOf\":[{}]}}",
        listed(|_| "{\"unevaluatedProperties\":true}".to_owned(), 1_000)
    );
    // Each failure shows the constant.
    let constant = format!(
        "{{\"properties\":{{\"a\":{{\"items\":{{\"const\":\"{}\"}}}}}}}}",
        "x".repeat(50_000)
    );
    let few = format!("a: [{}]", listed(|_| "\"x\"".to_owned(), 300));
    let regex = "{\"properties\": {\"a\": {\"pattern\": \"((((a{1,99}){1,99}){1,99}){1,99})$\"}}}";
    vec![
        fails(
            "schema-doubling-of-aliases",
            schema_of_aliases(&doubling, "a: 1\n", 1_000),
            "too complex",
        ),
        fails(
            "schema-failures-of-aliases",
            schema_of_aliases(&constant, &few, 30),
            "too complex",
        ),
        schema(
            "schema-doubling",
            doubling,
            "a: 1",
            Want::Error("too complex"),
        ),
        schema(
            "schema-crowd",
            format!("{{\"properties\":{{{crowd}}}}}"),
            "a: 1",
            Want::Error(TOO_LARGE),
        ),
        schema(
            "schema-strays",
            format!("{{\"x\":[{targets}],\"allOf\":[{strays}]}}"),
            "a: 1",
            Want::Output("a: b"),
        ),
        schema(
            "schema-names",
            format!("{{\"$defs\":{{{names}}}}}"),
            "a: 1",
            Want::Output("a: b"),
        ),
        schema(
            "schema-patterns",
            format!("{{\"patternProperties\":{{{patterns}}}}}"),
            "a: 1",
            Want::Error("too complex"),
        ),
        schema(
            "schema-enum",
            format!("{{\"properties\":{{\"a\":{{\"items\":{{\"enum\":[{words}]}}}}}}}}"),
            &format!("a: [{items}]"),
            Want::Error("too complex"),
        ),
        schema(
            "schema-failures",
            "{\"properties\":{\"a\":{\"items\":{\"type\":\"integer\"}}}}".into(),
            &format!("a: [{items}]"),
            Want::Error("too complex"),
        ),
        schema(
            "schema-unevaluated",
            unevaluated,
            &keys,
            Want::Error("too complex"),
        ),
        schema(
            "schema-itself",
            "{\"$ref\": \"#\"}".into(),
            "a: 1",
            Want::Error(""),
        ),
        schema(
            "schema-deep",
            nested("{\"not\": ", "}", 100_000),
            "a: 1",
            Want::Error(""),
        ),
        schema("schema-regex", regex.into(), "a: aaa", Want::Error("")),
        schema(
            "schema-http",
            "{\"$ref\": \"http://127.0.0.1:1/s.json\"}".into(),
            "a: 1",
            Want::Error("failing loading"),
        ),
        schema(
            "schema-file",
            "{\"$ref\": \"file:///etc/passwd\"}".into(),
            "a: 1",
            Want::Error("failing loading"),
        ),
        schema(
            "schema-no-json",
            "nonsense".into(),
            "a: 1",
            Want::Error("invalid"),
        ),
        schema(
            "schema-utf8-nul",
            "{\"type\": \"\u{0}\"}".into(),
            "a: 1",
            Want::Error(""),
        ),
        schema(
            "schema-unique",
            "{\"properties\": {\"a\": {\"uniqueItems\": true}}}".into(),
            &format!(
                "a: [{}]",
                (0..200_000).map(|n| format!("{n},")).collect::<String>()
            ),
            Want::Output("a: b"),
        ),
    ]
}

fn dependencies() -> Vec<Case> {
    let own = format!("{CHART_YAML}dependencies:\n- {{name: web, version: 1.0.0}}\n");
    let cycle = Archive::default()
        .file("web/Chart.yaml", &own)
        .file("web/charts/web/Chart.yaml", &own)
        .template("a: b\n");
    let sub = |archive: Archive| {
        archive
            .file(
                "web/charts/s/Chart.yaml",
                "apiVersion: v2\nname: s\nversion: 1.0.0\n",
            )
            .file("web/charts/s/templates/x.yaml", "s: 1\n")
    };
    let aliases: String = (0..3_000)
        .map(|at| format!("- {{name: s, version: 1.0.0, alias: s{at}}}\n"))
        .collect();
    let many = Archive::default().file(
        "web/Chart.yaml",
        format!("{CHART_YAML}dependencies:\n{aliases}"),
    );
    let escaping =
        format!("{CHART_YAML}dependencies:\n- {{name: s, version: 1.0.0, alias: ../../x}}\n");
    let constraint = format!(
        "{CHART_YAML}dependencies:\n- {{name: s, version: \"{}\"}}\n",
        "1 || ".repeat(50_000)
    );
    vec![
        works("dependency-on-itself", cycle, "a: b"),
        works("many-aliases", sub(many).template("a: b\n"), "a: b"),
        fails(
            "alias-with-path",
            sub(Archive::default().file("web/Chart.yaml", escaping)),
            "alias",
        ),
        works(
            "huge-constraint",
            sub(Archive::default().file("web/Chart.yaml", constraint)).template("a: b\n"),
            "a: b",
        ),
    ]
}
