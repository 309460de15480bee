//! Rendering through the public interface.

use std::sync::Arc;
use std::thread;

use templating::{
    Dialect, Error, Functions, Host, Limits, Map, MissingKey, Renderer, Str, SystemHost,
    TemplateSet, Value,
};

use crate::{render, render_with};

#[test]
fn a_set_is_shared_between_threads() {
    let mut set = TemplateSet::new("set", Arc::new(Functions::builtin()));
    set.parse("t", "{{ range 3 }}{{ . }}{{ end }}").unwrap();
    let set = Arc::new(set);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let set = Arc::clone(&set);
            thread::spawn(move || {
                Renderer::new(set, &SystemHost, Limits::default()).render("t", &Value::Nil)
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap().unwrap(), b"012");
    }
}

/// In Go the `else` of a range is part of it, so that a `break` there ends this range and not the one around it; a
/// `continue` goes on with the one around it.
#[test]
fn breaks_in_the_else_of_a_range_end_that_range() {
    let text = "{{ range 2 }}{{ range list }}{{ else }}a{{ break }}b{{ end }}c{{ end }}d";
    assert_eq!(render(text).unwrap(), "acacd");
    let text = "{{ range 2 }}{{ range list }}{{ else }}a{{ continue }}b{{ end }}c{{ end }}d";
    assert_eq!(render(text).unwrap(), "aad");
}

#[test]
fn own_functions_take_rust_types() {
    let mut functions = Functions::builtin();
    functions.add("greet", |name: Str, times: i64| {
        format!("{name}!").repeat(times as usize)
    });
    let mut set = TemplateSet::new("set", Arc::new(functions));
    set.parse("t", r#"{{ 2 | greet "you" }}"#).unwrap();
    let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
    assert_eq!(renderer.render("t", &Value::Nil).unwrap(), b"you!you!");
}

#[test]
fn lookup_asks_the_host() {
    struct Cluster;
    impl Host for Cluster {
        fn lookup(
            &self,
            _: &str,
            kind: &str,
            ns: &str,
            name: &str,
        ) -> Result<serde_json::Value, Error> {
            Ok(serde_json::json!({ "kind": kind, "replicas": 3, "name": format!("{ns}/{name}") }))
        }
    }
    let mut set = Dialect::Helm.template_set("t");
    set.parse(
        "t",
        r#"{{ $o := lookup "v1" "Pod" "ns" "a" }}{{ $o.name }} {{ printf "%T" $o.replicas }}"#,
    )
    .unwrap();
    let mut renderer = Renderer::new(Arc::new(set), &Cluster, Limits::default());
    assert_eq!(renderer.render("t", &Value::Nil).unwrap(), b"ns/a int64");
}

#[test]
fn definitions_inside_tpl_stay_local() {
    let text = r#"{{ define "a" }}outer{{ end }}{{ tpl "{{ define \"a\" }}inner{{ end }}{{ include \"a\" . }}" . }} {{ include "a" . }}"#;
    assert_eq!(render(text).unwrap(), "inner outer");
}

#[test]
fn a_bare_nil_and_a_parenthesised_one_differ() {
    let data = Map::from_iter([("nul", Value::Nil)]);
    let go = |text: &str| render_with(text, data.clone().into(), Limits::default());
    assert_eq!(go("{{ (.nul).foo }}").unwrap(), "<no value>");
    let error = go("{{ .nul.foo }}")
        .expect_err("a nil has no fields")
        .to_string();
    assert!(
        error.ends_with("nil pointer evaluating interface {}.foo"),
        "{error}"
    );
}

#[test]
fn fleets_dialect_has_its_own_delimiters() {
    let mut set = Dialect::Fleet.template_set("values");
    set.parse("values", "{{ x }} ${ .a } ${- /* no */ -} }")
        .unwrap();
    let set = Arc::new(set.with_missing_key(MissingKey::Error));
    let mut renderer = Renderer::new(set, &SystemHost, Limits::default());
    let data = Map::from_iter([("a", "b")]).into();
    assert_eq!(renderer.render("values", &data).unwrap(), b"{{ x }} b}");
    assert!(renderer.render("values", &Map::new().into()).is_err());
    assert!(Dialect::Fleet.functions().get("include").is_none());
}

#[test]
fn complex_literals_are_read_as_go_scans_them() {
    assert_eq!(
        render("{{ 1+2i }} {{ -1.5e1-0x1p1i }}").unwrap(),
        "(1+2i) (-15-2i)"
    );
    let error = |text: &str| render(text).expect_err("no number").to_string();
    assert_eq!(
        error("{{ 0b1+2i }}"),
        "template: t:1: syntax error scanning complex number"
    );
    assert_eq!(
        error("{{ 0x1+2i }}"),
        r#"template: t:1: strconv.ParseFloat: parsing "0x1": invalid syntax"#
    );
}
