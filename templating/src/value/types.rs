//! Go's types as far as templates can tell them apart: type names, which value fits which parameter, and the types that only the host knows.

use std::any::Any;
use std::fmt;

use super::Value;
use super::kind::Kind;
use super::text::Str;
use crate::error::Error;
use crate::state::State;

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

/// A Go struct, pointer or named scalar that a template can hold.
///
/// Everything a template can observe of it is asked through this trait; the defaults describe an empty struct.
///
/// ```
/// use std::sync::Arc;
/// use templating::{Dialect, Limits, Map, Method, Object, Operand, Renderer, SystemHost, Type, Value};
///
/// /// A Go struct with a field and a method.
/// struct Release {
///     name: &'static str,
/// }
///
/// static METHODS: [Method; 1] = [Method {
///     name: "Has",
///     params: &[Type::String],
///     call: |_, receiver, args| {
///         let Value::Object(release) = receiver else { return Err("no release".into()) };
///         let name = release.field("Name").and_then(|name| name.as_str().cloned());
///         Ok(Operand::exact(Value::Bool(name.as_ref() == args[0].value.as_str())))
///     },
/// }];
///
/// impl Object for Release {
///     fn type_name(&self) -> &'static str {
///         "chart.Release"
///     }
///
///     fn fields(&self) -> Vec<(&'static str, Value)> {
///         vec![("Name", self.name.into())]
///     }
///
///     fn methods(&self) -> &'static [Method] {
///         &METHODS
///     }
/// }
///
/// let mut set = Dialect::Helm.template_set("chart");
/// set.parse("t", r#"{{ .Release.Name }} {{ .Release.Has "web" }} {{ .Release }}"#)?;
/// let dot = Map::from_iter([("Release", Value::object(Release { name: "web" }))]).into();
/// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
/// assert_eq!(renderer.render("t", &dot)?, b"web true {web}");
/// # Ok::<(), templating::Error>(())
/// ```
pub trait Object: Any {
    /// Go's name of the type: `time.Time`, `*semver.Version`.
    fn type_name(&self) -> &'static str;

    /// Go's kind of the type.
    fn kind(&self) -> Kind {
        Kind::Struct
    }

    /// An exported field.
    fn field(&self, name: &str) -> Option<Value> {
        self.fields()
            .into_iter()
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value)
    }

    /// The names among [`Object::fields`] that are printed but that a template may not read.
    fn unexported(&self) -> &'static [&'static str] {
        &[]
    }

    /// All fields in order of declaration, for `%v` and `%+v`.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// The methods a template may call.
    fn methods(&self) -> &'static [Method] {
        &[]
    }

    /// What the `String` or `Error` method of the type gives.
    fn text(&self) -> Option<Str> {
        None
    }

    /// What `String` on a *pointer* to the value gives. Go finds that method only where the value is addressable:
    /// when it is a field printed directly, not when it was passed to a function.
    fn text_by_address(&self) -> Option<Str> {
        None
    }

    /// The address that a pointer prints as, 0 for nil. That of the value itself where there is none.
    fn address(&self) -> Option<usize> {
        None
    }

    /// The value in a deep copy, which Sprig makes of exported fields only. The value itself where there is none.
    fn copied(&self) -> Option<Value> {
        None
    }

    /// The plain value of a named scalar type (`time.Duration`: an `Int64`). Numbers are compared and formatted by it.
    fn scalar(&self) -> Option<Value> {
        None
    }

    /// A number of the same named type, which `range` counts in.
    fn counted(&self, _number: i64) -> Option<Value> {
        None
    }

    /// Go's `==`, asked only for another object of the same type.
    fn equals(&self, _other: &dyn Object) -> bool {
        false
    }

    /// What `encoding/json` makes of it, as a plain value; `None` stands for the object of its [`Object::fields`].
    ///
    /// # Errors
    /// What the type's `MarshalJSON` fails with.
    fn json(&self) -> Result<Option<Value>, Error> {
        Ok(self.scalar())
    }

    /// What the `GoString` method of the type gives, for `%#v`.
    fn go_string(&self) -> Option<Str> {
        None
    }

    /// Methods that Go finds but no template can call, as they give several results.
    fn uncallable(&self) -> &'static [Uncallable] {
        &[]
    }

    /// The fields that `encoding/json` writes for a struct, in their order, under their JSON names. Everything else it
    /// writes is sorted, so only the text of its JSON shows this order.
    fn json_fields(&self) -> Option<Vec<(&'static str, Value)>> {
        None
    }
}

impl dyn Object {
    /// The value as the Rust type it was made of.
    pub fn downcast_ref<T: Object>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
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
