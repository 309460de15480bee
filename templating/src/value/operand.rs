//! A value on its way through an expression.

use super::{Operand, Type, Value};

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
