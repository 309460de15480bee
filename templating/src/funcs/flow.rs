//! Functions that steer a render: `include`, `tpl`, `required`, `fail` and `lookup`, as Helm's engine defines them in
//! `pkg/engine/engine.go`.

use super::argument::{Argument as _, Signature};
use super::functions::{Body, Callee, Functions};
use crate::error::Error;
use crate::state::State;
use crate::value::{Map, Str, Value};

/// Adds Helm's `include`, `tpl`, `required`, `fail` and `lookup`.
pub(crate) fn add_flow(functions: &mut Functions) {
    // Both take a string and any value.
    let signature = || Signature {
        params: vec![Str::TYPE, Value::TYPE],
        variadic: false,
    };
    functions.insert("include", signature(), Body::Function(Callee::Include));
    functions.insert("tpl", signature(), Body::Function(Callee::Tpl));
    functions.add("required", |message: Str, value: Value| {
        if is_missing(&value) {
            Err(Error::refused(message.to_string()))
        } else {
            Ok(value)
        }
    });
    functions.add("fail", |message: Str| {
        Err::<Str, _>(Error::refused(message.to_string()))
    });
    functions.add(
        "lookup",
        |state: &mut State<'_>, version: Str, kind: Str, ns: Str, name: Str| {
            let [version, kind, ns, name] = [&version, &kind, &ns, &name].map(|s| s.to_str_lossy());
            state.host().check()?;
            match Value::from(state.host().lookup(&version, &kind, &ns, &name)?) {
                Value::Map(object) => Ok(object),
                _ => Ok(Map::new()),
            }
        },
    );
}

/// These functions as Helm's linter sees them: `required` and `fail` let everything pass, `lookup` finds nothing.
pub(crate) fn add_flow_lint(functions: &mut Functions) {
    add_flow(functions);
    functions.add("required", |_message: Str, value: Value| {
        if is_missing(&value) {
            Value::from("")
        } else {
            value
        }
    });
    functions.add("fail", |_message: Str| "");
    functions.add("lookup", |_: Str, _: Str, _: Str, _: Str| Map::new());
}

fn is_missing(value: &Value) -> bool {
    match value {
        Value::Nil => true,
        Value::Str(text) => text.is_empty(),
        _ => false,
    }
}

/// Removes every `<no value>`, as Helm does from whatever it rendered.
///
/// ```
/// assert_eq!(templating::funcs::without_no_value(b"a: <no value>".to_vec()), b"a: ");
/// ```
pub fn without_no_value(text: Vec<u8>) -> Vec<u8> {
    const MARK: &[u8] = b"<no value>";
    // Most texts have none, and then nothing is copied.
    let find = |from: usize| memchr::memmem::find(&text[from..], MARK).map(|at| from + at);
    let Some(mut at) = find(0) else {
        return text;
    };
    let mut out = Vec::with_capacity(text.len());
    let mut from = 0;
    loop {
        out.extend_from_slice(&text[from..at]);
        from = at + MARK.len();
        match find(from) {
            Some(next) => at = next,
            None => {
                out.extend_from_slice(&text[from..]);
                return out;
            }
        }
    }
}
