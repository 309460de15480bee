//! What a template sees: Go's values with their types, kinds and notions of truth and equality.
//!
//! Values belong to one render on one thread and are cheap to clone: strings, lists and maps are shared. Printing lives
//! in [`crate::fmt`], the rules for `.field` and function arguments in the engine (`exec`).
//!
//! A value may hold values, so lists and maps are declared here with it; what they can do is in `list` and `map`.

mod compare;
mod cycles;
mod drop;
pub(crate) mod json;
mod kind;
mod list;
mod map;
mod operand;
pub(crate) mod size;
mod text;
mod types;
mod zero;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

pub use compare::deep_equal;
pub(crate) use compare::deep_equal_counted;
pub(crate) use compare::same_scalar;
pub use cycles::CycleGuard;
pub use kind::Kind;
pub use text::Str;
pub use types::{
    Call, ContainerType, INTS, LIST, LISTS, ListType, MAP, MAPS, MapType, Method, Object, Operand,
    STRING_MAP, STRINGS, Type, Uncallable,
};

use crate::memory::Held;

/// A Go value.
///
/// ```
/// use serde_json::json;
/// use templating::{Kind, Value};
///
/// let value = Value::from(json!({"list": [1, "two", null], "on": true}));
/// let list = value.as_map().unwrap().get("list").unwrap();
/// assert_eq!(list.items().unwrap()[0].kind(), Kind::Int64);
/// assert_eq!(Value::from(1i64).type_name(), "int");
/// assert!(!Value::from("").is_true());
/// assert_eq!(value.to_json()?, json!({"list": [1, "two", null], "on": true}));
/// # Ok::<(), templating::Error>(())
/// ```
#[derive(Clone, Default)]
pub enum Value {
    /// The untyped nil.
    #[default]
    Nil,
    /// `bool`
    Bool(bool),
    /// `int`: literals, `len`, `until`.
    Int(i64),
    /// `int32`
    Int32(i32),
    /// `int64`: Sprig's arithmetic, `--set`, TOML.
    Int64(i64),
    /// `uint8`: an element of bytes or of a string.
    Uint8(u8),
    /// `uint32`
    Uint32(u32),
    /// `uint64`
    Uint64(u64),
    /// `float64`: every number from YAML or JSON.
    Float(f64),
    /// `complex128`, real and imaginary part.
    Complex(f64, f64),
    /// `string`
    Str(Str),
    /// `[]byte`; `None` is nil.
    Bytes(Option<Rc<Str>>),
    /// A slice of any type.
    List(List),
    /// A map of any type with string keys.
    Map(Map),
    /// A value that only the host knows: a time, a version, a chart's file.
    Object(Rc<dyn Object>),
}

/// A list of one Go type, possibly nil. Cloning shares the elements.
///
/// ```
/// use templating::{List, Value};
///
/// let list = List::strings(["a", "b"]);
/// assert_eq!(list.list_type().name, "[]string");
/// assert_eq!(list.len(), 2);
/// assert_eq!(List::new(vec![Value::Int(1)]).list_type().name, "[]interface {}");
/// ```
#[derive(Clone)]
pub struct List {
    ty: &'static ListType,
    items: Option<Rc<Items>>,
}

struct Items {
    items: Vec<Value>,
    _held: Held,
}

/// A map of one Go type, possibly nil. Cloning gives another reference to the same map.
///
/// ```
/// use templating::Map;
///
/// let map = Map::from_iter([("name", "web")]);
/// let same = map.clone();
/// same.insert("port", 80i64)?;
/// assert_eq!(map.len(), 2); // as in Go, both are one map
/// # Ok::<(), templating::Error>(())
/// ```
#[derive(Clone)]
pub struct Map {
    ty: &'static MapType,
    entries: Option<Rc<Entries>>,
}

struct Entries(RefCell<BTreeMap<Str, Value>>, Held);

impl Value {
    /// A string.
    pub fn string(text: impl Into<Str>) -> Self {
        Value::Str(text.into())
    }

    /// A value of a host type.
    pub fn object(object: impl Object) -> Self {
        Value::Object(Rc::new(object))
    }

    /// The untyped nil; a nil list or map is not.
    pub fn is_untyped_nil(&self) -> bool {
        matches!(self, Value::Nil)
    }

    /// Nil of any type.
    pub fn is_nil(&self) -> bool {
        match self {
            Value::Nil | Value::Bytes(None) => true,
            Value::List(list) => list.is_nil(),
            Value::Map(map) => map.is_nil(),
            _ => false,
        }
    }

    /// Go's kind of the value.
    ///
    /// ```
    /// use templating::{Kind, Value};
    ///
    /// assert_eq!(Value::Int(1).kind(), Kind::Int);
    /// assert_eq!(Value::from(serde_json::json!({ "a": 1 })).kind(), Kind::Map);
    /// ```
    pub fn kind(&self) -> Kind {
        match self {
            Value::Nil => Kind::Invalid,
            Value::Bool(_) => Kind::Bool,
            Value::Int(_) => Kind::Int,
            Value::Int32(_) => Kind::Int32,
            Value::Int64(_) => Kind::Int64,
            Value::Uint8(_) => Kind::Uint8,
            Value::Uint32(_) => Kind::Uint32,
            Value::Uint64(_) => Kind::Uint64,
            Value::Float(_) => Kind::Float64,
            Value::Complex(..) => Kind::Complex128,
            Value::Str(_) => Kind::String,
            Value::Bytes(_) | Value::List(_) => Kind::Slice,
            Value::Map(_) => Kind::Map,
            Value::Object(object) => object.kind(),
        }
    }

    /// Go's name of the type, `<nil>` for the untyped nil.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Nil => "<nil>",
            Value::Bytes(_) => "[]uint8",
            Value::List(list) => list.list_type().name,
            Value::Map(map) => map.map_type().name,
            Value::Object(object) => object.type_name(),
            scalar => scalar.kind().name(),
        }
    }

    /// Whether `if` takes the value for true: false are false, 0, the empty string, list and map, and nil.
    ///
    /// ```
    /// use templating::{List, Value};
    ///
    /// assert!(!Value::from("").is_true() && !Value::Int(0).is_true() && !Value::Nil.is_true());
    /// assert!(Value::from("false").is_true() && Value::List(List::ints([0])).is_true());
    /// ```
    pub fn is_true(&self) -> bool {
        match self {
            Value::Nil => false,
            Value::Bool(b) => *b,
            Value::Int(n) | Value::Int64(n) => *n != 0,
            Value::Int32(n) => *n != 0,
            Value::Uint8(n) => *n != 0,
            Value::Uint32(n) => *n != 0,
            Value::Uint64(n) => *n != 0,
            Value::Float(n) => *n != 0.0,
            Value::Complex(re, im) => *re != 0.0 || *im != 0.0,
            Value::Str(text) => !text.is_empty(),
            Value::Bytes(bytes) => bytes.as_ref().is_some_and(|b| !b.is_empty()),
            Value::List(list) => !list.is_empty(),
            Value::Map(map) => !map.is_empty(),
            Value::Object(object) => object.scalar().is_none_or(|scalar| scalar.is_true()),
        }
    }

    /// Strings only; see [`crate::fmt`] for the text of other values.
    pub fn as_str(&self) -> Option<&Str> {
        match self {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The map, if it is one.
    ///
    /// ```
    /// use templating::Value;
    ///
    /// let value = Value::from(serde_json::json!({ "name": "web" }));
    /// let name = value.as_map().and_then(|map| map.get("name"));
    /// assert_eq!(name.and_then(|name| name.as_str().map(ToString::to_string)).as_deref(), Some("web"));
    /// assert!(Value::Int(1).as_map().is_none());
    /// ```
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The list, if it is one; bytes are none.
    pub fn as_list(&self) -> Option<&List> {
        match self {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// The value of any signed integer kind.
    pub fn as_signed(&self) -> Option<i64> {
        match self {
            Value::Int(n) | Value::Int64(n) => Some(*n),
            Value::Int32(n) => Some(i64::from(*n)),
            Value::Object(object) => object.scalar().and_then(|scalar| scalar.as_signed()),
            _ => None,
        }
    }

    /// The value of any unsigned integer kind.
    pub fn as_unsigned(&self) -> Option<u64> {
        match self {
            Value::Uint8(n) => Some(u64::from(*n)),
            Value::Uint32(n) => Some(u64::from(*n)),
            Value::Uint64(n) => Some(*n),
            Value::Object(object) => object.scalar().and_then(|scalar| scalar.as_unsigned()),
            _ => None,
        }
    }

    /// The elements of a list of any type, bytes included.
    pub fn items(&self) -> Option<Vec<Value>> {
        match self {
            Value::List(list) => Some(list.to_vec()),
            Value::Bytes(bytes) => Some(
                bytes
                    .iter()
                    .flat_map(|b| b.iter().copied())
                    .map(Value::Uint8)
                    .collect(),
            ),
            _ => None,
        }
    }
}

macro_rules! from {
    ($($type:ty => $variant:expr),* $(,)?) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                $variant(value.into())
            }
        }
    )*};
}

from! {
    bool => Value::Bool,
    i64 => Value::Int,
    i32 => Value::Int32,
    u8 => Value::Uint8,
    u32 => Value::Uint32,
    u64 => Value::Uint64,
    f64 => Value::Float,
    Str => Value::Str,
    &str => Value::Str,
    String => Value::Str,
    List => Value::List,
    Map => Value::Map,
    Rc<dyn Object> => Value::Object,
}

impl<T: Object> From<T> for Value {
    fn from(object: T) -> Self {
        Self::object(object)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Str(text) => write!(f, "{text:?}"),
            Value::List(list) => write!(f, "{list:?}"),
            Value::Map(map) => write!(f, "{map:?}"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::Int(n) => write!(f, "{n}"),
            Value::Float(n) => write!(f, "{n:?}"),
            other => write!(f, "<{}>", other.type_name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_references() {
        let map = Map::new();
        let same = map.clone();
        same.insert("a", 1i64).unwrap();
        assert!(map.contains_key("a"));
        assert!(Map::nil(&MAP).insert("a", 1i64).is_err());
    }

    #[test]
    fn deep_values_drop_without_recursion() {
        let mut value = Value::Nil;
        for depth in 0..1_000_000 {
            value = if depth % 2 == 0 {
                List::new(vec![value]).into()
            } else {
                Map::from_iter([("k", value)]).into()
            };
        }
        drop(value);
    }

    #[test]
    fn named_types_fit_their_plain_form_only() {
        static VALUES: MapType = MapType {
            name: "common.Values",
            element: Type::Any,
            named: true,
            methods: &[],
        };
        let values = Value::Map(Map::typed(&VALUES, Default::default()));
        assert!(Type::Map(&MAP).accepts(&values));
        assert!(!Type::Map(&STRING_MAP).accepts(&values));
        assert!(!Type::List(&LIST).accepts(&List::strings(["a"]).into()));
    }
}
