//! Decoded JSON as Go's `fmt` prints it.

use std::fmt::Write as _;

use serde_json::Value;

use super::go_type;

/// Go's `%v` of a decoded JSON value.
///
/// ```
/// let value = serde_json::json!({"b": [null, "x"], "a": 1e6});
/// assert_eq!(golib::json::go_text(&value), "map[a:1e+06 b:[<nil> x]]");
/// ```
pub fn go_text(value: &Value) -> String {
    go_text_as(value, 'v')
}

/// The same by another verb: `%s`, which fits texts, or `%t`, which fits booleans. What a verb does not fit is told with its type.
///
/// ```
/// let value = serde_json::json!(["x", 1, null]);
/// assert_eq!(golib::json::go_text_as(&value, 's'), "[x %!s(int64=1) <nil>]");
/// ```
pub fn go_text_as(value: &Value, verb: char) -> String {
    if value.is_null() && verb != 'v' {
        return format!("%!{verb}(<nil>)");
    }
    let mut out = String::new();
    print(value, verb, &mut out);
    out
}

fn print(value: &Value, verb: char, out: &mut String) {
    let scalar = |text: &str, go_type: &str, its_verb: char, out: &mut String| {
        if verb == 'v' || verb == its_verb {
            out.push_str(text);
        } else {
            let _ = write!(out, "%!{verb}({go_type}={text})");
        }
    };
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(flag) => scalar(&flag.to_string(), "bool", 't', out),
        Value::Number(number) => {
            let text = match number.as_f64() {
                Some(float) if number.is_f64() => crate::strconv::format_float(float, b'g', -1, 64),
                _ => number.to_string(),
            };
            scalar(&text, go_type(value), 'd', out);
        }
        Value::String(text) => scalar(text, "string", 's', out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                print(item, verb, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            for (index, (key, item)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                scalar(key, "string", 's', out);
                out.push(':');
                print(item, verb, out);
            }
            out.push(']');
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prints_as_go_does() {
        let tree = json!({"b": [0.0, null, "x y"], "a": {"c": true, "d": 1e6, "e": 3}});
        assert_eq!(
            go_text(&tree),
            "map[a:map[c:true d:1e+06 e:3] b:[0 <nil> x y]]"
        );
        for (value, verb, want) in [
            (json!([1.0, null]), 't', "[%!t(float64=1) <nil>]"),
            (json!(null), 't', "%!t(<nil>)"),
            (json!(true), 't', "true"),
            (json!({"a": [null, "x"]}), 's', "map[a:[<nil> x]]"),
            (json!([true, 3]), 's', "[%!s(bool=true) %!s(int64=3)]"),
        ] {
            assert_eq!(go_text_as(&value, verb), want);
        }
    }
}
