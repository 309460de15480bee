//! Templates that ask for too much, function by function: each ends in an error within the limits, on a thread as small
//! as any, and without taking much more memory than the limits say. A test program of its own, so that its peak of memory
//! is that of these templates alone.

use std::io::Write as _;
use std::sync::Arc;

use templating::{Dialect, Error, Limits, Renderer, SystemHost, Value};

const STACK_BYTES: usize = 2 << 20;
const LIMITS: Limits = Limits {
    steps: 1_000_000,
    bytes: 8 << 20,
    text: 8 << 20,
    output: 8 << 20,
    memory: 32 << 20,
    template_depth: 100_000,
    include_depth: 1_000,
    stack_bytes: 1 << 20,
};
/// What the process may have held at any time: the program itself, the limits, and what functions need for a while.
const PEAK_KIB: u64 = 200 << 10;

/// A megabyte of text, a list of a hundred thousand, and a list that spells out to 2^40 elements.
const PRELUDE: &str = r#"{{ $big := repeat 1048576 "a" }}{{ $list := until 100000 }}
{{- $dag := list 1 }}{{ range 40 }}{{ $dag = list $dag $dag }}{{ end }}
{{- $tree := dict "k" "v" }}{{ range 40 }}{{ $tree = dict "a" $tree "b" $tree }}{{ end }}"#;

/// Each must fail.
const HOSTILE: &[(&str, &str)] = &[
    // Text
    ("repeat", r#"{{ repeat 9223372036854775807 "a" }}"#),
    (
        "repeat in repeat",
        r#"{{ $s := "a" }}{{ range 100 }}{{ $s = repeat 10 $s }}{{ end }}"#,
    ),
    ("indent", r#"{{ indent 9223372036854775807 "a" }}"#),
    ("nindent", r#"{{ nindent 1000000000 "a\nb\nc" }}"#),
    ("replace", r#"{{ replace "a" $big $big }}"#),
    ("replace nothing", r#"{{ replace "" $big $big }}"#),
    ("join", r#"{{ join $big $list }}"#),
    (
        "cat",
        r#"{{ $s := $big }}{{ range 100 }}{{ $s = cat $s $s }}{{ end }}"#,
    ),
    ("quote", r#"{{ range 100 }}{{ quote $big }}{{ end }}"#),
    (
        "print",
        r#"{{ range 100 }}{{ $_ := print $big $big }}{{ end }}"#,
    ),
    (
        "printf width",
        r#"{{ range 100 }}{{ $_ := printf "%1000000d" 1 }}{{ end }}"#,
    ),
    (
        "printf widths",
        r#"{{ printf (repeat 100000 "%[1]999999d ") 1 }}"#,
    ),
    (
        "printf star",
        r#"{{ range 100 }}{{ $_ := printf "%*d" 1000000 1 }}{{ end }}"#,
    ),
    (
        "printf precision",
        r#"{{ range 100 }}{{ $_ := printf "%.1000000f" 1.5 }}{{ end }}"#,
    ),
    ("printf of a list", r#"{{ printf "%1000d" $list }}"#),
    ("wrapWith", r#"{{ wrapWith 1 $big $big }}"#),
    (
        "html",
        r#"{{ range 100 }}{{ $_ := html (repeat 1000000 "<") }}{{ end }}"#,
    ),
    (
        "js",
        r#"{{ range 100 }}{{ $_ := js (repeat 1000000 "<") }}{{ end }}"#,
    ),
    (
        "urlquery",
        r#"{{ range 100 }}{{ $_ := urlquery (repeat 1000000 "<") }}{{ end }}"#,
    ),
    (
        "b64enc",
        r#"{{ $s := $big }}{{ range 100 }}{{ $s = b64enc $s }}{{ end }}"#,
    ),
    (
        "b32enc",
        r#"{{ $s := $big }}{{ range 100 }}{{ $s = b32enc $s }}{{ end }}"#,
    ),
    (
        "snakecase",
        r#"{{ $s := repeat 100000 "aB" }}{{ range 1000 }}{{ $_ := snakecase $s }}{{ end }}"#,
    ),
    (
        "trimAll",
        r#"{{ range 2000000 }}{{ $_ := trimAll $big $big }}{{ end }}"#,
    ),
    (
        "nospace",
        r#"{{ range 100 }}{{ $_ := nospace $big }}{{ end }}"#,
    ),
    ("split", r#"{{ split "a" $big }}"#),
    ("splitList", r#"{{ splitList "" $big }}"#),
    ("splitn", r#"{{ splitn "a" 9223372036854775807 $big }}"#),
    // Numbers
    ("seq", r#"{{ seq 9223372036854775806 }}"#),
    ("until", r#"{{ until 9223372036854775807 }}"#),
    ("untilStep", r#"{{ untilStep 0 9223372036854775807 1 }}"#),
    ("range", r#"{{ range 9223372036854775807 }}{{ end }}"#),
    ("randAlpha", r#"{{ randAlpha 9223372036854775807 }}"#),
    ("randBytes", r#"{{ randBytes 9223372036854775807 }}"#),
    // Lists and dicts
    (
        "append",
        r#"{{ $l := $list }}{{ range 100000 }}{{ $l = append $l 1 }}{{ end }}"#,
    ),
    (
        "append, kept",
        r#"{{ $all := list }}{{ range 100000 }}{{ $all = append $all (append $list 1) }}{{ end }}"#,
    ),
    (
        "prepend",
        r#"{{ $l := $list }}{{ range 100000 }}{{ $l = prepend $l 1 }}{{ end }}"#,
    ),
    (
        "concat",
        r#"{{ $l := $list }}{{ range 100 }}{{ $l = concat $l $l }}{{ end }}"#,
    ),
    (
        "concat of many",
        r#"{{ concat $list $list $list $list $list $list $list $list $list $list $list $list $list $list $list $list $list $list $list $list }}"#,
    ),
    (
        "list in list",
        r#"{{ $l := list }}{{ range 1000000 }}{{ $l = list $l . }}{{ end }}"#,
    ),
    (
        "set",
        r#"{{ $d := dict }}{{ range 1000000 }}{{ $_ := set $d (toString .) . }}{{ end }}"#,
    ),
    (
        "dict in dict",
        r#"{{ $d := dict }}{{ range 1000000 }}{{ $d = dict "a" $d }}{{ end }}"#,
    ),
    ("uniq", r#"{{ uniq $list }}"#),
    (
        "without",
        r#"{{ range 100 }}{{ $_ := without $list -1 -2 -3 }}{{ end }}"#,
    ),
    (
        "has",
        r#"{{ range 1000 }}{{ $_ := has -1 $list }}{{ end }}"#,
    ),
    (
        "deepEqual",
        r#"{{ $a := list $list }}{{ $b := list (until 100000) }}{{ range 1000 }}{{ $_ := deepEqual $a $b }}{{ end }}"#,
    ),
    ("deepCopy", r#"{{ deepCopy $dag }}"#),
    ("deepCopy of dicts", r#"{{ deepCopy $tree }}"#),
    ("merge", r#"{{ $_ := merge $tree (deepCopy $tree) }}"#),
    ("chunk", r#"{{ chunk 1 (until 400000) }}"#),
    (
        "sortAlpha",
        r#"{{ range 1000 }}{{ $_ := sortAlpha $list }}{{ end }}"#,
    ),
    (
        "reverse",
        r#"{{ range 1000 }}{{ $_ := reverse $list }}{{ end }}"#,
    ),
    // Formats
    ("toYaml", r#"{{ toYaml $dag }}"#),
    ("toYamlPretty", r#"{{ toYamlPretty $tree }}"#),
    ("toJson", r#"{{ toJson $dag }}"#),
    ("toPrettyJson", r#"{{ toPrettyJson $tree }}"#),
    ("toRawJson", r#"{{ toRawJson $dag }}"#),
    ("toToml", r#"{{ toToml $tree }}"#),
    ("toString", r#"{{ toString $dag }}"#),
    (
        "toYaml of one text",
        r#"{{ $l := list }}{{ range 1000 }}{{ $l = append $l $big }}{{ end }}{{ toYaml $l }}"#,
    ),
    (
        "toYaml that fails",
        r#"{{ $l := append $list 1i }}{{ range 1000 }}{{ $_ := toYaml $l }}{{ end }}"#,
    ),
    (
        "fromYaml",
        r#"{{ fromYaml (printf "a: [%s]" (repeat 1000000 "[],")) }}"#,
    ),
    (
        "fromYaml aliases",
        r#"{{ $y := "a: &a [x,x,x,x,x,x,x,x,x]\n" }}{{ range until 9 }}{{ $y = printf "%sa%d: &a [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" $y . }}{{ end }}{{ range 100 }}{{ $_ := fromYaml $y }}{{ if hasKey $_ "Error" }}{{ fail "refused" }}{{ end }}{{ end }}"#,
    ),
    (
        "fromJson",
        r#"{{ fromJson (printf "{\"a\":[%s1]}" (repeat 1000000 "[],")) }}"#,
    ),
    (
        "fromJson, kept",
        r#"{{ $l := list }}{{ $t := printf "{\"a\":[%s1]}" (repeat 50000 "[],") }}{{ range 1000 }}{{ $l = append $l (fromJson $t) }}{{ end }}"#,
    ),
    (
        "fromToml",
        r#"{{ range 100 }}{{ $_ := fromToml (printf "a = [%s]" (repeat 50000 "1,")) }}{{ end }}"#,
    ),
    (
        "fromToml names",
        r#"{{ $l := list }}{{ range until 300 }}{{ $l = append $l (printf "[k%d%s]" . (repeat 490 ".a")) }}{{ end }}{{ fromToml (join "\n" $l) | len }}"#,
    ),
    // Patterns
    (
        "regexMatch, large",
        r#"{{ range 1000 }}{{ $_ := regexMatch (repeat 20 `[\pL\pN]{1000}`) "a" }}{{ end }}"#,
    ),
    (
        "regexMatch, repeated",
        r#"{{ range 100000 }}{{ $_ := regexMatch (printf "(\\pL{100}){10}%d" .) "a" }}{{ end }}"#,
    ),
    ("regexReplaceAll", r#"{{ regexReplaceAll "a" $big $big }}"#),
    (
        "regexReplaceAll groups",
        r#"{{ regexReplaceAll "(?s).*" $big (repeat 100000 "$0") }}"#,
    ),
    (
        "regexReplaceAllLiteral",
        r#"{{ regexReplaceAllLiteral "" $big $big }}"#,
    ),
    ("regexFindAll", r#"{{ regexFindAll "a" $big -1 }}"#),
    (
        "regexFindAll looking ahead",
        r#"{{ regexFindAll ".*[^A-Z]|[A-Z]" (repeat 10000 "A") -1 | len }}"#,
    ),
    (
        "regexSplit looking ahead",
        r#"{{ regexSplit ".*[^A-Z]|[A-Z]" (repeat 10000 "A") -1 | len }}"#,
    ),
    (
        "regexReplaceAll looking ahead",
        r#"{{ regexReplaceAll ".*[^A-Z]|[A-Z]" (repeat 10000 "A") "" | len }}"#,
    ),
    (
        "regexReplaceAll groups that are not there",
        r#"{{ regexReplaceAll "a" (repeat 10000 "a") (repeat 1000 "$z") | len }}"#,
    ),
    (
        "regexMatch of text and pattern",
        r#"{{ regexMatch (printf "[a-m]%s[0-9]" (repeat 8 "[a-z]{999}")) (repeat 20000 "a") }}"#,
    ),
    ("regexSplit", r#"{{ regexSplit "a" $big -1 }}"#),
    // Templates
    (
        "include",
        r#"{{ define "r" }}{{ include "r" . }}{{ end }}{{ include "r" . }}"#,
    ),
    (
        "template",
        r#"{{ define "r" }}{{ template "r" . }}{{ end }}{{ template "r" . }}"#,
    ),
    (
        "tpl",
        r#"{{ define "r" }}{{ tpl "{{ include \"r\" . }}" . }}{{ end }}{{ include "r" . }}"#,
    ),
    ("tpl of much", r#"{{ tpl (repeat 1000000 "{{1}}") . }}"#),
    (
        "tpl of many",
        r#"{{ range 1000000 }}{{ $_ := tpl (printf "%d %s" . (repeat 10000 "{{1}}")) . }}{{ end }}"#,
    ),
    // Keys
    (
        "bcrypt",
        r#"{{ range 1000 }}{{ $_ := bcrypt "a" }}{{ end }}"#,
    ),
    (
        "htpasswd",
        r#"{{ range 1000 }}{{ $_ := htpasswd "a" "b" }}{{ end }}"#,
    ),
    (
        "derivePassword",
        r#"{{ range 1000 }}{{ $_ := derivePassword 1 "long" "p" "u" "s" }}{{ end }}"#,
    ),
    (
        "genPrivateKey",
        r#"{{ range 1000 }}{{ $_ := genPrivateKey "ecdsa" }}{{ end }}"#,
    ),
    (
        "sha256sum",
        r#"{{ range 10000000 }}{{ $_ := sha256sum $big }}{{ end }}"#,
    ),
];

/// Each may fail or not, but must end without overflowing the stack.
const DEEP: &[(&str, &str)] = &[
    (
        "fromJson",
        r#"{{ fromJsonArray (printf "%s%s" (repeat 9990 "[") (repeat 9990 "]")) | kindOf }}"#,
    ),
    (
        "fromJson, wrong",
        r#"{{ fromJson (printf "%s%s" (repeat 9990 "[") (repeat 9990 "]")) | kindOf }}"#,
    ),
    (
        "fromJson, unfinished",
        r#"{{ fromJsonArray (repeat 9990 "[") | kindOf }}"#,
    ),
    (
        "fromJson objects",
        r#"{{ fromJson (printf "%s1%s" (repeat 9990 "{\"a\":") (repeat 9990 "}")) | kindOf }}"#,
    ),
    (
        "fromYaml",
        r#"{{ fromYamlArray (printf "%s%s" (repeat 9990 "[") (repeat 9990 "]")) | kindOf }}"#,
    ),
    (
        "fromYaml, wrong",
        r#"{{ fromYaml (printf "%s%s" (repeat 9990 "[") (repeat 9990 "]")) | kindOf }}"#,
    ),
    (
        "fromYaml blocks",
        r#"{{ fromYamlArray (repeat 9990 "- ") | kindOf }}"#,
    ),
    (
        "fromToml",
        r#"{{ fromToml (printf "a = %s%s" (repeat 9990 "[") (repeat 9990 "]")) | kindOf }}"#,
    ),
    (
        "toJson",
        r#"{{ $d := list }}{{ range 100000 }}{{ $d = list $d }}{{ end }}{{ toJson $d }}"#,
    ),
    (
        "toJson at the limit",
        r#"{{ $d := list }}{{ range 999 }}{{ $d = list $d }}{{ end }}{{ toJson $d | len }}"#,
    ),
    (
        "toYaml at the limit",
        r#"{{ $d := list }}{{ range 999 }}{{ $d = list $d }}{{ end }}{{ toYaml $d | len }}"#,
    ),
    (
        "toYamlPretty at the limit",
        r#"{{ $d := list }}{{ range 999 }}{{ $d = list $d }}{{ end }}{{ toYamlPretty $d | len }}"#,
    ),
    (
        "toToml at the limit",
        r#"{{ $d := dict }}{{ range 999 }}{{ $d = dict "a" $d }}{{ end }}{{ toToml $d | len }}"#,
    ),
    (
        "print",
        r#"{{ $d := list }}{{ range 100000 }}{{ $d = list $d }}{{ end }}{{ $d }}"#,
    ),
    (
        "deepCopy",
        r#"{{ $d := list }}{{ range 100000 }}{{ $d = list $d }}{{ end }}{{ deepCopy $d | kindOf }}"#,
    ),
    (
        "deepEqual",
        r#"{{ $a := list }}{{ $b := list }}{{ range 100000 }}{{ $a = list $a }}{{ $b = list $b }}{{ end }}{{ deepEqual $a $b }}"#,
    ),
    (
        "regexp groups",
        r#"{{ regexMatch (printf "%sa%s" (repeat 900 "(") (repeat 900 ")")) "a" }}"#,
    ),
    (
        "regexp repeats",
        r#"{{ regexMatch (printf "%sa%s" (repeat 450 "(?:") (repeat 450 ")?")) "a" }}"#,
    ),
    (
        "itself",
        r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ toYaml $d }}{{ deepEqual $d $d }}{{ merge $d (dict "d" $d) | kindOf }}"#,
    ),
];

fn render(text: &str) -> Result<Vec<u8>, Error> {
    let mut set = Dialect::Helm.template_set("t");
    set.parse("t", format!("{PRELUDE}{text}"))?;
    Renderer::new(Arc::new(set), &SystemHost, LIMITS).render("t", &Value::Nil)
}

fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread
        .spawn(run)
        .expect("a thread")
        .join()
        .expect("the message above says what is wrong");
}

/// The most memory this process has held, where the system tells.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[test]
fn hostile_templates_end_within_the_limits() {
    on_a_small_stack(|| {
        let mut wrong = Vec::new();
        let mut peak = peak_kib().unwrap_or_default();
        for (name, text) in HOSTILE {
            let _ = writeln!(std::io::stderr(), "{name}");
            if let Ok(output) = render(text) {
                wrong.push(format!("{name}: {} bytes", output.len()));
            }
            let now = peak_kib().unwrap_or_default();
            if now > peak && now > PEAK_KIB {
                wrong.push(format!("{name}: {} MiB", now >> 10));
            }
            peak = peak.max(now);
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

#[test]
fn deep_values_need_no_stack() {
    on_a_small_stack(|| {
        for (name, text) in DEEP {
            // All that is left of a stack overflow.
            let _ = writeln!(std::io::stderr(), "{name}");

            let _ = render(text);
        }
    });
}

/// A list of a few elements may hold megabytes: what texts take counts as long as something holds them, and no longer.
#[test]
fn texts_count_while_they_are_held() {
    let limits = Limits {
        bytes: 1 << 30,
        memory: 8 << 20,
        ..LIMITS
    };
    let render = |template: &str| {
        let mut set = Dialect::Helm.template_set("chart");
        set.parse("t", template).unwrap();
        Renderer::new(Arc::new(set), &SystemHost, limits).render("t", &Value::Nil)
    };
    let held =
        "{{ $l := list }}{{ range until 100 }}{{ $l = append $l (repeat 130000 \"a\") }}{{ end }}";
    let failed = render(held).unwrap_err();
    assert!(failed.is_limit(), "{failed}");
    let deep = "{{ define \"d\" }}{{ $t := repeat 130000 \"a\" }}{{ if . }}{{ include \"d\" (sub . 1) }}{{ end }}{{ end }}{{ include \"d\" 100 }}";
    assert!(render(deep).unwrap_err().is_limit());
    let dropped = "{{ range until 1000 }}{{ $_ := repeat 130000 \"a\" }}{{ end }}";
    assert_eq!(render(dropped).unwrap(), b"");
}
