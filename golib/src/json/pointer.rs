//! Places in a JSON document, found and changed as `evanphx/json-patch` 4 does: by pointers (RFC 6901), whose places in lists may
//! count from the end. Errors are its texts.

use serde_json::Value;

/// The map or list that has what `pointer` names, and the pointer's last step; none where there is no such map or list.
///
/// ```
/// use golib::json::pointer;
/// use serde_json::json;
///
/// let mut document = json!({"a": [1, 2]});
/// let (list, key) = pointer::parent(&mut document, "/a/-1").ok_or("there is no list")?;
/// assert_eq!(pointer::get(list, &key)?, Some(&json!(2)));
/// pointer::add(list, "0", json!(0))?;
/// pointer::replace(list, "1", json!("one"))?;
/// pointer::remove(list, &key)?;
/// assert_eq!(document, json!({"a": [0, "one"]}));
/// # Ok::<(), String>(())
/// ```
pub fn parent<'a>(document: &'a mut Value, pointer: &str) -> Option<(&'a mut Value, String)> {
    let (_, steps) = pointer.split_once('/')?;
    let (parents, key) = steps
        .rsplit_once('/')
        .map_or((None, steps), |(parents, key)| (Some(parents), key));
    let mut at = document;
    for step in parents.into_iter().flat_map(|parents| parents.split('/')) {
        let step = unescaped(step);
        at = match at {
            Value::Object(map) => map.get_mut(&step)?,
            Value::Array(list) => {
                let place = place(&step, list.len()).ok()?;
                list.get_mut(place)?
            }
            _ => return None,
        };
    }
    (at.is_object() || at.is_array()).then(|| (at, unescaped(key)))
}

fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// The place that `key` names among `length`; a negative one counts from the end.
///
/// # Errors
/// It is no number, or there is no such place.
pub fn place(key: &str, length: usize) -> Result<usize, String> {
    let index = crate::strconv::atoi(key).map_err(|error| error.to_string())?;
    let place = match index < 0 {
        true => index.saturating_add_unsigned(length as u64),
        false => index,
    };
    usize::try_from(place)
        .ok()
        .filter(|place| *place < length)
        .ok_or_else(|| format!("Unable to access invalid index: {index}: invalid index referenced"))
}

/// How many elements of a list move when what `pointer` names is taken out of it, or put before it.
///
/// ```
/// use golib::json::pointer::behind;
/// use serde_json::json;
///
/// let mut document = json!({"a": [1, 2, 3]});
/// assert_eq!(behind(&mut document, "/a/1"), 2);
/// assert_eq!(behind(&mut document, "/a/-"), 0);
/// assert_eq!(behind(&mut document, "/a"), 0);
/// ```
pub fn behind(document: &mut Value, pointer: &str) -> usize {
    match parent(document, pointer) {
        Some((Value::Array(list), key)) => {
            place(&key, list.len()).map_or(0, |place| list.len() - place)
        }
        _ => 0,
    }
}

/// What a map or list has at `key`; a map may have nothing there.
///
/// # Errors
/// A list has no such place.
pub fn get<'a>(container: &'a Value, key: &str) -> Result<Option<&'a Value>, String> {
    Ok(match container {
        Value::Array(list) => list.get(place(key, list.len())?),
        container => container.get(key),
    })
}

/// Puts `value` into a map or list; in a list, what stands there and behind moves on. `-` is the end of a list.
///
/// # Errors
/// A list has no such place.
pub fn add(container: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match container {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
        }
        Value::Array(list) if key == "-" => list.push(value),
        Value::Array(list) => {
            if let Err(error) = crate::strconv::atoi(key) {
                return Err(format!(
                    "value was not a proper array index: '{key}': {error}"
                ));
            }
            // One past the end is a place to add at.
            list.insert(place(key, list.len() + 1)?, value);
        }
        _ => {}
    }
    Ok(())
}

/// Puts `value` in the place of what is there; into a map also where nothing is.
///
/// # Errors
/// A list has no such place.
pub fn replace(container: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match container {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
        }
        Value::Array(list) => {
            let place = place(key, list.len())?;
            if let Some(there) = list.get_mut(place) {
                *there = value;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Takes what is at `key` out of a map or list.
///
/// # Errors
/// There is nothing.
pub fn remove(container: &mut Value, key: &str) -> Result<Value, String> {
    match container {
        Value::Object(map) => map
            .remove(key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
        Value::Array(list) => Ok(list.remove(place(key, list.len())?)),
        _ => Ok(Value::Null),
    }
}
