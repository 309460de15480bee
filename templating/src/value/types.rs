//! Go's types as far as templates can tell them apart: kinds, type names and which value fits which parameter.

use std::fmt;

use super::{Operand, Value};
use crate::error::Error;
use crate::state::State;

macro_rules! kinds {
    ($($doc:literal $kind:ident $name:literal;)*) => {
        /// What Go's `reflect.Kind` calls a value; prints as Go does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $(#[doc = $doc] $kind,)*
        }

        impl Kind {
            /// Go's name, as Sprig's `kindOf` shows it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    "The untyped nil." Invalid "invalid";
    "`bool`" Bool "bool";
    "`int`" Int "int";
    "`int32`" Int32 "int32";
    "`int64`" Int64 "int64";
    "`uint8`" Uint8 "uint8";
    "`uint32`" Uint32 "uint32";
    "`uint64`" Uint64 "uint64";
    "`float64`" Float64 "float64";
    "`complex128`" Complex128 "complex128";
    "`string`" String "string";
    "Lists and bytes." Slice "slice";
    "Maps." Map "map";
    "Host types that are structs." Struct "struct";
    "Host types that are pointers to structs." Ptr "ptr";
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A method of a host type: a function whose receiver is the value itself.
#[derive(Debug)]
pub struct Method {
    /// Name of the method.
    pub name: &'static str,
    /// The parameters after the receiver.
    pub params: &'static [Type],
    /// Code of the method; the arguments have the types of `params`.
    pub call: Call,
}

/// A method that a template finds and cannot call.
#[derive(Debug)]
pub struct Uncallable {
    /// Name of the method.
    pub name: &'static str,
    /// How many parameters it has after the receiver.
    pub params: usize,
    /// Go's words about its results.
    pub complaint: &'static str,
}

/// What a [`Method`] does with its receiver and its arguments.
pub type Call = fn(&mut State<'_>, &Value, &mut [Operand]) -> Result<Operand, Error>;

impl Method {
    /// A method of this name, with these parameters after the receiver.
    pub const fn new(name: &'static str, params: &'static [Type], call: Call) -> Self {
        Self { name, params, call }
    }
}

/// The type of a list or of a map with string keys. Two values have the same type when they refer to the same one.
#[derive(Debug)]
pub struct ContainerType {
    /// Go's name: `[]interface {}`, `map[string]interface {}`, `common.Values`.
    pub name: &'static str,
    /// The type of the elements.
    pub element: Type,
    /// Whether the type was declared with a name of its own.
    pub named: bool,
    /// The methods that `.Name` on such a value calls; on a map, before any key of that name is looked at.
    pub methods: &'static [Method],
}

impl ContainerType {
    const fn plain(name: &'static str, element: Type) -> Self {
        Self {
            name,
            element,
            named: false,
            methods: &[],
        }
    }
}

/// A list type such as `[]string`.
///
/// ```
/// use templating::value::{LIST, ListType};
/// use templating::{List, Type};
///
/// static VERSIONS: ListType = ListType { name: "common.VersionSet", element: Type::String, named: true, methods: &[] };
/// assert!(!Type::List(&LIST).accepts(&List::nil(&VERSIONS).into()));
/// ```
pub type ListType = ContainerType;
/// A map type with string keys, such as `map[string]string`.
pub type MapType = ContainerType;

/// `[]interface {}`
pub static LIST: ListType = ListType::plain("[]interface {}", Type::Any);
/// `[]string`
pub static STRINGS: ListType = ListType::plain("[]string", Type::String);
/// `[]int`
pub static INTS: ListType = ListType::plain("[]int", Type::Int);
/// `[][]interface {}`
pub static LISTS: ListType = ListType::plain("[][]interface {}", Type::List(&LIST));
/// `[]map[string]interface {}`
pub static MAPS: ListType = ListType::plain("[]map[string]interface {}", Type::Map(&MAP));
/// `map[string]interface {}`
pub static MAP: MapType = MapType::plain("map[string]interface {}", Type::Any);
/// `map[string]string`
pub static STRING_MAP: MapType = MapType::plain("map[string]string", Type::String);

/// A static type: of a parameter, of the elements of a list or map.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// `interface {}`: anything, nil too.
    Any,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `int32`
    Int32,
    /// `int64`
    Int64,
    /// `uint8`
    Uint8,
    /// `uint32`
    Uint32,
    /// `uint64`
    Uint64,
    /// `float64`
    Float64,
    /// `complex128`
    Complex128,
    /// `string`
    String,
    /// `[]uint8`
    Bytes,
    /// A slice such as `[]string`.
    List(&'static ListType),
    /// A map such as `map[string]string`.
    Map(&'static MapType),
    /// A host type, by its Go name.
    Object(&'static str),
    /// `reflect.Value`: anything, and it matters which kind of nil.
    Reflect,
}

impl Type {
    /// Go's name of the type.
    pub fn name(&self) -> &'static str {
        match self {
            Type::Any => "interface {}",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Int32 => "int32",
            Type::Int64 => "int64",
            Type::Uint8 => "uint8",
            Type::Uint32 => "uint32",
            Type::Uint64 => "uint64",
            Type::Float64 => "float64",
            Type::Complex128 => "complex128",
            Type::String => "string",
            Type::Bytes => "[]uint8",
            Type::List(list) => list.name,
            Type::Map(map) => map.name,
            Type::Object(name) => name,
            Type::Reflect => "reflect.Value",
        }
    }

    /// Whether nil is a value of this type.
    pub fn can_be_nil(&self) -> bool {
        match self {
            Type::Any | Type::Reflect | Type::Bytes | Type::List(_) | Type::Map(_) => true,
            // Pointers, and the one interface with methods.
            Type::Object(name) => name.starts_with('*') || *name == "io.Writer",
            _ => false,
        }
    }

    /// Whether Go would let `value` be assigned to a variable of this type, no constant conversion considered.
    ///
    /// ```
    /// use templating::{Type, Value};
    ///
    /// assert!(Type::Any.accepts(&Value::Nil) && Type::Int.accepts(&Value::Int(1)));
    /// assert!(!Type::Int.accepts(&Value::Int64(1))); // Go converts constants, not values
    /// ```
    pub fn accepts(&self, value: &Value) -> bool {
        match (self, value) {
            (Type::Any | Type::Reflect, _) => true,
            (Type::Bool, Value::Bool(_))
            | (Type::Int, Value::Int(_))
            | (Type::Int32, Value::Int32(_))
            | (Type::Int64, Value::Int64(_))
            | (Type::Uint8, Value::Uint8(_))
            | (Type::Uint32, Value::Uint32(_))
            | (Type::Uint64, Value::Uint64(_))
            | (Type::Float64, Value::Float(_))
            | (Type::Complex128, Value::Complex(..))
            | (Type::String, Value::Str(_))
            | (Type::Bytes, Value::Bytes(_)) => true,
            (Type::List(to), Value::List(list)) => {
                let from = list.list_type();
                std::ptr::eq(*to, from)
                    || ((!to.named || !from.named) && to.element == from.element)
            }
            (Type::Map(to), Value::Map(map)) => {
                let from = map.map_type();
                std::ptr::eq(*to, from)
                    || ((!to.named || !from.named) && to.element == from.element)
            }
            (Type::Object(name), Value::Object(object)) => object.type_name() == *name,
            _ => false,
        }
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
