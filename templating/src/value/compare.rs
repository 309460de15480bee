//! `reflect.DeepEqual`: equality that looks into lists and maps and minds types.

use std::collections::HashSet;

use super::Value;

/// Whether both values have one type and equal contents; `1` and `1.0` differ, a nil list and an empty one too.
///
/// ```
/// use templating::value::deep_equal;
/// use templating::{List, Value};
///
/// assert!(deep_equal(&List::ints([1]).into(), &List::ints([1]).into()));
/// assert!(!deep_equal(&Value::Int(1), &Value::Int64(1))); // types count
/// ```
pub fn deep_equal(a: &Value, b: &Value) -> bool {
    deep_equal_counted(a, b, &mut 0)
}

/// As [`deep_equal`]; adds to `steps` how many pairs were looked at.
pub(crate) fn deep_equal_counted(a: &Value, b: &Value, steps: &mut u64) -> bool {
    // An explicit stack: values may be nested deeper than the thread's stack reaches.
    let mut pending = vec![(a.clone(), b.clone())];
    let mut visited = HashSet::new();
    while let Some((a, b)) = pending.pop() {
        *steps += 1;
        match (&a, &b) {
            (Value::List(x), Value::List(y)) => {
                if !std::ptr::eq(x.list_type(), y.list_type())
                    || x.is_nil() != y.is_nil()
                    || x.len() != y.len()
                {
                    return false;
                }
                // Shared lists are compared once: a list of itself twice, and so on, is small but spells out large.
                if x.address() == y.address() || !visited.insert((x.address(), y.address())) {
                    continue;
                }
                pending.extend(x.iter().cloned().zip(y.iter().cloned()));
            }
            (Value::Map(x), Value::Map(y)) => {
                if !std::ptr::eq(x.map_type(), y.map_type())
                    || x.is_nil() != y.is_nil()
                    || x.len() != y.len()
                {
                    return false;
                }
                // A map met a second time is being compared already: a template can put a map into itself.
                if x.is_same(y) || !visited.insert((x.address(), y.address())) {
                    continue;
                }
                for (key, left) in x.entries() {
                    match y.get(&key) {
                        Some(right) => pending.push((left, right)),
                        None => return false,
                    }
                }
            }
            (Value::Bytes(x), Value::Bytes(y)) if x == y => {}
            (Value::Nil, Value::Nil) => {}
            // Behind a pointer Go looks at what is there.
            (Value::Object(x), Value::Object(y))
                if x.type_name() == y.type_name() && !x.equals(y.as_ref()) =>
            {
                let (x, y) = (x.fields(), y.fields());
                if x.is_empty() || x.len() != y.len() {
                    return false;
                }
                let pairs = x.into_iter().zip(y);
                pending.extend(pairs.map(|((_, left), (_, right))| (left, right)));
            }
            _ if same_scalar(&a, &b) => {}
            _ => return false,
        }
    }
    true
}

/// Go's `==` between two interface values, for everything but lists, maps and bytes.
pub(crate) fn same_scalar(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Bool(x), Value::Bool(y)) => x == y,
        (Value::Int(x), Value::Int(y)) | (Value::Int64(x), Value::Int64(y)) => x == y,
        (Value::Int32(x), Value::Int32(y)) => x == y,
        (Value::Uint8(x), Value::Uint8(y)) => x == y,
        (Value::Uint32(x), Value::Uint32(y)) => x == y,
        (Value::Uint64(x), Value::Uint64(y)) => x == y,
        (Value::Float(x), Value::Float(y)) => x == y,
        (Value::Complex(a, b), Value::Complex(c, d)) => a == c && b == d,
        (Value::Str(x), Value::Str(y)) => x == y,
        (Value::Object(x), Value::Object(y)) => {
            x.type_name() == y.type_name() && x.equals(y.as_ref())
        }
        _ => false,
    }
}
