//! Go's zero values.

use super::{List, Map, Str, Type, Value};

impl Type {
    /// Go's zero value of this type (nil for host types, whose zero only they could make).
    ///
    /// ```
    /// use templating::{Type, Value};
    ///
    /// assert!(matches!(Type::Int.zero(), Value::Int(0)));
    /// assert!(Type::Any.zero().is_untyped_nil());
    /// ```
    pub fn zero(&self) -> Value {
        match self {
            Type::Any | Type::Reflect | Type::Object(_) => Value::Nil,
            Type::Bool => Value::Bool(false),
            Type::Int => Value::Int(0),
            Type::Int32 => Value::Int32(0),
            Type::Int64 => Value::Int64(0),
            Type::Uint8 => Value::Uint8(0),
            Type::Uint32 => Value::Uint32(0),
            Type::Uint64 => Value::Uint64(0),
            Type::Float64 => Value::Float(0.0),
            Type::Complex128 => Value::Complex(0.0, 0.0),
            Type::String => Value::Str(Str::default()),
            Type::Bytes => Value::Bytes(None),
            Type::List(ty) => Value::List(List::nil(ty)),
            Type::Map(ty) => Value::Map(Map::nil(ty)),
        }
    }
}
