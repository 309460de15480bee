//! Why states cannot be merged, in apimachinery's words (`mergepatch/errors.go`), but for what objects hold: that may be a Secret's.

use golib::json::{go_text, go_text_as, go_type};
use serde_json::{Map, Value};

use super::work::TooMuchWork;

/// Why a merge patch cannot be made or applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// It would take too long.
    #[error(transparent)]
    TooMuchWork(#[from] TooMuchWork),
    /// Not a JSON object.
    #[error("invalid JSON document")]
    BadDocument,
    /// A list in a mergeable list.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// A list element lacks the key that its list is merged by.
    #[error("map does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The element as Go prints it.
        element: String,
        key: String,
    },
    /// A value of another type than the rule needs.
    #[error("expected a {expected}, but received a {found}")]
    BadType {
        /// Go's type.
        expected: &'static str,
        /// Go's type.
        found: &'static str,
    },
    /// A `$patch` directive that does not exist.
    #[error("unknown patch type")]
    UnknownDirective {
        /// As Go's `%s` prints it.
        directive: String,
        /// The map as Go prints it.
        map: String,
    },
    /// `$patch: merge` in a list.
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirective,
    /// `$patch` that is not text, in a manifest.
    #[error("invalid value for special key: $patch")]
    DirectiveType,
    /// A malformed directive.
    #[error("invalid patch format of {0}")]
    BadDirective(&'static str),
    /// The elements of a patch stand in another order than its `$setElementOrder` says.
    #[error("The order in patch list doesn't match $setElementOrder list")]
    Order {
        /// As Go prints it.
        patch: String,
        /// As Go prints it.
        order: String,
    },
    /// Elements of different types in one list.
    #[error("list element types are not identical")]
    MixedList {
        /// As Go prints them.
        lists: String,
    },
    /// Lists without any element where a type is needed.
    #[error("no elements in any of the given slices")]
    EmptyLists,
    /// A list of maps under a field that has no merge key.
    #[error("cannot merge lists without merge key for {0}")]
    ListWithoutKey(&'static str),
    /// A list where the type has something else.
    #[error("expected slice or array type, but got: struct")]
    NotAList,
    /// A list element that is no map, where its list is merged by key.
    #[error("value for key {0} is not a map")]
    NotAMap(usize),
    /// A field that the type lacks.
    #[error("unable to find api field in struct {type_name} for the json field {field:?}")]
    UnknownField {
        /// Go's type.
        type_name: &'static str,
        field: String,
    },
    /// Fields below something that is no struct.
    #[error("merging an object in json but data type is not struct, instead is: {0}")]
    NotAStruct(&'static str),
}

impl MergeError {
    /// All of apimachinery's text, with the objects that it shows: for nobody who may not read them.
    pub fn go_text(&self) -> String {
        match self {
            Self::NoMergeKey { element, key } => {
                format!("map: {element} does not contain declared merge key: {key}")
            }
            Self::UnknownDirective { directive, map } => {
                format!("unknown patch type: {directive} in map: {map}")
            }
            Self::Order { patch, order } => format!(
                "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
            ),
            Self::MixedList { lists } => format!("list element types are not identical: {lists}"),
            error => error.to_string(),
        }
    }

    pub(super) fn no_merge_key(element: &Map<String, Value>, key: &str) -> Self {
        Self::NoMergeKey {
            element: go_map(element),
            key: key.to_owned(),
        }
    }

    pub(super) fn expected_map(found: &Value) -> Self {
        Self::BadType {
            expected: "map[string]interface {}",
            found: type_of(found),
        }
    }

    pub(super) fn expected_list(found: &Value) -> Self {
        Self::BadType {
            expected: "[]interface {}",
            found: type_of(found),
        }
    }

    pub(super) fn unknown_directive(directive: &Value, map: &Map<String, Value>) -> Self {
        Self::UnknownDirective {
            directive: go_text_as(directive, 's'),
            map: go_map(map),
        }
    }
}

/// Go's `%v` of a map.
fn go_map(map: &Map<String, Value>) -> String {
    go_text(&Value::Object(map.clone()))
}

/// Go's `%s` of a value's type.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        value => go_type(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As apimachinery 0.37 says.
    #[test]
    fn an_unknown_patch_directive_is_printed_as_go_prints_it() {
        for (directive, printed) in [
            (json!(null), "%!s(<nil>)"),
            (json!(3), "%!s(int64=3)"),
            (
                json!([{"containerPort": 80}, "a"]),
                "[map[containerPort:%!s(int64=80)] a]",
            ),
            (json!({}), "map[]"),
        ] {
            let error = MergeError::unknown_directive(&directive, &Map::new()).go_text();
            assert_eq!(
                error,
                format!("unknown patch type: {printed} in map: map[]")
            );
        }
        let error = MergeError::expected_list(&Value::Null).to_string();
        assert_eq!(
            error,
            "expected a []interface {}, but received a %!s(<nil>)"
        );
    }
}
