//! Templates that try to run forever, to fill the memory or to overflow the stack end in an error, and soon.

use templating::{Error, Limits, List, Map, Value};

use crate::{render, render_with};

fn limited(text: &str) -> Error {
    let limits = Limits {
        steps: 100_000,
        bytes: 1 << 20,
        ..Limits::default()
    };
    render_with(text, Value::Nil, limits).expect_err("the template must not get through")
}

#[test]
fn endless_loops_run_out_of_steps() {
    let error = limited("{{ range 9223372036854775807 }}{{ end }}");
    assert!(error.is_limit(), "{error}");
    let error = limited(
        r#"{{ define "a" }}{{ range 1000 }}{{ template "b" }}{{ end }}{{ end }}{{ define "b" }}{{ range 1000 }}{{ end }}{{ end }}{{ template "a" }}"#,
    );
    assert!(error.is_limit(), "{error}");
}

#[test]
fn growing_lists_cost_their_square() {
    let error = limited("{{ $l := list }}{{ range 50000 }}{{ $l = append $l 1 }}{{ end }}");
    assert!(error.is_limit(), "{error}");
}

#[test]
fn output_is_bounded() {
    let error = limited("{{ range 100000 }}0123456789abcdef0123456789abcdef{{ end }}");
    assert!(error.is_limit(), "{error}");
    let error = limited(r#"{{ printf "%09999999d" 1 }}"#);
    assert!(error.is_limit(), "{error}");
}

#[test]
fn includes_that_never_end_are_errors() {
    let error = limited(r#"{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}"#);
    assert!(
        error.to_string().contains("error calling include"),
        "{error:.200}"
    );
    let error = limited(
        r#"{{ define "a" }}{{ include "b" . }}{{ end }}{{ define "b" }}{{ tpl "{{ include \"a\" . }}" . }}{{ end }}{{ include "a" . }}"#,
    );
    assert!(
        error.to_string().contains("error calling include"),
        "{error:.200}"
    );
}

#[test]
fn template_recursion_reaches_the_limit_of_go() {
    let error = render(r#"{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}"#);
    let error = error.expect_err("the recursion has no end").to_string();
    assert!(
        error.ends_with("exceeded maximum template depth (100000)"),
        "{error}"
    );
}

#[test]
fn texts_that_render_themselves_end() {
    let text = "{{ $t := \"{{ tpl . . }}\" }}{{ tpl $t $t }}";
    let error = render(text).expect_err("it has no end").to_string();
    assert!(error.contains("template is nested too deeply"), "{error}");
}

#[test]
fn nesting_is_bounded_while_parsing() {
    let parens = format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000));
    let error = render(&parens).expect_err("too deep").to_string();
    assert_eq!(error, "template: t:1: max expression depth exceeded");
    let blocks = "{{ if true }}".repeat(100_000);
    let error = render(&blocks).expect_err("too deep").to_string();
    assert_eq!(error, "template: t:1: max block depth exceeded");
    let chain = format!(
        "{{{{ if 1 }}}}{}{{{{ end }}}}",
        "{{ else if 2 }}".repeat(100_000)
    );
    let error = render(&chain).expect_err("too deep").to_string();
    assert_eq!(error, "template: t:1: max block depth exceeded");
}

#[test]
fn the_default_nesting_fits_a_small_stack() {
    let depth = 180;
    let parens = format!("{{{{ {}1{} }}}}", "(".repeat(depth), ")".repeat(depth));
    let blocks = format!(
        "{}x{}",
        "{{ if true }}".repeat(depth),
        "{{ end }}".repeat(depth)
    );
    assert_eq!(render(&blocks).unwrap(), "x");
    // Unoptimised code may need more stack than the default limit gives; then it is an error, not an overflow.
    assert!(render(&parens).is_ok_and(|text| text == "1") || render(&parens).is_err());
}

#[test]
fn values_that_contain_themselves_are_not_printed() {
    let map = Map::new();
    map.insert("self", map.clone()).unwrap();
    let error = render_with("{{ . }}", map.into(), Limits::default());
    assert!(error.expect_err("the map has no end").is_limit());
}

#[test]
fn small_values_that_spell_out_large_are_not_spelled_out() {
    let mut value: Value = List::new(vec![]).into();
    let mut twin: Value = List::new(vec![]).into();
    for _ in 0..60 {
        value = List::new(vec![value.clone(), value]).into();
        twin = List::new(vec![twin.clone(), twin]).into();
    }
    assert!(templating::value::deep_equal(&value, &twin));
    assert!(value.to_json().is_err());
    let error = render_with(
        "{{ . }}",
        value,
        Limits {
            bytes: 1 << 20,
            ..Limits::default()
        },
    );
    assert!(error.expect_err("2^60 lists").is_limit());
}
