//! A value on its way through an expression.

use super::{Type, Value};

/// A value together with what Go's `reflect` knows of where it came from.
///
/// Go tells three nils apart: no value at all, an `interface {}` that holds nil, and a nil list or map. A missing field is
/// the second, and a field of *it* is an error; a pipeline turns it into the first, whose fields are nil again.
#[derive(Clone, Debug, Default)]
pub struct Operand {
    /// The value itself.
    pub value: Value,
    /// Whether the static type is `interface {}`: an element of a map or list, or the result of a function that returns
    /// anything.
    pub is_interface: bool,
    /// Whether Go could take the value's address: a field of a struct behind a pointer.
    pub is_addressable: bool,
}

impl Operand {
    /// A value of the static type `interface {}`.
    ///
    /// ```
    /// use templating::{Operand, Value};
    ///
    /// // A nil of type `interface {}` is a value; one without a type is none.
    /// assert!(!Operand::any(Value::Nil).is_invalid() && Operand::exact(Value::Nil).is_invalid());
    /// assert_eq!(Operand::any(Value::Int(1)).type_name(), "interface {}");
    /// assert_eq!(Operand::exact(Value::Int(1)).type_name(), "int");
    /// ```
    pub fn any(value: Value) -> Self {
        Self {
            value,
            is_interface: true,
            is_addressable: false,
        }
    }

    /// A value whose static type is its own; nil is no value at all.
    pub fn exact(value: Value) -> Self {
        Self {
            value,
            is_interface: false,
            is_addressable: false,
        }
    }

    /// Whether there is no value at all: Go's zero `reflect.Value`.
    pub fn is_invalid(&self) -> bool {
        !self.is_interface && matches!(self.value, Value::Nil)
    }

    /// The name of the static type.
    pub fn type_name(&self) -> &'static str {
        if self.is_interface {
            Type::Any.name()
        } else {
            self.value.type_name()
        }
    }

    /// Forgets the static type, as a pipeline does.
    pub fn stripped(self) -> Self {
        if self.is_interface {
            Self::exact(self.value)
        } else {
            self
        }
    }

    /// An element of a list or map, whose static type is the element type.
    pub fn element(value: Value, element: Type) -> Self {
        Self {
            value,
            is_interface: matches!(element, Type::Any),
            is_addressable: false,
        }
    }
}
