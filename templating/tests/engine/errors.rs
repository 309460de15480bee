//! Errors keep their parts, print as Go prints them, and can point at the place.

use templating::error::{Cause, ErrorKind};

use crate::render;

#[test]
fn an_execution_error_knows_its_place() {
    let error = render("a\n  {{ index nil 1 }}").expect_err("nil has no index");
    assert_eq!(
        error.to_string(),
        r#"template: t:2:5: executing "t" at <index nil 1>: error calling index: index of untyped nil"#
    );
    let ErrorKind::Exec(exec) = error.kind() else {
        panic!("{error:?}")
    };
    assert_eq!((exec.location.line, exec.location.column), (2, 5));
    assert!(matches!(&exec.cause, Cause::Call { function, .. } if function == "index"));
}

#[test]
fn the_pretty_form_points_at_the_node() {
    let error = render("x: 1\nyé: {{ len 5 }}\n").expect_err("5 has no length");
    let expected = "\
len of type int
  --> t:2:8
   2 | yé: {{ len 5 }}
     |        ^
";
    assert_eq!(error.pretty(), expected);
}

#[test]
fn a_parse_error_shows_its_line() {
    let error = render("fine\n{{ if }}").expect_err("if needs a pipeline");
    assert_eq!(error.to_string(), "template: t:2: missing value for if");
    assert_eq!(
        error.pretty(),
        "missing value for if\n  --> t:2\n   2 | {{ if }}\n"
    );
}

/// What random cases showed to be otherwise in Go.
#[test]
fn errors_name_the_types_go_names() {
    for (text, want) in [
        (
            r#"{{ range (durationRoundTo "1h" "") }}{{ .b }}{{ end }}"#,
            "can't evaluate field b in type time.Duration",
        ),
        (
            r#"{{ index (semver "1") 0 }}"#,
            "error calling index: can't index item of type semver.Version",
        ),
    ] {
        let error = render(text).expect_err(text).to_string();
        assert!(error.ends_with(want), "{error}");
    }
}

#[test]
fn a_refusal_is_found_below_includes() {
    let error = render(r#"{{ define "a" }}{{ fail "no" }}{{ end }}{{ include "a" . }}"#);
    let error = error.expect_err("the template refuses");
    assert!(
        error
            .chain()
            .any(|e| matches!(e.kind(), ErrorKind::Refused(text) if text == "no"))
    );
    assert_eq!(error.chain().count(), 3);
}
