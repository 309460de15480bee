//! Freeing nested values without recursion: a template can nest lists a million deep, and dropping them one inside the
//! other would overflow the stack.

use super::Value;

pub(super) struct Children;

impl Children {
    pub(super) fn is_container(value: &Value) -> bool {
        matches!(value, Value::List(_) | Value::Map(_))
    }

    /// Drops values level by level.
    pub(super) fn release(mut pending: Vec<Value>) {
        if !pending.iter().any(Self::is_container) {
            return;
        }
        while let Some(value) = pending.pop() {
            match value {
                Value::List(list) => pending.extend(list.into_children()),
                Value::Map(map) => pending.extend(map.into_children()),
                _ => {}
            }
        }
    }
}
