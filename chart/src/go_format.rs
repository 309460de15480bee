//! Values as Go's `fmt` prints them inside Helm's messages.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// `%v`: `map[a:1 b:[x <nil>]]`.
pub(crate) fn value(value: &Value) -> String {
    let mut out = String::new();
    print(value, None, &mut out);
    out
}

/// `%t` of something that is no boolean: `%!t(string=x)`.
pub(crate) fn not_a_bool(value: &Value) -> String {
    match value {
        Value::Null => "%!t(<nil>)".to_owned(),
        other => {
            let mut out = String::new();
            print(other, Some('t'), &mut out);
            out
        }
    }
}

/// The Go type a value has in memory, as Helm words it.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        value => golib::json::go_type(value),
    }
}

fn print(value: &Value, bad_verb: Option<char>, out: &mut String) {
    let scalar = |go_type: &str, text: &str, out: &mut String| match bad_verb {
        Some(verb) => {
            let _ = write!(out, "%!{verb}({go_type}={text})");
        }
        None => out.push_str(text),
    };
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => scalar(go_type(value), &self::number(number), out),
        Value::String(text) => scalar("string", text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                print(item, bad_verb, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            for (index, (key, item)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                scalar("string", key, out);
                out.push(':');
                print(item, bad_verb, out);
            }
            out.push(']');
        }
    }
}

fn number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => golib::strconv::format_float(float, b'g', -1, 64),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{not_a_bool, value};

    #[test]
    fn prints_as_go_does() {
        let tree = json!({"b": [0.0, null, "x y"], "a": {"c": true, "d": 1e6, "e": 3}});
        assert_eq!(
            value(&tree),
            "map[a:map[c:true d:1e+06 e:3] b:[0 <nil> x y]]"
        );
        assert_eq!(not_a_bool(&json!([1.0, null])), "[%!t(float64=1) <nil>]");
        assert_eq!(not_a_bool(&json!(null)), "%!t(<nil>)");
        assert_eq!(not_a_bool(&json!(true)), "true");
    }
}
